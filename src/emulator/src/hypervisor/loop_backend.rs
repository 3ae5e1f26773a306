//! Mode loop: disk files, loop devices, and the machines' folders held in line with each other.
//!
//! Nothing is remembered that the files and the kernel do not say, so a killed process loses nothing.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::backend::Backend;
use super::contract::{self, MachineFolder};
use super::disk_files::{DiskFiles, replace_by_copy};
use super::loop_device;
use super::types::{Attachment, DiskFacts, HypervisorError, Machine, Shown};

/// Everything below one root folder.
#[derive(Debug)]
pub(super) struct LoopBackend {
    files: DiskFiles,
}

impl LoopBackend {
    /// Takes the root and brings what is there in line with `machines` and `attached`.
    pub(super) fn open(root: &Path, machines: &[Machine], attached: &[Attachment]) -> Result<Self, HypervisorError> {
        loop_device::check_available()?;
        let backend = Self { files: DiskFiles::open(root, &["lent", "vms"])? };
        for Machine { name, shown } in machines {
            backend.create_machine(name, *shown)?;
        }
        backend.bring_in_line(attached)?;
        Ok(backend)
    }

    fn bring_in_line(&self, attached: &[Attachment]) -> Result<(), HypervisorError> {
        let wanted: BTreeMap<(String, u8), &DiskFacts> =
            attached.iter().map(|a| ((a.vm.to_lowercase(), a.lun), &a.disk)).collect();
        let mut adopted = Vec::new();
        for vm in contract::names(&self.files.root().join("vms"))? {
            let machine = self.machine(&vm)?;
            for (lun, name) in machine.devices()? {
                let right = wanted
                    .get(&(vm.clone(), lun))
                    .and_then(|disk| self.files.backing(disk).ok())
                    .is_some_and(|file| self.device_has(&name, &file));
                if right {
                    adopted.push(name);
                } else {
                    machine.hide(lun)?;
                }
            }
            machine.sweep()?;
        }
        for (name, file) in loop_device::list()? {
            if self.is_own(&file)? && !adopted.contains(&name) {
                self.let_go(&name, Some(&file))?;
            }
        }
        let bound = loop_device::list()?;
        for file in self.lent()?.iter().filter(|file| !bound.iter().any(|(_, backing)| backing == *file)) {
            contract::remove(&self.note(file))?;
        }
        for attachment in attached {
            self.attach(&attachment.vm, attachment.lun, &attachment.disk)?;
        }
        Ok(())
    }

    pub(super) fn root(&self) -> &Path {
        self.files.root()
    }

    fn machine(&self, vm: &str) -> Result<MachineFolder, HypervisorError> {
        machine(self.files.root(), vm)
    }

    /// Where it is noted that a file of others is, or was about to be, on a device of this root.
    fn note(&self, file: &Path) -> PathBuf {
        let hash = Uuid::new_v5(&Uuid::NAMESPACE_URL, file.as_os_str().as_bytes()).simple().to_string();
        self.files.root().join("lent").join(hash)
    }

    fn lend(&self, file: &Path) -> Result<(), HypervisorError> {
        let note = self.note(file);
        contract::remove(&note)?;
        symlink(file, &note).map_err(|source| HypervisorError::File { action: "cannot note", path: note, source })
    }

    /// The files of others that are on devices of this root.
    fn lent(&self) -> Result<Vec<PathBuf>, HypervisorError> {
        let notes = contract::names(&self.files.root().join("lent"))?;
        Ok(notes.iter().filter_map(|note| fs::read_link(self.files.root().join("lent").join(note)).ok()).collect())
    }

    /// Whether a device with this file is of this root.
    fn is_own(&self, file: &Path) -> Result<bool, HypervisorError> {
        Ok(file.starts_with(self.files.root().join("disks")) || self.lent()?.contains(&with_name(file)))
    }

    /// Whether the file is bound to the device.
    fn device_has(&self, name: &str, file: &Path) -> bool {
        let sysfs = Path::new("/sys/class/block").join(name);
        fs::read_to_string(sysfs.join("loop/backing_file")).is_ok_and(|backing| Path::new(backing.trim_end()) == file)
    }

    /// Releases a device. When someone still uses it, the disk goes on in a copy of its file and the
    /// user keeps the old one, which has no name any more.
    fn let_go(&self, name: &str, file: Option<&Path>) -> Result<(), HypervisorError> {
        let still_used = loop_device::release(name)?;
        let Some(file) = file else { return Ok(()) };
        // A shared disk stays where its other machines are.
        if loop_device::list()?.iter().any(|(other, backing)| other != name && backing == file) {
            return Ok(());
        }
        if still_used && file.exists() {
            tracing::warn!(device = name, file = %file.display(), "disk pulled while in use");
            replace_by_copy(file, file)?;
        }
        contract::remove(&self.note(&with_name(file)))
    }
}

impl Backend for LoopBackend {
    fn create_machine(&self, vm: &str, shown: Shown) -> Result<(), HypervisorError> {
        let machine = self.machine(vm)?;
        // Another one of the name may have been there, and shown its disks otherwise.
        if machine.exists() && machine.shown() != shown {
            self.delete_machine(vm)?;
        }
        machine.prepare_as(shown)
    }

    fn delete_machine(&self, vm: &str) -> Result<(), HypervisorError> {
        let machine = self.machine(vm)?;
        for lun in machine.devices()?.into_keys() {
            self.detach(vm, lun)?;
        }
        machine.remove_all()
    }

    fn files(&self) -> &DiskFiles {
        &self.files
    }

    fn resize(&self, disk: &DiskFacts) -> Result<(), HypervisorError> {
        self.files.grow(disk)?;
        let file = self.files.file(&disk.id);
        for vm in contract::names(&self.files.root().join("vms"))? {
            let machine = self.machine(&vm)?;
            for (lun, name) in machine.devices()? {
                if self.device_has(&name, &file) {
                    loop_device::refresh_size(&name)?;
                    machine.touch(lun)?;
                }
            }
        }
        Ok(())
    }

    fn attach(&self, vm: &str, lun: u8, disk: &DiskFacts) -> Result<(), HypervisorError> {
        let machine = self.machine(vm)?;
        let file = self.files.backing(disk)?;
        if let Some(name) = machine.devices()?.get(&lun) {
            if self.device_has(name, &file) {
                return Ok(());
            }
            self.detach(vm, lun)?;
        }
        match &disk.file {
            Some(_) => self.lend(&file)?,
            None if !file.exists() => self.files.create(disk)?,
            None => {}
        }
        let name = loop_device::bind(&file, disk.file.as_ref().map(|_| disk.size_bytes))?;
        machine.show(lun, &name).inspect_err(|_| {
            // The error tells more than a second one about the clean-up would.
            let _ = self.let_go(&name, None);
        })
    }

    fn detach(&self, vm: &str, lun: u8) -> Result<(), HypervisorError> {
        let machine = self.machine(vm)?;
        let name = machine.devices()?.remove(&lun);
        machine.hide(lun)?;
        let Some(name) = name else { return Ok(()) };
        let backing = loop_device::list()?.into_iter().find(|(device, _)| *device == name).map(|(_, file)| file);
        match backing {
            // The number may have gone to someone else since; what is not ours stays.
            Some(file) if self.is_own(&file)? => self.let_go(&name, Some(&file)),
            _ => Ok(()),
        }
    }

    fn withdraw(&self, vm: &str, lun: u8, disk: &DiskFacts) -> Result<(), HypervisorError> {
        let file = self.files.backing(disk)?;
        let found = self.machine(vm)?.devices()?.remove(&lun);
        match found.is_some_and(|name| self.device_has(&name, &file)) {
            true => self.detach(vm, lun),
            false => Ok(()),
        }
    }

    fn detach_all(&self) -> Result<(), HypervisorError> {
        let mut first = Ok(());
        for vm in contract::names(&self.files.root().join("vms"))? {
            let devices = self.machine(&vm)?.devices()?;
            for lun in devices.into_keys() {
                let result = self.detach(&vm, lun);
                if first.is_ok() {
                    first = result;
                }
            }
        }
        first
    }
}

/// The folder of a machine below `root`. Machine names differ by more than letter case.
pub(super) fn machine(root: &Path, vm: &str) -> Result<MachineFolder, HypervisorError> {
    let usable = !vm.is_empty() && !vm.starts_with('.') && !vm.contains(['/', '\0']);
    if !usable {
        return Err(HypervisorError::MachineName { vm: vm.to_owned() });
    }
    Ok(MachineFolder::new(root.join("vms").join(vm.to_lowercase())))
}

/// The name that a file has or had: the kernel marks one that is deleted.
fn with_name(file: &Path) -> PathBuf {
    let text = file.as_os_str().as_bytes();
    let name = text.strip_suffix(b" (deleted)").unwrap_or(text);
    PathBuf::from(OsStr::from_bytes(name))
}
