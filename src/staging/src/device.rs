//! How Linux names a block device.

use std::{fmt, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::nvme::{NvmeDisk, Offset};

/// The kernel's number of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceNumber {
    /// Driver part.
    pub major: u32,
    /// Unit part.
    pub minor: u32,
}

impl DeviceNumber {
    /// From `major:minor` as sysfs and mountinfo print it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.trim().split_once(':')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// A block device that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Kernel name: `sdc`.
    pub name: String,
    /// Its node.
    pub path: PathBuf,
    /// The kernel's number.
    pub number: DeviceNumber,
    /// Size in bytes.
    pub size_bytes: u64,
    /// The LUN it was found at; `None` when it was found by other means.
    pub lun: Option<u32>,
    /// `H:C:T:L` of the SCSI device.
    pub scsi: Option<String>,
    /// The namespace that it is, where it was found at a LUN of an NVMe machine.
    pub nvme: Option<NvmeDisk>,
    /// The kernel treats it as read-only.
    pub read_only: bool,
    /// What the kernel gives to no other disk, while it gives its name and its number to the next one: the boot and the
    /// disk's sequence number. `None` where the kernel reports neither.
    pub sequence: Option<String>,
}

impl Device {
    /// Whether two looks found the same device. The number alone is not enough: the kernel gives it to another disk when
    /// this one has left.
    #[must_use]
    pub fn is_same_as(&self, other: &Self) -> bool {
        let is_another = |(one, two): (&String, &String)| one != two;
        self.number == other.number && !self.sequence.as_ref().zip(other.sequence.as_ref()).is_some_and(is_another)
    }

    /// Whether it is this disk that is at its LUN, as far as the machine alone can tell: not where the LUN follows from an
    /// offset that an operator gave.
    #[must_use]
    pub fn is_lun_certain(&self) -> bool {
        self.nvme.as_ref().is_none_or(|disk| disk.offset == Offset::Proved)
    }

    /// The kernel name of a partition of this disk.
    #[must_use]
    pub fn part_name(&self, partition: u32) -> String {
        format!("{}{}{partition}", self.name, joint(&self.name))
    }

    /// Whether a kernel name is that of a partition of this disk: `sda1` is one of `sda`, and `sdaa` is another disk.
    #[must_use]
    pub fn has_part(&self, name: &str) -> bool {
        let rest = name.strip_prefix(&self.name).and_then(|rest| rest.strip_prefix(joint(&self.name)));
        rest.is_some_and(|number| !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()))
    }
}

/// What stands between the name of a disk and the number of its partition: sdc1, but nvme0n1p1 and loop0p1 (source:
/// the kernel's naming of partitions).
fn joint(disk: &str) -> &'static str {
    if disk.ends_with(|last: char| last.is_ascii_digit()) { "p" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::device;

    #[test]
    fn a_disk_whose_name_begins_with_anothers_is_no_partition_of_it() {
        for (name, disk, is) in [
            ("sda1", "sda", true),
            ("sda16", "sda", true),
            ("sdaa", "sda", false),
            ("sdaa1", "sda", false),
            ("sda", "sda", false),
            ("nvme0n1p2", "nvme0n1", true),
            ("nvme0n12", "nvme0n1", false),
            ("nvme0n1p", "nvme0n1", false),
            ("xsda1", "sda", false),
        ] {
            let disk = Device { name: disk.to_owned(), ..device(1) };
            assert_eq!(disk.has_part(name), is, "{name} of {}", disk.name);
        }
        for (disk, part) in [("sdc", "sdc2"), ("nvme0n1", "nvme0n1p2"), ("loop0", "loop0p2")] {
            let disk = Device { name: disk.to_owned(), ..device(1) };
            assert_eq!(disk.part_name(2), part);
            assert!(disk.has_part(part));
        }
    }

    #[test]
    fn a_number_that_the_kernel_has_given_to_another_disk_is_not_the_same_device() {
        let of = |sequence: Option<&str>| Device { sequence: sequence.map(str::to_owned), ..device(1) };
        assert!(of(Some("b/diskseq/1")).is_same_as(&of(Some("b/diskseq/1"))));
        assert!(!of(Some("b/diskseq/1")).is_same_as(&of(Some("b/diskseq/2"))));
        assert!(of(None).is_same_as(&of(Some("b/diskseq/2"))), "the kernel does not say");
        assert!(!of(None).is_same_as(&device(2)));
    }
}
