//! The VM of a node.
//!
//! Kubernetes identifies a node by its name, Azure a VM by its id. Usually the VM has the node's name and is in the
//! cluster's resource group. A VM with another name is found by its computer name (`osProfile.computerName`). A node id
//! that is an ARM id is the VM's id.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, WeakShared},
};
use lazuli_azure::error::ArmError;
use lazuli_plan::{
    fault::Fault,
    model::{ArmId, Vm},
};
use tokio::time::Instant;

use super::{VolumeError, client::Client};

/// How old the list of VMs may be in which a node is searched. Single reads of the VM and the disk prove the result.
const LIST_AGE: Duration = Duration::from_secs(2);

/// A list of VMs that is being read for several callers.
type WeakVmList = WeakShared<BoxFuture<'static, Result<Arc<Vec<Vm>>, ArmError>>>;

/// The nodes seen so far, in both directions.
#[derive(Clone)]
pub(crate) struct Nodes {
    subscription: String,
    resource_group: String,
    seen: Arc<Mutex<Seen>>,
    /// The list that was begun last, and when. It is dropped with its last caller.
    latest: Arc<Mutex<Option<(Instant, WeakVmList)>>>,
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

impl Nodes {
    pub(crate) fn new(subscription: &str, resource_group: &str) -> Self {
        Self {
            subscription: subscription.into(),
            resource_group: resource_group.into(),
            seen: Arc::default(),
            latest: Arc::default(),
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        // A change is two insertions. One of them alone does no harm.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where to look for a node: where it was found before, else the VM of its name.
    ///
    /// # Errors
    /// [`Fault::Invalid`] when the node id can be neither a name nor an ARM id.
    pub(crate) fn candidate(&self, node: &str) -> Result<ArmId, VolumeError> {
        if let Some(vm) = self.seen().vm_of.get(node) {
            return Ok(vm.clone());
        }
        let id = if node.starts_with('/') {
            node.parse()
        } else {
            ArmId::virtual_machine(&self.subscription, &self.resource_group, node)
        };
        id.map_err(|error| VolumeError::new(Fault::NotFound, format!("node {node:?} cannot be a VM: {error}")))
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

    /// The name of the node that a VM is: as Kubernetes spells it once it has been seen, else the VM's own.
    pub(crate) fn name_of(&self, vm: &ArmId) -> String {
        self.seen().name_of.get(vm).cloned().unwrap_or_else(|| vm.name().to_lowercase())
    }

    /// Searches the VMs of the resource group for a node, by VM name and computer name. The list may be up to
    /// [`LIST_AGE`] old: a VM that was made since runs no node yet.
    ///
    /// # Errors
    /// [`Fault::Conflict`] when several VMs match; Azure's own failures.
    pub(crate) async fn search(&self, client: &Client, node: &str) -> Result<Search, VolumeError> {
        let vms = self.list(client).await?;
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
            [] => Ok(Search::Absent(vms)),
            several => {
                let ids: Vec<String> = several.iter().map(|vm| vm.id.to_string()).collect();
                Err(VolumeError::new(
                    Fault::Conflict,
                    format!("node {node}: several VMs have this computer name: {}", ids.join(", ")),
                ))
            }
        }
    }

    /// The VMs of the cluster's resource group. Callers within [`LIST_AGE`] share one list.
    ///
    /// # Errors
    /// Azure's own failures.
    async fn list(&self, client: &Client) -> Result<Arc<Vec<Vm>>, VolumeError> {
        let list = {
            let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
            let fresh = latest.as_ref().filter(|(began, _)| began.elapsed() <= LIST_AGE);
            match fresh.and_then(|(_, list)| list.upgrade()) {
                Some(list) => list,
                None => {
                    let (client, group) = (client.clone(), (self.subscription.clone(), self.resource_group.clone()));
                    let read = async move { client.list_vms(&group.0, &group.1).await.map(Arc::new) };
                    let list = read.boxed().shared();
                    *latest = list.downgrade().map(|list| (Instant::now(), list));
                    list
                }
            }
        };
        list.await.map_err(|error| {
            VolumeError::azure(format!("the VMs of the resource group {} cannot be listed", self.resource_group), error)
        })
    }
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

/// Whether a VM is the node of this name, by its VM name or its computer name.
pub(crate) fn is_machine(vm: &Vm, node: &str) -> bool {
    vm.computer_name.as_deref().is_some_and(|name| name.eq_ignore_ascii_case(node))
        || vm.id.name().eq_ignore_ascii_case(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_the_vm_of_its_name_until_a_search_finds_another() {
        let nodes = Nodes::new("s", "g");
        let vm = nodes.candidate("Node-0").unwrap();
        assert_eq!(vm, ArmId::virtual_machine("s", "g", "node-0").unwrap());
        let other = ArmId::virtual_machine("s", "g", "vm7").unwrap();
        nodes.learn("Node-0", &other);
        assert_eq!(nodes.candidate("Node-0").unwrap(), other);
        assert_eq!(nodes.name_of(&other), "Node-0");
        nodes.forget("Node-0");
        assert_eq!(nodes.candidate("Node-0").unwrap(), vm);
        assert_eq!(nodes.name_of(&other), "vm7");
    }

    #[test]
    fn a_node_id_that_is_no_name_is_refused() {
        assert_eq!(Nodes::new("s", "g").candidate("a/b").unwrap_err().fault, Fault::NotFound);
        assert_eq!(Nodes::new("s", "g").candidate("").unwrap_err().fault, Fault::NotFound);
    }
}
