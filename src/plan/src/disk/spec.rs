//! The disk to make, as typed values, and whether a disk that exists is that disk.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
};

use super::tags;
use crate::model::{ArmId, Disk, Gib, SkuName, UnknownName, names};

names! {
    /// Who may export or import the disk's content over the network.
    NetworkAccessPolicy {
        /// Anyone with a shared access signature.
        AllowAll = "AllowAll",
        /// Through the private endpoints of a disk access resource.
        AllowPrivate = "AllowPrivate",
        /// Nobody: the default.
        DenyAll = "DenyAll",
    } allowed "AllowAll, AllowPrivate, DenyAll"
}

names! {
    /// Whether the disk's content can be reached from the public network.
    PublicNetworkAccess {
        /// It can.
        Enabled = "Enabled",
        /// It cannot: the default.
        Disabled = "Disabled",
    } allowed "Enabled, Disabled"
}

names! {
    /// Whose keys encrypt the disk at rest.
    EncryptionType {
        /// The customer's: the default with a disk encryption set.
        CustomerKey = "EncryptionAtRestWithCustomerKey",
        /// The customer's and the platform's, one over the other.
        PlatformAndCustomerKeys = "EncryptionAtRestWithPlatformAndCustomerKeys",
        /// The platform's.
        PlatformKey = "EncryptionAtRestWithPlatformKey",
    } allowed "EncryptionAtRestWithCustomerKey, EncryptionAtRestWithPlatformAndCustomerKeys, EncryptionAtRestWithPlatformKey"
}

/// What a disk is made from: `properties.creationData.createOption`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateOption {
    /// Nothing: every sector is zero.
    Empty,
}

/// Everything that the PUT of a disk says.
///
/// A field that is `None` (or as noted) is left out of the body, and Azure's default counts. The paths are those of
/// the disks API's JSON body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskSpec {
    /// `location`, as it was configured or written.
    pub location: String,
    /// `zones`: one zone number, or empty (left out) for regional and zone-redundant disks.
    pub zones: Vec<String>,
    /// `sku.name`
    pub sku: SkuName,
    /// `tags`
    pub tags: BTreeMap<String, String>,
    /// `properties.creationData.createOption`
    pub create_option: CreateOption,
    /// `properties.creationData.logicalSectorSize`, bytes: 512 or 4096.
    pub logical_sector_size: Option<u32>,
    /// `properties.creationData.performancePlus`
    pub performance_plus: Option<bool>,
    /// `properties.diskSizeGB`; Azure's "GB" are GiB here.
    pub size: Gib,
    /// `properties.diskIOPSReadWrite`, operations per second.
    pub iops: Option<u64>,
    /// `properties.diskMBpsReadWrite`, MB (10^6 bytes) per second.
    pub mbps: Option<u64>,
    /// `properties.maxShares`; 1 is left out, as not every Azure knows the property.
    pub max_shares: u32,
    /// `properties.encryption.diskEncryptionSetId`; with `None` the whole `encryption` is left out.
    pub disk_encryption_set: Option<ArmId>,
    /// `properties.encryption.type`; there exactly when `disk_encryption_set` is.
    pub encryption_type: Option<EncryptionType>,
    /// `properties.networkAccessPolicy`; `None` on Azure Stack, which does not know it.
    pub network_access_policy: Option<NetworkAccessPolicy>,
    /// `properties.diskAccessId`; there exactly when the policy is `AllowPrivate`.
    pub disk_access: Option<ArmId>,
    /// `properties.publicNetworkAccess`; `None` on Azure Stack, which does not know it.
    pub public_network_access: Option<PublicNetworkAccess>,
    /// `properties.burstingEnabled`
    pub bursting_enabled: Option<bool>,
    /// Not in the body: the largest size in bytes that the caller takes, if there is a limit.
    pub most_bytes: Option<u64>,
    /// Not in the body: the zone numbers that the caller takes. A disk that an earlier try made in one of them is
    /// good, though this try would have chosen another: the scheduler may have changed its mind in between.
    pub zones_accepted: BTreeSet<String>,
}

/// In what a disk of the same name differs from the one that is asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a disk of this name exists with {property} {existing}, but {requested} is requested")]
pub struct Mismatch {
    /// The property.
    pub property: &'static str,
    /// What the disk has.
    pub existing: String,
    /// What the request says.
    pub requested: String,
}

/// A region in the form of Azure's own names: "East US" and "eastus" are one region.
pub(super) fn canonical_region(location: &str) -> String {
    location.chars().filter(|c| !c.is_whitespace()).collect::<String>().to_ascii_lowercase()
}

fn listed(values: &[String]) -> String {
    if values.is_empty() { "none".to_owned() } else { values.join(", ") }
}

fn or_none(value: Option<impl fmt::Display>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.to_string())
}

impl DiskSpec {
    /// Whether a disk that exists under the name is what a repeated CreateVolume asks for. A difference is the CSI
    /// specification's `ALREADY_EXISTS`.
    ///
    /// The size may be anything from the one that is planned to the limit. Operations, throughput, network
    /// access and tags in general are not compared: they may have been changed on purpose since. The tags that say for
    /// which volume the disk was made are: a class with a fixed `diskName` would otherwise hand one disk to two
    /// claims.
    ///
    /// # Errors
    /// The first difference.
    pub fn matches(&self, disk: &Disk) -> Result<(), Mismatch> {
        let differs = |property, existing: String, requested: String| Err(Mismatch { property, existing, requested });
        if let Some(source) = &disk.source {
            return differs("source", source.to_string(), "an empty disk".to_owned());
        }
        for key in tags::CREATED_FOR {
            let existing = disk.tags.iter().find(|(k, _)| k.eq_ignore_ascii_case(key)).map(|(_, value)| value);
            if let (Some(existing), Some(requested)) = (existing, self.tags.get(key))
                && existing != requested
            {
                return differs("tag", format!("{key}={existing}"), format!("{key}={requested}"));
            }
        }
        if disk.sku != Some(self.sku) {
            let existing = disk.sku.map_or("unknown", SkuName::as_str);
            return differs("skuName", existing.to_owned(), self.sku.to_string());
        }
        if disk.size < self.size {
            return differs("size", disk.size.to_string(), format!("at least {}", self.size));
        }
        if let Some(most) = self.most_bytes
            && disk.size.bytes() > most
        {
            return differs("size", disk.size.to_string(), format!("at most {most} bytes"));
        }
        if canonical_region(&disk.location) != canonical_region(&self.location) {
            return differs("location", disk.location.clone(), self.location.clone());
        }
        let zone_is_good = match disk.zones.as_slice() {
            [] => self.zones.is_empty(),
            [zone] => self.zones == [zone.as_str()] || self.zones_accepted.contains(zone),
            _ => false,
        };
        if !zone_is_good {
            return differs("zones", listed(&disk.zones), listed(&self.zones));
        }
        if disk.max_shares.max(1) != self.max_shares {
            return differs("maxShares", disk.max_shares.to_string(), self.max_shares.to_string());
        }
        if self.disk_encryption_set.is_some() && disk.disk_encryption_set != self.disk_encryption_set {
            return differs(
                "diskEncryptionSetID",
                or_none(disk.disk_encryption_set.as_ref()),
                or_none(self.disk_encryption_set.as_ref()),
            );
        }
        if let (Some(existing), Some(requested)) = (disk.logical_sector_size, self.logical_sector_size)
            && existing != requested
        {
            return differs("LogicalSectorSize", existing.to_string(), requested.to_string());
        }
        Ok(())
    }
}
