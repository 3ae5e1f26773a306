//! What load balancers are refused for: SKUs, zones, frontends, ports, probes, outbound rules and limits.
//!
//! The rules and limits are documented, but where it says otherwise; most of the codes are not.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::RangeInclusive;

use serde_json::Value;

use super::backends;
use crate::arm::descriptor::Children;
use crate::arm::engine::references;
use crate::arm::{kinds, regions};
use crate::cidr;
use crate::fault::{self, Fault};
use crate::path;
use crate::state::State;

/// What a load balancer of a SKU may have.
struct Limits {
    frontends: usize,
    /// Load-balancing rules and inbound NAT rules.
    rules: usize,
    outbound_rules: usize,
    /// Members of a pool.
    members: usize,
    /// Minutes of a rule.
    idle: RangeInclusive<u64>,
}

const STANDARD: Limits = Limits { frontends: 600, rules: 1500, outbound_rules: 600, members: 5000, idle: 4..=100 };
const BASIC: Limits = Limits { frontends: 200, rules: 250, outbound_rules: 0, members: 300, idle: 4..=30 };

fn parts<'a>(balancer: &'a Value, member: &str) -> &'a [Value] {
    balancer["properties"][member].as_array().map_or(&[], Vec::as_slice)
}

/// What a document of the type has parts of.
fn parts_of(state: &State, balancer: &Value) -> &'static [Children] {
    state.types.of(balancer).map_or(&[], |descriptor| descriptor.children)
}

fn text<'a>(part: &'a Value, property: &str) -> &'a str {
    part["properties"][property].as_str().unwrap_or("")
}

fn number(part: &Value, property: &str) -> u64 {
    part["properties"][property].as_u64().unwrap_or(0)
}

/// The key of what a property names.
fn named(part: &Value, property: &str) -> String {
    path::key(part["properties"][property]["id"].as_str().unwrap_or(""))
}

/// The whole document.
pub(crate) fn check(state: &State, balancer: &Value, old: Option<&Value>) -> Result<(), Fault> {
    let (id, sku) = (path::of(balancer), balancer["sku"]["name"].as_str().unwrap_or(""));
    if let Some(had) = old.and_then(|old| old["sku"]["name"].as_str()).filter(|had| *had != sku) {
        return Err(fault::sku_changed(had, sku, id));
    }
    let limits = if sku == "Basic" { &BASIC } else { &STANDARD };
    let frontends = parts(balancer, "frontendIPConfigurations");
    let has_others = |member: &str| member != "frontendIPConfigurations" && !parts(balancer, member).is_empty();
    if frontends.is_empty() && parts_of(state, balancer).iter().any(|children| has_others(children.member)) {
        return Err(fault::no_frontend_but_others(id));
    }
    // Which of the two codes Azure answers where both are true is unverified.
    if frontends.is_empty() && old.is_some_and(|old| !parts(old, "frontendIPConfigurations").is_empty()) {
        return Err(fault::last_frontend_removed(id));
    }
    if frontends.len() > limits.frontends {
        return Err(fault::too_many_frontends(limits.frontends));
    }
    for frontend in frontends {
        let had = old.map(|old| parts(old, "frontendIPConfigurations")).unwrap_or_default();
        let had = had.iter().find(|had| had["name"] == frontend["name"]);
        check_frontend(state, balancer, frontend, had)?;
    }
    let (rules, nat_rules) = (parts(balancer, "loadBalancingRules"), parts(balancer, "inboundNatRules"));
    if rules.len() + nat_rules.len() > limits.rules {
        return Err(fault::too_many_rules(limits.rules));
    }
    for rule in rules {
        check_rule(state, balancer, rule, (limits, sku))?;
    }
    for rule in nat_rules.iter().chain(parts(balancer, "inboundNatPools")) {
        check_idle(rule, &limits.idle)?;
    }
    check_frontend_ports(balancer)?;
    check_backend_ports(rules)?;
    parts(balancer, "probes").iter().try_for_each(check_probe)?;
    check_outbound(balancer, limits)?;
    for pool in parts(balancer, "backendAddressPools") {
        check_pool(state, pool, limits, sku)?;
        check_members(state, balancer, pool)?;
    }
    Ok(())
}

fn check_frontend(state: &State, balancer: &Value, frontend: &Value, had: Option<&Value>) -> Result<(), Fault> {
    let id = path::of(frontend);
    let ways = ["subnet", "publicIPAddress", "publicIPPrefix"];
    if ways.iter().filter(|way| frontend["properties"][**way].is_object()).count() != 1 {
        return Err(fault::frontend_without_address(id));
    }
    let internal = frontend["properties"]["subnet"].is_object();
    if backends::is_internal(balancer) != Some(internal) {
        return Err(fault::frontends_of_both_types(path::of(balancer)));
    }
    let zones = |frontend: &Value| {
        let zones = frontend["zones"].as_array().into_iter().flatten().filter_map(Value::as_str);
        zones.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(", ")
    };
    let given = frontend["zones"].as_array().map_or(&[][..], Vec::as_slice);
    let location = balancer["location"].as_str().unwrap_or("");
    regions::check_zones(location, given, kinds::FRONTEND, path::name_of(id))?;
    let own = zones(frontend);
    if !own.is_empty() && (!internal || balancer["sku"]["name"] == "Basic") {
        return Err(fault::frontend_with_zones(id));
    }
    if let Some(had) = had.map(zones).filter(|had| *had != own) {
        return Err(fault::zones_changed(id, had, own));
    }
    let address = frontend["properties"]["publicIPAddress"]["id"].as_str();
    if let Some(address) = address.and_then(|id| state.store.document(id)) {
        let (own, sku) = (&balancer["sku"]["name"], &address["sku"]["name"]);
        if own != sku {
            let word = |sku: &Value| sku.as_str().unwrap_or("").to_owned();
            return Err(fault::balancer_and_address_differ(
                word(own),
                path::of(balancer),
                word(sku),
                path::of(&address),
            ));
        }
    }
    Ok(())
}

fn check_idle(rule: &Value, idle: &RangeInclusive<u64>) -> Result<(), Fault> {
    if idle.contains(&number(rule, "idleTimeoutInMinutes")) {
        return Ok(());
    }
    Err(fault::invalid_rule_idle_timeout(path::of(rule), idle.start(), idle.end()))
}

fn check_rule(state: &State, balancer: &Value, rule: &Value, (limits, sku): (&Limits, &str)) -> Result<(), Fault> {
    let id = path::of(rule);
    if named(rule, "frontendIPConfiguration").is_empty() {
        return Err(fault::missing_value("frontendIPConfiguration"));
    }
    let (front, back) = (number(rule, "frontendPort"), number(rule, "backendPort"));
    if front > 65_534 || back > 65_535 {
        return Err(fault::invalid_port(id));
    }
    let all_protocols = text(rule, "protocol") == "All";
    let all = all_protocols && (front == 0 || state.switches.all_protocols_need_port_0);
    if all != (front == 0) || all != (back == 0) {
        return Err(fault::all_ports_need_all_protocols(id));
    }
    if all && (sku == "Basic" || backends::is_internal(balancer) != Some(true)) {
        return Err(fault::all_ports_need_internal_standard(id));
    }
    check_idle(rule, &limits.idle)
}

/// Ports of a frontend and a protocol, each range with the rule that has it.
type Ports<'a> = Vec<(RangeInclusive<u64>, &'a Value)>;

/// Each port of a frontend has one rule. Documented, but that a NAT pool takes all of its range.
fn check_frontend_ports(balancer: &Value) -> Result<(), Fault> {
    let mut taken: BTreeMap<(String, &str), Ports<'_>> = BTreeMap::new();
    for member in ["loadBalancingRules", "inboundNatRules", "inboundNatPools"] {
        for rule in parts(balancer, member) {
            let ports = match rule["properties"]["frontendPort"].as_u64() {
                Some(port) => port..=port,
                None => number(rule, "frontendPortRangeStart")..=number(rule, "frontendPortRangeEnd"),
            };
            taken
                .entry((named(rule, "frontendIPConfiguration"), text(rule, "protocol")))
                .or_default()
                .push((ports, rule));
        }
    }
    for ((frontend, protocol), mut taken) in taken {
        taken.sort_by_key(|(ports, _)| *ports.start());
        for pair in taken.windows(2) {
            if let [(ports, one), (next, other)] = pair
                && next.start() <= ports.end()
            {
                let port = next.start();
                return Err(fault::rules_share_port(path::of(one), path::of(other), protocol, port, frontend));
            }
        }
    }
    Ok(())
}

fn check_backend_ports(rules: &[Value]) -> Result<(), Fault> {
    let mut taken: BTreeMap<(String, &str, u64), &Value> = BTreeMap::new();
    for rule in rules.iter().filter(|rule| rule["properties"]["enableFloatingIP"] != true) {
        let (protocol, port) = (text(rule, "protocol"), number(rule, "backendPort"));
        for pool in rule["properties"]["backendAddressPools"].as_array().into_iter().flatten() {
            let id = pool["id"].as_str().unwrap_or("");
            if let Some(other) = taken.insert((path::key(id), protocol, port), rule) {
                return Err(fault::rules_share_backend(path::of(other), path::of(rule), protocol, port, id));
            }
        }
    }
    Ok(())
}

fn check_probe(probe: &Value) -> Result<(), Fault> {
    let path_fits = (text(probe, "protocol") == "Tcp") == text(probe, "requestPath").is_empty();
    let fits = (1..=65_535).contains(&number(probe, "port"))
        && number(probe, "intervalInSeconds") >= 5
        && number(probe, "numberOfProbes") >= 1
        && (1..=100).contains(&number(probe, "probeThreshold"));
    match (fits, path_fits) {
        (true, true) => Ok(()),
        (true, false) => Err(fault::invalid_probe_path(path::of(probe))),
        (false, _) => Err(fault::invalid_probe(path::of(probe))),
    }
}

fn check_outbound(balancer: &Value, limits: &Limits) -> Result<(), Fault> {
    let outbound = parts(balancer, "outboundRules");
    if outbound.len() > limits.outbound_rules || !outbound.is_empty() && backends::is_internal(balancer) == Some(true) {
        return Err(fault::outbound_rules_unsupported(path::of(balancer), limits.outbound_rules));
    }
    let mut taken: Vec<(String, &str, &Value)> = Vec::new();
    for rule in outbound {
        check_idle(rule, &(4..=120))?;
        let ports = number(rule, "allocatedOutboundPorts");
        if !ports.is_multiple_of(8) || ports > 64_000 {
            return Err(fault::invalid_outbound_ports(path::of(rule)));
        }
        let protocol = text(rule, "protocol");
        for frontend in rule["properties"]["frontendIPConfigurations"].as_array().into_iter().flatten() {
            let id = frontend["id"].as_str().unwrap_or("");
            let overlap = |other: &str| other == protocol || other == "All" || protocol == "All";
            if let Some((_, _, other)) = taken.iter().find(|(key, other, _)| path::same(key, id) && overlap(other)) {
                return Err(fault::outbound_rules_share_frontend(id, path::of(other), path::of(rule)));
            }
            taken.push((id.to_owned(), protocol, rule));
        }
    }
    let snat = parts(balancer, "loadBalancingRules").iter().find(|rule| {
        let frontend = named(rule, "frontendIPConfiguration");
        rule["properties"]["disableOutboundSnat"] != true && taken.iter().any(|(id, _, _)| path::same(id, &frontend))
    });
    snat.map_or(Ok(()), |rule| Err(fault::rule_must_disable_snat(path::of(rule))))
}

/// Network interfaces of a pool have a limit of rules of their own.
fn check_members(state: &State, balancer: &Value, pool: &Value) -> Result<(), Fault> {
    if backends::rules_of(balancer, path::of(pool)) <= backends::RULES_MOST {
        return Ok(());
    }
    match references::referrers(state, kinds::BACKEND_POOL, path::of(pool), Some(kinds::NIC)).first() {
        Some(member) => Err(fault::too_many_rules_of_interface(&member.element, backends::RULES_MOST)),
        None => Ok(()),
    }
}

/// Addresses of a pool of addresses are of its network. That they must be is documented, the codes are not.
fn check_pool(state: &State, pool: &Value, limits: &Limits, sku: &str) -> Result<(), Fault> {
    let id = path::of(pool);
    let addresses = parts(pool, "loadBalancerBackendAddresses");
    if addresses.len() > limits.members {
        return Err(fault::too_many_backends(id, limits.members));
    }
    if !addresses.is_empty() && sku == "Basic" {
        return Err(fault::addresses_need_standard(id));
    }
    let (mut names, mut seen) = (BTreeSet::new(), BTreeSet::new());
    for address in addresses {
        let given = text(address, "ipAddress");
        let name = address["name"].as_str().ok_or_else(|| fault::missing_value("loadBalancerBackendAddresses.name"))?;
        let network = address["properties"]["virtualNetwork"]["id"].as_str();
        let subnet = address["properties"]["subnet"]["id"].as_str();
        let network = network.or(pool["properties"]["virtualNetwork"]["id"].as_str());
        let network = network.or(subnet.map(path::parent_of));
        let network = network.ok_or_else(|| fault::missing_value("loadBalancerBackendAddresses.virtualNetwork"))?;
        let parsed: Option<IpAddr> = given.parse().ok();
        let network = state.store.document(network).unwrap_or_default();
        let space = network["properties"]["addressSpace"]["addressPrefixes"].as_array().into_iter().flatten();
        let mut space = space.filter_map(Value::as_str).filter_map(cidr::range);
        if !parsed.is_some_and(|address| space.any(|(first, last)| (first..=last).contains(&address))) {
            return Err(fault::backend_outside_network(given, id, path::of(&network)));
        }
        if !names.insert(name) || !seen.insert(parsed) {
            return Err(fault::backend_named_twice(given, id));
        }
    }
    Ok(())
}
