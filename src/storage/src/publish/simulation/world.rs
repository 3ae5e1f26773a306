//! The cluster, the process and its requests.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
    sync::LazyLock,
    time::Duration,
};

use lazuli_engine::single::AzureFailure;
use lazuli_model::{
    ArmId, DiskId, Lun,
    fault::{Effect, Fault},
    node::{ClusterNodes, KnownNodes, Machine, Node},
    seeded::{Counts, Numbers},
};

use super::{INCIDENTS, Incident, Mutant, NATURAL, SETTLED, azure::Azure};
use crate::{
    dangling::{DetachUnused, NotDangling, SeenAttachments},
    gone::APART,
    inline_volume::InlineVolumes,
    list::{ResourceGroup, VolumeHandles},
    lun::{LunReservations, Reservation},
    publish::{
        Call, Cause, Done, Env, Event, Failure, Next, NodeMemory, Policy, Report, Request, SourceReader, State, Step,
        Why, WorkFailure,
    },
    source::Sources,
};
use lazuli_volume::AllowedResourceGroups;

/// A failed call of Azure's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::publish) struct AzureError(pub(super) Fault);

impl AzureFailure for AzureError {
    fn fault(&self) -> &Fault {
        &self.0
    }

    fn effect(&self) -> Effect {
        Effect::None
    }

    fn code(&self) -> &str {
        ""
    }
}

/// A failed request to a worker.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{fault:?}")]
pub(in crate::publish) struct WorkError {
    pub(super) fault: Fault,
    pub(super) not_dangling: Option<NotDangling>,
}

impl WorkFailure for WorkError {
    fn fault(&self) -> &Fault {
        &self.fault
    }

    fn not_dangling(&self) -> Option<&NotDangling> {
        self.not_dangling.as_ref()
    }
}

pub(super) type Told = Event<AzureError, WorkError>;

/// The names of the Nodes.
pub(super) const NODES: [&str; 4] = ["n0", "n1", "n2", "set000003"];
/// The driver's name.
pub(super) const DRIVER: &str = "disk.csi.azure.com";

pub(super) static DISK: LazyLock<DiskId> = LazyLock::new(|| DiskId::from(ArmId::disk("s", "g", "d").expect("an id")));

/// The machines. Node 1 has the name of the last one, and runs elsewhere.
pub(super) static MACHINES: LazyLock<[ArmId; 5]> = LazyLock::new(|| {
    let vm = |group: &str, name: &str| ArmId::virtual_machine("s", group, name).expect("an id");
    let instance =
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/set/virtualMachines/3";
    [vm("g", "n0"), vm("far", "vm-1"), vm("g", "vm-2"), instance.parse().expect("an id"), vm("g", "n1")]
});

static POLICY: LazyLock<Policy> = LazyLock::new(|| Policy {
    home: ResourceGroup { subscription: "s".into(), name: "g".into() },
    driver: Some(DRIVER.into()),
    detach_unused: DetachUnused::On,
    resource_groups: AllowedResourceGroups::Any,
    inline: InlineVolumes::Unclaimed,
    source: SourceReader::Absent,
});

/// What happens at a moment.
#[derive(Debug)]
pub(super) enum Then {
    Incident(Incident),
    /// A caller gives up.
    Leaves(u64),
    /// A call is looked at: by Azure, by a worker, by Kubernetes.
    Arrives(u64, Box<Call>, Duration),
    /// Its answer comes.
    Answered(u64, Box<Told>),
    /// A write that a worker has sent takes place. The answer goes to this request, if to any.
    Done {
        write: u64,
        to: Option<u64>,
    },
    /// The Nodes are known to the process of this number.
    Known(u64),
    /// The longest wait for the Nodes is over.
    WaitIsOver(u64),
}

/// A request, as the world sees it.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) state: State<WorkError>,
    pub(super) request: Request,
    pub(super) since: Duration,
    /// The node, where the request names one.
    pub(super) node: Option<usize>,
    /// Whether the process knew a Node of this name when it was asked.
    pub(super) node_was_known: bool,
    /// Which machines the process had seen it name.
    pub(super) saw: [bool; 5],
    /// Whether the API server was not heard when it was asked.
    pub(super) was_silent: bool,
    /// The machines to which attaches were sent.
    pub(super) attached: BTreeSet<usize>,
    pub(super) calls: u32,
    /// The Nodes are waited for.
    awaits_nodes: bool,
    /// The holders of the disk a while before it was asked.
    pub(super) holders: [bool; 5],
}

/// What the process remembers. It starts with nothing.
#[derive(Debug, Default)]
pub(super) struct Process {
    pub(super) number: u64,
    pub(super) since: Duration,
    pub(super) nodes: NodeMemory,
    pub(super) sources: Sources<Duration>,
    pub(super) seen: SeenAttachments,
    /// Which machines it has seen each Node name.
    pub(super) saw: [[bool; 5]; 4],
    /// Until when attaches whose answers it has lost may take place, by machine.
    pub(super) lost: BTreeMap<usize, Duration>,
}

/// What was true from a moment on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Truth {
    pub(super) at: Duration,
    pub(super) holds: [bool; 5],
    /// Machines that the process sees named, and by whom: Nodes are bits.
    pub(super) named: [u8; 5],
    pub(super) disk: bool,
    /// The Nodes that exist, as bits.
    pub(super) nodes: u8,
}

/// A write that a worker has sent.
#[derive(Debug, Clone)]
pub(super) struct Write {
    pub(super) vm: usize,
    /// The node of the request, where it names one.
    pub(super) node: Option<usize>,
    pub(super) attaches: bool,
    pub(super) sent_at: Duration,
    pub(super) only_if: Option<crate::dangling::Dangling>,
    /// Whether the disk is to be deleted.
    pub(super) for_deletion: bool,
    /// The process that has sent it.
    pub(super) by: u64,
    /// Whether its answer was lost.
    pub(super) is_lost: bool,
}

pub(super) struct World {
    pub(super) numbers: Numbers,
    pub(super) now: Duration,
    queue: BinaryHeap<Reverse<(Duration, u64)>>,
    thens: BTreeMap<u64, Then>,
    entries: u64,
    pub(super) azure: Azure,
    pub(super) process: Process,
    /// The Nodes of the API server: the machine that each names.
    pub(super) api: [Option<Option<usize>>; 4],
    /// The machine that a Node of this number has named last, also where it is deleted.
    pub(super) named_last: [Option<usize>; 4],
    /// The same when its last unpublish was answered.
    pub(super) unpublished_from: [Option<usize>; 4],
    /// The same as the process sees it.
    pub(super) view: ClusterNodes,
    pub(super) is_silent: bool,
    /// The VolumeAttachments: whether they name a LUN.
    pub(super) attachments: [Option<bool>; 4],
    reservations: LunReservations,
    /// What those were made from.
    reserved: Option<(bool, [Option<bool>; 4])>,
    /// Which nodes use the disk: a pod runs there.
    pub(super) uses: [bool; 4],
    pub(super) requests: BTreeMap<u64, Asked>,
    next_request: u64,
    pub(super) writes: BTreeMap<u64, Write>,
    pub(super) next_write: u64,
    pub(super) history: Vec<Truth>,
    /// When the last unpublish of each node was asked that was answered OK, unless a publish was asked since.
    pub(super) unpublished: [Option<Duration>; 4],
    /// The same of an unpublish from all nodes.
    pub(super) unpublished_all: Option<Duration>,
    pub(super) mutant: Option<Mutant>,
    pub(super) counts: Counts,
    pub(super) story: Option<Vec<String>>,
    broken: Option<String>,
}

impl World {
    pub(super) fn new(seed: u64, incidents: &[(u64, Incident)], mutant: Option<Mutant>, tells: bool) -> Self {
        let mut numbers = Numbers::new(seed ^ 0x9_0B11);
        let azure = Azure::new(&mut numbers);
        let mut world = Self {
            now: Duration::ZERO,
            queue: BinaryHeap::new(),
            thens: BTreeMap::new(),
            entries: 0,
            azure,
            process: Process::default(),
            api: [None; 4],
            named_last: [None; 4],
            unpublished_from: [None; 4],
            view: ClusterNodes::Known(KnownNodes::default()),
            is_silent: false,
            attachments: [None; 4],
            reservations: LunReservations::Synced(BTreeMap::new()),
            reserved: None,
            uses: [false; 4],
            requests: BTreeMap::new(),
            next_request: 1,
            writes: BTreeMap::new(),
            next_write: 1,
            history: Vec::new(),
            unpublished: [None; 4],
            unpublished_all: None,
            mutant,
            counts: Counts::new(),
            story: tells.then(Vec::new),
            broken: None,
            numbers: numbers.clone(),
        };
        for (node, machine) in NATURAL.into_iter().enumerate() {
            if !numbers.one_in(8) {
                world.azure.machines[machine].runs = Some(node);
                world.named_last[node] = (node == 1 || numbers.one_in(2)).then_some(machine);
                world.api[node] = Some(world.named_last[node]);
            }
        }
        world.relist();
        // A pod uses the disk on a node from the beginning.
        if numbers.one_in(2) {
            let node = usize::try_from(numbers.below(4)).expect("it is small");
            if world.api[node].is_some() {
                world.azure.hold(NATURAL[node], true);
                (world.attachments[node], world.uses[node]) = (Some(true), true);
            }
        }
        world.numbers = numbers;
        world.changed();
        for (at, incident) in incidents {
            world.at(Duration::from_millis(*at), Then::Incident(*incident));
        }
        world
    }

    pub(super) fn at(&mut self, at: Duration, then: Then) {
        self.entries += 1;
        self.queue.push(Reverse((at, self.entries)));
        self.thens.insert(self.entries, then);
    }

    pub(super) fn after_ms(&mut self, most: u64, then: Then) {
        let at = self.now + self.numbers.ms(most) + Duration::from_millis(1);
        self.at(at, then);
    }

    pub(super) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub(super) fn tell_story(&mut self, line: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            story.push(format!("{:>9} ms  {}", self.now.as_millis(), line()));
        }
    }

    pub(super) fn breaks(&mut self, law: impl Into<String>) {
        let law = law.into();
        self.tell_story(|| format!("BREAKS: {law}"));
        self.broken.get_or_insert(law);
    }

    pub(super) fn run(&mut self) -> Result<(), String> {
        let mut end = Duration::from_millis(INCIDENTS);
        while let Some(Reverse((at, entry))) = self.queue.pop() {
            self.now = at;
            let then = self.thens.remove(&entry).expect("it was queued");
            if matches!(then, Then::Incident(_)) {
                end = at;
            }
            self.happens(then);
            if let Some(broken) = &self.broken {
                return Err(broken.clone());
            }
            if let Some(asked) = self.requests.values().find(|asked| self.now > end.max(asked.since) + SETTLED) {
                return Err(format!(
                    "law 4: a request waits since {} ms: {:?}",
                    asked.since.as_millis(),
                    asked.request
                ));
            }
        }
        match self.requests.values().next() {
            Some(asked) => Err(format!("law 4: nothing is left to happen, and a request waits: {:?}", asked.request)),
            None => Ok(()),
        }
    }

    fn happens(&mut self, then: Then) {
        match then {
            Then::Incident(incident) => self.incident(incident),
            Then::Leaves(id) => {
                if self.requests.remove(&id).is_some() {
                    self.count("caller gave up");
                    self.tell_story(|| format!("the caller of {id} gives up"));
                }
            }
            Then::Arrives(id, call, sent_at) => self.arrives(id, *call, sent_at),
            Then::Answered(id, event) => self.told(id, *event),
            Then::Done { write, to } => self.done(write, to),
            Then::Known(process) => {
                if self.process.number == process {
                    self.relist();
                    let waiting: Vec<u64> =
                        self.requests.iter().filter(|(_, asked)| asked.awaits_nodes).map(|(id, _)| *id).collect();
                    for id in waiting {
                        self.nodes_awaited(id);
                    }
                }
            }
            Then::WaitIsOver(id) => self.nodes_awaited(id),
        }
    }

    fn nodes_awaited(&mut self, id: u64) {
        if let Some(asked) = self.requests.get_mut(&id)
            && std::mem::take(&mut asked.awaits_nodes)
        {
            self.told(id, Event::NodesAwaited);
        }
    }

    /// Notes what is true now.
    pub(super) fn changed(&mut self) {
        let named = std::array::from_fn(|vm| {
            let names = self.view.names_of(&MACHINES[vm]);
            (0..4).filter(|node| names.contains(&NODES[*node])).fold(0, |bits, node| bits | 1 << node)
        });
        let nodes = (0..4).filter(|node| self.api[*node].is_some()).fold(0, |bits, node| bits | 1 << node);
        let truth = Truth { at: self.now, holds: self.azure.holders(), named, disk: self.azure.disk.is_some(), nodes };
        self.history.push(truth);
        for (vm, bits) in named.into_iter().enumerate() {
            for node in (0..4).filter(|node| bits & 1 << node != 0) {
                self.process.saw[node][vm] = true;
            }
        }
        let now = (self.view == ClusterNodes::Cold, self.attachments);
        if self.reserved == Some(now) {
            return;
        }
        self.reserved = Some(now);
        let reservation = |node: usize| Reservation {
            lun: Lun::try_from(0).expect("a LUN"),
            volume_handle: Some(DISK.to_string()),
            attachment: format!("csi-{node}"),
        };
        self.reservations = match self.view {
            ClusterNodes::Cold => LunReservations::Cold,
            _ => LunReservations::Synced(
                (0..4)
                    .filter(|node| self.attachments[*node] == Some(true))
                    .map(|node| (NODES[node].to_owned(), vec![reservation(node)]))
                    .collect(),
            ),
        };
    }

    fn node(&self, node: usize) -> Option<Node> {
        let machine = self.api[node]?.and_then(|vm| Machine::of_id(MACHINES[vm].clone()));
        Some(Node { machine, healthy: true, ..Node::default() })
    }

    /// The process lists all Nodes.
    fn relist(&mut self) {
        let mut known = match std::mem::take(&mut self.view) {
            ClusterNodes::Known(known) => known,
            ClusterNodes::Cold | ClusterNodes::NoCluster => KnownNodes::default(),
        };
        known.replace((0..4).filter_map(|node| Some((NODES[node].to_owned(), self.node(node)?))));
        self.view = ClusterNodes::Known(known);
        self.is_silent = false;
        self.changed();
    }

    /// A Node has changed.
    fn node_changed(&mut self, node: usize) {
        let now = self.node(node);
        let hears = !self.is_silent;
        let is_ghost = self.mutant == Some(Mutant::GhostNodes) && now.is_none();
        if let (ClusterNodes::Known(known), true, false) = (&mut self.view, hears, is_ghost) {
            match now {
                Some(now) => drop(known.apply(NODES[node], now)),
                None => drop(known.remove(NODES[node])),
            }
        }
        self.changed();
    }

    fn incident(&mut self, incident: Incident) {
        self.tell_story(|| format!("{incident:?}"));
        match incident {
            Incident::Publish { node, patience } => {
                if self.api[node].is_some() && !self.numbers.one_in(10) {
                    self.attachments[node].get_or_insert(false);
                    self.changed();
                }
                let request = Request::Publish { disk: DISK.clone(), node: NODES[node].to_owned(), caching: None };
                (self.unpublished[node], self.unpublished_all) = (None, None);
                self.ask(request, Some(node), patience);
            }
            Incident::Unpublish { node, patience } => {
                // The pod has ended.
                self.uses[node] = false;
                let request = Request::Unpublish { disk: DISK.clone(), node: Some(NODES[node].to_owned()) };
                self.ask(request, Some(node), patience);
            }
            Incident::UnpublishAll => {
                self.uses = [false; 4];
                self.ask(Request::Unpublish { disk: DISK.clone(), node: None }, None, u64::MAX);
            }
            Incident::Delete => self.ask(Request::Delete { disk: DISK.clone() }, None, u64::MAX),
            Incident::Make => self.azure.make(),
            Incident::DeleteNode(node) if self.api[node].is_some() => {
                self.count(if self.is_silent { "node deleted unseen" } else { "node deleted" });
                self.api[node] = None;
                self.node_changed(node);
            }
            Incident::MakeNode { node, machine, named } if self.azure.machines[machine].exists => {
                if machine != NATURAL[node] {
                    self.count("node made again elsewhere");
                }
                self.azure.machines[machine].runs = Some(node);
                self.api[node] = Some(named.then_some(machine));
                self.named_last[node] = named.then_some(machine);
                self.node_changed(node);
            }
            Incident::Claim { node, machine } if self.api[node].is_some() => {
                self.count("node claimed");
                self.api[node] = Some(Some(machine));
                self.named_last[node] = Some(machine);
                self.node_changed(node);
            }
            Incident::DeleteMachine(vm) if self.azure.machines[vm].exists => {
                self.count("machine deleted");
                if let Some(node) = self.azure.machines[vm].runs {
                    self.uses[node] = false;
                }
                self.azure.delete_machine(vm);
            }
            Incident::MakeMachine(vm) => self.azure.machines[vm].exists = true,
            Incident::Hide(vm, ms) if self.azure.machines[vm].exists => self.hide(vm, ms),
            Incident::Silence => {
                self.is_silent = true;
                if let ClusterNodes::Known(known) = &mut self.view {
                    known.set_current(false);
                }
            }
            Incident::Relist if self.view != ClusterNodes::Cold => self.relist(),
            Incident::Restart(ms) => self.restart(ms),
            Incident::Attach(vm) if self.azure.machines[vm].exists && self.azure.may_hold(vm) => {
                self.count("person attached");
                self.azure.hold(vm, false);
            }
            Incident::Detach(vm) => self.azure.release(vm),
            Incident::ForgetAttachment(node) => self.attachments[node] = None,
            _ => {}
        }
        self.changed();
    }

    /// A machine is hidden once. Where that is for longer than two reads stand apart, it is hidden from single reads alone.
    fn hide(&mut self, vm: usize, ms: u64) {
        if self.azure.machines[vm].hidden_until.is_none() {
            let hidden_for = Duration::from_millis(ms);
            let is_listed = hidden_for >= APART;
            self.count(if is_listed { "machine hidden from single reads" } else { "machine hidden" });
            let machine = &mut self.azure.machines[vm];
            (machine.hidden_until, machine.is_listed) = (Some(self.now + hidden_for), is_listed);
        }
    }

    fn restart(&mut self, ms: u64) {
        self.count("process started anew");
        let number = self.process.number + 1;
        self.process = Process { number, since: self.now, ..Process::default() };
        self.requests.clear();
        self.view = ClusterNodes::Cold;
        self.is_silent = true;
        self.at(self.now + Duration::from_millis(ms), Then::Known(number));
    }

    fn ask(&mut self, request: Request, node: Option<usize>, patience: u64) {
        let id = self.next_request;
        self.next_request += 1;
        if patience < u64::MAX {
            self.at(self.now + Duration::from_millis(patience), Then::Leaves(id));
        }
        let asked = Asked {
            state: State::new(request.clone(), self.now),
            request,
            since: self.now,
            node,
            node_was_known: node.is_some_and(|node| self.view.has_node(NODES[node])),
            saw: node.map_or([false; 5], |node| self.process.saw[node]),
            was_silent: self.is_silent,
            attached: BTreeSet::new(),
            calls: 0,
            awaits_nodes: false,
            holders: self.holders_before(Duration::from_secs(5)),
        };
        self.requests.insert(id, asked);
        self.told(id, Event::Begun);
    }

    fn holders_before(&self, before: Duration) -> [bool; 5] {
        let at = self.now.saturating_sub(before);
        self.history.iter().rev().find(|truth| truth.at <= at).map_or([false; 5], |truth| truth.holds)
    }

    /// An event reaches a request.
    pub(super) fn told(&mut self, id: u64, event: Told) {
        let Some(mut asked) = self.requests.remove(&id) else { return };
        self.tell_story(|| format!("{id}: {event:?}"));
        let writes: Vec<usize> = self.writes_of(self.process.number).map(|write| write.vm).collect();
        let none = LunReservations::Synced(BTreeMap::new());
        let no_attachments = self.mutant == Some(Mutant::NoAttachments);
        let own = self.mutant == Some(Mutant::OwnAttachments);
        if let (true, Event::Disk(Ok(read))) = (own, &event) {
            let holders: Vec<ArmId> = read.0.holders().into_iter().cloned().collect();
            for holder in holders {
                self.process.seen.attached(&DISK, &holder, read.0.ownership_changed);
            }
        }
        let mut env = Env {
            policy: &POLICY,
            cluster: &self.view,
            attachments: if no_attachments { &none } else { &self.reservations },
            handles: &VolumeHandles::NoCluster,
            is_occupied: !writes.is_empty() && self.mutant != Some(Mutant::NeverOccupied),
            is_requested_on: &|vm| writes.iter().any(|write| MACHINES[*write] == *vm),
            nodes: &mut self.process.nodes,
            sources: &mut self.process.sources,
            seen_attachments: &mut self.process.seen,
        };
        let Step { reports, next } = asked.state.step(&mut env, self.now, event);
        for report in reports {
            self.tell_story(|| format!("{id}:   {report:?}"));
            match report {
                Report::MachineGone => self.count("machine is gone"),
                Report::KeptDangling { why, .. } if why.contains("has no spec.providerID") => {
                    self.count("kept: a Node names no machine");
                }
                Report::Freed { .. } => self.count("detached as dangling"),
                _ => {}
            }
        }
        match next {
            Next::Call(call) => {
                self.tell_story(|| format!("{id}:   {call:?}"));
                asked.calls += 1;
                if asked.calls > 100 {
                    self.breaks("law 4: a request makes a hundred calls");
                }
                self.sends(id, asked, call);
            }
            Next::Done(outcome) => {
                self.tell_story(|| format!("{id}:   {outcome:?}"));
                self.ended(asked, outcome);
            }
        }
    }

    fn sends(&mut self, id: u64, mut asked: Asked, call: Call) {
        if let Call::Work { vm, goal, only_if, .. } = &call {
            self.judge_work(&mut asked, vm, *goal, only_if.is_some());
        }
        match &call {
            Call::AwaitNodes(longest) => {
                if self.view == ClusterNodes::Cold {
                    asked.awaits_nodes = true;
                    self.at(self.now + *longest, Then::WaitIsOver(id));
                } else {
                    self.at(self.now, Then::Answered(id, Box::new(Event::NodesAwaited)));
                }
            }
            Call::FindInstance(_) => self.count("searched"),
            _ => {}
        }
        self.requests.insert(id, asked);
        if !matches!(call, Call::AwaitNodes(_)) {
            self.send(id, call);
        }
    }

    fn ended(&mut self, asked: Asked, outcome: Result<Done, Failure<AzureError, WorkError>>) {
        let outcome = match (outcome, self.mutant, &asked.request) {
            (Err(_), Some(Mutant::UnpublishAlways), Request::Unpublish { .. }) => Ok(Done::Unpublished),
            (Err(_), Some(Mutant::PublishAlways), Request::Publish { .. }) => {
                Ok(Done::Published { lun: Lun::try_from(0).expect("a LUN"), source: None })
            }
            (outcome, ..) => outcome,
        };
        match outcome {
            Ok(done) => self.answered(&asked, &done),
            Err(failure) => {
                let what = match &*failure.cause {
                    Cause::Refused(_, Why::MayBeAttached { .. }) => "kept: may be attached",
                    Cause::Refused(_, Why::UsedByOthers { .. }) => "kept: used by others",
                    Cause::Refused(_, Why::MayBeAttaching { .. }) => "refused: may be attaching",
                    Cause::Refused(_, Why::SharedMachine { .. }) => "refused: shared machine",
                    Cause::Refused(_, Why::Occupied(_)) => "occupied",
                    Cause::Refused(_, Why::NotOfCluster { .. }) => "of no Node",
                    Cause::Work(WorkError { fault: Fault::AttachedElsewhere { .. }, .. })
                        if !failure.added.is_empty() =>
                    {
                        "kept: used there"
                    }
                    Cause::Work(WorkError { fault: Fault::AttachedElsewhere { .. }, .. }) => "held elsewhere",
                    Cause::Refused(..) | Cause::Azure(..) | Cause::Work(_) => "failed",
                };
                self.count(what);
            }
        }
    }
}
