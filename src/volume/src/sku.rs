//! Sizes, performance and sharing of each storage account type.
//!
//! Source of the numbers: Microsoft's pages "disks-types" and "disks-shared" and the resource SKUs API. Azure raises
//! them now and then; each is a constant here.

use std::ops::RangeInclusive;

use lazuli_model::{Gib, SkuName};

/// The smallest disk with the performance-plus option (source: disks-enable-performance).
pub(super) const PERFORMANCE_PLUS_MINIMUM: Gib = Gib::new(513);

/// Hosts do not cache disks of this size and more (source: disks-types).
pub(super) const CACHING_ENDS_AT: Gib = Gib::new(4096);

/// On-demand bursting needs a disk larger than this (source: disk-bursting).
pub(super) const BURSTING_ABOVE: Gib = Gib::new(512);

/// The sizes a disk of this type can have, in GiB.
pub fn size_range(sku: SkuName) -> RangeInclusive<Gib> {
    let (least, most) = match sku {
        SkuName::UltraSsdLrs => (4, 65536),
        SkuName::PremiumV2Lrs => (1, 65536),
        SkuName::StandardLrs
        | SkuName::StandardSsdLrs
        | SkuName::StandardSsdZrs
        | SkuName::PremiumLrs
        | SkuName::PremiumZrs => (1, 32767),
    };
    Gib::new(least)..=Gib::new(most)
}

/// How many VMs a disk of this type and size can be attached to at a time.
pub fn max_shares(sku: SkuName, size: Gib) -> u32 {
    match sku {
        SkuName::StandardLrs => 1,
        SkuName::UltraSsdLrs | SkuName::PremiumV2Lrs => 15,
        SkuName::StandardSsdLrs | SkuName::StandardSsdZrs | SkuName::PremiumLrs | SkuName::PremiumZrs => {
            // The tiers end at these sizes: 20 (512 GiB) and 50 (4 TiB).
            match size.get() {
                0..=512 => 3,
                513..=4096 => 5,
                _ => 10,
            }
        }
    }
}

/// Whether operations and throughput are set per disk, and not given by the size.
pub(super) fn has_own_performance(sku: SkuName) -> bool {
    matches!(sku, SkuName::UltraSsdLrs | SkuName::PremiumV2Lrs)
}

/// Whether the disk is in all zones of its region.
pub fn is_zone_redundant(sku: SkuName) -> bool {
    matches!(sku, SkuName::StandardSsdZrs | SkuName::PremiumZrs)
}

/// Whether it is the first generation of Premium SSD: the only one with bursting on demand and the write accelerator.
pub(super) fn is_premium(sku: SkuName) -> bool {
    matches!(sku, SkuName::PremiumLrs | SkuName::PremiumZrs)
}

/// The input/output operations per second that can be set on a disk with performance of its own.
///
/// Ultra: at least 1 per GiB and 100, at most 1000 per GiB and 400000. PremiumV2: 500 per GiB, never less than 3000
/// as a maximum, up to 80000; whether Azure takes less than the 3000 that are free is unverified and left to it.
pub(super) fn iops_range(sku: SkuName, size: Gib) -> Option<RangeInclusive<u64>> {
    let gib = u64::from(size.get());
    match sku {
        SkuName::UltraSsdLrs => Some(gib.max(100)..=(gib * 1000).min(400_000)),
        SkuName::PremiumV2Lrs => Some(1..=(gib * 500).clamp(3_000, 80_000)),
        _ => None,
    }
}

/// The throughput in MB per second that can be set on a disk with performance of its own: a quarter of its operations
/// per second, up to 10000 (Ultra) or 2000 (PremiumV2).
pub(super) fn mbps_range(sku: SkuName, iops: u64) -> Option<RangeInclusive<u64>> {
    match sku {
        SkuName::UltraSsdLrs => Some(1..=(iops / 4).clamp(1, 10_000)),
        // 125 MB/s are free whatever the operations are.
        SkuName::PremiumV2Lrs => Some(1..=(iops / 4).clamp(125, 2_000)),
        _ => None,
    }
}

/// The operations per second a disk has when none are asked for, where the driver and not Azure chooses.
///
/// The Go driver's formula for Ultra, kept so that a class makes the same disk after a change of driver; when only the
/// throughput is given it is 500 there, and here as many as a disk above 500 GiB must have.
pub(super) fn default_iops(sku: SkuName, size: Gib, throughput_is_given: bool) -> Option<u64> {
    match sku {
        SkuName::UltraSsdLrs if throughput_is_given => Some(500.max(u64::from(size.get()))),
        SkuName::UltraSsdLrs => Some(u64::from(size.get()).clamp(500, 160_000)),
        _ => None,
    }
}

/// The throughput a disk has when none is asked for, where the driver and not Azure chooses: the Go driver's formula
/// for Ultra, which rounds up where the rounded-down value is above its minimum of 100; never above what the operations
/// allow.
pub(super) fn default_mbps(sku: SkuName, iops: u64, operations_are_given: bool) -> Option<u64> {
    let most = *mbps_range(sku, iops)?.end();
    match sku {
        SkuName::UltraSsdLrs if operations_are_given => Some(100.min(most)),
        SkuName::UltraSsdLrs if iops / 256 <= 100 => Some(100.min(most)),
        SkuName::UltraSsdLrs => Some(iops.div_ceil(256).min(4_000).min(most)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_its_sizes() {
        for sku in SkuName::ALL {
            let range = size_range(*sku);
            let expected = match sku {
                SkuName::UltraSsdLrs => 4..=65536,
                SkuName::PremiumV2Lrs => 1..=65536,
                _ => 1..=32767,
            };
            assert_eq!(range.start().get()..=range.end().get(), expected, "{sku}");
        }
    }

    #[test]
    fn shares_follow_the_tier() {
        for (gib, shares) in [(1, 3), (512, 3), (513, 5), (4096, 5), (4097, 10), (32767, 10)] {
            for sku in [SkuName::PremiumLrs, SkuName::PremiumZrs, SkuName::StandardSsdLrs, SkuName::StandardSsdZrs] {
                assert_eq!(max_shares(sku, Gib::new(gib)), shares, "{sku} {gib}");
            }
        }
        assert_eq!(max_shares(SkuName::StandardLrs, Gib::new(1024)), 1);
        assert_eq!(max_shares(SkuName::UltraSsdLrs, Gib::new(4)), 15);
        assert_eq!(max_shares(SkuName::PremiumV2Lrs, Gib::new(1)), 15);
    }

    #[test]
    fn ultra_defaults_are_those_of_the_go_driver() {
        for (gib, iops, mbps) in
            [(4, 500, 100), (1024, 1024, 100), (25_855, 25_855, 100), (25_857, 25_857, 102), (65536, 65536, 256)]
        {
            assert_eq!(default_iops(SkuName::UltraSsdLrs, Gib::new(gib), false), Some(iops));
            assert_eq!(default_mbps(SkuName::UltraSsdLrs, iops, false), Some(mbps));
        }
        assert_eq!(default_iops(SkuName::PremiumV2Lrs, Gib::new(100), false), None);
        assert_eq!(default_mbps(SkuName::PremiumV2Lrs, 3000, false), None);
    }

    #[test]
    fn a_default_is_never_what_azure_refuses() {
        for gib in [4, 5, 100, 499, 500, 501, 4096, 65536] {
            let size = Gib::new(gib);
            let iops = default_iops(SkuName::UltraSsdLrs, size, false).unwrap();
            assert!(iops_range(SkuName::UltraSsdLrs, size).unwrap().contains(&iops), "{gib}");
            let range = mbps_range(SkuName::UltraSsdLrs, iops).unwrap();
            assert!(range.contains(&default_mbps(SkuName::UltraSsdLrs, iops, false).unwrap()), "{gib}");
            let least = *iops_range(SkuName::UltraSsdLrs, size).unwrap().start();
            let range = mbps_range(SkuName::UltraSsdLrs, least).unwrap();
            assert!(range.contains(&default_mbps(SkuName::UltraSsdLrs, least, true).unwrap()), "{gib}");
        }
    }
}
