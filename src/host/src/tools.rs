//! The programs that this crate runs, so that a node plugin in an image that lacks one says so when it starts and not
//! when a pod waits for a volume.

use super::Host;

/// Every program that this crate runs, and those that `fsck` runs for it.
pub const TOOLS: [&str; 18] = [
    "blkid",
    "btrfs",
    "e2fsck",
    "fsck",
    "fsck.btrfs",
    "fsck.ext2",
    "fsck.ext3",
    "fsck.ext4",
    "fsck.xfs",
    "mkfs.btrfs",
    "mkfs.ext2",
    "mkfs.ext3",
    "mkfs.ext4",
    "mkfs.xfs",
    "resize2fs",
    "wipefs",
    "xfs_growfs",
    "xfs_repair",
];

/// Programs that are not installed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not installed: {}; install e2fsprogs, xfsprogs, btrfs-progs and util-linux, or use the image lazuli-node",
    .0.join(", ")
)]
pub struct ToolsMissing(Vec<&'static str>);

impl Host {
    /// Looks for every program of [`TOOLS`].
    ///
    /// # Errors
    /// [`ToolsMissing`] with all that are not installed.
    pub fn check_tools(&self) -> Result<(), ToolsMissing> {
        let installed = |tool: &str| self.search.iter().any(|folder| folder.join(tool).is_file());
        let missing: Vec<_> = TOOLS.into_iter().filter(|tool| !installed(tool)).collect();
        if missing.is_empty() { Ok(()) } else { Err(ToolsMissing(missing)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::TempDir;

    #[test]
    fn every_program_that_is_not_installed_is_named() {
        let folder = TempDir::new("tools");
        let host = Host::new().with_search(vec!["/nowhere".into(), folder.path().to_owned()]);
        for tool in TOOLS {
            std::fs::write(folder.path().join(tool), "").expect("the folder can be written");
        }
        assert_eq!(host.check_tools(), Ok(()));
        for tool in ["blkid", "mkfs.xfs"] {
            std::fs::remove_file(folder.path().join(tool)).expect("the file is there");
        }
        let missing = host.check_tools().expect_err("two are gone").to_string();
        assert!(missing.starts_with("not installed: blkid, mkfs.xfs; install "), "{missing}");
    }
}
