//! The CSI sidecars, as far as a controller meets them: external-provisioner and external-attacher call with a
//! deadline, and repeat what failed after a time that doubles.
//!
//! Their defaults are used where a driver's chart changes nothing: the first repetition after a second, then twice as
//! long each time, five minutes at most (`--retry-interval-start`, `--retry-interval-max`). The deadline is that of
//! `--timeout=2m`. A caller that waits for its next repetition keeps no place of `--callers`, as in their work queues.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use csi_proto::csi::{
    CapacityRange, ControllerExpandVolumeRequest, ControllerModifyVolumeRequest, ControllerPublishVolumeRequest,
    ControllerUnpublishVolumeRequest, CreateSnapshotRequest, CreateVolumeRequest, DeleteSnapshotRequest,
    DeleteVolumeRequest, VolumeCapability, VolumeContentSource,
    controller_client::ControllerClient,
    volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode},
    volume_content_source::{SnapshotSource, Type as SourceType},
};
use tokio::{process::Child, sync::Semaphore, task::JoinSet};
use tonic::{Code, Request, Status, transport::Channel};

use super::processes::{self, AnyError};

/// The deadline of a call.
const TIMEOUT: Duration = Duration::from_secs(120);
/// How long a failed call waits before it is sent again, the first time and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));
/// A call that failed so often fails the bench: by then it has been tried for two hours.
const REPEATED_MOST: u32 = 30;
/// So many calls share a connection: a server of HTTP/2 takes 200 at a time by default, and the rest would wait
/// unseen in the client.
const CALLS_A_CHANNEL: usize = 100;

const GIB: i64 = 1 << 30;

/// A volume as Kubernetes knows it.
#[derive(Debug, Clone)]
pub(super) struct Volume {
    /// The name that is asked for, and for a disk that exists its own.
    pub(super) name: String,
    /// The handle; empty until it is created.
    pub(super) id: String,
    /// The volume context that CreateVolume answers.
    pub(super) context: std::collections::HashMap<String, String>,
    /// The node that uses it.
    pub(super) node: String,
    /// What its StorageClass says.
    pub(super) parameters: Vec<(String, String)>,
    /// The name that its snapshot is asked for by; empty where none is.
    pub(super) snapshot_name: String,
    /// The handle of its snapshot; empty until that is made.
    pub(super) snapshot: String,
}

/// What is asked of every volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Create,
    Publish,
    Unpublish,
    Expand,
    /// Its snapshot is taken. external-snapshotter asks until it is ready.
    Snapshot,
    /// It is made anew, from its snapshot.
    Restore,
    /// Its VolumeAttributesClass changes.
    Modify,
    /// It is deleted; its snapshot, where it is only that.
    Delete,
}

impl Step {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Publish => "publish",
            Self::Unpublish => "unpublish",
            Self::Expand => "expand",
            Self::Snapshot => "snapshot",
            Self::Restore => "restore",
            Self::Modify => "modify",
            Self::Delete => "delete",
        }
    }
}

/// A call that was answered at last.
#[derive(Debug, Clone)]
pub(super) struct Answered {
    /// The handle of what was asked for: of a volume, or of a snapshot.
    pub(super) id: String,
    /// When the first attempt was sent, and when the last was answered.
    pub(super) sent: Instant,
    pub(super) answered: Instant,
    /// When the attempt was sent that succeeded.
    pub(super) sent_last: Instant,
    /// How many attempts failed before.
    pub(super) repeated: u32,
}

/// What came of one call for every volume.
#[derive(Debug)]
pub(super) struct Round {
    /// From the first call to the last answer.
    pub(super) makespan: Duration,
    pub(super) answers: Vec<Answered>,
}

/// The sidecars of one controller.
#[derive(Debug, Clone)]
pub(super) struct Sidecars {
    clients: Vec<ControllerClient<Channel>>,
    callers: usize,
}

impl Sidecars {
    /// Connects; at most `callers` calls are in flight at a time.
    pub(super) async fn connect(socket: &Path, controller: &mut Child, callers: usize) -> Result<Self, AnyError> {
        let mut clients = Vec::new();
        for _ in 0..callers.div_ceil(CALLS_A_CHANNEL).max(1) {
            clients.push(ControllerClient::new(processes::connected(socket, controller).await?));
        }
        Ok(Self { clients, callers })
    }

    /// A client for calls that are not measured.
    pub(super) fn client(&self) -> ControllerClient<Channel> {
        self.clients[0].clone()
    }

    /// Calls once for every volume, and repeats until each has succeeded.
    pub(super) async fn all(&self, step: Step, volumes: &mut [Volume]) -> Result<Round, AnyError> {
        let gate = Arc::new(Semaphore::new(self.callers));
        let started = Instant::now();
        let mut calls = JoinSet::new();
        for (at, volume) in volumes.iter().enumerate() {
            let (gate, volume) = (gate.clone(), volume.clone());
            let client = self.clients[at % self.clients.len()].clone();
            calls.spawn(async move { Ok::<_, AnyError>((at, until_done(client, &gate, step, volume).await?)) });
        }
        let mut answers = Vec::with_capacity(volumes.len());
        while let Some(call) = calls.join_next().await {
            let (at, (volume, answered)) = call??;
            volumes[at] = volume;
            answers.push(answered);
        }
        Ok(Round { makespan: started.elapsed(), answers })
    }
}

async fn until_done(
    client: ControllerClient<Channel>,
    gate: &Semaphore,
    step: Step,
    mut volume: Volume,
) -> Result<(Volume, Answered), AnyError> {
    let mut sent = None;
    let mut repeated = 0;
    loop {
        let place = gate.acquire().await?;
        let sent_last = Instant::now();
        let sent = *sent.get_or_insert(sent_last);
        // As the sidecars' context: the call ends here even if the controller does not answer.
        let answer = match tokio::time::timeout(TIMEOUT, send(client.clone(), step, &mut volume)).await {
            Ok(answer) => answer,
            Err(_) => Err(Status::deadline_exceeded("no answer within the deadline")),
        };
        drop(place);
        match answer {
            Ok(()) => {
                let answered = Instant::now();
                let of_snapshot = step == Step::Snapshot || volume.id.is_empty();
                let id = if of_snapshot { volume.snapshot.clone() } else { volume.id.clone() };
                return Ok((volume, Answered { id, sent, answered, sent_last, repeated }));
            }
            Err(status) if is_final(status.code()) || repeated == REPEATED_MOST => {
                let (step, name) = (step.name(), &volume.name);
                return Err(format!("{step} of {name} failed with {:?}: {}", status.code(), status.message()).into());
            }
            Err(status) => {
                tracing::debug!(step = step.name(), volume = volume.name, error = %status, "a call is repeated");
                tokio::time::sleep(backoff(repeated)).await;
                repeated += 1;
            }
        }
    }
}

fn backoff(repeated: u32) -> Duration {
    BACKOFF.0.saturating_mul(1_u32.checked_shl(repeated).unwrap_or(u32::MAX)).min(BACKOFF.1)
}

/// What no repetition mends. The sidecars repeat this too; a bench that did would never end.
fn is_final(code: Code) -> bool {
    matches!(
        code,
        Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::Unauthenticated
            | Code::OutOfRange
            | Code::Unimplemented
    )
}

fn with_deadline<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(TIMEOUT);
    request
}

fn capability() -> VolumeCapability {
    VolumeCapability {
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
        access_type: Some(AccessType::Mount(MountVolume::default())),
    }
}

async fn send(mut client: ControllerClient<Channel>, step: Step, volume: &mut Volume) -> Result<(), Status> {
    let (volume_id, node_id) = (volume.id.clone(), volume.node.clone());
    match step {
        Step::Create | Step::Restore => {
            let snapshot_id = volume.snapshot.clone();
            let source = || VolumeContentSource { r#type: Some(SourceType::Snapshot(SnapshotSource { snapshot_id })) };
            let request = CreateVolumeRequest {
                name: volume.name.clone(),
                volume_content_source: (step == Step::Restore).then(source),
                capacity_range: Some(CapacityRange { required_bytes: 32 * GIB, limit_bytes: 0 }),
                volume_capabilities: vec![capability()],
                parameters: volume.parameters.iter().cloned().collect(),
                ..Default::default()
            };
            let created = client.create_volume(with_deadline(request)).await?.into_inner().volume;
            let created = created.ok_or_else(|| Status::data_loss("CreateVolume answers no volume"))?;
            (volume.id, volume.context) = (created.volume_id, created.volume_context);
        }
        Step::Publish => {
            let request = ControllerPublishVolumeRequest {
                volume_id,
                node_id,
                volume_capability: Some(capability()),
                volume_context: volume.context.clone(),
                ..Default::default()
            };
            client.controller_publish_volume(with_deadline(request)).await?;
        }
        Step::Unpublish => {
            let request = ControllerUnpublishVolumeRequest { volume_id, node_id, ..Default::default() };
            client.controller_unpublish_volume(with_deadline(request)).await?;
        }
        Step::Expand => {
            let capacity_range = Some(CapacityRange { required_bytes: 64 * GIB, limit_bytes: 0 });
            let request = ControllerExpandVolumeRequest { volume_id, capacity_range, ..Default::default() };
            client.controller_expand_volume(with_deadline(request)).await?;
        }
        Step::Snapshot => {
            let (name, source_volume_id) = (volume.snapshot_name.clone(), volume_id);
            let request = CreateSnapshotRequest { name, source_volume_id, ..Default::default() };
            let made = client.create_snapshot(with_deadline(request)).await?.into_inner().snapshot;
            let made = made.ok_or_else(|| Status::data_loss("CreateSnapshot answers no snapshot"))?;
            volume.snapshot = made.snapshot_id;
            if !made.ready_to_use {
                return Err(Status::unavailable("the snapshot is not ready yet"));
            }
        }
        Step::Modify => {
            let mutable_parameters = [("skuName".to_owned(), "StandardSSD_LRS".to_owned())].into();
            let request = ControllerModifyVolumeRequest { volume_id, mutable_parameters, ..Default::default() };
            client.controller_modify_volume(with_deadline(request)).await?;
        }
        Step::Delete if volume_id.is_empty() => {
            let request = DeleteSnapshotRequest { snapshot_id: volume.snapshot.clone(), ..Default::default() };
            client.delete_snapshot(with_deadline(request)).await?;
        }
        Step::Delete => {
            let request = DeleteVolumeRequest { volume_id, ..Default::default() };
            client.delete_volume(with_deadline(request)).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_call_waits_twice_as_long_each_time_and_five_minutes_at_most() {
        let waits: Vec<u64> = [0, 1, 2, 3, 8, 9, 31, 32, 100].map(|repeated| backoff(repeated).as_secs()).into();
        assert_eq!(waits, [1, 2, 4, 8, 256, 300, 300, 300, 300]);
    }
}
