//! Random lives of Nodes, their machines and a route table: seeds make schedules, a driver runs two replicas through them,
//! and an oracle judges the world after every write and at rest. As in `engine::simulation`, which does it for Services, the
//! world knows neither the planner nor the interpreter of its edits.
//!
//! `LAZULI_NODES_SEEDS=N` runs so many schedules, and `LAZULI_NODES_SEED=S` one, with its log.

mod driver;
mod mutant;
mod oracle;
mod schedule;
mod world;

use std::{collections::BTreeMap, env, ops::Range, thread};

use driver::run;
use mutant::Mutant;
use schedule::Schedule;

/// The schedules of a quick run.
const QUICK: u64 = 5_000;
/// The schedules of a full run.
const FULL: u64 = 50_000;

/// What every long run must have met.
const REACHED: [&str; 69] = [
    "azure: 409",
    "azure: 412",
    "blind",
    "check: gone",
    "check: stopped",
    "check: unproved",
    "foreign hop",
    "foreign operation",
    "foreign property",
    "foreign removal",
    "foreign route",
    "granted",
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
    "outcome: done",
    "outcome: refused",
    "outcome: waiting",
    "patch refused",
    "patch: answer lost",
    "patch: initialised",
    "patch: not routed",
    "patch: routed",
    "patch: status",
    "patch: taints",
    "read failed",
    "read lagged",
    "read throttled",
    "report: gone",
    "report: initialised",
    "report: no machine",
    "report: route refused",
    "report: stopped",
    "report: unproved",
    "report: unreadable",
    "route without a Node",
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

/// Runs schedules on all processors. Returns the first that breaks a law, by seed, and the counts of what happened.
fn run_many(seeds: Range<u64>, mutant: Mutant) -> (Option<(u64, String)>, BTreeMap<&'static str, u64>) {
    let workers = thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let of_worker = |worker: u64| {
        let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
        for seed in seeds.clone().filter(|seed| seed % workers == worker) {
            let (result, run) = run(&Schedule::new(seed), mutant, false);
            for (what, count) in run.counts {
                *counts.entry(what).or_default() += count;
            }
            if let Err(why) = result {
                return (Some((seed, why)), counts);
            }
        }
        (None, counts)
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|worker| scope.spawn(move || of_worker(worker))).collect();
        let mut first = None;
        let mut all: BTreeMap<&'static str, u64> = BTreeMap::new();
        for thread in threads {
            let (failure, counts) = thread.join().expect("a run does not panic");
            first = first.into_iter().chain(failure).min();
            for (what, count) in counts {
                *all.entry(what).or_default() += count;
            }
        }
        (first, all)
    })
}

/// The shortest schedule that breaks a law, its incidents and its log, to be read.
fn explain(seed: u64, mutant: Mutant) -> String {
    let shortest = Schedule::new(seed).shrink(|schedule| run(schedule, mutant, false).0.is_err());
    let (result, run) = run(&shortest, mutant, true);
    format!("seed {seed}: {result:?}\nlog:\n{}", run.log.unwrap_or_default().join("\n"))
}

fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok()?.parse().ok()
}

#[test]
fn no_schedule_of_nodes_and_routes_breaks_a_law() {
    if let Some(seed) = number("LAZULI_NODES_SEED") {
        let (result, _) = run(&Schedule::new(seed), Mutant::None, false);
        assert!(result.is_ok(), "{}", explain(seed, Mutant::None));
        return;
    }
    let full = env::var_os("LAZULI_TEST_FULL").map_or(QUICK, |_| FULL);
    let count = number("LAZULI_NODES_SEEDS").unwrap_or(full);
    let (failure, counts) = run_many(0..count, Mutant::None);
    let rows: String = counts.iter().map(|(what, count)| format!("{count:>10}  {what}\n")).collect();
    print!("{rows}");
    if let Some((seed, _)) = failure {
        panic!("{}", explain(seed, Mutant::None));
    }
    let least = count * 1_000 / FULL;
    let reached = |what: &str| counts.get(what).copied().unwrap_or_default();
    let rare: Vec<_> = REACHED.iter().map(|what| (what, reached(what))).filter(|(_, count)| *count < least).collect();
    assert!(rare.is_empty(), "reached less than {least} times: {rare:?}");
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
