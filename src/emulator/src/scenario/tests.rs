use super::*;

fn error(text: &str) -> String {
    let error = Scenario::parse(text).unwrap_err();
    let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    format!("{error} {source}")
}

#[test]
fn the_default_scenario_holds_together() {
    let scenario = Scenario::default();
    scenario.check().unwrap();
    let machines = scenario.machines();
    let names: Vec<&str> = machines.iter().map(|m| m.name.as_str()).collect();
    assert_eq!(names, ["node-0", "node-1"]);
    assert_eq!(machines[0].zone, None);
    assert_eq!(machines[0].size, "Standard_D8s_v3");
    assert_eq!(machines[0].subnet, Some(("lazuli-vnet".to_owned(), "nodes".to_owned())));
    assert_eq!(machines[0].identities.len(), 1);
}

#[test]
fn an_empty_file_is_the_default_scenario() {
    assert_eq!(Scenario::parse("{}").unwrap(), Scenario::default());
}

#[test]
fn a_pattern_makes_machines_and_deals_out_zones() {
    let scenario = Scenario::parse(
        "virtualMachines:\n- {name: 'w-{}', count: 4, size: STANDARD_d4s_V3, zones: ['1', '2', '3']}\n- {name: extra}\n",
    )
    .unwrap();
    let machines = scenario.machines();
    let zones: Vec<_> = machines.iter().map(|m| m.zone.as_deref()).collect();
    assert_eq!(zones, [Some("1"), Some("2"), Some("3"), Some("1"), None]);
    assert_eq!(machines[3].name, "w-3");
    assert_eq!(machines[3].size, "Standard_D4s_v3");
    assert_eq!(machines[4].index, 4);
}

#[test]
fn a_scenario_survives_json() {
    let scenario = Scenario::parse(
        "disks: [{name: d, sizeGib: 8, attachTo: {vm: node-1, lun: 3}}]\navailabilitySets: [{name: as}]\n",
    )
    .unwrap();
    let text = serde_json::to_string(&scenario).unwrap();
    assert_eq!(Scenario::parse(&text).unwrap(), scenario);
}

#[test]
fn an_unknown_key_is_named() {
    assert!(error("virtualMachine: []").contains("virtualMachine"));
    assert!(error("disks: [{name: a, sizeGib: 1, sizeGB: 1}]").contains("sizeGB"));
    assert!(error(r#"{"locaton": "x"}"#).contains("locaton"));
}

#[test]
fn what_does_not_hold_together_is_refused_with_its_key() {
    for (text, key) in [
        ("tenantId: contoso", "tenantId"),
        ("subscriptions: []", "subscriptions"),
        ("subscriptions: [x]", "subscriptions[0]"),
        ("clients: [{id: x}]", "clients[0].id"),
        ("resourceGroups: []", "resourceGroups"),
        ("resourceGroups: [{name: a}, {name: A}]", "resourceGroups[1].name"),
        ("virtualNetworks: [{name: a, prefixes: [10.0.0.0]}]", "virtualNetworks[0].prefixes"),
        ("virtualMachines: [{name: a, count: 2}]", "virtualMachines[0].name"),
        ("virtualMachines: [{name: a, size: Huge}]", "virtualMachines[0].size"),
        ("virtualMachines: [{name: a, zone: '4'}]", "virtualMachines[0].zones"),
        ("virtualMachines: [{name: a, availabilitySet: x}]", "virtualMachines[0].availabilitySet"),
        ("virtualMachines: [{name: a, subnet: x/y}]", "virtualMachines[0].subnet"),
        ("virtualMachines: [{name: a, resourceGroup: x}]", "virtualMachines[0].resourceGroup"),
        ("virtualMachines: [{name: a, nicResourceGroup: x}]", "virtualMachines[0].nicResourceGroup"),
        ("virtualMachines: [{name: a}, {name: A}]", "virtualMachines[1].name"),
        ("disks: [{name: a, sizeGib: 0}]", "disks[0].sizeGib"),
        ("disks: [{name: a, sizeGib: 1, sku: Fast}]", "disks[0].sku"),
        ("disks: [{name: a, sizeGib: 1, sku: Premium_ZRS, zone: '1'}]", "disks[0].zone"),
        ("disks: [{name: a, sizeGib: 1, attachTo: {vm: x, lun: 0}}]", "disks[0].attachTo.vm"),
        ("disks: [{name: a, sizeGib: 1, zone: '1', attachTo: {vm: node-0, lun: 0}}]", "disks[0].attachTo"),
        (
            "disks: [{name: a, sizeGib: 1, attachTo: {vm: node-0, lun: 0}}, {name: b, sizeGib: 1, attachTo: {vm: node-0, lun: 0}}]",
            "disks[1].attachTo.lun",
        ),
    ] {
        let error = error(text);
        assert!(error.starts_with(key), "{text}: {error}");
    }
}

#[test]
fn derived_ids_do_not_change_between_starts() {
    assert_eq!(derived_id("vm", "Node-0"), derived_id("vm", "node-0"));
    assert_ne!(derived_id("vm", "node-0"), derived_id("disk", "node-0"));
}

#[test]
fn what_does_not_fit_is_refused_with_what_would() {
    for (text, told) in [
        ("location: mars\n", "location: \"mars\" is no location; there are: australiacentral"),
        ("resourceGroups: [{name: a, location: mars}]\n", "resourceGroups[0].location"),
        ("disks: [{name: d, sizeGib: 8, sku: Gold}]\n", "is no disk SKU; there are: Standard_LRS"),
        ("virtualMachines: [{name: a, size: Huge}]\n", "there are such as Standard_B2s"),
        (
            "virtualNetworks: [{name: n, prefixes: [10.0.0.0/16], subnets: [{name: s, prefix: 10.1.0.0/24}]}]\n",
            "virtualNetworks[0].subnets[0].prefix: \"10.1.0.0/24\" is not in virtualNetworks[0].prefixes: 10.0.0.0/16",
        ),
    ] {
        let error = error(text);
        assert!(error.contains(told), "{error}");
    }
    assert!(Scenario::parse("location: West Europe\n").is_ok());
}

#[test]
fn keys_of_nvme_are_refused_where_disks_come_by_scsi() {
    let scsi = "\"a\" of the size Standard_D8s_v3 come by SCSI, so that this has no effect";
    for (text, key, told) in [
        ("virtualMachines: [{name: a, nvmeMultipath: true}]", "virtualMachines[0].nvmeMultipath", scsi),
        ("virtualMachines: [{name: a, osDisk: {placement: NvmeDisk}}]", "virtualMachines[0].osDisk.placement", scsi),
        (
            "virtualMachines: [{name: a, size: Standard_D8ds_v6, diskController: SCSI, nvmeMultipath: true}]",
            "virtualMachines[0].nvmeMultipath",
            "Standard_D8ds_v6 come by SCSI",
        ),
        (
            "virtualMachines: [{name: a, size: Standard_D8ds_v6, osDisk: {placement: NvmeDisk, storageAccount: acct}}]",
            "virtualMachines[0].osDisk.placement",
            "is a blob",
        ),
        ("scaleSets: [{name: a, count: 1, osDisk: {placement: NvmeDisk}}]", "scaleSets[0].osDisk.placement", scsi),
    ] {
        let error = error(text);
        assert!(error.starts_with(&format!("{key}: ")) && error.contains(told), "{text}: {error}");
        // What is allowed is named, as far as there is such a key.
        if told == scsi {
            assert!(error.contains("version 6 or newer, such as Standard_D8ds_v6"), "{error}");
            assert_eq!(error.contains("diskController: NVMe"), key.starts_with("virtualMachines"), "{error}");
        }
    }
    for own in ["size: Standard_D8ds_v6", "size: standard_d8ds_V6", "diskController: NVMe"] {
        let text =
            format!("virtualMachines: [{{name: a, {own}, nvmeMultipath: true, osDisk: {{placement: NvmeDisk}}}}]");
        Scenario::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
    }
    // How disks come is said of every machine, also where its size has it so.
    for own in ["diskController: SCSI", "size: Standard_D8ds_v6, diskController: NVMe", "nvmeMultipath: false"] {
        let text = format!("virtualMachines: [{{name: a, {own}}}]");
        Scenario::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
    }
}

#[test]
fn an_error_of_yaml_is_told_once_and_in_one_line_with_its_place() {
    let error = error("virtualMachine: []\n");
    assert!(error.starts_with("not a scenario in YAML: line 1 column 1: unknown field `virtualMachine`"), "{error}");
    assert_eq!((error.lines().count(), error.matches("unknown field").count()), (1, 1), "{error}");
}

#[test]
fn an_error_in_a_file_names_the_file() {
    let file = std::env::temp_dir().join(format!("lazuli-scenario-{}.yaml", std::process::id()));
    std::fs::write(&file, "location: mars\n").unwrap();
    let error = Scenario::load(&file).unwrap_err();
    std::fs::remove_file(&file).unwrap();
    assert!(matches!(&error, ScenarioError::InFile { path, .. } if *path == file), "{error}");
}
