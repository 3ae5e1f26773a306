//! What the kernel shows of NVMe controllers and their namespaces, and on which of them the system lies.
//!
//! From sysfs alone, without udev's links for data disks: not every image has the rules, and they have mixed up LUNs. This
//! only reads. Which namespace is the disk at a LUN is decided in [`lazuli_staging::nvme`].
//!
//! The kernel shows namespaces in one of two layouts. Without its multipath a namespace is a folder of its controller,
//! named like its block device. With it the folder of the controller has a hidden path (`nvme0c0n1`, without a node), and
//! the block device is a folder of the subsystem that the controller belongs to. The ids of the two are the same (source:
//! Linux, `drivers/nvme/host`).

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

pub use lazuli_staging::nvme::Luns;
use lazuli_staging::nvme::{Controller, Machine, Namespace, RootNamed, SystemDisks};

use super::{
    Host,
    device::{Device, FindError, describe, is_absence, write_attribute},
    device_number::DeviceNumber,
    mount, mountinfo,
};

/// How deep devices are built on each other at most: a loop in what sysfs says must not hang the search.
const DEEPEST: usize = 8;

/// What a person should know of a machine whose disks come by NVMe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// By what the LUNs of its disks are known.
    pub luns: Luns,
    /// After how many seconds the kernel takes a request for lost, where it says that.
    pub io_timeout_seconds: Option<u64>,
}

/// The summary of the machine; `None` where no disk comes by NVMe.
///
/// # Errors
/// [`FindError::Read`] for anything but absence.
pub async fn summary(host: &Host) -> Result<Option<Summary>, FindError> {
    let io_timeout_seconds = number(&host.sys().join("module/nvme_core/parameters/io_timeout"))?;
    let luns = machine(host).await?.luns(host.nvme_lun_offset);
    Ok(luns.map(|luns| Summary { luns, io_timeout_seconds }))
}

/// What a folder of a controller is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Shape {
    /// `nvme0n1`: a namespace with a block device.
    Namespace,
    /// `nvme0c1n2`: a path to a namespace.
    Path {
        /// The name of its block device, `nvme0n2`: of the subsystem and of the namespace in it.
        head: String,
    },
}

/// The shape of a folder by its name.
fn shape(name: &str) -> Option<Shape> {
    let numbered = |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    let (first, namespace) = name.strip_prefix("nvme")?.split_once('n')?;
    if !numbered(namespace) {
        return None;
    }
    match first.split_once('c') {
        None if numbered(first) => Some(Shape::Namespace),
        Some((subsystem, controller)) if numbered(subsystem) && numbered(controller) => {
            Some(Shape::Path { head: format!("nvme{subsystem}n{namespace}") })
        }
        _ => None,
    }
}

/// All controllers with their namespaces, and where the system lies, as of now.
///
/// # Errors
/// [`FindError::Read`] for anything but absence.
pub async fn machine(host: &Host) -> Result<Machine, FindError> {
    let host = host.clone();
    let path = host.sys().join("class/nvme");
    let lost = FindError::Read { path, source: io::Error::other("the reading task was lost") };
    tokio::task::spawn_blocking(move || read(&host)).await.unwrap_or(Err(lost))
}

/// The same, for a thread that may block.
///
/// # Errors
/// The same.
pub(super) fn read(host: &Host) -> Result<Machine, FindError> {
    let mut controllers = Vec::new();
    let class = host.sys().join("class/nvme");
    for name in names(&class)? {
        let folder = class.join(&name);
        // A disk of any maker may say what is no text.
        let Some(model) = bytes(&folder.join("model"))? else { continue };
        let model = String::from_utf8_lossy(&model).trim().to_owned();
        let state = text(&folder.join("state"))?.unwrap_or_else(|| "gone".to_owned());
        let namespaces = namespaces(host, &name)?;
        controllers.push(Controller { name, model, state, namespaces });
    }
    // The common machine has none, and is not searched for its system.
    let system = match controllers.iter().any(Controller::has_remote_disks) {
        true => {
            let (root, root_named) = root_disks(host)?;
            let (kubelet, is_kubelet_in_root) = kubelet_disks(host)?;
            SystemDisks { root, root_named, kubelet, is_kubelet_in_root }
        }
        false => SystemDisks::default(),
    };
    Ok(Machine { controllers, system })
}

/// The disks of which any may be at a LUN whose namespace is not known; `None` while a controller does not show them.
///
/// # Errors
/// [`FindError::Read`] for anything but absence.
pub async fn data_disks(host: &Host) -> Result<Option<Vec<Device>>, FindError> {
    let Some(names) = machine(host).await?.data_disks() else { return Ok(None) };
    let disks = names.iter().filter_map(|name| describe(host, name).transpose());
    disks.collect::<Result<Vec<Device>, FindError>>().map(Some)
}

/// The namespaces of a controller that have a block device.
fn namespaces(host: &Host, controller: &str) -> Result<Vec<Namespace>, FindError> {
    let folder = host.sys().join("class/nvme").join(controller);
    let mut found: Vec<Namespace> = Vec::new();
    let mut heads = BTreeSet::new();
    for name in names(&folder)? {
        match shape(&name) {
            Some(Shape::Namespace) => found.extend(namespace(host, &folder, &name)?),
            Some(Shape::Path { head }) => _ = heads.insert(head),
            None => {}
        }
    }
    if heads.is_empty() {
        return Ok(found);
    }
    let class = host.sys().join("class/nvme-subsystem");
    for subsystem in names(&class)? {
        let folder = class.join(subsystem);
        if !folder.join(controller).exists() {
            continue;
        }
        // A namespace to which this controller has no path is another one's.
        for name in names(&folder)?.iter().filter(|name| heads.contains(*name)) {
            let is_new = |head: &Namespace| found.iter().all(|one| one.name != head.name);
            let head = namespace(host, &folder, name)?;
            found.extend(head.filter(is_new));
        }
    }
    Ok(found)
}

/// A namespace by its folder; `None` for one that goes away just now.
fn namespace(host: &Host, parent: &Path, name: &str) -> Result<Option<Namespace>, FindError> {
    let folder = parent.join(name);
    let (Some(nsid), Some(sectors)) = (number(&folder.join("nsid"))?, number(&folder.join("size"))?) else {
        return Ok(None);
    };
    let Ok(nsid) = u32::try_from(nsid) else { return Ok(None) };
    let block = names(&host.sys().join("class/block").join(name))?;
    let is_part = |entry: &String| entry.strip_prefix(name).is_some_and(|rest| rest.starts_with('p'));
    let is_partitioned = block.iter().any(is_part);
    // sysfs counts sectors of 512 bytes whatever the namespace's own sector size is.
    Ok(Some(Namespace { name: name.to_owned(), nsid, size_bytes: sectors.saturating_mul(512), is_partitioned }))
}

/// The files by which the controllers of a disk are asked to read its size again.
pub(super) fn rescans_of(host: &Host, disk: &str) -> Result<Vec<PathBuf>, FindError> {
    let class = host.sys().join("class/nvme");
    let mut files = Vec::new();
    // A disk of another kind is no namespace, whatever controllers there are.
    let disks = under(host, disk, 0)?;
    for controller in names(&class)? {
        if namespaces(host, &controller)?.iter().any(|namespace| disks.contains(&namespace.name)) {
            files.push(class.join(controller).join("rescan_controller"));
        }
    }
    Ok(files)
}

/// Asks every controller of remote disks to look for namespaces. What it finds announces itself.
pub(super) fn rescan(host: &Host) {
    let Ok(machine) = read(host) else { return };
    for controller in machine.controllers.iter().filter(|controller| controller.has_remote_disks()) {
        let path = host.sys().join("class/nvme").join(&controller.name).join("rescan_controller");
        if let Err(error) = write_attribute(&path, "1") {
            tracing::warn!(path = %path.display(), %error, "cannot ask for namespaces");
        }
    }
}

/// The folders in which namespaces appear.
pub(super) fn folders(host: &Host) -> Vec<PathBuf> {
    let classes = ["class/nvme", "class/nvme-subsystem"].map(|class| host.sys().join(class));
    let within = |class: &PathBuf| -> Vec<PathBuf> {
        names(class).unwrap_or_default().iter().map(|name| class.join(name)).collect()
    };
    classes.iter().flat_map(within).chain(classes.clone()).collect()
}

/// The whole disks under what the kernel was started with as `root=`, and how it names them; none where it names no disk
/// here.
fn root_disks(host: &Host) -> Result<(Vec<String>, RootNamed), FindError> {
    let none = (Vec::new(), RootNamed::default());
    let Some(line) = text(&host.root().join("proc/cmdline"))? else { return Ok(none) };
    let Some(place) = root_of(&line) else { return Ok(none) };
    let dev = host.dev();
    let path = match place.split_once('=') {
        Some(("UUID", uuid)) => dev.join("disk/by-uuid").join(uuid),
        Some(("LABEL", label)) => dev.join("disk/by-label").join(label),
        Some(("PARTUUID", uuid)) => dev.join("disk/by-partuuid").join(uuid),
        Some(("PARTLABEL", label)) => dev.join("disk/by-partlabel").join(label),
        _ => match place.strip_prefix("/dev/") {
            Some(node) => dev.join(node),
            None => return Ok(none),
        },
    };
    let links = ["disk/by-uuid", "disk/by-label", "disk/by-partuuid", "disk/by-partlabel"];
    let is_content = links.iter().any(|folder| path.starts_with(dev.join(folder)));
    let root_named = if is_content { RootNamed::Content } else { RootNamed::Node };
    let block = host.sys().join("class/block");
    let named = |path: &Path| path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    // By its own name, by that of what it links to, or of where the links end.
    let ways = [Some(path.clone()), fs::read_link(&path).ok(), fs::canonicalize(&path).ok()];
    let name = ways.iter().flatten().filter_map(|path| named(path)).find(|name| block.join(name).exists());
    match name {
        Some(name) => Ok((under(host, &name, 0)?.into_iter().collect(), root_named)),
        None => Ok(none),
    }
}

/// What the kernel's command line says as `root=`; of several the last counts.
fn root_of(line: &str) -> Option<&str> {
    let words = line.split_whitespace().map(|word| word.trim_matches('"'));
    words.filter_map(|word| word.strip_prefix("root=")).next_back().map(|place| place.trim_matches('"'))
}

/// The whole disks under kubelet's folder, and whether it has its path in their file system; none where it is not known, or
/// lies on no disk that is seen here.
fn kubelet_disks(host: &Host) -> Result<(Vec<String>, bool), FindError> {
    let none = (Vec::new(), false);
    let Some(folder) = &host.kubelet else { return Ok(none) };
    let path = host.proc().join("self/mountinfo");
    let table = mountinfo::read(&path).map_err(|source| FindError::Read { path, source })?;
    let folder = fs::canonicalize(folder).unwrap_or_else(|_| folder.clone());
    let above = table.iter().filter(|mount| folder.starts_with(&mount.target));
    // Of mounts on one place the last is on top.
    let Some(mount) = above.max_by_key(|mount| mount.target.components().count()) else { return Ok(none) };
    // In a container the folder is mounted where it is on the machine, and the table names its place in the file system.
    let within = folder.strip_prefix(&mount.target).unwrap_or(&folder);
    let is_in_root = mount.root.join(within).components().eq(folder.components());
    match with_number(host, mount::number_of(mount))? {
        Some(name) => Ok((under(host, &name, 0)?.into_iter().collect(), is_in_root)),
        None => Ok(none),
    }
}

fn with_number(host: &Host, wanted: DeviceNumber) -> Result<Option<String>, FindError> {
    let class = host.sys().join("class/block");
    for name in names(&class)? {
        if text(&class.join(&name).join("dev"))?.as_deref().and_then(DeviceNumber::parse) == Some(wanted) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// The whole disks that a device is built on: the disk of a partition, the disks under a device mapper's.
fn under(host: &Host, name: &str, depth: usize) -> Result<BTreeSet<String>, FindError> {
    let folder = host.sys().join("class/block").join(name);
    let slaves = names(&folder.join("slaves"))?;
    if !slaves.is_empty() && depth < DEEPEST {
        let mut all = BTreeSet::new();
        for slave in slaves {
            all.extend(under(host, &slave, depth + 1)?);
        }
        return Ok(all);
    }
    if !folder.join("partition").exists() {
        return Ok(BTreeSet::from([name.to_owned()]));
    }
    // A partition's folder is inside its disk's.
    let real = fs::canonicalize(&folder).map_err(|source| FindError::Read { path: folder, source })?;
    let disk = real.parent().and_then(Path::file_name).and_then(|disk| disk.to_str()).map(str::to_owned);
    Ok(disk.into_iter().collect())
}

/// The names in a folder, sorted; none where there is no such folder.
fn names(folder: &Path) -> Result<Vec<String>, FindError> {
    let mut names: Vec<String> = match fs::read_dir(folder) {
        Ok(entries) => entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect(),
        Err(error) if is_absence(&error) => Vec::new(),
        Err(source) => return Err(FindError::Read { path: folder.to_owned(), source }),
    };
    names.sort();
    Ok(names)
}

/// What an attribute says, without its padding.
fn text(path: &Path) -> Result<Option<String>, FindError> {
    let Some(bytes) = bytes(path)? else { return Ok(None) };
    let invalid = |_| FindError::Read { path: path.to_owned(), source: io::ErrorKind::InvalidData.into() };
    String::from_utf8(bytes).map(|text| Some(text.trim().to_owned())).map_err(invalid)
}

fn bytes(path: &Path) -> Result<Option<Vec<u8>>, FindError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if is_absence(&error) => Ok(None),
        Err(source) => Err(FindError::Read { path: path.to_owned(), source }),
    }
}

fn number(path: &Path) -> Result<Option<u64>, FindError> {
    let Some(text) = text(path)? else { return Ok(None) };
    let invalid = |_| FindError::Read {
        path: path.to_owned(),
        source: io::Error::new(io::ErrorKind::InvalidData, format!("{text:?} is no number")),
    };
    text.parse().map(Some).map_err(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_a_controller_are_told_by_their_names() {
        for (name, is) in [
            ("nvme0n1", Some(Shape::Namespace)),
            ("nvme12n34", Some(Shape::Namespace)),
            ("nvme0c0n1", Some(Shape::Path { head: "nvme0n1".to_owned() })),
            ("nvme1c12n3", Some(Shape::Path { head: "nvme1n3".to_owned() })),
            ("nvme0", None),
            ("nvme0n1p1", None),
            ("ng0n1", None),
            ("nvmen1", None),
            ("nvme0cn1", None),
            ("power", None),
        ] {
            assert_eq!(shape(name), is, "{name}");
        }
    }

    #[test]
    fn the_last_root_of_the_command_line_counts() {
        for (line, root) in [
            ("BOOT_IMAGE=/vmlinuz root=/dev/nvme0n1p1 ro", Some("/dev/nvme0n1p1")),
            ("root=/dev/sda1 quiet root=UUID=a-b", Some("UUID=a-b")),
            ("root=\"LABEL=cloudimg\" ro", Some("LABEL=cloudimg")),
            ("rootwait nfsroot=/srv quiet", None),
            ("", None),
        ] {
            assert_eq!(root_of(line), root, "{line}");
        }
    }
}
