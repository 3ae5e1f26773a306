//! What a failed attach may leave behind: an element in the VM's model of a disk that the VM does not hold. Whether
//! Azure leaves it there is not documented, so both are handled; the Go drivers know of it and send the VM an update
//! that says nothing.
//!
//! Such a disk is not attached, whatever the model says, and may make every later write of the VM fail. First the
//! model is applied again, which is harmless and often enough. Where that fails, or changes nothing, the element is
//! taken off, and the disk is attached anew. The same is done with elements that nobody wants here any more and that
//! make writes fail: of disks that do not exist, or that another VM holds. A disk is touched here only while its own
//! state says that the VM does not hold it, so nothing can be using it. Wishes that need no write are answered before
//! anything is cleared, and while the clearing waits for somebody else's write.
//!
//! When nobody waits any more, what is left over stays. An owner writes for its callers alone: whoever wanted the disk
//! has a VolumeAttachment that asks for it again, or for its end, and either puts things right; an element that nobody
//! will ask for is of a disk that is gone or elsewhere, harms nothing by itself, and is met by the next write of the VM,
//! whoever makes it. What is known of leftovers may be lost at any moment with the process, so that this has to be
//! enough.

use std::collections::BTreeSet;

use lazuli_azure::{compute::Snapshot, error::ArmError};
use lazuli_plan::{
    attach::{self, Reaction, Unattachable},
    fault::Fault,
    model::{ArmId, DataDiskSource, Disk, ProvisioningState, Vm},
    op::{VmWrite, VmWriteMethod},
};
use tracing::warn;

use super::{
    Driver, LAG, Round,
    answers::concerning,
    queue::{Batch, Goal, Retry},
    trouble::Trouble,
};
use crate::VolumeError;

impl Driver {
    /// After a write that succeeded: the members without those that it was to bring by applying the model again, and
    /// that are still not held. These are tried again without their element.
    pub(super) async fn without_unheld(&self, mut members: Batch, reapplied: &[ArmId], trouble: &mut Trouble) -> Batch {
        let mut unheld: Vec<ArmId> = reapplied.to_vec();
        let mut lag = LAG.iter();
        while !unheld.is_empty() {
            unheld = self
                .read(unheld)
                .await
                .into_iter()
                .filter(|(_, read)| matches!(read, Ok(read) if !attach::held(&read.model, &self.vm)))
                .map(|(disk, _)| disk)
                .collect();
            match lag.next() {
                Some(pause) if !unheld.is_empty() => self.pause(*pause).await,
                _ => break,
            }
        }
        let unmet: Batch = unheld.iter().filter_map(|disk| members.remove_entry(disk)).collect();
        if !unmet.is_empty() {
            let message = format!("node {}: its VM lists a disk that it does not hold, after an update too", self.node);
            self.try_again(&unmet, &VolumeError::new(Fault::Conflict, message), Retry::Counted);
            trouble.leftovers.extend(unheld);
        }
        members
    }

    /// After a write that failed: disks of the VM's model that were not its members and cannot come, for they do not
    /// exist any more or are another VM's. While they are listed every write fails (source: the Go drivers leave such
    /// disks out and try again).
    pub(super) async fn strangers(&self, members: &Batch, vm: &Vm, failure: &VolumeError) -> Vec<ArmId> {
        let named = failure.culprit();
        let others = vm.data_disks.iter().filter_map(|element| match &element.source {
            DataDiskSource::Managed(id) if !members.contains_key(id) => Some(id.clone()),
            _ => None,
        });
        // A VM at rest holds what it lists, unless Azure says otherwise of one.
        let suspect = |disk: &ArmId| vm.provisioning_state == ProvisioningState::Failed || Some(disk) == named.as_ref();
        let cannot_come = |read: &Result<Snapshot<Disk>, ArmError>| match read {
            Ok(read) => matches!(attach::attachable(&read.model, &self.vm), Err(Unattachable::HeldBy(_))),
            Err(error) => error.fault == Fault::NotFound,
        };
        let read = self.read(others.filter(suspect).collect()).await;
        read.into_iter().filter(|(_, read)| cannot_come(read)).map(|(disk, _)| disk).collect()
    }

    /// Takes what failed attaches have left out of the VM's model, so that the wishes for these disks begin anew and
    /// the others do not fail with them.
    pub(super) async fn clear(&self, vm: &Snapshot<Vm>, goals: &Batch, trouble: &mut Trouble) -> Round {
        // Who needs no write is not kept by it.
        trouble.answered(&self.settle(&vm.model, goals).await);
        let goals = self.unsent();
        if goals.is_empty() {
            return Round::Goes;
        }
        if vm.model.provisioning_state == ProvisioningState::InProgress {
            return Round::WaitsForVm(goals);
        }
        let leftovers = std::mem::take(&mut trouble.leftovers);
        let wishes: Batch = goals
            .iter()
            .filter(|(disk, _)| leftovers.contains(*disk))
            .map(|(disk, goal)| (disk.clone(), *goal))
            .collect();
        let listed = leftovers.iter().filter(|disk| vm.model.data_disk(disk).is_some()).cloned().collect();
        let mut missing = false;
        let mut detach = BTreeSet::new();
        for (disk, read) in self.read(listed).await {
            match read {
                Ok(read) if attach::certainly_unheld(&read.model, &self.vm) => drop(detach.insert(disk)),
                Err(error) if error.fault == Fault::NotFound => {
                    missing = true;
                    detach.insert(disk);
                }
                Ok(_) | Err(_) => {}
            }
        }
        if detach.is_empty() {
            return Round::Goes;
        }
        let usual = trouble.method.unwrap_or_else(|| self.shared.method());
        // Under the etag of the VM that was read before the disks: nothing else tells of an attach that another
        // replica has begun since.
        let conditional =
            if vm.etag.is_some() && usual == VmWriteMethod::Action { VmWriteMethod::WholeList } else { usual };
        let conditional = match conditional {
            // A list that names what does not exist may be refused, however it names it (source: the Go drivers leave it
            // out), and one that leaves it out may keep it.
            VmWriteMethod::WholeList if missing && !trouble.omitted_in_vain => VmWriteMethod::WholeListByOmission,
            method => method,
        };
        let omits_the_missing = conditional == VmWriteMethod::WholeListByOmission && usual != conditional;
        if conditional == VmWriteMethod::WholeListByOmission {
            // This list cannot say of what leaves already that it leaves, nor does an old API tell; to name it is refused.
            let listed = |disk: &ArmId| vm.model.data_disk(disk).is_some();
            let leaving = goals.iter().filter(|(disk, goal)| **goal == Goal::Detached && listed(disk));
            detach.extend(leaving.map(|(disk, _)| disk.clone()));
        }
        warn!(disks = detach.len(), "taking off the VM what failed attaches have left in its model");
        let write = VmWrite {
            vm: self.vm.clone(),
            attach: Vec::new(),
            detach: detach.iter().cloned().collect(),
            reapply: Vec::new(),
        };
        let mut method = conditional;
        let mut written = self.shared.client.write_vm(vm, &write, conditional).await;
        if let Err(error) = &written
            && conditional != usual
            && usual == VmWriteMethod::Action
            && matches!(error.fault, Fault::Forbidden | Fault::Unsupported | Fault::Malformed | Fault::Invalid)
        {
            // The role, or this Azure, has the action only.
            method = usual;
            written = self.shared.client.write_vm(vm, &write, usual).await;
        }
        if let Err(error) = &written
            && let Some(pause) = trouble.pause(error)
        {
            trouble.leftovers = leftovers;
            self.pause(pause).await;
            return Round::Goes;
        }
        let failure = match written {
            Ok(()) => {
                let detached: Batch = detach.iter().map(|disk| (disk.clone(), Goal::Detached)).collect();
                let after = self.verify(&detached, None, Retry::Free).await;
                if after.is_some_and(|after| detach.iter().all(|disk| after.data_disk(disk).is_none())) {
                    trouble.omitted_in_vain = false;
                    return Round::Goes;
                }
                let message = format!("node {}: its VM still lists what was taken off it", self.node);
                VolumeError::new(Fault::Conflict, message)
            }
            Err(error) if attach::reaction(&error.fault, method) == Reaction::Regather => {
                // The VM has changed since it was read.
                trouble.leftovers = leftovers;
                let message = format!("node {}: its VM changed while a failed attach was taken off it", self.node);
                self.try_again(&goals, &VolumeError::azure(message, error), Retry::Counted);
                return Round::Goes;
            }
            Err(error) if attach::reaction(&error.fault, method) == Reaction::WriteWholeList => {
                trouble.method = Some(VmWriteMethod::WholeList);
                trouble.leftovers = leftovers;
                return Round::Goes;
            }
            Err(error) => {
                let message =
                    format!("node {}: what a failed attach left in its VM's model cannot be taken off", self.node);
                VolumeError::azure(message, error)
            }
        };
        if omits_the_missing {
            trouble.omitted_in_vain = true;
            trouble.leftovers = leftovers;
            self.try_again(&goals, &failure, Retry::Counted);
            return Round::Goes;
        }
        let more = self.others_left_over(&detach, &failure).await;
        if !more.is_empty() {
            trouble.leftovers = leftovers.into_iter().chain(more).collect();
            self.try_again(&goals, &failure, Retry::Counted);
            return Round::Goes;
        }
        for (disk, goal) in &wishes {
            self.answer(disk, *goal, &Err(concerning(&failure, disk, *goal)));
        }
        Round::Goes
    }

    /// What else of the VM's model may have made the clearing of these fail.
    async fn others_left_over(&self, cleared: &BTreeSet<ArmId>, failure: &VolumeError) -> Vec<ArmId> {
        let Ok(vm) = self.shared.client.get_vm(&self.vm).await else { return Vec::new() };
        let cleared: Batch = cleared.iter().map(|disk| (disk.clone(), Goal::Detached)).collect();
        self.strangers(&cleared, &vm.model, failure).await
    }
}
