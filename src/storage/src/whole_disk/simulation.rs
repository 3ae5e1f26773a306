//! Random lives of one disk: callers of two replicas and another hand ask for it to be made, grown, changed and deleted, and
//! Azure delays, refuses, fails, and loses answers. Laws judge what is sent and what is answered.
//!
//! It imports no rule of the courses. `LAZULI_WHOLE_DISK_SEEDS=N` runs so many schedules, and `LAZULI_WHOLE_DISK_SEED=S` one,
//! with its story.

mod azure;
mod laws;
mod mutants;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
    sync::Arc,
    time::Duration,
};

use lazuli_engine::{
    Id,
    attempts::Limits,
    single::{Action, AzureFailure, Caller, Event, Rest, State, Written},
};
use lazuli_model::{
    ArmId, Disk, Gib, ProvisioningState, SkuName,
    disk_details::DiskDetails,
    disk_spec::{CreateOption, DiskSpec, NamedBy, Origin},
    disk_tags,
    fault::{Effect, Fault},
    seeded::{self, Counts, Numbers, Outcome, Simulation},
};

use lazuli_volume::Cloud;

use mutants::{MUTANTS, Mutant};

use super::{Done, Failure, Op, Request, SeenDisk, Wanted, WholeDisk};

/// The schedules in which a distortion must be noticed.
const NOTICED: u64 = 30_000;
const LIMITS: Limits = Limits { tries: 4, longest_wait: Duration::from_secs(60) };
/// The last incident comes before.
const INCIDENTS: u64 = 120_000;
/// So long after the last incident everybody is answered: an operation that another hand began is waited for, and each try
/// of a write may take its longest pauses.
const SETTLED: Duration = Duration::from_secs(40 * 60);

const REACHED: [&str; 27] = [
    "busy",
    "caller gave up",
    "changed",
    "changed already",
    "clean-up sent",
    "deleted",
    "failed",
    "failed without an effect",
    "foreign attach",
    "foreign delete",
    "foreign make",
    "foreign operation",
    "foreign replacement",
    "grown",
    "joined",
    "left unsent",
    "lost, and done",
    "lost, and done late",
    "lost, and not done",
    "made",
    "operation failed, disk left",
    "operation failed, nothing left",
    "operation's end lost",
    "permit came too late",
    "permit refused",
    "refused",
    "replaced",
];

#[derive(Debug, Clone, PartialEq)]
struct Error {
    fault: Fault,
    effect: Effect,
}

impl AzureFailure for Error {
    fn fault(&self) -> &Fault {
        &self.fault
    }

    fn effect(&self) -> Effect {
        self.effect
    }

    fn code(&self) -> &str {
        if self.fault == Fault::ScopeNotFound { "ResourceGroupNotFound" } else { "" }
    }
}

type Course = WholeDisk<Error>;

/// What happens to the processes and to Azure from outside. A disk is of a claim.
#[derive(Debug, Clone, Copy)]
enum Incident {
    Ask {
        replica: usize,
        what: Goal,
        patience: u64,
    },
    Make {
        claim: u8,
    },
    /// The disk is deleted, and made again for this claim.
    Replace {
        claim: u8,
    },
    Delete,
    Attach,
    Detach,
    /// An operation of another hand that ends with the disk failed, or not.
    Operation {
        fails: bool,
        ms: u64,
    },
}

#[derive(Debug, Clone, Copy)]
enum Goal {
    Made(u8),
    Deleted,
    Grown(u32),
    /// It has this tag of a class.
    Changed(u8),
}

impl seeded::Incident for Incident {
    fn of(seed: u64) -> Vec<(u64, Self)> {
        let mut numbers = Numbers::new(seed);
        let count = 1 + numbers.below(8);
        let first = numbers.below(INCIDENTS);
        let mut incidents: Vec<_> = (0..count)
            .map(|_| {
                // Most of them stand close together.
                let at = if numbers.one_in(3) { numbers.below(INCIDENTS) } else { first + numbers.below(15_000) };
                let claim = u8::from(numbers.one_in(5));
                let incident = match numbers.below(13) {
                    0..7 => {
                        let what = match numbers.below(5) {
                            0 | 1 => Goal::Made(claim),
                            2 => Goal::Deleted,
                            3 => Goal::Changed(1 + u8::from(numbers.one_in(3))),
                            _ => Goal::Grown(5 + u32::from(numbers.one_in(2))),
                        };
                        let patience = if numbers.one_in(3) { numbers.below(20_000) } else { u64::MAX };
                        Incident::Ask { replica: usize::from(numbers.one_in(3)), what, patience }
                    }
                    7 => Incident::Make { claim },
                    8 => Incident::Delete,
                    9 => Incident::Attach,
                    10 => Incident::Detach,
                    11 => Incident::Replace { claim: u8::from(numbers.one_in(2)) },
                    _ => Incident::Operation { fails: numbers.one_in(2), ms: numbers.below(60_000) },
                };
                (at, incident)
            })
            .collect();
        // Callers come in bursts, and repeat what they ask.
        if numbers.one_in(2)
            && let Some((at, ask @ Incident::Ask { .. })) = incidents.first().copied()
        {
            incidents.push((at + numbers.below(3_000), ask));
        }
        incidents.sort_by_key(|(at, _)| *at);
        incidents
    }
}

/// The disk in Azure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Made {
    /// Which disk of the name it is.
    number: u64,
    claim: u8,
    gib: u32,
    /// The tag that classes change; 0 where it has none.
    team: u8,
    state: Doing,
    held: bool,
    /// The course whose PUT has made it.
    by: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    Busy,
    Failed,
    Good,
}

impl Made {
    fn seen(self) -> Disk {
        let vm = self.held.then(|| ArmId::virtual_machine("s", "g", "n0").expect("an id"));
        let team = (self.team > 0).then(|| (TEAM.to_owned(), self.team.to_string()));
        let request = (disk_tags::REQUEST.to_owned(), format!("pvc-{}", self.claim));
        Disk {
            size: Gib::new(self.gib),
            sku: Some(SkuName::PremiumLrs),
            tags: [request].into_iter().chain(team).collect(),
            provisioning_state: match self.state {
                Doing::Busy => ProvisioningState::InProgress,
                Doing::Failed => ProvisioningState::Failed,
                Doing::Good => ProvisioningState::Succeeded,
            },
            managed_by: vm,
            ..Disk::unattached("d")
        }
    }

    fn read(self) -> SeenDisk {
        SeenDisk { disk: self.seen(), details: Some(DiskDetails::default()) }
    }
}

/// The tag that classes change.
const TEAM: &str = "team";

/// What a class asks for that sets it.
fn class(team: u8) -> Wanted {
    let class = BTreeMap::from([("tags".to_owned(), format!("{TEAM}={team}"))]);
    Wanted::Changed { class: Arc::new(class), cloud: Cloud::Public }
}

fn spec(claim: u8) -> DiskSpec {
    DiskSpec {
        location: "local".into(),
        extended_location: None,
        zones: Vec::new(),
        sku: SkuName::PremiumLrs,
        tags: BTreeMap::new(),
        create_option: CreateOption::Empty,
        logical_sector_size: None,
        performance_plus: None,
        size: Gib::new(4),
        iops: None,
        mbps: None,
        max_shares: 1,
        disk_encryption_set: None,
        encryption_type: None,
        network_access_policy: None,
        disk_access: None,
        public_network_access: None,
        bursting_enabled: None,
        tier: None,
        most_bytes: None,
        zones_accepted: BTreeSet::new(),
        origin: Origin {
            request: format!("pvc-{claim}"),
            persistent_volume: format!("pvc-{claim}"),
            named_by: NamedBy::Request,
        },
    }
}

/// What happens at a moment.
#[derive(Debug)]
enum Then {
    Incident(Incident),
    Leaves(usize, Caller),
    Tell(usize, Box<Event<Course>>),
    /// A request reaches Azure.
    Arrives(usize, Id, Op, Fate, u64),
    ReadArrives(usize, Id, bool),
    /// An operation ends. The answer goes to this write, if to any.
    Ends {
        number: u64,
        end: End,
        to: Option<(usize, Id, bool)>,
    },
}

#[derive(Debug, Clone, Copy)]
enum End {
    /// With this size, where it is larger, and this tag, where it is another.
    Good(u32, Option<u8>),
    Failed {
        left: bool,
    },
    Deleted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Served { fails: bool, left: bool, end_lost: bool },
    Lost,
    Refused(u8),
    NotDone,
}

/// One course, as the world sees it.
#[derive(Debug, Clone)]
struct Life {
    number: u64,
    began: Duration,
    goal: Goal,
    callers: BTreeSet<Caller>,
    permitted: Option<Duration>,
    /// When reads were sent, and what they have shown: nothing where they failed.
    reads: Vec<(Duration, Option<Option<Made>>)>,
    first: Option<Option<Made>>,
    /// The number of the next disk when it began: what has a lower one was there before.
    next_disk: u64,
    sends: usize,
    has_failed: bool,
}

struct World {
    numbers: Numbers,
    now: Duration,
    queue: BinaryHeap<Reverse<(Duration, u64)>>,
    thens: BTreeMap<u64, Then>,
    entries: u64,
    steps: [State<Course>; 2],
    lives: [Option<Life>; 2],
    disk: Option<Made>,
    deleting: bool,
    next_disk: u64,
    next_life: u64,
    next_caller: Caller,
    history: Vec<(Duration, Option<Made>)>,
    waiting: BTreeMap<Caller, Duration>,
    /// Courses whose PUT may still be done.
    late_puts: BTreeMap<u64, u32>,
    dropped: BTreeSet<(usize, Id)>,
    sleeping: u32,
    mutant: Option<Mutant>,
    counts: Counts,
    story: Option<Vec<String>>,
    broken: Option<String>,
}

impl World {
    fn new(seed: u64, incidents: &[(u64, Incident)], mutant: Option<Mutant>, tells: bool) -> Self {
        let mut numbers = Numbers::new(seed ^ 0xD15C);
        let mut world = Self {
            now: Duration::ZERO,
            queue: BinaryHeap::new(),
            thens: BTreeMap::new(),
            entries: 0,
            steps: [State::default(), State::default()],
            lives: [None, None],
            disk: None,
            deleting: false,
            next_disk: 1,
            next_life: 1,
            next_caller: 1,
            history: Vec::new(),
            waiting: BTreeMap::new(),
            late_puts: BTreeMap::new(),
            dropped: BTreeSet::new(),
            sleeping: 0,
            mutant,
            counts: Counts::new(),
            story: tells.then(Vec::new),
            broken: None,
            numbers: numbers.clone(),
        };
        if numbers.one_in(2) {
            let state = if numbers.one_in(4) { Doing::Failed } else { Doing::Good };
            world.make(Made { number: 0, claim: 0, gib: 4, team: 0, state, held: false, by: None });
        }
        world.numbers = numbers;
        world.history.push((Duration::ZERO, world.disk));
        for (at, incident) in incidents {
            world.at(Duration::from_millis(*at), Then::Incident(*incident));
        }
        world
    }

    fn at(&mut self, at: Duration, then: Then) {
        self.entries += 1;
        self.queue.push(Reverse((at, self.entries)));
        self.thens.insert(self.entries, then);
    }

    fn after_ms(&mut self, most: u64, then: Then) {
        let at = self.now + self.numbers.ms(most) + Duration::from_millis(1);
        self.at(at, then);
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn tell_story(&mut self, line: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            story.push(format!("{:>9} ms  {}", self.now.as_millis(), line()));
        }
    }

    fn breaks(&mut self, law: impl Into<String>) {
        let law = law.into();
        self.tell_story(|| format!("BREAKS: {law}"));
        self.broken.get_or_insert(law);
    }

    fn run(&mut self) -> Result<(), String> {
        let mut end = Duration::from_millis(INCIDENTS);
        while let Some(Reverse((at, entry))) = self.queue.pop() {
            self.now = at;
            let then = self.thens.remove(&entry).expect("it was queued");
            if matches!(then, Then::Incident(_)) {
                end = at;
            }
            self.happens(then);
            if let Some(broken) = &self.broken {
                return Err(broken.clone());
            }
            if let Some(since) = self.waiting.values().min()
                && self.now > end.max(*since) + SETTLED
            {
                return Err(format!("a caller waits since {} ms", since.as_millis()));
            }
        }
        match self.waiting.first_key_value() {
            Some((caller, _)) => Err(format!("nothing is left to happen, and caller {caller} waits")),
            None => Ok(()),
        }
    }

    fn changed(&mut self) {
        self.history.push((self.now, self.disk));
        let disk = self.disk;
        self.tell_story(|| format!("azure: {disk:?}"));
    }

    fn make(&mut self, made: Made) -> u64 {
        let number = self.next_disk;
        self.next_disk += 1;
        self.disk = Some(Made { number, ..made });
        self.deleting = false;
        self.changed();
        number
    }

    fn happens(&mut self, then: Then) {
        match then {
            Then::Incident(incident) => self.incident(incident),
            Then::Leaves(replica, caller) => {
                if self.waiting.remove(&caller).is_some() {
                    self.count("caller gave up");
                    self.tell_story(|| format!("caller {caller} gives up"));
                    if let Some(life) = &mut self.lives[replica] {
                        life.callers.remove(&caller);
                    }
                    if self.mutant != Some(Mutant::NeverLeaves) {
                        self.step(replica, Event::Abandoned(caller));
                    }
                }
            }
            Then::Tell(replica, event) => self.told(replica, *event),
            Then::Arrives(replica, id, op, fate, life) => self.arrives(replica, id, &op, fate, life),
            Then::ReadArrives(replica, id, fails) => self.read(replica, id, fails),
            Then::Ends { number, end, to } => self.ends(number, end, to),
        }
    }

    fn incident(&mut self, incident: Incident) {
        self.tell_story(|| format!("{incident:?}"));
        match (incident, self.disk) {
            (Incident::Ask { replica, what, patience }, disk) => {
                let wanted = match (what, disk) {
                    (Goal::Made(claim), _) => Wanted::Made(Arc::new(spec(claim))),
                    (Goal::Deleted, _) => Wanted::Deleted,
                    (Goal::Changed(team), _) => class(team),
                    (Goal::Grown(to), Some(disk)) if disk.gib < to => {
                        let before = Arc::new(disk.seen());
                        Wanted::Grown { before, read_at: self.now, to: Gib::new(to) }
                    }
                    (Goal::Grown(_), _) => return,
                };
                let caller = self.next_caller;
                self.next_caller += 1;
                self.waiting.insert(caller, self.now);
                if patience < u64::MAX {
                    self.at(self.now + Duration::from_millis(patience), Then::Leaves(replica, caller));
                }
                let was_idle = self.steps[replica].is_idle();
                if was_idle {
                    let known = matches!(what, Goal::Grown(_)).then_some((self.now, Some(disk)));
                    self.lives[replica] = Some(Life {
                        number: self.next_life,
                        began: self.now,
                        goal: what,
                        callers: BTreeSet::new(),
                        permitted: None,
                        reads: known.into_iter().collect(),
                        first: known.and_then(|(_, disk)| disk),
                        next_disk: self.next_disk,
                        sends: 0,
                        has_failed: false,
                    });
                    self.next_life += 1;
                }
                if let Some(life) = &mut self.lives[replica] {
                    life.callers.insert(caller);
                }
                self.step(replica, Event::Requested(caller, Request { wanted, limits: LIMITS }));
                if !was_idle && self.waiting.contains_key(&caller) {
                    self.count("joined");
                }
            }
            (Incident::Make { claim }, None) => {
                self.count("foreign make");
                self.make(Made { number: 0, claim, gib: 4, team: 0, state: Doing::Good, held: false, by: None });
            }
            (Incident::Replace { claim }, Some(disk)) if !disk.held && disk.state != Doing::Busy => {
                self.count("foreign replacement");
                (self.disk, self.deleting) = (None, false);
                self.changed();
                self.make(Made { number: 0, claim, gib: 4, team: 0, state: Doing::Good, held: false, by: None });
            }
            (Incident::Delete, Some(disk)) if !disk.held && disk.state != Doing::Busy => {
                self.count("foreign delete");
                (self.disk, self.deleting) = (None, false);
                self.changed();
            }
            (Incident::Attach | Incident::Detach, Some(disk)) if disk.state != Doing::Busy && !self.deleting => {
                let held = matches!(incident, Incident::Attach);
                self.count("foreign attach");
                self.disk = Some(Made { held, ..disk });
                self.changed();
            }
            (Incident::Operation { fails, ms }, Some(disk)) if disk.state != Doing::Busy && !self.deleting => {
                self.count("foreign operation");
                self.disk = Some(Made { state: Doing::Busy, ..disk });
                self.changed();
                let end = if fails { End::Failed { left: true } } else { End::Good(disk.gib, None) };
                let ends = Then::Ends { number: disk.number, end, to: None };
                self.at(self.now + Duration::from_millis(ms), ends);
            }
            _ => {}
        }
    }

    /// An event reaches a replica, with what a mutant makes of it.
    fn told(&mut self, replica: usize, event: Event<Course>) {
        let is_dropped = |id: &Id| self.dropped.contains(&(replica, *id));
        match &event {
            Event::Permitted(id) if is_dropped(id) => self.count("permit came too late"),
            Event::NoPermit(id, _) | Event::Rested(id) if is_dropped(id) => return,
            Event::Permitted(_) => {
                if let Some(life) = &mut self.lives[replica] {
                    life.permitted = Some(self.now);
                }
            }
            _ => {}
        }
        self.step(replica, event);
    }

    fn step(&mut self, replica: usize, event: Event<Course>) {
        self.tell_story(|| format!("replica {replica}: {event:?}"));
        let actions = self.steps[replica].step(&(), self.now, event);
        for action in actions {
            self.tell_story(|| format!("replica {replica}:   {action:?}"));
            self.carry(replica, action);
        }
    }

    fn carry(&mut self, replica: usize, action: Action<Course>) {
        match action {
            Action::TakePermit(id, _) => {
                let event = if self.numbers.one_in(60) {
                    self.count("permit refused");
                    Event::NoPermit(id, Error { fault: Fault::Unauthenticated, effect: Effect::None })
                } else {
                    Event::Permitted(id)
                };
                let most = if self.numbers.one_in(4) { 8_000 } else { 50 };
                self.after_ms(most, Then::Tell(replica, Box::new(event)));
            }
            Action::ReleasePermit(_) => {}
            Action::Read(id, _) => {
                let fails = self.numbers.one_in(40);
                if let Some(life) = &mut self.lives[replica] {
                    life.reads.push((self.now, None));
                }
                self.after_ms(400, Then::ReadArrives(replica, id, fails));
            }
            Action::Write { id, op, .. } => self.sent(replica, id, op),
            Action::Rest(id, rest) => {
                let pause = match rest {
                    Rest::For(pause) => pause,
                    Rest::BackOff { failures } => Duration::from_millis(500 << failures.min(6)),
                };
                self.sleeping += 1;
                if self.mutant == Some(Mutant::Sleeps) && self.sleeping.is_multiple_of(3) {
                    return;
                }
                self.at(self.now + pause, Then::Tell(replica, Box::new(Event::Rested(id))));
            }
            Action::Drop(id) => drop(self.dropped.insert((replica, id))),
            Action::LeaveUnsent(_) => self.count("left unsent"),
            Action::Answer(caller, outcome) => {
                use lazuli_engine::single::Refusal;
                let outcome = match outcome {
                    Err(Refusal::Busy(_)) => {
                        self.count("busy");
                        if let Some(life) = &mut self.lives[replica] {
                            life.callers.remove(&caller);
                        }
                        self.waiting.remove(&caller);
                        return;
                    }
                    Err(Refusal::Why(failure)) => Err(failure),
                    Ok(done) => Ok(done),
                };
                self.answered(replica, caller, outcome);
            }
        }
    }

    fn read(&mut self, replica: usize, id: Id, fails: bool) {
        let mut shown = self.disk;
        if let Some(life) = &mut self.lives[replica] {
            let nth = life.reads.len();
            match self.mutant {
                Some(Mutant::StaleRead) => shown = life.first.unwrap_or(shown),
                Some(Mutant::BlindRead) if nth == 1 => shown = None,
                Some(Mutant::OwnClaim) => {
                    let claim = life.first.flatten().map(|first| first.claim);
                    shown = shown.map(|disk| Made { claim: claim.unwrap_or(disk.claim), ..disk });
                }
                _ => {}
            }
            // The world judges by what was there.
            if !fails && let Some(last) = life.reads.last_mut() {
                last.1 = Some(self.disk);
                life.first = life.first.flatten().map(Some).or(Some(self.disk));
            }
        }
        let missing = || Error { fault: Fault::NotFound, effect: Effect::None };
        let read = if fails {
            Err(Error { fault: Fault::Unavailable, effect: Effect::None })
        } else {
            shown.map(Made::read).ok_or_else(missing)
        };
        self.after_ms(100, Then::Tell(replica, Box::new(Event::Read(id, read))));
    }
}

const GOOD: Made = Made { number: 0, claim: 0, gib: 4, team: 0, state: Doing::Good, held: false, by: None };

fn lost() -> Error {
    Error { fault: Fault::OutcomeUnknown, effect: Effect::Possible }
}

/// The lives of disks as wholes.
struct WholeDisks;

impl Simulation for WholeDisks {
    type Schedule = seeded::Incidents<Incident>;
    type Mutant = Option<Mutant>;

    const NAME: &'static str = "WHOLE_DISK";
    const QUICK: u64 = 300_000;
    const FULL: u64 = 10_000_000;
    const REACHED: &'static [&'static str] = &REACHED;
    const LEAST: u64 = 1_000;

    fn run(schedule: &Self::Schedule, mutant: Option<Mutant>, with_story: bool) -> Outcome {
        let mut world = World::new(schedule.seed, &schedule.all, mutant, with_story);
        let result = world.run();
        Outcome { result, counts: world.counts, story: world.story.unwrap_or_default() }
    }
}

#[test]
fn no_schedule_of_a_disk_s_life_breaks_a_law() {
    seeded::check_laws::<WholeDisks>();
}

#[test]
fn every_distortion_of_a_disk_s_life_is_noticed() {
    seeded::check_mutants::<WholeDisks>(&MUTANTS.map(|mutant| (Some(mutant), &[][..])), NOTICED);
}
