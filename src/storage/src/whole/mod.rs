//! The creation and the deletion of a resource that callers ask for as a whole, whichever resource it is: a disk
//! ([`whole_disk`](crate::whole_disk)) or a snapshot ([`whole_snapshot`](crate::whole_snapshot)).
//!
//! Neither has an ETag, so no condition guards these writes. Each rests on a single read behind its permit; see
//! [`single_write`](crate::single_write) for the rules by which a refused one is looked at and sent again. A deletion's first
//! send needs no read: it rests on its caller alone.
//!
//! What differs between resources is a [`Resource`], which says what a read of one means, and a [`Whole`], which spells
//! what its course sends and answers.

pub(crate) mod create;
pub(crate) mod delete;

use std::{fmt, sync::Arc, time::Duration};

use lazuli_engine::{
    attempts::{self, Attempts, Limits},
    single::{AzureFailure, Course, Next, Rest},
};
use lazuli_model::{
    ProvisioningState,
    fault::{Effect, Fault},
};
use lazuli_quota::{permit::Priority, poll};

/// How long another writer's operation on a resource is waited for.
const LONGEST_OPERATION: Duration = Duration::from_secs(600);

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

/// Why a request failed.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure<E, W> {
    /// What a caller may do about it.
    pub fault: Fault,
    /// Whether a write may be in progress, or has left something.
    pub effect: Effect,
    /// What failed.
    pub why: W,
    /// Azure's answer, where one stands behind it.
    pub azure: Option<E>,
}

/// What fails of a creation or a deletion, whatever the resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// The creation.
    Creation,
    /// The deletion.
    Deletion,
    /// The resource cannot be read.
    Unreadable,
    /// Another operation on it has not ended for so long.
    InProgress(Duration),
    /// No caller waits for it any more, so it was not sent.
    Unwanted,
}

/// What came of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deleted {
    /// There is no such resource any more.
    Gone,
    /// The one that was to be deleted is gone, and another one of its name that was made meanwhile stays.
    Replaced,
}

/// What a single read of a resource means.
pub(crate) trait Resource: fmt::Debug + Clone {
    /// What its PUT says.
    type Spec: fmt::Debug + Clone;

    /// What its creation takes as long as.
    const CREATION: poll::Kind;

    /// Whether it is made from something else, which may not be ready for that.
    fn has_source(spec: &Self::Spec) -> bool;

    /// Where its last operation is.
    fn provisioning_state(&self) -> ProvisioningState;

    /// Whether something holds it, so that Azure does not delete it.
    fn is_held(&self) -> bool;

    /// Whether it was made for another request than the one of its name that was there before.
    fn is_other_than(&self, before: &Self) -> bool;

    /// Whether it is what is requested.
    fn is_as(&self, spec: &Self::Spec) -> bool;

    /// Whether it is what a creation has left incomplete, so that the PUT completes it and changes nothing where another
    /// write has failed. `tried` says whether this course may have made it.
    fn is_unfinished(&self, spec: &Self::Spec, tried: Effect) -> bool;

    /// Whether it is what a failed creation of this course may have left, where nothing was there before.
    fn is_left(&self, spec: &Self::Spec) -> bool;
}

/// A course that makes and deletes resources.
pub(crate) trait Whole:
    Course<Seen: Resource, Query = Option<Priority>, Verb = Verb, Why = Failure<<Self as Course>::Error, Self::What>>
{
    /// What failed.
    type What: fmt::Debug + Clone + From<Trouble>;

    /// The write that makes it.
    fn put(spec: Arc<Spec<Self>>) -> Self::Op;

    /// The write that deletes it.
    fn delete() -> Self::Op;

    /// One of its name was there, which may be another one.
    fn found(seen: Self::Seen) -> Self::Done;

    /// It is made.
    fn made(seen: Self::Seen) -> Self::Done;

    /// It is deleted.
    fn deleted(deleted: Deleted) -> Self::Done;

    /// It cannot be deleted, because something holds it.
    fn held(seen: Self::Seen) -> Self::What;
}

/// What the PUT of a course's resource says.
pub(crate) type Spec<C> = <<C as Course>::Seen as Resource>::Spec;

/// Why a request of a course failed.
pub(crate) type FailureOf<C> = Failure<<C as Course>::Error, <C as Whole>::What>;

impl<E: AzureFailure, W> Failure<E, W> {
    pub(crate) fn new(fault: Fault, effect: Effect, why: impl Into<W>) -> Self {
        Self { fault, effect, why: why.into(), azure: None }
    }

    /// Azure's answer says it. Azure may also have acted on an earlier try of the request.
    pub(crate) fn azure(why: impl Into<W>, error: E, tried: &Attempts) -> Self {
        let effect = if error.effect() == Effect::Possible { Effect::Possible } else { tried.effect() };
        Self { fault: error.fault().clone(), effect, why: why.into(), azure: Some(error) }
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

pub(crate) fn failed<C: Whole>(failure: FailureOf<C>) -> Next<C> {
    Next::End(Err(failure))
}

/// The rest after a write that was not accepted; `None` where its failure is the answer.
pub(crate) fn rest_after<E: AzureFailure>(error: &E, attempts: &mut Attempts, limits: Limits) -> Option<Rest> {
    match attempts.failed(error.fault(), error.effect(), limits) {
        attempts::Next::Pause(pause) => Some(Rest::For(pause)),
        attempts::Next::BackOff { failures } => Some(Rest::BackOff { failures }),
        attempts::Next::Stop => None,
    }
}

/// A wait for the end of an operation on the resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OtherOperation {
    pub(crate) since: Duration,
}

/// What a read says of it.
pub(crate) enum Watched {
    /// It goes on: look again after this.
    Rest(Rest),
    /// It has ended.
    Ended,
    /// It takes too long.
    TooLong(Duration),
}

impl OtherOperation {
    pub(crate) fn seen<R: Resource>(self, now: Duration, resource: &R) -> Watched {
        let elapsed = now.saturating_sub(self.since);
        if resource.provisioning_state() != ProvisioningState::InProgress {
            Watched::Ended
        } else if elapsed > LONGEST_OPERATION {
            Watched::TooLong(elapsed)
        } else {
            Watched::Rest(Rest::For(poll::again(R::CREATION, elapsed)))
        }
    }
}

pub(crate) fn in_progress<E: AzureFailure, W: From<Trouble>>(elapsed: Duration) -> Failure<E, W> {
    Failure::new(Fault::Conflict, Effect::Possible, Trouble::InProgress(elapsed))
}
