//! Snapshots that Azure has failed to make or to fill: their VolumeSnapshots can be deleted, and nothing of them is left.
//!
//! external-snapshotter 8.7.0 (pkg/sidecar-controller/snapshot_controller.go) marks a VolumeSnapshotContent with the annotation
//! snapshot.storage.kubernetes.io/volumesnapshot-being-created before each CreateSnapshot, also of one whose handle it knows.
//! It takes the mark off after OK and after a final code alone. While the mark is there it sends no DeleteSnapshot.

use std::time::Duration;

use lazuli_volume::snapshot::SnapshotRequest;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    rig::Rig,
    snapshots::{ELSEWHERE, calm, request, snapshot, take, there},
};

/// The snapshot fails in Azure.
fn fail(rig: &Rig, name: &str, how: impl FnOnce(&mut Value)) {
    rig.emulator.control().tamper(snapshot(name).as_str(), how).unwrap();
}

fn copy_fails(document: &mut Value) {
    document["properties"]["copyCompletionError"] = json!({"errorCode": "CopySourceNotFound", "errorMessage": "grown"});
}

fn creation_fails(document: &mut Value) {
    document["properties"]["provisioningState"] = json!("Failed");
}

/// The next CreateSnapshot takes the mark off, and tells the failure; a DeleteSnapshot leaves nothing.
async fn is_told_and_deleted(rig: &Rig, asked: &SnapshotRequest, failed: &str, why: &str) {
    for seed in [1, 2] {
        let view = take(&rig.replica(seed), asked).await.unwrap();
        let failure = view.failure.unwrap();
        assert_eq!((view.snapshot, view.is_ready), (snapshot("snapshot-1"), false));
        assert_eq!((failure.snapshot, failure.why.as_str()), (snapshot(failed), why));
    }
    rig.replica(3).delete_snapshot(&snapshot("snapshot-1")).await.unwrap();
    sleep(Duration::from_secs(60)).await;
    assert!(there(rig).is_empty(), "{:?}", there(rig));
}

/// Another program has grown the disk, or the process was killed while Azure failed to make the snapshot.
#[tokio::test(start_paused = true)]
async fn a_snapshot_that_has_failed_is_told_and_can_be_deleted() {
    for (of, is_copy) in [("fast", true), ("fast", false), ("other", false)] {
        let rig = Rig::start(calm()).await;
        let volumes = rig.replica(7);
        let asked = request("snapshot-1", of, &[]);
        assert_eq!(take(&volumes, &asked).await.unwrap().failure, None);
        fail(&rig, "snapshot-1", if is_copy { copy_fails } else { creation_fails });
        sleep(Duration::from_secs(60)).await;
        // The process that remembers it, and others.
        assert!(take(&volumes, &asked).await.unwrap().failure.is_some(), "{of}");
        is_told_and_deleted(&rig, &asked, "snapshot-1", if is_copy { "CopySourceNotFound" } else { "failed" }).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_into_another_region_that_has_failed_is_told_and_can_be_deleted_with_its_local_snapshot() {
    for fails_locally in [true, false] {
        let rig = Rig::start(calm()).await;
        let asked = request("snapshot-1", "fast", &[("location", ELSEWHERE)]);
        let failing = if fails_locally { "local_snapshot-1" } else { "snapshot-1" };
        let volumes = rig.replica(7);
        while !there(&rig).contains(&failing.to_owned()) {
            _ = take(&volumes, &asked).await;
            sleep(Duration::from_secs(5)).await;
        }
        fail(&rig, failing, copy_fails);
        sleep(Duration::from_secs(60)).await;
        assert!(take(&volumes, &asked).await.unwrap().failure.is_some());
        is_told_and_deleted(&rig, &asked, failing, "CopySourceNotFound").await;
    }
}
