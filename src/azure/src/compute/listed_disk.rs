//! The disks of a resource group, as ListVolumes reads them: every item of a page becomes a small value while the page is
//! parsed, so that tens of thousands of disks never lie in memory as JSON.

use std::collections::BTreeMap;

use lazuli_model::{ArmId, Completion, Gib, SkuName};
use lazuli_quota::permit::Priority;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::{Compute, UnreadableDisk, list_path, undecodable, wire::decode_listed_disk};
use crate::{
    decode::{self, DecodeError},
    error::ArmError,
    until::Until,
};

/// As much of a disk as a list of volumes says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedDisk {
    /// As Azure spells it.
    pub id: ArmId,
    /// The size.
    pub size: Gib,
    /// Every VM that Azure says holds the disk, in order and without repeats.
    pub holders: Vec<ArmId>,
    /// Whether its tags say that a driver made it.
    pub made_by_driver: bool,
    /// The storage account type; `None` when Azure names one that is newer than this program.
    pub sku: Option<SkuName>,
    /// How much of its content has been copied in the background; `None` for a disk that is filled by no such copy.
    pub completion: Option<Completion>,
    /// What it was made from, in Azure's words, when it was not made empty.
    pub source: Option<String>,
    /// The type that a copy was made as, by its tag ([`MADE_AS`](lazuli_model::disk_tags::MADE_AS)).
    pub made_as: Option<SkuName>,
}

impl Compute {
    /// Lists the disks of a resource group and gives each to `take`: all of them, or an error. A disk that cannot be
    /// read is given too. A caller that needs every disk of some kind decides whether the unreadable one may be such a
    /// disk.
    ///
    /// # Errors
    /// Any [`Fault`](lazuli_model::fault::Fault). `take` may have been given a part of the disks by then.
    pub async fn list_disks_with(
        &self,
        subscription: &str,
        resource_group: &str,
        until: &Until,
        mut take: impl FnMut(Result<ListedDisk, UnreadableDisk>),
    ) -> Result<(), ArmError> {
        let path = list_path(subscription, Some(resource_group), "disks");
        let mut pages = self.arm.pages(&path, self.versions.disks, &[], Priority::List, until)?;
        while let Some(items) = pages.next_page::<Item>().await? {
            for Item(item) in items {
                take(item.map_err(|unreadable| {
                    let Unreadable { id, tags, error } = *unreadable;
                    let error = undecodable(id.as_deref().unwrap_or(&path), error);
                    UnreadableDisk { id, tags, error }
                }));
            }
        }
        Ok(())
    }
}

/// An item of the list, read at once. Its JSON is dropped before the next item is parsed.
#[derive(Debug)]
struct Item(Result<ListedDisk, Box<Unreadable>>);

#[derive(Debug)]
struct Unreadable {
    id: Option<String>,
    tags: BTreeMap<String, String>,
    error: DecodeError,
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Value::deserialize(deserializer)?;
        Ok(Self(decode_listed_disk(&raw).map_err(|error| {
            let id = raw.get("id").and_then(Value::as_str).map(str::to_owned);
            Box::new(Unreadable { id, tags: decode::tags(&raw), error })
        })))
    }
}
