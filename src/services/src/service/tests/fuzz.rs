//! Whatever is written into a Service, it is read or refused in words.

use proptest::prelude::*;

use super::*;
use crate::ask::Subject;

/// A value for an annotation: plausible ones, and any text.
fn value() -> impl Strategy<Value = String> {
    let plausible = [
        "true",
        "True",
        " true",
        "false",
        "",
        "yes",
        "0",
        "4",
        "30",
        "59",
        "4294967296",
        "-1",
        "tcp",
        "HTTP",
        "grpc",
        "10.0.0.4",
        "20.0.0.4",
        "2001:db8::1",
        "::",
        "10.0.0.0/8",
        "10.0.0.1/8",
        "0.0.0.0/0,::/0",
        "a=b",
        "a=b,c",
        "=",
        ",,",
        "a b c",
        "*",
        "__auto__",
        "p80",
        "80",
        "Internet",
        "s\u{e9}\u{fc}-\u{1f600}",
    ];
    prop_oneof![proptest::sample::select(plausible.to_vec()).prop_map(str::to_owned), ".{0,40}"]
}

/// Some annotations of the table, and one that is in no table.
fn annotations() -> impl Strategy<Value = BTreeMap<String, String>> {
    let keys: Vec<String> = annotation::TABLE.iter().map(|row| row.key.replace("{port}", "80")).collect();
    let known = proptest::collection::btree_map(proptest::sample::select(keys), value(), 0..8);
    (known, "[a-z_-]{0,20}", value()).prop_map(|(mut all, key, value)| {
        all.insert(format!("{}azure-{key}", annotation::PREFIX), value);
        all
    })
}

/// Annotations of any kind: keys of the table for any port, other keys of the prefix, any text; and any value.
fn any_annotations() -> impl Strategy<Value = BTreeMap<String, String>> {
    let of_table = (proptest::sample::select(annotation::TABLE.to_vec()), prop_oneof![Just(80), any::<u16>()])
        .prop_map(|(row, port)| row.key.replace("{port}", &port.to_string()));
    let of_prefix = "[a-z0-9_{}-]{0,40}".prop_map(|rest| format!("{}{rest}", annotation::PREFIX));
    let key = prop_oneof![4 => of_table, 1 => of_prefix, 1 => ".{0,60}"];
    proptest::collection::btree_map(key, prop_oneof![value(), ".{0,300}", "[0-9./:,=-]{0,60}"], 0..12)
}

/// A Service of a side.
fn one_of(side: Side) -> ServiceObject {
    if side == Side::Internal { annotated(&[("azure-load-balancer-internal", "true")]) } else { service() }
}

/// Runs of the fuzz target.
fn cases() -> u32 {
    std::env::var_os("LAZULI_TEST_FULL").map_or(1_024, |_| 50_000)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn any_annotations_are_read_alike_twice_or_refused_by_name_and_value(
        object in object(),
        annotations in any_annotations(),
        side in proptest::option::of(prop_oneof![Just(Side::Public), Just(Side::Internal)]),
    ) {
        let object = ServiceObject { annotations, ..object };
        let existing = side.map(|side| served(&one_of(side))).unwrap_or_default();
        let read = parse(&object, &settings(), &existing);
        prop_assert_eq!(&read, &parse(&object.clone(), &settings(), &existing));
        for mistake in read.err().iter().flatten() {
            let text = mistake.to_string();
            prop_assert!(text.contains(&format!("{:?}", mistake.value)), "{}", text);
            match &mistake.subject {
                Subject::Annotation(key) => {
                    prop_assert!(text.contains(key), "{}", text);
                    prop_assert_eq!(object.annotations.get(key), Some(&mistake.value), "{}", text);
                }
                Subject::Field(path) => prop_assert!(text.contains(path), "{}", text),
            }
        }
    }
}

/// Values that ask for a denial, at nodes and elsewhere.
fn denying() -> impl Strategy<Value = BTreeMap<String, String>> {
    let value = |key: &'static str, values: &'static [&'static str]| {
        proptest::option::of(proptest::sample::select(values)).prop_map(move |value| (key, value))
    };
    let ranges = &["", "10.0.0.0/8", "10.0.0.0/8,", "x", "0.0.0.0/0,10.0.0.11/8", "2001:db8::/32"];
    let pairs = (
        value("azure-disable-load-balancer-floating-ip", &["true", "True", " true", "ture"]),
        value("azure-deny-all-except-load-balancer-source-ranges", &["true", "True", "yes"]),
        value("azure-allowed-ip-ranges", ranges),
        value("load-balancer-source-ranges", ranges),
        value("azure-load-balancer-internal", &["true", "True", "ture"]),
        value("azure-additional-public-ips", &["10.0.0.12", "20.9.9.9,10.0.0.11", "20.9.9.9", "fd00::11,x"]),
        value("azure-disable-load-balancer-nsg-rule", &["true", "ture"]),
    );
    pairs.prop_map(|(a, b, c, d, e, f, g)| {
        let set = [a, b, c, d, e, f, g].into_iter().filter_map(|(key, value)| Some((key, value?)));
        set.map(|(key, value)| (format!("{}{key}", annotation::PREFIX), value.to_owned())).collect()
    })
}

const NODES: [&str; 3] = ["10.0.0.11", "10.0.0.12", "fd00::11"];

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn no_service_denies_anything_at_the_address_of_a_node(
        object in object(),
        pairs in denying(),
        ingress in proptest::sample::subsequence(vec!["10.0.0.4", "10.0.0.12", "20.0.0.4", "20.9.9.9", "fd00::11"], 0..4),
        frontends in proptest::sample::subsequence(vec!["10.0.0.4", "10.0.0.11", "20.0.0.4", "fd00::11"], 0..4),
        backends in proptest::sample::subsequence(NODES.to_vec(), 0..=3),
        as_served in proptest::option::of(denying()),
        adds in any::<bool>(),
    ) {
        let addresses = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<BTreeSet<IpAddr>>();
        let object = ServiceObject {
            key: service().key, annotations: pairs, ports: service().ports, ingress: addresses(&ingress).into_iter().collect(),
            ..object
        };
        let before = as_served.map(|annotations| ServiceObject { annotations, ..service() });
        let before = before.filter(|before| parse(before, &settings(), &Existing::default()).is_ok());
        let mut existing = before.as_ref().map(served).unwrap_or_default();
        existing.cluster.nodes = addresses(&NODES);
        let Ok(ask) = parse(&object, &settings(), &existing) else { return Ok(()) };
        let env = security_group::Env {
            nodes: addresses(&backends), all_nodes: addresses(&NODES), ..security_group_env(&settings())
        };
        let stage = if adds { Stage::Adding } else { Stage::Trimming };
        let want = wants::security_group(&ask, &addresses(&frontends), &env.nodes, &Former::default(), stage);
        let group = security_group::SecurityGroup::read(&env.id, &empty_group()).unwrap();
        let plan = security_group::plan(&[(ask.service.clone(), want)].into(), Some(&group), &env);
        let after = security_group::apply(Some(group), &plan.edits, &env).unwrap();
        for rule in after.rules.iter().filter(|rule| !rule.is_allow) {
            prop_assert!(rule.destinations.iter().all(|text| !NODES.contains(&text.as_str())), "{:?}", rule);
        }
    }
}

prop_compose! {
    fn object()(
        annotations in annotations(),
        uid in ".{0,40}",
        ports in proptest::collection::vec((0_usize..3, any::<u16>(), any::<u16>(), proptest::option::of(value())), 0..4),
        families in proptest::sample::subsequence(vec![Family::V4, Family::V6], 0..=2),
        is_local in any::<bool>(),
        health_check_node_port in any::<u16>(),
        source_ranges in proptest::collection::vec(value(), 0..3),
        load_balancer_ip in proptest::option::of(value()),
    ) -> ServiceObject {
        let protocols = [PortProtocol::Tcp, PortProtocol::Udp, PortProtocol::Sctp];
        let ports = ports.into_iter().map(|(protocol, number, node_port, app_protocol)| {
            ServicePort { node_port, app_protocol, ..port(protocols[protocol], number) }
        });
        ServiceObject {
            key: ServiceKey::new("default", "web", uid), annotations, ports: ports.collect(), families, is_local,
            health_check_node_port, source_ranges: source_ranges.iter().collect(), load_balancer_ip, ..service()
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn every_service_is_read_or_refused_in_words(object in object(), basic in any::<bool>(), live in any::<bool>()) {
        let mut settings = settings();
        settings.sku = if basic { LoadBalancerSku::Basic } else { LoadBalancerSku::Standard };
        let existing = if live { served(&service()) } else { Existing::default() };
        match parse(&object, &settings, &existing) {
            Err(mistakes) => {
                prop_assert!(!mistakes.is_empty());
                for mistake in mistakes {
                    prop_assert!(mistake.allowed.len() > 5, "{mistake}");
                }
            }
            Ok(ask) => {
                // What is read can be asked of Azure: names fit, and ids can be made of them or are refused.
                for family in &ask.families {
                    prop_assert!(family.frontend.len() <= 80);
                    prop_assert!(family.rules.iter().all(|rule| rule.name.len() <= 80));
                    for rule in &family.rules {
                        let probe = rule.probe.as_ref();
                        prop_assert!(probe.is_none_or(|name| family.probes.iter().any(|probe| probe.name == *name)));
                    }
                }
                let want = wants::load_balancer(&ask, &settings, &BTreeMap::new(), &Former::default(), Stage::Trimming);
                if let Ok(want) = want {
                    let wants = [(ask.service.clone(), want)].into();
                    let env = load_balancer_env(&settings, ask.side);
                    load_balancer::plan(&wants, None, &env);
                }
            }
        }
    }
}
