//! Random lives of the steps, against a world that is written by another hand: seeds make schedules, a driver runs two
//! replicas through them, and an oracle judges the world after every write.
//!
//! `LAZULI_ENGINE_SEEDS=N` runs so many schedules, and `LAZULI_ENGINE_SEED=S` one, with its log.

mod api;
mod driver;
mod incidents;
mod mutant;
mod oracle;
mod requests;
mod schedule;
mod toy;
mod world;

use std::{collections::BTreeMap, env, io::Write as _, thread};

use driver::run;
use mutant::Mutant;
use schedule::Schedule;

/// The schedules of a quick run.
const QUICK: u64 = 5_000;
/// The schedules of a full run.
const FULL: u64 = 200_000;

/// What every long run must have met: the faults of Azure, the moves of the lease, and each transition of the steps.
const REACHED: [&str; 75] = [
    "azure: 409",
    "azure: 412",
    "azure: 429, reference not provisioned",
    "azure: in use",
    "azure: invalid",
    "azure: not found",
    "foreign operation",
    "foreign write",
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
    "write: fails half way",
    "write: fails late",
    "write: late",
    "write: removal of the leader before",
    "write: request lost",
];

/// Runs schedules on all processors. Returns the first that breaks a law, by seed, and the counts of what happened.
fn run_many(seeds: std::ops::Range<u64>, mutant: Mutant) -> (Option<(u64, String)>, BTreeMap<&'static str, u64>) {
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
    let incidents = shortest.incidents.iter().map(|(at, incident)| format!("{:>10.3} {incident:?}", at.as_secs_f64()));
    format!(
        "seed {seed}: {result:?}\nincidents, shortened:\n{}\nlog:\n{}",
        incidents.collect::<Vec<_>>().join("\n"),
        run.log.unwrap_or_default().join("\n")
    )
}

fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok()?.parse().ok()
}

#[test]
fn no_schedule_breaks_a_law() {
    if let Some(seed) = number("LAZULI_ENGINE_SEED") {
        let (result, _) = run(&Schedule::new(seed), Mutant::None, false);
        assert!(result.is_ok(), "{}", explain(seed, Mutant::None));
        return;
    }
    let full = env::var_os("LAZULI_TEST_FULL").map_or(QUICK, |_| FULL);
    let count = number("LAZULI_ENGINE_SEEDS").unwrap_or(full);
    let (failure, counts) = run_many(0..count, Mutant::None);
    let rows: String = counts.iter().map(|(what, count)| format!("{count:>10}  {what}\n")).collect();
    if count >= FULL {
        // Not by `println!`: what a test prints is shown only when it fails.
        std::io::stdout().write_all(rows.as_bytes()).expect("standard output is open");
    } else {
        print!("{rows}");
    }
    if let Some((seed, _)) = failure {
        panic!("{}", explain(seed, Mutant::None));
    }
    let least = count * 1_000 / FULL;
    let reached = |what: &str| counts.get(what).copied().unwrap_or_default();
    let rare: Vec<_> = REACHED.iter().map(|what| (what, reached(what))).filter(|(_, count)| *count < least).collect();
    assert!(rare.is_empty(), "reached less than {least} times: {rare:?}");
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
