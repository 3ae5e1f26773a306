//! What is remembered of a VM's failed writes until a write succeeds: the bisection, the write method on trial, and the
//! stale data disks in the VM's model.

use std::{collections::BTreeSet, time::Duration};

use lazuli_engine::bisection::{Bisection, BisectionStep};
use lazuli_model::{
    DiskId, ProvisioningState, Vm,
    fault::{Effect, Fault},
    op::VmWriteMethod,
};

use super::{
    failure::{AzureError, Failure},
    queue::Batch,
};
use lazuli_storage::attach::Goal;

/// After how many failing disks in a row the VM is taken for the cause.
const MAX_FAILING_DISKS: u32 = 3;
/// How long all pauses together may be. After that the callers get the failure.
const MAX_TOTAL_PAUSE: Duration = Duration::from_secs(60);
/// The first pause where Azure does not say how long to wait. It doubles with each further pause.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// How often a write is tried again when Azure cannot be reached.
const MAX_UNREACHABLE_PAUSES: u32 = 3;

#[derive(Debug, Clone)]
pub(super) struct Attempts<E> {
    /// The disks of which one makes writes fail.
    pub(super) bisection: Bisection<DiskId>,
    /// The write method on trial. It becomes the method of all VMs once a write by it has succeeded.
    pub(super) method: Option<VmWriteMethod>,
    /// Disks to remove from the VM's model before anything else is written: the VM lists them although they are not
    /// attached to it, and they or a disk of the same batch make its writes fail.
    pub(super) stale_disks: BTreeSet<DiskId>,
    /// Whether the VM still listed a deleted disk after a whole-list write that omitted it.
    pub(super) omission_had_no_effect: bool,
    /// Whether Azure has refused the list by which stale disks are removed, where the action is used otherwise.
    pub(super) list_is_refused: bool,
    /// The batch under bisection, and how its write failed.
    failed: Option<(Batch, Failure<E>)>,
    /// Failed writes since the last that succeeded, or since a failing disk was found.
    failures: u32,
    /// The most disks that one of these writes was about.
    most_members: usize,
    /// Failing disks since the last write that succeeded.
    failing_disks: u32,
    /// Pauses since the last write that succeeded, and their sum.
    pauses: u32,
    waited: Duration,
}

impl<E> Default for Attempts<E> {
    fn default() -> Self {
        Self {
            bisection: Bisection::default(),
            method: None,
            stale_disks: BTreeSet::new(),
            omission_had_no_effect: false,
            list_is_refused: false,
            failed: None,
            failures: 0,
            most_members: 0,
            failing_disks: 0,
            pauses: 0,
            waited: Duration::ZERO,
        }
    }
}

impl<E: AzureError> Attempts<E> {
    /// Whether no failed write changes what the next write contains or how it is sent.
    pub(super) fn is_clean(&self) -> bool {
        self.failed.is_none() && self.failures == 0 && self.stale_disks.is_empty() && self.method.is_none()
    }

    /// How long to wait before the VM is read and planned again, where Azure did nothing and asked for a pause, or
    /// could not be reached. `None` when all pauses together would be too long: then the callers get the failure.
    pub(super) fn pause(&mut self, error: &E) -> Option<Duration> {
        let asked = match error.fault() {
            Fault::Throttled { retry_after } => *retry_after,
            Fault::Unavailable if error.effect() == Effect::None && self.pauses < MAX_UNREACHABLE_PAUSES => None,
            _ => return None,
        };
        let pause = asked.unwrap_or_else(|| FIRST_PAUSE * 2u32.pow(self.pauses.min(3)));
        if self.waited + pause > MAX_TOTAL_PAUSE {
            return None;
        }
        self.pauses += 1;
        self.waited += pause.max(FIRST_PAUSE);
        Some(pause)
    }

    /// Counts a failed write of so many disks. Returns how many have failed.
    pub(super) fn count_failure(&mut self, members: usize) -> u32 {
        self.failures += 1;
        self.most_members = self.most_members.max(members);
        self.failures
    }

    /// Whether more writes have failed than the bisection of the whole batch takes: the cause is the VM then, and no disk.
    pub(super) fn are_beyond_bisection(&self) -> bool {
        let longest = u32::try_from(self.most_members).unwrap_or(u32::MAX).max(2).ilog2() + 2;
        self.failures > longest
    }

    /// Begins or continues a bisection: a write of these disks failed because of one of them.
    pub(super) fn bisect(&mut self, members: Batch, failure: Failure<E>) {
        self.bisection.failed(members.keys().cloned().collect());
        self.failed = Some((members, failure));
    }

    /// Records disks that their own state answered. If one of them is under bisection, it is the failing disk.
    pub(super) fn answered_by_disk_state(&mut self, disks: &BTreeSet<DiskId>) {
        if disks.iter().any(|disk| self.bisection.contains(disk)) {
            self.failing_disk_found();
        }
    }

    /// Records that the failing disk is known and answered. Several disks may fail at once, up to
    /// [`MAX_FAILING_DISKS`]. Beyond that the VM is taken for the cause.
    pub(super) fn failing_disk_found(&mut self) {
        self.bisection.end();
        self.failed = None;
        self.failing_disks += 1;
        if self.failing_disks <= MAX_FAILING_DISKS {
            (self.failures, self.most_members) = (0, 0);
        }
    }

    /// Records a write that succeeded. Returns the failing disk when all other disks of the bisection are cleared: it
    /// need not be written alone to fail.
    pub(super) fn write_succeeded(&mut self, members: &Batch) -> Option<(DiskId, Goal, Failure<E>)> {
        self.bisection.cleared(members.keys());
        (self.failures, self.most_members) = (0, 0);
        self.failing_disks = 0;
        self.pauses = 0;
        self.waited = Duration::ZERO;
        let BisectionStep::Found(failing) = self.bisection.next_step() else { return None };
        let (batch, failure) = self.failed.take()?;
        self.bisection.end();
        Some((failing.clone(), *batch.get(&failing)?, failure))
    }

    /// Records the stale data disks that a failed write of these disks has left in the VM's model, if this Azure cloud
    /// leaves them there.
    pub(super) fn note_stale(&mut self, members: &Batch, vm: &Vm) {
        if vm.provisioning_state != ProvisioningState::Failed {
            return;
        }
        let left = members.iter().filter(|(disk, goal)| {
            matches!(goal, Goal::Attached(_)) && vm.data_disk(disk).is_some_and(|element| !element.to_be_detached)
        });
        self.stale_disks.extend(left.map(|(disk, _)| disk.clone()));
    }
}

#[cfg(test)]
mod tests {
    use lazuli_engine::single::AzureFailure;

    use super::*;

    /// Azure's error, of which these tests need nothing.
    #[derive(Debug, Clone)]
    struct Refused;

    impl AzureFailure for Refused {
        fn fault(&self) -> &Fault {
            &Fault::Denied
        }

        fn effect(&self) -> Effect {
            Effect::None
        }

        fn code(&self) -> &str {
            ""
        }
    }

    impl AzureError for Refused {
        fn status(&self) -> Option<u16> {
            Some(403)
        }

        fn named_disk(&self) -> Option<DiskId> {
            None
        }
    }

    #[test]
    fn a_bisection_may_take_as_many_failed_writes_as_its_whole_batch_needs() {
        let mut attempts: Attempts<Refused> = Attempts::default();
        for members in [16, 8, 4, 2] {
            attempts.count_failure(members);
            assert!(!attempts.are_beyond_bisection(), "{members}");
        }
        for _ in 0..3 {
            attempts.count_failure(2);
        }
        assert!(attempts.are_beyond_bisection(), "no disk alone is the cause of so many failures");
    }
}
