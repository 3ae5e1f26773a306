//! The virtual machine sizes: how many data disks one takes, and how fast they may be.
//!
//! The table `sizes.txt` is data of this crate, made by `scripts/tables` from public lists: the disk count is the
//! capability `MaxDataDiskCount` of the resource SKUs API; throughput and vCPUs come from the same API where a
//! public table carries them. Which sizes there are and how Azure spells them is kept by hand. There is no formula behind the disk count. Nothing here decides whether
//! a size is sold in a region; the emulator sells all of them everywhere.

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Data disks of a size that the table does not know (the Go drivers use the same number).
pub const UNKNOWN_SIZE_DATA_DISKS: u8 = 16;

/// The zones in which every size is offered.
pub const ZONES: [&str; 3] = ["1", "2", "3"];

/// One virtual machine size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmSize {
    /// The name as Azure spells it, such as `Standard_D4s_v3`.
    pub name: &'static str,
    /// Capability `MaxDataDiskCount`.
    pub max_data_disks: u8,
    /// Usable vCPUs; for a constrained size (`Standard_E32-8s_v3`) the smaller number.
    pub vcpus: u16,
    /// Uncached IOPS over all data disks, where published.
    pub uncached_iops: Option<u32>,
    /// Uncached throughput over all data disks in MB/s, where published.
    pub uncached_mbps: Option<u32>,
    /// Whether Premium disks may be attached (capability `PremiumIO`).
    pub premium: bool,
    /// Whether Ultra disks may be attached where the machine is zonal (capability
    /// `UltraSSDAvailable`). Unverified per size: derived from the documented list of series.
    pub ultra: bool,
}

impl VmSize {
    /// The zones that offer this size.
    #[must_use]
    pub fn zones(&self) -> &'static [&'static str] {
        &ZONES
    }

    /// The family as the quota API spells it is not modelled; this is the leading letters of the name,
    /// such as `D` or `NC`.
    #[must_use]
    pub fn family(&self) -> &'static str {
        Name::of(self.name).family
    }
}

static TABLE: LazyLock<BTreeMap<String, VmSize>> = LazyLock::new(|| {
    include_str!("sizes.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(parse_line)
        .map(|size| (size.name.to_ascii_lowercase(), size))
        .collect()
});

/// The size of a machine: as its own document has it, or, of an instance of a scale set, its SKU.
#[must_use]
pub(crate) fn of_machine(doc: &serde_json::Value) -> &str {
    doc["properties"]["hardwareProfile"]["vmSize"].as_str().or(doc["sku"]["name"].as_str()).unwrap_or("")
}

/// The first version of sizes whose disks come by NVMe unless the machine says otherwise (documented: the pages of the sizes
/// of version 6).
pub(crate) const FIRST_NVME_VERSION: u8 = 6;

/// Whether machines of a size show their disks by NVMe by default.
pub(crate) fn is_nvme(size: &str) -> bool {
    let versions = size.split('_').filter_map(|part| part.strip_prefix(['v', 'V'])?.parse::<u8>().ok());
    versions.max().is_some_and(|version| version >= FIRST_NVME_VERSION)
}

/// The size of that name; letter case does not matter.
#[must_use]
pub fn find(name: &str) -> Option<&'static VmSize> {
    TABLE.get(&name.to_ascii_lowercase())
}

/// All sizes in the order of their lower-case names.
pub fn all() -> impl Iterator<Item = &'static VmSize> {
    TABLE.values()
}

/// `Standard_D4s_v3 8 4 6400 91`: name, data disks, vCPUs, IOPS, MB/s.
fn parse_line(line: &'static str) -> Option<VmSize> {
    let mut fields = line.split(' ');
    let name = fields.next()?;
    let max_data_disks = fields.next()?.parse().ok()?;
    let vcpus = fields.next()?.parse().ok()?;
    let uncached_iops = fields.next()?.parse().ok();
    let uncached_mbps = fields.next()?.parse().ok();
    let parts = Name::of(name);
    Some(VmSize {
        name,
        max_data_disks,
        vcpus,
        uncached_iops,
        uncached_mbps,
        premium: parts.premium(),
        ultra: parts.ultra(),
    })
}

/// The parts of a size name (documented: naming conventions of virtual machine sizes).
struct Name {
    family: &'static str,
    features: &'static str,
    version: u8,
    basic: bool,
}

impl Name {
    fn of(name: &'static str) -> Self {
        let (tier, rest) = name.split_once('_').unwrap_or(("", name));
        let (stem, suffixes) = rest.split_once('_').unwrap_or((rest, ""));
        let family_end = stem.find(|c: char| c.is_ascii_digit()).unwrap_or(stem.len());
        let (family, numbers) = stem.split_at(family_end);
        let features = numbers.trim_start_matches(|c: char| c.is_ascii_digit() || c == '-');
        let version = suffixes.split('_').find_map(|part| part.strip_prefix(['v', 'V'])?.parse().ok()).unwrap_or(1);
        Self { family, features, version, basic: tier.eq_ignore_ascii_case("Basic") }
    }

    /// An `s` among the letters after the number, or one of the first generation's own families.
    fn premium(&self) -> bool {
        !self.basic && (self.features.contains('s') || matches!(self.family, "DS" | "GS" | "LS"))
    }

    /// Documented: Ultra disks need a series that takes Premium disks, and not the burstable, the
    /// first DS/GS/F generations.
    fn ultra(&self) -> bool {
        self.premium()
            && match self.family {
                "B" | "DS" | "GS" | "LS" | "DC" | "EC" => false,
                "F" | "L" => self.version >= 2,
                _ => true,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_read() {
        let lines = include_str!("sizes.txt").lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(all().count(), lines);
        assert!(lines > 2_000);
    }

    #[test]
    fn known_sizes_have_the_published_disk_counts() {
        for (name, disks) in [
            ("Standard_B1s", 2),
            ("Standard_D2s_v3", 4),
            ("Standard_D4s_v3", 8),
            ("Standard_D8s_v3", 16),
            ("Standard_DS2_v2", 8),
            ("Standard_D2s_v6", 8),
            ("Standard_E64s_v3", 32),
            ("Standard_M128s", 64),
        ] {
            assert_eq!(find(name).unwrap().max_data_disks, disks, "{name}");
        }
    }

    #[test]
    fn a_size_is_found_in_any_letter_case_and_keeps_its_spelling() {
        assert_eq!(find("STANDARD_d8S_V3").unwrap().name, "Standard_D8s_v3");
        assert!(find("Standard_Nonsense").is_none());
    }

    #[test]
    fn only_public_names_are_in_the_table() {
        for size in all() {
            assert!(size.name.starts_with("Standard_") || size.name.starts_with("Basic_"), "{}", size.name);
            assert!((1..=64).contains(&size.max_data_disks), "{}", size.name);
        }
    }

    #[test]
    fn the_letter_s_after_the_number_means_premium() {
        for (name, premium) in [
            ("Standard_D4s_v3", true),
            ("Standard_D4_v3", false),
            ("Standard_DS2_v2", true),
            ("Standard_D2_v2", false),
            ("Standard_GS5", true),
            ("Standard_E32-8s_v3", true),
            ("Standard_E4ads_v5", true),
            ("Standard_E4ad_v5", false),
            ("Standard_B2ms", true),
            ("Standard_A2_v2", false),
            ("Basic_A3", false),
            ("Standard_NC24ads_A100_v4", true),
        ] {
            if let Some(size) = find(name) {
                assert_eq!(size.premium, premium, "{name}");
            } else {
                assert_eq!(name, "Standard_E4ad_v5", "{name} is missing");
            }
        }
    }

    #[test]
    fn ultra_needs_premium_and_a_newer_series() {
        assert!(find("Standard_D8s_v3").unwrap().ultra);
        assert!(find("Standard_M128s").unwrap().ultra);
        assert!(!find("Standard_B2ms").unwrap().ultra);
        assert!(!find("Standard_DS2_v2").unwrap().ultra);
        assert!(!find("Standard_D8_v3").unwrap().ultra);
    }

    #[test]
    fn a_constrained_size_counts_its_usable_vcpus() {
        let size = find("Standard_E32-8s_v3").unwrap();
        assert_eq!(size.vcpus, 8);
        assert_eq!(size.family(), "E");
    }
}
