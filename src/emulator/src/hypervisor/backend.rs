//! What every hypervisor can do.

use std::fmt::Debug;

use super::disk_files::DiskFiles;
use super::types::{DiskFacts, HypervisorError, Shown};

/// Makes devices of attached disks. Calls block, come one after the other, and may be repeated.
///
/// [`Hypervisor`](super::Hypervisor) says what each of them promises.
pub(super) trait Backend: Debug + Send {
    /// Prepares a machine, which has no disks yet.
    fn create_machine(&self, vm: &str, shown: Shown) -> Result<(), HypervisorError>;
    /// Takes all disks from a machine, and what was made for it.
    fn delete_machine(&self, vm: &str) -> Result<(), HypervisorError>;
    /// The files of its disks.
    fn files(&self) -> &DiskFiles;
    /// Grows a disk, and the devices that it is.
    fn resize(&self, disk: &DiskFacts) -> Result<(), HypervisorError>;
    /// Shows a disk to a machine.
    fn attach(&self, vm: &str, lun: u8, disk: &DiskFacts) -> Result<(), HypervisorError>;
    /// Takes the disk at a LUN from a machine.
    fn detach(&self, vm: &str, lun: u8) -> Result<(), HypervisorError>;
    /// The same, if it is this disk.
    fn withdraw(&self, vm: &str, lun: u8, disk: &DiskFacts) -> Result<(), HypervisorError>;
    /// Takes all disks from all machines.
    fn detach_all(&self) -> Result<(), HypervisorError>;
}
