//! What a volume's `perfProfile` asks of its disk.

use lazuli_host::{device::Device, tuning};
use lazuli_model::{Gib, size};
use lazuli_volume::{PerfProfile, StageParameters, basic_profile};

use super::{Node, error::NodeError, info};
use crate::server::chain;

/// Applies the profile of the volume to the whole disk.
///
/// The settings of `advanced` are the user's own: one that cannot be written is an error. Those of `basic` are ours,
/// for the disk at hand: what the kernel does not take is reported, and the volume is used without it.
pub(super) async fn apply(node: &Node, disk: &Device, parameters: &StageParameters) -> Result<(), NodeError> {
    match parameters.perf_profile {
        PerfProfile::None => {}
        PerfProfile::Advanced => {
            for setting in &parameters.device_settings {
                tuning::set(&node.host, disk, &setting.path, &setting.value).await.map_err(NodeError::Setting)?;
            }
        }
        PerfProfile::Basic => basic(node, disk, parameters).await,
    }
    Ok(())
}

async fn basic(node: &Node, disk: &Device, parameters: &StageParameters) {
    // The device shows the size that the disk has now; the context that with which it was made.
    let size = Gib::holding(disk.size_bytes).or(parameters.requested_size);
    let (Some(sku), Some(size)) = (parameters.sku, size) else {
        tracing::warn!(device = disk.name, "perfProfile basic needs skuName, which the volume does not tell");
        return;
    };
    let vm = info::vm_size(node).await.and_then(|vm_size| size::disk_throughput(&vm_size));
    let Some(settings) = basic_profile(sku, size, (parameters.iops, parameters.mbps), vm) else {
        tracing::info!(device = disk.name, %sku, "perfProfile basic has no settings for this type of disk");
        return;
    };
    for setting in settings {
        if let Err(error) = tuning::set(&node.host, disk, &setting.path, &setting.value).await {
            tracing::warn!(device = disk.name, error = chain(&error), "a setting of perfProfile basic is left out");
        }
    }
}
