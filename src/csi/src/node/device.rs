//! From a LUN, a mount or a path to the block device behind it.

use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
};

use lazuli_host::{
    Host,
    device::{self, Device, FindError},
    device_number::DeviceNumber,
    mountinfo::Mount,
};
use lazuli_model::Lun;

use super::error::NodeError;

/// The device with this number, if the kernel still has it.
pub(super) async fn with_number(host: &Host, number: DeviceNumber) -> Result<Option<Device>, NodeError> {
    let host = host.clone();
    let folder = host.root().join("sys/class/block");
    let search = move || {
        let mut names: Vec<String> = match fs::read_dir(&folder) {
            Ok(entries) => entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect(),
            Err(source) => return Err(FindError::Read { path: folder, source }),
        };
        names.sort();
        for name in names {
            match device::describe(&host, &name)? {
                Some(found) if found.number == number => return Ok(Some(found)),
                _ => {}
            }
        }
        Ok(None)
    };
    tokio::task::spawn_blocking(search).await.map_err(|_| NodeError::Task)?.map_err(NodeError::Find)
}

/// The number of the device that a mounted file system is on. btrfs mounts carry a number of their own; their source
/// tells.
pub(super) fn number_of(mount: &Mount) -> DeviceNumber {
    match node_number(&mount.source) {
        Some(number) if mount.device.major == 0 => number,
        _ => mount.device,
    }
}

/// The number of the block device at a path, if one is there.
pub(super) fn node_number(path: &Path) -> Option<DeviceNumber> {
    if !path.is_absolute() {
        return None;
    }
    let found = fs::metadata(path).ok()?;
    found.file_type().is_block_device().then(|| DeviceNumber::from_raw(found.rdev()))
}

/// The disk at the LUN now, or its partition.
pub(super) async fn at(host: &Host, lun: Lun, partition: Option<u32>) -> Result<Device, NodeError> {
    let disk = device::find_by_lun(host, lun.get().into()).await.map_err(NodeError::Find)?;
    part(host, disk, partition)
}

/// Whether a kernel name is that of a partition of a disk: `sda1` is one of `sda`, and `sdaa` is another disk.
pub(super) fn is_part_of(name: &str, disk: &str) -> bool {
    let rest = name.strip_prefix(disk).and_then(|rest| rest.strip_prefix(joint(disk)));
    rest.is_some_and(|number| !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()))
}

/// What stands between the name of a disk and the number of its partition: sdc1, but nvme0n1p1 and loop0p1 (source:
/// the kernel's naming of partitions).
fn joint(disk: &str) -> &'static str {
    if disk.ends_with(|last: char| last.is_ascii_digit()) { "p" } else { "" }
}

/// The partition of a disk, or the disk when none is asked for.
pub(super) fn part(host: &Host, disk: Device, partition: Option<u32>) -> Result<Device, NodeError> {
    let Some(partition) = partition else { return Ok(disk) };
    let name = format!("{}{}{partition}", disk.name, joint(&disk.name));
    let found = device::describe(host, &name).map_err(NodeError::Find)?;
    let found = found.ok_or(NodeError::NoPartition { partition, device: disk.name })?;
    Ok(Device { lun: disk.lun, scsi: disk.scsi, ..found })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_whose_name_begins_with_anothers_is_no_partition_of_it() {
        for (name, disk, is) in [
            ("sda1", "sda", true),
            ("sda16", "sda", true),
            ("sdaa", "sda", false),
            ("sdaa1", "sda", false),
            ("sda", "sda", false),
            ("nvme0n1p2", "nvme0n1", true),
            ("nvme0n12", "nvme0n1", false),
            ("nvme0n1p", "nvme0n1", false),
            ("xsda1", "sda", false),
        ] {
            assert_eq!(is_part_of(name, disk), is, "{name} of {disk}");
        }
    }
}
