//! The examples of snapshots, clones and changed attributes: their classes are taken by the program's own planners, and their
//! claims name what is there.

use std::{collections::BTreeMap, fs, path::Path};

use lazuli_diagnosis::{
    migration::Class,
    snapshots::{SnapshotClass, classes},
};
use lazuli_volume::Defaults;
use serde_json::Value;

const DRIVER: &str = "disk.csi.azure.com";

fn objects(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/examples").join(file);
    let text = fs::read_to_string(path).unwrap();
    text.split("\n---\n").map(|part| serde_saphyr::from_str(part).unwrap()).collect()
}

fn of_kind<'o>(objects: &'o [Value], kind: &'o str) -> impl Iterator<Item = &'o Value> {
    objects.iter().filter(move |object| object["kind"] == kind)
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

fn parameters(object: &Value) -> BTreeMap<String, String> {
    let pairs = object["parameters"].as_object().into_iter().flatten();
    pairs.map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned())).collect()
}

fn defaults() -> Defaults {
    Defaults {
        subscription: "s".into(),
        resource_group: "g".into(),
        location: "westeurope".into(),
        ..Defaults::default()
    }
}

#[test]
fn every_snapshot_class_of_the_examples_takes_snapshots_as_it_is_written() {
    let objects = objects("snapshots.yaml");
    let classes: Vec<&Value> = of_kind(&objects, "VolumeSnapshotClass").collect();
    assert_eq!(classes.len(), 3);
    for class in &classes {
        assert_eq!(class["driver"], DRIVER);
        let read = SnapshotClass {
            name: name(class),
            driver: DRIVER.into(),
            parameters: parameters(class),
            is_default: false,
        };
        assert_eq!(classes::judge(&read, &defaults()), Ok(vec![]), "{}", read.name);
    }
    // The snapshot is of a claim that is there, by a class that is there, and a claim is made from it.
    let named: Vec<String> = classes.iter().map(|class| name(class)).collect();
    let claims: Vec<&Value> = of_kind(&objects, "PersistentVolumeClaim").collect();
    let snapshot = of_kind(&objects, "VolumeSnapshot").next().unwrap();
    assert!(named.contains(&snapshot["spec"]["volumeSnapshotClassName"].as_str().unwrap().to_owned()));
    let source = &snapshot["spec"]["source"]["persistentVolumeClaimName"];
    assert!(claims.iter().any(|claim| claim["metadata"]["name"] == *source));
    let restored = claims.iter().find(|claim| claim["spec"]["dataSource"]["kind"] == "VolumeSnapshot").unwrap();
    let of = &restored["spec"]["dataSource"];
    assert_eq!((&of["name"], &of["apiGroup"]), (&snapshot["metadata"]["name"], &"snapshot.storage.k8s.io".into()));
}

#[test]
fn every_attributes_class_of_the_examples_changes_disks_as_it_is_written() {
    let objects = objects("volume-attributes-classes.yaml");
    let classes: Vec<&Value> = of_kind(&objects, "VolumeAttributesClass").collect();
    assert_eq!(classes.len(), 3);
    for class in classes {
        assert_eq!(class["driverName"], DRIVER);
        let read =
            Class { name: name(class), provisioner: DRIVER.into(), parameters: parameters(class), ..Class::default() };
        let judged = classes::judge_attributes(&read.parameters, &defaults());
        assert_eq!(judged, Ok(vec![]), "{}", read.name);
    }
}

#[test]
fn the_clone_of_the_examples_has_its_source_beside_it() {
    let objects = objects("clone.yaml");
    let claims: Vec<&Value> = of_kind(&objects, "PersistentVolumeClaim").collect();
    let copy = claims.iter().find(|claim| !claim["spec"]["dataSource"].is_null()).unwrap();
    assert_eq!(copy["spec"]["dataSource"]["kind"], "PersistentVolumeClaim");
    let source = claims.iter().find(|claim| claim["metadata"]["name"] == copy["spec"]["dataSource"]["name"]).unwrap();
    // Azure makes no copy that is smaller than its source.
    assert_eq!(copy["spec"]["resources"], source["spec"]["resources"]);
}
