//! Figures of a volume as CSI tells them.

use csi_proto::csi::{VolumeUsage, volume_usage::Unit};
use lazuli_host::stats::{Usage, VolumeStats};

/// A number of the wire.
pub(crate) fn wire(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// The figures of a file system.
pub(crate) fn of_filesystem(figures: &VolumeStats) -> Vec<VolumeUsage> {
    let of = |usage: Usage, unit: Unit| VolumeUsage {
        available: wire(usage.available),
        total: wire(usage.total),
        used: wire(usage.used),
        unit: unit.into(),
    };
    vec![of(figures.bytes, Unit::Bytes), of(figures.inodes, Unit::Inodes)]
}
