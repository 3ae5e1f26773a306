//! Loop devices, by the program `losetup`.
//!
//! Every function blocks. A loop device is named as the kernel does, `loop4`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::Deserialize;

use super::types::HypervisorError;

/// How often to look whether the kernel has released a device, and how long to wait in between. udev
/// and blkid open a device for some milliseconds after any change.
const RELEASE_LOOKS: u32 = 25;
const RELEASE_PAUSE: Duration = Duration::from_millis(8);

/// Runs a program to its end and returns what it printed.
pub(super) fn run(program: &str, arguments: &[&OsStr]) -> Result<String, HypervisorError> {
    let output = Command::new(program).args(arguments).env("LC_ALL", "C").stdin(Stdio::null()).output();
    let command = || {
        let words = arguments.iter().map(|word| word.to_string_lossy());
        std::iter::once(program.into()).chain(words).collect::<Vec<_>>().join(" ")
    };
    match output {
        Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Ok(output) => Err(HypervisorError::Command {
            command: command(),
            stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        }),
        Err(source) => Err(HypervisorError::File { action: "cannot run", path: program.into(), source }),
    }
}

/// Checks that this process can make loop devices.
pub(super) fn check_available() -> Result<(), HypervisorError> {
    use std::os::unix::fs::MetadataExt;
    // The owner of /proc/self is the effective user, which needs no further dependency to ask for.
    let root = std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    if !root {
        return Err(HypervisorError::NotRoot);
    }
    Command::new("losetup").arg("--version").stdin(Stdio::null()).output().map_err(HypervisorError::NoLosetup)?;
    if !Path::new("/dev/loop-control").exists() {
        return Err(HypervisorError::NoLoopControl);
    }
    Ok(())
}

/// Binds a file, or its first bytes, to a free loop device; the kernel makes a new device when none is free.
pub(super) fn bind(file: &Path, most: Option<u64>) -> Result<String, HypervisorError> {
    let limit = most.map(|bytes| format!("--sizelimit={bytes}"));
    let mut arguments: Vec<&OsStr> = vec!["--find".as_ref(), "--show".as_ref()];
    arguments.extend(limit.as_deref().map(OsStr::new));
    arguments.push(file.as_os_str());
    let printed = run("losetup", &arguments)?;
    let name = printed.trim().strip_prefix("/dev/").map(str::to_owned);
    name.ok_or_else(|| HypervisorError::Command {
        command: format!("losetup --find --show {}", file.display()),
        stderr: format!("it printed {printed:?} instead of a device"),
    })
}

/// Releases a loop device. True when the kernel still holds it for someone who has it open or
/// mounted: it goes away with the last of them (the kernel marks it `autoclear`).
pub(super) fn release(name: &str) -> Result<bool, HypervisorError> {
    if !bound(name) {
        return Ok(false);
    }
    run("losetup", &["--detach".as_ref(), device(name).as_os_str()])?;
    for _ in 0..RELEASE_LOOKS {
        if !bound(name) {
            return Ok(false);
        }
        std::thread::sleep(RELEASE_PAUSE);
    }
    Ok(true)
}

/// Lets a device see that its file has grown.
pub(super) fn refresh_size(name: &str) -> Result<(), HypervisorError> {
    run("losetup", &["--set-capacity".as_ref(), device(name).as_os_str()]).map(|_| ())
}

/// Whether a file is bound to the device.
fn bound(name: &str) -> bool {
    Path::new("/sys/class/block").join(name).join("loop/backing_file").exists()
}

/// The device node.
pub(super) fn device(name: &str) -> PathBuf {
    Path::new("/dev").join(name)
}

#[derive(Deserialize)]
struct Listing {
    loopdevices: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    name: PathBuf,
    #[serde(rename = "back-file")]
    back_file: Option<PathBuf>,
}

/// All bound devices as (name, file). The file of a deleted one ends in ` (deleted)`.
pub(super) fn list() -> Result<Vec<(String, PathBuf)>, HypervisorError> {
    let arguments = ["--list", "--json", "--output", "NAME,BACK-FILE"];
    let printed = run("losetup", &arguments.map(AsRef::as_ref))?;
    // Nothing at all is printed when there is no loop device.
    if printed.trim().is_empty() {
        return Ok(Vec::new());
    }
    let listing: Listing = serde_json::from_str(&printed).map_err(|error| HypervisorError::Command {
        command: "losetup --list --json".to_owned(),
        stderr: error.to_string(),
    })?;
    Ok(listing
        .loopdevices
        .into_iter()
        .filter_map(|entry| {
            let name = entry.name.file_name()?.to_str()?.to_owned();
            Some((name, entry.back_file?))
        })
        .collect())
}
