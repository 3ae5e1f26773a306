use super::*;

fn nic_id(name: &str) -> String {
    format!("{}/providers/Microsoft.Network/networkInterfaces/{name}", group())
}

pub(super) async fn nic(rig: &Rig, name: &str) {
    let subnet = format!("{}/providers/Microsoft.Network/virtualNetworks/lazuli-vnet/subnets/nodes", group());
    let body = json!({"location": "westeurope", "properties": {"ipConfigurations": [
        {"name": "ipConfig1", "properties": {"privateIPAllocationMethod": "Dynamic", "subnet": {"id": subnet}}}
    ]}});
    let uri = format!("{}?api-version=2025-05-01", nic_id(name));
    rig.call("PUT", &uri, Some(body)).await.expect(201);
}

pub(super) fn machine(nic: &str) -> Value {
    json!({
        "identity": {"type": "None"},
        "location": "westeurope",
        "properties": {
            "hardwareProfile": {"vmSize": "Standard_D2s_v3"},
            "networkProfile": {"networkInterfaces": [{"id": nic_id(nic)}]},
            "osProfile": {"adminPassword": "secret", "adminUsername": "sample-user", "computerName": "sample-compute"},
            "storageProfile": {
                "imageReference": {"offer": "WindowsServer", "publisher": "MicrosoftWindowsServer", "sku": "2019-Datacenter", "version": "latest"},
                "osDisk": {"caching": "ReadWrite", "createOption": "fromImage", "managedDisk": {"storageAccountType": "Standard_LRS"}, "name": "disk1"},
            },
        },
    })
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_created_updated_and_deleted_as_recorded() {
    let rig = Rig::new(slow()).await;
    nic(&rig, "nic1").await;
    let got = rig.call("PUT", &vm_uri("new"), Some(machine("nic1"))).await.expect(201);
    assert_eq!(got.header("etag"), "\"1\"");
    assert!(got.header("location").is_empty());
    assert_eq!(got.header("azure-asyncnotification"), "Enabled");
    assert_eq!(got.header("x-ms-need-to-refresh-epl-cache"), "False");
    assert_eq!(got.body["etag"], "\"1\"");
    assert_eq!(got.body["properties"]["provisioningState"], "Creating");
    assert!(got.body.get("identity").is_none());
    let profile = &got.body["properties"]["storageProfile"];
    assert_eq!(profile["dataDisks"], json!([]));
    assert_eq!(profile["osDisk"]["createOption"], "FromImage");
    assert_eq!(profile["osDisk"]["deleteOption"], "Detach");
    assert_eq!(profile["osDisk"]["diskSizeGB"], 127);
    assert!(profile["osDisk"]["managedDisk"].get("id").is_none());
    assert!(got.body["properties"]["osProfile"].get("adminPassword").is_none());
    assert_eq!(got.body["properties"]["osProfile"]["requireGuestProvisionSignal"], true);
    let end = rig.finish(&got).await;
    assert_eq!(end["status"], "Succeeded");
    assert!(end.get("properties").is_none());
    // Its interface has a hardware address from now on.
    let own = rig.get(&format!("{}?api-version=2025-05-01", nic_id("nic1"))).await.expect(200).body;
    let hardware = own["properties"]["macAddress"].as_str().unwrap();
    assert!(hardware.starts_with("00-0D-3A-") && hardware.len() == "00-0D-3A-00-00-00".len(), "{hardware}");
    let vm = rig.get(&vm_uri("new")).await.expect(200);
    assert_eq!(vm.header("etag"), "\"2\"");
    assert_eq!(vm.body["properties"]["provisioningState"], "Succeeded");
    assert_eq!(vm.body["properties"]["storageProfile"]["osDisk"]["managedDisk"]["id"], disk_id("disk1"));
    assert_eq!(rig.disk_doc("disk1").await["managedBy"], vm_id("new"));
    // The same again: no operation header, the etag rises, the client polls the machine itself.
    let got = rig.call("PUT", &vm_uri("new"), Some(machine("nic1"))).await.expect(200);
    assert_eq!(got.header("etag"), "\"3\"");
    assert!(got.header("azure-asyncoperation").is_empty());
    assert_eq!(got.body["properties"]["provisioningState"], "Updating");
    tokio::time::sleep(Duration::from_secs(60)).await;
    let vm = rig.get(&vm_uri("new")).await.expect(200);
    assert_eq!((vm.header("etag"), vm.body["properties"]["provisioningState"].as_str()), ("\"3\"", Some("Succeeded")));
    // A stale etag.
    let got = rig
        .with("PUT", &vm_uri("new"), Some(machine("nic1")), &[("if-match", "invalid")])
        .await
        .refused(412, "PreconditionFailed");
    assert_eq!(got.message(), "Etag provided in if-match header \"invalid\" does not match etag \"3\" of resource.");
    rig.with("PUT", &vm_uri("new"), Some(machine("nic1")), &[("if-none-match", "*")])
        .await
        .refused(412, "PreconditionFailed");
    let got = rig.with("PUT", &vm_uri("new"), Some(machine("nic1")), &[("if-match", "\"3\"")]).await.expect(200);
    assert_eq!(got.header("etag"), "\"4\"");
    tokio::time::sleep(Duration::from_secs(60)).await;
    let got = rig.call("DELETE", &vm_uri("new"), None).await.expect(202);
    assert!(got.header("location").contains("monitor=true"));
    assert!(!got.header("azure-asyncoperation").is_empty());
    rig.finish(&got).await;
    rig.get(&vm_uri("new")).await.refused(404, "ResourceNotFound");
    rig.call("DELETE", &vm_uri("new"), None).await.expect(204);
    let disk = rig.disk_doc("disk1").await;
    assert_eq!(disk["properties"]["diskState"], "Unattached");
}

#[tokio::test(start_paused = true)]
async fn a_machine_may_be_created_with_data_disks() {
    let rig = Rig::new(slow()).await;
    nic(&rig, "nic1").await;
    rig.disk("d").await;
    let mut body = machine("nic1");
    body["properties"]["storageProfile"]["dataDisks"] = json!([element("d", 3)]);
    let got = rig.call("PUT", &vm_uri("new"), Some(body)).await.expect(201);
    rig.finish(&got).await;
    assert_eq!(rig.luns("new"), [(3, "d".to_owned())]);
    assert_eq!(rig.disk_doc("d").await["managedBy"], vm_id("new"));
}

#[tokio::test(start_paused = true)]
async fn what_a_new_machine_lacks_or_names_wrongly_is_refused() {
    let rig = Rig::new(options()).await;
    nic(&rig, "nic1").await;
    let without = |pointer: &str| {
        let mut body = machine("nic1");
        let (parent, member) = pointer.rsplit_once('/').unwrap();
        body.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(member);
        body
    };
    for pointer in [
        "/location",
        "/properties/hardwareProfile",
        "/properties/storageProfile",
        "/properties/storageProfile/osDisk",
        "/properties/networkProfile",
    ] {
        let got = rig.call("PUT", &vm_uri("new"), Some(without(pointer))).await;
        assert_eq!(got.status, 400, "{pointer}: {}", got.body);
    }
    let mut body = machine("nic1");
    body["properties"]["hardwareProfile"]["vmSize"] = json!("Standard_Huge");
    rig.call("PUT", &vm_uri("new"), Some(body)).await.refused(400, "InvalidParameter");
    rig.call("PUT", &vm_uri("new"), Some(machine("none"))).await.refused(404, "ResourceNotFound");
    let mut body = machine("nic1");
    body["properties"]["availabilitySet"] =
        json!({"id": format!("{}/providers/Microsoft.Compute/availabilitySets/none", group())});
    rig.call("PUT", &vm_uri("new"), Some(body)).await.expect(404);
    let mut body = machine("nic1");
    body["zones"] = json!(["9"]);
    rig.call("PUT", &vm_uri("new"), Some(body)).await.refused(400, "InvalidAvailabilityZone");
    rig.call("PUT", &vm_uri("new"), Some(machine("plain-0-nic"))).await.refused(400, "NicInUse");
}

#[tokio::test(start_paused = true)]
async fn power_actions_show_in_the_instance_view_and_on_the_disks() {
    let rig = Rig::new(slow()).await;
    rig.disk("d").await;
    rig.attached("member-0", &[("d", 0)]).await;
    let view = format!("{}/instanceView?api-version={COMPUTE_VERSION}", vm_id("member-0"));
    let power = |body: &Value| {
        let codes: Vec<String> =
            body["statuses"].as_array().unwrap().iter().map(|s| s["code"].as_str().unwrap().to_owned()).collect();
        codes.into_iter().find(|code| code.starts_with("PowerState/")).unwrap()
    };
    for (action, state, disk) in [
        ("deallocate", "PowerState/deallocated", "Reserved"),
        ("start", "PowerState/running", "Attached"),
        ("powerOff", "PowerState/stopped", "Attached"),
    ] {
        let got = rig
            .call("POST", &format!("{}/{action}?api-version={COMPUTE_VERSION}", vm_id("member-0")), None)
            .await
            .expect(202);
        rig.finish(&got).await;
        let shown = rig.get(&view).await.expect(200).body;
        assert_eq!(power(&shown), state);
        assert_eq!(rig.disk_doc("d").await["properties"]["diskState"], disk);
        let expanded = rig.get(&format!("{}&$expand=instanceView", vm_uri("member-0"))).await.expect(200).body;
        assert_eq!(power(&expanded["properties"]["instanceView"]), state);
        assert!(shown["platformFaultDomain"].is_number());
    }
    rig.get(&format!("{}/instanceView?api-version={COMPUTE_VERSION}", vm_id("none")))
        .await
        .refused(404, "ResourceNotFound");
}

#[tokio::test(start_paused = true)]
async fn lists_of_machines_are_filtered_and_expanded() {
    let rig = Rig::new(options()).await;
    let list = format!("{}/providers/Microsoft.Compute/virtualMachines?api-version={COMPUTE_VERSION}", group());
    let all = rig.get(&format!("{list}&$expand=instanceView")).await.expect(200).body;
    assert_eq!(all["value"].as_array().unwrap().len(), 8);
    assert!(all["value"][0]["properties"]["instanceView"]["statuses"].is_array());
    let none =
        rig.get(&format!("{list}&%24filter=%27virtualMachineScaleSet%2Fid%27+eq+%27notexists%27")).await.expect(200);
    assert_eq!(none.body, json!({"value": []}));
    let set = format!("{}/providers/Microsoft.Compute/availabilitySets/set?api-version={COMPUTE_VERSION}", group());
    let set = rig.get(&set).await.expect(200).body;
    assert_eq!(set["properties"]["virtualMachines"].as_array().unwrap().len(), 2);
    assert_eq!(set["sku"]["name"], "Aligned");
}

#[tokio::test(start_paused = true)]
async fn fixed_members_of_a_machine_stay() {
    let rig = Rig::new(options()).await;
    let uri = vm_uri("zonal-0");
    let patch = |body: Value| rig.call("PATCH", &uri, Some(body));
    patch(json!({"zones": ["3"]})).await.refused(409, "PropertyChangeNotAllowed");
    patch(json!({"properties": {"osProfile": {"computerName": "other"}}}))
        .await
        .refused(409, "PropertyChangeNotAllowed");
    patch(json!({"properties": {"storageProfile": {"osDisk": {"createOption": "Empty"}}}})).await.expect(409);
    let got = patch(json!({"tags": {"a": "b"}})).await.expect(200);
    assert_eq!(got.body["tags"], json!({"a": "b"}));
    patch(json!({"properties": {"unknown": 1}})).await.refused(400, "BadRequest");
    rig.call("PATCH", &vm_uri("none"), Some(json!({"tags": {}}))).await.refused(404, "ResourceNotFound");
}

#[tokio::test(start_paused = true)]
async fn attach_detach_begins_with_its_api_version() {
    let rig = Rig::new(options()).await;
    let uri = format!("{}/attachDetachDataDisks?api-version=2023-09-01", vm_id("plain-0"));
    rig.call("POST", &uri, Some(json!({"dataDisksToAttach": []}))).await.refused(400, "NoRegisteredProviderFound");
    let uri = format!("{}/attachDetachDataDisks?api-version=2024-03-01", vm_id("plain-0"));
    rig.call("POST", &uri, Some(json!({"dataDisksToAttach": []}))).await.refused(400, "InvalidParameter");
}

#[tokio::test(start_paused = true)]
async fn a_machine_takes_no_size_that_its_disks_do_not_fit() {
    let rig = Rig::new(options()).await;
    rig.disk("d").await;
    rig.attached("plain-0", &[("d", 0)]).await;
    let patch = async |vm: &str, properties: Value| {
        rig.call("PATCH", &vm_uri(vm), Some(json!({ "properties": properties }))).await
    };
    let got =
        patch("plain-0", json!({"hardwareProfile": {"vmSize": "Standard_F4"}})).await.refused(400, "InvalidParameter");
    assert!(
        got.message().contains("does not support the storage account type Premium_LRS of disk "),
        "{}",
        got.message()
    );
    patch("plain-0", json!({"hardwareProfile": {"vmSize": "Standard_D8s_v3"}})).await.expect(200);
    // An element that makes its disk is on the size as well.
    let premium = json!({"lun": 0, "createOption": "Empty", "diskSizeGB": 8, "managedDisk": {"storageAccountType": "Premium_LRS"}});
    rig.put_data_disks("basic", json!([premium])).await.refused(400, "InvalidParameter");
}

#[tokio::test(start_paused = true)]
async fn ultra_is_switched_on_while_deallocated_and_on_sizes_that_have_it() {
    let rig = Rig::new(options()).await;
    let ultra = json!({"properties": {"additionalCapabilities": {"ultraSSDEnabled": true}}});
    rig.call("PATCH", &vm_uri("zonal-0"), Some(ultra.clone())).await.refused(409, "OperationNotAllowed");
    for vm in ["zonal-0", "basic"] {
        let stop = format!("{}/deallocate?api-version={COMPUTE_VERSION}", vm_id(vm));
        let got = rig.call("POST", &stop, None).await.expect(202);
        rig.finish(&got).await;
    }
    rig.call("PATCH", &vm_uri("basic"), Some(ultra.clone())).await.refused(400, "InvalidParameter");
    let got = rig.call("PATCH", &vm_uri("zonal-0"), Some(ultra.clone())).await.expect(200);
    rig.finish(&got).await;
    let stop = format!("{}/deallocate?api-version={COMPUTE_VERSION}", vm_id("member-0"));
    let got = rig.call("POST", &stop, None).await.expect(202);
    rig.finish(&got).await;
    rig.call("PATCH", &vm_uri("member-0"), Some(ultra.clone())).await.refused(400, "BadRequest");
    // Sent again it changes nothing, and that may be at any time.
    rig.call("PATCH", &vm_uri("zonal-0"), Some(ultra)).await.expect(200);
}

#[tokio::test(start_paused = true)]
async fn empty_capabilities_are_not_shown_and_those_that_are_off_are() {
    let rig = Rig::new(slow()).await;
    nic(&rig, "nic1").await;
    let mut body = machine("nic1");
    body["properties"]["additionalCapabilities"] = json!({});
    let got = rig.call("PUT", &vm_uri("new"), Some(body)).await.expect(201);
    rig.finish(&got).await;
    let shown = |vm: Got| vm.expect(200).body["properties"]["additionalCapabilities"].take();
    assert_eq!(shown(rig.get(&vm_uri("new")).await), Value::Null);
    let off = json!({"ultraSSDEnabled": false, "hibernationEnabled": false});
    let again = json!({"properties": {"additionalCapabilities": off}});
    let got = rig.call("PATCH", &vm_uri("new"), Some(again)).await;
    assert!(got.status < 300, "{}", got.body);
    rig.finish(&got).await;
    assert_eq!(shown(rig.get(&vm_uri("new")).await), off);
}

/// The requests by which `az vm create` and Ansible find out what `latest` is.
#[tokio::test(start_paused = true)]
async fn an_image_is_found_by_publisher_offer_sku_and_version() {
    let rig = Rig::new(slow()).await;
    let subscription = group().split("/resourceGroups").next().unwrap().to_owned();
    let location = format!("{subscription}/providers/Microsoft.Compute/locations/westeurope");
    let uri = |path: &str, query: &str| format!("{location}/publishers{path}?api-version=2025-04-01{query}");
    let names = |got: Got| -> Vec<String> {
        let all = got.expect(200).body;
        all.as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap().to_owned()).collect()
    };
    assert!(names(rig.get(&uri("", "")).await).contains(&"Canonical".to_owned()));
    let offers = "/canonical/artifacttypes/vmimage/offers";
    assert_eq!(
        names(rig.get(&uri(offers, "")).await),
        ["0001-com-ubuntu-server-focal", "0001-com-ubuntu-server-jammy", "ubuntu-24_04-lts"]
    );
    let skus = format!("{offers}/0001-com-ubuntu-server-jammy/skus");
    assert_eq!(names(rig.get(&uri(&skus, "")).await), ["22_04-lts", "22_04-lts-gen2"]);
    let versions = format!("{skus}/22_04-lts-gen2/versions");
    assert_eq!(names(rig.get(&uri(&versions, "")).await), ["22.04.202407010", "22.04.202411010"]);
    let newest = rig.get(&uri(&versions, "&$top=1&$orderby=name%20desc")).await.expect(200).body;
    assert_eq!(newest.as_array().unwrap().len(), 1);
    assert_eq!(newest[0]["name"], "22.04.202411010");
    let id = newest[0]["id"].as_str().unwrap();
    assert!(id.ends_with("/Offers/0001-com-ubuntu-server-jammy/Skus/22_04-lts-gen2/Versions/22.04.202411010"), "{id}");
    let image = rig.get(&format!("{id}?api-version=2025-04-01")).await.expect(200).body;
    assert_eq!(image["id"], id);
    assert_eq!(image["properties"]["osDiskImage"]["operatingSystem"], "Linux");
    assert_eq!(image["properties"]["hyperVGeneration"], "V2");
    for missing in
        ["/nobody/artifacttypes/vmimage/offers", &format!("{skus}/none/versions"), &format!("{versions}/1.0")]
    {
        let got = rig.get(&uri(missing, "")).await.expect(404);
        assert_eq!((got.code(), got.message()), ("NotFound", "Artifact: VMImage was not found."));
    }
    let elsewhere = location.replace("westeurope", "nowhere");
    let got = rig.get(&format!("{elsewhere}/publishers?api-version=2025-04-01")).await.expect(400);
    assert_eq!(got.code(), "LocationNotAvailableForResourceType");
}
