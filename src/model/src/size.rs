//! How many data disks a VM size takes, and so how many volumes a node takes; and how fast those can be.
//!
//! Owns the shipped table of VM sizes. There is no formula: half, once, twice and four times the number of processors
//! all occur (source: the capability `MaxDataDiskCount` of the resource SKUs API, as the Go driver's table of 3939
//! sizes has it). A node must answer without a network and holds no credentials, therefore the table; what the
//! resource SKUs API says at run time of sizes that are newer comes on top of it as [`SizeLimits`].
//!
//! The table is `size.txt`, made by `scripts/tables`. It begins with its sources, marked with `#`, which sorts before
//! every name. Then it has a line per size, `<name> <count>` and, where they are published, ` <IOPS> <MB/s>`, in lower
//! case, in the order of bytes; a leading `standard` is left out, so that `Standard_D2s_v3` is `_d2s_v3`. A lookup is a
//! binary search in that text, and nothing is put on the heap but the name: a node agent never holds the table in
//! memory that is its own.

use std::collections::BTreeMap;

/// How many data disks a VM of unknown size takes: what the Go driver assumes.
pub const DEFAULT_MAX_DATA_DISKS: u8 = 16;

const TABLE: &str = include_str!("size.txt");

/// What the disks of a VM can carry together, without the host's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Throughput {
    /// Operations per second.
    pub iops: u32,
    /// Megabytes per second.
    pub mbps: u32,
}

/// How many data disks a VM of this size takes; the case of letters is ignored. `None` for a size that is newer than
/// the table.
pub fn max_data_disks(vm_size: &str) -> Option<u8> {
    line(vm_size)?.split(' ').nth(1)?.parse().ok()
}

/// What the disks of a VM of this size can carry. `None` for a size that is not in the table, or stands there without
/// (source: the capabilities `UncachedDiskIOPS` and `UncachedDiskBytesPerSecond`, which a third of the sizes have).
pub fn disk_throughput(vm_size: &str) -> Option<Throughput> {
    let mut columns = line(vm_size)?.split(' ').skip(2).map(str::parse);
    Some(Throughput { iops: columns.next()?.ok()?, mbps: columns.next()?.ok()? })
}

/// The line of a size.
fn line(vm_size: &str) -> Option<&'static str> {
    let folded = vm_size.trim().to_ascii_lowercase();
    let wanted = match folded.strip_prefix("standard") {
        Some(rest) if rest.starts_with('_') => rest,
        _ => folded.as_str(),
    };
    let mut rest = TABLE;
    while !rest.is_empty() {
        let start = rest[..rest.len() / 2].rfind('\n').map_or(0, |newline| newline + 1);
        let end = rest[start..].find('\n').map_or(rest.len(), |newline| start + newline + 1);
        let line = rest[start..end].trim_end();
        let (name, _) = line.split_once(' ')?;
        rest = match wanted.cmp(name) {
            std::cmp::Ordering::Equal => return Some(line),
            std::cmp::Ordering::Less => &rest[..start],
            std::cmp::Ordering::Greater => &rest[end..],
        };
    }
    None
}

/// What the resource SKUs API says of sizes that the shipped table does not have, or has otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SizeLimits(BTreeMap<String, u8>);

impl SizeLimits {
    /// Of these sizes and the data disks they take, those that the table does not tell.
    pub fn new(published: impl IntoIterator<Item = (String, u8)>) -> Self {
        let news = published.into_iter().filter(|(name, count)| max_data_disks(name) != Some(*count));
        Self(news.map(|(name, count)| (name.to_ascii_lowercase(), count)).collect())
    }

    /// How many data disks a VM of this size takes: by what was published, else by the table.
    pub fn max_data_disks(&self, vm_size: &str) -> Option<u8> {
        self.0.get(&vm_size.trim().to_ascii_lowercase()).copied().or_else(|| max_data_disks(vm_size))
    }

    /// The sizes, in lower case, and the data disks they take.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u8)> {
        self.0.iter().map(|(name, count)| (name.as_str(), *count))
    }

    /// Whether the table tells everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// How many volumes a node takes: `max_volumes_per_node` of NodeGetInfo.
///
/// The operator's override counts as it is, 0 included, which the CSI specification reads as "no limit". Otherwise it
/// is what the VM's size takes (`max_data_disks`; of an unknown size, [`DEFAULT_MAX_DATA_DISKS`]), less the slots
/// that are reserved and those that hold disks which are not Kubernetes'. That is never less than 1: 0 would say "no
/// limit" on a VM that is full, and the scheduler would send it everything.
pub fn attach_limit(max_data_disks: Option<u8>, override_limit: Option<u32>, reserved: u32, foreign: u32) -> u32 {
    override_limit.unwrap_or_else(|| {
        u32::from(max_data_disks.unwrap_or(DEFAULT_MAX_DATA_DISKS))
            .saturating_sub(reserved)
            .saturating_sub(foreign)
            .max(1)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entries() -> impl Iterator<Item = (&'static str, u8)> {
        TABLE.lines().filter(|line| !line.starts_with('#')).map(|line| {
            let columns: Vec<&str> = line.split(' ').collect();
            assert!(matches!(columns.len(), 2 | 4), "{line}");
            (columns[0], columns[1].parse().unwrap())
        })
    }

    /// The name as Azure's interfaces give it.
    fn full(name: &str) -> String {
        if name.starts_with('_') { format!("standard{name}") } else { name.to_owned() }
    }

    #[test]
    fn the_table_is_sorted_complete_and_without_repeats() {
        let names: Vec<&str> = entries().map(|(name, _)| name).collect();
        assert_eq!(names.len(), 3939);
        assert!(names.is_sorted_by(|a, b| a < b));
        assert!(names.iter().all(|name| name.is_ascii() && **name == name.to_ascii_lowercase() && *name > "#"));
        assert!(TABLE.ends_with('\n') && TABLE.lines().all(|line| line.contains(' ')));
        assert!(TABLE.lines().map(|line| line.split(' ').next()).is_sorted());
        assert!(entries().all(|(_, count)| count <= 64));
    }

    #[test]
    fn every_size_is_found_in_any_case() {
        for (name, count) in entries() {
            let name = full(name);
            assert_eq!(max_data_disks(&name), Some(count), "{name}");
            assert_eq!(max_data_disks(&name.to_ascii_uppercase()), Some(count), "{name}");
        }
    }

    #[test]
    fn the_sources_at_the_top_of_the_table_are_no_sizes() {
        assert_eq!((max_data_disks("#"), max_data_disks(""), disk_throughput("#")), (None, None, None));
    }

    #[test]
    fn known_sizes_take_what_azure_says() {
        for (size, disks) in [
            ("Standard_B1s", 2),
            ("Standard_D2s_v3", 4),
            ("Standard_D4s_v3", 8),
            ("Standard_D8s_v3", 16),
            ("Standard_DS2_v2", 8),
            ("Standard_D2s_v6", 8),
            ("Standard_E64s_v3", 32),
            ("Standard_M128s", 64),
            ("Basic_A0", 1),
        ] {
            assert_eq!(max_data_disks(size), Some(disks), "{size}");
        }
    }

    #[test]
    fn what_disks_can_carry_is_known_of_every_third_size() {
        let known = entries().filter(|(name, _)| disk_throughput(&full(name)).is_some()).count();
        assert_eq!(known, 1076);
        assert_eq!(disk_throughput("Standard_D8s_v3"), Some(Throughput { iops: 12_800, mbps: 183 }));
        assert_eq!(disk_throughput("Standard_D2s_v99"), None);
    }

    #[test]
    fn an_unknown_size_takes_sixteen() {
        for size in ["", "Standard", "standard_", "Standard_D2s_v99", "~", "_", " ", "Standard_D2s_v3 4", "é"] {
            assert_eq!(max_data_disks(size), None, "{size:?}");
            assert_eq!(attach_limit(max_data_disks(size), None, 0, 0), 16, "{size:?}");
        }
    }

    #[test]
    fn the_limit_leaves_out_reserved_slots_and_foreign_disks() {
        assert_eq!(attach_limit(max_data_disks("Standard_D8s_v3"), None, 0, 0), 16);
        assert_eq!(attach_limit(max_data_disks("Standard_D8s_v3"), None, 2, 3), 11);
    }

    #[test]
    fn a_full_vm_never_says_no_limit() {
        assert_eq!(attach_limit(max_data_disks("Standard_B1s"), None, 0, 2), 1);
        assert_eq!(attach_limit(max_data_disks("Standard_B1s"), None, u32::MAX, u32::MAX), 1);
    }

    #[test]
    fn an_override_counts_as_it_is() {
        assert_eq!(attach_limit(max_data_disks("Standard_B1s"), Some(40), 3, 3), 40);
        assert_eq!(attach_limit(max_data_disks("Standard_B1s"), Some(0), 3, 3), 0);
    }

    #[test]
    fn what_is_published_of_newer_sizes_comes_on_top_of_the_table() {
        let published = [("Standard_D2s_v99", 6), ("Standard_D8s_v3", 16), ("Standard_B1s", 3)];
        let limits = SizeLimits::new(published.map(|(name, count)| (name.to_owned(), count)));
        assert_eq!(limits.iter().collect::<Vec<_>>(), [("standard_b1s", 3), ("standard_d2s_v99", 6)]);
        for (size, count) in [("standard_D2S_v99", 6), ("Standard_D8s_v3", 16), ("Standard_B1s", 3)] {
            assert_eq!(limits.max_data_disks(size), Some(count), "{size}");
        }
        assert_eq!(limits.max_data_disks("Standard_D2s_v98"), None);
        assert!(SizeLimits::default().is_empty() && !limits.is_empty());
    }

    proptest! {
        #[test]
        fn any_text_is_looked_up_without_a_panic(text in "\\PC*") {
            let _ = max_data_disks(&text);
        }
    }
}
