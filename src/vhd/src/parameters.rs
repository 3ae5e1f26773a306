//! Every parameter of a StorageClass that asks for a blob disk: the table that the parser and the reference share.

use lazuli_model::{
    CachingMode,
    reference::{Effect, ParameterRow},
};

const OF_PROVISIONER: &str = "set by external-provisioner";
const NO_NAME_OF_A_CLAIM: &str = "A blob has no tags, and its name follows from that of the volume.";
const SKUS: &str =
    "Standard_LRS, Standard_GRS, Standard_RAGRS, Premium_LRS; on Azure Stack Hub Standard_LRS, Premium_LRS";

/// The parameters, by name. A class of blob disks with another one makes no disk.
pub const PARAMETERS: &[ParameterRow] = &[
    ParameterRow::no_effect(
        "attachDiskInitialDelay",
        "a whole number of milliseconds",
        "Accepted from old classes.",
        "5",
    ),
    ParameterRow::used("cachingMode", CachingMode::NAMES, "ReadOnly", "How the host caches the disk.", "None"),
    ParameterRow::refused(
        "csi-migration",
        "",
        "Kubernetes sets it where it translates a class of the in-tree provisioner, of which it accepts managed disks alone.",
        "true",
    ),
    ParameterRow::no_effect("csi.storage.k8s.io/pv/name", OF_PROVISIONER, NO_NAME_OF_A_CLAIM, "pv-1"),
    ParameterRow::no_effect("csi.storage.k8s.io/pvc/name", OF_PROVISIONER, NO_NAME_OF_A_CLAIM, "claim"),
    ParameterRow::no_effect("csi.storage.k8s.io/pvc/namespace", OF_PROVISIONER, NO_NAME_OF_A_CLAIM, "default"),
    ParameterRow::no_effect("enableAsyncAttach", "anything", "Accepted from old classes.", "true"),
    ParameterRow::used(
        "fsType",
        "ext4, ext3, ext2, xfs, btrfs",
        "ext4",
        "The filesystem that a blank disk gets; it wins over csi.storage.k8s.io/fstype.",
        "xfs",
    ),
    ParameterRow::used(
        "kind",
        "Shared, Dedicated; with storageAccount only Dedicated",
        "",
        "Shared: a VHD in an account of the cluster's pool. Dedicated: a VHD in an account that is made for it and deleted \
         after it. --blob-disks says whether VHDs are made at all; where they are not, the disk is a managed one, and an event \
         warns.",
        "Dedicated",
    ),
    ParameterRow::used(
        "location",
        "a region",
        "that of the cloud configuration",
        "Region of the account. With storageAccount it is ignored: the disk is where the account is.",
        "westus",
    ),
    ParameterRow::no_effect("maxShares", "1", "One machine has a blob disk at a time.", "1"),
    ParameterRow::used(
        "perfProfile",
        "none, basic, advanced",
        "none",
        "Tuning of the device on the node: basic follows the disk's tier, advanced is what device-setting/ says.",
        "basic",
    ),
    ParameterRow::used(
        "resourceGroup",
        "the cluster's",
        "the cluster's",
        "Resource group of the account; another one is refused.",
        "other",
    ),
    ParameterRow::used(
        "skuName",
        SKUS,
        "Standard_LRS",
        "SKU of the account. With storageAccount it must be that of the account.",
        "Premium_LRS",
    ),
    ParameterRow::used(
        "storageAccount",
        "the name of a storage account: 3 to 24 letters and digits",
        "",
        "The account that the VHD is made in. It is never made. Where --blob-disks makes no VHDs, the class is refused.",
        "account",
    ),
    ParameterRow::alias("storageAccountType", "skuName", SKUS, "Premium_LRS"),
    ParameterRow::no_effect("userAgent", "a text", "Accepted from old classes.", "mine"),
    ParameterRow::no_effect("zoned", "anything", "Accepted from the in-tree provisioner.", "true"),
];

/// The row of a key in lower case.
pub(crate) fn row(folded: &str) -> Option<&'static ParameterRow> {
    PARAMETERS.iter().find(|row| row.name.eq_ignore_ascii_case(folded))
}

/// The parameters that count, for a refusal.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    PARAMETERS.iter().filter(|row| row.effect == Effect::Used).map(|row| row.name)
}
