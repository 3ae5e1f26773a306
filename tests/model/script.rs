//! A seed becomes a world and a list of steps. Both are plain values: they can be printed, and a step can be left out.

use std::time::Duration;

use lazuli_emulator::{
    latency::Profile,
    options::{Already, Concurrent, LIST_LAG, LeftOut, Switches},
    scenario::{AttachTo, Disk, Scenario, VirtualMachine},
};
use serde_json::{Value, json};

use super::dice::Dice;

/// Machine sizes with the data disks they take (source: Microsoft docs, sizes).
pub(super) const SIZES: [(&str, usize); 4] =
    [("Standard_B1s", 2), ("Standard_D2s_v3", 4), ("Standard_B2s", 4), ("Standard_D8s_v3", 16)];

/// How a VM's data disks are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Action,
    WholeList,
    AzureStack,
}

/// What a run takes place in.
#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) seed: u64,
    /// Index into [`SIZES`] of each node.
    pub(super) nodes: Vec<usize>,
    pub(super) volumes: usize,
    /// Disks of others: the node and LUN where each is at the start, if anywhere.
    pub(super) foreign: Vec<Option<(usize, u8)>>,
    pub(super) method: Method,
    /// Whether a role for the action is missing, so that the provider must fall back.
    pub(super) without_action: bool,
    pub(super) nasty_casing: bool,
    pub(super) throttling: bool,
    pub(super) future_fields: bool,
    pub(super) read_lag_ms: u64,
    pub(super) page_size: usize,
    pub(super) latency: &'static str,
    pub(super) switches: Switches,
    /// Whether other tools write to the machines.
    pub(super) meddling: bool,
    /// Whether a second replica may take over.
    pub(super) replicas: bool,
}

/// The call of a volume or an attachment that an incident can strike, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strike {
    Throttled(u64),
    Status(u16),
    Refused,
    LostBefore,
    LostAfter,
    Late(&'static str),
    /// Azure says that all is done, and has done nothing.
    Hollow,
    Delayed(u64),
}

/// Which requests an incident strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    VmWrite,
    VmRead,
    DiskPut,
    DiskDelete,
    DiskRead,
    DiskList,
    Poll,
}

/// The sidecar whose lease moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Provisioner,
    Attacher,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    /// A claim appears: a volume is wanted in this slot.
    Create {
        slot: usize,
        gib: i64,
    },
    /// The same name again, with another size.
    CreateOther {
        slot: usize,
        gib: i64,
    },
    /// The claim goes; a hasty one is deleted without waiting for its attachments.
    Delete {
        slot: usize,
        hasty: bool,
    },
    /// A pod wants the volume on a node; elsewhere it is not wanted any more, unless it is wanted on both.
    Publish {
        slot: usize,
        node: usize,
        both: bool,
    },
    /// The attachment is asked for again, as after a resync.
    Republish {
        slot: usize,
    },
    /// The pod goes.
    Unpublish {
        slot: usize,
    },
    /// A caller unpublishes where the volume may not be at all.
    UnpublishFrom {
        slot: usize,
        node: usize,
    },
    /// From wherever it is.
    UnpublishEverywhere {
        slot: usize,
    },
    Expand {
        slot: usize,
        gib: i64,
    },
    List {
        page: i32,
    },
    Get {
        slot: usize,
    },
    /// `times` requests of this kind meet this.
    Incident {
        target: Target,
        strike: Strike,
        nth: u64,
        times: u64,
    },
    /// Another tool attaches a disk of its own.
    ForeignAttach {
        disk: usize,
        node: usize,
        lun: u8,
    },
    ForeignDetach {
        disk: usize,
    },
    /// Another tool attaches or detaches a disk of ours.
    MeddleAttach {
        slot: usize,
        node: usize,
        lun: u8,
    },
    MeddleDetach {
        slot: usize,
    },
    /// kill -9 of the replica that has this role; another one has both roles afterwards.
    Kill {
        role: Role,
    },
    /// The lease moves to the other replica; the first one finishes what it has begun.
    Move {
        role: Role,
    },
}

/// A step and how long after the one before it comes.
pub(super) type Timed = (Duration, Step);

/// What a seed says.
pub(super) fn of_seed(seed: u64) -> (World, Vec<Timed>) {
    let mut dice = Dice::new(seed);
    let world = world(seed, &mut dice);
    let steps = dice.from(40, 160);
    let script = (0..steps).map(|_| (pause(&mut dice), step(&world, &mut dice))).collect();
    (world, script)
}

fn world(seed: u64, dice: &mut Dice) -> World {
    let method = match dice.below(10) {
        0..=4 => Method::Action,
        5..=7 => Method::WholeList,
        _ => Method::AzureStack,
    };
    // Without etags there is a window between read and write that no client can close: one writer alone there.
    let alone = method == Method::AzureStack;
    let nodes: Vec<usize> = (0..dice.from(1, 4)).map(|_| dice.below(SIZES.len())).collect();
    let mut foreign = Vec::new();
    for at in 0..dice.below(4) {
        let node = dice.below(nodes.len());
        foreign.push(dice.percent(70).then(|| (node, u8::try_from(at).unwrap() * 2)));
    }
    // A node of two slots keeps one for us.
    for node in 0..nodes.len() {
        let mut here = 0;
        for place in foreign.iter_mut().filter(|place| place.is_some_and(|(at, _)| at == node)) {
            here += 1;
            if here >= SIZES[nodes[node]].1 {
                *place = None;
            }
        }
    }
    let keep = |dice: &mut Dice| if dice.percent(40) { LeftOut::Keep } else { LeftOut::Detach };
    let already = |dice: &mut Dice| if dice.percent(50) { Already::Ignore } else { Already::Refuse };
    let switches = Switches {
        concurrent_vm_write: if dice.percent(50) { Concurrent::Preempt } else { Concurrent::Conflict },
        // A detach by omission is the only one that Azure Stack knows.
        left_out_of_put: if alone { LeftOut::Detach } else { keep(dice) },
        left_out_of_patch: if alone { LeftOut::Detach } else { keep(dice) },
        attach_attached: already(dice),
        detach_unattached: already(dice),
        failed_attach_stays_in_model: dice.percent(30),
        // Of two draws the second: the rest of a seed stays as it was.
        put_needs_location: (dice.percent(20), dice.percent(70)).1,
        disk_retry_after: dice.one(&[2, 7]),
        network_update_answers_created: dice.percent(50),
        // A stream of its own, so that the rest of a seed stays as it was.
        list_lag: Dice::of(seed, "list-lag").percent(30),
        // The others concern snapshots, of which these lives have none.
        ..Switches::default()
    };
    World {
        seed,
        volumes: usize::try_from(dice.from(2, 7)).unwrap(),
        nodes,
        foreign,
        method,
        without_action: method == Method::Action && dice.percent(15),
        nasty_casing: dice.percent(50),
        throttling: dice.percent(50),
        future_fields: dice.percent(30),
        read_lag_ms: dice.one(&[0, 0, 0, 400, 1500]),
        page_size: dice.one(&[1000, 1000, 3]),
        latency: dice.one(&["typical", "azure", "azure", "bad-day"]),
        switches,
        meddling: !alone && dice.percent(50),
        replicas: !alone && dice.percent(50),
    }
}

fn pause(dice: &mut Dice) -> Duration {
    match dice.below(10) {
        0..=3 => Duration::ZERO,
        4..=6 => dice.millis(1, 300),
        7 | 8 => dice.millis(300, 5_000),
        _ => dice.millis(5_000, 30_000),
    }
}

fn step(world: &World, dice: &mut Dice) -> Step {
    let slot = dice.below(world.volumes);
    let node = dice.below(world.nodes.len());
    let lun = u8::try_from(dice.below(8)).unwrap();
    let gib = dice.one(&[1, 2, 4, 5, 8]);
    let role = dice.one(&[Role::Provisioner, Role::Attacher, Role::Attacher]);
    match dice.below(100) {
        0..=13 => Step::Create { slot, gib },
        14 => Step::CreateOther { slot, gib },
        15..=20 => Step::Delete { slot, hasty: dice.percent(30) },
        21..=44 => Step::Publish { slot, node, both: dice.percent(15) },
        45..=49 => Step::Republish { slot },
        50..=61 => Step::Unpublish { slot },
        62..=63 => Step::UnpublishFrom { slot, node },
        64 => Step::UnpublishEverywhere { slot },
        65..=68 => Step::Expand { slot, gib },
        69..=70 => Step::List { page: dice.one(&[0, 1, 3]) },
        71..=72 => Step::Get { slot },
        73..=86 => incident(dice),
        87..=90 if world.meddling && !world.foreign.is_empty() => {
            let disk = dice.below(world.foreign.len());
            if dice.percent(50) { Step::ForeignAttach { disk, node, lun } } else { Step::ForeignDetach { disk } }
        }
        91..=93 if world.meddling => {
            if dice.percent(30) {
                Step::MeddleAttach { slot, node, lun }
            } else {
                Step::MeddleDetach { slot }
            }
        }
        94..=96 => Step::Kill { role },
        97..=99 if world.replicas => Step::Move { role },
        _ => Step::Publish { slot, node, both: false },
    }
}

fn incident(dice: &mut Dice) -> Step {
    let target = dice.one(&[
        Target::VmWrite,
        Target::VmWrite,
        Target::VmWrite,
        Target::VmRead,
        Target::DiskPut,
        Target::DiskDelete,
        Target::DiskRead,
        Target::DiskList,
        Target::Poll,
    ]);
    let writes = matches!(target, Target::VmWrite | Target::DiskPut | Target::DiskDelete);
    let strike = match dice.below(if writes { 12 } else { 6 }) {
        0 | 1 => Strike::Throttled(dice.one(&[1, 3, 6, 40])),
        2 => Strike::Status(503),
        3 => Strike::Status(500),
        4 => Strike::LostBefore,
        5 => Strike::Delayed(dice.from(50, 20_000)),
        6 => Strike::LostAfter,
        7 => Strike::Status(409),
        8 if target == Target::VmWrite => Strike::Status(412),
        9 if target == Target::VmWrite => Strike::Refused,
        8 | 9 => Strike::LostAfter,
        10 if target == Target::VmWrite => Strike::Hollow,
        _ => Strike::Late(dice.one(&["InternalExecutionError", "RetryableError", "OperationPreempted", "Conflict"])),
    };
    // Now and then for longer than a client can sit out.
    let times = if dice.percent(20) { 12 } else { dice.from(1, 3) };
    Step::Incident { target, strike, nth: dice.from(1, 3), times }
}

impl Step {
    /// The incident, as the emulator takes it.
    pub(super) fn incident(&self) -> Option<Value> {
        let Self::Incident { target, strike, nth, times } = self else { return None };
        let mut matching = match target {
            Target::VmWrite => json!({"operation": "virtualMachines.*"}),
            Target::VmRead => json!({"method": "GET", "operation": "virtualMachines.get"}),
            Target::DiskPut => json!({"method": "PUT", "path": "*/disks/*"}),
            Target::DiskDelete => json!({"method": "DELETE", "path": "*/disks/*"}),
            Target::DiskRead => json!({"method": "GET", "path": "*/disks/*"}),
            Target::DiskList => json!({"method": "GET", "path": "*/disks"}),
            Target::Poll => json!({"method": "GET", "path": "*operations/*"}),
        };
        if *target == Target::VmWrite {
            // Whatever method the world writes by; none of these is a read.
            matching["bodyContains"] = json!("ata");
        }
        matching["nth"] = json!(nth);
        let then = match strike {
            Strike::Throttled(seconds) => json!({"status": 429, "retryAfter": seconds}),
            Strike::Status(status) => json!({"status": status}),
            Strike::Refused => json!({"status": 400, "code": "InvalidParameter"}),
            Strike::LostBefore => json!({"loseAnswer": "before"}),
            Strike::LostAfter => json!({"loseAnswer": "after"}),
            Strike::Hollow => json!({"status": 200}),
            Strike::Late(code) => json!({"lateFailure": {"code": code}}),
            Strike::Delayed(ms) => json!({"delayMs": ms}),
        };
        Some(json!({"match": matching, "then": then, "times": times}))
    }
}

pub(super) fn node_name(node: usize) -> String {
    format!("node-{node}")
}

pub(super) fn foreign_name(disk: usize) -> String {
    format!("foreign-{disk}")
}

impl World {
    /// The emulator of this world.
    pub(super) fn azure(&self) -> lazuli_emulator::Options {
        let machines = self.nodes.iter().enumerate().map(|(at, size)| {
            let mut machine = VirtualMachine::pattern("{}", 1);
            (machine.name, machine.count, machine.size) = (node_name(at), None, SIZES[*size].0.to_owned());
            machine
        });
        let disks = self.foreign.iter().enumerate().map(|(at, place)| Disk {
            name: foreign_name(at),
            size_gib: 4,
            sku: "StandardSSD_LRS".to_owned(),
            zone: None,
            resource_group: None,
            attach_to: place.map(|(node, lun)| AttachTo { vm: node_name(node), lun }),
            tags: Default::default(),
        });
        lazuli_emulator::Options {
            seed: self.seed,
            latency: Profile::parse(self.latency).unwrap(),
            throttling: self.throttling,
            nasty_casing: self.nasty_casing,
            read_lag: Duration::from_millis(self.read_lag_ms),
            future_fields: self.future_fields,
            page_size: self.page_size,
            scenario: Scenario { virtual_machines: machines.collect(), disks: disks.collect(), ..Scenario::default() },
            unverified: self.switches,
            ..Default::default()
        }
    }

    /// How much later than a single read a list may be.
    pub(super) fn list_lag_ms(&self) -> u64 {
        if self.switches.list_lag { u64::try_from(LIST_LAG.as_millis()).unwrap() } else { 0 }
    }

    pub(super) fn limit(&self, node: usize) -> usize {
        SIZES[self.nodes[node]].1
    }
}
