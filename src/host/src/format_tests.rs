//! Formatting on real loop devices with the real programs, cut at many points.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use super::Host;
use super::device::Device;
use super::format::{FormatError, Outcome, Request, WhenBlank, ensure_filesystem};
use super::fs_type::FsType;
use super::fsck;
use super::intent::{self, IntentBlock};
use super::lab::{LoopDisk, TempDir, able, long, sh};
use super::probe::{Verdict, probe};
use super::raw::{Access, MIB, RawDisk};

const VOLUME: &str = "/subscriptions/S/resourceGroups/G/providers/Microsoft.Compute/disks/pvc-1";
const OTHER: &str = "/subscriptions/S/resourceGroups/G/providers/Microsoft.Compute/disks/pvc-2";

fn tools(fs: FsType) -> Vec<&'static str> {
    let own: &[&str] = match fs {
        FsType::Ext2 => &["mkfs.ext2", "e2fsck"],
        FsType::Ext3 => &["mkfs.ext3", "e2fsck"],
        FsType::Ext4 => &["mkfs.ext4", "e2fsck"],
        FsType::Xfs => &["mkfs.xfs", "xfs_repair"],
        FsType::Btrfs => &["mkfs.btrfs", "btrfs"],
    };
    [own, &["losetup", "blkid", "wipefs"]].concat()
}

fn size_mib(fs: FsType) -> u64 {
    match fs {
        FsType::Ext2 | FsType::Ext3 | FsType::Ext4 => 64,
        // mkfs.xfs refuses less than 300 MiB, mkfs.btrfs less than 109 MiB.
        FsType::Xfs => 320,
        FsType::Btrfs => 128,
    }
}

fn request(fs: FsType) -> Request<'static> {
    Request { volume: VOLUME, fs, when_blank: WhenBlank::Format }
}

async fn look(disk: &LoopDisk, volume: &str) -> Verdict {
    probe(&Host::new(), &disk.device(), volume, long()).await.expect("probe")
}

async fn ensure(host: &Host, device: &Device, fs: FsType) -> Result<Outcome, FormatError> {
    ensure_filesystem(host, device, request(fs), None, long()).await
}

async fn assert_whole(disk: &LoopDisk, fs: FsType) {
    let verdict = look(disk, VOLUME).await;
    assert!(
        matches!(&verdict, Verdict::Filesystem { found, unfinished: None } if found.kind == fs.as_str()),
        "{verdict:?}"
    );
    fsck::verify(&Host::new(), &disk.device(), fs, long()).await.expect("a healthy file system");
}

#[tokio::test]
async fn a_blank_disk_gets_each_file_system_once() {
    for fs in [FsType::Ext2, FsType::Ext3, FsType::Ext4, FsType::Xfs, FsType::Btrfs] {
        if !able(&tools(fs)) {
            continue;
        }
        let disk = LoopDisk::new(size_mib(fs));
        assert_eq!(look(&disk, VOLUME).await, Verdict::Blank);
        let host = Host::new();
        let first = ensure(&host, &disk.device(), fs).await.expect("format");
        assert!(matches!(first, Outcome::Created(_)), "{first:?}");
        assert_whole(&disk, fs).await;
        let second = ensure(&host, &disk.device(), fs).await.expect("there");
        assert_eq!(second, Outcome::Existing(first.filesystem().clone()));
    }
}

#[tokio::test]
async fn go_and_lazuli_make_the_same_ext4() {
    if !able(&["mkfs.ext4", "dumpe2fs", "losetup"]) {
        return;
    }
    let features = |disk: &LoopDisk| {
        let text = sh("dumpe2fs", &["-h", disk.node.to_str().expect("utf-8")]);
        let wanted = [
            "Filesystem features",
            "Reserved block count",
            "Block count",
            "Block size",
            "Inode count",
            "Inode size",
            "Filesystem state",
            "Total journal blocks",
        ];
        let lines = text.lines().filter(|l| wanted.iter().any(|w| l.starts_with(w)));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let (ours, theirs) = (LoopDisk::new(256), LoopDisk::new(256));
    ensure(&Host::new(), &ours.device(), FsType::Ext4).await.expect("format");
    sh("mkfs.ext4", &["-F", "-m0", theirs.node.to_str().expect("utf-8")]);
    assert_eq!(features(&ours), features(&theirs));
}

/// A folder whose `mkfs.FS` runs the real one and kills it at its nth call of `syscall`.
fn killer(folder: &TempDir, fs: FsType, syscall: &str, nth: usize) -> Host {
    let program = format!("mkfs.{}", fs.as_str());
    let script = folder.path().join(&program);
    let real = Host::new()
        .search
        .iter()
        .map(|place| place.join(&program))
        .find(|path| path.is_file())
        .expect("checked before");
    let text = format!(
        "#!/bin/sh\nexec strace -f -o /dev/null -e trace={syscall} \
         -e inject={syscall}:signal=SIGKILL:when={nth} {} \"$@\"\n",
        real.display()
    );
    fs::write(&script, text).expect("script");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("mode");
    let mut search: Vec<PathBuf> = vec![folder.path().to_path_buf()];
    search.extend(Host::new().search);
    // strace looks into the program, which one that is confined does not allow.
    Host::new().with_search(search).unconfined()
}

/// How often the busiest thread of the real `mkfs` makes this call on a disk of the test's size; `strace` counts the
/// calls of each thread by itself.
fn count_calls(fs: FsType, syscall: &str) -> usize {
    let disk = LoopDisk::new(size_mib(fs));
    let folder = TempDir::new("trace");
    let trace = folder.path().join("trace");
    let program = format!("mkfs.{}", fs.as_str());
    let mut args = vec!["-f", "-o", trace.to_str().expect("utf-8"), "-e"];
    let filter = format!("trace={syscall}");
    args.extend([filter.as_str(), program.as_str()]);
    let plain: &[&str] = match fs {
        FsType::Ext2 | FsType::Ext3 | FsType::Ext4 => &["-q", "-F", "-m0", "-E", "nodiscard"],
        FsType::Xfs | FsType::Btrfs => &["-q", "-f", "-K"],
    };
    args.extend(plain);
    args.push(disk.node.to_str().expect("utf-8"));
    sh("strace", &args);
    let text = fs::read_to_string(&trace).expect("trace");
    let call = format!("{syscall}(");
    let mut counts = BTreeMap::new();
    for line in text.lines().filter(|line| line.contains(&call)) {
        *counts.entry(line.split(' ').next()).or_insert(0) += 1;
    }
    counts.into_values().max().unwrap_or(0)
}

/// Cuts `mkfs` at `points` of its writes and flushes, and recovers each time.
async fn survives_kills(fs: FsType, points: usize) {
    if !able(&tools(fs)) || !able(&["strace"]) {
        return;
    }
    let writes = count_calls(fs, "pwrite64");
    let flushes = count_calls(fs, "fsync");
    let mut cuts: Vec<(&str, usize)> = (0..points).map(|n| ("pwrite64", 1 + n * (writes - 1) / (points - 1))).collect();
    cuts.extend((1..=flushes.min(4)).map(|n| ("fsync", n)));
    cuts.dedup();
    assert!(cuts.len() >= points.min(writes), "{cuts:?}");
    let folder = TempDir::new("killer");
    let mut completed = 0;
    for (syscall, nth) in cuts {
        let disk = LoopDisk::new(size_mib(fs));
        let at = format!("{fs}, killed at {syscall} {nth} of {writes}");
        let deadly = killer(&folder, fs, syscall, nth);
        let error = ensure(&deadly, &disk.device(), fs).await.expect_err(&at);
        assert!(
            matches!(&error, FormatError::MkfsFailed { ending, .. } if ending.contains("signal 9")),
            "{at}: {error:?}"
        );
        // Another volume at the same LUN by mistake is told so, and changes nothing.
        let stranger = look(&disk, OTHER).await;
        assert!(!matches!(stranger, Verdict::Blank | Verdict::Ours(_)), "{at}: {stranger:?}");
        let verdict = look(&disk, VOLUME).await;
        assert!(
            matches!(verdict, Verdict::Ours(_) | Verdict::Filesystem { unfinished: Some(_), .. }),
            "{at}: {verdict:?}"
        );
        let outcome = ensure(&Host::new(), &disk.device(), fs).await.unwrap_or_else(|error| panic!("{at}: {error:?}"));
        match outcome {
            Outcome::Completed(_) => completed += 1,
            Outcome::Created(_) => {}
            Outcome::Existing(_) => panic!("{at}: the intent was lost"),
        }
        assert_whole(&disk, fs).await;
    }
    eprintln!("{fs}: {writes} writes; {completed} cuts left a whole file system");
}

#[tokio::test]
async fn ext4_recovers_from_a_kill_at_twenty_points_of_mkfs() {
    survives_kills(FsType::Ext4, 20).await;
}

#[tokio::test]
async fn ext3_recovers_from_a_kill_inside_mkfs() {
    survives_kills(FsType::Ext3, 6).await;
}

#[tokio::test]
async fn xfs_recovers_from_a_kill_at_twenty_points_of_mkfs() {
    survives_kills(FsType::Xfs, 20).await;
}

#[tokio::test]
async fn btrfs_recovers_from_a_kill_at_twenty_points_of_mkfs() {
    survives_kills(FsType::Btrfs, 20).await;
}

/// Every byte stays, and the answer is a refusal.
async fn assert_refused(disk: &LoopDisk, what: &str) {
    let before = disk.content();
    let error = ensure(&Host::new(), &disk.device(), FsType::Ext4).await.expect_err(what);
    assert!(matches!(error, FormatError::Refused { .. } | FormatError::WrongType { .. }), "{what}: {error:?}");
    assert!(disk.content() == before, "{what}: bytes changed");
}

#[tokio::test]
async fn foreign_data_is_never_formatted() {
    if !able(&["losetup", "blkid", "wipefs", "mkfs.ext4", "mkfs.xfs"]) {
        return;
    }
    let size = 64 * MIB;
    for (what, offset) in [
        ("a byte at the beginning", 5),
        ("a byte just inside the first 4 MiB", 4 * MIB - 1),
        ("a byte at the end", size - 1),
        ("a byte just inside the last 4 MiB", size - 4 * MIB),
        ("data where a copy of the intent goes", size - 3 * MIB),
        ("data where the other copy goes", size / 2 - 3 * MIB),
        ("data in the middle", size / 2),
    ] {
        let disk = LoopDisk::new(64);
        disk.write(offset, &[1]);
        assert_refused(&disk, what).await;
    }
    let disk = LoopDisk::new(64);
    disk.write(0, b"LUKS\xba\xbe\0\x01");
    assert_refused(&disk, "a LUKS header").await;

    let disk = LoopDisk::new(64);
    // A DOS label with one Linux partition of 32 MiB behind the first MiB.
    let mut label = [0_u8; 512];
    label[450] = 0x83;
    label[454..458].copy_from_slice(&2048_u32.to_le_bytes());
    label[458..462].copy_from_slice(&65536_u32.to_le_bytes());
    label[510..].copy_from_slice(&[0x55, 0xAA]);
    disk.write(0, &label);
    let verdict = look(&disk, VOLUME).await;
    assert_eq!(verdict, Verdict::PartitionTable { kind: "dos".to_owned() });
    assert_refused(&disk, "a partition table").await;

    let disk = LoopDisk::new(320);
    sh("mkfs.xfs", &["-q", disk.node.to_str().expect("utf-8")]);
    assert_refused(&disk, "another file system").await;
}

#[tokio::test]
async fn an_ext4_whose_first_superblock_was_lost_is_not_blank() {
    if !able(&["losetup", "blkid", "wipefs", "mkfs.ext4"]) {
        return;
    }
    let disk = LoopDisk::new(300);
    sh("mkfs.ext4", &["-q", "-F", disk.node.to_str().expect("utf-8")]);
    disk.write(0, &vec![0; 4 << 20]);
    assert_refused(&disk, "ext4 without its first 4 MiB").await;
}

#[tokio::test]
async fn another_volumes_unfinished_format_is_refused() {
    if !able(&["losetup", "blkid", "wipefs"]) {
        return;
    }
    let disk = LoopDisk::new(64);
    let foreign = IntentBlock::new(OTHER, FsType::Ext4, 64 * MIB);
    disk.write(64 * MIB - 3 * MIB, &foreign.encode());
    assert_refused(&disk, "an intent of another volume").await;
}

#[tokio::test]
async fn a_blank_disk_that_must_hold_data_is_not_formatted() {
    if !able(&["losetup", "blkid", "wipefs"]) {
        return;
    }
    let disk = LoopDisk::new(64);
    let clone = Request { when_blank: WhenBlank::Refuse, ..request(FsType::Ext4) };
    let error = ensure_filesystem(&Host::new(), &disk.device(), clone, None, long())
        .await
        .expect_err("a clone is never formatted");
    assert!(matches!(error, FormatError::Blank { .. }));
    assert_eq!(look(&disk, VOLUME).await, Verdict::Blank);
}

#[tokio::test]
async fn a_cut_between_the_copies_of_the_intent_is_recovered() {
    if !able(&tools(FsType::Ext4)) {
        return;
    }
    let intent = IntentBlock::new(VOLUME, FsType::Ext4, 300 * MIB);
    for offset in intent::offsets(300 * MIB) {
        let disk = LoopDisk::new(300);
        disk.write(offset, &intent.encode());
        assert_eq!(look(&disk, VOLUME).await, Verdict::Ours(intent.clone()));
        let outcome = ensure(&Host::new(), &disk.device(), FsType::Ext4).await;
        assert!(matches!(outcome, Ok(Outcome::Created(_))), "{outcome:?}");
        assert_whole(&disk, FsType::Ext4).await;
    }
}

#[tokio::test]
async fn an_unfinished_format_is_found_after_the_disk_was_grown() {
    if !able(&tools(FsType::Ext4)) || !able(&["strace"]) {
        return;
    }
    let disk = LoopDisk::new(300);
    let folder = TempDir::new("killer");
    let deadly = killer(&folder, FsType::Ext4, "pwrite64", 30);
    let cut = ensure(&deadly, &disk.device(), FsType::Ext4).await;
    assert!(matches!(cut, Err(FormatError::MkfsFailed { .. })));
    disk.grow(700);
    disk.reread_size();
    let outcome = ensure(&Host::new(), &disk.device(), FsType::Ext4).await;
    assert!(matches!(outcome, Ok(Outcome::Created(_))), "{outcome:?}");
    // The copies at the places of the old size belong to no file system; none may be left.
    for offset in intent::offsets(300 * MIB) {
        let at = usize::try_from(offset).expect("small");
        let block = &disk.content()[at..at + 4096];
        assert_eq!(IntentBlock::decode(block), None, "at {offset}");
    }
}

#[tokio::test]
async fn a_cut_between_mkfs_and_erasing_completes_without_a_second_mkfs() {
    for fs in [FsType::Ext4, FsType::Xfs, FsType::Btrfs] {
        if !able(&tools(fs)) {
            continue;
        }
        let disk = LoopDisk::new(size_mib(fs));
        let made = ensure(&Host::new(), &disk.device(), fs).await.expect("made");
        let uuid = made.filesystem().uuid.clone().expect("has one");
        let mut intent = IntentBlock::new(VOLUME, fs, size_mib(fs) * MIB);
        intent.nonce = uuid.parse().expect("a UUID");
        // Erasing was cut after the first copy: the last one still stands.
        let last = intent::offsets(size_mib(fs) * MIB).pop().expect("copies");
        disk.write(last, &intent.encode());
        let again = ensure(&Host::new(), &disk.device(), fs).await.expect("kept");
        assert_eq!(again, Outcome::Completed(made.filesystem().clone()));
        assert_whole(&disk, fs).await;
    }
}

/// mkfs closes the device before it ends, and one that is only being started has not opened it: neither claims it.
#[tokio::test]
async fn an_unfinished_format_is_not_taken_over_from_a_program_that_claims_nothing() {
    if !able(&tools(FsType::Ext4)) {
        return;
    }
    let disk = LoopDisk::new(64);
    let made = ensure(&Host::new(), &disk.device(), FsType::Ext4).await.expect("made");
    for own in [true, false] {
        let mut intent = IntentBlock::new(VOLUME, FsType::Ext4, 64 * MIB);
        if own {
            intent.nonce = made.filesystem().uuid.as_deref().and_then(|uuid| uuid.parse().ok()).expect("a UUID");
        }
        disk.write(61 * MIB, &intent.encode());
        let before = disk.content();
        let input = fs::File::open(&disk.node).expect("open");
        let mut orphan = Command::new("sleep").arg("600").stdin(input).spawn().expect("sleep");
        let error = ensure(&Host::new(), &disk.device(), FsType::Ext4).await.expect_err("held");
        assert!(matches!(error, FormatError::Orphan { pid, .. } if pid == orphan.id()), "{error:?}");
        assert!(disk.content() == before, "bytes changed");
        orphan.kill().expect("kill");
        orphan.wait().expect("wait");
        let outcome = ensure(&Host::new(), &disk.device(), FsType::Ext4).await.expect("kept");
        assert_eq!(matches!(outcome, Outcome::Completed(_)), own, "{outcome:?}");
        assert_whole(&disk, FsType::Ext4).await;
    }
}

#[tokio::test]
async fn a_file_system_made_by_someone_else_over_an_unfinished_format_is_kept() {
    if !able(&tools(FsType::Ext4)) {
        return;
    }
    let disk = LoopDisk::new(64);
    sh("mkfs.ext4", &["-q", "-F", disk.node.to_str().expect("utf-8")]);
    let intent = IntentBlock::new(VOLUME, FsType::Ext4, 64 * MIB);
    disk.write(61 * MIB, &intent.encode());
    let outcome = ensure(&Host::new(), &disk.device(), FsType::Ext4).await.expect("kept");
    assert!(matches!(outcome, Outcome::Existing(_)), "{outcome:?}");
    assert_whole(&disk, FsType::Ext4).await;
}

#[tokio::test]
async fn a_damaged_file_system_beside_its_intent_is_reported_and_left() {
    if !able(&tools(FsType::Ext4)) {
        return;
    }
    let disk = LoopDisk::new(64);
    let made = ensure(&Host::new(), &disk.device(), FsType::Ext4).await.expect("made");
    let uuid = made.filesystem().uuid.clone().expect("has one");
    let mut intent = IntentBlock::new(VOLUME, FsType::Ext4, 64 * MIB);
    intent.nonce = uuid.parse().expect("a UUID");
    disk.write(61 * MIB, &intent.encode());
    // Group descriptors that never reached the disk.
    disk.write(2048, &[0xFF; 2048]);
    let before = disk.content();
    let error = ensure(&Host::new(), &disk.device(), FsType::Ext4).await.expect_err("damaged");
    assert!(matches!(error, FormatError::Unfinished { .. }), "{error:?}");
    assert!(disk.content() == before, "bytes changed");
}

#[tokio::test]
async fn a_device_that_someone_holds_is_not_formatted() {
    if !able(&tools(FsType::Ext4)) {
        return;
    }
    let disk = LoopDisk::new(64);
    // What a mkfs that outlived its parent looks like.
    let orphan = RawDisk::open(&disk.device(), Access::ClaimWrite).expect("claim");
    let error = ensure(&Host::new(), &disk.device(), FsType::Ext4).await.expect_err("held");
    assert!(matches!(error, FormatError::Raw(super::raw::RawError::InUse { .. })), "{error:?}");
    drop(orphan);
    assert_eq!(look(&disk, VOLUME).await, Verdict::Blank);
}

#[tokio::test]
async fn a_device_whose_number_changed_is_not_touched() {
    if !able(&tools(FsType::Ext4)) {
        return;
    }
    let (disk, other) = (LoopDisk::new(64), LoopDisk::new(64));
    let mixed = Device { path: other.node.clone(), ..disk.device() };
    let error = ensure(&Host::new(), &mixed, FsType::Ext4).await.expect_err("replaced");
    let text = format!("{error:?}");
    assert!(text.contains("Replaced"), "{text}");
    assert_eq!(look(&other, VOLUME).await, Verdict::Blank);
}
