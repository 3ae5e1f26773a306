//! Which of several Nodes a machine is that they all name, and what becomes of a request for one of them.
//!
//! kubelet chooses the provider id of its own Node, so a node that was broken into may name the machine of another one. A
//! node cannot choose the name of its Node, nor the name or the computer name of another node's VM. So the one of these
//! Nodes that has a name of the VM is the VM, and the others are not. Where none or several of them have one, which of them
//! it is stays unknown.
//!
//! A disk may have been attached to the machine for any of these Nodes, also for one that the machine is not: that Node may
//! have been the only one that named it. So a detach for any of them is carried out there, unless the VolumeAttachment of
//! another one of them names the disk: then it is there for that Node.

use lazuli_model::{ArmId, DiskId, Vm};

use crate::lun::LunReservations;

/// What a request for a Node is about that names the same machine as other Nodes.
#[derive(Debug, Clone, Copy)]
pub enum Request<'a> {
    /// To attach a disk.
    Attach,
    /// To detach this disk.
    Detach(&'a DiskId, &'a LunReservations),
}

/// What becomes of such a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The machine is this Node.
    IsNode,
    /// The disk must leave the machine, and any other that may be the Node.
    Leave,
    /// The request is refused.
    Refused {
        /// The Node that the machine is, where that is known.
        owner: Option<String>,
        /// The other Nodes for which the disk may be attached to it.
        users: Vec<String>,
    },
}

/// The one of several Nodes that has the name or the computer name of the machine. `vm` is the machine by a single read;
/// `None` where it does not exist.
pub fn owner<'a>(machine: &ArmId, vm: Option<&Vm>, nodes: &[&'a str]) -> Option<&'a str> {
    let computer_name = vm.and_then(|vm| vm.computer_name.as_deref());
    let is_named = |node: &&&str| {
        machine.name().eq_ignore_ascii_case(node) || computer_name.is_some_and(|name| name.eq_ignore_ascii_case(node))
    };
    let mut named = nodes.iter().filter(is_named);
    named.next().filter(|_| named.next().is_none()).copied()
}

/// Of these Nodes, those other than `node` for which a VolumeAttachment may hold the disk on the machine.
pub fn other_users<'a>(
    node: &str,
    nodes: impl IntoIterator<Item = &'a str>,
    disk: &DiskId,
    attachments: &LunReservations,
) -> Vec<&'a str> {
    // Without VolumeAttachments to look at, nothing says that the disk is there for none of them.
    let may_use = |other: &&str| *attachments == LunReservations::NoCluster || attachments.may_name(other, disk);
    nodes.into_iter().filter(|other| !other.eq_ignore_ascii_case(node)).filter(may_use).collect()
}

/// What becomes of a request for a Node. `nodes` are all the Nodes that name the machine; `vm` as in [`owner`].
///
/// One read that does not find the machine is no proof that it is gone, and its computer name may be another Node's. So the
/// owner is then not known to a detach, and the VolumeAttachments decide.
pub fn decide(node: &str, machine: &ArmId, vm: Option<&Vm>, nodes: &[&str], request: Request<'_>) -> Decision {
    let owner = match (request, vm) {
        (Request::Detach(..), None) => None,
        (Request::Attach, _) | (_, Some(_)) => owner(machine, vm, nodes),
    };
    if owner.is_some_and(|owner| owner.eq_ignore_ascii_case(node)) {
        return Decision::IsNode;
    }
    let users = match request {
        Request::Attach => Vec::new(),
        Request::Detach(disk, attachments) => {
            let users = other_users(node, nodes.iter().copied(), disk, attachments);
            if users.is_empty() {
                return Decision::Leave;
            }
            users.into_iter().map(str::to_owned).collect()
        }
    };
    Decision::Refused { owner: owner.map(str::to_owned), users }
}

#[cfg(test)]
mod tests {
    use lazuli_model::{Lun, ProvisioningState};

    use super::*;
    use crate::lun::Reservation;

    fn machine() -> ArmId {
        ArmId::virtual_machine("s", "g", "vm-1").unwrap()
    }

    fn vm(computer_name: Option<&str>) -> Vm {
        Vm {
            id: machine(),
            location: "local".into(),
            size: "Standard_D2s_v3".into(),
            zone: None,
            computer_name: computer_name.map(str::to_owned),
            provisioning_state: ProvisioningState::Succeeded,
            etag: None,
            system_disk: lazuli_model::SystemDisk::Managed,
            data_disks: Vec::new(),
        }
    }

    #[test]
    fn of_several_nodes_that_name_a_machine_it_is_the_only_one_that_has_its_name() {
        for (case, computer_name, nodes, expected) in [
            ("its VM name", None, &["rogue", "vm-1"][..], Some("vm-1")),
            ("its VM name in other letters", None, &["VM-1", "rogue"], Some("VM-1")),
            ("its computer name", Some("Worker-9"), &["rogue", "worker-9"], Some("worker-9")),
            ("both names are one Node's", Some("vm-1"), &["rogue", "vm-1"], Some("vm-1")),
            ("the names are of two Nodes", Some("worker-9"), &["vm-1", "worker-9"], None),
            ("no Node has one of them", Some("worker-9"), &["rogue", "thief"], None),
            ("a part of a name", Some("worker-9"), &["vm-", "vm-11", "worker"], None),
        ] {
            assert_eq!(owner(&machine(), Some(&vm(computer_name)), nodes), expected, "{case}");
        }
        assert_eq!(owner(&machine(), None, &["rogue", "vm-1"]), Some("vm-1"), "a machine that is gone has its id");
    }

    #[test]
    fn a_disk_leaves_a_machine_for_a_node_that_it_is_not_only_where_no_other_one_may_use_it_there() {
        let disk = DiskId::from(ArmId::disk("s", "g", "d0").unwrap());
        let recorded = |nodes: &[&str]| {
            let reservation = |node: &str| Reservation {
                lun: Lun::try_from(0).unwrap(),
                volume_handle: Some(disk.to_string()),
                attachment: format!("csi-{node}"),
            };
            LunReservations::Synced(nodes.iter().map(|node| ((*node).to_owned(), vec![reservation(node)])).collect())
        };
        let (none, of_rogue, of_both) = (recorded(&[]), recorded(&["rogue"]), recorded(&["rogue", "vm-1"]));
        let refused = |owner: Option<&str>, users: &[&str]| Decision::Refused {
            owner: owner.map(str::to_owned),
            users: users.iter().map(|user| (*user).to_owned()).collect(),
        };
        let (named, unnamed) = (["rogue", "vm-1"], ["rogue", "thief"]);
        let detach = |attachments| Request::Detach(&disk, attachments);
        for (case, node, nodes, request, expected) in [
            ("an attach to the machine", "VM-1", &named, Request::Attach, Decision::IsNode),
            ("an attach to another Node", "rogue", &named, Request::Attach, refused(Some("vm-1"), &[])),
            ("an attach to neither", "rogue", &unnamed, Request::Attach, refused(None, &[])),
            ("a detach from the machine", "vm-1", &named, detach(&of_both), Decision::IsNode),
            ("the machine does not use it", "rogue", &named, detach(&of_rogue), Decision::Leave),
            ("the machine uses it", "rogue", &named, detach(&of_both), refused(Some("vm-1"), &["vm-1"])),
            ("no other Node uses it", "ROGUE", &unnamed, detach(&none), Decision::Leave),
            ("another one uses it", "thief", &unnamed, detach(&of_rogue), refused(None, &["rogue"])),
            ("not known yet", "thief", &unnamed, detach(&LunReservations::Cold), refused(None, &["rogue"])),
            ("nothing to look at", "thief", &unnamed, detach(&LunReservations::NoCluster), refused(None, &["rogue"])),
        ] {
            assert_eq!(decide(node, &machine(), Some(&vm(None)), nodes, request), expected, "{case}");
        }
        // A machine that is not found may have the computer name of another Node.
        for (case, node, attachments, expected) in [
            ("another Node uses it", "vm-1", &of_rogue, refused(None, &["rogue"])),
            ("both use it", "vm-1", &of_both, refused(None, &["rogue"])),
            ("no other Node uses it", "vm-1", &none, Decision::Leave),
        ] {
            assert_eq!(decide(node, &machine(), None, &named, detach(attachments)), expected, "not found, {case}");
        }
        assert_eq!(
            decide("vm-1", &machine(), None, &named, Request::Attach),
            Decision::IsNode,
            "its attach fails anyway"
        );
    }
}
