//! Disks and virtual machines: which request is which, and what the answers mean.
//!
//! A read gives a [`Snapshot`]: our model, the version, and Azure's own JSON, so that a write of a shared object is
//! an edit of what was read and loses nothing. Chooses nothing: which write a VM needs is decided in `lazuli-storage`.

mod body;
mod extension;
#[cfg(test)]
mod hostile;
mod inventory;
mod listed;
mod listed_disk;
mod snapshots;
#[cfg(test)]
mod tests;
mod wire;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use lazuli_model::{
    ArmId, AzureTime, Disk, Gib, InstanceView, Vm,
    fault::{Effect, Fault},
    node::instance_of_computer,
    op::{DiskChange, VmWrite, VmWriteMethod},
};
use lazuli_quota::{
    permit::Priority,
    poll::Kind,
    read::{Accept, By, Seen, Target},
};
use serde_json::{Value, json};
use tokio::time::Instant;

pub use crate::decode::DecodeError;
pub(crate) use body::put;
pub use body::{encode_disk, encode_disk_change};
pub use extension::extension_id;
pub use inventory::UniformSet;
pub use listed_disk::ListedDisk;
pub use snapshots::{SnapshotList, decode_snapshot, encode_snapshot};
use wire::Sku;
pub use wire::{decode_disk, decode_disk_details, decode_instance_view, decode_vm, edit_data_disks, encode_action};

use crate::{
    arm::{Arm, Listed, Operation, Patience, Repeat, Watching, Write},
    broker::{Broker, Observation, ResourceType},
    decode::undecodable,
    error::{ArmError, Failure, Verb},
    permits::{Permit, Rank},
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
    /// All that Azure said; of a list, the members in use.
    pub raw: Arc<Value>,
    /// By which read, and when that was sent.
    pub seen: Seen<Instant>,
    /// When Azure answered, by its own clock; of a list, its first page.
    pub answered: Option<AzureTime>,
}

impl Snapshot<Vm> {
    /// Which machine this is (`vmId`): a machine that is made again under the name of another has another one. A list does
    /// not show it.
    pub fn machine_id(&self) -> Option<&str> {
        self.raw.get("properties")?.get("vmId")?.as_str()
    }
}

/// What a caller asks of a read.
#[derive(Debug, Clone, Copy)]
pub struct Freshness {
    /// Whether a list is an answer.
    pub accept: Accept,
    /// Nothing sent earlier is an answer.
    pub not_before: Instant,
    /// How the read ranks.
    pub priority: Priority,
    /// While reads are short, how long it waits at least for others that the same list answers.
    pub patience: Duration,
}

impl Freshness {
    /// A single read from now on.
    pub fn single() -> Self {
        Self { accept: Accept::Single, not_before: Instant::now(), priority: Priority::Read, patience: Duration::ZERO }
    }

    /// A read from now on, single or in a list.
    pub fn listed() -> Self {
        Self { accept: Accept::List, ..Self::single() }
    }

    /// A read from now on, single or in a list, also a list that lacks the resource ([`Accept::Any`]).
    pub fn any() -> Self {
        Self { accept: Accept::Any, ..Self::single() }
    }

    /// The same with this patience.
    #[must_use]
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// The same with this priority.
    #[must_use]
    pub fn priority(self, priority: Priority) -> Self {
        Self { priority, ..self }
    }
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
    broker: Broker,
    versions: ApiVersions,
}

/// How much earlier a disk may have been made than its `PUT` was answered, by the answer's `Date`, in seconds. A disk of
/// the same name cannot have been made and deleted in that time.
const MADE_BEFORE_DATE: i64 = 2;

impl Compute {
    /// A client by these API versions.
    pub fn new(arm: Arm, versions: ApiVersions) -> Self {
        Self { broker: Broker::new(arm.clone()), arm, versions }
    }

    /// The client underneath.
    pub fn arm(&self) -> &Arm {
        &self.arm
    }

    #[cfg(test)]
    pub(crate) fn broker(&self) -> &Broker {
        &self.broker
    }

    fn vm_version(&self, vm: &ArmId) -> &'static str {
        self.machines(vm).1
    }

    /// How the list is read that has this machine: that of the VMs of a resource group, or of the instances of a scale set.
    fn machines(&self, vm: &ArmId) -> (&'static ResourceType, &'static str) {
        if vm.is_type(listed::INSTANCES.name) {
            (&listed::INSTANCES, self.versions.scale_sets)
        } else {
            (&listed::MACHINES, self.versions.virtual_machines)
        }
    }

    /// Reads a disk by a single read from now on.
    ///
    /// # Errors
    /// As [`Compute::read_disk`].
    pub async fn get_disk(&self, disk: &ArmId, until: &Until) -> Result<Snapshot<Disk>, ArmError> {
        self.read_disk(disk, Freshness::single(), until).await
    }

    /// Reads a disk, together with all who ask for it.
    ///
    /// # Errors
    /// [`Fault::NotFound`] when exactly it is gone; [`Fault::Malformed`] when the answer cannot be read;
    /// [`Fault::Deadline`] when the caller's time is over.
    pub async fn read_disk(
        &self,
        disk: &ArmId,
        freshness: Freshness,
        until: &Until,
    ) -> Result<Snapshot<Disk>, ArmError> {
        let read = self.observe(&listed::DISKS, self.versions.disks, disk, freshness, until).await?;
        snapshot(read, disk.as_str(), decode_disk)
    }

    async fn observe(
        &self,
        resource_type: &'static ResourceType,
        api_version: &'static str,
        resource: &ArmId,
        freshness: Freshness,
        until: &Until,
    ) -> Result<Observation, ArmError> {
        let read = self.broker.read(resource_type, api_version, resource, freshness);
        until.run(read).await.unwrap_or_else(|why| {
            Err(Failure::ours(Fault::Deadline, Effect::None, Verb::Get, resource.as_str(), why.as_str()).into())
        })
    }

    fn watching(
        &self,
        resource_type: &'static ResourceType,
        api_version: &'static str,
        resource: &ArmId,
        target: Target,
    ) -> Watching {
        Watching { broker: self.broker.clone(), resource_type, api_version, resource: resource.clone(), target }
    }

    /// Sends a write of a disk whose end a list may show.
    async fn write_disk(
        &self,
        disk: &ArmId,
        write: Write,
        target: Target,
        until: &Until,
    ) -> Result<Operation, ArmError> {
        let operation = self.arm.write(write, until).await?;
        Ok(operation.watched(self.watching(&listed::DISKS, self.versions.disks, disk, target)))
    }

    /// Waits for the permit to make or to delete a disk.
    ///
    /// # Errors
    /// As [`Arm::permit`].
    pub async fn permit_disk(&self, verb: Verb, disk: &ArmId, until: &Until) -> Result<Permit, ArmError> {
        self.arm.permit(verb, disk.as_str(), Priority::Create, until).await
    }

    /// Makes a disk, or changes it into what the body says. With a permit, which the caller took before it read the disk,
    /// the request is sent once and at once, or not at all ([`Patience::None`]).
    ///
    /// # Errors
    /// Any [`Fault`]; the disk may be in the making when [`Failure::effect`] says so.
    pub async fn create_disk(
        &self,
        disk: &ArmId,
        body: Value,
        permit: Option<Permit>,
        until: &Until,
    ) -> Result<Operation, ArmError> {
        let size =
            body.pointer("/properties/diskSizeGB").and_then(Value::as_u64).and_then(|gib| u32::try_from(gib).ok());
        let write = Write::put(disk.as_str(), self.versions.disks, body, Kind::DiskCreate);
        let write = write.patience(patience(permit.as_ref())).with_permit(permit);
        let operation = self.arm.write(write, until).await?;
        let target = match (size, operation.accepted_by_azures_clock()) {
            (Some(gib), Some(accepted)) => Target::Made { size: Gib::new(gib), since: accepted - MADE_BEFORE_DATE },
            _ => Target::Polled,
        };
        Ok(operation.watched(self.watching(&listed::DISKS, self.versions.disks, disk, target)))
    }

    /// Grows a disk. The request is sent once: the disk of this name may be another one when it is sent again. With a permit
    /// it is sent at once, or not at all, as by [`Compute::create_disk`].
    ///
    /// # Errors
    /// Any [`Fault`]; [`Fault::InUse`] where a live disk cannot grow.
    pub async fn resize_disk(
        &self,
        disk: &ArmId,
        size: Gib,
        permit: Option<Permit>,
        until: &Until,
    ) -> Result<Operation, ArmError> {
        let body = json!({ "properties": { "diskSizeGB": size.get() } });
        let write = Write::patch(disk.as_str(), self.versions.disks, body, Kind::DiskUpdate).repeat(Repeat::Never);
        let write = write.patience(patience(permit.as_ref())).with_permit(permit);
        self.write_disk(disk, write, Target::Size(size), until).await
    }

    /// Changes the attributes of a disk. The request is sent once, because the disk may be another one when it is sent again.
    /// With a permit it is sent at once, or not at all, as by [`Compute::create_disk`].
    ///
    /// # Errors
    /// Any [`Fault`]; [`Fault::Unclear`] or [`Fault::InUse`] where Azure makes the change at another time only.
    pub async fn change_disk(
        &self,
        disk: &ArmId,
        change: &DiskChange,
        permit: Option<Permit>,
        until: &Until,
    ) -> Result<Operation, ArmError> {
        let body = encode_disk_change(change);
        let write = Write::patch(disk.as_str(), self.versions.disks, body, Kind::DiskUpdate).repeat(Repeat::Never);
        let write = write.patience(patience(permit.as_ref())).with_permit(permit);
        self.write_disk(disk, write, Target::AtRest, until).await
    }

    /// Deletes a disk; one that is gone already is deleted. With a permit the request is sent once and at once, or not at
    /// all, as by [`Compute::create_disk`].
    ///
    /// # Errors
    /// Any [`Fault`] but [`Fault::NotFound`].
    pub async fn delete_disk(
        &self,
        disk: &ArmId,
        permit: Option<Permit>,
        until: &Until,
    ) -> Result<Operation, ArmError> {
        let write = Write::delete(disk.as_str(), self.versions.disks, Kind::DiskDelete);
        let write = write.patience(patience(permit.as_ref())).with_permit(permit);
        match self.write_disk(disk, write, Target::Absent, until).await {
            Err(error) if error.fault == Fault::NotFound => {
                Ok(Operation::finished(self.arm.clone(), Verb::Delete, disk.as_str(), Kind::DiskDelete))
            }
            other => other,
        }
    }

    /// Reads a virtual machine, or an instance of a scale set, by a single read from now on.
    ///
    /// # Errors
    /// As [`Compute::read_vm`].
    pub async fn get_vm(&self, vm: &ArmId, until: &Until) -> Result<Snapshot<Vm>, ArmError> {
        self.read_vm(vm, Freshness::single(), until).await
    }

    /// Reads a virtual machine, or an instance of a scale set, together with all who ask for it.
    ///
    /// # Errors
    /// As [`Compute::read_disk`].
    pub async fn read_vm(&self, vm: &ArmId, freshness: Freshness, until: &Until) -> Result<Snapshot<Vm>, ArmError> {
        let (resource_type, version) = self.machines(vm);
        let read = self.observe(resource_type, version, vm, freshness, until).await?;
        snapshot(read, vm.as_str(), decode_vm)
    }

    /// Reads whether a virtual machine runs, by a request of its own: no cache and no list answers.
    ///
    /// # Errors
    /// As [`Compute::read_disk`].
    pub async fn instance_view(&self, vm: &ArmId, priority: Priority, until: &Until) -> Result<InstanceView, ArmError> {
        let query = [("$expand", "instanceView")];
        let read = self.arm.get(vm.as_str(), self.vm_version(vm), &query, priority, until).await?;
        decode_instance_view(&read.value).map_err(|error| undecodable(vm.as_str(), error))
    }

    /// Reads a virtual machine and whether it runs, by one request of its own: no cache and no list answers.
    ///
    /// # Errors
    /// As [`Compute::read_disk`].
    pub async fn machine_and_view(
        &self,
        vm: &ArmId,
        priority: Priority,
        until: &Until,
    ) -> Result<(Vm, InstanceView), ArmError> {
        let raw = self.read_alone(vm, priority, until).await?;
        let decoded = decode_vm(&raw).and_then(|machine| Ok((machine, decode_instance_view(&raw)?)));
        decoded.map_err(|error| undecodable(vm.as_str(), error))
    }

    /// Reads a virtual machine, a scale set or one of its instances by a request of its own: no cache and no list answers.
    /// Of a machine the body holds the instance view.
    ///
    /// # Errors
    /// [`Fault::NotFound`] when exactly it is gone, and any other [`Fault`].
    pub async fn read_alone(&self, machine: &ArmId, priority: Priority, until: &Until) -> Result<Value, ArmError> {
        let is_set = machine.is_type("Microsoft.Compute/virtualMachineScaleSets");
        let version = if is_set { self.versions.scale_sets } else { self.vm_version(machine) };
        let query: &[(&str, &str)] = if is_set { &[] } else { &[("$expand", "instanceView")] };
        Ok(self.arm.get(machine.as_str(), version, query, priority, until).await?.value)
    }

    /// Lists the virtual machines of a resource group; instances of uniform scale sets are not among them.
    ///
    /// # Errors
    /// Any [`Fault`].
    pub async fn list_vms(&self, subscription: &str, resource_group: &str, until: &Until) -> Result<Vec<Vm>, ArmError> {
        let bodies = self.list_vm_bodies(subscription, resource_group, until).await?;
        let path = list_path(subscription, Some(resource_group), "virtualMachines");
        bodies.iter().map(|body| decode_vm(body).map_err(|error| undecodable(&path, error))).collect()
    }

    /// The same as Azure's JSON, with the members in use.
    ///
    /// # Errors
    /// Any [`Fault`].
    pub async fn list_vm_bodies(
        &self,
        subscription: &str,
        resource_group: &str,
        until: &Until,
    ) -> Result<Vec<Value>, ArmError> {
        let path = list_path(subscription, Some(resource_group), "virtualMachines");
        self.list_machines(&path, self.versions.virtual_machines, until).await
    }

    /// Lists the instances of a uniform scale set.
    ///
    /// # Errors
    /// Any [`Fault`].
    pub async fn list_instances(&self, scale_set: &ArmId, until: &Until) -> Result<Vec<Vm>, ArmError> {
        let path = format!("{scale_set}/virtualMachines");
        let bodies = self.list_instance_bodies(scale_set, until).await?;
        bodies.iter().map(|body| decode_vm(body).map_err(|error| undecodable(&path, error))).collect()
    }

    /// Finds the instance of a uniform scale set whose computer has this name, in a resource group. The name tells the
    /// number of the instance and how its scale set names computers, so that no list of instances is read.
    ///
    /// # Errors
    /// Any [`Fault`]; several scale sets may name their computers alike, and then each is looked at.
    pub async fn instance_named(
        &self,
        subscription: &str,
        resource_group: &str,
        computer: &str,
        until: &Until,
    ) -> Result<Option<Vm>, ArmError> {
        let Some((prefix, number)) = instance_of_computer(computer) else { return Ok(None) };
        for UniformSet { id, computer_name_prefix } in
            self.list_uniform_sets(subscription, resource_group, until).await?
        {
            if !computer_name_prefix.is_some_and(|names| names.eq_ignore_ascii_case(prefix)) {
                continue;
            }
            let path = format!("{id}/virtualMachines/{number}");
            let instance = path.parse::<ArmId>();
            let instance = instance
                .map_err(|error| Failure::ours(Fault::Malformed, Effect::None, Verb::Get, &path, error.to_string()))?;
            match self.get_vm(&instance, until).await {
                Ok(Snapshot { model, .. }) => {
                    if model.computer_name.as_deref().is_some_and(|name| name.eq_ignore_ascii_case(computer)) {
                        return Ok(Some(model));
                    }
                }
                // Of an instance that is not there Azure also says that the request is wrong.
                Err(error) if matches!(error.fault, Fault::NotFound | Fault::ScopeNotFound | Fault::Invalid) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// The same as Azure's JSON, with the members in use.
    ///
    /// # Errors
    /// Any [`Fault`].
    pub async fn list_instance_bodies(&self, scale_set: &ArmId, until: &Until) -> Result<Vec<Value>, ArmError> {
        self.list_machines(&format!("{scale_set}/virtualMachines"), self.versions.scale_sets, until).await
    }

    async fn list_machines(&self, path: &str, version: &'static str, until: &Until) -> Result<Vec<Value>, ArmError> {
        let mut list = self.arm.pages(path, version, &[], Priority::List, until)?;
        let mut bodies = Vec::new();
        while let Some(items) = list.next_of(listed::MACHINES.fields).await? {
            bodies.extend(items);
        }
        Ok(bodies)
    }

    /// Reads whether a scale set exists.
    ///
    /// # Errors
    /// Any [`Fault`] but [`Fault::NotFound`].
    pub async fn scale_set_exists(
        &self,
        scale_set: &ArmId,
        priority: Priority,
        until: &Until,
    ) -> Result<bool, ArmError> {
        match self.arm.get(scale_set.as_str(), self.versions.scale_sets, &[], priority, until).await {
            Ok(_) => Ok(true),
            Err(error) if error.fault == Fault::NotFound => Ok(false),
            Err(error) => Err(error),
        }
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
        let skus: Listed<Sku> = self.arm.list_of(&path, self.versions.skus, &[("$filter", &filter)], until).await?;
        Ok(skus.items.into_iter().filter_map(Sku::vm_size).collect())
    }

    /// The permit to write a VM once, by whichever method, if there is one now.
    pub fn try_permit_vm_write(&self, vm: &ArmId, priority: Priority) -> Option<Permit> {
        self.arm.try_permit(Verb::Put, vm.as_str(), priority)
    }

    /// Waits for the permit to write a VM once, by whichever method.
    ///
    /// # Errors
    /// As [`Arm::permit`].
    pub async fn permit_vm_write(&self, vm: &ArmId, rank: impl Into<Rank>, until: &Until) -> Result<Permit, ArmError> {
        self.arm.permit(Verb::Put, vm.as_str(), rank, until).await
    }

    /// Changes the data disks of a VM by the `attachDetachDataDisks` action, which needs no read before it but that a
    /// token is at hand: it goes out at once or not at all, under the permit it brings or one that there is now.
    async fn attach_detach(
        &self,
        write: &VmWrite,
        priority: Priority,
        permit: Option<Permit>,
        until: &Until,
    ) -> Result<Operation, ArmError> {
        let path = format!("{}/attachDetachDataDisks", write.vm);
        let body = encode_action(write);
        let request = Write::post(&path, self.vm_version(&write.vm), Some(body), kind(write))
            .priority(priority)
            .with_permit(permit)
            // The action knows no condition.
            .patience(Patience::None);
        self.write_machine(&write.vm, request, until).await
    }

    async fn write_machine(&self, vm: &ArmId, write: Write, until: &Until) -> Result<Operation, ArmError> {
        let operation = self.arm.write(write, until).await?;
        let (resource_type, version) = self.machines(vm);
        Ok(operation.watched(self.watching(resource_type, version, vm, Target::AtRest)))
    }

    /// Changes the data disks of a VM by whichever method. The methods that send the whole list send the list of
    /// `vm` as it was read, edited, under `If-Match` where the VM has an etag, and nothing else of the VM. A write that
    /// names no disk is the whole list as it was read, by whatever method: it makes Azure apply the model again
    /// (source: the Go drivers do so with a VM whose last write failed).
    ///
    /// # Errors
    /// Any [`Fault`]. [`Fault::PreconditionFailed`] when the VM has changed since it was read. After the action,
    /// [`Fault::Forbidden`] and [`Fault::Unsupported`] mean that another method may do.
    pub async fn write_vm(
        &self,
        vm: &Snapshot<Vm>,
        write: &VmWrite,
        method: VmWriteMethod,
        priority: Priority,
        permit: Option<Permit>,
        until: &Until,
    ) -> Result<Operation, ArmError> {
        if method == VmWriteMethod::Action && !write.says_nothing() {
            return self.attach_detach(write, priority, permit, until).await;
        }
        let path = write.vm.as_str();
        if vm.seen.by == By::List {
            let message = "a list does not say all that a write of the whole list needs";
            return Err(Failure::ours(Fault::Malformed, Effect::None, Verb::Put, path, message).into());
        }
        let elements = edit_data_disks(&vm.raw, write, method).map_err(|error| undecodable(path, error))?;
        let profile = json!({ "storageProfile": { "dataDisks": elements } });
        // An instance of a scale set takes no location (source: the Go drivers send none).
        let body = if write.vm.is_type(listed::INSTANCES.name) {
            let mut properties = profile;
            // Whether an instance keeps a size of its own that a PUT leaves out is not documented. The condition of the write
            // says that it is as it was read.
            if vm.etag.is_some() && !vm.raw["properties"]["hardwareProfile"].is_null() {
                properties["hardwareProfile"] = vm.raw["properties"]["hardwareProfile"].clone();
            }
            json!({ "properties": properties })
        } else {
            json!({ "location": vm.model.location, "properties": profile })
        };
        let request = Write::put(path, self.vm_version(&write.vm), body, kind(write))
            .if_match(vm.etag.as_deref())
            .priority(priority)
            .with_permit(permit)
            // Without an etag a second or late try could undo what another writer did meanwhile.
            .repeat(if vm.etag.is_some() { Repeat::Safe } else { Repeat::Never })
            .patience(if vm.etag.is_some() { Patience::AsAzureSays } else { Patience::None });
        self.write_machine(&write.vm, request, until).await
    }
}

/// The patience of a write whose caller took a permit before it read what it decided on, or took none.
fn patience(permit: Option<&Permit>) -> Patience {
    if permit.is_some() { Patience::None } else { Patience::AsAzureSays }
}

fn kind(write: &VmWrite) -> Kind {
    if write.attach.is_empty() && write.reapply.is_empty() { Kind::VmDetach } else { Kind::VmAttach }
}

pub(crate) fn list_path(subscription: &str, resource_group: Option<&str>, resource_type: &str) -> String {
    match resource_group {
        Some(group) => {
            format!("/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Compute/{resource_type}")
        }
        None => format!("/subscriptions/{subscription}/providers/Microsoft.Compute/{resource_type}"),
    }
}

fn snapshot<T>(
    read: Observation,
    path: &str,
    decode: fn(&Value) -> Result<T, DecodeError>,
) -> Result<Snapshot<T>, ArmError> {
    let model = decode(&read.value).map_err(|error| undecodable(path, error))?;
    Ok(Snapshot { model, etag: read.etag, raw: read.value, seen: read.seen, answered: read.answered })
}
