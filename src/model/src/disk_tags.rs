//! The tags of a disk that say who made it, and for what.

use std::collections::BTreeMap;

/// The tag that says that a driver made the disk: the Go driver, the in-tree plugin or this one, so that either may take
/// over.
pub const CREATED_BY: (&str, &str) = ("k8s-azure-created-by", "kubernetes-azure-dd");

/// Whether these tags say that a driver made the disk. Azure ignores the letter case of a tag's name.
pub fn is_made_by_driver(tags: &BTreeMap<String, String>) -> bool {
    tags.iter().any(|(name, value)| name.eq_ignore_ascii_case(CREATED_BY.0) && value == CREATED_BY.1)
}

/// The tag that names the CreateVolume request for which this driver made the disk. The Go driver neither sets nor reads
/// it.
pub const REQUEST: &str = "lazuli-request";

/// The tag that names the PersistentVolume for which either driver made the disk.
pub const FOR_PV: &str = "kubernetes.io-created-for-pv-name";

/// The tag that names the claim, without its namespace.
pub const FOR_CLAIM: &str = "kubernetes.io-created-for-pvc-name";

/// The tag that names the namespace of the claim.
pub const FOR_NAMESPACE: &str = "kubernetes.io-created-for-pvc-namespace";

/// The tag of a snapshot that names the volume that it was taken of, as either driver sets it. Of a copy in another region
/// nothing else tells it.
pub const SOURCE_VOLUME: &str = "source_volume_id";

/// The tag of a snapshot that names the VolumeSnapshot, without its namespace.
pub const FOR_SNAPSHOT: &str = "kubernetes.io-created-for-snapshot-name";

/// The tag of a snapshot that names the namespace of the VolumeSnapshot.
pub const FOR_SNAPSHOT_NAMESPACE: &str = "kubernetes.io-created-for-snapshot-namespace";

/// The tag of a snapshot that only carries the content of a disk into another zone: the id of the disk that is made from
/// it. The Go driver neither sets nor reads it.
pub const CARRIES_TO: &str = "lazuli-carries-to";

/// The tag of such a snapshot that names the cluster for which it was made, by the resource group of its
/// configuration. The Go driver neither sets nor reads it.
pub const OF_CLUSTER: &str = "lazuli-of-cluster";

/// The tag of a disk whose content came over such a snapshot, which is gone by now: the id of the disk that it is a copy of.
/// The Go driver neither sets nor reads it.
pub const COPY_OF: &str = "lazuli-copy-of";

/// The tag of a disk that was made from another one or from a snapshot, as a type that Azure converts to PremiumV2:
/// that type. Azure shows a disk that it converts and one that it fills in the same way. The Go driver neither sets
/// nor reads it.
pub const MADE_AS: &str = "lazuli-made-as";

/// The tag of a disk that was imported from a page blob: of which version of it, and whether the blob was seen to be the
/// same afterwards. Azure reads the blob while it makes the disk, and another writer may change it meanwhile. The Go
/// driver neither sets nor reads it.
pub const IMPORTED: &str = "lazuli-imported";

/// The value of a tag of a disk or snapshot. Azure ignores the letter case of a tag's name.
pub fn value<'a>(tags: &'a BTreeMap<String, String>, name: &str) -> Option<&'a str> {
    tags.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}
