//! The wiring between the steps and the world: two replicas, requests that travel, and timers in any order.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque},
    time::Duration,
};

use lazuli_engine::Id;
use lazuli_model::{
    node::ClusterNodes,
    seeded::{Counts, Numbers, Outcome},
    size::SizeLimits,
};
use lazuli_quota::read::By;

use super::{
    azure::{ArmAnswer, Azure, DiskNow, Machine, Request, vm_id},
    cluster::{Cluster, Key, Told},
    laws::Laws,
    mutant::Mutant,
    schedule::{DiskNo, Fate, Habits, Incident, ReadFault, Schedule, VmNo},
};
use crate::{Caller, Env, Event, Memory, State};
use lazuli_storage::{force_detach::ForceDetach, late_attach::Suspicions, lun::LunReservations};

pub(super) type StepEvent = Event<ArmAnswer>;

/// How long after the last incident every fault ends.
const LAST_FAULT: Duration = Duration::from_secs(10);
/// How long after that users give up what cannot be attached.
const USERS_GIVE_UP: Duration = Duration::from_secs(200);
/// How long after that the world must have come to rest.
const REST: Duration = Duration::from_secs(2_400);

/// The size of every VM.
pub(super) const SIZE: &str = "Standard_World";

#[derive(Debug)]
pub(super) enum Happens {
    Incident(Incident),
    /// No fault happens any more.
    Quiet,
    /// Users give up what is not attached by now.
    UsersGiveUp,
    /// external-attacher looks at a VolumeAttachment.
    Try(Key),
    Records(Key, u64, Told),
    TimesOut(Caller),
    /// The sidecar of the leader exits.
    Exits(usize),
    /// The sidecar of a replica leads.
    Leads(usize),
    /// A Node and its VolumeAttachments are deleted.
    NodeGoes(VmNo),
    /// The informers show the cluster as it is.
    Informed,
    Wake(VmNo, Duration),
    Event(VmNo, Box<StepEvent>),
    VmReadArrives(VmNo, Id, VmAsk),
    VmReadEnds(VmNo, Id, bool, Result<Observed, ArmAnswer>),
    DiskReadArrives(VmNo, Id, DiskNo, By, Duration),
    DisksReadEnd(VmNo, Id),
    /// A call has ended that was dropped; the permit, where one came at that moment.
    DropEnds(VmNo, Option<Id>),
    ViewArrives(VmNo, Id),
    ViewEnds(VmNo, Id, StepEvent),
    PermitEnds(VmNo, Id, Result<(), ArmAnswer>),
    WriteArrives(Sent, Request),
    WriteEnds(VmNo, Id, Result<Duration, ArmAnswer>),
    Takes(u64),
    Ends(u64),
}

impl Happens {
    /// The VM of whose state it names an id.
    fn names_id_of(&self) -> Option<VmNo> {
        match self {
            Self::Wake(vm, _)
            | Self::VmReadArrives(vm, ..)
            | Self::VmReadEnds(vm, ..)
            | Self::DiskReadArrives(vm, ..)
            | Self::DisksReadEnd(vm, _)
            | Self::DropEnds(vm, _)
            | Self::ViewArrives(vm, _)
            | Self::ViewEnds(vm, ..)
            | Self::PermitEnds(vm, ..)
            | Self::WriteEnds(vm, ..) => Some(*vm),
            _ => None,
        }
    }
}

/// For whom something happens: a process, and the state of a VM in it, where it names an id. A state that begins anew
/// counts its ids anew.
#[derive(Debug, Clone, Copy)]
struct Target {
    replica: usize,
    process: u64,
    state: Option<(VmNo, u64)>,
}

/// A read of a VM that is on its way.
#[derive(Debug, Clone, Copy)]
pub(super) struct VmAsk {
    pub(super) sent_at: Duration,
    pub(super) list: bool,
    pub(super) keep: bool,
}

/// A VM as a read has shown it.
#[derive(Debug, Clone)]
pub(super) struct Observed {
    pub(super) by: By,
    pub(super) sent_at: Duration,
    /// When Azure answered.
    pub(super) answered: Duration,
    pub(super) machine: Machine,
}

/// A disk as a read has shown it; `None` where it does not exist.
#[derive(Debug, Clone)]
pub(super) struct ObservedDisk {
    pub(super) sent_at: Duration,
    pub(super) disk: Option<DiskNow>,
}

/// What the read of one disk gave.
pub(super) type DiskAnswer = (DiskNo, Result<(ObservedDisk, By), ArmAnswer>);

/// A write that is on its way: whose it is, and what the laws need of it.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub(super) replica: usize,
    pub(super) process: u64,
    pub(super) vm: VmNo,
    pub(super) id: Id,
    pub(super) sent_at: Duration,
    pub(super) attaches: Vec<DiskNo>,
    /// Those of them whose VolumeAttachment names a LUN.
    pub(super) recorded: Vec<DiskNo>,
    /// Disks that are removed from the model without a request of their detach.
    pub(super) removes: Vec<DiskNo>,
    /// Those of them whose detach has failed before, so that it is repeated.
    pub(super) repeats_detach: Vec<DiskNo>,
    /// Whether it is conditional.
    pub(super) is_conditional: bool,
    pub(super) fate: Option<Fate>,
    /// Whether the client still waits for an answer.
    pub(super) is_awaited: bool,
}

/// What a caller has asked.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) replica: usize,
    pub(super) process: u64,
    pub(super) vm: VmNo,
    pub(super) disk: DiskNo,
    pub(super) attaches: bool,
    pub(super) at: Duration,
    /// Since when it waits without a fault of the world.
    pub(super) waits_since: Duration,
    /// Of the detach of an unused disk: the stamp of the attachment that alone it is for.
    pub(super) judged: Option<Option<Duration>>,
}

/// What is under way for a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Under {
    VmRead,
    DisksRead,
    View,
    Permit,
    Attachments,
    Write,
}

/// The VM's side in one process.
#[derive(Debug, Default)]
pub(super) struct Side {
    /// Counts the states that have ended.
    ended: u64,
    pub(super) state: Option<State<ArmAnswer>>,
    pub(super) under: BTreeMap<Id, Under>,
    /// How many calls are ending that were dropped.
    pub(super) dropping: u64,
    pub(super) permits: BTreeSet<Id>,
    /// Disks that have been read so far for a read of several.
    pub(super) gathered: BTreeMap<Id, (usize, Vec<DiskAnswer>)>,
    /// The last read that a write may name.
    pub(super) kept: Option<(Id, Observed)>,
    /// The single reads of the VM that the step has been given.
    pub(super) shown: VecDeque<Observed>,
    /// Since when all reads that a write may name, and that the step has been given, show a write at work.
    pub(super) at_work_since: Option<Duration>,
    /// The last read of each disk that the step has been given.
    pub(super) disks: BTreeMap<DiskNo, ObservedDisk>,
    /// When the last view was given that shows the VM stopped.
    pub(super) stopped_at: Option<Duration>,
    pub(super) last_write_ended: Option<Duration>,
    wake: Option<Duration>,
    minute: u64,
    actions: u64,
}

/// One process.
#[derive(Debug)]
pub(super) struct Replica {
    /// Counts the processes; what is meant for an earlier one is dropped.
    pub(super) process: u64,
    pub(super) memory: Memory,
    pub(super) attachments: LunReservations,
    pub(super) nodes: ClusterNodes,
    pub(super) sides: Vec<Side>,
    /// Until when its informers know nothing.
    pub(super) cold_until: Duration,
    /// By how many seconds its writes are late now.
    pub(super) late: Option<u64>,
    /// The earliest time that a read of a VM or a disk may show.
    pub(super) seen: Duration,
}

impl Replica {
    fn new(process: u64, habits: &Habits, vms: usize) -> Self {
        let (attachments, nodes) = match habits.cluster {
            true => (LunReservations::Cold, ClusterNodes::Cold),
            false => (LunReservations::NoCluster, ClusterNodes::NoCluster),
        };
        Self {
            process,
            memory: Memory::new(habits.method),
            attachments,
            nodes,
            sides: (0..vms).map(|_| Side::default()).collect(),
            cold_until: Duration::ZERO,
            late: None,
            seen: Duration::ZERO,
        }
    }
}

/// A run of one schedule.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) now: Duration,
    pub(super) numbers: Numbers,
    heap: BinaryHeap<Reverse<(Duration, u64, usize)>>,
    pending: Vec<Option<(Option<Target>, Happens)>>,
    pub(super) habits: Habits,
    pub(super) azure: Azure,
    pub(super) cluster: Cluster,
    pub(super) replicas: [Replica; 2],
    pub(super) laws: Laws,
    pub(super) mutant: Mutant,
    pub(super) callers: BTreeMap<Caller, Asked>,
    pub(super) next_caller: Caller,
    pub(super) operations: BTreeMap<u64, Sent>,
    pub(super) fates: VecDeque<Fate>,
    pub(super) read_faults: VecDeque<ReadFault>,
    pub(super) no_permits: u64,
    pub(super) permit_fails: u64,
    pub(super) quiet: bool,
    /// When the leader that is to come leads.
    pub(super) moves_at: Duration,
    pub(super) sizes: SizeLimits,
    pub(super) counts: Counts,
    pub(super) log: Option<Vec<String>>,
    pub(super) violation: Option<String>,
}

/// Runs a schedule to its end. Returns what law it broke.
pub(super) fn run(schedule: &Schedule, mutant: Mutant, with_story: bool) -> Outcome {
    let mut run = Run::new(schedule, mutant);
    run.log = with_story.then(Vec::new);
    let result = run.play(schedule);
    Outcome { result, counts: run.counts, story: run.log.unwrap_or_default() }
}

impl Run {
    fn new(schedule: &Schedule, mutant: Mutant) -> Self {
        let (habits, vms) = (schedule.habits, schedule.vms);
        let cluster = Cluster { nodes: (0..vms).collect(), ..Cluster::default() };
        Self {
            now: Duration::ZERO,
            numbers: Numbers::new(schedule.seed ^ 0xA5A5),
            heap: BinaryHeap::new(),
            pending: Vec::new(),
            habits,
            azure: Azure::new(habits, vms, &schedule.shares, schedule.limit),
            cluster,
            replicas: [Replica::new(0, &habits, vms), Replica::new(1, &habits, vms)],
            laws: Laws::default(),
            mutant,
            callers: BTreeMap::new(),
            next_caller: 0,
            operations: BTreeMap::new(),
            fates: VecDeque::new(),
            read_faults: VecDeque::new(),
            no_permits: 0,
            permit_fails: 0,
            quiet: false,
            moves_at: Duration::ZERO,
            sizes: SizeLimits::new([(SIZE.to_owned(), schedule.limit)]),
            counts: Counts::new(),
            log: None,
            violation: None,
        }
    }

    fn play(&mut self, schedule: &Schedule) -> Result<(), String> {
        self.count(match (schedule.vms, schedule.shares.len()) {
            (1, 11..) => "world: one VM, 11 to 20 disks",
            (1, _) => "world: one VM",
            (2, _) => "world: two VMs",
            _ => "world: three VMs",
        });
        for replica in 0..2 {
            let cold = self.numbers.ms(4_000);
            self.replicas[replica].cold_until = cold;
            self.at_process(cold, replica, Happens::Informed);
        }
        self.at(Duration::ZERO, Happens::Leads(0));
        for (at, incident) in &schedule.incidents {
            self.at(*at, Happens::Incident(*incident));
        }
        let last = schedule.incidents.iter().map(|(at, incident)| *at + incident.lasts()).max().unwrap_or_default();
        self.at(last + LAST_FAULT, Happens::Quiet);
        self.at(last + LAST_FAULT + USERS_GIVE_UP, Happens::UsersGiveUp);
        self.until_rest(last + LAST_FAULT + USERS_GIVE_UP + REST)?;
        self.count(match self.laws.most_actions {
            0..=100 => "busiest minute: up to 100 actions",
            101..=200 => "busiest minute: up to 200 actions",
            _ => "busiest minute: more than 200 actions",
        });
        self.at_rest()
    }

    fn until_rest(&mut self, end: Duration) -> Result<(), String> {
        let mut at_once = 0;
        while let Some(Reverse((at, _, index))) = self.heap.pop() {
            at_once = if at > self.now { 0 } else { at_once + 1 };
            self.now = self.now.max(at);
            let Some((process, happens)) = self.pending[index].take() else { continue };
            if at_once > 20_000 {
                return Err("law 8 (livelock): the world does not get on".to_owned());
            }
            if self.now > end {
                return Err("law 8 (rest): the world does not come to rest".to_owned());
            }
            let (replica, is_alive) = match process {
                Some(Target { replica, process, state }) => {
                    let is_alive = self.is_alive(replica, process);
                    let is_same = |(vm, ended): (VmNo, u64)| self.replicas[replica].sides[vm].ended == ended;
                    (replica, is_alive && state.is_none_or(is_same))
                }
                None => (0, true),
            };
            if is_alive {
                self.happen(replica, happens);
            }
            if let Some(violation) = self.violation.take() {
                return Err(violation);
            }
        }
        Ok(())
    }

    fn push(&mut self, at: Duration, process: Option<Target>, happens: Happens) {
        let index = self.pending.len();
        // What happens at one time happens in any order; what a user does keeps its order.
        let order = if matches!(happens, Happens::Incident(_)) { index as u64 } else { self.numbers.draw() };
        self.pending.push(Some((process, happens)));
        self.heap.push(Reverse((at, order, index)));
    }

    /// Happens then, whatever becomes of the processes.
    pub(super) fn at(&mut self, at: Duration, happens: Happens) {
        self.push(at, None, happens);
    }

    pub(super) fn later(&mut self, most_ms: u64, happens: Happens) {
        let at = self.now + self.numbers.ms(most_ms);
        self.push(at, None, happens);
    }

    /// Happens then to a process, if it lives.
    pub(super) fn at_process(&mut self, at: Duration, replica: usize, happens: Happens) {
        let process = self.replicas[replica].process;
        let state = happens.names_id_of().map(|vm| (vm, self.replicas[replica].sides[vm].ended));
        self.push(at, Some(Target { replica, process, state }), happens);
    }

    pub(super) fn later_at(&mut self, replica: usize, most_ms: u64, happens: Happens) {
        let at = self.now + self.numbers.ms(most_ms);
        self.at_process(at, replica, happens);
    }

    pub(super) fn is_alive(&self, replica: usize, process: u64) -> bool {
        self.replicas[replica].process == process
    }

    /// The process of a replica ends and starts again.
    pub(super) fn restart(&mut self, replica: usize) {
        let (process, vms) = (self.replicas[replica].process + 2, self.replicas[replica].sides.len());
        let late = self.replicas[replica].late;
        self.replicas[replica] = Replica { late, ..Replica::new(process, &self.habits, vms) };
        self.calls_end(replica);
        let most = if self.numbers.one_in(4) { 60_000 } else { 8_000 };
        let cold = self.now + self.numbers.ms(most);
        self.replicas[replica].cold_until = cold;
        self.at_process(cold, replica, Happens::Informed);
    }

    pub(super) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            log.push(format!("{:>10.3} {}", self.now.as_secs_f64(), line()));
        }
    }

    pub(super) fn judge(&mut self, result: Result<(), String>) {
        if let Err(violation) = result {
            self.note(|| violation.clone());
            self.violation.get_or_insert(violation);
        }
    }

    fn happen(&mut self, replica: usize, happens: Happens) {
        match happens {
            Happens::Incident(incident) => self.incident(incident),
            Happens::Quiet => self.becomes_quiet(),
            Happens::UsersGiveUp => {
                let open = self.cluster.attachments.iter().filter(|(_, it)| !it.attached || it.call.is_some());
                let open: Vec<Key> = open.map(|(key, _)| *key).collect();
                open.into_iter().for_each(|key| self.let_go(key));
            }
            Happens::Try(key) => self.try_attachment(key),
            Happens::Records(key, term, told) => self.record(key, term, told),
            Happens::TimesOut(caller) if !self.quiet => self.give_up(caller),
            Happens::TimesOut(_) => {}
            Happens::Exits(replica) => self.leader_exits(replica),
            Happens::Leads(replica) => self.leads(replica),
            Happens::NodeGoes(vm) => {
                self.cluster.nodes.remove(&vm);
                let of_node = self.cluster.attachments.keys().filter(|(of, _)| *of == vm);
                let of_node: Vec<Key> = of_node.copied().collect();
                of_node.into_iter().for_each(|key| self.let_go(key));
                self.cluster_changed();
            }
            Happens::Informed => self.informed(replica),
            Happens::Wake(vm, at) => {
                if self.replicas[replica].sides[vm].wake == Some(at) {
                    self.replicas[replica].sides[vm].wake = None;
                    if self.mutant != Mutant::ForgetsTimers || self.numbers.one_in(2) {
                        self.step(replica, vm, Event::Woke);
                    }
                }
            }
            // A VM without a task needs no such event.
            Happens::Event(vm, event) => {
                if self.replicas[replica].sides[vm].state.is_some() {
                    self.step(replica, vm, *event);
                }
            }
            Happens::VmReadArrives(vm, id, ask) => self.vm_read_arrives(replica, vm, id, ask),
            Happens::VmReadEnds(vm, id, keep, read) => self.vm_read_ends(replica, vm, id, keep, read),
            Happens::DiskReadArrives(vm, id, disk, by, sent_at) => {
                self.disk_read_arrives(replica, vm, id, disk, by, sent_at);
            }
            Happens::DropEnds(vm, granted) => self.drop_ends(replica, vm, granted),
            Happens::DisksReadEnd(vm, id) => self.disks_read_end(replica, vm, id),
            Happens::ViewArrives(vm, id) => self.view_arrives(replica, vm, id),
            Happens::ViewEnds(vm, id, event) => {
                if self.ends(replica, vm, id) {
                    self.step(replica, vm, event);
                }
            }
            Happens::PermitEnds(vm, id, granted) => self.permit_ends(replica, vm, id, granted),
            Happens::WriteArrives(sent, request) => self.write_arrives(sent, request),
            Happens::WriteEnds(vm, id, written) => self.write_ends(replica, vm, id, written),
            Happens::Takes(operation) => self.operation_takes(operation),
            Happens::Ends(operation) => self.operation_ends(operation),
        }
    }

    /// The informers of a replica show the cluster as it is.
    fn informed(&mut self, replica: usize) {
        if !self.habits.cluster || self.now < self.replicas[replica].cold_until {
            return;
        }
        let was_cold = self.replicas[replica].attachments == LunReservations::Cold;
        self.replicas[replica].attachments = self.cluster.reservations(self.habits);
        self.replicas[replica].nodes = self.cluster.known_nodes();
        if was_cold {
            for vm in 0..self.replicas[replica].sides.len() {
                let under = &self.replicas[replica].sides[vm].under;
                let waiting = under.iter().filter(|(_, under)| **under == Under::Attachments).map(|(id, _)| *id);
                for id in waiting.collect::<Vec<_>>() {
                    self.replicas[replica].sides[vm].under.remove(&id);
                    self.step(replica, vm, Event::AttachmentsKnown(id));
                }
            }
        }
    }

    /// What was under way ends. Returns whether the step still waits for it.
    pub(super) fn ends(&mut self, replica: usize, vm: VmNo, id: Id) -> bool {
        self.replicas[replica].sides[vm].under.remove(&id).is_some()
    }

    /// One step of a VM in a process, and what it wants done.
    pub(super) fn step(&mut self, replica: usize, vm: VmNo, event: StepEvent) {
        if self.violation.is_some() {
            return;
        }
        self.note(|| format!("  replica {replica} node-{vm} <- {}", super::words::event(&event)));
        let (now, is_fast) = (self.mutant.clock(self.now), self.mutant == Mutant::FastClock);
        let none = LunReservations::Synced(BTreeMap::new());
        let Replica { memory, attachments, nodes, sides, .. } = &mut self.replicas[replica];
        let side = &mut sides[vm];
        let attachments = match self.mutant {
            Mutant::ForgetsReservations if *attachments != LunReservations::Cold => &none,
            Mutant::TrustsCold if *attachments == LunReservations::Cold => &none,
            _ => &*attachments,
        };
        let force_detach = if self.habits.forces { ForceDetach::StoppedVms } else { ForceDetach::Off };
        let env = Env { attachments, nodes, sizes: &self.sizes, force_detach };
        let state = side.state.get_or_insert_with(|| State::new(vm_id(vm)));
        if self.mutant == Mutant::LeadsAlways {
            (0..=now.as_secs()).step_by(3).for_each(|at| memory.request_arrived(Duration::from_secs(at)));
        }
        if let (Mutant::ForgetsSuspicions, Event::Requested { disk, .. }) = (self.mutant, &event) {
            memory.suspicions.shown(&vm_id(vm), disk, Duration::ZERO);
        }
        if self.mutant == Mutant::ForgetsWritesBefore {
            memory.suspicions = Suspicions::default();
        }
        let actions = state.step(memory, &env, now, event);
        let stage = super::words::stage(&state.stage);
        let wake = state.wake_at().map(|at| if is_fast { at / Mutant::FASTER } else { at });
        self.count(stage);
        for action in actions {
            self.busy(replica, vm);
            self.note(|| format!("  replica {replica} node-{vm} -> {}", super::words::action(&action)));
            for action in self.mutant.distort(&self.azure, &self.replicas[replica].sides[vm], vm, action) {
                self.carry_out(replica, vm, action);
            }
        }
        let judged = self.judge_under_way(replica, vm);
        self.judge(judged);
        let side = &mut self.replicas[replica].sides[vm];
        if side.state.as_ref().is_some_and(State::is_idle) && side.under.is_empty() && side.dropping == 0 {
            // Its task ends.
            side.state = None;
            side.wake = None;
            side.ended += 1;
            let permits = side.permits.len();
            if permits > 0 {
                self.judge(Err(format!("law 9 (permits): {permits} permits were neither used nor given back")));
            }
            return;
        }
        if wake != side.wake {
            side.wake = wake;
            if let Some(at) = wake {
                if at <= self.now && !is_fast {
                    self.judge(Err(format!("law 8 (livelock): node-{vm} wakes at once")));
                }
                self.at_process(at.max(self.now), replica, Happens::Wake(vm, at));
            }
        }
    }

    /// Counts an action. A VM that does too much in a minute is in a loop.
    fn busy(&mut self, replica: usize, vm: VmNo) {
        let minute = self.now.as_secs() / 60;
        let side = &mut self.replicas[replica].sides[vm];
        if minute != side.minute {
            (side.minute, side.actions) = (minute, 0);
        }
        side.actions += 1;
        let actions = side.actions;
        self.laws.most_actions = self.laws.most_actions.max(actions);
        if actions > super::laws::MOST_ACTIONS {
            self.judge(Err(format!("law 8 (livelock): node-{vm} does {actions} things in a minute")));
        }
    }
}
