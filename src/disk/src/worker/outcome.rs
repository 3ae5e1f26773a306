//! The write of a batch, and what the worker does about its result.

use std::{collections::BTreeMap, pin::pin, sync::PoisonError, time::Duration};

use lazuli_azure::{
    compute::{Freshness, Snapshot},
    error::ArmError,
    permits::Permit,
};
use lazuli_model::{
    ArmId, DataDisk, Lun, ProvisioningState, Vm,
    event::{Event, Reason, Regarding},
    fault::{Effect, Fault},
    op::{Attachment, VmWrite, VmWriteMethod},
};
use lazuli_quota::permit::Priority;
use lazuli_storage::attach::{self, Bisection, Reaction};
use tokio::time::{Instant, timeout};
use tracing::{debug, error, info, warn};

use super::{
    READ_LAG_PAUSES, VmWorker,
    answers::failure_for,
    failure_state::FailureState,
    queue::{Batch, Goal, Retry},
    version,
};
use crate::VolumeError;

/// How long to wait after the first conflict.
const CONFLICT_PAUSE: Duration = Duration::from_millis(250);
/// By how much the pause after repeated conflicts grows at most.
const MAX_CONFLICT_FACTOR: u32 = 16;
/// How long a write of a VM takes at most, as a rule (source: a median of 10 s and a tail beyond 60 s). After this time
/// the worker answers requests that need no write while the write goes on.
const SLOW_WRITE: Duration = Duration::from_secs(30);

/// What became of a write that is to be verified.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ended<'a> {
    /// Azure reports that it succeeded, and had accepted it by then.
    Well(&'a VmWrite, Instant),
    Badly(&'a VolumeError),
}

impl VmWorker {
    /// Writes a batch, verifies the result, and answers the requests that it decides.
    pub(super) async fn write(
        &self,
        vm: &Snapshot<Vm>,
        write: &VmWrite,
        members: &Batch,
        permit: Option<Permit>,
        failure_state: &mut FailureState,
    ) {
        let written = write.attach.iter().map(|attachment| &attachment.disk).chain(&write.detach).chain(&write.reapply);
        let members: Batch = written.map(|disk| (disk.clone(), members[disk])).collect();
        if !self.send(&members) {
            // A caller has given up since the VM was read. The next round plans the remaining requests.
            return;
        }
        let method = failure_state.method.unwrap_or_else(|| self.shared.method());
        self.note_leaving(write);
        let started = Instant::now();
        let result = self.send_write(vm, write, method, self.priority(&members), permit).await;
        // A write that names no disk is sent as a list, whatever the method.
        let method = if write.says_nothing() { VmWriteMethod::WholeList } else { method };
        match result {
            Ok(accepted) => {
                info!(
                    attached = write.attach.len(),
                    reapplied = write.reapply.len(),
                    detached = write.detach.len(),
                    seconds = started.elapsed().as_secs_f64(),
                    "data disks written"
                );
                self.report_forced(write);
                if !write.says_nothing() && failure_state.method.take().is_some() {
                    *self.shared.method.lock().unwrap_or_else(PoisonError::into_inner) = method;
                }
                if let Some((failing, goal, failure)) = failure_state.write_succeeded(&members) {
                    self.answer_refused(&failing, goal, failure).await;
                }
                let members = self.without_listed_not_attached(members, &write.reapply, failure_state).await;
                // A disk that must be detached before it can be attached is half way.
                let half_way = |disk: &ArmId, goal: Goal| goal != Goal::Detached && write.detach.contains(disk);
                let (half, mut members): (Batch, Batch) =
                    members.into_iter().partition(|(disk, goal)| half_way(disk, *goal));
                members.extend(half.keys().map(|disk| (disk.clone(), Goal::Detached)));
                let after = self.verify(&members, Ended::Well(write, accepted), Retry::Counted).await;
                let message = format!("node {}: its VM still lists a disk that it was told to detach", self.node);
                self.try_again(&half, &VolumeError::new(Fault::BeingDetached, message), Retry::Counted);
                if let (VmWriteMethod::WholeList | VmWriteMethod::WholeListByOmission, None, Some(after)) =
                    (method, &vm.etag, after)
                {
                    // Another writer may have written between this worker's read and its write. Nothing else shows
                    // that.
                    for lun in unnamed_disks_gone(&vm.model, write, &after) {
                        error!(%lun, "a data disk that this write did not name is gone from the VM since it was read");
                        self.report_vanished(lun);
                    }
                }
            }
            Err(error) => self.failed(vm, write, members, method, error, failure_state).await,
        }
    }

    /// Reports a data disk that a write did not name and that is gone after it.
    fn report_vanished(&self, lun: Lun) {
        if let Some(node) = Regarding::of_node(&self.node) {
            let what = format!(
                "The data disk at LUN {lun} is gone from this node since its VM was read, although the write of the VM did not \
                 name it"
            );
            self.shared.policy.events.send(Event::new(node, Reason::DataDiskVanished, what));
        }
    }

    /// Records which disks a write detaches: a disk that is created later may have the name of one of them.
    pub(super) fn note_leaving(&self, write: &VmWrite) {
        self.shared.sources().detaching(&self.vm, &write.detach);
    }

    /// Records what a read shows after a write that succeeded, and which disks that has attached.
    fn note_written(&self, vm: &Snapshot<Vm>, write: &VmWrite, accepted: Instant) {
        let mut sources = self.shared.sources();
        sources.write_read(&vm.model, version(vm), vm.seen.sent_at);
        write.attach.iter().for_each(|attachment| sources.attached(&self.vm, &attachment.disk, accepted));
    }

    /// Writes. After [`SLOW_WRITE`] it answers requests that need no write while the write goes on.
    async fn send_write(
        &self,
        vm: &Snapshot<Vm>,
        write: &VmWrite,
        method: VmWriteMethod,
        priority: Priority,
        permit: Option<Permit>,
    ) -> Result<Instant, ArmError> {
        let mut written = pin!(self.shared.client.write_vm(vm, write, method, priority, permit));
        match timeout(SLOW_WRITE, &mut written).await {
            Ok(result) => result,
            Err(_) => self.while_answering(written).await,
        }
    }

    /// Reacts to a write that failed: answers its requests, or puts them back for the next round. The write followed from
    /// this read of the VM.
    async fn failed(
        &self,
        read: &Snapshot<Vm>,
        write: &VmWrite,
        members: Batch,
        method: VmWriteMethod,
        error: ArmError,
        failure_state: &mut FailureState,
    ) {
        self.note_failed_write(write, &error, read.answered);
        if let Some(pause) = failure_state.pause(&error) {
            // Azure did nothing. After the pause the VM and the requests may have changed, so the worker plans again.
            warn!(error = %error, ?pause, "the VM is read and planned again after a pause");
            self.try_again(&members, &VolumeError::azure("a write of data disks was deferred", error), Retry::Free);
            self.pause(pause).await;
            return;
        }
        // An action that fails after Azure accepted it exists, and the identity may use it.
        let accepted = error.status.is_some_and(|status| (200..300).contains(&status));
        let tried_method = if accepted { VmWriteMethod::WholeList } else { method };
        let mut reaction = attach::reaction(&error.fault, tried_method, read.seen.by);
        let failures = failure_state.count_failure();
        warn!(error = %error, members = members.len(), "a write of data disks failed");
        let error = VolumeError::azure(format!("node {}: its data disks cannot be written", self.node), error);
        let named = error.named_disk().filter(|named| members.contains_key(named));
        // A bisection in which no write succeeds looks for a failing disk where the VM is the cause.
        if reaction == Reaction::Bisect
            && named.is_none()
            && members.len() > 1
            && failure_state.beyond_bisection(members.len())
        {
            reaction = Reaction::FailAll;
        }
        debug!(?reaction, "reaction to the failed write");
        let refused = matches!(error.fault, Fault::Forbidden | Fault::Unsupported | Fault::Malformed);
        if method == VmWriteMethod::WholeList && refused {
            // The method on trial does not work either.
            failure_state.method = None;
        }
        // An immediate refusal is about what the write contains. Only for an empty write is it about the VM's model.
        let tried = (accepted || write.says_nothing())
            && match reaction {
                Reaction::Bisect => true,
                Reaction::FailAll => accepted || refused,
                Reaction::ReadAgain | Reaction::WriteWholeList => false,
            };
        if tried && !write.reapply.is_empty() {
            // Applying the model again did not attach what it lists. The next round removes these disks from the model.
            failure_state.stale_disks.extend(write.reapply.iter().cloned());
            self.verify(&members, Ended::Badly(&error), Retry::Counted).await;
            return;
        }
        match reaction {
            Reaction::WriteWholeList => {
                failure_state.method = Some(VmWriteMethod::WholeList);
                self.try_again(&members, &error, Retry::Free);
            }
            Reaction::ReadAgain => {
                // The VM may not show another writer's write, so the worker pauses.
                if error.fault == Fault::Conflict {
                    let factor = 2u32.saturating_pow(failures.saturating_sub(1)).min(MAX_CONFLICT_FACTOR);
                    self.pause(CONFLICT_PAUSE * factor).await;
                }
                self.verify(&members, Ended::Badly(&error), Retry::Counted).await;
            }
            Reaction::FailAll => {
                // Part of the write may have happened: the VM shows which disks are attached.
                let vm = self.verify(&members, Ended::Badly(&error), Retry::Free).await;
                if vm.is_some_and(|vm| under_way(write, &vm)) {
                    self.verify(&members, Ended::Badly(&error), Retry::Counted).await;
                    return;
                }
                for (disk, goal) in &members {
                    self.answer(disk, *goal, &Err(failure_for(&error, disk, *goal)));
                }
                failure_state.bisection = Bisection::default();
            }
            Reaction::Bisect => {
                if let Some(vm) = self.verify(&members, Ended::Badly(&error), Retry::Free).await {
                    if under_way(write, &vm) {
                        self.verify(&members, Ended::Badly(&error), Retry::Counted).await;
                        return;
                    }
                    if lun_taken_by_another_writer(write, &vm) {
                        // No disk is the cause: another writer was first. The action takes no etag that would show it.
                        self.try_again(&members, &error, Retry::Counted);
                        return;
                    }
                    failure_state.note_stale(&members, &vm);
                    let unrelated_stale = self.unrelated_stale(&members, &vm, &error).await;
                    if !unrelated_stale.is_empty() {
                        // An unrelated stale disk is the cause, and no member.
                        failure_state.stale_disks.extend(unrelated_stale);
                        self.try_again(&members, &error, Retry::Counted);
                        return;
                    }
                }
                let only = || members.first_key_value().filter(|_| members.len() == 1);
                match named.and_then(|named| members.get_key_value(&named)).or_else(only) {
                    Some((failing, goal)) => {
                        self.answer_refused(failing, *goal, error).await;
                        failure_state.failing_disk_found();
                    }
                    None => failure_state.bisect(members, error),
                }
            }
        }
    }

    /// Reads the VM after a write and answers every request that it meets. The others go into the next round, or are
    /// answered with the write's failure when they have used up their tries. Returns the last read.
    pub(super) async fn verify(&self, members: &Batch, write: Ended<'_>, retry: Retry) -> Option<Vm> {
        // Its callers have waited as long as those of a poll.
        let freshness = Freshness::single().priority(self.priority(members).min(Priority::Poll));
        let mut lag = READ_LAG_PAUSES.iter();
        let (vm, unmet) = loop {
            // After another writer's write, or a lost answer, the VM shows the result only when that write has ended.
            let read = match (write, retry) {
                (Ended::Badly(_), Retry::Counted) => self.at_rest().await,
                (Ended::Badly(_), Retry::Free) => self.read_vm(freshness).await,
                (Ended::Well(..), _) => self.shared.client.read_vm(&self.vm, freshness).await,
            };
            let vm = match read {
                Ok(vm) => vm,
                Err(error) => {
                    let message = format!(
                        "node {}: its VM cannot be read after a write, so the write's outcome is unknown",
                        self.node
                    );
                    let error = VolumeError::azure(message, error).resorted(Fault::OutcomeUnknown);
                    self.answer_all(members, &Err(error.with_effect(Effect::Possible)));
                    return None;
                }
            };
            let failed = matches!(write, Ended::Badly(_));
            let confirmed = attach::confirm(&vm.model, vm.seen, members, failed);
            let is_unmet = |(disk, _): &(&ArmId, &Goal)| !confirmed.contains_key(*disk);
            let unmet: Batch = members.iter().filter(is_unmet).map(|(disk, goal)| (disk.clone(), *goal)).collect();
            let lags = lag.next().filter(|_| !failed && !unmet.is_empty());
            if let (Ended::Well(write, accepted), None) = (write, lags) {
                // Before its requests are answered, because their callers ask what is known of their disks.
                self.note_written(&vm, write, accepted);
            }
            let Snapshot { model, answered, .. } = vm;
            self.resolve_all(answered, members, confirmed, &BTreeMap::new());
            match lags {
                Some(pause) => self.pause(*pause).await,
                None => break (model, unmet),
            }
        };
        match write {
            Ended::Badly(failure) => self.try_again(&unmet, failure, retry),
            Ended::Well(..) => {
                let message =
                    format!("node {}: Azure reports that the write succeeded, and its VM does not show it", self.node);
                self.try_again(&unmet, &VolumeError::new(Fault::Conflict, message), retry);
            }
        }
        Some(vm)
    }
}

/// Whether Azure is doing what a refused write asked for: the answer to an earlier try of the write was lost.
fn under_way(write: &VmWrite, vm: &Vm) -> bool {
    let attaching = |attachment: &Attachment| {
        vm.data_disk(&attachment.disk).is_some_and(|element| element.lun == attachment.lun && !element.to_be_detached)
    };
    let detaching = |disk: &ArmId| vm.data_disk(disk).is_some_and(|element| element.to_be_detached);
    vm.provisioning_state == ProvisioningState::InProgress
        && (write.attach.iter().any(attaching) || write.detach.iter().any(detaching))
}

/// Whether another writer has filled a LUN that a write was to fill.
fn lun_taken_by_another_writer(write: &VmWrite, vm: &Vm) -> bool {
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
