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
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use super::{Acceptance, Id, Ids, Outcome, Refusal, Shared, Waiting, backoff::Backoff, earlier};
use crate::fault::Fault;

/// How long Azure must have refused requests as too many before the owner of the Service is told.
const THROTTLED: Duration = Duration::from_secs(120);
/// How long the Service must have waited for one thing before an event reports it.
pub const LONG_WAIT: Duration = Duration::from_secs(60);
/// The same where a write is under way or waits for its turn: the queue of a thousand writes is longer than a minute.
const LONG_WRITE: Duration = Duration::from_secs(300);

/// What a Service is made of.
pub trait Service: fmt::Debug + Clone + PartialEq + Sized {
    /// What names the Service's parts: its namespace, name and uid.
    type Identity: fmt::Debug + Clone;
    /// What a valid Service asks for.
    type Spec: fmt::Debug + Clone + PartialEq;
    /// The key of an object of Azure.
    type Key: fmt::Debug + Clone + Ord;
    /// What the Service wants of one object.
    type Want: fmt::Debug + Clone + PartialEq;
    /// What an object shows of the Service: its addresses above all.
    type Report: fmt::Debug + Clone + PartialEq;
    /// The Service's status.
    type Status: fmt::Debug + Clone + PartialEq;
    /// What the wants depend on beside: settings.
    type Inputs;
    /// At which addresses, and at which of their ports, a security group admits or denies for the Service.
    type Admission: fmt::Debug + Clone + Default;
    /// Where a Service may have objects because it names that place: a resource group, which may not exist, or be closed to
    /// this process.
    type Place: fmt::Debug + Clone + Ord;

    /// What kind of part the object is.
    fn role(key: &Self::Key) -> Role;

    /// Where the object is, if Services choose that; `None` where the configuration does.
    fn place(key: &Self::Key) -> Option<Self::Place>;

    /// Whether the object has a part of the Service that is to be removed one day, as its report shows once a want is done;
    /// `None` when that does not tell.
    fn has_part(want: &Self::Want, report: &Self::Report) -> Option<bool>;

    /// The objects that the spec needs.
    fn keys(id: &Self::Identity, spec: &Self::Spec, inputs: &Self::Inputs) -> BTreeSet<Self::Key>;

    /// In which order load balancer and security group are written at creation.
    fn order(id: &Self::Identity, spec: &Self::Spec, seen: &Seen<'_, Self>, inputs: &Self::Inputs) -> Order;

    /// What is wanted of an object at a level. `spec` is `None` once everything must go.
    fn want(
        id: &Self::Identity,
        spec: Option<&Self::Spec>,
        key: &Self::Key,
        level: Level,
        seen: &Seen<'_, Self>,
        inputs: &Self::Inputs,
    ) -> Self::Want;

    /// Adds where a want of a security group admits or denies.
    fn note_admission(want: &Self::Want, inputs: &Self::Inputs, noted: &mut Self::Admission);

    /// The status, when every address is known.
    fn status(
        id: &Self::Identity,
        spec: &Self::Spec,
        seen: &Seen<'_, Self>,
        inputs: &Self::Inputs,
    ) -> Option<Self::Status>;

    /// Whether a load balancer that the spec does not need has an address that the spec asks for on another one, and no
    /// other Service uses it there.
    fn gives_way(
        id: &Self::Identity,
        spec: &Self::Spec,
        key: &Self::Key,
        seen: &Seen<'_, Self>,
        inputs: &Self::Inputs,
    ) -> bool;

    /// The object that the Service's backends are still to join, and in words what is waited for: its pool is filled by
    /// others than the Service, and a member is on its way. A status that is not set yet waits for the first.
    fn awaits_members(_: &Self::Spec, _: &Self::Inputs) -> Option<(Self::Key, String)> {
        None
    }

    /// Whether a user asks for the same by two specs. What else a spec holds, such as where the Service is placed, may have
    /// changed.
    fn asks_the_same(one: &Self::Spec, other: &Self::Spec) -> bool {
        one == other
    }

    /// Whether two statuses say the same. One that another controller has set may spell it in another way.
    fn is_same_status(one: &Self::Status, other: &Self::Status) -> bool {
        one == other
    }
}

/// What kind of part an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// An address that is an object of its own.
    PublicIp,
    /// Frontends, rules, probes and backend pools.
    LoadBalancer,
    /// Which sources are admitted.
    SecurityGroup,
    /// The backends of a pool that is filled through network interfaces, and what a private link service needs beside: its
    /// subnet's policies.
    Members,
    /// A private link service on a frontend.
    PrivateLink,
}

impl Role {
    /// Whether Azure may refuse a part of this kind for the state of one of the other kind: a frontend for its public IP or
    /// for another load balancer that has it, a private link service for its frontend.
    fn rests_on(self, other: Self) -> bool {
        match self {
            Self::LoadBalancer => matches!(other, Self::PublicIp | Self::LoadBalancer),
            Self::PublicIp => other == Self::LoadBalancer,
            Self::Members | Self::PrivateLink => matches!(other, Self::LoadBalancer | Self::Members),
            Self::SecurityGroup => false,
        }
    }
}

/// How much of the Service's spec an object is told. A higher level asks for more to be gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing is present or gone: the object reports what it shows of the Service.
    Look,
    /// Of a load balancer: the frontends are present. Of a security group: what admits to ports that this very load
    /// balancer serves already, and what denies.
    Frontend,
    /// All that the spec asks for is present. What it does not ask for may go only where no address is given up and no
    /// security rule is found by it.
    Make,
    /// Of a load balancer: gone are also the rules that the spec does not ask for and that would be open to more sources
    /// once the security group is trimmed, as those of a private address that a denial protects. Their frontends stay.
    Quiet,
    /// All that the spec does not ask for is gone.
    Clean,
}

/// In which order load balancer and security group are written at creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// At once.
    Parallel,
    /// The security group first: a rule that denies must exist before the load balancer lets traffic in, or a frontend
    /// changes its address in place.
    SecurityFirst,
    /// The security group for the ports that the load balancer serves already ([`Level::Frontend`]), the load balancer,
    /// then the security group. On an address that Services share, a rule of the load balancer is so the record of every
    /// security rule of the Service.
    SecurityAround,
    /// The load balancer first: it gives the address that the security rule admits.
    LoadBalancerFirst,
    /// The frontends, which give the address, then the security group, then the load-balancing rules.
    FrontendFirst,
}

/// Reports, by object.
pub type Reports<S> = BTreeMap<<S as Service>::Key, Box<<S as Service>::Report>>;

/// What the objects show of the Service.
#[derive(Debug)]
pub struct Seen<'a, S: Service> {
    /// The last report of each object.
    pub reports: &'a Reports<S>,
    /// What load balancers showed of the Service before they were written for its spec, until all that it gives up is gone:
    /// on an address that Services share, their rules were the record of its security rules.
    pub left: &'a Reports<S>,
    /// Where the security group was told to admit or to deny since it had last given up everything else. Of an address that
    /// the Service gave up before its status showed it, nothing else need be a record.
    pub told: &'a S::Admission,
    /// The status as the API server has it.
    pub status: Option<&'a S::Status>,
    /// Whether the spec has changed since this process first saw the Service. Until then what an earlier process or another
    /// controller has left over may stay where it does no harm.
    pub has_changed: bool,
    /// Whether every object on which parts of the Service were found, or that may hold parts of any Service, has reported.
    pub is_complete: bool,
}

/// A Service as the API server has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot<S: Service> {
    /// Its resource version. A later state has a greater one.
    pub version: u64,
    /// What it asks for.
    pub desired: Desired<S::Spec>,
    /// Whether it carries our finalizer.
    pub finalizer: bool,
    /// Its status, if it has one.
    pub status: Option<S::Status>,
    /// The objects on which parts of it have been seen, and those that may hold parts of any Service.
    pub found: BTreeSet<S::Key>,
    /// Objects that no Service has any more. Each Service asks for their end, and none of them is a part of it.
    pub ownerless: BTreeSet<S::Key>,
    /// The places that it names now.
    pub named: BTreeSet<S::Place>,
    /// Why parts of it may be where no read has looked yet, a sentence for each place. The finalizer of a Service that goes
    /// stays until there is none.
    pub unread: Vec<String>,
}

/// What a Service asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Desired<P> {
    /// A load balancer of ours.
    Present(P),
    /// A load balancer of ours whose spec is wrong. What it had before stays.
    Invalid(Vec<String>),
    /// It is being deleted, or is no load balancer of ours any more.
    Gone,
}

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
    /// All that the Service asks for exists, and the status says so.
    Ensured,
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
    /// Everything of the Service is gone.
    Deleted,
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
    /// Since when Azure has refused requests for the Service as too many, with no object done in between.
    throttled_since: Option<Duration>,
    /// Whether the ladder has ended at a stage that is not done, and nothing has happened since that a stage looks at.
    waits: bool,
    /// What the Service itself waits for, beside its objects, and since when.
    awaited: Option<(Awaited<S::Key>, Duration)>,
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
enum Awaited<K> {
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

    /// What an object has reported last.
    pub fn report_of(&self, key: &S::Key) -> Option<&S::Report> {
        self.reports.get(key).map(|report| &**report)
    }

    /// The level that an object was told last, and whether it has reported that as done.
    pub fn level_of(&self, key: &S::Key) -> Option<(Level, bool)> {
        let asked = self.asked.get(key)?;
        Some((asked.level, asked.is_done()))
    }

    fn fold(&mut self, now: Duration, event: Event<S>, actions: &mut Vec<Action<S>>) {
        match event {
            Event::Changed(snapshot) => self.changed(snapshot),
            Event::Removed => self.removed(actions),
            Event::Told { key, generation, outcome } => self.told(key, generation, outcome, now),
            Event::Patched { id, result } => {
                let Some((_, patch)) = self.patch.take_if(|(sent, _)| *sent == id) else { return };
                self.waits = false;
                match result {
                    Ok(version) => self.patched(version, patch),
                    Err(PatchFault::Gone) => self.removed(actions),
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

    fn changed(&mut self, snapshot: Snapshot<S>) {
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
        }
        if before.is_none_or(|before| before.desired != snapshot.desired) {
            self.spec += 1;
        }
        self.taken_over = match (self.taken_over.take(), &snapshot.desired) {
            (Some(None), Desired::Present(spec)) => Some(Some(spec.clone())),
            (Some(Some(first)), Desired::Present(spec)) if !S::asks_the_same(&first, spec) => None,
            (_, Desired::Gone) => None,
            (taken_over, _) => taken_over,
        };
        self.snapshot = Some(Arc::new(snapshot));
    }

    fn removed(&mut self, actions: &mut Vec<Action<S>>) {
        actions.extend(self.asked.keys().cloned().map(Action::Withdraw));
        *self = Self {
            ids: self.ids.clone(),
            generation: self.generation,
            spec: self.spec,
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
        let Some(asked) = self.asked.get_mut(&key).filter(|asked| asked.generation == generation) else { return };
        // What is not done and was not leaves the stages as they are, unless the object is out of reach from now on.
        self.waits &= !asked.is_done() && !matches!(outcome, Outcome::Done(_)) && closed(&outcome).is_none();
        let has_part = match &outcome {
            Outcome::Done(report) => S::has_part(&asked.want, report),
            Outcome::Waiting(Waiting::Write | Waiting::OtherOperation) => Some(true),
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
        self.patch = Some((id, patch.clone()));
        actions.push(Action::Patch { id, version, patch });
    }

    fn report(&mut self, reason: Reason<S::Key>, actions: &mut Vec<Action<S>>) {
        let reported = Some((self.spec, reason.clone()));
        if self.reported != reported {
            self.reported = reported;
            actions.push(Action::Report(reason));
        }
    }

    /// Reports the first failure of an object, in order of the keys. A pause that Azure asks for is one when it has lasted.
    /// Those out of reach concern others.
    fn report_failure(&mut self, now: Duration, out_of_reach: &BTreeSet<S::Key>, actions: &mut Vec<Action<S>>) {
        let throttled =
            |asked: &Asked<S>| matches!(asked.outcome, Some(Outcome::Waiting(Waiting::Retry(Fault::Throttled { .. }))));
        if self.asked.values().any(|asked| throttled(asked)) {
            self.throttled_since.get_or_insert(now);
        } else if self.asked.values().all(|asked| asked.is_done()) {
            self.throttled_since = None;
        }
        let reportable_at = self.throttled_since.map(|since| since + THROTTLED);
        let mut wake = None;
        let mut within_reach = self.asked.iter().filter(|(key, _)| !out_of_reach.contains(*key));
        let reason = within_reach.find_map(|(key, asked)| match asked.outcome.as_ref()? {
            Outcome::Refused(refusal) => Some(Reason::Refused(key.clone(), refusal.clone())),
            Outcome::Waiting(Waiting::Retry(Fault::Throttled { .. })) if reportable_at.is_some_and(|at| now < at) => {
                wake = reportable_at;
                None
            }
            // The pause differs from try to try.
            Outcome::Waiting(Waiting::Retry(Fault::Throttled { .. })) => {
                Some(Reason::Retry(key.clone(), Fault::Throttled { retry_after: None }))
            }
            Outcome::Waiting(Waiting::Retry(fault)) => Some(Reason::Retry(key.clone(), fault.clone())),
            Outcome::Waiting(Waiting::Acceptance) => Some(Reason::Held(key.clone())),
            Outcome::Waiting(_) | Outcome::Done(_) => None,
        });
        if let Some(at) = wake {
            self.wake = earlier(self.wake, at);
        }
        if let Some(reason) = reason.or_else(|| self.long_wait(now)) {
            self.report(reason, actions);
        }
    }

    /// What the Service has waited for too long; else notes when it will have.
    fn long_wait(&mut self, now: Duration) -> Option<Reason<S::Key>> {
        let of_objects = self.asked.iter().filter_map(|(key, asked)| {
            let Some(Outcome::Waiting(waiting)) = &asked.outcome else { return None };
            let longest = match waiting {
                Waiting::Plan(_) | Waiting::OtherOperation | Waiting::FreshReads => LONG_WAIT,
                Waiting::Write => LONG_WRITE,
                // These are failures.
                Waiting::Acceptance | Waiting::Retry(_) => return None,
            };
            Some((asked.waits_since? + longest, Reason::Waits(key.clone(), waiting.clone())))
        });
        let own = self.awaited.iter().map(|(awaited, since)| {
            let reason = match awaited {
                Awaited::Members(key, what) => Reason::Waits(key.clone(), Waiting::Plan(what.clone())),
                Awaited::Unread(places) => Reason::Unread(places.clone()),
            };
            (*since + LONG_WAIT, reason)
        });
        let (at, reason) = of_objects.chain(own).min_by_key(|(at, _)| *at)?;
        if now < at {
            self.wake = earlier(self.wake, at);
            return None;
        }
        Some(reason)
    }

    /// Notes what the Service itself waits for from now on, if it did not wait for that already.
    fn awaits(&mut self, awaited: Awaited<S::Key>, now: Duration) {
        let since = match &self.awaited {
            Some((before, since)) if std::mem::discriminant(before) == std::mem::discriminant(&awaited) => *since,
            _ => now,
        };
        self.awaited = Some((awaited, since));
        self.waits = true;
        if now < since + LONG_WAIT {
            self.wake = earlier(self.wake, since + LONG_WAIT);
        }
    }
}
