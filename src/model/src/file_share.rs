//! A file share as Azure describes it.

use std::{collections::BTreeMap, fmt, str::FromStr};

use super::{ArmId, AzureTime, Gib, UnknownName, names};

/// The resource type of file shares.
pub const SHARE_TYPE: &str = "Microsoft.Storage/storageAccounts/fileServices/shares";

/// The metadata key that the Go driver's shares carry, and ours: who made the share.
pub const CREATED_BY: &str = "createdBy";

names! {
    /// The protocol of a share.
    ShareProtocol {
        /// SMB: the default.
        Smb = "SMB",
        /// NFS 4.1.
        Nfs = "NFS",
    } allowed "SMB, NFS"
}

names! {
    /// How an NFS share treats root.
    RootSquash {
        /// Root is root.
        NoRootSquash = "NoRootSquash",
        /// Root is nobody.
        RootSquash = "RootSquash",
        /// Everybody is nobody.
        AllSquash = "AllSquash",
    } allowed "NoRootSquash, RootSquash, AllSquash"
}

names! {
    /// The access tier of a share (source: the ShareAccessTier enum of the storage API).
    ShareAccessTier {
        /// For many operations: the default of pay-as-you-go shares.
        TransactionOptimized = "TransactionOptimized",
        /// For general use.
        Hot = "Hot",
        /// For archives.
        Cool = "Cool",
        /// Of provisioned v1 shares.
        Premium = "Premium",
    } allowed "TransactionOptimized, Hot, Cool, Premium"
}

/// That a share is deleted and can still be restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletedShare {
    /// `properties.version`: what a restore names.
    pub version: String,
    /// `properties.deletedTime`
    pub deleted: Option<AzureTime>,
    /// `properties.remainingRetentionDays`
    pub remaining_days: Option<u32>,
}

/// A file share, or a snapshot of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileShare {
    /// As Azure spells it: that of the share, also for a snapshot of it.
    pub id: ArmId,
    /// `properties.shareQuota`
    pub quota: Gib,
    /// `properties.enabledProtocols`; absent is SMB. `None` when Azure names a newer one.
    pub protocol: Option<ShareProtocol>,
    /// `properties.rootSquash`, of NFS shares.
    pub root_squash: Option<RootSquash>,
    /// `properties.accessTier`
    pub access_tier: Option<ShareAccessTier>,
    /// `properties.provisionedIops`, operations per second; v2 SKUs alone.
    pub provisioned_iops: Option<u32>,
    /// `properties.provisionedBandwidthMibps`, MiB per second; v2 SKUs alone.
    pub provisioned_bandwidth: Option<u32>,
    /// `properties.shareUsageBytes`: only where it was asked for (`$expand=stats`).
    pub used_bytes: Option<u64>,
    /// `properties.metadata`
    pub metadata: BTreeMap<String, String>,
    /// That it is deleted; in lists that include deleted shares.
    pub deleted: Option<DeletedShare>,
    /// `properties.snapshotTime`, as Azure spells it, for it is the snapshot's name; `None` for the share itself.
    pub snapshot: Option<String>,
    /// `properties.lastModifiedTime`
    pub last_modified: Option<AzureTime>,
}

impl FileShare {
    /// The share's name.
    pub fn name(&self) -> &str {
        self.id.name()
    }

    /// Whether it is a share that can be mounted: not deleted, and no snapshot.
    pub fn is_live(&self) -> bool {
        self.deleted.is_none() && self.snapshot.is_none()
    }

    /// A value of its metadata. Azure ignores the letter case of a name.
    pub fn metadata(&self, name: &str) -> Option<&str> {
        self.metadata.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

#[cfg(any(test, feature = "testing"))]
impl FileShare {
    /// An SMB share of an account of [`StorageAccount::general_purpose`](crate::StorageAccount::general_purpose).
    pub fn smb(account: &str, name: &str, quota: u32) -> Self {
        let account = ArmId::storage_account("s", "g", account).expect("this is a name");
        Self {
            id: ArmId::file_share(&account, name).expect("this is a name"),
            quota: Gib::new(quota),
            protocol: Some(ShareProtocol::Smb),
            root_squash: None,
            access_tier: Some(ShareAccessTier::TransactionOptimized),
            provisioned_iops: None,
            provisioned_bandwidth: None,
            used_bytes: None,
            metadata: BTreeMap::new(),
            deleted: None,
            snapshot: None,
            last_modified: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_share_names_its_account() {
        let share = FileShare::smb("f1", "pvc-1", 5);
        assert_eq!(
            share.id.as_str(),
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/f1/fileServices/default/shares/pvc-1"
        );
        assert!(share.id.is_type(SHARE_TYPE));
        assert_eq!(share.id.account_of_share(), Some(ArmId::storage_account("S", "G", "F1").unwrap()));
        assert_eq!(ArmId::disk("s", "g", "d").unwrap().account_of_share(), None);
        let account = ArmId::storage_account("s", "g", "f1").unwrap();
        assert_eq!(account.account_of_share(), None);
        for name in ["a/b", "", "..", "a b", "a?b"] {
            assert!(ArmId::file_share(&account, name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_deleted_share_and_a_snapshot_are_not_live() {
        let share = FileShare::smb("f1", "pvc-1", 5);
        assert!(share.is_live());
        let deleted = DeletedShare { version: "01D".into(), deleted: None, remaining_days: Some(3) };
        assert!(!FileShare { deleted: Some(deleted), ..share.clone() }.is_live());
        assert!(!FileShare { snapshot: Some("2026-01-01T00:00:00.0000000Z".into()), ..share }.is_live());
    }

    #[test]
    fn a_name_of_metadata_has_no_letter_case() {
        let mut share = FileShare::smb("f1", "pvc-1", 5);
        share.metadata.insert("createdby".into(), "azure".into());
        assert_eq!((share.metadata(CREATED_BY), share.metadata("other")), (Some("azure"), None));
    }
}
