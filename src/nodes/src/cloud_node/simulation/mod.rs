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

use driver::run;
use lazuli_model::seeded::{self, Outcome, Simulation};
use mutant::Mutant;
use schedule::Schedule;

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

/// The steps of Nodes and of the route table.
struct NodesAndRoutes;

impl Simulation for NodesAndRoutes {
    type Schedule = Schedule;
    type Mutant = Mutant;

    const NAME: &'static str = "NODES";
    const QUICK: u64 = 5_000;
    const FULL: u64 = 50_000;
    const REACHED: &'static [&'static str] = &REACHED;
    const LEAST: u64 = 1_000;

    fn run(schedule: &Schedule, mutant: Mutant, with_story: bool) -> Outcome {
        run(schedule, mutant, with_story)
    }
}

#[test]
fn no_schedule_of_nodes_and_routes_breaks_a_law() {
    seeded::check_laws::<NodesAndRoutes>();
}

#[test]
fn the_same_seed_makes_the_same_life_of_nodes() {
    seeded::check_replay::<NodesAndRoutes>();
}

#[test]
fn every_broken_law_of_nodes_and_routes_is_noticed() {
    seeded::check_mutants::<NodesAndRoutes>(&Mutant::ALL.map(|mutant| (mutant, &[][..])), NodesAndRoutes::QUICK);
}
