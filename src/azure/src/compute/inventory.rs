//! Lists for people's commands: the disks of a resource group as values, its scale sets, and the instances of these.

use lazuli_model::{ArmId, Disk};
use lazuli_quota::permit::Priority;
use serde_json::Value;

use super::{Compute, DecodeError, decode_disk, list_path, listed, undecodable};
use crate::{
    broker::Fields::{self, All, Only},
    error::ArmError,
    until::Until,
};

const SCALE_SET_FIELDS: Fields = Only(&[
    ("id", All),
    (
        "properties",
        Only(&[
            ("orchestrationMode", All),
            ("virtualMachineProfile", Only(&[("osProfile", Only(&[("computerNamePrefix", All)]))])),
        ]),
    ),
]);

/// A uniform scale set: its machines are instances, which only the scale set lists. Those of a flexible one are VMs, which
/// the resource group lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UniformSet {
    /// Its id.
    pub id: ArmId,
    /// What the names of its computers begin with, where Azure says it.
    pub computer_name_prefix: Option<String>,
}

impl Compute {
    /// Lists the disks of a resource group. A disk that cannot be read is logged and left out.
    ///
    /// # Errors
    /// Any [`Fault`](lazuli_model::fault::Fault).
    pub async fn list_disks(
        &self,
        subscription: &str,
        resource_group: &str,
        until: &Until,
    ) -> Result<Vec<Disk>, ArmError> {
        self.list_disks_of(subscription, Some(resource_group), until).await
    }

    /// The same of the whole subscription where no resource group is named.
    ///
    /// # Errors
    /// Any [`Fault`](lazuli_model::fault::Fault).
    pub async fn list_disks_of(
        &self,
        subscription: &str,
        resource_group: Option<&str>,
        until: &Until,
    ) -> Result<Vec<Disk>, ArmError> {
        let path = list_path(subscription, resource_group, "disks");
        let mut pages = self.arm.pages(&path, self.versions.disks, &[], Priority::List, until)?;
        let mut disks = Vec::new();
        while let Some(items) = pages.next_of(listed::DISKS.fields).await? {
            for item in items {
                match decode_disk(&item) {
                    Ok(disk) => disks.push(disk),
                    Err(error) => {
                        let id = item.get("id").and_then(Value::as_str).unwrap_or(&path);
                        tracing::warn!(disk = id, %error, "a disk cannot be read and is left out");
                    }
                }
            }
        }
        Ok(disks)
    }

    /// Lists the uniform scale sets of a resource group. One that does not tell its orchestration is uniform (source: the
    /// API's default before flexible sets).
    ///
    /// # Errors
    /// Any [`Fault`](lazuli_model::fault::Fault).
    pub async fn list_uniform_sets(
        &self,
        subscription: &str,
        resource_group: &str,
        until: &Until,
    ) -> Result<Vec<UniformSet>, ArmError> {
        let path = list_path(subscription, Some(resource_group), "virtualMachineScaleSets");
        let mut pages = self.arm.pages(&path, self.versions.scale_sets, &[], Priority::List, until)?;
        let mut sets = Vec::new();
        while let Some(items) = pages.next_of(SCALE_SET_FIELDS).await? {
            for item in items {
                let text = |pointer| item.pointer(pointer).and_then(Value::as_str);
                let id = text("/id").unwrap_or_default().parse().map_err(|error| {
                    let why = format!("cannot be read: {error}");
                    undecodable(&path, DecodeError { field: "id".to_owned(), why })
                })?;
                if text("/properties/orchestrationMode").is_some_and(|mode| mode.eq_ignore_ascii_case("Flexible")) {
                    continue;
                }
                let prefix = text("/properties/virtualMachineProfile/osProfile/computerNamePrefix");
                sets.push(UniformSet { id, computer_name_prefix: prefix.map(str::to_owned) });
            }
        }
        Ok(sets)
    }
}
