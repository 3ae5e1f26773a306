//! From a CreateVolume request whose source is a page blob to the managed disk that Azure makes of it.
//!
//! Azure reads the blob while it makes the disk, and does not say which content it has read. So the disk's tag
//! [`IMPORTED`] names the version of the blob before, and gets a mark once a later read shows the same version.

use lazuli_model::{
    ArmId, BlobUri, Disk, Gib,
    disk_spec::{DiskSpec, ImportOf, ImportVersion, Imported, ImportedBlob, Mismatch},
    disk_tags::IMPORTED,
    op::DiskChange,
    parameter::ParameterError,
    tags::MOST_TAGS,
};

use super::{
    copy::RESIZE_KEY,
    create::{
        Copied, CopiedFrom, CreatePlan, Defaults, Request, build,
        place::{Pin, check_source_group},
        set,
    },
    publish::SOURCE_KEY,
    sku, tags,
};

/// A page blob that a disk is imported from, as reads of it and of its account show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportSource {
    /// The storage account.
    pub account: ArmId,
    /// Its region.
    pub location: String,
    /// The size of the disk in the blob, in bytes: without the footer.
    pub bytes: u64,
    /// Which content it has.
    pub version: ImportVersion,
}

/// Which disk the request asks for. The same request and the same version of the blob give the same plan, whatever the order
/// and the letter case of the parameters' keys. Without `source` the blob has not been read: what the plan says then of size
/// and place is what the request alone says.
///
/// # Errors
/// The first value that cannot be used. Nothing has been sent then, and the code is final.
pub fn plan_import(
    request: &Request,
    blob: &BlobUri,
    source: Option<&ImportSource>,
    defaults: &Defaults,
) -> Result<CreatePlan, ParameterError> {
    if let Some(source) = source {
        check_account(&source.account, defaults)?;
    }
    let seen = source.map(|source| ImportedBlob { account: source.account.clone(), version: source.version.clone() });
    let copied = Copied {
        from: CopiedFrom::Blob(ImportOf { blob: blob.clone(), seen }),
        bytes: source.map(|source| source.bytes),
        sector_size: None,
        pin: source.map_or(Pin::Region(None), |source| Pin::OfAccount(source.location.clone())),
    };
    let mut create = build(request, defaults, Some(&copied))?;
    if create.spec.tags.len() + 1 > MOST_TAGS {
        return Err(ParameterError::invalid(
            "tags",
            create.spec.tags.len(),
            format!("an imported disk has a tag of the driver's own, {IMPORTED}; allowed are {} others", MOST_TAGS - 1),
        ));
    }
    // A volume with content is never formatted.
    set(&mut create.volume_context, SOURCE_KEY, blob.as_str());
    if let Some(source) = source {
        tags::insert(&mut create.spec.tags, IMPORTED, &tags::value_of(source.version.as_str()));
        if create.spec.size > Gib::within(source.bytes) {
            set(&mut create.volume_context, RESIZE_KEY, "true");
        }
    }
    Ok(create)
}

/// Refuses an account whose resource group the operator does not allow. It comes before a read of the blob.
///
/// # Errors
/// `INVALID_ARGUMENT`, with what is allowed.
pub fn check_account(account: &ArmId, defaults: &Defaults) -> Result<(), ParameterError> {
    check_source_group("volume_content_source", account, defaults)
}

/// A disk of the name of the request, by the request and the blob alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// It has the content of the blob for certain: it is answered, whatever has become of the blob.
    Checked,
    /// It is not certain which content it has. No request has been answered with it.
    Unchecked,
}

/// What a disk of the name is. `planned` is the plan without a source.
///
/// # Errors
/// When it was not made for this request, or from something else: `ALREADY_EXISTS`.
pub fn found(planned: &DiskSpec, disk: &Disk) -> Result<Found, Mismatch> {
    planned.matches(disk)?;
    Ok(if Imported::of(disk).is_some_and(|imported| imported.is_checked) { Found::Checked } else { Found::Unchecked })
}

/// The change that marks a disk as one whose content is certain; `None` where it was made of another version, or is another
/// disk. It is empty for a disk that has the mark.
pub fn mark(disk: &Disk, version: &ImportVersion) -> Option<DiskChange> {
    let imported = Imported::of(disk).filter(|imported| imported.version == *version)?;
    if imported.is_checked {
        return Some(DiskChange::default());
    }
    let mut tags = disk.tags.clone();
    tags::insert(&mut tags, IMPORTED, &version.checked());
    Some(DiskChange { tags: Some(tags), ..DiskChange::default() })
}

/// What a refused import may be about, of a disk of this type. Azure's documents name no type that it does not import; they
/// say of Ultra disks that they are made empty or from a snapshot (source: disks-types).
pub fn refused_for(spec: &DiskSpec) -> Option<String> {
    sku::has_own_performance(spec.sku).then(|| {
        format!(
            "if Azure does not import into {}, take a class of Premium_LRS, and change the disk's type with a \
             VolumeAttributesClass or by a snapshot",
            spec.sku
        )
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use lazuli_model::{SkuName, fault::Code};

    use super::*;
    use crate::{Capability, DISK_TOPOLOGY_KEY};

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    fn blob() -> BlobUri {
        "https://acct.blob.core.windows.net/vhds/d.vhd".parse().unwrap()
    }

    fn source(bytes: u64) -> ImportSource {
        ImportSource {
            account: ArmId::storage_account("s", "other", "acct").unwrap(),
            location: "West Europe".into(),
            bytes,
            version: ImportVersion::of("\"0x8D\"", bytes + 512),
        }
    }

    fn request(required_bytes: u64, parameters: &[(&str, &str)]) -> Request {
        Request {
            name: "pvc-1".into(),
            parameters: parameters.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            required_bytes: i64::try_from(required_bytes).unwrap(),
            capabilities: vec![Capability::mounted()],
            ..Request::default()
        }
    }

    fn defaults() -> Defaults {
        Defaults {
            subscription: "s".into(),
            resource_group: "g".into(),
            location: "westeurope".into(),
            ..Defaults::default()
        }
    }

    fn planned(request: &Request, bytes: u64) -> Result<CreatePlan, ParameterError> {
        plan_import(request, &blob(), Some(&source(bytes)), &defaults())
    }

    #[test]
    fn a_disk_is_at_least_as_large_as_the_blob_and_of_whole_gib() {
        for (required, bytes, gib, resized) in [
            (10 * GIB, 10 * GIB, 10, false),
            (1, 10 * GIB, 10, false),
            (0, 10 * GIB, 10, false),
            (1, 10 * GIB + MIB, 11, true),
            (20 * GIB, 10 * GIB, 20, true),
            (1, MIB, 1, true),
        ] {
            let plan = planned(&request(required, &[]), bytes).unwrap();
            assert_eq!((plan.spec.size, plan.spec.size_to_send()), (Gib::new(gib), Some(Gib::new(gib))), "{required}");
            assert_eq!(plan.size, plan.spec.size);
            assert_eq!(plan.volume_context.contains_key(RESIZE_KEY), resized, "{required} {bytes}");
            assert_eq!(plan.volume_context[SOURCE_KEY], blob().as_str());
        }
        let most = Request { limit_bytes: i64::try_from(10 * GIB).unwrap(), ..request(1, &[]) };
        assert!(planned(&most, 10 * GIB).is_ok());
        assert_eq!(planned(&most, 10 * GIB + MIB).unwrap_err().code(), Code::OutOfRange);
        // A claim that is far too small was made for another volume.
        assert_eq!(planned(&request(GIB, &[]), 100 * GIB).unwrap_err().code(), Code::OutOfRange);
    }

    #[test]
    fn the_plan_names_the_blob_its_account_and_its_version() {
        let plan = planned(&request(10 * GIB, &[("skuName", "Premium_LRS")]), 10 * GIB).unwrap();
        let of = plan.spec.import_of().unwrap();
        assert_eq!(
            (&of.blob, of.seen.as_ref().unwrap()),
            (&blob(), &ImportedBlob { account: source(1).account, version: source(10 * GIB).version })
        );
        assert_eq!(plan.spec.tags[IMPORTED], format!("0x8D {}", 10 * GIB + 512));
        assert_eq!((plan.spec.sku, plan.spec.location.as_str()), (SkuName::PremiumLrs, "westeurope"));
        let own = request(10 * GIB, &[("tags", "lazuli-imported=x checked")]);
        assert_eq!(planned(&own, 10 * GIB).unwrap().spec.tags[IMPORTED], plan.spec.tags[IMPORTED]);
    }

    #[test]
    fn a_blob_of_another_region_is_refused_with_both_regions() {
        let elsewhere = Defaults { location: "northeurope".into(), ..defaults() };
        for parameters in [&[][..], &[("location", "northeurope")]] {
            let defaults = if parameters.is_empty() { elsewhere.clone() } else { defaults() };
            let refused = plan_import(&request(GIB, parameters), &blob(), Some(&source(GIB)), &defaults).unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument);
            let text = refused.to_string();
            assert!(text.contains("West Europe") && text.contains("northeurope"), "{text}");
        }
    }

    #[test]
    fn a_zone_is_that_of_the_request() {
        let segments = BTreeMap::from([(DISK_TOPOLOGY_KEY.to_owned(), "westeurope-2".to_owned())]);
        let zonal = Request { requisite: vec![segments.clone()], preferred: vec![segments], ..request(GIB, &[]) };
        assert_eq!(planned(&zonal, GIB).unwrap().spec.zones, ["2"]);
    }

    #[test]
    fn an_account_in_a_group_that_is_not_allowed_is_refused() {
        let allowed = "third".parse().unwrap();
        let only = Defaults {
            allowed_resource_groups: lazuli_model::AllowedResourceGroups::Only(vec![allowed]),
            ..defaults()
        };
        assert!(plan_import(&request(GIB, &[]), &blob(), Some(&source(GIB)), &only).is_err());
    }

    #[test]
    fn there_is_room_for_the_tag() {
        let written = |number: usize| (0..number).map(|n| format!("t{n}=1")).collect::<Vec<_>>().join(",");
        let with = |number| request(GIB, &[("tags", written(number).as_str())]);
        assert!(planned(&with(MOST_TAGS - 3), GIB).is_ok());
        assert_eq!(planned(&with(MOST_TAGS - 2), GIB).unwrap_err().code(), Code::InvalidArgument);
    }

    #[test]
    fn a_disk_that_is_there_is_marked_once_and_only_in_its_version() {
        let unread = plan_import(&request(GIB, &[]), &blob(), None, &defaults()).unwrap().spec;
        let spec = planned(&request(GIB, &[]), GIB).unwrap().spec;
        let mut disk = Disk::plain(ArmId::disk("s", "g", "pvc-1").unwrap(), "westeurope".into());
        (disk.sku, disk.tags, disk.source) = (Some(spec.sku), spec.tags.clone(), Some(blob().to_string()));
        assert_eq!(found(&unread, &disk), Ok(Found::Unchecked));
        let version = source(GIB).version;
        let tags = mark(&disk, &version).unwrap().tags.unwrap();
        assert_eq!(tags.len(), disk.tags.len());
        assert_eq!(mark(&disk, &ImportVersion::of("other", GIB)), None);
        disk.tags = tags;
        assert_eq!(found(&unread, &disk), Ok(Found::Checked));
        assert!(mark(&disk, &version).unwrap().is_empty());
        assert!(spec.matches(&disk).is_ok());
        disk.source = None;
        assert!(found(&unread, &disk).is_err());
    }
}
