//! The bytes of snapshots and copies, in the files of the loop hypervisor. They need root and say so when they skip.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::snapshots::{incremental, of, snapshot_id};
use super::*;
use crate::options::HypervisorChoice;

const GIB: u64 = 1 << 30;

/// A folder for the hypervisor.
struct Root(PathBuf);

impl Root {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("lazuli-disk-data-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// The file of a disk or snapshot.
    fn file(&self, name: &str) -> PathBuf {
        let files = std::fs::read_dir(self.0.join("disks")).unwrap().map(|entry| entry.unwrap().path());
        let is_of = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(&format!("{name}-"));
        files.into_iter().find(is_of).unwrap()
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn write(file: &Path, offset: u64, text: &[u8]) {
    std::fs::OpenOptions::new().write(true).open(file).unwrap().write_all_at(text, offset).unwrap();
}

fn read(file: &Path, offset: u64) -> [u8; 5] {
    let mut bytes = [0; 5];
    std::fs::File::open(file).unwrap().read_exact_at(&mut bytes, offset).unwrap();
    bytes
}

fn length(file: &Path) -> u64 {
    std::fs::metadata(file).unwrap().len()
}

/// An emulator with files, where loop devices can be had.
async fn with_files(root: &Root) -> Option<Rig> {
    let options = Options { hypervisor: HypervisorChoice::Loop(root.0.clone()), ..slow() };
    match Emulator::start(options).await {
        Ok(emulator) => Some(Rig { router: emulator.service(), token: emulator.control().token(), emulator }),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

async fn make(rig: &Rig, name: &str, body: Value) {
    let got = rig.put_disk(name, body).await.expect(202);
    assert_eq!(rig.finish(&got).await["status"], "Succeeded");
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_and_what_is_made_of_it_have_the_bytes_of_the_moment_of_the_request() {
    let root = Root::new("moment");
    let Some(rig) = with_files(&root).await else { return };
    make(&rig, "source", premium(1)).await;
    let last = GIB - 5;
    for offset in [0, last] {
        write(&root.file("source"), offset, b"first");
    }
    let got = rig.put_snapshot("snap", incremental(&disk_id("source"))).await.expect(202);
    // The operation runs for some seconds more, and the disk is written meanwhile.
    tokio::time::sleep(Duration::from_millis(100)).await;
    write(&root.file("source"), 0, b"later");
    assert_eq!(rig.finish(&got).await["status"], "Succeeded");
    assert_eq!(read(&root.file("snap"), 0), *b"first");

    let mut larger = premium(3);
    larger["properties"]["creationData"] = of(&snapshot_id("snap"))["properties"]["creationData"].clone();
    make(&rig, "larger", larger).await;
    let mut clone = premium(1);
    clone["properties"] = of(&disk_id("source"))["properties"].clone();
    make(&rig, "clone", clone).await;
    let mut again = incremental(&snapshot_id("snap"));
    again["properties"]["incremental"] = json!(false);
    rig.snapshot("again", again).await;
    for (name, begins, gib) in [
        ("snap", b"first", 1),
        ("larger", b"first", 3),
        ("clone", b"later", 1),
        ("again", b"first", 1),
        ("source", b"later", 1),
    ] {
        let file = root.file(name);
        assert_eq!((&read(&file, 0), read(&file, last), length(&file)), (begins, *b"first", gib * GIB), "{name}");
    }
    // What is beyond the source's end is empty, and a copy changes neither source nor snapshot.
    assert_eq!(read(&root.file("larger"), GIB), [0; 5]);
    write(&root.file("larger"), 0, b"other");
    assert_eq!((read(&root.file("snap"), 0), read(&root.file("source"), 0)), (*b"first", *b"later"));
    rig.emulator.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_keeps_its_bytes_when_its_disk_is_gone_and_its_copies_when_it_is() {
    let root = Root::new("outlives");
    let Some(rig) = with_files(&root).await else { return };
    make(&rig, "source", premium(1)).await;
    write(&root.file("source"), 4096, b"first");
    rig.snapshot("snap", incremental(&disk_id("source"))).await;
    let got = rig.call("DELETE", &disk_uri("source"), None).await.expect(202);
    rig.finish(&got).await;
    let mut copy = premium(1);
    copy["properties"] = of(&snapshot_id("snap"))["properties"].clone();
    make(&rig, "copy", copy).await;
    let got = rig.delete_snapshot("snap").await.expect(202);
    rig.finish(&got).await;
    assert_eq!(read(&root.file("copy"), 4096), *b"first");
    assert_eq!(std::fs::read_dir(root.0.join("disks")).unwrap().count() - os_disks(&root), 1);
    rig.emulator.shutdown().await;
}

/// How many files are of the machines' own disks.
fn os_disks(root: &Root) -> usize {
    let names = std::fs::read_dir(root.0.join("disks")).unwrap().map(|entry| entry.unwrap().file_name());
    names
        .filter(|name| !["copy-", "snap-", "source-"].iter().any(|own| name.to_str().unwrap().starts_with(own)))
        .count()
}
