//! Whether and how a disk grows. A disk never shrinks.

use std::fmt;

use lazuli_model::{Disk, DiskState, Gib};

use super::{ParameterError, sku};

/// What an expansion takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expand {
    /// Nothing: the disk has this size already.
    Enough(Gib),
    /// A write of the new size.
    Grow {
        /// The new size.
        to: Gib,
        /// Why the disk must be detached first, if it must: `FAILED_PRECONDITION`, which external-resizer reads as
        /// "cannot expand while in use".
        needs_detach: Option<DetachReason>,
    },
}

/// Why a disk cannot grow while it is attached (source: expand-disks, "expand without downtime").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DetachReason {
    /// It would cross 4 TiB, where hosts stop caching.
    CrossesFourTib,
    /// It is shared.
    Shared,
}

impl fmt::Display for DetachReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CrossesFourTib => "Azure lets no attached disk grow across 4 TiB; detach it first",
            Self::Shared => "Azure lets no attached shared disk grow; detach it from every node first",
        })
    }
}

/// The largest disk of any type, for types that are newer than our list.
const LARGEST: Gib = Gib::new(65536);

/// What it takes to give the disk so many bytes. `limit_bytes` of 0 means no limit.
///
/// Whether an attached disk crosses 4 TiB is judged with both ends counted in: what Azure does at exactly 4 TiB is
/// unverified, and detaching is what surely works.
///
/// # Errors
/// `OUT_OF_RANGE` when the disk is above the limit already, would be after rounding up, or is larger than its type can
/// be; `INVALID_ARGUMENT` when a number is negative.
pub fn plan_expand(disk: &Disk, required_bytes: i64, limit_bytes: i64) -> Result<Expand, ParameterError> {
    for (parameter, value) in [("required_bytes", required_bytes), ("limit_bytes", limit_bytes)] {
        if value < 0 {
            return Err(ParameterError::invalid(parameter, value, "allowed is no negative number of bytes"));
        }
    }
    let most = disk.sku.map_or(LARGEST, |sku| *sku::size_range(sku).end());
    let too_large = || {
        let kind = disk.sku.map_or("disk", |sku| sku.as_str());
        ParameterError::out_of_range("required_bytes", required_bytes, format!("the largest {kind} has {most}"))
    };
    let to = Gib::holding(required_bytes.unsigned_abs()).ok_or_else(too_large)?.max(disk.size);
    if limit_bytes > 0 && to.bytes() > limit_bytes.unsigned_abs() {
        let why = if to == disk.size { "the disk has" } else { "rounded up to whole GiB the disk would have" };
        return Err(ParameterError::out_of_range(
            "limit_bytes",
            limit_bytes,
            format!("{why} {to} ({} bytes), and disks do not shrink", to.bytes()),
        ));
    }
    if to == disk.size {
        return Ok(Expand::Enough(disk.size));
    }
    if to > most {
        return Err(too_large());
    }
    Ok(Expand::Grow { to, needs_detach: needs_detach(disk, to) })
}

/// Why the disk must be detached before it grows to a size; `None` where it need not be.
pub fn needs_detach(disk: &Disk, to: Gib) -> Option<DetachReason> {
    let attached = !disk.holders().is_empty()
        || matches!(disk.state, Some(DiskState::Attached | DiskState::Reserved | DiskState::Frozen));
    let uncached = disk.sku.is_some_and(sku::has_own_performance);
    if !attached {
        None
    } else if disk.max_shares > 1 {
        Some(DetachReason::Shared)
    } else if !uncached && disk.size <= sku::CACHING_ENDS_AT && to >= sku::CACHING_ENDS_AT {
        Some(DetachReason::CrossesFourTib)
    } else {
        None
    }
}
