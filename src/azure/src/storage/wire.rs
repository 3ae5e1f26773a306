//! Azure's JSON of accounts, file services, shares and keys, as our model.

use std::collections::BTreeMap;

use jiff::Timestamp;
use lazuli_model::{
    AccountAccessTier, AccountKey, AccountKind, AccountNetworkAccess, AzureTime, FileService, FileShare, Gib,
    NetworkAction, NetworkRules, PrivateEndpointConnection, RootSquash, Secret, ShareAccessTier, ShareProtocol,
    StorageAccount, StorageSku, VirtualNetworkRule, file_share::DeletedShare,
};
use serde::Deserialize;
use serde_json::Value;

use crate::decode::{
    DecodeError, at, list, optional_bool, optional_number, optional_number32, optional_text, parse_id,
    provisioning_state, readable_tags, stamp, text, wrong,
};

/// Reads a storage account.
///
/// # Errors
/// When a field that decisions rest on is missing or is not what it should be.
pub fn decode_account(raw: &Value) -> Result<StorageAccount, DecodeError> {
    let enabled = |path| optional_text(raw, path).map(|word| word.map(|word| word.eq_ignore_ascii_case("Enabled")));
    Ok(StorageAccount {
        id: parse_id(text(raw, "id")?, "id")?,
        location: text(raw, "location")?.to_owned(),
        sku: optional_text(raw, "sku.name")?.and_then(StorageSku::from_azure),
        kind: optional_text(raw, "kind")?.and_then(AccountKind::from_azure),
        access_tier: optional_text(raw, "properties.accessTier")?.and_then(AccountAccessTier::from_azure),
        provisioning_state: provisioning_state(raw)?,
        tags: readable_tags(raw)?,
        https_only: optional_bool(raw, "properties.supportsHttpsTrafficOnly")?,
        hierarchical_namespace: optional_bool(raw, "properties.isHnsEnabled")?,
        nfs_v3: optional_bool(raw, "properties.isNfsV3Enabled")?,
        allow_blob_public_access: optional_bool(raw, "properties.allowBlobPublicAccess")?,
        allow_shared_key_access: optional_bool(raw, "properties.allowSharedKeyAccess")?,
        allow_cross_tenant_replication: optional_bool(raw, "properties.allowCrossTenantReplication")?,
        minimum_tls_version: optional_text(raw, "properties.minimumTlsVersion")?.map(str::to_owned),
        require_infrastructure_encryption: optional_bool(raw, "properties.encryption.requireInfrastructureEncryption")?,
        large_file_shares: enabled("properties.largeFileSharesState")?,
        public_network_access: optional_text(raw, "properties.publicNetworkAccess")?
            .and_then(AccountNetworkAccess::from_azure),
        network_rules: network_rules(raw)?,
        private_endpoint_connections: private_endpoint_connections(raw)?,
        file_endpoint: optional_text(raw, "properties.primaryEndpoints.file")?.map(str::to_owned),
        created: stamp(raw, "properties.creationTime"),
    })
}

/// An action of a firewall. One that is newer than this list lets nothing in, as far as we can tell.
fn action(word: Option<&str>) -> NetworkAction {
    word.map_or(NetworkAction::Allow, |word| NetworkAction::from_azure(word).unwrap_or(NetworkAction::Deny))
}

fn network_rules(raw: &Value) -> Result<Option<NetworkRules>, DecodeError> {
    let Some(rules) = at(raw, "properties.networkAcls") else { return Ok(None) };
    let rule = |rule: &Value| -> Result<VirtualNetworkRule, DecodeError> {
        const ID: &str = "properties.networkAcls.virtualNetworkRules.id";
        let subnet = optional_text(rule, "id")?.ok_or_else(|| wrong(ID, "is missing"))?;
        Ok(VirtualNetworkRule { subnet: parse_id(subnet, ID)?, action: action(optional_text(rule, "action")?) })
    };
    Ok(Some(NetworkRules {
        default_action: action(optional_text(rules, "defaultAction")?),
        bypass: optional_text(rules, "bypass")?.map(str::to_owned),
        virtual_networks: list(rules, "virtualNetworkRules")?.iter().map(rule).collect::<Result<_, _>>()?,
    }))
}

fn private_endpoint_connections(raw: &Value) -> Result<Vec<PrivateEndpointConnection>, DecodeError> {
    let connection = |connection: &Value| -> Result<PrivateEndpointConnection, DecodeError> {
        let endpoint = at(connection, "properties.privateEndpoint.id").and_then(Value::as_str);
        let endpoint = endpoint.and_then(|id| id.parse().ok());
        Ok(PrivateEndpointConnection { id: text(connection, "id")?.to_owned(), endpoint })
    };
    list(raw, "properties.privateEndpointConnections")?.iter().map(connection).collect()
}

/// Reads a file service.
pub(super) fn decode_file_service(raw: &Value) -> Result<FileService, DecodeError> {
    Ok(FileService {
        smb_multichannel: optional_bool(raw, "properties.protocolSettings.smb.multichannel.enabled")?,
        share_delete_retention: optional_bool(raw, "properties.shareDeleteRetentionPolicy.enabled")?,
        retention_days: optional_number32(raw, "properties.shareDeleteRetentionPolicy.days")?,
    })
}

/// Reads a share, a snapshot of one, or a deleted share.
pub(super) fn decode_share(raw: &Value) -> Result<FileShare, DecodeError> {
    const QUOTA: &str = "properties.shareQuota";
    let quota = optional_number32(raw, QUOTA)?.ok_or_else(|| wrong(QUOTA, "is missing"))?;
    let (id, deleted) = (text(raw, "id")?, deleted(raw)?);
    let id = match (&deleted, id.rsplit_once('/')) {
        // The id of a deleted share ends with its version behind the name (source: the provider's published examples).
        (Some(_), Some((shares, _))) => parse_id(&format!("{shares}/{}", text(raw, "name")?), "id")?,
        _ => parse_id(id, "id")?,
    };
    Ok(FileShare {
        id,
        quota: Gib::new(quota),
        // Absent is SMB.
        protocol: optional_text(raw, "properties.enabledProtocols")?
            .map_or(Some(ShareProtocol::Smb), ShareProtocol::from_azure),
        root_squash: optional_text(raw, "properties.rootSquash")?.and_then(RootSquash::from_azure),
        access_tier: optional_text(raw, "properties.accessTier")?.and_then(ShareAccessTier::from_azure),
        provisioned_iops: optional_number32(raw, "properties.provisionedIops")?,
        provisioned_bandwidth: optional_number32(raw, "properties.provisionedBandwidthMibps")?,
        used_bytes: optional_number(raw, "properties.shareUsageBytes")?,
        metadata: metadata(raw)?,
        deleted,
        snapshot: optional_text(raw, "properties.snapshotTime")?.map(str::to_owned),
        last_modified: stamp(raw, "properties.lastModifiedTime"),
    })
}

fn metadata(raw: &Value) -> Result<BTreeMap<String, String>, DecodeError> {
    const METADATA: &str = "properties.metadata";
    match at(raw, METADATA) {
        None => Ok(BTreeMap::new()),
        Some(Value::Object(pairs)) => {
            Ok(pairs.iter().filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect())
        }
        Some(_) => Err(wrong(METADATA, "is no object")),
    }
}

fn deleted(raw: &Value) -> Result<Option<DeletedShare>, DecodeError> {
    if optional_bool(raw, "properties.deleted")? != Some(true) {
        return Ok(None);
    }
    Ok(Some(DeletedShare {
        version: text(raw, "properties.version")?.to_owned(),
        deleted: stamp(raw, "properties.deletedTime"),
        remaining_days: optional_number32(raw, "properties.remainingRetentionDays")?,
    }))
}

#[derive(Deserialize)]
struct Keys {
    keys: Vec<Key>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Key {
    key_name: String,
    value: String,
    creation_time: Option<String>,
}

/// Reads the keys of an account. `None` for what are no keys: why it is so could quote one.
pub(super) fn decode_keys(body: &[u8]) -> Option<Vec<AccountKey>> {
    let Keys { keys } = serde_json::from_slice(body).ok()?;
    let key = |Key { key_name, value, creation_time }: Key| {
        let created: Option<Timestamp> = creation_time.and_then(|time| time.parse().ok());
        AccountKey {
            name: key_name,
            value: Secret::new(value),
            created: created.map(|time| AzureTime::from_unix_seconds(time.as_second())),
        }
    };
    Some(keys.into_iter().map(key).collect())
}
