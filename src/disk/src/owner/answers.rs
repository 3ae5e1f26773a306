//! What callers are told, and what becomes of their wishes.

use lazuli_plan::{attach::Settled, fault::Fault, model::ArmId};

use super::{
    Driver,
    queue::{Batch, Goal, Outcome, Queue, Retry},
};
use crate::VolumeError;

impl Driver {
    /// What a caller is told of what needs no write.
    pub(super) fn say(&self, disk: &ArmId, settled: Settled) -> Outcome {
        let node = &self.node;
        Err(match settled {
            Settled::Attached { lun } => return Ok(Some(lun)),
            Settled::Detached => return Ok(None),
            Settled::StillLeaving => {
                VolumeError::new(Fault::BeingDetached, format!("{disk} is still being detached from node {node}"))
            }
            Settled::DetachFailed => VolumeError::new(
                Fault::BeingDetached,
                format!(
                    "{disk} cannot be attached to node {node}: Azure was told to detach it from there and failed, and a \
                     VolumeAttachment says that the node may still use it; detach it again when no pod there does"
                ),
            ),
            Settled::TooManyDisks { limit, attached } => VolumeError::new(
                Fault::DiskLimit,
                format!(
                    "{disk} cannot be attached to node {node}: its VM size takes {limit} data disks and it has {attached}"
                ),
            ),
            Settled::NoFreeLun => VolumeError::new(
                Fault::DiskLimit,
                format!(
                    "{disk} cannot be attached to node {node}: every LUN is occupied or named by a VolumeAttachment"
                ),
            ),
            Settled::ReservationsUnknown => VolumeError::new(
                Fault::Unavailable,
                format!("{disk} cannot be attached to node {node}: the cluster's VolumeAttachments are not known yet"),
            ),
        })
    }

    /// From here on these wishes go on without their callers. `false` when one is not wanted any more as it was: then
    /// it is to be planned anew.
    pub(super) fn send(&self, members: &Batch) -> bool {
        self.shared.queues().get_mut(&self.vm).is_some_and(|queue| queue.send(members))
    }

    /// Puts requests back for the next round, or answers them with the last failure when they have had their tries.
    pub(super) fn try_again(&self, members: &Batch, failure: &VolumeError, retry: Retry) {
        let spent = self.shared.queues().get_mut(&self.vm).map(|queue| queue.put_back(members, retry));
        for (disk, goal) in spent.unwrap_or_default() {
            self.answer(&disk, goal, &Err(concerning(failure, &disk, goal)));
        }
    }

    /// What is wanted now, while no write runs.
    pub(super) fn unsent(&self) -> Batch {
        self.shared.queues().get(&self.vm).map(Queue::unsent).unwrap_or_default()
    }

    /// Answers a wish, if it is still there.
    pub(super) fn answer(&self, disk: &ArmId, goal: Goal, outcome: &Outcome) {
        let request = self.shared.queues().get_mut(&self.vm).and_then(|queue| queue.take(disk, goal));
        if let Some(request) = request {
            request.answer(outcome);
        }
    }

    pub(super) fn answer_all<'a>(&self, wishes: impl IntoIterator<Item = (&'a ArmId, &'a Goal)>, outcome: &Outcome) {
        for (disk, goal) in wishes {
            self.answer(disk, *goal, outcome);
        }
    }
}

/// The failure of a write, as it is told to whoever wants this of this disk. That another's disk is missing, elsewhere
/// or wrong is no reason of theirs, nor is that a disk is missing or elsewhere, if it is not told which. And a disk that
/// is to leave is not refused for being so.
pub(super) fn concerning(failure: &VolumeError, disk: &ArmId, goal: Goal) -> VolumeError {
    let named = failure.culprit();
    let theirs = match failure.fault {
        Fault::NotFound | Fault::AttachedElsewhere { .. } => goal != Goal::Detached && named.as_ref() == Some(disk),
        Fault::BeingDetached | Fault::InUse | Fault::Invalid | Fault::Unclear | Fault::Exhausted => {
            named.is_none_or(|named| named == *disk)
        }
        _ => true,
    };
    if theirs { failure.clone() } else { failure.clone().resorted(Fault::Conflict) }
}
