//! The VM worker: the one writer of a VM's data disks, however many callers.
//!
//! ```text
//!            request                  no request for 25 ms
//!   (none) ───────────▶ gathering ───────────────────────────▶ planning
//!      ▲                    ▲                                     │ one write, or none
//!      │ queue empty        │ more requests, or a retry           ▼
//!      └────────────────────┴──────────────── verifying ◀──── writing
//! ```
//!
//! - A caller only waits. A request whose callers give up before its write is sent leaves the batch. After that the
//!   write goes on, and a repeated request joins it.
//! - While a write is in flight, requests collect for the next write. An idle worker waits until a burst of requests
//!   has ended, so that a burst costs one write.
//! - The worker reads the VM before each write and again after it. It answers with what Azure then says, never with
//!   what was requested.
//! - [`attach::plan`] and [`attach::confirm`] decide which read answers which request. The worker reads what they ask
//!   for, and a read answers only the callers that came before it was sent ([`queue::Queue::resolve`]).
//! - A worker that waits for the permit to write reads the VM again when the permit has come. It keeps the terms of the
//!   attaches that it read before the wait ([`disks::DiskReads`]).
//! - One failing disk of a batch fails alone ([`lazuli_storage::attach::Bisection`]). A caller never gets the failure of
//!   another caller's disk ([`answers`]).
//! - A request that needs no write is answered during a pause, during another writer's write, and during a bisection
//!   ([`waits`]).
//! - The detach of an unused disk is for one attachment alone. The worker reads the disk again before it sends that detach
//!   ([`conditions`]).
//! - A disk whose ordinary detach failed is detached by force from a VM that is proved stopped, where the operator has
//!   allowed it ([`forced`]).
//! - The worker applies the VM's model again when a failed attach has left a stale data disk in it, and removes the
//!   disk from the model if that does not help ([`stale_disks`]).
//!
//! The worker ends when its queue is empty. The next request starts another.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use answers::opposed_message;
use disks::{DiskReads, Planned};
use failure_state::FailureState;
use lazuli_azure::{
    compute::{Freshness, Snapshot},
    error::ArmError,
    permits::Permit,
};
use lazuli_model::{
    ArmId, Disk, Vm,
    event::Event,
    fault::{Effect, Fault},
    op::VmWriteMethod,
    size::SizeLimits,
};
use lazuli_quota::{
    permit::Priority,
    read::{Accept, By, Seen},
};
use lazuli_storage::{
    attach::{self, Bisection, BisectionStep, Shown, Wait, Writes},
    dangling::{Dangling, SeenAttachments},
    force_detach::{FailedDetaches, ForceDetach},
    late_attach::Suspicions,
    lun::LunReservations,
    source::{Sources, VmVersion},
};
use lazuli_telemetry::{lossy, panics::catch};
use leadership::Leadership;
use queue::{Batch, Queue, Retry};
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, sleep_until},
};
use tracing::{Instrument, error, warn};

use super::{DiskHold, Nodes, VolumeError, client::Client, cluster_snapshot::ClusterSnapshot};
pub(crate) use queue::{Goal, Outcome};

mod answers;
mod conditions;
mod disks;
mod failure_state;
mod forced;
mod leadership;
mod outcome;
mod queue;
mod stale_disks;
mod waits;

/// How long attach requests wait until the cluster's VolumeAttachments are known.
const RESERVATIONS_WAIT: Duration = Duration::from_secs(30);
/// The pauses before a VM is read again while it does not show what was written: reads may lag.
const READ_LAG_PAUSES: [Duration; 4] =
    [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];

/// The VM workers of all VMs.
#[derive(Debug, Clone)]
pub(crate) struct VmWorkers {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    client: Client,
    nodes: Nodes,
    reservations: ClusterSnapshot<LunReservations>,
    sizes: watch::Receiver<SizeLimits>,
    method: Mutex<VmWriteMethod>,
    sources: Mutex<Sources<Instant>>,
    queues: Mutex<BTreeMap<ArmId, Queue>>,
    /// By VM and disk, what single reads have shown to callers within [`attach::LISTS_LAG`].
    shown: Mutex<BTreeMap<(ArmId, ArmId), Shown<Instant>>>,
    leadership: Mutex<Leadership>,
    policy: Policy,
    failed_detaches: Mutex<FailedDetaches>,
    seen_attachments: Mutex<SeenAttachments>,
    /// The attaches of the leader before that may be under way.
    suspicions: Mutex<Suspicions<Instant>>,
}

/// Whether disks may be detached by force, and where that is reported.
#[derive(Debug)]
pub(crate) struct Policy {
    pub(crate) force_detach: ForceDetach,
    pub(crate) events: lossy::Sender<Event>,
}

impl VmWorkers {
    pub(crate) fn new(
        client: Client,
        nodes: Nodes,
        reservations: ClusterSnapshot<LunReservations>,
        sizes: watch::Receiver<SizeLimits>,
        method: VmWriteMethod,
        policy: Policy,
    ) -> Self {
        let method = Mutex::new(method);
        Self {
            shared: Arc::new(Shared {
                client,
                nodes,
                reservations,
                sizes,
                method,
                sources: Mutex::default(),
                queues: Mutex::default(),
                shown: Mutex::default(),
                leadership: Mutex::default(),
                policy,
                failed_detaches: Mutex::default(),
                seen_attachments: Mutex::default(),
                suspicions: Mutex::default(),
            }),
        }
    }

    /// What a disk was made from that a VM lists, and `Some(None)` for one that was made empty, if that is known. A node never
    /// formats a disk that was made from another.
    pub(crate) fn source_of(&self, disk: &ArmId, vm: &ArmId) -> Option<Option<String>> {
        self.shared.sources().of(disk, vm)
    }

    /// A read that says what a disk was made from that a VM lists.
    pub(crate) fn read_of_source(&self, disk: &ArmId, vm: &ArmId) -> Freshness {
        let accept = self.shared.sources().accept(disk, vm, Instant::now());
        Freshness { accept, ..Freshness::single() }
    }

    /// Records what such a disk was made from, and returns it where the read says it.
    pub(crate) fn learn_source(&self, disk: &Disk, vm: &ArmId, seen: Seen<Instant>) -> Option<Option<String>> {
        self.shared.sources().learn(disk, vm, seen)
    }

    /// Records what a disk was made from that has been created and was read singly since `requested_at`.
    pub(crate) fn created(&self, disk: &Disk, requested_at: Instant) {
        self.shared.sources().learn_before_attach(disk, Seen { by: By::Single, sent_at: requested_at });
    }

    /// The attachments that this process has made.
    pub(crate) fn seen_attachments(&self) -> MutexGuard<'_, SeenAttachments> {
        self.shared.seen_attachments()
    }

    /// From when on reads show everything that the leader before has written. A request has arrived.
    pub(crate) fn fresh_from(&self) -> Option<Instant> {
        self.shared.leadership().request_arrived(Instant::now());
        self.shared.fresh_from()
    }

    /// Fails while an attach of the disk to the VM of a node may be under way of which Azure shows nothing.
    ///
    /// # Errors
    /// [`Fault::Busy`].
    pub(crate) fn check_late_attach(
        &self,
        vm: &ArmId,
        node: &str,
        disk: &ArmId,
        asked_at: Instant,
    ) -> Result<(), VolumeError> {
        let until = self.shared.late_attach(&self.shared.reservations.now(), vm, &[node], disk);
        match until {
            Some(until) if asked_at < until => Err(answers::may_be_attaching(disk, node)),
            _ => Ok(()),
        }
    }

    /// Whether an attach or detach of the disk on this VM is requested or under way.
    pub(crate) fn is_requested(&self, vm: &ArmId, disk: &ArmId) -> bool {
        self.shared.queues().get(vm).is_some_and(|queue| queue.contains(disk))
    }

    /// Forgets a disk that has been deleted.
    pub(crate) fn forget(&self, disk: &ArmId) {
        self.shared.sources().forget(disk);
        self.seen_attachments().forget(disk);
    }

    /// Requests the attach of a disk to a VM or its detach from it, and waits for the outcome.
    ///
    /// # Errors [`Fault::Busy`] while the opposite is requested of the disk on this VM, or in flight. Otherwise the
    /// failure of the write.
    pub(crate) async fn request(&self, vm: &ArmId, node: &str, disk: &ArmId, goal: Goal, hold: DiskHold) -> Outcome {
        self.outcome(vm, node, disk, goal, None, hold).await
    }

    /// Requests the detach of an unused disk, for this attachment alone.
    ///
    /// # Errors Those of [`Self::request`], and [`VolumeError::not_dangling`] where it is not, or not any more, to be
    /// detached.
    pub(crate) async fn detach_dangling(
        &self,
        vm: &ArmId,
        node: &str,
        disk: &ArmId,
        only_if: Dangling,
        hold: DiskHold,
    ) -> Outcome {
        self.outcome(vm, node, disk, Goal::Detached, Some(only_if), hold).await
    }

    async fn outcome(
        &self,
        vm: &ArmId,
        node: &str,
        disk: &ArmId,
        goal: Goal,
        only_if: Option<Dangling>,
        hold: DiskHold,
    ) -> Outcome {
        let answer = self.enqueue(vm, node, disk, goal, only_if, hold)?;
        answer.await.unwrap_or_else(|_| {
            Err(VolumeError::new(Fault::OutcomeUnknown, format!("the write to {vm} was broken off"))
                .with_effect(Effect::Possible))
        })
    }

    fn enqueue(
        &self,
        vm: &ArmId,
        node: &str,
        disk: &ArmId,
        goal: Goal,
        only_if: Option<Dangling>,
        hold: DiskHold,
    ) -> Result<oneshot::Receiver<Outcome>, VolumeError> {
        let now = Instant::now();
        self.shared.leadership().request_arrived(now);
        if goal != Goal::Detached {
            self.shared.suspicions().forget(vm, disk);
        }
        let mut queues = self.shared.queues();
        let idle = !queues.contains_key(vm);
        let answer = queues
            .entry(vm.clone())
            .or_default()
            .request(disk, goal, only_if, hold, now)
            .map_err(|opposed| VolumeError::new(Fault::Busy, opposed_message(disk, node, goal, opposed)))?;
        if idle {
            let worker = VmWorker {
                shared: self.shared.clone(),
                vm: vm.clone(),
                node: node.to_owned(),
                ended: AtomicBool::new(false),
                looked_at: AtomicU64::new(0),
            };
            let span = tracing::info_span!("vm", node);
            tokio::spawn(worker.run().instrument(span));
        }
        Ok(answer)
    }
}

impl Shared {
    fn queues(&self) -> MutexGuard<'_, BTreeMap<ArmId, Queue>> {
        // Every change under this lock is complete, so a panic elsewhere leaves the map consistent.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sources(&self) -> MutexGuard<'_, Sources<Instant>> {
        // Every change is a single insertion or removal, so a panic elsewhere leaves the maps consistent.
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seen_attachments(&self) -> MutexGuard<'_, SeenAttachments> {
        // Every change under this lock is complete, so a panic elsewhere leaves the memory consistent.
        self.seen_attachments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what a single read of a VM has shown of a disk.
    fn note_shown(&self, vm: &ArmId, disk: &ArmId, attached: bool, sent_at: Instant) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        shown.retain(|_, shown| shown.outdates_list_of(now));
        shown.insert((vm.clone(), disk.clone()), Shown { attached, sent_at });
    }

    /// What single reads of a VM have shown lately.
    fn shown_on(&self, vm: &ArmId) -> BTreeMap<ArmId, Shown<Instant>> {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        shown.iter().filter(|((of, _), _)| of == vm).map(|((_, disk), shown)| (disk.clone(), *shown)).collect()
    }

    fn suspicions(&self) -> MutexGuard<'_, Suspicions<Instant>> {
        // Every change is a single insertion or removal, so a panic elsewhere leaves the map consistent.
        self.suspicions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until when an attach of the disk to the VM of a node with these names may be under way of which Azure shows nothing.
    /// A detach of it is requested.
    fn late_attach(&self, attachments: &LunReservations, vm: &ArmId, names: &[&str], disk: &ArmId) -> Option<Instant> {
        let now = Instant::now();
        let record = attachments.record(names, disk);
        let leading_since = self.leadership().leading_since(now);
        self.suspicions().of_detach(vm, disk, record, leading_since, now)
    }

    fn leadership(&self) -> MutexGuard<'_, Leadership> {
        self.leadership.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From when on reads show everything that the leader before has written.
    fn fresh_from(&self) -> Option<Instant> {
        self.leadership().reads_fresh_since
    }

    /// From when on lists show everything that the leader before has written; `None` where there is no other leader, and
    /// while the VolumeAttachments are not known: no disk is given a LUN then, whatever a list shows.
    fn lists_from(&self, attachments: &LunReservations) -> Option<Instant> {
        match attachments {
            LunReservations::NoCluster | LunReservations::Cold => None,
            LunReservations::Synced(_) => Some(self.leadership().leading_since(Instant::now()) + attach::LISTS_LAG),
        }
    }

    fn method(&self) -> VmWriteMethod {
        *self.method.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task that serves one VM's queue.
#[derive(Debug)]
struct VmWorker {
    shared: Arc<Shared>,
    vm: ArmId,
    node: String,
    /// Whether this worker has removed its queue. A queue of the same VM is then another worker's.
    ended: AtomicBool,
    /// How many of the requests that have ever arrived this worker has processed once.
    looked_at: AtomicU64,
}

impl Drop for VmWorker {
    /// Removes the queue of a task that is dropped before its end, as when its runtime ends: no worker would serve it.
    fn drop(&mut self) {
        if !self.ended.load(Ordering::Relaxed) {
            self.shared.queues().remove(&self.vm);
        }
    }
}

/// How a round ended.
enum Round {
    /// Requests were answered or put back. The next round may begin at once.
    Continue,
    /// No disk can be given a LUN before the VolumeAttachments are known.
    WaitsForReservations,
    /// The outcome of these is unknown until another writer's write of the VM has ended.
    WaitsForVm(Batch),
    /// A write is due, and Azure's quota allows none now. The round after the wait may use these reads of disks.
    WaitsForPermit(Priority, DiskReads),
    /// The VM does not list a disk, and the read may be older than the last write of the leader before.
    WaitsForFreshReads,
}

impl VmWorker {
    async fn run(self) {
        self.guarded(Box::pin(self.serve())).await;
    }

    /// Runs the work on the queue. If it panics, every caller is answered at once with a code that says that a write
    /// may be in flight. The next request starts a new worker, which reads the VM first.
    async fn guarded(&self, work: impl Future<Output = ()>) {
        let Err(panicked) = catch(work).await else { return };
        self.ended.store(true, Ordering::Relaxed);
        let queue = self.shared.queues().remove(&self.vm).unwrap_or_default();
        for (disk, request) in queue.into_requests() {
            error!(volume = %disk, node = self.node, vm = %self.vm, error = %panicked, "the work on a VM's disks panicked");
            let message = format!("{disk} on node {}: the work on it was broken off: {panicked}", self.node);
            request.answer(&Err(VolumeError::new(Fault::OutcomeUnknown, message).with_effect(Effect::Possible)));
        }
    }

    async fn serve(&self) {
        let mut failure_state = FailureState::default();
        let mut cold_since: Option<Instant> = None;
        let mut waited_for: Option<(Permit, DiskReads)> = None;
        loop {
            // First of all, so that a queue that the last round emptied costs no read.
            if self.goals().is_none() {
                return;
            }
            self.burst_over().await;
            let Some(goals) = self.goals() else { return };
            // The permit comes before the read: a write without a condition must follow its read at once. A permit that
            // is not used is returned.
            let (permit, kept) = match waited_for.take() {
                Some((permit, kept)) => (Some(permit), kept),
                None => (self.shared.client.try_permit(&self.vm, self.priority(&goals)), DiskReads::default()),
            };
            let asked_at = Instant::now();
            let Some(read) = self.while_requested(self.gather(&goals, &failure_state)).await else { continue };
            let Some(goals) = self.goals() else { return };
            let round = match read {
                Ok(vm) => self.round(vm, &goals, permit, kept, &mut failure_state).await,
                Err(error) => {
                    self.vm_unreadable(&goals, asked_at, error);
                    Round::Continue
                }
            };
            if *self.shared.reservations.now() != LunReservations::Cold {
                cold_since = None;
            }
            match round {
                Round::Continue => {}
                Round::WaitsForReservations => {
                    let deadline = *cold_since.get_or_insert_with(Instant::now) + RESERVATIONS_WAIT;
                    if Instant::now() < deadline {
                        self.reservations_or_arrival(deadline).await;
                        continue;
                    }
                    cold_since = None;
                    let message = format!(
                        "node {}: the cluster's VolumeAttachments are not known yet, so no LUN can be given safely",
                        self.node
                    );
                    warn!("{message}");
                    let error = VolumeError::new(Fault::Unavailable, message);
                    self.answer_all(goals.iter().filter(|(_, goal)| **goal != Goal::Detached), &Err(error));
                }
                Round::WaitsForFreshReads => {
                    if let Some(fresh_from) = self.shared.fresh_from() {
                        self.while_answering(sleep_until(fresh_from)).await;
                    }
                }
                Round::WaitsForPermit(priority, kept) => {
                    let waited = self.while_answering(self.shared.client.permit(&self.vm, priority));
                    match self.while_requested(waited).await {
                        Some(Ok(permit)) => waited_for = Some((permit, kept)),
                        Some(Err(error)) => {
                            let message = format!("node {}: there is no permit to write its VM", self.node);
                            self.answer_all(&goals, &Err(VolumeError::azure(message, error)));
                        }
                        None => {}
                    }
                }
                Round::WaitsForVm(batch) => {
                    let message = format!("node {}: another writer's write of its VM has not ended", self.node);
                    match self.at_rest().await {
                        Ok(_) => self.try_again(&batch, &VolumeError::new(Fault::Conflict, message), Retry::Counted),
                        Err(error) => self.answer_all(&batch, &Err(VolumeError::azure(message, error))),
                    }
                }
            }
        }
    }

    /// The requested goals by disk, without abandoned requests. `None` when there are none: the queue has been removed,
    /// and the worker must end.
    fn goals(&self) -> Option<Batch> {
        let mut queues = self.shared.queues();
        let queue = queues.get_mut(&self.vm)?;
        let goals = queue.goals();
        self.looked_at.store(queue.arrivals(), Ordering::Relaxed);
        if goals.is_empty() {
            queues.remove(&self.vm);
            self.ended.store(true, Ordering::Relaxed);
            return None;
        }
        Some(goals)
    }

    /// Which write may follow: one of the whole list of disks, and any after a failed one, needs a single read.
    fn writes(&self, failure_state: &FailureState) -> Writes {
        match failure_state.is_clean() && self.shared.method() == VmWriteMethod::Action {
            true => Writes::AfterAnyRead,
            false => Writes::AfterSingleRead,
        }
    }

    /// Reads the VM for a round: by a list where one may suffice, because one list serves many VMs.
    async fn gather(&self, goals: &Batch, failure_state: &FailureState) -> Result<Snapshot<Vm>, ArmError> {
        let shown = self.shared.shown_on(&self.vm);
        let (requests, writes, now) = (self.requests(goals), self.writes(failure_state), Instant::now());
        let lists_from = self.shared.lists_from(&self.shared.reservations.now());
        let accept = attach::first_read(&requests, &shown, lists_from, writes, now);
        let freshness = match accept {
            Accept::Single => Freshness::single(),
            Accept::List | Accept::Any => Freshness::listed(),
        };
        self.read_vm(freshness.priority(self.priority(goals))).await
    }

    /// Reads the VM. What it shows of another hand's writes ends what is known of its disks.
    async fn read_vm(&self, freshness: Freshness) -> Result<Snapshot<Vm>, ArmError> {
        let read = self.shared.client.read_vm(&self.vm, freshness).await;
        let mut sources = self.shared.sources();
        match &read {
            Ok(vm) => sources.vm_read(&vm.model, version(vm), vm.seen),
            Err(error) if error.fault.says_that_it_is_missing() => sources.vm_gone(&self.vm),
            Err(_) => {}
        }
        drop(sources);
        read
    }

    /// Answers requests with the failure of a read of the VM. "Not found" is an answer of that read, and only to
    /// requests that came before it was asked for.
    fn vm_unreadable(&self, goals: &Batch, asked_at: Instant, error: ArmError) {
        let says_that_it_is_missing = error.fault.says_that_it_is_missing();
        let outcome = Err(VolumeError::azure(format!("node {}: its VM cannot be read", self.node), error));
        for (disk, goal) in goals {
            match says_that_it_is_missing {
                true => self.resolve(disk, *goal, &outcome, asked_at, None),
                false => self.answer(disk, *goal, &outcome),
            }
        }
    }

    /// Plans, writes and verifies once.
    async fn round(
        &self,
        vm: Snapshot<Vm>,
        goals: &Batch,
        permit: Option<Permit>,
        kept: DiskReads,
        failure_state: &mut FailureState,
    ) -> Round {
        if !failure_state.stale_disks.is_empty() {
            return self.remove_stale_disks(&vm, goals, permit, failure_state).await;
        }
        let allowed = match failure_state.bisection.next() {
            BisectionStep::Unrestricted => None,
            BisectionStep::Try(members) => Some(members),
            BisectionStep::Found(failing) => {
                // It was written alone, or every other disk is cleared: the next failure is its own.
                Some(BTreeSet::from([failing]))
            }
        };
        let in_batch = |disk: &ArmId| allowed.as_ref().is_none_or(|members| members.contains(disk));
        if !goals.keys().any(&in_batch) {
            // Nothing is requested of the bisected disks any more.
            failure_state.bisection = Bisection::default();
            return Round::Continue;
        }

        if allowed.is_some() {
            // The bisection delays no other request that needs no write.
            let others = goals.iter().filter(|(disk, _)| !in_batch(disk));
            let others = others.map(|(disk, goal)| (disk.clone(), *goal)).collect();
            let answered = self.answer_without_write(&vm, &others).await.answered_by_disk_state();
            failure_state.answered_by_disk_state(&answered);
        }

        let mut planned = match self.planned(vm, kept, self.writes(failure_state), in_batch).await {
            Ok(planned) => planned,
            Err((asked_at, error)) => {
                self.vm_unreadable(goals, asked_at, error);
                return Round::Continue;
            }
        };
        let answered = planned.plan.answered_by_disk_state();
        failure_state.answered_by_disk_state(&answered);
        let cleared = planned.plan.resolved.keys().filter(|disk| !answered.contains(*disk)).cloned().collect();
        failure_state.bisection.cleared(&cleared);
        self.resolve_planned(&mut planned);
        if planned.plan.needs_another_read() {
            // A wait or a slow write that follows delays no request that needs only a read.
            self.looked_at.fetch_min(self.arrivals().saturating_sub(1), Ordering::Relaxed);
        }
        let Planned { vm, reads, members, plan } = planned;
        if plan.write.is_empty() {
            return match plan.wait() {
                None => Round::Continue,
                Some(Wait::Reservations) => Round::WaitsForReservations,
                Some(Wait::FreshReads) => Round::WaitsForFreshReads,
                Some(Wait::VmAtRest(disks)) => {
                    let undecided = members.into_iter().filter(|(disk, _)| disks.contains(disk));
                    Round::WaitsForVm(undecided.collect())
                }
            };
        }
        if permit.is_none() && self.needs_permit(&vm, failure_state) {
            return Round::WaitsForPermit(self.priority(&members), reads.that_give_terms(&self.vm));
        }
        self.write(&vm, &plan.write, &members, permit, failure_state).await;
        Round::Continue
    }

    /// Whether the next write of the VM has no condition (etag).
    fn needs_permit(&self, vm: &Snapshot<Vm>, failure_state: &FailureState) -> bool {
        let method = failure_state.method.unwrap_or_else(|| self.shared.method());
        method == VmWriteMethod::Action || vm.etag.is_none()
    }

    /// The priority of the reads and the write of a batch.
    fn priority(&self, batch: &Batch) -> Priority {
        if batch.values().any(|goal| *goal != Goal::Detached) {
            Priority::Attach
        } else if self.shared.nodes.is_dead(&self.node) {
            Priority::DetachDeadNode
        } else {
            Priority::Detach
        }
    }
}

/// Which machine a read has shown, in which version.
fn version(vm: &Snapshot<Vm>) -> VmVersion {
    VmVersion { machine: vm.machine_id().map(str::to_owned), etag: vm.etag.clone() }
}

#[cfg(test)]
mod tests;
