//! A Node and its machine, for the cloud controllers: what a new Node is told of its machine, what becomes of a Node
//! whose machine is stopped or gone, and which routes it has.
//!
//! ```text
//!   new, with the taint         machine told by      status patched            Node patched
//!   node.cloudprovider… ──────▶ its plugin, or  ───▶ addresses, and that ────▶ provider id, labels, and the
//!   /uninitialized              read of Azure        its routes are missing    taint goes: two writes in all
//!
//!   not Ready ──▶ machine read, no cache ──▶ stopped: taints shutdown and out-of-service
//!                                        ──▶ 404 twice, some seconds apart, each with a control at 200: Node deleted
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`addresses`] | the addresses of initialised Nodes, as lists of network interfaces show them |
//! | [`body`] | the bodies of machines and NICs, as far as a Node's facts are in them |
//! | `instance` | what Azure says of a machine, and the texts that follow for its Node |
//! | [`step`] | the step of one Node |
//! | [`breaker`] | the step that slows down when many machines disappear at once |
//! | [`events`] | what is told of a Node by events |
//! | [`existence`] | whether a machine is gone: the reads of one round |
//! | [`facts`] | what the plugin on a node publishes of its machine |
//!
//! # What is never touched
//!
//! A Node with the label `kubernetes.azure.com/managed=false`, or with the provider id of another cloud
//! ([`CloudNode::is_ours`]). A Node that is initialised keeps its labels. It may get a label that it lacks, when its plugin
//! tells the value later. Its addresses follow those of its machine; they have one writer, the leader. A taint `out-of-service` with a value is a person's, and stays.
//!
//! [`lazuli_model::node`] is the view of Nodes that attaching disks needs.

pub mod addresses;
pub mod body;
pub mod breaker;
pub mod events;
pub mod existence;
pub mod facts;
mod instance;
mod routes;
#[cfg(test)]
mod simulation;
pub mod step;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use instance::node_addresses;
pub use instance::{BetaLabels, Instance, InstanceAddress, provider_id};

use lazuli_model::{
    address::{Cidr, Family},
    node::Machine,
};

use crate::routing::PodRange;

/// The labels that tell of a Node's machine. Source: Kubernetes, well-known labels.
pub mod labels {
    /// The VM size.
    pub const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
    /// The same before 1.17.
    pub const BETA_INSTANCE_TYPE: &str = "beta.kubernetes.io/instance-type";
    /// The region.
    pub const REGION: &str = "topology.kubernetes.io/region";
    /// The same before 1.17.
    pub const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";
    /// The zone.
    pub const ZONE: &str = "topology.kubernetes.io/zone";
    /// The same before 1.17.
    pub const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
    /// The part of the fault domain. Source: the Go cloud-node-manager, which has it from the instance metadata, as the next.
    pub const SUB_FAULT_DOMAIN: &str = "topology.kubernetes.azure.com/sub-fault-domain";
    /// The machines that share a fast network.
    pub const INTERCONNECT_GROUP: &str = "topology.kubernetes.azure.com/interconnect-group";
    /// Those that only the instance metadata tells.
    pub const OF_METADATA: [&str; 2] = [SUB_FAULT_DOMAIN, INTERCONNECT_GROUP];
}

/// A taint of a Node, whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value; empty for none.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
    /// When it was added, as the API server spells it.
    pub time_added: Option<String>,
}

impl Taint {
    /// kubelet with an external cloud provider puts it on a new Node. Source: Kubernetes, well-known taints.
    pub const UNINITIALIZED: &'static str = "node.cloudprovider.kubernetes.io/uninitialized";
    /// The machine is stopped. Source: as before; the Go lifecycle controller gives it the effect `NoSchedule`.
    pub const SHUTDOWN: &'static str = "node.cloudprovider.kubernetes.io/shutdown";
    /// Kubernetes detaches the volumes of the Node's pods without their consent. Source: as before; the Go manager gives
    /// it the effect `NoExecute` and no value.
    pub const OUT_OF_SERVICE: &'static str = "node.kubernetes.io/out-of-service";

    fn shutdown() -> Self {
        Self::of(Self::SHUTDOWN, "NoSchedule")
    }

    fn out_of_service() -> Self {
        Self::of(Self::OUT_OF_SERVICE, "NoExecute")
    }

    fn of(key: &str, effect: &str) -> Self {
        Self { key: key.to_owned(), value: String::new(), effect: effect.to_owned(), time_added: None }
    }

    /// Whether it is the same taint; its time does not count.
    fn is(&self, other: &Self) -> bool {
        (&self.key, &self.value, &self.effect) == (&other.key, &other.value, &other.effect)
    }
}

/// An address of a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeAddress {
    /// Its type.
    pub kind: String,
    /// A host name or an address.
    pub address: String,
}

impl NodeAddress {
    /// The type of a host name.
    pub const HOSTNAME: &'static str = "Hostname";
    /// The type of an address inside the virtual network.
    pub const INTERNAL: &'static str = "InternalIP";
    /// The type of a public address.
    pub const EXTERNAL: &'static str = "ExternalIP";
}

/// A Node as the API server has it, as far as its machine matters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CloudNode {
    /// Its name.
    pub name: String,
    /// Its uid. Another Node of the name has another.
    pub uid: String,
    /// Its resource version. A later state has a greater one.
    pub version: u64,
    /// `spec.providerID`.
    pub provider_id: Option<String>,
    /// Whether the label `kubernetes.azure.com/managed` is `false`.
    pub is_unmanaged: bool,
    /// The label `kubernetes.azure.com/resource-group`.
    pub resource_group: Option<String>,
    /// All its taints.
    pub taints: Vec<Taint>,
    /// All its addresses.
    pub addresses: Vec<NodeAddress>,
    /// The addresses that kubelet was told to use: the annotation `alpha.kubernetes.io/provided-node-ip`.
    pub provided_addresses: Vec<IpAddr>,
    /// `spec.podCIDRs`, or `spec.podCIDR` alone.
    pub pod_ranges: Vec<String>,
    /// Whether its condition Ready is True.
    pub is_ready: bool,
    /// Its condition NetworkUnavailable; `None` without one, and where it is neither true nor false.
    pub is_network_unavailable: Option<bool>,
    /// When it was made, as the API server spells it: RFC 3339 in UTC and whole seconds.
    pub created: String,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// The boot of the kernel that kubelet runs in: `status.nodeInfo.bootID`.
    pub boot_id: Option<String>,
    /// What its plugin says of its machine.
    pub facts: Option<facts::InstanceFacts>,
    /// Which of [`labels::OF_METADATA`] it has.
    pub metadata_labels: Vec<&'static str>,
}

impl CloudNode {
    /// Whether it is a Node that this provider looks after.
    pub fn is_ours(&self) -> bool {
        let of_azure = self.provider_id.as_deref().is_none_or(|id| Machine::of_provider_id(id).is_some());
        of_azure && !self.is_unmanaged
    }

    /// Its machine, once its provider id names one.
    pub fn machine(&self) -> Option<Machine> {
        self.provider_id.as_deref().and_then(Machine::of_provider_id)
    }

    /// Whether it has a taint of this key.
    pub fn has_taint(&self, key: &str) -> bool {
        self.taints.iter().any(|taint| taint.key == key)
    }

    fn pod_ranges(&self) -> Vec<PodRange> {
        let address = |range: &Cidr| {
            let internal = self.addresses.iter().filter(|address| address.kind == NodeAddress::INTERNAL);
            let mut addresses = internal.filter_map(|address| address.address.parse::<IpAddr>().ok());
            addresses.find(|address| address.is_ipv4() == range_is_v4(range))
        };
        let ranges = self.pod_ranges.iter().filter_map(|text| Some((text, text.parse::<Cidr>().ok()?)));
        let pod = |(text, range): (&String, Cidr)| PodRange {
            text: text.clone(),
            range,
            next_hop: address(&range),
            created: self.created.clone(),
        };
        ranges.map(pod).collect()
    }
}

fn range_is_v4(range: &Cidr) -> bool {
    range.family() == Family::V4
}

/// Whether the label [`MANAGED`](lazuli_services::network::backends::labels::MANAGED) of a Node says that no cloud manages it.
pub fn is_unmanaged(managed: Option<&str>) -> bool {
    managed.is_some_and(|value| value.eq_ignore_ascii_case("false"))
}
