//! Random lives of the accounts of a resource group and of their shares: claims at two replicas that are killed and started
//! anew, people who change what is there, and an Azure that delays, refuses, fails, and loses answers. Laws judge what is
//! sent and what is answered.
//!
//! It imports no rule of the steps. The steps are wired together as in the program: a claim asks for an account, makes its
//! share there, and goes elsewhere as [`elsewhere`] says. `LAZULI_SHARES_SEEDS=N` runs so many schedules, and
//! `LAZULI_SHARES_SEED=S` one, with its story.

mod azure;
mod driver;
mod laws;
mod schedule;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
    sync::{Arc, OnceLock},
    time::Duration,
};

use lazuli_engine::{
    Id,
    attempts::Limits,
    single::{self, AzureFailure, Caller},
};
use lazuli_model::{
    AccountKind, ArmId, FileService, FileShare, Gib, ProvisioningState, StorageAccount, StorageSku,
    fault::{Effect, Fault},
    seeded::{self, Counts, Numbers, Outcome, Simulation},
};

use self::{
    azure::{Call, Row},
    driver::{Replica, Task, Told},
    schedule::Incident,
};
use super::{account, pool, share};
use crate::{
    adoption::Adoptions,
    deletion::VolumeRef,
    parameters::Defaults,
    share::{Access, Capability, Request, SharePlan, plan_create},
    volume_id::ShareVolumeId,
};

/// The schedules in which a distortion must be noticed.
const NOTICED: u64 = 50_000;
const LIMITS: Limits = Limits { tries: 4, longest_wait: Duration::from_secs(60) };
/// The last incident comes before.
const INCIDENTS: u64 = 240_000;
/// So long after the last incident everybody is answered.
const SETTLED: Duration = Duration::from_secs(20 * 60);
/// How many requests a claim, a deletion or an expansion costs at most, on the average of a schedule.
const MOST_REQUESTS: u64 = 60;
/// The longest line of a story.
const LINE: usize = 300;
/// A list of accounts may show what was so long ago.
const LAG: u64 = 5_000;

const REACHED: [&str; 43] = [
    "PUT meets another one",
    "account failed to be made",
    "account full",
    "account left unsent",
    "account made",
    "account's tags cleared",
    "busy",
    "caller gave up",
    "clean deletion",
    "creation left",
    "creation failed without an effect",
    "deleted under another replica's answer",
    "file service changed",
    "foreign account",
    "foreign account deleted",
    "foreign fill",
    "foreign share",
    "foreign snapshot",
    "foreign tags",
    "foreign volume",
    "given to a request that is not seen",
    "grown",
    "joined",
    "just begun",
    "kept for another volume",
    "kept for lack of proof",
    "left unsent",
    "list lags",
    "lost, and done",
    "lost, and done late",
    "lost, and not done",
    "made",
    "name taken",
    "permit refused",
    "process killed",
    "read failed",
    "read of an account that is gone",
    "refused",
    "share being deleted",
    "share in no account",
    "share met",
    "snapshots in the way",
    "waits for another's account",
];

#[derive(Debug, Clone, PartialEq)]
struct Error {
    fault: Fault,
    effect: Effect,
    code: &'static str,
}

impl AzureFailure for Error {
    fn fault(&self) -> &Fault {
        &self.fault
    }

    fn effect(&self) -> Effect {
        self.effect
    }

    fn code(&self) -> &str {
        self.code
    }
}

fn failed(fault: Fault) -> Error {
    let code = if fault == Fault::ScopeNotFound { "ParentResourceNotFound" } else { "" };
    Error { fault, effect: Effect::None, code }
}

fn lost() -> Error {
    Error { effect: Effect::Possible, ..failed(Fault::OutcomeUnknown) }
}

/// The classes of claims: pay-as-you-go; fifty shares an account; with SMB Multichannel; in a named account that is made;
/// of a named share in a named account; an account for each claim.
const CLASSES: [&[(&str, &str)]; 6] = [
    &[],
    &[("skuName", "StandardV2_LRS")],
    &[("skuName", "PremiumV2_LRS"), ("enableMultichannel", "true")],
    &[("storageAccount", "given"), ("createAccount", "true")],
    &[("storageAccount", "given"), ("shareName", "data")],
    &[("createAccount", "true")],
];
/// The class whose claims name one share.
const NAMED_SHARE: usize = 4;
/// How many claims of each class there are.
const CLAIMS: usize = 4;

type Account = account::Account<Error, FileService>;

/// What accounts of a class are: the first three classes differ, and the others are as the first.
fn kind_of(class: usize) -> usize {
    if class < 3 { class } else { 0 }
}

fn plans() -> &'static [Arc<SharePlan>] {
    static PLANS: OnceLock<Vec<Arc<SharePlan>>> = OnceLock::new();
    PLANS.get_or_init(|| {
        let defaults = Defaults {
            subscription: "s".into(),
            resource_group: "g".into(),
            location: "local".into(),
            driver_name: "file.csi.azure.com".into(),
            ..Defaults::default()
        };
        let plan = |claim: usize| {
            let pairs = CLASSES[claim / CLAIMS];
            let request = Request {
                name: format!("pvc-{claim}"),
                parameters: pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
                mutable_parameters: BTreeMap::new(),
                required_bytes: 40 << 30,
                limit_bytes: 0,
                capabilities: vec![Capability {
                    access: Access::Mount,
                    mode: lazuli_model::AccessMode::MultiNodeMultiWriter,
                }],
            };
            Arc::new(plan_create(&request, &defaults).expect("the classes are right"))
        };
        (0..CLASSES.len() * CLAIMS).map(plan).collect()
    })
}

fn account_id(name: &str) -> ArmId {
    ArmId::storage_account("s", "g", name).expect("it is a name")
}

/// A distortion that a law must notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutant {
    /// Matching: lists lack the first account.
    BlindList,
    /// Creation: a read of an account finds none.
    BlindRead,
    /// Naming: each replica gives names of its own.
    OwnNames,
    /// Counting: lists of shares are empty.
    BlindShares,
    /// The accounts are not told that one is full.
    NeverFull,
    /// The accounts are not told that one is gone.
    NeverGone,
    /// Matching: lists are empty.
    EmptyList,
    /// A caller that leaves tells no one.
    NeverLeaves,
    /// Every second answer is lost.
    NoAnswer,
    /// An answer comes twice.
    TwoAnswers,
    /// A failure says that nothing was done.
    NoEffect,
    /// A failed creation is answered as success.
    Optimist,
    /// A refused deletion is answered as success.
    DeletesNothing,
    /// Other PersistentVolumes are not seen.
    BlindVolumes,
    /// A share of a person bears the driver's mark.
    OurMark,
    /// The size of the PersistentVolume is forgotten.
    ForgetsSize,
    /// A rest never ends.
    Sleeps,
    /// Azure deletes a share with its snapshots.
    DeletesSnapshots,
    /// It is not remembered which requests were given a share.
    ForgetsAnswers,
    /// A process that has just begun takes it that nothing was answered before.
    NothingBefore,
    /// Nothing is left when no claim needs it.
    NeverLeft,
}

const MUTANTS: [Mutant; 21] = [
    Mutant::BlindList,
    Mutant::BlindRead,
    Mutant::OwnNames,
    Mutant::BlindShares,
    Mutant::NeverFull,
    Mutant::NeverGone,
    Mutant::EmptyList,
    Mutant::NeverLeaves,
    Mutant::NoAnswer,
    Mutant::TwoAnswers,
    Mutant::NoEffect,
    Mutant::Optimist,
    Mutant::DeletesNothing,
    Mutant::BlindVolumes,
    Mutant::OurMark,
    Mutant::ForgetsSize,
    Mutant::Sleeps,
    Mutant::DeletesSnapshots,
    Mutant::ForgetsAnswers,
    Mutant::NothingBefore,
    Mutant::NeverLeft,
];

/// A PersistentVolume.
#[derive(Debug, Clone)]
struct Volume {
    name: String,
    /// The claim that it was made for; `None` where a person made it.
    claim: Option<usize>,
    id: String,
    share: ArmId,
    gib: u32,
    /// Since when it says this size.
    sized_at: Duration,
    is_released: bool,
    /// Whether the watches show it.
    is_seen: bool,
    /// The replica that has answered its claim; `None` where a person made it.
    answered_by: Option<usize>,
}

/// What happens at a moment.
#[derive(Debug)]
enum Then {
    Incident(Incident),
    Leaves(Caller),
    /// An event reaches a replica that was started so often.
    Tell(usize, u64, Box<Told>),
    /// A request of it reaches Azure.
    Serve(usize, u64, Box<Call>),
    /// The creation of an account ends.
    Ends {
        number: u64,
        fails: bool,
        to: Option<(usize, u64, Id)>,
    },
    /// A replica knows the PersistentVolumes.
    Listed(usize, u64),
    /// The watches show a PersistentVolume.
    Seen(String),
}

struct World {
    numbers: Numbers,
    now: Duration,
    queue: BinaryHeap<Reverse<(Duration, u64)>>,
    thens: BTreeMap<u64, Then>,
    entries: u64,
    replicas: [Replica; 2],
    tasks: BTreeMap<Caller, Task>,
    next: u64,
    rows: Vec<Row>,
    /// What lists have shown.
    lists: Vec<(Duration, Arc<Vec<StorageAccount>>)>,
    /// What shares were there, with their sizes.
    log: Vec<(Duration, ArmId, Option<u32>)>,
    /// The accounts that may have been made for one claim alone.
    own: BTreeSet<ArmId>,
    /// A person has deleted an account: the first name of a class may be free again, and its accounts are made anew.
    has_dropped: bool,
    strangers: BTreeMap<String, bool>,
    volumes: Vec<Volume>,
    refs: Arc<Vec<VolumeRef>>,
    /// The claims whose deletion was asked for.
    deleted: BTreeSet<usize>,
    /// The claims that may get a second share, and why.
    excused: BTreeMap<usize, &'static str>,
    /// The PUTs of shares that may still come, by course.
    late: BTreeMap<u64, u32>,
    asks: u64,
    requests: u64,
    sleeping: u32,
    mutant: Option<Mutant>,
    counts: Counts,
    story: Option<Vec<String>>,
    broken: Option<String>,
}

impl World {
    fn new(seed: u64, incidents: &[(u64, Incident)], mutant: Option<Mutant>, tells: bool) -> Self {
        let mut world = Self {
            numbers: Numbers::new(seed ^ 0xF11E),
            now: Duration::ZERO,
            queue: BinaryHeap::new(),
            thens: BTreeMap::new(),
            entries: 0,
            replicas: [Replica::default(), Replica::default()],
            tasks: BTreeMap::new(),
            next: 1,
            rows: Vec::new(),
            lists: Vec::new(),
            log: Vec::new(),
            own: BTreeSet::new(),
            has_dropped: false,
            strangers: BTreeMap::new(),
            volumes: Vec::new(),
            refs: Arc::default(),
            deleted: BTreeSet::new(),
            excused: BTreeMap::new(),
            late: BTreeMap::new(),
            asks: 0,
            requests: 0,
            sleeping: 0,
            mutant,
            counts: Counts::new(),
            story: tells.then(Vec::new),
            broken: None,
        };
        world.changed();
        for (at, incident) in incidents {
            world.at(Duration::from_millis(*at), Then::Incident(*incident));
        }
        for replica in 0..2 {
            world.at(Duration::ZERO, Then::Listed(replica, 0));
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

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn tell_story(&mut self, line: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            let line: String = line().chars().take(LINE).collect();
            story.push(format!("{:>9} ms  {line}", self.now.as_millis()));
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
            if let Some(since) = self.tasks.values().map(|task| task.began).min()
                && self.now > end.max(since) + SETTLED
            {
                return Err(format!("a caller waits since {} ms", since.as_millis()));
            }
            if self.requests > MOST_REQUESTS * self.asks.max(1) {
                return Err(format!("{} requests for {} callers", self.requests, self.asks));
            }
        }
        match self.tasks.first_key_value() {
            Some((caller, _)) => Err(format!("nothing is left to happen, and caller {caller} waits")),
            None => Ok(()),
        }
    }

    fn happens(&mut self, then: Then) {
        match then {
            Then::Incident(incident) => self.incident(incident),
            Then::Leaves(caller) => self.leaves(caller),
            Then::Tell(replica, life, told) if self.replicas[replica].life == life => self.told(replica, *told),
            Then::Tell(..) => {}
            Then::Serve(replica, life, call) => self.serve(replica, life, *call),
            Then::Ends { number, fails, to } => self.ends(number, fails, to),
            Then::Seen(name) => {
                for volume in self.volumes.iter_mut().filter(|volume| volume.name == name) {
                    volume.is_seen = true;
                }
                self.volumes_changed();
            }
            Then::Listed(replica, life) => {
                if self.replicas[replica].life == life {
                    self.replicas[replica].has_volumes = true;
                }
            }
        }
    }
}

/// The lives of accounts and of their shares.
struct AccountsAndShares;

impl Simulation for AccountsAndShares {
    type Schedule = seeded::Incidents<Incident>;
    type Mutant = Option<Mutant>;

    const NAME: &'static str = "SHARES";
    const QUICK: u64 = 100_000;
    const FULL: u64 = 1_000_000;
    const REACHED: &'static [&'static str] = &REACHED;
    const LEAST: u64 = 300;

    fn run(schedule: &Self::Schedule, mutant: Option<Mutant>, with_story: bool) -> Outcome {
        let mut world = World::new(schedule.seed, &schedule.all, mutant, with_story);
        let result = world.run();
        Outcome { result, counts: world.counts, story: world.story.unwrap_or_default() }
    }

    fn least(schedules: u64) -> u64 {
        if schedules >= Self::FULL { Self::LEAST } else { schedules / 10_000 }
    }
}

#[test]
fn no_schedule_of_accounts_and_shares_breaks_a_law() {
    seeded::check_laws::<AccountsAndShares>();
}

#[test]
fn every_distortion_of_accounts_and_shares_is_noticed() {
    seeded::check_mutants::<AccountsAndShares>(&MUTANTS.map(|mutant| (Some(mutant), &[][..])), NOTICED);
}
