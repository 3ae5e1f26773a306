//! Which nodes the security group admits, where floating IP is off and traffic reaches the nodes by their own addresses.
//!
//! A node joins a pool once the security group admits it, or its connections would end there; and it is admitted until it
//! has left every pool. Only what has been read of the group and of the pools counts.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use lazuli_model::{ArmId, address::Family};
use lazuli_services::network::{backends::BackendNode, security_group::SecurityGroup};

/// What is known of nodes at the security group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AdmittedNodes {
    /// The addresses to which a rule of this provider admits some source.
    admitted: BTreeSet<IpAddr>,
    /// Addresses of nodes that are backends no more, while a rule names them, and their machines.
    departed: BTreeMap<IpAddr, Option<ArmId>>,
}

impl AdmittedNodes {
    /// These Nodes, which were backends, have changed or are gone. `now` gives the addresses of all backends.
    pub fn nodes_changed<'n>(
        &mut self,
        before: impl Iterator<Item = &'n BackendNode>,
        now: impl FnOnce() -> BTreeSet<IpAddr>,
    ) {
        for node in before {
            let addresses = [Family::V4, Family::V6].into_iter().filter_map(|family| node.address(family));
            self.departed.extend(addresses.map(|address| (address, node.machine())));
        }
        if !self.departed.is_empty() {
            let now = now();
            self.departed.retain(|address, _| !now.contains(address));
        }
    }

    /// A read has shown the security group. Returns whether other addresses are admitted than before.
    pub fn observed(&mut self, group: Option<&SecurityGroup>) -> bool {
        let rules = group.into_iter().flat_map(|group| &group.rules).filter(|rule| rule.is_managed());
        let (mut named, mut admitted): (BTreeSet<IpAddr>, BTreeSet<IpAddr>) = Default::default();
        for rule in rules {
            let addresses = || rule.destinations.iter().filter_map(|text| text.parse::<IpAddr>().ok());
            named.extend(addresses());
            if rule.is_allow {
                admitted.extend(addresses());
            }
        }
        self.departed.retain(|address, _| named.contains(address));
        let differs = self.admitted != admitted;
        self.admitted = admitted;
        differs
    }

    /// The addresses of the nodes that are backends no more and whose rules may go: those that are in no pool, by their
    /// address or by their machine.
    pub fn departed(&self, is_in_pool: impl Fn(IpAddr, Option<&ArmId>) -> bool) -> BTreeSet<IpAddr> {
        let gone = self.departed.iter().filter(|(address, machine)| !is_in_pool(**address, machine.as_ref()));
        gone.map(|(address, _)| *address).collect()
    }

    /// Whether nodes have departed whose rules are there.
    pub fn has_departed(&self) -> bool {
        !self.departed.is_empty()
    }

    /// Whether a node may join a pool with these members. Where no rule admits a source to one of them, as where a Service is
    /// internal and asks for no rules, nothing is to be waited for.
    pub fn may_join(&self, address: IpAddr, members: &BTreeSet<IpAddr>) -> bool {
        members.contains(&address) || self.admitted.contains(&address) || members.is_disjoint(&self.admitted)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const VMS: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines";

    fn all(last: &[u8]) -> BTreeSet<IpAddr> {
        last.iter().map(|last| IpAddr::from([10, 0, 0, *last])).collect()
    }

    fn group(access: &str, name: &str, last: &[u8]) -> SecurityGroup {
        let id: ArmId =
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/networkSecurityGroups/nsg".parse().unwrap();
        let destinations: Vec<String> = all(last).iter().map(ToString::to_string).collect();
        let rule = json!({"name": name, "properties": {"priority": 500, "access": access, "direction": "Inbound",
            "protocol": "Tcp", "sourceAddressPrefix": "Internet", "sourcePortRange": "*",
            "destinationAddressPrefixes": destinations, "destinationPortRanges": ["30080"]}});
        SecurityGroup::read(&id, &json!({"properties": {"securityRules": [rule]}})).unwrap()
    }

    const ALLOW: &str = "k8s-azure-lb_allow_IPv4_0123456789abcdef0123456789abcdef";

    #[test]
    fn a_node_joins_once_it_is_admitted_where_others_are() {
        let mut nodes = AdmittedNodes::default();
        let [old, new] = [4, 5].map(|last| IpAddr::from([10, 0, 0, last]));
        assert!(nodes.may_join(new, &all(&[4])), "no rule admits a source");
        assert!(nodes.observed(Some(&group("Allow", ALLOW, &[4]))));
        assert!(!nodes.observed(Some(&group("Allow", ALLOW, &[4]))));
        assert!(nodes.may_join(old, &all(&[4])) && !nodes.may_join(new, &all(&[4])));
        assert!(nodes.may_join(new, &all(&[])) && nodes.may_join(new, &all(&[7])), "the pool of other Services");
        assert!(nodes.observed(Some(&group("Allow", ALLOW, &[4, 5]))));
        assert!(nodes.may_join(new, &all(&[4])));
        assert!(
            nodes.observed(Some(&group("Allow", "of-others", &[4, 5]))),
            "a foreign rule counts for none of our Services"
        );
        assert!(nodes.may_join(new, &all(&[4])));
    }

    #[test]
    fn a_node_that_departs_is_admitted_until_it_is_in_no_pool() {
        let mut nodes = AdmittedNodes::default();
        nodes.observed(Some(&group("Allow", ALLOW, &[4, 5, 6])));
        let [first, other] = [5, 6].map(|last| BackendNode {
            addresses: all(&[last]).into_iter().collect(),
            provider_id: Some(format!("azure://{VMS}/node-{last}")),
            ..BackendNode::default()
        });
        nodes.nodes_changed([&first, &other].into_iter(), || all(&[4]));
        assert_eq!(nodes.departed(|address, _| address == IpAddr::from([10, 0, 0, 5])), all(&[6]));
        let machine: ArmId = format!("{VMS}/node-6").parse().unwrap();
        assert_eq!(nodes.departed(|_, there| there == Some(&machine)), all(&[5]), "its NIC is in a pool");
        nodes.nodes_changed(std::iter::empty(), || all(&[4, 5]));
        assert_eq!(nodes.departed(|_, _| false), all(&[6]), "the other one is back");
        nodes.observed(Some(&group("Allow", ALLOW, &[4, 5])));
        assert!(!nodes.has_departed(), "nothing is kept of what no rule names");
    }
}
