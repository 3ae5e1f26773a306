//! Volumes from snapshots and clones, on an Azure whose lists lag.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use lazuli_emulator::{
    Options,
    latency::Profile,
    options::{FailedSnapshot, SizeRounding, Switches},
    scenario,
    scenario::Scenario,
};
use lazuli_model::CopyMethod;
use lazuli_model::{
    ArmId, Gib,
    fault::{self, Code, Fault, Rpc},
    snapshot_spec::{SnapshotOrigin, SnapshotSpec, SourceIdentity},
};
use lazuli_storage::{copies::Create, whole_snapshot};
use lazuli_volume::{
    AccessMode, AccessType, Capability, Cloud, DISK_TOPOLOGY_KEY, Defaults, Request, SOURCE_KEY,
    copy::{CopyRefusal, LINE_KEY, Origin},
    snapshot::SnapshotRequest,
};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::rig::{Rig, disk, lagging};
use crate::{CopyError, Created, VolumeError, Volumes};

const GIB: i64 = 1 << 30;

fn defaults() -> Defaults {
    Defaults {
        subscription: scenario::SUBSCRIPTION.into(),
        resource_group: scenario::RESOURCE_GROUP.into(),
        location: scenario::LOCATION.into(),
        ..Defaults::default()
    }
}

/// A claim of so many GiB, in one of these zones.
fn claim(name: &str, gib: i64, zones: &[&str], parameters: &[(&str, &str)]) -> Request {
    let segments =
        |zone: &&str| BTreeMap::from([(DISK_TOPOLOGY_KEY.to_owned(), format!("{}-{zone}", scenario::LOCATION))]);
    let access_type = Some(AccessType::Mount { fs_type: String::new(), flags: Vec::new() });
    Request {
        name: name.into(),
        parameters: parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        required_bytes: gib * GIB,
        capabilities: vec![Capability { access_type, access_mode: AccessMode::SingleNodeWriter }],
        requisite: zones.iter().map(segments).collect(),
        preferred: zones.iter().map(segments).collect(),
        ..Request::default()
    }
}

fn snapshot(name: &str) -> ArmId {
    ArmId::snapshot(scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP, name).unwrap()
}

/// The source of the tests: a Premium disk of 4 GiB in zone 1.
async fn azure(seed: u64) -> Rig {
    Rig::start(with_source(seed)).await
}

fn with_source(seed: u64) -> Options {
    let source = scenario::Disk {
        name: "source".into(),
        size_gib: 4,
        sku: "Premium_LRS".into(),
        zone: Some("1".into()),
        resource_group: None,
        attach_to: None,
        tags: BTreeMap::new(),
    };
    lagging(seed, Scenario { disks: vec![source], ..Scenario::default() })
}

async fn copy(volumes: &Volumes, request: Request, source: &ArmId) -> Result<Created, CopyError> {
    let create: Create<VolumeError> = Create::new(request, source.clone(), defaults()).map_err(CopyError::Parameter)?;
    volumes.create_copy(create).await
}

async fn take_snapshot(volumes: &Volumes, name: &str, of: &ArmId) -> ArmId {
    let spec = SnapshotSpec {
        location: scenario::LOCATION.into(),
        extended_location: None,
        tags: BTreeMap::new(),
        method: CopyMethod::Copy,
        source: of.clone(),
        instant_access_minutes: None,
        incremental: true,
        network_access_policy: None,
        public_network_access: None,
        data_access_auth_mode: None,
        origin: SnapshotOrigin { request: name.into(), volume: of.to_string(), source: SourceIdentity::of(None) },
    };
    let id = snapshot(name);
    volumes.whole_snapshots.request(&id, whole_snapshot::Wanted::Made(spec.into())).await.unwrap();
    id
}

impl Rig {
    fn property(&self, id: &ArmId, pointer: &str) -> serde_json::Value {
        self.emulator.control().resource(id.as_str()).and_then(|doc| doc.pointer(pointer).cloned()).unwrap_or_default()
    }

    /// The snapshots that this driver has made.
    fn carriers(&self) -> Vec<String> {
        let dump = self.emulator.control().dump();
        let names = dump.resources.iter().filter(|(id, _)| id.contains("/snapshots/carry_"));
        names.map(|(id, _)| id.rsplit('/').next().unwrap().to_owned()).collect()
    }

    /// Reads of single disks and snapshots.
    fn reads(&self) -> usize {
        let log = self.emulator.control().call_log();
        let is_single = |path: &str| path.contains("/disks/") || path.contains("/snapshots/");
        log.iter().filter(|call| call.plane == "arm" && call.method == "GET" && is_single(&call.path)).count()
    }

    /// Runs a request until Azure has accepted so many writes, and gives it up then. `None`: it was given up.
    async fn killed_after<T>(&self, writes: usize, request: impl Future<Output = T>) -> Option<T> {
        self.emulator.control().reset_log();
        let watch = async {
            while self.writes() < writes {
                sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            biased;
            done = request => Some(done),
            () = watch => None,
        }
    }
}

fn zone(created: &Created) -> &str {
    let segments = created.adopted.accessible_topology.first().unwrap();
    segments[DISK_TOPOLOGY_KEY].rsplit('-').next().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_restored_larger_of_another_type_and_in_another_zone_and_a_repeated_call_finds_it() {
    let rig = azure(1).await;
    let volumes = rig.replica(1);
    let source = take_snapshot(&volumes, "snap", &disk("source")).await;
    rig.emulator.control().reset_log();
    let request = claim("pvc-1", 8, &["2"], &[("skuName", "StandardSSD_LRS")]);
    let created = copy(&volumes, request.clone(), &source).await.unwrap();
    // The snapshot, the disk that it was taken of, and the new disk behind its permit.
    assert!(rig.reads() <= 3, "{} reads", rig.reads());
    assert_eq!((created.adopted.size, zone(&created)), (Gib::new(8), "2"));
    let context = &created.adopted.volume_context;
    assert_eq!(context[SOURCE_KEY], source.to_string());
    assert_eq!(context[LINE_KEY].split(',').collect::<Vec<_>>(), [source.as_str(), disk("source").as_str()]);
    assert_eq!(context["resizeRequired"], "true");
    assert_eq!(rig.property(&disk("pvc-1"), "/sku/name"), "StandardSSD_LRS");
    assert_eq!(rig.property(&disk("pvc-1"), "/properties/creationData/sourceResourceId"), source.as_str());

    rig.emulator.control().reset_log();
    let again = copy(&rig.replica(2), request.clone(), &source).await.unwrap();
    assert_eq!((again.volume_id, again.adopted), (created.volume_id, created.adopted));
    // Another source, and none, are other requests of the same name.
    let other = take_snapshot(&volumes, "other", &disk("source")).await;
    rig.emulator.control().reset_log();
    for source in [&other, &disk("source")] {
        let refused = copy(&volumes, request.clone(), source).await.unwrap_err();
        assert_eq!(refused.decided().unwrap().0, Code::AlreadyExists, "{refused}");
    }
    let plan = lazuli_volume::plan_create(&request, &defaults()).unwrap();
    assert!(matches!(volumes.create(&plan).await, Err(crate::CreateError::Exists(_))));
    // The source goes; the volume that was made from it stays, and is answered.
    assert_eq!(rig.writes(), 0, "nothing is written for what is there or refused");
    volumes.whole_snapshots.request(&source, whole_snapshot::Wanted::Deleted).await.unwrap();
    copy(&rig.replica(3), request, &source).await.unwrap();
    let gone = copy(&volumes, claim("pvc-2", 8, &["2"], &[]), &source).await.unwrap_err();
    assert_eq!(gone.decided().unwrap().0, Code::NotFound, "{gone}");
    assert_eq!(rig.property(&disk("pvc-2"), "/id"), serde_json::Value::Null);
    rig.emulator.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_clone_is_made_by_one_put_in_its_source_s_zone() {
    let rig = azure(2).await;
    let volumes = rig.replica(1);
    for (name, zones) in [("pvc-1", &["1"][..]), ("pvc-2", &["2", "1"]), ("pvc-3", &[])] {
        rig.emulator.control().reset_log();
        let created = copy(&volumes, claim(name, 4, zones, &[("skuName", "Premium_LRS")]), &disk("source")).await;
        assert_eq!(zone(&created.unwrap()), "1");
        assert_eq!(rig.writes(), 1);
    }
    assert_eq!(rig.carriers(), Vec::<String>::new());
    // A copy is no smaller than what it is made from, where the request has no limit below that.
    let small = claim("pvc-4", 2, &["1"], &[]);
    let limited = Request { limit_bytes: 3 * GIB, ..small.clone() };
    let created = copy(&volumes, small, &disk("source")).await.unwrap();
    assert_eq!(created.adopted.size, Gib::new(4));
    let refused = copy(&volumes, limited, &disk("source")).await.unwrap_err();
    assert!(refused.decided().is_ok_and(|(code, _)| !code.keeps_the_claim()), "{refused}");
    rig.emulator.shutdown().await;
}

/// The carrier is made, the disk, and the carrier is deleted: whatever write is the last of a replica, the next one ends it.
#[tokio::test(start_paused = true)]
async fn a_clone_into_another_zone_is_ended_by_the_next_call_whatever_write_was_the_last() {
    for writes in 0..=4 {
        for late in [Duration::ZERO, Duration::from_secs(5), Duration::from_secs(120)] {
            let rig = azure(3).await;
            let request = claim("pvc-1", 4, &["2"], &[("skuName", "Premium_LRS")]);
            let first = rig.replica(1);
            _ = rig.killed_after(writes, copy(&first, request.clone(), &disk("source"))).await;
            sleep(late).await;
            let second = rig.replica(2);
            let created = loop {
                match copy(&second, request.clone(), &disk("source")).await {
                    Ok(created) => break created,
                    // The other replica is at it.
                    Err(CopyError::Failed(error)) => {
                        assert!(matches!(error.fault, Fault::Conflict | Fault::Busy | Fault::NotFound), "{error}");
                        sleep(Duration::from_secs(5)).await;
                    }
                    Err(error) => panic!("{error}"),
                }
            };
            assert_eq!(zone(&created), "2");
            assert_eq!(created.adopted.volume_context[SOURCE_KEY], disk("source").to_string());
            assert_eq!(rig.property(&disk("pvc-1"), "/zones/0"), "2");
            // What the first replica has sent ends meanwhile.
            sleep(Duration::from_secs(300)).await;
            _ = copy(&second, request, &disk("source")).await.unwrap();
            assert_eq!(rig.carriers(), Vec::<String>::new(), "after {writes} writes");
            // The line goes on behind the carrier.
            let source = rig.property(&disk("pvc-1"), "/properties/creationData/sourceResourceId");
            let line = second.line(source.as_str().unwrap()).await;
            assert_eq!(line.origins().len(), 1, "the carrier itself is gone");
            rig.emulator.shutdown().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_and_a_sweep_take_a_carrier_along_that_was_left() {
    for (writes, is_deleted) in [(2, true), (1, false), (2, false)] {
        let rig = azure(4).await;
        let request = claim("pvc-1", 4, &["2"], &[("skuName", "Premium_LRS")]);
        {
            let first = rig.replica(1);
            rig.delay("DELETE", "*", Duration::from_secs(3_600));
            let source = disk("source");
            let call = copy(&first, request.clone(), &source);
            assert!(rig.killed_after(writes, call).await.is_none());
        }
        sleep(Duration::from_secs(60)).await;
        rig.emulator.control().clear_incidents();
        assert_eq!(rig.carriers(), ["carry_pvc-1"]);
        let second = rig.replica(2);
        if is_deleted {
            second.delete(&disk("pvc-1")).await.unwrap();
        } else {
            for hours in [2, 23, 26] {
                sleep(Duration::from_secs(hours * 3_600)).await;
                list_and_sweep(&second).await;
            }
        }
        assert_eq!(rig.carriers(), Vec::<String>::new(), "{writes} {is_deleted}");
        let is_there = rig.property(&disk("pvc-1"), "/id") != serde_json::Value::Null;
        assert_eq!(is_there, writes == 2 && !is_deleted);
        rig.emulator.shutdown().await;
    }
}

/// Azure fills a PremiumV2 disk after its creation has ended.
#[tokio::test(start_paused = true)]
async fn a_disk_that_is_still_being_filled_is_answered_and_its_carrier_goes_later() {
    let rig = Rig::start(Options { latency: Profile::typical(), ..with_source(9) }).await;
    let volumes = rig.replica(1);
    let request = claim("pvc-1", 4, &["2"], &[("skuName", "PremiumV2_LRS")]);
    let created = copy(&volumes, request.clone(), &disk("source")).await.unwrap();
    assert_eq!(zone(&created), "2");
    let percent = rig.property(&disk("pvc-1"), "/properties/completionPercent");
    assert!(percent.as_f64().is_some_and(|percent| percent < 100.0), "{percent}");
    assert_eq!(rig.carriers(), ["carry_pvc-1"], "Azure still reads it");
    let again = copy(&rig.replica(2), request, &disk("source")).await.unwrap();
    assert_eq!(again.adopted, created.adopted);
    sleep(Duration::from_secs(24 * 3_600)).await;
    list_and_sweep(&volumes).await;
    assert_eq!(rig.carriers(), Vec::<String>::new());
    assert_eq!(rig.property(&disk("pvc-1"), "/properties/completionPercent"), 100);
    rig.emulator.shutdown().await;
}

/// A list begins a sweep that is due, and does not wait for it.
async fn list_and_sweep(volumes: &Volumes) {
    volumes.list().await.unwrap();
    sleep(Duration::from_secs(60)).await;
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_is_filled_for_days_keeps_its_carrier_and_a_slow_sweep_delays_no_request() {
    let rig = Rig::start(Options { latency: Profile::typical(), ..with_source(10) }).await;
    let volumes = rig.replica(1);
    let request = claim("pvc-1", 4, &["2"], &[("skuName", "PremiumV2_LRS")]);
    copy(&volumes, request.clone(), &disk("source")).await.unwrap();
    sleep(Duration::from_secs(3_600)).await;
    let percent = |percent: i32| {
        let tamper = move |doc: &mut serde_json::Value| doc["properties"]["completionPercent"] = json!(percent);
        rig.emulator.control().tamper(disk("pvc-1").as_str(), tamper).unwrap();
    };
    percent(10);
    rig.delay("GET", "*/snapshots", Duration::from_secs(30));
    for days in 0..4 {
        let begun = Instant::now();
        volumes.list().await.unwrap();
        copy(&volumes, request.clone(), &disk("source")).await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(10), "day {days}: {:?}", begun.elapsed());
        sleep(Duration::from_secs(25 * 3_600)).await;
        assert_eq!(rig.carriers(), ["carry_pvc-1"], "day {days}");
    }
    percent(100);
    list_and_sweep(&volumes).await;
    assert_eq!(rig.carriers(), Vec::<String>::new());
    rig.emulator.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_empty_volume_is_deleted_without_a_read_and_a_person_s_snapshot_stays() {
    let rig = azure(5).await;
    let volumes = rig.replica(1);
    let request = claim("pvc-1", 4, &["1"], &[]);
    volumes.create(&lazuli_volume::plan_create(&request, &defaults()).unwrap()).await.unwrap();
    take_snapshot(&volumes, "carry_pvc-1", &disk("source")).await;
    rig.emulator.control().reset_log();
    volumes.delete(&disk("pvc-1")).await.unwrap();
    assert_eq!(rig.reads(), 0);
    // The snapshot has the name, and no tag.
    volumes.delete(&disk("pvc-1")).await.unwrap();
    assert_eq!(rig.carriers(), ["carry_pvc-1"]);
    rig.emulator.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_azure_is_unavailable_and_told_and_another_shortage_is_not() {
    let rig = azure(6).await;
    let volumes = rig.replica(1);
    let source = take_snapshot(&volumes, "snap", &disk("source")).await;
    let v2 = |name: &str| claim(name, 4, &["1"], &[("skuName", "PremiumV2_LRS")]);
    for n in 0..5 {
        copy(&volumes, v2(&format!("pvc-{n}")), &source).await.unwrap();
    }
    let refusal = json!({
        "match": {"method": "PUT", "path": "*/disks/pvc-9"},
        "then": {"status": 409, "code": "OperationNotAllowed"}, "times": 0,
    });
    rig.emulator.control().add_incident(serde_json::from_value(refusal).unwrap()).unwrap();
    // No quota: the source may not be ready for it.
    let unclear = copy(&volumes, v2("pvc-9"), &source).await.unwrap_err();
    let CopyError::Failed(error) = &unclear else { panic!("{unclear}") };
    assert_eq!(fault::code(Rpc::CreateVolume, &error.fault, error.effect), Code::Unavailable, "{error}");
    for n in 0..5 {
        let fill = |doc: &mut serde_json::Value| doc["properties"]["completionPercent"] = json!(10);
        rig.emulator.control().tamper(disk(&format!("pvc-{n}")).as_str(), fill).unwrap();
    }
    sleep(Duration::from_secs(60)).await;
    let limited = copy(&volumes, v2("pvc-9"), &source).await.unwrap_err();
    let (code, reason) = limited.decided().unwrap();
    assert_eq!((code, reason.unwrap().as_str()), (Code::Unavailable, "OperationsLimited"), "{limited}");
    assert!(limited.to_string().contains("5 disks are being filled"), "{limited}");
    rig.emulator.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_copy_waits_for_its_snapshot_and_a_final_failure_leaves_no_carrier() {
    let rig = azure(7).await;
    let volumes = rig.replica(1);
    let source = take_snapshot(&volumes, "snap", &disk("source")).await;
    let pending = |doc: &mut serde_json::Value| {
        doc["properties"]["completionPercent"] = json!(40);
        doc["properties"]["snapshotAccessState"] = json!("Pending");
    };
    rig.emulator.control().tamper(source.as_str(), pending).unwrap();
    rig.emulator.control().reset_log();
    let waits = copy(&volumes, claim("pvc-1", 4, &["1"], &[]), &source).await.unwrap_err();
    assert!(matches!(waits, CopyError::Refused(CopyRefusal::NotYet(_))), "{waits}");
    assert_eq!((waits.decided().unwrap().0, rig.writes()), (Code::Unavailable, 0));

    let refusal = json!({
        "match": {"method": "PUT", "path": "*/disks/pvc-2"},
        "then": {"status": 400, "code": "InvalidParameter"}, "times": 0,
    });
    rig.emulator.control().add_incident(serde_json::from_value(refusal).unwrap()).unwrap();
    let request = claim("pvc-2", 4, &["2"], &[("skuName", "Premium_LRS")]);
    let failed = copy(&volumes, request, &disk("source")).await.unwrap_err();
    let CopyError::Failed(error) = &failed else { panic!("{failed}") };
    assert_eq!(error.fault, Fault::Invalid);
    assert_eq!(rig.carriers(), Vec::<String>::new());
    rig.emulator.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_line_of_a_copy_is_read_once_and_ends_where_something_is_gone() {
    let rig = azure(8).await;
    let volumes = rig.replica(1);
    let snap = take_snapshot(&volumes, "snap", &disk("source")).await;
    copy(&volumes, claim("pvc-1", 4, &["1"], &[("skuName", "Premium_LRS")]), &snap).await.unwrap();
    copy(&volumes, claim("pvc-2", 4, &["1"], &[("skuName", "Premium_LRS")]), &disk("pvc-1")).await.unwrap();
    // The replica that has made them knows them. The snapshot and what it was taken of were read for the first copy.
    rig.emulator.control().reset_log();
    assert_eq!(volumes.line(disk("pvc-2").as_str()).await.origins().len(), 4);
    assert_eq!(rig.reads(), 0);
    let cold = rig.replica(2);
    sleep(Duration::from_secs(60)).await;
    let begun = Instant::now();
    for _ in 0..2 {
        rig.emulator.control().reset_log();
        let line = cold.line(disk("pvc-1").as_str()).await;
        let expected = [disk("pvc-1"), snap.clone(), disk("source")].map(Origin::Resource);
        assert_eq!(line.origins(), expected, "{:?}", begun.elapsed());
    }
    assert_eq!(rig.reads(), 0, "it is remembered");
    volumes.whole_snapshots.request(&snap, whole_snapshot::Wanted::Deleted).await.unwrap();
    let line = rig.replica(3).line(disk("pvc-1").as_str()).await;
    assert_eq!(line.origins(), [disk("pvc-1"), snap].map(Origin::Resource));
    assert!(cold.line("FromImage").await.is_empty());
    rig.emulator.shutdown().await;
}

/// The defaults, and each switch of snapshots and copies in its other position.
fn positions() -> Vec<Switches> {
    let usual = Switches { list_lag: true, ..Switches::default() };
    vec![
        usual,
        Switches { filled_source_deletable: false, ..usual },
        Switches { pending_source_deletable: false, ..usual },
        Switches { failed_snapshot_shows: FailedSnapshot::State, ..usual },
        Switches { filling_disk_is_source: false, ..usual },
        Switches { filling_disk_counts: false, ..usual },
        Switches { zonal_disk_stays_in_zone: true, ..usual },
        Switches { size_rounding: SizeRounding::Up, ..usual },
        Switches { sku_twice_a_day: false, ..usual },
        Switches { linked_access_in_group: true, ..usual },
    ]
}

/// Asks again and again, as the sidecars do.
async fn at_last<T, E: std::fmt::Display>(what: &str, mut ask: impl AsyncFnMut() -> Result<T, E>) -> T {
    let mut last = String::new();
    for _ in 0..1_000 {
        match ask().await {
            Ok(done) => return done,
            Err(error) => last = error.to_string(),
        }
        sleep(Duration::from_secs(10)).await;
    }
    panic!("{what} never ends: {last}");
}

#[tokio::test(start_paused = true)]
async fn the_lives_of_snapshots_and_copies_end_well_in_every_position_of_the_switches() {
    for unverified in positions() {
        let rig = Rig::start(Options { unverified, ..with_source(7) }).await;
        let volumes = rig.replica(1);
        let source = disk("source");
        let taken = |name: &str, of: &ArmId| SnapshotRequest {
            name: name.into(),
            volume: of.to_string().parse().unwrap(),
            parameters: BTreeMap::new(),
        };
        let shared = Arc::new(defaults());
        let take = async |name: &str, of: &ArmId| {
            at_last(name, async || match volumes.create_snapshot(taken(name, of), shared.clone()).await {
                Ok(view) if view.is_ready => Ok(view),
                Ok(_) => Err("it is not ready".to_owned()),
                Err(error) => Err(error.why.to_string()),
            })
            .await
            .snapshot
        };
        let first = take("snapshot-1", &source).await;
        let v2 = [("skuName", "PremiumV2_LRS")];
        let claims = [
            (claim("pvc-clone", 4, &["1"], &[("skuName", "Premium_LRS")]), &source),
            (claim("pvc-carried", 4, &["2"], &[]), &source),
            (claim("pvc-restored", 8, &["2"], &v2), &first),
        ];
        for (claim, of) in claims {
            at_last(&claim.name.clone(), async || copy(&volumes, claim.clone(), of).await).await;
        }
        let second = take("snapshot-2", &disk("pvc-restored")).await;
        let class = BTreeMap::from([("skuName".to_owned(), "StandardSSD_LRS".to_owned())]);
        at_last("the change", async || volumes.modify(&disk("pvc-clone"), class.clone(), Cloud::Public).await).await;
        for name in ["pvc-restored", "pvc-carried", "pvc-clone", "source"] {
            at_last(name, async || volumes.delete(&disk(name)).await).await;
        }
        for snapshot in [&second, &first] {
            at_last("a deletion", async || volumes.delete_snapshot(snapshot).await.map_err(|error| error.why)).await;
        }
        sleep(Duration::from_secs(600)).await;
        let dump = rig.emulator.control().dump();
        let is_left =
            |id: &&String| id.contains("/snapshots/") || id.contains("/disks/pvc-") || id.ends_with("/disks/source");
        let left: Vec<&String> = dump.resources.keys().filter(is_left).collect();
        assert!(left.is_empty(), "{unverified:?}: {left:?}");
        rig.emulator.shutdown().await;
    }
}
