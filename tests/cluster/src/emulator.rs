//! Azure: the emulator as a process.

use std::{fs, path::Path};

use serde_json::Value;

use crate::{
    azure::Azure,
    process::{Folder, Process, until},
};

/// The machines of the emulator's own scenario.
pub const NODES: [&str; 2] = ["node-0", "node-1"];
/// The machines that a person's cluster may have as nodes; [`NODES`] are the first of them.
pub const MACHINES: [&str; 5] = ["node-0", "node-1", "node-2", "node-3", "node-4"];

/// A path as an argument.
pub fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// Arguments.
pub fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Starts the emulator with block devices, as `program`, and waits until it serves at `listen`. It keeps all that it has in
/// the folder.
pub async fn start(program: &Path, folder: &Folder, listen: &str, options: &[String]) -> (Process, Azure) {
    let path = |name: &str| text(&folder.path().join(name));
    let mut arguments = words(&["emulator", "--listen", listen, "--no-throttling", "--retry-after", "0"]);
    arguments.extend(words(&["--output", "json", "--azure-json", &path("azure.json")]));
    arguments.extend(words(&["--hypervisor", "loop", "--hypervisor-root", &path("azure"), "--state", &path("state")]));
    arguments.extend(options.iter().cloned());
    let log = folder.path().join("emulator.log");
    // What an earlier one said must not be taken for this one's word.
    let _ = fs::rename(&log, folder.path().join("emulator.log.before"));
    let mut process = Process::of_program(program, "the emulator", &log, &arguments);
    let url = until("the emulator's address", || {
        process.must_run();
        let log = process.log();
        let line = log.lines().find(|line| line.starts_with('{') && line.ends_with('}'))?;
        let ready: Value = serde_json::from_str(line).ok()?;
        Some(ready["url"].as_str()?.to_owned())
    });
    let url = url.await;
    (process, Azure { url })
}
