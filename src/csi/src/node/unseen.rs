//! A volume that this node has never had, while the instance metadata does not answer.
//!
//! Then nothing but the LUN and the size says which disk it is. A disk that was exchanged behind the LUN would be
//! mounted for the wrong claim, or formatted. So the call is refused until the metadata answers; kubelet repeats it,
//! and shows the refusal as an event of the pod. Where the metadata is out of reach for good, the operator can let the
//! LUN decide ([`OnSilence`]) or say that there is no metadata.
//!
//! A volume that this node had before is known by its file system's UUID, and a raw one by the device in its record.

use std::time::Duration;

use super::{Node, OnSilence, attachment::Identity, error::NodeError};
use lazuli_host::device::Device;

/// After so long the refusal says what to do about it: before, it may be one throttled answer.
const LONG: Duration = Duration::from_secs(60);

/// Refuses a device with this content for a volume of which the node remembers no content.
pub(super) fn refuse(
    node: &Node,
    volume: &str,
    device: &Device,
    found: &str,
    identity: &Identity,
) -> Result<(), NodeError> {
    let Identity::Silent(why) = identity else {
        node.identity_checks.forget(volume);
        return Ok(());
    };
    if node.config.on_silence == OnSilence::Tolerate {
        tracing::warn!(volume, device = device.name, why, "no metadata confirms the disk; its LUN and size decide");
        return Ok(());
    }
    let (device_path, why) = (device.path.display().to_string(), why.clone());
    Err(match node.identity_checks.for_how_long(volume, device, found) {
        stood if stood < LONG => NodeError::Unseen { device: device_path, why },
        _ => NodeError::UnseenForLong { device: device_path, why },
    })
}

/// The same for a raw block volume, whose record names the device that it was staged with.
pub(super) async fn refuse_raw(
    node: &Node,
    volume: &str,
    device: &Device,
    identity: &Identity,
) -> Result<(), NodeError> {
    if node.recall(volume).await.is_some_and(|record| record.device == Some(device.number)) {
        return Ok(());
    }
    refuse(node, volume, device, "a raw device", identity)
}
