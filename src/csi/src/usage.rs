//! Figures of a volume as CSI tells them.

use csi_proto::csi::{VolumeUsage, volume_usage::Unit};
use lazuli_host::stats::{Usage, VolumeStats};

use super::wire::wire_bytes;

/// The figures of a file system.
pub(crate) fn of_filesystem(figures: &VolumeStats) -> Vec<VolumeUsage> {
    let of = |usage: Usage, unit: Unit| VolumeUsage {
        available: wire_bytes(usage.available),
        total: wire_bytes(usage.total),
        used: wire_bytes(usage.used),
        unit: unit.into(),
    };
    vec![of(figures.bytes, Unit::Bytes), of(figures.inodes, Unit::Inodes)]
}
