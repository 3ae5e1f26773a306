//! The processes that a bench runs: an emulator and what is measured, each on its own, so that neither's memory or
//! scheduling hides in the other's.

use std::{
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};
use tonic::transport::Channel;
use url::Url;

pub(super) type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// How long a child may take until it serves: thousands of machines on a computer that is busy take a while.
const START: Duration = Duration::from_secs(120);

/// The program that runs: an update of its file must not mix versions.
pub(super) const THIS_PROGRAM: &str = "/proc/self/exe";

/// A program, quiet, and ended with us.
fn lazuli(program: &Path, subcommand: &str, log: &str) -> Command {
    let mut command = Command::new(program);
    command.args(["--log", log, subcommand]).stdin(Stdio::null()).kill_on_drop(true);
    // Nothing from outside decides what is measured.
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("LAZULI_") || name.starts_with("AZURE_")) {
            command.env_remove(name);
        }
    }
    command.env_remove("KUBECONFIG").env_remove("KUBERNETES_SERVICE_HOST");
    command
}

/// An emulator on a port of its own that writes a cloud configuration.
pub(super) fn emulator(config: &Path) -> Command {
    let mut command = lazuli(Path::new(THIS_PROGRAM), "emulator", "warn");
    command.args(["--listen", "127.0.0.1:0", "--output", "json", "--azure-json"]).arg(config);
    command
}

/// A controller at a socket. It logs errors alone: calls that fail and are repeated are counted, and there may be
/// thousands.
pub(super) fn controller(socket: &Path, config: &Path) -> Command {
    controller_of(Path::new(THIS_PROGRAM), socket, config)
}

/// The cloud controllers of a cluster. They log errors alone.
pub(super) fn cloud_controllers(config: &Path, kubeconfig: &Path) -> Command {
    let mut command = lazuli(Path::new(THIS_PROGRAM), "cloud-controllers", "error");
    command.arg("--cloud-config").arg(config).arg("--kubeconfig").arg(kubeconfig).arg("--cloud-config-secret-name=");
    command
}

/// The controller of another build.
pub(super) fn controller_of(program: &Path, socket: &Path, config: &Path) -> Command {
    let mut command = lazuli(program, "csi-controller", "error");
    command.arg("--endpoint").arg(format!("unix://{}", socket.display())).arg("--cloud-config").arg(config);
    command
}

/// A node plugin at a socket, with its state beside it.
pub(super) fn node_of(program: &Path, socket: &Path, imds: &Url) -> Command {
    let mut command = lazuli(program, "csi-node", "warn");
    command.arg("--endpoint").arg(format!("unix://{}", socket.display())).args(["--node-id", "node-0"]);
    command.arg("--state-dir").arg(socket.with_extension("state")).args(["--imds-url", imds.as_str()]);
    command
}

/// Starts an emulator and waits until it says where it is.
pub(super) async fn ready(mut command: Command) -> Result<(Child, Url), AnyError> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take().ok_or("the emulator has no standard output")?;
    let mut lines = BufReader::new(stdout).lines();
    let line = tokio::time::timeout(START, lines.next_line())
        .await
        .map_err(|_| format!("the emulator does not serve after {} s", START.as_secs()))??
        .ok_or("the emulator ended at once")?;
    let ready: Value = serde_json::from_str(&line)?;
    let url = ready["url"].as_str().ok_or("the emulator does not say where it is")?.parse()?;
    Ok((child, url))
}

/// Connects as soon as a server listens.
pub(super) async fn connected(socket: &Path) -> Result<Channel, AnyError> {
    let deadline = Instant::now() + START;
    loop {
        match lazuli_rig::connect(socket).await {
            Ok(channel) => return Ok(channel),
            Err(error) if Instant::now() > deadline => return Err(format!("no server listens: {error}").into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// The memory a process holds, in bytes (source: proc(5), `VmRSS` and `VmHWM`).
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory {
    pub(super) now: u64,
    pub(super) peak: u64,
}

/// Asks the kernel.
pub(super) fn memory(child: &Child) -> Result<Memory, AnyError> {
    let pid = child.id().ok_or("the process has ended")?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |name: &str| -> Result<u64, AnyError> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).ok_or("the kernel does not tell it")?;
        Ok(line.trim().trim_end_matches("kB").trim().parse::<u64>()? * 1024)
    };
    Ok(Memory { now: field("VmRSS:")?, peak: field("VmHWM:")? })
}

/// Ticks a second in the files of proc(5) (source: `USER_HZ` of Linux, 100 on the architectures of the images).
const TICKS: f64 = 100.0;

/// The processor time of a process so far (source: proc(5), `utime` and `stime` of `/proc/PID/stat`, in ticks).
pub(super) fn cpu_time(child: &Child) -> Result<Duration, AnyError> {
    let pid = child.id().ok_or("the process has ended")?;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name of the program, in parentheses, may hold blanks.
    let (_, fields) = stat.rsplit_once(')').ok_or("the kernel does not tell it")?;
    let ticks = fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum::<f64>();
    Ok(Duration::from_secs_f64(ticks / TICKS))
}

/// Lets this process and those that it starts have so many files and connections open, or as many as the system allows.
pub(super) fn allow_open_files(wanted: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let allowed = now.maximum.map_or(wanted, |most| most.min(wanted));
    if now.current.is_some_and(|current| current < allowed)
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(allowed), maximum: now.maximum })
    {
        tracing::warn!(%error, "the limit of open files stays as it is; a large bench may fail of it");
    }
}

/// Ends a process; one that has ended by itself has said why.
pub(super) async fn end(child: &mut Child) {
    let _ = child.kill().await;
}
