//! Giving a copied btrfs an id of its own.
//!
//! The kernel tells btrfs devices apart by the id in their superblock alone, so two copies of one btrfs cannot be used on
//! one machine. Since Linux 5.0 that id may differ from the one in the blocks of the trees: then the feature `METADATA_UUID`
//! is set, and the superblock has the old id in a field of its own. So the copies of the superblock are all that is written,
//! and neither a tree nor the log needs to be read (source: the kernel's on-disk format of btrfs).
//!
//! # Crashes
//!
//! The copies are written one after the other, each as one block and flushed, the one that the kernel mounts by as the last.
//! Until then the btrfs has its old id, and from then on its new one. A copy that has another id than that one is used by no
//! mount, and the next run writes it again. `btrfstune -m` marks the superblock for the time of the change; a run that was
//! cut leaves the mark, and then the kernel mounts the btrfs no more.
//!
//! The id is made from the volume's, so a repeated run ends with the same one on whatever node.

use lazuli_model::VolumeId;
use lazuli_staging::stage::OwnFsid;
use uuid::Uuid;

use crate::{
    Host,
    device::Device,
    raw::{Access, BLOCK, RawDisk, RawError},
};

/// Where the copies of the superblock are, in bytes; the kernel mounts by the first.
const PLACES: [u64; 3] = [64 << 10, 64 << 20, 256 << 30];

/// Name space of the ids; a random constant of this format.
const NAME_SPACE: Uuid = Uuid::from_u128(0x6a0b_93f1_2d6c_4d29_b8f7_51e0_c94a_3be8);

/// Offsets in the superblock, in bytes.
const FSID: usize = 0x20;
const BYTENR: usize = 0x30;
const FLAGS: usize = 0x38;
const MAGIC: usize = 0x40;
const DEVICES: usize = 0x88;
const INCOMPAT: usize = 0xBC;
const CHECKSUM_TYPE: usize = 0xC4;
const METADATA_UUID: usize = 0x23B;

/// The feature that the superblock has another id than the trees.
const HAS_METADATA_UUID: u64 = 1 << 10;
/// A change of the id that was not finished, in either of the ways in which `btrfstune` makes one.
const CHANGING: u64 = 1 << 35 | 1 << 36;
/// The btrfs is what others are grown from, and must not change.
const SEEDING: u64 = 1 << 32;

/// The id of a volume's btrfs where its disk was made from another. Ids that differ only in letter case are of one volume.
#[must_use]
pub fn own(volume: &str) -> String {
    Uuid::new_v5(&NAME_SPACE, VolumeId::fold(volume).as_bytes()).to_string()
}

/// Gives the btrfs on a device this id. It must not be mounted: the device is claimed.
///
/// # Errors
/// See [`RawError`]. The btrfs has its old id or the new one then, and can be mounted in either case.
pub async fn give(host: &Host, device: &Device, fsid: &str) -> Result<OwnFsid, RawError> {
    // What a kernel has that has btrfs; none of it where its module is not loaded yet (source: the kernel's btrfs sysfs
    // interface).
    let features = host.sys().join("fs/btrfs/features");
    if features.exists() && !features.join("metadata_uuid").exists() {
        return Ok(OwnFsid::Kept("this kernel knows no btrfs with another id than its trees".to_owned()));
    }
    let (device, fsid) = (device.clone(), Uuid::parse_str(fsid).map_err(|_| no_uuid(device, fsid))?);
    let path = device.path.clone();
    let work = tokio::task::spawn_blocking(move || write(&device, fsid)).await;
    work.unwrap_or_else(|_| {
        Err(RawError::Io { action: "write", path, source: std::io::Error::other("a task was lost") })
    })
}

fn no_uuid(device: &Device, fsid: &str) -> RawError {
    let source = std::io::Error::other(format!("{fsid:?} is no UUID"));
    RawError::Io { action: "give an id to", path: device.path.clone(), source }
}

fn write(device: &Device, fsid: Uuid) -> Result<OwnFsid, RawError> {
    let disk = RawDisk::claim(device)?;
    let writes = match plan(disk.size(), fsid, |place| Ok(disk.read(place, BLOCK)?.bytes().to_vec()))? {
        Ok(writes) => writes,
        Err(why) => return Ok(OwnFsid::Kept(why)),
    };
    for (place, block) in writes {
        disk.write_block(place, &block)?;
        disk.sync()?;
    }
    drop(disk);
    // What the kernel will read.
    let disk = RawDisk::open(device, Access::Read)?;
    match id(disk.read(PLACES[0], BLOCK)?.bytes()) == *fsid.as_bytes() {
        true => Ok(OwnFsid::Given),
        false => Ok(OwnFsid::Kept("the device shows the old id after the write of the new one".into())),
    }
}

type Writes = Vec<(u64, Vec<u8>)>;

/// The blocks to write, in this order, or why the btrfs keeps its id.
fn plan<E>(
    size: u64,
    fsid: Uuid,
    mut read: impl FnMut(u64) -> Result<Vec<u8>, E>,
) -> Result<Result<Writes, String>, E> {
    let first = read(PLACES[0])?;
    if let Err(why) = check(&first, PLACES[0]) {
        return Ok(Err(why));
    }
    let mut writes = Vec::new();
    // Another one's superblock may be left from before.
    let metadata = metadata_id(&first);
    for place in PLACES.into_iter().skip(1).rev().filter(|place| place + BLOCK as u64 <= size) {
        let block = read(place)?;
        // A place that btrfs does not use may hold anything.
        if check(&block, place).is_ok() && metadata_id(&block) == metadata {
            writes.push((place, with_id(block, fsid)));
        }
    }
    writes.push((PLACES[0], with_id(first, fsid)));
    Ok(Ok(writes))
}

/// Whether a block is a superblock whose id can be changed; else why not.
fn check(block: &[u8], place: u64) -> Result<(), String> {
    if &block[MAGIC..MAGIC + 8] != b"_BHRfS_M" || number(block, BYTENR) != place {
        return Err(format!("there is no btrfs superblock at byte {place}"));
    }
    match u16::from_le_bytes([block[CHECKSUM_TYPE], block[CHECKSUM_TYPE + 1]]) {
        0 => {}
        other => return Err(format!("its checksums are of the type {other}, and only crc32c is known here")),
    }
    if block[..4] != crc32c(&block[FSID..]).to_le_bytes() {
        return Err(format!("the checksum of the superblock at byte {place} is wrong"));
    }
    if number(block, FLAGS) & CHANGING != 0 {
        return Err("another change of its id was not finished; finish it with btrfstune".to_owned());
    }
    if number(block, FLAGS) & SEEDING != 0 {
        return Err("it is a seed device".to_owned());
    }
    match number(block, DEVICES) {
        1 => Ok(()),
        many => Err(format!("it has {many} devices")),
    }
}

/// The same superblock with this id.
fn with_id(mut block: Vec<u8>, fsid: Uuid) -> Vec<u8> {
    let metadata = metadata_id(&block);
    let is_same = metadata == *fsid.as_bytes();
    let features = number(&block, INCOMPAT);
    let features = if is_same { features & !HAS_METADATA_UUID } else { features | HAS_METADATA_UUID };
    block[INCOMPAT..INCOMPAT + 8].copy_from_slice(&features.to_le_bytes());
    block[METADATA_UUID..METADATA_UUID + 16].copy_from_slice(if is_same { &[0; 16] } else { &metadata });
    block[FSID..FSID + 16].copy_from_slice(fsid.as_bytes());
    let sum = crc32c(&block[FSID..]).to_le_bytes();
    block[..4].copy_from_slice(&sum);
    block
}

fn id(block: &[u8]) -> [u8; 16] {
    let mut id = [0; 16];
    id.copy_from_slice(&block[FSID..FSID + 16]);
    id
}

/// The id that the blocks of the trees have.
fn metadata_id(block: &[u8]) -> [u8; 16] {
    if number(block, INCOMPAT) & HAS_METADATA_UUID == 0 {
        return id(block);
    }
    let mut id = [0; 16];
    id.copy_from_slice(&block[METADATA_UUID..METADATA_UUID + 16]);
    id
}

fn number(block: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&block[at..at + 8]);
    u64::from_le_bytes(bytes)
}

/// CRC-32C (Castagnoli), bit by bit: three superblocks need no table.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            let carry = crc & 1;
            crc >>= 1;
            if carry == 1 {
                crc ^= 0x82F6_3B78;
            }
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, fs, os::unix::fs::FileExt as _, path::Path};

    use super::*;
    use crate::lab::{TempDir, sh};

    fn blocks(path: &Path) -> impl FnMut(u64) -> Result<Vec<u8>, Infallible> {
        let file = fs::File::open(path).expect("image");
        move |place| {
            let mut block = vec![0; BLOCK];
            file.read_exact_at(&mut block, place).expect("read");
            Ok(block)
        }
    }

    fn planned(path: &Path, fsid: Uuid) -> Result<Writes, String> {
        let size = fs::metadata(path).expect("image").len();
        let Ok(writes) = plan(size, fsid, blocks(path));
        writes
    }

    fn carry_out(path: &Path, writes: &[(u64, Vec<u8>)]) {
        let file = fs::OpenOptions::new().write(true).open(path).expect("image");
        for (place, block) in writes {
            file.write_all_at(block, *place).expect("write");
        }
    }

    /// A btrfs with files in a file; `None` where there is no program to make one.
    fn made(folder: &TempDir, options: &[&str]) -> Option<std::path::PathBuf> {
        if !["/usr/bin/mkfs.btrfs", "/usr/sbin/mkfs.btrfs", "/sbin/mkfs.btrfs"].iter().any(|p| Path::new(p).exists()) {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "in CI nothing is skipped: needs mkfs.btrfs");
            eprintln!("SKIPPED, needs mkfs.btrfs");
            return None;
        }
        let content = folder.dir("content");
        fs::write(content.join("letter"), vec![7; 100_000]).expect("file");
        let image = folder.path().join("image");
        fs::File::create(&image).expect("image").set_len(256 << 20).expect("sparse");
        let mut arguments = vec!["-q", "--rootdir", content.to_str().expect("utf-8")];
        arguments.extend(options);
        arguments.push(image.to_str().expect("utf-8"));
        sh("mkfs.btrfs", &arguments);
        Some(image)
    }

    /// What `btrfs` and `blkid` say of it: that it is whole, and its id.
    fn whole(image: &Path) -> String {
        let name = image.to_str().expect("utf-8");
        sh("btrfs", &["check", "--readonly", name]);
        sh("blkid", &["-p", "-s", "UUID", "-o", "value", name])
    }

    #[test]
    fn a_copied_btrfs_gets_its_own_id_and_is_whole_whenever_the_run_is_cut() {
        let folder = TempDir::new("fsid");
        let Some(image) = made(&folder, &[]) else { return };
        let old = whole(&image);
        let fsid = own("/subscriptions/S/disks/copy");
        assert_eq!(fsid, own("/Subscriptions/s/disks/COPY"));
        let uuid = Uuid::parse_str(&fsid).expect("a UUID");
        let writes = planned(&image, uuid).expect("it can");
        assert_eq!(writes.iter().map(|(place, _)| *place).collect::<Vec<_>>(), [64 << 20, 64 << 10]);
        for cut in 0..=writes.len() {
            let copy = folder.path().join("copy");
            fs::copy(&image, &copy).expect("copy");
            carry_out(&copy, &writes[..cut]);
            let has = if cut == writes.len() { &fsid } else { &old };
            assert_eq!(whole(&copy), *has, "cut after {cut} writes");
            // The next run ends it, and the one after that changes nothing.
            let again = planned(&copy, uuid).expect("it can");
            carry_out(&copy, &again);
            assert_eq!(whole(&copy), fsid);
            assert_eq!(planned(&copy, uuid).expect("it can"), again);
        }
    }

    #[test]
    fn a_copy_of_a_copy_keeps_the_id_of_its_trees_and_the_first_id_can_come_back() {
        let folder = TempDir::new("fsid");
        let Some(image) = made(&folder, &[]) else { return };
        let old = whole(&image);
        for volume in ["b", "c"] {
            let fsid = own(volume);
            carry_out(&image, &planned(&image, Uuid::parse_str(&fsid).expect("a UUID")).expect("it can"));
            assert_eq!(whole(&image), fsid);
        }
        let before = metadata_id(&blocks(&image)(PLACES[0]).expect("read"));
        assert_eq!(Uuid::from_bytes(before).to_string(), old);
        carry_out(&image, &planned(&image, Uuid::from_bytes(before)).expect("it can"));
        assert_eq!(whole(&image), old);
        let block = blocks(&image)(PLACES[0]).expect("read");
        assert_eq!(number(&block, INCOMPAT) & HAS_METADATA_UUID, 0);
    }

    #[test]
    fn what_is_not_understood_keeps_its_id() {
        let folder = TempDir::new("fsid");
        let Some(image) = made(&folder, &[]) else { return };
        let fsid = Uuid::from_u128(1);
        let first = blocks(&image)(PLACES[0]).expect("read");
        let sealed = |change: &dyn Fn(&mut [u8])| {
            let mut block = first.clone();
            change(&mut block);
            let sum = crc32c(&block[FSID..]).to_le_bytes();
            block[..4].copy_from_slice(&sum);
            block
        };
        let flag = |bit: u64| {
            sealed(&|block| {
                let flags = number(block, FLAGS) | bit;
                block[FLAGS..FLAGS + 8].copy_from_slice(&flags.to_le_bytes());
            })
        };
        let mut torn = first.clone();
        torn[2_000] ^= 1;
        for (block, why) in [
            (sealed(&|block| block[DEVICES] = 2), "it has 2 devices"),
            (sealed(&|block| block[CHECKSUM_TYPE] = 1), "of the type 1"),
            (sealed(&|block| block[MAGIC] = 0), "no btrfs superblock"),
            (sealed(&|block| block[BYTENR] = 1), "no btrfs superblock"),
            (flag(1 << 35), "was not finished"),
            (flag(1 << 36), "was not finished"),
            (flag(SEEDING), "seed"),
            (torn, "checksum of the superblock"),
        ] {
            let kept = check(&block, PLACES[0]).expect_err(why);
            assert!(kept.contains(why), "{kept}");
        }
        // A second place that holds something else is left alone.
        carry_out(&image, &[(PLACES[1], vec![1; BLOCK])]);
        let writes = planned(&image, fsid).expect("it can");
        assert_eq!(writes.iter().map(|(place, _)| *place).collect::<Vec<_>>(), [PLACES[0]]);
    }

    #[tokio::test]
    async fn a_kernel_that_could_not_mount_it_afterwards_is_asked_first() {
        let root = TempDir::new("fsid");
        let host = Host::new().with_root(root.path());
        root.dir("sys/fs/btrfs/features");
        let device = Device {
            name: "sdc".to_owned(),
            path: root.path().join("none"),
            number: crate::device_number::DeviceNumber { major: 8, minor: 32 },
            size_bytes: 1 << 30,
            lun: Some(3),
            scsi: None,
            nvme: None,
            read_only: false,
            sequence: None,
        };
        let given = give(&host, &device, &own("a")).await.expect("nothing is opened");
        assert!(matches!(given, OwnFsid::Kept(why) if why.contains("kernel")));
        root.dir("sys/fs/btrfs/features/metadata_uuid");
        give(&host, &device, &own("a")).await.expect_err("the device does not exist");
    }

    #[test]
    fn crc32c_matches_the_published_check_value() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    }
}
