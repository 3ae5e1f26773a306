//! The devices of a mounted btrfs, as the kernel lists them, and the id of a copied one.

pub mod fsid;

use std::{fs, path::Path};

use lazuli_staging::BtrfsMembers;

use super::{
    Host,
    device::{self, Device},
};

/// The members of the btrfs with this id, where it is mounted, by whichever process (source: the kernel's btrfs sysfs
/// interface), and the name that the device has among them.
pub async fn members(host: &Host, device: &Device, fsid: &str) -> BtrfsMembers {
    let (folder, device) = (host.sys().join("fs/btrfs").join(fsid).join("devices"), device.clone());
    let look = move || BtrfsMembers {
        names: names(&folder),
        own: device::real_node(&device).file_name().map(|name| name.to_string_lossy().into_owned()),
    };
    tokio::task::spawn_blocking(look).await.unwrap_or_default()
}

fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{device_number::DeviceNumber, lab::TempDir};

    #[tokio::test]
    async fn the_members_of_a_mounted_btrfs_and_the_device_s_own_name_among_them_are_told() {
        let root = TempDir::new("btrfs");
        let host = Host::new().with_root(root.path());
        let dev = root.dir("dev");
        fs::write(dev.join("sdc"), "").expect("file");
        std::os::unix::fs::symlink("sdc", dev.join("lun3")).expect("link");
        let device = Device {
            name: "lun3".to_owned(),
            path: dev.join("lun3"),
            number: DeviceNumber { major: 8, minor: 32 },
            size_bytes: 1 << 30,
            lun: Some(3),
            scsi: None,
            nvme: None,
            read_only: false,
            sequence: None,
        };
        assert_eq!(members(&host, &device, "f-1").await.names, Vec::<String>::new(), "it is not mounted");
        for member in ["sdc", "sdd"] {
            root.dir(&format!("sys/fs/btrfs/f-1/devices/{member}"));
        }
        let mut found = members(&host, &device, "f-1").await;
        found.names.sort();
        assert_eq!(found, BtrfsMembers { names: vec!["sdc".into(), "sdd".into()], own: Some("sdc".into()) });
    }
}
