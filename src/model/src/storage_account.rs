//! A storage account as Azure describes it, its file service and its keys.

use std::{collections::BTreeMap, fmt, str::FromStr};

use super::{ArmId, AzureTime, ProvisioningState, Secret, UnknownName, names};

/// The resource type of storage accounts.
pub const ACCOUNT_TYPE: &str = "Microsoft.Storage/storageAccounts";

names! {
    /// The SKU of a storage account, as the StorageClass parameter `skuName` spells it.
    StorageSku {
        /// Pay-as-you-go on HDD, locally redundant: the default.
        StandardLrs = "Standard_LRS",
        /// Pay-as-you-go on HDD, zone redundant.
        StandardZrs = "Standard_ZRS",
        /// Pay-as-you-go on HDD, geo-redundant.
        StandardGrs = "Standard_GRS",
        /// Pay-as-you-go on HDD, zone and geo-redundant.
        StandardGzrs = "Standard_GZRS",
        /// Pay-as-you-go on HDD, geo-redundant with reads from the second region.
        StandardRagrs = "Standard_RAGRS",
        /// Pay-as-you-go on HDD, zone and geo-redundant with reads from the second region.
        StandardRagzrs = "Standard_RAGZRS",
        /// Provisioned v1 on SSD, locally redundant.
        PremiumLrs = "Premium_LRS",
        /// Provisioned v1 on SSD, zone redundant.
        PremiumZrs = "Premium_ZRS",
        /// Provisioned v2 on HDD, locally redundant.
        StandardV2Lrs = "StandardV2_LRS",
        /// Provisioned v2 on HDD, zone redundant.
        StandardV2Zrs = "StandardV2_ZRS",
        /// Provisioned v2 on HDD, geo-redundant.
        StandardV2Grs = "StandardV2_GRS",
        /// Provisioned v2 on HDD, zone and geo-redundant.
        StandardV2Gzrs = "StandardV2_GZRS",
        /// Provisioned v2 on SSD, locally redundant.
        PremiumV2Lrs = "PremiumV2_LRS",
        /// Provisioned v2 on SSD, zone redundant.
        PremiumV2Zrs = "PremiumV2_ZRS",
    } allowed "Standard_LRS, Standard_ZRS, Standard_GRS, Standard_GZRS, Standard_RAGRS, Standard_RAGZRS, Premium_LRS, Premium_ZRS, StandardV2_LRS, StandardV2_ZRS, StandardV2_GRS, StandardV2_GZRS, PremiumV2_LRS, PremiumV2_ZRS"
}

/// How the shares of an account are paid for and limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Billing {
    /// By use: the `Standard_` SKUs.
    PayAsYouGo,
    /// By size, on SSD: the `Premium_` SKUs.
    ProvisionedV1,
    /// By size and performance, on HDD: the `StandardV2_` SKUs.
    ProvisionedV2Hdd,
    /// By size and performance, on SSD: the `PremiumV2_` SKUs.
    ProvisionedV2Ssd,
}

impl Billing {
    /// Whether a share says its operations and bytes per second.
    pub const fn is_v2(self) -> bool {
        matches!(self, Self::ProvisionedV2Hdd | Self::ProvisionedV2Ssd)
    }
}

impl StorageSku {
    /// How shares of this SKU are paid for and limited.
    pub const fn billing(self) -> Billing {
        match self {
            Self::StandardLrs
            | Self::StandardZrs
            | Self::StandardGrs
            | Self::StandardGzrs
            | Self::StandardRagrs
            | Self::StandardRagzrs => Billing::PayAsYouGo,
            Self::PremiumLrs | Self::PremiumZrs => Billing::ProvisionedV1,
            Self::StandardV2Lrs | Self::StandardV2Zrs | Self::StandardV2Grs | Self::StandardV2Gzrs => {
                Billing::ProvisionedV2Hdd
            }
            Self::PremiumV2Lrs | Self::PremiumV2Zrs => Billing::ProvisionedV2Ssd,
        }
    }
}

names! {
    /// The kind of a storage account.
    AccountKind {
        /// General purpose v2: file shares that are paid as they go, and blobs.
        StorageV2 = "StorageV2",
        /// File shares alone, with provisioned performance.
        FileStorage = "FileStorage",
        /// General purpose v1.
        Storage = "Storage",
        /// Blobs alone.
        BlobStorage = "BlobStorage",
        /// Block blobs alone, with premium performance.
        BlockBlobStorage = "BlockBlobStorage",
    } allowed "StorageV2, FileStorage, Storage, BlobStorage, BlockBlobStorage"
}

names! {
    /// The access tier of an account's blobs (source: the AccessTier enum of the storage API).
    AccountAccessTier {
        /// For data in use.
        Hot = "Hot",
        /// For data that is seldom read.
        Cool = "Cool",
        /// For data that is hardly ever read.
        Cold = "Cold",
        /// Of premium block blob accounts.
        Premium = "Premium",
    } allowed "Hot, Cool, Cold, Premium"
}

names! {
    /// Whether an account's endpoints can be reached from the public network.
    AccountNetworkAccess {
        /// They can.
        Enabled = "Enabled",
        /// They cannot; private endpoints can.
        Disabled = "Disabled",
        /// A network security perimeter decides.
        SecuredByPerimeter = "SecuredByPerimeter",
    } allowed "Enabled, Disabled, SecuredByPerimeter"
}

names! {
    /// What a firewall rule of an account does.
    NetworkAction {
        /// Lets requests in.
        Allow = "Allow",
        /// Keeps requests out.
        Deny = "Deny",
    } allowed "Allow, Deny"
}

/// A rule of an account's firewall about a subnet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirtualNetworkRule {
    /// The subnet: `virtualNetworkRules[].id`.
    pub subnet: ArmId,
    /// What the rule does; Azure's default is to allow.
    pub action: NetworkAction,
}

/// The firewall of an account: `properties.networkAcls`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkRules {
    /// What counts where no rule does: `defaultAction`.
    pub default_action: NetworkAction,
    /// Which services of Azure pass all the same, in Azure's words (`AzureServices, Logging`): `bypass`.
    pub bypass: Option<String>,
    /// `virtualNetworkRules`
    pub virtual_networks: Vec<VirtualNetworkRule>,
}

/// The connection of a private endpoint with an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrivateEndpointConnection {
    /// Its own id, as Azure spells it.
    pub id: String,
    /// The private endpoint: `properties.privateEndpoint.id`; `None` when Azure does not say it, or not as an id.
    pub endpoint: Option<ArmId>,
}

/// A storage account.
///
/// A property that is `None` was not in Azure's answer. What that means is said with each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageAccount {
    /// As Azure spells it; the account's name is its last part.
    pub id: ArmId,
    /// The region.
    pub location: String,
    /// `sku.name`; `None` when Azure names one that is newer than this list.
    pub sku: Option<StorageSku>,
    /// `kind`; `None` when Azure names one that is newer than this list.
    pub kind: Option<AccountKind>,
    /// `properties.accessTier`
    pub access_tier: Option<AccountAccessTier>,
    /// Where its last operation is.
    pub provisioning_state: ProvisioningState,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// `properties.supportsHttpsTrafficOnly`; absent is true. SMB without encryption and NFS need false.
    pub https_only: Option<bool>,
    /// `properties.isHnsEnabled`: a hierarchical namespace of blobs; absent is false.
    pub hierarchical_namespace: Option<bool>,
    /// `properties.isNfsV3Enabled`: NFS 3 for blobs; absent is false.
    pub nfs_v3: Option<bool>,
    /// `properties.allowBlobPublicAccess`; absent is true for a match, as in the Go driver.
    pub allow_blob_public_access: Option<bool>,
    /// `properties.allowSharedKeyAccess`; absent is true.
    pub allow_shared_key_access: Option<bool>,
    /// `properties.allowCrossTenantReplication`
    pub allow_cross_tenant_replication: Option<bool>,
    /// `properties.minimumTlsVersion`, in Azure's words (`TLS1_2`).
    pub minimum_tls_version: Option<String>,
    /// `properties.encryption.requireInfrastructureEncryption`; absent is false.
    pub require_infrastructure_encryption: Option<bool>,
    /// `properties.largeFileSharesState` is `Enabled`; absent is false.
    pub large_file_shares: Option<bool>,
    /// `properties.publicNetworkAccess`; absent is enabled.
    pub public_network_access: Option<AccountNetworkAccess>,
    /// `properties.networkAcls`
    pub network_rules: Option<NetworkRules>,
    /// `properties.privateEndpointConnections`
    pub private_endpoint_connections: Vec<PrivateEndpointConnection>,
    /// `properties.primaryEndpoints.file`: the address of its file service, `https://{account}.file.{suffix}/`.
    pub file_endpoint: Option<String>,
    /// `properties.creationTime`
    pub created: Option<AzureTime>,
}

impl StorageAccount {
    /// The account's name.
    pub fn name(&self) -> &str {
        self.id.name()
    }
}

/// The settings of an account's file service that count: `fileServices/default`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileService {
    /// `properties.protocolSettings.smb.multichannel.enabled`; absent is false.
    pub smb_multichannel: Option<bool>,
    /// `properties.shareDeleteRetentionPolicy.enabled`: soft delete; absent is true.
    pub share_delete_retention: Option<bool>,
    /// `properties.shareDeleteRetentionPolicy.days`
    pub retention_days: Option<u32>,
}

/// A key of a storage account.
#[derive(Clone, PartialEq, Eq)]
pub struct AccountKey {
    /// `key1` or `key2`.
    pub name: String,
    /// The key itself, base64.
    pub value: Secret,
    /// When it was made; absent for keys from before Azure recorded it.
    pub created: Option<AzureTime>,
}

impl fmt::Debug for AccountKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccountKey")
            .field("name", &self.name)
            .field("value", &self.value)
            .field("created", &self.created)
            .finish()
    }
}

#[cfg(any(test, feature = "testing"))]
impl StorageAccount {
    /// An account as Azure shows one that the Go driver made with default parameters.
    pub fn general_purpose(name: &str) -> Self {
        Self {
            id: ArmId::storage_account("s", "g", name).expect("this is a name"),
            location: "local".into(),
            sku: Some(StorageSku::StandardLrs),
            kind: Some(AccountKind::StorageV2),
            access_tier: Some(AccountAccessTier::Hot),
            provisioning_state: ProvisioningState::Succeeded,
            tags: BTreeMap::from([("k8s-azure-created-by".into(), "azure".into())]),
            https_only: Some(true),
            hierarchical_namespace: None,
            nfs_v3: None,
            allow_blob_public_access: Some(false),
            allow_shared_key_access: None,
            allow_cross_tenant_replication: None,
            minimum_tls_version: Some("TLS1_2".into()),
            require_infrastructure_encryption: None,
            large_file_shares: None,
            public_network_access: None,
            network_rules: None,
            private_endpoint_connections: Vec::new(),
            file_endpoint: Some(format!("https://{name}.file.core.windows.net/")),
            created: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sku_is_parsed_and_named_in_the_error() {
        let error = "premium_lrs".parse::<StorageSku>().unwrap_err();
        for sku in StorageSku::ALL {
            assert_eq!(sku.as_str().parse::<StorageSku>(), Ok(*sku));
            assert!(error.allowed.contains(sku.as_str()), "{sku}");
        }
        assert_eq!(StorageSku::from_azure("premium_lrs"), Some(StorageSku::PremiumLrs));
    }

    #[test]
    fn the_prefix_of_a_sku_says_how_it_is_billed() {
        for sku in StorageSku::ALL {
            let (prefix, _) = sku.as_str().split_once('_').unwrap();
            let expected = match prefix {
                "Standard" => Billing::PayAsYouGo,
                "Premium" => Billing::ProvisionedV1,
                "StandardV2" => Billing::ProvisionedV2Hdd,
                "PremiumV2" => Billing::ProvisionedV2Ssd,
                other => panic!("{other}"),
            };
            assert_eq!(sku.billing(), expected, "{sku}");
            assert_eq!(sku.billing().is_v2(), prefix.ends_with("V2"), "{sku}");
        }
    }

    #[test]
    fn a_key_is_never_printed() {
        let key = AccountKey { name: "key1".into(), value: Secret::new("c2VjcmV0"), created: None };
        assert_eq!(format!("{key:?}"), "AccountKey { name: \"key1\", value: <redacted>, created: None }");
    }
}
