//! The files that hold the bytes of disks and snapshots, below the root folder of a hypervisor.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use uuid::Uuid;

use super::contract;
use super::loop_device;
use super::types::{DiskFacts, HypervisorError};
use crate::claim::Claim;

/// How often a disk is copied that is written meanwhile. The last copy stands, written or not.
const COPIES_MOST: u32 = 5;

/// The folder `disks` below a root that no other process uses.
#[derive(Debug)]
pub(super) struct DiskFiles {
    root: PathBuf,
    /// Held open: the lock on it ends with this process, however it ends.
    _lock: Claim,
}

impl DiskFiles {
    /// Takes the root, with these folders in it.
    pub(super) fn open(root: &Path, folders: &[&str]) -> Result<Self, HypervisorError> {
        for folder in folders.iter().chain(&["disks"]) {
            let path = root.join(folder);
            fs::create_dir_all(&path).map_err(|source| HypervisorError::File {
                action: "cannot make the folder",
                path,
                source,
            })?;
        }
        // The kernel names backing files by their real path.
        let root = fs::canonicalize(root).map_err(|source| HypervisorError::File {
            action: "cannot resolve",
            path: root.to_owned(),
            source,
        })?;
        Ok(Self { _lock: lock(&root)?, root })
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The file of a disk: the name for the reader, the hash of the whole id to tell resource groups
    /// apart.
    pub(super) fn file(&self, id: &str) -> PathBuf {
        let id = id.to_lowercase();
        let name: String = id
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' })
            .take(80)
            .collect();
        let hash = Uuid::new_v5(&Uuid::NAMESPACE_URL, id.as_bytes()).simple().to_string();
        self.root.join("disks").join(format!("{name}-{}.raw", &hash[..12]))
    }

    /// The file that has the bytes of a disk, by its real path.
    pub(super) fn backing(&self, disk: &DiskFacts) -> Result<PathBuf, HypervisorError> {
        let Some(file) = &disk.file else { return Ok(self.file(&disk.id)) };
        fs::canonicalize(file).map_err(|source| HypervisorError::File {
            action: "cannot resolve",
            path: file.clone(),
            source,
        })
    }

    pub(super) fn create(&self, disk: &DiskFacts) -> Result<(), HypervisorError> {
        let path = self.file(&disk.id);
        // A new file, not an emptied one: someone may still have the old one open.
        contract::remove(&path)?;
        File::create_new(&path).and_then(|file| file.set_len(disk.size_bytes)).map_err(|source| HypervisorError::File {
            action: "cannot make the disk file",
            path,
            source,
        })
    }

    pub(super) fn copy(&self, from: &str, to: &DiskFacts) -> Result<(), HypervisorError> {
        let source = self.file(from);
        if !source.exists() {
            return Err(HypervisorError::NoSuchDisk { id: from.to_owned() });
        }
        self.copy_file(&source, to)?;
        self.grow(to)
    }

    /// Makes the file of a disk a copy of another file. One that was written while it was read is no state that the
    /// disk ever had.
    fn copy_file(&self, source: &Path, to: &DiskFacts) -> Result<(), HypervisorError> {
        for _ in 0..COPIES_MOST {
            let before = modified(source)?;
            replace_by_copy(source, &self.file(&to.id))?;
            if modified(source)? == before {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn import(&self, file: &Path, bytes: u64, to: &DiskFacts) -> Result<(), HypervisorError> {
        let path = self.file(&to.id);
        contract::remove(&path)?;
        self.copy_file(file, to)?;
        // What is beyond these bytes is none of the disk's, however large that is.
        File::options()
            .write(true)
            .open(&path)
            .and_then(|file| file.set_len(bytes).and_then(|()| file.set_len(to.size_bytes)))
            .map_err(|source| HypervisorError::File { action: "cannot cut the disk file", path, source })
    }

    pub(super) fn delete(&self, id: &str) -> Result<(), HypervisorError> {
        contract::remove(&self.file(id))
    }

    /// Makes the file as long as the disk; never shorter.
    pub(super) fn grow(&self, disk: &DiskFacts) -> Result<(), HypervisorError> {
        let path = self.file(&disk.id);
        fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .and_then(|file| {
                if file.metadata()?.len() < disk.size_bytes {
                    file.set_len(disk.size_bytes)?;
                }
                Ok(())
            })
            .map_err(|source| HypervisorError::File { action: "cannot grow the disk file", path, source })
    }
}

/// Takes the lock of a root folder.
fn lock(root: &Path) -> Result<Claim, HypervisorError> {
    let path = root.join("lock");
    match Claim::take(&path) {
        Ok(Some(claim)) => Ok(claim),
        Ok(None) => Err(HypervisorError::InUse { root: root.to_owned() }),
        Err(source) => Err(HypervisorError::File { action: "cannot lock", path, source }),
    }
}

/// When a file was last written.
fn modified(file: &Path) -> Result<SystemTime, HypervisorError> {
    fs::metadata(file).and_then(|facts| facts.modified()).map_err(|source| HypervisorError::File {
        action: "cannot look at the disk file",
        path: file.to_owned(),
        source,
    })
}

/// Copies `from` over `to` in one step, holes kept; they may be the same path.
pub(super) fn replace_by_copy(from: &Path, to: &Path) -> Result<(), HypervisorError> {
    let copy = to.with_extension("copy");
    loop_device::run(
        "cp",
        &["--sparse=always".as_ref(), "--reflink=auto".as_ref(), from.as_os_str(), copy.as_os_str()],
    )?;
    fs::rename(&copy, to).map_err(|source| HypervisorError::File {
        action: "cannot put the copy in place",
        path: to.to_owned(),
        source,
    })
}
