//! Runs the steps of VMs' data disks ([`lazuli_vm_disks`]): a task for each VM of which something is requested.
//!
//! It chooses nothing. A caller's request goes into the mailbox of its VM, and the step decides; what the step wants done is
//! a call of Azure's client here ([`VmDisks::carry_out`]). A VM's task ends when nothing is requested any more. Requests to
//! Azure run inside the task, so a write outlives its callers.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::future::{BoxFuture, join, join_all};
use lazuli_azure::{
    compute::{Freshness, Snapshot},
    error::ArmError,
    permits::Permit,
};
use lazuli_engine::{Awaited, Id};
use lazuli_journal::{Key, Note, Recorder};
use lazuli_model::{
    ArmId, Disk, DiskId, Vm,
    event::{self, Reason, Regarding},
    fault::{Effect, Fault},
    op::VmWrite,
    size::SizeLimits,
};
use lazuli_quota::{
    permit::Priority,
    read::{Accept, By, Seen},
};
use lazuli_reconcile::{Clock, Droppable, Kind, Workers, metrics::Metrics};
pub(crate) use lazuli_storage::attach::Goal;
use lazuli_storage::{dangling::Dangling, force_detach::ForceDetach, lun::LunReservations, source::VmVersion};
use lazuli_telemetry::lossy;
use lazuli_vm_disks::{Action, Caller, DiskSeen, Env, Event, Memory, Report, State, VmRead};
use tokio::{
    sync::{oneshot, watch},
    time::Instant,
};
use tracing::{error, info, warn};
use words::volume_error;

use super::{
    Nodes, VolumeError, client::Client, cluster_snapshot::ClusterSnapshot, error::Answer, occupied::Hold as DiskHold,
};

mod notes;
mod words;

/// What a caller gets: the LUN of an attached disk, nothing for a detached one.
pub(crate) type Outcome = Result<Option<lazuli_model::Lun>, VolumeError>;

/// The data disks of all VMs. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct VmWorkers {
    kind: Arc<VmDisks>,
    workers: Workers<VmDisks>,
}

/// What the adapter of all VMs needs.
pub(crate) struct VmDisks {
    client: Client,
    nodes: Nodes,
    reservations: ClusterSnapshot<LunReservations>,
    sizes: watch::Receiver<SizeLimits>,
    policy: Policy,
    clock: Clock,
    memory: Mutex<Memory>,
    /// How many requests there are, by VM and disk.
    requested: Arc<Mutex<BTreeMap<(ArmId, DiskId), usize>>>,
    callers: AtomicU64,
    journal: Recorder,
}

/// Where it is noted what is done.
#[derive(Debug)]
pub(crate) struct Notes {
    pub(crate) metrics: Metrics,
    pub(crate) journal: Recorder,
}

/// Whether disks may be detached by force, and where that is reported.
#[derive(Debug)]
pub(crate) struct Policy {
    pub(crate) force_detach: ForceDetach,
    pub(crate) events: lossy::Sender<event::Event>,
}

/// What keeps a disk from being changed as a whole, and says that it is requested on a VM, until the request is answered.
#[derive(Debug)]
pub(crate) struct Hold {
    _disk: DiskHold,
    requested: Arc<Mutex<BTreeMap<(ArmId, DiskId), usize>>>,
    of: (ArmId, DiskId),
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut requested = lock(&self.requested);
        if let Some(count) = requested.get_mut(&self.of) {
            *count -= 1;
        }
        requested.retain(|_, count| *count > 0);
    }
}

/// Every change under such a lock is complete, so a panic elsewhere leaves what it guards consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl VmWorkers {
    pub(crate) fn new(
        client: Client,
        nodes: Nodes,
        reservations: ClusterSnapshot<LunReservations>,
        sizes: watch::Receiver<SizeLimits>,
        memory: Memory,
        policy: Policy,
        notes: Notes,
    ) -> Self {
        let Notes { metrics, journal } = notes;
        let clock = client.clock();
        let kind = Arc::new(VmDisks {
            client,
            nodes,
            reservations,
            sizes,
            policy,
            clock,
            memory: Mutex::new(memory),
            requested: Arc::default(),
            callers: AtomicU64::new(0),
            journal: journal.clone(),
        });
        Self { workers: Workers::with_journal(kind.clone(), clock, metrics, journal), kind }
    }

    /// A read's time on the clock of the steps.
    pub(crate) fn seen(&self, seen: Seen<Instant>) -> Seen<Duration> {
        by_clock(self.kind.clock, seen)
    }

    /// What is remembered of all VMs.
    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        lock(&self.kind.memory)
    }

    /// Records what a disk was made from that has been created and was read singly since `requested_at`.
    pub(crate) fn created(&self, disk: &Disk, requested_at: Instant) {
        let seen = self.kind.seen(Seen { by: By::Single, sent_at: requested_at });
        self.memory().sources.learn_before_attach(&disk.clone().into(), seen);
    }

    /// The clock of the steps.
    pub(crate) fn clock(&self) -> Clock {
        self.kind.clock
    }

    /// From when on reads show everything that the leader before has written. A request has arrived.
    pub(crate) fn fresh_from(&self) -> Option<Duration> {
        let mut memory = self.memory();
        memory.request_arrived(self.kind.clock.now());
        memory.fresh_from()
    }

    /// Until when an attach of the disk to the VM of a node may be under way of which Azure shows nothing.
    pub(crate) fn late_attach(&self, vm: &ArmId, node: &str, disk: &DiskId) -> Option<Duration> {
        let attachments = self.kind.reservations.now();
        self.memory().late_attach(&attachments, vm, &[node], disk, self.kind.clock.now())
    }

    /// Whether an attach or detach of the disk on this VM is requested or under way.
    pub(crate) fn is_requested(&self, vm: &ArmId, disk: impl Into<DiskId>) -> bool {
        lock(&self.kind.requested).contains_key(&(vm.clone(), disk.into()))
    }

    /// Forgets a disk that has been deleted.
    pub(crate) fn forget(&self, disk: &DiskId) {
        self.memory().forget(disk);
    }

    /// Requests the attach of a disk to a VM or its detach from it, and waits for the outcome.
    ///
    /// # Errors
    /// Those of [`Self::work`].
    #[cfg(test)]
    pub(crate) async fn request(&self, vm: &ArmId, node: &str, disk: &ArmId, goal: Goal, hold: DiskHold) -> Outcome {
        self.work(vm, node, &disk.into(), goal, None, hold).await
    }

    /// Requests the attach of a disk to a VM or its detach from it, if wanted for one attachment alone, and waits for the
    /// outcome.
    ///
    /// # Errors
    /// [`Fault::Busy`] while the opposite is requested of the disk on this VM, or in flight; one that says why the disk is
    /// not, or not any more, to be detached for that attachment. Otherwise the failure of the write.
    pub(crate) async fn work(
        &self,
        vm: &ArmId,
        node: &str,
        disk: &DiskId,
        goal: Goal,
        only_if: Option<Dangling>,
        hold: DiskHold,
    ) -> Outcome {
        let caller = self.kind.callers.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        let hold = self.kind.hold(vm, disk, hold);
        let request = Request { caller, node: node.to_owned(), disk: disk.clone(), goal, only_if, hold, answer };
        let left = VmEvent::Step(Event::Abandoned(caller));
        let outcome = self.workers.ask(vm, VmEvent::Requested(Box::new(request)), left, answered).await;
        outcome.unwrap_or_else(|| {
            let message = format!("{disk} on node {node}: the work on it was broken off");
            Err(VolumeError::new(Fault::OutcomeUnknown, message).with_effect(Effect::Possible))
        })
    }
}

/// A caller's request.
pub(crate) struct Request {
    caller: Caller,
    node: String,
    disk: DiskId,
    goal: Goal,
    only_if: Option<Dangling>,
    hold: Hold,
    answer: oneshot::Sender<Outcome>,
}

/// What happens to a VM, with what its adapter keeps of it.
pub(crate) enum VmEvent {
    /// For the step alone.
    Step(Event<Answer>),
    /// A request, with its caller.
    Requested(Box<Request>),
    /// A read of the VM, with what Azure said. Whether a write may name it.
    VmRead(Id, bool, Result<Box<Snapshot<Vm>>, ArmError>),
    /// A permit.
    Permitted(Id, Permit),
    /// A bug of this program.
    #[cfg(test)]
    Panic,
}

/// The hold of a request, and its callers.
struct Held {
    _hold: Hold,
    callers: Vec<Caller>,
}

/// The facts of one VM, and what belongs to the ids that the step uses.
#[derive(Default)]
pub(crate) struct VmState {
    step: Option<State<Answer>>,
    answers: BTreeMap<Caller, oneshot::Sender<Outcome>>,
    /// By disk of a request.
    holds: BTreeMap<DiskId, Held>,
    permits: BTreeMap<Id, Permit>,
    /// The last read that a write may name.
    snapshot: Option<(Id, Box<Snapshot<Vm>>)>,
    /// What can be dropped.
    running: Droppable,
}

impl fmt::Debug for VmDisks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VmDisks").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl VmDisks {
    fn hold(&self, vm: &ArmId, disk: &DiskId, hold: DiskHold) -> Hold {
        let of = (vm.clone(), disk.clone());
        *lock(&self.requested).entry(of.clone()).or_default() += 1;
        Hold { _disk: hold, requested: self.requested.clone(), of }
    }

    /// A read's time on the clock of the steps.
    fn seen(&self, seen: Seen<Instant>) -> Seen<Duration> {
        by_clock(self.clock, seen)
    }

    fn vm_read(&self, read: &Snapshot<Vm>) -> VmRead {
        VmRead {
            vm: Vm { etag: read.etag.clone(), ..read.model.clone() },
            version: VmVersion { machine: read.machine_id().map(str::to_owned), etag: read.etag.clone() },
            seen: self.seen(read.seen),
            answered: read.answered,
        }
    }

    /// Keeps what the step does not see, and returns what it sees.
    fn keep(&self, state: &mut VmState, event: VmEvent) -> Event<Answer> {
        match event {
            VmEvent::Step(event) => {
                match &event {
                    Event::DisksRead(id, _)
                    | Event::ViewRead(id, _)
                    | Event::PermitFailed(id, _)
                    | Event::AttachmentsKnown(id) => state.running.ended(*id),
                    // No outcome goes to it.
                    Event::Abandoned(caller) => drop(state.answers.remove(caller)),
                    _ => {}
                }
                event
            }
            VmEvent::Requested(request) => {
                let Request { caller, node, disk, goal, only_if, hold, answer } = *request;
                state.answers.insert(caller, answer);
                // A caller that joins needs no hold of its own.
                let held = state.holds.entry(disk.clone()).or_insert(Held { _hold: hold, callers: Vec::new() });
                held.callers.push(caller);
                Event::Requested { caller, node, disk, goal, only_if }
            }
            VmEvent::VmRead(id, keep, read) => {
                state.running.ended(id);
                let seen =
                    read.as_ref().map(|read| Box::new(self.vm_read(read))).map_err(|error| Answer(error.clone()));
                if let (true, Ok(read)) = (keep, read) {
                    state.snapshot = Some((id, read));
                }
                Event::VmRead(id, seen)
            }
            VmEvent::Permitted(id, permit) => {
                state.running.ended(id);
                state.permits.insert(id, permit);
                Event::Permitted(id)
            }
            #[cfg(test)]
            VmEvent::Panic => panic!("a slot was given twice"),
        }
    }

    /// Notes what the disks of a VM's requests wait for, of which a caller waits.
    fn note_waits(&self, vm: &ArmId, state: &VmState, awaited: Awaited) {
        let waits = |caller: &Caller| state.answers.get(caller).is_some_and(|answer| !answer.is_closed());
        let waiting = state.holds.iter().filter(|(_, held)| held.callers.iter().any(waits));
        notes::waits(&self.journal, vm, waiting.map(|(disk, _)| disk), awaited);
    }

    async fn read_disks(
        client: Client,
        clock: Clock,
        disks: Vec<DiskId>,
        freshness: Freshness,
    ) -> Vec<(DiskId, Result<DiskSeen, Answer>)> {
        join_all(disks.into_iter().map(|disk| {
            let client = client.clone();
            async move {
                let read = client.read_any_disk(&disk, freshness).await;
                let read = read.map(|(disk, seen)| DiskSeen { seen: by_clock(clock, seen), disk });
                (disk, read)
            }
        }))
        .await
    }

    /// Tells people.
    fn report(&self, node: &str, report: Report) {
        let Some(regarding) = Regarding::of_node(node) else { return };
        let (reason, what) = match report {
            Report::Forced(disk) => (
                Reason::ForceDetached,
                format!(
                    "Disk {} was detached by force from this node, whose VM is stopped, after its ordinary detach had failed",
                    disk.name()
                ),
            ),
            Report::Vanished(lun) => {
                error!(%lun, node, "a data disk that this write did not name is gone from the VM since it was read");
                let what = format!(
                    "The data disk at LUN {lun} is gone from this node since its VM was read, although the write of the VM \
                     did not name it"
                );
                (Reason::DataDiskVanished, what)
            }
        };
        self.policy.events.send(event::Event::new(regarding, reason, what));
    }
}

impl VmState {
    /// A future that the step may drop.
    fn droppable(
        &mut self,
        id: Id,
        future: impl Future<Output = VmEvent> + Send + 'static,
    ) -> Option<BoxFuture<'static, VmEvent>> {
        self.running.run(id, future, VmDisks::woke)
    }

    fn node(&self) -> &str {
        self.step.as_ref().map_or("", State::node)
    }
}

/// A read's time on the clock of the steps.
fn by_clock(clock: Clock, seen: Seen<Instant>) -> Seen<Duration> {
    Seen { by: seen.by, sent_at: clock.since(seen.sent_at) }
}

/// A read of this place in the queue; `None` for that of a read.
fn freshness(accept: Accept, priority: Option<Priority>) -> Freshness {
    let freshness = Freshness { accept, ..Freshness::single() };
    priority.map_or(freshness, |priority| freshness.priority(priority))
}

impl Kind for VmDisks {
    type Key = ArmId;
    type State = VmState;
    type Event = VmEvent;
    type Action = Action<Answer>;

    const NAME: &'static str = "vm";

    fn woke() -> VmEvent {
        VmEvent::Step(Event::Woke)
    }

    fn drain() -> VmEvent {
        VmEvent::Step(Event::Woke)
    }

    /// The work ends when every caller is answered.
    fn is_drained(_: &Action<Answer>) -> bool {
        false
    }

    fn action_name(action: &Action<Answer>) -> &'static str {
        match action {
            Action::Answer { .. } => "answer",
            Action::ReadVm { .. } => "read_vm",
            Action::ReadDisks { .. } => "read_disks",
            Action::ReadView(..) => "read_instance_view",
            Action::TryPermit(..) | Action::TakePermit(..) => "take_permit",
            Action::ReleasePermit(_) => "release_permit",
            Action::Write { .. } => "write",
            Action::AwaitAttachments(_) => "await_attachments",
            Action::Drop(_) => "drop",
            Action::Report(_) => "report",
        }
    }

    fn step(&self, vm: &ArmId, state: &mut VmState, now: Duration, event: VmEvent) -> Vec<Action<Answer>> {
        let event = self.keep(state, event);
        let (attachments, nodes, sizes) = (self.reservations.now(), self.nodes.cluster(), self.sizes.borrow());
        let force_detach = self.policy.force_detach;
        let env = Env { attachments: &attachments, nodes: &nodes, sizes: &sizes, force_detach };
        let step = state.step.get_or_insert_with(|| State::new(vm.clone()));
        let (before, asks) = (step.awaited(), matches!(event, Event::Requested { .. }));
        let actions = step.step(&mut lock(&self.memory), &env, now, event);
        let awaited = step.awaited();
        // Before the answers, because their callers may ask for something else of the disk.
        state.holds.retain(|disk, _| step.is_requested(disk));
        if awaited != before || asks {
            self.note_waits(vm, state, awaited);
        }
        actions
    }

    fn wake_at(&self, state: &VmState) -> Option<Duration> {
        state.step.as_ref()?.wake_at()
    }

    fn is_idle(&self, state: &VmState) -> bool {
        state.step.as_ref().is_none_or(State::is_idle)
    }

    fn carry_out(
        &self,
        vm: &ArmId,
        state: &mut VmState,
        action: Action<Answer>,
    ) -> Option<BoxFuture<'static, VmEvent>> {
        let (client, clock, vm) = (self.client.clone(), self.clock, vm.clone());
        match action {
            Action::Answer { caller, disk, outcome } => {
                let name_of = |vm: &ArmId| self.nodes.name_of(vm);
                let outcome = outcome.map_err(|failure| volume_error(failure, &disk, state.node(), name_of));
                if let Some(answer) = state.answers.remove(&caller) {
                    // A caller that has given up gets no outcome. The write happened all the same.
                    _ = answer.send(outcome);
                }
                None
            }
            Action::ReadVm { id, accept, priority, keep } => state.droppable(id, async move {
                let read = client.read_vm(&vm, freshness(accept, priority)).await;
                VmEvent::VmRead(id, keep, read.map(Box::new))
            }),
            Action::ReadDisks { id, singly, listed, priority } => state.droppable(id, async move {
                let by = |disks, accept| Self::read_disks(client.clone(), clock, disks, freshness(accept, priority));
                let (mut reads, listed) = join(by(singly, Accept::Single), by(listed, Accept::List)).await;
                reads.extend(listed);
                VmEvent::Step(Event::DisksRead(id, reads))
            }),
            Action::ReadView(id, priority) => state.droppable(id, async move {
                let view = client.instance_view(&vm, priority).await.map_err(Answer);
                VmEvent::Step(Event::ViewRead(id, view))
            }),
            Action::TryPermit(id, priority) => {
                let event = match client.try_permit(&vm, priority) {
                    Some(permit) => VmEvent::Permitted(id, permit),
                    None => VmEvent::Step(Event::NotPermitted(id)),
                };
                Some(Box::pin(async move { event }))
            }
            Action::TakePermit(id, priority) => state.droppable(id, async move {
                match client.permit(&vm, priority).await {
                    Ok(permit) => VmEvent::Permitted(id, permit),
                    Err(error) => VmEvent::Step(Event::PermitFailed(id, Answer(error))),
                }
            }),
            Action::ReleasePermit(id) => {
                state.permits.remove(&id);
                None
            }
            Action::Write { id, observation, write, method, priority, permit } => {
                let read = state.snapshot.as_ref().filter(|(read, _)| *read == observation);
                let (_, read) = read.expect("a step names the last read that it was given").clone();
                let permit = permit.and_then(|permit| state.permits.remove(&permit));
                notes::write_is_sent(&self.journal, &vm, &write, method);
                let journal = self.journal.clone();
                Some(Box::pin(async move {
                    let written = client.write_vm(&read, &write, method, priority, permit).await;
                    log(&write, &written);
                    notes::write_has_ended(&journal, &vm, &write, &written);
                    let written = written.map(|accepted| clock.since(accepted)).map_err(Answer);
                    VmEvent::Step(Event::Written(id, written))
                }))
            }
            Action::AwaitAttachments(id) => {
                let reservations = self.reservations.clone();
                state.droppable(id, async move {
                    reservations.known().await;
                    VmEvent::Step(Event::AttachmentsKnown(id))
                })
            }
            Action::Drop(id) => {
                state.running.drop(id);
                None
            }
            Action::Report(report) => {
                self.report(state.node(), report);
                None
            }
        }
    }

    fn journal_key(vm: &ArmId) -> Option<Key<'_>> {
        Some(Key::vm(vm))
    }

    fn note_of_event(event: &VmEvent) -> Option<Note<'_>> {
        notes::of_event(event)
    }

    fn note_of_action(action: &Action<Answer>) -> Option<Note<'_>> {
        match action {
            Action::Write { write, method, .. } => Some(notes::sends(write, *method).into()),
            _ => None,
        }
    }

    fn awaited(&self, state: &VmState, _: Duration) -> Option<Awaited> {
        state.step.as_ref().map(State::awaited)
    }

    /// The callers learn it by their answers, which are dropped with the state.
    fn broken_off(&self, _: &ArmId) {}
}

fn log(write: &VmWrite, written: &Result<Instant, ArmError>) {
    let (attached, detached, reapplied) = (write.attach.len(), write.detach.len(), write.reapply.len());
    match written {
        Ok(_) if write.force.is_empty() => info!(attached, reapplied, detached, "data disks written"),
        Ok(_) => warn!(attached, reapplied, detached, forced = write.force.len(), "data disks written"),
        Err(error) => warn!(%error, attached, reapplied, detached, "a write of data disks failed"),
    }
}

#[cfg(test)]
mod tests;
