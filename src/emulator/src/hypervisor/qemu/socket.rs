//! The socket of a machine's QEMU, and the claim of this process on the machine behind it.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::super::types::HypervisorError;
use crate::claim::Claim;

/// A socket that is this process's from the first call that can claim it until the process ends.
///
/// QEMU serves one client after the other, and has no notion of whose a machine is.
#[derive(Debug)]
pub(super) struct Socket {
    vm: String,
    path: PathBuf,
    claim: Mutex<Option<Claim>>,
}

impl Socket {
    pub(super) fn new(vm: &str, path: &Path) -> Self {
        Self { vm: vm.to_owned(), path: path.to_owned(), claim: Mutex::new(None) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Claims the machine, if this process has not done so. Without a folder there is no socket that anyone could use, so
    /// that this can wait.
    pub(super) fn claim(&self) -> Result<(), HypervisorError> {
        let mut claim = self.claim.lock().unwrap_or_else(PoisonError::into_inner);
        if claim.is_some() {
            return Ok(());
        }
        let Some(lock) = lock_file(&self.path) else { return Ok(()) };
        match Claim::take(&lock) {
            Ok(Some(taken)) => *claim = Some(taken),
            Ok(None) => {
                let (vm, socket, holder) = (self.vm.clone(), self.path.clone(), Claim::holder(&lock));
                return Err(HypervisorError::QemuInUse { vm, socket, lock, holder });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => {
                return Err(HypervisorError::File { action: "cannot claim by the lock file", path: lock, source });
            }
        }
        Ok(())
    }
}

/// The lock file, by the real path of the socket: a link to it is no other machine.
fn lock_file(socket: &Path) -> Option<PathBuf> {
    let real = match socket.canonicalize() {
        Ok(real) => real,
        // QEMU makes it when it starts.
        Err(_) => socket.parent()?.canonicalize().ok()?.join(socket.file_name()?),
    };
    let mut name = OsString::from(real);
    name.push(".lock");
    Some(name.into())
}
