//! Stale data disks: elements of a VM's model whose disks are not attached to the VM.
//!
//! A failed attach may leave such an element behind. Whether Azure leaves it there is not documented, so both cases are
//! handled. The Go drivers know the problem and send the VM an empty update.
//!
//! Such a disk is not attached, whatever the model lists, and it may make every later write of the VM fail.
//!
//! 1. The model is applied again by an empty update. This is harmless and often enough.
//! 2. If the update fails or changes nothing, the element is removed, and then the disk is attached again.
//!
//! Unrelated stale disks that make writes fail are removed too: disks that do not exist any more, or that are attached to
//! another VM, and of which nothing is requested here. An element is removed only while the disk does not exist or its own
//! state proves that it is not attached to the VM, so no workload can be using the disk. Requests that need no write are
//! answered before the removal, and while the removal waits for another writer's write.
//!
//! Stale disks stay when no caller waits any more, because a VM is written for its callers alone. A disk that was
//! requested has a VolumeAttachment, so external-attacher requests its attach or its detach again, and either repairs
//! the model. An unrelated stale disk does no harm by itself, and it is found when the next write of the VM fails. What is
//! known of stale disks may be lost with the process at any moment, so this has to suffice.

use std::collections::BTreeSet;

use lazuli_engine::{Awaited, Id};
use lazuli_model::{
    DiskId, ProvisioningState, Vm,
    fault::Fault,
    op::{VmWrite, VmWriteMethod},
};
use lazuli_quota::{permit::Priority, read::Accept};

use super::{
    AzureError, Batch, Cx, DiskReads, DiskSeen, Failure, Retry, State, VmRead, Why,
    aside::Answering,
    conditions::Conditions,
    judge::{Ended, Judge, Kind, Sent, Then, others_that_may_be_stale},
    memory::MAX_READ_LAG,
    plan::is_too_old_for_a_list,
    round::{Observation, Stage},
};
use lazuli_storage::attach::{self, Goal, Reaction};

/// A write that removes stale disks, while it is prepared.
#[derive(Debug)]
pub(super) struct Removal<E> {
    permit: Option<Id>,
    vm: Observation,
    at: At<E>,
}

/// What is read before the removal.
#[derive(Debug)]
enum At<E> {
    /// The disks of the requests that need no write. The removal delays none of these.
    Answering(Box<Answering<E>>),
    /// The disks of conditional detaches among these requests.
    Conditions(Batch, Conditions),
    /// The stale disks that the VM lists.
    Listed(Batch),
}

/// A write that removes stale disks.
#[derive(Debug, Clone)]
pub(super) struct RemovalSent {
    /// What it removes.
    detach: BTreeSet<DiskId>,
    /// The stale disks that were known when it was sent.
    stale_disks: BTreeSet<DiskId>,
    /// The requests of stale disks, which fail with it.
    requests: Batch,
    /// All requests that wait for it.
    goals: Batch,
    /// How data disks are written otherwise.
    usual: VmWriteMethod,
    /// Whether it leaves a deleted disk out of the list.
    omits_the_missing: bool,
}

impl<E: AzureError> State<E> {
    /// Removes the stale disks from the VM's model, so that the requests for these disks start afresh and the other
    /// requests do not fail with them.
    pub(super) fn remove_stale_disks(&mut self, cx: &mut Cx<'_, E>, goals: Batch, permit: Option<Id>, vm: Observation) {
        match self.answer_without_write(cx, vm.read.clone(), goals) {
            Ok(plan) => {
                self.attempts.answered_by_disk_state(&plan.answered_by_disk_state());
                self.removal_wanted(cx, permit, vm);
            }
            Err(answering) => {
                self.read_disks(cx, answering.to_read());
                self.removing(permit, vm, At::Answering(answering));
            }
        }
    }

    fn removing(&mut self, permit: Option<Id>, vm: Observation, at: At<E>) {
        self.stage = Stage::Removing(Box::new(Removal { permit, vm, at }));
    }

    pub(super) fn removal_disks_read(
        &mut self,
        cx: &mut Cx<'_, E>,
        removal: Box<Removal<E>>,
        reads: Vec<(DiskId, Result<DiskSeen, E>)>,
    ) {
        let Removal { permit, vm, at } = *removal;
        match at {
            At::Answering(answering) => {
                let plan = self.answer_by_disks(cx, *answering, reads);
                self.attempts.answered_by_disk_state(&plan.answered_by_disk_state());
                self.removal_wanted(cx, permit, vm);
            }
            At::Conditions(goals, conditions) => match self.conditions_read(cx, conditions, reads) {
                Ok(refused) => self.look_at_listed(cx, permit, vm, goals, &refused),
                Err(conditions) => self.removing(permit, vm, At::Conditions(goals, conditions)),
            },
            At::Listed(goals) => self.remove(cx, permit, vm, goals, reads),
        }
    }

    fn removal_wanted(&mut self, cx: &mut Cx<'_, E>, permit: Option<Id>, vm: Observation) {
        let goals = self.queue.unsent();
        if goals.is_empty() {
            cx.release(permit);
            return self.round_ends(cx);
        }
        if vm.read.vm.provisioning_state == ProvisioningState::InProgress {
            cx.release(permit);
            return self.wait_for_rest(cx, goals);
        }
        let shown_from = cx.memory.writes_shown_from(&self.vm, cx.now);
        let method = self.removal_method(cx, &goals);
        if method != VmWriteMethod::Action && vm.read.vm.etag.is_none() && vm.read.seen.sent_at < shown_from {
            cx.release(permit);
            return self.wait_until(shown_from.min(cx.now + MAX_READ_LAG), Awaited::FreshReads);
        }
        if permit.is_none() && Self::needs_permit(method, &vm.read) {
            return self.wait_for_permit(cx, Priority::Detach, DiskReads::default());
        }
        match self.look_at_conditions(cx, &goals) {
            Some(conditions) => self.removing(permit, vm, At::Conditions(goals, conditions)),
            None => self.look_at_listed(cx, permit, vm, goals, &BTreeSet::new()),
        }
    }

    /// How a write is sent that removes the stale disks and serves these requests.
    fn removal_method(&self, cx: &Cx<'_, E>, goals: &Batch) -> VmWriteMethod {
        self.method(cx, goals.keys().chain(&self.attempts.stale_disks))
    }

    fn look_at_listed(
        &mut self,
        cx: &mut Cx<'_, E>,
        permit: Option<Id>,
        vm: Observation,
        mut goals: Batch,
        refused: &BTreeSet<DiskId>,
    ) {
        goals.retain(|disk, _| !refused.contains(disk));
        if goals.is_empty() {
            cx.release(permit);
            return self.round_ends(cx);
        }
        let stale = self.attempts.stale_disks.iter();
        let listed: Vec<DiskId> = stale.filter(|disk| vm.read.vm.data_disk(disk).is_some()).cloned().collect();
        if listed.is_empty() {
            return self.remove(cx, permit, vm, goals, Vec::new());
        }
        self.read_disks(cx, listed);
        self.removing(permit, vm, At::Listed(goals));
    }

    fn remove(
        &mut self,
        cx: &mut Cx<'_, E>,
        permit: Option<Id>,
        vm: Observation,
        mut goals: Batch,
        reads: Vec<(DiskId, Result<DiskSeen, E>)>,
    ) {
        // Callers may have given up during the reads.
        let current = self.queue.unsent();
        goals.retain(|disk, goal| current.get(disk) == Some(goal));
        let usual = self.removal_method(cx, &goals);
        if goals.is_empty() || usual != VmWriteMethod::Action && is_too_old_for_a_list(&vm.read, cx.now) {
            cx.release(permit);
            return self.round_ends(cx);
        }
        let stale_disks = std::mem::take(&mut self.attempts.stale_disks);
        let of_stale = goals.iter().filter(|(disk, _)| stale_disks.contains(*disk));
        let requests: Batch = of_stale.map(|(disk, goal)| (disk.clone(), *goal)).collect();
        let mut is_one_missing = false;
        let mut detach = BTreeSet::new();
        for (disk, read) in reads {
            match read {
                Ok(read) if attach::proved_not_attached(&read.disk, &self.vm) => drop(detach.insert(disk)),
                Err(error) if *error.fault() == Fault::NotFound => {
                    is_one_missing = true;
                    detach.insert(disk);
                }
                Ok(_) | Err(_) => {}
            }
        }
        if detach.is_empty() {
            cx.release(permit);
            return self.round_ends(cx);
        }
        // The write's condition is the etag of the VM as read before the disks. Nothing else shows an attach that
        // another replica has begun since.
        let has_etag = vm.read.version.etag.is_some();
        let is_list = has_etag && usual == VmWriteMethod::Action && !self.attempts.list_is_refused;
        let conditional = if is_list { VmWriteMethod::WholeList } else { usual };
        let method = match conditional {
            // Azure may refuse a list that names a deleted disk, even to detach it (source: the Go drivers leave it
            // out). Azure may also keep the disk when the list leaves it out.
            VmWriteMethod::WholeList if is_one_missing && !self.attempts.omission_had_no_effect => {
                VmWriteMethod::WholeListByOmission
            }
            method => method,
        };
        let omits_the_missing = method == VmWriteMethod::WholeListByOmission && usual != method;
        if method == VmWriteMethod::WholeListByOmission {
            // A list by omission cannot mark a disk as being detached, an old API does not report the mark, and Azure
            // refuses a list that names such a disk. So the list omits every disk whose detach is requested.
            let is_listed = |disk: &DiskId| vm.read.vm.data_disk(disk).is_some();
            let leaving = goals.iter().filter(|(disk, goal)| **goal == Goal::Detached && is_listed(disk));
            detach.extend(leaving.map(|(disk, _)| disk.clone()));
        }
        let write = VmWrite {
            vm: self.vm.clone(),
            attach: Vec::new(),
            detach: detach.iter().cloned().collect(),
            force: BTreeSet::new(),
            reapply: Vec::new(),
        };
        let members = goals.clone();
        let removal = RemovalSent { detach, stale_disks, requests, goals, usual, omits_the_missing };
        let kind = Kind::Removal(removal);
        self.send(cx, Sent { vm, write, members, method, permit, sent_at: cx.now, kind });
    }

    pub(super) fn removal_written(&mut self, cx: &mut Cx<'_, E>, sent: Sent, written: Result<std::time::Duration, E>) {
        let Sent { vm, write, method, kind, sent_at, .. } = sent;
        let Kind::Removal(removal) = kind else { return self.round_ends(cx) };
        let error = match written {
            Ok(accepted) => {
                let detached = removal.detach.iter().map(|disk| (disk.clone(), Goal::Detached)).collect();
                let ended = Ended::Well(Box::new(write), accepted);
                return self.verify(cx, detached, ended, Retry::Free, Then::Removed(removal));
            }
            Err(error) => error,
        };
        cx.memory.write_failed(&write, &error, sent_at, cx.now);
        let lacks_list = matches!(
            error.fault(),
            Fault::Forbidden | Fault::LinkedForbidden | Fault::Unsupported | Fault::Malformed | Fault::Invalid
        );
        if method != removal.usual && removal.usual == VmWriteMethod::Action && lacks_list {
            // The role, or this Azure cloud, has the action only. A list needs rights on the VM's other resources too. The
            // action has no condition, so the VM and the disks are read again before it is sent.
            self.attempts.list_is_refused = true;
            self.attempts.stale_disks = removal.stale_disks;
            return self.round_ends(cx);
        }
        if let Some(pause) = self.attempts.pause(&error) {
            self.attempts.stale_disks = removal.stale_disks;
            return self.wait_until(cx.now + pause, Awaited::Pause);
        }
        match attach::reaction(error.fault(), method, vm.read.seen.by) {
            Reaction::ReadAgain => {
                // The VM has changed since it was read.
                self.attempts.stale_disks = removal.stale_disks;
                let failure = Failure::azure(Why::ChangedMeanwhile, error);
                self.try_again(cx, &removal.goals, &failure, Retry::Counted);
                self.round_ends(cx);
            }
            Reaction::WriteWholeList => {
                self.attempts.method = Some(VmWriteMethod::WholeList);
                self.attempts.stale_disks = removal.stale_disks;
                self.round_ends(cx);
            }
            Reaction::Bisect | Reaction::FailAll => {
                self.look_for_more_stale(cx, removal, Failure::azure(Why::StaleNotRemoved, error));
            }
        }
    }

    /// The VM after a removal that succeeded; `None` where it could not be read.
    pub(super) fn removal_verified(&mut self, cx: &mut Cx<'_, E>, removal: RemovalSent, vm: Option<Vm>) {
        if vm.is_some_and(|vm| removal.detach.iter().all(|disk| vm.data_disk(disk).is_none())) {
            self.attempts.omission_had_no_effect = false;
            return self.round_ends(cx);
        }
        self.look_for_more_stale(cx, removal, Failure::new(Fault::Conflict, Why::StaleStillListed));
    }

    /// Reads the VM: further stale disks may have made the removal of these fail.
    fn look_for_more_stale(&mut self, cx: &mut Cx<'_, E>, removal: RemovalSent, failure: Failure<E>) {
        if removal.omits_the_missing {
            self.attempts.omission_had_no_effect = true;
            self.attempts.stale_disks = removal.stale_disks;
            self.try_again(cx, &removal.goals, &failure, Retry::Counted);
            return self.round_ends(cx);
        }
        self.read_vm(cx, Accept::Single, None);
        self.judge(Judge::OthersOfRemoval { removal, failure });
    }

    pub(super) fn removal_vm_read(
        &mut self,
        cx: &mut Cx<'_, E>,
        removal: RemovalSent,
        failure: Failure<E>,
        read: Result<VmRead, E>,
    ) {
        let cleared: Batch = removal.detach.iter().map(|disk| (disk.clone(), Goal::Detached)).collect();
        let others = read.ok().map(|read| others_that_may_be_stale(&cleared, &read.vm, &failure));
        match others.filter(|others| !others.is_empty()) {
            Some(others) => {
                self.read_disks(cx, others);
                self.judge(Judge::OthersOfRemoval { removal, failure });
            }
            None => self.removal_failed(cx, removal, failure, BTreeSet::new()),
        }
    }

    /// The removal has failed, and these disks are stale too.
    pub(super) fn removal_failed(
        &mut self,
        cx: &mut Cx<'_, E>,
        removal: RemovalSent,
        failure: Failure<E>,
        more: BTreeSet<DiskId>,
    ) {
        if more.is_empty() {
            for (disk, goal) in &removal.requests {
                self.answer(cx, disk, *goal, &Err(failure.of_batch(disk, *goal)));
            }
        } else {
            self.attempts.stale_disks = removal.stale_disks.into_iter().chain(more).collect();
            self.try_again(cx, &removal.goals, &failure, Retry::Counted);
        }
        self.round_ends(cx);
    }
}
