//! `lazuli csi-controller`.

use std::time::Duration;

use clap::{ArgAction, Args};
use futures::future::{join_all, try_join_all};
use lazuli_assembly::{
    clients::{self, CloudOptions},
    services::{self, AttachMethod, ClusterView, ListVolumes, Policy, ShareView},
};
use lazuli_cluster::{EventMetrics, KnownVolumes, Reporter, event_queue, register_volumes, write_events};
use lazuli_csi::{
    identity::{DISK_DRIVER, FILE_DRIVER, driver_name},
    server::{self, Drained, Endpoint, GoDriver, Listener, Reach, RpcLayer, RpcMetrics, SocketFile, SocketLost},
};
use lazuli_journal::{Recorder, Topic};
use lazuli_model::{node::ClusterNodes, size::SizeLimits};
use lazuli_reconcile::metrics::Metrics as TaskMetrics;
use lazuli_storage::{
    dangling::DetachUnused, force_detach::ForceDetach, inline_volume::InlineVolumes, list::VolumeHandles,
    lun::LunReservations,
};
use lazuli_telemetry::{BuildInfo, Readiness, http::Page, lossy, register_process};
use lazuli_vhd::class::BlobDisks;
use prometheus_client::registry::Registry;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use super::{
    Outcome,
    azure_ready::{self, TOLERANCE},
    endpoints::EndpointOptions,
    go_arguments::{DiskController, GoArguments, boolean},
    key_broker::KeyBrokerOptions,
    number::whole,
    sizes, stop,
    why::{
        resolve::{Names, OfAzure},
        socket::{Answering, CSI_CONTROLLER, WhyOptions},
    },
};

/// Options of the controller.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Where to serve gRPC: unix:///path/of.sock, or tcp://address:port with a loopback address.
    #[arg(long, env = "CSI_ENDPOINT", default_value = "unix:///csi/csi.sock")]
    endpoint: Endpoint,
    /// Serve on a TCP endpoint that other machines can reach. CSI has no authentication: any client that reaches the
    /// endpoint may attach, delete and format disks.
    #[arg(long, value_parser = boolean, env = "LAZULI_ALLOW_REMOTE_ENDPOINT")]
    allow_remote_endpoint: bool,
    /// The name of the driver, as StorageClasses and PVs spell it.
    #[arg(long, alias = "drivername", env = "LAZULI_DRIVER_NAME", default_value = DISK_DRIVER, value_parser = driver_name)]
    driver_name: String,
    /// Where to serve gRPC of the file driver too, as by --endpoint. Default: it is not served.
    #[arg(long, env = "LAZULI_FILE_ENDPOINT", value_name = "ENDPOINT")]
    file_endpoint: Option<Endpoint>,
    /// The name of the file driver, as StorageClasses and PVs spell it.
    #[arg(long, env = "LAZULI_FILE_DRIVER_NAME", default_value = FILE_DRIVER, value_parser = driver_name)]
    file_driver_name: String,
    /// How a VM's data disks are written.
    #[arg(long, env = "LAZULI_ATTACH_METHOD", value_enum, default_value_t = AttachMethod::Auto)]
    attach_method: AttachMethod,
    /// Detach a disk by force when its ordinary detach failed and Azure shows that the VM is stopped or deallocated: true or
    /// false. What the VM had not written to the disk by then is lost.
    #[arg(long, value_parser = boolean, env = "LAZULI_FORCE_DETACH_STOPPED_VMS", default_value_t = false, action = ArgAction::Set, value_name = "BOOL")]
    force_detach_stopped_vms: bool,
    /// Detach a disk that a node holds and does not use, by all that Kubernetes says, when a pod on another node waits for
    /// it or its volume is deleted: true or false. With false a person detaches it. For a deletion only what this process
    /// itself has attached since it started is detached: a person may have attached anything else.
    #[arg(long, value_parser = boolean, env = "LAZULI_DETACH_UNUSED_DISKS", default_value_t = true, action = ArgAction::Set, value_name = "BOOL")]
    detach_unused_disks: bool,
    /// Attach the disk of a claim for a Pod that names it in a volume azureDisk: true or false. With true the author of a Pod
    /// can read the disk of any claim, as with the Go driver.
    #[arg(long, value_parser = boolean, env = "LAZULI_ALLOW_INLINE_CLAIMED_DISKS", default_value_t = false, action = ArgAction::Set, value_name = "BOOL")]
    allow_inline_claimed_disks: bool,
    /// Whether to offer ListVolumes: true or false. With it external-attacher finds, once a minute, disks that were
    /// attached or detached by others, at the cost of at least one read of Azure for each resource group.
    #[arg(long, value_parser = boolean, alias = "enable-list-volumes", env = "LAZULI_LIST_VOLUMES", default_value_t = true)]
    #[arg(action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    list_volumes: bool,
    /// When a StorageClass that asks for a VHD blob disk (kind Shared or Dedicated, or storageAccount) gets one: auto, where
    /// all VMs of the cluster have their system disks in VHD blobs; always; never. Where it gets none, kind makes a managed
    /// disk with a warning, as by the Go driver, and storageAccount is refused.
    #[arg(long, env = "LAZULI_BLOB_DISKS", default_value_t = BlobDisks::Auto, value_name = "WHEN")]
    blob_disks: BlobDisks,
    /// How long requests in flight may finish after SIGTERM, in seconds.
    #[arg(long, env = "LAZULI_DRAIN_SECONDS", default_value_t = 25, value_parser = whole::<u64>(0..=86_400))]
    drain_seconds: u64,
    #[command(flatten)]
    cloud: CloudOptions,
    #[command(flatten)]
    keys: KeyBrokerOptions,
    #[command(flatten)]
    endpoints: EndpointOptions,
    #[command(flatten)]
    why: WhyOptions,
    #[command(flatten)]
    of_driver: GoArguments<DiskController>,
}

impl Options {
    /// What the operator chooses of the driver.
    fn policy(&self) -> Policy {
        Policy {
            method: self.attach_method,
            force_detach: if self.force_detach_stopped_vms { ForceDetach::StoppedVms } else { ForceDetach::Off },
            detach_unused: if self.detach_unused_disks { DetachUnused::On } else { DetachUnused::Off },
            inline: if self.allow_inline_claimed_disks { InlineVolumes::Any } else { InlineVolumes::Unclaimed },
            list_volumes: if self.list_volumes { ListVolumes::On } else { ListVolumes::Off },
            blob_disks: self.blob_disks,
        }
    }
}

pub(super) async fn run(options: Options) -> Outcome {
    Box::pin(serve(options, stop::on_signal()?)).await
}

/// Serves until `stop` and until what was in flight then has drained.
pub(super) async fn serve(options: Options, stop: CancellationToken) -> Outcome {
    let start = Instant::now();
    let journal = Recorder::new(move || start.elapsed());
    let drained = CancellationToken::new();
    let mut registry = Registry::default();
    register_process(&mut registry, BUILD);
    let readiness = Readiness::new();
    let azure_condition = readiness.tolerant_condition("azure", TOLERANCE);
    let cluster_condition = readiness.tolerant_condition("cluster", TOLERANCE);
    let nodes_condition = readiness.tolerant_condition("nodes", TOLERANCE);

    options.of_driver.log();
    let client = clients::cluster(&options.cloud).await?;
    let config = clients::configuration(&options.cloud, client.as_ref()).await?;
    for warning in config.start_warnings() {
        tracing::warn!("the cloud configuration: {warning}");
    }
    let mut azure = clients::connect(&config, options.cloud.table()?, &mut registry, seed()).await?;
    azure.allow_resource_groups(options.cloud.allowed_resource_groups());

    let (no_luns, no_handles, no_nodes) = match client {
        Some(_) => (LunReservations::Cold, VolumeHandles::Cold, ClusterNodes::Cold),
        None => (LunReservations::NoCluster, VolumeHandles::NoCluster, ClusterNodes::NoCluster),
    };
    let (snapshot, reservations) = watch::channel(no_luns);
    let (known_handles, handles) = watch::channel(no_handles);
    let watching = tokio::spawn({
        let (driver, drained) = (options.driver_name.clone(), drained.clone());
        let client = client.clone();
        // Beyond the stop: a publish that is in flight then still needs to know which LUNs are named.
        async move {
            lazuli_cluster::watch_luns(client, &driver, snapshot, known_handles, cluster_condition, drained).await;
        }
    });
    let (tell_nodes, nodes) = watch::channel(no_nodes);
    // Beyond the stop too: a request in flight still needs to know which VM its node is.
    let watching_nodes =
        tokio::spawn(lazuli_cluster::watch_nodes(client.clone(), tell_nodes, nodes_condition, drained.clone()));
    let (known, known_sizes) = watch::channel(SizeLimits::default());
    let region = sizes::Region {
        compute: azure.compute.clone(),
        subscription: azure.defaults.subscription.clone(),
        location: azure.defaults.location.clone(),
    };
    let node_facts = client.clone().map(|client| services::node_facts(client, &options.driver_name));
    let attachment_source = client.clone().map(|client| services::attachment_source(client, &options.driver_name));
    let metrics = EventMetrics::register(&mut registry);
    let (events, queue) = event_queue(&metrics);
    let (events, recording) = match client.clone() {
        Some(client) => {
            let (reporter, handles) = (reporter(&options.driver_name), handles.clone());
            let writing = write_events(client, reporter, handles, queue, metrics, drained.clone());
            (events, Some(tokio::spawn(writing)))
        }
        None => (lossy::Sender::nowhere(), None),
    };
    let looking = tokio::spawn(sizes::keep(client.clone(), nodes.clone(), region, known, stop.clone()));

    let answering = Answering {
        process: CSI_CONTROLLER,
        topics: &[Topic::Disk, Topic::Snapshot, Topic::Vm, Topic::Node],
        journal: journal.clone(),
        names: Names::OfDisks {
            handles: handles.clone(),
            nodes: nodes.clone(),
            client: client.clone(),
            azure: Some(Box::new(OfAzure {
                compute: azure.compute.clone(),
                cluster: (azure.defaults.subscription.clone(), azure.defaults.resource_group.clone()),
            })),
        },
        about: Box::new({
            let (journal, driver) = (journal.clone(), options.driver_name.clone());
            move || (None, vec![of_sidecars(&driver, &journal)])
        }),
    };
    let tasks = TaskMetrics::register(&mut registry);
    let files = options.file_endpoint.is_some().then(|| {
        let volumes_condition = readiness.tolerant_condition("file-volumes", TOLERANCE);
        let (tell, volumes) = watch::channel(None);
        let (driver, drained, of_cluster) = (options.file_driver_name.clone(), drained.clone(), client.clone());
        // Beyond the stop too: a deletion in flight still needs to know who names the share.
        let watching = tokio::spawn(async move {
            lazuli_cluster::watch_share_volumes(of_cluster, &driver, tell, volumes_condition, drained).await;
        });
        let view = ShareView {
            volumes,
            secrets: client.clone().map(services::secret_writer),
            events: events.clone(),
            journal: journal.clone(),
        };
        let shares = services::shares(&azure, &options.file_driver_name, &view, tasks.clone());
        let known = view.volumes.clone();
        let routes = services::file_controller_of(&azure, &options.file_driver_name, shares.clone(), view);
        (routes, watching, shares, known)
    });
    let keys = match &files {
        Some((.., shares, known)) => {
            let (driver, shares, known) = (&options.file_driver_name, shares.clone(), known.clone());
            Box::pin(options.keys.bind(driver, shares, known, client.as_ref(), &mut registry)).await?
        }
        None => None,
    };
    let disks = KnownVolumes::Disks(handles.clone(), reservations.clone());
    let mut known_volumes = vec![(options.driver_name.clone(), disks)];
    if let Some((.., known)) = &files {
        known_volumes.push((options.file_driver_name.clone(), KnownVolumes::Shares(known.clone())));
    }
    let routes = services::controller(
        &azure,
        &options.driver_name,
        ClusterView {
            reservations,
            handles,
            nodes,
            sizes: known_sizes,
            node_facts,
            attachment_source,
            events,
            journal,
        },
        options.policy(),
        tasks,
    );
    let go = options.endpoints.go_names();
    let calls = RpcLayer::with_metrics(RpcMetrics::register(&mut registry, go.clone()));
    register_volumes(&mut registry, known_volumes);
    let endpoints = options.endpoints.bind(Page::new(registry, go), readiness, client.as_ref()).await?.and(keys);
    let why = options.why.bind(CSI_CONTROLLER).await?;
    let drain = Duration::from_secs(options.drain_seconds);
    let mut drivers =
        vec![Driver::bind(&options, &options.endpoint, (GoDriver::Disk, &options.driver_name), routes).await?];
    if let (Some((routes, ..)), Some(endpoint)) = (&files, &options.file_endpoint) {
        let driver = (GoDriver::File, options.file_driver_name.as_str());
        drivers.push(Driver::bind(&options, endpoint, driver, routes.clone()).await?);
    }
    let sockets: Vec<Option<SocketFile>> = drivers.iter().map(|driver| driver.listener.file()).collect();
    let (served, (), kept, (), (), _) = tokio::join!(
        async {
            let served = join_all(drivers.into_iter().map(|driver| driver.serve(calls.clone(), &stop, drain))).await;
            drained.cancel();
            served
        },
        endpoints.run(&drained),
        try_join_all(sockets.into_iter().map(|file| keep(file, &stop))),
        async {
            if let Some(why) = why {
                Box::pin(why.serve(&answering, &drained)).await;
            }
        },
        async {
            // Without /readyz nothing asks for it.
            if options.endpoints.has_probes() {
                drained.run_until_cancelled(azure_ready::keep(&azure, &azure_condition)).await;
            }
        },
        drained.run_until_cancelled(azure.credential.keep(&options.cloud, client.as_ref())),
    );
    watching.await?;
    watching_nodes.await?;
    looking.await?;
    if let Some(recording) = recording {
        recording.await?;
    }
    if let Some((_, watching, ..)) = files {
        watching.await?;
    }
    kept?;
    for served in served {
        if served? == Drained::TimedOut {
            tracing::warn!(
                "the drain time is over with requests in flight; Azure finishes the writes that it has accepted"
            );
        }
    }
    Ok(())
}

/// A driver that is served on a socket of its own.
struct Driver {
    /// The Go driver whose place it takes.
    go: GoDriver,
    listener: Listener,
    routes: Routes,
}

impl Driver {
    async fn bind(
        options: &Options,
        endpoint: &Endpoint,
        (go, name): (GoDriver, &str),
        routes: Routes,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let listener = Listener::bind_within(endpoint, reach(options.allow_remote_endpoint)).await?;
        tracing::info!(%endpoint, driver = name, "serving CSI Identity and Controller");
        Ok(Self { go, listener, routes })
    }

    /// Serves until `stop`, and until what was in flight then has drained. A server that failed takes the process with it.
    async fn serve(
        self,
        calls: RpcLayer,
        stop: &CancellationToken,
        drain: Duration,
    ) -> Result<Drained, server::ServeError> {
        let served = server::serve_with(calls.of(self.go), self.routes, self.listener, stop.clone(), drain).await;
        stop.cancel();
        served
    }
}

/// What is known of the leadership of the sidecars, on whose calls this process acts. It has no Lease of its own.
fn of_sidecars(driver: &str, journal: &Recorder) -> String {
    // Source of the names: external-provisioner, external-attacher, external-resizer, external-snapshotter.
    let name = driver.replace(|char: char| !char.is_ascii_alphanumeric(), "-");
    let leases = format!(
        "{name}, external-attacher-leader-{name}, external-resizer-{name} and, with snapshots, \
         external-snapshotter-leader-{name}"
    );
    let last = match journal.look(|journal| journal.last()).flatten() {
        Some(last) => {
            let ago = journal.runs().saturating_sub(last);
            format!("The last request about a disk, or step of one, was {} s ago", ago.as_secs())
        }
        None => "No request about a disk has come since the start".to_owned(),
    };
    format!(
        "It has no Lease of its own and does what the sidecars of its pod ask. {last}; if those of another replica lead, ask \
         there: the Leases {leases} in the namespace of the pods name the holders."
    )
}

/// This process, as its events name it.
fn reporter(driver: &str) -> Reporter {
    Reporter { controller: driver.to_owned(), instance: host_name("lazuli-controller") }
}

/// The host name: a container's is its pod's name (source: Kubernetes), unless the pod uses the node's network. Where
/// there is none, `otherwise`.
pub(super) fn host_name(otherwise: &str) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if host.trim().is_empty() { otherwise.to_owned() } else { host.trim().to_owned() }
}

/// From where a TCP endpoint may be reached.
pub(super) fn reach(remote_is_allowed: bool) -> Reach {
    if remote_is_allowed { Reach::Network } else { Reach::ThisMachine }
}

/// Watches over the socket's file, where the endpoint has one.
pub(super) async fn keep(file: Option<SocketFile>, stop: &CancellationToken) -> Result<(), SocketLost> {
    match file {
        Some(file) => file.keep(stop).await,
        None => Ok(()),
    }
}

/// What this binary was built from.
pub(super) const BUILD: BuildInfo = BuildInfo {
    version: env!("CARGO_PKG_VERSION"),
    revision: match option_env!("LAZULI_REVISION") {
        Some(revision) => revision,
        None => "unknown",
    },
};

/// A seed for jitter and request ids: a different one in every process.
pub(super) fn seed() -> u64 {
    let bits = uuid::Uuid::new_v4().as_u128();
    (bits as u64) ^ ((bits >> 64) as u64)
}

#[cfg(test)]
#[cfg(feature = "emulator")]
mod tests {
    use axum::{body::Body, extract::Request, response::IntoResponse, routing::get};
    use clap::Parser;
    use csi_proto::csi::{
        ControllerPublishVolumeRequest, CreateVolumeRequest, VolumeCapability,
        controller_client::ControllerClient,
        volume_capability::{AccessMode, AccessType, BlockVolume, access_mode::Mode},
    };
    use lazuli_emulator::Emulator;
    use serde_json::json;
    use tonic::transport::Channel;

    use super::*;
    use lazuli_rig::{Folder, azure_json, connect};

    /// A moment of the paused clock, which moves only while nothing else can.
    async fn moment() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        options: Options,
    }

    /// An API server with one Node that answers no list but that of the Nodes before `listed`, and whose watches say
    /// nothing.
    async fn api_server(listed: CancellationToken) -> std::net::SocketAddr {
        let answer = async move |request: Request| {
            if request.uri().query().is_some_and(|query| query.contains("watch=")) {
                let silence = futures::stream::pending::<Result<Vec<u8>, std::io::Error>>();
                return Body::from_stream(silence).into_response();
            }
            let items = if request.uri().path() == "/api/v1/nodes" {
                json!([{"metadata": {"name": "node-0"}}])
            } else {
                // A question about one object is answered at once.
                if request.uri().query().is_none_or(|query| !query.contains("fieldSelector=")) {
                    listed.cancelled().await;
                }
                json!([])
            };
            axum::Json(
                json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}),
            )
            .into_response()
        };
        let router = axum::Router::new().fallback(get(answer));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        address
    }

    fn capability() -> VolumeCapability {
        VolumeCapability {
            access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
            access_type: Some(AccessType::Block(BlockVolume {})),
        }
    }

    /// Starts the controller with the `azure.json` of this folder, and waits until it serves there.
    async fn start(
        folder: &Folder,
        more: &[&str],
        stop: &CancellationToken,
    ) -> (tokio::task::JoinHandle<Outcome>, ControllerClient<Channel>) {
        let socket = folder.path().join("csi.sock");
        let mut arguments = vec![
            "csi-controller".to_owned(),
            format!("--endpoint=unix://{}", socket.display()),
            format!("--cloud-config={}", folder.path().join("azure.json").display()),
            "--cloud-config-secret-name=".to_owned(),
        ];
        arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
        let serving = tokio::spawn(serve(Command::parse_from(arguments).options, stop.clone()));
        while !socket.exists() {
            assert!(!serving.is_finished(), "the controller does not start");
            moment().await;
        }
        let client = ControllerClient::new(connect(&socket).await.unwrap());
        (serving, client)
    }

    #[tokio::test(start_paused = true)]
    async fn a_rotated_password_counts_within_a_minute_and_without_a_restart() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let azure = lazuli_emulator::Options::default();
        let scenario = azure.scenario.clone();
        let azure = Emulator::start(azure).await.unwrap();
        let folder = Folder::make("rotation").unwrap();
        let good = azure_json(&scenario, &azure.url());
        let write = |value: &serde_json::Value| {
            std::fs::write(folder.path().join("azure.json"), value.to_string()).unwrap();
        };
        let mut expired = good.clone();
        expired["aadClientSecret"] = "the-last-one".into();
        write(&expired);
        let stop = CancellationToken::new();
        let (serving, mut client) = start(&folder, &[], &stop).await;
        let request =
            CreateVolumeRequest { name: "pvc-1".into(), volume_capabilities: vec![capability()], ..Default::default() };
        let refused = client.create_volume(request.clone()).await.unwrap_err();
        assert!(refused.message().contains("AADSTS7000215"), "{}", refused.message());
        // An unreadable file changes nothing.
        write(&json!(7));
        tokio::time::sleep(Duration::from_secs(60)).await;
        write(&good);
        tokio::time::sleep(Duration::from_secs(60)).await;
        client.create_volume(request).await.unwrap();
        stop.cancel();
        serving.await.unwrap().unwrap();
        azure.shutdown().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_certificate_lets_the_driver_in_and_its_replacement_on_disk_counts_without_a_restart() {
        const CERTIFICATES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/client_certificates");
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut azure = lazuli_emulator::Options::default();
        let registered = std::fs::read_to_string(format!("{CERTIFICATES}/test-only-client.pem")).unwrap();
        azure.scenario.clients[0].secret = None;
        azure.scenario.clients[0].certificates = vec![registered];
        let scenario = azure.scenario.clone();
        let azure = Emulator::start(azure).await.unwrap();
        let folder = Folder::make("certificate").unwrap();
        let certificate = folder.path().join("client.p12");
        let mut config = azure_json(&scenario, &azure.url());
        config.as_object_mut().unwrap().remove("aadClientSecret");
        config["aadClientCertPath"] = certificate.display().to_string().into();
        config["aadClientCertPassword"] = "test-only".into();
        std::fs::write(folder.path().join("azure.json"), config.to_string()).unwrap();
        let replace = |name: &str| std::fs::copy(format!("{CERTIFICATES}/{name}"), &certificate).unwrap();
        let stop = CancellationToken::new();
        // Nothing is there yet: the process starts, and says which file it lacks.
        let (serving, mut client) = start(&folder, &[], &stop).await;
        let request =
            CreateVolumeRequest { name: "pvc-1".into(), volume_capabilities: vec![capability()], ..Default::default() };
        let refused = client.create_volume(request.clone()).await.unwrap_err();
        assert!(refused.message().contains("client.p12 (aadClientCertPath) cannot be used"), "{}", refused.message());
        replace("test-only-other.pem");
        let refused = client.create_volume(request.clone()).await.unwrap_err();
        assert!(refused.message().contains("AADSTS700027"), "{}", refused.message());
        replace("test-only-client.p12");
        tokio::time::sleep(Duration::from_secs(60)).await;
        client.create_volume(request).await.unwrap();
        stop.cancel();
        serving.await.unwrap().unwrap();
        azure.shutdown().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_publish_that_waits_for_the_attachments_when_the_process_is_stopped_is_finished() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let azure = lazuli_emulator::Options::default();
        let scenario = azure.scenario.clone();
        let azure = Emulator::start(azure).await.unwrap();
        let listed = CancellationToken::new();
        let cluster = api_server(listed.clone()).await;
        let folder = Folder::make("controller").unwrap();
        let path = |name: &str| folder.path().join(name);
        let write = |name: &str, value: serde_json::Value| std::fs::write(path(name), value.to_string()).unwrap();
        write("azure.json", azure_json(&scenario, &azure.url()));
        let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{cluster}")}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {}}]});
        write("kubeconfig", kubeconfig);
        let socket = path("csi.sock");
        let stop = CancellationToken::new();
        let kubeconfig = format!("--kubeconfig={}", path("kubeconfig").display());
        let more = [&*kubeconfig, "--drain-seconds=20", "--allowed-resource-groups=team,s2/*"];
        let (serving, mut client) = start(&folder, &more, &stop).await;
        let request =
            CreateVolumeRequest { name: "pvc-1".into(), volume_capabilities: vec![capability()], ..Default::default() };
        let mut elsewhere = request.clone();
        elsewhere.parameters = [("resourceGroup".to_owned(), "vault".to_owned())].into();
        let refused = client.create_volume(elsewhere).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument);
        assert!(refused.message().contains("team, s2/* (--allowed-resource-groups)"), "{}", refused.message());
        let volume = client.create_volume(request).await.unwrap().into_inner().volume.unwrap();
        let request = ControllerPublishVolumeRequest {
            volume_id: volume.volume_id,
            node_id: "node-0".into(),
            volume_capability: Some(capability()),
            ..Default::default()
        };
        let publish = tokio::spawn(async move { client.controller_publish_volume(request).await });
        // It has read its VM: now it waits for the attachments.
        let control = azure.control();
        while !control.call_log().iter().any(|call| call.path.ends_with("/virtualMachines/node-0")) {
            moment().await;
        }
        stop.cancel();
        while socket.exists() {
            moment().await;
        }
        assert!(!publish.is_finished() && !serving.is_finished());
        listed.cancel();
        let answer = publish.await.unwrap().unwrap().into_inner();
        assert_eq!(answer.publish_context["LUN"], "0");
        serving.await.unwrap().unwrap();
        azure.shutdown().await;
    }

    /// A cluster in the small API server, as a kubeconfig names it.
    async fn cluster(folder: &Folder) -> (lazuli_apiserver::ApiServer, String) {
        let server = lazuli_apiserver::ApiServer::start(lazuli_apiserver::Options::default());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = server.router();
        tokio::spawn(async move { axum::serve(listener, router).await });
        let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "users": [{"name": "u", "user": {}}]});
        let path = folder.path().join("kubeconfig");
        std::fs::write(&path, kubeconfig.to_string()).unwrap();
        (server, format!("--kubeconfig={}", path.display()))
    }

    #[tokio::test]
    async fn a_node_gets_the_key_of_a_share_from_the_controller_that_made_it() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let azure = lazuli_emulator::Options::default();
        let scenario = azure.scenario.clone();
        let azure = Emulator::start(azure).await.unwrap();
        let folder = Folder::make("keys").unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("azure.json"), azure_json(&scenario, &azure.url()).to_string()).unwrap();
        let made = rcgen::generate_simple_self_signed(["lazuli-key-broker.kube-system.svc".to_owned()]).unwrap();
        std::fs::write(path("ca.crt"), made.cert.pem()).unwrap();
        std::fs::write(path("tls.key"), made.signing_key.serialize_pem()).unwrap();
        let (server, kubeconfig) = cluster(&folder).await;
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let more = [
            kubeconfig,
            format!("--file-endpoint=unix://{}", path("file.sock").display()),
            format!("--key-broker-endpoint=127.0.0.1:{port}"),
            format!("--key-broker-certificate={}", path("ca.crt").display()),
            format!("--key-broker-key={}", path("tls.key").display()),
        ];
        let stop = CancellationToken::new();
        let (serving, _) = start(&folder, &more.each_ref().map(String::as_str), &stop).await;
        let mut files = ControllerClient::new(connect(&path("file.sock")).await.unwrap());
        let access_type = Some(AccessType::Mount(csi_proto::csi::volume_capability::MountVolume::default()));
        let request = CreateVolumeRequest {
            name: "pvc-1".into(),
            volume_capabilities: vec![VolumeCapability { access_type, ..capability() }],
            parameters: [("storeAccountKey".to_owned(), "false".to_owned())].into(),
            ..Default::default()
        };
        let id = files.create_volume(request).await.unwrap().into_inner().volume.unwrap().volume_id;

        let put = |plural: &str, namespace: &str, name: &str, spec: serde_json::Value| {
            server.put(plural, json!({"metadata": {"name": name, "namespace": namespace}, "spec": spec})).unwrap()
        };
        let claim = put("persistentvolumeclaims", "db", "data", json!({"volumeName": "pvc-1"}));
        let reference = json!({"namespace": "db", "name": "data", "uid": claim["metadata"]["uid"]});
        let csi = json!({"driver": FILE_DRIVER, "volumeHandle": id});
        server
            .put(
                "persistentvolumes",
                json!({"metadata": {"name": "pvc-1"}, "spec": {"csi": csi, "claimRef": reference}}),
            )
            .unwrap();
        let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
        put("pods", "db", "app", json!({"nodeName": "n1", "volumes": volumes}));
        put("pods", "kube-system", "node-1", json!({"nodeName": "n1", "serviceAccountName": "lazuli-node"}));
        let token = server.issue_token("kube-system", "node-1", &["lazuli-key-broker"]).unwrap();
        std::fs::write(path("token"), token).unwrap();
        let labels = json!({"kubernetes.io/service-name": "lazuli-key-broker"});
        server
            .put(
                "endpointslices",
                json!({"metadata": {"name": "k", "namespace": "kube-system", "labels": labels},
            "endpoints": [{"addresses": ["127.0.0.1"]}], "ports": [{"port": port}]}),
            )
            .unwrap();
        let place = lazuli_keys::BrokerPlace {
            namespace: "kube-system".to_owned(),
            service: "lazuli-key-broker".to_owned(),
            token: path("token"),
            authority: path("ca.crt"),
        };
        let client = kube::Client::new(server.router(), "default");
        let broker = lazuli_keys::BrokerClient::new(client, place);
        let mut key = broker.key(&id, None).await;
        // The volume may not have reached the controller yet.
        while key.as_ref().is_err_and(|error| error.message.contains("no bound PersistentVolume")) {
            tokio::time::sleep(Duration::from_millis(50)).await;
            key = broker.key(&id, None).await;
        }
        let key = key.unwrap();
        assert!(id.contains(&format!("#{}#pvc-1#", key.account)), "{id} {key:?}");
        stop.cancel();
        serving.await.unwrap().unwrap();
        azure.shutdown().await;
    }

    #[test]
    fn what_the_arguments_say_of_attaches_is_what_the_driver_knows() {
        let policy = |arguments: &[&str]| {
            let arguments = ["csi-controller", "--endpoint=unix:///csi.sock"].iter().chain(arguments);
            let policy = Command::parse_from(arguments).options.policy();
            (policy.force_detach, policy.detach_unused, policy.inline, policy.blob_disks)
        };
        let (none, on, unclaimed, auto) =
            (ForceDetach::Off, DetachUnused::On, InlineVolumes::Unclaimed, BlobDisks::Auto);
        assert_eq!(policy(&[]), (none, on, unclaimed, auto));
        assert_eq!(policy(&["--detach-unused-disks=false"]), (none, DetachUnused::Off, unclaimed, auto));
        assert_eq!(policy(&["--force-detach-stopped-vms=true"]), (ForceDetach::StoppedVms, on, unclaimed, auto));
        assert_eq!(policy(&["--allow-inline-claimed-disks=true"]), (none, on, InlineVolumes::Any, auto));
        for blob_disks in [BlobDisks::Auto, BlobDisks::Always, BlobDisks::Never] {
            let argument = format!("--blob-disks={blob_disks}");
            assert_eq!(policy(&[&argument]), (none, on, unclaimed, blob_disks));
        }
        let arguments = ["csi-controller", "--blob-disks=sometimes"];
        let refusal = Command::try_parse_from(arguments).err().unwrap().to_string();
        assert!(refusal.contains("auto, always, never"), "{refusal}");
    }
}
