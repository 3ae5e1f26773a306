//! Checking a file system: the repair before a writable mount, and the read-only verification of one
//! that an interrupted format left.
//!
//! `fsck -a` runs for every type as in the Go driver; for xfs and btrfs the system's `fsck.xfs` and
//! `fsck.btrfs` do nothing by design, so it costs one process. It is skipped for read-only stages:
//! a repair writes.

use super::child::{self, Call, ChildError};
use super::device::Device;
use super::fs_type::FsType;
use super::{Deadline, Host};

/// Why a file system is not fit to be mounted.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The program could not run to its end.
    #[error("cannot check {device}")]
    Child {
        /// The device node.
        device: String,
        /// Why.
        #[source]
        source: ChildError,
    },
    /// Errors that an automatic repair does not touch.
    #[error("the file system on {device} has errors that need a manual repair: {ending}")]
    Uncorrected {
        /// The device node.
        device: String,
        /// Exit code and output.
        ending: String,
    },
    /// The check itself failed: in use, no memory, cancelled…
    #[error("the check of {device} failed: {ending}")]
    Failed {
        /// The device node.
        device: String,
        /// Exit code and output.
        ending: String,
    },
}

/// What a repair did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Nothing was wrong.
    Clean,
    /// Errors were corrected.
    Corrected,
    /// No `fsck` is installed; the Go driver goes on in this case too.
    NotInstalled,
}

/// Runs `fsck -a` before a writable mount. The device must not be mounted.
///
/// Exit codes (source: fsck(8), a sum): 0 clean, 1 corrected, 2 "reboot" (no meaning for an unmounted
/// disk), 4 uncorrected errors, 8 and up the check failed. The Go driver goes on above 4; a check
/// that could not run says nothing about the data, so this one stops.
///
/// # Errors
/// See [`CheckError`].
pub async fn repair(host: &Host, device: &Device, deadline: Deadline) -> Result<Repair, CheckError> {
    let node = device.path.display().to_string();
    let fsck = Call::new("fsck", &["-a", &node]).writing(device);
    let output = match child::run_claiming(host, fsck, device, deadline).await {
        Ok(output) => output,
        Err(ChildError::ProgramMissing { .. }) => {
            tracing::warn!(device = %node, "fsck is not installed, mounting unchecked");
            return Ok(Repair::NotInstalled);
        }
        Err(source) => {
            return Err(CheckError::Child { device: node, source });
        }
    };
    let ending = output.describe();
    match output.code {
        Some(0) => Ok(Repair::Clean),
        Some(1..=3) => {
            tracing::warn!(device = %node, %ending, "file system errors were corrected");
            Ok(Repair::Corrected)
        }
        Some(code) if code & 4 != 0 && code < 128 => Err(CheckError::Uncorrected { device: node, ending }),
        _ => Err(CheckError::Failed { device: node, ending }),
    }
}

/// Checks a whole file system without writing.
///
/// # Errors
/// See [`CheckError`].
pub async fn verify(host: &Host, device: &Device, fs: FsType, deadline: Deadline) -> Result<(), CheckError> {
    let node = device.path.display().to_string();
    let (program, args): (&str, Vec<&str>) = match fs {
        FsType::Ext2 | FsType::Ext3 | FsType::Ext4 => ("e2fsck", vec!["-f", "-n", &node]),
        FsType::Xfs => ("xfs_repair", vec!["-n", &node]),
        FsType::Btrfs => ("btrfs", vec!["check", "--readonly", &node]),
    };
    let output = child::run(host, Call::new(program, &args).on(device), deadline)
        .await
        .map_err(|source| CheckError::Child { device: node.clone(), source })?;
    if output.success() { Ok(()) } else { Err(CheckError::Uncorrected { device: node, ending: output.describe() }) }
}
