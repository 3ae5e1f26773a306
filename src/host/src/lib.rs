//! What a CSI node does to Linux: find a disk by its LUN, look at what is on it, format it, check
//! it, mount it, grow it, measure it, and let it go; and mount file shares.
//!
//! This crate owns every system call, sysfs read, child process and on-disk byte of a node. It
//! decides nothing about Azure: which disk belongs at which LUN, which volume may be formatted and
//! which gRPC code an error becomes are its callers' business. It never formats a device that is
//! not provably blank (or holds only our own unfinished work for the same volume), never detaches a
//! mount lazily, and never guesses between two devices.
//!
//! Every entry point takes a [`Host`], which carries the root folder of `sys/` and `dev/`, so the
//! same code runs on a real node, in a virtual machine and on the emulator's loop devices.
//!
//! # The contract under the root folder
//!
//! | path | kind | meaning |
//! |---|---|---|
//! | `sys/class/scsi_device/H:C:T:L/device/{vendor,model}` | file | who made the disk; data disks say `Msft`, `Virtual Disk` |
//! | `sys/class/scsi_device/H:C:T:L/device/block/NAME` | directory | the name of its block device |
//! | `sys/class/scsi_device/H:C:T:L/device/rescan` | file, optional | a written `1` makes the kernel read the size again |
//! | `sys/class/scsi_host/*/scan` | file, optional | a written `- - -` makes the kernel look for new disks |
//! | `sys/class/block/NAME/{size,dev,ro}` | file | 512-byte sectors, `major:minor`, `0` or `1` |
//! | `sys/class/nvme/nvmeC/{model,state}` | file | which controller it is; remote disks are on `MSFT NVMe Accelerator v1.0` |
//! | `sys/class/nvme/nvmeC/nvmeCnN/{nsid,size}` | file | a namespace, whose block device is `nvmeCnN` |
//! | `sys/class/nvme/nvmeC/nvmeScCnN/nsid` | file | with the kernel's multipath: a path to the namespace of the same id |
//! | `sys/class/nvme-subsystem/NAME/{nvmeC,nvmeSnN/{nsid,size}}` | directory | with it: the subsystem's controllers and namespaces, whose block devices are `nvmeSnN` |
//! | `sys/class/nvme/nvmeC/rescan_controller` | file, optional | a written `1` makes the kernel look for namespaces, and read their sizes, again |
//! | `proc/cmdline` | file, optional | with `root=`: on which disk the operating system is |
//! | `sys/class/block/NAME/{slaves/NAME,partition}` | directory, file, optional | what a device is built on; that it is a partition |
//! | `dev/disk/by-{uuid,label,partuuid,partlabel}/*`, `dev/mapper/*` | symlink, optional | what `root=` may name |
//! | `dev/NAME` | node or symlink | the device itself |
//! | `dev/disk/azure/{root,resource}`, `dev/disk/azure/scsi0/*` | symlink, optional | disks of the machine itself, never used |
//! | `dev/disk/azure/scsi1/lunN` | symlink, optional | watched for changes, not trusted |
//!
//! Which namespace is at which LUN is decided in [`lazuli_staging::nvme`].
//!
//! # Life of a volume on a node
//!
//! ```text
//! wait_for_lun -> probe -> [intent, mkfs, erase intent] -> fsck -> mount   (stage)
//!              -> bind mount                                              (publish)
//!              -> unmount -> flush and open exclusively, or gone          (unstage)
//! ```
//!
//! Each arrow may be cut by a crash and each step may be repeated.

pub mod acceptances;
pub mod bounded;
pub mod btrfs;
pub mod child;
mod confine;
pub mod contradictions;
pub mod device;
pub mod device_number;
pub mod format;
pub mod fs_type;
pub mod fsck;
pub mod intent;
pub mod mount;
pub mod mountinfo;
pub mod nvme;
pub mod options;
mod orphan;
pub mod probe;
mod raw;
pub mod release;
pub mod resize;
pub mod smb;
pub mod stats;
pub mod tools;
pub mod tuning;
pub mod volume_records;
mod watch;

#[cfg(test)]
mod confine_tests;
#[cfg(test)]
mod device_tests;
#[cfg(test)]
mod format_tests;
#[cfg(test)]
mod lab;
#[cfg(test)]
mod mount_tests;
#[cfg(test)]
mod nvme_tests;

pub use raw::RawError;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Caps on what this process does at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Child processes alive at once, of any kind. A child that cannot die keeps its place.
    pub children: usize,
    /// `mkfs` runs at once. The Go driver's `--max-concurrent-format` is 2 by default.
    pub formats: usize,
    /// System calls (mount, umount, statvfs) that may hang past their deadline before new ones of
    /// the same kind are refused.
    pub stuck_calls: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { children: 16, formats: 2, stuck_calls: 16 }
    }
}

/// The machine as this process sees it. Cheap to clone; clones share their counters and caps.
#[derive(Clone, Debug)]
pub struct Host {
    root: PathBuf,
    proc: PathBuf,
    kubelet: Option<PathBuf>,
    nvme_lun_offset: Option<u32>,
    search: Vec<PathBuf>,
    limits: Limits,
    children: Arc<child::Children>,
    formats: Arc<Semaphore>,
    mounts: Arc<bounded::Gate>,
    names: Arc<bounded::Gate>,
    stats: Arc<bounded::Gate>,
}

impl Default for Host {
    fn default() -> Self {
        Self::new()
    }
}

impl Host {
    /// The real machine: root `/`, `/proc`, the usual program folders, default [`Limits`].
    #[must_use]
    pub fn new() -> Self {
        Self::with_limits(Limits::default())
    }

    /// The real machine with other caps.
    #[must_use]
    pub fn with_limits(limits: Limits) -> Self {
        Self {
            root: PathBuf::from("/"),
            proc: PathBuf::from("/proc"),
            kubelet: None,
            nvme_lun_offset: None,
            search: ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
                .map(PathBuf::from)
                .to_vec(),
            limits,
            children: Arc::new(child::Children::new(limits.children)),
            formats: Arc::new(Semaphore::new(limits.formats)),
            mounts: Arc::new(bounded::Gate::new(limits.stuck_calls)),
            names: Arc::new(bounded::Gate::new(limits.stuck_calls)),
            stats: Arc::new(bounded::Gate::new(limits.stuck_calls)),
        }
    }

    /// The same host with `sys/` and `dev/` read under `root`.
    #[must_use]
    pub fn with_root(mut self, root: impl Into<PathBuf>) -> Self {
        self.root = root.into();
        self
    }

    /// The same host with another proc file system, for example the host's one inside a container.
    #[must_use]
    pub fn with_proc(mut self, proc: impl Into<PathBuf>) -> Self {
        self.proc = proc.into();
        self
    }

    /// The same host with a folder of kubelet's, as this process sees it: the disk that it lies on may prove which namespace
    /// of an NVMe controller is the operating system's.
    #[must_use]
    pub fn with_kubelet(mut self, folder: impl Into<PathBuf>) -> Self {
        self.kubelet = Some(folder.into());
        self
    }

    /// The same host with an operator's word for the offset between namespace ids and LUNs, for where nothing proves it.
    #[must_use]
    pub fn with_nvme_lun_offset(mut self, offset: Option<u32>) -> Self {
        self.nvme_lun_offset = offset;
        self
    }

    /// The same host with other folders to look for programs in, first match wins.
    #[must_use]
    pub fn with_search(mut self, search: Vec<PathBuf>) -> Self {
        self.search = search;
        self
    }

    /// The same host with programs that may do what this process may.
    #[cfg(test)]
    #[must_use]
    fn unconfined(mut self) -> Self {
        self.children = Arc::new(child::Children::unconfined(self.limits.children));
        self
    }

    /// The folder that holds `sys/` and `dev/`.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The proc file system in use.
    #[must_use]
    pub fn proc(&self) -> &Path {
        &self.proc
    }

    /// Which boot of the kernel this is, as kubelet reports it too; `None` where the kernel does not say. It is the same
    /// inside a container. Source: Linux, sysctl/kernel, `random`.
    #[must_use]
    pub fn boot_id(&self) -> Option<String> {
        let text = std::fs::read_to_string(self.proc.join("sys/kernel/random/boot_id")).ok()?;
        Some(text.trim().to_owned()).filter(|boot| !boot.is_empty())
    }

    /// The caps this host was made with.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// What is running and what is stuck right now, for metrics and `doctor`.
    #[must_use]
    pub fn activity(&self) -> Activity {
        Activity {
            children_running: self.children.running(),
            children_stuck: self.children.stuck(),
            mount_calls_stuck: self.mounts.stuck(),
            stat_calls_stuck: self.stats.stuck(),
        }
    }

    fn sys(&self) -> PathBuf {
        self.root.join("sys")
    }

    fn dev(&self) -> PathBuf {
        self.root.join("dev")
    }
}

/// Counts for metrics; see [`Host::activity`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Child processes that have not been reaped.
    pub children_running: usize,
    /// Of these, children that were killed and did not die: uninterruptible in the kernel.
    pub children_stuck: usize,
    /// mount or umount calls that outlived their deadline and are still in the kernel.
    pub mount_calls_stuck: usize,
    /// statvfs or readdir calls that outlived their deadline and are still in the kernel.
    pub stat_calls_stuck: usize,
}

/// A point in time after which an operation stops waiting and answers with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Instant);

impl Deadline {
    /// A deadline this far from now.
    #[must_use]
    pub fn after(limit: Duration) -> Self {
        Self(Instant::now() + limit)
    }

    /// A deadline at this instant.
    #[must_use]
    pub fn at(instant: Instant) -> Self {
        Self(instant)
    }

    /// The instant itself.
    #[must_use]
    pub fn instant(self) -> Instant {
        self.0
    }

    /// Time left, zero when passed.
    #[must_use]
    pub fn remaining(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// The earlier of this deadline and `limit` from now.
    #[must_use]
    pub fn capped(self, limit: Duration) -> Self {
        self.min(Self::after(limit))
    }

    /// Whether the deadline has passed.
    #[must_use]
    pub fn passed(self) -> bool {
        self.remaining().is_zero()
    }
}
