//! Snapshots against the emulator: made, found again, refused, copied into another region, deleted.

use std::{collections::BTreeMap, error::Error as _, sync::Arc, time::Duration};

use futures::future::join_all;
use lazuli_emulator::{
    Options,
    latency::Profile,
    scenario::{self, AttachTo, Scenario, VirtualMachine},
};
use lazuli_model::{ArmId, disk_tags, fault::Code};
use lazuli_volume::{
    Defaults,
    snapshot::{SnapshotLimit, SnapshotRefusal, SnapshotRequest, SnapshotView},
};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::rig::{Rig, disk, disks, lagging};
use crate::{DeleteError, ExpandError, SnapshotError, SnapshotFailure, Volumes};

pub(super) const ELSEWHERE: &str = "northeurope";

/// Disks of two types, of which one is attached.
pub(super) fn a_cluster() -> Scenario {
    let mut scenario =
        Scenario { virtual_machines: vec![VirtualMachine::pattern("node-{}", 1)], ..Scenario::default() };
    scenario.disks = disks(["standard", "other", "fast"].map(str::to_owned));
    scenario.disks[0].attach_to = Some(AttachTo { vm: "node-0".into(), lun: 1 });
    scenario.disks[2].sku = "PremiumV2_LRS".into();
    scenario.disks[2].zone = Some("1".into());
    scenario
}

pub(super) fn calm() -> Options {
    let scenario = a_cluster();
    Options { throttling: false, retry_after: Some(0), latency: Profile::typical(), scenario, ..Options::default() }
}

pub(super) fn defaults() -> Arc<Defaults> {
    Arc::new(Defaults {
        subscription: scenario::SUBSCRIPTION.into(),
        resource_group: scenario::RESOURCE_GROUP.into(),
        location: Scenario::default().location,
        ..Defaults::default()
    })
}

pub(super) fn snapshot(name: &str) -> ArmId {
    ArmId::snapshot(scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP, name).unwrap()
}

pub(super) fn request(name: &str, of: &str, parameters: &[(&str, &str)]) -> SnapshotRequest {
    let parameters = parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let volume: ArmId = disk(of).to_string().parse().unwrap();
    SnapshotRequest { name: name.to_owned(), volume, parameters }
}

pub(super) async fn take(volumes: &Volumes, request: &SnapshotRequest) -> Result<SnapshotView, SnapshotError> {
    volumes.create_snapshot(request.clone(), defaults()).await
}

/// The names of the snapshots that Azure has.
pub(super) fn there(rig: &Rig) -> Vec<String> {
    let dump = serde_json::to_value(rig.emulator.control().dump()).unwrap();
    let mut names = Vec::new();
    names_below(&dump, &mut names);
    names.sort();
    names.dedup();
    names
}

fn names_below(value: &Value, names: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            if members.get("type").is_some_and(|kind| kind == "Microsoft.Compute/snapshots")
                && let Some(name) = members.get("name").and_then(Value::as_str)
            {
                names.push(name.to_owned());
            }
            members.values().for_each(|member| names_below(member, names));
        }
        Value::Array(items) => items.iter().for_each(|item| names_below(item, names)),
        _ => {}
    }
}

/// How many reads of such paths were sent since the log was reset.
fn sent(rig: &Rig, is_it: impl Fn(&str) -> bool) -> usize {
    let log = rig.emulator.control().call_log();
    let path = |path: &str| path.split('?').next().unwrap_or_default().to_owned();
    log.iter().filter(|call| call.plane == "arm" && call.method == "GET" && is_it(&path(&call.path))).count()
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_of_an_attached_disk_is_taken_once_and_found_again_by_any_process() {
    let rig = Rig::start(calm()).await;
    let volumes = rig.replica(1);
    let asked = request("snapshot-1", "standard", &[("tags", "team=red")]);
    let taken = take(&volumes, &asked).await.unwrap();
    assert_eq!((taken.snapshot.clone(), taken.is_ready), (snapshot("snapshot-1"), true));
    assert_eq!((taken.size_bytes, taken.source_volume_id.as_str()), (4 << 30, disk("standard").as_str()));
    let document = rig.emulator.control().resource(taken.snapshot.as_str()).unwrap();
    assert_eq!(document["tags"]["team"], "red");
    assert_eq!(document["tags"][disk_tags::REQUEST], "snapshot-1");
    assert_eq!(document["properties"]["incremental"], true);
    rig.emulator.control().reset_log();
    assert_eq!(take(&volumes, &asked).await.unwrap(), taken);
    assert_eq!(take(&rig.replica(2), &asked).await.unwrap(), taken);
    assert_eq!(rig.writes(), 0);
    assert_eq!(volumes.snapshot(&taken.snapshot).await.unwrap().created, taken.created);
}

#[tokio::test(start_paused = true)]
async fn two_processes_that_take_one_snapshot_at_the_same_time_take_one() {
    let rig = Rig::start(lagging(3, a_cluster())).await;
    let (one, other) = (rig.replica(1), rig.replica(2));
    let asked = request("snapshot-1", "standard", &[]);
    let (one, other) = futures::join!(take(&one, &asked), take(&other, &asked));
    // A second PUT would be refused as a conflict.
    let views: Vec<SnapshotView> = [one, other].into_iter().flatten().collect();
    assert!(!views.is_empty());
    assert_eq!(take(&rig.replica(3), &asked).await.unwrap(), views[0]);
    assert_eq!(there(&rig), ["snapshot-1"]);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_of_another_source_is_not_taken_for_it() {
    let rig = Rig::start(calm()).await;
    let volumes = rig.replica(1);
    take(&volumes, &request("snapshot-1", "standard", &[])).await.unwrap();
    let error = take(&volumes, &request("snapshot-1", "other", &[])).await.unwrap_err();
    assert_eq!(error.code, Code::AlreadyExists);
    assert!(matches!(error.why, SnapshotFailure::Refused(SnapshotRefusal::Mismatch(_))), "{}", error.why);
    // The disk is deleted and made again under its name: another source.
    take(&volumes, &request("snapshot-2", "other", &[])).await.unwrap();
    let id = disk("other");
    rig.emulator.control().tamper(id.as_str(), |disk| disk["properties"]["uniqueId"] = json!("remade")).unwrap();
    let error = take(&volumes, &request("snapshot-2", "other", &[])).await.unwrap_err();
    assert_eq!(error.code, Code::AlreadyExists);
    assert!(error.why.to_string().contains("remade"), "{}", error.why);
}

#[tokio::test(start_paused = true)]
async fn without_a_source_there_is_only_what_was_taken_before() {
    let rig = Rig::start(calm()).await;
    let volumes = rig.replica(1);
    let asked = request("snapshot-1", "other", &[]);
    let taken = take(&volumes, &asked).await.unwrap();
    volumes.delete(&disk("other")).await.unwrap();
    assert_eq!(take(&rig.replica(2), &asked).await.unwrap(), taken);
    let error = take(&volumes, &request("snapshot-2", "other", &[])).await.unwrap_err();
    assert_eq!(error.code, Code::NotFound);
    let error = take(&volumes, &request("snapshot-2", "standard", &[("colour", "red")])).await.unwrap_err();
    assert_eq!((error.code, rig.writes() > 0), (Code::InvalidArgument, true));
    assert_eq!(there(&rig), ["snapshot-1"]);
}

#[tokio::test(start_paused = true)]
async fn the_eighth_snapshot_in_five_minutes_waits_and_says_for_how_long() {
    let rig = Rig::start(calm()).await;
    let volumes = rig.replica(1);
    for n in 0..7 {
        take(&volumes, &request(&format!("snapshot-{n}"), "standard", &[])).await.unwrap();
    }
    let eighth = request("snapshot-7", "standard", &[]);
    let error = take(&volumes, &eighth).await.unwrap_err();
    assert_eq!(error.code, Code::Aborted);
    let SnapshotFailure::Limit(SnapshotLimit::TooFast { wait_seconds, .. }) = error.why else {
        panic!("{}", error.why)
    };
    sleep(Duration::from_secs(wait_seconds + 1)).await;
    assert!(take(&volumes, &eighth).await.unwrap().is_ready);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_forgotten_after_a_put_that_may_have_been_sent() {
    let refusals = |times: u64| {
        [
            json!({"status": 429, "code": "TooManyRequests", "retryAfter": 5}),
            json!({"status": 500, "code": "InternalServerError"}),
            json!({"status": 403, "code": "AuthorizationFailed"}),
            json!({"status": 409, "code": "Conflict"}),
            json!({"status": 400, "code": "InvalidParameter"}),
            json!({"loseAnswer": "after"}),
            json!({"loseAnswer": "before"}),
            json!({"lateFailure": {"code": "InternalExecutionError", "message": "m"}}),
        ]
        .map(|then| json!({"match": {"method": "PUT", "path": "*/snapshots/*"}, "then": then, "times": times}))
    };
    for incident in refusals(1).into_iter().chain(refusals(0)) {
        let rig = Rig::start(calm()).await;
        let asked = request("snapshot-1", "standard", &[]);
        rig.incident(incident.clone());
        if let Err(error) = take(&rig.replica(1), &asked).await {
            let leaves = !there(&rig).is_empty();
            assert!(!leaves || error.code.may_be_in_progress(), "{incident}: {:?} {}", error.code, error.why);
        }
        // Whatever the first process has met, the next one takes the snapshot once Azure does.
        rig.emulator.control().clear_incidents();
        sleep(Duration::from_secs(60)).await;
        let taken = take(&rig.replica(2), &asked).await;
        assert!(taken.as_ref().is_ok_and(|taken| taken.is_ready), "{incident}: {taken:?}");
        assert_eq!(there(&rig), ["snapshot-1"], "{incident}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_that_is_forbidden_is_never_the_end_of_a_snapshot() {
    let rig = Rig::start(calm()).await;
    let asked = request("snapshot-1", "standard", &[]);
    take(&rig.replica(1), &asked).await.unwrap();
    for path in ["*/disks/*", "*/snapshots/*"] {
        rig.incident(json!({
            "match": {"method": "GET", "path": path}, "then": {"status": 403, "code": "AuthorizationFailed"}, "times": 0,
        }));
        let error = take(&rig.replica(2), &asked).await.unwrap_err();
        assert_eq!(error.code, Code::Unavailable, "{path}");
        rig.emulator.control().clear_incidents();
    }
}

/// Asks again and again, as external-snapshotter does, until the snapshot is ready. Each call is of another process, and
/// the caller of each gives up after a while.
pub(super) async fn until_ready(rig: &Rig, asked: &SnapshotRequest, patience: Duration) -> SnapshotView {
    for seed in 1..2_000 {
        let volumes = rig.replica(seed);
        let asked = timeout(patience, take(&volumes, asked)).await;
        if let Ok(taken) = asked {
            match taken {
                Ok(view) if view.is_ready => return view,
                Ok(_) => {}
                Err(error) => assert!(error.code.may_be_in_progress(), "{:?} {}", error.code, error.why),
            }
        }
        sleep(Duration::from_secs(5)).await;
    }
    panic!("it is never ready");
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_in_another_region_is_copied_by_whichever_process_is_asked_and_leaves_no_local_one() {
    for patience_ms in [700, 1_500, 2_900, 4_300, 6_100, 60_000] {
        let rig = Rig::start(calm()).await;
        let asked = request("snapshot-1", "standard", &[("location", ELSEWHERE)]);
        let taken = until_ready(&rig, &asked, Duration::from_millis(patience_ms)).await;
        assert_eq!((taken.snapshot.clone(), taken.size_bytes), (snapshot("snapshot-1"), 4 << 30));
        sleep(Duration::from_secs(60)).await;
        assert_eq!(there(&rig), ["snapshot-1"], "{patience_ms} ms");
        let document = rig.emulator.control().resource(taken.snapshot.as_str()).unwrap();
        assert_eq!(document["location"], ELSEWHERE);
        assert_eq!(rig.replica(9).snapshot(&taken.snapshot).await.unwrap().source_volume_id, disk("standard").as_str());
        rig.replica(9).delete_snapshot(&taken.snapshot).await.unwrap();
        assert!(there(&rig).is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn the_deletion_of_a_snapshot_takes_its_local_one_along_whatever_is_there_of_it() {
    for steps in 0..4 {
        let rig = Rig::start(calm()).await;
        let volumes = rig.replica(1);
        let asked = request("snapshot-1", "standard", &[("location", ELSEWHERE)]);
        for _ in 0..steps {
            _ = take(&volumes, &asked).await.unwrap();
            sleep(Duration::from_secs(10)).await;
        }
        let id = snapshot("snapshot-1");
        // Azure refuses the deletion of what is being copied from.
        for _ in 0..100 {
            if timeout(Duration::from_secs(3), rig.replica(2).delete_snapshot(&id)).await.is_ok_and(|gone| gone.is_ok())
            {
                break;
            }
            sleep(Duration::from_secs(10)).await;
        }
        sleep(Duration::from_secs(60)).await;
        assert!(there(&rig).is_empty(), "after {steps} steps: {:?}", there(&rig));
        rig.replica(3).delete_snapshot(&id).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_region_that_azure_refuses_leaves_no_local_snapshot_and_is_not_tried_again_soon() {
    let rig = Rig::start(calm()).await;
    let volumes = rig.replica(1);
    let wrong = request("snapshot-1", "standard", &[("location", "atlantis")]);
    let mut refused = take(&volumes, &wrong).await;
    while refused.is_ok() {
        sleep(Duration::from_secs(10)).await;
        refused = take(&volumes, &wrong).await;
    }
    let error = refused.unwrap_err();
    let azure = error.why.source().map(ToString::to_string).unwrap_or_default();
    assert!(azure.contains("snapshot-1"), "{azure}");
    let words = error.why.to_string();
    assert!(
        ["location", "atlantis", "LocationNotAvailableForResourceType"].iter().all(|it| words.contains(it)),
        "{words}"
    );
    // A late repetition of the write that made the local snapshot may still come.
    assert!(error.code.may_be_in_progress(), "{:?}", error.code);
    assert!(there(&rig).is_empty(), "{:?}", there(&rig));
    rig.emulator.control().reset_log();
    for (name, wait, code) in [
        ("snapshot-1", 0, Code::Unavailable),
        ("snapshot-1", 600, Code::InvalidArgument),
        ("snapshot-2", 0, Code::InvalidArgument),
    ] {
        sleep(Duration::from_secs(wait)).await;
        let error = take(&volumes, &request(name, "standard", &[("location", "Atlantis")])).await.unwrap_err();
        assert_eq!(error.code, code, "{}", error.why);
    }
    assert_eq!(rig.writes(), 0, "this process knows it");
    let good = request("snapshot-3", "standard", &[("location", ELSEWHERE)]);
    until_ready(&rig, &good, Duration::from_secs(60)).await;
    assert_eq!(there(&rig), ["snapshot-3"]);
}

#[tokio::test(start_paused = true)]
async fn a_person_s_snapshot_with_the_name_of_a_local_one_stays() {
    let rig = Rig::start(calm()).await;
    let volumes = rig.replica(1);
    take(&volumes, &request("local_snapshot-1", "standard", &[])).await.unwrap();
    let id = snapshot("local_snapshot-1");
    rig.emulator.control().tamper(id.as_str(), |snapshot| snapshot["tags"] = json!({"mine": "yes"})).unwrap();
    volumes.delete_snapshot(&snapshot("snapshot-1")).await.unwrap();
    assert_eq!(there(&rig), ["local_snapshot-1"]);
}

#[tokio::test(start_paused = true)]
async fn a_disk_whose_snapshots_still_need_it_neither_grows_nor_goes() {
    let rig = Rig::start(calm()).await;
    let volumes = rig.replica(1);
    let asked = request("snapshot-1", "fast", &[]);
    assert!(!take(&volumes, &asked).await.unwrap().is_ready);
    let error = volumes.expand(&disk("fast"), 8 << 30, 0).await.unwrap_err();
    assert!(matches!(error, ExpandError::Snapshots(_)), "{error}");
    assert!(error.to_string().contains("snapshot-1"), "{error}");
    let error = volumes.delete(&disk("fast")).await.unwrap_err();
    assert!(matches!(error, DeleteError::Snapshots(_)), "{error}");
    until_ready(&rig, &asked, Duration::from_secs(60)).await;
    volumes.expand(&disk("fast"), 8 << 30, 0).await.unwrap();
    sleep(Duration::from_secs(10)).await;
    volumes.delete(&disk("fast")).await.unwrap();
    // Other types are copied when their snapshot is made.
    take(&volumes, &request("snapshot-2", "other", &[])).await.unwrap();
    volumes.delete(&disk("other")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn many_that_wait_for_their_snapshots_share_lists_and_read_once_alone() {
    const MANY: usize = 100;
    let mut scenario = a_cluster();
    scenario.disks = disks((0..MANY).map(|n| format!("fast-{n}")));
    for disk in &mut scenario.disks {
        disk.sku = "PremiumV2_LRS".into();
        disk.zone = Some("1".into());
    }
    let rig = Rig::start(Options { scenario, ..calm() }).await;
    let volumes = rig.replica(1);
    let asked: Vec<SnapshotRequest> =
        (0..MANY).map(|n| request(&format!("snapshot-{n}"), &format!("fast-{n}"), &[])).collect();
    for taken in join_all(asked.iter().map(|asked| take(&volumes, asked))).await {
        assert!(!taken.unwrap().is_ready);
    }
    rig.emulator.control().reset_log();
    let mut ready: BTreeMap<usize, ()> = BTreeMap::new();
    let mut rounds = 0;
    while ready.len() < MANY {
        rounds += 1;
        assert!(rounds < 200, "{} of {MANY} are ready", ready.len());
        sleep(Duration::from_secs(5)).await;
        let open: Vec<usize> = (0..MANY).filter(|n| !ready.contains_key(n)).collect();
        for (n, taken) in open.iter().zip(join_all(open.iter().map(|n| take(&volumes, &asked[*n]))).await) {
            if taken.unwrap().is_ready {
                ready.insert(*n, ());
            }
        }
    }
    let (lists, single) =
        (sent(&rig, |path| path.ends_with("/snapshots")), sent(&rig, |path| path.contains("/snapshots/")));
    assert!(lists <= rounds + 8, "{lists} lists in {rounds} rounds");
    assert!(single <= MANY, "{single} reads");
    assert_eq!(rig.writes(), 0);
}

#[tokio::test(start_paused = true)]
async fn snapshots_are_listed_by_volume_each_once_and_in_order() {
    let rig = Rig::start(calm()).await;
    let volumes = rig.replica(1);
    for (name, of) in [("snapshot-2", "standard"), ("snapshot-1", "other"), ("snapshot-3", "other")] {
        take(&volumes, &request(name, of, &[])).await.unwrap();
    }
    let names = async |source: Option<&str>| -> Vec<String> {
        let source: Option<ArmId> = source.map(|name| disk(name).to_string().to_uppercase().parse().unwrap());
        let listed = volumes.list_snapshots(source.as_ref()).await.unwrap();
        listed.iter().map(|view| view.snapshot.name().to_owned()).collect()
    };
    assert_eq!(names(None).await, ["snapshot-1", "snapshot-2", "snapshot-3"]);
    assert_eq!(names(Some("other")).await, ["snapshot-1", "snapshot-3"]);
    assert!(names(Some("fast")).await.is_empty());
}
