//! Every annotation and field, with what it does to the bodies.
//!
//! A case is a Service; the snapshot shows the leaves of its bodies that differ from those of the plain Service of its kind.
//! What a snapshot shows was compared with the bodies that the Go manager writes.

use super::*;

pub(super) struct Case {
    /// Fields of the Service and keys of the configuration that the case is about; annotations name themselves.
    pub(super) about: &'static [&'static str],
    pub(super) object: ServiceObject,
    pub(super) settings: Settings,
    /// What its bodies are compared with.
    plain: ServiceObject,
}

fn case(object: ServiceObject) -> Case {
    Case { about: &[], object, settings: settings(), plain: service() }
}

fn with(pairs: &[(&str, &str)]) -> Case {
    case(annotated(pairs))
}

/// An internal Service with annotations, compared with a plain internal one.
fn internal(pairs: &[(&str, &str)]) -> Case {
    let all: Vec<(&str, &str)> = [("azure-load-balancer-internal", "true")].iter().chain(pairs).copied().collect();
    Case { plain: annotated(&all[..1]), ..with(&all) }
}

fn field(about: &'static [&'static str], change: impl FnOnce(&mut ServiceObject)) -> Case {
    let mut object = service();
    change(&mut object);
    Case { about, ..case(object) }
}

fn configured(about: &'static [&'static str], change: impl FnOnce(&mut Settings)) -> Case {
    let mut settings = settings();
    change(&mut settings);
    Case { about, settings, ..case(service()) }
}

pub(super) fn cases() -> Vec<Case> {
    let prefix = "/subscriptions/sub/resourceGroups/group/providers/Microsoft.Network/publicIPPrefixes/pool";
    let dual = || ServiceObject { families: vec![Family::V4, Family::V6], ..service() };
    let local = || ServiceObject { is_local: true, health_check_node_port: 31_000, ..service() };
    let mixed = || {
        use PortProtocol::{Tcp, Udp};
        ServiceObject { ports: vec![port(Tcp, 80), port(Udp, 53), port(Tcp, 443)], ..service() }
    };
    let and = |mut object: ServiceObject, pairs: &[(&str, &str)]| {
        object.annotations.extend(annotated(pairs).annotations);
        object
    };
    let link = ("azure-pls-create", "true");
    vec![
        // Placement and address.
        with(&[("azure-load-balancer-internal", "true")]),
        internal(&[("azure-load-balancer-internal-subnet", "apps")]),
        with(&[("azure-load-balancer-ipv4", "20.1.2.3")]),
        internal(&[("azure-load-balancer-ipv4", "10.0.0.99")]),
        Case {
            plain: dual(),
            ..case(and(dual(), &[("azure-load-balancer-ipv4", "20.1.2.3"), ("azure-load-balancer-ipv6", "2603::1")]))
        },
        with(&[("azure-pip-name", "mine")]),
        Case { plain: dual(), ..case(and(dual(), &[("azure-pip-name", "four"), ("azure-pip-name-ipv6", "six")])) },
        with(&[("azure-pip-prefix-id", prefix)]),
        Case { plain: dual(), ..case(and(dual(), &[("azure-pip-prefix-id-ipv6", prefix)])) },
        with(&[("azure-load-balancer-resource-group", "other")]),
        with(&[("azure-load-balancer-mode", "__auto__")]),
        with(&[("azure-load-balancer-configurations", "lb1")]),
        with(&[("azure-additional-public-ips", "20.9.9.9, 20.9.9.8")]),
        with(&[("azure-dns-label-name", "my-label")]),
        with(&[("azure-pip-tags", "a=b, c=d")]),
        with(&[("azure-pip-ip-tags", "RoutingPreference=Internet,FirstPartyUsage=/x")]),
        // Traffic.
        with(&[("azure-load-balancer-tcp-idle-timeout", "30")]),
        with(&[("azure-load-balancer-disable-tcp-reset", "true")]),
        internal(&[("azure-load-balancer-enable-high-availability-ports", "true")]),
        with(&[("azure-disable-load-balancer-floating-ip", "true")]),
        Case { plain: mixed(), ..case(and(mixed(), &[("port_443_no_lb_rule", "true")])) },
        with(&[("port_80_no_probe_rule", "true")]),
        // Probes.
        with(&[("azure-load-balancer-health-probe-protocol", "http")]),
        with(&[
            ("azure-load-balancer-health-probe-protocol", "Https"),
            ("azure-load-balancer-health-probe-request-path", "/ready"),
        ]),
        with(&[
            ("azure-load-balancer-health-probe-interval", "15"),
            ("azure-load-balancer-health-probe-num-of-probe", "4"),
        ]),
        Case {
            plain: mixed(),
            ..case(and(
                mixed(),
                &[
                    ("port_80_health-probe_protocol", "http"),
                    ("port_80_health-probe_port", "p443"),
                    ("port_443_health-probe_port", "10256"),
                    ("port_80_health-probe_interval", "20"),
                    ("port_80_health-probe_num-of-probe", "3"),
                    ("port_80_health-probe_request-path", "/own"),
                ],
            ))
        },
        Case { plain: local(), ..case(and(local(), &[("port_80_health-probe_port", "80")])) },
        // Access.
        with(&[("azure-allowed-service-tags", "AzureCloud, Storage")]),
        with(&[("azure-allowed-ip-ranges", "10.1.0.0/16,10.0.0.0/16, 2001:db8::/32")]),
        with(&[("load-balancer-source-ranges", "10.0.0.0/8")]),
        with(&[
            ("azure-deny-all-except-load-balancer-source-ranges", "true"),
            ("azure-allowed-ip-ranges", "10.0.0.0/8"),
        ]),
        with(&[("azure-disable-load-balancer-nsg-rule", "true")]),
        with(&[("azure-shared-securityrule", "true")]),
        internal(&[("azure-allowed-ip-ranges", "0.0.0.0/0")]),
        // Private link.
        internal(&[link]),
        internal(&[
            link,
            ("azure-pls-name", "mine"),
            ("azure-pls-resource-group", "links"),
            ("azure-pls-ip-configuration-subnet", "pls"),
            ("azure-pls-ip-configuration-ip-address-count", "3"),
            ("azure-pls-ip-configuration-ip-address", "10.0.4.5 10.0.4.4"),
            ("azure-pls-fqdns", "a.example b.example"),
            ("azure-pls-proxy-protocol", "true"),
            ("azure-pls-visibility", "s1 *"),
            ("azure-pls-auto-approval", "s1 s2"),
        ]),
        Case {
            plain: ServiceObject {
                annotations: annotated(&[("azure-load-balancer-internal", "true")]).annotations,
                ..local()
            },
            ..case(and(
                local(),
                &[("azure-load-balancer-internal", "true"), link, ("azure-pls-proxy-protocol", "true")],
            ))
        },
        // Fields.
        field(&["metadata.uid"], |object| object.key.uid = "11111111-2222-3333-4444-555555555555".to_owned()),
        field(&["spec.ports[].port", "spec.ports[].protocol", "spec.ports[].nodePort"], |object| *object = mixed()),
        field(&["spec.ports[].appProtocol"], |object| object.ports[0].app_protocol = Some("HTTP".to_owned())),
        field(&["spec.ports[].appProtocol"], |object| {
            object.ports[0].app_protocol = Some("tcp".to_owned());
            object.annotations = annotated(&[("azure-load-balancer-health-probe-protocol", "http")]).annotations;
        }),
        // The port's annotation, then appProtocol, then the Service's annotation.
        field(&["spec.ports[].appProtocol"], |object| {
            object.ports[0].app_protocol = Some("tcp".to_owned());
            object.annotations = annotated(&[
                ("port_80_health-probe_protocol", "https"),
                ("azure-load-balancer-health-probe-protocol", "http"),
            ])
            .annotations;
        }),
        field(&["spec.externalTrafficPolicy", "spec.healthCheckNodePort"], |object| *object = local()),
        field(&["spec.sessionAffinity"], |object| object.is_client_ip_affine = true),
        field(&["spec.loadBalancerSourceRanges"], |object| object.source_ranges = ["10.0.0.0/8"].iter().collect()),
        field(&["spec.loadBalancerIP"], |object| object.load_balancer_ip = Some("20.1.2.3".to_owned())),
        field(&["spec.ipFamilies", "spec.ipFamilyPolicy"], |object| *object = dual()),
        field(&["spec.ipFamilies"], |object| object.families = vec![Family::V6]),
        Case {
            about: &["spec.ipFamilies"],
            plain: annotated(&[("azure-load-balancer-internal", "true")]),
            ..case(and(dual(), &[("azure-load-balancer-internal", "true")]))
        },
        Case {
            about: &["spec.ports[].protocol"],
            object: ServiceObject {
                ports: vec![port(PortProtocol::Sctp, 3868)],
                ..annotated(&[("azure-load-balancer-internal", "true")])
            },
            ..internal(&[])
        },
        Case {
            about: &["spec.allocateLoadBalancerNodePorts"],
            plain: local(),
            ..case(ServiceObject {
                ports: vec![ServicePort { node_port: 0, ..port(PortProtocol::Tcp, 80) }],
                ..local()
            })
        },
        Case {
            about: &["status.loadBalancer.ingress"],
            object: ServiceObject {
                ingress: vec!["10.0.0.77".parse().unwrap()],
                ..annotated(&[("azure-load-balancer-internal", "true")])
            },
            ..internal(&[])
        },
        // Configuration.
        configured(&["loadBalancerSku"], |settings| settings.sku = LoadBalancerSku::Basic),
        configured(&["disableOutboundSNAT"], |settings| settings.disable_outbound_snat = true),
        configured(&["clusterServiceLoadBalancerHealthProbeMode"], |settings| {
            let path = "/healthz".to_owned();
            settings.shared_probe = Some(crate::network::settings::SharedProbe { port: 10_256, path });
        }),
        configured(&["tags"], |settings| settings.tags.set = BTreeMap::from([("team".to_owned(), "x".to_owned())])),
        configured(&["extendedLocationName"], |settings| settings.edge_zone = Some("edge".to_owned())),
    ]
}

/// The leaves of a value, by their path. Elements of lists that have names are found by them.
fn leaves(value: &Value, path: &str, all: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            map.iter().for_each(|(key, value)| leaves(value, &format!("{path}.{key}"), all));
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (index, item) in items.iter().enumerate() {
                let name = item["name"].as_str().map_or_else(|| index.to_string(), str::to_owned);
                leaves(item, &format!("{path}[{name}]"), all);
            }
        }
        leaf => {
            all.insert(path.to_owned(), leaf.to_string());
        }
    }
}

/// The leaves of all bodies, by element (a rule, a probe, a public IP) and by path within it.
fn all_leaves(object: &ServiceObject, settings: &Settings) -> BTreeMap<String, BTreeMap<String, String>> {
    let bodies = bodies(object, settings);
    let mut all = BTreeMap::new();
    for body in &bodies.public_ips {
        leaves(body, &format!("publicIP[{}]", body["name"].as_str().unwrap()), &mut all);
    }
    leaves(&bodies.load_balancer, "lb", &mut all);
    leaves(&bodies.security_group["properties"]["securityRules"], "securityRule", &mut all);
    if let Some(link) = &bodies.private_link {
        leaves(link, "privateLink[]", &mut all);
    }
    let mut elements: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for (path, value) in all {
        let shorten = |text: &str| text.replace(SUBSCRIPTION, "…").replace(BASE, "BASE").replace(".properties.", ".");
        let path = shorten(&path).replace("IPConfigurations[", "[");
        let (element, leaf) = match path.split_once("].") {
            Some((element, leaf)) => (format!("{element}]"), leaf),
            None => ("lb".to_owned(), path.as_str()),
        };
        if leaf != "name" {
            elements.entry(element).or_default().insert(leaf.to_owned(), shorten(&value));
        }
    }
    elements
}

fn difference(
    before: &BTreeMap<String, BTreeMap<String, String>>,
    after: &BTreeMap<String, BTreeMap<String, String>>,
) -> String {
    let mut text = String::new();
    for element in before.keys().filter(|element| !after.contains_key(*element)) {
        text.push_str(&format!("- {element}\n"));
    }
    for (element, leaves) in after {
        let Some(old) = before.get(element) else {
            text.push_str(&format!("+ {element}\n"));
            leaves.iter().for_each(|(leaf, value)| text.push_str(&format!("    {leaf} {value}\n")));
            continue;
        };
        for leaf in old.keys().filter(|leaf| !leaves.contains_key(*leaf)) {
            text.push_str(&format!("- {element} {leaf}\n"));
        }
        for (leaf, value) in leaves.iter().filter(|(leaf, value)| old.get(*leaf) != Some(value)) {
            text.push_str(&format!("= {element} {leaf} {value}\n"));
        }
    }
    text
}

#[test]
fn every_annotation_and_field_changes_the_bodies_as_the_go_manager_does() {
    let mut text = String::new();
    for case in cases() {
        let annotations = case.object.annotations.iter().filter(|(key, _)| !case.plain.annotations.contains_key(*key));
        let mut title: Vec<String> = case.about.iter().map(|about| (*about).to_owned()).collect();
        title.extend(annotations.map(|(key, value)| format!("{}={value}", &key[annotation::PREFIX.len()..])));
        let (before, after) = (all_leaves(&case.plain, &settings()), all_leaves(&case.object, &case.settings));
        text.push_str(&format!("## {}\n", title.join(", ")));
        text.push_str(&difference(&before, &after));
    }
    insta::assert_snapshot!("cases", text);
}

#[test]
fn every_annotation_and_field_has_a_case() {
    let cases = cases();
    for row in annotation::TABLE {
        let is_in = |case: &Case| {
            case.object.annotations.keys().any(|key| annotation::find(key).is_some_and(|(found, _)| found == row))
        };
        assert!(cases.iter().any(is_in), "no case has annotation {}", row.key);
    }
    for field in [
        "metadata.uid",
        "spec.ports[].port",
        "spec.ports[].protocol",
        "spec.ports[].nodePort",
        "spec.ports[].appProtocol",
        "spec.externalTrafficPolicy",
        "spec.healthCheckNodePort",
        "spec.sessionAffinity",
        "spec.loadBalancerSourceRanges",
        "spec.loadBalancerIP",
        "spec.ipFamilies",
        "spec.allocateLoadBalancerNodePorts",
        "status.loadBalancer.ingress",
    ] {
        assert!(cases.iter().any(|case| case.about.contains(&field)), "no case is about {field}");
    }
}
