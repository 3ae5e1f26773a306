//! The requests that the sidecars send, and what they read of the answers.

use std::{collections::HashMap, sync::Arc};

use csi_proto::csi::{
    CapacityRange, ControllerExpandVolumeRequest, ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest,
    CreateVolumeRequest, DeleteVolumeRequest, VolumeCapability,
    controller_server::Controller,
    volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode},
};
use tonic::{Request, Status};

use super::super::wire::Replica;
use super::VolumeState;

const GIB: i64 = 1 << 30;

fn capability() -> VolumeCapability {
    VolumeCapability {
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
        access_type: Some(AccessType::Mount(MountVolume { fs_type: "ext4".into(), ..Default::default() })),
    }
}

pub(super) type Made = (String, HashMap<String, String>, i64);

pub(super) async fn create(replica: Arc<Replica>, name: String, gib: i64) -> Result<(Option<u8>, Made), Status> {
    let request = CreateVolumeRequest {
        name,
        capacity_range: Some(CapacityRange { required_bytes: gib * GIB, limit_bytes: 0 }),
        volume_capabilities: vec![capability()],
        // The one that every Azure has, and that every size takes.
        parameters: [("skuName".to_owned(), "Standard_LRS".to_owned())].into(),
        ..Default::default()
    };
    let answer = replica.service.create_volume(Request::new(request)).await?.into_inner();
    let volume = answer.volume.unwrap();
    Ok((None, (volume.volume_id, volume.volume_context, volume.capacity_bytes / GIB)))
}

pub(super) async fn delete(replica: Arc<Replica>, volume_id: String) -> Result<(Option<u8>, ()), Status> {
    let request = DeleteVolumeRequest { volume_id, ..Default::default() };
    replica.service.delete_volume(Request::new(request)).await?;
    Ok((None, ()))
}

pub(super) async fn expand(replica: Arc<Replica>, volume_id: String, gib: i64) -> Result<(Option<u8>, i64), Status> {
    let request = ControllerExpandVolumeRequest {
        volume_id,
        capacity_range: Some(CapacityRange { required_bytes: gib * GIB, limit_bytes: 0 }),
        volume_capability: Some(capability()),
        ..Default::default()
    };
    let answer = replica.service.controller_expand_volume(Request::new(request)).await?.into_inner();
    Ok((None, answer.capacity_bytes / GIB))
}

pub(super) async fn publish(
    replica: Arc<Replica>,
    volume: VolumeState,
    node: String,
) -> Result<(Option<u8>, u8), Status> {
    let request = ControllerPublishVolumeRequest {
        volume_id: volume.handle,
        node_id: node,
        volume_capability: Some(capability()),
        volume_context: volume.context,
        ..Default::default()
    };
    let answer = replica.service.controller_publish_volume(Request::new(request)).await?.into_inner();
    let lun = answer.publish_context["LUN"].parse().unwrap();
    Ok((Some(lun), lun))
}

pub(super) async fn unpublish(
    replica: Arc<Replica>,
    volume_id: String,
    node: Option<String>,
) -> Result<(Option<u8>, ()), Status> {
    let request =
        ControllerUnpublishVolumeRequest { volume_id, node_id: node.unwrap_or_default(), ..Default::default() };
    replica.service.controller_unpublish_volume(Request::new(request)).await?;
    Ok((None, ()))
}
