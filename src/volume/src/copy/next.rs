//! What comes next of a copy, by what is there, and Azure's limits.

use std::fmt;

use lazuli_model::{
    ArmId, Disk, ProvisioningState, Snapshot,
    disk_spec::{CopyOf, CreateOption, DiskSpec, Mismatch},
    event::Reason,
    fault::Code,
    snapshot_spec::{SnapshotMismatch, SnapshotSpec},
};

use super::{CopyPlan, CopyRoute, Readiness, carrier};
use crate::{create::Adopted, sku};

/// What is there of a request, each by a read that was sent after the request came.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopySeen {
    /// The disk.
    pub disk: Option<Disk>,
    /// The carrier. It need not be read on the direct way.
    pub carrier: Option<Snapshot>,
}

/// What comes next of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextCopy {
    /// PUT the carrier.
    CreateCarrier {
        /// The carrier.
        carrier: ArmId,
        /// What to make.
        spec: Box<SnapshotSpec>,
    },
    /// Make the disk: the step of a disk's creation does it, and waits for an operation that runs. [`CopyPlan::adopt`] says
    /// what to answer for the disk that comes of it; ask again what becomes of a carrier.
    CreateDisk(Box<DiskSpec>),
    /// DELETE the carrier: the disk has all of its content, or the carrier can carry none.
    DeleteCarrier(ArmId),
    /// Answer this.
    Answer(Box<Adopted>),
}

/// Why a copy cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CopyRefusal {
    /// A disk of its name exists that is another one.
    #[error(transparent)]
    Disk(#[from] Mismatch),
    /// A snapshot of the carrier's name exists that is another one.
    #[error(transparent)]
    Carrier(#[from] SnapshotMismatch),
    /// The source does not exist.
    #[error("there is no {0} to make the disk from")]
    SourceGone(ArmId),
    /// The source cannot be copied yet.
    #[error("{0}")]
    NotYet(String),
    /// Instant access to the source allows no such disk while it lasts.
    #[error("{0}")]
    InstantAccess(String),
    /// The source can never be copied.
    #[error("{0}")]
    Never(String),
}

impl CopyRefusal {
    /// The gRPC code. What passes by itself is `UNAVAILABLE`: `RESOURCE_EXHAUSTED` would have external-provisioner choose
    /// another node, and so another zone.
    pub fn code(&self) -> Code {
        match self {
            Self::Disk(_) | Self::Carrier(_) => Code::AlreadyExists,
            Self::SourceGone(_) => Code::NotFound,
            Self::NotYet(_) | Self::InstantAccess(_) => Code::Unavailable,
            Self::Never(_) => Code::FailedPrecondition,
        }
    }

    /// Why a person gets an event about it: where another claim is made at once.
    pub fn reason(&self) -> Option<Reason> {
        matches!(self, Self::InstantAccess(_)).then_some(Reason::InstantAccessLimits)
    }
}

/// What comes next of a copy, by what is there. A disk that exists is answered whatever has become of its source.
///
/// # Errors
/// Why nothing can: [`CopyRefusal::code`].
pub fn next(plan: &CopyPlan, seen: &CopySeen) -> Result<NextCopy, CopyRefusal> {
    if let Some(disk) = &seen.disk {
        return there(plan, disk, seen.carrier.as_ref());
    }
    match &plan.route {
        CopyRoute::Direct(readiness) => {
            check(plan, readiness)?;
            Ok(NextCopy::CreateDisk(Box::new(plan.create.spec.clone())))
        }
        CopyRoute::Carried { carrier, spec, source } => match &seen.carrier {
            None => {
                check(plan, source)?;
                Ok(NextCopy::CreateCarrier { carrier: carrier.clone(), spec: spec.clone() })
            }
            Some(there) => {
                if is_useless(there, spec, &plan.create.disk)? {
                    return Ok(NextCopy::DeleteCarrier(carrier.clone()));
                }
                if !there.is_complete() {
                    let why = format!("the content of the temporary snapshot {carrier} is not complete yet");
                    return Err(CopyRefusal::NotYet(why));
                }
                Ok(NextCopy::CreateDisk(Box::new(of_carrier(&plan.create.spec, there))))
            }
        },
    }
}

/// Whether a carrier goes before its disk is made: Azure has failed to fill it, or it was taken of an earlier disk with the
/// source's name. It is the request's own, and no disk was made from it.
fn is_useless(there: &Snapshot, spec: &SnapshotSpec, disk: &ArmId) -> Result<bool, SnapshotMismatch> {
    let is_own = carrier::is_carrier_to(there, disk);
    match spec.matches(there) {
        Ok(()) => Ok(is_own && there.has_failed()),
        Err(SnapshotMismatch::SourceRemade { .. }) if is_own => Ok(true),
        Err(mismatch) => Err(mismatch),
    }
}

/// The disk exists.
fn there(plan: &CopyPlan, disk: &Disk, carrier: Option<&Snapshot>) -> Result<NextCopy, CopyRefusal> {
    let adopted = plan.adopt(disk)?;
    if disk.provisioning_state != ProvisioningState::Succeeded {
        // A failed creation is completed, and one that runs is waited for.
        return Ok(NextCopy::CreateDisk(Box::new(plan.spec_of(disk).clone())));
    }
    match carrier {
        Some(there) if carrier::is_carrier_to(there, &disk.id) && carrier::is_filled(disk) => {
            Ok(NextCopy::DeleteCarrier(there.id.clone()))
        }
        // While it is being filled its carrier stays: the volume is usable, and the sweep comes later.
        _ => Ok(NextCopy::Answer(Box::new(adopted))),
    }
}

fn check(plan: &CopyPlan, readiness: &Readiness) -> Result<(), CopyRefusal> {
    match readiness {
        Readiness::Ready => Ok(()),
        Readiness::NotYet(why) => Err(CopyRefusal::NotYet(why.clone())),
        Readiness::InstantAccess(why) => Err(CopyRefusal::InstantAccess(why.clone())),
        Readiness::Never(why) => Err(CopyRefusal::Never(why.clone())),
        Readiness::Gone => {
            let source = plan.create.spec.copy_of().map_or_else(|| plan.create.disk.clone(), |of| of.source.clone());
            Err(CopyRefusal::SourceGone(source))
        }
    }
}

/// The disk as a copy of exactly this carrier.
fn of_carrier(spec: &DiskSpec, carrier: &Snapshot) -> DiskSpec {
    let create_option = match &spec.create_option {
        CreateOption::Copy(of) => CreateOption::Copy(CopyOf { unique_id: carrier.unique_id.clone(), ..of.clone() }),
        other @ (CreateOption::Empty | CreateOption::Import(_)) => other.clone(),
    };
    DiskSpec { create_option, ..spec.clone() }
}

/// Azure's limits of copies (source: disks-incremental-snapshots, disks-instant-access-snapshots, disks-convert-types).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyLimits {
    /// How many Ultra and PremiumV2 disks are filled from one snapshot at a time.
    pub from_snapshot: usize,
    /// How many are filled at a time from all snapshots with instant access of one disk.
    pub from_instant_access: usize,
    /// How many disks of a subscription are filled or converted at a time.
    pub in_subscription: usize,
}

/// Azure's limits.
pub const AZURE_COPY_LIMITS: CopyLimits = CopyLimits { from_snapshot: 5, from_instant_access: 15, in_subscription: 50 };

/// A limit that a copy has reached. It passes by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyLimit {
    /// So many disks are being filled from the snapshot, or from those of its disk.
    FromSnapshot {
        /// The snapshot.
        snapshot: ArmId,
        /// How many.
        filling: usize,
    },
    /// So many disks of the subscription are being filled or converted.
    InSubscription {
        /// How many.
        filling: usize,
    },
}

impl CopyLimit {
    /// The gRPC code, never `RESOURCE_EXHAUSTED`: external-provisioner would choose another node.
    pub fn code(&self) -> Code {
        Code::Unavailable
    }

    /// Why a person gets an event about it.
    pub fn reason(&self) -> Reason {
        Reason::OperationsLimited
    }
}

impl fmt::Display for CopyLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FromSnapshot { snapshot, filling } => {
                write!(f, "{filling} disks are being filled from {snapshot}, the most that Azure fills at a time")
            }
            Self::InSubscription { filling } => {
                write!(f, "{filling} disks of the subscription are being filled or converted, the most at a time")
            }
        }
    }
}

impl CopyLimits {
    /// The limit that a copy has reached, if it has. `disks` and `snapshots` are those of the subscription.
    pub fn of(&self, spec: &DiskSpec, source: &Snapshot, disks: &[Disk], snapshots: &[Snapshot]) -> Option<CopyLimit> {
        if !sku::has_own_performance(spec.sku) {
            return None;
        }
        let filling = || {
            let is_filling =
                |disk: &&Disk| disk.is_hydrating() || disk.provisioning_state == ProvisioningState::InProgress;
            disks.iter().filter(is_filling)
        };
        let is_from = |disk: &Disk, snapshot: &Snapshot| match (&disk.source_unique_id, &snapshot.unique_id) {
            (Some(one), Some(other)) => one.eq_ignore_ascii_case(other),
            _ => disk.source.as_deref().and_then(|source| source.parse().ok()).as_ref() == Some(&snapshot.id),
        };
        let gives_instant_access = !source.is_complete();
        let (most, count) = if gives_instant_access {
            let is_kin = |other: &&Snapshot| {
                other.id == source.id || !other.is_complete() && other.family.is_some() && other.family == source.family
            };
            let kin: Vec<&Snapshot> = snapshots.iter().filter(is_kin).collect();
            let from_kin = |disk: &&Disk| is_from(disk, source) || kin.iter().any(|snapshot| is_from(disk, snapshot));
            (self.from_instant_access, filling().filter(from_kin).count())
        } else {
            (self.from_snapshot, filling().filter(|disk| is_from(disk, source)).count())
        };
        if count >= most {
            return Some(CopyLimit::FromSnapshot { snapshot: source.id.clone(), filling: count });
        }
        let all = disks.iter().filter(|disk| disk.is_hydrating()).count();
        (all >= self.in_subscription).then_some(CopyLimit::InSubscription { filling: all })
    }
}
