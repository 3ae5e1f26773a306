//! The program under test as child processes, and whether this machine can run the tests of this folder.

use std::path::Path;

pub(super) use lazuli_test_cluster::process::{Folder, Orphan, PATIENCE, Process, mount_lines, mounted_at, run, until};

/// Starts `lazuli` with these arguments; both its outputs go to `log`, after what is there.
pub(super) fn start(name: &str, log: &Path, arguments: &[String]) -> Process {
    Process::of_program(Path::new(env!("CARGO_BIN_EXE_lazuli")), name, log, arguments)
}

/// Whether this machine can run these tests. Says why not; under `CI=true` that is a failure.
pub(super) fn able() -> bool {
    let mut missing: Vec<String> = lazuli_rig::missing_for_mounts().into_iter().collect();
    let folders = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"];
    for program in ["mkfs.ext3", "mkfs.xfs", "mkfs.btrfs", "blkid", "unshare"] {
        if !folders.iter().any(|folder| Path::new(folder).join(program).exists()) {
            missing.push(format!("program {program}"));
        }
    }
    if !Path::new("/dev/loop-control").exists() {
        missing.push("/dev/loop-control".into());
    }
    if missing.is_empty() {
        return true;
    }
    let reason = missing.join(", ");
    eprintln!("SKIPPED, needs {reason}");
    assert!(std::env::var("CI").as_deref() != Ok("true"), "in CI nothing is skipped: needs {reason}");
    false
}
