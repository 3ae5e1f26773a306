//! The device of a raw block volume that is published.

use std::path::{Path, PathBuf};

use lazuli_host::{
    Deadline,
    device::{self, Device},
    mount::{self, as_mounted},
};
use lazuli_model::VolumeId;
use lazuli_staging::raw::Seen;
use lazuli_volume::StageParameters;

use super::{Node, attachment::identify, error::NodeError, refusal::Context};

/// The device that a raw block volume was staged with, if it is the one at the LUN; see [`lazuli_staging::raw`].
pub(super) async fn staged_block(
    node: &Node,
    volume: &str,
    staging: &Path,
    parameters: &StageParameters,
) -> Result<Device, NodeError> {
    let lun = parameters.lun;
    let disk = device::find_by_lun(&node.host, lun.get().into()).await.map_err(NodeError::Find)?;
    let device = part(node, disk, parameters.partition)?;
    let id: VolumeId = volume.parse().map_err(NodeError::VolumeId)?;
    let asked = identify(node, &id, lun, Deadline::after(node.config.timeouts.instance)).await;
    let seen = Seen {
        node: device::node_number(&device.path),
        mounts: mount::seen(&node.host).await.map_err(NodeError::Mount)?,
        records: node.records(volume, None).await?,
        identity: asked.identity,
        device,
    };
    let context = Context { volume, lun, staging, why: &asked.why, found: String::new(), acceptance: PathBuf::new() };
    seen.decide(&as_mounted(staging)).map_err(|refusal| context.failure(refusal))?;
    Ok(seen.device)
}

fn part(node: &Node, disk: Device, partition: Option<u32>) -> Result<Device, NodeError> {
    let Some(partition) = partition else { return Ok(disk) };
    let part = device::part(&node.host, &disk, partition).map_err(NodeError::Find)?;
    part.ok_or(NodeError::NoPartition { partition, device: disk.name })
}
