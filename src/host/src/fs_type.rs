//! How the file systems of volumes are made, and how the journal of unfinished work spells them.

pub use lazuli_volume::FsType;

/// What making a file system needs.
pub(super) trait Make: Sized {
    /// Stored in intent blocks; never renumbered.
    fn code(self) -> u8;

    /// The file system of a stored code.
    fn from_code(code: u8) -> Option<Self>;

    /// The program that makes it.
    fn program(self) -> String;

    /// Its arguments.
    fn arguments(self, uuid: &str, device: &str) -> Vec<String>;
}

impl Make for FsType {
    fn code(self) -> u8 {
        match self {
            Self::Ext3 => 1,
            Self::Ext4 => 2,
            Self::Xfs => 3,
            Self::Btrfs => 4,
            Self::Ext2 => 5,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|fs| fs.code() == code)
    }

    fn program(self) -> String {
        format!("mkfs.{self}")
    }

    fn arguments(self, uuid: &str, device: &str) -> Vec<String> {
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
