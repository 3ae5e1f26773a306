//! Takes away what is mounted of the disks of `lazuli up`, before their devices and files go: a person may have staged
//! volumes anywhere.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::Duration,
};

use lazuli_host::{Deadline, Host, mount, mountinfo::Mount};
use lazuli_rig::hypervisor_root;

use super::AnyError;

/// How long one unmount may take: it writes back what the file system holds.
const UNMOUNT: Duration = Duration::from_secs(30);

/// Where something of these devices is mounted: the newest mount first. What else is mounted below the folder is a person's.
fn ours(mounts: &[Mount], devices: &BTreeSet<PathBuf>) -> Vec<PathBuf> {
    // A raw block volume is the node of its device, bound from the file system of /dev.
    let node = |mount: &Mount| mount.root.file_name().map(|name| Path::new("/dev").join(name));
    let is_ours = |mount: &&Mount| {
        devices.contains(&mount.source)
            || (mount.may_show_node() && node(mount).is_some_and(|node| devices.contains(&node)))
    };
    let mut places: Vec<(u64, PathBuf)> =
        mounts.iter().filter(is_ours).map(|mount| (mount.id, mount.target.clone())).collect();
    places.sort_by(|one, other| other.cmp(one));
    let mut seen = BTreeSet::new();
    places.into_iter().map(|(_, place)| place).filter(|place| seen.insert(place.clone())).collect()
}

/// The devices whose file is below a folder, by what the kernel says of each. A file that has no name any more keeps its
/// path there, with a word behind it.
fn backed_below(devices: impl IntoIterator<Item = (PathBuf, String)>, folder: &Path) -> BTreeSet<PathBuf> {
    let devices = devices.into_iter().filter(|(_, file)| Path::new(file).starts_with(folder));
    devices.map(|(device, _)| device).collect()
}

/// The loop devices, each with its file. Source: `loop/backing_file` of sysfs.
fn loop_devices() -> Vec<(PathBuf, String)> {
    let devices = std::fs::read_dir("/sys/class/block").into_iter().flatten().flatten();
    let file = |device: &std::fs::DirEntry| std::fs::read_to_string(device.path().join("loop/backing_file")).ok();
    devices.filter_map(|device| Some((Path::new("/dev").join(device.file_name()), file(&device)?))).collect()
}

/// The devices that the machines have: the nodes in their dev folders.
fn machines_devices(folder: &Path) -> BTreeSet<PathBuf> {
    let machines = std::fs::read_dir(hypervisor_root(folder).join("vms")).into_iter().flatten().flatten();
    let nodes =
        machines.flat_map(|machine| std::fs::read_dir(machine.path().join("dev")).into_iter().flatten().flatten());
    nodes.filter_map(|node| std::fs::canonicalize(node.path()).ok()).filter(|node| !node.is_dir()).collect()
}

/// Unmounts everything of this folder's disks.
///
/// # Errors
/// What could not be unmounted, such as a file system that a process uses. The others are unmounted all the same.
pub(super) async fn release(folder: &Path) -> Result<(), AnyError> {
    let host = Host::new();
    let mut devices = machines_devices(folder);
    // One that was detached while it was mounted is in no machine any more.
    let root = hypervisor_root(folder);
    devices.extend(backed_below(loop_devices(), &root.canonicalize().unwrap_or(root)));
    let mut failed = None;
    for place in ours(&mount::table(&host).await?, &devices) {
        if let Err(error) = mount::unmount(&host, &place, Deadline::after(UNMOUNT)).await {
            failed = failed.or(Some(error));
        }
    }
    failed.map_or(Ok(()), |error| Err(error.into()))
}

#[cfg(test)]
mod tests {
    use lazuli_host::mountinfo;

    use super::*;

    #[test]
    fn mounts_of_its_devices_are_taken_away_newest_first_and_no_others_not_even_in_its_folder() {
        let table = b"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n\
            20 1 7:3 / /mnt/stage rw - ext4 /dev/loop3 rw\n\
            21 1 7:3 / /mnt/pod rw - ext4 /dev/loop3 rw\n\
            22 1 0:5 /loop4 /mnt/raw rw - devtmpfs udev rw\n\
            23 1 0:5 /loop9 /mnt/other-raw rw - devtmpfs udev rw\n\
            24 1 7:9 / /mnt/other rw - ext4 /dev/loop9 rw\n\
            25 1 0:9 / /tmp/up/x rw - tmpfs tmpfs rw\n\
            26 1 0:9 / /tmp/upper rw - tmpfs tmpfs rw\n";
        let devices = ["/dev/loop3", "/dev/loop4"].map(PathBuf::from).into();
        let places = ours(&mountinfo::parse(table), &devices);
        assert_eq!(places, ["/mnt/raw", "/mnt/pod", "/mnt/stage"].map(PathBuf::from));
    }

    #[test]
    fn a_device_is_ours_while_its_file_is_or_was_in_our_folder() {
        let device = |name: &str, file: &str| (Path::new("/dev").join(name), file.to_owned());
        let all = [
            device("loop1", "/tmp/up/azure/disks/a.raw\n"),
            device("loop2", "/tmp/up/azure/disks/b.raw (deleted)\n"),
            device("loop3", "/tmp/up/azure2/disks/c.raw\n"),
            device("loop4", "/tmp/mine.raw\n"),
        ];
        let ours = backed_below(all, Path::new("/tmp/up/azure"));
        assert_eq!(ours, ["/dev/loop1", "/dev/loop2"].map(PathBuf::from).into());
    }
}
