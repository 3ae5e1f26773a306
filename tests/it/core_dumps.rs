//! What holds credentials leaves no copy of its memory behind.

use std::{
    fs::{self, File},
    os::{
        fd::AsRawFd as _,
        unix::{
            fs::{MetadataExt as _, OpenOptionsExt as _},
            process::CommandExt as _,
        },
    },
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use lazuli_rig::Folder;
use serde_json::json;

/// Any user but root. Source: the chart's `controller.runAsUser`.
const USER: u32 = 65532;

/// A public key of zeros.
const KEY: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program that runs as a user that is not root.
struct Started {
    running: Running,
    user: u32,
}

impl Started {
    /// Starts the program with these arguments. What it logs is in the file `log` of the folder.
    fn new(folder: &Folder, arguments: &[String]) -> Self {
        // By descriptor: the other user may not be able to enter the folders above the program.
        let program = File::open(env!("CARGO_BIN_EXE_lazuli")).unwrap();
        let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
        command.args(arguments).env_clear().stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(folder.path().join("log")).unwrap());
        let own = nix::unistd::geteuid();
        let user = if own.is_root() { USER } else { own.as_raw() };
        if own.is_root() {
            std::os::unix::fs::chown(folder.path(), Some(USER), Some(USER)).unwrap();
            command.uid(USER).gid(USER);
        }
        Self { running: Running(command.spawn().unwrap()), user }
    }

    /// Waits until this is so.
    fn until(&mut self, folder: &Folder, mut is: impl FnMut() -> bool) {
        let began = Instant::now();
        while !is() {
            let log = || fs::read_to_string(folder.path().join("log")).unwrap_or_default();
            assert!(self.running.0.try_wait().unwrap().is_none(), "the program ends: {}", log());
            assert!(began.elapsed() < Duration::from_secs(60), "the program does not get there: {}", log());
            std::thread::yield_now();
        }
    }

    /// What forbids that the kernel copies its memory.
    fn check(&self) {
        let proc = |file: &str| format!("/proc/{}/{file}", self.running.0.id());
        // A limit of 0 that cannot be raised: no file.
        let limits = fs::read_to_string(proc("limits")).unwrap();
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        assert_eq!(core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["0", "0"], "{core}");
        // Not dumpable: then its files belong to root (source: proc(5)), and no handler in core_pattern gets its memory.
        let status = fs::read_to_string(proc("status")).unwrap();
        let uid = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap();
        assert_eq!(uid.split_whitespace().next(), Some(self.user.to_string().as_str()));
        assert_eq!(fs::metadata(proc("environ")).unwrap().uid(), 0);
    }
}

#[test]
fn a_process_that_holds_a_credential_is_never_dumped() {
    let folder = Folder::make("core-dumps").unwrap();
    let (socket, config) = (folder.path().join("csi.sock"), folder.path().join("azure.json"));
    let credential = json!({
        "cloud": "AzurePublicCloud", "tenantId": "t", "subscriptionId": "s", "resourceGroup": "g",
        "location": "westeurope", "aadClientId": "c", "aadClientSecret": "hunter2",
    });
    fs::write(&config, credential.to_string()).unwrap();
    let arguments = [
        "csi-controller".to_owned(),
        format!("--endpoint=unix://{}", socket.display()),
        format!("--cloud-config={}", config.display()),
        "--cloud-config-secret-name=".to_owned(),
    ];
    let mut started = Started::new(&folder, &arguments);
    // Then it has read its credential.
    started.until(&folder, || socket.exists());
    started.check();
}

/// A pipe stands where the credential is: the program has opened it to read and waits.
#[test]
fn no_command_reads_a_credential_before_it_forbids_core_dumps() {
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}]});
    for words in [
        "csi-controller --cloud-config=PIPE",
        "csi-node --node-id=n --imds=off --kubeconfig=PIPE",
        "cloud-controllers --kubeconfig=KUBECONFIG --cloud-config=PIPE",
        "doctor --offline --cloud-config=PIPE",
        "get instances --cloud-config=PIPE",
        "get disks --kubeconfig=PIPE",
        "get shares --kubeconfig=PIPE",
        "get load-balancers --kubeconfig=PIPE",
        "instances add-ssh-key --user=u --key=KEY --all --dry-run --cloud-config=PIPE",
    ] {
        let folder = Folder::make("core-dumps").unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        fs::write(at("kubeconfig"), kubeconfig.to_string()).unwrap();
        fs::write(at("key"), format!("ssh-ed25519 {KEY} me")).unwrap();
        assert!(Command::new("mkfifo").args(["--mode=0666", &at("pipe")]).status().unwrap().success());
        let place = |word: &str| {
            word.replace("PIPE", &at("pipe")).replace("KUBECONFIG", &at("kubeconfig")).replace("KEY", &at("key"))
        };
        let arguments: Vec<String> = words.split(' ').map(place).collect();
        let mut started = Started::new(&folder, &arguments);
        // A pipe without a reader cannot be opened to write without waiting. Source: fifo(7).
        let mut writer = None;
        started.until(&folder, || {
            let opened = File::options().write(true).custom_flags(nix::libc::O_NONBLOCK).open(at("pipe"));
            writer = opened.ok();
            writer.is_some()
        });
        started.check();
    }
}
