//! `lazuli demo`: a volume's whole life, a file share's and a Service's, step by step, with what Azure saw.

mod service;
mod share;
mod snapshot;
mod vhd;

use std::{
    collections::BTreeMap,
    io::Write as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use clap::Args;
use csi_proto::csi::{
    CapacityRange, ControllerExpandVolumeRequest, ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest,
    CreateVolumeRequest, DeleteVolumeRequest, NodeExpandVolumeRequest, NodeGetVolumeStatsRequest,
    NodePublishVolumeRequest, NodeStageVolumeRequest, NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest, Volume,
    VolumeCapability,
    controller_client::ControllerClient,
    node_client::NodeClient,
    volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode},
    volume_usage::Unit,
};
use lazuli_emulator::{Control, latency::Profile};
use lazuli_rig::{self as lab, Folder, Lab};
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

use super::{Outcome, progress::Progress, stop, terminal::Screen};

/// Why a demonstration has no end.
const STOPPED: &str = "stopped before its end";
const GIB: i64 = 1 << 30;
/// Parts of the ids of all that the demonstration has made of disks.
const OURS: [&str; 3] = ["/disks/pvc-", "microsoft.compute/snapshots/", "/storageaccounts/dd"];
/// What the pod writes, and must find again on the other node.
const CONTENT: &str = "written on the first node\n";

/// Options of the demonstration.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// How long Azure takes: typical (published medians), none, azure, bad-day, or a file.
    #[arg(long, default_value = "typical")]
    latency: Profile,
    /// Leave out the mounts, as without root.
    #[arg(long)]
    no_mounts: bool,
    /// The filesystem of the volume. Default: ext4, or xfs where this process may not grow a
    /// mounted ext4.
    #[arg(long, value_parser = ["ext4", "ext3", "ext2", "xfs", "btrfs"])]
    fs_type: Option<String>,
}

type AnyError = Box<dyn std::error::Error + Send + Sync>;

pub(super) async fn run(options: Options) -> Outcome {
    println!(
        "Lazuli demo: a managed disk and its snapshot, a file share and a Service from creation to deletion, on an Azure in this \
         process."
    );
    let missing = if options.no_mounts { Some("--no-mounts".to_owned()) } else { lab::missing_for_mounts() };
    match &missing {
        None => println!(
            "Disks are real block devices here, loop devices of {}: they are formatted, mounted and moved with their bytes.",
            kernel()
        ),
        Some(why) => println!("No block devices and no mounts this time ({why}); everything else is shown."),
    }
    let fs_type = options.fs_type.unwrap_or_else(|| {
        if missing.is_some() || lab::may_grow_mounted_ext4() {
            return "ext4".into();
        }
        println!("The volume is xfs: this process lacks CAP_SYS_RESOURCE, without which no mounted ext4 grows.");
        "xfs".into()
    });
    let folder = Folder::make("demo")?;
    let azure = azure(options.latency.clone(), missing.is_none(), folder.path());
    let mut lab = Lab::start(lab::Options { azure, ..lab::Options::new(folder.path()) }).await?;
    let (started, stop) = (Instant::now(), stop::on_signal()?);
    let shares = share::begin(options.latency.clone()).await?;
    let outcome = show(&mut lab, folder.path(), missing.is_none(), &fs_type, &stop).await;
    lab.stop().await;
    let number = outcome?;
    let number = vhd::show(options.latency.clone(), missing.is_none(), &fs_type, number, &stop).await?;
    let number = tokio::select! {
        told = shares.show(number) => told?,
        () = stop.cancelled() => return Err(STOPPED.into()),
    };
    tokio::select! {
        told = service::show(options.latency, number) => told?,
        () = stop.cancelled() => return Err(STOPPED.into()),
    }
    println!(
        "\nEverything is as it was: no disk, no snapshot of one, nothing attached, nothing mounted, no load balancer; the share with a snapshot \
         is kept. {:.1} s in all.",
        started.elapsed().as_secs_f64()
    );
    Ok(())
}

/// An Azure, with block devices where disks are mounted.
/// The kernel that this process runs on.
fn kernel() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
    release
        .map_or_else(|_| "a kernel that does not say its release".into(), |release| format!("Linux {}", release.trim()))
}

fn azure(latency: Profile, mounts: bool, folder: &Path) -> lazuli_emulator::Options {
    let mut azure = lazuli_emulator::Options { latency, start_time: jiff::Timestamp::now(), ..Default::default() };
    if mounts {
        azure.hypervisor = lab::loop_hypervisor(folder);
    }
    azure
}

/// Shows the volume. Gives the number of the last step.
async fn show(
    lab: &mut Lab,
    folder: &Path,
    mounts: bool,
    fs_type: &str,
    stop: &CancellationToken,
) -> Result<u32, AnyError> {
    println!(
        "Azure serves at {}; controller and nodes serve CSI on sockets in {}.\nUntil five operations of a kind have ended, \
         each is asked several times for its end (operations.get); later about once, when it is due.\n",
        lab.emulator.url(),
        folder.display()
    );
    let nodes = ["node-0", "node-1"];
    let disks = ["volume", "restored"];
    let mut story = Story::begin(lab, folder, nodes, disks, fs_type, 0).await?;
    tokio::select! {
        told = story.tell(mounts) => story.end(told, mounts).await,
        () = stop.cancelled() => story.end(Err(STOPPED.into()), mounts).await,
    }
}

/// The steps of the demonstration, and what Azure saw of each.
struct Steps {
    control: Control,
    /// The number of the last step.
    number: u32,
    /// The step that runs, as its line begins.
    said: String,
    progress: Option<Progress>,
}

impl Steps {
    /// The steps after this one.
    fn after(control: Control, number: u32) -> Self {
        Self { control, number, said: String::new(), progress: None }
    }

    fn begin(&mut self, what: &str) -> Watch {
        self.announce(what);
        self.control.reset_log();
        Watch(Instant::now())
    }

    fn announce(&mut self, what: &str) {
        self.number += 1;
        self.said = format!("{:>2}  {what}", self.number);
        print!("{} … ", self.said);
        // On a terminal the same line tells the seconds of a step that takes long.
        self.progress = Some(Progress::begin(self.said.clone()));
        // A pipe may be closed; the demonstration goes on.
        let _ = std::io::stdout().flush();
    }

    fn end(&mut self, watch: &Watch) {
        self.ended(watch.0.elapsed());
    }

    fn ended(&mut self, took: Duration) {
        self.progress = None;
        let again = if Screen::of_stdout().is_live { format!("\r{} … ", self.said) } else { String::new() };
        println!("{again}{:.2} s", took.as_secs_f64());
        let mut seen: BTreeMap<String, u32> = BTreeMap::new();
        let mut order = Vec::new();
        let calls = self.control.call_log().into_iter();
        for call in calls.filter(|call| ["arm", "blob"].contains(&call.plane.as_str())) {
            let name = format!("{} {}", call.method, call.operation);
            let count = seen.entry(name.clone()).or_default();
            if *count == 0 {
                order.push(name);
            }
            *count += 1;
        }
        let calls: Vec<String> = order
            .into_iter()
            .map(|name| match seen[&name] {
                1 => name,
                count => format!("{name} ×{count}"),
            })
            .collect();
        if !calls.is_empty() {
            println!("     Azure saw: {}", calls.join(", "));
        }
    }
}

/// One machine of the cluster.
struct Machine {
    name: &'static str,
    kubelet: PathBuf,
    client: NodeClient<Channel>,
}

impl Machine {
    fn at(folder: &Path, name: &'static str, client: NodeClient<Channel>) -> Self {
        Self { name, kubelet: folder.join("kubelet").join(name), client }
    }

    /// Where a volume is staged.
    fn staging(&self, disk: &Disk) -> PathBuf {
        self.kubelet.join(disk.name).join("globalmount")
    }

    /// Where a pod has it.
    fn target(&self, disk: &Disk) -> PathBuf {
        self.kubelet.join(disk.name).join("pod").join("mount")
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// A volume of the demonstration.
struct Disk {
    /// What it is called for people, and the name of its folders.
    name: &'static str,
    volume: Volume,
    /// The publish context of its last attach.
    attached: BTreeMap<String, String>,
}

impl Disk {
    fn named(name: &'static str) -> Self {
        Self { name, volume: Volume::default(), attached: BTreeMap::new() }
    }

    fn id(&self) -> String {
        self.volume.volume_id.clone()
    }
}

/// The places of the volumes in a story: the one of the whole demonstration, and what is restored from its snapshot.
const VOLUME: usize = 0;
const RESTORED: usize = 1;

struct Story {
    steps: Steps,
    controller: ControllerClient<Channel>,
    nodes: [Machine; 2],
    fs_type: String,
    disks: [Disk; 2],
    /// The id of the snapshot.
    snapshot: String,
}

impl Story {
    /// A story of these machines and disks, whose steps follow the one of this number.
    async fn begin(
        lab: &mut Lab,
        folder: &Path,
        nodes: [&'static str; 2],
        disks: [&'static str; 2],
        fs_type: &str,
        number: u32,
    ) -> Result<Self, AnyError> {
        Ok(Self {
            steps: Steps::after(lab.emulator.control(), number),
            controller: lab.controller("controller").await?,
            nodes: [
                Machine::at(folder, nodes[0], lab.node(nodes[0]).await?),
                Machine::at(folder, nodes[1], lab.node(nodes[1]).await?),
            ],
            fs_type: fs_type.to_owned(),
            disks: disks.map(Disk::named),
            snapshot: String::new(),
        })
    }

    /// Ends it, as it was told. Gives the number of the last step.
    async fn end(&mut self, told: Result<(), AnyError>, mounts: bool) -> Result<u32, AnyError> {
        if told.is_err() && mounts {
            // Nothing may stay mounted below a folder that is about to be removed.
            self.clean_up().await;
        }
        told.map(|()| self.steps.number)
    }

    async fn tell(&mut self, mounts: bool) -> Result<(), AnyError> {
        self.create().await?;
        self.attach(VOLUME, 0).await?;
        if mounts {
            self.stage_and_publish(VOLUME, 0, "find the device, format and mount it").await?;
            self.write(0, CONTENT)?;
        }
        self.take_snapshot().await?;
        if mounts {
            self.write(0, snapshot::LATER)?;
        }
        self.expand(mounts).await?;
        if mounts {
            self.unpublish_and_unstage(VOLUME, 0).await?;
        }
        self.detach(VOLUME, 0).await?;
        self.attach(VOLUME, 1).await?;
        if mounts {
            self.stage_and_publish(VOLUME, 1, "find the device, check and mount it").await?;
            self.read(VOLUME, snapshot::LATER)?;
        }
        self.restore(mounts).await?;
        if mounts {
            self.unpublish_and_unstage(VOLUME, 1).await?;
        }
        self.detach(VOLUME, 1).await?;
        self.change().await?;
        self.delete_snapshot().await?;
        self.delete(RESTORED).await?;
        self.delete(VOLUME).await?;
        self.nothing_is_left()
    }

    /// A pod writes its file, and the device has it.
    fn write(&self, node: usize, content: &str) -> Result<(), AnyError> {
        let mut file = std::fs::File::create(self.nodes[node].target(&self.disks[VOLUME]).join("hello.txt"))?;
        file.write_all(content.as_bytes())?;
        file.sync_all()?;
        println!("     a pod writes hello.txt: {content:?}");
        Ok(())
    }

    /// A pod on the second node reads the file.
    fn read(&self, disk: usize, content: &str) -> Result<(), AnyError> {
        let read = std::fs::read_to_string(self.nodes[1].target(&self.disks[disk]).join("hello.txt"))?;
        if read != content {
            return Err(format!("the bytes have changed on the way: {read:?}").into());
        }
        println!("     a pod on the other node reads hello.txt: {read:?}: the same bytes");
        Ok(())
    }

    fn luns(&self) {
        for (machine, luns) in self.steps.control.lun_maps() {
            let name = machine.rsplit('/').next().unwrap_or_default();
            let disks: Vec<String> = luns
                .iter()
                .map(|(lun, disk)| format!("LUN {lun} = {}", disk.rsplit('/').next().unwrap_or_default()))
                .collect();
            println!("     {name}: {}", if disks.is_empty() { "no data disk".to_owned() } else { disks.join(", ") });
        }
    }

    fn capability(&self) -> VolumeCapability {
        VolumeCapability {
            access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
            access_type: Some(AccessType::Mount(MountVolume { fs_type: self.fs_type.clone(), ..Default::default() })),
        }
    }

    async fn create(&mut self) -> Result<(), AnyError> {
        let request = CreateVolumeRequest { name: "pvc-demo".into(), ..Default::default() };
        self.create_as(VOLUME, "CreateVolume: 1 GiB, StandardSSD_LRS", request, GIB).await
    }

    /// Asks for a volume of this size.
    async fn create_as(
        &mut self,
        disk: usize,
        what: &str,
        mut request: CreateVolumeRequest,
        bytes: i64,
    ) -> Result<(), AnyError> {
        let watch = self.steps.begin(what);
        request.capacity_range = Some(CapacityRange { required_bytes: bytes, limit_bytes: 0 });
        request.volume_capabilities = vec![self.capability()];
        let answer = self.controller.create_volume(request).await?.into_inner();
        self.disks[disk].volume = answer.volume.ok_or("CreateVolume answers no volume")?;
        self.steps.end(&watch);
        println!("     volume id {}", self.disks[disk].id());
        Ok(())
    }

    async fn attach(&mut self, disk: usize, node: usize) -> Result<(), AnyError> {
        let name = self.nodes[node].name;
        let watch = self.steps.begin(&format!("ControllerPublishVolume: attach it to {name}"));
        let request = ControllerPublishVolumeRequest {
            volume_id: self.disks[disk].id(),
            node_id: name.into(),
            volume_capability: Some(self.capability()),
            volume_context: self.disks[disk].volume.volume_context.clone(),
            ..Default::default()
        };
        let answer = self.controller.controller_publish_volume(request).await?.into_inner();
        self.disks[disk].attached = answer.publish_context.into_iter().collect();
        self.steps.end(&watch);
        self.luns();
        Ok(())
    }

    async fn stage_and_publish(&mut self, disk: usize, node: usize, what: &str) -> Result<(), AnyError> {
        let name = self.nodes[node].name;
        let watch = self.steps.begin(&format!("NodeStageVolume, NodePublishVolume: {what} on {name}"));
        let capability = self.capability();
        let (volume, machine) = (&self.disks[disk], &mut self.nodes[node]);
        let (volume_id, context) = (volume.id(), volume.volume.volume_context.clone());
        let (staging, target) = (machine.staging(volume), machine.target(volume));
        std::fs::create_dir_all(&staging)?;
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent)?;
        }
        let stage = NodeStageVolumeRequest {
            volume_id: volume_id.clone(),
            publish_context: volume.attached.clone().into_iter().collect(),
            staging_target_path: text(&staging),
            volume_capability: Some(capability.clone()),
            volume_context: context.clone(),
            ..Default::default()
        };
        machine.client.node_stage_volume(stage).await?;
        let publish = NodePublishVolumeRequest {
            volume_id,
            staging_target_path: text(&staging),
            target_path: text(&target),
            volume_capability: Some(capability),
            volume_context: context,
            ..Default::default()
        };
        machine.client.node_publish_volume(publish).await?;
        self.steps.end(&watch);
        self.usage(disk, node).await
    }

    async fn usage(&mut self, disk: usize, node: usize) -> Result<(), AnyError> {
        let (volume, machine) = (&self.disks[disk], &mut self.nodes[node]);
        let target = text(&machine.target(volume));
        let request =
            NodeGetVolumeStatsRequest { volume_id: volume.id(), volume_path: target.clone(), ..Default::default() };
        let stats = machine.client.node_get_volume_stats(request).await?.into_inner();
        let bytes = stats.usage.iter().find(|usage| usage.unit() == Unit::Bytes);
        if let Some(usage) = bytes {
            println!("     mounted at {target}: {} MiB, {} MiB of them free", usage.total >> 20, usage.available >> 20);
        }
        Ok(())
    }

    /// Grows the first volume in Azure, to 2 GiB.
    async fn grow(&mut self, when: &str) -> Result<(), AnyError> {
        let watch = self.steps.begin(&format!("ControllerExpandVolume: grow it to 2 GiB {when}"));
        let request = ControllerExpandVolumeRequest {
            volume_id: self.disks[VOLUME].id(),
            capacity_range: Some(CapacityRange { required_bytes: 2 * GIB, limit_bytes: 0 }),
            volume_capability: Some(self.capability()),
            ..Default::default()
        };
        self.controller.controller_expand_volume(request).await?;
        self.steps.end(&watch);
        Ok(())
    }

    async fn expand(&mut self, mounts: bool) -> Result<(), AnyError> {
        self.grow("while it is in use").await?;
        let range = Some(CapacityRange { required_bytes: 2 * GIB, limit_bytes: 0 });
        if mounts {
            let watch = self.steps.begin("NodeExpandVolume: grow the filesystem under the running pod");
            let capability = self.capability();
            let (volume, machine) = (&self.disks[VOLUME], &mut self.nodes[0]);
            let request = NodeExpandVolumeRequest {
                volume_id: volume.id(),
                volume_path: text(&machine.target(volume)),
                staging_target_path: text(&machine.staging(volume)),
                capacity_range: range,
                volume_capability: Some(capability),
                ..Default::default()
            };
            machine.client.node_expand_volume(request).await?;
            self.steps.end(&watch);
            self.usage(VOLUME, 0).await?;
        }
        Ok(())
    }

    async fn unpublish_and_unstage(&mut self, disk: usize, node: usize) -> Result<(), AnyError> {
        let name = self.nodes[node].name;
        let watch = self.steps.begin(&format!(
            "NodeUnpublishVolume, NodeUnstageVolume: unmount it on {name}, flush it, prove that no process holds it"
        ));
        let (volume, machine) = (&self.disks[disk], &mut self.nodes[node]);
        let target_path = text(&machine.target(volume));
        let request = NodeUnpublishVolumeRequest { volume_id: volume.id(), target_path };
        machine.client.node_unpublish_volume(request).await?;
        let staging_target_path = text(&machine.staging(volume));
        let request = NodeUnstageVolumeRequest { volume_id: volume.id(), staging_target_path };
        machine.client.node_unstage_volume(request).await?;
        self.steps.end(&watch);
        Ok(())
    }

    async fn detach(&mut self, disk: usize, node: usize) -> Result<(), AnyError> {
        let name = self.nodes[node].name;
        let watch = self.steps.begin(&format!("ControllerUnpublishVolume: detach it from {name}"));
        let request = ControllerUnpublishVolumeRequest {
            volume_id: self.disks[disk].id(),
            node_id: name.into(),
            ..Default::default()
        };
        self.controller.controller_unpublish_volume(request).await?;
        self.steps.end(&watch);
        self.luns();
        Ok(())
    }

    async fn delete(&mut self, disk: usize) -> Result<(), AnyError> {
        let watch = self.steps.begin(&format!("DeleteVolume: the {}", self.disks[disk].name));
        let request = DeleteVolumeRequest { volume_id: self.disks[disk].id(), ..Default::default() };
        self.controller.delete_volume(request).await?;
        self.steps.end(&watch);
        Ok(())
    }

    fn nothing_is_left(&self) -> Result<(), AnyError> {
        let ids = self.steps.control.dump().resources.into_keys();
        let left: Vec<String> = ids.filter(|id| OURS.iter().any(|part| id.contains(part))).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("left in Azure: {}", left.join(", ")).into()) }
    }

    /// Unmounts what a failed step left.
    async fn clean_up(&mut self) {
        for disk in (0..self.disks.len()).filter(|disk| !self.disks[*disk].id().is_empty()).collect::<Vec<_>>() {
            for node in 0..self.nodes.len() {
                if let Err(error) = self.unpublish_and_unstage(disk, node).await {
                    eprintln!("{}: {error}", self.nodes[node].name);
                }
            }
        }
    }
}

struct Watch(Instant);
