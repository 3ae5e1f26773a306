//! The file systems a node can make, mount and grow.

use std::fmt;

/// A file system type that can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FsType {
    /// ext2, mounted by the ext4 driver: no journal.
    Ext2,
    /// ext3, mounted by the ext4 driver.
    Ext3,
    /// ext4, the default of the Go driver on Linux.
    Ext4,
    /// xfs.
    Xfs,
    /// btrfs.
    Btrfs,
}

impl FsType {
    /// Parses the name that storage classes use; `None` for any other.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "ext2" => Some(Self::Ext2),
            "ext3" => Some(Self::Ext3),
            "ext4" => Some(Self::Ext4),
            "xfs" => Some(Self::Xfs),
            "btrfs" => Some(Self::Btrfs),
            _ => None,
        }
    }

    /// The kernel's and `blkid`'s name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext2 => "ext2",
            Self::Ext3 => "ext3",
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// Stored in intent blocks; never renumbered.
    pub(super) fn code(self) -> u8 {
        match self {
            Self::Ext3 => 1,
            Self::Ext4 => 2,
            Self::Xfs => 3,
            Self::Btrfs => 4,
            Self::Ext2 => 5,
        }
    }

    pub(super) fn from_code(code: u8) -> Option<Self> {
        [Self::Ext2, Self::Ext3, Self::Ext4, Self::Xfs, Self::Btrfs].into_iter().find(|fs| fs.code() == code)
    }

    pub(super) fn program(self) -> String {
        format!("mkfs.{}", self.name())
    }

    pub(super) fn arguments(self, uuid: &str, device: &str) -> Vec<String> {
        let fixed: &[&str] = match self {
            Self::Ext2 | Self::Ext3 | Self::Ext4 => &["-F", "-m0", "-E", "nodiscard", "-U"],
            Self::Xfs => &["-f", "-K", "-m"],
            Self::Btrfs => &["-f", "-K", "-U"],
        };
        let uuid = match self {
            Self::Xfs => format!("uuid={uuid}"),
            _ => uuid.to_owned(),
        };
        let mut all: Vec<String> = fixed.iter().map(|arg| (*arg).to_owned()).collect();
        all.extend([uuid, device.to_owned()]);
        all
    }
}

impl fmt::Display for FsType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
