//! Detaches by force, from VMs that are proved stopped. Decided in [`lazuli_storage::force_detach`].

use std::{
    collections::BTreeSet,
    sync::{MutexGuard, PoisonError},
};

use lazuli_azure::error::ArmError;
use lazuli_model::{
    ArmId, AzureTime, Disk, Vm,
    event::{Event, Reason, Regarding},
    op::{VmWrite, VmWriteMethod},
};
use lazuli_storage::force_detach::{self, Detach, FailedDetaches, ForceDetach};
use tracing::{info, warn};

use super::{
    Shared, VmWorker,
    queue::{Goal, Outcome},
};

impl Shared {
    fn failed_detaches(&self) -> MutexGuard<'_, FailedDetaches> {
        // Every change is a single insertion or removal, so a panic elsewhere leaves the set consistent.
        self.failed_detaches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl VmWorker {
    /// The disks that this round detaches by force: their ordinary detach has failed, and Azure shows right now that the VM
    /// is stopped.
    pub(super) async fn forced(&self, vm: &Vm, detach: &BTreeSet<ArmId>) -> BTreeSet<ArmId> {
        // A list by omission cannot say how a disk leaves.
        if self.shared.policy.force_detach == ForceDetach::Off
            || self.shared.method() == VmWriteMethod::WholeListByOmission
        {
            return BTreeSet::new();
        }
        let has_failed =
            |disk: &&ArmId| vm.data_disk(disk).is_some() && self.shared.failed_detaches().contains(&self.vm, disk);
        let failed: Vec<ArmId> = detach.iter().filter(has_failed).cloned().collect();
        if failed.is_empty() {
            return BTreeSet::new();
        }
        // Another hand may have detached the disk and attached it again since.
        let reads = self.read(failed).await;
        let is_this_attachment = |disk: &Disk| self.shared.failed_detaches().is_of_this_attachment(&self.vm, disk);
        let failed: BTreeSet<ArmId> = reads
            .into_iter()
            .filter(|(_, read)| read.as_ref().is_ok_and(|read| is_this_attachment(&read.model)))
            .map(|(disk, _)| disk)
            .collect();
        if failed.is_empty() {
            return failed;
        }
        let priority = self.priority(&failed.iter().map(|disk| (disk.clone(), Goal::Detached)).collect());
        match self.shared.client.instance_view(&self.vm, priority).await {
            Ok(view) => match force_detach::check(view) {
                Ok(()) => {
                    warn!(disks = failed.len(), "an ordinary detach failed and the VM is stopped; detaching by force");
                    failed
                }
                Err(why) => {
                    info!(disks = failed.len(), %why, "an ordinary detach failed; not detaching by force");
                    BTreeSet::new()
                }
            },
            Err(error) => {
                warn!(%error, "an ordinary detach failed, and whether the VM is stopped cannot be read");
                BTreeSet::new()
            }
        }
    }

    /// Records the outcome of a request, for the next detach of the disk. `detach` is how its last write ended.
    pub(super) fn note_detach(&self, disk: &ArmId, goal: Goal, detach: Detach, outcome: &Outcome) {
        let mut failed = self.shared.failed_detaches();
        match (goal, outcome) {
            (Goal::Detached, Ok(_)) => failed.ended(&self.vm, disk, None),
            (Goal::Detached, Err(error)) => failed.ended(&self.vm, disk, Some((detach, &error.fault))),
            (Goal::Attached(_), _) => failed.attached(&self.vm, disk),
        }
    }

    /// Records how the detaches of a write ended that failed.
    pub(super) fn note_failed_write(&self, write: &VmWrite, error: &ArmError, read_answered: Option<AzureTime>) {
        let detach = Detach::of_write(&error.fault, error.effect, error.status.is_some(), read_answered);
        if let Some(queue) = self.shared.queues().get_mut(&self.vm) {
            queue.note_detach(&write.detach, detach);
        }
    }

    /// Reports the disks that a write has detached by force.
    pub(super) fn report_forced(&self, write: &VmWrite) {
        for disk in &write.force {
            let what = format!(
                "Disk {} was detached by force from this node, whose VM is stopped, after its ordinary detach had failed",
                disk.name()
            );
            if let Some(node) = Regarding::of_node(&self.node) {
                self.shared.policy.events.send(Event::new(node, Reason::ForceDetached, what));
            }
        }
    }
}
