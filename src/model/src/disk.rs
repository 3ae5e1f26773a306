//! A managed disk as Azure describes it.

use std::{collections::BTreeMap, fmt, str::FromStr};

use super::{ArmId, AzureTime, Completion, DiskId, Gib};

/// A name that is not one of those Azure knows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is not one of {allowed}")]
pub struct UnknownName {
    /// The name that was given.
    pub value: String,
    /// What is allowed, for the reader.
    pub allowed: &'static str,
}

/// Declares an enum of Azure names: exact on parsing, and every name in the error.
macro_rules! names {
    ($(#[$meta:meta])* $type:ident { $($(#[$variant_meta:meta])* $variant:ident = $name:literal),+ $(,)? } allowed $allowed:literal) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $type { $($(#[$variant_meta])* $variant),+ }

        impl $type {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
            /// Every name, for people.
            pub const NAMES: &'static str = $allowed;

            /// Azure's spelling.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// The value of this name, whatever the case of its letters: for what Azure answers, not for what a
            /// user writes.
            pub fn from_azure(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.as_str().eq_ignore_ascii_case(name))
            }
        }

        impl FromStr for $type {
            type Err = UnknownName;

            fn from_str(text: &str) -> Result<Self, UnknownName> {
                match text {
                    $($name => Ok(Self::$variant),)+
                    _ => Err(UnknownName { value: text.to_owned(), allowed: Self::NAMES }),
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
pub(crate) use names;

names! {
    /// The storage account type of a managed disk, as the StorageClass parameter `skuName` spells it.
    SkuName {
        /// Standard HDD, locally redundant.
        StandardLrs = "Standard_LRS",
        /// Standard SSD, locally redundant: the default.
        StandardSsdLrs = "StandardSSD_LRS",
        /// Standard SSD, zone redundant.
        StandardSsdZrs = "StandardSSD_ZRS",
        /// Premium SSD, locally redundant.
        PremiumLrs = "Premium_LRS",
        /// Premium SSD, zone redundant.
        PremiumZrs = "Premium_ZRS",
        /// Premium SSD v2, zonal, with performance of its own.
        PremiumV2Lrs = "PremiumV2_LRS",
        /// Ultra disk, zonal, with performance of its own.
        UltraSsdLrs = "UltraSSD_LRS",
    } allowed "Standard_LRS, StandardSSD_LRS, StandardSSD_ZRS, Premium_LRS, Premium_ZRS, PremiumV2_LRS, UltraSSD_LRS"
}

names! {
    /// How the host caches a data disk.
    CachingMode {
        /// Not at all: the only one for PremiumV2, Ultra, shared disks and disks of 4 TiB and more.
        None = "None",
        /// Reads: the default.
        ReadOnly = "ReadOnly",
        /// Reads and writes.
        ReadWrite = "ReadWrite",
    } allowed "None, ReadOnly, ReadWrite"
}

names! {
    /// What a disk is doing (source: the DiskState enum of the disks API).
    DiskState {
        /// Attached to no VM.
        Unattached = "Unattached",
        /// Attached to a running VM.
        Attached = "Attached",
        /// Attached to a VM that is stopped and deallocated.
        Reserved = "Reserved",
        /// Attached to a hibernated VM.
        Frozen = "Frozen",
        /// Readable or writable by a shared access signature.
        ActiveSas = "ActiveSAS",
        /// Attached to a hibernated VM and readable by a shared access signature.
        ActiveSasFrozen = "ActiveSASFrozen",
        /// Made for an upload that has not begun.
        ReadyToUpload = "ReadyToUpload",
        /// Being uploaded to.
        ActiveUpload = "ActiveUpload",
    } allowed "Unattached, Attached, Reserved, Frozen, ActiveSAS, ActiveSASFrozen, ReadyToUpload, ActiveUpload"
}

/// Where a resource is on its way: the state words that matter to a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProvisioningState {
    /// Azure has finished with it.
    Succeeded,
    /// The last operation failed.
    Failed,
    /// The last operation was cancelled.
    Canceled,
    /// An operation runs (`Creating`, `Updating`, `Deleting`… and any word Azure may add).
    InProgress,
}

impl ProvisioningState {
    /// Reads Azure's word; what is not terminal is in progress (source: ARM's asynchronous operations).
    pub fn from_azure(word: &str) -> Self {
        match word.to_ascii_lowercase().as_str() {
            "succeeded" => Self::Succeeded,
            "failed" => Self::Failed,
            "canceled" | "cancelled" => Self::Canceled,
            _ => Self::InProgress,
        }
    }
}

/// A disk, as a read shows it: a managed one by its ARM id, or `Disk<DiskId>` where it may be a page blob.
///
/// A page blob has little of what is said here. It is in no zone, has no SKU, no attributes and no holders that Azure names
/// by their ids; its lease is its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk<I = ArmId> {
    /// As Azure spells it.
    pub id: I,
    /// The region.
    pub location: String,
    /// The zones it is in; empty when it is regional.
    pub zones: Vec<String>,
    /// The storage account type; `None` when Azure names one that is newer than this list.
    pub sku: Option<SkuName>,
    /// The size.
    pub size: Gib,
    /// What it is doing; `None` when Azure names a newer state.
    pub state: Option<DiskState>,
    /// Where its last operation is.
    pub provisioning_state: ProvisioningState,
    /// The VM that holds it, when only one may.
    pub managed_by: Option<ArmId>,
    /// The VMs that hold a shared disk.
    pub managed_by_extended: Vec<ArmId>,
    /// When it was last attached or detached, or its VM was last deallocated or started (source: the disks API,
    /// `LastOwnershipUpdateTime`). `None` in a list, and where Azure does not say.
    pub ownership_changed: Option<AzureTime>,
    /// How many VMs may hold it at a time; 1 for most.
    pub max_shares: u32,
    /// The disk encryption set, if it has one.
    pub disk_encryption_set: Option<ArmId>,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// Input/output operations per second.
    pub iops: Option<u64>,
    /// Throughput, MB per second (10^6 bytes).
    pub mbps: Option<u64>,
    /// The logical sector size in bytes, where Azure says.
    pub logical_sector_size: Option<u32>,
    /// The network access policy, in Azure's words.
    pub network_access_policy: Option<String>,
    /// What it was made from, in Azure's words, when it was not made empty: the id of a disk, snapshot or image, the
    /// address of a blob, or only the way it was made. Whether it is a copy of a certain disk or snapshot is said by this
    /// together with `source_unique_id`.
    pub source: Option<String>,
    /// The id that Azure gave the source when it was made. Another disk or snapshot of the same name has another one.
    /// `None` where Azure does not say it.
    pub source_unique_id: Option<String>,
    /// The id that Azure gave this disk when it was made. `None` where Azure does not say it.
    pub unique_id: Option<String>,
    /// The exact size in bytes; a disk that was made from a snapshot may have no whole number of GiB. `None` where Azure
    /// does not say it.
    pub bytes: Option<u64>,
    /// How much of its content has been copied in the background, while that is going on or since; `None` for a disk
    /// that is filled by no such copy.
    pub completion: Option<Completion>,
}

impl<I> Disk<I> {
    /// Every VM that Azure says holds this disk, without repeats.
    pub fn holders(&self) -> Vec<&ArmId> {
        let mut holders: Vec<&ArmId> = self.managed_by_extended.iter().chain(&self.managed_by).collect();
        holders.sort();
        holders.dedup();
        holders
    }

    /// Whether the VM holds the disk, and no VM has been attached or detached, deallocated or started since the answer of
    /// that moment, which showed the disk attached to the VM. Without a stamp that cannot be told.
    pub fn is_held_since(&self, vm: &ArmId, answered: AzureTime) -> bool {
        self.holders().contains(&vm) && self.ownership_changed.is_some_and(|changed| changed <= answered)
    }

    /// The exact size in bytes, or the whole GiB where Azure does not say it.
    pub fn size_in_bytes(&self) -> u64 {
        self.bytes.unwrap_or_else(|| self.size.bytes())
    }

    /// Whether its content is being copied in the background.
    pub fn is_hydrating(&self) -> bool {
        self.completion.is_some_and(|completion| !completion.is_complete())
    }

    /// Whether the M-series write accelerator is to be on when it is attached. The Go driver keeps the wish as a tag
    /// of the disk, and so do we.
    pub fn write_accelerator(&self) -> bool {
        self.tags.iter().any(|(key, value)| {
            key.eq_ignore_ascii_case("writeacceleratorenabled") && value.eq_ignore_ascii_case("true")
        })
    }
}

#[cfg(any(test, feature = "testing"))]
impl<I: From<ArmId>> Disk<I> {
    /// A managed disk of one VM at most, which no VM holds.
    pub fn unattached(name: &str) -> Self {
        Self::plain(ArmId::disk("s", "g", name).expect("this is a name").into(), "local".into())
    }
}

impl<I> Disk<I> {
    /// The same disk by another id.
    fn with_id<J>(self, id: impl FnOnce(I) -> J) -> Disk<J> {
        Disk {
            id: id(self.id),
            location: self.location,
            zones: self.zones,
            sku: self.sku,
            size: self.size,
            state: self.state,
            provisioning_state: self.provisioning_state,
            managed_by: self.managed_by,
            managed_by_extended: self.managed_by_extended,
            ownership_changed: self.ownership_changed,
            max_shares: self.max_shares,
            disk_encryption_set: self.disk_encryption_set,
            tags: self.tags,
            iops: self.iops,
            mbps: self.mbps,
            logical_sector_size: self.logical_sector_size,
            network_access_policy: self.network_access_policy,
            source: self.source,
            source_unique_id: self.source_unique_id,
            unique_id: self.unique_id,
            bytes: self.bytes,
            completion: self.completion,
        }
    }
}

impl From<Disk> for Disk<DiskId> {
    fn from(disk: Disk) -> Self {
        disk.with_id(DiskId::Managed)
    }
}

impl<I> Disk<I> {
    /// A disk of 1 GiB and of one VM at most, which no VM holds and of which nothing else is known.
    pub fn plain(id: I, location: String) -> Self {
        Self {
            id,
            location,
            zones: Vec::new(),
            sku: None,
            size: Gib::new(1),
            state: Some(DiskState::Unattached),
            provisioning_state: ProvisioningState::Succeeded,
            managed_by: None,
            managed_by_extended: Vec::new(),
            ownership_changed: None,
            max_shares: 1,
            disk_encryption_set: None,
            tags: BTreeMap::new(),
            iops: None,
            mbps: None,
            logical_sector_size: None,
            network_access_policy: None,
            source: None,
            source_unique_id: None,
            unique_id: None,
            bytes: None,
            completion: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_name_is_exact_and_azures_is_not() {
        assert_eq!("Premium_LRS".parse::<SkuName>(), Ok(SkuName::PremiumLrs));
        let error = "premium_lrs".parse::<SkuName>().unwrap_err();
        assert!(error.to_string().contains("\"premium_lrs\" is not one of Standard_LRS"), "{error}");
        assert_eq!(SkuName::from_azure("premium_lrs"), Some(SkuName::PremiumLrs));
        for sku in SkuName::ALL {
            assert_eq!(sku.as_str().parse::<SkuName>(), Ok(*sku));
            assert!(error.allowed.contains(sku.as_str()));
        }
    }

    #[test]
    fn an_unknown_provisioning_word_means_in_progress() {
        assert_eq!(ProvisioningState::from_azure("Succeeded"), ProvisioningState::Succeeded);
        assert_eq!(ProvisioningState::from_azure("Hydrating"), ProvisioningState::InProgress);
    }
}
