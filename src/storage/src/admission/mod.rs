//! What the admission webhooks answer.
//!
//! | module | answers |
//! |---|---|
//! | [`volume`] | which labels and which node affinity a new PersistentVolume gets, and which source it has |
//! | [`claim`] | whether a PersistentVolumeClaim may grow to the size that it asks for |
//! | [`budget`] | how many disks reviews may read |
//!
//! The first two look at PersistentVolumes of managed disks and of page blobs alone: those with an `azureDisk` source, and those
//! of [`DRIVER`]. Every other volume is admitted as it is. Objects are read as JSON, as they are in an AdmissionReview,
//! because what is not understood must neither be lost nor fail a review.

pub mod budget;
mod bytes;
pub mod claim;
#[cfg(test)]
mod tests;
pub mod volume;

use lazuli_model::DiskId;
use serde_json::{Value, json};

pub use bytes::bytes_of_quantity;

/// The driver whose PersistentVolumes are reviewed.
pub const DRIVER: &str = "disk.csi.azure.com";

/// The `diskName` of a volume that the in-tree provisioner has not made yet (source: Kubernetes 1.26,
/// `ProvisionedVolumeName`).
const PLACEHOLDER: &str = "placeholder-for-provisioning";

/// A step of a JSON patch (source: RFC 6902).
#[derive(Debug, Clone, PartialEq)]
pub enum Patch {
    /// Adds a member, or an item of a list.
    Add {
        /// Where.
        path: String,
        /// What.
        value: Value,
    },
    /// Removes a member.
    Remove {
        /// Which.
        path: String,
    },
}

impl Patch {
    fn add(path: impl Into<String>, value: Value) -> Self {
        Self::Add { path: path.into(), value }
    }

    /// The step as JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        match self {
            Self::Add { path, value } => json!({"op": "add", "path": path, "value": value}),
            Self::Remove { path } => json!({"op": "remove", "path": path}),
        }
    }
}

/// What a PersistentVolume rests on; `None` for a volume that is not of Azure disks, or names none.
fn source(volume: &Value) -> Option<DiskId> {
    let handle = match volume.pointer("/spec/csi") {
        Some(csi) if csi["driver"] == DRIVER => csi["volumeHandle"].as_str()?,
        _ => {
            let disk = volume.pointer("/spec/azureDisk")?;
            if disk["diskName"] == PLACEHOLDER {
                return None;
            }
            disk["diskURI"].as_str()?
        }
    };
    handle.parse().ok()
}
