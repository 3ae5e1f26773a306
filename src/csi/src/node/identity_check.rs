//! Compares a device's file system with the one that the node recorded for the volume.
//!
//! The instance metadata lags. It may still name a disk that has left the VM while another disk of the same size is at
//! its LUN already. While it lags, the metadata confirms the wrong disk. A node that had one of the two volumes before
//! notices it: the file system's UUID differs from the one recorded for this volume, or the file system is gone, or its
//! UUID is recorded for another volume. The device is then refused until the metadata has named the same disk for longer
//! than it lags. After that the difference has another cause: an operator reformatted the volume, made it anew under its
//! old name, or copied it from the other volume.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::{Node, attachment::Identity, error::NodeError, unseen};
use lazuli_host::{
    Deadline,
    device::Device,
    probe::{self, Verdict},
};

/// How many volumes that are here no more are remembered.
pub(super) const MOST_REMEMBERED: usize = 256;

/// How far apart two looks may be for the time between them to count: kubelet looks at least every two minutes.
const LONGEST_GAP: Duration = Duration::from_secs(5 * 60);

/// Why and since when volumes are doubted.
#[derive(Debug, Default)]
pub(super) struct IdentityChecks(Mutex<BTreeMap<String, Mismatch>>);

#[derive(Debug)]
struct Mismatch {
    device: Device,
    found: String,
    since: Instant,
    last: Instant,
}

impl IdentityChecks {
    /// For how long, without a gap, the same device with the same content has stood for the volume.
    pub(super) fn for_how_long(&self, volume: &str, device: &Device, found: &str) -> Duration {
        let mut mismatches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        mismatches.retain(|_, mismatch| now - mismatch.last <= LONGEST_GAP);
        let since = match mismatches.get(volume) {
            Some(mismatch) if mismatch.device == *device && mismatch.found == found => mismatch.since,
            _ => now,
        };
        let mismatch = Mismatch { device: device.clone(), found: found.to_owned(), since, last: now };
        mismatches.insert(volume.to_owned(), mismatch);
        now - since
    }

    /// Something else was said of the volume's disk, or it left: what stands for it next is looked at anew.
    pub(super) fn forget(&self, volume: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(volume);
    }

    /// Makes every mismatch so much older.
    #[cfg(test)]
    pub(super) fn age(&self, by: Duration) {
        for mismatch in self.0.lock().unwrap().values_mut() {
            mismatch.since -= by;
        }
    }
}

/// Looks at a device for a volume, and gives what is on it; nothing where the look failed.
///
/// Refuses a device that does not hold what the volume had here before, or that holds what another volume had: for a
/// while where the metadata confirms it, or is not used on this node. For as long as the metadata is silent it refuses a
/// blank one, which would be formatted, and another's.
pub(super) async fn check(
    node: &Node,
    volume: &str,
    device: &Device,
    identity: &Identity,
) -> Result<Option<Verdict>, NodeError> {
    let known = node.past_uuid(volume).await;
    let deadline = Deadline::after(node.config.timeouts.format);
    let verdict = match probe::probe(&node.host, device, volume, deadline).await {
        Ok(verdict) => verdict,
        // What could not be looked at is not known; the format step looks again, and might then format it.
        Err(_) if known.is_none() => {
            unseen::refuse(node, volume, device, "something that cannot be read", identity)?;
            return Ok(None);
        }
        Err(_) => return Ok(None),
    };
    let (found, blank) = match &verdict {
        Verdict::Filesystem { found, .. } => match (&found.uuid, &known) {
            (Some(uuid), Some(known)) if uuid.eq_ignore_ascii_case(known) => {
                node.identity_checks.forget(volume);
                return Ok(Some(verdict));
            }
            (uuid, _) => (format!("{} {}", found.kind, uuid.as_deref().unwrap_or_default()), false),
        },
        Verdict::Blank => ("nothing".to_owned(), true),
        // Our own unfinished work for this volume is no stranger's; whatever else is there is never formatted.
        _ => return Ok(Some(verdict)),
    };
    let uuid = match &verdict {
        Verdict::Filesystem { found, .. } => found.uuid.as_deref(),
        _ => None,
    };
    let other = match uuid {
        Some(uuid) => node.another_that_may_be_on(device, volume, uuid).await?,
        None => None,
    };
    let had = match (&other, known) {
        (Some(other), _) => format!("that file system was here as {other}'s before"),
        (None, Some(known)) => format!("this volume had the file system {known} when it was here before"),
        (None, None) => {
            // An unfinished format names the volume that it was begun for, and what is known as another volume's is
            // refused by that name later.
            let is_own = matches!(&verdict, Verdict::Filesystem { unfinished: Some(_), .. });
            let is_known = match uuid {
                Some(uuid) => !node.others_with_uuid(volume, uuid).await?.is_empty(),
                None => false,
            };
            if !is_own && !is_known {
                unseen::refuse(node, volume, device, &found, identity)?;
            }
            return Ok(Some(verdict));
        }
    };
    let silent = identity.unconfirmed().filter(|_| node.imds.is_some());
    let stood = node.identity_checks.for_how_long(volume, device, &found);
    if let (Some(why), true) = (silent, blank || other.is_some()) {
        let (device, why) = (device.path.display().to_string(), why.to_owned());
        return Err(NodeError::IdentityUnconfirmed { device, found, had, why });
    }
    let limit = node.config.timeouts.identity_check;
    if stood < limit {
        let (device, more) = (device.path.display().to_string(), limit - stood);
        return Err(NodeError::IdentityMismatch { device, found, had, more });
    }
    tracing::warn!(volume, found, had, "the disk is not as expected, and nothing speaks against it any more");
    node.identity_checks.forget(volume);
    Ok(Some(verdict))
}
