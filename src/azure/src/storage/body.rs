//! The bodies of writes.

use std::collections::BTreeMap;

use lazuli_model::{
    NetworkRules,
    op::{AccountSpec, FileServiceSpec, ShareChange, ShareSpec},
};
use serde_json::{Map, Value, json};

use super::AZURE_STACK_API_VERSION;
use crate::{compute::put, decode::at};

/// For how many days Azure keeps deleted shares unless it is told otherwise (source: storage-files-prevent-file-share-deletion).
const DAYS: u32 = 7;

/// The body of the PUT of an account, by this API version. Azure Stack Hub refuses members that are newer than its own; what
/// a caller has not asked for is left out there.
pub(super) fn encode_account(spec: &AccountSpec, api_version: &str) -> Value {
    let mut properties = Map::new();
    put(&mut properties, "accessTier", spec.access_tier.map(|tier| tier.as_str()));
    properties.insert("supportsHttpsTrafficOnly".into(), spec.https_only.into());
    if api_version != AZURE_STACK_API_VERSION {
        properties.insert("minimumTlsVersion".into(), spec.minimum_tls_version.into());
    }
    put(&mut properties, "allowBlobPublicAccess", spec.allow_blob_public_access);
    put(&mut properties, "allowSharedKeyAccess", spec.allow_shared_key_access);
    put(&mut properties, "allowCrossTenantReplication", spec.allow_cross_tenant_replication);
    put(
        &mut properties,
        "encryption",
        spec.require_infrastructure_encryption.map(|required| {
            json!({
                "keySource": "Microsoft.Storage",
                "requireInfrastructureEncryption": required,
                "services": { "file": { "enabled": true }, "blob": { "enabled": true } },
            })
        }),
    );
    let state = |enabled| if enabled { "Enabled" } else { "Disabled" };
    put(&mut properties, "largeFileSharesState", spec.large_file_shares.map(state));
    put(&mut properties, "publicNetworkAccess", spec.public_network_access.map(|access| access.as_str()));
    put(&mut properties, "networkAcls", spec.network_rules.as_ref().map(encode_network_rules));
    json!({
        "location": spec.location,
        "sku": { "name": spec.sku.as_str() },
        "kind": spec.kind.as_str(),
        "tags": spec.tags,
        "properties": properties,
    })
}

fn encode_network_rules(rules: &NetworkRules) -> Value {
    let mut body = Map::new();
    body.insert("defaultAction".into(), rules.default_action.as_str().into());
    put(&mut body, "bypass", rules.bypass.as_deref());
    if !rules.virtual_networks.is_empty() {
        let rules = rules.virtual_networks.iter();
        let rules = rules.map(|rule| json!({ "id": rule.subnet.as_str(), "action": rule.action.as_str() }));
        body.insert("virtualNetworkRules".into(), rules.collect::<Vec<_>>().into());
    }
    body.into()
}

/// The body of the PATCH of an account's tags, which replaces them as a whole.
pub(super) fn encode_tags(tags: &BTreeMap<String, String>) -> Value {
    json!({ "tags": tags })
}

/// The body of the PUT of a file service: all of what was read, with these changes.
pub(super) fn edit_file_service(raw: &Value, spec: &FileServiceSpec) -> Value {
    let mut body = raw.clone();
    if let Some(enabled) = spec.smb_multichannel {
        *member(&mut body, &["properties", "protocolSettings", "smb", "multichannel", "enabled"]) = enabled.into();
    }
    if let Some(enabled) = spec.share_delete_retention {
        *member(&mut body, &["properties", "shareDeleteRetentionPolicy", "enabled"]) = enabled.into();
        let days = at(raw, "properties.shareDeleteRetentionPolicy.days").and_then(Value::as_u64);
        if enabled && days.unwrap_or(0) == 0 {
            *member(&mut body, &["properties", "shareDeleteRetentionPolicy", "days"]) = DAYS.into();
        }
    }
    body
}

/// The member at a path, which is made where it is missing.
fn member<'a>(body: &'a mut Value, path: &[&str]) -> &'a mut Value {
    path.iter().fold(body, |body, name| {
        if !body.is_object() {
            *body = Value::Object(Map::new());
        }
        &mut body[*name]
    })
}

/// The body of the PUT of a share.
pub(super) fn encode_share(spec: &ShareSpec) -> Value {
    let mut properties = Map::new();
    properties.insert("shareQuota".into(), spec.quota.get().into());
    put(&mut properties, "enabledProtocols", spec.protocol.map(|protocol| protocol.as_str()));
    put(&mut properties, "accessTier", spec.access_tier.map(|tier| tier.as_str()));
    put(&mut properties, "rootSquash", spec.root_squash.map(|squash| squash.as_str()));
    put(&mut properties, "provisionedIops", spec.provisioned_iops);
    put(&mut properties, "provisionedBandwidthMibps", spec.provisioned_bandwidth);
    if !spec.metadata.is_empty() {
        properties.insert("metadata".into(), json!(spec.metadata));
    }
    json!({ "properties": properties })
}

/// The body of the PATCH of a share.
pub(super) fn encode_change(change: &ShareChange) -> Value {
    let mut properties = Map::new();
    put(&mut properties, "shareQuota", change.quota.map(|quota| quota.get()));
    put(&mut properties, "provisionedIops", change.provisioned_iops);
    put(&mut properties, "provisionedBandwidthMibps", change.provisioned_bandwidth);
    json!({ "properties": properties })
}
