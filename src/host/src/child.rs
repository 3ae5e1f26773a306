//! Child processes: each in a process group of its own, with a deadline, killed when the caller
//! goes away, always reaped, counted and capped, with bounded output.
//!
//! One blocking thread serves one child: it polls the child's pidfd, both output pipes and a pipe
//! whose other end the caller holds. Dropping the caller's future closes that end, which is how a
//! cancelled request kills its `mkfs`. A child that survives SIGKILL (uninterruptible in the
//! kernel) is handed to a reaper thread, keeps its place under the cap and is counted as stuck.
//!
//! A child is confined to what its work needs ([`super::confine`]), and one that writes holds its device from the start
//! ([`super::orphan`]). Never decides what an exit code means: callers do.

use std::ffi::{OsStr, OsString};
use std::io::{self, PipeReader, Read, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lazuli_model::Secret;
use nix::sys::signal::{Signal, killpg};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::thread::CapabilitySet;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::confine::{Confinement, Reach};
use super::device::Device;
use super::raw::{Access, RawDisk};
use super::{Deadline, Host};

/// Output kept per stream; the rest is read and dropped, so the child never blocks on it.
const OUTPUT_LIMIT: usize = 64 * 1024;

/// How long a killed child may take to die before it counts as stuck.
const DEATH_GRACE: Duration = Duration::from_secs(2);

/// Why a child process gave no exit status.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// The program is in none of the search folders.
    #[error("program {program} is not installed (looked in {})", list(searched))]
    ProgramMissing {
        /// Its name.
        program: String,
        /// Where it was looked for.
        searched: Vec<PathBuf>,
    },
    /// All places were taken until the deadline.
    #[error("{running} child processes are running ({stuck} of them stuck), {program} was not started")]
    TooMany {
        /// The program that was to run.
        program: String,
        /// Children alive.
        running: usize,
        /// Of these, killed but not dead.
        stuck: usize,
    },
    /// The program could not be started or watched.
    #[error("could not run {program}")]
    Spawn {
        /// Its name.
        program: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The deadline passed and the child was killed.
    #[error("{program} was killed at its deadline{}{}", if *stuck { " and does not die" } else { "" }, tail(stderr))]
    Deadline {
        /// Its name.
        program: String,
        /// What it had written to standard error.
        stderr: String,
        /// It is still there, uninterruptible in the kernel.
        stuck: bool,
    },
    /// The caller went away and the child was killed.
    #[error("{program} was cancelled")]
    Cancelled {
        /// Its name.
        program: String,
    },
}

fn list(folders: &[PathBuf]) -> String {
    let names: Vec<String> = folders.iter().map(|f| f.display().to_string()).collect();
    names.join(":")
}

fn tail(stderr: &str) -> String {
    if stderr.trim().is_empty() { String::new() } else { format!(": {}", stderr.trim()) }
}

/// How a child ended and what it said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Standard output, lossy UTF-8, at most 64 KiB.
    pub stdout: String,
    /// Standard error, lossy UTF-8, at most 64 KiB.
    pub stderr: String,
}

impl Output {
    /// Exit code 0.
    #[must_use]
    pub fn success(&self) -> bool {
        self.code == Some(0)
    }

    /// Whether it failed because another held its device, which programs tell by words alone.
    fn found_in_use(&self) -> bool {
        let said = |words| self.stderr.contains(words) || self.stdout.contains(words);
        !self.success() && (said("in use") || said("busy"))
    }

    /// The ending and the last words, for an error message.
    #[must_use]
    pub fn describe(&self) -> String {
        let ending = match (self.code, self.signal) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("killed by signal {signal}"),
            (None, None) => "ended without a status".to_owned(),
        };
        let words = if self.stderr.trim().is_empty() { self.stdout.trim() } else { self.stderr.trim() };
        if words.is_empty() { ending } else { format!("{ending}: {words}") }
    }
}

/// Counters and cap shared by all clones of a [`Host`].
#[derive(Debug)]
pub(super) struct Children {
    limit: usize,
    places: Arc<Semaphore>,
    stuck: Arc<AtomicUsize>,
    confinement: Arc<Confinement>,
}

impl Children {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            places: Arc::new(Semaphore::new(limit)),
            stuck: Arc::new(AtomicUsize::new(0)),
            confinement: Arc::default(),
        }
    }

    /// The same, with children that may do what this process may.
    #[cfg(test)]
    pub(super) fn unconfined(limit: usize) -> Self {
        Self { confinement: Arc::new(Confinement::off()), ..Self::new(limit) }
    }

    pub(super) fn running(&self) -> usize {
        self.limit.saturating_sub(self.places.available_permits())
    }

    pub(super) fn stuck(&self) -> usize {
        self.stuck.load(Ordering::SeqCst)
    }
}

/// A program to run, and what it needs for its work.
#[derive(Clone, Debug)]
pub struct Call {
    program: String,
    args: Vec<OsString>,
    reach: Reach,
    input: Option<Device>,
    password: Option<Secret>,
}

impl Call {
    /// A program that needs nothing but its arguments.
    #[must_use]
    pub fn new<S: AsRef<OsStr>>(program: &str, args: &[S]) -> Self {
        let args = args.iter().map(|arg| arg.as_ref().to_owned()).collect();
        Self { program: program.to_owned(), args, reach: Reach::default(), input: None, password: None }
    }

    /// It opens this device, which root owns.
    #[must_use]
    pub fn on(mut self, device: &Device) -> Self {
        self.reach.device = Some(device.path.clone());
        self
    }

    /// It writes to its device: it has the device as its standard input, by which it is found when this process has
    /// ended before it.
    #[must_use]
    pub fn writing(mut self, device: &Device) -> Self {
        self.input = Some(device.clone());
        self.on(device)
    }

    /// It works on the file system that is mounted here.
    #[must_use]
    pub fn mounted_at(mut self, mountpoint: &Path) -> Self {
        self.reach.mountpoint = Some(mountpoint.to_owned());
        self
    }

    /// It mounts, and so may do what this process may.
    #[must_use]
    pub fn that_mounts(mut self) -> Self {
        self.reach.mounts = true;
        self
    }

    /// It reads this password from its standard input, which `PASSWD_FD` names (source: mount.cifs(8)).
    #[must_use]
    pub fn with_password(mut self, password: &Secret) -> Self {
        self.password = Some(password.clone());
        self
    }

    /// It needs these capabilities.
    #[must_use]
    pub fn with(mut self, capabilities: CapabilitySet) -> Self {
        self.reach.capabilities |= capabilities;
        self
    }
}

/// Runs a program to its end.
///
/// The environment is `PATH` (the host's search folders) and `LC_ALL=C`, with a password `PASSWD_FD`, and nothing else.
///
/// # Errors
/// See [`ChildError`]. A non-zero exit is not an error here.
pub async fn run(host: &Host, call: Call, deadline: Deadline) -> Result<Output, ChildError> {
    let program = &*call.program;
    let path = find(host, program)?;
    let children = &host.children;
    let waited = tokio::time::timeout_at(deadline.instant(), Arc::clone(&children.places).acquire_owned()).await;
    let Ok(Ok(place)) = waited else {
        return Err(ChildError::TooMany {
            program: program.to_owned(),
            running: children.running(),
            stuck: children.stuck(),
        });
    };
    let spawn_error = |source| ChildError::Spawn { program: program.to_owned(), source };
    // Held across the await: dropping this future closes it, and the thread sees the hang-up.
    let (cancelled, caller) = io::pipe().map_err(spawn_error)?;
    let job = Job {
        path,
        proc: host.proc.clone(),
        confinement: Arc::clone(&children.confinement),
        call: call.clone(),
        search: host.search.clone(),
        place,
        stuck: Arc::clone(&children.stuck),
        cancelled,
        until: Instant::now() + deadline.remaining(),
    };
    let result = tokio::task::spawn_blocking(move || job.run()).await;
    drop(caller);
    match result {
        Ok(result) => result,
        Err(_) => Err(spawn_error(io::Error::other("the watching thread ended"))),
    }
}

/// Runs of a program that claims its device, when it finds the device held.
const CLAIMING_ATTEMPTS: u32 = 3;

/// Runs a program that claims `device` before it writes, again where it found the device held and that was for an
/// instant only ([`super::raw::once_settled`]).
///
/// # Errors
/// See [`ChildError`].
pub(super) async fn run_claiming(
    host: &Host,
    call: Call,
    device: &Device,
    deadline: Deadline,
) -> Result<Output, ChildError> {
    let mut attempt = 1;
    loop {
        let output = run(host, call.clone(), deadline).await?;
        if attempt == CLAIMING_ATTEMPTS || !output.found_in_use() {
            return Ok(output);
        }
        attempt += 1;
        let device = device.clone();
        let claimed = tokio::task::spawn_blocking(move || RawDisk::claim(&device).map(drop)).await;
        if !matches!(claimed, Ok(Ok(()))) {
            return Ok(output);
        }
    }
}

fn find(host: &Host, program: &str) -> Result<PathBuf, ChildError> {
    host.search
        .iter()
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
        .ok_or_else(|| ChildError::ProgramMissing { program: program.to_owned(), searched: host.search.clone() })
}

struct Job {
    call: Call,
    path: PathBuf,
    proc: PathBuf,
    confinement: Arc<Confinement>,
    search: Vec<PathBuf>,
    place: OwnedSemaphorePermit,
    stuck: Arc<AtomicUsize>,
    cancelled: PipeReader,
    until: Instant,
}

/// Why the watching loop stopped.
enum Stop {
    Exited,
    Deadline,
    Cancelled,
}

impl Job {
    fn run(self) -> Result<Output, ChildError> {
        let program = self.call.program.clone();
        let spawn_error = |source| ChildError::Spawn { program: program.clone(), source };
        // A caller that left while this job was queued wants no process at all.
        if hung_up(&self.cancelled) {
            return Err(ChildError::Cancelled { program });
        }
        let command = || {
            let input = match (&self.call.input, &self.call.password) {
                (Some(device), _) => RawDisk::open(device, Access::Read).map_err(io::Error::other)?.into_input(),
                (None, Some(password)) => secret_input(password)?,
                (None, None) => Stdio::null(),
            };
            let mut command = command(&self.path, &self.call.args, &self.search, input);
            if self.call.password.is_some() {
                command.env("PASSWD_FD", "0");
            }
            Ok(command)
        };
        let spawned = self.confinement.spawn(&self.call.reach, &self.path, &self.proc, &command);
        let mut child = spawned.map_err(spawn_error)?;
        let mut stdout = Stream::new(child.stdout.take().map(OwnedFd::from));
        let mut stderr = Stream::new(child.stderr.take().map(OwnedFd::from));
        let pid = Pid::from_child(&child);
        let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(fd) => fd,
            Err(errno) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(spawn_error(errno.into()));
            }
        };
        let stop = watch(&pidfd, &mut stdout, &mut stderr, &self.cancelled, self.until);
        let stop = stop.unwrap_or(Stop::Cancelled);
        if matches!(stop, Stop::Exited) {
            let status = child.wait().map_err(spawn_error)?;
            stdout.drain();
            stderr.drain();
            return Ok(Output {
                code: status.code(),
                signal: status.signal(),
                stdout: stdout.text(),
                stderr: stderr.text(),
            });
        }
        // The leader is not reaped yet, so the group's number cannot have been reused.
        let _ = killpg(nix::unistd::Pid::from_raw(pid.as_raw_pid()), Signal::SIGKILL);
        stderr.drain();
        let died = wait_readable(&pidfd, DEATH_GRACE);
        if died {
            let _ = child.wait();
        } else {
            self.hand_over(child);
        }
        match stop {
            Stop::Cancelled => Err(ChildError::Cancelled { program }),
            _ => Err(ChildError::Deadline { program, stderr: stderr.text(), stuck: !died }),
        }
    }

    /// Leaves an unkillable child to a thread that waits for its end, however long that takes.
    fn hand_over(self, mut child: Child) {
        let Self { place, stuck, call: Call { program, .. }, .. } = self;
        stuck.fetch_add(1, Ordering::SeqCst);
        tracing::warn!(program, pid = child.id(), "child process does not die");
        let counted = Arc::clone(&stuck);
        let spawned = thread::Builder::new().name("host-reaper".to_owned()).spawn(move || {
            let _ = child.wait();
            stuck.fetch_sub(1, Ordering::SeqCst);
            drop(place);
        });
        if spawned.is_err() {
            // Without a thread it becomes a zombie at worst; the place is free again.
            counted.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// A pipe that holds the password, and ends after it.
fn secret_input(password: &Secret) -> io::Result<Stdio> {
    let (reader, mut writer) = io::pipe()?;
    // Far less than a pipe holds, so that this does not wait.
    writer.write_all(password.expose().as_bytes())?;
    Ok(reader.into())
}

fn command(path: &Path, args: &[OsString], search: &[PathBuf], input: Stdio) -> Command {
    let mut command = Command::new(path);
    command
        .args(args)
        .env_clear()
        .env("LC_ALL", "C")
        .env("PATH", list(search))
        .current_dir("/")
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A group of its own: fsck and the mkfs wrappers have children, and a kill must reach them.
        .process_group(0);
    command
}

fn watch(
    pidfd: &OwnedFd,
    stdout: &mut Stream,
    stderr: &mut Stream,
    cancelled: &PipeReader,
    until: Instant,
) -> io::Result<Stop> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(Stop::Deadline);
        }
        let (exited, caller_left) = {
            let mut fds = vec![PollFd::new(pidfd, PollFlags::IN), PollFd::new(cancelled, PollFlags::IN)];
            fds.extend(
                [&*stdout, &*stderr]
                    .into_iter()
                    .filter_map(|stream| stream.fd.as_ref())
                    .map(|fd| PollFd::new(fd, PollFlags::IN)),
            );
            match poll(&mut fds, Some(&timespec(left))) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            (!fds[0].revents().is_empty(), !fds[1].revents().is_empty())
        };
        stdout.drain();
        stderr.drain();
        if exited {
            return Ok(Stop::Exited);
        }
        if caller_left {
            return Ok(Stop::Cancelled);
        }
    }
}

fn hung_up(cancelled: &PipeReader) -> bool {
    wait_readable(cancelled, Duration::ZERO)
}

fn wait_readable(fd: impl AsFd, limit: Duration) -> bool {
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    matches!(poll(&mut fds, Some(&timespec(limit))), Ok(n) if n > 0)
}

fn timespec(duration: Duration) -> Timespec {
    // A day is forever here, and always representable.
    Timespec::try_from(duration.min(Duration::from_secs(86_400))).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 })
}

/// One output pipe: read without blocking, kept up to the limit.
struct Stream {
    fd: Option<OwnedFd>,
    kept: Vec<u8>,
}

impl Stream {
    fn new(fd: Option<OwnedFd>) -> Self {
        let fd = fd.filter(|fd| rustix::io::ioctl_fionbio(fd, true).is_ok());
        Self { fd, kept: Vec::new() }
    }

    fn drain(&mut self) {
        let Some(fd) = self.fd.take() else { return };
        let mut pipe = std::fs::File::from(fd);
        let mut chunk = [0_u8; 8192];
        loop {
            match pipe.read(&mut chunk) {
                Ok(0) => return,
                Ok(read) => {
                    let room = OUTPUT_LIMIT.saturating_sub(self.kept.len());
                    self.kept.extend_from_slice(&chunk[..read.min(room)]);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return,
            }
        }
        self.fd = Some(pipe.into());
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.kept).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;

    /// These tests are of how a child is started, watched and ended.
    fn host() -> Host {
        Host::new().unconfined()
    }

    async fn run<S: AsRef<OsStr>>(
        host: &Host,
        program: &str,
        args: &[S],
        deadline: Deadline,
    ) -> Result<Output, ChildError> {
        super::run(host, Call::new(program, args), deadline).await
    }

    fn long() -> Deadline {
        Deadline::after(Duration::from_secs(60))
    }

    #[tokio::test]
    async fn output_and_exit_code_are_returned() {
        let host = host();
        let output = run(&host, "sh", &["-c", "echo out; echo err >&2; exit 3"], long()).await.expect("runs");
        assert_eq!(output.code, Some(3));
        assert_eq!(output.stdout, "out\n");
        assert_eq!(output.stderr, "err\n");
        assert_eq!(output.describe(), "exit code 3: err");
        assert_eq!(host.activity().children_running, 0);
    }

    #[tokio::test]
    async fn the_whole_group_dies_at_the_deadline() {
        let host = host();
        let folder = crate::lab::TempDir::new("child");
        let pid_file = folder.path().join("pid");
        let script = format!("sleep 600 & echo $! >{}; echo soon >&2; wait", pid_file.display());
        // Long enough for a busy machine to get as far as the wait.
        let error = run(&host, "sh", &["-c", &script], Deadline::after(Duration::from_secs(3)))
            .await
            .expect_err("it sleeps for ten minutes");
        assert!(matches!(&error, ChildError::Deadline { stderr, stuck: false, .. } if stderr == "soon\n"), "{error}");
        let grandchild = std::fs::read_to_string(&pid_file).expect("written before the sleep");
        let status = format!("/proc/{}/stat", grandchild.trim());
        // A zombie at most, until the machine's init reaps it; the kill is sent, and a busy machine takes a moment.
        let alive = || std::fs::read_to_string(&status).is_ok_and(|stat| !stat.contains(") Z "));
        let patience = Instant::now() + Duration::from_secs(10);
        while alive() {
            assert!(Instant::now() < patience, "the grandchild survived");
            tokio::task::yield_now().await;
        }
        assert_eq!(host.activity(), crate::Activity::default());
    }

    #[tokio::test]
    async fn dropping_the_caller_kills_the_child() {
        let host = host();
        let waiting = run(&host, "sleep", &["600"], long());
        let cut = tokio::time::timeout(Duration::from_millis(200), waiting).await;
        assert!(cut.is_err());
        // The place comes back only when the child is reaped.
        let all = u32::try_from(host.limits().children).expect("small");
        let places = host.children.places.acquire_many(all);
        let free = tokio::time::timeout(Duration::from_secs(20), places).await;
        assert!(free.is_ok(), "the child was not reaped");
    }

    #[tokio::test]
    async fn children_are_capped() {
        let host = Host::with_limits(Limits { children: 1, ..Limits::default() }).unconfined();
        let soon = Deadline::after(Duration::from_millis(300));
        let (first, second) = tokio::join!(
            run(&host, "sleep", &["600"], Deadline::after(Duration::from_secs(1))),
            run(&host, "true", &[] as &[&str], soon),
        );
        assert!(matches!(first, Err(ChildError::Deadline { .. })));
        assert!(matches!(second, Err(ChildError::TooMany { running: 1, .. })));
    }

    #[tokio::test]
    async fn a_missing_program_is_named_with_the_folders_searched() {
        let error = run(&host(), "mkfs.nothing", &[] as &[&str], long()).await.expect_err("no such program");
        assert!(error.to_string().contains("mkfs.nothing is not installed"));
    }

    #[tokio::test]
    async fn endless_output_is_cut_and_does_not_block_the_child() {
        let output = run(&host(), "sh", &["-c", "head -c 1000000 /dev/zero"], long()).await.expect("runs");
        assert!(output.success());
        assert_eq!(output.stdout.len(), OUTPUT_LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_paused_clock_does_not_kill_a_child_at_once() {
        let output = run(&host(), "sleep", &["0.1"], long()).await;
        assert!(output.expect("not killed").success());
    }
}
