//! Load balancers that stay: the operator fills their pools, or they have parts of others.

use lazuli_services::network::RefusalReason;

use super::*;

/// The members of a pool of each kind.
fn kinds() -> [Value; 2] {
    let nic = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/networkInterfaces/n/ipConfigurations/i";
    [
        json!({"loadBalancerBackendAddresses": [{"name": "x", "properties": {"ipAddress": "10.9.9.9"}}]}),
        json!({"backendIPConfigurations": [{ "id": nic }]}),
    ]
}

/// A world whose load balancers the operator has made, with these members.
fn preconfigured(members: &Value) -> World {
    let mut world = World::new();
    for track in world.load_balancers.values_mut() {
        track.inputs.is_preconfigured = true;
        track.inputs.pools.values_mut().for_each(|members| members.addresses.clear());
        track.body = Some(
            json!({"name": track.id.name(), "location": "l", "sku": {"name": "Standard"}, "id": track.id.as_str(),
            "properties": {"provisioningState": "Succeeded",
                "backendAddressPools": [{"name": "kubernetes", "properties": members}]}}),
        );
    }
    world
}

impl World {
    fn balancer(&self, name: &str) -> load_balancer::LoadBalancer {
        let track = self.load_balancers.values().find(|track| track.id.name() == name).unwrap();
        (track.read)(&track.id, track.body.as_ref().expect("the load balancer stays"))
    }

    /// The names of the frontends of a load balancer, and whether it has rules or probes.
    fn frontends(&self, name: &str) -> (Vec<String>, bool) {
        let balancer = self.balancer(name);
        let names = balancer.frontends.iter().map(|frontend| frontend.name.clone()).collect();
        (names, !balancer.rules.is_empty() || !balancer.probes.is_empty())
    }

    fn pool(&self, name: &str) -> Value {
        let track = self.load_balancers.values().find(|track| track.id.name() == name).unwrap();
        track.body.as_ref().unwrap()["properties"]["backendAddressPools"][0]["properties"].clone()
    }

    fn addresses(&self) -> usize {
        self.public_ips.values().filter(|track| track.body.is_some()).count()
    }
}

fn base(object: &ServiceObject) -> String {
    BaseName::of(&object.key).to_string()
}

#[test]
fn the_operators_load_balancer_and_its_pools_stay_and_its_last_frontend_until_another_comes() {
    for members in kinds() {
        for internal in [false, true] {
            let mut world = preconfigured(&members);
            let (name, annotations): (_, &[_]) = match internal {
                false => ("kubernetes", &[]),
                true => ("kubernetes-internal", &[("azure-load-balancer-internal", "true")]),
            };
            let (one, two) = (fresh("one", annotated(annotations)), fresh("two", annotated(annotations)));
            world.change(one.clone());
            assert_eq!(world.pool(name), members, "no member comes or goes");
            world.delete(&[&one.key]);
            assert!(world.services.is_empty(), "nothing holds the finalizer: {:#?}", world.clock.writes);
            assert_eq!(world.pool(name), members);
            assert_eq!(world.frontends(name), (vec![base(&one)], false));
            assert_eq!(world.rules(), []);
            assert_eq!(world.addresses(), usize::from(!internal));
            let notice = world.notices.last().unwrap();
            assert_eq!(notice.reason, RefusalReason::LastFrontend);
            assert!(notice.message.contains(&base(&one)) && notice.message.contains(name), "{notice}");

            // Another Service comes to another process.
            world.restart();
            world.change(two.clone());
            assert_eq!(world.frontends(name), (vec![base(&two)], true), "{:#?}", world.clock.writes);
            assert_eq!(world.addresses(), usize::from(!internal), "{:?}", world.holds());
            assert_eq!(world.pool(name), members);
            assert_eq!(world.balancer(name).tags, BTreeMap::new());
            assert!(world.tagged(&one.key).is_empty());
            world.restart();
            assert_eq!(world.clock.writes, Vec::<String>::new());
        }
    }
}

#[test]
fn a_service_that_comes_back_has_the_frontend_and_the_address_that_stayed() {
    let mut world = preconfigured(&kinds()[0]);
    let (one, two) = (fresh("one", annotated(&[])), fresh("two", annotated(&[])));
    world.change(one.clone());
    let inner = annotated(&[("azure-load-balancer-internal", "true")]).annotations;
    let mut object = world.services[&one.key].object.clone();
    object.annotations = inner;
    world.change(object.clone());
    assert_eq!(world.frontends("kubernetes"), (vec![base(&one)], false));
    assert_eq!(world.frontends("kubernetes-internal"), (vec![base(&one)], true));
    object.annotations = one.annotations.clone();
    world.change(object);
    assert_eq!(world.status(&one.key), ["20.0.0.1"]);
    assert_eq!(world.frontends("kubernetes"), (vec![base(&one)], true));
    world.restart();
    assert_eq!(world.clock.writes, Vec::<String>::new());
    world.change(two.clone());
    let mut both = vec![base(&one), base(&two)];
    let mut there = world.frontends("kubernetes").0;
    both.sort();
    there.sort();
    assert_eq!(there, both, "what is in service again does not go");
    assert_eq!(world.tagged(&one.key).len(), 1);
}

#[test]
fn two_services_that_leave_together_leave_one_frontend() {
    let mut world = preconfigured(&kinds()[0]);
    let (one, two) = (fresh("one", annotated(&[])), fresh("two", annotated(&[])));
    world.change(one.clone());
    world.change(two.clone());
    world.delete(&[&one.key, &two.key]);
    assert!(world.services.is_empty());
    assert_eq!(world.frontends("kubernetes").0.len(), 1);
    assert_eq!(world.addresses(), 1, "{:?}", world.holds());
}

#[test]
fn a_shared_frontend_that_was_the_last_stays_with_its_public_ip() {
    let mut world = preconfigured(&kinds()[0]);
    let [one, two] = world.on_one_public_ip();
    world.delete(&[&one]);
    world.delete(&[&two]);
    assert!(world.services.is_empty());
    assert_eq!((world.frontends("kubernetes").0.len(), world.addresses()), (1, 1));
    let other = fresh("other", annotated(&[]));
    world.change(other.clone());
    assert_eq!(world.frontends("kubernetes"), (vec![base(&other)], true));
    assert_eq!(world.addresses(), 1, "{:?}", world.holds());
}

#[test]
fn a_load_balancer_with_a_pool_of_others_keeps_its_last_frontend() {
    let mut world = World::new();
    let one = fresh("one", annotated(&[]));
    world.change(one.clone());
    let track = world.load_balancers.values_mut().find(|track| track.body.is_some()).unwrap();
    let pools = track.body.as_mut().unwrap()["properties"]["backendAddressPools"].as_array_mut().unwrap();
    pools.push(json!({"name": "theirs", "properties": {}}));
    track.version += 1;
    world.restart();
    world.delete(&[&one.key]);
    assert!(world.services.is_empty(), "{:#?}", world.clock.writes);
    assert_eq!(world.frontends("kubernetes"), (vec![base(&one)], false));
    assert_eq!(world.balancer("kubernetes").pools.len(), 2);
}

#[test]
fn a_frontend_that_stayed_makes_no_typing_error_of_a_new_service_public() {
    let mut world = preconfigured(&kinds()[0]);
    let web = fresh("web", annotated(&[]));
    world.change(web.clone());
    let object = world.services[&web.key].object.clone();
    world.change(ServiceObject { is_load_balancer: false, ..object.clone() });
    assert_eq!(world.frontends("kubernetes").0.len(), 1, "the last frontend stays");
    let annotations = annotated(&[("azure-load-balancer-internal", "ture")]).annotations;
    world.change(ServiceObject { annotations, is_load_balancer: true, ..object });
    assert!(world.status(&web.key).is_empty(), "{:?}", world.status(&web.key));
}
