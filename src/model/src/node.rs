//! Kubernetes' Nodes, and the VMs that they are.
//!
//! Azure knows a VM by its id, Kubernetes a node by its name. `Node.spec.providerID` joins the two: the cloud
//! controllers set it once, and it never changes while the Node lives. A cluster without cloud controllers has no
//! provider ids; there the label `kubernetes.azure.com/resource-group` or the configured resource group says where the
//! VM of the node's name is.

use std::collections::{BTreeMap, BTreeSet};

use crate::ArmId;
use former::FormerMachines;

mod former;

/// The scheme of Azure's provider ids (source: cloud-provider-azure).
const SCHEME: &str = "azure://";
/// The type of a VM.
const VM: &str = "Microsoft.Compute/virtualMachines";
/// The type of a uniform scale set's instance.
const INSTANCE: &str = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines";

/// What a provider id names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Machine {
    /// A VM: standalone, of an availability set or of a flexible scale set.
    Vm(ArmId),
    /// An instance of a uniform scale set.
    Instance(ArmId),
}

impl Machine {
    /// Reads a provider id. `None` when it is no Azure machine's, such as that of a node in another cloud.
    pub fn of_provider_id(provider_id: &str) -> Option<Self> {
        let scheme = provider_id.get(..SCHEME.len())?;
        if !scheme.eq_ignore_ascii_case(SCHEME) {
            return None;
        }
        Self::of_id(provider_id[SCHEME.len()..].parse().ok()?)
    }

    /// The machine of an id; `None` for anything else.
    pub fn of_id(id: ArmId) -> Option<Self> {
        if id.is_type(VM) {
            Some(Self::Vm(id))
        } else if id.is_type(INSTANCE) {
            Some(Self::Instance(id))
        } else {
            None
        }
    }

    /// The machine's id.
    pub fn id(&self) -> &ArmId {
        match self {
            Self::Vm(id) | Self::Instance(id) => id,
        }
    }
}

/// What the computer name of a uniform scale set's instance begins with, and the number of the instance: the last six
/// characters are the number in base 36 (source: the names that Azure gives, which the Go managers read so).
pub fn instance_of_computer(name: &str) -> Option<(&str, u64)> {
    const DIGITS: usize = 6;
    let (prefix, digits) = name.split_at_checked(name.len().checked_sub(DIGITS)?)?;
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric();
    if prefix.is_empty() || !digits.bytes().all(is_digit) {
        return None;
    }
    Some((prefix, u64::from_str_radix(digits, 36).ok()?))
}

/// What a Node's labels say of its machine (source: the well-known labels, which a cloud controller sets).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineLabels {
    /// The region.
    pub region: String,
    /// The zone, as `region-number`; `None` for a machine without one, whose label holds a fault domain.
    pub zone: Option<String>,
    /// The VM size; empty when the Node does not say.
    pub vm_size: String,
}

/// What of one Node matters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Node {
    /// What its provider id names.
    pub machine: Option<Machine>,
    /// Its label `kubernetes.azure.com/resource-group`.
    pub resource_group: Option<Box<str>>,
    /// Its label `node.kubernetes.io/instance-type`: the VM size.
    pub vm_size: Option<Box<str>>,
    /// Whether kubelet reports and the node takes pods: the condition Ready is True, and the taint
    /// `node.kubernetes.io/out-of-service` is absent.
    pub healthy: bool,
}

/// The cluster's Nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ClusterNodes {
    /// There is no cluster to ask: a node is the VM of its name.
    NoCluster,
    /// There is a cluster and its Nodes are not known yet: wait, do not guess.
    #[default]
    Cold,
    /// The Nodes as last told.
    Known(KnownNodes),
}

/// The Nodes as last told. When the API server falls silent they are kept: what a Node is does not change. Only that a
/// Node is missing means nothing any more then.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KnownNodes {
    nodes: BTreeMap<Box<str>, Node>,
    /// The Nodes that name a machine in their provider ids. kubelet may choose that of its own Node, so a second Node may
    /// claim what is another one's.
    by_machine: BTreeMap<ArmId, BTreeSet<Box<str>>>,
    /// Of the Nodes whose deletion was seen, the machines that they named last. A list of all Nodes empties it: what
    /// happened since the list before is not known.
    deleted: BTreeMap<Box<str>, Deleted>,
    /// The machines that Nodes named before. A list of all Nodes takes nothing from it: that a Node of a name was seen to
    /// name a machine stays true.
    former: FormerMachines,
    /// Whether the API server has been heard lately, so that a missing Node does not exist.
    current: bool,
}

/// What a Node that was deleted named last.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Deleted {
    machine: Machine,
    /// Whether another Node named the same machine then.
    was_shared: bool,
}

/// Of how many deleted Nodes the machines are remembered.
const MOST_DELETED: usize = 4_096;

/// Where a node's VM is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Its Node names this machine, and no other Node does.
    Named(Machine),
    /// Its Node names a machine that other Nodes name too. A machine is one node, so it is not known which of these Nodes
    /// it is, nor which machines the others are.
    Shared {
        /// The machine.
        machine: Machine,
        /// The names of all Nodes that name it.
        nodes: Vec<Box<str>>,
    },
    /// Its Node names only the resource group.
    Group(Box<str>),
    /// Nothing names it: it is the VM of its name.
    ByName,
}

impl KnownNodes {
    /// Replaces all.
    pub fn replace(&mut self, nodes: impl IntoIterator<Item = (String, Node)>) {
        let before = std::mem::take(&mut self.nodes);
        self.nodes = nodes.into_iter().map(|(name, node)| (name.into(), node)).collect();
        for (name, node) in before {
            self.remember(&name, node.machine.as_ref());
        }
        self.by_machine.clear();
        self.deleted.clear();
        for (name, node) in &self.nodes {
            if let Some(machine) = &node.machine {
                self.former.forget(name, machine.id());
                self.by_machine.entry(machine.id().clone()).or_default().insert(name.clone());
            }
        }
        self.current = true;
    }

    /// Adds or changes one. Returns whether it differs.
    pub fn apply(&mut self, name: &str, node: Node) -> bool {
        if self.nodes.get(name) == Some(&node) {
            return false;
        }
        let before = self.take(name);
        self.deleted.remove(name);
        if let Some(machine) = &node.machine {
            self.by_machine.entry(machine.id().clone()).or_default().insert(name.into());
        }
        self.nodes.insert(name.into(), node);
        self.remember(name, before.and_then(|before| before.machine).as_ref());
        true
    }

    /// Removes one, whose deletion was seen. Returns whether it was there.
    pub fn remove(&mut self, name: &str) -> bool {
        let Some(node) = self.take(name) else { return false };
        self.remember(name, node.machine.as_ref());
        if let Some(machine) = node.machine {
            if self.deleted.len() >= MOST_DELETED {
                self.deleted.pop_first();
            }
            // Of what is left without this Node.
            let was_shared = self.by_machine.contains_key(machine.id());
            self.deleted.insert(name.into(), Deleted { machine, was_shared });
        }
        true
    }

    /// Remembers the machine that the Node of this name named before, unless that names it now.
    fn remember(&mut self, name: &str, before: Option<&Machine>) {
        let now = self.nodes.get(name).and_then(|node| node.machine.as_ref());
        if let Some(before) = before.filter(|before| now != Some(before)) {
            self.former.add(name, before.id());
        }
        if let Some(now) = now {
            self.former.forget(name, now.id());
        }
    }

    fn take(&mut self, name: &str) -> Option<Node> {
        let node = self.nodes.remove(name)?;
        if let Some(machine) = &node.machine
            && let Some(names) = self.by_machine.get_mut(machine.id())
        {
            names.remove(name);
            if names.is_empty() {
                self.by_machine.remove(machine.id());
            }
        }
        Some(node)
    }

    /// Says whether a missing Node does not exist from now on. Returns whether that is new.
    pub fn set_current(&mut self, current: bool) -> bool {
        std::mem::replace(&mut self.current, current) != current
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The Nodes, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.nodes.iter().map(|(name, node)| (&**name, node))
    }

    /// The VM sizes of the Nodes, as their labels spell them.
    pub fn vm_sizes(&self) -> BTreeSet<&str> {
        self.nodes.values().filter_map(|node| node.vm_size.as_deref()).collect()
    }

    /// The Node of a name. Kubernetes has lower-case names only; a CSI node id may be spelled otherwise.
    pub fn get(&self, name: &str) -> Option<&Node> {
        self.nodes.get(name).or_else(|| self.nodes.get(&*name.to_ascii_lowercase()))
    }

    /// The name of the one Node whose provider id names this machine. Where several do, it is not known which of them the
    /// machine is.
    pub fn name_of(&self, machine: &ArmId) -> Option<&str> {
        let mut names = self.by_machine.get(machine)?.iter();
        names.next().filter(|_| names.next().is_none()).map(|name| &**name)
    }

    /// The names of the Nodes whose provider ids name this machine.
    pub fn names_of(&self, machine: &ArmId) -> impl Iterator<Item = &str> {
        self.by_machine.get(machine).into_iter().flatten().map(|name| &**name)
    }

    fn deleted(&self, name: &str) -> Option<&Deleted> {
        if !self.current || self.get(name).is_some() {
            return None;
        }
        self.deleted.get(name).or_else(|| self.deleted.get(&*name.to_ascii_lowercase()))
    }

    /// The machines that several Nodes name in their provider ids, and the names of these Nodes.
    pub fn shared_machines(&self) -> impl Iterator<Item = (&ArmId, Vec<&str>)> {
        let shared = self.by_machine.iter().filter(|(_, names)| names.len() > 1);
        shared.map(|(machine, names)| (machine, names.iter().map(|name| &**name).collect()))
    }
}

impl ClusterNodes {
    /// The VM sizes of the cluster's nodes; none while the Nodes are not known.
    pub fn vm_sizes(&self) -> BTreeSet<&str> {
        match self {
            Self::NoCluster | Self::Cold => BTreeSet::new(),
            Self::Known(nodes) => nodes.vm_sizes(),
        }
    }

    /// Where the VM of a node is. `None` while the Nodes are not known.
    pub fn place(&self, node: &str) -> Option<Place> {
        let known = match self {
            Self::NoCluster => return Some(Place::ByName),
            Self::Cold => return None,
            Self::Known(nodes) => nodes,
        };
        Some(match known.get(node) {
            Some(Node { machine: Some(machine), .. }) => match known.name_of(machine.id()) {
                Some(_) => Place::Named(machine.clone()),
                None => Place::Shared {
                    machine: machine.clone(),
                    nodes: known.names_of(machine.id()).map(Into::into).collect(),
                },
            },
            Some(Node { resource_group: Some(group), .. }) => Place::Group(group.clone()),
            _ => Place::ByName,
        })
    }

    /// The machine of a Node that does not exist any more, where its deletion was seen and the Node named its machine until
    /// then. No Node of this name has been there since. `None` while a Node exists that named the same machine.
    pub fn machine_of_deleted(&self, node: &str) -> Option<&Machine> {
        let Self::Known(nodes) = self else { return None };
        let deleted = nodes.deleted(node)?;
        let is_shared = deleted.was_shared && nodes.by_machine.contains_key(deleted.machine.id());
        (!is_shared).then_some(&deleted.machine)
    }

    /// The machines that Nodes of this name were seen to name, and that no Node of this name names now. It may lack some.
    pub fn former_machines(&self, node: &str) -> Vec<&ArmId> {
        match self {
            Self::NoCluster | Self::Cold => Vec::new(),
            Self::Known(nodes) => nodes.former.of(node).collect(),
        }
    }

    /// The names of the Nodes that name this machine now, and of those that were seen to name it.
    pub fn names_ever_of(&self, machine: &ArmId) -> BTreeSet<&str> {
        let Self::Known(nodes) = self else { return BTreeSet::new() };
        nodes.names_of(machine).chain(nodes.former.names_of(machine)).collect()
    }

    /// The names of the Nodes whose provider ids name a machine; none while the Nodes are not known.
    pub fn names_of(&self, machine: &ArmId) -> Vec<&str> {
        match self {
            Self::NoCluster | Self::Cold => Vec::new(),
            Self::Known(nodes) => nodes.names_of(machine).collect(),
        }
    }

    /// Whether a node is known to be out of work, so that its pods wait on other nodes for its disks: its Node is gone,
    /// not ready or out of service.
    pub fn is_dead(&self, node: &str) -> bool {
        match self {
            Self::NoCluster | Self::Cold => false,
            Self::Known(nodes) => match nodes.get(node) {
                Some(node) => !node.healthy,
                None => nodes.current,
            },
        }
    }

    /// Whether a node may be what its name says: there is a Node of this name, or no cluster to ask.
    pub fn has_node(&self, name: &str) -> bool {
        match self {
            Self::NoCluster => true,
            Self::Cold => false,
            Self::Known(nodes) => nodes.get(name).is_some(),
        }
    }

    /// Whether there is a Node of this name whose provider id names no machine, so that only names say which it is.
    pub fn has_node_without_machine(&self, name: &str) -> bool {
        match self {
            Self::NoCluster | Self::Cold => false,
            Self::Known(nodes) => nodes.get(name).is_some_and(|node| node.machine.is_none()),
        }
    }

    /// Whether a node id is the name of one of the cluster's Nodes. `None` where that is not known.
    pub fn is_node(&self, name: &str) -> Option<bool> {
        match self {
            Self::NoCluster | Self::Cold => None,
            Self::Known(nodes) => match nodes.get(name) {
                Some(_) => Some(true),
                None => nodes.current.then_some(false),
            },
        }
    }

    /// Whether a machine is one of the cluster's nodes. `None` where that is not known.
    pub fn has_machine(&self, machine: &ArmId) -> Option<bool> {
        match self {
            Self::NoCluster | Self::Cold => None,
            Self::Known(nodes) if nodes.by_machine.contains_key(machine) => Some(true),
            Self::Known(nodes) => nodes.current.then_some(false),
        }
    }

    /// The name of the node that a machine is.
    pub fn name_of(&self, machine: &ArmId) -> Option<&str> {
        match self {
            Self::NoCluster | Self::Cold => None,
            Self::Known(nodes) => nodes.name_of(machine),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VM_ID: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/vm-0";
    const INSTANCE_ID: &str =
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/set/virtualMachines/3";

    fn known(nodes: &[(&str, Node)]) -> ClusterNodes {
        let mut known = KnownNodes::default();
        known.replace(nodes.iter().map(|(name, node)| ((*name).to_owned(), node.clone())));
        ClusterNodes::Known(known)
    }

    fn healthy(provider_id: &str) -> Node {
        Node { machine: Machine::of_provider_id(provider_id), healthy: true, ..Node::default() }
    }

    #[test]
    fn a_provider_id_names_a_vm_or_an_instance_and_nothing_else() {
        let vm: ArmId = VM_ID.parse().unwrap();
        assert_eq!(Machine::of_provider_id(&format!("azure://{VM_ID}")), Some(Machine::Vm(vm.clone())));
        assert_eq!(
            Machine::of_provider_id(&format!(
                "Azure://{}",
                VM_ID.to_uppercase().replace("SUBSCRIPTIONS", "subscriptions")
            )),
            Some(Machine::Vm(vm))
        );
        let instance = INSTANCE_ID.parse().unwrap();
        assert_eq!(Machine::of_provider_id(&format!("azure://{INSTANCE_ID}")), Some(Machine::Instance(instance)));
        let disk = "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d";
        for other in ["", "azure://", "aws:///eu-west-1a/i-0", "kind://docker/kind/node", VM_ID, disk, "azurä://x"] {
            assert_eq!(Machine::of_provider_id(other), None, "{other:?}");
        }
    }

    #[test]
    fn the_machine_of_a_deleted_node_is_known_only_where_nothing_can_have_happened_since() {
        let other = VM_ID.replace("vm-0", "vm-1");
        let seen = |change: &dyn Fn(&mut KnownNodes)| {
            let ClusterNodes::Known(mut nodes) = known(&[("n", healthy(&format!("azure://{VM_ID}")))]) else {
                unreachable!("these Nodes are known")
            };
            change(&mut nodes);
            ClusterNodes::Known(nodes).machine_of_deleted("N").map(|machine| machine.id().name().to_owned())
        };
        let named = |id: &str| healthy(&format!("azure://{id}"));
        assert_eq!(seen(&|_| {}), None, "it is there");
        assert_eq!(seen(&|nodes| assert!(nodes.remove("n"))), Some("vm-0".into()));
        let again = |nodes: &mut KnownNodes, node: Node| {
            nodes.remove("n");
            nodes.apply("n", node);
        };
        assert_eq!(seen(&|nodes| again(nodes, named(&other))), None, "it is there again");
        let twice = |nodes: &mut KnownNodes| {
            again(nodes, named(&other));
            nodes.remove("n");
        };
        assert_eq!(seen(&twice), Some("vm-1".into()), "the machine that it named last");
        let unnamed = |nodes: &mut KnownNodes| {
            again(nodes, Node::default());
            nodes.remove("n");
        };
        assert_eq!(seen(&unnamed), None, "the last Node of this name named none");
        let listed = |nodes: &mut KnownNodes| {
            nodes.remove("n");
            nodes.replace([]);
        };
        assert_eq!(seen(&listed), None, "between the deletion and a list it may have registered again");
        assert_eq!(seen(&|nodes| nodes.replace([])), None, "its deletion was not seen");
        let silent = |nodes: &mut KnownNodes| {
            nodes.remove("n");
            nodes.set_current(false);
        };
        assert_eq!(seen(&silent), None, "the API server is silent");
        let many = |nodes: &mut KnownNodes| {
            for at in 0..=MOST_DELETED {
                nodes.apply(&format!("m-{at}"), named(VM_ID));
                nodes.remove(&format!("m-{at}"));
            }
            assert_eq!(nodes.deleted.len(), MOST_DELETED);
        };
        assert_eq!(seen(&many), None, "it is there still");
    }

    #[test]
    fn a_machine_that_a_node_of_a_name_named_once_is_remembered_whatever_follows() {
        let vm = |name: &str| ArmId::virtual_machine("s", "g", name).unwrap();
        let on = |name: &str| Node { machine: Some(Machine::Vm(vm(name))), healthy: true, ..Node::default() };
        type Change = fn(&mut KnownNodes, &dyn Fn(&str) -> Node);
        let cases: [(&str, Change, &[&str]); 9] = [
            ("it names it", |_, _| {}, &[]),
            ("its state changed", |nodes, on| assert!(nodes.apply("n", Node { healthy: false, ..on("one") })), &[]),
            ("deleted", |nodes, _| assert!(nodes.remove("n")), &["one"]),
            (
                "deleted and listed",
                |nodes, _| {
                    nodes.remove("n");
                    nodes.replace([]);
                },
                &["one"],
            ),
            ("missing in a list", |nodes, _| nodes.replace([]), &["one"]),
            ("listed on another one", |nodes, on| nodes.replace([("n".to_owned(), on("two"))]), &["one"]),
            ("listed as it was", |nodes, on| nodes.replace([("n".to_owned(), on("one"))]), &[]),
            (
                "created again on others",
                |nodes, on| {
                    for vm in ["two", "three"] {
                        nodes.remove("n");
                        nodes.apply("n", on(vm));
                    }
                },
                &["one", "two"],
            ),
            (
                "back where it was",
                |nodes, on| {
                    nodes.apply("n", on("two"));
                    nodes.apply("n", on("one"));
                },
                &["two"],
            ),
        ];
        for (case, change, expected) in cases {
            let ClusterNodes::Known(mut nodes) = known(&[("n", on("one"))]) else { unreachable!("they are known") };
            change(&mut nodes, &on);
            nodes.set_current(false);
            let nodes = ClusterNodes::Known(nodes);
            let former: Vec<&str> = nodes.former_machines("N").into_iter().map(ArmId::name).collect();
            assert_eq!(former, expected, "{case}");
            assert_eq!(nodes.names_ever_of(&vm("one")), ["n"].into(), "{case}");
        }
    }

    #[test]
    fn a_computer_name_ends_in_the_number_of_its_instance() {
        for (name, expected) in [
            ("agents000000", Some(("agents", 0))),
            ("agents00000z", Some(("agents", 35))),
            ("aks-np1-1234-vmss00000A", Some(("aks-np1-1234-vmss", 10))),
            ("agents000010", Some(("agents", 36))),
            ("000001", None),
            ("a-00001", None),
            ("x00-001", None),
            ("short", None),
            ("", None),
            ("agentsä00001", None),
        ] {
            assert_eq!(instance_of_computer(name), expected, "{name}");
        }
    }

    #[test]
    fn the_provider_id_comes_before_the_label_and_the_label_before_the_name() {
        let provider_id = format!("azure://{VM_ID}");
        let labelled = Node { resource_group: Some("other".into()), healthy: true, ..Node::default() };
        let both = Node { resource_group: Some("other".into()), ..healthy(&provider_id) };
        let nodes = known(&[("a", both), ("b", labelled), ("c", Node::default())]);
        assert_eq!(nodes.place("a"), Some(Place::Named(Machine::Vm(VM_ID.parse().unwrap()))));
        assert_eq!(nodes.place("A"), nodes.place("a"));
        assert_eq!(nodes.place("b"), Some(Place::Group("other".into())));
        assert_eq!(nodes.place("c"), Some(Place::ByName));
        assert_eq!(nodes.place("gone"), Some(Place::ByName));
        assert_eq!(ClusterNodes::Cold.place("a"), None);
        assert_eq!(ClusterNodes::NoCluster.place("a"), Some(Place::ByName));
    }

    #[test]
    fn a_missing_node_is_dead_only_while_the_api_server_is_heard() {
        let mut nodes = known(&[("up", healthy("")), ("down", Node::default())]);
        assert_eq!(["up", "down", "gone"].map(|node| nodes.is_dead(node)), [false, true, true]);
        let vm = VM_ID.parse().unwrap();
        assert_eq!(nodes.has_machine(&vm), Some(false));
        let ClusterNodes::Known(known) = &mut nodes else { unreachable!() };
        assert!(known.set_current(false));
        assert_eq!(["up", "down", "gone"].map(|node| nodes.is_dead(node)), [false, true, false]);
        assert_eq!(nodes.has_machine(&vm), None);
        assert_eq!(["up", "UP", "gone"].map(|node| nodes.has_node(node)), [true, true, false]);
        assert!(ClusterNodes::NoCluster.has_node("any") && !ClusterNodes::Cold.has_node("any"));
        assert!(!ClusterNodes::Cold.is_dead("gone") && !ClusterNodes::NoCluster.is_dead("gone"));
    }

    #[test]
    fn of_two_nodes_with_one_provider_id_neither_is_the_machine_until_one_is_gone() {
        let provider_id = format!("azure://{VM_ID}");
        let vm: ArmId = VM_ID.parse().unwrap();
        let mut known = KnownNodes::default();
        known.replace([("a".to_owned(), healthy(&provider_id))]);
        assert_eq!((known.name_of(&vm), known.shared_machines().count()), (Some("a"), 0));
        known.apply("b", healthy(&provider_id));
        assert_eq!(known.name_of(&vm), None);
        assert_eq!(known.shared_machines().collect::<Vec<_>>(), [(&vm, vec!["a", "b"])]);
        let mut listed = KnownNodes::default();
        listed.replace(["b", "a"].map(|name| (name.to_owned(), healthy(&provider_id))));
        assert_eq!(listed, known);
        let nodes = ClusterNodes::Known(listed);
        assert_eq!((nodes.name_of(&vm), nodes.has_machine(&vm)), (None, Some(true)), "it is of the cluster");
        let shared = Place::Shared { machine: Machine::Vm(vm.clone()), nodes: vec!["a".into(), "b".into()] };
        assert_eq!(["a", "B"].map(|node| nodes.place(node)), [Some(shared.clone()), Some(shared)]);
        known.remove("b");
        assert_eq!(known.name_of(&vm), Some("a"));
        let one_left = ClusterNodes::Known(known.clone());
        assert_eq!(one_left.place("a"), Some(Place::Named(Machine::Vm(vm.clone()))));
        // Which of them the machine was is not known of the Node that is gone either, while the other is there.
        assert_eq!((one_left.place("b"), one_left.machine_of_deleted("b")), (Some(Place::ByName), None));
        assert_eq!(["a", "b", "c"].map(|node| one_left.former_machines(node).len()), [0, 1, 0]);
        assert_eq!(one_left.names_ever_of(&vm), ["a", "b"].into());
        known.remove("a");
        let none_left = ClusterNodes::Known(known);
        let machine = Some(&Machine::Vm(vm));
        assert_eq!(["a", "b"].map(|node| none_left.machine_of_deleted(node)), [machine, machine]);
    }

    proptest! {
        /// Nodes that were told one by one are those that a list would tell.
        #[test]
        fn nodes_told_one_by_one_equal_a_list_of_them(
            steps in prop::collection::vec((0u8..4, prop::option::of((0u8..4, any::<bool>()))), 1..60)
        ) {
            let mut grown = KnownNodes::default();
            grown.replace([]);
            let mut last: BTreeMap<String, Node> = BTreeMap::new();
            for (name, node) in steps {
                let name = format!("n{name}");
                match node {
                    Some((vm, healthy)) => {
                        // Two Nodes may claim one machine.
                        let machine = Machine::Vm(ArmId::virtual_machine("s", "g", &format!("vm-{vm}")).unwrap());
                        let node = Node { machine: Some(machine), healthy, ..Node::default() };
                        let differs = last.get(&name) != Some(&node);
                        prop_assert_eq!(grown.apply(&name, node.clone()), differs);
                        last.insert(name, node);
                    }
                    None => prop_assert_eq!(grown.remove(&name), last.remove(&name).is_some()),
                }
            }
            // A list tells of no deletion, so what deletions left is known beside it, and of no Node that is there.
            prop_assert!(grown.deleted.keys().all(|name| !last.contains_key(&**name)));
            for (name, node) in &last {
                let machine = node.machine.as_ref().unwrap();
                prop_assert!(grown.former.of(name).all(|former| former != machine.id()));
            }
            (grown.deleted, grown.former) = Default::default();
            let mut anew = KnownNodes::default();
            anew.replace(last);
            prop_assert_eq!(grown, anew);
        }
    }
}
