//! The Terraform module and the Bicep files beside the az commands make the same roles from the same role files. What Terraform
//! makes of them is the tier `chart`'s; Bicep is only read here.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/azure")
}

/// The files of a folder with this ending, by name.
fn files(folder: &Path, ending: &str) -> BTreeMap<String, String> {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let wanted = files.filter(|path| path.to_string_lossy().ends_with(ending));
    wanted
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read_to_string(&path).unwrap()))
        .collect()
}

fn terraform() -> String {
    files(&folder().join("terraform"), ".tf").into_values().collect()
}

fn bicep() -> String {
    files(&folder().join("bicep"), ".bicep").into_values().collect()
}

fn role_files() -> BTreeMap<String, Value> {
    let texts = files(&folder(), ".json").into_iter().filter(|(name, _)| name.starts_with("role"));
    texts.map(|(name, text)| (name, serde_json::from_str(&text).unwrap())).collect()
}

/// What stands between two marks on each line that has both.
fn between(text: &str, before: &str, after: &str) -> Vec<String> {
    let found = text.lines().filter_map(|line| line.split_once(before)?.1.split_once(after));
    found.map(|(found, _)| found.to_owned()).collect()
}

/// The short name and the file of each role, as a module has them.
fn roles(text: &str, before: &str, after: &str, sign: char) -> BTreeMap<String, String> {
    let lines = text.lines().filter(|line| line.contains(before));
    let role = |line: &str| {
        let name = line.split_once(sign).unwrap().0.trim().trim_matches('\'').to_owned();
        (name, between(line, before, after).remove(0))
    };
    lines.map(role).collect()
}

/// The words in quotation marks.
fn quoted(text: &str, mark: char) -> BTreeSet<String> {
    text.split(mark).skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_role_file_is_read_by_both_modules_and_its_short_name_is_one() {
    let names: BTreeSet<String> = role_files().into_keys().collect();
    let in_terraform = roles(&terraform(), "file(\"${path.module}/../", "\")", '=');
    let in_bicep = roles(&bicep(), "loadJsonContent('../", "')", ':');
    assert_eq!(in_terraform, in_bicep);
    assert_eq!(in_terraform.values().cloned().collect::<BTreeSet<_>>(), names);
    let short: BTreeSet<String> = in_terraform.into_keys().collect();
    // Whoever names another role is told which there are.
    let terraform = terraform();
    let validated = terraform.lines().find(|line| line.trim_start().starts_with("\"disks\", ")).unwrap();
    assert_eq!(quoted(validated, '"'), short);
    let message = terraform.lines().find(|line| line.contains("error_message = \"roles are ")).unwrap();
    let described = terraform.split_once("each with its roles: ").unwrap().1;
    let described = described.split_once(". service_account").unwrap().0;
    for name in &short {
        assert!(message.contains(name.as_str()) && described.contains(name.as_str()), "{name}");
    }
    let bicep = bicep();
    let of_type = bicep.lines().find(|line| line.trim_start().starts_with("roles: ('disks' | ")).unwrap();
    assert_eq!(quoted(of_type, '\''), short);
}

#[test]
fn the_place_of_the_subscription_is_the_same_in_all_role_files_and_in_both_modules() {
    let modules = [between(&terraform(), "placeholder = \"", "\""), between(&bicep(), "var placeholder = '", "'")];
    let [placeholder] = &modules[0][..] else { panic!("{modules:?}") };
    assert_eq!(modules[0], modules[1]);
    for (name, role) in role_files() {
        assert_eq!(role["AssignableScopes"], serde_json::json!([format!("/subscriptions/{placeholder}")]), "{name}");
    }
}

#[test]
fn both_modules_take_every_field_of_a_role_file() {
    for (name, role) in role_files() {
        for field in role.as_object().unwrap().keys().filter(|field| *field != "IsCustom") {
            assert!(terraform().contains(&format!("local.role_files[role].{field}")), "{name}: {field} in Terraform");
            assert!(bicep().contains(&format!("roleFiles[role].{field}")), "{name}: {field} in Bicep");
        }
    }
}

#[test]
fn both_modules_sign_in_who_the_chart_runs_by_default() {
    let chart = fs::read_to_string(folder().join("../chart/values.yaml")).unwrap();
    let chart: Value = serde_saphyr::from_str(&chart).unwrap();
    let audience = chart["azure"]["workloadIdentity"]["audience"].as_str().unwrap();
    for text in [terraform(), bicep()] {
        assert!(text.contains(audience) && text.contains("system:serviceaccount:${"), "{audience}");
        assert!(text.contains("lazuli-controller") && text.contains("kube-system"));
    }
    let rendered = fs::read_to_string(folder().join("../manifests/lazuli.yaml")).unwrap();
    assert!(rendered.contains("serviceAccountName: lazuli-controller"));
}

/// A slip that no compiler sees here: what is named is declared, and what is declared is named.
#[test]
fn every_name_of_a_module_is_declared_and_used() {
    let word = |text: &str| -> String {
        text.chars().take_while(|letter| letter.is_ascii_alphanumeric() || *letter == '_').collect()
    };
    let after = |text: &str, mark: &str| -> BTreeSet<String> {
        text.match_indices(mark).map(|(at, _)| word(&text[at + mark.len()..])).collect()
    };
    let terraform = terraform();
    assert_eq!(after(&terraform, "var."), after(&terraform, "variable \""), "variables");
    let declared: BTreeSet<String> = terraform
        .split_once("locals {")
        .unwrap()
        .1
        .lines()
        .take_while(|line| *line != "}")
        .filter(|line| line.starts_with("  ") && !line.starts_with("   ") && line.contains('='))
        .map(|line| word(line.trim()))
        .collect();
    assert_eq!(after(&terraform, "local."), declared, "locals");
    for (name, text) in files(&folder().join("bicep"), ".bicep") {
        for [open, close] in [['(', ')'], ['[', ']'], ['{', '}']] {
            assert_eq!(text.matches(open).count(), text.matches(close).count(), "{name}: {open}");
        }
        let code: String = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//") && !line.starts_with("@description"))
            .flat_map(|line| [line, "\n"])
            .collect();
        for declared in after(&code, "\nparam ").into_iter().chain(after(&code, "\nvar ")) {
            assert!(code.matches(declared.as_str()).count() > 1, "{name}: {declared} is not used");
        }
    }
    // The module gets what it asks for, and nothing else.
    let files = files(&folder().join("bicep"), ".bicep");
    let asked: BTreeSet<String> = after(&files["identity.bicep"], "\nparam ");
    let given = files["main.bicep"].split_once("    params: {\n").unwrap().1.split_once("\n    }\n").unwrap().0;
    let given: BTreeSet<String> = given
        .lines()
        .filter(|line| line.starts_with("      ") && !line.starts_with("       "))
        .map(|line| word(line.trim()))
        .collect();
    assert_eq!(given.into_iter().filter(|name| !name.is_empty()).collect::<BTreeSet<_>>(), asked);
}
