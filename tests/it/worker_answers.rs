//! The worker of a VM's disks answers only what a step says.
//!
//! The steps of `lazuli-storage` decide which read answers which request: they are given the reads and the arrivals, and they
//! have no clock, task, lock or await. The worker carries out what they want done. So its callers get their answers in one
//! place, and nothing there looks at what Azure has said. This is checked by text.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// What makes a step more than a function of its inputs.
const IMPURE: [&str; 10] = [
    ".await;",
    ".await?",
    "async fn",
    "tokio::",
    "Mutex",
    "Instant::now",
    "SystemTime",
    "rand::",
    "thread::",
    "std::fs",
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

/// The code of a source, without comments.
fn code(path: &Path) -> String {
    let source = fs::read_to_string(path).unwrap();
    let lines = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// How often a text is in the code of the worker.
fn count(worker: &str, text: &str) -> usize {
    worker.matches(text).count()
}

/// What in the worker answers a caller beside what a step says, or looks at what Azure has said.
fn contradictions(worker: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut at_most = |text: &str, most: usize, why: &str| {
        let is = count(worker, text);
        if is > most {
            found.push(format!("{text:?} is there {is} times instead of {most}: {why}"));
        }
    };
    at_most("answer.send(", 1, "an answer is sent where an action is carried out");
    at_most("Ok(Some(", 0, "only a step says that a disk is attached");
    at_most("Ok(None)", 0, "only a step says that a disk is detached");
    at_most("Fault::", 1, "only the end of work that was broken off is named there");
    for looks_at in [".data_disk(", ".holders(", "provisioning_state", "error.fault"] {
        at_most(looks_at, 0, "only a step looks at what was read");
    }
    found
}

#[test]
fn the_worker_of_a_vm_answers_only_what_a_step_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let worker = code(&root.join("src/disk/src/worker.rs"));
    assert_eq!(contradictions(&worker), Vec::<String>::new());

    // What the check is for.
    let conflict = "async fn attached(&self, disk: &ArmId) {\n let read = self.client.get_disk(disk).await;\n \
                    if read.model.holders().contains(&self.vm) { answer.send(Ok(Some(lun))) } }";
    assert_eq!(contradictions(&format!("{worker}\n{conflict}")).len(), 3);
}

#[test]
fn the_work_on_a_whole_disk_answers_only_what_a_step_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    assert_eq!(contradictions(&code(&root.join("src/disk/src/whole_disk.rs"))), Vec::<String>::new());
}

#[test]
fn the_requests_to_attach_and_detach_answer_only_what_a_step_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let adapter = code(&root.join("src/disk/src/publish.rs"));
    assert_eq!(contradictions(&adapter), Vec::<String>::new());
    assert_eq!(count(&adapter, "Fault::"), 0);
}

#[test]
fn a_decision_about_disks_has_no_clock_task_lock_or_await() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let sources: Vec<_> = ["storage/src", "vm-disks/src"].map(|of| sources(&src.join(of))).concat();
    assert!(sources.len() > 50, "{} sources", sources.len());
    let is_impure = |path: &PathBuf| {
        let code = code(path);
        let found = IMPURE.iter().find(|text| code.contains(**text))?;
        Some(format!("{}: {found}", path.display()))
    };
    assert_eq!(sources.iter().filter_map(is_impure).collect::<Vec<_>>(), Vec::<String>::new());
}
