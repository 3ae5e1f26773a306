//! Letting a disk go: the proof that nothing on this machine still uses it.
//!
//! After an unmount the data may still be dirty, another mount namespace may still hold the file
//! system, or a `mkfs` may still run. Once Azure detaches the disk, what was not written is lost. So
//! a disk counts as released only when it was flushed and could be opened exclusively, or when it is
//! no longer in sysfs. Never forces anything.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::bounded::{self, CallError};
use super::device::{self, Device};
use super::mount;
use super::mountinfo;
use super::orphan;
use super::raw::{Access, RawDisk, RawError};
use super::{Deadline, Host};

/// How long a holder may take to finish going away: the kernel tears down a dead container's mount
/// namespace in the background.
const LINGER: Duration = Duration::from_secs(2);
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// That the disk may be detached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// Flushed, and opened exclusively.
    Free,
    /// No longer in sysfs, or its name belongs to another disk.
    Gone,
}

/// Something that uses a device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    /// A mount where this process sees it itself.
    Here {
        /// Where.
        target: PathBuf,
    },
    /// A mount, seen in the mount namespace of another process.
    Mount {
        /// One process of that namespace.
        pid: u32,
        /// Its command name.
        command: String,
        /// Where it is mounted there.
        target: PathBuf,
    },
    /// A process that an earlier one of ours started, such as a mkfs, and that has not ended.
    Process {
        /// Its process id.
        pid: u32,
        /// Its command name.
        command: String,
    },
    /// A device built on this one: multipath, RAID, device mapper.
    Device {
        /// Its kernel name.
        name: String,
    },
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Here { target } => write!(f, "it is mounted on {}", target.display()),
            Self::Mount { pid, command, target } => write!(f, "{command} (pid {pid}) has it on {}", target.display()),
            Self::Process { pid, command } => write!(f, "{command} (pid {pid}) has it open"),
            Self::Device { name } => write!(f, "{name} is built on it"),
        }
    }
}

/// Why a disk may not be detached.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// Something uses it.
    #[error("{} is still in use: {}", path.display(), holders_text(holders))]
    InUse {
        /// The device node.
        path: PathBuf,
        /// Who, as far as this process can see.
        holders: Vec<Holder>,
    },
    /// The device could not be flushed or opened for another reason.
    #[error("cannot tell whether the device is released")]
    Raw(#[source] RawError),
    /// The flush did not return in time.
    #[error("the device does not answer")]
    Call(#[source] CallError),
}

fn holders_text(holders: &[Holder]) -> String {
    if holders.is_empty() {
        // Without hostPID only our own container's processes are listed.
        return "by nothing this process can see".to_owned();
    }
    let all: Vec<String> = holders.iter().map(Holder::to_string).collect();
    all.join("; ")
}

/// Flushes the device and proves that nothing holds it.
///
/// # Errors
/// See [`ReleaseError`].
pub async fn ensure_released(host: &Host, device: &Device, deadline: Deadline) -> Result<Released, ReleaseError> {
    let linger = deadline.capped(LINGER);
    let mut pause = FIRST_PAUSE;
    loop {
        let tried = {
            let (host_copy, device) = (host.clone(), device.clone());
            bounded::call(&host.mounts, "flush", &device.path.clone(), deadline, move || {
                try_release(&host_copy, &device)
            })
            .await
            .map_err(ReleaseError::Call)?
        };
        match tried {
            Ok(released) => return Ok(released),
            Err(RawError::InUse { path }) if linger.passed() => {
                let holders = holders(host, device).await;
                return Err(ReleaseError::InUse { path, holders });
            }
            Err(RawError::InUse { .. }) => {}
            Err(other) => return Err(ReleaseError::Raw(other)),
        }
        let until = linger.capped(pause);
        tokio::time::sleep_until(until.instant()).await;
        pause *= 2;
    }
}

fn try_release(host: &Host, device: &Device) -> Result<Released, RawError> {
    if !device::is_present(host, device) {
        return Ok(Released::Gone);
    }
    let result = RawDisk::open(device, Access::Read)
        .and_then(|disk| disk.sync())
        .and_then(|()| match RawDisk::open(device, Access::ClaimWrite) {
            // A disk attached read-only cannot be opened for writing; the claim is what counts.
            Err(RawError::Io { source, .. })
                if matches!(source.raw_os_error(), Some(nix::libc::EROFS | nix::libc::EACCES)) =>
            {
                RawDisk::open(device, Access::ClaimRead)
            }
            other => other,
        })
        .and_then(|claim| match orphan::holding(host, device) {
            // While the claim kept it from starting.
            Some(_) => Err(RawError::InUse { path: claim.path().to_path_buf() }),
            None => Ok(()),
        });
    match result {
        Ok(()) => Ok(Released::Free),
        // Pulled out while we looked.
        Err(_) if !device::is_present(host, device) => Ok(Released::Gone),
        Err(error) => Err(error),
    }
}

/// Who uses a device, as far as this process can see; for messages.
pub async fn holders(host: &Host, device: &Device) -> Vec<Holder> {
    let (host, device) = (host.clone(), device.clone());
    tokio::task::spawn_blocking(move || gather_holders(&host, &device)).await.unwrap_or_default()
}

fn gather_holders(host: &Host, device: &Device) -> Vec<Holder> {
    let mut holders = BTreeSet::new();
    let built_on = host.sys().join("class/block").join(&device.name);
    for entry in fs::read_dir(built_on.join("holders")).into_iter().flatten().flatten() {
        holders.insert(Holder::Device { name: entry.file_name().to_string_lossy().into_owned() });
    }
    holders.extend(orphan::holding(host, device).map(|(pid, command)| Holder::Process { pid, command }));
    let names = mount::source_names(host, device);
    let names: Vec<&OsStr> = names.iter().map(|name| name.as_os_str()).collect();
    let mut seen = BTreeSet::new();
    let own = fs::read_link(host.proc.join("self/ns/mnt")).ok();
    let mut pids: Vec<u32> = fs::read_dir(&host.proc)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    for pid in pids {
        let folder = host.proc.join(pid.to_string());
        // One table per mount namespace. A process without a readable one has ended.
        let Ok(namespace) = fs::read_link(folder.join("ns/mnt")) else {
            continue;
        };
        let here = own.as_ref() == Some(&namespace);
        if !seen.insert(namespace) {
            continue;
        }
        let Ok(table) = mountinfo::read(&folder.join("mountinfo")) else {
            continue;
        };
        let mut mounts = mountinfo::of_device(&table, device.number);
        mounts.extend(mountinfo::of_source(&table, &names));
        let command = fs::read_to_string(folder.join("comm")).unwrap_or_default();
        holders.extend(mounts.into_iter().map(|mount| match here {
            true => Holder::Here { target: mount.target.clone() },
            false => Holder::Mount { pid, command: command.trim().to_owned(), target: mount.target.clone() },
        }));
    }
    holders.into_iter().collect()
}
