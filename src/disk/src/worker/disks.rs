//! The disks' own state: which requests the planner takes, and to which VM a disk is attached.

use std::collections::BTreeMap;

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
use tokio::time::Instant;
use tracing::warn;

use super::{
    READ_LAG_PAUSES, VmWorker,
    answers::failure_for,
    queue::{Batch, Goal, Queue},
};
use crate::VolumeError;

/// Disks as they were read for their attach, kept while the worker waits for the permit to write their VM.
///
/// Many workers wait for permits at the same time, and each would read its disks again when its permit has come. Only
/// reads that lead to a write are kept ([`attach::gives_terms`]), so no request is answered from one. A kept read serves
/// only a request that had arrived when the read was sent, and only the round right after the wait.
#[derive(Debug, Default)]
pub(super) struct KeptReads(BTreeMap<ArmId, KeptRead>);

#[derive(Debug)]
struct KeptRead {
    disk: Disk,
    sent_at: Instant,
}

impl KeptReads {
    fn keep(&mut self, disk: &ArmId, read: &Snapshot<Disk>) {
        self.0.insert(disk.clone(), KeptRead { disk: read.model.clone(), sent_at: read.seen.sent_at });
    }

    /// The disk, if it was read for a request that arrived then.
    fn of_request(&self, disk: &ArmId, requested_at: Instant) -> Option<Disk> {
        self.0.get(disk).filter(|kept| kept.sent_at >= requested_at).map(|kept| kept.disk.clone())
    }
}

impl VmWorker {
    /// The desired state that the planner takes: every disk to detach, and every disk to attach whose own state allows
    /// it. The requests that the disk's own state refuses are answered here. Those that cannot be decided before
    /// another writer's write of the VM has ended are returned second.
    ///
    /// The terms of an attach come from a kept read where one serves, and the reads made here are kept.
    pub(super) async fn desired_disks(&self, vm: &Vm, members: &Batch, kept: &mut KeptReads) -> (DesiredDisks, Batch) {
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
        // or a kept read may give the terms of the attach.
        let (listed, to_attach): (Vec<ArmId>, Vec<ArmId>) =
            unread.into_iter().partition(|disk| vm.data_disk(disk).is_some());
        let to_attach = to_attach.into_iter().map(|disk| (members[&disk], disk)).collect();
        let (of_listed, mut reads) = tokio::join!(self.read(listed), self.read_terms(vm, to_attach, kept));
        reads.extend(of_listed.into_iter().map(|(disk, read)| (disk, read.map(|read| read.model))));
        for (disk, read) in reads {
            let Goal::Attached(caching) = members[&disk] else { continue };
            if let Ok(read) = &read {
                self.shared.learn_source(&disk, read.source.clone());
                self.shared.seen_attachments().held_by(&disk, &read.holders());
            }
            let listed = vm.data_disk(&disk).is_some();
            let answer = match read {
                Ok(read) if listed && attach::confirmed_attached(&read, &vm.id) => {
                    desired.attach.insert(disk, listed_already());
                    continue;
                }
                Ok(_) if listed && vm.provisioning_state == ProvisioningState::InProgress => {
                    undecided.insert(disk, Goal::Attached(caching));
                    continue;
                }
                Ok(read) => match attach::attachable(&read, &vm.id) {
                    Ok(()) if listed => {
                        warn!(%disk, "the VM lists the disk, and the disk's own state does not confirm its attach");
                        desired.listed_not_attached.insert(disk);
                        continue;
                    }
                    Ok(()) => {
                        let terms = Terms {
                            caching: effective_caching(caching, &read),
                            write_accelerator: read.write_accelerator(),
                            disk_encryption_set: read.disk_encryption_set,
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
            // Azure has several codes for a disk of another zone, and each has other meanings too.
            Fault::Invalid | Fault::Unclear | Fault::OperationFailed if goal != Goal::Detached => {
                return self.zone_mismatch(disk, failure_for(&error, disk, goal)).await;
            }
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

    /// The failure of an attach, sorted anew where the zones of the disk and of the VM explain it.
    async fn zone_mismatch(&self, disk: &ArmId, error: VolumeError) -> VolumeError {
        let (disk_read, vm) = tokio::join!(self.shared.client.get_disk(disk), self.shared.client.get_vm(&self.vm));
        match (disk_read, vm) {
            (Ok(read), Ok(vm)) if attach::zone_mismatch(&read.model, &vm.model) => {
                let vm_zone = vm.model.zone.map_or_else(|| "no zone".to_owned(), |zone| format!("zone {zone}"));
                let zones = match &*read.model.zones {
                    [] => "no zone".to_owned(),
                    zones => format!("zone {}", zones.join(", ")),
                };
                let what = format!(
                    "disk {} is in {zones} and cannot be attached to node {}, whose VM is in {vm_zone}",
                    disk.name(),
                    self.node
                );
                error.resorted(Fault::ZoneMismatch).prefixed(&what).noted(what)
            }
            _ => error,
        }
    }

    /// Reads disks, each by a single read.
    pub(super) async fn read(&self, disks: Vec<ArmId>) -> Vec<(ArmId, Result<Snapshot<Disk>, ArmError>)> {
        self.read_by(disks, Freshness::single()).await
    }

    /// Reads disks that are to be attached, except those of which a kept read gives the terms, and keeps the reads that
    /// give the terms. A disk of which a list does not give them is read again by a single read.
    async fn read_terms(
        &self,
        vm: &Vm,
        disks: Vec<(Goal, ArmId)>,
        kept: &mut KeptReads,
    ) -> Vec<(ArmId, Result<Disk, ArmError>)> {
        let mut reads = Vec::new();
        let mut unread = Vec::new();
        for (goal, disk) in disks {
            match self.requested_at(&disk, goal).and_then(|requested_at| kept.of_request(&disk, requested_at)) {
                Some(read) => reads.push((disk, Ok(read))),
                None => unread.push(disk),
            }
        }
        let gives_terms = |read: &Snapshot<Disk>| attach::gives_terms(&read.model, &vm.id);
        let (again, mut fresh): (Vec<_>, Vec<_>) = self
            .read_by(unread, Freshness::listed())
            .await
            .into_iter()
            .partition(|(_, read)| read.as_ref().is_ok_and(|read| read.seen.by == By::List && !gives_terms(read)));
        fresh.extend(self.read(again.into_iter().map(|(disk, _)| disk).collect()).await);
        for (disk, read) in fresh {
            if let Some(read) = read.as_ref().ok().filter(|read| gives_terms(read)) {
                kept.keep(&disk, read);
            }
            reads.push((disk, read.map(|read| read.model)));
        }
        reads
    }

    fn requested_at(&self, disk: &ArmId, goal: Goal) -> Option<Instant> {
        self.shared.queues().get(&self.vm).and_then(|queue: &Queue| queue.requested_at(disk, goal))
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
