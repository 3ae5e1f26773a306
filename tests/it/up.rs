//! `lazuli up` as people use it: its words, kubectl against it, and what it leaves.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Duration,
};

use lazuli_rig::Folder;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

use crate::kubectl;

/// What only a hang reaches.
const PATIENCE: Duration = Duration::from_secs(120);

/// The program in this folder, without options of the environment.
fn lazuli(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = kubectl::command(env!("CARGO_BIN_EXE_lazuli"), folder);
    command.args(arguments);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A running `lazuli up` without devices, whose standard output is a pipe.
struct Up {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    banner: Vec<String>,
}

impl Up {
    /// Starts it, and waits until it serves.
    async fn start(folder: &Path, arguments: &[&str]) -> Self {
        let own = ["up", "--latency=none", "--listen=127.0.0.1:0", "--api-listen=127.0.0.1:0", "--hypervisor=none"];
        let mut command = lazuli(folder, &[&own, arguments].concat());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut up = Self { child, lines, banner: Vec::new() };
        loop {
            let line = up.line().await;
            if line == "What happens:" {
                return up;
            }
            up.banner.push(line);
        }
    }

    async fn line(&mut self) -> String {
        timeout(PATIENCE, self.lines.next_line()).await.expect("a line").unwrap().expect("it runs")
    }

    /// The next line that holds this.
    async fn line_with(&mut self, text: &str) -> String {
        loop {
            let line = self.line().await;
            if line.contains(text) {
                return line;
            }
        }
    }

    /// The value of a row of the banner.
    fn value(&self, name: &str) -> String {
        let row =
            self.banner.iter().find_map(|line| line.trim().strip_prefix(name)).unwrap_or_else(|| panic!("{name}"));
        row.trim().to_owned()
    }

    /// Sends a signal, and gives what it says until its end, which is in order.
    async fn end(mut self, signal: Signal) -> String {
        kill(Pid::from_raw(self.child.id().unwrap().try_into().unwrap()), signal).unwrap();
        let mut said = Vec::new();
        while let Some(line) = timeout(PATIENCE, self.lines.next_line()).await.expect("its end").unwrap() {
            said.push(line);
        }
        let status = timeout(PATIENCE, self.child.wait()).await.expect("its end").unwrap();
        assert!(status.success(), "{status}: {said:#?}");
        said.join("\n")
    }
}

#[tokio::test]
async fn it_says_where_everything_is_and_what_happens_and_leaves_nothing_after_an_interrupt() {
    let folder = Folder::make("it-up").unwrap();
    let mut up = Up::start(folder.path(), &["--nodes=3"]).await;
    assert!(up.value("page").starts_with("http://127.0.0.1:"));
    assert!(up.value("devices").contains("--hypervisor none"), "{}", up.value("devices"));
    let (kubeconfig, azure_json) = (up.value("kubeconfig"), up.value("azure.json"));
    for path in [&kubeconfig, &azure_json] {
        assert!(Path::new(path).is_file(), "{path}");
    }
    for process in ["csi-controller", "csi-node node-0", "csi-node node-2"] {
        let socket = up.value(process);
        assert!(Path::new(socket.strip_prefix("unix://").unwrap()).exists(), "{socket}");
    }
    up.line_with("Node node-2 has registered").await;
    assert!(up.line_with("Node node-2 is initialised").await.contains("Standard_D8s_v3, 10.240.0.6"));
    // The configuration serves people's commands.
    let get = ["get", "instances", "--cloud-config", &azure_json, "--cloud-config-secret-name="];
    let Output { status, stdout, stderr } = lazuli(folder.path(), &get).output().await.unwrap();
    assert!(status.success() && text(&stdout).contains("node-2") && stderr.is_empty(), "{}", text(&stderr));

    let said = up.end(Signal::SIGINT).await;
    assert!(said.contains("Stopping") && said.contains("Nothing is mounted"), "{said}");
    let left: Vec<PathBuf> = fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.path()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn a_folder_of_a_person_is_kept_and_has_one_lazuli_up_at_a_time() {
    let folder = Folder::make("it-up").unwrap();
    let place = folder.path().join("mine");
    let given = format!("--folder={}", place.display());
    let up = Up::start(folder.path(), &["--nodes=1", &given]).await;
    let second = lazuli(folder.path(), &["up", "--hypervisor=none", &given]).output().await.unwrap();
    let told = text(&second.stderr);
    assert!(second.status.code() == Some(1) && told.contains("is in use by another lazuli up"), "{told}");
    assert!(up.end(Signal::SIGTERM).await.contains("is kept"));
    assert!(place.join("state").is_dir());
    for gone in ["kubeconfig", "azure.json", "web.json", "controller.sock", "node-0.sock"] {
        assert!(!place.join(gone).exists(), "{gone}");
    }
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_with_what_is_allowed() {
    let folder = Folder::make("it-up").unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!("--api-listen={}", taken.local_addr().unwrap());
    for (argument, code, told) in [
        ("--nodes=0", 2, "a whole number from 1 to 100"),
        ("--nodes=many", 2, "a whole number from 1 to 100"),
        ("--listen=8181", 2, "a loopback address and a port, such as 127.0.0.1:8181"),
        ("--listen=0.0.0.0:8181", 2, "a loopback address"),
        ("--api-listen=0.0.0.0:8182", 2, "a loopback address"),
        ("--latency=slow", 2, "slow"),
        ("--hypervisor=qemu", 2, "none, loop"),
        (&taken, 1, "the API server cannot listen on 127.0.0.1:"),
        ("--folder=/dev/null", 1, "the folder /dev/null cannot be used"),
        ("--folder=/etc", 1, "give a folder that is empty or does not exist"),
    ] {
        let name = argument.split('=').next().unwrap();
        let own = ["--listen=127.0.0.1:0", "--api-listen=127.0.0.1:0", "--hypervisor=none"];
        let others = own.into_iter().filter(|one| !one.starts_with(name));
        let arguments: Vec<&str> = std::iter::once("up").chain(others).chain([argument]).collect();
        let run = lazuli(folder.path(), &arguments).output();
        let Output { status, stderr, .. } = timeout(PATIENCE, run).await.expect("it ends").unwrap();
        assert_eq!(status.code(), Some(code), "{argument}: {}", text(&stderr));
        assert!(text(&stderr).contains(told), "{argument}: {}", text(&stderr));
    }
}

#[tokio::test]
async fn the_emulators_own_configuration_warns_of_nothing_and_serves_every_command_that_reads() {
    let folder = Folder::make("it-up").unwrap();
    let azure_json = folder.path().join("azure.json").display().to_string();
    let arguments = ["emulator", "--listen=127.0.0.1:0", "--azure-json", &azure_json];
    let _emulator = lazuli(folder.path(), &arguments).stdout(Stdio::null()).spawn().unwrap();
    // The first waits for the file, and says so.
    let cloud = ["--cloud-config", &*azure_json];
    for (number, words) in [
        &["get", "instances"][..],
        &["get", "routes"],
        &["get", "zones"],
        &["get", "clusters"],
        &["get", "load-balancers"],
        &["get", "disks"],
        &["get", "shares"],
        &["doctor"],
    ]
    .into_iter()
    .enumerate()
    {
        let run = lazuli(folder.path(), &[words, &cloud].concat()).output();
        let Output { status, stderr, stdout } = timeout(PATIENCE, run).await.expect("it ends").unwrap();
        let told = text(&stderr);
        assert!(status.success(), "{words:?}: {told}{}", text(&stdout));
        let waits = number == 0 && told.contains("does not exist yet; waiting up to 10 s");
        // What a list of nothing says is beside the result, and no warning.
        let is_of_nothing =
            told.lines().all(|line| ["there is no ", "no "].iter().any(|start| line.starts_with(start)));
        assert!(is_of_nothing || waits, "{words:?}: {told}");
    }
    let arguments = ["cloud-controllers", "--controllers=service-lb", "--kubeconfig=/dev/null"];
    let run = lazuli(folder.path(), &[&arguments[..], &cloud].concat()).output();
    let told = text(&timeout(PATIENCE, run).await.expect("it ends: there is no cluster").unwrap().stderr);
    assert!(!told.contains("without effect"), "{told}");
}

#[tokio::test]
async fn kubectl_prints_what_it_prints_on_any_cluster() {
    if !kubectl::found() {
        return;
    }
    let folder = Folder::make("it-up").unwrap();
    let up = Up::start(folder.path(), &[]).await;
    kubectl::services(Path::new(&up.value("kubeconfig")), folder.path()).await;
    up.end(Signal::SIGINT).await;
}
