//! What a pod writes to its volume, and whether it is still there.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
};

use super::cloud::Volume;

const LENGTH: usize = 2 << 20;
/// What files are made of on the file systems in use.
const BLOCK: usize = 4096;

/// Bytes that no file system writes by itself, other ones for each seed (xorshift).
fn bytes(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut all = Vec::with_capacity(LENGTH);
    while all.len() < LENGTH {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        all.extend(state.to_le_bytes());
    }
    all
}

fn place(volume: &Volume) -> PathBuf {
    if volume.is_block() { volume.target.clone() } else { volume.target.join("data") }
}

/// Writes as the pod does, with no flush for a file: that the bytes reach the disk is the node's business.
pub(super) fn write(volume: &Volume, seed: u64) {
    let path = place(volume);
    if volume.is_block() {
        let mut device = File::options().write(true).open(path).unwrap();
        device.write_all(&bytes(seed)).unwrap();
    } else {
        fs::write(path, bytes(seed)).unwrap();
    }
}

/// Fails unless every byte is what was written.
#[track_caller]
pub(super) fn check(volume: &Volume, seed: u64) {
    let path = place(volume);
    let mut found = vec![0; LENGTH];
    let read = File::open(&path).and_then(|mut file| file.read_exact(&mut found));
    assert!(read.is_ok(), "{}: {read:?}", path.display());
    assert!(found == bytes(seed), "{}: other bytes than were written", path.display());
}

/// What a disk's file holds besides zeros: blocks by their offsets. Its holes are not read.
pub(super) fn blocks(file: &Path) -> BTreeMap<u64, Vec<u8>> {
    let mut file = File::open(file).unwrap();
    let mut found = BTreeMap::new();
    let mut at = 0;
    // Past the last byte of data the kernel answers ENXIO (source: lseek(2)).
    while let Ok(start) = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(at)) {
        let end = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(start)).unwrap();
        let mut bytes = vec![0; usize::try_from(end - start).unwrap()];
        file.seek(SeekFrom::Start(start)).unwrap();
        file.read_exact(&mut bytes).unwrap();
        for (offset, block) in (start..).step_by(BLOCK).zip(bytes.chunks(BLOCK)) {
            if block.iter().any(|byte| *byte != 0) {
                found.insert(offset, block.to_owned());
            }
        }
        at = end;
    }
    found
}

/// Whether a disk's file holds nothing but zeros.
pub(super) fn is_blank(file: &Path) -> bool {
    blocks(file).is_empty()
}
