//! What follows from a write that has ended.
//!
//! ```text
//!   succeeded ─▶ (the disk that failed before) ─▶ (applied again: attached?) ─▶ verify ─▶ next round
//!   failed ─▶ pause and plan again │ another method │ verify ─▶ answer all │ (stale disks) ─▶ (the failing disk) ─▶ next round
//! ```
//!
//! Azure's answer to the write decides nothing alone: the VM is read, and the requests that it shows to be met are answered.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use lazuli_engine::{Awaited, Id};
use lazuli_model::{
    ArmId, DataDisk, DataDiskSource, DiskId, Lun, ProvisioningState, Vm,
    fault::{Effect, Fault},
    op::{Attachment, VmWrite, VmWriteMethod},
};
use lazuli_quota::{permit::Priority, read::Accept};

use super::{
    Action, AzureError, Batch, Cx, DiskSeen, Failure, READ_LAG_PAUSES, Report, Retry, State, VmRead, Why,
    refusal::Refusal,
    round::{Observation, Stage},
    stale::RemovalSent,
    waits::AtRest,
};
use lazuli_storage::{
    attach::{self, Goal, Reaction, Unattachable},
    force_detach::Detach,
};

/// How long to wait after the first conflict.
const CONFLICT_PAUSE: Duration = Duration::from_millis(250);
/// By how much the pause after repeated conflicts grows at most.
const MAX_CONFLICT_FACTOR: u32 = 16;

/// A write that was sent.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    /// What it was planned from.
    pub(super) vm: Observation,
    pub(super) write: VmWrite,
    /// The requests that it serves.
    pub(super) members: Batch,
    pub(super) method: VmWriteMethod,
    pub(super) permit: Option<Id>,
    pub(super) sent_at: Duration,
    pub(super) kind: Kind,
}

/// What a write is for.
#[derive(Debug, Clone)]
pub(super) enum Kind {
    /// The requests of a plan.
    Planned,
    /// Removing stale disks from the VM's model.
    Removal(RemovalSent),
}

impl Sent {
    /// Whether requests that need no write are answered while it is in flight.
    pub(super) fn answers_meanwhile(&self) -> bool {
        matches!(self.kind, Kind::Planned)
    }

    /// How it was sent. A write that names no disk is sent as a list, whatever the method.
    fn sent_as(&self) -> VmWriteMethod {
        if self.write.says_nothing() { VmWriteMethod::WholeList } else { self.method }
    }
}

/// What is looked at after a write.
#[derive(Debug)]
pub(super) enum Judge<E> {
    /// The state of a disk that made a write fail, and what follows.
    Refused(Box<Refusal<E>>, AfterRefusal),
    /// The disks that the write applied again, until they are attached.
    Reapplied { sent: Box<Sent>, accepted: Duration, left: Vec<DiskId>, lag: usize, paused: Option<Duration> },
    /// The VM.
    Verify(Box<Verify<E>>),
    /// The other disks of the VM's model, after a write that failed.
    Others { members: Batch, error: Failure<E> },
    /// The VM and the other disks of its model, after a removal of stale disks that failed.
    OthersOfRemoval { removal: RemovalSent, failure: Failure<E> },
}

/// What follows when the request of a failing disk is answered.
#[derive(Debug)]
pub(super) enum AfterRefusal {
    /// The write that succeeded, and had been accepted by then, is judged on.
    Succeeded(Box<Sent>, Duration),
    /// The search for the failing disk has ended.
    Found,
}

/// The VM is read after a write until it shows what the write did.
#[derive(Debug)]
pub(super) struct Verify<E> {
    members: Batch,
    ended: Ended<E>,
    retry: Retry,
    /// How many of [`READ_LAG_PAUSES`] have been taken.
    lag: usize,
    /// Until when nothing is read.
    paused: Option<Duration>,
    /// Where another writer's write may run.
    rest: Option<AtRest>,
    then: Then<E>,
}

/// What became of the write.
#[derive(Debug)]
pub(super) enum Ended<E> {
    /// Azure reports that it succeeded, and had accepted it by then.
    Well(Box<VmWrite>, Duration),
    /// It has failed.
    Badly(Failure<E>),
}

/// What follows when the VM has been read.
#[derive(Debug)]
pub(super) enum Then<E> {
    /// The next round.
    Nothing,
    /// The write is looked at for what it has not done and what it should not have done. These disks are half way: they had
    /// to be detached before they can be attached.
    Succeeded { sent: Box<Sent>, half: Batch },
    /// All get the failure, unless Azure is at it.
    FailAll { write: VmWrite, members: Batch, error: Failure<E> },
    /// The failing disk is looked for, unless another writer is the cause.
    Bisect { write: VmWrite, members: Batch, error: Failure<E> },
    /// Stale disks should be gone.
    Removed(RemovalSent),
}

impl<E: AzureError> Judge<E> {
    /// When it goes on without an event.
    pub(super) fn wake_at(&self) -> Option<Duration> {
        match self {
            Self::Refused(refusal, _) => refusal.paused,
            Self::Reapplied { paused, .. } => *paused,
            Self::Verify(verify) => verify.paused.or(verify.rest.and_then(|rest| rest.next)),
            Self::Others { .. } | Self::OthersOfRemoval { .. } => None,
        }
    }

    /// What it waits for.
    pub(super) fn awaited(&self) -> Awaited {
        match self {
            Self::Verify(verify) if verify.rest.is_some() => Awaited::OtherOperation,
            _ if self.wake_at().is_some() => Awaited::Pause,
            _ => Awaited::Read,
        }
    }

    /// Whether it waits for time to pass, or for another writer.
    pub(super) fn waits(&self) -> bool {
        self.wake_at().is_some() || matches!(self, Self::Verify(verify) if verify.rest.is_some())
    }
}

impl<E: AzureError> State<E> {
    /// A write has ended.
    pub(super) fn written(&mut self, cx: &mut Cx<'_, E>, written: Result<Duration, E>) {
        let sent = match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Writing(sent) => sent,
            stage => return self.stage = stage,
        };
        self.aside_ends(cx);
        match (&sent.kind, written) {
            (Kind::Removal(_), written) => self.removal_written(cx, *sent, written),
            (Kind::Planned, Ok(accepted)) => self.succeeded(cx, sent, accepted),
            (Kind::Planned, Err(error)) => self.failed(cx, *sent, error),
        }
    }

    fn succeeded(&mut self, cx: &mut Cx<'_, E>, sent: Box<Sent>, accepted: Duration) {
        cx.actions.extend(sent.write.force.iter().map(|disk| Action::Report(Report::Forced(disk.clone()))));
        if !sent.write.says_nothing() && self.attempts.method.take().is_some() {
            cx.memory.method = sent.method;
        }
        match self.attempts.write_succeeded(&sent.members) {
            Some((failing, goal, failure)) => {
                self.answer_refused(cx, failing, goal, failure, AfterRefusal::Succeeded(sent, accepted));
            }
            None => self.look_at_reapplied(cx, sent, accepted),
        }
    }

    /// Reads the disks that the write applied again: without those the write is judged that are still not attached.
    pub(super) fn look_at_reapplied(&mut self, cx: &mut Cx<'_, E>, sent: Box<Sent>, accepted: Duration) {
        let left = sent.write.reapply.clone();
        if left.is_empty() {
            return self.verify_success(cx, sent, accepted);
        }
        self.read_disks(cx, left.clone());
        self.judge(Judge::Reapplied { sent, accepted, left, lag: 0, paused: None });
    }

    fn reapplied_read(
        &mut self,
        cx: &mut Cx<'_, E>,
        mut sent: Box<Sent>,
        accepted: Duration,
        lag: usize,
        reads: Vec<(DiskId, Result<DiskSeen, E>)>,
    ) {
        let is_missing = |read: &Result<DiskSeen, E>| {
            read.as_ref().is_ok_and(|read| !attach::confirmed_attached(&read.disk, &self.vm))
        };
        let left = reads.into_iter().filter(|(_, read)| is_missing(read)).map(|(disk, _)| disk);
        let left: Vec<DiskId> = left.collect();
        if let (false, Some(pause)) = (left.is_empty(), READ_LAG_PAUSES.get(lag)) {
            let paused = Some(cx.now + *pause);
            return self.judge(Judge::Reapplied { sent, accepted, left, lag: lag + 1, paused });
        }
        let unmet: Batch = left.iter().filter_map(|disk| sent.members.remove_entry(disk)).collect();
        if !unmet.is_empty() {
            let failure = Failure::new(Fault::Conflict, Why::ListedNotAttached);
            self.try_again(cx, &unmet, &failure, Retry::Counted);
            self.attempts.stale_disks.extend(left);
        }
        self.verify_success(cx, sent, accepted);
    }

    fn verify_success(&mut self, cx: &mut Cx<'_, E>, sent: Box<Sent>, accepted: Duration) {
        // A disk that must be detached before it can be attached is half way.
        let is_half_way = |disk: &DiskId, goal: Goal| goal != Goal::Detached && sent.write.detach.contains(disk);
        let members = sent.members.iter().map(|(disk, goal)| (disk.clone(), *goal));
        let (half, mut members): (Batch, Batch) = members.partition(|(disk, goal)| is_half_way(disk, *goal));
        members.extend(half.keys().map(|disk| (disk.clone(), Goal::Detached)));
        let ended = Ended::Well(Box::new(sent.write.clone()), accepted);
        self.verify(cx, members, ended, Retry::Counted, Then::Succeeded { sent, half });
    }

    /// Reads the VM after a write and answers every request that it meets. The others go into the next round, or are
    /// answered with the write's failure when they have used up their tries.
    pub(super) fn verify(&mut self, cx: &mut Cx<'_, E>, members: Batch, ended: Ended<E>, retry: Retry, then: Then<E>) {
        self.verify_after(cx, None, Verify { members, ended, retry, lag: 0, paused: None, rest: None, then });
    }

    fn verify_after(&mut self, cx: &mut Cx<'_, E>, pause: Option<Duration>, mut verify: Verify<E>) {
        verify.paused = pause.map(|pause| cx.now + pause);
        if verify.paused.is_none() {
            self.read_to_verify(cx, &mut verify);
        }
        self.judge(Judge::Verify(Box::new(verify)));
    }

    fn read_to_verify(&mut self, cx: &mut Cx<'_, E>, verify: &mut Verify<E>) {
        verify.paused = None;
        // After another writer's write, or a lost answer, the VM shows the result only when that write has ended.
        if matches!((&verify.ended, verify.retry), (Ended::Badly(_), Retry::Counted)) {
            verify.rest = Some(AtRest::reading(cx.now));
            return self.read_vm(cx, Accept::Single, None);
        }
        // Its callers have waited as long as those of a poll.
        let priority = self.priority(cx, &verify.members).min(Priority::Poll);
        self.read_vm(cx, Accept::Single, Some(priority));
    }

    fn verify_read(&mut self, cx: &mut Cx<'_, E>, mut verify: Box<Verify<E>>, read: Result<VmRead, E>) {
        if matches!(verify.ended, Ended::Badly(_)) {
            self.note_vm_read(cx, &read);
        }
        let read = match read {
            Ok(read) => read,
            Err(error) => {
                let failure = Failure::azure(Why::UnreadableAfterWrite, error).resorted(Fault::OutcomeUnknown);
                self.answer_all(cx, &verify.members, &Err(failure.with_effect(Effect::Possible)));
                return self.verified(cx, verify.then, None);
            }
        };
        cx.memory.suspicions.vm_read(&read.vm, read.seen);
        if let Some(rest) = &mut verify.rest {
            cx.memory.vm_seen(&read.vm, cx.now);
            if !rest.ends_with(&read.vm, cx.now) {
                return self.judge(Judge::Verify(verify));
            }
            verify.rest = None;
            self.aside_ends(cx);
        }
        let has_failed = matches!(verify.ended, Ended::Badly(_));
        let confirmed = attach::confirm(&read.vm, read.seen, &verify.members, has_failed);
        let is_unmet = |(disk, _): &(&DiskId, &Goal)| !confirmed.contains_key(*disk);
        let unmet: Batch = verify.members.iter().filter(is_unmet).map(|(disk, goal)| (disk.clone(), *goal)).collect();
        let lags = READ_LAG_PAUSES.get(verify.lag).filter(|_| !has_failed && !unmet.is_empty());
        if let (Ended::Well(write, accepted), None) = (&verify.ended, lags) {
            // Before its requests are answered, because their callers ask what is known of their disks.
            let sources = &mut cx.memory.sources;
            sources.write_read(&read.vm, read.version.clone(), read.seen.sent_at);
            write.attach.iter().for_each(|attachment| sources.attached(&self.vm, &attachment.disk, *accepted));
        }
        self.resolve_all(cx, read.answered, &verify.members, confirmed, &BTreeMap::new());
        if let Some(pause) = lags {
            verify.lag += 1;
            return self.verify_after(cx, Some(*pause), *verify);
        }
        match &verify.ended {
            Ended::Badly(failure) => self.try_again(cx, &unmet, failure, verify.retry),
            Ended::Well(..) => {
                let failure = Failure::new(Fault::Conflict, Why::NotShown);
                self.try_again(cx, &unmet, &failure, verify.retry);
            }
        }
        self.verified(cx, verify.then, Some(read));
    }

    /// What follows when the VM has been read after a write; `None` where it could not be.
    fn verified(&mut self, cx: &mut Cx<'_, E>, then: Then<E>, read: Option<VmRead>) {
        let vm = read.map(|read| read.vm);
        match then {
            Then::Nothing => self.round_ends(cx),
            Then::Succeeded { sent, half } => {
                self.try_again(cx, &half, &Failure::new(Fault::BeingDetached, Why::StillListed), Retry::Counted);
                let is_list = matches!(sent.sent_as(), VmWriteMethod::WholeList | VmWriteMethod::WholeListByOmission);
                if let (true, None, Some(after)) = (is_list, &sent.vm.read.version.etag, vm) {
                    // Another writer may have written between the read and the write. Nothing else shows that.
                    let gone = unnamed_disks_gone(&sent.vm.read.vm, &sent.write, &after);
                    cx.actions.extend(gone.into_iter().map(|lun| Action::Report(Report::Vanished(lun))));
                }
                self.round_ends(cx);
            }
            Then::FailAll { write, members, error } => {
                if vm.is_some_and(|vm| is_under_way(&write, &vm)) {
                    return self.verify(cx, members, Ended::Badly(error), Retry::Counted, Then::Nothing);
                }
                for (disk, goal) in &members {
                    self.answer(cx, disk, *goal, &Err(error.of_batch(disk, *goal)));
                }
                self.attempts.bisection.end();
                self.round_ends(cx);
            }
            Then::Bisect { write, members, error } => match vm {
                Some(vm) if is_under_way(&write, &vm) => {
                    self.verify(cx, members, Ended::Badly(error), Retry::Counted, Then::Nothing);
                }
                Some(vm) if is_lun_taken_by_another_writer(&write, &vm) => {
                    // No disk is the cause: another writer was first. The action takes no etag that would show it.
                    self.try_again(cx, &members, &error, Retry::Counted);
                    self.round_ends(cx);
                }
                Some(vm) => {
                    self.attempts.note_stale(&members, &vm);
                    let mut others = others_that_may_be_stale(&members, &vm, &error);
                    if error.fault == Fault::NotFound {
                        // Azure may refuse a list that names a deleted disk, even to detach it.
                        let leaving = members.iter().filter(|(_, goal)| **goal == Goal::Detached);
                        let listed = leaving.filter(|(disk, _)| vm.data_disk(disk).is_some());
                        others.extend(listed.map(|(disk, _)| disk.clone()));
                    }
                    if others.is_empty() {
                        return self.find_failing_disk(cx, members, error);
                    }
                    self.read_disks(cx, others);
                    self.judge(Judge::Others { members, error });
                }
                None => self.find_failing_disk(cx, members, error),
            },
            Then::Removed(removal) => self.removal_verified(cx, removal, vm),
        }
    }

    fn find_failing_disk(&mut self, cx: &mut Cx<'_, E>, members: Batch, error: Failure<E>) {
        let named = error.named_disk();
        let only = || members.first_key_value().filter(|_| members.len() == 1);
        let failing = named.and_then(|named| members.get_key_value(&named)).or_else(only);
        match failing.map(|(failing, goal)| (failing.clone(), *goal)) {
            Some((failing, goal)) => self.answer_refused(cx, failing, goal, error, AfterRefusal::Found),
            None => {
                self.attempts.bisect(members, error);
                self.round_ends(cx);
            }
        }
    }

    /// The request of a failing disk is answered.
    pub(super) fn refusal_answered(&mut self, cx: &mut Cx<'_, E>, then: AfterRefusal) {
        match then {
            AfterRefusal::Succeeded(sent, accepted) => self.look_at_reapplied(cx, sent, accepted),
            AfterRefusal::Found => {
                self.attempts.failing_disk_found();
                self.round_ends(cx);
            }
        }
    }

    /// Reacts to a write that failed: answers its requests, or puts them back for the next round.
    fn failed(&mut self, cx: &mut Cx<'_, E>, sent: Sent, error: E) {
        let method = sent.sent_as();
        let Sent { vm, write, members, sent_at, .. } = sent;
        cx.memory.write_failed(&write, &error, sent_at, cx.now);
        let detach = Detach::of_write(error.fault(), error.effect(), error.status().is_some(), vm.read.answered);
        self.queue.note_detach(&write.detach, detach);
        if let Some(pause) = self.attempts.pause(&error) {
            // Azure did nothing. After the pause the VM and the requests may have changed, so they are planned again.
            self.try_again(cx, &members, &Failure::azure(Why::Deferred, error), Retry::Free);
            return self.wait_until(cx.now + pause, Awaited::Pause);
        }
        // An action that fails after Azure accepted it exists, and the identity may use it. So does one that misses a disk.
        let misses_a_disk = *error.fault() == Fault::NotFound && error.named_disk().is_some();
        let is_accepted = error.is_of_accepted_write();
        let tried_method = if is_accepted || misses_a_disk { VmWriteMethod::WholeList } else { method };
        let mut reaction = attach::reaction(error.fault(), tried_method, vm.read.seen.by);
        let failures = self.attempts.count_failure(members.len());
        let error = Failure::azure(Why::Write, error);
        let names_one = error.named_disk().is_some_and(|named| members.contains_key(&named));
        // A bisection in which no write succeeds looks for a failing disk where the VM is the cause.
        if reaction == Reaction::Bisect && !names_one && members.len() > 1 && self.attempts.are_beyond_bisection() {
            reaction = Reaction::FailAll;
        }
        let is_refused = matches!(error.fault, Fault::Forbidden | Fault::Unsupported | Fault::Malformed);
        if method == VmWriteMethod::WholeList && is_refused {
            // The method on trial does not work either.
            self.attempts.method = None;
        }
        // An immediate refusal is about what the write contains. Only for an empty write is it about the VM's model.
        let was_tried = (is_accepted || write.says_nothing())
            && match reaction {
                Reaction::Bisect => true,
                Reaction::FailAll => is_accepted || is_refused,
                Reaction::ReadAgain | Reaction::WriteWholeList => false,
            };
        if was_tried && !write.reapply.is_empty() {
            // Applying the model again did not attach what it lists. The next round removes these disks from the model.
            self.attempts.stale_disks.extend(write.reapply.iter().cloned());
            return self.verify(cx, members, Ended::Badly(error), Retry::Counted, Then::Nothing);
        }
        match reaction {
            Reaction::WriteWholeList => {
                self.attempts.method = Some(VmWriteMethod::WholeList);
                self.try_again(cx, &members, &error, Retry::Free);
                self.round_ends(cx);
            }
            Reaction::ReadAgain => {
                // The VM may not show another writer's write, so there is a pause.
                let factor = 2u32.saturating_pow(failures.saturating_sub(1)).min(MAX_CONFLICT_FACTOR);
                let pause = (error.fault == Fault::Conflict).then(|| CONFLICT_PAUSE * factor);
                let (ended, retry, then) = (Ended::Badly(error), Retry::Counted, Then::Nothing);
                let verify = Verify { members, ended, retry, lag: 0, paused: None, rest: None, then };
                self.verify_after(cx, pause, verify);
            }
            // Part of the write may have happened: the VM shows which disks are attached.
            Reaction::FailAll => {
                let then = Then::FailAll { write, members: members.clone(), error: error.clone() };
                self.verify(cx, members, Ended::Badly(error), Retry::Free, then);
            }
            Reaction::Bisect => {
                let then = Then::Bisect { write, members: members.clone(), error: error.clone() };
                self.verify(cx, members, Ended::Badly(error), Retry::Free, then);
            }
        }
    }

    pub(super) fn judge(&mut self, judge: Judge<E>) {
        self.stage = Stage::Judging(judge);
    }

    pub(super) fn judge_vm_read(&mut self, cx: &mut Cx<'_, E>, judge: Judge<E>, read: Result<VmRead, E>) {
        match judge {
            Judge::Verify(verify) => self.verify_read(cx, verify, read),
            Judge::OthersOfRemoval { removal, failure } => self.removal_vm_read(cx, removal, failure, read),
            Judge::Refused(refusal, then) => self.refusal_vm_read(cx, refusal, then, read),
            judge @ (Judge::Reapplied { .. } | Judge::Others { .. }) => self.judge(judge),
        }
    }

    pub(super) fn judge_disks_read(
        &mut self,
        cx: &mut Cx<'_, E>,
        judge: Judge<E>,
        reads: Vec<(DiskId, Result<DiskSeen, E>)>,
    ) {
        match judge {
            Judge::Reapplied { sent, accepted, lag, .. } => self.reapplied_read(cx, sent, accepted, lag, reads),
            Judge::Refused(refusal, then) => self.refusal_disk_read(cx, refusal, then, reads),
            Judge::Others { members, error } => {
                let stale = self.stale_of(reads);
                if stale.is_empty() {
                    return self.find_failing_disk(cx, members, error);
                }
                // A stale disk of the model is the cause: one that no member is about, or one that is to be detached.
                self.attempts.stale_disks.extend(stale);
                self.try_again(cx, &members, &error, Retry::Counted);
                self.round_ends(cx);
            }
            Judge::OthersOfRemoval { removal, failure } => {
                let more = self.stale_of(reads);
                self.removal_failed(cx, removal, failure, more);
            }
            judge @ Judge::Verify(_) => self.judge(judge),
        }
    }

    /// The time of [`Judge::wake_at`] has come.
    pub(super) fn judge_woke(&mut self, cx: &mut Cx<'_, E>, judge: Judge<E>) {
        match judge {
            Judge::Reapplied { sent, accepted, left, lag, .. } => {
                self.aside_ends(cx);
                self.read_disks(cx, left.clone());
                self.judge(Judge::Reapplied { sent, accepted, left, lag, paused: None });
            }
            Judge::Verify(mut verify) => {
                match &mut verify.rest {
                    Some(rest) => {
                        rest.next = None;
                        self.read_vm(cx, Accept::Single, None);
                    }
                    None => {
                        self.aside_ends(cx);
                        self.read_to_verify(cx, &mut verify);
                    }
                }
                self.judge(Judge::Verify(verify));
            }
            Judge::Refused(refusal, then) => {
                self.aside_ends(cx);
                self.refusal_woke(cx, refusal, then);
            }
            judge @ (Judge::Others { .. } | Judge::OthersOfRemoval { .. }) => self.judge(judge),
        }
    }

    /// Those of these disks that do not exist any more or are attached to another VM. While the VM lists them every write
    /// fails (source: the Go drivers leave such disks out and try again).
    pub(super) fn stale_of(&self, reads: Vec<(DiskId, Result<DiskSeen, E>)>) -> BTreeSet<DiskId> {
        let is_stale = |read: &Result<DiskSeen, E>| match read {
            Ok(read) => match attach::attachable(&read.disk, &self.vm) {
                // The metadata of a page blob keep the resource group that its machine was in before a move.
                Err(Unattachable::AttachedTo(holders)) => {
                    let has_its_name = |holder: &ArmId| holder.name().eq_ignore_ascii_case(self.vm.name());
                    read.disk.id.managed().is_some() || !holders.iter().any(has_its_name)
                }
                _ => false,
            },
            Err(error) => *error.fault() == Fault::NotFound,
        };
        reads.into_iter().filter(|(_, read)| is_stale(read)).map(|(disk, _)| disk).collect()
    }
}

/// After a write that failed: the disks of the VM's model that were no members of the write, and that may be stale.
pub(super) fn others_that_may_be_stale<E: AzureError>(members: &Batch, vm: &Vm, failure: &Failure<E>) -> Vec<DiskId> {
    let named = failure.named_disk();
    let others = vm.data_disks.iter().filter_map(|element| match &element.source {
        DataDiskSource::Disk(id) if !members.contains_key(id) => Some(id.clone()),
        _ => None,
    });
    // In the state Succeeded every listed disk is attached, unless Azure's error names it.
    let may_be_stale =
        |disk: &DiskId| vm.provisioning_state == ProvisioningState::Failed || Some(disk) == named.as_ref();
    others.filter(may_be_stale).collect()
}

/// Whether Azure is doing what a refused write asked for: the answer to an earlier try of the write was lost.
fn is_under_way(write: &VmWrite, vm: &Vm) -> bool {
    let attaching = |attachment: &Attachment| {
        vm.data_disk(&attachment.disk).is_some_and(|element| element.lun == attachment.lun && !element.to_be_detached)
    };
    let detaching = |disk: &DiskId| vm.data_disk(disk).is_some_and(|element| element.to_be_detached);
    vm.provisioning_state == ProvisioningState::InProgress
        && (write.attach.iter().any(attaching) || write.detach.iter().any(detaching))
}

/// Whether another writer has filled a LUN that a write was to fill.
fn is_lun_taken_by_another_writer(write: &VmWrite, vm: &Vm) -> bool {
    write.attach.iter().any(|attachment| {
        vm.data_disks.iter().any(|element| element.lun == attachment.lun && !element.is(&attachment.disk))
    })
}

/// The LUNs of disks that a write did not name and that are gone after it. A disk that another writer attached between
/// the read and the write does not show here. That writer sees it vanish in its own check.
pub(super) fn unnamed_disks_gone(before: &Vm, write: &VmWrite, after: &Vm) -> Vec<Lun> {
    let leaves = |element: &DataDisk| element.to_be_detached || write.detach.iter().any(|disk| element.is(disk));
    let stays = |element: &DataDisk| {
        after.data_disks.iter().any(|other| other.lun == element.lun && other.source == element.source)
    };
    before.data_disks.iter().filter(|element| !leaves(element) && !stays(element)).map(|element| element.lun).collect()
}
