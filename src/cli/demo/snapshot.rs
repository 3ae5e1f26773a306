//! The snapshot of the demonstration: taken while a pod writes, restored beside its source; and the change of the source's
//! type.

use std::time::Duration;

use csi_proto::csi::{
    ControllerModifyVolumeRequest, CreateSnapshotRequest, CreateVolumeRequest, DeleteSnapshotRequest,
    VolumeContentSource,
    volume_content_source::{SnapshotSource, Type},
};

use super::{AnyError, CONTENT, GIB, RESTORED, Story, VOLUME};

/// What the pod writes after the snapshot.
pub(super) const LATER: &str = "written after the snapshot\n";
/// How often a snapshot is asked for until it is ready: external-snapshotter asks more slowly.
const AGAIN: Duration = Duration::from_secs(1);

impl Story {
    pub(super) async fn take_snapshot(&mut self) -> Result<(), AnyError> {
        let watch = self.steps.begin("CreateSnapshot: of the volume, while it is in use");
        loop {
            let request = CreateSnapshotRequest {
                name: "snapshot-demo".into(),
                source_volume_id: self.disks[VOLUME].id(),
                ..Default::default()
            };
            let answer = self.controller.create_snapshot(request).await?.into_inner();
            let snapshot = answer.snapshot.ok_or("CreateSnapshot answers no snapshot")?;
            self.snapshot = snapshot.snapshot_id;
            if snapshot.ready_to_use {
                break;
            }
            tokio::time::sleep(AGAIN).await;
        }
        self.steps.end(&watch);
        println!("     snapshot id {}", self.snapshot);
        Ok(())
    }

    /// Restores the snapshot, and has a pod read it beside its source on the second node: both file systems have one UUID.
    pub(super) async fn restore(&mut self, mounts: bool) -> Result<(), AnyError> {
        let source = Type::Snapshot(SnapshotSource { snapshot_id: self.snapshot.clone() });
        let request = CreateVolumeRequest {
            name: "pvc-restored".into(),
            volume_content_source: Some(VolumeContentSource { r#type: Some(source) }),
            ..Default::default()
        };
        self.create_as(RESTORED, "CreateVolume: from the snapshot, 1 GiB", request, GIB).await?;
        self.attach(RESTORED, 1).await?;
        if mounts {
            self.stage_and_publish(RESTORED, 1, "find the device, check and mount it beside its source").await?;
            self.read(RESTORED, CONTENT)?;
            self.unpublish_and_unstage(RESTORED, 1).await?;
        }
        self.detach(RESTORED, 1).await
    }

    /// Azure changes the type of a disk only while it is detached.
    pub(super) async fn change(&mut self) -> Result<(), AnyError> {
        let watch = self.steps.begin("ControllerModifyVolume: make it Premium_LRS");
        let request = ControllerModifyVolumeRequest {
            volume_id: self.disks[VOLUME].id(),
            mutable_parameters: [("skuName".to_owned(), "Premium_LRS".to_owned())].into(),
            ..Default::default()
        };
        self.controller.controller_modify_volume(request).await?;
        self.steps.end(&watch);
        Ok(())
    }

    pub(super) async fn delete_snapshot(&mut self) -> Result<(), AnyError> {
        let watch = self.steps.begin("DeleteSnapshot");
        let request = DeleteSnapshotRequest { snapshot_id: self.snapshot.clone(), ..Default::default() };
        self.controller.delete_snapshot(request).await?;
        self.steps.end(&watch);
        Ok(())
    }
}
