use super::*;

#[tokio::test(start_paused = true)]
async fn a_disk_put_answers_202_with_both_headers_and_the_recorded_bodies() {
    let rig = Rig::new(slow()).await;
    let body =
        json!({"location": "westeurope", "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 200}});
    let got = rig.put_disk("testResource", body.clone()).await.expect(202);
    assert_eq!(
        got.body,
        json!({
            "name": "testResource",
            "id": disk_id("testResource"),
            "type": "Microsoft.Compute/disks",
            "location": "westeurope",
            "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 200, "provisioningState": "Updating"},
        })
    );
    let url = got.header("azure-asyncoperation").to_owned();
    assert!(url.starts_with("http://127.0.0.1:7/subscriptions/"), "{url}");
    assert!(url.contains("/providers/Microsoft.Compute/locations/westeurope/DiskOperations/"));
    assert!(url.contains("api-version=2025-01-02"));
    assert_eq!(got.header("location"), format!("{url}&monitor=true"));
    assert!(got.header("x-ms-operation-identifier").starts_with("tenantId="));
    let running = rig.get(path_of(&url)).await.expect(200);
    assert_eq!(running.body["status"], "InProgress");
    assert!(running.body.get("endTime").is_none());
    rig.get(path_of(got.header("location"))).await.expect(202);
    let done = rig.finish(&got).await;
    assert_eq!(done["status"], "Succeeded");
    assert!(done["startTime"].is_string() && done["endTime"].is_string() && done["name"].is_string());
    let disk = rig.disk_doc("testResource").await;
    assert_eq!(done["properties"]["output"], disk);
    let unique = disk["properties"]["uniqueId"].clone();
    let created = disk["properties"]["timeCreated"].clone();
    assert_eq!(
        disk,
        json!({
            "name": "testResource",
            "id": disk_id("testResource"),
            "type": "Microsoft.Compute/disks",
            "location": "westeurope",
            "sku": {"name": "Standard_LRS", "tier": "Standard"},
            "properties": {
                "creationData": {"createOption": "Empty"},
                "diskSizeGB": 200,
                "diskIOPSReadWrite": 500,
                "diskMBpsReadWrite": 60,
                "encryption": {"type": "EncryptionAtRestWithPlatformKey"},
                "networkAccessPolicy": "AllowAll",
                "publicNetworkAccess": "Enabled",
                "timeCreated": created,
                "provisioningState": "Succeeded",
                "diskState": "Unattached",
                "diskSizeBytes": 214_748_364_800_u64,
                "uniqueId": unique,
            },
        })
    );
    let final_body = rig.get(path_of(got.header("location"))).await.expect(200);
    assert_eq!(final_body.body["name"], "testResource");
    // Again, unchanged: a new 202 that shows SKU and size in bytes.
    let again = rig.put_disk("testResource", body).await.expect(202);
    assert_eq!(again.body["sku"], json!({"name": "Standard_LRS", "tier": "Standard"}));
    assert_eq!(again.body["properties"]["diskSizeBytes"], 214_748_364_800_u64);
    assert_ne!(again.header("azure-asyncoperation"), url);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_put_while_the_disk_is_made_joins_and_a_different_one_conflicts() {
    let rig = Rig::new(slow()).await;
    let first = rig.put_disk("d", premium(10)).await.expect(202);
    let second = rig.put_disk("d", premium(10)).await.expect(202);
    assert_ne!(first.header("azure-asyncoperation"), second.header("azure-asyncoperation"));
    rig.put_disk("d", premium(20)).await.refused(409, "Conflict");
    assert_eq!(rig.finish(&second).await["properties"]["output"]["name"], "d");
    assert_eq!(rig.finish(&first).await["status"], "Succeeded");
}

#[tokio::test(start_paused = true)]
async fn a_disk_grows_and_never_shrinks() {
    let rig = Rig::new(options()).await;
    rig.disk("d").await;
    let patch = |gib: u64| json!({"properties": {"diskSizeGB": gib}});
    let got = rig.call("PATCH", &disk_uri("d"), Some(patch(300))).await.expect(202);
    rig.finish(&got).await;
    let disk = rig.disk_doc("d").await;
    assert_eq!(disk["properties"]["diskSizeGB"], 300);
    assert_eq!(disk["properties"]["tier"], "P20");
    assert_eq!(disk["properties"]["diskIOPSReadWrite"], 2300);
    rig.call("PATCH", &disk_uri("d"), Some(patch(299))).await.refused(409, "OperationNotAllowed");
    rig.call("PATCH", &disk_uri("none"), Some(patch(299))).await.refused(404, "ResourceNotFound");
}

#[tokio::test(start_paused = true)]
async fn a_delete_is_202_without_output_and_then_404_and_204() {
    let rig = Rig::new(slow()).await;
    rig.disk("d").await;
    let got = rig.call("DELETE", &disk_uri("d"), None).await.expect(202);
    assert_eq!(got.body, Value::Null);
    assert_eq!(rig.disk_doc("d").await["properties"]["provisioningState"], "Deleting");
    let done = rig.finish(&got).await;
    assert!(done.get("properties").is_none());
    let gone = rig.get(&disk_uri("d")).await.refused(404, "ResourceNotFound");
    assert_eq!(gone.header("x-ms-failure-cause"), "gateway");
    assert_eq!(
        gone.message(),
        "The Resource 'Microsoft.Compute/disks/d' under resource group 'lazuli' was not found. For more details please go to https://aka.ms/ARMResourceNotFoundFix"
    );
    rig.call("DELETE", &disk_uri("d"), None).await.expect(204);
}

#[tokio::test(start_paused = true)]
async fn bodies_are_read_as_strictly_as_the_published_schema_says() {
    let rig = Rig::new(options()).await;
    let cases: Vec<(Value, u16, &str)> = vec![
        (json!({"properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 1}}), 400, "LocationRequired"),
        (json!({"location": "westeurope", "properties": {"diskSizeGB": 1}}), 400, "InvalidParameter"),
        (
            json!({"location": "westeurope", "properties": {"creationData": {"createOption": "Empty"}}}),
            400,
            "InvalidParameter",
        ),
        (
            json!({"location": "westeurope", "properties": {"creationData": {"createOption": "Nothing"}, "diskSizeGB": 1}}),
            400,
            "InvalidParameter",
        ),
        (
            json!({"location": "westeurope", "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": "ten"}}),
            400,
            "BadRequest",
        ),
        (
            json!({"location": "westeurope", "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 1, "color": 1}}),
            400,
            "BadRequest",
        ),
        (
            json!({"location": "westeurope", "zones": "1", "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 1}}),
            400,
            "BadRequest",
        ),
        (
            json!({"location": "westeurope", "sku": {"name": "Gold_LRS"}, "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 1}}),
            400,
            "InvalidParameter",
        ),
        (
            json!({"location": "mars", "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 1}}),
            400,
            "LocationNotAvailableForResourceType",
        ),
        (
            json!({"location": "westeurope", "properties": {"creationData": {"createOption": "Copy"}}}),
            400,
            "InvalidParameter",
        ),
        (
            json!({"location": "westeurope", "properties": {"creationData": {"createOption": "Copy", "sourceResourceId": disk_id("none")}}}),
            404,
            "ResourceNotFound",
        ),
        (
            json!({"location": "westeurope", "properties": {"creationData": {"createOption": "Upload", "uploadSizeBytes": 5}}}),
            400,
            "InvalidParameter",
        ),
    ];
    for (body, status, code) in cases {
        let shown = body.to_string();
        let got = rig.put_disk("d", body).await;
        assert_eq!((got.status, got.code()), (status, code), "{shown}: {}", got.body);
    }
    let got = rig
        .put_disk("d", json!({"location": "westeurope", "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 1, "color": 1}}))
        .await;
    assert_eq!(
        got.message(),
        "Could not find member 'color' on object of type 'DiskProperties'. Path 'properties.color', line 1, position 102."
    );
    assert_eq!(got.body["error"]["target"], "disk.properties.color");
    rig.get(&disk_uri("d")).await.expect(404);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_no_json_is_refused_by_the_gateway() {
    let rig = Rig::new(options()).await;
    let request = |kind: Option<&str>, body: &'static str| {
        let mut request = Request::builder()
            .method("PUT")
            .uri(disk_uri("d"))
            .header("authorization", format!("Bearer {}", rig.token));
        if let Some(kind) = kind {
            request = request.header("content-type", kind);
        }
        request.body(Body::from(body)).unwrap()
    };
    rig.send(request(Some("application/json"), "{")).await.refused(400, "InvalidRequestContent");
    rig.send(request(Some("application/json"), "")).await.refused(400, "InvalidRequestContent");
    rig.send(request(Some("application/json"), "[]")).await.refused(400, "InvalidRequestContent");
    rig.send(request(Some("text/plain"), "{}")).await.refused(415, "UnsupportedMediaType");
    rig.send(request(None, "{}")).await.refused(415, "UnsupportedMediaType");
}

#[tokio::test(start_paused = true)]
async fn sizes_performance_zones_and_shares_follow_the_sku() {
    let rig = Rig::new(options()).await;
    let with = |sku: &str, gib: u64, properties: Value, zones: Option<&str>| {
        let mut body = empty_disk(sku, gib);
        for (member, value) in properties.as_object().unwrap() {
            body["properties"][member] = value.clone();
        }
        if let Some(zone) = zones {
            body["zones"] = json!([zone]);
        }
        body
    };
    let cases = [
        (with("Premium_LRS", 32_768, json!({}), None), 400),
        (with("Premium_LRS", 0, json!({}), None), 400),
        (with("UltraSSD_LRS", 3, json!({}), Some("1")), 400),
        (with("Premium_ZRS", 10, json!({}), Some("1")), 409),
        (with("PremiumV2_LRS", 10, json!({}), None), 400),
        (with("Premium_LRS", 10, json!({}), Some("4")), 400),
        (with("Premium_LRS", 10, json!({"maxShares": 4}), None), 400),
        (with("Standard_LRS", 10, json!({"maxShares": 2}), None), 400),
        (with("Premium_LRS", 10, json!({"diskIOPSReadWrite": 9000}), None), 400),
        (with("PremiumV2_LRS", 10, json!({"diskIOPSReadWrite": 90_000}), Some("1")), 400),
        (with("Premium_LRS", 10, json!({"tier": "S10"}), None), 400),
        (with("Premium_LRS", 10, json!({"networkAccessPolicy": "AllowPrivate"}), None), 400),
        (with("Premium_LRS", 10, json!({"encryption": {"type": "EncryptionAtRestWithCustomerKey"}}), None), 400),
        (with("Premium_LRS", 10, json!({"maxShares": 3}), None), 202),
        (with("PremiumV2_LRS", 10, json!({"diskIOPSReadWrite": 4000, "diskMBpsReadWrite": 200}), Some("1")), 202),
        (with("UltraSSD_LRS", 4, json!({}), Some("2")), 202),
        (with("Premium_LRS", 10, json!({"tier": "P30"}), None), 202),
        (with("StandardSSD_ZRS", 10, json!({}), None), 202),
    ];
    for (at, (body, status)) in cases.into_iter().enumerate() {
        let shown = body.to_string();
        let got = rig.put_disk(&format!("d{at}"), body).await;
        assert_eq!(got.status, status, "{shown}: {}", got.body);
    }
    assert_eq!(rig.disk_doc("d16").await["properties"]["diskIOPSReadWrite"], 5000);
}

#[tokio::test(start_paused = true)]
async fn what_is_fixed_at_creation_cannot_be_changed() {
    let rig = Rig::new(options()).await;
    rig.disk_with("d", json!({"zones": ["1"]})).await;
    let mut moved = premium(10);
    moved["location"] = json!("eastus");
    rig.put_disk("d", moved).await.refused(409, "InvalidResourceLocation");
    let mut zoned = premium(10);
    zoned["zones"] = json!(["2"]);
    rig.put_disk("d", zoned).await.refused(409, "PropertyChangeNotAllowed");
    let copied = json!({"location": "West Europe", "properties": {"creationData": {"createOption": "Copy", "sourceResourceId": disk_id("d")}}});
    rig.put_disk("d", copied.clone()).await.refused(409, "PropertyChangeNotAllowed");
    let got = rig.put_disk("copy", copied).await.expect(202);
    rig.finish(&got).await;
    let copy = rig.disk_doc("copy").await;
    assert_eq!(copy["properties"]["diskSizeGB"], 10);
    assert_eq!(copy["properties"]["creationData"]["sourceUniqueId"], rig.disk_doc("d").await["properties"]["uniqueId"]);
}

#[tokio::test(start_paused = true)]
async fn access_is_granted_and_revoked_with_the_result_at_location() {
    let rig = Rig::new(slow()).await;
    rig.disk("d").await;
    let begin = format!("{}/beginGetAccess?api-version={DISKS_VERSION}", disk_id("d"));
    let end = format!("{}/endGetAccess?api-version={DISKS_VERSION}", disk_id("d"));
    rig.call("POST", &begin, Some(json!({"access": "Read"}))).await.refused(400, "InvalidParameter");
    let got = rig.call("POST", &begin, Some(json!({"access": "Read", "durationInSeconds": 300}))).await.expect(202);
    let done = rig.finish(&got).await;
    let sas = done["properties"]["output"]["accessSAS"].as_str().unwrap();
    let result = rig.get(path_of(got.header("location"))).await.expect(200);
    assert_eq!(result.body["accessSAS"], sas);
    assert_eq!(rig.disk_doc("d").await["properties"]["diskState"], "ActiveSAS");
    rig.call("DELETE", &disk_uri("d"), None).await.refused(409, "Conflict");
    let got = rig.call("POST", &end, None).await.expect(202);
    rig.finish(&got).await;
    assert_eq!(rig.disk_doc("d").await["properties"]["diskState"], "Unattached");
}

#[tokio::test(start_paused = true)]
async fn lists_come_in_pages_with_a_next_link() {
    let rig = Rig::new(Options { page_size: 3, ..options() }).await;
    for at in 0..5 {
        rig.disk(&format!("d{at}")).await;
    }
    let mut uri = format!("{}/providers/Microsoft.Compute/disks?api-version={DISKS_VERSION}", group());
    let mut names = Vec::new();
    loop {
        let page = rig.get(&uri).await.expect(200);
        let found = page.body["value"].as_array().unwrap();
        assert!(found.len() <= 3);
        names.extend(found.iter().map(|d| d["name"].as_str().unwrap().to_owned()));
        match page.body["nextLink"].as_str() {
            Some(next) => uri = path_of(next).to_owned(),
            None => break,
        }
    }
    names.retain(|name| name.starts_with('d'));
    assert_eq!(names, ["d0", "d1", "d2", "d3", "d4"]);
    let all = rig
        .get(&format!("{SUB}/providers/Microsoft.Compute/disks?api-version={DISKS_VERSION}&$top=1"))
        .await
        .expect(200);
    assert_eq!(all.body["value"].as_array().unwrap().len(), 1);
    rig.get(&format!("{SUB}/resourceGroups/none/providers/Microsoft.Compute/disks?api-version={DISKS_VERSION}"))
        .await
        .refused(404, "ResourceGroupNotFound");
}

#[tokio::test(start_paused = true)]
async fn a_quota_is_a_409_with_the_numbers_in_its_text() {
    let quotas = [("PremiumDiskCount".to_owned(), 9)].into();
    let rig = Rig::new(Options { quotas, ..options() }).await;
    rig.disk("d").await;
    let got = rig.put_disk("e", premium(10)).await.refused(409, "OperationNotAllowed");
    assert!(
        got.message()
            .contains("Current Limit: 9, Current Usage: 9, Additional Required: 1, (Minimum) New Limit Required: 10."),
        "{}",
        got.message()
    );
}
