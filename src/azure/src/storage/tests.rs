//! Bodies and answers by example, and answers of a scripted Azure.

use std::collections::BTreeMap;

use lazuli_model::{
    AccountAccessTier, AccountKind, AccountNetworkAccess, NetworkAction, NetworkRules, ProvisioningState, RootSquash,
    ShareAccessTier, ShareProtocol, StorageSku, VirtualNetworkRule,
};
use lazuli_quota::permit::Priority;
use serde_json::json;

use super::{body::*, wire::*, *};
use crate::testing::{Fake, Reply, a_minute};

const SUBNET: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/n";

fn account() -> ArmId {
    ArmId::storage_account("s", "g", "files").unwrap()
}

fn share() -> ArmId {
    ArmId::file_share(&account(), "pvc-1").unwrap()
}

fn general_purpose() -> AccountSpec {
    AccountSpec {
        location: "westeurope".into(),
        sku: StorageSku::StandardLrs,
        kind: AccountKind::StorageV2,
        tags: BTreeMap::from([("k8s-azure-created-by".into(), "azure".into())]),
        access_tier: None,
        https_only: true,
        minimum_tls_version: "TLS1_2",
        allow_blob_public_access: Some(false),
        allow_shared_key_access: None,
        allow_cross_tenant_replication: None,
        require_infrastructure_encryption: None,
        large_file_shares: None,
        public_network_access: None,
        network_rules: None,
    }
}

#[test]
fn the_body_of_an_account_of_azure_stack_hub_has_no_member_that_its_version_lacks() {
    let spec = AccountSpec { kind: AccountKind::Storage, allow_blob_public_access: None, ..general_purpose() };
    let body = encode_account(&spec, AZURE_STACK_API_VERSION);
    assert_eq!(body["properties"], json!({"supportsHttpsTrafficOnly": true}));
}

/// Source: what EnsureStorageAccount of the Go drivers puts together (cloud-provider-azure).
#[test]
fn the_body_of_an_account_says_what_the_go_driver_says_and_nothing_else() {
    assert_eq!(
        encode_account(&general_purpose(), API_VERSION),
        json!({
            "location": "westeurope",
            "sku": {"name": "Standard_LRS"},
            "kind": "StorageV2",
            "tags": {"k8s-azure-created-by": "azure"},
            "properties": {
                "supportsHttpsTrafficOnly": true, "minimumTlsVersion": "TLS1_2", "allowBlobPublicAccess": false,
            },
        })
    );
    let subnet = VirtualNetworkRule { subnet: SUBNET.parse().unwrap(), action: NetworkAction::Allow };
    let all = AccountSpec {
        sku: StorageSku::PremiumZrs,
        kind: AccountKind::FileStorage,
        tags: BTreeMap::new(),
        access_tier: Some(AccountAccessTier::Premium),
        https_only: false,
        allow_shared_key_access: Some(false),
        allow_cross_tenant_replication: Some(true),
        require_infrastructure_encryption: Some(true),
        large_file_shares: Some(false),
        public_network_access: Some(AccountNetworkAccess::Disabled),
        network_rules: Some(NetworkRules {
            default_action: NetworkAction::Deny,
            bypass: None,
            virtual_networks: vec![subnet],
        }),
        ..general_purpose()
    };
    assert_eq!(
        encode_account(&all, API_VERSION),
        json!({
            "location": "westeurope",
            "sku": {"name": "Premium_ZRS"},
            "kind": "FileStorage",
            "tags": {},
            "properties": {
                "accessTier": "Premium",
                "supportsHttpsTrafficOnly": false,
                "minimumTlsVersion": "TLS1_2",
                "allowBlobPublicAccess": false,
                "allowSharedKeyAccess": false,
                "allowCrossTenantReplication": true,
                "encryption": {
                    "keySource": "Microsoft.Storage",
                    "requireInfrastructureEncryption": true,
                    "services": {"file": {"enabled": true}, "blob": {"enabled": true}},
                },
                "largeFileSharesState": "Disabled",
                "publicNetworkAccess": "Disabled",
                "networkAcls": {"defaultAction": "Deny", "virtualNetworkRules": [{"id": SUBNET, "action": "Allow"}]},
            },
        })
    );
    // A private endpoint closes the account, and no rule opens it.
    let closed = NetworkRules { default_action: NetworkAction::Deny, bypass: None, virtual_networks: vec![] };
    let closed = AccountSpec { network_rules: Some(closed), ..general_purpose() };
    assert_eq!(encode_account(&closed, API_VERSION)["properties"]["networkAcls"], json!({"defaultAction": "Deny"}));
}

#[test]
fn the_bodies_of_a_share_say_what_the_go_driver_says_and_nothing_else() {
    let smb = ShareSpec {
        quota: lazuli_model::Gib::new(5),
        protocol: None,
        access_tier: None,
        root_squash: None,
        provisioned_iops: None,
        provisioned_bandwidth: None,
        metadata: BTreeMap::from([("createdBy".into(), "azure".into())]),
    };
    assert_eq!(encode_share(&smb), json!({"properties": {"shareQuota": 5, "metadata": {"createdBy": "azure"}}}));
    let nfs = ShareSpec {
        protocol: Some(ShareProtocol::Nfs),
        access_tier: Some(ShareAccessTier::Premium),
        root_squash: Some(RootSquash::NoRootSquash),
        provisioned_iops: Some(3_000),
        provisioned_bandwidth: Some(100),
        metadata: BTreeMap::new(),
        ..smb
    };
    assert_eq!(
        encode_share(&nfs),
        json!({"properties": {
            "shareQuota": 5, "enabledProtocols": "NFS", "accessTier": "Premium", "rootSquash": "NoRootSquash",
            "provisionedIops": 3_000, "provisionedBandwidthMibps": 100,
        }})
    );
    let grow = ShareChange { quota: Some(lazuli_model::Gib::new(9)), ..ShareChange::default() };
    assert_eq!(encode_change(&grow), json!({"properties": {"shareQuota": 9}}));
    let speed = ShareChange { quota: None, provisioned_iops: Some(1), provisioned_bandwidth: Some(2) };
    let expected = json!({"properties": {"provisionedIops": 1, "provisionedBandwidthMibps": 2}});
    assert_eq!(encode_change(&speed), expected);
    assert_eq!(encode_tags(&BTreeMap::new()), json!({"tags": {}}), "an empty object removes the last tag");
}

#[test]
fn an_edit_of_a_file_service_keeps_all_that_was_read() {
    let read = json!({
        "id": "x", "sku": {"name": "Premium_LRS"}, "newer": 1,
        "properties": {
            "cors": {"corsRules": [{"a": 1}]},
            "newer": [2],
            "protocolSettings": {"smb": {"versions": "SMB3.1.1;", "multichannel": {"enabled": false, "newer": 3}}},
            "shareDeleteRetentionPolicy": {"enabled": true, "days": 30, "newer": 4},
        },
    });
    let spec = FileServiceSpec { smb_multichannel: Some(true), share_delete_retention: Some(false) };
    let edited = edit_file_service(&read, &spec);
    let mut expected = read.clone();
    expected["properties"]["protocolSettings"]["smb"]["multichannel"]["enabled"] = json!(true);
    expected["properties"]["shareDeleteRetentionPolicy"]["enabled"] = json!(false);
    assert_eq!(edited, expected);
    assert_eq!(edit_file_service(&read, &FileServiceSpec::default()), read);
    // What Azure leaves out is made.
    let bare = json!({"properties": {"protocolSettings": null}});
    let spec = FileServiceSpec { smb_multichannel: Some(true), share_delete_retention: Some(true) };
    let expected = json!({"properties": {
        "protocolSettings": {"smb": {"multichannel": {"enabled": true}}},
        "shareDeleteRetentionPolicy": {"enabled": true, "days": 7},
    }});
    assert_eq!(edit_file_service(&bare, &spec), expected);
}

#[test]
fn an_account_is_read_with_azures_casing_and_without_what_it_leaves_out() {
    let bare = json!({
        "id": account().as_str().to_uppercase().replace("/SUBSCRIPTIONS", "/subscriptions"),
        "location": "westeurope",
        "properties": {"provisioningState": "creating", "accessTier": "", "networkAcls": null},
    });
    let read = decode_account(&bare).unwrap();
    assert_eq!((&read.id, read.sku, read.kind), (&account(), None, None));
    assert_eq!(read.provisioning_state, ProvisioningState::InProgress);
    assert_eq!((read.network_rules, read.access_tier, read.https_only), (None, None, None));
    let rich = json!({
        "id": account().as_str(), "location": "westeurope", "sku": {"name": "standard_lrs"}, "kind": "storagev2",
        "tags": {"a": "b"},
        "properties": {
            "provisioningState": "Succeeded", "largeFileSharesState": "enabled", "publicNetworkAccess": "disabled",
            "networkAcls": {"defaultAction": "deny", "bypass": "AzureServices", "virtualNetworkRules": [
                {"id": SUBNET.to_lowercase().replace("resourcegroups", "resourceGroups"), "state": "Succeeded"},
                {"id": SUBNET, "action": "Newer"},
            ]},
            "privateEndpointConnections": [{"id": "/x", "properties": {}}],
            "primaryEndpoints": {"file": "https://files.file.core.windows.net/"},
            "creationTime": "2026-01-02T03:04:05.6789012Z",
        },
    });
    let read = decode_account(&rich).unwrap();
    assert_eq!((read.sku, read.kind), (Some(StorageSku::StandardLrs), Some(AccountKind::StorageV2)));
    assert_eq!(
        (read.large_file_shares, read.public_network_access),
        (Some(true), Some(AccountNetworkAccess::Disabled))
    );
    let rules = read.network_rules.unwrap();
    let actions: Vec<NetworkAction> = rules.virtual_networks.iter().map(|rule| rule.action).collect();
    assert_eq!((rules.default_action, actions), (NetworkAction::Deny, vec![NetworkAction::Allow, NetworkAction::Deny]));
    assert_eq!(rules.virtual_networks[0].subnet, SUBNET.parse().unwrap());
    let connections: Vec<(&str, bool)> =
        read.private_endpoint_connections.iter().map(|one| (one.id.as_str(), one.endpoint.is_some())).collect();
    assert_eq!(connections, [("/x", false)]);
    assert!(read.created.is_some());
    for (member, value) in [
        ("/id", json!("files")),
        ("/location", json!(null)),
        ("/tags", json!([])),
        ("/properties/provisioningState", json!(7)),
        ("/properties/supportsHttpsTrafficOnly", json!("yes")),
        ("/properties/networkAcls/virtualNetworkRules/0/id", json!("")),
    ] {
        let mut odd = rich.clone();
        odd["properties"]["supportsHttpsTrafficOnly"] = json!(true);
        *odd.pointer_mut(member).unwrap() = value;
        let error = decode_account(&odd).unwrap_err().to_string();
        let name = member.rsplit('/').next().unwrap();
        assert!(error.contains(name), "{member}: {error}");
    }
}

#[test]
fn a_share_without_a_size_cannot_be_read_and_a_deleted_one_has_its_own_name() {
    let mut raw = json!({
        "id": format!("{}_01D7", share()), "name": "pvc-1",
        "properties": {
            "shareQuota": 5.0, "deleted": true, "version": "01D7", "deletedTime": "2026-01-02T03:04:05.0000000Z",
            "remainingRetentionDays": 3, "metadata": {"createdby": "azure", "odd": 1},
        },
    });
    let read = decode_share(&raw).unwrap();
    assert_eq!((&read.id, read.quota.get(), read.protocol), (&share(), 5, Some(ShareProtocol::Smb)));
    let deleted = read.deleted.unwrap();
    assert_eq!((deleted.version.as_str(), deleted.remaining_days), ("01D7", Some(3)));
    assert_eq!(read.metadata, BTreeMap::from([("createdby".to_owned(), "azure".to_owned())]));
    raw["properties"]["enabledProtocols"] = json!("REST");
    assert_eq!(decode_share(&raw).unwrap().protocol, None);
    raw["properties"]["shareQuota"] = json!(null);
    assert_eq!(decode_share(&raw).unwrap_err().to_string(), "properties.shareQuota is missing");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_holds_no_keys_is_not_quoted() {
    const KEY: &str = "bm90IGEga2V5IGJ1dCBsb29rcyBsaWtlIG9uZQ==";
    for body in [
        json!({"keys": KEY}),
        json!({"keys": [{"keyName": "key1", "value": [KEY]}]}),
        json!({"keys": [KEY]}),
        json!({"value": KEY}),
        json!([KEY]),
    ] {
        let fake = Fake::new([Reply::json(200, body)]);
        let storage = Storage::new(fake.arm(fake.in_process())).in_region(Some("westeurope"));
        let error = storage.list_keys(&account(), Priority::Read, &a_minute()).await.unwrap_err();
        assert_eq!((error.fault.clone(), error.effect), (Fault::Malformed, Effect::None));
        for text in [format!("{error:?}"), error.with_causes()] {
            assert!(!text.contains(KEY) && text.contains("listKeys"), "{text}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn requests_name_the_api_version_and_what_they_ask_for() {
    let shown = json!({"id": share().as_str(), "name": "pvc-1", "properties": {"shareQuota": 5}});
    let fake = Fake::new([
        Reply::json(200, shown.clone()),
        Reply::json(200, json!({"value": [shown, {"id": "odd"}]})),
        Reply::json(200, json!({"keys": []})),
        Reply::empty(204),
    ]);
    let storage = Storage::new(fake.arm(fake.in_process())).in_region(None);
    storage.get_share(&share(), Usage::Shown, Priority::Read, &a_minute()).await.unwrap();
    let list = ShareList { prefix: "pvc 1".into(), deleted: true, snapshots: true };
    let mut pages = storage.list_shares(&account(), &list, Priority::List, &a_minute()).unwrap();
    let page = pages.next_page().await.unwrap().unwrap();
    assert_eq!(page[0].as_ref().unwrap().id, share());
    let Unreadable { id, error } = page[1].as_ref().unwrap_err();
    assert_eq!((id.as_deref(), &error.fault), (Some("odd"), &Fault::Malformed));
    storage.list_keys(&account(), Priority::Read, &a_minute()).await.unwrap();
    storage.delete_share(&share(), None, &a_minute()).await.unwrap();
    let lines: Vec<String> = fake.log().into_iter().skip(1).map(|seen| seen.line).collect();
    let (account, share) = (format!("management.azure.com{}", account()), format!("management.azure.com{}", share()));
    assert_eq!(
        lines,
        [
            format!("GET {share}?api-version=2025-01-01&%24expand=stats"),
            format!(
                "GET {account}/fileServices/default/shares?api-version=2025-01-01&%24expand=deleted%2Csnapshots&%24filter=pvc%201"
            ),
            format!("POST {account}/listKeys?api-version=2025-01-01"),
            format!("DELETE {share}?api-version=2025-01-01&%24include=none"),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn an_accepted_write_whose_answer_cannot_be_read_may_have_happened() {
    let fake = Fake::new([Reply::json(201, json!({"id": share().as_str()}))]);
    let storage = Storage::new(fake.arm(fake.in_process())).in_region(None);
    let change = ShareChange::default();
    let error = storage.change_share(&share(), &change, None, &a_minute()).await.unwrap_err();
    assert_eq!((error.fault.clone(), error.effect), (Fault::Malformed, Effect::Possible), "{error}");
}
