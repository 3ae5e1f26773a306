//! What a single read of a managed disk shows besides [`Disk`](crate::Disk): what only a change of the disk rests on. Lists
//! of thousands of disks do without.

use crate::{
    ArmId,
    disk_spec::{EncryptionType, PerformanceTier, PublicNetworkAccess},
};

/// The attributes of a disk that a change compares with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiskDetails {
    /// The performance tier of a Premium SSD (`properties.tier`); `None` for other disks, and where Azure names a newer one.
    pub tier: Option<PerformanceTier>,
    /// Whether bursting on demand is on (`properties.burstingEnabled`).
    pub bursting_enabled: bool,
    /// Whether performance plus is on (`properties.creationData.performancePlus`).
    pub performance_plus: bool,
    /// Whether the content can be reached from the public network (`properties.publicNetworkAccess`).
    pub public_network_access: Option<PublicNetworkAccess>,
    /// Whose private endpoints export the disk (`properties.diskAccessId`).
    pub disk_access: Option<ArmId>,
    /// Whose keys encrypt the disk (`properties.encryption.type`).
    pub encryption_type: Option<EncryptionType>,
}
