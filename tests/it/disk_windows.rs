//! Volumes of Windows nodes, whose node plugin is another program's.

use csi_proto::csi::{
    ControllerPublishVolumeRequest, VolumeCapability,
    volume_capability::{AccessType, MountVolume},
};
use tonic::Code;

use super::disk_rig::{Rig, capability, create_request, disk_id, refused};

fn formatted(fs_type: &str) -> VolumeCapability {
    let mount = MountVolume { fs_type: fs_type.into(), ..Default::default() };
    VolumeCapability { access_type: Some(AccessType::Mount(mount)), ..capability() }
}

#[tokio::test(start_paused = true)]
async fn disk_an_ntfs_volume_is_attached_and_left_to_the_node_plugin_of_windows() {
    let (rig, client) = Rig::typical().await;
    let other = rig.other_tool();
    other.make_disk("windows").await;
    rig.at_rest().await;
    let publish = async |fs_type: &str| {
        let request = ControllerPublishVolumeRequest {
            volume_id: disk_id("windows"),
            node_id: "node-0".into(),
            volume_capability: Some(formatted(fs_type)),
            volume_context: [("fsType".to_owned(), fs_type.to_owned())].into(),
            ..Default::default()
        };
        client.clone().controller_publish_volume(request).await
    };
    assert!(refused(publish("zfs").await, Code::InvalidArgument).contains("zfs"));
    assert_eq!(publish("ntfs").await.unwrap().into_inner().publish_context["LUN"], "0");
    assert_eq!(rig.luns("node-0")[&0], "windows");
    // This driver makes no disk that its own nodes cannot stage.
    let mut create = create_request("pvc-1", &[]);
    create.volume_capabilities = vec![formatted("ntfs")];
    assert!(refused(client.clone().create_volume(create).await, Code::InvalidArgument).contains("ntfs"));
    rig.stop().await;
}
