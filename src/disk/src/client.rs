//! The calls of Azure this room makes, each with the time it may take.
//!
//! No deadline here is a caller's: a write goes on when its caller gives up, for as long as Azure may need.

use std::time::Duration;

use lazuli_azure::{
    Until,
    budget::Priority,
    compute::{self, Compute, ListedDisk, Snapshot, UnreadableDisk, decode_disk},
    error::ArmError,
};
use lazuli_plan::{
    disk::DiskSpec,
    fault::Fault,
    list::ResourceGroup,
    model::{ArmId, Disk, Gib, Vm},
    op::{VmWrite, VmWriteMethod},
};
use serde_json::Value;

/// How long a read may take, with its repetitions.
const READ: Duration = Duration::from_secs(90);
/// How long a write may take (source: the Go driver gives an attach 20 minutes; 0.8 % take more than two).
const WRITE: Duration = Duration::from_secs(20 * 60);

/// The compute provider, as this room uses it.
#[derive(Debug, Clone)]
pub(crate) struct Client(Compute);

impl Client {
    pub(crate) fn new(compute: Compute) -> Self {
        Self(compute)
    }

    pub(crate) async fn get_disk(&self, disk: &ArmId) -> Result<Snapshot<Disk>, ArmError> {
        self.0.get_disk(disk, &Until::within(READ)).await
    }

    /// Lists the disks of a resource group and gives each to `take`.
    pub(crate) async fn list_disks(
        &self,
        group: &ResourceGroup,
        take: impl FnMut(Result<ListedDisk, UnreadableDisk>),
    ) -> Result<(), ArmError> {
        self.0.list_disks_with(&group.subscription, &group.name, &Until::within(READ), take).await
    }

    /// Makes a disk and gives it as Azure then describes it.
    pub(crate) async fn create_disk(&self, disk: &ArmId, spec: &DiskSpec) -> Result<Disk, ArmError> {
        let until = Until::within(WRITE);
        let mut operation = self.0.create_disk(disk, compute::encode_disk(spec), &until).await?;
        let result = operation.wait(&until).await?;
        self.result(disk, result).await
    }

    pub(crate) async fn resize_disk(&self, disk: &ArmId, to: Gib) -> Result<Disk, ArmError> {
        let until = Until::within(WRITE);
        let mut operation = self.0.resize_disk(disk, to, &until).await?;
        let result = operation.wait(&until).await?;
        self.result(disk, result).await
    }

    /// The disk in an operation's result, read again where the result does not hold it.
    async fn result(&self, disk: &ArmId, result: Option<Value>) -> Result<Disk, ArmError> {
        match result.as_ref().map(decode_disk) {
            Some(Ok(disk)) => Ok(disk),
            _ => Ok(self.get_disk(disk).await?.model),
        }
    }

    pub(crate) async fn delete_disk(&self, disk: &ArmId) -> Result<(), ArmError> {
        let until = Until::within(WRITE);
        let mut operation = self.0.delete_disk(disk, &until).await?;
        match operation.settle(&until).await {
            // Somebody else was quicker.
            Err(error) if error.fault == Fault::NotFound => Ok(()),
            settled => settled,
        }
    }

    pub(crate) async fn get_vm(&self, vm: &ArmId) -> Result<Snapshot<Vm>, ArmError> {
        self.0.get_vm(vm, &Until::within(READ)).await
    }

    pub(crate) async fn list_vms(&self, subscription: &str, resource_group: &str) -> Result<Vec<Vm>, ArmError> {
        let vms = self.0.list_vms(subscription, resource_group, &Until::within(READ)).await?;
        Ok(vms.into_iter().map(|vm| vm.model).collect())
    }

    /// Changes a VM's data disks and waits for the end.
    pub(crate) async fn write_vm(
        &self,
        vm: &Snapshot<Vm>,
        write: &VmWrite,
        method: VmWriteMethod,
    ) -> Result<(), ArmError> {
        let until = Until::within(WRITE);
        let only_detaches = write.attach.is_empty() && write.reapply.is_empty();
        let priority = if only_detaches { Priority::Detach } else { Priority::Attach };
        let mut operation = self.0.write_vm(vm, write, method, priority, &until).await?;
        operation.settle(&until).await
    }
}
