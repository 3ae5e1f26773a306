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

use driver::run;
use lazuli_model::seeded::{self, Outcome, Schedule as _, Simulation};
use mutant::Mutant;
use schedule::Schedule;

/// What every long run must have met: the faults of Azure, the moves of the lease, and each transition of the steps.
const REACHED: [&str; 82] = [
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
    "report: deleting",
    "report: ensured",
    "report: ensuring",
    "report: held",
    "report: invalid",
    "report: refused",
    "report: retry",
    "report: unchanged",
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

/// The steps of load balancers, security groups, public IPs and Services.
struct Steps;

impl Simulation for Steps {
    type Schedule = Schedule;
    type Mutant = Mutant;

    const NAME: &'static str = "ENGINE";
    const QUICK: u64 = 5_000;
    const FULL: u64 = 200_000;
    const REACHED: &'static [&'static str] = &REACHED;
    const LEAST: u64 = 1_000;

    fn run(schedule: &Schedule, mutant: Mutant, with_story: bool) -> Outcome {
        run(schedule, mutant, with_story)
    }
}

#[test]
fn no_schedule_breaks_a_law() {
    seeded::check_laws::<Steps>();
}

#[test]
fn the_same_seed_makes_the_same_run() {
    seeded::check_replay::<Steps>();
}

#[test]
fn a_schedule_that_breaks_a_law_is_shortened_to_a_readable_list() {
    let mutant = Mutant::ReleasesEarly;
    let (seed, _) = seeded::noticed::<Steps>(0..Steps::QUICK, mutant, &[]).0.expect("a schedule notices it");
    let shortest = Schedule::new(seed).shortened(|schedule| run(schedule, mutant, false).result.is_err());
    assert!((1..6).contains(&shortest.incidents.len()), "{:?}", shortest.incidents);
    let explained = seeded::explain::<Steps>(seed, mutant);
    assert!(explained.contains("Apply(") && explained.contains("write LoadBalancer("), "{explained}");
}

#[test]
fn every_broken_law_is_noticed() {
    seeded::check_mutants::<Steps>(&Mutant::ALL.map(|mutant| (mutant, &[][..])), Steps::QUICK);
}
