//! What the Go manager left behind: a live Service keeps the reading that it was served with.

use super::*;
use crate::ask::{Mistake, Warning};

/// What a Service is read beside that is served on this side.
fn live(side: Side) -> Existing {
    served(&if side == Side::Internal { annotated(&[INTERNAL]) } else { service() })
}

const INTERNAL: (&str, &str) = ("azure-load-balancer-internal", "true");

fn read(object: &ServiceObject, existing: &Existing) -> Ask {
    parse(object, &settings(), existing).unwrap_or_else(|mistakes| panic!("{mistakes:?}"))
}

#[test]
fn a_service_changes_its_side_by_no_spelling_of_true_and_by_no_mistake() {
    let object = annotated(&[("azure-load-balancer-internal", "True")]);
    let ask = read(&object, &live(Side::Public));
    assert_eq!(ask.side, Side::Public);
    assert_eq!(
        ask.warnings.iter().map(|warning: &Warning| warning.message.as_str()).collect::<Vec<_>>(),
        [
            "annotation service.beta.kubernetes.io/azure-load-balancer-internal is \"True\"; the Service stays public: write \
             \"true\" for an internal one"
        ]
    );
    // The Go manager's security rules read it as internal: the world is not let in.
    assert_eq!(ask.access.service_tags, Vec::<String>::new());
    assert_eq!(read(&object, &Existing::default()).side, Side::Internal);
    assert_eq!(read(&object, &live(Side::Internal)).side, Side::Internal);
    // With space around it no part of the Go manager takes it for internal.
    let spaced = read(&annotated(&[("azure-load-balancer-internal", " true")]), &live(Side::Public));
    assert_eq!((spaced.side, spaced.access.service_tags.len()), (Side::Public, 1));
    for value in ["ture", "yes", "1", "internal", "true,", "\u{feff}true"] {
        let object = annotated(&[("azure-load-balancer-internal", value)]);
        assert!(parse(&object, &settings(), &Existing::default()).is_err(), "a new Service: {value}");
        for side in [Side::Public, Side::Internal] {
            let ask = read(&object, &live(side));
            assert_eq!(ask.side, side, "{value}");
            assert!(ask.warnings[0].message.ends_with("what Azure has of it stays"), "{:?}", ask.warnings);
        }
    }
    // While it moves, the side is that of the status.
    let mut both = live(Side::Public);
    both.shown.as_mut().unwrap().frontends.extend(live(Side::Internal).shown.unwrap().frontends);
    let address = IpAddr::from([10, 0, 0, 4]);
    both.shown.as_mut().unwrap().frontends.values_mut().for_each(|one| {
        one.private_address = Some(address).filter(|_| one.public_ip.is_none());
    });
    let typo = annotated(&[("azure-load-balancer-internal", "ture")]);
    let at = |ingress: &[[u8; 4]]| {
        let ingress = ingress.iter().map(|address| IpAddr::from(*address)).collect();
        parse(&ServiceObject { ingress, ..typo.clone() }, &settings(), &both).map(|ask| ask.side)
    };
    assert_eq!(at(&[[10, 0, 0, 4]]), Ok(Side::Internal));
    assert_eq!(at(&[[20, 0, 0, 4]]), Ok(Side::Public));
    assert!(at(&[]).is_err(), "nothing says which");
}

#[test]
fn a_flag_that_cannot_be_read_is_what_azure_shows() {
    let plain = served(&service());
    let at_nodes = served(&annotated(&[("azure-disable-load-balancer-floating-ip", "true")]));
    for value in ["1", "yes", " true "] {
        let object = annotated(&[("azure-disable-load-balancer-floating-ip", value)]);
        let ask = read(&object, &plain);
        assert!(ask.floating_ip, "{value:?}");
        assert_eq!(ask.warnings.len(), 1, "{value:?}");
        // Who was served so by a new Service's reading of " true " stays so with the next process.
        assert!(!read(&object, &at_nodes).floating_ip, "{value:?}");
    }
    let spaced = annotated(&[("azure-disable-load-balancer-floating-ip", " true ")]);
    assert!(!read(&spaced, &Existing::default()).floating_ip);
    let word = annotated(&[("azure-disable-load-balancer-floating-ip", "yes")]);
    assert_eq!(
        parse(&word, &settings(), &Existing::default()).unwrap_err().iter().map(Mistake::to_string).collect::<Vec<_>>(),
        [
            "annotation service.beta.kubernetes.io/azure-disable-load-balancer-floating-ip is \"yes\": allowed is true or false"
        ]
    );
}

#[test]
fn a_range_that_is_none_closes_a_service_new_or_not() {
    let object = annotated(&[("azure-allowed-ip-ranges", "10.0.0.0/8,10.0.0.1/8")]);
    for existing in [Existing::default(), live(Side::Public)] {
        let ask = read(&object, &existing);
        assert_eq!(ask.access.denial, Denial::OfInvalidRange);
        assert_eq!(ask.access.ranges, ["10.0.0.0/8".parse().unwrap()]);
        assert_eq!(ask.access.service_tags, Vec::<String>::new());
        assert!(ask.warnings[0].message.contains("all other sources are denied"), "{:?}", ask.warnings);
        let field = ServiceObject { source_ranges: ["all"].iter().collect(), ..service() };
        assert_eq!(read(&field, &existing).access.denial, Denial::OfInvalidRange);
    }
}

#[test]
fn mistakes_of_a_served_service_are_warnings_and_those_of_a_new_one_refuse_it() {
    for pairs in [
        [("azure-load-balancer-health-probe-protocol", "grpc")],
        [("azure-pip-tags", "a=b,c")],
        [("azure-pip-ip-tags", "RoutingPreference=Internet,x")],
        [("port_80_no_probe_rule", "on")],
        [("azure-load-balancer-tcp-idle-timeout", "soon")],
        [("azure-pip-name", "a b")],
        [("azure-load-balancer-ipv4", "10.0.0.1")],
        [("azure-dns-label-name", "-")],
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
    use crate::ask::SecurityProtocol::{Any, Tcp};
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
