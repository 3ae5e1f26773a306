use lazuli_model::ServiceKey;
use proptest::prelude::*;

use super::*;
use crate::{
    ask::selector::LabelSelector,
    network::settings::PoolKind,
    service::{
        Existing,
        fixtures::{annotated, service, settings},
        parse,
    },
};

fn configuration(name: &str) -> LoadBalancerConfiguration {
    LoadBalancerConfiguration {
        name: name.to_owned(),
        primary_vm_set: format!("{name}-set"),
        allow_placement: true,
        service_labels: None,
        namespace_labels: None,
        node_labels: None,
    }
}

fn several() -> Settings {
    Settings {
        configurations: ["kubernetes", "lb1", "lb2"].map(configuration).into(),
        pool_kind: PoolKind::NodeIp,
        ..settings()
    }
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn selector(pairs: &[(&str, &str)]) -> Option<LabelSelector> {
    Some(LabelSelector { labels: labels(pairs), expressions: vec![] })
}

/// A load balancer with frontends and rules of these names.
fn balancer(settings: &Settings, name: &str, frontends: &[&str], rules: usize) -> LoadBalancer {
    let id = settings.load_balancer_id(name).unwrap();
    let frontends: Vec<_> =
        frontends.iter().map(|name| serde_json::json!({ "name": name, "properties": {} })).collect();
    let rules: Vec<_> =
        (0..rules).map(|number| serde_json::json!({ "name": format!("r{number}"), "properties": {} })).collect();
    let body = serde_json::json!({ "sku": { "name": "Standard" }, "properties": {
        "frontendIPConfigurations": frontends, "loadBalancingRules": rules } });
    LoadBalancer::read(&id, &body).unwrap()
}

fn placed(object: &ServiceObject, settings: &Settings, all: &[LoadBalancer], sets: &[&str]) -> Result<String, String> {
    let ask = parse(object, settings, &Existing::default()).unwrap();
    let balancers: Vec<Balancer> =
        all.iter().map(|actual| Balancer { name: actual.id.name(), actual: Some(actual), planned_rules: 0 }).collect();
    let vm_sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
    let around = Surroundings { balancers: &balancers, vm_sets: &vm_sets, public_ip_user: None };
    place(&ask, object, settings, &around).map_err(|refusal| refusal.message)
}

fn base() -> String {
    names::BaseName::of(&service().key).to_string()
}

#[test]
fn one_standard_load_balancer_a_side_serves_all() {
    let mut settings = settings();
    assert_eq!(placed(&service(), &settings, &[], &[]), Ok("kubernetes".to_owned()));
    let internal = annotated(&[("azure-load-balancer-internal", "true")]);
    settings.load_balancer_name = Some("own".to_owned());
    assert_eq!(placed(&internal, &settings, &[], &[]), Ok("own-internal".to_owned()));
}

#[test]
fn among_several_the_one_with_the_fewest_rules_is_taken() {
    let settings = several();
    // Existing ones without rules come first, then those that do not exist, then the fewest rules.
    let lb = |name: &str, rules| balancer(&settings, name, &[], rules);
    assert_eq!(placed(&service(), &settings, &[lb("kubernetes", 0)], &[]), Ok("kubernetes".to_owned()));
    assert_eq!(placed(&service(), &settings, &[lb("kubernetes", 2), lb("lb2", 0)], &[]), Ok("lb2".to_owned()));
    assert_eq!(placed(&service(), &settings, &[lb("kubernetes", 2)], &[]), Ok("lb1".to_owned()));
    let all = [lb("kubernetes", 3), lb("lb1", 2), lb("lb2", 1)];
    assert_eq!(placed(&service(), &settings, &all, &[]), Ok("lb2".to_owned()));
    let named = annotated(&[("azure-load-balancer-configurations", "LB1,kubernetes")]);
    assert_eq!(placed(&named, &settings, &all, &[]), Ok("lb1".to_owned()));
}

#[test]
fn a_burst_spreads_since_planned_rules_count() {
    let settings = several();
    let mut rules = BTreeMap::from([("kubernetes", 0), ("lb1", 0), ("lb2", 0)]);
    for number in 0..9 {
        let object = ServiceObject { key: ServiceKey::new("n", "s", format!("{number}")), ..service() };
        let ask = parse(&object, &settings, &Existing::default()).unwrap();
        let balancers: Vec<Balancer> =
            rules.iter().map(|(name, rules)| Balancer { name, actual: None, planned_rules: *rules }).collect();
        let around = Surroundings { balancers: &balancers, vm_sets: &[], public_ip_user: None };
        let name = place(&ask, &object, &settings, &around).unwrap();
        *rules.get_mut(name.as_str()).unwrap() += 1;
    }
    assert_eq!(rules.into_values().collect::<Vec<_>>(), [3, 3, 3]);
}

#[test]
fn a_service_stays_where_it_is_while_it_may() {
    let mut settings = several();
    let all = [balancer(&settings, "kubernetes", &[], 0), balancer(&settings, "lb2", &[&base()], 5)];
    assert_eq!(placed(&service(), &settings, &all, &[]), Ok("lb2".to_owned()));
    // Also on one that takes no further Services.
    settings.configurations[2].allow_placement = false;
    assert_eq!(placed(&service(), &settings, &all, &[]), Ok("lb2".to_owned()));
    assert_eq!(placed(&service(), &settings, &all[..1], &[]), Ok("kubernetes".to_owned()));
    settings.configurations[2].service_labels = selector(&[("app", "db")]);
    assert_eq!(placed(&service(), &settings, &all, &[]), Ok("kubernetes".to_owned()));
}

#[test]
fn selectors_choose_and_exclude() {
    let mut settings = several();
    settings.configurations[1].service_labels = selector(&[("app", "web")]);
    settings.configurations[2].namespace_labels = selector(&[("team", "x")]);
    let web = ServiceObject { labels: labels(&[("app", "web")]), ..service() };
    assert_eq!(placed(&web, &settings, &[], &[]), Ok("lb1".to_owned()));
    let team = ServiceObject { namespace_labels: labels(&[("team", "x")]), ..service() };
    assert_eq!(placed(&team, &settings, &[], &[]), Ok("lb2".to_owned()));
    assert_eq!(placed(&service(), &settings, &[], &[]), Ok("kubernetes".to_owned()));
    settings.configurations[0].allow_placement = false;
    assert_eq!(
        placed(&service(), &settings, &[], &[]),
        Err("no load balancer fits the Service: kubernetes takes no further Services; the labels of the Service do not fit \
             lb1; the labels of its namespace do not fit lb2"
            .to_owned())
    );
    let unknown = annotated(&[("azure-load-balancer-configurations", "lb9")]);
    assert_eq!(
        placed(&unknown, &settings, &[], &[]),
        Err("no load balancer configuration is called lb9; allowed in annotation \
             service.beta.kubernetes.io/azure-load-balancer-configurations are kubernetes, lb1, lb2"
            .to_owned())
    );
}

#[test]
fn a_named_address_decides_the_load_balancer() {
    let mut settings = several();
    let object = annotated(&[("azure-pip-name", "mine")]);
    let ask = parse(&object, &settings, &Existing::default()).unwrap();
    let frontend = LoadBalancer::frontend_id(&settings.load_balancer_id("lb2").unwrap(), "a");
    let around = Surroundings { balancers: &[], vm_sets: &[], public_ip_user: Some(&frontend) };
    assert_eq!(place(&ask, &object, &settings, &around), Ok("lb2".to_owned()));
    settings.configurations[2].allow_placement = false;
    let refused = place(&ask, &object, &settings, &around).unwrap_err();
    assert_eq!(
        refused.message,
        "the address that the Service names is on load balancer lb2, where it may not be placed; allowed are kubernetes, lb1"
    );
}

#[test]
fn basic_load_balancers_follow_the_mode() {
    let mut settings = settings();
    settings.sku = LoadBalancerSku::Basic;
    let sets = ["agents", "blue", "green"];
    let mode = |value: &str| annotated(&[("azure-load-balancer-mode", value)]);
    let lb = |name: &str, rules| balancer(&settings, name, &[], rules);
    let all = [lb("kubernetes", 5), lb("blue", 2), lb("green", 3)];
    assert_eq!(placed(&service(), &settings, &all, &sets), Ok("kubernetes".to_owned()));
    assert_eq!(placed(&mode("__auto__"), &settings, &all, &sets), Ok("blue".to_owned()));
    assert_eq!(placed(&mode("__AUTO__"), &settings, &all[..2], &sets), Ok("green".to_owned()));
    assert_eq!(placed(&mode("green,agents"), &settings, &all, &sets), Ok("green".to_owned()));
    // Where it is, while the mode allows.
    let on_blue = [lb("kubernetes", 0), balancer(&settings, "blue", &[&base()], 9)];
    assert_eq!(placed(&mode("__auto__"), &settings, &on_blue, &sets), Ok("blue".to_owned()));
    assert_eq!(placed(&mode("agents"), &settings, &on_blue, &sets), Ok("kubernetes".to_owned()));
    assert_eq!(placed(&service(), &settings, &on_blue, &sets), Ok("blue".to_owned()));
    assert_eq!(
        placed(&mode("red"), &settings, &all, &sets),
        Err("availability set red of annotation service.beta.kubernetes.io/azure-load-balancer-mode has no node; allowed are \
             __auto__ and agents, blue, green"
            .to_owned())
    );
    settings.maximum_rules = 2;
    assert_eq!(
        placed(&mode("__auto__"), &settings, &all, &sets),
        Err("every load balancer that the Service may use has 2 rules or more; remove Services".to_owned())
    );
}

fn node(name: &str, vm_set: &str, pairs: &[(&str, &str)], current: Option<&str>) -> NodePlace {
    NodePlace {
        name: name.to_owned(),
        vm_set: vm_set.to_owned(),
        labels: labels(pairs),
        current: current.map(str::to_owned),
    }
}

#[test]
fn nodes_go_by_primary_set_then_selector_then_the_fewest() {
    let mut settings = several();
    settings.configurations[1].node_labels = selector(&[("pool", "gpu")]);
    let in_use = ["kubernetes", "lb1", "lb2"].map(str::to_owned).into();
    let nodes = [
        node("a", "LB2-set", &[("pool", "gpu")], None),
        node("b", "other", &[("pool", "gpu")], Some("kubernetes")),
        node("c", "other", &[], None),
        node("d", "other", &[], None),
        node("e", "other", &[], Some("lb2")),
    ];
    let places = place_nodes(&nodes, &settings, &in_use);
    let of = |name: &str| places.nodes.get(name).map(|nodes| nodes.iter().cloned().collect::<String>());
    assert_eq!((of("lb2"), of("lb1"), of("kubernetes")), (Some("ae".into()), Some("b".into()), Some("cd".into())));
    // A configuration without a load balancer takes no node.
    let places = place_nodes(&nodes, &settings, &["lb1".to_owned()].into());
    assert_eq!(places.homeless, ["a", "c", "d", "e"].iter().filter(|n| **n != "a").map(|n| (*n).to_owned()).collect());
}

/// A random Node: its set, its label, and where it is.
fn any_node() -> impl Strategy<Value = (u8, u8, Option<u8>)> {
    (0_u8..5, 0_u8..3, proptest::option::of(0_u8..3))
}

proptest! {
    #[test]
    fn nodes_go_where_the_fewest_are_and_none_leaves_for_balance_alone(
        nodes in proptest::collection::vec(any_node(), 0..12),
        in_use in proptest::collection::btree_set(0_usize..3, 0..4),
        claims in proptest::collection::vec(proptest::option::of(0_u8..3), 3),
    ) {
        let mut settings = several();
        for (there, claim) in settings.configurations.iter_mut().zip(&claims) {
            there.node_labels = claim.and_then(|pool| selector(&[("pool", &pool.to_string())]));
        }
        let names: Vec<String> = settings.configurations.iter().map(|there| there.name.clone()).collect();
        let used: BTreeSet<String> = in_use.iter().map(|at| names[*at].clone()).collect();
        let places: Vec<NodePlace> = (0..)
            .zip(&nodes)
            .map(|(number, (set, pool, current)): (u8, _)| {
                // Set 3 and 4 are the primary set of none.
                let set = settings.configurations.get(usize::from(*set)).map_or("other", |there| there.primary_vm_set.as_str());
                let current = current.map(|at| names[usize::from(at)].as_str());
                node(&format!("node-{number:02}"), set, &[("pool", &pool.to_string())], current)
            })
            .collect();
        let placed = place_nodes(&places, &settings, &used);
        let reversed: Vec<NodePlace> = places.iter().rev().cloned().collect();
        prop_assert_eq!(&placed, &place_nodes(&reversed, &settings, &used), "order does not matter");
        let place_of = |name: &str| {
            placed.nodes.iter().find(|(_, nodes)| nodes.contains(name)).map(|(balancer, _)| balancer.clone())
        };
        // What may take a Node, by an oracle of its own.
        let eligible = |node: &NodePlace| -> Vec<String> {
            let of = |is: &dyn Fn(&LoadBalancerConfiguration) -> bool| -> Vec<String> {
                let all = settings.configurations.iter().filter(|there| used.contains(&there.name) && is(there));
                all.map(|there| there.name.clone()).collect()
            };
            let primary = of(&|there| there.primary_vm_set.eq_ignore_ascii_case(&node.vm_set));
            let claiming = of(&|there| there.node_labels.as_ref().is_some_and(|one| one.selects(&node.labels)));
            let open = of(&|there| there.node_labels.is_none());
            [primary, claiming, open].into_iter().find(|all| !all.is_empty()).unwrap_or_default()
        };
        let is_primary = |balancer: &str, node: &NodePlace| {
            let there = settings.configurations.iter().find(|there| there.name == balancer);
            there.is_some_and(|there| there.primary_vm_set.eq_ignore_ascii_case(&node.vm_set))
        };
        let mut moved = Vec::new();
        for one in &places {
            let (eligible, place) = (eligible(one), place_of(&one.name));
            prop_assert_eq!(place.is_none(), eligible.is_empty(), "{:?}", one);
            prop_assert_eq!(place.is_none(), placed.homeless.contains(&one.name));
            let Some(place) = place else { continue };
            prop_assert!(eligible.contains(&place), "{:?} on {}", one, place);
            match one.current.as_ref().filter(|current| eligible.contains(current)) {
                Some(current) => prop_assert_eq!(&place, current, "it stays where it may be"),
                // Those of a primary set are placed before all others.
                None if is_primary(&place, one) => {}
                None => moved.push((one.name.clone(), place, eligible)),
            }
        }
        // Taken away again from the last on, each of those was on the one with the fewest.
        let mut counts: BTreeMap<String, usize> =
            placed.nodes.iter().map(|(balancer, nodes)| (balancer.clone(), nodes.len())).collect();
        for (name, place, eligible) in moved.into_iter().rev() {
            *counts.get_mut(&place).unwrap() -= 1;
            let fewest = eligible.iter().map(|there| counts.get(there).copied().unwrap_or_default()).min();
            prop_assert_eq!(fewest, counts.get(&place).copied(), "{} on {}", name, place);
        }
        // The same again moves nothing.
        let settled: Vec<NodePlace> =
            places.iter().map(|one| NodePlace { current: place_of(&one.name), ..one.clone() }).collect();
        prop_assert_eq!(&placed, &place_nodes(&settled, &settings, &used));
    }
}
