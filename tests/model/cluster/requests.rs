//! The requests that the sidecars send, and what they read of the answers.

use std::{collections::HashMap, sync::Arc};

use csi_proto::csi::{
    CapacityRange, ControllerExpandVolumeRequest, ControllerModifyVolumeRequest, ControllerPublishVolumeRequest,
    ControllerUnpublishVolumeRequest, CreateSnapshotRequest, CreateVolumeRequest, DeleteSnapshotRequest,
    DeleteVolumeRequest, Topology, TopologyRequirement, VolumeCapability, VolumeContentSource,
    controller_server::Controller,
    volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode},
    volume_content_source::{self as content, SnapshotSource, VolumeSource},
};
use tonic::{Request, Status};

use lazuli_emulator::scenario::LOCATION;

use super::super::{
    judge::Taken,
    script::{Attributes, Class, ELSEWHERE, Kind, NAMED_ACCOUNT, Place},
    wire::Replica,
};
use super::{VolumeState, copies::Source};

const GIB: i64 = 1 << 30;

fn capability() -> VolumeCapability {
    VolumeCapability {
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
        access_type: Some(AccessType::Mount(MountVolume { fs_type: "ext4".into(), ..Default::default() })),
    }
}

fn parameters(class: Class) -> HashMap<String, String> {
    let mut parameters = vec![("skuName", class.sku())];
    match class {
        Class::Vhd(Kind::Shared) => parameters.push(("kind", "Shared")),
        Class::Vhd(Kind::Dedicated) => parameters.push(("kind", "Dedicated")),
        Class::Vhd(Kind::Named) => parameters.push(("storageAccount", NAMED_ACCOUNT)),
        _ => {}
    }
    parameters.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

pub(super) type Made = (String, HashMap<String, String>, i64);

pub(super) async fn create(
    replica: Arc<Replica>,
    name: String,
    (gib, class): (i64, Class),
    source: Option<(Source, String)>,
) -> Result<(Option<u8>, Made), Status> {
    let r#type = source.map(|(source, handle)| match source {
        Source::Snapshot(_) => content::Type::Snapshot(SnapshotSource { snapshot_id: handle }),
        Source::Volume(_) => content::Type::Volume(VolumeSource { volume_id: handle }),
    });
    let topology = class.zone().map(|zone| {
        let key = "topology.disk.csi.azure.com/zone".to_owned();
        Topology { segments: [(key, format!("{LOCATION}-{zone}"))].into() }
    });
    let topologies: Vec<Topology> = topology.into_iter().collect();
    let request = CreateVolumeRequest {
        name,
        capacity_range: Some(CapacityRange { required_bytes: gib * GIB, limit_bytes: 0 }),
        volume_capabilities: vec![capability()],
        parameters: parameters(class),
        volume_content_source: r#type.map(|r#type| VolumeContentSource { r#type: Some(r#type) }),
        accessibility_requirements: (!topologies.is_empty())
            .then(|| TopologyRequirement { requisite: topologies.clone(), preferred: topologies }),
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

pub(super) async fn modify(
    replica: Arc<Replica>,
    volume_id: String,
    to: Attributes,
) -> Result<(Option<u8>, ()), Status> {
    let pair = |key: &str, value: &dyn ToString| (key.to_owned(), value.to_string());
    let mutable_parameters = match to {
        Attributes::Sku(sku) => [pair("skuName", &sku)].into(),
        Attributes::Performance { iops, mbps } => {
            [pair("DiskIOPSReadWrite", &iops), pair("DiskMBpsReadWrite", &mbps)].into()
        }
        Attributes::Tier(tier) => [pair("tier", &tier)].into(),
        Attributes::Tag(team) => [pair("tags", &format!("team={team}"))].into(),
    };
    let request = ControllerModifyVolumeRequest { volume_id, mutable_parameters, ..Default::default() };
    replica.service.controller_modify_volume(Request::new(request)).await?;
    Ok((None, ()))
}

pub(super) async fn take_snapshot(
    replica: Arc<Replica>,
    name: String,
    volume: String,
    place: Place,
) -> Result<(Option<u8>, Taken), Status> {
    let parameters = match place {
        Place::Here => HashMap::new(),
        Place::Instant => [("instantAccessDurationMinutes".to_owned(), "60".to_owned())].into(),
        Place::Elsewhere => [("location".to_owned(), ELSEWHERE.to_owned())].into(),
    };
    let request = CreateSnapshotRequest { name, source_volume_id: volume, parameters, ..Default::default() };
    let answer = replica.service.create_snapshot(Request::new(request)).await?.into_inner();
    let snapshot = answer.snapshot.unwrap();
    let taken = Taken {
        handle: snapshot.snapshot_id,
        source_volume: snapshot.source_volume_id,
        bytes: snapshot.size_bytes,
        ready: snapshot.ready_to_use,
    };
    Ok((None, taken))
}

pub(super) async fn drop_snapshot(replica: Arc<Replica>, snapshot_id: String) -> Result<(Option<u8>, ()), Status> {
    let request = DeleteSnapshotRequest { snapshot_id, ..Default::default() };
    replica.service.delete_snapshot(Request::new(request)).await?;
    Ok((None, ()))
}
