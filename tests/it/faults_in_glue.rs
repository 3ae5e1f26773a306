//! What the glue says of faults.
//!
//! What a fault means is decided in the crates of values and steps. The crates that gather and act name a fault only where
//! they make one, or where a decision has not moved yet: each file's number is here, and only goes down.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// The crates whose business faults are.
const DECIDES: [&str; 13] = [
    "model",
    "azure",
    "quota",
    "engine",
    "volume",
    "vhd",
    "staging",
    "storage",
    "vm-disks",
    "shares",
    "nodes",
    "services",
    "balancing",
];

/// How often a file names a fault.
const NAMED: [(&str, usize); 30] = [
    ("blob-disk/src/error.rs", 7),
    ("cli/azure_ready.rs", 1),
    ("cli/get.rs", 1),
    ("cli/instances/add_ssh_key.rs", 3),
    ("controllers/src/controller.rs", 1),
    ("controllers/src/controller/discover.rs", 5),
    ("controllers/src/controller/look.rs", 7),
    ("controllers/src/evidence.rs", 1),
    ("controllers/src/nodes/interfaces.rs", 1),
    ("controllers/src/nodes/machine.rs", 3),
    ("controllers/src/nodes/mod.rs", 1),
    ("controllers/src/nodes/routes.rs", 1),
    ("controllers/src/notes.rs", 2),
    ("controllers/src/objects.rs", 8),
    ("disk/src/client.rs", 1),
    ("disk/src/error.rs", 2),
    ("disk/src/list.rs", 3),
    ("disk/src/occupied.rs", 1),
    ("disk/src/whole_disk/words.rs", 2),
    ("disk/src/worker.rs", 1),
    ("disk/src/worker/notes.rs", 1),
    ("file/src/account.rs", 1),
    ("file/src/error.rs", 3),
    ("file/src/lib.rs", 2),
    ("file/src/pool.rs", 2),
    ("file/src/share.rs", 1),
    ("journal/src/cause.rs", 1),
    ("reconcile/src/object.rs", 1),
    ("reconcile/src/object/notes.rs", 2),
    ("webhook/src/reviewer.rs", 1),
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_test = path.file_stem().is_some_and(|name| name.to_string_lossy().contains("tests"));
        if is_test {
            continue;
        }
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// How often the code of a source, without its comments and its tests, names a fault.
fn named(source: &str) -> usize {
    let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    // `EmulatorFault::` and the like are other types.
    lines
        .flat_map(|line| line.match_indices("Fault::").map(move |(at, _)| &line[..at]))
        .filter(|before| !before.ends_with(|last: char| last.is_alphanumeric()))
        .count()
}

#[test]
fn the_glue_names_no_more_faults_than_it_did() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    sources(&src, &mut found);
    let of_glue = |path: &&PathBuf| {
        let part = path.strip_prefix(&src).unwrap().components().next().unwrap();
        let part = part.as_os_str().to_string_lossy().into_owned();
        part != "emulator" && !DECIDES.contains(&&*part)
    };
    let now: BTreeMap<String, usize> = found
        .iter()
        .filter(of_glue)
        .map(|path| {
            let name = path.strip_prefix(&src).unwrap().display().to_string();
            (name, named(&fs::read_to_string(path).unwrap()))
        })
        .filter(|(_, count)| *count > 0)
        .collect();
    let listed: BTreeMap<String, usize> = NAMED.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    assert_eq!(now, listed, "a number that went down is to be taken over here; one that went up is a decision in glue");
}
