//! A claim on a place, by a lock on a file there: one emulator at a time.
//!
//! It ends with the process, however that ends, and when it is dropped. Dropped means unlocked, not merely
//! closed: a child process that is just being started holds a copy of every open file until it runs its
//! program, and a claim that is only closed lives on in the copy.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::Path;

/// A lock that is held.
#[derive(Debug)]
pub(crate) struct Claim(File);

impl Claim {
    /// Claims by the lock file `path`, which is made where it is missing and stays. `None` when another has it.
    pub(crate) fn take(path: &Path) -> io::Result<Option<Self>> {
        let file = File::options().create(true).truncate(false).write(true).open(path)?;
        match file.try_lock() {
            Ok(()) => {
                // For those who are refused. Without the number the claim holds as well.
                let _ = file.set_len(0).and_then(|()| writeln!(&file, "{}", std::process::id()));
                Ok(Some(Self(file)))
            }
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(source),
        }
    }

    /// The process that has claimed by the lock file `path`, as far as that is known.
    pub(crate) fn holder(path: &Path) -> Option<u32> {
        fs::read_to_string(path).ok()?.trim().parse().ok()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // What cannot be unlocked is about to be closed, which does the same where there is no copy.
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_that_is_dropped_is_free_although_a_copy_of_its_file_is_open() {
        let path = std::env::temp_dir().join(format!("lazuli-claim-{}", std::process::id()));
        let claim = Claim::take(&path).unwrap().unwrap();
        assert!(Claim::take(&path).unwrap().is_none());
        assert_eq!(Claim::holder(&path), Some(std::process::id()));
        let copy = claim.0.try_clone().unwrap();
        drop(claim);
        assert!(Claim::take(&path).unwrap().is_some());
        drop(copy);
        // What a longer number has left is no part of the next.
        fs::write(&path, "12345678901").unwrap();
        let _claim = Claim::take(&path).unwrap().unwrap();
        assert_eq!(Claim::holder(&path), Some(std::process::id()));
        fs::remove_file(&path).unwrap();
    }
}
