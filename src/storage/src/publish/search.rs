//! The machine of a node's name, and the machines beside one that is missing.

use std::{sync::Arc, time::Duration};

use lazuli_engine::single::AzureFailure;
use lazuli_model::{ArmId, Vm, fault::Fault};

use super::{Call, Context, Event, Failure, MachineList, Next, Turn, Why, WorkFailure, scale_set_of};
use crate::calls::unexpected;
use crate::unpublish::is_machine;

/// What a search has found.
#[derive(Debug)]
pub(super) enum Found {
    /// The node's VM.
    Vm(ArmId),
    /// None of these VMs is the node.
    Absent(Arc<Vec<Vm>>),
}

/// Looks through the VMs of the cluster's resource group for the one whose machine has the node's name; for a Node also for
/// the instance of a scale set, of which others have many that are no nodes. The list may be a moment old: a VM that was made
/// since runs no node yet.
#[derive(Debug)]
pub(super) enum Search {
    Listing(MachineList),
    /// None of these VMs is the node.
    Instance(Arc<Vec<Vm>>),
}

impl Search {
    pub(super) fn begin(cx: &Context<'_, '_>) -> (Self, Call) {
        let home = &cx.env.policy.home;
        let of = MachineList::group(&home.subscription, &home.name);
        (Self::Listing(of.clone()), Call::List { of, not_before: None })
    }

    /// # Errors
    /// [`Fault::Conflict`] when several VMs match; Azure's own failures.
    pub(super) fn next<E: AzureFailure, W: WorkFailure>(
        &mut self,
        cx: &mut Context<'_, '_>,
        event: Event<E, W>,
    ) -> Turn<Found, E, W> {
        match (&*self, event) {
            (Self::Listing(of), Event::Listed(list)) => {
                let (_, vms) = list.map_err(|error| Failure::azure(Why::Unlisted(of.clone()), error))?;
                match matching(&vms, &cx.of.node).as_slice() {
                    [vm] => Ok(Next::Done(found(cx, &vm.id))),
                    [] if !cx.env.cluster.has_node(&cx.of.node) => Ok(Next::Done(Found::Absent(vms))),
                    [] => {
                        *self = Self::Instance(vms);
                        Ok(Next::Call(Call::FindInstance(cx.node())))
                    }
                    several => {
                        let vms = several.iter().map(|vm| vm.id.clone()).collect();
                        Err(Failure::refused(Fault::Conflict, Why::SeveralVms { node: cx.node(), vms }))
                    }
                }
            }
            (Self::Instance(others), Event::Instance(instance)) => {
                let instance = instance.map_err(|error| Failure::azure(Why::ScaleSetsUnreadable(cx.node()), error))?;
                Ok(Next::Done(match instance {
                    Some(vm) => found(cx, &vm.id),
                    None => Found::Absent(others.clone()),
                }))
            }
            (at, event) => unexpected(&at, &event),
        }
    }
}

fn found(cx: &mut Context<'_, '_>, vm: &ArmId) -> Found {
    cx.env.nodes.learn(&cx.of.node, vm);
    Found::Vm(vm.clone())
}

/// The VMs that have the node's name: by their own, else by their computer names. VM names are unique in a resource group,
/// computer names are not.
fn matching<'a>(vms: &'a [Vm], node: &str) -> Vec<&'a Vm> {
    let of_its_name = |vm: &&Vm| vm.id.name().eq_ignore_ascii_case(node);
    let mut found: Vec<&Vm> = vms.iter().filter(|vm| is_machine(vm, node)).collect();
    if found.iter().any(of_its_name) {
        found.retain(of_its_name);
    }
    found
}

/// Lists the machines beside one that is missing: the VMs of its resource group, or the instances of its scale set. Where the
/// scale set does not exist either, the VMs of the resource group are beside it.
#[derive(Debug)]
pub(super) enum Beside {
    ScaleSet { vm: ArmId, set: ArmId, not_before: Option<Duration> },
    Listing(MachineList),
}

impl Beside {
    pub(super) fn begin(vm: &ArmId, not_before: Option<Duration>) -> (Self, Call) {
        match scale_set_of(vm) {
            Some(set) => {
                let read = Call::ReadScaleSet { set: set.clone(), not_before };
                (Self::ScaleSet { vm: vm.clone(), set, not_before }, read)
            }
            None => Self::list(group_of(vm), not_before),
        }
    }

    fn list(of: MachineList, not_before: Option<Duration>) -> (Self, Call) {
        (Self::Listing(of.clone()), Call::List { of, not_before })
    }

    /// The machines, and a time before the list was sent.
    ///
    /// # Errors
    /// Azure's own failures.
    pub(super) fn next<E: AzureFailure, W: WorkFailure>(
        &mut self,
        event: Event<E, W>,
    ) -> Turn<(Duration, Arc<Vec<Vm>>), E, W> {
        match (&*self, event) {
            (Self::ScaleSet { vm, set, not_before }, Event::ScaleSet { exists, .. }) => {
                let exists = exists.map_err(|error| Failure::azure(Why::ScaleSetUnreadable(set.clone()), error))?;
                let of = if exists { MachineList::ScaleSet(set.clone()) } else { group_of(vm) };
                let (at, call) = Self::list(of, *not_before);
                *self = at;
                Ok(Next::Call(call))
            }
            (Self::Listing(of), Event::Listed(list)) => {
                list.map(Next::Done).map_err(|error| Failure::azure(Why::Unlisted(of.clone()), error))
            }
            (at, event) => unexpected(&at, &event),
        }
    }
}

fn group_of(vm: &ArmId) -> MachineList {
    MachineList::group(vm.subscription(), vm.resource_group())
}

#[cfg(test)]
mod tests {
    use lazuli_model::ProvisioningState;

    use super::*;

    #[test]
    fn a_vm_of_the_node_s_name_goes_before_machines_that_call_themselves_so() {
        let vm = |name: &str, computer_name: Option<&str>| Vm {
            id: ArmId::virtual_machine("s", "g", name).unwrap(),
            location: "local".into(),
            size: "Standard_D2s_v3".into(),
            zone: None,
            computer_name: computer_name.map(str::to_owned),
            provisioning_state: ProvisioningState::Succeeded,
            etag: None,
            system_disk: lazuli_model::SystemDisk::Managed,
            data_disks: Vec::new(),
        };
        let vms = [vm("n0", None), vm("vm-1", Some("N0")), vm("vm-2", Some("n2")), vm("vm-3", Some("n2"))];
        let names = |node: &str| matching(&vms, node).iter().map(|vm| vm.id.name()).collect::<Vec<_>>();
        assert_eq!(names("N0"), ["n0"]);
        assert_eq!(names("n2"), ["vm-2", "vm-3"]);
        assert_eq!(names("vm-1"), ["vm-1"]);
        assert!(names("n1").is_empty());
    }
}
