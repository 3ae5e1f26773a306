//! To which volume a staged or published device belongs: looks at what [`lazuli_staging::owner`] asks for.

use lazuli_host::{
    Deadline,
    device::{self, Device},
};
use lazuli_model::VolumeId;
use lazuli_staging::owner::{Look, Next, Seen};

use super::{Node, attachment::locate};

/// Whether the device is the volume's, as far as this node can tell.
pub(super) async fn belongs_to(node: &Node, volume: &str, device: &Device) -> bool {
    let mut seen = Seen::default();
    loop {
        match seen.next(volume, device) {
            Next::Look(Look::Own) => seen.own = Some(node.recall(volume).await),
            Next::Look(Look::Listed) => seen.listed = Some(listed(node, volume).await),
            Next::Look(Look::Records) => seen.records = Some(node.all_records().await.into_values().collect()),
            Next::Own => return true,
            Next::Other => return false,
        }
    }
}

/// The disk at the LUN at which the metadata lists the volume.
async fn listed(node: &Node, volume: &str) -> Option<Device> {
    let id = volume.parse::<VolumeId>().ok()?;
    let quick = Deadline::after(node.config.timeouts.instance);
    let lun = locate(node.imds.as_ref(), &id, quick).await.lun()?;
    device::find_by_lun(&node.host, lun.get().into()).await.ok()
}
