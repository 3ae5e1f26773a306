//! The folder of a machine whose disks come by NVMe: the rows of the written contract of [`hypervisor`](super) about it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::contract::{BLOCK, DEV, STAGING, file_error, link, make_folder, names, remove};
use super::types::{HypervisorError, Shown};

const CONTROLLER: &str = "sys/class/nvme/nvme0";
const LOCAL: &str = "sys/class/nvme/nvme1";
const SUBSYSTEM: &str = "sys/class/nvme-subsystem/nvme-subsys0";
const COMMAND_LINE: &str = "proc/cmdline";

/// The models, which the kernel pads to the 40 characters of Identify Controller.
const REMOTE_MODEL: &str = "MSFT NVMe Accelerator v1.0";
const LOCAL_MODEL: &str = "Microsoft NVMe Direct Disk v2";

/// Sectors of disks that have no loop device: the operating system's and the local one.
const SYSTEM_SECTORS: u64 = 30 << 21;
const LOCAL_SECTORS: u64 = 110 << 21;

/// A namespace that is a data disk.
#[derive(Debug)]
pub(super) struct Namespace {
    /// The kernel's name of its block device on the machine.
    name: String,
    /// The loop device.
    pub(super) device: String,
    /// The folder by which it appears.
    pub(super) entry: PathBuf,
}

/// What the id of a namespace is more than its LUN.
const fn offset(shown: Shown) -> u8 {
    match shown {
        Shown::Nvme { system: true, .. } => 2,
        Shown::Nvme { system: false, .. } | Shown::Scsi => 1,
    }
}

const fn is_multipath(shown: Shown) -> bool {
    matches!(shown, Shown::Nvme { multipath: true, .. })
}

/// How the machine shows its disks, if by NVMe.
pub(super) fn shown(root: &Path) -> Option<Shown> {
    root.join(CONTROLLER).exists().then(|| Shown::Nvme {
        multipath: root.join(SUBSYSTEM).exists(),
        system: root.join(BLOCK).join("nvme0n1p1").exists(),
    })
}

fn write(path: &Path, text: &str) -> Result<(), HypervisorError> {
    fs::write(path, text).map_err(file_error("cannot write", path))
}

/// The folder of a controller, without namespaces.
fn controller(folder: &Path, model: &str) -> Result<(), HypervisorError> {
    make_folder(folder)?;
    write(&folder.join("model"), &format!("{model:<40}\n"))?;
    write(&folder.join("state"), "live\n")?;
    write(&folder.join("rescan_controller"), "")
}

/// A disk that no loop device is for, with a partition: its folder among the block devices.
fn disk(root: &Path, name: &str, sectors: u64, minor: u32) -> Result<(), HypervisorError> {
    let partition = format!("{name}p1");
    let folder = root.join(BLOCK).join(name);
    // The numbers of these are the last that the kernel could give, so that no device of this machine has them.
    for (folder, minor) in [(folder.clone(), minor), (folder.join(&partition), minor + 1)] {
        make_folder(&folder)?;
        write(&folder.join("size"), &format!("{sectors}\n"))?;
        write(&folder.join("dev"), &format!("259:{minor}\n"))?;
    }
    write(&folder.join(&partition).join("partition"), "1\n")?;
    link(root, &Path::new(name).join(&partition), &root.join(BLOCK).join(&partition))
}

/// Makes the skeleton.
pub(super) fn prepare(root: &Path, wanted: Shown) -> Result<(), HypervisorError> {
    for part in [BLOCK, DEV, STAGING, "proc", "sys/class/nvme"] {
        make_folder(&root.join(part))?;
    }
    if root.join(CONTROLLER).exists() {
        return Ok(());
    }
    let Shown::Nvme { multipath, system } = wanted else { return Ok(()) };
    controller(&root.join(LOCAL), LOCAL_MODEL)?;
    disk(root, "nvme1n1", LOCAL_SECTORS, 1_048_572)?;
    namespace(&root.join(LOCAL).join("nvme1n1"), 1, Some(&Path::new("../../../../..").join(BLOCK).join("nvme1n1")))?;
    let boots = if system { "nvme0n1p1" } else { "nvme1n1p1" };
    write(&root.join(COMMAND_LINE), &format!("BOOT_IMAGE=/boot/vmlinuz root=/dev/{boots} ro\n"))?;
    // What is half-made has no controller, by which the next call knows.
    let built = root.join(STAGING).join("nvme0");
    remove(&built)?;
    controller(&built, REMOTE_MODEL)?;
    let subsystem = root.join(SUBSYSTEM);
    if multipath {
        make_folder(&subsystem)?;
        let controller = subsystem.join("nvme0");
        remove(&controller)?;
        symlink("../../nvme/nvme0", &controller).map_err(file_error("cannot link", &controller))?;
    }
    if system {
        disk(root, "nvme0n1", SYSTEM_SECTORS, 1_048_574)?;
        let block = |depth: &str| Path::new(depth).join(BLOCK).join("nvme0n1");
        if multipath {
            let head = subsystem.join("nvme0n1");
            remove(&head)?;
            namespace(&head, 1, Some(&block("../../../../..")))?;
            namespace(&built.join("nvme0c0n1"), 1, None)?;
        } else {
            namespace(&built.join("nvme0n1"), 1, Some(&block("../../../../..")))?;
        }
    }
    let folder = root.join(CONTROLLER);
    fs::rename(&built, &folder).map_err(file_error("cannot show", &folder))
}

/// The folder of a namespace, with the size of this block device, or of a path to one.
fn namespace(folder: &Path, nsid: u8, block: Option<&Path>) -> Result<(), HypervisorError> {
    make_folder(folder)?;
    write(&folder.join("nsid"), &format!("{nsid}\n"))?;
    let Some(block) = block else { return write(&folder.join("hidden"), "1\n") };
    for attribute in ["size", "dev"] {
        let at = folder.join(attribute);
        remove(&at)?;
        symlink(block.join(attribute), &at).map_err(file_error("cannot link", &at))?;
    }
    Ok(())
}

/// The name of the block device of a folder of the controller: `nvme0n2` of itself, and of the path `nvme0c0n2`.
fn block_name(entry: &str) -> Option<String> {
    let number = entry.strip_prefix("nvme0c0n").or_else(|| entry.strip_prefix("nvme0n"))?;
    number.parse::<u16>().ok().map(|number| format!("nvme0n{number}"))
}

/// The data disks by LUN.
pub(super) fn namespaces(root: &Path, shown: Shown) -> Result<BTreeMap<u8, Namespace>, HypervisorError> {
    let folder = root.join(CONTROLLER);
    let mut all = BTreeMap::new();
    for entry in names(&folder)? {
        let Some(name) = block_name(&entry) else { continue };
        let entry = folder.join(entry);
        // An entry is complete or not there.
        let nsid = fs::read_to_string(entry.join("nsid")).ok().and_then(|text| text.trim().parse::<u8>().ok());
        let lun = nsid.and_then(|nsid| nsid.checked_sub(offset(shown)));
        let node = fs::read_link(root.join(DEV).join(&name)).ok();
        let device = node.and_then(|node| Some(node.file_name()?.to_str()?.to_owned()));
        if let (Some(lun), Some(device)) = (lun, device) {
            all.insert(lun, Namespace { name, device, entry });
        }
    }
    Ok(all)
}

/// Shows the loop device at the LUN, where none is.
pub(super) fn show(root: &Path, shown: Shown, lun: u8, device: &str) -> Result<(), HypervisorError> {
    let taken = names(&root.join(BLOCK))?;
    // As the kernel does: the lowest number that no namespace has.
    let number = (1_u16..).find(|number| !taken.contains(&format!("nvme0n{number}"))).unwrap_or(u16::MAX);
    let name = format!("nvme0n{number}");
    let sysfs = Path::new("/sys/class/block").join(device);
    link(root, &Path::new("/dev").join(device), &root.join(DEV).join(&name))?;
    link(root, &sysfs, &root.join(BLOCK).join(&name))?;
    let nsid = lun.saturating_add(offset(shown));
    let put = |name: &str, folder: &Path, block: Option<&Path>| {
        let built = root.join(STAGING).join(name);
        remove(&built)?;
        namespace(&built, nsid, block)?;
        let entry = folder.join(name);
        fs::rename(&built, &entry).map_err(file_error("cannot show", &entry))
    };
    if is_multipath(shown) {
        put(&name, &root.join(SUBSYSTEM), Some(&sysfs))?;
        put(&format!("nvme0c0n{number}"), &root.join(CONTROLLER), None)
    } else {
        put(&name, &root.join(CONTROLLER), Some(&sysfs))
    }
}

/// Takes away what is at the LUN. Fine when there is nothing.
pub(super) fn hide(root: &Path, shown: Shown, lun: u8) -> Result<(), HypervisorError> {
    let Some(Namespace { name, entry, .. }) = namespaces(root, shown)?.remove(&lun) else { return Ok(()) };
    make_folder(&root.join(STAGING))?;
    for (entry, away) in [(entry, "gone"), (root.join(SUBSYSTEM).join(&name), "gone-head")] {
        let away = root.join(STAGING).join(format!("{away}-{lun}"));
        if fs::symlink_metadata(&entry).is_ok() {
            remove(&away)?;
            fs::rename(&entry, &away).map_err(file_error("cannot take away", &entry))?;
        }
        remove(&away)?;
    }
    remove(&root.join(BLOCK).join(&name))?;
    remove(&root.join(DEV).join(&name))
}

/// Removes what no namespace accounts for: what a killed process left half-made.
pub(super) fn sweep(root: &Path, shown: Shown) -> Result<(), HypervisorError> {
    let known: Vec<String> = namespaces(root, shown)?.into_values().map(|namespace| namespace.name).collect();
    let own = ["nvme0n1", "nvme0n1p1"].map(str::to_owned);
    let own = if matches!(shown, Shown::Nvme { system: true, .. }) { own.as_slice() } else { &[] };
    for folder in [BLOCK, DEV, SUBSYSTEM, CONTROLLER] {
        let folder = root.join(folder);
        for entry in names(&folder)? {
            let is_left = block_name(&entry).is_some_and(|name| !known.contains(&name) && !own.contains(&name));
            if is_left {
                remove(&folder.join(entry))?;
            }
        }
    }
    Ok(())
}
