//! The disk to make, as typed values, and whether a disk that exists is that disk.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
};

use crate::{ArmId, BlobUri, Disk, Gib, SkuName, UnknownName, disk_tags as tags, names};

names! {
    /// Who may export or import the disk's content over the network.
    NetworkAccessPolicy {
        /// Every holder of a shared access signature.
        AllowAll = "AllowAll",
        /// Through the private endpoints of a disk access resource.
        AllowPrivate = "AllowPrivate",
        /// No client: the default.
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CreateOption {
    /// Nothing: every sector is zero.
    Empty,
    /// A disk or a snapshot of the same region.
    Copy(CopyOf),
    /// A VHD in a page blob of the same region.
    Import(ImportOf),
}

/// What a disk is imported from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportOf {
    /// `properties.creationData.sourceUri`
    pub blob: BlobUri,
    /// The blob as it was read. `None` while it has not been read: a disk of any version of it fits then.
    pub seen: Option<ImportedBlob>,
}

/// A blob that a disk is imported from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedBlob {
    /// `properties.creationData.storageAccountId`
    pub account: ArmId,
    /// In the body only as a tag: which content it has.
    pub version: ImportVersion,
}

/// Which content of a blob a disk is imported from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportVersion(String);

/// Behind the version in the tag of a disk of which it is certain that the blob did not change while Azure read it.
const CHECKED: &str = " checked";

impl ImportVersion {
    /// The version of a blob with this ETag and this length in bytes.
    pub fn of(etag: &str, length: u64) -> Self {
        Self(format!("{} {length}", etag.trim_matches('"')))
    }

    /// The value of the tag [`tags::IMPORTED`] of a disk that is being made.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The value of the tag of a disk whose content is certain.
    pub fn checked(&self) -> String {
        format!("{}{CHECKED}", self.0)
    }
}

/// What the tag of an imported disk says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// Of which version of the blob Azure was to read.
    pub version: ImportVersion,
    /// Whether the blob was seen to be the same after it.
    pub is_checked: bool,
}

impl Imported {
    /// Reads the tag of a disk.
    pub fn of(disk: &Disk) -> Option<Self> {
        let text = tags::value(&disk.tags, tags::IMPORTED)?;
        let (version, is_checked) = text.strip_suffix(CHECKED).map_or((text, false), |version| (version, true));
        Some(Self { version: ImportVersion(version.to_owned()), is_checked })
    }
}

/// What a disk is a copy of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyOf {
    /// `properties.creationData.sourceResourceId`
    pub source: ArmId,
    /// Not in the body: the id that Azure gave the source when it was made, where it is known. A copy of another disk or
    /// snapshot of the same name has other content.
    pub unique_id: Option<String>,
    /// Whether the body says a size.
    pub size: CopySize,
}

/// How large a copy is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopySize {
    /// As [`DiskSpec::size`] says: `properties.diskSizeGB` is sent.
    Given,
    /// Exactly as large as its source, to the byte: `properties.diskSizeGB` is left out. [`DiskSpec::size`] is what the
    /// request asks for, and the source holds that.
    OfSource,
}

names! {
    /// The performance tier of a Premium SSD: the performance of the size that it is named after (source: disks-types,
    /// disks-change-performance).
    PerformanceTier {
        /// That of 4 GiB.
        P1 = "P1",
        /// That of 8 GiB.
        P2 = "P2",
        /// That of 16 GiB.
        P3 = "P3",
        /// That of 32 GiB.
        P4 = "P4",
        /// That of 64 GiB.
        P6 = "P6",
        /// That of 128 GiB.
        P10 = "P10",
        /// That of 256 GiB.
        P15 = "P15",
        /// That of 512 GiB.
        P20 = "P20",
        /// That of 1 TiB.
        P30 = "P30",
        /// That of 2 TiB.
        P40 = "P40",
        /// That of 4 TiB.
        P50 = "P50",
        /// That of 8 TiB, for disks above 4 TiB alone.
        P60 = "P60",
        /// That of 16 TiB, for disks above 4 TiB alone.
        P70 = "P70",
        /// That of 32 TiB, for disks above 4 TiB alone.
        P80 = "P80",
    } allowed "P1, P2, P3, P4, P6, P10, P15, P20, P30, P40, P50, P60, P70, P80"
}

impl PerformanceTier {
    /// The largest disk whose own tier this is.
    pub fn size(self) -> Gib {
        Gib::new(match self {
            Self::P1 => 4,
            Self::P2 => 8,
            Self::P3 => 16,
            Self::P4 => 32,
            Self::P6 => 64,
            Self::P10 => 128,
            Self::P15 => 256,
            Self::P20 => 512,
            Self::P30 => 1_024,
            Self::P40 => 2_048,
            Self::P50 => 4_096,
            Self::P60 => 8_192,
            Self::P70 => 16_384,
            Self::P80 => 32_767,
        })
    }

    /// The tier that a Premium SSD of this size has by itself.
    pub fn of(size: Gib) -> Self {
        Self::ALL.iter().copied().find(|tier| tier.size() >= size).unwrap_or(Self::P80)
    }

    /// The tiers that a Premium SSD of this size can have: its own and higher ones, and those of more than 4 TiB only for
    /// a disk of more than 4 TiB.
    pub fn allowed_for(size: Gib) -> Vec<Self> {
        let own = Self::of(size);
        let most = if own > Self::P50 { Self::P80 } else { Self::P50 };
        Self::ALL.iter().copied().filter(|tier| (own..=most).contains(tier)).collect()
    }
}

/// An edge zone: where disks are made and load balancers stand that must be near a place outside of a region.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ExtendedLocation {
    /// Its name.
    pub name: String,
    /// Its type (`EdgeZone`).
    pub kind: String,
}

/// Everything that the PUT of a disk says.
///
/// A field that is `None` (or as noted) is left out of the body, and Azure's default counts. The paths are those of
/// the disks API's JSON body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskSpec {
    /// `location`, as it was configured or written.
    pub location: String,
    /// `extendedLocation`
    pub extended_location: Option<ExtendedLocation>,
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
    /// `properties.diskSizeGB`, unless the copy of a source leaves it out; Azure's "GB" are GiB here.
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
    /// `properties.tier`: the performance tier of a larger Premium SSD.
    pub tier: Option<PerformanceTier>,
    /// Not in the body: the largest size in bytes that the caller takes, if there is a limit.
    pub most_bytes: Option<u64>,
    /// Not in the body: the zone numbers that the caller takes. A disk that an earlier try made in one of them is
    /// good, though this try would have chosen another: the scheduler may have changed its mind in between.
    pub zones_accepted: BTreeSet<String>,
    /// In the body only as tags: for which request the disk is made.
    pub origin: Origin,
}

/// For which CreateVolume request a disk is made, and what shows it on a disk that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The value of the tag `lazuli-request`.
    pub request: String,
    /// The name of the PersistentVolume: from external-provisioner's extra metadata, else the request's name, which
    /// external-provisioner gives to the PersistentVolume too.
    pub persistent_volume: String,
    /// Where the disk's name comes from.
    pub named_by: NamedBy,
}

/// Where the name of a disk comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamedBy {
    /// From the CreateVolume request, whose name is unique.
    Request,
    /// From the parameter `diskName`, which may name any disk of the resource group.
    Class,
}

impl Origin {
    /// Whether an existing disk was made for this request. Its content would otherwise reach the claim of another.
    ///
    /// The tag `lazuli-request` decides where the disk has it. A disk without it may be one that the Go driver made for
    /// this request before the cluster changed drivers: it must name the PersistentVolume, its name must be the
    /// request's own, and no VM may hold it.
    fn check(&self, disk: &Disk) -> Result<(), Mismatch> {
        let not_made_for_it = |reason| Err(Mismatch::Origin { disk: disk.id.clone(), reason });
        match (tags::value(&disk.tags, tags::REQUEST), tags::value(&disk.tags, tags::FOR_PV)) {
            (Some(request), _) if request == self.request => Ok(()),
            (Some(request), _) => {
                not_made_for_it(format!("its tag {} is {request:?} instead of {:?}", tags::REQUEST, self.request))
            }
            (None, None) => not_made_for_it(format!("it has neither the tag {} nor {}", tags::REQUEST, tags::FOR_PV)),
            (None, Some(volume)) if volume != self.persistent_volume => not_made_for_it(format!(
                "its tag {} is {volume:?} instead of {:?}",
                tags::FOR_PV,
                self.persistent_volume
            )),
            (None, Some(_)) if self.named_by == NamedBy::Class => not_made_for_it(format!(
                "it has no tag {}, without which a disk that diskName names is not taken",
                tags::REQUEST
            )),
            (None, Some(_)) => match disk.holders().first() {
                None => Ok(()),
                Some(vm) => not_made_for_it(format!("it has no tag {}, and {vm} holds it", tags::REQUEST)),
            },
        }
    }
}

/// Why a disk of the same name is not the disk that is asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// It differs from the request.
    #[error("a disk of this name exists with {property} {existing}, but {requested} is requested")]
    Property {
        /// The property.
        property: &'static str,
        /// What the disk has.
        existing: String,
        /// What the request says.
        requested: String,
    },
    /// Nothing shows that it was made for this request.
    #[error(
        "the disk {disk} exists and was not made for this request: {reason}; delete the disk, or let the \
         StorageClass's diskName name another"
    )]
    Origin {
        /// The disk.
        disk: ArmId,
        /// What is missing or different.
        reason: String,
    },
}

/// A region in the form of Azure's own names: "East US" and "eastus" are one region.
pub fn canonical_region(location: &str) -> String {
    location.chars().filter(|c| !c.is_whitespace()).collect::<String>().to_ascii_lowercase()
}

/// Whether a text may be the name of a region: letters and digits, as Azure's own names are once spaces are left out. Which
/// regions there are is Azure's to say.
pub fn is_region_name(location: &str) -> bool {
    let name = canonical_region(location);
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn listed(values: &[String]) -> String {
    if values.is_empty() { "none".to_owned() } else { values.join(", ") }
}

fn or_none(value: Option<impl fmt::Display>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.to_string())
}

impl CreateOption {
    /// Whether a disk was made from this. A copy has its source's content, and an empty disk has none.
    fn check(&self, disk: &Disk) -> Result<(), Mismatch> {
        let differs =
            |existing: String, requested: String| Err(Mismatch::Property { property: "source", existing, requested });
        let of = match (self, &disk.source) {
            (Self::Empty, None) => return Ok(()),
            (Self::Empty, Some(source)) => return differs(source.clone(), "an empty disk".to_owned()),
            (Self::Copy(of), None) => return differs("none".to_owned(), of.source.to_string()),
            (Self::Copy(of), Some(source)) => match source.parse::<ArmId>() {
                Ok(source) if source == of.source => of,
                _ => return differs(source.clone(), of.source.to_string()),
            },
            (Self::Import(of), None) => return differs("none".to_owned(), of.blob.to_string()),
            (Self::Import(of), Some(source)) => {
                return match source.parse::<BlobUri>() {
                    Ok(source) if source == of.blob => of.check_version(disk),
                    _ => differs(source.clone(), of.blob.to_string()),
                };
            }
        };
        match (&of.unique_id, &disk.source_unique_id) {
            (Some(requested), Some(existing)) if !requested.eq_ignore_ascii_case(existing) => differs(
                format!("{} with the unique id {existing}", of.source),
                format!("the one with the unique id {requested}, which has its name now"),
            ),
            _ => Ok(()),
        }
    }
}

impl ImportOf {
    /// Whether a disk has the content of this version of the blob.
    fn check_version(&self, disk: &Disk) -> Result<(), Mismatch> {
        let differs = |existing: String, requested: &str| {
            let requested = requested.to_owned();
            Err(Mismatch::Property { property: "source", existing, requested })
        };
        let tag = tags::IMPORTED;
        match (Imported::of(disk), &self.seen) {
            (None, _) => differs(format!("{} in an unknown version", self.blob), &format!("a disk with the tag {tag}")),
            (Some(_), None) => Ok(()),
            (Some(there), Some(seen)) if there.version == seen.version => Ok(()),
            (Some(there), Some(seen)) => {
                differs(format!("{} as its tag {tag} {:?} says", self.blob, there.version.0), &seen.version.0)
            }
        }
    }
}

impl DiskSpec {
    /// What it is a copy of, if it is one.
    pub fn copy_of(&self) -> Option<&CopyOf> {
        match &self.create_option {
            CreateOption::Empty | CreateOption::Import(_) => None,
            CreateOption::Copy(of) => Some(of),
        }
    }

    /// What it is imported from, if it is.
    pub fn import_of(&self) -> Option<&ImportOf> {
        match &self.create_option {
            CreateOption::Empty | CreateOption::Copy(_) => None,
            CreateOption::Import(of) => Some(of),
        }
    }

    /// The size that the body says; `None` for a copy that is to be exactly as large as its source.
    pub fn size_to_send(&self) -> Option<Gib> {
        self.copy_of().is_none_or(|of| of.size == CopySize::Given).then_some(self.size)
    }

    /// Whether a disk has the size that the PUT gives it, so that it has not been grown since.
    pub fn has_sent_size(&self, disk: &Disk) -> bool {
        self.size_to_send().is_none_or(|size| size == disk.size)
    }

    /// Whether a disk that exists under the name is what a repeated CreateVolume asks for. A difference is the CSI
    /// specification's `ALREADY_EXISTS`.
    ///
    /// The size may be anything from the one that is planned to the limit. Operations, throughput, network
    /// access and tags in general are not compared: they may have been changed on purpose since. The tags that say for
    /// which request the disk was made are ([`Origin`]): a class with a fixed `diskName` would otherwise hand one disk
    /// to two claims, or a disk of another owner to a claim.
    ///
    /// # Errors
    /// The first difference.
    pub fn matches(&self, disk: &Disk) -> Result<(), Mismatch> {
        let differs =
            |property, existing: String, requested: String| Err(Mismatch::Property { property, existing, requested });
        self.create_option.check(disk)?;
        self.origin.check(disk)?;
        if disk.sku != Some(self.sku) {
            let existing = disk.sku.map_or("unknown", SkuName::as_str);
            return differs("skuName", existing.to_owned(), self.sku.to_string());
        }
        if disk.size < self.size {
            return differs("size", disk.size.to_string(), format!("at least {}", self.size));
        }
        if let Some(most) = self.most_bytes
            && disk.size_in_bytes() > most
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_of_an_imported_disk_says_its_version_and_whether_it_is_certain() {
        let version = ImportVersion::of("\"0x8D1\"", 1024);
        assert_eq!(version.as_str(), "0x8D1 1024");
        let mut disk = Disk::unattached("d");
        assert_eq!(Imported::of(&disk), None);
        for (value, is_checked) in [(version.as_str().to_owned(), false), (version.checked(), true)] {
            disk.tags.insert(tags::IMPORTED.to_uppercase(), value);
            assert_eq!(Imported::of(&disk), Some(Imported { version: version.clone(), is_checked }));
        }
    }

    #[test]
    fn an_imported_disk_is_that_of_its_blob_and_of_the_version_that_was_read() {
        let blob: BlobUri = "https://acct.blob.core.windows.net/vhds/d.vhd".parse().unwrap();
        let account = ArmId::storage_account("s", "g", "acct").unwrap();
        let seen = |etag| Some(ImportedBlob { account: account.clone(), version: ImportVersion::of(etag, 1024) });
        let option = |seen| CreateOption::Import(ImportOf { blob: blob.clone(), seen });
        let mut disk = Disk::unattached("d");
        assert!(option(None).check(&disk).is_err(), "it is empty");
        disk.source = Some("https://ACCT.blob.core.windows.net/vhds/d.vhd".into());
        assert!(option(None).check(&disk).is_err(), "nothing says its version");
        disk.tags.insert(tags::IMPORTED.into(), "1 1024".into());
        for good in [None, seen("1")] {
            option(good).check(&disk).unwrap();
        }
        assert!(option(seen("2")).check(&disk).is_err());
        assert!(CreateOption::Empty.check(&disk).is_err());
        disk.source = Some("https://acct.blob.core.windows.net/vhds/D.vhd".into());
        assert!(option(None).check(&disk).is_err(), "it is another blob");
    }

    #[test]
    fn a_premium_disk_has_the_tier_of_its_size_and_takes_higher_ones() {
        for (gib, own) in [
            (1, PerformanceTier::P1),
            (4, PerformanceTier::P1),
            (5, PerformanceTier::P2),
            (512, PerformanceTier::P20),
            (513, PerformanceTier::P30),
            (4_096, PerformanceTier::P50),
            (4_097, PerformanceTier::P60),
            (32_767, PerformanceTier::P80),
        ] {
            assert_eq!(PerformanceTier::of(Gib::new(gib)), own, "{gib}");
        }
        assert!(PerformanceTier::ALL.is_sorted_by(|one, other| one.size() < other.size()));
        let allowed = |gib| PerformanceTier::allowed_for(Gib::new(gib));
        assert_eq!(allowed(1_024), [PerformanceTier::P30, PerformanceTier::P40, PerformanceTier::P50]);
        assert_eq!(allowed(4_096), [PerformanceTier::P50]);
        assert_eq!(allowed(4_097), [PerformanceTier::P60, PerformanceTier::P70, PerformanceTier::P80]);
    }
}
