//! Single instances of scale sets.

use super::*;
use crate::options::MissingInstance;

#[tokio::test(start_paused = true)]
async fn an_instance_that_is_not_there_is_refused_by_what_is_asked() {
    for position in [MissingInstance::NotFound, MissingInstance::InvalidParameter] {
        let mut options = options();
        options.unverified.missing_instance = position;
        let rig = Rig::new(options).await;
        rig.scale_set("s", set(1, &[])).await;
        let got = rig.get(&set_uri("s", "/virtualMachines/0notfound")).await.refused(400, "InvalidParameter");
        assert_eq!(got.message(), "Virtual Machine Scale Set VM instanceId must be a number.");
        assert_eq!(got.body["error"]["target"], "instanceId");
        let got = rig.get(&instance("s", 7)).await;
        match position {
            MissingInstance::NotFound => drop(got.refused(404, "ResourceNotFound")),
            MissingInstance::InvalidParameter => drop(got.refused(400, "InvalidParameter")),
        }
        let text = "The provided instanceId 7 is not an active Virtual Machine Scale Set VM instanceId.";
        for (method, uri, body) in [
            ("PUT", instance("s", 7), own_network(&[])),
            ("POST", set_uri("s", "/virtualMachines/7/powerOff"), json!({})),
            ("POST", set_uri("s", "/start"), json!({"instanceIds": ["7"]})),
            ("POST", set_uri("s", "/delete"), json!({"instanceIds": ["0", "7"]})),
        ] {
            let got = rig.call(method, &uri, Some(body)).await.refused(400, "InvalidParameter");
            assert_eq!((got.message(), &got.body["error"]["target"]), (text, &json!("instanceIds")), "{uri}");
        }
        rig.call("DELETE", &instance("s", 7), None).await.expect(204);
        rig.call("POST", &set_uri("s", "/delete"), Some(json!({}))).await.refused(400, "InvalidParameter");
    }
}

#[tokio::test(start_paused = true)]
async fn data_disks_of_an_instance_are_attached_and_detached() {
    let rig = Rig::new(slow()).await;
    rig.scale_set("s", set(2, &[])).await;
    for name in ["a", "b", "c"] {
        rig.disk(name).await;
    }
    let own = instance_id("s", 1);
    let luns = || rig.control().store(|store| store.lun_map(&own));
    let etag = |got: &Value| got["etag"].as_str().unwrap().to_owned();
    let before = (rig.get(&instance("s", 1)).await.body, rig.get(&set_uri("s", "")).await.body);
    let body = data_disks_body(json!([element("a", 0), element("b", 3)]));
    let got = rig.with("PUT", &instance("s", 1), Some(body), &[("if-match", before.0["etag"].as_str().unwrap())]).await;
    let got = got.expect(200);
    assert_eq!((got.header("x-ms-request-charge"), got.header("location")), ("0", ""));
    assert_eq!(got.body["properties"]["provisioningState"], "Updating");
    assert!(luns().is_empty());
    rig.done(got).await;
    assert_eq!(luns().into_iter().collect::<Vec<_>>(), [(0, disk_id("a")), (3, disk_id("b"))]);
    assert_eq!(rig.disk_doc("a").await["managedBy"], own);
    let after = (rig.get(&instance("s", 1)).await.body, rig.get(&set_uri("s", "")).await.body);
    assert_ne!((etag(&after.0), etag(&after.1)), (etag(&before.0), etag(&before.1)));
    assert_ne!(etag(&after.1), etag(&before.1));
    rig.with("PUT", &instance("s", 1), Some(data_disks_body(json!([]))), &[("if-match", "\"1\"")])
        .await
        .refused(412, "PreconditionFailed");
    // One write for what comes and goes; another instance cannot have what this one holds.
    let uri = set_uri("s", "/virtualMachines/1/attachDetachDataDisks");
    let moves = json!({
        "dataDisksToAttach": [{"diskId": disk_id("c"), "lun": 1}], "dataDisksToDetach": [{"diskId": disk_id("b")}],
    });
    let got = rig.call("POST", &uri, Some(moves)).await.expect(202);
    rig.call("POST", &uri, Some(json!({"dataDisksToDetach": [{"diskId": disk_id("a")}]})))
        .await
        .refused(409, "Conflict");
    rig.done(got).await;
    assert_eq!(luns().into_keys().collect::<Vec<_>>(), [0, 1]);
    assert_eq!(rig.disk_doc("b").await["properties"]["diskState"], "Unattached");
    let other = set_uri("s", "/virtualMachines/0/attachDetachDataDisks");
    let taken = json!({"dataDisksToAttach": [{"diskId": disk_id("a")}]});
    rig.call("POST", &other, Some(taken)).await.refused(409, "ConflictingUserInput");
    let shown = rig.get(&instance("s", 1)).await.expect(200).body;
    let model = shown["properties"]["storageProfile"]["dataDisks"].as_array().unwrap().len();
    assert_eq!(model, 2);
    // The instance goes, its own disk with it; a disk that was attached stays.
    let os = shown["properties"]["storageProfile"]["osDisk"]["name"].as_str().unwrap().to_owned();
    let got = rig.call("DELETE", &instance("s", 1), None).await.expect(202);
    rig.done(got).await;
    assert_eq!(rig.disk_doc("a").await["properties"]["diskState"], "Unattached");
    rig.get(&disk_uri(&os)).await.refused(404, "ResourceNotFound");
}

#[tokio::test(start_paused = true)]
async fn instances_are_switched_off_and_on_and_show_it() {
    let rig = Rig::new(slow()).await;
    rig.scale_set("s", set(3, &[])).await;
    let power = async |number: u64| {
        let uri = set_uri("s", &format!("/virtualMachines/{number}/instanceView"));
        let view = rig.get(&uri).await.expect(200).body;
        view["statuses"][1]["code"].as_str().unwrap().to_owned()
    };
    let got = rig.call("POST", &set_uri("s", "/virtualMachines/0/deallocate"), None).await.expect(202);
    assert!(!got.header("location").is_empty());
    assert_eq!(power(0).await, "PowerState/deallocating");
    rig.done(got).await;
    assert_eq!(power(0).await, "PowerState/deallocated");
    rig.call("POST", &set_uri("s", "/virtualMachines/0/powerOff"), None).await.refused(409, "OperationNotAllowed");
    let got = rig.call("POST", &set_uri("s", "/powerOff"), Some(json!({"instanceIds": ["1"]}))).await.expect(202);
    assert_eq!(power(1).await, "PowerState/stopping");
    rig.call("POST", &set_uri("s", "/virtualMachines/1/start"), None).await.refused(409, "Conflict");
    rig.done(got).await;
    // The list shows the views, and chooses by them.
    let expanded = rig.instances("s", "&$expand=instanceView").await;
    let view = &expanded[2]["properties"]["instanceView"];
    assert_eq!((&view["platformFaultDomain"], &view["computerName"]), (&json!(2), &json!("vmss000002")));
    assert!(rig.instances("s", "").await[0]["properties"].get("instanceView").is_none());
    assert_eq!(
        rig.instances("s", "&$select=instanceView").await[0]["properties"]["instanceView"]["statuses"][1]["code"],
        "PowerState/deallocated"
    );
    let running = rig.instances("s", "&$filter=instanceView/statuses/code%20eq%20'PowerState/running'").await;
    assert_eq!(running.len(), 1);
    let all = rig.instances("s", "&$filter=startswith(instanceView/statuses/code,%20'PowerState')%20eq%20true").await;
    assert_eq!(all.len(), 3);
    rig.get(&format!("{}&$filter=name%20eq%20'x'", set_uri("s", "/virtualMachines"))).await.refused(400, "BadRequest");
    let got = rig.call("POST", &set_uri("s", "/start"), None).await.expect(202);
    rig.done(got).await;
    for number in 0..3 {
        assert_eq!(power(number).await, "PowerState/running");
    }
    let view = rig.get(&set_uri("s", "/instanceView")).await.expect(200).body;
    let summary = json!([{"code": "ProvisioningState/succeeded", "count": 3}]);
    assert_eq!(view["virtualMachine"]["statusesSummary"], summary);
}

#[tokio::test(start_paused = true)]
async fn writes_of_instances_have_a_bucket_each_and_lists_are_high_cost() {
    let rig = Rig::new(slow()).await;
    rig.scale_set("s", set(2, &[])).await;
    let start =
        async |number: u64| rig.call("POST", &set_uri("s", &format!("/virtualMachines/{number}/start")), None).await;
    let mut refused = None;
    for _ in 0..13 {
        let got = start(0).await;
        if got.status == 429 {
            refused = Some(got);
        }
    }
    let refused = refused.unwrap().refused(429, "OperationNotAllowed");
    assert_eq!(refused.body["error"]["details"][0]["target"], "UpdateVMScaleSetVMResource");
    start(1).await.expect(202);
    // A PATCH of the set has another bucket than a PUT.
    let got = rig.call("PATCH", &set_uri("s", ""), Some(json!({"tags": {"a": "b"}}))).await.expect(200);
    assert!(got.header("x-ms-ratelimit-remaining-resource").contains("Microsoft.Compute/UpdateVMScaleSetResource;11"));
    let mut target = Value::Null;
    for _ in 0..31 {
        let got = rig.get(&set_uri("s", "/virtualMachines")).await;
        if got.status == 429 {
            target = got.body["error"]["details"][0]["target"].clone();
        }
    }
    assert_eq!(target, "HighCostGetVMScaleSetResource");
}

#[tokio::test(start_paused = true)]
async fn extensions_are_of_machines_and_of_instances() {
    let rig = Rig::new(slow()).await;
    rig.scale_set("s", set(1, &[])).await;
    for (owner, located) in [(vm_id("plain-0"), true), (instance_id("s", 0), false)] {
        let uri = |path: &str| format!("{owner}{path}?api-version={COMPUTE_VERSION}");
        let mut body = json!({"properties": {
            "publisher": "Microsoft.OSTCExtensions", "type": "VMAccessForLinux", "typeHandlerVersion": "1.5",
            "protectedSettings": {"username": "azureuser", "ssh_key": "ssh-ed25519 AAAA"},
        }});
        if located {
            body["location"] = json!("westeurope");
        }
        assert_eq!(rig.get(&uri("/extensions")).await.expect(200).body["value"], json!([]));
        let got = rig.call("PUT", &uri("/extensions/access"), Some(body.clone())).await.expect(201);
        assert_eq!(got.body["properties"]["provisioningState"], "Creating");
        assert!(got.body["properties"].get("protectedSettings").is_none());
        rig.done(got).await;
        let shown = rig.get(&uri("/extensions/access")).await.expect(200).body;
        assert_eq!(shown["properties"]["provisioningState"], "Succeeded");
        assert_eq!(shown.get("location").is_some(), located);
        let machine = rig.get(&uri("")).await.expect(200).body;
        assert_eq!(machine["resources"][0]["name"], "access");
        let view = rig.get(&uri("/instanceView")).await.expect(200).body;
        assert_eq!(view["extensions"][0]["type"], "Microsoft.OSTCExtensions.VMAccessForLinux");
        // One of a publisher and type; the same again is a change.
        rig.call("PUT", &uri("/extensions/second"), Some(body.clone())).await.refused(400, "BadRequest");
        rig.change("PUT", &uri("/extensions/access"), body.clone()).await;
        let got = rig.call("POST", &uri("/deallocate"), None).await.expect(202);
        rig.done(got).await;
        let off = rig.call("PUT", &uri("/extensions/access"), Some(body)).await.refused(409, "OperationNotAllowed");
        assert_eq!(off.message(), "Cannot modify extensions in the VM when the VM is not running.");
        let patch = json!({"tags": {"a": "b"}});
        rig.call("PATCH", &uri("/extensions/access"), Some(patch)).await.expect(if located { 200 } else { 400 });
        tokio::time::sleep(Duration::from_secs(30)).await;
        let got = rig.call("DELETE", &uri("/extensions/access"), None).await.expect(202);
        rig.done(got).await;
        rig.get(&uri("/extensions/access")).await.refused(404, "ResourceNotFound");
    }
    let missing = format!("{}/extensions/x?api-version={COMPUTE_VERSION}", vm_id("none"));
    let body = json!({"location": "westeurope", "properties": {}});
    rig.call("PUT", &missing, Some(body)).await.refused(404, "ParentResourceNotFound");
}

#[tokio::test(start_paused = true)]
async fn instances_have_public_addresses_where_the_model_asks_for_them() {
    let rig = Rig::new(options()).await;
    let mut body = set(2, &[]);
    let pointer = "/properties/virtualMachineProfile/networkProfile/networkInterfaceConfigurations/0/properties";
    let asked = json!({"name": "public", "sku": {"name": "Standard"}, "properties": {"idleTimeoutInMinutes": 15}});
    let own = body.pointer_mut(&format!("{pointer}/ipConfigurations/0/properties")).unwrap();
    own["publicIPAddressConfiguration"] = asked;
    rig.scale_set("s", body).await;
    let listed = rig.get(&set_uri("s", "/publicIPAddresses")).await.expect(200).body;
    let addresses: Vec<&str> =
        listed["value"].as_array().unwrap().iter().map(|ip| ip["properties"]["ipAddress"].as_str().unwrap()).collect();
    assert!(addresses.len() == 2 && addresses[0] != addresses[1], "{addresses:?}");
    let named = rig.nic("s", 1).await["properties"]["ipConfigurations"][0]["properties"]["publicIPAddress"].clone();
    let uri = format!("{}?api-version=2018-10-01", named["id"].as_str().unwrap());
    let shown = rig.get(&uri).await.expect(200).body;
    assert_eq!((&shown["properties"]["ipAddress"], &shown["name"]), (&json!(addresses[1]), &json!("public")));
    assert_eq!((&shown["properties"]["idleTimeoutInMinutes"], shown.get("type")), (&json!(15), None));
    let below = uri.replace("/public?", "?");
    assert_eq!(rig.get(&below).await.expect(200).body["value"].as_array().unwrap().len(), 1);
    rig.call("PUT", &uri, Some(json!({}))).await.refused(405, "MethodNotAllowed");
    let uri_of_balancer = "/_imds/s_1/metadata/loadbalancer?api-version=2021-02-01";
    let seen = rig.with("GET", uri_of_balancer, None, &[("metadata", "true")]).await.expect(200).body;
    assert_eq!(seen["loadbalancer"]["publicIpAddresses"][0]["frontendIpAddress"], addresses[1]);
    // It stays through a write, and goes when it is no longer asked for.
    rig.change("PUT", &instance("s", 0), data_disks_body(json!([]))).await;
    assert_eq!(rig.get(&set_uri("s", "/publicIPAddresses")).await.expect(200).body, listed);
    rig.change("PUT", &instance("s", 0), own_network(&[])).await;
    assert_eq!(
        rig.get(&set_uri("s", "/publicIPAddresses")).await.expect(200).body["value"].as_array().unwrap().len(),
        1
    );
}
