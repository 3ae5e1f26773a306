//! The wiring between the steps and the world: two replicas, a lease, requests that travel, and timers in any order.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque},
    time::Duration,
};

use lazuli_model::{
    fault::Fault,
    seeded::{self, Numbers},
};
use lazuli_quota::{
    poll::{Durations, Expectation, Kind},
    read::{Accept, By},
};

use super::{
    api::{Api, ApiService},
    mutant::Mutant,
    oracle::{Oracle, held_by},
    schedule::{Fate, Incident, Race, Schedule},
    toy::{Arm, Inputs},
    world::{Azure, Body, Name, Owner, POISON, Provisioning, Version},
};
use crate::{
    Acceptance, Awaited, Id, Lease, Outcome, Shared,
    freshness::LATE,
    object::{self, EnvChange, Taint},
    service::{self, Patch, PatchFault},
};

pub(super) const LEASE: Duration = Duration::from_secs(15);
/// After so long a client gives up on a request.
pub(super) const TIME_OUT: Duration = Duration::from_secs(5);
/// The least lease at the start of a write.
pub(super) const LEAST: Duration = Duration::from_secs(6);
/// How long after the last incident the world must have come to rest.
const REST: Duration = Duration::from_secs(3_000);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Object(Name),
    Service(Owner),
}

type ObjectEvent = object::Event<Arm>;
pub(super) type ServiceEvent = service::Event<Arm>;

/// What one key of a process tells another.
#[derive(Debug)]
pub(super) enum Message {
    Object(Name, ObjectEvent),
    Service(Owner, ServiceEvent),
}

#[derive(Debug)]
pub(super) enum Happens {
    Incident(Incident),
    Wake(Key, Duration),
    ReadArrives {
        name: Name,
        id: Id,
        sent_at: Duration,
        accept: Accept,
    },
    Read {
        name: Name,
        id: Id,
        sent_at: Duration,
        by: By,
        result: Result<Version, Fault>,
    },
    WriteArrives {
        name: Name,
        id: Id,
        etag: Option<u64>,
        body: Option<Body>,
        fate: Option<Fate>,
    },
    Accepted {
        name: Name,
        id: Id,
        operation: u64,
    },
    Ended {
        name: Name,
        id: Id,
        result: Result<(), (Fault, bool)>,
    },
    OperationEnds(u64),
    OtherEnds(Name),
    PollArrives {
        name: Name,
        id: Id,
    },
    Polled {
        name: Name,
        id: Id,
    },
    Permitted {
        name: Name,
        id: Id,
    },
    PatchArrives {
        owner: Owner,
        id: Id,
        version: u64,
        patch: Patch<u32>,
    },
    Patched {
        owner: Owner,
        id: Id,
        result: Result<u64, PatchFault>,
    },
    Informed(Owner),
    /// The process has listed what carries the tags of Services.
    Listed,
    NodesInformed,
    LeaseEnds,
    Acquires,
    /// The operator may have accepted what removes or replaces something.
    Accepts,
}

/// One process.
#[derive(Debug, Default)]
pub(super) struct Replica {
    /// Counts the processes; what is meant for an earlier one is dropped.
    pub(super) process: u32,
    pub(super) leads: bool,
    /// When the lease ends. `None` while it is renewed.
    pub(super) lease_end: Option<Duration>,
    /// Whether the last writes before that are late.
    pub(super) tail_is_late: bool,
    pub(super) trusted_from: Duration,
    pub(super) inputs: Inputs,
    /// What the lists of this process have shown; `None` before they have ended.
    pub(super) listed: Option<BTreeSet<Name>>,
    pub(super) objects: BTreeMap<Name, object::State<Arm>>,
    pub(super) services: BTreeMap<Owner, service::State<Arm>>,
    /// The Services that have told the security group what they want.
    pub(super) at_group: BTreeSet<Owner>,
    /// The last observation of each object, with its ETag and body.
    pub(super) raw: BTreeMap<Name, (Id, Option<Version>)>,
    pub(super) operations: BTreeMap<(Name, Id), u64>,
    pub(super) writing: BTreeSet<Name>,
    /// What this process has written: no list is asked for it.
    pub(super) written: BTreeSet<Name>,
    pub(super) not_before: BTreeMap<Name, Duration>,
    pub(super) wakes: BTreeMap<Key, Duration>,
    pub(super) permits: BTreeSet<(Name, Id)>,
}

/// A run of one schedule.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) now: Duration,
    pub(super) numbers: Numbers,
    pub(super) heap: BinaryHeap<Reverse<(Duration, u64, usize)>>,
    pub(super) pending: Vec<Option<(usize, u32, Happens)>>,
    pub(super) azure: Azure,
    pub(super) api: Api,
    pub(super) oracle: Oracle,
    pub(super) replicas: [Replica; 2],
    pub(super) nodes: BTreeSet<u8>,
    pub(super) mutant: Mutant,
    pub(super) inbox: VecDeque<(usize, Message)>,
    pub(super) fates: VecDeque<Fate>,
    pub(super) races: VecDeque<Race>,
    /// Services that were there when the leader began and that no user has changed since.
    pub(super) taken_over: BTreeSet<Owner>,
    /// Until when the operator has not accepted what removes or replaces something.
    pub(super) unaccepted_until: Duration,
    pub(super) read_faults: VecDeque<Fault>,
    pub(super) lag_until: Duration,
    pub(super) operations_of: BTreeMap<u64, Name>,
    pub(super) refused: BTreeMap<Owner, u32>,
    /// Until when a policy denies new rules of a Service.
    pub(super) policies: BTreeMap<Owner, Duration>,
    /// How many writes a policy has denied because of a Service, since something that matters has changed.
    pub(super) denied: BTreeMap<Owner, u32>,
    pub(super) writes: u64,
    pub(super) last_write: Duration,
    pub(super) counts: BTreeMap<&'static str, u64>,
    pub(super) log: Option<Vec<String>>,
    pub(super) violation: Option<String>,
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
        let nodes = BTreeSet::from([0, 1, 2]);
        let inputs =
            Inputs { nodes: nodes.clone(), by_interface: schedule.by_interface, kept: BTreeSet::new(), mutant };
        let replica = || Replica { inputs: inputs.clone(), ..Replica::default() };
        Self {
            now: Duration::ZERO,
            numbers: Numbers::new(schedule.seed ^ 0xA5A5),
            heap: BinaryHeap::new(),
            pending: Vec::new(),
            azure: Azure::new(schedule.seed.is_multiple_of(2), schedule.seed.is_multiple_of(3)),
            api: Api::default(),
            oracle: Oracle::default(),
            replicas: [replica(), replica()],
            nodes,
            mutant,
            inbox: VecDeque::new(),
            fates: VecDeque::new(),
            races: VecDeque::new(),
            taken_over: BTreeSet::new(),
            unaccepted_until: Duration::ZERO,
            read_faults: VecDeque::new(),
            lag_until: Duration::ZERO,
            operations_of: BTreeMap::new(),
            refused: BTreeMap::new(),
            policies: BTreeMap::new(),
            denied: BTreeMap::new(),
            writes: 0,
            last_write: Duration::ZERO,
            counts: BTreeMap::new(),
            log: None,
            violation: None,
        }
    }

    fn play(&mut self, schedule: &Schedule) -> Result<(), String> {
        self.at(Duration::ZERO, 0, Happens::Acquires);
        for (at, incident) in &schedule.incidents {
            self.at(*at, 0, Happens::Incident(incident.clone()));
        }
        let end = schedule.incidents.last().map_or(Duration::ZERO, |(at, _)| *at) + REST;
        self.until_rest(end)?;
        self.oracle.at_rest(&self.azure, &self.api)?;
        self.waits_are_told()?;
        // Another process takes over an unchanged cluster: it writes nothing.
        let refusable = |(owner, service): (&Owner, &ApiService)| match &service.ask {
            Some(ask) => ask.ports.contains(&POISON),
            // Of an address that it was being given nothing shows a new process that it may be its own.
            None => service.status.is_none_or(|status| held_by(&self.azure, *owner) != BTreeSet::from([status])),
        };
        let clean = !self.api.services.iter().any(refusable);
        let failed = self
            .azure
            .names()
            .any(|name| self.azure.current(name).is_some_and(|version| version.provisioning == Provisioning::Failed));
        // Rules that are left at an address that another writer has released go when the address is a Service's again.
        let is_clean = clean && !self.azure.security_group().allow.iter().any(|rule| self.azure.is_lost(rule.0));
        let (writes, version) = (self.writes, self.api.services.clone());
        self.fates.clear();
        self.lag_until = Duration::ZERO;
        self.races.clear();
        self.read_faults.clear();
        let leader = usize::from(self.replicas[1].leads);
        self.end_process(leader);
        self.at(self.now, 1 - leader, Happens::Acquires);
        self.until_rest(self.now + REST)?;
        if is_clean && !failed && (self.writes != writes || self.api.services != version) {
            return Err(format!("a take-over of an unchanged cluster made {} writes", self.writes - writes));
        }
        self.waits_are_told()?;
        self.oracle.at_rest(&self.azure, &self.api)
    }

    fn until_rest(&mut self, end: Duration) -> Result<(), String> {
        while let Some(Reverse((at, _, index))) = self.heap.pop() {
            self.now = self.now.max(at);
            let Some((replica, process, happens)) = self.pending[index].take() else { continue };
            if self.now > end {
                return Err("the world does not come to rest".to_owned());
            }
            self.happen(replica, process, happens);
            while let Some((replica, message)) = self.inbox.pop_front() {
                match message {
                    Message::Object(name, event) => self.step_object(replica, name, event),
                    Message::Service(owner, event) => self.step_service(replica, owner, event),
                }
            }
            if let Some(violation) = self.violation.take() {
                return Err(violation);
            }
        }
        self.pending.clear();
        Ok(())
    }

    /// At rest nothing is said to wait for what ends by itself, and a Service that is as it should be waits for nothing.
    fn waits_are_told(&self) -> Result<(), String> {
        let leader = usize::from(self.replicas[1].leads);
        let (replica, shared) = (&self.replicas[leader], self.shared(leader));
        let ends_by_itself = |awaited: Awaited| {
            !matches!(
                awaited,
                Awaited::Nothing
                    | Awaited::Change
                    | Awaited::Plan
                    | Awaited::Objects
                    | Awaited::Members
                    | Awaited::Specification
            )
        };
        for (owner, state) in &replica.services {
            let awaited = state.awaited(&shared, self.now);
            let asks =
                self.api.services.get(owner).filter(|service| service.claimed).and_then(|service| service.ask.as_ref());
            let is_good = asks.is_some_and(|ask| !ask.ports.contains(&POISON));
            if ends_by_itself(awaited) || (is_good && awaited != Awaited::Nothing) {
                return Err(format!("at rest service {owner} waits for {awaited:?}"));
            }
        }
        for (name, state) in &replica.objects {
            let awaited = state.awaited(&shared, self.now);
            if ends_by_itself(awaited) {
                return Err(format!("at rest {name:?} waits for {awaited:?}"));
            }
        }
        Ok(())
    }

    pub(super) fn at(&mut self, at: Duration, replica: usize, happens: Happens) {
        let process = self.replicas[replica].process;
        let index = self.pending.len();
        self.pending.push(Some((replica, process, happens)));
        // What happens at one time happens in any order; what a user does keeps its order.
        let order = if matches!(self.pending[index], Some((_, _, Happens::Incident(_)))) {
            index as u64
        } else {
            self.numbers.draw()
        };
        self.heap.push(Reverse((at, order, index)));
    }

    pub(super) fn later(&mut self, most_ms: u64, replica: usize, happens: Happens) {
        let at = self.now + self.numbers.ms(most_ms);
        self.at(at, replica, happens);
    }

    pub(super) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            log.push(format!("{:>10.3} {}", self.now.as_secs_f64(), line()));
        }
    }

    pub(super) fn judge(&mut self, result: Result<(), String>) {
        if let Err(violation) = result {
            self.violation.get_or_insert(violation);
        }
    }

    /// Changes Azure by a write of ours, and judges it.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut Azure, Duration)) {
        let before = self.oracle.picture(&self.azure);
        change(&mut self.azure, self.now);
        let judged = self.oracle.judge(&before, &self.azure, &self.api, self.now);
        self.judge(judged);
    }

    pub(super) fn shared(&self, replica: usize) -> Shared {
        let replica = &self.replicas[replica];
        let until = match self.mutant {
            Mutant::NoFence => self.now + LEASE,
            _ => replica.lease_end.unwrap_or(self.now + LEASE),
        };
        Shared {
            synced: true,
            lease: Lease { until: Some(until), least: LEAST },
            trusted_from: if self.mutant == Mutant::TrustsAtOnce { Duration::ZERO } else { replica.trusted_from },
            acceptance: self.acceptance(),
            resync: None,
        }
    }

    pub(super) fn acceptance(&self) -> Acceptance {
        if self.now < self.unaccepted_until { Acceptance::Awaited } else { Acceptance::Given }
    }

    fn happen(&mut self, replica: usize, process: u32, happens: Happens) {
        let alive = self.replicas[replica].leads && self.replicas[replica].process == process;
        match happens {
            Happens::Incident(incident) => self.incident(incident),
            Happens::OperationEnds(operation) => {
                self.note(|| format!("operation {operation} ends"));
                self.change(|azure, now| azure.end(now, operation));
            }
            Happens::OtherEnds(name) => {
                let now = self.now;
                self.azure.other_ended(now, name);
            }
            Happens::WriteArrives { name, id, etag, body, fate } => {
                self.write_arrives(replica, process, name, id, etag, body, fate);
            }
            Happens::ReadArrives { name, id, sent_at, accept } if alive => {
                self.read_arrives(replica, name, id, sent_at, accept);
            }
            Happens::PatchArrives { owner, id, version, patch } => {
                let reached = alive && self.replicas[replica].lease_end.is_none();
                self.patch_arrives(replica, owner, id, version, patch, reached);
            }
            Happens::LeaseEnds if alive => {
                self.count("lease lost");
                self.end_process(replica);
                self.later(2_000, 1 - replica, Happens::Acquires);
            }
            Happens::Acquires => self.acquire(replica),
            Happens::Accepts => self.accepts(),
            Happens::Informed(owner) if alive => self.inform(replica, owner),
            Happens::Listed if alive => self.listed(replica),
            Happens::NodesInformed if alive => {
                self.replicas[replica].inputs.nodes.clone_from(&self.nodes);
                let names: Vec<Name> = self.replicas[replica].objects.keys().copied().collect();
                for name in names {
                    self.step_object(replica, name, object::Event::EnvChanged(EnvChange::Replan));
                }
            }
            _ if !alive => {}
            Happens::Wake(key, at) => {
                if self.replicas[replica].wakes.get(&key) == Some(&at) {
                    self.replicas[replica].wakes.remove(&key);
                    self.count("woke");
                    match key {
                        Key::Object(name) => self.step_object(replica, name, object::Event::Woke),
                        Key::Service(owner) => self.step_service(replica, owner, service::Event::Woke),
                    }
                }
            }
            Happens::Read { name, id, sent_at, by, result } => {
                let version = match &result {
                    Ok(version) => Some(Some(version.clone())),
                    Err(Fault::NotFound) => Some(None),
                    Err(_) => None,
                };
                if let Some(version) = version {
                    self.replicas[replica].raw.insert(name, (id, version));
                }
                self.step_object(replica, name, object::Event::Observed { id, sent_at, by, result });
            }
            Happens::Accepted { name, id, operation } => {
                self.replicas[replica].operations.insert((name, id), operation);
                let expected = Expectation::of(Kind::Other, &Durations::default(), None);
                self.step_object(replica, name, object::Event::Accepted { id, expected });
            }
            Happens::Ended { name, id, result } => self.ended(replica, name, id, result),
            Happens::PollArrives { name, id } => self.poll_arrives(replica, name, id),
            Happens::Polled { name, id } => {
                self.step_object(replica, name, object::Event::Polled { id, pause: Duration::ZERO });
            }
            Happens::Permitted { name, id } => {
                if self.replicas[replica].permits.remove(&(name, id)) {
                    self.step_object(replica, name, object::Event::Permitted(id));
                }
            }
            Happens::Patched { owner, id, result } => {
                self.step_service(replica, owner, service::Event::Patched { id, result });
            }
            Happens::ReadArrives { .. } | Happens::LeaseEnds | Happens::Informed(_) => {}
            Happens::Listed | Happens::NodesInformed => {}
        }
    }

    pub(super) fn end_process(&mut self, replica: usize) {
        let inputs = self.replicas[replica].inputs.clone();
        let process = self.replicas[replica].process + 1;
        self.replicas[replica] = Replica { process, inputs, ..Replica::default() };
    }

    fn acquire(&mut self, replica: usize) {
        if self.replicas.iter().any(|replica| replica.leads) {
            return;
        }
        self.count("lease acquired");
        self.refused.clear();
        self.denied.clear();
        self.note(|| format!("replica {replica} leads"));
        self.end_process(replica);
        let (now, nodes) = (self.now, self.nodes.clone());
        let leader = &mut self.replicas[replica];
        leader.leads = true;
        leader.trusted_from = now + LATE;
        leader.inputs.nodes = nodes;
        let is_there =
            |service: &&ApiService| service.finalizer && service.claimed && !service.deleting && service.ask.is_some();
        let services = self.api.services.iter();
        self.taken_over = services.filter(|(_, service)| is_there(service)).map(|(owner, _)| *owner).collect();
        let owners: Vec<Owner> = self.api.services.keys().copied().collect();
        for owner in owners {
            self.later(300, replica, Happens::Informed(owner));
        }
        // A list that is sent earlier may lack what the leader before makes late.
        let at = now + LATE + self.numbers.ms(20_000);
        self.at(at, replica, Happens::Listed);
    }

    fn listed(&mut self, replica: usize) {
        self.count("tags listed");
        let lag = if self.now < self.lag_until { self.numbers.ms(3_000) } else { Duration::ZERO };
        let as_of = self.now.saturating_sub(lag);
        let shown = self.azure.names().filter(|name| self.azure.read(*name, as_of).is_some()).collect();
        self.replicas[replica].listed = Some(shown);
        let owners: Vec<Owner> = self.api.services.keys().copied().collect();
        for owner in owners {
            self.inform(replica, owner);
        }
    }

    pub(super) fn step_object(&mut self, replica: usize, name: Name, event: ObjectEvent) {
        let shared = self.shared(replica);
        let (now, this) = (self.now, &mut self.replicas[replica]);
        if name == Name::SecurityGroup {
            let silent = self.api.services.iter().filter(|(owner, it)| !it.deleting && !this.at_group.contains(owner));
            this.inputs.kept = silent.filter_map(|(_, service)| service.status).collect();
        }
        let state = this.objects.entry(name).or_default();
        let env = object::Env { shared, inputs: &&this.inputs };
        let actions = object::step(state, &env, now, event);
        let wake = state.wake_at();
        self.schedule_wake(replica, Key::Object(name), wake);
        for action in actions {
            self.carry_out_object(replica, name, action);
        }
    }

    pub(super) fn schedule_wake(&mut self, replica: usize, key: Key, wake: Option<Duration>) {
        let Some(at) = wake else {
            self.replicas[replica].wakes.remove(&key);
            return;
        };
        if self.replicas[replica].wakes.get(&key) != Some(&at) {
            self.replicas[replica].wakes.insert(key, at);
            let late = at.max(self.now) + self.numbers.ms(15);
            self.at(late, replica, Happens::Wake(key, at));
        }
    }

    fn carry_out_object(&mut self, replica: usize, name: Name, action: object::Action<Arm>) {
        match action {
            object::Action::Observe { id, not_before, accept } => {
                self.count("read");
                let sent_at = self.now.max(not_before);
                let at = sent_at + self.numbers.ms(60);
                self.at(at, replica, Happens::ReadArrives { name, id, sent_at, accept });
            }
            object::Action::TakePermit { id, .. } => {
                self.replicas[replica].permits.insert((name, id));
                self.later(200, replica, Happens::Permitted { name, id });
            }
            object::Action::ReleasePermit(id) => {
                self.count("permit released");
                self.replicas[replica].permits.remove(&(name, id));
            }
            object::Action::Write { id, observation, op, .. } => self.write(replica, name, id, observation, op),
            object::Action::Poll(id) => {
                self.count("poll");
                self.later(60, replica, Happens::PollArrives { name, id });
            }
            object::Action::Tell { to, generation, outcome } => {
                self.count(match &outcome {
                    Outcome::Done(_) => "outcome: done",
                    Outcome::Waiting(crate::Waiting::FreshReads) => "outcome: waits for fresh reads",
                    Outcome::Waiting(crate::Waiting::OtherOperation) => "outcome: waits for another operation",
                    Outcome::Waiting(crate::Waiting::Acceptance) => "outcome: waits for acceptance",
                    Outcome::Waiting(_) => "outcome: waiting",
                    Outcome::Refused(_) => "outcome: refused",
                });
                let refused = matches!(outcome, Outcome::Refused(_));
                let is_unheard = self.mutant == Mutant::UnheardWrites
                    && matches!(outcome, Outcome::Waiting(crate::Waiting::Write | crate::Waiting::OtherOperation));
                if !is_unheard {
                    let told = service::Event::Told { key: name, generation, outcome };
                    self.inbox.push_back((replica, Message::Service(to, told)));
                }
                if refused && self.mutant == Mutant::RetriesRefusals {
                    let event = object::Event::EnvChanged(EnvChange::Cures);
                    self.inbox.push_back((replica, Message::Object(name, event)));
                }
            }
            object::Action::Taint(names, taint) => {
                if taint == Taint::Suspect {
                    self.count("reference suspected");
                }
                let is_dropped = taint == Taint::Suspect && self.mutant == Mutant::ForgetsReferences;
                for name in names.into_iter().filter(|_| !is_dropped) {
                    self.inbox.push_back((replica, Message::Object(name, object::Event::Tainted(taint))));
                }
            }
            object::Action::Followed { .. } | object::Action::Drained => {}
        }
    }
}
