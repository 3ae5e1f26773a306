use std::collections::BTreeSet;

use lazuli_model::ServiceKey;
use serde_json::{Value, json};

use super::*;
use crate::{
    ask::names,
    network::{Found, Plan, Refusal, RefusalReason, Served},
    service::fixtures::{security_group_env, settings},
};

mod laws;
mod nodes;

fn env() -> Env {
    security_group_env(&settings())
}

fn key(number: u8) -> ServiceKey {
    ServiceKey::new("default", format!("web{number}"), format!("{number:02x}000000-0000-4000-8000-000000000000"))
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn allow(sources: &[&str], ports: &[u16], destinations: &[&str]) -> Allow {
    Allow {
        protocol: SecurityProtocol::Tcp,
        family: Family::of(ip(destinations[0])),
        sources: sources.iter().map(|text| (*text).to_owned()).collect(),
        ports: ports.to_vec(),
        destinations: destinations.iter().map(|text| ip(text)).collect(),
    }
}

type Want = crate::network::Want<Part, Gone>;

/// A Service that asks for this and records the addresses as its own.
fn present(allows: Vec<Allow>, deny_all: &[&str]) -> Want {
    let destinations = allows.iter().flat_map(|allow| allow.destinations.clone()).collect();
    let deny_all = deny_all.iter().map(|text| ip(text)).collect();
    Want {
        present: Part { allow: allows, deny_all, ..Part::default() },
        gone: Gone { destinations, ..Gone::default() },
    }
}

/// A Service that had these addresses and is gone.
fn gone(number: u8, destinations: &[&str]) -> Want {
    let destinations = destinations.iter().map(|text| ip(text)).collect();
    Want {
        present: Part::default(),
        gone: Gone { destinations, base: Some(BaseName::of(&key(number))), ..Gone::default() },
    }
}

fn body(rules: &Value) -> Value {
    json!({ "name": "nsg", "location": "westeurope", "properties": { "securityRules": rules } })
}

fn read(body: &Value, env: &Env) -> SecurityGroup {
    SecurityGroup::read(&env.id, body).unwrap()
}

fn step(wants: &Wants, body: Value, env: &Env) -> (Plan<Edit>, Value) {
    let plan = plan(wants, Some(&read(&body, env)), env);
    let after = apply_raw(Some(body), &plan.edits, env).unwrap();
    (plan, after)
}

fn settle(wants: &Wants, mut body: Value, env: &Env) -> Value {
    for _ in 0..5 {
        let (plan, after) = step(wants, body, env);
        if plan.is_quiet() {
            return after;
        }
        body = after;
    }
    panic!("it does not converge");
}

fn rule<'a>(body: &'a Value, name: &str) -> &'a Value {
    let rules = body["properties"]["securityRules"].as_array().unwrap();
    let found = rules.iter().find(|rule| rule["name"] == name);
    found.map(|rule| &rule["properties"]).unwrap_or_else(|| panic!("{name} is not in {rules:?}"))
}

fn rule_names(body: &Value) -> BTreeSet<String> {
    let rules = body["properties"]["securityRules"].as_array().unwrap();
    rules.iter().map(|rule| rule["name"].as_str().unwrap().to_owned()).collect()
}

fn internet(port: u16) -> String {
    names::allow_rule(SecurityProtocol::Tcp, Family::V4, &["Internet".to_owned()], &[port])
}

#[test]
fn services_with_the_same_sources_and_ports_share_a_rule() {
    let env = env();
    let wants: Wants = [
        (key(1), present(vec![allow(&["Internet"], &[80], &["20.0.0.9"])], &[])),
        (key(2), present(vec![allow(&["Internet"], &[80], &["20.0.0.10"])], &[])),
    ]
    .into();
    let (_, after) = step(&wants, body(&json!([])), &env);
    assert_eq!(rule_names(&after), [internet(80)].into());
    assert_eq!(rule(&after, &internet(80))["destinationAddressPrefixes"], json!(["20.0.0.10", "20.0.0.9"]));
    assert_eq!(rule(&after, &internet(80)).get("destinationAddressPrefix"), None);
    // One of them goes: the singular again.
    let wants: Wants = [(key(1), wants[&key(1)].clone()), (key(2), gone(2, &["20.0.0.10"]))].into();
    let (plan, after) = step(&wants, after, &env);
    assert_eq!(plan.served[&key(2)], Served::Pending);
    assert_eq!(rule(&after, &internet(80))["destinationAddressPrefix"], json!("20.0.0.9"));
    assert_eq!(rule(&after, &internet(80)).get("destinationAddressPrefixes"), None);
    assert_eq!(step(&wants, after, &env).0.served[&key(2)], Served::Done(Found::default()));
}

#[test]
fn a_rule_goes_with_its_last_destination() {
    let env = env();
    let after = settle(
        &[(key(1), present(vec![allow(&["Internet"], &[80], &["20.0.0.9"])], &[]))].into(),
        body(&json!([])),
        &env,
    );
    let after = settle(&[(key(1), gone(1, &["20.0.0.9"]))].into(), after, &env);
    assert_eq!(rule_names(&after), BTreeSet::new());
}

#[test]
fn destinations_that_no_service_has_given_up_stay() {
    let env = env();
    let theirs = json!([{ "name": internet(80), "properties": {
        "priority": 500, "protocol": "Tcp", "access": "Allow", "direction": "Inbound", "sourceAddressPrefix": "Internet",
        "sourcePortRange": "*", "destinationAddressPrefix": "20.9.9.9", "destinationPortRanges": ["80"]
    }}]);
    let after = settle(&Wants::new(), body(&theirs), &env);
    assert_eq!(after, body(&theirs));
    // The Go manager drops every destination that it does not know; here another cluster's stay beside ours.
    let wants: Wants = [(key(1), present(vec![allow(&["Internet"], &[80], &["20.0.0.9"])], &[]))].into();
    let after = settle(&wants, after, &env);
    assert_eq!(rule(&after, &internet(80))["destinationAddressPrefixes"], json!(["20.0.0.9", "20.9.9.9"]));
    let after = settle(&[(key(1), gone(1, &["20.0.0.9"]))].into(), after, &env);
    assert_eq!(after, body(&theirs));
}

#[test]
fn ports_that_another_service_has_on_the_same_address_stay() {
    let env = env();
    let both = |ports: &[u16], address: &str| present(vec![allow(&["Internet"], ports, &[address])], &[]);
    let wants: Wants = [(key(1), both(&[80], "20.0.0.9")), (key(2), both(&[443], "20.0.0.9"))].into();
    let after = settle(&wants, body(&json!([])), &env);
    let wants: Wants = [(key(1), gone(1, &["20.0.0.9"])), (key(2), both(&[443], "20.0.0.9"))].into();
    assert_eq!(rule_names(&settle(&wants, after, &env)), [internet(443)].into());
}

#[test]
fn a_service_that_leaves_an_address_to_others_takes_its_own_ports_and_no_more() {
    let env = env();
    let on = |ports: &[u16]| present(vec![allow(&["Internet"], ports, &["20.0.0.9"])], &["20.0.0.9"]);
    let body = settle(&[(key(1), on(&[80])), (key(2), on(&[443]))].into(), body(&json!([])), &env);
    // The other Service is not known to this process yet.
    let shared = [(ip("20.0.0.9"), [(SecurityProtocol::Tcp, 80)].into())].into();
    let gone = Gone { shared, base: Some(BaseName::of(&key(1))), ..Gone::default() };
    let wants: Wants = [(key(1), Want { present: Part::default(), gone })].into();
    assert_eq!(step(&wants, body.clone(), &env).0.served[&key(1)], Served::Pending);
    let after = settle(&wants, body, &env);
    assert_eq!(rule_names(&after), [internet(443), names::deny_all_rule(Family::V4)].into());
    assert_eq!(step(&wants, after.clone(), &env).0.served[&key(1)], Served::Done(Found::default()));
    // Once the other is known and asks for no denial, or has left too, the denial goes.
    let mut known = wants.clone();
    known.insert(
        key(2),
        Want { gone: Gone::default(), ..present(vec![allow(&["Internet"], &[443], &["20.0.0.9"])], &[]) },
    );
    assert_eq!(rule_names(&settle(&known, after.clone(), &env)), [internet(443)].into());
    let shared = [(ip("20.0.0.9"), [(SecurityProtocol::Tcp, 443)].into())].into();
    known.insert(key(2), Want { present: Part::default(), gone: Gone { shared, ..Gone::default() } });
    assert_eq!(rule_names(&settle(&known, after, &env)), BTreeSet::new());
}

/// A rule as Go 1.30 wrote it. Derived from that manager's naming, not recorded.
fn go_1_30(sources: &[&str], destination: &str) -> Value {
    let sources: Vec<String> = sources.iter().map(|text| (*text).to_owned()).collect();
    json!({ "name": names::allow_rule(SecurityProtocol::Tcp, Family::V4, &sources, &[80]), "properties": {
        "priority": 500, "protocol": "Tcp", "access": "Allow", "direction": "Inbound", "sourceAddressPrefixes": sources,
        "sourcePortRange": "*", "destinationAddressPrefix": destination, "destinationPortRanges": ["80"]
    }})
}

#[test]
fn a_rule_that_allows_exactly_what_is_asked_counts_as_present_under_any_hash() {
    let env = env();
    let spelled = ["10.1.0.0/16", "10.0.0.0/16", "192.168.1.0/24"];
    let wants = |sources: &[&str], to: &str, deny: &[&str]| -> Wants {
        [(key(1), present(vec![allow(sources, &[80], &[to])], deny))].into()
    };
    let body = |rule: Value| body(&json!([rule]));
    let quiet = |wants: &Wants, rule: Value| {
        let plan = step(wants, body(rule), &env).0;
        plan.is_quiet() && plan.served[&key(1)] == Served::Done(Found::default())
    };
    let aggregated = ["10.0.0.0/15", "192.168.1.0/24"];
    let asked = wants(&aggregated, "20.0.0.9", &[]);
    assert!(quiet(&asked, go_1_30(&spelled, "20.0.0.9")));
    assert!(!quiet(&asked, go_1_30(&spelled[1..], "20.0.0.9")), "it allows less");
    assert!(!quiet(&asked, go_1_30(&["10.0.0.0/8", "192.168.1.0/24"], "20.0.0.9")), "it allows more");
    // When the Service asks for something else, or is gone, the rule goes.
    let changed = wants(&["10.0.0.0/15"], "20.0.0.9", &[]);
    let after = settle(&changed, body(go_1_30(&spelled, "20.0.0.9")), &env);
    assert_eq!(rule_names(&after).len(), 1);
    assert_eq!(rule(&after, rule_names(&after).first().unwrap())["sourceAddressPrefix"], "10.0.0.0/15");
    let left = settle(&[(key(1), gone(1, &["20.0.0.9"]))].into(), body(go_1_30(&spelled, "20.0.0.9")), &env);
    assert_eq!(rule_names(&left), BTreeSet::new());

    // Go 1.30 allowed `Internet` at the private address of a Service that allows every address.
    assert!(quiet(&wants(&["0.0.0.0/0"], "10.240.0.6", &[]), go_1_30(&["Internet"], "10.240.0.6")));
    assert!(!quiet(&wants(&["0.0.0.0/0"], "20.0.0.9", &[]), go_1_30(&["Internet"], "20.0.0.9")));
    assert!(!quiet(&wants(&["0.0.0.0/0"], "10.240.0.6", &["10.240.0.6"]), go_1_30(&["Internet"], "10.240.0.6")));
}

#[test]
fn ports_of_a_service_without_a_valid_specification_stay() {
    let mut env = env();
    let both = |ports: &[u16]| present(vec![allow(&["Internet"], ports, &["20.0.0.9"])], &["20.0.0.9"]);
    let after = settle(&[(key(1), both(&[80])), (key(2), both(&[443]))].into(), body(&json!([])), &env);
    env.keep = [(ip("20.0.0.9"), [(SecurityProtocol::Tcp, 443)].into())].into();
    let after = settle(&[(key(1), gone(1, &["20.0.0.9"]))].into(), after, &env);
    assert_eq!(rule_names(&after), [internet(443), names::deny_all_rule(Family::V4)].into());
}

#[test]
fn allow_rules_take_priorities_from_500_up_and_deny_rules_from_4095_down() {
    let env = env();
    let taken = json!([
        { "name": "mine", "properties": { "priority": 500, "direction": "Outbound", "destinationAddressPrefix": "*" } },
        { "name": "too", "properties": { "priority": 4095, "direction": "Inbound", "destinationAddressPrefix": "*" } },
    ]);
    let wants: Wants = [
        (key(1), present(vec![allow(&["Internet"], &[80], &["20.0.0.9"])], &[])),
        (
            key(2),
            present(
                vec![allow(&["10.0.0.0/8"], &[80], &["20.0.0.10"]), allow(&["fd00::/8"], &[80], &["2001:db8::9"])],
                &["20.0.0.10", "2001:db8::9"],
            ),
        ),
    ]
    .into();
    let (plan, after) = step(&wants, body(&taken), &env);
    let priority = |name: &str| rule(&after, name)["priority"].as_u64().unwrap();
    assert_eq!(priority(&internet(80)), 501);
    assert_eq!(priority(&names::deny_all_rule(Family::V4)), 4094);
    assert_eq!(priority(&names::deny_all_rule(Family::V6)), 4093);
    // Deny rules are there before the rules that they limit.
    let denies =
        plan.edits.iter().map(|edit| matches!(edit, Edit::PutRule(rule) if !rule.is_allow)).collect::<Vec<_>>();
    assert_eq!(denies, [true, true, false, false, false]);
    assert_eq!(
        rule(&after, &names::deny_all_rule(Family::V4)),
        &json!({
            "priority": 4094, "protocol": "*", "access": "Deny", "direction": "Inbound", "sourceAddressPrefix": "*",
            "sourcePortRange": "*", "destinationAddressPrefix": "20.0.0.10", "destinationPortRange": "*",
        })
    );
}

#[test]
fn rules_of_users_are_left_alone_also_when_they_name_our_addresses() {
    let env = env();
    let users = json!([{ "name": "ssh", "etag": "x", "properties": {
        "priority": 600, "protocol": "Tcp", "access": "Allow", "direction": "Inbound", "sourceAddressPrefix": "*",
        "sourcePortRange": "*", "destinationAddressPrefixes": ["20.0.0.9"], "destinationPortRange": "22"
    }}]);
    let wants: Wants = [(key(1), gone(1, &["20.0.0.9"]))].into();
    assert_eq!(settle(&wants, body(&users), &env), body(&users));
}

#[test]
fn a_rule_that_another_writer_changed_is_put_right() {
    let env = env();
    let wants: Wants = [(key(1), present(vec![allow(&["10.0.0.0/8"], &[80], &["20.0.0.9"])], &[]))].into();
    let after = settle(&wants, body(&json!([])), &env);
    let mut changed = after.clone();
    let properties = &mut changed["properties"]["securityRules"][0]["properties"];
    properties["sourceAddressPrefix"] = json!("*");
    properties["access"] = json!("Deny");
    assert_eq!(settle(&wants, changed, &env), after);
}

#[test]
fn rules_with_names_from_before_1_30_count_as_present_and_end_with_their_service() {
    let env = env();
    let base = BaseName::of(&key(1));
    let old = |name: String, priority: u16, destinations: &[&str]| {
        json!({ "name": name, "properties": {
            "priority": priority, "protocol": "TCP", "access": "Allow", "direction": "Inbound",
            "sourceAddressPrefix": "internet", "sourcePortRange": "*", "destinationPortRange": "80",
            "destinationAddressPrefixes": destinations
        }})
    };
    let rules = json!([
        old(format!("{base}-TCP-80-Internet"), 500, &["20.0.0.9"]),
        old("shared-TCP-80-Internet".to_owned(), 501, &["20.0.0.10", "20.9.9.9"]),
    ]);
    let wants: Wants = [
        (key(1), present(vec![allow(&["Internet"], &[80], &["20.0.0.9"])], &[])),
        (key(2), present(vec![allow(&["Internet"], &[80], &["20.0.0.10"])], &[])),
    ]
    .into();
    let (plan, _) = step(&wants, body(&rules), &env);
    assert!(plan.is_quiet());
    assert!(plan.served.values().all(|state| matches!(state, Served::Done(_))));
    let wants: Wants = [(key(1), gone(1, &["20.0.0.9"])), (key(2), gone(2, &["20.0.0.10"]))].into();
    let after = settle(&wants, body(&rules), &env);
    assert_eq!(rule_names(&after), ["shared-TCP-80-Internet".to_owned()].into());
    assert_eq!(rule(&after, "shared-TCP-80-Internet")["destinationAddressPrefix"], json!("20.9.9.9"));
    // A rule of a Service that is not known stays, though its address is ours now.
    let wants: Wants = [(key(3), gone(3, &["20.0.0.9"]))].into();
    assert!(step(&wants, body(&rules), &env).0.is_quiet());
}

#[test]
fn limits_of_azure_refuse_the_newcomer_in_a_sentence() {
    let env = env();
    let full: Vec<Value> = (0..999)
        .map(|number| {
            json!({ "name": format!("r{number}"), "properties": {
                "priority": 100 + number, "direction": "Inbound", "destinationAddressPrefix": "*", "sourceAddressPrefix": "*"
            }})
        })
        .collect();
    let one = present(vec![allow(&["Internet"], &[80], &["20.0.0.9"])], &[]);
    let two = present(vec![allow(&["Internet"], &[443], &["20.0.0.10"])], &[]);
    let after = settle(&[(key(2), two.clone())].into(), body(&json!(full)), &env);
    let (plan, _) = step(&[(key(1), one), (key(2), two)].into(), after, &env);
    assert!(plan.is_quiet());
    assert_eq!(
        plan.served[&key(1)],
        Served::Refused(Refusal::new(
            RefusalReason::LimitExceeded,
            "security group nsg would have 1001 rules with this Service; Azure allows 1000. Remove Services or use wider ranges"
        ))
    );
    assert!(matches!(plan.served[&key(2)], Served::Done(_)));
    let many: Vec<String> = (0..4_001_u32).map(|number| IpAddr::from(number.to_be_bytes()).to_string()).collect();
    let nodes: Vec<&str> = many.iter().map(String::as_str).collect();
    let (plan, _) =
        step(&[(key(1), present(vec![allow(&["Internet"], &[80], &nodes)], &[]))].into(), body(&json!([])), &env);
    let Served::Refused(refusal) = &plan.served[&key(1)] else { panic!("{plan:?}") };
    assert!(refusal.message.contains("4001 destination prefixes"), "{refusal}");
}

#[test]
fn without_a_security_group_a_service_is_refused_and_a_gone_one_is_done() {
    let env = env();
    let wants: Wants = [
        (key(1), present(vec![allow(&["Internet"], &[80], &["20.0.0.9"])], &[])),
        (key(2), gone(2, &["20.0.0.10"])),
        (key(3), present(vec![], &[])),
    ]
    .into();
    let plan = plan(&wants, None, &env);
    let Served::Refused(refusal) = &plan.served[&key(1)] else { panic!("{plan:?}") };
    assert_eq!(refusal.reason, RefusalReason::NotFound);
    assert_eq!(plan.served[&key(2)], Served::Done(Found::default()));
    assert_eq!(plan.served[&key(3)], Served::Done(Found::default()));
}
