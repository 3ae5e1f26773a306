//! Why a volume is not staged, as values. The node service puts them into words.

use std::{path::PathBuf, time::Duration};

use super::{Device, Filesystem, Mount};
use crate::{
    device_identity::{Content, Contradiction},
    nvme::Disagreement,
};
use lazuli_volume::FsType;

/// What is not the same any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Thing {
    /// The disk of this name.
    Disk(String),
    /// What is on it; `None` for no file system.
    Content(Option<Filesystem>),
}

/// What the node remembers of a volume, or of what was found on its device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Past {
    /// Whose content it is.
    pub content: Content,
    /// Another volume with the same file system.
    pub other: Option<String>,
    /// The UUID of the file system that the volume had when it was last here.
    pub last: Option<String>,
}

/// Why nothing proves that a device is the volume's disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unproved {
    /// It holds something else than remembered. The metadata names it, and may lag; so long it has to name it yet.
    WaitForLag(Duration, Past),
    /// An operator's offset found it. The metadata bears that out, and may lag; so long it has to do so yet.
    WaitForOffset(Duration),
    /// It holds something else than remembered, and the metadata does not name it.
    Mismatch(Past),
    /// The metadata has named another disk since it last named the volume there.
    Contradicted(Option<Contradiction>),
    /// The node has never had the volume, and the metadata does not name it.
    Unconfirmed,
    /// The same for more than a minute.
    UnconfirmedForLong,
}

/// Why a volume is not staged, or not published raw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The metadata names another disk at the LUN, or another LUN for the volume.
    Elsewhere(Contradiction),
    /// Another disk, or another file system, is there than a moment ago.
    Changed {
        /// What was seen first.
        before: Box<Thing>,
        /// What was seen then.
        after: Box<Thing>,
    },
    /// The disk is smaller than the volume.
    TooSmall {
        /// Kernel name.
        device: String,
        /// Its size in bytes.
        found: u64,
        /// The least size in bytes.
        wanted: u64,
    },
    /// An NVMe disk is larger than the metadata says, and its content is not the volume's own.
    TooLarge {
        /// Kernel name.
        device: String,
        /// Its size in bytes.
        found: u64,
        /// The size that the metadata says, in bytes.
        listed: u64,
    },
    /// The metadata does not bear out the offset that an operator gave.
    OffsetNotBorneOut {
        /// Kernel name of the namespace.
        device: String,
        /// Its id.
        nsid: u32,
        /// What speaks against it.
        why: Disagreement,
    },
    /// The disk lacks the partition.
    NoPartition {
        /// Its number.
        partition: u32,
        /// Kernel name of the disk.
        disk: String,
    },
    /// Nothing proves that the device is the volume's disk.
    Unproved {
        /// The device's node.
        device: PathBuf,
        /// Why not.
        why: Unproved,
    },
    /// Something else is mounted at the staging path.
    Occupied {
        /// What is there.
        found: Box<Mount>,
        /// The volume's device.
        device: Box<Device>,
        /// What was asked for.
        fs: FsType,
        /// Whether it was asked for read-only, or the device allows no more.
        read_only: bool,
    },
    /// A pod has the device raw.
    HandedOutRaw {
        /// The device's node.
        device: PathBuf,
        /// Where.
        place: PathBuf,
    },
    /// The device's file system is staged.
    StagedAsFilesystem {
        /// The device's node.
        device: PathBuf,
        /// Where.
        place: PathBuf,
    },
    /// It is blank, and it must not be formatted: it was made from something, or only reading was asked for.
    Blank {
        /// The device's node.
        device: PathBuf,
    },
    /// It holds another type of file system.
    WrongType {
        /// The device's node.
        device: PathBuf,
        /// What was asked for.
        wanted: FsType,
        /// What is there.
        found: String,
    },
    /// It holds something, and no file system.
    NoFilesystem {
        /// The device's node.
        device: PathBuf,
        /// What was seen.
        found: String,
    },
    /// Another device of this machine has the same btrfs in use: the kernel tells btrfs devices apart by nothing but this
    /// id.
    TwinBtrfs {
        /// The id.
        fsid: String,
        /// The other volume or device.
        other: String,
    },
    /// The device is not known to be the one with which the volume was staged.
    NotStaged,
}

impl Refusal {
    /// Whether it speaks against what has stood for the volume until now, so that the time of that does not count.
    #[must_use]
    pub fn ends_sighting(&self) -> bool {
        matches!(self, Self::OffsetNotBorneOut { .. })
    }
}
