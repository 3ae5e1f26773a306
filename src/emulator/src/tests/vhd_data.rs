//! The bytes of VHDs, on the loop devices of their machines. They need root and say so when they skip.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::blobs::{Blobs, plain};
use super::state_file::Folder;
use super::storage_accounts::account_id;
use super::vhds::{blob_element, empty_element, uri};
use super::*;
use crate::StartError;
use crate::hypervisor::HypervisorError;
use crate::options::HypervisorChoice;
use crate::persist::StateFileError;

const GIB: u64 = 1 << 30;

/// A folder for the hypervisor.
struct Root(PathBuf);

impl Root {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("lazuli-vhd-data-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn hypervisor(&self) -> HypervisorChoice {
        HypervisorChoice::Loop(self.0.clone())
    }
}

impl Drop for Root {
    /// A test that fails leaves devices.
    fn drop(&mut self) {
        let notes = fs::read_dir(self.0.join("lent")).into_iter().flatten().flatten();
        let lent: Vec<PathBuf> = notes.filter_map(|note| fs::read_link(note.path()).ok()).collect();
        for (device, _) in backing_files().into_iter().filter(|(_, file)| lent.contains(file)) {
            let _ = std::process::Command::new("losetup").arg("--detach").arg(device).status();
        }
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Options with two machines whose system disk is a blob, and their devices.
fn on_devices(options: Options, root: &Root) -> Options {
    let mut options = Options { hypervisor: root.hypervisor(), ..options };
    let mut old = VirtualMachine::pattern("old-{}", 2);
    old.os_disk.storage_account = Some("vhds1".to_owned());
    options.scenario.virtual_machines = vec![old];
    options
}

/// An emulator with devices, where loop devices can be had.
async fn rig(options: Options) -> Option<Rig> {
    match start(options).await {
        Ok(emulator) => Some(Rig { router: emulator.service(), token: emulator.control().token(), emulator }),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

/// Starts when what was killed has gone. A program that another test is about to start has its lock for a moment.
async fn start(options: Options) -> Result<Emulator, StartError> {
    for _ in 0..100 {
        match Emulator::start(options.clone()).await {
            Err(
                StartError::Hypervisor(HypervisorError::InUse { .. }) | StartError::State(StateFileError::InUse { .. }),
            ) => {
                std::thread::sleep(Duration::from_millis(20));
            }
            started => return started,
        }
    }
    Emulator::start(options).await
}

async fn cloud(root: &Root) -> Option<Blobs> {
    let blobs = Blobs::of(rig(on_devices(slow(), root)).await?, plain()).await;
    blobs.container().await;
    Some(blobs)
}

impl Blobs {
    /// The device of a machine at a LUN, as its node finds it.
    fn device(&self, vm: &str, lun: u8) -> Option<PathBuf> {
        let node = self.rig.emulator.hypervisor().node_root(vm).unwrap();
        let block = node.join(format!("sys/class/scsi_device/1:0:0:{lun}/device/block"));
        let name = fs::read_dir(block).ok()?.next()?.ok()?.file_name();
        Some(node.join("dev").join(name))
    }

    async fn attached(&self, vm: &str, elements: Value) {
        let ended = self.rig.write_blobs(vm, elements).await;
        assert_eq!(ended["status"], "Succeeded", "{ended}");
    }

    async fn text(&self, name: &str, at: u64) -> String {
        String::from_utf8(self.read(name, &format!("bytes={at}-{}", at + 4)).await).unwrap()
    }

    async fn lease_state(&self, name: &str) -> String {
        self.head(name).await.header("x-ms-lease-state").to_owned()
    }
}

/// Writes to a device as a node does that unmounts it.
fn write(device: &Path, at: u64, text: &[u8]) {
    let file = OpenOptions::new().write(true).open(device).unwrap();
    file.write_all_at(text, at).unwrap();
    file.sync_all().unwrap();
}

/// Tells a device that its bytes are no longer needed, as a file system does.
fn discard(device: &Path, at: u64, length: u64) {
    let [at, length] = [at, length].map(|number| number.to_string());
    let mut program = std::process::Command::new("blkdiscard");
    let ended = program.args(["--offset", &at, "--length", &length]).arg(fs::canonicalize(device).unwrap()).status();
    assert!(ended.unwrap().success());
}

fn read(device: &Path, at: u64) -> String {
    let mut bytes = [0; 5];
    File::open(device).unwrap().read_exact_at(&mut bytes, at).unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn size(device: &Path) -> u64 {
    use std::io::{Seek, SeekFrom};
    File::open(device).unwrap().seek(SeekFrom::End(0)).unwrap()
}

/// All loop devices with their files.
fn backing_files() -> Vec<(PathBuf, PathBuf)> {
    let devices = fs::read_dir("/sys/class/block").unwrap().map(|entry| entry.unwrap());
    let with_file = devices.filter_map(|device| {
        let file = fs::read_to_string(device.path().join("loop/backing_file")).ok()?;
        Some((Path::new("/dev").join(device.file_name()), PathBuf::from(file.trim_end())))
    });
    with_file.collect()
}

/// How many loop devices have files of a folder.
fn bound(folder: &Path) -> usize {
    let folder = fs::canonicalize(folder).unwrap();
    backing_files().iter().filter(|(_, file)| file.starts_with(&folder)).count()
}

fn sha256(file: &Path, most: u64) -> String {
    use std::io::Read;
    let (mut file, mut sum) = (File::open(file).unwrap().take(most), ring::digest::Context::new(&ring::digest::SHA256));
    let mut bytes = vec![0; 1 << 20];
    loop {
        match file.read(&mut bytes).unwrap() {
            0 => break,
            length => sum.update(&bytes[..length]),
        }
    }
    sum.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test(start_paused = true)]
async fn what_a_machine_writes_is_what_the_blob_service_reads() {
    let root = Root::new("written");
    let Some(blobs) = cloud(&root).await else { return };
    blobs.attached("old-0", json!([empty_element("a.vhd", 3, 1)])).await;
    let device = blobs.device("old-0", 3).unwrap();
    assert_eq!(size(&device), GIB, "the footer is no part of the disk");
    assert_eq!(blobs.ranges("a.vhd").await, [(GIB, GIB + 511)]);
    let before = blobs.head("a.vhd").await.header("etag").to_owned();
    assert_eq!(blobs.head("a.vhd").await.header("etag"), before);
    tokio::time::sleep(Duration::from_secs(60)).await;
    write(&device, 0, b"begin");
    write(&device, 1 << 20, &[7; 4096]);
    write(&device, GIB - 5, b"ended");
    assert_eq!((blobs.text("a.vhd", 0).await, blobs.text("a.vhd", GIB - 5).await), ("begin".into(), "ended".into()));
    let head = blobs.head("a.vhd").await;
    assert_ne!(head.header("etag"), before);
    assert_eq!(blobs.head("a.vhd").await.header("etag"), head.header("etag"));
    let expected = [(0, 4095), (1 << 20, (1 << 20) + 4095), (GIB - 4096, GIB + 511)];
    assert_eq!(blobs.ranges("a.vhd").await, expected);
    discard(&device, 1 << 20, 4096);
    let expected = [expected[0], expected[2]];
    assert_eq!(blobs.ranges("a.vhd").await, expected);
    let taken = blobs.send("PUT", "/vhds/a.vhd?comp=snapshot", &[], b"").await.expect(201);
    let snapshot = taken.header("x-ms-snapshot").to_owned();
    assert!(blobs.read("a.vhd", &format!("bytes={GIB}-{}", GIB + 511)).await.starts_with(b"conectix"));
    write(&device, 0, b"later");
    blobs.attached("old-0", json!([])).await;
    assert_eq!(blobs.device("old-0", 3), None);
    assert_eq!(blobs.lease_state("a.vhd").await, "available");
    assert_eq!(blobs.ranges("a.vhd").await, expected);
    let of_snapshot = format!("/vhds/a.vhd?snapshot={snapshot}");
    let told = blobs.send("GET", &of_snapshot, &[("x-ms-range", "bytes=0-4")], b"").await.expect(206);
    assert_eq!(told.bytes(), b"begin");
    blobs.attached("old-1", json!([blob_element("a.vhd", 0)])).await;
    assert_eq!(read(&blobs.device("old-1", 0).unwrap(), 0), "later");
    blobs.rig.emulator.shutdown().await;
    assert_eq!(fs::read_dir(root.0.join("lent")).unwrap().count(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_the_blob_service_has_written_is_on_the_device() {
    let root = Root::new("uploaded");
    let Some(blobs) = cloud(&root).await else { return };
    blobs.attached("old-0", json!([empty_element("from.vhd", 0, 1)])).await;
    blobs.attached("old-0", json!([])).await;
    let footer = blobs.read("from.vhd", &format!("bytes={GIB}-{}", GIB + 511)).await;
    blobs.page_blob("a.vhd", GIB + 512).await;
    blobs.put_page("a.vhd", 512, &[b'x'; 512], &[]).await.expect(201);
    blobs.put_page("a.vhd", GIB, &footer, &[]).await.expect(201);
    blobs.attached("old-0", json!([blob_element("a.vhd", 7)])).await;
    let device = blobs.device("old-0", 7).unwrap();
    assert_eq!((size(&device), read(&device, 512)), (GIB, "xxxxx".to_owned()));
    // The exact pages are known as long as the machine has written none.
    assert_eq!(blobs.ranges("a.vhd").await, [(512, 1023), (GIB, GIB + 511)]);
    blobs.rig.emulator.shutdown().await;
}

/// The device of one machine is never that of another, also not for a while.
#[tokio::test(start_paused = true)]
async fn a_write_that_fails_leaves_no_device_and_no_lease() {
    let root = Root::new("failed");
    let Some(blobs) = cloud(&root).await else { return };
    blobs.attached("old-0", json!([empty_element("a.vhd", 0, 1)])).await;
    let device = blobs.device("old-0", 0).unwrap();
    let both = json!([empty_element("b.vhd", 1, 1), blob_element("a.vhd", 0)]);
    let got = blobs.rig.put_data_disks("old-1", both).await.expect(200);
    while blobs.rig.control().running_operations() > 0 {
        assert_eq!(blobs.device("old-1", 0), None);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let failed = blobs.rig.finish(&got).await;
    assert_eq!(failed["error"]["code"], "DiskBlobAlreadyInUseByAnotherDisk", "{failed}");
    for _ in 0..500 {
        if blobs.lease_state("b.vhd").await == "available" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(blobs.lease_state("b.vhd").await, "available");
    assert_eq!((blobs.device("old-1", 1), blobs.device("old-1", 0)), (None, None));
    assert_eq!((blobs.device("old-0", 0), blobs.lease_state("a.vhd").await), (Some(device), "leased".to_owned()));
    blobs.rig.emulator.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_goes_leaves_its_blobs_without_lease_and_device() {
    let root = Root::new("deleted");
    let Some(blobs) = cloud(&root).await else { return };
    blobs.attached("old-0", json!([empty_element("a.vhd", 0, 1)])).await;
    write(&blobs.device("old-0", 0).unwrap(), 0, b"bytes");
    let gone = blobs.rig.call("DELETE", &vm_uri("old-0"), None).await.expect(202);
    blobs.rig.finish(&gone).await;
    assert_eq!(blobs.device("old-0", 0), None);
    assert_eq!((blobs.lease_state("a.vhd").await, blobs.text("a.vhd", 0).await), ("available".into(), "bytes".into()));
    blobs.send("DELETE", "/vhds/a.vhd", &[], b"").await.expect(202);
    blobs.rig.emulator.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_imported_disk_has_the_bytes_that_a_machine_wrote_and_no_footer() {
    let root = Root::new("imported");
    let Some(blobs) = cloud(&root).await else { return };
    blobs.attached("old-0", json!([empty_element("a.vhd", 0, 1)])).await;
    let device = blobs.device("old-0", 0).unwrap();
    for at in [0, 5 << 20, GIB - 4096] {
        write(&device, at, &[at.to_le_bytes(); 512].concat());
    }
    let expected = sha256(&device, GIB);
    for (name, gib) in [("same", 1), ("larger", 2)] {
        let body = json!({"location": "westeurope", "sku": {"name": "Premium_LRS"}, "properties": {
            "diskSizeGB": gib, "creationData": {
                "createOption": "Import", "sourceUri": uri("a.vhd"), "storageAccountId": account_id("vhds1"),
            },
        }});
        let got = blobs.rig.put_disk(name, body).await.expect(202);
        assert_eq!(blobs.rig.finish(&got).await["status"], "Succeeded");
        let files = fs::read_dir(root.0.join("disks")).unwrap().map(|entry| entry.unwrap().path());
        let is_of = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(&format!("{name}-"));
        let file = files.into_iter().find(is_of).unwrap();
        let facts = fs::metadata(&file).unwrap();
        assert_eq!((facts.len(), sha256(&file, GIB)), (gib * GIB, expected.clone()), "{name}");
        assert!(std::os::unix::fs::MetadataExt::blocks(&facts) * 512 < 1 << 20, "it is sparse");
        let mut beyond = vec![0; usize::try_from(gib * GIB - GIB).unwrap().min(512)];
        File::open(&file).unwrap().read_exact_at(&mut beyond, GIB).unwrap();
        assert!(beyond.iter().all(|byte| *byte == 0), "{name} has the footer");
    }
    blobs.rig.emulator.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_killed_emulator_starts_again_with_the_devices_of_its_blobs() {
    let (root, folder) = (Root::new("killed"), Folder::new("vhd-data"));
    let options = || on_devices(folder.options(), &root);
    let Some(first) = rig(options()).await else { return };
    let blobs = Blobs::of(first, plain()).await;
    blobs.container().await;
    blobs.attached("old-0", json!([empty_element("a.vhd", 4, 1), empty_element("b.vhd", 5, 1)])).await;
    let device = blobs.device("old-0", 4).unwrap();
    let before = blobs.head("a.vhd").await.header("etag").to_owned();
    // Written soon after each change; dropped as by a kill.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let Blobs { rig: killed, key } = blobs;
    drop(killed);
    tokio::time::sleep(Duration::from_secs(2)).await;
    write(&device, 0, b"while");
    let blobs = Blobs { rig: rig(options()).await.unwrap(), key };
    assert_eq!(blobs.device("old-0", 4), Some(device.clone()));
    assert_ne!(blobs.head("a.vhd").await.header("etag"), before);
    assert_eq!(blobs.text("a.vhd", 0).await, "while");
    blobs.attached("old-0", json!([empty_element("a.vhd", 4, 1)])).await;
    assert_eq!((blobs.device("old-0", 5), blobs.lease_state("b.vhd").await), (None, "available".to_owned()));
    write(&device, 0, b"again");
    assert_eq!(bound(folder.path()), 1);
    let Blobs { rig: Rig { emulator, router, .. }, key } = blobs;
    emulator.shutdown().await;
    // It has the root, too.
    drop(router);
    assert_eq!((bound(folder.path()), fs::read_dir(root.0.join("lent")).unwrap().count()), (0, 0));
    let blobs = Blobs { rig: rig(options()).await.unwrap(), key };
    assert_eq!(read(&blobs.device("old-0", 4).unwrap(), 0), "again");
    blobs.rig.emulator.shutdown().await;
}
