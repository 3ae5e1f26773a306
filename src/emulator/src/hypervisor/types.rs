//! What the hypervisor works on, and how it fails.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

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

impl QemuMachines {
    /// Whether a machine can have disks: those in QEMU by SCSI alone, the others as they like, on paper. The one answer at
    /// the start, when a machine is made, and when a disk is attached.
    ///
    /// # Errors
    /// [`HypervisorError::NvmeInQemu`], with what to do.
    pub fn check(&self, Machine { name, shown }: &Machine) -> Result<(), HypervisorError> {
        let is_in_qemu = self.sockets.keys().any(|vm| vm.to_lowercase() == name.to_lowercase());
        match shown {
            Shown::Nvme { .. } if is_in_qemu => Err(HypervisorError::NvmeInQemu { vm: name.clone() }),
            Shown::Nvme { .. } | Shown::Scsi => Ok(()),
        }
    }
}

/// The id that the SCSI controller for data disks has in the arguments of QEMU.
pub(super) const QEMU_CONTROLLER: &str = "lazuli";

/// How QEMU did not do what it was asked to do.
#[derive(Debug, thiserror::Error)]
pub enum QmpError {
    /// No QEMU listens.
    #[error("cannot connect: does QEMU run with -qmp unix:PATH,server=on,wait=off and this path?")]
    Connect(#[source] io::Error),
    /// What is at the path is not what QEMU makes there.
    #[error("it is no socket: QEMU makes one when it runs with -qmp unix:PATH,server=on,wait=off and this path")]
    NoSocket,
    /// It was connected to, and says nothing.
    #[error("QEMU sent no greeting within {} s: a QMP socket serves one client at a time, is another connected?", within.as_secs_f32())]
    NoGreeting {
        /// How long it was waited for.
        within: Duration,
    },
    /// What listens is no QMP server.
    #[error("expected the greeting of a QMP server, got {got}")]
    NoQmp {
        /// What it said.
        got: String,
    },
    /// The connection broke.
    #[error("the connection broke during {command}")]
    Broken {
        /// The command.
        command: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// QEMU has ended.
    #[error("QEMU ended during {command}")]
    Ended {
        /// The command.
        command: String,
    },
    /// No answer.
    #[error("QEMU did not answer {command} within {} s", within.as_secs_f32())]
    Late {
        /// The command, or what was to happen.
        command: String,
        /// How long it was waited for.
        within: Duration,
    },
    /// An answer that is no JSON object.
    #[error("the answer to {command} is not JSON: {got}")]
    NoJson {
        /// The command.
        command: String,
        /// What it said.
        got: String,
    },
    /// QEMU refuses to make a disk.
    #[error("QEMU takes no disk: {why}")]
    NoDevice {
        /// What it said.
        why: String,
    },
    /// QEMU has nothing that a disk could be plugged in.
    #[error(
        "QEMU has no controller for data disks: {got}. Start it with -device virtio-scsi-pci,id={QEMU_CONTROLLER}, after \
         the controllers of its own disks"
    )]
    NoController {
        /// What it has.
        got: String,
    },
    /// QEMU refuses.
    #[error("QEMU refused {command}: {why} ({class})")]
    Refused {
        /// The command.
        command: String,
        /// The class of the error.
        class: String,
        /// What it said.
        why: String,
    },
}

impl QmpError {
    /// Whether no process listens: the machine is off.
    pub(super) fn is_off(&self) -> bool {
        let kinds = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused];
        matches!(self, Self::Connect(source) if kinds.contains(&source.kind()))
    }

    /// The same of a disk that was to be made.
    pub(super) fn of_device(self) -> Self {
        match self {
            Self::Refused { why, .. } => Self::NoDevice { why },
            error => error,
        }
    }
}

/// The hypervisor could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum HypervisorError {
    /// Loop devices are for root.
    #[error("--hypervisor loop needs root: start the emulator as root, or leave the hypervisor out")]
    NotRoot,
    /// There is no `losetup`.
    #[error("--hypervisor loop needs the program losetup (package util-linux or mount)")]
    NoLosetup(#[source] io::Error),
    /// There are no loop devices.
    #[error("--hypervisor loop needs loop devices: /dev/loop-control is not there (modprobe loop)")]
    NoLoopControl,
    /// Another process uses the root.
    #[error("another emulator uses {}", root.display())]
    InUse {
        /// The root folder.
        root: PathBuf,
    },
    /// Another process has the QEMU of a machine.
    #[error(
        "another emulator{} plugs the disks of the machine {vm}: it has claimed the socket {} by its lock file {}",
        holder.map_or_else(String::new, |id| format!(" (process {id})")), socket.display(), lock.display()
    )]
    QemuInUse {
        /// The machine.
        vm: String,
        /// The socket.
        socket: PathBuf,
        /// The file by whose lock it is claimed.
        lock: PathBuf,
        /// The process that has it, where it is known.
        holder: Option<u32>,
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
        source: io::Error,
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
        "the machine {vm} shows its disks by NVMe, and QEMU plugs no NVMe namespaces: give it the disk controller SCSI \
         (diskController in a scenario, storageProfile.diskControllerType in ARM) or a size that has SCSI, or leave out \
         its --qemu-qmp"
    )]
    NvmeInQemu {
        /// The machine.
        vm: String,
    },
    /// The thread that worked on it is gone.
    #[error("the hypervisor's worker ended before its work was done")]
    Worker,
}
