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

use std::ops::Range;

use driver::run;
use lazuli_model::seeded::{self, Counts};
use mutant::Mutant;
use schedule::Schedule;

/// The schedules of a quick run.
const QUICK: u64 = 50_000;
/// The schedules of a full run.
const FULL: u64 = 1_000_000;
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

/// Runs schedules. Returns the first that breaks a law, by seed, and the counts of what happened.
fn run_many(seeds: Range<u64>, mutant: Mutant) -> (Option<(u64, String)>, Counts) {
    seeded::run_many(seeds, |seed| {
        let (result, run) = run(&Schedule::new(seed), mutant, false);
        (result, run.counts)
    })
}

/// The shortest schedule that breaks a law, its incidents and its story, to be read.
fn explain(seed: u64, mutant: Mutant) -> String {
    let schedule = Schedule::new(seed);
    let law = |result: &Result<(), String>| result.as_ref().err().map(|why| why.split(':').next().map(str::to_owned));
    let broken = law(&run(&schedule, mutant, false).0);
    let shortest = match broken {
        Some(_) => schedule.shrink(|schedule| law(&run(schedule, mutant, false).0) == broken),
        None => schedule,
    };
    let (result, run) = run(&shortest, mutant, true);
    let incidents = shortest.incidents.iter().map(|(at, incident)| format!("{:>10.3} {incident:?}", at.as_secs_f64()));
    format!(
        "seed {seed}: {result:?}\n{:?}, {} VMs, disks shared by {:?}, {} per VM\nincidents, shortened:\n{}\nstory:\n{}",
        shortest.habits,
        shortest.vms,
        shortest.shares,
        shortest.limit,
        incidents.collect::<Vec<_>>().join("\n"),
        run.log.unwrap_or_default().join("\n")
    )
}

#[test]
fn no_schedule_breaks_a_law() {
    if let Some(seed) = seeded::number("LAZULI_DISK_SEED") {
        let story = explain(seed, Mutant::None);
        println!("{story}");
        let (result, _) = run(&Schedule::new(seed), Mutant::None, false);
        assert!(result.is_ok(), "{result:?}");
        return;
    }
    let count = seeded::how_many("LAZULI_DISK_SEEDS", QUICK, FULL);
    let first = seeded::number("LAZULI_DISK_FROM").unwrap_or(0);
    let (failure, counts) = run_many(first..count, Mutant::None);
    seeded::print(&counts, count >= FULL);
    if let Some((seed, _)) = failure {
        panic!("{}", explain(seed, Mutant::None));
    }
    // A thousand times in a full run, and at least half as often for each schedule in a shorter one.
    let schedules = count.saturating_sub(first);
    let least = if schedules >= FULL { 1_000 } else { schedules * 500 / FULL };
    seeded::must_have_reached(&REACHED, least, &counts);
    println!("{schedules} schedules");
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
    let of = |seed| run(&Schedule::new(seed), Mutant::None, true).1.log;
    assert_eq!(of(7), of(7));
    assert_ne!(of(7), of(8));
}

#[test]
fn a_schedule_that_breaks_a_law_is_shortened_to_a_readable_list() {
    let mutant = Mutant::ForgetsReservations;
    let (seed, _) = run_many(0..NOTICED, mutant).0.expect("a schedule notices it");
    let shortest = Schedule::new(seed).shrink(|schedule| run(schedule, mutant, false).0.is_err());
    assert!((1..12).contains(&shortest.incidents.len()), "{:?}", shortest.incidents);
    let explained = explain(seed, mutant);
    assert!(explained.contains("Attach(") && explained.contains("which csi-"), "{explained}");
}

#[test]
fn every_distortion_is_noticed_by_the_law_that_it_breaks() {
    let mut unnoticed = Vec::new();
    for (mutant, laws) in Mutant::ALL {
        // What else it breaks does not count.
        let (noticed, _) = seeded::run_many(0..NOTICED, |seed| {
            let (result, run) = run(&Schedule::new(seed), mutant, false);
            (
                result.or_else(|why| if laws.iter().any(|law| why.starts_with(law)) { Err(why) } else { Ok(()) }),
                run.counts,
            )
        });
        match noticed {
            Some((seed, why)) => println!("{mutant:?}: seed {seed}: {why}"),
            None => unnoticed.push(mutant),
        }
    }
    assert!(unnoticed.is_empty(), "unnoticed: {unnoticed:?}");
}
