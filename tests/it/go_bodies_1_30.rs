//! Taking over from the Go cloud controller manager 1.30.
//!
//! These bodies are derived, not recorded: from what 1.35 left behind in the recordings of `go_bodies`, and from how the two
//! managers name security rules. 1.30 named a rule by the ranges as the Service spells them, where 1.35 aggregates them, and
//! wrote the service tag `Internet` for `0.0.0.0/0`.

use std::collections::BTreeSet;

use lazuli_model::address::Family;
use lazuli_services::{
    ask::{SecurityProtocol, names},
    service::{Existing, parse},
};
use serde_json::json;

use super::go_bodies::{World, documents, recordings, service, settings, text, texts};

/// The writes of a process that takes over what 1.30 left of a recorded Service: its allow rule had these sources.
fn writes_at_take_over(case: &str, sources: &[&str]) -> BTreeSet<String> {
    let recordings = recordings();
    let recording = recordings.iter().find(|recording| recording["name"] == "node-ip").unwrap();
    let cases = recording["cases"].as_array().unwrap();
    let steps = &cases.iter().find(|recorded| recorded["name"] == case).unwrap()["steps"];
    let settings = settings(&recording["settings"]);
    let mut world = World::new(&settings);
    world.documents = documents(&steps[0]["before"]);
    let object = service(&steps[0]["service"], vec![]);
    let ask = parse(&object, &settings, &Existing::default()).unwrap();
    let ingress = texts(&steps[0]["ingress"]).iter().map(|address| address.parse().unwrap()).collect();
    assert_eq!(world.step(&object.key, Some((ask, ingress))), Vec::<String>::new());

    world.documents = documents(&steps[1]["before"]);
    assert_eq!(world.take_over(), BTreeSet::new(), "what 1.35 left");
    let sources: Vec<String> = sources.iter().map(|source| (*source).to_owned()).collect();
    let group = world.documents.iter_mut().find(|(id, _)| id.contains("/networksecuritygroups/")).unwrap().1;
    for rule in group["properties"]["securityRules"].as_array_mut().unwrap() {
        rule["name"] = json!(names::allow_rule(SecurityProtocol::Tcp, Family::V4, &sources, &[80]));
        rule["id"] = json!(format!("{}/{}", text(&rule["id"]), text(&rule["name"])));
        let properties = rule["properties"].as_object_mut().unwrap();
        properties.retain(|key, _| !key.starts_with("sourceAddressPrefix"));
        properties.insert("sourceAddressPrefixes".to_owned(), json!(sources));
        assert_eq!(properties["destinationPortRanges"], json!(["80"]));
    }
    world.take_over()
}

#[test]
fn rules_that_go_1_30_named_by_ranges_as_they_are_spelled_are_adopted() {
    let spelled = ["10.0.0.0/16", "10.1.0.0/16", "192.168.1.0/24"];
    assert_eq!(writes_at_take_over("IP ranges", &spelled), BTreeSet::new());
    assert_eq!(writes_at_take_over("internal with ranges", &["Internet"]), BTreeSet::new());
}

#[test]
fn a_rule_that_allows_something_else_is_no_rule_of_the_service() {
    let writes = writes_at_take_over("IP ranges", &["10.0.0.0/16"]);
    assert!(writes.len() == 1 && writes.iter().all(|id| id.contains("/networksecuritygroups/")), "{writes:?}");
}
