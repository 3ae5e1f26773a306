//! From clients to the gRPC services of a process.

use csi_proto::csi::{controller_server::ControllerServer, identity_server::IdentityServer, node_server::NodeServer};
use lazuli_blob_disk::BlobDisks;
pub use lazuli_csi::controller::ListVolumes;
pub use lazuli_csi::file::controller::SecretWriter;
use lazuli_csi::{controller::ControllerService, file, identity::IdentityService, node::NodeService, server::chain};
use lazuli_disk::{Admission, PageBlobs, Settings, Volumes};
pub use lazuli_disk::{AttachmentSourceReader, NodeFactsReader};
pub use lazuli_file::Shares;
use lazuli_journal::Recorder;
use lazuli_model::{event::Event, node::ClusterNodes, op::VmWriteMethod, size::SizeLimits};
use lazuli_reconcile::metrics::Metrics;
use lazuli_shares::{
    deletion::ShareVolumes,
    parameters::Defaults,
    secret::{self, SecretRef},
};
use lazuli_storage::{
    dangling::DetachUnused, force_detach::ForceDetach, inline_volume::InlineVolumes, list::VolumeHandles,
    lun::LunReservations,
};
use lazuli_telemetry::lossy;
use lazuli_vhd::class;
use tokio::sync::watch;
use tonic::service::Routes;

use crate::clients::Azure;

/// How a VM's data disks are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum AttachMethod {
    /// The action `attachDetachDataDisks`; the whole list where Azure or the identity's role lacks that action, and on
    /// Azure Stack Hub.
    Auto,
    /// The same as auto.
    Action,
    /// The whole list, under If-Match where the VM has an etag.
    WholeList,
}

impl AttachMethod {
    fn resolve(self, stack: bool) -> VmWriteMethod {
        match (self, stack) {
            (_, true) => VmWriteMethod::WholeListByOmission,
            (Self::Auto | Self::Action, false) => VmWriteMethod::Action,
            (Self::WholeList, false) => VmWriteMethod::WholeList,
        }
    }
}

/// What the controller learns of the cluster while it runs, and where it reports.
#[derive(Debug, Clone)]
pub struct ClusterView {
    /// Which LUNs VolumeAttachments name.
    pub reservations: watch::Receiver<LunReservations>,
    /// The handles of the PersistentVolumes.
    pub handles: watch::Receiver<VolumeHandles>,
    /// The Nodes.
    pub nodes: watch::Receiver<ClusterNodes>,
    /// What is known of VM sizes beyond the shipped table.
    pub sizes: watch::Receiver<SizeLimits>,
    /// How to ask what a node uses.
    pub node_facts: Option<NodeFactsReader>,
    /// How to ask what a VolumeAttachment is about.
    pub attachment_source: Option<AttachmentSourceReader>,
    /// Where events for people go.
    pub events: lossy::Sender<Event>,
    /// Where it is noted what happens to each disk.
    pub journal: Recorder,
}

/// What the operator chooses of the controller.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// How a VM's data disks are written at first.
    pub method: AttachMethod,
    /// Whether disks are detached by force.
    pub force_detach: ForceDetach,
    /// Whether disks are detached from nodes on which Kubernetes does not use them.
    pub detach_unused: DetachUnused,
    /// Which disks Pods may name in volumes `azureDisk`.
    pub inline: InlineVolumes,
    /// Whether ListVolumes is offered.
    pub list_volumes: ListVolumes,
    /// When a class that asks for a VHD blob disk gets one.
    pub blob_disks: class::BlobDisks,
}

/// How to ask a cluster what a node uses.
pub fn node_facts(client: kube::Client, driver_name: &str) -> NodeFactsReader {
    let driver = driver_name.to_owned();
    NodeFactsReader::new(driver_name, move |node| {
        let (client, driver) = (client.clone(), driver.clone());
        let read = async move { lazuli_cluster::node_facts(&client, &driver, &node).await };
        Box::pin(async { read.await.map_err(|error| chain(&error)) })
    })
}

/// How to ask a cluster what a VolumeAttachment is about.
pub fn attachment_source(client: kube::Client, driver_name: &str) -> AttachmentSourceReader {
    let driver = driver_name.to_owned();
    AttachmentSourceReader::new(move |handle, node| {
        let (client, driver) = (client.clone(), driver.clone());
        let read = async move { lazuli_cluster::attachment_source(&client, &driver, &handle, &node).await };
        Box::pin(async { read.await.map_err(|error| chain(&error)) })
    })
}

/// The VHD blob disks of the cluster, over an Azure.
pub fn blob_disks(azure: &Azure, metrics: Metrics, journal: Recorder) -> BlobDisks {
    BlobDisks::new(lazuli_blob_disk::Settings {
        storage: azure.storage.clone(),
        blobs: azure.blobs.clone(),
        suffix: azure.cloud.storage_suffix.clone(),
        is_stack_hub: azure.stack,
        subscription: azure.defaults.subscription.clone(),
        resource_group: azure.defaults.resource_group.clone(),
        allowed_resource_groups: azure.defaults.allowed_resource_groups.clone(),
        cluster_name: String::new(),
        metrics,
        journal,
    })
}

/// The services of the disk driver's controller over an Azure.
pub fn controller(azure: &Azure, driver_name: &str, cluster: ClusterView, policy: Policy, metrics: Metrics) -> Routes {
    let Policy { method, force_detach, detach_unused, inline, list_volumes, blob_disks: when } = policy;
    let ClusterView { reservations, handles, nodes, sizes, node_facts, attachment_source, events, journal } = cluster;
    let blobs = blob_disks(azure, metrics.clone(), journal.clone());
    let volumes = Volumes::new(Settings {
        blobs: Some(blobs),
        compute: azure.compute.clone(),
        subscription: azure.defaults.subscription.clone(),
        resource_group: azure.defaults.resource_group.clone(),
        reservations,
        handles,
        nodes,
        sizes,
        node_facts,
        events: events.clone(),
        force_detach,
        detach_unused,
        admission: Admission {
            resource_groups: azure.defaults.allowed_resource_groups.clone(),
            inline,
            source: attachment_source,
        },
        method: method.resolve(azure.stack),
        metrics,
        journal: journal.clone(),
    });
    let volumes = volumes.with_page_blobs(PageBlobs::new(azure.storage.clone(), azure.blobs.clone()));
    let controller = ControllerService::new(volumes, azure.defaults.clone());
    let controller =
        controller.with_blob_disks(when).with_list_volumes(list_volumes).with_events(events).with_journal(journal);
    Routes::new(IdentityServer::new(IdentityService::disk(driver_name))).add_service(ControllerServer::new(controller))
}

/// What the controller of file shares learns of the cluster while it runs, and where it reports.
#[derive(Debug, Clone)]
pub struct ShareView {
    /// The PersistentVolumes that may name a share.
    pub volumes: watch::Receiver<ShareVolumes>,
    /// How the keys of accounts are written into Secrets; without it they are not.
    pub secrets: Option<SecretWriter>,
    /// Where events for people go.
    pub events: lossy::Sender<Event>,
    /// Where it is noted what happens.
    pub journal: Recorder,
}

/// How the keys of accounts are written into a cluster's Secrets.
pub fn secret_writer(client: kube::Client) -> SecretWriter {
    SecretWriter::new(move |secret, credentials| {
        let client = client.clone();
        Box::pin(async move {
            let SecretRef { namespace, name } = secret;
            let data = secret::data(&credentials);
            let written = lazuli_cluster::write_share_secret(&client, &namespace, &name, &data).await;
            written.map_err(|error| chain(&error))
        })
    })
}

/// The file shares of a cluster over an Azure.
pub fn shares(azure: &Azure, driver_name: &str, cluster: &ShareView, metrics: Metrics) -> Shares {
    Shares::new(lazuli_file::Settings {
        storage: azure.storage.clone(),
        network: azure.network.clone(),
        volumes: cluster.volumes.clone(),
        driver_name: driver_name.to_owned(),
        subscription: azure.share_defaults.subscription.clone(),
        resource_group: azure.share_defaults.resource_group.clone(),
        allowed_resource_groups: azure.share_defaults.allowed_resource_groups.clone(),
        metrics,
        journal: cluster.journal.clone(),
    })
}

/// The services of the file driver's controller over an Azure.
pub fn file_controller(azure: &Azure, driver_name: &str, cluster: ShareView, metrics: Metrics) -> Routes {
    let shares = shares(azure, driver_name, &cluster, metrics);
    file_controller_of(azure, driver_name, shares, cluster)
}

/// The same as [`file_controller`], over shares that something else in the process uses too.
pub fn file_controller_of(azure: &Azure, driver_name: &str, shares: Shares, cluster: ShareView) -> Routes {
    let defaults = Defaults { driver_name: driver_name.to_owned(), ..azure.share_defaults.clone() };
    let controller = file::controller::ControllerService::new(shares, defaults, cluster.secrets, cluster.events);
    Routes::new(IdentityServer::new(IdentityService::file(driver_name))).add_service(ControllerServer::new(controller))
}

/// The services of a node.
pub fn node(node: NodeService, driver_name: &str) -> Routes {
    Routes::new(IdentityServer::new(IdentityService::disk(driver_name))).add_service(NodeServer::new(node))
}

/// The services of the file driver on a node.
pub fn file_node(node: file::node::NodeService, driver_name: &str) -> Routes {
    Routes::new(IdentityServer::new(IdentityService::file(driver_name))).add_service(NodeServer::new(node))
}
