//! Which failures of staging a person gets an event about.
//!
//! kubelet shows each failure on the pod and repeats the call. An event of this driver is about what no repetition cures,
//! or about what lasts, and says what to do.

use lazuli_host::{format::FormatError, fsck::CheckError};
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
        NodeError::OtherDisk { .. } | NodeError::OtherLun { .. } | NodeError::Size { .. } => {
            unconfirmed(error.to_string())
        }
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
