//! Which disk is meant.

use std::{fmt, str::FromStr};

use super::{ArmId, ArmIdError, BlobUri, BlobUriError};

/// Why a text names no disk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DiskIdError {
    /// It is no ARM id at all.
    #[error("the volume id names no managed disk")]
    NotAnId(#[source] ArmIdError),
    /// It is the id of something else.
    #[error("the volume id {0} is not that of a managed disk; expected …/providers/Microsoft.Compute/disks/{{name}}")]
    NotADisk(ArmId),
    /// It begins as the address of a blob, and is none that may be a disk.
    #[error("the volume id names no page blob")]
    NotABlob(#[source] BlobUriError),
}

/// A disk: a managed one by its ARM id, or a page blob by its address.
///
/// Where a disk is meant that a machine has or is to have, this is its name. What Azure does for managed disks alone
/// (snapshots, copies, changes of attributes) takes an [`ArmId`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DiskId {
    /// A managed disk.
    Managed(ArmId),
    /// A VHD in a page blob.
    Blob(BlobUri),
}

impl DiskId {
    /// The id as it was spelled.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Managed(id) => id.as_str(),
            Self::Blob(uri) => uri.as_str(),
        }
    }

    /// The id with everything in lower case of which Azure ignores the case: a key for tables and for stable order.
    pub fn folded(&self) -> &str {
        match self {
            Self::Managed(id) => id.folded(),
            Self::Blob(uri) => uri.folded(),
        }
    }

    /// The name: the last part of the id, as spelled.
    pub fn name(&self) -> &str {
        self.as_str().rsplit('/').next().expect("an id has parts")
    }

    /// The managed disk; `None` for a blob.
    pub fn managed(&self) -> Option<&ArmId> {
        match self {
            Self::Managed(id) => Some(id),
            Self::Blob(_) => None,
        }
    }

    /// The page blob; `None` for a managed disk.
    pub fn blob(&self) -> Option<&BlobUri> {
        match self {
            Self::Managed(_) => None,
            Self::Blob(uri) => Some(uri),
        }
    }
}

/// Whether a text begins as an address, which no ARM id does.
fn is_address(text: &str) -> bool {
    let is_http = |(scheme, _): (&str, &str)| ["http", "https"].iter().any(|one| one.eq_ignore_ascii_case(scheme));
    text.split_once("://").is_some_and(is_http)
}

impl FromStr for DiskId {
    type Err = DiskIdError;

    fn from_str(text: &str) -> Result<Self, DiskIdError> {
        if is_address(text) {
            return text.parse().map(Self::Blob).map_err(DiskIdError::NotABlob);
        }
        let id: ArmId = text.parse().map_err(DiskIdError::NotAnId)?;
        if !id.is_type("Microsoft.Compute/disks") {
            return Err(DiskIdError::NotADisk(id));
        }
        Ok(Self::Managed(id))
    }
}

impl From<ArmId> for DiskId {
    fn from(id: ArmId) -> Self {
        Self::Managed(id)
    }
}

impl From<BlobUri> for DiskId {
    fn from(uri: BlobUri) -> Self {
        Self::Blob(uri)
    }
}

impl From<&ArmId> for DiskId {
    fn from(id: &ArmId) -> Self {
        Self::Managed(id.clone())
    }
}

impl From<&Self> for DiskId {
    fn from(id: &Self) -> Self {
        id.clone()
    }
}

impl PartialEq<ArmId> for DiskId {
    fn eq(&self, other: &ArmId) -> bool {
        self.managed() == Some(other)
    }
}

impl fmt::Display for DiskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
