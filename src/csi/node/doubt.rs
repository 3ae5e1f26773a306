//! A disk that is not as it was when its volume was here before.
//!
//! The instance metadata lags. It may still name a disk that somebody took off the machine while another stands at its
//! LUN already, and of the same size; for as long as it lags, it confirms the wrong disk. A node that had the volume
//! before can tell: the file system has another UUID, or is gone. Then the metadata's word alone is not enough. It is,
//! once it has stood for longer than the metadata lags: somebody did reformat the volume, or made it anew under its
//! old name.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::{Node, attachment::Identity, error::NodeError};
use crate::host::{
    Deadline,
    device::Device,
    probe::{self, Verdict},
};

/// How many volumes that are here no more are remembered.
pub(super) const MOST_REMEMBERED: usize = 256;

/// Since when each volume has been doubted, and with which device.
#[derive(Debug, Default)]
pub(super) struct Doubts(Mutex<BTreeMap<String, (Device, Instant)>>);

impl Doubts {
    /// For how long the same device has stood for the volume.
    fn for_how_long(&self, volume: &str, device: &Device) -> Duration {
        let mut doubts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let since = match doubts.get(volume) {
            Some((same, since)) if same.number == device.number => *since,
            _ => now,
        };
        doubts.insert(volume.to_owned(), (device.clone(), since));
        now - since
    }

    /// Makes every doubt so much older.
    #[cfg(test)]
    pub(super) fn age(&self, by: Duration) {
        for (_, since) in self.0.lock().unwrap().values_mut() {
            *since -= by;
        }
    }

    fn dispelled(&self, volume: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(volume);
    }
}

/// Refuses, for a while, a device that the metadata confirms and that does not hold what the volume had here before.
/// Without the metadata's word the other checks decide.
pub(super) async fn not_as_before(
    node: &Node,
    volume: &str,
    device: &Device,
    identity: &Identity,
) -> Result<(), NodeError> {
    let Identity::Confirmed(_) = identity else { return Ok(()) };
    let Some(known) = node.past_uuid(volume).await else { return Ok(()) };
    let deadline = Deadline::after(node.config.timeouts.format);
    let found = match probe::probe(&node.host, device, volume, deadline).await {
        Ok(Verdict::Filesystem { found, .. }) => match found.uuid {
            Some(uuid) if uuid.eq_ignore_ascii_case(&known) => {
                node.doubts.dispelled(volume);
                return Ok(());
            }
            uuid => format!("{} {}", found.kind, uuid.unwrap_or_default()),
        },
        Ok(Verdict::Blank) => "nothing".to_owned(),
        // Our own unfinished work for this volume is no stranger's; whatever else is there is never formatted.
        _ => return Ok(()),
    };
    let limit = node.config.timeouts.doubt;
    let stood = node.doubts.for_how_long(volume, device);
    if stood < limit {
        let (device, more) = (device.path.display().to_string(), limit - stood);
        return Err(NodeError::Doubtful { device, found, known, more });
    }
    tracing::warn!(volume, found, known, "the volume is not as it was here before; the metadata stands by the disk");
    node.doubts.dispelled(volume);
    Ok(())
}
