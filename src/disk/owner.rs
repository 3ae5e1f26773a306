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
//! - One bad member of a batch fails alone ([`Suspects`]).
//!
//! The task ends when its queue is empty; the next request starts another.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, stream};
use lazuli_azure::{compute::Snapshot, error::ArmError};
use lazuli_plan::{
    attach::{self, Reaction, Search, Settled, Suspects, Terms, Unattachable, Wanted},
    disk::effective_caching,
    fault::{Effect, Fault},
    lun::{LunReservations, NodeReservations},
    model::{ArmId, CachingMode, Lun, Vm},
    op::{VmWrite, VmWriteMethod},
    size,
};
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, sleep, timeout},
};
use tracing::{Instrument, debug, info, warn};

use super::{DiskHold, Nodes, VolumeError, client::Client};

/// How long no request may arrive before a burst counts as over.
const QUIET: Duration = Duration::from_millis(25);
/// The longest an owner waits for a burst to end.
const LONGEST_BURST: Duration = Duration::from_millis(150);
/// How often a write that met another writer is planned again before its callers are told.
const TRIES: u32 = 5;
/// How long attachments wait for the cluster's VolumeAttachments to be known.
const RESERVATIONS_WAIT: Duration = Duration::from_secs(30);
/// How many disks are read at a time.
const READS: usize = 16;

/// What a caller wants of a disk on a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// On the VM, cached like this; by default as the disk allows.
    Attached(Option<CachingMode>),
    /// Off the VM.
    Detached,
}

/// What a caller gets: the LUN of an attached disk, nothing for a detached one.
pub(crate) type Outcome = Result<Option<Lun>, VolumeError>;

/// Every owner.
#[derive(Debug, Clone)]
pub(crate) struct Owners {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    client: Client,
    nodes: Nodes,
    reservations: watch::Receiver<LunReservations>,
    method: Mutex<VmWriteMethod>,
    queues: Mutex<BTreeMap<ArmId, Queue>>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: BTreeMap<ArmId, Request>,
    arrivals: u64,
}

#[derive(Debug)]
struct Request {
    goal: Goal,
    callers: Vec<oneshot::Sender<Outcome>>,
    sent: bool,
    tries: u32,
    /// Keeps the disk from being deleted until the request is answered.
    _hold: DiskHold,
}

impl Request {
    fn abandoned(&self) -> bool {
        !self.sent && self.callers.iter().all(oneshot::Sender::is_closed)
    }
}

impl Owners {
    pub(crate) fn new(
        client: Client,
        nodes: Nodes,
        reservations: watch::Receiver<LunReservations>,
        method: VmWriteMethod,
    ) -> Self {
        let method = Mutex::new(method);
        Self { shared: Arc::new(Shared { client, nodes, reservations, method, queues: Mutex::default() }) }
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
        let (caller, answer) = oneshot::channel();
        let mut queues = self.shared.queues();
        let idle = !queues.contains_key(vm);
        let queue = queues.entry(vm.clone()).or_default();
        queue.arrivals += 1;
        match queue.waiting.get_mut(disk) {
            Some(request) if request.goal == goal => request.callers.push(caller),
            Some(request) if !request.abandoned() => {
                let state = if request.sent { "is being written" } else { "is wanted" };
                return Err(VolumeError::new(
                    Fault::Busy,
                    format!("{disk} on node {node}: {goal:?} is not possible while {:?} {state}", request.goal),
                ));
            }
            _ => {
                let request = Request { goal, callers: vec![caller], sent: false, tries: 0, _hold: hold };
                queue.waiting.insert(disk.clone(), request);
            }
        }
        if idle {
            let driver = Driver {
                shared: self.shared.clone(),
                vm: vm.clone(),
                node: node.to_owned(),
                ended: AtomicBool::new(false),
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
}

impl Drop for Driver {
    /// Should the task panic, its callers learn that at once and the next request starts a new one.
    fn drop(&mut self) {
        if !self.ended.load(Ordering::Relaxed) {
            self.shared.queues().remove(&self.vm);
        }
    }
}

/// The search for the member that makes batches fail.
#[derive(Debug, Default)]
struct Trouble {
    suspects: Suspects,
    /// Writes that failed since the last that succeeded.
    failures: u32,
}

/// Whether another round counts against a request's tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Retry {
    Counted,
    Free,
}

/// What happened to a batch.
enum Round {
    /// Something was settled, or is to be tried again.
    Goes,
    /// Nothing can be done before the attachments are known.
    WaitsForReservations,
}

impl Driver {
    async fn run(self) {
        let mut trouble = Trouble::default();
        let mut waited_for_reservations = false;
        loop {
            // Before the read: a queue that the last round emptied costs none.
            if self.goals().is_none() {
                return;
            }
            let (read, ()) = tokio::join!(self.shared.client.get_vm(&self.vm), self.burst_over());
            let Some(goals) = self.goals() else { return };
            let round = match read {
                Ok(vm) => self.round(&vm, &goals, &mut trouble).await,
                Err(error) => {
                    let error = VolumeError::azure(format!("node {}: its VM cannot be read", self.node), error);
                    self.answer_all(goals.keys(), &Err(error));
                    Round::Goes
                }
            };
            match round {
                Round::Goes => waited_for_reservations = false,
                Round::WaitsForReservations if !waited_for_reservations => {
                    waited_for_reservations = true;
                    let mut reservations = self.shared.reservations.clone();
                    let known = reservations.wait_for(|state| *state != LunReservations::Cold);
                    if timeout(RESERVATIONS_WAIT, known).await.is_err() {
                        warn!("the cluster's VolumeAttachments are not known yet; no LUN is given");
                    }
                }
                Round::WaitsForReservations => {
                    let message = format!(
                        "node {}: the cluster's VolumeAttachments are not known yet, so no LUN can be given safely",
                        self.node
                    );
                    let error = VolumeError::new(Fault::Unavailable, message);
                    let attaching = goals.iter().filter(|(_, goal)| **goal != Goal::Detached).map(|(disk, _)| disk);
                    self.answer_all(attaching, &Err(error));
                    waited_for_reservations = false;
                }
            }
        }
    }

    /// Waits until no request has arrived for a moment.
    async fn burst_over(&self) {
        let arrivals = || self.shared.queues().get(&self.vm).map_or(0, |queue| queue.arrivals);
        let latest = Instant::now() + LONGEST_BURST;
        let mut seen = arrivals();
        loop {
            sleep(QUIET).await;
            let now = arrivals();
            if now == seen || Instant::now() >= latest {
                return;
            }
            seen = now;
        }
    }

    /// What is wanted now, by disk, without what nobody waits for any more. `None` when nothing is: the queue is
    /// gone and the task must end.
    fn goals(&self) -> Option<BTreeMap<ArmId, Goal>> {
        let mut queues = self.shared.queues();
        let queue = queues.get_mut(&self.vm)?;
        queue.waiting.retain(|disk, request| {
            let keep = !request.abandoned();
            if !keep {
                debug!(%disk, "nobody waits for this any more; it was not sent");
            }
            keep
        });
        if queue.waiting.is_empty() {
            queues.remove(&self.vm);
            self.ended.store(true, Ordering::Relaxed);
            return None;
        }
        Some(queue.waiting.iter().map(|(disk, request)| (disk.clone(), request.goal)).collect())
    }

    /// Plans, writes and verifies once.
    async fn round(&self, vm: &Snapshot<Vm>, goals: &BTreeMap<ArmId, Goal>, trouble: &mut Trouble) -> Round {
        let allowed = match trouble.suspects.next() {
            Search::Over => None,
            Search::Try(members) => Some(members),
            Search::Found(culprit) => {
                // It was written alone, or is the one left over: the next failure is its own.
                Some(BTreeSet::from([culprit]))
            }
        };
        let in_batch = |disk: &ArmId| allowed.as_ref().is_none_or(|members| members.contains(disk));
        let members: BTreeMap<&ArmId, Goal> =
            goals.iter().filter(|(disk, _)| in_batch(disk)).map(|(disk, goal)| (disk, *goal)).collect();
        if members.is_empty() {
            // The suspects have left; there is nobody to blame.
            trouble.suspects = Suspects::default();
            return Round::Goes;
        }

        let wanted = self.wanted(&vm.model, &members).await;
        let reservations = self.shared.reservations.borrow().of_node(&self.node);
        let limit = size::max_data_disks(&vm.model.size).map_or(usize::from(Lun::COUNT), usize::from);
        let plan = attach::plan(&vm.model, &wanted, &reservations, limit);

        let mut unknown = 0;
        let cleared: BTreeSet<ArmId> = plan.settled.keys().cloned().collect();
        for (disk, settled) in plan.settled {
            match settled {
                Settled::ReservationsUnknown => unknown += 1,
                settled => self.answer(&disk, &self.say(&disk, settled)),
            }
        }
        trouble.suspects.cleared(&cleared);
        if plan.write.is_empty() {
            return if unknown > 0 && reservations == NodeReservations::Unknown {
                Round::WaitsForReservations
            } else {
                Round::Goes
            };
        }
        self.write(vm, &plan.write, trouble).await;
        Round::Goes
    }

    /// What may be asked of the planner: every disk that leaves, and every disk that comes and whose own state allows
    /// it. The others are answered here.
    async fn wanted(&self, vm: &Vm, members: &BTreeMap<&ArmId, Goal>) -> Wanted {
        let mut wanted = Wanted::default();
        let mut unread = Vec::new();
        for (disk, goal) in members {
            match goal {
                Goal::Detached => {
                    wanted.detach.insert((*disk).clone());
                }
                // It is in the VM's model: its own state has nothing to add.
                Goal::Attached(caching) if vm.data_disk(disk).is_some() => {
                    let caching = caching.unwrap_or(CachingMode::None);
                    let terms = Terms { caching, disk_encryption_set: None, write_accelerator: false };
                    wanted.attach.insert((*disk).clone(), terms);
                }
                Goal::Attached(caching) => unread.push(((*disk).clone(), *caching)),
            }
        }
        let mut reads = stream::iter(unread.into_iter().map(|(disk, caching)| async move {
            let read = self.shared.client.get_disk(&disk).await;
            (disk, caching, read)
        }))
        .buffer_unordered(READS);
        while let Some((disk, caching, read)) = reads.next().await {
            let answer = match read {
                Ok(read) => match attach::attachable(&read.model, &vm.id) {
                    Ok(()) => {
                        let terms = Terms {
                            caching: effective_caching(caching, &read.model),
                            disk_encryption_set: read.model.disk_encryption_set.clone(),
                            write_accelerator: read.model.write_accelerator(),
                        };
                        wanted.attach.insert(disk, terms);
                        continue;
                    }
                    Err(Unattachable::HeldBy(holders)) => self.held_elsewhere(&disk, &holders),
                    Err(Unattachable::InUse(state)) => VolumeError::new(
                        Fault::InUse,
                        format!(
                            "{disk} cannot be attached while it is {state}: a shared access signature is out on it"
                        ),
                    ),
                },
                Err(error) => VolumeError::azure(format!("{disk} cannot be read"), error),
            };
            self.answer(&disk, &Err(answer));
        }
        wanted
    }

    fn held_elsewhere(&self, disk: &ArmId, holders: &[ArmId]) -> VolumeError {
        let nodes: Vec<String> = holders.iter().map(|holder| self.shared.nodes.name_of(holder)).collect();
        VolumeError::new(
            Fault::AttachedElsewhere { holder: holders.first().cloned() },
            format!("{disk} cannot be attached to node {}: it is attached to node {}", self.node, nodes.join(", ")),
        )
    }

    async fn write(&self, vm: &Snapshot<Vm>, write: &VmWrite, trouble: &mut Trouble) {
        let members: BTreeSet<ArmId> =
            write.attach.iter().map(|attachment| &attachment.disk).chain(&write.detach).cloned().collect();
        self.mark_sent(&members);
        let method = self.shared.method();
        let started = Instant::now();
        let result = self.shared.client.write_vm(vm, write, method).await;
        match result {
            Ok(()) => {
                info!(
                    attached = write.attach.len(),
                    detached = write.detach.len(),
                    seconds = started.elapsed().as_secs_f64(),
                    "data disks written"
                );
                trouble.suspects.cleared(&members);
                trouble.failures = 0;
                self.verify(&members, None, Retry::Counted).await;
            }
            Err(error) => self.failed(members, method, error, trouble).await,
        }
    }

    async fn failed(&self, members: BTreeSet<ArmId>, method: VmWriteMethod, error: ArmError, trouble: &mut Trouble) {
        let mut reaction = attach::reaction(&error.fault, method);
        trouble.failures += 1;
        // A search that never meets a write that succeeds is looking for a member where the VM is to blame.
        let longest_search = u32::try_from(members.len()).unwrap_or(u32::MAX).max(2).ilog2() + 2;
        if reaction == Reaction::FindCulprit && members.len() > 1 && trouble.failures > longest_search {
            reaction = Reaction::FailAll;
        }
        warn!(error = %error, ?reaction, members = members.len(), "a write of data disks failed");
        let named = error.target.as_deref().and_then(|target| target.parse::<ArmId>().ok());
        let error = VolumeError::azure(format!("node {}: its data disks cannot be written", self.node), error);
        match reaction {
            Reaction::WriteWholeList => {
                *self.shared.method.lock().unwrap_or_else(PoisonError::into_inner) = VmWriteMethod::WholeList;
                self.try_again(&members, &error, Retry::Free);
            }
            Reaction::Regather => self.verify(&members, Some(&error), Retry::Counted).await,
            Reaction::FailAll => {
                // What did happen, happened: Azure says who is attached.
                self.verify(&members, Some(&error), Retry::Free).await;
                self.answer_all(&members, &Err(error));
                trouble.suspects = Suspects::default();
            }
            Reaction::FindCulprit => {
                self.verify(&members, Some(&error), Retry::Free).await;
                match named.filter(|named| members.contains(named)) {
                    Some(culprit) => {
                        self.answer(&culprit, &Err(error));
                        trouble.suspects = Suspects::default();
                    }
                    None if members.len() == 1 => {
                        self.answer_all(&members, &Err(error));
                        trouble.suspects.cleared(&members);
                    }
                    None => trouble.suspects.failed(members),
                }
            }
        }
    }

    /// Reads the VM after a write and answers everybody whose wish has come true. The others go into the next round,
    /// or are answered with `failure` when they have had their tries.
    async fn verify(&self, members: &BTreeSet<ArmId>, failure: Option<&VolumeError>, retry: Retry) {
        let vm = match self.shared.client.get_vm(&self.vm).await {
            Ok(vm) => vm.model,
            Err(error) => {
                let message = format!("node {}: what became of the write cannot be read", self.node);
                let error = VolumeError::azure(message, error).resorted(Fault::OutcomeUnknown);
                self.answer_all(members, &Err(error.with_effect(Effect::Possible)));
                return;
            }
        };
        let goals: Vec<(&ArmId, Goal)> = {
            let queues = self.shared.queues();
            let waiting = queues.get(&self.vm).map(|queue| &queue.waiting);
            let goal = |disk: &ArmId| waiting.and_then(|waiting| waiting.get(disk)).map(|request| request.goal);
            members.iter().filter_map(|disk| Some((disk, goal(disk)?))).collect()
        };
        let mut unmet = BTreeSet::new();
        for (disk, goal) in goals {
            match (goal, vm.data_disk(disk)) {
                (Goal::Attached(_), Some(element)) if !element.to_be_detached => {
                    self.answer(disk, &Ok(Some(element.lun)))
                }
                (Goal::Detached, None) => self.answer(disk, &Ok(None)),
                _ => {
                    unmet.insert(disk.clone());
                }
            }
        }
        match failure {
            Some(failure) => self.try_again(&unmet, failure, retry),
            None => {
                let message =
                    format!("Azure says the write to node {} succeeded, and its VM is not as written", self.node);
                self.try_again(&unmet, &VolumeError::new(Fault::Conflict, message), retry);
            }
        }
    }

    fn say(&self, disk: &ArmId, settled: Settled) -> Outcome {
        let node = &self.node;
        Err(match settled {
            Settled::Attached { lun } => return Ok(Some(lun)),
            Settled::Detached => return Ok(None),
            Settled::StillLeaving => {
                VolumeError::new(Fault::BeingDetached, format!("{disk} is still being detached from node {node}"))
            }
            Settled::TooManyDisks { limit, attached } => VolumeError::new(
                Fault::DiskLimit,
                format!(
                    "{disk} cannot be attached to node {node}: its VM size takes {limit} data disks and it has {attached}"
                ),
            ),
            Settled::NoFreeLun => VolumeError::new(
                Fault::DiskLimit,
                format!(
                    "{disk} cannot be attached to node {node}: every LUN is occupied or named by a VolumeAttachment"
                ),
            ),
            Settled::ReservationsUnknown => VolumeError::new(
                Fault::Unavailable,
                format!("{disk} cannot be attached to node {node}: the cluster's VolumeAttachments are not known yet"),
            ),
        })
    }

    fn mark_sent(&self, members: &BTreeSet<ArmId>) {
        if let Some(queue) = self.shared.queues().get_mut(&self.vm) {
            for (_, request) in queue.waiting.iter_mut().filter(|(disk, _)| members.contains(*disk)) {
                request.sent = true;
            }
        }
    }

    /// Puts requests back for the next round, or answers them with the last failure when they have had their tries.
    fn try_again(&self, disks: &BTreeSet<ArmId>, failure: &VolumeError, retry: Retry) {
        let mut spent = Vec::new();
        if let Some(queue) = self.shared.queues().get_mut(&self.vm) {
            for (disk, request) in queue.waiting.iter_mut().filter(|(disk, _)| disks.contains(*disk)) {
                request.sent = false;
                request.tries += u32::from(retry == Retry::Counted);
                if request.tries >= TRIES {
                    spent.push(disk.clone());
                }
            }
        }
        self.answer_all(&spent, &Err(failure.clone()));
    }

    fn answer(&self, disk: &ArmId, outcome: &Outcome) {
        let request = self.shared.queues().get_mut(&self.vm).and_then(|queue| queue.waiting.remove(disk));
        for caller in request.into_iter().flat_map(|request| request.callers) {
            // A caller that has given up hears nothing; the write happened all the same.
            let _ = caller.send(outcome.clone());
        }
    }

    fn answer_all<'a>(&self, disks: impl IntoIterator<Item = &'a ArmId>, outcome: &Outcome) {
        for disk in disks {
            self.answer(disk, outcome);
        }
    }
}
