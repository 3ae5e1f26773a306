//! An operator's word that a device is a volume's disk although it does not hold what the node remembers.
//!
//! The word is an empty file, whose name has the volume's resource group and disk and what is on the device. So it is
//! good for this volume with this content and for no other, and it is used up when the volume is staged. Who may write
//! it is root on the node already.

use std::{
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use lazuli_model::{DiskId, VolumeId};

use super::volume_records::VolumeRecordsError;

/// The folder of these files.
#[derive(Debug, Clone)]
pub struct Acceptances(PathBuf);

impl Acceptances {
    /// Opens the folder, and makes it where it is missing.
    ///
    /// # Errors
    /// [`VolumeRecordsError::Io`].
    pub fn open(folder: PathBuf) -> Result<Self, VolumeRecordsError> {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.map_err(|source| VolumeRecordsError::Io { action: "create", path: folder.clone(), source })?;
        Ok(Self(folder))
    }

    /// The file that accepts this content for the volume.
    pub fn path(&self, volume: &VolumeId, content: &str) -> PathBuf {
        let name = match volume.disk() {
            DiskId::Managed(disk) => format!("{}.{}.{content}", disk.resource_group(), disk.name()).to_lowercase(),
            // The letter case of a path tells blobs apart.
            DiskId::Blob(uri) => format!("{}.{}.{}.{content}", uri.account(), uri.container(), uri.name()),
        };
        // What is on a disk was written by its user, and is one file name at most.
        self.0.join(name.replace(|letter: char| !letter.is_alphanumeric() && !"._-()".contains(letter), "_"))
    }

    /// Whether an operator has made the file.
    pub async fn is_given(&self, file: &Path) -> bool {
        tokio::fs::symlink_metadata(file).await.is_ok_and(|found| found.is_file())
    }

    /// Removes the file: the record of the volume says from now on what is on its disk.
    pub async fn use_up(&self, volume: &VolumeId, content: &str) {
        let file = self.path(volume, content);
        if let Err(error) = tokio::fs::remove_file(&file).await
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(file = %file.display(), %error, "an accepted disk stays accepted: remove the file");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::TempDir;

    #[test]
    fn the_file_names_the_volume_and_the_content_and_stays_in_its_folder() {
        let accepted = Acceptances("/state/accept".into());
        let volume: VolumeId =
            "/subscriptions/s/resourceGroups/G/providers/Microsoft.Compute/disks/pvc-1".parse().unwrap();
        let name = |content: &str| accepted.path(&volume, content).display().to_string();
        assert_eq!(name("0FC63DAF-8483"), "/state/accept/g.pvc-1.0fc63daf-8483");
        assert_eq!(name("blank"), "/state/accept/g.pvc-1.blank");
        assert_eq!(name("../../etc/x"), "/state/accept/g.pvc-1..._.._etc_x");
    }

    #[tokio::test]
    async fn only_a_file_is_a_word_and_it_is_used_up() {
        let folder = TempDir::new("acceptances");
        let accepted = Acceptances::open(folder.path().join("accept")).unwrap();
        let volume: VolumeId = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/a".parse().unwrap();
        let file = accepted.path(&volume, "blank");
        assert!(!accepted.is_given(&file).await);
        std::fs::create_dir(&file).unwrap();
        assert!(!accepted.is_given(&file).await);
        std::fs::remove_dir(&file).unwrap();
        std::fs::write(&file, "").unwrap();
        assert!(accepted.is_given(&file).await);
        for _ in 0..2 {
            accepted.use_up(&volume, "blank").await;
            assert!(!accepted.is_given(&file).await);
        }
    }
}
