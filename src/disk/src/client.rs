//! The calls of Azure that this crate makes, each with the time it may take.
//!
//! No deadline here is a caller's: a write goes on when its caller gives up, for as long as Azure may need.

mod snapshots;

use std::{collections::BTreeSet, time::Duration};

use lazuli_azure::{
    Until,
    arm::Operation,
    compute::{self, Compute, Freshness, ListedDisk, Snapshot, UnreadableDisk, decode_disk, decode_disk_details},
    error::{ArmError, Verb},
    permits::Permit,
};
use lazuli_engine::attempts::Limits;
use lazuli_model::{
    ArmId, Disk, DiskId, Gib, InstanceView, Vm,
    disk_spec::DiskSpec,
    fault::Fault,
    op::{DiskChange, VmWrite, VmWriteMethod},
};
use lazuli_quota::{
    permit::Priority,
    read::{By, Seen},
};
use lazuli_reconcile::Clock;
use lazuli_storage::{list::ResourceGroup, whole_disk::SeenDisk};
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::{
    blobs::Blobs,
    error::{Answer, unread_blob},
    known::KnownDisks,
};

/// How long a list may take, with its repetitions and without its waits for permits.
const LIST: Duration = Duration::from_secs(90);
/// How long the read of an instance view may take, with its repetitions.
const VIEW: Duration = Duration::from_secs(60);
/// How long a write may take (source: the Go driver gives an attach 20 minutes; 0.8 % take more than two).
const WRITE: Duration = Duration::from_secs(20 * 60);

/// The compute provider, as this crate uses it. Each look at a disk tells [`KnownDisks`] its type.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    compute: Compute,
    known: KnownDisks,
    blobs: Blobs,
}

impl Client {
    pub(crate) fn new(compute: Compute, known: KnownDisks, blobs: Blobs) -> Self {
        Self { compute, known, blobs }
    }

    /// The clock of all that is known.
    pub(crate) fn clock(&self) -> Clock {
        self.known.clock()
    }

    /// The subscriptions of the disks that were read, in lower case.
    pub(crate) fn subscriptions(&self) -> BTreeSet<String> {
        self.known.subscriptions()
    }

    pub(crate) async fn get_disk(&self, disk: &ArmId) -> Result<Snapshot<Disk>, ArmError> {
        self.read_disk(disk, Freshness::single()).await
    }

    pub(crate) async fn read_disk(&self, disk: &ArmId, freshness: Freshness) -> Result<Snapshot<Disk>, ArmError> {
        let read = self.compute.read_disk(disk, freshness, &unbounded()).await;
        read.iter().for_each(|read| self.known.learn(&read.model, read.seen));
        read
    }

    /// Reads a disk of either kind.
    pub(crate) async fn read_any_disk(
        &self,
        disk: &DiskId,
        freshness: Freshness,
    ) -> Result<(Disk<DiskId>, Seen<Instant>), Answer> {
        match disk {
            DiskId::Managed(disk) => {
                let read = self.read_disk(disk, freshness).await.map_err(Answer)?;
                Ok((read.model.into(), read.seen))
            }
            DiskId::Blob(uri) => {
                let sent_at = Instant::now();
                let read = self.blobs.read(uri).await.map_err(|error| unread_blob(uri, &error))?;
                Ok((read, Seen { by: By::Single, sent_at }))
            }
        }
    }

    /// Reads a disk alone, with what only a change of its attributes rests on.
    pub(crate) async fn see_disk(&self, disk: &ArmId, priority: Priority) -> Result<SeenDisk, ArmError> {
        let read = self.read_disk(disk, Freshness::single().priority(priority)).await?;
        let details = decode_disk_details(&read.raw);
        let details =
            details.inspect_err(|error| warn!(%disk, %error, "the attributes of the disk cannot be read")).ok();
        Ok(SeenDisk { disk: read.model, details })
    }

    /// Lists the disks of a resource group and gives each to `take`.
    pub(crate) async fn list_disks(
        &self,
        group: &ResourceGroup,
        mut take: impl FnMut(Result<ListedDisk, UnreadableDisk>),
    ) -> Result<(), ArmError> {
        let sent_at = self.clock().now();
        let take = |listed: Result<ListedDisk, UnreadableDisk>| {
            listed.iter().for_each(|disk| self.known.learn_listed(&disk.id, disk.sku, sent_at));
            take(listed);
        };
        self.compute.list_disks_with(&group.subscription, &group.name, &Until::working(LIST), take).await
    }

    /// Waits for a permit to make, to grow or to delete a disk.
    pub(crate) async fn permit_disk(&self, verb: Verb, disk: &ArmId) -> Result<Permit, ArmError> {
        self.compute.permit_disk(verb, disk, &unbounded()).await
    }

    /// Sends the creation of a disk once and at once, if it is wanted.
    pub(crate) async fn create_disk(
        &self,
        disk: &ArmId,
        spec: &DiskSpec,
        permit: Permit,
        wanted: &CancellationToken,
    ) -> Result<Operation, ArmError> {
        let until = Until::working(WRITE).while_wanted(wanted.clone());
        self.compute.create_disk(disk, compute::encode_disk(spec), Some(permit), &until).await
    }

    /// Sends the expansion of a disk once and at once, if it is wanted.
    pub(crate) async fn resize_disk(
        &self,
        disk: &ArmId,
        to: Gib,
        permit: Permit,
        wanted: &CancellationToken,
    ) -> Result<Operation, ArmError> {
        let until = Until::working(WRITE).while_wanted(wanted.clone());
        self.compute.resize_disk(disk, to, Some(permit), &until).await
    }

    /// Sends a change of a disk's attributes once and at once, if it is wanted.
    pub(crate) async fn change_disk(
        &self,
        disk: &ArmId,
        change: &DiskChange,
        permit: Permit,
        wanted: &CancellationToken,
    ) -> Result<Operation, ArmError> {
        let until = Until::working(WRITE).while_wanted(wanted.clone());
        self.known.changes(disk, change.sku);
        self.compute.change_disk(disk, change, Some(permit), &until).await
    }

    /// Waits for the end of a change, without a read of the disk after it.
    pub(crate) async fn changed_disk(&self, mut change: Operation) -> Result<(), ArmError> {
        change.settle(&Until::working(WRITE)).await
    }

    /// Waits for the end of a disk's creation or expansion and gives the disk as Azure then describes it.
    pub(crate) async fn written_disk(&self, disk: &ArmId, mut operation: Operation) -> Result<Disk, ArmError> {
        let result = operation.wait(&Until::working(WRITE)).await?;
        self.result(disk, result).await
    }

    /// The disk in an operation's result, read again where the result does not hold it.
    async fn result(&self, disk: &ArmId, result: Option<Value>) -> Result<Disk, ArmError> {
        match result.as_ref().map(decode_disk) {
            Some(Ok(disk)) => {
                self.known.written(&disk);
                Ok(disk)
            }
            _ => Ok(self.get_disk(disk).await?.model),
        }
    }

    /// Sends the deletion of a disk once and at once, if it is wanted.
    pub(crate) async fn delete_disk(
        &self,
        disk: &ArmId,
        permit: Permit,
        wanted: &CancellationToken,
    ) -> Result<Operation, ArmError> {
        let until = Until::working(WRITE).while_wanted(wanted.clone());
        self.compute.delete_disk(disk, Some(permit), &until).await
    }

    /// Waits for the end of the deletion of a disk or a snapshot.
    pub(crate) async fn deleted(&self, mut deletion: Operation) -> Result<(), ArmError> {
        match deletion.settle(&Until::working(WRITE)).await {
            // Another writer deleted it first.
            Err(error) if error.fault == Fault::NotFound => Ok(()),
            settled => settled,
        }
    }

    /// How often a write is sent and how long it waits in all.
    pub(crate) fn write_limits(&self) -> Limits {
        let retry = self.compute.arm().retry();
        Limits { tries: retry.tries, longest_wait: retry.longest_wait }
    }

    /// The pause before the next try of a write that has failed so many times.
    pub(crate) fn pause_after(&self, failures: u32) -> Duration {
        self.compute.arm().pause_after(failures)
    }

    pub(crate) async fn read_vm(&self, vm: &ArmId, freshness: Freshness) -> Result<Snapshot<Vm>, ArmError> {
        self.compute.read_vm(vm, freshness, &unbounded()).await
    }

    /// Whether a VM runs, read now.
    pub(crate) async fn instance_view(&self, vm: &ArmId, priority: Priority) -> Result<InstanceView, ArmError> {
        self.compute.instance_view(vm, priority, &Until::working(VIEW)).await
    }

    /// A VM and whether it runs, read now.
    pub(crate) async fn machine_and_view(
        &self,
        vm: &ArmId,
        priority: Priority,
    ) -> Result<(Vm, InstanceView), ArmError> {
        self.compute.machine_and_view(vm, priority, &Until::working(VIEW)).await
    }

    pub(crate) async fn list_vms(&self, subscription: &str, resource_group: &str) -> Result<Vec<Vm>, ArmError> {
        self.compute.list_vms(subscription, resource_group, &Until::working(LIST)).await
    }

    pub(crate) async fn list_instances(&self, scale_set: &ArmId) -> Result<Vec<Vm>, ArmError> {
        self.compute.list_instances(scale_set, &Until::working(LIST)).await
    }

    pub(crate) async fn instance_named(
        &self,
        subscription: &str,
        resource_group: &str,
        computer: &str,
    ) -> Result<Option<Vm>, ArmError> {
        self.compute.instance_named(subscription, resource_group, computer, &unbounded()).await
    }

    pub(crate) async fn scale_set_exists(&self, scale_set: &ArmId) -> Result<bool, ArmError> {
        self.compute.scale_set_exists(scale_set, Priority::DetachDeadNode, &Until::working(VIEW)).await
    }

    /// A permit to write a VM, if there is one now.
    pub(crate) fn try_permit(&self, vm: &ArmId, priority: Priority) -> Option<Permit> {
        self.compute.try_permit_vm_write(vm, priority)
    }

    /// Waits for a permit to write a VM.
    pub(crate) async fn permit(&self, vm: &ArmId, priority: Priority) -> Result<Permit, ArmError> {
        self.compute.permit_vm_write(vm, priority, &unbounded()).await
    }

    /// Changes a VM's data disks and waits for the end.
    pub(crate) async fn write_vm(
        &self,
        vm: &Snapshot<Vm>,
        write: &VmWrite,
        method: VmWriteMethod,
        priority: Priority,
        permit: Option<Permit>,
    ) -> Result<Instant, ArmError> {
        let until = Until::working(WRITE);
        let mut operation = self.compute.write_vm(vm, write, method, priority, permit, &until).await?;
        let accepted = Instant::now();
        operation.settle(&until).await?;
        Ok(accepted)
    }
}

/// The broker bounds a read. A caller waits for its end, or drops its future.
fn unbounded() -> Until {
    Until::cancelled(CancellationToken::new())
}
