//! Deletions of disks whose type another replica has changed: what this process knew of it before costs no snapshot its
//! content, and an ordinary deletion costs no read for it.

use std::{collections::BTreeMap, time::Duration};

use lazuli_emulator::{Options, latency::Profile, scenario::Scenario};
use lazuli_volume::{
    AccessMode, AccessType, Capability, Cloud, DISK_TOPOLOGY_KEY, Request, plan_create, snapshot::SnapshotRequest,
};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    rig::{Rig, disk, lagging},
    snapshots::{defaults, request, snapshot, take},
};
use crate::{DeleteError, Volumes};

const SEEDS: std::ops::Range<u64> = 1..11;
const MINUTE: Duration = Duration::from_secs(60);

/// A Premium SSD in zone 1, made by this replica.
async fn make(volumes: &Volumes, name: &str) {
    let zone = BTreeMap::from([(DISK_TOPOLOGY_KEY.to_owned(), format!("{}-1", defaults().location))]);
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

fn asked() -> SnapshotRequest {
    request("snapshot-1", "pvc-1", &[])
}

fn copy_error(rig: &Rig) -> Value {
    let document = rig.emulator.control().resource(snapshot("snapshot-1").as_str());
    document.map(|document| document["properties"]["copyCompletionError"].clone()).unwrap_or_default()
}

/// Lists lag, and operations take their time.
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
    sleep(MINUTE).await;
    (rig, one, other)
}

/// The snapshot is this very process's own, and a list does not show it yet.
#[tokio::test(start_paused = true)]
async fn a_snapshot_that_this_process_has_just_taken_keeps_its_disk_whoever_changed_the_disks_type() {
    for seed in SEEDS {
        let (rig, one, _other) = made_and_converted(seed).await;
        assert!(!take(&one, &asked()).await.unwrap().is_ready, "its content is in the disk alone");
        let deleted = one.delete(&disk("pvc-1")).await;
        sleep(MINUTE).await;
        assert!(matches!(deleted, Err(DeleteError::Snapshots(_))), "seed {seed}: {deleted:?}");
        assert!(copy_error(&rig).is_null(), "seed {seed}");
    }
}

/// The snapshot is old, and no list can be read: nothing shows that no snapshot needs the disk.
#[tokio::test(start_paused = true)]
async fn without_a_list_no_disk_goes_that_another_replica_made_a_premium_v2_disk() {
    for (status, code) in [(403, "AuthorizationFailed"), (503, "ServiceUnavailable"), (429, "TooManyRequests")] {
        let (rig, one, other) = made_and_converted(1).await;
        assert!(!take(&other, &asked()).await.unwrap().is_ready);
        let slowly = |document: &mut Value| document["properties"]["completionPercent"] = json!(10);
        rig.emulator.control().tamper(snapshot("snapshot-1").as_str(), slowly).unwrap();
        rig.incident(json!({
            "match": {"method": "GET", "path": "*/snapshots"}, "then": {"status": status, "code": code}, "times": 0,
        }));
        let deleted = one.delete(&disk("pvc-1")).await;
        sleep(MINUTE).await;
        assert!(matches!(deleted, Err(DeleteError::Failed(_))), "{code}: {deleted:?}");
        assert!(copy_error(&rig).is_null(), "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_reads_the_type_of_a_disk_only_where_nothing_has_shown_it_of_late() {
    for (age, is_shown, reads) in [(1, false, 0), (60, false, 1), (60, true, 0)] {
        let rig = slow(1).await;
        let one = rig.replica(1);
        make(&one, "pvc-1").await;
        sleep(age * MINUTE).await;
        if is_shown {
            one.list().await.unwrap();
        }
        rig.emulator.control().reset_log();
        one.delete(&disk("pvc-1")).await.unwrap();
        let log = rig.emulator.control().call_log();
        let is_read = |path: &str| path.split('?').next().is_some_and(|path| path.ends_with("/disks/pvc-1"));
        let sent = log.iter().filter(|call| call.method == "GET" && is_read(&call.path)).count();
        assert_eq!(sent, reads, "after {age} min, shown {is_shown}");
    }
}
