//! A disk that is not as it was when its volume was here before, or is as another volume's was.
//!
//! The instance metadata lags. It may still name a disk that somebody took off the machine while another stands at its
//! LUN already, and of the same size; for as long as it lags, it confirms the wrong disk. A node that had one of the two
//! before can tell: the file system has another UUID than the volume's had, or is gone, or has the UUID of the other's.
//! Then the metadata's word alone is not enough. It is, once it has stood for longer than the metadata lags: somebody did
//! reformat the volume, made it anew under its old name, or made it as a copy of the other.

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
pub(super) struct Doubts(Mutex<BTreeMap<String, Doubt>>);

#[derive(Debug)]
struct Doubt {
    device: Device,
    found: String,
    since: Instant,
    last: Instant,
}

impl Doubts {
    /// For how long, without a gap, the same device with the same content has stood for the volume.
    pub(super) fn for_how_long(&self, volume: &str, device: &Device, found: &str) -> Duration {
        let mut doubts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        doubts.retain(|_, doubt| now - doubt.last <= LONGEST_GAP);
        let since = match doubts.get(volume) {
            Some(doubt) if doubt.device == *device && doubt.found == found => doubt.since,
            _ => now,
        };
        let doubt = Doubt { device: device.clone(), found: found.to_owned(), since, last: now };
        doubts.insert(volume.to_owned(), doubt);
        now - since
    }

    /// Something else was said of the volume's disk, or it left: what stands for it next is looked at anew.
    pub(super) fn forget(&self, volume: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(volume);
    }

    /// Makes every doubt so much older.
    #[cfg(test)]
    pub(super) fn age(&self, by: Duration) {
        for doubt in self.0.lock().unwrap().values_mut() {
            doubt.since -= by;
        }
    }
}

/// Looks at a device for a volume, and gives what is on it; nothing where the look failed.
///
/// Refuses a device that does not hold what the volume had here before, or that holds what another volume had: for a
/// while where the metadata confirms it, or is not used on this node. For as long as the metadata is silent it refuses a
/// blank one, which would be formatted, and another's.
pub(super) async fn not_as_before(
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
                node.doubts.forget(volume);
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
    let silent = identity.doubt().filter(|_| node.imds.is_some());
    let stood = node.doubts.for_how_long(volume, device, &found);
    if let (Some(why), true) = (silent, blank || other.is_some()) {
        let (device, why) = (device.path.display().to_string(), why.to_owned());
        return Err(NodeError::Unsaid { device, found, had, why });
    }
    let limit = node.config.timeouts.doubt;
    if stood < limit {
        let (device, more) = (device.path.display().to_string(), limit - stood);
        return Err(NodeError::Doubtful { device, found, had, more });
    }
    tracing::warn!(volume, found, had, "the disk is not as expected, and nothing speaks against it any more");
    node.doubts.forget(volume);
    Ok(Some(verdict))
}
