//! The values that all crates share, and what follows from one of them alone. Each is parsed once, at the edge, and is
//! valid ever after.
//!
//! The values themselves are at the root. Nothing in this crate touches a socket, a file, a clock or a random number.
//!
//! | module | holds |
//! |---|---|
//! | [`address`] | IP families and address ranges |
//! | [`op`], [`apply`] | every write to a virtual machine, a storage account or a file share and the change of a disk, as data, and what those of machines and disks do to the model |
//! | [`storage_account`], [`file_share`] | their resource types, and the metadata that says who made a share |
//! | [`blob_uri`] | the address of a page blob that is a disk |
//! | [`by_key`] | a value for each key, while the key is used |
//! | [`digest`] | a digest for names |
//! | [`disk_details`] | what a change of a disk compares with |
//! | [`disk_spec`], [`disk_tags`] | the disk to make, whether a disk that exists is it, and the tags that say so |
//! | [`event`] | which event a person gets about which object, and when it is written |
//! | [`fault`] | what a caller may do about a failure, and which gRPC code and event it becomes |
//! | [`json`] | lossless edits of a raw body |
//! | [`node`] | which VM a node is, and whether the node is out of work |
//! | [`parameter`], [`template`] | how the parameters of a class are read, and the error that says what is wrong with one |
//! | [`reference`] | the rows of the tables that the reference pages and `lazuli explain` print |
//! | [`rbac`] | which action of Azure a request needs |
//! | [`scale_set`] | instances of uniform scale sets |
//! | [`size`] | how many data disks a VM size takes |
//! | [`snapshot_spec`] | the snapshot to make, and whether a snapshot that exists is it |
//! | [`spelling`] | which allowed word a misspelt one is nearest to |
//! | [`tags`] | which tags of a shared object change, and how a class writes tags |
//! | [`zones`] | the availability zones of a region |

mod access_mode;
pub mod address;
pub mod apply;
mod arm_id;
mod azure_time;
pub mod blob_uri;
pub mod by_key;
mod chain;
pub mod digest;
mod disk;
pub mod disk_details;
mod disk_id;
pub mod disk_spec;
pub mod disk_tags;
pub mod event;
pub mod fault;
pub mod file_share;
mod instance_view;
pub mod json;
pub mod kube_name;
pub mod node;
pub mod op;
pub mod parameter;
mod quantity;
pub mod rbac;
mod reason;
pub mod reference;
mod resource_groups;
pub mod scale_set;
mod secret;
#[cfg(any(test, feature = "testing"))]
pub mod seeded;
mod service_key;
pub mod size;
mod snapshot;
pub mod snapshot_spec;
pub mod spelling;
pub mod storage_account;
pub mod tags;
pub mod template;
mod vm;
mod volume_id;
pub mod zones;

pub use access_mode::AccessMode;
pub use arm_id::{ArmId, ArmIdError};
pub use azure_time::AzureTime;
pub use blob_uri::{BlobUri, BlobUriError, UriDefect};
pub use chain::chain;
pub(crate) use disk::names;
pub use disk::{CachingMode, Disk, DiskState, ProvisioningState, SkuName, UnknownName};
pub use disk_id::{DiskId, DiskIdError};
pub use file_share::{DeletedShare, FileShare, RootSquash, ShareAccessTier, ShareProtocol};
pub use instance_view::{InstanceView, PowerState};
pub use quantity::{Completion, Gib, Lun, LunError};
pub use resource_groups::{AllowedResourceGroup, AllowedResourceGroups, InvalidResourceGroup};
pub use secret::{REDACTED, Secret};
pub use service_key::ServiceKey;
pub use snapshot::{CopyMethod, DataAccessAuthMode, Snapshot, SnapshotAccessState, SnapshotId, SnapshotIdError};
pub use storage_account::{
    AccountAccessTier, AccountKey, AccountKind, AccountNetworkAccess, Billing, FileService, NetworkAction,
    NetworkRules, PrivateEndpointConnection, StorageAccount, StorageSku, VirtualNetworkRule,
};
pub use vm::{DataDisk, DataDiskSource, SystemDisk, Vm};
pub use volume_id::{VolumeId, VolumeIdError};
