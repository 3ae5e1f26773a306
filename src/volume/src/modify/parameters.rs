//! Every parameter of a VolumeAttributesClass of disks: the table that the parser and the reference share.

use lazuli_model::{
    SkuName,
    disk_spec::{NetworkAccessPolicy, PerformanceTier, PublicNetworkAccess},
    reference::ParameterRow,
};

/// The parameters that a VolumeAttributesClass changes, by name. One of a StorageClass beside them is taken where the disk
/// has its value already.
pub const ATTRIBUTE_PARAMETERS: &[ParameterRow] = &[
    ParameterRow::used(
        "diskAccessID",
        "the id of a disk access resource",
        "as it is",
        "Whose private endpoints export the disk; needs networkAccessPolicy AllowPrivate.",
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/diskAccesses/door",
    ),
    ParameterRow::used(
        "DiskIOPSReadWrite",
        "a whole number of operations per second that the size allows",
        "as it is",
        "Operations per second; only of PremiumV2_LRS and UltraSSD_LRS.",
        "500",
    ),
    ParameterRow::used(
        "DiskMBpsReadWrite",
        "a whole number of MB per second that the size and the operations allow",
        "as it is",
        "Throughput; only of PremiumV2_LRS and UltraSSD_LRS.",
        "100",
    ),
    ParameterRow::used(
        "enableBursting",
        "true, false",
        "as it is",
        "On-demand bursting; only of Premium_LRS and Premium_ZRS above 512 GiB.",
        "true",
    ),
    ParameterRow::used(
        "networkAccessPolicy",
        NetworkAccessPolicy::NAMES,
        "as it is",
        "Who may export the disk over the network; AllowPrivate needs diskAccessID.",
        "AllowAll",
    ),
    ParameterRow::used(
        "publicNetworkAccess",
        PublicNetworkAccess::NAMES,
        "as it is",
        "Whether the disk can be exported over the public network.",
        "Enabled",
    ),
    ParameterRow::used(
        "skuName",
        SkuName::NAMES,
        "as it is",
        "Type of the disk. Azure changes it only while the disk is detached, and twice a day; PremiumV2_LRS and UltraSSD_LRS stay \
         what they are, and a disk in a zone gets no ZRS.",
        "StandardSSD_LRS",
    ),
    ParameterRow::alias("storageAccountType", "skuName", SkuName::NAMES, "StandardSSD_LRS"),
    ParameterRow::used(
        "tags",
        "key1=value1,key2=value2; values with templates",
        "as they are",
        "Tags that the disk gets besides those that it has. Those that say what a disk was made for are left out with a \
         warning.",
        "team=blue",
    ),
    // Without `tags` it changes nothing.
    ParameterRow::used("tagValueDelimiter", "a text", ",", "What separates the pairs of tags.", ";"),
    ParameterRow::used(
        "tier",
        PerformanceTier::NAMES,
        "as it is",
        "Performance tier; only of Premium_LRS and Premium_ZRS, the disk's own or a higher one.",
        "P40",
    ),
];

/// Whether a key in lower case is one that a VolumeAttributesClass changes.
pub(super) fn is_attribute(folded: &str) -> bool {
    ATTRIBUTE_PARAMETERS.iter().any(|row| row.name.eq_ignore_ascii_case(folded))
}

/// What a class may change, for a refusal.
pub(super) fn allowed() -> String {
    ATTRIBUTE_PARAMETERS.iter().map(|row| row.name).collect::<Vec<_>>().join(", ")
}
