//! The demonstration's part on VHD blob disks: one is made, attached, grown, and becomes a managed disk. It has an Azure of its
//! own, in which one machine is from the time of VHDs.

use csi_proto::csi::{
    CreateVolumeRequest, VolumeContentSource,
    volume_content_source::{Type, VolumeSource},
};
use lazuli_emulator::{latency::Profile, scenario::VirtualMachine};
use lazuli_rig::{Folder, Lab, Options};
use lazuli_vhd::class::BlobDisks;
use tokio_util::sync::CancellationToken;

use super::{AnyError, CONTENT, GIB, RESTORED, STOPPED, Story, VOLUME, azure};

/// A machine whose system disk is a VHD: it takes VHDs as data disks, and no managed disks.
const OLD: &str = "old-0";
/// A machine of managed disks.
const NEW: &str = "node-0";

/// Shows the VHD. `number` is that of the last step before. Gives the number of the last step.
pub(super) async fn show(
    latency: Profile,
    mounts: bool,
    fs_type: &str,
    number: u32,
    stop: &CancellationToken,
) -> Result<u32, AnyError> {
    let folder = Folder::make("demo-vhd")?;
    let mut azure = azure(latency, mounts, folder.path());
    let mut old = VirtualMachine::pattern(OLD, 1);
    old.os_disk.storage_account = Some("system1".to_owned());
    azure.scenario.virtual_machines = vec![old, VirtualMachine::pattern(NEW, 1)];
    // The blob services of accounts take https alone.
    azure.listen_tls = Some(([127, 0, 0, 1], 0).into());
    // In a cluster with both kinds of machines a class gets a blob only where it is asked for.
    let options = Options { azure, blob_disks: BlobDisks::Always, ..Options::new(folder.path()) };
    let mut lab = Lab::start(options).await?;
    println!(
        "\nA VHD blob disk as in 2017, and the way off it, with an Azure of its own at {}: the system disk of {OLD} is a VHD.",
        lab.emulator.url()
    );
    let outcome = tell(&mut lab, &folder, mounts, fs_type, number, stop).await;
    lab.stop().await;
    outcome
}

async fn tell(
    lab: &mut Lab,
    folder: &Folder,
    mounts: bool,
    fs_type: &str,
    number: u32,
    stop: &CancellationToken,
) -> Result<u32, AnyError> {
    let mut story = Story::begin(lab, folder.path(), [OLD, NEW], ["VHD", "managed disk"], fs_type, number).await?;
    tokio::select! {
        told = story.tell_of_vhd(mounts) => story.end(told, mounts).await,
        () = stop.cancelled() => story.end(Err(STOPPED.into()), mounts).await,
    }
}

impl Story {
    async fn tell_of_vhd(&mut self, mounts: bool) -> Result<(), AnyError> {
        let parameters = [("kind", "Dedicated"), ("skuName", "Standard_LRS")];
        let request = CreateVolumeRequest {
            name: "pvc-vhd".into(),
            parameters: parameters.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            ..Default::default()
        };
        self.create_as(VOLUME, "CreateVolume: kind Dedicated, a VHD of 1 GiB in an account of its own", request, GIB)
            .await?;
        self.attach(VOLUME, 0).await?;
        if mounts {
            self.stage_and_publish(VOLUME, 0, "find the device, format and mount it").await?;
            self.write(0, CONTENT)?;
            self.unpublish_and_unstage(VOLUME, 0).await?;
        }
        self.detach(VOLUME, 0).await?;
        self.grow("while no machine has it").await?;
        let source = Type::Volume(VolumeSource { volume_id: self.disks[VOLUME].id() });
        let request = CreateVolumeRequest {
            name: "pvc-imported".into(),
            volume_content_source: Some(VolumeContentSource { r#type: Some(source) }),
            ..Default::default()
        };
        self.create_as(RESTORED, "CreateVolume: a managed disk from the VHD, 2 GiB", request, 2 * GIB).await?;
        self.attach(RESTORED, 1).await?;
        if mounts {
            self.stage_and_publish(RESTORED, 1, "find the device, check, grow and mount it").await?;
            self.read(RESTORED, CONTENT)?;
            self.unpublish_and_unstage(RESTORED, 1).await?;
        }
        self.detach(RESTORED, 1).await?;
        self.delete(RESTORED).await?;
        self.delete(VOLUME).await?;
        self.nothing_is_left()
    }
}
