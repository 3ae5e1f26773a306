//! What holds credentials leaves no copy of its memory behind.

use std::{
    fs::{self, File},
    os::{
        fd::AsRawFd as _,
        unix::{fs::MetadataExt as _, process::CommandExt as _},
    },
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use lazuli_rig::Folder;
use serde_json::json;

/// Any user but root. Source: the chart's `controller.runAsUser`.
const USER: u32 = 65532;

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a controller as a user that is not root, and waits until it serves: then it has read its credential.
fn controller(folder: &Folder) -> (Running, u32) {
    let (socket, config) = (folder.path().join("csi.sock"), folder.path().join("azure.json"));
    let credential = json!({
        "cloud": "AzurePublicCloud", "tenantId": "t", "subscriptionId": "s", "resourceGroup": "g",
        "location": "westeurope", "aadClientId": "c", "aadClientSecret": "hunter2",
    });
    fs::write(&config, credential.to_string()).unwrap();
    // By descriptor: the other user may not be able to enter the folders above the program.
    let program = File::open(env!("CARGO_BIN_EXE_lazuli")).unwrap();
    let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
    command.arg("csi-controller").arg(format!("--endpoint=unix://{}", socket.display()));
    command.arg(format!("--cloud-config={}", config.display())).arg("--cloud-config-secret-name=");
    command.env_clear().stdin(Stdio::null()).stderr(File::create(folder.path().join("log")).unwrap());
    let own = nix::unistd::geteuid();
    let user = if own.is_root() { USER } else { own.as_raw() };
    if own.is_root() {
        std::os::unix::fs::chown(folder.path(), Some(USER), Some(USER)).unwrap();
        command.uid(USER).gid(USER);
    }
    let mut running = Running(command.spawn().unwrap());
    let began = Instant::now();
    while !socket.exists() {
        let log = || fs::read_to_string(folder.path().join("log")).unwrap_or_default();
        assert!(running.0.try_wait().unwrap().is_none(), "the controller does not start: {}", log());
        assert!(began.elapsed() < Duration::from_secs(60), "the controller does not serve: {}", log());
        std::thread::yield_now();
    }
    (running, user)
}

#[test]
fn a_process_that_holds_a_credential_is_never_dumped() {
    let folder = Folder::make("core-dumps").unwrap();
    let (running, user) = controller(&folder);
    let proc = |file: &str| format!("/proc/{}/{file}", running.0.id());
    // A limit of 0 that cannot be raised: no file.
    let limits = fs::read_to_string(proc("limits")).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["0", "0"], "{core}");
    // Not dumpable: then its files belong to root (source: proc(5)), and no handler in core_pattern gets its memory.
    let status = fs::read_to_string(proc("status")).unwrap();
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap();
    assert_eq!(uid.split_whitespace().next(), Some(user.to_string().as_str()));
    assert_eq!(fs::metadata(proc("environ")).unwrap().uid(), 0);
}
