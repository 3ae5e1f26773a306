//! Which write a VM needs, given what is attached, wanted and leaving.
//!
//! The planner sees one VM as Azure last described it and everything that is wanted of it now. It answers with at
//! most one write and with what can be said at once. Disks that are neither wanted nor leaving are never touched by
//! it: they are somebody else's.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    fault::Fault,
    lun::{self, NodeReservations},
    model::{ArmId, CachingMode, DataDisk, Disk, DiskState, Lun, ProvisioningState, Vm},
    op::{Attachment, VmWrite, VmWriteMethod},
};

/// How a wanted disk is to be attached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// How the host caches it.
    pub caching: CachingMode,
    /// The disk encryption set to attach it with.
    pub disk_encryption_set: Option<ArmId>,
    /// Whether the write accelerator is on for it.
    pub write_accelerator: bool,
}

/// Everything that is wanted of one VM now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Disks that must be attached.
    pub attach: BTreeMap<ArmId, Terms>,
    /// Disks that must not be attached; none of them is in `attach`.
    pub detach: BTreeSet<ArmId>,
    /// Disks that must be attached, that the VM lists and, as they say themselves, does not hold ([`held`]): an
    /// attach failed and Azure left it in the model. None of them is in `attach` or `detach`.
    pub unheld: BTreeSet<ArmId>,
}

/// What can be said of a wanted disk without a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// It is attached.
    Attached {
        /// Its slot.
        lun: Lun,
    },
    /// It is not attached.
    Detached,
    /// Azure is still detaching it; it cannot be attached before it has left.
    StillLeaving,
    /// Azure failed to detach it, and a VolumeAttachment says that the node may be using it: it is neither taken away
    /// nor can it be attached.
    DetachFailed,
    /// The VM's size takes no more data disks.
    TooManyDisks {
        /// How many it takes.
        limit: usize,
        /// How many it has, ours and others'.
        attached: usize,
    },
    /// Every slot is occupied, or named by a VolumeAttachment.
    NoFreeLun,
    /// The VolumeAttachments are not known yet.
    ReservationsUnknown,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// What needs no write.
    pub settled: BTreeMap<ArmId, Settled>,
    /// The one write; empty when there is nothing to do.
    pub write: VmWrite,
    /// Disks that cannot come now and may after this write, because it takes others away, or them: plan again then.
    pub postponed: BTreeSet<ArmId>,
}

/// Plans one VM.
///
/// `limit` is the number of data disks the VM's size takes, everybody's together.
pub fn plan(vm: &Vm, wanted: &Wanted, reservations: &NodeReservations, limit: usize) -> Plan {
    debug_assert!(
        wanted.attach.keys().chain(&wanted.unheld).all(|disk| !wanted.detach.contains(disk)),
        "a disk cannot come and leave"
    );
    let mut plan = Plan {
        settled: BTreeMap::new(),
        write: VmWrite { vm: vm.id.clone(), attach: Vec::new(), detach: Vec::new(), reapply: Vec::new() },
        postponed: BTreeSet::new(),
    };

    for disk in &wanted.detach {
        match vm.data_disk(disk) {
            // An element that Azure already detaches is named again: the last attempt may have failed.
            Some(_) => plan.write.detach.push(disk.clone()),
            None => {
                plan.settled.insert(disk.clone(), Settled::Detached);
            }
        }
    }

    let mut coming = BTreeSet::new();
    for disk in wanted.attach.keys().chain(&wanted.unheld) {
        match vm.data_disk(disk) {
            Some(element) if element.to_be_detached => match leaving(vm, element, disk, reservations) {
                Some(settled) => {
                    plan.settled.insert(disk.clone(), settled);
                }
                None => {
                    plan.write.detach.push(disk.clone());
                    plan.postponed.insert(disk.clone());
                }
            },
            _ if wanted.unheld.contains(disk) => plan.write.reapply.push(disk.clone()),
            Some(element) => {
                plan.settled.insert(disk.clone(), Settled::Attached { lun: element.lun });
            }
            None => {
                coming.insert(disk.clone());
            }
        }
    }
    if coming.is_empty() {
        return plan;
    }

    let reserved = match reservations {
        NodeReservations::Known(reserved) => reserved,
        NodeReservations::Unknown => {
            plan.settled.extend(coming.into_iter().map(|disk| (disk, Settled::ReservationsUnknown)));
            return plan;
        }
    };
    // A slot that empties in this very write is not used in it: Azure may refuse the whole.
    let occupied: BTreeSet<Lun> = vm.data_disks.iter().map(|element| element.lun).collect();
    let room = limit.saturating_sub(vm.data_disks.len());
    let given = lun::allocate(&coming, &occupied, reserved);

    for disk in coming {
        let refusal = if plan.write.attach.len() == room {
            Settled::TooManyDisks { limit, attached: vm.data_disks.len() }
        } else if let Some(lun) = given.get(&disk) {
            let terms = &wanted.attach[&disk];
            plan.write.attach.push(Attachment {
                disk,
                lun: *lun,
                caching: terms.caching,
                disk_encryption_set: terms.disk_encryption_set.clone(),
                write_accelerator: terms.write_accelerator,
            });
            continue;
        } else {
            Settled::NoFreeLun
        };
        if plan.write.detach.is_empty() {
            plan.settled.insert(disk, refusal);
        } else {
            plan.postponed.insert(disk);
        }
    }
    plan.write.attach.sort_by_key(|attachment| attachment.lun);
    plan
}

/// What can be said of a disk that is wanted while Azure was told to detach it. Nothing when its detach failed, for
/// Azure does not try again by itself, and nobody uses it here: then it has to be detached first. Nobody does where no
/// VolumeAttachment says that it is attached here; an attachment whose volume cannot be told may be the disk's.
fn leaving(vm: &Vm, element: &DataDisk, disk: &ArmId, reservations: &NodeReservations) -> Option<Settled> {
    if vm.provisioning_state == ProvisioningState::InProgress {
        return Some(Settled::StillLeaving);
    }
    let NodeReservations::Known(reserved) = reservations else { return Some(Settled::ReservationsUnknown) };
    let in_use = reserved
        .iter()
        .any(|(lun, owners)| owners.contains(&Some(disk.clone())) || owners.contains(&None) && *lun == element.lun);
    in_use.then_some(Settled::DetachFailed)
}

/// Why a disk cannot be attached to a VM, by the disk's own state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unattachable {
    /// As many VMs hold it as may.
    HeldBy(Vec<ArmId>),
    /// It is being read, written or uploaded through a shared access signature.
    InUse(DiskState),
}

/// Whether the disk's own state allows it on this VM. Where Azure's state is new or contradicts itself the answer is
/// yes: Azure decides.
pub fn attachable(disk: &Disk, vm: &ArmId) -> Result<(), Unattachable> {
    let holders = disk.holders();
    let shares = usize::try_from(disk.max_shares.max(1)).unwrap_or(usize::MAX);
    if !holders.contains(&vm) && holders.len() >= shares {
        return Err(Unattachable::HeldBy(holders.into_iter().cloned().collect()));
    }
    match disk.state {
        Some(
            state @ (DiskState::ActiveSas
            | DiskState::ActiveSasFrozen
            | DiskState::ReadyToUpload
            | DiskState::ActiveUpload),
        ) => Err(Unattachable::InUse(state)),
        _ => Ok(()),
    }
}

/// Whether a VM that lists a disk holds it, as the disk itself says. A disk that names no holder and yet says that it
/// is attached is held: an Azure whose disks do not tell by whom is believed.
pub fn held(disk: &Disk, vm: &ArmId) -> bool {
    let holders = disk.holders();
    holders.contains(&vm) || holders.is_empty() && matches!(disk.state, Some(DiskState::Attached | DiskState::Reserved))
}

/// Whether it is certain that a VM does not hold a disk: the disk says that it is free, or names other holders only. What
/// says nothing, or something new, proves nothing.
pub fn certainly_unheld(disk: &Disk, vm: &ArmId) -> bool {
    let holders = disk.holders();
    match holders.is_empty() {
        true => disk.state == Some(DiskState::Unattached),
        false => !holders.contains(&vm),
    }
}

/// Whether everything asked of a VM needs a write, by a read of it that may be old: then that read may be the one before
/// the write, for Azure refuses what it does not allow. `requests` are disks, each with whether it is to be attached.
pub fn all_need_a_write<'a>(vm: &Vm, requests: impl IntoIterator<Item = (&'a ArmId, bool)>) -> bool {
    vm.provisioning_state == ProvisioningState::Succeeded
        && requests.into_iter().all(|(disk, attached)| match vm.data_disk(disk) {
            None => attached,
            Some(element) => !attached && !element.to_be_detached,
        })
}

/// What an owner does about a write that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaction {
    /// Read the VM again and plan again: somebody else was quicker, or the answer was lost.
    Regather,
    /// This Azure, or this identity, seems not to have the action: write the whole list this time, and from now on
    /// if that succeeds.
    WriteWholeList,
    /// One member spoils the batch: find it and let it fail alone.
    FindCulprit,
    /// Nothing about any member: every caller gets the failure.
    FailAll,
}

/// Chooses what to do about a failed write.
pub fn reaction(fault: &Fault, method: VmWriteMethod) -> Reaction {
    match fault {
        Fault::Conflict | Fault::PreconditionFailed | Fault::OutcomeUnknown => Reaction::Regather,
        // The action has an RBAC entry of its own, which roles made for the Go drivers lack; and an Azure that does
        // not know it may say so in its own way. The VM and the disks were read a moment ago, so "not found" is the
        // action, unless the whole list meets it too.
        Fault::Unsupported | Fault::Forbidden | Fault::NotFound | Fault::Malformed
            if method == VmWriteMethod::Action =>
        {
            Reaction::WriteWholeList
        }
        Fault::NotFound
        | Fault::AttachedElsewhere { .. }
        | Fault::BeingDetached
        | Fault::InUse
        | Fault::Invalid
        | Fault::Unclear
        | Fault::DiskLimit
        | Fault::Exhausted
        // The identity may write the VM, by this method and by any other: another list would name the same disk.
        | Fault::LinkedForbidden
        | Fault::OperationFailed => Reaction::FindCulprit,
        Fault::ScopeNotFound
        | Fault::Throttled { .. }
        | Fault::Locked
        | Fault::Forbidden
        | Fault::Unauthenticated
        | Fault::Unsupported
        | Fault::Unavailable
        | Fault::Deadline
        | Fault::Busy
        | Fault::Malformed => Reaction::FailAll,
    }
}

/// A set of disks of which at least one made a write fail, and how to find it: at most `log2(n)` further writes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Suspects(BTreeSet<ArmId>);

/// What a batch may hold while a culprit is looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Search {
    /// Nobody is suspected: everything may be written.
    Over,
    /// Only these may be written next.
    Try(BTreeSet<ArmId>),
    /// This is the one.
    Found(ArmId),
}

impl Suspects {
    /// Those that the next write may hold.
    pub fn next(&self) -> Search {
        match self.0.len() {
            0 => Search::Over,
            1 => Search::Found(self.0.first().expect("there is one").clone()),
            n => Search::Try(self.0.iter().take(n / 2).cloned().collect()),
        }
    }

    /// Whether a disk is suspected.
    pub fn contains(&self, disk: &ArmId) -> bool {
        self.0.contains(disk)
    }

    /// Takes note that a write of these disks failed because of one of them.
    pub fn failed(&mut self, members: BTreeSet<ArmId>) {
        self.0 = members;
    }

    /// Takes note that these disks are not to blame, or are gone from the batch.
    pub fn cleared(&mut self, members: &BTreeSet<ArmId>) {
        self.0.retain(|disk| !members.contains(disk));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{apply, model::DataDiskSource};
    use proptest::prelude::*;

    fn disk(n: u8) -> ArmId {
        ArmId::disk("s", "g", &format!("d{n:02}")).unwrap()
    }

    fn lun(n: u8) -> Lun {
        Lun::try_from(i64::from(n)).unwrap()
    }

    fn terms() -> Terms {
        Terms { caching: CachingMode::ReadOnly, disk_encryption_set: None, write_accelerator: false }
    }

    fn element(n: u8, lun_number: u8) -> DataDisk {
        DataDisk {
            lun: lun(lun_number),
            source: DataDiskSource::Managed(disk(n)),
            caching: CachingMode::ReadOnly,
            to_be_detached: false,
        }
    }

    fn vm(data_disks: Vec<DataDisk>) -> Vm {
        Vm {
            id: ArmId::virtual_machine("s", "g", "node-0").unwrap(),
            location: "westeurope".into(),
            size: "Standard_D8s_v3".into(),
            zone: None,
            computer_name: None,
            provisioning_state: ProvisioningState::Succeeded,
            etag: None,
            data_disks,
        }
    }

    fn wanted(attach: &[u8], detach: &[u8]) -> Wanted {
        Wanted {
            attach: attach.iter().map(|n| (disk(*n), terms())).collect(),
            detach: detach.iter().map(|n| disk(*n)).collect(),
            unheld: BTreeSet::new(),
        }
    }

    fn open() -> NodeReservations {
        NodeReservations::Known(BTreeMap::new())
    }

    #[test]
    fn an_attached_disk_needs_no_write() {
        let plan = plan(&vm(vec![element(1, 7)]), &wanted(&[1], &[]), &open(), 16);
        assert!(plan.write.is_empty());
        assert_eq!(plan.settled[&disk(1)], Settled::Attached { lun: lun(7) });
    }

    #[test]
    fn an_attached_disk_is_found_whatever_the_case_of_its_id() {
        let shouted: ArmId = disk(1).as_str().to_ascii_uppercase().parse().unwrap();
        let mut vm = vm(vec![element(1, 7)]);
        vm.data_disks[0].source = DataDiskSource::Managed(shouted);
        assert!(plan(&vm, &wanted(&[1], &[]), &open(), 16).write.is_empty());
        assert_eq!(plan(&vm, &wanted(&[], &[1]), &open(), 16).write.detach.len(), 1);
    }

    #[test]
    fn while_attachments_are_unknown_a_disk_may_leave_but_none_may_come() {
        let plan = plan(&vm(vec![element(1, 0)]), &wanted(&[2], &[1]), &NodeReservations::Unknown, 16);
        assert!(plan.write.attach.is_empty());
        assert_eq!(plan.write.detach, [disk(1)]);
        assert_eq!(plan.settled[&disk(2)], Settled::ReservationsUnknown);
    }

    #[test]
    fn foreign_disks_count_against_the_limit_and_keep_their_slots() {
        let foreign = DataDisk { source: DataDiskSource::Vhd("https://a/vhds/x.vhd".into()), ..element(0, 0) };
        let plan = plan(&vm(vec![foreign]), &wanted(&[1, 2], &[]), &open(), 2);
        assert_eq!(plan.write.attach.len(), 1);
        assert_eq!(plan.write.attach[0].lun, lun(1));
        assert_eq!(plan.settled[&disk(2)], Settled::TooManyDisks { limit: 2, attached: 1 });
    }

    #[test]
    fn a_disk_that_does_not_fit_waits_for_one_that_leaves() {
        let vm = vm(vec![element(1, 0)]);
        let first = plan(&vm, &wanted(&[2], &[1]), &open(), 1);
        assert_eq!(first.postponed, [disk(2)].into());
        let after = apply::vm_write(&vm, &first.write, VmWriteMethod::Action);
        let second = plan(&after, &wanted(&[2], &[1]), &open(), 1);
        assert_eq!(second.write.attach.len(), 1);
    }

    fn is_leaving(n: u8, lun_number: u8, state: ProvisioningState) -> Vm {
        let element = DataDisk { to_be_detached: true, ..element(n, lun_number) };
        Vm { provisioning_state: state, ..vm(vec![element]) }
    }

    #[test]
    fn a_leaving_disk_cannot_be_attached_and_can_be_told_to_leave_again() {
        let vm = is_leaving(1, 0, ProvisioningState::InProgress);
        assert_eq!(plan(&vm, &wanted(&[1], &[]), &open(), 16).settled[&disk(1)], Settled::StillLeaving);
        assert_eq!(plan(&vm, &wanted(&[], &[1]), &open(), 16).write.detach, [disk(1)]);
    }

    #[test]
    fn a_disk_whose_detach_failed_is_detached_first_when_it_is_wanted_again() {
        let vm = is_leaving(1, 0, ProvisioningState::Failed);
        for unheld in [false, true] {
            let wanted = match unheld {
                true => Wanted { unheld: [disk(1)].into(), ..wanted(&[], &[]) },
                false => wanted(&[1], &[]),
            };
            let first = plan(&vm, &wanted, &open(), 1);
            assert_eq!((&first.write.detach[..], first.write.attach.len()), (&[disk(1)][..], 0));
            assert_eq!(first.postponed, [disk(1)].into());
        }
        let first = plan(&vm, &wanted(&[1], &[]), &open(), 1).write;
        let after = apply::vm_write(&vm, &first, VmWriteMethod::WholeList);
        assert_eq!(plan(&after, &wanted(&[1], &[]), &open(), 1).write.attach.len(), 1);
    }

    #[test]
    fn a_disk_whose_detach_failed_stays_while_an_attachment_says_that_its_node_may_use_it() {
        let vm = is_leaving(1, 3, ProvisioningState::Failed);
        let reserved = |slot: u8, owners: &[u8]| {
            let owners = match owners {
                [] => [None].into(),
                owners => owners.iter().map(|n| Some(disk(*n))).collect(),
            };
            NodeReservations::Known([(lun(slot), owners)].into())
        };
        let settled = |reservations: &NodeReservations| {
            let plan = plan(&vm, &wanted(&[1], &[]), reservations, 16);
            plan.settled.get(&disk(1)).cloned()
        };
        assert_eq!(settled(&reserved(3, &[1])), Some(Settled::DetachFailed));
        assert_eq!(settled(&reserved(5, &[1])), Some(Settled::DetachFailed));
        // Whose attachment it is cannot be told.
        assert_eq!(settled(&reserved(3, &[])), Some(Settled::DetachFailed));
        assert_eq!(settled(&NodeReservations::Unknown), Some(Settled::ReservationsUnknown));
        assert_eq!(settled(&reserved(3, &[2])), None);
        assert_eq!(settled(&reserved(5, &[])), None);
    }

    #[test]
    fn a_disk_that_is_listed_and_not_held_keeps_its_slot_and_waits_for_any_write() {
        let vm = vm(vec![element(1, 0)]);
        let alone = Wanted { unheld: [disk(1)].into(), ..wanted(&[], &[]) };
        let plan_alone = plan(&vm, &alone, &NodeReservations::Unknown, 16);
        assert!(!plan_alone.write.is_empty() && plan_alone.write.says_nothing());
        assert_eq!(plan_alone.write.reapply, [disk(1)]);
        assert_eq!(apply::vm_write(&vm, &plan_alone.write, VmWriteMethod::Action), vm);
        let beside = Wanted { unheld: [disk(1)].into(), ..wanted(&[2], &[]) };
        let plan_beside = plan(&vm, &beside, &open(), 16);
        assert_eq!(plan_beside.write.attach[0].lun, lun(1));
        assert_eq!(plan_beside.write.reapply, [disk(1)]);
        assert!(plan_beside.settled.is_empty());
    }

    fn a_vm() -> impl Strategy<Value = Vm> {
        proptest::collection::btree_map(0u8..64, (0u8..40, any::<bool>(), any::<bool>()), 0..20).prop_map(|slots| {
            let mut seen = BTreeSet::new();
            let disks = slots
                .into_iter()
                .filter(|(_, (n, _, _))| seen.insert(*n))
                .map(|(slot, (n, foreign, leaving))| DataDisk {
                    source: if foreign {
                        DataDiskSource::Vhd(format!("https://a/vhds/{n}.vhd"))
                    } else {
                        DataDiskSource::Managed(disk(n))
                    },
                    to_be_detached: leaving && !foreign,
                    ..element(n, slot)
                })
                .collect();
            vm(disks)
        })
    }

    fn a_wish() -> impl Strategy<Value = Wanted> {
        proptest::collection::btree_map(0u8..60, any::<bool>(), 0..30).prop_map(|wish| {
            let (come, go): (Vec<_>, Vec<_>) = wish.into_iter().partition(|(_, come)| *come);
            let numbers = |list: Vec<(u8, bool)>| list.into_iter().map(|(n, _)| n).collect::<Vec<_>>();
            wanted(&numbers(come), &numbers(go))
        })
    }

    fn reservations() -> impl Strategy<Value = NodeReservations> {
        proptest::collection::btree_map(
            (0u8..64).prop_map(lun),
            proptest::collection::btree_set(proptest::option::of((0u8..60).prop_map(disk)), 1..3),
            0..20,
        )
        .prop_map(NodeReservations::Known)
    }

    /// Applies plans until one is empty, as an owner does.
    fn converge(mut vm: Vm, wanted: &Wanted, reservations: &NodeReservations, limit: usize) -> (Vm, Plan, usize) {
        for writes in 0..4 {
            let next = plan(&vm, wanted, reservations, limit);
            if next.write.is_empty() {
                return (vm, next, writes);
            }
            vm = apply::vm_write(&vm, &next.write, VmWriteMethod::Action);
        }
        panic!("no end after four writes");
    }

    fn shout(id: &ArmId) -> ArmId {
        id.as_str().to_ascii_uppercase().parse().unwrap()
    }

    proptest! {
        // The five laws.

        #[test]
        fn it_converges(vm in a_vm(), wanted in a_wish(), reservations in reservations(), limit in 0usize..64) {
            let (_, last, writes) = converge(vm, &wanted, &reservations, limit);
            prop_assert!(writes <= 2);
            prop_assert!(last.postponed.is_empty());
            for disk in &wanted.detach {
                prop_assert_eq!(&last.settled[disk], &Settled::Detached);
            }
            for disk in wanted.attach.keys() {
                prop_assert!(last.settled.contains_key(disk));
            }
        }

        #[test]
        fn it_leaves_alone_what_is_not_ours(vm in a_vm(), wanted in a_wish(), reservations in reservations(), limit in 0usize..64) {
            let (after, _, _) = converge(vm.clone(), &wanted, &reservations, limit);
            let ours = |e: &DataDisk| match &e.source {
                DataDiskSource::Managed(id) => wanted.attach.contains_key(id) || wanted.detach.contains(id),
                _ => false,
            };
            let foreign = |vm: &Vm| vm.data_disks.iter().filter(|e| !ours(e)).cloned().collect::<Vec<_>>();
            prop_assert_eq!(foreign(&vm), foreign(&after));
        }

        #[test]
        fn every_prefix_is_safe(vm in a_vm(), wanted in a_wish(), reservations in reservations(), limit in 0usize..64) {
            let plan = plan(&vm, &wanted, &reservations, limit);
            let NodeReservations::Known(reserved) = &reservations else { unreachable!() };
            // Any part of the write may have happened when we are killed.
            for attached in 0..=plan.write.attach.len() {
                for detached in 0..=plan.write.detach.len() {
                    let part = VmWrite {
                        vm: vm.id.clone(),
                        attach: plan.write.attach[..attached].to_vec(),
                        detach: plan.write.detach[..detached].to_vec(),
                        reapply: Vec::new(),
                    };
                    let after = apply::vm_write(&vm, &part, VmWriteMethod::Action);
                    let luns: BTreeSet<Lun> = after.data_disks.iter().map(|e| e.lun).collect();
                    prop_assert_eq!(luns.len(), after.data_disks.len(), "a slot holds two disks");
                    prop_assert!(after.data_disks.len() <= limit.max(vm.data_disks.len()));
                }
            }
            for new in &plan.write.attach {
                prop_assert!(!vm.data_disks.iter().any(|e| e.lun == new.lun));
                if let Some(owners) = reserved.get(&new.lun) {
                    prop_assert!(owners.len() == 1 && owners.contains(&Some(new.disk.clone())));
                }
            }
        }

        #[test]
        fn input_order_does_not_matter(vm in a_vm(), wanted in a_wish(), reservations in reservations(), limit in 0usize..64) {
            let mut reversed = vm.clone();
            reversed.data_disks.reverse();
            prop_assert_eq!(plan(&vm, &wanted, &reservations, limit), plan(&reversed, &wanted, &reservations, limit));
        }

        #[test]
        fn letter_case_makes_no_write(vm in a_vm(), wanted in a_wish(), reservations in reservations(), limit in 0usize..64) {
            let (after, last, _) = converge(vm, &wanted, &reservations, limit);
            let mut shouted = after.clone();
            for element in &mut shouted.data_disks {
                if let DataDiskSource::Managed(id) = &element.source {
                    element.source = DataDiskSource::Managed(shout(id));
                }
            }
            let wanted = Wanted {
                attach: wanted.attach.iter().map(|(id, terms)| (shout(id), terms.clone())).collect(),
                detach: wanted.detach.iter().map(shout).collect(),
                unheld: BTreeSet::new(),
            };
            let again = plan(&shouted, &wanted, &reservations, limit);
            prop_assert!(again.write.is_empty());
            prop_assert_eq!(again.settled, last.settled);
        }

        #[test]
        fn all_three_ways_of_writing_have_one_result(vm in a_vm(), wanted in a_wish(), reservations in reservations()) {
            let write = plan(&vm, &wanted, &reservations, 64).write;
            let by = |method| apply::vm_write(&vm, &write, method);
            prop_assert_eq!(by(VmWriteMethod::Action), by(VmWriteMethod::WholeList));
            prop_assert_eq!(by(VmWriteMethod::Action), by(VmWriteMethod::WholeListByOmission));
        }
    }

    #[test]
    fn a_missing_right_on_a_linked_resource_is_one_members_and_never_changes_the_method() {
        for method in [VmWriteMethod::Action, VmWriteMethod::WholeList, VmWriteMethod::WholeListByOmission] {
            assert_eq!(reaction(&Fault::LinkedForbidden, method), Reaction::FindCulprit, "{method:?}");
            assert_eq!(reaction(&Fault::OperationFailed, method), Reaction::FindCulprit, "{method:?}");
        }
    }

    #[test]
    fn a_missing_permission_falls_back_once_and_then_is_an_error() {
        assert_eq!(reaction(&Fault::Forbidden, VmWriteMethod::Action), Reaction::WriteWholeList);
        assert_eq!(reaction(&Fault::Forbidden, VmWriteMethod::WholeList), Reaction::FailAll);
        assert_eq!(reaction(&Fault::NotFound, VmWriteMethod::Action), Reaction::WriteWholeList);
        assert_eq!(reaction(&Fault::NotFound, VmWriteMethod::WholeList), Reaction::FindCulprit);
        assert_eq!(reaction(&Fault::OutcomeUnknown, VmWriteMethod::Action), Reaction::Regather);
        assert_eq!(reaction(&Fault::Throttled { retry_after: None }, VmWriteMethod::Action), Reaction::FailAll);
    }

    #[test]
    fn a_disk_is_refused_by_what_it_says_of_itself_and_an_odd_state_is_left_to_azure() {
        let here = ArmId::virtual_machine("s", "g", "node-0").unwrap();
        let [there, elsewhere] = ["node-1", "node-2"].map(|name| ArmId::virtual_machine("s", "g", name).unwrap());
        let disk = |state: Option<DiskState>, max_shares: u32, holders: &[&ArmId]| Disk {
            id: disk(1),
            location: "westeurope".into(),
            zones: vec![],
            sku: None,
            size: crate::model::Gib::new(4),
            state,
            provisioning_state: ProvisioningState::Succeeded,
            managed_by: holders.first().map(|holder| (*holder).clone()),
            managed_by_extended: holders.iter().map(|holder| (*holder).clone()).collect(),
            max_shares,
            disk_encryption_set: None,
            tags: BTreeMap::new(),
            iops: None,
            mbps: None,
            logical_sector_size: None,
            network_access_policy: None,
            source: None,
        };
        let (free, taken) = (Some(DiskState::Unattached), Some(DiskState::Attached));
        // A state that is new, or that contradicts the holders, is no reason of ours.
        for (state, shares, holders) in [
            (free, 1, &[][..]),
            (None, 1, &[]),
            (taken, 1, &[]),
            (Some(DiskState::Reserved), 1, &[]),
            (free, 0, &[]),
            (taken, 1, &[&here]),
            (taken, 2, &[&there]),
            (taken, 2, &[&here, &there]),
        ] {
            assert_eq!(attachable(&disk(state, shares, holders), &here), Ok(()), "{state:?} {shares} {holders:?}");
        }
        for (state, shares, holders) in [
            (taken, 1, &[&there][..]),
            (free, 1, &[&there]),
            (Some(DiskState::Reserved), 1, &[&there]),
            (taken, 2, &[&there, &elsewhere]),
        ] {
            let held_by = holders.iter().map(|holder| (*holder).clone()).collect();
            assert_eq!(attachable(&disk(state, shares, holders), &here), Err(Unattachable::HeldBy(held_by)));
        }
        for state in
            [DiskState::ActiveSas, DiskState::ActiveSasFrozen, DiskState::ReadyToUpload, DiskState::ActiveUpload]
        {
            assert_eq!(attachable(&disk(Some(state), 1, &[]), &here), Err(Unattachable::InUse(state)));
        }
    }

    proptest! {
        #[test]
        fn one_culprit_is_found_in_log2_n_writes(n in 1usize..64, seed in any::<prop::sample::Index>()) {
            let all: BTreeSet<ArmId> = (0..n).map(|n| disk(u8::try_from(n).unwrap())).collect();
            let culprit = all.iter().nth(seed.index(n)).unwrap().clone();
            let mut suspects = Suspects::default();
            suspects.failed(all.clone());
            let mut writes = 0;
            loop {
                match suspects.next() {
                    Search::Found(found) => {
                        prop_assert_eq!(found, culprit);
                        break;
                    }
                    Search::Try(members) if members.contains(&culprit) => suspects.failed(members),
                    Search::Try(members) => suspects.cleared(&members),
                    Search::Over => prop_assert!(false, "the culprit was cleared"),
                }
                writes += 1;
            }
            prop_assert!(writes <= n.ilog2() + 1);
        }
    }
}
