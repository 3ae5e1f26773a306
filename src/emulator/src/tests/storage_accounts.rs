//! Storage accounts: their life, names, keys, and what is refused.

use base64::Engine;

use super::state_file::Folder;
use super::*;

const VERSION: &str = "2025-01-01";
const OTHER_SUB: &str = "/subscriptions/00000000-0000-0000-0000-000000000002";

pub(super) fn account_id(name: &str) -> String {
    format!("{}/providers/Microsoft.Storage/storageAccounts/{name}", group())
}

pub(super) fn account_uri(name: &str) -> String {
    format!("{}?api-version={VERSION}", account_id(name))
}

pub(super) fn action(name: &str, action: &str) -> String {
    format!("{}/{action}?api-version={VERSION}", account_id(name))
}

pub(super) fn account(sku: &str, kind: &str) -> Value {
    json!({"location": "westeurope", "sku": {"name": sku}, "kind": kind, "properties": {}})
}

impl Rig {
    async fn put_account(&self, name: &str, body: Value) -> Got {
        self.call("PUT", &account_uri(name), Some(body)).await
    }

    /// An account that is there.
    pub(super) async fn account(&self, name: &str, body: Value) -> Value {
        let got = self.put_account(name, body).await.expect(202);
        self.location_of(&got).await
    }

    /// Polls a `Location` to its end.
    async fn location_of(&self, got: &Got) -> Value {
        let url = got.header("location").to_owned();
        for _ in 0..100 {
            let polled = self.get(path_of(&url)).await;
            if polled.status != 202 {
                return polled.expect(200).body;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        panic!("the operation never ended");
    }

    pub(super) async fn keys(&self, name: &str) -> Vec<String> {
        let got = self.call("POST", &action(name, "listKeys"), None).await.expect(200);
        let keys = got.body["keys"].as_array().unwrap().clone();
        keys.iter().map(|key| key["value"].as_str().unwrap().to_owned()).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_creation_is_empty_answers_until_the_account_is_there() {
    let rig = Rig::new(slow()).await;
    let got = rig.put_account("files1", account("Standard_LRS", "Storage")).await.expect(202);
    assert_eq!((got.header("retry-after"), &got.body, got.header("azure-asyncoperation")), ("17", &Value::Null, ""));
    let url = got.header("location").to_owned();
    assert!(url.contains("/providers/Microsoft.Storage/locations/westeurope/asyncoperations/"), "{url}");
    assert!(url.contains("?monitor=true&api-version=2025-01-01"), "{url}");
    let polled = rig.get(path_of(&url)).await.expect(202);
    assert_eq!((polled.header("retry-after"), &polled.body), ("17", &Value::Null));
    assert!(polled.header("location").contains("/asyncoperations/"));
    let shown = rig.get(&account_uri("files1")).await.expect(200).body;
    assert_eq!(shown["properties"]["provisioningState"], "Creating");
    for name in ["listKeys", "regenerateKey"] {
        let refused = rig.call("POST", &action("files1", name), Some(json!({"keyName": "key1"}))).await;
        refused.refused(409, "StorageAccountIsNotProvisioned");
    }
    for method in ["PUT", "PATCH", "DELETE"] {
        let refused = rig.call(method, &account_uri("files1"), Some(account("Standard_LRS", "Storage"))).await;
        refused.refused(409, "StorageAccountOperationInProgress");
    }
    tokio::time::sleep(Duration::from_secs(20)).await;
    let made = rig.get(path_of(&url)).await.expect(200).body;
    assert_eq!(made, rig.get(&account_uri("files1")).await.expect(200).body);
    let members: Vec<&String> = made.as_object().unwrap().keys().collect();
    assert_eq!(members, ["sku", "kind", "id", "name", "type", "location", "properties"]);
    assert_eq!(made["sku"], json!({"name": "Standard_LRS", "tier": "Standard"}));
    let mut properties = made["properties"].clone();
    let created = properties["creationTime"].take().as_str().unwrap().to_owned();
    assert!(created.ends_with('Z') && created.len() == "2022-01-18T03:28:47.0960842Z".len(), "{created}");
    let encrypted = json!({"keyType": "Account", "enabled": true, "lastEnabledTime": created});
    let endpoint = |service: &str| format!("https://files1.{service}.core.windows.net/");
    assert_eq!(
        properties,
        json!({
            "provisioningState": "Succeeded",
            "keyCreationTime": {"key1": created, "key2": created},
            "privateEndpointConnections": [],
            "networkAcls": {
                "bypass": "AzureServices", "virtualNetworkRules": [], "ipRules": [], "defaultAction": "Allow",
            },
            "supportsHttpsTrafficOnly": true,
            "encryption": {"services": {"file": encrypted, "blob": encrypted}, "keySource": "Microsoft.Storage"},
            "creationTime": null,
            "primaryEndpoints": {
                "blob": endpoint("blob"), "queue": endpoint("queue"), "table": endpoint("table"),
                "file": endpoint("file"),
            },
            "primaryLocation": "westeurope",
            "statusOfPrimary": "available",
        })
    );
}

#[tokio::test(start_paused = true)]
async fn an_account_is_changed_listed_and_deleted_at_once() {
    let rig = Rig::new(options()).await;
    rig.account("first", account("Standard_RAGRS", "StorageV2")).await;
    rig.account("second", account("Premium_LRS", "FileStorage")).await;
    let change = json!({"tags": {"a": "b"}, "properties": {"minimumTlsVersion": "TLS1_2"}});
    let changed = rig.call("PATCH", &account_uri("first"), Some(change)).await.expect(200).body;
    assert_eq!((&changed["tags"], &changed["properties"]["minimumTlsVersion"]), (&json!({"a": "b"}), &json!("TLS1_2")));
    let mut body = account("Standard_RAGRS", "StorageV2");
    body["properties"] = json!({"largeFileSharesState": "enabled", "networkAcls": {
        "defaultAction": "Deny", "ipRules": [{"value": "1.2.3.4"}],
    }});
    let put = rig.put_account("first", body).await.expect(200).body;
    let properties = &put["properties"];
    // What it does not name stays.
    assert_eq!((&put["tags"], &properties["minimumTlsVersion"]), (&json!({"a": "b"}), &json!("TLS1_2")));
    assert_eq!(properties["largeFileSharesState"], "Enabled");
    assert_eq!(properties["networkAcls"]["ipRules"], json!([{"value": "1.2.3.4", "action": "Allow"}]));
    assert_eq!(properties["secondaryLocation"], "northeurope");
    assert_eq!(properties["secondaryEndpoints"]["blob"], "https://first-secondary.blob.core.windows.net/");
    assert_eq!(properties["creationTime"], changed["properties"]["creationTime"]);
    let second = rig.get(&account_uri("second")).await.expect(200).body;
    assert_eq!(second["sku"]["tier"], "Premium");
    assert_eq!(second["properties"]["primaryEndpoints"], json!({"file": "https://second.file.core.windows.net/"}));
    for scope in [SUB.to_owned(), group()] {
        let all = format!("{scope}/providers/Microsoft.Storage/storageAccounts?api-version={VERSION}");
        let all = rig.get(&all).await.expect(200).body;
        let names: Vec<&Value> = all["value"].as_array().unwrap().iter().map(|account| &account["name"]).collect();
        assert_eq!(names, ["first", "second"]);
    }
    rig.call("DELETE", &account_uri("first"), None).await.expect(200);
    rig.call("DELETE", &account_uri("first"), None).await.expect(204);
    rig.get(&account_uri("first")).await.refused(404, "ResourceNotFound");
    rig.call("PATCH", &account_uri("first"), Some(json!({}))).await.refused(404, "ResourceNotFound");
    let operations: Vec<String> = rig.control().call_log().iter().map(|call| call.operation.to_owned()).collect();
    for name in ["createOrUpdate", "update", "list", "delete"] {
        assert!(operations.contains(&format!("storageAccounts.{name}")), "{name}: {operations:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_creation_without_location_kind_or_sku_or_with_a_wrong_one_is_refused() {
    let rig = Rig::new(Options { throttling: false, ..options() }).await;
    let without = |member: &str| {
        let mut body = account("Standard_LRS", "StorageV2");
        body.as_object_mut().unwrap().remove(member);
        body
    };
    for (body, status, code, text) in [
        (without("location"), 400, "LocationRequired", "location"),
        (without("kind"), 400, "AccountPropertyIsInvalid", "Account property kind is invalid"),
        (without("sku"), 400, "AccountPropertyIsInvalid", "Account property sku is invalid"),
        (account("Fast_LRS", "StorageV2"), 400, "InvalidValuesForRequestParameters", "are invalid: sku."),
        (account("Standard_LRS", "Drawer"), 400, "InvalidValuesForRequestParameters", "are invalid: kind."),
        (account("Standard_LRS", "FileStorage"), 400, "InvalidValuesForRequestParameters", "are invalid: kind, sku."),
        (account("PremiumV2_LRS", "StorageV2"), 400, "InvalidValuesForRequestParameters", "are invalid: kind, sku."),
        (account("Standard_GZRS", "Storage"), 400, "InvalidValuesForRequestParameters", "are invalid: kind, sku."),
    ] {
        let refused = rig.put_account("account1", body).await.refused(status, code);
        assert!(refused.message().contains(text), "{}", refused.message());
    }
    let mut body = account("Standard_LRS", "Storage");
    body["properties"]["accessTier"] = json!("Cool");
    rig.put_account("account1", body).await.refused(400, "InvalidRequestPropertyValue");
    let mut body = account("Standard_LRS", "StorageV2");
    body["properties"]["allowEverything"] = json!(true);
    rig.put_account("account1", body).await.refused(400, "BadRequest");
    for (sku, kind) in [
        ("StandardV2_LRS", "FileStorage"),
        ("PremiumV2_ZRS", "filestorage"),
        ("premium_lrs", "BlockBlobStorage"),
        ("Premium_LRS", "StorageV2"),
        ("Standard_RAGZRS", "StorageV2"),
    ] {
        let name = format!("{}{}", kind.to_ascii_lowercase(), sku.len());
        let made = rig.account(&name, account(sku, kind)).await;
        assert!(made["kind"].as_str().unwrap().ends_with("Storage") || made["kind"] == "StorageV2", "{made}");
    }
}

#[tokio::test(start_paused = true)]
async fn names_are_of_lower_case_letters_and_digits_and_unique_over_all_subscriptions() {
    let subscriptions = [SUB, OTHER_SUB].map(|id| id.rsplit('/').next().unwrap().to_owned()).to_vec();
    let scenario = Scenario { subscriptions, ..scenario() };
    let rig = Rig::new(Options { scenario, ..options() }).await;
    rig.account("taken1", account("Standard_LRS", "StorageV2")).await;
    for name in ["ab", "Upper", "with-dash", "abcdefghijklmnopqrstuvwxy"] {
        let refused =
            rig.put_account(name, account("Standard_LRS", "StorageV2")).await.refused(400, "AccountNameInvalid");
        assert!(refused.message().starts_with(&format!("{name} is not a valid storage account name.")));
    }
    let available = |name: &str, scope: &str| {
        let uri = format!("{scope}/providers/Microsoft.Storage/checkNameAvailability?api-version={VERSION}");
        let body = json!({"name": name, "type": "Microsoft.Storage/storageAccounts"});
        (uri, body)
    };
    for (name, reason) in [("free1", None), ("taken1", Some("AlreadyExists")), ("No", Some("AccountNameInvalid"))] {
        let (uri, body) = available(name, SUB);
        let got = rig.call("POST", &uri, Some(body)).await.expect(200).body;
        match reason {
            None => assert_eq!(got, json!({"nameAvailable": true})),
            Some(reason) => assert_eq!((&got["nameAvailable"], &got["reason"]), (&json!(false), &json!(reason))),
        }
    }
    for (scope, code) in [(SUB, "StorageAccountAlreadyExists"), (OTHER_SUB, "StorageAccountAlreadyTaken")] {
        let other = format!("{scope}/resourceGroups/other");
        let group = format!("{other}?api-version=2021-04-01");
        rig.call("PUT", &group, Some(json!({"location": "westeurope"}))).await.expect(201);
        let uri = format!("{other}/providers/Microsoft.Storage/storageAccounts/taken1?api-version={VERSION}");
        rig.call("PUT", &uri, Some(account("Standard_LRS", "StorageV2"))).await.refused(409, code);
    }
}

#[tokio::test(start_paused = true)]
async fn keys_follow_from_the_seed_and_change_one_by_one() {
    let rig = Rig::new(options()).await;
    rig.account("keeper", account("Standard_LRS", "StorageV2")).await;
    let first = rig.keys("keeper").await;
    for key in &first {
        assert_eq!(base64::engine::general_purpose::STANDARD.decode(key).unwrap().len(), 64);
    }
    assert_ne!(first[0], first[1]);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let got = rig.call("POST", &action("keeper", "regenerateKey"), Some(json!({"keyName": "key2"}))).await.expect(200);
    assert_eq!(got.body["keys"][0]["value"], json!(first[0]));
    assert_ne!(got.body["keys"][1]["value"], json!(first[1]));
    assert_eq!(
        (&got.body["keys"][1]["keyName"], &got.body["keys"][1]["permissions"]),
        (&json!("key2"), &json!("FULL"))
    );
    let second = rig.keys("keeper").await;
    assert_eq!(json!(second[1]), got.body["keys"][1]["value"]);
    let times = rig.get(&account_uri("keeper")).await.expect(200).body["properties"]["keyCreationTime"].clone();
    assert_eq!(times["key2"], got.body["keys"][1]["creationTime"]);
    assert!(times["key1"].as_str() < times["key2"].as_str(), "{times}");
    rig.call("POST", &action("keeper", "regenerateKey"), Some(json!({"keyName": "key3"})))
        .await
        .refused(400, "InvalidRequestPropertyValue");
    rig.call("POST", &action("nobody", "listKeys"), None).await.refused(404, "ResourceNotFound");
    // Another run of the same seed has the same keys, another account others.
    let again = Rig::new(options()).await;
    again.account("keeper", account("Standard_LRS", "StorageV2")).await;
    again.account("other1", account("Standard_LRS", "StorageV2")).await;
    assert_eq!(again.keys("keeper").await, first);
    assert_ne!(again.keys("other1").await, first);
    let seeded = Rig::new(Options { seed: 99, ..options() }).await;
    seeded.account("keeper", account("Standard_LRS", "StorageV2")).await;
    assert_ne!(seeded.keys("keeper").await, first);
    // An account that is made again has other keys than before.
    rig.call("DELETE", &account_uri("keeper"), None).await.expect(200);
    rig.account("keeper", account("Standard_LRS", "StorageV2")).await;
    let third = rig.keys("keeper").await;
    assert!(!third.iter().any(|key| first.contains(key) || second.contains(key)));
}

#[tokio::test(start_paused = true)]
async fn what_is_set_at_creation_stays() {
    let rig = Rig::new(options()).await;
    let mut body = account("Standard_LRS", "StorageV2");
    body["properties"]["largeFileSharesState"] = json!("Enabled");
    rig.account("fixed1", body).await;
    for change in [
        json!({"kind": "FileStorage", "sku": {"name": "Premium_LRS"}}),
        json!({"properties": {"isHnsEnabled": true}}),
        json!({"properties": {"largeFileSharesState": "Disabled"}}),
        json!({"properties": {"encryption": {"requireInfrastructureEncryption": true}}}),
        json!({"sku": {"name": "Standard_ZRS"}}),
        json!({"sku": {"name": "Premium_LRS"}}),
    ] {
        let got = rig.call("PATCH", &account_uri("fixed1"), Some(change.clone())).await;
        assert_eq!((got.status, got.code()), (400, "AccountPropertyCannotBeUpdated"), "{change}: {}", got.body);
    }
    let grown = json!({"sku": {"name": "Standard_GRS"}});
    let grown = rig.call("PATCH", &account_uri("fixed1"), Some(grown)).await.expect(200).body;
    assert_eq!(grown["properties"]["secondaryLocation"], "northeurope");
    let mut elsewhere = account("Standard_LRS", "StorageV2");
    elsewhere["location"] = json!("eastus");
    rig.put_account("fixed1", elsewhere).await.refused(409, "InvalidResourceLocation");
    rig.account("older1", account("Standard_LRS", "Storage")).await;
    let upgraded = rig.call("PATCH", &account_uri("older1"), Some(json!({"kind": "StorageV2"}))).await.expect(200).body;
    assert_eq!(upgraded["properties"]["accessTier"], "Hot");
}

#[tokio::test(start_paused = true)]
async fn a_region_takes_ten_writes_a_second_and_a_hundred_lists_in_five_minutes() {
    let rig = Rig::new(options()).await;
    rig.account("busy1", account("Standard_LRS", "StorageV2")).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let uri = account_uri("busy1");
    let write = || rig.call("PATCH", &uri, Some(json!({"tags": {}})));
    for _ in 0..10 {
        write().await.expect(200);
    }
    let refused = write().await.refused(429, "TooManyRequests");
    assert!(refused.message().contains("limit has been reached for operation type - Write."), "{}", refused.message());
    assert_eq!(refused.header("retry-after"), "1");
    tokio::time::sleep(Duration::from_secs(1)).await;
    write().await.expect(200);
    let all = format!("{}/providers/Microsoft.Storage/storageAccounts?api-version={VERSION}", group());
    for _ in 0..100 {
        rig.get(&all).await.expect(200);
    }
    let refused = rig.get(&all).await.refused(429, "TooManyRequests");
    assert!(refused.message().contains("operation type - List."), "{}", refused.message());
    let wait: u64 = refused.header("retry-after").parse().unwrap();
    assert!((1..=300).contains(&wait), "{wait}");
    tokio::time::sleep(Duration::from_secs(wait)).await;
    rig.get(&all).await.expect(200);
    let free = Rig::new(Options { throttling: false, ..options() }).await;
    for _ in 0..120 {
        free.get(&all).await.expect(200);
    }
}

#[tokio::test(start_paused = true)]
async fn an_hour_takes_1200_writes_and_five_minutes_800_reads() {
    let rig = Rig::new(options()).await;
    rig.account("busy1", account("Standard_LRS", "StorageV2")).await;
    let (mut writes, mut waited) = (1, 0);
    let refused = loop {
        let got = rig.call("PATCH", &account_uri("busy1"), Some(json!({"tags": {}}))).await;
        match (got.status, got.header("retry-after")) {
            (200, _) => writes += 1,
            (429, "1") => {
                waited += 1;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            _ => break got,
        }
        assert!(writes < 2_000 && waited < 2_000);
    };
    refused.refused(429, "TooManyRequests");
    assert_eq!(writes, 1_200);
    let mut reads = 0;
    let refused = loop {
        let got = rig.get(&account_uri("busy1")).await;
        match (got.status, got.code()) {
            (200, _) => reads += 1,
            // The front door's own limit.
            (429, "SubscriptionRequestsThrottled") => tokio::time::sleep(Duration::from_secs(1)).await,
            _ => break got,
        }
        assert!(reads < 2_000);
    };
    assert!(refused.refused(429, "TooManyRequests").message().contains("operation type - Read."));
    assert_eq!(reads, 800);
}

#[tokio::test(start_paused = true)]
async fn an_account_that_is_being_created_is_there_after_a_restart_and_keys_stay() {
    let folder = Folder::new("storage");
    let rig = Rig::new(folder.options()).await;
    rig.account("keeper", account("Standard_LRS", "StorageV2")).await;
    let body = json!({"keyName": "key1"});
    rig.call("POST", &action("keeper", "regenerateKey"), Some(body)).await.expect(200);
    let keys = rig.keys("keeper").await;
    rig.put_account("inflight", account("Standard_LRS", "StorageV2")).await.expect(202);
    rig.emulator.shutdown().await;
    let again = Rig::new(folder.options()).await;
    assert_eq!(again.keys("keeper").await, keys);
    assert_eq!(again.keys("inflight").await.len(), 2);
    let shown = again.get(&account_uri("inflight")).await.expect(200).body;
    assert_eq!(shown["properties"]["provisioningState"], "Succeeded");
    again.emulator.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_page_and_the_control_interface_show_no_key_and_the_page_nothing_of_the_emulators_own() {
    let rig = Rig::new(options()).await;
    rig.account("keeper", account("Standard_LRS", "StorageV2")).await;
    let renew = json!({"keyName": "key1"});
    let before = rig.keys("keeper").await;
    rig.call("POST", &action("keeper", "regenerateKey"), Some(renew)).await.expect(200);
    let keys = [before, rig.keys("keeper").await].concat();
    for path in ["/_emulator/overview", "/_emulator/state", "/_emulator/calls"] {
        let shown = rig.get(path).await.expect(200).body.to_string();
        assert!(shown.contains("keeper"), "{path}: {shown}");
        assert!(!keys.iter().any(|key| shown.contains(key.as_str())), "{path}");
        assert!(path != "/_emulator/overview" || !shown.contains("storageKeys"), "{shown}");
    }
}
