//! What a process finds of Services that it meets first as going.

use super::*;

/// What is expected of a Service.
pub(super) fn standing(object: &ServiceObject) -> discovery::Standing {
    let goes = object.is_deleting || !object.is_load_balancer;
    if goes { discovery::Standing::Going } else { discovery::Standing::Served }
}

impl World {
    /// Lists what is to be listed for all Services, as a process does.
    pub(super) fn discover(&mut self) {
        let settings = self.inputs.settings.clone();
        let services = self.services.values().map(|owner| (&owner.object, standing(&owner.object)));
        for place in self.discovered.due(services, Duration::ZERO, &settings) {
            let is_there = |id: &ArmId| id.resource_group().eq_ignore_ascii_case(&place.group);
            let listed =
                self.public_ips.iter().filter(|(id, _)| is_there(id)).filter_map(|(id, track)| {
                    track.body.as_ref().map(|body| public_ip::PublicIp::read(id, body).unwrap())
                });
            let now = self.clock.now;
            if self.closed.contains(&place.group) {
                self.discovered.not_listed(&place, "it is closed".to_owned());
            } else if place.kind == discovery::Kind::PublicIp {
                self.discovered.public_ips_listed(&place, now, listed, &settings);
            } else {
                self.discovered.private_links_listed(&place, now, [], &settings);
            }
        }
    }

    /// Lets an object be written that may not exist.
    pub(super) fn track(&mut self, id: &ArmId) {
        let settings = &self.inputs.settings;
        let track = || Track {
            id: id.clone(),
            state: object::State::default(),
            inputs: public_ip_env(settings, id),
            body: None,
            version: 0,
            read: |id: &ArmId, body: &Value| public_ip::PublicIp::read(id, body).unwrap(),
            apply: |body: Option<Value>, op: &Vec<public_ip::Edit>, env: &public_ip::Env| {
                public_ip::apply_raw(body, op, env)
            },
        };
        self.public_ips.entry(id.clone()).or_insert_with(track);
    }
}

#[test]
fn a_service_met_first_as_going_leaves_nothing_in_the_group_that_its_annotation_names() {
    let mut world = World::new();
    let web = fresh("web", annotated(&[("azure-load-balancer-resource-group", "Addresses")]));
    world.change(web.clone());
    assert_eq!(world.public_ips.keys().map(ArmId::resource_group).collect::<Vec<_>>(), ["Addresses"]);
    // No process runs when its owner deletes it.
    world.services.get_mut(&web.key).unwrap().object.is_deleting = true;
    world.restart();
    assert!(world.services.is_empty(), "{:#?}", world.clock.writes);
    assert_eq!(world.holds(), Vec::<String>::new(), "{:#?}", world.clock.writes);
}

#[test]
fn an_annotation_that_went_with_the_process_hides_no_public_ip() {
    let mut world = World::new();
    let other = fresh("other", annotated(&[("azure-load-balancer-resource-group", "addresses")]));
    let web = fresh("web", annotated(&[("azure-load-balancer-resource-group", "addresses")]));
    world.change(other.clone());
    world.change(web.clone());
    let owner = world.services.get_mut(&web.key).unwrap();
    owner.object.annotations.clear();
    owner.object.is_deleting = true;
    world.restart();
    assert!(!world.services.contains_key(&web.key), "{:#?}", world.clock.writes);
    assert_eq!(world.public_ips.values().filter(|track| track.body.is_some()).count(), 1, "{:?}", world.holds());
    assert_eq!(world.status(&other.key), ["20.0.0.1"]);
}

#[test]
fn a_group_that_cannot_be_read_keeps_the_finalizer_and_the_owner_is_told_after_a_minute() {
    let mut world = World::new();
    let other = fresh("other", annotated(&[]));
    let web = fresh("web", annotated(&[("azure-load-balancer-resource-group", "addresses")]));
    world.change(other.clone());
    world.change(web.clone());
    for key in [&other.key, &web.key] {
        world.services.get_mut(key).unwrap().object.is_deleting = true;
    }
    world.closed.insert("addresses".to_owned());
    world.restart();
    assert!(!world.services.contains_key(&other.key), "it names another group");
    let owner = &world.services[&web.key];
    assert!(owner.object.has_finalizer);
    let told = owner.events.iter().filter_map(|event| match event {
        service::Reason::Unread(places) => Some(places.join("; ")),
        _ => None,
    });
    let told: Vec<String> = told.collect();
    assert_eq!(told, ["the public IPs of resource group addresses cannot be read: it is closed"]);

    world.closed.clear();
    let object = world.services[&web.key].object.clone();
    world.change(object);
    assert!(world.services.is_empty(), "{:#?}", world.clock.writes);
    assert_eq!(world.holds(), Vec::<String>::new(), "{:#?}", world.clock.writes);
}

#[test]
fn a_public_ip_that_an_outbound_rule_of_others_uses_stays_and_the_service_goes() {
    let mut world = World::new();
    let web = fresh("web", annotated(&[]));
    world.change(web.clone());
    let frontend = {
        let track = world.load_balancers.values_mut().find(|track| track.body.is_some()).unwrap();
        let body = track.body.as_mut().unwrap();
        let name = body["properties"]["frontendIPConfigurations"][0]["name"].as_str().unwrap().to_owned();
        let id = load_balancer::LoadBalancer::frontend_id(&track.id, &name);
        let rule = json!({"name": "egress", "properties": {"frontendIPConfigurations": [{"id": id.as_str()}]}});
        body["properties"]["outboundRules"] = json!([rule]);
        id
    };
    for track in world.public_ips.values_mut() {
        track.body.as_mut().unwrap()["properties"]["ipConfiguration"] = json!({"id": frontend.as_str()});
    }
    world.restart();
    world.delete(&[&web.key]);
    assert!(world.services.is_empty(), "{:#?}", world.clock.writes);
    let holds = world.holds();
    assert!(holds.len() == 2 && holds.contains(&"kubernetes".to_owned()), "public IP and load balancer: {holds:?}");
    assert_eq!(world.rules(), []);
    let notices = world.notices.iter().map(|notice| notice.message.as_str()).collect::<Vec<_>>();
    assert!(notices.iter().any(|notice| notice.contains(frontend.as_str()) && notice.contains("stays")), "{notices:?}");
}
