//! Compares a device with what the node recorded of the volume, and asks [`lazuli_storage::device_identity`] what follows.
//!
//! The instance metadata lags. It may still name a disk that has left the VM while another disk of the same size is at
//! its LUN already. While it lags, the metadata confirms the wrong disk. A node that had one of the two volumes before
//! notices it: the file system's UUID differs from the one recorded for this volume, or the file system is gone, or its
//! UUID is recorded for another volume. The device is then refused until the metadata has named the same disk for longer
//! than it lags. After that the difference has another cause: an operator reformatted the volume, made it anew under its
//! old name, or copied it from the other volume.
//!
//! Where the metadata does not confirm the disk, such a device is refused for good, unless an operator
//! [accepts](super::acceptance) it. So is every device at a LUN where the metadata has named another disk, until it names
//! the volume there. A volume that the node has never had waits for the metadata, too; there the operator can let LUN and
//! size decide ([`OnSilence`](super::OnSilence)).

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use lazuli_host::{
    Deadline,
    device::Device,
    format::FormatError,
    probe::{self, Filesystem, Verdict},
};
use lazuli_model::{Lun, VolumeId};
use lazuli_storage::device_identity::{Content, Contradiction, Decision, Evidence, Metadata, Others, decide};
use tokio::time::Instant;

use super::{Node, attachment::Identity, error::NodeError};

/// How many volumes that are here no more are remembered.
pub(super) const MOST_REMEMBERED: usize = 256;

/// How far apart two looks may be for the time between them to count: kubelet looks at least every two minutes.
const LONGEST_GAP: Duration = Duration::from_secs(5 * 60);

/// Why and since when devices are not certain to be the disks of their volumes.
#[derive(Debug, Default)]
pub(super) struct IdentityChecks(Mutex<BTreeMap<String, Mismatch>>);

/// Why and since when a device is refused.
#[derive(Debug)]
struct Mismatch {
    device: Device,
    found: String,
    since: Instant,
    /// Since when the metadata confirms it.
    confirmed: Option<Instant>,
    last: Instant,
}

/// For how long a device has stood for a volume, and for how long of that the metadata has confirmed it.
struct Stood {
    seen_for: Duration,
    confirmed_for: Duration,
}

impl IdentityChecks {
    fn mismatches(&self) -> MutexGuard<'_, BTreeMap<String, Mismatch>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a look at a device, and gives for how long, without a gap, the same device with the same content has stood
    /// for the volume. The metadata confirms it from its first confirmation on: what passes before, in silence, tells
    /// nothing of whether its answer is out of date.
    fn look(&self, volume: &str, device: &Device, found: &str, metadata: Metadata) -> Stood {
        let mut mismatches = self.mismatches();
        let now = Instant::now();
        mismatches.retain(|_, mismatch| now - mismatch.last <= LONGEST_GAP);
        let before = mismatches.get(volume).filter(|before| before.device == *device && before.found == found);
        let since = before.map_or(now, |before| before.since);
        let confirms = matches!(metadata, Metadata::Confirms(_));
        let confirmed = before.and_then(|before| before.confirmed).or(confirms.then_some(now));
        let mismatch = Mismatch { device: device.clone(), found: found.to_owned(), since, confirmed, last: now };
        mismatches.insert(volume.to_owned(), mismatch);
        Stood { seen_for: now - since, confirmed_for: confirmed.map_or(Duration::ZERO, |confirmed| now - confirmed) }
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
            mismatch.confirmed = mismatch.confirmed.map(|confirmed| confirmed - by);
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

/// Looks at a device for a volume at this LUN, and gives what is on it.
///
/// # Errors
/// It is not certain that the device is the volume's disk; see [`decide`].
pub(super) async fn check(
    node: &Node,
    (volume, lun): (&VolumeId, Lun),
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
        Verdict::Ours(_) => (Found::plain(Content::OwnFormat, "an unfinished format", "unfinished"), None),
        Verdict::Filesystem { found, unfinished } => {
            let uuid = found.uuid.as_deref();
            let what = format!("{} {}", found.kind, uuid.unwrap_or("without a UUID"));
            let key = uuid.unwrap_or(&found.kind).to_lowercase();
            (Found { content: Content::Unknown, what, key }, Some((found, unfinished.is_some())))
        }
        Verdict::PartitionTable { .. } | Verdict::Foreign { .. } | Verdict::Ambiguous { .. } => {
            (Found::plain(Content::Unusable, "what is no file system", "unusable"), None)
        }
    };
    let accepted = admit(node, (volume, lun), device, identity, found, filesystem).await?;
    Ok(Checked { verdict, accepted })
}

/// The same for a raw block volume, whose record names the device that it was staged with. Gives what an operator has
/// accepted.
///
/// # Errors
/// See [`check`].
pub(super) async fn check_raw(
    node: &Node,
    (volume, lun): (&VolumeId, Lun),
    device: &Device,
    identity: &Identity,
) -> Result<Option<String>, NodeError> {
    let content = match node.is_recorded(volume.as_str(), device).await {
        true => Content::Last,
        false => Content::Raw,
    };
    admit(node, (volume, lun), device, identity, Found::plain(content, "a raw volume", "raw"), None).await
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
    fn plain(content: Content, what: &str, key: &str) -> Self {
        Self { content, what: what.to_owned(), key: key.to_owned() }
    }
}

/// Gathers what the decision rests on, and carries it out. Gives what an operator has accepted.
async fn admit(
    node: &Node,
    (volume, lun): (&VolumeId, Lun),
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
    let Stood { seen_for, confirmed_for } = node.identity_checks.look(id, device, &what, identity.metadata);
    let key = although(key, identity.contradiction.as_ref());
    let acceptance = node.acceptances.path(volume, &key);
    let evidence = Evidence {
        metadata: identity.metadata,
        contradicted: identity.contradiction.is_some(),
        content,
        was_here: last.is_some(),
        seen_for,
        confirmed_for,
        lag: node.config.timeouts.identity_check,
        accepted: node.acceptances.is_given(&acceptance).await,
        on_silence: node.config.on_silence,
    };
    let had = remembered(content, other.as_deref(), last.as_deref());
    let path = device.path.display().to_string();
    let why = identity.unconfirmed().unwrap_or_default().to_owned();
    match decide(&evidence) {
        Decision::UseAsConfirmed => {
            tracing::warn!(
                volume = id,
                found = what,
                had,
                "the disk is not as expected, and the metadata has confirmed it for longer than it lags"
            );
        }
        Decision::Use => {}
        Decision::UseByLun => {
            tracing::warn!(volume = id, device = device.name, why, "no metadata confirms it; LUN and size decide");
        }
        Decision::UseAsAccepted => {
            let file = acceptance.display().to_string();
            tracing::warn!(volume = id, found = what, had, file, "the disk is used because an operator accepted it");
            node.identity_checks.forget(id);
            return Ok(Some(key));
        }
        Decision::WaitForLag(more) => {
            return Err(NodeError::IdentityMismatch { device: path, found: what, had, more });
        }
        Decision::Contradicted => {
            return Err(NodeError::Contradicted {
                wanted: id.into(),
                named: named(identity.contradiction.as_ref(), lun).into(),
                device: path.into(),
                found: what,
                why: why.into(),
                acceptance,
            });
        }
        Decision::Mismatch => {
            return Err(NodeError::IdentityUnconfirmed { device: path, found: what, had, why, acceptance });
        }
        Decision::Unconfirmed => return Err(NodeError::Unseen { device: path, why }),
        Decision::UnconfirmedForLong => return Err(NodeError::UnseenForLong { device: path, why }),
    }
    node.identity_checks.forget(id);
    Ok(None)
}

/// What the node remembers of the volume or of its content, in words.
fn remembered(content: Content, other: Option<&str>, last: Option<&str>) -> String {
    match (content, other, last) {
        (Content::OfAnother | Content::CopyOfAnother | Content::LastAndCopied, Some(other), _) => {
            format!("that file system was here as {other}'s before")
        }
        (_, _, Some(last)) => format!("this volume had the file system {last} when it was here before"),
        (_, _, None) => "this node has never had the volume".to_owned(),
    }
}

/// The longest part of a disk's name in the name of a file; with the longest names that Azure takes it is one file name.
const LONGEST_NAME: usize = 32;

/// What an operator accepts: the content, and what the metadata said against it. A word that was given before the
/// metadata said so is none about it.
fn although(content: String, contradiction: Option<&Contradiction>) -> String {
    match contradiction {
        None => content,
        Some(Contradiction::OtherDisk(found)) => {
            let name = found.rsplit('/').next().unwrap_or_default();
            let name: String = name.chars().take(LONGEST_NAME).collect();
            format!("{content}.although-{name}")
        }
        Some(Contradiction::OtherLun(lun)) => format!("{content}.although-lun-{lun}"),
    }
}

/// What the metadata said against a volume at its LUN, in words.
fn named(contradiction: Option<&Contradiction>, lun: Lun) -> String {
    match contradiction {
        None => format!("another disk at LUN {lun}"),
        Some(Contradiction::OtherDisk(found)) => format!("{found} at LUN {lun}"),
        Some(Contradiction::OtherLun(found)) => format!("LUN {found} as its place, not LUN {lun}"),
    }
}

#[cfg(test)]
mod tests {
    use lazuli_host::device_number::DeviceNumber;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn device(minor: u32) -> Device {
        Device {
            name: format!("sd{minor}"),
            path: format!("/dev/sd{minor}").into(),
            number: DeviceNumber { major: 8, minor },
            size_bytes: 1 << 30,
            lun: Some(3),
            scsi: None,
            read_only: false,
            sequence: None,
        }
    }

    /// Silence that lasts longer than the metadata lags makes its first answer no older confirmation.
    #[tokio::test(start_paused = true)]
    async fn time_that_passes_in_silence_confirms_no_device() {
        let checks = IdentityChecks::default();
        let confirms = Metadata::Confirms(None);
        let confirmed = |minor: u32, found: &str, metadata: Metadata| {
            checks.look("a", &device(minor), found, metadata).confirmed_for
        };
        for metadata in [Metadata::Silent, Metadata::Unlisted, Metadata::Silent] {
            assert_eq!(confirmed(1, "x", metadata), Duration::ZERO);
            tokio::time::advance(4 * MINUTE).await;
        }
        assert_eq!(checks.look("a", &device(1), "x", confirms).seen_for, 12 * MINUTE);
        assert_eq!(confirmed(1, "x", confirms), Duration::ZERO);
        tokio::time::advance(MINUTE).await;
        // It goes on in silence, and from the beginning with another content, another device, or after a gap.
        assert_eq!(confirmed(1, "x", Metadata::Silent), MINUTE);
        assert_eq!(confirmed(1, "x", confirms), MINUTE);
        assert_eq!(confirmed(1, "y", confirms), Duration::ZERO);
        tokio::time::advance(MINUTE).await;
        assert_eq!(confirmed(1, "y", confirms), MINUTE);
        assert_eq!(confirmed(2, "y", confirms), Duration::ZERO);
        tokio::time::advance(LONGEST_GAP + MINUTE).await;
        assert_eq!(confirmed(2, "y", confirms), Duration::ZERO);
    }

    #[test]
    fn an_operator_s_word_names_what_the_metadata_said() {
        let disk = Contradiction::OtherDisk(format!("/subscriptions/s/disks/{}", "b".repeat(80)));
        let lun = Contradiction::OtherLun(Lun::try_from(5).unwrap());
        assert_eq!(although("blank".into(), None), "blank");
        assert_eq!(although("blank".into(), Some(&disk)), format!("blank.although-{}", "b".repeat(32)));
        assert_eq!(although("blank".into(), Some(&lun)), "blank.although-lun-5");
    }
}
