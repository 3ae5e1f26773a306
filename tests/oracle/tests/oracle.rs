//! The bodies that a run of the product left behind, before the published types.
//!
//! The integration tests write them (`cargo test --test it oracle` in the product's workspace):
//! `answers/TYPE--WHAT.json` is what the emulator answered, `requests/TYPE--WHAT.json` what the client
//! sent. `LAZULI_ORACLE_BODIES` names the folder; without it the product's target folder is tried.

use std::path::{Path, PathBuf};

use lazuli_oracle::{Finding, findings};
use serde_json::{Value, json};

/// Members of answers that the published types of this generation do not have, and Azure does.
const BEYOND_THE_TYPES: &[&str] = &[
    // Newer than these types; Azure's recorded answers have it.
    "/virtualMachineScaleSetMigrationInfo",
    // A map from identity to its ids, which the generator turned into a type without members.
    "/identity/userAssignedIdentities/",
];

fn bodies() -> PathBuf {
    std::env::var_os("LAZULI_ORACLE_BODIES")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tmp/oracle-bodies"), PathBuf::from)
}

/// Each body of a folder: its file name, the type it should be, and itself.
fn read_all(kind: &str) -> Vec<(String, String, Value)> {
    let folder = bodies().join(kind);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| {
        panic!("{}: {error}; `cargo test --test it oracle` in the product's workspace writes it", folder.display())
    });
    let mut found: Vec<(String, String, Value)> = entries
        .map(|entry| {
            let path = entry.expect("a readable folder").path();
            let name = path.file_stem().expect("a file name").to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path).expect("a readable body");
            let type_name = name.split("--").next().unwrap_or_default().to_owned();
            (name, type_name, serde_json::from_str(&text).expect("a body is JSON"))
        })
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

fn agrees(kind: &str, beyond: &[&str]) {
    let bodies = read_all(kind);
    let mut wrong = Vec::new();
    for (name, type_name, body) in &bodies {
        for finding in findings(type_name, body) {
            let known = matches!(&finding, Finding::UnknownMember(pointer)
                if beyond.iter().any(|member| pointer.contains(member)));
            if !known {
                wrong.push(format!("{kind}/{name}: {finding}"));
            }
        }
    }
    println!("{} {kind} decoded", bodies.len());
    assert!(bodies.len() >= 5, "only {} {kind} were left behind", bodies.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_answer_of_the_emulator_decodes_with_the_published_types() {
    agrees("answers", BEYOND_THE_TYPES);
}

#[test]
fn every_request_of_the_client_decodes_with_the_published_types() {
    agrees("requests", &[]);
}

fn disk() -> Value {
    json!({
        "location": "westeurope",
        "sku": {"name": "Premium_LRS"},
        "tags": {"a": "b"},
        "properties": {
            "creationData": {"createOption": "Empty"},
            "diskSizeGB": 8,
            "timeCreated": "2026-01-01T00:00:00.1234567+00:00"
        }
    })
}

#[test]
fn a_good_body_has_no_findings() {
    assert_eq!(findings("Disk", &disk()), []);
    let machine = json!({
        "location": "westeurope",
        "properties": {"storageProfile": {"dataDisks": [
            {"lun": 3, "createOption": "Attach", "caching": "ReadOnly", "toBeDetached": true, "managedDisk": {"id": "/x"}}
        ]}}
    });
    assert_eq!(findings("VirtualMachine", &machine), []);
}

#[test]
fn each_kind_of_wrong_body_is_found() {
    let mut misspelt = disk();
    misspelt["properties"]["diskSizeGb"] = json!(8);
    assert_eq!(findings("Disk", &misspelt), [Finding::UnknownMember("/properties/diskSizeGb".to_owned())]);

    let mut unknown_value = disk();
    unknown_value["sku"]["name"] = json!("Premium_Turbo");
    assert_eq!(findings("Disk", &unknown_value), [Finding::UnknownValue("Premium_Turbo".to_owned())]);

    let mut without_location = disk();
    without_location.as_object_mut().expect("an object").remove("location");
    assert!(matches!(findings("Disk", &without_location)[..], [Finding::Undecodable(_)]));

    let mut quoted = disk();
    quoted["properties"]["diskSizeGB"] = json!("8");
    assert!(matches!(findings("Disk", &quoted)[..], [Finding::Undecodable(_)]));

    assert_eq!(findings("Blob", &disk()), [Finding::UnknownType("Blob".to_owned())]);
}
