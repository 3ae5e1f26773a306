//! Random lives of Nodes, their machines and a route table: seeds make schedules, a driver runs two replicas through them,
//! and an oracle judges the world after every write and at rest. As in `engine::simulation`, which does it for Services, the
//! world knows neither the planner nor the interpreter of its edits.
//!
//! `LAZULI_NODES_SEEDS=N` runs so many schedules, and `LAZULI_NODES_SEED=S` one, with its log.

mod driver;
mod mutant;
mod oracle;
mod pace;
mod schedule;
mod world;

use std::ops::Range;

use driver::run;
use lazuli_model::seeded::{self, Counts};
use mutant::Mutant;
use schedule::Schedule;

/// The schedules of a quick run.
const QUICK: u64 = 5_000;
/// The schedules of a full run.
const FULL: u64 = 50_000;

/// What every long run must have met.
const REACHED: [&str; 82] = [
    "azure: 409",
    "azure: 412",
    "blind",
    "check: gone",
    "check: no group",
    "check: stopped",
    "check: unproved",
    "fleet gone",
    "fleet gone with its group",
    "fleet gone with its set",
    "fleet joins",
    "fleet returns",
    "fleet stops",
    "foreign hop",
    "foreign operation",
    "foreign property",
    "foreign removal",
    "foreign route",
    "granted",
    "granted slowly",
    "heartbeat",
    "killed",
    "killed mid-write",
    "lease acquired",
    "lease lost",
    "lease moves",
    "lease moves mid-write",
    "machine gone",
    "machine made again",
    "machine missing",
    "machine read",
    "machine read failed",
    "machine starts",
    "machine stops",
    "node deleted by proof",
    "node joins",
    "node joins, published",
    "node leaves",
    "node leaves mid-write",
    "node returns",
    "node returns, other range",
    "other addresses",
    "other addresses, booted",
    "outcome: done",
    "outcome: refused",
    "outcome: waiting",
    "patch refused",
    "patch: answer lost",
    "patch: initialised",
    "patch: not routed",
    "patch: other addresses",
    "patch: routed",
    "patch: status",
    "patch: taints",
    "read failed",
    "read lagged",
    "read throttled",
    "report: gone",
    "report: initialised",
    "report: no machine",
    "report: other addresses",
    "report: route refused",
    "report: stopped",
    "report: unproved",
    "report: unreadable",
    "route without a Node",
    "slowed down",
    "subnet of another table",
    "table tainted by its subnet",
    "want: gone",
    "want: present",
    "write: 403",
    "write: 409",
    "write: 412",
    "write: 429",
    "write: 503",
    "write: answer lost",
    "write: fails late",
    "write: late",
    "write: request lost",
    "write: subnet",
    "write: table",
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
    format!("seed {seed}: {result:?}\nlog:\n{}", run.log.unwrap_or_default().join("\n"))
}

#[test]
fn no_schedule_of_nodes_and_routes_breaks_a_law() {
    if let Some(seed) = seeded::number("LAZULI_NODES_SEED") {
        let (result, _) = run(&Schedule::new(seed), Mutant::None, false);
        assert!(result.is_ok(), "{}", explain(seed, Mutant::None));
        return;
    }
    let count = seeded::how_many("LAZULI_NODES_SEEDS", QUICK, FULL);
    let (failure, counts) = run_many(0..count, Mutant::None);
    seeded::print(&counts, count >= FULL);
    if let Some((seed, _)) = failure {
        panic!("{}", explain(seed, Mutant::None));
    }
    seeded::must_have_reached(&REACHED, count * 1_000 / FULL, &counts);
}

#[test]
fn the_same_seed_makes_the_same_life_of_nodes() {
    let of = |seed| run(&Schedule::new(seed), Mutant::None, true).1.log;
    assert_eq!(of(7), of(7));
    assert_ne!(of(7), of(8));
}

#[test]
fn every_broken_law_of_nodes_and_routes_is_noticed() {
    let mut unnoticed = Vec::new();
    for mutant in Mutant::ALL {
        match run_many(0..QUICK, mutant).0 {
            Some((seed, why)) => println!("{mutant:?}: seed {seed}: {why}"),
            None => unnoticed.push(mutant),
        }
    }
    assert!(unnoticed.is_empty(), "unnoticed: {unnoticed:?}");
}
