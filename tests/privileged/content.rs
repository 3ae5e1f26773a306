//! What a pod writes to its volume, and whether it is still there.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
};

use super::cloud::Volume;

const LENGTH: usize = 2 << 20;

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

/// Whether a disk's file holds nothing but zeros.
pub(super) fn is_blank(file: &Path) -> bool {
    let mut file = File::open(file).unwrap();
    let mut piece = vec![0; 1 << 20];
    loop {
        match file.read(&mut piece).unwrap() {
            0 => return true,
            length if piece[..length].iter().any(|byte| *byte != 0) => return false,
            _ => {}
        }
    }
}
