//! A program that outlived the process which had started it, and holds a device.
//!
//! Where a killed node plugin was the first process of its container, the kernel has killed its children too.
//! Elsewhere they go on. A running `mkfs` holds its device exclusively, but one that was only just started has not
//! opened it yet, and one between its fork and its exec is not even called so: no claim shows it, and it would format
//! whatever is there when its turn comes. So a program that writes gets the device as its standard input, opened for
//! reading, before it is started ([`super::child`]). From its fork to its last moment it has the device open, and before
//! a device is formatted or released, this looks for such a process. Never ends it: it ends by itself.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::Host;
use super::device::Device;
use super::device_number;

/// How long a process that has the device open may take to be a passing one: a process being started elsewhere in this
/// program keeps copies of our descriptors between its fork and its exec.
const SETTLE: Duration = Duration::from_millis(300);

/// A process that holds the device, as far as this process can see: its id and its command name.
pub(super) type Orphan = (u32, String);

/// A process that goes on holding the device for a moment.
pub(super) fn lasting(host: &Host, device: &Device) -> Option<Orphan> {
    let settled = Instant::now() + SETTLE;
    loop {
        let found = holding(host, device)?;
        if Instant::now() >= settled {
            return Some(found);
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// A process that holds the device now: that has it as its standard input, or that is a copy of this program on its way
/// to be another and has it open anywhere.
pub(super) fn holding(host: &Host, device: &Device) -> Option<Orphan> {
    let own = fs::read_link(host.proc.join("self")).ok();
    let program = program_of(&host.proc.join("self"));
    let processes = fs::read_dir(&host.proc).into_iter().flatten().flatten();
    let mut ids: Vec<u32> = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    ids.sort_unstable();
    ids.into_iter().filter(|id| own.as_deref() != Some(Path::new(&id.to_string()))).find_map(|id| {
        let process = host.proc.join(id.to_string());
        let is_copy = program.is_some() && program_of(&process) == program;
        let held = is_device(&process.join("fd/0"), device) || is_copy && has_open(&process, device);
        let name = || fs::read_to_string(process.join("comm")).unwrap_or_default().trim().to_owned();
        held.then(|| (id, name()))
    })
}

/// The file name of the program that a process runs. A program that was replaced on disk keeps its name.
fn program_of(process: &Path) -> Option<OsString> {
    let program = fs::read_link(process.join("exe")).ok()?;
    let name = program.file_name()?.as_bytes();
    Some(OsStr::from_bytes(name.strip_suffix(b" (deleted)").unwrap_or(name)).to_owned())
}

fn has_open(process: &Path, device: &Device) -> bool {
    let open: Vec<PathBuf> =
        fs::read_dir(process.join("fd")).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    open.iter().any(|descriptor| is_device(descriptor, device))
}

/// Whether an open file is the device. Its name is looked at first: to look at a file of a dead server may hang.
fn is_device(descriptor: &Path, device: &Device) -> bool {
    let names: [Option<OsString>; 2] = [
        Some(device.name.clone().into()),
        fs::canonicalize(&device.path).ok().and_then(|path| path.file_name().map(OsStr::to_owned)),
    ];
    let Ok(target) = fs::read_link(descriptor) else { return false };
    let Some(target) = target.file_name().map(OsStr::as_bytes) else { return false };
    let target = target.strip_suffix(b" (deleted)").unwrap_or(target);
    if !names.iter().flatten().any(|name| name.as_bytes() == target) {
        return false;
    }
    let found = fs::metadata(descriptor);
    found.is_ok_and(|found| found.file_type().is_block_device() && device_number::of_raw(found.rdev()) == device.number)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::lab::{LoopDisk, able};

    #[test]
    fn a_process_is_found_by_its_open_device_whatever_it_is_called_and_until_it_ends() {
        if !able(&["losetup"]) {
            return;
        }
        let (disk, other) = (LoopDisk::new(8), LoopDisk::new(8));
        let host = Host::new();
        assert_eq!(holding(&host, &disk.device()), None);
        let input = fs::File::open(&disk.node).expect("open");
        // This process itself is none.
        assert_eq!(holding(&host, &disk.device()), None);
        let mut child = Command::new("sleep").arg("600").stdin(Stdio::from(input)).spawn().expect("sleep");
        assert_eq!(holding(&host, &disk.device()), Some((child.id(), "sleep".to_owned())));
        assert_eq!(lasting(&host, &disk.device()).map(|(pid, _)| pid), Some(child.id()));
        assert_eq!(holding(&host, &other.device()), None);
        child.kill().expect("kill");
        child.wait().expect("wait");
        assert_eq!(holding(&host, &disk.device()), None);
    }

    /// A copy of this program, as a fork makes one, has the device open before it has become anything else.
    #[test]
    fn a_copy_of_this_program_that_has_the_device_open_anywhere_is_found() {
        if !able(&["losetup"]) {
            return;
        }
        let disk = LoopDisk::new(8);
        let own = std::env::current_exe().expect("a path");
        let mut command = Command::new(own);
        command.args(["--ignored", "--exact", "orphan::tests::holds_the_device_of_its_environment"]);
        let mut child = command
            .env("HELD", &disk.node)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("the test program");
        let until = Instant::now() + Duration::from_secs(30);
        while holding(&Host::new(), &disk.device()).map(|(pid, _)| pid) != Some(child.id()) {
            assert!(Instant::now() < until, "it is not found");
            thread::yield_now();
        }
        drop(child.stdin.take());
        child.wait().expect("wait");
        assert_eq!(holding(&Host::new(), &disk.device()), None);
    }

    #[test]
    #[ignore = "a process for the test above"]
    fn holds_the_device_of_its_environment() {
        let Some(node) = std::env::var_os("HELD") else { return };
        let _held = fs::File::open(node).expect("open");
        let _ = std::io::read_to_string(std::io::stdin());
    }
}
