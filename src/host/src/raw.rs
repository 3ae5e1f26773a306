//! Reading and writing a block device byte by byte, past the page cache.
//!
//! Every open checks that the node still is the device that was found: a name such as `sdc` may
//! belong to another disk a second later. Owns no meaning of the bytes.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use super::device::{Device, is_still};
use super::device_number::{self, DeviceNumber};

/// Alignment that every logical block size in use divides.
pub(super) const BLOCK: usize = 4096;

/// One mebibyte in bytes.
pub(super) const MIB: u64 = 1 << 20;

/// How long [`once_settled`] tries.
const SETTLE: Duration = Duration::from_millis(300);

/// Why a device could not be read, written or claimed.
#[derive(Debug, thiserror::Error)]
pub enum RawError {
    /// Someone holds the device: a mount in any namespace, a running `mkfs`, another claim.
    #[error("{} is in use", path.display())]
    InUse {
        /// The device node.
        path: PathBuf,
    },
    /// The node is gone, or there is no disk behind it.
    #[error("{} is gone", path.display())]
    Gone {
        /// The device node.
        path: PathBuf,
    },
    /// The node now leads to another device, or to no block device.
    #[error("{} is no longer device {expected}", path.display())]
    Replaced {
        /// The device node.
        path: PathBuf,
        /// The device it was.
        expected: DeviceNumber,
    },
    /// Anything else the system said.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The device node.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// How to open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Read, whichever other process uses it.
    Read,
    /// Read, as the only claimant: fails while any mount or `mkfs` holds the device.
    ClaimRead,
    /// Read and write, as the only claimant.
    ClaimWrite,
}

/// An open block device.
#[derive(Debug)]
pub(super) struct RawDisk {
    file: File,
    path: PathBuf,
    size: u64,
}

impl RawDisk {
    /// Opens the device, past the page cache when the driver can.
    pub(super) fn open(device: &Device, access: Access) -> Result<Self, RawError> {
        let path = device.path.clone();
        let direct = open_with(&path, access, OFlags::DIRECT);
        let file = match direct {
            Err(error) if error.raw_os_error() == Some(nix::libc::EINVAL) => open_with(&path, access, OFlags::empty()),
            other => other,
        };
        let mut file = file.map_err(|error| classify(&path, "open", error))?;
        let found = file.metadata().map_err(|error| classify(&path, "stat", error))?;
        let is_it = found.file_type().is_block_device() && device_number::of_raw(found.rdev()) == device.number;
        // While it is open, the kernel gives its number to no other disk.
        if !is_it || !is_still(device) {
            return Err(RawError::Replaced { path, expected: device.number });
        }
        let size = file.seek(SeekFrom::End(0)).map_err(|error| classify(&path, "measure", error))?;
        Ok(Self { file, path, size })
    }

    /// Claims the device for writing; tries for an instant when it is held (see [`once_settled`]).
    pub(super) fn claim(device: &Device) -> Result<Self, RawError> {
        once_settled(|| Self::open(device, Access::ClaimWrite), |error| matches!(error, RawError::InUse { .. }))
    }

    /// The open device as the standard input of a program.
    pub(super) fn into_input(self) -> Stdio {
        self.file.into()
    }

    /// Size in bytes at the time of opening.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// The device node.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads `len` bytes; offset and length are multiples of the sector size.
    pub(super) fn read(&self, offset: u64, len: usize) -> Result<Aligned, RawError> {
        let mut buffer = Aligned::zeroed(len);
        self.file.read_exact_at(buffer.bytes_mut(), offset).map_err(|error| classify(&self.path, "read", error))?;
        Ok(buffer)
    }

    /// Writes one block at an offset that is a multiple of [`BLOCK`].
    pub(super) fn write_block(&self, offset: u64, bytes: &[u8]) -> Result<(), RawError> {
        let mut buffer = Aligned::zeroed(BLOCK);
        buffer.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        self.file.write_all_at(buffer.bytes(), offset).map_err(|error| classify(&self.path, "write", error))
    }

    /// Flushes the page cache of the device and the disk's own cache.
    pub(super) fn sync(&self) -> Result<(), RawError> {
        self.file.sync_all().map_err(|error| classify(&self.path, "flush", error))
    }
}

/// Tries what needs a device for itself alone, for an instant while that is held. Two others hold a device for that
/// long: a process that this program starts, which has copies of our descriptors, a claim given up meanwhile among
/// them, from its fork until its exec closes them, which is after `spawn` has returned; and a program that looks for
/// volumes on every disk of the machine, such as LVM's.
pub(super) fn once_settled<T, E>(
    mut attempt: impl FnMut() -> Result<T, E>,
    is_held: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let settled = Instant::now() + SETTLE;
    loop {
        match attempt() {
            Err(error) if is_held(&error) && Instant::now() < settled => thread::sleep(Duration::from_millis(10)),
            other => return other,
        }
    }
}

fn open_with(path: &Path, access: Access, extra: OFlags) -> io::Result<File> {
    let flags = match access {
        Access::Read => extra,
        Access::ClaimRead | Access::ClaimWrite => extra | OFlags::EXCL,
    };
    OpenOptions::new()
        .read(true)
        .write(access == Access::ClaimWrite)
        .custom_flags(i32::try_from(flags.bits()).expect("open flags fit in an int"))
        .open(path)
}

pub(super) fn classify(path: &Path, action: &'static str, source: io::Error) -> RawError {
    let path = path.to_path_buf();
    match source.raw_os_error() {
        Some(nix::libc::EBUSY) => RawError::InUse { path },
        Some(nix::libc::ENOENT | nix::libc::ENXIO | nix::libc::ENODEV) => RawError::Gone { path },
        _ => RawError::Io { action, path, source },
    }
}

/// A byte buffer whose start is aligned for direct reads and writes.
#[derive(Debug)]
pub(super) struct Aligned {
    store: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    fn zeroed(len: usize) -> Self {
        let store = vec![0_u8; len + BLOCK];
        let start = store.as_ptr().align_offset(BLOCK);
        Self { store, start, len }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.store[self.start..self.start + self.len]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.store[self.start..self.start + self.len]
    }
}

/// The largest multiple of [`BLOCK`] not above `offset`.
pub(super) fn align_down(offset: u64) -> u64 {
    offset - offset % BLOCK as u64
}
