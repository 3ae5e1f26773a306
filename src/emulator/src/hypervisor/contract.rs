//! The folder that plays `/` for the node on one machine: the written contract of
//! [`hypervisor`](super), and nothing about loop devices.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::nvme::{self, Namespace};
use super::types::{HypervisorError, Shown};

const SCSI: &str = "sys/class/scsi_device";
pub(super) const BLOCK: &str = "sys/class/block";
pub(super) const DEV: &str = "dev";
const AZURE: &str = "dev/disk/azure/scsi1";
/// Where entries are built and where they go to be taken apart: outside of every watched folder, on
/// the same filesystem.
pub(super) const STAGING: &str = ".staging";

/// What a Hyper-V disk answers to an INQUIRY, padded as SCSI pads it.
const VENDOR: &str = "Msft    \n";
const MODEL: &str = "Virtual Disk    \n";

/// One machine's folder.
#[derive(Debug)]
pub(super) struct MachineFolder {
    root: PathBuf,
}

pub(super) fn file_error<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> HypervisorError + 'a {
    move |source| HypervisorError::File { action, path: path.to_owned(), source }
}

pub(super) fn make_folder(path: &Path) -> Result<(), HypervisorError> {
    fs::create_dir_all(path).map_err(file_error("cannot make the folder", path))
}

/// Removes a file, link or folder with all in it. Fine when there is none.
pub(super) fn remove(path: &Path) -> Result<(), HypervisorError> {
    let result = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match result {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(file_error("cannot remove", path)(error)),
        _ => Ok(()),
    }
}

fn entry_name(lun: u8) -> String {
    format!("1:0:0:{lun}")
}

fn lun_of(entry: &str) -> Option<u8> {
    entry.strip_prefix("1:0:0:")?.parse().ok()
}

impl MachineFolder {
    /// The folder at `root`; nothing is made yet.
    pub(super) const fn new(root: PathBuf) -> Self {
        Self { root }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Makes the empty skeleton of a machine that shows its disks so; of what is there only where it is of another kind.
    pub(super) fn prepare_as(&self, shown: Shown) -> Result<(), HypervisorError> {
        if shown != Shown::Scsi {
            return nvme::prepare(&self.root, shown);
        }
        for part in [SCSI, BLOCK, AZURE, STAGING] {
            make_folder(&self.root.join(part))?;
        }
        Ok(())
    }

    /// How the machine shows its disks; a folder without anything is of a machine with SCSI.
    pub(super) fn shown(&self) -> Shown {
        nvme::shown(&self.root).unwrap_or(Shown::Scsi)
    }

    /// Whether there is such a machine.
    pub(super) fn exists(&self) -> bool {
        self.root.exists()
    }

    fn prepare(&self) -> Result<(), HypervisorError> {
        self.prepare_as(self.shown())
    }

    /// Removes the folder with all in it.
    pub(super) fn remove_all(&self) -> Result<(), HypervisorError> {
        remove(&self.root)
    }

    /// The device at each LUN.
    pub(super) fn devices(&self) -> Result<BTreeMap<u8, String>, HypervisorError> {
        if self.shown() != Shown::Scsi {
            let namespaces = nvme::namespaces(&self.root, self.shown())?;
            return Ok(namespaces.into_iter().map(|(lun, namespace)| (lun, namespace.device)).collect());
        }
        let folder = self.root.join(SCSI);
        let mut devices = BTreeMap::new();
        for entry in names(&folder)? {
            let Some(lun) = lun_of(&entry) else { continue };
            let block = folder.join(&entry).join("device/block");
            // An entry is complete or not there: without a block device it is not one of ours.
            if let Some(name) = names(&block)?.into_iter().next() {
                devices.insert(lun, name);
            }
        }
        Ok(devices)
    }

    /// Shows the device `name` at `lun`.
    pub(super) fn show(&self, lun: u8, name: &str) -> Result<(), HypervisorError> {
        self.prepare()?;
        self.hide(lun)?;
        if self.shown() != Shown::Scsi {
            return nvme::show(&self.root, self.shown(), lun, name);
        }
        let sysfs = Path::new("/sys/class/block").join(name);
        self.link(&Path::new("/dev").join(name), &self.root.join(DEV).join(name))?;
        self.link(&sysfs, &self.root.join(BLOCK).join(name))?;
        self.link(&Path::new("../../..").join(name), &self.root.join(AZURE).join(format!("lun{lun}")))?;

        let built = self.root.join(STAGING).join(entry_name(lun));
        remove(&built)?;
        let device = built.join("device");
        make_folder(&device.join("block"))?;
        for (file, text) in [("vendor", VENDOR), ("model", MODEL), ("rescan", "")] {
            let path = device.join(file);
            fs::write(&path, text).map_err(file_error("cannot write", &path))?;
        }
        let block = device.join("block").join(name);
        symlink(&sysfs, &block).map_err(file_error("cannot link", &block))?;
        let entry = self.root.join(SCSI).join(entry_name(lun));
        fs::rename(&built, &entry).map_err(file_error("cannot show", &entry))
    }

    /// Takes away what is at `lun`. Fine when there is nothing, or only a part of it.
    pub(super) fn hide(&self, lun: u8) -> Result<(), HypervisorError> {
        if self.shown() != Shown::Scsi {
            return nvme::hide(&self.root, self.shown(), lun);
        }
        let name = self.devices()?.remove(&lun);
        let entry = self.root.join(SCSI).join(entry_name(lun));
        let away = self.root.join(STAGING).join(format!("gone-{lun}"));
        if fs::symlink_metadata(&entry).is_ok() {
            // A sweep, or a hand, may have taken the staging folder away.
            make_folder(&self.root.join(STAGING))?;
            remove(&away)?;
            fs::rename(&entry, &away).map_err(file_error("cannot take away", &entry))?;
        }
        remove(&self.root.join(AZURE).join(format!("lun{lun}")))?;
        if let Some(name) = name {
            remove(&self.root.join(BLOCK).join(&name))?;
            remove(&self.root.join(DEV).join(&name))?;
        }
        remove(&away)
    }

    /// Tells a watcher that the device at `lun` has changed.
    pub(super) fn touch(&self, lun: u8) -> Result<(), HypervisorError> {
        let entry = match self.shown() {
            Shown::Scsi => self.root.join(SCSI).join(entry_name(lun)),
            shown => match nvme::namespaces(&self.root, shown)?.get(&lun) {
                Some(Namespace { entry, .. }) => entry.clone(),
                None => return Ok(()),
            },
        };
        fs::File::open(&entry)
            .and_then(|file| file.set_modified(SystemTime::now()))
            .map_err(file_error("cannot touch", &entry))
    }

    /// Removes links that no entry accounts for: what a killed process left half-made.
    pub(super) fn sweep(&self) -> Result<(), HypervisorError> {
        let devices = self.devices()?;
        remove(&self.root.join(STAGING))?;
        self.prepare()?;
        if self.shown() != Shown::Scsi {
            return nvme::sweep(&self.root, self.shown());
        }
        for folder in [BLOCK, DEV] {
            let folder = self.root.join(folder);
            for name in names(&folder)? {
                if name.starts_with("loop") && !devices.values().any(|known| *known == name) {
                    remove(&folder.join(name))?;
                }
            }
        }
        for link in names(&self.root.join(AZURE))? {
            let lun = link.strip_prefix("lun").and_then(|lun| lun.parse().ok());
            if !lun.is_some_and(|lun: u8| devices.contains_key(&lun)) {
                remove(&self.root.join(AZURE).join(link))?;
            }
        }
        Ok(())
    }

    /// Makes or replaces a link in one step.
    fn link(&self, target: &Path, at: &Path) -> Result<(), HypervisorError> {
        link(&self.root, target, at)
    }
}

/// Makes or replaces a link of a machine in one step.
pub(super) fn link(root: &Path, target: &Path, at: &Path) -> Result<(), HypervisorError> {
    let built = root.join(STAGING).join("link");
    remove(&built)?;
    symlink(target, &built).map_err(file_error("cannot link", &built))?;
    fs::rename(&built, at).map_err(file_error("cannot link", at))
}

/// The names in a folder, sorted; none when there is no folder.
pub(super) fn names(folder: &Path) -> Result<Vec<String>, HypervisorError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(file_error("cannot list", folder)(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(file_error("cannot list", folder))?;
        names.extend(entry.file_name().into_string());
    }
    names.sort();
    Ok(names)
}
