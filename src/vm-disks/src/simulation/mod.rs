//! Random lives of VMs' data disks, against an Azure that is written by another hand: seeds make schedules, a driver runs
//! two replicas through them, and laws judge what the steps want done and what they answer.
//!
//! It imports no planner. What it knows of the code under test are the events, the actions and the memory of the step.
//!
//! `LAZULI_DISK_SEEDS=N` runs so many schedules, with `LAZULI_DISK_FROM=S` those from `S` on, and `LAZULI_DISK_SEED=S` one,
//! with its story.
//!
//! | module | holds |
//! |---|---|
//! | [`schedule`] | what a seed decides: the size of the world, Azure's habits, the incidents |
//! | [`azure`] | VMs, disks, operations |
//! | [`cluster`] | VolumeAttachments, Nodes, external-attacher, leadership |
//! | [`driver`], [`carry`] | the processes, and what travels between them and Azure |
//! | [`incidents`] | what the incidents do |
//! | [`laws`], [`mutant`] | the laws, and distortions that they must notice |

mod azure;
mod carry;
mod cluster;
mod driver;
mod incidents;
mod laws;
mod mutant;
mod schedule;
mod words;

use driver::run;
use lazuli_model::seeded::{self, Outcome, Schedule as _, Simulation};
use mutant::Mutant;
use schedule::Schedule;

/// The schedules in which a distortion must be noticed.
const NOTICED: u64 = 4_000;

/// What every long run must have met: the faults, the worlds, the answers, and the stages of the step.
const REACHED: [&str; 124] = [
    "a VM was deleted",
    "a VM was switched",
    "a disk was deleted",
    "a sidecar leads",
    "an answer was not recorded",
    "answer: VM unreadable",
    "answer: another write",
    "answer: attached",
    "answer: attached elsewhere",
    "answer: attachments unknown",
    "answer: being detached",
    "answer: detached",
    "answer: disk unreadable",
    "answer: lacks a right",
    "answer: may be attaching",
    "answer: no permit",
    "answer: not dangling",
    "answer: opposed",
    "answer: other zone",
    "answer: stale disk not removed",
    "answer: the write failed",
    "answer: too many disks",
    "answer: unreadable after a write",
    "azure: 403",
    "azure: 403 of a disk",
    "azure: 403 of something linked",
    "azure: 404",
    "azure: 404 of something else",
    "azure: 405",
    "azure: 409",
    "azure: 412",
    "azure: 429",
    "azure: 429 with Retry-After",
    "azure: 503",
    "azure: accepted",
    "azure: accepted, answer lost",
    "azure: attached elsewhere",
    "azure: being detached",
    "azure: invalid",
    "azure: late write accepted",
    "azure: locked",
    "azure: unclear",
    "bad disk found",
    "caller gave up",
    "caller: asks again",
    "caller: detach of an unused disk",
    "caller: extra attach",
    "caller: extra detach",
    "caller: gives up",
    "dropped",
    "fault: bad disk",
    "fault: no permit",
    "fault: no permit at once",
    "fault: read",
    "fault: stuck host",
    "fault: write",
    "foreign: accepted",
    "foreign: attach",
    "foreign: attach that fails",
    "foreign: deletes a disk",
    "foreign: detach",
    "foreign: operation",
    "foreign: other change",
    "leader moves",
    "leader moves while something is under way",
    "leader moves, late tail",
    "operation: end reported early",
    "operation: failed",
    "operation: succeeded",
    "permit: failed",
    "permit: given back",
    "permit: granted",
    "permit: granted when it was dropped",
    "permit: not at once",
    "process restarts",
    "read: 403",
    "read: 404 of something else",
    "read: 429",
    "read: 503",
    "read: VM",
    "read: VM failed",
    "read: VM in progress",
    "read: disk",
    "read: instance view",
    "read: lags",
    "read: list of VMs",
    "report",
    "stage: burst",
    "stage: burst, with a permit",
    "stage: conditions",
    "stage: failed detaches",
    "stage: first read",
    "stage: idle",
    "stage: instance view",
    "stage: judging a failed removal",
    "stage: judging a refused disk",
    "stage: judging other disks",
    "stage: judging what was applied again",
    "stage: others than those under bisection",
    "stage: permit",
    "stage: planning",
    "stage: removing stale disks",
    "stage: verifying",
    "stage: waiting for a permit",
    "stage: waiting for a time",
    "stage: waiting for another write",
    "stage: waiting for attachments",
    "stage: writing",
    "the detach of an unused disk was asked for",
    "user: attach",
    "user: deletes a Node",
    "user: deletes a VM",
    "user: detach",
    "user: power",
    "world: one VM",
    "world: one VM, 11 to 20 disks",
    "world: three VMs",
    "world: two VMs",
    "write: action",
    "write: forced detach",
    "write: list",
    "write: list by omission",
    "write: model applied again",
    "write: request lost",
];

/// The step of the data disks of a VM.
struct VmDisks;

impl Simulation for VmDisks {
    type Schedule = Schedule;
    type Mutant = Mutant;

    const NAME: &'static str = "DISK";
    const QUICK: u64 = 50_000;
    const FULL: u64 = 1_000_000;
    const REACHED: &'static [&'static str] = &REACHED;
    const LEAST: u64 = 1_000;

    fn run(schedule: &Schedule, mutant: Mutant, with_story: bool) -> Outcome {
        run(schedule, mutant, with_story)
    }

    /// In a shorter run at least half as often for each schedule as in a full one.
    fn least(schedules: u64) -> u64 {
        if schedules >= Self::FULL { Self::LEAST } else { schedules * Self::LEAST / 2 / Self::FULL }
    }
}

#[test]
fn no_schedule_breaks_a_law() {
    seeded::check_laws::<VmDisks>();
}

#[test]
fn the_world_knows_no_planner() {
    let files = [
        include_str!("azure.rs"),
        include_str!("carry.rs"),
        include_str!("cluster.rs"),
        include_str!("driver.rs"),
        include_str!("incidents.rs"),
        include_str!("laws.rs"),
        include_str!("schedule.rs"),
    ];
    let planners =
        ["attach::plan", "attach::confirm", "attach::first_read", "lun::allocate", "lun::next_free", "::apply"];
    for planner in planners {
        assert!(!files.iter().any(|file| file.contains(planner)), "the world uses {planner}");
    }
}

#[test]
fn the_same_seed_makes_the_same_story() {
    seeded::check_replay::<VmDisks>();
}

#[test]
fn a_schedule_that_breaks_a_law_is_shortened_to_a_readable_list() {
    let mutant = Mutant::ForgetsReservations;
    let (seed, _) = seeded::noticed::<VmDisks>(0..NOTICED, mutant, &[]).0.expect("a schedule notices it");
    let shortest = Schedule::new(seed).shortened(|schedule| run(schedule, mutant, false).result.is_err());
    assert!((1..12).contains(&shortest.incidents.len()), "{:?}", shortest.incidents);
    let explained = seeded::explain::<VmDisks>(seed, mutant);
    assert!(explained.contains("Attach(") && explained.contains("which csi-"), "{explained}");
}

#[test]
fn every_distortion_is_noticed_by_the_law_that_it_breaks() {
    seeded::check_mutants::<VmDisks>(&Mutant::ALL, NOTICED);
}
