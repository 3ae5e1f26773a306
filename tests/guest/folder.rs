//! Where a test's emulator keeps the files of its shares, and where Samba is.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

/// How many lines of a log a failure shows.
const SHOWN: usize = 40;

/// The folder in which Samba is unpacked.
pub(super) fn samba_programs() -> PathBuf {
    let output = Command::new("scripts/guest").arg("samba").current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    printed.lines().last().unwrap().into()
}

/// A folder with a short name, gone afterwards; those of tests that were killed go with the next one.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn make() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Not below the build: Samba's sockets are in it, and the path of a socket has 107 bytes at most.
        let all = std::env::temp_dir();
        for entry in fs::read_dir(&all).unwrap().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let of = name.strip_prefix("lz-guest-").and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
            if of.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        let path = all.join(format!("lz-guest-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Where file servers work.
    pub(super) fn smb(&self) -> PathBuf {
        self.0.join("smb")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for account in fs::read_dir(self.0.join("smb/accounts")).into_iter().flatten().flatten() {
                let log = fs::read_to_string(account.path().join("server/log.smbd")).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                let end = &lines[lines.len().saturating_sub(SHOWN)..];
                eprintln!("--- the end of Samba's log of {:?}\n{}", account.file_name(), end.join("\n"));
            }
        }
        let _ = fs::remove_dir_all(&self.0);
    }
}
