//! `csi.v1.Node` of `disk.csi.azure.com`: from an attached disk to a folder or a device in a pod.
//!
//! This module says what a call means, looks and acts: which device is staged, published raw or proved released, and what
//! becomes of it, is decided step by step in [`lazuli_staging`], and every look at a device and a mount is made by
//! [`lazuli_host`]. It holds no Azure credentials: what it knows of Azure is the instance metadata.
//!
//! # Life of a volume
//!
//! ```text
//!            NodeStageVolume                        NodePublishVolume
//! attached ------------------> staged ------------------------------------> published
//!          <------------------        <------------------------------------
//!            NodeUnstageVolume                      NodeUnpublishVolume
//! ```
//!
//! # The steps of staging, and why a kill between any two is harmless
//!
//! | step | leaves behind | who goes on |
//! |---|---|---|
//! | find the device by LUN, ask the metadata which disk it is, compare the sizes | nothing | the next try begins anew |
//! | probe; on a blank disk: intent block, mkfs, erase the intent | intent block, half a file system | probe finds our own intent for this volume, and formats again |
//! | compare the UUID with what this node knows, of this volume and of others | nothing | |
//! | fsck | a cleaner file system | fsck again |
//! | write the record (volume, LUN, device, UUID) | record | unstage releases that device; stage writes it again |
//! | mount | record and mount | the mount is found to be the right one |
//! | grow the file system if the disk is larger | a smaller file system | stage asks again whether it is smaller |
//!
//! A raw block volume has only the first step and the record. Unstaging goes back: unmount, prove that no process holds
//! the device (flush, exclusive open, or the device is gone), erase the record. Killed after the unmount, the record
//! still names the device to prove it of. Without a record (the volume was staged by the Go driver) the mount names
//! it, and without a mount the metadata does.
//!
//! Publishing and unpublishing need no record: the mount table is all their state. It also tells whether the disk is in
//! use in the other volume mode, which is refused: one disk is never a file system and a raw device at a time.
//!
//! # Who waits
//!
//! Every call runs in a task of its own, which goes on when kubelet gives up, and holds the volume meanwhile: a
//! second call for it is `ABORTED` until the first has ended.

mod attachment;
mod device_ownership;
mod error;
mod event;
mod identity_check;
mod info;
mod luns_unknown;
mod measure;
mod publish;
mod raw;
mod refusal;
mod request;
mod stage;
mod tuning;
mod unstage;

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use csi_proto::csi::{
    NodeExpandVolumeRequest, NodeExpandVolumeResponse, NodeGetCapabilitiesRequest, NodeGetCapabilitiesResponse,
    NodeGetInfoRequest, NodeGetInfoResponse, NodeGetStorageHealthRequest, NodeGetStorageHealthResponse,
    NodeGetVolumeHealthRequest, NodeGetVolumeHealthResponse, NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse,
    NodePublishVolumeRequest, NodePublishVolumeResponse, NodeServiceCapability, NodeStageVolumeRequest,
    NodeStageVolumeResponse, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse, NodeUnstageVolumeRequest,
    NodeUnstageVolumeResponse,
    node_server::Node as NodeRpcs,
    node_service_capability::{Rpc, Type, rpc},
};
use error::NodeError;
use identity_check::IdentityChecks;
use lazuli_azure::imds::Imds;
use lazuli_host::{
    Host,
    acceptances::Acceptances,
    contradictions::Contradictions,
    mount::as_mounted,
    volume_records::{Record, VolumeRecords, VolumeRecordsError},
};
use lazuli_model::{event::Event, fault::Code, node::MachineLabels, size::SizeLimits};
use lazuli_staging::Records;
pub use lazuli_staging::device_identity::OnSilence;
use lazuli_telemetry::lossy;
pub use luns_unknown::luns_unknown;
use request::{Publish, Stage};
use tokio::sync::{Semaphore, watch};
use tonic::{Request, Response, Status};

use super::{
    calls::{CallError as _, Calls},
    fields::{absolute, required},
    locks::{Held, Locks},
    server::{RpcNote, chain, status},
    wire::wire_bytes,
};

/// Whether the node tells its zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZoneSupport {
    /// As the instance metadata says.
    On,
    /// Never: the cluster does not use zones.
    Off,
}

/// How long each kind of step may take. kubelet waits two minutes for a call; a step that takes longer goes on and
/// the call after it finds it done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Until the disk is visible at its LUN.
    pub find: Duration,
    /// Until the metadata confirms the disk.
    pub identity: Duration,
    /// For an answer of the metadata that nothing depends on.
    pub instance: Duration,
    /// Until a grown disk shows its size.
    pub size: Duration,
    /// For probing and mkfs.
    pub format: Duration,
    /// For fsck: hours on a large disk.
    pub check: Duration,
    /// For mounts, binds and their undoing.
    pub mount: Duration,
    /// For growing a file system.
    pub grow: Duration,
    /// For unmounting and flushing.
    pub release: Duration,
    /// For measuring.
    pub stats: Duration,
    /// How long the metadata must have confirmed a disk that is not as it was when the volume was here before, or that only an
    /// operator's offset finds: for so long it may lag.
    pub identity_check: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let (seconds, minutes) = (Duration::from_secs, |minutes: u64| Duration::from_secs(60 * minutes));
        Self {
            find: seconds(60),
            identity: seconds(20),
            instance: seconds(3),
            size: seconds(30),
            format: minutes(30),
            check: minutes(360),
            mount: seconds(60),
            grow: minutes(30),
            release: seconds(90),
            stats: seconds(10),
            identity_check: minutes(2),
        }
    }
}

/// What an operator can set, and what the node is told.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// The node's id: the Kubernetes node name.
    pub node_id: String,
    /// How many volumes the node takes, instead of what its VM size says.
    pub max_volumes: Option<u32>,
    /// Slots of the VM that are kept free for disks which are not Kubernetes'.
    pub reserved_slots: u32,
    /// Whether zones are used.
    pub zones: ZoneSupport,
    /// What the controller publishes of VM sizes beyond the shipped table.
    pub sizes: watch::Receiver<SizeLimits>,
    /// What to do where the instance metadata is used and does not answer.
    pub on_silence: OnSilence,
    /// Where to read what the Node's labels say of the machine.
    pub labels: Option<LabelsReader>,
    /// Where to read what Kubernetes has attached to the machine: those disks take no slot from it.
    pub attached: Option<AttachedReader>,
    /// Where events for people go.
    pub events: lossy::Sender<Event>,
    /// How long things may take.
    pub timeouts: Timeouts,
}

/// One read of the own Node.
type NodeRead<T> = Pin<Box<dyn Future<Output = Option<T>> + Send>>;

/// Reads something of the own Node.
pub struct NodeReader<T>(Arc<dyn Fn() -> NodeRead<T> + Send + Sync>);

/// Reads the labels of the own Node.
pub type LabelsReader = NodeReader<MachineLabels>;

/// Reads the handles of the volumes that Kubernetes has attached to the own Node.
pub type AttachedReader = NodeReader<Vec<String>>;

impl<T> NodeReader<T> {
    /// `read` gives nothing where the Node cannot be read or does not say yet.
    pub fn new(read: impl Fn() -> NodeRead<T> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    fn read(&self) -> NodeRead<T> {
        (self.0)()
    }
}

impl<T> Clone for NodeReader<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> fmt::Debug for NodeReader<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeReader")
    }
}

impl NodeConfig {
    /// The defaults for a node of this name.
    pub fn new(node_id: impl Into<String>) -> Self {
        Self {
            node_id: node_id.into(),
            max_volumes: None,
            reserved_slots: 0,
            zones: ZoneSupport::On,
            // No call publishes anything.
            sizes: watch::channel(SizeLimits::default()).1,
            on_silence: OnSilence::Refuse,
            labels: None,
            attached: None,
            events: lossy::Sender::nowhere(),
            timeouts: Timeouts::default(),
        }
    }
}

/// The node service; clones share everything.
#[derive(Debug, Clone)]
pub struct NodeService(Arc<Node>);

#[derive(Debug)]
struct Node {
    host: Host,
    imds: Option<Imds>,
    volume_records: VolumeRecords,
    /// What was on volumes that have been staged here and are not any more.
    past: VolumeRecords,
    identity_checks: IdentityChecks,
    contradictions: Contradictions,
    /// Disks that an operator has accepted for volumes.
    acceptances: Acceptances,
    state: PathBuf,
    config: NodeConfig,
    locks: Locks,
    /// One btrfs at a time is compared with the others and mounted.
    btrfs: Semaphore,
    /// The calls that are being carried out, also for callers that have left.
    calls: Calls,
}

impl NodeService {
    /// A service on this machine. `state` is a folder that survives restarts; without `imds` no disk's identity is
    /// checked, and the node tells no zone.
    ///
    /// # Errors
    /// When the folder cannot be used.
    pub fn open(
        host: Host,
        imds: Option<Imds>,
        state: impl Into<PathBuf>,
        config: NodeConfig,
    ) -> Result<Self, VolumeRecordsError> {
        let state = state.into();
        Ok(Self(Arc::new(Node {
            host,
            imds,
            volume_records: VolumeRecords::open(state.join("volumes"))?,
            past: VolumeRecords::open(state.join("past"))?,
            identity_checks: IdentityChecks::default(),
            contradictions: Contradictions::read(state.join("contradictions.json")),
            acceptances: Acceptances::open(state.join("accept"))?,
            state,
            config,
            locks: Locks::default(),
            btrfs: Semaphore::new(1),
            calls: Calls::default(),
        })))
    }

    /// Waits until every call has ended, also those whose callers have left: for the time between the end of serving
    /// and the end of the process. What is cut off there can be repeated, but a repair of a file system had better
    /// not be cut.
    pub async fn finish(&self) {
        self.0.calls.finish().await;
    }

    /// Runs the call in a task that holds the volume and outlives its caller.
    async fn own<T, F>(&self, held: Held, work: impl FnOnce(Arc<Node>) -> F) -> Result<Response<T>, Status>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, NodeError>> + Send + 'static,
    {
        self.0.calls.run(&self.0.config.node_id, held, work(self.0.clone())).await
    }
}

fn refused(error: impl Into<NodeError>) -> Status {
    error.into().status()
}

impl Node {
    /// Where the machine's own data is remembered.
    fn memory(&self) -> PathBuf {
        self.state.join("machine.json")
    }

    /// Runs work on the volume records where it may wait for the disk.
    async fn with_records<T: Send + 'static>(
        &self,
        work: impl FnOnce(&VolumeRecords) -> Result<T, VolumeRecordsError> + Send + 'static,
    ) -> Result<T, NodeError> {
        let records = self.volume_records.clone();
        let done = tokio::task::spawn_blocking(move || work(&records)).await;
        done.map_err(|_| NodeError::Task)?.map_err(NodeError::VolumeRecords)
    }

    async fn remember(&self, record: Record) -> Result<(), NodeError> {
        self.with_records(move |records| records.put(&record)).await
    }

    async fn forget(&self, volume: &str) -> Result<(), NodeError> {
        let volume = volume.to_owned();
        self.with_records(move |records| records.remove(&volume)).await
    }

    /// The volume is here no more; what was on it is remembered, for the day it comes back.
    async fn retire(&self, volume: &str) -> Result<(), NodeError> {
        self.identity_checks.forget(volume);
        if let Some(record) = self.recall(volume).await.filter(|record| record.fs_uuid.is_some()) {
            let past = self.past.clone();
            let kept = move || past.put(&record).and_then(|()| past.keep_newest(identity_check::MOST_REMEMBERED));
            if let Err(error) = tokio::task::spawn_blocking(kept).await.map_err(|_| NodeError::Task)? {
                let error = chain(&error);
                tracing::warn!(volume, error, "what was on the volume is not remembered");
            }
        }
        self.forget(volume).await
    }

    /// The record of a volume.
    async fn recall(&self, volume: &str) -> Option<Record> {
        self.look_up(&self.volume_records, volume).await
    }

    /// A record. An unreadable one counts as none: it is a hint from the past and blocks nothing.
    async fn look_up(&self, records: &VolumeRecords, volume: &str) -> Option<Record> {
        let (records, name) = (records.clone(), volume.to_owned());
        let found = tokio::task::spawn_blocking(move || records.get(&name)).await;
        match found.map_err(|_| NodeError::Task).and_then(|found| found.map_err(NodeError::VolumeRecords)) {
            Ok(record) => record,
            Err(error) => {
                let error = chain(&error);
                tracing::warn!(volume, error, "the record of the volume is ignored");
                None
            }
        }
    }

    /// What is remembered of a volume, and of others with this file system UUID.
    async fn records(&self, volume: &str, uuid: Option<&str>) -> Result<Records, NodeError> {
        let own = self.recall(volume).await;
        let own_place = own.as_ref().and_then(|record| record.staging_path.as_deref()).map(as_mounted);
        let past = self.look_up(&self.past, volume).await;
        let Some(uuid) = uuid else { return Ok(Records { own, own_place, past, ..Records::default() }) };
        let namesakes = |records: &VolumeRecords| {
            let (records, volume, uuid) = (records.clone(), volume.to_owned(), uuid.to_owned());
            tokio::task::spawn_blocking(move || records.others_with_uuid(&volume, &uuid))
        };
        let here = namesakes(&self.volume_records).await.map_err(|_| NodeError::Task)?;
        let here = here.map_err(NodeError::VolumeRecords)?;
        // A hint from the past that cannot be read blocks nothing.
        let before = namesakes(&self.past).await.map_err(|_| NodeError::Task)?.unwrap_or_default();
        Ok(Records { own, own_place, past, here, before })
    }

    async fn all_records(&self) -> BTreeMap<String, Record> {
        self.with_records(VolumeRecords::all).await.unwrap_or_default()
    }
}

#[tonic::async_trait]
impl NodeRpcs for NodeService {
    async fn node_stage_volume(
        &self,
        request: Request<NodeStageVolumeRequest>,
    ) -> Result<Response<NodeStageVolumeResponse>, Status> {
        RpcNote::of(&request).about(&request.get_ref().volume_id);
        let request = Stage::parse(request.into_inner()).map_err(refused)?;
        let held = self.0.locks.volume(request.volume.as_str()).map_err(refused)?;
        self.own(held, move |node| async move {
            stage::stage(&node, &request).await.inspect_err(|error| node.report(&request, error))?;
            Ok(NodeStageVolumeResponse {})
        })
        .await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<NodeUnstageVolumeRequest>,
    ) -> Result<Response<NodeUnstageVolumeResponse>, Status> {
        RpcNote::of(&request).about(&request.get_ref().volume_id);
        let NodeUnstageVolumeRequest { volume_id, staging_target_path } = request.into_inner();
        let volume = required("volume_id", volume_id).map_err(refused)?;
        let staging = absolute("staging_target_path", staging_target_path).map_err(refused)?;
        let held = self.0.locks.volume(&volume).map_err(refused)?;
        self.own(held, move |node| async move {
            unstage::unstage(&node, &volume, &staging).await?;
            Ok(NodeUnstageVolumeResponse {})
        })
        .await
    }

    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        RpcNote::of(&request).about(&request.get_ref().volume_id);
        let request = Publish::parse(request.into_inner()).map_err(refused)?;
        let locks = &self.0.locks;
        let held = match request.alone {
            // Two pods at once would each find the volume free.
            true => locks.volume(&request.volume),
            false => locks.target(&request.volume, &request.target),
        };
        self.own(held.map_err(refused)?, move |node| async move {
            publish::publish(&node, &request).await?;
            Ok(NodePublishVolumeResponse {})
        })
        .await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        RpcNote::of(&request).about(&request.get_ref().volume_id);
        let NodeUnpublishVolumeRequest { volume_id, target_path } = request.into_inner();
        let volume = required("volume_id", volume_id).map_err(refused)?;
        let target = absolute("target_path", target_path).map_err(refused)?;
        let held = self.0.locks.target(&volume, &target).map_err(refused)?;
        self.own(held, move |node| async move {
            publish::unpublish(&node, &target).await?;
            Ok(NodeUnpublishVolumeResponse {})
        })
        .await
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<NodeGetVolumeStatsRequest>,
    ) -> Result<Response<NodeGetVolumeStatsResponse>, Status> {
        RpcNote::of(&request).about(&request.get_ref().volume_id);
        let NodeGetVolumeStatsRequest { volume_id, volume_path, .. } = request.into_inner();
        let volume = required("volume_id", volume_id).map_err(refused)?;
        let path = required("volume_path", volume_path).map_err(refused)?;
        let usage = measure::usage(&self.0, &volume, Path::new(&path)).await.map_err(refused)?;
        Ok(Response::new(NodeGetVolumeStatsResponse { usage }))
    }

    async fn node_expand_volume(
        &self,
        request: Request<NodeExpandVolumeRequest>,
    ) -> Result<Response<NodeExpandVolumeResponse>, Status> {
        RpcNote::of(&request).about(&request.get_ref().volume_id);
        let NodeExpandVolumeRequest { volume_id, volume_path, capacity_range, .. } = request.into_inner();
        let volume = required("volume_id", volume_id).map_err(refused)?;
        let path = PathBuf::from(required("volume_path", volume_path).map_err(refused)?);
        let range = measure::Range::parse(capacity_range).map_err(refused)?;
        let held = self.0.locks.volume(&volume).map_err(refused)?;
        self.own(held, move |node| async move {
            let bytes = measure::expand(&node, &volume, &path, range).await?;
            Ok(NodeExpandVolumeResponse { capacity_bytes: wire_bytes(bytes) })
        })
        .await
    }

    async fn node_get_capabilities(
        &self,
        _: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        let capabilities = [
            rpc::Type::StageUnstageVolume,
            rpc::Type::ExpandVolume,
            rpc::Type::GetVolumeStats,
            rpc::Type::SingleNodeMultiWriter,
        ];
        let capability =
            |r#type: rpc::Type| NodeServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: r#type.into() })) };
        let capabilities = capabilities.into_iter().map(capability).collect();
        Ok(Response::new(NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_get_info(&self, _: Request<NodeGetInfoRequest>) -> Result<Response<NodeGetInfoResponse>, Status> {
        info::info(&self.0).await.map(Response::new).map_err(refused)
    }

    async fn node_get_volume_health(
        &self,
        _: Request<NodeGetVolumeHealthRequest>,
    ) -> Result<Response<NodeGetVolumeHealthResponse>, Status> {
        Err(status(Code::Unimplemented, "volume health is not offered; events and metrics tell it"))
    }

    async fn node_get_storage_health(
        &self,
        _: Request<NodeGetStorageHealthRequest>,
    ) -> Result<Response<NodeGetStorageHealthResponse>, Status> {
        Err(status(Code::Unimplemented, "storage health is not offered; events and metrics tell it"))
    }
}

#[cfg(test)]
mod tests;
