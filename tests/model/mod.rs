//! Random lives of a cluster against the emulator, on paused time, in one thread, from one seed.
//!
//! A seed becomes a world (machines, disks of others, the emulator's unverified switches in some position, lag, letter
//! case, throttling) and a list of steps ([`script`]): volumes and attachments come to be wanted and cease to be,
//! incidents strike, other tools meddle, controllers are killed or lose their lease to another replica. Workers ask
//! for what is wanted as the CSI sidecars do ([`cluster`]), and a judge that imports nothing of the provider's looks at
//! every answer and every change ([`judge`]). In the end all is quiet, every wish must come true, and nothing else may
//! be left.
//!
//! The controllers run in process: requests reach the gRPC services' own methods and HTTP requests the emulator's own
//! router, without sockets, so that a run takes milliseconds and a line can be cut ([`wire`]).
//!
//! # What it catches
//!
//! Each of these was broken by hand once, and some of the first hundred seeds failed:
//!
//! | broken | invariant |
//! |---|---|
//! | a LUN that a VolumeAttachment names is given away | `reserved-lun` |
//! | what is still leaving is taken for attached | `published`, in one seed of the hundred |
//! | the whole list goes without `If-Match` | `leak`: a disk is dropped from a machine's list |
//! | after a failed write the model is believed | `published` |
//! | the disk's own state is not asked | `published` |
//! | a detach that has begun is taken for done | `unpublished` |
//! | a disk that is being attached may be deleted | `deleted` |
//! | throttling becomes RESOURCE_EXHAUSTED | `code` |
//! | a creation that may go on gets a final code | `code` |
//! | the machine is not read again after a write that Azure says succeeded | `published` |
//! | a change of attributes drops one of the disk's tags | `modified` |
//! | a VHD grows without a note of where its old footer is; that is cleared before the new one is written | `footer`, in most worlds of VHDs |
//! | a VHD is answered before its footer is written | `footer`, in all of them |
//! | a lease that is held counts as free | `lease`, in half of them |
//! | a write of a blob goes without `If-Match` | `content`: a resize that arrives late shrinks the disk, in a life of its own |
//!
//! `LAZULI_MODEL_SEEDS=N` runs N more seeds, from a random one on that is printed, or from `LAZULI_MODEL_BASE`;
//! `LAZULI_MODEL_SEED=S` runs one and tells its story. `LAZULI_MODEL_SHRINK=0` names all seeds that fail, without
//! looking for fewer steps that do. `LAZULI_MODEL_STACK=1` takes only those of the seeds that live on Azure Stack, and `=0`
//! only the others.
//!
//! In one life of four there are machines that take VHDs in page blobs beside others, with classes of all three kinds of
//! accounts, imports into managed disks, and an account that goes with its disk; in P of a hundred with
//! `LAZULI_MODEL_VHDS=P`. Machines write to their VHDs there, keys are drawn anew, and others put things into accounts.
//!
//! In some of the lives there are snapshots, copies and changed attributes, in P of a hundred with
//! `LAZULI_MODEL_COPIES=P`. Such a life ends with the deletion of everything, after which nothing of the controller's may be
//! left.

mod cluster;
pub(crate) mod dice;
mod facts;
mod judge;
mod run;
mod script;
mod shrink;
mod wire;

use std::{
    fmt::Write as _,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use judge::Coverage;
use run::run;

/// How many seeds a normal test run takes.
const SEEDS: u64 = 100;
/// How many the whole takes.
const FULL_SEEDS: u64 = 3000;
/// How many failures are worth shrinking.
const MOST_FAILURES: usize = 3;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// Runs seeds on all processors; gives what they were about. Fails with the stories of those that fail.
fn judge_seeds(from: u64, count: u64) -> Coverage {
    let next = AtomicU64::new(0);
    let shrinks = variable("LAZULI_MODEL_SHRINK") != Some(0);
    let only_azure_stack = variable("LAZULI_MODEL_STACK").map(|wanted| wanted != 0);
    let (coverage, failures) = (Mutex::new(Coverage::default()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= count || shrinks && failures.lock().unwrap().len() >= MOST_FAILURES {
                        return;
                    }
                    let seed = from.wrapping_add(at);
                    let (world, steps) = script::of_seed(seed);
                    if only_azure_stack.is_some_and(|only| only != world.is_azure_stack()) {
                        continue;
                    }
                    let verdict = run(&world, &steps);
                    coverage.lock().unwrap().add(&verdict.coverage);
                    if let Some(violation) = &verdict.violation {
                        // At once: to leave steps out takes a while.
                        let line = format!("seed {seed} violates {}: {}", violation.invariant, violation.what);
                        eprintln!("{line}");
                        let told = if shrinks {
                            report(&world, &shrink::shrink(&world, &steps, violation.invariant), steps.len())
                        } else {
                            line
                        };
                        failures.lock().unwrap().push(told);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    coverage.into_inner().unwrap()
}

fn report(world: &script::World, steps: &[script::Timed], before: usize) -> String {
    let verdict = run(world, steps);
    let mut text = format!("LAZULI_MODEL_SEED={} fails\n{world:#?}\n", world.seed);
    let _ = writeln!(text, "{} steps of {before}:", steps.len());
    for (pause, step) in steps {
        let _ = writeln!(text, "  +{:>6} ms {step:?}", pause.as_millis());
    }
    let _ = writeln!(text, "story:");
    for line in &verdict.story {
        let _ = writeln!(text, "  {line}");
    }
    let _ = writeln!(text, "requests:");
    for line in &verdict.log {
        let _ = writeln!(text, "  {line}");
    }
    if let Some(violation) = verdict.violation {
        let _ = writeln!(text, "seed {} violates {}: {}", world.seed, violation.invariant, violation.what);
    }
    text
}

#[test]
fn whatever_happens_every_wish_comes_true_in_the_end_and_no_disk_is_misplaced_meanwhile() {
    if let Some(seed) = variable("LAZULI_MODEL_SEED") {
        let (world, steps) = script::of_seed(seed);
        println!("{}", report(&world, &steps, steps.len()));
        judge_seeds(seed, 1);
        return;
    }
    let coverage = judge_seeds(1, SEEDS);
    // What never happens proves nothing.
    for what in [
        "Create OK",
        "Create AlreadyExists",
        "Create given up",
        "Delete OK",
        "Delete FailedPrecondition",
        "Publish OK",
        "Publish given up",
        "Publish Aborted",
        "Publish FailedPrecondition",
        "Publish ResourceExhausted",
        "Publish Unavailable",
        "Unpublish OK",
        "Unpublish given up",
        "Expand OK",
        "List OK",
        "Get OK",
        "publish of an attached disk, undisturbed",
        "volume listed",
        "Copy OK",
        "Modify OK",
        "TakeSnapshot OK",
        "TakeSnapshot Aborted",
        "DropSnapshot OK",
        "ListSnapshots OK",
        "snapshot ready",
        "snapshot not ready",
        "Shared made",
        "Dedicated made",
        "Named made",
        "VHD grown",
        "VHD imported",
        "machine writes",
    ] {
        assert!(coverage.counts.contains_key(what), "{what:?} never happened: {:#?}", coverage.counts);
    }
    println!("{:#?}", coverage.counts);
}

#[test]
fn more_seeds_from_a_random_one_on_when_asked_for() {
    let full = std::env::var_os("LAZULI_TEST_FULL").is_some().then_some(FULL_SEEDS);
    let Some(count) = variable("LAZULI_MODEL_SEEDS").or(full) else { return };
    let base = variable("LAZULI_MODEL_BASE").unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0 >> 16);
    println!("LAZULI_MODEL_BASE={base} LAZULI_MODEL_SEEDS={count}");
    println!("{:#?}", judge_seeds(base, count).counts);
}

/// The resize of a process that was killed arrives when the next one has grown the disk further.
#[test]
fn a_growth_that_arrives_late_takes_nothing_from_a_disk() {
    use script::{Role, Step, Strike, Target};
    let is_of_vhds = |world: &script::World| world.vhds.is_some() && !world.is_azure_stack();
    let worlds = (1..).map(|seed| script::of_seed(seed).0).filter(is_of_vhds);
    for world in worlds.take(3) {
        let second = std::time::Duration::from_secs(1);
        let resize = Step::Incident { target: Target::BlobWrite, strike: Strike::Delayed(50_000), nth: 2, times: 1 };
        let steps = [
            (second, Step::Create { slot: 0, gib: 1 }),
            (120 * second, resize),
            (second, Step::Expand { slot: 0, gib: 4 }),
            (10 * second, Step::Kill { role: Role::Provisioner }),
            (second / 100, Step::Expand { slot: 0, gib: 8 }),
            (90 * second, Step::List { page: 0 }),
        ];
        let verdict = run(&world, &steps);
        assert!(verdict.violation.is_none(), "{}", report(&world, &steps, steps.len()));
        let late = verdict.log.iter().any(|line| line.contains("PUT /vhds/") && line.contains(" 412 "));
        assert!(late, "the late one is refused: {:#?}", verdict.log);
    }
}

#[test]
fn the_same_seed_twice_makes_the_same_requests_at_the_same_times() {
    for seed in 1..=6 {
        let (world, steps) = script::of_seed(seed);
        let (first, second) = (run(&world, &steps), run(&world, &steps));
        for (what, first, second) in [("request", &first.log, &second.log), ("line", &first.story, &second.story)] {
            for (at, (a, b)) in first.iter().zip(second).enumerate() {
                assert_eq!(a, b, "seed {seed}, {what} {at}");
            }
            assert_eq!(first.len(), second.len(), "seed {seed}, {what}s");
        }
    }
}
