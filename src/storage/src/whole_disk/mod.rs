//! Every decision about the creation, the deletion, the expansion and the change of attributes of a disk: the courses of
//! [`lazuli_engine::single`] for managed disks.
//!
//! Azure's disks have no ETag, so no condition guards these writes. Each rests on a single read behind its permit; see
//! [`single_write`](crate::single_write) for the rules by which a refused one is looked at and sent again. A deletion's first
//! send needs no read: it rests on its caller alone. An expansion's first send rests on the read by which its size was
//! chosen, while that is fresh. What a change sends is planned anew by each read behind its permit.

mod change;
mod create;
mod delete;
mod expand;
#[cfg(test)]
mod simulation;

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use change::Change;
use create::Create;
use delete::Delete;
use expand::Expand;
use lazuli_engine::{
    Awaited,
    attempts::{self, Attempts, Limits},
    single::{Course, Input, Next, Rest},
};
use lazuli_model::{
    Disk, Gib, ProvisioningState,
    disk_details::DiskDetails,
    disk_spec::DiskSpec,
    fault::{Effect, Fault},
    op::DiskChange,
};
use lazuli_quota::{permit::Priority, poll};

use lazuli_volume::{Cloud, DetachReason, ParameterError, modify::ModifyPlan};

pub use lazuli_engine::single::AzureFailure;

/// How long another writer's operation on a disk is waited for.
const LONGEST_OPERATION: Duration = Duration::from_secs(600);

/// What is asked of a disk as a whole.
#[derive(Debug, Clone)]
pub struct Request {
    /// What it is to become.
    pub wanted: Wanted,
    /// How often and how long each of its writes is tried.
    pub limits: Limits,
}

/// What a disk is to become.
#[derive(Debug, Clone)]
pub enum Wanted {
    /// It exists, as this says.
    Made(Arc<DiskSpec>),
    /// It does not exist.
    Deleted,
    /// It is at least this large.
    Grown {
        /// The disk, by the read by which the size was chosen.
        before: Arc<Disk>,
        /// When that read was sent.
        read_at: Duration,
        /// The size.
        to: Gib,
    },
    /// It has the attributes of a class.
    Changed {
        /// The parameters of the VolumeAttributesClass.
        class: Arc<BTreeMap<String, String>>,
        /// Which Azure it is.
        cloud: Cloud,
    },
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Made(_) => f.write_str("its creation"),
            Self::Deleted => f.write_str("its deletion"),
            Self::Grown { to, .. } => write!(f, "its expansion to {to}"),
            Self::Changed { .. } => f.write_str("a change of its attributes"),
        }
    }
}

impl Wanted {
    /// Whether both ask for the same. Two expansions to one size do, whatever each has read before.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Made(one), Self::Made(other)) => one == other,
            (Self::Deleted, Self::Deleted) => true,
            (Self::Grown { to: one, .. }, Self::Grown { to: other, .. }) => one == other,
            (Self::Changed { class: one, .. }, Self::Changed { class: other, .. }) => one == other,
            _ => false,
        }
    }
}

/// The kind of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// PUT
    Put,
    /// PATCH
    Patch,
    /// DELETE
    Delete,
}

/// A write.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// Makes the disk.
    Put(Arc<DiskSpec>),
    /// Grows it.
    Resize(Gib),
    /// Changes its attributes.
    Change(Box<DiskChange>),
    /// Deletes it.
    Delete,
}

/// What came of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Done {
    /// The disk is so.
    Disk(Arc<Disk>),
    /// There is no such disk any more.
    Gone,
    /// The disk that was to be deleted is gone, and another one of its name that was made meanwhile stays.
    Replaced,
    /// The disk has the attributes of the class.
    Changed(Box<Changed>),
}

/// A change of attributes that was made.
#[derive(Debug, Clone, PartialEq)]
pub struct Changed {
    /// The disk, by the read on which the last plan rests.
    pub disk: Arc<Disk>,
    /// What was sent, and what a person is to know of it. The change is empty where nothing was sent.
    pub plan: ModifyPlan,
}

/// A disk as a single read, or the end of a write, shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct SeenDisk {
    /// The disk.
    pub disk: Disk,
    /// What only a change of attributes rests on. `None` where it cannot be read, and at the end of a write.
    pub details: Option<DiskDetails>,
}

/// The write of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write {
    /// The disk's creation.
    Creation,
    /// Its deletion.
    Deletion,
    /// Its expansion to this size.
    Expansion(Gib),
    /// A change of its attributes.
    Change,
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure<E> {
    /// What a caller may do about it.
    pub fault: Fault,
    /// Whether a write may be in progress, or has left something.
    pub effect: Effect,
    /// What failed.
    pub why: Why,
    /// Azure's answer, where one stands behind it.
    pub azure: Option<E>,
}

/// What failed.
#[derive(Debug, Clone, PartialEq)]
pub enum Why {
    /// The write that the request asks for.
    Write(Write),
    /// The disk cannot be read.
    Unreadable,
    /// Another operation on the disk has not ended for so long.
    InProgress(Duration),
    /// A VM holds the disk, so it cannot be deleted.
    Held(Arc<Disk>),
    /// The disk grows only while it is detached.
    NeedsDetach(Gib, DetachReason),
    /// The disk cannot have what a class asks for. Nothing was sent for it.
    NotPossible(ParameterError),
    /// The disk that was to be written does not exist any more.
    Gone(Write),
    /// The disk that was to be written does not exist any more, and another one of its name was made meanwhile.
    Replaced(Write),
    /// No caller waits for it any more, so it was not sent.
    Unwanted,
}

impl<E: AzureFailure> Failure<E> {
    fn new(fault: Fault, effect: Effect, why: Why) -> Self {
        Self { fault, effect, why, azure: None }
    }

    /// Azure's answer says it. Azure may also have acted on an earlier try of the request.
    fn azure(why: Why, error: E, tried: &Attempts) -> Self {
        let effect = if error.effect() == Effect::Possible { Effect::Possible } else { tried.effect() };
        Self { fault: error.fault().clone(), effect, why, azure: Some(error) }
    }

    fn with_effect(mut self, effect: Effect) -> Self {
        self.effect = effect;
        self
    }

    /// Sorted by the state that was found rather than by Azure's code.
    fn resorted(mut self, fault: Fault) -> Self {
        self.fault = fault;
        self
    }
}

/// What comes next of a whole disk.
type Step<E> = Next<WholeDisk<E>>;

fn failed<E: AzureFailure>(failure: Failure<E>) -> Step<E> {
    Next::End(Err(failure))
}

/// The rest after a write that was not accepted; `None` where its failure is the answer.
fn rest_after<E: AzureFailure>(error: &E, attempts: &mut Attempts, limits: Limits) -> Option<Rest> {
    match attempts.failed(error.fault(), error.effect(), limits) {
        attempts::Next::Pause(pause) => Some(Rest::For(pause)),
        attempts::Next::BackOff { failures } => Some(Rest::BackOff { failures }),
        attempts::Next::Stop => None,
    }
}

/// A wait for the end of an operation on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OtherOperation {
    since: Duration,
}

/// What a read says of it.
enum Watched {
    /// It goes on: look again after this.
    Rest(Rest),
    /// It has ended.
    Ended,
    /// It takes too long.
    TooLong(Duration),
}

impl OtherOperation {
    fn seen(self, now: Duration, disk: &Disk) -> Watched {
        let elapsed = now.saturating_sub(self.since);
        if disk.provisioning_state != ProvisioningState::InProgress {
            Watched::Ended
        } else if elapsed > LONGEST_OPERATION {
            Watched::TooLong(elapsed)
        } else {
            Watched::Rest(Rest::For(poll::again(poll::Kind::DiskCreate, elapsed)))
        }
    }
}

fn in_progress<E: AzureFailure>(elapsed: Duration) -> Failure<E> {
    Failure::new(Fault::Conflict, Effect::Possible, Why::InProgress(elapsed))
}

/// A read of the disk, where a missing one is no failure.
fn found<E: AzureFailure, T>(read: Result<T, E>) -> Result<Option<T>, E> {
    match read {
        Ok(seen) => Ok(Some(seen)),
        Err(error) if *error.fault() == Fault::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The course of one request for a whole disk.
#[derive(Debug, Clone)]
pub struct WholeDisk<E: AzureFailure>(Kind<E>);

#[derive(Debug, Clone)]
enum Kind<E: AzureFailure> {
    Create(Create<E>),
    Delete(Box<Delete<E>>),
    Expand(Expand),
    Change(Box<Change>),
}

impl<E: AzureFailure> Course for WholeDisk<E> {
    type Request = Request;
    type Seen = SeenDisk;
    type Env = ();
    /// The place in the queue of a read that belongs to a write; none of its own otherwise.
    type Query = Option<Priority>;
    type Verb = Verb;
    type Op = Op;
    type Done = Done;
    type Why = Failure<E>;
    type Error = E;

    fn of(request: &Request) -> Self {
        let limits = request.limits;
        Self(match &request.wanted {
            Wanted::Made(spec) => Kind::Create(Create::new(spec.clone(), limits)),
            Wanted::Deleted => Kind::Delete(Box::new(Delete::new(limits))),
            Wanted::Grown { before, read_at, to } => Kind::Expand(Expand::new(before.clone(), *read_at, *to, limits)),
            Wanted::Changed { class, cloud } => Kind::Change(Box::new(Change::new(class.clone(), *cloud, limits))),
        })
    }

    fn is_same(running: &Request, asked: &Request) -> bool {
        running.wanted.is_same(&asked.wanted)
    }

    fn next(&mut self, (): &(), now: Duration, input: Input<Self>) -> Next<Self> {
        match &mut self.0 {
            Kind::Create(create) => create.next(now, input),
            Kind::Delete(delete) => delete.next(now, input),
            Kind::Expand(expand) => expand.next(now, input),
            Kind::Change(change) => change.next(now, input),
        }
    }

    fn goes_on_alone(&self) -> bool {
        matches!(&self.0, Kind::Create(create) if create.puts_right())
    }

    fn rests_for(&self) -> Awaited {
        let watches = match &self.0 {
            Kind::Create(create) => create.watches(),
            Kind::Delete(delete) => delete.watches(),
            Kind::Expand(expand) => expand.watches(),
            Kind::Change(change) => change.watches(),
        };
        if watches { Awaited::OtherOperation } else { Awaited::Pause }
    }
}
