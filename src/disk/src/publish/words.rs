//! A caller's words for the failure of its request, and what people are told.

use lazuli_model::{
    DiskId,
    event::{Event, Reason, Regarding},
};
use lazuli_storage::{
    dangling::Blocked,
    publish::{Cause, Failure, Report},
};
use lazuli_telemetry::lossy;
use tracing::{info, warn};

use crate::{VolumeError, error::Answer};

/// The failure of a request.
pub(crate) fn volume_error(failure: Failure<Answer, VolumeError>) -> VolumeError {
    let Failure { cause, added } = failure;
    let error = match *cause {
        Cause::Refused(fault, why) => VolumeError::new(fault, why.to_string()),
        Cause::Azure(why, Answer(error)) => VolumeError::azure(why.to_string(), error),
        Cause::Work(error) => error,
    };
    added.iter().fold(error, |error, words| error.suffixed(words))
}

/// Why the disk should leave its node, in an event.
fn reason(blocked: Blocked) -> &'static str {
    match blocked {
        Blocked::Attach => "a pod on another node waits for it",
        Blocked::Delete => "its volume is being deleted",
    }
}

/// Tells people.
pub(crate) fn report(events: &lossy::Sender<Event>, disk: &DiskId, node: &str, report: Report) {
    match report {
        Report::MachineGone => info!(node, %disk, "the node's VM is gone, so the disk is not attached to it"),
        Report::Freeing(node) => {
            warn!(%disk, node, "the disk is attached to a node on which Kubernetes does not use it; detaching it there");
        }
        Report::Freed { node, blocked } => {
            info!(%disk, node, "the dangling attachment is gone");
            let what = format!(
                "Disk {} was attached to this node although Kubernetes did not use it here; it was detached, because {}",
                disk.name(),
                reason(blocked)
            );
            events.send(Event::new(Regarding::Node(node), Reason::StaleAttachmentDetached, what));
        }
        Report::KeptDangling { node, blocked, why, command } => {
            let mut what = format!(
                "Disk {} is attached to this node, {}, and it is not detached here: {why}",
                disk.name(),
                reason(blocked)
            );
            if let Some(command) = &command {
                what += &format!(". The command is: {command}");
            }
            events.send(Event::new(Regarding::Node(node), Reason::StaleAttachmentKept, what));
        }
        Report::NotFreed(error) => warn!(%disk, error, "a dangling attachment could not be detached"),
        Report::KeptAttachment(objection) => {
            let Some(node) = Regarding::of_node(node) else { return };
            let what = format!(
                "Disk {} is attached to this node already and stays, though its attach would be refused now: {objection}",
                disk.name()
            );
            events.send(Event::new(node, Reason::AttachmentNotAllowed, what));
        }
    }
}
