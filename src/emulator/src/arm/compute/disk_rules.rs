//! What a new managed disk may be: checks of a request, and the document that results.
//!
//! Documented: sizes, performance, shares and zones by SKU. What may be made of what is in [`disk_copy`], what may change in
//! [`disk_changes`](super::disk_changes). Recorded: the members of a finished document. Nothing here touches the store except to read what
//! a request refers to.

use serde_json::{Value, json};

use super::copy_source::Size;
use super::disk_copy;
use crate::arm::{kinds, regions, writes};
use crate::blob::vhd;
use crate::disk_skus::{self, Sku, SkuError};
use crate::fault::{self, Fault};
use crate::path;
use crate::state::State;

/// Caching and live growth end below this size (documented).
pub(super) const FOUR_TIB_GIB: u64 = 4096;

/// Documented: 1 to 80 characters; letters, digits, `_`, `-`, `.`; begins with a letter, digit or
/// underscore and ends with a letter, digit or underscore. The text is unverified.
pub(crate) fn check_name(parameter: &str, name: &str) -> Result<(), Fault> {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let fits = (1..=80).contains(&name.chars().count())
        && name.chars().all(|c| word(c) || c == '-' || c == '.')
        && name.starts_with(word)
        && name.ends_with(word);
    if fits {
        Ok(())
    } else {
        Err(fault::invalid_parameter(
            parameter,
            format!(
                "The entity name '{parameter}' is invalid according to its validation rule: ^[^_\\W][\\w-._]{{0,79}}(?<![-.])$. Given: '{name}'."
            ),
        ))
    }
}

pub(super) fn refused(error: &SkuError) -> Fault {
    let mut fault = Fault::new(error.status(), error.code(), error.to_string());
    fault.target = error.target().map(Into::into);
    fault
}

pub(super) fn sku_of(doc: &Value) -> Result<&'static Sku, Fault> {
    let name = doc["sku"]["name"].as_str().unwrap_or("Standard_LRS");
    disk_skus::find(name).ok_or_else(|| fault::invalid_parameter("sku", format!("SKU {name} is not available.")))
}

/// The finished document of a new disk.
pub(crate) fn complete(
    state: &State,
    id: &str,
    location: &str,
    body: &Value,
    created: &str,
    unique: &str,
) -> Result<Value, Fault> {
    let asked = &body["properties"];
    if asked.is_null() {
        return Err(fault::missing_parameter("disk.properties"));
    }
    if asked.get("creationData").is_none() {
        return Err(fault::missing_parameter("disk.creationData"));
    }
    let sku = sku_of(body)?;
    let mut properties = asked.clone();
    let size = creation(state, (id, location), body, sku, &mut properties)?;
    let gib = size.gib;
    sku.check_size(gib).map_err(|e| refused(&e))?;
    let zones = body["zones"].as_array().cloned().unwrap_or_default();
    regions::check_zones(location, &zones, kinds::DISK, path::name_of(id))?;
    if !zones.is_empty() || regions::has_zones(location) {
        sku.check_zones(&zones).map_err(|e| refused(&e))?;
    }
    properties["diskSizeGB"] = json!(gib);
    perform(&mut properties, sku, gib, asked)?;
    shares(&mut properties, sku, gib)?;
    sector_size(&mut properties, sku)?;
    protect("disk", &mut properties)?;
    properties["timeCreated"] = json!(created);
    properties["provisioningState"] = json!("Succeeded");
    properties["diskState"] = json!(match asked["creationData"]["createOption"].as_str() {
        Some("Upload" | "UploadPreparedSecure") => "ReadyToUpload",
        _ => "Unattached",
    });
    properties["diskSizeBytes"] = json!(size.bytes);
    properties["uniqueId"] = json!(unique);
    if properties["burstingEnabled"] == json!(true) {
        properties["burstingEnabledTime"] = json!(created);
    }
    let mut doc = writes::base(kinds::DISK, id, location, &["tags", "zones", "extendedLocation"], body);
    doc["sku"] = json!({"name": sku.name, "tier": sku.tier});
    doc["properties"] = properties;
    Ok(doc)
}

/// Checks `creationData` and says how large the disk becomes.
fn creation(
    state: &State,
    (id, location): (&str, &str),
    body: &Value,
    sku: &'static Sku,
    properties: &mut Value,
) -> Result<Size, Fault> {
    let asked = &body["properties"];
    let data = &asked["creationData"];
    let option = data["createOption"].as_str().unwrap_or("");
    let given = match asked.get("diskSizeGB") {
        Some(value) => match value.as_u64() {
            Some(gib) => Some(gib),
            None => {
                return Err(fault::out_of_range("disk.diskSizeGB", value.to_string(), "1", "65536"));
            }
        },
        None => None,
    };
    let required = |member: &str| {
        data[member].as_str().ok_or_else(|| fault::missing_parameter(format!("disk.creationData.{member}")))
    };
    match option {
        "Empty" => given.map(Size::whole).ok_or_else(|| fault::missing_parameter("disk.diskSizeGB")),
        "Copy" | "Restore" | "CopyStart" | "CopyFromSanSnapshot" => {
            disk_copy::plan(state, &disk_copy::Asked { id, location, body, sku, gib: given }, properties)
        }
        "Import" | "ImportSecure" => {
            let source = vhd::source(state, required("sourceUri")?, required("storageAccountId")?)?;
            let least = Size::exact(source.bytes, state.switches.size_rounding);
            match given.map(Size::whole) {
                Some(size) if size.bytes < source.bytes => {
                    Err(fault::smaller_than_source("disk", size.gib, source.bytes.div_ceil(GIB)))
                }
                Some(size) => Ok(size),
                None => Ok(least),
            }
        }
        "FromImage" => {
            if data.get("imageReference").is_none() && data.get("galleryImageReference").is_none() {
                return Err(fault::missing_parameter("disk.creationData.imageReference"));
            }
            Ok(Size::whole(given.unwrap_or(30)))
        }
        "Upload" | "UploadPreparedSecure" => {
            let bytes = data["uploadSizeBytes"]
                .as_i64()
                .ok_or_else(|| fault::missing_parameter("disk.creationData.uploadSizeBytes"))?;
            // Documented bounds: 20 MiB and 32 TiB, each plus the 512 bytes of a VHD footer.
            if !(20_972_032..=35_183_298_347_520).contains(&bytes) {
                return Err(fault::out_of_range(
                    "disk.creationData.uploadSizeBytes",
                    bytes.to_string(),
                    "20972032",
                    "35183298347520",
                ));
            }
            // Documented (disks-upload-vhd-to-managed-disk-cli): the disk has no footer.
            Ok(Size::exact(bytes.unsigned_abs() - VHD_FOOTER_BYTES, state.switches.size_rounding))
        }
        _ => Err(fault::invalid_parameter(
            "disk.creationData.createOption",
            format!("The value '{option}' of parameter 'disk.creationData.createOption' is not allowed in a request."),
        )),
    }
}

const GIB: u64 = 1 << 30;
/// Documented: the last bytes of a fixed VHD.
const VHD_FOOTER_BYTES: u64 = 512;

/// IOPS, throughput and tier.
pub(super) fn perform(properties: &mut Value, sku: &Sku, gib: u64, asked: &Value) -> Result<(), Fault> {
    let iops = asked.get("diskIOPSReadWrite").and_then(Value::as_u64);
    let mbps = asked.get("diskMBpsReadWrite").and_then(Value::as_u64);
    let performance = sku.check_performance(gib, iops, mbps).map_err(|e| refused(&e))?;
    properties["diskIOPSReadWrite"] = json!(performance.iops);
    properties["diskMBpsReadWrite"] = json!(performance.mbps);
    match (sku.tier_name(gib), asked["tier"].as_str()) {
        (Some(own), None) if sku.name.starts_with("Premium") => properties["tier"] = json!(own),
        (Some(own), Some(tier)) => {
            // Documented: only Premium SSD takes a tier above its own, never one below.
            let number = |name: &str| name.get(1..).and_then(|n| n.parse::<u32>().ok());
            let fits = sku.name.starts_with("Premium")
                && tier.starts_with('P')
                && number(tier) >= number(&own)
                // Documented (disks-change-performance): P60 and above are for disks that are larger than 4 TiB.
                && (gib > FOUR_TIB_GIB || number(tier) <= Some(50));
            if !fits {
                return Err(fault::invalid_parameter(
                    "disk.tier",
                    format!(
                        "The tier '{tier}' is not valid for a disk of SKU {} and {gib} GiB, whose baseline tier is '{own}'.",
                        sku.name
                    ),
                ));
            }
            if let Some(at) = TIER_SIZES.iter().find(|(name, _)| *name == tier) {
                let raised = sku.default_performance(at.1);
                properties["diskIOPSReadWrite"] = json!(raised.iops);
                properties["diskMBpsReadWrite"] = json!(raised.mbps);
            }
        }
        _ => {}
    }
    if asked["burstingEnabled"] == json!(true) && (!sku.name.starts_with("Premium_") || gib <= 512) {
        return Err(fault::invalid_parameter(
            "disk.burstingEnabled",
            "On-demand bursting is supported for Premium SSD disks larger than 512 GiB only.",
        ));
    }
    if asked["creationData"]["performancePlus"] == json!(true) && gib < 513 {
        return Err(fault::invalid_parameter(
            "disk.creationData.performancePlus",
            "Performance plus requires a disk of at least 513 GiB.",
        ));
    }
    Ok(())
}

/// Premium tiers and their sizes (documented).
const TIER_SIZES: [(&str, u64); 14] = [
    ("P1", 4),
    ("P2", 8),
    ("P3", 16),
    ("P4", 32),
    ("P6", 64),
    ("P10", 128),
    ("P15", 256),
    ("P20", 512),
    ("P30", 1024),
    ("P40", 2048),
    ("P50", 4096),
    ("P60", 8192),
    ("P70", 16_384),
    ("P80", 32_767),
];

pub(super) fn shares(properties: &mut Value, sku: &Sku, gib: u64) -> Result<(), Fault> {
    if let Some(value) = properties.get("maxShares") {
        let shares = value.as_u64().unwrap_or(0);
        sku.check_shares(gib, shares).map_err(|e| refused(&e))?;
    }
    Ok(())
}

/// Documented: Ultra and Premium v2 have sectors of 512 or 4096 bytes, 4096 unless asked for; others have no
/// choice. Unverified texts.
fn sector_size(properties: &mut Value, sku: &Sku) -> Result<(), Fault> {
    let target = "disk.creationData.logicalSectorSize";
    let data = &mut properties["creationData"];
    match data.get("logicalSectorSize").cloned() {
        None if sku.adjustable() => data["logicalSectorSize"] = json!(4096),
        None => {}
        Some(size) if !sku.adjustable() => {
            return Err(fault::invalid_parameter(
                target,
                format!("The logical sector size {size} cannot be set on a disk of SKU {}.", sku.name),
            ));
        }
        Some(size) if size != 512 && size != 4096 => {
            return Err(fault::invalid_parameter(
                target,
                format!("The value '{size}' of parameter '{target}' is not valid. Allowed values: 512, 4096."),
            ));
        }
        Some(_) => {}
    }
    Ok(())
}

/// Checks how a disk or snapshot is encrypted and reached over the network, and adds the defaults.
pub(crate) fn protect(root: &str, properties: &mut Value) -> Result<(), Fault> {
    references(root, properties)?;
    encryption_type(properties);
    let defaults = json!({
        "encryption": {"type": "EncryptionAtRestWithPlatformKey"},
        "networkAccessPolicy": "AllowAll",
        "publicNetworkAccess": "Enabled",
    });
    *properties = writes::with_others(properties.take(), &defaults);
    Ok(())
}

/// Unverified: an encryption without a type is by the customer's key when it names a set.
fn encryption_type(properties: &mut Value) {
    if let Some(encryption) = properties.get_mut("encryption").filter(|encryption| encryption["type"].is_null()) {
        let customer = encryption["diskEncryptionSetId"].is_string();
        let kind = if customer { "EncryptionAtRestWithCustomerKey" } else { "EncryptionAtRestWithPlatformKey" };
        encryption["type"] = json!(kind);
    }
}

/// Disk encryption sets and disk accesses are looked up when named; those types are not emulated, so
/// only the id's form is checked.
fn references(root: &str, properties: &Value) -> Result<(), Fault> {
    let encryption = &properties["encryption"];
    if let Some(set) = encryption["diskEncryptionSetId"].as_str() {
        reference(set, "diskEncryptionSets", &format!("{root}.encryption.diskEncryptionSetId"))?;
    } else if encryption["type"].as_str().is_some_and(|kind| kind.contains("CustomerKey")) {
        return Err(fault::missing_parameter(format!("{root}.encryption.diskEncryptionSetId")));
    }
    let policy = properties["networkAccessPolicy"].as_str().unwrap_or("AllowAll");
    match (policy, properties["diskAccessId"].as_str()) {
        ("AllowPrivate", None) => Err(fault::missing_parameter(format!("{root}.diskAccessId"))),
        ("AllowPrivate", Some(id)) => reference(id, "diskAccesses", &format!("{root}.diskAccessId")),
        (_, Some(_)) => Err(fault::invalid_parameter(
            &format!("{root}.diskAccessId"),
            "The property 'diskAccessId' can be set only when 'networkAccessPolicy' is 'AllowPrivate'.",
        )),
        _ => Ok(()),
    }
}

fn reference(id: &str, kind: &str, target: &str) -> Result<(), Fault> {
    let lower = id.to_ascii_lowercase();
    let wanted = format!("/providers/microsoft.compute/{}/", kind.to_ascii_lowercase());
    if lower.starts_with("/subscriptions/") && lower.contains(&wanted) {
        Ok(())
    } else {
        Err(fault::invalid_parameter(
            target,
            format!("The value '{id}' of parameter '{target}' is not a resource id of type Microsoft.Compute/{kind}."),
        ))
    }
}

/// A disk that a scenario or a scale set has from the start.
pub(crate) fn existing(id: &str, location: &str, sku: &str, gib: u64, zone: Option<&str>, stamp: &str) -> Value {
    let known = disk_skus::find(sku);
    let performance = known.map(|sku| sku.default_performance(gib));
    let mut doc = json!({"name": path::name_of(id), "id": id, "type": kinds::DISK, "location": location});
    if let Some(zone) = zone {
        doc["zones"] = json!([zone]);
    }
    doc["sku"] = json!({"name": sku, "tier": known.map_or("Standard", |sku| sku.tier)});
    doc["properties"] = json!({
        "creationData": {"createOption": "Empty"},
        "diskSizeGB": gib,
        "diskIOPSReadWrite": performance.map_or(500, |p| p.iops),
        "diskMBpsReadWrite": performance.map_or(60, |p| p.mbps),
        "encryption": {"type": "EncryptionAtRestWithPlatformKey"},
        "networkAccessPolicy": "AllowAll",
        "publicNetworkAccess": "Enabled",
        "timeCreated": stamp,
        "provisioningState": "Succeeded",
        "diskState": "Unattached",
        "diskSizeBytes": gib << 30,
        "uniqueId": crate::derived::guid_of(id),
    });
    if let Some(tier) = known.filter(|sku| sku.name.starts_with("Premium_")).and_then(|sku| sku.tier_name(gib)) {
        doc["properties"]["tier"] = json!(tier);
    }
    doc
}
