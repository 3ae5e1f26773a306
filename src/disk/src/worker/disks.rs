//! The disks' own state: which requests the planner takes, and to which VM a disk is attached.

use std::sync::PoisonError;

use futures::future::join_all;
use lazuli_azure::{
    compute::{Freshness, Snapshot},
    error::ArmError,
};
use lazuli_plan::{
    attach::{self, DesiredDisks, Terms, Unattachable},
    disk::effective_caching,
    fault::Fault,
    model::{ArmId, CachingMode, Disk, ProvisioningState, Vm},
    permit::Priority,
    read::By,
};
use tracing::warn;

use super::{
    READ_LAG_PAUSES, VmWorker,
    answers::failure_for,
    queue::{Batch, Goal},
};
use crate::VolumeError;

impl VmWorker {
    /// The desired state that the planner takes: every disk to detach, and every disk to attach whose own state allows
    /// it. The requests that the disk's own state refuses are answered here. Those that cannot be decided before
    /// another writer's write of the VM has ended are returned second.
    pub(super) async fn desired_disks(&self, vm: &Vm, members: &Batch) -> (DesiredDisks, Batch) {
        let mut desired = DesiredDisks::default();
        let mut undecided = Batch::new();
        let mut unread = Vec::new();
        for (disk, goal) in members {
            match goal {
                // While another writer's write of the VM runs, its model may not show yet what that write attaches.
                Goal::Detached
                    if vm.data_disk(disk).is_none() && vm.provisioning_state == ProvisioningState::InProgress =>
                {
                    undecided.insert(disk.clone(), Goal::Detached);
                }
                Goal::Detached => {
                    desired.detach.insert(disk.clone());
                }
                // In the state Succeeded, every disk that the VM's model lists is attached, so the disk is not read.
                // While a write runs, and after one that failed, the model may list a disk that was never attached.
                Goal::Attached(_)
                    if vm.data_disk(disk).is_some() && vm.provisioning_state == ProvisioningState::Succeeded =>
                {
                    desired.attach.insert(disk.clone(), listed_already());
                }
                Goal::Attached(_) => unread.push(disk.clone()),
            }
        }
        // A disk that the VM lists may be answered without a write, and so needs a single read. For the others a list
        // may give the terms of the attach.
        let (listed, to_attach): (Vec<ArmId>, Vec<ArmId>) =
            unread.into_iter().partition(|disk| vm.data_disk(disk).is_some());
        let (mut reads, of_to_attach) = tokio::join!(self.read(listed), self.read_terms(vm, to_attach));
        reads.extend(of_to_attach);
        for (disk, read) in reads {
            let Goal::Attached(caching) = members[&disk] else { continue };
            if let Ok(Some(source)) = read.as_ref().map(|read| read.model.source.clone()) {
                self.shared.sources.lock().unwrap_or_else(PoisonError::into_inner).insert(disk.clone(), source);
            }
            let listed = vm.data_disk(&disk).is_some();
            let answer = match read {
                Ok(read) if listed && attach::confirmed_attached(&read.model, &vm.id) => {
                    desired.attach.insert(disk, listed_already());
                    continue;
                }
                Ok(_) if listed && vm.provisioning_state == ProvisioningState::InProgress => {
                    undecided.insert(disk, Goal::Attached(caching));
                    continue;
                }
                Ok(read) => match attach::attachable(&read.model, &vm.id) {
                    Ok(()) if listed => {
                        warn!(%disk, "the VM lists the disk, and the disk's own state does not confirm its attach");
                        desired.listed_not_attached.insert(disk);
                        continue;
                    }
                    Ok(()) => {
                        let terms = Terms {
                            caching: effective_caching(caching, &read.model),
                            disk_encryption_set: read.model.disk_encryption_set.clone(),
                            write_accelerator: read.model.write_accelerator(),
                        };
                        desired.attach.insert(disk, terms);
                        continue;
                    }
                    Err(Unattachable::AttachedTo(holders)) => self.attached_elsewhere(&disk, &holders),
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
        (desired, undecided)
    }

    /// The failure that the caller of a failing disk gets, when no stale disk of the VM's model caused it. Azure has
    /// one code for "attached to another VM" and "attached to this VM already". The disk's own state tells them apart,
    /// if need be after a pause, because reads may lag.
    pub(super) async fn attach_conflict(&self, disk: &ArmId, goal: Goal, error: VolumeError) -> VolumeError {
        match error.fault {
            Fault::NotFound if goal != Goal::Detached && error.named_disk().is_none() => return error,
            Fault::AttachedElsewhere { .. } if goal != Goal::Detached => {}
            _ => return failure_for(&error, disk, goal),
        }
        let mut lag = READ_LAG_PAUSES.iter();
        loop {
            match self.shared.client.get_disk(disk).await {
                Err(_) => return failure_for(&error, disk, goal),
                Ok(read) => match attach::attachable(&read.model, &self.vm) {
                    Err(Unattachable::AttachedTo(holders)) => return self.attached_elsewhere(disk, &holders),
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

    /// Reads disks, each by a single read.
    pub(super) async fn read(&self, disks: Vec<ArmId>) -> Vec<(ArmId, Result<Snapshot<Disk>, ArmError>)> {
        self.read_by(disks, Freshness::single()).await
    }

    /// Reads disks that are to be attached. A disk that a list shows as not attachable is read again by a single read.
    async fn read_terms(&self, vm: &Vm, disks: Vec<ArmId>) -> Vec<(ArmId, Result<Snapshot<Disk>, ArmError>)> {
        let read = self.read_by(disks, Freshness::listed()).await;
        let refused = |read: &Snapshot<Disk>| {
            read.seen.by == By::List
                && (attach::attachable(&read.model, &vm.id).is_err()
                    || read.model.provisioning_state != ProvisioningState::Succeeded)
        };
        let (again, mut reads): (Vec<_>, Vec<_>) =
            read.into_iter().partition(|(_, read)| read.as_ref().is_ok_and(refused));
        reads.extend(self.read(again.into_iter().map(|(disk, _)| disk).collect()).await);
        reads
    }

    async fn read_by(&self, disks: Vec<ArmId>, freshness: Freshness) -> Vec<(ArmId, Result<Snapshot<Disk>, ArmError>)> {
        let freshness = freshness.priority(Priority::Attach);
        join_all(disks.into_iter().map(|disk| async move {
            let read = self.shared.client.read_disk(&disk, freshness).await;
            (disk, read)
        }))
        .await
    }

    fn attached_elsewhere(&self, disk: &ArmId, holders: &[ArmId]) -> VolumeError {
        let nodes: Vec<String> = holders.iter().map(|holder| self.shared.nodes.name_of(holder)).collect();
        VolumeError::new(
            Fault::AttachedElsewhere { holder: holders.first().cloned() },
            format!("{disk} cannot be attached to node {}: it is attached to node {}", self.node, nodes.join(", ")),
        )
    }
}

/// The terms of a disk that is attached already.
fn listed_already() -> Terms {
    Terms { caching: CachingMode::None, disk_encryption_set: None, write_accelerator: false }
}
