//! What azuredisk-csi-driver does on a node, as far as it shows: a stand-in that registers as its registrar does, and
//! finds, formats and mounts a disk as its node plugin does (sources: azuredisk-csi-driver, pkg/azuredisk/nodeserver.go
//! and azure_common_linux.go; mount-utils, mount_linux.go). It keeps no records.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use csi_proto::{
    csi::{
        NodeExpandVolumeRequest, NodeExpandVolumeResponse, NodeGetCapabilitiesRequest, NodeGetCapabilitiesResponse,
        NodeGetInfoRequest, NodeGetInfoResponse, NodeGetStorageHealthRequest, NodeGetStorageHealthResponse,
        NodeGetVolumeHealthRequest, NodeGetVolumeHealthResponse, NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse,
        NodePublishVolumeRequest, NodePublishVolumeResponse, NodeServiceCapability, NodeStageVolumeRequest,
        NodeStageVolumeResponse, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse, NodeUnstageVolumeRequest,
        NodeUnstageVolumeResponse, Topology,
        node_server::{Node, NodeServer},
        node_service_capability::{Rpc, Type, rpc},
    },
    registration::{
        InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
        registration_server::{Registration, RegistrationServer},
    },
};
use lazuli_csi::server::{self, Endpoint, Listener};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, service::Routes};

use super::{
    super::process::{mounted_at, run},
    DRIVER,
    node::kubelet_folder,
};

/// The node plugin and its registrar on one node.
pub(super) struct GoNodePlugin {
    stop: CancellationToken,
    servers: [JoinHandle<()>; 2],
}

impl GoNodePlugin {
    pub(super) async fn start(folder: &Path, node: &str) -> Self {
        let kubelet = kubelet_folder(folder, node);
        let plugin = kubelet.join("plugins").join(DRIVER);
        fs::create_dir_all(&plugin).unwrap();
        let devices = folder.join(format!("azure/vms/{node}/sys/class/scsi_device"));
        let registry = kubelet.join(format!("plugins_registry/{DRIVER}-reg.sock"));
        let stop = CancellationToken::new();
        let service = NodeServer::new(OfNode { name: node.to_owned(), kubelet, devices });
        let servers = [
            serve(&plugin.join("csi.sock"), Routes::new(service), &stop).await,
            // Last: kubelet calls as soon as the socket is there.
            serve(&registry, Routes::new(RegistrationServer::new(Registrar)), &stop).await,
        ];
        Self { stop, servers }
    }

    /// Ends as its pod does: the sockets go.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        for server in self.servers {
            server.await.unwrap();
        }
    }
}

/// By the program's own server, which understands what kubelet's gRPC sends to a path.
async fn serve(socket: &Path, routes: Routes, stop: &CancellationToken) -> JoinHandle<()> {
    let endpoint: Endpoint = format!("unix://{}", socket.display()).parse().unwrap();
    let listener = Listener::bind(&endpoint).await.unwrap();
    let stop = stop.clone();
    tokio::spawn(async {
        let ended = server::serve(routes, listener, stop, Duration::from_secs(1)).await;
        ended.unwrap();
    })
}

/// The side of node-driver-registrar.
struct Registrar;

#[tonic::async_trait]
impl Registration for Registrar {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "CSIPlugin".into(),
            name: DRIVER.into(),
            endpoint: format!("/var/lib/kubelet/plugins/{DRIVER}/csi.sock"),
            supported_versions: vec!["1.0.0".into()],
        }))
    }

    async fn notify_registration_status(
        &self,
        _: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

struct OfNode {
    name: String,
    kubelet: PathBuf,
    devices: PathBuf,
}

impl OfNode {
    /// Where the test sees a path that kubelet names.
    fn seen(&self, path: &str) -> PathBuf {
        self.kubelet.join(path.strip_prefix("/var/lib/kubelet/").unwrap())
    }

    /// The device at a LUN, as `findDiskByLun` looks for it.
    fn device(&self, lun: &str) -> Option<String> {
        let block = self.devices.join(format!("1:0:0:{lun}/device/block"));
        let name = fs::read_dir(block).ok()?.next()?.ok()?.file_name();
        Some(format!("/dev/{}", name.to_string_lossy()))
    }
}

#[tonic::async_trait]
impl Node for OfNode {
    async fn node_stage_volume(
        &self,
        request: Request<NodeStageVolumeRequest>,
    ) -> Result<Response<NodeStageVolumeResponse>, Status> {
        let request = request.into_inner();
        let staging = self.seen(&request.staging_target_path);
        if mounted_at(&staging).is_none() {
            let lun = &request.publish_context["LUN"];
            let device = self.device(lun).ok_or_else(|| Status::internal("failed to find disk on lun"))?;
            fs::create_dir_all(&staging)?;
            let blank = Command::new("blkid").args(["-p", &device]).output()?.stdout.is_empty();
            if blank {
                run("mkfs.ext4", &["-F", "-m0", &device]);
            }
            run("mount", &["-t", "ext4", "-o", "defaults", &device, &staging.to_string_lossy()]);
        }
        Ok(Response::new(NodeStageVolumeResponse {}))
    }

    async fn node_unstage_volume(
        &self,
        request: Request<NodeUnstageVolumeRequest>,
    ) -> Result<Response<NodeUnstageVolumeResponse>, Status> {
        clean_up(&self.seen(&request.into_inner().staging_target_path))?;
        Ok(Response::new(NodeUnstageVolumeResponse {}))
    }

    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let (staging, target) = (self.seen(&request.staging_target_path), self.seen(&request.target_path));
        if mounted_at(&target).is_none() {
            fs::create_dir_all(&target)?;
            run("mount", &["--bind", &staging.to_string_lossy(), &target.to_string_lossy()]);
        }
        Ok(Response::new(NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        clean_up(&self.seen(&request.into_inner().target_path))?;
        Ok(Response::new(NodeUnpublishVolumeResponse {}))
    }

    async fn node_get_volume_stats(
        &self,
        _: Request<NodeGetVolumeStatsRequest>,
    ) -> Result<Response<NodeGetVolumeStatsResponse>, Status> {
        Err(Status::unimplemented("the stand-in has no statistics"))
    }

    async fn node_expand_volume(
        &self,
        _: Request<NodeExpandVolumeRequest>,
    ) -> Result<Response<NodeExpandVolumeResponse>, Status> {
        Err(Status::unimplemented("the stand-in does not expand"))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        let capability = Rpc { r#type: rpc::Type::StageUnstageVolume.into() };
        let capabilities = vec![NodeServiceCapability { r#type: Some(Type::Rpc(capability)) }];
        Ok(Response::new(NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_get_volume_health(
        &self,
        _: Request<NodeGetVolumeHealthRequest>,
    ) -> Result<Response<NodeGetVolumeHealthResponse>, Status> {
        Err(Status::unimplemented("the Go driver does not know it"))
    }

    async fn node_get_storage_health(
        &self,
        _: Request<NodeGetStorageHealthRequest>,
    ) -> Result<Response<NodeGetStorageHealthResponse>, Status> {
        Err(Status::unimplemented("the Go driver does not know it"))
    }

    /// A machine without zones: the driver's own key with an empty value.
    async fn node_get_info(&self, _: Request<NodeGetInfoRequest>) -> Result<Response<NodeGetInfoResponse>, Status> {
        let segments = [(format!("topology.{DRIVER}/zone"), String::new())];
        Ok(Response::new(NodeGetInfoResponse {
            node_id: self.name.clone(),
            max_volumes_per_node: 16,
            accessible_topology: Some(Topology { segments: segments.into() }),
        }))
    }
}

/// `CleanupMountPoint` of mount-utils.
fn clean_up(path: &Path) -> Result<(), Status> {
    if mounted_at(path).is_some() {
        run("umount", &[&path.to_string_lossy()]);
    }
    match fs::remove_dir(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}
