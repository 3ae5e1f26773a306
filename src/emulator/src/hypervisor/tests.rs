//! With real loop devices: they need root and say so when they skip.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc;

use super::*;

const MIB: u64 = 1 << 20;

/// A root folder that takes its loop devices with it.
struct Root(PathBuf);

impl Root {
    /// None, with the reason printed, where loop devices cannot be had.
    fn new() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if let Err(error) = loop_device::check_available() {
            eprintln!("skipped: {error}");
            return None;
        }
        let name = format!("lazuli-hypervisor-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Some(Self(fs::canonicalize(path).unwrap()))
    }

    async fn start(&self, attached: Vec<Attachment>) -> Hypervisor {
        Hypervisor::start_loop(&self.0, vec![], attached).await.unwrap()
    }

    /// Loop devices bound to files of this root.
    fn devices(&self) -> Vec<String> {
        loop_device::list()
            .unwrap()
            .into_iter()
            .filter(|(_, file)| file.starts_with(&self.0))
            .map(|(name, _)| name)
            .collect()
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        for name in self.devices() {
            let _ = loop_device::release(&name);
        }
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn disk(name: &str, size_bytes: u64) -> DiskFacts {
    DiskFacts {
        id: format!("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/{name}"),
        unique_id: String::new(),
        size_bytes,
        file: None,
    }
}

fn attachment(vm: &str, lun: u8, disk: &DiskFacts) -> Attachment {
    Attachment { vm: vm.to_owned(), lun, disk: disk.clone() }
}

/// The device node at a LUN, as a node would find it.
fn device_at(node: &Path, lun: u8) -> Option<PathBuf> {
    let block = node.join(format!("sys/class/scsi_device/1:0:0:{lun}/device/block"));
    let name = fs::read_dir(block).ok()?.next()?.ok()?.file_name();
    Some(node.join("dev").join(name))
}

fn write_at(device: &Path, offset: u64, text: &[u8]) {
    let file = fs::OpenOptions::new().write(true).open(device).unwrap();
    file.write_all_at(text, offset).unwrap();
    file.sync_all().unwrap();
}

fn read_at(device: &Path, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let file = fs::File::open(device).unwrap();
    file.read_exact_at(&mut bytes, offset).unwrap();
    bytes
}

#[tokio::test(start_paused = true)]
async fn without_a_hypervisor_every_call_succeeds_and_does_nothing() {
    let none = Hypervisor::none();
    let disk = disk("d", MIB);
    none.create_disk(&disk).await.unwrap();
    none.attach("vm", 0, &disk).await.unwrap();
    none.resize(&disk).await.unwrap();
    none.detach("vm", 0).await.unwrap();
    none.shutdown().await.unwrap();
    assert!(!none.has_devices());
    assert_eq!(none.node_root("vm"), None);
}

#[tokio::test]
async fn an_attached_disk_shows_all_that_the_contract_names() {
    let Some(root) = Root::new() else { return };
    let hypervisor = root.start(vec![]).await;
    let disk = disk("pvc-1", 8 * MIB);
    hypervisor.create_disk(&disk).await.unwrap();
    hypervisor.attach("Node-0", 3, &disk).await.unwrap();

    let node = hypervisor.node_root("node-0").unwrap();
    let entry = node.join("sys/class/scsi_device/1:0:0:3/device");
    let text = |file: &str| fs::read_to_string(entry.join(file)).unwrap();
    assert_eq!(text("vendor"), "Msft    \n");
    assert_eq!(text("model"), "Virtual Disk    \n");
    assert!(entry.join("rescan").is_file());
    let device = device_at(&node, 3).unwrap();
    let name = device.file_name().unwrap().to_str().unwrap();
    let block = node.join("sys/class/block").join(name);
    let sectors = fs::read_to_string(block.join("size")).unwrap();
    assert_eq!(sectors.trim(), (8 * MIB / 512).to_string());
    assert!(fs::read_to_string(block.join("dev")).unwrap().contains(':'));
    let link = node.join("dev/disk/azure/scsi1/lun3");
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("../../..").join(name));
    write_at(&link, 4096, b"lapis");
    assert_eq!(read_at(&device, 4096, 5), b"lapis");
    hypervisor.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_detached_disk_leaves_nothing_and_keeps_its_data_for_the_next_machine() {
    let Some(root) = Root::new() else { return };
    let hypervisor = root.start(vec![]).await;
    let disk = disk("pvc-1", 4 * MIB);
    hypervisor.create_disk(&disk).await.unwrap();
    hypervisor.attach("a", 0, &disk).await.unwrap();
    let a = hypervisor.node_root("a").unwrap();
    write_at(&device_at(&a, 0).unwrap(), 0, b"kept");
    hypervisor.detach("a", 0).await.unwrap();
    hypervisor.detach("a", 0).await.unwrap();

    for folder in ["sys/class/scsi_device", "sys/class/block", "dev/disk/azure/scsi1"] {
        let left = contract::names(&a.join(folder)).unwrap();
        assert!(left.is_empty(), "{folder}: {left:?}");
    }
    assert_eq!(contract::names(&a.join("dev")).unwrap(), ["disk"]);
    assert!(root.devices().is_empty());

    hypervisor.attach("b", 7, &disk).await.unwrap();
    let b = hypervisor.node_root("b").unwrap();
    assert_eq!(read_at(&device_at(&b, 7).unwrap(), 0, 4), b"kept");
    hypervisor.shutdown().await.unwrap();
    assert!(root.devices().is_empty());
}

#[tokio::test]
async fn attaching_twice_is_one_attachment_and_another_disk_takes_the_lun_over() {
    let Some(root) = Root::new() else { return };
    let hypervisor = root.start(vec![]).await;
    let (one, two) = (disk("one", MIB), disk("two", 2 * MIB));
    hypervisor.attach("vm", 0, &one).await.unwrap();
    let node = hypervisor.node_root("vm").unwrap();
    let first = device_at(&node, 0).unwrap();
    hypervisor.attach("vm", 0, &one).await.unwrap();
    assert_eq!(device_at(&node, 0).unwrap(), first);
    hypervisor.attach("vm", 0, &two).await.unwrap();
    assert_eq!(root.devices().len(), 1);
    let mut device = fs::File::open(device_at(&node, 0).unwrap()).unwrap();
    assert_eq!(device.seek(SeekFrom::End(0)).unwrap(), 2 * MIB);
    drop(device);
    hypervisor.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_resize_reaches_the_device_and_touches_its_entry() {
    let Some(root) = Root::new() else { return };
    let hypervisor = root.start(vec![]).await;
    let mut disk = disk("grows", 4 * MIB);
    hypervisor.attach("vm", 1, &disk).await.unwrap();
    let node = hypervisor.node_root("vm").unwrap();
    let entry = node.join("sys/class/scsi_device/1:0:0:1");
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    fs::File::open(&entry).unwrap().set_modified(long_ago).unwrap();

    disk.size_bytes = 16 * MIB;
    hypervisor.resize(&disk).await.unwrap();
    let mut device = fs::File::open(device_at(&node, 1).unwrap()).unwrap();
    assert_eq!(device.seek(SeekFrom::End(0)).unwrap(), 16 * MIB);
    drop(device);
    assert!(fs::metadata(&entry).unwrap().modified().unwrap() > long_ago);

    // A smaller size is no order to lose data.
    disk.size_bytes = MIB;
    hypervisor.resize(&disk).await.unwrap();
    assert_eq!(fs::metadata(device_at(&node, 1).unwrap()).unwrap().len(), 0);
    hypervisor.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_disk_pulled_while_open_is_gone_and_later_writes_to_it_are_lost() {
    let Some(root) = Root::new() else { return };
    let hypervisor = root.start(vec![]).await;
    let disk = disk("pulled", 4 * MIB);
    hypervisor.attach("a", 0, &disk).await.unwrap();
    let a = hypervisor.node_root("a").unwrap();
    let device = device_at(&a, 0).unwrap();
    write_at(&device, 0, b"before");
    let mut open = fs::OpenOptions::new().read(true).write(true).open(&device).unwrap();

    hypervisor.detach("a", 0).await.unwrap();
    assert_eq!(device_at(&a, 0), None);
    hypervisor.attach("b", 0, &disk).await.unwrap();
    let b = hypervisor.node_root("b").unwrap();
    open.write_all(b"after!").unwrap();
    open.sync_all().unwrap();
    assert_eq!(read_at(&device_at(&b, 0).unwrap(), 0, 6), b"before");
    drop(open);
    hypervisor.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_killed_emulator_starts_again_and_adopts_what_is_still_attached() {
    let Some(root) = Root::new() else { return };
    let (kept, dropped, new) = (disk("kept", MIB), disk("dropped", MIB), disk("new", MIB));
    let hypervisor = root.start(vec![]).await;
    hypervisor.attach("vm", 0, &kept).await.unwrap();
    hypervisor.attach("vm", 1, &dropped).await.unwrap();
    let node = hypervisor.node_root("vm").unwrap();
    let device = device_at(&node, 0).unwrap();
    // No shutdown: the devices stay, as after kill -9. Half-made things lie about, too.
    drop(hypervisor);
    fs::create_dir_all(node.join(".staging/1:0:0:9/device")).unwrap();
    std::os::unix::fs::symlink("nowhere", node.join("dev/loop999")).unwrap();
    std::os::unix::fs::symlink("nowhere", node.join("dev/disk/azure/scsi1/lun9")).unwrap();

    let attached = vec![attachment("vm", 0, &kept), attachment("vm", 2, &new)];
    let hypervisor = root.start(attached).await;
    assert_eq!(device_at(&node, 0).unwrap(), device);
    assert_eq!(device_at(&node, 1), None);
    assert!(device_at(&node, 2).is_some());
    assert_eq!(root.devices().len(), 2);
    assert!(!node.join(".staging/1:0:0:9").exists());
    assert_eq!(contract::names(&node.join("dev/disk/azure/scsi1")).unwrap(), ["lun0", "lun2"]);
    assert!(fs::symlink_metadata(node.join("dev/loop999")).is_err());

    drop(hypervisor);
    let hypervisor = root.start(vec![]).await;
    assert!(root.devices().is_empty());
    assert_eq!(device_at(&node, 0), None);
    hypervisor.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_adopted_disk_can_be_detached_like_any_other() {
    let Some(root) = Root::new() else { return };
    let disk = disk("adopted", MIB);
    let hypervisor = root.start(vec![attachment("vm", 0, &disk)]).await;
    let node = hypervisor.node_root("vm").unwrap();
    drop(hypervisor);
    // Adopted once and detached by order; then adopted again and found unwanted at the next start.
    let hypervisor = root.start(vec![attachment("vm", 0, &disk)]).await;
    hypervisor.detach("vm", 0).await.unwrap();
    assert!(contract::names(&node.join("sys/class/scsi_device")).unwrap().is_empty());
    hypervisor.attach("vm", 0, &disk).await.unwrap();
    drop(hypervisor);
    drop(root.start(vec![attachment("vm", 0, &disk)]).await);
    fs::remove_dir_all(node.join(".staging")).unwrap();
    let hypervisor = root.start(vec![]).await;
    assert!(contract::names(&node.join("sys/class/scsi_device")).unwrap().is_empty());
    assert!(root.devices().is_empty());
    hypervisor.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_second_emulator_on_the_same_root_is_refused() {
    let Some(root) = Root::new() else { return };
    let first = root.start(vec![]).await;
    let error = Hypervisor::start_loop(&root.0, vec![], vec![]).await.unwrap_err();
    assert!(matches!(error, HypervisorError::InUse { .. }), "{error}");
    drop(first);
    root.start(vec![]).await;
}

#[tokio::test]
async fn more_disks_than_the_kernel_has_ready_devices_can_be_attached() {
    let Some(root) = Root::new() else { return };
    let hypervisor = root.start(vec![]).await;
    for lun in 0..12 {
        let disk = disk(&format!("d{lun}"), MIB);
        hypervisor.attach("vm", lun, &disk).await.unwrap();
    }
    assert_eq!(root.devices().len(), 12);
    hypervisor.delete_machine("vm").await.unwrap();
    assert!(root.devices().is_empty());
    assert!(!hypervisor.node_root("vm").unwrap().exists());
}

/// Looks at an entry until the channel closes, and panics when one is there in part. Reports each round in which it has
/// seen the whole entry.
fn report_complete_entries(entry: &Path, round: &AtomicU64, complete: &mpsc::UnboundedSender<u64>) {
    let mut reported = 0;
    while !complete.is_closed() {
        let round = round.load(Ordering::Acquire);
        // An open folder stays the same entry, also when it is renamed away.
        let Ok(open) = fs::File::open(entry) else {
            continue;
        };
        let here = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
        let parts = ["vendor", "model", "rescan", "block"];
        if parts.iter().all(|part| here.join("device").join(part).exists()) {
            if round > reported {
                reported = round;
                // The test may have ended.
                let _ = complete.send(round);
            }
            continue;
        }
        // In part only when it has been taken away in the meantime.
        let path = fs::read_link(&here).unwrap();
        assert!(!path.starts_with(entry), "{}", path.display());
    }
}

#[tokio::test]
async fn a_reader_never_sees_a_part_of_an_entry() {
    let Some(root) = Root::new() else { return };
    let hypervisor = root.start(vec![]).await;
    hypervisor.create_machine("vm", Shown::Scsi).await.unwrap();
    let node = hypervisor.node_root("vm").unwrap();
    let attached = Arc::new(AtomicU64::new(0));
    let (complete, mut seen) = mpsc::unbounded_channel();
    let entry = node.join("sys/class/scsi_device/1:0:0:5");
    let reader = std::thread::spawn({
        let attached = Arc::clone(&attached);
        move || report_complete_entries(&entry, &attached, &complete)
    });
    let disk = disk("flickers", MIB);
    for round in 1..=20 {
        hypervisor.attach("vm", 5, &disk).await.unwrap();
        attached.store(round, Ordering::Release);
        // The reader looks all the time. It ends only by a panic, and then the channel is closed.
        if seen.recv().await != Some(round) {
            break;
        }
        hypervisor.detach("vm", 5).await.unwrap();
    }
    drop(seen);
    reader.join().unwrap();
    assert_eq!(attached.load(Ordering::Acquire), 20);
    assert!(root.devices().is_empty());
}

#[tokio::test]
async fn a_copy_carries_the_content_and_may_be_larger() {
    let Some(root) = Root::new() else { return };
    let hypervisor = root.start(vec![]).await;
    let source = disk("source", MIB);
    hypervisor.attach("vm", 0, &source).await.unwrap();
    let node = hypervisor.node_root("vm").unwrap();
    write_at(&device_at(&node, 0).unwrap(), 512, b"content");
    let copy = disk("copy", 2 * MIB);
    hypervisor.copy_disk(&source.id, &copy).await.unwrap();
    hypervisor.attach("vm", 1, &copy).await.unwrap();
    let device = device_at(&node, 1).unwrap();
    assert_eq!(read_at(&device, 512, 7), b"content");
    let error = hypervisor.copy_disk("/none", &copy).await.unwrap_err();
    assert!(matches!(error, HypervisorError::NoSuchDisk { .. }));
    hypervisor.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_new_disk_of_an_old_name_is_blank() {
    let Some(root) = Root::new() else { return };
    let hypervisor = root.start(vec![]).await;
    let disk = disk("again", MIB);
    hypervisor.attach("vm", 0, &disk).await.unwrap();
    let node = hypervisor.node_root("vm").unwrap();
    write_at(&device_at(&node, 0).unwrap(), 0, b"old");
    hypervisor.detach("vm", 0).await.unwrap();
    hypervisor.create_disk(&disk).await.unwrap();
    hypervisor.attach("vm", 0, &disk).await.unwrap();
    let mut all = Vec::new();
    fs::File::open(device_at(&node, 0).unwrap()).unwrap().read_to_end(&mut all).unwrap();
    assert!(all.iter().all(|byte| *byte == 0));
    hypervisor.detach("vm", 0).await.unwrap();
    hypervisor.delete_disk(&disk.id).await.unwrap();
    hypervisor.delete_disk(&disk.id).await.unwrap();
    assert!(contract::names(&root.0.join("disks")).unwrap().is_empty());
}

#[tokio::test]
async fn a_shared_disk_stays_with_its_other_machine_when_one_loses_it() {
    let Some(root) = Root::new() else { return };
    let hypervisor = root.start(vec![]).await;
    let disk = disk("shared", MIB);
    hypervisor.attach("a", 0, &disk).await.unwrap();
    hypervisor.attach("b", 0, &disk).await.unwrap();
    let (a, b) = (hypervisor.node_root("a").unwrap(), hypervisor.node_root("b").unwrap());
    let open = fs::File::open(device_at(&a, 0).unwrap()).unwrap();
    hypervisor.detach("a", 0).await.unwrap();
    write_at(&device_at(&b, 0).unwrap(), 0, b"b wrote");
    hypervisor.detach("b", 0).await.unwrap();
    drop(open);
    hypervisor.attach("a", 0, &disk).await.unwrap();
    assert_eq!(read_at(&device_at(&a, 0).unwrap(), 0, 7), b"b wrote");
    hypervisor.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_machine_name_that_leaves_the_root_is_refused() {
    let Some(root) = Root::new() else { return };
    let hypervisor = root.start(vec![]).await;
    for name in ["", "..", "a/b"] {
        let error = hypervisor.create_machine(name, Shown::Scsi).await.unwrap_err();
        assert!(matches!(error, HypervisorError::MachineName { .. }));
    }
}

/// A VHD of so many bytes and a footer, in a folder of others.
fn vhd(root: &Root, size_bytes: u64) -> (PathBuf, DiskFacts) {
    let folder = root.0.join("others");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("1.blob");
    let file = fs::File::create_new(&path).unwrap();
    file.set_len(size_bytes).unwrap();
    file.write_all_at(b"conectix", size_bytes).unwrap();
    file.set_len(size_bytes + 512).unwrap();
    let id = "https://a.blob.core.windows.net/vhds/x.vhd".to_owned();
    (path.clone(), DiskFacts { id, unique_id: String::new(), size_bytes, file: Some(path) })
}

#[tokio::test]
async fn a_vhd_is_a_disk_up_to_its_footer_and_its_file_is_let_go_with_it() {
    let Some(root) = Root::new() else { return };
    let hypervisor = root.start(vec![]).await;
    let (file, disk) = vhd(&root, MIB);
    hypervisor.attach("a", 0, &disk).await.unwrap();
    hypervisor.attach("a", 0, &disk).await.unwrap();
    assert_eq!((root.devices().len(), contract::names(&root.0.join("lent")).unwrap().len()), (1, 1));
    let a = hypervisor.node_root("a").unwrap();
    let device = device_at(&a, 0).unwrap();
    assert_eq!(fs::File::open(&device).unwrap().seek(SeekFrom::End(0)).unwrap(), MIB);
    write_at(&device, MIB - 4, b"last");
    assert_eq!(read_at(&file, MIB - 4, 12), b"lastconectix");
    // Another disk at this LUN is none that is taken away; what is still open is written to no one.
    hypervisor.withdraw("a", 0, &self::disk("other", MIB)).await.unwrap();
    let open = fs::OpenOptions::new().write(true).open(&device).unwrap();
    hypervisor.withdraw("a", 0, &disk).await.unwrap();
    assert_eq!(device_at(&a, 0), None);
    open.write_all_at(b"lost", 0).unwrap();
    open.sync_all().unwrap();
    assert_eq!((read_at(&file, 0, 4), read_at(&file, MIB - 4, 12)), (vec![0; 4], b"lastconectix".to_vec()));
    drop(open);
    assert!(contract::names(&root.0.join("lent")).unwrap().is_empty());
    hypervisor.shutdown().await.unwrap();
    assert!(contract::names(&root.0.join("disks")).unwrap().is_empty());
}

#[tokio::test]
async fn a_killed_emulator_lets_go_of_a_vhd_that_no_machine_shows_yet() {
    let Some(root) = Root::new() else { return };
    let hypervisor = root.start(vec![]).await;
    let (file, disk) = vhd(&root, MIB);
    hypervisor.attach("a", 0, &disk).await.unwrap();
    let entry = hypervisor.node_root("a").unwrap().join("sys/class/scsi_device/1:0:0:0");
    drop(hypervisor);
    // Killed between the device and its entry.
    fs::remove_dir_all(entry).unwrap();
    let hypervisor = root.start(vec![]).await;
    assert!(root.devices().is_empty() && contract::names(&root.0.join("lent")).unwrap().is_empty());
    assert_eq!(read_at(&file, MIB, 8), b"conectix");
    hypervisor.shutdown().await.unwrap();
}

/// Every way in which a machine shows its disks by NVMe.
const NVME: [Shown; 4] = [
    Shown::Nvme { multipath: false, system: true },
    Shown::Nvme { multipath: false, system: false },
    Shown::Nvme { multipath: true, system: true },
    Shown::Nvme { multipath: true, system: false },
];

fn machine(name: &str, shown: Shown) -> Machine {
    Machine { name: name.to_owned(), shown }
}

/// The namespaces of the controller of remote disks that have a block device: the id, and the name.
fn namespaces(node: &Path, shown: Shown) -> Vec<(u8, String)> {
    let controller = node.join("sys/class/nvme/nvme0");
    let Shown::Nvme { multipath, .. } = shown else { panic!("SCSI") };
    let folder = if multipath { node.join("sys/class/nvme-subsystem/nvme-subsys0") } else { controller.clone() };
    let nsid = |folder: &Path| fs::read_to_string(folder.join("nsid")).unwrap().trim().parse::<u8>().unwrap();
    let names = |folder: &Path| contract::names(folder).unwrap();
    let heads: Vec<(u8, String)> = names(&folder)
        .into_iter()
        .filter(|name| name.starts_with("nvme0n"))
        .map(|name| (nsid(&folder.join(&name)), name))
        .collect();
    let paths = names(&controller).into_iter().filter(|name| name.starts_with("nvme0c0n"));
    let paths: Vec<u8> = paths.map(|name| nsid(&controller.join(name))).collect();
    if multipath {
        assert_eq!(paths, heads.iter().map(|(nsid, _)| *nsid).collect::<Vec<_>>());
        assert!(folder.join("nvme0/model").is_file());
    } else {
        assert!(paths.is_empty() && !node.join("sys/class/nvme-subsystem").exists());
    }
    let mut heads = heads;
    heads.sort_unstable();
    heads
}

#[tokio::test]
async fn a_disk_that_comes_by_nvme_shows_all_that_the_contract_names() {
    let Some(root) = Root::new() else { return };
    let machines = NVME.iter().enumerate().map(|(n, shown)| machine(&format!("vm-{n}"), *shown)).collect();
    let hypervisor = Hypervisor::start_loop(&root.0, machines, vec![]).await.unwrap();
    for (n, shown) in NVME.into_iter().enumerate() {
        let vm = format!("vm-{n}");
        let disks: Vec<DiskFacts> = (0..3).map(|lun| disk(&format!("d-{n}-{lun}"), 8 * MIB)).collect();
        // The last first: the kernel's numbers follow the order in which disks come, the ids do not.
        for lun in [2, 0] {
            hypervisor.create_disk(&disks[lun]).await.unwrap();
            hypervisor.attach(&vm, u8::try_from(lun).unwrap(), &disks[lun]).await.unwrap();
        }
        let node = hypervisor.node_root(&vm).unwrap();
        let text = |file: &str| fs::read_to_string(node.join(file)).unwrap();
        assert_eq!(text("sys/class/nvme/nvme0/model"), format!("{:<40}\n", "MSFT NVMe Accelerator v1.0"));
        assert_eq!(text("sys/class/nvme/nvme1/model"), format!("{:<40}\n", "Microsoft NVMe Direct Disk v2"));
        assert_eq!(text("sys/class/nvme/nvme0/state"), "live\n");
        assert!(node.join("sys/class/nvme/nvme0/rescan_controller").is_file());
        let Shown::Nvme { system, .. } = shown else { panic!("SCSI") };
        let (first, offset, boots) = if system { (2, 2, "nvme0n1p1") } else { (1, 1, "nvme1n1p1") };
        assert!(text("proc/cmdline").contains(&format!("root=/dev/{boots} ")));
        assert_eq!(text(&format!("sys/class/block/{boots}/partition")), "1\n");
        let mut expected = vec![(offset, format!("nvme0n{}", first + 1)), (2 + offset, format!("nvme0n{first}"))];
        if system {
            expected.insert(0, (1, "nvme0n1".to_owned()));
        }
        assert_eq!(namespaces(&node, shown), expected, "{shown:?}");
        for (lun, name) in [(0, format!("nvme0n{}", first + 1)), (2, format!("nvme0n{first}"))] {
            assert_eq!(text(&format!("sys/class/block/{name}/size")).trim(), (8 * MIB / 512).to_string());
            write_at(&node.join("dev").join(&name), 0, format!("lun {lun}").as_bytes());
        }
        for part in ["sys/class/scsi_device", "dev/disk"] {
            assert!(!node.join(part).exists(), "{part}");
        }

        // A disk that grows, goes and comes, with the number that is free by then.
        hypervisor.resize(&DiskFacts { size_bytes: 16 * MIB, ..disks[2].clone() }).await.unwrap();
        assert_eq!(text(&format!("sys/class/block/nvme0n{first}/size")).trim(), (16 * MIB / 512).to_string());
        hypervisor.detach(&vm, 2).await.unwrap();
        assert!(!node.join(format!("dev/nvme0n{first}")).exists());
        hypervisor.create_disk(&disks[1]).await.unwrap();
        hypervisor.attach(&vm, 1, &disks[1]).await.unwrap();
        let found = namespaces(&node, shown);
        assert!(found.contains(&(1 + offset, format!("nvme0n{first}"))), "{found:?}");
        assert_eq!(read_at(&node.join(format!("dev/nvme0n{}", first + 1)), 0, 5), b"lun 0");
        hypervisor.delete_machine(&vm).await.unwrap();
        assert!(!node.exists());
    }
    assert_eq!(root.devices(), Vec::<String>::new());
}

#[tokio::test]
async fn a_namespace_that_appears_goes_or_grows_is_an_event_of_its_controller() {
    let Some(root) = Root::new() else { return };
    for (n, shown) in NVME.into_iter().enumerate() {
        let vm = format!("vm-{n}");
        let hypervisor = Hypervisor::start_loop(&root.0, vec![machine(&vm, shown)], vec![]).await.unwrap();
        let node = hypervisor.node_root(&vm).unwrap();
        let controller = node.join("sys/class/nvme/nvme0");
        let disk = disk(&format!("d-{n}"), 8 * MIB);
        hypervisor.create_disk(&disk).await.unwrap();
        hypervisor.attach(&vm, 5, &disk).await.unwrap();
        let entry = |name: &String| name.starts_with("nvme0") && !name.ends_with("n1");
        let is_sole = namespaces(&node, shown).len() == 1;
        let entries = contract::names(&controller).unwrap();
        let entry = entries.iter().find(|name| entry(name) || (is_sole && name.starts_with("nvme0"))).unwrap();
        let times = || fs::metadata(controller.join(entry)).unwrap().modified().unwrap();
        let before = times();
        tokio::time::sleep(Duration::from_millis(20)).await;
        hypervisor.resize(&DiskFacts { size_bytes: 16 * MIB, ..disk.clone() }).await.unwrap();
        assert!(times() > before, "{shown:?}");
        // Killed, and started again with the disk attached: it is adopted as it is.
        let devices = root.devices();
        drop(hypervisor);
        let grown = DiskFacts { size_bytes: 16 * MIB, ..disk.clone() };
        let attached = vec![attachment(&vm, 5, &grown)];
        let hypervisor = Hypervisor::start_loop(&root.0, vec![machine(&vm, shown)], attached).await.unwrap();
        assert_eq!(root.devices(), devices);
        assert!(controller.join(entry).exists());
        // Started again as a machine with SCSI, it shows its disk so.
        drop(hypervisor);
        let attached = vec![attachment(&vm, 5, &grown)];
        let hypervisor = Hypervisor::start_loop(&root.0, vec![machine(&vm, Shown::Scsi)], attached).await.unwrap();
        assert!(!node.join("sys/class/nvme").exists());
        assert!(device_at(&node, 5).is_some());
        hypervisor.shutdown().await.unwrap();
    }
}
