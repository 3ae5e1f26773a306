//! Disks and virtual machines: which request is which, and what the answers mean.
//!
//! A read gives a [`Snapshot`]: our model, the version, and Azure's own JSON, so that a write of a shared object is
//! an edit of what was read and loses nothing. Chooses nothing: which write a VM needs is decided in `lazuli-plan`.

mod body;
mod listed_disk;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::BTreeMap;

use lazuli_plan::{
    fault::{Effect, Fault},
    model::{ArmId, Disk, Gib, Vm},
    op::{VmWrite, VmWriteMethod},
    poll::Kind,
};
use serde_json::{Value, json};

pub use body::encode_disk;
pub use listed_disk::ListedDisk;
use wire::Sku;
pub use wire::{DecodeError, decode_disk, decode_vm, edit_data_disks, encode_action};

use crate::{
    arm::{Arm, Operation, Patience, Read, Repeat, Write},
    budget::Priority,
    error::{ArmError, Failure, Verb},
    until::Until,
};

/// The API versions of the compute provider's resource types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiVersions {
    /// `virtualMachines`
    pub virtual_machines: &'static str,
    /// `virtualMachineScaleSets` and their instances
    pub scale_sets: &'static str,
    /// `disks` and `snapshots`
    pub disks: &'static str,
    /// `skus`
    pub skus: &'static str,
}

impl ApiVersions {
    /// Azure's clouds (source: what the Go drivers send today).
    pub const fn public() -> Self {
        Self { virtual_machines: "2025-04-01", scale_sets: "2025-04-01", disks: "2025-01-02", skus: "2021-07-01" }
    }

    /// Azure Stack Hub (source: the profile of the Go drivers).
    pub const fn azure_stack() -> Self {
        Self { virtual_machines: "2017-12-01", scale_sets: "2019-07-01", disks: "2019-03-01", skus: "2017-09-01" }
    }
}

/// A resource as it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot<T> {
    /// What decisions rest on.
    pub model: T,
    /// Its version, where it has one.
    pub etag: Option<String>,
    /// All that Azure said.
    pub raw: Value,
}

/// The disks of a list.
#[derive(Debug, Clone, Default)]
pub struct Disks {
    /// Those that can be read.
    pub disks: Vec<Snapshot<Disk>>,
    /// The others. Whoever needs every disk of a kind must look whether one of these may be such a disk.
    pub unreadable: Vec<UnreadableDisk>,
}

/// A disk of a list that cannot be read, and as much of it as may tell whose it is.
#[derive(Debug, Clone)]
pub struct UnreadableDisk {
    /// Its id as Azure spells it, where there is one.
    pub id: Option<String>,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// Why it cannot be read.
    pub error: ArmError,
}

/// The client of the compute provider; clones share everything.
#[derive(Debug, Clone)]
pub struct Compute {
    arm: Arm,
    versions: ApiVersions,
}

const SCALE_SET_VM: &str = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines";

impl Compute {
    /// A client by these API versions.
    pub fn new(arm: Arm, versions: ApiVersions) -> Self {
        Self { arm, versions }
    }

    /// The client underneath.
    pub fn arm(&self) -> &Arm {
        &self.arm
    }

    fn vm_version(&self, vm: &ArmId) -> &'static str {
        if vm.is_type(SCALE_SET_VM) { self.versions.scale_sets } else { self.versions.virtual_machines }
    }

    /// Reads a disk.
    ///
    /// # Errors
    /// [`Fault::NotFound`] when exactly it is gone; [`Fault::Malformed`] when the answer cannot be read.
    pub async fn get_disk(&self, disk: &ArmId, until: &Until) -> Result<Snapshot<Disk>, ArmError> {
        let read = self.arm.get(disk.as_str(), self.versions.disks, &[], Priority::Read, until).await?;
        snapshot(read, disk.as_str(), decode_disk)
    }

    /// Makes a disk, or changes it into what the body says.
    ///
    /// # Errors
    /// Any [`Fault`]; the disk may be in the making when [`Failure::effect`] says so.
    pub async fn create_disk(&self, disk: &ArmId, body: Value, until: &Until) -> Result<Operation, ArmError> {
        let write = Write::put(disk.as_str(), self.versions.disks, body, Kind::DiskCreate);
        self.arm.write(&write, until).await
    }

    /// Changes properties of a disk. The body says what they shall be, so it may be sent again.
    ///
    /// # Errors
    /// Any [`Fault`].
    pub async fn update_disk(&self, disk: &ArmId, body: Value, until: &Until) -> Result<Operation, ArmError> {
        let write = Write::patch(disk.as_str(), self.versions.disks, body, Kind::DiskUpdate);
        self.arm.write(&write.repeat(Repeat::Safe), until).await
    }

    /// Grows a disk.
    ///
    /// # Errors
    /// Any [`Fault`]; [`Fault::InUse`] where a live disk cannot grow.
    pub async fn resize_disk(&self, disk: &ArmId, size: Gib, until: &Until) -> Result<Operation, ArmError> {
        let body = json!({ "properties": { "diskSizeGB": size.get() } });
        self.update_disk(disk, body, until).await
    }

    /// Deletes a disk; one that is gone already is deleted.
    ///
    /// # Errors
    /// Any [`Fault`] but [`Fault::NotFound`].
    pub async fn delete_disk(&self, disk: &ArmId, until: &Until) -> Result<Operation, ArmError> {
        let write = Write::delete(disk.as_str(), self.versions.disks, Kind::DiskDelete);
        match self.arm.write(&write, until).await {
            Err(error) if error.fault == Fault::NotFound => {
                Ok(Operation::finished(self.arm.clone(), Verb::Delete, disk.as_str(), Kind::DiskDelete))
            }
            other => other,
        }
    }

    /// Lists the disks of a resource group, or of the whole subscription: all of them, or an error. A subscription
    /// holds disks of all the world; one of them that cannot be read spoils nothing here and is told apart.
    ///
    /// # Errors
    /// Any [`Fault`].
    pub async fn list_disks(
        &self,
        subscription: &str,
        resource_group: Option<&str>,
        until: &Until,
    ) -> Result<Disks, ArmError> {
        let path = list_path(subscription, resource_group, "disks");
        let mut list = Disks::default();
        for raw in self.arm.list(&path, self.versions.disks, &[], until).await? {
            let id = raw.get("id").and_then(Value::as_str).map(str::to_owned);
            let tags = wire::tags(&raw);
            match item(raw, &path, decode_disk) {
                Ok(disk) => list.disks.push(disk),
                Err(error) => list.unreadable.push(UnreadableDisk { id, tags, error }),
            }
        }
        Ok(list)
    }

    /// Reads a virtual machine, or an instance of a scale set.
    ///
    /// # Errors
    /// [`Fault::NotFound`] when exactly it is gone; [`Fault::Malformed`] when the answer cannot be read.
    pub async fn get_vm(&self, vm: &ArmId, until: &Until) -> Result<Snapshot<Vm>, ArmError> {
        let read = self.arm.get(vm.as_str(), self.vm_version(vm), &[], Priority::Read, until).await?;
        snapshot(read, vm.as_str(), decode_vm)
    }

    /// Lists the virtual machines of a resource group; instances of uniform scale sets are not among them.
    ///
    /// # Errors
    /// Any [`Fault`].
    pub async fn list_vms(
        &self,
        subscription: &str,
        resource_group: &str,
        until: &Until,
    ) -> Result<Vec<Snapshot<Vm>>, ArmError> {
        let path = list_path(subscription, Some(resource_group), "virtualMachines");
        let items = self.arm.list(&path, self.versions.virtual_machines, &[], until).await?;
        snapshots(items, &path, decode_vm)
    }

    /// Lists the VM sizes of a region and how many data disks each takes, as far as the resource SKUs API says.
    ///
    /// # Errors
    /// Any [`Fault`].
    pub async fn vm_sizes(
        &self,
        subscription: &str,
        location: &str,
        until: &Until,
    ) -> Result<Vec<(String, u8)>, ArmError> {
        let path = list_path(subscription, None, "skus");
        let filter = format!("location eq '{location}'");
        let skus: Vec<Sku> = self.arm.list_of(&path, self.versions.skus, &[("$filter", &filter)], until).await?;
        Ok(skus.into_iter().filter_map(Sku::vm_size).collect())
    }

    /// Changes the data disks of a VM by the `attachDetachDataDisks` action, which needs no read before it but that a
    /// token is at hand: it goes out at once or not at all.
    ///
    /// # Errors
    /// Any [`Fault`]. [`Fault::Forbidden`] and [`Fault::Unsupported`] mean that another method may do.
    pub async fn attach_detach(
        &self,
        write: &VmWrite,
        priority: Priority,
        until: &Until,
    ) -> Result<Operation, ArmError> {
        let path = format!("{}/attachDetachDataDisks", write.vm);
        let body = encode_action(write);
        let request = Write::post(&path, self.vm_version(&write.vm), Some(body), kind(write))
            .priority(priority)
            // The action knows no condition.
            .patience(Patience::None);
        self.arm.write(&request, until).await
    }

    /// Changes the data disks of a VM by whichever method. The methods that send the whole list send the list of
    /// `vm` as it was read, edited, under `If-Match` where the VM has an etag, and nothing else of the VM. A write that
    /// names no disk is the whole list as it was read, by whatever method: it makes Azure apply the model again
    /// (source: the Go drivers do so with a VM whose last write failed).
    ///
    /// # Errors
    /// Any [`Fault`]; [`Fault::PreconditionFailed`] when the VM has changed since it was read.
    pub async fn write_vm(
        &self,
        vm: &Snapshot<Vm>,
        write: &VmWrite,
        method: VmWriteMethod,
        priority: Priority,
        until: &Until,
    ) -> Result<Operation, ArmError> {
        if method == VmWriteMethod::Action && !write.says_nothing() {
            return self.attach_detach(write, priority, until).await;
        }
        let path = write.vm.as_str();
        let elements = edit_data_disks(&vm.raw, write, method).map_err(|error| undecodable(path, error))?;
        let profile = json!({ "storageProfile": { "dataDisks": elements } });
        // An instance of a scale set takes no location (source: the Go drivers send none).
        let body = if write.vm.is_type(SCALE_SET_VM) {
            json!({ "properties": profile })
        } else {
            json!({ "location": vm.model.location, "properties": profile })
        };
        let request = Write::put(path, self.vm_version(&write.vm), body, kind(write))
            .if_match(vm.etag.as_deref())
            .priority(priority)
            // Without an etag a second or late try could undo what another writer did meanwhile.
            .repeat(if vm.etag.is_some() { Repeat::Safe } else { Repeat::Never })
            .patience(if vm.etag.is_some() { Patience::AsAzureSays } else { Patience::None });
        self.arm.write(&request, until).await
    }
}

fn kind(write: &VmWrite) -> Kind {
    if write.attach.is_empty() && write.reapply.is_empty() { Kind::VmDetach } else { Kind::VmAttach }
}

fn list_path(subscription: &str, resource_group: Option<&str>, resource_type: &str) -> String {
    match resource_group {
        Some(group) => {
            format!("/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Compute/{resource_type}")
        }
        None => format!("/subscriptions/{subscription}/providers/Microsoft.Compute/{resource_type}"),
    }
}

fn undecodable(path: &str, error: DecodeError) -> ArmError {
    let message = format!("the answer cannot be used: {error}");
    Failure::ours(Fault::Malformed, Effect::None, Verb::Get, path, message).into()
}

fn snapshot<T>(read: Read, path: &str, decode: fn(&Value) -> Result<T, DecodeError>) -> Result<Snapshot<T>, ArmError> {
    let model = decode(&read.value).map_err(|error| undecodable(path, error))?;
    Ok(Snapshot { model, etag: read.etag, raw: read.value })
}

fn snapshots<T>(
    items: Vec<Value>,
    path: &str,
    decode: fn(&Value) -> Result<T, DecodeError>,
) -> Result<Vec<Snapshot<T>>, ArmError> {
    items.into_iter().map(|raw| item(raw, path, decode)).collect()
}

/// One of a list.
fn item<T>(raw: Value, path: &str, decode: fn(&Value) -> Result<T, DecodeError>) -> Result<Snapshot<T>, ArmError> {
    let etag = raw.get("etag").and_then(Value::as_str).map(str::to_owned);
    let name = raw.get("id").and_then(Value::as_str).unwrap_or(path).to_owned();
    snapshot(Read { value: raw, etag }, &name, decode)
}
