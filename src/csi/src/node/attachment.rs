//! Asks the instance metadata which disk is behind a LUN.
//!
//! What an answer says, when another question is asked and what follows is decided in
//! [`lazuli_staging::device_identity`].

use std::time::Duration;

use lazuli_azure::imds::{Imds, InstanceDisk, InstanceDiskSource};
use lazuli_host::Deadline;
use lazuli_model::{Lun, VolumeId};
use lazuli_staging::{
    device_identity::{Answer, Heard, Identity, Listed, ListedDisk, Metadata},
    unstage::ListedAt,
};

use super::Node;

/// How often the metadata is asked while it lags. The service takes five questions a second; a node stages many
/// volumes at once, and they share the answers.
const PAUSE: Duration = Duration::from_secs(1);
/// How long one question may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the metadata says of a volume at its LUN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) identity: Identity,
    /// All disks that it lists; none where it does not answer.
    pub(super) listed: Vec<Listed>,
    /// Why it does not confirm the disk; empty where it does.
    pub(super) why: String,
}

fn listed(disk: &InstanceDisk) -> Listed {
    let named = match &disk.source {
        InstanceDiskSource::Managed(id) => ListedDisk::Managed(id.clone()),
        InstanceDiskSource::Vhd(uri) => ListedDisk::Vhd(uri.clone()),
        InstanceDiskSource::Unknown => ListedDisk::Unnamed,
    };
    Listed { lun: disk.lun, disk: named, size: disk.size }
}

/// Why the metadata does not confirm the disk, where `failure` is why the last question was not answered.
fn unconfirmed(metadata: Metadata, lun: Lun, failure: String) -> String {
    match metadata {
        Metadata::Confirms(_) => String::new(),
        Metadata::Silent => failure,
        Metadata::Unlisted | Metadata::Contradicts => format!("it lists no disk at LUN {lun}"),
        Metadata::Unused => "no instance metadata service is used".to_owned(),
    }
}

/// Asks the metadata until it confirms the volume at the LUN, the deadline passes, or it stays silent.
pub(super) async fn identify(node: &Node, volume: &VolumeId, lun: Lun, deadline: Deadline) -> Asked {
    let Some(imds) = &node.imds else {
        let why = unconfirmed(Metadata::Unused, lun, String::new());
        let identity = Identity { metadata: Metadata::Unused, contradiction: None };
        return Asked { identity, listed: Vec::new(), why };
    };
    let mut heard = Heard::after(node.contradictions.of(volume, lun));
    let (mut failure, mut disks) = (String::new(), Vec::new());
    loop {
        match tokio::time::timeout(PATIENCE, imds.refresh()).await {
            Ok(Ok(instance)) => {
                disks = instance.data_disks.iter().map(listed).collect();
                heard.answered(Answer::of(volume, lun, &disks));
            }
            Ok(Err(error)) => {
                heard.unanswered();
                failure = crate::server::chain(&error);
            }
            Err(_) => {
                heard.unanswered();
                failure = format!("no answer within {PATIENCE:?}");
            }
        }
        if heard.is_settled() || deadline.passed() {
            break;
        }
        tokio::time::sleep_until(deadline.capped(PAUSE).instant()).await;
    }
    let identity = Identity { metadata: heard.metadata(), contradiction: heard.contradiction().cloned() };
    node.contradictions.note(volume, lun, identity.contradiction.clone()).await;
    let why = unconfirmed(identity.metadata, lun, failure);
    if matches!(identity.metadata, Metadata::Silent | Metadata::Unlisted) {
        tracing::warn!(%volume, %lun, why, "the instance metadata does not confirm the disk");
    }
    Asked { identity, listed: disks, why }
}

/// Where the metadata has the volume, by one question.
pub(super) async fn locate(imds: Option<&Imds>, volume: &VolumeId, deadline: Deadline) -> ListedAt {
    let Some(imds) = imds else { return ListedAt::Unused };
    let is_it = |disk: &&InstanceDisk| listed(disk).disk.is(volume);
    match tokio::time::timeout_at(deadline.instant(), imds.refresh()).await {
        Ok(Ok(instance)) => {
            let listed = instance.data_disks.iter().find(is_it);
            listed.map_or(ListedAt::Nowhere, |disk| ListedAt::Lun(disk.lun))
        }
        Ok(Err(error)) => ListedAt::Silent(crate::server::chain(&error)),
        Err(_) => ListedAt::Silent("it does not answer in time".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use lazuli_model::Gib;

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
        let disks: Vec<Listed> = disks.iter().map(listed).collect();
        Answer::of(&id("a").parse().unwrap(), Lun::try_from(3).unwrap(), &disks)
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
