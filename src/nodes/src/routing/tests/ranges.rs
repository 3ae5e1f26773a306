//! Which pod ranges get a route.

use proptest::prelude::*;

use super::*;

fn made(range: &str, next_hop: &str, created: &str) -> Want {
    Want::Present(vec![PodRange { created: created.to_owned(), ..pod(range, Some(next_hop)) }])
}

fn judging() -> Env {
    Env { reserved: vec!["10.244.128.0/20".parse().unwrap()], ..env() }
}

fn judged(wants: &Wants, routes: &Value) -> Plan {
    plan(wants, Some(&read(&table(routes))), &judging())
}

fn refusal<'p>(plan: &'p Plan, node: &str) -> Option<&'p str> {
    match &plan.served[node] {
        plan::Served::Refused(why) => {
            assert_eq!(why.reason, "RouteRangeRefused");
            Some(&why.message)
        }
        _ => None,
    }
}

#[test]
fn a_range_that_would_divert_the_traffic_of_others_gets_no_route() {
    for (range, words) in [
        ("0.0.0.0/0", "--cluster-cidr"),
        ("10.0.0.0/8", "--cluster-cidr"),
        ("10.245.1.0/24", "--cluster-cidr"),
        ("10.244.130.0/24", "10.244.128.0/20, the range of Services"),
        ("10.244.0.0/16", "10.244.128.0/20, the range of Services"),
        ("10.244.1.128/25", "10.244.1.0/24, the range of another Node, victim"),
        ("10.244.0.0/22", "10.244.1.0/24, the range of another Node, victim"),
        ("10.244.1.0/24", "10.244.1.0/24, the range of another Node, victim"),
    ] {
        let wants =
            wants(&[("evil", made(range, "10.0.0.6", "2")), ("victim", made("10.244.1.0/24", "10.0.0.5", "1"))]);
        for routes in [json!([]), json!([route("victim____102441024", "10.244.1.0/24", "10.0.0.5")])] {
            let plan = judged(&wants, &routes);
            let why = refusal(&plan, "evil").unwrap_or_else(|| panic!("{range} is routed"));
            assert!(why.contains(words) && why.contains(range), "{why}");
            assert!(plan.edits.len() <= 1 && plan.kept.is_empty(), "{:?}", plan.edits);
        }
    }
    // A Node's address in it, as where the ranges of pods and of the subnet overlap.
    let inside = wants(&[("evil", made("10.244.7.0/24", "10.244.7.9", "2"))]);
    assert!(refusal(&judged(&inside, &json!([])), "evil").unwrap().contains("10.244.7.9"));
}

#[test]
fn of_two_nodes_the_one_with_a_route_keeps_it_and_otherwise_the_older_gets_one() {
    let pair = |first: &str, second: &str| {
        wants(&[("a", made("10.244.1.0/24", "10.0.0.5", first)), ("b", made("10.244.1.128/25", "10.0.0.6", second))])
    };
    let older = "2026-01-01T00:00:00Z";
    for (first, second, served) in [
        (older, "2026-01-02T00:00:00Z", "a"),
        ("2026-01-02T00:00:00Z", older, "b"),
        (older, older, "a"),
        ("", older, "b"),
    ] {
        let plan = judged(&pair(first, second), &json!([]));
        let refused = if served == "a" { "b" } else { "a" };
        assert!(refusal(&plan, refused).is_some() && plan.served[served] == plan::Served::Pending, "{first} {second}");
    }
    // A route that exists counts more than age, also one of a Node that is not known here.
    let there = json!([route("b____10244112825", "10.244.1.128/25", "10.0.0.6")]);
    let plan = judged(&pair(older, "2026-01-02T00:00:00Z"), &there);
    assert!(refusal(&plan, "a").unwrap().contains("another Node, b") && plan.edits.is_empty());
    assert_eq!(plan.served["b"], plan::Served::Done);
    let alone = wants(&[("a", made("10.244.1.0/24", "10.0.0.5", older))]);
    assert!(refusal(&judged(&alone, &there), "a").is_some());
    // An older Node that has no address yet holds its range.
    let waits = Want::Present(vec![PodRange { created: "1".to_owned(), ..pod("10.244.1.0/24", None) }]);
    let plan = judged(&wants(&[("a", waits), ("b", made("10.244.1.128/25", "10.0.0.6", "2"))]), &json!([]));
    assert!(refusal(&plan, "b").is_some() && matches!(plan.served["a"], plan::Served::Waiting(_)));
}

#[test]
fn a_route_that_exists_stays_and_is_named() {
    for (range, words) in [
        ("10.9.0.0/24", "lies outside of --cluster-cidr"),
        ("0.0.0.0/0", "lies outside of --cluster-cidr"),
        ("10.244.130.0/24", "overlaps a range of Services"),
        ("10.244.1.128/25", "overlaps the range of another Node"),
    ] {
        let routes = json!([
            route(&names::route("old", range), range, "10.0.0.6"),
            route("victim____102441024", "10.244.1.0/24", "10.0.0.5"),
        ]);
        let both = wants(&[("old", made(range, "10.0.0.6", "2")), ("victim", made("10.244.1.0/24", "10.0.0.5", "1"))]);
        let plan = judged(&both, &routes);
        assert_eq!((&plan.edits[..], &plan.served["old"]), (&[][..], &plan::Served::Done), "{range}");
        assert_eq!(plan.kept.get("old"), Some(&words), "{range}");
        // The table reports to each Node what is named of it.
        let reports = RouteTables::plan(&both, Some(&read(&table(&routes))), &judging()).served;
        let objection = |node: &str| match &reports[node] {
            Served::Met(report) => report.objection,
            other => panic!("{node}: {other:?}"),
        };
        let named = plan.kept.get("victim").copied();
        assert_eq!((objection("old"), objection("victim")), (Some(words), named), "{range}");
        // It follows its Node to another address.
        let moved = wants(&[("old", made(range, "10.0.0.7", "2"))]);
        assert!(matches!(&judged(&moved, &routes).edits[..], [Edit::PutRoute { .. }]), "{range}");
    }
    // What no Node leads is in nobody's way.
    let routes = json!([route("firewall", "0.0.0.0/0", "10.0.9.9"), route("x____0", "10.0.0.0/8", "10.0.9.9")]);
    let plan = judged(&wants(&[("a", made("10.244.1.0/24", "10.0.0.5", "1"))]), &routes);
    assert_eq!(plan.served["a"], plan::Served::Pending);
}

/// Ranges of which many overlap, some are outside, reserved or everything.
const RANGES: [&str; 12] = [
    "10.244.1.0/24",
    "10.244.1.128/25",
    "10.244.1.192/26",
    "10.244.0.0/22",
    "10.244.2.0/24",
    "10.244.0.0/16",
    "10.244.130.0/24",
    "10.9.0.0/24",
    "0.0.0.0/0",
    "fd00:10:244:1::/64",
    "fd00:10:244:1:8000::/65",
    "fd01::/48",
];

fn hop(range: usize, node: usize) -> String {
    if RANGES[range].contains(':') { format!("fd02::{}", node + 4) } else { format!("10.0.0.{}", node + 4) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_024, ..ProptestConfig::default() })]

    /// By a reckoning of its own: what a write adds is inside, is no one else's and holds no reserved address; what exists
    /// stays; and one that is refused for an overlap meets a route or an older Node.
    #[test]
    fn a_write_adds_only_ranges_that_divert_no_traffic(
        nodes in proptest::collection::vec((0..RANGES.len(), 0_u8..3, any::<bool>()), 1..6),
        strays in proptest::collection::vec((0..RANGES.len(), 10_usize..12), 0..2),
    ) {
        let name = |at: usize| format!("n{at}");
        let mut bodies: Vec<Value> = Vec::new();
        let mut add = |node: usize, range: usize| {
            let body = route(&names::route(&name(node), RANGES[range]), RANGES[range], &hop(range, node));
            if !bodies.iter().any(|other| other["properties"]["addressPrefix"] == RANGES[range]) {
                bodies.push(body);
            }
        };
        nodes.iter().enumerate().for_each(|(at, (range, _, is_there))| if *is_there { add(at, *range) });
        strays.iter().for_each(|(range, node)| add(*node, *range));
        let wants: Wants = nodes.iter().enumerate().map(|(at, (range, created, _))| {
            (name(at), made(RANGES[*range], &hop(*range, at), &created.to_string()))
        }).collect();
        let env = Env { reserved: vec!["10.244.128.0/20".parse().unwrap()], ..env() };
        let before = read(&table(&json!(bodies)));
        let plan = plan(&wants, Some(&before), &env);
        let after = apply(Some(before.clone()), &plan.edits, &env).unwrap();
        for route in &before.routes {
            prop_assert!(after.routes.contains(route), "{} is gone or changed", route.name);
        }
        let parse = |text: &str| text.parse::<Cidr>().unwrap();
        let meet = |one: &Cidr, other: &Cidr| one.contains(other.address()) || other.contains(one.address());
        let in_cluster = |range: &Cidr| env.cluster_ranges.iter().any(|whole| whole.covers(range));
        for added in after.routes.iter().filter(|route| !before.routes.contains(route)) {
            let range = added.range.unwrap();
            prop_assert!(in_cluster(&range), "{range} is outside");
            prop_assert!(!meet(&range, &parse("10.244.128.0/20")), "{range} is reserved");
            for other in after.routes.iter().filter(|other| other.name != added.name) {
                let theirs = other.range.unwrap();
                prop_assert!(!in_cluster(&theirs) || !meet(&range, &theirs), "{range} beside {theirs}");
            }
        }
        for (at, (range, created, _)) in nodes.iter().enumerate() {
            let own = parse(RANGES[*range]);
            let is_sound = in_cluster(&own) && !meet(&own, &parse("10.244.128.0/20"));
            if is_sound && matches!(plan.served[&name(at)], plan::Served::Refused(_)) {
                let by_route = before.routes.iter().any(|route| meet(&own, &route.range.unwrap()));
                let by_older = nodes.iter().enumerate().any(|(other, (theirs, made, _))| {
                    other != at && meet(&own, &parse(RANGES[*theirs])) && (made, other) < (created, at)
                });
                prop_assert!(by_route || by_older, "n{at} is refused for nothing");
            }
        }
    }
}
