//! The addresses of Nodes that are initialised: which lists show them, and what a list says of a machine.
//!
//! A list is one of network interfaces: those of a resource group, or those of all instances of a uniform scale set. It is
//! read for all Nodes at once. A list may lag, and it lacks interfaces of other resource groups, so it changes no Node: where
//! it says something else than the Node, the machine is read alone (`step::refresh`).

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
};

use lazuli_model::scale_set::scale_set;
use lazuli_model::{
    ArmId,
    json::{at, text},
};
use serde_json::Value;

use super::{
    CloudNode, InstanceAddress, NodeAddress, Taint,
    body::{NicAddress, nic_addresses},
};

/// A list of network interfaces.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum InterfaceList {
    /// Those of a resource group; names are in lower case.
    Group {
        /// The subscription.
        subscription: String,
        /// The resource group.
        resource_group: String,
    },
    /// Those of the instances of a uniform scale set.
    ScaleSet(ArmId),
}

impl InterfaceList {
    /// The list that has the interfaces of a machine, as a rule.
    pub fn of(machine: &ArmId) -> Self {
        scale_set(machine).map_or_else(
            || Self::Group {
                subscription: machine.subscription().to_lowercase(),
                resource_group: machine.resource_group().to_lowercase(),
            },
            Self::ScaleSet,
        )
    }
}

impl fmt::Display for InterfaceList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group { resource_group, .. } => write!(f, "resource group {resource_group}"),
            Self::ScaleSet(set) => write!(f, "scale set {}", set.name()),
        }
    }
}

/// The lists to read for all Nodes that are initialised, and the machines of these Nodes by list.
pub fn lists<'n>(nodes: impl IntoIterator<Item = &'n CloudNode>) -> BTreeMap<InterfaceList, Vec<(String, ArmId)>> {
    let mut lists: BTreeMap<InterfaceList, Vec<(String, ArmId)>> = BTreeMap::new();
    for node in nodes {
        if let Some(machine) = node.initialised_machine() {
            lists.entry(InterfaceList::of(&machine)).or_default().push((node.name.clone(), machine));
        }
    }
    lists
}

/// The public addresses of a list of public IPs; `None` for one that has none at the time.
pub type PublicAddresses = BTreeMap<ArmId, Option<IpAddr>>;

/// What a list of interfaces says of machines.
#[derive(Debug, Clone, Default)]
pub struct Listed(BTreeMap<ArmId, Vec<(bool, Vec<NicAddress>)>>);

impl Listed {
    /// Adds the interface of this body.
    pub fn add(&mut self, interface: &Value) {
        let machine = text(interface, &["properties", "virtualMachine", "id"]).and_then(|id| id.parse().ok());
        let Some(machine) = machine else { return };
        let is_primary = at(interface, &["properties", "primary"]).and_then(Value::as_bool).unwrap_or(false);
        self.0.entry(machine).or_default().push((!is_primary, nic_addresses(interface)));
    }

    /// Whether one of these machines has a public IP.
    pub fn has_public<'m>(&self, machines: impl IntoIterator<Item = &'m ArmId>) -> bool {
        let mut interfaces = machines.into_iter().filter_map(|machine| self.0.get(machine)).flatten();
        interfaces.any(|(_, addresses)| addresses.iter().any(|address| address.public.is_some()))
    }

    /// The addresses of a machine, those of its primary interface first. `None` where the list has no interface of it, and
    /// where `public` lacks one of its public IPs.
    pub fn addresses(&self, machine: &ArmId, public: &PublicAddresses) -> Option<Vec<InstanceAddress>> {
        let mut interfaces: Vec<&(bool, Vec<NicAddress>)> = self.0.get(machine)?.iter().collect();
        interfaces.sort_by_key(|(is_secondary, _)| *is_secondary);
        let all = interfaces.into_iter().flat_map(|(_, addresses)| addresses);
        all.map(|NicAddress { private, public: id }| {
            let public = match id {
                Some(id) => *public.get(id)?,
                None => None,
            };
            Some(InstanceAddress { private: *private, public })
        })
        .collect()
    }
}

impl CloudNode {
    /// Its machine, where it is initialised and this provider looks after it.
    pub(super) fn initialised_machine(&self) -> Option<ArmId> {
        let is_due = self.is_ours() && !self.is_deleting && !self.has_taint(Taint::UNINITIALIZED);
        self.machine().filter(|_| is_due).map(|machine| machine.id().clone())
    }

    /// All its addresses with these of its machine, where it has others now. Their order does not count, and what is no
    /// address of a machine stays, such as its host name.
    pub(super) fn readdressed(&self, of_machine: &[NodeAddress]) -> Option<Vec<NodeAddress>> {
        let is_of_machine = |one: &&NodeAddress| [NodeAddress::INTERNAL, NodeAddress::EXTERNAL].contains(&&*one.kind);
        fn known<'a>(all: impl Iterator<Item = &'a NodeAddress>) -> BTreeSet<(&'a str, Result<IpAddr, &'a str>)> {
            all.map(|one| (&*one.kind, one.address.parse().map_err(|_| &*one.address))).collect()
        }
        if known(self.addresses.iter().filter(is_of_machine)) == known(of_machine.iter().filter(is_of_machine)) {
            return None;
        }
        let stays: Vec<&NodeAddress> = self.addresses.iter().filter(|one| !is_of_machine(one)).collect();
        let lacks = |one: &&NodeAddress| is_of_machine(one) || !stays.iter().any(|other| other.kind == one.kind);
        let new = of_machine.iter().filter(lacks);
        Some(stays.iter().copied().chain(new).cloned().collect())
    }
}
