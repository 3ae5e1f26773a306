//! A `mkfs` that outlived the process which had started it.
//!
//! Where a killed node plugin was the first process of its container, the kernel has killed its children too.
//! Elsewhere they go on. A running `mkfs` holds its device exclusively, but one that was only just started has not
//! opened it yet: no claim shows it, and it would format whatever is there when its turn comes. So before a device is
//! formatted or let go, this looks for one in the process table. Never ends it: it ends by itself.

use std::fs;
use std::path::{Path, PathBuf};

use super::device::Device;
use super::{Host, mount};

/// A process that was told to format the device, as far as this process can see: its id and its program.
pub(super) fn formatting(host: &Host, device: &Device) -> Option<(u32, String)> {
    let names = mount::source_names(host, device);
    let processes = fs::read_dir(&host.proc).into_iter().flatten().flatten();
    let mut ids: Vec<u32> = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    ids.sort_unstable();
    ids.into_iter().find_map(|id| {
        // Empty for one that has ended and was not waited for.
        let line = fs::read(host.proc.join(id.to_string()).join("cmdline")).ok()?;
        program_formatting(&line, &names).map(|program| (id, program))
    })
}

/// The program of a command line, NUL after each word, if it makes a file system on a device of one of these names.
fn program_formatting(line: &[u8], names: &[PathBuf]) -> Option<String> {
    let line = String::from_utf8_lossy(line);
    let mut words = line.split('\0');
    let program = Path::new(words.next()?).file_name()?.to_str()?;
    let formats = program.starts_with("mkfs") || program == "mke2fs";
    let on_it = words.any(|word| names.iter().any(|name| name == Path::new(word)));
    (formats && on_it).then(|| program.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mkfs_of_the_device_is_told_from_other_programs_and_other_devices() {
        let names = [PathBuf::from("/dev/sdc"), PathBuf::from("/root/dev/sdc")];
        let found = |line: &str| program_formatting(line.as_bytes(), &names);
        assert_eq!(found("/usr/sbin/mkfs.xfs\0-f\0/dev/sdc\0").as_deref(), Some("mkfs.xfs"));
        assert_eq!(found("mke2fs\0/root/dev/sdc\0").as_deref(), Some("mke2fs"));
        assert_eq!(found("/usr/sbin/mkfs.xfs\0-f\0/dev/sdc1\0"), None);
        assert_eq!(found("blkid\0/dev/sdc\0"), None);
        assert_eq!(found("/dev/sdc\0"), None);
        assert_eq!(found(""), None);
    }
}
