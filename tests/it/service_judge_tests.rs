//! The judge of [`super::service_judge`] can fail: hand-made states that break one law each.

use std::{collections::BTreeMap, time::Duration};

use lazuli_emulator::changes::{Changed, Step};
use serde_json::{Value, json};

use super::{service_judge::Judge, service_reach::Azure, service_rig::network_id};

const UID: &str = "00000000-0000-0000-0000-00000000000a";
const BASE: &str = "a0000000000000000000000000000000";
const ADDRESS: &str = "198.18.0.1";

/// The parts of a state, each as a test may change it.
struct State {
    documents: BTreeMap<&'static str, Value>,
}

fn id(kind: &str) -> String {
    let name = match kind {
        "virtualNetworks" => "vnet",
        "networkInterfaces" => "nic",
        "publicIPAddresses" => "kubernetes-a0000000000000000000000000000000",
        "networkSecurityGroups" => "nsg",
        _ => "kubernetes",
    };
    network_id(kind, name)
}

impl State {
    /// A public Service at port 80 for one range, served by one node.
    fn served() -> Self {
        let subnet = format!("{}/subnets/nodes", id("virtualNetworks"));
        let balancer = id("loadBalancers");
        let part = |kind: &str, name: &str| json!({"id": format!("{balancer}/{kind}/{name}")});
        let mut frontend = part("frontendIPConfigurations", BASE);
        frontend["properties"] = json!({"publicIPAddress": {"id": id("publicIPAddresses")}});
        let mut pool = part("backendAddressPools", "kubernetes");
        pool["properties"] = json!({"loadBalancerBackendAddresses": [{"properties": {"ipAddress": "10.240.0.4"}}]});
        let rule = json!({"name": format!("{BASE}-TCP-80"), "properties": {
            "frontendIPConfiguration": part("frontendIPConfigurations", BASE), "protocol": "Tcp", "frontendPort": 80,
            "backendAddressPool": part("backendAddressPools", "kubernetes"), "backendPort": 80, "enableFloatingIP": true}});
        let allow = json!({"name": "k8s-azure-lb_allow_IPv4_x", "properties": {"direction": "Inbound", "access": "Allow",
            "priority": 500, "protocol": "Tcp", "sourceAddressPrefixes": ["203.0.113.0/24"],
            "destinationAddressPrefix": ADDRESS, "destinationPortRange": "80"}});
        let network = json!({"addressSpace": {"addressPrefixes": ["10.0.0.0/8"]},
            "subnets": [{"id": subnet, "properties": {"networkSecurityGroup": {"id": id("networkSecurityGroups")}}}]});
        let interface = json!({"ipConfigurations": [
            {"properties": {"privateIPAddress": "10.240.0.4", "subnet": {"id": subnet}}}]});
        let documents = [
            ("virtualNetworks", network),
            ("networkInterfaces", interface),
            ("publicIPAddresses", json!({"ipAddress": ADDRESS, "provisioningState": "Succeeded"})),
            ("networkSecurityGroups", json!({"securityRules": [allow]})),
            (
                "loadBalancers",
                json!({"frontendIPConfigurations": [frontend], "loadBalancingRules": [rule], "backendAddressPools": [pool]}),
            ),
        ];
        let document = |(kind, properties)| {
            let name = id(kind).rsplit('/').next().unwrap().to_owned();
            let tags = json!({"k8s-azure-service": "default/web"});
            (
                kind,
                json!({"name": name, "type": format!("Microsoft.Network/{kind}"), "tags": tags, "properties": properties}),
            )
        };
        Self { documents: documents.into_iter().map(document).collect() }
    }

    fn at(&mut self, kind: &str, pointer: &str) -> &mut Value {
        self.documents.get_mut(kind).unwrap().pointer_mut(pointer).unwrap()
    }

    /// The step that puts these kinds into place.
    fn step(&self, kinds: &[&str], in_flight: bool) -> Step {
        let documents = kinds.iter().map(|kind| Changed {
            key: id(kind).to_lowercase(),
            document: self.documents.get(kind).map(|document| document.clone().into()),
            in_flight,
        });
        Step { at: Duration::ZERO, documents: documents.collect() }
    }

    /// A judge that has seen this state and a Service that is served in it.
    fn judge(&self) -> Judge {
        let existing = self.documents.iter().map(|(kind, document)| (id(kind).to_lowercase(), document.clone().into()));
        let mut judge = Judge::new(Azure::new(existing.collect()));
        judge.service(&service(None), true);
        judge.service(&service(Some(ADDRESS)), true);
        judge.at_rest(&Default::default());
        judge
    }
}

fn service(address: Option<&str>) -> Value {
    let ingress: Vec<Value> = address.into_iter().map(|address| json!({"ip": address})).collect();
    json!({"metadata": {"name": "web", "uid": UID}, "status": {"loadBalancer": {"ingress": ingress}},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}], "loadBalancerSourceRanges": ["203.0.113.0/24"]}})
}

/// The laws that were broken.
fn broken(judge: &Judge) -> Vec<String> {
    let mut laws: Vec<String> =
        judge.faults().iter().map(|fault| fault.split(':').next().unwrap().to_owned()).collect();
    laws.dedup();
    laws
}

const NONE: [&str; 0] = [];

#[test]
fn the_judge_finds_no_fault_in_a_state_that_serves_the_service() {
    assert_eq!(broken(&State::served().judge()), NONE);
}

#[test]
fn the_judge_misses_a_rule_a_member_an_admission_and_an_address() {
    let missing: [(&str, &str, Value); 4] = [
        ("loadBalancers", "/properties/loadBalancingRules", json!([])),
        ("loadBalancers", "/properties/backendAddressPools", json!([])),
        ("networkSecurityGroups", "/properties/securityRules", json!([])),
        ("publicIPAddresses", "/properties/provisioningState", json!("Failed")),
    ];
    for (kind, pointer, value) in missing {
        let mut state = State::served();
        let mut judge = state.judge();
        *state.at(kind, pointer) = value;
        judge.step(&state.step(&[kind], false));
        assert!(broken(&judge).contains(&"served".to_owned()), "{kind} {pointer}: {:?}", judge.faults());
    }
}

#[test]
fn the_judge_counts_what_is_asked_as_soon_as_its_write_begins_and_what_was_until_it_ends() {
    let mut state = State::served();
    let mut judge = state.judge();
    *state.at("loadBalancers", "/properties/loadBalancingRules") = json!([]);
    judge.step(&state.step(&["loadBalancers"], true));
    assert_eq!(broken(&judge), ["served"]);
    let mut judge = State::served().judge();
    let rules = std::mem::take(state.at("networkSecurityGroups", "/properties/securityRules"));
    judge.step(&state.step(&["networkSecurityGroups"], true));
    *state.at("networkSecurityGroups", "/properties/securityRules") = rules;
    judge.step(&state.step(&["networkSecurityGroups"], true));
    assert_eq!(broken(&judge), ["served"], "the older of two writes may still be in force");
}

#[test]
fn the_judge_sees_a_source_that_no_spec_admits() {
    let mut state = State::served();
    let mut judge = state.judge();
    *state.at("networkSecurityGroups", "/properties/securityRules/0/properties/sourceAddressPrefixes") = json!(["*"]);
    judge.step(&state.step(&["networkSecurityGroups"], true));
    assert_eq!(broken(&judge), ["closed"]);
    // The new spec, or the old one, admits it.
    let mut judge = State::served().judge();
    let mut open = service(Some(ADDRESS));
    open["spec"]["loadBalancerSourceRanges"] = json!([]);
    judge.service(&open, true);
    judge.step(&state.step(&["networkSecurityGroups"], true));
    assert_eq!(broken(&judge), NONE);
}

#[test]
fn the_judge_sees_an_address_given_up_while_a_security_rule_admits_it() {
    let mut state = State::served();
    let mut judge = state.judge();
    let mut dying = service(Some(ADDRESS));
    dying["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    judge.service(&dying, true);
    *state.at("publicIPAddresses", "/properties/provisioningState") = "Deleting".into();
    judge.step(&state.step(&["publicIPAddresses"], true));
    assert_eq!(broken(&judge), ["held"]);
}

#[test]
fn the_judge_sees_a_status_that_comes_too_early() {
    let state = State::served();
    let mut early = State::served();
    *early.at("loadBalancers", "/properties/loadBalancingRules") = json!([]);
    let existing = early.documents.iter().map(|(kind, document)| (id(kind).to_lowercase(), document.clone().into()));
    let mut judge = Judge::new(Azure::new(existing.collect()));
    judge.service(&service(None), true);
    judge.step(&state.step(&["loadBalancers"], true));
    judge.service(&service(Some(ADDRESS)), true);
    assert_eq!(broken(&judge), ["shown"]);
}

#[test]
fn the_judge_sees_what_is_left_of_a_service_that_is_gone() {
    let mut judge = State::served().judge();
    judge.service(&service(Some(ADDRESS)), false);
    assert_eq!(broken(&judge), ["closed"]);
    judge.at_rest(&Default::default());
    let left = judge.faults().iter().filter(|fault| fault.starts_with("at rest")).count();
    assert_eq!(left, 3, "a rule, a security rule and a public IP: {:?}", judge.faults());
}

#[test]
fn the_judge_allows_a_gap_of_so_many_writes_once() {
    let mut down = State::served();
    *down.at("loadBalancers", "/properties/loadBalancingRules") = json!([]);
    let up = State::served();
    let mut judge = up.judge();
    judge.allow_gap("web", 2);
    for in_flight in [true, false, true, false] {
        judge.step(&down.step(&["loadBalancers"], in_flight));
    }
    assert_eq!(broken(&judge), NONE);
    judge.step(&down.step(&["loadBalancers"], true));
    assert_eq!(broken(&judge), ["served"]);
    let mut judge = up.judge();
    judge.allow_gap("web", 2);
    for (state, in_flight) in [(&down, true), (&down, false), (&up, true), (&up, false)] {
        judge.step(&state.step(&["loadBalancers"], in_flight));
    }
    assert_eq!(broken(&judge), NONE);
    judge.step(&down.step(&["loadBalancers"], true));
    assert_eq!(broken(&judge), ["served"]);
}
