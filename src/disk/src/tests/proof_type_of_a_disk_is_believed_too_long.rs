//! Proof: a process that once saw a disk of a type whose snapshots are filled at once deletes it for ever without a look at its
//! snapshots, though another replica, or a person, has made it a PremiumV2 disk since. The snapshots lose their content.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use lazuli_emulator::{Options, latency::Profile, scenario, scenario::Scenario};
use lazuli_volume::{
    AccessMode, AccessType, Capability, Cloud, DISK_TOPOLOGY_KEY, Defaults, Request, plan_create,
    snapshot::SnapshotRequest,
};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::rig::{Rig, disk, lagging};
use crate::{DeleteError, Volumes};

const SEEDS: std::ops::Range<u64> = 1..11;

fn defaults() -> Defaults {
    Defaults {
        subscription: scenario::SUBSCRIPTION.into(),
        resource_group: scenario::RESOURCE_GROUP.into(),
        location: scenario::LOCATION.into(),
        ..Defaults::default()
    }
}

/// A Premium SSD in zone 1, made by this replica.
async fn make(volumes: &Volumes, name: &str) {
    let zone = BTreeMap::from([(DISK_TOPOLOGY_KEY.to_owned(), format!("{}-1", scenario::LOCATION))]);
    let access_type = Some(AccessType::Mount { fs_type: String::new(), flags: Vec::new() });
    let request = Request {
        name: name.into(),
        parameters: [("skuName".to_owned(), "Premium_LRS".to_owned())].into(),
        required_bytes: 4 << 30,
        capabilities: vec![Capability { access_type, access_mode: AccessMode::SingleNodeWriter }],
        requisite: vec![zone.clone()],
        preferred: vec![zone],
        ..Request::default()
    };
    volumes.create(&plan_create(&request, &defaults()).unwrap()).await.unwrap();
}

fn request(name: &str, of: &str) -> SnapshotRequest {
    SnapshotRequest { name: name.into(), volume: disk(of).to_string().parse().unwrap(), parameters: BTreeMap::new() }
}

fn snapshot(rig: &Rig, name: &str) -> Value {
    let id = disk("x").to_string().replace("disks/x", &format!("snapshots/{name}"));
    rig.emulator.control().resource(&id).map(|doc| doc["properties"].clone()).unwrap_or_default()
}

async fn slow(seed: u64) -> Rig {
    Rig::start(Options { latency: Profile::typical(), ..lagging(seed, Scenario::default()) }).await
}

/// The disk is made by `one`, whose provisioner leads. The other replica's resizer gives it another type.
async fn made_and_converted(seed: u64) -> (Rig, Volumes, Volumes) {
    let rig = slow(seed).await;
    let (one, other) = (rig.replica(seed), rig.replica(seed + 100));
    make(&one, "pvc-1").await;
    let class = BTreeMap::from([("skuName".to_owned(), "PremiumV2_LRS".to_owned())]);
    other.modify(&disk("pvc-1"), class, Cloud::Public).await.unwrap();
    sleep(Duration::from_secs(24 * 3_600)).await;
    (rig, one, other)
}

/// The snapshot is this very process's own, and a list does not show it yet.
#[tokio::test(start_paused = true)]
async fn a_snapshot_that_this_process_took_a_moment_ago_keeps_its_disk_whoever_changed_the_disk_s_type() {
    let mut lost = Vec::new();
    for seed in SEEDS {
        let (rig, one, _other) = made_and_converted(seed).await;
        let view = one.create_snapshot(request("snapshot-1", "pvc-1"), Arc::new(defaults())).await.unwrap();
        assert!(!view.is_ready, "its content is in the disk alone");
        let deleted = one.delete(&disk("pvc-1")).await;
        sleep(Duration::from_secs(60)).await;
        let shown = snapshot(&rig, "snapshot-1");
        if !shown["copyCompletionError"].is_null() || deleted.is_ok() {
            lost.push(format!("seed {seed}: {deleted:?}, {}", shown["copyCompletionError"]));
        }
    }
    assert!(lost.is_empty(), "{} of 10: {lost:#?}", lost.len());
}

/// The snapshot is old, and no list can be read: without one nothing shows that no snapshot needs the disk.
#[tokio::test(start_paused = true)]
async fn without_a_list_no_disk_goes_that_another_replica_made_a_premium_v2_disk() {
    let mut lost = Vec::new();
    for (status, code) in [(403, "AuthorizationFailed"), (503, "ServiceUnavailable"), (429, "TooManyRequests")] {
        let (rig, one, other) = made_and_converted(1).await;
        let view = other.create_snapshot(request("snapshot-1", "pvc-1"), Arc::new(defaults())).await.unwrap();
        assert!(!view.is_ready);
        let id = disk("x").to_string().replace("disks/x", "snapshots/snapshot-1");
        let slowly = |doc: &mut Value| doc["properties"]["completionPercent"] = json!(10);
        rig.emulator.control().tamper(&id, slowly).unwrap();
        rig.incident(json!({
            "match": {"method": "GET", "path": "*/snapshots"}, "then": {"status": status, "code": code}, "times": 0,
        }));
        let deleted = one.delete(&disk("pvc-1")).await;
        assert!(!matches!(deleted, Err(DeleteError::Snapshots(_))), "it cannot be seen");
        sleep(Duration::from_secs(60)).await;
        let shown = snapshot(&rig, "snapshot-1");
        if deleted.is_ok() {
            lost.push(format!("{code}: {deleted:?}, {}", shown["copyCompletionError"]));
        }
    }
    assert!(lost.is_empty(), "{lost:#?}");
}
