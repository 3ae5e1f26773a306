//! The step of a Service of type LoadBalancer: in which order its objects are told what it wants.
//!
//! A Service spans objects: public IP addresses, a load balancer, a security group, network interfaces, a private link
//! service. It writes none of them. It tells each object a want at a [`Level`], and goes on when every object of a stage
//! has reported that Azure shows it. So each law of the order is a line of a table:
//!
//! ```text
//! present   finalizer
//!           public IPs: Make         load balancers, other objects with parts of it: Look
//!           another load balancer with an address of the spec: Clean        where the Service moves with its address
//!           load balancer: Make      security group: Make          (in parallel, unless Order says otherwise)
//!           members: Make
//!           private link: Make
//!           status
//!           load balancers: Quiet                                  rules that only a denial protects
//!           security group: Clean                                  destinations that it gives up
//!           private link, members: Clean
//!           load balancers: Clean                                  rules and frontends
//!           public IPs: Clean
//! gone      all objects: Look
//!           load balancers: Quiet
//!           security group: Clean
//!           private link, members: Clean
//!           load balancers: Clean
//!           public IPs: Clean
//!           status cleared
//!           finalizer removed
//! ```
//!
//! - A new address is served before an old one is given up, and the status changes in between.
//! - No address is given up while a security rule admits it: the load-balancing rule, the frontend and the public IP's tag
//!   outlive the security rule. They are also the record by which a process that starts anew finds what to trim.
//! - An address is on one frontend only. A Service that moves to another load balancer and keeps its address leaves the old
//!   one first, when the security group is ready, and the public IP is not given up in between. It is not reachable from
//!   the write that removes its old frontend to the end of the next one, which makes the new frontend.
//! - Nothing is removed without a positive record: a spec that does not ask for it, or the finalizer on a Service that is
//!   deleted or is no load balancer of ours any more.
//! - An object that cannot be read holds up nothing if the Service does not ask for it, nothing has shown a part of the
//!   Service there, and its place does not exist or the Service does not name it now. So a resource group that an annotation
//!   once misspelt holds up no deletion.
//!
//! The stage is derived from what the objects have reported. A process that starts anew tells the objects the first stages
//! again, which changes nothing, and comes to the same stage.
//!
//! # What the wants and planners must hold
//!
//! Each of these was broken once and found by the random schedules of this module's parent:
//!
//! - What one Service wants present stays, whatever another says is gone, also where the planner sees both.
//! - A frontend that other Services' rules use keeps its address. A Service that leaves a shared address gets another
//!   frontend, and the last Service that leaves removes the one that was shared, also where another Service made it.
//! - On a shared address a Service's gone names its own ports, never "all but those of others": another's ports may not be
//!   known yet. Its load-balancing rules are the record of them, so they outlive the security rules
//!   ([`Order::SecurityAround`], [`Level::Clean`]).
//! - The last Service that leaves an address trims the security group for the whole address before the address goes. So a
//!   Service that is not the last takes off its tag only while another has one.
//! - A removal by an address acts once ([`Object::spent`](super::object::Object::spent)). A Service whose spec becomes wrong
//!   keeps its last wants, and the address may be another Service's by then.
//! - An object that others refer to is repaired even if nothing is wanted of it.

mod ladder;
mod parts;
mod reporting;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

pub use parts::{Desired, Level, Order, Reports, Role, Seen, Service, Snapshot};

use lazuli_model::fault::Fault;

use super::{Acceptance, Awaited, Id, Ids, Outcome, Refusal, Shared, Waiting, backoff::Backoff, earlier};

/// How long the Service must have waited for one thing before an event reports it.
pub const LONG_WAIT: Duration = Duration::from_secs(60);

/// What happened to a Service.
#[derive(Debug, Clone, PartialEq)]
pub enum Event<S: Service> {
    /// The API server has this state of it.
    Changed(Snapshot<S>),
    /// The API server has it no more.
    Removed,
    /// An object tells what became of a want.
    Told {
        /// The object.
        key: S::Key,
        /// The generation of the want.
        generation: u64,
        /// What became of it.
        outcome: Outcome<S::Report>,
    },
    /// The state of an object was lost, and with it what the Service wants of it.
    Lost(S::Key),
    /// A patch ended.
    Patched {
        /// The patch.
        id: Id,
        /// The resource version after it.
        result: Result<u64, PatchFault>,
    },
    /// The inputs have changed.
    EnvChanged,
    /// [`State::wake_at`] has come, or the lease or the informers have changed.
    Woke,
    /// The process is about to end: nothing new is started.
    Drain,
}

/// Why a patch failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchFault {
    /// The Service does not exist any more.
    Gone,
    /// The Service has changed since, or the API server did not answer: try again.
    Again,
}

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Action<S: Service> {
    /// Tell an object what the Service wants of it from now on.
    Tell {
        /// The object.
        key: S::Key,
        /// The number of the want.
        generation: u64,
        /// The want.
        want: S::Want,
        /// Whether what removes or replaces something for it waits for the operator: the Service was there when this process
        /// began, and has not changed since.
        acceptance: Acceptance,
    },
    /// Tell an object that the Service has no further interest in it.
    Withdraw(S::Key),
    /// Patch the Service, on its resource version.
    Patch {
        /// The patch.
        id: Id,
        /// The resource version that it is planned from.
        version: u64,
        /// What is changed.
        patch: Patch<S::Status>,
    },
    /// Report to the user by an event on the Service.
    Report(Reason<S::Key>),
    /// After [`Event::Drain`]: nothing is in flight any more.
    Drained,
}

/// A change of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Patch<T> {
    /// Add our finalizer.
    AddFinalizer,
    /// Set the status.
    SetStatus(T),
    /// Remove the load balancer from the status.
    ClearStatus,
    /// Remove our finalizer.
    RemoveFinalizer,
}

/// What an event on the Service says. An event is reported when it differs from the last one, or the spec has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason<K> {
    /// The Service is new or asks for something else, and the work on that begins.
    Ensuring,
    /// All that the Service asks for exists, and the status says so.
    Ensured,
    /// The same of a Service that was served when this process first saw it, or that another replica has served, and of
    /// which this process had nothing to change or to report since.
    Unchanged,
    /// The spec is wrong: each sentence names the annotation or field, its value and what is allowed.
    Invalid(Vec<String>),
    /// An object refused the want.
    Refused(K, Refusal),
    /// An object cannot be written; it is tried again.
    Retry(K, Fault),
    /// An object holds a plan that removes or replaces something until it is accepted.
    Held(K),
    /// For [`LONG_WAIT`] at least the Service waits for an object.
    Waits(K, Waiting),
    /// For [`LONG_WAIT`] everything that is known of the Service is gone, and there are places where it may have more.
    Unread(Vec<String>),
    /// The Service is to be gone, and the removal of what it has begins.
    Deleting,
    /// Everything of the Service is gone.
    Deleted,
}

impl<K> Reason<K> {
    /// Whether it ends the work on the Service, so that what comes is another try.
    pub fn ends_work(&self) -> bool {
        match self {
            Self::Ensured
            | Self::Unchanged
            | Self::Deleted
            | Self::Invalid(_)
            | Self::Refused(..)
            | Self::Retry(..) => true,
            Self::Ensuring | Self::Deleting | Self::Held(_) | Self::Waits(..) | Self::Unread(_) => false,
        }
    }
}

/// What a step needs beside its own state.
#[derive(Debug)]
pub struct Env<'a, S: Service> {
    /// What all keys share.
    pub shared: Shared,
    /// Which Service it is.
    pub id: &'a S::Identity,
    /// What the wants depend on.
    pub inputs: &'a S::Inputs,
}

/// What an object was told last.
#[derive(Debug, Clone)]
struct Asked<S: Service> {
    generation: u64,
    want: S::Want,
    acceptance: Acceptance,
    /// The number of the spec at which it was told.
    spec: u64,
    /// The level at which it was told. It never falls while the spec stays: the object has passed what is below.
    level: Level,
    outcome: Option<Outcome<S::Report>>,
    /// Since when the object has reported nothing but waiting.
    waits_since: Option<Duration>,
    /// Whether Azure has refused it since it was told. It may wait for another operation since then.
    is_refused: bool,
    /// Whether it is told again although the want is the same.
    again: bool,
}

impl<S: Service> Asked<S> {
    fn is_done(&self) -> bool {
        matches!(self.outcome, Some(Outcome::Done(_)))
    }

    /// Why the place of the object cannot be read, if that is what the object waits for.
    fn closed(&self) -> Option<&Fault> {
        self.outcome.as_ref().and_then(closed)
    }
}

/// Why a place cannot be read, if an outcome says that: it does not exist, or is closed to the identity.
fn closed<R>(outcome: &Outcome<R>) -> Option<&Fault> {
    match outcome {
        Outcome::Waiting(Waiting::Retry(fault @ (Fault::ScopeNotFound | Fault::Forbidden | Fault::Denied))) => {
            Some(fault)
        }
        Outcome::Waiting(_) | Outcome::Done(_) | Outcome::Refused(_) => None,
    }
}

/// Whether an object is written for a want, or may be.
fn may_be_written<R>(outcome: &Outcome<R>) -> bool {
    matches!(outcome, Outcome::Waiting(Waiting::Write | Waiting::OtherOperation))
}

/// The facts of one Service.
#[derive(Debug, Clone)]
pub struct State<S: Service> {
    ids: Ids,
    snapshot: Option<Arc<Snapshot<S>>>,
    /// Counts the specs, and the addresses that one spec has had.
    spec: u64,
    /// What the Service asked for when this process first saw it, with parts of an earlier process or controller. `None`
    /// once it has asked for something else.
    taken_over: Option<Option<S::Spec>>,
    generation: u64,
    /// A node of a map has room for eleven, and a Service has a few objects.
    asked: BTreeMap<S::Key, Box<Asked<S>>>,
    reports: Reports<S>,
    /// The objects that have shown a part of the Service, or that are written for it.
    parts: BTreeSet<S::Key>,
    /// The reports of load balancers before they were told what the spec wants, or that everything is gone.
    left: Reports<S>,
    /// Where the security group was told to admit or to deny since it had last given up everything else.
    told: S::Admission,
    /// Whether it has given up everything else since the last decision.
    is_trimmed: bool,
    /// The objects that have reported that they are done since the last decision.
    done: BTreeSet<S::Key>,
    /// The address that the reports have given, and the number of the spec.
    address: Option<(u64, S::Status)>,
    patch: Option<(Id, Patch<S::Status>)>,
    patches: Backoff,
    pause_until: Duration,
    reported: Option<(u64, Reason<S::Key>)>,
    /// Since when the work that a report ends is under way: since the spec changed, or since the one before.
    working_since: Duration,
    /// How long the work took that the last report ended.
    lasted: Duration,
    /// The number of the spec whose beginning was reported last.
    begun: Option<u64>,
    /// Whether there is no news for the owner: the Service was served when it was first seen, or by another replica since,
    /// and asks for the same.
    is_quiet: bool,
    /// Since when Azure has refused requests for the Service as too many, with no object done in between.
    throttled_since: Option<Duration>,
    /// Whether the ladder has ended at a stage that is not done, and nothing has happened since that a stage looks at.
    waits: bool,
    /// What the Service itself waits for, beside its objects, and since when.
    awaited: Option<(OwnWait<S::Key>, Duration)>,
    draining: bool,
    wake: Option<Duration>,
}

impl<S: Service> Default for State<S> {
    fn default() -> Self {
        Self {
            ids: Ids::default(),
            snapshot: None,
            spec: 0,
            taken_over: None,
            generation: 0,
            asked: BTreeMap::new(),
            reports: BTreeMap::new(),
            parts: BTreeSet::new(),
            left: BTreeMap::new(),
            told: S::Admission::default(),
            is_trimmed: false,
            done: BTreeSet::new(),
            address: None,
            patch: None,
            patches: Backoff::CONFLICT,
            pause_until: Duration::ZERO,
            reported: None,
            working_since: Duration::ZERO,
            lasted: Duration::ZERO,
            begun: None,
            is_quiet: false,
            throttled_since: None,
            waits: false,
            awaited: None,
            draining: false,
            wake: None,
        }
    }
}

/// What a Service waits for beside what its objects report.
#[derive(Debug, Clone, PartialEq, Eq)]
enum OwnWait<K> {
    /// The first backend of an object.
    Members(K, String),
    /// Places where it may have parts.
    Unread(Vec<String>),
}

/// Folds an event into the facts and decides what to do.
pub fn step<S: Service>(state: &mut State<S>, env: &Env<'_, S>, now: Duration, event: Event<S>) -> Vec<Action<S>> {
    let mut actions = Vec::new();
    state.fold(now, event, &mut actions);
    state.decide(env, now, &mut actions);
    if actions.iter().any(|action| matches!(action, Action::Report(reason) if reason.ends_work())) {
        state.lasted = now.saturating_sub(state.working_since);
        state.working_since = now;
    }
    actions
}

impl<S: Service> State<S> {
    /// When [`Event::Woke`] is due if nothing else happens before.
    pub fn wake_at(&self) -> Option<Duration> {
        self.wake
    }

    /// Whether the state may be dropped: the Service does not exist and nothing is in flight.
    pub fn is_idle(&self) -> bool {
        self.snapshot.is_none() && self.patch.is_none()
    }

    /// Whether everything of the Service is to be gone.
    pub fn is_gone(&self) -> bool {
        self.snapshot.as_ref().is_some_and(|snapshot| snapshot.desired == Desired::Gone)
    }

    /// How long the work took that the last report ended ([`Reason::ends_work`]): since the Service had asked for something
    /// else, or since such a report before, if it asked for the same.
    pub fn lasted(&self) -> Duration {
        self.lasted
    }

    /// What an object has reported last.
    pub fn report_of(&self, key: &S::Key) -> Option<&S::Report> {
        self.reports.get(key).map(|report| &**report)
    }

    /// The level that an object was told last, and whether it has reported that as done.
    pub fn level_of(&self, key: &S::Key) -> Option<(Level, bool)> {
        let asked = self.asked.get(key)?;
        Some((asked.level, asked.is_done()))
    }

    /// What the Service waits for.
    pub fn awaited(&self, shared: &Shared, now: Duration) -> Awaited {
        let Some(snapshot) = &self.snapshot else { return Awaited::Nothing };
        let is_done = self.asked.values().all(|asked| asked.is_done());
        let is_reported = |reason: Reason<S::Key>| self.reported.as_ref() == Some(&(self.spec, reason));
        let is_served = || is_reported(Reason::Ensured) || is_reported(Reason::Unchanged);
        match (&snapshot.desired, &self.awaited) {
            _ if self.patch.is_some() => Awaited::Patch,
            _ if self.draining => Awaited::End,
            _ if !shared.synced => Awaited::Informers,
            _ if now < self.pause_until => Awaited::Pause,
            (Desired::Invalid(_), _) => Awaited::Specification,
            (Desired::Gone, _) if !snapshot.finalizer => Awaited::Nothing,
            (_, Some((OwnWait::Members(..), _))) => Awaited::Members,
            (_, Some((OwnWait::Unread(_), _))) => Awaited::Places,
            // Objects out of reach hold up nothing.
            (Desired::Present(_), _) if !self.waits && is_served() => Awaited::Nothing,
            _ if !shared.lease.covers_write(now) => Awaited::Lease,
            _ if !is_done => Awaited::Objects,
            _ => Awaited::Moment,
        }
    }

    fn fold(&mut self, now: Duration, event: Event<S>, actions: &mut Vec<Action<S>>) {
        match event {
            Event::Changed(snapshot) => self.changed(snapshot, now),
            Event::Removed => self.removed(actions),
            Event::Told { key, generation, outcome } => self.told(key, generation, outcome, now),
            Event::Patched { id, result } => {
                let Some((_, patch)) = self.patch.take_if(|(sent, _)| *sent == id) else { return };
                self.waits = false;
                match result {
                    Ok(version) => self.patched(version, patch),
                    Err(PatchFault::Gone) => {
                        if patch == Patch::RemoveFinalizer && self.snapshot.is_some() {
                            self.report(Reason::Deleted, actions);
                        }
                        self.removed(actions);
                    }
                    Err(PatchFault::Again) => self.pause_until = now + self.patches.failed(),
                }
            }
            Event::Lost(key) => {
                if let Some(asked) = self.asked.get_mut(&key) {
                    (asked.outcome, asked.is_refused, asked.again) = (None, false, true);
                    asked.waits_since = None;
                    self.waits = false;
                }
            }
            Event::EnvChanged | Event::Woke => self.waits = false,
            Event::Drain => self.draining = true,
        }
    }

    fn changed(&mut self, snapshot: Snapshot<S>, now: Duration) {
        // An informer may be behind an own patch.
        let before = self.snapshot.as_ref();
        if before.is_some_and(|before| snapshot.version < before.version) {
            return;
        }
        if before.is_some_and(|before| **before == snapshot) {
            return;
        }
        self.waits = false;
        if before.is_none() {
            self.taken_over = snapshot.finalizer.then_some(None);
            self.is_quiet = snapshot.finalizer && snapshot.status.is_some();
        }
        if before.is_none_or(|before| before.desired != snapshot.desired) {
            self.spec += 1;
            self.working_since = now;
        }
        self.taken_over = match (self.taken_over.take(), &snapshot.desired) {
            (Some(None), Desired::Present(spec)) => Some(Some(spec.clone())),
            (Some(Some(first)), Desired::Present(spec)) if !S::asks_the_same(&first, spec) => None,
            (_, Desired::Gone) => None,
            (taken_over, _) => taken_over,
        };
        self.is_quiet &= self.taken_over.is_some();
        self.snapshot = Some(Arc::new(snapshot));
    }

    fn removed(&mut self, actions: &mut Vec<Action<S>>) {
        // The API server may show the end of a Service before it answers the patch that lets it go.
        if matches!(self.patch, Some((_, Patch::RemoveFinalizer))) {
            self.report(Reason::Deleted, actions);
        }
        actions.extend(self.asked.keys().cloned().map(Action::Withdraw));
        *self = Self {
            ids: self.ids.clone(),
            generation: self.generation,
            spec: self.spec,
            working_since: self.working_since,
            patch: self.patch.take(),
            draining: self.draining,
            ..Self::default()
        };
    }

    /// Whether what removes or replaces something of the Service waits for the operator.
    fn acceptance(&self) -> Acceptance {
        if self.taken_over.is_some() { Acceptance::Awaited } else { Acceptance::Given }
    }

    fn told(&mut self, key: S::Key, generation: u64, outcome: Outcome<S::Report>, now: Duration) {
        let Some(asked) = self.asked.get_mut(&key) else { return };
        if asked.generation != generation {
            // What was sent for an earlier want may take effect later than a report of the new one shows an absence.
            if may_be_written(&outcome) {
                self.parts.insert(key);
            }
            return;
        }
        // What is not done and was not leaves the stages as they are, unless the object is out of reach from now on.
        self.waits &= !asked.is_done() && !matches!(outcome, Outcome::Done(_)) && closed(&outcome).is_none();
        let has_part = match &outcome {
            Outcome::Done(report) => S::has_part(&asked.want, report),
            outcome if may_be_written(outcome) => Some(true),
            Outcome::Waiting(_) | Outcome::Refused(_) => None,
        };
        match has_part {
            Some(true) => _ = self.parts.insert(key.clone()),
            Some(false) => _ = self.parts.remove(&key),
            None => {}
        }
        let report = match &outcome {
            Outcome::Done(report) => Some(Box::new(report.clone())),
            Outcome::Waiting(_) | Outcome::Refused(_) => None,
        };
        asked.is_refused = match &outcome {
            Outcome::Done(_) => false,
            Outcome::Refused(refusal) => matches!(refusal, Refusal::Azure(_)),
            Outcome::Waiting(_) => asked.is_refused,
        };
        asked.waits_since = matches!(outcome, Outcome::Waiting(_)).then(|| asked.waits_since.unwrap_or(now));
        asked.outcome = Some(outcome);
        // A write for the new spec takes old rules along, also where the frontend keeps its name.
        let is_left = S::role(&key) == Role::LoadBalancer && asked.level > Level::Look;
        if let Some(report) = report {
            self.is_trimmed |= S::role(&key) == Role::SecurityGroup && asked.level == Level::Clean;
            let before = self.reports.insert(key.clone(), report);
            if let Some(before) = before.filter(|_| is_left) {
                self.left.entry(key.clone()).or_insert(before);
            }
            self.done.insert(key);
        }
    }

    /// What Azure refused is told once more each time that something is done that it may rest on. Of public IPs that is one
    /// that the spec needs.
    fn tell_refused_again(&mut self, needed: &BTreeSet<S::Key>) {
        for key in std::mem::take(&mut self.done) {
            let role = S::role(&key);
            if role == Role::PublicIp && !needed.contains(&key) {
                continue;
            }
            for (other, asked) in self.asked.iter_mut().filter(|(other, _)| **other != key) {
                asked.again |= asked.is_refused && S::role(other).rests_on(role);
            }
        }
    }

    fn patched(&mut self, version: u64, patch: Patch<S::Status>) {
        self.patches.succeeded();
        let Some(snapshot) = self.snapshot.as_mut().map(Arc::make_mut) else { return };
        snapshot.version = snapshot.version.max(version);
        match patch {
            Patch::AddFinalizer => snapshot.finalizer = true,
            Patch::SetStatus(status) => snapshot.status = Some(status),
            Patch::ClearStatus => snapshot.status = None,
            Patch::RemoveFinalizer => snapshot.finalizer = false,
        }
    }

    fn patch(&mut self, env: &Env<'_, S>, now: Duration, patch: Patch<S::Status>, actions: &mut Vec<Action<S>>) {
        let Some(snapshot) = &self.snapshot else { return };
        if self.patch.is_some() || !env.shared.lease.covers_write(now) {
            return;
        }
        if now < self.pause_until {
            self.wake = earlier(self.wake, self.pause_until);
            return;
        }
        let (id, version) = (self.ids.next_id(), snapshot.version);
        self.is_quiet = false;
        self.patch = Some((id, patch.clone()));
        actions.push(Action::Patch { id, version, patch });
    }
}
