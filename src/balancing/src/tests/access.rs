//! Who may reach a Service, and which addresses it may have: over changes, mistakes and processes that start anew.

use lazuli_services::ask::SecurityProtocol;

use super::*;

const INTERNAL: (&str, &str) = ("azure-load-balancer-internal", "true");

fn addresses(texts: &[&str]) -> BTreeSet<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

impl World {
    /// A Service with these annotations now, and one port more.
    fn annotate(&mut self, service: &ServiceKey, pairs: &[(&str, &str)], ports: &[u16]) {
        let object = self.services[service].object.clone();
        let ports = ports.iter().map(|number| port(PortProtocol::Tcp, *number)).collect();
        let annotations = annotated(pairs).annotations;
        self.change(ServiceObject { annotations, ports, ..object });
    }

    /// The load balancers that have a rule for a port of the frontend.
    fn serving(&self, port: u16) -> Vec<&str> {
        let serves = |track: &&Track<LoadBalancers>| {
            let model = track.body.as_ref().map(|body| (track.read)(&track.id, body));
            model.is_some_and(|model| model.rules.iter().any(|rule| rule.frontend_port == port))
        };
        self.load_balancers.values().filter(serves).map(|track| track.id.name()).collect()
    }

    /// The destinations that are denied.
    fn denied(&self) -> Vec<String> {
        self.rules().into_iter().filter(|rule| !rule.is_allow).flat_map(|rule| rule.destinations).collect()
    }

    /// The Nodes of the cluster, all of them backends.
    fn with_nodes(&mut self, nodes: &[&str]) {
        self.inputs.nodes = addresses(nodes);
        self.inputs.all_nodes = addresses(nodes);
        self.group.inputs.nodes = addresses(nodes);
        self.group.inputs.all_nodes = addresses(nodes);
    }

    /// What informers tell the security group of the statuses.
    pub(super) fn tell_statuses(&mut self) {
        let objects: Vec<ServiceObject> = self.services.values().map(Owner::as_shown).collect();
        self.group.inputs.reached = wants::reached(&objects);
    }
}

#[test]
fn a_typing_error_changes_no_side_and_holds_up_nothing_else_whichever_process_reads_it() {
    for (valid, balancer) in [(vec![], "kubernetes"), (vec![INTERNAL], "kubernetes-internal")] {
        for typo in ["ture", "yes", "tru e"] {
            let mut world = World::new();
            let web = fresh("web", annotated(&valid));
            world.change(web.clone());
            let status = world.status(&web.key);
            for restarts in [false, true] {
                if restarts {
                    world.restart();
                }
                let port = if restarts { 8_443 } else { 443 };
                world.annotate(&web.key, &[("azure-load-balancer-internal", typo)], &[80, port]);
                assert_eq!(world.serving(port), [balancer], "{typo}: {:#?}", world.clock.writes);
                assert_eq!(world.status(&web.key), status, "{typo}");
                let warnings = &world.services[&web.key].warnings;
                assert!(warnings.iter().any(|warning| warning.contains(typo)), "{warnings:?}");
            }
            world.restart();
            assert_eq!(world.clock.writes, Vec::<String>::new(), "{typo}");
            // The mistake mended, the Service goes where it is told.
            world.annotate(&web.key, &[INTERNAL], &[80]);
            assert_eq!(world.serving(80), ["kubernetes-internal"]);
        }
    }
}

#[test]
fn a_mistake_keeps_what_azure_has_and_the_rest_goes_on() {
    for (valid, key, wrong) in [
        ("azure-load-balancer-tcp-idle-timeout=30", "azure-load-balancer-tcp-idle-timeout", "soon"),
        ("azure-load-balancer-disable-tcp-reset=true", "azure-load-balancer-disable-tcp-reset", "ture"),
        ("azure-load-balancer-health-probe-interval=20", "azure-load-balancer-health-probe-interval", "20s"),
        ("azure-load-balancer-health-probe-protocol=http", "azure-load-balancer-health-probe-protocol", "htpp"),
        ("port_80_no_probe_rule=true", "port_80_no_probe_rule", "ture"),
        ("azure-pip-name=mine", "azure-pip-name", "mine!"),
        ("azure-disable-load-balancer-nsg-rule=true", "azure-disable-load-balancer-nsg-rule", "ture"),
    ] {
        let mut world = World::new();
        let web = fresh("web", annotated(&[valid.split_once('=').unwrap()]));
        if valid.ends_with("mine") {
            // A public IP of another Service, which it shares.
            let owner = fresh("owner", annotated(&[]));
            world.change(ServiceObject { ports: vec![port(PortProtocol::Tcp, 1)], ..owner });
            let name = world.public_ips.keys().next().unwrap().name().to_owned();
            world.change(fresh("web", annotated(&[("azure-pip-name", &name)])));
        } else {
            world.change(web.clone());
        }
        let rules = world.rules();
        world.clock.writes.clear();
        world.annotate(&web.key, &[(key, wrong)], &[80]);
        assert_eq!(world.clock.writes, Vec::<String>::new(), "{key}");
        world.annotate(&web.key, &[(key, wrong)], &[80, 443]);
        assert_eq!(world.serving(443), ["kubernetes"], "{key}: {:#?}", world.clock.writes);
        if key.ends_with("nsg-rule") {
            assert_eq!(world.rules(), rules, "nothing is opened where rules were switched off");
        }
        world.restart();
        assert_eq!(world.clock.writes, Vec::<String>::new(), "{key}");
        assert_eq!(world.services[&web.key].events.last(), Some(&service::Reason::Unchanged), "{key}");
    }
}

#[test]
fn a_new_service_with_a_mistake_gets_nothing_by_any_process() {
    let mut world = World::new();
    let web = fresh("web", annotated(&[("azure-load-balancer-internal", "ture")]));
    world.change(web.clone());
    world.restart();
    assert_eq!(world.holds(), Vec::<String>::new());
    assert!(matches!(world.services[&web.key].events.last(), Some(service::Reason::Invalid(_))));
}

#[test]
fn a_range_that_is_none_denies_all_else_but_not_at_nodes_and_not_where_another_service_is() {
    let mut world = World::new();
    world.with_nodes(&["10.0.0.200"]);
    let wrong = ("azure-allowed-ip-ranges", "10.1.0.0/16,10.2.0.1/16");
    let web = fresh("web", annotated(&[wrong]));
    world.change(web.clone());
    assert_eq!(world.denied(), world.status(&web.key));

    let at_nodes = fresh("nodes", annotated(&[wrong, ("azure-disable-load-balancer-floating-ip", "true")]));
    let at_nodes = ServiceObject { ports: vec![port(PortProtocol::Tcp, 90)], ..at_nodes };
    world.change(at_nodes.clone());
    assert_eq!(world.denied(), world.status(&web.key), "no node");
    assert!(world.rules().iter().any(|rule| rule.is_allow && rule.destinations == ["10.0.0.200"]));
    world.delete(&[&web.key, &at_nodes.key]);
    assert_eq!(world.holds(), Vec::<String>::new());

    let mut world = World::new();
    let [one, two] = world.on_one_public_ip();
    world.tell_statuses();
    let name = world.public_ips.keys().next().unwrap().name().to_owned();
    world.annotate(&two, &[("azure-pip-name", &name), wrong], &[443]);
    assert_eq!(world.denied(), Vec::<String>::new(), "{:?}", world.rules());
    assert!(world.rules().iter().any(|rule| rule.sources == ["10.1.0.0/16"]));
    assert_eq!(world.status(&one), world.status(&two));
}

#[test]
fn a_denial_that_is_there_stays_at_nodes_and_none_is_made() {
    let deny = ("azure-deny-all-except-load-balancer-source-ranges", "true");
    let range = ("azure-allowed-ip-ranges", "10.1.0.0/16");
    let off = ("azure-disable-load-balancer-floating-ip", "true");
    let mut world = World::new();
    world.with_nodes(&["10.0.0.200", "10.0.0.201"]);
    let web = fresh("web", annotated(&[deny, range, off]));
    world.change(web.clone());
    let events = &world.services[&web.key].events;
    assert!(
        matches!(events.last(), Some(service::Reason::Invalid(words)) if words[0].contains("all nodes would be cut off")),
        "{events:?}"
    );
    assert_eq!(world.holds(), Vec::<String>::new());

    // Served without, the Service keeps its denial where it is and does not move it to the nodes.
    world.annotate(&web.key, &[deny, range], &[80]);
    assert_eq!(world.denied(), world.status(&web.key));
    world.annotate(&web.key, &[deny, range, off], &[80, 443]);
    assert_eq!(world.denied(), world.status(&web.key));
    assert_eq!(world.serving(443), ["kubernetes"]);

    // What the Go manager left stays, and a Node that joins is not denied.
    world.annotate(&web.key, &[range, off], &[80]);
    assert_eq!(world.denied(), Vec::<String>::new());
    world.annotate(&web.key, &[deny, range, off], &[80]);
    assert_eq!(world.denied(), Vec::<String>::new());
    let left = json!({"name": lazuli_services::ask::names::deny_all_rule(lazuli_model::address::Family::V4), "properties": {"priority": 4095,
        "access": "Deny", "direction": "Inbound", "protocol": "*", "sourceAddressPrefix": "*", "sourcePortRange": "*",
        "destinationAddressPrefix": "10.0.0.200", "destinationPortRange": "*"}});
    let rules = &mut world.group.body.as_mut().unwrap()["properties"]["securityRules"];
    rules.as_array_mut().unwrap().push(left);
    world.restart();
    assert_eq!(world.clock.writes, Vec::<String>::new());
    world.annotate(&web.key, &[deny, range, off], &[80, 443]);
    assert_eq!(world.denied(), ["10.0.0.200"]);
    world.delete(&[&web.key]);
    assert_eq!(world.denied(), Vec::<String>::new(), "{:?}", world.rules());
}

#[test]
fn an_address_of_the_cluster_is_taken_from_no_service_and_stays_where_the_status_has_it() {
    let names = |addresses: &str| annotated(&[("azure-additional-public-ips", addresses)]);
    let mut world = World::new();
    world.with_nodes(&["20.7.7.7"]);
    let victim = fresh("victim", annotated(&[]));
    world.change(victim.clone());
    assert_eq!(world.status(&victim.key), ["20.0.0.1"]);
    for stolen in
        ["20.0.0.1", "20.7.7.7", "10.0.0.10", "169.254.169.254", "168.63.129.16", "::ffff:10.0.0.10", "224.0.0.1"]
    {
        let thief = fresh("thief", names(stolen));
        world.change(thief.clone());
        assert_eq!(world.status(&thief.key), Vec::<String>::new(), "{stolen}");
        let events = &world.services[&thief.key].events;
        assert!(
            matches!(events.last(), Some(service::Reason::Invalid(words)) if words[0].contains(stolen)),
            "{events:?}"
        );
    }

    // Of a Service that is served, only what may be had comes into the status.
    let web = fresh("web", names("20.9.9.9"));
    world.change(web.clone());
    let own = world.status(&web.key)[0].clone();
    world.annotate(&web.key, &[("azure-additional-public-ips", "20.9.9.9,20.0.0.1,20.8.8.8")], &[80, 443]);
    assert_eq!(world.status(&web.key), [own.as_str(), "20.9.9.9", "20.8.8.8"]);
    assert_eq!(world.serving(443), ["kubernetes"]);
    // A typing error takes nothing away.
    world.annotate(&web.key, &[("azure-additional-public-ips", "20.9.9.9,20.8.8.x")], &[80]);
    assert_eq!(world.status(&web.key), [own.as_str(), "20.9.9.9", "20.8.8.8"]);

    // What the Go manager took stays, with an event, through later writes and processes.
    let owner = world.services.get_mut(&web.key).unwrap();
    owner.status.as_mut().unwrap().push("10.0.0.10".parse().unwrap());
    owner.object.annotations = names("20.9.9.9,20.8.8.8,10.0.0.10").annotations;
    world.restart();
    world.restart();
    world.annotate(&web.key, &[("azure-additional-public-ips", "20.9.9.9,20.8.8.8,10.0.0.10")], &[80, 8_443]);
    assert_eq!(world.serving(8_443), ["kubernetes"]);
    assert_eq!(world.status(&web.key), [own.as_str(), "20.9.9.9", "20.8.8.8", "10.0.0.10"]);
    let warnings = &world.services[&web.key].warnings;
    assert!(warnings.iter().any(|warning| warning.contains("names 10.0.0.10, which is private")), "{warnings:?}");
    world.annotate(&web.key, &[("azure-additional-public-ips", "20.9.9.9")], &[80]);
    world.annotate(&web.key, &[("azure-additional-public-ips", "20.9.9.9,10.0.0.10")], &[80]);
    assert_eq!(world.status(&web.key), [own.as_str(), "20.9.9.9"], "what was given up is not had again");
}

#[test]
fn a_rule_that_admits_more_where_a_service_is_reached_waits_at_a_take_over() {
    let mut world = World::new();
    let web = fresh("web", annotated(&[("azure-allowed-ip-ranges", "10.1.0.0/16")]));
    world.change(web.clone());
    let group = security_group::SecurityGroup::read(&world.group.id, world.group.body.as_ref().unwrap()).unwrap();
    let mut replaces = |object: ServiceObject| {
        let snapshot = world.snapshot(&object, 9);
        let Desired::Present(spec) = snapshot.desired else { panic!("{snapshot:?}") };
        let here = addresses(&["20.0.0.1"]);
        let want =
            wants::security_group(&spec.ask, &here, &BTreeSet::new(), &wants::Former::default(), wants::Stage::Adding);
        let plan = SecurityGroups::plan(&[(object.key, want)].into(), Some(&group), &world.group.inputs);
        plan.write.map(|write| write.replaces)
    };
    assert_eq!(replaces(fresh("web", annotated(&[("azure-allowed-ip-ranges", "10.1.0.0/16")]))), None);
    assert_eq!(replaces(fresh("web", annotated(&[]))), Some(true), "the Internet beside a range");
    assert_eq!(
        replaces(fresh("web", annotated(&[("azure-allowed-ip-ranges", "10.1.0.0/16,x")]))),
        Some(false),
        "a denial"
    );
}

#[test]
fn an_own_address_that_is_given_up_is_not_kept_as_an_additional_one() {
    let mut world = World::new();
    let web = fresh("web", annotated(&[INTERNAL]));
    world.change(web.clone());
    let own = world.status(&web.key)[0].clone();
    // It becomes public, and names the address that its frontend had: that is free for others from now on.
    world.annotate(&web.key, &[("azure-additional-public-ips", &own)], &[80]);
    assert!(!world.status(&web.key).contains(&own), "{own} in {:?}", world.status(&web.key));
    let named = world.rules().into_iter().filter(|rule| rule.is_allow && rule.destinations.contains(&own)).count();
    assert_eq!(named, 0, "no rule admits anybody to {own}");
}

#[test]
fn a_mistake_of_one_service_keeps_its_own_rules_and_none_that_another_service_gives_up() {
    const NO_RULES: &str = "azure-disable-load-balancer-nsg-rule";
    let [first, second] = ["10.1.0.0/16", "10.2.0.0/16"];
    for floating_ip in [true, false] {
        for is_shared in [false, true] {
            for restarts in [false, true] {
                let mut world = World::new();
                world.with_nodes(&["10.0.0.200", "10.0.0.201"]);
                let at_nodes = ("azure-disable-load-balancer-floating-ip", if floating_ip { "false" } else { "true" });
                let web = fresh("web", annotated(&[at_nodes]));
                world.change(web.clone());
                let name = world.public_ips.keys().next().unwrap().name().to_owned();
                // The other one has a port that no load balancer shows.
                let own = [("azure-pip-name", name.as_str()), ("port_8500_no_lb_rule", "true")];
                let annotations = |ranges| {
                    let own = if is_shared { &own[..] } else { &own[1..] };
                    own.iter().copied().chain([at_nodes, ("azure-allowed-ip-ranges", ranges)]).collect::<Vec<_>>()
                };
                let other = fresh("other", annotated(&[]));
                let both = [443, 8500].map(|number| port(PortProtocol::Tcp, number)).to_vec();
                let other = ServiceObject { ports: both, ..other };
                let both = format!("{first},{second}");
                let object = ServiceObject { annotations: annotated(&annotations(&both)).annotations, ..other };
                world.change(object.clone());
                let of_web = |world: &World| {
                    let mut rules = world.rules();
                    rules.retain(|rule| rule.sources == ["Internet"]);
                    rules
                };
                let before = of_web(&world);
                assert_eq!(before.len(), 1, "{:?}", world.rules());
                world.annotate(&web.key, &[at_nodes, (NO_RULES, "ture")], &[80]);
                if !floating_ip {
                    // What the load balancer shows: a process that starts anew reads it before anything goes.
                    let at = |key: &ServiceKey, port| {
                        (BaseName::of(key).as_str().to_lowercase(), [(SecurityProtocol::Tcp, port)].into())
                    };
                    world.group.inputs.node_ports = [at(&web.key, 30_080), at(&object.key, 30_443)].into();
                }
                if restarts {
                    world.restart();
                    assert_eq!(world.clock.writes, Vec::<String>::new());
                }
                world.annotate(&object.key, &annotations(first), &[443, 8500]);
                let case = format!("floating IP {floating_ip}, shared {is_shared}, restarted {restarts}");
                assert_eq!(of_web(&world), before, "{case}");
                let mut others = world.rules();
                others.retain(|rule| rule.sources != ["Internet"]);
                assert!(others.len() == 1 && others[0].sources == [first], "{case}: {:?}", world.rules());
                // The mistake mended, it gives up what it has as ever.
                world.annotate(&web.key, &[at_nodes, ("azure-allowed-ip-ranges", second)], &[80]);
                assert!(of_web(&world).is_empty(), "{case}: {:?}", world.rules());
                world.delete(&[&web.key, &object.key]);
                assert_eq!(world.holds(), Vec::<String>::new(), "{case}");
            }
        }
    }
}
