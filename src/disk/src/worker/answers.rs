//! The outcomes that callers get.

use std::collections::BTreeMap;

use lazuli_azure::error::ArmError;
use lazuli_model::{ArmId, AzureTime, fault::Fault};
use lazuli_storage::{
    attach::{Resolution, Resolved, Unattachable},
    force_detach::Detach,
    late_attach,
};
use tokio::time::Instant;

use super::{
    VmWorker,
    queue::{Batch, Goal, Opposed, Outcome, Queue, Retry},
};
use crate::VolumeError;

impl VmWorker {
    /// Answers the requests that a plan has resolved by a read of the VM that Azure answered then. `unreadable` has the
    /// failed reads of disks.
    pub(super) fn resolve_all(
        &self,
        answered: Option<AzureTime>,
        goals: &Batch,
        resolved: BTreeMap<ArmId, Resolution<Instant>>,
        unreadable: &BTreeMap<ArmId, ArmError>,
    ) {
        for (disk, Resolution { resolved, sent_at }) in resolved {
            if let Some(goal) = goals.get(&disk) {
                let outcome = self.resolved_outcome(&disk, resolved, unreadable.get(&disk));
                self.resolve(&disk, *goal, &outcome, sent_at, answered);
            }
        }
    }

    /// The outcome of a request that needs no write.
    fn resolved_outcome(&self, disk: &ArmId, resolved: Resolved, unreadable: Option<&ArmError>) -> Outcome {
        let node = &self.node;
        Err(match resolved {
            Resolved::Attached { lun } => return Ok(Some(lun)),
            Resolved::Detached => return Ok(None),
            Resolved::MayBeAttaching => may_be_attaching(disk, node),
            Resolved::StillLeaving => {
                VolumeError::new(Fault::BeingDetached, format!("{disk} is still being detached from node {node}"))
            }
            Resolved::DetachFailed => VolumeError::new(
                Fault::BeingDetached,
                format!(
                    "{disk} cannot be attached to node {node}: Azure was told to detach it from there and failed, and a \
                     VolumeAttachment says that the node may still use it; detach it again when no pod there does"
                ),
            ),
            Resolved::TooManyDisks { limit, attached } => VolumeError::new(
                Fault::DiskLimit,
                format!(
                    "{disk} cannot be attached to node {node}: its VM size takes {limit} data disks and it has {attached}"
                ),
            )
            .noted(format!(
                "No further disk can be attached to node {node}: its VM size takes {limit} data disks and it has \
                 {attached}"
            )),
            Resolved::NoFreeLun => VolumeError::new(
                Fault::DiskLimit,
                format!(
                    "{disk} cannot be attached to node {node}: every LUN is occupied or named by a VolumeAttachment"
                ),
            )
            .noted(format!(
                "No further disk can be attached to node {node}: every LUN of its VM is occupied or named by a \
                 VolumeAttachment"
            )),
            Resolved::Unattachable(Unattachable::AttachedTo(holders)) => self.attached_elsewhere(disk, &holders),
            Resolved::Unattachable(Unattachable::InUse(state)) => VolumeError::new(
                Fault::InUse,
                format!("{disk} cannot be attached while it is {state}: a shared access signature is out on it"),
            ),
            Resolved::UnreadableDisk => match unreadable {
                Some(error) => VolumeError::azure(format!("{disk} cannot be read"), error.clone()),
                None => VolumeError::new(Fault::Unavailable, format!("{disk} cannot be read; retry")),
            },
        })
    }

    /// Marks these requests as sent: from now on they go on without their callers. Returns `false`, and marks none,
    /// when one has been abandoned or replaced. The batch must then be planned again.
    pub(super) fn send(&self, members: &Batch) -> bool {
        self.shared.queues().get_mut(&self.vm).is_some_and(|queue| queue.send(members))
    }

    /// Puts requests back for the next round. Answers those that have used up their tries with the last failure.
    pub(super) fn try_again(&self, members: &Batch, failure: &VolumeError, retry: Retry) {
        let spent = self.shared.queues().get_mut(&self.vm).map(|queue| queue.put_back(members, retry));
        for (disk, goal) in spent.unwrap_or_default() {
            self.answer(&disk, goal, &Err(failure_for(failure, &disk, goal)));
        }
    }

    /// The requests that no write in flight is about.
    pub(super) fn unsent(&self) -> Batch {
        self.shared.queues().get(&self.vm).map(Queue::unsent).unwrap_or_default()
    }

    /// Answers a request, if it is still in the queue.
    pub(super) fn answer(&self, disk: &ArmId, goal: Goal, outcome: &Outcome) {
        let request = self.shared.queues().get_mut(&self.vm).and_then(|queue| queue.take(disk, goal));
        if let Some(request) = request {
            self.note_outcome(disk, goal, request.detach(), outcome, None);
            request.answer(outcome);
        }
    }

    /// Records the outcome of a request before its callers get it.
    fn note_outcome(&self, disk: &ArmId, goal: Goal, detach: Detach, outcome: &Outcome, answered: Option<AzureTime>) {
        self.note_detach(disk, goal, detach, outcome);
        match goal {
            Goal::Attached(_) if outcome.is_ok() => {
                self.shared.seen_attachments().attached(disk, &self.vm, answered);
            }
            Goal::Attached(_) => {}
            // A detach that failed may be carried out later.
            Goal::Detached => self.shared.seen_attachments().detached(disk, &self.vm),
        }
    }

    /// Answers a request by a read that was sent then and answered at that time of Azure's, if it is still in the queue. Its
    /// callers that came since stay.
    pub(super) fn resolve(
        &self,
        disk: &ArmId,
        goal: Goal,
        outcome: &Outcome,
        sent_at: Instant,
        answered: Option<AzureTime>,
    ) {
        if outcome.is_ok() {
            self.shared.note_shown(&self.vm, disk, goal != Goal::Detached, sent_at);
        }
        let mut queues = self.shared.queues();
        let Some(queue) = queues.get_mut(&self.vm) else { return };
        if let Some(detach) = queue.detach_of(disk, goal) {
            self.note_outcome(disk, goal, detach, outcome, answered);
            queue.resolve(disk, goal, outcome, sent_at);
        }
    }

    pub(super) fn answer_all<'a>(&self, requests: impl IntoIterator<Item = (&'a ArmId, &'a Goal)>, outcome: &Outcome) {
        for (disk, goal) in requests {
            self.answer(disk, *goal, outcome);
        }
    }
}

/// The message for a request that contradicts an earlier one of the same disk on the same node.
pub(super) fn opposed_message(disk: &ArmId, node: &str, goal: Goal, opposed: Opposed) -> String {
    match (goal, opposed.goal) {
        (Goal::Detached, _) => {
            let state = if opposed.sent { "it is being attached to it" } else { "its attach to it is requested" };
            format!("{disk} cannot be detached from node {node} while {state}; retry when the attach has finished")
        }
        (Goal::Attached(_), Goal::Detached) => {
            let state = if opposed.sent { "it is being detached from it" } else { "its detach from it is requested" };
            format!("{disk} cannot be attached to node {node} while {state}; retry when the detach has finished")
        }
        (Goal::Attached(asked), Goal::Attached(earlier)) => {
            let [asked, earlier] =
                [asked, earlier].map(|caching| caching.map_or("default", |caching| caching.as_str()));
            format!(
                "{disk} cannot be attached to node {node} with {asked} caching while an attach with {earlier} caching is \
                 under way; retry when that attach has finished"
            )
        }
    }
}

/// The answer to a detach while an attach of the disk may be under way of which Azure shows nothing.
pub(crate) fn may_be_attaching(disk: &ArmId, node: &str) -> VolumeError {
    VolumeError::new(
        Fault::Busy,
        format!(
            "{disk} may still become attached to node {node}: its VolumeAttachment names no LUN, and a controller that ran \
             before this one may have sent an attach that Azure does not show yet; retry, the detach succeeds within {} s",
            late_attach::LONGEST.as_secs()
        ),
    )
}

/// The failure of a batch's write, as the caller of one of its requests gets it.
///
/// A failure that is about another disk is a conflict to this caller, and so is "not found" or "attached elsewhere"
/// where Azure does not name the disk. "Not found" and "attached elsewhere" are always conflicts to the caller of a
/// detach.
pub(super) fn failure_for(failure: &VolumeError, disk: &ArmId, goal: Goal) -> VolumeError {
    let named = failure.named_disk();
    let about_this_disk = match failure.fault {
        Fault::NotFound | Fault::AttachedElsewhere { .. } => goal != Goal::Detached && named.as_ref() == Some(disk),
        Fault::BeingDetached
        | Fault::InUse
        | Fault::Invalid
        | Fault::Unclear
        | Fault::Exhausted
        | Fault::LinkedForbidden
        | Fault::Denied
        | Fault::OperationFailed => named.is_none_or(|named| named == *disk),
        _ => true,
    };
    match failure.fault {
        _ if !about_this_disk => failure.clone().resorted(Fault::Conflict),
        // Azure's message names the scope that the identity may not use, and not the disk that refers to it.
        Fault::LinkedForbidden => failure.clone().prefixed(&format!(
            "{disk}: this program's identity lacks a right on the disk or on a resource that it refers to"
        )),
        _ => failure.clone(),
    }
}
