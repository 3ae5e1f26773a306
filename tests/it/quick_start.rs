//! The commands of the pages that are to be pasted as a whole, in a shell: the README's, and those of the pages of the
//! emulator and of blob disks.

use std::{
    fs,
    net::TcpListener,
    path::Path,
    process::{Command, Output, Stdio},
    time::Duration,
};

use lazuli_rig::Folder;
use tokio::time::timeout;

use crate::kubectl;

/// How long all of it may take. Every process waits for what it needs, so it takes seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// The shell blocks of a page, from a heading on.
fn blocks(page: &str, heading: &str) -> Vec<String> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).unwrap();
    let section = text.split_once(heading).expect("the heading").1;
    section.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

/// The commands with a folder and ports of this test's own.
fn moved(commands: &str, folder: &Folder, ports: &[u16]) -> String {
    let mut commands = commands.replace("/tmp/", &format!("{}/", folder.path().display()));
    for port in ports {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        assert!(commands.contains(&format!("127.0.0.1:{port}")), "{port}: {commands}");
        commands = commands.replace(&format!("127.0.0.1:{port}"), &format!("127.0.0.1:{free}"));
    }
    commands
}

/// Runs a script in a folder, with this program on the path. A command that fails ends it, and its jobs end with it.
async fn run(script: &str, folder: &Folder) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_lazuli"));
    let script = format!("set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT\n{script}\n");
    let mut shell = Command::new("bash");
    shell.args(["-c", &script]).env_clear().stdin(Stdio::null());
    let folders = [program.parent().unwrap().display().to_string(), std::env::var("PATH").unwrap()];
    shell.env("PATH", folders.join(":")).env("HOME", folder.path()).current_dir(folder.path());
    let running = tokio::process::Command::from(shell).kill_on_drop(true).output();
    timeout(PATIENCE, running).await.expect("the commands end").unwrap()
}

fn said(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[tokio::test]
async fn the_commands_to_run_it_by_hand_work_when_they_are_pasted_as_a_whole() {
    let folder = Folder::make("quick-start").unwrap();
    let (build, commands): (Vec<String>, Vec<String>) = blocks("README.md", "## Run it by hand")[0]
        .lines()
        .map(str::to_owned)
        .partition(|line| line.starts_with("cargo build") || line.starts_with("export PATH="));
    assert_eq!(build.len(), 2, "the program under test is built already, and is on the path: {build:?}");
    let commands = moved(&commands.join("\n"), &folder, &[8181]);
    // The node plugin is the last of the three, and says what it lacks where this machine lacks file systems' tools.
    let missing = lazuli_host::Host::new().check_tools().err();
    let (nodes_job, running) = if missing.is_some() { ("! wait $!\n", 2) } else { ("", 3) };
    // Those behind must still run at its end.
    let output = run(&format!("{commands}\n{nodes_job}test \"$(jobs -pr | wc -l)\" = {running}"), &folder).await;
    let said = said(&output);
    assert!(output.status.success(), "{commands}\n{said}");
    let missing = missing.map(|missing| missing.to_string());
    for shown in ["An Azure is ready at", "node-0"].into_iter().chain(missing.as_deref()) {
        assert!(said.contains(shown), "{said}");
    }
    assert!(!folder.path().join("azure.json").exists(), "an emulator that has ended leaves no configuration");
}

#[tokio::test]
async fn the_same_for_a_service_works_when_it_is_pasted() {
    if !kubectl::found() {
        return;
    }
    let folder = Folder::make("quick-start-service").unwrap();
    let block = &blocks("README.md", "## Run it by hand")[1];
    assert!(block.starts_with("lazuli up "), "{block}");
    let output = run(&moved(block, &folder, &[8191, 8192]), &folder).await;
    let said = said(&output);
    assert!(said.contains("EnsuredLoadBalancer") && !said.contains("Warning"), "{said}");
    let row = said.lines().find(|line| line.starts_with("kubernetes ") && line.contains("default/web"));
    assert!(output.status.success() && row.is_some_and(|row| row.ends_with("kubernetes: 2")), "{said}");
}

#[tokio::test]
async fn the_examples_of_the_emulators_page_work_when_they_are_pasted_in_their_order() {
    let folder = Folder::make("emulator-page").unwrap();
    let script = blocks("deploy/emulator.md", "# The emulator").join("\n");
    let output = run(&moved(&script, &folder, &[8282, 8283, 8284]), &folder).await;
    assert!(output.status.success(), "{script}\n{}", said(&output));
}

#[tokio::test]
async fn blob_disks_can_be_tried_by_pasting_the_commands_of_their_page() {
    let folder = Folder::make("blob-disks-page").unwrap();
    let script = moved(&blocks("deploy/blob-disks.md", "## Try it")[0], &folder, &[8285, 8445]);
    let output = run(&format!("{script}\ntest \"$(jobs -pr | wc -l)\" = 2"), &folder).await;
    assert!(output.status.success(), "{script}\n{}", said(&output));
}
