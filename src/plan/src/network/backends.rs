//! Which nodes are backends.
//!
//! Readiness never decides: the probe does. A node that the cluster autoscaler is about to delete stays until its Node is
//! gone, so that its connections drain.

use std::{collections::BTreeMap, net::IpAddr};

use super::{Family, settings::PoolKind};

/// Keeps a node out of all pools, whatever its value.
pub const EXCLUDE_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// `false` marks a node that is no VM of Azure.
pub const MANAGED_LABEL: &str = "kubernetes.azure.com/managed";
/// The resource group of a node that is not in the cluster's.
pub const RESOURCE_GROUP_LABEL: &str = "kubernetes.azure.com/resource-group";
/// Marks of nodes of the control plane; the last one only with the value `master`.
const CONTROL_PLANE_LABELS: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];
const ROLE_LABEL: &str = "kubernetes.io/role";

/// A Node, as far as pools depend on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFacts {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// Its addresses of type `InternalIP`, in their order.
    pub addresses: Vec<IpAddr>,
    /// Whether `metadata.deletionTimestamp` is set.
    pub is_deleting: bool,
}

impl NodeFacts {
    fn is_control_plane(&self) -> bool {
        CONTROL_PLANE_LABELS.iter().any(|label| self.labels.contains_key(*label))
            || self.labels.get(ROLE_LABEL).is_some_and(|role| role == "master")
    }

    /// Its first address of a family.
    pub fn address(&self, family: Family) -> Option<IpAddr> {
        self.addresses.iter().copied().find(|address| Family::of(*address) == family)
    }

    /// Whether it is a backend of pools of this kind. Pools of addresses never hold the control plane; pools of NICs do
    /// when `excludeMasterFromStandardLB` is false.
    pub fn is_backend(&self, resource_group: &str, kind: PoolKind, excludes_control_plane: bool) -> bool {
        let is_elsewhere =
            self.labels.get(RESOURCE_GROUP_LABEL).is_some_and(|group| !group.eq_ignore_ascii_case(resource_group));
        let is_unmanaged = self.labels.get(MANAGED_LABEL).is_some_and(|value| value.eq_ignore_ascii_case("false"));
        !self.is_deleting
            && !self.labels.contains_key(EXCLUDE_LABEL)
            && !is_elsewhere
            && !is_unmanaged
            && !(self.is_control_plane() && (excludes_control_plane || kind != PoolKind::Nic))
    }
}

/// The members of a pool of node addresses. A node without an address of the family is none.
pub fn node_addresses<'a>(
    nodes: impl IntoIterator<Item = &'a NodeFacts>,
    resource_group: &str,
    family: Family,
) -> BTreeMap<IpAddr, String> {
    nodes
        .into_iter()
        .filter(|node| node.is_backend(resource_group, PoolKind::NodeIp, true))
        .filter_map(|node| Some((node.address(family)?, node.name.clone())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(labels: &[(&str, &str)]) -> NodeFacts {
        NodeFacts {
            name: "n1".to_owned(),
            labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            addresses: vec!["10.0.0.4".parse().unwrap(), "fd00::4".parse().unwrap()],
            is_deleting: false,
        }
    }

    #[test]
    fn labels_keep_nodes_out() {
        for (labels, of_addresses, of_nics) in [
            (&[][..], true, true),
            (&[(EXCLUDE_LABEL, "")], false, false),
            // Its value does not count, as in the Go manager.
            (&[(EXCLUDE_LABEL, "false")], false, false),
            (&[(MANAGED_LABEL, "false")], false, false),
            (&[(MANAGED_LABEL, "true")], true, true),
            (&[(RESOURCE_GROUP_LABEL, "GROUP")], true, true),
            (&[(RESOURCE_GROUP_LABEL, "other")], false, false),
            (&[("node-role.kubernetes.io/control-plane", "")], false, true),
            (&[("kubernetes.io/role", "master")], false, true),
            (&[("kubernetes.io/role", "agent")], true, true),
        ] {
            let node = node(labels);
            assert_eq!(node.is_backend("group", PoolKind::NodeIp, true), of_addresses, "{labels:?}");
            assert_eq!(node.is_backend("group", PoolKind::Nic, false), of_nics, "{labels:?}");
        }
        assert!(!node(&[("node-role.kubernetes.io/master", "")]).is_backend("group", PoolKind::Nic, true));
        assert!(!NodeFacts { is_deleting: true, ..node(&[]) }.is_backend("group", PoolKind::Nic, false));
    }

    #[test]
    fn a_node_without_an_address_of_the_family_is_no_member() {
        let only_four = NodeFacts { addresses: vec!["10.0.0.5".parse().unwrap()], name: "n2".to_owned(), ..node(&[]) };
        let nodes = [node(&[]), only_four];
        assert_eq!(node_addresses(&nodes, "group", Family::V4).len(), 2);
        assert_eq!(node_addresses(&nodes, "group", Family::V6), [("fd00::4".parse().unwrap(), "n1".to_owned())].into());
    }
}
