//! Every decision about the creation and the deletion of one snapshot: the course of [`lazuli_engine::single`] for snapshots
//! of disks. Which snapshots a request takes, and in which order, is decided by the request's own step.
//!
//! They go as those of any [`whole`](crate::whole) resource, with one difference. A snapshot that was there before is never
//! written: it may be one that has been answered to a caller, and the content of its disk is another one by now. So the
//! PUT is repeated, and what has failed is deleted, only where this course may have made it.

use std::{fmt, sync::Arc, time::Duration};

use lazuli_engine::{
    Awaited,
    attempts::Limits,
    single::{AzureFailure, Course, Input, Next},
};
use lazuli_model::{
    ProvisioningState, Snapshot,
    disk_tags::{REQUEST, value},
    fault::Effect,
    snapshot_spec::SnapshotSpec,
};
use lazuli_quota::{permit::Priority, poll};

use crate::whole::{self, Deleted, Resource, Trouble, Verb, Whole, create::Create, delete::Delete};

/// What is asked of a snapshot.
#[derive(Debug, Clone)]
pub struct Request {
    /// What it is to become.
    pub wanted: Wanted,
    /// How often and how long its write is tried.
    pub limits: Limits,
}

/// What a snapshot is to become.
#[derive(Debug, Clone, PartialEq)]
pub enum Wanted {
    /// It exists, as this says.
    Made(Arc<SnapshotSpec>),
    /// It does not exist.
    Deleted,
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Made(_) => "its creation",
            Self::Deleted => "its deletion",
        })
    }
}

/// A write.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// Makes the snapshot.
    Put(Arc<SnapshotSpec>),
    /// Deletes it.
    Delete,
}

/// What came of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Done {
    /// It was made so.
    Made(Arc<Snapshot>),
    /// A snapshot of its name was there, or is what a try has made whose answer was lost. It may be another one than is
    /// asked for.
    Found(Arc<Snapshot>),
    /// There is no such snapshot any more.
    Gone,
    /// The snapshot that was to be deleted is gone, and another one of its name that was made meanwhile stays.
    Replaced,
}

/// Why a request failed.
pub type Failure<E> = whole::Failure<E, Trouble>;

/// The course of one request for a snapshot.
#[derive(Debug, Clone)]
pub struct WholeSnapshot<E: AzureFailure>(Kind<E>);

#[derive(Debug, Clone)]
enum Kind<E: AzureFailure> {
    Create(Box<Create<WholeSnapshot<E>>>),
    Delete(Box<Delete<WholeSnapshot<E>>>),
}

impl Resource for Snapshot {
    type Spec = SnapshotSpec;

    const CREATION: poll::Kind = poll::Kind::SnapshotCreate;

    fn has_source(_: &SnapshotSpec) -> bool {
        true
    }

    fn provisioning_state(&self) -> ProvisioningState {
        self.provisioning_state
    }

    /// What uses a snapshot has its own copy, and Azure says where it has not.
    fn is_held(&self) -> bool {
        false
    }

    fn is_other_than(&self, before: &Self) -> bool {
        let differ = |one: Option<&str>, other: Option<&str>| matches!((one, other), (Some(one), Some(other)) if !one.eq_ignore_ascii_case(other));
        differ(before.unique_id.as_deref(), self.unique_id.as_deref())
            || differ(value(&before.tags, REQUEST), value(&self.tags, REQUEST))
    }

    fn is_as(&self, spec: &SnapshotSpec) -> bool {
        spec.matches(self).is_ok()
    }

    fn is_unfinished(&self, spec: &SnapshotSpec, tried: Effect) -> bool {
        tried == Effect::Possible && self.is_left(spec)
    }

    /// A snapshot whose copy has failed in the background was made, and may have been answered.
    fn is_left(&self, spec: &SnapshotSpec) -> bool {
        matches!(self.provisioning_state, ProvisioningState::Failed | ProvisioningState::Canceled)
            && self.copy_error.is_none()
            && self.is_as(spec)
    }
}

impl<E: AzureFailure> Whole for WholeSnapshot<E> {
    type What = Trouble;

    fn put(spec: Arc<SnapshotSpec>) -> Op {
        Op::Put(spec)
    }

    fn delete() -> Op {
        Op::Delete
    }

    fn found(seen: Snapshot) -> Done {
        Done::Found(seen.into())
    }

    fn made(seen: Snapshot) -> Done {
        Done::Made(seen.into())
    }

    fn deleted(deleted: Deleted) -> Done {
        match deleted {
            Deleted::Gone => Done::Gone,
            Deleted::Replaced => Done::Replaced,
        }
    }

    fn held(_: Snapshot) -> Trouble {
        Trouble::Deletion
    }
}

impl<E: AzureFailure> Course for WholeSnapshot<E> {
    type Request = Request;
    type Seen = Snapshot;
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
            Wanted::Made(spec) => Kind::Create(Box::new(Create::new(spec.clone(), limits))),
            Wanted::Deleted => Kind::Delete(Box::new(Delete::new(limits))),
        })
    }

    fn is_same(running: &Request, asked: &Request) -> bool {
        running.wanted == asked.wanted
    }

    fn next(&mut self, (): &(), now: Duration, input: Input<Self>) -> Next<Self> {
        match &mut self.0 {
            Kind::Create(create) => create.next(now, input),
            Kind::Delete(delete) => delete.next(now, input),
        }
    }

    fn goes_on_alone(&self) -> bool {
        matches!(&self.0, Kind::Create(create) if create.puts_right())
    }

    fn rests_for(&self) -> Awaited {
        let watches = match &self.0 {
            Kind::Create(create) => create.watches(),
            Kind::Delete(delete) => delete.watches(),
        };
        if watches { Awaited::OtherOperation } else { Awaited::Pause }
    }
}
