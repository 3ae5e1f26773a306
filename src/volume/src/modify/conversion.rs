//! The conversion of a disk to PremiumV2, which goes on in Azure for hours after the PATCH has ended, and what a person is
//! told of it.
//!
//! Azure's state is the only memory that a restart leaves: the disk's type, and how much is copied. So a later process goes
//! on from the percentage that it finds, and does not tell the beginning again.

use std::time::Duration;

use lazuli_model::{Completion, Disk, Gib, SkuName, event::Reason, op::DiskChange};

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

/// Whether a disk of this type, of which so much is copied, is being converted. One that was made from a source and is being
/// filled may be a copy that was made as PremiumV2. Of it Azure does not say which, but its tag does ([`MADE_AS`]),
/// where this driver has made it as another type.
///
/// [`MADE_AS`]: lazuli_model::disk_tags::MADE_AS
pub fn is_converting(
    sku: Option<SkuName>,
    completion: Option<Completion>,
    source: Option<&str>,
    made_as: Option<SkuName>,
) -> bool {
    let is_filled = completion.is_some_and(|completion| !completion.is_complete());
    let was_another = made_as.is_some_and(|made_as| made_as != SkuName::PremiumV2Lrs);
    sku == Some(SkuName::PremiumV2Lrs) && is_filled && (source.is_none() || was_another)
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

impl Reported {
    /// Its beginning: it has begun now, or an earlier process has told of it.
    pub fn beginning(now: Duration) -> Self {
        Self { since: now, percent: 0, is_long: false }
    }
}

/// What a person is to be told of a conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConversionReport {
    /// It has begun, from this type; `None` for one that is newer than this program.
    Started(Option<SkuName>),
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
            Self::Started(_) => Reason::SKUMigrationStarted,
            Self::Progress(_) => Reason::SKUMigrationProgress,
            Self::Long(_) => Reason::SKUMigrationTimeout,
            Self::Completed => Reason::SKUMigrationCompleted,
        }
    }
}

fn long(size: Gib) -> Duration {
    LONG.into_iter().find(|(below, _)| size < *below).map_or(LONG_OTHERWISE, |(_, long)| long)
}

/// What a person is to be told after a read of the disk, and what is remembered for the next one; `None` once it is over. A
/// disk that is of another type by then is not converted.
pub fn conversion_reports(
    mut known: Reported,
    disk: &Disk,
    now: Duration,
) -> (Vec<ConversionReport>, Option<Reported>) {
    if disk.sku != Some(SkuName::PremiumV2Lrs) {
        return (Vec::new(), None);
    }
    let Some(copied) = disk.completion.filter(|completion| !completion.is_complete()) else {
        return (vec![ConversionReport::Completed], None);
    };
    let mut reports = Vec::new();
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
