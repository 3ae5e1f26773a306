//! The file driver in a guest, called as kubelet calls it.

use std::collections::HashMap;

use csi_proto::csi::{
    NodeGetVolumeStatsRequest, NodePublishVolumeRequest, NodeStageVolumeRequest, NodeUnpublishVolumeRequest,
    NodeUnstageVolumeRequest, VolumeCapability,
    node_client::NodeClient,
    volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode},
};
use tonic::{Code, Status, transport::Channel};

use super::{
    machine::{Equipment, NODE_LOG},
    shares::Cloud,
};

pub(super) const STAGING: &str = "/mnt/kubelet/globalmount";
pub(super) const VOLUME: &str = "g#first#data###default";
/// The arguments of the node plugin without a cluster.
pub(super) const NODE: &str =
    "--endpoint unix:///csi/csi.sock --file-endpoint unix:///csi/file.sock --node-id node-0 --imds off";
/// Where it serves the file driver.
pub(super) const SOCKET: &str = "/csi/file.sock";

/// The file driver in the guest, and the account `first` with its share `data`.
pub(super) struct Driver {
    pub(super) cloud: Cloud,
    pub(super) node: NodeClient<Channel>,
}

pub(super) fn map(pairs: &[(&str, &str)]) -> HashMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

pub(super) fn capability(flags: &[&str], group: &str) -> VolumeCapability {
    VolumeCapability {
        access_mode: Some(AccessMode { mode: Mode::MultiNodeMultiWriter.into() }),
        access_type: Some(AccessType::Mount(MountVolume {
            // What external-provisioner fills in where a class names none.
            fs_type: "ext4".to_owned(),
            mount_flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            volume_mount_group: group.to_owned(),
        })),
    }
}

pub(super) fn to_stage(context: &[(&str, &str)], flags: &[&str], key: Option<&str>) -> NodeStageVolumeRequest {
    let secrets = key.map(|key| map(&[("azurestorageaccountname", "first"), ("azurestorageaccountkey", key)]));
    NodeStageVolumeRequest {
        volume_id: VOLUME.to_owned(),
        staging_target_path: STAGING.to_owned(),
        volume_capability: Some(capability(flags, "2000")),
        volume_context: map(context),
        secrets: secrets.unwrap_or_default(),
        ..Default::default()
    }
}

pub(super) fn target(pod: &str) -> String {
    format!("/mnt/kubelet/pods/{pod}/volumes/kubernetes.io~csi/pvc-1/mount")
}

impl Driver {
    pub(super) async fn start() -> Self {
        Self::start_with(Equipment::default()).await
    }

    /// The same, in a guest with more.
    pub(super) async fn start_with(equipment: Equipment<'_>) -> Self {
        Self::start_in(Cloud::start_with(&["first"], equipment).await, "").await
    }

    /// The same in a cloud that is there, with more arguments.
    pub(super) async fn start_in(cloud: Cloud, arguments: &str) -> Self {
        let channel = cloud.guest.start_node("lazuli", &format!("{NODE} {arguments}"), SOCKET).await;
        Self { cloud, node: NodeClient::new(channel) }
    }

    pub(super) async fn stage(&self, request: NodeStageVolumeRequest) -> Result<(), Status> {
        self.node.clone().node_stage_volume(request).await.map(drop)
    }

    pub(super) async fn unstage(&self) {
        let request =
            NodeUnstageVolumeRequest { volume_id: VOLUME.to_owned(), staging_target_path: STAGING.to_owned() };
        self.node.clone().node_unstage_volume(request).await.unwrap();
    }

    pub(super) async fn publish(&self, pod: &str, readonly: bool, key: Option<&str>) -> Result<(), Status> {
        let stage = to_stage(&[], &[], key);
        let request = NodePublishVolumeRequest {
            volume_id: stage.volume_id,
            staging_target_path: stage.staging_target_path,
            target_path: target(pod),
            volume_capability: stage.volume_capability,
            secrets: stage.secrets,
            readonly,
            ..Default::default()
        };
        self.node.clone().node_publish_volume(request).await.map(drop)
    }

    pub(super) async fn unpublish(&self, pod: &str) {
        let request = NodeUnpublishVolumeRequest { volume_id: VOLUME.to_owned(), target_path: target(pod) };
        self.node.clone().node_unpublish_volume(request).await.unwrap();
    }

    /// The bytes of the volume.
    pub(super) async fn total(&self, pod: &str) -> Result<i64, Status> {
        let request =
            NodeGetVolumeStatsRequest { volume_id: VOLUME.to_owned(), volume_path: target(pod), ..Default::default() };
        let answer = self.node.clone().node_get_volume_stats(request).await?;
        Ok(answer.into_inner().usage[0].total)
    }

    /// The lines of the guest's mount table that are shares.
    pub(super) async fn mounts(&self) -> Vec<String> {
        let table = self.cloud.guest.sh("cat /proc/mounts").await;
        table.lines().filter(|line| line.contains(" cifs ")).map(str::to_owned).collect()
    }

    pub(super) async fn can_write(&self, pod: &str) -> bool {
        self.cloud.guest.exec(&["touch", &format!("{}/file-of-{pod}", target(pod))]).await.code == 0
    }

    /// No trace of the key in the guest.
    pub(super) async fn key_is_nowhere(&self, key: &str) {
        let line = format!(
            "for place in /proc/[0-9]*/cmdline /proc/[0-9]*/environ /proc/mounts {NODE_LOG}; do \
             [ $place = /proc/$$/cmdline ] || ! grep -qF '{key}' $place 2>/dev/null || echo $place; done; \
             grep -rlF '{key}' /csi /var /run /tmp 2>/dev/null; dmesg | grep -F '{key}'; true"
        );
        assert_eq!(self.cloud.guest.sh(&line).await, "");
    }
}

#[track_caller]
pub(super) fn refused(answer: Result<(), Status>, code: Code, says: &str) {
    let status = answer.expect_err("it is refused");
    assert!(status.code() == code && status.message().contains(says), "expected {code:?}, {says}: {status:?}");
}
