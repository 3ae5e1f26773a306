//! The step of one VM's data disks: the one writer of a VM's data disks, however many callers.
//!
//! ```text
//!            request                  no request for 25 ms
//!   (idle) ───────────▶ gathering ───────────────────────────▶ planning
//!      ▲                    ▲                                     │ one write, or none
//!      │ queue empty        │ more requests, or a retry           ▼
//!      └────────────────────┴──────────────── judging ◀────── writing
//! ```
//!
//! [`State::step`] folds an event into the facts of a VM and decides from them; [`State::wake_at`] says when it decides
//! next without one. It has no clock, task, lock or await: what it needs to know of the cluster is in [`Env`], what the VMs
//! of a process share is in [`Memory`], and what it wants done is an [`Action`], whose answer comes back as an [`Event`].
//! `lazuli-disk` carries the actions out and chooses nothing.
//!
//! It has no lease of its own, because the sidecars of `csi-controller` have it. So it holds whatever another replica does:
//! a write is sent right after a read, requests are answered by what a read shows after the write, and what the leader
//! before may still have under way is waited for ([`Memory::late_attach`], [`Memory::fresh_from`]).
//!
//! - A caller only waits. A request whose callers give up before its write is sent leaves the batch. After that the
//!   write goes on, and a repeated request joins it.
//! - While a write is in flight, requests collect for the next write. An idle VM waits until a burst of requests has
//!   ended, so that a burst costs one write.
//! - The VM is read before each write and again after it. A caller is answered with what Azure then says, never with what
//!   was requested.
//! - [`lazuli_storage::attach::plan`] and [`lazuli_storage::attach::confirm`] decide which read answers which request. The step reads what they ask for,
//!   and a read answers only the callers that came before it was sent.
//! - Who waits for the permit to write reads the VM again when the permit has come. The terms of the attaches that were
//!   read before the wait are kept ([`reads::DiskReads`]).
//! - One failing disk of a batch fails alone ([`lazuli_engine::bisection`]). A caller never gets the failure of another
//!   caller's disk ([`Failure`]).
//! - A request that needs no write is answered during a pause, during another writer's write, and during a bisection
//!   ([`aside`]).
//! - The detach of an unused disk is for one attachment alone. The disk is read again before that detach is sent
//!   ([`conditions`]).
//! - A disk whose ordinary detach failed is detached by force from a VM that is proved stopped, where the operator has
//!   allowed it ([`forced`]).
//! - The VM's model is applied again when a failed attach has left a stale data disk in it, and the disk is removed from the
//!   model if that does not help ([`stale`]).
//!
//! | module | holds |
//! |---|---|
//! | [`queue`] | the requests and their callers |
//! | [`round`] | from the requests to one write: which reads, which plan |
//! | [`plan`] | the plan by what has been read, and how its write is sent |
//! | [`conditions`], [`forced`] | what a round reads last, right before a detach |
//! | [`stale`] | the write that removes stale disks from the VM's model |
//! | [`judge`] | what follows from a write that has ended |
//! | [`refusal`] | what a disk's own state says of an attach that Azure refused |
//! | [`aside`] | answers without a write, while something is waited for |
//! | [`attempts`] | what is remembered of failed writes |
//! | [`memory`] | what the VMs of a process share |

use std::{collections::BTreeMap, time::Duration};

use lazuli_engine::{Id, Ids};
use lazuli_model::{
    ArmId, AzureTime, Disk, DiskId, InstanceView, Lun, Vm,
    fault::Fault,
    node::ClusterNodes,
    op::{VmWrite, VmWriteMethod},
    size::SizeLimits,
};
use lazuli_quota::{
    permit::Priority,
    read::{Accept, Seen},
};

use lazuli_storage::{
    attach::{Goal, Resolution, Resolved, Unattachable},
    dangling::Dangling,
    force_detach::{Detach, ForceDetach},
    lun::LunReservations,
    source::VmVersion,
};

mod aside;
mod attempts;
mod conditions;
#[cfg(test)]
mod courses;
mod failure;
mod forced;
mod judge;
mod memory;
mod plan;
mod queue;
mod reads;
mod refusal;
mod round;
#[cfg(test)]
mod simulation;
mod stale;
mod waits;

use aside::Aside;
use attempts::Attempts;
pub use failure::{AzureError, Failure, Why};
use judge::Judge;
pub use memory::Memory;
use queue::{Batch, Queue, Retry};
pub use queue::{Caller, Opposed};
use reads::DiskReads;
use round::Stage;

/// The pauses before a VM or a disk is read again while it does not show what was written: reads may lag.
const READ_LAG_PAUSES: [Duration; 4] =
    [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];

/// What a caller gets: the LUN of an attached disk, nothing for a detached one.
pub type Outcome<E> = Result<Option<Lun>, Failure<E>>;

/// What a step needs to know of the cluster, as it is now.
#[derive(Debug, Clone, Copy)]
pub struct Env<'a> {
    /// The LUNs that VolumeAttachments name.
    pub attachments: &'a LunReservations,
    /// The cluster's Nodes.
    pub nodes: &'a ClusterNodes,
    /// How many data disks the VM sizes take.
    pub sizes: &'a SizeLimits,
    /// Whether disks may be detached by force.
    pub force_detach: ForceDetach,
}

/// A VM, as a read has shown it.
#[derive(Debug, Clone, PartialEq)]
pub struct VmRead {
    /// The VM.
    pub vm: Vm,
    /// Which machine it is, in which version.
    pub version: VmVersion,
    /// By which read, and when that was sent.
    pub seen: Seen<Duration>,
    /// When Azure answered, by its own clock.
    pub answered: Option<AzureTime>,
}

/// A disk, as a read has shown it.
#[derive(Debug, Clone, PartialEq)]
pub struct DiskSeen {
    /// The disk.
    pub disk: Disk<DiskId>,
    /// By which read, and when that was sent.
    pub seen: Seen<Duration>,
}

/// What happens to a VM's data disks.
#[derive(Debug, Clone)]
pub enum Event<E> {
    /// A caller requests a disk's state.
    Requested {
        /// The caller.
        caller: Caller,
        /// The name of the node that the VM is, as the caller knows it.
        node: String,
        /// The disk.
        disk: DiskId,
        /// What is requested.
        goal: Goal,
        /// Of the detach of an unused disk: the attachment that alone it is for.
        only_if: Option<Dangling>,
    },
    /// A caller has given up.
    Abandoned(Caller),
    /// A read of the VM has ended.
    VmRead(Id, Result<Box<VmRead>, E>),
    /// Reads of disks have ended, each with its own result.
    DisksRead(Id, Vec<(DiskId, Result<DiskSeen, E>)>),
    /// A read of the VM's instance view has ended.
    ViewRead(Id, Result<InstanceView, E>),
    /// There is a permit to write.
    Permitted(Id),
    /// There is none now, and none was to be waited for.
    NotPermitted(Id),
    /// There will be none.
    PermitFailed(Id, E),
    /// A write has ended. Where it succeeded, Azure had accepted it by then.
    Written(Id, Result<Duration, E>),
    /// The VolumeAttachments are known.
    AttachmentsKnown(Id),
    /// The time of [`State::wake_at`] has come.
    Woke,
}

/// What a step wants done.
#[derive(Debug, Clone, PartialEq)]
pub enum Action<E> {
    /// Answer a caller.
    Answer {
        /// The caller.
        caller: Caller,
        /// The disk that it asked for.
        disk: DiskId,
        /// The answer.
        outcome: Box<Outcome<E>>,
    },
    /// Read the VM: [`Event::VmRead`].
    ReadVm {
        /// The read.
        id: Id,
        /// Whether a list is an answer.
        accept: Accept,
        /// Its place in the queue; `None` for that of a read.
        priority: Option<Priority>,
        /// Whether a write may name this read: its raw body is kept until the next one of this kind.
        keep: bool,
    },
    /// Read disks: [`Event::DisksRead`].
    ReadDisks {
        /// The reads.
        id: Id,
        /// Those to be read by single reads.
        singly: Vec<DiskId>,
        /// Those of which a list is an answer.
        listed: Vec<DiskId>,
        /// Their place in the queue; `None` for that of a read.
        priority: Option<Priority>,
    },
    /// Read whether the VM runs: [`Event::ViewRead`].
    ReadView(Id, Priority),
    /// Take a permit to write if there is one now: [`Event::Permitted`] or [`Event::NotPermitted`].
    TryPermit(Id, Priority),
    /// Wait for a permit to write: [`Event::Permitted`] or [`Event::PermitFailed`].
    TakePermit(Id, Priority),
    /// A permit is not used.
    ReleasePermit(Id),
    /// Write the VM's data disks: [`Event::Written`].
    Write {
        /// The write.
        id: Id,
        /// The read that it was planned from.
        observation: Id,
        /// What is written.
        write: VmWrite,
        /// How.
        method: VmWriteMethod,
        /// Its place in the queue, where it has no permit.
        priority: Priority,
        /// Its permit.
        permit: Option<Id>,
    },
    /// Wait until the VolumeAttachments are known: [`Event::AttachmentsKnown`].
    AwaitAttachments(Id),
    /// What this read, permit or wait gives is not wanted any more.
    Drop(Id),
    /// Tell people.
    Report(Report),
}

/// What people are told of a VM's disks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// A disk was detached by force.
    Forced(DiskId),
    /// A data disk is gone that a write did not name.
    Vanished(Lun),
}

/// The facts of one VM's data disks.
#[derive(Debug)]
pub struct State<E> {
    vm: ArmId,
    node: String,
    ids: Ids,
    queue: Queue,
    attempts: Attempts<E>,
    stage: Stage<E>,
    /// What the stage waits for.
    awaited: Option<Id>,
    aside: Aside,
    /// How many of the requests that have ever arrived have been looked at once.
    looked_at: u64,
    /// Since when LUNs cannot be given because the VolumeAttachments are not known.
    cold_since: Option<Duration>,
}

/// One step: what it may look at, and what it decides.
struct Cx<'a, E> {
    env: &'a Env<'a>,
    memory: &'a mut Memory,
    now: Duration,
    actions: Vec<Action<E>>,
}

impl<E: AzureError> State<E> {
    /// A VM of whose disks nothing is requested.
    pub fn new(vm: ArmId) -> Self {
        Self {
            node: vm.name().to_owned(),
            vm,
            ids: Ids::default(),
            queue: Queue::default(),
            attempts: Attempts::default(),
            stage: Stage::Idle,
            awaited: None,
            aside: Aside::Idle,
            looked_at: 0,
            cold_since: None,
        }
    }

    /// Folds an event into the facts and decides.
    pub fn step(&mut self, memory: &mut Memory, env: &Env<'_>, now: Duration, event: Event<E>) -> Vec<Action<E>> {
        let mut cx = Cx { env, memory, now, actions: Vec::new() };
        match event {
            Event::Requested { caller, node, disk, goal, only_if } => {
                self.requested(&mut cx, caller, node, &disk, goal, only_if);
            }
            Event::Abandoned(caller) => self.queue.abandon(caller),
            Event::VmRead(id, read) if self.takes(id) => self.vm_read(&mut cx, id, read.map(|read| *read)),
            Event::VmRead(id, read) => self.aside_vm_read(&mut cx, id, read.map(|read| *read)),
            Event::DisksRead(id, reads) if self.takes(id) => self.disks_read(&mut cx, reads),
            Event::DisksRead(id, reads) => self.aside_disks_read(&mut cx, id, reads),
            Event::ViewRead(id, view) if self.takes(id) => self.view_read(&mut cx, view),
            Event::Permitted(id) if self.takes(id) => self.permitted(&mut cx, Some(id)),
            Event::NotPermitted(id) if self.takes(id) => self.permitted(&mut cx, None),
            Event::PermitFailed(id, error) if self.takes(id) => self.permit_failed(&mut cx, error),
            Event::Written(id, written) if self.takes(id) => self.written(&mut cx, written),
            Event::AttachmentsKnown(id) if self.takes(id) => self.attachments_known(&mut cx),
            // What was granted late is given back.
            Event::Permitted(id) => cx.actions.push(Action::ReleasePermit(id)),
            Event::ViewRead(..)
            | Event::NotPermitted(_)
            | Event::PermitFailed(..)
            | Event::Written(..)
            | Event::AttachmentsKnown(_)
            | Event::Woke => {}
        }
        self.end_what_nobody_wants(&mut cx);
        while self.timers(&mut cx) {}
        cx.actions
    }

    /// Whether nothing is requested and nothing is under way, so that the state may be dropped.
    pub fn is_idle(&self) -> bool {
        matches!(self.stage, Stage::Idle)
    }

    /// Whether there is a request of this disk, sent or not.
    pub fn is_requested(&self, disk: &DiskId) -> bool {
        self.queue.contains(disk)
    }

    /// The name of the node that the VM is.
    pub fn node(&self) -> &str {
        &self.node
    }

    fn requested(
        &mut self,
        cx: &mut Cx<'_, E>,
        caller: Caller,
        node: String,
        disk: &DiskId,
        goal: Goal,
        only_if: Option<Dangling>,
    ) {
        cx.memory.request_arrived(cx.now);
        if goal != Goal::Detached {
            cx.memory.suspicions.forget(&self.vm, disk);
        }
        let is_idle = self.is_idle();
        if is_idle {
            let ids = std::mem::take(&mut self.ids);
            *self = Self { node, ids, ..Self::new(self.vm.clone()) };
        }
        if let Err(earlier) = self.queue.request(caller, disk, goal, only_if, cx.now) {
            let opposed = Failure::new(Fault::Busy, Why::Opposed { asked: goal, earlier });
            return cx.answer(vec![caller], disk, &Err(opposed));
        }
        if is_idle {
            self.next_round(cx);
        }
    }

    /// Takes an answer that the stage waits for.
    fn takes(&mut self, id: Id) -> bool {
        self.awaited.take_if(|awaited| *awaited == id).is_some()
    }

    /// The id of something that the stage waits for from now on.
    fn await_next(&mut self) -> Id {
        let id = self.ids.next_id();
        self.awaited = Some(id);
        id
    }

    /// Gives up what the stage waits for.
    fn await_nothing(&mut self, cx: &mut Cx<'_, E>) {
        cx.actions.extend(self.awaited.take().map(Action::Drop));
    }

    /// Reads the VM for a write that may follow.
    fn read_vm(&mut self, cx: &mut Cx<'_, E>, accept: Accept, priority: Option<Priority>) {
        let id = self.await_next();
        cx.actions.push(Action::ReadVm { id, accept, priority, keep: true });
    }

    /// Reads disks, each by a single read.
    fn read_disks(&mut self, cx: &mut Cx<'_, E>, disks: Vec<DiskId>) {
        let id = self.await_next();
        let (singly, listed, priority) = (disks, Vec::new(), Some(Priority::Attach));
        cx.actions.push(Action::ReadDisks { id, singly, listed, priority });
    }

    /// Notes what a read of the VM says of the disks' sources. What it shows of another hand's writes ends what is known of
    /// its disks.
    fn note_vm_read(&self, cx: &mut Cx<'_, E>, read: &Result<VmRead, E>) {
        match read {
            Ok(read) => cx.memory.sources.vm_read(&read.vm, read.version.clone(), read.seen),
            Err(error) if error.fault().says_that_it_is_missing() => cx.memory.sources.vm_gone(&self.vm),
            Err(_) => {}
        }
    }

    /// The priority of the reads and the write of a batch.
    fn priority(&self, cx: &Cx<'_, E>, batch: &Batch) -> Priority {
        if batch.values().any(|goal| *goal != Goal::Detached) {
            Priority::Attach
        } else if cx.env.nodes.is_dead(&self.node) {
            Priority::DetachDeadNode
        } else {
            Priority::Detach
        }
    }

    /// Answers the requests that a plan has resolved by a read of the VM that Azure answered then. `unreadable` has the
    /// failed reads of disks.
    fn resolve_all(
        &mut self,
        cx: &mut Cx<'_, E>,
        answered: Option<AzureTime>,
        goals: &Batch,
        resolved: BTreeMap<DiskId, Resolution<Duration>>,
        unreadable: &BTreeMap<DiskId, E>,
    ) {
        for (disk, Resolution { resolved, sent_at }) in resolved {
            if let Some(goal) = goals.get(&disk) {
                let outcome = resolved_outcome(resolved, unreadable.get(&disk));
                self.resolve(cx, &disk, *goal, &outcome, sent_at, answered);
            }
        }
    }

    /// Answers a request by a read that was sent then and answered at that time of Azure's, if it is still in the queue. Its
    /// callers that came since stay.
    fn resolve(
        &mut self,
        cx: &mut Cx<'_, E>,
        disk: &DiskId,
        goal: Goal,
        outcome: &Outcome<E>,
        sent_at: Duration,
        answered: Option<AzureTime>,
    ) {
        if outcome.is_ok() {
            cx.memory.note_shown(&self.vm, disk, goal != Goal::Detached, sent_at, cx.now);
        }
        if let Some(detach) = self.queue.detach_of(disk, goal) {
            self.note_outcome(cx, disk, goal, detach, outcome, answered);
            let callers = self.queue.resolve(disk, goal, sent_at);
            match goal {
                Goal::Attached(_) if outcome.is_ok() => cx.memory.suspicions.ended(&self.vm, disk),
                Goal::Detached if outcome.is_ok() && !callers.is_empty() => {
                    cx.memory.suspicions.answered(&self.vm, disk, cx.now);
                }
                Goal::Attached(_) | Goal::Detached => {}
            }
            cx.answer(callers, disk, outcome);
        }
    }

    /// Answers a request, if it is still in the queue.
    fn answer(&mut self, cx: &mut Cx<'_, E>, disk: &DiskId, goal: Goal, outcome: &Outcome<E>) {
        let detach = self.queue.detach_of(disk, goal);
        if let (Some(detach), Some(callers)) = (detach, self.queue.take(disk, goal)) {
            self.note_outcome(cx, disk, goal, detach, outcome, None);
            cx.answer(callers, disk, outcome);
        }
    }

    fn answer_all(&mut self, cx: &mut Cx<'_, E>, requests: &Batch, outcome: &Outcome<E>) {
        for (disk, goal) in requests {
            self.answer(cx, disk, *goal, outcome);
        }
    }

    /// Puts requests back for the next round. Answers those that have used up their tries with the last failure.
    fn try_again(&mut self, cx: &mut Cx<'_, E>, members: &Batch, failure: &Failure<E>, retry: Retry) {
        for (disk, goal) in self.queue.put_back(members, retry) {
            self.answer(cx, &disk, goal, &Err(failure.of_batch(&disk, goal)));
        }
    }

    /// Records the outcome of a request before its callers get it. `detach` is how its last write ended.
    fn note_outcome(
        &self,
        cx: &mut Cx<'_, E>,
        disk: &DiskId,
        goal: Goal,
        detach: Detach,
        outcome: &Outcome<E>,
        answered: Option<AzureTime>,
    ) {
        let Memory { failed_detaches, seen_attachments, .. } = &mut *cx.memory;
        match (goal, outcome) {
            (Goal::Detached, Ok(_)) => failed_detaches.ended(&self.vm, disk, None),
            (Goal::Detached, Err(error)) => failed_detaches.ended(&self.vm, disk, Some((detach, &error.fault))),
            (Goal::Attached(_), _) => failed_detaches.attached(&self.vm, disk),
        }
        match goal {
            Goal::Attached(_) if outcome.is_ok() => seen_attachments.attached(disk, &self.vm, answered),
            Goal::Attached(_) => {}
            // A detach that failed may be carried out later.
            Goal::Detached => seen_attachments.detached(disk, &self.vm),
        }
    }
}

impl<E: AzureError> Cx<'_, E> {
    fn answer(&mut self, callers: Vec<Caller>, disk: &DiskId, outcome: &Outcome<E>) {
        let answer = |caller| Action::Answer { caller, disk: disk.clone(), outcome: Box::new(outcome.clone()) };
        self.actions.extend(callers.into_iter().map(answer));
    }
}

/// The outcome of a request that needs no write.
fn resolved_outcome<E: AzureError>(resolved: Resolved, unreadable: Option<&E>) -> Outcome<E> {
    let fault = match &resolved {
        Resolved::Attached { lun } => return Ok(Some(*lun)),
        Resolved::Detached => return Ok(None),
        Resolved::UnreadableDisk => {
            return Err(match unreadable {
                Some(error) => Failure::azure(Why::DiskUnreadable, error.clone()),
                None => Failure::new(Fault::Unavailable, Why::DiskUnreadable),
            });
        }
        Resolved::MayBeAttaching => Fault::Busy,
        Resolved::StillLeaving | Resolved::DetachFailed => Fault::BeingDetached,
        Resolved::TooManyDisks { .. } | Resolved::NoFreeLun => Fault::DiskLimit,
        Resolved::Unattachable(Unattachable::AttachedTo(holders)) => {
            Fault::AttachedElsewhere { holder: holders.first().cloned() }
        }
        Resolved::MayBeListed { .. }
        | Resolved::Unattachable(
            Unattachable::InUse(_) | Unattachable::Leased | Unattachable::NoBlobs(_) | Unattachable::BlobsAlone,
        ) => Fault::InUse,
    };
    Err(Failure::new(fault, Why::Resolved(resolved)))
}
