//! The kernel's mount table, read consistently.
//!
//! Parses `/proc/PID/mountinfo` (source: kernel documentation, proc file system, section 3.5) and
//! answers who is mounted where. Changes nothing.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

pub use lazuli_staging::Mount;

use super::device_number::DeviceNumber;

/// Reads a table. It is read until two readings agree (three times at most): the kernel hands it out
/// in pieces, and an entry can be missed while others come and go (kubernetes#74890).
///
/// # Errors
/// What opening or reading the file says.
pub fn read(path: &Path) -> io::Result<Vec<Mount>> {
    let mut text = fs::read(path)?;
    for _ in 0..3 {
        let again = fs::read(path)?;
        if again == text {
            break;
        }
        text = again;
    }
    Ok(parse(&text))
}

/// Parses a table. A line that is not understood is skipped with a warning: an unknown future field
/// must not hide all mounts.
#[must_use]
pub fn parse(text: &[u8]) -> Vec<Mount> {
    text.split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .filter_map(|line| {
            let mount = parse_line(line);
            if mount.is_none() {
                tracing::warn!(line = %String::from_utf8_lossy(line), "unreadable mountinfo line");
            }
            mount
        })
        .collect()
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let mut text = || fields.next().map(|f| String::from_utf8_lossy(f).into_owned());
    let id = text()?.parse().ok()?;
    let parent = text()?.parse().ok()?;
    let device = DeviceNumber::parse(&text()?)?;
    let root = unescape(fields.next()?).into();
    let target = unescape(fields.next()?).into();
    let options = fields.next()?;
    // Optional fields (shared:N, master:N…) end at a lone hyphen.
    fields.find(|field| *field == b"-")?;
    let fs_type = String::from_utf8_lossy(&unescape(fields.next()?).into_vec()).into_owned();
    let source = unescape(fields.next()?).into();
    let super_options = fields.next().unwrap_or_default();
    Some(Mount {
        id,
        parent,
        device,
        root,
        target,
        options: list(options),
        fs_type,
        source,
        super_options: list(super_options),
    })
}

fn list(field: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(field);
    let options = text.split(',').filter(|option| !option.is_empty());
    options.map(str::to_owned).collect()
}

/// The kernel writes space, tab, newline, backslash and hash as three octal digits.
fn unescape(field: &[u8]) -> OsString {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let octal = (first == b'\\').then(|| after.get(..3)).flatten();
        let value = octal
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match value {
            Some(byte) => {
                plain.push(byte);
                rest = &after[3..];
            }
            None => {
                plain.push(first);
                rest = after;
            }
        }
    }
    OsString::from_vec(plain)
}

/// The mounts at `target`, bottom first; the last one is what a program sees.
#[must_use]
pub fn at<'a>(table: &'a [Mount], target: &Path) -> Vec<&'a Mount> {
    let same = |mount: &&Mount| mount.target.as_os_str() == target.as_os_str();
    table.iter().filter(same).collect()
}

/// The mounts of a device, wherever they are.
#[must_use]
pub fn of_device(table: &[Mount], device: DeviceNumber) -> Vec<&Mount> {
    table.iter().filter(|m| m.device == device).collect()
}

/// The mounts whose source is this device node. Finds btrfs too, whose mounts carry an anonymous
/// device number.
#[must_use]
pub fn of_source<'a>(table: &'a [Mount], nodes: &[&OsStr]) -> Vec<&'a Mount> {
    let same = |mount: &&Mount| {
        let source = mount.source.as_os_str().as_bytes();
        nodes.iter().any(|node| node.as_bytes() == source)
    };
    table.iter().filter(same).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
36 22 8:32 / /var/lib/kubelet/plugins/g\\040m rw,noatime shared:9 master:2 - ext4 /dev/sdc rw
37 22 8:32 /sub\\134dir /pods/one ro,nosuid - ext4 /dev/sdc rw
38 37 0:44 / /pods/one rw - btrfs /dev/sdd rw,subvolid=5
39 22 0:6 /sdc /pods/block rw - devtmpfs devtmpfs rw
what is this
";

    #[test]
    fn escapes_optional_fields_and_bad_lines_are_read() {
        let table = parse(TABLE);
        assert_eq!(table.len(), 5);
        assert_eq!(table[1].target, Path::new("/var/lib/kubelet/plugins/g m"));
        assert_eq!(table[2].root, Path::new("/sub\\dir"));
        assert_eq!(table[1].options, ["rw", "noatime"]);
        assert_eq!(table[0].super_options, ["rw", "discard"]);
        assert_eq!(table[4].fs_type, "devtmpfs");
    }

    #[test]
    fn stacked_mounts_are_listed_bottom_first() {
        let table = parse(TABLE);
        let stack: Vec<u64> = at(&table, Path::new("/pods/one")).iter().map(|m| m.id).collect();
        assert_eq!(stack, [37, 38]);
    }

    #[test]
    fn a_mount_is_read_only_by_its_own_or_the_file_systems_flag() {
        let table = parse(TABLE);
        assert!(table[2].read_only());
        assert!(!table[1].read_only());
        let frozen = parse(b"1 0 8:1 / /x rw - ext4 /dev/sda1 ro\n");
        assert!(frozen[0].read_only());
    }

    #[test]
    fn devices_are_found_by_number_and_by_source() {
        let table = parse(TABLE);
        let number = DeviceNumber { major: 8, minor: 32 };
        assert_eq!(of_device(&table, number).len(), 2);
        assert_eq!(of_source(&table, &[OsStr::new("/dev/sdd")]).len(), 1);
    }

    #[test]
    fn incomplete_escapes_stay_as_they_are() {
        assert_eq!(unescape(b"a\\04"), OsStr::new("a\\04"));
        assert_eq!(unescape(b"a\\999b"), OsStr::new("a\\999b"));
        assert_eq!(unescape(b"\\011\\012\\043"), OsStr::new("\t\n#"));
    }

    #[test]
    fn this_processs_own_table_is_readable() {
        let table = read(Path::new("/proc/self/mountinfo")).expect("Linux has it");
        assert!(!at(&table, Path::new("/")).is_empty());
    }
}
