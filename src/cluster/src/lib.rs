//! What this program asks of Kubernetes.
//!
//! Owns the API client (none where there is no cluster: a value, not an error), single secrets by `get`,
//! the snapshot of LUNs that VolumeAttachments name and the one of the cluster's Nodes, which reach the crates that
//! place disks as data, the reviews of who may read metrics and get keys, and what it writes: what VM sizes newer than the shipped
//! table take, events for people, and the removal of a start-up taint. Never lists secrets, and never chooses a LUN.

mod answering;
mod attachment_source;
mod backends;
mod claims;
mod client;
mod cloud_nodes;
mod cluster_ips;
mod endpoints;
mod events;
#[cfg(test)]
mod fake;
mod follow;
mod inventory;
mod key_facts;
mod lease;
mod levels;
mod liveness;
mod metrics_review;
mod migration;
mod namespaces;
mod node_facts;
mod nodes;
mod own_node;
mod proxy;
mod reservations;
mod secret;
mod server;
mod services;
mod shares;
mod sizes;
mod snapshots;
#[cfg(test)]
mod tests;
mod volumes;

pub use answering::keep_asking;
pub use attachment_source::{AttachmentSourceError, attachment_source};
pub use backends::{BackendsChange, follow_backends};
pub use claims::{ClaimedVolume, ReadClaimError, claimed_volume};
pub use client::{ConnectError, connect, connect_as};
pub use cloud_nodes::{
    CloudNodesChange, WriteNodeError, control_plane, delete_node, follow_cloud_nodes, node_exists, patch_node,
};
pub use cluster_ips::{ClusterIps, OtherAddresses};
pub use endpoints::{EndpointNodes, EndpointsChange, follow_endpoints};
pub use events::{EventMetrics, METRICS, Reporter, event_queue, write_events};
pub use follow::Change;
pub use inventory::{
    AttachedVolume, ListError, ListedAttachment, ListedNode, lease_holder, list_attachments, list_containers,
    list_nodes, list_reservations, list_services, list_volumes,
};
pub use key_facts::{KeyFactsError, pods_of_node, review_node_token, service_addresses, share_volume};
pub use lazuli_shares::deletion::ShareVolumes;
pub use lease::{Ended, LeaseName, LeaseView, SeenLease, lead, read_mark, write_mark};
pub use levels::{GO_FAMILIES, KnownVolumes, LEVELS, register_leadership, register_volumes};
pub use liveness::STALE_AFTER;
pub use metrics_review::{ReviewError, review_metrics_reader};
pub use migration::{list_attributes_classes, list_azure_volumes, list_classes};
pub use namespaces::{NamespacesChange, follow_namespaces};
pub use node_facts::{NodeFactsError, attached_volumes, node_facts};
pub use nodes::watch_nodes;
pub use own_node::{OwnNodeError, machine_labels, publish_facts, remove_startup_taint};
pub use proxy::ProxyError;
pub use reservations::watch_luns;
pub use secret::{
    SecretError, SecretUpdate, SecretValues, SecretWriteError, Verb, read_secret, update_secret, write_share_secret,
};
pub use server::ApiError;
pub use services::{
    PatchServiceError, ServicePatch, ServicesChange, VersionedService, WatchedService, follow_services,
    list_load_balancers, patch_service,
};
pub use shares::{list_share_volumes, watch_share_volumes};
pub use sizes::{SizesError, SizesFileError, mounted_sizes, publish_sizes, published_sizes};
pub use snapshots::{
    TakenSnapshot, list_snapshot_classes, list_snapshot_contents, list_snapshot_handles, owned_snapshot_types,
    snapshot_types, taken_snapshot,
};
pub use volumes::{ReadVolumeError, read_volume};
