//! Which Nodes are backends of load balancers.
//!
//! Readiness does not matter: the health probe decides about that, so that a node which is not ready for a moment costs no
//! write. Neither does the taint `ToBeDeletedByClusterAutoscaler`: connections drain until the Node is deleted.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use lazuli_model::{
    ArmId,
    address::{Cidr, Family},
    node::Machine,
};

/// A Node, as far as load balancers depend on it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BackendNode {
    /// `spec.providerID`.
    pub provider_id: Option<String>,
    /// Its addresses of type `InternalIP`, the first of each family counts.
    pub addresses: Vec<IpAddr>,
    /// Its other addresses, such as those of type `ExternalIP`.
    pub other_addresses: Vec<IpAddr>,
    /// `spec.podCIDRs`: the ranges of its Pods.
    pub pod_ranges: Vec<Cidr>,
    /// What keeps it out of all pools.
    pub exclusion: Option<Exclusion>,
    /// The label `kubernetes.azure.com/resource-group`.
    pub resource_group: Option<String>,
    /// Its labels, as far as selectors of load balancers ask for them.
    pub labels: BTreeMap<String, String>,
}

impl BackendNode {
    /// Its address of a family.
    pub fn address(&self, family: Family) -> Option<IpAddr> {
        self.addresses.iter().copied().find(|address| Family::of(*address) == family)
    }

    /// Its machine: a VM, or an instance of a uniform scale set.
    pub fn machine(&self) -> Option<ArmId> {
        Some(match Machine::of_provider_id(self.provider_id.as_deref()?)? {
            Machine::Vm(id) | Machine::Instance(id) => id,
        })
    }

    /// The name of its scale set, as its provider id spells it; `None` for a machine that is in none.
    pub fn scale_set(&self) -> Option<&str> {
        let id = self.provider_id.as_deref()?;
        let lower = id.to_ascii_lowercase();
        let start = lower.find("/virtualmachinescalesets/")? + "/virtualmachinescalesets/".len();
        let (name, rest) = id[start..].split_once('/')?;
        rest.to_ascii_lowercase().starts_with("virtualmachines/").then_some(name)
    }
}

/// Why a Node is in no pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exclusion {
    /// It has the label `node.kubernetes.io/exclude-from-external-load-balancers`, with any value.
    Label,
    /// It has the label `kubernetes.azure.com/managed=false`.
    Unmanaged,
    /// It is a node of the control plane.
    ControlPlane,
}

/// The labels that decide about a Node. Source: Kubernetes, well-known labels; the Go manager's `consts`.
pub mod labels {
    /// Any value keeps a Node out.
    pub const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
    /// `false` says that no cloud manages the Node.
    pub const MANAGED: &str = "kubernetes.azure.com/managed";
    /// The resource group of the Node's machine.
    pub const RESOURCE_GROUP: &str = "kubernetes.azure.com/resource-group";
    /// Nodes of the control plane, today and before 1.20.
    pub const CONTROL_PLANE: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];
    /// The role of a Node before those.
    pub const ROLE: &str = "kubernetes.io/role";
}

impl Exclusion {
    /// What the labels of a Node say.
    pub fn of<'l>(labels: impl Fn(&str) -> Option<&'l str>) -> Option<Self> {
        if labels(labels::EXCLUDE).is_some() {
            Some(Self::Label)
        } else if labels(labels::MANAGED).is_some_and(|value| value.eq_ignore_ascii_case("false")) {
            Some(Self::Unmanaged)
        } else if is_control_plane(labels) {
            Some(Self::ControlPlane)
        } else {
            None
        }
    }
}

/// Whether the labels of a Node say that it is of the control plane.
pub fn is_control_plane<'l>(labels: impl Fn(&str) -> Option<&'l str>) -> bool {
    labels::CONTROL_PLANE.iter().any(|label| labels(label).is_some())
        || labels(labels::ROLE).is_some_and(|role| role == "master" || role == "control-plane")
}

/// The Nodes of a cluster, by name.
pub type BackendNodes = BTreeMap<String, BackendNode>;

/// Which Nodes may be backends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection<'s> {
    /// The resource group of the cluster.
    pub resource_group: &'s str,
    /// Whether nodes of the control plane are left out: always of pools of addresses; of pools of NICs by
    /// `excludeMasterFromStandardLB`.
    pub leaves_out_control_plane: bool,
}

impl Selection<'_> {
    /// The Nodes that are backends, in the order of their names.
    pub fn of<'n>(&self, nodes: &'n BackendNodes) -> impl Iterator<Item = (&'n str, &'n BackendNode)> {
        nodes.iter().filter(|(_, node)| self.takes(node)).map(|(name, node)| (name.as_str(), node))
    }

    /// Whether a Node is a backend.
    pub fn takes(&self, node: &BackendNode) -> bool {
        let in_group =
            node.resource_group.as_deref().is_none_or(|group| group.eq_ignore_ascii_case(self.resource_group));
        let of_azure = node.provider_id.as_deref().is_some_and(|id| id.starts_with("azure://"));
        let admitted = match node.exclusion {
            None => true,
            Some(Exclusion::ControlPlane) => !self.leaves_out_control_plane,
            Some(Exclusion::Label | Exclusion::Unmanaged) => false,
        };
        in_group && of_azure && admitted
    }

    /// The addresses of a family and the names of their Nodes. A Node without an address of the family has none.
    pub fn addresses(&self, nodes: &BackendNodes, family: Family) -> BTreeMap<IpAddr, String> {
        self.of(nodes).filter_map(|(name, node)| Some((node.address(family)?, name.to_owned()))).collect()
    }

    /// All addresses of backends: the destinations of security rules where floating IP is off.
    pub fn destinations(&self, nodes: &BackendNodes) -> BTreeSet<IpAddr> {
        [Family::V4, Family::V6].into_iter().flat_map(|family| self.addresses(nodes, family).into_keys()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(address: &str) -> BackendNode {
        BackendNode {
            provider_id: Some("azure:///subscriptions/s/…/node".to_owned()),
            addresses: vec![address.parse().unwrap()],
            ..BackendNode::default()
        }
    }

    fn names(nodes: &BackendNodes, leaves_out_control_plane: bool) -> Vec<String> {
        let selection = Selection { resource_group: "Group", leaves_out_control_plane };
        selection.of(nodes).map(|(name, _)| name.to_owned()).collect()
    }

    #[test]
    fn labels_and_providers_decide_and_readiness_does_not() {
        let excluded = |exclusion| BackendNode { exclusion: Some(exclusion), ..node("10.0.0.9") };
        let nodes: BackendNodes = [
            ("plain", node("10.0.0.1")),
            ("here", BackendNode { resource_group: Some("GROUP".to_owned()), ..node("10.0.0.2") }),
            ("elsewhere", BackendNode { resource_group: Some("other".to_owned()), ..node("10.0.0.3") }),
            ("bare", BackendNode { provider_id: None, ..node("10.0.0.4") }),
            ("metal", BackendNode { provider_id: Some("metal://x".to_owned()), ..node("10.0.0.5") }),
            ("master", excluded(Exclusion::ControlPlane)),
            ("labelled", excluded(Exclusion::Label)),
            ("unmanaged", excluded(Exclusion::Unmanaged)),
        ]
        .map(|(name, node)| (name.to_owned(), node))
        .into();
        assert_eq!(names(&nodes, true), ["here", "plain"]);
        assert_eq!(names(&nodes, false), ["here", "master", "plain"]);
    }

    #[test]
    fn any_value_of_the_exclude_label_counts() {
        for (key, value, expected) in [
            (labels::EXCLUDE, "", Some(Exclusion::Label)),
            (labels::EXCLUDE, "false", Some(Exclusion::Label)),
            (labels::MANAGED, "False", Some(Exclusion::Unmanaged)),
            (labels::MANAGED, "true", None),
            (labels::CONTROL_PLANE[1], "", Some(Exclusion::ControlPlane)),
            (labels::ROLE, "master", Some(Exclusion::ControlPlane)),
            (labels::ROLE, "agent", None),
        ] {
            assert_eq!(Exclusion::of(|asked| (asked == key).then_some(value)), expected, "{key}={value}");
        }
    }

    #[test]
    fn a_node_without_an_address_of_the_family_is_left_out() {
        let mut both = node("10.0.0.2");
        both.addresses.push("fd00::2".parse().unwrap());
        let nodes: BackendNodes = [("four".to_owned(), node("10.0.0.1")), ("both".to_owned(), both)].into();
        let selection = Selection { resource_group: "group", leaves_out_control_plane: true };
        let of = |family| selection.addresses(&nodes, family).into_values().collect::<Vec<_>>();
        assert_eq!(of(Family::V4), ["four", "both"]);
        assert_eq!(of(Family::V6), ["both"]);
        assert_eq!(selection.destinations(&nodes).len(), 3);
    }
}
