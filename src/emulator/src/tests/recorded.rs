//! Details of recorded traffic: headers and members that come with some answers and not with others.

use super::*;

const QUOTA: &str = "x-ms-ratelimit-remaining-";

fn shows_quota(got: &Got) -> bool {
    got.headers.keys().any(|name| name.as_str().starts_with(QUOTA))
}

fn network_uri(name: &str) -> String {
    format!("{}/providers/Microsoft.Network/virtualNetworks/{name}?api-version=2025-05-01", group())
}

#[tokio::test(start_paused = true)]
async fn what_the_gateway_refuses_shows_no_remaining_quota() {
    let rig = Rig::new(options()).await;
    for (uri, code) in [
        (disk_uri("none"), "ResourceNotFound"),
        (vm_uri("none"), "ResourceNotFound"),
        (network_uri("none"), "ResourceNotFound"),
        (disk_uri("d").replace("lazuli", "none"), "ResourceGroupNotFound"),
    ] {
        let got = rig.get(&uri).await.refused(404, code);
        assert_eq!(got.header("x-ms-failure-cause"), "gateway", "{uri}");
        assert!(!shows_quota(&got), "{uri}: {:?}", got.headers);
    }
    assert!(shows_quota(&rig.get(&vm_uri("plain-0")).await.expect(200)));
}

#[tokio::test(start_paused = true)]
async fn the_compute_providers_cache_header_comes_on_polls_and_refusals_of_machines_and_not_on_disk_polls() {
    const HEADER: &str = "x-ms-need-to-refresh-epl-cache";
    let rig = Rig::new(options()).await;
    let disk = rig.put_disk("d", premium(4)).await.expect(202);
    let poll = rig.get(path_of(disk.header("azure-asyncoperation"))).await.expect(200);
    assert_eq!(poll.header(HEADER), "");
    let write = rig.put_data_disks("plain-0", json!([element("d", 0)])).await.expect(200);
    assert_eq!(write.header(HEADER), "False");
    let poll = rig.get(path_of(write.header("azure-asyncoperation"))).await.expect(200);
    assert_eq!(poll.header(HEADER), "False");
    let refused = rig
        .with("PUT", &vm_uri("plain-0"), Some(json!({"location": "westeurope"})), &[("if-match", "invalid")])
        .await
        .refused(412, "PreconditionFailed");
    assert_eq!(refused.header(HEADER), "False");
}

#[tokio::test(start_paused = true)]
async fn an_empty_list_comes_without_the_providers_headers_and_network_lists_name_no_requests() {
    let rig = Rig::new(options()).await;
    let list = format!("{}/providers/Microsoft.Compute/virtualMachines?api-version={COMPUTE_VERSION}", group());
    let some = rig.get(&list).await.expect(200);
    assert_eq!(some.header("x-ms-need-to-refresh-epl-cache"), "False");
    assert!(!some.header("x-ms-original-request-ids").is_empty());
    let none = rig.get(&format!("{list}&$filter='virtualMachineScaleSet/id'%20eq%20'none'")).await.expect(200);
    assert_eq!(none.body, json!({"value": []}));
    for header in ["x-ms-need-to-refresh-epl-cache", "x-ms-original-request-ids"] {
        assert_eq!(none.header(header), "", "{header}");
    }
    let networks = format!("{}/providers/Microsoft.Network/virtualNetworks?api-version=2025-05-01", group());
    let networks = rig.get(&networks).await.expect(200);
    assert_eq!(networks.body["value"].as_array().unwrap().len(), 1);
    assert_eq!(networks.header("x-ms-original-request-ids"), "");
}

#[tokio::test(start_paused = true)]
async fn a_network_shows_no_member_that_nobody_gave_it_when_its_creation_is_over() {
    let rig = Rig::new(slow()).await;
    let body = json!({"location": "eastus2", "properties": {
        "addressSpace": {"addressPrefixes": ["10.1.0.0/16"]},
        "subnets": [{"name": "subnet1", "properties": {"addressPrefix": "10.1.0.0/24"}}],
    }});
    let got = rig.call("PUT", &network_uri("vnet1"), Some(body)).await.expect(201);
    rig.finish(&got).await;
    let shown = rig.get(&network_uri("vnet1")).await.expect(200).body;
    assert!(shown["properties"].get("ipConfigurations").is_none(), "{shown}");
    assert!(!shown.to_string().contains("null"), "{shown}");
}

#[tokio::test(start_paused = true)]
async fn an_availability_set_names_the_scale_set_that_it_could_become() {
    let rig = Rig::new(options()).await;
    let set = format!("{}/providers/Microsoft.Compute/availabilitySets/fresh", group());
    let uri = format!("{set}?api-version={COMPUTE_VERSION}");
    let put = rig.call("PUT", &uri, Some(json!({"location": "westeurope"}))).await.expect(200).body;
    let get = rig.get(&uri).await.expect(200).body;
    let list = format!("{}/providers/Microsoft.Compute/availabilitySets?api-version={COMPUTE_VERSION}", group());
    let list = rig.get(&list).await.expect(200).body;
    let listed = list["value"].as_array().unwrap().iter().find(|set| set["name"] == "fresh").unwrap();
    let wanted = json!({"defaultVirtualMachineScaleSetInfo": {
        "constrainedMaximumCapacity": true,
        "defaultVirtualMachineScaleSet": {
            "id": format!("{}/providers/Microsoft.Compute/virtualMachineScaleSets/fresh", group()),
        },
    }});
    for shown in [&put, &get, listed] {
        assert_eq!(shown["properties"]["virtualMachineScaleSetMigrationInfo"], wanted, "{shown}");
    }
}
