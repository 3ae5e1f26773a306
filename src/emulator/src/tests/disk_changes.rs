//! Disks under changes of SKU and state, and under shared access signatures.

use super::state_file::Folder;
use super::*;

async fn change_sku(rig: &Rig, name: &str, sku: &str) -> Got {
    rig.call("PATCH", &disk_uri(name), Some(json!({"sku": {"name": sku}}))).await
}

async fn access(rig: &Rig, name: &str, verb: &str, body: Option<Value>) -> Got {
    rig.call("POST", &format!("{}/{verb}?api-version={DISKS_VERSION}", disk_id(name)), body).await
}

const DAY: Duration = Duration::from_hours(24);

impl Rig {
    /// Changes a disk and waits for the end.
    async fn changed(&self, name: &str, patch: Value) -> Value {
        let got = self.call("PATCH", &disk_uri(name), Some(patch)).await.expect(202);
        assert_eq!(self.finish(&got).await["status"], "Succeeded");
        self.disk_doc(name).await
    }

    async fn not_changed(&self, name: &str, patch: Value) -> Got {
        self.call("PATCH", &disk_uri(name), Some(patch)).await.refused(409, "OperationNotAllowed")
    }
}

fn state(disk: &Value) -> &str {
    disk["properties"]["diskState"].as_str().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_sku_becomes_another_where_azure_converts() {
    let mut rig = Rig::new(options()).await;
    rig.disk("regional").await;
    for sku in ["StandardSSD_LRS", "Premium_ZRS", "StandardSSD_ZRS", "Standard_LRS"] {
        let got = change_sku(&rig, "regional", sku).await.expect(202);
        rig.finish(&got).await;
        assert_eq!(rig.disk_doc("regional").await["sku"]["name"], sku);
        rig.wait(DAY / 2).await;
    }
    change_sku(&rig, "regional", "PremiumV2_LRS").await.refused(400, "BadRequest");
    change_sku(&rig, "regional", "UltraSSD_LRS").await.refused(409, "OperationNotAllowed");
    rig.disk_with("zonal", json!({"zones": ["1"]})).await;
    change_sku(&rig, "zonal", "Premium_ZRS").await.refused(409, "OperationNotAllowed");
    let got = change_sku(&rig, "zonal", "PremiumV2_LRS").await.expect(202);
    rig.finish(&got).await;
    assert_eq!(rig.disk_doc("zonal").await["properties"]["creationData"]["logicalSectorSize"], 512);
    change_sku(&rig, "zonal", "Premium_LRS").await.refused(409, "OperationNotAllowed");
}

#[tokio::test(start_paused = true)]
async fn a_cached_or_bursting_disk_does_not_become_premium_v2() {
    let rig = Rig::new(options()).await;
    rig.disk_with("cached", json!({"zones": ["1"]})).await;
    rig.attached("zonal-0", &[("cached", 0)]).await;
    let stop = format!("{}/deallocate?api-version={COMPUTE_VERSION}", vm_id("zonal-0"));
    let got = rig.call("POST", &stop, None).await.expect(202);
    rig.finish(&got).await;
    let got = change_sku(&rig, "cached", "PremiumV2_LRS").await.refused(409, "OperationNotAllowed");
    assert!(got.message().ends_with("host caching must be set to None first."), "{}", got.message());
    let mut element = element("cached", 0);
    element["caching"] = json!("None");
    let got = rig.put_data_disks("zonal-0", json!([element])).await.expect(200);
    rig.finish(&got).await;
    let got = change_sku(&rig, "cached", "PremiumV2_LRS").await.expect(202);
    rig.finish(&got).await;
    assert_eq!(rig.disk_doc("cached").await["properties"]["completionPercent"], 100);
    let mut bursting = premium(1024);
    bursting["zones"] = json!(["1"]);
    bursting["properties"]["burstingEnabled"] = json!(true);
    let got = rig.put_disk("bursting", bursting).await.expect(202);
    rig.finish(&got).await;
    change_sku(&rig, "bursting", "PremiumV2_LRS").await.refused(409, "OperationNotAllowed");
}

#[tokio::test(start_paused = true)]
async fn sectors_are_chosen_on_ultra_and_premium_v2_only_and_are_of_4096_bytes_else() {
    let rig = Rig::new(options()).await;
    let body = |sku: &str, size: Option<u64>| {
        let mut body = empty_disk(sku, 8);
        body["zones"] = json!(["1"]);
        if let Some(size) = size {
            body["properties"]["creationData"]["logicalSectorSize"] = json!(size);
        }
        body
    };
    rig.put_disk("a", body("Premium_LRS", Some(512))).await.refused(400, "InvalidParameter");
    rig.put_disk("a", body("PremiumV2_LRS", Some(1024))).await.refused(400, "InvalidParameter");
    for (name, sku, asked, shown) in [
        ("a", "PremiumV2_LRS", None, json!(4096)),
        ("b", "UltraSSD_LRS", Some(512), json!(512)),
        ("c", "Premium_LRS", None, Value::Null),
    ] {
        let got = rig.put_disk(name, body(sku, asked)).await.expect(202);
        rig.finish(&got).await;
        assert_eq!(rig.disk_doc(name).await["properties"]["creationData"]["logicalSectorSize"], shown);
    }
    // The same request again is no change.
    rig.put_disk("a", body("PremiumV2_LRS", None)).await.expect(202);
}

#[tokio::test(start_paused = true)]
async fn an_encryption_without_a_type_is_by_the_key_that_it_names() {
    let rig = Rig::new(options()).await;
    let set = format!("{}/providers/Microsoft.Compute/diskEncryptionSets/set", group());
    let mut body = premium(8);
    body["properties"]["encryption"] = json!({"diskEncryptionSetId": set});
    let got = rig.put_disk("d", body).await.expect(202);
    rig.finish(&got).await;
    assert_eq!(
        rig.disk_doc("d").await["properties"]["encryption"],
        json!({"diskEncryptionSetId": set, "type": "EncryptionAtRestWithCustomerKey"})
    );
}

#[tokio::test(start_paused = true)]
async fn a_shared_disk_grows_only_while_nobody_runs_with_it() {
    let rig = Rig::new(options()).await;
    let mut body = empty_disk("PremiumV2_LRS", 8);
    body["zones"] = json!(["1"]);
    body["properties"]["maxShares"] = json!(2);
    let got = rig.put_disk("shared", body).await.expect(202);
    rig.finish(&got).await;
    rig.attached("zonal-0", &[("shared", 0)]).await;
    let grow = json!({"properties": {"diskSizeGB": 16}});
    let got = rig.call("PATCH", &disk_uri("shared"), Some(grow.clone())).await.refused(409, "OperationNotAllowed");
    assert_eq!(got.body["error"]["innererror"]["internalErrorCode"], "LiveResizeSharedDiskNotAllowed");
    let stop = format!("{}/deallocate?api-version={COMPUTE_VERSION}", vm_id("zonal-0"));
    let got = rig.call("POST", &stop, None).await.expect(202);
    rig.finish(&got).await;
    rig.call("PATCH", &disk_uri("shared"), Some(grow)).await.expect(202);
}

#[tokio::test(start_paused = true)]
async fn a_machine_shows_the_size_and_sku_that_its_disks_have_now() {
    let rig = Rig::new(options()).await;
    rig.disk("d").await;
    rig.attached("plain-0", &[("d", 3)]).await;
    let before = rig.vm("plain-0").await;
    let got = rig.call("PATCH", &disk_uri("d"), Some(json!({"properties": {"diskSizeGB": 64}}))).await.expect(202);
    rig.finish(&got).await;
    let after = rig.vm("plain-0").await;
    assert_eq!(after["properties"]["storageProfile"]["dataDisks"][0]["diskSizeGB"], 64);
    assert_eq!(after["etag"], before["etag"]);
    assert_eq!(after["properties"]["storageProfile"]["osDisk"], before["properties"]["storageProfile"]["osDisk"]);
}

#[tokio::test(start_paused = true)]
async fn an_uploaded_disk_waits_for_a_write_signature_and_is_attached_after_it() {
    let rig = Rig::new(options()).await;
    let body = json!({"location": "westeurope", "properties": {
        "creationData": {"createOption": "Upload", "uploadSizeBytes": 34_359_738_880_u64},
    }});
    let got = rig.put_disk("d", body).await.expect(202);
    rig.finish(&got).await;
    assert_eq!(state(&rig.disk_doc("d").await), "ReadyToUpload");
    rig.put_data_disks("plain-0", json!([element("d", 0)])).await.refused(409, "OperationNotAllowed");
    let read = json!({"access": "Read", "durationInSeconds": 60});
    access(&rig, "d", "beginGetAccess", Some(read)).await.refused(409, "OperationNotAllowed");
    let got = access(&rig, "d", "endGetAccess", None).await.expect(202);
    rig.finish(&got).await;
    assert_eq!(state(&rig.disk_doc("d").await), "ReadyToUpload");
    let write = json!({"access": "Write", "durationInSeconds": 60});
    let got = access(&rig, "d", "beginGetAccess", Some(write)).await.expect(202);
    rig.finish(&got).await;
    assert_eq!(state(&rig.disk_doc("d").await), "ActiveUpload");
    rig.put_data_disks("plain-0", json!([element("d", 0)])).await.refused(409, "Conflict");
    rig.call("DELETE", &disk_uri("d"), None).await.refused(409, "Conflict");
    let grow = json!({"properties": {"diskSizeGB": 64}});
    let got = rig.call("PATCH", &disk_uri("d"), Some(grow)).await.refused(409, "OperationNotAllowed");
    assert_eq!(got.body["error"]["innererror"]["internalErrorCode"], "ChangeDiskSizeWhileActiveSasNotAllowed");
    let got = access(&rig, "d", "endGetAccess", None).await.expect(202);
    rig.finish(&got).await;
    assert_eq!(state(&rig.disk_doc("d").await), "Unattached");
    rig.put_data_disks("plain-0", json!([element("d", 0)])).await.expect(200);
}

#[tokio::test(start_paused = true)]
async fn revoking_what_was_never_granted_leaves_the_state_of_an_attached_disk() {
    let rig = Rig::new(options()).await;
    rig.disk("d").await;
    rig.attached("plain-0", &[("d", 0)]).await;
    let got = access(&rig, "d", "endGetAccess", None).await.expect(202);
    rig.finish(&got).await;
    assert_eq!(state(&rig.disk_doc("d").await), "Attached");
    // Stopped and not deallocated: access is given, and afterwards the disk is attached as before.
    let stop = format!("{}/powerOff?api-version={COMPUTE_VERSION}", vm_id("plain-0"));
    let got = rig.call("POST", &stop, None).await.expect(202);
    rig.finish(&got).await;
    let read = json!({"access": "Read", "durationInSeconds": 60});
    for (verb, body, after) in [("beginGetAccess", Some(read), "ActiveSAS"), ("endGetAccess", None, "Attached")] {
        let got = access(&rig, "d", verb, body).await.expect(202);
        rig.finish(&got).await;
        assert_eq!(state(&rig.disk_doc("d").await), after);
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_delete_conflicts_while_the_first_runs() {
    let rig = Rig::new(slow()).await;
    rig.disk("d").await;
    let got = rig.call("DELETE", &disk_uri("d"), None).await.expect(202);
    let again = rig.call("DELETE", &disk_uri("d"), None).await.refused(409, "Conflict");
    assert!(again.headers.get("retry-after").is_none());
    assert_eq!(rig.finish(&got).await["status"], "Succeeded");
    rig.call("DELETE", &disk_uri("d"), None).await.expect(204);
}

#[tokio::test(start_paused = true)]
async fn a_disk_becomes_premium_v2_in_the_background() {
    let rig = Rig::new(slow()).await;
    rig.disk_with("d", json!({"zones": ["1"]})).await;
    assert!(rig.disk_doc("d").await["properties"].get("completionPercent").is_none());
    let changed = rig.changed("d", json!({"sku": {"name": "PremiumV2_LRS"}})).await;
    assert_eq!(
        (&changed["sku"]["name"], &changed["properties"]["completionPercent"]),
        (&json!("PremiumV2_LRS"), &json!(0))
    );
    // It is used and changed meanwhile.
    rig.attached("zonal-0", &[("d", 0)]).await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    let before = rig.disk_doc("d").await["properties"]["completionPercent"].as_u64().unwrap();
    assert!((1..100).contains(&before), "{before}");
    let tagged = rig.changed("d", json!({"tags": {"a": "b"}})).await;
    assert!(tagged["properties"]["completionPercent"].as_u64().unwrap() >= before);
    let encryption = json!({"encryption": {
        "type": "EncryptionAtRestWithCustomerKey",
        "diskEncryptionSetId": format!("{}/providers/Microsoft.Compute/diskEncryptionSets/k", group()),
    }});
    rig.not_changed("d", json!({ "properties": encryption })).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(rig.disk_doc("d").await["properties"]["completionPercent"], 100);
}

#[tokio::test(start_paused = true)]
async fn double_encryption_and_images_do_not_become_premium_v2() {
    let rig = Rig::new(options()).await;
    let mut double = premium(8);
    double["zones"] = json!(["1"]);
    double["properties"]["encryption"] = json!({
        "type": "EncryptionAtRestWithPlatformAndCustomerKeys",
        "diskEncryptionSetId": format!("{}/providers/Microsoft.Compute/diskEncryptionSets/k", group()),
    });
    let mut image = premium(30);
    image["zones"] = json!(["1"]);
    image["properties"]["creationData"] =
        json!({"createOption": "FromImage", "galleryImageReference": {"id": format!("{}/image", group())}});
    for (name, body, words) in [("double", double, "double encryption"), ("image", image, "gallery image")] {
        let got = rig.put_disk(name, body).await.expect(202);
        rig.finish(&got).await;
        let got = change_sku(&rig, name, "PremiumV2_LRS").await.refused(409, "OperationNotAllowed");
        assert!(got.message().contains(words), "{}", got.message());
    }
}

#[tokio::test(start_paused = true)]
async fn a_sku_changes_twice_a_day_where_the_switch_says_so() {
    for limited in [true, false] {
        let mut options = options();
        options.unverified.sku_twice_a_day = limited;
        let mut rig = Rig::new(options).await;
        rig.disk("d").await;
        rig.changed("d", json!({"sku": {"name": "StandardSSD_LRS"}})).await;
        rig.wait(DAY / 2).await;
        rig.changed("d", json!({"sku": {"name": "Standard_LRS"}})).await;
        // The same again is no change.
        rig.changed("d", json!({"sku": {"name": "Standard_LRS"}})).await;
        let got = change_sku(&rig, "d", "Premium_LRS").await;
        if limited {
            let got = got.refused(409, "OperationNotAllowed");
            assert!(got.message().contains("2 times a day"), "{}", got.message());
            rig.wait(DAY / 2).await;
            rig.changed("d", json!({"sku": {"name": "Premium_LRS"}})).await;
        } else {
            rig.finish(&got.expect(202)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn performance_changes_four_times_a_day_and_a_creation_of_premium_v2_is_one() {
    for (sku, times) in [("PremiumV2_LRS", 3), ("UltraSSD_LRS", 4)] {
        let mut rig = Rig::new(options()).await;
        let mut body = empty_disk(sku, 100);
        body["zones"] = json!(["1"]);
        let got = rig.put_disk("d", body).await.expect(202);
        rig.finish(&got).await;
        let iops = |iops: u64| json!({"properties": {"diskIOPSReadWrite": iops}});
        for n in 1..=times {
            rig.changed("d", iops(4_000 + n)).await;
            // Neither the same again nor another change counts.
            rig.changed("d", iops(4_000 + n)).await;
            rig.changed("d", json!({"tags": {"n": n.to_string()}})).await;
        }
        let got = rig.not_changed("d", iops(5_000)).await;
        assert!(got.message().contains("4 times within 24 hours"), "{}", got.message());
        rig.changed("d", json!({"properties": {"diskSizeGB": 200}})).await;
        rig.wait(DAY).await;
        let changed = rig.changed("d", iops(5_000)).await;
        assert_eq!(changed["properties"]["diskIOPSReadWrite"], 5_000);
    }
}

#[tokio::test(start_paused = true)]
async fn counted_changes_are_remembered_over_a_restart() {
    let folder = Folder::new("counted");
    let rig = Rig::new(folder.options()).await;
    rig.disk("d").await;
    rig.changed("d", json!({"sku": {"name": "StandardSSD_LRS"}})).await;
    rig.changed("d", json!({"sku": {"name": "Standard_LRS"}})).await;
    let start_time = Options::default().start_time + rig.emulator.control.shared.clock.elapsed();
    drop(rig.router);
    rig.emulator.shutdown().await;
    let rig = Rig::new(Options { start_time, ..folder.options() }).await;
    rig.not_changed("d", json!({"sku": {"name": "Premium_LRS"}})).await;
}

#[tokio::test(start_paused = true)]
async fn a_tier_rises_freely_while_attached_and_is_lowered_once_in_twelve_hours() {
    let mut rig = Rig::new(options()).await;
    rig.disk("d").await;
    rig.attached("plain-0", &[("d", 0)]).await;
    let tier = |tier: &str| json!({"properties": {"tier": tier}});
    for (name, iops) in [("P20", 2_300), ("P50", 7_500), ("P30", 5_000)] {
        let changed = rig.changed("d", tier(name)).await;
        assert_eq!(
            (&changed["properties"]["tier"], &changed["properties"]["diskIOPSReadWrite"]),
            (&json!(name), &json!(iops))
        );
    }
    let got = rig.not_changed("d", tier("P20")).await;
    assert!(got.message().contains("12 hours"), "{}", got.message());
    rig.changed("d", tier("P40")).await;
    rig.wait(DAY / 2).await;
    rig.changed("d", tier("P3")).await;
    for refused in ["P2", "P60"] {
        rig.call("PATCH", &disk_uri("d"), Some(tier(refused))).await.refused(400, "InvalidParameter");
    }
}

#[tokio::test(start_paused = true)]
async fn bursting_begins_while_nothing_runs_with_the_disk_and_lasts_twelve_hours() {
    let mut rig = Rig::new(options()).await;
    let got = rig.put_disk("d", premium(1024)).await.expect(202);
    rig.finish(&got).await;
    let bursting = |enabled: bool| json!({"properties": {"burstingEnabled": enabled}});
    rig.attached("plain-0", &[("d", 0)]).await;
    let got = rig.not_changed("d", bursting(true)).await;
    assert!(got.message().contains("plain-0"), "{}", got.message());
    let stop = format!("{}/powerOff?api-version={COMPUTE_VERSION}", vm_id("plain-0"));
    let got = rig.call("POST", &stop, None).await.expect(202);
    rig.finish(&got).await;
    let changed = rig.changed("d", bursting(true)).await;
    assert!(changed["properties"]["burstingEnabledTime"].is_string());
    rig.not_changed("d", bursting(false)).await;
    rig.wait(DAY / 2).await;
    rig.changed("d", bursting(false)).await;
    rig.changed("d", bursting(true)).await;
    let got = rig.attach_detach("plain-0", json!([]), json!([{"diskId": disk_id("d")}])).await.expect(202);
    rig.finish(&got).await;
    let changed = rig.changed("d", json!({"sku": {"name": "StandardSSD_LRS"}})).await;
    assert_eq!(changed["properties"]["burstingEnabled"], false);
}

#[tokio::test(start_paused = true)]
async fn a_disk_access_goes_with_its_policy() {
    let rig = Rig::new(options()).await;
    rig.disk("d").await;
    rig.attached("plain-0", &[("d", 0)]).await;
    let access = format!("{}/providers/Microsoft.Compute/diskAccesses/a", group());
    let private = json!({"properties": {"networkAccessPolicy": "AllowPrivate", "diskAccessId": access}});
    let changed = rig.changed("d", private).await;
    assert_eq!(changed["properties"]["diskAccessId"], access);
    let closed = json!({"properties": {"networkAccessPolicy": "DenyAll", "publicNetworkAccess": "Disabled"}});
    let changed = rig.changed("d", closed).await["properties"].clone();
    assert_eq!(
        (&changed["networkAccessPolicy"], &changed["publicNetworkAccess"], changed.get("diskAccessId")),
        (&json!("DenyAll"), &json!("Disabled"), None)
    );
    let without = json!({"properties": {"networkAccessPolicy": "AllowPrivate"}});
    rig.call("PATCH", &disk_uri("d"), Some(without)).await.refused(400, "InvalidParameter");
}
