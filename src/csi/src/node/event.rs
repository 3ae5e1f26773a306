//! Which failures of staging a person gets an event about.
//!
//! kubelet shows each failure on the pod and repeats the call. An event of this driver is about what no repetition cures,
//! or about what lasts, and says what to do.

use lazuli_host::{device::FindError, format::FormatError, fsck::CheckError};
use lazuli_model::event::{Event, Reason, Regarding};

use super::{Node, error::NodeError, request::Stage};

impl Node {
    /// Reports a failure of staging, where a person must know about it: on the claim, where the volume context names it,
    /// else on the Node. The pod is not known: kubelet names it only when it publishes.
    pub(super) fn report(&self, request: &Stage, error: &NodeError) {
        let Some((reason, what)) = described(error) else { return };
        let node = &self.config.node_id;
        let regarding = request.claim.clone().map(Regarding::Claim).or_else(|| Regarding::of_node(node));
        let Some(regarding) = regarding else { return };
        let disk = request.volume.disk().name();
        self.config.events.send(Event::new(regarding, reason, format_args!("Disk {disk} on node {node}: {what}")));
    }
}

/// The reason, and what happened: without what changes from try to try.
fn described(error: &NodeError) -> Option<(Reason, String)> {
    let unconfirmed = |what: String| Some((Reason::IdentityUnconfirmed, what));
    match error {
        NodeError::Format(error) => match &**error {
            FormatError::Refused { .. }
            | FormatError::WrongType { .. }
            | FormatError::Blank { .. }
            | FormatError::TooSmall { .. }
            | FormatError::Unfinished { .. } => Some((Reason::FormatRefused, error.to_string())),
            _ => None,
        },
        NodeError::Check(error @ CheckError::Uncorrected { .. }) => {
            Some((Reason::FilesystemDamaged, error.to_string()))
        }
        NodeError::TwinBtrfs { fsid, other } => {
            Some((Reason::DuplicateFilesystem, format!("it is a copy of the btrfs {fsid}, which is in use on {other}")))
        }
        NodeError::OtherDisk { .. }
        | NodeError::OtherLun { .. }
        | NodeError::Size { .. }
        | NodeError::OffsetNotBorneOut { .. } => unconfirmed(error.to_string()),
        NodeError::Find(error @ FindError::Unplaced { .. }) => unconfirmed(error.to_string()),
        NodeError::Unseen { device, .. } | NodeError::UnseenForLong { device, .. } => {
            unconfirmed(format!("the instance metadata does not say which disk is at {device}"))
        }
        NodeError::IdentityMismatch { device, found, had, .. } => {
            unconfirmed(format!("{device} holds {found}, but {had}"))
        }
        NodeError::IdentityUnconfirmed { device, found, had, acceptance, .. } => unconfirmed(format!(
            "{device} holds {found}, but {had}; it is used when the instance metadata confirms the disk, or when the \
             file {} exists in the node plugin's container",
            acceptance.display()
        )),
        NodeError::Contradicted { named, device, found, acceptance, .. } => unconfirmed(format!(
            "the instance metadata has named {named}, and {device} holds {found}; it is used when the instance metadata \
             confirms the disk, or when the file {} exists in the node plugin's container",
            acceptance.display()
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::{path::PathBuf, time::Duration};

    use lazuli_model::Lun;
    use lazuli_staging::nvme::{Disagreement, SystemDisks, Unplaced};

    use super::*;

    /// The note about an identity, and nothing in it changes from try to try: events are counted by their text.
    fn note(error: &NodeError) -> String {
        let Some((Reason::IdentityUnconfirmed, note)) = described(error) else {
            panic!("{error}: {:?}", described(error))
        };
        for changing in ["37 s", "no answer within"] {
            assert!(!note.contains(changing), "{note}");
        }
        note
    }

    #[test]
    fn each_doubt_about_the_identity_of_a_disk_is_reported_with_what_was_seen_and_what_helps() {
        let lun = Lun::try_from(3).unwrap();
        let (device, found, had) =
            ("/dev/sdc".to_owned(), "ext4 1111".to_owned(), "the volume had ext4 2222".to_owned());
        let (why, acceptance) = ("no answer within 5 s".to_owned(), PathBuf::from("/csi/accept-a"));
        let more = Duration::from_secs(37);
        for (error, parts) in [
            (
                NodeError::OtherDisk { lun, found: "disk-b".into(), wanted: "disk-a".into() },
                vec!["LUN 3 holds disk-b, not disk-a"],
            ),
            (
                NodeError::OtherLun { wanted: "disk-a".into(), found: lun, told: Lun::try_from(5).unwrap() },
                vec!["disk-a is at LUN 3, not at LUN 5"],
            ),
            (
                NodeError::Size { device: device.clone(), lun, found: 512, wanted: 1024 },
                vec!["/dev/sdc at LUN 3 has 512 bytes, 1024 were expected"],
            ),
            (
                NodeError::OffsetNotBorneOut {
                    device: "nvme0n3".into(),
                    nsid: 5,
                    lun,
                    why: Disagreement::Missing { lun, nsid: 5 },
                },
                vec!["nvme0n3, namespace 5", "LUN 3 by the offset 2", "there is no namespace 5"],
            ),
            (
                NodeError::Find(FindError::Unplaced {
                    lun: 3,
                    why: Unplaced::NotProved { controllers: vec!["nvme0".into()], system: SystemDisks::default() },
                }),
                vec!["LUN 3", "nvme0", "--nvme-lun-offset"],
            ),
            (
                NodeError::IdentityMismatch { device: device.clone(), found: found.clone(), had: had.clone(), more },
                vec!["/dev/sdc holds ext4 1111, but the volume had ext4 2222"],
            ),
            (
                NodeError::IdentityUnconfirmed {
                    device: device.clone(),
                    found: found.clone(),
                    had,
                    why: why.clone(),
                    acceptance: acceptance.clone(),
                },
                vec!["/dev/sdc holds ext4 1111, but the volume had ext4 2222", "the file /csi/accept-a exists"],
            ),
            (
                NodeError::Contradicted {
                    wanted: "disk-a".into(),
                    named: "disk-b".into(),
                    device: device.clone().into(),
                    found,
                    why: why.clone().into(),
                    acceptance,
                },
                vec![
                    "the instance metadata has named disk-b",
                    "/dev/sdc holds ext4 1111",
                    "the file /csi/accept-a exists",
                ],
            ),
            (
                NodeError::Unseen { device: device.clone(), why: why.clone() },
                vec!["the instance metadata does not say which disk is at /dev/sdc"],
            ),
            (
                NodeError::UnseenForLong { device, why },
                vec!["the instance metadata does not say which disk is at /dev/sdc"],
            ),
        ] {
            let note = note(&error);
            for part in parts {
                assert!(note.contains(part), "{part}: {note}");
            }
        }
    }

    #[test]
    fn what_a_repetition_cures_is_not_reported() {
        for error in [
            NodeError::InProgress(crate::locks::InProgress("pvc-a".into())),
            NodeError::Changed { lun: Lun::try_from(3).unwrap(), before: "a".into(), after: "b".into() },
            NodeError::Task,
            NodeError::Silent(Duration::from_secs(5)),
        ] {
            assert_eq!(described(&error), None, "{error}");
        }
    }
}
