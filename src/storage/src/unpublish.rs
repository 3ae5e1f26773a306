//! Which machines a disk must leave when a node is unpublished whose machine is not certain.
//!
//! A Node that is deleted takes its provider ID along. A replica without memory can then only guess: the node is the VM
//! of its name. The guess may be missing although the node's machine runs under another name or in another resource
//! group, and it may meet another VM of that name. So the machines that hold the disk say whether it is detached: each
//! of them is the node's, certainly another's, or may be the node's. An answer OK to a disk that the node's machine
//! still holds lets the disk be attached elsewhere and be written twice.
//!
//! A Node may also be created again under its name on another machine, while the one before is only stopped and holds the
//! disk. A VolumeAttachment names a node and no machine, so its detach is about each machine that a Node of this name named:
//! the disk leaves the one before too. Whatever runs there, Kubernetes has no node of it any more that would use the disk.
//! Where another Node names that machine too, or named it, the disk may be there for that Node. It leaves only where no
//! VolumeAttachment of that Node names it; else the request waits ([`crate::shared_machine`]).

use lazuli_model::{
    ArmId, Disk, DiskId, Vm,
    node::{ClusterNodes, Place},
};

use crate::{
    lun::LunReservations,
    shared_machine::{other_users, owner},
};

/// How the VM of a node is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeVm {
    /// The Node's provider ID or the node id itself names it: no other VM is the node.
    Named,
    /// It is a guess.
    Guessed,
}

/// What becomes of a machine that holds the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is the node's: the disk must leave it.
    Detach,
    /// It is not the node's, or it does not exist.
    Leave,
    /// It may be the node's: the request must not be answered OK.
    Unknown,
}

/// Whether a VM is the node of this name, by its VM name or its computer name.
pub fn is_machine(vm: &Vm, node: &str) -> bool {
    names(vm).any(|name| name.eq_ignore_ascii_case(node))
}

fn names(vm: &Vm) -> impl Iterator<Item = &str> {
    vm.computer_name.as_deref().into_iter().chain([vm.id.name()])
}

/// Whether the disk's own state must be read singly before a detach from `vm`, which is taken for the node, is answered OK:
/// the VM is a guess, and no Node of this name makes it more; or a Node of this name names another
/// machine, or was seen to.
pub fn needs_holders(known: NodeVm, cluster: &ClusterNodes, node: &str, vm: &ArmId) -> bool {
    let is_certain = || match cluster.place(node) {
        Some(Place::Shared { .. }) => false,
        _ => cluster.has_node(node),
    };
    let names_another = matches!(cluster.place(node), Some(Place::Named(machine)) if machine.id() != vm);
    known == NodeVm::Guessed && !is_certain()
        || names_another
        || cluster.former_machines(node).into_iter().any(|former| former != vm)
}

/// Whether the detach from a VM that was a guess leaves no doubt about the machines that hold the disk afterwards: none of
/// them is the node's. `before` is the disk by a single read that was sent after the request came and before the detach;
/// `vm` is the VM that the disk has left, by a single read.
///
/// One VM at most holds a disk that is not shared. So whichever machine holds it after the detach has got it since, from
/// another hand. A shared disk may be on other machines before, as those of another cluster. There the VM that has the
/// node's name and had the disk is the node's.
///
/// A machine that a Node of this name named before is one that the disk must leave too.
pub fn leaves_no_doubt<I>(before: &Disk<I>, vm: &Vm, node: &str, cluster: &ClusterNodes) -> bool {
    let holders = before.holders();
    if cluster.former_machines(node).into_iter().any(|former| *former != vm.id && holders.contains(&former)) {
        return false;
    }
    holders.contains(&&vm.id) && (before.max_shares <= 1 && holders.len() == 1 || is_machine(vm, node))
}

/// The machines that hold the disk beside the node's VM, which it has left or which is gone.
pub fn other_holders<'a, I>(disk: &'a Disk<I>, vm: &ArmId) -> Vec<&'a ArmId> {
    disk.holders().into_iter().filter(|holder| *holder != vm).collect()
}

/// What is known of the node from which a disk is to be detached.
#[derive(Debug, Clone, Copy)]
pub struct Detach<'a> {
    /// The disk.
    pub disk: &'a DiskId,
    /// The node's name.
    pub node: &'a str,
    /// How its VM is known.
    pub known: NodeVm,
    /// The cluster's Nodes.
    pub cluster: &'a ClusterNodes,
    /// The cluster's VolumeAttachments.
    pub attachments: &'a LunReservations,
}

/// What becomes of a machine that holds the disk, by a single read of it; `None` where it does not exist. It is not the
/// VM of the node that the disk has left, or that is gone.
///
/// Where the Node, or the node id itself, named that VM ([`NodeVm::Named`]), the names of another machine say nothing: a
/// VM that merely has the node's name is left. It is the node only where a Node of this name names it or named it.
pub fn holder(detach: Detach<'_>, holder: Option<&Vm>) -> Verdict {
    let Detach { disk, node, known, cluster, attachments } = detach;
    let Some(vm) = holder else { return Verdict::Leave };
    let names_it = cluster.names_of(&vm.id);
    let is_node = |name: &str| name.eq_ignore_ascii_case(node);
    let owner = match names_it.as_slice() {
        [name] => Some(*name),
        several => owner(&vm.id, Some(vm), several),
    };
    if owner.is_some_and(is_node) {
        return Verdict::Detach;
    }
    let names_ever = cluster.names_ever_of(&vm.id);
    if names_ever.iter().any(|name| is_node(name)) {
        return match other_users(node, names_ever, disk, attachments).as_slice() {
            [] => Verdict::Detach,
            _ => Verdict::Unknown,
        };
    }
    match (owner, names_it.as_slice(), known) {
        // Its own VolumeAttachment is about it.
        (Some(_), ..) => return Verdict::Leave,
        (None, [], _) => {}
        // Which of these Nodes it is, and whether it is any of them, is not known.
        (None, _, NodeVm::Guessed) => return Verdict::Unknown,
        (None, _, NodeVm::Named) => return Verdict::Leave,
    }
    let is_another_node = || names(vm).any(|name| cluster.has_node_without_machine(name));
    match (known, cluster) {
        (NodeVm::Named, _) => Verdict::Leave,
        (NodeVm::Guessed, _) if is_machine(vm, node) => Verdict::Detach,
        // Nothing but its name makes a VM a node there.
        (NodeVm::Guessed, ClusterNodes::NoCluster) => Verdict::Leave,
        (NodeVm::Guessed, _) if is_another_node() => Verdict::Leave,
        (NodeVm::Guessed, _) => Verdict::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lun::Reservation;
    use lazuli_model::{
        Lun, ProvisioningState,
        node::{KnownNodes, Machine, Node},
    };

    fn id(group: &str, name: &str) -> ArmId {
        ArmId::virtual_machine("s", group, name).unwrap()
    }

    fn vm(id: ArmId, computer_name: Option<&str>) -> Vm {
        Vm {
            id,
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

    fn on(machine: Option<ArmId>) -> Node {
        Node { machine: machine.and_then(Machine::of_id), healthy: true, ..Node::default() }
    }

    fn known(nodes: &[(&str, Option<ArmId>)]) -> KnownNodes {
        let mut known = KnownNodes::default();
        known.replace(nodes.iter().map(|(name, machine)| ((*name).to_owned(), on(machine.clone()))));
        known
    }

    fn cluster(nodes: &[(&str, Option<ArmId>)]) -> ClusterNodes {
        ClusterNodes::Known(known(nodes))
    }

    fn disk() -> DiskId {
        DiskId::from(ArmId::disk("s", "g", "d0").unwrap())
    }

    /// VolumeAttachments of the disk that name a LUN, on these nodes.
    fn recorded(nodes: &[&str]) -> LunReservations {
        let reservation = |node: &str| Reservation {
            lun: Lun::try_from(0).unwrap(),
            volume_handle: Some(disk().to_string()),
            attachment: format!("csi-{node}"),
        };
        LunReservations::Synced(nodes.iter().map(|node| ((*node).to_owned(), vec![reservation(node)])).collect())
    }

    fn verdict(node: &str, known: NodeVm, cluster: &ClusterNodes, used_by: &[&str], machine: Option<&Vm>) -> Verdict {
        let (disk, attachments) = (disk(), recorded(used_by));
        holder(Detach { disk: &disk, node, known, cluster, attachments: &attachments }, machine)
    }

    #[test]
    fn a_holder_that_may_be_the_deleted_nodes_machine_is_never_left_with_an_ok() {
        use {NodeVm::*, Verdict::*};
        let others = cluster(&[("other", Some(id("far", "vm-7"))), ("plain", None), ("twin", Some(id("g", "old")))]);
        let strange = || vm(id("far", "vm-9"), Some("host-9"));
        for (case, known, nodes, machine, expected) in [
            ("no machine", Guessed, &others, None, Leave),
            ("an unknown machine", Guessed, &others, Some(strange()), Unknown),
            ("the same, with the node's VM named", Named, &others, Some(strange()), Leave),
            ("the same, without a cluster", Guessed, &ClusterNodes::NoCluster, Some(strange()), Leave),
            ("while the Nodes are not known", Guessed, &ClusterNodes::Cold, Some(strange()), Unknown),
            ("its VM name", Guessed, &others, Some(vm(id("far", "OLD"), None)), Detach),
            ("its computer name", Guessed, &others, Some(vm(id("far", "vm-9"), Some("Old"))), Detach),
            // The Node that was asked about names another machine, which the disk has left or which is gone.
            ("its VM name, with its VM named", Named, &others, Some(vm(id("far", "old"), None)), Leave),
            ("its computer name, with its VM named", Named, &others, Some(vm(id("far", "vm-9"), Some("old"))), Leave),
            ("another Node's machine", Guessed, &others, Some(vm(id("far", "vm-7"), Some("host"))), Leave),
            ("another Node's machine of its name", Guessed, &others, Some(vm(id("g", "old"), None)), Leave),
            ("the VM of another Node's name", Guessed, &others, Some(vm(id("far", "plain"), None)), Leave),
            // That Node's machine is another one, so the name says nothing.
            (
                "the VM name of a Node whose machine is known",
                Guessed,
                &others,
                Some(vm(id("far", "other"), None)),
                Unknown,
            ),
            ("the computer of another Node's name", Guessed, &others, Some(vm(id("far", "v"), Some("plain"))), Leave),
        ] {
            assert_eq!(verdict("old", known, nodes, &[], machine.as_ref()), expected, "{case}");
        }
    }

    #[test]
    fn a_machine_that_two_nodes_name_is_left_only_where_the_node_named_another_one() {
        use {NodeVm::*, Verdict::*};
        let machine = id("far", "vm-9");
        let both = || known(&[("a", Some(machine.clone())), ("b", Some(machine.clone()))]);
        let (shared, held) = (ClusterNodes::Known(both()), vm(machine.clone(), None));
        for (node, known, used_by, expected) in [
            ("old", Guessed, &[][..], Unknown),
            ("old", Named, &[], Leave),
            ("a", Named, &["b"], Unknown),
            ("B", Guessed, &["a"], Unknown),
            ("B", Guessed, &["b"], Detach),
        ] {
            assert_eq!(verdict(node, known, &shared, used_by, Some(&held)), expected, "{node} {known:?} {used_by:?}");
        }
        let owned = vm(machine.clone(), Some("a"));
        for (node, known, used_by, expected) in
            [("a", Guessed, &["b"][..], Detach), ("b", Guessed, &["a"], Unknown), ("old", Guessed, &[], Leave)]
        {
            assert_eq!(verdict(node, known, &shared, used_by, Some(&owned)), expected, "the VM of Node a: {node}");
        }
        type Change = fn(&mut KnownNodes, &ArmId);
        let changes: [(&str, Change); 3] = [
            ("its deletion was seen", |nodes, _| assert!(nodes.remove("b"))),
            ("and the Nodes were listed since", |nodes, machine| {
                nodes.remove("b");
                nodes.replace([("a".to_owned(), on(Some(machine.clone())))]);
            }),
            ("a list lacks it", |nodes, machine| nodes.replace([("a".to_owned(), on(Some(machine.clone())))])),
        ];
        for (case, change) in changes {
            let mut nodes = both();
            change(&mut nodes, &machine);
            let one_left = ClusterNodes::Known(nodes);
            for (node, used_by, expected) in
                [("b", &["a"][..], Unknown), ("b", &["b"], Detach), ("a", &["a"], Detach), ("old", &["a"], Leave)]
            {
                assert_eq!(verdict(node, Guessed, &one_left, used_by, Some(&held)), expected, "{case}: {node}");
            }
        }
    }

    #[test]
    fn a_disk_leaves_the_machine_that_a_node_of_the_name_named_before() {
        use {NodeVm::*, Verdict::*};
        let (first, second) = (id("far", "vm-1"), id("far", "vm-2"));
        let held = vm(first.clone(), Some("host-1"));
        let mut nodes = known(&[("n", Some(first.clone()))]);
        nodes.remove("n");
        nodes.apply("n", on(Some(second.clone())));
        let again = ClusterNodes::Known(nodes.clone());
        assert!(needs_holders(Named, &again, "N", &second));
        assert_eq!(verdict("N", Named, &again, &["n"], Some(&held)), Detach);
        nodes.replace([]);
        let gone = ClusterNodes::Known(nodes.clone());
        assert_eq!(["n", "x"].map(|node| needs_holders(Named, &gone, node, &second)), [true, false]);
        for known in [Named, Guessed] {
            assert_eq!(verdict("n", known, &gone, &["n"], Some(&held)), Detach, "{known:?}");
        }
        // The disk may be there for another Node that names the machine since.
        nodes.apply("m", on(Some(first)));
        let taken = ClusterNodes::Known(nodes);
        for (used_by, expected) in [(&["n"][..], Detach), (&["n", "m"], Unknown), (&["m"], Unknown)] {
            assert_eq!(verdict("n", Named, &taken, used_by, Some(&held)), expected, "{used_by:?}");
        }
    }

    #[test]
    fn a_disk_that_the_guessed_vm_had_leaves_no_doubt_unless_it_is_shared_and_the_vm_has_another_name() {
        let (old, rescue) = (id("g", "old"), id("far", "rescue"));
        let disk = |max_shares: u32, holders: &[&ArmId]| Disk::<ArmId> {
            max_shares,
            managed_by: holders.first().map(|holder| (*holder).clone()),
            managed_by_extended: if max_shares > 1 {
                holders.iter().map(|holder| (*holder).clone()).collect()
            } else {
                Vec::new()
            },
            ..Disk::unattached("d0")
        };
        for (case, before, node, expected) in [
            ("it had the disk", disk(1, &[&old]), "old", true),
            ("it had the disk under another name", disk(1, &[&old]), "node-7", true),
            ("it was elsewhere before", disk(1, &[&rescue]), "old", false),
            ("it was nowhere before", disk(1, &[]), "old", false),
            ("it had the shared disk", disk(2, &[&rescue, &old]), "OLD", true),
            ("it had the shared disk alone", disk(2, &[&old]), "old", true),
            ("it had the shared disk under another name", disk(2, &[&old, &rescue]), "node-7", false),
            ("another cluster had the shared disk alone", disk(2, &[&rescue]), "old", false),
        ] {
            let nodes = ClusterNodes::NoCluster;
            assert_eq!(leaves_no_doubt(&before, &vm(old.clone(), None), node, &nodes), expected, "{case}");
        }
        let host = vm(old.clone(), Some("node-7"));
        let nodes = ClusterNodes::NoCluster;
        assert!(
            leaves_no_doubt(&disk(2, &[&old, &rescue]), &host, "node-7", &nodes),
            "its computer name is the node's"
        );
        let mut nodes = known(&[("node-7", Some(rescue.clone()))]);
        nodes.replace([("node-7".to_owned(), on(Some(old.clone())))]);
        let nodes = ClusterNodes::Known(nodes);
        let case = "the other holder is the node's machine of before";
        assert!(!leaves_no_doubt(&disk(2, &[&old, &rescue]), &host, "node-7", &nodes), "{case}");
    }

    #[test]
    fn only_a_guess_without_a_node_costs_a_read_of_the_disk() {
        let twin = Some(id("g", "twin"));
        let nodes = cluster(&[("there", None), ("a", twin.clone()), ("b", twin)]);
        for (known, nodes, node, expected) in [
            (NodeVm::Guessed, &nodes, "a", true),
            (NodeVm::Named, &nodes, "b", false),
            (NodeVm::Guessed, &nodes, "gone", true),
            (NodeVm::Guessed, &nodes, "there", false),
            (NodeVm::Named, &nodes, "gone", false),
            (NodeVm::Guessed, &ClusterNodes::NoCluster, "gone", false),
        ] {
            assert_eq!(needs_holders(known, nodes, node, &id("g", node)), expected, "{known:?} {node}");
        }
    }
}
