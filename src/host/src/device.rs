//! Finding a data disk by its LUN, from sysfs alone: a SCSI disk, or a namespace of an NVMe controller.
//!
//! A SCSI LUN is only unique per SCSI controller, and a machine has several: one for the operating system
//! and the temporary disk, one or more for data disks. So candidates are narrowed by every fact at
//! hand: maker and model, the VMBus id of the controller, the links that Azure's udev rules make,
//! and the disk that holds `/`. When two are left, the answer is an error naming both.
//!
//! That the disk found is the *right* one is not decided here; the caller compares size and identity.
//! Where disks come by NVMe, [`lazuli_staging::nvme`] says which namespace has which LUN.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use lazuli_staging::Device;
use lazuli_staging::nvme::{NvmeDisk, Place, SystemDisks, Unplaced};

use super::device_number::{self, DeviceNumber};
use super::watch::Watch;
use super::{Deadline, Host, mountinfo, nvme};

/// Prefixes of the VMBus `device_id` of controllers that carry the machine's own disks: first
/// generation IDE root and temporary disk, second generation SCSI for both. Source: the udev rules
/// of the Azure Linux agent, `66-azure-storage.rules`. Data disks are on `f8b3781b` and its followers.
const OWN_CONTROLLERS: [&str; 3] = ["00000000-0000-", "00000000-0001-", "f8b3781a-"];

/// How long a disk may be missing before the kernel is asked to look for it. Hyper-V announces a new
/// disk by itself; a scan is for the case that this got lost.
const SCAN_ONE_AFTER: Duration = Duration::from_secs(1);
/// How long before all LUNs are scanned, which takes seconds.
const SCAN_ALL_AFTER: Duration = Duration::from_secs(10);

/// Why no device is returned.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// Nothing at this LUN.
    #[error("no data disk at LUN {lun} ({})", seen_text(seen, excluded))]
    NotFound {
        /// The LUN.
        lun: u32,
        /// Other data disks: LUN and name.
        seen: Vec<(u32, String)>,
        /// Disks at this LUN that are not data disks, and why.
        excluded: Vec<String>,
    },
    /// More than one device may be meant.
    #[error("LUN {lun} is ambiguous: {}", candidates.join(", "))]
    Ambiguous {
        /// The LUN.
        lun: u32,
        /// The candidates: `sdc (1:0:0:3)`.
        candidates: Vec<String>,
    },
    /// Something is at this LUN but cannot be used yet (no node, no size).
    #[error("the disk at LUN {lun} is not ready: {why}")]
    NotReady {
        /// The LUN.
        lun: u32,
        /// What is missing.
        why: String,
    },
    /// Disks come by NVMe, and it is not known which one is at the LUN.
    #[error("LUN {lun}: {why}")]
    Unplaced {
        /// The LUN.
        lun: u32,
        /// Why not.
        why: Unplaced,
    },
    /// sysfs could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// What was read.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The blocking task was lost.
    #[error("the search for LUN {lun} was lost")]
    Task {
        /// The LUN.
        lun: u32,
    },
}

fn seen_text(seen: &[(u32, String)], excluded: &[String]) -> String {
    let mut parts: Vec<String> = seen.iter().map(|(lun, name)| format!("{name} is at LUN {lun}")).collect();
    parts.extend_from_slice(excluded);
    if parts.is_empty() { "no data disks at all".to_owned() } else { parts.join(", ") }
}

/// Finds the data disk at `lun` as of now.
///
/// # Errors
/// See [`FindError`].
pub async fn find_by_lun(host: &Host, lun: u32) -> Result<Device, FindError> {
    let host = host.clone();
    tokio::task::spawn_blocking(move || find(&host, lun)).await.map_err(|_| FindError::Task { lun })?
}

/// Waits until the data disk at `lun` is there and usable.
///
/// Wakes on events and re-checks slowly (see the contract in [`super`]); asks the kernel to scan for
/// this LUN once when it is missing for a second, and for all LUNs once after ten.
///
/// # Errors
/// The last [`FindError`] when the deadline passes; [`FindError::Ambiguous`] also only then, because
/// a disk that is being removed may still be listed beside its successor. [`FindError::Unplaced`] at
/// once where no disk that appears would end it.
pub async fn wait_for_lun(host: &Host, lun: u32, deadline: Deadline) -> Result<Device, FindError> {
    let mut watch = Watch::start(host);
    let started = tokio::time::Instant::now();
    let (mut scanned_one, mut scanned_all) = (false, false);
    loop {
        let error = match find_by_lun(host, lun).await {
            Ok(device) => return Ok(device),
            Err(error) => error,
        };
        let is_final = matches!(&error, FindError::Unplaced { why, .. } if !why.may_pass());
        if is_final || deadline.passed() {
            return Err(error);
        }
        if matches!(error, FindError::NotFound { .. } | FindError::Unplaced { .. }) {
            if !scanned_one && started.elapsed() >= SCAN_ONE_AFTER {
                scanned_one = true;
                scan(host, format!("- - {lun}"));
            }
            if !scanned_all && started.elapsed() >= SCAN_ALL_AFTER {
                scanned_all = true;
                scan(host, "- - -".to_owned());
            }
        }
        watch.changed(deadline).await;
    }
}

/// Asks every SCSI host to look for devices, and every controller of remote NVMe disks for namespaces. No call waits for
/// it: a scan of all LUNs can take many seconds, and what it finds announces itself.
fn scan(host: &Host, what: String) {
    let folder = host.sys().join("class/scsi_host");
    let host = host.clone();
    let work = move || {
        nvme::rescan(&host);
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path().join("scan");
            if let Err(error) = write_attribute(&path, &what) {
                tracing::warn!(path = %path.display(), %error, "cannot ask for a scan");
            }
        }
    };
    let thread = std::thread::Builder::new().name("host-scan".to_owned());
    if let Err(error) = thread.spawn(work) {
        tracing::warn!(%error, "cannot ask for a scan");
    }
}

/// Writes to an existing attribute; never creates a file.
pub(super) fn write_attribute(path: &Path, value: &str) -> io::Result<()> {
    use io::Write;
    let mut file = fs::OpenOptions::new().write(true).open(path)?;
    file.write_all(value.as_bytes())
}

/// The device behind a kernel name, as sysfs describes it now; `None` when it is gone.
///
/// # Errors
/// [`FindError::Read`] for anything but absence.
pub fn describe(host: &Host, name: &str) -> Result<Option<Device>, FindError> {
    let folder = host.sys().join("class/block").join(name);
    let read = |attribute: &str| {
        let path = folder.join(attribute);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(error) if is_absence(&error) => Ok(None),
            Err(source) => Err(FindError::Read { path, source }),
        }
    };
    let (Some(number), Some(sectors)) = (read("dev")?, read("size")?) else {
        return Ok(None);
    };
    let invalid = |attribute: &str, text: &str| FindError::Read {
        path: folder.join(attribute),
        source: io::Error::new(io::ErrorKind::InvalidData, format!("{text:?}")),
    };
    let number = DeviceNumber::parse(&number).ok_or_else(|| invalid("dev", &number))?;
    let sectors: u64 = sectors.parse().map_err(|_| invalid("size", &sectors))?;
    Ok(Some(Device {
        name: name.to_owned(),
        path: host.dev().join(name),
        number,
        // sysfs counts sectors of 512 bytes whatever the disk's own sector size is.
        size_bytes: sectors.saturating_mul(512),
        lun: None,
        scsi: None,
        nvme: None,
        read_only: read("ro")?.is_some_and(|ro| ro == "1"),
        sequence: sequence(host, &folder),
    }))
}

/// The device with this number, if the kernel still has it.
///
/// # Errors
/// [`FindError::Read`].
pub async fn with_number(host: &Host, number: DeviceNumber) -> Result<Option<Device>, FindError> {
    let host = host.clone();
    let folder = host.sys().join("class/block");
    let lost = FindError::Read { path: folder.clone(), source: io::Error::other("the reading task was lost") };
    let search = move || {
        let mut names: Vec<String> = match fs::read_dir(&folder) {
            Ok(entries) => entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect(),
            Err(source) => return Err(FindError::Read { path: folder, source }),
        };
        names.sort();
        for name in names {
            match describe(&host, &name)? {
                Some(found) if found.number == number => return Ok(Some(found)),
                _ => {}
            }
        }
        Ok(None)
    };
    tokio::task::spawn_blocking(search).await.unwrap_or(Err(lost))
}

/// The number of the block device at a path, if one is there.
#[must_use]
pub fn node_number(path: &Path) -> Option<DeviceNumber> {
    if !path.is_absolute() {
        return None;
    }
    let found = fs::metadata(path).ok()?;
    found.file_type().is_block_device().then(|| device_number::of_raw(found.rdev()))
}

/// The partition of a disk, if it has it.
///
/// # Errors
/// [`FindError::Read`].
pub fn part(host: &Host, disk: &Device, partition: u32) -> Result<Option<Device>, FindError> {
    let found = describe(host, &disk.part_name(partition))?;
    Ok(found.map(|found| Device { lun: disk.lun, scsi: disk.scsi.clone(), nvme: disk.nvme.clone(), ..found }))
}

/// The node of a device without the links that lead to it; the path of the device where it cannot be resolved.
#[must_use]
pub fn real_node(device: &Device) -> PathBuf {
    fs::canonicalize(&device.path).unwrap_or_else(|_| device.path.clone())
}

/// The boot and the sequence number of the disk at this folder of sysfs, or of the disk that it is a partition of.
///
/// Source: `Documentation/ABI/stable/sysfs-block`, `diskseq`, since Linux 5.15: it grows with every disk that appears,
/// and begins anew with each boot. An older kernel has the inode number of the folder instead, which sysfs hands out in
/// a cycle of four billion since Linux 4.14.
fn sequence(host: &Host, folder: &Path) -> Option<String> {
    let boot = host.boot_id()?;
    match disk_sequence(folder) {
        Some(number) => Some(format!("{boot}/diskseq/{}", number.trim())),
        None => Some(format!("{boot}/sysfs/{}", fs::metadata(folder).ok()?.ino())),
    }
}

/// Whether the kernel has not given the device's number to another disk since the device was found, as far as its sequence
/// numbers of disks tell.
///
/// The numbers are the kernel's own, whatever the root folder of the device is, so this looks at the machine's sysfs.
pub(super) fn is_still(device: &Device) -> bool {
    let known = device.sequence.as_deref().and_then(|sequence| sequence.rsplit_once("/diskseq/"));
    let folder = Path::new("/sys/dev/block").join(device.number.to_string());
    let now = disk_sequence(&folder);
    known.zip(now).is_none_or(|((_, known), now)| known == now.trim())
}

/// The kernel's sequence number of the disk at this folder of sysfs, or of the disk that it is a partition of.
fn disk_sequence(folder: &Path) -> Option<String> {
    // A link in the class leads to the device's folder, and a partition's is inside its disk's.
    ["diskseq", "../diskseq"].iter().find_map(|place| fs::read_to_string(folder.join(place)).ok())
}

pub(super) fn is_absence(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || matches!(error.raw_os_error(), Some(nix::libc::ENXIO | nix::libc::ENODEV | nix::libc::ENOTDIR))
}

/// A disk as listed in sysfs.
struct Listed {
    lun: u32,
    name: String,
    at: Address,
}

/// Where a disk is found.
enum Address {
    /// As the SCSI device `H:C:T:L`.
    Scsi(String),
    /// As a namespace.
    Nvme(NvmeDisk),
}

impl std::fmt::Display for Listed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.at {
            Address::Scsi(address) => write!(f, "{} ({address})", self.name),
            Address::Nvme(disk) => write!(f, "{} ({}, namespace {})", self.name, disk.controller, disk.nsid),
        }
    }
}

fn find(host: &Host, lun: u32) -> Result<Device, FindError> {
    let mut seen = Vec::new();
    let mut excluded = Vec::new();
    let mut candidates = Vec::new();
    let mut diskless = None;
    let nvme = nvme::read(host)?;
    let place = nvme.place(lun, host.nvme_lun_offset);
    let own = OwnDisks::gather(host, nvme.system);
    let not_ready = |why: String| FindError::NotReady { lun, why };
    match place {
        Place::NoDisks => {}
        Place::Unplaced(why) => return Err(FindError::Unplaced { lun, why }),
        Place::NotReady(why) => return Err(not_ready(why)),
        Place::Ambiguous(candidates) => return Err(FindError::Ambiguous { lun, candidates }),
        Place::Nothing(others) => seen.extend(others),
        Place::At(name, disk) => {
            let disk = Listed { lun, name, at: Address::Nvme(disk) };
            match own.why_excluded(host, &disk) {
                Some(why) => excluded.push(format!("{} {why}", disk.name)),
                None => candidates.push(disk),
            }
        }
    }
    for entry in list(host)? {
        let Some(disk) = entry.disk else {
            if entry.lun == lun {
                diskless = Some(entry.address);
            }
            continue;
        };
        match own.why_excluded(host, &disk) {
            Some(why) if disk.lun == lun => excluded.push(format!("{} {why}", disk.name)),
            Some(_) => {}
            None if disk.lun == lun => candidates.push(disk),
            None => seen.push((disk.lun, disk.name)),
        }
    }
    let disk = match (candidates.pop(), candidates.is_empty()) {
        (Some(disk), true) => disk,
        (Some(last), false) => {
            candidates.push(last);
            return Err(FindError::Ambiguous { lun, candidates: candidates.iter().map(Listed::to_string).collect() });
        }
        (None, _) => {
            if let Some(address) = diskless {
                return Err(not_ready(format!("{address} has no block device")));
            }
            seen.sort();
            return Err(FindError::NotFound { lun, seen, excluded });
        }
    };
    ready(host, disk)
}

/// Checks that a listed disk has everything that its use needs.
fn ready(host: &Host, disk: Listed) -> Result<Device, FindError> {
    let lun = disk.lun;
    let not_ready = |why: String| FindError::NotReady { lun, why };
    let Some(device) = describe(host, &disk.name)? else {
        return Err(not_ready(format!("{} is not in sysfs yet", disk.name)));
    };
    if device.size_bytes == 0 {
        return Err(not_ready(format!("{} has no size yet", disk.name)));
    }
    match fs::metadata(&device.path) {
        Ok(node) if node.file_type().is_block_device() && device_number::of_raw(node.rdev()) == device.number => {}
        Ok(_) => {
            let path = device.path.display();
            return Err(not_ready(format!("{path} is not device {}", device.number)));
        }
        Err(error) => {
            let path = device.path.display();
            return Err(not_ready(format!("{path}: {error}")));
        }
    }
    Ok(match disk.at {
        Address::Scsi(address) => Device { lun: Some(lun), scsi: Some(address), ..device },
        Address::Nvme(namespace) => Device { lun: Some(lun), nvme: Some(namespace), ..device },
    })
}

/// A SCSI device of the right make, with its disk when it has one.
struct Entry {
    address: String,
    lun: u32,
    disk: Option<Listed>,
}

/// All SCSI devices of the right make, ordered by address.
fn list(host: &Host) -> Result<Vec<Entry>, FindError> {
    let class = host.sys().join("class/scsi_device");
    let mut addresses: Vec<String> = match fs::read_dir(&class) {
        Ok(entries) => entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect(),
        // No SCSI device was ever there.
        Err(error) if is_absence(&error) => Vec::new(),
        Err(source) => {
            return Err(FindError::Read { path: class, source });
        }
    };
    addresses.sort();
    let mut found = Vec::new();
    for address in addresses {
        let Some(lun) = lun_of(&address) else {
            continue;
        };
        let device = class.join(&address).join("device");
        if !says(&device.join("vendor"), "Msft") || !says(&device.join("model"), "Virtual Disk") {
            continue;
        }
        let mut names: Vec<String> = fs::read_dir(device.join("block"))
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        let at = || Address::Scsi(address.clone());
        let disks: Vec<Listed> = names.into_iter().map(|name| Listed { lun, name, at: at() }).collect();
        if disks.is_empty() {
            found.push(Entry { address: address.clone(), lun, disk: None });
        }
        found.extend(disks.into_iter().map(|disk| Entry { address: address.clone(), lun, disk: Some(disk) }));
    }
    Ok(found)
}

fn lun_of(address: &str) -> Option<u32> {
    let parts: Vec<&str> = address.split(':').collect();
    match parts.as_slice() {
        [_, _, _, lun] => lun.parse().ok(),
        _ => None,
    }
}

fn says(path: &Path, wanted: &str) -> bool {
    fs::read_to_string(path).is_ok_and(|text| text.trim().eq_ignore_ascii_case(wanted))
}

/// What is known of the machine's own disks.
struct OwnDisks {
    /// Kernel names that Azure's links lead to, with the link.
    linked: BTreeMap<String, String>,
    /// Numbers of the same, for links whose target has another name.
    linked_numbers: BTreeMap<DeviceNumber, String>,
    /// The device numbers that hold `/`.
    roots: BTreeSet<DeviceNumber>,
    /// Where the system lies, on a machine whose disks come by NVMe.
    system: SystemDisks,
}

impl OwnDisks {
    fn gather(host: &Host, system: SystemDisks) -> Self {
        let mut own = Self { linked: BTreeMap::new(), linked_numbers: BTreeMap::new(), roots: BTreeSet::new(), system };
        let azure = host.dev().join("disk/azure");
        let mut links = vec![azure.join("root"), azure.join("resource")];
        links.extend(fs::read_dir(azure.join("scsi0")).into_iter().flatten().flatten().map(|entry| entry.path()));
        for link in links {
            own.add_link(&link);
        }
        // In a container `/` is an overlay, but process 1 of the host may be visible.
        for process in ["self", "1"] {
            let Ok(table) = mountinfo::read(&host.proc().join(process).join("mountinfo")) else {
                continue;
            };
            for mount in table.iter().filter(|m| m.target == Path::new("/")) {
                own.roots.insert(mount.device);
                // btrfs shows an anonymous number; its source is the disk.
                if let Ok(node) = fs::metadata(&mount.source)
                    && node.file_type().is_block_device()
                {
                    own.roots.insert(device_number::of_raw(node.rdev()));
                }
            }
        }
        own
    }

    fn add_link(&mut self, link: &Path) {
        let text = link.display().to_string();
        if let Ok(node) = fs::metadata(link)
            && node.file_type().is_block_device()
        {
            let number = device_number::of_raw(node.rdev());
            self.linked_numbers.insert(number, text.clone());
        }
        if let Ok(target) = fs::read_link(link)
            && let Some(name) = target.file_name().and_then(|name| name.to_str())
        {
            self.linked.insert(name.to_owned(), text);
        }
    }

    fn why_excluded(&self, host: &Host, disk: &Listed) -> Option<String> {
        if let Address::Scsi(address) = &disk.at
            && let Some(id) = controller(host, address)
            && OWN_CONTROLLERS.iter().any(|own| id.starts_with(own))
        {
            return Some(format!("is on the machine's own controller {id}"));
        }
        let folder = host.sys().join("class/block").join(&disk.name);
        let whole = number_in(&folder);
        // The rules that make these links have called data disks of a second NVMe controller the system's (azure-vm-utils#99).
        let is_linked = || self.linked.get(&disk.name).or_else(|| self.linked_numbers.get(&whole?));
        match &disk.at {
            Address::Nvme(namespace) if self.system.has(&disk.name, namespace.nsid) => {
                return Some("holds the system".to_owned());
            }
            Address::Nvme(_) => {}
            Address::Scsi(_) => {
                if let Some(link) = is_linked() {
                    return Some(format!("is {link}"));
                }
            }
        }
        let parts = fs::read_dir(&folder)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(&disk.name))
            .filter_map(|entry| number_in(&entry.path()));
        whole
            .into_iter()
            .chain(parts)
            .any(|number| self.roots.contains(&number))
            .then(|| "holds the root file system".to_owned())
    }
}

fn number_in(folder: &Path) -> Option<DeviceNumber> {
    DeviceNumber::parse(&fs::read_to_string(folder.join("dev")).ok()?)
}

/// The VMBus id of the controller above a SCSI device, without braces, lower case.
fn controller(host: &Host, address: &str) -> Option<String> {
    let top = fs::canonicalize(host.sys()).ok()?;
    let device = host.sys().join("class/scsi_device").join(address);
    let device = fs::canonicalize(device.join("device")).ok()?;
    device
        .ancestors()
        .take_while(|folder| folder.starts_with(&top))
        .find_map(|folder| fs::read_to_string(folder.join("device_id")).ok())
        .map(|id| id.trim().trim_matches(['{', '}']).to_ascii_lowercase())
}

/// Whether the device is still in sysfs under its name and number.
pub(super) fn is_present(host: &Host, device: &Device) -> bool {
    let folder = host.sys().join("class/block").join(&device.name);
    number_in(&folder) == Some(device.number)
}
