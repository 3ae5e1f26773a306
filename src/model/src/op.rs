//! Every write to Azure, as data.
//!
//! A planner returns operations; `lazuli-azure` turns each into one request; [`crate::apply`] does to the model what
//! Azure would do, so that planners can be tested without a network.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    AccountAccessTier, AccountKind, AccountNetworkAccess, ArmId, CachingMode, DiskId, Gib, Lun, NetworkRules,
    RootSquash, ShareAccessTier, ShareProtocol, SkuName, StorageSku,
    disk_spec::{NetworkAccessPolicy, PerformanceTier, PublicNetworkAccess},
};

/// A disk at a slot of a VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// The disk.
    pub disk: DiskId,
    /// Its slot.
    pub lun: Lun,
    /// How the host caches it.
    pub caching: CachingMode,
    /// The disk encryption set to attach it with, if the disk has one.
    pub disk_encryption_set: Option<ArmId>,
    /// Whether the M-series write accelerator is on for it.
    pub write_accelerator: bool,
}

/// One change to the data disks of a VM; the lists commute, for no disk is in two of them and no slot of one is in
/// another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmWrite {
    /// The VM.
    pub vm: ArmId,
    /// Disks that come, in the order of their slots.
    pub attach: Vec<Attachment>,
    /// Disks that leave, in the order of their ids.
    pub detach: Vec<DiskId>,
    /// Those of [`VmWrite::detach`] that leave by force (`lazuli_storage::force_detach`).
    pub force: BTreeSet<DiskId>,
    /// Disks that the VM lists and does not hold, in the order of their ids. A write, whatever it says, makes Azure
    /// bring a VM to what its model says, so these are not named in the request.
    pub reapply: Vec<DiskId>,
}

impl VmWrite {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.says_nothing() && self.reapply.is_empty()
    }

    /// Whether it names no disk: then all it does is to make Azure apply the model that is there.
    pub fn says_nothing(&self) -> bool {
        self.attach.is_empty() && self.detach.is_empty()
    }
}

/// What the PATCH of a managed disk changes, besides its size. A field that is `None` is left out of the body.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiskChange {
    /// `sku.name`
    pub sku: Option<SkuName>,
    /// `tags`: all of them from then on, for Azure replaces the tags as a whole.
    pub tags: Option<BTreeMap<String, String>>,
    /// `properties.diskIOPSReadWrite`, operations per second.
    pub iops: Option<u64>,
    /// `properties.diskMBpsReadWrite`, MB (10^6 bytes) per second.
    pub mbps: Option<u64>,
    /// `properties.tier`
    pub tier: Option<PerformanceTier>,
    /// `properties.burstingEnabled`
    pub bursting_enabled: Option<bool>,
    /// `properties.networkAccessPolicy`
    pub network_access_policy: Option<NetworkAccessPolicy>,
    /// `properties.diskAccessId`; there exactly when the policy is `AllowPrivate`.
    pub disk_access: Option<ArmId>,
    /// `properties.publicNetworkAccess`
    pub public_network_access: Option<PublicNetworkAccess>,
}

impl DiskChange {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// How a VM write goes over the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VmWriteMethod {
    /// The `attachDetachDataDisks` action: says only what changes, so two writers cannot undo each other.
    Action,
    /// The whole list of data disks, marked `toBeDetached` where a disk leaves; under `If-Match` where the VM has an
    /// etag.
    WholeList,
    /// The whole list without the disks that leave, for Azure Stack Hub, whose API does not know `toBeDetached`.
    WholeListByOmission,
}

/// Everything that the PUT of a storage account says. It is sent only for an account that a read has shown not to exist.
///
/// A field that is `None` is left out of the body, and Azure's default counts. The paths are those of the storage API's
/// JSON body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountSpec {
    /// `location`
    pub location: String,
    /// `sku.name`
    pub sku: StorageSku,
    /// `kind`
    pub kind: AccountKind,
    /// `tags`
    pub tags: BTreeMap<String, String>,
    /// `properties.accessTier`
    pub access_tier: Option<AccountAccessTier>,
    /// `properties.supportsHttpsTrafficOnly`
    pub https_only: bool,
    /// `properties.minimumTlsVersion`
    pub minimum_tls_version: &'static str,
    /// `properties.allowBlobPublicAccess`
    pub allow_blob_public_access: Option<bool>,
    /// `properties.allowSharedKeyAccess`
    pub allow_shared_key_access: Option<bool>,
    /// `properties.allowCrossTenantReplication`
    pub allow_cross_tenant_replication: Option<bool>,
    /// `properties.encryption.requireInfrastructureEncryption`; where it is said, `encryption.keySource` is
    /// `Microsoft.Storage`, and `encryption.services.file.enabled` and `encryption.services.blob.enabled` are true.
    pub require_infrastructure_encryption: Option<bool>,
    /// `properties.largeFileSharesState`: `Enabled` or `Disabled`.
    pub large_file_shares: Option<bool>,
    /// `properties.publicNetworkAccess`
    pub public_network_access: Option<AccountNetworkAccess>,
    /// `properties.networkAcls`
    pub network_rules: Option<NetworkRules>,
}

/// What the PUT of `fileServices/default` changes of what is there. It is sent for an account that was just made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileServiceSpec {
    /// `properties.protocolSettings.smb.multichannel.enabled`
    pub smb_multichannel: Option<bool>,
    /// `properties.shareDeleteRetentionPolicy.enabled`
    pub share_delete_retention: Option<bool>,
}

impl FileServiceSpec {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// One change to a storage account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccountWrite {
    /// `PUT`, after a read that said 404.
    Create {
        /// The account.
        account: ArmId,
        /// What to make.
        spec: AccountSpec,
    },
    /// `PATCH` with nothing but all tags: Azure replaces the tags as a whole.
    Tags {
        /// The account.
        account: ArmId,
        /// All of its tags from then on.
        tags: BTreeMap<String, String>,
    },
    /// `PUT` of `fileServices/default`: what was read, with these changes.
    FileService {
        /// The account.
        account: ArmId,
        /// What changes.
        spec: FileServiceSpec,
    },
}

/// Everything that the PUT of a file share says. A field that is `None` is left out of the body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareSpec {
    /// `properties.shareQuota`; Azure's "GB" are GiB here.
    pub quota: Gib,
    /// `properties.enabledProtocols`; the Go driver leaves it out for SMB, and so do we.
    pub protocol: Option<ShareProtocol>,
    /// `properties.accessTier`
    pub access_tier: Option<ShareAccessTier>,
    /// `properties.rootSquash`, of NFS shares alone.
    pub root_squash: Option<RootSquash>,
    /// `properties.provisionedIops`, operations per second.
    pub provisioned_iops: Option<u32>,
    /// `properties.provisionedBandwidthMibps`, MiB per second.
    pub provisioned_bandwidth: Option<u32>,
    /// `properties.metadata`
    pub metadata: BTreeMap<String, String>,
}

/// What the PATCH of a file share changes. A field that is `None` is left out of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShareChange {
    /// `properties.shareQuota`
    pub quota: Option<Gib>,
    /// `properties.provisionedIops`, operations per second.
    pub provisioned_iops: Option<u32>,
    /// `properties.provisionedBandwidthMibps`, MiB per second.
    pub provisioned_bandwidth: Option<u32>,
}

impl ShareChange {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// One change to a file share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShareWrite {
    /// `PUT`
    Create {
        /// The share.
        share: ArmId,
        /// What to make.
        spec: ShareSpec,
    },
    /// `PATCH`
    Change {
        /// The share.
        share: ArmId,
        /// What changes.
        change: ShareChange,
    },
    /// `DELETE` with `$include=none`, always: without it Azure deletes the snapshots of the share too. A share that has
    /// snapshots is then refused by Azure.
    Delete {
        /// The share.
        share: ArmId,
    },
}

impl ShareWrite {
    /// The value of the query parameter `$include` of a DELETE.
    pub const DELETE_INCLUDE: &str = "none";

    /// The share.
    pub fn share(&self) -> &ArmId {
        match self {
            Self::Create { share, .. } | Self::Change { share, .. } | Self::Delete { share } => share,
        }
    }
}
