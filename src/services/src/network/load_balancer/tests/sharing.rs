//! Services that share an address, and ports that are taken.

use super::*;

/// A Service on the public IP of this name.
fn on(number: u8, ports: &[u16], public_ip: &str) -> ServiceObject {
    ServiceObject { annotations: annotated(&[("azure-pip-name", public_ip)]).annotations, ..numbered(number, ports) }
}

fn frontend_of(body: &Value, rule: &str) -> String {
    let rules = body["properties"]["loadBalancingRules"].as_array().unwrap();
    let rule = rules.iter().find(|item| item["name"] == rule).unwrap();
    rule["properties"]["frontendIPConfiguration"]["id"].as_str().unwrap().rsplit('/').next().unwrap().to_owned()
}

#[test]
fn two_services_on_one_public_ip_share_a_frontend_also_when_they_come_together() {
    let (one, two) = (on(1, &[80], "shared"), on(2, &[443], "shared"));
    let body = settle(&wants_of(&[&one, &two]), None, &env()).unwrap();
    assert_eq!(names(&body, "frontendIPConfigurations"), [base(&one)].into());
    assert_eq!(frontend_of(&body, &format!("{}-TCP-443", base(&two))), base(&one));
}

#[test]
fn a_service_joins_the_frontend_that_has_its_address_whatever_its_order() {
    let (one, two) = (on(1, &[80], "shared"), on(2, &[443], "shared"));
    let body = settle(&wants_of(&[&two]), None, &env());
    let body = settle(&wants_of(&[&one, &two]), body, &env()).unwrap();
    assert_eq!(names(&body, "frontendIPConfigurations"), [base(&two)].into());
}

#[test]
fn the_first_service_of_a_shared_address_leaves_its_frontend_to_the_others() {
    let (one, two) = (on(1, &[80], "shared"), on(2, &[443], "shared"));
    let mut env = env();
    env.pools.insert("kubernetes".to_owned(), members::nic_pool());
    let both = wants_of(&[&one, &two]);
    let body = settle(&both, None, &env);
    let left = without(both, &one);
    let (_, body) = step(&left, body, &env);
    assert_eq!(names(body.as_ref().unwrap(), "frontendIPConfigurations"), [base(&one)].into());
    assert_eq!(names(body.as_ref().unwrap(), "loadBalancingRules").len(), 1);
    let (plan, _) = step(&left, body.clone(), &env);
    assert!(plan.is_quiet());
    assert!(matches!(plan.served[&one.key], Served::Done(_)));
    // The frontend goes with the last of them, though its Service is no longer known.
    let only: Wants = without(Wants::new(), &two);
    assert_eq!(step(&only, body, &env).0.edits, [Edit::Delete]);
}

#[test]
fn a_load_balancer_that_was_left_without_frontends_goes_with_the_service_that_gives_up_its_public_ip() {
    let (one, mut env) = (on(1, &[80], "first"), env());
    env.pools.insert("kubernetes".to_owned(), members::nic_pool());
    let mut body = settle(&wants_of(&[&one]), None, &env).unwrap();
    for list in ["frontendIPConfigurations", "loadBalancingRules", "probes"] {
        body["properties"][list] = json!([]);
    }
    // A Service that is only not on it does not delete it.
    assert!(step(&without(Wants::new(), &one), Some(body.clone()), &env).0.is_quiet());
    let public_ips = [settings().public_ip_id("group", "first").unwrap()].into();
    let former = Former { public_ips, ..Former::default() };
    let left = wants::load_balancer_left(&one.key, &settings(), &former, Stage::Trimming);
    let left = Wants::from([(one.key.clone(), left)]);
    // One that needs it keeps it.
    let two = on(2, &[443], "second");
    let both = wants_of(&[&two]).into_iter().chain(left.clone()).collect();
    assert!(settle(&both, Some(body.clone()), &env).is_some());
    let (plan, after) = step(&left, Some(body.clone()), &env);
    assert_eq!((plan.served[&one.key].clone(), after), (Served::Pending, None));
    assert!(matches!(step(&left, None, &env).0.served[&one.key], Served::Done(_)));
    // A pool of another owner keeps it too.
    body["properties"]["backendAddressPools"]
        .as_array_mut()
        .unwrap()
        .push(json!({ "name": "theirs", "properties": {} }));
    assert!(step(&left, Some(body), &env).0.is_quiet());
}

#[test]
fn a_shared_frontend_does_not_get_another_address() {
    let (one, two) = (on(1, &[80], "shared"), on(2, &[443], "shared"));
    let body = settle(&wants_of(&[&one, &two]), None, &env());
    let moved = on(1, &[80], "other");
    let (plan, after) = step(&wants_of(&[&moved, &two]), body.clone(), &env());
    assert_eq!(after, body);
    assert_eq!(
        refusal(&plan, &moved),
        Refusal::new(
            RefusalReason::WouldReplaceAddress,
            format!(
                "frontend {} of load balancer kubernetes cannot get another address while Service default/web2 uses it; move \
                 that Service first",
                base(&one)
            )
        )
    );
    assert!(matches!(plan.served[&two.key], Served::Done(_)));
}

#[test]
fn a_frontend_of_ones_own_gets_another_public_ip_in_place() {
    let one = on(1, &[80], "first");
    let body = settle(&wants_of(&[&one]), None, &env());
    let moved = on(1, &[80], "second");
    let (plan, after) = step(&wants_of(&[&moved]), body, &env());
    assert!(matches!(plan.edits.as_slice(), [Edit::PutFrontend(_)]), "{plan:?}");
    let frontend = &after.unwrap()["properties"]["frontendIPConfigurations"][0];
    assert_eq!(frontend["properties"]["publicIPAddress"]["id"], format!("{SUBSCRIPTION}/publicIPAddresses/second"));
}

#[test]
fn a_port_of_a_shared_address_belongs_to_the_service_that_has_it() {
    let (one, two) = (on(1, &[80], "shared"), on(2, &[80, 443], "shared"));
    let body = settle(&wants_of(&[&two]), None, &env());
    let (plan, after) = step(&wants_of(&[&one, &two]), body.clone(), &env());
    assert_eq!(after, body);
    let expected = format!(
        "port 80 (Tcp) of frontend {} is taken by Service default/web2; choose another port or another address",
        base(&two)
    );
    assert_eq!(refusal(&plan, &one), Refusal::new(RefusalReason::PortConflict, expected));
    assert!(matches!(plan.served[&two.key], Served::Done(_)));
    // Another protocol on the same port is no conflict.
    let udp = ServiceObject { ports: vec![port(PortProtocol::Udp, 80)], ..one };
    assert!(!step(&wants_of(&[&udp, &two]), body, &env()).0.is_quiet());
}

#[test]
fn a_port_is_free_again_when_its_service_leaves_in_the_same_write() {
    let (one, two) = (on(1, &[80], "shared"), on(2, &[80], "shared"));
    let body = settle(&wants_of(&[&one]), None, &env());
    let body = settle(&without(wants_of(&[&one, &two]), &one), body, &env()).unwrap();
    assert_eq!(names(&body, "loadBalancingRules"), [format!("{}-TCP-80", base(&two))].into());
}

#[test]
fn inbound_nat_and_rules_of_no_known_service_keep_their_ports() {
    let one = on(1, &[80], "shared");
    let mut body = settle(&wants_of(&[&one]), None, &env()).unwrap();
    let frontend = json!({ "id": format!("{}/frontendIPConfigurations/{}", env().id, base(&one)) });
    body["properties"]["inboundNatPools"] = json!([{ "name": "ssh", "properties": {
        "frontendIPConfiguration": frontend, "protocol": "TCP", "frontendPortRangeStart": 50000, "frontendPortRangeEnd": 50119
    }}]);
    body["properties"]["inboundNatRules"] = json!([{ "name": "rdp", "properties": {
        "frontendIPConfiguration": frontend, "protocol": "Tcp", "frontendPort": 3389
    }}]);
    body["properties"]["loadBalancingRules"].as_array_mut().unwrap().push(json!({ "name": "manual", "properties": {
        "frontendIPConfiguration": frontend, "protocol": "Tcp", "frontendPort": 8443
    }}));
    for (port, what) in [
        (50_010, "inbound NAT ssh (50000-50119)"),
        (3389, "inbound NAT rdp (3389-3389)"),
        (8443, "rule manual, which belongs to no known Service,"),
    ] {
        let (plan, _) = step(&wants_of(&[&one, &on(2, &[port], "shared")]), Some(body.clone()), &env());
        let refusal = refusal(&plan, &on(2, &[port], "shared"));
        assert!(refusal.message.contains(what), "{refusal}");
        assert!(plan.is_quiet());
    }
}

#[test]
fn a_frontend_that_an_outbound_rule_uses_stays_without_its_service() {
    let one = numbered(1, &[80]);
    let wants = wants_of(&[&one]);
    let mut body = settle(&wants, None, &env()).unwrap();
    let frontend = json!({ "id": format!("{}/frontendIPConfigurations/{}", env().id, base(&one)) });
    body["properties"]["outboundRules"] =
        json!([{ "name": "egress", "properties": { "frontendIPConfigurations": [frontend], "protocol": "All" } }]);
    let left = without(wants, &one);
    let after = settle(&left, Some(body.clone()), &env()).unwrap();
    assert_eq!(names(&after, "frontendIPConfigurations"), [base(&one)].into());
    assert_eq!(after["properties"]["outboundRules"], body["properties"]["outboundRules"]);
    assert!(matches!(step(&left, Some(after), &env()).0.served[&one.key], Served::Done(_)));
}

#[test]
fn a_frontend_that_inbound_nat_uses_stays_without_its_service() {
    let one = numbered(1, &[80]);
    let wants = wants_of(&[&one]);
    let body = settle(&wants, None, &env()).unwrap();
    let frontend = json!({ "id": format!("{}/frontendIPConfigurations/{}", env().id, base(&one)) });
    let pool = json!([{ "name": "ssh", "properties": {
        "frontendIPConfiguration": frontend, "protocol": "Tcp", "frontendPortRangeStart": 50000, "frontendPortRangeEnd": 50119
    }}]);
    let rule = json!([{ "name": "rdp", "properties": {
        "frontendIPConfiguration": frontend, "protocol": "Tcp", "frontendPort": 3389
    }}]);
    for (kind, nat) in [("inboundNatPools", pool), ("inboundNatRules", rule)] {
        let mut body = body.clone();
        body["properties"][kind] = nat.clone();
        let left = without(wants.clone(), &one);
        let after = settle(&left, Some(body), &env()).unwrap();
        assert_eq!(names(&after, "frontendIPConfigurations"), [base(&one)].into(), "{kind}");
        assert_eq!(after["properties"][kind], nat);
        assert_eq!(names(&after, "loadBalancingRules"), [].into());
        assert!(matches!(step(&left, Some(after), &env()).0.served[&one.key], Served::Done(_)));
    }
}

#[test]
fn a_probe_that_the_rule_of_another_owner_names_stays() {
    let (one, two) = (numbered(1, &[80]), numbered(2, &[80]));
    let wants = wants_of(&[&one, &two]);
    let mut body = settle(&wants, None, &env()).unwrap();
    let probe = format!("{}-TCP-80", base(&one));
    body["properties"]["loadBalancingRules"].as_array_mut().unwrap().push(json!({ "name": "manual", "properties": {
        "probe": { "id": format!("{}/probes/{probe}", env().id) }, "protocol": "Tcp", "frontendPort": 8443
    }}));
    let left = without(wants, &one);
    let after = settle(&left, Some(body), &env()).unwrap();
    assert!(names(&after, "probes").contains(&probe));
    assert!(matches!(step(&left, Some(after), &env()).0.served[&one.key], Served::Done(_)));
}

#[test]
fn internal_services_share_the_address_that_both_name() {
    let settings = settings();
    let env = load_balancer_env(&settings, Side::Internal);
    let internal = |number, ports: &[u16]| ServiceObject {
        annotations: annotated(&[("azure-load-balancer-internal", "true"), ("azure-load-balancer-ipv4", "10.0.0.50")])
            .annotations,
        ..numbered(number, ports)
    };
    let (one, two) = (internal(1, &[80]), internal(2, &[443]));
    let body = settle(&wants_of(&[&one, &two]), None, &env).unwrap();
    assert_eq!(names(&body, "frontendIPConfigurations"), [base(&one)].into());
    assert_eq!(frontend_of(&body, &format!("{}-TCP-443", base(&two))), base(&one));
}

#[test]
fn a_frontend_without_rules_goes_when_its_address_is_given_up() {
    let env = env();
    let (one, two) = (on(1, &[80], "shared"), on(2, &[443], "shared"));
    let body = settle(&wants_of(&[&one, &two]), None, &env);
    // The first one is deleted, and the second one then moves to an address of its own, step by step.
    let body = settle(&without(wants_of(&[&two]), &one), body, &env);
    let moved = numbered(2, &[443]);
    let settings = settings();
    let mut former = Former::default();
    let ids = |object: &ServiceObject| {
        let ask = parse(object, &settings, &Existing::default()).unwrap();
        let AddressAsk::Public(public) = &ask.families[0].address else { panic!("{ask:?}") };
        let ids = BTreeMap::from([(Family::V4, wants::public_ip_id(public, &settings).unwrap().unwrap())]);
        (ask, ids)
    };
    let want = |former: &Former, stage| {
        let (ask, ids) = ids(&moved);
        Wants::from([(moved.key.clone(), wants::load_balancer(&ask, &settings, &ids, former, stage).unwrap())])
    };
    let look = plan(&want(&former, Stage::Looking), read(body.as_ref(), &env).as_ref(), &env);
    assert!(look.is_quiet());
    assert!(matches!(look.served[&moved.key], Served::Done(_)));
    former.public_ips.insert(settings.public_ip_id("group", "shared").unwrap());
    let body = settle(&want(&former, Stage::Adding), body, &env);
    let body = settle(&want(&former, Stage::Quieting), body, &env);
    assert_eq!(names(body.as_ref().unwrap(), "frontendIPConfigurations"), [base(&one), base(&two)].into());
    let body = settle(&want(&former, Stage::Trimming), body, &env).unwrap();
    assert_eq!(names(&body, "frontendIPConfigurations"), [base(&two)].into());
}

#[test]
fn a_second_service_whose_local_pool_has_the_same_name_is_refused() {
    let settings = Settings {
        configurations: vec![crate::network::settings::LoadBalancerConfiguration {
            name: "kubernetes".to_owned(),
            primary_vm_set: "agents".to_owned(),
            allow_placement: true,
            service_labels: None,
            namespace_labels: None,
            node_labels: None,
        }],
        ..settings()
    };
    let local = |number: u8, namespace: &str, name: &str| {
        let health_check_node_port = 31_000 + u16::from(number);
        let mut object = ServiceObject { is_local: true, health_check_node_port, ..numbered(number, &[80]) };
        (object.key.namespace, object.key.name) = (namespace.to_owned(), name.to_owned());
        object
    };
    let (one, two) = (local(1, "a-b", "c"), local(2, "a", "b-c"));
    let want = |object: &ServiceObject| (object.key.clone(), want_of(object, &settings, Stage::Trimming));
    let is_pool = |refusal: &Refusal, of: &str| {
        refusal.reason == RefusalReason::ForeignOwner
            && refusal.message.contains("a-b-c")
            && refusal.message.contains(of)
    };
    // The one that is there first has it, also when only Azure shows it.
    let body = settle(&[want(&one)].into(), None, &env());
    let (plan, after) = step(&[want(&one), want(&two)].into(), body.clone(), &env());
    assert!(is_pool(&refusal(&plan, &two), "Service a-b/c") && after == body, "{plan:?}");
    let (plan, _) = step(&[want(&two)].into(), body.clone(), &env());
    assert!(is_pool(&refusal(&plan, &two), "no known Service"), "{plan:?}");
    // Of two that come together one has it.
    let (plan, _) = step(&[want(&one), want(&two)].into(), None, &env());
    assert!(is_pool(&refusal(&plan, &one), "Service a/b-c"), "{plan:?}");
    // Two that Azure has already stay.
    let mut both = body.unwrap();
    let other = settle(&[want(&two)].into(), None, &env()).unwrap();
    for list in ["frontendIPConfigurations", "loadBalancingRules", "probes"] {
        let more = other["properties"][list].as_array().unwrap().clone();
        both["properties"][list].as_array_mut().unwrap().extend(more);
    }
    let (plan, _) = step(&[want(&one), want(&two)].into(), Some(both), &env());
    assert!(plan.is_quiet() && plan.served.values().all(|served| matches!(served, Served::Done(_))), "{plan:?}");
}
