//! The README's commands to run Lazuli by hand, pasted as a whole into a shell.

use std::{
    fs,
    net::TcpListener,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use lazuli_rig::Folder;
use tokio::time::timeout;

/// How long all of it may take. Every process waits for what it needs, so it takes a second or two.
const PATIENCE: Duration = Duration::from_secs(60);

/// The shell block below this heading.
fn block(heading: &str) -> String {
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let section = readme.split_once(heading).expect("the heading").1;
    let block = section.split("```sh\n").nth(1).expect("a block of commands");
    block.split("```").next().unwrap().to_owned()
}

#[tokio::test]
async fn the_commands_to_run_it_by_hand_work_when_they_are_pasted_as_a_whole() {
    let folder = Folder::make("quick-start").unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_lazuli"));
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (build, commands): (Vec<String>, Vec<String>) = block("## Run it by hand")
        .lines()
        .map(str::to_owned)
        .partition(|line| line.starts_with("cargo build") || line.starts_with("export PATH="));
    assert_eq!(build.len(), 2, "the program under test is built already, and is on the path: {build:?}");
    let commands = commands.join("\n").replace("/tmp/", &format!("{}/", folder.path().display()));
    let commands = commands.replace("127.0.0.1:8181", &format!("127.0.0.1:{port}"));
    assert_eq!(commands.matches(&format!(":{port}")).count(), 2, "{commands}");
    // The node plugin is the last of the three, and says what it lacks where this machine lacks file systems' tools.
    let missing = lazuli_host::Host::new().check_tools().err();
    let (nodes_job, running) = if missing.is_some() { ("! wait $!\n", 2) } else { ("", 3) };
    // A command in front that fails ends the script. Those behind must still run at its end.
    let script = format!(
        "set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT\n{commands}\n\
         {nodes_job}test \"$(jobs -pr | wc -l)\" = {running}\n"
    );
    let mut shell = Command::new("bash");
    shell.args(["-c", &script]).env_clear().stdin(Stdio::null());
    let folders = [program.parent().unwrap().display().to_string(), std::env::var("PATH").unwrap()];
    shell.env("PATH", folders.join(":")).env("HOME", folder.path()).current_dir(folder.path());
    let run = tokio::process::Command::from(shell).kill_on_drop(true).output();
    let output = timeout(PATIENCE, run).await.expect("the commands end").unwrap();
    let said = format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{script}\n{said}");
    let missing = missing.map(|missing| missing.to_string());
    for shown in ["An Azure is ready at", "node-0"].into_iter().chain(missing.as_deref()) {
        assert!(said.contains(shown), "{said}");
    }
    assert!(!folder.path().join("azure.json").exists(), "an emulator that has ended leaves no configuration");
}
