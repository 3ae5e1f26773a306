use super::*;

fn uri(kind: &str, name: &str) -> String {
    format!("{}/providers/Microsoft.Network/{kind}/{name}?api-version=2025-05-01", group())
}

#[tokio::test(start_paused = true)]
async fn a_virtual_network_lives_as_recorded() {
    let rig = Rig::new(slow()).await;
    let body = json!({"location": "westus", "properties": {"addressSpace": {"addressPrefixes": ["192.168.0.0/16"]}}});
    let uri = uri("virtualNetworks", "testResource");
    let got = rig.call("PUT", &uri, Some(body.clone())).await.expect(201);
    assert_eq!(got.header("azure-asyncnotification"), "Enabled");
    assert!(got.header("location").is_empty() && got.header("etag").is_empty());
    assert_eq!(got.body["properties"]["provisioningState"], "Updating");
    assert_eq!(rig.finish(&got).await, json!({"status": "Succeeded"}));
    let shown = rig.get(&uri).await.expect(200);
    assert_eq!(shown.header("etag"), shown.body["etag"].as_str().unwrap());
    assert!(shown.header("etag").starts_with("W/\""));
    let mut expected = json!({
        "name": "testResource",
        "id": format!("{}/providers/Microsoft.Network/virtualNetworks/testResource", group()),
        "etag": "",
        "type": "Microsoft.Network/virtualNetworks",
        "location": "westus",
        "properties": {
            "provisioningState": "Succeeded",
            "resourceGuid": "",
            "addressSpace": {"addressPrefixes": ["192.168.0.0/16"]},
            "privateEndpointVNetPolicies": "Disabled",
            "subnets": [],
            "virtualNetworkPeerings": [],
            "enableDdosProtection": false,
        },
    });
    expected["etag"] = shown.body["etag"].clone();
    expected["properties"]["resourceGuid"] = shown.body["properties"]["resourceGuid"].clone();
    assert_eq!(shown.body, expected);
    let again = rig.call("PUT", &uri, Some(body.clone())).await.expect(201);
    assert_eq!(again.body["properties"]["provisioningState"], "Succeeded");
    let got = rig.with("PUT", &uri, Some(body), &[("if-match", "invalid")]).await.refused(412, "PreconditionFailed");
    assert_eq!(got.message(), "Precondition failed.");
    assert_eq!(got.body["error"]["details"][0]["code"], "PreconditionFailedEtagMismatch");
    let got = rig.call("DELETE", &uri, None).await.expect(202);
    assert!(got.header("location").contains("/operationResults/"));
    assert_eq!(rig.finish(&got).await, json!({"status": "Succeeded"}));
    rig.get(&uri).await.refused(404, "ResourceNotFound");
}

#[tokio::test(start_paused = true)]
async fn a_network_interface_takes_the_first_free_address_and_pins_its_subnet() {
    let rig = Rig::new(options()).await;
    let body = json!({"location": "eastus2", "properties": {
        "addressSpace": {"addressPrefixes": ["10.1.0.0/16"]},
        "subnets": [{"name": "subnet1", "properties": {"addressPrefix": "10.1.0.0/24"}}],
    }});
    let got = rig.call("PUT", &uri("virtualNetworks", "vnet1"), Some(body)).await.expect(201);
    rig.finish(&got).await;
    let subnet = format!("{}/providers/Microsoft.Network/virtualNetworks/vnet1/subnets/subnet1", group());
    let nic = |subnet: &str| {
        json!({"location": "eastus2", "properties": {"ipConfigurations": [
            {"name": "ipConfig1", "properties": {"privateIPAllocationMethod": "Dynamic", "subnet": {"id": subnet}}}
        ]}})
    };
    let got = rig.call("PUT", &uri("networkInterfaces", "nic1"), Some(nic(&subnet))).await.expect(201);
    assert!(got.header("azure-asyncoperation").is_empty());
    let address = |got: &Got| got.body["properties"]["ipConfigurations"][0]["properties"]["privateIPAddress"].clone();
    assert_eq!(address(&got), "10.1.0.4");
    let got = rig.call("PUT", &uri("networkInterfaces", "nic2"), Some(nic(&subnet))).await.expect(201);
    assert_eq!(address(&got), "10.1.0.5");
    let got = rig.call("PUT", &uri("networkInterfaces", "nic2"), Some(nic(&subnet))).await.expect(200);
    assert_eq!(address(&got), "10.1.0.5");
    rig.call("PUT", &uri("networkInterfaces", "nic3"), Some(nic(&subnet.replace("subnet1", "none"))))
        .await
        .refused(400, "InvalidResourceReference");
    rig.call("DELETE", &uri("virtualNetworks", "vnet1"), None).await.refused(400, "InUseSubnetCannotBeDeleted");
    let missing =
        format!("{}/providers/Microsoft.Network/virtualNetworks/vnet1/subnets/none?api-version=2025-05-01", group());
    let got = rig.get(&missing).await.refused(404, "NotFound");
    assert_eq!(got.body["error"]["details"], json!([]));
    rig.call("DELETE", &uri("networkInterfaces", "plain-0-nic"), None).await.refused(400, "NicInUse");
    rig.call("DELETE", &uri("networkInterfaces", "nic1"), None).await.expect(202);
}
