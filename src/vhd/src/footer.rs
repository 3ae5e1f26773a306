//! The footer of a fixed VHD: the last 512 bytes of the blob, behind the bytes of the disk.
//!
//! Source of the layout and of the rule for cylinders, heads and sectors: Microsoft's "Virtual Hard Disk Image Format
//! Specification", version 1.0. All numbers are big-endian.
//!
//! | bytes | field | in a footer that is made here |
//! |---|---|---|
//! | 0..8 | cookie | `conectix` |
//! | 8..12 | features | 2, the bit that is always set |
//! | 12..16 | version of the format | 1.0 |
//! | 16..24 | offset of what a dynamic disk has | all ones: none |
//! | 24..28 | seconds since 2000-01-01T00:00:00Z | when the disk was made |
//! | 28..32 | creator application | `win ` |
//! | 32..36 | its version | 10.0 |
//! | 36..40 | creator's system | `Wi2k` |
//! | 40..48 | size when it was made, bytes | |
//! | 48..56 | size now, bytes | |
//! | 56..60 | cylinders, heads, sectors per track | |
//! | 60..64 | type of the disk | 2, fixed |
//! | 64..68 | checksum | complement of the sum of all bytes but these |
//! | 68..84 | unique id | |
//! | 84 | saved state | 0 |
//! | 85..512 | reserved | zeros |
//!
//! The creator decides what other programs read: QEMU takes the size of the disk from cylinders, heads and sectors, which
//! may be smaller, unless it knows the creator as one that does not (source: QEMU, block/vpc.c). So the footer bears the
//! name that Hyper-V writes.

use lazuli_model::digest;

/// How long a footer is, in bytes: one page of a page blob.
pub const LENGTH: u64 = 512;

/// Azure attaches disks of whole MiB (source: Microsoft's "Prepare a Windows VHD to upload to Azure").
pub const ALIGNMENT: u64 = 1 << 20;

/// The bytes of a footer, or of any other page.
pub type Page = [u8; LENGTH as usize];

/// A page of zeros: what a page blob holds where nothing was written.
pub const ZEROS: Page = [0; LENGTH as usize];

const COOKIE: &[u8; 8] = b"conectix";
/// "Reserved. This bit must always be set to 1."
const FEATURES: u32 = 2;
/// The bit that marks a disk as temporary.
const TEMPORARY: u32 = 1;
const VERSION: u32 = 0x0001_0000;
const NO_OFFSET: u64 = u64::MAX;
const FIXED: u32 = 2;
const DYNAMIC: u32 = 3;
const DIFFERENCING: u32 = 4;
const CREATOR: [u8; 4] = *b"win ";
const CREATOR_VERSION: u32 = 0x000a_0000;
const CREATOR_SYSTEM: [u8; 4] = *b"Wi2k";
const CHECKSUM: std::ops::Range<usize> = 64..68;
/// 2000-01-01T00:00:00Z, in seconds of Unix time.
const EPOCH: u64 = 946_684_800;

/// Cylinders, heads and sectors per track: what a BIOS of the time was told of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// Cylinders.
    pub cylinders: u16,
    /// Heads.
    pub heads: u8,
    /// Sectors per track.
    pub sectors: u8,
}

impl Geometry {
    /// The geometry that the specification gives a disk of so many bytes.
    pub fn of(bytes: u64) -> Self {
        const MOST_CYLINDERS: u64 = 65_535;
        let sectors = (bytes / 512).min(MOST_CYLINDERS * 16 * 255);
        let (per_track, heads, tracks);
        if sectors >= MOST_CYLINDERS * 16 * 63 {
            (per_track, heads, tracks) = (255, 16, sectors / 255);
        } else {
            let of_17 = sectors / 17;
            let heads_of_17 = of_17.div_ceil(1_024).max(4);
            if of_17 < heads_of_17 * 1_024 && heads_of_17 <= 16 {
                (per_track, heads, tracks) = (17, heads_of_17, of_17);
            } else if sectors / 31 < 16 * 1_024 {
                (per_track, heads, tracks) = (31, 16, sectors / 31);
            } else {
                (per_track, heads, tracks) = (63, 16, sectors / 63);
            }
        }
        let narrow = |number: u64| u8::try_from(number).expect("the rule gives at most 16 heads and 255 sectors");
        let cylinders = u16::try_from(tracks / heads).expect("the sectors are capped at 65535 cylinders");
        Self { cylinders, heads: narrow(heads), sectors: narrow(per_track) }
    }

    /// The bytes that it reaches: at most as many as the disk has.
    pub fn bytes(self) -> u64 {
        u64::from(self.cylinders) * u64::from(self.heads) * u64::from(self.sectors) * 512
    }
}

/// What tells one disk from another in its footer: 16 bytes.
pub type UniqueId = [u8; 16];

/// The unique id of the disk of this address: always the same, so that each try writes the same footer.
pub fn unique_id(canonical_uri: &str) -> UniqueId {
    let hex = digest::hex(canonical_uri.as_bytes());
    std::array::from_fn(|index| u8::from_str_radix(&hex[2 * index..2 * index + 2], 16).expect("they are digits"))
}

/// The footer's time for a moment of Unix time, in seconds; the nearest one that it can say.
pub fn time_stamp(unix_seconds: u64) -> u32 {
    u32::try_from(unix_seconds.saturating_sub(EPOCH)).unwrap_or(u32::MAX)
}

/// The footer of a fixed VHD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Footer {
    /// Whether the disk is marked as temporary.
    pub is_temporary: bool,
    /// Seconds since 2000-01-01T00:00:00Z.
    pub time_stamp: u32,
    /// The program that wrote it.
    pub creator: [u8; 4],
    /// Its version.
    pub creator_version: u32,
    /// Its system.
    pub creator_system: [u8; 4],
    /// The size with which the disk was made, bytes.
    pub original_size: u64,
    /// The size of the disk, bytes.
    pub current_size: u64,
    /// Cylinders, heads and sectors. Programs differ in it, so that none is called wrong.
    pub geometry: Geometry,
    /// What tells it from other disks.
    pub unique_id: UniqueId,
    /// Whether a virtual machine was saved in the middle of its work.
    pub is_saved_state: bool,
}

/// What is wrong with the last 512 bytes of a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    /// The blob cannot hold a footer behind whole sectors.
    #[error("the blob has {0} bytes: not a multiple of 512, or too few for a disk and its footer")]
    BlobLength(u64),
    /// The disk is no whole number of MiB.
    #[error("the disk has {0} bytes, which is no whole number of MiB: Azure does not attach it")]
    Unaligned(u64),
    /// There are zeros: it was never written, or the blob has grown and its footer is where the old end was.
    #[error("there is no footer: its bytes are zero")]
    Absent,
    /// It is something else.
    #[error("there is no footer: its bytes do not begin with the cookie \"conectix\"")]
    Cookie,
    /// Bytes have changed.
    #[error("the checksum of the footer is {written:#010x} and its bytes give {computed:#010x}")]
    Checksum {
        /// As the footer says.
        written: u32,
        /// As its bytes give.
        computed: u32,
    },
    /// A version of the format that is not known.
    #[error("the version of the footer is {0:#010x}, expected 0x00010000")]
    Version(u32),
    /// A disk of another type: its blob does not hold the bytes of the disk in order.
    #[error("the VHD is {}, expected a fixed one", disk_type(*.0))]
    DiskType(u32),
    /// An offset that a fixed disk does not have.
    #[error("the footer names a header at {0}, which a fixed VHD does not have")]
    DataOffset(u64),
    /// It says another size than the blob has.
    #[error("the footer says that the disk has {footer} bytes, and the blob holds {blob}")]
    Size {
        /// As the footer says.
        footer: u64,
        /// The length of the blob without a footer.
        blob: u64,
    },
}

fn disk_type(number: u32) -> String {
    match number {
        DYNAMIC => "a dynamic one".into(),
        DIFFERENCING => "a differencing one".into(),
        other => format!("of the type {other}"),
    }
}

impl Defect {
    /// Whether a new footer cures it and can destroy nothing: the place is empty, or holds what once was the footer of a
    /// fixed disk. Anything else may be data, or belong to a disk whose bytes are not in order.
    pub fn is_repairable(self) -> bool {
        match self {
            Self::Absent | Self::Size { .. } => true,
            Self::BlobLength(_)
            | Self::Unaligned(_)
            | Self::Cookie
            | Self::Checksum { .. }
            | Self::Version(_)
            | Self::DiskType(_)
            | Self::DataOffset(_) => false,
        }
    }
}

/// The size of the disk in a blob of this length: all but the footer.
///
/// # Errors
/// When the blob is no fixed VHD that Azure attaches.
pub fn disk_size(blob_length: u64) -> Result<u64, Defect> {
    if !blob_length.is_multiple_of(LENGTH) || blob_length <= LENGTH {
        return Err(Defect::BlobLength(blob_length));
    }
    let size = blob_length - LENGTH;
    if size.is_multiple_of(ALIGNMENT) { Ok(size) } else { Err(Defect::Unaligned(size)) }
}

/// The complement of the sum of all bytes but those of the checksum.
fn checksum(page: &Page) -> u32 {
    let bytes = page.iter().enumerate().filter(|(index, _)| !CHECKSUM.contains(index));
    !bytes.map(|(_, byte)| u32::from(*byte)).sum::<u32>()
}

impl Footer {
    /// The footer of a new disk.
    pub fn new(size: u64, unique_id: UniqueId, time_stamp: u32) -> Self {
        Self {
            is_temporary: false,
            time_stamp,
            creator: CREATOR,
            creator_version: CREATOR_VERSION,
            creator_system: CREATOR_SYSTEM,
            original_size: size,
            current_size: size,
            geometry: Geometry::of(size),
            unique_id,
            is_saved_state: false,
        }
    }

    /// The footer of the same disk with another size.
    pub fn resized(&self, size: u64) -> Self {
        Self { current_size: size, geometry: Geometry::of(size), ..self.clone() }
    }

    /// Its bytes.
    pub fn to_page(&self) -> Page {
        let mut page = ZEROS;
        let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, COOKIE);
        put(8, &(FEATURES | if self.is_temporary { TEMPORARY } else { 0 }).to_be_bytes());
        put(12, &VERSION.to_be_bytes());
        put(16, &NO_OFFSET.to_be_bytes());
        put(24, &self.time_stamp.to_be_bytes());
        put(28, &self.creator);
        put(32, &self.creator_version.to_be_bytes());
        put(36, &self.creator_system);
        put(40, &self.original_size.to_be_bytes());
        put(48, &self.current_size.to_be_bytes());
        put(56, &self.geometry.cylinders.to_be_bytes());
        put(58, &[self.geometry.heads, self.geometry.sectors]);
        put(60, &FIXED.to_be_bytes());
        put(68, &self.unique_id);
        put(84, &[u8::from(self.is_saved_state)]);
        let sum = checksum(&page);
        page[CHECKSUM].copy_from_slice(&sum.to_be_bytes());
        page
    }

    /// Reads the bytes of a footer, wherever they are.
    ///
    /// # Errors
    /// The first defect; never one of the blob's length.
    pub fn read(page: &Page) -> Result<Self, Defect> {
        if *page == ZEROS {
            return Err(Defect::Absent);
        }
        if page[..8] != *COOKIE {
            return Err(Defect::Cookie);
        }
        let (written, computed) = (u32::from_be_bytes(field(page, 64)), checksum(page));
        if written != computed {
            return Err(Defect::Checksum { written, computed });
        }
        let version = u32::from_be_bytes(field(page, 12));
        if version != VERSION {
            return Err(Defect::Version(version));
        }
        let number = u32::from_be_bytes(field(page, 60));
        if number != FIXED {
            return Err(Defect::DiskType(number));
        }
        let offset = u64::from_be_bytes(field(page, 16));
        // Some programs write the field of a fixed disk with 32 bits set (source: the specification's own text, which
        // gives 0xFFFFFFFF).
        if offset != NO_OFFSET && offset != u64::from(u32::MAX) {
            return Err(Defect::DataOffset(offset));
        }
        Ok(Self {
            is_temporary: u32::from_be_bytes(field(page, 8)) & TEMPORARY != 0,
            time_stamp: u32::from_be_bytes(field(page, 24)),
            creator: field(page, 28),
            creator_version: u32::from_be_bytes(field(page, 32)),
            creator_system: field(page, 36),
            original_size: u64::from_be_bytes(field(page, 40)),
            current_size: u64::from_be_bytes(field(page, 48)),
            geometry: Geometry { cylinders: u16::from_be_bytes(field(page, 56)), heads: page[58], sectors: page[59] },
            unique_id: field(page, 68),
            is_saved_state: page[84] != 0,
        })
    }

    /// Reads the last 512 bytes of a blob of this length.
    ///
    /// # Errors
    /// The first defect.
    pub fn of_blob(page: &Page, blob_length: u64) -> Result<Self, Defect> {
        let size = disk_size(blob_length)?;
        let footer = Self::read(page)?;
        if footer.current_size == size {
            Ok(footer)
        } else {
            Err(Defect::Size { footer: footer.current_size, blob: size })
        }
    }
}

fn field<const N: usize>(page: &Page, at: usize) -> [u8; N] {
    std::array::from_fn(|index| page[at + index])
}

#[cfg(test)]
mod tests;
