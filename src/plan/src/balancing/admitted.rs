//! Which nodes the security group admits, where floating IP is off and traffic reaches the nodes by their own addresses.
//!
//! A node joins a pool once the security group admits it, or its connections would end there; and it is admitted until it
//! has left every pool. Only what has been read of the group and of the pools counts.

use std::{collections::BTreeSet, net::IpAddr};

use crate::network::security_group::SecurityGroup;

/// What is known of nodes at the security group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AdmittedNodes {
    /// The addresses to which a rule of this provider lets anybody.
    admitted: BTreeSet<IpAddr>,
    /// Addresses of nodes that are backends no more, while a rule names them.
    departed: BTreeSet<IpAddr>,
}

impl AdmittedNodes {
    /// The backends were these and are those now.
    pub fn nodes_changed(&mut self, before: &BTreeSet<IpAddr>, now: &BTreeSet<IpAddr>) {
        self.departed.extend(before);
        self.departed.retain(|address| !now.contains(address));
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
        self.departed.retain(|address| named.contains(address));
        let differs = self.admitted != admitted;
        self.admitted = admitted;
        differs
    }

    /// The nodes that are backends no more and whose rules may go: those that are in no pool.
    pub fn departed(&self, is_in_pool: impl Fn(IpAddr) -> bool) -> BTreeSet<IpAddr> {
        self.departed.iter().copied().filter(|address| !is_in_pool(*address)).collect()
    }

    /// Whether nodes have departed whose rules are there.
    pub fn has_departed(&self) -> bool {
        !self.departed.is_empty()
    }

    /// Whether a node may join a pool with these members. Where no rule lets anybody to one of them, as where a Service is
    /// internal and asks for no rules, nothing is to be waited for.
    pub fn may_join(&self, address: IpAddr, members: &BTreeSet<IpAddr>) -> bool {
        members.contains(&address) || self.admitted.contains(&address) || members.is_disjoint(&self.admitted)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::ArmId;

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
        assert!(nodes.may_join(new, &all(&[4])), "nothing admits anybody");
        assert!(nodes.observed(Some(&group("Allow", ALLOW, &[4]))));
        assert!(!nodes.observed(Some(&group("Allow", ALLOW, &[4]))));
        assert!(nodes.may_join(old, &all(&[4])) && !nodes.may_join(new, &all(&[4])));
        assert!(nodes.may_join(new, &all(&[])) && nodes.may_join(new, &all(&[7])), "the pool of other Services");
        assert!(nodes.observed(Some(&group("Allow", ALLOW, &[4, 5]))));
        assert!(nodes.may_join(new, &all(&[4])));
        assert!(nodes.observed(Some(&group("Allow", "of-others", &[4, 5]))), "a rule of others admits nobody for us");
        assert!(nodes.may_join(new, &all(&[4])));
    }

    #[test]
    fn a_node_that_departs_is_admitted_until_it_is_in_no_pool() {
        let mut nodes = AdmittedNodes::default();
        nodes.observed(Some(&group("Allow", ALLOW, &[4, 5, 6])));
        nodes.nodes_changed(&all(&[4, 5, 6]), &all(&[4]));
        assert_eq!(nodes.departed(|address| address == IpAddr::from([10, 0, 0, 5])), all(&[6]));
        nodes.nodes_changed(&all(&[4]), &all(&[4, 5]));
        assert_eq!(nodes.departed(|_| false), all(&[6]), "the other one is back");
        nodes.observed(Some(&group("Allow", ALLOW, &[4, 5])));
        assert!(!nodes.has_departed(), "nothing is kept of what no rule names");
    }
}
