//! Snapshots in their whole life: full and incremental, copied to other regions, and as sources of disks.

use super::state_file::Folder;
use super::*;
use crate::state::HypervisorStep;

const OTHER_REGION: &str = "eastus";

pub(super) fn snapshot_id(name: &str) -> String {
    format!("{}/providers/Microsoft.Compute/snapshots/{name}", group())
}

pub(super) fn snapshot_uri(name: &str) -> String {
    format!("{}?api-version={DISKS_VERSION}", snapshot_id(name))
}

/// A snapshot of something.
pub(super) fn of(source: &str) -> Value {
    json!({
        "location": "westeurope",
        "properties": {"creationData": {"createOption": "Copy", "sourceResourceId": source}},
    })
}

pub(super) fn incremental(source: &str) -> Value {
    let mut body = of(source);
    body["properties"]["incremental"] = json!(true);
    body
}

/// A copy of a snapshot in another region.
pub(super) fn copy_start(source: &str) -> Value {
    let mut body = incremental(source);
    body["location"] = json!(OTHER_REGION);
    body["properties"]["creationData"]["createOption"] = json!("CopyStart");
    body
}

/// An empty Premium v2 disk, which needs a zone in a region that has zones.
pub(super) fn premium_v2(gib: u64) -> Value {
    let mut body = empty_disk("PremiumV2_LRS", gib);
    body["zones"] = json!(["1"]);
    body
}

impl Rig {
    pub(super) async fn put_snapshot(&self, name: &str, body: Value) -> Got {
        self.call("PUT", &snapshot_uri(name), Some(body)).await
    }

    /// Makes a snapshot and returns what a GET shows then.
    pub(super) async fn snapshot(&self, name: &str, body: Value) -> Value {
        let got = self.put_snapshot(name, body).await.expect(202);
        assert_eq!(self.finish(&got).await["status"], "Succeeded");
        self.snapshot_doc(name).await
    }

    pub(super) async fn snapshot_doc(&self, name: &str) -> Value {
        self.get(&snapshot_uri(name)).await.expect(200).body
    }

    pub(super) async fn delete_snapshot(&self, name: &str) -> Got {
        self.call("DELETE", &snapshot_uri(name), None).await
    }

    pub(super) async fn access(&self, name: &str, access: &str) -> Got {
        let uri = format!("{}/beginGetAccess?api-version={DISKS_VERSION}", snapshot_id(name));
        self.call("POST", &uri, Some(json!({"access": access, "durationInSeconds": 300}))).await
    }

    pub(super) async fn percent(&self, name: &str) -> u64 {
        self.snapshot_doc(name).await["properties"]["completionPercent"].as_u64().unwrap()
    }

    /// Waits for the background copy of a snapshot.
    pub(super) async fn copied(&self, name: &str) {
        for _ in 0..200 {
            if self.percent(name).await == 100 {
                return;
            }
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        panic!("the copy never ended");
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_snapshot_is_made_read_changed_listed_and_deleted() {
    let rig = Rig::new(slow()).await;
    rig.disk("d").await;
    let disk = rig.disk_doc("d").await;
    let mut body = of(&disk_id("d"));
    body["tags"] = json!({"a": "1"});
    let got = rig.put_snapshot("S", body).await.expect(202);
    assert!(got.header("azure-asyncoperation").contains("/DiskOperations/"));
    assert!(got.header("location").ends_with("&monitor=true"));
    assert_eq!(got.header("azure-asyncnotification"), "");
    assert_eq!(
        got.body,
        json!({
            "name": "S", "id": snapshot_id("S"), "type": "Microsoft.Compute/snapshots", "location": "westeurope",
            "tags": {"a": "1"},
            "properties": {
                "creationData": {"createOption": "Copy", "sourceResourceId": disk_id("d")},
                "provisioningState": "Updating",
            },
        })
    );
    assert_eq!(rig.snapshot_doc("s").await["properties"]["provisioningState"], "Updating");
    let ended = rig.finish(&got).await;
    let doc = rig.snapshot_doc("s").await;
    assert_eq!(ended["properties"]["output"], doc);
    assert_eq!(doc["sku"], json!({"name": "Standard_LRS", "tier": "Standard"}));
    let mut properties = doc["properties"].clone();
    assert!(properties["timeCreated"].is_string() && properties["uniqueId"].is_string());
    for drawn in ["timeCreated", "uniqueId"] {
        properties.as_object_mut().unwrap().shift_remove(drawn);
    }
    assert_eq!(
        properties,
        json!({
            "creationData": {
                "createOption": "Copy", "sourceResourceId": disk_id("d"),
                "sourceUniqueId": disk["properties"]["uniqueId"],
            },
            "encryption": {"type": "EncryptionAtRestWithPlatformKey"},
            "networkAccessPolicy": "AllowAll", "publicNetworkAccess": "Enabled",
            "diskSizeGB": 10, "incremental": false, "diskState": "Unattached", "diskSizeBytes": 10_u64 << 30,
            "snapshotAccessState": "Available", "provisioningState": "Succeeded",
        })
    );

    let patch = json!({"tags": {"b": "2"}, "properties": {"networkAccessPolicy": "DenyAll"}});
    let got = rig.call("PATCH", &snapshot_uri("s"), Some(patch)).await.expect(202);
    assert_eq!(rig.snapshot_doc("s").await["properties"]["networkAccessPolicy"], "AllowAll");
    rig.finish(&got).await;
    let patched = rig.snapshot_doc("s").await;
    assert_eq!(
        (&patched["tags"], &patched["properties"]["networkAccessPolicy"]),
        (&json!({"b": "2"}), &json!("DenyAll"))
    );
    for member in ["uniqueId", "timeCreated", "creationData", "diskSizeBytes"] {
        assert_eq!(patched["properties"][member], doc["properties"][member], "{member}");
    }
    // A PUT says everything, and what it leaves out of the properties stays.
    let got = rig.put_snapshot("s", of(&disk_id("d"))).await.expect(202);
    assert_eq!((&got.body["sku"], &got.body["properties"]["diskSizeBytes"]), (&doc["sku"], &json!(10_u64 << 30)));
    rig.finish(&got).await;
    let again = rig.snapshot_doc("s").await;
    assert_eq!((again.get("tags"), &again["properties"]), (None, &patched["properties"]));

    for scope in [group(), SUB.to_owned()] {
        let uri = format!("{scope}/providers/Microsoft.Compute/snapshots?api-version={DISKS_VERSION}");
        assert_eq!(rig.get(&uri).await.expect(200).body["value"], json!([again]));
    }
    let resources = format!(
        "{}/resources?api-version=2021-04-01&$filter=resourceType%20eq%20'Microsoft.Compute%2Fsnapshots'",
        group()
    );
    assert_eq!(rig.get(&resources).await.expect(200).body["value"][0]["id"], snapshot_id("S"));
    let provider = rig.get(&format!("{SUB}/providers/Microsoft.Compute?api-version=2021-04-01")).await.expect(200).body;
    assert!(provider["resourceTypes"].as_array().unwrap().iter().any(|kind| kind["resourceType"] == "snapshots"));

    let got = rig.delete_snapshot("s").await.expect(202);
    assert_eq!(rig.snapshot_doc("s").await["properties"]["provisioningState"], "Deleting");
    rig.finish(&got).await;
    rig.get(&snapshot_uri("s")).await.refused(404, "ResourceNotFound");
    rig.delete_snapshot("s").await.expect(204);
}

/// As Terraform's `source_uri` and older clients name the disk.
#[tokio::test(start_paused = true)]
async fn a_snapshot_may_name_its_disk_by_source_uri() {
    let rig = Rig::new(slow()).await;
    let gib = {
        rig.disk("d0").await;
        rig.disk_doc("d0").await["properties"]["diskSizeGB"].clone()
    };
    let body = json!({"location": "westeurope", "properties": {
        "creationData": {"createOption": "Copy", "sourceUri": disk_id("d0")}, "osType": "",
    }});
    let made = rig.snapshot("s0", body).await;
    assert_eq!(made["properties"]["diskSizeGB"], gib);
    assert_eq!(made["properties"]["creationData"]["sourceUri"], disk_id("d0"));
    assert!(made["properties"].get("osType").is_none(), "{made}");
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_takes_its_published_time() {
    let rig = Rig::new(slow()).await;
    rig.disk("d").await;
    let took = async |got: Got| {
        let started = rig.emulator.control.shared.clock.elapsed();
        rig.finish(&got).await;
        (rig.emulator.control.shared.clock.elapsed() - started).as_secs_f64()
    };
    let made = took(rig.put_snapshot("s", of(&disk_id("d"))).await.expect(202)).await;
    let gone = took(rig.delete_snapshot("s").await.expect(202)).await;
    assert!((2.5..4.0).contains(&made) && (6.0..7.5).contains(&gone), "{made} {gone}");
}

#[tokio::test(start_paused = true)]
async fn an_attached_disk_has_snapshots_and_they_outlive_it() {
    let rig = Rig::new(options()).await;
    rig.disk("d").await;
    rig.attached("plain-0", &[("d", 0)]).await;
    rig.snapshot("s", of(&disk_id("d"))).await;
    assert_eq!(rig.disk_doc("d").await["properties"]["diskState"], "Attached");
    let got = rig.attach_detach("plain-0", json!([]), json!([{"diskId": disk_id("d")}])).await.expect(202);
    rig.finish(&got).await;
    let got = rig.call("DELETE", &disk_uri("d"), None).await.expect(202);
    rig.finish(&got).await;
    rig.disk_with("copy", json!({"properties": {"creationData": of(&snapshot_id("s"))["properties"]["creationData"]}}))
        .await;
}

#[tokio::test(start_paused = true)]
async fn incremental_snapshots_of_a_disk_are_a_family_of_one_sku() {
    let rig = Rig::new(options()).await;
    rig.disk("d").await;
    rig.disk("e").await;
    let first = rig.snapshot("a", incremental(&disk_id("d"))).await;
    assert_eq!(first["sku"]["name"], "Standard_ZRS");
    assert_eq!(first["properties"]["completionPercent"], 100);
    let family = &first["properties"]["incrementalSnapshotFamilyId"];
    assert!(family.is_string());
    let mut lrs = incremental(&disk_id("d"));
    lrs["sku"] = json!({"name": "Standard_LRS"});
    tokio::time::sleep(Duration::from_secs(1)).await;
    rig.snapshot("b", lrs).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    // Without a SKU it has that of the one before.
    let third = rig.snapshot("c", incremental(&disk_id("d"))).await;
    assert_eq!(
        (&third["sku"]["name"], &third["properties"]["incrementalSnapshotFamilyId"]),
        (&json!("Standard_LRS"), family)
    );
    let other = rig.snapshot("x", incremental(&disk_id("e"))).await;
    assert_ne!(&other["properties"]["incrementalSnapshotFamilyId"], family);
    let full = rig.snapshot("full", of(&disk_id("d"))).await;
    assert!(full["properties"].get("incrementalSnapshotFamilyId").is_none());
    // In a region without zones there is no zone-redundant storage.
    let mut west = premium(4);
    west["location"] = json!("westus");
    let got = rig.put_disk("w", west).await.expect(202);
    rig.finish(&got).await;
    let mut body = incremental(&disk_id("w"));
    body["location"] = json!("westus");
    assert_eq!(rig.snapshot("w", body.clone()).await["sku"]["name"], "Standard_LRS");
    body["sku"] = json!({"name": "Standard_ZRS"});
    let got = rig.put_snapshot("w2", body).await.refused(400, "InvalidParameter");
    assert_eq!(
        got.message(),
        "SKU Standard_ZRS is not supported for resource type Snapshot in this region. Supported SKUs for this region are Premium_LRS,Standard_LRS"
    );
}

#[tokio::test(start_paused = true)]
async fn a_disk_has_so_many_incremental_snapshots_in_five_minutes() {
    let rig = Rig::new(options()).await;
    rig.disk("d").await;
    for at in 0..7 {
        rig.snapshot(&format!("s{at}"), incremental(&disk_id("d"))).await;
    }
    rig.put_snapshot("s7", incremental(&disk_id("d"))).await.refused(409, "OperationNotAllowed");
    rig.snapshot("full", of(&disk_id("d"))).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    rig.snapshot("s7", incremental(&disk_id("d"))).await;
}

#[tokio::test(start_paused = true)]
async fn a_wrong_snapshot_is_refused_in_azures_words_and_leaves_nothing() {
    let rig = Rig::new(options()).await;
    rig.disk("d").await;
    let got = rig.put_disk("v2", premium_v2(4)).await.expect(202);
    rig.finish(&got).await;
    let with = |path: &str, value: Value| {
        let mut body = of(&disk_id("d"));
        *body.pointer_mut(path).unwrap() = value;
        body
    };
    let data = |data: Value| json!({"location": "westeurope", "properties": {"creationData": data}});
    let mut premium_incremental = incremental(&disk_id("d"));
    premium_incremental["sku"] = json!({"name": "Premium_LRS"});
    let mut ssd = of(&disk_id("d"));
    ssd["sku"] = json!({"name": "StandardSSD_LRS"});
    let mut small = of(&disk_id("d"));
    small["properties"]["diskSizeGB"] = json!(9);
    let mut private = of(&disk_id("d"));
    private["properties"]["networkAccessPolicy"] = json!("AllowPrivate");
    for (status, code, body) in [
        (400, "LocationRequired", with("/location", json!(""))),
        (404, "NotFound", with("/location", json!("eastus"))),
        (400, "LocationNotAvailableForResourceType", with("/location", json!("atlantis"))),
        (400, "InvalidParameter", json!({"location": "westeurope"})),
        (400, "InvalidParameter", json!({"location": "westeurope", "properties": {}})),
        (400, "InvalidParameter", data(json!({"createOption": "Copy"}))),
        (400, "InvalidParameter", data(json!({"createOption": "Copy", "sourceResourceId": "d"}))),
        (404, "ResourceNotFound", of(&disk_id("none"))),
        (400, "InvalidParameter", of(&vm_id("plain-0"))),
        (400, "InvalidParameter", data(json!({"createOption": "Empty"}))),
        (400, "InvalidParameter", data(json!({"createOption": "Import"}))),
        (400, "InvalidParameter", data(json!({"createOption": "Attach"}))),
        (400, "InvalidParameter", data(json!({"createOption": "Magic"}))),
        (400, "InvalidParameter", premium_incremental),
        (400, "InvalidParameter", ssd),
        (400, "InvalidParameter", small),
        (400, "InvalidParameter", private),
        (400, "BadRequest", json!({"location": "westeurope", "properties": {"noSuchMember": 1}})),
        (409, "OperationNotAllowed", of(&disk_id("v2"))),
    ] {
        let shown = body.to_string();
        let got = rig.put_snapshot("wrong", body).await;
        assert_eq!((got.status, got.code()), (status, code), "{shown}: {}", got.body);
    }
    rig.put_snapshot("-wrong", of(&disk_id("d"))).await.refused(400, "InvalidParameter");
    rig.get(&snapshot_uri("wrong")).await.expect(404);
    rig.call("PATCH", &snapshot_uri("wrong"), Some(json!({"tags": {}}))).await.refused(404, "ResourceNotFound");
    let elsewhere = snapshot_uri("wrong").replace("/lazuli/", "/nowhere/");
    rig.call("PUT", &elsewhere, Some(of(&disk_id("d")))).await.refused(404, "ResourceGroupNotFound");
}

#[tokio::test(start_paused = true)]
async fn what_a_snapshot_is_of_never_changes_and_it_only_grows() {
    let rig = Rig::new(options()).await;
    rig.disk("d").await;
    rig.disk("e").await;
    rig.snapshot("s", of(&disk_id("d"))).await;
    let got = rig.put_snapshot("s", of(&disk_id("e"))).await.refused(400, "BadRequest");
    assert_eq!(got.message(), "Changing property 'sourceResourceId' is not allowed for existing disk 's'.");
    rig.put_snapshot("s", incremental(&disk_id("d"))).await.refused(409, "PropertyChangeNotAllowed");
    let patch = |gib: u64| json!({"properties": {"diskSizeGB": gib}});
    rig.call("PATCH", &snapshot_uri("s"), Some(patch(9))).await.refused(409, "OperationNotAllowed");
    let got = rig.call("PATCH", &snapshot_uri("s"), Some(patch(12))).await.expect(202);
    rig.finish(&got).await;
    assert_eq!(rig.snapshot_doc("s").await["properties"]["diskSizeBytes"], 12_u64 << 30);
}

#[tokio::test(start_paused = true)]
async fn one_write_of_a_snapshot_runs_at_a_time() {
    let rig = Rig::new(slow()).await;
    rig.disk("d").await;
    let got = rig.put_snapshot("s", of(&disk_id("d"))).await.expect(202);
    rig.put_snapshot("s", of(&disk_id("d"))).await.refused(409, "Conflict");
    rig.call("PATCH", &snapshot_uri("s"), Some(json!({"tags": {}}))).await.refused(409, "Conflict");
    rig.delete_snapshot("s").await.refused(409, "Conflict");
    rig.finish(&got).await;
    rig.delete_snapshot("s").await.expect(202);
    rig.delete_snapshot("s").await.refused(409, "Conflict");
}

#[tokio::test(start_paused = true)]
async fn a_creation_that_fails_late_leaves_nothing() {
    let rig = Rig::new(slow()).await;
    rig.disk("d").await;
    let incident = json!({
        "match": {"operation": "snapshots.createOrUpdate"},
        "then": {"lateFailure": {"code": "InternalError", "message": "no"}},
    });
    rig.control().add_incident(serde_json::from_value(incident).unwrap()).unwrap();
    let got = rig.put_snapshot("s", incremental(&disk_id("d"))).await.expect(202);
    assert_eq!(rig.finish(&got).await["status"], "Failed");
    rig.get(&snapshot_uri("s")).await.refused(404, "ResourceNotFound");
}

#[tokio::test(start_paused = true)]
async fn a_copy_to_another_region_goes_on_after_its_creation() {
    let rig = Rig::new(slow()).await;
    rig.disk("d").await;
    let source = rig.snapshot("s", incremental(&disk_id("d"))).await;
    let got = rig.put_snapshot("c", copy_start(&snapshot_id("s"))).await.expect(202);
    assert_eq!(rig.finish(&got).await["status"], "Succeeded");
    let copy = rig.snapshot_doc("c").await;
    assert_eq!(copy["properties"]["provisioningState"], "Succeeded");
    assert_eq!(
        (&copy["properties"]["completionPercent"], &copy["properties"]["snapshotAccessState"]),
        (&json!(0), &json!("Pending"))
    );
    for member in ["incrementalSnapshotFamilyId", "diskSizeBytes"] {
        assert_eq!(copy["properties"][member], source["properties"][member], "{member}");
    }
    assert_eq!(copy["properties"]["creationData"]["sourceUniqueId"], source["properties"]["uniqueId"]);

    // Nothing can be made of it yet.
    let mut disk = premium(10);
    disk["location"] = json!(OTHER_REGION);
    disk["properties"] = of(&snapshot_id("c"))["properties"].clone();
    let got = rig.put_disk("r", disk.clone()).await.refused(409, "OperationNotAllowed");
    assert!(got.message().ends_with("its copy is 0 percent complete."), "{}", got.message());
    let mut further = copy_start(&snapshot_id("c"));
    further["location"] = json!("northeurope");
    rig.put_snapshot("further", further.clone()).await.refused(409, "OperationNotAllowed");
    rig.access("c", "Read").await.refused(409, "OperationNotAllowed");

    let mut seen = vec![0];
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_secs(36)).await;
        seen.push(rig.percent("c").await);
    }
    assert!(seen.is_sorted() && seen.iter().any(|percent| (1..100).contains(percent)), "{seen:?}");
    assert_eq!(seen.last(), Some(&100));
    assert_eq!(rig.snapshot_doc("c").await["properties"]["snapshotAccessState"], "Available");
    let got = rig.put_disk("r", disk).await.expect(202);
    assert_eq!(rig.finish(&got).await["status"], "Succeeded");
    rig.put_snapshot("further", further).await.expect(202);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_a_copy_keeps_its_progress() {
    let rig = Rig::new(slow()).await;
    rig.disk("d").await;
    rig.snapshot("s", incremental(&disk_id("d"))).await;
    rig.snapshot("c", copy_start(&snapshot_id("s"))).await;
    tokio::time::sleep(Duration::from_secs(35)).await;
    let got = rig.call("PATCH", &snapshot_uri("c"), Some(json!({"tags": {"a": "b"}}))).await.expect(202);
    let before = rig.percent("c").await;
    rig.finish(&got).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(rig.percent("c").await > before);
    rig.copied("c").await;
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_cannot_be_is_refused() {
    let rig = Rig::new(slow()).await;
    rig.disk("d").await;
    rig.snapshot("full", of(&disk_id("d"))).await;
    rig.snapshot("s", incremental(&disk_id("d"))).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    rig.snapshot("later", incremental(&disk_id("d"))).await;
    let got = rig.put_snapshot("c", copy_start(&disk_id("d"))).await.refused(400, "InvalidParameter");
    assert_eq!(got.message(), "Entity not of expected type");
    rig.put_snapshot("c", copy_start(&snapshot_id("none"))).await.refused(404, "ResourceNotFound");
    let full = "CopyStart creation is not supported for full snapshots.";
    let got = rig.put_snapshot("c", copy_start(&snapshot_id("full"))).await.refused(409, "OperationNotAllowed");
    assert_eq!(got.message(), full);
    let mut of_full = copy_start(&snapshot_id("s"));
    of_full["properties"]["incremental"] = json!(false);
    assert_eq!(rig.put_snapshot("c", of_full).await.refused(409, "OperationNotAllowed").message(), full);
    let mut here = copy_start(&snapshot_id("s"));
    here["location"] = json!("westeurope");
    let got = rig.put_snapshot("c", here).await.refused(409, "OperationNotAllowed");
    assert!(got.message().contains("within region westeurope"), "{}", got.message());
    // With Copy, a source in another region is none.
    let mut copied = incremental(&snapshot_id("s"));
    copied["location"] = json!(OTHER_REGION);
    let got = rig.put_snapshot("c", copied).await.refused(404, "NotFound");
    assert_eq!(got.message(), "Resource s is not found.");
    // One of a disk at a time, in the order of their creation.
    rig.snapshot("c", copy_start(&snapshot_id("later"))).await;
    let got = rig.put_snapshot("c2", copy_start(&snapshot_id("s"))).await.refused(409, "OperationNotAllowed");
    assert!(got.message().contains("at a time"), "{}", got.message());
    rig.copied("c").await;
    let got = rig.put_snapshot("c2", copy_start(&snapshot_id("s"))).await.refused(409, "OperationNotAllowed");
    assert!(got.message().contains("order"), "{}", got.message());
}

#[tokio::test(start_paused = true)]
async fn whether_a_copy_may_stay_in_its_region_is_a_switch() {
    let mut options = options();
    options.unverified.copy_start_in_region = true;
    let rig = Rig::new(options).await;
    rig.disk("d").await;
    rig.snapshot("s", incremental(&disk_id("d"))).await;
    let mut here = copy_start(&snapshot_id("s"));
    here["location"] = json!("westeurope");
    rig.snapshot("c", here).await;
    // Without latency it is complete at once.
    assert_eq!(rig.percent("c").await, 100);
}

#[tokio::test(start_paused = true)]
async fn a_copy_whose_source_is_deleted_fails_or_the_deletion_is_refused() {
    for deletable in [true, false] {
        let mut options = slow();
        options.unverified.copy_source_deletable = deletable;
        let rig = Rig::new(options).await;
        rig.disk("d").await;
        rig.snapshot("s", incremental(&disk_id("d"))).await;
        rig.snapshot("c", copy_start(&snapshot_id("s"))).await;
        let got = rig.delete_snapshot("s").await;
        if !deletable {
            got.refused(409, "OperationNotAllowed");
            rig.copied("c").await;
            rig.delete_snapshot("s").await.expect(202);
            continue;
        }
        rig.finish(&got.expect(202)).await;
        tokio::time::sleep(Duration::from_secs(600)).await;
        let copy = rig.snapshot_doc("c").await;
        assert_eq!(copy["properties"]["copyCompletionError"]["errorCode"], "CopySourceNotFound");
        assert!(copy["properties"]["completionPercent"].as_u64().unwrap() < 100);
        rig.delete_snapshot("c").await.expect(202);
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_goes_on_after_a_restart() {
    let folder = Folder::new("copy");
    let rig = Rig::new(folder.options()).await;
    rig.disk("d").await;
    rig.snapshot("s", incremental(&disk_id("d"))).await;
    rig.snapshot("c", copy_start(&snapshot_id("s"))).await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    let before = rig.percent("c").await;
    assert!((1..100).contains(&before), "{before}");
    let start_time = Options::default().start_time + rig.emulator.control.shared.clock.elapsed();
    drop(rig.router);
    rig.emulator.shutdown().await;
    let rig = Rig::new(Options { start_time, ..folder.options() }).await;
    assert_eq!(rig.percent("c").await, before);
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert!((before + 10..100).contains(&rig.percent("c").await));
    tokio::time::sleep(Duration::from_secs(70)).await;
    assert_eq!(rig.percent("c").await, 100);
}

#[tokio::test(start_paused = true)]
async fn a_copy_moves_no_later_snapshot_of_its_name() {
    let rig = Rig::new(slow()).await;
    rig.disk("d").await;
    rig.snapshot("s", incremental(&disk_id("d"))).await;
    rig.snapshot("c", copy_start(&snapshot_id("s"))).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let got = rig.delete_snapshot("c").await.expect(202);
    rig.finish(&got).await;
    rig.snapshot("c", copy_start(&snapshot_id("s"))).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(rig.percent("c").await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_of_a_premium_v2_disk_is_filled_in_the_background() {
    let rig = Rig::new(slow()).await;
    let got = rig.put_disk("v2", premium_v2(4)).await.expect(202);
    rig.finish(&got).await;
    let snapshot = rig.snapshot("s", incremental(&disk_id("v2"))).await;
    assert_eq!(snapshot["properties"]["completionPercent"], 0);
    assert_eq!(snapshot["properties"]["creationData"]["logicalSectorSize"], 4096);
    let restored = |sku: &str| {
        let mut body = empty_disk(sku, 4);
        body["zones"] = json!(["1"]);
        body["properties"] = of(&snapshot_id("s"))["properties"].clone();
        body
    };
    rig.put_disk("r", restored("PremiumV2_LRS")).await.refused(409, "OperationNotAllowed");
    rig.copied("s").await;
    let got = rig.put_disk("r", restored("Premium_LRS")).await.refused(409, "OperationNotAllowed");
    assert!(got.message().contains("sector size"), "{}", got.message());
    rig.put_disk("r", restored("PremiumV2_LRS")).await.expect(202);
}

#[tokio::test(start_paused = true)]
async fn a_disk_is_made_of_a_snapshot_of_its_region_at_least_as_large() {
    let rig = Rig::new(slow()).await;
    rig.disk("d").await;
    let got = rig.put_snapshot("s", of(&disk_id("d"))).await.expect(202);
    let restored = |gib: Option<u64>| {
        let mut body = premium(10);
        body["properties"] = of(&snapshot_id("s"))["properties"].clone();
        if let Some(gib) = gib {
            body["properties"]["diskSizeGB"] = json!(gib);
        }
        body
    };
    let refused = rig.put_disk("r", restored(None)).await.refused(409, "OperationNotAllowed");
    assert!(refused.message().ends_with("it is being created."), "{}", refused.message());
    rig.finish(&got).await;
    rig.put_disk("r", restored(Some(9))).await.refused(400, "InvalidParameter");
    let mut elsewhere = restored(None);
    elsewhere["location"] = json!(OTHER_REGION);
    assert_eq!(rig.put_disk("r", elsewhere).await.refused(404, "NotFound").message(), "Resource s is not found.");
    let got = rig.put_disk("r", restored(None)).await.expect(202);
    // While the disk is being made the snapshot stays.
    let refused = rig.delete_snapshot("s").await.refused(409, "OperationNotAllowed");
    assert!(refused.message().contains("disks/r"), "{}", refused.message());
    rig.finish(&got).await;
    let (disk, snapshot) = (rig.disk_doc("r").await, rig.snapshot_doc("s").await);
    assert_eq!(disk["properties"]["diskSizeGB"], 10);
    assert_eq!(disk["properties"]["creationData"]["sourceUniqueId"], snapshot["properties"]["uniqueId"]);
    let got = rig.put_disk("larger", restored(Some(20))).await.expect(202);
    rig.finish(&got).await;
    let got = rig.delete_snapshot("s").await.expect(202);
    let refused = rig.put_disk("late", restored(None)).await.refused(409, "OperationNotAllowed");
    assert!(refused.message().ends_with("it is being deleted."), "{}", refused.message());
    rig.finish(&got).await;
    assert_eq!(rig.disk_doc("larger").await["properties"]["diskSizeGB"], 20);
}

#[tokio::test(start_paused = true)]
async fn a_signature_lets_a_snapshot_be_read_and_not_be_deleted() {
    let rig = Rig::new(options()).await;
    rig.disk("d").await;
    for at in 0..6 {
        rig.snapshot(&format!("s{at}"), incremental(&disk_id("d"))).await;
    }
    rig.access("none", "Read").await.refused(404, "ResourceNotFound");
    rig.access("s0", "Write").await.refused(409, "OperationNotAllowed");
    let got = rig.access("s0", "Read").await.expect(202);
    let sas = rig.finish(&got).await["properties"]["output"]["accessSAS"].clone();
    assert!(sas.as_str().unwrap().contains("&sp=r&"), "{sas}");
    assert_eq!(rig.snapshot_doc("s0").await["properties"]["diskState"], "ActiveSAS");
    let got = rig.delete_snapshot("s0").await.refused(409, "Conflict");
    assert!(got.message().starts_with("Snapshot s0 cannot be deleted because there is an active shared access"));
    for at in 1..5 {
        let got = rig.access(&format!("s{at}"), "Read").await.expect(202);
        rig.finish(&got).await;
    }
    rig.access("s5", "Read").await.refused(409, "OperationNotAllowed");
    let end = format!("{}/endGetAccess?api-version={DISKS_VERSION}", snapshot_id("s0"));
    let got = rig.call("POST", &end, None).await.expect(202);
    rig.finish(&got).await;
    assert_eq!(rig.snapshot_doc("s0").await["properties"]["diskState"], "Unattached");
    rig.access("s5", "Read").await.expect(202);
    rig.delete_snapshot("s0").await.expect(202);
    // The others end after their time.
    tokio::time::sleep(Duration::from_secs(301)).await;
    assert_eq!(rig.snapshot_doc("s1").await["properties"]["diskState"], "Unattached");
}

#[tokio::test(start_paused = true)]
async fn snapshots_count_by_sku_subscription_and_region() {
    let rig = Rig::new(Options { quotas: [("StandardSnapshotCount".to_owned(), 1)].into(), ..options() }).await;
    rig.disk("d").await;
    rig.snapshot("a", of(&disk_id("d"))).await;
    let got = rig.put_snapshot("b", of(&disk_id("d"))).await.refused(409, "OperationNotAllowed");
    assert!(got.message().contains("exceeding approved StandardSnapshotCount quota"), "{}", got.message());
    rig.snapshot("zrs", incremental(&disk_id("d"))).await;
    let usages = format!("{SUB}/providers/Microsoft.Compute/locations/westeurope/usages?api-version={COMPUTE_VERSION}");
    let usages = rig.get(&usages).await.expect(200).body["value"].clone();
    let of = |name: &str| {
        let usage = usages.as_array().unwrap().iter().find(|usage| usage["name"]["value"] == name).unwrap();
        (usage["currentValue"].clone(), usage["limit"].clone())
    };
    assert_eq!(of("StandardSnapshotCount"), (json!(1), json!(1)));
    assert_eq!(of("ZRSSnapshotCount"), (json!(1), json!(75_000)));
    assert_eq!(of("PremiumSnapshotCount"), (json!(0), json!(75_000)));
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_has_its_disks_key_and_goes_with_its_group() {
    let rig = Rig::new(options()).await;
    let key = json!({
        "type": "EncryptionAtRestWithCustomerKey",
        "diskEncryptionSetId": format!("{}/providers/Microsoft.Compute/diskEncryptionSets/k", group()),
    });
    let mut disk = premium(10);
    disk["properties"]["encryption"] = key.clone();
    let got = rig.put_disk("d", disk).await.expect(202);
    rig.finish(&got).await;
    let uri = |id: &str| format!("{SUB}/resourceGroups/other{id}");
    rig.call("PUT", &uri("?api-version=2021-04-01"), Some(json!({"location": "westeurope"}))).await.expect(201);
    let there = uri(&format!("/providers/Microsoft.Compute/snapshots/s?api-version={DISKS_VERSION}"));
    let got = rig.call("PUT", &there, Some(of(&disk_id("d")))).await.expect(202);
    rig.finish(&got).await;
    assert_eq!(rig.get(&there).await.expect(200).body["properties"]["encryption"], key);
    rig.call("DELETE", &uri("?api-version=2021-04-01"), None).await.expect(202);
    tokio::time::sleep(Duration::from_secs(1)).await;
    rig.get(&there).await.refused(404, "ResourceGroupNotFound");
}

#[test]
fn the_hypervisor_copies_grows_and_deletes_a_snapshot() {
    let state = crate::state::State::new(&options(), crate::arm::TYPES);
    let steps = |old, new| crate::arm::compute::snapshots::steps(&state, old, new);
    let doc = |gib: u64| {
        json!({"id": snapshot_id("s"), "properties": {
            "uniqueId": "u", "diskSizeBytes": gib << 30, "creationData": {"sourceResourceId": disk_id("d")},
        }})
    };
    let (small, large) = (doc(1), doc(2));
    for (old, new, wanted) in [
        (None, Some(&small), "Copy"),
        (Some(&small), Some(&large), "Resize"),
        (Some(&small), Some(&small), ""),
        (Some(&small), None, "Delete"),
    ] {
        let done: Vec<&str> = steps(old, new)
            .iter()
            .map(|step| match step {
                HypervisorStep::Copy { from, disk } if *from == disk_id("d") && disk.id == snapshot_id("s") => "Copy",
                HypervisorStep::Resize { disk } if disk.size_bytes == 2 << 30 => "Resize",
                HypervisorStep::Delete { disk } if disk.id == snapshot_id("s") => "Delete",
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(done.concat(), wanted);
    }
}
