//! What lists of the compute provider are read for.

use jiff::Timestamp;
use lazuli_model::{Gib, ProvisioningState};
use lazuli_quota::read::Listed;
use serde_json::Value;

use crate::{
    broker::{
        Fields::{self, All, Only},
        ResourceType,
    },
    metrics,
};

/// Managed disks.
pub(super) static DISKS: ResourceType = ResourceType {
    name: "Microsoft.Compute/disks",
    counted_as: metrics::ResourceType::Disks,
    fields: Only(&[
        ("id", All),
        ("location", All),
        ("zones", All),
        ("managedBy", All),
        ("managedByExtended", All),
        ("tags", All),
        ("sku", Only(&[("name", All)])),
        (
            "properties",
            Only(&[
                ("provisioningState", All),
                ("diskState", All),
                ("timeCreated", All),
                ("diskSizeGB", All),
                ("diskSizeBytes", All),
                ("uniqueId", All),
                ("completionPercent", All),
                ("maxShares", All),
                ("encryption", Only(&[("diskEncryptionSetId", All)])),
                ("diskIOPSReadWrite", All),
                ("diskMBpsReadWrite", All),
                ("creationData", All),
                ("networkAccessPolicy", All),
            ]),
        ),
    ]),
    // What a disk was made from decides whether a node may format it.
    is_complete: |disk| disk.pointer("/properties/creationData/createOption").is_some_and(Value::is_string),
    shown: sized,
};

/// Snapshots of disks. A list says of each what a read of it says; where it is to be adopted, a single read is asked for.
pub(super) static SNAPSHOTS: ResourceType = ResourceType {
    name: "Microsoft.Compute/snapshots",
    counted_as: metrics::ResourceType::Snapshots,
    fields: Only(&[
        ("id", All),
        ("location", All),
        ("tags", All),
        (
            "properties",
            Only(&[
                ("provisioningState", All),
                ("timeCreated", All),
                ("diskSizeGB", All),
                ("diskSizeBytes", All),
                ("uniqueId", All),
                ("incremental", All),
                ("incrementalSnapshotFamilyId", All),
                ("snapshotAccessState", All),
                ("completionPercent", All),
                ("copyCompletionError", Only(&[("errorCode", All)])),
                ("creationData", All),
            ]),
        ),
    ]),
    // What a snapshot was made from decides whose it is.
    is_complete: |snapshot| snapshot.pointer("/properties/creationData/createOption").is_some_and(Value::is_string),
    shown: sized,
};

fn sized(resource: &Value) -> Option<Listed> {
    let size = resource.pointer("/properties/diskSizeGB").and_then(Value::as_u64);
    let size = size.and_then(|gib| u32::try_from(gib).ok()).map(Gib::new);
    let made = resource.pointer("/properties/timeCreated").and_then(Value::as_str);
    let made = made.and_then(|time| time.parse().ok()).map(Timestamp::as_second);
    Some(Listed { state: state(resource)?, size, made })
}

/// Virtual machines that are resources of their own.
pub(super) static MACHINES: ResourceType = ResourceType {
    name: "Microsoft.Compute/virtualMachines",
    counted_as: metrics::ResourceType::VirtualMachines,
    fields: MACHINE_FIELDS,
    is_complete: shows_disks,
    shown: at_rest,
};

/// Instances of uniform scale sets. The list of one set has them as the list of a resource group has VMs, with their
/// storage profiles; only power states come by `$expand`. It need not have their etags, which Azure documents for the
/// answers to a read of an instance and to its update: a write of the whole list of data disks, which takes one for its
/// `If-Match`, is preceded by a single read.
pub(super) static INSTANCES: ResourceType = ResourceType {
    name: "Microsoft.Compute/virtualMachineScaleSets/virtualMachines",
    counted_as: metrics::ResourceType::ScaleSetVirtualMachines,
    fields: MACHINE_FIELDS,
    is_complete: shows_disks,
    shown: at_rest,
};

const MACHINE_FIELDS: Fields = Only(&[
    ("id", All),
    ("location", All),
    ("etag", All),
    ("zones", All),
    ("sku", Only(&[("name", All)])),
    (
        "properties",
        Only(&[
            ("provisioningState", All),
            ("hardwareProfile", Only(&[("vmSize", All)])),
            ("osProfile", Only(&[("computerName", All)])),
            ("networkProfile", Only(&[("networkInterfaces", All)])),
            ("availabilitySet", All),
            ("virtualMachineScaleSet", All),
            (
                "storageProfile",
                Only(&[
                    ("osDisk", Only(&[("vhd", Only(&[("uri", All)]))])),
                    (
                        "dataDisks",
                        Only(&[
                            ("lun", All),
                            ("name", All),
                            ("caching", All),
                            ("toBeDetached", All),
                            ("managedDisk", Only(&[("id", All)])),
                            ("vhd", Only(&[("uri", All)])),
                        ]),
                    ),
                ]),
            ),
        ]),
    ),
]);

/// A machine without its storage profile does not say which LUNs are free.
fn shows_disks(machine: &Value) -> bool {
    let has = |pointer, is: fn(&Value) -> bool| machine.pointer(pointer).is_some_and(is);
    has("/properties/provisioningState", Value::is_string) && has("/properties/storageProfile", Value::is_object)
}

fn at_rest(machine: &Value) -> Option<Listed> {
    Some(Listed { state: state(machine)?, size: None, made: None })
}

fn state(resource: &Value) -> Option<ProvisioningState> {
    let word = resource.pointer("/properties/provisioningState")?.as_str()?;
    Some(ProvisioningState::from_azure(word))
}
