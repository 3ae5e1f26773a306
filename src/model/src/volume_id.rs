//! The CSI volume id (the PV's `volumeHandle`).

use std::{fmt, str::FromStr};

use super::{ArmId, DiskId, DiskIdError};

/// The volume id of a disk: the ARM id of a managed one or the address of a page blob, exactly as the PV spells it.
///
/// external-attacher compares handles byte by byte, so what was spelled is what is answered; equality between
/// volumes goes through [`VolumeId::disk`], where letter case matters as little as to Azure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeId(DiskId);

/// Why a volume id names no disk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VolumeIdError {
    /// It is empty.
    #[error("the volume id is empty")]
    Empty,
    /// It is neither the id of a managed disk nor the address of a blob.
    #[error(transparent)]
    NotADisk(#[from] DiskIdError),
}

impl VolumeId {
    /// The disk.
    pub fn disk(&self) -> &DiskId {
        &self.0
    }

    /// The id as it was spelled.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// A handle as a key of tables and files: two handles of one volume have the same, and no others. The path of a page
    /// blob keeps its letter case; a handle that names no disk is taken in lower case.
    pub fn fold(handle: &str) -> String {
        handle.parse::<Self>().map_or_else(|_| handle.to_ascii_lowercase(), |id| id.disk().folded().to_owned())
    }
}

impl FromStr for VolumeId {
    type Err = VolumeIdError;

    fn from_str(text: &str) -> Result<Self, VolumeIdError> {
        if text.is_empty() {
            return Err(VolumeIdError::Empty);
        }
        Ok(Self(text.parse()?))
    }
}

impl From<DiskId> for VolumeId {
    fn from(disk: DiskId) -> Self {
        Self(disk)
    }
}

impl From<ArmId> for VolumeId {
    fn from(disk: ArmId) -> Self {
        Self(disk.into())
    }
}

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_id_of_a_managed_disk_or_the_address_of_a_blob_is_a_volume_id() {
        let disk = "/subscriptions/s/resourcegroups/G/providers/microsoft.compute/DISKS/d";
        assert_eq!(disk.parse::<VolumeId>().unwrap().as_str(), disk);
        assert_eq!("".parse::<VolumeId>(), Err(VolumeIdError::Empty));
        assert!(matches!("d".parse::<VolumeId>(), Err(VolumeIdError::NotADisk(DiskIdError::NotAnId(_)))));
        assert!(matches!(
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/snapshots/d".parse::<VolumeId>(),
            Err(VolumeIdError::NotADisk(DiskIdError::NotADisk(_)))
        ));
        let blob: VolumeId = "HTTPS://ACCT.blob.core.windows.net/vhds/D.vhd".parse().unwrap();
        assert_eq!(blob.as_str(), "HTTPS://ACCT.blob.core.windows.net/vhds/D.vhd");
        assert_eq!(blob.disk().folded(), "https://acct.blob.core.windows.net/vhds/D.vhd");
        assert_eq!((blob.disk().name(), blob.disk().managed()), ("D.vhd", None));
        assert_eq!(VolumeId::fold(blob.as_str()), blob.disk().folded());
        assert_eq!(VolumeId::fold(disk), disk.to_ascii_lowercase());
        assert_eq!(VolumeId::fold("No-Disk"), "no-disk");
        for address in ["http://acct.blob.core.windows.net/vhds/d.vhd", "https://example.com/d.vhd"] {
            assert!(
                matches!(address.parse::<VolumeId>(), Err(VolumeIdError::NotADisk(DiskIdError::NotABlob(_)))),
                "{address}"
            );
        }
    }
}
