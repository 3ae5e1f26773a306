//! What is on a device: the one verdict on which formatting depends.
//!
//! Three witnesses are asked: `blkid -p` (reads the device, not its cache), `wipefs --no-act` (lists
//! every signature), and our own reading of the first and last 4 MiB, of the places where file
//! systems keep their spare superblocks, and of a sample in between. A device is blank only when all
//! three agree. The Go driver formats on the word of the first two; a device whose first superblock
//! was lost looks blank to them.
//!
//! Never writes.

use std::collections::BTreeMap;

pub use lazuli_staging::Filesystem;

use super::child::{self, Call, ChildError};
use super::device::Device;
use super::intent::{self, IntentBlock};
use super::raw::{Access, BLOCK, MIB, RawDisk, RawError, align_down};
use super::{Deadline, Host};

/// How much of each end must be zero.
const ENDS: u64 = 4 * MIB;
/// How much is read at once.
const PIECE: usize = 512 * 1024;

/// Blocks looked at between the ends.
const SAMPLES: u64 = 64;

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The device could not be read.
    #[error("cannot look at the device")]
    Raw(#[source] RawError),
    /// `blkid` or `wipefs` could not be run.
    #[error("cannot probe {device}")]
    Child {
        /// The device node.
        device: String,
        /// Why.
        #[source]
        source: ChildError,
    },
    /// `blkid` or `wipefs` failed.
    #[error("{program} failed on {device}: {ending}")]
    Program {
        /// The program.
        program: &'static str,
        /// The device node.
        device: String,
        /// How it ended.
        ending: String,
    },
    /// The blocking task was lost.
    #[error("the reading task of {device} was lost")]
    Task {
        /// The device node.
        device: String,
    },
}

/// What is on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing: every witness says so.
    Blank,
    /// Our own unfinished `mkfs` for the asked volume and no file system: safe to format again.
    Ours(IntentBlock),
    /// One whole file system and no doubt about it.
    Filesystem {
        /// The file system.
        found: Filesystem,
        /// An intent block of the asked volume still stands beside it: `mkfs` was cut near its end.
        unfinished: Option<IntentBlock>,
    },
    /// A partition table.
    PartitionTable {
        /// Its kind: `gpt`, `dos`…
        kind: String,
    },
    /// Something that is not ours and no file system: LUKS, LVM, raw data, another volume's intent.
    Foreign {
        /// What was seen and where.
        why: String,
    },
    /// Signatures that contradict each other.
    Ambiguous {
        /// All that were seen.
        found: Vec<String>,
    },
}

impl Verdict {
    /// The file system that was found, if one was.
    #[must_use]
    pub fn filesystem(&self) -> Option<&Filesystem> {
        match self {
            Self::Filesystem { found, .. } => Some(found),
            _ => None,
        }
    }

    /// What was seen, in words, where it is neither a file system nor anything that may be formatted.
    #[must_use]
    pub fn unusable(&self) -> Option<String> {
        match self {
            Self::PartitionTable { kind } => Some(format!("a {kind} partition table")),
            Self::Foreign { why } => Some(why.clone()),
            Self::Ambiguous { found } => Some(format!("contradictions: {}", found.join(", "))),
            Self::Blank | Self::Ours(_) | Self::Filesystem { .. } => None,
        }
    }
}

/// Looks at `device` on behalf of `volume`.
///
/// # Errors
/// See [`ProbeError`]. An error is never a reason to format.
pub async fn probe(host: &Host, device: &Device, volume: &str, deadline: Deadline) -> Result<Verdict, ProbeError> {
    let blkid = run_blkid(host, device, deadline).await?;
    let signatures = run_wipefs(host, device, deadline).await?;
    let content = read_content(device, blkid == Blkid::Nothing && signatures.is_empty()).await?;
    Ok(judge(blkid, signatures, content, volume))
}

/// What `blkid -p` said.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Blkid {
    Nothing,
    Ambivalent,
    Found(BTreeMap<String, String>),
}

/// What our own reading saw.
#[derive(Clone, Debug, Default)]
struct Content {
    intents: Vec<IntentBlock>,
    /// Offset of the first byte that is neither zero nor part of an intent block.
    dirt: Option<u64>,
    /// An xfs superblock that says its `mkfs` has not finished.
    xfs_in_progress: bool,
}

async fn run_blkid(host: &Host, device: &Device, deadline: Deadline) -> Result<Blkid, ProbeError> {
    let output = run(host, "blkid", &["-p", "-o", "export"], device, deadline).await?;
    match output.code {
        Some(0) => Ok(Blkid::Found(parse_export(&output.stdout))),
        // 2: nothing found (or unreadable, which our own reading then reports); 8: contradictions.
        Some(2) => Ok(Blkid::Nothing),
        Some(8) => Ok(Blkid::Ambivalent),
        _ => Err(ProbeError::Program {
            program: "blkid",
            device: device.path.display().to_string(),
            ending: output.describe(),
        }),
    }
}

/// The names of all signatures, in order of their offsets, without repetitions.
async fn run_wipefs(host: &Host, device: &Device, deadline: Deadline) -> Result<Vec<String>, ProbeError> {
    let args = ["--no-act", "--noheadings", "--output", "TYPE"];
    let output = run(host, "wipefs", &args, device, deadline).await?;
    if !output.success() {
        return Err(ProbeError::Program {
            program: "wipefs",
            device: device.path.display().to_string(),
            ending: output.describe(),
        });
    }
    let mut names: Vec<String> = Vec::new();
    for name in output.stdout.split_whitespace() {
        if !names.iter().any(|seen| seen == name) {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

async fn run(
    host: &Host,
    program: &'static str,
    options: &[&str],
    device: &Device,
    deadline: Deadline,
) -> Result<child::Output, ProbeError> {
    let mut args: Vec<&std::ffi::OsStr> = options.iter().map(std::ffi::OsStr::new).collect();
    args.push(device.path.as_os_str());
    child::run(host, Call::new(program, &args).on(device), deadline)
        .await
        .map_err(|source| ProbeError::Child { device: device.path.display().to_string(), source })
}

fn parse_export(text: &str) -> BTreeMap<String, String> {
    text.lines().filter_map(|line| line.split_once('=')).map(|(key, value)| (key.to_owned(), unescape(value))).collect()
}

/// `blkid`'s export format puts a backslash before what a shell would read.
fn unescape(value: &str) -> String {
    let mut plain = String::with_capacity(value.len());
    let mut letters = value.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => plain.extend(letters.next()),
            other => plain.push(other),
        }
    }
    plain
}

async fn read_content(device: &Device, thoroughly: bool) -> Result<Content, ProbeError> {
    let device = device.clone();
    let name = device.path.display().to_string();
    tokio::task::spawn_blocking(move || {
        let disk = RawDisk::open(&device, Access::Read)?;
        look(&disk, thoroughly)
    })
    .await
    .map_err(|_| ProbeError::Task { device: name })?
    .map_err(ProbeError::Raw)
}

fn look(disk: &RawDisk, thoroughly: bool) -> Result<Content, RawError> {
    let mut content = Content::default();
    let found = intent::read_all(disk)?;
    let places: Vec<u64> = found.iter().map(|(offset, _)| *offset).collect();
    content.intents = found.into_iter().map(|(_, intent)| intent).collect();
    let size = disk.size();
    if size >= BLOCK as u64 {
        let first = disk.read(0, BLOCK)?;
        // Offset 126 of an xfs superblock is sb_inprogress: mkfs.xfs clears it as its last write.
        content.xfs_in_progress = first.bytes().starts_with(b"XFSB") && first.bytes()[126] != 0;
    }
    if thoroughly {
        for (offset, len) in zones(size).into_iter().flat_map(pieces) {
            let bytes = disk.read(offset, len)?;
            if let Some(at) = first_dirt(bytes.bytes(), offset, &places) {
                content.dirt = Some(at);
                break;
            }
        }
    }
    Ok(content)
}

/// What must be zero on a blank device: (offset, length) pairs.
fn zones(size: u64) -> Vec<(u64, usize)> {
    let whole = |offset: u64, len: u64| (offset, usize::try_from(len).expect("at most 4 MiB"));
    let sectors = size - size % 512;
    let mut zones = vec![whole(0, ENDS.min(sectors))];
    let tail = align_down(sectors.saturating_sub(ENDS));
    // The last part starts on a block and ends on the last sector.
    zones.push(whole(tail, sectors - tail));
    // Spare superblocks: ext at the second block group for 1, 2 and 4 KiB blocks (source: ext4 disk
    // layout, kernel documentation), btrfs mirrors (source: btrfs on-disk format), xfs allocation
    // groups at quarters (mkfs.xfs default for a single disk).
    let mut spots =
        vec![8193 * 1024, 32 * MIB, 128 * MIB, 64 * MIB, 256 * 1024 * MIB, size / 4, size / 2, size / 4 * 3];
    spots.extend(intent::offsets(size));
    spots.extend((1..SAMPLES).map(|nth| size / SAMPLES * nth));
    zones.extend(
        spots.into_iter().map(align_down).filter(|spot| spot + BLOCK as u64 <= sectors).map(|spot| (spot, BLOCK)),
    );
    zones
}

/// A zone in parts that are read one after the other: many disks may be looked at at once, and each has a buffer.
fn pieces((offset, len): (u64, usize)) -> impl Iterator<Item = (u64, usize)> {
    (0..len).step_by(PIECE).map(move |at| (offset + at as u64, PIECE.min(len - at)))
}

fn first_dirt(bytes: &[u8], offset: u64, intents: &[u64]) -> Option<u64> {
    let mut at = offset;
    for block in bytes.chunks(BLOCK) {
        if !intents.contains(&at)
            && let Some(within) = block.iter().position(|byte| *byte != 0)
        {
            return Some(at + within as u64);
        }
        at += block.len() as u64;
    }
    None
}

fn judge(blkid: Blkid, signatures: Vec<String>, content: Content, volume: &str) -> Verdict {
    let ours = |uuid: Option<&str>| {
        let mut mine = content.intents.iter().filter(|i| i.is_for(volume));
        let made_it = |i: &&IntentBlock| uuid.is_some_and(|uuid| uuid.eq_ignore_ascii_case(&i.nonce.to_string()));
        mine.clone().find(made_it).or_else(|| mine.next()).cloned()
    };
    // mkfs.xfs writes a superblock first and completes it last; blkid sees only the first.
    if content.xfs_in_progress {
        return match ours(None) {
            Some(intent) if signatures.iter().all(|name| name == "xfs") => Verdict::Ours(intent),
            _ => Verdict::Foreign { why: "an xfs file system whose mkfs did not finish, not made here".to_owned() },
        };
    }
    match blkid {
        Blkid::Ambivalent => Verdict::Ambiguous { found: signatures },
        Blkid::Found(values) => judge_found(&values, signatures, ours),
        Blkid::Nothing if !signatures.is_empty() => {
            Verdict::Foreign { why: format!("blkid sees nothing, wipefs sees {}", signatures.join(", ")) }
        }
        Blkid::Nothing => match (ours(None), content.intents.first(), content.dirt) {
            (Some(intent), _, _) => Verdict::Ours(intent),
            (None, Some(other), _) => {
                Verdict::Foreign { why: format!("it was being formatted for volume {}", other.volume) }
            }
            (None, None, Some(offset)) => {
                Verdict::Foreign { why: format!("unknown data, first seen at byte {offset}") }
            }
            (None, None, None) => Verdict::Blank,
        },
    }
}

fn judge_found(
    values: &BTreeMap<String, String>,
    signatures: Vec<String>,
    ours: impl Fn(Option<&str>) -> Option<IntentBlock>,
) -> Verdict {
    let value = |key: &str| values.get(key).cloned();
    match (value("TYPE"), value("PTTYPE")) {
        (Some(kind), None) => {
            if signatures.iter().any(|name| *name != kind) {
                return Verdict::Ambiguous { found: signatures };
            }
            let usage = value("USAGE").unwrap_or_default();
            if usage != "filesystem" {
                return Verdict::Foreign { why: format!("{kind} ({usage})") };
            }
            let uuid = value("UUID");
            let unfinished = ours(uuid.as_deref());
            Verdict::Filesystem { found: Filesystem { kind, uuid, label: value("LABEL") }, unfinished }
        }
        (None, Some(kind)) => Verdict::PartitionTable { kind },
        (Some(kind), Some(table)) => Verdict::Ambiguous { found: vec![kind, table] },
        (None, None) => Verdict::Foreign { why: format!("blkid names neither a type nor a table: {values:?}") },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs_type::FsType;

    fn found(pairs: &[(&str, &str)]) -> Blkid {
        Blkid::Found(pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
    }

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|n| (*n).to_owned()).collect()
    }

    fn with_intent(volume: &str) -> Content {
        Content { intents: vec![IntentBlock::new(volume, FsType::Ext4, 0)], dirt: Some(0), xfs_in_progress: false }
    }

    #[test]
    fn blank_needs_all_three_witnesses() {
        let dirty = Content { dirt: Some(4711), ..Content::default() };
        let clean = Content::default;
        assert_eq!(judge(Blkid::Nothing, vec![], clean(), "v"), Verdict::Blank);
        for verdict in [
            judge(Blkid::Nothing, vec![], dirty, "v"),
            judge(Blkid::Nothing, names(&["ext4"]), clean(), "v"),
            judge(Blkid::Ambivalent, vec![], clean(), "v"),
            judge(found(&[("PTTYPE", "gpt")]), vec![], clean(), "v"),
        ] {
            assert!(!matches!(verdict, Verdict::Blank | Verdict::Ours(_)), "{verdict:?}");
        }
    }

    #[test]
    fn an_intent_of_this_volume_makes_unknown_bytes_ours_and_another_volumes_does_not() {
        let mine = judge(Blkid::Nothing, vec![], with_intent("V"), "v");
        assert!(matches!(mine, Verdict::Ours(_)));
        let other = judge(Blkid::Nothing, vec![], with_intent("w"), "v");
        assert_eq!(other, Verdict::Foreign { why: "it was being formatted for volume w".to_owned() });
    }

    /// A snapshot that was taken while its disk was being formatted, or before the intent was erased.
    #[test]
    fn an_intent_that_was_copied_with_its_disk_is_not_this_volumes() {
        let ext4 = || found(&[("TYPE", "ext4"), ("USAGE", "filesystem"), ("UUID", "u")]);
        let copied = |blkid, signatures| judge(blkid, signatures, with_intent("source"), "copy");
        let whole = copied(ext4(), names(&["ext4"]));
        assert!(matches!(whole, Verdict::Filesystem { unfinished: None, .. }), "{whole:?}");
        let cut = copied(Blkid::Nothing, vec![]);
        assert_eq!(cut, Verdict::Foreign { why: "it was being formatted for volume source".to_owned() });
        let content = Content { xfs_in_progress: true, ..with_intent("source") };
        let xfs = judge(found(&[("TYPE", "xfs"), ("USAGE", "filesystem")]), names(&["xfs"]), content, "copy");
        assert!(matches!(xfs, Verdict::Foreign { .. }), "{xfs:?}");
    }

    #[test]
    fn an_intent_never_outweighs_a_file_system_or_a_signature() {
        let ext4 = found(&[("TYPE", "ext4"), ("USAGE", "filesystem"), ("UUID", "u")]);
        let verdict = judge(ext4, names(&["ext4"]), with_intent("v"), "v");
        assert!(matches!(verdict, Verdict::Filesystem { unfinished: Some(_), .. }));
        let luks = found(&[("TYPE", "crypto_LUKS"), ("USAGE", "crypto")]);
        for (blkid, seen) in [
            (luks, names(&["crypto_LUKS"])),
            (Blkid::Nothing, names(&["dos"])),
            (Blkid::Ambivalent, names(&["ext4", "xfs"])),
            (found(&[("PTTYPE", "dos")]), names(&["dos"])),
        ] {
            let verdict = judge(blkid, seen, with_intent("v"), "v");
            assert!(
                matches!(verdict, Verdict::Foreign { .. } | Verdict::Ambiguous { .. } | Verdict::PartitionTable { .. }),
                "{verdict:?}"
            );
        }
    }

    #[test]
    fn two_signatures_are_ambiguous_even_when_blkid_picks_one() {
        let xfs = found(&[("TYPE", "xfs"), ("USAGE", "filesystem")]);
        let verdict = judge(xfs, names(&["xfs", "ext4"]), Content::default(), "v");
        assert_eq!(verdict, Verdict::Ambiguous { found: names(&["xfs", "ext4"]) });
    }

    #[test]
    fn export_values_are_unescaped() {
        let values = parse_export("DEVNAME=/dev/sdc\nLABEL=my\\ own\\=label\nUUID=1-2\n");
        assert_eq!(values["LABEL"], "my own=label");
        assert_eq!(values["UUID"], "1-2");
    }

    #[test]
    fn zones_stay_inside_odd_sized_devices() {
        for size in [512, 4096, 5000, MIB, 16 * MIB + 512, 1024 * 1024 * MIB + 1536] {
            for (offset, len) in zones(size) {
                assert!(offset + len as u64 <= size, "{size}: {offset}+{len}");
                assert_eq!(offset % BLOCK as u64, 0);
                assert_eq!(len % 512, 0);
                // Its parts follow each other and are aligned.
                let end = pieces((offset, len)).fold(offset, |next, (at, len)| {
                    assert!(at == next && at % BLOCK as u64 == 0 && (1..=PIECE).contains(&len), "{size}: {at}+{len}");
                    at + len as u64
                });
                assert_eq!(end, offset + len as u64);
            }
        }
    }
}
