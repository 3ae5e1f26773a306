//! The disk driver on a real kernel: Azure in this process, with a guest as one of its machines, the controller beside it,
//! and the node plugin in the guest, each called as the CSI sidecars and kubelet call it.
//!
//! | | Azure | the guest |
//! |---|---|---|
//! | driver of the SCSI controller | `hv_storvsc` | `virtio_scsi` |
//! | how a controller of data disks is told from others | `device_id` on the VMBus, links of udev rules | by maker and model alone: no VMBus, no rules |
//! | who announces a disk, its end and its growth | Hyper-V | QEMU |
//! | NVMe controller | on PCI, model `MSFT NVMe Accelerator v1.0` | of the guest itself, over TCP on its loopback interface, with the same model |
//! | namespaces of its disks | come and go with the attachment | made and removed by the test |
//! | instance metadata | 169.254.169.254 | the emulator's, by its URL |
//! | processor and memory | as of the size | one, emulated, and 768 MiB: times say nothing of Azure |

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use csi_proto::csi::{
    CapacityRange, ControllerExpandVolumeRequest, ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest,
    CreateVolumeRequest, DeleteVolumeRequest, NodeExpandVolumeRequest, NodePublishVolumeRequest,
    NodeStageVolumeRequest, NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest, VolumeCapability,
    controller_client::ControllerClient,
    node_client::NodeClient,
    volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode},
};
use lazuli_emulator::{HypervisorChoice, hypervisor::QemuMachines, scenario::Scenario};
use lazuli_rig::{Lab, Options};
use lazuli_test_cluster::azure::{Azure, OtherTool};
use tokio::net::{TcpListener, UnixStream};
use tonic::{Code, Status, transport::Channel};

use super::{
    folder::Folder,
    machine::{DataDisks, Equipment, Guest, example},
};
use crate::reader::Found;

pub(super) const GIB: i64 = 1 << 30;
/// The machine that is the guest.
pub(super) const NODE: &str = "node-0";
/// A machine of which QEMU knows nothing, whose disks come by NVMe: a test makes its namespaces.
pub(super) const NVME_NODE: &str = "node-nvme";
/// A machine that is a second guest, where a test starts one.
pub(super) const SECOND_NODE: &str = "node-1";
pub(super) const SOCKET: &str = "/csi/disk.sock";
/// Where the node plugin keeps its records.
pub(super) const STATE: &str = "/mnt/state";

/// The disk driver, with a guest for its node.
pub(super) struct Disks {
    pub(super) lab: Lab,
    pub(super) controller: ControllerClient<Channel>,
    pub(super) tool: OtherTool,
    pub(super) guest: Guest,
    pub(super) node: NodeClient<Channel>,
    folder: Folder,
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
    pub(super) staging: String,
    pub(super) target: String,
}

impl Volume {
    pub(super) fn lun(&self) -> u8 {
        self.publish_context["LUN"].parse().unwrap()
    }

    pub(super) fn is_block(&self) -> bool {
        matches!(self.capability.access_type, Some(AccessType::Block(_)))
    }

    /// Where the Pod writes its name.
    fn place(&self) -> String {
        if self.is_block() { self.target.clone() } else { format!("{}/name", self.target) }
    }

    /// What the Pod of this volume writes, which no other volume has.
    pub(super) fn content(&self) -> String {
        format!("content of {}", self.disk)
    }

    pub(super) fn stage_request(&self) -> NodeStageVolumeRequest {
        NodeStageVolumeRequest {
            volume_id: self.id.clone(),
            publish_context: self.publish_context.clone(),
            staging_target_path: self.staging.clone(),
            volume_capability: Some(self.capability.clone()),
            volume_context: self.context.clone(),
            ..Default::default()
        }
    }
}

/// The device itself for `block`, else a file system of this type.
pub(super) fn kind(name: &str) -> VolumeCapability {
    let access_type = match name {
        "block" => AccessType::Block(BlockVolume {}),
        fs_type => AccessType::Mount(MountVolume { fs_type: fs_type.into(), ..Default::default() }),
    };
    let mode = AccessMode { mode: Mode::SingleNodeWriter.into() };
    VolumeCapability { access_mode: Some(mode), access_type: Some(access_type) }
}

impl Disks {
    pub(super) async fn start() -> Self {
        Self::start_with("", "").await
    }

    /// The same, with these properties of the controller for data disks, and these words for the kernel.
    pub(super) async fn start_with(controller: &str, kernel: &str) -> Self {
        Self::start_in(Equipment { kernel, ..Equipment::default() }, controller).await
    }

    /// The same, in a guest with more.
    pub(super) async fn start_in(equipment: Equipment<'_>, controller: &str) -> Self {
        let folder = Folder::make();
        let sockets = [NODE, SECOND_NODE].map(|node| (node.to_owned(), folder.path().join(format!("{node}.qmp"))));
        let machines = QemuMachines { sockets: sockets.into() };
        // The size with the most data disks that come by SCSI.
        let size = "Standard_M64s";
        let scenario = Scenario::parse(&format!(
            "virtualMachines:\n- {{name: {NODE}, size: {size}}}\n- {{name: {SECOND_NODE}, size: {size}}}\n\
             - {{name: {NVME_NODE}, size: Standard_D8ds_v6}}\n"
        ))
        .unwrap();
        let root = folder.path().join("azure");
        let azure = lazuli_emulator::Options {
            throttling: false,
            // Operations are over at once, and may be asked about at once.
            retry_after: Some(0),
            scenario,
            hypervisor: HypervisorChoice::Qemu { root, machines },
            ..lazuli_emulator::Options::default()
        };
        let mut lab = Lab::start(Options { azure, ..Options::new(folder.path()) }).await.unwrap();
        let guest = Self::boot(&folder, NODE, controller, equipment).await;
        let client = guest.meanwhile(lab.controller("controller")).await.unwrap();
        let tool = guest.meanwhile(Azure { url: lab.emulator.url() }.other_tool()).await;
        let node = start_plugin(&lab, &guest, NODE).await;
        Self { lab, controller: client, tool, guest, node, folder }
    }

    async fn boot(folder: &Folder, node: &str, controller: &str, equipment: Equipment<'_>) -> Guest {
        let socket = folder.path().join(format!("{node}.qmp"));
        let disks = Some(DataDisks { socket: &socket, properties: controller });
        let reader = example("guest-reader");
        let programs = [equipment.programs, &[("/bin/reader", &*reader)]].concat();
        Guest::boot_with(Equipment { disks, programs: &programs, ..equipment }).await
    }

    /// Boots another guest as the second machine.
    pub(super) async fn second(&self) -> (Guest, NodeClient<Channel>) {
        let guest = Self::boot(&self.folder, SECOND_NODE, "", Equipment::default()).await;
        let node = start_plugin(&self.lab, &guest, SECOND_NODE).await;
        (guest, node)
    }

    /// The file with the bytes of a disk.
    pub(super) fn file(&self, disk: &str) -> PathBuf {
        let all = std::fs::read_dir(self.folder.path().join("azure/disks")).unwrap();
        let is_it = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with(&format!("{disk}-"));
        let found: Vec<PathBuf> = all.map(|entry| entry.unwrap().path()).filter(is_it).collect();
        assert_eq!(found.len(), 1, "{disk}: {found:?}");
        found[0].clone()
    }

    /// A new volume of one GiB, without an attachment.
    pub(super) async fn create(&self, name: &str, capability: VolumeCapability) -> Volume {
        let request = CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(CapacityRange { required_bytes: GIB, limit_bytes: 0 }),
            volume_capabilities: vec![capability],
            ..Default::default()
        };
        self.create_as(request).await
    }

    /// The same as it is asked for.
    pub(super) async fn create_as(&self, request: CreateVolumeRequest) -> Volume {
        let capability = request.volume_capabilities[0].clone();
        let made = self.guest.meanwhile(self.controller.clone().create_volume(request)).await.unwrap();
        let made = made.into_inner().volume.unwrap();
        let disk = made.volume_id.rsplit('/').next().unwrap().to_lowercase();
        let kubelet = format!("/mnt/kubelet/{disk}");
        self.guest.sh(&format!("mkdir -p {kubelet}/pod")).await;
        Volume {
            id: made.volume_id,
            disk,
            capability,
            context: made.volume_context,
            publish_context: HashMap::new(),
            staging: format!("{kubelet}/globalmount"),
            target: format!("{kubelet}/pod/mount"),
        }
    }

    pub(super) async fn attach(&self, volume: &mut Volume, node: &str) {
        let request = ControllerPublishVolumeRequest {
            volume_id: volume.id.clone(),
            node_id: node.to_owned(),
            volume_capability: Some(volume.capability.clone()),
            volume_context: volume.context.clone(),
            ..Default::default()
        };
        let answer = self.guest.meanwhile(self.controller.clone().controller_publish_volume(request)).await;
        volume.publish_context = answer.unwrap().into_inner().publish_context;
    }

    pub(super) async fn detach(&self, volume: &Volume, node: &str) {
        let request = ControllerUnpublishVolumeRequest {
            volume_id: volume.id.clone(),
            node_id: node.to_owned(),
            ..Default::default()
        };
        self.guest.meanwhile(self.controller.clone().controller_unpublish_volume(request)).await.unwrap();
    }

    pub(super) async fn delete(&self, volume: &Volume) {
        let request = DeleteVolumeRequest { volume_id: volume.id.clone(), ..Default::default() };
        self.guest.meanwhile(self.controller.clone().delete_volume(request)).await.unwrap();
    }

    /// Grows a volume in Azure.
    pub(super) async fn expand(&self, volume: &Volume, gib: i64) {
        let request = ControllerExpandVolumeRequest {
            volume_id: volume.id.clone(),
            capacity_range: Some(CapacityRange { required_bytes: gib * GIB, limit_bytes: 0 }),
            volume_capability: Some(volume.capability.clone()),
            ..Default::default()
        };
        self.guest.meanwhile(self.controller.clone().controller_expand_volume(request)).await.unwrap();
    }

    /// Serves the controller on the loopback interface too, which the guest reaches; gives the port.
    pub(super) async fn serve_controller(&self) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let socket = self.folder.path().join("controller.sock");
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut server = UnixStream::connect(&socket).await.unwrap();
                tokio::spawn(async move { tokio::io::copy_bidirectional(&mut client, &mut server).await });
            }
        });
        port
    }

    pub(super) async fn stage(&self, volume: &Volume) -> Result<(), Status> {
        stage(&self.node, volume).await
    }

    /// Ends the node plugin in the guest, and starts it with this name and these arguments.
    pub(super) async fn restart_plugin(&mut self, node: &str, arguments: &str) {
        self.guest.stop_node().await;
        self.node = start_plugin_with(&self.lab, &self.guest, node, arguments).await;
    }

    /// The SCSI disks of the guest's controller for data disks: name by LUN.
    pub(super) async fn kernel_sees(&self) -> BTreeMap<u8, String> {
        kernel_sees(&self.guest).await
    }

    /// Ends everything; nothing may be left.
    pub(super) async fn finish(self) {
        assert_eq!(self.guest.sh("grep /mnt/kubelet /proc/mounts; true").await, "", "mounts are left");
        assert_eq!(self.kernel_sees().await, BTreeMap::new(), "disks are left");
        assert_eq!(self.guest.sh(&format!("ls {STATE}/volumes")).await, "", "records are left");
        self.guest.stop().await;
        self.lab.stop().await;
    }
}

/// The SCSI disks of a guest's controller for data disks: name by LUN.
pub(super) async fn kernel_sees(guest: &Guest) -> BTreeMap<u8, String> {
    let line = "for device in /sys/class/scsi_device/1:0:0:*; do [ -e $device ] || continue; \
                echo ${device##*:} $(ls $device/device/block); done";
    let printed = guest.sh(line).await;
    let disk = |line: &str| line.split_once(' ').map(|(lun, name)| (lun.parse().unwrap(), name.to_owned()));
    printed.lines().filter_map(disk).collect()
}

/// What the product's reader finds in a guest, whose kubelet has its folder on the disk of the operating system.
pub(super) async fn find(guest: &Guest, there: &[u32], not_there: &[u32]) -> BTreeMap<u32, Found> {
    let luns = |luns: &[u32]| luns.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let output = guest.exec(&["reader", "/mnt/system", &luns(there), &luns(not_there)]).await;
    assert!(output.code == 0, "{output:?}");
    let disk = |line: &str| {
        let mut words = line.splitn(4, ' ');
        let mut next = || words.next().unwrap();
        let lun = next().parse().unwrap();
        let (bytes, is_certain) = (next().parse().unwrap(), next() == "true");
        (lun, Found { name: next().to_owned(), bytes, is_certain })
    };
    output.stdout.lines().map(disk).collect()
}

async fn start_plugin(lab: &Lab, guest: &Guest, node: &str) -> NodeClient<Channel> {
    guest.sh(&format!("mkdir -p {STATE}")).await;
    start_plugin_with(lab, guest, node, &format!("--state-dir {STATE}")).await
}

async fn start_plugin_with(lab: &Lab, guest: &Guest, node: &str, arguments: &str) -> NodeClient<Channel> {
    let url = lab.emulator.url();
    let port = url.rsplit_once(':').unwrap().1;
    let arguments = format!(
        "--endpoint unix://{SOCKET} --node-id {node} --imds-url http://10.0.2.2:{port}/_imds/{node} {arguments}"
    );
    NodeClient::new(guest.start_node("lazuli", &arguments, SOCKET).await)
}

pub(super) async fn stage(node: &NodeClient<Channel>, volume: &Volume) -> Result<(), Status> {
    node.clone().node_stage_volume(volume.stage_request()).await.map(drop)
}

pub(super) async fn publish(node: &NodeClient<Channel>, volume: &Volume) {
    let stage = volume.stage_request();
    let request = NodePublishVolumeRequest {
        volume_id: stage.volume_id,
        publish_context: stage.publish_context,
        staging_target_path: stage.staging_target_path,
        target_path: volume.target.clone(),
        volume_capability: stage.volume_capability,
        volume_context: stage.volume_context,
        ..Default::default()
    };
    node.clone().node_publish_volume(request).await.unwrap();
}

pub(super) async fn unpublish(node: &NodeClient<Channel>, volume: &Volume) {
    let request = NodeUnpublishVolumeRequest { volume_id: volume.id.clone(), target_path: volume.target.clone() };
    node.clone().node_unpublish_volume(request).await.unwrap();
}

pub(super) async fn try_unstage(node: &NodeClient<Channel>, volume: &Volume) -> Result<(), Status> {
    let request =
        NodeUnstageVolumeRequest { volume_id: volume.id.clone(), staging_target_path: volume.staging.clone() };
    node.clone().node_unstage_volume(request).await.map(drop)
}

pub(super) async fn unstage(node: &NodeClient<Channel>, volume: &Volume) {
    try_unstage(node, volume).await.unwrap();
}

/// Grows what is on a disk, as far as the disk has grown.
pub(super) async fn grow(node: &NodeClient<Channel>, volume: &Volume, gib: i64) -> i64 {
    let request = NodeExpandVolumeRequest {
        volume_id: volume.id.clone(),
        volume_path: volume.target.clone(),
        capacity_range: Some(CapacityRange { required_bytes: gib * GIB, limit_bytes: 0 }),
        staging_target_path: volume.staging.clone(),
        volume_capability: Some(volume.capability.clone()),
        ..Default::default()
    };
    node.clone().node_expand_volume(request).await.unwrap().into_inner().capacity_bytes
}

/// Writes as the Pod does, with no flush: that the bytes reach the disk is the node's business.
pub(super) async fn write(guest: &Guest, volume: &Volume) {
    let (content, place) = (volume.content(), volume.place());
    // A device is written in whole sectors.
    guest.sh(&format!("printf '%-511s\\n' '{content}' | dd of={place} bs=512 conv=notrunc 2>/dev/null")).await;
}

/// Fails unless the Pod reads what it has written.
pub(super) async fn check(guest: &Guest, volume: &Volume) {
    let found = guest.sh(&format!("dd if={} bs=512 count=1 2>/dev/null", volume.place())).await;
    assert_eq!(found.trim_end(), volume.content(), "{}", volume.disk);
}

/// The bytes of a disk's file that are not in its holes.
pub(super) fn bytes(file: &Path) -> Vec<u8> {
    let mut file = File::open(file).unwrap();
    let (mut found, mut at) = (Vec::new(), 0);
    // Past the last byte of data the kernel answers ENXIO (source: lseek(2)).
    while let Ok(start) = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(at)) {
        let end = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(start)).unwrap();
        let mut part = vec![0; usize::try_from(end - start).unwrap()];
        file.seek(SeekFrom::Start(start)).unwrap();
        file.read_exact(&mut part).unwrap();
        found.append(&mut part);
        at = end;
    }
    found
}

/// Whether a disk's file holds nothing but zeros.
pub(super) fn is_blank(file: &Path) -> bool {
    bytes(file).iter().all(|byte| *byte == 0)
}

/// Whether a disk's file has this text in it.
pub(super) fn has(file: &Path, text: &str) -> bool {
    bytes(file).windows(text.len()).any(|window| window == text.as_bytes())
}

/// Fails unless it is refused with this code; gives the message.
#[track_caller]
pub(super) fn refused(answer: Result<(), Status>, code: Code) -> String {
    let status = answer.expect_err("it is refused");
    assert_eq!(status.code(), code, "{status}");
    status.message().to_owned()
}
