//! Which disk is behind a LUN.
//!
//! A LUN alone names nothing: a disk that vanished out of band leaves its LUN to another. The instance metadata tells
//! the disk's id, but lags behind by seconds. So another id, or the disk at another LUN, is waited out and then
//! refused; an absent id is waited for and then left to the size and the file system's UUID. Metadata that does not
//! answer at all proves nothing of a volume that this node has never had ([`unseen`](super::unseen)).

use std::time::Duration;

use lazuli_azure::imds::{Imds, InstanceDisk, InstanceDiskSource};
use lazuli_plan::model::{Gib, Lun, VolumeId};

use super::error::NodeError;
use lazuli_host::Deadline;

/// How often the metadata is asked while it lags. The service takes five questions a second; a node stages many
/// volumes at once, and they share the answers.
const PAUSE: Duration = Duration::from_secs(1);
/// How long one question may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// After so many unanswered questions the metadata is taken as not there.
const UNANSWERED: u32 = 3;

/// How sure it is that the volume is at the LUN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Identity {
    /// The metadata names exactly this disk there, with this size if it says one.
    Confirmed(Option<Gib>),
    /// The metadata does not tell, and why.
    Unconfirmed(String),
    /// The metadata did not answer, and why: it is asked too often, hangs, or is out of reach.
    Silent(String),
}

impl Identity {
    /// Why the metadata does not confirm the disk.
    pub(super) fn unconfirmed(&self) -> Option<&str> {
        match self {
            Self::Confirmed(_) => None,
            Self::Unconfirmed(why) | Self::Silent(why) => Some(why),
        }
    }
}

/// What one answer of the metadata means for a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Sight {
    Here(Option<Gib>),
    Other(String),
    Elsewhere(Lun),
    Absent,
}

fn judge(volume: &VolumeId, lun: Lun, disks: &[InstanceDisk]) -> Sight {
    let is_it = |disk: &&InstanceDisk| matches!(&disk.source, InstanceDiskSource::Managed(id) if id == volume.disk());
    if let Some(disk) = disks.iter().find(|disk| disk.lun == lun) {
        return match &disk.source {
            InstanceDiskSource::Managed(id) if id == volume.disk() => Sight::Here(disk.size),
            InstanceDiskSource::Managed(id) => Sight::Other(id.to_string()),
            InstanceDiskSource::Vhd(uri) => Sight::Other(uri.clone()),
            InstanceDiskSource::Unknown => Sight::Absent,
        };
    }
    match disks.iter().find(is_it) {
        Some(disk) => Sight::Elsewhere(disk.lun),
        None => Sight::Absent,
    }
}

/// Asks the metadata until it confirms the volume at the LUN, or the deadline passes.
pub(super) async fn identify(
    imds: Option<&Imds>,
    volume: &VolumeId,
    lun: Lun,
    deadline: Deadline,
) -> Result<Identity, NodeError> {
    let Some(imds) = imds else {
        return Ok(Identity::Unconfirmed("no instance metadata service is used".to_owned()));
    };
    let mut unanswered = 0;
    loop {
        let (sight, silence) = match tokio::time::timeout(PATIENCE, imds.refresh()).await {
            Ok(Ok(instance)) => (judge(volume, lun, &instance.data_disks), None),
            Ok(Err(error)) => (Sight::Absent, Some(crate::server::chain(&error))),
            Err(_) => (Sight::Absent, Some(format!("no answer within {PATIENCE:?}"))),
        };
        unanswered = if silence.is_some() { unanswered + 1 } else { 0 };
        if let Sight::Here(size) = sight {
            return Ok(Identity::Confirmed(size));
        }
        if !deadline.passed() && unanswered < UNANSWERED {
            tokio::time::sleep_until(deadline.capped(PAUSE).instant()).await;
            continue;
        }
        let wanted = volume.to_string();
        return match sight {
            Sight::Other(found) => Err(NodeError::OtherDisk { lun, found, wanted }),
            Sight::Elsewhere(found) => Err(NodeError::OtherLun { wanted, found, told: lun }),
            Sight::Here(_) | Sight::Absent => {
                let identity = match silence {
                    Some(why) => Identity::Silent(why),
                    None => Identity::Unconfirmed(format!("it lists no disk at LUN {lun}")),
                };
                let why = identity.unconfirmed();
                tracing::warn!(%volume, %lun, why, "the instance metadata does not confirm the disk");
                Ok(identity)
            }
        };
    }
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

    fn sight(disks: &[InstanceDisk]) -> Sight {
        judge(&id("a").parse().unwrap(), Lun::try_from(3).unwrap(), disks)
    }

    #[test]
    fn the_disk_s_id_decides_in_any_letter_case() {
        assert_eq!(sight(&[disk(3, "a"), disk(4, "b")]), Sight::Here(Some(Gib::new(4))));
    }

    #[test]
    fn another_disk_at_the_lun_wins_over_everything_else() {
        let Sight::Other(found) = sight(&[disk(3, "b"), disk(4, "a")]) else { panic!("not refused") };
        assert!(found.eq_ignore_ascii_case(&id("b")));
    }

    #[test]
    fn the_disk_at_another_lun_is_told_from_an_absent_one() {
        assert_eq!(sight(&[disk(4, "a")]), Sight::Elsewhere(Lun::try_from(4).unwrap()));
        assert_eq!(sight(&[disk(4, "b")]), Sight::Absent);
        assert_eq!(sight(&[]), Sight::Absent);
        let mute = InstanceDisk { source: InstanceDiskSource::Unknown, ..disk(3, "a") };
        assert_eq!(sight(&[mute]), Sight::Absent);
    }
}
