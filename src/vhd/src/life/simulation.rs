//! Random lives of one blob: creations, growths and deletions of two replicas that are killed between any two requests,
//! machines that attach the disk and write to it, other writers, snapshots, and an Azure that refuses and loses answers.
//! Laws judge what is sent and what is answered.
//!
//! `LAZULI_VHD_SEEDS=N` runs so many schedules, and `LAZULI_VHD_SEED=S` one, with its story.

mod azure;
mod laws;

use std::collections::{BTreeMap, BTreeSet};

use lazuli_model::{
    BlobUri, StorageAccount,
    fault::Fault,
    seeded::{self, Counts, Numbers, Outcome, Simulation},
};

use super::{
    Answer, Call, Create, CreateSpec, Delete, DeleteSpec, Deleted, Expand, ExpandSpec, Metadata, Next, Problem, Why,
};
use crate::{
    accounts::{self, Evidence},
    class::Place,
    footer::{LENGTH, Page, UniqueId, unique_id},
};

const MIB: u64 = 1 << 20;
const CLUSTER: &str = "s/g/kubernetes";
const BLOB: &str = "pvc-1.vhd";
/// No step sends more requests for one caller.
const MOST_CALLS: u32 = 120;
/// The schedules in which a mutant must be noticed.
const NOTICED: u64 = 20_000;

const REACHED: [&str; 27] = [
    "account deleted",
    "account kept",
    "answer lost, done",
    "answer lost, done late",
    "answer lost, not done",
    "attach refused for the footer",
    "attached",
    "attached: refused",
    "created",
    "deleted",
    "footer repaired",
    "found again",
    "grown",
    "growth finished for another process",
    "late, and refused",
    "leased by a tool",
    "machine wrote where the old footer was",
    "old footer cleared",
    "old footer not cleared, written over",
    "other version met",
    "process killed",
    "public container",
    "refused",
    "size differs",
    "snapshots in the way",
    "stranger's blob",
    "unsettled or deleted meanwhile",
];

/// A distortion that a law must notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutant {
    /// The footer's order: the old one is cleared before the new one is written.
    ClearsFirst,
    /// The footer's order: a blob's answer of success comes before its footer.
    NoFooter,
    /// A read of 512 bytes shows a good footer, whatever is there.
    BlindFooter,
    /// The place of the old footer is not noted.
    ForgetsPlace,
    /// The old footer is cleared whatever is there now.
    ClearsUnread,
    /// If-Match is not sent.
    NoIfMatch,
    /// `If-None-Match: *` is not sent.
    NoIfNoneMatch,
    /// The lease: no read shows it.
    BlindLease,
    /// The lease: it is broken by each write.
    BreaksLease,
    /// A lost answer is taken as success.
    Optimist,
    /// No list shows a snapshot, and a deletion takes them along.
    DeletesSnapshots,
    /// Strangers' blobs bear the volume's mark.
    OurMark,
    /// Lists of what is in an account are empty.
    EmptyAccount,
    /// Each account bears the tags of the disk's own.
    OurTags,
    /// A container that everybody may read is shown as private.
    BlindContainer,
}

const MUTANTS: [(Option<Mutant>, &[&str]); 16] = [
    (Some(Mutant::ClearsFirst), &["a disk without a footer"]),
    (Some(Mutant::NoFooter), &["created without a footer"]),
    (Some(Mutant::BlindFooter), &[]),
    (Some(Mutant::ForgetsPlace), &["an old footer is left"]),
    (Some(Mutant::ClearsUnread), &["data is written over"]),
    (Some(Mutant::NoIfMatch), &["data is written over"]),
    (Some(Mutant::NoIfMatch), &["metadata of others is lost"]),
    (Some(Mutant::NoIfNoneMatch), &[]),
    (Some(Mutant::BlindLease), &["a write to a leased blob"]),
    (Some(Mutant::BreaksLease), &["a leased blob is changed"]),
    (Some(Mutant::Optimist), &[]),
    (Some(Mutant::DeletesSnapshots), &["snapshots are deleted"]),
    (Some(Mutant::OurMark), &["a stranger's blob"]),
    (Some(Mutant::EmptyAccount), &["an account with other content"]),
    (Some(Mutant::OurTags), &["an account of somebody else"]),
    (Some(Mutant::BlindContainer), &["made where everybody may read it"]),
];

/// How a request fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Served,
    /// Served, and the answer is lost.
    LostDone,
    LostNotDone,
    /// It reaches Azure when its caller has long gone on.
    LostLate,
    Refused,
}

/// What a caller asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ask {
    /// A disk of so many MiB.
    Create(u64),
    /// The disk has at least so many MiB.
    Expand(u64),
    Delete,
}

#[derive(Debug, Clone, Copy)]
enum Incident {
    Begin(usize, Ask),
    Step(usize, Fate),
    Kill(usize),
    /// A request whose answer was lost reaches Azure.
    Arrives,
    Attach,
    Detach,
    /// A machine writes to the disk: a place of its own, or where an old footer is.
    MachineWrites(u64),
    /// A tool writes to the blob of a disk that is detached.
    ToolWrites(u64),
    /// Somebody changes the metadata.
    Touch,
    /// Somebody makes a blob of the name, with a footer or without one.
    Stranger(bool),
    /// Somebody deletes the blob.
    Drop,
    Snapshot,
    DropSnapshots,
    /// Somebody puts something else into the account, or takes it away.
    OtherContent(bool),
    /// Somebody opens the container, or closes it.
    Public(bool),
}

impl seeded::Incident for Incident {
    fn of(seed: u64) -> Vec<(u64, Self)> {
        let mut numbers = Numbers::new(seed ^ 0x7BD);
        let count = 20 + numbers.below(120);
        (0..count).map(|at| (at, Self::draw(&mut numbers, at))).collect()
    }
}

impl Incident {
    fn draw(numbers: &mut Numbers, at: u64) -> Self {
        let replica = usize::from(numbers.one_in(3));
        let mib = 1 + numbers.below(2);
        if at == 0 {
            return match numbers.below(12) {
                0 => Self::Stranger(numbers.one_in(2)),
                1 => Self::Public(true),
                _ => Self::Begin(replica, Ask::Create(mib)),
            };
        }
        match numbers.below(100) {
            0..=2 => Self::Begin(replica, Ask::Create(mib)),
            3..=9 => Self::Begin(replica, Ask::Expand(2 + numbers.below(6))),
            10..=11 => Self::Begin(replica, Ask::Delete),
            12..=67 => Self::Step(
                replica,
                match numbers.below(24) {
                    0 => Fate::LostDone,
                    1 => Fate::LostNotDone,
                    2 => Fate::Refused,
                    3 => Fate::LostLate,
                    _ => Fate::Served,
                },
            ),
            68..=69 => Self::Arrives,
            70..=75 => Self::Kill(replica),
            76..=79 => Self::Attach,
            80..=84 => Self::Detach,
            85..=89 => Self::MachineWrites(numbers.below(8)),
            90..=91 => Self::ToolWrites(numbers.below(8)),
            92 => Self::Touch,
            93 => Self::Stranger(numbers.one_in(2)),
            94 if numbers.one_in(3) => Self::Drop,
            95 => Self::Snapshot,
            96..=97 => Self::DropSnapshots,
            98 => Self::OtherContent(numbers.one_in(2)),
            99 => Self::Public(numbers.one_in(4)),
            _ => Self::Detach,
        }
    }
}

/// A step under way.
#[derive(Debug, Clone)]
enum Life {
    Create(Create),
    Expand(Box<Expand>),
    Delete(Delete),
}

/// What a request has come to.
#[derive(Debug, Clone)]
enum Came {
    Call(Call),
    Size(u64),
    Deleted(Deleted),
    Failed(Why),
}

impl Life {
    fn next(&mut self, answer: Option<Answer<()>>) -> Came {
        fn size(next: Next<u64, ()>) -> Came {
            match next {
                Next::Call(call) => Came::Call(call),
                Next::End(Ok(size)) => Came::Size(size),
                Next::End(Err(failure)) => Came::Failed(failure.why),
            }
        }
        match (self, answer) {
            (Self::Create(create), None) => size(create.begin()),
            (Self::Create(create), Some(answer)) => size(create.next(answer)),
            (Self::Expand(expand), None) => size(expand.begin()),
            (Self::Expand(expand), Some(answer)) => size(expand.next(answer)),
            (Self::Delete(delete), answer) => {
                let next = match answer {
                    None => delete.begin(),
                    Some(answer) => delete.next(answer),
                };
                match next {
                    Next::Call(call) => Came::Call(call),
                    Next::End(Ok(deleted)) => Came::Deleted(deleted),
                    Next::End(Err(failure)) => Came::Failed(failure.why),
                }
            }
        }
    }
}

/// A caller's request in a process.
#[derive(Debug, Clone)]
struct Task {
    ask: Ask,
    life: Life,
    /// The call that is sent next.
    call: Call,
    calls: u32,
    /// Whether the blob was leased when this process last read it.
    read_leased: bool,
    /// Whether there was no blob at some moment since it began.
    was_gone: bool,
    /// Whether the account was the disk's own, with nothing else in it, when its content was last listed.
    listed_empty: bool,
    /// Whether it has made the blob.
    has_made: bool,
    /// Whether it has resized the blob.
    has_resized: bool,
    /// Whether it has written a footer.
    has_written: bool,
}

/// A blob as it is.
#[derive(Debug, Clone)]
struct SimBlob {
    /// Tells one blob of the name from the next.
    number: u64,
    version: u64,
    length: u64,
    metadata: Metadata,
    pages: BTreeMap<u64, Page>,
    /// The places that machines and tools have written.
    data: BTreeSet<u64>,
    is_leased: bool,
    snapshots: u32,
    /// A stranger made it.
    is_foreign: bool,
    /// A creation was answered with success for it.
    is_complete: bool,
}

struct World {
    numbers: Numbers,
    uri: BlobUri,
    /// `None` where there is no account.
    account: Option<StorageAccount>,
    /// What is in the account beside the container of disks.
    others: u64,
    /// Whether everybody may read the container; `None` where there is none.
    container: Option<bool>,
    blob: Option<SimBlob>,
    tasks: [Option<Task>; 2],
    /// The changes of the blob that may still arrive, each with what its process knew.
    late: Vec<(Task, Call)>,
    made: u64,
    mutant: Option<Mutant>,
    counts: Counts,
    story: Option<Vec<String>>,
    broken: Option<String>,
}

impl World {
    fn new(seed: u64, mutant: Option<Mutant>, tells: bool) -> Self {
        let mut numbers = Numbers::new(seed);
        // The disk's own account, somebody else's with its name, or one of many disks.
        let which = numbers.below(4);
        let request =
            accounts::Request { blob: BLOB.into(), place: Place::Dedicated, sku: None, location: "local".into() };
        let evidence = Evidence {
            cluster: CLUSTER.into(),
            is_stack_hub: false,
            accounts: Vec::new(),
            placed: BTreeMap::new(),
            making: Vec::new(),
            taken: BTreeSet::new(),
        };
        let new = accounts::plan(&evidence, &[request]).makes.remove(0);
        let name = if which == 0 { "ds0a1b0".to_owned() } else { new.name };
        let mut account = StorageAccount::general_purpose(&name);
        account.tags = new.spec.tags;
        if which == 1 {
            account.tags.remove(accounts::DISK_TAG);
        }
        Self {
            numbers,
            uri: BlobUri::of(&name, "core.windows.net", "vhds", BLOB).expect("it is an address"),
            account: Some(account),
            others: 0,
            container: None,
            blob: None,
            tasks: [None, None],
            late: Vec::new(),
            made: 0,
            mutant,
            counts: Counts::new(),
            story: tells.then(Vec::new),
            broken: None,
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn tell(&mut self, line: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            story.push(line());
        }
    }

    fn breaks(&mut self, law: impl Into<String>) {
        let law = law.into();
        self.tell(|| format!("BREAKS: {law}"));
        self.broken.get_or_insert(law);
    }

    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn id(&self) -> UniqueId {
        unique_id(self.uri.folded())
    }

    fn begin(&mut self, replica: usize, ask: Ask) {
        if self.tasks[replica].is_some() {
            return;
        }
        let mut life = match ask {
            Ask::Create(mib) => Life::Create(Create::new(CreateSpec {
                mark: super::mark(CLUSTER, "pvc-1"),
                size: mib * MIB,
                accepted: mib * MIB..=4 * MIB,
                unique_id: self.id(),
                time_stamp: 7,
            })),
            Ask::Expand(mib) => {
                Life::Expand(Box::new(Expand::new(ExpandSpec { size: mib * MIB, unique_id: self.id(), time_stamp: 7 })))
            }
            Ask::Delete => Life::Delete(Delete::new(DeleteSpec { uri: self.uri.clone(), cluster: CLUSTER.into() })),
        };
        let Came::Call(call) = life.next(None) else {
            return self.breaks("a request ends before it has begun");
        };
        self.tell(|| format!("replica {replica} begins {ask:?}"));
        self.tasks[replica] = Some(Task {
            ask,
            life,
            call,
            calls: 0,
            read_leased: false,
            was_gone: false,
            listed_empty: false,
            has_made: false,
            has_resized: false,
            has_written: false,
        });
    }

    /// Sends the next call of a replica, and gives it the answer.
    fn step(&mut self, replica: usize, fate: Fate) {
        let Some(mut task) = self.tasks[replica].take() else { return };
        task.calls += 1;
        task.was_gone |= self.blob.is_none();
        let call = task.call.clone();
        let answer = self.send(&mut task, &call, fate);
        task.was_gone |= self.blob.is_none();
        self.tell(|| {
            let (call, answer) = (format!("{call:?}"), format!("{answer:?}"));
            let short = |text: &str| text.chars().take(150).collect::<String>();
            format!("replica {replica}: {} -> {} ({fate:?})", short(&call), short(&answer))
        });
        self.check_footer();
        let came = match (&task.ask, &task.call) {
            (Ask::Create(mib), Call::MakeBlob { .. }) if self.is(Mutant::NoFooter) && task.has_made => {
                Came::Size(mib * MIB)
            }
            _ => task.life.next(Some(answer)),
        };
        match came {
            Came::Call(call) => {
                task.call = call;
                if task.calls > MOST_CALLS {
                    self.breaks("a request does not end");
                }
                self.tasks[replica] = Some(task);
            }
            Came::Size(size) => self.came_to_size(&task, size),
            Came::Deleted(deleted) => self.came_to_deletion(&task, &deleted),
            Came::Failed(why) => self.failed(&task, &why),
        }
    }

    fn happens(&mut self, incident: Incident) {
        match incident {
            Incident::Begin(replica, ask) => self.begin(replica, ask),
            Incident::Step(replica, fate) => self.step(replica, fate),
            Incident::Kill(replica) => {
                if self.tasks[replica].take().is_some() {
                    self.count("process killed");
                    self.tell(|| format!("replica {replica} is killed"));
                }
            }
            Incident::Arrives => self.arrives(),
            other => self.others_do(other),
        }
        self.check_footer();
    }

    fn run(&mut self, incidents: &[(u64, Incident)]) -> Result<(), String> {
        for (_, incident) in incidents {
            self.happens(*incident);
        }
        // Nothing disturbs any more: everybody is served.
        self.happens(Incident::Detach);
        self.happens(Incident::DropSnapshots);
        self.happens(Incident::Public(false));
        for replica in 0..2 {
            self.finish(replica);
        }
        if self.broken.is_none() && self.blob.as_ref().is_some_and(|blob| !blob.is_foreign) {
            self.begin(0, Ask::Create(1));
            self.finish(0);
            self.begin(0, Ask::Expand(9));
            self.finish(0);
            if self.blob.as_ref().is_some_and(|blob| blob.length != 9 * MIB + LENGTH) {
                self.breaks("the last growth is not done: nothing disturbed it");
            }
            self.begin(0, Ask::Delete);
            self.finish(0);
            if self.blob.is_some() {
                self.breaks("the last deletion is not done: nothing disturbed it");
            }
        }
        self.broken.clone().map_or(Ok(()), Err)
    }

    fn finish(&mut self, replica: usize) {
        while self.tasks[replica].is_some() && self.broken.is_none() {
            self.step(replica, Fate::Served);
        }
    }
}

fn refused(problem: Problem) -> Answer<()> {
    Answer::Refused(problem, ())
}

/// The lives of a blob.
struct Lives;

impl Simulation for Lives {
    type Schedule = seeded::Incidents<Incident>;
    type Mutant = Option<Mutant>;

    const NAME: &'static str = "VHD";
    const QUICK: u64 = 20_000;
    const FULL: u64 = 400_000;
    const REACHED: &'static [&'static str] = &REACHED;
    const LEAST: u64 = 1_000;

    fn run(schedule: &Self::Schedule, mutant: Option<Mutant>, with_story: bool) -> Outcome {
        let mut world = World::new(schedule.seed, mutant, with_story);
        let result = world.run(&schedule.all);
        Outcome { result, counts: world.counts, story: world.story.unwrap_or_default() }
    }
}

#[test]
fn no_schedule_breaks_a_law() {
    seeded::check_laws::<Lives>();
}

#[test]
fn every_mutant_is_noticed() {
    seeded::check_mutants::<Lives>(&MUTANTS, NOTICED);
}

#[test]
fn a_seed_has_one_story() {
    seeded::check_replay::<Lives>();
}
