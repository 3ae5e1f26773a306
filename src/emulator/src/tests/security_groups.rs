//! Network security groups and route tables.

use super::load_balancers::{id, reference, uri};
use super::*;

fn group_uri() -> String {
    uri("networkSecurityGroups", "nsg")
}

fn rule_uri(name: &str) -> String {
    uri("networkSecurityGroups", &format!("nsg/securityRules/{name}"))
}

fn rule(name: &str, priority: u64) -> Value {
    json!({"name": name, "properties": {
        "protocol": "Tcp", "access": "Allow", "direction": "Inbound", "priority": priority,
        "sourceAddressPrefix": "Internet", "sourcePortRange": "*",
        "destinationAddressPrefixes": ["198.18.0.1", "10.0.0.0/8"], "destinationPortRanges": ["80", "8000-9000"],
    }})
}

fn with(rules: Value) -> Value {
    json!({"location": "westeurope", "properties": {"securityRules": rules}})
}

#[tokio::test(start_paused = true)]
async fn a_scenario_may_have_a_security_group() {
    let group = crate::scenario::SecurityGroup { name: "nsg".to_owned(), resource_group: None };
    let scenario = Scenario { security_groups: vec![group], ..Scenario::default() };
    let rig = Rig::new(Options { scenario, ..slow() }).await;
    let shown = rig.get(&group_uri()).await.expect(200).body;
    assert_eq!(shown["properties"]["provisioningState"], "Succeeded");
    assert_eq!(shown["properties"]["defaultSecurityRules"].as_array().unwrap().len(), 6);
    let got = rig.call("PUT", &rule_uri("a"), Some(rule("a", 500))).await.expect(201);
    rig.finish(&got).await;
}

#[tokio::test(start_paused = true)]
async fn a_scenario_may_have_a_route_table() {
    let table = crate::scenario::RouteTable { name: "routes".to_owned(), resource_group: None };
    let scenario = Scenario { route_tables: vec![table], ..Scenario::default() };
    let rig = Rig::new(Options { scenario, ..slow() }).await;
    let uri = group_uri().replace("networkSecurityGroups/nsg", "routeTables/routes");
    let shown = rig.get(&uri).await.expect(200).body;
    assert_eq!(shown["properties"]["provisioningState"], "Succeeded");
    assert_eq!(shown["properties"]["routes"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn a_security_group_has_its_rules_and_six_of_azure() {
    let rig = Rig::new(slow()).await;
    let got = rig.call("PUT", &group_uri(), Some(with(json!([rule("a", 500)])))).await.expect(201);
    assert_eq!(got.body["properties"]["provisioningState"], "Updating");
    assert_eq!(rig.finish(&got).await, json!({"status": "Succeeded"}));
    let shown = rig.get(&group_uri()).await.expect(200).body;
    assert_eq!(shown["properties"]["defaultSecurityRules"].as_array().unwrap().len(), 6);
    let own = &shown["properties"]["securityRules"][0];
    assert_eq!((&own["etag"], &own["properties"]["sourceAddressPrefixes"]), (&shown["etag"], &json!([])));
    // What is read can be written, and then nothing changes.
    let again = rig.call("PUT", &group_uri(), Some(shown.clone())).await.expect(200).body;
    assert_eq!(again["properties"]["provisioningState"], "Succeeded");
    assert_eq!(again["properties"]["securityRules"][0]["properties"], own["properties"]);
    // A rule alone, with the group's etag.
    let etag = rig.get(&rule_uri("a")).await.expect(200).header("etag").to_owned();
    let stale = [("if-match", "W/\"stale\"")];
    rig.with("PUT", &rule_uri("a"), Some(rule("a", 501)), &stale).await.refused(412, "PreconditionFailed");
    let got = rig.with("PUT", &rule_uri("a"), Some(rule("a", 501)), &[("if-match", &etag)]).await.expect(200);
    rig.finish(&got).await;
    let got = rig.call("PUT", &rule_uri("b"), Some(rule("b", 502))).await.expect(201);
    rig.finish(&got).await;
    let rules = uri("networkSecurityGroups", "nsg/securityRules");
    assert_eq!(rig.get(&rules).await.expect(200).body["value"].as_array().unwrap().len(), 2);
    let before = rig.get(&group_uri()).await.expect(200).body["etag"].clone();
    let got = rig.call("DELETE", &rule_uri("b"), None).await.expect(202);
    rig.finish(&got).await;
    rig.get(&rule_uri("b")).await.refused(404, "NotFound");
    assert_ne!(rig.get(&group_uri()).await.expect(200).body["etag"], before);
    let patch = rig.call("PATCH", &group_uri(), Some(json!({"tags": {"a": "b"}}))).await.expect(200).body;
    assert_eq!(patch["tags"], json!({"a": "b"}));
}

const PARAMETER: &str = "SecurityRuleParameterContainsUnsupportedValue";
const OVERLAP: &str = "OverlappingSubnetsNotPermittedInSecurityRule";

#[tokio::test(start_paused = true)]
async fn what_a_security_rule_cannot_be_is_refused() {
    let rig = Rig::new(options()).await;
    let changed = |member: &str, value: Value| {
        let mut rule = rule("a", 500);
        rule["properties"][member] = value;
        with(json!([rule]))
    };
    let mut ranges = rule("a", 500);
    ranges["properties"].as_object_mut().unwrap().remove("sourcePortRange");
    for (body, code) in [
        (changed("priority", json!(99)), "SecurityRuleInvalidPriority"),
        (changed("priority", json!(4097)), "SecurityRuleInvalidPriority"),
        (changed("destinationPortRanges", json!(["80", "90-80"])), "SecurityRuleInvalidPortRange"),
        (changed("destinationPortRanges", json!(["65536"])), "SecurityRuleInvalidPortRange"),
        (changed("sourceAddressPrefix", json!("10.0.0.1/8")), "SecurityRuleInvalidAddressPrefix"),
        (changed("sourceAddressPrefix", json!("10.0.0.0/33")), "SecurityRuleInvalidAddressPrefix"),
        (changed("destinationAddressPrefixes", json!([])), "SecurityRuleParametersMissing"),
        (with(json!([ranges])), "SecurityRuleParametersMissing"),
        (with(json!([rule("a", 500), rule("b", 500)])), "SecurityRuleConflict"),
        (with(json!([rule("a", 500), rule("A", 501)])), "InvalidRequestFormat"),
        (changed("protocol", json!("Tpc")), "InvalidParameter"),
        (changed("destinationAddressPrefixes", json!(["VirtualNetwork"])), PARAMETER),
        (changed("destinationAddressPrefixes", json!(["10.0.0.0/8", "*"])), PARAMETER),
        (changed("sourceAddressPrefixes", json!(["10.0.0.0/8", "9.0.0.0/8", "10.7.0.0/16"])), OVERLAP),
        (changed("sourceAddressPrefixes", json!(["fd00::1", "fd00::/64"])), OVERLAP),
        (changed("sourceAddressPrefixes", json!(["10.0.0.1", "10.0.0.1/32"])), OVERLAP),
    ] {
        rig.refuses(&group_uri(), &body, code).await;
    }
    for body in [
        changed("sourceAddressPrefix", json!("AzureCloud.westeurope")),
        changed("sourceAddressPrefix", json!("fd00::/8")),
        changed("destinationAddressPrefixes", json!(["10.0.0.0/8", "11.0.0.0/8", "9.255.255.255", "fd00::/8"])),
        changed("priority", json!(4096)),
        with(json!([rule("a", 500), {"name": "b", "properties": {
            "protocol": "*", "access": "Deny", "direction": "Outbound", "priority": 500, "sourceAddressPrefix": "*",
            "sourcePortRange": "*", "destinationAddressPrefix": "*", "destinationPortRange": "*",
        }}])),
    ] {
        rig.written(&group_uri(), body).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_security_group_has_as_many_rules_and_prefixes_as_azure_allows() {
    let rig = Rig::new(options()).await;
    let rules = |count: u64| with((0..count).map(|at| rule(&format!("r{at}"), 100 + at)).collect());
    rig.refuses(&group_uri(), &rules(1001), "SecurityRuleCountLimitReached").await;
    rig.written(&group_uri(), rules(1000)).await;
    let prefixes = |count: u32| {
        let mut rule = rule("a", 500);
        let list: Vec<String> = (0..count).map(|at| format!("{}/32", std::net::Ipv4Addr::from_bits(at))).collect();
        rule["properties"]["destinationAddressPrefixes"] = json!(list);
        with(json!([rule]))
    };
    rig.refuses(&group_uri(), &prefixes(4001), "SecurityRulePrefixCountLimitReached").await;
    rig.written(&group_uri(), prefixes(4000)).await;
}

#[tokio::test(start_paused = true)]
async fn a_group_or_table_that_a_subnet_or_interface_names_stays() {
    let rig = Rig::new(options()).await;
    rig.written(&group_uri(), with(json!([]))).await;
    let table = uri("routeTables", "rt");
    rig.written(&table, json!({"location": "westeurope"})).await;
    let subnet = uri("virtualNetworks", "lazuli-vnet/subnets/nodes");
    let body = rig.get(&subnet).await.expect(200).body;
    let mut with_both = body.clone();
    with_both["properties"]["networkSecurityGroup"] = reference(&id("networkSecurityGroups", "nsg"));
    with_both["properties"]["routeTable"] = reference(&id("routeTables", "rt"));
    let etag = body["etag"].as_str().unwrap();
    let got = rig.with("PUT", &subnet, Some(with_both), &[("if-match", etag)]).await.expect(200);
    rig.finish(&got).await;
    rig.with("PUT", &subnet, Some(body.clone()), &[("if-match", etag)]).await.refused(412, "PreconditionFailed");
    let card = uri("networkInterfaces", "plain-0-nic");
    let mut nic = rig.get(&card).await.expect(200).body;
    nic["properties"]["networkSecurityGroup"] = reference(&id("networkSecurityGroups", "nsg"));
    rig.written(&card, nic.clone()).await;
    let shown = rig.get(&group_uri()).await.expect(200).body["properties"].clone();
    let own = id("virtualNetworks", "lazuli-vnet/subnets/nodes");
    assert_eq!(shown["subnets"], json!([reference(&own)]));
    assert_eq!(shown["networkInterfaces"], json!([reference(&id("networkInterfaces", "plain-0-nic"))]));
    assert_eq!(rig.get(&table).await.expect(200).body["properties"]["subnets"], json!([reference(&own)]));
    let got = rig.call("DELETE", &group_uri(), None).await.refused(400, "InUseNetworkSecurityGroupCannotBeDeleted");
    assert!(got.message().contains(&own) || got.message().contains("plain-0-nic"), "{}", got.message());
    rig.call("DELETE", &table, None).await.refused(400, "InUseRouteTableCannotBeDeleted");
    let got = rig.call("PUT", &subnet, Some(body)).await.expect(200);
    rig.finish(&got).await;
    nic["properties"].as_object_mut().unwrap().remove("networkSecurityGroup");
    rig.written(&card, nic).await;
    for uri in [&group_uri(), &table] {
        let got = rig.call("DELETE", uri, None).await.expect(202);
        assert_eq!(rig.finish(&got).await["status"], "Succeeded");
    }
}

#[tokio::test(start_paused = true)]
async fn a_route_table_has_routes() {
    let rig = Rig::new(slow()).await;
    let table = uri("routeTables", "rt");
    let route = |prefix: &str, hop: Option<&str>| {
        let mut route = json!({"properties": {"addressPrefix": prefix, "nextHopType": "VirtualAppliance"}});
        if let Some(hop) = hop {
            route["properties"]["nextHopIpAddress"] = json!(hop);
        }
        route
    };
    rig.written(&table, json!({"location": "westeurope"})).await;
    let of = |name: &str| uri("routeTables", &format!("rt/routes/{name}"));
    let got = rig.call("PUT", &of("a"), Some(route("10.244.0.0/24", Some("10.240.0.4")))).await.expect(201);
    rig.finish(&got).await;
    let shown = rig.get(&table).await.expect(200).body;
    assert_eq!(shown["properties"]["routes"][0]["properties"]["nextHopIpAddress"], "10.240.0.4");
    for (body, code) in [
        (route("10.244.0.0/24", Some("10.240.0.5")), "RouteConflict"),
        (route("10.244.1.0/24", None), "InvalidNextHopIpAddress"),
        (route("10.244.1.0/24", Some("node-1")), "InvalidNextHopIpAddress"),
        (route("10.244.1.0", Some("10.240.0.4")), "InvalidAddressPrefixFormat"),
    ] {
        rig.refuses(&of("b"), &body, code).await;
    }
    let routes: Vec<Value> = (0..401)
        .map(|at| {
            let mut route = route(&format!("10.{}.{}.0/24", at / 256, at % 256), Some("10.240.0.4"));
            route["name"] = json!(format!("r{at}"));
            route
        })
        .collect();
    let body = json!({"location": "westeurope", "properties": {"routes": routes}});
    rig.refuses(&table, &body, "RouteCountLimitReached").await;
    let got = rig.call("DELETE", &of("a"), None).await.expect(202);
    rig.finish(&got).await;
    assert_eq!(rig.get(&table).await.expect(200).body["properties"]["routes"], json!([]));
}
