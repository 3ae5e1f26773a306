//! The detaches of unused disks, each of which is for one attachment alone. Decided in [`lazuli_storage::dangling`].

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use lazuli_model::{Disk, DiskId, fault::Fault};

use super::{AzureError, Batch, Cx, DiskSeen, Failure, State, Why};
use lazuli_storage::dangling::Dangling;

/// How long the reads may take together. A person needs longer to detach a disk and attach it again.
const FRESH: Duration = Duration::from_secs(2);
/// How often the disks are read until they are read fast enough.
const MOST_READS: usize = 8;

/// The conditions of a batch's detaches, while the disks are read.
#[derive(Debug)]
pub(super) struct Conditions {
    of: BTreeMap<DiskId, Vec<Dangling>>,
    reads_made: usize,
    asked_at: Duration,
}

impl<E: AzureError> State<E> {
    /// Reads the disks of the conditional detaches of a batch that is about to be written. `None` where there are none.
    pub(super) fn look_at_conditions(&mut self, cx: &mut Cx<'_, E>, about_to_be_written: &Batch) -> Option<Conditions> {
        let of = self.queue.conditional(about_to_be_written);
        if of.is_empty() {
            return None;
        }
        self.read_disks(cx, of.keys().cloned().collect());
        Some(Conditions { of, reads_made: 1, asked_at: cx.now })
    }

    /// Answers the callers whose condition does not hold. Returns the disks of which this batch may request no detach, or
    /// the conditions where the disks are read again.
    pub(super) fn conditions_read(
        &mut self,
        cx: &mut Cx<'_, E>,
        mut conditions: Conditions,
        reads: Vec<(DiskId, Result<DiskSeen, E>)>,
    ) -> Result<BTreeSet<DiskId>, Conditions> {
        // A read that Azure made wait makes the others old.
        let is_fresh = cx.now.saturating_sub(conditions.asked_at) <= FRESH;
        if !is_fresh && conditions.reads_made < MOST_READS {
            conditions.reads_made += 1;
            conditions.asked_at = cx.now;
            self.read_disks(cx, conditions.of.keys().cloned().collect());
            return Err(conditions);
        }
        let mut refused = BTreeSet::new();
        for (disk, read) in reads {
            let mut holds = false;
            for condition in conditions.of.remove(&disk).unwrap_or_default() {
                let verdict = match &read {
                    Ok(_) if !is_fresh => Err(Failure::new(Fault::Unavailable, Why::SlowReads)),
                    Ok(read) => self.check_again(cx, &condition, &read.disk),
                    Err(error) => Err(Failure::azure(Why::DiskUnreadable, error.clone())),
                };
                match verdict {
                    Ok(()) => holds = true,
                    Err(failure) => {
                        let callers = self.queue.refuse(&disk, &condition);
                        cx.answer(callers, &disk, &Err(failure));
                    }
                }
            }
            // A caller without a condition may have come during the read. Its request waits for the next round.
            if !holds {
                refused.insert(disk);
            }
        }
        Ok(refused)
    }

    fn check_again(&self, cx: &Cx<'_, E>, condition: &Dangling, disk: &Disk<DiskId>) -> Result<(), Failure<E>> {
        let attached_by = cx.memory.seen_attachments.attached_by(disk, &self.vm);
        let node = cx.env.nodes.name_of(&self.vm).unwrap_or(&self.node);
        let named = cx.env.attachments.may_name(node, &disk.id);
        let checked = condition.check_again(disk, attached_by, named);
        checked.map_err(|reason| Failure::new(Fault::Conflict, Why::NotDangling(reason)))
    }
}
