//! Laws that are broken on purpose: what a step is told, or what it wants done, is distorted on its way.

use std::time::Duration;

use lazuli_model::fault::Fault;

use super::{
    azure::{ArmAnswer, Azure},
    driver::Side,
    schedule::VmNo,
};
use crate::Action;

/// A distortion, to see that a law notices it. The step knows nothing of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Mutant {
    #[default]
    None,
    /// The last element of a VM's model is hidden from the step.
    HidesElements,
    /// The step sees no VolumeAttachment.
    ForgetsReservations,
    /// Attachments that are not known count as none.
    TrustsCold,
    /// A write detaches another disk too.
    DetachesMore,
    /// Disks do not say that this VM holds them.
    DeniesHolders,
    /// An answer is given twice.
    AnswersTwice,
    /// A detach that failed is answered OK.
    LiesDetached,
    /// A list of VMs counts as a single read.
    TrustsLists,
    /// A read counts as sent when it is answered.
    OldReads,
    /// A read of a VM is answered by the one before.
    CachesReads,
    /// The step does not learn that a caller has given up.
    HidesAbandonment,
    /// The step takes every failed operation for a conflict.
    HidesFailures,
    /// Every other timer is forgotten.
    ForgetsTimers,
    /// The step's clock is fast.
    FastClock,
    /// Permits are not given back.
    LeaksPermits,
    /// What the step drops goes on.
    ForgetsDrops,
    /// A write is taken for ended when it is sent.
    EndsEarly,
    /// No attach of the leader before is suspected.
    ForgetsSuspicions,
    /// A replica counts as the leader all the time.
    LeadsAlways,
    /// No write of this process counts as one that reads may lack.
    ForgetsWritesBefore,
    /// A VM of which a write runs is shown at rest.
    HidesOperations,
}

impl Mutant {
    /// By how much the clock of [`Self::FastClock`] is fast.
    pub(super) const FASTER: u32 = 200;

    /// Each with the laws that may notice it.
    pub(super) const ALL: [(Self, &'static [&'static str]); 21] = [
        (Self::HidesElements, &["law 1"]),
        (Self::ForgetsReservations, &["law 2 (named LUN)"]),
        (Self::TrustsCold, &["law 2 (cold)"]),
        (Self::DetachesMore, &["law 3 (detach)"]),
        (Self::DeniesHolders, &["law 3"]),
        (Self::AnswersTwice, &["law 4 (once)"]),
        (Self::LiesDetached, &["law 4 (true)"]),
        (Self::TrustsLists, &["law 4 (true)"]),
        (Self::OldReads, &["law 5 (evidence)"]),
        (Self::CachesReads, &["law 5 (fresh)"]),
        (Self::HidesAbandonment, &["law 6 (wanted)"]),
        (Self::HidesFailures, &["law 7"]),
        (Self::ForgetsTimers, &["law 8"]),
        (Self::FastClock, &["law 8 (livelock)"]),
        (Self::LeaksPermits, &["law 9 (permits)"]),
        (Self::ForgetsDrops, &["law 9"]),
        (Self::EndsEarly, &["law 9 (one"]),
        (Self::ForgetsSuspicions, &["law 10"]),
        (Self::LeadsAlways, &["law 10"]),
        (Self::ForgetsWritesBefore, &["law 11"]),
        (Self::HidesOperations, &["law 11"]),
    ];

    /// The step's clock.
    pub(super) fn clock(self, at: Duration) -> Duration {
        if self == Self::FastClock { at * Self::FASTER } else { at }
    }

    pub(super) fn hides_abandonment(self) -> bool {
        self == Self::HidesAbandonment
    }

    /// How a write has ended, as the step is told.
    pub(super) fn written(self, written: Result<Duration, ArmAnswer>) -> Result<Duration, ArmAnswer> {
        match written {
            Err(error) if self == Self::HidesFailures => Err(ArmAnswer { fault: Fault::Conflict, ..error }),
            written => written,
        }
    }

    /// What is carried out for an action.
    pub(super) fn distort(
        self,
        azure: &Azure,
        side: &Side,
        vm: VmNo,
        mut action: Action<ArmAnswer>,
    ) -> Vec<Action<ArmAnswer>> {
        match (self, &mut action) {
            (Self::AnswersTwice, Action::Answer { .. }) => return vec![action.clone(), action],
            (Self::LiesDetached, Action::Answer { outcome, .. }) if is_of_detach(outcome) => **outcome = Ok(None),
            (Self::DetachesMore, Action::Write { write, .. }) => {
                let elements = side.kept.iter().flat_map(|(_, read)| &read.machine.elements);
                let held = elements.filter(|element| azure.disk(element.disk).holders.contains_key(&vm));
                let more =
                    held.map(|element| azure.habits.disk_id(element.disk)).find(|disk| !write.detach.contains(disk));
                write.detach.extend(more);
            }
            _ => {}
        }
        vec![action]
    }
}

/// Whether a failure is that of a detach which Azure shows not to have happened.
fn is_of_detach(outcome: &crate::Outcome<ArmAnswer>) -> bool {
    use crate::Why;
    outcome.as_ref().is_err_and(|failure| matches!(failure.why, Why::StillListed | Why::Write | Why::Deferred))
}
