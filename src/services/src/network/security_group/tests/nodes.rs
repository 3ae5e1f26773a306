//! Rules at the addresses of nodes, which all Services without floating IP share.

use proptest::prelude::*;

use super::*;

const NODES: [&str; 2] = ["10.240.0.4", "10.240.0.5"];
const SOURCES: [&[&str]; 3] = [&["Internet"], &["20.0.0.0/8"], &["20.0.0.0/8", "30.0.0.0/8"]];

/// What a Service without floating IP admits at all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Spec {
    sources: usize,
    /// Which of its own node ports.
    port: u16,
}

#[derive(Debug, Clone)]
enum Now {
    /// It has told nothing: it is another cluster's, or its specification is wrong.
    Silent,
    /// It asks for this, and the load balancer still sends to what it had.
    Changing(Spec),
    /// It asks for this, and the load balancer sends there.
    Settled(Spec),
    /// It is gone from the load balancer, or is about to go from it.
    Gone { is_on_balancer: bool },
}

fn spec() -> impl Strategy<Value = Spec> {
    (0..SOURCES.len(), 0_u16..2).prop_map(|(sources, port)| Spec { sources, port })
}

fn now() -> impl Strategy<Value = Now> {
    prop_oneof![
        Just(Now::Silent),
        spec().prop_map(Now::Changing),
        spec().prop_map(Now::Settled),
        any::<bool>().prop_map(|is_on_balancer| Now::Gone { is_on_balancer }),
    ]
}

fn node_port(number: u8, spec: Spec) -> u16 {
    30_000 + u16::from(number) * 10 + spec.port
}

fn part(number: u8, spec: Spec) -> Part {
    Part { allow: vec![allow(SOURCES[spec.sources], &[node_port(number, spec)], &NODES)], ..Part::default() }
}

fn base(number: u8) -> BaseName {
    BaseName::of(&key(number))
}

/// The source, port and node of everything that is admitted.
fn admitted(group: &SecurityGroup) -> BTreeSet<(String, String, String)> {
    let rules = group.rules.iter().filter(|rule| rule.is_allow);
    let of = |rule: &SecurityRule| {
        let (sources, ports, destinations) = (rule.sources.clone(), rule.ports.clone(), rule.destinations.clone());
        sources.into_iter().flat_map(move |source| {
            let destinations = destinations.clone();
            ports.clone().into_iter().flat_map(move |port| {
                let source = source.clone();
                destinations.clone().into_iter().map(move |node| (source.clone(), port.clone(), node))
            })
        })
    };
    rules.flat_map(of).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn a_service_gives_up_its_ports_of_the_nodes_and_no_others(
        services in proptest::collection::vec((spec(), now()), 1..5),
    ) {
        let mut env = Env { nodes: NODES.iter().map(|text| ip(text)).collect(), ..env() };
        let numbered = || (1_u8..).zip(&services);
        let before: Wants = numbered()
            .map(|(number, (spec, _))| (key(number), Want { present: part(number, *spec), gone: Gone::default() }))
            .collect();
        let body = settle(&before, body(&json!([])), &env);
        let mut wants = Wants::new();
        for (number, (had, now)) in numbered() {
            let gives_up = || Gone { nodes: true, base: Some(base(number)), ..Gone::default() };
            let mut sends_to = Some(*had);
            match now {
                Now::Silent => {}
                Now::Changing(spec) => {
                    wants.insert(key(number), Want { present: part(number, *spec), gone: Gone::default() });
                }
                Now::Settled(spec) => {
                    wants.insert(key(number), Want { present: part(number, *spec), gone: gives_up() });
                    sends_to = Some(*spec);
                }
                Now::Gone { is_on_balancer } => {
                    wants.insert(key(number), Want { present: Part::default(), gone: gives_up() });
                    sends_to = sends_to.filter(|_| *is_on_balancer);
                }
            }
            let ports = sends_to.map(|spec| (SecurityProtocol::Tcp, node_port(number, spec)));
            env.node_ports.insert(base(number).as_str().to_lowercase(), ports.into_iter().collect());
        }
        let end = settle(&wants, body.clone(), &env);
        let (old, new) = (admitted(&read(&body, &env)), admitted(&read(&end, &env)));
        let is_own = |number: u8, port: &str| port.starts_with(&format!("300{number}"));
        for (number, (_, now)) in numbered() {
            let own = |all: &BTreeSet<(String, String, String)>| -> BTreeSet<_> {
                all.iter().filter(|(_, port, _)| is_own(number, port)).cloned().collect()
            };
            let asked = |spec: Spec| {
                let want = Want { present: part(number, spec), gone: Gone::default() };
                let group = settle(&[(key(number), want)].into(), super::body(&json!([])), &env);
                admitted(&read(&group, &env))
            };
            let any_gives_up = wants.values().any(|want| want.gone.nodes);
            match now {
                Now::Silent => prop_assert_eq!(own(&new), own(&old)),
                Now::Changing(spec) => {
                    let both: BTreeSet<_> = own(&old).union(&asked(*spec)).cloned().collect();
                    prop_assert_eq!(own(&new), both, "the old port serves until the load balancer has changed");
                }
                Now::Settled(spec) => prop_assert_eq!(own(&new), asked(*spec)),
                Now::Gone { .. } => prop_assert!(any_gives_up && own(&new).is_empty()),
            }
        }
        prop_assert!(plan(&wants, Some(&read(&end, &env)), &env).is_quiet());
    }
}

#[test]
fn a_denial_at_nodes_stays_while_a_service_that_told_nothing_is_reached_there() {
    let mut env = Env { nodes: NODES.iter().map(|text| ip(text)).collect(), ..env() };
    let denying =
        Part { deny_all: NODES.iter().map(|text| ip(text)).collect(), ..part(1, Spec { sources: 1, port: 0 }) };
    let before: Wants = [(key(1), Want { present: denying, gone: Gone::default() })].into();
    let body = settle(&before, body(&json!([])), &env);
    let gone = Gone { nodes: true, base: Some(base(2)), ..Gone::default() };
    let wants: Wants = [(key(2), Want { present: Part::default(), gone })].into();
    env.node_ports.insert(base(1).as_str().to_lowercase(), [(SecurityProtocol::Tcp, 30_010)].into());
    assert_eq!(settle(&wants, body.clone(), &env), body);
    // Nothing is left to guard once no Service is reached there.
    env.node_ports.clear();
    assert!(read(&settle(&wants, body, &env), &env).rules.is_empty());
}

#[test]
fn a_node_that_has_left_every_pool_leaves_the_rules_and_no_other_address_does() {
    let spec = Spec { sources: 1, port: 0 };
    let wants = |part: Part| -> Wants { [(key(1), Want { present: part, gone: Gone::default() })].into() };
    let mut env = Env { nodes: NODES.iter().map(|text| ip(text)).collect(), ..env() };
    let both = settle(&wants(part(1, spec)), crate::service::fixtures::empty_group(), &env);
    let one = Part { allow: vec![allow(SOURCES[1], &[node_port(1, spec)], &NODES[..1])], ..Part::default() };
    env.nodes = [ip(NODES[0])].into();
    let stays = settle(&wants(one.clone()), both.clone(), &env);
    assert_eq!(stays, both, "it may be in a pool");
    env.departed = [ip(NODES[1]), ip("10.240.0.9")].into();
    let after = read(&settle(&wants(one), both, &env), &env);
    assert_eq!(after.rules.iter().flat_map(|rule| &rule.destinations).collect::<Vec<_>>(), [NODES[0]]);
}
