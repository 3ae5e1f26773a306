//! What is made in the network, under every interruption, beside another replica and beside people.

use std::{collections::BTreeMap, time::Duration};

use lazuli_engine::{
    attempts::Limits,
    single::{AzureFailure, Course as _, Input, Next},
};
use lazuli_model::fault::{Effect, Fault};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::work::network::{Network as Course, Request, Why};

const GROUP: &str = "/subscriptions/s/resourceGroups/g/providers";
const OURS: [&str; 5] = [
    "virtualNetworks/v/subnets/nodes",
    "privateDnsZones/privatelink.file.core.windows.net",
    "privateDnsZones/privatelink.file.core.windows.net/virtualNetworkLinks/v-vnetlink",
    "privateEndpoints/acct-pvtendpoint",
    "privateEndpoints/acct-pvtendpoint/privateDnsZoneGroups/acct-dnszonegroup",
];

fn id(rest: &str) -> ArmId {
    format!("{GROUP}/Microsoft.Network/{rest}").parse().unwrap()
}

fn account() -> ArmId {
    format!("{GROUP}/Microsoft.Storage/storageAccounts/acct").parse().unwrap()
}

fn network() -> PrivateNetwork {
    PrivateNetwork { network: id("virtualNetworks/v"), subnet: id(OURS[0]), zone: id(OURS[1]), link: id(OURS[2]) }
}

fn subnets() -> Wanted {
    Wanted::ServiceEndpoints(vec![id(OURS[0]), id("virtualNetworks/v/subnets/more")])
}

fn private() -> Wanted {
    Wanted::endpoint(&account(), &network()).unwrap()
}

#[derive(Debug, Clone, PartialEq)]
struct Error(Fault, Effect);

impl AzureFailure for Error {
    fn fault(&self) -> &Fault {
        &self.0
    }

    fn effect(&self) -> Effect {
        self.1
    }

    fn code(&self) -> &str {
        ""
    }
}

fn refused(fault: Fault) -> Error {
    Error(fault, Effect::None)
}

/// A resource, its version, who made it, and how long Azure works on it.
#[derive(Debug, Clone, PartialEq)]
struct Resource {
    body: Value,
    version: u32,
    is_persons: bool,
    busy: u32,
}

/// Azure's network, as far as it matters here.
#[derive(Debug, Default, Clone)]
struct World {
    all: BTreeMap<ArmId, Resource>,
    writes: Vec<ArmId>,
}

impl World {
    fn new() -> Self {
        let mut world = Self::default();
        world.person("virtualNetworks/v", json!({"location": "local", "properties": {"subnets": [{"name": "Nodes"}]}}));
        let service = json!([{"service": "Microsoft.Sql"}]);
        world.person(OURS[0], json!({"properties": {"serviceEndpoints": service, "new": {"member": [1]}}}));
        world.person("virtualNetworks/v/subnets/more", json!({"properties": {"addressPrefix": "10.0.0.0/24"}}));
        world
    }

    fn put(&mut self, id: ArmId, mut body: Value, is_persons: bool, busy: u32) {
        let version = self.all.get(&id).map_or(1, |there| there.version + 1);
        body["name"] = id.name().into();
        if id.is_type("Microsoft.Network/privateEndpoints") && !is_persons {
            body["properties"]["privateLinkServiceConnections"][0]["properties"]["privateLinkServiceConnectionState"] =
                json!({"status": "Approved"});
        }
        self.all.insert(id, Resource { body, version, is_persons, busy });
    }

    /// A person makes it.
    fn person(&mut self, rest: &str, body: Value) {
        self.put(id(rest), body, true, 0);
    }

    fn shown(resource: &Resource) -> Value {
        let mut body = resource.body.clone();
        let state = if resource.busy > 0 { "Updating" } else { "Succeeded" };
        body["properties"]["provisioningState"] = state.into();
        body
    }

    /// What is directly below a resource.
    fn below(&self, above: &ArmId, member: &str) -> Vec<Value> {
        let start = format!("{}/{}/", above.folded(), member.to_lowercase());
        self.all.iter().filter(|(id, _)| id.folded().starts_with(&start)).map(|(_, one)| Self::shown(one)).collect()
    }

    fn connections(&self) -> Connections {
        let endpoints = self.all.iter().filter(|(id, _)| id.is_type("Microsoft.Network/privateEndpoints"));
        let endpoints: Vec<ArmId> = endpoints.map(|(id, _)| id.clone()).collect();
        Connections { count: endpoints.len(), endpoints }
    }

    fn read(&self, wanted: &Wanted, object: Object) -> Result<Seen, Error> {
        let list = |above: Object, member: &str| {
            let above = wanted.id(above).unwrap();
            let there = self.all.get(above).ok_or(refused(Fault::NotFound));
            there.map(|_| Seen::of_list(object, &self.below(above, member)).unwrap())
        };
        match object {
            Object::Account => Ok(Seen::Account(self.connections())),
            Object::Links => list(Object::Zone, "virtualNetworkLinks"),
            Object::ZoneGroups => list(Object::Endpoint, "privateDnsZoneGroups"),
            _ => {
                let there = self.all.get(wanted.id(object).unwrap()).ok_or(refused(Fault::NotFound))?;
                Ok(Seen::of(object, &Self::shown(there), Some(there.version.to_string())).unwrap())
            }
        }
    }

    fn write(&mut self, write: &Write) -> Result<(), Error> {
        let there = self.all.get(&write.id);
        match write.object {
            Object::Subnet(_) => {
                let version = there.unwrap().version.to_string();
                if write.etag.as_ref() != Some(&version) {
                    return Err(refused(Fault::PreconditionFailed));
                }
            }
            Object::Zone | Object::Links if there.is_some() => return Err(refused(Fault::PreconditionFailed)),
            // Only another replica's, which is the same, may be in the way.
            _ => assert!(there.is_none_or(|there| !there.is_persons), "{write:?}"),
        }
        let parent = write.id.parent().filter(|parent| !parent.is_type("Microsoft.Network/virtualNetworks"));
        if parent.is_some_and(|parent| !self.all.contains_key(&parent)) {
            return Err(refused(Fault::ScopeNotFound));
        }
        self.writes.push(write.id.clone());
        let is_persons = there.is_some_and(|there| there.is_persons);
        let mut body = write.body.clone();
        body["properties"].as_object_mut().map(|properties| properties.remove("provisioningState"));
        self.put(write.id.clone(), body, is_persons, 2);
        Ok(())
    }

    fn tick(&mut self) {
        self.all.values_mut().for_each(|one| one.busy = one.busy.saturating_sub(1));
    }
}

/// How a write goes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Luck {
    Good,
    /// It is done, and its answer is lost.
    Lost,
    /// Azure has failed.
    Down,
}

/// A process that asks for what is wanted until it is there.
struct Replica {
    wanted: Wanted,
    course: Course<Error>,
    next: Next<Course<Error>>,
}

impl Replica {
    fn new(wanted: &Wanted, connections: Option<Connections>) -> Self {
        let limits = Limits { tries: 4, longest_wait: Duration::from_secs(60) };
        let mut course = Course::of(&Request { wanted: wanted.clone(), connections, limits });
        let next = course.next(&(), Duration::ZERO, Input::Begin);
        Self { wanted: wanted.clone(), course, next }
    }

    /// What came of it, once it has ended.
    fn step(&mut self, world: &mut World, luck: Luck) -> Option<Result<(), Why>> {
        let input = match &self.next {
            Next::Permit(_) => Input::Permitted,
            Next::Read(object) => Input::Read(world.read(&self.wanted, *object)),
            Next::Write(_) if luck == Luck::Down => Input::Refused(refused(Fault::Unavailable)),
            Next::Write(write) => match world.write(write) {
                Ok(()) if luck == Luck::Lost => Input::Refused(Error(Fault::OutcomeUnknown, Effect::Possible)),
                Ok(()) => Input::Written(None),
                Err(error) => Input::Refused(error),
            },
            Next::Rest(_) => {
                world.tick();
                Input::Rested
            }
            Next::End(outcome) => return Some(outcome.clone().map_err(|failure| failure.why)),
        };
        self.next = self.course.next(&(), Duration::ZERO, input);
        None
    }

    fn run(&mut self, world: &mut World) -> Result<(), Why> {
        (0..500).find_map(|_| self.step(world, Luck::Good)).expect("it comes to an end")
    }
}

fn run(wanted: &Wanted, world: &mut World) -> Result<(), Why> {
    Replica::new(wanted, None).run(world)
}

fn names(world: &World) -> Vec<&str> {
    world.writes.iter().map(|id| id.as_str().split_once("Microsoft.Network/").unwrap().1).collect()
}

#[test]
fn subnets_get_the_service_endpoint_once_and_keep_all_else() {
    let mut world = World::new();
    run(&subnets(), &mut world).unwrap();
    assert_eq!(names(&world), [OURS[0], "virtualNetworks/v/subnets/more"]);
    let body = &world.all[&id(OURS[0])].body;
    assert_eq!(
        body["properties"]["serviceEndpoints"],
        json!([{"service": "Microsoft.Sql"}, {"service": "Microsoft.Storage"}])
    );
    assert_eq!(body["properties"]["new"], json!({"member": [1]}));
    run(&subnets(), &mut world).unwrap();
    assert_eq!(world.writes.len(), 2);
    let global = json!({"properties": {"serviceEndpoints": [{"service": "microsoft.storage.global"}]}});
    let mut world = World::new();
    world.person(OURS[0], global.clone());
    world.person("virtualNetworks/v/subnets/more", global);
    run(&subnets(), &mut world).unwrap();
    assert_eq!(names(&world), [""; 0]);
}

#[test]
fn an_account_gets_its_zone_link_endpoint_and_record_in_this_order_and_once() {
    let mut world = World::new();
    run(&Wanted::Zone(network()), &mut world).unwrap();
    assert_eq!(names(&world), OURS[1..3]);
    run(&private(), &mut world).unwrap();
    assert_eq!(names(&world), OURS[1..]);
    let endpoint = &world.all[&id(OURS[3])].body;
    assert_eq!(endpoint["location"], "local");
    let connection = &endpoint["properties"]["privateLinkServiceConnections"][0];
    assert_eq!(connection["name"], "acct-pvtsvcconn");
    assert_eq!(connection["properties"]["groupIds"], json!(["file"]));
    for wanted in [private(), Wanted::Zone(network())] {
        run(&wanted, &mut world).unwrap();
        assert_eq!(world.writes.len(), 4);
    }
}

#[test]
fn a_subnet_that_is_not_there_is_named_before_anything_is_written() {
    let lacking = id("virtualNetworks/v/subnets/none");
    let none = PrivateNetwork { subnet: lacking.clone(), ..network() };
    for wanted in [
        Wanted::ServiceEndpoints(vec![id(OURS[0]), lacking.clone()]),
        Wanted::Zone(none.clone()),
        Wanted::endpoint(&account(), &none).unwrap(),
    ] {
        let mut world = World::new();
        let Err(Why::Refused(refusal)) = run(&wanted, &mut world) else { panic!("{wanted}") };
        assert_eq!((refusal.code(), world.writes.len()), (Code::InvalidArgument, 0));
        assert!(refusal.to_string().contains(lacking.as_str()), "{refusal}");
    }
}

#[test]
fn what_people_have_arranged_is_left_as_it_is() {
    // An account with an endpoint of its owner, of which the list tells: nothing of the network is read.
    let connections = Connections { count: 1, endpoints: vec![id("privateEndpoints/theirs")] };
    assert_eq!(plan(&private(), &Facts::of_account(Some(connections))), Step::Done);
    assert_eq!(plan(&private(), &Facts::of_account(Some(Connections { count: 1, endpoints: vec![] }))), Step::Done);
    // A zone that exists, with a link of another name.
    let mut world = World::new();
    world.person(OURS[1], json!({"location": "global"}));
    let to = |network: &str| json!({"properties": {"virtualNetwork": {"id": id(network).as_str()}}});
    world.person(&format!("{}/virtualNetworkLinks/hub", OURS[1]), to("virtualNetworks/V"));
    run(&private(), &mut world).unwrap();
    assert_eq!(names(&world), OURS[3..]);
    // Records that are in the zone of another group.
    let mut world = World::new();
    run(&private(), &mut world).unwrap();
    world.all.retain(|id, _| !id.as_str().contains("rivateDnsZone"));
    let zone = format!("{GROUP}/Microsoft.Network/privateDnsZones/other");
    let theirs =
        json!({"properties": {"privateDnsZoneConfigs": [{"name": "z", "properties": {"privateDnsZoneId": zone}}]}});
    world.person(&format!("{}/privateDnsZoneGroups/default", OURS[3]), theirs);
    let before = world.writes.len();
    run(&private(), &mut world).unwrap();
    assert_eq!(world.writes.len(), before);
}

#[test]
fn what_stands_in_the_way_is_named_and_not_overwritten() {
    let endpoint = |service: &str, status: &str| {
        json!({"properties": {"privateLinkServiceConnections": [{"properties": {
            "privateLinkServiceId": service, "privateLinkServiceConnectionState": {"status": status},
        }}]}})
    };
    let link = json!({"properties": {"virtualNetwork": {"id": id("virtualNetworks/w").as_str()}}});
    let other = format!("{GROUP}/Microsoft.Storage/storageAccounts/other");
    for (rest, body, words) in [
        (OURS[2], link, "another vnetLinkName"),
        (OURS[3], endpoint(&other, "Approved"), "storageAccounts/other"),
        (OURS[3], endpoint(account().as_str(), "Disconnected"), "\"Disconnected\""),
    ] {
        let mut world = World::new();
        world.person(OURS[1], json!({"location": "global"}));
        world.person(rest, body);
        let Err(Why::Refused(refusal)) = run(&private(), &mut world) else { panic!("{words}") };
        assert_eq!(refusal.code(), Code::FailedPrecondition);
        assert!(refusal.to_string().contains(words), "{refusal}");
        assert_eq!(world.writes.len(), 0);
    }
    let mut failed = Facts::default();
    failed.learn(Seen::Network(Some(Network { location: "local".into(), subnets: vec!["nodes".into()] })));
    failed.learn(Seen::Zone(Some(ProvisioningState::Failed)));
    let Step::Refused(refusal) = plan(&Wanted::Zone(network()), &failed) else { panic!("a zone that has failed") };
    assert!(refusal.to_string().starts_with("the private DNS zone /subscriptions"), "{refusal}");
}

#[test]
fn an_account_that_is_gone_and_a_group_that_is_missing_are_told_apart() {
    for (object, fault, expected) in [
        (Object::Account, Fault::NotFound, Fault::ScopeNotFound),
        (Object::Account, Fault::ScopeNotFound, Fault::ScopeNotFound),
        (Object::Endpoint, Fault::ScopeNotFound, Fault::Invalid),
        (Object::Endpoint, Fault::Forbidden, Fault::Forbidden),
    ] {
        let connections = (object != Object::Account).then(Connections::default);
        let mut replica = Replica::new(&private(), connections);
        assert!(matches!(replica.next, Next::Read(first) if first == object));
        let next = replica.course.next(&(), Duration::ZERO, Input::Read(Err(refused(fault))));
        let Next::End(Err(failure)) = next else { panic!("{next:?}") };
        assert_eq!(failure.fault, expected);
    }
}

/// What a person does, by number.
fn person(world: &mut World, what: u8) {
    let to = |network: &str| json!({"properties": {"virtualNetwork": {"id": id(network).as_str()}}});
    let made = match what % 6 {
        0 => (OURS[1].to_owned(), json!({"location": "global"})),
        1 => (format!("{}/virtualNetworkLinks/hub", OURS[1]), to("virtualNetworks/v")),
        2 => (format!("{}/virtualNetworkLinks/spoke", OURS[1]), to("virtualNetworks/w")),
        3 => ("privateEndpoints/theirs".to_owned(), json!({"properties": {}})),
        4 => {
            // A new member of a subnet: its version changes.
            if let Some(subnet) = world.all.get_mut(&id(OURS[0])) {
                subnet.version += 1;
                subnet.body["properties"]["routeTable"] = json!({"id": "/r"});
            }
            return;
        }
        _ => return world.tick(),
    };
    let linked = |network: &str| {
        world
            .below(&id(OURS[1]), "virtualNetworkLinks")
            .iter()
            .any(|link| link["properties"]["virtualNetwork"]["id"] == network)
    };
    let has_zone = world.all.contains_key(&id(OURS[1]));
    let is_refused = world.all.contains_key(&id(&made.0))
        || made.0.contains("Links") && !has_zone
        || what % 6 == 1 && linked(id("virtualNetworks/v").as_str());
    if !is_refused {
        world.person(&made.0, made.1);
    }
}

/// The resources of people, and the subnets without the one member that may be added.
fn of_people(world: &World) -> BTreeMap<ArmId, Value> {
    let mut all: BTreeMap<ArmId, Value> = BTreeMap::new();
    for (id, one) in world.all.iter().filter(|(_, one)| one.is_persons) {
        let mut body = one.body.clone();
        let mut added = 0;
        if let Some(list) = body.pointer_mut("/properties/serviceEndpoints").and_then(Value::as_array_mut) {
            added = list.iter().filter(|one| one["service"] == "Microsoft.Storage").count();
            list.retain(|one| one["service"] != "Microsoft.Storage");
        }
        assert!(added <= 1, "{body}");
        if body.pointer("/properties/serviceEndpoints").is_some_and(|list| *list == json!([])) {
            body["properties"].as_object_mut().unwrap().remove("serviceEndpoints");
        }
        all.insert(id.clone(), body);
    }
    all
}

fn check_endpoint(world: &World) {
    let ours = world.all.contains_key(&id(OURS[3]));
    let has = |rest: &str| world.all.contains_key(&id(rest));
    assert!(ours || world.connections().count > 0);
    if ours && world.connections().count == 1 {
        assert!(has(OURS[1]) && has(OURS[4]));
        let links = world.below(&id(OURS[1]), "virtualNetworkLinks");
        let to_ours =
            links.iter().filter(|link| link["properties"]["virtualNetwork"]["id"] == id("virtualNetworks/v").as_str());
        assert!(to_ours.count() >= 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn two_replicas_that_are_killed_and_disturbed_come_to_the_same_end_and_leave_what_is_not_theirs(
        is_private in any::<bool>(),
        schedule in proptest::collection::vec((0_usize..2, 0_u8..16, any::<u8>()), 0..120),
    ) {
        let wanted = if is_private { private() } else { subnets() };
        let mut world = World::new();
        let mut replicas = [Replica::new(&wanted, None), Replica::new(&wanted, Some(world.connections()))];
        for (replica, what, number) in schedule {
            let theirs = of_people(&world);
            let again = |world: &World| Replica::new(&wanted, (number % 2 == 0).then(|| world.connections()));
            let luck = match what {
                0 => {
                    replicas[replica] = again(&world);
                    continue;
                }
                1 => {
                    person(&mut world, number);
                    continue;
                }
                2 => Luck::Lost,
                3 => Luck::Down,
                _ => Luck::Good,
            };
            if replicas[replica].step(&mut world, luck).is_some() {
                replicas[replica] = again(&world);
            }
            prop_assert_eq!(of_people(&world), theirs);
        }
        let theirs = of_people(&world);
        for replica in &mut replicas {
            // An end of before, such as too many failures, is followed by another try.
            if replica.run(&mut world).is_err() {
                prop_assert_eq!(run(&wanted, &mut world), Ok(()));
            }
        }
        prop_assert_eq!(run(&wanted, &mut world), Ok(()));
        prop_assert_eq!(of_people(&world), theirs);
        let writes = world.writes.len();
        prop_assert_eq!(run(&wanted, &mut world), Ok(()));
        prop_assert_eq!(world.writes.len(), writes, "what is as wanted is not written again");
        if is_private {
            check_endpoint(&world);
        }
    }
}
