//! What an owner remembers of writes that failed, until they no longer do: whom it suspects, which way of writing it
//! is trying, and what failed attaches have left in the VM's model.

use std::{collections::BTreeSet, time::Duration};

use lazuli_azure::error::ArmError;
use lazuli_plan::{
    attach::{Search, Suspects},
    fault::{Effect, Fault},
    model::{ArmId, ProvisioningState, Vm},
    op::VmWriteMethod,
};

use super::queue::{Batch, Goal};
use crate::VolumeError;

/// How many members of a batch may be bad one after the other before the VM is to blame.
const MOST_CULPRITS: u32 = 3;
/// How long all pauses together may be before the callers are told: they may do better things.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The first pause where Azure does not say how long; it doubles.
const UNASKED_PAUSE: Duration = Duration::from_secs(1);
/// How often an Azure that is not reached is tried again.
const MOST_PAUSES: u32 = 3;

#[derive(Debug, Default)]
pub(super) struct Trouble {
    pub(super) suspects: Suspects,
    /// How to write, on trial: for good once it has succeeded.
    pub(super) method: Option<VmWriteMethod>,
    /// What must leave the VM's model before anything else is written: the VM lists these and does not hold them, and
    /// they, or one that came with them, make its writes fail.
    pub(super) leftovers: BTreeSet<ArmId>,
    /// Whether a list without what does not exist any more has not made the VM drop it.
    pub(super) omitted_in_vain: bool,
    /// The batch whose members are the suspects, and how it failed.
    failed: Option<(Batch, VolumeError)>,
    /// Writes that failed since the last that succeeded, or since a culprit was found.
    failures: u32,
    /// Culprits since the last write that succeeded.
    culprits: u32,
    /// Pauses since the last write that succeeded, and how long they were together.
    pauses: u32,
    waited: Duration,
}

impl Trouble {
    /// How long to wait before the VM is read and planned for again, where Azure did nothing and asked for a pause, or
    /// was not reached. `None` when that would be too long: then the callers do better things.
    pub(super) fn pause(&mut self, error: &ArmError) -> Option<Duration> {
        let asked = match &error.fault {
            Fault::Throttled { retry_after } => *retry_after,
            Fault::Unavailable if error.effect == Effect::None && self.pauses < MOST_PAUSES => None,
            _ => return None,
        };
        let pause = asked.unwrap_or_else(|| UNASKED_PAUSE * 2u32.pow(self.pauses.min(3)));
        if self.waited + pause > LONGEST_WAIT {
            return None;
        }
        self.pauses += 1;
        self.waited += pause.max(UNASKED_PAUSE);
        Some(pause)
    }

    /// Counts a write that failed and gives how many have.
    pub(super) fn another(&mut self) -> u32 {
        self.failures += 1;
        self.failures
    }

    /// Whether a search among so many has met so many failures that no member can be to blame: the VM is.
    pub(super) fn beyond_search(&self, members: usize) -> bool {
        let longest = u32::try_from(members).unwrap_or(u32::MAX).max(2).ilog2() + 2;
        self.failures > longest
    }

    /// One of these makes writes fail, and how.
    pub(super) fn suspect(&mut self, members: Batch, failure: VolumeError) {
        self.suspects.failed(members.keys().cloned().collect());
        self.failed = Some((members, failure));
    }

    /// These were answered by their own state. Where one of them was suspected, there is the culprit.
    pub(super) fn answered(&mut self, disks: &BTreeSet<ArmId>) {
        if disks.iter().any(|disk| self.suspects.contains(disk)) {
            self.found();
        }
    }

    /// The member to blame is known and out of the batch. A few may be bad at once; where all seem to be, the VM is.
    pub(super) fn found(&mut self) {
        self.suspects = Suspects::default();
        self.failed = None;
        self.culprits += 1;
        if self.culprits <= MOST_CULPRITS {
            self.failures = 0;
        }
    }

    /// Gives the one that is left when all others are cleared: it need not be written alone to fail.
    pub(super) fn succeeded(&mut self, members: &Batch) -> Option<(ArmId, Goal, VolumeError)> {
        self.suspects.cleared(&members.keys().cloned().collect());
        self.failures = 0;
        self.culprits = 0;
        self.pauses = 0;
        self.waited = Duration::ZERO;
        let Search::Found(culprit) = self.suspects.next() else { return None };
        let (batch, failure) = self.failed.take()?;
        self.suspects = Suspects::default();
        Some((culprit.clone(), *batch.get(&culprit)?, failure))
    }

    /// Takes note of what a failed write that brought these has left in the VM's model, if this Azure leaves it there.
    pub(super) fn left_over(&mut self, members: &Batch, vm: &Vm) {
        if vm.provisioning_state != ProvisioningState::Failed {
            return;
        }
        let left = members.iter().filter(|(disk, goal)| {
            matches!(goal, Goal::Attached(_)) && vm.data_disk(disk).is_some_and(|element| !element.to_be_detached)
        });
        self.leftovers.extend(left.map(|(disk, _)| disk.clone()));
    }
}
