//! What Azure says of the machine of a Node, and what the Node says then.
//!
//! Every text here is that of the Go managers, byte for byte: another text would make them write the Node again.

use std::net::IpAddr;

use lazuli_model::ArmId;

use super::{CloudNode, NodeAddress, labels};

/// A machine of Azure, as far as its Node says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// Its id, as Azure spells it.
    pub id: ArmId,
    /// The VM size.
    pub size: String,
    /// The region.
    pub location: String,
    /// The number of its availability zone.
    pub zone: Option<String>,
    /// Its fault domain, where it has no zone.
    pub fault_domain: Option<u32>,
    /// The addresses of its NICs: the primary NIC first, of each NIC the primary configuration first.
    pub addresses: Vec<InstanceAddress>,
}

/// Whether Nodes get the labels of before Kubernetes 1.17 too (`beta.kubernetes.io/instance-type`,
/// `failure-domain.beta.kubernetes.io/region` and `/zone`), which volumes and selectors of that time name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BetaLabels {
    /// They do, as the Go cloud-controller-manager has it.
    #[default]
    Written,
    /// They do not, which is the cloud-node-manager's default.
    LeftOut,
}

/// An address of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstanceAddress {
    /// The private address of an IP configuration.
    pub private: IpAddr,
    /// The public address of the same configuration.
    pub public: Option<IpAddr>,
}

/// The provider id of a machine: its id, with the resource group in lower case. Source: the Go manager,
/// `ConvertResourceGroupNameToLower`.
pub fn provider_id(machine: &ArmId) -> String {
    let group = machine.resource_group();
    let segments = machine.as_str().split('/').enumerate();
    let path: Vec<String> =
        segments.map(|(at, segment)| if at == 4 { group.to_lowercase() } else { segment.to_owned() }).collect();
    format!("azure://{}", path.join("/"))
}

impl Instance {
    /// The label of the zone: `region-number`, or the fault domain of a machine without a zone.
    pub fn zone_label(&self) -> String {
        match &self.zone {
            Some(zone) => format!("{}-{zone}", self.location.to_lowercase()),
            None => self.fault_domain.unwrap_or_default().to_string(),
        }
    }

    /// The labels of its Node.
    pub fn labels(&self, beta: BetaLabels) -> Vec<(&'static str, String)> {
        let (region, zone) = (self.location.to_lowercase(), self.zone_label());
        let pairs = [
            (labels::INSTANCE_TYPE, labels::BETA_INSTANCE_TYPE, &self.size),
            (labels::REGION, labels::BETA_REGION, &region),
            (labels::ZONE, labels::BETA_ZONE, &zone),
        ];
        let is_written = |label: &&str| beta == BetaLabels::Written || pairs.iter().any(|(today, ..)| today == label);
        let labels = pairs.iter().flat_map(|(today, before, value)| [(*today, *value), (*before, *value)]);
        labels.filter(|(label, _)| is_written(label)).map(|(label, value)| (label, value.clone())).collect()
    }

    /// The addresses of its Node: the host name, then the first of each family. A NIC may have many configurations more,
    /// whose addresses are those of pods.
    ///
    /// kubelet may have been told which addresses to use (`--node-ip`), which may be any of the machine. Then only these
    /// count of their types.
    ///
    /// # Errors
    /// A sentence: the machine has no address, or not the one that kubelet was told.
    pub fn node_addresses(&self, node: &CloudNode) -> Result<Vec<NodeAddress>, String> {
        node_addresses(&self.id, &self.addresses, node)
    }
}

/// The addresses of a Node whose machine has these.
pub(super) fn node_addresses(
    machine: &ArmId,
    addresses: &[InstanceAddress],
    node: &CloudNode,
) -> Result<Vec<NodeAddress>, String> {
    let (mut all, mut first) = (Vec::new(), Vec::new());
    for is_v4 in [true, false] {
        for (at, one) in addresses.iter().filter(|one| one.private.is_ipv4() == is_v4).enumerate() {
            let before = all.len();
            all.push((NodeAddress::INTERNAL, one.private));
            all.extend(one.public.map(|public| (NodeAddress::EXTERNAL, public)));
            if at == 0 {
                first.extend_from_slice(&all[before..]);
            }
        }
    }
    if all.is_empty() {
        return Err(format!("no NIC of {machine} has an address"));
    }
    let mut used: Vec<(&str, IpAddr)> = Vec::new();
    for told in &node.provided_addresses {
        let before = used.len();
        used.extend(all.iter().filter(|(_, address)| address == told));
        if used.len() == before {
            return Err(format!("kubelet was given the address {told}, which no NIC of {machine} has"));
        }
    }
    let told: Vec<&str> = used.iter().map(|(kind, _)| *kind).collect();
    used.extend(first.iter().filter(|(kind, _)| !told.contains(kind)));
    let host = NodeAddress { kind: NodeAddress::HOSTNAME.to_owned(), address: node.name.clone() };
    let addresses = used.into_iter().map(|(kind, at)| NodeAddress { kind: kind.to_owned(), address: at.to_string() });
    Ok([host].into_iter().chain(addresses).collect())
}
