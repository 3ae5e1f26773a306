//! Which disk is behind a LUN, by the instance metadata.
//!
//! A LUN alone names nothing: a disk that vanished out of band leaves its LUN to another. The instance metadata tells
//! the disk's id, but lags behind by seconds. So another id, or the disk at another LUN, is waited out and then
//! refused. An absent id is waited for; what follows when it stays absent, or when the metadata does not answer, is
//! decided in [`lazuli_storage::device_identity`].

use std::time::Duration;

use lazuli_azure::imds::{Imds, InstanceDisk, InstanceDiskSource};
use lazuli_host::Deadline;
use lazuli_model::{Gib, Lun, VolumeId};
use lazuli_storage::device_identity::{Answer, Contradiction, Heard, Metadata};

use super::{Node, error::NodeError};

/// How often the metadata is asked while it lags. The service takes five questions a second; a node stages many
/// volumes at once, and they share the answers.
const PAUSE: Duration = Duration::from_secs(1);
/// How long one question may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// After so many unanswered questions the metadata is taken as not there.
const UNANSWERED: u32 = 3;

/// What the metadata says of the volume at its LUN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) metadata: Metadata,
    /// What it said against the volume at the LUN since it named the volume there.
    pub(super) contradiction: Option<Contradiction>,
    /// Why it does not confirm the disk; nothing where it does.
    why: String,
}

impl Identity {
    /// Why the metadata does not confirm the disk.
    pub(super) fn unconfirmed(&self) -> Option<&str> {
        (!matches!(self.metadata, Metadata::Confirms(_))).then_some(&*self.why)
    }

    /// The size of the disk, where the metadata confirms the disk and says it.
    pub(super) fn size(&self) -> Option<Gib> {
        match self.metadata {
            Metadata::Confirms(size) => size,
            Metadata::Contradicts | Metadata::Unlisted | Metadata::Silent | Metadata::Unused => None,
        }
    }

    /// Refuses a volume whose device nothing speaks for but that it is in use already, where the metadata has named
    /// another disk and does not answer.
    ///
    /// # Errors
    /// [`NodeError::OtherDisk`] or [`NodeError::OtherLun`].
    pub(super) fn not_contradicted_in_silence(&self, volume: &VolumeId, lun: Lun) -> Result<(), NodeError> {
        match &self.contradiction {
            Some(contradiction) if self.metadata == Metadata::Silent => Err(contradicts(contradiction, volume, lun)),
            _ => Ok(()),
        }
    }
}

fn contradicts(contradiction: &Contradiction, volume: &VolumeId, lun: Lun) -> NodeError {
    let wanted = volume.to_string();
    match contradiction {
        Contradiction::OtherDisk(found) => NodeError::OtherDisk { lun, found: found.clone(), wanted },
        Contradiction::OtherLun(found) => NodeError::OtherLun { wanted, found: *found, told: lun },
    }
}

fn judge(volume: &VolumeId, lun: Lun, disks: &[InstanceDisk]) -> Answer {
    let is_it = |disk: &&InstanceDisk| matches!(&disk.source, InstanceDiskSource::Managed(id) if id == volume.disk());
    if let Some(disk) = disks.iter().find(|disk| disk.lun == lun) {
        return match &disk.source {
            InstanceDiskSource::Managed(id) if id == volume.disk() => Answer::Here(disk.size),
            InstanceDiskSource::Managed(id) => Answer::Other(id.to_string()),
            InstanceDiskSource::Vhd(uri) => Answer::Other(uri.clone()),
            InstanceDiskSource::Unknown => Answer::Unlisted,
        };
    }
    match disks.iter().find(is_it) {
        Some(disk) => Answer::Elsewhere(disk.lun),
        None => Answer::Unlisted,
    }
}

/// Asks the metadata until it confirms the volume at the LUN, or the deadline passes.
///
/// # Errors
/// [`NodeError::OtherDisk`] or [`NodeError::OtherLun`] where that is what it says.
pub(super) async fn identify(
    node: &Node,
    volume: &VolumeId,
    lun: Lun,
    deadline: Deadline,
) -> Result<Identity, NodeError> {
    let Some(imds) = &node.imds else {
        let why = "no instance metadata service is used".to_owned();
        return Ok(Identity { metadata: Metadata::Unused, contradiction: None, why });
    };
    let mut heard = Heard::after(node.contradictions.of(volume, lun));
    let mut why = format!("it lists no disk at LUN {lun}");
    let metadata = loop {
        match tokio::time::timeout(PATIENCE, imds.refresh()).await {
            Ok(Ok(instance)) => heard.answered(judge(volume, lun, &instance.data_disks)),
            Ok(Err(error)) => {
                heard.unanswered();
                why = crate::server::chain(&error);
            }
            Err(_) => {
                heard.unanswered();
                why = format!("no answer within {PATIENCE:?}");
            }
        }
        let metadata = heard.metadata();
        if matches!(metadata, Metadata::Confirms(_)) || deadline.passed() || heard.silence() >= UNANSWERED {
            break metadata;
        }
        tokio::time::sleep_until(deadline.capped(PAUSE).instant()).await;
    };
    let contradiction = heard.contradiction().cloned();
    node.contradictions.note(volume, lun, contradiction.clone()).await;
    match (metadata, &contradiction) {
        (Metadata::Contradicts, Some(contradiction)) => return Err(contradicts(contradiction, volume, lun)),
        (Metadata::Unlisted, _) => why = format!("it lists no disk at LUN {lun}"),
        _ => {}
    }
    let identity = Identity { metadata, contradiction, why };
    if let Some(why) = identity.unconfirmed() {
        tracing::warn!(%volume, %lun, why, "the instance metadata does not confirm the disk");
    }
    Ok(identity)
}

/// Where the metadata has the volume, as far as it says without waiting.
pub(super) async fn locate(imds: Option<&Imds>, volume: &VolumeId, deadline: Deadline) -> Option<Lun> {
    let instance = tokio::time::timeout_at(deadline.instant(), imds?.refresh()).await.ok()?.ok()?;
    let is_it = |disk: &&InstanceDisk| matches!(&disk.source, InstanceDiskSource::Managed(id) if id == volume.disk());
    instance.data_disks.iter().find(is_it).map(|disk| disk.lun)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> String {
        format!("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/{name}")
    }

    fn disk(lun: i64, name: &str) -> InstanceDisk {
        InstanceDisk {
            lun: Lun::try_from(lun).unwrap(),
            source: InstanceDiskSource::Managed(id(name).to_uppercase().parse().unwrap()),
            name: name.to_owned(),
            size: Some(Gib::new(4)),
            bytes: None,
        }
    }

    fn sight(disks: &[InstanceDisk]) -> Answer {
        judge(&id("a").parse().unwrap(), Lun::try_from(3).unwrap(), disks)
    }

    #[test]
    fn the_disk_s_id_decides_in_any_letter_case() {
        assert_eq!(sight(&[disk(3, "a"), disk(4, "b")]), Answer::Here(Some(Gib::new(4))));
    }

    #[test]
    fn another_disk_at_the_lun_wins_over_everything_else() {
        let Answer::Other(found) = sight(&[disk(3, "b"), disk(4, "a")]) else { panic!("not refused") };
        assert!(found.eq_ignore_ascii_case(&id("b")));
    }

    #[test]
    fn the_disk_at_another_lun_is_told_from_an_absent_one() {
        assert_eq!(sight(&[disk(4, "a")]), Answer::Elsewhere(Lun::try_from(4).unwrap()));
        assert_eq!(sight(&[disk(4, "b")]), Answer::Unlisted);
        assert_eq!(sight(&[]), Answer::Unlisted);
        let mute = InstanceDisk { source: InstanceDiskSource::Unknown, ..disk(3, "a") };
        assert_eq!(sight(&[mute]), Answer::Unlisted);
    }
}
