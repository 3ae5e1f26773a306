//! Snapshots of disks: which request is which, and what the answers mean.
//!
//! The PUT of a snapshot ends when Azure has made it. Its content may be copied in the background after that, which only
//! reads show.

use lazuli_model::{
    ArmId, AzureTime, Completion, CopyMethod, DataAccessAuthMode, Gib, Snapshot as DiskSnapshot, SnapshotAccessState,
    fault::Fault, snapshot_spec::SnapshotSpec,
};
use lazuli_quota::{permit::Priority, poll::Kind, read::Target};
use serde_json::{Map, Value, json};

use super::{
    Compute, DecodeError, Freshness, MADE_BEFORE_DATE, Snapshot,
    body::put,
    list_path, listed, patience, snapshot,
    wire::{disk_size, source},
};
use crate::{
    arm::{Operation, Write},
    decode::{
        at, exact_stamp, optional_bool, optional_number, optional_number32, optional_text, parse_id,
        provisioning_state, readable_tags, text, wrong,
    },
    error::{ArmError, Verb},
    permits::Permit,
    until::Until,
};

/// The snapshots of a subscription or of a resource group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotList {
    /// All that can be read.
    pub snapshots: Vec<DiskSnapshot>,
    /// When Azure answered, by its own clock; `None` where it did not say so.
    pub answered: Option<AzureTime>,
}

/// Reads a snapshot of a disk.
///
/// # Errors
/// When a field that decisions rest on is missing or is not what it should be.
pub fn decode_snapshot(raw: &Value) -> Result<DiskSnapshot, DecodeError> {
    const CREATED: &str = "properties.timeCreated";
    let word = |path| optional_text(raw, path);
    let owned = |path| word(path).map(|text| text.map(str::to_owned));
    Ok(DiskSnapshot {
        id: parse_id(text(raw, "id")?, "id")?,
        location: text(raw, "location")?.to_owned(),
        size: disk_size(raw)?,
        bytes: optional_number(raw, "properties.diskSizeBytes")?,
        unique_id: owned("properties.uniqueId")?,
        method: word("properties.creationData.createOption")?.and_then(CopyMethod::from_azure),
        source: source(raw),
        source_unique_id: owned("properties.creationData.sourceUniqueId")?,
        created: exact_stamp(raw, CREATED).ok_or_else(|| wrong(CREATED, "is missing or is no time"))?,
        incremental: optional_bool(raw, "properties.incremental")?.unwrap_or(false),
        family: owned("properties.incrementalSnapshotFamilyId")?,
        provisioning_state: provisioning_state(raw)?,
        access: word("properties.snapshotAccessState")?.and_then(SnapshotAccessState::from_azure),
        instant_access_minutes: optional_number32(raw, "properties.creationData.instantAccessDurationMinutes")?,
        completion: at(raw, "properties.completionPercent").and_then(Value::as_f64).map(Completion::from_percent),
        copy_error: owned("properties.copyCompletionError.errorCode")?,
        logical_sector_size: optional_number32(raw, "properties.creationData.logicalSectorSize")?,
        tags: readable_tags(raw)?,
    })
}

/// What to send to make the snapshot of a plan. A property that the plan leaves open is left out, as of a disk.
pub fn encode_snapshot(spec: &SnapshotSpec) -> Value {
    let mut creation = Map::new();
    creation.insert("createOption".into(), json!(spec.method.as_str()));
    creation.insert("sourceResourceId".into(), json!(spec.source.as_str()));
    put(&mut creation, "instantAccessDurationMinutes", spec.instant_access_minutes);
    let mut properties = Map::new();
    properties.insert("creationData".into(), creation.into());
    properties.insert("incremental".into(), json!(spec.incremental));
    put(&mut properties, "networkAccessPolicy", spec.network_access_policy.map(|policy| policy.as_str()));
    put(&mut properties, "publicNetworkAccess", spec.public_network_access.map(|access| access.as_str()));
    put(&mut properties, "dataAccessAuthMode", spec.data_access_auth_mode.map(DataAccessAuthMode::as_str));
    let mut body = Map::new();
    body.insert("location".into(), json!(spec.location));
    if let Some(edge) = &spec.extended_location {
        body.insert("extendedLocation".into(), json!({ "name": edge.name, "type": edge.kind }));
    }
    body.insert("tags".into(), json!(spec.tags));
    body.insert("properties".into(), properties.into());
    body.into()
}

impl Compute {
    /// Reads a snapshot, together with all who ask for it.
    ///
    /// # Errors
    /// As [`Compute::read_disk`].
    pub async fn read_snapshot(
        &self,
        id: &ArmId,
        freshness: Freshness,
        until: &Until,
    ) -> Result<Snapshot<DiskSnapshot>, ArmError> {
        let read = self.observe(&listed::SNAPSHOTS, self.versions.disks, id, freshness, until).await?;
        snapshot(read, id.as_str(), decode_snapshot)
    }

    /// Waits for the permit to make or to delete a snapshot.
    ///
    /// # Errors
    /// As [`Arm::permit`](crate::arm::Arm::permit).
    pub async fn permit_snapshot(&self, verb: Verb, id: &ArmId, until: &Until) -> Result<Permit, ArmError> {
        self.arm.permit(verb, id.as_str(), Priority::Create, until).await
    }

    /// Makes a snapshot. With a permit, which the caller took before it read the snapshot, the request is sent once and at
    /// once, or not at all, as by [`Compute::create_disk`].
    ///
    /// # Errors
    /// Any [`Fault`]; the snapshot may be in the making when [`Failure::effect`](crate::error::Failure::effect) says so.
    pub async fn create_snapshot(
        &self,
        id: &ArmId,
        spec: &SnapshotSpec,
        permit: Option<Permit>,
        until: &Until,
    ) -> Result<Operation, ArmError> {
        let write = Write::put(id.as_str(), self.versions.disks, encode_snapshot(spec), Kind::SnapshotCreate);
        let write = write.patience(patience(permit.as_ref())).with_permit(permit);
        let operation = self.arm.write(write, until).await?;
        let target = operation.accepted_by_azures_clock().map_or(Target::Polled, |accepted| Target::Made {
            // A snapshot of that name that a list shows is this one where it was made no earlier, whatever its size.
            size: Gib::new(0),
            since: accepted - MADE_BEFORE_DATE,
        });
        Ok(operation.watched(self.watching(&listed::SNAPSHOTS, self.versions.disks, id, target)))
    }

    /// Deletes a snapshot; one that is gone already is deleted. With a permit the request is sent once and at once, or not
    /// at all.
    ///
    /// # Errors
    /// Any [`Fault`] but [`Fault::NotFound`].
    pub async fn delete_snapshot(
        &self,
        id: &ArmId,
        permit: Option<Permit>,
        until: &Until,
    ) -> Result<Operation, ArmError> {
        let write = Write::delete(id.as_str(), self.versions.disks, Kind::SnapshotDelete);
        let write = write.patience(patience(permit.as_ref())).with_permit(permit);
        match self.arm.write(write, until).await {
            Ok(operation) => {
                Ok(operation.watched(self.watching(&listed::SNAPSHOTS, self.versions.disks, id, Target::Absent)))
            }
            Err(error) if error.fault == Fault::NotFound => {
                Ok(Operation::finished(self.arm.clone(), Verb::Delete, id.as_str(), Kind::SnapshotDelete))
            }
            Err(error) => Err(error),
        }
    }

    /// Lists the snapshots of a resource group, or of the whole subscription where none is named. One that cannot be read
    /// is logged and left out.
    ///
    /// # Errors
    /// Any [`Fault`].
    pub async fn list_snapshots(
        &self,
        subscription: &str,
        resource_group: Option<&str>,
        until: &Until,
    ) -> Result<SnapshotList, ArmError> {
        let path = list_path(subscription, resource_group, "snapshots");
        let mut pages = self.arm.pages(&path, self.versions.disks, &[], Priority::List, until)?;
        let mut snapshots = Vec::new();
        while let Some(items) = pages.next_of(listed::SNAPSHOTS.fields).await? {
            for item in items {
                match decode_snapshot(&item) {
                    Ok(read) => snapshots.push(read),
                    Err(error) => {
                        let id = item.get("id").and_then(Value::as_str).unwrap_or(&path);
                        tracing::warn!(snapshot = id, %error, "a snapshot cannot be read and is left out");
                    }
                }
            }
        }
        Ok(SnapshotList { snapshots, answered: pages.answered() })
    }
}

#[cfg(test)]
mod tests;
