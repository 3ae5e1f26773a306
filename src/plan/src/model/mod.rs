//! The values that all crates share. Each is parsed once, at the edge, and is valid ever after.

mod arm_id;
mod azure_time;
mod disk;
mod quantity;
mod secret;
mod vm;
mod volume_id;

pub use arm_id::{ArmId, ArmIdError};
pub use azure_time::AzureTime;
pub(crate) use disk::names;
pub use disk::{CachingMode, Disk, DiskState, ProvisioningState, SkuName, UnknownName};
pub use quantity::{Gib, Lun, LunError};
pub use secret::{REDACTED, Secret};
pub use vm::{DataDisk, DataDiskSource, Vm};
pub use volume_id::{VolumeId, VolumeIdError};
