//! Which calls the courses of snapshots ([`lazuli_storage::whole_snapshot`]) are. It chooses nothing; the tasks of the
//! snapshots are [`lazuli_reconcile::single`]'s.

use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _};
use lazuli_azure::{compute::Freshness, error::ArmError, permits::Permit};
use lazuli_engine::single::{Refusal, Written};
use lazuli_journal::Recorder;
use lazuli_model::{ArmId, Snapshot};
use lazuli_quota::permit::Priority;
use lazuli_reconcile::{
    metrics::Metrics,
    single::{Adapter, Failed, Singles},
};
use lazuli_storage::{
    whole::{Trouble, Verb},
    whole_snapshot::{Done, Failure, Op, Request, Wanted, WholeSnapshot},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{
    VolumeError,
    client::Client,
    error::Answer,
    known::KnownDisks,
    occupied::{Hold, Occupied, busy},
    whole_disk::{broken_off, verb, with_azure},
};

type Course = WholeSnapshot<Answer>;

/// The snapshots of disks. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct WholeSnapshots {
    occupied: Occupied,
    known: KnownDisks,
    snapshots: Singles<Snapshots>,
}

impl WholeSnapshots {
    pub(crate) fn new(
        client: Client,
        occupied: Occupied,
        known: KnownDisks,
        metrics: Metrics,
        journal: Recorder,
    ) -> Self {
        Self { occupied, known, snapshots: Singles::new(Snapshots(client), metrics, journal) }
    }

    /// Asks for a snapshot to be made or deleted, or joins the same request, and waits for the outcome. Meanwhile the disk that
    /// it is taken of is neither deleted nor grown by this process.
    ///
    /// # Errors
    /// `Fault::Busy` while something else is being done with the snapshot or its disk. Otherwise the failure of the request.
    pub(crate) async fn request(&self, snapshot: &ArmId, wanted: Wanted) -> Result<Done, VolumeError> {
        let hold = self.occupied.snapshot(&wanted)?;
        self.known.asks(snapshot, &wanted);
        let request = Request { wanted: wanted.clone(), limits: self.snapshots.adapter().0.write_limits() };
        let outcome = self.snapshots.request(snapshot, request, hold).await;
        self.known.ended(snapshot, &wanted, outcome.as_ref().ok());
        outcome.map_err(|failed| volume_error(failed, snapshot))
    }
}

/// What the calls of all snapshots go through.
struct Snapshots(Client);

impl Snapshots {
    async fn write(client: Client, id: ArmId, op: Op, permit: Permit, wanted: CancellationToken) -> Written<Course> {
        let sent = match &op {
            Op::Put(spec) => client.create_snapshot(&id, spec, permit, &wanted).await,
            Op::Delete => client.delete_snapshot(&id, permit, &wanted).await,
        };
        let operation = match sent {
            Ok(operation) => operation,
            Err(error) => {
                let why = &error as &dyn std::error::Error;
                debug!(snapshot = %id, error = why, "a write of the snapshot was not accepted");
                return Written::Refused(Answer(error));
            }
        };
        let written = match &op {
            Op::Put(_) => client.written_snapshot(&id, operation).await.map(Some),
            Op::Delete => client.deleted(operation).await.map(|()| None),
        };
        log(&id, &op, &written);
        written.map_or_else(|error| Written::Failed(Answer(error)), Written::Done)
    }
}

fn log(id: &ArmId, op: &Op, written: &Result<Option<Snapshot>, ArmError>) {
    match (op, written) {
        (_, Err(error)) => warn!(snapshot = %id, %error, "a write of the snapshot has failed"),
        (Op::Put(_), Ok(_)) => info!(snapshot = %id, "snapshot made"),
        (Op::Delete, Ok(_)) => info!(snapshot = %id, "snapshot deleted"),
    }
}

/// A caller's words for the failure of its request.
fn volume_error(failed: Failed<Course>, snapshot: &ArmId) -> VolumeError {
    let Failure { fault, effect, why, azure } = match failed {
        Failed::BrokenOff => return broken_off(format_args!("the snapshot {snapshot}")),
        Failed::Refused(Refusal::Busy(running)) => {
            return busy(format_args!("the snapshot {snapshot}"), &format!("{} is in progress", running.wanted));
        }
        Failed::Refused(Refusal::Why(failure)) => failure,
    };
    let message = match why {
        Trouble::Creation => format!("the snapshot {snapshot} cannot be made"),
        Trouble::Deletion => format!("the snapshot {snapshot} cannot be deleted"),
        Trouble::Unreadable => format!("the snapshot {snapshot} cannot be read"),
        Trouble::InProgress(elapsed) => {
            format!("an operation on the snapshot {snapshot} has been in progress for {} s; retry", elapsed.as_secs())
        }
        Trouble::Unwanted => format!("no caller waits for the work on the snapshot {snapshot} any more"),
    };
    with_azure(azure, fault, message).with_effect(effect)
}

impl Adapter for Snapshots {
    type Key = ArmId;
    type Course = Course;
    type Permit = Permit;
    type Hold = Option<Hold>;

    const NAME: &'static str = "snapshot";

    fn env(&self) {}

    fn permit(&self, id: &ArmId, of: Verb) -> BoxFuture<'static, Result<Permit, Answer>> {
        let (client, id) = (self.0.clone(), id.clone());
        async move { client.permit_snapshot(verb(of), &id).await.map_err(Answer) }.boxed()
    }

    fn read(&self, id: &ArmId, priority: Option<Priority>) -> BoxFuture<'static, Result<Snapshot, Answer>> {
        let (client, id) = (self.0.clone(), id.clone());
        async move {
            let single = Freshness::single();
            let freshness = priority.map_or(single, |priority| single.priority(priority));
            client.read_snapshot(&id, freshness).await.map(|read| read.model).map_err(Answer)
        }
        .boxed()
    }

    fn write(
        &self,
        id: &ArmId,
        op: Op,
        permit: Permit,
        wanted: CancellationToken,
    ) -> BoxFuture<'static, Written<Course>> {
        Self::write(self.0.clone(), id.clone(), op, permit, wanted).boxed()
    }

    fn pause_after(&self, failures: u32) -> Duration {
        self.0.pause_after(failures)
    }
}
