//! A whole provider on an embedded Azure in one process: the emulator, a controller and a node plugin per machine,
//! each served on its own socket, as in a cluster. The demonstration and the integration tests run on it.

pub mod cluster;

use std::{
    error::Error,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use csi_proto::csi::{controller_client::ControllerClient, node_client::NodeClient};
pub use lazuli_assembly::services::{
    AttachMethod, AttachmentSourceReader, ListVolumes, NodeFactsReader, ShareView, secret_writer,
};
use lazuli_assembly::{
    clients::{self, Azure},
    services::{self, ClusterView, Policy},
};
use lazuli_azure::{
    arm::Write,
    blob::{Blobs, ServiceVersion},
    imds::Imds,
    transport::{Routes, Tls, Transport},
};
use lazuli_config::{Config, Document, Environment};
use lazuli_csi::{
    identity::{DISK_DRIVER, FILE_DRIVER},
    node::{NodeConfig, NodeService},
    server::{self, Endpoint, Listener},
};
use lazuli_emulator::{Emulator, HypervisorChoice, scenario::Scenario};
use lazuli_host::Host;
use lazuli_journal::{PrintedAtFailure, Recorder};
use lazuli_model::{event::Event, node::ClusterNodes, size::SizeLimits};
use lazuli_reconcile::metrics::Metrics as TaskMetrics;
use lazuli_storage::{
    dangling::DetachUnused, force_detach::ForceDetach, inline_volume::InlineVolumes, list::VolumeHandles,
    lun::LunReservations,
};
use lazuli_telemetry::lossy;
use lazuli_vhd::class::BlobDisks;
use lazuli_volume::AllowedResourceGroups;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint as ClientEndpoint};

/// Any error.
pub type AnyError = Box<dyn Error + Send + Sync>;

/// How long requests in flight may finish when the lab closes.
const DRAIN: Duration = Duration::from_secs(5);

/// What to set up.
#[derive(Debug)]
pub struct Options {
    /// A folder for sockets, state and, with the loop hypervisor, the machines. It must exist.
    pub folder: PathBuf,
    /// The Azure.
    pub azure: lazuli_emulator::Options,
    /// How data disks are written at first.
    pub attach_method: AttachMethod,
    /// Whether the provider is told that its Azure is an Azure Stack Hub.
    pub azure_stack: bool,
    /// Which LUNs Kubernetes names; without it there is no cluster.
    pub reservations: Option<watch::Receiver<LunReservations>>,
    /// The handles of the PersistentVolumes; without it there is no cluster to ask for them.
    pub handles: Option<watch::Receiver<VolumeHandles>>,
    /// The cluster's Nodes; without it there is no cluster, and a node is the VM of its name.
    pub nodes: Option<watch::Receiver<ClusterNodes>>,
    /// How to ask the cluster what a node uses.
    pub node_facts: Option<NodeFactsReader>,
    /// How to ask the cluster what a VolumeAttachment is about.
    pub attachment_source: Option<AttachmentSourceReader>,
    /// In which resource groups disks may be.
    pub allowed_resource_groups: AllowedResourceGroups,
    /// Which disks Pods may name in volumes `azureDisk`.
    pub inline: InlineVolumes,
    /// Where the controllers' events for people go.
    pub events: lossy::Sender<Event>,
    /// Whether controllers detach disks by force.
    pub force_detach: ForceDetach,
    /// Whether controllers detach disks from nodes on which Kubernetes does not use them.
    pub detach_unused: DetachUnused,
    /// Whether controllers offer ListVolumes.
    pub list_volumes: ListVolumes,
    /// When controllers make VHD blob disks for classes that ask for them.
    pub blob_disks: BlobDisks,
    /// Seed of the provider's jitter and request ids.
    pub seed: u64,
}

impl Options {
    /// The default Azure, without latency, in a folder.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            azure: lazuli_emulator::Options::default(),
            attach_method: AttachMethod::Auto,
            azure_stack: false,
            reservations: None,
            handles: None,
            nodes: None,
            node_facts: None,
            attachment_source: None,
            allowed_resource_groups: AllowedResourceGroups::Any,
            inline: InlineVolumes::Unclaimed,
            events: lossy::Sender::nowhere(),
            force_detach: ForceDetach::Off,
            detach_unused: DetachUnused::On,
            list_volumes: ListVolumes::On,
            blob_disks: BlobDisks::Auto,
            seed: 1,
        }
    }
}

/// The provider at work.
#[derive(Debug)]
pub struct Lab {
    /// The Azure.
    pub emulator: Emulator,
    folder: PathBuf,
    config: Config,
    cluster: ClusterView,
    policy: Policy,
    allowed_resource_groups: AllowedResourceGroups,
    seed: u64,
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
    journals: PrintedAtFailure,
}

impl Lab {
    /// Starts the emulator. Controllers and nodes are started by name.
    ///
    /// # Errors
    /// When the emulator does not start.
    pub async fn start(options: Options) -> Result<Self, AnyError> {
        // Any TLS library in this process takes this provider; a test may have installed it before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let scenario = options.azure.scenario.clone();
        let emulator = Emulator::start(options.azure).await?;
        let mut configuration = azure_json(&scenario, &emulator.url());
        if options.azure_stack {
            configuration["cloud"] = "AzureStackCloud".into();
        }
        let document = Document::parse("the embedded Azure", configuration.to_string().as_bytes())?;
        let config = Config::from_documents(Some(&document), None, &Environment::new(&Default::default()))?;
        let cluster = ClusterView {
            reservations: options.reservations.unwrap_or_else(|| watch::channel(LunReservations::NoCluster).1),
            handles: options.handles.unwrap_or_else(|| watch::channel(VolumeHandles::NoCluster).1),
            nodes: options.nodes.unwrap_or_else(|| watch::channel(ClusterNodes::NoCluster).1),
            sizes: watch::channel(SizeLimits::default()).1,
            node_facts: options.node_facts,
            attachment_source: options.attachment_source,
            events: options.events,
            journal: Recorder::nowhere(),
        };
        Ok(Self {
            emulator,
            folder: options.folder,
            config,
            cluster,
            allowed_resource_groups: options.allowed_resource_groups,
            policy: Policy {
                method: options.attach_method,
                force_detach: options.force_detach,
                detach_unused: options.detach_unused,
                inline: options.inline,
                list_volumes: options.list_volumes,
                blob_disks: options.blob_disks,
            },
            seed: options.seed,
            stop: CancellationToken::new(),
            tasks: Vec::new(),
            journals: PrintedAtFailure::default(),
        })
    }

    /// The clients of a controller. Page blobs have the addresses of the public cloud: below the address of the emulator, which
    /// it names as the domain of its storage services, no host can be.
    ///
    /// # Errors
    /// When the emulator cannot be reached.
    pub async fn azure(&self, registry: &mut Registry) -> Result<Azure, AnyError> {
        // Accounts that a driver makes are reached by https alone.
        let server = self.emulator.tls_url().unwrap_or_else(|| self.emulator.url());
        let authority = self.emulator.ca_pem().unwrap_or_default();
        let routes =
            Routes::none().with_blob_services(STORAGE_SUFFIX, &server.parse()?)?.trusting(authority.as_bytes());
        let mut azure = clients::connect(&self.config, routes, registry, self.seed).await?;
        azure.allow_resource_groups(self.allowed_resource_groups.clone());
        azure.cloud.storage_suffix = STORAGE_SUFFIX.to_owned();
        let version = if azure.stack { ServiceVersion::StackHub } else { ServiceVersion::Newest };
        azure.blobs = Blobs::new(azure.storage.clone(), STORAGE_SUFFIX, version);
        Ok(azure)
    }

    /// Starts a controller of this name and connects to it. A second one is a second replica. Where a test that holds this lab
    /// fails, it prints what the journal of each has of disks that wait or have failed.
    ///
    /// # Errors
    /// When it cannot serve.
    pub async fn controller(&mut self, name: &str) -> Result<ControllerClient<Channel>, AnyError> {
        let mut registry = Registry::default();
        let azure = self.azure(&mut registry).await?;
        let start = Instant::now();
        let journal = self.journals.recorder(name, move || start.elapsed());
        let cluster = ClusterView { journal, ..self.cluster.clone() };
        let tasks = TaskMetrics::register(&mut registry);
        let routes = services::controller(&azure, DISK_DRIVER, cluster, self.policy, tasks);
        let channel = self.serve(&format!("{name}.sock"), routes).await?;
        Ok(ControllerClient::new(channel))
    }

    /// Starts a controller of file shares of this name, which knows this of the cluster, and connects to it.
    ///
    /// # Errors
    /// When it cannot serve.
    pub async fn file_controller(
        &mut self,
        name: &str,
        cluster: ShareView,
    ) -> Result<ControllerClient<Channel>, AnyError> {
        let mut registry = Registry::default();
        let mut azure = clients::connect(&self.config, Routes::none(), &mut registry, self.seed).await?;
        azure.allow_resource_groups(self.allowed_resource_groups.clone());
        let routes = services::file_controller(&azure, FILE_DRIVER, cluster, TaskMetrics::register(&mut registry));
        let channel = self.serve(&format!("{name}.sock"), routes).await?;
        Ok(ControllerClient::new(channel))
    }

    /// Sends a write to Azure, as a person would, and waits until it has ended.
    ///
    /// # Errors
    /// When Azure refuses it.
    pub async fn write_azure(&self, write: Write) -> Result<(), AnyError> {
        cluster::write_azure(&self.config, write).await
    }

    /// Starts the node plugin of a machine and connects to it.
    ///
    /// # Errors
    /// When it cannot serve.
    pub async fn node(&mut self, machine: &str) -> Result<NodeClient<Channel>, AnyError> {
        let imds = format!("{}/_imds/{machine}", self.emulator.url()).parse()?;
        let routes = Routes::none().with_imds(&imds)?;
        let imds = Imds::new(Transport::new(routes, &Tls::default())?);
        let host = Host::new().with_root(self.machine_root(machine));
        let state = self.folder.join("state").join(machine);
        let node = NodeService::open(host, Some(imds), state, NodeConfig::new(machine))?;
        let routes = services::node(node, DISK_DRIVER);
        let channel = self.serve(&format!("{machine}.sock"), routes).await?;
        Ok(NodeClient::new(channel))
    }

    /// Where the loop hypervisor puts a machine's sys and dev folders.
    pub fn machine_root(&self, machine: &str) -> PathBuf {
        machine_root(&hypervisor_root(&self.folder), machine)
    }

    async fn serve(&mut self, socket: &str, routes: tonic::service::Routes) -> Result<Channel, AnyError> {
        let path = self.folder.join(socket);
        let listener = Listener::bind(&Endpoint::Unix(path.clone())).await?;
        let stop = self.stop.clone();
        self.tasks.push(tokio::spawn(async move {
            if let Err(error) = server::serve(routes, listener, stop, DRAIN).await {
                tracing::error!(error = server::chain(&error), "a server of the lab failed");
            }
        }));
        Ok(connect(&path).await?)
    }

    /// Closes everything.
    pub async fn stop(self) {
        self.stop.cancel();
        for task in self.tasks {
            // A server that panicked has said so.
            let _ = task.await;
        }
        self.emulator.shutdown().await;
    }
}

/// Connects to a socket.
///
/// # Errors
/// When no server listens there.
pub async fn connect(socket: &Path) -> Result<Channel, tonic::transport::Error> {
    ClientEndpoint::try_from(format!("unix://{}", socket.display()))?.connect().await
}

/// Where the loop hypervisor of a lab in this folder has its root.
pub fn hypervisor_root(folder: &Path) -> PathBuf {
    folder.join("azure")
}

/// Where the loop hypervisor with this root has the folders of a machine.
pub fn machine_root(hypervisor: &Path, machine: &str) -> PathBuf {
    hypervisor.join("vms").join(machine)
}

/// What a machine lacks to run the loop hypervisor and real filesystems; `None` when it lacks nothing.
pub fn missing_for_mounts() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("not root".into());
    }
    let folders = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"];
    let absent = |program: &&str| !folders.iter().any(|folder| Path::new(folder).join(program).exists());
    let missing: Vec<&str> = ["losetup", "mkfs.ext4", "resize2fs", "blkid"].into_iter().filter(absent).collect();
    if !missing.is_empty() {
        return Some(format!("{} missing (Debian: util-linux, e2fsprogs)", missing.join(", ")));
    }
    (!Path::new("/dev/loop-control").exists()).then(|| "the kernel offers no loop devices: load the module loop".into())
}

/// Whether this process may grow a mounted ext4: the kernel asks for CAP_SYS_RESOURCE, which some sandboxes keep
/// from root (source: ext4's ioctl, capabilities(7)).
pub fn may_grow_mounted_ext4() -> bool {
    const CAP_SYS_RESOURCE: u32 = 24;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective
        .and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok())
        .is_none_or(|bits| bits >> CAP_SYS_RESOURCE & 1 == 1)
}

/// The domain of the storage services of the public cloud.
const STORAGE_SUFFIX: &str = "core.windows.net";

/// The security group that the cloud configuration of an emulator names where its scenario has none.
pub const SECURITY_GROUP: &str = "nodes-nsg";

/// A cloud configuration for clients of an emulator, with every key that Services need, and what routes need where the scenario
/// has a route table.
pub fn azure_json(scenario: &Scenario, url: &str) -> Value {
    let (client, network) = (scenario.clients.first(), scenario.virtual_networks.first());
    let security_group = scenario.security_groups.first().map_or(SECURITY_GROUP, |group| &group.name);
    let mut config = json!({
        "cloud": "AzurePublicCloud",
        "resourceManagerEndpoint": url,
        "tenantId": scenario.tenant_id,
        "subscriptionId": scenario.subscription(),
        "aadClientId": client.map(|client| client.id.as_str()),
        "aadClientSecret": client.and_then(|client| client.secret.as_deref()),
        "resourceGroup": scenario.resource_group(),
        "location": scenario.location,
        "vnetName": network.map(|network| network.name.as_str()),
        "subnetName": network.and_then(|network| network.subnets.first()).map(|subnet| subnet.name.as_str()),
        "securityGroupName": security_group,
        "useInstanceMetadata": true,
    });
    if let Some(table) = scenario.route_tables.first() {
        config["routeTableName"] = table.name.as_str().into();
    }
    config
}

/// The loop hypervisor for a lab in this folder.
pub fn loop_hypervisor(folder: &Path) -> HypervisorChoice {
    HypervisorChoice::Loop(hypervisor_root(folder))
}

/// The file that says of a person's folder that what is in it was made by runs.
pub const MARKER: &str = ".lazuli-folder";

/// A folder for one run.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    end: FolderEnd,
}

/// What becomes of a folder when its run is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FolderEnd {
    Removed,
    Kept,
}

impl Folder {
    /// Makes one below the system's folder for temporary files. It is removed at the end.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn make(purpose: &str) -> io::Result<Self> {
        // Short, because the path of a unix socket in it may have 107 bytes.
        let id = uuid::Uuid::new_v4().simple().to_string();
        let path = std::env::temp_dir().join(format!("lazuli-{purpose}-{}", &id[..12]));
        std::fs::create_dir_all(&path)?;
        Ok(Self { path, end: FolderEnd::Removed })
    }

    /// A person's folder, which is made where it does not exist and stays at the end. A run overwrites and removes files in
    /// it, so it is empty at first; the file [`MARKER`] then says that the files are those of earlier runs.
    ///
    /// # Errors
    /// When it cannot be made, or has files and not the marker.
    pub fn of_person(path: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(path)?;
        let path = path.canonicalize()?;
        let marker = path.join(MARKER);
        if !marker.try_exists()? {
            if std::fs::read_dir(&path)?.next().is_some() {
                return Err(io::Error::other(format!(
                    "it has files and no {MARKER}, so they are not those of an earlier run: give a folder that is empty or \
                     does not exist"
                )));
            }
            std::fs::File::create_new(&marker)?;
        }
        Ok(Self { path, end: FolderEnd::Kept })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is still mounted below stays; removing through a mount would remove a volume's files.
        let mounted = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        if self.end == FolderEnd::Removed && !mounted.contains(&*self.path.to_string_lossy()) {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_a_person_is_empty_or_one_of_an_earlier_run() {
        let own = Folder::make("rig-test").unwrap();
        let (new, full) = (own.path().join("new"), own.path().join("full"));
        Folder::of_person(&new).unwrap();
        std::fs::write(new.join("azure.json"), "{}").unwrap();
        Folder::of_person(&new).expect("the files of an earlier run");
        std::fs::create_dir(&full).unwrap();
        std::fs::write(full.join("kubeconfig"), "mine").unwrap();
        let refused = Folder::of_person(&full).unwrap_err().to_string();
        assert!(refused.contains(MARKER) && refused.contains("empty"), "{refused}");
        assert_eq!(std::fs::read_dir(&full).unwrap().count(), 1, "nothing was made in it");
    }
}
