//! Growing and measuring what is staged or published.

use std::path::{Path, PathBuf};

use csi_proto::csi::{CapacityRange, VolumeUsage, volume_usage::Unit};

use crate::{usage, wire::wire_bytes};

use super::{Node, device_ownership::belongs_to, error::NodeError};
use lazuli_host::{
    Deadline,
    device::{self, Device, node_number},
    device_number::DeviceNumber,
    fs_type::FsType,
    mount::{self, TargetState, number_of},
    mountinfo::Mount,
    resize, stats,
};

/// What is at a path.
enum Volume {
    Filesystem { mount: Mount, device: Device },
    Block(Device),
}

/// The volume that is staged or published at the path: this one, and not another that happens to be there.
async fn volume_at(node: &Node, volume: &str, path: &Path, deadline: Deadline) -> Result<Volume, NodeError> {
    let nothing = || NodeError::NoVolume(path.to_owned());
    if !path.is_absolute() {
        return Err(nothing());
    }
    let mounts = match mount::state(&node.host, path, deadline).await.map_err(NodeError::Mount)? {
        TargetState::Mounted(mounts) => mounts,
        TargetState::Corrupted { error, .. } => return Err(NodeError::Dead { path: path.to_owned(), error }),
        TargetState::Bare(_) => {
            // A raw block volume has nothing at its staging path but this node's record.
            let record = node.recall(volume).await.ok_or_else(nothing)?;
            let number = record.device.filter(|_| record.fs_type.is_none()).ok_or_else(nothing)?;
            if record.staging_path.as_deref() != Some(path) {
                return Err(nothing());
            }
            return with_number(node, number).await?.map(Volume::Block).ok_or_else(nothing);
        }
        TargetState::Absent => return Err(nothing()),
    };
    if let Some(number) = node_number(path) {
        let device = with_number(node, number).await?.ok_or_else(nothing)?;
        return if belongs_to(node, volume, &device).await { Ok(Volume::Block(device)) } else { Err(nothing()) };
    }
    let mount = mounts.into_iter().next_back().ok_or_else(nothing)?;
    let device = under(node, &mount).await?;
    if !belongs_to(node, volume, &device).await {
        return Err(nothing());
    }
    Ok(Volume::Filesystem { mount, device })
}

async fn with_number(node: &Node, number: DeviceNumber) -> Result<Option<Device>, NodeError> {
    device::with_number(&node.host, number).await.map_err(NodeError::Find)
}

/// The device under a mount. A file system answers from memory for a while when its disk is gone; this does not.
pub(super) async fn under(node: &Node, mount: &Mount) -> Result<Device, NodeError> {
    let gone = || NodeError::DiskGone { path: mount.target.clone(), disk: mount.source.display().to_string() };
    with_number(node, number_of(mount)).await?.ok_or_else(gone)
}

/// Bounds of a size in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Range {
    required: u64,
    limit: Option<u64>,
}

impl Range {
    pub(super) fn parse(wire: Option<CapacityRange>) -> Result<Self, NodeError> {
        let CapacityRange { required_bytes, limit_bytes } = wire.unwrap_or_default();
        let natural = |what: &str, bytes: i64| {
            u64::try_from(bytes).map_err(|_| NodeError::Range { why: format!("{what} is negative: {bytes}") })
        };
        let required = natural("required_bytes", required_bytes)?;
        let limit = Some(natural("limit_bytes", limit_bytes)?).filter(|limit| *limit > 0);
        match limit {
            Some(limit) if limit < required => {
                Err(NodeError::Range { why: format!("limit_bytes {limit} is less than required_bytes {required}") })
            }
            _ => Ok(Self { required, limit }),
        }
    }
}

/// Grows the volume at the path to the size of its disk, which must reach the range. Returns the disk's bytes.
pub(super) async fn expand(node: &Node, volume: &str, path: &Path, range: Range) -> Result<u64, NodeError> {
    let deadline = Deadline::after(node.config.timeouts.grow);
    let found = volume_at(node, volume, path, deadline).await?;
    let (Volume::Block(device) | Volume::Filesystem { device, .. }) = &found;
    let size = Deadline::after(node.config.timeouts.size);
    let device = resize::rescan(&node.host, device, range.required, size).await.map_err(NodeError::Grow)?;
    if range.limit.is_some_and(|limit| device.size_bytes > limit) {
        let why = format!("the disk has {} bytes, more than limit_bytes", device.size_bytes);
        return Err(NodeError::Range { why });
    }
    if let Volume::Filesystem { mount, .. } = &found {
        let fs = FsType::parse(&mount.fs_type).ok_or_else(|| NodeError::NoVolume(path.to_owned()))?;
        let needed = resize::needs_resize(&node.host, &device, fs, &mount.target, deadline).await;
        if needed.map_err(NodeError::Grow)? {
            // Any writable mount of it will do, and the one that is asked for may be a read-only bind.
            let target = writable(node, &device, &mount.target).await?;
            resize::grow(&node.host, &device, fs, &target, deadline).await.map_err(NodeError::Grow)?;
        }
    }
    Ok(device.size_bytes)
}

async fn writable(node: &Node, device: &Device, path: &Path) -> Result<PathBuf, NodeError> {
    let table = mount::table(&node.host).await.map_err(NodeError::Mount)?;
    let usable = |mount: &&Mount| mount::is_of(mount, device) && !mount.read_only();
    let mut usable: Vec<&Mount> = table.iter().filter(usable).collect();
    usable.sort_by_key(|mount| mount.target != path);
    usable.first().map(|mount| mount.target.clone()).ok_or_else(|| NodeError::ReadOnly(path.to_owned()))
}

/// How full the volume at the path is.
pub(super) async fn usage(node: &Node, volume: &str, path: &Path) -> Result<Vec<VolumeUsage>, NodeError> {
    let deadline = Deadline::after(node.config.timeouts.stats);
    match volume_at(node, volume, path, deadline).await? {
        Volume::Block(device) => {
            let total = stats::block(&node.host, &device).map_err(NodeError::Stats)?;
            Ok(vec![VolumeUsage { total: wire_bytes(total), unit: Unit::Bytes.into(), ..Default::default() }])
        }
        Volume::Filesystem { .. } => {
            let figures = stats::filesystem(&node.host, path, deadline).await.map_err(NodeError::Stats)?;
            Ok(usage::of_filesystem(&figures))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_that_nothing_fits_is_refused() {
        let range = |required_bytes, limit_bytes| Range::parse(Some(CapacityRange { required_bytes, limit_bytes }));
        assert!(range(-1, 0).is_err());
        assert!(range(0, -1).is_err());
        assert!(range(2, 1).is_err());
        assert!(range(2, 2).is_ok());
        assert!(range(2, 0).is_ok_and(|range| range.limit.is_none()));
        assert!(Range::parse(None).is_ok_and(|range| range.required == 0));
    }
}
