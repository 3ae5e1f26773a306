//! The RPCs of snapshots.
//!
//! external-snapshotter repeats CreateSnapshot until the snapshot is ready, and reads a snapshot that a person names by
//! ListSnapshots. It never asks for more than one snapshot of a list.

use std::sync::Arc;

use csi_proto::csi::{
    CreateSnapshotRequest, CreateSnapshotResponse, DeleteSnapshotRequest, DeleteSnapshotResponse, GetSnapshotRequest,
    GetSnapshotResponse, ListSnapshotsRequest, ListSnapshotsResponse, Snapshot, list_snapshots_response,
};
use lazuli_disk::{SnapshotError, SnapshotFailure};
use lazuli_journal::{Key, Word};
use lazuli_model::{
    ArmId, AzureTime, SnapshotId, VolumeId,
    event::{Event, Reason, Regarding, VolumeSnapshot},
    fault::{Code, Fault, Rpc},
};
use lazuli_volume::snapshot::{SnapshotRequest, SnapshotView, asked_snapshot, missing_scope, taken_otherwise};
use prost_types::Timestamp;
use tonic::Status;

use super::{ControllerService, failed, managed, max_entries};
use crate::{
    asked::Asked,
    capability::ordered,
    pages,
    server::failure,
    wire::{required, wire_bytes},
};

/// A snapshot of a list, with its id as it is to be spelled.
#[derive(Debug, Clone)]
pub(super) struct Listed {
    id: String,
    view: SnapshotView,
}

impl From<SnapshotView> for Listed {
    fn from(view: SnapshotView) -> Self {
        Self { id: view.snapshot.to_string(), view }
    }
}

impl Listed {
    fn wire(&self) -> Snapshot {
        let view = &self.view;
        Snapshot {
            size_bytes: wire_bytes(view.size_bytes),
            snapshot_id: self.id.clone(),
            source_volume_id: view.source_volume_id.clone(),
            creation_time: Some(timestamp(view.created)),
            ready_to_use: view.is_ready,
            ..Snapshot::default()
        }
    }
}

/// A moment as the protocol writes it. There are fewer nanoseconds in a second than an `i32` holds.
fn timestamp(at: AzureTime) -> Timestamp {
    Timestamp { seconds: at.unix_seconds(), nanos: i32::try_from(at.subsec_nanoseconds()).unwrap_or(0) }
}

impl pages::Listed for Listed {
    type Entry = list_snapshots_response::Entry;
    type Response = ListSnapshotsResponse;

    fn entry(&self) -> Self::Entry {
        list_snapshots_response::Entry { snapshot: Some(self.wire()) }
    }

    fn response(entries: Vec<Self::Entry>, next_token: String) -> Self::Response {
        ListSnapshotsResponse { entries, next_token }
    }
}

impl ControllerService {
    fn snapshot_id(&self, id: &str) -> Result<SnapshotId, lazuli_model::SnapshotIdError> {
        SnapshotId::parse(id, (&self.defaults.subscription, &self.defaults.resource_group))
    }

    pub(super) async fn take_snapshot(&self, request: CreateSnapshotRequest) -> Result<CreateSnapshotResponse, Status> {
        required("name", &request.name)?;
        required("source_volume_id", &request.source_volume_id)?;
        let volume: VolumeId = request.source_volume_id.parse().map_err(|error| failure(Code::NotFound, &error))?;
        let disk = managed(&volume)?.clone();
        let request =
            SnapshotRequest { name: request.name, volume: disk.clone(), parameters: ordered(request.parameters) };
        let regarding = regarding(&request);
        let id = asked_snapshot(&request, &self.defaults);
        // A request that names no snapshot is noted of its disk.
        let key = id.as_ref().map_or_else(|| Key::disk(&disk), Key::snapshot);
        let asked = Asked::of(&self.journal, key, Word::SnapshotAsked.about(Key::disk(&disk)));
        let otherwise = taken_otherwise(&request, &self.defaults);
        match self.volumes.create_snapshot(request, Arc::new(self.defaults.clone())).await {
            Ok(view) => {
                for what in otherwise {
                    let what = format!("Of the VolumeSnapshotClass, {what}");
                    self.events.send(Event::new(regarding.clone(), Reason::IgnoredValue, what));
                }
                asked.done(answer(&view));
                let failed = view.failure.as_ref();
                let event = failed.map(|failed| Event::new(regarding, Reason::SnapshotFailed, failed.to_string()));
                event.into_iter().for_each(|event| self.events.send(event));
                Ok(CreateSnapshotResponse { snapshot: Some(Listed::from(view).wire()) })
            }
            Err(error) => Err(asked.failed(self.not_taken(&disk, id.as_ref(), regarding, &error), fault(&error))),
        }
    }

    /// The status of a snapshot that could not be taken. Reports the failure where a person must know about it.
    fn not_taken(&self, disk: &ArmId, id: Option<&ArmId>, regarding: Regarding, error: &SnapshotError) -> Status {
        match &error.why {
            SnapshotFailure::Failed(failed) => {
                let missing = id.and_then(|id| missing_scope(&failed.fault, id, disk));
                let missing = missing.map_or_else(String::new, |scope| format!(": {scope}"));
                let what = format!("No snapshot of disk {} can be made{missing}", disk.name());
                let status = self.reported(Rpc::CreateSnapshot, Some(regarding), &what, failed);
                Status::new(status.code(), format!("{}{missing}", status.message()))
            }
            SnapshotFailure::Limit(limit) => {
                let what = format!("No snapshot of disk {} can be made now: {}", disk.name(), limit.lasting());
                self.events.send(Event::new(regarding, limit.reason(), what));
                failure(error.code, &error.why)
            }
            SnapshotFailure::Parameter(_) | SnapshotFailure::Refused(_) | SnapshotFailure::Region { .. } => {
                failure(error.code, &error.why)
            }
        }
    }

    pub(super) async fn remove_snapshot(
        &self,
        request: DeleteSnapshotRequest,
    ) -> Result<DeleteSnapshotResponse, Status> {
        required("snapshot_id", &request.snapshot_id)?;
        let id = match self.snapshot_id(&request.snapshot_id) {
            Ok(id) => id,
            Err(error) => {
                tracing::warn!(snapshot = request.snapshot_id, %error, "this id names no snapshot; there is nothing to delete");
                return Ok(DeleteSnapshotResponse {});
            }
        };
        let asked = Asked::of(&self.journal, Key::snapshot(id.snapshot()), Word::DeleteAsked);
        let error = match self.volumes.delete_snapshot(id.snapshot()).await {
            Ok(()) => {
                asked.done(Word::Answered);
                return Ok(DeleteSnapshotResponse {});
            }
            Err(error) => error,
        };
        let status = match &error.why {
            SnapshotFailure::Failed(failure) => failed(Rpc::DeleteSnapshot, failure),
            why => failure(error.code, why),
        };
        Err(asked.failed(status, fault(&error)))
    }

    pub(super) async fn snapshots(&self, request: ListSnapshotsRequest) -> Result<ListSnapshotsResponse, Status> {
        let limit = max_entries(request.max_entries)?;
        if !request.snapshot_id.is_empty() {
            return self.snapshots_of_id(&request, limit).await;
        }
        match (request.starting_token.as_str(), request.source_volume_id.as_str()) {
            ("", "") => self.listed(None, limit).await,
            ("", source) => match source.parse::<VolumeId>().ok().as_ref().and_then(|volume| volume.disk().managed()) {
                Some(disk) => self.listed(Some(disk), limit).await,
                None => Ok(ListSnapshotsResponse::default()),
            },
            (token, _) => self.snapshot_pages.next(token, limit),
        }
    }

    async fn listed(&self, source: Option<&ArmId>, limit: usize) -> Result<ListSnapshotsResponse, Status> {
        let views = self.volumes.list_snapshots(source).await.map_err(|error| failed(Rpc::Read, &error))?;
        Ok(self.snapshot_pages.first(views.iter().cloned().map(Listed::from).collect(), limit))
    }

    /// The one snapshot of an id, or none.
    async fn snapshots_of_id(
        &self,
        request: &ListSnapshotsRequest,
        limit: usize,
    ) -> Result<ListSnapshotsResponse, Status> {
        let Ok(id) = self.snapshot_id(&request.snapshot_id) else { return Ok(ListSnapshotsResponse::default()) };
        let view = match self.volumes.snapshot(id.snapshot()).await {
            Ok(view) => Some(view),
            Err(error) if error.fault.says_that_it_is_missing() => None,
            Err(error) => return Err(failed(Rpc::Read, &error)),
        };
        let is_asked_for = |view: &SnapshotView| is_of(view, &request.source_volume_id);
        let found = view.filter(is_asked_for).map(|view| Listed { id: id.to_string(), view });
        Ok(self.snapshot_pages.first(found.into_iter().collect(), limit))
    }

    pub(super) async fn one_snapshot(&self, request: GetSnapshotRequest) -> Result<GetSnapshotResponse, Status> {
        required("snapshot_id", &request.snapshot_id)?;
        let id = self.snapshot_id(&request.snapshot_id).map_err(|error| failure(Code::NotFound, &error))?;
        match self.volumes.snapshot(id.snapshot()).await {
            Ok(view) => Ok(GetSnapshotResponse { snapshot: Some(Listed { id: id.to_string(), view }.wire()) }),
            Err(error) if error.fault.says_that_it_is_missing() => Err(failure(Code::NotFound, &error)),
            Err(error) => Err(failed(Rpc::Read, &error)),
        }
    }
}

/// What a request is answered, for the journal.
fn answer(view: &SnapshotView) -> Word {
    match view {
        SnapshotView { failure: Some(_), .. } => Word::AnsweredFailedSnapshot,
        SnapshotView { is_ready: true, .. } => Word::AnsweredReady,
        SnapshotView { .. } => Word::AwaitsSnapshot,
    }
}

/// What the events of a request are about: the VolumeSnapshot, or the claim of its source where external-snapshotter names
/// none.
fn regarding(request: &SnapshotRequest) -> Regarding {
    let get = |key: &str| request.parameters.get(key).map(String::as_str);
    let snapshot = VolumeSnapshot::of(get, &request.name).map(Regarding::Snapshot);
    snapshot.unwrap_or_else(|| Regarding::ClaimOf((&request.volume).into()))
}

/// Why Azure, or what was read of it, is the reason of a failure.
fn fault(error: &SnapshotError) -> Option<&Fault> {
    match &error.why {
        SnapshotFailure::Failed(failed) | SnapshotFailure::Region { source: failed, .. } => Some(&failed.fault),
        SnapshotFailure::Parameter(_) | SnapshotFailure::Refused(_) | SnapshotFailure::Limit(_) => None,
    }
}

/// Whether a snapshot is of a volume, where one is asked for.
fn is_of(view: &SnapshotView, volume: &str) -> bool {
    let disk = |id: &str| id.parse::<VolumeId>().ok();
    volume.is_empty()
        || disk(&view.source_volume_id).zip(disk(volume)).is_some_and(|(one, other)| one.disk() == other.disk())
}

#[cfg(test)]
mod tests {
    use lazuli_volume::snapshot::SnapshotFailed;

    use super::*;

    #[test]
    fn an_event_of_a_snapshot_is_about_the_volume_snapshot_that_external_snapshotter_names_else_about_the_claim() {
        let disk = ArmId::disk("s", "g", "pvc-1").unwrap();
        let of = |parameters: &[(&str, &str)]| {
            let parameters = parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            let uid = "0b1f6a52-8c54-4a39-9a7e-3a4e3c0b8d11";
            let request = SnapshotRequest { name: format!("snapshot-{uid}"), volume: disk.clone(), parameters };
            regarding(&request)
        };
        let metadata = [
            ("csi.storage.k8s.io/volumesnapshot/name", "nightly"),
            ("csi.storage.k8s.io/volumesnapshot/namespace", "shop"),
        ];
        let Regarding::Snapshot(snapshot) = of(&metadata) else { panic!("{:?}", of(&metadata)) };
        assert_eq!((snapshot.namespace.as_str(), snapshot.name.as_str()), ("shop", "nightly"));
        assert!(snapshot.uid.is_some_and(|uid| uid.starts_with("0b1f6a52")));
        assert_eq!(of(&metadata[..1]), Regarding::ClaimOf(disk.clone().into()));
    }

    #[test]
    fn a_failed_snapshot_is_noted_as_that_and_never_as_one_that_comes() {
        let snapshot = ArmId::snapshot("s", "g", "snapshot-1").expect("an id");
        let failed = SnapshotFailed { snapshot: snapshot.clone(), why: "CopySourceNotFound".into() };
        let view = |is_ready, failure| SnapshotView {
            snapshot: snapshot.clone(),
            source_volume_id: String::new(),
            size_bytes: 1 << 30,
            created: AzureTime::from_unix_seconds(0),
            is_ready,
            failure,
        };
        let views = [view(true, None), view(false, None), view(false, Some(failed))];
        assert_eq!(
            views.map(|view| answer(&view)),
            [Word::AnsweredReady, Word::AwaitsSnapshot, Word::AnsweredFailedSnapshot]
        );
    }
}
