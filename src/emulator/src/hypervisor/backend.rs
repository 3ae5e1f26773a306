//! What every hypervisor can do.

use std::fmt::Debug;
use std::path::Path;

use super::types::{DiskFacts, HypervisorError, Shown};

/// Makes devices of attached disks. Calls block, come one after the other, and may be repeated.
///
/// [`Hypervisor`](super::Hypervisor) says what each of them promises.
pub(super) trait Backend: Debug + Send {
    /// Prepares a machine, which has no disks yet.
    fn create_machine(&self, vm: &str, shown: Shown) -> Result<(), HypervisorError>;
    /// Takes all disks from a machine, and what was made for it.
    fn delete_machine(&self, vm: &str) -> Result<(), HypervisorError>;
    /// Makes the file of a blank disk.
    fn create_disk(&self, disk: &DiskFacts) -> Result<(), HypervisorError>;
    /// Makes the file of a disk from that of another.
    fn copy_disk(&self, from: &str, to: &DiskFacts) -> Result<(), HypervisorError>;
    /// Makes the file of a disk from the first bytes of another file.
    fn import_disk(&self, file: &Path, bytes: u64, to: &DiskFacts) -> Result<(), HypervisorError>;
    /// Removes the file of a disk.
    fn delete_disk(&self, id: &str) -> Result<(), HypervisorError>;
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
