//! The chart knows the names that the program knows, and refuses no other than the program does. Keys of the configuration are the
//! exception: the program warns of those that it does not know, because others may use the file, and the chart refuses them. The names are in `deploy/chart/files/names.json`. After a change of the program
//! `LAZULI_RECORD=1 cargo test --test it chart_names` writes that file.

use std::{collections::BTreeMap, fs, path::Path};

use lazuli_config::{Cloud, Config, Document, Environment, known_keys};
use lazuli_diagnosis::controller_list::{Controller, Entry};
use lazuli_model::{CachingMode, SkuName, StorageSku, address::Cidr, parameter::ParameterError};
use lazuli_volume as disk;
use serde_json::{Value, json};

const FILE: &str = "deploy/chart/files/names.json";

/// The names that an error lists behind the word `allowed`. The parsers have no other list.
fn listed(error: &ParameterError) -> Vec<String> {
    let (_, names) = error.allowed.rsplit_once("allowed are ").unwrap_or_else(|| panic!("{error}"));
    let names = names.split(" and device-setting").next().unwrap_or_default();
    names.split(", ").filter(|name| !name.starts_with("csi.")).map(str::to_owned).collect()
}

/// A class with a parameter that no driver has.
fn unknown_parameter() -> BTreeMap<String, String> {
    [("no-such-parameter".to_owned(), String::new())].into()
}

fn disk_parameters() -> Vec<String> {
    let request = disk::Request { name: "pvc".to_owned(), parameters: unknown_parameter(), ..disk::Request::default() };
    let managed = listed(&disk::plan_create(&request, &disk::Defaults::default()).unwrap_err());
    with_those_of_blobs(
        managed,
        lazuli_vhd::PARAMETERS.iter().map(|row| row.name).filter(|name| !name.starts_with("csi.")),
    )
}

fn disk_skus() -> Vec<String> {
    let managed = SkuName::ALL.iter().map(|sku| sku.as_str().to_owned()).collect();
    with_those_of_blobs(managed, lazuli_vhd::class::SKUS.iter().map(|sku| sku.as_str()))
}

/// The chart cannot know of which kind a class of disks is: `--blob-disks` and the VMs of the cluster decide too.
fn with_those_of_blobs(mut names: Vec<String>, of_blobs: impl Iterator<Item = &'static str>) -> Vec<String> {
    for name in of_blobs {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

fn file_parameters() -> Vec<String> {
    use lazuli_shares::parameters::{Defaults, ShareClass};
    listed(&ShareClass::parse(&unknown_parameter(), &BTreeMap::new(), &Defaults::default()).unwrap_err())
}

/// What the program knows.
fn names() -> Value {
    let controllers: BTreeMap<&str, &[&str]> =
        Controller::ALL.into_iter().map(|one| (one.names()[1], one.names())).collect();
    let every: Vec<&str> = controllers.values().flat_map(|names| names.iter().copied()).collect();
    json!({
        "about": "Made from the program by its test chart_names. Templates read it.",
        "controllers": controllers,
        "controllerNames": every,
        "clouds": Cloud::well_known_names().collect::<Vec<_>>(),
        "cloudNames": Cloud::accepted_names().collect::<Vec<_>>(),
        "configurationKeys": known_keys(),
        "diskParameters": disk_parameters(),
        "diskSkus": disk_skus(),
        "cachingModes": CachingMode::ALL.iter().map(|mode| mode.as_str()).collect::<Vec<_>>(),
        "fileParameters": file_parameters(),
        "fileSkus": StorageSku::ALL.iter().map(|sku| sku.as_str()).collect::<Vec<_>>(),
    })
}

#[test]
fn the_chart_knows_the_names_that_the_program_knows() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    let text = serde_json::to_string_pretty(&names()).unwrap() + "\n";
    if std::env::var_os("LAZULI_RECORD").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(written == text, "{FILE} is not what the program knows: run this test with LAZULI_RECORD=1, and commit it");
}

/// Every list has what an operator writes most, so that an empty one would show.
#[test]
fn every_name_of_the_chart_is_taken_by_the_program() {
    let names = names();
    let of = |list: &str| -> Vec<String> {
        let list = names[list].as_array().unwrap().iter();
        list.map(|name| name.as_str().unwrap().to_owned()).collect()
    };
    for (list, name) in [
        ("controllerNames", "node-route"),
        ("clouds", "AzurePublicCloud"),
        ("cloudNames", "AzureCloud"),
        ("configurationKeys", "loadBalancerSku"),
        ("configurationKeys", "subscriptionId"),
        ("configurationKeys", "useManagedIdentityExtension"),
        ("diskParameters", "skuName"),
        ("diskParameters", "storageAccount"),
        ("diskSkus", "Premium_LRS"),
        ("diskSkus", "Standard_RAGRS"),
        ("cachingModes", "ReadOnly"),
        ("fileParameters", "shareNamePrefix"),
        ("fileSkus", "Premium_LRS"),
    ] {
        assert!(of(list).iter().any(|one| one == name), "{list} lacks {name}");
    }
    for name in of("controllerNames") {
        assert!(name.parse::<Entry>().is_ok() && format!("-{name}").parse::<Entry>().is_ok(), "{name}");
    }
    // Null is "not set", and is known or not all the same.
    let mut all = json!({"useInstanceMetadata": true, "subscriptionId": "s", "resourceGroup": "g", "location": "l"});
    for key in of("configurationKeys") {
        if all[&key].is_null() {
            all[key] = Value::Null;
        }
    }
    let variables = BTreeMap::new();
    let config = |text: &Value| {
        let document = Document::parse("all keys", text.to_string().as_bytes()).unwrap();
        Config::from_documents(Some(&document), None, &Environment::new(&variables))
    };
    assert_eq!(config(&all).unwrap().unknown_keys(), []);
    for cloud in of("cloudNames") {
        all["cloud"] = json!(cloud);
        assert!(config(&all).is_ok(), "{cloud}");
    }
}

/// Both sides read the same file: the chart's is in the tier `chart`.
#[test]
fn the_program_takes_the_address_ranges_that_the_chart_takes() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/chart/ranges.tsv")).unwrap();
    let rows: Vec<(&str, &str)> =
        text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split_once('\t').unwrap()).collect();
    assert!(rows.iter().filter(|(verdict, _)| *verdict == "takes").count() >= 20 && rows.len() >= 50);
    for (verdict, range) in rows {
        assert_eq!(range.parse::<Cidr>().is_ok(), verdict == "takes", "{range}");
    }
}
