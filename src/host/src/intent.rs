//! The intent block: our signature on a device that we are about to format.
//!
//! A `mkfs` killed half way leaves bytes that no tool can name. To tell our own unfinished work from
//! foreign data, a block with the volume's identity and a nonce is written and flushed before
//! `mkfs` starts, and erased after it ended well. The nonce is also the UUID that `mkfs` is told to
//! give the file system, so a finished file system can be recognised as ours even when the erasing
//! was cut.
//!
//! # Where
//!
//! Up to three copies: 3 MiB before the end, 3 MiB before the middle, and at 127 MiB (from 256 MiB
//! up; this one stays found when the disk is grown in between). Evidence: recorded, by tracing each
//! write of the real programs. With their discard switched off (`-E nodiscard`, `-K`), `mkfs.ext3`,
//! `mkfs.ext4`, `mkfs.xfs` and `mkfs.btrfs` wrote to none of these places on devices of 64 MiB to
//! 1 TiB: they clear at most the last 2 MiB, and the copies sit at the ends of block and allocation
//! groups, whose metadata is at their beginnings. With discard on, every copy would be lost at once,
//! which is why `mkfs` runs without it; a new cloud disk has nothing to discard anyway.
//!
//! This file does not decide whether a device may be formatted; [`super::probe`] does.

use lazuli_model::VolumeId;
use uuid::Uuid;

use super::fs_type::{FsType, Make as _};
use super::raw::{BLOCK, MIB, RawDisk, RawError, align_down};

/// The smallest device that gets an intent block, in bytes.
pub const MIN_DEVICE_BYTES: u64 = 16 * MIB;

const MAGIC: &[u8; 16] = b"lazuli-mkfs-mark";
const VERSION: u16 = 1;
/// One sector: it is written whole or not at all, also when the power fails.
const LENGTH: usize = 512;
const TEXT_AT: usize = 64;
const TEXT_MAX: usize = 400;
const CRC_AT: usize = LENGTH - 4;

/// Name space of the volume identities inside intent blocks; a random constant of this format.
const IDENTITY_SPACE: Uuid = Uuid::from_u128(0x6f0c_1c7e_53b1_4f0a_9a53_6c2b_8f0e_41d7);

/// A decoded intent block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntentBlock {
    /// The volume's identity: a name-based UUID of its lower-cased id.
    pub identity: Uuid,
    /// Fresh for every run of `mkfs`, and the UUID given to the file system.
    pub nonce: Uuid,
    /// What was being made.
    pub fs: FsType,
    /// Size of the device then, in bytes: where the other copies are if it was grown since.
    pub size_bytes: u64,
    /// The volume id for a human, cut at 400 bytes.
    pub volume: String,
}

impl IntentBlock {
    /// An intent with a fresh nonce.
    #[must_use]
    pub fn new(volume: &str, fs: FsType, size_bytes: u64) -> Self {
        let mut text = volume.to_owned();
        while text.len() > TEXT_MAX {
            text.pop();
        }
        Self { identity: identity(volume), nonce: Uuid::new_v4(), fs, size_bytes, volume: text }
    }

    /// Whether this intent was written for `volume`. Ids differing only in letter case are the same
    /// volume: Azure returns them in several spellings.
    #[must_use]
    pub fn is_for(&self, volume: &str) -> bool {
        self.identity == identity(volume)
    }

    /// The bytes on disk.
    #[must_use]
    pub fn encode(&self) -> [u8; 512] {
        let mut bytes = [0_u8; LENGTH];
        bytes[..16].copy_from_slice(MAGIC);
        bytes[16..18].copy_from_slice(&VERSION.to_le_bytes());
        bytes[18] = self.fs.code();
        bytes[20..36].copy_from_slice(self.identity.as_bytes());
        bytes[36..52].copy_from_slice(self.nonce.as_bytes());
        let text = self.volume.as_bytes();
        let length = text.len().min(TEXT_MAX);
        let stored = u16::try_from(length).expect("cut at 400 bytes");
        bytes[52..54].copy_from_slice(&stored.to_le_bytes());
        bytes[54..62].copy_from_slice(&self.size_bytes.to_le_bytes());
        bytes[TEXT_AT..TEXT_AT + length].copy_from_slice(&text[..length]);
        let crc = crc32(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads an intent block; `None` for anything that is not a whole one of a known version.
    #[must_use]
    pub fn decode(block: &[u8]) -> Option<Self> {
        let bytes = block.get(..LENGTH)?;
        let rest_is_zero = block[LENGTH..].iter().all(|byte| *byte == 0);
        let crc = u32::from_le_bytes(bytes[CRC_AT..].try_into().ok()?);
        let version = u16::from_le_bytes([bytes[16], bytes[17]]);
        if &bytes[..16] != MAGIC || !rest_is_zero || crc != crc32(&bytes[..CRC_AT]) || version != VERSION {
            return None;
        }
        let length = usize::from(u16::from_le_bytes([bytes[52], bytes[53]]));
        let text = bytes.get(TEXT_AT..TEXT_AT + length.min(TEXT_MAX))?;
        Some(Self {
            identity: Uuid::from_slice(&bytes[20..36]).ok()?,
            nonce: Uuid::from_slice(&bytes[36..52]).ok()?,
            fs: FsType::from_code(bytes[18])?,
            size_bytes: u64::from_le_bytes(bytes[54..62].try_into().ok()?),
            volume: String::from_utf8_lossy(text).into_owned(),
        })
    }
}

fn identity(volume: &str) -> Uuid {
    Uuid::new_v5(&IDENTITY_SPACE, VolumeId::fold(volume).as_bytes())
}

/// CRC-32 as in IEEE 802.3, bit by bit: half a kilobyte needs no table.
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            let carry = crc & 1;
            crc >>= 1;
            if carry == 1 {
                crc ^= 0xEDB8_8320;
            }
        }
    }
    !crc
}

/// Byte offsets of the copies on a device of `size` bytes, ascending; none on one that is too small.
#[must_use]
pub fn offsets(size: u64) -> Vec<u64> {
    if size < MIN_DEVICE_BYTES {
        return Vec::new();
    }
    let mut places = vec![align_down(size / 2) - 3 * MIB, align_down(size) - 3 * MIB];
    if size >= 256 * MIB {
        places.push(127 * MIB);
    }
    places.sort_unstable();
    places.dedup();
    places
}

/// The copies found on a device, with their offsets, also those at the places of an earlier size.
pub(super) fn read_all(disk: &RawDisk) -> Result<Vec<(u64, IntentBlock)>, RawError> {
    let mut found = read_at(disk, &offsets(disk.size()))?;
    let older: Vec<u64> = found
        .iter()
        .filter(|(_, intent)| intent.size_bytes < disk.size())
        .flat_map(|(_, intent)| offsets(intent.size_bytes))
        .filter(|place| !offsets(disk.size()).contains(place))
        .collect();
    found.extend(read_at(disk, &older)?);
    found.sort_by_key(|(offset, _)| *offset);
    found.dedup_by_key(|(offset, _)| *offset);
    Ok(found)
}

fn read_at(disk: &RawDisk, places: &[u64]) -> Result<Vec<(u64, IntentBlock)>, RawError> {
    let mut found = Vec::new();
    for offset in places {
        if let Some(intent) = IntentBlock::decode(disk.read(*offset, BLOCK)?.bytes()) {
            found.push((*offset, intent));
        }
    }
    Ok(found)
}

/// Writes all copies, flushes, and reads them back. Copies of earlier attempts for the same volume at
/// other places are erased afterwards, so that there is never an instant without one.
pub(super) fn write_all(disk: &RawDisk, intent: &IntentBlock) -> Result<(), RawError> {
    let bytes = intent.encode();
    let places = offsets(disk.size());
    let earlier = read_all(disk)?;
    for offset in &places {
        disk.write_block(*offset, &bytes)?;
    }
    disk.sync()?;
    let back = read_at(disk, &places)?;
    if back.len() != places.len() || back.iter().any(|(_, read)| read != intent) {
        return Err(RawError::Io {
            action: "verify the intent block on",
            path: disk.path().to_path_buf(),
            source: std::io::Error::other("what was read back differs from what was written"),
        });
    }
    for (offset, old) in earlier {
        if !places.contains(&offset) && old.identity == intent.identity {
            disk.write_block(offset, &[])?;
        }
    }
    disk.sync()
}

/// Erases the copies written for `volume`, and nothing else: a place that holds anything but a whole
/// intent block of this very volume is left alone.
pub(super) fn erase_all(disk: &RawDisk, volume: &str) -> Result<(), RawError> {
    for (offset, intent) in read_all(disk)? {
        if intent.is_for(volume) {
            disk.write_block(offset, &[])?;
        }
    }
    disk.sync()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_intent_block_reads_back_as_written() {
        let intent = IntentBlock::new("/subscriptions/S/disks/pvc-1", FsType::Xfs, 1 << 30);
        let mut block = vec![0; BLOCK];
        block[..LENGTH].copy_from_slice(&intent.encode());
        assert_eq!(IntentBlock::decode(&block), Some(intent));
    }

    #[test]
    fn any_changed_byte_makes_it_no_intent_block() {
        let intent = IntentBlock::new("v", FsType::Ext4, 0).encode();
        for at in 0..LENGTH {
            let mut damaged = intent;
            damaged[at] ^= 1;
            assert_eq!(IntentBlock::decode(&damaged), None, "byte {at}");
        }
        let mut followed = intent.to_vec();
        followed.extend([0, 0, 1]);
        assert_eq!(IntentBlock::decode(&followed), None);
    }

    #[test]
    fn an_intent_belongs_to_one_volume_in_any_letter_case() {
        let intent = IntentBlock::new("/subscriptions/S/disks/A", FsType::Ext4, 0);
        assert!(intent.is_for("/Subscriptions/s/Disks/a"));
        assert!(!intent.is_for("/subscriptions/S/disks/B"));
        // The path of a page blob keeps its letter case.
        let intent = IntentBlock::new("https://acct.blob.core.windows.net/vhds/d.vhd", FsType::Ext4, 0);
        assert!(intent.is_for("https://ACCT.blob.core.windows.net/vhds/d.vhd"));
        assert!(!intent.is_for("https://acct.blob.core.windows.net/vhds/D.vhd"));
    }

    #[test]
    fn long_volume_ids_differ_by_their_ends_too() {
        let long = "x".repeat(600);
        let intent = IntentBlock::new(&format!("{long}a"), FsType::Ext4, u64::MAX);
        assert_eq!(intent.volume.len(), TEXT_MAX);
        assert!(!intent.is_for(&format!("{long}b")));
        assert!(IntentBlock::decode(&intent.encode()).is_some());
    }

    #[test]
    fn copies_are_apart_and_outside_the_zones_that_mkfs_clears() {
        for mib in [16, 17, 64, 255, 256, 260, 1024, 32 * 1024, 32 * 1024 * 1024] {
            let size = mib * MIB + 512;
            let places = offsets(size);
            assert!(places.len() >= 2, "{mib}");
            for place in &places {
                assert_eq!(place % BLOCK as u64, 0);
                assert!(*place >= 4 * MIB && place + BLOCK as u64 <= size - 2 * MIB);
            }
            assert!(places.is_sorted_by(|a, b| a < b));
        }
        assert!(offsets(MIN_DEVICE_BYTES - 1).is_empty());
    }

    #[test]
    fn crc32_matches_the_published_check_value() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
    }
}
