use super::*;

#[tokio::test(start_paused = true)]
async fn every_request_needs_a_token_of_this_emulator() {
    let rig = Rig::new(options()).await;
    let bare = |header: Option<&str>| {
        let mut request = Request::builder().uri(disk_uri("d"));
        if let Some(header) = header {
            request = request.header("authorization", header);
        }
        request.body(Body::empty()).unwrap()
    };
    let got = rig.send(bare(None)).await.refused(401, "AuthenticationFailed");
    // Clients find the tenant of a subscription in this header.
    let tenant = Scenario::default().tenant_id;
    let challenge = got.header("www-authenticate");
    assert!(challenge.starts_with("Bearer authorization_uri=\"http"), "{challenge}");
    let rest = format!(
        "/{tenant}\", error=\"invalid_token\", error_description=\"The authentication failed because of missing 'Authorization' header.\""
    );
    assert!(challenge.ends_with(&rest), "{challenge}");
    rig.send(bare(Some("Basic abc"))).await.refused(401, "AuthenticationFailed");
    let got = rig.send(bare(Some("Bearer invented"))).await.refused(401, "InvalidAuthenticationToken");
    assert_eq!(got.message(), "The access token is invalid.");
    rig.control().revoke_tokens();
    rig.get(&disk_uri("d")).await.refused(401, "InvalidAuthenticationToken");
    let open = Rig::new(Options { accept_any_token: true, ..options() }).await;
    open.send(bare(Some("Bearer invented"))).await.refused(404, "ResourceNotFound");
}

#[tokio::test(start_paused = true)]
async fn a_token_from_the_login_endpoint_opens_the_resource_manager() {
    let rig = Rig::new(options()).await;
    let form = format!(
        "client_id={}&scope=https%3A%2F%2Fmanagement.azure.com%2F.default&grant_type=client_credentials&client_secret={}",
        crate::scenario::CLIENT_ID,
        crate::scenario::CLIENT_SECRET
    );
    let request = Request::builder()
        .method("POST")
        .uri(format!("/{}/oauth2/v2.0/token", crate::scenario::TENANT))
        .header("content-type", "application/x-www-form-urlencoded")
        .body(Body::from(form))
        .unwrap();
    let got = rig.send(request).await.expect(200);
    let token = got.body["access_token"].as_str().unwrap();
    let request = Request::builder()
        .uri(format!("{SUB}/resourcegroups?api-version=2021-04-01"))
        .header("authorization", format!("Bearer {token}"))
        .body(Body::empty())
        .unwrap();
    assert_eq!(rig.send(request).await.expect(200).body["value"][0]["name"], "lazuli");
}

#[tokio::test(start_paused = true)]
async fn api_versions_subscriptions_types_and_methods_are_checked() {
    let rig = Rig::new(options()).await;
    rig.get(&disk_id("d")).await.refused(400, "MissingApiVersionParameter");
    rig.get(&format!("{}?api-version=latest", disk_id("d"))).await.refused(400, "InvalidApiVersionParameter");
    rig.get("/subscriptions/nonsense/resourcegroups?api-version=2021-04-01")
        .await
        .refused(400, "InvalidSubscriptionId");
    rig.get("/subscriptions/11111111-0000-0000-0000-000000000001/resourcegroups?api-version=2021-04-01")
        .await
        .refused(404, "SubscriptionNotFound");
    rig.get(&format!("{}/providers/Microsoft.Compute/gadgets/g?api-version=2024-01-01", group()))
        .await
        .refused(404, "InvalidResourceType");
    rig.get(&format!("{}/providers/Contoso.Gadgets/g/g?api-version=2024-01-01", group()))
        .await
        .refused(404, "InvalidResourceNamespace");
    rig.call("POST", &disk_uri("d"), None).await.expect(405);
    let got = rig
        .call("PUT", &disk_uri("d").replace("lazuli", "none"), Some(premium(1)))
        .await
        .refused(404, "ResourceGroupNotFound");
    assert_eq!(got.message(), "Resource group 'none' could not be found.");
    assert_eq!(got.header("x-ms-failure-cause"), "gateway");
    let shout = disk_uri("d").to_uppercase().replace("API-VERSION", "api-version");
    rig.call("PUT", &shout, Some(premium(1))).await.expect(202);
    assert_eq!(rig.disk_doc("d").await["name"], "D");
}

#[tokio::test(start_paused = true)]
async fn standard_headers_come_with_every_answer() {
    let rig = Rig::new(options()).await;
    let got = rig
        .with(
            "GET",
            &vm_uri("plain-0"),
            None,
            &[("x-ms-client-request-id", "mine"), ("x-ms-correlation-request-id", "trace")],
        )
        .await
        .expect(200);
    for name in ["date", "x-ms-request-id", "x-ms-routing-request-id", "expires", "pragma"] {
        assert!(!got.header(name).is_empty(), "{name}");
    }
    assert_eq!(got.header("cache-control"), "no-cache");
    assert_eq!(got.header("strict-transport-security"), "max-age=31536000; includeSubDomains");
    assert_eq!(got.header("content-type"), "application/json; charset=utf-8");
    assert_eq!(got.header("x-ms-client-request-id"), "mine");
    assert_eq!(got.header("x-ms-correlation-request-id"), "trace");
    assert_eq!(got.header("x-ms-ratelimit-remaining-subscription-global-reads"), "3749");
    assert_eq!(got.header("date"), "Thu, 01 Jan 2026 00:00:00 GMT");
}

#[tokio::test(start_paused = true)]
async fn resource_groups_live_and_die_as_recorded() {
    let rig = Rig::new(slow()).await;
    let uri = format!("{SUB}/resourcegroups/aks-cit-Disk?api-version=2021-04-01");
    let got = rig.call("PUT", &uri, Some(json!({"location": "eastus2"}))).await.expect(201);
    assert_eq!(
        got.body,
        json!({
            "id": format!("{SUB}/resourceGroups/aks-cit-Disk"),
            "name": "aks-cit-Disk",
            "type": "Microsoft.Resources/resourceGroups",
            "location": "eastus2",
            "properties": {"provisioningState": "Succeeded"},
        })
    );
    rig.call("PUT", &uri, Some(json!({"location": "eastus2"}))).await.expect(200);
    rig.call("PUT", &uri, Some(json!({"location": "westus2"}))).await.refused(409, "InvalidResourceGroupLocation");
    rig.call("HEAD", &uri, None).await.expect(204);
    let disk =
        format!("{SUB}/resourceGroups/aks-cit-Disk/providers/Microsoft.Compute/disks/d?api-version={DISKS_VERSION}");
    let body =
        json!({"location": "eastus2", "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 4}});
    let got = rig.call("PUT", &disk, Some(body.clone())).await.expect(202);
    rig.finish(&got).await;
    let got = rig.call("DELETE", &uri, None).await.expect(202);
    assert_eq!(
        path_of(got.header("location")).split('?').next().unwrap(),
        format!(
            "{SUB}/operationresults/eyJqb2JJZCI6IlJFU09VUkNFR1JPVVBERUxFVElPTkpPQi1BS1M6MkRDSVQ6MkRESVNLLUVBU1RVUzIiLCJqb2JMb2NhdGlvbiI6ImVhc3R1czIifQ"
        )
    );
    assert!(got.header("azure-asyncoperation").is_empty());
    rig.call("PUT", &disk, Some(body)).await.refused(409, "ResourceGroupBeingDeleted");
    let location = path_of(got.header("location")).to_owned();
    rig.get(&location).await.expect(202);
    tokio::time::sleep(Duration::from_secs(120)).await;
    let end = rig.get(&location).await.expect(200);
    assert_eq!(end.body, Value::Null);
    rig.get(&uri).await.refused(404, "ResourceGroupNotFound");
    rig.call("HEAD", &uri, None).await.expect(404);
    rig.get(&disk).await.refused(404, "ResourceGroupNotFound");
    assert!(rig.control().dump().resources.keys().all(|key| !key.contains("aks-cit-disk")));
}

#[tokio::test(start_paused = true)]
async fn deleting_a_group_frees_the_disks_its_machines_held() {
    let rig = Rig::new(options()).await;
    let other = format!("{SUB}/resourcegroups/other?api-version=2021-04-01");
    rig.call("PUT", &other, Some(json!({"location": "westeurope"}))).await.expect(201);
    let disk = format!("{SUB}/resourceGroups/other/providers/Microsoft.Compute/disks/d");
    let uri = format!("{disk}?api-version={DISKS_VERSION}");
    rig.call("PUT", &uri, Some(premium(4))).await.expect(202);
    let got = rig.attach_detach("plain-0", json!([{"diskId": disk}]), json!([])).await.expect(202);
    rig.finish(&got).await;
    rig.call("DELETE", &format!("{}?api-version=2021-04-01", group()), None).await.expect(202);
    let left = rig.get(&uri).await.expect(200).body;
    assert_eq!(left["properties"]["diskState"], "Unattached");
    assert!(left.get("managedBy").is_none());
}

#[tokio::test(start_paused = true)]
async fn skus_sizes_and_usages_are_listed() {
    let rig = Rig::new(options()).await;
    let skus = rig
        .get(&format!(
            "{SUB}/providers/Microsoft.Compute/skus?api-version=2021-07-01&$filter=location%20eq%20'eastus2'"
        ))
        .await
        .expect(200)
        .body;
    let size = skus["value"].as_array().unwrap().iter().find(|sku| sku["name"] == "Standard_D4s_v3").unwrap();
    assert_eq!(size["locations"], json!(["eastus2"]));
    assert!(size["capabilities"].as_array().unwrap().contains(&json!({"name": "MaxDataDiskCount", "value": "8"})));
    let sizes = rig
        .get(&format!("{SUB}/providers/Microsoft.Compute/locations/eastus2/vmSizes?api-version={COMPUTE_VERSION}"))
        .await
        .expect(200);
    assert!(sizes.body["value"].as_array().unwrap().len() > 1000);
    let usages = rig
        .get(&format!("{SUB}/providers/Microsoft.Compute/locations/westeurope/usages?api-version={COMPUTE_VERSION}"))
        .await
        .expect(200);
    let machines =
        usages.body["value"].as_array().unwrap().iter().find(|u| u["name"]["value"] == "virtualMachines").unwrap();
    assert_eq!(machines["currentValue"], 8);
}

#[tokio::test(start_paused = true)]
async fn the_front_door_and_the_compute_provider_throttle_by_buckets() {
    let rig = Rig::new(slow()).await;
    let read = vm_uri("plain-0");
    for at in 0..36 {
        let got = rig.get(&read).await.expect(200);
        assert!(
            got.header("x-ms-ratelimit-remaining-resource")
                .starts_with(&format!("Microsoft.Compute/LowCostGetResource;{}", 35 - at))
        );
    }
    let got = rig.get(&read).await.refused(429, "OperationNotAllowed");
    assert_eq!(got.header("retry-after"), "5");
    assert_eq!(got.body["error"]["details"][0]["code"], "TooManyRequests");
    assert_eq!(got.body["error"]["innererror"]["internalErrorCode"], "TooManyRequestsReceived");
    tokio::time::sleep(Duration::from_secs(5)).await;
    rig.get(&read).await.expect(200);
    rig.get(&read).await.expect(429);
    // Another machine has its own bucket.
    rig.get(&vm_uri("plain-1")).await.expect(200);
    let group = format!("{}?api-version=2021-04-01", group());
    tokio::time::sleep(Duration::from_secs(60)).await;
    for _ in 0..250 {
        rig.get(&group).await.expect(200);
    }
    let got = rig.get(&group).await.expect(429);
    assert_eq!(got.header("retry-after"), "1");
    tokio::time::sleep(Duration::from_secs(1)).await;
    rig.get(&group).await.expect(200);
    assert_eq!(rig.control().counters().throttled, 3);
    let free = Rig::new(Options { throttling: false, ..options() }).await;
    for _ in 0..400 {
        free.get(&group).await.expect(200);
    }
}

#[tokio::test(start_paused = true)]
async fn thirteen_writes_of_one_machine_in_a_minute_are_one_too_many() {
    let rig = Rig::new(options()).await;
    for _ in 0..12 {
        rig.call("PATCH", &vm_uri("plain-0"), Some(json!({"tags": {}}))).await.expect(200);
    }
    let got = rig.call("PATCH", &vm_uri("plain-0"), Some(json!({"tags": {}}))).await.expect(429);
    assert_eq!(got.header("retry-after"), "15");
    assert_eq!(got.header("x-ms-request-charge"), "1");
}
