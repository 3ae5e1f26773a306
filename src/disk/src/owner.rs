//! The owner of a VM's data disks: one writer per VM, however many callers.
//!
//! ```text
//!            request                     quiet for a moment
//!   (none) ───────────▶ gathering ───────────────────────────▶ planning
//!      ▲                    ▲                                     │ one write, or none
//!      │ nothing queued     │ more queued, or try again           ▼
//!      └────────────────────┴──────────────── verifying ◀──── writing
//! ```
//!
//! - A request only waits. When its caller gives up before its write is sent, it leaves the batch; afterwards the
//!   write goes on, and the same request, repeated, joins it.
//! - While a write is in flight, requests collect for the next. An idle owner waits until a burst goes quiet, so that
//!   a burst costs one write.
//! - The VM is read before each write and again after it; who is attached is what Azure then says, never what was
//!   asked for.
//! - One bad member of a batch fails alone ([`lazuli_plan::attach::Suspects`]), and a caller hears of no disk but his own
//!   ([`answers`]).
//! - Whoever needs no write is not kept by a pause, by somebody else's write, or by the search for a culprit
//!   ([`waits`]).
//! - What a failed attach leaves in the VM's model is applied again, and taken off if that does not help
//!   ([`leftovers`]).
//!
//! The task ends when its queue is empty; the next request starts another.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
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
    attach::{self, Plan, Reaction, Search, Settled, Suspects, Wanted},
    fault::{Effect, Fault},
    lun::{LunReservations, NodeReservations},
    model::{ArmId, DataDisk, Lun, ProvisioningState, Vm},
    op::{Attachment, VmWrite, VmWriteMethod},
    permit::Priority,
    read::By,
    size::SizeLimits,
};
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, sleep_until, timeout},
};
use tracing::{Instrument, debug, error, info, warn};

use super::{DiskHold, Nodes, VolumeError, client::Client, reservations::Reservations};
use answers::concerning;
use lazuli_telemetry::panics::catch;
use queue::{Batch, Queue, Retry};
pub(crate) use queue::{Goal, Outcome};
use trouble::Trouble;

mod answers;
mod disks;
mod leftovers;
mod queue;
mod trouble;
mod waits;

/// How long attachments wait for the cluster's VolumeAttachments to be known.
const RESERVATIONS_WAIT: Duration = Duration::from_secs(30);
/// How long to wait after the first conflict.
const CONFLICT_PAUSE: Duration = Duration::from_millis(250);
/// How many times that at most.
const LONGEST_CONFLICT_FACTOR: u32 = 16;
/// How long a write of a VM takes at most, as a rule (source: a median of 10 s and a tail beyond 60 s). Whoever needs no
/// write is not kept longer by it.
const SLOW: Duration = Duration::from_secs(30);
/// The pauses before a VM that was written is read again while it does not show what was written: reads may lag.
const LAG: [Duration; 4] =
    [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];
/// How old a read may be (unverified). For so long a process that has just been given the role, or been given it back,
/// does not take it from a VM that a disk is not listed: whoever had the role may have written a moment ago.
const LONGEST_LAG: Duration = Duration::from_secs(4);

/// Every owner.
#[derive(Debug, Clone)]
pub(crate) struct Owners {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    client: Client,
    nodes: Nodes,
    reservations: Reservations,
    sizes: watch::Receiver<SizeLimits>,
    method: Mutex<VmWriteMethod>,
    /// What disks were made from, as far as a disk that was made from something has been read here.
    sources: Mutex<BTreeMap<ArmId, String>>,
    queues: Mutex<BTreeMap<ArmId, Queue>>,
    turn: Mutex<Turn>,
}

/// The time for which wishes have come to this process without a break. What comes after one may be the first since
/// another process had the role: nobody tells, but no lease comes and goes as fast.
#[derive(Debug, Default)]
struct Turn {
    last_wish: Option<Instant>,
    /// From then on no read is older than the last write of whoever had the role before.
    reads_tell_since: Option<Instant>,
}

impl Turn {
    fn wish(&mut self, now: Instant) {
        if self.last_wish.is_none_or(|last| now >= last + LONGEST_LAG) {
            self.reads_tell_since = Some(now + LONGEST_LAG);
        }
        self.last_wish = Some(now);
    }
}

impl Owners {
    pub(crate) fn new(
        client: Client,
        nodes: Nodes,
        reservations: Reservations,
        sizes: watch::Receiver<SizeLimits>,
        method: VmWriteMethod,
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
                turn: Mutex::default(),
            }),
        }
    }

    /// What a disk was made from, if it was read before it was attached: a node never formats such a disk.
    pub(crate) fn source_of(&self, disk: &ArmId) -> Option<String> {
        self.shared.sources.lock().unwrap_or_else(PoisonError::into_inner).get(disk).cloned()
    }

    /// Forgets a disk that is no more.
    pub(crate) fn forget(&self, disk: &ArmId) {
        self.shared.sources.lock().unwrap_or_else(PoisonError::into_inner).remove(disk);
    }

    /// Wants something of a disk on a VM and waits for it.
    ///
    /// # Errors
    /// [`Fault::Busy`] while the opposite is wanted or under way; otherwise what became of the write.
    pub(crate) async fn want(&self, vm: &ArmId, node: &str, disk: &ArmId, goal: Goal, hold: DiskHold) -> Outcome {
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
        self.shared.turn().wish(Instant::now());
        let mut queues = self.shared.queues();
        let idle = !queues.contains_key(vm);
        let answer = queues.entry(vm.clone()).or_default().want(disk, goal, hold).map_err(|opposed| {
            let state = if opposed.sent { "is being written" } else { "is wanted" };
            VolumeError::new(
                Fault::Busy,
                format!("{disk} on node {node}: {goal:?} is not possible while {:?} {state}", opposed.goal),
            )
        })?;
        if idle {
            let driver = Driver {
                shared: self.shared.clone(),
                vm: vm.clone(),
                node: node.to_owned(),
                ended: AtomicBool::new(false),
                looked_at: AtomicU64::new(0),
            };
            let span = tracing::info_span!("vm", node);
            tokio::spawn(driver.run().instrument(span));
        }
        Ok(answer)
    }
}

impl Shared {
    fn queues(&self) -> MutexGuard<'_, BTreeMap<ArmId, Queue>> {
        // Every change under this lock is whole; a panic elsewhere does not spoil it.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From when on reads tell of everything that others have written, if they do not yet.
    fn reads_tell_since(&self) -> Option<Instant> {
        let since = self.turn().reads_tell_since;
        since.filter(|since| Instant::now() < *since)
    }

    fn method(&self) -> VmWriteMethod {
        *self.method.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task that serves one VM's queue.
#[derive(Debug)]
struct Driver {
    shared: Arc<Shared>,
    vm: ArmId,
    node: String,
    /// Whether the queue has been given up in good order; another task may own its successor.
    ended: AtomicBool,
    /// How many of the wishes that have ever arrived have been looked at.
    looked_at: AtomicU64,
}

impl Drop for Driver {
    /// A task that is dropped before its end, as when its runtime ends, leaves no queue that nobody serves.
    fn drop(&mut self) {
        if !self.ended.load(Ordering::Relaxed) {
            self.shared.queues().remove(&self.vm);
        }
    }
}

/// What happened to a batch.
enum Round {
    /// Something was settled, or is to be tried again.
    Goes,
    /// Nothing can be done before the attachments are known.
    WaitsForReservations,
    /// Nothing can be said of these before somebody else's write of the VM has ended.
    WaitsForVm(Batch),
    /// A write is due, and Azure's quota allows none now.
    WaitsForPermit(Priority),
    /// A disk is not listed, and the read may be older than a write of the process before.
    WaitsForFreshReads,
}

impl Driver {
    async fn run(self) {
        self.guarded(Box::pin(self.serve())).await;
    }

    /// Runs the work on the queue. Should it panic, its callers are answered at once, each by a code that says that a
    /// write may be under way, and the next request starts a new task, which reads the VM first.
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
        let mut trouble = Trouble::default();
        let mut cold_since: Option<Instant> = None;
        let mut waited_for: Option<Permit> = None;
        loop {
            // Before all else: a queue that the last round emptied costs no read, and what its writes have taught is
            // forgotten with the task.
            if self.goals().is_none() {
                return;
            }
            self.burst_over().await;
            let Some(goals) = self.goals() else { return };
            // The permit first: a write that no condition guards must follow its read at once. One that is not used
            // goes back.
            let permit = waited_for.take().or_else(|| self.shared.client.try_permit(&self.vm, priority(&goals)));
            let Some(read) = self.while_wanted(self.gather(&goals, &trouble)).await else { continue };
            let Some(goals) = self.goals() else { return };
            let round = match read {
                Ok(vm) => self.round(&vm, &goals, permit, &mut trouble).await,
                Err(error) => {
                    let error = VolumeError::azure(format!("node {}: its VM cannot be read", self.node), error);
                    self.answer_all(&goals, &Err(error));
                    Round::Goes
                }
            };
            if *self.shared.reservations.now() != LunReservations::Cold {
                cold_since = None;
            }
            match round {
                Round::Goes => {}
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
                    if let Some(since) = self.shared.reads_tell_since() {
                        self.meanwhile(sleep_until(since)).await;
                    }
                }
                Round::WaitsForPermit(wanted) => {
                    let waited = self.meanwhile(self.shared.client.permit(&self.vm, wanted));
                    match self.while_wanted(waited).await {
                        Some(Ok(permit)) => waited_for = Some(permit),
                        Some(Err(error)) => {
                            let message = format!("node {}: there is no permit to write its VM", self.node);
                            self.answer_all(&goals, &Err(VolumeError::azure(message, error)));
                        }
                        None => {}
                    }
                }
                Round::WaitsForVm(batch) => {
                    let message = format!("node {}: somebody else's write of its VM has not ended", self.node);
                    match self.at_rest().await {
                        Ok(_) => self.try_again(&batch, &VolumeError::new(Fault::Conflict, message), Retry::Counted),
                        Err(error) => self.answer_all(&batch, &Err(VolumeError::azure(message, error))),
                    }
                }
            }
        }
    }

    /// What is wanted now, by disk, without what nobody waits for any more. `None` when nothing is: the queue is
    /// gone and the task must end.
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

    /// Reads the VM for a round: by a list where that may do, for it is shared with other VMs. What needs no write is
    /// decided by a single read only, and the whole list of disks is sent by what a single read said.
    async fn gather(&self, goals: &Batch, trouble: &Trouble) -> Result<Snapshot<Vm>, ArmError> {
        let priority = priority(goals);
        if trouble.is_none() && self.shared.method() == VmWriteMethod::Action {
            let read = self.shared.client.read_vm(&self.vm, Freshness::listed().priority(priority)).await;
            match read {
                Ok(vm)
                    if vm.seen.by == By::Single || attach::all_need_a_write(&vm.model, goals.iter().map(wanted_on)) =>
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
    async fn round(&self, vm: &Snapshot<Vm>, goals: &Batch, permit: Option<Permit>, trouble: &mut Trouble) -> Round {
        if !trouble.leftovers.is_empty() {
            return self.clear(vm, goals, permit, trouble).await;
        }
        let allowed = match trouble.suspects.next() {
            Search::Over => None,
            Search::Try(members) => Some(members),
            Search::Found(culprit) => {
                // It was written alone, or is the one left over: the next failure is its own.
                Some(BTreeSet::from([culprit]))
            }
        };
        let in_batch = |disk: &ArmId| allowed.as_ref().is_none_or(|members| members.contains(disk));
        let members: Batch =
            goals.iter().filter(|(disk, _)| in_batch(disk)).map(|(disk, goal)| (disk.clone(), *goal)).collect();
        if members.is_empty() {
            // The suspects have left; there is nobody to blame.
            trouble.suspects = Suspects::default();
            return Round::Goes;
        }

        if allowed.is_some() {
            // Who is not suspected is not kept by the search, unless by the need of a write.
            let others = goals.iter().filter(|(disk, _)| !in_batch(disk));
            let others = others.map(|(disk, goal)| (disk.clone(), *goal)).collect();
            trouble.answered(&self.settle(&vm.model, &others).await);
        }

        let (wanted, unsaid) = self.wanted(&vm.model, &members).await;
        trouble.answered(&members.keys().filter(|disk| !has_a_say(&wanted, &unsaid, disk)).cloned().collect());
        let (plan, reservations) = self.plan(&vm.model, &wanted);

        let (mut unknown, mut unsure) = (0, 0);
        let mut cleared = BTreeSet::new();
        for (disk, settled) in plan.settled {
            match settled {
                Settled::ReservationsUnknown => unknown += 1,
                Settled::Detached if self.shared.reads_tell_since().is_some() => unsure += 1,
                settled => {
                    self.answer(&disk, members[&disk], &self.say(&disk, settled));
                    cleared.insert(disk);
                }
            }
        }
        trouble.suspects.cleared(&cleared);
        if plan.write.is_empty() {
            return if unknown > 0 && reservations == NodeReservations::Unknown {
                Round::WaitsForReservations
            } else if !unsaid.is_empty() {
                Round::WaitsForVm(unsaid)
            } else if unsure > 0 {
                Round::WaitsForFreshReads
            } else {
                Round::Goes
            };
        }
        if permit.is_none() && self.needs_permit(vm, trouble) {
            return Round::WaitsForPermit(priority(&members));
        }
        self.write(vm, &plan.write, &members, permit, trouble).await;
        Round::Goes
    }

    /// Whether the next write of the VM is one that no condition guards.
    fn needs_permit(&self, vm: &Snapshot<Vm>, trouble: &Trouble) -> bool {
        let method = trouble.method.unwrap_or_else(|| self.shared.method());
        method == VmWriteMethod::Action || vm.etag.is_none()
    }

    fn plan(&self, vm: &Vm, wanted: &Wanted) -> (Plan, NodeReservations) {
        let names = [Some(self.node.as_str()), Some(vm.id.name()), vm.computer_name.as_deref()];
        let names: Vec<&str> = names.into_iter().flatten().collect();
        let reservations = self.shared.reservations.now().of_node(&names);
        let limit = self.shared.sizes.borrow().max_data_disks(&vm.size);
        let limit = limit.map_or(usize::from(Lun::COUNT), usize::from);
        (attach::plan(vm, wanted, &reservations, limit), reservations)
    }

    /// Answers those of these wishes that need no write, while none may be made for them. Gives the disks whose own
    /// state was the answer.
    async fn settle(&self, vm: &Vm, goals: &Batch) -> BTreeSet<ArmId> {
        let may_be_so = |disk: &ArmId, goal: &Goal| vm.data_disk(disk).is_some() == (*goal != Goal::Detached);
        let members = goals.iter().filter(|(disk, goal)| may_be_so(disk, goal));
        let members: Batch = members.map(|(disk, goal)| (disk.clone(), *goal)).collect();
        if members.is_empty() {
            return BTreeSet::new();
        }
        let (wanted, unsaid) = self.wanted(vm, &members).await;
        for (disk, settled) in self.plan(vm, &wanted).0.settled {
            match settled {
                Settled::ReservationsUnknown => {}
                Settled::Detached if self.shared.reads_tell_since().is_some() => {}
                settled => self.answer(&disk, members[&disk], &self.say(&disk, settled)),
            }
        }
        members.into_keys().filter(|disk| !has_a_say(&wanted, &unsaid, disk)).collect()
    }

    async fn write(
        &self,
        vm: &Snapshot<Vm>,
        write: &VmWrite,
        members: &Batch,
        permit: Option<Permit>,
        trouble: &mut Trouble,
    ) {
        let written = write.attach.iter().map(|attachment| &attachment.disk).chain(&write.detach).chain(&write.reapply);
        let members: Batch = written.map(|disk| (disk.clone(), members[disk])).collect();
        if !self.send(&members) {
            // Somebody has left since the VM was read. What remains is planned for anew.
            return;
        }
        let method = trouble.method.unwrap_or_else(|| self.shared.method());
        let started = Instant::now();
        let result = self.written(vm, write, method, permit).await;
        // A write that names no disk is a list, by whatever method.
        let method = if write.says_nothing() { VmWriteMethod::WholeList } else { method };
        match result {
            Ok(()) => {
                info!(
                    attached = write.attach.len(),
                    reapplied = write.reapply.len(),
                    detached = write.detach.len(),
                    seconds = started.elapsed().as_secs_f64(),
                    "data disks written"
                );
                if !write.says_nothing() && trouble.method.take().is_some() {
                    *self.shared.method.lock().unwrap_or_else(PoisonError::into_inner) = method;
                }
                if let Some((culprit, goal, failure)) = trouble.succeeded(&members) {
                    let failure = self.whose(&culprit, goal, failure).await;
                    self.answer(&culprit, goal, &Err(failure));
                }
                let members = self.without_unheld(members, &write.reapply, trouble).await;
                // A disk that must leave before it can come is half way.
                let half_way = |disk: &ArmId, goal: Goal| goal != Goal::Detached && write.detach.contains(disk);
                let (half, mut members): (Batch, Batch) =
                    members.into_iter().partition(|(disk, goal)| half_way(disk, *goal));
                members.extend(half.keys().map(|disk| (disk.clone(), Goal::Detached)));
                let after = self.verify(&members, None, Retry::Counted).await;
                let message = format!("node {}: its VM does not let go of what it was told to detach", self.node);
                self.try_again(&half, &VolumeError::new(Fault::BeingDetached, message), Retry::Counted);
                if let (VmWriteMethod::WholeList | VmWriteMethod::WholeListByOmission, None, Some(after)) =
                    (method, &vm.etag, after)
                {
                    // Between our read and our write another writer may have been; nothing but this would tell.
                    for lun in vanished(&vm.model, write, &after) {
                        error!(%lun, "a data disk that our write did not name is gone from the VM since we read it");
                    }
                }
            }
            Err(error) => self.failed(write, members, method, error, trouble).await,
        }
    }

    /// Writes, and keeps nobody longer than usual who needs no write.
    async fn written(
        &self,
        vm: &Snapshot<Vm>,
        write: &VmWrite,
        method: VmWriteMethod,
        permit: Option<Permit>,
    ) -> Result<(), ArmError> {
        let mut written = pin!(self.shared.client.write_vm(vm, write, method, permit));
        match timeout(SLOW, &mut written).await {
            Ok(result) => result,
            Err(_) => self.meanwhile(written).await,
        }
    }

    async fn failed(
        &self,
        write: &VmWrite,
        members: Batch,
        method: VmWriteMethod,
        error: ArmError,
        trouble: &mut Trouble,
    ) {
        if let Some(pause) = trouble.pause(&error) {
            // Azure did nothing. What was decided may be wrong when the pause is over, and who waits may be gone.
            warn!(error = %error, ?pause, "the VM is read and planned for again after a pause");
            self.try_again(&members, &VolumeError::azure("a write of data disks was put off", error), Retry::Free);
            self.pause(pause).await;
            return;
        }
        // An action that fails late is there, and may be used.
        let there = error.status.is_some_and(|status| (200..300).contains(&status));
        let mut reaction = attach::reaction(&error.fault, if there { VmWriteMethod::WholeList } else { method });
        let failures = trouble.another();
        // A search that never meets a write that succeeds is looking for a member where the VM is to blame.
        warn!(error = %error, members = members.len(), "a write of data disks failed");
        let error = VolumeError::azure(format!("node {}: its data disks cannot be written", self.node), error);
        let named = error.culprit().filter(|named| members.contains_key(named));
        if reaction == Reaction::FindCulprit
            && named.is_none()
            && members.len() > 1
            && trouble.beyond_search(members.len())
        {
            reaction = Reaction::FailAll;
        }
        debug!(?reaction, "what is done about it");
        let refused = matches!(error.fault, Fault::Forbidden | Fault::Unsupported | Fault::Malformed);
        if method == VmWriteMethod::WholeList && refused {
            // What was on trial is no way either.
            trouble.method = None;
        }
        // A refusal at the door is about what the write says; only a write that says nothing is about the model then.
        let tried = (there || write.says_nothing())
            && match reaction {
                Reaction::FindCulprit => true,
                Reaction::FailAll => there || refused,
                Reaction::Regather | Reaction::WriteWholeList => false,
            };
        if tried && !write.reapply.is_empty() {
            // Applying the model again does not bring what it lists: that is to be brought anew.
            trouble.leftovers.extend(write.reapply.iter().cloned());
            self.verify(&members, Some(&error), Retry::Counted).await;
            return;
        }
        match reaction {
            Reaction::WriteWholeList => {
                trouble.method = Some(VmWriteMethod::WholeList);
                self.try_again(&members, &error, Retry::Free);
            }
            Reaction::Regather => {
                // Where the VM does not tell that somebody else writes to it, time must.
                if error.fault == Fault::Conflict {
                    let factor = 2u32.saturating_pow(failures.saturating_sub(1)).min(LONGEST_CONFLICT_FACTOR);
                    self.pause(CONFLICT_PAUSE * factor).await;
                }
                self.verify(&members, Some(&error), Retry::Counted).await;
            }
            Reaction::FailAll => {
                // What did happen, happened: Azure says who is attached.
                let vm = self.verify(&members, Some(&error), Retry::Free).await;
                if vm.is_some_and(|vm| under_way(write, &vm)) {
                    self.verify(&members, Some(&error), Retry::Counted).await;
                    return;
                }
                for (disk, goal) in &members {
                    self.answer(disk, *goal, &Err(concerning(&error, disk, *goal)));
                }
                trouble.suspects = Suspects::default();
            }
            Reaction::FindCulprit => {
                if let Some(vm) = self.verify(&members, Some(&error), Retry::Free).await {
                    if under_way(write, &vm) {
                        self.verify(&members, Some(&error), Retry::Counted).await;
                        return;
                    }
                    if overtaken(write, &vm) {
                        // Nobody is to blame: another writer was quicker. The action knows no etag that would tell.
                        self.try_again(&members, &error, Retry::Counted);
                        return;
                    }
                    trouble.left_over(&members, &vm);
                    let strangers = self.strangers(&members, &vm, &error).await;
                    if !strangers.is_empty() {
                        // None of the members is to blame.
                        trouble.leftovers.extend(strangers);
                        self.try_again(&members, &error, Retry::Counted);
                        return;
                    }
                }
                let only = || members.first_key_value().filter(|_| members.len() == 1);
                match named.and_then(|named| members.get_key_value(&named)).or_else(only) {
                    Some((culprit, goal)) => {
                        let error = self.whose(culprit, *goal, error).await;
                        self.answer(culprit, *goal, &Err(error));
                        trouble.found();
                    }
                    None => trouble.suspect(members, error),
                }
            }
        }
    }

    /// Reads the VM after a write and answers everybody whose wish has come true. The others go into the next round,
    /// or are answered with `failure` when they have had their tries. Gives what was read last.
    async fn verify(&self, members: &Batch, failure: Option<&VolumeError>, retry: Retry) -> Option<Vm> {
        let mut lag = LAG.iter();
        let (vm, unmet) = loop {
            // After somebody else's write, or a lost answer, there is nothing to see before that write has ended.
            let read = match (failure, retry) {
                (Some(_), Retry::Counted) => self.at_rest().await,
                _ => self.shared.client.get_vm(&self.vm).await,
            };
            let vm = match read {
                Ok(vm) => vm.model,
                Err(error) => {
                    let message = format!("node {}: what became of the write cannot be read", self.node);
                    let error = VolumeError::azure(message, error).resorted(Fault::OutcomeUnknown);
                    self.answer_all(members, &Err(error.with_effect(Effect::Possible)));
                    return None;
                }
            };
            // What a failed write left in the model may never have come; the next round asks the disk.
            let (believed, at_rest) = match vm.provisioning_state {
                ProvisioningState::Succeeded => (true, true),
                ProvisioningState::InProgress => (false, false),
                ProvisioningState::Failed | ProvisioningState::Canceled => (failure.is_none(), true),
            };
            let mut unmet = Batch::new();
            for (disk, goal) in members {
                match (goal, vm.data_disk(disk)) {
                    (Goal::Attached(_), Some(element)) if believed && !element.to_be_detached => {
                        self.answer(disk, *goal, &Ok(Some(element.lun)));
                    }
                    (Goal::Detached, None) if at_rest => self.answer(disk, *goal, &Ok(None)),
                    _ => {
                        unmet.insert(disk.clone(), *goal);
                    }
                }
            }
            match lag.next() {
                Some(pause) if failure.is_none() && !unmet.is_empty() => self.pause(*pause).await,
                _ => break (vm, unmet),
            }
        };
        match failure {
            Some(failure) => self.try_again(&unmet, failure, retry),
            None => {
                let message =
                    format!("Azure says the write to node {} succeeded, and its VM is not as written", self.node);
                self.try_again(&unmet, &VolumeError::new(Fault::Conflict, message), retry);
            }
        }
        Some(vm)
    }
}

/// How the reads and the write of a batch rank.
fn priority(batch: &Batch) -> Priority {
    if batch.values().all(|goal| *goal == Goal::Detached) { Priority::Detach } else { Priority::Attach }
}

/// A request as the planner of reads sees it.
fn wanted_on<'a>((disk, goal): (&'a ArmId, &'a Goal)) -> (&'a ArmId, bool) {
    (disk, *goal != Goal::Detached)
}

/// Whether a disk was not answered by its own state.
fn has_a_say(wanted: &Wanted, unsaid: &Batch, disk: &ArmId) -> bool {
    wanted.attach.contains_key(disk)
        || wanted.detach.contains(disk)
        || wanted.unheld.contains(disk)
        || unsaid.contains_key(disk)
}

/// Whether what a refused write asked for is being done all the same: the answer to an earlier try of it was lost.
fn under_way(write: &VmWrite, vm: &Vm) -> bool {
    let comes = |attachment: &Attachment| {
        vm.data_disk(&attachment.disk).is_some_and(|element| element.lun == attachment.lun && !element.to_be_detached)
    };
    let leaves = |disk: &ArmId| vm.data_disk(disk).is_some_and(|element| element.to_be_detached);
    vm.provisioning_state == ProvisioningState::InProgress
        && (write.attach.iter().any(comes) || write.detach.iter().any(leaves))
}

/// Whether a slot that a write meant to fill was filled by somebody else.
fn overtaken(write: &VmWrite, vm: &Vm) -> bool {
    write.attach.iter().any(|attachment| {
        vm.data_disks.iter().any(|element| element.lun == attachment.lun && !element.is(&attachment.disk))
    })
}

/// The slots of disks that a write did not name and that are not there after it. What another writer added between our
/// read and our write cannot be seen here; what it saw of us, it sees itself.
fn vanished(before: &Vm, write: &VmWrite, after: &Vm) -> Vec<Lun> {
    let leaves = |element: &DataDisk| element.to_be_detached || write.detach.iter().any(|disk| element.is(disk));
    let stays = |element: &DataDisk| {
        after.data_disks.iter().any(|other| other.lun == element.lun && other.source == element.source)
    };
    before.data_disks.iter().filter(|element| !leaves(element) && !stays(element)).map(|element| element.lun).collect()
}

#[cfg(test)]
mod tests;
