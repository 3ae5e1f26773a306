//! The step of one object of Azure: a load balancer, a security group, a public IP address, a VM's data disks, …
//!
//! ```text
//!              a want that no fresh observation answers
//!   idle ──────────────────────────────────────▶ reading ◀────────────────────────┐
//!    ▲                                              │ observed                     │
//!    │ nothing to write: each requester is told     ▼                              │ ended, or refused:
//!    ├────────────────────────────────────────── planned                           │ read again
//!    │                                              │ burst over, lease, permit    │
//!    │ only a change elsewhere can help             ▼                              │
//!    └────────────────────────────────────────── writing ──accepted──▶ polling ────┘
//! ```
//!
//! A write that creates carries no ETag, so what it rests on is read late: the permit comes first, then a single read, then
//! the write. Before the permit a list that lacks the object is enough, so that many objects that do not exist yet cost one
//! list while their writes wait for permits. Nothing else rests on such a list: no requester is told anything by it.
//!
//! The picture shows phases; none is stored. [`step`] folds an event into facts and derives from them what to do next.
//! A kind of object is an implementation of [`Object`]: mostly its planner.

mod decide;
mod following;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::Deref,
    time::Duration,
};

use lazuli_model::fault::Fault;
use lazuli_quota::{
    permit::Priority,
    poll::Expectation,
    read::{Accept, By},
};

use super::{
    Acceptance, Awaited, Explanation, Id, Ids, Outcome, Refusal, Shared, Waiting,
    backoff::Backoff,
    bisection::Bisection,
    freshness::{Freshness, LAG, OLDEST_ABSENCE},
    in_flight::InFlight,
    permit::PermitState,
    quiet_window::QuietWindow,
    reaction::{self, Reaction},
    wants::Wants,
};

pub use decide::LONGEST_UPDATING;

/// A kind of object.
pub trait Object: fmt::Debug + Clone + PartialEq + Sized {
    /// Who wants something of the object: a Service; of a VM, a disk.
    type Requester: fmt::Debug + Clone + Ord;
    /// What one requester wants: what must be present, and what must be gone.
    type Want: fmt::Debug + Clone + PartialEq;
    /// What a read shows.
    type Model: fmt::Debug + Clone + PartialEq;
    /// What the planner needs to know beside: settings, nodes.
    type Inputs;
    /// One write: edits of the raw body, a creation or a deletion.
    type Op: fmt::Debug + Clone + PartialEq;
    /// What the object shows of one requester.
    type Report: fmt::Debug + Clone + PartialEq;
    /// Keys of other objects.
    type Related: fmt::Debug + Clone + PartialEq;

    /// Whether a write carries the ETag of its observation. Where Azure has none, the object is read again when the
    /// permit has come, so that the write follows its read at once.
    const CONDITIONAL: bool;

    /// The one write that brings the object nearer to the wants, and how far each want is met without it. It removes only
    /// what a want names as gone. Without wants it may only repair the object.
    fn plan(
        wants: &BTreeMap<Self::Requester, Self::Want>,
        actual: Option<&Self::Model>,
        inputs: &Self::Inputs,
    ) -> Plan<Self>;

    /// Whether another operation runs on the object.
    fn is_updating(model: &Self::Model) -> bool;

    /// Whether a want asks for something to be gone, so that only a read that proves absence can answer it.
    fn removes(want: &Self::Want) -> bool;

    /// What of a want stays in force once it is done, until the requester tells one again. A removal by a name that is not
    /// the requester's own, such as an address, acts once: another requester may be given the address later. What must be
    /// present stays, and so may a removal of what bears the requester's own name. The default is all of the want.
    fn spent(want: &Self::Want) -> Self::Want {
        want.clone()
    }

    /// Whether a write that the leader before has begun may still take away what the want has present, and the requester
    /// goes on to rest something on it. Such a want is done once a read proves that no such write comes any more (see
    /// [`freshness`](super::freshness)). A want that asks for nothing is never threatened.
    fn is_threatened(_: &Self::Want, _: Option<&Self::Model>) -> bool {
        false
    }

    /// Whether a write brings in what the inputs say and this want rests on without asking for it: the members of its pools
    /// follow the Nodes. A want that is done stays done meanwhile, so its requester learns of the write by
    /// [`Action::Followed`] alone.
    fn follows(_: &Self::Want, _: &Self::Op) -> bool {
        false
    }

    /// The objects that what a want has present refers to. When Azure refuses the want, another writer may have deleted one
    /// of them: they are read again.
    fn references(_: &Self::Want) -> Vec<Self::Related> {
        Vec::new()
    }
}

/// What a planner decides.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan<O: Object> {
    /// The next write. `None` when the object needs none.
    pub write: Option<Write<O>>,
    /// How far each want is met.
    pub served: BTreeMap<O::Requester, Served<O::Report>>,
}

/// A write that a planner asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Write<O: Object> {
    /// What is written.
    pub op: O::Op,
    /// Its place in the queue for permits.
    pub priority: Priority,
    /// Whether it removes or replaces something that exists.
    pub replaces: bool,
    /// Whether the same wants need a further write after it, as when members leave a pool a few at a time.
    pub is_partial: bool,
    /// The objects that the write changes on the side: their ETags change, and what was read of them is stale.
    pub taints: Vec<O::Related>,
}

/// How far a want is met by what was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Served<R> {
    /// The object shows all of it.
    Met(R),
    /// The write of the plan serves it.
    Pending,
    /// Something else must come first.
    Waiting(String),
    /// It cannot be served.
    Refused(Explanation),
}

/// What a step needs beside its own state.
pub struct Env<'a, O: Object> {
    /// What all keys share.
    pub shared: Shared,
    /// What the planner needs. Only a step that plans looks at it, so that it may be made at the first look.
    pub inputs: &'a dyn Deref<Target = O::Inputs>,
}

impl<O: Object> fmt::Debug for Env<'_, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env").field("shared", &self.shared).finish_non_exhaustive()
    }
}

/// What happened to an object.
#[derive(Debug, Clone, PartialEq)]
pub enum Event<O: Object> {
    /// A requester wants this now, instead of what it wanted before. A want that Azure has refused is tried again, also if
    /// it is the same.
    Requested {
        /// The requester.
        from: O::Requester,
        /// Its number for this want.
        generation: u64,
        /// What it wants.
        want: O::Want,
        /// Whether what removes or replaces something for it waits for the operator.
        acceptance: Acceptance,
    },
    /// A requester has no further interest. What exists for it stays.
    Withdrawn(O::Requester),
    /// A read ended.
    Observed {
        /// The read.
        id: Id,
        /// When the request was sent that the answer is of.
        sent_at: Duration,
        /// Which read it was.
        by: By,
        /// The object; [`Fault::NotFound`] when exactly this object does not exist, or when a whole list lacks it.
        result: Result<O::Model, Fault>,
    },
    /// The permit was granted.
    Permitted(Id),
    /// Azure accepted the write as a long-running operation.
    Accepted {
        /// The write.
        id: Id,
        /// How long it is expected to take.
        expected: Expectation,
    },
    /// A poll ended and the operation runs on, or the poll was refused.
    Polled {
        /// The write.
        id: Id,
        /// How long to wait at least, when Azure refused the poll.
        pause: Duration,
    },
    /// The write ended.
    Ended {
        /// The write.
        id: Id,
        /// How it ended.
        result: Result<After<O::Model>, Failure<O::Requester>>,
    },
    /// What was read of this object is stale.
    Tainted(Taint),
    /// The planner's inputs have changed. `Cures` when a want that was refused may succeed now.
    EnvChanged(EnvChange),
    /// [`State::wake_at`] has come, or the lease, the informers or the acceptance have changed.
    Woke,
    /// The process is about to end: nothing new is started.
    Drain,
}

/// What a write's end says of the object.
#[derive(Debug, Clone, PartialEq)]
pub enum After<M> {
    /// Nothing: it is to be read.
    Unread,
    /// The last poll was a read of the object itself, which counts as an observation with the id of the write.
    Read {
        /// When that poll was sent.
        sent_at: Duration,
        /// The object. `None` when it does not exist.
        model: Option<M>,
    },
}

/// How a write failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure<K> {
    /// The fault.
    pub fault: Fault,
    /// What Azure names as the cause.
    pub cause: Cause<K>,
}

/// What Azure names as the cause of a failed write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause<K> {
    /// Nothing.
    Unnamed,
    /// The part of this requester.
    Member(K),
    /// An object that the written one refers to: it is not provisioned (`ReferencedResourceNotProvisioned`, a 429).
    Reference,
}

/// Why what was read of an object is stale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taint {
    /// A write of a related object has changed it, its ETag at least. It is read again when it is next needed.
    Changed,
    /// Azure says that it is not provisioned, or has refused what refers to it. It is read now, and planned even if nothing
    /// is wanted of it.
    Suspect,
}

/// What a change of the inputs means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnvChange {
    /// The object is planned again.
    Replan,
    /// The object is planned again, and what was refused is tried again.
    Cures,
}

/// What to do. Each is carried out by the adapter of the object's kind, which chooses nothing.
#[derive(Debug, Clone, PartialEq)]
pub enum Action<O: Object> {
    /// Read the object by a request that is sent no earlier than this.
    Observe {
        /// The read.
        id: Id,
        /// The earliest time of the request.
        not_before: Duration,
        /// Which reads are an answer: [`Accept::Single`] or [`Accept::Any`].
        accept: Accept,
    },
    /// Ask for a permit to write.
    TakePermit {
        /// The permit.
        id: Id,
        /// Its place in the queue.
        priority: Priority,
    },
    /// Give the permit back, or leave the queue.
    ReleasePermit(Id),
    /// Write, under this permit, on the raw body and the ETag of this observation.
    Write {
        /// The write.
        id: Id,
        /// The permit.
        permit: Id,
        /// The observation that it was planned from.
        observation: Id,
        /// What is written.
        op: O::Op,
    },
    /// Ask how the operation of the write is doing.
    Poll(Id),
    /// Tell a requester about its want of this generation.
    Tell {
        /// The requester.
        to: O::Requester,
        /// The generation of its want.
        generation: u64,
        /// What became of it.
        outcome: Outcome<O::Report>,
    },
    /// Writes that bring in what the inputs say ([`Object::follows`]) have ended.
    Followed {
        /// The requesters whose wants rest on that and were done already, in order.
        requesters: Vec<O::Requester>,
        /// Whether the object shows what the inputs say, or why it cannot.
        result: Result<(), Fault>,
    },
    /// What was read of these objects is stale.
    Taint(Vec<O::Related>, Taint),
    /// After [`Event::Drain`]: nothing is in flight any more.
    Drained,
}

/// The read in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reading {
    id: Id,
    /// Whether the object may have changed since the read was asked for.
    stale: bool,
}

#[derive(Debug, Clone)]
struct Observation<M> {
    id: Id,
    sent_at: Duration,
    by: By,
    model: Option<M>,
}

impl<M> Observation<M> {
    /// Whether all that is known is that a list lacks the object.
    fn is_only_unlisted(&self) -> bool {
        self.model.is_none() && self.by == By::List
    }
}

/// The last write that succeeded. For [`LAG`] after it, a read that does not show what
/// it wrote lags.
#[derive(Debug, Clone)]
struct LastWrite<O: Object> {
    wants: Box<[(O::Requester, O::Want)]>,
    /// What was written, when a further write must follow.
    partial: Option<O::Op>,
    ended_at: Duration,
    /// How often the object was read again because a read lagged.
    lagging: usize,
    /// The observation that was found to show the write.
    shown_by: Option<Id>,
}

/// A want that Azure refused.
#[derive(Debug, Clone, PartialEq)]
struct Refused {
    refusal: Refusal,
    /// When it is tried again although neither it nor the inputs have changed.
    retry_at: Option<Duration>,
}

/// The facts of one object.
#[derive(Debug, Clone)]
pub struct State<O: Object> {
    ids: Ids,
    wants: Wants<O::Requester, O::Want, O::Report>,
    refused: BTreeMap<O::Requester, Refused>,
    /// How often each requester's want was refused by what may pass.
    refusals: BTreeMap<O::Requester, Backoff>,
    bisection: Bisection<O::Requester>,
    /// What Azure answered to the write that the bisection is about.
    refusal: Option<Fault>,
    /// Whether no write has succeeded since a member was refused: the object itself may be the cause.
    fruitless: bool,
    /// Requesters whose parts Azure has refused and not taken since, and since when each may be tried again. Each is written
    /// alone.
    suspects: BTreeMap<O::Requester, Duration>,
    /// Until when requesters wait, because Azure refused one after the other: what they ask for may not be the cause.
    paused: BTreeMap<O::Requester, Duration>,
    /// Since Azure has said that the object is not provisioned, or has refused what refers to it: it is repaired even if
    /// nothing is wanted of it. A read that is sent before this time may not show what is wrong.
    suspected: Option<Duration>,
    observed: Option<Observation<O::Model>>,
    freshness: Freshness,
    reading: Option<Reading>,
    updating_since: Option<Duration>,
    permit: PermitState,
    write: Option<InFlight<O::Requester, O::Want>>,
    taints: Vec<O::Related>,
    /// The write in flight, when a further one must follow.
    partial: Option<O::Op>,
    /// Whether the write in flight removes or replaces something.
    replaces: bool,
    /// Whose wants were done and rest on what the writes since the object was last settled bring in.
    followers: BTreeSet<O::Requester>,
    last_write: Option<LastWrite<O>>,
    /// When the object is read again to prove that something is gone.
    prove_at: Option<Duration>,
    quiet: QuietWindow,
    /// The last observation that was planned from.
    planned: Option<Id>,
    pause_until: Duration,
    conflicts: Backoff,
    failures: Backoff,
    /// How soon the object is read again while a want waits for what it does not show.
    waits: Backoff,
    draining: bool,
    settled: bool,
    wake: Option<Duration>,
}

impl<O: Object> Default for State<O> {
    fn default() -> Self {
        Self {
            ids: Ids::default(),
            wants: Wants::default(),
            refused: BTreeMap::new(),
            refusals: BTreeMap::new(),
            bisection: Bisection::default(),
            refusal: None,
            fruitless: false,
            suspects: BTreeMap::new(),
            paused: BTreeMap::new(),
            suspected: None,
            observed: None,
            freshness: Freshness::default(),
            reading: None,
            updating_since: None,
            permit: PermitState::None,
            write: None,
            taints: Vec::new(),
            partial: None,
            replaces: false,
            followers: BTreeSet::new(),
            last_write: None,
            prove_at: None,
            quiet: QuietWindow::default(),
            planned: None,
            pause_until: Duration::ZERO,
            conflicts: Backoff::CONFLICT,
            failures: Backoff::FAILURE,
            waits: Backoff::FAILURE,
            draining: false,
            settled: true,
            wake: None,
        }
    }
}

/// Folds an event into the facts and decides what to do.
pub fn step<O: Object>(state: &mut State<O>, env: &Env<'_, O>, now: Duration, event: Event<O>) -> Vec<Action<O>> {
    let mut actions = Vec::new();
    state.fold(now, event, &mut actions);
    state.decide(env, now, &mut actions);
    actions
}

impl<O: Object> State<O> {
    /// When [`Event::Woke`] is due if nothing else happens before.
    pub fn wake_at(&self) -> Option<Duration> {
        self.wake
    }

    /// Whether the state may be dropped: nothing is wanted and nothing is in flight.
    pub fn is_idle(&self) -> bool {
        self.wants.is_empty()
            && self.suspected.is_none()
            && self.write.is_none()
            && self.reading.is_none()
            && self.permit == PermitState::None
    }

    /// Whether a write is in flight.
    pub fn is_writing(&self) -> bool {
        self.write.is_some()
    }

    /// What the object waits for.
    pub fn awaited(&self, shared: &Shared, now: Duration) -> Awaited {
        if let Some(write) = &self.write {
            return if write.is_accepted() { Awaited::Operation } else { Awaited::Answer };
        }
        let is_lagging = self.last_write.as_ref().is_some_and(|write| write.lagging > 0 && write.shown_by.is_none());
        match () {
            () if self.draining => Awaited::End,
            () if self.wants.is_empty() && self.suspected.is_none() => Awaited::Nothing,
            () if !shared.synced => Awaited::Informers,
            () if self.reading.is_some() => Awaited::Read,
            () if matches!(self.permit, PermitState::Asked(_)) => Awaited::Permit,
            () if now < self.pause_until && self.updating_since.is_some() => Awaited::OtherOperation,
            () if now < self.pause_until && is_lagging => Awaited::FreshReads,
            () if now < self.pause_until => Awaited::Pause,
            // A look at all wants for each of a burst would take long.
            () if self.quiet.wait_until(now).is_some() => Awaited::Moment,
            () => self
                .wants
                .iter()
                .map(|(_, entry)| of_want(entry.told(), shared, now))
                .max_by_key(rank)
                .unwrap_or(Awaited::Moment),
        }
    }

    fn fold(&mut self, now: Duration, event: Event<O>, actions: &mut Vec<Action<O>>) {
        match event {
            Event::Requested { from, generation, want, acceptance } => {
                self.quiet.requested(now);
                if self.wants.request(from.clone(), generation, want, acceptance) {
                    self.may_succeed_now(&from);
                } else {
                    self.refused.remove(&from);
                    self.paused.remove(&from);
                }
            }
            Event::Withdrawn(from) => {
                self.wants.withdraw(&from);
                self.suspects.remove(&from);
                self.may_succeed_now(&from);
            }
            Event::Observed { id, sent_at, by, result } => {
                let Some(reading) = self.reading.take_if(|reading| reading.id == id) else { return };
                match result {
                    _ if reading.stale => {}
                    Ok(model) => self.observe(id, sent_at, by, Some(model)),
                    Err(Fault::NotFound) => self.observe(id, sent_at, by, None),
                    Err(fault) => self.not_read(&fault, now, actions),
                }
            }
            Event::Permitted(id) => {
                if self.permit.granted(id) && (!O::CONDITIONAL || self.is_absence_unsure(now)) {
                    self.changed(now);
                }
            }
            Event::Accepted { id, expected } => {
                if let Some(write) = self.write.as_mut().filter(|write| write.id == id) {
                    write.accepted(expected, now);
                }
            }
            Event::Polled { id, pause } => {
                if let Some(write) = self.write.as_mut().filter(|write| write.id == id) {
                    write.polled(pause, now);
                }
            }
            Event::Ended { id, result } => {
                let Some(write) = self.write.take_if(|write| write.id == id) else { return };
                let taints = std::mem::take(&mut self.taints);
                if !taints.is_empty() {
                    let reference = result.as_ref().is_err_and(|failure| failure.cause == Cause::Reference);
                    actions.push(Action::Taint(taints, if reference { Taint::Suspect } else { Taint::Changed }));
                }
                match result {
                    Ok(after) => self.succeeded(write, after, now),
                    Err(failure) => self.failed(write, failure, now, actions),
                }
            }
            Event::Tainted(taint) => {
                self.changed(now);
                if taint == Taint::Changed {
                    return;
                }
                self.suspected = Some(now + LAG);
            }
            Event::EnvChanged(change) => {
                // The write was planned from other inputs, so a difference is no lag.
                self.last_write = None;
                self.quiet.requested(now);
                if change == EnvChange::Cures {
                    self.refused.clear();
                    self.paused.clear();
                }
            }
            // Only wakes what a lack of lease or a time has stopped.
            Event::Woke => return,
            Event::Drain => self.draining = true,
        }
        self.settled = false;
    }

    /// A want has changed, so what Azure refused says nothing of it.
    fn may_succeed_now(&mut self, requester: &O::Requester) {
        self.refused.remove(requester);
        self.refusals.remove(requester);
        self.paused.remove(requester);
        if self.bisection.contains(requester) {
            self.bisection.end();
        }
    }

    /// Records that the object may have changed at that time: what was read, or is being read, does not count.
    fn changed(&mut self, at: Duration) {
        self.freshness.changed(at);
        self.observed = None;
        if let Some(reading) = &mut self.reading {
            reading.stale = true;
        }
    }

    fn observe(&mut self, id: Id, sent_at: Duration, by: By, model: Option<O::Model>) {
        if self.freshness.accepts(sent_at) {
            self.observed = Some(Observation { id, sent_at, by, model });
        }
    }

    /// Whether the object was not there at the last read, and may have been made by another writer since, or have been there
    /// although a list did not show it.
    fn is_absence_unsure(&self, now: Duration) -> bool {
        self.observed.as_ref().is_some_and(|observed| {
            let is_recent = now.saturating_sub(observed.sent_at) <= OLDEST_ABSENCE;
            observed.model.is_none() && !(observed.by == By::Single && is_recent)
        })
    }

    fn not_read(&mut self, fault: &Fault, now: Duration, actions: &mut Vec<Action<O>>) {
        let pause = match reaction::to_read(fault) {
            Reaction::Pause(pause) => pause.unwrap_or_else(|| self.conflicts.failed()),
            _ => self.failures.failed(),
        };
        self.pause_until = now + pause;
        let all: Vec<O::Requester> = self.wants.iter().map(|(requester, _)| requester.clone()).collect();
        for requester in all {
            self.tell(&requester, &Outcome::Waiting(Waiting::Retry(fault.clone())), actions);
        }
    }

    fn succeeded(&mut self, write: InFlight<O::Requester, O::Want>, after: After<O::Model>, now: Duration) {
        self.conflicts.succeeded();
        self.failures.succeeded();
        self.fruitless = false;
        self.bisection.cleared(&write.members);
        self.paused.clear();
        for member in &write.members {
            self.refusals.remove(member);
            self.suspects.remove(member);
        }
        let partial = self.partial.take();
        self.last_write = Some(LastWrite { wants: write.wants, partial, ended_at: now, lagging: 0, shown_by: None });
        match after {
            After::Unread => self.changed(now),
            After::Read { sent_at, model } => {
                self.changed(sent_at);
                self.observe(write.id, sent_at, By::Single, model);
            }
        }
    }

    fn failed(
        &mut self,
        write: InFlight<O::Requester, O::Want>,
        failure: Failure<O::Requester>,
        now: Duration,
        actions: &mut Vec<Action<O>>,
    ) {
        let waiting = Outcome::Waiting(Waiting::Retry(failure.fault.clone()));
        if write.is_accepted() {
            // It may have changed a part, which reads may not show yet.
            self.freshness.lost(now, self.replaces);
        }
        match reaction::to_write(&failure.fault) {
            Reaction::Pause(pause) => {
                self.pause_until = now + pause.unwrap_or_else(|| self.conflicts.failed());
                write.members.iter().for_each(|member| self.tell(member, &waiting, actions));
            }
            Reaction::ReadAgain => {
                self.changed(now);
                self.pause_until = now + self.conflicts.failed();
            }
            Reaction::Lost => {
                self.changed(now);
                self.freshness.lost(now, self.replaces);
                self.pause_until = now + self.conflicts.failed();
            }
            Reaction::TellAll => {
                self.not_followed(&write.members, &failure.fault, actions);
                self.changed(now);
                self.pause_until = now + self.failures.failed();
                write.members.iter().for_each(|member| self.tell(member, &waiting, actions));
            }
            Reaction::Bisect => {
                self.not_followed(&write.members, &failure.fault, actions);
                self.changed(now);
                // A member whose want has changed meanwhile is not the one that was refused.
                let written: BTreeMap<_, _> = write.wants.iter().map(|(member, want)| (member, want)).collect();
                let is_same = |member: &&O::Requester| {
                    self.wants.get(member).is_some_and(|entry| written.get(*member) == Some(&&entry.in_force))
                };
                let members: Vec<O::Requester> = write.members.iter().filter(is_same).cloned().collect();
                let named = match failure.cause {
                    Cause::Member(named) => members.contains(&named).then_some(named),
                    Cause::Unnamed | Cause::Reference => None,
                };
                let is_whole = members.len() == write.members.len();
                match named.or_else(|| only(&members).filter(|_| is_whole)) {
                    Some(cause) => self.refuse(&cause, failure.fault, now, actions),
                    // The refused want may be the one that has changed: nothing is proved of the others.
                    None if !is_whole => self.pause_until = now + self.conflicts.failed(),
                    None if members.is_empty() => self.pause_until = now + self.failures.failed(),
                    None => {
                        self.bisection.failed(members.into_iter().collect());
                        self.refusal = Some(failure.fault);
                    }
                }
            }
        }
    }
}

/// What an object that has nothing under way waits for, because of one want.
fn of_want<R>(told: Option<&Outcome<R>>, shared: &Shared, now: Duration) -> Awaited {
    match told {
        Some(Outcome::Done(_)) => Awaited::Nothing,
        Some(Outcome::Refused(_)) => Awaited::Change,
        Some(Outcome::Waiting(waiting)) => match waiting {
            Waiting::Write if !shared.lease.covers_write(now) => Awaited::Lease,
            Waiting::Write => Awaited::Moment,
            Waiting::OtherOperation => Awaited::OtherOperation,
            Waiting::FreshReads => Awaited::FreshReads,
            Waiting::Acceptance => Awaited::Acceptance,
            Waiting::Retry(_) => Awaited::Pause,
            Waiting::Plan(_) => Awaited::Plan,
        },
        None => Awaited::Moment,
    }
}

/// Which of the waits of several wants is told: the one that ends by itself goes after those that a person must know of.
fn rank(awaited: &Awaited) -> u8 {
    match awaited {
        Awaited::Nothing => 0,
        Awaited::Moment => 1,
        Awaited::FreshReads | Awaited::OtherOperation => 2,
        Awaited::Plan => 3,
        Awaited::Pause => 4,
        Awaited::Change => 5,
        Awaited::Acceptance => 6,
        _ => 7,
    }
}

fn only<K: Clone>(members: &[K]) -> Option<K> {
    match members {
        [only] => Some(only.clone()),
        _ => None,
    }
}
