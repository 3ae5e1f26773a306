//! Which device a node stages, publishes raw and proves released: never the wrong disk.
//!
//! Each step looks at what was seen so far and says what to look at next, what to do, or how the call ends. The node
//! service gathers and acts, and chooses nothing. What has not been seen proves nothing, so a step asks for it first.
//!
//! | module | decides |
//! |---|---|
//! | [`stage`] | whether the device at a LUN is the volume's, and whether it is formatted, mounted or refused |
//! | [`raw`] | whether a raw device is handed to a pod |
//! | [`unstage`] | whose the staging path is, and which device must be proved released |
//! | [`owner`] | whether a staged or published device is the volume's |
//! | [`nvme`] | which namespace of an NVMe controller is the disk at a LUN |
//!
//! [`device_identity`] weighs the two witnesses that tell which disk a device is; the step of [`stage`] asks it.
//! The other modules are the values: devices, mounts, records, refusals.
//!
//! # Staging
//!
//! ```text
//! disk at the LUN, metadata ──> the same disk again ──> its LUN by NVMe ──> its size ──> its partition
//!     ├─ raw ──────────> records, mounts ──────────────────> identity ──> raw
//!     └─ file system ──> staging path ──> mounted already ───────────────> mounted
//!              └──> mounts ──> btrfs turn ──> content, records ──> identity
//!                       ├─ nothing, own unfinished format ──> format ──> mount
//!                       └─ file system ──> mounts now ──> id of a copied btrfs, its members ──> repair ──> mount
//! ```
//!
//! Every arrow may end in a refusal.

mod device;
pub mod device_identity;
mod mounted;
pub mod nvme;
pub mod owner;
pub mod raw;
mod record;
mod refusal;
pub mod stage;
pub mod unstage;

pub use device::{Device, DeviceNumber};
pub use mounted::{AtPath, Mount, Mounted, handed_out_raw, staged_as_filesystem};
pub use record::{Filesystem, Lineage, Record, RecordedDevice, Records};
pub use refusal::{Past, Refusal, Thing, Unproved};
pub use stage::BtrfsMembers;

#[cfg(test)]
mod tests;
