//! From a CreateVolume request with a source to the disk it asks for, and what comes next of it.
//!
//! A disk is made from a snapshot or from another disk by one PUT. Azure makes no copy of a disk in another zone than that
//! disk's. Where the request takes no disk in that zone, a temporary snapshot carries the content there: the carrier.
//!
//! ```text
//!  nothing ──PUT carrier──▶ carrier ──complete, PUT disk──▶ carrier and disk ──disk filled, DELETE carrier──▶ disk
//! ```
//!
//! A carrier is named after its disk and says so in a tag. So the repeated request finds it, the deletion of the disk does
//! ([`carrier_of`]), and a sweep does ([`leftover`]).

mod carrier;
mod descent;
mod next;
#[cfg(test)]
mod tests;

use lazuli_model::{
    ArmId, Disk, Gib, ProvisioningState, Snapshot, SnapshotAccessState,
    disk_spec::{CopyOf, CopySize, CreateOption, DiskSpec, Mismatch, canonical_region},
    disk_tags::{COPY_OF, MADE_AS},
    parameter::ParameterError,
    snapshot_spec::SnapshotSpec,
    tags::MOST_TAGS,
};

use super::{
    create::{
        Adopted, Copied, CopiedFrom, CreatePlan, Defaults, Request, build,
        place::{Pin, check_source_group},
        set,
    },
    publish::SOURCE_KEY,
    sku, tags,
    zone::Zone,
};

pub use carrier::{
    Leftover, TargetSeen, carrier_from, carrier_id, carrier_of, carrier_target, is_carrier_to, leftover,
};
pub use descent::{Descent, LINE_KEY, LONGEST_LINE, Line, Link, Origin, Walk, are_related, walk};
pub use next::{AZURE_COPY_LIMITS, CopyLimit, CopyLimits, CopyRefusal, CopySeen, NextCopy, next};

/// The volume context's key that has the node grow the filesystem to the device (source: the Go driver).
pub(super) const RESIZE_KEY: &str = "resizeRequired";

/// What a single read of the source has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopySource<'a> {
    /// This snapshot.
    Snapshot(&'a Snapshot),
    /// This disk.
    Disk(&'a Disk),
    /// There is no such snapshot or disk any more. A disk that was made from it stays.
    Gone(&'a ArmId),
}

impl CopySource<'_> {
    /// Its id.
    pub fn id(&self) -> &ArmId {
        match self {
            Self::Snapshot(snapshot) => &snapshot.id,
            Self::Disk(disk) => &disk.id,
            Self::Gone(id) => id,
        }
    }

    fn unique_id(&self) -> Option<String> {
        match self {
            Self::Snapshot(snapshot) => snapshot.unique_id.clone(),
            Self::Disk(disk) => disk.unique_id.clone(),
            Self::Gone(_) => None,
        }
    }

    fn bytes(&self) -> Option<u64> {
        match self {
            Self::Snapshot(snapshot) => Some(snapshot.size_in_bytes()),
            Self::Disk(disk) => Some(disk.size_in_bytes()),
            Self::Gone(_) => None,
        }
    }

    fn sector_size(&self) -> Option<u32> {
        match self {
            Self::Snapshot(snapshot) => snapshot.logical_sector_size,
            Self::Disk(disk) => disk.logical_sector_size,
            Self::Gone(_) => None,
        }
    }

    /// A snapshot is in no zone, nor is a disk that is in all of its region's or in none.
    fn pin(&self) -> Pin {
        match self {
            Self::Snapshot(snapshot) => Pin::Region(Some(snapshot.location.clone())),
            Self::Disk(disk) => match disk.zones.as_slice() {
                [zone] => Pin::Zone(Zone { region: canonical_region(&disk.location), number: zone.clone() }),
                _ => Pin::Region(Some(disk.location.clone())),
            },
            Self::Gone(_) => Pin::Region(None),
        }
    }
}

/// The disk that a request with a source asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyPlan {
    /// The disk, and what CreateVolume answers. Its spec makes it a copy of the source itself or, on the way over a carrier,
    /// of the carrier.
    pub create: CreatePlan,
    /// How the content comes into the disk.
    pub route: CopyRoute,
    /// The same disk as a copy by the other way, if there is one. An earlier try, for another zone, may have made it so.
    other_way: Option<Box<DiskSpec>>,
}

/// How the content of the source comes into the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyRoute {
    /// Azure copies it by itself, when the source allows it.
    Direct(Readiness),
    /// A temporary snapshot carries it into another zone.
    Carried {
        /// The temporary snapshot.
        carrier: ArmId,
        /// What its PUT says.
        spec: Box<SnapshotSpec>,
        /// Whether the source can be copied now.
        source: Readiness,
    },
}

/// Whether a source can be copied now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// It can.
    Ready,
    /// It cannot yet, for this reason: `UNAVAILABLE`, so that external-provisioner asks again.
    NotYet(String),
    /// Not such a disk, while instant access to the snapshot lasts: `UNAVAILABLE`, with an event.
    InstantAccess(String),
    /// It never can, for this reason: `FAILED_PRECONDITION`.
    Never(String),
    /// It does not exist: `NOT_FOUND`.
    Gone,
}

/// Which disk the request asks for. The same request gives the same plan, whatever the order and the letter case of its
/// parameters' keys. `descent` is where the source comes from ([`walk`]), itself included.
///
/// # Errors
/// The first value that cannot be used. Nothing has been sent then, and the code is final.
pub fn plan_copy(
    request: &Request,
    source: CopySource<'_>,
    descent: &Descent,
    defaults: &Defaults,
) -> Result<CopyPlan, ParameterError> {
    check_source_group("volume_content_source", source.id(), defaults)?;
    let copied = Copied {
        from: CopiedFrom::Resource { source: source.id().clone(), unique_id: source.unique_id() },
        bytes: source.bytes(),
        sector_size: source.sector_size(),
        pin: source.pin(),
    };
    let mut create = build(request, defaults, Some(&copied))?;
    add_descent(&mut create, source, descent);
    // Without room for it a conversion is not told of by a later process.
    if !sku::has_own_performance(create.spec.sku) && create.spec.tags.len() + 1 < MOST_TAGS {
        tags::insert(&mut create.spec.tags, MADE_AS, create.spec.sku.as_str());
    }
    let is_disk = source.id().is_type("Microsoft.Compute/disks");
    let carrier = if is_disk { Some(carrier::id(&create.disk, source.id())?) } else { None };
    let carried = |carrier: &ArmId, spec: &DiskSpec| DiskSpec {
        create_option: CreateOption::Copy(CopyOf {
            source: carrier.clone(),
            unique_id: None,
            size: spec.copy_of().map_or(CopySize::Given, |of| of.size),
        }),
        ..spec.clone()
    };
    let readiness = readiness(source, &create);
    let is_off_zone = match &copied.pin {
        Pin::Zone(zone) => !sku::is_zone_redundant(create.spec.sku) && create.spec.zones != [zone.number.clone()],
        Pin::Region(_) | Pin::OfAccount(_) => false,
    };
    match (carrier, source) {
        (Some(carrier), CopySource::Disk(disk)) if is_off_zone => {
            let spec = Box::new(carrier::spec(&create, disk, defaults));
            let direct = Box::new(create.spec.clone());
            create.spec = carried(&carrier, &create.spec);
            // Without room for the tag the line ends at the carrier once that is gone.
            if create.spec.tags.len() < MOST_TAGS {
                tags::insert(&mut create.spec.tags, COPY_OF, &tags::value_of(disk.id.as_str()));
            }
            let route = CopyRoute::Carried { carrier, spec, source: readiness };
            Ok(CopyPlan { create, route, other_way: Some(direct) })
        }
        (carrier, _) => {
            let other_way = carrier.map(|carrier| Box::new(carried(&carrier, &create.spec)));
            Ok(CopyPlan { create, route: CopyRoute::Direct(readiness), other_way })
        }
    }
}

/// What the node must know of a copy: that it is one, of which line, and whether its filesystem may be smaller than it.
fn add_descent(create: &mut CreatePlan, source: CopySource<'_>, descent: &Descent) {
    let size = match create.spec.size_to_send() {
        Some(size) => Some(size.bytes()),
        None => source.bytes(),
    };
    let context = &mut create.volume_context;
    set(context, SOURCE_KEY, source.id().as_str());
    if !descent.line.is_empty() {
        set(context, LINE_KEY, &descent.line.to_context());
    }
    let least = [descent.least_bytes, source.bytes()].into_iter().flatten().min();
    if let (Some(size), Some(least)) = (size, least)
        && size > least
    {
        set(context, RESIZE_KEY, "true");
    }
}

/// Whether the source can be copied into such a disk now.
///
/// While the content of a snapshot is copied, instant access to it makes Ultra and PremiumV2 disks of its own size alone
/// (source: disks-instant-access-snapshots). Whether that holds until instant access has ended, no source says: there Azure
/// is asked, and what it refuses is explained by [`refused_by_instant_access`].
fn readiness(source: CopySource<'_>, create: &CreatePlan) -> Readiness {
    let snapshot = match source {
        CopySource::Gone(_) => return Readiness::Gone,
        CopySource::Disk(disk) => {
            return match disk.provisioning_state {
                ProvisioningState::InProgress => {
                    Readiness::NotYet(format!("the disk {} is being made or changed", disk.id))
                }
                _ => Readiness::Ready,
            };
        }
        CopySource::Snapshot(snapshot) => snapshot,
    };
    let id = &snapshot.id;
    if snapshot.has_failed() {
        return Readiness::Never(format!("Azure has failed to make the snapshot {id}; use another one"));
    }
    if !snapshot.is_ready() {
        return Readiness::NotYet(format!("the content of the snapshot {id} is not complete yet"));
    }
    let is_copied = snapshot.access == Some(SnapshotAccessState::InstantAccess)
        || snapshot.access != Some(SnapshotAccessState::AvailableWithInstantAccess)
            && snapshot.instant_access_minutes.is_some()
            && !snapshot.is_complete();
    match exceeds_instant_access(snapshot, create).filter(|_| is_copied) {
        Some(why) => Readiness::InstantAccess(why),
        None => Readiness::Ready,
    }
}

/// Why Azure may have refused to make such a disk from a snapshot whose content is complete while instant access lasts.
pub fn refused_by_instant_access(snapshot: &Snapshot, create: &CreatePlan) -> Option<CopyRefusal> {
    let lasts = snapshot.access == Some(SnapshotAccessState::AvailableWithInstantAccess);
    exceeds_instant_access(snapshot, create).filter(|_| lasts).map(CopyRefusal::InstantAccess)
}

/// Which disk instant access does not make, and what can be done.
fn exceeds_instant_access(snapshot: &Snapshot, create: &CreatePlan) -> Option<String> {
    let id = &snapshot.id;
    let ended = "instant access has ended (snapshotAccessState Available)";
    if !sku::has_own_performance(create.spec.sku) {
        return Some(format!(
            "while instant access to the snapshot {id} lasts Azure makes PremiumV2_LRS and UltraSSD_LRS disks from it alone, and \
             the disk is {}: it is made once {ended}",
            create.spec.sku
        ));
    }
    let asked = create.spec.size_to_send().filter(|asked| asked.bytes() > snapshot.size_in_bytes())?;
    let own = Gib::within(snapshot.size_in_bytes());
    Some(format!(
        "the disk is to have {asked}, and while instant access to the snapshot {id} lasts Azure makes disks of its own {own} \
         alone from it: the disk is made once {ended}; a claim of {own} is restored now, and can be made larger when the \
         disk has all of its content"
    ))
}

impl CopyPlan {
    /// What to answer when a disk of this name exists: one that was made from the source, or from the carrier.
    ///
    /// # Errors
    /// When it is not the disk that is asked for: `ALREADY_EXISTS`.
    pub fn adopt(&self, disk: &Disk) -> Result<Adopted, Mismatch> {
        match (self.create.adopt(disk), &self.other_way) {
            (Err(mismatch), Some(other)) => match other.matches(disk) {
                Ok(()) => Ok(self.create.adopted(disk)),
                Err(_) => Err(mismatch),
            },
            (adopted, _) => adopted,
        }
    }

    /// The spec by which a disk that exists was made.
    fn spec_of(&self, disk: &Disk) -> &DiskSpec {
        match &self.other_way {
            Some(other) if self.create.spec.matches(disk).is_err() && other.matches(disk).is_ok() => other,
            _ => &self.create.spec,
        }
    }
}
