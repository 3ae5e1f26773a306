//! Volume capabilities and topology between the wire and the plan.

use std::collections::{BTreeMap, HashMap};

use csi_proto::csi::{Topology, VolumeCapability, volume_capability};
use lazuli_volume::{AccessMode, AccessType, Capability};

/// A capability as the plan takes it.
pub(crate) fn capability(wire: &VolumeCapability) -> Capability {
    use volume_capability::access_mode::Mode;
    let mode = wire.access_mode.as_ref().map_or(Mode::Unknown, volume_capability::AccessMode::mode);
    Capability {
        access_mode: match mode {
            Mode::Unknown => AccessMode::Unknown,
            Mode::SingleNodeWriter => AccessMode::SingleNodeWriter,
            Mode::SingleNodeReaderOnly => AccessMode::SingleNodeReaderOnly,
            Mode::SingleNodeSingleWriter => AccessMode::SingleNodeSingleWriter,
            Mode::SingleNodeMultiWriter => AccessMode::SingleNodeMultiWriter,
            Mode::MultiNodeReaderOnly => AccessMode::MultiNodeReaderOnly,
            Mode::MultiNodeSingleWriter => AccessMode::MultiNodeSingleWriter,
            Mode::MultiNodeMultiWriter => AccessMode::MultiNodeMultiWriter,
        },
        access_type: wire.access_type.as_ref().map(|access_type| match access_type {
            volume_capability::AccessType::Block(_) => AccessType::Block,
            volume_capability::AccessType::Mount(mount) => {
                AccessType::Mount { fs_type: mount.fs_type.clone(), flags: mount.mount_flags.clone() }
            }
        }),
    }
}

/// A map of the wire in a stable order.
pub(crate) fn ordered(map: HashMap<String, String>) -> BTreeMap<String, String> {
    map.into_iter().collect()
}

/// The segments of a list of topologies.
pub(crate) fn segments(topologies: &[Topology]) -> Vec<BTreeMap<String, String>> {
    topologies.iter().map(|topology| ordered(topology.segments.clone())).collect()
}
