//! A disk that was made from something: the node is told, so that it never formats it.

use std::collections::BTreeSet;

use csi_proto::csi::{
    ControllerPublishVolumeRequest, VolumeCapability,
    volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode},
};
use lazuli_volume::SOURCE_KEY;
use serde_json::json;

use super::disk_rig::{Rig, create, disk_id};

/// Reads of single disks so far.
fn disk_reads(rig: &Rig) -> usize {
    let calls = rig.calls();
    calls.iter().filter(|call| call.method == "GET" && call.path.to_lowercase().contains("/disks/")).count()
}

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
    // The disk, and what it was made from, to tell what that comes from in turn.
    for expected in [2, 0] {
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

/// A replica that has just begun to lead knows of no disk what it was made from. A read for each would take a minute for
/// each 1,500, of all that Azure allows.
#[tokio::test(start_paused = true)]
async fn disk_storm_at_a_new_replica_reads_lists_and_no_disk_alone() {
    const DISKS: usize = 24;
    let (mut rig, client) = Rig::typical().await;
    let mut volumes = Vec::new();
    for number in 0..DISKS {
        volumes.push(create(&client, &format!("pvc-{number}")).await.unwrap());
    }
    let source = disk_id("golden");
    rig.control
        .tamper(&volumes[7].volume_id, |disk| {
            disk["properties"]["creationData"] = json!({ "createOption": "Copy", "sourceResourceId": source });
        })
        .unwrap();
    let started = rig.lab.controller("started").await.unwrap();
    let before = disk_reads(&rig);
    let published = volumes.iter().enumerate().map(|(number, volume)| {
        let request = ControllerPublishVolumeRequest {
            volume_id: volume.volume_id.clone(),
            node_id: format!("node-{}", number % 2),
            volume_capability: Some(VolumeCapability {
                access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
                access_type: Some(AccessType::Mount(MountVolume::default())),
            }),
            volume_context: volume.volume_context.clone(),
            ..Default::default()
        };
        let mut client = started.clone();
        async move { client.controller_publish_volume(request).await.unwrap().into_inner().publish_context }
    });
    let contexts = futures::future::join_all(published).await;
    let made_from_another: BTreeSet<usize> =
        (0..DISKS).filter(|number| contexts[*number].contains_key(SOURCE_KEY)).collect();
    assert_eq!(made_from_another, BTreeSet::from([7]));
    assert_eq!(contexts[7][SOURCE_KEY], source);
    assert_eq!(
        disk_reads(&rig) - before,
        1,
        "a list that was sent after the attach says it of all, and the source of the one is read"
    );
    rig.stop().await;
}
