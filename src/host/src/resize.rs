//! Growing: the kernel's view of the disk first, the file system after it, and a look whether it
//! worked.
//!
//! Azure grows the disk before the node is asked; the guest may learn of it only when told to read
//! the size again. Never shrinks, and never grows an unmounted file system (the tools for that want
//! a full check first; the node always has it mounted).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::thread::CapabilitySet;

use super::bounded::{self, CallError};
use super::child::{self, Call, ChildError};
use super::device::{self, Device, FindError};
use super::fs_type::FsType;
use super::raw::{Access, RawDisk, RawError};
use super::{Deadline, Host};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(1);

/// A file system may leave this much of the device unused: less than one ext block group or one xfs
/// allocation unit cannot be used, and btrfs aligns chunks. Source: 128 MiB is an ext block group of
/// 4 KiB blocks; the tools leave out a last group that is too small for its own metadata.
const SLACK_BYTES: u64 = 16 * 1024 * 1024;

/// What growing a mounted file system asks for: xfs and btrfs CAP_SYS_ADMIN, ext CAP_SYS_RESOURCE, and the folder where
/// it is mounted may be closed to all but its user (source: the kernel's ioctl handlers).
const GROWING: CapabilitySet =
    CapabilitySet::SYS_ADMIN.union(CapabilitySet::SYS_RESOURCE).union(CapabilitySet::DAC_READ_SEARCH);

/// Why a volume was not grown.
#[derive(Debug, thiserror::Error)]
pub enum ResizeError {
    /// The kernel still sees the old size at the deadline.
    #[error("{} has {now} bytes, {wanted} were expected", path.display())]
    TooSmall {
        /// The device node.
        path: PathBuf,
        /// Its size.
        now: u64,
        /// The size to reach.
        wanted: u64,
    },
    /// sysfs could not be read.
    #[error("cannot read the size of {name}")]
    Find {
        /// Kernel name.
        name: String,
        /// Why not; `None` when the device is gone.
        #[source]
        source: Option<FindError>,
    },
    /// The kernel did not take or answer the request to read the size again.
    #[error("cannot rescan {name}")]
    Rescan {
        /// Kernel name.
        name: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The request to read the size again did not return.
    #[error("the device does not answer")]
    Call(#[source] CallError),
    /// The superblock could not be read.
    #[error("cannot read the superblock")]
    Raw(#[source] RawError),
    /// The tool could not run.
    #[error("cannot grow {}", path.display())]
    Child {
        /// The device node.
        path: PathBuf,
        /// Why not.
        #[source]
        source: ChildError,
    },
    /// The tool failed.
    #[error("{program} failed on {}: {ending}", path.display())]
    Program {
        /// The tool.
        program: &'static str,
        /// The device node.
        path: PathBuf,
        /// Exit code and output.
        ending: String,
    },
    /// The tool failed, and this process lacks what the kernel asks for.
    #[error(
        "{program} failed on {}: growing a mounted ext file system needs CAP_SYS_RESOURCE, which this process does not \
         have; run the node plugin privileged, or give it that capability: {ending}",
        path.display()
    )]
    NotCapable {
        /// The tool.
        program: &'static str,
        /// The device node.
        path: PathBuf,
        /// Exit code and output.
        ending: String,
    },
    /// The tool succeeded and the file system is still smaller than the device.
    #[error("the file system on {} has {now} of {device_bytes} bytes after growing", path.display())]
    NotGrown {
        /// The device node.
        path: PathBuf,
        /// Size of the file system.
        now: u64,
        /// Size of the device.
        device_bytes: u64,
    },
    /// No such file system is on the device.
    #[error("no {fs} superblock on {}", path.display())]
    NoSuperblock {
        /// The device node.
        path: PathBuf,
        /// The expected type.
        fs: FsType,
    },
}

/// Makes the kernel read the disk's size again and waits until it is at least `wanted_bytes`. For a
/// raw block volume this is all there is to do. Returns the device as it is now.
///
/// # Errors
/// See [`ResizeError`].
pub async fn rescan(
    host: &Host,
    device: &Device,
    wanted_bytes: u64,
    deadline: Deadline,
) -> Result<Device, ResizeError> {
    let mut pause = FIRST_PAUSE;
    let mut asked = false;
    loop {
        let now = current(host, device)?;
        if now.size_bytes >= wanted_bytes {
            return Ok(now);
        }
        if deadline.passed() {
            return Err(ResizeError::TooSmall { path: device.path.clone(), now: now.size_bytes, wanted: wanted_bytes });
        }
        // Again each time the pause is at its longest: Azure may finish after the first reading.
        if !asked || pause == LAST_PAUSE {
            ask(host, device, deadline).await?;
            asked = true;
            if current(host, device)?.size_bytes >= wanted_bytes {
                continue;
            }
        }
        tokio::time::sleep_until(deadline.capped(pause).instant()).await;
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

fn current(host: &Host, device: &Device) -> Result<Device, ResizeError> {
    let error = |source| ResizeError::Find { name: device.name.clone(), source };
    match device::describe(host, &device.name) {
        Ok(Some(now)) if now.number == device.number => {
            Ok(Device { lun: device.lun, scsi: device.scsi.clone(), nvme: device.nvme.clone(), ..now })
        }
        Ok(_) => Err(error(None)),
        Err(source) => Err(error(Some(source))),
    }
}

/// Makes the kernel read the disk's size again. What it has read shows soon after.
///
/// # Errors
/// See [`ResizeError`].
pub async fn ask(host: &Host, device: &Device, deadline: Deadline) -> Result<(), ResizeError> {
    let mut places = vec![host.sys().join("class/block").join(&device.name).join("device/rescan")];
    if let Some(address) = &device.scsi {
        let class = host.sys().join("class/scsi_device");
        places.insert(0, class.join(address).join("device/rescan"));
    }
    places.extend(
        super::nvme::rescans_of(host, &device.name)
            .map_err(|source| ResizeError::Find { name: device.name.clone(), source: Some(source) })?,
    );
    // Not every kind of disk has the attribute; without it the size changes by itself.
    let Some(place) = places.into_iter().find(|place| place.exists()) else {
        return Ok(());
    };
    let path = place.clone();
    bounded::call(&host.mounts, "rescan", &place, deadline, move || device::write_attribute(&path, "1"))
        .await
        .map_err(ResizeError::Call)?
        .map_err(|source| ResizeError::Rescan { name: device.name.clone(), source })
}

/// Whether the file system is noticeably smaller than the device, as after a restore to a larger
/// disk. `mountpoint` is where it is mounted: a mounted xfs keeps its newest superblock in memory.
///
/// # Errors
/// See [`ResizeError`].
pub async fn needs_resize(
    host: &Host,
    device: &Device,
    fs: FsType,
    mountpoint: &Path,
    deadline: Deadline,
) -> Result<bool, ResizeError> {
    let size = filesystem_bytes(host, device, fs, mountpoint, deadline).await?;
    Ok(is_smaller(size, current(host, device)?.size_bytes))
}

fn is_smaller(filesystem: u64, device: u64) -> bool {
    filesystem.saturating_add(SLACK_BYTES) < device
}

/// Grows the mounted file system to the size of its device and checks that it did.
///
/// # Errors
/// See [`ResizeError`].
pub async fn grow(
    host: &Host,
    device: &Device,
    fs: FsType,
    mountpoint: &Path,
    deadline: Deadline,
) -> Result<(), ResizeError> {
    let node = device.path.as_os_str();
    let folder = mountpoint.as_os_str();
    let (program, args): (&'static str, Vec<&std::ffi::OsStr>) = match fs {
        FsType::Ext2 | FsType::Ext3 | FsType::Ext4 => ("resize2fs", vec![node]),
        FsType::Xfs => ("xfs_growfs", vec!["-d".as_ref(), folder]),
        // Behind what else changes the whole file system, such as a growth that a killed process began (source:
        // btrfs-filesystem(8): a second one fails at once without the option, which came with btrfs-progs 5.10).
        FsType::Btrfs => {
            let words = ["filesystem", "resize", "--enqueue", "max"].map(std::ffi::OsStr::new);
            ("btrfs", words.into_iter().chain([folder]).collect())
        }
    };
    let output = run(host, device, program, &args, mountpoint, deadline).await?;
    tracing::info!(device = %device.path.display(), %fs, said = output.stdout.trim(), "grown");
    let now = filesystem_bytes(host, device, fs, mountpoint, deadline).await?;
    let device_bytes = current(host, device)?.size_bytes;
    if is_smaller(now, device_bytes) {
        return Err(ResizeError::NotGrown { path: device.path.clone(), now, device_bytes });
    }
    Ok(())
}

async fn run(
    host: &Host,
    device: &Device,
    program: &'static str,
    args: &[&std::ffi::OsStr],
    mountpoint: &Path,
    deadline: Deadline,
) -> Result<child::Output, ResizeError> {
    let call = Call::new(program, args).on(device).mounted_at(mountpoint).with(GROWING);
    let output = child::run(host, call, deadline)
        .await
        .map_err(|source| ResizeError::Child { path: device.path.clone(), source })?;
    if output.success() {
        return Ok(output);
    }
    let (path, ending) = (device.path.clone(), output.describe());
    let status = fs::read_to_string(host.proc.join("self/status")).unwrap_or_default();
    Err(match program {
        "resize2fs" if lacks_sys_resource(&status) => ResizeError::NotCapable { program, path, ending },
        _ => ResizeError::Program { program, path, ending },
    })
}

/// Whether `/proc/self/status` says that the process may not grow a mounted ext file system (source: ext4's resize
/// ioctl asks CAP_SYS_RESOURCE, number 24 in capability.h). Some sandboxes keep it from root. What cannot be read
/// lacks nothing: it only words an error.
fn lacks_sys_resource(status: &str) -> bool {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    bits.is_some_and(|bits| bits >> 24 & 1 == 0)
}

/// Size in bytes that the file system believes to have.
async fn filesystem_bytes(
    host: &Host,
    device: &Device,
    fs: FsType,
    mountpoint: &Path,
    deadline: Deadline,
) -> Result<u64, ResizeError> {
    let missing = || ResizeError::NoSuperblock { path: device.path.clone(), fs };
    if fs == FsType::Xfs {
        let args = ["-n".as_ref(), mountpoint.as_os_str()];
        let output = run(host, device, "xfs_growfs", &args, mountpoint, deadline).await?;
        return parse_xfs(&output.stdout).ok_or_else(missing);
    }
    let reader = device.clone();
    let bytes = bounded::call(&host.mounts, "read", &device.path, deadline, move || {
        let disk = RawDisk::open(&reader, Access::Read)?;
        let offset = if fs == FsType::Btrfs { 65536 } else { 0 };
        disk.read(offset, 4096).map(|read| read.bytes().to_vec())
    })
    .await
    .map_err(ResizeError::Call)?
    .map_err(ResizeError::Raw)?;
    let size = match fs {
        FsType::Btrfs => parse_btrfs(&bytes),
        _ => parse_ext(&bytes),
    };
    size.ok_or_else(missing)
}

/// `data     =                       bsize=4096   blocks=65536, imaxpct=25`
fn parse_xfs(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("data "))?;
    let value = |key: &str| -> Option<u64> {
        let after = line.split_once(key)?.1;
        let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    };
    value("bsize=")?.checked_mul(value("blocks=")?)
}

/// Source: ext4 disk layout, super block at byte 1024: block count (low at 0x04, high at 0x150), block
/// size as a shift at 0x18, magic at 0x38, 64-bit feature 0x80 in the word at 0x60.
fn parse_ext(first: &[u8]) -> Option<u64> {
    let word = |at: usize| -> Option<u32> {
        let bytes = first.get(1024 + at..1024 + at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    if word(0x38)? & 0xFFFF != 0xEF53 {
        return None;
    }
    let low = u64::from(word(0x04)?);
    let high = if word(0x60)? & 0x80 != 0 { u64::from(word(0x150)?) } else { 0 };
    let block = 1024_u64.checked_shl(word(0x18)?)?;
    (high << 32 | low).checked_mul(block)
}

/// Source: btrfs on-disk format, super block at byte 65536: magic at 0x40, and inside the device item
/// at 0xC9 the device's total bytes at +8.
fn parse_btrfs(superblock: &[u8]) -> Option<u64> {
    if superblock.get(0x40..0x48)? != b"_BHRfS_M" {
        return None;
    }
    let bytes = superblock.get(0xD1..0xD9)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xfs_geometry_is_read_from_the_data_line() {
        let text = "\
meta-data=/dev/loop0             isize=512    agcount=4, agsize=20480 blks
data     =                       bsize=4096   blocks=81920, imaxpct=25
log      =internal log           bsize=4096   blocks=16384, version=2
";
        assert_eq!(parse_xfs(text), Some(81920 * 4096));
        assert_eq!(parse_xfs("nothing"), None);
    }

    #[test]
    fn ext_sizes_above_four_billion_blocks_are_read() {
        let mut first = vec![0_u8; 4096];
        first[1024 + 0x38] = 0x53;
        first[1024 + 0x39] = 0xEF;
        first[1024 + 0x18] = 2;
        first[1024 + 0x04] = 7;
        first[1024 + 0x150] = 1;
        assert_eq!(parse_ext(&first), Some(7 * 4096));
        first[1024 + 0x60] = 0x80;
        assert_eq!(parse_ext(&first), Some(((1 << 32) + 7) * 4096));
        assert_eq!(parse_ext(&[0; 4096]), None);
        assert_eq!(parse_ext(&[0; 100]), None);
    }

    #[test]
    fn the_missing_capability_is_read_from_the_status_of_the_process() {
        assert!(lacks_sys_resource("Name:\tx\nCapEff:\t000001fffeffffff\n"));
        assert!(!lacks_sys_resource("CapEff:\t000001ffffffffff\n"));
        assert!(!lacks_sys_resource(""));
    }

    #[test]
    fn a_small_rest_at_the_end_needs_no_resize() {
        let gib = 1 << 30;
        assert!(!is_smaller(gib - 4096, gib));
        assert!(is_smaller(gib, 2 * gib));
    }
}
