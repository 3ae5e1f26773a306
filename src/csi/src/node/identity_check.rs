//! Compares a device with what the node recorded of the volume, and asks [`identity`](super::identity) what follows.
//!
//! The instance metadata lags. It may still name a disk that has left the VM while another disk of the same size is at
//! its LUN already. While it lags, the metadata confirms the wrong disk. A node that had one of the two volumes before
//! notices it: the file system's UUID differs from the one recorded for this volume, or the file system is gone, or its
//! UUID is recorded for another volume. The device is then refused until the metadata has named the same disk for longer
//! than it lags. After that the difference has another cause: an operator reformatted the volume, made it anew under its
//! old name, or copied it from the other volume.
//!
//! Where the metadata does not confirm the disk, such a device is refused for good, unless an operator
//! [accepts](super::acceptance) it. A volume that the node has never had waits for the metadata, too; there the operator
//! can let LUN and size decide ([`OnSilence`](super::OnSilence)).

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use lazuli_plan::model::VolumeId;
use tokio::time::Instant;

use super::{
    Node,
    attachment::Identity,
    error::NodeError,
    identity::{Content, Decision, Evidence, Others, decide},
};
use lazuli_host::{
    Deadline,
    device::Device,
    format::FormatError,
    probe::{self, Filesystem, Verdict},
};

/// How many volumes that are here no more are remembered.
pub(super) const MOST_REMEMBERED: usize = 256;

/// How far apart two looks may be for the time between them to count: kubelet looks at least every two minutes.
const LONGEST_GAP: Duration = Duration::from_secs(5 * 60);

/// After so long a refusal for want of metadata says what to do about it: before, it may be one throttled answer.
const LONG: Duration = Duration::from_secs(60);

/// Why and since when devices are not certain to be the disks of their volumes.
#[derive(Debug, Default)]
pub(super) struct IdentityChecks(Mutex<BTreeMap<String, Mismatch>>);

/// Why and since when a device is refused.
#[derive(Debug)]
struct Mismatch {
    device: Device,
    found: String,
    since: Instant,
    last: Instant,
}

impl IdentityChecks {
    fn mismatches(&self) -> MutexGuard<'_, BTreeMap<String, Mismatch>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For how long, without a gap, the same device with the same content has stood for the volume.
    fn for_how_long(&self, volume: &str, device: &Device, found: &str) -> Duration {
        let mut mismatches = self.mismatches();
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

    /// The metadata contradicted, or the disk left: what stands for the volume next is looked at anew.
    pub(super) fn forget(&self, volume: &str) {
        self.mismatches().remove(volume);
    }

    /// Makes every mismatch so much older.
    #[cfg(test)]
    pub(super) fn age(&self, by: Duration) {
        for mismatch in self.mismatches().values_mut() {
            mismatch.since -= by;
        }
    }
}

/// A device that may be used for the volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Checked {
    /// What is on it.
    pub(super) verdict: Verdict,
    /// What an operator has accepted for the volume, to be used up with it.
    pub(super) accepted: Option<String>,
}

/// Looks at a device for a volume, and gives what is on it.
///
/// # Errors
/// It is not certain that the device is the volume's disk; see [`decide`].
pub(super) async fn check(
    node: &Node,
    volume: &VolumeId,
    device: &Device,
    identity: &Identity,
) -> Result<Checked, NodeError> {
    let deadline = Deadline::after(node.config.timeouts.format);
    // What could not be looked at is neither mounted nor formatted.
    let verdict = probe::probe(&node.host, device, volume.as_str(), deadline).await.map_err(|source| {
        NodeError::Format(Box::new(FormatError::Probe { device: device.path.display().to_string(), source }))
    })?;
    let (found, filesystem) = match &verdict {
        Verdict::Blank => {
            (Found { content: Content::Blank, what: "nothing".to_owned(), key: "blank".to_owned() }, None)
        }
        Verdict::Ours(_) => (Found::plain(Content::OwnFormat), None),
        Verdict::Filesystem { found, unfinished } => {
            let uuid = found.uuid.as_deref();
            let what = format!("{} {}", found.kind, uuid.unwrap_or("without a UUID"));
            let key = uuid.unwrap_or(&found.kind).to_lowercase();
            (Found { content: Content::Unknown, what, key }, Some((found, unfinished.is_some())))
        }
        Verdict::PartitionTable { .. } | Verdict::Foreign { .. } | Verdict::Ambiguous { .. } => {
            (Found::plain(Content::Unusable), None)
        }
    };
    let accepted = admit(node, volume, device, identity, found, filesystem).await?;
    Ok(Checked { verdict, accepted })
}

/// The same for a raw block volume, whose record names the device that it was staged with.
///
/// # Errors
/// See [`check`].
pub(super) async fn check_raw(
    node: &Node,
    volume: &VolumeId,
    device: &Device,
    identity: &Identity,
) -> Result<(), NodeError> {
    let content = match node.is_recorded(volume.as_str(), device).await {
        true => Content::Last,
        false => Content::Raw,
    };
    admit(node, volume, device, identity, Found::plain(content), None).await.map(drop)
}

/// What is on a device.
struct Found {
    content: Content,
    /// In words.
    what: String,
    /// In the name of the file by which an operator accepts it.
    key: String,
}

impl Found {
    fn plain(content: Content) -> Self {
        Self { content, what: String::new(), key: String::new() }
    }
}

/// Gathers what the decision rests on, and carries it out. Gives what an operator has accepted.
async fn admit(
    node: &Node,
    volume: &VolumeId,
    device: &Device,
    identity: &Identity,
    found: Found,
    filesystem: Option<(&Filesystem, bool)>,
) -> Result<Option<String>, NodeError> {
    let id = volume.as_str();
    let last = node.past_uuid(id).await;
    let Found { mut content, what, key } = found;
    let mut other = None;
    if let Some((filesystem, is_own)) = filesystem {
        let uuid = filesystem.uuid.as_deref();
        let (others, name) = match uuid {
            Some(uuid) => node.others_with(id, uuid, device).await?,
            None => (Others::default(), None),
        };
        content = Content::of_filesystem(uuid, last.as_deref(), others);
        // An unfinished format names the volume that it was begun for.
        if is_own && content == Content::Unknown && last.is_none() {
            content = Content::OwnFormat;
        }
        other = name;
    }
    let stood = node.identity_checks.for_how_long(id, device, &what);
    let lag = node.config.timeouts.identity_check;
    let acceptance = node.acceptances.path(volume, &key);
    let evidence = Evidence {
        metadata: identity.metadata,
        content,
        was_here: last.is_some(),
        outlasts_lag: stood >= lag,
        accepted: !key.is_empty() && node.acceptances.is_given(&acceptance).await,
        on_silence: node.config.on_silence,
    };
    let had = match (content, &other, &last) {
        (Content::OfAnother | Content::CopyOfAnother | Content::LastAndCopied, Some(other), _) => {
            format!("that file system was here as {other}'s before")
        }
        (_, _, Some(last)) => format!("this volume had the file system {last} when it was here before"),
        (_, _, None) => "this node has never had the volume".to_owned(),
    };
    let path = device.path.display().to_string();
    let why = identity.unconfirmed().unwrap_or_default().to_owned();
    match decide(&evidence) {
        Decision::Use if is_surprise(content, last.is_some()) => {
            tracing::warn!(
                volume = id,
                found = what,
                had,
                "the disk is not as expected, and the metadata has confirmed it for longer than it lags"
            );
        }
        Decision::Use => {}
        Decision::UseByLun => {
            tracing::warn!(
                volume = id,
                device = device.name,
                why,
                "no metadata confirms the disk; LUN and size decide"
            );
        }
        Decision::UseAsAccepted => {
            let file = acceptance.display().to_string();
            tracing::warn!(volume = id, found = what, had, file, "the disk is used because an operator accepted it");
            node.identity_checks.forget(id);
            return Ok(Some(key));
        }
        Decision::WaitForLag => {
            return Err(NodeError::IdentityMismatch { device: path, found: what, had, more: lag - stood });
        }
        Decision::Mismatch => {
            return Err(NodeError::IdentityUnconfirmed { device: path, found: what, had, why, acceptance });
        }
        Decision::Unconfirmed if stood < LONG => return Err(NodeError::Unseen { device: path, why }),
        Decision::Unconfirmed => return Err(NodeError::UnseenForLong { device: path, why }),
    }
    node.identity_checks.forget(id);
    Ok(None)
}

/// Whether this content speaks against the disk, also where the metadata confirms it.
fn is_surprise(content: Content, was_here: bool) -> bool {
    match content {
        Content::OfAnother => true,
        Content::Blank | Content::Unknown | Content::CopyOfAnother => was_here,
        _ => false,
    }
}
