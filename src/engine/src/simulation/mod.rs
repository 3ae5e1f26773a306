//! Random lives of the steps, against a world that is written by another hand: seeds make schedules, a driver runs two
//! replicas through them, and an oracle judges the world after every write.
//!
//! `LAZULI_ENGINE_SEEDS=N` runs so many schedules, with `LAZULI_ENGINE_FROM=S` those from `S` on, and
//! `LAZULI_ENGINE_SEED=S` one, with its log.

mod api;
mod driver;
mod incidents;
mod mutant;
mod oracle;
mod requests;
mod schedule;
mod services;
mod toy;
mod world;

use std::ops::Range;

use driver::run;
use lazuli_model::seeded::{self, Counts};
use mutant::Mutant;
use schedule::Schedule;

/// The schedules of a quick run.
const QUICK: u64 = 5_000;
/// The schedules of a full run.
const FULL: u64 = 200_000;

/// What every long run must have met: the faults of Azure, the moves of the lease, and each transition of the steps.
const REACHED: [&str; 79] = [
    "azure: 409",
    "azure: 412",
    "azure: 429, reference not provisioned",
    "azure: in use",
    "azure: invalid",
    "azure: not found",
    "foreign operation",
    "foreign write",
    "forgotten: private link",
    "forgotten: public IP",
    "killed",
    "killed mid-write",
    "lease acquired",
    "lease lost",
    "lease moves mid-write",
    "list lacks it",
    "list lacks what exists",
    "node added",
    "node removed",
    "outcome: done",
    "outcome: refused",
    "outcome: waiting",
    "outcome: waits for acceptance",
    "outcome: waits for another operation",
    "outcome: waits for fresh reads",
    "partition",
    "patch refused",
    "patch: finalizer added",
    "patch: finalizer removed",
    "patch: status cleared",
    "patch: status set",
    "permit released",
    "plan accepted",
    "poll",
    "public IP deleted before its frontend",
    "public IP failed",
    "read failed",
    "read lagged",
    "read throttled",
    "reference suspected",
    "report: deleted",
    "report: ensured",
    "report: held",
    "report: invalid",
    "report: refused",
    "report: retry",
    "service changed",
    "service deleted",
    "service type changed",
    "service with a mistake",
    "tags listed",
    "told: frontend only",
    "told: load balancer",
    "told: load balancer clean",
    "told: load balancer left with the address",
    "told: load balancer quiet",
    "told: look",
    "told: member",
    "told: private link",
    "told: private link gone",
    "told: public IP gone",
    "told: public IP left to others",
    "told: public IP present",
    "told: security group",
    "told: security group clean",
    "withdrawn",
    "write: 403",
    "write: 409",
    "write: 412",
    "write: 429",
    "write: 503",
    "write: accepted",
    "write: answer lost",
    "write: denied by a policy",
    "write: fails half way",
    "write: fails late",
    "write: late",
    "write: removal of the leader before",
    "write: request lost",
];

/// Runs schedules. Returns the first that breaks a law, by seed, and the counts of what happened.
fn run_many(seeds: Range<u64>, mutant: Mutant) -> (Option<(u64, String)>, Counts) {
    seeded::run_many(seeds, |seed| {
        let (result, run) = run(&Schedule::new(seed), mutant, false);
        (result, run.counts)
    })
}

/// The shortest schedule that breaks a law, its incidents and its log, to be read.
fn explain(seed: u64, mutant: Mutant) -> String {
    let shortest = Schedule::new(seed).shrink(|schedule| run(schedule, mutant, false).0.is_err());
    let (result, run) = run(&shortest, mutant, true);
    let incidents = shortest.incidents.iter().map(|(at, incident)| format!("{:>10.3} {incident:?}", at.as_secs_f64()));
    format!(
        "seed {seed}: {result:?}\nincidents, shortened:\n{}\nlog:\n{}",
        incidents.collect::<Vec<_>>().join("\n"),
        run.log.unwrap_or_default().join("\n")
    )
}

#[test]
fn no_schedule_breaks_a_law() {
    if let Some(seed) = seeded::number("LAZULI_ENGINE_SEED") {
        let (result, _) = run(&Schedule::new(seed), Mutant::None, false);
        assert!(result.is_ok(), "{}", explain(seed, Mutant::None));
        return;
    }
    let count = seeded::how_many("LAZULI_ENGINE_SEEDS", QUICK, FULL);
    let first = seeded::number("LAZULI_ENGINE_FROM").unwrap_or(0);
    let (failure, counts) = run_many(first..count, Mutant::None);
    seeded::print(&counts, count >= FULL);
    if let Some((seed, _)) = failure {
        panic!("{}", explain(seed, Mutant::None));
    }
    seeded::must_have_reached(&REACHED, count.saturating_sub(first) * 1_000 / FULL, &counts);
}

#[test]
fn the_same_seed_makes_the_same_run() {
    let of = |seed| run(&Schedule::new(seed), Mutant::None, true).1.log;
    assert_eq!(of(7), of(7));
    assert_ne!(of(7), of(8));
}

#[test]
fn a_schedule_that_breaks_a_law_is_shortened_to_a_readable_list() {
    let mutant = Mutant::ReleasesEarly;
    let (seed, _) = run_many(0..QUICK, mutant).0.expect("a schedule notices it");
    let shortest = Schedule::new(seed).shrink(|schedule| run(schedule, mutant, false).0.is_err());
    assert!((1..6).contains(&shortest.incidents.len()), "{:?}", shortest.incidents);
    let explained = explain(seed, mutant);
    assert!(explained.contains("Apply(") && explained.contains("write LoadBalancer("), "{explained}");
}

#[test]
fn every_broken_law_is_noticed() {
    let mut unnoticed = Vec::new();
    for mutant in Mutant::ALL {
        match run_many(0..QUICK, mutant).0 {
            Some((seed, why)) => println!("{mutant:?}: seed {seed}: {why}"),
            None => unnoticed.push(mutant),
        }
    }
    assert!(unnoticed.is_empty(), "unnoticed: {unnoticed:?}");
}
