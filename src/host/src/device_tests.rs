//! Finding disks, on root trees made by hand as the contract says.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use super::Deadline;
use super::device::{FindError, find_by_lun, wait_for_lun};
use super::lab::{FakeRoot, LoopDisk, able, long, number};
use super::raw::MIB;

#[tokio::test]
async fn a_root_folder_made_as_the_contract_says_is_read() {
    if !able(&["losetup"]) {
        return;
    }
    let (disk, other) = (LoopDisk::new(64), LoopDisk::new(32));
    let root = FakeRoot::new();
    root.add("1:0:0:0", "sdc", &other);
    root.add("1:0:0:7", "sdd", &disk);
    let device = find_by_lun(&root.host(), 7).await.expect("LUN 7 is there");
    assert_eq!(device.name, "sdd");
    assert_eq!(device.path, root.folder.path().join("dev/sdd"));
    assert_eq!(device.number, number(&disk.node));
    assert_eq!(device.size_bytes, 64 * MIB);
    assert_eq!(device.lun, Some(7));
    assert_eq!(device.scsi.as_deref(), Some("1:0:0:7"));
    assert!(!device.read_only);
}

#[tokio::test]
async fn a_lun_is_matched_whole_and_not_by_its_last_digit() {
    if !able(&["losetup"]) {
        return;
    }
    let disk = LoopDisk::new(16);
    let root = FakeRoot::new();
    root.add("1:0:0:11", "sdc", &disk);
    let error = find_by_lun(&root.host(), 1).await.expect_err("only LUN 11");
    assert!(error.to_string().contains("sdc is at LUN 11"), "{error}");
}

#[tokio::test]
async fn a_disk_of_another_maker_at_the_same_lun_is_not_taken() {
    let root = FakeRoot::new();
    root.add_scsi("2:0:0:3", "sde");
    fs::write(root.scsi("2:0:0:3").join("vendor"), "LIO-ORG\n").expect("vendor");
    let error = find_by_lun(&root.host(), 3).await.expect_err("iSCSI");
    assert!(matches!(error, FindError::NotFound { .. }), "{error}");
}

#[tokio::test]
async fn two_disks_at_one_lun_are_ambiguous_and_named() {
    let root = FakeRoot::new();
    root.add_scsi("1:0:0:3", "sdc");
    root.add_scsi("2:0:0:3", "sdd");
    let error = find_by_lun(&root.host(), 3).await.expect_err("two");
    assert_eq!(error.to_string(), "LUN 3 is ambiguous: sdc (1:0:0:3), sdd (2:0:0:3)");
}

#[tokio::test]
async fn the_operating_system_and_resource_disks_are_never_found() {
    let root = FakeRoot::new();
    let azure = root.folder.path().join("dev/disk/azure");
    root.add_scsi("0:0:0:0", "sda");
    root.add_scsi("0:0:0:1", "sdb");
    symlink("../../sda", azure.join("root")).expect("link");
    symlink("../../sdb", azure.join("resource")).expect("link");
    for lun in [0, 1] {
        let error = find_by_lun(&root.host(), lun).await.expect_err("own disk");
        let text = error.to_string();
        assert!(matches!(error, FindError::NotFound { .. }), "{text}");
        assert!(text.contains("disk/azure/r"), "{text}");
    }
}

#[tokio::test]
async fn the_vmbus_id_of_the_controller_tells_data_disks_from_the_machines_own() {
    if !able(&["losetup"]) {
        return;
    }
    let disk = LoopDisk::new(16);
    let root = FakeRoot::new();
    // As on the real machine: the class entry leads into the tree of the bus.
    for (guid, address, name) in [
        ("{f8b3781a-1e82-4818-a1c3-63d806ec15bb}", "0:0:0:0", "sda"),
        ("{f8b3781b-1e82-4818-a1c3-63d806ec15bb}", "1:0:0:0", "sdc"),
    ] {
        let bus = format!("sys/devices/vmbus/{name}/host/target");
        let bus = root.folder.dir(&bus);
        root.add_scsi(address, name);
        fs::rename(root.scsi(address), bus.join("device")).expect("move");
        symlink(bus.join("device"), root.scsi(address)).expect("link");
        let id = root.folder.path().join("sys/devices/vmbus").join(name);
        fs::write(id.join("device_id"), format!("{guid}\n")).expect("id");
    }
    root.add_block("sdc", &disk);
    let device = find_by_lun(&root.host(), 0).await.expect("the data disk");
    assert_eq!(device.name, "sdc");
}

#[tokio::test]
async fn the_disk_that_holds_the_root_file_system_is_never_found() {
    let root = FakeRoot::new();
    root.add_scsi("1:0:0:0", "sda");
    let part = root.folder.dir("sys/class/block/sda/sda1");
    let proc = root.folder.dir("proc/self");
    fs::write(part.join("dev"), "8:1\n").expect("dev");
    fs::write(proc.join("mountinfo"), "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n").expect("table");
    let host = root.host().with_proc(root.folder.path().join("proc"));
    let error = find_by_lun(&host, 0).await.expect_err("root disk");
    assert!(error.to_string().contains("holds the root file system"));
}

#[tokio::test]
async fn a_node_that_leads_to_another_device_is_not_ready() {
    if !able(&["losetup"]) {
        return;
    }
    let (disk, other) = (LoopDisk::new(16), LoopDisk::new(16));
    let root = FakeRoot::new();
    root.add("1:0:0:2", "sdc", &disk);
    let node = root.folder.path().join("dev/sdc");
    fs::remove_file(&node).expect("remove");
    symlink(&other.node, &node).expect("link");
    let error = find_by_lun(&root.host(), 2).await.expect_err("mixed up");
    assert!(matches!(error, FindError::NotReady { .. }), "{error}");
}

#[tokio::test]
async fn waiting_ends_when_the_disk_appears_and_again_when_it_comes_back() {
    if !able(&["losetup"]) {
        return;
    }
    let disk = LoopDisk::new(16);
    let root = FakeRoot::new();
    let host = root.host();
    for _ in 0..2 {
        let waiting = wait_for_lun(&host, 5, long());
        let plug = async {
            // In the worst order: SCSI entry first, the node last.
            root.add_scsi("1:0:0:5", "sdc");
            tokio::task::yield_now().await;
            root.add_block("sdc", &disk);
        };
        let (found, ()) = tokio::join!(waiting, plug);
        assert_eq!(found.expect("plugged").number, number(&disk.node));
        root.remove("1:0:0:5", "sdc");
        assert!(find_by_lun(&host, 5).await.is_err());
    }
}

#[tokio::test]
async fn an_event_wakes_the_waiter_before_the_slow_check() {
    if !able(&["losetup"]) {
        return;
    }
    let disk = LoopDisk::new(16);
    let root = FakeRoot::new();
    let host = root.host();
    let mut watch = super::watch::Watch::start(&host);
    root.add("1:0:0:5", "sdc", &disk);
    // The first re-check comes after 250 ms; the event is there already.
    let started = std::time::Instant::now();
    watch.changed(long()).await;
    assert!(started.elapsed() < Duration::from_millis(200));
}

#[tokio::test]
async fn waiting_for_nothing_ends_at_the_deadline_and_asks_for_a_scan_of_that_lun() {
    let root = FakeRoot::new();
    let scan = root.folder.dir("sys/class/scsi_host/host1").join("scan");
    fs::write(&scan, "").expect("attribute");
    let deadline = Deadline::after(Duration::from_millis(2500));
    let error = wait_for_lun(&root.host(), 9, deadline).await.expect_err("nothing there");
    assert!(matches!(error, FindError::NotFound { lun: 9, .. }));
    assert_eq!(fs::read_to_string(&scan).expect("written"), "- - 9");
}
