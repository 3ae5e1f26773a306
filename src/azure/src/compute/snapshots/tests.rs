use lazuli_model::{
    ProvisioningState,
    disk_spec::{ExtendedLocation, NetworkAccessPolicy, PublicNetworkAccess},
    snapshot_spec::{SnapshotOrigin, SourceIdentity},
};

use super::*;

const DISK: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/pvc-1";

/// The members that reads of snapshots have shown.
fn raw() -> Value {
    json!({
        "name": "snapshot-1", "type": "Microsoft.Compute/snapshots", "location": "eastus2",
        "id": "/subscriptions/s/resourceGroups/G/providers/Microsoft.Compute/snapshots/snapshot-1",
        "tags": {"lazuli-request": "snapshot-1"}, "sku": {"name": "Standard_LRS", "tier": "Standard"},
        "properties": {
            "creationData": {"createOption": "copy", "sourceResourceId": DISK, "sourceUniqueId": "u-disk",
                             "instantAccessDurationMinutes": 60, "logicalSectorSize": 4096, "future": 1},
            "diskSizeGB": 10, "diskSizeBytes": 10_737_418_752_u64, "uniqueId": "u-1", "incremental": true,
            "timeCreated": "2026-11-26T10:00:00.123456+00:00", "provisioningState": "Succeeded",
            "incrementalSnapshotFamilyId": "f-1", "snapshotAccessState": "instantAccess", "completionPercent": 42.7
        }
    })
}

#[test]
fn a_snapshot_is_read_with_all_that_decisions_rest_on() {
    let snapshot = decode_snapshot(&raw()).unwrap();
    assert_eq!(snapshot.id, ArmId::snapshot("s", "g", "snapshot-1").unwrap());
    assert_eq!((snapshot.method, snapshot.source.as_deref()), (Some(CopyMethod::Copy), Some(DISK)));
    assert_eq!(
        (snapshot.unique_id.as_deref(), snapshot.source_unique_id.as_deref(), snapshot.family.as_deref()),
        (Some("u-1"), Some("u-disk"), Some("f-1"))
    );
    assert_eq!((snapshot.size, snapshot.size_in_bytes()), (Gib::new(10), (10 << 30) + 512));
    assert_eq!(snapshot.created, AzureTime::from_unix(1_795_687_200, 123_456_000));
    assert_eq!((snapshot.incremental, snapshot.instant_access_minutes), (true, Some(60)));
    assert_eq!(snapshot.access, Some(SnapshotAccessState::InstantAccess));
    assert_eq!(snapshot.completion, Some(Completion::from_percent(42.7)));
    assert_eq!((snapshot.logical_sector_size, snapshot.copy_error), (Some(4096), None));
    assert!(snapshot.tags.contains_key("lazuli-request"));
}

#[test]
fn what_azure_leaves_out_has_its_default_and_what_decisions_need_is_asked_for_by_name() {
    let mut bare = raw();
    bare["properties"] = json!({
        "creationData": {"createOption": "Import"}, "diskSizeGB": 4, "timeCreated": "2026-11-26T10:00:00Z",
        "provisioningState": "Updating", "snapshotAccessState": "SomethingNew",
        "copyCompletionError": {"errorCode": "CopySourceNotFound", "errorMessage": "m"},
    });
    let snapshot = decode_snapshot(&bare).unwrap();
    assert_eq!((snapshot.method, snapshot.incremental, snapshot.access), (None, false, None));
    assert_eq!((snapshot.completion, snapshot.provisioning_state), (None, ProvisioningState::InProgress));
    assert_eq!(snapshot.copy_error.as_deref(), Some("CopySourceNotFound"));
    for (field, value) in [("timeCreated", json!("soon")), ("diskSizeGB", Value::Null), ("incremental", json!("yes"))] {
        let mut wrong = raw();
        wrong["properties"][field] = value;
        wrong["properties"]["diskSizeBytes"] = Value::Null;
        assert_eq!(decode_snapshot(&wrong).unwrap_err().field, format!("properties.{field}"));
    }
}

#[test]
fn a_list_keeps_what_a_read_of_a_snapshot_says() {
    let text = raw().to_string();
    let mut item = serde_json::Deserializer::from_str(&text);
    let kept = serde::de::DeserializeSeed::deserialize(listed::SNAPSHOTS.fields, &mut item).unwrap();
    assert_eq!(decode_snapshot(&kept).unwrap(), decode_snapshot(&raw()).unwrap());
    assert!((listed::SNAPSHOTS.is_complete)(&kept));
    let shown = (listed::SNAPSHOTS.shown)(&kept).unwrap();
    assert_eq!((shown.size, shown.made), (Some(Gib::new(10)), Some(1_795_687_200)));
}

fn spec() -> SnapshotSpec {
    SnapshotSpec {
        location: "eastus2".into(),
        extended_location: None,
        tags: [("lazuli-request".to_owned(), "snapshot-1".to_owned())].into(),
        method: CopyMethod::Copy,
        source: DISK.parse().unwrap(),
        instant_access_minutes: None,
        incremental: true,
        network_access_policy: None,
        public_network_access: None,
        data_access_auth_mode: None,
        origin: SnapshotOrigin {
            request: "snapshot-1".into(),
            volume: DISK.into(),
            source: SourceIdentity::UniqueId("u-disk".into()),
        },
    }
}

#[test]
fn a_plain_snapshot_says_only_what_was_asked_for() {
    assert_eq!(
        encode_snapshot(&spec()),
        json!({
            "location": "eastus2",
            "tags": {"lazuli-request": "snapshot-1"},
            "properties": {
                "creationData": {"createOption": "Copy", "sourceResourceId": DISK},
                "incremental": true,
            },
        })
    );
}

#[test]
fn access_edge_zone_and_the_way_of_a_copy_are_said_where_they_were_asked_for() {
    let body = encode_snapshot(&SnapshotSpec {
        extended_location: Some(ExtendedLocation { name: "losangeles".into(), kind: "EdgeZone".into() }),
        method: CopyMethod::CopyStart,
        instant_access_minutes: Some(120),
        incremental: false,
        network_access_policy: Some(NetworkAccessPolicy::DenyAll),
        public_network_access: Some(PublicNetworkAccess::Disabled),
        data_access_auth_mode: Some(DataAccessAuthMode::AzureActiveDirectory),
        ..spec()
    });
    assert_eq!(body["extendedLocation"], json!({"name": "losangeles", "type": "EdgeZone"}));
    assert_eq!(
        body["properties"],
        json!({
            "creationData": {"createOption": "CopyStart", "sourceResourceId": DISK, "instantAccessDurationMinutes": 120},
            "incremental": false, "networkAccessPolicy": "DenyAll", "publicNetworkAccess": "Disabled",
            "dataAccessAuthMode": "AzureActiveDirectory",
        })
    );
}
