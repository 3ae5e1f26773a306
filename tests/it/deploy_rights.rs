//! SECURITY.md says which rights in the cluster the chart grants, all of them and no others.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use serde_json::Value;

/// The chart with the cloud controllers in pods of their own, with every option of disks, and with Azure Files by each way to
/// its keys.
const RENDERED: [&str; 4] = [
    "tests/chart/cloud-controllers.yaml",
    "tests/chart/everything.yaml",
    "tests/chart/azure-file.yaml",
    "tests/chart/azure-file-namespaces.yaml",
];
const READS: [&str; 3] = ["get", "list", "watch"];

/// The resources that an account reads, and those that it writes.
type Rights = [BTreeSet<String>; 2];

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

fn objects(file: &str) -> Vec<Value> {
    let text = read(file);
    let documents =
        text.split("\n---\n").filter(|part| part.lines().any(|line| !line.starts_with('#') && line != "---"));
    documents.map(|part| serde_saphyr::from_str(part.trim_start_matches("---\n")).unwrap()).collect()
}

fn texts(value: &Value) -> impl Iterator<Item = &str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// The rights that the rendered roles give each account. An option may add rules to a role, so the rules of all files count. In
/// the other files the controller's account has the roles of the cloud controllers too, because they share its pod.
fn granted() -> BTreeMap<String, Rights> {
    let files: Vec<Vec<Value>> = RENDERED.iter().map(|file| objects(file)).collect();
    let mut granted: BTreeMap<String, Rights> = BTreeMap::new();
    let is_binding = |object: &&Value| ["RoleBinding", "ClusterRoleBinding"].iter().any(|kind| object["kind"] == *kind);
    let of_shared_pod = |object: &&Value| object["roleRef"]["name"] == "lazuli-cloud-controllers";
    let bindings =
        files[0].iter().chain(files[1..].iter().flatten().filter(|object| !of_shared_pod(object))).filter(is_binding);
    for binding in bindings {
        let role = &binding["roleRef"]["name"];
        let is_role =
            |object: &&Value| object["kind"] == binding["roleRef"]["kind"] && object["metadata"]["name"] == *role;
        let rules = files.iter().flatten().filter(is_role).filter_map(|role| role["rules"].as_array()).flatten();
        let rules: Vec<&Value> = rules.collect();
        for subject in binding["subjects"].as_array().into_iter().flatten() {
            if subject["kind"] != "ServiceAccount" {
                continue;
            }
            let rights = granted.entry(subject["name"].as_str().unwrap().to_owned()).or_default();
            for rule in &rules {
                for verb in texts(&rule["verbs"]) {
                    let side = usize::from(!READS.contains(&verb));
                    rights[side].extend(texts(&rule["resources"]).map(str::to_owned));
                }
            }
        }
    }
    granted
}

/// The texts between backticks that can be names of resources.
fn named(cell: &str) -> BTreeSet<String> {
    let quoted = cell.split('`').skip(1).step_by(2);
    quoted.filter(|text| text.chars().all(|c| c.is_ascii_lowercase() || c == '/')).map(str::to_owned).collect()
}

/// The table of rights in SECURITY.md.
fn documented() -> BTreeMap<String, Rights> {
    let text = read("SECURITY.md");
    let rows = text.lines().skip_while(|line| !line.starts_with("| account |")).skip(2);
    rows.take_while(|line| line.starts_with('|'))
        .map(|row| {
            let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
            let [account, reads, writes] = cells[..] else { panic!("{row}") };
            (account.split('`').nth(1).unwrap().to_owned(), [named(reads), named(writes)])
        })
        .collect()
}

#[test]
fn security_md_names_every_right_that_the_chart_grants_and_no_other() {
    let (granted, documented) = (granted(), documented());
    let accounts = ["lazuli-cloud-controllers", "lazuli-controller", "lazuli-node"];
    assert_eq!(documented.keys().collect::<Vec<_>>(), accounts);
    for account in accounts {
        assert_eq!(documented[account], granted[account], "{account}: left SECURITY.md, right the chart");
    }
}
