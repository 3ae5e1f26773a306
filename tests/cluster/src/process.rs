//! Child processes of a test, and the sweeping up of what they leave on this machine, also when the test panics.

use std::{
    fs::{self, File},
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use rustix::mount::{UnmountFlags, unmount};

/// What only a hang reaches, on a busy machine too.
pub const PATIENCE: Duration = Duration::from_secs(90);
/// How often a condition that announces itself by no event is looked at.
const LOOK: Duration = Duration::from_millis(2);

/// Waits until `look` gives something, and panics with `what` when it does not in time.
pub async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(LOOK).await;
    }
}

/// The ids of all processes that this one sees.
pub(crate) fn processes() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// What the kernel says of a process.
pub(crate) struct Stat {
    /// The name of its program, of at most 15 bytes.
    pub(crate) name: String,
    pub(crate) state: char,
    pub(crate) parent: i32,
}

impl Stat {
    /// That of a process, if it is there.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // pid (name) state parent …; the name may hold anything (source: proc_pid_stat(5)).
        let (start, rest) = stat.rsplit_once(')')?;
        let mut fields = rest.split_whitespace();
        Some(Self {
            name: start.split_once('(')?.1.to_owned(),
            state: fields.next()?.chars().next()?,
            parent: fields.next()?.parse().ok()?,
        })
    }
}

/// The program under test, running.
pub struct Process {
    /// What a failure calls it.
    pub name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program with these arguments; both its outputs go to `log`, after what is there.
    pub fn of_program(program: &Path, name: &str, log: &Path, arguments: &[String]) -> Self {
        // Orphans come to this process. With init they would be in an orphaned process group, whose stopped members the
        // kernel hangs up on (source: POSIX, _exit, consequences of process termination).
        rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
        let file = File::options().create(true).append(true).open(log).unwrap();
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        // No cluster here, whatever the shell knows of one, and no option from the environment.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("LAZULI_") || text.starts_with("KUBE") || text.starts_with("AZURE_") {
                command.env_remove(&name);
            }
        }
        let child = command.env("LAZULI_LOG", "info").spawn().unwrap();
        Self { name: name.to_owned(), child, log: log.to_owned() }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// All that it has written.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// How it ended, if it has.
    pub fn ending(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Panics with the last words of a process that has ended.
    pub fn must_run(&mut self) {
        if let Some(status) = self.ending() {
            panic!("{} has ended with {status}:\n{}", self.name, self.log());
        }
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.id()).unwrap()), signal).unwrap();
    }

    /// Kills it, as the kernel does when memory is short: it can do nothing about it.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let status = self.child.wait().unwrap();
        assert!(status.signal() == Some(9), "{} had ended with {status}:\n{}", self.name, self.log());
    }

    /// Waits for its end.
    pub async fn end(&mut self) -> ExitStatus {
        let what = format!("the end of {}", self.name);
        until(&what, || self.child.try_wait().unwrap()).await
    }

    /// Asks it to stop and waits until it has, in order.
    pub async fn stop(mut self) {
        self.signal(Signal::SIGTERM);
        let status = self.end().await;
        assert!(status.success(), "{} ended with {status}:\n{}", self.name, self.log());
    }

    /// A child process of this one whose name begins so.
    pub fn child_named(&self, prefix: &str) -> Option<Pid> {
        self.children_named(prefix).into_iter().next()
    }

    /// The child processes of this one whose names begin so.
    pub fn children_named(&self, prefix: &str) -> Vec<Pid> {
        let parent = i32::try_from(self.id()).unwrap();
        let of_us = |pid: &i32| {
            Stat::of(*pid)
                .is_some_and(|stat| stat.name.starts_with(prefix) && stat.parent == parent && stat.state != 'Z')
        };
        processes().filter(of_us).map(Pid::from_raw).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!(
                "--- the end of the log of {}\n{}",
                self.name,
                lines[lines.len().saturating_sub(30)..].join("\n")
            );
        }
    }
}

/// A process that is not a child of the test, such as an orphan: killed at the end if it is still there.
pub struct Orphan(pub Pid);

impl Orphan {
    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let _ = kill(self.0, signal);
    }

    /// Waits until a signal has stopped it, or it has ended. A process that is on its way out neither stops nor is gone
    /// yet: it does no more of its work, and its parent may not have heard of it.
    pub async fn has_stopped(&self) -> bool {
        until("a stop of a process, or its end", || match Stat::of(self.0.as_raw()).map(|stat| stat.state) {
            Some('T') => Some(true),
            Some('Z' | 'X') | None => Some(false),
            Some(_) => None,
        })
        .await
    }

    /// Waits until it is gone; one that no parent reaps counts as gone.
    pub async fn gone(&self) {
        until("the end of an orphan", || match Stat::of(self.0.as_raw()) {
            Some(stat) if stat.state != 'Z' => None,
            _ => Some(()),
        })
        .await;
    }
}

impl Drop for Orphan {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
    }
}

/// A folder that processes share.
pub struct Folder {
    path: PathBuf,
    at_end: AtEnd,
}

/// What becomes of a folder when its owner goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AtEnd {
    /// It goes, with every mount and every loop device that was made in it.
    Sweep,
    /// It stays, for somebody who looks why.
    Stay,
}

impl Folder {
    /// A new one, which goes with its owner. Short, because a unix socket's path may have 107 bytes.
    pub fn make() -> Self {
        let id = uuid::Uuid::new_v4().simple().to_string();
        let path = std::env::temp_dir().join(format!("lazuli-p-{}", &id[..8]));
        fs::create_dir(&path).unwrap();
        Self { path: fs::canonicalize(path).unwrap(), at_end: AtEnd::Sweep }
    }

    /// One that is there, and stays.
    pub fn at(path: &Path) -> Self {
        Self { path: fs::canonicalize(path).unwrap(), at_end: AtEnd::Stay }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The mount points below it, in the order in which they were mounted.
    pub fn mounts(&self) -> Vec<PathBuf> {
        mount_lines().into_iter().map(|line| line.target).filter(|target| target.starts_with(&self.path)).collect()
    }

    /// The loop devices on files below it.
    pub fn loops(&self) -> Vec<String> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/sys/block").unwrap().flatten() {
            let backing = fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
            if Path::new(backing.trim_end().trim_end_matches(" (deleted)")).starts_with(&self.path) {
                found.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        found
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.at_end == AtEnd::Stay {
            return;
        }
        for target in self.mounts().iter().rev() {
            let _ = unmount(target, UnmountFlags::DETACH);
        }
        for name in self.loops() {
            let _ = Command::new("losetup").args(["--detach", &format!("/dev/{name}")]).stderr(Stdio::null()).status();
        }
        // Never through a mount.
        if self.mounts().is_empty() {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// A line of this process's mount table.
#[derive(Debug, Clone)]
pub struct MountLine {
    /// Where it is mounted.
    pub target: PathBuf,
    /// The options of this mount.
    pub options: Vec<String>,
    /// The type of the file system.
    pub fs_type: String,
    /// The device, or what the type takes for one.
    pub source: PathBuf,
}

/// The mount table, read by other code than the program's (source: proc_pid_mountinfo(5)).
pub fn mount_lines() -> Vec<MountLine> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let before: Vec<&str> = before.split(' ').collect();
        let after: Vec<&str> = after.split(' ').collect();
        Some(MountLine {
            target: before.get(4)?.into(),
            options: before.get(5)?.split(',').map(str::to_owned).collect(),
            fs_type: (*after.first()?).to_owned(),
            source: after.get(1)?.into(),
        })
    };
    text.lines().filter_map(line).collect()
}

/// What is mounted at a path, topmost.
pub fn mounted_at(path: &Path) -> Option<MountLine> {
    mount_lines().into_iter().rev().find(|line| line.target == path)
}

/// Runs a program to its end, with success, and gives its output.
pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect(program);
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
