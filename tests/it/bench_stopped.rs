//! A bench that is asked to stop leaves nothing behind.

use std::{path::Path, process::Stdio, time::Duration};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    process::Command,
    time::{sleep, timeout},
};

const PATIENCE: Duration = Duration::from_secs(60);

/// The node plugin's socket is the last thing that the bench waits for before it rests.
async fn until_it_rests(folder: &Path) {
    let serves = || {
        let made = std::fs::read_dir(folder).unwrap().next()?.ok()?;
        made.path().join("node.sock").exists().then_some(())
    };
    while serves().is_none() {
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_bench_that_is_asked_to_stop_removes_its_folder_and_ends_its_processes() {
    // Its path is short, because the path of a socket is at most 108 bytes long (source: unix(7)).
    let temporary = std::env::temp_dir().join(format!("lz{}", std::process::id()));
    std::fs::create_dir(&temporary).unwrap();
    let mut bench = Command::new(env!("CARGO_BIN_EXE_lazuli"));
    bench.args(["bench", "footprint", "--rest-seconds", "600"]).env("TMPDIR", &temporary);
    let bench = bench.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let bench = bench.spawn().unwrap();
    if let Err(missing) = lazuli_host::Host::new().check_tools() {
        // The node plugin that is measured does not start on this machine.
        let output = timeout(PATIENCE, bench.wait_with_output()).await.expect("the bench ends").unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(&missing.to_string()), "{said}");
        assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0, "{said}");
        std::fs::remove_dir(&temporary).unwrap();
        return;
    }
    timeout(PATIENCE, until_it_rests(&temporary)).await.expect("the bench begins");
    let pid = Pid::from_raw(i32::try_from(bench.id().unwrap()).unwrap());
    kill(pid, Signal::SIGTERM).unwrap();
    let output = timeout(PATIENCE, bench.wait_with_output()).await.expect("the bench ends").unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("the bench was stopped before it had measured all"), "{said}");
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0, "{said}");
    // Its processes have this folder in their arguments.
    let name = temporary.display().to_string();
    let runs = |process: std::fs::DirEntry| {
        let arguments = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&arguments).contains(&name)
    };
    let left = || std::fs::read_dir("/proc").unwrap().map_while(Result::ok).any(runs);
    let ended = async {
        while left() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, ended).await.expect("the processes of the bench end");
    std::fs::remove_dir(&temporary).unwrap();
}
