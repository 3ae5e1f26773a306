//! The processes, the caller and time.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
    sync::Arc,
    time::Duration,
};

use lazuli_engine::{
    Id,
    single::{self, Action, Caller, Refusal, Rest, Written},
};
use lazuli_model::{
    AzureTime, Disk, Snapshot,
    fault::{Code, Effect, Fault, Rpc as Method},
    seeded::{Counts, Numbers},
};
use lazuli_quota::read::{Accept, By};
use lazuli_volume::{
    Defaults,
    snapshot::{AZURE_LIMITS, SnapshotRequest, SnapshotView, SourceSeen, plan_snapshot},
};

use super::{Doing, Error, INCIDENTS, Incident, LAG, LIMITS, Mutant, Name, SETTLED, Snap, Wish, disk, disk_id};
use crate::{
    snapshot::{Call, Done, Env, Event, Failure, Listed, Memory, Next, Request, State, Step},
    whole_snapshot::{self, Op, WholeSnapshot},
};

pub(super) type Course = WholeSnapshot<Error>;

/// What happens at a moment.
#[derive(Debug)]
pub(super) enum Then {
    Incident(Incident),
    /// external-snapshotter asks, if it still wants this.
    Ask(u64),
    /// The caller of a request gives up.
    Leaves(u64),
    /// A call of a request reaches Azure, or a list that is there.
    Arrives(u64, Call),
    Answer(u64, Box<Event<Error, Error>>),
    Tell(Key, Box<single::Event<Course>>),
    ReadArrives(Key, Id, bool),
    WriteArrives(Key, Id, Op, Fate),
    Ends {
        key: Key,
        number: u64,
        end: End,
        to: Option<(Id, bool)>,
    },
}

/// A snapshot's course in a life of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) replica: usize,
    pub(super) epoch: u64,
    pub(super) name: Name,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    Good,
    Failed { left: bool },
    Deleted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Served { fails: bool, left: bool, end_lost: bool },
    Lost,
    Refused(u8),
    NotDone,
}

#[derive(Default)]
pub(super) struct Replica {
    epoch: u64,
    memory: Memory,
    keys: BTreeMap<Name, single::State<Course>>,
    /// When the list of the group was sent last, and what it has shown.
    listed: Option<Listed>,
}

/// What a course has read and begun with.
#[derive(Debug, Clone, Default)]
pub(super) struct Life {
    pub(super) permitted: Option<Duration>,
    /// When the last read was sent, and what it has shown.
    pub(super) read: Option<(Duration, Option<Option<Snap>>)>,
    /// A try may have been done.
    pub(super) tried: bool,
}

/// A request that is not answered.
pub(super) struct Rpc {
    pub(super) replica: usize,
    pub(super) epoch: u64,
    pub(super) wish: Wish,
    pub(super) began: Duration,
    /// Its process knew the snapshot when it came.
    pub(super) is_remembered: bool,
    state: State<Error>,
    /// The course that it waits for.
    works: Option<(Name, Caller)>,
}

/// What Azure had at a moment.
#[derive(Debug, Clone)]
pub(super) struct Past {
    pub(super) at: Duration,
    pub(super) disk: Option<u64>,
    pub(super) snaps: BTreeMap<Name, Snap>,
}

pub(super) struct World {
    pub(super) numbers: Numbers,
    pub(super) now: Duration,
    queue: BinaryHeap<Reverse<(Duration, u64)>>,
    thens: BTreeMap<u64, Then>,
    entries: u64,
    pub(super) is_elsewhere: bool,
    pub(super) fills_late: bool,
    /// Azure makes no snapshot in the other region.
    pub(super) no_region: bool,
    /// Other snapshots of the group are unfinished too.
    is_crowded: bool,
    pub(super) replicas: [Replica; 2],
    pub(super) lives: BTreeMap<Key, Life>,
    pub(super) rpcs: BTreeMap<u64, Rpc>,
    pub(super) callers: BTreeMap<Caller, u64>,
    pub(super) wish: Option<Wish>,
    /// Which wish it is: what was asked for an earlier one is not asked again.
    wishes: u64,
    pub(super) wished_at: Duration,
    pub(super) disk: Option<u64>,
    pub(super) snaps: BTreeMap<Name, Snap>,
    pub(super) deleting: BTreeSet<Name>,
    pub(super) next: u64,
    pub(super) history: Vec<Past>,
    /// PUTs that are on their way or whose operation runs, by process.
    pub(super) puts: BTreeMap<(usize, u64), i64>,
    /// When the last PUT has reached Azure.
    pub(super) put_at: Duration,
    /// When the last deletion began that was answered as done.
    pub(super) deleted_at: Option<Duration>,
    /// When the last request began whose answer was a ready snapshot.
    pub(super) ready_at: Option<Duration>,
    dropped: BTreeSet<(Key, Id)>,
    pub(super) mutant: Option<Mutant>,
    pub(super) counts: Counts,
    pub(super) story: Option<Vec<String>>,
    pub(super) broken: Option<String>,
}

impl World {
    pub(super) fn new(seed: u64, incidents: &[(u64, Incident)], mutant: Option<Mutant>, tells: bool) -> Self {
        let mut numbers = Numbers::new(seed ^ 0x5A4B);
        let mut world = Self {
            is_elsewhere: numbers.one_in(2),
            fills_late: numbers.one_in(2),
            is_crowded: numbers.one_in(2),
            no_region: numbers.one_in(8),
            numbers,
            now: Duration::ZERO,
            queue: BinaryHeap::new(),
            thens: BTreeMap::new(),
            entries: 0,
            replicas: Default::default(),
            lives: BTreeMap::new(),
            rpcs: BTreeMap::new(),
            callers: BTreeMap::new(),
            wish: None,
            wishes: 0,
            wished_at: Duration::ZERO,
            disk: Some(1),
            snaps: BTreeMap::new(),
            deleting: BTreeSet::new(),
            next: 2,
            history: vec![Past { at: Duration::ZERO, disk: Some(1), snaps: BTreeMap::new() }],
            puts: BTreeMap::new(),
            put_at: Duration::ZERO,
            deleted_at: None,
            ready_at: None,
            dropped: BTreeSet::new(),
            mutant,
            counts: Counts::new(),
            story: tells.then(Vec::new),
            broken: None,
        };
        for replica in &mut world.replicas {
            replica.memory = crowd(world.is_crowded);
        }
        for (at, incident) in incidents {
            world.at(Duration::from_millis(*at), Then::Incident(*incident));
        }
        world
    }

    pub(super) fn at(&mut self, at: Duration, then: Then) {
        self.entries += 1;
        self.queue.push(Reverse((at, self.entries)));
        self.thens.insert(self.entries, then);
    }

    pub(super) fn after_ms(&mut self, most: u64, then: Then) {
        let at = self.now + self.numbers.ms(most) + Duration::from_millis(1);
        self.at(at, then);
    }

    pub(super) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub(super) fn tell_story(&mut self, line: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            story.push(format!("{:>9} ms  {}", self.now.as_millis(), line()));
        }
    }

    pub(super) fn breaks(&mut self, law: impl Into<String>) {
        let law = law.into();
        self.tell_story(|| format!("BREAKS: {law}"));
        self.broken.get_or_insert(law);
    }

    pub(super) fn run(&mut self) -> Result<(), String> {
        let mut last_incident = Duration::from_millis(INCIDENTS);
        while let Some(Reverse((at, entry))) = self.queue.pop() {
            self.now = at;
            let then = self.thens.remove(&entry).expect("it was queued");
            if matches!(then, Then::Incident(_)) {
                last_incident = last_incident.max(at);
            }
            self.happens(then);
            if let Some(broken) = &self.broken {
                return Err(broken.clone());
            }
            if self.now > last_incident + SETTLED {
                return Err(format!("{:?} is neither fulfilled nor given up", self.wish));
            }
        }
        if self.wish.is_some() {
            return Err("nothing is left to happen, and the caller waits".to_owned());
        }
        self.settled();
        self.broken.clone().map_or(Ok(()), Err)
    }

    pub(super) fn changed(&mut self) {
        self.history.push(Past { at: self.now, disk: self.disk, snaps: self.snaps.clone() });
        let (disk, snaps) = (self.disk, self.snaps.clone());
        self.tell_story(|| format!("azure: disk {disk:?}, {snaps:?}"));
    }

    fn happens(&mut self, then: Then) {
        match then {
            Then::Incident(incident) => self.incident(incident),
            Then::Ask(wish) => {
                if self.wishes == wish && self.wish.is_some() && self.rpcs.is_empty() {
                    self.ask();
                }
            }
            Then::Leaves(call) => {
                if self.rpcs.contains_key(&call) {
                    self.count("caller gave up");
                    self.leaves(call);
                    self.ask_again(1_000);
                }
            }
            Then::Arrives(call, what) => self.arrives(call, what),
            Then::Answer(call, event) => self.step(call, *event),
            Then::Tell(key, event) => self.told(key, *event),
            Then::ReadArrives(key, id, fails) => self.course_read(key, id, fails),
            Then::WriteArrives(key, id, op, fate) => self.write_arrives(key, id, &op, fate),
            Then::Ends { key, number, end, to } => self.ends(key, number, end, to),
        }
    }

    fn incident(&mut self, incident: Incident) {
        self.tell_story(|| format!("{incident:?}"));
        match incident {
            Incident::Wish(wish) => {
                for call in self.rpcs.keys().copied().collect::<Vec<_>>() {
                    self.leaves(call);
                }
                // Who asks again for what is being made gets what the first asked for.
                if self.wish != Some(wish) {
                    (self.wish, self.wished_at) = (Some(wish), self.now);
                }
                self.wishes += 1;
                self.ask();
            }
            Incident::Kill(replica) => {
                self.count("killed");
                let epoch = self.replicas[replica].epoch + 1;
                let memory = crowd(self.is_crowded);
                self.replicas[replica] = Replica { epoch, memory, ..Replica::default() };
                self.rpcs.retain(|_, rpc| rpc.replica != replica);
                self.ask_again(1_000);
            }
            Incident::Remake | Incident::Delete => {
                self.count(if matches!(incident, Incident::Remake) { "disk remade" } else { "disk gone" });
                self.disk = matches!(incident, Incident::Remake).then_some(self.next);
                self.next += 1;
                self.changed();
            }
            Incident::Person(Name::Target) if self.is_elsewhere => {}
            Incident::Person(name) => {
                if let (None, Some(of)) = (self.snaps.get(&name), self.disk) {
                    self.count("person's snapshot");
                    let snap = self.snap(CopyMethodOf::Disk, of, false);
                    self.snaps.insert(name, Snap { state: Doing::Good, complete_at: self.now, ..snap });
                    self.changed();
                }
            }
        }
    }

    /// external-snapshotter asks for what it wants.
    fn ask(&mut self) {
        let Some(wish) = self.wish else { return };
        let call = self.next;
        self.next += 1;
        let replica = usize::from(self.numbers.one_in(4));
        let request = match wish {
            Wish::Take => {
                let location = self.is_elsewhere.then(|| ("location".to_owned(), "there".to_owned()));
                Request::Create { request: request("snapshot-1", location), defaults: Arc::new(defaults()) }
            }
            Wish::Delete => Request::Delete(Name::Target.id()),
        };
        let epoch = self.replicas[replica].epoch;
        let is_remembered = match &request {
            Request::Create { request, .. } => self.replicas[replica].memory.of(request).is_some(),
            Request::Delete(_) => false,
        };
        let rpc = Rpc { replica, epoch, wish, began: self.now, is_remembered, state: State::new(request), works: None };
        self.rpcs.insert(call, rpc);
        if self.numbers.one_in(3) {
            self.after_ms(20_000, Then::Leaves(call));
        }
        self.step(call, Event::Begun);
    }

    pub(super) fn ask_again(&mut self, ms: u64) {
        let (at, wish) = (self.now + Duration::from_millis(ms), self.wishes);
        self.at(at, Then::Ask(wish));
    }

    fn leaves(&mut self, call: u64) {
        let Some(rpc) = self.rpcs.remove(&call) else { return };
        self.tell_story(|| format!("call {call} is given up"));
        if let Some((name, caller)) = rpc.works {
            let key = Key { replica: rpc.replica, epoch: rpc.epoch, name };
            self.course(key, single::Event::Abandoned(caller));
        }
    }

    fn step(&mut self, call: u64, event: Event<Error, Error>) {
        let Some(mut rpc) = self.rpcs.remove(&call) else { return };
        self.tell_story(|| format!("call {call}: {event:?}"));
        rpc.works = None;
        let replica = &mut self.replicas[rpc.replica];
        let mut env = Env { memory: &mut replica.memory, limits: &AZURE_LIMITS };
        let Step { next, .. } = rpc.state.step(&mut env, self.now, event);
        self.tell_story(|| format!("call {call}:   {next:?}"));
        match next {
            Next::Call(Call::Work { snapshot, wanted }) => {
                let (name, caller) = (Name::of(&snapshot), self.next);
                self.next += 1;
                let key = Key { replica: rpc.replica, epoch: rpc.epoch, name };
                rpc.works = Some((name, caller));
                self.rpcs.insert(call, rpc);
                self.callers.insert(caller, call);
                let request = whole_snapshot::Request { wanted, limits: LIMITS };
                self.course(key, single::Event::Requested(caller, request));
            }
            Next::Call(what) => {
                self.rpcs.insert(call, rpc);
                let from = match &what {
                    Call::ReadSnapshot { not_before: Some(at), .. } => self.now.max(*at),
                    _ => self.now,
                };
                let at = from + self.numbers.ms(400) + Duration::from_millis(1);
                self.at(at, Then::Arrives(call, what));
            }
            Next::Done(outcome) => self.answered(&rpc, outcome),
        }
    }

    /// A call of a request that only reads.
    fn arrives(&mut self, call: u64, what: Call) {
        let Some(rpc) = self.rpcs.get(&call) else { return };
        let replica = rpc.replica;
        let fails = self.numbers.one_in(40);
        let fault = if self.numbers.one_in(2) { Fault::Forbidden } else { Fault::Unavailable };
        let failed = || Error { fault: fault.clone(), effect: Effect::None, code: "" };
        let missing = || Error { fault: Fault::NotFound, effect: Effect::None, code: "" };
        let event = match what {
            _ if fails && matches!(what, Call::ReadSource { .. }) => Event::Source(Err(failed())),
            _ if fails && matches!(what, Call::ReadSnapshot { .. }) => Event::Snapshot(Err(failed())),
            Call::ReadSource { accept, .. } => {
                if accept == Accept::Single {
                    self.count("source read singly");
                }
                let by_list = self.listed(accept).disk.map(|number| (disk(number), By::List));
                let stale = (self.mutant == Some(Mutant::StaleSource)).then(|| self.history.first()?.disk).flatten();
                let alone = || stale.or(self.disk).map(|number| (disk(number), By::Single));
                let read: Option<(Disk, By)> = by_list.filter(|_| accept != Accept::Single).or_else(alone);
                Event::Source(read.map(Box::new).ok_or_else(missing))
            }
            Call::ReadSnapshot { snapshot, accept, .. } => {
                let name = Name::of(&snapshot);
                let by_list = self.listed(accept).snaps.get(&name).copied().map(|snap| (snap, By::List));
                let alone = self.snaps.get(&name).copied().map(|snap| (snap, By::Single));
                let read = by_list.filter(|_| accept != Accept::Single).or(alone);
                let read = read.map(|(snap, by)| Box::new((self.distorted(name, snap).seen(name, self.now), by)));
                Event::Snapshot(read.ok_or_else(missing))
            }
            Call::List { of, not_before } => Event::Listed(Ok(self.list(replica, of.group.is_some(), not_before))),
            Call::Work { .. } => unreachable!("work goes to a course"),
        };
        self.after_ms(100, Then::Answer(call, Box::new(event)));
    }

    /// What a list shows that is sent now.
    fn listed(&mut self, accept: Accept) -> Past {
        let is_old = accept != Accept::Single && self.numbers.one_in(2);
        let lag = if is_old { self.numbers.ms(LAG) } else { Duration::ZERO };
        self.past(self.now.saturating_sub(lag))
    }

    pub(super) fn past(&self, at: Duration) -> Past {
        let before = self.history.iter().rev().find(|past| past.at <= at);
        before.or(self.history.first()).expect("there is one").clone()
    }

    /// The list of a replica, which is read now if it was sent too early.
    fn list(&mut self, replica: usize, is_look: bool, not_before: Duration) -> Listed {
        if is_look {
            self.count("looked at by a list");
        }
        if let Some(listed) = self.replicas[replica].listed.clone().filter(|listed| listed.sent_at >= not_before) {
            self.count("list shared");
            return listed;
        }
        let past = self.listed(Accept::List);
        let seen = past.snaps.iter().map(|(name, snap)| self.distorted(*name, *snap).seen(*name, self.now));
        let azure_now = AzureTime::from_unix_seconds(i64::try_from(self.now.as_secs()).expect("small"));
        let listed = Listed { snapshots: Arc::new(seen.collect()), sent_at: self.now, azure_now: Some(azure_now) };
        self.replicas[replica].listed = Some(listed.clone());
        listed
    }

    /// A snapshot as a mutant shows it.
    fn distorted(&self, name: Name, snap: Snap) -> Snap {
        match (self.mutant, name) {
            (Some(Mutant::LocalComplete), Name::Local) | (Some(Mutant::TargetComplete), Name::Target) => {
                Snap { complete_at: Duration::ZERO, ..snap }
            }
            (Some(Mutant::OwnsAll), _) => Snap { is_ours: true, ..snap },
            _ => snap,
        }
    }

    /// An event reaches the course of a snapshot, if its process still lives.
    pub(super) fn told(&mut self, key: Key, event: single::Event<Course>) {
        match &event {
            single::Event::NoPermit(id, _) | single::Event::Rested(id) if self.dropped.contains(&(key, *id)) => return,
            single::Event::Permitted(id) if self.dropped.contains(&(key, *id)) => {}
            single::Event::Permitted(_) => self.lives.entry(key).or_default().permitted = Some(self.now),
            _ => {}
        }
        self.course(key, event);
    }

    fn course(&mut self, key: Key, event: single::Event<Course>) {
        if self.replicas[key.replica].epoch != key.epoch {
            return;
        }
        self.tell_story(|| format!("{key:?}: {event:?}"));
        let course = self.replicas[key.replica].keys.entry(key.name).or_default();
        if course.is_idle() && matches!(event, single::Event::Requested(..)) {
            self.lives.insert(key, Life::default());
        }
        let actions = course.step(&(), self.now, event);
        for action in actions {
            self.tell_story(|| format!("{key:?}:   {action:?}"));
            self.carry(key, action);
        }
    }

    fn carry(&mut self, key: Key, action: Action<Course>) {
        match action {
            Action::TakePermit(id, _) => {
                let most = if self.numbers.one_in(4) { 8_000 } else { 50 };
                self.after_ms(most, Then::Tell(key, Box::new(single::Event::Permitted(id))));
            }
            Action::ReleasePermit(_) | Action::LeaveUnsent(_) => {}
            Action::Read(id, _) => {
                let fails = self.numbers.one_in(40);
                self.lives.entry(key).or_default().read = Some((self.now, None));
                self.after_ms(400, Then::ReadArrives(key, id, fails));
            }
            Action::Write { id, op, .. } => self.sent(key, id, op),
            Action::Rest(id, rest) => {
                let pause = match rest {
                    Rest::For(pause) => pause,
                    Rest::BackOff { failures } => Duration::from_millis(500 << failures.min(6)),
                };
                self.at(self.now + pause, Then::Tell(key, Box::new(single::Event::Rested(id))));
            }
            Action::Drop(id) => drop(self.dropped.insert((key, id))),
            Action::Answer(caller, outcome) => self.worked(caller, outcome),
        }
    }

    /// The work on one snapshot has ended, for one of its callers.
    fn worked(&mut self, caller: Caller, outcome: Result<whole_snapshot::Done, Refusal<Course>>) {
        let Some(call) = self.callers.remove(&caller) else { return };
        if self.mutant == Some(Mutant::NoAnswer) && caller.is_multiple_of(3) {
            self.rpcs.remove(&call);
            return;
        }
        let mut outcome = outcome.map_err(|refusal| match refusal {
            Refusal::Busy(_) => Error { fault: Fault::Busy, effect: Effect::None, code: "" },
            Refusal::Why(failure) => {
                let code = failure.azure.as_ref().map_or("", |error| error.code);
                Error { fault: failure.fault, effect: failure.effect, code }
            }
        });
        if let (Some(Mutant::NoEffect), Err(error)) = (self.mutant, &mut outcome) {
            error.effect = Effect::None;
        }
        self.after_ms(1, Then::Answer(call, Box::new(Event::Worked(outcome))));
    }

    fn course_read(&mut self, key: Key, id: Id, fails: bool) {
        let shown = self.snaps.get(&key.name).copied().filter(|_| self.mutant != Some(Mutant::BlindRead));
        if !fails
            && let Some(life) = self.lives.get_mut(&key)
            && let Some(read) = &mut life.read
        {
            read.1 = Some(self.snaps.get(&key.name).copied());
        }
        let read = if fails {
            Err(Error { fault: Fault::Forbidden, effect: Effect::None, code: "" })
        } else {
            let missing = Error { fault: Fault::NotFound, effect: Effect::None, code: "" };
            shown.map(|snap| self.distorted(key.name, snap).seen(key.name, self.now)).ok_or(missing)
        };
        self.after_ms(100, Then::Tell(key, Box::new(single::Event::Read(id, read))));
    }

    pub(super) fn answer_write(&mut self, key: Key, id: Id, written: Written<Course>, most: u64) {
        let effect = match &written {
            Written::Refused(error) | Written::Failed(error) => error.effect,
            Written::Done(_) => Effect::None,
        };
        if effect == Effect::Possible {
            self.lives.entry(key).or_default().tried = true;
        }
        self.after_ms(most, Then::Tell(key, Box::new(single::Event::Ended(id, written))));
    }

    /// The code of a failure, as the caller gets it.
    pub(super) fn code(wish: Wish, failure: &Failure<Error, Error>) -> Code {
        failure.code(match wish {
            Wish::Take => Method::CreateSnapshot,
            Wish::Delete => Method::DeleteSnapshot,
        })
    }

    /// A caller has its answer.
    fn answered(&mut self, rpc: &Rpc, outcome: Result<Done, Failure<Error, Error>>) {
        self.judge(rpc, &outcome);
        match (rpc.wish, outcome) {
            (Wish::Take, Ok(Done::Made(view))) if view.failure.is_some() => {
                // A person deletes what will never be. external-snapshotter does so after such an answer alone.
                self.count("given up");
                (self.wish, self.wished_at) = (Some(Wish::Delete), self.now);
                self.wishes += 1;
                self.ask_again(5_000);
            }
            (Wish::Take, Ok(Done::Made(view))) if !view.is_ready => self.ask_again(5_000),
            (_, Ok(_)) => self.wish = None,
            (Wish::Take, Err(failure)) if Self::code(Wish::Take, &failure).may_be_in_progress() => {
                if self.now > self.wished_at + SETTLED / 2 {
                    let has_failed =
                        |snap: &Snap| snap.is_ours && (snap.state == Doing::Failed || snap.has_lost_source);
                    if self.snaps.values().any(has_failed) {
                        self.breaks("a failed snapshot is never told, so that it cannot be deleted");
                    }
                    // The disk of a snapshot is another one by now. A person takes the annotation off.
                    self.count("given up");
                    (self.wish, self.wished_at) = (Some(Wish::Delete), self.now);
                    self.wishes += 1;
                }
                self.ask_again(5_000);
            }
            (Wish::Take, Err(_)) => self.wish = None,
            (Wish::Delete, Err(_)) => self.ask_again(5_000),
        }
    }
}

fn request(name: &str, parameter: Option<(String, String)>) -> SnapshotRequest {
    let volume = disk_id().as_str().parse().expect("an id");
    SnapshotRequest { name: name.to_owned(), volume, parameters: parameter.into_iter().collect() }
}

fn defaults() -> Defaults {
    Defaults { subscription: "s".into(), resource_group: "g".into(), location: "here".into(), ..Defaults::default() }
}

/// A memory in which other snapshots of the group are unfinished, or none.
fn crowd(is_crowded: bool) -> Memory {
    let mut memory = Memory::default();
    for n in 0..if is_crowded { 4 } else { 0 } {
        let request = request(&format!("other-{n}"), None);
        let plan = plan_snapshot(&request, &defaults(), SourceSeen::Disk(&disk(1))).expect("a good class");
        let other = Snapshot::complete(plan.snapshot.clone(), &disk_id());
        let shown = Snapshot { unique_id: Some(format!("o-{n}")), ..other };
        memory.learn(&request, &Arc::new(plan), &SnapshotView::of(&shown), &shown, Duration::ZERO);
    }
    memory
}

/// What a snapshot is made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CopyMethodOf {
    Disk,
    Local,
}
