//! A machine for the tests: loop devices behind the folder contract of `host`, an instance metadata service in this
//! process, and a node service on a unix socket.

use std::{
    convert::Infallible,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex},
};

use csi_proto::csi::{
    NodeExpandVolumeRequest, NodeGetVolumeStatsRequest, NodePublishVolumeRequest, NodeStageVolumeRequest,
    NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest, VolumeCapability,
    node_client::NodeClient,
    node_server::NodeServer,
    volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode},
};
use lazuli_azure::transport::{Routes, Transport};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tonic::{service::Routes as Services, transport::Channel};

use super::*;
use crate::{
    scratch::{Scratch, channel_to},
    server::{Endpoint, Listener, serve},
};
use lazuli_host::mountinfo;

pub(super) const GIB: u64 = 1 << 30;

/// Whether loop devices can be made here; says so loudly when not. In CI nothing is skipped.
pub(super) fn able() -> bool {
    let root = nix::unistd::geteuid().is_root();
    let loops = Path::new("/dev/loop-control").exists();
    let tools = ["mkfs.ext4", "mkfs.ext3", "mkfs.xfs", "mkfs.btrfs", "losetup", "blkid", "fsck"];
    let folders = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
    let missing = tools.iter().find(|tool| !folders.iter().any(|folder| Path::new(folder).join(tool).exists()));
    if root && loops && missing.is_none() {
        return true;
    }
    eprintln!("SKIPPED: needs root ({root}), /dev/loop-control ({loops}) and {missing:?}");
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "nothing is skipped in CI");
    false
}

/// Whether a mounted ext4 can be grown here: the kernel wants CAP_SYS_RESOURCE for it, which a container may lack.
pub(super) fn may_grow_ext4() -> bool {
    const CAP_SYS_RESOURCE: u32 = 24;
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap().trim();
    let able = u64::from_str_radix(effective, 16).unwrap() >> CAP_SYS_RESOURCE & 1 == 1;
    if !able {
        eprintln!("SKIPPED for ext4: growing it while mounted needs CAP_SYS_RESOURCE");
    }
    able
}

pub(super) fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// The volume id of a disk of this name.
pub(super) fn volume(name: &str) -> String {
    format!("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/{name}")
}

/// A sparse file as a block device.
pub(super) struct Disk {
    pub(super) file: PathBuf,
    pub(super) node: PathBuf,
}

impl Disk {
    pub(super) fn of(file: PathBuf) -> Self {
        let _turn = Self::turn();
        let node = run("losetup", &["--find", "--show", file.to_str().unwrap()]);
        Self { file, node: node.into() }
    }

    /// The only search for a free device on this machine while it lives: two that meet would claim each other's.
    fn turn() -> fs::File {
        let turn = fs::File::open("/dev/loop-control").unwrap();
        turn.lock().unwrap();
        turn
    }

    /// Takes the disk away and gives its device number to another one, of this file: no other test may find the device
    /// free in between.
    pub(super) fn exchange(&self, file: &Path) {
        let number = device::node_number(&self.node);
        let node = self.node.to_str().unwrap();
        let turn = Self::turn();
        run("losetup", &["--detach", node]);
        run("losetup", &[node, file.to_str().unwrap()]);
        drop(turn);
        assert_eq!(device::node_number(&self.node), number);
    }

    /// Claims the device, as a mount does, until the file is dropped.
    pub(super) fn hold(&self) -> fs::File {
        use std::os::unix::fs::OpenOptionsExt;
        fs::OpenOptions::new().read(true).custom_flags(nix::libc::O_EXCL).open(&self.node).unwrap()
    }

    pub(super) fn name(&self) -> String {
        self.node.file_name().unwrap().to_string_lossy().into_owned()
    }

    pub(super) fn grow(&self, bytes: u64) {
        fs::OpenOptions::new().write(true).open(&self.file).unwrap().set_len(bytes).unwrap();
        run("losetup", &["--set-capacity", self.node.to_str().unwrap()]);
    }

    /// Whether nothing was ever written.
    pub(super) fn is_untouched(&self) -> bool {
        use std::os::unix::fs::MetadataExt;
        run("sync", &[self.node.to_str().unwrap()]);
        fs::metadata(&self.file).unwrap().blocks() == 0
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.node).output();
    }
}

/// What the metadata service says.
#[derive(Default)]
pub(super) struct Metadata {
    pub(super) down: bool,
    pub(super) hangs: bool,
    pub(super) zone: String,
    pub(super) disks: Vec<(u8, String)>,
    /// The size that it says of each disk, in GiB; none by default.
    pub(super) gib: Option<u32>,
}

/// No wait for anything that lags.
pub(super) fn impatient() -> Timeouts {
    let none = Duration::ZERO;
    Timeouts { identity: none, size: none, find: none, ..Timeouts::default() }
}

/// The machine.
pub(super) struct Machine {
    pub(super) metadata: Arc<Mutex<Metadata>>,
    pub(super) client: NodeClient<Channel>,
    pub(super) service: NodeService,
    stop: CancellationToken,
    // Fields go in this order: the mounts with the folder last, when no device is in use any more.
    disks: Vec<Disk>,
    pub(super) scratch: Scratch,
}

impl Machine {
    /// A machine without disks. It waits for nothing that lags, so that a test sees a refusal at once.
    pub(super) async fn new() -> Self {
        Self::with(impatient()).await
    }

    pub(super) async fn with(timeouts: Timeouts) -> Self {
        Self::configured(NodeConfig { timeouts, ..NodeConfig::new("node-1") }).await
    }

    pub(super) async fn configured(config: NodeConfig) -> Self {
        Self::of_host(config, |host| host).await
    }

    /// The same with another view of the machine.
    pub(super) async fn of_host(config: NodeConfig, seen: impl FnOnce(Host) -> Host) -> Self {
        let scratch = Scratch::new();
        for folder in ["root/sys/class/scsi_device", "root/sys/class/block", "root/dev/disk/azure/scsi1"] {
            fs::create_dir_all(scratch.join(folder)).unwrap();
        }
        let metadata = Arc::new(Mutex::new(Metadata { zone: "2".into(), ..Metadata::default() }));
        let served = metadata.clone();
        let answer = move |_: http::Request<_>| {
            let (hangs, answer) = {
                let metadata = served.lock().unwrap();
                (metadata.hangs, document(&metadata))
            };
            async move {
                if hangs {
                    std::future::pending::<()>().await;
                }
                Ok::<_, Infallible>(answer)
            }
        };
        let imds = Imds::new(Transport::in_process(Routes::none(), tower::service_fn(answer)));
        let host = seen(Host::new().with_root(scratch.join("root")));
        let service = NodeService::open(host, Some(imds), scratch.join("state"), config).unwrap();

        let socket = scratch.join("csi.sock");
        let listener = Listener::bind(&Endpoint::Unix(socket.clone())).await.unwrap();
        let stop = CancellationToken::new();
        let routes = Services::new(NodeServer::new(service.clone()));
        tokio::spawn(serve(routes, listener, stop.clone(), Duration::ZERO));
        let client = NodeClient::new(channel_to(&socket).await);
        Self { metadata, client, service, stop, disks: Vec::new(), scratch }
    }

    /// Attaches a new, sparse disk at the LUN, known to the metadata by this name. Returns its place in the list.
    pub(super) fn attach(&mut self, lun: u8, name: &str) -> usize {
        let file = self.scratch.join(format!("{name}.img"));
        if !file.exists() {
            fs::File::create(&file).unwrap().set_len(GIB).unwrap();
        }
        let place = self.plug(lun, file);
        self.tell(lun, name);
        place
    }

    /// Makes the disk visible at the LUN.
    pub(super) fn plug(&mut self, lun: u8, file: PathBuf) -> usize {
        let root = self.scratch.join("root");
        let place = self.add_block(file, None);
        let name = self.disks[place].name();
        // The entry appears whole, as one rename.
        let building = root.join(format!("building-{lun}"));
        fs::create_dir_all(building.join("device/block").join(&name)).unwrap();
        fs::write(building.join("device/vendor"), "Msft    \n").unwrap();
        fs::write(building.join("device/model"), "Virtual Disk    \n").unwrap();
        fs::rename(building, root.join(format!("sys/class/scsi_device/1:0:0:{lun}"))).unwrap();
        let link = root.join(format!("dev/disk/azure/scsi1/lun{lun}"));
        symlink(format!("../../../{name}"), link).unwrap();
        place
    }

    /// A block device, by its own name or by this one, that nothing leads to.
    pub(super) fn add_block(&mut self, file: PathBuf, name: Option<&str>) -> usize {
        let disk = Disk::of(file);
        let (root, own) = (self.scratch.join("root"), disk.name());
        let real = fs::canonicalize(Path::new("/sys/class/block").join(&own)).unwrap();
        let name = name.unwrap_or(&own);
        symlink(real, root.join("sys/class/block").join(name)).unwrap();
        symlink(&disk.node, root.join("dev").join(name)).unwrap();
        self.disks.push(disk);
        self.disks.len() - 1
    }

    /// Takes what is at the LUN out of sight.
    pub(super) fn unplug(&self, lun: u8) {
        let root = self.scratch.join("root");
        let entry = root.join(format!("sys/class/scsi_device/1:0:0:{lun}"));
        for block in fs::read_dir(entry.join("device/block")).unwrap() {
            let name = block.unwrap().file_name();
            fs::remove_file(root.join("sys/class/block").join(&name)).unwrap();
            fs::remove_file(root.join("dev").join(&name)).unwrap();
        }
        fs::remove_file(root.join(format!("dev/disk/azure/scsi1/lun{lun}"))).unwrap();
        fs::remove_dir_all(entry).unwrap();
    }

    pub(super) fn tell(&self, lun: u8, name: &str) {
        let mut metadata = self.metadata.lock().unwrap();
        metadata.disks.retain(|(found, _)| *found != lun);
        metadata.disks.push((lun, volume(name)));
    }

    pub(super) fn disk(&self, place: usize) -> &Disk {
        &self.disks[place]
    }

    pub(super) fn staging(&self, name: &str) -> PathBuf {
        self.scratch.join(format!("kubelet/{name}/globalmount"))
    }

    pub(super) fn target(&self, name: &str) -> PathBuf {
        self.scratch.join(format!("kubelet/pods/{name}/mount"))
    }

    pub(super) async fn stage(&mut self, request: NodeStageVolumeRequest) -> Result<(), Status> {
        self.client.node_stage_volume(request).await.map(|_| ())
    }

    pub(super) fn stage_request(&self, lun: u8, name: &str, capability: VolumeCapability) -> NodeStageVolumeRequest {
        NodeStageVolumeRequest {
            volume_id: volume(name),
            staging_target_path: self.staging(name).display().to_string(),
            volume_capability: Some(capability),
            publish_context: [("LUN".to_owned(), lun.to_string())].into(),
            ..Default::default()
        }
    }

    pub(super) async fn stage_as(&mut self, lun: u8, name: &str, capability: VolumeCapability) -> Result<(), Status> {
        self.stage(self.stage_request(lun, name, capability)).await
    }

    pub(super) async fn unstage(&mut self, name: &str) -> Result<(), Status> {
        let staging_target_path = self.staging(name).display().to_string();
        let request = NodeUnstageVolumeRequest { volume_id: volume(name), staging_target_path };
        self.client.node_unstage_volume(request).await.map(|_| ())
    }

    pub(super) fn publish_request(
        &self,
        lun: u8,
        name: &str,
        pod: &str,
        capability: VolumeCapability,
    ) -> NodePublishVolumeRequest {
        NodePublishVolumeRequest {
            volume_id: volume(name),
            staging_target_path: self.staging(name).display().to_string(),
            target_path: self.target(pod).display().to_string(),
            volume_capability: Some(capability),
            publish_context: [("LUN".to_owned(), lun.to_string())].into(),
            ..Default::default()
        }
    }

    pub(super) async fn publish(
        &mut self,
        lun: u8,
        name: &str,
        pod: &str,
        capability: VolumeCapability,
    ) -> Result<(), Status> {
        let request = self.publish_request(lun, name, pod, capability);
        self.client.node_publish_volume(request).await.map(|_| ())
    }

    pub(super) async fn unpublish(&mut self, name: &str, pod: &str) -> Result<(), Status> {
        let target_path = self.target(pod).display().to_string();
        let request = NodeUnpublishVolumeRequest { volume_id: volume(name), target_path };
        self.client.node_unpublish_volume(request).await.map(|_| ())
    }

    pub(super) async fn totals(&mut self, name: &str, path: &Path) -> Result<Vec<i64>, Status> {
        let volume_path = path.display().to_string();
        let request = NodeGetVolumeStatsRequest { volume_id: volume(name), volume_path, ..Default::default() };
        let usage = self.client.node_get_volume_stats(request).await?.into_inner().usage;
        Ok(usage.into_iter().map(|usage| usage.total).collect())
    }

    pub(super) async fn expand(&mut self, name: &str, path: &Path, bytes: u64) -> Result<i64, Status> {
        let request = NodeExpandVolumeRequest {
            volume_id: volume(name),
            volume_path: path.display().to_string(),
            capacity_range: Some(csi_proto::csi::CapacityRange {
                required_bytes: bytes.try_into().unwrap(),
                limit_bytes: 0,
            }),
            ..Default::default()
        };
        Ok(self.client.node_expand_volume(request).await?.into_inner().capacity_bytes)
    }

    /// What is mounted at the path, topmost.
    pub(super) fn mounted(&self, path: &Path) -> Option<mountinfo::Mount> {
        let table = mountinfo::read(Path::new("/proc/self/mountinfo")).unwrap();
        mountinfo::at(&table, path).last().map(|mount| (*mount).clone())
    }

    /// A process that was killed and started again knows nothing but what is on disk.
    pub(super) async fn restart(&mut self) {
        self.restart_with(|_| {}).await;
    }

    pub(super) async fn restart_with(&mut self, change: impl FnOnce(&mut NodeConfig)) {
        let (imds, mut config) = (self.service.0.imds.clone(), self.service.0.config.clone());
        change(&mut config);
        self.restart_as(imds, config).await;
    }

    /// A process that was told to do without the metadata.
    pub(super) async fn restart_without_metadata(&mut self) {
        self.restart_as(None, self.service.0.config.clone()).await;
    }

    /// A process that sees the machine otherwise.
    pub(super) async fn restart_seeing(&mut self, seen: impl FnOnce(Host) -> Host) {
        let (imds, config) = (self.service.0.imds.clone(), self.service.0.config.clone());
        let host = seen(self.service.0.host.clone());
        self.restart_on(host, imds, config).await;
    }

    async fn restart_as(&mut self, imds: Option<Imds>, config: NodeConfig) {
        let host = self.service.0.host.clone();
        self.restart_on(host, imds, config).await;
    }

    async fn restart_on(&mut self, host: Host, imds: Option<Imds>, config: NodeConfig) {
        let socket = (0..).map(|n| self.scratch.join(format!("again-{n}.sock"))).find(|path| !path.exists()).unwrap();
        self.stop.cancel();
        self.stop = CancellationToken::new();
        self.service = NodeService::open(host, imds, self.scratch.join("state"), config).unwrap();
        let listener = Listener::bind(&Endpoint::Unix(socket.clone())).await.unwrap();
        let routes = Services::new(NodeServer::new(self.service.clone()));
        tokio::spawn(serve(routes, listener, self.stop.clone(), Duration::ZERO));
        self.client = NodeClient::new(channel_to(&socket).await);
    }

    pub(super) async fn record(&self, name: &str) -> Option<Record> {
        self.service.0.recall(&volume(name)).await
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.stop.cancel();
        let table = mountinfo::read(Path::new("/proc/self/mountinfo")).unwrap_or_default();
        for mount in table.iter().rev().filter(|mount| mount.target.starts_with(self.scratch.path())) {
            let _ = rustix::mount::unmount(&mount.target, rustix::mount::UnmountFlags::DETACH);
        }
    }
}

fn document(metadata: &Metadata) -> http::Response<axum::body::Body> {
    if metadata.down {
        return http::Response::builder().status(503).body(axum::body::Body::empty()).unwrap();
    }
    let disks: Vec<_> = metadata
        .disks
        .iter()
        .map(|(lun, id)| {
            let name = id.rsplit('/').next().unwrap();
            let size = metadata.gib.map(|gib| gib.to_string());
            json!({"lun": lun.to_string(), "name": name, "managedDisk": {"id": id}, "diskSizeGB": size})
        })
        .collect();
    let document = json!({"compute": {
        "name": "vm", "location": "WestEurope", "zone": metadata.zone, "vmSize": "Standard_D2s_v3",
        "resourceId": "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/vm",
        "subscriptionId": "s", "resourceGroupName": "g", "storageProfile": {"dataDisks": disks},
    }});
    http::Response::new(document.to_string().into())
}

/// A mounted file system, writable on one node.
pub(super) fn mounted_as(fs_type: &str) -> VolumeCapability {
    filesystem(fs_type, Mode::SingleNodeWriter)
}

pub(super) fn filesystem(fs_type: &str, mode: Mode) -> VolumeCapability {
    let mount = MountVolume { fs_type: fs_type.to_owned(), ..Default::default() };
    VolumeCapability {
        access_mode: Some(AccessMode { mode: mode.into() }),
        access_type: Some(AccessType::Mount(mount)),
    }
}

pub(super) fn block() -> VolumeCapability {
    VolumeCapability {
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
        access_type: Some(AccessType::Block(BlockVolume {})),
    }
}
