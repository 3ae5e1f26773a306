//! Snapshots while their disks grow or go, and while the snapshots themselves are deleted: no content is lost, and nothing is
//! left behind. Lists lag, and calls are slow.

use std::time::Duration;

use lazuli_emulator::{Options, latency::Profile};
use lazuli_model::fault::{Code, Fault};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::{
    rig::{Rig, disk, lagging},
    snapshots::{ELSEWHERE, a_cluster, calm, request, snapshot, take, there, until_ready},
};
use crate::{DeleteError, ExpandError, Volumes};

const SEEDS: std::ops::Range<u64> = 1..11;

/// An Azure whose lists lag, and whose operations take their time.
async fn slow(seed: u64) -> Rig {
    Rig::start(Options { latency: Profile::typical(), ..lagging(seed, a_cluster()) }).await
}

fn properties(rig: &Rig, name: &str) -> Option<Value> {
    rig.emulator.control().resource(snapshot(name).as_str()).map(|document| document["properties"].clone())
}

/// A deletion or a growth of the disk: whether it was done.
async fn against(volumes: &Volumes, grows: bool) -> bool {
    match grows {
        true => volumes.expand(&disk("fast"), 8 << 30, 0).await.is_ok(),
        false => volumes.delete(&disk("fast")).await.is_ok(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_is_taken_while_its_disk_goes_or_grows_keeps_its_content_or_is_not_taken() {
    let (mut done, mut taken) = (0, 0);
    for seed in SEEDS {
        for grows in [false, true] {
            let rig = slow(seed).await;
            rig.delay("GET", "*/snapshots", Duration::from_millis(300 * (seed % 4)));
            rig.delay(if grows { "PATCH" } else { "DELETE" }, "*/disks/*", Duration::from_secs(3));
            let volumes = rig.replica(seed);
            let asked = request("snapshot-1", "fast", &[]);
            // One of the two comes first, by less or more.
            let (first, second) = (Duration::ZERO, Duration::from_millis(450 * (seed / 2)));
            let (starts, takes) = if seed % 2 == 0 { (first, second) } else { (second, first) };
            let against = async {
                sleep(starts).await;
                against(&volumes, grows).await
            };
            let taking = async {
                sleep(takes).await;
                take(&volumes, &asked).await
            };
            let (was_done, was_taken) = futures::join!(against, taking);
            sleep(Duration::from_secs(60)).await;
            let shown = properties(&rig, "snapshot-1");
            let error = shown.as_ref().map_or(&Value::Null, |shown| &shown["copyCompletionError"]);
            assert!(error.is_null(), "seed {seed}, grows {grows}: {shown:?}");
            assert_eq!(shown.is_some(), was_taken.is_ok(), "seed {seed}, grows {grows}: {was_taken:?}");
            done += usize::from(was_done);
            taken += usize::from(was_taken.is_ok());
        }
    }
    assert!(done > 3 && taken > 3, "{done} were done, and {taken} snapshots taken");
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_was_just_taken_keeps_its_disk_whatever_a_list_shows() {
    for seed in SEEDS {
        for gives_up in [false, true] {
            let rig = slow(seed).await;
            let volumes = rig.replica(seed);
            let asked = request("snapshot-1", "fast", &[]);
            let patience = if gives_up { Duration::from_millis(2_600) } else { Duration::from_secs(600) };
            _ = timeout(patience, take(&volumes, &asked)).await;
            let mut refused = [None, None];
            for _ in 0..5 {
                // While its PUT is under way the disk is busy with it.
                if let Err(ExpandError::Snapshots(error)) = volumes.expand(&disk("fast"), 8 << 30, 0).await {
                    refused[0] = Some(error.to_string());
                }
                if let Err(DeleteError::Snapshots(error)) = volumes.delete(&disk("fast")).await {
                    refused[1] = Some(error.to_string());
                }
                sleep(Duration::from_millis(500)).await;
            }
            for refused in refused {
                assert!(refused.is_some_and(|told| told.contains("snapshot-1")), "seed {seed}, gives up {gives_up}");
            }
            let shown = properties(&rig, "snapshot-1").unwrap();
            assert!(shown["copyCompletionError"].is_null(), "seed {seed}, gives up {gives_up}: {shown}");
            until_ready(&rig, &asked, Duration::from_secs(60)).await;
            sleep(Duration::from_secs(60)).await;
            assert!(against(&volumes, true).await && against(&volumes, false).await, "seed {seed}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_list_only_what_no_snapshot_needs_goes() {
    for (status, code, fault) in
        [(403, "AuthorizationFailed", Fault::Forbidden), (503, "ServiceUnavailable", Fault::Unavailable)]
    {
        let rig = Rig::start(calm()).await;
        let volumes = rig.replica(1);
        rig.incident(json!({
            "match": {"method": "GET", "path": "*/snapshots"}, "then": {"status": status, "code": code}, "times": 0,
        }));
        let Err(DeleteError::Failed(error)) = volumes.delete(&disk("fast")).await else { panic!("{code}") };
        assert_eq!(error.fault, fault);
        assert!(error.to_string().contains("it cannot be seen whether snapshots need"), "{error}");
        let action = (fault == Fault::Forbidden).then(|| "Microsoft.Compute/snapshots/read".to_owned());
        assert!(action.is_none() || error.action() == action, "{:?}", error.action());
        let Err(ExpandError::Failed(error)) = volumes.expand(&disk("fast"), 8 << 30, 0).await else { panic!("{code}") };
        assert_eq!(error.fault, fault);
        volumes.expand(&disk("other"), 8 << 30, 0).await.unwrap();
        volumes.delete(&disk("other")).await.unwrap();
        rig.emulator.control().clear_incidents();
        sleep(Duration::from_secs(60)).await;
        volumes.delete(&disk("fast")).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_finds_no_snapshot_waits_for_one_that_another_replica_has_sent() {
    for seed in SEEDS {
        let rig = slow(seed).await;
        let (one, other) = (rig.replica(seed), rig.replica(seed + 100));
        rig.delay("PUT", "*/snapshots/*", Duration::from_millis(1_200));
        let asked = request("snapshot-1", "standard", &[]);
        let id = snapshot("snapshot-1");
        let deletion = async {
            sleep(Duration::from_millis(100 * seed)).await;
            other.delete_snapshot(&id).await
        };
        let (_, deleted) = futures::join!(take(&one, &asked), deletion);
        deleted.unwrap();
        sleep(Duration::from_secs(60)).await;
        assert!(there(&rig).is_empty(), "seed {seed}: {:?}", there(&rig));
    }
}

/// The local snapshot holds the content of the moment that was asked for. Its copy waits, or Azure refuses it for now.
#[tokio::test(start_paused = true)]
async fn a_local_snapshot_is_copied_whichever_disk_has_the_name_of_its_source() {
    for is_gone in [false, true] {
        let rig = Rig::start(calm()).await;
        let asked = request("snapshot-1", "other", &[("location", ELSEWHERE)]);
        rig.incident(json!({
            "match": {"method": "PUT", "path": "*/snapshots/snapshot-1"},
            "then": {"status": 503, "code": "ServiceUnavailable"}, "times": 0,
        }));
        take(&rig.replica(1), &asked).await.unwrap_err();
        assert_eq!(there(&rig), ["local_snapshot-1"]);
        let first = properties(&rig, "local_snapshot-1").unwrap()["uniqueId"].clone();
        rig.emulator.control().clear_incidents();
        sleep(Duration::from_secs(60)).await;
        // The disk is deleted, and may be made again under its name.
        if is_gone {
            rig.replica(2).delete(&disk("other")).await.unwrap();
        } else {
            let remade = |disk: &mut Value| disk["properties"]["uniqueId"] = json!("remade");
            rig.emulator.control().tamper(disk("other").as_str(), remade).unwrap();
        }
        until_ready(&rig, &asked, Duration::from_secs(60)).await;
        sleep(Duration::from_secs(60)).await;
        assert_eq!(there(&rig), ["snapshot-1"], "gone {is_gone}");
        let copy = properties(&rig, "snapshot-1").unwrap();
        assert_eq!(copy["creationData"]["sourceUniqueId"], first, "gone {is_gone}: another one was taken");
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_not_ready_is_no_quota_that_is_used_up() {
    let rig = Rig::start(calm()).await;
    rig.incident(json!({
        "match": {"method": "PUT", "path": "*/snapshots/*"},
        "then": {"status": 409, "code": "OperationNotAllowed"}, "times": 1,
    }));
    let volumes = rig.replica(1);
    let asked = request("snapshot-1", "standard", &[]);
    assert_eq!(take(&volumes, &asked).await.unwrap_err().code, Code::Aborted);
    assert!(take(&volumes, &asked).await.unwrap().is_ready);
}
