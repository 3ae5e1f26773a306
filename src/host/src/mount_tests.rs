//! Mounting, releasing, growing and measuring on real loop devices.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use super::device::Device;
use super::format::{Request, WhenBlank, ensure_filesystem};
use super::fs_type::FsType;
use super::lab::{FakeRoot, LoopDisk, TempDir, able, long, may_grow_mounted_ext, sh};
use super::mount::{
    Done, MountError, TargetKind, TargetState, bind, ensure_target, is_corruption, matches, mount_block, remove_target,
    state, table, unmount,
};
use super::options::Options;
use super::raw::{MIB, RawDisk, RawError};
use super::release::{Holder, ReleaseError, Released, ensure_released};
use super::resize::{self, ResizeError};
use super::{Deadline, Host, fsck, mountinfo, stats};

/// A formatted loop disk and a folder to mount it on.
struct Volume {
    // Dropped before the disk: the mounts go first.
    folder: TempDir,
    disk: LoopDisk,
    host: Host,
    fs: FsType,
}

impl Volume {
    async fn new(fs: FsType, mib: u64) -> Option<Self> {
        let program = format!("mkfs.{}", fs.as_str());
        if !able(&[&program, "losetup", "blkid", "wipefs"]) {
            return None;
        }
        let volume = Self { folder: TempDir::new("mount"), disk: LoopDisk::new(mib), host: Host::new(), fs };
        let request = Request { volume: "v", fs, when_blank: WhenBlank::Format };
        ensure_filesystem(&volume.host, &volume.device(), request, None, long()).await.expect("format");
        Some(volume)
    }

    fn device(&self) -> Device {
        self.disk.device()
    }

    fn target(&self, name: &str) -> PathBuf {
        self.folder.dir(name)
    }

    async fn mount(&self, target: &Path, options: &[&str]) -> Result<Done, MountError> {
        let options = Options::parse(options).expect("options");
        let name = self.fs.as_str();
        mount_block(&self.host, &self.device(), target, name, &options, long()).await
    }

    async fn bind(&self, from: &Path, to: &Path, options: &[&str]) -> Result<Done, MountError> {
        let options = Options::parse(options).expect("options");
        bind(&self.host, from, to, &options, long()).await
    }
}

fn can_write(folder: &Path) -> bool {
    fs::write(folder.join("probe-file"), b"x").is_ok()
}

#[tokio::test]
async fn each_file_system_mounts_with_options_and_repeating_changes_nothing() {
    for (fs, mib) in
        [(FsType::Ext2, 64), (FsType::Ext3, 64), (FsType::Ext4, 64), (FsType::Xfs, 320), (FsType::Btrfs, 128)]
    {
        let Some(volume) = Volume::new(fs, mib).await else {
            continue;
        };
        let target = volume.target("stage with space");
        let options = ["noatime,nosuid", "discard"];
        let first = volume.mount(&target, &options).await.expect("mount");
        assert_eq!(first, Done::Now);
        let again = volume.mount(&target, &options).await.expect("repeat");
        assert_eq!(again, Done::Already);
        let mounts = table(&volume.host).await.expect("table");
        let here = mountinfo::at(&mounts, &target);
        assert_eq!(here.len(), 1);
        assert!(matches(here[0], &volume.device(), fs.as_str(), false));
        assert!(!matches(here[0], &volume.device(), fs.as_str(), true));
        for flag in ["noatime", "nosuid"] {
            assert!(here[0].options.iter().any(|o| o == flag), "{fs}: {here:?}");
        }
        assert!(can_write(&target));
        assert_eq!(unmount(&volume.host, &target, long()).await.expect("umount"), 1);
        assert_eq!(unmount(&volume.host, &target, long()).await.expect("twice"), 0);
        let released = ensure_released(&volume.host, &volume.device(), long()).await;
        assert_eq!(released.expect("free"), Released::Free);
    }
}

/// A program that is being started has copies of this process's claims for an instant.
#[tokio::test]
async fn a_check_and_a_mount_wait_for_a_claim_that_is_just_given_up() {
    let Some(volume) = Volume::new(FsType::Ext4, 64).await else {
        return;
    };
    let device = volume.device();
    let held_for_a_moment = || {
        let claim = RawDisk::claim(&device).expect("free");
        thread::spawn(move || {
            // A tenth of the time for which a mount and a check wait.
            thread::sleep(Duration::from_millis(30));
            drop(claim);
        });
    };
    let target = volume.target("stage");
    held_for_a_moment();
    volume.mount(&target, &[]).await.expect("mount");
    assert_eq!(unmount(&volume.host, &target, long()).await.expect("umount"), 1);
    if able(&["fsck"]) {
        held_for_a_moment();
        assert_eq!(fsck::repair(&volume.host, &device, long()).await.expect("checked"), fsck::Repair::Clean);
    }
    // Held for longer, it is an answer.
    let _held = RawDisk::claim(&device).expect("free");
    let error = volume.mount(&target, &[]).await.expect_err("held");
    assert!(
        matches!(&error, MountError::System { source, .. } if source.kind() == io::ErrorKind::ResourceBusy),
        "{error}"
    );
}

/// The kernel gives the number of a disk that has left to the next one.
#[tokio::test]
async fn a_disk_that_has_the_number_of_the_one_that_was_found_is_neither_opened_nor_mounted() {
    let Some(volume) = Volume::new(FsType::Ext4, 64).await else {
        return;
    };
    let found = volume.device();
    let Some((boot, _)) = found.sequence.as_deref().and_then(|sequence| sequence.rsplit_once("/diskseq/")) else {
        return;
    };
    let before = Device { sequence: Some(format!("{boot}/diskseq/0")), ..found.clone() };
    let (target, options) = (volume.target("stage"), Options::default());
    let error = mount_block(&volume.host, &before, &target, "ext4", &options, long()).await.expect_err("another disk");
    assert!(matches!(error, MountError::System { .. }), "{error:?}");
    let error = RawDisk::claim(&before).expect_err("another disk");
    assert!(matches!(error, RawError::Replaced { .. }), "{error:?}");
    // Where the sequence of one of them is not known, the number decides.
    drop(RawDisk::claim(&Device { sequence: None, ..found.clone() }).expect("by its number"));
    drop(RawDisk::claim(&found).expect("the disk that was found"));
}

#[tokio::test]
async fn a_file_system_is_checked_before_it_is_mounted() {
    let Some(volume) = Volume::new(FsType::Ext4, 64).await else {
        return;
    };
    if !able(&["fsck", "debugfs"]) {
        return;
    }
    let device = volume.device();
    let repair = fsck::repair(&volume.host, &device, long()).await;
    assert_eq!(repair.expect("clean"), fsck::Repair::Clean);
    // Errors beyond an automatic repair: the root folder's inode is cleared.
    let node = device.path.to_str().expect("utf-8");
    sh("debugfs", &["-w", "-R", "clri <2>", node]);
    sh("debugfs", &["-w", "-R", "ssv state 2", node]);
    let error = fsck::repair(&volume.host, &device, long()).await.expect_err("broken");
    assert!(matches!(error, fsck::CheckError::Uncorrected { .. }), "{error}");
}

/// The Go driver mounts whatever fsck could not look at.
#[tokio::test]
async fn a_check_that_could_not_run_says_nothing_of_the_data_and_stops_the_mount() {
    if !able(&["fsck", "mkfs.ext4", "losetup"]) {
        return;
    }
    let disk = LoopDisk::new(16);
    let gone = Device { path: "/dev/lazuli-no-such-disk".into(), ..disk.device() };
    let error = fsck::repair(&Host::new(), &gone, long()).await.expect_err("nothing was checked");
    assert!(matches!(error, fsck::CheckError::Failed { .. } | fsck::CheckError::Child { .. }), "{error}");
}

#[tokio::test]
async fn a_read_only_mount_refuses_writes_and_does_not_pass_for_a_writable_one() {
    let Some(volume) = Volume::new(FsType::Ext4, 64).await else {
        return;
    };
    let target = volume.target("stage");
    volume.mount(&target, &["ro"]).await.expect("mount");
    assert!(!can_write(&target));
    assert_eq!(volume.mount(&target, &["ro"]).await.expect("repeat"), Done::Already);
    let error = volume.mount(&target, &[]).await.expect_err("it is read-only");
    assert!(matches!(error, MountError::Occupied { .. }), "{error}");
}

#[tokio::test]
async fn another_volume_at_the_target_is_an_error_and_stays() {
    let (Some(one), Some(two)) = (Volume::new(FsType::Ext4, 64).await, Volume::new(FsType::Ext4, 64).await) else {
        return;
    };
    let target = one.target("stage");
    one.mount(&target, &[]).await.expect("mount");
    let error = two.mount(&target, &[]).await.expect_err("taken");
    assert!(error.to_string().contains("is taken: ext4 of /dev/loop"), "{error}");
    let mounts = table(&one.host).await.expect("table");
    assert_eq!(mountinfo::at(&mounts, &target).len(), 1);
}

#[tokio::test]
async fn a_failed_mount_says_why_and_leaves_nothing() {
    let Some(volume) = Volume::new(FsType::Ext4, 64).await else {
        return;
    };
    let target = volume.target("stage");
    let error = volume.mount(&target, &["no-such-option"]).await.expect_err("ext4 does not know it");
    assert!(matches!(error, MountError::Rejected { .. }), "{error}");
    assert!(
        error.to_string().contains("ext4") && error.to_string().contains("\"no-such-option,errors=remount-ro\""),
        "{error}"
    );
    let found = state(&volume.host, &target, long()).await.expect("state");
    assert_eq!(found, TargetState::Bare(TargetKind::Directory));
}

#[tokio::test]
async fn a_bind_is_read_only_when_asked_and_catches_up_after_a_cut() {
    let Some(volume) = Volume::new(FsType::Ext4, 64).await else {
        return;
    };
    let (stage, publish) = (volume.target("stage"), volume.target("publish"));
    volume.mount(&stage, &[]).await.expect("mount");
    // Killed between the bind and the remount: it is there, and writable.
    assert_eq!(volume.bind(&stage, &publish, &[]).await.expect("bind"), Done::Now);
    assert!(can_write(&publish));
    let caught_up = volume.bind(&stage, &publish, &["ro", "noexec"]).await;
    assert_eq!(caught_up.expect("remount"), Done::Now);
    assert!(!can_write(&publish));
    assert!(can_write(&stage));
    let again = volume.bind(&stage, &publish, &["ro", "noexec"]).await;
    assert_eq!(again.expect("repeat"), Done::Already);
    let error = volume.bind(&stage, &publish, &[]).await.expect_err("read-only");
    assert!(matches!(error, MountError::Occupied { .. }), "{error}");
    let elsewhere = volume.target("elsewhere");
    let error = volume.bind(&elsewhere, &publish, &["ro"]).await;
    assert!(matches!(error, Err(MountError::Occupied { .. })));
}

#[tokio::test]
async fn a_sub_folder_and_the_whole_volume_are_different_binds() {
    let Some(volume) = Volume::new(FsType::Btrfs, 128).await else {
        return;
    };
    let (stage, publish) = (volume.target("stage"), volume.target("publish"));
    volume.mount(&stage, &[]).await.expect("mount");
    fs::create_dir(stage.join("sub")).expect("folder");
    let sub = stage.join("sub");
    volume.bind(&sub, &publish, &[]).await.expect("bind");
    assert_eq!(volume.bind(&sub, &publish, &[]).await.expect("repeat"), Done::Already);
    let error = volume.bind(&stage, &publish, &[]).await;
    assert!(matches!(error, Err(MountError::Occupied { .. })));
}

#[tokio::test]
async fn a_raw_device_is_bound_onto_a_file_and_removed_again() {
    if !able(&["losetup"]) {
        return;
    }
    let (folder, disk, host) = (TempDir::new("block"), LoopDisk::new(16), Host::new());
    let target = folder.path().join("deep/publish");
    let none = Options::default();
    for expected in [Done::Now, Done::Already] {
        let made = ensure_target(&host, &target, TargetKind::File, long()).await;
        assert_eq!(made.expect("target"), expected);
        let bound = bind(&host, &disk.node, &target, &none, long()).await;
        assert_eq!(bound.expect("bind"), expected);
    }
    assert_eq!(super::lab::number(&target), disk.device().number);
    for _ in 0..2 {
        remove_target(&host, &target, long()).await.expect("remove");
        assert!(!target.exists());
    }
}

#[tokio::test]
async fn stacked_mounts_are_all_removed() {
    let Some(volume) = Volume::new(FsType::Ext4, 64).await else {
        return;
    };
    let target = volume.target("stage");
    volume.mount(&target, &[]).await.expect("mount");
    for _ in 0..2 {
        // The kernel refuses the same device twice on one target; binds of it stack.
        rustix::mount::mount_bind(&target, &target).expect("bind");
    }
    let mounts = table(&volume.host).await.expect("table");
    assert_eq!(mountinfo::at(&mounts, &target).len(), 3);
    assert_eq!(unmount(&volume.host, &target, long()).await.expect("umount"), 3);
}

#[tokio::test]
async fn data_written_below_an_unmounted_target_is_never_deleted() {
    let (folder, host) = (TempDir::new("target"), Host::new());
    let target = folder.dir("publish");
    fs::write(target.join("data"), b"precious").expect("write");
    let error = remove_target(&host, &target, long()).await.expect_err("not empty");
    assert!(matches!(error, MountError::NotEmpty { .. }));
    assert!(target.join("data").exists());
    let file = folder.path().join("file");
    fs::write(&file, b"precious").expect("write");
    let error = remove_target(&host, &file, long()).await.expect_err("not empty");
    assert!(matches!(error, MountError::NotEmpty { .. }));
}

#[tokio::test]
async fn a_busy_volume_is_not_unmounted() {
    let Some(volume) = Volume::new(FsType::Ext4, 64).await else {
        return;
    };
    let target = volume.target("stage");
    volume.mount(&target, &[]).await.expect("mount");
    let open = fs::File::create(target.join("open")).expect("file");
    let error = unmount(&volume.host, &target, long()).await.expect_err("open");
    assert!(matches!(error, MountError::Busy { .. }));
    drop(open);
    assert_eq!(unmount(&volume.host, &target, long()).await.expect("umount"), 1);
}

#[tokio::test]
async fn targets_reached_through_a_link_are_recognised_and_links_themselves_are_not_followed() {
    let Some(volume) = Volume::new(FsType::Ext4, 64).await else {
        return;
    };
    let real = volume.target("real/stage");
    let link = volume.folder.path().join("link");
    std::os::unix::fs::symlink(volume.folder.path().join("real"), &link).expect("link");
    volume.mount(&link.join("stage"), &[]).await.expect("mount");
    assert_eq!(volume.mount(&real, &[]).await.expect("same"), Done::Already);
    let error = remove_target(&volume.host, &link, long()).await;
    assert!(matches!(error, Err(MountError::NotEmpty { .. })));
    assert_eq!(unmount(&volume.host, &link.join("stage"), long()).await.expect("umount"), 1);
}

#[test]
fn what_a_file_system_reports_of_a_dead_or_foreign_disk_is_corruption() {
    let of = |fs_type: &str| mountinfo::parse(format!("40 1 0:44 / /a rw - {fs_type} //h/s rw").as_bytes());
    let corruption = |code: i32| is_corruption(&io::Error::from_raw_os_error(code), &of("ext4"));
    // I/O error; "structure needs cleaning" and "bad message", as ext4 and xfs report; the errors of dead shares.
    for code in [5, 6, 19, 74, 107, 108, 112, 116, 117] {
        assert!(corruption(code), "{}", io::Error::from_raw_os_error(code));
    }
    // A path that is absent, closed to this user, no folder, or busy says nothing of the mount.
    for code in [1, 2, 11, 13, 16, 20, 40] {
        assert!(!corruption(code), "{}", io::Error::from_raw_os_error(code));
    }
    // "Try again" is what a share says whose server has it no more.
    let again = io::Error::from_raw_os_error(11);
    assert!(is_corruption(&again, &of("cifs")) && is_corruption(&again, &of("smb3")));
    assert!(!is_corruption(&again, &of("nfs4")) && !is_corruption(&again, &[]));
}

#[tokio::test]
async fn a_dead_mount_is_seen_as_corrupted_and_can_be_unmounted() {
    let Some(volume) = Volume::new(FsType::Ext4, 64).await else {
        return;
    };
    let target = volume.target("stage");
    volume.mount(&target, &[]).await.expect("mount");
    for n in 0..200 {
        fs::create_dir(target.join(format!("folder-{n}"))).expect("folder");
    }
    unmount(&volume.host, &target, long()).await.expect("umount");
    volume.mount(&target, &[]).await.expect("mount");
    // The disk loses its content behind the file system's back, as after a forced detach.
    let image = fs::OpenOptions::new().write(true).open(&volume.disk.file);
    image.expect("image").set_len(0).expect("cut");
    fs::write("/proc/sys/vm/drop_caches", "3").expect("root may");
    let found = state(&volume.host, &target, long()).await.expect("state");
    let TargetState::Corrupted { mounts, error } = found else {
        panic!("{found:?}");
    };
    assert_eq!(mounts.len(), 1, "{error}");
    remove_target(&volume.host, &target, long()).await.expect("removed");
    assert!(!target.exists());
}

/// A process that keeps a copy of all mounts in a namespace of its own.
struct Hoarder(Child);

impl Hoarder {
    fn start() -> Self {
        let mut child = Command::new("unshare")
            .args(["--mount", "--propagation", "private"])
            .args(["sh", "-c", "echo ready; read line"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("ready");
        Self(child)
    }
}

impl Drop for Hoarder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_mount_in_another_namespace_keeps_the_disk_and_is_named() {
    let Some(volume) = Volume::new(FsType::Ext4, 64).await else {
        return;
    };
    if !able(&["unshare"]) {
        return;
    }
    let target = volume.target("stage");
    volume.mount(&target, &[]).await.expect("mount");
    let hoarder = Hoarder::start();
    unmount(&volume.host, &target, long()).await.expect("umount here");
    let error = ensure_released(&volume.host, &volume.device(), long()).await.expect_err("it is mounted there");
    let ReleaseError::InUse { holders, .. } = &error else {
        panic!("{error}");
    };
    let named = holders.iter().any(|holder| {
        matches!(holder, Holder::Mount { pid, target: at, .. }
            if *pid == hoarder.0.id() && *at == target)
    });
    assert!(named, "{error}");
    drop(hoarder);
    let released = ensure_released(&volume.host, &volume.device(), long()).await;
    assert_eq!(released.expect("free"), Released::Free);
}

#[tokio::test]
async fn a_disk_that_left_sysfs_or_whose_name_is_anothers_is_gone() {
    if !able(&["losetup"]) {
        return;
    }
    let (disk, other) = (LoopDisk::new(16), LoopDisk::new(16));
    let root = FakeRoot::new();
    root.add("1:0:0:4", "sdc", &disk);
    let host = root.host();
    let device = super::device::find_by_lun(&host, 4).await.expect("there");
    let release = async || ensure_released(&host, &device, long()).await;
    assert_eq!(release().await.expect("free"), Released::Free);
    root.remove("1:0:0:4", "sdc");
    assert_eq!(release().await.expect("gone"), Released::Gone);
    root.add_block("sdc", &other);
    assert_eq!(release().await.expect("another's"), Released::Gone);
}

#[tokio::test]
async fn each_file_system_grows_online_to_the_size_of_its_disk() {
    for (fs, from, to) in
        [(FsType::Ext3, 64, 200), (FsType::Ext4, 64, 200), (FsType::Xfs, 320, 640), (FsType::Btrfs, 128, 320)]
    {
        let Some(volume) = Volume::new(fs, from).await else {
            continue;
        };
        if !able(&["resize2fs", "xfs_growfs", "btrfs"]) {
            return;
        }
        let target = volume.target("stage");
        let host = &volume.host;
        volume.mount(&target, &[]).await.expect("mount");
        let device = volume.device();
        let needs = resize::needs_resize(host, &device, fs, &target, long()).await;
        assert!(!needs.expect("readable"), "{fs}: it fills its disk");

        volume.disk.grow(to);
        let soon = Deadline::after(Duration::from_millis(300));
        let early = resize::rescan(host, &device, to * MIB, soon).await;
        assert!(matches!(early, Err(ResizeError::TooSmall { .. })), "{fs}");
        let waiting = resize::rescan(host, &device, to * MIB, long());
        let azure = async { volume.disk.reread_size() };
        let (device, ()) = tokio::join!(waiting, azure);
        let device = device.expect("grown");
        assert_eq!(device.size_bytes, to * MIB);
        assert_eq!(stats::block(host, &device).expect("size"), to * MIB);

        let needs = resize::needs_resize(host, &device, fs, &target, long()).await;
        assert!(needs.expect("readable"), "{fs}");
        let before = stats::filesystem(host, &target, long()).await.expect("stats");
        if matches!(fs, FsType::Ext3 | FsType::Ext4) && !may_grow_mounted_ext() {
            let error = resize::grow(host, &device, fs, &target, long()).await.expect_err("the kernel refuses");
            assert!(matches!(error, ResizeError::NotCapable { .. }), "{error}");
            assert!(error.to_string().contains("CAP_SYS_RESOURCE"), "{error}");
            continue;
        }
        for _ in 0..2 {
            resize::grow(host, &device, fs, &target, long()).await.expect("grow");
        }
        let after = stats::filesystem(host, &target, long()).await.expect("stats");
        assert!(after.bytes.total > before.bytes.total + 64 * MIB, "{fs}: {after:?}");
    }
}

#[tokio::test]
async fn a_rescan_is_asked_of_the_disks_own_scsi_device() {
    if !able(&["losetup"]) {
        return;
    }
    let disk = LoopDisk::new(16);
    let root = FakeRoot::new();
    root.add("1:0:0:4", "sdc", &disk);
    let attribute = root.scsi("1:0:0:4").join("rescan");
    fs::write(&attribute, "").expect("attribute");
    let host = root.host();
    let device = super::device::find_by_lun(&host, 4).await.expect("there");
    let soon = Deadline::after(Duration::from_millis(100));
    let early = resize::rescan(&host, &device, 32 * MIB, soon).await;
    assert!(matches!(early, Err(ResizeError::TooSmall { .. })));
    assert_eq!(fs::read_to_string(&attribute).expect("written"), "1");
}

#[tokio::test]
async fn stats_count_bytes_and_inodes() {
    let Some(volume) = Volume::new(FsType::Ext4, 64).await else {
        return;
    };
    let target = volume.target("stage");
    volume.mount(&target, &[]).await.expect("mount");
    let before = stats::filesystem(&volume.host, &target, long()).await.expect("stats");
    fs::write(target.join("file"), vec![1; 4 << 20]).expect("write");
    let file = fs::File::open(target.join("file")).expect("open");
    file.sync_all().expect("allocated");
    let after = stats::filesystem(&volume.host, &target, long()).await.expect("stats");
    assert_eq!(after.inodes.used, before.inodes.used + 1);
    assert!(after.bytes.used >= before.bytes.used + (4 << 20));
    assert!(after.bytes.used + after.bytes.available <= after.bytes.total);
}
