//! A whole provider as it is in a cluster: an emulator with real block devices, a controller and two nodes, each a
//! process of its own, driven over its socket as the CSI sidecars and kubelet do.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    future::Future,
    path::{Path, PathBuf},
    time::Instant,
};

use csi_proto::csi::{
    CapacityRange, ControllerExpandVolumeRequest, ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest,
    CreateVolumeRequest, DeleteVolumeRequest, NodeExpandVolumeRequest, NodePublishVolumeRequest,
    NodeStageVolumeRequest, NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest, VolumeCapability,
    controller_client::ControllerClient,
    node_client::NodeClient,
    volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode},
};
use lazuli_rig as lab;
use lazuli_test_cluster::emulator;
pub(super) use lazuli_test_cluster::emulator::{NODES, text, words};
use tokio::{
    net::UnixStream,
    sync::{RwLock, RwLockReadGuard, RwLockWriteGuard},
};
use tonic::{Code, Status, transport::Channel};

use super::{
    azure::Azure,
    process::{self, Folder, PATIENCE, Process},
};

pub(super) const GIB: i64 = 1 << 30;

/// The processes; whatever of them is left is ended when this goes out of scope, and the machine is swept.
pub(super) struct Cloud {
    pub(super) nodes: BTreeMap<&'static str, Process>,
    pub(super) controller: Process,
    pub(super) emulator: Process,
    pub(super) azure: Azure,
    emulator_options: Vec<String>,
    // After the processes: swept when they are no more.
    pub(super) folder: Folder,
    _turn: Turn,
}

/// A new mount namespace has copies of everybody's mounts, and keeps their disks from being released: who makes one
/// runs alone.
static TURNS: RwLock<()> = RwLock::const_new(());

enum Turn {
    WithOthers { _guard: RwLockReadGuard<'static, ()> },
    Alone { _guard: RwLockWriteGuard<'static, ()> },
}

/// A volume, with what its PersistentVolume and its VolumeAttachment remember of it.
#[derive(Debug, Clone)]
pub(super) struct Volume {
    pub(super) id: String,
    /// The name of its disk.
    pub(super) disk: String,
    pub(super) capability: VolumeCapability,
    context: HashMap<String, String>,
    pub(super) publish_context: HashMap<String, String>,
    pub(super) read_only: bool,
    pub(super) staging: PathBuf,
    pub(super) target: PathBuf,
}

impl Volume {
    pub(super) fn lun(&self) -> u8 {
        self.publish_context["LUN"].parse().unwrap()
    }

    pub(super) fn is_block(&self) -> bool {
        matches!(self.capability.access_type, Some(AccessType::Block(_)))
    }

    /// The same volume, wanted otherwise.
    pub(super) fn wanted_as(&self, capability: VolumeCapability) -> Self {
        Self { capability, ..self.clone() }
    }
}

/// A file system of this type, with these mount flags.
pub(super) fn filesystem(fs_type: &str, flags: &[&str]) -> VolumeCapability {
    let mount_flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
    capability(AccessType::Mount(MountVolume { fs_type: fs_type.into(), mount_flags, ..Default::default() }))
}

/// The device itself for `block`, else a file system of this type.
pub(super) fn kind(name: &str) -> VolumeCapability {
    if name == "block" { capability(AccessType::Block(BlockVolume {})) } else { filesystem(name, &[]) }
}

fn capability(access_type: AccessType) -> VolumeCapability {
    let mode = AccessMode { mode: Mode::SingleNodeWriter.into() };
    VolumeCapability { access_mode: Some(mode), access_type: Some(access_type) }
}

/// The calls of a node that change something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Stage,
    Publish,
    Unpublish,
    Unstage,
}

/// Makes one of these calls.
pub(super) fn node_call(
    mut client: NodeClient<Channel>,
    step: Step,
    volume: &Volume,
) -> impl Future<Output = Result<(), Status>> + Send + 'static {
    let volume = volume.clone();
    let (volume_id, capability) = (volume.id, Some(volume.capability));
    let (staging_target_path, target_path) = (text(&volume.staging), text(&volume.target));
    let (volume_context, publish_context) = (volume.context, volume.publish_context);
    async move {
        match step {
            Step::Stage => {
                let request = NodeStageVolumeRequest {
                    volume_id,
                    publish_context,
                    staging_target_path,
                    volume_capability: capability,
                    volume_context,
                    ..Default::default()
                };
                client.node_stage_volume(request).await.map(drop)
            }
            Step::Publish => {
                let request = NodePublishVolumeRequest {
                    volume_id,
                    publish_context,
                    staging_target_path,
                    target_path,
                    volume_capability: capability,
                    readonly: volume.read_only,
                    volume_context,
                    ..Default::default()
                };
                client.node_publish_volume(request).await.map(drop)
            }
            Step::Unpublish => {
                let request = NodeUnpublishVolumeRequest { volume_id, target_path };
                client.node_unpublish_volume(request).await.map(drop)
            }
            Step::Unstage => {
                let request = NodeUnstageVolumeRequest { volume_id, staging_target_path };
                client.node_unstage_volume(request).await.map(drop)
            }
        }
    }
}

/// Connects to a process's socket as soon as it is this very process that serves there: a program that was just being
/// started by a killed predecessor has a copy of its socket, and takes calls that it never answers.
pub(super) async fn connect(process: &mut Process, socket: &Path) -> Channel {
    let began = Instant::now();
    loop {
        let peer = UnixStream::connect(socket).await.and_then(|stream| stream.peer_cred());
        if peer.is_ok_and(|peer| peer.pid() == i32::try_from(process.id()).ok())
            && let Ok(channel) = lab::connect(socket).await
        {
            return channel;
        }
        process.must_run();
        assert!(began.elapsed() < PATIENCE, "{} does not serve {}", process.name, socket.display());
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

impl Cloud {
    /// Two machines, a controller and operations that are over at once.
    pub(super) async fn start() -> Self {
        Self::with(&[]).await
    }

    /// The same, with no other test beside it.
    pub(super) async fn alone() -> Self {
        Self::make(Turn::Alone { _guard: TURNS.write().await }, &[]).await
    }

    /// The same with other options of the emulator.
    pub(super) async fn with(emulator_options: &[&str]) -> Self {
        Self::make(Turn::WithOthers { _guard: TURNS.read().await }, emulator_options).await
    }

    async fn make(turn: Turn, emulator_options: &[&str]) -> Self {
        let folder = Folder::make();
        let emulator_options = words(emulator_options);
        let (emulator, azure) = start_emulator(&folder, "127.0.0.1:0", &emulator_options).await;
        let controller = start_controller(&folder);
        let nodes = NODES.map(|node| (node, start_node(&folder, &azure, node, &[])));
        let nodes = BTreeMap::from(nodes);
        Self { nodes, controller, emulator, azure, emulator_options, folder, _turn: turn }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn socket(&self, node: &str) -> PathBuf {
        self.path(&format!("{node}.sock"))
    }

    pub(super) async fn node(&mut self, node: &str) -> NodeClient<Channel> {
        let socket = self.socket(node);
        NodeClient::new(connect(self.nodes.get_mut(node).unwrap(), &socket).await)
    }

    pub(super) async fn controller(&mut self) -> ControllerClient<Channel> {
        let socket = self.path("controller.sock");
        ControllerClient::new(connect(&mut self.controller, &socket).await)
    }

    /// Another process for a node whose process has ended.
    pub(super) fn start_node(&mut self, node: &'static str) {
        let process = start_node(&self.folder, &self.azure, node, &[]);
        self.nodes.insert(node, process);
    }

    pub(super) fn restart_node_killed(&mut self, node: &'static str) {
        self.nodes.get_mut(node).unwrap().kill();
        self.start_node(node);
    }

    /// One more process for a node, with these options after the usual ones.
    pub(super) fn another_node(&self, node: &str, options: &[&str]) -> Process {
        start_node(&self.folder, &self.azure, node, &words(options))
    }

    pub(super) fn restart_controller_killed(&mut self) {
        self.controller.kill();
        self.controller = start_controller(&self.folder);
    }

    /// Starts the emulator again, where it was, after it was killed.
    pub(super) async fn restart_emulator_killed(&mut self) {
        self.emulator.kill();
        let address = self.azure.address().to_owned();
        (self.emulator, self.azure) = start_emulator(&self.folder, &address, &self.emulator_options).await;
    }

    pub(super) fn create_request(name: &str, capability: &VolumeCapability, gib: i64) -> CreateVolumeRequest {
        CreateVolumeRequest {
            name: name.into(),
            capacity_range: Some(CapacityRange { required_bytes: gib * GIB, limit_bytes: 0 }),
            volume_capabilities: vec![capability.clone()],
            ..Default::default()
        }
    }

    /// A new volume of one gibibyte.
    pub(super) async fn create(&mut self, name: &str, capability: VolumeCapability) -> Volume {
        self.create_sized(name, capability, 1).await
    }

    pub(super) async fn create_sized(&mut self, name: &str, capability: VolumeCapability, gib: i64) -> Volume {
        let request = Self::create_request(name, &capability, gib);
        let answer = self.controller().await.create_volume(request).await.unwrap().into_inner();
        self.volume(answer.volume.unwrap(), capability)
    }

    /// What Kubernetes makes of an answer to CreateVolume.
    pub(super) fn volume(&self, made: csi_proto::csi::Volume, capability: VolumeCapability) -> Volume {
        let disk = made.volume_id.rsplit('/').next().unwrap().to_lowercase();
        let kubelet = self.path("kubelet").join(&disk);
        fs::create_dir_all(kubelet.join("pod")).unwrap();
        Volume {
            id: made.volume_id,
            disk,
            capability,
            context: made.volume_context,
            publish_context: HashMap::new(),
            read_only: false,
            staging: kubelet.join("globalmount"),
            target: kubelet.join("pod/mount"),
        }
    }

    pub(super) fn attach_request(volume: &Volume, node: &str) -> ControllerPublishVolumeRequest {
        ControllerPublishVolumeRequest {
            volume_id: volume.id.clone(),
            node_id: node.into(),
            volume_capability: Some(volume.capability.clone()),
            volume_context: volume.context.clone(),
            ..Default::default()
        }
    }

    pub(super) fn detach_request(volume: &Volume, node: &str) -> ControllerUnpublishVolumeRequest {
        ControllerUnpublishVolumeRequest { volume_id: volume.id.clone(), node_id: node.into(), ..Default::default() }
    }

    pub(super) fn expand_request(volume: &Volume, gib: i64) -> ControllerExpandVolumeRequest {
        ControllerExpandVolumeRequest {
            volume_id: volume.id.clone(),
            capacity_range: Some(CapacityRange { required_bytes: gib * GIB, limit_bytes: 0 }),
            volume_capability: Some(volume.capability.clone()),
            ..Default::default()
        }
    }

    pub(super) fn delete_request(volume: &Volume) -> DeleteVolumeRequest {
        DeleteVolumeRequest { volume_id: volume.id.clone(), ..Default::default() }
    }

    pub(super) async fn attach(&mut self, volume: &mut Volume, node: &str) {
        let request = Self::attach_request(volume, node);
        let answer = self.controller().await.controller_publish_volume(request).await.unwrap();
        volume.publish_context = answer.into_inner().publish_context;
    }

    pub(super) async fn detach(&mut self, volume: &Volume, node: &str) {
        let request = Self::detach_request(volume, node);
        self.controller().await.controller_unpublish_volume(request).await.unwrap();
    }

    pub(super) async fn expand(&mut self, volume: &Volume, gib: i64) {
        let request = Self::expand_request(volume, gib);
        self.controller().await.controller_expand_volume(request).await.unwrap();
    }

    pub(super) async fn delete(&mut self, volume: &Volume) {
        self.controller().await.delete_volume(Self::delete_request(volume)).await.unwrap();
    }

    pub(super) async fn call(&mut self, step: Step, volume: &Volume, node: &str) -> Result<(), Status> {
        node_call(self.node(node).await, step, volume).await
    }

    pub(super) async fn stage(&mut self, volume: &Volume, node: &str) {
        self.call(Step::Stage, volume, node).await.unwrap();
    }

    pub(super) async fn publish(&mut self, volume: &Volume, node: &str) {
        self.call(Step::Publish, volume, node).await.unwrap();
    }

    pub(super) async fn unpublish(&mut self, volume: &Volume, node: &str) {
        self.call(Step::Unpublish, volume, node).await.unwrap();
    }

    pub(super) async fn unstage(&mut self, volume: &Volume, node: &str) {
        self.call(Step::Unstage, volume, node).await.unwrap();
    }

    /// A new volume, shown to a pod on the first node.
    pub(super) async fn published(&mut self, name: &str, capability: VolumeCapability) -> Volume {
        let mut volume = self.create(name, capability).await;
        self.attach(&mut volume, NODES[0]).await;
        self.stage(&volume, NODES[0]).await;
        self.publish(&volume, NODES[0]).await;
        volume
    }

    /// From the pod to nothing.
    pub(super) async fn tear_down(&mut self, volume: &Volume, node: &str) {
        self.unpublish(volume, node).await;
        self.unstage(volume, node).await;
        self.detach(volume, node).await;
        self.delete(volume).await;
    }

    pub(super) async fn expand_on_node(&mut self, volume: &Volume, node: &str, gib: i64) -> Result<i64, Status> {
        let request = NodeExpandVolumeRequest {
            volume_id: volume.id.clone(),
            volume_path: text(&volume.target),
            capacity_range: Some(CapacityRange { required_bytes: gib * GIB, limit_bytes: 0 }),
            staging_target_path: text(&volume.staging),
            volume_capability: Some(volume.capability.clone()),
            ..Default::default()
        };
        Ok(self.node(node).await.node_expand_volume(request).await?.into_inner().capacity_bytes)
    }

    /// The device that a machine has at a LUN, as the emulator shows it.
    pub(super) fn device(&self, node: &str, lun: u8) -> Option<PathBuf> {
        let block = format!("azure/vms/{node}/sys/class/scsi_device/1:0:0:{lun}/device/block");
        let entry = fs::read_dir(self.path(&block)).ok()?.next()?.ok()?;
        Some(Path::new("/dev").join(entry.file_name()))
    }

    /// The file that holds a disk's bytes.
    pub(super) fn disk_file(&self, disk: &str) -> PathBuf {
        let all = fs::read_dir(self.path("azure/disks")).unwrap().flatten().map(|entry| entry.path());
        let is_it = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(disk));
        let found: Vec<PathBuf> = all.filter(is_it).collect();
        assert_eq!(found.len(), 1, "{disk}: {found:?}");
        found[0].clone()
    }

    /// Fails unless nothing is left of any volume: no disk, no attachment, no mount, no device; then stops everything
    /// in order.
    pub(super) async fn finish(mut self) {
        // Only who serves can be asked to stop.
        self.controller().await;
        for node in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.node(node).await;
        }
        assert!(self.azure.disks().await.is_empty(), "disks are left: {:?}", self.azure.disks().await);
        assert!(self.azure.attached().await.is_empty(), "attachments are left: {:?}", self.azure.attached().await);
        assert_eq!(self.folder.mounts(), Vec::<PathBuf>::new(), "mounts are left");
        assert_eq!(self.folder.loops(), Vec::<String>::new(), "loop devices are left");
        for node in NODES {
            let records = self.path(&format!("state-{node}/volumes"));
            assert_eq!(fs::read_dir(records).unwrap().count(), 0, "records are left on {node}");
        }
        for (_, node) in self.nodes {
            node.stop().await;
        }
        self.controller.stop().await;
        self.emulator.stop().await;
    }
}

async fn start_emulator(folder: &Folder, listen: &str, options: &[String]) -> (Process, Azure) {
    emulator::start(Path::new(env!("CARGO_BIN_EXE_lazuli")), folder, listen, options).await
}

fn start_controller(folder: &Folder) -> Process {
    let path = |name: &str| text(&folder.path().join(name));
    let endpoint = format!("unix://{}", path("controller.sock"));
    let arguments = words(&["csi-controller", "--endpoint", &endpoint, "--cloud-config", &path("azure.json")]);
    process::start("the controller", &folder.path().join("controller.log"), &arguments)
}

fn start_node(folder: &Folder, azure: &Azure, node: &str, options: &[String]) -> Process {
    let path = |name: &str| text(&folder.path().join(name));
    let endpoint = format!("unix://{}", path(&format!("{node}.sock")));
    let mut arguments = words(&["csi-node", "--endpoint", &endpoint, "--node-id", node]);
    arguments.extend(words(&["--state-dir", &path(&format!("state-{node}"))]));
    arguments.extend(words(&["--host-root", &path(&format!("azure/vms/{node}"))]));
    arguments.extend(words(&["--imds-url", &format!("{}/_imds/{node}", azure.url)]));
    arguments.extend(options.iter().cloned());
    process::start(node, &folder.path().join(format!("{node}.log")), &arguments)
}

/// Fails unless the call was refused with this code; gives the message.
#[track_caller]
pub(super) fn refused<T: std::fmt::Debug>(outcome: Result<T, Status>, code: Code) -> String {
    let status = outcome.expect_err("it should have been refused");
    assert_eq!(status.code(), code, "{}", status.message());
    status.message().to_owned()
}
