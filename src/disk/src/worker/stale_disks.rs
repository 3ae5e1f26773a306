//! Stale data disks: elements of a VM's model whose disks are not attached to the VM.
//!
//! A failed attach may leave such an element behind. Whether Azure leaves it there is not documented, so the worker
//! handles both cases. The Go drivers know the problem and send the VM an empty update.
//!
//! Such a disk is not attached, whatever the model lists, and it may make every later write of the VM fail.
//!
//! 1. The worker applies the model again by an empty update. This is harmless and often enough.
//! 2. If the update fails or changes nothing, the worker removes the element, and then attaches the disk again.
//!
//! The worker also removes unrelated stale disks that make writes fail: disks that do not exist any more, or that are
//! attached to another VM, and of which nothing is requested here. It removes an element only while the disk does not
//! exist or its own state proves that it is not attached to the VM, so no workload can be using the disk. Requests that
//! need no write are answered before the removal, and while the removal waits for another writer's write.
//!
//! Stale disks stay when no caller waits any more, because a worker writes for its callers alone. A disk that was
//! requested has a VolumeAttachment, so external-attacher requests its attach or its detach again, and either repairs
//! the model. An unrelated stale disk does no harm by itself, and the worker finds it when the next write of the VM
//! fails. A worker may lose what it knows of stale disks with its process at any moment, so this has to suffice.

use std::collections::BTreeSet;

use lazuli_azure::{compute::Snapshot, error::ArmError, permits::Permit};
use lazuli_model::{
    ArmId, DataDiskSource, Disk, ProvisioningState, Vm,
    fault::Fault,
    op::{VmWrite, VmWriteMethod},
};
use lazuli_quota::permit::Priority;
use lazuli_storage::attach::{self, Reaction, Unattachable};
use tracing::warn;

use super::{
    READ_LAG_PAUSES, Round, VmWorker,
    answers::failure_for,
    disks::DiskReads,
    failure_state::FailureState,
    outcome::Ended,
    queue::{Batch, Goal, Retry},
};
use crate::VolumeError;

impl VmWorker {
    /// After a write that succeeded: the members without those that the write applied again and that are still not
    /// attached. The worker removes the elements of these and attaches them again.
    pub(super) async fn without_listed_not_attached(
        &self,
        mut members: Batch,
        reapplied: &[ArmId],
        failure_state: &mut FailureState,
    ) -> Batch {
        let mut listed_not_attached: Vec<ArmId> = reapplied.to_vec();
        let mut lag = READ_LAG_PAUSES.iter();
        while !listed_not_attached.is_empty() {
            listed_not_attached = self
                .read(listed_not_attached)
                .await
                .into_iter()
                .filter(|(_, read)| matches!(read, Ok(read) if !attach::confirmed_attached(&read.model, &self.vm)))
                .map(|(disk, _)| disk)
                .collect();
            match lag.next() {
                Some(pause) if !listed_not_attached.is_empty() => self.pause(*pause).await,
                _ => break,
            }
        }
        let unmet: Batch = listed_not_attached.iter().filter_map(|disk| members.remove_entry(disk)).collect();
        if !unmet.is_empty() {
            let message = format!(
                "node {}: its VM still lists a disk that is not attached to it, after an update of the VM",
                self.node
            );
            self.try_again(&unmet, &VolumeError::new(Fault::Conflict, message), Retry::Counted);
            failure_state.stale_disks.extend(listed_not_attached);
        }
        members
    }

    /// After a write that failed: the stale disks of the VM's model that were no members of the write. They do not
    /// exist any more or are attached to another VM. While the VM lists them every write fails (source: the Go drivers
    /// leave such disks out and try again).
    pub(super) async fn unrelated_stale(&self, members: &Batch, vm: &Vm, failure: &VolumeError) -> Vec<ArmId> {
        let named = failure.named_disk();
        let others = vm.data_disks.iter().filter_map(|element| match &element.source {
            DataDiskSource::Managed(id) if !members.contains_key(id) => Some(id.clone()),
            _ => None,
        });
        // In the state Succeeded every listed disk is attached, unless Azure's error names it.
        let may_be_stale =
            |disk: &ArmId| vm.provisioning_state == ProvisioningState::Failed || Some(disk) == named.as_ref();
        let is_stale = |read: &Result<Snapshot<Disk>, ArmError>| match read {
            Ok(read) => matches!(attach::attachable(&read.model, &self.vm), Err(Unattachable::AttachedTo(_))),
            Err(error) => error.fault == Fault::NotFound,
        };
        let read = self.read(others.filter(may_be_stale).collect()).await;
        read.into_iter().filter(|(_, read)| is_stale(read)).map(|(disk, _)| disk).collect()
    }

    /// Removes the stale disks from the VM's model, so that the requests for these disks start afresh and the other
    /// requests do not fail with them.
    pub(super) async fn remove_stale_disks(
        &self,
        vm: &Snapshot<Vm>,
        goals: &Batch,
        permit: Option<Permit>,
        failure_state: &mut FailureState,
    ) -> Round {
        // The removal delays no request that needs no write.
        let answered = self.answer_without_write(vm, goals).await.answered_by_disk_state();
        failure_state.answered_by_disk_state(&answered);
        let goals = self.unsent();
        if goals.is_empty() {
            return Round::Continue;
        }
        if vm.model.provisioning_state == ProvisioningState::InProgress {
            return Round::WaitsForVm(goals);
        }
        if permit.is_none() && self.needs_permit(vm, failure_state) {
            return Round::WaitsForPermit(Priority::Detach, DiskReads::default());
        }
        let mut goals = goals;
        let refused = self.refuse_conditional(&goals).await;
        goals.retain(|disk, _| !refused.contains(disk));
        if goals.is_empty() {
            return Round::Continue;
        }
        let stale_disks = std::mem::take(&mut failure_state.stale_disks);
        let requests: Batch = goals
            .iter()
            .filter(|(disk, _)| stale_disks.contains(*disk))
            .map(|(disk, goal)| (disk.clone(), *goal))
            .collect();
        let listed = stale_disks.iter().filter(|disk| vm.model.data_disk(disk).is_some()).cloned().collect();
        let mut missing = false;
        let mut detach = BTreeSet::new();
        for (disk, read) in self.read(listed).await {
            match read {
                Ok(read) if attach::proved_not_attached(&read.model, &self.vm) => drop(detach.insert(disk)),
                Err(error) if error.fault == Fault::NotFound => {
                    missing = true;
                    detach.insert(disk);
                }
                Ok(_) | Err(_) => {}
            }
        }
        if detach.is_empty() {
            return Round::Continue;
        }
        let usual = failure_state.method.unwrap_or_else(|| self.shared.method());
        // The write's condition is the etag of the VM as read before the disks. Nothing else shows an attach that
        // another replica has begun since.
        let conditional =
            if vm.etag.is_some() && usual == VmWriteMethod::Action { VmWriteMethod::WholeList } else { usual };
        let conditional = match conditional {
            // Azure may refuse a list that names a deleted disk, even to detach it (source: the Go drivers leave it
            // out). Azure may also keep the disk when the list leaves it out.
            VmWriteMethod::WholeList if missing && !failure_state.omission_had_no_effect => {
                VmWriteMethod::WholeListByOmission
            }
            method => method,
        };
        let omits_the_missing = conditional == VmWriteMethod::WholeListByOmission && usual != conditional;
        if conditional == VmWriteMethod::WholeListByOmission {
            // A list by omission cannot mark a disk as being detached, an old API does not report the mark, and Azure
            // refuses a list that names such a disk. So the list omits every disk whose detach is requested.
            let listed = |disk: &ArmId| vm.model.data_disk(disk).is_some();
            let leaving = goals.iter().filter(|(disk, goal)| **goal == Goal::Detached && listed(disk));
            detach.extend(leaving.map(|(disk, _)| disk.clone()));
        }
        warn!(disks = detach.len(), "removing stale data disks from the VM's model");
        let write = VmWrite {
            vm: self.vm.clone(),
            attach: Vec::new(),
            detach: detach.iter().cloned().collect(),
            force: BTreeSet::new(),
            reapply: Vec::new(),
        };
        self.note_leaving(&write);
        let mut method = conditional;
        let mut written = self.shared.client.write_vm(vm, &write, conditional, self.priority(&goals), permit).await;
        if let Err(error) = &written
            && conditional != usual
            && usual == VmWriteMethod::Action
            && matches!(
                error.fault,
                Fault::Forbidden | Fault::LinkedForbidden | Fault::Unsupported | Fault::Malformed | Fault::Invalid
            )
        {
            // The role, or this Azure cloud, has the action only. A list needs rights on the VM's other resources too.
            method = usual;
            written = self.shared.client.write_vm(vm, &write, usual, self.priority(&goals), None).await;
        }
        if let Err(error) = &written
            && let Some(pause) = failure_state.pause(error)
        {
            failure_state.stale_disks = stale_disks;
            self.pause(pause).await;
            return Round::Continue;
        }
        let failure = match written {
            Ok(accepted) => {
                let detached: Batch = detach.iter().map(|disk| (disk.clone(), Goal::Detached)).collect();
                let after = self.verify(&detached, Ended::Well(&write, accepted), Retry::Free).await;
                if after.is_some_and(|after| detach.iter().all(|disk| after.data_disk(disk).is_none())) {
                    failure_state.omission_had_no_effect = false;
                    return Round::Continue;
                }
                let message =
                    format!("node {}: its VM still lists a stale data disk that was removed from it", self.node);
                VolumeError::new(Fault::Conflict, message)
            }
            Err(error) if attach::reaction(&error.fault, method, vm.seen.by) == Reaction::ReadAgain => {
                // The VM has changed since it was read.
                failure_state.stale_disks = stale_disks;
                let message =
                    format!("node {}: its VM changed while a stale data disk was being removed from it", self.node);
                self.try_again(&goals, &VolumeError::azure(message, error), Retry::Counted);
                return Round::Continue;
            }
            Err(error) if attach::reaction(&error.fault, method, vm.seen.by) == Reaction::WriteWholeList => {
                failure_state.method = Some(VmWriteMethod::WholeList);
                failure_state.stale_disks = stale_disks;
                return Round::Continue;
            }
            Err(error) => {
                let message = format!("node {}: a stale data disk cannot be removed from its VM's model", self.node);
                VolumeError::azure(message, error)
            }
        };
        if omits_the_missing {
            failure_state.omission_had_no_effect = true;
            failure_state.stale_disks = stale_disks;
            self.try_again(&goals, &failure, Retry::Counted);
            return Round::Continue;
        }
        let more = self.other_stale_disks(&detach, &failure).await;
        if !more.is_empty() {
            failure_state.stale_disks = stale_disks.into_iter().chain(more).collect();
            self.try_again(&goals, &failure, Retry::Counted);
            return Round::Continue;
        }
        for (disk, goal) in &requests {
            self.answer(disk, *goal, &Err(failure_for(&failure, disk, *goal)));
        }
        Round::Continue
    }

    /// Further stale disks that may have made the removal of these fail.
    async fn other_stale_disks(&self, cleared: &BTreeSet<ArmId>, failure: &VolumeError) -> Vec<ArmId> {
        let Ok(vm) = self.shared.client.get_vm(&self.vm).await else { return Vec::new() };
        let cleared: Batch = cleared.iter().map(|disk| (disk.clone(), Goal::Detached)).collect();
        self.unrelated_stale(&cleared, &vm.model, failure).await
    }
}
