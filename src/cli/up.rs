//! `lazuli up`: an Azure, a small Kubernetes API and the whole provider in one process, until it is stopped.
//!
//! The processes of a cluster run here as tasks, with the arguments that they would have there: csi-controller, the cloud
//! controllers, and a csi-node for each machine. This module assembles them, prints where they are and what happens
//! ([`news`]), and leaves nothing behind ([`devices`]). It plays kubelet only as far as Nodes are concerned ([`machines`]):
//! no Pod runs and no claim is bound.

mod devices;
mod machines;
mod metrics;
mod news;

use std::{
    fs::File,
    io::Write as _,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use clap::{Args, builder::Resettable};
use lazuli_apiserver::ApiServer;
use lazuli_emulator::{
    Control, HypervisorChoice,
    latency::Profile,
    scenario::{Scenario, SecurityGroup},
};
use lazuli_rig::{
    Folder, SECURITY_GROUP,
    cluster::{Cluster, Layout},
    hypervisor_root, loop_hypervisor, machine_root, missing_for_mounts,
};
use serde_json::Value;
use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use self::{
    metrics::Place,
    news::{News, Pace},
};
use super::{Outcome, cloud_controllers, csi_controller, csi_node, number::whole, stop};

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// A Service to begin with.
const MANIFEST: &str = "web.json";
/// The route table of the cluster, which the route controller makes.
const ROUTE_TABLE: &str = "nodes-routes";
/// The ranges of Services: those that the API server gives.
const SERVICE_RANGE: &str = "10.96.0.0/12";
/// How long requests in flight may finish at the end, in seconds. A person waits for it.
const DRAIN_SECONDS: u64 = 5;
/// How often what has no event is looked at: Azure's operations while some run, and sockets at the start.
const LOOK: Duration = Duration::from_millis(200);
/// How long the processes may take to serve.
const START: Duration = Duration::from_secs(30);

/// Options of `lazuli up`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// How many machines: each is a Node and has a node plugin.
    #[arg(long, env = "LAZULI_UP_NODES", value_name = "N", default_value_t = 2, value_parser = whole::<u8>(1..=machines::MOST))]
    nodes: u8,
    /// The folder of kubeconfig, azure.json, sockets and disks: empty, not there yet, or that of an earlier lazuli up. It is
    /// kept at the end; the kubeconfig and the azure.json in it are removed. Default: a folder of its own below the system's
    /// for temporary files, removed at the end.
    #[arg(long, env = "LAZULI_UP_FOLDER")]
    folder: Option<PathBuf>,
    /// Where Azure and its page are served. Port 0: one that is free.
    #[arg(long, env = "LAZULI_UP_LISTEN", value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8181", value_parser = of_azure)]
    listen: SocketAddr,
    /// Where the Kubernetes API is served, in plain HTTP and to every process of this machine. Port 0: one that is free.
    #[arg(long, env = "LAZULI_UP_API_LISTEN", value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8182", value_parser = of_api_server)]
    api_listen: SocketAddr,
    /// How long Azure takes: none, typical (published medians), azure (spread around them with the published tail),
    /// bad-day, or a file.
    #[arg(long, env = "LAZULI_UP_LATENCY", default_value = "typical")]
    latency: Profile,
    /// Where csi-controller answers /metrics; the cloud controllers and the node plugins follow at the next ports. Plain HTTP,
    /// to every process of this machine. Default: nowhere.
    #[arg(long, env = "LAZULI_UP_METRICS_LISTEN", value_name = "ADDRESS:PORT", value_parser = metrics::first)]
    metrics_listen: Option<SocketAddr>,
    /// What becomes of attached disks: loop (block devices, which are formatted and mounted; needs root), or none (they are
    /// attached in Azure alone). Default: loop for root where the tools are installed, else none.
    #[arg(long, env = "LAZULI_UP_HYPERVISOR", value_enum)]
    hypervisor: Option<Hypervisor>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Hypervisor {
    None,
    Loop,
}

/// An address of this machine alone, and a port.
fn loopback(text: &str) -> Option<SocketAddr> {
    text.trim().parse().ok().filter(|address: &SocketAddr| address.ip().is_loopback())
}

/// Clients send tokens to Azure, which go over plain HTTP to this machine alone.
fn of_azure(text: &str) -> Result<SocketAddr, String> {
    loopback(text).ok_or_else(|| {
        "allowed: a loopback address and a port, such as 127.0.0.1:8181 or 127.0.0.1:0, for Azure is served in plain HTTP"
            .to_owned()
    })
}

/// The API server authorizes every request.
fn of_api_server(text: &str) -> Result<SocketAddr, String> {
    loopback(text).ok_or_else(|| {
        "allowed: a loopback address and a port, such as 127.0.0.1:8182 or 127.0.0.1:0, for it authorizes every request"
            .to_owned()
    })
}

/// Why it does not run, or does not run on.
#[derive(Debug, thiserror::Error)]
enum UpError {
    #[error("--hypervisor loop needs what this process lacks: {0}; --hypervisor none needs nothing")]
    NoDevices(String),
    #[error("the folder {0} is in use by another lazuli up; give another --folder, or none")]
    FolderInUse(PathBuf),
    #[error("the folder {path} cannot be used")]
    Folder { path: PathBuf, source: std::io::Error },
    #[error("{0} has ended without being asked to")]
    Ended(String),
    #[error("{name} has failed")]
    Failed { name: String, source: AnyError },
    #[error("the sockets of csi-controller and csi-node do not serve within {} s", START.as_secs())]
    NotServing,
}

pub(super) async fn run(options: Options) -> Outcome {
    let stop = stop::on_signal()?;
    let (hypervisor, devices) = hypervisor(options.hypervisor)?;
    let folder = match &options.folder {
        Some(path) => Folder::of_person(path).map_err(|source| UpError::Folder { path: path.clone(), source })?,
        None => Folder::make("up")?,
    };
    let _lock = lock(folder.path())?;
    let place = folder.path().to_owned();
    let started = Instant::now();
    let cluster = Cluster::assemble(Layout {
        azure: azure(&options, hypervisor, &place),
        keys: &[
            ("loadBalancerSku", "standard".into()),
            ("loadBalancerBackendPoolConfigurationType", "nodeIP".into()),
            ("routeTableName", ROUTE_TABLE.into()),
        ],
        server: ApiServer::start(lazuli_apiserver::Options {
            start: jiff::Timestamp::now(),
            ..lazuli_apiserver::Options::default()
        }),
        listen: options.api_listen,
        folder,
    })
    .await?;
    let up = Up { cluster, options, place, devices, started };
    let outcome = Box::pin(up.serve(&stop)).await;
    // A pipe may have no reader any more.
    let _ = print("\nStopping: unmounting and detaching what is left. Ctrl-C again ends at once and leaves it.\n");
    let left = devices::release(&up.place).await;
    for name in ["kubeconfig", "azure.json", MANIFEST] {
        // What starts next with this path waits for the next one, instead of asking this one.
        let _ = std::fs::remove_file(up.place.join(name));
    }
    let kept = up.options.folder.as_ref().map(|_| format!("; {} is kept", up.place.display()));
    up.cluster.stop().await;
    if left.is_ok() {
        let _ = print(&format!("Nothing is mounted, and no loop device is left{}.\n", kept.unwrap_or_default()));
    }
    outcome.and(left)
}

/// The hypervisor, and what is said of it.
fn hypervisor(asked: Option<Hypervisor>) -> Result<(Hypervisor, String), UpError> {
    let real = "disks are loop devices: the node plugins format and mount them";
    let paper = "disks are attached in Azure alone";
    match (asked, missing_for_mounts()) {
        (Some(Hypervisor::None), _) => Ok((Hypervisor::None, format!("{paper} (--hypervisor none)"))),
        (Some(Hypervisor::Loop), Some(why)) => Err(UpError::NoDevices(why)),
        (_, None) => Ok((Hypervisor::Loop, real.to_owned())),
        (None, Some(why)) => Ok((Hypervisor::None, format!("{paper}, without devices and mounts ({why})"))),
    }
}

/// One `lazuli up` uses a folder. The lock goes with the process.
fn lock(folder: &Path) -> Result<File, UpError> {
    let path = folder.join("lock");
    let failed = |source| UpError::Folder { path: path.clone(), source };
    let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(UpError::FolderInUse(folder.to_owned())),
        Err(std::fs::TryLockError::Error(source)) => Err(failed(source)),
    }
}

fn azure(options: &Options, hypervisor: Hypervisor, folder: &Path) -> lazuli_emulator::Options {
    let mut scenario = Scenario::default();
    machines::resize(&mut scenario, options.nodes);
    // The installer of a cluster makes it.
    scenario.security_groups = vec![SecurityGroup { name: SECURITY_GROUP.to_owned(), resource_group: None }];
    lazuli_emulator::Options {
        listen: options.listen,
        start_time: jiff::Timestamp::now(),
        latency: options.latency.clone(),
        hypervisor: match hypervisor {
            Hypervisor::Loop => loop_hypervisor(folder),
            Hypervisor::None => HypervisorChoice::None,
        },
        scenario,
        ..lazuli_emulator::Options::default()
    }
}

/// What runs.
struct Up {
    cluster: Cluster,
    options: Options,
    place: PathBuf,
    /// What disks are here, in words.
    devices: String,
    started: Instant,
}

impl Up {
    /// Runs the processes until `stop`, or until one of them ends.
    async fn serve(&self, stop: &CancellationToken) -> Result<(), AnyError> {
        let control = self.cluster.azure.control();
        let noticed = Arc::new(Notify::new());
        let follower = Arc::clone(&noticed);
        let existing = control.follow(move |_| follower.notify_one());
        let news = News::with_resources(existing.into_keys());
        machines::put_api_service(&self.cluster.server)?;
        let machine = machines::ThisMachine::read();
        for at in 0..self.options.nodes {
            self.cluster.server.put("nodes", machines::node(at, &machine))?;
        }
        // Its own end stops them all.
        let ending = CancellationToken::new();
        let mut processes = self.start(&ending)?;
        let reporter = Reporter { control, server: &self.cluster.server, noticed, news, started: self.started };
        self.cluster.write(MANIFEST, &machines::web())?;
        let outcome = tokio::select! {
            reported = async {
                self.until_serving().await?;
                print(&self.banner())?;
                Box::pin(reporter.report()).await
            } => reported,
            Some(ended) = processes.join_next() => Err(why_ended(ended)),
            () = stop.cancelled() => Ok(()),
        };
        ending.cancel();
        let mut failed = None;
        while let Some(ended) = processes.join_next().await {
            failed = failed.or(ended.map_or_else(
                |error| Some(error.into()),
                |(name, outcome)| outcome.err().map(|source| UpError::Failed { name, source }.into()),
            ));
        }
        outcome.and(failed.map_or(Ok(()), Err))
    }

    fn path(&self, name: &str) -> String {
        self.place.join(name).display().to_string()
    }

    /// The socket of a process, as its flags and the banner spell it.
    fn socket(&self, name: &str) -> String {
        format!("unix://{}", self.path(&format!("{name}.sock")))
    }

    /// Where the processes answer /metrics.
    fn metrics(&self) -> Vec<Place> {
        self.options.metrics_listen.map(|first| metrics::places(first, self.options.nodes)).unwrap_or_default()
    }

    fn start(&self, ending: &CancellationToken) -> Result<JoinSet<(String, Outcome)>, AnyError> {
        // Those of one that was killed: the folder's lock says that none is alive.
        self.sockets().iter().for_each(|socket| drop(std::fs::remove_file(socket)));
        let mut processes = JoinSet::new();
        let drain = format!("--drain-seconds={DRAIN_SECONDS}");
        let why = |name: &str| format!("--why-socket={}", self.path(&format!("why-{name}.sock")));

        let own = [format!("--endpoint={}", self.socket("controller")), why("csi-controller"), drain.clone()];
        let own = own.into_iter().chain(metrics::arguments_of(&self.metrics(), "csi-controller"));
        let options = options_of("csi-controller", self.cluster.arguments().into_iter().chain(own))?;
        let serving = Box::pin(csi_controller::serve(options, ending.child_token()));
        processes.spawn(async move { ("csi-controller".to_owned(), serving.await) });

        let own = [
            format!("--cluster-cidr={}", machines::POD_RANGE),
            format!("--service-cluster-ip-range={SERVICE_RANGE}"),
            why("cloud-controllers"),
            drain.clone(),
        ];
        let own = own.into_iter().chain(metrics::arguments_of(&self.metrics(), "cloud-controllers"));
        let options = options_of("cloud-controllers", self.cluster.arguments().into_iter().chain(own))?;
        let serving = Box::pin(cloud_controllers::serve(options, ending.child_token()));
        processes.spawn(async move { ("cloud-controllers".to_owned(), serving.await) });

        for at in 0..self.options.nodes {
            let name = machines::name(at);
            let arguments = [
                format!("--node-id={name}"),
                format!("--endpoint={}", self.socket(&name)),
                format!("--kubeconfig={}", self.path("kubeconfig")),
                format!("--imds-url={}/_imds/{name}", self.cluster.azure.url()),
                format!("--host-root={}", machine_root(&hypervisor_root(&self.place), &name).display()),
                format!("--state-dir={}", self.place.join("state").join(&name).display()),
                drain.clone(),
            ];
            let metrics = metrics::arguments_of(&self.metrics(), &format!("csi-node {name}"));
            let options = options_of("csi-node", arguments.into_iter().chain(metrics))?;
            let serving = Box::pin(csi_node::serve(options, ending.child_token()));
            processes.spawn(async move { (format!("csi-node of {name}"), serving.await) });
        }
        Ok(processes)
    }

    /// The sockets of csi-controller and of the node plugins.
    fn sockets(&self) -> Vec<PathBuf> {
        let nodes = (0..self.options.nodes).map(machines::name);
        std::iter::once("controller".to_owned())
            .chain(nodes)
            .map(|name| self.place.join(format!("{name}.sock")))
            .collect()
    }

    /// Waits until all sockets are there.
    async fn until_serving(&self) -> Result<(), UpError> {
        let serving = async {
            while !self.sockets().iter().all(|socket| socket.exists()) {
                sleep(LOOK).await;
            }
        };
        timeout(START, serving).await.map_err(|_| UpError::NotServing)
    }

    /// Where everything is, and what to try.
    fn banner(&self) -> String {
        let url = self.cluster.azure.url();
        let (kubeconfig, azure_json) = (self.path("kubeconfig"), self.path("azure.json"));
        let (web, why) = (self.path(MANIFEST), self.path("why-cloud-controllers.sock"));
        let program = std::env::args().next().unwrap_or_else(|| "lazuli".to_owned());
        let mut rows = vec![
            ("page", format!("{url}/")),
            ("Kubernetes API", format!("http://{}", self.cluster.address)),
            ("kubeconfig", kubeconfig.clone()),
            ("azure.json", azure_json.clone()),
            ("csi-controller", self.socket("controller")),
        ];
        let nodes: Vec<(String, String)> = (0..self.options.nodes)
            .map(machines::name)
            .map(|name| (format!("csi-node {name}"), self.socket(&name)))
            .collect();
        rows.extend(nodes.iter().map(|(name, socket)| (&**name, socket.clone())));
        let metrics: Vec<(String, String)> = self.metrics().iter().map(Place::row).collect();
        rows.extend(metrics.iter().map(|(name, url)| (&**name, url.clone())));
        rows.push(("devices", self.devices.clone()));
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
        let rows: String = rows.iter().map(|(name, value)| format!("  {name:<width$}  {value}\n")).collect();
        format!(
            "Lazuli is up: Azure, a small Kubernetes API and the provider, in this process. Ctrl-C ends it and leaves nothing.\n\n\
             {rows}\n\
             Try, in another terminal:\n\
             \x20 export KUBECONFIG={kubeconfig}\n\
             \x20 kubectl apply -f {web} && kubectl get service web --watch\n\
             \x20 {program} get load-balancers --cloud-config {azure_json}\n\
             \x20 {program} why service default/web --socket {why}\n\
             \x20 curl -s {url}/_emulator/counters\n\n\
             What happens:\n"
        )
    }
}

/// The options of a subcommand as these arguments give them. Variables of the environment are for the subcommand that a
/// person runs, and do not count.
fn options_of<O: Args>(name: &'static str, arguments: impl IntoIterator<Item = String>) -> Result<O, clap::Error> {
    let command = O::augment_args(clap::Command::new(name));
    let command = command.mut_args(|arg| arg.env(Resettable::<clap::builder::OsStr>::Reset));
    O::from_arg_matches(&command.try_get_matches_from(std::iter::once(name.to_owned()).chain(arguments))?)
}

fn why_ended(ended: Result<(String, Outcome), tokio::task::JoinError>) -> AnyError {
    match ended {
        Ok((name, Ok(()))) => UpError::Ended(name).into(),
        Ok((name, Err(source))) => UpError::Failed { name, source }.into(),
        Err(error) => error.into(),
    }
}

/// Prints to a terminal or a pipe. Without a reader the process has no use.
fn print(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Prints what happens.
struct Reporter<'a> {
    control: Control,
    server: &'a ApiServer,
    /// Azure has changed.
    noticed: Arc<Notify>,
    news: News,
    started: Instant,
}

impl Reporter<'_> {
    /// Prints a line for each thing that happens, for ever.
    async fn report(mut self) -> Result<(), AnyError> {
        let (mut versions, mut seen, mut ended, mut pace) = (self.server.versions(), 0, 0, Pace::default());
        loop {
            let now = *versions.borrow_and_update();
            let mut lines = self.of_cluster(seen);
            seen = now;
            lines.extend(self.of_azure(&mut ended));
            let at = self.started.elapsed();
            for line in pace.admit(at, lines) {
                print(&news::printed(at, &line))?;
            }
            let busy = pace.owes() || self.control.running_operations() > 0;
            tokio::select! {
                changed = versions.changed() => changed?,
                () = self.noticed.notified() => {}
                () = sleep(LOOK), if busy => {}
            }
        }
    }

    /// What has changed in the cluster after this version, in order.
    fn of_cluster(&mut self, after: u64) -> Vec<String> {
        let mut changes: Vec<(u64, &str, Value, bool)> = Vec::new();
        for plural in ["nodes", "services", "events"] {
            // Those that the server has forgotten in a storm are on no page either.
            for change in self.server.changes(plural, after).unwrap_or_default() {
                changes.push((change.version, plural, change.object, change.exists));
            }
        }
        changes.sort_by_key(|(version, ..)| *version);
        let line = |(_, plural, object, exists): (u64, &str, Value, bool)| match plural {
            "nodes" => self.news.of_node(&object, exists),
            "services" => self.news.of_service(&object, exists),
            _ => self.news.of_event(&object, exists),
        };
        changes.into_iter().filter_map(line).collect()
    }

    /// The operations of Azure that have ended beyond these many.
    fn of_azure(&mut self, count: &mut u64) -> Vec<String> {
        let (now, ended) = self.control.ended_operations(*count);
        *count = now;
        let control = &self.control;
        let exists = |id: &str| control.store(|store| store.document(id).is_some());
        let mut lines = Vec::new();
        for operation in &ended {
            let luns = control.store(|store| store.lun_map(&operation.resource));
            let lun_of = |disk: &str| luns.iter().find(|(_, at)| at.eq_ignore_ascii_case(disk)).map(|(lun, _)| *lun);
            lines.extend(self.news.of_operation(operation, exists, lun_of));
        }
        lines
    }
}
