//! Disks under changes of SKU and state, and under shared access signatures.

use super::*;

async fn change_sku(rig: &Rig, name: &str, sku: &str) -> Got {
    rig.call("PATCH", &disk_uri(name), Some(json!({"sku": {"name": sku}}))).await
}

async fn access(rig: &Rig, name: &str, verb: &str, body: Option<Value>) -> Got {
    rig.call("POST", &format!("{}/{verb}?api-version={DISKS_VERSION}", disk_id(name)), body).await
}

fn state(disk: &Value) -> &str {
    disk["properties"]["diskState"].as_str().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_sku_becomes_another_where_azure_converts() {
    let rig = Rig::new(options()).await;
    rig.disk("regional").await;
    for sku in ["StandardSSD_LRS", "Premium_ZRS", "StandardSSD_ZRS", "Standard_LRS"] {
        let got = change_sku(&rig, "regional", sku).await.expect(202);
        rig.finish(&got).await;
        assert_eq!(rig.disk_doc("regional").await["sku"]["name"], sku);
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
