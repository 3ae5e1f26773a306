//! Snapshots of Ultra and Premium v2 disks: instant access, what waits for their content, and what makes it fail.

use super::snapshots::{copy_start, incremental, of, premium_v2, snapshot_id, snapshot_uri};
use super::state_file::Folder;
use super::*;
use crate::options::FailedSnapshot;

const MINUTES: u64 = 60;

/// An incremental snapshot with instant access.
fn instant(source: &str, minutes: u64) -> Value {
    let mut body = incremental(source);
    body["properties"]["creationData"]["instantAccessDurationMinutes"] = json!(minutes);
    body
}

/// A disk of a snapshot, in a zone.
fn restored(snapshot: &str, sku: &str, gib: Option<u64>) -> Value {
    let mut body = empty_disk(sku, 4);
    body["zones"] = json!(["1"]);
    body["properties"] = of(&snapshot_id(snapshot))["properties"].clone();
    if let Some(gib) = gib {
        body["properties"]["diskSizeGB"] = json!(gib);
    }
    body
}

fn access_state(snapshot: &Value) -> &str {
    snapshot["properties"]["snapshotAccessState"].as_str().unwrap()
}

impl Rig {
    async fn make(&self, name: &str, body: Value) {
        let got = self.put_disk(name, body).await.expect(202);
        assert_eq!(self.finish(&got).await["status"], "Succeeded");
    }

    async fn access_state(&self, snapshot: &str) -> String {
        access_state(&self.snapshot_doc(snapshot).await).to_owned()
    }
}

async fn with_disk(options: Options) -> Rig {
    let rig = Rig::new(options).await;
    rig.make("v2", premium_v2(4)).await;
    rig
}

#[tokio::test(start_paused = true)]
async fn instant_access_lasts_for_its_time_beside_the_copy() {
    let mut rig = with_disk(slow()).await;
    let made = rig.snapshot("s", instant(&disk_id("v2"), MINUTES)).await;
    assert_eq!((access_state(&made), &made["properties"]["completionPercent"]), ("InstantAccess", &json!(0)));
    assert_eq!(made["properties"]["creationData"]["instantAccessDurationMinutes"], MINUTES);
    // It is neither read nor copied to another region, nor copied at all.
    rig.access("s", "Read").await.refused(409, "OperationNotAllowed");
    rig.put_snapshot("c", copy_start(&snapshot_id("s"))).await.refused(409, "OperationNotAllowed");
    rig.put_snapshot("c", incremental(&snapshot_id("s"))).await.refused(409, "OperationNotAllowed");
    rig.make("r", restored("s", "PremiumV2_LRS", None)).await;
    rig.copied("s").await;
    assert_eq!(rig.access_state("s").await, "AvailableWithInstantAccess");
    rig.access("s", "Read").await.expect(202);
    rig.wait(Duration::from_secs(3_600)).await;
    assert_eq!(rig.access_state("s").await, "Available");
}

#[tokio::test(start_paused = true)]
async fn instant_access_that_ends_before_the_copy_leaves_a_pending_snapshot() {
    let folder = Folder::new("long-copy");
    let profile = folder.write("profile.yaml", "base: typical\noperations:\n  snapshotCopy: {constant_ms: 18000000}\n");
    let mut rig = with_disk(Options { latency: Profile::parse(&profile).unwrap(), ..options() }).await;
    rig.snapshot("s", instant(&disk_id("v2"), MINUTES)).await;
    rig.wait(Duration::from_secs(3_590)).await;
    assert_eq!(rig.access_state("s").await, "InstantAccess");
    rig.wait(Duration::from_secs(20)).await;
    assert_eq!(rig.access_state("s").await, "Pending");
    rig.put_disk("r", restored("s", "PremiumV2_LRS", None)).await.refused(409, "OperationNotAllowed");
}

#[tokio::test(start_paused = true)]
async fn instant_access_goes_on_after_a_restart() {
    let folder = Folder::new("instant");
    let rig = with_disk(folder.options()).await;
    rig.snapshot("s", instant(&disk_id("v2"), MINUTES)).await;
    rig.copied("s").await;
    let start_time = Options::default().start_time + rig.emulator.control.shared.clock.elapsed();
    drop(rig.router);
    rig.emulator.shutdown().await;
    let mut rig = Rig::new(Options { start_time, ..folder.options() }).await;
    assert_eq!(rig.access_state("s").await, "AvailableWithInstantAccess");
    rig.wait(Duration::from_secs(3_700)).await;
    assert_eq!(rig.access_state("s").await, "Available");
}

#[tokio::test(start_paused = true)]
async fn instant_access_is_for_60_to_300_minutes_and_for_ultra_and_premium_v2() {
    let rig = with_disk(options()).await;
    rig.disk("premium").await;
    for minutes in [0, 59, 301] {
        let got = rig.put_snapshot("s", instant(&disk_id("v2"), minutes)).await.refused(400, "InvalidParameter");
        assert_eq!(got.body["error"]["target"], "snapshot.creationData.instantAccessDurationMinutes");
    }
    rig.put_snapshot("s", instant(&disk_id("premium"), MINUTES)).await.refused(400, "InvalidParameter");
    rig.snapshot("s", instant(&disk_id("v2"), 300)).await;
}

#[tokio::test(start_paused = true)]
async fn a_disk_of_instant_access_is_ultra_or_premium_v2_and_no_larger() {
    let mut rig = with_disk(slow()).await;
    let mut body = premium_v2(4);
    body["properties"]["creationData"]["logicalSectorSize"] = json!(512);
    rig.make("v2-512", body).await;
    rig.snapshot("s", instant(&disk_id("v2-512"), MINUTES)).await;
    for state in ["InstantAccess", "AvailableWithInstantAccess"] {
        assert_eq!(rig.access_state("s").await, state);
        let got = rig.put_disk("r", restored("s", "Premium_LRS", None)).await.refused(409, "OperationNotAllowed");
        assert!(got.message().contains("instant access"), "{}", got.message());
        rig.put_disk("r", restored("s", "PremiumV2_LRS", Some(5))).await.refused(409, "OperationNotAllowed");
        rig.copied("s").await;
    }
    rig.make("same", restored("s", "UltraSSD_LRS", Some(4))).await;
    rig.wait(Duration::from_secs(3_600)).await;
    rig.make("premium", restored("s", "Premium_LRS", None)).await;
    rig.make("larger", restored("s", "PremiumV2_LRS", Some(5))).await;
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_is_being_filled_has_no_snapshot_with_instant_access() {
    let rig = with_disk(slow()).await;
    rig.snapshot("s", incremental(&disk_id("v2"))).await;
    rig.copied("s").await;
    rig.make("r", restored("s", "PremiumV2_LRS", None)).await;
    let got = rig.put_snapshot("i", instant(&disk_id("r"), MINUTES)).await.refused(409, "OperationNotAllowed");
    assert!(got.message().contains("hydrated"), "{}", got.message());
    rig.snapshot("usual", incremental(&disk_id("r"))).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    rig.snapshot("i", instant(&disk_id("r"), MINUTES)).await;
}

#[tokio::test(start_paused = true)]
async fn three_snapshots_of_a_disk_wait_for_their_content_at_a_time() {
    let rig = with_disk(slow()).await;
    rig.snapshot("a", instant(&disk_id("v2"), MINUTES)).await;
    rig.snapshot("b", incremental(&disk_id("v2"))).await;
    rig.snapshot("c", incremental(&disk_id("v2"))).await;
    let got = rig.put_snapshot("d", incremental(&disk_id("v2"))).await.refused(409, "OperationNotAllowed");
    assert!(got.message().contains("pending"), "{}", got.message());
    rig.copied("a").await;
    rig.snapshot("d", incremental(&disk_id("v2"))).await;
}

#[tokio::test(start_paused = true)]
async fn growth_and_deletion_of_the_disk_fail_the_snapshots_whose_content_has_not_come() {
    for shows in [FailedSnapshot::CopyError, FailedSnapshot::State] {
        for deleted in [true, false] {
            let mut options = slow();
            options.unverified.failed_snapshot_shows = shows;
            let mut rig = with_disk(options).await;
            rig.snapshot("done", incremental(&disk_id("v2"))).await;
            rig.copied("done").await;
            rig.snapshot("s", instant(&disk_id("v2"), MINUTES)).await;
            let grow = json!({"properties": {"diskSizeGB": 8}});
            let tags = json!({"tags": {"a": "b"}});
            let got = rig.call("PATCH", &disk_uri("v2"), Some(tags)).await.expect(202);
            rig.finish(&got).await;
            assert_eq!(rig.access_state("s").await, "InstantAccess", "another change does no harm");
            let got = match deleted {
                true => rig.call("DELETE", &disk_uri("v2"), None).await.expect(202),
                false => rig.call("PATCH", &disk_uri("v2"), Some(grow)).await.expect(202),
            };
            rig.finish(&got).await;
            let failed = rig.snapshot_doc("s").await;
            let shown =
                (&failed["properties"]["copyCompletionError"]["errorCode"], &failed["properties"]["provisioningState"]);
            match shows {
                FailedSnapshot::CopyError => assert_eq!(shown, (&json!("CopySourceNotFound"), &json!("Succeeded"))),
                FailedSnapshot::State => assert_eq!(shown, (&Value::Null, &json!("Failed"))),
            }
            assert_eq!(access_state(&failed), "Pending");
            let refused =
                rig.put_disk("r", restored("s", "PremiumV2_LRS", None)).await.refused(409, "OperationNotAllowed");
            assert!(refused.message().contains("has failed"), "{}", refused.message());
            rig.wait(Duration::from_secs(3_700)).await;
            let later = rig.snapshot_doc("s").await;
            assert_eq!(later["properties"], failed["properties"], "it stays as it is");
            assert_eq!(rig.access_state("done").await, "Available");
            rig.delete_snapshot("s").await.expect(202);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_fails_during_a_change_of_it_stays_failed() {
    let rig = with_disk(Options { latency: Profile::parse("typical").unwrap(), ..options() }).await;
    rig.snapshot("s", incremental(&disk_id("v2"))).await;
    tokio::time::sleep(Duration::from_secs(34)).await;
    let grow = json!({"properties": {"diskSizeGB": 8}});
    let grown = rig.call("PATCH", &disk_uri("v2"), Some(grow)).await.expect(202);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let changed = rig.call("PATCH", &snapshot_uri("s"), Some(json!({"tags": {"a": "b"}}))).await.expect(202);
    rig.finish(&grown).await;
    rig.finish(&changed).await;
    let failed = rig.snapshot_doc("s").await;
    assert_eq!(failed["properties"]["copyCompletionError"]["errorCode"], "CopySourceNotFound");
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(rig.snapshot_doc("s").await, failed);
}

#[tokio::test(start_paused = true)]
async fn whether_a_disk_goes_whose_snapshots_wait_for_content_is_a_switch() {
    let mut options = slow();
    options.unverified.pending_source_deletable = false;
    let rig = with_disk(options).await;
    rig.snapshot("s", incremental(&disk_id("v2"))).await;
    let got = rig.call("DELETE", &disk_uri("v2"), None).await.refused(409, "OperationNotAllowed");
    assert!(got.message().contains(&snapshot_id("s")), "{}", got.message());
    rig.copied("s").await;
    rig.call("DELETE", &disk_uri("v2"), None).await.expect(202);
}

#[tokio::test(start_paused = true)]
async fn the_encryption_stays_while_content_is_copied() {
    let rig = with_disk(slow()).await;
    rig.snapshot("s", incremental(&disk_id("v2"))).await;
    let key = format!("{}/providers/Microsoft.Compute/diskEncryptionSets/k", group());
    let other = json!({"properties": {"encryption": {
        "type": "EncryptionAtRestWithCustomerKey", "diskEncryptionSetId": key,
    }}});
    for uri in [disk_uri("v2"), snapshot_uri("s")] {
        rig.call("PATCH", &uri, Some(other.clone())).await.refused(409, "OperationNotAllowed");
    }
    rig.copied("s").await;
    for uri in [disk_uri("v2"), snapshot_uri("s")] {
        let got = rig.call("PATCH", &uri, Some(other.clone())).await.expect(202);
        rig.finish(&got).await;
    }
}

#[tokio::test(start_paused = true)]
async fn incidents_strike_snapshots_by_the_name_of_their_operation() {
    let rig = with_disk(slow()).await;
    rig.snapshot("s", incremental(&disk_id("v2"))).await;
    let add = |operation: &str, then: Value| {
        let incident = json!({"match": {"operation": operation}, "then": then});
        rig.control().add_incident(serde_json::from_value(incident).unwrap()).unwrap();
    };
    add("snapshots.delete", json!({"status": 500}));
    rig.delete_snapshot("s").await.expect(500);
    add("snapshots.update", json!({"lateFailure": {"code": "InternalExecutionError"}}));
    let tags = json!({"tags": {"a": "b"}});
    let got = rig.call("PATCH", &snapshot_uri("s"), Some(tags)).await.expect(202);
    let ended = rig.finish(&got).await;
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("Failed"), &json!("InternalExecutionError")));
    let left = rig.snapshot_doc("s").await;
    assert_eq!((left.get("tags"), &left["properties"]["provisioningState"]), (None, &json!("Succeeded")));
    add("snapshots.get", json!({"delayMs": 5_000}));
    let before = rig.emulator.control.shared.clock.elapsed();
    rig.snapshot_doc("s").await;
    assert!(rig.emulator.control.shared.clock.elapsed() - before >= Duration::from_secs(5));
    rig.delete_snapshot("s").await.expect(202);
}
