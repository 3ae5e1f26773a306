//! Every parameter of a StorageClass of disks: the table that the parser and the reference share.

use lazuli_model::{
    CachingMode, SkuName,
    disk_spec::{EncryptionType, NetworkAccessPolicy, PublicNetworkAccess},
    reference::{Effect, ParameterRow},
};

const FLAG: &str = "true or false";
const OF_PROVISIONER: &str = "set by external-provisioner";
const MEGABYTES: &str = "a whole number of MB per second that the size and the operations allow";

/// The parameters, by name. A StorageClass with another one makes no disk.
pub const PARAMETERS: &[ParameterRow] = &[
    ParameterRow::no_effect(
        "attachDiskInitialDelay",
        "a whole number of milliseconds",
        "A burst of attaches is collected until it is over, without a fixed delay.",
        "500",
    ),
    ParameterRow::used(
        "cachingMode",
        CachingMode::NAMES,
        "ReadOnly",
        "How the host caches the disk. Only None is allowed for PremiumV2_LRS, UltraSSD_LRS and shared disks, and disks of \
         4 TiB and more are attached with None.",
        "None",
    ),
    ParameterRow::no_effect(
        "csi-migration",
        FLAG,
        "Kubernetes sets it where it translates a class of the in-tree provisioner.",
        "true",
    ),
    ParameterRow::used(
        "csi.storage.k8s.io/pv/name",
        OF_PROVISIONER,
        "",
        "The PersistentVolume, for templates and the tag kubernetes.io-created-for-pv-name.",
        "pv-1",
    ),
    ParameterRow::used(
        "csi.storage.k8s.io/pvc/name",
        OF_PROVISIONER,
        "",
        "The claim, for templates and the tag kubernetes.io-created-for-pvc-name.",
        "claim",
    ),
    ParameterRow::used(
        "csi.storage.k8s.io/pvc/namespace",
        OF_PROVISIONER,
        "",
        "The claim's namespace, for templates and the tag kubernetes.io-created-for-pvc-namespace.",
        "default",
    ),
    ParameterRow::used(
        "diskAccessID",
        "the id of a disk access resource",
        "",
        "Whose private endpoints export the disk; needs networkAccessPolicy AllowPrivate.",
        "nonsense",
    ),
    ParameterRow::used(
        "diskEncryptionSetID",
        "the id of a disk encryption set",
        "",
        "The customer's keys that encrypt the disk.",
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/diskEncryptionSets/keys",
    ),
    ParameterRow::used(
        "diskEncryptionType",
        EncryptionType::NAMES,
        "EncryptionAtRestWithCustomerKey with diskEncryptionSetID",
        "Whose keys encrypt the disk; needs diskEncryptionSetID.",
        "EncryptionAtRestWithCustomerKey",
    ),
    ParameterRow::used(
        "DiskIOPSReadWrite",
        "a whole number of operations per second that the size allows",
        "what the size gives",
        "Operations per second; only of PremiumV2_LRS and UltraSSD_LRS.",
        "500",
    ),
    ParameterRow::used(
        "DiskMBpsReadWrite",
        MEGABYTES,
        "what the size gives",
        "Throughput; only of PremiumV2_LRS and UltraSSD_LRS.",
        "100",
    ),
    ParameterRow::used(
        "diskName",
        "a name, with templates such as ${pvc.metadata.name}",
        "the PersistentVolume's name",
        "The name of the disk in Azure.",
        "mine",
    ),
    ParameterRow::no_effect("enableAsyncAttach", "anything", "Accepted from old classes.", "true"),
    ParameterRow::used(
        "enableBursting",
        FLAG,
        "false",
        "On-demand bursting; only of Premium_LRS and Premium_ZRS above 512 GiB.",
        "true",
    ),
    ParameterRow::used(
        "enablePerformancePlus",
        FLAG,
        "false",
        "Performance plus: the disk has at least 513 GiB. Not of PremiumV2_LRS and UltraSSD_LRS.",
        "true",
    ),
    ParameterRow::used(
        "fsType",
        "ext4, ext3, ext2, xfs, btrfs",
        "ext4",
        "The filesystem that a blank disk gets; it wins over csi.storage.k8s.io/fstype.",
        "fat",
    ),
    ParameterRow::no_effect(
        "kind",
        "Managed",
        "Shared and Dedicated ask for a VHD blob disk, which has a table of its own. Where --blob-disks makes none, the disk is \
         a managed one whatever it says, and another value than Managed warns.",
        "managed",
    ),
    ParameterRow::used(
        "location",
        "a region",
        "the zone's, else that of the cloud configuration",
        "Region of the disk.",
        "westus",
    ),
    ParameterRow::used(
        "LogicalSectorSize",
        "512, 4096",
        "Azure's",
        "Bytes of a sector; only of PremiumV2_LRS and UltraSSD_LRS.",
        "512",
    ),
    ParameterRow::used(
        "maxShares",
        "a whole number from 1 to what type and size allow",
        "1",
        "How many nodes may have the disk at a time, as a raw block volume.",
        "2",
    ),
    ParameterRow::used(
        "networkAccessPolicy",
        NetworkAccessPolicy::NAMES,
        "DenyAll",
        "Who may export the disk over the network; AllowPrivate needs diskAccessID.",
        "AllowAll",
    ),
    ParameterRow::used(
        "perfProfile",
        "none, basic, advanced",
        "none",
        "Tuning of the device on the node: basic follows the disk's tier, advanced is what device-setting/ says.",
        "fast",
    ),
    ParameterRow::used(
        "publicNetworkAccess",
        PublicNetworkAccess::NAMES,
        "Disabled",
        "Whether the disk can be exported over the public network.",
        "Enabled",
    ),
    ParameterRow::used(
        "resourceGroup",
        "the name of a resource group",
        "that of the cloud configuration",
        "Resource group of the disk; --allowed-resource-groups limits which.",
        "other",
    ),
    ParameterRow::used(
        "skuName",
        SkuName::NAMES,
        "StandardSSD_LRS; Standard_LRS on Azure Stack Hub",
        "Type of the disk. Azure Stack Hub has Standard_LRS and Premium_LRS.",
        "Premium_LRS",
    ),
    ParameterRow::refused(
        "storageAccount",
        "",
        "It asks for a VHD blob disk, which has a table of its own, and is refused where --blob-disks makes none.",
        "account",
    ),
    ParameterRow::alias("storageAccountType", "skuName", SkuName::NAMES, "Premium_LRS"),
    ParameterRow::used(
        "subscriptionID",
        "the id of a subscription",
        "that of the cloud configuration",
        "Subscription of the disk; another than the cluster's needs resourceGroup.",
        "other",
    ),
    ParameterRow::used(
        "tags",
        "key1=value1,key2=value2; values with templates",
        "",
        "Tags of the disk. Those that say what a disk was made for are left out with a warning.",
        "team=red",
    ),
    // Without `tags` it changes nothing.
    ParameterRow::used("tagValueDelimiter", "a text", ",", "What separates the pairs of tags.", ";"),
    ParameterRow::no_effect(
        "userAgent",
        "a text",
        "It is kept with the volume; requests carry userAgent of the cloud configuration.",
        "mine",
    ),
    ParameterRow::used(
        "writeAcceleratorEnabled",
        FLAG,
        "false",
        "Attaches with the write accelerator; only of Premium_LRS and Premium_ZRS. Other values than true count as false.",
        "true",
    ),
    ParameterRow::refused("zone", "", "It is of the in-tree provisioner: use allowedTopologies.", "eastus-1"),
    ParameterRow::no_effect("zoned", "anything", "Accepted from the in-tree provisioner.", "true"),
    ParameterRow::refused("zones", "", "It is of the in-tree provisioner: use allowedTopologies.", "eastus-1"),
];

/// Parameters whose names go on with the path of a setting.
pub const DEVICE_SETTING: ParameterRow = ParameterRow::used(
    "device-setting/PATH",
    "one line, as the kernel takes it",
    "",
    "Written to /sys/block/DEVICE/PATH on the node with perfProfile advanced: files below queue/, such as \
     device-setting/queue/scheduler, and queue_depth, queue_ramp_up_period, queue_type, timeout and eh_timeout below device/.",
    "x",
);

/// The row of a key in lower case.
pub(super) fn row(folded: &str) -> Option<&'static ParameterRow> {
    PARAMETERS.iter().find(|row| row.name.eq_ignore_ascii_case(folded))
}

/// What a class may have, for a refusal.
pub(super) fn allowed() -> String {
    let allowed = PARAMETERS.iter().filter(|row| row.effect != Effect::Refused).map(|row| row.name);
    format!("{} and device-setting/<path>", allowed.collect::<Vec<_>>().join(", "))
}
