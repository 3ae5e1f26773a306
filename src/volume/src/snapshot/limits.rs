//! How many snapshots Azure makes and keeps of a disk, and what a snapshot forbids to its disk.
//!
//! Azure refuses what is beyond a limit by a code that says too little. So the limits are compared with the snapshots of the
//! subscription, and say what is to be done: wait, or delete some.

use std::fmt;

use lazuli_model::{
    ArmId, AzureTime, CopyMethod, Disk, SkuName, Snapshot, disk_spec::canonical_region, event::Reason, fault::Code,
    snapshot_spec::SnapshotSpec,
};

use super::super::sku;

/// Azure's limits (source: disks-incremental-snapshots, disks-copy-incremental-snapshot-across-regions,
/// disks-instant-access-snapshots).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotLimits {
    /// How many incremental snapshots of a disk are made in [`SnapshotLimits::window_seconds`].
    pub in_window: usize,
    /// See [`SnapshotLimits::in_window`].
    pub window_seconds: u64,
    /// How many snapshots of an Ultra or PremiumV2 disk may be incomplete at a time.
    pub incomplete: usize,
    /// How many incremental snapshots a disk has.
    pub of_disk: usize,
    /// How many copies into a region run at a time in a subscription.
    pub copies_to_region: usize,
    /// For how long a copy waits for an older local snapshot of the disk whose copy has not begun. Azure copies the
    /// snapshots of a disk only in the order in which they were taken. external-snapshotter repeats a request each few
    /// minutes, so that no request is left for an older one that has waited longer.
    pub turn_seconds: u64,
}

/// Azure's limits.
pub const AZURE_LIMITS: SnapshotLimits = SnapshotLimits {
    in_window: 7,
    window_seconds: 300,
    incomplete: 3,
    of_disk: 500,
    copies_to_region: 100,
    turn_seconds: 24 * 3_600,
};

/// A limit that a snapshot has reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapshotLimit {
    /// So many were made in the last minutes.
    TooFast {
        /// The disk.
        disk: ArmId,
        /// How many.
        made: usize,
        /// After how many seconds the next one can be made.
        wait_seconds: u64,
    },
    /// So many are incomplete.
    Incomplete {
        /// The disk.
        disk: ArmId,
        /// These.
        snapshots: Vec<ArmId>,
    },
    /// The disk itself is still being filled, so that its snapshots give no instant access.
    Hydrating(ArmId),
    /// The disk has so many.
    TooMany {
        /// The disk.
        disk: ArmId,
        /// How many.
        there: usize,
    },
    /// Another snapshot of the disk is being copied.
    CopyUnderWay(ArmId),
    /// An older snapshot of the disk is to be copied first.
    OlderFirst(ArmId),
    /// So many copies into the region run.
    CopiesToRegion {
        /// The region.
        region: String,
        /// How many.
        running: usize,
    },
}

impl SnapshotLimit {
    /// The gRPC code, which external-snapshotter repeats in each case. `ABORTED` is for what passes by itself.
    pub fn code(&self) -> Code {
        match self {
            Self::TooMany { .. } => Code::ResourceExhausted,
            Self::TooFast { .. }
            | Self::Incomplete { .. }
            | Self::Hydrating(_)
            | Self::CopyUnderWay(_)
            | Self::OlderFirst(_)
            | Self::CopiesToRegion { .. } => Code::Aborted,
        }
    }

    /// Why a person gets an event about it.
    pub fn reason(&self) -> Reason {
        match self {
            Self::TooMany { .. } => Reason::SnapshotLimitReached,
            _ => Reason::OperationsLimited,
        }
    }
}

impl SnapshotLimit {
    /// The limit without what changes from try to try, for an event.
    pub fn lasting(&self) -> &'static str {
        match self {
            Self::TooFast { .. } => "Azure makes no more incremental snapshots of it before some minutes are over",
            Self::Incomplete { .. } => "Azure makes no more snapshots of it before those that it has are complete",
            Self::Hydrating(_) => {
                "its own content is still being copied, and snapshots with instant access are possible after that"
            }
            Self::TooMany { .. } => "it has as many incremental snapshots as a disk can have",
            Self::CopyUnderWay(_) => "another snapshot of it is being copied into another region",
            Self::OlderFirst(_) => "an older snapshot of it is to be copied into another region first",
            Self::CopiesToRegion { .. } => {
                "as many snapshots are being copied into the region as Azure copies at a time"
            }
        }
    }
}

impl fmt::Display for SnapshotLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFast { disk, made, wait_seconds } => write!(
                f,
                "{made} incremental snapshots of {disk} were made in the last minutes, the most that Azure makes; the next one \
                 is possible in {wait_seconds} s"
            ),
            Self::Incomplete { disk, snapshots } => {
                write!(f, "{} are incomplete, the most that Azure makes of {disk} at a time", listed(snapshots))
            }
            Self::Hydrating(disk) => write!(
                f,
                "the content of {disk} is still being copied from what the disk was made from; snapshots with instant access \
                 are possible after that"
            ),
            Self::TooMany { disk, there } => {
                write!(
                    f,
                    "{disk} has {there} incremental snapshots, the most that Azure keeps of one disk; delete some"
                )
            }
            Self::CopyUnderWay(other) => {
                write!(f, "{other} is being copied, and Azure copies one snapshot of a disk at a time")
            }
            Self::OlderFirst(other) => {
                write!(
                    f,
                    "{other} is older and is to be copied first, for Azure copies the snapshots of a disk in order"
                )
            }
            Self::CopiesToRegion { region, running } => {
                write!(f, "{running} snapshots are being copied into {region}, the most that Azure copies at a time")
            }
        }
    }
}

fn listed<'a>(snapshots: impl IntoIterator<Item = &'a ArmId>) -> String {
    snapshots.into_iter().map(ArmId::as_str).collect::<Vec<_>>().join(", ")
}

/// Whether a snapshot was taken of this disk, and not of an earlier one of its name.
fn is_of(snapshot: &Snapshot, disk: &Disk) -> bool {
    if snapshot.method != Some(CopyMethod::Copy) {
        return false;
    }
    match (&snapshot.source_unique_id, &disk.unique_id) {
        (Some(one), Some(other)) => one.eq_ignore_ascii_case(other),
        _ => snapshot.source.as_deref().and_then(|source| source.parse().ok()).as_ref() == Some(&disk.id),
    }
}

fn is_incomplete(snapshot: &Snapshot) -> bool {
    snapshot.needs_its_source()
}

impl SnapshotLimits {
    /// The limit that the snapshot of a disk has reached, if it has; the one that lasts longest first. `there` are the
    /// snapshots of the subscription, and `now` is Azure's clock.
    pub fn of_disk(
        &self,
        spec: &SnapshotSpec,
        disk: &Disk,
        there: &[Snapshot],
        now: AzureTime,
    ) -> Option<SnapshotLimit> {
        let id = || disk.id.clone();
        let of_disk: Vec<&Snapshot> = there.iter().filter(|snapshot| is_of(snapshot, disk)).collect();
        if spec.incremental {
            let incremental: Vec<&Snapshot> = of_disk.iter().copied().filter(|snapshot| snapshot.incremental).collect();
            if incremental.len() >= self.of_disk {
                return Some(SnapshotLimit::TooMany { disk: id(), there: incremental.len() });
            }
            let mut ages: Vec<u64> = incremental.iter().map(|snapshot| now.seconds_since(snapshot.created)).collect();
            ages.retain(|age| *age < self.window_seconds);
            ages.sort_unstable();
            if let Some(oldest) = self.in_window.checked_sub(1).and_then(|last| ages.get(last)) {
                let wait_seconds = self.window_seconds.saturating_sub(*oldest);
                return Some(SnapshotLimit::TooFast { disk: id(), made: ages.len(), wait_seconds });
            }
        }
        if !disk.sku.is_some_and(sku::has_own_performance) {
            return None;
        }
        let mut incomplete: Vec<ArmId> =
            of_disk.iter().filter(|snapshot| is_incomplete(snapshot)).map(|snapshot| snapshot.id.clone()).collect();
        incomplete.sort();
        if incomplete.len() >= self.incomplete {
            return Some(SnapshotLimit::Incomplete { disk: id(), snapshots: incomplete });
        }
        (spec.instant_access_minutes.is_some() && disk.is_hydrating()).then(|| SnapshotLimit::Hydrating(id()))
    }

    /// The limit that the copy of a local snapshot into another region has reached, if it has.
    pub fn of_copy(
        &self,
        spec: &SnapshotSpec,
        local: &Snapshot,
        there: &[Snapshot],
        now: AzureTime,
    ) -> Option<SnapshotLimit> {
        let is_copy = |snapshot: &&Snapshot| snapshot.method == Some(CopyMethod::CopyStart);
        let is_of_disk = |snapshot: &&Snapshot| match (&snapshot.family, &local.family) {
            (Some(one), Some(other)) => one.eq_ignore_ascii_case(other),
            _ => false,
        };
        let running: Vec<&Snapshot> = there
            .iter()
            .filter(is_copy)
            .filter(|snapshot| is_incomplete(snapshot) && snapshot.id != local.id)
            .collect();
        if let Some(other) = first(running.iter().copied().filter(is_of_disk)) {
            return Some(SnapshotLimit::CopyUnderWay(other.id.clone()));
        }
        let waits = |snapshot: &&Snapshot| {
            let is_local = snapshot.id.name().to_ascii_lowercase().starts_with("local_")
                && lazuli_model::disk_tags::is_made_by_driver(&snapshot.tags);
            let is_source = |copy: &Snapshot| {
                copy.source.as_deref().and_then(|source| source.parse().ok()).as_ref() == Some(&snapshot.id)
            };
            snapshot.method == Some(CopyMethod::Copy)
                && is_local
                && !snapshot.has_failed()
                && (snapshot.created, snapshot.id.folded()) < (local.created, local.id.folded())
                && now.seconds_since(snapshot.created) < self.turn_seconds
                && !there.iter().filter(is_copy).any(is_source)
        };
        if let Some(other) = first(there.iter().filter(is_of_disk).filter(waits)) {
            return Some(SnapshotLimit::OlderFirst(other.id.clone()));
        }
        let region = canonical_region(&spec.location);
        let into = running.iter().filter(|snapshot| canonical_region(&snapshot.location) == region).count();
        (into >= self.copies_to_region)
            .then(|| SnapshotLimit::CopiesToRegion { region: spec.location.clone(), running: into })
    }
}

/// The oldest, whatever the order.
fn first<'a>(snapshots: impl Iterator<Item = &'a Snapshot>) -> Option<&'a Snapshot> {
    snapshots.min_by(|one, other| (one.created, one.id.folded()).cmp(&(other.created, other.id.folded())))
}

/// A disk that cannot grow: its growth would make snapshots of it fail (source: disks-incremental-snapshots). `ABORTED`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{disk} does not grow before its snapshots are complete, for Azure would fail them: {}", listed(.snapshots))]
pub struct GrowthBlocked {
    /// The disk.
    pub disk: ArmId,
    /// Its incomplete snapshots, in the order of their ids.
    pub snapshots: Vec<ArmId>,
}

/// A disk that cannot be deleted: the content of snapshots is still only in it. `FAILED_PRECONDITION`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{disk} is not deleted before its snapshots are complete, for their content is still in it: {}", listed(.snapshots))]
pub struct SnapshotsDepend {
    /// The disk.
    pub disk: ArmId,
    /// Its incomplete snapshots, in the order of their ids.
    pub snapshots: Vec<ArmId>,
}

/// Whether snapshots of disks of this type may be incomplete. For all other types no list of snapshots is needed.
pub fn fills_snapshots_late(sku: Option<SkuName>) -> bool {
    sku.is_none_or(sku::has_own_performance)
}

fn incomplete_of(disk: &Disk, there: &[Snapshot]) -> Vec<ArmId> {
    if !fills_snapshots_late(disk.sku) {
        return Vec::new();
    }
    let of_disk = there.iter().filter(|snapshot| is_of(snapshot, disk) && is_incomplete(snapshot));
    let mut ids: Vec<ArmId> = of_disk.map(|snapshot| snapshot.id.clone()).collect();
    ids.sort();
    ids
}

/// Whether an Ultra or PremiumV2 disk may grow; `there` are the snapshots of the subscription.
///
/// # Errors
/// While a snapshot of it is incomplete.
pub fn may_grow(disk: &Disk, there: &[Snapshot]) -> Result<(), GrowthBlocked> {
    match incomplete_of(disk, there) {
        snapshots if snapshots.is_empty() => Ok(()),
        snapshots => Err(GrowthBlocked { disk: disk.id.clone(), snapshots }),
    }
}

/// Whether an Ultra or PremiumV2 disk may be deleted; `there` are the snapshots of the subscription.
///
/// # Errors
/// While a snapshot of it is incomplete.
pub fn may_delete(disk: &Disk, there: &[Snapshot]) -> Result<(), SnapshotsDepend> {
    match incomplete_of(disk, there) {
        snapshots if snapshots.is_empty() => Ok(()),
        snapshots => Err(SnapshotsDepend { disk: disk.id.clone(), snapshots }),
    }
}

impl GrowthBlocked {
    /// The gRPC code of ControllerExpandVolume: it passes by itself.
    pub fn code(&self) -> Code {
        Code::Aborted
    }
}

impl SnapshotsDepend {
    /// The gRPC code of DeleteVolume.
    pub fn code(&self) -> Code {
        Code::FailedPrecondition
    }
}
