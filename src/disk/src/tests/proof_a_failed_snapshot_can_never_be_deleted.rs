//! Proof: a snapshot that Azure has failed to make is answered UNAVAILABLE for ever, and its VolumeSnapshot can never be deleted.
//!
//! external-snapshotter 8.7.0 (pkg/sidecar-controller/snapshot_controller.go) marks a VolumeSnapshotContent with the annotation
//! snapshot.storage.kubernetes.io/volumesnapshot-being-created before each CreateSnapshot (`createSnapshotWrapper`), also of one
//! whose handle it knows. It takes the mark off after OK and after a final code alone. While the mark is there it sends no
//! DeleteSnapshot (`shouldDelete`). The answer says "delete its VolumeSnapshot and make another one".

use std::{sync::Arc, time::Duration};

use lazuli_emulator::{
    Options,
    latency::Profile,
    scenario::{self, Scenario},
};
use lazuli_model::{ArmId, fault::Code};
use lazuli_volume::{Defaults, snapshot::SnapshotRequest};
use serde_json::json;
use tokio::time::sleep;

use super::rig::{Rig, disk, disks};
use crate::Volumes;

const ELSEWHERE: &str = "northeurope";

fn defaults() -> Arc<Defaults> {
    Arc::new(Defaults {
        subscription: scenario::SUBSCRIPTION.into(),
        resource_group: scenario::RESOURCE_GROUP.into(),
        location: Scenario::default().location,
        ..Defaults::default()
    })
}

async fn rig() -> Rig {
    let mut disks = disks(["standard", "fast"].map(str::to_owned));
    disks[1].sku = "PremiumV2_LRS".into();
    disks[1].zone = Some("1".into());
    let scenario = Scenario { disks, ..Scenario::default() };
    Rig::start(Options {
        throttling: false,
        retry_after: Some(0),
        latency: Profile::typical(),
        scenario,
        ..Options::default()
    })
    .await
}

fn request(of: &str, parameters: &[(&str, &str)]) -> SnapshotRequest {
    SnapshotRequest {
        name: "snapshot-1".into(),
        volume: disk(of).to_string().parse().unwrap(),
        parameters: parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
    }
}

fn snapshot(name: &str) -> ArmId {
    ArmId::snapshot(scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP, name).unwrap()
}

/// A VolumeSnapshotContent, and what external-snapshotter does about it.
#[derive(Debug, Default)]
struct Content {
    is_being_created: bool,
    handle: Option<ArmId>,
    last: Option<String>,
}

impl Content {
    /// One sync of a content that is not ready.
    async fn sync(&mut self, volumes: &Volumes, request: &SnapshotRequest) {
        self.is_being_created = true;
        match volumes.create_snapshot(request.clone(), defaults()).await {
            Ok(view) => {
                self.handle = Some(view.snapshot);
                self.is_being_created = false;
            }
            Err(error) => {
                let stays = [
                    Code::Cancelled,
                    Code::DeadlineExceeded,
                    Code::Unavailable,
                    Code::ResourceExhausted,
                    Code::Aborted,
                ];
                self.is_being_created = stays.contains(&error.code);
                self.last = Some(format!("{:?}: {}", error.code, error.why));
            }
        }
    }

    /// A person deletes the VolumeSnapshot: whether it goes within a week. Replicas come and go meanwhile.
    async fn is_deleted(&mut self, rig: &Rig, request: &SnapshotRequest) -> bool {
        for hour in 0..7 * 24 {
            if !self.is_being_created {
                if let Some(handle) = &self.handle {
                    rig.replica(hour).delete_snapshot(handle).await.unwrap();
                }
                return true;
            }
            self.sync(&rig.replica(hour), request).await;
            sleep(Duration::from_secs(3_600)).await;
        }
        false
    }
}

/// Another program grows the disk, so that Azure fails the snapshot.
#[tokio::test(start_paused = true)]
async fn a_snapshot_that_fails_after_its_handle_was_answered_can_be_deleted() {
    let rig = rig().await;
    let volumes = rig.replica(1);
    let asked = request("fast", &[]);
    let mut content = Content::default();
    content.sync(&volumes, &asked).await;
    assert!(content.handle.is_some() && !content.is_being_created, "{content:?}");
    let fails = |doc: &mut serde_json::Value| {
        doc["properties"]["copyCompletionError"] = json!({"errorCode": "CopySourceNotFound", "errorMessage": "grown"});
    };
    rig.emulator.control().tamper(snapshot("snapshot-1").as_str(), fails).unwrap();
    sleep(Duration::from_secs(60)).await;
    content.sync(&volumes, &asked).await;
    assert!(content.is_deleted(&rig, &asked).await, "{content:?}");
}

/// The same of a copy in another region.
#[tokio::test(start_paused = true)]
async fn a_copy_into_another_region_that_fails_can_be_deleted() {
    let rig = rig().await;
    let volumes = rig.replica(1);
    let asked = request("standard", &[("location", ELSEWHERE)]);
    let mut content = Content::default();
    content.sync(&volumes, &asked).await;
    let fails = |doc: &mut serde_json::Value| {
        doc["properties"]["copyCompletionError"] = json!({"errorCode": "InternalServerError", "errorMessage": "no"});
    };
    for _ in 0..100 {
        content.sync(&volumes, &asked).await;
        if rig.emulator.control().tamper(snapshot("snapshot-1").as_str(), fails).is_some() {
            break;
        }
        sleep(Duration::from_secs(1)).await;
    }
    assert!(content.handle.is_some(), "{content:?}");
    sleep(Duration::from_secs(60)).await;
    content.sync(&volumes, &asked).await;
    assert!(content.is_deleted(&rig, &asked).await, "{content:?}");
}

/// The process is killed while Azure makes the snapshot, and Azure fails: the next process finds what that has left.
#[tokio::test(start_paused = true)]
async fn a_snapshot_whose_creation_has_failed_behind_a_kill_is_made_anew_or_can_be_deleted() {
    let rig = rig().await;
    let asked = request("standard", &[]);
    // As far as external-snapshotter is concerned: asked for, and not answered.
    rig.replica(1).create_snapshot(asked.clone(), defaults()).await.unwrap();
    let mut content = Content { is_being_created: true, ..Content::default() };
    let fails = |doc: &mut serde_json::Value| doc["properties"]["provisioningState"] = json!("Failed");
    rig.emulator.control().tamper(snapshot("snapshot-1").as_str(), fails).unwrap();
    sleep(Duration::from_secs(60)).await;
    for attempt in 0..48 {
        content.sync(&rig.replica(attempt + 10), &asked).await;
        if content.handle.is_some() {
            return;
        }
        sleep(Duration::from_secs(600)).await;
    }
    assert!(content.is_deleted(&rig, &asked).await, "{content:?}");
}
