//! The detaches of unused disks, each of which is for one attachment alone. Decided in [`lazuli_storage::dangling`].

use std::{collections::BTreeSet, time::Duration};

use lazuli_model::{ArmId, Disk, fault::Fault};
use lazuli_storage::dangling::Dangling;
use tokio::time::Instant;
use tracing::info;

use super::{VmWorker, queue::Batch};
use crate::VolumeError;

/// How long the reads may take together. A person needs longer to detach a disk and attach it again.
const FRESH: Duration = Duration::from_secs(2);
/// How often the disks are read until they are read fast enough.
const MOST_READS: usize = 8;

impl VmWorker {
    /// Reads the disks of the conditional detaches of a batch that is about to be written, and answers the callers whose
    /// condition does not hold. Returns the disks of which this batch may request no detach.
    pub(super) async fn refuse_conditional(&self, about_to_be_written: &Batch) -> BTreeSet<ArmId> {
        let conditional = self.shared.queues().get(&self.vm).map(|queue| queue.conditional(about_to_be_written));
        let mut conditional = conditional.unwrap_or_default();
        if conditional.is_empty() {
            return BTreeSet::new();
        }
        let mut reads = Vec::new();
        let mut fresh = false;
        for _ in 0..MOST_READS {
            let asked_at = Instant::now();
            reads = self.read(conditional.keys().cloned().collect()).await;
            // A read that Azure made wait makes the others old.
            fresh = asked_at.elapsed() <= FRESH;
            if fresh {
                break;
            }
        }
        let mut refused = BTreeSet::new();
        for (disk, read) in reads {
            let mut holds = false;
            for condition in conditional.remove(&disk).unwrap_or_default() {
                let verdict = match &read {
                    Ok(_) if !fresh => Err(VolumeError::new(
                        Fault::Unavailable,
                        format!("{disk} is not detached: Azure answers reads too slowly to tell who has attached it"),
                    )),
                    Ok(read) => self.check_again(&condition, &read.model),
                    Err(error) => Err(VolumeError::azure(format!("{disk} cannot be read"), error.clone())),
                };
                match verdict {
                    Ok(()) => holds = true,
                    Err(error) => {
                        info!(%disk, %error, "the detach of an unused disk is not sent");
                        if let Some(queue) = self.shared.queues().get_mut(&self.vm) {
                            queue.refuse(&disk, &condition, &Err(error));
                        }
                    }
                }
            }
            // A caller without a condition may have come during the read. Its request waits for the next round.
            if !holds {
                refused.insert(disk);
            }
        }
        refused
    }

    fn check_again(&self, condition: &Dangling, disk: &Disk) -> Result<(), VolumeError> {
        let attached_by = self.shared.seen_attachments().attached_by(disk, &self.vm);
        let node = self.shared.nodes.node_of(&self.vm).unwrap_or_else(|| self.node.clone());
        let named = self.shared.reservations.now().may_name(&node, &disk.id);
        condition.check_again(disk, attached_by, named).map_err(|reason| VolumeError::not_dangling(&disk.id, reason))
    }
}
