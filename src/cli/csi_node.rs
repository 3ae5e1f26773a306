//! `lazuli csi-node`.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, builder::NonEmptyStringValueParser};
use lazuli_assembly::{
    clients::{RouteOptions, variables},
    keys::{KeyOptions, key_reader},
    services,
};
use lazuli_azure::{
    imds::{Imds, Instance, InterfaceAddress},
    transport::{Tls, Transport},
};
use lazuli_cluster::{EventMetrics, Reporter, event_queue, write_events};
use lazuli_csi::{
    file,
    identity::{DISK_DRIVER, FILE_DRIVER, driver_name},
    node::{AttachedReader, LabelsReader, NodeConfig, NodeService, OnSilence, Timeouts, ZoneSupport, luns_unknown},
    registration::Registration,
    server::{self, Drained, Endpoint, GoDriver, Listener, RpcLayer, RpcMetrics},
};
use lazuli_host::{
    Host, Limits,
    nvme::{self, Luns},
};
use lazuli_model::{event::Event, size::SizeLimits};
use lazuli_nodes::cloud_node::facts::{InstanceFacts, NvmeFacts, NvmeLuns, PublishedAddress};
use lazuli_storage::list::VolumeHandles;
use lazuli_telemetry::{Condition, Readiness, http::Page, lossy, register_process};
use prometheus_client::registry::Registry;
use tokio::{sync::watch, task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use url::Url;

use super::{
    Outcome,
    csi_controller::{BUILD, keep, reach},
    endpoints::EndpointOptions,
    go_arguments::{DiskNode, GoArguments, boolean},
    number::whole,
    sizes, stop,
};

/// Options of the node plugin.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Where to serve gRPC: unix:///path/of.sock, or tcp://address:port with a loopback address.
    #[arg(long, env = "CSI_ENDPOINT", default_value = "unix:///csi/csi.sock")]
    endpoint: Endpoint,
    /// Serve on a TCP endpoint that other machines can reach. CSI has no authentication: any client that reaches the
    /// endpoint may attach, delete and format disks.
    #[arg(long, value_parser = boolean, env = "LAZULI_ALLOW_REMOTE_ENDPOINT")]
    allow_remote_endpoint: bool,
    /// The id of this node: its Kubernetes node name.
    #[arg(long, alias = "nodeid", env = "NODE_NAME", value_parser = NonEmptyStringValueParser::new())]
    node_id: String,
    /// The name of the driver, as StorageClasses and PVs spell it.
    #[arg(long, alias = "drivername", env = "LAZULI_DRIVER_NAME", default_value = DISK_DRIVER, value_parser = driver_name)]
    driver_name: String,
    /// Where to serve gRPC of the file driver too, as by --endpoint. Default: it is not served.
    #[arg(long, env = "LAZULI_FILE_ENDPOINT", value_name = "ENDPOINT")]
    file_endpoint: Option<Endpoint>,
    /// The name of the file driver, as StorageClasses and PVs spell it.
    #[arg(long, env = "LAZULI_FILE_DRIVER_NAME", default_value = FILE_DRIVER, value_parser = driver_name)]
    file_driver_name: String,
    /// The domain of Azure's storage services, for shares whose volumes do not name their server.
    #[arg(long, env = "LAZULI_STORAGE_ENDPOINT_SUFFIX", default_value = "core.windows.net")]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    storage_endpoint_suffix: String,
    #[command(flatten)]
    keys: KeyOptions,
    /// A folder that survives restarts: which volume is staged from which device.
    #[arg(long, env = "LAZULI_STATE_DIR", default_value = "/var/lib/kubelet/plugins/disk.csi.azure.com/lazuli")]
    state_dir: PathBuf,
    /// Where sys and dev are found; another root than / is for a machine made of folders.
    #[arg(long, env = "LAZULI_HOST_ROOT", default_value = "/")]
    host_root: PathBuf,
    /// How many volumes this node takes, instead of what its VM size says.
    #[arg(long, env = "LAZULI_MAX_VOLUMES", value_parser = whole::<u32>(0..=u32::MAX))]
    max_volumes: Option<u32>,
    /// LUNs to keep free for disks that are not Kubernetes'.
    #[arg(long, alias = "reserved-data-disk-slot-num", env = "LAZULI_RESERVED_SLOTS", default_value_t = 0)]
    #[arg(value_parser = whole::<u32>(0..=u32::MAX))]
    reserved_slots: u32,
    /// Do not tell zones, for clusters that use none.
    #[arg(long, value_parser = boolean, env = "LAZULI_NO_ZONES")]
    no_zones: bool,
    /// Whether to ask the instance metadata which disk sits at which LUN, and which zone this is.
    #[arg(long, env = "LAZULI_IMDS", value_enum, default_value_t = Switch::On)]
    imds: Switch,
    /// What to do with a volume that this node has never had while the instance metadata does not answer, or does not
    /// list a disk at its LUN. refuse: wait for it, for another disk may be at the LUN. tolerate: go by LUN and size.
    #[arg(long, env = "LAZULI_ON_SILENT_IMDS", value_enum, default_value_t = OnSilentImds::Refuse)]
    on_silent_imds: OnSilentImds,
    /// For how many seconds the instance metadata may still list what has left the machine, or lack what has come. For so
    /// long it must have named a disk that is not as the volume was here before, or that only --nvme-lun-offset finds.
    #[arg(long, env = "LAZULI_IMDS_LAG_SECONDS", value_parser = whole::<u64>(1..=3600), default_value_t = 120)]
    imds_lag_seconds: u64,
    /// What to take from the id of an NVMe namespace to have the LUN of its disk, on machines whose sizes show disks
    /// over NVMe and where nothing proves it. A disk is used while every disk of the instance metadata is found so,
    /// with its size; without metadata, or while it is silent, only for a volume that was here before. Default: 2 where
    /// the operating system's disk is namespace 1, which no option changes, and no disk is used elsewhere.
    #[arg(long, env = "LAZULI_NVME_LUN_OFFSET", value_parser = whole::<u32>(0..=255))]
    nvme_lun_offset: Option<u32>,
    /// Where instance metadata really is, such as http://127.0.0.1:8181/_imds/node-0.
    #[arg(long, env = "LAZULI_IMDS_URL")]
    imds_url: Option<Url>,
    /// kubelet's folder of registration sockets; without it the node plugin does not register itself.
    #[arg(long, env = "LAZULI_REGISTRATION_DIR")]
    registration_dir: Option<PathBuf>,
    /// The path of the CSI socket as kubelet sees it; default: that of the endpoint.
    #[arg(long, env = "LAZULI_KUBELET_SOCKET")]
    kubelet_socket: Option<PathBuf>,
    /// The path of the file driver's socket as kubelet sees it; default: that of --file-endpoint.
    #[arg(long, env = "LAZULI_FILE_KUBELET_SOCKET")]
    file_kubelet_socket: Option<PathBuf>,
    /// The folder where the ConfigMap lazuli-vm-sizes is mounted, in which the controller publishes how many disks VM
    /// sizes newer than this program take. It may be empty or missing, and is read again every minute. Default: none.
    #[arg(long, env = "LAZULI_VM_SIZES_DIR")]
    vm_sizes_dir: Option<PathBuf>,
    /// Which cluster to ask for the labels, the volumes and the start-up taint of this node, and who may read metrics; default:
    /// $KUBECONFIG, else the pod's own, else none.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// How long requests in flight may finish after SIGTERM, in seconds.
    #[arg(long, env = "LAZULI_DRAIN_SECONDS", default_value_t = 25, value_parser = whole::<u64>(0..=86_400))]
    drain_seconds: u64,
    #[command(flatten)]
    routes: RouteOptions,
    #[command(flatten)]
    endpoints: EndpointOptions,
    #[command(flatten)]
    of_driver: GoArguments<DiskNode>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Switch {
    On,
    Off,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum OnSilentImds {
    Refuse,
    Tolerate,
}

/// The client of instance metadata, wherever it really is.
pub(super) fn imds(routes: &RouteOptions, url: Option<&Url>) -> Result<Imds, Box<dyn std::error::Error + Send + Sync>> {
    let table = routes.table()?;
    let table = match url {
        Some(url) => table.with_imds(url)?,
        None => table,
    };
    Ok(Imds::new(Transport::new(table, &Tls::default())?))
}

/// Reads what the own Node's labels say of the machine.
fn labels_reader(client: kube::Client, node: String) -> LabelsReader {
    LabelsReader::new(move || {
        let (client, node) = (client.clone(), node.clone());
        Box::pin(async move {
            match lazuli_cluster::machine_labels(&client, &node).await {
                Ok(labels) => labels,
                Err(error) => {
                    tracing::warn!(error = server::chain(&error), "the labels of this node cannot be read");
                    None
                }
            }
        })
    })
}

/// Reads what Kubernetes has attached to the own Node.
fn attached_reader(client: kube::Client, driver: String, node: String) -> AttachedReader {
    AttachedReader::new(move || {
        let (client, driver, node) = (client.clone(), driver.clone(), node.clone());
        Box::pin(async move {
            match lazuli_cluster::attached_volumes(&client, &driver, &node).await {
                Ok(attached) => attached,
                Err(error) => {
                    let error = server::chain(&error);
                    tracing::warn!(error, "what is attached to this node cannot be read; it may count as foreign");
                    None
                }
            }
        })
    })
}

/// How often the instance metadata is read again, to find what has changed.
const PUBLISH: Duration = Duration::from_secs(600);
/// How soon it is asked again after a failure.
const PUBLISH_AGAIN: Duration = Duration::from_secs(30);

/// Publishes the instance metadata of the machine, for the cloud controllers, until `stop`.
async fn publish_facts(client: kube::Client, node: String, imds: Imds, host: Host, stop: CancellationToken) {
    // The boot of this kernel, wherever the machine's devices are.
    let boot_id = Host::new().boot_id();
    let work = async {
        let (mut published, mut is_told) = (None, false);
        loop {
            // The question about addresses asks about the instance first.
            let addresses = imds.addresses().await;
            let again = addresses.as_ref().map_or(PUBLISH_AGAIN, |_| PUBLISH);
            let wait = match imds.instance().await {
                Ok(instance) => {
                    let nvme = nvme_facts(&host).await;
                    let facts =
                        InstanceFacts { nvme, ..facts_of(&instance, addresses.unwrap_or_default(), boot_id.clone()) };
                    let outcome = match published.as_ref() == Some(&facts) {
                        true => Ok(()),
                        false => lazuli_cluster::publish_facts(&client, &node, &facts).await,
                    };
                    match outcome {
                        Ok(()) => {
                            published = Some(facts);
                            again
                        }
                        Err(error) => {
                            let error = server::chain(&error);
                            if !std::mem::replace(&mut is_told, true) {
                                tracing::warn!(error, "the instance metadata of this machine is not published");
                            }
                            PUBLISH_AGAIN
                        }
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "the instance metadata has nothing to publish");
                    PUBLISH_AGAIN
                }
            };
            tokio::time::sleep(wait).await;
        }
    };
    stop.run_until_cancelled(work).await;
}

/// What the machine shows of disks that come by NVMe.
async fn nvme_facts(host: &Host) -> Option<NvmeFacts> {
    let summary = nvme::summary(host).await.unwrap_or_else(|error| {
        tracing::warn!(error = server::chain(&error), "what this machine shows of NVMe cannot be read");
        None
    })?;
    let luns = match summary.luns {
        Luns::Proved => NvmeLuns::Proved,
        Luns::Given => NvmeLuns::Given,
        Luns::Unknown => NvmeLuns::Unknown,
    };
    Some(NvmeFacts { luns, io_timeout_seconds: summary.io_timeout_seconds })
}

/// Logs once which machine the instance metadata is of, or that there is none: then nothing is attached to the node, and
/// `NodeGetInfo` says why only when kubelet asks.
async fn log_machine(imds: Imds, node: String, stop: CancellationToken) {
    match stop.run_until_cancelled(imds.instance()).await {
        Some(Ok(instance)) => {
            tracing::info!(node, machine = %instance.resource_id, "the instance metadata service answers");
        }
        Some(Err(error)) => tracing::warn!(
            node,
            error = server::chain(&error),
            "the instance metadata service tells no machine: is --node-id the name of this machine's Node?"
        ),
        None => {}
    }
}

fn facts_of(instance: &Instance, addresses: Vec<InterfaceAddress>, boot_id: Option<String>) -> InstanceFacts {
    InstanceFacts {
        resource_id: instance.resource_id.to_string(),
        vm_size: instance.vm_size.clone(),
        fault_domain: instance.platform_fault_domain.as_ref().and_then(|number| number.parse().ok()),
        sub_fault_domain: instance.platform_sub_fault_domain.clone(),
        interconnect_group: instance.interconnect_group.clone(),
        location: Some(instance.location.clone()),
        zone: instance.zone.clone(),
        addresses: addresses
            .into_iter()
            .map(|InterfaceAddress { private, public }| PublishedAddress { private, public })
            .collect(),
        boot_id,
        nvme: None,
    }
}

pub(super) async fn run(options: Options) -> Outcome {
    if !nix::unistd::geteuid().is_root() {
        tracing::warn!("this process is not root: it can neither format nor mount a disk");
    }
    Box::pin(serve(options, stop::on_signal()?)).await
}

/// Serves until `stop` and until what was in flight then has drained.
pub(super) async fn serve(options: Options, stop: CancellationToken) -> Outcome {
    let mut registry = Registry::default();
    register_process(&mut registry, BUILD);
    let readiness = Readiness::new();
    options.of_driver.log();
    let imds = match options.imds {
        Switch::On => Some(imds(&options.routes, options.imds_url.as_ref())?),
        Switch::Off => None,
    };
    let logging = imds.clone().map(|imds| tokio::spawn(log_machine(imds, options.node_id.clone(), stop.clone())));
    let client = match lazuli_cluster::connect(options.kubeconfig.as_deref(), &variables()).await {
        Ok(client) => client,
        // A pod without a token of its own serves volumes all the same.
        Err(error) if options.kubeconfig.is_none() => {
            tracing::warn!(
                error = server::chain(&error),
                "no cluster to ask about this node: its zone comes from the instance metadata alone"
            );
            None
        }
        Err(error) => return Err(error.into()),
    };
    let labels = client.clone().map(|client| labels_reader(client, options.node_id.clone()));
    let attached =
        client.clone().map(|client| attached_reader(client, options.driver_name.clone(), options.node_id.clone()));
    // Needs to be registered, which only the registration below brings about.
    let untainting = client.clone().filter(|_| options.registration_dir.is_some()).map(|client| {
        let (node, driver) = (options.node_id.clone(), options.driver_name.clone());
        tokio::spawn(lazuli_cluster::remove_startup_taint(client, node, driver, stop.clone()))
    });
    let host = Host::new()
        .with_root(std::path::absolute(&options.host_root)?)
        .with_kubelet(std::path::absolute(&options.state_dir)?)
        .with_nvme_lun_offset(options.nvme_lun_offset);
    match luns_unknown(&host, options.nvme_lun_offset).await {
        Ok(Some(why)) => tracing::warn!("{why}"),
        Ok(None) => {}
        Err(error) => tracing::warn!(error = server::chain(&error), "what this machine shows of NVMe cannot be read"),
    }
    let publishing = client.clone().zip(imds.clone()).map(|(client, imds)| {
        tokio::spawn(publish_facts(client, options.node_id.clone(), imds, host.clone(), stop.clone()))
    });
    let (following, sizes) = match options.vm_sizes_dir.clone() {
        Some(folder) => {
            let (published, sizes) = sizes::Published::open(folder).await;
            (Some(tokio::spawn(published.follow(stop.clone()))), sizes)
        }
        // The program's own table counts.
        None => (None, watch::channel(SizeLimits::default()).1),
    };
    let drained = CancellationToken::new();
    let metrics = EventMetrics::register(&mut registry);
    let reported = |driver: &str| report(client.clone(), driver, &options.node_id, &metrics, &drained);
    let (events, recording) = reported(&options.driver_name);
    let (file_events, file_recording) = reported(&options.file_driver_name);
    let config = NodeConfig {
        sizes,
        max_volumes: options.max_volumes.or_else(|| options.of_driver.count("volume-attach-limit")),
        reserved_slots: options.reserved_slots,
        labels,
        attached,
        events,
        zones: if options.no_zones || options.of_driver.is_off("support-zone") {
            ZoneSupport::Off
        } else {
            ZoneSupport::On
        },
        timeouts: Timeouts { identity_check: Duration::from_secs(options.imds_lag_seconds), ..Timeouts::default() },
        on_silence: match options.on_silent_imds {
            OnSilentImds::Refuse => OnSilence::Refuse,
            OnSilentImds::Tolerate => OnSilence::Tolerate,
        },
        ..NodeConfig::new(options.node_id.clone())
    };
    let real_machine = options.host_root == Path::new("/");
    // Without rights nothing is formatted or mounted, and a machine made of folders may do with fewer file systems.
    if real_machine && nix::unistd::geteuid().is_root() {
        host.check_tools()?;
    }
    let node = NodeService::open(host, imds, std::path::absolute(&options.state_dir)?, config)?;

    let registered = |driver: &str, endpoint, kubelet_socket, condition| {
        let folder = options.registration_dir.as_deref();
        folder
            .map(|folder| registration(driver, endpoint, kubelet_socket, folder, readiness.condition(condition)))
            .transpose()
    };
    let registration =
        registered(&options.driver_name, &options.endpoint, options.kubelet_socket.as_deref(), "kubelet registration")?;
    let files = match &options.file_endpoint {
        Some(endpoint) => {
            let condition = "kubelet registration of the file driver";
            let socket = options.file_kubelet_socket.as_deref();
            let registration = registered(&options.file_driver_name, endpoint, socket, condition)?;
            let metrics = file::node::ShareMetrics::register(&mut registry);
            Some(Files::bind(&options, endpoint, registration, client.as_ref(), file_events, metrics).await?)
        }
        None => None,
    };
    let go = options.endpoints.go_names();
    let calls = RpcLayer::with_metrics(RpcMetrics::register(&mut registry, go.clone()));
    let routes = services::node(node.clone(), &options.driver_name);
    let endpoints = options.endpoints.bind(Page::new(registry, go), readiness, client.as_ref()).await?;
    let listener = Listener::bind_within(&options.endpoint, reach(options.allow_remote_endpoint)).await?;
    tracing::info!(endpoint = %options.endpoint, node = options.node_id, "serving CSI Identity and Node");
    let drain = Duration::from_secs(options.drain_seconds);
    let file = listener.file();
    let (finished, files_finished, (), kept, ()) = tokio::join!(
        async {
            let over = end_of_drain(&stop, drain);
            let served = server::serve_with(calls.clone(), routes, listener, stop.clone(), drain).await;
            stop.cancel();
            // A call whose caller has left goes on by itself; a repair of a filesystem had better not be cut.
            let finished = finishes(over, node.finish()).await;
            drained.cancel();
            served.map(|served| finished && served == Drained::All)
        },
        async {
            match files {
                Some(files) => files.serve(calls.clone(), &stop, drain).await,
                None => Ok(true),
            }
        },
        endpoints.run(&drained),
        keep(file, &stop),
        async {
            if let Some(registration) = registration {
                registration.keep(stop.clone()).await;
            }
        }
    );
    kept?;
    if let Some(following) = following {
        following.await?;
    }
    for recording in [recording, file_recording].into_iter().flatten() {
        recording.await?;
    }
    for task in [logging, untainting, publishing].into_iter().flatten() {
        task.await?;
    }
    if !(finished? && files_finished?) {
        tracing::warn!("the drain time is over with work in flight; every step of it can be repeated");
    }
    Ok(())
}

/// Where a driver's events go, and the task that writes them until `drained`.
fn report(
    client: Option<kube::Client>,
    driver: &str,
    node: &str,
    metrics: &EventMetrics,
    drained: &CancellationToken,
) -> (lossy::Sender<Event>, Option<JoinHandle<()>>) {
    let Some(client) = client else { return (lossy::Sender::nowhere(), None) };
    let (events, queue) = event_queue(metrics);
    let reporter = Reporter { controller: driver.to_owned(), instance: node.to_owned() };
    // A node knows a volume's Pod or claim, or reports on its own Node.
    let handles = watch::channel(VolumeHandles::NoCluster).1;
    let writing = write_events(client, reporter, handles, queue, metrics.clone(), drained.clone());
    (events, Some(tokio::spawn(writing)))
}

/// How a driver registers itself with kubelet, which sees its socket at `kubelet_socket` or where it is served.
fn registration(
    driver: &str,
    endpoint: &Endpoint,
    kubelet_socket: Option<&Path>,
    folder: &Path,
    condition: Condition,
) -> Result<Registration, &'static str> {
    let socket = match (kubelet_socket, endpoint) {
        (Some(socket), _) => socket,
        (None, Endpoint::Unix(path)) => path,
        (None, Endpoint::Tcp { .. }) => {
            return Err("kubelet speaks to unix sockets only: give --kubelet-socket, for the file driver \
                        --file-kubelet-socket, or a unix endpoint");
        }
    };
    Ok(Registration::new(driver, socket, folder, condition))
}

/// When the time for work in flight is over. One allowance for the answers and for what goes on without them: kubelet
/// counts from its signal, and kills.
fn end_of_drain(stop: &CancellationToken, drain: Duration) -> JoinHandle<Instant> {
    let stop = stop.clone();
    tokio::spawn(async move {
        stop.cancelled().await;
        Instant::now() + drain
    })
}

/// Whether the work ends before the time is over.
async fn finishes(over: JoinHandle<Instant>, work: impl Future<Output = ()>) -> bool {
    match over.await {
        Ok(over) => tokio::time::timeout_at(over, work).await.is_ok(),
        Err(_) => false,
    }
}

/// The file driver, on a socket of its own.
struct Files {
    node: file::node::NodeService,
    routes: Routes,
    listener: Listener,
    registration: Option<Registration>,
}

impl Files {
    async fn bind(
        options: &Options,
        endpoint: &Endpoint,
        registration: Option<Registration>,
        client: Option<&kube::Client>,
        events: lossy::Sender<Event>,
        metrics: file::node::ShareMetrics,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let config = file::node::NodeConfig {
            events,
            metrics,
            // Without a cluster volumes must bring their keys.
            keys: client.cloned().map(|client| key_reader(&options.keys, client)).transpose()?,
            storage_endpoint_suffix: options.storage_endpoint_suffix.clone(),
            ..file::node::NodeConfig::new(options.node_id.clone())
        };
        // What hangs on a file server takes no place from disks.
        let host = Host::with_limits(Limits { stuck_calls: STUCK_ON_SERVERS, ..Limits::default() });
        let node = file::node::NodeService::new(host, config);
        let routes = services::file_node(node.clone(), &options.file_driver_name);
        let listener = Listener::bind_within(endpoint, reach(options.allow_remote_endpoint)).await?;
        tracing::info!(%endpoint, driver = options.file_driver_name, "serving CSI Identity and Node");
        Ok(Self { node, routes, listener, registration })
    }

    /// Serves until `stop`; whether all that was in flight then has ended.
    async fn serve(
        self,
        calls: RpcLayer,
        stop: &CancellationToken,
        drain: Duration,
    ) -> Result<bool, Box<dyn std::error::Error + Send + Sync>> {
        let Self { node, routes, listener, registration } = self;
        let file = listener.file();
        let (finished, kept, ()) = tokio::join!(
            async {
                let over = end_of_drain(stop, drain);
                let served = server::serve_with(calls.of(GoDriver::File), routes, listener, stop.clone(), drain).await;
                stop.cancel();
                let finished = finishes(over, node.finish()).await;
                served.map(|served| finished && served == Drained::All)
            },
            keep(file, stop),
            async {
                if let Some(registration) = registration {
                    registration.keep(stop.clone()).await;
                }
            }
        );
        kept?;
        Ok(finished?)
    }
}

/// Calls that may hang on file servers at once; the next one is refused. Each is a thread that sleeps.
const STUCK_ON_SERVERS: usize = 128;
