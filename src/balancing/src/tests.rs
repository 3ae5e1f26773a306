//! Services through the steps and the planners, against an Azure that does at once what it is told.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use lazuli_engine::{
    Acceptance, Lease, Outcome, Shared,
    object::{self, Object},
    service::{self, Desired, Patch, Snapshot},
};
use lazuli_model::{ArmId, ServiceKey, fault::Fault};
use lazuli_quota::{poll::Expectation, read::By};
use lazuli_services::{
    ask::{AddressAsk, PortProtocol, Side, names::BaseName},
    network::{self, load_balancer, public_ip, security_group, settings::PoolKind},
    service::{
        ClusterAddresses, Existing, ServiceObject, Shown,
        fixtures::{annotated, empty_group, load_balancer_env, port, public_ip_env, security_group_env, settings},
        parse, wants,
    },
};
use serde_json::{Value, json};

use super::{Balanced, Inputs, Key, LoadBalancers, PublicIps, Report, SecurityGroups, Spec, Want, discovery};

mod access;
mod discovered;
mod preconfigured;
mod preview;
mod shared;
mod told;

use discovered::standing;

/// One message between keys.
#[derive(Debug)]
enum Message {
    Want(Key, ServiceKey, u64, Want),
    Told(ServiceKey, Key, u64, Outcome<Report>),
}

/// What the edits of an operation do to a body.
type Apply<O> = fn(Option<Value>, &<O as Object>::Op, &<O as Object>::Inputs) -> Option<Value>;
/// What a requester is told of one of its wants.
type Answer = (ServiceKey, u64, Outcome<Report>);

/// An object of the engine with its body in Azure.
struct Track<O: Object> {
    id: ArmId,
    state: object::State<O>,
    inputs: O::Inputs,
    body: Option<Value>,
    /// The version of the body.
    version: u64,
    read: fn(&ArmId, &Value) -> O::Model,
    apply: Apply<O>,
}

impl<O> Track<O>
where
    O: Object<Requester = ServiceKey, Report = Report>,
{
    /// Feeds an event and carries out what follows. Returns what requesters are told.
    fn feed(&mut self, world: &mut Clock, event: object::Event<O>) -> Vec<Answer> {
        let mut told = Vec::new();
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let env = object::Env { shared: world.shared(), inputs: &&self.inputs };
            let actions = object::step(&mut self.state, &env, world.now, event);
            for action in actions {
                match action {
                    object::Action::Observe { id, .. } => {
                        let model = self.body.as_ref().map(|body| (self.read)(&self.id, body));
                        let result = model.ok_or(Fault::NotFound);
                        events.push_back(object::Event::Observed { id, sent_at: world.now, by: By::Single, result });
                    }
                    object::Action::TakePermit { id, .. } => events.push_back(object::Event::Permitted(id)),
                    object::Action::Write { id, op, .. } => {
                        self.body = (self.apply)(self.body.take(), &op, &self.inputs);
                        self.body = self.body.take().map(|body| world.done(&self.id, body));
                        self.version += 1;
                        world.writes.push(format!("{} {op:?}", self.id.name()));
                        let expected = Expectation::of(lazuli_quota::poll::Kind::Other, &Default::default(), None);
                        events.push_back(object::Event::Accepted { id, expected });
                        events.push_back(object::Event::Ended { id, result: Ok(object::After::Unread) });
                    }
                    object::Action::Tell { to, generation, outcome } => told.push((to, generation, outcome)),
                    object::Action::ReleasePermit(_)
                    | object::Action::Poll(_)
                    | object::Action::Followed { .. }
                    | object::Action::Taint(..)
                    | object::Action::Drained => {}
                }
            }
        }
        told
    }
}

/// What the tracks share.
struct Clock {
    now: Duration,
    writes: Vec<String>,
    addresses: u8,
}

impl Clock {
    fn shared(&self) -> Shared {
        Shared {
            synced: true,
            lease: Lease { until: Some(Duration::from_secs(1_000_000)), least: Duration::from_secs(5) },
            trusted_from: Duration::ZERO,
            acceptance: Acceptance::Given,
            resync: None,
        }
    }

    /// The body after Azure has filled in what it chooses.
    fn done(&mut self, id: &ArmId, mut body: Value) -> Value {
        body["id"] = json!(id.as_str());
        body["properties"]["provisioningState"] = json!("Succeeded");
        if id.as_str().contains("publicIPAddresses") && body["properties"].get("ipAddress").is_none() {
            self.addresses += 1;
            body["properties"]["ipAddress"] = json!(format!("20.0.0.{}", self.addresses));
        }
        for frontend in body["properties"]["frontendIPConfigurations"].as_array_mut().into_iter().flatten() {
            let properties = &mut frontend["properties"];
            if properties.get("subnet").is_some() && properties.get("privateIPAddress").is_none() {
                self.addresses += 1;
                properties["privateIPAddress"] = json!(format!("10.0.0.{}", self.addresses));
            }
        }
        body
    }
}

/// A Service of the engine with its object in Kubernetes.
struct Owner {
    object: ServiceObject,
    state: service::State<Balanced>,
    version: u64,
    status: Option<Vec<IpAddr>>,
    events: Vec<service::Reason<Key>>,
    /// Those of its last reading.
    warnings: Vec<String>,
}

impl Owner {
    /// The Service with its status.
    fn as_shown(&self) -> ServiceObject {
        ServiceObject { ingress: self.status.clone().unwrap_or_default(), ..self.object.clone() }
    }
}

struct World {
    clock: Clock,
    services: BTreeMap<ServiceKey, Owner>,
    public_ips: BTreeMap<ArmId, Track<PublicIps>>,
    load_balancers: BTreeMap<ArmId, Track<LoadBalancers>>,
    group: Track<SecurityGroups>,
    inputs: Inputs,
    messages: VecDeque<Message>,
    /// What the lists of this process have shown.
    discovered: discovery::Discovered,
    /// Resource groups that cannot be read.
    closed: BTreeSet<String>,
    /// What Services were told that is left undone on purpose.
    notices: Vec<network::Refusal>,
}

impl World {
    fn new() -> Self {
        let settings = settings();
        let env = security_group_env(&settings);
        let group = Track {
            id: env.id.clone(),
            state: object::State::default(),
            inputs: env,
            body: Some(empty_group()),
            version: 1,
            read: |id, body| security_group::SecurityGroup::read(id, body).unwrap(),
            apply: |body: Option<Value>, op: &Vec<security_group::Edit>, env: &security_group::Env| {
                security_group::apply_raw(body, op, env)
            },
        };
        let balancer = |side| {
            let members = load_balancer::PoolMembers {
                kind: PoolKind::NodeIp,
                vnet: settings.vnet_id().unwrap(),
                addresses: [("10.0.0.200".parse().unwrap(), "node-1".to_owned())].into(),
                may_be_empty: false,
                keeps: false,
            };
            let pools = [("kubernetes".to_owned(), members)].into();
            let env = load_balancer::Env { pools, ..load_balancer_env(&settings, side) };
            let track = Track {
                id: env.id.clone(),
                state: object::State::default(),
                inputs: env,
                body: None,
                version: 0,
                read: |id: &ArmId, body: &Value| load_balancer::LoadBalancer::read(id, body).unwrap(),
                apply: |body: Option<Value>, op: &Vec<load_balancer::Edit>, env: &load_balancer::Env| {
                    load_balancer::apply_raw(body, op, env)
                },
            };
            (track.id.clone(), track)
        };
        Self {
            clock: Clock { now: Duration::ZERO, writes: vec![], addresses: 0 },
            services: BTreeMap::new(),
            public_ips: BTreeMap::new(),
            load_balancers: [balancer(Side::Public), balancer(Side::Internal)].into(),
            group,
            inputs: Inputs::new(settings, BTreeSet::new()),
            messages: VecDeque::new(),
            discovered: discovery::Discovered::default(),
            closed: BTreeSet::new(),
            notices: vec![],
        }
    }

    /// A process that starts anew on the same Azure and Kubernetes.
    fn restart(&mut self) {
        for owner in self.services.values_mut() {
            owner.state = service::State::default();
        }
        for track in self.public_ips.values_mut() {
            track.state = object::State::default();
        }
        for track in self.load_balancers.values_mut() {
            track.state = object::State::default();
        }
        self.group.state = object::State::default();
        self.discovered = discovery::Discovered::default();
        self.clock.writes.clear();
        let all: Vec<ServiceObject> = self.services.values().map(|owner| owner.object.clone()).collect();
        for object in all {
            self.change(object);
        }
    }

    /// The public IPs that a Service's tag is on.
    fn tagged(&self, service: &ServiceKey) -> Vec<Key> {
        let lists = |track: &&Track<PublicIps>| {
            let body = track.body.as_ref();
            body.is_some_and(|body| public_ip::PublicIp::read(&track.id, body).unwrap().lists(&service.tag_name()))
        };
        self.public_ips.values().filter(lists).map(|track| Key::PublicIp(track.id.clone())).collect()
    }

    /// The public IPs that no Service has any more.
    fn released(&self) -> Vec<Key> {
        let is_it = |track: &&Track<PublicIps>| {
            let body = track.body.as_ref();
            body.is_some_and(|body| public_ip::PublicIp::read(&track.id, body).unwrap().is_released())
        };
        self.public_ips.values().filter(is_it).map(|track| Key::PublicIp(track.id.clone())).collect()
    }

    /// What a Service is read beside: what Azure and the statuses show now.
    fn existing(&self, object: &ServiceObject) -> Existing {
        let balancers = self.load_balancers.values();
        let models = balancers.filter_map(|track| Some((track.read)(&track.id, track.body.as_ref()?)));
        let all: Vec<_> = models.map(|model| Shown::all(&model)).collect();
        let shown = Shown::of(&BaseName::of(&object.key), &all);
        let address = |id: &ArmId| {
            let body = self.public_ips.get(id)?.body.as_ref()?;
            public_ip::PublicIp::read(id, body).unwrap().address
        };
        let own_addresses = shown.as_ref().and_then(|shown| shown.addresses(address).into_iter().collect());
        let own = shown.iter().flat_map(|shown| shown.addresses(address)).flatten().collect();
        let nodes = self.inputs.all_nodes.clone();
        let mut cluster = ClusterAddresses { nodes, own, ..ClusterAddresses::default() };
        for owner in self.services.values() {
            cluster.note_service(object, &owner.as_shown());
        }
        Existing { shown, own_addresses, cluster }
    }

    fn snapshot(&mut self, object: &ServiceObject, version: u64) -> Snapshot<Balanced> {
        let settings = self.inputs.settings.clone();
        let ingress = self.services.get(&object.key).and_then(|owner| owner.status.clone()).unwrap_or_default();
        let object = &ServiceObject { ingress, ..object.clone() };
        let existing = self.existing(object);
        let desired = if object.is_deleting || !object.is_load_balancer {
            Desired::Gone
        } else {
            match parse(object, &settings, &existing) {
                Err(mistakes) => Desired::Invalid(mistakes.iter().map(ToString::to_string).collect()),
                Ok(ask) => {
                    let warnings = ask.warnings.iter().map(|warning| warning.message.clone()).collect();
                    if let Some(owner) = self.services.get_mut(&object.key) {
                        owner.warnings = warnings;
                    }
                    let mut public_ips = BTreeMap::new();
                    for family in &ask.families {
                        if let AddressAsk::Public(public) = &family.address {
                            let id = wants::public_ip_id(public, &settings).unwrap().unwrap();
                            public_ips.insert(family.family, id);
                        }
                    }
                    let load_balancer = load_balancer_env(&settings, ask.side).id;
                    Desired::Present(Spec {
                        ask,
                        load_balancer,
                        public_ips,
                        private_link: None,
                        private_link_subnet: None,
                    })
                }
            }
        };
        self.discover();
        let ask = parse(object, &settings, &self.existing(object)).ok();
        let owned = self.discovered.owned(object, ask.as_ref(), standing(object), Duration::ZERO, &settings);
        let mut found: BTreeSet<Key> = self.load_balancers.keys().cloned().map(Key::LoadBalancer).collect();
        found.insert(Key::SecurityGroup(self.group.id.clone()));
        found.extend(owned.keys);
        let (ownerless, named) = (self.released().into_iter().collect(), discovery::named(object, &settings));
        let of_spec = match &desired {
            Desired::Present(spec) => spec.public_ips.values().cloned().collect(),
            _ => vec![],
        };
        let all = found.iter().chain(&ownerless);
        let of_found = all.filter(|key| matches!(key, Key::PublicIp(_))).map(|key| key.id().clone());
        for id in of_spec.into_iter().chain(of_found.collect::<Vec<_>>()) {
            self.track(&id);
        }
        let status = self.services.get(&object.key).and_then(|owner| owner.status.clone());
        let (finalizer, unread) = (object.has_finalizer, owned.unread);
        Snapshot { version, desired, finalizer, status, found, ownerless, named, unread }
    }

    /// The API server shows this state of a Service.
    fn change(&mut self, object: ServiceObject) {
        let key = object.key.clone();
        let owner = self.services.entry(key.clone()).or_insert_with(|| Owner {
            object: object.clone(),
            state: service::State::default(),
            version: 0,
            status: None,
            events: vec![],
            warnings: vec![],
        });
        owner.object = object.clone();
        owner.version += 1;
        let version = owner.version;
        self.inputs.peers = Arc::new(self.services.values().map(|owner| &owner.object).collect());
        for track in self.load_balancers.values_mut() {
            track.inputs.peers = Arc::clone(&self.inputs.peers);
        }
        let snapshot = self.snapshot(&object, version);
        self.step_service(&key, service::Event::Changed(snapshot));
        self.settle();
    }

    fn step_service(&mut self, key: &ServiceKey, event: service::Event<Balanced>) {
        if let service::Event::Told { outcome: Outcome::Done(report), .. } = &event {
            self.notices.extend(report.found.notices.iter().cloned());
        }
        let Some(owner) = self.services.get_mut(key) else { return };
        let env = service::Env { shared: self.clock.shared(), id: key, inputs: &self.inputs };
        let actions = service::step(&mut owner.state, &env, self.clock.now, event);
        let mut again = None;
        for action in actions {
            match action {
                service::Action::Tell { key: to, generation, want, .. } => {
                    self.messages.push_back(Message::Want(to, key.clone(), generation, want));
                }
                service::Action::Withdraw(to) => match &to {
                    Key::PublicIp(id) => {
                        let track = self.public_ips.get_mut(id).unwrap();
                        track.feed(&mut self.clock, object::Event::Withdrawn(key.clone()));
                    }
                    Key::LoadBalancer(id) => {
                        let track = self.load_balancers.get_mut(id).unwrap();
                        track.feed(&mut self.clock, object::Event::Withdrawn(key.clone()));
                    }
                    Key::SecurityGroup(_) => {
                        self.group.feed(&mut self.clock, object::Event::Withdrawn(key.clone()));
                    }
                    Key::PrivateLink(_) | Key::Subnet(_) => {}
                },
                service::Action::Patch { id, patch, .. } => {
                    let owner = self.services.get_mut(key).unwrap();
                    match &patch {
                        Patch::AddFinalizer => owner.object.has_finalizer = true,
                        Patch::RemoveFinalizer => owner.object.has_finalizer = false,
                        Patch::SetStatus(status) => owner.status = Some(status.clone()),
                        Patch::ClearStatus => owner.status = None,
                    }
                    owner.version += 1;
                    self.clock.writes.push(format!("{} {patch:?}", key.name));
                    let gone = owner.object.is_deleting && !owner.object.has_finalizer;
                    again = Some((service::Event::Patched { id, result: Ok(owner.version) }, gone));
                }
                service::Action::Report(reason) => self.services.get_mut(key).unwrap().events.push(reason),
                service::Action::Drained => {}
            }
        }
        if let Some((event, gone)) = again {
            self.step_service(key, event);
            if gone {
                self.step_service(key, service::Event::Removed);
                self.services.remove(key);
            }
        }
    }

    /// Runs until nothing is left to do; time passes where a state asks to be woken.
    fn settle(&mut self) {
        let (mut writes, mut quiet) = (self.clock.writes.len(), 0);
        for _ in 0..200 {
            // What is refused is looked at again and again.
            quiet = if self.clock.writes.len() == writes { quiet + 1 } else { 0 };
            writes = self.clock.writes.len();
            let is_refused = |owner: &Owner| matches!(owner.events.last(), Some(service::Reason::Refused(..)));
            if quiet > 50 && self.services.values().any(is_refused) {
                return;
            }
            while let Some(message) = self.messages.pop_front() {
                match message {
                    Message::Want(key, from, generation, want) => self.want(&key, from, generation, want),
                    Message::Told(to, key, generation, outcome) => {
                        if let Outcome::Done(report) = &outcome {
                            self.notices.extend(report.found.notices.clone());
                        }
                        self.step_service(&to, service::Event::Told { key, generation, outcome });
                    }
                }
            }
            let wakes = self.public_ips.values().filter_map(|track| track.state.wake_at());
            let wakes = wakes.chain(self.load_balancers.values().filter_map(|track| track.state.wake_at()));
            let wakes = wakes.chain(self.group.state.wake_at());
            let wakes = wakes.chain(self.services.values().filter_map(|owner| owner.state.wake_at()));
            let Some(next) = wakes.min() else { return };
            if next > self.clock.now + Duration::from_secs(600) {
                return;
            }
            self.clock.now = next.max(self.clock.now);
            self.wake();
        }
        panic!("the world does not settle: {:#?}", self.clock.writes);
    }

    fn wake(&mut self) {
        let mut told = Vec::new();
        for (id, track) in &mut self.public_ips {
            let of = track.feed(&mut self.clock, object::Event::Woke);
            told.extend(of.into_iter().map(|one| (Key::PublicIp(id.clone()), one)));
        }
        for (id, track) in &mut self.load_balancers {
            let of = track.feed(&mut self.clock, object::Event::Woke);
            told.extend(of.into_iter().map(|one| (Key::LoadBalancer(id.clone()), one)));
        }
        let of = self.group.feed(&mut self.clock, object::Event::Woke);
        told.extend(of.into_iter().map(|one| (Key::SecurityGroup(self.group.id.clone()), one)));
        self.tell(told);
        self.link();
        for key in self.services.keys().cloned().collect::<Vec<_>>() {
            self.step_service(&key, service::Event::Woke);
        }
    }

    fn tell(&mut self, told: Vec<(Key, Answer)>) {
        for (key, (to, generation, outcome)) in told {
            self.messages.push_back(Message::Told(to, key, generation, outcome));
        }
    }

    fn want(&mut self, key: &Key, from: ServiceKey, generation: u64, want: Want) {
        let told = match (key, want) {
            (Key::PublicIp(id), Want::PublicIp(want)) => {
                let track = self.public_ips.get_mut(id).unwrap();
                track.feed(
                    &mut self.clock,
                    object::Event::Requested { from, generation, want, acceptance: Acceptance::Given },
                )
            }
            (Key::LoadBalancer(id), Want::LoadBalancer(want)) => {
                let track = self.load_balancers.get_mut(id).unwrap();
                track.feed(
                    &mut self.clock,
                    object::Event::Requested { from, generation, want, acceptance: Acceptance::Given },
                )
            }
            (Key::SecurityGroup(_), Want::SecurityGroup(want)) => self.group.feed(
                &mut self.clock,
                object::Event::Requested { from, generation, want, acceptance: Acceptance::Given },
            ),
            (key, want) => panic!("{key:?} is not told {want:?}"),
        };
        self.tell(told.into_iter().map(|one| (key.clone(), one)).collect());
        self.link();
    }

    /// Has public IPs show which frontend they have.
    fn link(&mut self) {
        let mut users = BTreeMap::new();
        for track in self.load_balancers.values() {
            let balancer = track.body.as_ref().map(|body| (track.read)(&track.id, body));
            for frontend in balancer.iter().flat_map(|balancer| &balancer.frontends) {
                let id = load_balancer::LoadBalancer::frontend_id(&track.id, &frontend.name);
                users.extend(frontend.public_ip.clone().map(|public_ip| (public_ip, id)));
            }
        }
        let mut told = Vec::new();
        for (id, track) in &mut self.public_ips {
            let Some(body) = &mut track.body else { continue };
            let user = users.get(id).map_or(Value::Null, |user| json!({ "id": user.as_str() }));
            if body["properties"]["ipConfiguration"] != user {
                body["properties"]["ipConfiguration"] = user;
                let of = track.feed(&mut self.clock, object::Event::Tainted(object::Taint::Changed));
                told.extend(of.into_iter().map(|one| (Key::PublicIp(id.clone()), one)));
            }
        }
        self.tell(told);
        self.show_users();
    }

    /// The names of what Azure holds.
    fn holds(&self) -> Vec<String> {
        let ips = self.public_ips.values().filter(|track| track.body.is_some()).map(|track| track.id.name());
        let balancers = self.load_balancers.values().filter(|track| track.body.is_some()).map(|track| track.id.name());
        let rules = self.group.body.as_ref().unwrap()["properties"]["securityRules"].as_array().unwrap();
        let rules = rules.iter().map(|rule| rule["name"].as_str().unwrap());
        ips.chain(balancers).chain(rules).map(str::to_owned).collect()
    }

    fn status(&self, key: &ServiceKey) -> Vec<String> {
        let owner = self.services.get(key);
        let status = owner.and_then(|owner| owner.status.clone()).unwrap_or_default();
        status.iter().map(IpAddr::to_string).collect()
    }

    /// Where the writes with these words are among all writes.
    fn at(&self, words: &str) -> usize {
        let found = self.clock.writes.iter().position(|write| write.contains(words));
        found.unwrap_or_else(|| panic!("no {words:?} among {:#?}", self.clock.writes))
    }
}

fn fresh(name: &str, mut object: ServiceObject) -> ServiceObject {
    let number = name.bytes().map(u32::from).sum::<u32>();
    object.key = ServiceKey::new("default", name, format!("{number:08x}-4e5f-6071-8293-a4b5c6d7e8f9"));
    object.has_finalizer = false;
    object
}

#[test]
fn a_public_service_gets_its_address_and_is_deleted_without_a_trace() {
    let mut world = World::new();
    let web = fresh("web", annotated(&[]));
    world.change(web.clone());
    assert_eq!(world.status(&web.key), ["20.0.0.1"]);
    assert!(world.at("AddFinalizer") < world.at("Create("), "the finalizer is there before anything of Azure");
    assert!(world.at("PutFrontend") < world.at("SetStatus") && world.at("PutRule") < world.at("SetStatus"));
    assert_eq!(world.holds().len(), 3);
    let owner = &world.services[&web.key];
    assert_eq!(owner.events, [service::Reason::Ensuring, service::Reason::Ensured]);

    let object = ServiceObject { is_deleting: true, ..owner.object.clone() };
    world.clock.writes.clear();
    world.change(object);
    assert_eq!(world.holds(), Vec::<String>::new(), "{:#?}", world.clock.writes);
    assert!(world.at("nsg") < world.at("kubernetes "), "no address is released while a rule admits it");
    assert!(world.at("ClearStatus") < world.at("RemoveFinalizer"));
    assert!(world.services.is_empty());
}

#[test]
fn a_new_process_writes_nothing_where_all_is_as_it_should_be() {
    let mut world = World::new();
    for (name, object) in [
        ("web", annotated(&[])),
        ("inner", annotated(&[("azure-load-balancer-internal", "true")])),
        ("closed", annotated(&[("azure-allowed-service-tags", "AzureCloud")])),
        ("shut", ServiceObject { source_ranges: ["10.1.0.0/16"].iter().collect(), ..annotated(&[]) }),
    ] {
        world.change(fresh(name, object));
    }
    let before = world.holds();
    world.restart();
    assert_eq!(world.clock.writes, Vec::<String>::new());
    assert_eq!(world.holds(), before);
}

#[test]
fn a_service_that_moves_inside_serves_there_before_it_leaves_outside() {
    let mut world = World::new();
    let web = fresh("web", annotated(&[]));
    world.change(web.clone());
    let mut object = world.services[&web.key].object.clone();
    world.clock.writes.clear();
    object.annotations = annotated(&[("azure-load-balancer-internal", "true")]).annotations;
    world.change(object);
    let status = world.status(&web.key);
    assert!(status[0].starts_with("10.0.0."), "{status:?}");
    assert!(world.at("SetStatus") < world.at("kubernetes [Delete]"), "{:#?}", world.clock.writes);
    let held = world.holds();
    assert_eq!(held, ["kubernetes-internal"], "{:#?}", world.clock.writes);
}

#[test]
fn changed_ports_and_sources_replace_what_was_there() {
    let mut world = World::new();
    let web = fresh("web", annotated(&[]));
    let other = fresh("other", annotated(&[]));
    world.change(web.clone());
    world.change(other.clone());
    let mut object = world.services[&web.key].object.clone();
    object.ports = vec![port(PortProtocol::Tcp, 443), port(PortProtocol::Udp, 53)];
    object.source_ranges = ["192.0.2.0/24"].iter().collect();
    world.change(object.clone());
    let group = world.group.body.clone().unwrap();
    let group = security_group::SecurityGroup::read(&world.group.id, &group).unwrap();
    let admits = |port: &str| {
        let has = |rule: &&security_group::SecurityRule| rule.ports.iter().any(|there| there == port);
        group.rules.iter().filter(has).flat_map(|rule| rule.destinations.clone()).collect::<Vec<_>>()
    };
    assert_eq!(admits("80"), ["20.0.0.2"], "the other Service keeps its rule");
    assert_eq!(admits("443"), ["20.0.0.1"]);
    let balancer = world.load_balancers.values().find(|track| track.body.is_some()).unwrap();
    let rules = balancer.body.as_ref().unwrap()["properties"]["loadBalancingRules"].as_array().unwrap();
    assert_eq!(rules.len(), 3);
    world.restart();
    assert_eq!(world.clock.writes, Vec::<String>::new());
    let object = ServiceObject { is_deleting: true, ..object };
    world.change(ServiceObject { has_finalizer: true, ..object });
    assert_eq!(world.status(&other.key), ["20.0.0.2"]);
    assert_eq!(world.holds().len(), 3, "{:?}", world.holds());
}

#[test]
fn a_wrong_annotation_writes_nothing_and_keeps_what_was_there() {
    let mut world = World::new();
    let web = fresh("web", annotated(&[]));
    world.change(web.clone());
    let mut object = world.services[&web.key].object.clone();
    object.annotations = annotated(&[("azure-load-balancer-tcp-idle-timeout", "soon")]).annotations;
    world.clock.writes.clear();
    world.change(object);
    assert_eq!(world.clock.writes, Vec::<String>::new());
    let warnings = &world.services[&web.key].warnings;
    assert!(warnings[0].contains("tcp-idle-timeout"), "{warnings:?}");
    // A field of which nothing is shown refuses the Service as a whole.
    let mut object = world.services[&web.key].object.clone();
    object.ports = vec![];
    world.change(object);
    assert_eq!(world.clock.writes, Vec::<String>::new());
    let last = world.services[&web.key].events.last().unwrap();
    assert!(
        matches!(last, service::Reason::Invalid(words) if words.iter().any(|one| one.contains("port"))),
        "{last:?}"
    );
    assert_eq!(world.holds().len(), 3);
}

#[test]
fn a_service_leaves_an_address_in_order_that_another_gave_up_before() {
    let mut world = World::new();
    let former = fresh("former", annotated(&[])).key;
    let destinations = ["20.0.0.1".parse().unwrap()].into();
    let gone = security_group::Gone { destinations, base: Some(BaseName::of(&former)), ..Default::default() };
    let (want, acceptance) = (network::Want { present: security_group::Part::default(), gone }, Acceptance::Given);
    let told =
        world.group.feed(&mut world.clock, object::Event::Requested { from: former, generation: 1, want, acceptance });
    assert!(matches!(told[..], [(_, 1, Outcome::Done(_))]), "{told:?}");

    let web = fresh("web", annotated(&[]));
    world.change(web.clone());
    assert_eq!(world.status(&web.key), ["20.0.0.1"]);
    let mut object = world.services[&web.key].object.clone();
    world.clock.writes.clear();
    object.annotations = annotated(&[("azure-load-balancer-internal", "true")]).annotations;
    object.source_ranges = ["10.1.0.0/16"].iter().collect();
    world.change(object);
    assert!(world.at("SetStatus") < world.at("RemoveRule"), "{:#?}", world.clock.writes);
}

#[test]
fn what_stays_gone_of_a_service_bears_its_name() {
    let (web, settings) = (fresh("web", annotated(&[])).key, settings());
    let public_ip = load_balancer_env(&settings, Side::Public).id;
    let everything = |public_ips, addresses| load_balancer::Gone::Everything {
        base: BaseName::of(&web),
        pools: vec!["web".to_owned()],
        public_ips,
        addresses,
    };
    let gone = everything([public_ip].into(), ["10.0.0.4".parse().unwrap()].into());
    let want = network::Want { present: load_balancer::Part::default(), gone };
    assert_eq!(LoadBalancers::spent(&want).gone, everything(BTreeSet::new(), BTreeSet::new()));
}

impl World {
    /// Deletes Services at the same time.
    fn delete(&mut self, services: &[&ServiceKey]) {
        for key in services {
            let owner = self.services.get_mut(key).unwrap();
            owner.object.is_deleting = true;
            owner.version += 1;
            let (object, version) = (owner.object.clone(), owner.version);
            let snapshot = self.snapshot(&object, version);
            self.step_service(key, service::Event::Changed(snapshot));
        }
        self.settle();
    }

    /// A Service with a public IP, and one with TCP port 443 on the same.
    fn on_one_public_ip(&mut self) -> [ServiceKey; 2] {
        let one = fresh("one", annotated(&[]));
        self.change(one.clone());
        let name = self.public_ips.keys().next().unwrap().name().to_owned();
        let two = fresh("two", annotated(&[("azure-pip-name", &name)]));
        let two = ServiceObject { ports: vec![port(PortProtocol::Tcp, 443)], ..two };
        self.change(two.clone());
        assert_eq!([self.status(&one.key), self.status(&two.key)], [["20.0.0.1"], ["20.0.0.1"]]);
        [one.key, two.key]
    }

    fn rules(&self) -> Vec<security_group::SecurityRule> {
        let body = self.group.body.clone().unwrap();
        security_group::SecurityGroup::read(&self.group.id, &body).unwrap().rules
    }
}

#[test]
fn a_service_that_leaves_a_shared_address_takes_its_own_and_the_last_takes_the_rest() {
    let mut world = World::new();
    let [one, two] = world.on_one_public_ip();
    assert_eq!(world.rules().len(), 2);
    world.delete(&[&one]);
    assert!(!world.services.contains_key(&one));
    let rules = world.rules();
    assert!(rules.len() == 1 && rules[0].ports == ["443"], "{rules:?}");
    assert_eq!(world.status(&two), ["20.0.0.1"]);
    assert_eq!(world.holds().len(), 3, "public IP, load balancer and rule: {:?}", world.holds());
    world.delete(&[&two]);
    assert_eq!(world.holds(), Vec::<String>::new());
}

#[test]
fn services_that_leave_a_shared_address_together_leave_nothing() {
    let mut world = World::new();
    let [one, two] = world.on_one_public_ip();
    world.clock.writes.clear();
    world.delete(&[&one, &two]);
    assert!(world.services.is_empty(), "{:#?}", world.clock.writes);
    assert_eq!(world.holds(), Vec::<String>::new(), "{:#?}", world.clock.writes);
    let last_rule = world.clock.writes.iter().rposition(|write| write.starts_with("nsg")).unwrap();
    assert!(last_rule < world.at("[Delete]"), "no address is released while a rule admits it");
}

#[test]
fn a_service_that_leaves_a_shared_address_spares_one_that_this_process_does_not_know_yet() {
    let mut world = World::new();
    let [one, two] = world.on_one_public_ip();
    let known = world.services.remove(&two).unwrap();
    world.restart();
    world.delete(&[&one]);
    assert!(world.services.is_empty());
    let rules = world.rules();
    assert!(rules.len() == 1 && rules[0].ports == ["443"], "{rules:?}");
    world.services.insert(two.clone(), known);
    world.restart();
    assert_eq!(world.clock.writes, Vec::<String>::new());
}

#[test]
fn a_rule_that_the_go_manager_left_where_floating_ip_is_off_goes_with_the_next_change() {
    let mut world = World::new();
    let nodes: BTreeSet<IpAddr> = ["10.0.0.200".parse().unwrap()].into();
    world.inputs.nodes = nodes.clone();
    world.group.inputs.nodes = nodes;
    let web = fresh("web", annotated(&[]));
    world.change(web.clone());
    let left = world.group.body.clone().unwrap()["properties"]["securityRules"][0].clone();
    let mut object = world.services[&web.key].object.clone();
    object.annotations = annotated(&[("azure-disable-load-balancer-floating-ip", "true")]).annotations;
    world.change(object.clone());
    assert_eq!(world.rules().into_iter().flat_map(|rule| rule.destinations).collect::<Vec<_>>(), ["10.0.0.200"]);

    let rules = &mut world.group.body.as_mut().unwrap()["properties"]["securityRules"];
    let free = json!(rules[0]["properties"]["priority"].as_u64().unwrap() + 1);
    rules.as_array_mut().unwrap().push(left);
    rules[1]["properties"]["priority"] = free;
    world.restart();
    assert_eq!(world.clock.writes, Vec::<String>::new(), "taking over writes nothing");
    object.source_ranges = ["10.1.0.0/16"].iter().collect();
    world.change(ServiceObject { has_finalizer: true, ..object });
    let rules = world.rules();
    assert!(rules.len() == 1 && rules[0].sources == ["10.1.0.0/16"], "{rules:?}");
}

#[test]
fn a_status_with_the_same_addresses_in_another_order_is_left_alone() {
    let mut world = World::new();
    let web = fresh("web", annotated(&[("azure-additional-public-ips", "20.9.9.9")]));
    world.change(web.clone());
    assert_eq!(world.status(&web.key), ["20.0.0.1", "20.9.9.9"]);
    world.services.get_mut(&web.key).unwrap().status.as_mut().unwrap().reverse();
    world.restart();
    assert_eq!(world.clock.writes, Vec::<String>::new());
    assert_eq!(world.status(&web.key), ["20.9.9.9", "20.0.0.1"]);
}
