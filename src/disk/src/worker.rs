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
//! - A worker that waits for the permit to write reads the VM again when the permit has come. It keeps the terms of the
//!   attaches that it read before the wait ([`disks::KeptReads`]).
//! - One failing disk of a batch fails alone ([`lazuli_plan::attach::Bisection`]). A caller never gets the failure of
//!   another caller's disk ([`answers`]).
//! - A request that needs no write is answered during a pause, during another writer's write, and during a bisection
//!   ([`waits`]).
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

use lazuli_azure::{
    compute::{Freshness, Snapshot},
    error::ArmError,
    permits::Permit,
};
use lazuli_plan::{
    attach::{self, Bisection, BisectionStep, DesiredDisks, Plan, Resolved},
    dangling::SeenAttachments,
    event::Event,
    fault::{Effect, Fault},
    force_detach::{FailedDetaches, ForceDetach},
    lun::{LunReservations, NodeReservations},
    model::{ArmId, Lun, Vm},
    op::VmWriteMethod,
    permit::Priority,
    read::By,
    size::SizeLimits,
};
use lazuli_telemetry::{lossy, panics::catch};
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, sleep_until},
};
use tracing::{Instrument, error, warn};

use super::{DiskHold, Nodes, VolumeError, client::Client, cluster_snapshot::ClusterSnapshot};
use answers::opposed_message;
use disks::KeptReads;
use failure_state::FailureState;
use leadership::Leadership;
use queue::{Batch, Queue, Retry};
pub(crate) use queue::{Goal, Outcome};

mod answers;
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

/// For how long after an attach a list of VMs may not show the disk.
const LISTS_LAG: Duration = Duration::from_secs(10);

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
    /// What a disk was made from, for each disk that was read; `None` for one that was made empty.
    sources: Mutex<BTreeMap<ArmId, Option<String>>>,
    queues: Mutex<BTreeMap<ArmId, Queue>>,
    /// The disks of which an attach ended within [`LISTS_LAG`], and when.
    attached_lately: Mutex<BTreeMap<ArmId, Instant>>,
    leadership: Mutex<Leadership>,
    policy: Policy,
    failed_detaches: Mutex<FailedDetaches>,
    seen_attachments: Mutex<SeenAttachments>,
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
                attached_lately: Mutex::default(),
                leadership: Mutex::default(),
                policy,
                failed_detaches: Mutex::default(),
                seen_attachments: Mutex::default(),
            }),
        }
    }

    /// What a disk was made from, and `Some(None)` for one that was made empty, if it was read. A node never formats a disk
    /// that was made from another.
    pub(crate) fn source_of(&self, disk: &ArmId) -> Option<Option<String>> {
        self.shared.sources.lock().unwrap_or_else(PoisonError::into_inner).get(disk).cloned()
    }

    /// Records what a disk was made from.
    pub(crate) fn learn_source(&self, disk: &ArmId, source: Option<String>) {
        self.shared.learn_source(disk, source);
    }

    /// The attachments that this process has made.
    pub(crate) fn seen_attachments(&self) -> MutexGuard<'_, SeenAttachments> {
        self.shared.seen_attachments()
    }

    /// Whether an attach or detach of the disk on this VM is requested or under way.
    pub(crate) fn is_requested(&self, vm: &ArmId, disk: &ArmId) -> bool {
        self.shared.queues().get(vm).is_some_and(|queue| queue.contains(disk))
    }

    /// Forgets a disk that has been deleted.
    pub(crate) fn forget(&self, disk: &ArmId) {
        self.shared.sources.lock().unwrap_or_else(PoisonError::into_inner).remove(disk);
        self.seen_attachments().forget(disk);
    }

    /// Requests the attach of a disk to a VM or its detach from it, and waits for the outcome.
    ///
    /// # Errors [`Fault::Busy`] while the opposite is requested of the disk on this VM, or in flight. Otherwise the
    /// failure of the write.
    pub(crate) async fn request(&self, vm: &ArmId, node: &str, disk: &ArmId, goal: Goal, hold: DiskHold) -> Outcome {
        let answer = self.enqueue(vm, node, disk, goal, hold)?;
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
        hold: DiskHold,
    ) -> Result<oneshot::Receiver<Outcome>, VolumeError> {
        let now = Instant::now();
        self.shared.leadership().request_arrived(now);
        let mut queues = self.shared.queues();
        let idle = !queues.contains_key(vm);
        let answer = queues
            .entry(vm.clone())
            .or_default()
            .request(disk, goal, hold, now)
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

    fn learn_source(&self, disk: &ArmId, source: Option<String>) {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner).insert(disk.clone(), source);
    }

    fn seen_attachments(&self) -> MutexGuard<'_, SeenAttachments> {
        // Every change under this lock is complete, so a panic elsewhere leaves the memory consistent.
        self.seen_attachments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that an attach of the disk has ended.
    fn note_attached(&self, disk: &ArmId) {
        let now = Instant::now();
        let mut attached = self.attached_lately.lock().unwrap_or_else(PoisonError::into_inner);
        attached.retain(|_, at| now.saturating_duration_since(*at) < LISTS_LAG);
        attached.insert(disk.clone(), now);
    }

    /// Whether a list of VMs may not show an attach of the disk that has ended.
    fn may_be_unlisted(&self, disk: &ArmId) -> bool {
        let attached = self.attached_lately.lock().unwrap_or_else(PoisonError::into_inner);
        attached.get(disk).is_some_and(|at| at.elapsed() < LISTS_LAG)
    }

    fn leadership(&self) -> MutexGuard<'_, Leadership> {
        self.leadership.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Since when reads are fresh, that is, show everything that the leader before has written. `None` if they are
    /// fresh now.
    fn reads_fresh_since(&self) -> Option<Instant> {
        let since = self.leadership().reads_fresh_since;
        since.filter(|since| Instant::now() < *since)
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
    WaitsForPermit(Priority, KeptReads),
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
        let mut waited_for: Option<(Permit, KeptReads)> = None;
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
                None => (self.shared.client.try_permit(&self.vm, self.priority(&goals)), KeptReads::default()),
            };
            let Some(read) = self.while_requested(self.gather(&goals, &failure_state)).await else { continue };
            let Some(goals) = self.goals() else { return };
            let round = match read {
                Ok(vm) => self.round(&vm, &goals, permit, kept, &mut failure_state).await,
                Err(error) => {
                    let error = VolumeError::azure(format!("node {}: its VM cannot be read", self.node), error);
                    self.answer_all(&goals, &Err(error));
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
                    if let Some(since) = self.shared.reads_fresh_since() {
                        self.while_answering(sleep_until(since)).await;
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

    /// Reads the VM for a round. A list suffices where every request needs a write, and one list serves many VMs. A
    /// single read is needed to answer a request without a write, before a write of the whole list of disks, and for a disk
    /// that was attached a moment ago: a list that does not show it yet would have it attached again, at another LUN.
    async fn gather(&self, goals: &Batch, failure_state: &FailureState) -> Result<Snapshot<Vm>, ArmError> {
        let priority = self.priority(goals);
        let lists_serve =
            goals.iter().all(|(disk, goal)| *goal == Goal::Detached || !self.shared.may_be_unlisted(disk));
        if failure_state.is_clean() && lists_serve && self.shared.method() == VmWriteMethod::Action {
            let read = self.shared.client.read_vm(&self.vm, Freshness::listed().priority(priority)).await;
            match read {
                Ok(vm)
                    if vm.seen.by == By::Single
                        || attach::all_need_a_write(&vm.model, goals.iter().map(as_requested)) =>
                {
                    return Ok(vm);
                }
                Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
        self.shared.client.read_vm(&self.vm, Freshness::single().priority(priority)).await
    }

    /// Plans, writes and verifies once.
    async fn round(
        &self,
        vm: &Snapshot<Vm>,
        goals: &Batch,
        permit: Option<Permit>,
        mut kept: KeptReads,
        failure_state: &mut FailureState,
    ) -> Round {
        if !failure_state.stale_disks.is_empty() {
            return self.remove_stale_disks(vm, goals, permit, failure_state).await;
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
        let members: Batch =
            goals.iter().filter(|(disk, _)| in_batch(disk)).map(|(disk, goal)| (disk.clone(), *goal)).collect();
        if members.is_empty() {
            // Nothing is requested of the bisected disks any more.
            failure_state.bisection = Bisection::default();
            return Round::Continue;
        }

        if allowed.is_some() {
            // The bisection delays no other request that needs no write.
            let others = goals.iter().filter(|(disk, _)| !in_batch(disk));
            let others = others.map(|(disk, goal)| (disk.clone(), *goal)).collect();
            failure_state.answered_by_disk_state(&self.answer_without_write(&vm.model, &others).await);
        }

        let (mut desired, undecided) = self.desired_disks(&vm.model, &members, &mut kept).await;
        desired.force = self.forced(&vm.model, &desired.detach).await;
        failure_state.answered_by_disk_state(
            &members.keys().filter(|disk| !is_open(&desired, &undecided, disk)).cloned().collect(),
        );
        let (plan, reservations) = self.plan(&vm.model, &desired);

        let (mut unknown, mut unproved) = (0, 0);
        let mut cleared = BTreeSet::new();
        for (disk, resolved) in plan.resolved {
            match resolved {
                Resolved::ReservationsUnknown => unknown += 1,
                Resolved::Detached if self.shared.reads_fresh_since().is_some() => unproved += 1,
                resolved => {
                    self.answer(&disk, members[&disk], &self.resolved_outcome(&disk, resolved));
                    cleared.insert(disk);
                }
            }
        }
        failure_state.bisection.cleared(&cleared);
        if plan.write.is_empty() {
            return if unknown > 0 && reservations == NodeReservations::Unknown {
                Round::WaitsForReservations
            } else if !undecided.is_empty() {
                Round::WaitsForVm(undecided)
            } else if unproved > 0 {
                Round::WaitsForFreshReads
            } else {
                Round::Continue
            };
        }
        if permit.is_none() && self.needs_permit(vm, failure_state) {
            return Round::WaitsForPermit(self.priority(&members), kept);
        }
        self.write(vm, &plan.write, &members, permit, failure_state).await;
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

    fn plan(&self, vm: &Vm, desired: &DesiredDisks) -> (Plan, NodeReservations) {
        let names = [Some(self.node.as_str()), Some(vm.id.name()), vm.computer_name.as_deref()];
        let names: Vec<&str> = names.into_iter().flatten().collect();
        let reservations = self.shared.reservations.now().of_node(&names);
        let limit = self.shared.sizes.borrow().max_data_disks(&vm.size);
        let limit = limit.map_or(usize::from(Lun::COUNT), usize::from);
        (attach::plan(vm, desired, &reservations, limit), reservations)
    }

    /// Answers those requests that need no write, at a time when the worker may not write for them. Returns the disks
    /// whose own state was the answer.
    async fn answer_without_write(&self, vm: &Vm, goals: &Batch) -> BTreeSet<ArmId> {
        let may_be_met = |disk: &ArmId, goal: &Goal| vm.data_disk(disk).is_some() == (*goal != Goal::Detached);
        let members = goals.iter().filter(|(disk, goal)| may_be_met(disk, goal));
        let members: Batch = members.map(|(disk, goal)| (disk.clone(), *goal)).collect();
        if members.is_empty() {
            return BTreeSet::new();
        }
        // The VM lists each disk whose attach is requested, so none of these needs the terms of an attach.
        let (desired, undecided) = self.desired_disks(vm, &members, &mut KeptReads::default()).await;
        for (disk, resolved) in self.plan(vm, &desired).0.resolved {
            match resolved {
                Resolved::ReservationsUnknown => {}
                Resolved::Detached if self.shared.reads_fresh_since().is_some() => {}
                resolved => self.answer(&disk, members[&disk], &self.resolved_outcome(&disk, resolved)),
            }
        }
        members.into_keys().filter(|disk| !is_open(&desired, &undecided, disk)).collect()
    }
}

/// A request as [`attach::all_need_a_write`] takes it.
fn as_requested<'a>((disk, goal): (&'a ArmId, &'a Goal)) -> (&'a ArmId, bool) {
    (disk, *goal != Goal::Detached)
}

/// Whether a request is still open: the disk's own state has not answered it.
fn is_open(desired: &DesiredDisks, undecided: &Batch, disk: &ArmId) -> bool {
    desired.attach.contains_key(disk)
        || desired.detach.contains(disk)
        || desired.listed_not_attached.contains(disk)
        || undecided.contains_key(disk)
}

#[cfg(test)]
mod tests;
