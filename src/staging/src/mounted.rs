//! Mounts as far as they tell in which volume mode a disk is in use.
//!
//! A disk is a mounted file system or a raw device, never both at a time. The volume mode cannot change in a
//! PersistentVolume, but two PersistentVolumes of one disk may differ in it. mkfs under a pod that has the device raw, or
//! a pod that writes to the device under a mounted file system, would destroy the other pod's data. So the second mode is
//! refused while the first is in use.

use std::path::{Path, PathBuf};

use super::{Device, DeviceNumber};

/// One line of the mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Unique while it exists.
    pub id: u64,
    /// The mount it is on.
    pub parent: u64,
    /// Device of the superblock.
    pub device: DeviceNumber,
    /// Which part of the file system is visible; a bind mount of a folder or file names it here.
    pub root: PathBuf,
    /// Where.
    pub target: PathBuf,
    /// Options of this mount: `ro`, `nosuid`, `noatime`…
    pub options: Vec<String>,
    /// Type of the file system.
    pub fs_type: String,
    /// What was mounted, as the mounter named it.
    pub source: PathBuf,
    /// Options of the file system itself; `ro` here means that no process can write.
    pub super_options: Vec<String>,
}

impl Mount {
    /// Whether nothing can be written through this mount.
    #[must_use]
    pub fn read_only(&self) -> bool {
        self.options.iter().any(|option| option == "ro") || self.super_options.iter().any(|option| option == "ro")
    }

    /// Whether it may be a device node that is bound to a place of its own: then the node there tells which.
    #[must_use]
    pub fn may_show_node(&self) -> bool {
        matches!(self.fs_type.as_str(), "devtmpfs" | "tmpfs") && self.root != Path::new("/")
    }

    /// Whether only its source tells the device: a btrfs has a number of its own.
    #[must_use]
    pub fn is_told_by_source(&self) -> bool {
        self.device.major == 0 && self.fs_type == "btrfs"
    }
}

/// A mount, and the block devices that it leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// The mount.
    pub mount: Mount,
    /// The number of the block device that its source names, where only that tells.
    pub source: Option<DeviceNumber>,
    /// The number of the block device whose node is bound there. A node of a disk that is gone counts for the disk that
    /// has its number now: who opens it gets that disk.
    pub node: Option<DeviceNumber>,
}

impl Mounted {
    /// The number of the device that the file system is on.
    #[must_use]
    pub fn number(&self) -> DeviceNumber {
        match self.source {
            Some(number) if self.mount.device.major == 0 => number,
            _ => self.mount.device,
        }
    }

    /// Whether the file system is on this device.
    #[must_use]
    pub fn is_of(&self, device: &Device) -> bool {
        self.number() == device.number
    }
}

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AtPath {
    /// Nothing is mounted there.
    Nothing,
    /// What is mounted on top.
    Mounted(Box<Mounted>),
    /// What is mounted there does not answer any more.
    Dead {
        /// What is on top, where the mount table knows it.
        top: Option<Box<Mounted>>,
        /// What looking at it said.
        error: String,
    },
}

impl AtPath {
    /// What is mounted on top, dead or alive.
    #[must_use]
    pub fn top(&self) -> Option<&Mounted> {
        match self {
            Self::Nothing => None,
            Self::Mounted(top) => Some(top),
            Self::Dead { top, .. } => top.as_deref(),
        }
    }
}

/// Where a pod has one of these devices raw: the device itself, or the disk that it is a part of.
#[must_use]
pub fn handed_out_raw<'a>(mounts: &'a [Mounted], devices: [&Device; 2]) -> Option<&'a Mounted> {
    mounts.iter().find(|mounted| devices.iter().any(|device| mounted.node == Some(device.number)))
}

/// Where one of these devices is staged as a file system: at a place of the volume's own, or where kubelet stages file
/// systems. What a pod has mounted for itself from a raw volume of its own is the pod's business.
#[must_use]
pub fn staged_as_filesystem<'a>(mounts: &'a [Mounted], places: &[&Path], devices: [&Device; 2]) -> Option<&'a Mounted> {
    let is_place = |target: &Path| target.ends_with("globalmount") || places.contains(&target);
    mounts.iter().find(|mounted| is_place(&mounted.mount.target) && devices.iter().any(|device| mounted.is_of(device)))
}
