//! No code outside of the planner answers a request from a read.
//!
//! The planners of `lazuli-storage` decide which read answers which request: they are given the reads and the arrivals. So
//! in the worker of a VM's disks a function that both reads Azure and answers a request must hand the read to a planner. This
//! is checked by text: a new function that does both fails here, until its row says what decides.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// What reads a VM or a disk.
const READS: [&str; 8] = [
    "client.get_vm(",
    "client.read_vm(",
    "client.get_disk(",
    "client.read_disk(",
    "self.read(",
    "self.read_by(",
    "self.read_one(",
    "self.at_rest(",
];
/// What answers requests.
const ANSWERS: [&str; 6] =
    ["self.answer(", "self.answer_all(", "self.resolve(", "self.resolve_all(", "request.answer(", ".refuse(&disk"];
/// The functions that do both, and the text that shows what decides.
const DECIDED_BY: [(&str, &str); 7] = [
    ("answer_refused", "refused.explain(doubt)"),
    ("answer_without_write", "self.plan(planned.vm, planned.reads"),
    ("refuse_conditional", "self.check_again(&condition, &read.model)"),
    ("remove_stale_disks", "attach::proved_not_attached(&read.model, &self.vm)"),
    // Only the failure of a wait is an answer there.
    ("serve", "Err(error) => self.answer_all(&batch, &Err(VolumeError::azure(message, error)))"),
    ("verify", "attach::confirm(&vm.model, vm.seen, members, failed)"),
    ("vm_unreadable", "error.fault.says_that_it_is_missing()"),
];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") {
            found.push(path);
        }
    }
    found
}

/// The functions of a source by name, each from its signature to the next one.
fn functions(source: &str) -> BTreeMap<String, String> {
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    let mut current = None;
    for line in source.lines().filter(|line| !line.trim_start().starts_with("//")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let begins = words.iter().position(|word| *word == "fn");
        let is_signature =
            |at: usize| words[..at].iter().all(|word| word.starts_with("pub") || *word == "async" || *word == "const");
        if let Some(at) = begins.filter(|at| is_signature(*at)) {
            let name = words[at + 1].split(['(', '<']).next().unwrap_or_default().to_owned();
            current = Some(name);
        }
        if let Some(name) = &current {
            let body = found.entry(name.clone()).or_default();
            body.push_str(line.trim());
            body.push(' ');
        }
    }
    found
}

/// What contradicts the table: functions that both read and answer without a row, rows without such a function, and rows
/// whose text is gone.
fn contradictions(functions: &BTreeMap<String, String>) -> Vec<String> {
    let has = |body: &str, texts: &[&str]| texts.iter().any(|text| body.contains(text));
    let table: BTreeMap<&str, &str> = DECIDED_BY.into();
    let mut found = Vec::new();
    for (name, body) in functions {
        if body.contains("&Ok(") {
            found.push(format!("{name} makes an answer OK; only resolved_outcome does, from what a planner resolved"));
        }
        let does_both = has(body, &READS) && has(body, &ANSWERS);
        match table.get(name.as_str()) {
            None if does_both => found.push(format!("{name} reads Azure and answers a request: what decides?")),
            Some(text) if !body.contains(text) => found.push(format!("{name} does not contain {text:?}")),
            _ => {}
        }
    }
    let names: BTreeSet<&str> = functions.keys().map(String::as_str).collect();
    found.extend(table.keys().filter(|name| !names.contains(*name)).map(|name| format!("{name} does not exist")));
    found
}

#[test]
fn no_code_outside_of_the_planner_answers_a_request_from_a_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/disk/src");
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    for path in sources(&folder.join("worker")).into_iter().chain([folder.join("worker.rs")]) {
        for (name, body) in functions(&fs::read_to_string(path).unwrap()) {
            all.entry(name).or_default().push_str(&body);
        }
    }
    assert!(all.len() > 60, "{} functions", all.len());
    assert_eq!(contradictions(&all), Vec::<String>::new());

    // What the check is for.
    let conflict = "async fn attach_conflict(&self, disk: &ArmId) {\n let read = self.shared.client.get_disk(disk).await;\n \
                    self.answer(disk, goal, &Err(self.attached_elsewhere(disk, read.model.holders())));\n}";
    let mut broken = all.clone();
    broken.extend(functions(conflict));
    assert_eq!(contradictions(&broken), ["attach_conflict reads Azure and answers a request: what decides?"]);
    let mut broken = all;
    broken.insert("verify".into(), "self.answer(disk, goal, &Ok(None))".into());
    assert_eq!(contradictions(&broken).len(), 2);
}
