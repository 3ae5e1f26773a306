//! What the security group was told is a record of what goes, where nothing else is.

use lazuli_engine::service::{Level, Reports, Seen, Service as _};
use lazuli_services::ask::SecurityProtocol;

use super::*;
use crate::Admission;

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// What is wanted of the security group for a deleted Service that the status does not show.
fn left(service: &ServiceKey, reports: &Reports<Balanced>, told: &Admission, inputs: &Inputs) -> security_group::Gone {
    let left = BTreeMap::new();
    let seen = Seen { reports, left: &left, told, status: None, has_changed: true, is_complete: true };
    let group = Key::SecurityGroup(inputs.settings.security_group_id().unwrap());
    match Balanced::want(service, None, &group, Level::Clean, &seen, inputs) {
        Want::SecurityGroup(want) => want.gone,
        other => panic!("{other:?} is wanted of a security group"),
    }
}

#[test]
fn an_address_that_nothing_shows_goes_by_the_ports_that_the_security_group_was_told() {
    let inputs = Inputs::new(settings(), BTreeSet::new());
    let web = fresh("web", annotated(&[])).key;
    let told = Admission::from([(address("20.0.0.1"), [(SecurityProtocol::Tcp, 80)].into())]);
    let gone = left(&web, &Reports::<Balanced>::new(), &told, &inputs);
    assert_eq!((gone.destinations, gone.shared), (BTreeSet::new(), told.clone()));

    // An address that is the Service's alone goes whole.
    let id = inputs.settings.public_ip_id(&inputs.settings.resource_group, "web").unwrap();
    let shown = Report { address: Some(address("20.0.0.1")), is_tagged: true, ..Report::default() };
    let reports = Reports::<Balanced>::from([(Key::PublicIp(id), Box::new(shown))]);
    let gone = left(&web, &reports, &told, &inputs);
    assert_eq!((gone.destinations, gone.shared), ([address("20.0.0.1")].into(), Admission::new()));
}

#[test]
fn nodes_are_no_addresses_of_a_service() {
    let nodes = BTreeSet::from([address("10.0.0.200")]);
    let inputs = Inputs::new(settings(), nodes.clone());
    let allow = security_group::Allow {
        protocol: SecurityProtocol::Tcp,
        family: lazuli_model::address::Family::V4,
        sources: vec!["Internet".to_owned()],
        ports: vec![80],
        destinations: [address("10.0.0.200"), address("20.9.9.9")].into(),
    };
    let deny_all = nodes.into_iter().chain([address("20.0.0.1")]).collect();
    let present = security_group::Part { allow: vec![allow], deny_all, ..Default::default() };
    let want = Want::SecurityGroup(network::Want { present, gone: security_group::Gone::default() });
    let mut noted = Admission::new();
    Balanced::note_admission(&want, &inputs, &mut noted);
    let expected =
        [(address("20.9.9.9"), [(SecurityProtocol::Tcp, 80)].into()), (address("20.0.0.1"), BTreeSet::new())];
    assert_eq!(noted, Admission::from(expected));
}

#[test]
fn an_absent_public_ip_is_no_part_only_where_the_service_gives_it_up() {
    let want = |gone| Want::PublicIp(network::Want { present: public_ip::Part::default(), gone });
    let report = |exists: bool, is_tagged: bool| Report { exists, is_tagged, ..Report::default() };
    use lazuli_engine::service::Service as _;
    use public_ip::Gone::{Nothing, Released};
    for (gone, exists, is_tagged, expected) in [
        (Nothing, true, true, Some(true)),
        (Nothing, true, false, Some(false)),
        // A write whose answer was lost may still make it.
        (Nothing, false, false, None),
        (Released, false, false, Some(false)),
        (Released, true, false, Some(false)),
    ] {
        assert_eq!(
            Balanced::has_part(&want(gone), &report(exists, is_tagged)),
            expected,
            "{gone:?} {exists} {is_tagged}"
        );
    }
}
