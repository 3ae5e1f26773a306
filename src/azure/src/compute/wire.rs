//! Azure's JSON and our model of it.
//!
//! Tolerant where Azure varies (letter case of words, unknown fields, absent defaults) and strict where a decision
//! rests on a field: what is needed and not there is an error that names the field, never a guess.

use lazuli_model::{
    ArmId, CachingMode, Completion, DataDisk, DataDiskSource, Disk, DiskId, DiskState, Gib, InstanceView, Lun,
    PowerState, SkuName, SystemDisk, Vm,
    disk_details::DiskDetails,
    disk_spec::{EncryptionType, PerformanceTier, PublicNetworkAccess},
    disk_tags::{MADE_AS, is_made_by_driver, value},
    op::{Attachment, VmWrite, VmWriteMethod},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::ListedDisk;
use crate::decode::{
    DecodeError, at, list, optional_bool, optional_id, optional_number, optional_number32, optional_text, parse_id,
    provisioning_state, readable_tags, stamp, text, texts, wrong,
};

pub(super) fn disk_size(raw: &Value) -> Result<Gib, DecodeError> {
    const SIZE: &str = "properties.diskSizeGB";
    let size = match (optional_number(raw, SIZE)?, optional_number(raw, "properties.diskSizeBytes")?) {
        (Some(gib), _) => u32::try_from(gib).ok().map(Gib::new),
        (None, Some(bytes)) => Gib::holding(bytes),
        (None, None) => None,
    };
    size.ok_or_else(|| wrong(SIZE, "is missing"))
}

fn sku(raw: &Value) -> Result<Option<SkuName>, DecodeError> {
    Ok(optional_text(raw, "sku.name")?.and_then(SkuName::from_azure))
}

fn completion(raw: &Value) -> Option<Completion> {
    at(raw, "properties.completionPercent").and_then(Value::as_f64).map(Completion::from_percent)
}

fn managed_by_extended(raw: &Value) -> Result<Vec<ArmId>, DecodeError> {
    list(raw, "managedByExtended")?
        .iter()
        .map(|id| {
            let id = id.as_str().ok_or_else(|| wrong("managedByExtended", "holds what is no text"))?;
            parse_id(id, "managedByExtended")
        })
        .collect()
}

/// Reads as much of a managed disk as a list of volumes says.
pub(super) fn decode_listed_disk(raw: &Value) -> Result<ListedDisk, DecodeError> {
    let mut holders = managed_by_extended(raw)?;
    holders.extend(optional_id(raw, "managedBy")?);
    holders.sort();
    holders.dedup();
    let (id, size) = (parse_id(text(raw, "id")?, "id")?, disk_size(raw)?);
    let tags = readable_tags(raw)?;
    Ok(ListedDisk {
        id,
        size,
        holders,
        made_by_driver: is_made_by_driver(&tags),
        sku: sku(raw)?,
        completion: completion(raw),
        source: source(raw),
        made_as: value(&tags, MADE_AS).and_then(SkuName::from_azure),
    })
}

/// Reads a managed disk.
///
/// # Errors
/// When a field that decisions rest on is missing or is not what it should be.
pub fn decode_disk(raw: &Value) -> Result<Disk, DecodeError> {
    let tags = readable_tags(raw)?;
    Ok(Disk {
        id: parse_id(text(raw, "id")?, "id")?,
        location: text(raw, "location")?.to_owned(),
        zones: texts(raw, "zones")?,
        sku: sku(raw)?,
        size: disk_size(raw)?,
        state: optional_text(raw, "properties.diskState")?.and_then(DiskState::from_azure),
        provisioning_state: provisioning_state(raw)?,
        managed_by: optional_id(raw, "managedBy")?,
        managed_by_extended: managed_by_extended(raw)?,
        ownership_changed: stamp(raw, "properties.LastOwnershipUpdateTime"),
        max_shares: optional_number32(raw, "properties.maxShares")?.unwrap_or(1),
        disk_encryption_set: optional_id(raw, "properties.encryption.diskEncryptionSetId")?,
        tags,
        iops: optional_number(raw, "properties.diskIOPSReadWrite")?,
        mbps: optional_number(raw, "properties.diskMBpsReadWrite")?,
        logical_sector_size: optional_number32(raw, "properties.creationData.logicalSectorSize")?,
        network_access_policy: optional_text(raw, "properties.networkAccessPolicy")?.map(str::to_owned),
        source: source(raw),
        source_unique_id: optional_text(raw, "properties.creationData.sourceUniqueId")?.map(str::to_owned),
        unique_id: optional_text(raw, "properties.uniqueId")?.map(str::to_owned),
        bytes: optional_number(raw, "properties.diskSizeBytes")?,
        completion: completion(raw),
    })
}

/// Reads what a single read of a managed disk shows besides. A list leaves these members out.
///
/// # Errors
/// As [`decode_disk`].
pub fn decode_disk_details(raw: &Value) -> Result<DiskDetails, DecodeError> {
    let yes = |path: &str| optional_bool(raw, path).map(Option::unwrap_or_default);
    let word = |path: &str| optional_text(raw, path);
    Ok(DiskDetails {
        tier: word("properties.tier")?.and_then(PerformanceTier::from_azure),
        bursting_enabled: yes("properties.burstingEnabled")?,
        performance_plus: yes("properties.creationData.performancePlus")?,
        public_network_access: word("properties.publicNetworkAccess")?.and_then(PublicNetworkAccess::from_azure),
        disk_access: optional_id(raw, "properties.diskAccessId")?,
        encryption_type: word("properties.encryption.type")?.and_then(EncryptionType::from_azure),
    })
}

/// What a disk was made from, in Azure's words. These are as many as there are ways to make a disk: the id of a
/// platform image names no resource group, that of a source may lack its first slash, and a blob is no resource at
/// all. Nothing but "made from something" rests on them, so nothing here is an error.
pub(super) fn source(raw: &Value) -> Option<String> {
    const NAMES: [&str; 8] = [
        "sourceResourceId",
        "imageReference.id",
        "imageReference.sharedGalleryImageId",
        "imageReference.communityGalleryImageId",
        "galleryImageReference.id",
        "galleryImageReference.sharedGalleryImageId",
        "galleryImageReference.communityGalleryImageId",
        "elasticSanResourceId",
    ];
    let data = at(raw, "properties.creationData")?;
    let word = |path: &str| at(data, path).and_then(Value::as_str).filter(|word| !word.is_empty());
    if let Some(name) = NAMES.iter().find_map(|path| word(path)) {
        return Some(name.to_owned());
    }
    // A shared access signature stands in the query.
    let uri = word("sourceUri").and_then(|uri| uri.split('?').next());
    let way =
        word("createOption").filter(|way| !["Empty", "Attach"].iter().any(|empty| empty.eq_ignore_ascii_case(way)));
    uri.or(way).map(str::to_owned)
}

/// Reads a virtual machine, or an instance of a scale set.
///
/// # Errors
/// As [`decode_disk`].
pub fn decode_vm(raw: &Value) -> Result<Vm, DecodeError> {
    const SIZE: &str = "properties.hardwareProfile.vmSize";
    // An instance of a uniform scale set may tell its size as a SKU only.
    let size = optional_text(raw, SIZE)?.or(optional_text(raw, "sku.name")?);
    Ok(Vm {
        id: parse_id(text(raw, "id")?, "id")?,
        location: text(raw, "location")?.to_owned(),
        size: size.ok_or_else(|| wrong(SIZE, "is missing"))?.to_owned(),
        zone: texts(raw, "zones")?.into_iter().next(),
        computer_name: optional_text(raw, "properties.osProfile.computerName")?.map(str::to_owned),
        provisioning_state: provisioning_state(raw)?,
        etag: optional_text(raw, "etag")?.map(str::to_owned),
        system_disk: if at(raw, "properties.storageProfile.osDisk.vhd").is_some_and(Value::is_object) {
            SystemDisk::Blob
        } else {
            SystemDisk::Managed
        },
        data_disks: data_disks(raw)?.iter().map(decode_data_disk).collect::<Result<_, _>>()?,
    })
}

const DATA_DISKS: &str = "properties.storageProfile.dataDisks";

fn data_disks(raw: &Value) -> Result<&[Value], DecodeError> {
    list(raw, DATA_DISKS)
}

fn decode_data_disk(raw: &Value) -> Result<DataDisk, DecodeError> {
    let field = |name: &str| format!("{DATA_DISKS}[].{name}");
    let named = |error: DecodeError| DecodeError { field: field(&error.field), ..error };
    let lun = at(raw, "lun")
        .and_then(Value::as_i64)
        .and_then(|lun| Lun::try_from(lun).ok())
        .ok_or_else(|| wrong(&field("lun"), "is no LUN"))?;
    let managed = optional_id(raw, "managedDisk.id").map_err(named)?;
    let source = match (managed, optional_text(raw, "vhd.uri").map_err(named)?) {
        (Some(id), _) => DataDiskSource::Disk(id.into()),
        // An address that is not understood keeps its slot.
        (None, Some(uri)) => match uri.parse() {
            Ok(uri) => DataDiskSource::Disk(DiskId::Blob(uri)),
            Err(_) => DataDiskSource::Other(uri.to_owned()),
        },
        (None, None) => {
            DataDiskSource::Other(optional_text(raw, "name").map_err(named)?.unwrap_or_default().to_owned())
        }
    };
    let caching = match optional_text(raw, "caching").map_err(named)? {
        None => CachingMode::None,
        Some(word) => CachingMode::from_azure(word)
            .ok_or_else(|| wrong(&field("caching"), format!("is {word:?}, which is not known")))?,
    };
    Ok(DataDisk {
        lun,
        source,
        caching,
        to_be_detached: at(raw, "toBeDetached").and_then(Value::as_bool).unwrap_or(false),
    })
}

/// The `detachOption` of a disk that leaves without waiting for the machine's host (source: the compute API, 2020-12-01
/// and later).
const FORCE: &str = "ForceDetach";

/// What an instance view says: `properties` of a VM that was read with `$expand=instanceView`.
///
/// # Errors
/// When the VM's provisioning state cannot be read.
pub fn decode_instance_view(raw: &Value) -> Result<InstanceView, DecodeError> {
    let provisioning_state = decode_vm(raw)?.provisioning_state;
    let statuses = at(raw, "properties.instanceView.statuses").and_then(Value::as_array);
    let codes = statuses.into_iter().flatten().filter_map(|status| status["code"].as_str());
    let mut powers = codes.filter_map(PowerState::of_code);
    let first = powers.next();
    // A view that contradicts itself proves nothing.
    let power = if powers.any(|other| Some(other) != first) { Some(PowerState::Other) } else { first };
    Ok(InstanceView { provisioning_state, power })
}

/// The body of `attachDetachDataDisks` (source: the compute API, 2024-03-01 and later).
pub fn encode_action(write: &VmWrite) -> Value {
    let mut body = Map::new();
    if !write.attach.is_empty() {
        let disks = write.attach.iter().map(|attachment| {
            let mut element = json!({
                "diskId": attachment.disk.as_str(),
                "lun": attachment.lun.get(),
                "caching": attachment.caching.as_str(),
            });
            if let Some(set) = &attachment.disk_encryption_set {
                element["diskEncryptionSet"] = json!({ "id": set.as_str() });
            }
            if attachment.write_accelerator {
                element["writeAcceleratorEnabled"] = json!(true);
            }
            element
        });
        body.insert("dataDisksToAttach".to_owned(), disks.collect());
    }
    if !write.detach.is_empty() {
        let disks = write.detach.iter().map(|disk| {
            let mut element = json!({ "diskId": disk.as_str() });
            if write.force.contains(disk) {
                element["detachOption"] = json!(FORCE);
            }
            element
        });
        body.insert("dataDisksToDetach".to_owned(), disks.collect());
    }
    Value::Object(body)
}

/// The list of data disks that a write of the whole list sends: every element that was read, untouched but for
/// `toBeDetached`, and the new ones. What this program does not know of an element survives.
///
/// # Errors
/// When the list that was read is no list.
pub fn edit_data_disks(raw: &Value, write: &VmWrite, method: VmWriteMethod) -> Result<Vec<Value>, DecodeError> {
    let mut elements = Vec::new();
    for element in data_disks(raw)? {
        let leaving = named_disk(element)?.filter(|disk| write.detach.contains(disk));
        let mut element = element.clone();
        match (leaving, method) {
            (Some(_), VmWriteMethod::WholeListByOmission) => continue,
            (Some(disk), _) => {
                element["toBeDetached"] = json!(true);
                if write.force.contains(&disk) {
                    element["detachOption"] = json!(FORCE);
                }
            }
            (None, _) => {}
        }
        elements.push(element);
    }
    elements.extend(write.attach.iter().map(encode_data_disk));
    Ok(elements)
}

/// The disk that an element of the list names, as far as it is understood.
fn named_disk(element: &Value) -> Result<Option<DiskId>, DecodeError> {
    if let Some(id) = optional_id(element, "managedDisk.id")? {
        return Ok(Some(id.into()));
    }
    Ok(optional_text(element, "vhd.uri")?.and_then(|uri| uri.parse().ok()).map(DiskId::Blob))
}

fn encode_data_disk(attachment: &Attachment) -> Value {
    let mut element = json!({
        "name": attachment.disk.name(),
        "lun": attachment.lun.get(),
        "caching": attachment.caching.as_str(),
        "createOption": "Attach",
    });
    match &attachment.disk {
        DiskId::Managed(id) => {
            let mut managed = json!({ "id": id.as_str() });
            if let Some(set) = &attachment.disk_encryption_set {
                managed["diskEncryptionSet"] = json!({ "id": set.as_str() });
            }
            element["managedDisk"] = managed;
        }
        DiskId::Blob(uri) => element["vhd"] = json!({ "uri": uri.as_str() }),
    }
    // Left out when off, as it is by default.
    if attachment.write_accelerator {
        element["writeAcceleratorEnabled"] = json!(true);
    }
    element
}

/// As much of a resource SKU as is used: the list of them is megabytes.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Sku {
    resource_type: Option<String>,
    name: Option<String>,
    capabilities: Option<Vec<Capability>>,
}

#[derive(Debug, Deserialize)]
struct Capability {
    name: Option<String>,
    value: Option<String>,
}

impl Sku {
    /// The VM size and how many data disks it takes; nothing of anything else.
    pub(super) fn vm_size(self) -> Option<(String, u8)> {
        if !self.resource_type?.eq_ignore_ascii_case("virtualMachines") {
            return None;
        }
        let capabilities = self.capabilities.unwrap_or_default();
        let is_it = |name: &str| name.eq_ignore_ascii_case("MaxDataDiskCount");
        let most = capabilities.iter().find(|capability| capability.name.as_deref().is_some_and(is_it))?;
        Some((self.name?, most.value.as_deref()?.trim().parse().ok()?))
    }
}
