//! Loop devices, folders and root trees for the tests of this crate. Everything is undone on drop,
//! also when a test panics.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::device::Device;
use super::device_number::{self, DeviceNumber};
use super::raw::MIB;
use super::{Deadline, Host};

/// A deadline that only a hang reaches.
pub(crate) fn long() -> Deadline {
    Deadline::after(Duration::from_secs(120))
}

/// Whether this machine can run privileged tests with these programs. Says why not; under `CI=true`
/// that is a failure.
pub(crate) fn able(programs: &[&str]) -> bool {
    let mut missing = Vec::new();
    if !is_root() {
        missing.push("root".to_owned());
    }
    if !Path::new("/dev/loop-control").exists() {
        missing.push("/dev/loop-control".to_owned());
    }
    let search = Host::new().search;
    for program in programs {
        if !search.iter().any(|folder| folder.join(program).is_file()) {
            missing.push(format!("program {program}"));
        }
    }
    if missing.is_empty() {
        return true;
    }
    let reason = missing.join(", ");
    eprintln!("SKIPPED, needs {reason}");
    assert!(std::env::var("CI").as_deref() != Ok("true"), "in CI nothing is skipped: needs {reason}");
    false
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Whether the kernel lets this process grow a mounted ext3 or ext4, for which it asks CAP_SYS_RESOURCE. No installation
/// helps where a sandbox keeps it back; the tests then prove the refusal instead.
pub(crate) fn may_grow_mounted_ext() -> bool {
    const CAP_SYS_RESOURCE: u32 = 24;
    let status = fs::read_to_string("/proc/self/status").expect("Linux has it");
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).expect("Linux has it");
    let set = u64::from_str_radix(effective.trim(), 16).expect("hexadecimal");
    let able = set >> CAP_SYS_RESOURCE & 1 == 1;
    if !able {
        eprintln!("SKIPPED in part: growing a mounted ext needs CAP_SYS_RESOURCE");
    }
    able
}

/// A folder that is gone afterwards, with all that is mounted below it.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new(name: &str) -> Self {
        let unique = uuid::Uuid::new_v4().simple().to_string();
        let path = std::env::temp_dir().join(format!("lazuli-{name}-{unique}"));
        fs::create_dir(&path).expect("temporary folder");
        Self(fs::canonicalize(path).expect("it exists"))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn dir(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(&path).expect("folder");
        path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let table = super::mountinfo::read(Path::new("/proc/self/mountinfo")).unwrap_or_default();
        let below = table.iter().filter(|m| m.target.starts_with(&self.0));
        for mount in below.rev() {
            let _ = rustix::mount::unmount(&mount.target, rustix::mount::UnmountFlags::DETACH);
        }
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs a program of the test's own and returns its standard output.
pub(crate) fn sh(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().expect(program);
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A sparse file on a loop device.
pub(crate) struct LoopDisk {
    pub(crate) file: PathBuf,
    pub(crate) node: PathBuf,
    _folder: TempDir,
}

impl LoopDisk {
    pub(crate) fn new(mib: u64) -> Self {
        let folder = TempDir::new("loop");
        let file = folder.path().join("disk.img");
        let image = fs::File::create(&file).expect("image");
        image.set_len(mib * MIB).expect("sparse");
        // Of two searches for a free device that meet, the later claims the device of the earlier for a moment.
        let turn = fs::File::open("/dev/loop-control").expect("loop-control");
        turn.lock().expect("the turn");
        let node = sh("losetup", &["--find", "--show", file.to_str().expect("utf-8")]);
        Self { file, node: PathBuf::from(node), _folder: folder }
    }

    pub(crate) fn name(&self) -> String {
        let name = self.node.file_name().expect("/dev/loopN");
        name.to_string_lossy().into_owned()
    }

    pub(crate) fn device(&self) -> Device {
        super::device::describe(&Host::new(), &self.name()).expect("sysfs").expect("attached")
    }

    /// Writes into the disk through its node and flushes.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) {
        let file = fs::OpenOptions::new().write(true).open(&self.node).expect("open");
        file.write_all_at(bytes, offset).expect("write");
        file.sync_all().expect("flush");
    }

    /// All bytes, flushed.
    pub(crate) fn content(&self) -> Vec<u8> {
        let node = fs::File::open(&self.node).expect("open");
        node.sync_all().expect("flush");
        fs::read(&self.file).expect("read")
    }

    pub(crate) fn grow(&self, mib: u64) {
        let image = fs::OpenOptions::new().write(true).open(&self.file).expect("image");
        image.set_len(mib * MIB).expect("grow");
    }

    pub(crate) fn reread_size(&self) {
        sh("losetup", &["--set-capacity", self.node.to_str().expect("utf-8")]);
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.node).stderr(Stdio::null()).status();
    }
}

/// A root folder made by hand, exactly as the contract of this crate says.
pub(crate) struct FakeRoot {
    pub(crate) folder: TempDir,
}

impl FakeRoot {
    pub(crate) fn new() -> Self {
        let folder = TempDir::new("root");
        for part in ["sys/class/scsi_device", "sys/class/block", "dev/disk/azure/scsi1"] {
            folder.dir(part);
        }
        Self { folder }
    }

    pub(crate) fn host(&self) -> Host {
        Host::new().with_root(self.folder.path())
    }

    pub(crate) fn scsi(&self, address: &str) -> PathBuf {
        let class = self.folder.path().join("sys/class/scsi_device");
        class.join(address).join("device")
    }

    /// The SCSI side: maker, model, block device name.
    pub(crate) fn add_scsi(&self, address: &str, name: &str) {
        let device = self.scsi(address);
        fs::create_dir_all(device.join("block").join(name)).expect("block");
        fs::write(device.join("vendor"), "Msft    \n").expect("vendor");
        fs::write(device.join("model"), "Virtual Disk    \n").expect("model");
    }

    /// The block side: a link to the real sysfs folder, and the node.
    pub(crate) fn add_block(&self, name: &str, disk: &LoopDisk) {
        let root = self.folder.path();
        let real = Path::new("/sys/class/block").join(disk.name());
        let real = fs::canonicalize(real).expect("loop device in sysfs");
        symlink(real, root.join("sys/class/block").join(name)).expect("link");
        symlink(&disk.node, root.join("dev").join(name)).expect("link");
    }

    pub(crate) fn add(&self, address: &str, name: &str, disk: &LoopDisk) {
        self.add_block(name, disk);
        self.add_scsi(address, name);
        let lun = address.rsplit(':').next().expect("LUN");
        let link = self.folder.path().join("dev/disk/azure/scsi1");
        symlink(format!("../../../{name}"), link.join(format!("lun{lun}"))).expect("link");
    }

    /// An NVMe controller.
    pub(crate) fn add_controller(&self, name: &str, model: &str) {
        let folder = self.folder.dir(&format!("sys/class/nvme/{name}"));
        fs::write(folder.join("model"), format!("{model:<40}\n")).expect("model");
        fs::write(folder.join("state"), "live\n").expect("state");
        fs::write(folder.join("rescan_controller"), "").expect("rescan");
    }

    /// A namespace of a controller, or of its subsystem where the kernel has multipath. The block side is `add_block`'s.
    pub(crate) fn add_namespace(&self, controller: &str, name: &str, nsid: u32, mib: u64, multipath: bool) {
        let head = if multipath {
            let subsystem = self.folder.dir("sys/class/nvme-subsystem/nvme-subsys0");
            let _ = symlink(format!("../../nvme/{controller}"), subsystem.join(controller));
            let path = name.replacen('n', "N", 1).replacen('n', "c0n", 1).replacen('N', "n", 1);
            let path = self.folder.dir(&format!("sys/class/nvme/{controller}/{path}"));
            fs::write(path.join("nsid"), format!("{nsid}\n")).expect("nsid");
            format!("sys/class/nvme-subsystem/nvme-subsys0/{name}")
        } else {
            format!("sys/class/nvme/{controller}/{name}")
        };
        let head = self.folder.dir(&head);
        fs::write(head.join("nsid"), format!("{nsid}\n")).expect("nsid");
        fs::write(head.join("size"), format!("{}\n", mib * MIB / 512)).expect("size");
    }

    /// A disk without a device, with one partition, in the folder of block devices.
    pub(crate) fn add_partitioned(&self, name: &str, minor: u32) {
        let disk = self.folder.dir(&format!("sys/class/block/{name}"));
        let part = self.folder.dir(&format!("sys/class/block/{name}/{name}p1"));
        fs::write(disk.join("dev"), format!("259:{minor}\n")).expect("dev");
        fs::write(part.join("dev"), format!("259:{}\n", minor + 1)).expect("dev");
        fs::write(part.join("partition"), "1\n").expect("partition");
        symlink(format!("{name}/{name}p1"), self.folder.path().join(format!("sys/class/block/{name}p1")))
            .expect("link");
    }

    /// What the kernel was started with.
    pub(crate) fn boot(&self, line: &str) {
        fs::write(self.folder.dir("proc").join("cmdline"), format!("{line}\n")).expect("cmdline");
    }

    /// Takes a disk away, as an unplug does.
    pub(crate) fn remove(&self, address: &str, name: &str) {
        let root = self.folder.path();
        let _ = fs::remove_file(root.join("sys/class/block").join(name));
        let _ = fs::remove_file(root.join("dev").join(name));
        let class = root.join("sys/class/scsi_device");
        let _ = fs::remove_dir_all(class.join(address));
    }
}

/// The number of a node, for assertions.
pub(crate) fn number(node: &Path) -> DeviceNumber {
    device_number::of_raw(fs::metadata(node).expect("node").rdev())
}
