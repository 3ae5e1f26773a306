//! The reasons of events: name, action, how long each must last, and what a person can do about it.

mod meaning;

use std::time::Duration;

pub use meaning::ObjectKind;

/// How Kubernetes shows an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Something was set right.
    Normal,
    /// Something needs a person.
    Warning,
}

impl Severity {
    /// The `type` of the event.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// Why an event is written. Operators select events by these names, so a name that was published does not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the row of each reason says what it means")]
pub enum Reason {
    AuthorizationFailed,
    LinkedAuthorizationFailed,
    CredentialRefused,
    ScopeNotFound,
    ResourceLocked,
    QuotaExceeded,
    Throttled,
    VMSizeFull,
    ZoneMismatch,
    ExpansionNeedsDetach,
    ModificationRefused,
    AttributeIgnored,
    SnapshotLimitReached,
    SnapshotFailed,
    OperationsLimited,
    InstantAccessLimits,
    SKUMigrationStarted,
    SKUMigrationProgress,
    SKUMigrationCompleted,
    SKUMigrationTimeout,
    StaleAttachmentDetached,
    StaleAttachmentKept,
    AttachmentNotAllowed,
    DataDiskVanished,
    ForceDetached,
    ShareKept,
    FormatRefused,
    FilesystemDamaged,
    DuplicateFilesystem,
    IdentityUnconfirmed,
    EnsuringLoadBalancer,
    EnsuredLoadBalancer,
    UpdatedLoadBalancer,
    DeletingLoadBalancer,
    DeletedLoadBalancer,
    SyncLoadBalancerFailed,
    UpdateLoadBalancerFailed,
    UnAvailableLoadBalancer,
    InvalidService,
    PlanHeld,
    PortConflict,
    LimitExceeded,
    NotFound,
    ForeignOwner,
    WouldReplaceAddress,
    NoPlacement,
    Mismatch,
    LastFrontend,
    SharedAddress,
    UnknownAnnotation,
    IgnoredValue,
    KeptValue,
    NoEffect,
    ConflictConfiguration,
    ScaleSetHeld,
    Synced,
    NodeNotInitialized,
    NodeStateUnknown,
    NodeOutOfService,
    NodeDeletionSlowed,
    DeletingNode,
    FailedToCreateRoute,
    RouteKept,
    CidrNotAvailable,
    AccountKeyUnavailable,
    AccountKeyDenied,
    AccountKeyRefused,
    AccountKeyMissing,
    FileServerUnreachable,
    FileShareNotFound,
    FileMountDead,
}

/// What stands behind a reason.
struct Row {
    name: &'static str,
    /// What was being done: the event's `action`.
    action: &'static str,
    /// How long it must last before an event is written.
    hold_off: Duration,
    advice: &'static str,
}

const AT_ONCE: Duration = Duration::ZERO;
/// The action of events about Services.
const SYNC: &str = "SyncLoadBalancer";
/// Those of events about Nodes.
const INITIALIZE: &str = "InitializeNode";
const CHECK: &str = "CheckNode";
/// That of events about changed attributes of disks and shares.
const MODIFY: &str = "ModifyVolume";
/// That of events about disks that get another type.
const CONVERT: &str = "ConvertDisk";
/// That of events about file shares on nodes.
const MOUNT: &str = "MountShare";

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 71] = [
        Self::AuthorizationFailed,
        Self::LinkedAuthorizationFailed,
        Self::CredentialRefused,
        Self::ScopeNotFound,
        Self::ResourceLocked,
        Self::QuotaExceeded,
        Self::Throttled,
        Self::VMSizeFull,
        Self::ZoneMismatch,
        Self::ExpansionNeedsDetach,
        Self::ModificationRefused,
        Self::AttributeIgnored,
        Self::SnapshotLimitReached,
        Self::SnapshotFailed,
        Self::OperationsLimited,
        Self::InstantAccessLimits,
        Self::SKUMigrationStarted,
        Self::SKUMigrationProgress,
        Self::SKUMigrationCompleted,
        Self::SKUMigrationTimeout,
        Self::StaleAttachmentDetached,
        Self::StaleAttachmentKept,
        Self::AttachmentNotAllowed,
        Self::DataDiskVanished,
        Self::ForceDetached,
        Self::ShareKept,
        Self::FormatRefused,
        Self::FilesystemDamaged,
        Self::DuplicateFilesystem,
        Self::IdentityUnconfirmed,
        Self::EnsuringLoadBalancer,
        Self::EnsuredLoadBalancer,
        Self::UpdatedLoadBalancer,
        Self::DeletingLoadBalancer,
        Self::DeletedLoadBalancer,
        Self::SyncLoadBalancerFailed,
        Self::UpdateLoadBalancerFailed,
        Self::UnAvailableLoadBalancer,
        Self::InvalidService,
        Self::PlanHeld,
        Self::PortConflict,
        Self::LimitExceeded,
        Self::NotFound,
        Self::ForeignOwner,
        Self::WouldReplaceAddress,
        Self::NoPlacement,
        Self::Mismatch,
        Self::LastFrontend,
        Self::SharedAddress,
        Self::UnknownAnnotation,
        Self::IgnoredValue,
        Self::KeptValue,
        Self::NoEffect,
        Self::ConflictConfiguration,
        Self::ScaleSetHeld,
        Self::Synced,
        Self::NodeNotInitialized,
        Self::NodeStateUnknown,
        Self::NodeOutOfService,
        Self::NodeDeletionSlowed,
        Self::DeletingNode,
        Self::FailedToCreateRoute,
        Self::RouteKept,
        Self::CidrNotAvailable,
        Self::AccountKeyUnavailable,
        Self::AccountKeyDenied,
        Self::AccountKeyRefused,
        Self::AccountKeyMissing,
        Self::FileServerUnreachable,
        Self::FileShareNotFound,
        Self::FileMountDead,
    ];

    fn row(self) -> Row {
        let (name, action, hold_off, advice) = match self {
            Self::AuthorizationFailed => (
                "AuthorizationFailed",
                "CallAzure",
                AT_ONCE,
                "Assign the role of deploy/azure/role.json, for Services and Nodes that of role-cloud-controllers.json beside \
                 it, to the controller's identity on the resource group; a new assignment takes minutes to count.",
            ),
            Self::LinkedAuthorizationFailed => (
                "LinkedAuthorizationFailed",
                "CallAzure",
                AT_ONCE,
                "Give the controller's identity the right to read the disk encryption set, disk access or other \
                 resource that the disk refers to.",
            ),
            Self::CredentialRefused => (
                "CredentialRefused",
                "CallAzure",
                AT_ONCE,
                "Renew the credential in the cloud configuration; the controller reads it again within a minute.",
            ),
            Self::ScopeNotFound => (
                "ScopeNotFound",
                "CallAzure",
                AT_ONCE,
                "Correct resourceGroup and subscriptionID in the StorageClass, of a VolumeSnapshot in its \
                 VolumeSnapshotClass, or in the cloud configuration, or make the resource group.",
            ),
            Self::ResourceLocked => (
                "ResourceLocked",
                "CallAzure",
                AT_ONCE,
                "Remove the management lock from the resource or its resource group.",
            ),
            Self::QuotaExceeded => (
                "QuotaExceeded",
                "ProvisionDisk",
                AT_ONCE,
                "Raise the quota of the subscription in this region, or choose another SKU, zone or size.",
            ),
            Self::Throttled => (
                "Throttled",
                "CallAzure",
                Duration::from_secs(120),
                "The calls wait and are repeated. If it lasts, find the other client that uses up the request quota of \
                 the subscription, or give this driver an identity of its own.",
            ),
            Self::VMSizeFull => (
                "VMSizeFull",
                "AttachDisk",
                AT_ONCE,
                "Move pods with volumes to another node, use a larger VM size, or detach disks that Kubernetes does not \
                 manage; node.reservedSlots of the chart keeps slots free for those.",
            ),
            Self::ZoneMismatch => (
                "ZoneMismatch",
                "AttachDisk",
                AT_ONCE,
                "Use a StorageClass with volumeBindingMode WaitForFirstConsumer, or schedule the pod to a node in the \
                 zone of the disk.",
            ),
            Self::ExpansionNeedsDetach => (
                "ExpansionNeedsDetach",
                "ExpandDisk",
                AT_ONCE,
                "Stop the pods that use the volume, wait until the claim has grown, and start them again.",
            ),
            Self::ModificationRefused => (
                "ModificationRefused",
                MODIFY,
                AT_ONCE,
                "The change is tried again. Azure changes the type of a disk only while it is detached and twice a day, and \
                 its performance four times a day; stop the pods that use the volume, or name the former class again.",
            ),
            Self::AttributeIgnored => (
                "AttributeIgnored",
                MODIFY,
                AT_ONCE,
                "Remove the parameter from the VolumeAttributesClass; a new volume of a StorageClass with it has it.",
            ),
            Self::SnapshotLimitReached => (
                "SnapshotLimitReached",
                "CreateSnapshot",
                AT_ONCE,
                "Delete VolumeSnapshots of the volume that are needed no more.",
            ),
            Self::SnapshotFailed => (
                "SnapshotFailed",
                "CreateSnapshot",
                AT_ONCE,
                "Delete the VolumeSnapshot, which deletes what there is of it in Azure, and make another one.",
            ),
            Self::OperationsLimited => (
                "OperationsLimited",
                "CallAzure",
                AT_ONCE,
                "Nothing is to be done: it is tried again until Azure has finished the others.",
            ),
            Self::InstantAccessLimits => (
                "InstantAccessLimits",
                "ProvisionDisk",
                AT_ONCE,
                "Wait until instant access has ended, or claim a volume of the snapshot's size with a class of \
                 PremiumV2_LRS or UltraSSD_LRS, and make that claim larger later.",
            ),
            // Source of the names of these four: the Go driver.
            Self::SKUMigrationStarted => ("SKUMigrationStarted", CONVERT, AT_ONCE, "Nothing is to be done."),
            Self::SKUMigrationProgress => ("SKUMigrationProgress", CONVERT, AT_ONCE, "Nothing is to be done."),
            Self::SKUMigrationCompleted => ("SKUMigrationCompleted", CONVERT, AT_ONCE, "Nothing is to be done."),
            Self::SKUMigrationTimeout => (
                "SKUMigrationTimeout",
                CONVERT,
                AT_ONCE,
                "Azure goes on with it, and the volume can be used. If the percentage stays the same, ask Azure's support.",
            ),
            Self::StaleAttachmentDetached => {
                ("StaleAttachmentDetached", "DetachDisk", AT_ONCE, "Nothing is to be done.")
            }
            Self::StaleAttachmentKept => (
                "StaleAttachmentKept",
                "DetachDisk",
                AT_ONCE,
                "If no process on the node uses the disk, detach it in Azure. If the machine is stopped for good, taint \
                 the node with node.kubernetes.io/out-of-service=nodeshutdown:NoExecute.",
            ),
            Self::AttachmentNotAllowed => (
                "AttachmentNotAllowed",
                "AttachDisk",
                AT_ONCE,
                "Once it is detached it is not attached again; change what the note names before the Pod moves.",
            ),
            Self::DataDiskVanished => (
                "DataDiskVanished",
                "AttachDisk",
                AT_ONCE,
                "If no person has detached it on purpose, attach it again in Azure at the same LUN: a write that overlapped with \
                 another program's has removed it.",
            ),
            Self::ForceDetached => (
                "ForceDetached",
                "DetachDisk",
                AT_ONCE,
                "Check the file system's data: writes that the stopped machine had not flushed are lost.",
            ),
            Self::ShareKept => (
                "ShareKept",
                "DeleteShare",
                AT_ONCE,
                "The PersistentVolume of the deleted claim goes, and the share stays in its storage account with its data.",
            ),
            Self::FormatRefused => (
                "FormatRefused",
                "StageVolume",
                AT_ONCE,
                "Look at the disk from another machine. If its content is not needed, delete the claim and make a new \
                 one.",
            ),
            Self::FilesystemDamaged => (
                "FilesystemDamaged",
                "StageVolume",
                AT_ONCE,
                "Take a snapshot of the disk, then repair the file system with fsck on another machine.",
            ),
            Self::DuplicateFilesystem => (
                "DuplicateFilesystem",
                "StageVolume",
                AT_ONCE,
                "Use another node, or give the copy its own id with btrfstune -m.",
            ),
            Self::IdentityUnconfirmed => (
                "IdentityUnconfirmed",
                "StageVolume",
                Duration::from_secs(60),
                "See that http://169.254.169.254 can be reached from the node, and compare the VM's data disks in Azure \
                 with those of the node: in /dev/disk/azure/scsi1 or, by NVMe, in /sys/block/nvme*/nsid. There a LUN is \
                 the id less 2 where the operating system's disk is namespace 1, else less --nvme-lun-offset. lazuli doctor \
                 names the Nodes where neither is known.",
            ),
            // Source of the names of these eight: the service controller of Kubernetes' cloud-provider library.
            Self::EnsuringLoadBalancer => ("EnsuringLoadBalancer", SYNC, AT_ONCE, "Nothing is to be done."),
            Self::EnsuredLoadBalancer => ("EnsuredLoadBalancer", SYNC, AT_ONCE, "Nothing is to be done."),
            Self::UpdatedLoadBalancer => ("UpdatedLoadBalancer", SYNC, AT_ONCE, "Nothing is to be done."),
            Self::DeletingLoadBalancer => ("DeletingLoadBalancer", SYNC, AT_ONCE, "Nothing is to be done."),
            Self::DeletedLoadBalancer => ("DeletedLoadBalancer", SYNC, AT_ONCE, "Nothing is to be done."),
            Self::SyncLoadBalancerFailed => (
                "SyncLoadBalancerFailed",
                SYNC,
                AT_ONCE,
                "The controller tries again by itself; its log has Azure's whole answer.",
            ),
            Self::UpdateLoadBalancerFailed => (
                "UpdateLoadBalancerFailed",
                SYNC,
                AT_ONCE,
                "The Service is served by the backends that it had. The controller tries again by itself; its log has Azure's \
                 whole answer.",
            ),
            Self::UnAvailableLoadBalancer => (
                "UnAvailableLoadBalancer",
                SYNC,
                AT_ONCE,
                "Add a Node, remove the label node.kubernetes.io/exclude-from-external-load-balancers from one, or find out why \
                 none has spec.providerID.",
            ),
            Self::InvalidService => {
                ("InvalidService", SYNC, AT_ONCE, "Correct the Service; until then Azure keeps what it had before.")
            }
            Self::PlanHeld => (
                "PlanHeld",
                SYNC,
                AT_ONCE,
                "See the changes with lazuli cloud-controllers --dry-run, then start the controller with --accept-plan and the \
                 hash that it prints.",
            ),
            Self::PortConflict => {
                ("PortConflict", SYNC, AT_ONCE, "Use another port, or remove the address from one of both Services.")
            }
            Self::LimitExceeded => {
                ("LimitExceeded", SYNC, AT_ONCE, "Remove Services, or configure another load balancer.")
            }
            Self::NotFound => ("NotFound", SYNC, AT_ONCE, "Make what the Service names, or correct the Service."),
            Self::ForeignOwner => {
                ("ForeignOwner", SYNC, AT_ONCE, "Name another object in the Service, or release that one.")
            }
            Self::WouldReplaceAddress => (
                "WouldReplaceAddress",
                SYNC,
                AT_ONCE,
                "Undo the change of the Service, or delete and create the Service to get another address.",
            ),
            Self::NoPlacement => {
                ("NoPlacement", SYNC, AT_ONCE, "Correct the Service or the load balancers of the cloud configuration.")
            }
            Self::Mismatch => ("Mismatch", SYNC, AT_ONCE, "Name an object of the kind that the Service needs."),
            Self::LastFrontend => (
                "LastFrontend",
                SYNC,
                AT_ONCE,
                "It goes when another Service gets a frontend there. To free its address before, delete the load balancer.",
            ),
            Self::SharedAddress => (
                "SharedAddress",
                SYNC,
                AT_ONCE,
                "If that is meant, let the owner of the address name the other namespace in its Service's annotation \
                 lazuli.azure/share-with; otherwise use another address.",
            ),
            Self::UnknownAnnotation => {
                ("UnknownAnnotation", SYNC, AT_ONCE, "Correct the annotation's key, or remove the annotation.")
            }
            Self::IgnoredValue => ("IgnoredValue", SYNC, AT_ONCE, "Correct the value."),
            Self::KeptValue => {
                ("KeptValue", SYNC, AT_ONCE, "It stays as long as the Service has it; remove it when nothing needs it.")
            }
            Self::NoEffect => ("NoEffect", SYNC, AT_ONCE, "Remove the setting, or change what makes it void."),
            Self::ConflictConfiguration => ("ConflictConfiguration", SYNC, AT_ONCE, "Keep one of both settings."),
            Self::ScaleSetHeld => (
                "ScaleSetHeld",
                SYNC,
                AT_ONCE,
                "Upgrade the instances that lag, or set the scale set's upgrade policy to Manual. Instances that are there \
                 are served meanwhile.",
            ),
            // Source of the names Synced, DeletingNode and FailedToCreateRoute: the controllers of Kubernetes'
            // cloud-provider library.
            Self::Synced => ("Synced", INITIALIZE, AT_ONCE, "Nothing is to be done."),
            Self::NodeNotInitialized => (
                "NodeNotInitialized",
                INITIALIZE,
                AT_ONCE,
                "It is tried again. Give the VM the Node's name, or the Node the label \
                 kubernetes.azure.com/resource-group of the VM's group; where no VM of Azure is meant, label the Node \
                 kubernetes.azure.com/managed=false.",
            ),
            Self::NodeStateUnknown => (
                "NodeStateUnknown",
                CHECK,
                AT_ONCE,
                "The Node stays as it is. If its VM is deleted for good, run kubectl delete node for it; if it is stopped \
                 for good, taint the Node with node.kubernetes.io/out-of-service=nodeshutdown:NoExecute.",
            ),
            Self::NodeOutOfService => (
                "NodeOutOfService",
                CHECK,
                AT_ONCE,
                "Start the VM to use the Node again: its taints go when it is Ready.",
            ),
            Self::NodeDeletionSlowed => (
                "NodeDeletionSlowed",
                CHECK,
                AT_ONCE,
                "See whether the VMs are really gone or stopped: check the rights of the controllers' identity and the \
                 state of the region.",
            ),
            Self::DeletingNode => ("DeletingNode", CHECK, AT_ONCE, "The Node is deleted; nothing is to be done."),
            Self::FailedToCreateRoute => (
                "FailedToCreateRoute",
                "CreateRoute",
                AT_ONCE,
                "Correct what the note names; the route is tried again within five minutes.",
            ),
            Self::RouteKept => (
                "RouteKept",
                "CreateRoute",
                AT_ONCE,
                "See whether the Node may have this range, which takes the traffic of all its addresses. If not, delete \
                 the Node: its route goes with it.",
            ),
            // Source of the name: the node IPAM controller of Kubernetes.
            Self::CidrNotAvailable => (
                "CIDRNotAvailable",
                CHECK,
                AT_ONCE,
                "Start kube-controller-manager with --allocate-node-cidrs=true and --cluster-cidr, and see its log; where \
                 pods need no such range, give lazuli cloud-controllers --allocate-node-cidrs=false.",
            ),
            Self::AccountKeyUnavailable => (
                "AccountKeyUnavailable",
                MOUNT,
                Duration::from_secs(15),
                "See that the controller's Pods run and that nodes reach their port for keys. The mount is tried again; shares \
                 that are mounted go on working.",
            ),
            Self::AccountKeyDenied => (
                "AccountKeyDenied",
                MOUNT,
                AT_ONCE,
                "A node gets the keys of volumes that Pods on it use. See that the Pod is bound to this node and its claim to the \
                 volume, and that the controller knows the ServiceAccount of the node plugin.",
            ),
            Self::AccountKeyRefused => (
                "AccountKeyRefused",
                MOUNT,
                AT_ONCE,
                "Write the account's current key into the Secret that the volume names, allow the node's network in the \
                 firewall of the storage account, or allow access by its keys.",
            ),
            Self::AccountKeyMissing => (
                "AccountKeyMissing",
                MOUNT,
                AT_ONCE,
                "Create the Secret that the volume names with azurestorageaccountname and azurestorageaccountkey, or correct \
                 the volume.",
            ),
            Self::FileServerUnreachable => (
                "FileServerUnreachable",
                MOUNT,
                Duration::from_secs(15),
                "See that the node resolves the server's name and reaches its TCP port 445: network policies, firewalls, \
                 routes, private endpoints. The mount is tried again.",
            ),
            Self::FileShareNotFound => (
                "FileShareNotFound",
                MOUNT,
                AT_ONCE,
                "Restore the share in Azure if it was deleted, make the folder, or set createFolderIfNotExist.",
            ),
            Self::FileMountDead => (
                "FileMountDead",
                MOUNT,
                AT_ONCE,
                "New Pods get a new mount. Restart those that were running on this node with the volume if they cannot use \
                 their files.",
            ),
        };
        Row { name, action, hold_off, advice }
    }

    /// The event's `reason`.
    pub fn as_str(self) -> &'static str {
        self.row().name
    }

    /// The event's `action`.
    pub fn action(self) -> &'static str {
        self.row().action
    }

    /// The event's `type`.
    pub fn severity(self) -> Severity {
        match self {
            Self::StaleAttachmentDetached
            | Self::EnsuringLoadBalancer
            | Self::SKUMigrationStarted
            | Self::SKUMigrationProgress
            | Self::SKUMigrationCompleted
            | Self::EnsuredLoadBalancer
            | Self::UpdatedLoadBalancer
            | Self::DeletingLoadBalancer
            | Self::DeletedLoadBalancer
            | Self::Synced
            | Self::DeletingNode => Severity::Normal,
            _ => Severity::Warning,
        }
    }

    /// Whether the reason lies in the volume, and not in the VM that it is to be attached to.
    pub fn lies_in_the_volume(self) -> bool {
        matches!(self, Self::LinkedAuthorizationFailed | Self::QuotaExceeded | Self::ZoneMismatch | Self::ScopeNotFound)
    }

    /// How long the reason must last before an event is written.
    pub fn hold_off(self) -> Duration {
        self.row().hold_off
    }

    /// The reason of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == name)
    }

    /// What a person can do about it on a Service.
    pub fn advice_for_services(self) -> &'static str {
        match self {
            Self::AuthorizationFailed => {
                "Assign the role of deploy/azure/role-cloud-controllers.json to the controller's identity on the resource \
                 groups of the cluster and of its network; a new assignment takes minutes to count."
            }
            Self::LinkedAuthorizationFailed => {
                "Give the controller's identity the right to join the subnet, public IP or public IP prefix that the \
                 Service names."
            }
            Self::ScopeNotFound => {
                "Correct the resource group in the Service's annotation or in the cloud configuration, or make the \
                 resource group."
            }
            Self::QuotaExceeded => {
                "Raise the quota of the subscription in this region, or delete Services and public IPs that nothing uses."
            }
            Self::Throttled => {
                "The calls wait and are repeated. If it lasts, find the other client that uses up the request quota of \
                 the subscription, or give this controller an identity of its own."
            }
            _ => self.advice(),
        }
    }

    /// What a person can do about it on a VolumeSnapshot.
    pub fn advice_for_snapshots(self) -> &'static str {
        match self {
            Self::ScopeNotFound => {
                "Correct resourceGroup and subscriptionID in the VolumeSnapshotClass, or make the resource group; a snapshot \
                 of a class without them is in the disk's."
            }
            _ => self.advice(),
        }
    }

    /// What a person can do about it.
    pub fn advice(self) -> &'static str {
        self.row().advice
    }
}
