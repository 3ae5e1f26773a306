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

/// A network with these subnets, or with nothing said of any.
fn network(subnets: Option<Value>) -> Value {
    let mut body =
        json!({"location": "westeurope", "properties": {"addressSpace": {"addressPrefixes": ["10.7.0.0/16"]}}});
    if let Some(subnets) = subnets {
        body["properties"]["subnets"] = subnets;
    }
    body
}

/// A subnet with room for three addresses.
fn small() -> Value {
    json!([{"name": "small", "properties": {"addressPrefix": "10.7.0.0/29"}}])
}

fn id_of(kind: &str, name: &str) -> String {
    format!("{}/providers/Microsoft.Network/{kind}/{name}", group())
}

/// An interface in the subnet `small` of the network `net`.
fn small_nic() -> Value {
    json!({"location": "westeurope", "properties": {"ipConfigurations": [
        {"name": "first", "properties": {"subnet": {"id": id_of("virtualNetworks", "net/subnets/small")}}}
    ]}})
}

#[tokio::test(start_paused = true)]
async fn a_network_written_without_subnets_keeps_them() {
    let rig = Rig::new(options()).await;
    rig.written(&uri("virtualNetworks", "net"), network(Some(small()))).await;
    let kept = rig.written(&uri("virtualNetworks", "net"), network(None)).await;
    assert_eq!(kept["properties"]["subnets"][0]["properties"]["addressPrefix"], "10.7.0.0/29");
    let subnet = rig.get(&uri("virtualNetworks", "net/subnets/small")).await.expect(200).body;
    assert_eq!((&subnet["etag"], &subnet["properties"]["provisioningState"]), (&kept["etag"], &json!("Succeeded")));
    // An empty list takes them away, and so did none before that version.
    let emptied = rig.written(&uri("virtualNetworks", "net"), network(Some(json!([])))).await;
    assert_eq!(emptied["properties"]["subnets"], json!([]));
    rig.written(&uri("virtualNetworks", "net"), network(Some(small()))).await;
    let older = format!("{}?api-version=2023-06-01", id_of("virtualNetworks", "net"));
    let emptied = rig.written(&older, network(None)).await;
    assert_eq!(emptied["properties"]["subnets"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn prefixes_of_networks_and_subnets_are_prefixes() {
    let rig = Rig::new(options()).await;
    let net = uri("virtualNetworks", "net");
    rig.written(&net, network(Some(small()))).await;
    for (space, code) in [
        ("10.7.0.0", "InvalidAddressPrefixFormat"),
        ("10.7.0.0/33", "InvalidAddressPrefixFormat"),
        ("10.7.1.0/16", "InvalidCIDRNotation"),
    ] {
        let mut body = network(Some(json!([])));
        body["properties"]["addressSpace"]["addressPrefixes"] = json!([space]);
        rig.refuses(&net, &body, code).await;
    }
    let subnet = |prefix: &str| json!({"properties": {"addressPrefix": prefix}});
    let uri = uri("virtualNetworks", "net/subnets/other");
    let got = rig.call("PUT", &uri, Some(subnet("10.7.1.1/24"))).await.refused(400, "InvalidCIDRNotation");
    assert!(got.message().ends_with("the address prefix should be 10.7.1.0/24."), "{}", got.message());
    rig.call("PUT", &uri, Some(subnet("10.7.1.0-24"))).await.refused(400, "InvalidAddressPrefixFormat");
    rig.call("PUT", &uri, Some(subnet("10.7.1.0/30"))).await.refused(400, "InvalidSubnetPrefixLength");
    for none in [json!({"properties": {}}), json!({"properties": {"addressPrefixes": []}})] {
        rig.call("PUT", &uri, Some(none)).await.refused(400, "NoAddressPrefixOrPoolProvided");
    }
    let got = rig.call("PUT", &uri, Some(subnet("10.7.1.0/24"))).await.expect(201);
    rig.finish(&got).await;
}

#[tokio::test(start_paused = true)]
async fn a_subnet_shows_the_configurations_that_have_its_addresses() {
    let rig = Rig::new(options()).await;
    rig.written(&uri("virtualNetworks", "net"), network(Some(small()))).await;
    let subnet = uri("virtualNetworks", "net/subnets/small");
    let shown = |body: &Value| body["properties"]["ipConfigurations"].clone();
    assert_eq!(shown(&rig.get(&subnet).await.expect(200).body), Value::Null);
    rig.written(&uri("networkInterfaces", "nic"), small_nic()).await;
    let frontend = json!({"location": "westeurope", "sku": {"name": "Standard"}, "properties": {
        "frontendIPConfigurations": [{"name": "f", "properties": {
            "subnet": {"id": id_of("virtualNetworks", "net/subnets/small")}}}]}});
    rig.written(&uri("loadBalancers", "lb"), frontend).await;
    let expected = json!([
        {"id": id_of("networkInterfaces", "nic/ipConfigurations/first")},
        {"id": id_of("loadBalancers", "lb/frontendIPConfigurations/f")},
    ]);
    let one = rig.get(&subnet).await.expect(200).body;
    assert_eq!(shown(&one), expected);
    let net = rig.get(&uri("virtualNetworks", "net")).await.expect(200).body;
    assert_eq!(shown(&net["properties"]["subnets"][0]), expected);
    // What is shown is not kept when it is written back.
    rig.written(&uri("virtualNetworks", "net"), net).await;
    rig.call("DELETE", &uri("networkInterfaces", "nic"), None).await.expect(202);
    let left = json!([{"id": id_of("loadBalancers", "lb/frontendIPConfigurations/f")}]);
    assert_eq!(shown(&rig.get(&subnet).await.expect(200).body), left);
}

#[tokio::test(start_paused = true)]
async fn a_network_tells_which_addresses_are_free() {
    let rig = Rig::new(options()).await;
    rig.written(&uri("virtualNetworks", "net"), network(Some(small()))).await;
    let of_net = |rest: &str| format!("{}/{rest}", id_of("virtualNetworks", "net"));
    let ask = |address: &str| of_net(&format!("CheckIPAddressAvailability?ipAddress={address}&api-version=2025-05-01"));
    let free = json!({"available": true, "isPlatformReserved": false});
    assert_eq!(rig.get(&ask("10.7.0.4")).await.expect(200).body, free);
    rig.written(&uri("networkInterfaces", "nic"), small_nic()).await;
    let taken = |reserved: bool| json!({"available": false, "availableIPAddresses": ["10.7.0.5", "10.7.0.6"], "isPlatformReserved": reserved});
    assert_eq!(rig.get(&ask("10.7.0.4")).await.expect(200).body, taken(false));
    assert_eq!(rig.get(&ask("10.7.0.1")).await.expect(200).body, taken(true));
    for outside in ["10.7.9.9", "fd00::4", "nonsense"] {
        rig.get(&ask(outside)).await.refused(400, "PrivateIPAddressNotInAnySubnet");
    }
    let unasked = of_net("checkIpAddressAvailability?api-version=2025-05-01");
    rig.get(&unasked).await.refused(400, "PrivateIPAddressIsNullOrEmpty");
    let usages = rig.get(&of_net("usages?api-version=2025-05-01")).await.expect(200).body;
    assert_eq!(
        usages["value"],
        json!([{
            "currentValue": 1, "limit": 3, "unit": "Count",
            "id": id_of("virtualNetworks", "net/subnets/small"),
            "name": {"localizedValue": "Subnet size and usage", "value": "SubnetSpace"},
        }])
    );
    rig.get(&ask("10.7.0.4").replace("/net/", "/none/")).await.refused(404, "ResourceNotFound");
}

#[tokio::test(start_paused = true)]
async fn what_is_in_another_region_is_not_found() {
    let rig = Rig::new(options()).await;
    rig.written(&uri("virtualNetworks", "net"), network(Some(small()))).await;
    let mut far = small_nic();
    far["location"] = json!("northeurope");
    let got = rig.refuses(&uri("networkInterfaces", "nic"), &far, "InvalidResourceReference").await;
    assert!(got.message().ends_with("both resources are in the same region."), "{}", got.message());
    far["location"] = json!("West Europe");
    rig.written(&uri("networkInterfaces", "nic"), far).await;
    rig.written(&uri("routeTables", "far"), json!({"location": "northeurope"})).await;
    let subnet =
        json!({"properties": {"addressPrefix": "10.7.0.0/29", "routeTable": {"id": id_of("routeTables", "far")}}});
    rig.refuses(&uri("virtualNetworks", "net/subnets/small"), &subnet, "InvalidResourceReference").await;
}

#[tokio::test(start_paused = true)]
async fn one_of_several_configurations_and_of_several_interfaces_is_primary() {
    let rig = Rig::new(options()).await;
    rig.written(&uri("virtualNetworks", "net"), network(Some(small()))).await;
    let mut both = small_nic();
    let mut second = both["properties"]["ipConfigurations"][0].clone();
    second["name"] = json!("second");
    both["properties"]["ipConfigurations"].as_array_mut().unwrap().push(second);
    let nic = |name: &str| uri("networkInterfaces", name);
    let got = rig.refuses(&nic("two"), &both, "NetworkInterfaceMustHaveOneOneIPConfigAsPrimary").await;
    assert!(got.message().starts_with("Network Interface two specifies multiple"), "{}", got.message());
    both["properties"]["ipConfigurations"][1]["properties"]["primary"] = json!(true);
    rig.written(&nic("two"), both).await;
    rig.written(&nic("one"), small_nic()).await;
    let machine = |primary: Option<bool>| {
        let mut first = json!({"id": id_of("networkInterfaces", "one")});
        if let Some(primary) = primary {
            first["properties"] = json!({ "primary": primary });
        }
        json!({"location": "westeurope", "properties": {
            "hardwareProfile": {"vmSize": "Standard_D4s_v3"},
            "networkProfile": {"networkInterfaces": [first, {"id": id_of("networkInterfaces", "two")}]},
            "osProfile": {"adminPassword": "secret", "adminUsername": "someone", "computerName": "two"},
            "storageProfile": {
                "imageReference": {"publisher": "Canonical", "offer": "ubuntu-24_04-lts", "sku": "server", "version": "latest"},
                "osDisk": {"createOption": "FromImage"},
            },
        }})
    };
    let got = rig.refuses(&vm_uri("two"), &machine(None), "NetworkInterfaceMustHavePrimaryPropertySet").await;
    assert_eq!(got.message(), "Network interface one must have Primary property set.");
    let got = rig.call("PUT", &vm_uri("two"), Some(machine(Some(true)))).await.expect(201);
    assert_eq!(rig.finish(&got).await["status"], "Succeeded");
}
