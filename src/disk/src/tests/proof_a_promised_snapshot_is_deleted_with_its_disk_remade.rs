//! Proof: the local snapshot of one in another region was answered OK, holds the content of that moment, and waits for its turn to
//! be copied. A person deletes the disk and makes it again under its name, from a backup say. The next CreateSnapshot deletes the
//! only snapshot of the old content, and takes one of the new disk, which it answers as the same snapshot.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use lazuli_emulator::{
    Options,
    latency::Profile,
    scenario::{self, Scenario},
};
use lazuli_model::{ArmId, fault::Code};
use lazuli_volume::{
    AccessMode, AccessType, Capability, DISK_TOPOLOGY_KEY, Defaults, Request, plan_create, snapshot::SnapshotRequest,
};
use serde_json::Value;
use tokio::time::sleep;

use super::rig::{Rig, disk};
use crate::Volumes;

const SEEDS: std::ops::Range<u64> = 1..11;
const ELSEWHERE: &str = "northeurope";

fn defaults() -> Defaults {
    Defaults {
        subscription: scenario::SUBSCRIPTION.into(),
        resource_group: scenario::RESOURCE_GROUP.into(),
        location: scenario::LOCATION.into(),
        ..Defaults::default()
    }
}

/// A PremiumV2 disk in zone 1.
async fn make(volumes: &Volumes, name: &str) {
    let zone = BTreeMap::from([(DISK_TOPOLOGY_KEY.to_owned(), format!("{}-1", scenario::LOCATION))]);
    let access_type = Some(AccessType::Mount { fs_type: String::new(), flags: Vec::new() });
    let request = Request {
        name: name.into(),
        parameters: [("skuName".to_owned(), "PremiumV2_LRS".to_owned())].into(),
        required_bytes: 4 << 30,
        capabilities: vec![Capability { access_type, access_mode: AccessMode::SingleNodeWriter }],
        requisite: vec![zone.clone()],
        preferred: vec![zone],
        ..Request::default()
    };
    volumes.create(&plan_create(&request, &defaults()).unwrap()).await.unwrap();
}

fn id(name: &str) -> ArmId {
    ArmId::snapshot(scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP, name).unwrap()
}

fn properties(rig: &Rig, name: &str) -> Value {
    rig.emulator.control().resource(id(name).as_str()).map(|doc| doc["properties"].clone()).unwrap_or_default()
}

fn request(name: &str) -> SnapshotRequest {
    SnapshotRequest {
        name: name.into(),
        volume: disk("db").to_string().parse().unwrap(),
        parameters: [("location".to_owned(), ELSEWHERE.to_owned())].into(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_local_snapshot_that_was_answered_is_copied_or_stays_whatever_has_its_disk_s_name_now() {
    let mut lost = Vec::new();
    for seed in SEEDS {
        let options = Options {
            seed,
            throttling: false,
            retry_after: Some(0),
            latency: Profile::typical(),
            scenario: Scenario::default(),
            ..Options::default()
        };
        let rig = Rig::start(options).await;
        let volumes = rig.replica(seed);
        make(&volumes, "db").await;
        let of_db = rig.emulator.control().resource(disk("db").as_str()).unwrap()["properties"]["uniqueId"].clone();
        // An older snapshot of the disk is being copied, and takes its time.
        let older = request("snapshot-0");
        for _ in 0..1_000 {
            _ = volumes.create_snapshot(older.clone(), Arc::new(defaults())).await;
            if !properties(&rig, "snapshot-0").is_null() {
                break;
            }
            sleep(Duration::from_secs(5)).await;
        }
        // The one that matters is answered OK: the application goes on, and its content is that of this moment.
        let asked = request("snapshot-1");
        let promised = volumes.create_snapshot(asked.clone(), Arc::new(defaults())).await.unwrap();
        assert!(!promised.is_ready);
        assert_eq!(properties(&rig, "local_snapshot-1")["creationData"]["sourceUniqueId"], of_db, "seed {seed}");
        // Its local snapshot becomes complete, and waits for its turn.
        let mut waits = false;
        for _ in 0..2_000 {
            let local = properties(&rig, "local_snapshot-1");
            if local["completionPercent"] == 100 && properties(&rig, "snapshot-1").is_null() {
                waits = true;
                break;
            }
            sleep(Duration::from_secs(1)).await;
        }
        assert!(waits, "seed {seed}");
        let first = properties(&rig, "local_snapshot-1")["uniqueId"].clone();
        // The disk is deleted and made again under its name, as by a person: through another process.
        let person = rig.replica(seed + 100);
        sleep(Duration::from_secs(30)).await;
        person.delete(&disk("db")).await.unwrap();
        sleep(Duration::from_secs(60)).await;
        make(&person, "db").await;
        sleep(Duration::from_secs(60)).await;
        let mut answers = Vec::new();
        let mut done = None;
        for n in 0..2_000 {
            // external-snapshotter repeats both. A replica may have taken over.
            let replica = if seed % 2 == 0 { &volumes } else { &person };
            _ = replica.create_snapshot(older.clone(), Arc::new(defaults())).await;
            match replica.create_snapshot(asked.clone(), Arc::new(defaults())).await {
                Ok(view) if view.is_ready => {
                    done = Some(view);
                    break;
                }
                Ok(_) => {}
                Err(error) if error.code == Code::Aborted || error.code == Code::Unavailable => {
                    answers.push(format!("{n}: {:?}: {}", error.code, error.why));
                }
                Err(error) => {
                    answers.push(format!("{n}: {:?}: {}", error.code, error.why));
                    break;
                }
            }
            sleep(Duration::from_secs(5)).await;
        }
        let local = properties(&rig, "local_snapshot-1");
        let copy = properties(&rig, "snapshot-1");
        let is_kept = local["uniqueId"] == first || copy["creationData"]["sourceUniqueId"] == first;
        if !is_kept {
            let told = done.map(|view| (view.is_ready, promised.created, view.created));
            lost.push(format!("seed {seed}: answered {told:?}; copied is {}", copy["creationData"]["sourceUniqueId"]));
        }
    }
    assert!(lost.is_empty(), "{} of 10: {lost:#?}", lost.len());
}
