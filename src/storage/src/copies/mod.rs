//! Every decision of a request that makes a disk from a snapshot or from another disk, and of what goes with such a disk:
//! a small state machine for each.
//!
//! ```text
//!   create    source ─▶ what that comes from ─▶ plan ─┬─ made by one PUT ────────────────────────▶ the disk ─▶ answer
//!                                                     └─ is the disk there? its carrier? ─▶ carrier ─▶ the disk ─▶ carrier gone ─▶ answer
//!
//!   descend   what a disk that is published comes from ─▶ answer
//!
//!   remove    the disk deleted ─▶ is a snapshot its carrier? ─▶ deleted ─▶ answer
//!
//!   sweep     snapshots ─▶ a carrier's disk ─▶ deleted, if that has its content or never came ─▶ the next one ─▶ end
//! ```
//!
//! Which disk is made, and what comes next of it and of its carrier, is said by [`lazuli_volume::copy`]. These machines have
//! its questions answered: each step takes what has happened ([`Event`]) and says what comes next ([`Next`]): one call, whose
//! answer is the next event, or the end. `lazuli-disk` carries the calls out and chooses nothing. The writes are those of the
//! tasks of a disk and of a snapshot, which outlive the request.

mod create;
mod descend;
mod remove;
pub mod sweep;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use lazuli_engine::single::AzureFailure;
use lazuli_model::{
    ArmId, AzureTime, Disk, Snapshot,
    disk_spec::DiskSpec,
    fault::{self, Code, Effect, Rpc},
    parameter::ParameterError,
    snapshot_spec::SnapshotSpec,
};
use lazuli_quota::{permit::Priority, read::Accept};
use lazuli_volume::copy::{CopyLimit, CopyRefusal, Link};

pub use create::{Create, Made};
pub use descend::Descend;
pub use remove::Remove;

/// What is to be done next. Its answer is the next [`Event`].
#[derive(Debug, Clone, PartialEq)]
pub enum Call {
    /// Read a disk, by a read that is sent from now on: [`Event::Disk`].
    ReadDisk {
        /// The disk.
        disk: ArmId,
        /// Whether a list is an answer.
        accept: Accept,
        /// How it ranks where reads are short. A request that has got further goes first: else those that have only begun
        /// keep the ones that could write from writing, and Azure's bucket of writes overflows meanwhile.
        priority: Priority,
    },
    /// Read a snapshot singly: [`Event::Snapshot`].
    ReadSnapshot {
        /// The snapshot.
        snapshot: ArmId,
        /// As of a disk.
        priority: Priority,
    },
    /// Have a disk made, or get the one that is there: [`Event::DiskMade`].
    MakeDisk {
        /// The disk.
        disk: ArmId,
        /// What to make.
        spec: Arc<DiskSpec>,
    },
    /// Have a disk deleted, from whatever VM it is attached to without use: [`Event::Deleted`].
    DeleteDisk(ArmId),
    /// Have a snapshot made, or get the one that is there: [`Event::SnapshotMade`].
    MakeSnapshot {
        /// The snapshot.
        snapshot: ArmId,
        /// What to make.
        spec: Arc<SnapshotSpec>,
    },
    /// Have a snapshot deleted: [`Event::Deleted`].
    DeleteSnapshot(ArmId),
    /// List disks: [`Event::Disks`].
    ListDisks(Scope),
    /// List snapshots: [`Event::Snapshots`].
    ListSnapshots(Scope),
}

/// Where disks or snapshots are listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// The subscription.
    pub subscription: String,
    /// One of its resource groups; `None` for all of them.
    pub resource_group: Option<String>,
}

impl Scope {
    fn subscription(subscription: &str) -> Self {
        Self { subscription: subscription.to_owned(), resource_group: None }
    }

    /// What is listed where the whole subscription may not be read.
    fn narrower(&self, resource_group: &str) -> Option<Self> {
        let narrower = || Self { resource_group: Some(resource_group.to_owned()), ..self.clone() };
        self.resource_group.is_none().then(narrower)
    }
}

/// What has happened. `E` is a failed call of Azure's, `W` a failed request to the task of a disk or of a snapshot.
#[derive(Debug, Clone)]
pub enum Event<E, W> {
    /// The request has come.
    Begun,
    /// A disk.
    Disk(Result<Box<Disk>, E>),
    /// A snapshot.
    Snapshot(Result<Box<Snapshot>, E>),
    /// The disk that was asked for.
    DiskMade(Result<Arc<Disk>, W>),
    /// The snapshot that was asked for.
    SnapshotMade(Result<Box<Snapshot>, W>),
    /// What was to be deleted is gone, or why not.
    Deleted(Result<(), W>),
    /// Disks.
    Disks(Result<Vec<Disk>, E>),
    /// Snapshots, and when Azure answered, by its own clock, where it says so.
    Snapshots(Result<(Vec<Snapshot>, Option<AzureTime>), E>),
}

/// What people are told beside the answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Report<W> {
    /// The temporary snapshot of a disk could not be deleted. A sweep does it.
    CarrierLeft(ArmId, W),
}

/// What comes next.
#[derive(Debug, Clone, PartialEq)]
pub enum Next<T, C = Call> {
    /// This call.
    Call(C),
    /// Nothing.
    Done(T),
}

/// What follows from an event.
#[derive(Debug, Clone)]
pub struct Step<T, W> {
    /// What people are told.
    pub reports: Vec<Report<W>>,
    /// The next call, or the end.
    pub next: Next<T>,
}

/// Why a disk is not made.
#[derive(Debug, Clone)]
pub enum Failure<E, W> {
    /// The request cannot be carried out as it is written.
    Parameter(ParameterError),
    /// Its source, or a disk or snapshot of its name, forbids it.
    Refused(CopyRefusal),
    /// It has reached a limit of Azure's, which passes.
    Limited(CopyLimit, W),
    /// A disk or a snapshot cannot be read.
    Unreadable {
        /// Which.
        id: ArmId,
        /// Why not.
        error: E,
        /// Whether an earlier call of the request may have left a disk or a carrier.
        leaves: Effect,
    },
    /// The disk or its carrier could not be made or deleted.
    Work(W),
}

impl<E: AzureFailure, W: AzureFailure> Failure<E, W> {
    /// The gRPC code of CreateVolume.
    pub fn code(&self) -> Code {
        match self {
            Self::Parameter(error) => error.code(),
            Self::Refused(refusal) => refusal.code(),
            Self::Limited(limit, _) => limit.code(),
            Self::Unreadable { error, leaves, .. } => {
                let effect = if *leaves == Effect::Possible { *leaves } else { error.effect() };
                fault::code(Rpc::CreateVolume, error.fault(), effect)
            }
            Self::Work(error) => fault::code(Rpc::CreateVolume, error.fault(), error.effect()),
        }
    }
}

/// What disks and snapshots were made from, as requests have found it. It saves reads, and may be lost at any moment.
/// What something was made from never changes. What cannot be read may be readable minutes later: a role is assigned,
/// or a deleted group is made again. The source of a request is read each time.
#[derive(Debug, Clone, Default)]
pub struct Links {
    known: BTreeMap<ArmId, Link>,
    /// What could not be read, and until when that is not tried again.
    unknown: BTreeMap<ArmId, Duration>,
    now: Duration,
}

impl Links {
    /// How many are kept. They are forgotten together, for what is asked for again is read again.
    const MOST: usize = 4_096;
    /// For how long what cannot be read is not asked for again.
    const UNREADABLE: Duration = Duration::from_secs(120);

    /// The same, at this time of a clock that began with the process.
    pub fn at(&mut self, now: Duration) -> &mut Self {
        self.now = now;
        self
    }

    fn get(&self, id: &ArmId) -> Option<Link> {
        let is_unknown = || self.unknown.get(id).is_some_and(|until| self.now < *until);
        self.known.get(id).cloned().or_else(|| is_unknown().then_some(Link::Unknown))
    }

    fn learn(&mut self, id: &ArmId, link: Link) {
        if self.known.len() + self.unknown.len() >= Self::MOST {
            self.known.clear();
            self.unknown.clear();
        }
        match link {
            Link::Unknown => drop(self.unknown.insert(id.clone(), self.now + Self::UNREADABLE)),
            link => drop(self.known.insert(id.clone(), link)),
        }
    }

    /// A disk was made, or found.
    pub fn learn_disk(&mut self, disk: &Disk) {
        self.learn(&disk.id, Link::of_disk(disk));
    }

    /// A disk or a snapshot was deleted: another one may get its name.
    pub fn forget(&mut self, id: &ArmId) {
        self.known.remove(id);
        self.unknown.remove(id);
    }
}

/// The read of a disk or of a snapshot, by its type. What is neither cannot be read.
fn read(id: &ArmId, accept: Accept, priority: Priority) -> Option<Call> {
    if id.is_type("Microsoft.Compute/snapshots") {
        return Some(Call::ReadSnapshot { snapshot: id.clone(), priority });
    }
    id.is_type("Microsoft.Compute/disks").then(|| Call::ReadDisk { disk: id.clone(), accept, priority })
}

/// Whether a failure leaves something in Azure, or may.
fn may_have_written<W: AzureFailure>(error: &W) -> bool {
    error.effect() == Effect::Possible
}
