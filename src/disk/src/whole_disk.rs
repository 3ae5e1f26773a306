//! Which calls the courses of whole disks ([`lazuli_storage::whole_disk`]) are. It chooses nothing; the tasks of the disks are
//! [`lazuli_reconcile::single`]'s.

use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _};
use lazuli_azure::{arm::Operation, compute::Freshness, error, error::ArmError, permits::Permit};
use lazuli_engine::single::{Action, Event, Written};
use lazuli_journal::{Key, Note, Recorder};
use lazuli_model::ArmId;
use lazuli_quota::permit::Priority;
use lazuli_reconcile::{
    Clock,
    metrics::Metrics,
    single::{Adapter, Singles},
};
use lazuli_storage::whole_disk::{
    self, Done, Op, SeenDisk, Verb, Wanted,
    guard::{GuardedDisk, Query, Request, Seen},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};
use words::volume_error;
pub(crate) use words::{broken_off, grows_only_detached, with_azure};

use super::{
    Nodes, VolumeError,
    client::Client,
    error::Answer,
    known::KnownDisks,
    occupied::{Hold, Occupied},
    snapshot_lists::SnapshotLists,
};

mod notes;
mod words;

type Course = GuardedDisk<Answer>;

/// The disks as wholes. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct WholeDisks {
    nodes: Nodes,
    occupied: Occupied,
    disks: Singles<DiskCalls>,
}

impl WholeDisks {
    pub(crate) fn new(calls: DiskCalls, nodes: Nodes, occupied: Occupied, metrics: Metrics, journal: Recorder) -> Self {
        Self { nodes, occupied, disks: Singles::new(calls, metrics, journal) }
    }

    /// A moment on the clock of the steps.
    pub(crate) fn since_start(&self, moment: Instant) -> Duration {
        self.disks.since_start(moment)
    }

    /// Asks for a disk to be made, deleted, grown or changed, or joins the same request, and waits for the outcome. Meanwhile no VM
    /// may be given the disk.
    ///
    /// # Errors
    /// [`Fault::Busy`](lazuli_model::fault::Fault::Busy) while something else is being done with the disk. Otherwise the
    /// failure of the request.
    pub(crate) async fn request(&self, disk: &ArmId, wanted: Wanted) -> Result<Done, VolumeError> {
        let hold = self.occupied.whole(disk, &wanted)?;
        let calls = self.disks.adapter();
        let of = whole_disk::Request { wanted, limits: calls.client.write_limits() };
        let request = Request { disk: disk.clone(), of, fills_late: calls.known.before_deletion(disk) };
        let outcome = self.disks.request(disk, request, hold).await;
        outcome.map_err(|failed| volume_error(failed, disk, |vm| self.nodes.name_of(vm)))
    }
}

/// What the calls of all disks go through.
pub(crate) struct DiskCalls {
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) lists: SnapshotLists,
    pub(crate) known: KnownDisks,
}

impl DiskCalls {
    async fn write(client: Client, disk: ArmId, op: Op, permit: Permit, wanted: CancellationToken) -> Written<Course> {
        let sent = match &op {
            Op::Put(spec) => client.create_disk(&disk, spec, permit, &wanted).await,
            Op::Resize(to) => client.resize_disk(&disk, *to, permit, &wanted).await,
            Op::Change(change) => client.change_disk(&disk, change, permit, &wanted).await,
            Op::Delete => client.delete_disk(&disk, permit, &wanted).await,
        };
        let operation = match sent {
            Ok(operation) => operation,
            Err(error) => {
                debug!(%disk, error = &error as &dyn std::error::Error, "a write of the disk was not accepted");
                return Written::Refused(Answer(error));
            }
        };
        let written = Self::ended(&client, &disk, &op, operation).await;
        log(&disk, &op, &written);
        let seen = written.map(|seen| seen.map(|seen| Seen::Disk(Box::new(seen))));
        seen.map_or_else(|error| Written::Failed(Answer(error)), Written::Done)
    }

    async fn ended(client: &Client, disk: &ArmId, op: &Op, operation: Operation) -> Result<Option<SeenDisk>, ArmError> {
        match op {
            Op::Put(_) | Op::Resize(_) => {
                let written = client.written_disk(disk, operation).await;
                written.map(|disk| Some(SeenDisk { disk, details: None }))
            }
            Op::Change(_) => client.changed_disk(operation).await.map(|()| None),
            Op::Delete => client.deleted(operation).await.map(|()| None),
        }
    }
}

fn log(disk: &ArmId, op: &Op, written: &Result<Option<SeenDisk>, ArmError>) {
    let size = written.as_ref().ok().and_then(|seen| Some(seen.as_ref()?.disk.size.to_string()));
    match (op, written) {
        (_, Err(error)) => warn!(%disk, %error, "a write of the disk has failed"),
        (Op::Put(_), Ok(_)) => info!(%disk, size, "disk created"),
        (Op::Resize(_), Ok(_)) => info!(%disk, size, "disk expanded"),
        (Op::Change(change), Ok(_)) => info!(%disk, ?change, "attributes of the disk changed"),
        (Op::Delete, Ok(_)) => info!(%disk, "disk deleted"),
    }
}

pub(crate) fn verb(verb: Verb) -> error::Verb {
    match verb {
        Verb::Put => error::Verb::Put,
        Verb::Patch => error::Verb::Patch,
        Verb::Delete => error::Verb::Delete,
    }
}

impl Adapter for DiskCalls {
    type Key = ArmId;
    type Course = Course;
    type Permit = Permit;
    type Hold = Hold;

    const NAME: &'static str = "disk";

    fn env(&self) {}

    fn permit(&self, disk: &ArmId, of: Verb) -> BoxFuture<'static, Result<Permit, Answer>> {
        let (client, disk) = (self.client.clone(), disk.clone());
        async move { client.permit_disk(verb(of), &disk).await.map_err(Answer) }.boxed()
    }

    fn read(&self, disk: &ArmId, query: Query) -> BoxFuture<'static, Result<Seen<Answer>, Answer>> {
        let (client, disk) = (self.client.clone(), disk.clone());
        match query {
            Query::Disk(priority) => async move {
                let read = client.see_disk(&disk, priority.unwrap_or(Priority::Read)).await;
                read.map(|seen| Seen::Disk(Box::new(seen))).map_err(Answer)
            }
            .boxed(),
            Query::Snapshots(of) => {
                let (lists, known, sent_at) = (self.lists.clone(), self.known.clone(), self.clock.now());
                async move {
                    let listed = lists.read(&of, sent_at).await;
                    Ok(Seen::Snapshots { listed, taken: known.taken_of(&disk) })
                }
                .boxed()
            }
            Query::Snapshot(id) => async move {
                let read = client.read_snapshot(&id, Freshness::single().priority(Priority::Create)).await;
                Ok(Seen::Snapshot(read.map(|read| Box::new(read.model)).map_err(Answer)))
            }
            .boxed(),
        }
    }

    fn write(
        &self,
        disk: &ArmId,
        op: Op,
        permit: Permit,
        wanted: CancellationToken,
    ) -> BoxFuture<'static, Written<Course>> {
        Self::write(self.client.clone(), disk.clone(), op, permit, wanted).boxed()
    }

    fn pause_after(&self, failures: u32) -> Duration {
        self.client.pause_after(failures)
    }

    fn journal_key(disk: &ArmId) -> Option<Key<'_>> {
        Some(Key::disk(disk))
    }

    fn note_of_event(event: &Event<Course>) -> Option<Note<'_>> {
        notes::of_event(event)
    }

    fn note_of_action(action: &Action<Course>) -> Option<Note<'_>> {
        notes::of_action(action)
    }
}

#[cfg(test)]
mod tests;
