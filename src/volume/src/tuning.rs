//! The profile `basic`: what the Go driver would write into the queue of a disk, computed from what the disk and its VM
//! can carry.
//!
//! The idea is theirs, and so are its constants: requests just large enough that a sequential stream reaches the
//! disk's bandwidth with three quarters of its operations, and a queue just deep enough for that stream and for random
//! operations beside it. The disk's performance is that of its tier (source: Microsoft docs, disks-types, with bursts).

use lazuli_model::{Gib, SkuName, size::Throughput};

use super::DeviceSetting;

/// Of a disk's operations, the part kept free of the sequential stream.
const HEAD_ROOM: f64 = 0.25;
/// The largest request the storage driver makes, in KiB.
const LARGEST_REQUEST_KIB: f64 = 512.0;

/// The performance of a tier: the largest disk in it, what it always does and what it does in bursts.
struct Tier {
    gib: u32,
    base: Throughput,
    burst: Throughput,
}

const fn tier(gib: u32, base: (u32, u32), burst: (u32, u32)) -> Tier {
    Tier { gib, base: Throughput { iops: base.0, mbps: base.1 }, burst: Throughput { iops: burst.0, mbps: burst.1 } }
}

/// P4 and smaller, P6 to P80.
const PREMIUM: [Tier; 10] = [
    tier(32, (120, 25), (3_500, 170)),
    tier(64, (240, 50), (3_500, 170)),
    tier(128, (500, 100), (3_500, 170)),
    tier(256, (1_100, 125), (3_500, 170)),
    tier(512, (2_300, 150), (3_500, 170)),
    tier(1_024, (5_000, 200), (5_000, 200)),
    tier(4_096, (7_500, 250), (7_500, 250)),
    tier(8_192, (16_000, 500), (16_000, 500)),
    tier(16_384, (18_000, 750), (18_000, 750)),
    tier(32_767, (20_000, 900), (20_000, 900)),
];

/// E20 and smaller, E30 to E80.
const STANDARD_SSD: [Tier; 6] = [
    tier(512, (500, 100), (600, 150)),
    tier(1_024, (500, 100), (1_000, 250)),
    tier(4_096, (500, 100), (500, 100)),
    tier(8_192, (2_000, 400), (2_000, 400)),
    tier(16_384, (4_000, 600), (4_000, 600)),
    tier(32_767, (6_000, 750), (6_000, 750)),
];

/// How long one operation takes, in seconds, by the size of the disk: small and random, large and sequential.
fn latencies(gib: u32) -> (f64, f64) {
    match gib {
        0..=4_096 => (0.0022, 0.0033),
        4_097..=8_192 => (0.0028, 0.0041),
        8_193..=16_384 => (0.0034, 0.0046),
        _ => (0.004, 0.0052),
    }
}

/// The settings of the profile `basic`, in the order in which they are to be written: a scheduler brings its own
/// depth. `None` for disks that the profile does not know: hard disks, and those whose performance is bought apart.
///
/// `asked` is the performance the volume was provisioned with, where it was; `vm` what the VM's disks can carry,
/// where that is published.
pub fn basic_profile(
    sku: SkuName,
    size: Gib,
    asked: (Option<u64>, Option<u64>),
    vm: Option<Throughput>,
) -> Option<Vec<DeviceSetting>> {
    let tiers: &[Tier] = match sku {
        SkuName::PremiumLrs | SkuName::PremiumZrs => &PREMIUM,
        SkuName::StandardSsdLrs | SkuName::StandardSsdZrs => &STANDARD_SSD,
        SkuName::StandardLrs | SkuName::PremiumV2Lrs | SkuName::UltraSsdLrs => return None,
    };
    let (iops, mbps) = asked;
    let fits = |tier: &&Tier| {
        tier.gib >= size.get()
            && u64::from(tier.base.iops) >= iops.unwrap_or(0)
            && u64::from(tier.base.mbps) >= mbps.unwrap_or(0)
    };
    let tier = tiers.iter().find(fits)?;
    let least = |of_disk: u32, of_vm: Option<u32>| f64::from(of_vm.map_or(of_disk, |of_vm| of_vm.min(of_disk)));
    let iops = least(tier.burst.iops, vm.map(|vm| vm.iops));
    let kilobytes = least(tier.burst.mbps, vm.map(|vm| vm.mbps)) * 1000.0;
    let (random, sequential) = latencies(tier.gib);

    let request = (kilobytes / (iops * (1.0 - HEAD_ROOM))).min(LARGEST_REQUEST_KIB).ceil();
    let sequential_depth = (kilobytes * sequential / request).ceil();
    let random_depth = (iops * random).ceil();
    let depth = (random_depth * HEAD_ROOM + sequential_depth).max(random_depth).ceil();
    let setting = |path: &str, value: String| DeviceSetting { path: path.to_owned(), value };
    Some(vec![
        setting("queue/scheduler", "mq-deadline".to_owned()),
        setting("device/queue_depth", depth.to_string()),
        setting("queue/nr_requests", depth.to_string()),
        setting("queue/max_sectors_kb", request.to_string()),
        setting("queue/read_ahead_kb", "8".to_owned()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(sku: SkuName, gib: u32, vm: Option<Throughput>) -> Vec<String> {
        let settings = basic_profile(sku, Gib::new(gib), (None, None), vm).unwrap();
        settings.into_iter().map(|setting| setting.value).collect()
    }

    #[test]
    fn a_p30_on_a_vm_that_is_faster_gets_its_own_depth() {
        // 200 MB/s in 3,750 requests of 54 KB, 13 of them at once, and 11 random ones beside.
        let fast = Throughput { iops: 51_200, mbps: 768 };
        for vm in [None, Some(fast)] {
            assert_eq!(values(SkuName::PremiumLrs, 1_024, vm), ["mq-deadline", "16", "16", "54", "8"]);
        }
    }

    #[test]
    fn a_vm_that_is_slower_than_the_disk_sets_the_pace() {
        let slow = Throughput { iops: 3_200, mbps: 48 };
        // 48 MB/s in 2,400 requests of 20 KB: 8 at once, and 8 random ones, a quarter of them beside.
        assert_eq!(values(SkuName::PremiumZrs, 20_000, Some(slow)), ["mq-deadline", "17", "17", "20", "8"]);
        let slower = Throughput { iops: 3_200, mbps: 48 };
        assert_eq!(values(SkuName::PremiumLrs, 1_024, Some(slower)), ["mq-deadline", "10", "10", "20", "8"]);
    }

    #[test]
    fn more_performance_than_the_size_brings_is_a_larger_tier() {
        let settings = |asked| basic_profile(SkuName::PremiumLrs, Gib::new(4), asked, None);
        assert_eq!(
            settings((Some(5_000), None)),
            basic_profile(SkuName::PremiumLrs, Gib::new(1_000), (None, None), None)
        );
        assert_eq!(settings((Some(1_000_000), None)), None);
    }

    #[test]
    fn disks_without_tiers_and_hard_disks_are_left_as_they_are() {
        for sku in [SkuName::StandardLrs, SkuName::PremiumV2Lrs, SkuName::UltraSsdLrs] {
            assert_eq!(basic_profile(sku, Gib::new(64), (None, None), None), None);
        }
    }
}
