//! What a program that reads disks can do, and cannot.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::mount::UnmountFlags;
use rustix::thread::CapabilitySet;

use super::child::{self, Call, Output};
use super::confine::{Confinement, Part, Reach, keep_capabilities, on_own_thread};
use super::format::{self, Request, WhenBlank};
use super::fs_type::FsType;
use super::lab::{LoopDisk, TempDir, able, long};
use super::release::{Released, ensure_released};
use super::{Host, mount, options::Options, resize};

async fn run(call: Call) -> Output {
    child::run(&Host::new(), call, long()).await.expect("it runs")
}

fn field<'a>(status: &'a str, name: &str) -> &'a str {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.expect("the kernel says it").trim()
}

#[tokio::test]
async fn a_program_has_the_capabilities_that_it_needs_and_can_gain_no_other() {
    if !able(&["cat"]) {
        return;
    }
    for kept in [CapabilitySet::empty(), CapabilitySet::SYS_ADMIN, CapabilitySet::DAC_READ_SEARCH] {
        let status = run(Call::new("cat", &["/proc/self/status"]).with(kept)).await.stdout;
        let expected = format!("{:016x}", kept.bits());
        for name in ["CapPrm", "CapEff", "CapBnd"] {
            assert_eq!(field(&status, name), expected, "{name}");
        }
        for name in ["CapInh", "CapAmb"] {
            assert_eq!(field(&status, name), format!("{:016x}", 0), "{name}");
        }
        assert_eq!(field(&status, "NoNewPrivs"), "1");
        // A filter, and one that it cannot leave.
        assert_eq!(field(&status, "Seccomp"), "2");
    }
    // The threads of this process keep what they have.
    let own = fs::read_to_string("/proc/thread-self/status").expect("it is there");
    assert_eq!(field(&own, "NoNewPrivs"), "0");
    assert_eq!(field(&own, "Seccomp"), "0");
}

#[tokio::test]
async fn no_system_call_reaches_beyond_a_program_s_files_whatever_its_capabilities() {
    if !able(&["perl", "mount", "unshare"]) {
        return;
    }
    let number = |call: nix::libc::c_long| format!("syscall({call}, 0, 0, 0, 0, 0) == -1 or exit 0; exit $!");
    let calls = [
        ("ptrace", nix::libc::SYS_ptrace),
        ("bpf", nix::libc::SYS_bpf),
        ("socket", nix::libc::SYS_socket),
        ("unshare", nix::libc::SYS_unshare),
        ("setns", nix::libc::SYS_setns),
        ("mount", nix::libc::SYS_mount),
        ("io_uring_setup", nix::libc::SYS_io_uring_setup),
        ("keyctl", nix::libc::SYS_keyctl),
        ("init_module", nix::libc::SYS_init_module),
        ("open_by_handle_at", nix::libc::SYS_open_by_handle_at),
    ];
    for (name, call) in calls {
        let ended = run(Call::new("perl", &["-e", &number(call)]).with(CapabilitySet::all())).await;
        assert_eq!(ended.code, Some(nix::libc::EPERM), "{name}: {}", ended.describe());
    }
    let clone3 = run(Call::new("perl", &["-e", &number(nix::libc::SYS_clone3)])).await;
    assert_eq!(clone3.code, Some(nix::libc::ENOSYS), "{}", clone3.describe());
    let namespace =
        format!("syscall({}, {}, 0) == -1 or exit 0; exit $!", nix::libc::SYS_clone, nix::libc::CLONE_NEWUSER);
    let namespace = run(Call::new("perl", &["-e", &namespace])).await;
    assert_eq!(namespace.code, Some(nix::libc::EPERM), "{}", namespace.describe());
    // What a program does all day is allowed.
    let ended =
        run(Call::new("perl", &["-e", "my $pid = fork // exit 9; exec 'true' unless $pid; wait; exit $?"])).await;
    assert!(ended.success(), "{}", ended.describe());
}

#[tokio::test]
async fn a_program_sees_its_own_device_and_can_write_nothing_else() {
    if !able(&["ls", "sh", "cat", "losetup"]) {
        return;
    }
    let (disk, other) = (LoopDisk::new(8), LoopDisk::new(8));
    let listed = run(Call::new("ls", &["/dev"]).on(&disk.device())).await;
    assert!(listed.stdout.lines().any(|name| name == disk.name()), "{}", listed.describe());
    assert!(!listed.stdout.lines().any(|name| name == other.name()), "{}", listed.describe());
    let write = |path: &str| Call::new("sh", &["-c", &format!("echo x >{path}")]).on(&disk.device());
    assert!(run(write(disk.node.to_str().expect("utf-8"))).await.success());
    let beside = TempDir::new("beside");
    let file = beside.path().join("file");
    for path in [
        "/etc/lazuli-test",
        "/proc/sys/kernel/core_pattern",
        "/sys/kernel/uevent_helper",
        file.to_str().expect("utf-8"),
    ] {
        let ended = run(write(path)).await;
        assert!(!ended.success(), "{path} was written");
    }
    assert!(!file.exists() && !Path::new("/etc/lazuli-test").exists());
    // A volume is on a mount of its own.
    let mounted = beside.dir("volume");
    sys_mount::Mount::builder().fstype("tmpfs").mount("tmpfs", &mounted).expect("mount");
    fs::write(mounted.join("secret"), "data").expect("write");
    let read = run(Call::new("cat", &[mounted.join("secret")]).on(&disk.device())).await;
    assert!(!read.success() && read.stdout.is_empty(), "{}", read.describe());
    rustix::mount::unmount(&mounted, UnmountFlags::empty()).expect("unmount");
}

#[tokio::test]
async fn a_running_program_keeps_no_other_volume_from_being_released() {
    if !able(&["sleep", "losetup", "mkfs.ext4"]) {
        return;
    }
    let (host, disk, other) = (Host::new(), LoopDisk::new(64), LoopDisk::new(64));
    let request = Request { volume: "v", fs: FsType::Ext4, when_blank: WhenBlank::Format };
    format::ensure_filesystem(&host, &disk.device(), request, None, long()).await.expect("format");
    let folder = TempDir::new("pinned");
    let target = folder.dir("target");
    let options = Options::parse(&[] as &[&str]).expect("none");
    mount::mount_block(&host, &disk.device(), &target, "ext4", &options, long()).await.expect("mount");
    let call = Call::new("sleep", &["600"]).on(&other.device());
    let sleeper = tokio::spawn({
        let host = host.clone();
        async move { child::run(&host, call, long()).await }
    });
    while host.activity().children_running == 0 {
        tokio::task::yield_now().await;
    }
    mount::unmount(&host, &target, long()).await.expect("unmount");
    let released = ensure_released(&host, &disk.device(), long()).await.expect("released");
    assert_eq!(released, Released::Free);
    sleeper.abort();
}

/// Programs that run the real one where they have no more than they need, and end with this code elsewhere.
const UNCONFINED: i32 = 99;

/// A folder of such programs.
fn guards(folder: &TempDir, programs: &[(&str, CapabilitySet)]) -> Host {
    let search = Host::new().search;
    let own = fs::read_link("/proc/self/ns/mnt").expect("it is there");
    for (program, needed) in programs {
        let real = search.iter().map(|place| place.join(program)).find(|path| path.is_file()).expect("checked before");
        let text = format!(
            "#!/bin/sh\nwhile read -r name value rest; do\n case $name in\n CapEff:|CapPrm:|CapBnd:) [ $((0x$value & \
             ~{:#x})) = 0 ] || exit {UNCONFINED} ;;\n NoNewPrivs:) [ $value = 1 ] || exit {UNCONFINED} ;;\n Seccomp:) [ \
             $value = 2 ] || exit {UNCONFINED} ;;\n esac\ndone </proc/self/status\n[ \"$(/usr/bin/readlink \
             /proc/self/ns/mnt)\" != '{}' ] || exit {UNCONFINED}\nexec {} \"$@\"\n",
            needed.bits(),
            own.display(),
            real.display()
        );
        let script = folder.path().join(program);
        fs::write(&script, text).expect("script");
        fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("mode");
    }
    Host::new().with_search([vec![folder.path().to_path_buf()], search].concat())
}

#[tokio::test]
async fn every_program_that_reads_a_disk_is_started_with_what_it_needs_and_no_more() {
    let plain = ["blkid", "wipefs", "fsck", "fsck.ext4", "e2fsck", "mkfs.ext4", "xfs_repair", "mkfs.btrfs", "btrfs"];
    if !able(&[plain.as_slice(), &["losetup", "mkfs.xfs", "sh", "readlink"]].concat()) {
        return;
    }
    let mut programs: Vec<_> = plain.map(|program| (program, CapabilitySet::empty())).into();
    programs.push(("mkfs.xfs", CapabilitySet::SYS_ADMIN));
    let folder = TempDir::new("guards");
    let host = guards(&folder, &programs);
    for fs_type in [FsType::Ext4, FsType::Xfs, FsType::Btrfs] {
        let disk = LoopDisk::new(512);
        let request = Request { volume: "v", fs: fs_type, when_blank: WhenBlank::Format };
        format::ensure_filesystem(&host, &disk.device(), request, None, long()).await.expect("mkfs, blkid and wipefs");
        super::fsck::repair(&host, &disk.device(), long()).await.expect("fsck");
        super::fsck::verify(&host, &disk.device(), fs_type, long()).await.expect("the whole check");
    }
    // A program that is not confined ends at once.
    for (program, _) in programs {
        let ended = Command::new(folder.path().join(program)).stdin(Stdio::null()).status().expect("it is started");
        assert_eq!(ended.code(), Some(UNCONFINED), "{program}");
    }
}

#[tokio::test]
async fn every_tool_works_as_confined() {
    if !able(&["losetup", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "resize2fs", "xfs_growfs", "btrfs"]) {
        return;
    }
    let status = fs::read_to_string("/proc/self/status").expect("it is there");
    let own = u64::from_str_radix(field(&status, "CapEff"), 16).expect("a number");
    let may_grow_ext = own & CapabilitySet::SYS_RESOURCE.bits() != 0;
    for fs_type in [FsType::Ext4, FsType::Xfs, FsType::Btrfs] {
        let (host, disk) = (Host::new(), LoopDisk::new(512));
        let request = Request { volume: "v", fs: fs_type, when_blank: WhenBlank::Format };
        format::ensure_filesystem(&host, &disk.device(), request, None, long()).await.expect("mkfs, blkid and wipefs");
        super::fsck::repair(&host, &disk.device(), long()).await.expect("fsck");
        super::fsck::verify(&host, &disk.device(), fs_type, long()).await.expect("the whole check");
        if fs_type != FsType::Ext4 || may_grow_ext {
            grow_mounted(&host, &disk, fs_type).await;
        }
    }
}

/// Grows a file system that is mounted in a folder which a pod has made its own.
async fn grow_mounted(host: &Host, disk: &LoopDisk, fs_type: FsType) {
    let folder = TempDir::new("grown");
    let target = folder.dir("target");
    let options = Options::parse(&[] as &[&str]).expect("none");
    mount::mount_block(host, &disk.device(), &target, fs_type.as_str(), &options, long()).await.expect("mount");
    std::os::unix::fs::chown(&target, Some(1000), Some(1000)).expect("chown");
    fs::set_permissions(&target, std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("mode");
    disk.grow(1024);
    disk.reread_size();
    resize::grow(host, &disk.device(), fs_type, &target, long()).await.expect("grown");
    mount::unmount(host, &target, long()).await.expect("unmount");
}

/// resize2fs asks for the same; not every machine lets it grow a mounted file system, so it is left out here.
#[tokio::test]
async fn a_program_that_grows_a_file_system_has_what_that_asks_for_and_no_more() {
    if !able(&["losetup", "mkfs.xfs", "mkfs.btrfs", "xfs_growfs", "btrfs", "sh", "readlink"]) {
        return;
    }
    let growing = CapabilitySet::SYS_ADMIN.union(CapabilitySet::SYS_RESOURCE).union(CapabilitySet::DAC_READ_SEARCH);
    let folder = TempDir::new("guards");
    let guarded = guards(&folder, &[("xfs_growfs", growing), ("btrfs", growing)]);
    for fs_type in [FsType::Xfs, FsType::Btrfs] {
        let disk = LoopDisk::new(512);
        let request = Request { volume: "v", fs: fs_type, when_blank: WhenBlank::Format };
        format::ensure_filesystem(&Host::new(), &disk.device(), request, None, long()).await.expect("mkfs");
        grow_mounted(&guarded, &disk, fs_type).await;
    }
}

#[test]
fn what_this_process_lacks_the_rights_for_is_left_out_and_told_once() {
    if !able(&["true"]) {
        return;
    }
    let confinement = Confinement::default();
    let program = ["/usr/bin/true", "/bin/true"].map(Path::new).into_iter().find(|path| path.exists()).expect("true");
    let command = || -> io::Result<Command> {
        let mut command = Command::new(program);
        command.stdin(Stdio::null());
        Ok(command)
    };
    for _ in 0..2 {
        let ended = on_own_thread(|| {
            keep_capabilities(CapabilitySet::empty()).expect("root may");
            let mut child = confinement.spawn(&Reach::default(), program, Path::new("/proc"), &command)?;
            child.wait()
        });
        assert!(ended.expect("a thread").expect("it is started").success());
        assert!(confinement.lacks(Part::Mounts));
        assert!(!confinement.lacks(Part::Privileges) && !confinement.lacks(Part::SystemCalls));
    }
}
