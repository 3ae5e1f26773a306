//! Requests as other people's clients make them, sloppy and hostile ones included.

use super::*;

const NETWORK_VERSION: &str = "2025-05-01";

fn other(name: &str) -> String {
    format!("{SUB}/resourceGroups/other/providers/Microsoft.Compute/disks/{name}?api-version={DISKS_VERSION}")
}

async fn other_group(rig: &Rig) {
    let uri = format!("{SUB}/resourcegroups/other?api-version=2021-04-01");
    rig.call("PUT", &uri, Some(json!({"location": "westeurope"}))).await.expect(201);
}

fn nic_uri(name: &str) -> String {
    format!("{}/providers/Microsoft.Network/networkInterfaces/{name}?api-version={NETWORK_VERSION}", group())
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_no_object_is_refused_wherever_an_object_is_wanted() {
    let rig = Rig::new(Options { throttling: false, ..options() }).await;
    rig.disk("d").await;
    let attach = format!("{}/attachDetachDataDisks?api-version={COMPUTE_VERSION}", vm_id("plain-0"));
    let grant = format!("{}/beginGetAccess?api-version={DISKS_VERSION}", disk_id("d"));
    let set = format!("{}/providers/Microsoft.Compute/availabilitySets/set?api-version={COMPUTE_VERSION}", group());
    let requests = [
        ("PUT", disk_uri("d")),
        ("PATCH", disk_uri("d")),
        ("PUT", vm_uri("plain-0")),
        ("PATCH", vm_uri("plain-0")),
        ("PUT", nic_uri("n")),
        ("PUT", set),
        ("POST", attach),
        ("POST", grant),
    ];
    for body in [json!(["not", "a", "disk"]), json!("text"), json!(7), json!(true), Value::Null] {
        for (method, uri) in &requests {
            rig.call(method, uri, Some(body.clone())).await.refused(400, "InvalidRequestContent");
        }
    }
    for properties in [json!([]), json!("x"), json!(1), json!({"osProfile": "x"}), json!({"storageProfile": []})] {
        let body = json!({"location": "westeurope", "properties": properties});
        for (method, uri) in &requests[..4] {
            rig.call(method, uri, Some(body.clone())).await.refused(400, "BadRequest");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_over_4_mib_is_refused_in_azures_words_and_logged() {
    let rig = Rig::new(options()).await;
    let mut body = premium(4);
    body["tags"] = json!({"long": "x".repeat(5 << 20)});
    let got = rig.put_disk("d", body).await.refused(413, "RequestContentTooLarge");
    assert_eq!(got.header("x-ms-failure-cause"), "gateway");
    assert_eq!(rig.control().call_log().last().unwrap().status, 413);
}

#[tokio::test(start_paused = true)]
async fn an_escaped_slash_divides_nothing() {
    let rig = Rig::new(options()).await;
    let inside = format!("{SUB}/resourceGroups/lazuli%2Fproviders%2FMicrosoft.Compute%2FvirtualMachines%2Fplain-0");
    rig.get(&format!("{inside}?api-version=2021-04-01")).await.refused(404, "ResourceGroupNotFound");
    rig.put_disk("a%2Fb", premium(4)).await.refused(400, "InvalidParameter");
    for kind in ["Microsoft.Compute/availabilitySets", "Microsoft.Network/virtualNetworks"] {
        for name in ["a%2Fb", "a%20b", "-a", "a-"] {
            let uri = format!("{}/providers/{kind}/{name}?api-version={NETWORK_VERSION}", group());
            let body = json!({"location": "westeurope"});
            rig.call("PUT", &uri, Some(body)).await.refused(400, "InvalidResourceName");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn paths_may_end_in_a_slash_and_be_in_any_letter_case() {
    let rig = Rig::new(options()).await;
    rig.disk("d").await;
    for path in [
        format!("{}/", disk_id("d")),
        disk_id("d").to_uppercase(),
        disk_id("d").to_lowercase(),
        format!("{}/providers/Microsoft.Compute/disks/", group()),
    ] {
        rig.get(&format!("{path}?api-version={DISKS_VERSION}")).await.expect(200);
        rig.get(&format!("{path}?API-Version={DISKS_VERSION}")).await.expect(200);
    }
}

#[tokio::test(start_paused = true)]
async fn existence_is_asked_with_head_of_groups_only() {
    let rig = Rig::new(options()).await;
    let group_uri = |name: &str| format!("{SUB}/resourcegroups/{name}?api-version=2021-04-01");
    rig.call("HEAD", &group_uri("LAZULI"), None).await.expect(204);
    let got = rig.call("HEAD", &group_uri("none"), None).await.expect(404);
    assert_eq!(got.body, Value::Null);
    assert_eq!(rig.call("HEAD", &disk_uri("d"), None).await.expect(405).body, Value::Null);
}

#[tokio::test(start_paused = true)]
async fn elements_without_lun_or_create_option_are_refused_by_the_members_name() {
    let rig = Rig::new(options()).await;
    let id = rig.disk("d").await;
    let got = rig
        .put_data_disks("plain-0", json!([{"createOption": "Attach", "managedDisk": {"id": id}}]))
        .await
        .refused(400, "InvalidParameter");
    assert_eq!(got.message(), "Required parameter 'dataDisk.lun' is missing (null).");
    let got = rig
        .put_data_disks("plain-0", json!([{"lun": 0, "managedDisk": {"id": id}}]))
        .await
        .refused(400, "InvalidParameter");
    assert_eq!(got.message(), "Required parameter 'dataDisk.createOption' is missing (null).");
}

#[tokio::test(start_paused = true)]
async fn a_write_of_a_machine_names_its_location_unless_the_switch_lets_it_off() {
    let strict = Rig::new(options()).await;
    strict.call("PUT", &vm_uri("plain-0"), Some(json!({}))).await.refused(400, "LocationRequired");
    let mut options = options();
    options.unverified.put_needs_location = false;
    let lenient = Rig::new(options).await;
    let before = lenient.vm("plain-0").await;
    lenient.call("PUT", &vm_uri("plain-0"), Some(json!({}))).await.expect(200);
    let after = lenient.vm("plain-0").await;
    assert_eq!(after["properties"]["storageProfile"], before["properties"]["storageProfile"]);
    assert_eq!(after["location"], "westeurope");
}

#[tokio::test(start_paused = true)]
async fn filters_that_azure_does_not_have_are_refused_and_not_misread() {
    let rig = Rig::new(options()).await;
    let vms = format!("{}/providers/Microsoft.Compute/virtualMachines?api-version={COMPUTE_VERSION}", group());
    rig.get(&format!("{vms}&$filter=name%20eq%20'plain-0'")).await.refused(400, "BadRequest");
    let skus = format!("{SUB}/providers/Microsoft.Compute/skus?api-version=2021-07-01");
    rig.get(&format!("{skus}&$filter=name%20eq%20'Premium_LRS'")).await.refused(400, "BadRequest");
    let found = rig.get(&format!("{skus}&$filter=location%20eq%20'West%20US%202'")).await.expect(200).body;
    let found = found["value"].as_array().unwrap();
    assert!(!found.is_empty() && found.iter().all(|sku| sku["locations"] == json!(["westus2"])));
}

#[tokio::test(start_paused = true)]
async fn a_copy_has_a_disk_for_its_source_and_may_be_asked_for_twice() {
    let rig = Rig::new(slow()).await;
    let source = rig.disk("source").await;
    let copy = |source: &str| {
        json!({"location": "westeurope", "properties": {
            "creationData": {"createOption": "Copy", "sourceResourceId": source},
        }})
    };
    let first = rig.put_disk("copy", copy(&source)).await.expect(202);
    // A client that lost the answer asks again, perhaps with an id in other letter case.
    let again = rig.put_disk("copy", copy(&source.to_lowercase())).await.expect(202);
    assert_eq!(rig.finish(&first).await["status"], "Succeeded");
    assert_eq!(rig.finish(&again).await["status"], "Succeeded");
    let doc = rig.disk_doc("copy").await;
    let unique = rig.disk_doc("source").await["properties"]["uniqueId"].clone();
    assert_eq!(doc["properties"]["creationData"]["sourceUniqueId"], unique);
    assert_eq!(doc["properties"]["diskSizeGB"], 10);
    rig.put_disk("other", copy(&disk_id("none"))).await.refused(404, "ResourceNotFound");
    rig.put_disk("other", copy(&vm_id("plain-0"))).await.refused(400, "InvalidParameter");
}

#[tokio::test(start_paused = true)]
async fn a_shared_access_signature_blocks_attach_and_delete_until_it_is_revoked() {
    let rig = Rig::new(options()).await;
    rig.disk("d").await;
    let act = |action: &str| format!("{}/{action}?api-version={DISKS_VERSION}", disk_id("d"));
    let body = json!({"access": "Read", "durationInSeconds": 300});
    let got = rig.call("POST", &act("beginGetAccess"), Some(body.clone())).await.expect(202);
    assert!(rig.finish(&got).await["properties"]["output"]["accessSAS"].is_string());
    assert!(rig.get(path_of(got.header("location"))).await.expect(200).body["accessSAS"].is_string());
    assert_eq!(rig.disk_doc("d").await["properties"]["diskState"], "ActiveSAS");
    rig.put_data_disks("plain-0", json!([element("d", 0)])).await.refused(409, "Conflict");
    rig.call("DELETE", &disk_uri("d"), None).await.refused(409, "Conflict");
    let got = rig.call("POST", &act("endGetAccess"), None).await.expect(202);
    rig.finish(&got).await;
    assert_eq!(rig.disk_doc("d").await["properties"]["diskState"], "Unattached");
    rig.attached("plain-0", &[("d", 0)]).await;
    rig.call("POST", &act("beginGetAccess"), Some(body)).await.refused(409, "Conflict");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_machine_leaves_its_disks_unattached() {
    let rig = Rig::new(slow()).await;
    rig.disk("d").await;
    rig.attached("plain-0", &[("d", 4)]).await;
    let got = rig.call("DELETE", &vm_uri("plain-0"), None).await.expect(202);
    assert_eq!(rig.disk_doc("d").await["managedBy"], vm_id("plain-0"));
    rig.finish(&got).await;
    let disk = rig.disk_doc("d").await;
    assert_eq!(disk["properties"]["diskState"], "Unattached");
    assert!(disk.get("managedBy").is_none());
    rig.attached("plain-1", &[("d", 0)]).await;
}

#[tokio::test(start_paused = true)]
async fn a_group_whose_disk_another_groups_machine_holds_is_not_deleted() {
    let rig = Rig::new(options()).await;
    other_group(&rig).await;
    for name in ["held", "idle"] {
        let got = rig.call("PUT", &other(name), Some(premium(4))).await.expect(202);
        rig.finish(&got).await;
    }
    let held = other("held").split('?').next().unwrap().to_owned();
    let element = json!({"lun": 0, "createOption": "Attach", "managedDisk": {"id": held}});
    let got = rig.put_data_disks("plain-0", json!([element])).await.expect(200);
    rig.finish(&got).await;
    let uri = format!("{SUB}/resourcegroups/other?api-version=2021-04-01");
    let got = rig.call("DELETE", &uri, None).await.expect(202);
    let end = rig.get(path_of(got.header("location"))).await.refused(409, "ResourceGroupDeletionBlocked");
    assert!(end.message().contains("Microsoft.Compute/disks/held"), "{}", end.message());
    assert_eq!(end.body["error"]["details"][0]["target"], held);
    assert_eq!(rig.get(&uri).await.expect(200).body["properties"]["provisioningState"], "Succeeded");
    rig.get(&other("idle")).await.refused(404, "ResourceNotFound");
    assert_eq!(rig.get(&other("held")).await.expect(200).body["managedBy"], vm_id("plain-0"));
    let got = rig.put_data_disks("plain-0", json!([])).await.expect(200);
    rig.finish(&got).await;
    let got = rig.call("DELETE", &uri, None).await.expect(202);
    rig.get(path_of(got.header("location"))).await.expect(200);
    rig.get(&uri).await.refused(404, "ResourceGroupNotFound");
}

#[tokio::test(start_paused = true)]
async fn a_groups_deletion_frees_the_disks_that_its_machines_held_even_with_an_attach_in_flight() {
    let rig = Rig::new(slow()).await;
    other_group(&rig).await;
    for name in ["held", "coming"] {
        let got = rig.call("PUT", &other(name), Some(premium(4))).await.expect(202);
        rig.finish(&got).await;
    }
    let id = |name: &str| other(name).split('?').next().unwrap().to_owned();
    let attach = |name: &str, lun: u8| json!([{"diskId": id(name), "lun": lun}]);
    let got = rig.attach_detach("plain-0", attach("held", 0), json!([])).await.expect(202);
    rig.finish(&got).await;
    let delete = rig.call("DELETE", &format!("{}?api-version=2021-04-01", group()), None).await.expect(202);
    rig.attach_detach("plain-0", attach("coming", 1), json!([])).await.refused(409, "ResourceGroupBeingDeleted");
    while rig.get(path_of(delete.header("location"))).await.status == 202 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    for name in ["held", "coming"] {
        let disk = rig.get(&other(name)).await.expect(200).body;
        assert_eq!(disk["properties"]["diskState"], "Unattached", "{name}");
        assert!(disk.get("managedBy").is_none(), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_attach_that_outlives_its_machine_fails_and_gives_the_disk_to_nobody() {
    let mut latency = slow();
    latency.latency = "typical".parse().unwrap();
    let rig = Rig::new(latency).await;
    rig.disk("d").await;
    let attach = rig.attach_detach("plain-0", json!([{"diskId": disk_id("d"), "lun": 0}]), json!([])).await.expect(202);
    // Gone behind everybody's back, as when its group's deletion ends first.
    rig.emulator.control.shared.state().store.remove(&vm_id("plain-0"), Duration::ZERO);
    let end = rig.finish(&attach).await;
    assert_eq!(end["status"], "Failed");
    assert_eq!(end["error"]["code"], "ResourceNotFound");
    assert!(rig.disk_doc("d").await.get("managedBy").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_marketplace_image_needs_an_os_profile() {
    let rig = Rig::new(options()).await;
    let subnet = format!("{}/providers/Microsoft.Network/virtualNetworks/lazuli-vnet/subnets/nodes", group());
    let nic = json!({"location": "westeurope", "properties": {"ipConfigurations": [
        {"name": "one", "properties": {"subnet": {"id": subnet}}}
    ]}});
    let nic = rig.call("PUT", &nic_uri("nic1"), Some(nic)).await.expect(201).body["id"].clone();
    let mut body = json!({"location": "westeurope", "properties": {
        "hardwareProfile": {"vmSize": "Standard_D2s_v3"},
        "storageProfile": {
            "imageReference": {"publisher": "p", "offer": "o", "sku": "s", "version": "latest"},
            "osDisk": {"createOption": "FromImage", "name": "system"},
        },
        "networkProfile": {"networkInterfaces": [{"id": nic}]},
    }});
    let got = rig.call("PUT", &vm_uri("new"), Some(body.clone())).await.refused(400, "InvalidParameter");
    assert_eq!(got.message(), "Required parameter 'osProfile' is missing (null).");
    body["properties"]["osProfile"] = json!({"computerName": "new", "adminUsername": "u", "adminPassword": "secret"});
    rig.call("PUT", &vm_uri("new"), Some(body)).await.expect(201);
}

#[tokio::test(start_paused = true)]
async fn addresses_come_from_the_subnet_once_each_until_it_is_full() {
    let rig = Rig::new(options()).await;
    let network = format!("{}/providers/Microsoft.Network/virtualNetworks/small", group());
    let body = json!({"location": "westeurope", "properties": {
        "addressSpace": {"addressPrefixes": ["10.9.0.0/16"]},
        "subnets": [{"name": "tiny", "properties": {"addressPrefix": "10.9.0.8/29"}}],
    }});
    rig.call("PUT", &format!("{network}?api-version={NETWORK_VERSION}"), Some(body)).await.expect(201);
    let nic = |address: Option<&str>| {
        let mut properties = json!({"subnet": {"id": format!("{network}/subnets/tiny")}});
        if let Some(address) = address {
            properties["privateIPAddress"] = json!(address);
            properties["privateIPAllocationMethod"] = json!("Static");
        }
        json!({"location": "westeurope", "properties": {"ipConfigurations": [{"name": "one", "properties": properties}]}})
    };
    let put = |name: &str, address: Option<&str>| {
        let (uri, body) = (nic_uri(name), nic(address));
        let rig = &rig;
        async move { rig.call("PUT", &uri, Some(body)).await }
    };
    let address = |got: &Got| got.body["properties"]["ipConfigurations"][0]["properties"]["privateIPAddress"].clone();
    // Azure keeps four addresses at the beginning of a subnet and one at its end: three are left.
    put("outside", Some("10.9.1.4")).await.refused(400, "PrivateIPAddressNotInSubnet");
    put("reserved", Some("10.9.0.9")).await.refused(400, "PrivateIPAddressNotInSubnet");
    assert_eq!(address(&put("b", Some("10.9.0.13")).await.expect(201)), "10.9.0.13");
    let taken = put("thief", Some("10.9.0.13")).await.refused(400, "PrivateIPAddressIsAllocated");
    assert!(taken.message().ends_with("networkInterfaces/b."), "{}", taken.message());
    assert_eq!(address(&put("a", None).await.expect(201)), "10.9.0.12");
    assert_eq!(address(&put("c", None).await.expect(201)), "10.9.0.14");
    put("d", None).await.refused(400, "SubnetIsFull");
    // What a GET showed can be written back.
    assert_eq!(address(&put("b", Some("10.9.0.13")).await.expect(200)), "10.9.0.13");
}

#[tokio::test(start_paused = true)]
async fn tags_of_a_patch_replace_all_tags_of_machines_and_disks() {
    let rig = Rig::new(options()).await;
    rig.disk("d").await;
    for uri in [vm_uri("plain-0"), disk_uri("d")] {
        for tags in [json!({"a": "1", "b": "2"}), json!({"c": "3"}), json!({})] {
            let got = rig.call("PATCH", &uri, Some(json!({"tags": tags}))).await;
            if !got.header("azure-asyncoperation").is_empty() {
                rig.finish(&got).await;
            }
            assert_eq!(rig.get(&uri).await.expect(200).body["tags"], tags, "{uri}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_lives_in_real_time_however_fast_emulated_time_passes() {
    let rig = Rig::new(Options { time_scale: 100.0, ..options() }).await;
    tokio::time::sleep(Duration::from_secs(3500)).await;
    rig.get(&vm_uri("plain-0")).await.expect(200);
    tokio::time::sleep(Duration::from_secs(200)).await;
    let got = rig.get(&vm_uri("plain-0")).await.refused(401, "ExpiredAuthenticationToken");
    assert_eq!(
        got.message(),
        "The access token expiry UTC time '1/1/2026 12:59:59 AM' is earlier than current UTC time '1/1/2026 1:01:40 AM'."
    );
}

#[tokio::test(start_paused = true)]
async fn a_token_for_another_service_does_not_open_the_resource_manager() {
    let rig = Rig::new(options()).await;
    let with = async |resource: &str| {
        let form = format!(
            "client_id={}&resource={resource}&grant_type=client_credentials&client_secret={}",
            crate::scenario::CLIENT_ID,
            crate::scenario::CLIENT_SECRET
        );
        let request = Request::builder()
            .method("POST")
            .uri(format!("/{}/oauth2/token", crate::scenario::TENANT))
            .header("content-type", "application/x-www-form-urlencoded")
            .body(Body::from(form))
            .unwrap();
        let token = rig.send(request).await.expect(200).body["access_token"].as_str().unwrap().to_owned();
        let request = Request::builder()
            .uri(vm_uri("plain-0"))
            .header("host", "emulator.test:8443")
            .header("authorization", format!("Bearer {token}"));
        rig.send(request.body(Body::empty()).unwrap()).await
    };
    for resource in [
        "https://management.azure.com",
        "https://management.azure.com/",
        "https://management.core.windows.net/",
        "https://emulator.test:8443/",
        "http://localhost:8181/",
    ] {
        with(resource).await.expect(200);
    }
    for resource in
        ["https://storage.azure.com/", "https://management.azure.com.evil/", "http://localhost.evil/", "api://x"]
    {
        with(resource).await.refused(401, "InvalidAuthenticationTokenAudience");
    }
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_another_machine_took_while_an_attach_was_pushed_aside_stays_there() {
    let mut options = slow();
    options.unverified.concurrent_vm_write = crate::options::Concurrent::Preempt;
    let rig = Rig::new(options).await;
    rig.disk("d").await;
    rig.put_data_disks("plain-0", json!([element("d", 0)])).await.expect(200);
    let taken = rig.attach_detach("plain-1", json!([{"diskId": disk_id("d"), "lun": 3}]), json!([])).await.expect(202);
    // The first attach is pushed aside by a write that leaves the disk out again.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let last = rig.put_data_disks("plain-0", json!([])).await.expect(200);
    assert_eq!(rig.finish(&taken).await["status"], "Succeeded");
    assert_eq!(rig.finish(&last).await["status"], "Succeeded");
    assert_eq!(rig.disk_doc("d").await["managedBy"], vm_id("plain-1"));
    assert_eq!(rig.luns("plain-1"), [(3, "d".to_owned())]);
    assert!(rig.luns("plain-0").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_throttled_client_is_told_to_wait_in_its_own_time() {
    let waits = async |time_scale: f64| {
        let rig = Rig::new(Options { time_scale, ..options() }).await;
        loop {
            let got = rig.call("PATCH", &vm_uri("plain-0"), Some(json!({"tags": {}}))).await;
            if got.status == 429 {
                return got.header("retry-after").parse::<u64>().unwrap();
            }
        }
    };
    assert_eq!((waits(1.0).await, waits(5.0).await), (15, 3));
}

#[tokio::test(start_paused = true)]
async fn every_size_that_is_sold_can_be_had_and_another_is_refused_in_azures_words() {
    let rig = Rig::new(options()).await;
    let patch = |size: &str| json!({"properties": {"hardwareProfile": {"vmSize": size}}});
    for size in ["Standard_D8s_v5", "standard_e4ds_v5", "Standard_D2s_v3"] {
        let got = rig.call("PATCH", &vm_uri("plain-0"), Some(patch(size))).await.expect(200);
        rig.finish(&got).await;
    }
    let got = rig.call("PATCH", &vm_uri("plain-0"), Some(patch("B1ls"))).await.refused(400, "InvalidParameter");
    assert!(got.message().starts_with("The value B1ls provided for the VM size is not valid."), "{}", got.message());
    assert_eq!(got.body["error"]["target"], "vmSize");
}

#[tokio::test(start_paused = true)]
async fn what_a_network_resource_names_must_exist() {
    let rig = Rig::new(options()).await;
    let missing = |kind: &str| json!({"id": format!("{}/providers/Microsoft.Network/{kind}/none", group())});
    let subnet = format!("{}/providers/Microsoft.Network/virtualNetworks/lazuli-vnet/subnets/nodes", group());
    let nic = |properties: Value, configuration: Value| {
        let mut one = json!({"name": "one", "properties": configuration});
        one["properties"]["subnet"] = json!({"id": subnet});
        let mut body = json!({"location": "westeurope", "properties": properties});
        body["properties"]["ipConfigurations"] = json!([one]);
        body
    };
    let bodies = [
        nic(json!({"networkSecurityGroup": missing("networkSecurityGroups")}), json!({})),
        nic(json!({}), json!({"publicIPAddress": missing("publicIPAddresses")})),
        nic(json!({}), json!({"loadBalancerBackendAddressPools": [missing("loadBalancers/lb/backendAddressPools")]})),
    ];
    for body in bodies {
        let got = rig.call("PUT", &nic_uri("n"), Some(body)).await.refused(400, "InvalidResourceReference");
        assert!(got.message().contains("/none referenced by resource"), "{}", got.message());
    }
    let network = format!("{}/providers/Microsoft.Network/virtualNetworks/v?api-version={NETWORK_VERSION}", group());
    let body = json!({"location": "westeurope", "properties": {
        "addressSpace": {"addressPrefixes": ["10.9.0.0/16"]},
        "subnets": [{"name": "s", "properties": {"addressPrefix": "10.9.0.0/24", "routeTable": missing("routeTables")}}],
    }});
    rig.call("PUT", &network, Some(body)).await.refused(400, "InvalidResourceReference");
}

#[tokio::test(start_paused = true)]
async fn a_put_of_a_disk_that_is_being_deleted_or_changed_joins_nothing() {
    let rig = Rig::new(slow()).await;
    rig.disk("d").await;
    rig.call("PATCH", &disk_uri("d"), Some(json!({"properties": {"diskSizeGB": 64}}))).await.expect(202);
    rig.put_disk("d", premium(10)).await.refused(409, "Conflict");
    tokio::time::sleep(Duration::from_secs(60)).await;
    let delete = rig.call("DELETE", &disk_uri("d"), None).await.expect(202);
    rig.put_disk("d", premium(64)).await.refused(409, "Conflict");
    rig.finish(&delete).await;
    rig.put_disk("d", premium(64)).await.expect(202);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_creation_fails_with_the_one_that_it_joined() {
    let rig = Rig::new(slow()).await;
    let incident = json!({"match": {"operation": "disks.createOrUpdate"}, "then": {"lateFailure": {"code": "InternalExecutionError"}}});
    rig.control().add_incident(serde_json::from_value(incident).unwrap()).unwrap();
    let first = rig.put_disk("d", premium(4)).await.expect(202);
    let again = rig.put_disk("d", premium(4)).await.expect(202);
    assert_eq!(rig.finish(&first).await["status"], "Failed");
    assert_eq!(rig.finish(&again).await["status"], "Failed");
    rig.get(&disk_uri("d")).await.refused(404, "ResourceNotFound");
}

#[tokio::test(start_paused = true)]
async fn an_old_api_version_shows_only_what_it_takes_back() {
    let rig = Rig::new(slow()).await;
    rig.disk("a").await;
    rig.disk("b").await;
    rig.attached("plain-0", &[("a", 0)]).await;
    let uri = format!("{}?api-version=2017-12-01", vm_id("plain-0"));
    let mut list = rig.get(&uri).await.expect(200).body["properties"]["storageProfile"]["dataDisks"].clone();
    for member in ["toBeDetached", "detachOption", "deleteOption"] {
        assert!(list[0].get(member).is_none(), "{list}");
    }
    list.as_array_mut().unwrap().push(element("b", 1));
    let got = rig.call("PUT", &uri, Some(data_disks_body(list.clone()))).await.expect(200);
    rig.finish(&got).await;
    assert_eq!(rig.luns("plain-0"), [(0, "a".to_owned()), (1, "b".to_owned())]);
    // Newer versions go on showing them.
    assert_eq!(rig.vm("plain-0").await["properties"]["storageProfile"]["dataDisks"][0]["deleteOption"], "Detach");
    list[0]["toBeDetached"] = json!(true);
    rig.call("PUT", &uri, Some(data_disks_body(list))).await.refused(400, "BadRequest");
}

#[tokio::test(start_paused = true)]
async fn quoted_numbers_and_booleans_are_taken_and_other_texts_are_not() {
    let rig = Rig::new(options()).await;
    let body = |size: Value, bursts: Value| {
        json!({"location": "westeurope", "sku": {"name": "Premium_LRS"}, "properties":
            {"creationData": {"createOption": "Empty"}, "diskSizeGB": size, "burstingEnabled": bursts}})
    };
    let got = rig.put_disk("d", body(json!("1024"), json!("True"))).await.expect(202);
    rig.finish(&got).await;
    let disk = rig.disk_doc("d").await;
    assert_eq!(
        (&disk["properties"]["diskSizeGB"], &disk["properties"]["burstingEnabled"]),
        (&json!(1024), &json!(true))
    );
    for (size, bursts, words) in [
        (
            json!("many"),
            json!(false),
            "Could not convert string to integer: many. Path 'properties.diskSizeGB', line 1, ",
        ),
        (
            json!("8.5"),
            json!(false),
            "Could not convert string to integer: 8.5. Path 'properties.diskSizeGB', line 1, ",
        ),
        (
            json!(1024),
            json!("yes"),
            "Could not convert string to boolean: yes. Path 'properties.burstingEnabled', line 1, ",
        ),
    ] {
        let refused = rig.put_disk("e", body(size, bursts)).await.refused(400, "BadRequest");
        assert!(refused.message().starts_with(words), "{}", refused.message());
    }
}
