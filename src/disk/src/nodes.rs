//! The VM of a node.
//!
//! Kubernetes knows a node by its name, Azure a VM by its id. The Node's provider id joins them. Where no cloud
//! controller sets one, it is usually the VM of the cluster's resource group that has the node's name; where VM and
//! machine have different names, the name the machine gives itself tells. A node id that is an ARM id names the VM
//! itself.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{
    FutureExt, TryFutureExt,
    future::{BoxFuture, WeakShared},
};
use lazuli_azure::error::ArmError;
use lazuli_model::{
    ArmId, Vm,
    fault::Fault,
    node::{ClusterNodes, Machine, Place},
};
use lazuli_quota::permit::Priority;
use lazuli_storage::unpublish::{self, NodeVm, is_machine};
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

use super::{VolumeError, client::Client, cluster_snapshot::ClusterSnapshot};

/// How old the list of VMs may be in which a node is searched. Single reads of the VM and the disk prove the result.
const LIST_AGE: Duration = Duration::from_secs(2);
/// How long a request waits until the cluster's Nodes are known.
const NODES_WAIT: Duration = Duration::from_secs(30);
const VM: &str = "Microsoft.Compute/virtualMachines";
const INSTANCE: &str = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines";

/// A list of VMs that is being read for several callers.
type WeakVmList = WeakShared<BoxFuture<'static, Result<Arc<Vec<Vm>>, ArmError>>>;

/// A list of machines that Azure offers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum MachineList {
    /// The VMs of a resource group: of those of scale sets, only of flexible ones.
    Group {
        /// In lower case.
        subscription: String,
        /// In lower case.
        group: String,
    },
    /// The instances of a uniform scale set.
    ScaleSet(ArmId),
}

impl MachineList {
    fn group(subscription: &str, group: &str) -> Self {
        Self::Group { subscription: subscription.to_ascii_lowercase(), group: group.to_ascii_lowercase() }
    }

    async fn read(self, client: Client) -> Result<Vec<Vm>, ArmError> {
        match self {
            Self::Group { subscription, group } => client.list_vms(&subscription, &group).await,
            Self::ScaleSet(set) => client.list_instances(&set).await,
        }
    }
}

impl fmt::Display for MachineList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group { group, .. } => write!(f, "the VMs of the resource group {group}"),
            Self::ScaleSet(set) => write!(f, "the instances of the scale set {}", set.name()),
        }
    }
}

/// The scale set that a machine is an instance of; `None` for a VM of its own, also one of a flexible scale set.
pub(crate) fn scale_set_of(machine: &ArmId) -> Option<ArmId> {
    machine.is_type(INSTANCE).then(|| machine.parent()).flatten()
}

/// The nodes and their VMs, in both directions.
#[derive(Clone)]
pub(crate) struct Nodes {
    subscription: String,
    resource_group: String,
    /// What Kubernetes says of them.
    cluster: ClusterSnapshot<ClusterNodes>,
    seen: Arc<Mutex<Seen>>,
    /// Of each list the reading that was begun last, and when; empty once no caller waits for it.
    latest: Arc<Mutex<BTreeMap<MachineList, (Instant, WeakVmList)>>>,
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nodes").field("resource_group", &self.resource_group).field("seen", &self.seen).finish()
    }
}

#[derive(Debug, Default)]
struct Seen {
    vm_of: BTreeMap<String, ArmId>,
    /// The node's name exactly as Kubernetes spells it: external-attacher compares it byte by byte.
    name_of: BTreeMap<ArmId, String>,
}

/// The VM that a node is taken for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) vm: ArmId,
    /// Whether the node's provider id or the node id itself names this VM: then no other VM is the node, whatever its
    /// name.
    pub(crate) named: bool,
    /// Whether other Nodes name this VM too, and it has this Node's name.
    pub(crate) has_its_name: bool,
}

/// What is known of a node's VM without a read of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Located {
    /// The VM.
    At(Candidate),
    /// Several Nodes name this machine.
    Shared {
        machine: ArmId,
        /// The names of all of them.
        nodes: Vec<Box<str>>,
    },
}

impl Located {
    fn named(vm: ArmId) -> Self {
        Self::At(Candidate { vm, named: true, has_its_name: false })
    }

    fn guessed(vm: ArmId) -> Self {
        Self::At(Candidate { vm, named: false, has_its_name: false })
    }
}

impl Candidate {
    /// How the VM is known.
    pub(crate) fn known(&self) -> NodeVm {
        if self.named { NodeVm::Named } else { NodeVm::Guessed }
    }
}

impl Nodes {
    pub(crate) fn new(subscription: &str, resource_group: &str, cluster: watch::Receiver<ClusterNodes>) -> Self {
        Self {
            subscription: subscription.into(),
            resource_group: resource_group.into(),
            cluster: ClusterSnapshot::new(cluster, |nodes| *nodes != ClusterNodes::Cold),
            seen: Arc::default(),
            latest: Arc::default(),
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        // A change is two insertions. One of them alone does no harm.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where to look for a node: what its Node's provider id names, or named until its deletion was seen; else where it was
    /// found before; else the VM of its name, in the resource group of its Node's label or the cluster's own. While the
    /// Nodes are not known a guess might meet another VM, so they are waited for.
    ///
    /// # Errors
    /// [`Fault::NotFound`] when no VM can have this node id; [`Fault::Unavailable`] while the Nodes are not known.
    pub(crate) async fn locate(&self, node: &str) -> Result<Located, VolumeError> {
        let _ = timeout(NODES_WAIT, self.cluster.known()).await;
        let place = self.cluster.now().place(node);
        let group = match place {
            None => {
                return Err(VolumeError::new(
                    Fault::Unavailable,
                    format!(
                        "node {node}: the cluster's Nodes are not known yet, so its VM is not either; the controller's \
                         role needs list and watch on nodes"
                    ),
                ));
            }
            Some(Place::Named(Machine::Vm(vm) | Machine::Instance(vm))) => return Ok(Located::named(vm)),
            Some(Place::Shared { machine, nodes }) => {
                return Ok(Located::Shared { machine: machine.id().clone(), nodes });
            }
            Some(Place::Group(group)) => Some(group),
            Some(Place::ByName) => None,
        };
        if let Some(machine) = self.cluster.now().machine_of_deleted(node) {
            return Ok(Located::named(machine.id().clone()));
        }
        if let Some(vm) = self.seen().vm_of.get(node) {
            return Ok(Located::guessed(vm.clone()));
        }
        let cannot_be = |why: String| VolumeError::new(Fault::NotFound, format!("node {node:?} cannot be a VM: {why}"));
        if node.starts_with('/') {
            let vm: ArmId = node.parse().map_err(|error| cannot_be(format!("{error}")))?;
            return match vm.is_type(VM) || vm.is_type(INSTANCE) {
                true => Ok(Located::named(vm)),
                false => Err(cannot_be(format!("expected the id of a resource of type {VM} or {INSTANCE}"))),
            };
        }
        let group = group.as_deref().unwrap_or(&self.resource_group);
        let vm =
            ArmId::virtual_machine(&self.subscription, group, node).map_err(|error| cannot_be(error.to_string()))?;
        Ok(Located::guessed(vm))
    }

    /// Refuses a node id that is no Node of this cluster: an ARM id must be the VM of a Node, any other id the name of one.
    /// Otherwise a user who may create VolumeAttachments, or a node that may write its CSINode, could have disks attached
    /// to any VM that this program's identity may write.
    ///
    /// # Errors
    /// [`Fault::NotFound`] when there is no such Node; [`Fault::Unavailable`] when that cannot be told.
    pub(crate) fn check_is_of_cluster(&self, node: &str, candidate: &Candidate) -> Result<(), VolumeError> {
        let Candidate { vm, has_its_name, .. } = candidate;
        let cluster = self.cluster.now();
        if *cluster == ClusterNodes::NoCluster {
            return Ok(());
        }
        let names = cluster.names_of(vm);
        if names.len() > 1 && !has_its_name {
            return Err(shared(node, vm, &names, ""));
        }
        let (known, lacks) = if node.starts_with('/') {
            (cluster.has_machine(vm), format!("no Node has the providerID azure://{vm}"))
        } else {
            (cluster.is_node(node), "no Node has this name".to_owned())
        };
        match known {
            Some(true) => Ok(()),
            Some(false) => {
                Err(VolumeError::new(Fault::NotFound, format!("node {node} is no node of this cluster: {lacks}")))
            }
            None => Err(VolumeError::new(
                Fault::Unavailable,
                format!("node {node}: the API server is silent, so it is not known whether the cluster has this Node"),
            )),
        }
    }

    /// Records the VM of a node.
    pub(crate) fn learn(&self, node: &str, vm: &ArmId) {
        let mut seen = self.seen();
        seen.vm_of.insert(node.to_owned(), vm.clone());
        seen.name_of.insert(vm.clone(), node.to_owned());
    }

    /// Forgets a node whose VM is not where it was.
    pub(crate) fn forget(&self, node: &str) {
        let mut seen = self.seen();
        if let Some(vm) = seen.vm_of.remove(node) {
            seen.name_of.remove(&vm);
        }
    }

    /// The node of this cluster whose provider id names this VM.
    pub(crate) fn node_of(&self, vm: &ArmId) -> Option<String> {
        self.cluster.now().name_of(vm).map(str::to_owned)
    }

    /// The names of the Nodes of this cluster whose provider ids name this VM.
    pub(crate) fn names_of(&self, vm: &ArmId) -> Vec<String> {
        self.cluster.now().names_of(vm).into_iter().map(str::to_owned).collect()
    }

    /// Whether the disk's own state must be read before a detach from the VM of a node is answered.
    pub(crate) fn needs_holders(&self, node: &str, known: NodeVm, vm: &ArmId) -> bool {
        unpublish::needs_holders(known, &self.cluster.now(), node, vm)
    }

    /// What Kubernetes says of the nodes.
    pub(crate) fn cluster(&self) -> watch::Ref<'_, ClusterNodes> {
        self.cluster.now()
    }

    /// Whether it is known that no Node of this cluster names this VM in its provider id.
    pub(crate) fn is_no_node(&self, vm: &ArmId) -> bool {
        self.cluster.now().has_machine(vm) == Some(false)
    }

    /// The name of the node that a VM is: as Kubernetes spells it where that is known, else the VM's own.
    pub(crate) fn name_of(&self, vm: &ArmId) -> String {
        let seen = || self.seen().name_of.get(vm).cloned();
        self.node_of(vm).or_else(seen).unwrap_or_else(|| vm.name().to_lowercase())
    }

    /// Looks through the VMs of the cluster's resource group for the one whose machine has the node's name; for a Node also
    /// for the instance of a scale set, of which others have many that are no nodes. The list may be up to [`LIST_AGE`] old: a VM that was made since runs no node yet.
    ///
    /// # Errors
    /// [`Fault::Conflict`] when several VMs match; Azure's own failures.
    pub(crate) async fn search(&self, client: &Client, node: &str) -> Result<Search, VolumeError> {
        let (_, vms) = self.list(client, MachineList::group(&self.subscription, &self.resource_group), None).await?;
        let of_its_name = |vm: &&Vm| vm.id.name().eq_ignore_ascii_case(node);
        let mut found: Vec<&Vm> = vms.iter().filter(|vm| is_machine(vm, node)).collect();
        // VM names are unique in a resource group, computer names are not.
        if found.iter().any(of_its_name) {
            found.retain(of_its_name);
        }
        match found.as_slice() {
            [vm] => {
                self.learn(node, &vm.id);
                Ok(Search::Found(vm.id.clone()))
            }
            [] if !self.cluster.now().has_node(node) => Ok(Search::Absent(vms)),
            [] => {
                let instance = client.instance_named(&self.subscription, &self.resource_group, node).await;
                let instance = instance.map_err(|error| {
                    VolumeError::azure(
                        format!("node {node}: the scale sets of its resource group cannot be read"),
                        error,
                    )
                })?;
                Ok(match instance {
                    Some(vm) => {
                        self.learn(node, &vm.id);
                        Search::Found(vm.id)
                    }
                    None => Search::Absent(vms),
                })
            }
            several => {
                let ids: Vec<String> = several.iter().map(|vm| vm.id.to_string()).collect();
                Err(VolumeError::new(
                    Fault::Conflict,
                    format!("node {node}: several VMs have this computer name: {}", ids.join(", ")),
                ))
            }
        }
    }

    /// The machines beside one that is missing: the VMs of its resource group, or the instances of its scale set. Where
    /// the scale set does not exist either, the VMs of the resource group are beside it. The list comes with a time before it
    /// was sent, which is no earlier than `not_before`.
    ///
    /// # Errors
    /// Azure's own failures.
    pub(crate) async fn vms_beside(
        &self,
        client: &Client,
        vm: &ArmId,
        not_before: Option<Instant>,
    ) -> Result<(Instant, Arc<Vec<Vm>>), VolumeError> {
        if let Some(set) = scale_set_of(vm)
            && scale_set_exists(client, &set).await?
        {
            return self.list(client, MachineList::ScaleSet(set), not_before).await;
        }
        self.list(client, MachineList::group(vm.subscription(), vm.resource_group()), not_before).await
    }

    /// The machines of a list, and a time before it was sent. All who ask within a while share one reading, unless it was
    /// begun before `not_before`.
    ///
    /// # Errors
    /// Azure's own failures.
    async fn list(
        &self,
        client: &Client,
        of: MachineList,
        not_before: Option<Instant>,
    ) -> Result<(Instant, Arc<Vec<Vm>>), VolumeError> {
        let (began, list) = {
            let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
            let is_fresh = |began: &Instant| {
                began.elapsed() <= LIST_AGE && not_before.is_none_or(|not_before| *began >= not_before)
            };
            let fresh = latest.get(&of).filter(|(began, _)| is_fresh(began));
            match fresh.and_then(|(began, list)| Some((*began, list.upgrade()?))) {
                Some(fresh) => fresh,
                None => {
                    latest.retain(|_, (began, _)| began.elapsed() <= LIST_AGE);
                    let began = Instant::now();
                    let list = of.clone().read(client.clone()).map_ok(Arc::new).boxed().shared();
                    if let Some(weak) = list.downgrade() {
                        latest.insert(of.clone(), (began, weak));
                    }
                    (began, list)
                }
            }
        };
        let machines = list.await.map_err(|error| VolumeError::azure(format!("{of} cannot be listed"), error))?;
        Ok((began, machines))
    }
}

/// Several Nodes name one machine. kubelet may choose the provider id of its own Node, so one of them claims what is
/// another one's.
pub(crate) fn shared(node: &str, machine: &ArmId, names: &[&str], why: &str) -> VolumeError {
    VolumeError::new(
        Fault::Unavailable,
        format!(
            "node {node}: the providerID of Node {} is azure://{machine}, and a machine is one node, so it is not known \
             which machine this node is{why}; delete the Node that is not this machine",
            names.join(" and of Node ")
        ),
    )
}

/// Whether a scale set exists.
///
/// # Errors
/// Azure's own failures.
pub(crate) async fn scale_set_exists(client: &Client, set: &ArmId) -> Result<bool, VolumeError> {
    let read = client.scale_set_exists(set, Priority::DetachDeadNode).await;
    read.map_err(|error| VolumeError::azure(format!("the scale set {set} cannot be read"), error))
}

/// The result of a search for a node in the list of VMs.
#[derive(Debug)]
pub(crate) enum Search {
    /// Its VM.
    Found(ArmId),
    /// None of these VMs is the node.
    Absent(Arc<Vec<Vm>>),
}

impl Search {
    /// The node's VM.
    ///
    /// # Errors
    /// [`Fault::NotFound`] when there is none.
    pub(crate) fn found(self, node: &str) -> Result<ArmId, VolumeError> {
        match self {
            Self::Found(vm) => Ok(vm),
            Self::Absent(others) => Err(VolumeError::new(
                Fault::NotFound,
                format!("node {node}: none of the {} VMs of the cluster's resource group has this name", others.len()),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use lazuli_model::node::{KnownNodes, Node};

    use super::*;

    fn nodes(cluster: ClusterNodes) -> Nodes {
        Nodes::new("s", "g", watch::channel(cluster).1)
    }

    fn named(vm: &ArmId) -> Candidate {
        Candidate { vm: vm.clone(), named: true, has_its_name: false }
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

    #[tokio::test]
    async fn a_node_is_the_vm_of_its_name_until_it_was_found_elsewhere() {
        let nodes = nodes(ClusterNodes::NoCluster);
        let by_name = Located::guessed(vm("g", "node-0"));
        assert_eq!(nodes.locate("Node-0").await.unwrap(), by_name);
        let other = vm("g", "vm7");
        nodes.learn("Node-0", &other);
        assert_eq!(nodes.locate("Node-0").await.unwrap(), Located::guessed(other.clone()));
        assert_eq!(nodes.name_of(&other), "Node-0");
        nodes.forget("Node-0");
        assert_eq!(nodes.locate("Node-0").await.unwrap(), by_name);
        assert_eq!(nodes.name_of(&other), "vm7");
    }

    #[tokio::test]
    async fn a_node_is_the_vm_that_its_provider_id_names_whatever_was_found_before() {
        let labelled = Node { resource_group: Some("edge".into()), ..Node::default() };
        let nodes = nodes(known([("n0", of_vm(vm("other", "vm-7"))), ("n1", labelled)]));
        nodes.learn("n0", &vm("g", "n0"));
        assert_eq!(nodes.locate("n0").await.unwrap(), Located::named(vm("other", "vm-7")));
        assert_eq!(nodes.name_of(&vm("OTHER", "VM-7")), "n0");
        assert_eq!(nodes.locate("n1").await.unwrap(), Located::guessed(vm("edge", "n1")));
    }

    #[tokio::test]
    async fn a_node_id_that_is_no_name_is_refused() {
        let nodes = nodes(ClusterNodes::NoCluster);
        let disk = ArmId::disk("s", "g", "d").unwrap();
        for id in ["a/b", "", "/subscriptions/s", disk.as_str()] {
            assert_eq!(nodes.locate(id).await.unwrap_err().fault, Fault::NotFound, "{id}");
        }
    }

    #[tokio::test]
    async fn an_instance_of_a_scale_set_is_the_node_that_names_it() {
        let id =
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/a/virtualMachines/0";
        let instance = Machine::of_provider_id(&format!("azure://{id}"));
        let nodes = nodes(known([("n0", Node { machine: instance, healthy: true, ..Node::default() })]));
        let id: ArmId = id.parse().unwrap();
        assert_eq!(nodes.locate("n0").await.unwrap(), Located::named(id.clone()));
        assert_eq!(scale_set_of(&id).unwrap().name(), "a");
        assert_eq!(scale_set_of(&vm("g", "n0")), None);
    }

    #[tokio::test(start_paused = true)]
    async fn while_the_nodes_are_not_known_none_is_guessed() {
        let (tell, told) = watch::channel(ClusterNodes::Cold);
        let nodes = Nodes::new("s", "g", told);
        assert_eq!(nodes.locate("n0").await.unwrap_err().fault, Fault::Unavailable);
        let asked = tokio::spawn({
            let nodes = nodes.clone();
            async move { nodes.locate("n0").await }
        });
        tokio::time::sleep(NODES_WAIT / 2).await;
        tell.send_replace(known([("n0", of_vm(vm("other", "n0")))]));
        assert_eq!(asked.await.unwrap().unwrap(), Located::named(vm("other", "n0")));
    }

    #[tokio::test]
    async fn a_machine_that_two_nodes_name_is_a_node_only_by_its_own_name_and_the_error_names_both() {
        let (shared, other) = (vm("g", "n0"), vm("g", "n2"));
        let nodes =
            nodes(known([("n0", of_vm(shared.clone())), ("n1", of_vm(shared.clone())), ("n2", of_vm(other.clone()))]));
        nodes.learn("n0", &shared);
        for node in ["n0", "N1"] {
            let both = Located::Shared { machine: shared.clone(), nodes: vec!["n0".into(), "n1".into()] };
            assert_eq!(nodes.locate(node).await.unwrap(), both, "{node}");
        }
        // Its id names the machine, and not which Node the attach is for.
        assert_eq!(nodes.locate(shared.as_str()).await.unwrap(), Located::named(shared.clone()));
        let error = nodes.check_is_of_cluster(shared.as_str(), &named(&shared)).unwrap_err();
        assert_eq!(error.fault, Fault::Unavailable);
        for part in ["Node n0 and of Node n1", "azure:///subscriptions/s/resourceGroups/g/"] {
            assert!(error.to_string().contains(part), "{part}: {error}");
        }
        nodes.check_is_of_cluster("n0", &Candidate { has_its_name: true, ..named(&shared) }).unwrap();
        assert_eq!(nodes.locate("n2").await.unwrap(), Located::named(other));
    }

    #[tokio::test]
    async fn a_node_id_counts_only_where_a_node_has_it_as_its_provider_id_or_its_name() {
        let (mine, foreign) = (vm("g", "n0"), vm("g", "database"));
        let nodes = nodes(known([("n0", of_vm(mine.clone()))]));
        nodes.check_is_of_cluster(mine.as_str(), &named(&mine)).unwrap();
        nodes.check_is_of_cluster("N0", &named(&mine)).unwrap();
        let error = nodes.check_is_of_cluster("database", &named(&foreign)).unwrap_err();
        assert_eq!(error.fault, Fault::NotFound);
        assert!(error.to_string().contains("no Node has this name"), "{error}");
        Nodes::new("s", "g", watch::channel(ClusterNodes::NoCluster).1)
            .check_is_of_cluster("any", &named(&foreign))
            .unwrap();
        let error = nodes.check_is_of_cluster(foreign.as_str(), &named(&foreign)).unwrap_err();
        assert_eq!(error.fault, Fault::NotFound);
        assert!(error.to_string().contains("no Node has the providerID"), "{error}");
    }
}
