//! Disks made from disks and snapshots: where, how large, with which sectors, how many at a time, and when they are filled.

use super::snapshots::{incremental, of, premium_v2, snapshot_id, snapshot_uri};
use super::state_file::Folder;
use super::*;
use crate::options::SizeRounding;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// A disk of a source, of a SKU, in a zone.
fn copied(source: &str, sku: &str, zone: Option<&str>) -> Value {
    let mut body = of(source);
    body["sku"] = json!({"name": sku});
    if let Some(zone) = zone {
        body["zones"] = json!([zone]);
    }
    body
}

fn percent(disk: &Value) -> Option<u64> {
    disk["properties"]["completionPercent"].as_u64()
}

impl Rig {
    async fn made(&self, name: &str, body: Value) -> Value {
        let got = self.put_disk(name, body).await.expect(202);
        assert_eq!(self.finish(&got).await["status"], "Succeeded");
        self.disk_doc(name).await
    }

    /// An uploaded disk with so many bytes.
    async fn uploaded(&self, name: &str, bytes: u64) -> Value {
        let body = json!({"location": "westeurope", "sku": {"name": "Premium_LRS"}, "properties": {
            "creationData": {"createOption": "Upload", "uploadSizeBytes": bytes + 512},
        }});
        self.made(name, body).await;
        for (verb, body) in
            [("beginGetAccess", Some(json!({"access": "Write", "durationInSeconds": 60}))), ("endGetAccess", None)]
        {
            let uri = format!("{}/{verb}?api-version={DISKS_VERSION}", disk_id(name));
            let got = self.call("POST", &uri, body).await.expect(202);
            self.finish(&got).await;
        }
        self.disk_doc(name).await
    }
}

/// GiB and bytes of a document.
fn size(doc: &Value) -> (u64, u64) {
    let number = |member: &str| doc["properties"][member].as_u64().unwrap();
    (number("diskSizeGB"), number("diskSizeBytes"))
}

#[tokio::test(start_paused = true)]
async fn a_disk_is_copied_into_no_other_zone_and_a_snapshot_into_any() {
    let rig = Rig::new(options()).await;
    rig.disk_with("d", json!({"zones": ["1"]})).await;
    let got = rig.put_disk("c", copied(&disk_id("d"), "Premium_LRS", Some("2"))).await.refused(400, "InvalidParameter");
    assert_eq!(
        got.message(),
        format!(
            "The resource 'c' in an availability zone cannot be copied from the source '{}' in a different availability zone.",
            disk_id("d")
        )
    );
    assert_eq!(got.body["error"]["target"], "sourceResourceId");
    rig.made("same", copied(&disk_id("d"), "Premium_LRS", Some("1"))).await;
    let snapshot = rig.snapshot("s", incremental(&disk_id("d"))).await;
    assert!(snapshot.get("zones").is_none());
    for zone in ["1", "2", "3"] {
        rig.made(&format!("zone-{zone}"), copied(&snapshot_id("s"), "Premium_LRS", Some(zone))).await;
    }
    rig.made("everywhere", copied(&snapshot_id("s"), "Premium_ZRS", None)).await;
}

#[tokio::test(start_paused = true)]
async fn whether_a_zonal_disk_is_copied_into_no_zone_is_a_switch() {
    for stays in [false, true] {
        let mut options = options();
        options.unverified.zonal_disk_stays_in_zone = stays;
        let rig = Rig::new(options).await;
        rig.disk_with("zonal", json!({"zones": ["1"]})).await;
        rig.disk("regional").await;
        for (source, sku, zone) in
            [("zonal", "Premium_LRS", None), ("zonal", "Premium_ZRS", None), ("regional", "Premium_LRS", Some("1"))]
        {
            let got = rig.put_disk("c", copied(&disk_id(source), sku, zone)).await;
            if stays {
                got.refused(400, "InvalidParameter");
                continue;
            }
            rig.finish(&got.expect(202)).await;
            let got = rig.call("DELETE", &disk_uri("c"), None).await.expect(202);
            rig.finish(&got).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_is_in_the_edge_zone_of_its_source() {
    let rig = Rig::new(options()).await;
    let edge = json!({"type": "EdgeZone", "name": "losangeles"});
    let placed = |mut body: Value, edge: Option<&Value>| {
        if let Some(edge) = edge {
            body["extendedLocation"] = edge.clone();
        }
        body
    };
    rig.made("d", placed(premium(10), Some(&edge))).await;
    rig.disk("usual").await;
    let got = rig.put_snapshot("s", incremental(&disk_id("d"))).await.refused(400, "InvalidParameter");
    let text = "The ExtendedLocation '' of the target resource does not match the ExtendedLocation 'losangeles'";
    assert!(got.message().starts_with(text), "{}", got.message());
    rig.put_snapshot("s", placed(incremental(&disk_id("usual")), Some(&edge))).await.refused(400, "InvalidParameter");
    let snapshot = rig.snapshot("s", placed(incremental(&disk_id("d")), Some(&edge))).await;
    assert_eq!((&snapshot["extendedLocation"], &snapshot["sku"]["name"]), (&edge, &json!("Standard_LRS")));
    for source in [disk_id("d"), snapshot_id("s")] {
        rig.put_disk("c", copied(&source, "Premium_LRS", None)).await.refused(400, "InvalidParameter");
    }
    let copy = rig.made("c", placed(copied(&snapshot_id("s"), "Premium_LRS", None), Some(&edge))).await;
    assert_eq!(copy["extendedLocation"], edge);
}

#[tokio::test(start_paused = true)]
async fn ultra_and_premium_v2_disks_are_filled_after_they_are_made() {
    let rig = Rig::new(slow()).await;
    rig.disk("d").await;
    rig.snapshot("s", incremental(&disk_id("d"))).await;
    let usual = rig.made("usual", copied(&snapshot_id("s"), "Premium_LRS", None)).await;
    assert_eq!(percent(&usual), None);
    for sku in ["PremiumV2_LRS", "UltraSSD_LRS"] {
        let made = rig.made(sku, copied(&snapshot_id("s"), sku, Some("1"))).await;
        assert_eq!((percent(&made), &made["properties"]["provisioningState"]), (Some(0), &json!("Succeeded")));
        // Sectors of what has no choice.
        assert_eq!(made["properties"]["creationData"]["logicalSectorSize"], 512);
    }
    // Documented: it is attached meanwhile.
    rig.attached("zonal-0", &[("PremiumV2_LRS", 0)]).await;
    let mut seen = Vec::new();
    for _ in 0..12 {
        tokio::time::sleep(Duration::from_secs(36)).await;
        seen.push(percent(&rig.disk_doc("PremiumV2_LRS").await).unwrap());
    }
    assert!(seen.is_sorted() && seen.iter().any(|percent| (1..100).contains(percent)), "{seen:?}");
    assert_eq!(seen.last(), Some(&100));
    assert_eq!(percent(&rig.disk_doc("UltraSSD_LRS").await), Some(100));
}

#[tokio::test(start_paused = true)]
async fn instant_access_fills_disks_faster() {
    let rig = Rig::new(slow()).await;
    rig.made("v2", premium_v2(4)).await;
    let mut body = incremental(&disk_id("v2"));
    body["properties"]["creationData"]["instantAccessDurationMinutes"] = json!(60);
    rig.snapshot("s", body).await;
    rig.made("r", copied(&snapshot_id("s"), "PremiumV2_LRS", Some("2"))).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(percent(&rig.disk_doc("r").await), Some(100));
    assert!(rig.percent("s").await < 100);
}

#[tokio::test(start_paused = true)]
async fn filling_goes_on_after_a_restart_and_in_no_other_disk_of_the_name() {
    let folder = Folder::new("filling");
    let rig = Rig::new(folder.options()).await;
    rig.disk("d").await;
    rig.snapshot("s", incremental(&disk_id("d"))).await;
    let body = copied(&snapshot_id("s"), "PremiumV2_LRS", Some("1"));
    let first = rig.made("r", body.clone()).await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    let got = rig.call("DELETE", &disk_uri("r"), None).await.expect(202);
    rig.finish(&got).await;
    let second = rig.made("r", body).await;
    assert_ne!(first["properties"]["uniqueId"], second["properties"]["uniqueId"]);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(percent(&rig.disk_doc("r").await), Some(0));
    tokio::time::sleep(Duration::from_secs(100)).await;
    let before = percent(&rig.disk_doc("r").await).unwrap();
    let start_time = Options::default().start_time + rig.emulator.control.shared.clock.elapsed();
    drop(rig.router);
    rig.emulator.shutdown().await;
    let rig = Rig::new(Options { start_time, ..folder.options() }).await;
    assert_eq!(percent(&rig.disk_doc("r").await), Some(before));
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(percent(&rig.disk_doc("r").await), Some(100));
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_a_machine_asks_for_is_filled_too() {
    let rig = Rig::new(slow()).await;
    rig.disk("d").await;
    rig.snapshot("s", incremental(&disk_id("d"))).await;
    let element = json!({
        "lun": 0, "name": "made", "createOption": "Copy", "sourceResource": {"id": snapshot_id("s")},
        "managedDisk": {"storageAccountType": "PremiumV2_LRS"},
    });
    let got = rig.put_data_disks("zonal-0", json!([element])).await.expect(200);
    assert_eq!(rig.finish(&got).await["status"], "Succeeded");
    assert_eq!(percent(&rig.disk_doc("made").await), Some(0));
    tokio::time::sleep(Duration::from_secs(400)).await;
    assert_eq!(percent(&rig.disk_doc("made").await), Some(100));
}

#[tokio::test(start_paused = true)]
async fn a_copy_has_the_sectors_of_its_source_and_comes_of_no_full_snapshot() {
    let rig = Rig::new(options()).await;
    rig.disk("d").await;
    rig.snapshot("full", of(&disk_id("d"))).await;
    rig.snapshot("s", incremental(&disk_id("d"))).await;
    let full = copied(&snapshot_id("full"), "PremiumV2_LRS", Some("1"));
    let got = rig.put_disk("c", full).await.refused(409, "OperationNotAllowed");
    assert!(got.message().contains("only incremental"), "{}", got.message());
    let mut large = copied(&snapshot_id("s"), "PremiumV2_LRS", Some("1"));
    large["properties"]["creationData"]["logicalSectorSize"] = json!(4096);
    let got = rig.put_disk("c", large).await.refused(400, "InvalidParameter");
    assert_eq!(got.body["error"]["target"], "disk.creationData.logicalSectorSize");
    rig.made("v2", premium_v2(10)).await;
    let snapshot = rig.snapshot("large", incremental(&disk_id("v2"))).await;
    assert_eq!(snapshot["properties"]["creationData"]["logicalSectorSize"], 4096);
    for source in [disk_id("v2"), snapshot_id("large")] {
        let got =
            rig.put_disk("c", copied(&source, "Premium_LRS", Some("1"))).await.refused(409, "OperationNotAllowed");
        assert!(got.message().contains("sector size"), "{}", got.message());
    }
    let made = rig.made("c", copied(&snapshot_id("large"), "UltraSSD_LRS", Some("2"))).await;
    assert_eq!(made["properties"]["creationData"]["logicalSectorSize"], 4096);
}

#[tokio::test(start_paused = true)]
async fn five_disks_at_a_time_are_made_of_a_snapshot() {
    for counts in [true, false] {
        let mut options = slow();
        options.unverified.filling_disk_counts = counts;
        let rig = Rig::new(options).await;
        rig.made("v2", premium_v2(4)).await;
        rig.snapshot("s", incremental(&disk_id("v2"))).await;
        rig.copied("s").await;
        let body = copied(&snapshot_id("s"), "PremiumV2_LRS", Some("1"));
        let mut started = Vec::new();
        for n in 0..5 {
            started.push(rig.put_disk(&format!("r{n}"), body.clone()).await.expect(202));
        }
        let got = rig.put_disk("r5", body.clone()).await.refused(409, "OperationNotAllowed");
        assert!(got.message().contains("No more than 5 disks"), "{}", got.message());
        for got in &started {
            rig.finish(got).await;
        }
        let got = rig.put_disk("r5", body.clone()).await;
        if counts {
            got.refused(409, "OperationNotAllowed");
            tokio::time::sleep(Duration::from_secs(400)).await;
            rig.made("r5", body).await;
        } else {
            got.expect(202);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn fifteen_disks_at_a_time_are_made_by_the_instant_access_of_a_disk() {
    let rig = Rig::new(slow()).await;
    rig.made("v2", premium_v2(4)).await;
    let mut instant = incremental(&disk_id("v2"));
    instant["properties"]["creationData"]["instantAccessDurationMinutes"] = json!(60);
    for name in ["a", "b"] {
        rig.snapshot(name, instant.clone()).await;
    }
    let body = |n: usize| copied(&snapshot_id(["a", "b"][n % 2]), "PremiumV2_LRS", Some("1"));
    for n in 0..15 {
        rig.put_disk(&format!("r{n}"), body(n)).await.expect(202);
    }
    for n in 15..17 {
        let got = rig.put_disk("r15", body(n)).await.refused(409, "OperationNotAllowed");
        assert!(got.message().contains("No more than 15 disks"), "{}", got.message());
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    rig.made("r15", body(15)).await;
}

#[tokio::test(start_paused = true)]
async fn fifty_disks_of_a_subscription_are_filled_or_converted_at_a_time() {
    let rig = Rig::new(slow()).await;
    rig.disk_with("d", json!({"zones": ["1"]})).await;
    rig.snapshot("s", incremental(&disk_id("d"))).await;
    let convert = json!({"sku": {"name": "PremiumV2_LRS"}});
    let body = copied(&snapshot_id("s"), "PremiumV2_LRS", Some("1"));
    for n in 0..50 {
        rig.put_disk(&format!("r{n}"), body.clone()).await.expect(202);
    }
    let got = rig.put_disk("more", body.clone()).await.refused(409, "OperationNotAllowed");
    assert!(got.message().contains("50 active background copies"), "{}", got.message());
    rig.call("PATCH", &disk_uri("d"), Some(convert.clone())).await.refused(409, "OperationNotAllowed");
    // Others are not limited.
    rig.made("usual", copied(&snapshot_id("s"), "Premium_LRS", Some("1"))).await;
    let got = rig.call("DELETE", &disk_uri("r0"), None).await.expect(202);
    rig.finish(&got).await;
    let got = rig.call("PATCH", &disk_uri("d"), Some(convert)).await.expect(202);
    rig.finish(&got).await;
    rig.put_disk("more", body.clone()).await.refused(409, "OperationNotAllowed");
    tokio::time::sleep(Duration::from_secs(400)).await;
    rig.made("more", body).await;
}

#[tokio::test(start_paused = true)]
async fn a_copy_has_the_bytes_of_its_source_which_may_be_no_whole_gib() {
    let bytes = 10 * GIB + 256 * MIB;
    for (rounding, gib) in [(SizeRounding::Down, 10), (SizeRounding::Up, 11)] {
        let mut options = options();
        options.unverified.size_rounding = rounding;
        let rig = Rig::new(options).await;
        let disk = rig.uploaded("d", bytes).await;
        assert_eq!(size(&disk), (gib, bytes));
        let snapshot = rig.snapshot("s", incremental(&disk_id("d"))).await;
        assert_eq!(size(&snapshot), (gib, bytes));
        let tags = json!({"tags": {"a": "b"}});
        for uri in [disk_uri("d"), snapshot_uri("s")] {
            let got = rig.call("PATCH", &uri, Some(tags.clone())).await.expect(202);
            rig.finish(&got).await;
            assert_eq!(size(&rig.get(&uri).await.body), (gib, bytes), "another change leaves the size");
        }
        for source in [disk_id("d"), snapshot_id("s")] {
            let mut body = copied(&source, "Premium_LRS", None);
            assert_eq!(size(&rig.made("c", body.clone()).await), (gib, bytes));
            let got = rig.call("DELETE", &disk_uri("c"), None).await.expect(202);
            rig.finish(&got).await;
            body["properties"]["diskSizeGB"] = json!(10);
            let got = rig.put_disk("c", body.clone()).await.refused(400, "InvalidParameter");
            assert_eq!(got.body["error"]["target"], "disk.diskSizeGB");
            body["properties"]["diskSizeGB"] = json!(11);
            assert_eq!(size(&rig.made("c", body).await), (11, 11 * GIB));
            let got = rig.call("DELETE", &disk_uri("c"), None).await.expect(202);
            rig.finish(&got).await;
        }
        let grow = json!({"properties": {"diskSizeGB": 12}});
        let got = rig.call("PATCH", &disk_uri("d"), Some(grow)).await.expect(202);
        rig.finish(&got).await;
        assert_eq!(size(&rig.disk_doc("d").await), (12, 12 * GIB));
    }
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_is_made_again_is_another_and_its_copies_say_which_they_come_from() {
    let rig = Rig::new(options()).await;
    rig.disk("d").await;
    let first = rig.disk_doc("d").await["properties"]["uniqueId"].clone();
    let snapshot = rig.snapshot("s", incremental(&disk_id("d"))).await;
    assert_eq!(snapshot["properties"]["creationData"]["sourceUniqueId"], first);
    let got = rig.call("DELETE", &disk_uri("d"), None).await.expect(202);
    rig.finish(&got).await;
    rig.disk("d").await;
    let second = rig.disk_doc("d").await["properties"]["uniqueId"].clone();
    assert_ne!(first, second);
    assert_eq!(rig.snapshot_doc("s").await["properties"]["creationData"]["sourceUniqueId"], first);
    let clone = rig.made("c", copied(&disk_id("d"), "Premium_LRS", None)).await;
    assert_eq!(clone["properties"]["creationData"]["sourceUniqueId"], second);
    let restored = rig.made("r", copied(&snapshot_id("s"), "Premium_LRS", None)).await;
    assert_eq!(restored["properties"]["creationData"]["sourceUniqueId"], snapshot["properties"]["uniqueId"]);
    // The family of the first is not that of the second.
    let other = rig.snapshot("s2", incremental(&disk_id("d"))).await;
    assert_ne!(
        other["properties"]["incrementalSnapshotFamilyId"],
        snapshot["properties"]["incrementalSnapshotFamilyId"]
    );
}

#[tokio::test(start_paused = true)]
async fn whether_a_disk_that_is_being_filled_is_copied_is_a_switch() {
    for copied_while_filling in [true, false] {
        let mut options = slow();
        options.unverified.filling_disk_is_source = copied_while_filling;
        let rig = Rig::new(options).await;
        rig.disk("d").await;
        rig.snapshot("s", incremental(&disk_id("d"))).await;
        rig.made("r", copied(&snapshot_id("s"), "PremiumV2_LRS", Some("1"))).await;
        let snapshot = rig.put_snapshot("again", incremental(&disk_id("r"))).await;
        let clone = rig.put_disk("c", copied(&disk_id("r"), "PremiumV2_LRS", Some("1"))).await;
        for got in [snapshot, clone] {
            if copied_while_filling {
                got.expect(202);
            } else {
                got.refused(409, "OperationNotAllowed");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn whether_a_snapshot_goes_from_which_a_disk_is_being_filled_is_a_switch() {
    for deletable in [true, false] {
        let mut options = slow();
        options.unverified.filled_source_deletable = deletable;
        let rig = Rig::new(options).await;
        rig.disk("d").await;
        rig.snapshot("s", incremental(&disk_id("d"))).await;
        rig.made("r", copied(&snapshot_id("s"), "PremiumV2_LRS", Some("1"))).await;
        let got = rig.delete_snapshot("s").await;
        if deletable {
            rig.finish(&got.expect(202)).await;
        } else {
            got.refused(409, "OperationNotAllowed");
        }
        tokio::time::sleep(Duration::from_secs(400)).await;
        assert_eq!(percent(&rig.disk_doc("r").await), Some(100));
        rig.delete_snapshot("s").await.expect(if deletable { 204 } else { 202 });
    }
}
