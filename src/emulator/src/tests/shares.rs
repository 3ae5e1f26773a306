//! File services and file shares: their life, sizes, snapshots, soft delete, lists, and what is refused.

use super::storage_accounts::{account, account_id};
use super::*;

const VERSION: &str = "2025-01-01";

fn service_uri(account: &str) -> String {
    format!("{}/fileServices/default?api-version={VERSION}", account_id(account))
}

fn share_id(account: &str, name: &str) -> String {
    format!("{}/fileServices/default/shares/{name}", account_id(account))
}

fn share_uri(account: &str, name: &str) -> String {
    format!("{}?api-version={VERSION}", share_id(account, name))
}

fn list_uri(account: &str, more: &str) -> String {
    format!("{}/fileServices/default/shares?api-version={VERSION}{more}", account_id(account))
}

fn sized(gib: u64) -> Value {
    json!({"properties": {"shareQuota": gib}})
}

fn names(list: &Value) -> Vec<&str> {
    list["value"].as_array().unwrap().iter().map(|share| share["name"].as_str().unwrap()).collect()
}

impl Rig {
    /// Without the provider's limit of ten writes a second, and with a token that outlives days.
    async fn files(sku: &str, kind: &str) -> Self {
        Self::files_with(options(), sku, kind).await
    }

    async fn files_with(options: Options, sku: &str, kind: &str) -> Self {
        let rig = Self::new(Options { throttling: false, accept_any_token: true, ..options }).await;
        rig.account("files", account(sku, kind)).await;
        rig
    }

    async fn put_share(&self, name: &str, body: Value) -> Got {
        self.call("PUT", &share_uri("files", name), Some(body)).await
    }

    async fn share_snapshot(&self, name: &str) -> String {
        let uri = format!("{}&$expand=snapshots", share_uri("files", name));
        let made = self.call("PUT", &uri, Some(json!({}))).await.expect(201).body;
        made["properties"]["snapshotTime"].as_str().unwrap().to_owned()
    }

    async fn shares(&self, more: &str) -> Value {
        self.get(&list_uri("files", more)).await.expect(200).body
    }

    async fn keep_deleted(&self, policy: Value) -> Got {
        let body = json!({"properties": {"shareDeleteRetentionPolicy": policy}});
        self.call("PUT", &service_uri("files"), Some(body)).await
    }
}

#[tokio::test(start_paused = true)]
async fn the_file_service_keeps_deleted_shares_for_seven_days_until_it_is_told_otherwise() {
    let rig = Rig::files("Standard_LRS", "StorageV2").await;
    let service = rig.get(&service_uri("files")).await.expect(200).body;
    assert_eq!(service["sku"], json!({"name": "Standard_LRS", "tier": "Standard"}));
    assert_eq!(service["name"], "default");
    assert_eq!(
        service["properties"],
        json!({
            "protocolSettings": {"smb": {}},
            "cors": {"corsRules": []},
            "shareDeleteRetentionPolicy": {"enabled": true, "days": 7},
        })
    );
    let body = json!({"properties": {
        "shareDeleteRetentionPolicy": {"enabled": true, "days": 30},
        "protocolSettings": {"smb": {"versions": "SMB3.1.1;"}},
    }});
    let written = rig.call("PUT", &service_uri("files"), Some(body)).await.expect(200).body;
    assert_eq!(written["properties"]["shareDeleteRetentionPolicy"], json!({"enabled": true, "days": 30}));
    rig.keep_deleted(json!({"enabled": false})).await.expect(200);
    let list = format!("{}/fileServices?api-version={VERSION}", account_id("files"));
    let list = rig.get(&list).await.expect(200).body;
    let shown = &list["value"][0]["properties"];
    assert_eq!(shown["shareDeleteRetentionPolicy"], json!({"enabled": false, "days": 0}));
    assert_eq!(shown["protocolSettings"]["smb"]["versions"], "SMB3.1.1;");
    for policy in [json!({"enabled": true}), json!({"enabled": true, "days": 366}), json!({"enabled": true, "days": 0})]
    {
        rig.keep_deleted(policy).await.refused(400, "InvalidXmlNodeValue");
    }
    let refused = rig.call("DELETE", &service_uri("files"), None).await;
    refused.refused(405, "MethodNotAllowed");
    let gone = rig.get(&service_uri("nobody")).await.refused(404, "ParentResourceNotFound");
    assert_eq!(
        gone.message(),
        format!(
            "Failed to perform 'read' on resource(s) of type 'storageAccounts/fileServices', because the parent resource '{}' could not be found.",
            account_id("nobody")
        )
    );
    rig.account("blobs", account("Premium_LRS", "BlockBlobStorage")).await;
    rig.get(&service_uri("blobs")).await.refused(409, "FeatureNotSupportedForAccount");
}

#[tokio::test(start_paused = true)]
async fn a_share_is_created_read_changed_and_deleted_at_once() {
    let rig = Rig::files("Standard_LRS", "StorageV2").await;
    let made = rig.put_share("share1", json!({"properties": {"metadata": {"a": "b"}}})).await.expect(201).body;
    assert_eq!((&made["id"], &made["name"]), (&json!(share_id("files", "share1")), &json!("share1")));
    assert_eq!(made["type"], "Microsoft.Storage/storageAccounts/fileServices/shares");
    let etag = made["etag"].as_str().unwrap().to_owned();
    assert!(etag.starts_with("\"0x8D") && etag.len() == 19, "{etag}");
    let properties = &made["properties"];
    assert_eq!((&properties["shareQuota"], &properties["accessTier"]), (&json!(5120), &json!("TransactionOptimized")));
    assert_eq!(properties["enabledProtocols"], "SMB");
    assert_eq!(rig.get(&share_uri("files", "share1")).await.expect(200).body, made);
    let with_usage = format!("{}&$expand=stats", share_uri("files", "share1"));
    assert_eq!(rig.get(&with_usage).await.expect(200).body["properties"]["shareUsageBytes"], 0);
    let change = json!({"properties": {"shareQuota": 100, "metadata": {"c": "d"}, "accessTier": "hot"}});
    let changed = rig.call("PATCH", &share_uri("files", "share1"), Some(change)).await.expect(200).body;
    assert_eq!(changed["properties"]["metadata"], json!({"c": "d"}));
    assert_eq!(
        (&changed["properties"]["shareQuota"], &changed["properties"]["accessTier"]),
        (&json!(100), &json!("Hot"))
    );
    assert_ne!(changed["etag"], json!(etag));
    let again = rig.put_share("share1", json!({"properties": {}})).await.expect(200).body;
    assert_eq!(again, changed);
    rig.call("DELETE", &share_uri("files", "share1"), None).await.expect(200);
    rig.call("DELETE", &share_uri("files", "share1"), None).await.expect(204);
    let missing = rig.get(&share_uri("files", "share1")).await.refused(404, "ShareNotFound");
    let lines: Vec<&str> = missing.message().lines().collect();
    assert_eq!(lines[0], "The specified share does not exist.");
    assert!(lines[1].starts_with("RequestId:") && lines[2].starts_with("Time:20"), "{lines:?}");
    rig.call("PATCH", &share_uri("files", "share1"), Some(json!({}))).await.refused(404, "ShareNotFound");
    rig.call("PUT", &share_uri("nobody", "share1"), Some(json!({}))).await.refused(404, "ParentResourceNotFound");
    let operations: Vec<String> = rig.control().call_log().iter().map(|call| call.operation.to_owned()).collect();
    assert!(operations.contains(&"fileShares.createOrUpdate".to_owned()), "{operations:?}");
}

#[tokio::test(start_paused = true)]
async fn wrong_names_sizes_tiers_and_queries_are_refused_in_the_file_services_words() {
    let rig = Rig::files("Standard_LRS", "StorageV2").await;
    for (name, code) in [
        ("ab", "OutOfRangeInput"),
        ("Upper", "InvalidResourceName"),
        ("two--dashes", "InvalidResourceName"),
        ("dash-", "InvalidResourceName"),
        ("under_score", "InvalidResourceName"),
    ] {
        rig.put_share(name, json!({})).await.refused(400, code);
    }
    rig.put_share(&"a".repeat(64), json!({})).await.refused(400, "OutOfRangeInput");
    for body in [
        sized(0),
        sized(5121),
        json!({"properties": {"accessTier": "Premium"}}),
        json!({"properties": {"provisionedIops": 3000}}),
        json!({"properties": {"rootSquash": "NoRootSquash"}}),
    ] {
        rig.put_share("share1", body).await.refused(400, "InvalidHeaderValue");
    }
    let nfs = json!({"properties": {"enabledProtocols": "NFS"}});
    rig.put_share("share1", nfs).await.refused(409, "FeatureNotSupportedForAccount");
    rig.put_share("share1", json!({"properties": {"shareSize": 1}})).await.refused(400, "BadRequest");
    rig.put_share("share1", sized(10)).await.expect(201);
    for uri in [
        format!("{}&$expand=everything", share_uri("files", "share1")),
        list_uri("files", "&$maxpagesize=none"),
        list_uri("files", "&$expand=everything"),
    ] {
        rig.get(&uri).await.refused(400, "InvalidQueryParameterValue");
    }
}

#[tokio::test(start_paused = true)]
async fn sizes_and_numbers_of_shares_follow_from_the_sku() {
    for (sku, kind, least, most, default) in [
        ("Standard_LRS", "StorageV2", 1, 5_120, 5_120),
        ("Premium_LRS", "FileStorage", 100, 102_400, 102_400),
        ("StandardV2_LRS", "FileStorage", 32, 262_144, 1_024),
        ("PremiumV2_LRS", "FileStorage", 32, 262_144, 1_024),
    ] {
        let rig = Rig::files(sku, kind).await;
        rig.keep_deleted(json!({"enabled": false})).await.expect(200);
        for (name, body, gib) in
            [("least", sized(least), least), ("most", sized(most), most), ("plain", json!({}), default)]
        {
            let made = rig.put_share(name, body).await.expect(201).body;
            assert_eq!(made["properties"]["shareQuota"], gib, "{sku}");
            rig.call("DELETE", &share_uri("files", name), None).await.expect(200);
        }
        for gib in [least - 1, most + 1] {
            rig.put_share("wrong", sized(gib)).await.refused(400, "InvalidHeaderValue");
        }
    }
    let mut large = account("Standard_LRS", "StorageV2");
    large["properties"]["largeFileSharesState"] = json!("Enabled");
    let rig = Rig::files("StandardV2_LRS", "FileStorage").await;
    rig.account("large", large).await;
    let made = rig.call("PUT", &share_uri("large", "share1"), Some(json!({}))).await.expect(201).body;
    assert_eq!(made["properties"]["shareQuota"], 102_400);
    let made = rig.put_share("share0", sized(100)).await.expect(201).body;
    assert_eq!(
        (&made["properties"]["provisionedIops"], &made["properties"]["provisionedBandwidthMibps"]),
        (&json!(1020), &json!(62))
    );
    rig.put_share("wrong", json!({"properties": {"provisionedIops": 499}})).await.refused(400, "InvalidHeaderValue");
    for number in 1..50 {
        rig.put_share(&format!("share{number}"), sized(32)).await.expect(201);
    }
    rig.put_share("onemore", sized(32)).await.refused(409, "TotalSharesCountExceedsAccountLimit");
    // Those that are kept after their deletion count.
    rig.call("DELETE", &share_uri("files", "share1"), None).await.expect(200);
    rig.put_share("onemore", sized(32)).await.refused(409, "TotalSharesCountExceedsAccountLimit");
    let premium = Rig::files("Premium_LRS", "FileStorage").await;
    premium.put_share("half", sized(51_200)).await.expect(201);
    premium.put_share("toomuch", sized(51_201)).await.refused(409, "TotalSharesProvisionedCapacityExceedsAccountLimit");
    premium.put_share("other", sized(51_200)).await.expect(201);
    let grown = premium.call("PATCH", &share_uri("files", "other"), Some(sized(51_201))).await;
    grown.refused(409, "TotalSharesProvisionedCapacityExceedsAccountLimit");
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_shows_the_share_as_it_was_and_goes_with_it_unless_it_shall_not() {
    let rig = Rig::files("Standard_LRS", "StorageV2").await;
    rig.put_share("share1", sized(10)).await.expect(201);
    let first = rig.share_snapshot("share1").await;
    let second = rig.share_snapshot("share1").await;
    assert_ne!(first, second);
    rig.call("PATCH", &share_uri("files", "share1"), Some(sized(20))).await.expect(200);
    let header: &[(&str, &str)] = &[("x-ms-snapshot", &first)];
    let shown = rig.with("GET", &share_uri("files", "share1"), None, header).await.expect(200).body;
    assert_eq!((&shown["properties"]["shareQuota"], &shown["properties"]["snapshotTime"]), (&json!(10), &json!(first)));
    assert_eq!(shown["id"], share_id("files", "share1"));
    let all = rig.shares("&$expand=snapshots").await;
    let times: Vec<&Value> =
        all["value"].as_array().unwrap().iter().map(|item| &item["properties"]["snapshotTime"]).collect();
    assert_eq!(times, [&Value::Null, &json!(first), &json!(second)]);
    assert_eq!(names(&rig.shares("").await), ["share1"]);
    let whole = format!("{}&$include=none", share_uri("files", "share1"));
    rig.call("DELETE", &whole, None).await.refused(409, "ShareHasSnapshots");
    rig.with("DELETE", &share_uri("files", "share1"), None, header).await.expect(200);
    rig.with("DELETE", &share_uri("files", "share1"), None, header).await.expect(204);
    rig.with("GET", &share_uri("files", "share1"), None, header).await.refused(404, "ShareSnapshotNotFound");
    rig.call("DELETE", &format!("{}&$include=all", share_uri("files", "share1")), None)
        .await
        .refused(400, "InvalidQueryParameterValue");
    let missing = format!("{}&$expand=snapshots", share_uri("files", "nobody"));
    rig.call("PUT", &missing, Some(json!({}))).await.refused(404, "ShareNotFound");
    rig.call("DELETE", &share_uri("files", "share1"), None).await.expect(200);
    assert_eq!(rig.shares("&$expand=snapshots").await["value"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn a_leased_share_is_not_deleted_until_its_lease_is_over() {
    let rig = Rig::files("Standard_LRS", "StorageV2").await;
    rig.put_share("data", sized(5)).await.expect(201);
    let uri = format!("{}/lease?api-version={VERSION}", share_id("files", "data"));
    let acquired = rig.call("POST", &uri, Some(json!({"action": "Acquire", "leaseDuration": 20}))).await.expect(200);
    assert!(acquired.body["leaseId"].is_string(), "{}", acquired.body);
    let shown = rig.get(&share_uri("files", "data")).await.expect(200).body["properties"].clone();
    assert_eq!((&shown["leaseStatus"], &shown["leaseState"]), (&json!("locked"), &json!("leased")));
    assert_eq!(shown["leaseDuration"], "fixed");
    let refused = rig.call("DELETE", &share_uri("files", "data"), None).await.expect(412);
    assert_eq!(refused.code(), "LeaseIdMissing");
    let again = rig.call("POST", &uri, Some(json!({"action": "Acquire", "leaseDuration": -1}))).await.expect(409);
    assert_eq!(again.code(), "LeaseAlreadyPresent");
    rig.share_snapshot("data").await;
    let listed = rig.shares("&$expand=snapshots").await;
    let states: Vec<&Value> =
        listed["value"].as_array().unwrap().iter().map(|share| &share["properties"]["leaseState"]).collect();
    assert_eq!(states, [&json!("leased"), &json!("available")], "the snapshot has no lease");
    tokio::time::advance(Duration::from_secs(21)).await;
    let shown = rig.get(&share_uri("files", "data")).await.expect(200).body["properties"].clone();
    assert_eq!((&shown["leaseState"], shown.get("leaseDuration")), (&json!("expired"), None));
    rig.call("DELETE", &share_uri("files", "data"), None).await.expect(200);
    let missing = rig.call("POST", &uri, Some(json!({"action": "Break"}))).await.expect(404);
    assert_eq!(missing.code(), "ShareNotFound");
    rig.put_share("data", sized(5)).await.expect(201);
    let none = rig.call("POST", &uri, Some(json!({"action": "Break"}))).await.expect(409);
    assert_eq!(none.code(), "LeaseNotPresentWithLeaseOperation", "the lease went with its share");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_share_comes_back_with_its_snapshots_until_its_days_are_over() {
    let rig = Rig::files("Standard_LRS", "StorageV2").await;
    let made = rig.put_share("share1", sized(10)).await.expect(201).body;
    let time = rig.share_snapshot("share1").await;
    rig.call("DELETE", &share_uri("files", "share1"), None).await.expect(200);
    assert_eq!(rig.shares("").await["value"], json!([]));
    let deleted = rig.shares("&$expand=deleted").await["value"][0].clone();
    let version = deleted["properties"]["version"].as_str().unwrap().to_owned();
    assert_eq!((&deleted["name"], &deleted["properties"]["deleted"]), (&json!("share1"), &json!(true)));
    assert_eq!(deleted["id"], share_id("files", &format!("share1_{version}")));
    assert_eq!(deleted["properties"]["remainingRetentionDays"], 7);
    assert_eq!(rig.shares("&$expand=deleted,snapshots").await["value"].as_array().unwrap().len(), 2);
    // Its name is free meanwhile, but then it cannot come back under it.
    rig.put_share("share1", sized(20)).await.expect(201);
    let restore = |name: &str| format!("{}/restore?api-version={VERSION}", share_id("files", name));
    let body = json!({"deletedShareName": "share1", "deletedShareVersion": version});
    rig.call("POST", &restore("share1"), Some(body.clone())).await.refused(409, "ShareAlreadyExists");
    rig.call("DELETE", &share_uri("files", "share1"), None).await.expect(200);
    tokio::time::sleep(Duration::from_secs(36 * 3600)).await;
    let both = rig.shares("&$expand=deleted").await;
    assert_eq!(names(&both), ["share1", "share1"]);
    assert_eq!(both["value"][0]["properties"]["remainingRetentionDays"], 6);
    rig.call("POST", &restore("share1"), Some(body.clone())).await.expect(200);
    let back = rig.get(&share_uri("files", "share1")).await.expect(200).body;
    for member in ["id", "name", "type", "properties"] {
        assert_eq!(back[member], made[member], "{member}");
    }
    let with_snapshots = rig.shares("&$expand=snapshots").await;
    assert_eq!(with_snapshots["value"][1]["properties"]["snapshotTime"], json!(time));
    rig.call("POST", &restore("other1"), Some(body)).await.refused(404, "ShareNotFound");
    tokio::time::sleep(Duration::from_secs(6 * 24 * 3600)).await;
    assert_eq!(names(&rig.shares("&$expand=deleted").await), ["share1"]);
    assert!(rig.shares("&$expand=deleted").await["value"][0]["properties"].get("deleted").is_none());
}

#[tokio::test(start_paused = true)]
async fn without_soft_delete_a_name_is_free_half_a_minute_after_its_share_has_gone() {
    let rig = Rig::files_with(slow(), "Standard_LRS", "StorageV2").await;
    rig.keep_deleted(json!({"enabled": false, "days": 0})).await.expect(200);
    rig.put_share("share1", json!({})).await.expect(201);
    rig.call("DELETE", &share_uri("files", "share1"), None).await.expect(200);
    rig.get(&share_uri("files", "share1")).await.refused(404, "ShareNotFound");
    assert_eq!(rig.shares("&$expand=deleted").await["value"], json!([]));
    let refused = rig.put_share("share1", json!({})).await.refused(409, "ShareBeingDeleted");
    assert!(refused.message().starts_with("The specified share is being deleted. Try operation later."));
    tokio::time::sleep(Duration::from_secs(31)).await;
    rig.put_share("share1", json!({})).await.expect(201);
}

#[tokio::test(start_paused = true)]
async fn shares_are_listed_in_pages_and_by_the_beginning_of_their_names() {
    let rig = Rig::files("Standard_LRS", "StorageV2").await;
    for name in ["a-b", "abc", "abd", "xyz"] {
        rig.put_share(name, sized(1)).await.expect(201);
    }
    assert_eq!(names(&rig.shares("").await), ["a-b", "abc", "abd", "xyz"]);
    assert_eq!(names(&rig.shares("&$filter=ab").await), ["abc", "abd"]);
    let first = rig.shares("&$maxpagesize=3").await;
    assert_eq!(names(&first), ["a-b", "abc", "abd"]);
    let next = first["nextLink"].as_str().unwrap().to_owned();
    assert!(next.contains("skipToken="), "{next}");
    // What has gone meanwhile hides nothing.
    rig.call("DELETE", &share_uri("files", "abd"), None).await.expect(200);
    let second = rig.get(path_of(&next)).await.expect(200).body;
    assert_eq!(names(&second), ["xyz"]);
    assert!(second.get("nextLink").is_none());
}

#[tokio::test(start_paused = true)]
async fn shares_go_with_their_account_and_the_account_with_its_group() {
    let rig = Rig::files("Standard_LRS", "StorageV2").await;
    rig.put_share("share1", json!({})).await.expect(201);
    rig.put_share("share2", json!({})).await.expect(201);
    rig.share_snapshot("share1").await;
    rig.call("DELETE", &share_uri("files", "share2"), None).await.expect(200);
    let resources = format!("{}/resources?api-version=2021-04-01", group());
    let listed = rig.get(&resources).await.expect(200).body.to_string();
    assert!(listed.contains("Microsoft.Storage/storageAccounts") && !listed.contains("fileServices"), "{listed}");
    let uri = format!("{}?api-version={VERSION}", account_id("files"));
    rig.call("DELETE", &uri, None).await.expect(200);
    rig.account("files", account("Standard_LRS", "StorageV2")).await;
    assert_eq!(rig.shares("&$expand=deleted").await["value"], json!([]));
    rig.put_share("share1", json!({})).await.expect(201);
    let group_uri = format!("{}?api-version=2021-04-01", group());
    rig.call("DELETE", &group_uri, None).await.expect(202);
    tokio::time::sleep(Duration::from_secs(60)).await;
    rig.get(&uri).await.refused(404, "ResourceGroupNotFound");
    assert_eq!(rig.control().store(|store| store.document(&share_id("files", "share1"))), None);
}
