//! Finding disks that come by NVMe, on root trees made by hand as the contract says.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use lazuli_staging::nvme::{NvmeDisk, Offset, REMOTE_DISKS, RootNamed, SystemDisks, Unplaced};

use super::device::{FindError, find_by_lun, wait_for_lun};
use super::lab::{FakeRoot, LoopDisk, able, long, number};
use super::nvme::{machine, rescan, rescans_of};

const LOCAL: &str = "Microsoft NVMe Direct Disk v2";

/// A machine whose system is namespace 1, with the local disk as the first controller.
fn nvme(multipath: bool) -> FakeRoot {
    let root = FakeRoot::new();
    root.add_controller("nvme0", LOCAL);
    root.add_controller("nvme1", REMOTE_DISKS);
    root.add_namespace("nvme0", "nvme0n1", 1, 64, false);
    root.add_partitioned("nvme0n1", 1000);
    root.add_namespace("nvme1", "nvme1n1", 1, 64, multipath);
    root.add_partitioned("nvme1n1", 2000);
    root.boot("root=/dev/nvme1n1p1 ro");
    root
}

#[tokio::test]
async fn a_namespace_is_found_by_its_id_in_both_layouts_whatever_its_name() {
    if !able(&["losetup"]) {
        return;
    }
    for multipath in [false, true] {
        let (disk, other) = (LoopDisk::new(64), LoopDisk::new(64));
        let root = nvme(multipath);
        // The disk at LUN 3 came first.
        for (name, nsid, disk) in [("nvme1n2", 5, &disk), ("nvme1n5", 2, &other)] {
            root.add_block(name, disk);
            root.add_namespace("nvme1", name, nsid, 64, multipath);
        }
        let device = find_by_lun(&root.host(), 3).await.expect("LUN 3 is there");
        assert_eq!((device.name.as_str(), device.number), ("nvme1n2", number(&disk.node)));
        let nvme = NvmeDisk { controller: "nvme1".to_owned(), nsid: 5, offset: Offset::Proved };
        assert_eq!((device.lun, device.nvme, device.scsi), (Some(3), Some(nvme), None));
        let device = find_by_lun(&root.host(), 0).await.expect("LUN 0 is there");
        assert_eq!(device.number, number(&other.node));
        let error = find_by_lun(&root.host(), 1).await.expect_err("none");
        let text = error.to_string();
        assert!(matches!(error, FindError::NotFound { .. }), "{text}");
        assert!(text.contains("nvme1n5 is at LUN 0, nvme1n2 is at LUN 3"), "{text}");
    }
}

#[tokio::test]
async fn what_the_system_lies_on_is_found_through_links_partitions_and_device_mapper() {
    let root = nvme(false);
    root.add_namespace("nvme1", "nvme1n2", 2, 64, false);
    let block = root.folder.path().join("sys/class/block");
    let dev = root.folder.path().join("dev");
    // A logical volume over a partition of the system's disk and a whole data disk.
    for slave in ["nvme1n1p1", "nvme1n2"] {
        root.folder.dir(&format!("sys/class/block/dm-0/slaves/{slave}"));
    }
    root.folder.dir("sys/class/block/dm-1/slaves/dm-0");
    for (folder, link, target) in [
        ("dev/mapper", "rootvg-rootlv", "../dm-1"),
        ("dev/disk/by-uuid", "a-b", "../../nvme1n1p1"),
        ("dev/disk/by-label", "cloudimg", "../../nvme1n1p1"),
        ("dev/disk/by-id", "nvme-one-part1", "../../nvme1n1p1"),
        ("dev/disk/by-partuuid", "c-d", "../../nvme1n1p1"),
        ("dev/disk/by-partlabel", "local", "../../nvme0n1p1"),
    ] {
        symlink(target, root.folder.dir(folder).join(link)).expect("link");
    }
    for node in ["dm-1", "nvme1n1p1", "nvme0n1p1"] {
        fs::write(dev.join(node), "").expect("node");
    }
    let (system, local) = (vec!["nvme1n1"], vec!["nvme0n1"]);
    for (line, disks) in [
        ("root=/dev/nvme1n1p1 ro", system.clone()),
        ("root=UUID=a-b", system.clone()),
        ("root=LABEL=cloudimg", system.clone()),
        ("root=PARTUUID=c-d", system.clone()),
        ("root=/dev/disk/by-uuid/a-b", system.clone()),
        ("root=/dev/disk/by-id/nvme-one-part1", system),
        ("root=/dev/mapper/rootvg-rootlv", vec!["nvme1n1", "nvme1n2"]),
        ("root=PARTLABEL=local", local.clone()),
        ("root=/dev/nvme0n1", local),
        ("root=UUID=unknown", vec![]),
        ("root=/dev/nfs", vec![]),
        ("root=ZFS=pool", vec![]),
        ("quiet", vec![]),
    ] {
        root.boot(line);
        let found = machine(&root.host()).await.expect("read");
        let disks: Vec<String> = disks.into_iter().map(str::to_owned).collect();
        let is_content = ["=UUID", "=LABEL", "=PART", "/by-uuid"].iter().any(|part| line.contains(part));
        let root_named = if is_content && !disks.is_empty() { RootNamed::Content } else { RootNamed::Node };
        assert_eq!(found.system, SystemDisks { root: disks, root_named, ..SystemDisks::default() }, "{line}");
    }
    assert!(block.join("nvme1n1p1").exists());
}

#[tokio::test]
async fn kubelet_s_folder_proves_the_offset_where_root_is_not_known() {
    let root = nvme(false);
    root.boot("root=UUID=unknown");
    root.add_namespace("nvme1", "nvme1n2", 2, 64, false);
    let kubelet = root.folder.dir("var/lib/kubelet/plugins/a");
    let proc = root.folder.dir("proc/self");
    let folder = root.folder.path().join("var/lib/kubelet");
    let mounted_from = |number: &str, place: &Path| {
        let (place, folder) = (place.display(), folder.display());
        let table =
            format!("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n23 22 {number} {place} {folder} rw - ext4 /dev/disk rw\n");
        fs::write(proc.join("mountinfo"), table).expect("table");
        root.host().with_proc(root.folder.path().join("proc")).with_kubelet(&kubelet)
    };
    let mounts = |number: &str| mounted_from(number, Path::new("/k"));
    for (number, is_proved) in [("259:2001", true), ("259:2000", true), ("259:1001", false), ("8:1", false)] {
        // Not ready, for there is no node; unproved it would not be looked for.
        let error = find_by_lun(&mounts(number), 0).await.expect_err("no node");
        assert_eq!(matches!(error, FindError::NotReady { .. }), is_proved, "{number}: {error}");
        assert_eq!(
            matches!(error, FindError::Unplaced { why: Unplaced::NotProved { .. }, .. }),
            !is_proved,
            "{number}"
        );
    }
    // In a container the folder is mounted from its place in its file system. Only in the root file system that is its path.
    for (place, is_in_root) in [(folder.as_path(), true), (Path::new("/"), false), (Path::new("/lib/kubelet"), false)] {
        let system = machine(&mounted_from("259:2001", place)).await.expect("read").system;
        assert_eq!((system.kubelet, system.is_kubelet_in_root), (vec!["nvme1n1".to_owned()], is_in_root), "{place:?}");
    }
    // What root= says outweighs it.
    root.boot("root=/dev/nvme0n1p1");
    let error = find_by_lun(&mounts("259:2001"), 0).await.expect_err("the system is elsewhere");
    assert!(error.to_string().contains("the kernel's root= lies on nvme0n1"), "{error}");
}

#[tokio::test]
async fn a_local_disk_and_one_without_a_known_controller_are_never_found() {
    let root = FakeRoot::new();
    for (controller, model) in [("nvme0", LOCAL), ("nvme1", "QEMU NVMe Ctrl"), ("nvme2", "Microsoft NVMe Direct Disk")]
    {
        root.add_controller(controller, model);
        for nsid in 1..4 {
            root.add_namespace(controller, &format!("{controller}n{nsid}"), nsid, 64, false);
        }
    }
    root.boot("root=/dev/nvme0n1p1");
    for lun in 0..4 {
        for host in [root.host(), root.host().with_nvme_lun_offset(Some(1))] {
            let error = find_by_lun(&host, lun).await.expect_err("no data disk");
            assert!(error.to_string().contains("no data disks at all"), "{error}");
        }
    }
}

#[tokio::test]
async fn an_offset_that_an_operator_gives_is_marked_on_the_device() {
    if !able(&["losetup"]) {
        return;
    }
    let disk = LoopDisk::new(64);
    let root = FakeRoot::new();
    root.add_controller("nvme0", REMOTE_DISKS);
    root.add_namespace("nvme0", "nvme0n1", 4, 64, false);
    root.add_block("nvme0n1", &disk);
    // No wait helps.
    let error = wait_for_lun(&root.host(), 3, long()).await.expect_err("nothing proves it");
    assert!(matches!(error, FindError::Unplaced { .. }), "{error}");
    let host = root.host().with_nvme_lun_offset(Some(1));
    let device = find_by_lun(&host, 3).await.expect("by the operator's word");
    assert!(!device.is_lun_certain() && device.number == number(&disk.node), "{device:?}");
    assert!(matches!(find_by_lun(&host, 2).await, Err(FindError::Unplaced { .. })));
}

#[tokio::test]
async fn a_scsi_disk_and_a_namespace_at_one_lun_are_ambiguous_and_a_controller_in_reset_is_waited_for() {
    if !able(&["losetup"]) {
        return;
    }
    let (disk, other) = (LoopDisk::new(16), LoopDisk::new(16));
    let root = nvme(false);
    root.add_block("nvme1n2", &disk);
    root.add_namespace("nvme1", "nvme1n2", 5, 16, false);
    root.add("1:0:0:3", "sdc", &other);
    let error = find_by_lun(&root.host(), 3).await.expect_err("two");
    assert_eq!(error.to_string(), "LUN 3 is ambiguous: nvme1n2 (nvme1, namespace 5), sdc (1:0:0:3)");
    root.remove("1:0:0:3", "sdc");
    let state = root.folder.path().join("sys/class/nvme/nvme1/state");
    fs::write(&state, "resetting\n").expect("state");
    let error = find_by_lun(&root.host(), 3).await.expect_err("in reset");
    assert_eq!(error.to_string(), "the disk at LUN 3 is not ready: the NVMe controller nvme1 is resetting");
    fs::write(&state, "live\n").expect("state");
    assert!(find_by_lun(&root.host(), 3).await.is_ok());
}

#[tokio::test]
async fn waiting_ends_when_the_namespace_appears_in_either_layout() {
    if !able(&["losetup"]) {
        return;
    }
    for multipath in [false, true] {
        let disk = LoopDisk::new(16);
        let root = nvme(multipath);
        let host = root.host();
        let plug = async {
            // In the worst order: the namespace first, the node last.
            root.add_namespace("nvme1", "nvme1n2", 7, 16, multipath);
            tokio::task::yield_now().await;
            root.add_block("nvme1n2", &disk);
        };
        let (found, ()) = tokio::join!(wait_for_lun(&host, 5, long()), plug);
        assert_eq!(found.expect("plugged").number, number(&disk.node));
    }
}

#[tokio::test]
async fn the_controllers_of_a_disk_are_asked_to_read_its_size_and_all_remote_ones_to_look_for_disks() {
    for multipath in [false, true] {
        let root = nvme(multipath);
        root.add_namespace("nvme1", "nvme1n2", 5, 16, multipath);
        root.add_partitioned("nvme1n2", 3000);
        let files = |name: &str| rescans_of(&root.host(), name).expect("read");
        let class = root.folder.path().join("sys/class/nvme");
        let expected = vec![class.join("nvme1/rescan_controller")];
        assert_eq!(files("nvme1n2"), expected);
        assert_eq!(files("nvme1n2p1"), expected, "a partition grows with its disk");
        assert_eq!(files("sdc"), Vec::<std::path::PathBuf>::new());
        rescan(&root.host());
        let written = |name: &str| fs::read_to_string(class.join(name).join("rescan_controller")).expect("file");
        assert_eq!((written("nvme0"), written("nvme1")), (String::new(), "1".to_owned()));
    }
}
