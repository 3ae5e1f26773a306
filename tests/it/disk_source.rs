//! A disk that was made from something: the node is told, so that it never formats it.

use csi_proto::csi::{
    ControllerPublishVolumeRequest, VolumeCapability,
    volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode},
};
use lazuli_storage::disk::SOURCE_KEY;
use serde_json::json;

use super::disk_rig::{Rig, create, disk_id};

#[tokio::test(start_paused = true)]
async fn disk_made_from_another_says_so_in_its_publish_context() {
    let (mut rig, client) = Rig::typical().await;
    let volume = create(&client, "pvc-1").await.unwrap();
    let source = disk_id("golden");
    rig.control
        .tamper(&volume.volume_id, |disk| {
            disk["properties"]["creationData"] = json!({ "createOption": "Copy", "sourceResourceId": source });
        })
        .unwrap();
    let request = ControllerPublishVolumeRequest {
        volume_id: volume.volume_id.clone(),
        node_id: "node-0".into(),
        volume_capability: Some(VolumeCapability {
            access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
            access_type: Some(AccessType::Mount(MountVolume::default())),
        }),
        volume_context: volume.volume_context.clone(),
        ..Default::default()
    };
    let answer = client.clone().controller_publish_volume(request.clone()).await.unwrap().into_inner();
    assert_eq!(answer.publish_context[SOURCE_KEY], source);

    // A controller that has just started finds the disk attached, and says the same.
    let restarted = rig.lab.controller("restarted").await.unwrap();
    let disk_reads = |rig: &Rig| {
        let calls = rig.calls();
        calls.iter().filter(|call| call.method == "GET" && call.path.to_lowercase().contains("/disks/")).count()
    };
    for expected in [1, 0] {
        let before = disk_reads(&rig);
        let answer = restarted.clone().controller_publish_volume(request.clone()).await.unwrap().into_inner();
        assert_eq!(answer.publish_context[SOURCE_KEY], source);
        assert_eq!(disk_reads(&rig) - before, expected, "what a disk was made from is read once");
    }

    // A disk that was made empty has nothing to say.
    let empty = create(&client, "pvc-2").await.unwrap();
    let request =
        ControllerPublishVolumeRequest { volume_id: empty.volume_id, volume_context: empty.volume_context, ..request };
    let answer = client.clone().controller_publish_volume(request).await.unwrap().into_inner();
    assert_eq!(answer.publish_context.keys().collect::<Vec<_>>(), ["LUN"]);
    rig.stop().await;
}
