//! Every decision about the creation, the deletion, the expansion and the change of attributes of a disk: the courses of
//! [`lazuli_engine::single`] for managed disks.
//!
//! A creation and a deletion go as those of any [`whole`](crate::whole) resource. An expansion's first send rests on the read
//! by which its size was chosen, while that is fresh. What a change sends is planned anew by each read behind its permit.
//!
//! [`guard`] stands before all of them: a deletion or an expansion that snapshots forbid is not sent.

mod change;
mod expand;
pub mod guard;
#[cfg(test)]
mod simulation;

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use change::{Asked, Change};
use expand::Expand;
use lazuli_engine::{
    Awaited,
    attempts::Limits,
    single::{Course, Input, Next},
};
use lazuli_model::{
    ArmId, Disk, Gib, ProvisioningState,
    disk_details::DiskDetails,
    disk_spec::{CreateOption, DiskSpec, ImportVersion},
    fault::Effect,
    op::DiskChange,
};
use lazuli_quota::{permit::Priority, poll};
use lazuli_volume::{
    Cloud, DetachReason, ParameterError, made_for_another,
    modify::ModifyPlan,
    snapshot::{GrowthBlocked, SnapshotsDepend},
};

use crate::snapshot::ListOf;
use crate::whole::{self, Deleted, Resource, Trouble, Whole, create::Create, delete::Delete};

pub use crate::whole::Verb;
pub use lazuli_engine::single::AzureFailure;

/// Whether there is a disk, by a single read of it.
///
/// # Errors
/// A failure that does not say that there is none.
pub fn existence<T, E: AzureFailure>(read: Result<T, E>) -> Result<bool, E> {
    match read {
        Ok(_) => Ok(true),
        Err(error) if error.fault().says_that_it_is_missing() => Ok(false),
        Err(error) => Err(error),
    }
}

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
    /// It is marked as one that was imported from this version of its blob for certain.
    Marked(ImportVersion),
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Made(_) => f.write_str("its creation"),
            Self::Deleted => f.write_str("its deletion"),
            Self::Grown { to, .. } => write!(f, "its expansion to {to}"),
            Self::Changed { .. } => f.write_str("a change of its attributes"),
            Self::Marked(_) => f.write_str("the end of its import"),
        }
    }
}

impl Wanted {
    /// Whether it may cost unfinished snapshots of the disk their content.
    pub fn is_against_snapshots(&self) -> bool {
        matches!(self, Self::Deleted | Self::Grown { .. })
    }

    /// Whether both ask for the same. Two expansions to one size do, whatever each has read before.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Made(one), Self::Made(other)) => one == other,
            (Self::Deleted, Self::Deleted) => true,
            (Self::Grown { to: one, .. }, Self::Grown { to: other, .. }) => one == other,
            (Self::Changed { class: one, .. }, Self::Changed { class: other, .. }) => one == other,
            (Self::Marked(one), Self::Marked(other)) => one == other,
            _ => false,
        }
    }
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
    /// The disk has the attributes of the class: what was sent, which is empty where nothing was, and what a person is to
    /// know of it.
    Changed(Box<ModifyPlan>),
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
pub type Failure<E> = whole::Failure<E, Why>;

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
    /// Snapshots need the disk as it is. Nothing was sent for it.
    Needed(Needed),
    /// It cannot be seen whether snapshots need the disk as it is: these cannot be read. Nothing was sent for it.
    Unseen(Snapshots),
}

/// Snapshots that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Snapshots {
    /// All of a subscription, or of a resource group.
    Of(ListOf),
    /// This one.
    One(ArmId),
}

/// What snapshots forbid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Needed {
    /// The deletion of the disk.
    #[error(transparent)]
    Deletion(#[from] SnapshotsDepend),
    /// Its expansion.
    #[error(transparent)]
    Expansion(#[from] GrowthBlocked),
}

impl From<Trouble> for Why {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Creation => Self::Write(Write::Creation),
            Trouble::Deletion => Self::Write(Write::Deletion),
            Trouble::Unreadable => Self::Unreadable,
            Trouble::InProgress(elapsed) => Self::InProgress(elapsed),
            Trouble::Unwanted => Self::Unwanted,
        }
    }
}

/// What comes next of a whole disk.
type Step<E> = Next<WholeDisk<E>>;

impl Resource for SeenDisk {
    type Spec = DiskSpec;

    const CREATION: poll::Kind = poll::Kind::DiskCreate;

    fn has_source(spec: &DiskSpec) -> bool {
        spec.create_option != CreateOption::Empty
    }

    fn provisioning_state(&self) -> ProvisioningState {
        self.disk.provisioning_state
    }

    fn is_held(&self) -> bool {
        !self.disk.holders().is_empty()
    }

    fn is_other_than(&self, before: &Self) -> bool {
        made_for_another(&before.disk, &self.disk)
    }

    fn is_as(&self, spec: &DiskSpec) -> bool {
        spec.matches(&self.disk).is_ok()
    }

    /// A disk that holds data is in the state Failed too, after a change of it that failed. So the PUT is repeated only for
    /// a disk that is exactly what is requested.
    fn is_unfinished(&self, spec: &DiskSpec, _: Effect) -> bool {
        self.is_left(spec) && spec.has_sent_size(&self.disk)
    }

    fn is_left(&self, spec: &DiskSpec) -> bool {
        matches!(self.disk.provisioning_state, ProvisioningState::Failed | ProvisioningState::Canceled)
            && self.is_as(spec)
            && !self.is_held()
    }
}

impl<E: AzureFailure> Whole for WholeDisk<E> {
    type What = Why;

    fn put(spec: Arc<DiskSpec>) -> Op {
        Op::Put(spec)
    }

    fn delete() -> Op {
        Op::Delete
    }

    fn found(seen: SeenDisk) -> Done {
        Done::Disk(seen.disk.into())
    }

    fn made(seen: SeenDisk) -> Done {
        Done::Disk(seen.disk.into())
    }

    fn deleted(deleted: Deleted) -> Done {
        match deleted {
            Deleted::Gone => Done::Gone,
            Deleted::Replaced => Done::Replaced,
        }
    }

    fn held(seen: SeenDisk) -> Why {
        Why::Held(seen.disk.into())
    }
}

/// The course of one request for a whole disk.
#[derive(Debug, Clone)]
pub struct WholeDisk<E: AzureFailure>(Kind<E>);

#[derive(Debug, Clone)]
enum Kind<E: AzureFailure> {
    Create(Box<Create<WholeDisk<E>>>),
    Delete(Box<Delete<WholeDisk<E>>>),
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
            Wanted::Made(spec) => Kind::Create(Box::new(Create::new(spec.clone(), limits))),
            Wanted::Deleted => Kind::Delete(Box::new(Delete::new(limits))),
            Wanted::Grown { before, read_at, to } => Kind::Expand(Expand::new(before.clone(), *read_at, *to, limits)),
            Wanted::Changed { class, cloud } => {
                Kind::Change(Box::new(Change::new(Asked::Class(class.clone(), *cloud), limits)))
            }
            Wanted::Marked(version) => Kind::Change(Box::new(Change::new(Asked::Mark(version.clone()), limits))),
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
