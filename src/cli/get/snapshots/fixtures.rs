//! Snapshots in an emulated Azure.

use lazuli_azure::arm::Write;
use lazuli_emulator::scenario;
use lazuli_model::{
    ArmId,
    disk_tags::{CREATED_BY, SOURCE_VOLUME},
};
use lazuli_quota::poll::Kind;
use lazuli_rig::cluster::Cluster;
use serde_json::{Map, json};

/// Of the disks and snapshots API.
const API_VERSION: &str = "2025-01-02";

/// Makes an incremental snapshot of a disk as either driver would, with these tags besides, and the disk if there is none.
/// Returns its id.
pub(in crate::cli) async fn make_snapshot(cluster: &Cluster, name: &str, disk: &str, tags: &[(&str, &str)]) -> String {
    let (subscription, group) = (scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP);
    let source = ArmId::disk(subscription, group, disk).unwrap();
    let body = json!({"location": scenario::LOCATION, "sku": {"name": "Premium_LRS"},
        "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 8}});
    cluster.write_azure(Write::put(source.as_str(), API_VERSION, body, Kind::DiskCreate)).await.unwrap();
    let own = [CREATED_BY, (SOURCE_VOLUME, source.as_str())];
    let tags: Map<_, _> = own.iter().chain(tags).map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    let id = ArmId::snapshot(subscription, group, name).unwrap();
    let data = json!({"createOption": "Copy", "sourceResourceId": source.as_str()});
    let body = json!({"location": scenario::LOCATION, "tags": tags, "properties": {"creationData": data, "incremental": true}});
    cluster.write_azure(Write::put(id.as_str(), API_VERSION, body, Kind::SnapshotCreate)).await.unwrap();
    id.to_string()
}
