//! `lazuli up` with real block devices: what it tells of a disk, and that Ctrl-C leaves nothing on the machine, although a
//! person has staged a volume outside of its folder.

use std::fs;

use csi_proto::csi::{
    CapacityRange, ControllerPublishVolumeRequest, CreateVolumeRequest, NodeStageVolumeRequest,
    controller_client::ControllerClient, node_client::NodeClient,
};
use nix::sys::signal::Signal;

use super::{
    cloud::{GIB, filesystem},
    process::{Folder, able, mounted_at, start, until},
};

#[tokio::test]
async fn an_interrupt_unmounts_what_was_staged_anywhere_and_leaves_no_device() {
    if !able() {
        return;
    }
    let folder = Folder::make();
    let (place, log) = (folder.path().join("up"), folder.path().join("log"));
    let arguments: Vec<String> = [
        "up",
        "--latency=none",
        "--listen=127.0.0.1:0",
        "--api-listen=127.0.0.1:0",
        "--hypervisor=loop",
        &format!("--folder={}", place.display()),
    ]
    .map(str::to_owned)
    .into();
    let mut up = start("up", &log, &arguments);
    until("the banner", || {
        up.must_run();
        up.log().contains("What happens:").then_some(())
    })
    .await;

    let mut controller = ControllerClient::new(lazuli_rig::connect(&place.join("controller.sock")).await.unwrap());
    let mut node = NodeClient::new(lazuli_rig::connect(&place.join("node-0.sock")).await.unwrap());
    let capability = Some(filesystem("ext4", &[]));
    let request = CreateVolumeRequest {
        name: "pvc-up".into(),
        capacity_range: Some(CapacityRange { required_bytes: GIB, limit_bytes: 0 }),
        volume_capabilities: capability.iter().cloned().collect(),
        ..Default::default()
    };
    let volume = controller.create_volume(request).await.unwrap().into_inner().volume.unwrap();
    let publish = ControllerPublishVolumeRequest {
        volume_id: volume.volume_id.clone(),
        node_id: "node-0".into(),
        volume_capability: capability.clone(),
        volume_context: volume.volume_context.clone(),
        ..Default::default()
    };
    let published = controller.controller_publish_volume(publish).await.unwrap().into_inner();
    // Not below the folder: a person chooses it.
    let staging = folder.path().join("staging");
    fs::create_dir(&staging).unwrap();
    let stage = NodeStageVolumeRequest {
        volume_id: volume.volume_id,
        publish_context: published.publish_context,
        staging_target_path: staging.display().to_string(),
        volume_capability: capability,
        volume_context: volume.volume_context,
        ..Default::default()
    };
    node.node_stage_volume(stage).await.unwrap();
    assert_eq!(mounted_at(&staging).unwrap().fs_type, "ext4");
    assert_eq!(folder.loops().len(), 1);
    until("the line of the attachment", || {
        up.log().contains("disk pvc-up is attached to node-0 at LUN 0").then_some(())
    })
    .await;
    assert!(up.log().contains("disk pvc-up is created"), "{}", up.log());

    up.signal(Signal::SIGINT);
    let status = up.end().await;
    assert!(status.success(), "{status}:\n{}", up.log());
    assert!(mounted_at(&staging).is_none());
    assert_eq!(folder.loops(), [""; 0]);
    assert!(up.log().contains("Nothing is mounted, and no loop device is left"), "{}", up.log());
    let left = |name: &str| place.join(name).exists();
    assert!(place.is_dir() && !left("kubeconfig") && !left("azure.json") && !left("controller.sock"));
}
