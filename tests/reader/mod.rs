//! What a machine must show to the reader of its disks, whatever plugs them: the test of the written contract in the
//! emulator's `hypervisor`. It runs on folders with loop devices and in a guest with a kernel of its own.
//!
//! What is found is compared with what is written on the disks, so that it is no matter how they are plugged.

use std::{collections::BTreeMap, fs::File, os::unix::fs::FileExt as _, path::Path, time::Duration};

mod look;

use lazuli_host::{Deadline, Host};
pub(crate) use look::{Found, NAME_AT, NAME_LENGTH};

/// The size of every disk.
pub(crate) const SIZE: u64 = 1 << 30;
/// The LUNs that are looked at.
const LUNS: std::ops::Range<u32> = 0..8;

/// A machine whose disks this test plugs.
pub(crate) trait Machine {
    /// Makes a blank disk of [`SIZE`] bytes with its name at [`NAME_AT`], as [`name_disk`] writes it, and plugs it.
    async fn plug(&self, name: &str, lun: u8);
    /// Takes a disk away without asking the machine, and deletes it.
    async fn pull(&self, name: &str, lun: u8);
    /// Waits until there are disks at these LUNs, as the node does, and at none of the others; gives the disks.
    async fn find(&self, there: &[u32], not_there: &[u32]) -> BTreeMap<u32, Found>;
}

/// What a disk has at [`NAME_AT`].
pub(crate) fn name_of_disk(name: &str) -> String {
    format!("{name:<NAME_LENGTH$}")
}

/// Writes its name on a disk.
pub(crate) fn name_disk(file: &Path, name: &str) {
    let file = File::options().write(true).open(file).unwrap();
    file.write_all_at(name_of_disk(name).as_bytes(), NAME_AT).unwrap();
    file.sync_all().unwrap();
}

/// Finds disks of this machine below a root.
pub(crate) async fn find(root: &Path, there: &[u32], not_there: &[u32]) -> BTreeMap<u32, Found> {
    look::look(&Host::new().with_root(root), there, not_there, || Deadline::after(Duration::from_secs(60))).await
}

/// Each disk is found at its LUN, with its size, whatever came before it and whatever has left.
pub(crate) async fn each_disk_is_found_at_its_lun(machine: &impl Machine, name: &str) {
    let mut there: BTreeMap<u32, String> = BTreeMap::new();
    let check = async |there: &BTreeMap<u32, String>| {
        let luns: Vec<u32> = there.keys().copied().collect();
        let others: Vec<u32> = LUNS.filter(|lun| !luns.contains(lun)).collect();
        let found = machine.find(&luns, &others).await;
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), luns);
        for (lun, disk) in found {
            assert_eq!(disk.name, there[&lun], "LUN {lun}: {disk:?}");
            assert!(disk.bytes == SIZE && disk.is_certain, "LUN {lun}: {disk:?}");
        }
    };
    for (lun, letter) in [(5, "e"), (0, "a"), (2, "c"), (1, "b")] {
        let name = format!("{name}-{letter}");
        machine.plug(&name, lun).await;
        there.insert(u32::from(lun), name);
        check(&there).await;
    }
    // One leaves, and the next gets its name of the kernel at another LUN.
    machine.pull(&there.remove(&5).unwrap(), 5).await;
    check(&there).await;
    let name = format!("{name}-g");
    machine.plug(&name, 7).await;
    there.insert(7, name);
    check(&there).await;
    for (lun, name) in &there {
        machine.pull(name, u8::try_from(*lun).unwrap()).await;
    }
    check(&BTreeMap::new()).await;
}
