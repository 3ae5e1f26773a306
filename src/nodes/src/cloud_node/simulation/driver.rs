//! The wiring between the steps and the world: two replicas, a lease, requests that travel, and timers in any order.

mod incidents;
mod nodes;
mod requests;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque},
    time::Duration,
};

use lazuli_engine::{
    Acceptance, Id, Lease, Outcome, Shared, Waiting,
    freshness::LATE,
    object::{self, After, Cause, EnvChange, Failure, Object},
};
use lazuli_model::{
    ArmId, InstanceView, PowerState, ProvisioningState,
    address::Cidr,
    fault::Fault,
    seeded::{self, Numbers},
    tags::TagPolicy,
};
use lazuli_quota::poll::{Durations, Expectation, Kind};
use requests::Told;
use serde_json::Value;

use super::{
    mutant::Mutant,
    oracle::Oracle,
    pace::Pace,
    schedule::{FLEET, Fate, Foreign, INSTANCES, Incident, Schedule},
    world::{Azure, Fleet, Power, Refused, Route, SUBNET_ID, TABLE_ID, Thing},
};
use crate::{
    cloud_node::{
        BetaLabels, CloudNode, Instance, InstanceAddress, Taint, addresses, breaker, existence,
        facts::{InstanceFacts, PublishedAddress, Scope},
        step::{self, Checked, Controllers, Patch, PatchFault},
    },
    routing::{self, AssociatedSubnet, Report, RouteTable, RouteTables, SubnetAssociations, Want},
};

const LEASE: Duration = Duration::from_secs(15);
/// After so long a client gives up on a request.
const TIME_OUT: Duration = Duration::from_secs(5);
/// The least lease at the start of a write.
const LEAST: Duration = Duration::from_secs(6);
/// How old an observation may become.
pub(super) const RESYNC: Duration = Duration::from_secs(300);
/// How often lists of network interfaces are read.
const REFRESH: Duration = Duration::from_secs(300);
/// How long the world has to come to rest: refusals, back-offs, and two looks at what others have changed.
const REST: Duration = Duration::from_secs(1_500);
/// The last part of that time, in which nothing may be written.
const QUIET: Duration = Duration::from_secs(400);
const GRACE: Duration = Duration::from_secs(60);
const SCOPE: Scope<'_> = Scope { subscription: "s", resource_group: "g" };
/// The key of the Node step of what a leader finds without a Node.
const BOOT: &str = "boot";

/// The number in the name of a Node.
pub(super) fn number_of(name: &str) -> u8 {
    name.trim_start_matches('n').parse().unwrap_or(u8::MAX)
}

fn name_of(number: u8) -> String {
    format!("n{number}")
}

/// The resource group of the fleet.
const FLEET_GROUP: &str = "fleet";
/// Its scale set.
const SET: &str = "/subscriptions/s/resourceGroups/fleet/providers/Microsoft.Compute/virtualMachineScaleSets/set";

fn machine(number: u8) -> ArmId {
    if !FLEET.contains(&number) {
        ArmId::virtual_machine("s", "g", &name_of(number)).expect("the name can be one")
    } else if number < INSTANCES {
        ArmId::virtual_machine("s", FLEET_GROUP, &name_of(number)).expect("the name can be one")
    } else {
        format!("{SET}/virtualMachines/{number}").parse().expect("it is an id")
    }
}

#[derive(Debug)]
enum Happens {
    Incident(Incident),
    Wake(Key, Duration),
    ReadArrives {
        thing: Thing,
        id: Id,
        sent_at: Duration,
    },
    Observed {
        thing: Thing,
        id: Id,
        sent_at: Duration,
        result: Result<(Value, u64), Fault>,
    },
    WriteArrives {
        thing: Thing,
        id: Id,
        etag: Option<u64>,
        body: Value,
        fate: Option<Fate>,
    },
    Accepted {
        thing: Thing,
        id: Id,
        operation: u64,
    },
    OperationEnds(u64),
    OtherEnds,
    PollArrives {
        thing: Thing,
        id: Id,
    },
    Polled {
        thing: Thing,
        id: Id,
    },
    Ended {
        thing: Thing,
        id: Id,
        result: Result<(), Fault>,
    },
    Permitted {
        thing: Thing,
        id: Id,
    },
    MachineRead {
        node: String,
        id: Id,
    },
    AddressesRead {
        node: String,
        id: Id,
    },
    /// Lists of network interfaces are read.
    Lists,
    MachineChecked {
        node: String,
        id: Id,
        result: Option<Checked>,
    },
    PatchArrives {
        node: String,
        id: Id,
        uid: String,
        version: u64,
        patch: Patch,
    },
    Patched {
        node: String,
        id: Id,
        result: Result<Box<CloudNode>, PatchFault>,
    },
    DeleteArrives {
        node: String,
        id: Id,
        uid: String,
    },
    Deleted {
        node: String,
        id: Id,
        result: Result<(), PatchFault>,
    },
    Informed(String),
    Searches,
    LeaseEnds,
    Acquires,
    /// A machine was made again.
    MachineBack(u8),
    /// kubelet tells of its Node again.
    Ready(String, bool),
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Node(String),
    Breaker,
    Thing(Thing),
}

#[expect(clippy::large_enum_variant, reason = "one is delivered before the next is made")]
enum Message {
    Node(String, step::Event),
    Breaker(breaker::Event),
    Table(object::Event<RouteTables>),
    Subnet(object::Event<SubnetAssociations>),
}

/// One process.
#[derive(Debug, Default)]
struct Replica {
    /// Counts the processes; what is meant for an earlier one is dropped.
    process: u32,
    leads: bool,
    /// When the lease ends. `None` while it is renewed.
    lease_end: Option<Duration>,
    trusted_from: Duration,
    nodes: BTreeMap<String, step::State>,
    breaker: breaker::State,
    table: object::State<RouteTables>,
    subnet: object::State<SubnetAssociations>,
    raw: BTreeMap<Thing, (Id, Option<(Value, u64)>)>,
    operations: BTreeMap<(Thing, Id), u64>,
    writing: BTreeSet<Thing>,
    not_before: BTreeMap<Thing, Duration>,
    wakes: BTreeMap<Key, Duration>,
    without_node: BTreeSet<String>,
    is_association_asked: bool,
}

/// A run of one schedule.
pub(super) struct Run {
    now: Duration,
    numbers: Numbers,
    heap: BinaryHeap<Reverse<(Duration, u64, usize)>>,
    pending: Vec<Option<(usize, u32, Happens)>>,
    azure: Azure,
    nodes: BTreeMap<String, CloudNode>,
    version: u64,
    is_dual: bool,
    inputs: routing::Env,
    oracle: Oracle,
    /// By replica and process.
    paces: BTreeMap<(usize, u32), Pace>,
    replicas: [Replica; 2],
    mutant: Mutant,
    inbox: VecDeque<(usize, Message)>,
    fates: VecDeque<Fate>,
    patch_fates: VecDeque<bool>,
    read_faults: VecDeque<Fault>,
    lag_until: Duration,
    blind_until: Duration,
    operation: u64,
    last_write: Duration,
    pub(super) counts: BTreeMap<&'static str, u64>,
    pub(super) log: Option<Vec<String>>,
    violation: Option<String>,
}

/// Runs a schedule to its end. Returns what law it broke.
pub(super) fn run(schedule: &Schedule, mutant: Mutant, with_story: bool) -> seeded::Outcome {
    let mut run = Run::new(schedule, mutant);
    run.log = with_story.then(Vec::new);
    let result = run.play(schedule);
    seeded::Outcome { result, counts: run.counts, story: run.log.unwrap_or_default() }
}

impl Run {
    fn new(schedule: &Schedule, mutant: Mutant) -> Self {
        let ranges = ["10.244.0.0/16", "fd00:10:244::/48"];
        let inputs = routing::Env {
            id: TABLE_ID.parse().expect("it is an id"),
            location: "l".to_owned(),
            tags: TagPolicy::default(),
            cluster_ranges: ranges.iter().map(|range| range.parse().expect("it is a range")).collect(),
            reserved: vec![],
        };
        let mut numbers = Numbers::new(schedule.seed ^ 0xA5A5);
        let azure = Azure::new(!numbers.one_in(4), numbers.below(3), numbers.one_in(2));
        Self {
            now: Duration::ZERO,
            is_dual: numbers.one_in(3),
            numbers,
            heap: BinaryHeap::new(),
            pending: Vec::new(),
            azure,
            nodes: BTreeMap::new(),
            version: 0,
            inputs,
            oracle: Oracle::default(),
            paces: BTreeMap::new(),
            replicas: [Replica::default(), Replica::default()],
            mutant,
            inbox: VecDeque::new(),
            fates: VecDeque::new(),
            patch_fates: VecDeque::new(),
            read_faults: VecDeque::new(),
            lag_until: Duration::ZERO,
            blind_until: Duration::ZERO,
            operation: 0,
            last_write: Duration::ZERO,
            counts: BTreeMap::new(),
            log: None,
            violation: None,
        }
    }

    fn play(&mut self, schedule: &Schedule) -> Result<(), String> {
        // One Node is there from the start, so that no list is empty.
        self.incident(Incident::Joins(9, false));
        self.at(Duration::ZERO, 0, Happens::Acquires);
        for (at, incident) in &schedule.incidents {
            self.at(*at, 0, Happens::Incident(*incident));
        }
        let end = schedule.incidents.last().map_or(Duration::ZERO, |(at, _)| *at) + REST;
        while let Some(Reverse((at, _, index))) = self.heap.pop() {
            if at > end {
                break;
            }
            self.now = self.now.max(at);
            let Some((replica, process, happens)) = self.pending[index].take() else { continue };
            self.happen(replica, process, happens);
            while let Some((replica, message)) = self.inbox.pop_front() {
                self.deliver(replica, message);
            }
            if let Some(violation) = self.violation.take() {
                return Err(violation);
            }
        }
        if self.last_write + QUIET > end {
            return Err("the world does not come to rest".to_owned());
        }
        self.oracle.at_rest(&self.azure, &self.nodes, |number| self.addresses(number, self.now))
    }

    fn at(&mut self, at: Duration, replica: usize, happens: Happens) {
        let process = self.replicas[replica].process;
        let index = self.pending.len();
        // What happens at one time happens in any order; incidents keep theirs.
        let order = if matches!(happens, Happens::Incident(_)) { index as u64 } else { self.numbers.draw() };
        self.pending.push(Some((replica, process, happens)));
        self.heap.push(Reverse((at, order, index)));
    }

    fn later(&mut self, most_ms: u64, replica: usize, happens: Happens) {
        let at = self.now + self.numbers.ms(most_ms);
        self.at(at, replica, happens);
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            log.push(format!("{:>10.3} {}", self.now.as_secs_f64(), line()));
        }
    }

    fn judge(&mut self, result: Result<(), String>) {
        if let Err(violation) = result {
            self.violation.get_or_insert(violation);
        }
    }

    fn happen(&mut self, replica: usize, process: u32, happens: Happens) {
        let alive = self.replicas[replica].leads && self.replicas[replica].process == process;
        match happens {
            Happens::Incident(incident) => self.incident(incident),
            Happens::OperationEnds(operation) => self.azure.end(self.now, operation),
            Happens::OtherEnds => self.azure.other_ended(self.now),
            Happens::WriteArrives { thing, id, etag, body, fate } => {
                self.write_arrives((replica, process), thing, id, etag, body, fate);
            }
            Happens::PatchArrives { node, id, uid, version, patch } => {
                self.patch_arrives((replica, process), node, id, &uid, version, &patch);
            }
            Happens::DeleteArrives { node, id, uid } => self.delete_arrives((replica, process), node, id, &uid),
            Happens::Acquires => self.acquire(replica),
            Happens::Ready(node, is_ready) => self.change_node(&node, |node| node.is_ready = is_ready),
            Happens::MachineBack(number) => {
                if self.azure.power(number) == Power::Gone && self.nodes.contains_key(&name_of(number)) {
                    self.azure.turn(self.now, number, Power::Runs);
                    self.readdress(number, true);
                }
            }
            _ if !alive => {}
            Happens::LeaseEnds => {
                self.count("lease lost");
                self.end_process(replica);
                self.later(2_000, 1 - replica, Happens::Acquires);
            }
            Happens::Searches => self.search(replica),
            Happens::Informed(name) => {
                // A process that has lost the API server is not told.
                if self.replicas[replica].lease_end.is_none() {
                    let event = self.nodes.get(&name).cloned().map_or(step::Event::Removed, step::Event::Changed);
                    self.inbox.push_back((replica, Message::Node(name, event)));
                }
            }
            Happens::Wake(key, at) => {
                if self.replicas[replica].wakes.get(&key) == Some(&at) {
                    self.replicas[replica].wakes.remove(&key);
                    let message = match key {
                        Key::Node(name) => Message::Node(name, step::Event::Woke),
                        Key::Breaker => Message::Breaker(breaker::Event::Woke),
                        Key::Thing(Thing::Table) => Message::Table(object::Event::Woke),
                        Key::Thing(Thing::Subnet) => Message::Subnet(object::Event::Woke),
                    };
                    self.inbox.push_back((replica, message));
                }
            }
            Happens::ReadArrives { thing, id, sent_at } => self.read_arrives(replica, thing, id, sent_at),
            Happens::Observed { thing, id, sent_at, result } => self.observed(replica, thing, id, sent_at, result),
            Happens::Accepted { thing, id, operation } => {
                self.replicas[replica].operations.insert((thing, id), operation);
                let expected = Expectation::of(Kind::Other, &Durations::default(), None);
                self.tell_thing(replica, thing, Told::Accepted(id, expected));
            }
            Happens::PollArrives { thing, id } => {
                let Some(operation) = self.replicas[replica].operations.get(&(thing, id)).copied() else { return };
                match self.azure.outcome(operation) {
                    None => self.later(60, replica, Happens::Polled { thing, id }),
                    Some(succeeded) => {
                        let result = if succeeded { Ok(()) } else { Err(Fault::OperationFailed) };
                        self.later(60, replica, Happens::Ended { thing, id, result });
                    }
                }
            }
            Happens::Polled { thing, id } => self.tell_thing(replica, thing, Told::Polled(id)),
            Happens::Permitted { thing, id } => self.tell_thing(replica, thing, Told::Permitted(id)),
            Happens::Ended { thing, id, result } => self.ended(replica, thing, id, result),
            Happens::MachineRead { node, id } => {
                let result = self.instance(&node);
                self.inbox.push_back((replica, Message::Node(node, step::Event::Read { id, result })));
            }
            Happens::AddressesRead { node, id } => {
                let result = self.addresses_of(&node, self.now);
                self.inbox.push_back((replica, Message::Node(node, step::Event::AddressesRead { id, result })));
            }
            Happens::Lists => {
                self.at(self.now + REFRESH, replica, Happens::Lists);
                // A list may be older than what single reads have shown.
                let as_of = self.now.saturating_sub(self.numbers.ms(5_000));
                for (name, _) in addresses::lists(self.nodes.values()).into_values().flatten() {
                    let listed = if self.numbers.one_in(8) { None } else { self.addresses_of(&name, as_of).ok() };
                    self.inbox.push_back((replica, Message::Node(name, step::Event::Listed(listed))));
                }
            }
            Happens::MachineChecked { node, id, result } => {
                let result = result.unwrap_or_else(|| self.checked(&node));
                let uid = self.nodes.get(&node).map(|node| node.uid.clone());
                if let (Mutant::DeletesAtOnce, Checked::Gone, Some(uid)) = (self.mutant, &result, uid) {
                    self.later(50, replica, Happens::DeleteArrives { node: node.clone(), id, uid });
                }
                self.inbox.push_back((replica, Message::Node(node, step::Event::Checked { id, result })));
            }
            Happens::Patched { node, id, result } => {
                let result = result.map(|node| *node);
                self.inbox.push_back((replica, Message::Node(node, step::Event::Patched { id, result })));
            }
            Happens::Deleted { node, id, result } => {
                self.inbox.push_back((replica, Message::Node(node, step::Event::Deleted { id, result })));
            }
        }
    }

    fn end_process(&mut self, replica: usize) {
        let process = self.replicas[replica].process + 1;
        self.replicas[replica] = Replica { process, ..Replica::default() };
    }

    fn acquire(&mut self, replica: usize) {
        if self.replicas.iter().any(|replica| replica.leads) {
            return;
        }
        self.count("lease acquired");
        self.note(|| format!("replica {replica} leads"));
        self.end_process(replica);
        let leader = &mut self.replicas[replica];
        leader.leads = true;
        leader.trusted_from = self.now + LATE;
        for name in self.nodes.keys().cloned().collect::<Vec<_>>() {
            self.later(300, replica, Happens::Informed(name));
        }
        self.at(self.now + Duration::from_millis(400), replica, Happens::Searches);
        self.at(self.now + REFRESH, replica, Happens::Lists);
    }

    /// What a new leader does about routes of Nodes that do not exist.
    fn search(&mut self, replica: usize) {
        let found: BTreeSet<Route> = self.azure.routes();
        let mut without: BTreeMap<String, BTreeSet<Cidr>> = BTreeMap::new();
        for (node, range, _) in found.into_iter().filter(|(node, ..)| !self.nodes.contains_key(node)) {
            without.entry(node).or_default().extend(range.parse::<Cidr>().ok());
        }
        for (node, ranges) in without {
            self.count("route without a Node");
            self.replicas[replica].without_node.insert(node.clone());
            self.request(replica, node, 0, Want::Gone(ranges));
        }
    }

    fn request(&mut self, replica: usize, from: String, generation: u64, want: Want) {
        let is_dropped = match self.mutant {
            Mutant::LeavesRoutes => matches!(want, Want::Gone(_)),
            Mutant::DropsWants => self.replicas[replica].table.is_writing(),
            _ => false,
        };
        if !is_dropped {
            let event = object::Event::Requested { from, generation, want, acceptance: Acceptance::Given };
            self.inbox.push_back((replica, Message::Table(event)));
        }
    }

    fn shared(&self, replica: usize) -> Shared {
        let this = &self.replicas[replica];
        let end = this.lease_end.filter(|_| self.mutant != Mutant::NoFence).unwrap_or(self.now + LEASE);
        Shared {
            synced: true,
            lease: Lease { until: Some(end), least: LEAST },
            trusted_from: this.trusted_from,
            acceptance: Acceptance::Given,
            resync: Some(RESYNC),
        }
    }

    fn deliver(&mut self, replica: usize, message: Message) {
        let (shared, now) = (self.shared(replica), self.now);
        match message {
            Message::Node(name, event) => {
                let state = self.replicas[replica].nodes.entry(name.clone()).or_default();
                let is_new = self.nodes.get(&name).is_some_and(|node| node.has_taint(Taint::UNINITIALIZED));
                let route = !(self.mutant == Mutant::UntaintsEarly && is_new);
                let controllers = Controllers { node: true, lifecycle: true, route };
                let metadata_wait = Duration::from_secs(2);
                let route_settle = Duration::ZERO;
                let env = step::Env {
                    shared,
                    scope: SCOPE,
                    metadata_wait,
                    route_settle,
                    controllers,
                    beta_labels: BetaLabels::Written,
                    pod_ranges: step::PodRanges::NotExpected,
                    grace: GRACE,
                };
                let actions = step::step(state, &env, now, event);
                let wake = state.wake_at();
                self.schedule_wake(replica, Key::Node(name.clone()), wake);
                for action in actions {
                    self.carry_out_node(replica, &name, action);
                }
            }
            Message::Breaker(event) => {
                let state = &mut self.replicas[replica].breaker;
                let actions = breaker::step(state, self.nodes.len(), now, event);
                let wake = state.wake_at();
                self.schedule_wake(replica, Key::Breaker, wake);
                for action in actions {
                    if let breaker::Action::Slow(true) = action {
                        self.count("slowed down");
                    }
                    if let breaker::Action::Grant { node, reads_again } = action {
                        self.count(if reads_again { "granted slowly" } else { "granted" });
                        self.note(|| format!("{replica}: {node} is granted, reads again: {reads_again}"));
                        if reads_again {
                            self.pace(replica).granted_slowly(&node, now);
                        }
                        let reads_again = reads_again && self.mutant != Mutant::SkipsLastRead;
                        self.inbox.push_back((replica, Message::Node(node, step::Event::Granted { reads_again })));
                    }
                }
            }
            Message::Table(event) => {
                let env = object::Env { shared, inputs: &&self.inputs };
                let state = &mut self.replicas[replica].table;
                let actions = object::step(state, &env, now, event);
                let wake = state.wake_at();
                self.schedule_wake(replica, Key::Thing(Thing::Table), wake);
                for action in actions {
                    if let Some(tell) = self.carry_out(replica, Thing::Table, action) {
                        self.tell_node(replica, tell);
                    }
                }
            }
            Message::Subnet(event) => {
                let env = object::Env { shared, inputs: &&() };
                let state = &mut self.replicas[replica].subnet;
                let actions = object::step(state, &env, now, event);
                let wake = state.wake_at();
                self.schedule_wake(replica, Key::Thing(Thing::Subnet), wake);
                for action in actions {
                    if let Some((_, _, Outcome::Refused(_))) = self.carry_out(replica, Thing::Subnet, action) {
                        self.count("subnet of another table");
                        if self.mutant == Mutant::StealsSubnet {
                            let (mut body, etag) = self.azure.read(Thing::Subnet, now).expect("it is there");
                            body["properties"]["routeTable"]["id"] = TABLE_ID.into();
                            self.operation += 1;
                            _ = self.azure.write(now, Thing::Subnet, Some(etag), body, true, self.operation);
                        }
                    }
                }
            }
        }
    }

    fn schedule_wake(&mut self, replica: usize, key: Key, wake: Option<Duration>) {
        let Some(at) = wake else {
            self.replicas[replica].wakes.remove(&key);
            return;
        };
        if self.replicas[replica].wakes.get(&key) != Some(&at) {
            self.replicas[replica].wakes.insert(key.clone(), at);
            let late = at.max(self.now) + self.numbers.ms(15);
            self.at(late, replica, Happens::Wake(key, at));
        }
    }
}
