//! Volumes from snapshots and clones, as external-provisioner asks for them.

use csi_proto::csi::{
    ControllerGetCapabilitiesRequest, ControllerPublishVolumeRequest, CreateVolumeRequest, VolumeContentSource,
    controller_service_capability::{Type as CapabilityType, rpc},
    volume_content_source::{SnapshotSource, Type, VolumeSource},
};
use lazuli_emulator::scenario;
use lazuli_volume::{SOURCE_KEY, copy::LINE_KEY};
use serde_json::json;
use tonic::Code;

use super::disk_rig::{Client, GIB, Rig, capability, create, create_request, delete, disk_id, publish, unpublish};

fn snapshot_id(name: &str) -> String {
    disk_id(name).replace("/disks/", "/snapshots/")
}

/// A snapshot of a disk by another tool.
async fn take_snapshot(rig: &Rig, name: &str, disk: &str) {
    let body = json!({
        "location": scenario::LOCATION,
        "properties": {
            "creationData": {"createOption": "Copy", "sourceResourceId": disk_id(disk)}, "incremental": true,
        },
    });
    let (status, answer) = rig.other_tool().call("PUT", &snapshot_id(name), Some(body)).await;
    assert_eq!(status, 202, "{answer}");
    rig.at_rest().await;
}

fn from_snapshot(name: &str, id: &str) -> CreateVolumeRequest {
    let source = Type::Snapshot(SnapshotSource { snapshot_id: id.into() });
    CreateVolumeRequest {
        volume_content_source: Some(VolumeContentSource { r#type: Some(source) }),
        ..create_request(name, &[])
    }
}

fn clone_of(name: &str, id: &str) -> CreateVolumeRequest {
    let source = Type::Volume(VolumeSource { volume_id: id.into() });
    CreateVolumeRequest {
        volume_content_source: Some(VolumeContentSource { r#type: Some(source) }),
        ..create_request(name, &[])
    }
}

async fn refused(client: &Client, request: CreateVolumeRequest) -> Code {
    client.clone().create_volume(request).await.unwrap_err().code()
}

#[tokio::test(start_paused = true)]
async fn disk_a_volume_is_restored_and_cloned_and_answers_name_their_source() {
    let (rig, client) = Rig::typical().await;
    let capabilities = client.clone().controller_get_capabilities(ControllerGetCapabilitiesRequest {}).await;
    let capabilities = capabilities.unwrap().into_inner().capabilities;
    let clones = |capability: &CapabilityType| matches!(capability, CapabilityType::Rpc(found) if found.r#type() == rpc::Type::CloneVolume);
    assert!(capabilities.iter().filter_map(|capability| capability.r#type.as_ref()).any(clones));

    let source = create(&client, "pvc-source").await.unwrap();
    take_snapshot(&rig, "snap", "pvc-source").await;
    // The Go driver's bare name of a snapshot in the cluster's group is the same source.
    for (name, id) in [("pvc-1", snapshot_id("snap")), ("pvc-2", "snap".to_owned())] {
        let request = from_snapshot(name, &id);
        for _ in 0..2 {
            let volume = client.clone().create_volume(request.clone()).await.unwrap().into_inner().volume.unwrap();
            assert_eq!(volume.content_source, request.volume_content_source);
            assert_eq!(volume.capacity_bytes, GIB);
            assert_eq!(volume.volume_context[LINE_KEY].split(',').count(), 2);
        }
        // Its name is of this request and this source alone.
        assert_eq!(refused(&client, clone_of(name, &source.volume_id)).await, Code::AlreadyExists);
        assert_eq!(refused(&client, create_request(name, &[])).await, Code::AlreadyExists);
    }
    let request = clone_of("pvc-3", &source.volume_id);
    let clone = client.clone().create_volume(request.clone()).await.unwrap().into_inner().volume.unwrap();
    assert_eq!((clone.content_source, clone.capacity_bytes), (request.volume_content_source, GIB));
    assert_eq!(clone.volume_context[SOURCE_KEY], source.volume_id);

    for request in [
        from_snapshot("pvc-4", "gone"),
        from_snapshot("pvc-4", &snapshot_id("gone")),
        clone_of("pvc-4", &disk_id("gone")),
        clone_of("pvc-4", "no-volume"),
    ] {
        assert_eq!(refused(&client, request).await, Code::NotFound);
    }
    let nothing = CreateVolumeRequest {
        volume_content_source: Some(VolumeContentSource { r#type: None }),
        ..create_request("pvc-4", &[])
    };
    assert_eq!(refused(&client, nothing).await, Code::InvalidArgument);
    for name in ["pvc-source", "pvc-1", "pvc-2", "pvc-3"] {
        delete(&client, &disk_id(name)).await.unwrap();
    }
    rig.check_empty();
    rig.stop().await;
}

/// The Go driver tells a node nothing of where a volume comes from. Azure does.
#[tokio::test(start_paused = true)]
async fn disk_the_line_of_a_copy_that_the_go_driver_made_is_told_at_its_publish() {
    let (rig, client) = Rig::typical().await;
    create(&client, "pvc-source").await.unwrap();
    take_snapshot(&rig, "snap", "pvc-source").await;
    let request = from_snapshot("pvc-1", &snapshot_id("snap"));
    let volume = client.clone().create_volume(request).await.unwrap().into_inner().volume.unwrap();
    let publish_request = |context: &std::collections::HashMap<String, String>| ControllerPublishVolumeRequest {
        volume_id: volume.volume_id.clone(),
        node_id: "node-0".into(),
        volume_capability: Some(capability()),
        volume_context: context.clone(),
        ..Default::default()
    };
    let answer = client.clone().controller_publish_volume(publish_request(&volume.volume_context)).await;
    let told = answer.unwrap().into_inner().publish_context;
    assert_eq!(told[SOURCE_KEY], snapshot_id("snap"));
    assert!(!told.contains_key(LINE_KEY), "the volume's context has it");
    let mut by_go = volume.volume_context.clone();
    by_go.retain(|key, _| ![LINE_KEY, SOURCE_KEY].contains(&key.as_str()));
    let answer = client.clone().controller_publish_volume(publish_request(&by_go)).await;
    let told = answer.unwrap().into_inner().publish_context;
    assert_eq!(told[LINE_KEY].split(',').collect::<Vec<_>>(), [snapshot_id("snap"), disk_id("pvc-source")]);
    unpublish(&client, &volume.volume_id, "node-0").await.unwrap();
    publish(&client, &volume, "node-1").await.unwrap();
    rig.stop().await;
}
