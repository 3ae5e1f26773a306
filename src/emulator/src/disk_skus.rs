//! The disk SKUs: size ranges, performance by tier, shares, and what a SKU asks of zones.
//!
//! Values are documented (Microsoft docs, disks-types and disks-shared; the tier table agrees with the
//! resource SKUs API). Which HTTP status and code a violation gets is unverified where it is not
//! named below: the error catalogue that was found has no body for most of them. Nothing here holds
//! state; the disk handlers decide what to do with an error.

/// Largest size of a tiered disk in GiB.
const TIERED_MAX_GIB: u64 = 32_767;
/// Largest size of an Ultra or Premium v2 disk in GiB (64 TiB).
const UNTIERED_MAX_GIB: u64 = 65_536;

/// Premium v2: IOPS and MB/s that come with any disk.
const PREMIUM_V2_BASE: Performance = Performance::new(3_000, 125);
/// Premium v2: IOPS per GiB above the sixth, and the most a disk may have.
const PREMIUM_V2_IOPS_PER_GIB: u64 = 500;
const PREMIUM_V2_FREE_GIB: u64 = 6;
const PREMIUM_V2_MAX: Performance = Performance::new(80_000, 2_000);

/// Ultra: IOPS per GiB and bounds. Older pages say 300 per GiB and 160,000.
const ULTRA_IOPS_PER_GIB: u64 = 1_000;
const ULTRA_MIN: Performance = Performance::new(100, 1);
const ULTRA_MAX: Performance = Performance::new(400_000, 10_000);

/// MB/s that one IOPS may carry, as a divisor (0.25 MB/s).
const IOPS_PER_MBPS: u64 = 4;

/// What a disk can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Performance {
    /// Operations per second (`diskIOPSReadWrite`).
    pub iops: u64,
    /// Megabytes per second (`diskMBpsReadWrite`).
    pub mbps: u64,
}

impl Performance {
    const fn new(iops: u64, mbps: u64) -> Self {
        Self { iops, mbps }
    }
}

/// What a SKU asks of a disk's `zones`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zonal {
    /// In a zone or in none.
    Optional,
    /// In exactly one zone (where the region has zones).
    Required,
    /// Never in a zone: the SKU is zone-redundant.
    Forbidden,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    StandardHdd,
    StandardSsd,
    Premium,
    Ultra,
    PremiumV2,
}

/// A disk SKU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sku {
    /// The name as Azure spells it, such as `Premium_LRS`.
    pub name: &'static str,
    /// The member `sku.tier` of a disk.
    pub tier: &'static str,
    /// What it asks of zones.
    pub zonal: Zonal,
    kind: Kind,
}

/// The seven SKUs.
pub const SKUS: [Sku; 7] = [
    Sku::new("Standard_LRS", "Standard", Zonal::Optional, Kind::StandardHdd),
    Sku::new("StandardSSD_LRS", "Standard", Zonal::Optional, Kind::StandardSsd),
    Sku::new("StandardSSD_ZRS", "Standard", Zonal::Forbidden, Kind::StandardSsd),
    Sku::new("Premium_LRS", "Premium", Zonal::Optional, Kind::Premium),
    Sku::new("Premium_ZRS", "Premium", Zonal::Forbidden, Kind::Premium),
    Sku::new("UltraSSD_LRS", "Ultra", Zonal::Optional, Kind::Ultra),
    Sku::new("PremiumV2_LRS", "Premium", Zonal::Required, Kind::PremiumV2),
];

/// The SKU of that name; letter case does not matter.
#[must_use]
pub fn find(name: &str) -> Option<&'static Sku> {
    SKUS.iter().find(|sku| sku.name.eq_ignore_ascii_case(name))
}

/// A request that a SKU does not allow.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SkuError {
    /// The size is outside of the SKU's range.
    #[error(
        "The value '{given}' of parameter 'disk.diskSizeGB' is out of range. Value '{given}' must be between '{min}' and '{max}' inclusive."
    )]
    Size {
        /// GiB asked for.
        given: u64,
        /// Smallest GiB.
        min: u64,
        /// Largest GiB.
        max: u64,
    },
    /// IOPS or MB/s outside of what the size allows.
    #[error(
        "The value '{given}' of parameter '{parameter}' is out of range. Value '{given}' must be between '{min}' and '{max}' inclusive."
    )]
    Range {
        /// `disk.diskIOPSReadWrite` or `disk.diskMBpsReadWrite`.
        parameter: &'static str,
        /// What was asked for.
        given: u64,
        /// Smallest value.
        min: u64,
        /// Largest value.
        max: u64,
    },
    /// Performance was asked of a SKU whose performance follows its size.
    #[error("{parameter} cannot be set on a disk of SKU {sku}: only UltraSSD_LRS and PremiumV2_LRS disks have it.")]
    NotAdjustable {
        /// `disk.diskIOPSReadWrite` or `disk.diskMBpsReadWrite`.
        parameter: &'static str,
        /// The SKU.
        sku: &'static str,
    },
    /// A zone was given for a zone-redundant SKU. The wording is recorded.
    #[error("A disk with sku '{sku}' cannot be created in an availability zone.")]
    ZoneForbidden {
        /// The SKU.
        sku: &'static str,
    },
    /// No zone was given for a SKU that is zonal.
    #[error("A disk with sku '{sku}' must be created in an availability zone.")]
    ZoneRequired {
        /// The SKU.
        sku: &'static str,
    },
    /// More than one zone, which no disk takes.
    #[error("A disk can be created in one availability zone only, but {count} were given.")]
    SeveralZones {
        /// Zones given.
        count: usize,
    },
    /// `maxShares` above the tier's.
    #[error(
        "The value '{given}' of parameter 'disk.maxShares' is out of range. Value '{given}' must be between '1' and '{max}' inclusive."
    )]
    Shares {
        /// Shares asked for.
        given: u64,
        /// Most shares of this size.
        max: u64,
    },
}

impl SkuError {
    /// The ARM error code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::ZoneForbidden { .. } => "OperationNotAllowed",
            Self::ZoneRequired { .. } | Self::SeveralZones { .. } => "BadRequest",
            _ => "InvalidParameter",
        }
    }

    /// The HTTP status.
    #[must_use]
    pub const fn status(&self) -> u16 {
        match self {
            Self::ZoneForbidden { .. } => 409,
            _ => 400,
        }
    }

    /// The ARM error target.
    #[must_use]
    pub const fn target(&self) -> Option<&'static str> {
        match self {
            Self::Size { .. } => Some("disk.diskSizeGB"),
            Self::Range { parameter, .. } | Self::NotAdjustable { parameter, .. } => Some(parameter),
            Self::Shares { .. } => Some("disk.maxShares"),
            Self::ZoneForbidden { .. } | Self::ZoneRequired { .. } | Self::SeveralZones { .. } => Some("disk.zones"),
        }
    }
}

/// One step of a tiered SKU: everything up to `gib` that is above the step before.
struct Step {
    gib: u64,
    number: &'static str,
}

const fn step(gib: u64, number: &'static str) -> Step {
    Step { gib, number }
}

/// Tier numbers by size. Standard HDD begins at 32 GiB (S4): smaller disks are billed as that.
const STEPS: [Step; 14] = [
    step(4, "1"),
    step(8, "2"),
    step(16, "3"),
    step(32, "4"),
    step(64, "6"),
    step(128, "10"),
    step(256, "15"),
    step(512, "20"),
    step(1_024, "30"),
    step(2_048, "40"),
    step(4_096, "50"),
    step(8_192, "60"),
    step(16_384, "70"),
    step(TIERED_MAX_GIB, "80"),
];

/// Performance up to a size in GiB, for the tiered SKUs.
type Steps = [(u64, Performance)];

const STANDARD_HDD: [(u64, Performance); 3] = [
    (4_096, Performance::new(500, 60)),
    (8_192, Performance::new(1_300, 300)),
    (TIERED_MAX_GIB, Performance::new(2_000, 500)),
];

const STANDARD_SSD: [(u64, Performance); 4] = [
    (4_096, Performance::new(500, 100)),
    (8_192, Performance::new(2_000, 400)),
    (16_384, Performance::new(4_000, 600)),
    (TIERED_MAX_GIB, Performance::new(6_000, 750)),
];

const PREMIUM: [(u64, Performance); 10] = [
    (32, Performance::new(120, 25)),
    (64, Performance::new(240, 50)),
    (128, Performance::new(500, 100)),
    (256, Performance::new(1_100, 125)),
    (512, Performance::new(2_300, 150)),
    (1_024, Performance::new(5_000, 200)),
    (4_096, Performance::new(7_500, 250)),
    (8_192, Performance::new(16_000, 500)),
    (16_384, Performance::new(18_000, 750)),
    (TIERED_MAX_GIB, Performance::new(20_000, 900)),
];

/// The first step that holds the size; a size above all of them has the last.
fn up_to(steps: &Steps, gib: u64) -> Performance {
    let found = steps.iter().find(|(most, _)| gib <= *most).or(steps.last());
    found.map_or(Performance::new(0, 0), |(_, performance)| *performance)
}

impl Sku {
    const fn new(name: &'static str, tier: &'static str, zonal: Zonal, kind: Kind) -> Self {
        Self { name, tier, zonal, kind }
    }

    /// Whether Ultra or Premium v2: performance is chosen, host caching is impossible.
    #[must_use]
    pub const fn adjustable(&self) -> bool {
        matches!(self.kind, Kind::Ultra | Kind::PremiumV2)
    }

    /// Whether `UltraSSD_LRS`.
    #[must_use]
    pub const fn ultra(&self) -> bool {
        matches!(self.kind, Kind::Ultra)
    }

    /// Whether `PremiumV2_LRS`, which attaches to zonal machines only.
    #[must_use]
    pub const fn premium_v2(&self) -> bool {
        matches!(self.kind, Kind::PremiumV2)
    }

    /// Whether only a size with the capability `PremiumIO` takes it.
    #[must_use]
    pub const fn needs_premium_size(&self) -> bool {
        matches!(self.kind, Kind::Premium | Kind::PremiumV2)
    }

    /// Whether zone-redundant.
    #[must_use]
    pub const fn zone_redundant(&self) -> bool {
        matches!(self.zonal, Zonal::Forbidden)
    }

    /// Smallest and largest size in GiB.
    #[must_use]
    pub const fn size_range(&self) -> (u64, u64) {
        match self.kind {
            Kind::Ultra => (4, UNTIERED_MAX_GIB),
            Kind::PremiumV2 => (1, UNTIERED_MAX_GIB),
            Kind::StandardHdd | Kind::StandardSsd | Kind::Premium => (1, TIERED_MAX_GIB),
        }
    }

    /// Checks the size.
    ///
    /// # Errors
    /// [`SkuError::Size`] outside of [`Self::size_range`].
    pub const fn check_size(&self, gib: u64) -> Result<(), SkuError> {
        let (min, max) = self.size_range();
        if gib < min || gib > max {
            return Err(SkuError::Size { given: gib, min, max });
        }
        Ok(())
    }

    /// Checks the zones of a new disk in a region that has zones.
    ///
    /// # Errors
    /// When the SKU forbids or requires a zone, or there is more than one.
    pub const fn check_zones<T>(&self, zones: &[T]) -> Result<(), SkuError> {
        match (self.zonal, zones.len()) {
            (_, count) if count > 1 => Err(SkuError::SeveralZones { count }),
            (Zonal::Forbidden, 1) => Err(SkuError::ZoneForbidden { sku: self.name }),
            (Zonal::Required, 0) => Err(SkuError::ZoneRequired { sku: self.name }),
            _ => Ok(()),
        }
    }

    /// Checks `maxShares`.
    ///
    /// # Errors
    /// [`SkuError::Shares`] for zero and for more than [`Self::max_shares`].
    pub fn check_shares(&self, gib: u64, shares: u64) -> Result<(), SkuError> {
        let max = self.max_shares(gib);
        if shares == 0 || shares > max {
            return Err(SkuError::Shares { given: shares, max });
        }
        Ok(())
    }

    /// The step of a tiered SKU; sizes above the last belong to the last.
    fn step(&self, gib: u64) -> &'static Step {
        let first = if self.kind == Kind::StandardHdd { 3 } else { 0 };
        STEPS[first..].iter().find(|step| gib <= step.gib).unwrap_or(&STEPS[STEPS.len() - 1])
    }

    /// The performance tier (`P10`, `E4`, `S30`) of a size; none for Ultra and Premium v2.
    #[must_use]
    pub fn tier_name(&self, gib: u64) -> Option<String> {
        let letter = match self.kind {
            Kind::StandardHdd => 'S',
            Kind::StandardSsd => 'E',
            Kind::Premium => 'P',
            Kind::Ultra | Kind::PremiumV2 => return None,
        };
        Some(format!("{letter}{}", self.step(gib).number))
    }

    /// What `maxShares` may be at most.
    #[must_use]
    pub fn max_shares(&self, gib: u64) -> u64 {
        match self.kind {
            // The API's own table has 1 to 5 for HDD, but it is documented as not shareable.
            Kind::StandardHdd => 1,
            Kind::Ultra | Kind::PremiumV2 => 15,
            Kind::StandardSsd | Kind::Premium => match gib {
                ..=512 => 3,
                513..=4_096 => 5,
                _ => 10,
            },
        }
    }

    /// The performance of a disk for which none was asked.
    ///
    /// Ultra: the least that the size may have (unverified: what the service fills in is not
    /// documented).
    #[must_use]
    pub fn default_performance(&self, gib: u64) -> Performance {
        match self.kind {
            Kind::Ultra => Performance::new(ULTRA_MIN.iops.max(gib), ULTRA_MIN.mbps),
            Kind::PremiumV2 => PREMIUM_V2_BASE,
            Kind::StandardHdd => up_to(&STANDARD_HDD, gib),
            Kind::StandardSsd => up_to(&STANDARD_SSD, gib),
            Kind::Premium => up_to(&PREMIUM, gib),
        }
    }

    /// The performance of a disk, from what the caller asked for.
    ///
    /// A value that is not given takes its default; for Ultra and Premium v2 the MB/s bounds follow
    /// the IOPS.
    ///
    /// # Errors
    /// [`SkuError::NotAdjustable`] when a tiered SKU is given a value, [`SkuError::Range`] when a
    /// value is outside of what the size allows.
    pub fn check_performance(&self, gib: u64, iops: Option<u64>, mbps: Option<u64>) -> Result<Performance, SkuError> {
        const IOPS: &str = "disk.diskIOPSReadWrite";
        const MBPS: &str = "disk.diskMBpsReadWrite";
        let default = self.default_performance(gib);
        let (min, max_iops, max_mbps) = match self.kind {
            Kind::Ultra => (
                Performance::new(ULTRA_MIN.iops.max(gib), ULTRA_MIN.mbps),
                gib.saturating_mul(ULTRA_IOPS_PER_GIB).min(ULTRA_MAX.iops),
                ULTRA_MAX.mbps,
            ),
            Kind::PremiumV2 => (
                PREMIUM_V2_BASE,
                gib.saturating_sub(PREMIUM_V2_FREE_GIB)
                    .saturating_mul(PREMIUM_V2_IOPS_PER_GIB)
                    .saturating_add(PREMIUM_V2_BASE.iops)
                    .min(PREMIUM_V2_MAX.iops),
                PREMIUM_V2_MAX.mbps,
            ),
            Kind::StandardHdd | Kind::StandardSsd | Kind::Premium => {
                // A caller that echoes what a GET showed changes nothing and is not refused.
                let refused = |given: Option<u64>, have: u64| given.is_some_and(|v| v != have);
                let parameter = if refused(iops, default.iops) {
                    IOPS
                } else if refused(mbps, default.mbps) {
                    MBPS
                } else {
                    return Ok(default);
                };
                return Err(SkuError::NotAdjustable { parameter, sku: self.name });
            }
        };
        let check = |parameter, given: u64, min: u64, max: u64| {
            if (min..=max).contains(&given) { Ok(given) } else { Err(SkuError::Range { parameter, given, min, max }) }
        };
        let iops = check(IOPS, iops.unwrap_or(default.iops), min.iops, max_iops)?;
        let max_mbps = (iops / IOPS_PER_MBPS).clamp(min.mbps, max_mbps);
        let mbps = check(MBPS, mbps.unwrap_or(default.mbps), min.mbps, max_mbps)?;
        Ok(Performance::new(iops, mbps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sku(name: &str) -> &'static Sku {
        find(name).unwrap()
    }

    #[test]
    fn the_seven_skus_are_found_in_any_letter_case() {
        assert_eq!(find("premium_lrs").unwrap().name, "Premium_LRS");
        assert_eq!(find("ULTRASSD_LRS").unwrap().tier, "Ultra");
        assert!(find("Premium_GRS").is_none());
    }

    #[test]
    fn a_size_takes_the_next_tier_up() {
        let premium = sku("Premium_LRS");
        for (gib, tier, iops, mbps) in [
            (1, "P1", 120, 25),
            (4, "P1", 120, 25),
            (5, "P2", 120, 25),
            (32, "P4", 120, 25),
            (33, "P6", 240, 50),
            (100, "P10", 500, 100),
            (256, "P15", 1_100, 125),
            (512, "P20", 2_300, 150),
            (1_024, "P30", 5_000, 200),
            (4_095, "P50", 7_500, 250),
            (8_192, "P60", 16_000, 500),
            (16_384, "P70", 18_000, 750),
            (32_767, "P80", 20_000, 900),
        ] {
            assert_eq!(premium.tier_name(gib).unwrap(), tier, "{gib}");
            let performance = premium.default_performance(gib);
            assert_eq!((performance.iops, performance.mbps), (iops, mbps), "{gib}");
        }
        assert_eq!(sku("Standard_LRS").tier_name(1).unwrap(), "S4");
        assert_eq!(sku("StandardSSD_LRS").tier_name(1).unwrap(), "E1");
        assert_eq!(sku("UltraSSD_LRS").tier_name(100), None);
    }

    #[test]
    fn a_size_outside_of_the_range_is_refused() {
        assert!(sku("Premium_LRS").check_size(32_767).is_ok());
        let error = sku("Premium_LRS").check_size(32_768).unwrap_err();
        assert_eq!(error.code(), "InvalidParameter");
        assert!(error.to_string().contains("between '1' and '32767'"));
        assert!(sku("UltraSSD_LRS").check_size(3).is_err());
        assert!(sku("PremiumV2_LRS").check_size(65_536).is_ok());
        assert!(sku("Standard_LRS").check_size(0).is_err());
    }

    #[test]
    fn a_zone_redundant_disk_takes_no_zone_and_premium_v2_needs_one() {
        let none: [&str; 0] = [];
        let error = sku("Premium_ZRS").check_zones(&["1"]).unwrap_err();
        assert_eq!(error.to_string(), "A disk with sku 'Premium_ZRS' cannot be created in an availability zone.");
        assert_eq!(error.code(), "OperationNotAllowed");
        assert!(sku("Premium_ZRS").check_zones(&none).is_ok());
        assert!(sku("PremiumV2_LRS").check_zones(&none).is_err());
        assert!(sku("PremiumV2_LRS").check_zones(&["2"]).is_ok());
        assert!(sku("Premium_LRS").check_zones(&none).is_ok());
        assert!(sku("Premium_LRS").check_zones(&["1", "2"]).is_err());
    }

    #[test]
    fn shares_follow_the_tier() {
        assert_eq!(sku("Premium_LRS").max_shares(512), 3);
        assert_eq!(sku("Premium_LRS").max_shares(513), 5);
        assert_eq!(sku("StandardSSD_ZRS").max_shares(8_000), 10);
        assert_eq!(sku("UltraSSD_LRS").max_shares(4), 15);
        assert_eq!(sku("Standard_LRS").max_shares(4_096), 1);
        assert!(sku("Premium_LRS").check_shares(256, 4).is_err());
        assert!(sku("Premium_LRS").check_shares(256, 0).is_err());
    }

    #[test]
    fn premium_v2_performance_grows_with_its_size() {
        let v2 = sku("PremiumV2_LRS");
        assert_eq!(v2.check_performance(4, None, None).unwrap(), Performance::new(3_000, 125));
        assert!(v2.check_performance(6, Some(3_001), None).is_err());
        assert!(v2.check_performance(7, Some(3_500), None).is_ok());
        assert!(v2.check_performance(1_000, Some(80_000), Some(2_000)).is_ok());
        assert!(v2.check_performance(1_000, Some(80_001), None).is_err());
        let error = v2.check_performance(100, Some(4_000), Some(1_001)).unwrap_err();
        assert_eq!(error.target(), Some("disk.diskMBpsReadWrite"));
        assert!(error.to_string().contains("'1000' inclusive"));
        assert!(v2.check_performance(100, Some(2_999), None).is_err());
    }

    #[test]
    fn ultra_performance_is_bounded_by_size_and_by_its_iops() {
        let ultra = sku("UltraSSD_LRS");
        assert!(ultra.check_performance(4, Some(4_000), Some(1_000)).is_ok());
        assert!(ultra.check_performance(4, Some(4_001), None).is_err());
        assert!(ultra.check_performance(4, Some(99), None).is_err());
        assert!(ultra.check_performance(1_024, Some(400_000), Some(10_000)).is_ok());
        assert!(ultra.check_performance(1_024, Some(400_001), None).is_err());
        assert!(ultra.check_performance(64, Some(400), Some(101)).is_err());
    }

    #[test]
    fn a_tiered_sku_has_no_performance_to_choose() {
        let premium = sku("Premium_LRS");
        let error = premium.check_performance(128, Some(600), None).unwrap_err();
        assert!(matches!(error, SkuError::NotAdjustable { .. }));
        assert!(premium.check_performance(128, Some(500), Some(100)).is_ok());
    }
}
