use json_patch::Patch as JsonPatch;
use lazuli_model::{Disk, DiskState, Gib, ProvisioningState, SkuName};
use proptest::{collection::vec, prelude::*, sample::select};

use super::{
    claim::{Growth, growth, refusal},
    volume::{REGION_KEY, Readable, Review, ZONE_KEY, changes_by_disk},
    *,
};
use lazuli_volume::{AllowedResourceGroups, DISK_TOPOLOGY_KEY};

const DISK: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/pvc-1";
const BLOB: &str = "https://dd1.blob.core.windows.net/vhds/pvc-1.vhd";

fn disk(location: &str, zones: &[&str]) -> Disk {
    Disk {
        id: DISK.parse().unwrap(),
        location: location.to_owned(),
        zones: zones.iter().map(|zone| (*zone).to_owned()).collect(),
        sku: Some(SkuName::PremiumLrs),
        size: Gib::new(100),
        state: Some(DiskState::Unattached),
        provisioning_state: ProvisioningState::Succeeded,
        managed_by: None,
        managed_by_extended: Vec::new(),
        ownership_changed: None,
        max_shares: 1,
        disk_encryption_set: None,
        tags: Default::default(),
        iops: None,
        mbps: None,
        logical_sector_size: None,
        network_access_policy: None,
        source: None,
        source_unique_id: None,
        unique_id: None,
        bytes: None,
        completion: None,
    }
}

fn csi() -> Value {
    json!({"metadata": {"name": "pvc-1"}, "spec": {"csi": {"driver": DRIVER, "volumeHandle": DISK}}})
}

fn in_tree() -> Value {
    let source = json!({"diskName": "pvc-1", "diskURI": DISK, "kind": "Managed", "cachingMode": "ReadOnly"});
    json!({"metadata": {"name": "pvc-1"}, "spec": {"azureDisk": source}})
}

/// A volume whose node affinity has a term for each list of values of this key.
fn bound(key: &str, terms: &[&[&str]]) -> Value {
    let term = |values: &&[&str]| json!({"matchExpressions": [{"key": key, "operator": "In", "values": values}]});
    let mut volume = csi();
    volume["spec"]["nodeAffinity"] =
        json!({"required": {"nodeSelectorTerms": terms.iter().map(term).collect::<Vec<_>>()}});
    volume
}

fn apply(volume: &Value, patches: &[Patch]) -> Value {
    let patch: JsonPatch =
        serde_json::from_value(patches.iter().map(Patch::to_json).collect::<Vec<_>>().into()).unwrap();
    let mut patched = volume.clone();
    json_patch::patch(&mut patched, &patch).unwrap_or_else(|error| panic!("{error}: {patch:?} of {volume}"));
    patched
}

fn readable(allowed: &[&str]) -> Readable {
    let allowed = AllowedResourceGroups::of(allowed.iter().map(|group| group.parse().unwrap()).collect());
    Readable { allowed, subscription: "sub".to_owned(), resource_group: "cluster".to_owned() }
}

fn review(volume: &Value, region: &str) -> Review {
    volume::review(volume, region, &readable(&[]))
}

#[test]
fn a_disk_is_read_where_the_operator_allows_disks() {
    let of = |allowed: &[&str]| volume::review(&csi(), "westeurope", &readable(allowed));
    for allowed in [&[][..], &["s/g"], &["other", "S/*"]] {
        assert_eq!(of(allowed), Review::ReadDisk(DISK.parse().unwrap()), "{allowed:?}");
    }
    // A name alone is of the cluster's subscription.
    for allowed in [&["g"][..], &["s/other"], &["sub/*"]] {
        let Review::NotAllowed { disk, why } = of(allowed) else { panic!("{allowed:?}") };
        assert!(disk == DISK.parse().unwrap() && why.contains("its resource group would be s/g"), "{why}");
    }
    // What names its zones needs no disk.
    let zonal = volume::review(&bound(ZONE_KEY, &[&["westeurope-1"]]), "westeurope", &readable(&["other"]));
    assert!(matches!(zonal, Review::Changed(_)), "{zonal:?}");
}

/// What the API server stores of a volume whose disk this is.
fn admitted(volume: &Value, disk: &Disk) -> Value {
    match review(volume, "westeurope") {
        Review::Changed(patches) => apply(volume, &patches),
        Review::ReadDisk(id) => {
            assert_eq!(id, disk.id);
            apply(volume, &changes_by_disk(volume, disk))
        }
        Review::NotAllowed { disk, why } => panic!("{disk}: {why}"),
    }
}

/// What it stores of one that names its zones itself.
fn by_itself(volume: &Value) -> Value {
    let Review::Changed(patches) = review(volume, "westeurope") else { panic!("a disk is asked for: {volume}") };
    apply(volume, &patches)
}

#[test]
fn a_zonal_disk_gives_its_volume_region_and_zone_as_labels_and_as_node_affinity() {
    for volume in [csi(), in_tree()] {
        let stored = admitted(&volume, &disk("West Europe", &["2"]));
        assert_eq!(stored["metadata"]["labels"], json!({REGION_KEY: "westeurope", ZONE_KEY: "westeurope-2"}));
        let requirement = |key: &str, value: &str| json!({"key": key, "operator": "In", "values": [value]});
        let term = json!({"matchExpressions": [
            requirement(REGION_KEY, "westeurope"), requirement(ZONE_KEY, "westeurope-2"),
        ]});
        assert_eq!(stored["spec"]["nodeAffinity"], json!({"required": {"nodeSelectorTerms": [term]}}));
        let mut rest = stored;
        rest["metadata"].as_object_mut().unwrap().remove("labels");
        rest["spec"].as_object_mut().unwrap().remove("nodeAffinity");
        assert_eq!(rest, volume);
    }
}

#[test]
fn a_disk_without_a_zone_gives_its_volume_the_region_alone() {
    let stored = admitted(&csi(), &disk("westeurope", &[]));
    assert_eq!(stored["metadata"]["labels"], json!({REGION_KEY: "westeurope"}));
    let terms = stored["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"].as_array().unwrap();
    assert_eq!(terms[0]["matchExpressions"].as_array().unwrap().len(), 1);
    // Azure names no region: no label is empty.
    assert_eq!(admitted(&csi(), &disk("", &[])), csi());
    assert_eq!(admitted(&csi(), &disk("", &["1"])), csi());
}

#[test]
fn what_the_provisioner_wrote_tells_the_zone_and_stays_and_azure_is_not_asked() {
    for key in [DISK_TOPOLOGY_KEY, ZONE_KEY, "failure-domain.beta.kubernetes.io/zone"] {
        let volume = bound(key, &[&["westeurope-1"]]);
        let stored = by_itself(&volume);
        assert_eq!(stored["metadata"]["labels"], json!({REGION_KEY: "westeurope", ZONE_KEY: "westeurope-1"}), "{key}");
        assert_eq!(stored["spec"], volume["spec"]);
    }
    // As a zone-redundant disk in a cluster without other nodes.
    let stored = by_itself(&bound(DISK_TOPOLOGY_KEY, &[&["westeurope-2"], &["westeurope-1", "westeurope-3"]]));
    assert_eq!(stored["metadata"]["labels"][ZONE_KEY], "westeurope-1__westeurope-2__westeurope-3");
}

#[test]
fn a_volume_for_nodes_without_a_zone_gets_no_label_of_a_zone() {
    for terms in [
        &[&[""][..]][..],
        &[&["westeurope-1"], &["westeurope-2"], &[""]],
        &[&["westeurope-1", ""]],
        // A fault domain.
        &[&["0"]],
        &[&["westeurope-1"], &["1"]],
    ] {
        let stored = by_itself(&bound(DISK_TOPOLOGY_KEY, terms));
        assert_eq!(stored["metadata"]["labels"], json!({REGION_KEY: "westeurope"}), "{terms:?}");
    }
    // One of the terms binds it to no zone.
    let mut volume = bound(ZONE_KEY, &[&["westeurope-1"]]);
    let terms = volume.pointer_mut("/spec/nodeAffinity/required/nodeSelectorTerms").unwrap().as_array_mut().unwrap();
    terms.push(json!({"matchExpressions": [{"key": "pool", "operator": "Exists"}]}));
    assert_eq!(by_itself(&volume)["metadata"]["labels"], json!({REGION_KEY: "westeurope"}));
}

#[test]
fn the_region_of_a_volume_without_a_zone_is_that_of_its_class_or_of_the_cluster() {
    let mut volume = bound(DISK_TOPOLOGY_KEY, &[&[""]]);
    volume["spec"]["csi"]["volumeAttributes"] = json!({"Location": "North Europe"});
    assert_eq!(by_itself(&volume)["metadata"]["labels"], json!({REGION_KEY: "northeurope"}));
    let Review::Changed(patches) = review(&bound(DISK_TOPOLOGY_KEY, &[&[""]]), "") else { panic!("asks Azure") };
    assert_eq!(patches, []);
    // Zones of two regions have no region.
    let stored = by_itself(&bound(DISK_TOPOLOGY_KEY, &[&["westeurope-1", "northeurope-1"]]));
    assert_eq!(stored["metadata"]["labels"], json!({ZONE_KEY: "northeurope-1__westeurope-1"}));
}

#[test]
fn what_no_label_can_hold_is_no_label() {
    let zones: Vec<String> = (1..=4).map(|number| format!("southafricanorth-{number}")).collect();
    let zones: Vec<&str> = zones.iter().map(String::as_str).collect();
    let stored = by_itself(&bound(DISK_TOPOLOGY_KEY, &[&zones]));
    assert_eq!(stored["metadata"]["labels"], json!({REGION_KEY: "southafricanorth"}));
    assert_eq!(admitted(&csi(), &disk("west/europe", &[])), csi());
}

#[test]
fn labels_that_are_there_are_kept_also_the_older_ones() {
    let zonal = disk("westeurope", &["2"]);
    for key in [ZONE_KEY, "failure-domain.beta.kubernetes.io/zone"] {
        let mut volume = csi();
        volume["metadata"]["labels"] = json!({key: "mine", "team": "storage"});
        let labels = admitted(&volume, &zonal)["metadata"]["labels"].clone();
        assert_eq!(labels, json!({key: "mine", "team": "storage", REGION_KEY: "westeurope"}));
    }
}

#[test]
fn node_affinity_for_something_else_gets_the_place_in_every_term() {
    let mut volume = bound("pool", &[&["a"], &["b"]]);
    let terms = "/spec/nodeAffinity/required/nodeSelectorTerms";
    volume.pointer_mut(terms).unwrap().as_array_mut().unwrap().push(json!({"matchFields": []}));
    let stored = admitted(&volume, &disk("westeurope", &["1"]));
    let counts: Vec<usize> = stored
        .pointer(terms)
        .unwrap()
        .as_array()
        .unwrap()
        .iter()
        .map(|term| term["matchExpressions"].as_array().unwrap().iter().filter(|one| one["key"] == ZONE_KEY).count())
        .collect();
    assert_eq!(counts, [1, 1, 1]);
    for empty in [json!(null), json!({}), json!({"required": null}), json!({"required": {"nodeSelectorTerms": []}})] {
        volume["spec"]["nodeAffinity"] = empty;
        let stored = admitted(&volume, &disk("westeurope", &["1"]));
        assert_eq!(stored.pointer(terms).unwrap()[0]["matchExpressions"].as_array().unwrap().len(), 2);
    }
}

#[test]
fn a_translated_volume_of_a_page_blob_gets_back_the_source_that_it_was_translated_from() {
    // As csi-translation-lib writes it, and the API server completes it.
    let disk = json!({"diskName": "pvc-1.vhd", "diskURI": BLOB, "kind": "Managed", "cachingMode": "ReadWrite",
        "fsType": "xfs", "readOnly": false});
    let volume = json!({"metadata": {"name": "pvc-1", "labels": {"a": "b"}},
        "spec": {"azureDisk": disk, "storageClassName": "dedicatedhdd"}});
    let stored = by_itself(&volume);
    let source = json!({"driver": DRIVER, "volumeHandle": BLOB, "fsType": "xfs", "readOnly": false,
        "volumeAttributes": {"kind": "Dedicated", "cachingMode": "ReadWrite", "fsType": "xfs"}});
    assert_eq!(stored["spec"], json!({"csi": source, "storageClassName": "dedicatedhdd"}));
    assert_eq!(stored["metadata"], volume["metadata"]);
    let mut shared = volume.clone();
    shared["spec"]["azureDisk"]["diskURI"] = json!(BLOB.replace("dd1", "ds1"));
    assert_eq!(by_itself(&shared)["spec"]["csi"]["volumeAttributes"]["kind"], "Shared");
    // What the API server takes as it is, and what is no address, is the user's.
    for (kind, uri) in [("Dedicated", BLOB), ("Shared", BLOB), ("Managed", "http://dd1.blob.core.windows.net/vhds/a")] {
        let mut volume = volume.clone();
        volume["spec"]["azureDisk"]["kind"] = kind.into();
        volume["spec"]["azureDisk"]["diskURI"] = uri.into();
        assert_eq!(by_itself(&volume), volume);
    }
}

#[test]
fn volumes_of_others_and_placeholders_are_admitted_as_they_are() {
    let mut other = csi();
    other["spec"]["csi"]["driver"] = "file.csi.azure.com".into();
    let mut placeholder = in_tree();
    placeholder["spec"]["azureDisk"]["diskName"] = PLACEHOLDER.into();
    let mut no_disk = csi();
    no_disk["spec"]["csi"]["volumeHandle"] = "vol-1".into();
    for volume in [other, placeholder, no_disk, json!({}), json!({"spec": {"nfs": {"path": "/"}}}), json!(null)] {
        assert_eq!(by_itself(&volume), volume);
    }
}

fn claim(volume: Value, storage: &str) -> Value {
    json!({"spec": {"volumeName": volume, "resources": {"requests": {"storage": storage}}}})
}

#[test]
fn a_growth_is_a_larger_request_of_a_bound_claim() {
    let (old, new) = (claim("pvc-1".into(), "1Gi"), claim("pvc-1".into(), "2Gi"));
    assert_eq!(growth(&old, &new), Some(Growth { volume: "pvc-1", bytes: 2 << 30 }));
    for (old, new) in [
        (&new, &old),
        (&old, &claim("pvc-1".into(), "1024Mi")),
        (&old, &claim(Value::Null, "2Gi")),
        (&old, &claim("".into(), "2Gi")),
        (&old, &claim("pvc-1".into(), "much")),
        (&Value::Null, &new),
    ] {
        assert_eq!(growth(old, new), None, "{old} {new}");
    }
}

fn judged(volume: &Value, gib: i64, disk: &Disk) -> Option<String> {
    let growth = Growth { volume: "pvc-1", bytes: gib << 30 };
    match claim::review(&growth, volume) {
        claim::Review::Admitted => None,
        claim::Review::Refused(why) => Some(why),
        claim::Review::ReadDisk(id) => {
            assert_eq!(id, disk.id);
            refusal(&growth, disk)
        }
    }
}

#[test]
fn what_azure_cannot_grow_is_refused_with_the_disk_the_sizes_and_what_to_do() {
    let mut disk = disk("westeurope", &[]);
    for volume in [csi(), in_tree()] {
        assert_eq!(judged(&volume, 32767, &disk), None);
        let why = judged(&volume, 32768, &disk).unwrap();
        assert_eq!(
            why,
            "PersistentVolume pvc-1 is the disk pvc-1, which cannot grow from 100 GiB to 32768 GiB: the largest \
             Premium_LRS has 32767 GiB; ask for less"
        );
    }
    disk.managed_by =
        Some("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/vm-1".parse().unwrap());
    assert_eq!(judged(&csi(), 4095, &disk), None);
    let why = judged(&csi(), 4097, &disk).unwrap();
    assert_eq!(
        why,
        "PersistentVolume pvc-1 is the disk pvc-1, which is attached to vm-1 and cannot grow from 100 GiB to 4097 GiB \
         there: Azure lets no attached disk grow across 4 TiB; detach it first. Stop the pods that use the claim, and \
         ask again when the disk is detached"
    );
    disk.max_shares = 2;
    assert!(judged(&csi(), 200, &disk).unwrap().contains("shared disk"));
    assert!(judged(&csi(), i64::MAX >> 30, &disk).unwrap().contains("the largest Premium_LRS"));
}

#[test]
fn a_page_blob_grows_to_its_largest_size_and_other_volumes_are_not_judged() {
    let mut volume = csi();
    volume["spec"]["csi"]["volumeHandle"] = BLOB.into();
    for gib in [1, 200, 4_095] {
        assert_eq!(judged(&volume, gib, &disk("", &[])), None);
    }
    for gib in [4_096, i64::MAX >> 30] {
        let why = judged(&volume, gib, &disk("", &[])).unwrap();
        assert!(why.contains("the largest blob disk has 4095 GiB") && why.contains("pvc-1.vhd"), "{why}");
    }
    volume["spec"]["csi"]["driver"] = "other".into();
    assert_eq!(judged(&volume, 200, &disk("", &[])), None);
}

/// Node affinity, labels and disks of any form that the API server may send.
fn volumes() -> impl Strategy<Value = (Value, Disk)> {
    let keys = vec![ZONE_KEY, REGION_KEY, DISK_TOPOLOGY_KEY, "failure-domain.beta.kubernetes.io/zone", "pool"];
    let value =
        select(vec!["", "0", "1", "westeurope-1", "westeurope-2", "northeurope-1", "westeurope", "x/y", "a-b-c"]);
    let expression = (select(keys.clone()), select(vec!["In", "Exists", "NotIn"]), vec(value.clone(), 0..4))
        .prop_map(|(key, operator, values)| json!({"key": key, "operator": operator, "values": values}));
    let term = prop_oneof![
        Just(json!({})),
        Just(json!({"matchFields": []})),
        vec(expression, 0..3).prop_map(|all| json!({"matchExpressions": all})),
    ];
    let affinity = prop_oneof![
        Just(Value::Null),
        Just(json!({})),
        vec(term, 0..3).prop_map(|terms| json!({"required": {"nodeSelectorTerms": terms}})),
    ];
    let labels = prop_oneof![
        Just(Value::Null),
        vec((select(keys), value), 0..3).prop_map(|all| {
            Value::Object(all.into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect())
        }),
    ];
    let base = select(vec![csi(), in_tree()]);
    let disk = (select(vec!["", "West Europe", "westeurope", "a b/c"]), vec(select(vec!["1", "2", "x", ""]), 0..3))
        .prop_map(|(location, zones)| disk(location, &zones));
    (base, labels, affinity, disk).prop_map(|(mut volume, labels, affinity, disk)| {
        for (pointer, key, value) in [("/metadata", "labels", labels), ("/spec", "nodeAffinity", affinity)] {
            if !value.is_null() {
                volume.pointer_mut(pointer).unwrap()[key] = value;
            }
        }
        (volume, disk)
    })
}

proptest! {
    #[test]
    fn a_volume_that_was_admitted_is_admitted_as_it_is((volume, disk) in volumes()) {
        let once = admitted(&volume, &disk);
        prop_assert_eq!(admitted(&once, &disk), once);
    }

    #[test]
    fn only_labels_and_affinity_are_added_none_empty_and_none_that_is_no_label((volume, disk) in volumes()) {
        let stored = admitted(&volume, &disk);
        let before = volume["metadata"]["labels"].as_object().cloned().unwrap_or_default();
        let after = stored["metadata"]["labels"].as_object().cloned().unwrap_or_default();
        for (key, value) in &after {
            match before.get(key) {
                Some(old) => prop_assert_eq!(old, value),
                None => {
                    let text = value.as_str().unwrap();
                    prop_assert!([ZONE_KEY, REGION_KEY].contains(&key.as_str()));
                    prop_assert!(!text.is_empty() && text.len() <= 63 && !text.contains('/'), "{}", text);
                    prop_assert!(key != ZONE_KEY || text.split("__").all(|zone| zone.contains('-')), "{}", text);
                }
            }
        }
        prop_assert_eq!(before.keys().filter(|key| !after.contains_key(*key)).count(), 0);
        // Taken off again, the rest is as it was.
        let terms = |of: &Value| of.pointer("/spec/nodeAffinity/required/nodeSelectorTerms").cloned();
        let named = terms(&volume).is_some_and(|terms| {
            let of = |term: &Value| term["matchExpressions"].as_array().cloned().unwrap_or_default();
            terms.as_array().unwrap().iter().flat_map(of).any(|one| one["key"] != "pool")
        });
        if named {
            prop_assert_eq!(terms(&stored), terms(&volume));
        }
        let mut rest = [stored, volume];
        for one in &mut rest {
            one["metadata"].as_object_mut().unwrap().remove("labels");
            one["spec"].as_object_mut().unwrap().remove("nodeAffinity");
        }
        prop_assert_eq!(&rest[0], &rest[1]);
    }

    #[test]
    fn the_order_of_terms_and_values_does_not_matter((volume, disk) in volumes()) {
        let mut turned = volume.clone();
        if let Some(terms) = turned.pointer_mut("/spec/nodeAffinity/required/nodeSelectorTerms") {
            terms.as_array_mut().unwrap().reverse();
            for expression in terms.as_array_mut().unwrap().iter_mut().filter_map(|t| t.get_mut("matchExpressions")) {
                for one in expression.as_array_mut().unwrap() {
                    one["values"].as_array_mut().unwrap().reverse();
                }
            }
        }
        let labels = |volume: &Value| admitted(volume, &disk)["metadata"]["labels"].clone();
        prop_assert_eq!(labels(&volume), labels(&turned));
    }

    /// The webhook and ControllerExpandVolume judge alike.
    #[test]
    fn what_the_driver_would_grow_is_not_refused(size in 1_u32..70_000, gib in 1_i64..70_000, sku in select(SkuName::ALL)) {
        let disk = Disk { size: Gib::new(size), sku: Some(sku), ..disk("westeurope", &[]) };
        let planned = lazuli_volume::plan_expand(&disk, gib << 30, 0).is_ok();
        prop_assert_eq!(judged(&csi(), gib, &disk).is_none(), planned);
    }
}
