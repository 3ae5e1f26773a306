//! What a Service may do at the address of another one.

use lazuli_engine::service::Service as _;
use lazuli_model::address::Family;
use lazuli_services::network::{RefusalReason, private_link, settings::AddressSharing};

use super::*;

const SHARE_WITH: &str = lazuli_services::service::annotation::SHARE_WITH;

/// The Service with TCP ports 443 and, without a load-balancing rule, 8443, in a namespace, on the public IP of this name.
fn guest(namespace: &str, public_ip: &str, more: &[(&str, &str)]) -> ServiceObject {
    let all = [("azure-pip-name", public_ip), ("port_8443_no_lb_rule", "true")];
    let mut object = fresh("guest", annotated(&all.into_iter().chain(more.iter().copied()).collect::<Vec<_>>()));
    object.key.namespace = namespace.to_owned();
    object.ports = vec![port(PortProtocol::Tcp, 443), port(PortProtocol::Tcp, 8443)];
    object
}

impl World {
    /// A Service with a public IP of its own, which lets these namespaces share it; its name and that of the public IP.
    fn owner(&mut self, shares_with: &str) -> (ServiceKey, String) {
        let mut owner = fresh("owner", annotated(&[]));
        if !shares_with.is_empty() {
            owner.annotations.insert(SHARE_WITH.to_owned(), shares_with.to_owned());
        }
        self.change(owner.clone());
        let name = self.public_ips.keys().next().unwrap().name().to_owned();
        (owner.key, name)
    }

    /// What is read of load balancers and statuses tells the security group who is reached where.
    pub(super) fn show_users(&mut self) {
        let balancers = self.load_balancers.values();
        let models = balancers.filter_map(|track| Some((track.read)(&track.id, track.body.as_ref()?)));
        self.group.inputs.users = models.map(|model| Arc::new(security_group::Users::of(&model))).collect();
        self.tell_statuses();
    }

    /// The spec of a Service changes, or the Service is deleted, while no process runs.
    fn change_while_no_process_runs(&mut self, key: &ServiceKey, change: impl FnOnce(&mut ServiceObject)) {
        change(&mut self.services.get_mut(key).unwrap().object);
        self.restart();
    }

    /// The ports that are admitted, and whether something is denied.
    fn admitted(&self) -> (BTreeSet<String>, bool) {
        let rules = self.rules();
        let allowed = rules.iter().filter(|rule| rule.is_allow).flat_map(|rule| rule.ports.clone()).collect();
        (allowed, rules.iter().any(|rule| !rule.is_allow))
    }

    fn is_told_of_sharing(&self) -> bool {
        self.notices.iter().any(|notice| notice.reason == RefusalReason::SharedAddress)
    }
}

fn ports(all: &[&str]) -> BTreeSet<String> {
    all.iter().map(|port| (*port).to_owned()).collect()
}

/// Ranges, and a denial of all else.
const DENIES: [(&str, &str); 2] =
    [("azure-allowed-ip-ranges", "192.0.2.0/24"), ("azure-deny-all-except-load-balancer-source-ranges", "true")];

#[test]
fn a_service_of_another_namespace_admits_at_an_address_only_what_is_balanced_and_denies_nothing() {
    let mut world = World::new();
    let (_, name) = world.owner("");
    let object = guest("stranger", &name, &DENIES);
    world.change(object.clone());
    assert_eq!(world.status(&object.key), ["20.0.0.1"]);
    assert_eq!(world.admitted(), (ports(&["80", "443"]), false));
    assert!(world.is_told_of_sharing());
    // The same for one of whom the address is: its owner, one of the same namespace, and one that the owner names.
    for (namespace, shares_with) in [("default", ""), ("friend", "other, friend")] {
        let mut world = World::new();
        let (_, name) = world.owner(shares_with);
        world.change(guest(namespace, &name, &DENIES));
        assert_eq!(world.admitted(), (ports(&["80", "443", "8443"]), true), "{namespace}");
        assert!(!world.is_told_of_sharing());
    }
    let mut world = World::new();
    let mut alone = guest("stranger", "", &DENIES);
    alone.annotations.remove("service.beta.kubernetes.io/azure-pip-name");
    world.change(alone);
    assert_eq!(world.admitted(), (ports(&["443", "8443"]), true));
}

#[test]
fn a_wrong_range_of_a_guest_denies_nothing_at_the_owners_address_and_keeps_none_of_its_rules() {
    let mut world = World::new();
    let (owner, name) = world.owner("");
    let wrong = ("azure-allowed-ip-ranges", "10.1.0.0/16,10.2.0.1/16");
    let object = guest("stranger", &name, &[wrong]);
    world.change(object.clone());
    assert_eq!(world.admitted(), (ports(&["80", "443"]), false));
    assert!(world.is_told_of_sharing());
    // The owner admits fewer sources while the guest's rules are kept by a mistake.
    let frozen = guest("stranger", &name, &[("azure-disable-load-balancer-nsg-rule", "ture"), wrong]);
    world.change(ServiceObject { ports: vec![port(PortProtocol::Tcp, 443)], ..frozen });
    let guests = |world: &World| {
        world.rules().into_iter().filter(|rule| rule.ports == ["443"]).map(|rule| rule.sources).collect::<Vec<_>>()
    };
    assert_eq!(guests(&world), [["10.1.0.0/16"]]);
    let mut narrowed = world.services[&owner].object.clone();
    narrowed.annotations.extend(annotated(&[("azure-allowed-ip-ranges", "192.0.2.0/24")]).annotations);
    world.change(narrowed);
    let of_owner: Vec<Vec<String>> =
        world.rules().into_iter().filter(|rule| rule.ports == ["80"]).map(|rule| rule.sources).collect();
    assert_eq!(of_owner, [["192.0.2.0/24"]]);
    world.restart();
    assert_eq!(world.clock.writes, Vec::<String>::new());
    assert_eq!(guests(&world), [["10.1.0.0/16"]], "what is there stays");
    world.delete(&[&object.key]);
    assert_eq!(world.admitted(), (ports(&["80"]), false));
}

#[test]
fn what_a_guest_has_at_an_address_stays_when_the_owner_no_longer_agrees() {
    let mut world = World::new();
    let (owner, name) = world.owner("friend");
    let object = guest("friend", &name, &DENIES);
    world.change(object.clone());
    let before = world.rules();
    let mut closed = world.services[&owner].object.clone();
    closed.annotations.remove(SHARE_WITH);
    world.change(closed);
    world.restart();
    assert_eq!(world.rules(), before);
    assert!(world.is_told_of_sharing());
    // A later write adds nothing there.
    let mut changed = world.services[&object.key].object.clone();
    changed.ports.push(port(PortProtocol::Tcp, 9443));
    changed.annotations.insert("service.beta.kubernetes.io/port_9443_no_lb_rule".to_owned(), "true".to_owned());
    world.change(changed);
    assert_eq!(world.admitted(), (ports(&["80", "443", "8443"]), true));
    // All goes with the Service.
    world.delete(&[&object.key]);
    assert_eq!(world.admitted().0, ports(&["80"]));
    assert!(world.services.len() == 1);
}

#[test]
fn a_new_process_writes_nothing_for_a_service_with_a_port_that_is_not_balanced() {
    for namespace in ["default", "friend"] {
        let mut world = World::new();
        let (_, name) = world.owner("friend");
        let object = guest(namespace, &name, &[]);
        world.change(object.clone());
        assert_eq!(world.admitted(), (ports(&["80", "443", "8443"]), false));
        world.restart();
        assert_eq!(world.clock.writes, Vec::<String>::new(), "{namespace}");
        assert_eq!(world.services[&object.key].events.last(), Some(&service::Reason::Unchanged));
    }
}

#[test]
fn addresses_that_are_not_to_be_shared_take_no_new_rule_of_another_namespace() {
    let sharing = |sharing: AddressSharing, shares_with: &str| {
        let mut world = World::new();
        let (_, name) = world.owner(shares_with);
        for track in world.load_balancers.values_mut() {
            track.inputs.sharing = sharing;
        }
        let object = guest("stranger", &name, &[]);
        world.change(object.clone());
        (world, object.key)
    };
    let (world, key) = sharing(AddressSharing::Namespace, "");
    let reason = world.services[&key].events.last().unwrap();
    let service::Reason::Refused(_, lazuli_engine::Refusal::Plan(why)) = reason else { panic!("{reason:?}") };
    assert!(why.reason == "ForeignOwner" && why.message.contains("Service default/owner"), "{why:?}");
    assert_eq!(world.status(&key), Vec::<String>::new());
    let (world, key) = sharing(AddressSharing::Namespace, "stranger");
    assert_eq!(world.status(&key), ["20.0.0.1"]);
    // What is there stays, also for another process.
    let (mut world, key) = sharing(AddressSharing::Any, "");
    for track in world.load_balancers.values_mut() {
        track.inputs.sharing = AddressSharing::Namespace;
    }
    world.restart();
    assert_eq!(world.clock.writes, Vec::<String>::new());
    assert_eq!(world.status(&key), ["20.0.0.1"]);
    assert!(!matches!(world.services[&key].events.last(), Some(service::Reason::Refused(..))));
}

#[test]
fn a_guest_stays_refused_in_a_new_process_while_the_owner_of_the_address_has_a_mistake() {
    for shares_with in ["", "other"] {
        let mut world = World::new();
        let (owner, name) = world.owner(shares_with);
        for track in world.load_balancers.values_mut() {
            track.inputs.sharing = AddressSharing::Namespace;
        }
        let object = guest("stranger", &name, &[]);
        world.change(object.clone());
        let is_refused = |world: &World| {
            let last = world.services[&object.key].events.last();
            matches!(last, Some(service::Reason::Refused(_, lazuli_engine::Refusal::Plan(why)))
                if why.reason == "ForeignOwner" && why.message.contains("Service default/owner"))
        };
        assert!(is_refused(&world));
        // Refused as a whole, the owner tells the load balancer of the new process nothing.
        world.change_while_no_process_runs(&owner, |owner| owner.ports.clear());
        assert!(matches!(world.services[&owner].events.last(), Some(service::Reason::Invalid(_))));
        assert!(is_refused(&world), "{:?}", world.services[&object.key].events);
        assert_eq!(world.clock.writes, Vec::<String>::new());
        // Its annotation counts all the same.
        world.change_while_no_process_runs(&owner, |owner| {
            owner.annotations.insert(SHARE_WITH.to_owned(), "stranger".to_owned());
        });
        assert_eq!(world.status(&object.key), ["20.0.0.1"]);
    }
}

#[test]
fn a_service_that_is_refused_at_an_address_has_opened_nothing_there() {
    let mut world = World::new();
    let (_, name) = world.owner("");
    // It is served at an address of its own, with the owner's port, and then names the owner's.
    let ranges = ("azure-allowed-ip-ranges", "192.0.2.0/24");
    let mut object = fresh("guest", annotated(&[ranges]));
    object.key.namespace = "stranger".to_owned();
    world.change(object.clone());
    let mut moved = world.services[&object.key].object.clone();
    moved.annotations = annotated(&[("azure-pip-name", &name), ranges]).annotations;
    world.change(moved);
    let last = world.services[&object.key].events.last().unwrap();
    let service::Reason::Refused(_, lazuli_engine::Refusal::Plan(why)) = last else { panic!("{last:?}") };
    assert_eq!(why.reason, "PortConflict");
    let admitted = world
        .rules()
        .into_iter()
        .flat_map(|rule| rule.destinations.into_iter().map(move |to| (to, rule.sources.clone())));
    let at_owners = admitted.filter(|(to, _)| to == "20.0.0.1").count();
    assert_eq!(at_owners, 1, "{:?}", world.rules());
}

/// No longer asks for the port without a load-balancing rule.
fn drops_8443(object: &mut ServiceObject) {
    object.ports.retain(|port| port.port != 8443);
    object.annotations.retain(|name, _| !name.contains("8443"));
}

#[test]
fn a_port_without_a_load_balancing_rule_that_is_dropped_while_no_process_runs_is_closed() {
    let stays_open = ports(&["80", "443"]);
    for is_deleted in [false, true] {
        let mut world = World::new();
        let (owner, name) = world.owner("friend");
        let guest = guest("friend", &name, &[]);
        world.change(guest.clone());
        assert_eq!(world.admitted().0, ports(&["80", "443", "8443"]));
        world.change_while_no_process_runs(&guest.key, |object| match is_deleted {
            true => object.is_deleting = true,
            false => drops_8443(object),
        });
        let rest = if is_deleted { ports(&["80"]) } else { stays_open.clone() };
        assert_eq!(world.admitted().0, rest, "deleted: {is_deleted}");
        assert_eq!(world.services.contains_key(&guest.key), !is_deleted);
        assert_eq!(world.status(&owner), ["20.0.0.1"]);
        world.restart();
        assert_eq!(world.clock.writes, Vec::<String>::new());
    }
}

#[test]
fn a_rule_that_no_known_service_asks_for_stays_while_a_service_of_the_address_is_not_known() {
    let mut world = World::new();
    let (owner, name) = world.owner("friend");
    let guest = guest("friend", &name, &[]);
    world.change(guest.clone());
    // The owner has told nothing yet; of it only the load-balancing rule is seen.
    let known = world.services.remove(&owner).unwrap();
    world.change_while_no_process_runs(&guest.key, drops_8443);
    assert_eq!(world.admitted().0, ports(&["80", "443", "8443"]));
    // It is known, and nothing that it asks for says what it had.
    world.services.insert(owner.clone(), known);
    world.services.get_mut(&owner).unwrap().object.ports.clear();
    world.restart();
    assert!(matches!(world.services[&owner].events.last(), Some(service::Reason::Invalid(_))));
    assert_eq!(world.admitted().0, ports(&["80", "443", "8443"]));
    // The first occasion on which all are known closes it.
    world.change_while_no_process_runs(&owner, |object| object.ports = vec![port(PortProtocol::Tcp, 80)]);
    assert_eq!(world.admitted().0, ports(&["80", "443"]));
}

#[test]
fn a_rule_that_no_service_of_this_cluster_asks_for_stays_where_another_cluster_is_reached() {
    let mut world = World::new();
    let (_, name) = world.owner("friend");
    let guest = guest("friend", &name, &[]);
    world.change(guest.clone());
    let balancer = world.load_balancers.values_mut().find(|track| track.body.is_some()).unwrap();
    let rules = balancer.body.as_mut().unwrap()["properties"]["loadBalancingRules"].as_array_mut().unwrap();
    let mut foreign = rules[0].clone();
    foreign["name"] = json!("a0000000000000000000000000000abcd-TCP-9999");
    foreign["properties"]["frontendPort"] = json!(9999);
    rules.push(foreign);
    world.change_while_no_process_runs(&guest.key, drops_8443);
    assert_eq!(world.admitted().0, ports(&["80", "443", "8443"]));
}

/// What a Service wants of a private link service before this frontend, and of its subnet.
fn private_link(world: &mut World, object: &ServiceObject, frontend: &ArmId) -> (private_link::Link, bool) {
    let Desired::Present(spec) = world.snapshot(object, 1).desired else { panic!("{object:?}") };
    let settings = &world.inputs.settings;
    let (link, subnet) = (settings.private_link_id("group", "entry").unwrap(), settings.subnet_id("nodes").unwrap());
    let spec = Spec { private_link: Some(link.clone()), private_link_subnet: Some(subnet.clone()), ..spec };
    let frontends = [(Family::V4, frontend.clone())].into();
    let shown = Report { found: network::Found { frontends, ..Default::default() }, ..Report::default() };
    let reports = [(Key::LoadBalancer(spec.load_balancer.clone()), Box::new(shown))].into();
    let (left, told) = (BTreeMap::new(), BTreeMap::new());
    let seen = service::Seen {
        reports: &reports,
        left: &left,
        told: &told,
        status: None,
        has_changed: false,
        is_complete: true,
    };
    let want = |key| Balanced::want(&object.key, Some(&spec), &key, service::Level::Make, &seen, &world.inputs);
    let (link, subnet) = (want(Key::PrivateLink(link)), want(Key::Subnet(subnet)));
    let (Want::PrivateLink(link), Want::Subnet(subnet)) = (link, subnet) else { panic!() };
    (link.present.link.unwrap(), subnet.lets_private_links_in)
}

#[test]
fn a_private_link_service_is_the_services_own_before_its_own_frontend_alone() {
    let more = [("azure-pls-create", "true"), ("azure-disable-load-balancer-floating-ip", "true")];
    for shares_with in ["", "friend"] {
        let mut world = World::new();
        let (owner, name) = world.owner(shares_with);
        let mut object = world.services[&owner].object.clone();
        object.annotations.extend(annotated(&more).annotations);
        let balancer = load_balancer_env(&world.inputs.settings, Side::Public).id;
        let frontend = load_balancer::LoadBalancer::frontend_id(&balancer, BaseName::of(&owner).as_str());
        let (link, opens_subnet) = private_link(&mut world, &object, &frontend);
        assert!(link.is_own && link.is_allowed && opens_subnet);
        // One that may share the address is no owner of its frontend.
        for namespace in ["stranger", "friend", "default"] {
            let (link, opens_subnet) = private_link(&mut world, &guest(namespace, &name, &more), &frontend);
            assert!(!link.is_own && !opens_subnet, "{namespace}, shared with {shares_with:?}");
        }
        // Its group counts where the operator names the allowed ones.
        world.inputs.settings.allowed_groups = Some(BTreeSet::new());
        assert!(private_link(&mut world, &object, &frontend).0.is_allowed, "its group is that of the configuration");
        object.annotations.extend(annotated(&[("azure-pls-resource-group", "others")]).annotations);
        assert!(!private_link(&mut world, &object, &frontend).0.is_allowed);
    }
}
