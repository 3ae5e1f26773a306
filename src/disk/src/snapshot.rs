//! Which calls the steps of a request for a snapshot ([`lazuli_storage::snapshot`]) are. It chooses nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use lazuli_azure::compute::Freshness;
use lazuli_model::{
    ArmId,
    fault::{Code, Rpc},
};
use lazuli_storage::{
    copies::Remove,
    list::{GroupFailure, group_failure, groups},
    snapshot::{
        Call, Cause, Done, Env, Event, Failure, ListOf, Memory, Next, Report, Request, State, Step, dependents,
    },
};
use lazuli_volume::{
    Defaults, ParameterError,
    snapshot::{AZURE_LIMITS, SnapshotLimit, SnapshotRefusal, SnapshotRequest, SnapshotView},
};
use tracing::{debug, warn};

use super::{VolumeError, Volumes, error::Answer};

/// How many groups are listed at the same time.
const GROUPS_AT_ONCE: usize = 4;

/// Why a request for a snapshot failed.
#[derive(Debug)]
pub struct SnapshotError {
    /// The gRPC code, which takes into account what may be there.
    pub code: Code,
    /// What failed.
    pub why: SnapshotFailure,
}

/// What failed of a request for a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotFailure {
    /// A value of the request cannot be used.
    #[error(transparent)]
    Parameter(ParameterError),
    /// What is there does not allow it.
    #[error(transparent)]
    Refused(SnapshotRefusal),
    /// One of Azure's limits is reached.
    #[error("{0}")]
    Limit(SnapshotLimit),
    /// Azure has failed.
    #[error(transparent)]
    Failed(VolumeError),
    /// Azure makes no snapshot in the region that the class names.
    #[error("{refused}")]
    Region {
        /// What is wrong with the class.
        refused: ParameterError,
        /// Azure's answer.
        source: VolumeError,
    },
}

/// The snapshots of a list, in the order of their ids, each once.
pub type SnapshotList = Arc<[SnapshotView]>;

/// What is remembered of unfinished snapshots. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Unfinished(Arc<Mutex<Memory>>);

impl Unfinished {
    fn lock(&self) -> MutexGuard<'_, Memory> {
        // It may be lost at any moment, so half a change of it does no harm.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Volumes {
    /// Makes a snapshot, or finds the one of the same request.
    ///
    /// # Errors
    /// Why there is none, with the code that external-snapshotter understands.
    pub async fn create_snapshot(
        &self,
        request: SnapshotRequest,
        defaults: Arc<Defaults>,
    ) -> Result<SnapshotView, SnapshotError> {
        let name = request.name.clone();
        match self.carry_snapshot(&name, Rpc::CreateSnapshot, Request::Create { request, defaults }).await? {
            Done::Made(view) => Ok(view),
            Done::Deleted => unreachable!("only a deletion leaves no snapshot"),
        }
    }

    /// Deletes a snapshot, with the local one that one in another region was copied from. Succeeds when there is none.
    ///
    /// # Errors
    /// Azure's own failures.
    pub async fn delete_snapshot(&self, snapshot: &ArmId) -> Result<(), SnapshotError> {
        let request = Request::Delete(snapshot.clone());
        self.carry_snapshot(snapshot.name(), Rpc::DeleteSnapshot, request).await.map(drop)
    }

    /// A snapshot.
    ///
    /// # Errors
    /// `Fault::NotFound`; otherwise Azure's own failures.
    pub async fn snapshot(&self, snapshot: &ArmId) -> Result<SnapshotView, VolumeError> {
        let read = self.client.read_snapshot(snapshot, Freshness::single()).await;
        let read =
            read.map_err(|error| VolumeError::azure(format!("the snapshot {snapshot} cannot be read"), error))?;
        Ok(SnapshotView::of(&read.model))
    }

    /// Every snapshot of the resource groups that ListVolumes reads, and of the volume's own; of this volume alone where one
    /// is named.
    ///
    /// # Errors
    /// Azure's own failures.
    pub async fn list_snapshots(&self, source: Option<&ArmId>) -> Result<SnapshotList, VolumeError> {
        let mut handles = self.known_handles().await?;
        if let Some(volume) = source {
            handles.add(volume.as_str());
        }
        let not_before = self.workers.clock().now();
        let listed: Vec<Vec<SnapshotView>> = stream::iter(groups(&self.group, &handles))
            .map(|group| async move {
                let of = ListOf::group(&group.subscription, &group.name);
                match self.snapshot_lists.read(&of, not_before).await {
                    Ok(listed) => Ok(dependents::shown(&listed.snapshots, source)),
                    Err(Answer(error)) => match group_failure(&self.group, &group, &error.fault, &error.code) {
                        GroupFailure::Gone => Ok(Vec::new()),
                        GroupFailure::Incomplete => {
                            let (group, subscription) = (&group.name, &group.subscription);
                            let message = format!(
                                "the snapshots of resource group {group} of subscription {subscription} cannot be listed"
                            );
                            Err(VolumeError::azure(message, error))
                        }
                    },
                }
            })
            .buffered(GROUPS_AT_ONCE)
            .try_collect()
            .await?;
        let mut views: Vec<SnapshotView> = listed.into_iter().flatten().collect();
        views.sort_by(|a, b| a.snapshot.cmp(&b.snapshot));
        views.dedup_by(|a, b| a.snapshot == b.snapshot);
        Ok(views.into())
    }

    /// Carries out a request.
    async fn carry_snapshot(&self, name: &str, rpc: Rpc, request: Request) -> Result<Done, SnapshotError> {
        let mut state = State::new(request);
        let mut event = Event::Begun;
        loop {
            let Step { reports, next } = self.step_snapshot(&mut state, event);
            for Report::Warning(warning) in reports {
                warn!(snapshot = name, "{warning}");
            }
            match next {
                Next::Call(call) => event = Box::pin(self.carry_out_snapshot(call)).await,
                Next::Done(outcome) => return outcome.map_err(|failure| snapshot_error(rpc, failure)),
            }
        }
    }

    fn step_snapshot(
        &self,
        state: &mut State<VolumeError>,
        event: Event<Answer, VolumeError>,
    ) -> Step<Answer, VolumeError> {
        let mut memory = self.unfinished.lock();
        let mut env = Env { memory: &mut memory, limits: &AZURE_LIMITS };
        state.step(&mut env, self.workers.clock().now(), event)
    }

    async fn carry_out_snapshot(&self, call: Call) -> Event<Answer, VolumeError> {
        match call {
            Call::ReadSource { disk, accept } => {
                let read = self.client.read_disk(&disk, Freshness { accept, ..Freshness::single() }).await;
                Event::Source(read.map(|read| Box::new((read.model, read.seen.by))).map_err(Answer))
            }
            Call::ReadSnapshot { snapshot, accept, not_before } => {
                self.wait_until(not_before).await;
                let read = self.client.read_snapshot(&snapshot, Freshness { accept, ..Freshness::single() }).await;
                Event::Snapshot(read.map(|read| Box::new((read.model, read.seen.by))).map_err(Answer))
            }
            Call::List { of, not_before } => Event::Listed(self.snapshot_lists.read(&of, not_before).await),
            Call::Work { snapshot, wanted } => Event::Worked(self.whole_snapshots.request(&snapshot, wanted).await),
        }
    }

    /// The temporary snapshot that has carried a disk's content, where a list of a moment ago has one. A sweep finds the others.
    pub(crate) async fn carrier_of(&self, disk: &ArmId) -> Option<ArmId> {
        let not_before = dependents::fresh_enough(self.workers.clock().now());
        let there = stream::iter(dependents::lists(disk))
            .then(async |of| {
                let listed = self.snapshot_lists.read(&of, not_before).await;
                self.known.listed(disk, &of, listed.as_ref().ok().map(|listed| listed.snapshots.as_slice()));
                listed
            })
            .inspect_err(|Answer(error)| debug!(%disk, %error, "the snapshots beside a disk cannot be listed"))
            .filter_map(async |listed| listed.ok());
        let listed = std::pin::pin!(there).next().await?;
        Remove::carrier_in(&listed.snapshots, disk)
    }
}

fn snapshot_error(rpc: Rpc, failure: Failure<Answer, VolumeError>) -> SnapshotError {
    let code = failure.code(rpc);
    let Failure { cause, effect } = failure;
    let why = match *cause {
        Cause::Parameter(error) => SnapshotFailure::Parameter(error),
        Cause::Refused(refusal) => SnapshotFailure::Refused(refusal),
        Cause::Limit(limit) => SnapshotFailure::Limit(limit),
        Cause::Azure(why, Answer(error)) => {
            SnapshotFailure::Failed(VolumeError::azure(why.to_string(), error).with_effect(effect))
        }
        Cause::Work(error) => SnapshotFailure::Failed(error.with_effect(effect)),
        Cause::Region(refused, source) => SnapshotFailure::Region { refused, source },
    };
    SnapshotError { code, why }
}
