//! `csi.v1.Node` of `file.csi.azure.com`: from a share to a folder in a pod.
//!
//! ```text
//!         NodeStageVolume            NodePublishVolume
//! share ------------------> staged --------------------> published
//!       one mount a volume         one bind mount a pod
//! ```
//!
//! The mount table is all the state: this service keeps no records, so it goes on with what the Go driver has mounted, and
//! the Go driver with what it has. A key is asked for when a share is mounted, and at no other time.
//!
//! # A server that does not answer
//!
//! Every call that may ask a server has a deadline and a thread of its own ([`lazuli_host::bounded`]). A mount that says
//! that it is dead is replaced when the new one is connected: by staging, and by publishing for a new pod. A mount that
//! says nothing is left alone, because it may be alive: the call is `UNAVAILABLE`. A key that the server refuses is named
//! to the key source, which looks for another one.

mod error;
mod event;
mod keys;
mod metrics;
mod publish;
mod request;
mod stage;
#[cfg(test)]
mod tests;

use std::{
    future::Future,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use csi_proto::csi::{
    NodeExpandVolumeRequest, NodeExpandVolumeResponse, NodeGetCapabilitiesRequest, NodeGetCapabilitiesResponse,
    NodeGetInfoRequest, NodeGetInfoResponse, NodeGetStorageHealthRequest, NodeGetStorageHealthResponse,
    NodeGetVolumeHealthRequest, NodeGetVolumeHealthResponse, NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse,
    NodePublishVolumeRequest, NodePublishVolumeResponse, NodeServiceCapability, NodeStageVolumeRequest,
    NodeStageVolumeResponse, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse, NodeUnstageVolumeRequest,
    NodeUnstageVolumeResponse, VolumeUsage,
    node_server::Node as NodeRpcs,
    node_service_capability::{Rpc, Type, rpc},
};
use error::ShareError;
pub use keys::{KeyError, KeyReader, KeyRequest};
use lazuli_host::{
    Deadline, Host, mount, mountinfo,
    stats::{self, StatsError},
};
use lazuli_model::{by_key::ByKey, event::Event, fault::Code};
use lazuli_shares::mount::Defaults;
use lazuli_telemetry::lossy;
pub use metrics::{METRICS, ShareMetrics};
use request::{Publish, Stage};
use tokio::sync::Mutex;
use tonic::{Request, Response, Status};

use crate::{
    calls::{CallError as _, Calls},
    fields::{absolute, required},
    locks::{Held, Locks},
    server::{RpcNote, status},
    usage,
};

/// How long each kind of step may take. kubelet waits two minutes for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For the answer of the key source.
    pub key: Duration,
    /// For looking at what is mounted. The kernel takes 10 s to find that a server is down.
    pub look: Duration,
    /// For mounting, from the name of the server to the mount.
    pub mount: Duration,
    /// For a bind mount.
    pub bind: Duration,
    /// For unmounting.
    pub release: Duration,
    /// For measuring.
    pub stats: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            key: seconds(15),
            look: seconds(20),
            mount: seconds(60),
            bind: seconds(20),
            release: seconds(90),
            stats: seconds(15),
        }
    }
}

/// What an operator can set, and what the node is told.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// The node's id: the Kubernetes node name.
    pub node_id: String,
    /// The domain of Azure's storage services: `core.windows.net`.
    pub storage_endpoint_suffix: String,
    /// Where keys come from that the requests do not have.
    pub keys: Option<KeyReader>,
    /// Where events for people go.
    pub events: lossy::Sender<Event>,
    /// What is counted.
    pub metrics: ShareMetrics,
    /// How long each kind of step may take.
    pub timeouts: Timeouts,
}

impl NodeConfig {
    /// The defaults for a node of this name: Azure's public cloud, and no source of keys but the requests.
    pub fn new(node_id: impl Into<String>) -> Self {
        Self {
            node_id: node_id.into(),
            storage_endpoint_suffix: "core.windows.net".to_owned(),
            keys: None,
            events: lossy::Sender::nowhere(),
            metrics: ShareMetrics::default(),
            timeouts: Timeouts::default(),
        }
    }

    fn defaults(&self) -> Defaults<'_> {
        // The Go driver's own defaults.
        Defaults {
            storage_endpoint_suffix: &self.storage_endpoint_suffix,
            own_connections: true,
            closes_at_once: false,
        }
    }
}

/// The node service; clones share everything.
#[derive(Debug, Clone)]
pub struct NodeService(Arc<Node>);

#[derive(Debug)]
struct Node {
    host: Host,
    config: NodeConfig,
    locks: Locks,
    /// A dead mount is replaced by one call at a time: whose turn it is at each path.
    restaging: ByKey<PathBuf, Mutex<()>>,
    calls: Calls,
}

impl NodeService {
    /// A service on this machine. `host` is not shared with the node service of disks: what hangs on a server is counted
    /// there, and disks are none of its business.
    pub fn new(host: Host, config: NodeConfig) -> Self {
        let (locks, restaging, calls) = (Locks::default(), ByKey::default(), Calls::default());
        Self(Arc::new(Node { host, config, locks, restaging, calls }))
    }

    /// Waits until every call has ended, also those whose callers have left.
    pub async fn finish(&self) {
        self.0.calls.finish().await;
    }

    async fn own<T, F>(&self, held: Held, work: impl FnOnce(Arc<Node>) -> F) -> Result<Response<T>, Status>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ShareError>> + Send + 'static,
    {
        self.0.calls.run(&self.0.config.node_id, held, work(self.0.clone())).await
    }
}

fn refused(error: impl Into<ShareError>) -> Status {
    error.into().status()
}

/// How full the share at the path is. The mount table says whether one is there.
async fn measure(node: &Node, path: PathBuf) -> Result<Vec<VolumeUsage>, ShareError> {
    let table = mount::table(&node.host).await.map_err(ShareError::Mount)?;
    if !path.is_absolute() || mountinfo::at(&table, &mount::as_mounted(&path)).is_empty() {
        return Err(ShareError::NoVolume(path));
    }
    let deadline = Deadline::after(node.config.timeouts.stats);
    let measured = stats::filesystem(&node.host, Path::new(&path), deadline).await.inspect_err(|error| {
        if matches!(error, StatsError::Call(_)) {
            node.config.metrics.note_hung();
        }
    });
    let figures = measured.map_err(ShareError::Stats)?;
    Ok(usage::of_filesystem(&figures))
}

#[tonic::async_trait]
impl NodeRpcs for NodeService {
    async fn node_stage_volume(
        &self,
        request: Request<NodeStageVolumeRequest>,
    ) -> Result<Response<NodeStageVolumeResponse>, Status> {
        RpcNote::of(&request).about(&request.get_ref().volume_id);
        let request = Stage::parse(request.into_inner()).map_err(refused)?;
        let held = self.0.locks.volume(&request.desired.request.volume_id).map_err(refused)?;
        self.own(held, move |node| async move {
            let staged = stage::stage(&node, &request).await;
            staged.inspect_err(|error| node.report(&request.desired, error))?;
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
            stage::unstage(&node, &staging).await?;
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
        let (locks, volume) = (&self.0.locks, &request.desired.request.volume_id);
        let held = match request.is_alone {
            // Two pods at once would each find the volume free.
            true => locks.volume(volume),
            false => locks.target(volume, &request.target),
        };
        self.own(held.map_err(refused)?, move |node| async move {
            let published = publish::publish(&node, &request).await;
            published.inspect_err(|error| node.report(&request.desired, error))?;
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
        required("volume_id", volume_id).map_err(refused)?;
        let path = required("volume_path", volume_path).map_err(refused)?;
        let usage = measure(&self.0, path.into()).await.map_err(refused)?;
        Ok(Response::new(NodeGetVolumeStatsResponse { usage }))
    }

    async fn node_expand_volume(
        &self,
        request: Request<NodeExpandVolumeRequest>,
    ) -> Result<Response<NodeExpandVolumeResponse>, Status> {
        RpcNote::of(&request).about(&request.get_ref().volume_id);
        Err(status(Code::Unimplemented, "a share grows at its server, and nodes have nothing to do for it"))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        let capabilities = [
            rpc::Type::StageUnstageVolume,
            rpc::Type::GetVolumeStats,
            rpc::Type::SingleNodeMultiWriter,
            rpc::Type::VolumeMountGroup,
        ];
        let capability =
            |r#type: rpc::Type| NodeServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: r#type.into() })) };
        let capabilities = capabilities.into_iter().map(capability).collect();
        Ok(Response::new(NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_get_info(&self, _: Request<NodeGetInfoRequest>) -> Result<Response<NodeGetInfoResponse>, Status> {
        // Every node reaches every share: no topology, and no limit.
        Ok(Response::new(NodeGetInfoResponse { node_id: self.0.config.node_id.clone(), ..Default::default() }))
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
