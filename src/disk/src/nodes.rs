//! Which VM a node is.
//!
//! Kubernetes knows a node by its name, Azure a VM by its id. Usually the VM of the cluster's resource group that has
//! the node's name is the one; where VM and machine have different names, the name the machine gives itself tells.
//! A node id that is an ARM id speaks for itself.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use lazuli_plan::{
    fault::Fault,
    model::{ArmId, Vm},
};

use super::{VolumeError, client::Client};

/// The nodes seen so far, in both directions.
#[derive(Debug, Clone)]
pub(crate) struct Nodes {
    subscription: String,
    resource_group: String,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    vm_of: BTreeMap<String, ArmId>,
    /// The node's name exactly as Kubernetes spells it: external-attacher compares it byte by byte.
    name_of: BTreeMap<ArmId, String>,
}

impl Nodes {
    pub(crate) fn new(subscription: &str, resource_group: &str) -> Self {
        Self { subscription: subscription.into(), resource_group: resource_group.into(), seen: Arc::default() }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        // Every change is a pair of insertions whose halves are each harmless alone.
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

    /// Takes note of a node that was found.
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

    /// Looks through the VMs of the resource group for the one whose machine has the node's name.
    ///
    /// # Errors
    /// [`Fault::NotFound`] when none has; Azure's own failures.
    pub(crate) async fn search(&self, client: &Client, node: &str) -> Result<ArmId, VolumeError> {
        let vms = self.list(client).await?;
        let of_its_name = |vm: &&Vm| vm.id.name().eq_ignore_ascii_case(node);
        let mut found: Vec<&Vm> = vms.iter().filter(|vm| is_machine(vm, node)).collect();
        // The name of a VM is its own; what machines call themselves may be said twice.
        if found.iter().any(of_its_name) {
            found.retain(of_its_name);
        }
        match found.as_slice() {
            [vm] => {
                self.learn(node, &vm.id);
                Ok(vm.id.clone())
            }
            [] => Err(VolumeError::new(
                Fault::NotFound,
                format!("node {node}: no VM of the resource group {} has this name", self.resource_group),
            )),
            several => {
                let ids: Vec<String> = several.iter().map(|vm| vm.id.to_string()).collect();
                Err(VolumeError::new(
                    Fault::Conflict,
                    format!("node {node}: several machines call themselves so: {}", ids.join(", ")),
                ))
            }
        }
    }

    /// The VMs of the cluster's resource group.
    ///
    /// # Errors
    /// Azure's own failures.
    pub(crate) async fn list(&self, client: &Client) -> Result<Vec<Vm>, VolumeError> {
        client.list_vms(&self.subscription, &self.resource_group).await.map_err(|error| {
            VolumeError::azure(format!("the VMs of the resource group {} cannot be listed", self.resource_group), error)
        })
    }
}

/// Whether a VM is the node of this name: by its own name, or by the one the machine gives itself.
pub(crate) fn is_machine(vm: &Vm, node: &str) -> bool {
    vm.computer_name.as_deref().is_some_and(|name| name.eq_ignore_ascii_case(node))
        || vm.id.name().eq_ignore_ascii_case(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_the_vm_of_its_name_until_it_was_found_elsewhere() {
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
