//! The conversion of a disk to PremiumV2, which goes on in Azure for hours after the PATCH has ended, and what a person is
//! told of it.
//!
//! Azure's state is the only memory that a restart leaves: the disk's type, how much is copied, and the type that the
//! PersistentVolume says it was made with. A label on the PersistentVolume, which the Go driver sets too, tells a conversion
//! of which a person has been told already.

use std::time::Duration;

use lazuli_model::{Disk, Gib, SkuName, event::Reason, op::DiskChange};

/// What a person is told at most: each time so many more percent are copied (source: the Go driver).
const STEP_PERCENT: u16 = 20;

/// After how long a conversion is said to take long, by the size of the disk (source: the Go driver): below 2, 4, 16 and
/// 64 TiB.
const LONG: [(Gib, Duration); 4] = [
    (Gib::new(2_048), Duration::from_secs(10 * 3_600)),
    (Gib::new(4_096), Duration::from_secs(12 * 3_600)),
    (Gib::new(16_384), Duration::from_secs(16 * 3_600)),
    (Gib::new(65_536), Duration::from_secs(19 * 3_600)),
];

/// The time of a disk that no row names (source: the Go driver).
const LONG_OTHERWISE: Duration = Duration::from_secs(16 * 3_600);

/// A change of type that goes on after its PATCH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conversion {
    /// The type before; `None` for one that is newer than this program.
    pub from: Option<SkuName>,
    /// The type after.
    pub to: SkuName,
}

impl Conversion {
    /// The conversion that a PATCH begins.
    pub(super) fn of(disk: &Disk, change: &DiskChange) -> Option<Self> {
        let to = change.sku.filter(|sku| *sku == SkuName::PremiumV2Lrs)?;
        Some(Self { from: disk.sku, to })
    }
}

/// Whether a disk is being converted, by what Azure shows and by the type that its PersistentVolume says it was made with.
/// A disk that was made as PremiumV2 and is being filled is a copy.
pub fn is_converting(disk: &Disk, made_as: Option<SkuName>) -> bool {
    disk.sku == Some(SkuName::PremiumV2Lrs)
        && disk.is_hydrating()
        && made_as.is_some_and(|sku| sku != SkuName::PremiumV2Lrs)
}

/// What a person has been told of a conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reported {
    /// When it was seen first, by the steps' clock.
    since: Duration,
    /// Up to which percentage.
    percent: u16,
    /// That it takes long.
    is_long: bool,
}

/// What a person is to be told of a conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConversionReport {
    /// It has begun.
    Started,
    /// So many percent are copied.
    Progress(u16),
    /// It takes longer than conversions of disks of this size do.
    Long(Duration),
    /// It is over.
    Completed,
}

impl ConversionReport {
    /// The reason of the event, as the Go driver names it.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Started => Reason::SKUMigrationStarted,
            Self::Progress(_) => Reason::SKUMigrationProgress,
            Self::Long(_) => Reason::SKUMigrationTimeout,
            Self::Completed => Reason::SKUMigrationCompleted,
        }
    }
}

/// Whether the PersistentVolume has the label of a conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Label {
    /// It has: an earlier process, or the Go driver, has told of the beginning.
    Present,
    /// It has not.
    Absent,
}

fn long(size: Gib) -> Duration {
    LONG.into_iter().find(|(below, _)| size < *below).map_or(LONG_OTHERWISE, |(_, long)| long)
}

/// What a person is to be told after a read of the disk, and what is remembered for the next one; `None` once it is over.
/// Before the first read of a conversion `reported` is `None`.
pub fn conversion_reports(
    reported: Option<Reported>,
    disk: &Disk,
    label: Label,
    now: Duration,
) -> (Vec<ConversionReport>, Option<Reported>) {
    let copied = disk.completion.filter(|completion| !completion.is_complete());
    let Some(copied) = copied else {
        let was_running = reported.is_some() || label == Label::Present;
        return (if was_running { vec![ConversionReport::Completed] } else { Vec::new() }, None);
    };
    let mut reports = Vec::new();
    let mut known = reported.unwrap_or_else(|| {
        if label == Label::Absent {
            reports.push(ConversionReport::Started);
        }
        Reported { since: now, percent: 0, is_long: false }
    });
    let percent = copied.percent() / STEP_PERCENT * STEP_PERCENT;
    if percent > known.percent {
        reports.push(ConversionReport::Progress(percent));
        known.percent = percent;
    }
    let limit = long(disk.size);
    if !known.is_long && now.saturating_sub(known.since) >= limit {
        reports.push(ConversionReport::Long(limit));
        known.is_long = true;
    }
    (reports, Some(known))
}
