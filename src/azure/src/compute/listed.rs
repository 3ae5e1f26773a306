//! What lists of the compute provider are read for.

use lazuli_plan::{
    model::{Gib, ProvisioningState},
    read::Listed,
};
use serde_json::Value;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::{
    broker::{
        Fields::{All, Only},
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
    shown: |disk| {
        let size = disk.pointer("/properties/diskSizeGB").and_then(Value::as_u64);
        let size = size.and_then(|gib| u32::try_from(gib).ok()).map(Gib::new);
        let made = disk.pointer("/properties/timeCreated").and_then(Value::as_str);
        let made = made.and_then(|time| OffsetDateTime::parse(time, &Rfc3339).ok()).map(OffsetDateTime::unix_timestamp);
        Some(Listed { state: state(disk)?, size, made })
    },
};

/// Virtual machines that are resources of their own.
pub(super) static MACHINES: ResourceType = ResourceType {
    name: "Microsoft.Compute/virtualMachines",
    counted_as: metrics::ResourceType::VirtualMachines,
    fields: Only(&[
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
                    Only(&[(
                        "dataDisks",
                        Only(&[
                            ("lun", All),
                            ("name", All),
                            ("caching", All),
                            ("toBeDetached", All),
                            ("managedDisk", Only(&[("id", All)])),
                            ("vhd", Only(&[("uri", All)])),
                        ]),
                    )]),
                ),
            ]),
        ),
    ]),
    is_complete: |machine| machine.pointer("/properties/provisioningState").is_some_and(Value::is_string),
    shown: |machine| Some(Listed { state: state(machine)?, size: None, made: None }),
};

fn state(resource: &Value) -> Option<ProvisioningState> {
    let word = resource.pointer("/properties/provisioningState")?.as_str()?;
    Some(ProvisioningState::from_azure(word))
}
