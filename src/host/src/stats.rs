//! How full a volume is.
//!
//! `statvfs` of a dead server or disk may never return, so each call is bounded and a stuck one is
//! refused rather than piled up. The figures follow the Go driver: "available" is what an
//! unprivileged user gets, "used" counts reserved blocks as not used.

use std::io;
use std::path::{Path, PathBuf};

use super::bounded::{self, CallError};
use super::device::{self, Device, FindError};
use super::{Deadline, Host};

/// Figures of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Of all.
    pub total: u64,
    /// Taken.
    pub used: u64,
    /// Left for an unprivileged user.
    pub available: u64,
}

/// Figures of a mounted file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeStats {
    /// In bytes.
    pub bytes: Usage,
    /// Inodes; all zero where the file system has no fixed number (btrfs).
    pub inodes: Usage,
}

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum StatsError {
    /// The call did not return, or was not tried.
    #[error("the volume does not answer")]
    Call(#[source] CallError),
    /// The call failed.
    #[error("cannot measure {}", path.display())]
    System {
        /// The path.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The block device could not be read or is gone.
    #[error("cannot measure device {name}")]
    Device {
        /// Its kernel name.
        name: String,
        /// Why; `None` when it is gone.
        #[source]
        source: Option<FindError>,
    },
}

/// Measures the file system that holds `path`.
///
/// # Errors
/// See [`StatsError`].
pub async fn filesystem(host: &Host, path: &Path, deadline: Deadline) -> Result<VolumeStats, StatsError> {
    let target = path.to_path_buf();
    let answer = bounded::call(&host.stats, "statvfs", path, deadline, move || rustix::fs::statvfs(&target))
        .await
        .map_err(StatsError::Call)?;
    let stat = answer.map_err(|errno| StatsError::System { path: path.to_path_buf(), source: errno.into() })?;
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    Ok(VolumeStats {
        bytes: Usage {
            total: bytes(stat.f_blocks),
            used: bytes(stat.f_blocks.saturating_sub(stat.f_bfree)),
            available: bytes(stat.f_bavail),
        },
        inodes: Usage {
            total: stat.f_files,
            used: stat.f_files.saturating_sub(stat.f_ffree),
            available: stat.f_favail,
        },
    })
}

/// Size in bytes of a raw block volume, as the kernel sees it now.
///
/// # Errors
/// [`StatsError::Device`].
pub fn block(host: &Host, device: &Device) -> Result<u64, StatsError> {
    let error = |source| StatsError::Device { name: device.name.clone(), source };
    match device::describe(host, &device.name) {
        Ok(Some(now)) if now.number == device.number => Ok(now.size_bytes),
        Ok(_) => Err(error(None)),
        Err(source) => Err(error(Some(source))),
    }
}
