//! Which disk a StorageClass asks for, whether a disk that exists is that disk, and what publishing, staging and
//! growing it take: pure functions over values.
//!
//! Owns the vocabulary of `disk.csi.azure.com`: StorageClass parameters, volume context, publish context, tags, disk
//! names and topology, all spelled as the Go driver spells them, so that a cluster can change drivers and back. It
//! never builds JSON (`lazuli-azure` does), never reads Azure, a clock or a random number: the same request always
//! gives the same plan.
//!
//! It differs from the Go driver where that driver answers a user's mistake with `INTERNAL`, picks at random, or
//! ignores what was written: here every refused value is a [`ParameterError`] that names the parameter, the value and
//! what is allowed, before anything is sent.
//!
//! | file | decides |
//! |---|---|
//! | `capability` | which access modes and types a disk can give |
//! | `sku` | sizes, performance and sharing of each storage account type |
//! | `name`, `tags`, `zone` | the disk's name, tags and zone |
//! | `parameters` | which parameters there are, for the parser and for the reference |
//! | `create` | the disk to make; whether a disk that exists is it is said by [`DiskSpec`](lazuli_model::disk_spec::DiskSpec) |
//! | `publish`, `stage`, `perf`, `tuning` | how it is attached, mounted and tuned |
//! | [`copy`] | the disk that is made from a snapshot or another disk, and what comes next of it |
//! | `expand` | whether and how it grows |
//! | [`import`] | the disk that is made from a page blob |
//! | [`modify`] | which attributes of a disk a VolumeAttributesClass changes |
//! | [`snapshot`] | the snapshot that a VolumeSnapshotClass asks for, what comes next of it, and Azure's limits |

mod capability;
pub mod copy;
mod create;
mod expand;
pub mod import;
pub mod modify;
mod name;
mod parameters;
mod perf;
mod publish;
mod sku;
pub mod snapshot;
mod stage;
mod tags;
#[cfg(test)]
mod tests;
mod tuning;
mod zone;

pub use capability::{AccessMode, AccessType, Capability, CapabilityError, validate_attachment, validate_capabilities};
pub use create::{Adopted, Cloud, CreatePlan, Defaults, Request, plan_create};
pub use expand::{DetachReason, Expand, needs_detach, plan_expand};
pub use lazuli_model::parameter::{ParameterError, ParameterErrorKind};
pub use lazuli_model::{AllowedResourceGroup, AllowedResourceGroups, InvalidResourceGroup};
pub use parameters::{DEVICE_SETTING, PARAMETERS};
pub use perf::{DeviceSetting, PerfProfile, check_tuning};
pub use publish::{PublishParameters, SOURCE_KEY, Told, effective_caching, publish_parameters};
pub use sku::{is_zone_redundant, max_shares, size_range};
pub use stage::{FsType, StageParameters, stage_parameters};
pub use tags::{claim_of, made_for_another};
pub use tuning::basic_profile;
pub use zone::{DISK_TOPOLOGY_KEY, WELL_KNOWN_TOPOLOGY_KEY, is_zone_label, region_label, zone_label};
