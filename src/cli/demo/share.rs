//! The demonstration's part on Azure Files: file shares from creation to deletion, with a controller and an Azure of its own.
//!
//! Azure needs a while for the first storage account. The first share is therefore asked for when the demonstration begins,
//! and is made beside what else is shown.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use csi_proto::csi::{
    CapacityRange, ControllerExpandVolumeRequest, CreateVolumeRequest, DeleteVolumeRequest, Volume, VolumeCapability,
    controller_client::ControllerClient,
    volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode},
};
use lazuli_azure::{arm::Write, storage::API_VERSION};
use lazuli_emulator::{latency::Profile, scenario};
use lazuli_journal::Recorder;
use lazuli_model::ArmId;
use lazuli_quota::poll::Kind;
use lazuli_rig::{Folder, Lab, Options, ShareView};
use lazuli_telemetry::lossy;
use serde_json::json;
use tokio::{sync::watch, task::JoinHandle};
use tonic::{Code, Status, transport::Channel};

use super::{AnyError, GIB, Steps};

/// The part as it has begun: the first share is being made.
pub(super) struct Begun {
    lab: Lab,
    controller: ControllerClient<Channel>,
    first: JoinHandle<Result<(Volume, Duration), Status>>,
    // The sockets are in it.
    _folder: Folder,
}

/// Starts an Azure and a controller, and asks for the first share.
pub(super) async fn begin(latency: Profile) -> Result<Begun, AnyError> {
    let azure = lazuli_emulator::Options { latency, start_time: jiff::Timestamp::now(), ..Default::default() };
    let folder = Folder::make("demo-shares")?;
    let mut lab = Lab::start(Options { azure, ..Options::new(folder.path()) }).await?;
    let view = ShareView {
        // There is no cluster, so no PersistentVolume names a share.
        volumes: watch::channel(Some(Arc::default())).1,
        secrets: None,
        events: lossy::Sender::nowhere(),
        journal: Recorder::nowhere(),
    };
    let controller = lab.file_controller("files", view).await?;
    let mut client = controller.clone();
    let first = tokio::spawn(async move {
        let began = Instant::now();
        let volume = create(&mut client, "pvc-first", 5).await?;
        Ok((volume, began.elapsed()))
    });
    Ok(Begun { lab, controller, first, _folder: folder })
}

impl Begun {
    /// Shows the shares. `number` is that of the last step before. Gives the number of the last step.
    pub(super) async fn show(self, number: u32) -> Result<u32, AnyError> {
        println!("\nAzure Files, with an Azure of its own at {}.", self.lab.emulator.url());
        let mut steps = Steps::after(self.lab.emulator.control(), number);
        let outcome = tell(&self.lab, self.controller, self.first, &mut steps).await;
        self.lab.stop().await;
        outcome.map(|()| steps.number)
    }
}

async fn tell(
    lab: &Lab,
    mut controller: ControllerClient<Channel>,
    first: JoinHandle<Result<(Volume, Duration), Status>>,
    steps: &mut Steps,
) -> Result<(), AnyError> {
    steps.announce("CreateVolume: a share of 5 GiB and its storage account, asked for at the beginning");
    let (volume, took) = first.await??;
    steps.ended(took);
    println!("     volume id {}", volume.volume_id);

    let watch = steps.begin("CreateVolume: a second share, in the account that is there");
    let second = create(&mut controller, "pvc-second", 5).await?;
    steps.end(&watch);
    println!("     volume id {}", second.volume_id);

    let watch = steps.begin("ControllerExpandVolume: grow the first one to 10 GiB");
    let request = ControllerExpandVolumeRequest {
        volume_id: volume.volume_id.clone(),
        capacity_range: Some(CapacityRange { required_bytes: 10 * GIB, limit_bytes: 0 }),
        ..Default::default()
    };
    controller.controller_expand_volume(request).await?;
    steps.end(&watch);

    snapshot(lab, &volume.volume_id).await?;
    println!(
        "     a person makes a snapshot of it; Azure deletes a share together with its snapshots unless it is told not to"
    );
    let watch = steps.begin("DeleteVolume of the first one: refused");
    let refused =
        controller.delete_volume(DeleteVolumeRequest { volume_id: volume.volume_id, ..Default::default() }).await;
    steps.end(&watch);
    match refused {
        Err(status) if status.code() == Code::FailedPrecondition => println!("     {}", status.message()),
        Err(status) => return Err(status.into()),
        Ok(_) => return Err("a share was deleted together with its snapshot".into()),
    }

    let watch = steps.begin("DeleteVolume of the second one");
    controller.delete_volume(DeleteVolumeRequest { volume_id: second.volume_id, ..Default::default() }).await?;
    steps.end(&watch);
    Ok(())
}

async fn create(controller: &mut ControllerClient<Channel>, name: &str, gib: i64) -> Result<Volume, Status> {
    let capability = VolumeCapability {
        access_mode: Some(AccessMode { mode: Mode::MultiNodeMultiWriter.into() }),
        access_type: Some(AccessType::Mount(MountVolume::default())),
    };
    let request = CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(CapacityRange { required_bytes: gib * GIB, limit_bytes: 0 }),
        volume_capabilities: vec![capability],
        ..Default::default()
    };
    let volume = controller.create_volume(request).await?.into_inner().volume;
    volume.ok_or_else(|| Status::internal("CreateVolume answers no volume"))
}

/// Makes a snapshot of the share of a volume, as a person would.
async fn snapshot(lab: &Lab, volume_id: &str) -> Result<(), AnyError> {
    let fields: Vec<&str> = volume_id.split('#').collect();
    let [group, account, share, ..] = fields[..] else {
        return Err(format!("the volume id {volume_id:?} names no share").into());
    };
    let account = ArmId::storage_account(scenario::SUBSCRIPTION, group, account)?;
    let share = ArmId::file_share(&account, share)?;
    let write = Write::put(share.as_str(), API_VERSION, json!({}), Kind::Other).query("$expand", "snapshots");
    lab.write_azure(write).await
}
