//! Random requests that arrive while single reads, lists and writes are in flight: two replicas, slow lists that lag,
//! callers that give up, and Nodes that are deleted while their machines run. Each run follows from one seed.
//!
//! It is judged by the emulator's hypervisor alone: at the moment at which a publish succeeds the machine has the disk at
//! the LUN of the answer, and at the moment at which an unpublish succeeds it has not.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    time::Duration,
};

use futures::future::join_all;
use lazuli_emulator::{
    latency::Profile,
    scenario::{ResourceGroup, Scenario, VirtualMachine},
};
use lazuli_model::{fault::Fault, op::VmWriteMethod};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::rig::{ELSEWHERE, Rig, disk, disks, lagging};
use crate::Volumes;

/// How many runs there are. `LAZULI_LATE_REQUESTS_SEED=N` names a single one.
const RUNS: u64 = 200;
/// The same with `LAZULI_TEST_FULL`.
const RUNS_IN_FULL: u64 = 10_000;
/// How many machines there are in the cluster's own group, and how many in another.
const MACHINES: usize = 10;
const FAR_MACHINES: usize = 4;
const DISKS: usize = 12;
/// How often each disk is attached to a node and detached from it.
const MOVES: usize = 1;
/// For how long a request is repeated before the run fails.
const PATIENCE: Duration = Duration::from_secs(1_200);

/// Numbers that a seed decides (splitmix64).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end).unwrap()).unwrap()
    }

    fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    fn millis(&mut self, most: u64) -> Duration {
        Duration::from_millis(self.next() % (most + 1))
    }
}

/// What a caller asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Publish,
    Unpublish,
}

/// One run.
struct Run {
    rig: Rig,
    replicas: [Volumes; 2],
    /// The replica that the sidecars call.
    leader: Cell<usize>,
    began: Instant,
    /// The Nodes that exist.
    nodes: RefCell<BTreeSet<String>>,
    /// What happened, to be read.
    story: RefCell<Vec<String>>,
    faults: RefCell<Vec<String>>,
    answers: Cell<usize>,
}

impl Run {
    async fn start(seed: u64, dice: &mut Dice) -> Self {
        let group = |name: &str| ResourceGroup { name: name.into(), location: None, subscription: None };
        let machines = |pattern: &str, count: usize| VirtualMachine::pattern(pattern, u32::try_from(count).unwrap());
        let far = VirtualMachine { resource_group: Some(ELSEWHERE.into()), ..machines("far-{}", FAR_MACHINES) };
        let mut options = lagging(
            seed,
            Scenario {
                resource_groups: vec![group("lazuli"), group(ELSEWHERE)],
                virtual_machines: vec![machines("node-{}", MACHINES), far],
                disks: disks((0..DISKS).map(|n| format!("d{n}"))),
                ..Scenario::default()
            },
        );
        options.latency = if dice.percent(70) { Profile::typical() } else { Profile::azure() };
        options.page_size = if dice.percent(50) { 50 } else { 5 };
        let mut rig = Rig::start(options).await;
        if dice.percent(20) {
            rig.method = VmWriteMethod::WholeList;
        }
        for (path, most) in [("*/virtualMachines", 3_000), ("*/disks", 3_000), ("*/virtualMachines/*", 300)] {
            if dice.percent(70) {
                rig.delay("GET", path, dice.millis(most));
            }
        }
        let far = (0..FAR_MACHINES).map(|n| format!("far-{n}"));
        let nodes: BTreeSet<String> = (0..MACHINES).map(|n| format!("node-{n}")).chain(far).collect();
        rig.set_nodes(&nodes);
        Self {
            replicas: [rig.replica(seed), rig.replica(seed ^ 1)],
            rig,
            leader: Cell::new(0),
            began: Instant::now(),
            nodes: RefCell::new(nodes),
            story: RefCell::default(),
            faults: RefCell::default(),
            answers: Cell::new(0),
        }
    }

    fn tell(&self, what: &str) {
        self.story.borrow_mut().push(format!("{:>9.3} {what}", self.began.elapsed().as_secs_f64()));
    }

    fn fault(&self, what: &str) {
        self.tell(&format!("FAULT: {what}"));
        self.faults.borrow_mut().push(what.to_owned());
    }

    /// Calls the leader, as a sidecar does: again after a failure and after a time-out, until it succeeds. A publish ends
    /// when its Node is deleted.
    async fn call(&self, call: Call, name: &str, node: &str, dice: &mut Dice) {
        let (id, since) = (disk(name), Instant::now());
        loop {
            if call == Call::Publish && !self.nodes.borrow().contains(node) {
                return;
            }
            let replica = self.leader.get();
            let volumes = &self.replicas[replica];
            let patience = if dice.percent(30) { dice.millis(15_000) } else { Duration::from_secs(120) };
            self.tell(&format!("{call:?} {name} {node} at {replica}"));
            let answer = timeout(patience, async {
                match call {
                    Call::Publish => volumes.publish(&id, node, None).await.map(|published| Some(published.lun.get())),
                    Call::Unpublish => volumes.unpublish(&id, Some(node)).await.map(|()| None),
                }
            })
            .await;
            match answer {
                Ok(Ok(told)) => {
                    let held = self.rig.lun_of(node, &id);
                    self.tell(&format!("{call:?} {name} {node}: {told:?}, the machine has it at {held:?}"));
                    if held != told {
                        self.fault(&format!(
                            "{call:?} {name} {node}: answered {told:?}, the machine has it at {held:?}"
                        ));
                    }
                    self.answers.set(self.answers.get() + 1);
                    return;
                }
                Ok(Err(error)) => {
                    self.tell(&format!("{call:?} {name} {node}: {error}"));
                    if matches!(error.fault, Fault::Invalid | Fault::Malformed) {
                        self.fault(&error.to_string());
                    }
                    sleep(Duration::from_secs(1) + dice.millis(2_000)).await;
                }
                Err(_) => self.tell(&format!("{call:?} {name} {node}: given up after {patience:?}")),
            }
            if since.elapsed() > PATIENCE {
                self.fault(&format!("{call:?} {name} {node} does not succeed"));
                return;
            }
        }
    }

    /// Waits for a moment at which many calls begin, or for one during what those have begun.
    async fn moment(&self, dice: &mut Dice) {
        const BEAT: u64 = 4_000;
        let elapsed = u64::try_from(self.began.elapsed().as_millis()).unwrap();
        let beat = self.began + Duration::from_millis((elapsed / BEAT + 1) * BEAT);
        let after = if dice.percent(60) { Duration::ZERO } else { dice.millis(3_000) };
        sleep_until(beat + after).await;
    }

    /// A disk is moved from node to node.
    async fn live(&self, number: usize, mut dice: Dice) {
        let name = format!("d{number}");
        for _ in 0..MOVES {
            self.moment(&mut dice).await;
            let nodes: Vec<String> = self.nodes.borrow().iter().cloned().collect();
            let node = &nodes[dice.below(nodes.len())];
            self.call(Call::Publish, &name, node, &mut dice).await;
            if dice.percent(40) {
                self.moment(&mut dice).await;
                // The attacher repeats what it has lost the answer of.
                self.call(Call::Publish, &name, node, &mut dice).await;
            }
            if dice.percent(70) {
                self.moment(&mut dice).await;
            }
            self.call(Call::Unpublish, &name, node, &mut dice).await;
            if dice.percent(30) {
                self.call(Call::Unpublish, &name, node, &mut dice).await;
            }
        }
    }

    /// Leadership moves, and Nodes are deleted while their machines run.
    async fn events(&self, mut dice: Dice) {
        for _ in 0..4 {
            sleep(dice.millis(15_000)).await;
            match dice.below(3) {
                0 => {
                    self.leader.set(1 - self.leader.get());
                    self.tell(&format!("replica {} leads", self.leader.get()));
                }
                _ => {
                    let mut nodes = self.nodes.borrow_mut();
                    let node = nodes.iter().nth(dice.below(nodes.len())).cloned().unwrap();
                    nodes.remove(&node);
                    // A list of the Nodes that comes instead does not say which machine it was.
                    match dice.percent(50) {
                        true => self.rig.delete_node(&node),
                        false => self.rig.set_nodes(nodes.iter()),
                    }
                    drop(nodes);
                    self.tell(&format!("Node {node} is deleted"));
                }
            }
        }
    }
}

/// What was wrong in the run of a seed, with what led to it; empty if nothing was. Also how many answers were judged.
async fn run(seed: u64) -> (String, usize) {
    let mut dice = Dice(seed);
    let run = Run::start(seed, &mut dice).await;
    // After this time no list shows the time before.
    sleep(Duration::from_secs(5)).await;
    let mut fork = || Dice(dice.next());
    let events = run.events(fork());
    futures::join!(join_all((0..DISKS).map(|number| run.live(number, fork()))), events);
    let violations = run.rig.emulator.control().violations();
    if !violations.is_empty() {
        run.fault(&format!("{violations:?}"));
    }
    let faults = run.faults.take();
    let story = run.story.take().join("\n");
    let answers = run.answers.get();
    run.rig.emulator.shutdown().await;
    let told = if faults.is_empty() { String::new() } else { format!("seed {seed}: {}\n{story}", faults.join("; ")) };
    (told, answers)
}

#[tokio::test(start_paused = true)]
async fn requests_that_arrive_while_others_are_under_way_get_no_answer_that_is_untrue() {
    let one = std::env::var("LAZULI_LATE_REQUESTS_SEED").ok().map(|seed| seed.parse::<u64>().unwrap());
    let runs = if std::env::var_os("LAZULI_TEST_FULL").is_some() { RUNS_IN_FULL } else { RUNS };
    let seeds = one.map_or(1..runs + 1, |seed| seed..seed + 1);
    let (mut failed, mut answers, count) = (Vec::new(), 0, seeds.end - seeds.start);
    for seed in seeds {
        let (told, judged) = Box::pin(run(seed)).await;
        answers += judged;
        if !told.is_empty() {
            failed.push(told);
        }
    }
    for (at, told) in failed.iter().enumerate() {
        // What led to it is printed of the first.
        println!("{}", if at == 0 { told.as_str() } else { told.lines().next().unwrap_or_default() });
    }
    assert!(failed.is_empty(), "{} of {count} runs have faults", failed.len());
    assert!(answers > DISKS * 2 * usize::try_from(count).unwrap(), "only {answers} answers were judged");
}
