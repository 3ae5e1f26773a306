//! What the Go manager left behind: a live Service keeps the reading that it was served with.

use super::*;
use crate::service::{Mistake, Warning};

fn live(side: Side) -> Existing {
    Existing { side: Some(side), ..Existing::default() }
}

fn read(object: &ServiceObject, existing: &Existing) -> Ask {
    parse(object, &settings(), existing).unwrap_or_else(|mistakes| panic!("{mistakes:?}"))
}

fn changed(side: Side, key: &str) -> Existing {
    Existing { side: Some(side), changed: [format!("{}{key}", annotation::PREFIX)].into() }
}

#[test]
fn a_public_service_whose_internal_is_true_in_other_letters_stays_public_until_it_changes() {
    let object = annotated(&[("azure-load-balancer-internal", "True")]);
    let ask = read(&object, &live(Side::Public));
    assert_eq!(ask.side, Side::Public);
    assert_eq!(
        ask.warnings.iter().map(|warning: &Warning| warning.message.as_str()).collect::<Vec<_>>(),
        [
            "annotation service.beta.kubernetes.io/azure-load-balancer-internal is \"True\"; the Service stays public until the \
          annotation changes: write \"true\" for an internal one"
        ]
    );
    // The Go manager's security rules read it as internal: the world is not let in.
    assert_eq!(ask.access.service_tags, Vec::<String>::new());
    assert_eq!(read(&object, &changed(Side::Public, "azure-load-balancer-internal")).side, Side::Internal);
    assert_eq!(read(&object, &Existing::default()).side, Side::Internal);
    assert_eq!(read(&object, &live(Side::Internal)).side, Side::Internal);
    // With space around it no part of the Go manager takes it for internal.
    let spaced = read(&annotated(&[("azure-load-balancer-internal", " true")]), &live(Side::Public));
    assert_eq!((spaced.side, spaced.access.service_tags.len()), (Side::Public, 1));
}

#[test]
fn a_flag_that_the_go_manager_took_for_false_stays_false_until_it_changes() {
    for value in ["1", "yes", " true "] {
        let object = annotated(&[("azure-disable-load-balancer-floating-ip", value)]);
        let ask = read(&object, &live(Side::Public));
        assert!(ask.floating_ip, "{value:?}");
        assert_eq!(ask.warnings.len(), 1, "{value:?}");
    }
    let spaced = annotated(&[("azure-disable-load-balancer-floating-ip", " true ")]);
    assert!(!read(&spaced, &Existing::default()).floating_ip);
    assert!(!read(&spaced, &changed(Side::Public, "azure-disable-load-balancer-floating-ip")).floating_ip);
    let word = annotated(&[("azure-disable-load-balancer-floating-ip", "yes")]);
    let refused = parse(&word, &settings(), &changed(Side::Public, "azure-disable-load-balancer-floating-ip"));
    assert_eq!(
        refused.unwrap_err().iter().map(Mistake::to_string).collect::<Vec<_>>(),
        [
            "annotation service.beta.kubernetes.io/azure-disable-load-balancer-floating-ip is \"yes\": allowed is true or false"
        ]
    );
}

#[test]
fn a_range_that_is_none_closes_a_live_service_and_is_a_mistake_of_a_new_one() {
    let object = annotated(&[("azure-allowed-ip-ranges", "10.0.0.0/8,10.0.0.1/8")]);
    assert!(parse(&object, &settings(), &Existing::default()).is_err());
    let access = read(&object, &live(Side::Public)).access;
    assert!(access.deny_all_else);
    assert_eq!(access.ranges, ["10.0.0.0/8".parse().unwrap()]);
    assert_eq!(access.service_tags, Vec::<String>::new());
    let field = ServiceObject { source_ranges: vec!["all".to_owned()], ..service() };
    assert!(parse(&field, &settings(), &Existing::default()).is_err());
    assert!(read(&field, &live(Side::Public)).access.deny_all_else);
}

#[test]
fn a_probe_protocol_and_pairs_that_are_none_are_ignored_on_a_live_service() {
    for pairs in [
        [("azure-load-balancer-health-probe-protocol", "grpc")],
        [("azure-pip-tags", "a=b,c")],
        [("azure-pip-ip-tags", "RoutingPreference=Internet,x")],
        [("port_80_no_probe_rule", "on")],
    ] {
        let object = annotated(&pairs);
        assert!(parse(&object, &settings(), &Existing::default()).is_err(), "{pairs:?}");
        assert_eq!(read(&object, &live(Side::Public)).warnings.len(), 1, "{pairs:?}");
    }
}

#[test]
fn what_a_service_was_given_stays_while_its_specification_is_wrong() {
    let object = ServiceObject {
        ports: vec![port(PortProtocol::Tcp, 80), port(PortProtocol::Sctp, 90)],
        ingress: vec!["20.0.0.4".parse().unwrap()],
        ..annotated(&[("azure-load-balancer-tcp-idle-timeout", "1")])
    };
    use crate::service::SecurityProtocol::{Any, Tcp};
    let kept = wants::kept_ports(&object);
    assert_eq!(kept, [("20.0.0.4".parse().unwrap(), [(Tcp, 80), (Any, 90)].into())].into());
}

#[test]
fn a_status_has_every_family_and_then_the_additional_addresses() {
    let object = ServiceObject {
        families: vec![Family::V6, Family::V4],
        ..annotated(&[("azure-additional-public-ips", "20.9.9.9")])
    };
    let ask = read(&object, &Existing::default());
    let mut addresses: BTreeMap<Family, IpAddr> = [(Family::V6, "2001:db8::4".parse().unwrap())].into();
    assert_eq!(wants::ingress(&ask, &addresses), None);
    addresses.insert(Family::V4, "20.0.0.4".parse().unwrap());
    let ingress = wants::ingress(&ask, &addresses).unwrap();
    assert_eq!(ingress.iter().map(ToString::to_string).collect::<Vec<_>>(), ["20.0.0.4", "2001:db8::4", "20.9.9.9"]);
    let turned: Vec<IpAddr> = ingress.iter().rev().copied().collect();
    assert!(wants::is_same_ingress(&ingress, &turned));
    assert!(!wants::is_same_ingress(&ingress, &turned[1..]));
}

#[test]
fn a_service_is_ours_by_type_and_class() {
    let mut object = service();
    assert!(object.wants_load_balancer(None));
    assert!(!object.wants_load_balancer(Some("lazuli.azure/canary")));
    object.load_balancer_class = Some("lazuli.azure/canary".to_owned());
    assert!(!object.wants_load_balancer(None));
    assert!(object.wants_load_balancer(Some("lazuli.azure/canary")));
    object.is_deleting = true;
    assert!(!object.wants_load_balancer(Some("lazuli.azure/canary")));
    assert!(!ServiceObject { is_load_balancer: false, ..service() }.wants_load_balancer(None));
}
