//! To which volume a staged or published device belongs.
//!
//! kubelet names a volume and a path, and pairs them itself. A call that names one volume and the path of another
//! must neither grow the other's disk nor show it to a pod, so the pair is checked before anything is done with it.

use lazuli_host::{
    Deadline,
    device::{self, Device},
    volume_records::RecordedDevice,
};
use lazuli_model::VolumeId;

use super::{Node, attachment::locate, device::is_part_of};

/// Whether the device is the volume's, as far as this node can tell.
///
/// What it recorded when it staged the volume settles it. Where that does not (another driver staged it, and left no
/// record or has made ours stale), the instance metadata does. Where that is silent too, a record that speaks against
/// it counts, and no record at all does not.
pub(super) async fn belongs_to(node: &Node, volume: &str, device: &Device) -> bool {
    if node.recall(volume).await.is_some_and(|record| record.names(device) != RecordedDevice::Other) {
        return true;
    }
    if let Ok(id) = volume.parse::<VolumeId>() {
        let quick = Deadline::after(node.config.timeouts.instance);
        if let Some(lun) = locate(node.imds.as_ref(), &id, quick).await
            && let Ok(disk) = device::find_by_lun(&node.host, lun.get().into()).await
        {
            return disk.number == device.number || is_part_of(&device.name, &disk.name);
        }
    }
    let speaks_against =
        |recorded: &str, at: Option<_>| recorded.eq_ignore_ascii_case(volume) || at == Some(device.number);
    !node.all_records().await.values().any(|record| speaks_against(&record.volume_id, record.device))
}
