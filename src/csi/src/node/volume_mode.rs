//! A disk is a mounted file system or a raw device, never both at a time.
//!
//! The volume mode cannot change in a PersistentVolume, but two PersistentVolumes of one disk may differ in it. mkfs
//! under a pod that has the device raw, or a pod that writes to the device under a mounted file system, would destroy
//! the other pod's data. So the second mode is refused while the first is in use.

use std::path::Path;

use super::{Node, device::node_number, error::NodeError};
use lazuli_host::{
    device::Device,
    mount::{self, as_mounted},
    mountinfo::Mount,
};

/// Refuses a file system on a device that a pod has raw: as the device itself, or as the disk it is a part of.
pub(super) async fn not_raw(node: &Node, devices: [&Device; 2]) -> Result<(), NodeError> {
    let table = mount::table(&node.host).await.map_err(NodeError::Mount)?;
    let shows = |mount: &&Mount| devices.iter().any(|device| shows_node(mount, device));
    match table.iter().find(shows) {
        Some(raw) => Err(NodeError::OtherVolumeMode {
            device: devices[0].path.display().to_string(),
            found: "handed out as a raw device",
            place: raw.target.clone(),
            wanted: "a file system",
        }),
        None => Ok(()),
    }
}

/// Refuses to hand out a device raw whose file system is staged. What a pod has mounted for itself from a raw volume
/// of its own is the pod's business.
pub(super) async fn not_mounted(
    node: &Node,
    volume: &str,
    staging: &Path,
    devices: [&Device; 2],
) -> Result<(), NodeError> {
    let recorded = node.recall(volume).await.and_then(|record| record.staging_path);
    let places = [Some(as_mounted(staging)), recorded.as_deref().map(as_mounted)];
    let table = mount::table(&node.host).await.map_err(NodeError::Mount)?;
    let is_staged = |mount: &&Mount| {
        // The place first: to tell a device may look at what the mounter named, and others' mounts are none of ours.
        let is_place = mount.target.ends_with("globalmount") || places.contains(&Some(mount.target.clone()));
        is_place && devices.iter().any(|device| mount::is_of(mount, device))
    };
    match table.iter().find(is_staged) {
        Some(mounted) => Err(NodeError::OtherVolumeMode {
            device: devices[0].path.display().to_string(),
            found: "mounted",
            place: mounted.target.clone(),
            wanted: "the raw device",
        }),
        None => Ok(()),
    }
}

/// Whether a mount is the node of the device, bound to a place of its own. A node of a disk that is gone counts for
/// the disk that has its number now: who opens it gets that disk.
fn shows_node(mount: &Mount, device: &Device) -> bool {
    matches!(mount.fs_type.as_str(), "devtmpfs" | "tmpfs")
        && mount.root != Path::new("/")
        && node_number(&mount.target) == Some(device.number)
}
