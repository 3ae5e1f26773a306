//! A caller's words for the failure of its request.

#[cfg(test)]
use lazuli_model::fault::Fault;
use lazuli_model::{ArmId, DiskId};
use lazuli_storage::{
    attach::{Goal, Resolved, Unattachable},
    publish,
};

use crate::{VolumeError, error::Answer};
use lazuli_vm_disks::{Failure, Opposed, Why};

/// The failure of a request for a disk on a node. `name_of` is the node that a VM is.
pub(crate) fn volume_error(
    failure: Failure<Answer>,
    disk: &DiskId,
    node: &str,
    name_of: impl Fn(&ArmId) -> String,
) -> VolumeError {
    let Failure { fault, effect, why, azure } = failure;
    let (message, note) = match why {
        Why::NotDangling(reason) => return VolumeError::not_dangling(disk, reason),
        Why::Opposed { asked, earlier } => (opposed(disk, node, asked, earlier), None),
        Why::Resolved(resolved) => of_resolved(resolved, disk, node, name_of),
        Why::OtherZone { disk: zones, vm } => {
            let vm = vm.map_or_else(|| "no zone".to_owned(), |zone| format!("zone {zone}"));
            let zones = if zones.is_empty() { "no zone".to_owned() } else { format!("zone {}", zones.join(", ")) };
            let what = format!(
                "disk {} is in {zones} and cannot be attached to node {node}, whose VM is in {vm}",
                disk.name()
            );
            (format!("{what}: {}", cannot_be_written(node)), Some(what))
        }
        Why::LacksRight => {
            let lacks = format!(
                "{disk}: this program's identity lacks a right on the disk or on a resource that it refers to: {}",
                cannot_be_written(node)
            );
            (lacks, None)
        }
        Why::BlobRefused => {
            let what = format!(
                "{disk} cannot be attached to node {node}; where this cloud attaches no blob disks any more, make a managed \
                 disk of it: a claim of a managed class whose dataSource is this claim"
            );
            (what, None)
        }
        Why::DiskUnreadable if azure.is_none() => (format!("{disk} cannot be read; retry"), None),
        Why::DiskUnreadable => (format!("{disk} cannot be read"), None),
        Why::SlowReads => {
            (format!("{disk} is not detached: Azure answers reads too slowly to tell who has attached it"), None)
        }
        of_vm => (format!("node {node}: {}", of_the_vm(&of_vm)), None),
    };
    let error = match azure {
        Some(Answer(error)) => VolumeError::azure(message, error),
        None => VolumeError::new(fault.clone(), message),
    };
    let error = error.resorted(fault).with_effect(effect);
    match note {
        Some(note) => error.noted(note),
        None => error,
    }
}

fn cannot_be_written(node: &str) -> String {
    format!("node {node}: its data disks cannot be written")
}

/// What is wrong with the VM of a node.
fn of_the_vm(why: &Why) -> &'static str {
    match why {
        Why::VmUnreadable => "its VM cannot be read",
        Why::UnreadableAfterWrite => "its VM cannot be read after a write, so the write's outcome is unknown",
        Why::AttachmentsUnknown => "the cluster's VolumeAttachments are not known yet, so no LUN can be given safely",
        Why::NoPermit => "there is no permit to write its VM",
        Why::OtherWrite => "another writer's write of its VM has not ended",
        Why::Deferred => "the write of its data disks was put off by Azure",
        Why::NotShown => "Azure reports that the write succeeded, and its VM does not show it",
        Why::StillListed => "its VM still lists a disk that it was told to detach",
        Why::ListedNotAttached => "its VM still lists a disk that is not attached to it, after an update of the VM",
        Why::StaleNotRemoved => "a stale data disk cannot be removed from its VM's model",
        Why::StaleStillListed => "its VM still lists a stale data disk that was removed from it",
        Why::ChangedMeanwhile => "its VM changed while a stale data disk was being removed from it",
        Why::Write
        | Why::Opposed { .. }
        | Why::Resolved(_)
        | Why::LacksRight
        | Why::BlobRefused
        | Why::OtherZone { .. }
        | Why::NotDangling(_)
        | Why::SlowReads
        | Why::DiskUnreadable => "its data disks cannot be written",
    }
}

/// What the reads say, and what an event says of it.
fn of_resolved(
    resolved: Resolved,
    disk: &DiskId,
    node: &str,
    name_of: impl Fn(&ArmId) -> String,
) -> (String, Option<String>) {
    let message = match resolved {
        Resolved::MayBeAttaching => {
            publish::Why::MayBeAttaching { disk: disk.clone(), node: node.to_owned() }.to_string()
        }
        Resolved::MayBeListed { lun } => format!(
            "the machine of node {node} has a data disk at LUN {lun} whose address is not understood, and which may be {disk}; \
             detach it there with another tool, or give it the address of the blob"
        ),
        Resolved::StillLeaving => format!("{disk} is still being detached from node {node}"),
        Resolved::DetachFailed => format!(
            "{disk} cannot be attached to node {node}: Azure was told to detach it from there and failed, and a \
             VolumeAttachment says that the node may still use it; detach it again when no pod there does"
        ),
        Resolved::TooManyDisks { limit, attached } => {
            let full = format!("its VM size takes {limit} data disks and it has {attached}");
            return (
                format!("{disk} cannot be attached to node {node}: {full}"),
                Some(format!("No further disk can be attached to node {node}: {full}")),
            );
        }
        Resolved::NoFreeLun => {
            return (
                format!(
                    "{disk} cannot be attached to node {node}: every LUN is occupied or named by a VolumeAttachment"
                ),
                Some(format!(
                    "No further disk can be attached to node {node}: every LUN of its VM is occupied or named by a \
                     VolumeAttachment"
                )),
            );
        }
        Resolved::Unattachable(Unattachable::AttachedTo(holders)) => {
            let nodes: Vec<String> = holders.iter().map(name_of).collect();
            format!("{disk} cannot be attached to node {node}: it is attached to node {}", nodes.join(", "))
        }
        Resolved::Unattachable(Unattachable::InUse(state)) => {
            format!("{disk} cannot be attached while it is {state}: a shared access signature is out on it")
        }
        Resolved::Unattachable(Unattachable::Leased) => format!(
            "{disk} cannot be attached to node {node}: the lease of its blob is held, so a machine has it that its metadata \
             does not name; detach it there"
        ),
        Resolved::Unattachable(Unattachable::NoBlobs(why)) => {
            format!("{disk} cannot be attached to node {node}: {why}")
        }
        Resolved::Unattachable(Unattachable::BlobsAlone) => format!(
            "{disk} cannot be attached to node {node}: its VM has blob disks, and takes no managed disk beside them; use nodes \
             with managed disks"
        ),
        Resolved::UnreadableDisk => format!("{disk} cannot be read; retry"),
        Resolved::Attached { .. } | Resolved::Detached => format!("{disk} needs no write on node {node}"),
    };
    (message, None)
}

/// The message for a request that contradicts an earlier one of the same disk on the same node.
fn opposed(disk: &DiskId, node: &str, asked: Goal, earlier: Opposed) -> String {
    match (asked, earlier.goal) {
        (Goal::Detached, _) => {
            let state = if earlier.sent { "it is being attached to it" } else { "its attach to it is requested" };
            format!("{disk} cannot be detached from node {node} while {state}; retry when the attach has finished")
        }
        (Goal::Attached(_), Goal::Detached) => {
            let state = if earlier.sent { "it is being detached from it" } else { "its detach from it is requested" };
            format!("{disk} cannot be attached to node {node} while {state}; retry when the detach has finished")
        }
        (Goal::Attached(asked), Goal::Attached(earlier)) => {
            let [asked, earlier] =
                [asked, earlier].map(|caching| caching.map_or("default", |caching| caching.as_str()));
            format!(
                "{disk} cannot be attached to node {node} with {asked} caching while an attach with {earlier} caching is \
                 under way; retry when that attach has finished"
            )
        }
    }
}

#[cfg(test)]
mod tests;
