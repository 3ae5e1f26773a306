//! A caller's words for the failure of its request.

use std::fmt;

use lazuli_engine::single::Refusal;
use lazuli_model::{
    ArmId, Gib,
    fault::{Effect, Fault},
};
use lazuli_reconcile::single::Failed;
use lazuli_storage::whole_disk::{Failure, Snapshots, Why, Write};
use lazuli_volume::DetachReason;

use super::Course;
use crate::{VolumeError, error::Answer, occupied::busy};

/// The failure of a request for a whole disk. `name_of` is the node that a VM is.
pub(super) fn volume_error(failed: Failed<Course>, disk: &ArmId, name_of: impl Fn(&ArmId) -> String) -> VolumeError {
    let Failure { fault, effect, why, azure } = match failed {
        Failed::BrokenOff => return broken_off(format_args!("the disk {disk}")),
        Failed::Refused(Refusal::Busy(running)) => {
            return busy(format_args!("the disk {disk}"), &format!("{} is in progress", running.of.wanted));
        }
        Failed::Refused(Refusal::Why(failure)) => failure,
    };
    let message = match &why {
        Why::Write(write) => cannot(disk, *write),
        Why::Unreadable => format!("{disk} cannot be read"),
        Why::InProgress(elapsed) => {
            format!("an operation on {disk} has been in progress for {} s; retry", elapsed.as_secs())
        }
        Why::Held(held) => {
            let holders: Vec<String> = held.holders().into_iter().map(name_of).collect();
            format!("{disk} cannot be deleted: it is attached to node {}", holders.join(", "))
        }
        Why::NeedsDetach(to, why) => needs_detach(disk, *to, *why),
        Why::NotPossible(error) => format!("{}: {error}", cannot(disk, Write::Change)),
        Why::Gone(write) => format!("{}: it does not exist any more", cannot(disk, *write)),
        Why::Replaced(write) => {
            format!("{}: another disk of its name was made meanwhile, and stays as it is", cannot(disk, *write))
        }
        Why::Unwanted => format!("no caller waits for the work on {disk} any more"),
        Why::Needed(needed) => needed.to_string(),
        Why::Unseen(Snapshots::Of(of)) => {
            let (subscription, group) = (&of.subscription, of.group.as_deref().unwrap_or("*"));
            format!(
                "it cannot be seen whether snapshots need {disk}: those of subscription {subscription}, resource group \
                 {group}, cannot be listed; it is neither deleted nor grown without that"
            )
        }
        Why::Unseen(Snapshots::One(snapshot)) => {
            format!("it cannot be seen whether {snapshot} needs {disk}: the snapshot cannot be read")
        }
    };
    let error = with_azure(azure, fault, message).with_effect(effect);
    match why {
        Why::Needed(needed) => error.needed(needed),
        _ => error,
    }
}

fn cannot(disk: &ArmId, write: Write) -> String {
    match write {
        Write::Creation => format!("{disk} cannot be created"),
        Write::Deletion => format!("{disk} cannot be deleted"),
        Write::Expansion(to) => format!("{disk} cannot be expanded to {to}"),
        Write::Change => format!("{disk} cannot be changed"),
    }
}

/// A bug of this program has broken off the work on this.
pub(crate) fn broken_off(what: impl fmt::Display) -> VolumeError {
    let message = format!("the work on {what} was broken off");
    VolumeError::new(Fault::OutcomeUnknown, message).with_effect(Effect::Possible)
}

fn needs_detach(disk: &ArmId, to: Gib, why: DetachReason) -> String {
    format!("{disk} cannot be expanded to {to} while it is attached: {why}")
}

/// The failure of an expansion of a disk that grows only while it is detached.
pub(crate) fn grows_only_detached(disk: &ArmId, to: Gib, why: DetachReason) -> VolumeError {
    VolumeError::new(Fault::InUse, needs_detach(disk, to, why))
}

/// The fault is by the state that was found, where that says more than Azure's code.
pub(crate) fn with_azure(azure: Option<Answer>, fault: Fault, message: String) -> VolumeError {
    match azure {
        Some(Answer(error)) => VolumeError::azure(message, error).resorted(fault),
        None => VolumeError::new(fault, message),
    }
}
