use super::*;
use crate::options::{ConcurrentNetwork, RelatedEtags};

const VERSION: &str = "2025-05-01";

pub(super) fn id(kind: &str, name: &str) -> String {
    format!("{}/providers/Microsoft.Network/{kind}/{name}", group())
}

pub(super) fn uri(kind: &str, name: &str) -> String {
    format!("{}?api-version={VERSION}", id(kind, name))
}

fn lb() -> String {
    uri("loadBalancers", "lb")
}

fn part(member: &str, name: &str) -> String {
    format!("{}/{member}/{name}", id("loadBalancers", "lb"))
}

pub(super) fn reference(id: &str) -> Value {
    json!({ "id": id })
}

pub(super) fn subnet() -> String {
    id("virtualNetworks", "lazuli-vnet/subnets/nodes")
}

fn public(name: &str, ip: &str) -> Value {
    json!({"name": name, "properties": {"publicIPAddress": reference(&id("publicIPAddresses", ip))}})
}

fn internal(name: &str) -> Value {
    json!({"name": name, "properties": {"subnet": reference(&subnet())}})
}

fn rule(name: &str, frontend: &str, port: u64) -> Value {
    json!({"name": name, "properties": {
        "frontendIPConfiguration": reference(&part("frontendIPConfigurations", frontend)),
        "backendAddressPool": reference(&part("backendAddressPools", "pool")),
        "probe": reference(&part("probes", "probe")),
        "protocol": "Tcp", "frontendPort": port, "backendPort": port, "enableFloatingIP": true,
    }})
}

/// A Standard load balancer with one pool and one probe.
fn balancer(frontends: Value, rules: Value) -> Value {
    json!({"location": "westeurope", "sku": {"name": "Standard"}, "properties": {
        "frontendIPConfigurations": frontends,
        "backendAddressPools": [{"name": "pool"}],
        "probes": [{"name": "probe", "properties": {"protocol": "Tcp", "port": 80}}],
        "loadBalancingRules": rules,
    }})
}

/// The interface of a machine, in these pools.
fn nic(pools: &[&str]) -> Value {
    let pools: Vec<Value> = pools.iter().map(|pool| reference(pool)).collect();
    json!({"location": "westeurope", "properties": {"ipConfigurations": [
        {"name": "ipconfig1", "properties": {"subnet": reference(&subnet()), "loadBalancerBackendAddressPools": pools}}
    ]}})
}

fn interface(machine: &str) -> String {
    uri("networkInterfaces", &format!("{machine}-nic"))
}

fn pool() -> String {
    part("backendAddressPools", "pool")
}

fn at<'a>(doc: &'a Value, member: &str) -> &'a Value {
    &doc["properties"][member][0]
}

impl Rig {
    async fn public_ip(&self, name: &str) -> Value {
        let body = json!({"location": "westeurope", "sku": {"name": "Standard"},
            "properties": {"publicIPAllocationMethod": "Static"}});
        self.written(&uri("publicIPAddresses", name), body).await
    }

    async fn etag(&self, uri: &str) -> Value {
        self.get(uri).await.expect(200).body["etag"].clone()
    }

    async fn deleted(&self, uri: &str) {
        let got = self.call("DELETE", uri, None).await.expect(202);
        assert_eq!(self.finish(&got).await["status"], "Succeeded");
        self.call("GET", uri, None).await.expect(404);
    }

    pub(super) async fn refuses(&self, uri: &str, body: &Value, code: &str) -> Got {
        self.call("PUT", uri, Some(body.clone())).await.refused(400, code)
    }
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_shows_its_parts_and_who_refers_to_them() {
    let rig = Rig::new(slow()).await;
    let ip = rig.public_ip("ip").await;
    let got = rig.call("PUT", &lb(), Some(balancer(json!([public("f", "ip")]), json!([rule("r", "f", 80)])))).await;
    let got = got.expect(201);
    assert_eq!(got.body["properties"]["provisioningState"], "Succeeded");
    assert_eq!(
        at(&got.body, "probes")["properties"]["loadBalancingRules"],
        json!([reference(&part("loadBalancingRules", "r"))])
    );
    assert_eq!(rig.finish(&got).await, json!({"status": "Succeeded"}));
    let shown = rig.get(&lb()).await.expect(200).body;
    for member in ["frontendIPConfigurations", "backendAddressPools", "loadBalancingRules", "probes"] {
        let part = at(&shown, member);
        assert_eq!(part["etag"], shown["etag"], "{member}");
        assert_eq!(part["properties"]["provisioningState"], "Succeeded", "{member}");
    }
    for member in ["frontendIPConfigurations", "backendAddressPools", "probes"] {
        let rules = &at(&shown, member)["properties"]["loadBalancingRules"];
        assert_eq!(*rules, json!([reference(&part("loadBalancingRules", "r"))]), "{member}");
    }
    for member in ["inboundNatRules", "outboundRules", "inboundNatPools"] {
        assert_eq!(shown["properties"][member], json!([]), "{member}");
    }
    let own = &at(&shown, "loadBalancingRules")["properties"];
    assert_eq!(own["backendAddressPools"], json!([reference(&pool())]));
    assert_eq!((&own["idleTimeoutInMinutes"], &own["loadDistribution"]), (&json!(4), &json!("Default")));
    assert_eq!(at(&shown, "probes")["properties"]["intervalInSeconds"], 15);
    // The public address shows the frontend, and its etag is another.
    let used = rig.get(&uri("publicIPAddresses", "ip")).await.expect(200).body;
    assert_eq!(used["properties"]["ipConfiguration"], reference(&part("frontendIPConfigurations", "f")));
    assert_ne!(used["etag"], ip["etag"]);
    rig.call("DELETE", &uri("publicIPAddresses", "ip"), None).await.refused(400, "PublicIPAddressCannotBeDeleted");
    // What is read can be written: nothing changes.
    let again = rig.call("PUT", &lb(), Some(shown.clone())).await.expect(200).body;
    assert_eq!(
        again["properties"]["loadBalancingRules"][0]["properties"],
        shown["properties"]["loadBalancingRules"][0]["properties"]
    );
    // Children answer themselves.
    let frontend = format!("{}?api-version={VERSION}", part("frontendIPConfigurations", "f"));
    let frontend = rig.get(&frontend).await.expect(200);
    assert_eq!(frontend.header("etag"), again["etag"].as_str().unwrap());
    assert!(frontend.body["properties"]["loadBalancingRules"].is_array());
    let rules = format!("{}/loadBalancingRules?api-version={VERSION}", id("loadBalancers", "lb"));
    assert_eq!(rig.get(&rules).await.expect(200).body["value"].as_array().unwrap().len(), 1);
    let nat_pools = format!("{}/inboundNatPools?api-version={VERSION}", id("loadBalancers", "lb"));
    rig.get(&nat_pools).await.expect(404);
    rig.deleted(&lb()).await;
    rig.deleted(&uri("publicIPAddresses", "ip")).await;
}

#[tokio::test(start_paused = true)]
async fn an_internal_frontend_has_a_free_address_of_its_subnet() {
    let rig = Rig::new(options()).await;
    let shown = rig.written(&lb(), balancer(json!([internal("a"), internal("b")]), json!([]))).await;
    let address = |shown: &Value, at: usize| {
        let frontend = &shown["properties"]["frontendIPConfigurations"][at]["properties"];
        frontend["privateIPAddress"].as_str().unwrap().to_owned()
    };
    assert_ne!(address(&shown, 0), address(&shown, 1));
    let with = |name: &str, address: &str| {
        let mut frontend = internal(name);
        frontend["properties"]["privateIPAddress"] = json!(address);
        frontend["properties"]["privateIPAllocationMethod"] = json!("Static");
        frontend
    };
    // It stays, also when its frontend is written without it, and may go to another frontend of the same write.
    let again = rig.written(&lb(), balancer(json!([internal("b"), internal("c")]), json!([]))).await;
    assert_eq!(address(&again, 0), address(&shown, 1));
    let moved = rig.written(&lb(), balancer(json!([with("d", &address(&shown, 1))]), json!([]))).await;
    assert_eq!(address(&moved, 0), address(&shown, 1));
    let card = rig.get(&interface("plain-0")).await.expect(200).body;
    let taken = at(&card, "ipConfigurations")["properties"]["privateIPAddress"].as_str().unwrap().to_owned();
    for (address, code) in [
        (taken.as_str(), "PrivateIPAddressIsAllocated"),
        ("192.0.2.1", "PrivateIPAddressNotInSubnet"),
        ("no address", "PrivateIPAddressNotInSubnet"),
    ] {
        rig.refuses(&lb(), &balancer(json!([with("d", address)]), json!([])), code).await;
    }
    // An interface does not get the frontend's address either.
    let mut other = nic(&[]);
    at_mut(&mut other)["privateIPAddress"] = json!(address(&moved, 0));
    rig.refuses(&uri("networkInterfaces", "other"), &other, "PrivateIPAddressIsAllocated").await;
}

fn at_mut(nic: &mut Value) -> &mut Value {
    &mut nic["properties"]["ipConfigurations"][0]["properties"]
}

#[tokio::test(start_paused = true)]
async fn a_subnet_of_both_families_gives_out_addresses_of_both() {
    let rig = Rig::new(options()).await;
    let body = json!({"location": "westeurope", "properties": {
        "addressSpace": {"addressPrefixes": ["10.9.0.0/16", "fd00:9::/48"]},
        "subnets": [{"name": "both", "properties": {"addressPrefixes": ["10.9.0.0/24", "fd00:9:0:1::/64"]}},
            {"name": "four", "properties": {"addressPrefix": "10.9.1.0/24"}}],
    }});
    rig.written(&uri("virtualNetworks", "dual"), body.clone()).await;
    let frontend = |name: &str, subnet: &str, version: &str| {
        let subnet = id("virtualNetworks", &format!("dual/subnets/{subnet}"));
        json!({"name": name, "properties": {"subnet": reference(&subnet), "privateIPAddressVersion": version}})
    };
    let frontends = json!([frontend("a", "both", "IPv4"), frontend("b", "both", "IPv6")]);
    let shown = rig.written(&lb(), balancer(frontends, json!([]))).await;
    let address = |at: usize| &shown["properties"]["frontendIPConfigurations"][at]["properties"]["privateIPAddress"];
    assert_eq!((address(0), address(1)), (&json!("10.9.0.4"), &json!("fd00:9:0:1::4")));
    rig.refuses(&lb(), &balancer(json!([frontend("a", "four", "IPv6")]), json!([])), "SubnetHasNoIPv6Prefix").await;
    let mut outside = body;
    outside["properties"]["subnets"][1]["properties"]["addressPrefix"] = json!("fd00:a::/64");
    rig.refuses(&uri("virtualNetworks", "dual"), &outside, "NetcfgSubnetRangeOutsideVnet").await;
}

#[tokio::test(start_paused = true)]
async fn interfaces_join_and_leave_a_pool_and_change_its_etag() {
    let mut options = options();
    options.unverified.interfaces_leave_deleted_pool = false;
    let rig = Rig::new(options).await;
    let empty = rig.written(&lb(), balancer(json!([internal("f")]), json!([rule("r", "f", 80)]))).await;
    assert!(at(&empty, "backendAddressPools")["properties"].get("backendIPConfigurations").is_none());
    rig.written(&interface("plain-0"), nic(&[&pool()])).await;
    let joined = rig.get(&lb()).await.expect(200).body;
    assert_ne!(joined["etag"], empty["etag"]);
    let configuration = format!("{}/ipConfigurations/ipconfig1", id("networkInterfaces", "plain-0-nic"));
    let own = at(&joined, "backendAddressPools");
    assert_eq!(own["properties"]["backendIPConfigurations"], json!([reference(&configuration)]));
    assert_eq!(
        own["properties"]["loadBalancerBackendAddresses"],
        json!([{"name": "lazuli_plain-0-nicipconfig1", "properties": {
            "networkInterfaceIPConfiguration": reference(&configuration),
        }}])
    );
    // What it shows comes back in a write, and is not kept.
    rig.written(&lb(), joined.clone()).await;
    let dump = rig.control().store(|store| store.document(&id("loadBalancers", "lb")).unwrap());
    assert_eq!(at(&dump, "backendAddressPools")["properties"]["loadBalancerBackendAddresses"], json!([]));
    // A stale etag is refused, by the load balancer and by its pool.
    let pool_uri = format!("{}?api-version={VERSION}", pool());
    let stale = [("if-match", empty["etag"].as_str().unwrap())];
    rig.with("PUT", &lb(), Some(joined.clone()), &stale).await.refused(412, "PreconditionFailed");
    rig.with("PUT", &pool_uri, Some(json!({"name": "pool"})), &stale).await.refused(412, "PreconditionFailed");
    // It is in use both ways.
    rig.call("DELETE", &lb(), None).await.refused(400, "InUseBackendAddressPoolCannotBeDeleted");
    rig.call("DELETE", &pool_uri, None).await.refused(400, "InUseBackendAddressPoolCannotBeDeleted");
    let mut without = balancer(json!([internal("f")]), json!([]));
    without["properties"]["backendAddressPools"] = json!([]);
    rig.refuses(&lb(), &without, "InUseBackendAddressPoolCannotBeDeleted").await;
    rig.refuses(&interface("plain-1"), &nic(&[&part("backendAddressPools", "none")]), "InvalidResourceReference").await;
    rig.written(&interface("plain-0"), nic(&[])).await;
    let left = rig.get(&lb()).await.expect(200).body;
    assert!(at(&left, "backendAddressPools")["properties"].get("backendIPConfigurations").is_none());
    rig.call("DELETE", &pool_uri, None).await.refused(400, "InUseBackendAddressPoolCannotBeDeleted");
    rig.written(&lb(), without).await;
    rig.deleted(&lb()).await;
}

#[tokio::test(start_paused = true)]
async fn an_interface_is_in_one_load_balancer_of_each_type_and_of_its_sku() {
    let rig = Rig::new(options()).await;
    rig.public_ip("ip").await;
    rig.written(&lb(), balancer(json!([internal("f")]), json!([]))).await;
    let pool_of = |name: &str| format!("{}/backendAddressPools/pool", id("loadBalancers", name));
    for (name, frontend) in [("second", internal("f")), ("public", public("f", "ip"))] {
        let mut body = balancer(json!([frontend]), json!([]));
        body["properties"]["probes"] = json!([]);
        rig.written(&uri("loadBalancers", name), body).await;
    }
    rig.written(&interface("plain-0"), nic(&[&pool(), &pool_of("public")])).await;
    let got = rig.call("PUT", &interface("plain-1"), Some(nic(&[&pool(), &pool_of("second")]))).await;
    let got = got.refused(400, "NetworkInterfaceUsesMultipleLoadBalancersOfSameType");
    assert!(got.message().contains("loadBalancers/second"), "{}", got.message());
    // A Basic address beside a Standard load balancer.
    rig.written(&uri("publicIPAddresses", "basic"), json!({"location": "westeurope"})).await;
    let mut body = nic(&[&pool()]);
    at_mut(&mut body)["publicIPAddress"] = reference(&id("publicIPAddresses", "basic"));
    rig.refuses(&interface("plain-1"), &body, "DifferentSkuLoadBalancersAndPublicIPAddressNotAllowed").await;
}

#[tokio::test(start_paused = true)]
async fn a_basic_load_balancer_has_backends_of_one_availability_set() {
    let rig = Rig::new(options()).await;
    let mut body = balancer(json!([internal("f")]), json!([]));
    body["sku"]["name"] = json!("Basic");
    rig.written(&lb(), body).await;
    for machine in ["member-0", "member-1"] {
        rig.written(&interface(machine), nic(&[&pool()])).await;
    }
    rig.refuses(
        &interface("plain-0"),
        &nic(&[&pool()]),
        "NetworkInterfaceAndLoadBalancerAreInDifferentAvailabilitySets",
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_pool_of_addresses_is_written_alone() {
    let rig = Rig::new(slow()).await;
    rig.written(&lb(), balancer(json!([internal("f")]), json!([rule("r", "f", 80)]))).await;
    let uri_of = |name: &str| format!("{}?api-version={VERSION}", part("backendAddressPools", name));
    let network = reference(&id("virtualNetworks", "lazuli-vnet"));
    let body = |addresses: &[&str]| {
        let addresses: Vec<Value> = addresses
            .iter()
            .enumerate()
            .map(|(at, address)| json!({"name": format!("node-{at}"), "properties": {"ipAddress": address}}))
            .collect();
        json!({"properties": {"loadBalancerBackendAddresses": addresses, "virtualNetwork": network}})
    };
    let before = rig.etag(&lb()).await;
    let got = rig.call("PUT", &uri_of("pool"), Some(body(&["10.224.0.4", "10.224.0.5"]))).await.expect(200);
    assert_eq!(got.body["properties"]["loadBalancingRules"], json!([reference(&part("loadBalancingRules", "r"))]));
    let written = rig.etag(&lb()).await;
    assert_ne!(written, before);
    assert_eq!(rig.finish(&got).await["status"], "Succeeded");
    let shown = rig.get(&lb()).await.expect(200).body;
    let addresses = &at(&shown, "backendAddressPools")["properties"]["loadBalancerBackendAddresses"];
    assert_eq!(addresses[1]["properties"]["ipAddress"], "10.224.0.5");
    assert_eq!(at(&shown, "backendAddressPools")["properties"]["virtualNetwork"], network);
    for (addresses, code) in [
        (&["192.0.2.1"][..], "BackendAddressNotInVirtualNetwork"),
        (&["nothing"], "BackendAddressNotInVirtualNetwork"),
        (&["10.224.0.4", "10.224.0.4"], "DuplicateBackendAddress"),
    ] {
        rig.refuses(&uri_of("pool"), &body(addresses), code).await;
    }
    let got = rig.call("PUT", &uri_of("second"), Some(body(&["10.224.0.4"]))).await.expect(201);
    rig.finish(&got).await;
    let list = format!("{}/backendAddressPools?api-version={VERSION}", id("loadBalancers", "lb"));
    assert_eq!(rig.get(&list).await.expect(200).body["value"].as_array().unwrap().len(), 2);
    rig.deleted(&uri_of("second")).await;
    rig.get(&uri_of("second")).await.refused(404, "NotFound");
    let mut basic = balancer(json!([internal("f")]), json!([]));
    basic["sku"]["name"] = json!("Basic");
    rig.refuses(&lb(), &basic, "SkuCannotBeChangedOnUpdate").await;
}

#[tokio::test(start_paused = true)]
async fn what_a_load_balancer_cannot_be_is_refused() {
    let rig = Rig::new(options()).await;
    for ip in ["ip", "other"] {
        rig.public_ip(ip).await;
    }
    rig.written(&uri("publicIPAddresses", "basic"), json!({"location": "westeurope"})).await;
    let good = balancer(json!([public("f", "ip")]), json!([rule("r", "f", 80)]));
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut body = good.clone();
        change(&mut body["properties"]);
        body
    };
    let of_rule = |member: &'static str, value: Value| {
        changed(&move |lb: &mut Value| lb["loadBalancingRules"][0]["properties"][member] = value.clone())
    };
    let of_probe = |member: &'static str, value: Value| {
        changed(&move |lb: &mut Value| lb["probes"][0]["properties"][member] = value.clone())
    };
    let frontends = |list: Value| changed(&move |lb: &mut Value| lb["frontendIPConfigurations"] = list.clone());
    let zonal = json!([{"name": "f", "zones": ["1"], "properties": public("f", "ip")["properties"]}]);
    let second = |rule: Value| {
        changed(&move |lb: &mut Value| {
            lb["frontendIPConfigurations"] = json!([public("f", "ip"), public("g", "other")]);
            lb["loadBalancingRules"] = json!([lb["loadBalancingRules"][0], rule]);
        })
    };
    let fixed = |mut rule: Value| {
        rule["properties"]["enableFloatingIP"] = json!(false);
        rule
    };
    let two_fixed = changed(&|lb: &mut Value| {
        lb["frontendIPConfigurations"] = json!([public("f", "ip"), public("g", "other")]);
        lb["loadBalancingRules"] = json!([fixed(rule("r", "f", 80)), fixed(rule("s", "g", 80))]);
    });
    let outbound = |name: &str, protocol: &str| {
        json!({"name": name, "properties": {
            "frontendIPConfigurations": [reference(&part("frontendIPConfigurations", "f"))],
            "backendAddressPool": reference(&pool()), "protocol": protocol,
        }})
    };
    let outbounds = |list: Value| {
        changed(&move |lb: &mut Value| {
            lb["outboundRules"] = list.clone();
            lb["loadBalancingRules"] = json!([]);
        })
    };
    let with_snat = changed(&|lb: &mut Value| lb["outboundRules"] = json!([outbound("o", "All")]));
    let nat = changed(&|lb: &mut Value| {
        lb["inboundNatRules"] = json!([{"name": "n", "properties": {
            "frontendIPConfiguration": reference(&part("frontendIPConfigurations", "f")),
            "protocol": "Tcp", "frontendPort": 80, "backendPort": 22,
        }}])
    });
    let all_ports = changed(&|lb: &mut Value| {
        let own = &mut lb["loadBalancingRules"][0]["properties"];
        (own["protocol"], own["frontendPort"], own["backendPort"]) = (json!("All"), json!(0), json!(0));
    });
    for (body, code) in [
        (frontends(json!([public("f", "basic")])), "PublicIPAndLBSkuDoNotMatch"),
        (frontends(json!([public("f", "none")])), "InvalidResourceReference"),
        (frontends(json!([public("g", "ip")])), "InvalidResourceReference"),
        (frontends(json!([public("f", "ip"), public("g", "ip")])), "PublicIPReferencedByMultipleIPConfigs"),
        (frontends(json!([public("f", "ip"), public("F", "other")])), "InvalidRequestFormat"),
        (frontends(json!([public("f", "ip"), internal("i")])), "LoadBalancerFrontendsOfDifferentTypes"),
        (frontends(json!([{"name": "f"}])), "FrontendIPConfigurationMustHaveOneAddress"),
        (frontends(zonal), "FrontendIPConfigurationZonesNotSupported"),
        (of_rule("idleTimeoutInMinutes", json!(101)), "InvalidIdleTimeout"),
        (of_rule("idleTimeoutInMinutes", json!(3)), "InvalidIdleTimeout"),
        (of_rule("frontendPort", json!(65_535)), "LoadBalancingRuleInvalidPort"),
        (of_rule("frontendPort", json!(0)), "LoadBalancingRuleInvalidProtocolAndPort"),
        (of_rule("protocol", json!("All")), "LoadBalancingRuleInvalidProtocolAndPort"),
        (all_ports, "LoadBalancingRuleHaPortsNotSupported"),
        (of_rule("probe", reference(&part("probes", "none"))), "InvalidResourceReference"),
        (of_probe("intervalInSeconds", json!(4)), "InvalidProbe"),
        (of_probe("probeThreshold", json!(101)), "InvalidProbe"),
        (of_probe("port", json!(0)), "InvalidProbe"),
        (of_probe("requestPath", json!("/healthz")), "InvalidProbeRequestPath"),
        (of_probe("protocol", json!("Http")), "InvalidProbeRequestPath"),
        (second(rule("s", "f", 80)), "RulesUseSameFrontendPortProtocolAndIPConfig"),
        (nat, "RulesUseSameFrontendPortProtocolAndIPConfig"),
        (two_fixed, "RulesUseSameBackendPortProtocolAndPool"),
        (
            outbounds(json!([outbound("o", "Tcp"), outbound("p", "All")])),
            "MoreThanOneOutboundRuleUsingSameFrontendIPConfigurationAndProtocolIsNotSupported",
        ),
        (with_snat, "LoadBalancingRuleMustDisableSNATSinceSameFrontendIPConfigurationIsReferencedByOutboundRule"),
    ] {
        rig.refuses(&lb(), &body, code).await;
    }
    // Next to each refusal, what is allowed.
    for body in [
        good.clone(),
        second(rule("s", "g", 80)),
        of_rule("idleTimeoutInMinutes", json!(100)),
        outbounds(json!([outbound("o", "Tcp"), outbound("p", "Udp")])),
    ] {
        rig.written(&lb(), body).await;
    }
    let mut own = balancer(json!([internal("f")]), json!([rule("r", "f", 80)]));
    let ha = &mut own["properties"]["loadBalancingRules"][0]["properties"];
    (ha["protocol"], ha["frontendPort"], ha["backendPort"]) = (json!("All"), json!(0), json!(0));
    let own = own.to_string().replace("/loadBalancers/lb/", "/loadBalancers/own/");
    rig.written(&uri("loadBalancers", "own"), serde_json::from_str(&own).unwrap()).await;
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_has_as_many_parts_as_azure_allows() {
    let rig = Rig::new(options()).await;
    let rules = |count: u64| (1..=count).map(|port| rule(&format!("r{port}"), "f", port)).collect::<Vec<_>>();
    rig.refuses(&lb(), &balancer(json!([internal("f")]), rules(1501).into()), "LoadBalancerRuleCountLimitReached")
        .await;
    rig.written(&lb(), balancer(json!([internal("f")]), rules(1500).into())).await;
    // A network interface has fewer.
    let code = "IpConfigurationRuleCountLimitReached";
    rig.refuses(&interface("plain-0"), &nic(&[&pool()]), code).await;
    rig.written(&lb(), balancer(json!([internal("f")]), rules(300).into())).await;
    rig.written(&interface("plain-0"), nic(&[&pool()])).await;
    rig.refuses(&lb(), &balancer(json!([internal("f")]), rules(301).into()), code).await;
    rig.written(&interface("plain-0"), nic(&[])).await;
    let mut basic = balancer(json!([internal("f")]), rules(251).into());
    basic["sku"]["name"] = json!("Basic");
    rig.refuses(&lb(), &basic, "SkuCannotBeChangedOnUpdate").await;
    rig.deleted(&lb()).await;
    rig.refuses(&lb(), &basic, "LoadBalancerRuleCountLimitReached").await;
    let frontends: Vec<Value> = (0..201).map(|at| internal(&format!("f{at}"))).collect();
    basic["properties"]["frontendIPConfigurations"] = frontends.into();
    basic["properties"]["loadBalancingRules"] = json!([]);
    rig.refuses(&lb(), &basic, "LoadBalancerFrontendIPConfigurationCountLimitReached").await;
}

#[tokio::test(start_paused = true)]
async fn an_address_that_is_not_provisioned_is_not_taken() {
    let rig = Rig::new(slow()).await;
    let body = json!({"location": "westeurope", "sku": {"name": "Standard"}, "properties": {"publicIPAllocationMethod": "Static"}});
    let got = rig.call("PUT", &uri("publicIPAddresses", "ip"), Some(body)).await.expect(201);
    let body = balancer(json!([public("f", "ip")]), json!([]));
    let refused = rig.call("PUT", &lb(), Some(body.clone())).await.refused(429, "RetryableError");
    let detail = &refused.body["error"]["details"][0];
    assert_eq!(detail["code"], "ReferencedResourceNotProvisioned");
    assert!(detail["message"].as_str().unwrap().contains("Updating state"), "{detail}");
    rig.finish(&got).await;
    rig.written(&lb(), body).await;
}

#[tokio::test(start_paused = true)]
async fn a_second_write_while_one_runs_does_what_the_switch_says() {
    let body = || balancer(json!([internal("f")]), json!([]));
    let with = |concurrent| {
        let mut options = slow();
        options.unverified.concurrent_network_write = concurrent;
        options.unverified.load_balancer_shows_updating = true;
        options
    };
    let rig = Rig::new(with(ConcurrentNetwork::Cancel)).await;
    let first = rig.call("PUT", &lb(), Some(body())).await.expect(201);
    assert_eq!(first.body["properties"]["provisioningState"], "Updating");
    let body_of_pool = json!({"name": "pool"});
    let second = rig.call("PUT", &format!("{}?api-version={VERSION}", pool()), Some(body_of_pool)).await.expect(200);
    let canceled = rig.finish(&first).await;
    assert_eq!(canceled["status"], "Canceled");
    let why = canceled["error"]["details"][0]["message"].as_str().unwrap();
    let newer = path_of(second.header("azure-asyncoperation")).rsplit('/').next().unwrap().split('?').next().unwrap();
    assert!(why.ends_with(&format!("superseded by operation PutLoadBalancerOperation ({newer}).")), "{why}");
    assert_eq!(rig.finish(&second).await["status"], "Succeeded");
    for (position, status, code) in [
        (ConcurrentNetwork::Conflict, 409, "AnotherOperationInProgress"),
        (ConcurrentNetwork::Retry, 429, "RetryableError"),
    ] {
        let rig = Rig::new(with(position)).await;
        let first = rig.call("PUT", &lb(), Some(body())).await.expect(201);
        rig.call("PUT", &lb(), Some(body())).await.refused(status, code);
        rig.call("DELETE", &lb(), None).await.refused(status, code);
        rig.call("PUT", &interface("plain-0"), Some(nic(&[&pool()]))).await.refused(status, code);
        assert_eq!(rig.finish(&first).await["status"], "Succeeded");
        rig.written(&interface("plain-0"), nic(&[&pool()])).await;
    }
}

#[tokio::test(start_paused = true)]
async fn etags_of_related_resources_change_as_the_switch_says() {
    for (position, always) in [(RelatedEtags::EveryWrite, true), (RelatedEtags::References, false)] {
        let mut options = options();
        options.unverified.related_etags = position;
        let rig = Rig::new(options).await;
        let ip = uri("publicIPAddresses", "ip");
        let fresh = rig.public_ip("ip").await["etag"].clone();
        let body = balancer(json!([public("f", "ip")]), json!([]));
        rig.written(&lb(), body.clone()).await;
        let named = rig.etag(&ip).await;
        assert_ne!(named, fresh);
        rig.written(&lb(), body).await;
        assert_eq!(rig.etag(&ip).await != named, always);
    }
}

#[tokio::test(start_paused = true)]
async fn interfaces_leave_a_deleted_load_balancer_and_keep_a_pool_alone() {
    let rig = Rig::new(options()).await;
    rig.written(&lb(), balancer(json!([internal("f")]), json!([]))).await;
    let joined = rig.written(&interface("plain-0"), nic(&[&pool()])).await;
    let pool_uri = format!("{}?api-version={VERSION}", pool());
    rig.call("DELETE", &pool_uri, None).await.refused(400, "InUseBackendAddressPoolCannotBeDeleted");
    let mut without = balancer(json!([internal("f")]), json!([]));
    without["properties"]["backendAddressPools"] = json!([]);
    rig.refuses(&lb(), &without, "InUseBackendAddressPoolCannotBeDeleted").await;
    rig.deleted(&lb()).await;
    let left = rig.get(&interface("plain-0")).await.expect(200).body;
    assert_eq!(at(&left, "ipConfigurations")["properties"]["loadBalancerBackendAddressPools"], json!([]));
    assert_ne!(left["etag"], joined["etag"]);
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_without_frontends_has_no_other_parts_and_keeps_its_last_frontend() {
    let rig = Rig::new(options()).await;
    let body = balancer(json!([]), json!([]));
    rig.refuses(&lb(), &body, "LoadBalancerWithoutFrontendIPCantHaveChildResources").await;
    let mut bare = body;
    (bare["properties"]["backendAddressPools"], bare["properties"]["probes"]) = (json!([]), json!([]));
    rig.written(&lb(), bare.clone()).await;
    let mut with = bare.clone();
    with["properties"]["frontendIPConfigurations"] = json!([internal("f"), internal("g")]);
    rig.written(&lb(), with.clone()).await;
    with["properties"]["frontendIPConfigurations"] = json!([internal("g")]);
    rig.written(&lb(), with).await;
    rig.refuses(&lb(), &bare, "DeletingAllIpConfigsInLoadbalancerNotSupported").await;
    rig.deleted(&lb()).await;
}

#[tokio::test(start_paused = true)]
async fn a_rule_of_all_protocols_has_a_port_where_the_switch_says_so() {
    for needed in [true, false] {
        let mut options = options();
        options.unverified.all_protocols_need_port_0 = needed;
        let rig = Rig::new(options).await;
        rig.public_ip("ip").await;
        let mut of_all = rule("r", "f", 9000);
        of_all["properties"]["protocol"] = json!("All");
        let body = balancer(json!([public("f", "ip")]), json!([of_all]));
        match needed {
            true => drop(rig.refuses(&lb(), &body, "LoadBalancingRuleInvalidProtocolAndPort").await),
            false => drop(rig.written(&lb(), body).await),
        }
        // Port 0 is all ports in both positions: of internal load balancers alone.
        let mut of_ports = rule("r", "f", 0);
        of_ports["properties"]["protocol"] = json!("All");
        let body = balancer(json!([public("f", "ip")]), json!([of_ports]));
        rig.refuses(&lb(), &body, "LoadBalancingRuleHaPortsNotSupported").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_part_that_is_written_back_keeps_what_its_writer_does_not_know() {
    let rig = Rig::new(Options { future_fields: true, ..options() }).await;
    let shown = rig.written(&lb(), balancer(json!([internal("f")]), json!([rule("r", "f", 80)]))).await;
    rig.written(&lb(), shown.clone()).await;
    let mut fresh = shown.clone();
    fresh["properties"]["loadBalancingRules"] = json!([rule("r", "f", 81)]);
    rig.written(&lb(), fresh).await;
    assert!(rig.control().violations().is_empty());
    let mut dropped = shown;
    let own = &mut dropped["properties"]["loadBalancingRules"][0]["properties"];
    own.as_object_mut().unwrap().remove(crate::unknown_fields::MEMBER);
    rig.refuses(&lb(), &dropped, "BadRequest").await;
    assert_eq!(rig.control().violations().len(), 1);
    // A part alone, too.
    let nodes = uri("virtualNetworks", "lazuli-vnet/subnets/nodes");
    let mut part = rig.get(&nodes).await.expect(200).body;
    rig.call("PUT", &nodes, Some(part.clone())).await.expect(200);
    part["properties"].as_object_mut().unwrap().remove(crate::unknown_fields::MEMBER);
    rig.refuses(&nodes, &part, "BadRequest").await;
}

#[tokio::test(start_paused = true)]
async fn a_write_that_fails_late_leaves_a_failed_resource_that_another_write_mends() {
    let rig = Rig::new(slow()).await;
    rig.public_ip("ip").await;
    let fail = |path: &str| {
        let incident = json!({
            "match": {"method": "PUT", "path": path}, "times": 1,
            "then": {"lateFailure": {"code": "InternalServerError", "message": "An error occurred."}},
        });
        rig.control().add_incident(serde_json::from_value(incident).unwrap()).unwrap();
    };
    let state = async |uri: &str| rig.get(uri).await.expect(200).body["properties"]["provisioningState"].clone();
    let ip = uri("publicIPAddresses", "ip");
    let address = rig.get(&ip).await.expect(200).body;
    fail("*/publicIPAddresses/ip");
    let got = rig.call("PUT", &ip, Some(address.clone())).await.expect(200);
    assert_eq!(rig.finish(&got).await["status"], "Failed");
    assert_eq!(state(&ip).await, "Failed");
    let body = balancer(json!([public("f", "ip")]), json!([]));
    rig.call("PUT", &lb(), Some(body.clone())).await.refused(429, "RetryableError");
    rig.written(&ip, address).await;
    fail("*/loadBalancers/lb");
    let got = rig.call("PUT", &lb(), Some(body.clone())).await.expect(201);
    assert_eq!(rig.finish(&got).await["status"], "Failed");
    assert_eq!(state(&lb()).await, "Failed");
    rig.written(&lb(), body).await;
    assert_eq!((state(&ip).await, state(&lb()).await), (json!("Succeeded"), json!("Succeeded")));
}

#[tokio::test(start_paused = true)]
async fn letter_case_says_nothing() {
    let rig = Rig::new(options()).await;
    rig.public_ip("ip").await;
    let body = balancer(json!([public("f", "ip")]), json!([rule("r", "f", 80)]));
    let shown = rig.written(&lb(), body.clone()).await;
    let lower = |body: &Value| -> Value { serde_json::from_str(&body.to_string().to_ascii_lowercase()).unwrap() };
    let again = rig.written(&lb(), lower(&body)).await;
    for member in ["frontendIPConfigurations", "backendAddressPools", "probes"] {
        let rules = |lb: &Value| at(lb, member)["properties"]["loadBalancingRules"].clone();
        assert_eq!(rules(&again), rules(&shown), "{member}");
    }
    rig.written(&interface("plain-0"), lower(&nic(&[&pool()]))).await;
    let code = "InUseBackendAddressPoolCannotBeDeleted";
    let pool_uri = format!("{}?api-version={VERSION}", pool());
    rig.call("DELETE", &pool_uri.replace("loadBalancers", "LOADBALANCERS"), None).await.refused(400, code);
    let address = json!({"name": "a", "properties": {"ipAddress": "10.240.9.9", "subnet": reference(&subnet())}});
    let second = format!("{}?api-version={VERSION}", part("backendAddressPools", "second"));
    rig.written(&second, lower(&json!({"properties": {"loadBalancerBackendAddresses": [address]}}))).await;
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_lists_its_interfaces_and_an_interface_its_load_balancers() {
    let rig = Rig::new(options()).await;
    let names = |got: &Got| -> Vec<String> {
        let all = got.body["value"].as_array().unwrap().iter();
        all.map(|own| own["name"].as_str().unwrap().to_owned()).collect()
    };
    let of_balancer = uri("loadBalancers", "lb/networkInterfaces");
    rig.get(&of_balancer).await.refused(404, "ResourceNotFound");
    rig.written(&lb(), balancer(json!([internal("f")]), json!([rule("r", "f", 80)]))).await;
    assert_eq!(names(&rig.get(&of_balancer).await.expect(200)), Vec::<String>::new());
    rig.written(&interface("plain-0"), nic(&[&pool()])).await;
    rig.written(&interface("plain-1"), nic(&[])).await;
    assert_eq!(names(&rig.get(&of_balancer).await.expect(200)), ["plain-0-nic"]);
    let of_interface = rig.get(&uri("networkInterfaces", "plain-0-nic/loadBalancers")).await.expect(200);
    assert_eq!(names(&of_interface), ["lb"]);
    // As a GET of it shows it, with who refers to its parts.
    assert_eq!(of_interface.body["value"][0], rig.get(&lb()).await.expect(200).body);
    let none = rig.get(&uri("networkInterfaces", "plain-1-nic/loadBalancers")).await.expect(200);
    assert_eq!(names(&none), Vec::<String>::new());
    rig.get(&uri("networkInterfaces", "none/loadBalancers")).await.refused(404, "ResourceNotFound");
}
