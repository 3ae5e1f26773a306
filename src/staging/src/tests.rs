//! Values for the tests, and the tests of the smaller steps.

use std::path::{Path, PathBuf};

use super::*;

mod copies;
mod nvme;
mod owner;
mod raw;
mod stage;
mod unstage;

pub(super) const GIB: u64 = 1 << 30;

/// A disk of 4 GiB.
pub(super) fn device(minor: u32) -> Device {
    Device {
        name: format!("sd{minor}"),
        path: format!("/dev/sd{minor}").into(),
        number: DeviceNumber { major: 8, minor },
        size_bytes: 4 * GIB,
        lun: Some(3),
        scsi: Some("1:0:0:3".to_owned()),
        nvme: None,
        read_only: false,
        sequence: Some(format!("boot/diskseq/{minor}")),
    }
}

pub(super) fn record(volume: &str, device: &Device, uuid: Option<&str>) -> Record {
    Record {
        volume_id: volume.to_owned(),
        lun: Some(3),
        fs_uuid: uuid.map(str::to_owned),
        fs_type: uuid.map(|_| "ext4".to_owned()),
        staging_path: Some(staging()),
        device_name: Some(device.name.clone()),
        device: Some(device.number),
        sequence: device.sequence.clone(),
        descends_from: None,
    }
}

pub(super) fn staging() -> PathBuf {
    "/plugins/a/globalmount".into()
}

fn mount(number: DeviceNumber, target: impl AsRef<Path>, fs_type: &str, read_only: bool) -> Mounted {
    let mount = Mount {
        id: 1,
        parent: 0,
        device: number,
        root: "/".into(),
        target: target.as_ref().into(),
        options: vec![if read_only { "ro" } else { "rw" }.to_owned()],
        fs_type: fs_type.to_owned(),
        source: "/dev/sdx".into(),
        super_options: vec!["rw".to_owned()],
    };
    Mounted { mount, source: None, node: None }
}

/// A mounted file system of a device. A btrfs has a number of its own.
pub(super) fn mounted(device: &Device, target: impl AsRef<Path>, fs_type: &str, read_only: bool) -> Mounted {
    match fs_type {
        "btrfs" => {
            let anonymous = mount(DeviceNumber { major: 0, minor: 44 }, target, fs_type, read_only);
            Mounted { source: Some(device.number), ..anonymous }
        }
        _ => mount(device.number, target, fs_type, read_only),
    }
}

/// A pod has the device raw.
pub(super) fn handed_out(device: &Device) -> Mounted {
    let shown = mount(DeviceNumber { major: 0, minor: 6 }, "/pods/1/raw", "devtmpfs", false);
    Mounted { node: Some(device.number), ..shown }
}

#[test]
fn a_btrfs_is_of_the_device_that_its_source_names_and_other_mounts_are_of_their_number() {
    let (one, two) = (device(1), device(2));
    for fs_type in ["ext4", "btrfs"] {
        assert!(mounted(&one, "/a", fs_type, false).is_of(&one));
        assert!(!mounted(&one, "/a", fs_type, false).is_of(&two));
    }
    // A source that is named like another device outweighs no number of a real device.
    let lying = Mounted { source: Some(two.number), ..mounted(&one, "/a", "ext4", false) };
    assert!(lying.is_of(&one) && !lying.is_of(&two));
}

#[test]
fn a_volume_s_own_record_outweighs_what_was_kept_of_it_when_it_left() {
    let past = Some(record("a", &device(1), Some("old")));
    let own = Some(record("a", &device(1), Some("new")));
    assert_eq!(Records { own: own.clone(), past: past.clone(), ..Records::default() }.last_uuid(), Some("new"));
    assert_eq!(Records { past: past.clone(), ..Records::default() }.last_uuid(), Some("old"));
    // A volume that is here raw has no file system, whatever it had before.
    let raw = Some(record("a", &device(1), None));
    assert_eq!(Records { own: raw, past, ..Records::default() }.last_uuid(), None);
}
