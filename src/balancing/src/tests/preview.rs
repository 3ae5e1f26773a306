//! What a preview says, compared with what the controller then writes.

use std::sync::Arc;

use lazuli_services::network::private_link;

use super::*;
use crate::preview::{Environment, Observed, Planned, Subject, preview};

struct Settled<'w>(&'w World);

impl Environment for Settled<'_> {
    fn load_balancer(&self, id: &ArmId) -> Arc<load_balancer::Env> {
        Arc::new(self.0.load_balancers[id].inputs.clone())
    }

    fn public_ip(&self, id: &ArmId) -> Arc<public_ip::Env> {
        Arc::new(public_ip_env(&self.0.inputs.settings, id))
    }

    fn security_group(&self, _: &ArmId) -> Arc<security_group::Env> {
        Arc::new(security_group_env(&self.0.inputs.settings))
    }

    fn private_link(&self, _: &ArmId) -> Arc<private_link::Env> {
        unreachable!("no Service asks for one")
    }
}

fn planned(world: &mut World, objects: &[ServiceObject]) -> Vec<Planned> {
    let mut subjects = Vec::new();
    for object in objects {
        let snapshot = world.snapshot(object, 0);
        let spec = match snapshot.desired {
            Desired::Present(spec) => Some(spec),
            Desired::Gone => None,
            Desired::Invalid(mistakes) => panic!("{mistakes:?}"),
        };
        subjects.push(Subject {
            key: object.key.clone(),
            spec,
            found: snapshot.found,
            status: snapshot.status,
            finalizer: snapshot.finalizer,
        });
    }
    let mut observed = Observed::default();
    for track in world.load_balancers.values() {
        observed
            .load_balancers
            .extend(track.body.as_ref().map(|body| (track.id.clone(), (track.read)(&track.id, body))));
    }
    for track in world.public_ips.values() {
        observed.public_ips.extend(track.body.as_ref().map(|body| (track.id.clone(), (track.read)(&track.id, body))));
    }
    let group = &world.group;
    let body = group.body.as_ref().unwrap();
    observed.security_groups.insert(group.id.clone(), (group.read)(&group.id, body));
    let inputs = world.inputs.clone();
    preview(observed, &subjects, &inputs, &Settled(world))
}

fn words(planned: &[Planned]) -> String {
    planned.iter().map(|one| format!("{one}\n")).collect()
}

#[test]
fn a_new_service_is_shown_whole_and_removes_nothing() {
    let mut world = World::new();
    let web = fresh("web", annotated(&[]));
    let planned = planned(&mut world, std::slice::from_ref(&web));
    let text = words(&planned);
    assert!(planned.iter().all(|one| !one.replaces), "{text}");
    for part in [
        "create it, IPv4",
        "write frontend a",
        "write rule a",
        "allow Tcp from Internet to an address that Azure chooses at ports 80",
        "add the finalizer",
        "set the status to an address that Azure chooses",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn nothing_is_shown_where_all_is_as_it_should_be() {
    let mut world = World::new();
    let all = [
        fresh("web", annotated(&[])),
        fresh("inner", annotated(&[("azure-load-balancer-internal", "true")])),
        fresh("closed", annotated(&[("azure-allowed-service-tags", "AzureCloud")])),
        // Its private address is known once the load balancer was planned.
        fresh(
            "ranged",
            ServiceObject {
                source_ranges: ["10.1.0.0/16"].iter().collect(),
                ..annotated(&[("azure-load-balancer-internal", "true")])
            },
        ),
    ];
    all.iter().for_each(|object| world.change(object.clone()));
    let objects: Vec<ServiceObject> = world.services.values().map(|owner| owner.object.clone()).collect();
    assert_eq!(planned(&mut world, &objects), []);
}

#[test]
fn what_a_change_removes_or_replaces_is_said() {
    let mut world = World::new();
    let web = fresh("web", annotated(&[]));
    world.change(web.clone());
    let object = world.services[&web.key].object.clone();
    let inner = annotated(&[("azure-load-balancer-internal", "true")]).annotations;
    let changed = ServiceObject { annotations: inner, ..object.clone() };
    let shown = planned(&mut world, &[changed]);
    let text = words(&shown);
    assert!(text.contains("load balancer kubernetes (removes, replaces or opens):\n"), "{text}");
    assert!(text.contains("load balancer kubernetes-internal:\n"), "{text}");
    assert!(text.contains("delete it"), "{text}");

    let gone = ServiceObject { is_deleting: true, has_finalizer: true, ..object };
    let text = words(&planned(&mut world, &[gone]));
    assert_eq!(text.matches("delete it").count(), 2, "load balancer and public IP: {text}");
    assert!(text.contains("remove the finalizer"), "{text}");
}

#[test]
fn a_service_keeps_a_public_ip_of_a_group_that_is_not_allowed_and_is_told_and_a_new_one_gets_none() {
    let mut world = World::new();
    let of_group = |name: &str, group: &str| fresh(name, annotated(&[("azure-load-balancer-resource-group", group)]));
    let kept = of_group("kept", "others");
    world.change(kept.clone());
    assert_eq!(world.status(&kept.key), ["20.0.0.1"]);
    let objects = |world: &World| world.services.values().map(Owner::as_shown).collect::<Vec<_>>();
    let all = objects(&world);
    assert_eq!(words(&planned(&mut world, &all)), "");

    world.inputs.settings.allowed_groups = Some(["addresses".to_owned()].into());
    world.notices.clear();
    world.restart();
    assert_eq!((world.clock.writes.as_slice(), world.status(&kept.key)), (&[][..], vec!["20.0.0.1".to_owned()]));
    let told: Vec<&network::Refusal> = world.notices.iter().collect();
    assert!(!told.is_empty() && told.iter().all(|one| one.reason == network::RefusalReason::KeptValue), "{told:?}");
    assert!(told[0].message.contains("of resource group others, though"), "{told:?}");
    let text = words(&planned(&mut world, &all));
    assert!(text.contains("leave as it is: the Service keeps public IP"), "{text}");

    // A new Service gets one where that is allowed.
    for (name, group, is_served) in [("new", "others", false), ("another", "Addresses", true), ("own", "group", true)] {
        let object = of_group(name, group);
        world.change(object.clone());
        assert_eq!(!world.status(&object.key).is_empty(), is_served, "{group}");
        let events = &world.services[&object.key].events;
        let is_refused = matches!(events.last(), Some(service::Reason::Refused(_, lazuli_engine::Refusal::Plan(why)))
            if why.reason == "ForeignOwner" && why.message.contains("--allowed-service-resource-groups"));
        assert_eq!(is_refused, !is_served, "{events:?}");
    }
}

#[test]
fn an_address_of_an_annotation_that_stays_because_the_status_has_it_is_shown() {
    let mut world = World::new();
    let web = fresh("web", annotated(&[]));
    world.change(web.clone());
    let owner = world.services.get_mut(&web.key).unwrap();
    owner.status.as_mut().unwrap().push("10.1.1.1".parse().unwrap());
    let annotations = annotated(&[("azure-additional-public-ips", "10.1.1.1")]).annotations;
    let object = ServiceObject { annotations, ..owner.object.clone() };
    let text = words(&planned(&mut world, &[object]));
    assert!(text.contains("Service default/web:"), "{text}");
    assert!(
        text.contains(
            "leave as it is: annotation service.beta.kubernetes.io/azure-additional-public-ips names 10.1.1.1"
        )
    );
}

#[test]
fn what_a_service_does_not_get_at_the_address_of_another_is_noted() {
    let mut world = World::new();
    world.change(fresh("owner", annotated(&[])));
    let name = world.public_ips.keys().next().unwrap().name().to_owned();
    let mut guest = fresh("guest", annotated(&[("azure-pip-name", &name), ("port_8443_no_lb_rule", "true")]));
    guest.key.namespace = "another".to_owned();
    guest.ports = vec![port(PortProtocol::Tcp, 443), port(PortProtocol::Tcp, 8443)];
    let objects = |world: &World, guest: &ServiceObject| {
        let there = world.services.values().map(Owner::as_shown);
        there.chain([guest.clone()]).collect::<Vec<_>>()
    };
    let all = objects(&world, &guest);
    let text = words(&planned(&mut world, &all));
    let of_guest = text.split("Service another/guest:").nth(1).unwrap_or_else(|| panic!("{text}"));
    assert!(of_guest.contains("note: "), "{text}");
    // In the owner's namespace nothing is left out.
    guest.key.namespace = "default".to_owned();
    let all = objects(&world, &guest);
    let text = words(&planned(&mut world, &all));
    assert!(!text.contains("note: "), "{text}");
}
