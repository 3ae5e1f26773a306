use lazuli_model::{DataDiskSource, apply};
use proptest::prelude::*;

use super::*;

pub(super) fn disk(n: u8) -> DiskId {
    DiskId::from(ArmId::disk("s", "g", &format!("d{n:02}")).unwrap())
}

pub(super) fn lun(n: u8) -> Lun {
    Lun::try_from(i64::from(n)).unwrap()
}

fn terms() -> Terms {
    Terms { caching: CachingMode::ReadOnly, disk_encryption_set: None, write_accelerator: false }
}

pub(super) fn element(n: u8, lun_number: u8) -> DataDisk {
    DataDisk {
        lun: lun(lun_number),
        source: DataDiskSource::Disk(disk(n)),
        caching: CachingMode::ReadOnly,
        to_be_detached: false,
    }
}

pub(super) fn vm(data_disks: Vec<DataDisk>) -> Vm {
    Vm {
        id: ArmId::virtual_machine("s", "g", "node-0").unwrap(),
        location: "westeurope".into(),
        size: "Standard_D8s_v3".into(),
        zone: None,
        computer_name: None,
        provisioning_state: ProvisioningState::Succeeded,
        etag: None,
        system_disk: SystemDisk::Managed,
        data_disks,
    }
}

/// A disk in this state, attached to these VMs.
pub(super) fn disk_in(state: Option<DiskState>, max_shares: u32, holders: &[&ArmId]) -> Disk<DiskId> {
    Disk {
        id: disk(1),
        location: "westeurope".into(),
        zones: vec![],
        sku: None,
        size: lazuli_model::Gib::new(4),
        state,
        provisioning_state: ProvisioningState::Succeeded,
        managed_by: holders.first().map(|holder| (*holder).clone()),
        managed_by_extended: holders.iter().map(|holder| (*holder).clone()).collect(),
        ownership_changed: None,
        max_shares,
        disk_encryption_set: None,
        tags: BTreeMap::new(),
        iops: None,
        mbps: None,
        logical_sector_size: None,
        network_access_policy: None,
        source: None,
        source_unique_id: None,
        unique_id: None,
        bytes: None,
        completion: None,
    }
}

fn desired(attach: &[u8], detach: &[u8]) -> DesiredDisks {
    DesiredDisks {
        attach: attach.iter().map(|n| (disk(*n), terms())).collect(),
        detach: detach.iter().map(|n| disk(*n)).collect(),
        force: BTreeSet::new(),
        listed_not_attached: BTreeSet::new(),
    }
}

fn open() -> NodeReservations {
    NodeReservations::Known(BTreeMap::new())
}

#[test]
fn an_attached_disk_needs_no_write() {
    let plan = write_for(&vm(vec![element(1, 7)]), &desired(&[1], &[]), &open(), 16);
    assert!(plan.write.is_empty());
    assert_eq!(plan.resolved[&disk(1)], Resolved::Attached { lun: lun(7) });
}

#[test]
fn an_attached_disk_is_found_whatever_the_case_of_its_id() {
    let shouted: DiskId = disk(1).as_str().to_ascii_uppercase().parse().unwrap();
    let mut vm = vm(vec![element(1, 7)]);
    vm.data_disks[0].source = DataDiskSource::Disk(shouted);
    assert!(write_for(&vm, &desired(&[1], &[]), &open(), 16).write.is_empty());
    assert_eq!(write_for(&vm, &desired(&[], &[1]), &open(), 16).write.detach.len(), 1);
}

#[test]
fn while_attachments_are_unknown_a_disk_may_leave_but_none_may_come() {
    let plan = write_for(&vm(vec![element(1, 0)]), &desired(&[2], &[1]), &NodeReservations::Unknown, 16);
    assert!(plan.write.attach.is_empty());
    assert_eq!(plan.write.detach, [disk(1)]);
    assert_eq!(plan.unplaced, [disk(2)].into());
}

#[test]
fn foreign_disks_count_against_the_limit_and_keep_their_slots() {
    let foreign = DataDisk { source: DataDiskSource::Other("https://a/vhds/x.vhd".into()), ..element(0, 0) };
    let plan = write_for(&vm(vec![foreign]), &desired(&[1, 2], &[]), &open(), 2);
    assert_eq!(plan.write.attach.len(), 1);
    assert_eq!(plan.write.attach[0].lun, lun(1));
    assert_eq!(plan.resolved[&disk(2)], Resolved::TooManyDisks { limit: 2, attached: 2 });
}

#[test]
fn a_disk_that_does_not_fit_waits_for_one_that_leaves() {
    let vm = vm(vec![element(1, 0)]);
    let first = write_for(&vm, &desired(&[2], &[1]), &open(), 1);
    assert_eq!(first.postponed, [disk(2)].into());
    let after = apply::vm_write(&vm, &first.write, VmWriteMethod::Action);
    let second = write_for(&after, &desired(&[2], &[1]), &open(), 1);
    assert_eq!(second.write.attach.len(), 1);
}

fn is_leaving(n: u8, lun_number: u8, state: ProvisioningState) -> Vm {
    let element = DataDisk { to_be_detached: true, ..element(n, lun_number) };
    Vm { provisioning_state: state, ..vm(vec![element]) }
}

#[test]
fn a_leaving_disk_cannot_be_attached_and_can_be_told_to_leave_again() {
    let vm = is_leaving(1, 0, ProvisioningState::InProgress);
    assert_eq!(write_for(&vm, &desired(&[1], &[]), &open(), 16).resolved[&disk(1)], Resolved::StillLeaving);
    assert_eq!(write_for(&vm, &desired(&[], &[1]), &open(), 16).write.detach, [disk(1)]);
}

#[test]
fn a_disk_whose_detach_failed_is_detached_first_when_it_is_wanted_again() {
    let vm = is_leaving(1, 0, ProvisioningState::Failed);
    for listed_not_attached in [false, true] {
        let desired = match listed_not_attached {
            true => DesiredDisks { listed_not_attached: [disk(1)].into(), ..desired(&[], &[]) },
            false => desired(&[1], &[]),
        };
        let first = write_for(&vm, &desired, &open(), 1);
        assert_eq!((&first.write.detach[..], first.write.attach.len()), (&[disk(1)][..], 0));
        assert_eq!(first.postponed, [disk(1)].into());
    }
    let first = write_for(&vm, &desired(&[1], &[]), &open(), 1).write;
    let after = apply::vm_write(&vm, &first, VmWriteMethod::WholeList);
    assert_eq!(write_for(&after, &desired(&[1], &[]), &open(), 1).write.attach.len(), 1);
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
    let resolved = |reservations: &NodeReservations| {
        let plan = write_for(&vm, &desired(&[1], &[]), reservations, 16);
        plan.resolved.get(&disk(1)).cloned()
    };
    assert_eq!(resolved(&reserved(3, &[1])), Some(Resolved::DetachFailed));
    assert_eq!(resolved(&reserved(5, &[1])), Some(Resolved::DetachFailed));
    // The volume of this attachment is unknown.
    assert_eq!(resolved(&reserved(3, &[])), Some(Resolved::DetachFailed));
    assert_eq!(resolved(&NodeReservations::Unknown), None);
    let unknown = write_for(&vm, &desired(&[1], &[]), &NodeReservations::Unknown, 16);
    assert_eq!((unknown.unplaced, unknown.write.is_empty()), ([disk(1)].into(), true));
    assert_eq!(resolved(&reserved(3, &[2])), None);
    assert_eq!(resolved(&reserved(5, &[])), None);
}

#[test]
fn a_disk_that_is_listed_and_not_held_keeps_its_slot_and_waits_for_any_write() {
    let vm = vm(vec![element(1, 0)]);
    let alone = DesiredDisks { listed_not_attached: [disk(1)].into(), ..desired(&[], &[]) };
    let plan_alone = write_for(&vm, &alone, &NodeReservations::Unknown, 16);
    assert!(!plan_alone.write.is_empty() && plan_alone.write.says_nothing());
    assert_eq!(plan_alone.write.reapply, [disk(1)]);
    assert_eq!(apply::vm_write(&vm, &plan_alone.write, VmWriteMethod::Action), vm);
    let beside = DesiredDisks { listed_not_attached: [disk(1)].into(), ..desired(&[2], &[]) };
    let plan_beside = write_for(&vm, &beside, &open(), 16);
    assert_eq!(plan_beside.write.attach[0].lun, lun(1));
    assert_eq!(plan_beside.write.reapply, [disk(1)]);
    assert!(plan_beside.resolved.is_empty());
}

fn a_vm() -> impl Strategy<Value = Vm> {
    proptest::collection::btree_map(0u8..64, (0u8..40, any::<bool>(), any::<bool>()), 0..20).prop_map(|slots| {
        let mut seen = BTreeSet::new();
        let disks = slots
            .into_iter()
            .filter(|(_, (n, _, _))| seen.insert(*n))
            .map(|(slot, (n, foreign, leaving))| DataDisk {
                source: if foreign {
                    DataDiskSource::Other(format!("https://a/vhds/{n}.vhd"))
                } else {
                    DataDiskSource::Disk(disk(n))
                },
                to_be_detached: leaving && !foreign,
                ..element(n, slot)
            })
            .collect();
        vm(disks)
    })
}

fn a_desired_state() -> impl Strategy<Value = DesiredDisks> {
    proptest::collection::btree_map(0u8..60, any::<bool>(), 0..30).prop_map(|goals| {
        let (come, go): (Vec<_>, Vec<_>) = goals.into_iter().partition(|(_, come)| *come);
        let numbers = |list: Vec<(u8, bool)>| list.into_iter().map(|(n, _)| n).collect::<Vec<_>>();
        desired(&numbers(come), &numbers(go))
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

/// Applies plans until one is empty, as a VM worker does.
fn converge(
    mut vm: Vm,
    desired: &DesiredDisks,
    reservations: &NodeReservations,
    limit: usize,
) -> (Vm, WritePlan, usize) {
    for writes in 0..4 {
        let next = write_for(&vm, desired, reservations, limit);
        if next.write.is_empty() {
            return (vm, next, writes);
        }
        vm = apply::vm_write(&vm, &next.write, VmWriteMethod::Action);
    }
    panic!("no end after four writes");
}

fn shout(id: &DiskId) -> DiskId {
    id.as_str().to_ascii_uppercase().parse().unwrap()
}

proptest! {
    #[test]
    fn it_converges(vm in a_vm(), desired in a_desired_state(), reservations in reservations(), limit in 0usize..64) {
        let (_, last, writes) = converge(vm, &desired, &reservations, limit);
        prop_assert!(writes <= 2);
        prop_assert!(last.postponed.is_empty());
        for disk in &desired.detach {
            prop_assert_eq!(&last.resolved[disk], &Resolved::Detached);
        }
        for disk in desired.attach.keys() {
            prop_assert!(last.resolved.contains_key(disk));
        }
    }

    #[test]
    fn it_leaves_alone_what_is_not_ours(vm in a_vm(), desired in a_desired_state(), reservations in reservations(), limit in 0usize..64) {
        let (after, _, _) = converge(vm.clone(), &desired, &reservations, limit);
        let ours = |e: &DataDisk| match &e.source {
            DataDiskSource::Disk(id) => desired.attach.contains_key(id) || desired.detach.contains(id),
            _ => false,
        };
        let foreign = |vm: &Vm| vm.data_disks.iter().filter(|e| !ours(e)).cloned().collect::<Vec<_>>();
        prop_assert_eq!(foreign(&vm), foreign(&after));
    }

    #[test]
    fn every_prefix_is_safe(vm in a_vm(), desired in a_desired_state(), reservations in reservations(), limit in 0usize..64) {
        let plan = write_for(&vm, &desired, &reservations, limit);
        let NodeReservations::Known(reserved) = &reservations else { unreachable!() };
        // Any part of the write may have happened when we are killed.
        for attached in 0..=plan.write.attach.len() {
            for detached in 0..=plan.write.detach.len() {
                let part = VmWrite {
                    vm: vm.id.clone(),
                    attach: plan.write.attach[..attached].to_vec(),
                    detach: plan.write.detach[..detached].to_vec(),
                    force: BTreeSet::new(),
                    reapply: Vec::new(),
                };
                let after = apply::vm_write(&vm, &part, VmWriteMethod::Action);
                let luns: BTreeSet<Lun> = after.data_disks.iter().map(|e| e.lun).collect();
                prop_assert_eq!(luns.len(), after.data_disks.len(), "two disks have one LUN");
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

    /// Force changes how a disk leaves, and nothing else.
    #[test]
    fn only_a_detach_that_is_desired_by_force_is_forced(
        vm in a_vm(),
        desired in a_desired_state(),
        forced in proptest::collection::btree_set(0u8..60, 0..30),
        reservations in reservations(),
        limit in 0usize..64,
    ) {
        let ordinary = write_for(&vm, &desired, &reservations, limit);
        prop_assert!(ordinary.write.force.is_empty());
        let force: BTreeSet<DiskId> = forced.into_iter().map(disk).collect();
        let by_force = write_for(&vm, &DesiredDisks { force: force.clone(), ..desired.clone() }, &reservations, limit);
        for disk in &by_force.write.force {
            prop_assert!(force.contains(disk) && desired.detach.contains(disk) && by_force.write.detach.contains(disk));
        }
        let write = VmWrite { force: BTreeSet::new(), ..by_force.write.clone() };
        prop_assert_eq!(WritePlan { write, ..by_force }, ordinary);
    }

    #[test]
    fn input_order_does_not_matter(vm in a_vm(), desired in a_desired_state(), reservations in reservations(), limit in 0usize..64) {
        let mut reversed = vm.clone();
        reversed.data_disks.reverse();
        prop_assert_eq!(write_for(&vm, &desired, &reservations, limit), write_for(&reversed, &desired, &reservations, limit));
    }

    #[test]
    fn letter_case_makes_no_write(vm in a_vm(), desired in a_desired_state(), reservations in reservations(), limit in 0usize..64) {
        let (after, last, _) = converge(vm, &desired, &reservations, limit);
        let mut shouted = after.clone();
        for element in &mut shouted.data_disks {
            if let DataDiskSource::Disk(id) = &element.source {
                element.source = DataDiskSource::Disk(shout(id));
            }
        }
        let desired = DesiredDisks {
            attach: desired.attach.iter().map(|(id, terms)| (shout(id), terms.clone())).collect(),
            detach: desired.detach.iter().map(shout).collect(),
            force: BTreeSet::new(),
            listed_not_attached: BTreeSet::new(),
        };
        let again = write_for(&shouted, &desired, &reservations, limit);
        prop_assert!(again.write.is_empty());
        prop_assert_eq!(again.resolved, last.resolved);
    }

    #[test]
    fn all_three_ways_of_writing_have_one_result(vm in a_vm(), desired in a_desired_state(), reservations in reservations()) {
        let write = write_for(&vm, &desired, &reservations, 64).write;
        let by = |method| apply::vm_write(&vm, &write, method);
        prop_assert_eq!(by(VmWriteMethod::Action), by(VmWriteMethod::WholeList));
        prop_assert_eq!(by(VmWriteMethod::Action), by(VmWriteMethod::WholeListByOmission));
    }
}

#[test]
fn a_missing_right_on_a_linked_resource_is_one_members_and_never_changes_the_method() {
    for method in [VmWriteMethod::Action, VmWriteMethod::WholeList, VmWriteMethod::WholeListByOmission] {
        assert_eq!(reaction(&Fault::LinkedForbidden, method, By::Single), Reaction::Bisect, "{method:?}");
        assert_eq!(reaction(&Fault::OperationFailed, method, By::Single), Reaction::Bisect, "{method:?}");
    }
}

#[test]
fn a_missing_permission_falls_back_once_and_then_is_an_error() {
    assert_eq!(reaction(&Fault::Forbidden, VmWriteMethod::Action, By::Single), Reaction::WriteWholeList);
    assert_eq!(reaction(&Fault::Forbidden, VmWriteMethod::WholeList, By::Single), Reaction::FailAll);
    assert_eq!(reaction(&Fault::NotFound, VmWriteMethod::Action, By::Single), Reaction::WriteWholeList);
    assert_eq!(reaction(&Fault::NotFound, VmWriteMethod::WholeList, By::Single), Reaction::Bisect);
    assert_eq!(reaction(&Fault::OutcomeUnknown, VmWriteMethod::Action, By::Single), Reaction::ReadAgain);
    assert_eq!(reaction(&Fault::Throttled { retry_after: None }, VmWriteMethod::Action, By::Single), Reaction::FailAll);
}

#[test]
fn a_refusal_after_a_list_says_nothing_about_the_action_where_the_list_may_have_lagged() {
    for fault in [Fault::NotFound, Fault::Malformed] {
        assert_eq!(reaction(&fault, VmWriteMethod::Action, By::List), Reaction::ReadAgain, "{fault:?}");
        assert_eq!(reaction(&fault, VmWriteMethod::Action, By::Single), Reaction::WriteWholeList, "{fault:?}");
    }
    // Rights and methods are the same whatever the VM has.
    for fault in [Fault::Forbidden, Fault::Unsupported] {
        assert_eq!(reaction(&fault, VmWriteMethod::Action, By::List), Reaction::WriteWholeList, "{fault:?}");
    }
}

#[test]
fn a_disk_is_refused_by_what_it_says_of_itself_and_an_odd_state_is_left_to_azure() {
    let here = ArmId::virtual_machine("s", "g", "node-0").unwrap();
    let [there, elsewhere] = ["node-1", "node-2"].map(|name| ArmId::virtual_machine("s", "g", name).unwrap());
    let (free, taken) = (Some(DiskState::Unattached), Some(DiskState::Attached));
    // A state that is unknown here, or that contradicts the holders, does not refuse the attach.
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
        assert_eq!(attachable(&disk_in(state, shares, holders), &here), Ok(()), "{state:?} {shares} {holders:?}");
    }
    for (state, shares, holders) in [
        (taken, 1, &[&there][..]),
        (free, 1, &[&there]),
        (Some(DiskState::Reserved), 1, &[&there]),
        (taken, 2, &[&there, &elsewhere]),
    ] {
        let attached_to = holders.iter().map(|holder| (*holder).clone()).collect();
        assert_eq!(attachable(&disk_in(state, shares, holders), &here), Err(Unattachable::AttachedTo(attached_to)));
        assert!(!gives_terms(&disk_in(state, shares, holders), &here));
    }
    for state in [
        ProvisioningState::Succeeded,
        ProvisioningState::InProgress,
        ProvisioningState::Failed,
        ProvisioningState::Canceled,
    ] {
        let disk = Disk { provisioning_state: state, ..disk_in(free, 1, &[]) };
        assert_eq!(gives_terms(&disk, &here), state == ProvisioningState::Succeeded, "{state:?}");
    }
    for state in [DiskState::ActiveSas, DiskState::ActiveSasFrozen, DiskState::ReadyToUpload, DiskState::ActiveUpload] {
        assert_eq!(attachable(&disk_in(Some(state), 1, &[]), &here), Err(Unattachable::InUse(state)));
    }
}
