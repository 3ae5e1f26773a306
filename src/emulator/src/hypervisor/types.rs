//! What the hypervisor works on, and how it fails.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::qemu::QmpError;

/// How a machine shows its data disks to its kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shown {
    /// As LUNs of a SCSI host.
    #[default]
    Scsi,
    /// As namespaces of an NVMe controller.
    Nvme {
        /// Whether its kernel has NVMe multipath.
        multipath: bool,
        /// Whether the disk of the operating system is a namespace of the same controller; else it is on a local disk.
        system: bool,
    },
}

/// A machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// How it shows its disks.
    pub shown: Shown,
}

/// What the hypervisor needs to know of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskFacts {
    /// ARM id, compared without regard to letter case; the address of a VHD.
    pub id: String,
    /// The `uniqueId` of the disk.
    pub unique_id: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// The file that has the bytes, where that is not the hypervisor's own: a VHD's. What is in it beyond the size is
    /// no part of the disk.
    pub file: Option<PathBuf>,
}

/// A disk on a LUN of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Name of the machine.
    pub vm: String,
    /// LUN.
    pub lun: u8,
    /// The disk.
    pub disk: DiskFacts,
}

/// The machines that run in QEMU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QemuMachines {
    /// The socket of QEMU's Machine Protocol by the name of the machine, in any letter case.
    pub sockets: BTreeMap<String, PathBuf>,
}

/// The hypervisor could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum HypervisorError {
    /// Loop devices are for root.
    #[error("--hypervisor loop needs root: start the emulator as root, or leave the hypervisor out")]
    NotRoot,
    /// There is no `losetup`.
    #[error("--hypervisor loop needs the program losetup (package util-linux or mount)")]
    NoLosetup(#[source] std::io::Error),
    /// There are no loop devices.
    #[error("--hypervisor loop needs loop devices: /dev/loop-control is not there (modprobe loop)")]
    NoLoopControl,
    /// Another process uses the root.
    #[error("another emulator uses {}", root.display())]
    InUse {
        /// The root folder.
        root: PathBuf,
    },
    /// A machine's name that cannot be the name of a folder.
    #[error("{vm:?} cannot be the name of a machine")]
    MachineName {
        /// The name.
        vm: String,
    },
    /// A file or folder could not be handled.
    #[error("{action} {}", path.display())]
    File {
        /// What was tried, as a verb phrase.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// A program failed.
    #[error("{command} failed: {stderr}")]
    Command {
        /// Program and arguments.
        command: String,
        /// What it said.
        stderr: String,
    },
    /// A disk that has no file.
    #[error("the disk {id} has no file")]
    NoSuchDisk {
        /// ARM id.
        id: String,
    },
    /// QEMU did not do what it was asked to do.
    #[error("the QEMU of the machine {vm} ({})", socket.display())]
    Qemu {
        /// The machine.
        vm: String,
        /// The socket.
        socket: PathBuf,
        /// Why not.
        #[source]
        source: QmpError,
    },
    /// A LUN that no machine of Azure has.
    #[error("LUN {lun} is too high: Azure's data disks have the LUNs 0 to {last}")]
    Lun {
        /// The LUN.
        lun: u8,
        /// The highest that there is.
        last: u8,
    },
    /// A machine in QEMU that shows its disks otherwise than QEMU can.
    #[error(
        "the machine {vm} shows its disks by NVMe, and QEMU plugs no NVMe namespaces: give it diskController: SCSI"
    )]
    NvmeInQemu {
        /// The machine.
        vm: String,
    },
    /// The thread that worked on it is gone.
    #[error("the hypervisor's worker ended before its work was done")]
    Worker,
}
