//! Which calls the steps of copies ([`lazuli_storage::copies`]) are. It chooses nothing.

use std::time::Duration;

use lazuli_azure::compute::Freshness;
use lazuli_model::{ArmId, Disk, event::Reason, fault::Code, parameter::ParameterError};
use lazuli_quota::permit::Priority;
use lazuli_reconcile::Clock;
use lazuli_storage::{
    copies::{self, Call, Create, Descend, Links, Made, Next, Remove, Report, Step},
    publish, whole_disk, whole_snapshot,
};
use lazuli_volume::copy::{CopyLimit, CopyRefusal, Line};
use tokio::time::Instant;
use tracing::warn;

use super::{Created, VolumeError, Volumes, error::Answer, resulting_disk};

/// How long a read that a list may answer waits for others, while Azure's tokens are short. In a storm of copies one list of
/// the disks that they come from serves all that ask within it.
const PATIENCE: Duration = Duration::from_secs(2);

type Event = copies::Event<Answer, VolumeError>;
type Failure = copies::Failure<Answer, VolumeError>;

/// Why a disk was not made from a snapshot or from another disk.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The request cannot be carried out as it is written.
    #[error(transparent)]
    Parameter(ParameterError),
    /// Its source, or a disk or snapshot of its name, forbids it.
    #[error(transparent)]
    Refused(CopyRefusal),
    /// It has reached a limit of Azure's, which passes.
    #[error("{limit}; it is tried again")]
    Limited {
        /// The limit.
        limit: CopyLimit,
        /// Azure's refusal.
        #[source]
        source: VolumeError,
    },
    /// It could not be made.
    #[error(transparent)]
    Failed(VolumeError),
}

impl CopyError {
    /// The gRPC code of CreateVolume, and why a person gets an event.
    ///
    /// # Errors
    /// The failed call that decides both.
    pub fn decided(&self) -> Result<(Code, Option<Reason>), &VolumeError> {
        match self {
            Self::Parameter(error) => Ok((error.code(), None)),
            Self::Refused(refusal) => Ok((refusal.code(), refusal.reason())),
            Self::Limited { limit, .. } => Ok((limit.code(), Some(limit.reason()))),
            Self::Failed(error) => Err(error),
        }
    }
}

impl From<Failure> for CopyError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Parameter(error) => Self::Parameter(error),
            Failure::Refused(refusal) => Self::Refused(refusal),
            Failure::Limited(limit, source) => Self::Limited { limit, source },
            Failure::Unreadable { id, error: Answer(error), leaves } => {
                Self::Failed(VolumeError::azure(format!("{id} cannot be read"), error).with_effect_of(leaves))
            }
            Failure::Work(error) => Self::Failed(error),
        }
    }
}

impl Volumes {
    /// Makes a disk from a snapshot or from another disk, or finds the one that an earlier call of this request has made.
    ///
    /// # Errors
    /// See [`CopyError`].
    pub async fn create_copy(&self, mut create: Create<VolumeError>) -> Result<Created, CopyError> {
        let requested_at = Instant::now();
        let Made { disk, adopted } =
            self.follow(|event| create.step(self.copies().links(self.workers.clock()), event)).await?;
        let created = self.made(&disk, adopted, requested_at);
        self.sweeps.served();
        Ok(created)
    }

    /// What a disk was made from that says this of its source. A part that cannot be read now is left out.
    pub async fn line(&self, source: &str) -> Line {
        let Ok(source) = source.parse::<ArmId>() else { return Line::default() };
        let mut walk = Descend::new(source, Priority::Attach);
        let mut event = Event::Begun;
        loop {
            let next = walk.next(self.copies().links(self.workers.clock()), event);
            let next = next.unwrap_or_else(|(id, Answer(error))| {
                warn!(%id, %error, "what a disk was made from is not followed further");
                walk.give_up(self.copies().links(self.workers.clock()))
            });
            match next {
                Next::Call(call) => event = Box::pin(self.call(call)).await,
                Next::Done(descent) => return descent.line,
            }
        }
    }

    /// Deletes a disk, and the temporary snapshot that it was made from.
    /// `listed` is that by a list.
    pub(crate) async fn remove(&self, disk: &ArmId, listed: Option<ArmId>) -> Result<(), VolumeError> {
        let mut remove = Remove::new(disk.clone(), self.workers.memory().sources.made_from(&disk.into()), listed);
        self.follow(|event| remove.step(event)).await
    }

    /// Makes the calls of steps to their end, and gives it.
    async fn follow<T>(&self, mut step: impl FnMut(Event) -> Step<T, VolumeError>) -> T {
        let mut event = Event::Begun;
        loop {
            let Step { reports, next } = step(event);
            reports.into_iter().for_each(report);
            match next {
                Next::Call(call) => event = Box::pin(self.call(call)).await,
                Next::Done(end) => return end,
            }
        }
    }

    async fn call(&self, call: Call) -> Event {
        match call {
            Call::ReadDisk { disk, accept, priority } => {
                let freshness = Freshness { accept, ..Freshness::single().priority(priority) }.patience(PATIENCE);
                let read = self.client.read_disk(&disk, freshness).await;
                Event::Disk(read.map(|read| Box::new(read.model)).map_err(Answer))
            }
            Call::ReadSnapshot { snapshot, priority } => {
                let read = self.client.read_snapshot(&snapshot, Freshness::single().priority(priority)).await;
                Event::Snapshot(read.map(|read| Box::new(read.model)).map_err(Answer))
            }
            Call::MakeDisk { disk, spec } => {
                let made = self.whole_disks.request(&disk, whole_disk::Wanted::Made(spec)).await;
                Event::DiskMade(made.map(resulting_disk))
            }
            Call::DeleteDisk(disk) => {
                let request = publish::Request::Delete { disk: disk.into() };
                Event::Deleted(self.carry(request).await.map(drop))
            }
            Call::MakeSnapshot { snapshot, spec } => {
                let made = self.whole_snapshots.request(&snapshot, whole_snapshot::Wanted::Made(spec)).await;
                Event::SnapshotMade(made.map(resulting_snapshot))
            }
            Call::DeleteSnapshot(snapshot) => {
                let deleted = self.whole_snapshots.request(&snapshot, whole_snapshot::Wanted::Deleted).await;
                Event::Deleted(deleted.map(drop))
            }
            Call::ListDisks(scope) => {
                let listed = self.client.list_whole_disks(&scope.subscription, scope.resource_group.as_deref()).await;
                Event::Disks(listed.map_err(Answer))
            }
            Call::ListSnapshots(scope) => {
                let listed = self.client.list_snapshots(&scope.subscription, scope.resource_group.as_deref()).await;
                Event::Snapshots(listed.map(|list| (list.snapshots, list.answered)).map_err(Answer))
            }
        }
    }
}

fn resulting_snapshot(done: whole_snapshot::Done) -> Box<lazuli_model::Snapshot> {
    match done {
        whole_snapshot::Done::Made(snapshot) | whole_snapshot::Done::Found(snapshot) => Box::new((*snapshot).clone()),
        whole_snapshot::Done::Gone | whole_snapshot::Done::Replaced => {
            unreachable!("only a deletion leaves no snapshot")
        }
    }
}

fn report(report: Report<VolumeError>) {
    match report {
        Report::CarrierLeft(snapshot, error) => {
            warn!(%snapshot, %error, "a temporary snapshot stays for now; it is deleted by a later sweep");
        }
    }
}

/// What is known of copies. It may be lost at any moment.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    links: Links,
}

impl Copies {
    fn links(&mut self, clock: Clock) -> &mut Links {
        self.links.at(clock.now())
    }

    /// A disk was made or found. What is made from it then needs no read of it to know its line.
    pub(crate) fn learn(&mut self, disk: &Disk) {
        self.links.learn_disk(disk);
    }

    /// A disk was deleted.
    pub(crate) fn forget(&mut self, disk: &ArmId) {
        self.links.forget(disk);
    }
}
