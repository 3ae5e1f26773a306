//! Every parameter of a VolumeSnapshotClass of disks: the table that the parser and the reference share.

use lazuli_model::{
    DataAccessAuthMode,
    disk_spec::PublicNetworkAccess,
    reference::{Effect, ParameterRow},
};

/// The network access policies that a snapshot can have without a disk access resource.
pub(super) const NETWORK_POLICIES: &str = "AllowAll, DenyAll";

const OF_SNAPSHOTTER: &str = "set by external-snapshotter";

/// The parameters, by name. A VolumeSnapshotClass with another one makes no snapshot.
pub const SNAPSHOT_PARAMETERS: &[ParameterRow] = &[
    ParameterRow::used(
        "csi.storage.k8s.io/volumesnapshot/name",
        OF_SNAPSHOTTER,
        "",
        "The VolumeSnapshot, for the tag kubernetes.io-created-for-snapshot-name.",
        "nightly",
    ),
    ParameterRow::used(
        "csi.storage.k8s.io/volumesnapshot/namespace",
        OF_SNAPSHOTTER,
        "",
        "The namespace of the VolumeSnapshot, for the tag kubernetes.io-created-for-snapshot-namespace.",
        "default",
    ),
    ParameterRow::no_effect(
        "csi.storage.k8s.io/volumesnapshotcontent/name",
        OF_SNAPSHOTTER,
        "The VolumeSnapshotContent; no tag names it.",
        "content",
    ),
    ParameterRow::used(
        "dataAccessAuthMode",
        DataAccessAuthMode::NAMES,
        "Azure's",
        "Who may read the snapshot by a shared access signature.",
        "AzureActiveDirectory",
    ),
    ParameterRow::used(
        "incremental",
        "true, false",
        "true; false on Azure Stack Hub",
        "Whether the snapshot holds only what has changed since the one before. Other values than false count as true. \
         PremiumV2_LRS and UltraSSD_LRS have incremental ones alone.",
        "false",
    ),
    ParameterRow::used(
        "instantAccessDurationMinutes",
        "a whole number from 60 to 300",
        "",
        "For how long disks can be made from the snapshot of a PremiumV2_LRS or UltraSSD_LRS disk while its content is \
         still being copied.",
        "60",
    ),
    ParameterRow::used(
        "location",
        "a region",
        "the disk's",
        "Region of the snapshot. In another one than the disk's it is a copy of a local snapshot, which goes when the copy \
         is complete; needs incremental.",
        "westus",
    ),
    ParameterRow::used(
        "networkAccessPolicy",
        NETWORK_POLICIES,
        "Azure's",
        "Who may export the snapshot over the network.",
        "DenyAll",
    ),
    ParameterRow::used(
        "publicNetworkAccess",
        PublicNetworkAccess::NAMES,
        "Azure's",
        "Whether the snapshot can be exported over the public network.",
        "Disabled",
    ),
    ParameterRow::used(
        "resourceGroup",
        "the name of a resource group",
        "the disk's",
        "Resource group of the snapshot; --allowed-resource-groups limits which.",
        "other",
    ),
    ParameterRow::used(
        "subscriptionID",
        "the id of a subscription",
        "the disk's; with resourceGroup the cluster's",
        "Subscription of the snapshot. An incremental one is in the disk's.",
        "00000000-0000-0000-0000-000000000002",
    ),
    ParameterRow::used(
        "tags",
        "key1=value1,key2=value2",
        "",
        "Tags of the snapshot. Those that say what a snapshot was made for are left out with a warning.",
        "team=red",
    ),
    // Without `tags` it changes nothing.
    ParameterRow::used("tagValueDelimiter", "a text", ",", "What separates the pairs of tags.", ";"),
    ParameterRow::no_effect("userAgent", "a text", "Requests carry userAgent of the cloud configuration.", "mine"),
];

/// Whether there is a parameter of this name in lower case.
pub(super) fn is_known(folded: &str) -> bool {
    SNAPSHOT_PARAMETERS.iter().any(|row| row.name.eq_ignore_ascii_case(folded))
}

/// What a class may have, for a refusal.
pub(super) fn allowed() -> String {
    let of_class = |row: &&ParameterRow| row.effect != Effect::Refused && !row.name.starts_with("csi.");
    SNAPSHOT_PARAMETERS.iter().filter(of_class).map(|row| row.name).collect::<Vec<_>>().join(", ")
}
