use super::*;

const NETWORK_VERSION: &str = "2025-05-01";

fn uri(kind: &str, name: &str) -> String {
    format!("{}/providers/Microsoft.Network/{kind}/{name}?api-version={NETWORK_VERSION}", group())
}

fn ip_uri(name: &str) -> String {
    uri("publicIPAddresses", name)
}

fn ip_id(name: &str) -> String {
    format!("{}/providers/Microsoft.Network/publicIPAddresses/{name}", group())
}

fn standard(properties: Value) -> Value {
    let mut body = json!({"location": "westeurope", "sku": {"name": "Standard"}, "properties": properties});
    body["properties"]["publicIPAllocationMethod"] = json!("Static");
    body
}

/// A network interface in the subnet of the scenario, with these public addresses.
fn nic(names: &[&str]) -> Value {
    let subnet = format!("{}/providers/Microsoft.Network/virtualNetworks/lazuli-vnet/subnets/nodes", group());
    let configurations: Vec<Value> = names
        .iter()
        .enumerate()
        .map(|(at, name)| {
            json!({"name": format!("c{at}"), "properties": {
                "primary": at == 0,
                "subnet": {"id": subnet},
                "publicIPAddress": {"id": ip_id(name)},
            }})
        })
        .collect();
    json!({"location": "westeurope", "properties": {"ipConfigurations": configurations}})
}

impl Rig {
    /// Writes something and waits for its operation; returns what a GET shows then.
    pub(super) async fn written(&self, uri: &str, body: Value) -> Value {
        let got = self.call("PUT", uri, Some(body)).await;
        assert!(got.status < 300, "{}", got.body);
        if !got.header("azure-asyncoperation").is_empty() {
            self.finish(&got).await;
        }
        self.get(uri).await.expect(200).body
    }
}

#[tokio::test(start_paused = true)]
async fn a_static_address_comes_when_its_operation_ends_and_stays() {
    let rig = Rig::new(slow()).await;
    let body = standard(json!({"idleTimeoutInMinutes": 10}));
    let got = rig.call("PUT", &ip_uri("a"), Some(body.clone())).await.expect(201);
    assert_eq!(got.body["properties"]["provisioningState"], "Updating");
    assert!(got.body["properties"].get("ipAddress").is_none());
    assert_eq!(rig.finish(&got).await, json!({"status": "Succeeded"}));
    let shown = rig.get(&ip_uri("a")).await.expect(200).body;
    assert!(shown["properties"]["ipAddress"].as_str().unwrap().starts_with("198.18."), "{shown}");
    assert_eq!(shown["properties"]["ddosSettings"], json!({"protectionMode": "VirtualNetworkInherited"}));
    assert_eq!(shown["sku"], json!({"name": "Standard", "tier": "Regional"}));
    let again = rig.call("PUT", &ip_uri("a"), Some(body)).await.expect(200);
    assert_eq!(again.body["properties"]["provisioningState"], "Succeeded");
    assert_eq!(again.body["properties"]["ipAddress"], shown["properties"]["ipAddress"]);
    // The same seed draws the same address, and another name another one.
    let other = Rig::new(options()).await;
    let same = other.written(&ip_uri("a"), standard(json!({}))).await;
    let different = other.written(&ip_uri("b"), standard(json!({}))).await;
    assert_eq!(same["properties"]["ipAddress"], shown["properties"]["ipAddress"]);
    assert_ne!(different["properties"]["ipAddress"], shown["properties"]["ipAddress"]);
}

#[tokio::test(start_paused = true)]
async fn a_dynamic_address_is_there_while_an_interface_names_it() {
    let rig = Rig::new(options()).await;
    let ip = rig.written(&ip_uri("a"), json!({"location": "westeurope"})).await;
    assert!(ip["properties"].get("ipAddress").is_none() && ip["properties"].get("ipConfiguration").is_none());
    let n = uri("networkInterfaces", "n");
    let shown = rig.written(&n, nic(&["a"])).await;
    let configuration = &shown["properties"]["ipConfigurations"][0];
    assert_eq!(configuration["properties"]["publicIPAddress"], json!({"id": ip_id("a")}));
    let used = rig.get(&ip_uri("a")).await.expect(200).body;
    assert_eq!(used["properties"]["ipConfiguration"], json!({"id": configuration["id"]}));
    assert!(used["properties"]["ipAddress"].is_string());
    assert_ne!(used["etag"], ip["etag"]);
    let got = rig.call("DELETE", &ip_uri("a"), None).await.refused(400, "PublicIPAddressCannotBeDeleted");
    assert!(got.message().contains(configuration["id"].as_str().unwrap()), "{}", got.message());
    let got = rig.call("DELETE", &n, None).await.expect(202);
    rig.finish(&got).await;
    assert!(rig.get(&ip_uri("a")).await.expect(200).body["properties"].get("ipAddress").is_none());
    rig.call("DELETE", &ip_uri("a"), None).await.expect(202);
}

#[tokio::test(start_paused = true)]
async fn one_ip_configuration_alone_has_a_public_address() {
    let rig = Rig::new(options()).await;
    rig.written(&ip_uri("a"), standard(json!({}))).await;
    rig.written(&uri("networkInterfaces", "n"), nic(&["a"])).await;
    rig.written(&uri("networkInterfaces", "n"), nic(&["a"])).await;
    rig.call("PUT", &uri("networkInterfaces", "m"), Some(nic(&["a"]))).await.refused(400, "PublicIPAddressInUse");
    rig.written(&ip_uri("b"), standard(json!({}))).await;
    rig.call("PUT", &uri("networkInterfaces", "m"), Some(nic(&["b", "b"])))
        .await
        .refused(400, "PublicIPReferencedByMultipleIPConfigs");
    rig.call("PUT", &uri("networkInterfaces", "m"), Some(nic(&["none"])))
        .await
        .refused(400, "InvalidResourceReference");
}

#[tokio::test(start_paused = true)]
async fn a_machine_sees_its_public_address_and_keeps_its_card() {
    let rig = Rig::new(options()).await;
    let ip = rig.written(&ip_uri("a"), standard(json!({}))).await;
    let card = uri("networkInterfaces", "plain-0-nic");
    let before = rig.get(&card).await.expect(200).body;
    let mut body = nic(&["a"]);
    body["properties"]["ipConfigurations"][0]["name"] = json!("ipconfig1");
    let after = rig.written(&card, body).await;
    for member in ["macAddress", "virtualMachine", "resourceGuid"] {
        assert_eq!(after["properties"][member], before["properties"][member], "{member}");
    }
    let request = Request::builder()
        .uri("/_imds/plain-0/metadata/loadbalancer?api-version=2020-10-01")
        .header("metadata", "true")
        .body(Body::empty())
        .unwrap();
    let seen = rig.send(request).await.expect(200).body["loadbalancer"]["publicIpAddresses"].clone();
    let private = &after["properties"]["ipConfigurations"][0]["properties"]["privateIPAddress"];
    assert_eq!(seen, json!([{"frontendIpAddress": ip["properties"]["ipAddress"], "privateIpAddress": private}]));
}

#[tokio::test(start_paused = true)]
async fn a_domain_name_label_is_of_one_address_of_each_family_in_a_region() {
    let rig = Rig::new(options()).await;
    let labelled = |label: &str| standard(json!({"dnsSettings": {"domainNameLabel": label}}));
    let ip = rig.written(&ip_uri("a"), labelled("shop")).await;
    assert_eq!(ip["properties"]["dnsSettings"]["fqdn"], "shop.westeurope.cloudapp.azure.com");
    let got = rig.call("PUT", &ip_uri("b"), Some(labelled("shop"))).await.refused(400, "DnsRecordInUse");
    assert_eq!(got.message(), "DNS record shop.westeurope.cloudapp.azure.com is already used by another public IP.");
    for label in ["Shop", "1shop", "s", "shop-"] {
        rig.call("PUT", &ip_uri("b"), Some(labelled(label))).await.refused(400, "InvalidDomainNameLabel");
    }
    let mut other_family = labelled("shop");
    other_family["properties"]["publicIPAddressVersion"] = json!("IPv6");
    let ip = rig.written(&ip_uri("a-IPv6"), other_family.clone()).await;
    assert_eq!(ip["properties"]["dnsSettings"]["fqdn"], "shop.westeurope.cloudapp.azure.com");
    rig.call("PUT", &ip_uri("b-IPv6"), Some(other_family)).await.refused(400, "DnsRecordInUse");
    let mut elsewhere = labelled("shop");
    elsewhere["location"] = json!("eastus");
    rig.written(&ip_uri("b"), elsewhere).await;
    // A scope makes the name another one, the same each time.
    let mut scoped = labelled("shop");
    scoped["properties"]["dnsSettings"]["domainNameLabelScope"] = json!("ResourceGroupReuse");
    let name = rig.written(&ip_uri("c"), scoped.clone()).await["properties"]["dnsSettings"]["fqdn"].clone();
    assert!(name.as_str().unwrap().starts_with("shop.") && name.as_str().unwrap().split('.').count() == 6, "{name}");
    rig.call("PUT", &ip_uri("d"), Some(scoped)).await.refused(400, "DnsRecordInUse");
}

#[tokio::test(start_paused = true)]
async fn an_address_that_cannot_be_is_refused_in_azures_words() {
    let rig = Rig::new(options()).await;
    let dynamic = json!({"location": "westeurope", "sku": {"name": "Standard"}});
    rig.call("PUT", &ip_uri("a"), Some(dynamic)).await.refused(400, "StandardSkuPublicIPAddressesMustBeStatic");
    let v6 = json!({"location": "westeurope", "properties": {
        "publicIPAddressVersion": "IPv6", "publicIPAllocationMethod": "Static",
    }});
    rig.call("PUT", &ip_uri("a"), Some(v6))
        .await
        .refused(400, "CannotSpecifyPublicIpAllocationMethodAsStaticForIpV6PublicIp");
    let got = rig.call("PUT", &ip_uri("a"), Some(standard(json!({"idleTimeoutInMinutes": 31})))).await.expect(400);
    assert_eq!(got.message(), "Public IP address a has invalid Idle Timeout. The value must be between 4 and 30.");
    rig.call("PUT", &ip_uri("a"), Some(json!({}))).await.refused(400, "LocationRequired");
    rig.call("PUT", &ip_uri("-a"), Some(standard(json!({})))).await.refused(400, "InvalidResourceName");
    let mut zonal = standard(json!({}));
    zonal["zones"] = json!(["1", "2", "3"]);
    let ip = rig.written(&ip_uri("a"), zonal.clone()).await;
    assert_eq!(ip["zones"], json!(["1", "2", "3"]));
    let got = rig.call("PUT", &ip_uri("a"), Some(standard(json!({})))).await.expect(400);
    assert!(got.message().contains("zone constraint 1, 2, 3 and the request has availability zone constraint NoZone"));
    zonal["sku"]["name"] = json!("Basic");
    rig.call("PUT", &ip_uri("a"), Some(zonal)).await.expect(400);
    let v6 = rig.written(&ip_uri("six"), standard(json!({"publicIPAddressVersion": "IPv6"}))).await;
    assert!(v6["properties"]["ipAddress"].as_str().unwrap().starts_with("2001:db8:"), "{v6}");
}

#[tokio::test(start_paused = true)]
async fn a_prefix_gives_its_addresses_out_and_stays_while_it_has_some() {
    let rig = Rig::new(options()).await;
    let p = uri("publicIPPrefixes", "p");
    let body = |length: u64| json!({"location": "westeurope", "sku": {"name": "Standard"}, "properties": {"prefixLength": length}});
    rig.call("PUT", &p, Some(body(27))).await.expect(400);
    let prefix = rig.written(&p, body(31)).await;
    let range = prefix["properties"]["ipPrefix"].as_str().unwrap().to_owned();
    assert!(range.starts_with("198.19.") && range.ends_with("/31"), "{range}");
    rig.call("PUT", &p, Some(body(30))).await.expect(400);
    let of_prefix = || standard(json!({"publicIPPrefix": {"id": prefix["id"]}}));
    let (first, second) = (rig.written(&ip_uri("a"), of_prefix()).await, rig.written(&ip_uri("b"), of_prefix()).await);
    assert_eq!(first["properties"]["ipAddress"], range.trim_end_matches("/31"));
    assert_ne!(second["properties"]["ipAddress"], first["properties"]["ipAddress"]);
    rig.call("PUT", &ip_uri("c"), Some(of_prefix())).await.expect(400);
    assert_eq!(
        rig.get(&p).await.expect(200).body["properties"]["publicIPAddresses"],
        json!([{"id": ip_id("a")}, {"id": ip_id("b")}])
    );
    rig.call("DELETE", &p, None).await.refused(400, "InUsePublicIpPrefixCannotBeDeleted");
    for name in ["a", "b"] {
        let got = rig.call("DELETE", &ip_uri(name), None).await.expect(202);
        rig.finish(&got).await;
    }
    rig.call("DELETE", &p, None).await.expect(202);
    rig.get(&p).await.refused(404, "ResourceNotFound");
}

#[tokio::test(start_paused = true)]
async fn addresses_count_by_subscription_and_region() {
    let rig = Rig::new(Options { quotas: [("PublicIPAddresses".to_owned(), 1)].into(), ..options() }).await;
    rig.written(&ip_uri("a"), standard(json!({}))).await;
    rig.written(&ip_uri("a"), standard(json!({"idleTimeoutInMinutes": 5}))).await;
    let got = rig.call("PUT", &ip_uri("b"), Some(standard(json!({})))).await.refused(400, "PublicIPCountLimitReached");
    assert_eq!(got.message(), "Cannot create more than 1 public IP addresses for this subscription in this region.");
    let usages = format!("{SUB}/providers/Microsoft.Network/locations/westeurope/usages?api-version={NETWORK_VERSION}");
    let usages = rig.get(&usages).await.expect(200).body["value"].clone();
    let usage = usages.as_array().unwrap().iter().find(|usage| usage["name"]["value"] == "PublicIPAddresses").unwrap();
    assert_eq!(
        *usage,
        json!({
            "currentValue": 1, "limit": 1, "unit": "Count",
            "name": {"value": "PublicIPAddresses", "localizedValue": "Public IP Addresses"},
        })
    );
}

#[tokio::test(start_paused = true)]
async fn a_newer_write_of_an_address_cancels_the_older_one() {
    let rig = Rig::new(slow()).await;
    let first = rig.call("PUT", &ip_uri("a"), Some(standard(json!({})))).await.expect(201);
    // One that is refused cancels nothing.
    rig.call("PUT", &ip_uri("a"), Some(standard(json!({"idleTimeoutInMinutes": 99})))).await.expect(400);
    assert_eq!(rig.get(path_of(first.header("azure-asyncoperation"))).await.body["status"], "InProgress");
    let second = rig.call("PUT", &ip_uri("a"), Some(standard(json!({"idleTimeoutInMinutes": 7})))).await.expect(200);
    let canceled = rig.finish(&first).await;
    assert_eq!(canceled["status"], "Canceled");
    assert_eq!(canceled["error"]["details"][0]["code"], "CanceledAndSupersededDueToAnotherOperation");
    assert_eq!(rig.finish(&second).await["status"], "Succeeded");
    let ip = rig.get(&ip_uri("a")).await.expect(200).body;
    assert_eq!(
        (&ip["properties"]["idleTimeoutInMinutes"], ip["properties"]["ipAddress"].is_string()),
        (&json!(7), true)
    );
}

#[tokio::test(start_paused = true)]
async fn a_restart_in_the_middle_of_a_write_ends_it() {
    let rig = Rig::new(slow()).await;
    rig.call("PUT", &ip_uri("a"), Some(standard(json!({})))).await.expect(201);
    rig.emulator.control.shared.state().recover();
    let ip = rig.get(&ip_uri("a")).await.expect(200).body;
    assert_eq!(ip["properties"]["provisioningState"], "Succeeded");
    assert!(ip["properties"]["ipAddress"].is_string());
    // A dynamic address goes with the interface that named it.
    rig.written(&ip_uri("d"), json!({"location": "westeurope"})).await;
    rig.written(&uri("networkInterfaces", "n"), nic(&["d"])).await;
    rig.call("DELETE", &uri("networkInterfaces", "n"), None).await.expect(202);
    rig.emulator.control.shared.state().recover();
    assert!(rig.get(&ip_uri("d")).await.expect(200).body["properties"].get("ipAddress").is_none());
}
