//! Snapshots of disks and changed attributes: what the cluster has of what they need, which classes can be used, and which
//! snapshot is whose.
//!
//! | file | says |
//! |---|---|
//! | [`machinery`] | whether the types are served, and whether the snapshot-controller and csi-snapshotter are seen |
//! | [`classes`] | VolumeSnapshotClasses and VolumeAttributesClasses with which no call succeeds |
//! | [`inventory`] | each snapshot with its VolumeSnapshot and its volume; snapshots that no VolumeSnapshotContent names |

pub mod classes;
pub mod inventory;
pub mod machinery;

use std::collections::BTreeMap;

/// The types of `snapshot.storage.k8s.io/v1` that snapshots need, as their collections are called.
pub const TYPES: [&str; 3] = ["volumesnapshotclasses", "volumesnapshotcontents", "volumesnapshots"];

/// A type of the snapshot API that a Helm release has made.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnedType {
    /// The name of the CustomResourceDefinition.
    pub name: String,
    /// The release, as Helm's annotations name it.
    pub release: String,
    /// Its namespace.
    pub namespace: String,
}

/// A VolumeSnapshotClass.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SnapshotClass {
    /// Its name.
    pub name: String,
    /// Its driver.
    pub driver: String,
    /// Its parameters.
    pub parameters: BTreeMap<String, String>,
    /// Whether an annotation makes it the class of VolumeSnapshots that name none.
    pub is_default: bool,
}

/// A VolumeSnapshotContent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SnapshotContent {
    /// Its name.
    pub name: String,
    /// Its driver.
    pub driver: String,
    /// The handles that it names: the one that it was made for, and the one in its status. None before the first call.
    pub handles: Vec<String>,
    /// The VolumeSnapshot, as `namespace/name`.
    pub snapshot: Option<String>,
}
