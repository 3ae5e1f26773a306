//! The processes that a bench runs: an emulator and what is measured, each on its own, so that neither's memory or
//! scheduling hides in the other's.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use clap::Args;
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
const THIS_PROGRAM: &str = "/proc/self/exe";

/// What is measured. The emulator is always this program's.
#[derive(Debug, Clone, Args)]
pub(super) struct Measured {
    /// Which program to measure, such as the one of an image, which is built without the emulator; default: this one.
    /// What its processes cost is printed: memory as …rss_bytes, of which …program_rss_bytes are pages of the program's file,
    /// and processor time as …cpu_s.
    #[arg(long, value_name = "FILE", default_value = THIS_PROGRAM, hide_default_value = true, value_parser = file)]
    program: PathBuf,
}

fn file(path: &str) -> Result<PathBuf, String> {
    match std::fs::metadata(path) {
        // A name without a slash would be looked for in PATH.
        Ok(found) if found.is_file() && path != THIS_PROGRAM => {
            std::fs::canonicalize(path).map_err(|error| error.to_string())
        }
        Ok(found) if found.is_file() => Ok(path.into()),
        Ok(_) => Err("it is no file".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

impl Default for Measured {
    fn default() -> Self {
        Self { program: THIS_PROGRAM.into() }
    }
}

impl Measured {
    /// The size of the program, in bytes.
    pub(super) fn size(&self) -> std::io::Result<u64> {
        std::fs::metadata(&self.program).map(|found| found.len())
    }

    /// A controller at a socket. It logs errors alone: calls that fail and are repeated are counted, and there may be
    /// thousands.
    pub(super) fn controller(&self, socket: &Path, config: &Path) -> Command {
        let mut command = lazuli(&self.program, "csi-controller", "error");
        command.arg("--endpoint").arg(format!("unix://{}", socket.display())).arg("--cloud-config").arg(config);
        command
    }

    /// The cloud controllers of a cluster. They log errors alone.
    pub(super) fn cloud_controllers(&self, config: &Path, kubeconfig: &Path) -> Command {
        let mut command = lazuli(&self.program, "cloud-controllers", "error");
        command
            .arg("--cloud-config")
            .arg(config)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .arg("--cloud-config-secret-name=");
        command
    }

    /// A node plugin at a socket, with its state beside it.
    pub(super) fn node(&self, socket: &Path, imds: &Url) -> Command {
        let mut command = lazuli(&self.program, "csi-node", "warn");
        command.arg("--endpoint").arg(format!("unix://{}", socket.display())).args(["--node-id", "node-0"]);
        command.arg("--state-dir").arg(socket.with_extension("state")).args(["--imds-url", imds.as_str()]);
        command
    }
}

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

/// Starts an emulator and waits until it says where it is.
pub(super) async fn ready(mut command: Command) -> Result<(Child, Url), AnyError> {
    let mut child = started(command.stdout(Stdio::piped()))?;
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

/// Starts a program, or says which one does not start.
pub(super) fn started(command: &mut Command) -> Result<Child, AnyError> {
    let program = Path::new(command.as_std().get_program()).display().to_string();
    command.spawn().map_err(|error| format!("{program} cannot be started: {error}").into())
}

/// Connects as soon as the program serves that listens at the socket, which must not end before.
pub(super) async fn connected(socket: &Path, program: &mut Child) -> Result<Channel, AnyError> {
    let deadline = Instant::now() + START;
    loop {
        if let Some(status) = program.try_wait()? {
            return Err(format!("the program that is measured ended before it served: {status}").into());
        }
        match lazuli_rig::connect(socket).await {
            Ok(channel) => return Ok(channel),
            Err(error) if Instant::now() > deadline => return Err(format!("no server listens: {error}").into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// The memory a process holds, in bytes (source: proc(5), `VmRSS`, `VmHWM` and `RssFile`).
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory {
    pub(super) now: u64,
    pub(super) peak: u64,
    /// What of it is pages of the program's file, which the kernel takes back when it needs them.
    pub(super) program: u64,
}

/// Asks the kernel.
pub(super) fn memory(child: &Child) -> Result<Memory, AnyError> {
    let pid = child.id().ok_or("the process has ended")?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |name: &str| -> Result<u64, AnyError> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).ok_or("the kernel does not tell it")?;
        Ok(line.trim().trim_end_matches("kB").trim().parse::<u64>()? * 1024)
    };
    Ok(Memory { now: field("VmRSS:")?, peak: field("VmHWM:")?, program: field("RssFile:")? })
}

/// Ticks a second in the files of proc(5) (source: `USER_HZ` of Linux, 100 on the architectures of the images).
const TICKS: f64 = 100.0;

/// The processor time of a child so far.
pub(super) fn cpu_time(child: &Child) -> Result<Duration, AnyError> {
    cpu_time_of(&child.id().ok_or("the process has ended")?.to_string())
}

/// The processor time of this process so far.
pub(super) fn own_cpu_time() -> Result<Duration, AnyError> {
    cpu_time_of("self")
}

/// Source: proc(5), `utime` and `stime` of `/proc/PID/stat`, in ticks.
fn cpu_time_of(process: &str) -> Result<Duration, AnyError> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
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
