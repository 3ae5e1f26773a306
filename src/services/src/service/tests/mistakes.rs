//! What is refused of a Service, and in which words.

use super::*;
use crate::{
    ask::{Mistake, Warning, WarningReason},
    service::object::MOST_PORTS,
};

fn mistakes(object: &ServiceObject) -> Vec<String> {
    let mistakes = parse(object, &settings(), &Existing::default()).expect_err("it should be refused");
    mistakes.iter().map(Mistake::to_string).collect()
}

fn warnings(object: &ServiceObject, settings: &Settings) -> Vec<String> {
    let ask = parse(object, settings, &Existing::default()).unwrap_or_else(|mistakes| panic!("{mistakes:?}"));
    ask.warnings.iter().map(|warning: &Warning| format!("{}: {}", warning.reason.as_str(), warning.message)).collect()
}

#[test]
fn a_mistake_names_annotation_value_and_what_is_allowed() {
    let prefix = "/subscriptions/sub/resourceGroups/group/providers/Microsoft.Network/publicIPAddresses/no-prefix";
    let internal = ("azure-load-balancer-internal", "true");
    let link = ("azure-pls-create", "true");
    let cases: &[&[(&str, &str)]] = &[
        &[("azure-load-balancer-internal", "yes")],
        &[("azure-load-balancer-ipv4", "2001:db8::1")],
        &[("azure-load-balancer-ipv4", "10.0.0.4")],
        &[("azure-load-balancer-ipv4", "168.63.129.16")],
        &[("azure-pip-name", "a/b")],
        &[("azure-load-balancer-resource-group", "a/b")],
        &[internal, ("azure-load-balancer-internal-subnet", "apps?")],
        &[("azure-pip-prefix-id", prefix)],
        &[("azure-additional-public-ips", "20.0.0.4,nowhere")],
        &[("azure-dns-label-name", "My_Label")],
        &[("azure-pip-tags", "a=b,c")],
        &[("azure-pip-ip-tags", "RoutingPreference")],
        &[("azure-load-balancer-tcp-idle-timeout", "3")],
        &[("azure-load-balancer-tcp-idle-timeout", "soon")],
        &[("azure-load-balancer-health-probe-protocol", "grpc")],
        &[("azure-load-balancer-health-probe-interval", "4")],
        &[("azure-load-balancer-health-probe-interval", "30"), ("azure-load-balancer-health-probe-num-of-probe", "4")],
        &[("port_80_health-probe_port", "nameless")],
        &[("port_80_health-probe_port", "0")],
        &[("port_80_no_lb_rule", "1")],
        &[("azure-additional-public-ips", "20.0.0.4,10.0.0.10")],
        &[
            ("azure-disable-load-balancer-floating-ip", "true"),
            ("azure-deny-all-except-load-balancer-source-ranges", "true"),
            ("azure-allowed-ip-ranges", "10.0.0.0/8"),
        ],
        &[link],
        &[internal, link, ("azure-pls-ip-configuration-ip-address-count", "9")],
        &[internal, link, ("azure-pls-ip-configuration-ip-address", "10.0.0.5 10.0.0.6")],
        &[internal, link, ("azure-pls-ip-configuration-ip-address", "fd00::5")],
    ];
    let text: Vec<String> = cases.iter().flat_map(|pairs| mistakes(&annotated(pairs))).collect();
    insta::assert_snapshot!(text.join("\n").replace(annotation::PREFIX, "…/"));
}

#[test]
fn a_mistake_in_a_field_names_the_field() {
    let udp = port(PortProtocol::Udp, 53);
    let cases = [
        ServiceObject { ports: vec![], ..service() },
        ServiceObject { load_balancer_ip: Some("here".to_owned()), ..service() },
        ServiceObject { load_balancer_ip: Some("10.0.0.4".to_owned()), ..service() },
        ServiceObject { is_local: true, ..service() },
        ServiceObject { ports: vec![port(PortProtocol::Sctp, 80)], ..service() },
        ServiceObject { ports: vec![ServicePort { node_port: 0, ..port(PortProtocol::Tcp, 80) }], ..service() },
        ServiceObject {
            ports: vec![ServicePort { node_port: 0, ..udp }],
            ..annotated(&[("azure-disable-load-balancer-floating-ip", "true")])
        },
        ServiceObject {
            source_ranges: ["10.0.0.0/8"].iter().collect(),
            ..annotated(&[("azure-allowed-ip-ranges", "20.0.0.0/8")])
        },
        ServiceObject {
            families: vec![Family::V6],
            ..annotated(&[("azure-load-balancer-internal", "true"), ("azure-pls-create", "true")])
        },
    ];
    let text: Vec<String> = cases.iter().flat_map(mistakes).collect();
    insta::assert_snapshot!(text.join("\n").replace(annotation::PREFIX, "…/"));
}

#[test]
fn a_service_with_more_ports_than_a_load_balancer_has_rules_is_told_so() {
    let with = |count: u16| ServiceObject {
        ports: (1..=count).map(|number| port(PortProtocol::Tcp, number)).collect(),
        ..service()
    };
    let most = u16::try_from(MOST_PORTS).unwrap();
    assert!(parse(&with(most), &settings(), &Existing::default()).is_ok());
    let text = mistakes(&with(most + 1));
    assert!(text.len() == 1 && text[0].contains("spec.ports") && text[0].contains("1500 rules"), "{text:?}");
}

#[test]
fn all_mistakes_of_a_service_are_told_at_once() {
    let object = annotated(&[
        ("azure-load-balancer-tcp-idle-timeout", "1"),
        ("azure-pls-create", "maybe"),
        ("azure-pip-tags", "x"),
    ]);
    assert_eq!(mistakes(&object).len(), 3);
}

#[test]
fn what_has_no_effect_or_is_misspelt_is_a_warning() {
    let mut several = settings();
    several.sku = LoadBalancerSku::Basic;
    let mut text = Vec::new();
    for pairs in [
        &[("azure-load-balancer-interal", "true")][..],
        &[("port_8080_no_lb_rule", "true")],
        &[("azure-load-balancer-mode", "__auto__")],
        &[("azure-load-balancer-configurations", "one")],
        &[("azure-load-balancer-enable-high-availability-ports", "true")],
        &[("azure-deny-all-except-load-balancer-source-ranges", "true")],
        &[("azure-shared-securityrule", "true")],
    ] {
        text.extend(warnings(&annotated(pairs), &settings()));
    }
    text.extend(warnings(&annotated(&[("azure-load-balancer-health-probe-protocol", "https")]), &several));
    let both = ServiceObject {
        source_ranges: ["10.0.0.0/8"].iter().collect(),
        ..annotated(&[("azure-allowed-service-tags", "AzureCloud")])
    };
    text.extend(warnings(&both, &settings()));
    insta::assert_snapshot!(text.join("\n").replace(annotation::PREFIX, "…/"));
}

#[test]
fn an_app_protocol_that_no_probe_speaks_is_no_mistake() {
    let mut object = service();
    object.ports[0].app_protocol = Some("kubernetes.io/h2c".to_owned());
    let ask = parse(&object, &settings(), &Existing::default()).unwrap();
    assert_eq!(ask.families[0].probes[0].protocol, crate::ask::ProbeProtocol::Tcp);
    assert_eq!(ask.warnings, []);
}

#[test]
fn an_annotation_that_pins_the_load_balancer_contradicts_a_named_address() {
    let mut several = settings();
    several.configurations = vec![crate::network::settings::LoadBalancerConfiguration {
        name: "kubernetes".to_owned(),
        primary_vm_set: "agents".to_owned(),
        allow_placement: true,
        service_labels: None,
        namespace_labels: None,
        node_labels: None,
    }];
    let object = annotated(&[("azure-load-balancer-configurations", "Kubernetes"), ("azure-pip-name", "mine")]);
    let mistakes = parse(&object, &several, &Existing::default()).unwrap_err();
    assert_eq!(
        mistakes[0].to_string(),
        "annotation service.beta.kubernetes.io/azure-load-balancer-configurations is \"Kubernetes\": the load balancer is \
         that of the address or public IP that the Service names; remove one of the two"
    );
    let object = annotated(&[("azure-load-balancer-configurations", " Kubernetes ,other")]);
    assert_eq!(
        parse(&object, &several, &Existing::default()).unwrap().placement.configurations,
        ["kubernetes", "other"]
    );
}

#[test]
fn reasons_of_events_are_words() {
    use WarningReason::*;
    for reason in [UnknownAnnotation, IgnoredValue, NoEffect, ConflictConfiguration] {
        assert!(reason.as_str().chars().all(char::is_alphanumeric));
    }
}

#[test]
fn no_annotation_sets_a_tag_that_says_whose_a_public_ip_is() {
    use crate::ask::{AddressAsk, PublicIpAsk};
    let own =
        ["K8S-Azure-Service", "kubernetes-cluster-name", "k8s-azure-dns-label-service", "Lazuli-released-service"];
    for tag in own.into_iter().chain(["lazuli-of-tomorrow"]) {
        let mut object = annotated(&[("azure-pip-tags", &format!("team=x,{tag}=default/web"))]);
        object.families = vec![Family::V4, Family::V6];
        let ask = parse(&object, &settings(), &Existing::default()).unwrap_or_else(|mistakes| panic!("{mistakes:?}"));
        assert_eq!(ask.warnings.len(), 1, "{:?}", ask.warnings);
        assert!(ask.warnings[0].message.contains(tag) && ask.warnings[0].message.contains("azure-pip-tags"));
        for family in &ask.families {
            let AddressAsk::Public(PublicIpAsk::Managed { settings, .. }) = &family.address else {
                panic!("{family:?}")
            };
            assert_eq!(settings.tags, [("team".to_owned(), "x".to_owned())].into(), "{tag}");
        }
    }
}
