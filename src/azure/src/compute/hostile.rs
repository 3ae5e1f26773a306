//! Whatever a disk or a snapshot of Azure's looks like: it is read or refused, and what is read can be used.

use lazuli_model::ArmId;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{decode_disk, decode_disk_details, decode_snapshot, wire::decode_listed_disk};

const DISK: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/pvc-1";

/// The members that reads of disks and snapshots have shown.
fn recorded() -> [Value; 2] {
    let disk = json!({
        "name": "pvc-1", "type": "Microsoft.Compute/disks", "location": "eastus2", "id": DISK, "zones": ["1"],
        "tags": {"k8s-azure-created-by": "kubernetes-azure-dd"}, "sku": {"name": "PremiumV2_LRS", "tier": "Premium"},
        "managedBy": "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/a",
        "managedByExtended": ["/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/b"],
        "properties": {
            "creationData": {"createOption": "Copy", "sourceResourceId": DISK, "sourceUniqueId": "u-0",
                             "logicalSectorSize": 512, "performancePlus": false},
            "diskSizeGB": 10, "diskSizeBytes": 10_737_418_240_u64, "uniqueId": "u-1", "diskState": "Attached",
            "provisioningState": "Succeeded", "timeCreated": "2026-11-26T10:00:00.1234567+00:00", "maxShares": 1,
            "LastOwnershipUpdateTime": "2026-11-26T10:00:00+00:00", "diskIOPSReadWrite": 3000,
            "diskMBpsReadWrite": 125, "encryption": {"type": "EncryptionAtRestWithPlatformKey"}, "tier": "P10",
            "burstingEnabled": false, "networkAccessPolicy": "AllowAll", "publicNetworkAccess": "Enabled",
            "completionPercent": 12.5
        }
    });
    let snapshot = json!({
        "name": "s-1", "type": "Microsoft.Compute/snapshots", "location": "eastus2",
        "id": "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/snapshots/s-1",
        "tags": {"lazuli-request": "s-1"}, "sku": {"name": "Standard_LRS", "tier": "Standard"},
        "properties": {
            "creationData": {"createOption": "CopyStart", "sourceResourceId": DISK, "sourceUniqueId": "u-1",
                             "instantAccessDurationMinutes": 60, "logicalSectorSize": 4096},
            "diskSizeGB": 10, "diskSizeBytes": 10_737_418_752_u64, "uniqueId": "u-2", "incremental": true,
            "timeCreated": "2026-11-26T10:00:00.123456+00:00", "provisioningState": "Succeeded",
            "incrementalSnapshotFamilyId": "f-1", "snapshotAccessState": "InstantAccess",
            "copyCompletionError": {"errorCode": "CopySourceNotFound", "errorMessage": "m"}, "completionPercent": 42.7
        }
    });
    [disk, snapshot]
}

fn strange() -> impl Strategy<Value = Value> {
    let long = "x".repeat(70_000);
    let tags: Map<String, Value> =
        (0..256).map(|n| (format!("{n}{}", "t".repeat(255)), json!("v".repeat(256)))).collect();
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(vec![-1.0, -0.0, 100.000_1, 1e308, 0.5]).prop_map(Value::from),
        prop::sample::select(vec![u64::from(u32::MAX), 1 << 32, u64::MAX, 1 << 53, 0]).prop_map(Value::from),
        ".{0,40}".prop_map(Value::from),
        prop::sample::select(vec![
            "9999-12-31T23:59:59Z",
            "0000-00-00T00:00:00Z",
            "-1-01-01T00:00:00Z",
            "2026-02-30T10:00:00Z",
            "2026-11-26T10:00:00.999999999999999999999Z",
            "2026-11-26T10:00:00+99:99",
            "/",
            "//",
            "/subscriptions//",
            "\u{0}",
            "\u{202e}Succeeded",
            "NaN",
            "-5",
        ])
        .prop_map(Value::from),
        Just(json!(long)),
        Just(json!([])),
        Just(json!([null, 7, {}, "x"])),
        Just(json!({})),
        Just(Value::Object(tags)),
    ]
}

/// Every place of a document.
fn places(at: &str, value: &Value, into: &mut Vec<String>) {
    into.push(at.to_owned());
    let members: Vec<(String, &Value)> = match value {
        Value::Object(members) => members.iter().map(|(name, value)| (name.clone(), value)).collect(),
        Value::Array(items) => items.iter().enumerate().map(|(n, value)| (n.to_string(), value)).collect(),
        _ => Vec::new(),
    };
    members.into_iter().for_each(|(name, value)| places(&format!("{at}/{name}"), value, into));
}

fn changed(mut document: Value, changes: &[(prop::sample::Index, Option<Value>)]) -> Value {
    for (place, value) in changes {
        let mut all = Vec::new();
        places("", &document, &mut all);
        let place = place.get(&all);
        match (value, place.rsplit_once('/')) {
            (None, Some((parent, name))) => {
                if let Some(Value::Object(members)) = document.pointer_mut(parent) {
                    members.remove(name);
                }
            }
            (value, _) => *document.pointer_mut(place).unwrap() = value.clone().unwrap_or_default(),
        }
    }
    document
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_azure_says_of_a_disk_or_a_snapshot_is_read_or_refused(
        which in 0usize..2,
        changes in prop::collection::vec((any::<prop::sample::Index>(), prop::option::weighted(0.8, strange())), 1..5),
    ) {
        let document = changed(recorded()[which].clone(), &changes);
        if let Ok(disk) = decode_disk(&document) {
            prop_assert!(disk.completion.is_none_or(|completion| completion.percent() <= 100));
            _ = (disk.size_in_bytes(), disk.is_hydrating(), disk.holders().len(), disk.size.bytes());
            prop_assert!(disk.id.as_str().parse::<ArmId>().is_ok());
        }
        if let Ok(listed) = decode_listed_disk(&document) {
            _ = listed.size.bytes();
        }
        _ = decode_disk_details(&document);
        if let Ok(snapshot) = decode_snapshot(&document) {
            prop_assert!(snapshot.completion.is_none_or(|completion| completion.percent() <= 100));
            _ = (snapshot.size_in_bytes(), snapshot.is_ready(), snapshot.is_complete(), snapshot.has_failed());
            _ = (snapshot.created.seconds_since(snapshot.created), snapshot.created.subsec_nanoseconds());
        }
    }
}

/// A refusal names the member, and no more of a hostile text than a person reads.
#[test]
fn a_refusal_is_for_a_reader() {
    let [mut disk, mut snapshot] = recorded();
    for document in [&mut disk, &mut snapshot] {
        document["properties"]["diskSizeGB"] = json!("x".repeat(100_000));
    }
    for refusal in [decode_disk(&disk).unwrap_err(), decode_snapshot(&snapshot).unwrap_err()] {
        assert_eq!(refusal.field, "properties.diskSizeGB");
        assert!(refusal.to_string().len() < 1_000, "{}", refusal.to_string().len());
    }
}
