//! What the disks say of themselves: which of the wishes may be asked of the planner, and whose a disk is.

use std::sync::PoisonError;

use futures::{StreamExt, stream};
use lazuli_azure::{compute::Snapshot, error::ArmError};
use lazuli_plan::{
    attach::{self, Terms, Unattachable, Wanted},
    disk::effective_caching,
    fault::Fault,
    model::{ArmId, CachingMode, Disk, ProvisioningState, Vm},
};
use tracing::warn;

use super::{
    Driver, LAG,
    answers::concerning,
    queue::{Batch, Goal},
};
use crate::VolumeError;

/// How many disks are read at a time.
const READS: usize = 16;

impl Driver {
    /// What may be asked of the planner: every disk that leaves, and every disk that comes and whose own state allows
    /// it. The others are answered here, but for those of which nothing can be said before the VM is at rest: these
    /// are given back.
    pub(super) async fn wanted(&self, vm: &Vm, members: &Batch) -> (Wanted, Batch) {
        let mut wanted = Wanted::default();
        let mut unsaid = Batch::new();
        let mut unread = Vec::new();
        for (disk, goal) in members {
            match goal {
                // While somebody writes to the VM, its model may not show yet what that write brings.
                Goal::Detached
                    if vm.data_disk(disk).is_none() && vm.provisioning_state == ProvisioningState::InProgress =>
                {
                    unsaid.insert(disk.clone(), Goal::Detached);
                }
                Goal::Detached => {
                    wanted.detach.insert(disk.clone());
                }
                // A VM at rest holds what its model lists: the disk's own state has nothing to add. While a write
                // runs, and after one that failed, the model may list what never came.
                Goal::Attached(_)
                    if vm.data_disk(disk).is_some() && vm.provisioning_state == ProvisioningState::Succeeded =>
                {
                    wanted.attach.insert(disk.clone(), listed_already());
                }
                Goal::Attached(_) => unread.push(disk.clone()),
            }
        }
        for (disk, read) in self.read(unread).await {
            let Goal::Attached(caching) = members[&disk] else { continue };
            if let Ok(Some(source)) = read.as_ref().map(|read| read.model.source.clone()) {
                self.shared.sources.lock().unwrap_or_else(PoisonError::into_inner).insert(disk.clone(), source);
            }
            let listed = vm.data_disk(&disk).is_some();
            let answer = match read {
                Ok(read) if listed && attach::held(&read.model, &vm.id) => {
                    wanted.attach.insert(disk, listed_already());
                    continue;
                }
                Ok(_) if listed && vm.provisioning_state == ProvisioningState::InProgress => {
                    unsaid.insert(disk, Goal::Attached(caching));
                    continue;
                }
                Ok(read) => match attach::attachable(&read.model, &vm.id) {
                    Ok(()) if listed => {
                        warn!(%disk, "the VM lists the disk and does not hold it: the last write of the VM failed");
                        wanted.unheld.insert(disk);
                        continue;
                    }
                    Ok(()) => {
                        let terms = Terms {
                            caching: effective_caching(caching, &read.model),
                            disk_encryption_set: read.model.disk_encryption_set.clone(),
                            write_accelerator: read.model.write_accelerator(),
                        };
                        wanted.attach.insert(disk, terms);
                        continue;
                    }
                    Err(Unattachable::HeldBy(holders)) => self.held_elsewhere(&disk, &holders),
                    Err(Unattachable::InUse(state)) => VolumeError::new(
                        Fault::InUse,
                        format!(
                            "{disk} cannot be attached while it is {state}: a shared access signature is out on it"
                        ),
                    ),
                },
                Err(error) => VolumeError::azure(format!("{disk} cannot be read"), error),
            };
            self.answer(&disk, Goal::Attached(caching), &Err(answer));
        }
        (wanted, unsaid)
    }

    /// What a culprit is told, when nothing else of the VM's model is to blame. Azure has one code for "on another VM" and
    /// "on this one already": the disk tells, if need be after a while, for reads may lag.
    pub(super) async fn whose(&self, disk: &ArmId, goal: Goal, error: VolumeError) -> VolumeError {
        match error.fault {
            Fault::NotFound if goal != Goal::Detached && error.culprit().is_none() => return error,
            Fault::AttachedElsewhere { .. } if goal != Goal::Detached => {}
            _ => return concerning(&error, disk, goal),
        }
        let mut lag = LAG.iter();
        loop {
            match self.shared.client.get_disk(disk).await {
                Err(_) => return concerning(&error, disk, goal),
                Ok(read) => match attach::attachable(&read.model, &self.vm) {
                    Err(Unattachable::HeldBy(holders)) => return self.held_elsewhere(disk, &holders),
                    _ if read.model.holders().contains(&&self.vm) => return error.resorted(Fault::Conflict),
                    _ => {}
                },
            }
            match lag.next() {
                Some(pause) => self.pause(*pause).await,
                None => return error.resorted(Fault::Conflict),
            }
        }
    }

    /// Reads disks, several at a time.
    pub(super) async fn read(&self, disks: Vec<ArmId>) -> Vec<(ArmId, Result<Snapshot<Disk>, ArmError>)> {
        let reads = disks.into_iter().map(|disk| async move {
            let read = self.shared.client.get_disk(&disk).await;
            (disk, read)
        });
        stream::iter(reads).buffer_unordered(READS).collect().await
    }

    fn held_elsewhere(&self, disk: &ArmId, holders: &[ArmId]) -> VolumeError {
        let nodes: Vec<String> = holders.iter().map(|holder| self.shared.nodes.name_of(holder)).collect();
        VolumeError::new(
            Fault::AttachedElsewhere { holder: holders.first().cloned() },
            format!("{disk} cannot be attached to node {}: it is attached to node {}", self.node, nodes.join(", ")),
        )
    }
}

/// The terms of a disk that needs no attaching.
fn listed_already() -> Terms {
    Terms { caching: CachingMode::None, disk_encryption_set: None, write_accelerator: false }
}
