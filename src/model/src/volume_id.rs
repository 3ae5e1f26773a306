//! The CSI volume id (the PV's `volumeHandle`).

use std::{fmt, str::FromStr};

use super::{ArmId, ArmIdError};

/// The volume id of a managed disk: its ARM id, exactly as the PV spells it.
///
/// external-attacher compares handles byte by byte, so what was spelled is what is answered; equality between
/// volumes goes through [`VolumeId::disk`], where letter case does not matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeId(ArmId);

/// Why a volume id names no managed disk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VolumeIdError {
    /// It is empty.
    #[error("the volume id is empty")]
    Empty,
    /// It is no ARM id at all.
    #[error("the volume id names no managed disk")]
    NotAnId(#[source] ArmIdError),
    /// It is the id of something else.
    #[error("the volume id {0} is not that of a managed disk; expected …/providers/Microsoft.Compute/disks/{{name}}")]
    NotADisk(ArmId),
}

impl VolumeId {
    /// The disk.
    pub fn disk(&self) -> &ArmId {
        &self.0
    }

    /// The id as it was spelled.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl FromStr for VolumeId {
    type Err = VolumeIdError;

    fn from_str(text: &str) -> Result<Self, VolumeIdError> {
        if text.is_empty() {
            return Err(VolumeIdError::Empty);
        }
        let id: ArmId = text.parse().map_err(VolumeIdError::NotAnId)?;
        if !id.is_type("Microsoft.Compute/disks") {
            return Err(VolumeIdError::NotADisk(id));
        }
        Ok(Self(id))
    }
}

impl From<ArmId> for VolumeId {
    fn from(disk: ArmId) -> Self {
        Self(disk)
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
    fn only_the_id_of_a_managed_disk_is_a_volume_id() {
        let disk = "/subscriptions/s/resourcegroups/G/providers/microsoft.compute/DISKS/d";
        assert_eq!(disk.parse::<VolumeId>().unwrap().as_str(), disk);
        assert_eq!("".parse::<VolumeId>(), Err(VolumeIdError::Empty));
        assert!(matches!("d".parse::<VolumeId>(), Err(VolumeIdError::NotAnId(_))));
        assert!(matches!(
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/snapshots/d".parse::<VolumeId>(),
            Err(VolumeIdError::NotADisk(_))
        ));
    }
}
