//! The VM that a node is taken for, also where several Nodes name one machine.
//!
//! Kubernetes knows a node by its name, Azure a VM by its id. The Node's provider id joins them. Where no cloud controller
//! sets one, it is usually the VM of the cluster's resource group that has the node's name; where VM and machine have
//! different names, the name that the machine gives itself tells ([`super::search`]). A node id that is an ARM id names the
//! VM itself.

use std::time::Duration;

use lazuli_engine::single::AzureFailure;
use lazuli_model::{
    ArmId,
    fault::Fault,
    node::{ClusterNodes, Machine, Place},
};
use lazuli_quota::permit::Priority;

use super::{Call, Context, Event, Failure, INSTANCE, Next, NodeMemory, Turn, Why, WorkFailure, failure::of_shared};
use crate::calls::{found, unexpected};
use crate::{
    list::ResourceGroup,
    shared_machine::{self, Decision, decide, other_users},
    unpublish::NodeVm,
};

/// How long a request waits until the cluster's Nodes are known.
pub const NODES_WAIT: Duration = Duration::from_secs(30);
const VM: &str = "Microsoft.Compute/virtualMachines";

/// For which request the VM of a node is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Attach,
    Detach,
}

/// The VM that a node is taken for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) vm: ArmId,
    pub(super) known: NodeVm,
    /// Whether other Nodes name this VM too, and it has this Node's name.
    pub(super) has_its_name: bool,
}

impl Candidate {
    fn named(vm: ArmId) -> Self {
        Self { vm, known: NodeVm::Named, has_its_name: false }
    }

    fn guessed(vm: ArmId) -> Self {
        Self { vm, known: NodeVm::Guessed, has_its_name: false }
    }
}

/// What is known of a node's VM without a read of it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Located {
    /// The VM.
    At(Candidate),
    /// Several Nodes name this machine.
    Shared {
        machine: ArmId,
        /// The names of all of them.
        nodes: Vec<String>,
    },
}

/// The way to the VM of a node.
#[derive(Debug)]
pub(super) enum Locate {
    /// The Nodes are waited for.
    Nodes(Purpose),
    /// The machine is read that several Nodes name.
    Shared { purpose: Purpose, machine: ArmId, nodes: Vec<String> },
}

impl Locate {
    pub(super) fn begin(purpose: Purpose) -> (Self, Call) {
        (Self::Nodes(purpose), Call::AwaitNodes(NODES_WAIT))
    }

    /// # Errors
    /// [`Fault::NotFound`] when no VM can have this node id; [`Fault::Unavailable`] while the Nodes are not known, and where
    /// several Nodes name one machine and the request is refused; those of [`check_others`]; Azure's own failures.
    pub(super) fn next<E: AzureFailure, W: WorkFailure>(
        &mut self,
        cx: &mut Context<'_, '_>,
        event: Event<E, W>,
    ) -> Turn<Candidate, E, W> {
        match (&*self, event) {
            (Self::Nodes(purpose), Event::NodesAwaited) => {
                let purpose = *purpose;
                match locate(&cx.of.node, cx.env.cluster, cx.env.nodes, &cx.env.policy.home)? {
                    Located::At(candidate) => {
                        if purpose == Purpose::Detach {
                            check_others(cx, &candidate.vm)?;
                        }
                        Ok(Next::Done(candidate))
                    }
                    Located::Shared { machine, nodes } => {
                        let priority = match purpose {
                            Purpose::Attach => Priority::Attach,
                            Purpose::Detach => Priority::Detach,
                        };
                        let read = Call::ReadVm { vm: machine.clone(), priority, not_before: None };
                        *self = Self::Shared { purpose, machine, nodes };
                        Ok(Next::Call(read))
                    }
                }
            }
            (Self::Shared { purpose, machine, nodes }, Event::Vm { read, .. }) => {
                let vm = found(read).map_err(|error| Failure::azure(Why::VmUnreadable(cx.node()), error))?;
                let names: Vec<&str> = nodes.iter().map(String::as_str).collect();
                let request = match purpose {
                    Purpose::Attach => shared_machine::Request::Attach,
                    Purpose::Detach => shared_machine::Request::Detach(&cx.of.disk, cx.env.attachments),
                };
                let decision = decide(&cx.of.node, machine, vm.as_deref(), &names, request);
                if *purpose == Purpose::Detach && !matches!(decision, Decision::Refused { .. }) {
                    // The Node may have ceased to name the machine while it was read.
                    check_others(cx, machine)?;
                }
                match decision {
                    Decision::IsNode => {
                        Ok(Next::Done(Candidate { has_its_name: true, ..Candidate::named(machine.clone()) }))
                    }
                    Decision::Leave => Ok(Next::Done(Candidate::guessed(machine.clone()))),
                    Decision::Refused { owner, users } => Err(Failure::refused(
                        Fault::Unavailable,
                        Why::SharedMachine {
                            node: cx.node(),
                            machine: machine.clone(),
                            names: nodes.clone(),
                            known: of_shared(owner.as_deref(), &users),
                        },
                    )),
                }
            }
            (at, event) => unexpected(&at, &event),
        }
    }
}

/// Where to look for a node: what its Node's provider id names, or named until its deletion was seen; else where it was found
/// before; else the VM of its name, in the resource group of its Node's label or the cluster's own. While the Nodes are not
/// known a guess might meet another VM.
fn locate<E, W>(
    node: &str,
    cluster: &ClusterNodes,
    memory: &NodeMemory,
    home: &ResourceGroup,
) -> Result<Located, Failure<E, W>> {
    let group = match cluster.place(node) {
        None => return Err(Failure::refused(Fault::Unavailable, Why::NodesUnknown(node.to_owned()))),
        Some(Place::Named(Machine::Vm(vm) | Machine::Instance(vm))) => return Ok(Located::At(Candidate::named(vm))),
        Some(Place::Shared { machine, nodes }) => {
            let nodes = nodes.into_iter().map(String::from).collect();
            return Ok(Located::Shared { machine: machine.id().clone(), nodes });
        }
        Some(Place::Group(group)) => Some(group),
        Some(Place::ByName) => None,
    };
    if let Some(machine) = cluster.machine_of_deleted(node) {
        return Ok(Located::At(Candidate::named(machine.id().clone())));
    }
    if let Some(vm) = memory.vm_of.get(node) {
        return Ok(Located::At(Candidate::guessed(vm.clone())));
    }
    let cannot_be = |why: String| Failure::refused(Fault::NotFound, Why::NoVm { node: node.to_owned(), why });
    if node.starts_with('/') {
        let vm: ArmId = node.parse().map_err(|error| cannot_be(format!("{error}")))?;
        return match vm.is_type(VM) || vm.is_type(INSTANCE) {
            true => Ok(Located::At(Candidate::named(vm))),
            false => Err(cannot_be(format!("expected the id of a resource of type {VM} or {INSTANCE}"))),
        };
    }
    let group = group.as_deref().unwrap_or(&home.name);
    let vm = ArmId::virtual_machine(&home.subscription, group, node).map_err(|error| cannot_be(error.to_string()))?;
    Ok(Located::At(Candidate::guessed(vm)))
}

/// Refuses to detach a disk for a node from a VM that only other Nodes name, as long as it may be attached there for one of
/// these: the machine of a deleted Node may have registered again under another name.
///
/// # Errors
/// [`Fault::Conflict`].
pub(super) fn check_others<E, W>(cx: &Context<'_, '_>, vm: &ArmId) -> Result<(), Failure<E, W>> {
    let node = &*cx.of.node;
    let names = cx.env.cluster.names_of(vm);
    // An ARM id as a node id names no Node.
    if node.starts_with('/') || names.iter().any(|name| name.eq_ignore_ascii_case(node)) {
        return Ok(());
    }
    let users = other_users(node, names, &cx.of.disk, cx.env.attachments);
    if users.is_empty() {
        return Ok(());
    }
    let users = users.into_iter().map(str::to_owned).collect();
    let why = Why::UsedByOthers { disk: cx.disk(), vm: vm.clone(), node: cx.node(), users };
    Err(Failure::refused(Fault::Conflict, why))
}

/// Refuses a node id that is no Node of this cluster: an ARM id must be the VM of a Node, any other id the name of one.
/// Otherwise a user who may create VolumeAttachments, or a node that may write its CSINode, could have disks attached to any
/// VM that this program's identity may write.
///
/// # Errors
/// [`Fault::NotFound`] when there is no such Node; [`Fault::Unavailable`] when that cannot be told.
pub(super) fn check_is_of_cluster<E, W>(
    node: &str,
    cluster: &ClusterNodes,
    candidate: &Candidate,
) -> Result<(), Failure<E, W>> {
    let Candidate { vm, has_its_name, .. } = candidate;
    if *cluster == ClusterNodes::NoCluster {
        return Ok(());
    }
    let names = cluster.names_of(vm);
    if names.len() > 1 && !has_its_name {
        let names = names.into_iter().map(str::to_owned).collect();
        let why = Why::SharedMachine { node: node.to_owned(), machine: vm.clone(), names, known: String::new() };
        return Err(Failure::refused(Fault::Unavailable, why));
    }
    let (known, lacks) = if node.starts_with('/') {
        (cluster.has_machine(vm), format!("no Node has the providerID azure://{vm}"))
    } else {
        (cluster.is_node(node), "no Node has this name".to_owned())
    };
    match known {
        Some(true) => Ok(()),
        Some(false) => Err(Failure::refused(Fault::NotFound, Why::NotOfCluster { node: node.to_owned(), lacks })),
        None => Err(Failure::refused(Fault::Unavailable, Why::ClusterSilent(node.to_owned()))),
    }
}

#[cfg(test)]
mod tests {
    use lazuli_model::node::{KnownNodes, Node};

    use super::*;
    use crate::publish::{
        scale_set_of,
        simulation::world::{AzureError, WorkError},
    };

    type Refusal = Failure<AzureError, WorkError>;

    fn home() -> ResourceGroup {
        ResourceGroup { subscription: "s".into(), name: "g".into() }
    }

    fn at(cluster: &ClusterNodes, memory: &NodeMemory, node: &str) -> Result<Located, Refusal> {
        locate(node, cluster, memory, &home())
    }

    fn refuses(cluster: &ClusterNodes, node: &str, candidate: &Candidate) -> (Fault, String) {
        let failure: Refusal = check_is_of_cluster(node, cluster, candidate).unwrap_err();
        let crate::publish::Cause::Refused(fault, why) = &*failure.cause else { panic!("{failure:?}") };
        (fault.clone(), why.to_string())
    }

    fn admits(cluster: &ClusterNodes, node: &str, candidate: &Candidate) {
        let checked: Result<(), Refusal> = check_is_of_cluster(node, cluster, candidate);
        checked.unwrap();
    }

    fn known(all: impl IntoIterator<Item = (&'static str, Node)>) -> ClusterNodes {
        let mut known = KnownNodes::default();
        known.replace(all.into_iter().map(|(name, node)| (name.to_owned(), node)));
        ClusterNodes::Known(known)
    }

    fn vm(group: &str, name: &str) -> ArmId {
        ArmId::virtual_machine("s", group, name).unwrap()
    }

    fn of_vm(vm: ArmId) -> Node {
        Node { machine: Some(Machine::Vm(vm)), healthy: true, ..Node::default() }
    }

    fn named(vm: ArmId) -> Located {
        Located::At(Candidate::named(vm))
    }

    fn guessed(vm: ArmId) -> Located {
        Located::At(Candidate::guessed(vm))
    }

    #[test]
    fn a_node_is_the_vm_of_its_name_until_it_was_found_elsewhere() {
        let (alone, mut memory) = (ClusterNodes::NoCluster, NodeMemory::default());
        let by_name = guessed(vm("g", "node-0"));
        assert_eq!(at(&alone, &memory, "Node-0").unwrap(), by_name);
        let other = vm("g", "vm7");
        memory.learn("Node-0", &other);
        assert_eq!(at(&alone, &memory, "Node-0").unwrap(), guessed(other.clone()));
        assert_eq!(memory.name_of(&alone, &other), "Node-0");
        memory.forget("Node-0");
        assert_eq!(at(&alone, &memory, "Node-0").unwrap(), by_name);
        assert_eq!(memory.name_of(&alone, &other), "vm7");
    }

    #[test]
    fn a_node_is_the_vm_that_its_provider_id_names_whatever_was_found_before() {
        let labelled = Node { resource_group: Some("edge".into()), ..Node::default() };
        let cluster = known([("n0", of_vm(vm("other", "vm-7"))), ("n1", labelled)]);
        let mut memory = NodeMemory::default();
        memory.learn("n0", &vm("g", "n0"));
        assert_eq!(at(&cluster, &memory, "n0").unwrap(), named(vm("other", "vm-7")));
        assert_eq!(memory.name_of(&cluster, &vm("OTHER", "VM-7")), "n0");
        assert_eq!(at(&cluster, &memory, "n1").unwrap(), guessed(vm("edge", "n1")));
    }

    #[test]
    fn a_node_id_that_is_no_name_is_refused() {
        let disk = ArmId::disk("s", "g", "d").unwrap();
        for id in ["a/b", "", "/subscriptions/s", disk.as_str()] {
            let failure = at(&ClusterNodes::NoCluster, &NodeMemory::default(), id).unwrap_err();
            assert_eq!(*failure.fault(), Fault::NotFound, "{id}");
        }
    }

    #[test]
    fn while_the_nodes_are_not_known_none_is_guessed() {
        let failure = at(&ClusterNodes::Cold, &NodeMemory::default(), "n0").unwrap_err();
        assert_eq!(*failure.fault(), Fault::Unavailable);
        let (_, call) = Locate::begin(Purpose::Attach);
        assert_eq!(call, Call::AwaitNodes(NODES_WAIT));
    }

    #[test]
    fn an_instance_of_a_scale_set_is_the_node_that_names_it() {
        let id =
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/a/virtualMachines/0";
        let machine = Machine::of_provider_id(&format!("azure://{id}"));
        let cluster = known([("n0", Node { machine, healthy: true, ..Node::default() })]);
        let id: ArmId = id.parse().unwrap();
        assert_eq!(at(&cluster, &NodeMemory::default(), "n0").unwrap(), named(id.clone()));
        assert_eq!(scale_set_of(&id).unwrap().name(), "a");
        assert_eq!(scale_set_of(&vm("g", "n0")), None);
    }

    #[test]
    fn a_machine_that_two_nodes_name_is_a_node_only_by_its_own_name_and_the_error_names_both() {
        let (shared, other) = (vm("g", "n0"), vm("g", "n2"));
        let cluster =
            known([("n0", of_vm(shared.clone())), ("n1", of_vm(shared.clone())), ("n2", of_vm(other.clone()))]);
        let mut memory = NodeMemory::default();
        memory.learn("n0", &shared);
        for node in ["n0", "N1"] {
            let both = Located::Shared { machine: shared.clone(), nodes: vec!["n0".into(), "n1".into()] };
            assert_eq!(at(&cluster, &memory, node).unwrap(), both, "{node}");
        }
        // Its id names the machine, and not which Node the attach is for.
        assert_eq!(at(&cluster, &memory, shared.as_str()).unwrap(), named(shared.clone()));
        let candidate = Candidate::named(shared.clone());
        let (fault, message) = refuses(&cluster, shared.as_str(), &candidate);
        assert_eq!(fault, Fault::Unavailable);
        for part in ["Node n0 and of Node n1", "azure:///subscriptions/s/resourceGroups/g/"] {
            assert!(message.contains(part), "{part}: {message}");
        }
        admits(&cluster, "n0", &Candidate { has_its_name: true, ..candidate });
        assert_eq!(at(&cluster, &memory, "n2").unwrap(), named(other));
    }

    #[test]
    fn a_node_id_counts_only_where_a_node_has_it_as_its_provider_id_or_its_name() {
        let (mine, foreign) = (vm("g", "n0"), vm("g", "database"));
        let cluster = known([("n0", of_vm(mine.clone()))]);
        admits(&cluster, mine.as_str(), &Candidate::named(mine.clone()));
        admits(&cluster, "N0", &Candidate::named(mine));
        let foreign_vm = Candidate::named(foreign.clone());
        let (fault, message) = refuses(&cluster, "database", &foreign_vm);
        assert_eq!(fault, Fault::NotFound);
        assert!(message.contains("no Node has this name"), "{message}");
        admits(&ClusterNodes::NoCluster, "any", &foreign_vm);
        let (fault, message) = refuses(&cluster, foreign.as_str(), &foreign_vm);
        assert_eq!(fault, Fault::NotFound);
        assert!(message.contains("no Node has the providerID"), "{message}");
    }
}
