//! Random lives of one snapshot: external-snapshotter asks two replicas for it to be made and deleted, processes are
//! killed, other hands remake the disk and make snapshots of the same names, and Azure delays, refuses, fails, shows old
//! lists and loses answers. The requests and the courses of single snapshots run as they do in the controller. Laws judge
//! what is sent, what is answered, and what is left.
//!
//! It imports no rule of the planners. `LAZULI_SNAPSHOT_SEEDS=N` runs so many schedules, and `LAZULI_SNAPSHOT_SEED=S` one,
//! with its story.

mod azure;
mod laws;
mod world;

use std::{fmt, time::Duration};

use lazuli_engine::{attempts::Limits, single::AzureFailure};
use lazuli_model::{
    ArmId, AzureTime, Completion, CopyMethod, Disk, Gib, ProvisioningState, SkuName, Snapshot,
    disk_tags::{CREATED_BY, REQUEST, SOURCE_VOLUME},
    fault::{Effect, Fault},
    seeded::{self, Numbers, Outcome, Simulation},
};

use self::world::World;

/// The schedules in which a distortion must be noticed.
const NOTICED: u64 = 30_000;
const LIMITS: Limits = Limits { tries: 4, longest_wait: Duration::from_secs(60) };
/// The last incident comes before, in milliseconds.
const INCIDENTS: u64 = 600_000;
/// So long after the last incident the wish is fulfilled or given up.
const SETTLED: Duration = Duration::from_secs(3_600);
/// How much older than its request a list may be.
const LAG: u64 = 9_900;

const REACHED: [&str; 21] = [
    "already exists",
    "caller gave up",
    "clean-up sent",
    "copy sent",
    "deleted",
    "disk gone",
    "disk remade",
    "final failure",
    "killed",
    "list shared",
    "local deleted",
    "looked at by a list",
    "lost, and done",
    "lost, and not done",
    "not ready",
    "operation failed, snapshot left",
    "person's snapshot",
    "ready",
    "refused",
    "region refused",
    "source read singly",
];

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Error {
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

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.fault)
    }
}

/// What external-snapshotter wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Take,
    Delete,
}

/// What happens to the processes and to Azure from outside.
#[derive(Debug, Clone, Copy)]
enum Incident {
    Wish(Wish),
    Kill(usize),
    /// The disk is deleted, and made again.
    Remake,
    /// The disk is deleted.
    Delete,
    /// A person makes a snapshot of the disk under this name: the target's only where there is no local one.
    Person(Name),
}

/// The name of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    Target,
    Local,
}

impl Name {
    fn id(self) -> ArmId {
        let name = match self {
            Self::Target => "snapshot-1",
            Self::Local => "local_snapshot-1",
        };
        ArmId::snapshot("s", "g", name).expect("an id")
    }

    fn of(id: &ArmId) -> Self {
        if *id == Self::Target.id() { Self::Target } else { Self::Local }
    }
}

fn disk_id() -> ArmId {
    ArmId::disk("s", "g", "pvc-1").expect("an id")
}

impl seeded::Incident for Incident {
    fn of(seed: u64) -> Vec<(u64, Self)> {
        let mut numbers = Numbers::new(seed);
        let mut incidents = vec![(numbers.below(2_000), Self::Wish(Wish::Take))];
        for _ in 0..numbers.below(7) {
            let at = if numbers.one_in(3) { numbers.below(INCIDENTS) } else { numbers.below(30_000) };
            let incident = match numbers.below(10) {
                0..2 => Self::Wish(if numbers.one_in(3) { Wish::Take } else { Wish::Delete }),
                2..6 => Self::Kill(usize::from(numbers.one_in(2))),
                6 => Self::Remake,
                7 => Self::Delete,
                _ => Self::Person(if numbers.one_in(2) { Name::Target } else { Name::Local }),
            };
            incidents.push((at, incident));
        }
        incidents.sort_by_key(|(at, _)| *at);
        incidents
    }
}

/// A snapshot in Azure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Snap {
    /// Which snapshot of the name it is.
    number: u64,
    method: CopyMethod,
    /// Which disk or local snapshot it was made from.
    of: u64,
    is_ours: bool,
    state: Doing,
    /// When its content is complete.
    complete_at: Duration,
    /// Its source went before that.
    has_lost_source: bool,
    created: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    Busy,
    Failed,
    Good,
}

impl Snap {
    fn is_complete(&self, now: Duration) -> bool {
        self.state == Doing::Good && !self.has_lost_source && now >= self.complete_at
    }

    fn seen(&self, name: Name, now: Duration) -> Snapshot {
        let source = match self.method {
            CopyMethod::Copy => disk_id(),
            CopyMethod::CopyStart => Name::Local.id(),
        };
        let half = Completion::from_percent(50.0);
        let tag = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let ours =
            [tag(CREATED_BY.0, CREATED_BY.1), tag(REQUEST, "snapshot-1"), tag(SOURCE_VOLUME, disk_id().as_str())];
        Snapshot {
            location: if self.method == CopyMethod::Copy { "here" } else { "there" }.into(),
            unique_id: Some(format!("s-{}", self.number)),
            method: Some(self.method),
            source_unique_id: Some(format!("u-{}", self.of)),
            created: AzureTime::from_unix_seconds(i64::try_from(self.created.as_secs()).expect("it is small")),
            provisioning_state: match self.state {
                Doing::Busy => ProvisioningState::InProgress,
                Doing::Failed => ProvisioningState::Failed,
                Doing::Good => ProvisioningState::Succeeded,
            },
            access: None,
            completion: Some(if now >= self.complete_at { Completion::COMPLETE } else { half }),
            copy_error: self.has_lost_source.then(|| "CopySourceNotFound".to_owned()),
            family: Some("f".into()),
            tags: if self.is_ours { ours.into() } else { [tag("mine", "yes")].into() },
            ..Snapshot::complete(name.id(), &source)
        }
    }
}

fn disk(number: u64) -> Disk {
    Disk {
        id: disk_id(),
        location: "here".into(),
        size: Gib::new(1),
        sku: Some(SkuName::PremiumLrs),
        unique_id: Some(format!("u-{number}")),
        ..Disk::unattached("pvc-1")
    }
}

/// A distortion that a law must notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutant {
    /// A single read of the disk shows an earlier one.
    StaleSource,
    /// Reads show each local snapshot as complete.
    LocalComplete,
    /// Reads show each target as complete.
    TargetComplete,
    /// Reads show each snapshot as ours.
    OwnsAll,
    /// A failure of the work says that nothing was done.
    NoEffect,
    /// Every third answer is lost, and its caller waits.
    NoAnswer,
    /// The courses' reads find nothing.
    BlindRead,
}

const MUTANTS: [Mutant; 7] = [
    Mutant::StaleSource,
    Mutant::LocalComplete,
    Mutant::TargetComplete,
    Mutant::OwnsAll,
    Mutant::NoEffect,
    Mutant::NoAnswer,
    Mutant::BlindRead,
];

/// The lives of snapshots.
struct Snapshots;

impl Simulation for Snapshots {
    type Schedule = seeded::Incidents<Incident>;
    type Mutant = Option<Mutant>;

    const NAME: &'static str = "SNAPSHOT";
    const QUICK: u64 = 40_000;
    const FULL: u64 = 3_000_000;
    const REACHED: &'static [&'static str] = &REACHED;
    const LEAST: u64 = 100;

    fn run(schedule: &Self::Schedule, mutant: Option<Mutant>, with_story: bool) -> Outcome {
        let mut world = World::new(schedule.seed, &schedule.all, mutant, with_story);
        let result = world.run();
        Outcome { result, counts: world.counts, story: world.story.unwrap_or_default() }
    }
}

#[test]
fn no_schedule_of_a_snapshot_s_life_breaks_a_law() {
    seeded::check_laws::<Snapshots>();
}

#[test]
fn every_distortion_of_a_snapshot_s_life_is_noticed() {
    seeded::check_mutants::<Snapshots>(&MUTANTS.map(|mutant| (Some(mutant), &[][..])), NOTICED);
}
