//! The planner of route tables, case by case.

mod laws;
mod ranges;

use lazuli_engine::object::{Object, Served};
use serde_json::{Value, json};

use super::*;

const TABLE: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/routeTables/rt";
const SUBNET: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/nodes";

fn id(text: &str) -> ArmId {
    text.parse().unwrap()
}

fn env() -> Env {
    let cluster_ranges = vec!["10.244.0.0/16".parse().unwrap(), "fd00:10:244::/48".parse().unwrap()];
    Env {
        id: id(TABLE),
        location: "westeurope".to_owned(),
        tags: TagPolicy::default(),
        cluster_ranges,
        reserved: vec![],
    }
}

fn pod(range: &str, next_hop: Option<&str>) -> PodRange {
    let (text, next_hop) = (range.to_owned(), next_hop.map(|hop| hop.parse().unwrap()));
    PodRange { text, range: range.parse().unwrap(), next_hop, created: String::new() }
}

fn wants(all: &[(&str, Want)]) -> Wants {
    all.iter().map(|(node, want)| ((*node).to_owned(), want.clone())).collect()
}

fn route(name: &str, range: &str, hop: &str) -> Value {
    json!({"name": name, "etag": "W/\"1\"", "properties": {
        "addressPrefix": range, "nextHopType": "VirtualAppliance", "nextHopIpAddress": hop, "hasBgpOverride": false}})
}

fn table(routes: &Value) -> Value {
    json!({"id": TABLE, "location": "westeurope", "futureField": {"x": 1}, "properties": {
        "provisioningState": "Succeeded", "disableBgpRoutePropagation": true, "routes": routes,
        "subnets": [{"id": SUBNET}]}})
}

fn read(body: &Value) -> RouteTable {
    RouteTable::read(&id(TABLE), body).unwrap()
}

fn planned(wants: &Wants, body: Option<&Value>) -> Plan {
    plan(wants, body.map(read).as_ref(), &env())
}

fn names_of(body: &Value) -> Vec<&str> {
    body["properties"]["routes"].as_array().unwrap().iter().map(|route| route["name"].as_str().unwrap()).collect()
}

#[test]
fn a_table_is_made_for_its_first_route_and_not_before() {
    let none = wants(&[("a", Want::Present(vec![])), ("b", Want::Gone(BTreeSet::new()))]);
    assert_eq!(planned(&none, None).edits, []);
    let both = wants(&[(
        "node-1",
        Want::Present(vec![pod("10.244.1.0/24", Some("10.0.0.5")), pod("fd00:10:244:1::/64", Some("fd01::5"))]),
    )]);
    let plan = planned(&both, None);
    let body = apply_raw(None, &plan.edits, &env()).unwrap();
    assert_eq!(body["location"], "westeurope");
    assert_eq!(names_of(&body), ["node-1____102441024", "node-1____fd0010244164"]);
    assert_eq!(body["properties"]["routes"][1]["properties"]["addressPrefix"], "fd00:10:244:1::/64");
    assert_eq!(body["properties"]["routes"][1]["properties"]["nextHopType"], "VirtualAppliance");
    assert_eq!(planned(&both, Some(&body)).edits, []);
}

#[test]
fn a_route_of_another_name_that_does_the_same_is_present() {
    let want = wants(&[("node-1", Want::Present(vec![pod("10.244.1.0/24", Some("10.0.0.5"))]))]);
    for name in ["node-1", "NODE-1____102441024", "by-hand"] {
        let plan = planned(&want, Some(&table(&json!([route(name, "10.244.1.0/24", "10.0.0.5")]))));
        assert_eq!((plan.edits, &plan.served["node-1"]), (vec![], &plan::Served::Done), "{name}");
    }
}

#[test]
fn a_route_of_the_node_is_led_elsewhere_and_another_ones_is_not() {
    let want = wants(&[("node-1", Want::Present(vec![pod("10.244.1.0/24", Some("10.0.0.6"))]))]);
    let next_hop = "10.0.0.6".parse().unwrap();
    for name in ["node-1", "node-1____102441024"] {
        let plan = planned(&want, Some(&table(&json!([route(name, "10.244.1.0/24", "10.0.0.5")]))));
        let put = Edit::PutRoute { name: name.to_owned(), range: "10.244.1.0/24".parse().unwrap(), next_hop };
        assert_eq!(plan.edits, [put]);
    }
    let plan = planned(&want, Some(&table(&json!([route("appliance", "10.244.1.0/24", "10.0.0.5")]))));
    assert_eq!(plan.edits, []);
    assert!(matches!(&plan.served["node-1"], plan::Served::Refused(why) if why.message.contains("appliance")));
}

#[test]
fn deletion_is_by_exact_name_and_only_of_what_the_cluster_routes() {
    let body = table(&json!([
        route("agent-1____102441024", "10.244.1.0/24", "10.0.0.5"),
        route("agent-1", "10.244.9.0/24", "10.0.0.5"),
        route("agent-10____1024410024", "10.244.10.0/24", "10.0.0.6"),
        route("agent-1____192168024", "192.168.0.0/24", "10.0.0.5"),
        route("unknown____102443024", "10.244.3.0/24", "10.0.0.7"),
    ]));
    let gone = wants(&[("agent-1", Want::Gone(["10.244.1.0/24".parse().unwrap()].into()))]);
    assert_eq!(planned(&gone, Some(&body)).edits, [Edit::RemoveRoute("agent-1____102441024".to_owned())]);
    let legacy = wants(&[("agent-1", Want::Gone(["10.244.9.0/24".parse().unwrap()].into()))]);
    assert_eq!(planned(&legacy, Some(&body)).edits.len(), 2);
}

#[test]
fn a_node_of_the_same_name_loses_the_routes_of_the_one_before_and_a_range_moves_in_one_write() {
    let body = table(&json!([
        route("old____102441024", "10.244.1.0/24", "10.0.0.5"),
        route("same____102442024", "10.244.2.0/24", "10.0.0.6"),
    ]));
    let moved = wants(&[
        ("old", Want::Gone(BTreeSet::new())),
        ("same", Want::Present(vec![pod("10.244.1.0/24", Some("10.0.0.7"))])),
    ]);
    let plan = planned(&moved, Some(&body));
    let after = apply_raw(Some(body), &plan.edits, &env()).unwrap();
    assert_eq!(names_of(&after), ["same____102441024"]);
    // A Node that has no range yet says nothing of the routes that bear its name.
    let unknown = wants(&[("same", Want::Present(vec![]))]);
    assert_eq!(planned(&unknown, Some(&after)).edits, []);
}

#[test]
fn a_range_without_an_address_waits_and_the_other_family_does_not() {
    let want = wants(&[(
        "node-1",
        Want::Present(vec![pod("10.244.1.0/24", Some("10.0.0.5")), pod("fd00:10:244:1::/64", None)]),
    )]);
    let plan = planned(&want, None);
    let body = apply_raw(None, &plan.edits, &env()).unwrap();
    assert_eq!(names_of(&body), ["node-1____102441024"]);
    let again = planned(&want, Some(&body));
    assert!(again.edits.is_empty());
    assert!(matches!(&again.served["node-1"], plan::Served::Waiting(what) if what.contains("IPv6")));
}

#[test]
fn a_full_table_refuses_the_node_by_name_and_a_shared_range_the_second_node() {
    let many: Vec<Value> = (0..400)
        .map(|at| route(&format!("r{at}"), &format!("172.16.{}.{}/32", at / 200, at % 200), "10.9.9.9"))
        .collect();
    let want = wants(&[("node-1", Want::Present(vec![pod("10.244.1.0/24", Some("10.0.0.5"))]))]);
    let plan = planned(&want, Some(&table(&json!(many))));
    assert_eq!(plan.edits, []);
    assert!(matches!(&plan.served["node-1"], plan::Served::Refused(why) if why.reason == "RouteTableFull"));

    let range = |hop| Want::Present(vec![pod("10.244.1.0/24", Some(hop))]);
    let plan = planned(&wants(&[("a", range("10.0.0.5")), ("b", range("10.0.0.6"))]), None);
    assert!(matches!(&plan.served["b"], plan::Served::Refused(_)));
    assert_eq!(plan.edits.len(), 2);
}

#[test]
fn a_subnet_without_a_table_gets_ours_and_one_with_another_keeps_it() {
    let body = json!({"name": "nodes", "properties": {"addressPrefix": "10.0.0.0/16", "delegations": [{"name": "d"}]}});
    let want = BTreeMap::from([(id(TABLE), ())]);
    let read = |body: &Value| AssociatedSubnet::read(&id(SUBNET), body).unwrap();
    let plan = SubnetAssociations::plan(&want, Some(&read(&body)), &());
    let after = associate(body.clone(), &plan.write.unwrap().op);
    let mut expected = body;
    expected["properties"]["routeTable"] = json!({"id": TABLE});
    assert_eq!(after, expected);
    let again = SubnetAssociations::plan(&want, Some(&read(&after)), &());
    assert_eq!((again.write, &again.served[&id(TABLE)]), (None, &Served::Met(())));
    expected["properties"]["routeTable"] = json!({"id": TABLE.replace("rt", "other")});
    let other = SubnetAssociations::plan(&want, Some(&read(&expected)), &());
    assert!(other.write.is_none() && matches!(&other.served[&id(TABLE)], Served::Refused(_)));
    let absent = SubnetAssociations::plan(&want, None, &());
    assert!(matches!(&absent.served[&id(TABLE)], Served::Refused(_)));
}
