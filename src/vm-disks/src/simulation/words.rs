//! Events, actions, stages and answers in words: for the story, and to be counted. Nothing here judges.

use lazuli_model::fault::Fault;

use super::azure::ArmAnswer;
use crate::{
    Action, Event, Failure, Outcome, Why,
    judge::Judge,
    round::{Stage, Waiting},
};

pub(super) fn event(event: &Event<ArmAnswer>) -> String {
    match event {
        Event::Requested { caller, disk, goal, only_if, .. } => {
            let condition = if only_if.is_some() { ", for this attachment alone" } else { "" };
            format!("requested by {caller}: {} {goal:?}{condition}", disk.name())
        }
        Event::VmRead(id, Ok(_)) => format!("VM read {id}"),
        Event::VmRead(id, Err(error)) => format!("VM read {id} failed: {:?}", error.fault),
        Event::DisksRead(id, reads) => {
            let reads = reads.iter().map(|(disk, read)| match read {
                Ok(_) => disk.name().to_owned(),
                Err(error) => format!("{} failed: {:?}", disk.name(), error.fault),
            });
            format!("disks read {id}: {}", reads.collect::<Vec<_>>().join(", "))
        }
        event => format!("{event:?}"),
    }
}

pub(super) fn action(action: &Action<ArmAnswer>) -> String {
    let names = |disks: &[lazuli_model::DiskId]| disks.iter().map(|disk| disk.name()).collect::<Vec<_>>().join(" ");
    match action {
        Action::Answer { caller, disk, outcome } => match &**outcome {
            Ok(outcome) => format!("answer {caller}, {}: OK {outcome:?}", disk.name()),
            Err(failure) => format!("answer {caller}, {}: {:?}, {:?}", disk.name(), failure.fault, failure.why),
        },
        Action::ReadVm { id, accept, keep, .. } => format!("read VM {id}, {accept:?}, keep {keep}"),
        Action::ReadDisks { id, singly, listed, .. } => {
            format!("read disks {id}: {}; by a list: {}", names(singly), names(listed))
        }
        Action::Write { id, observation, write, method, permit, .. } => {
            let attach = write.attach.iter().map(|it| format!("{} at {}", it.disk.name(), it.lun));
            let attach = attach.collect::<Vec<_>>().join(", ");
            let (detach, reapply, forced) = (names(&write.detach), names(&write.reapply), write.force.len());
            format!(
                "write {id} after {observation}, {method:?}, permit {permit:?}: attach [{attach}] detach [{detach}] \
                 ({forced} forced) apply again [{reapply}]"
            )
        }
        action => format!("{action:?}"),
    }
}

pub(super) fn stage<E>(stage: &Stage<E>) -> &'static str {
    match stage {
        Stage::Idle => "stage: idle",
        Stage::Burst(_, None) => "stage: burst",
        Stage::Burst(_, Some(_)) => "stage: burst, with a permit",
        Stage::Permit(_) => "stage: permit",
        Stage::FirstRead(_) => "stage: first read",
        Stage::Others(..) => "stage: others than those under bisection",
        Stage::Planning(_) => "stage: planning",
        Stage::FailedDetaches(_) => "stage: failed detaches",
        Stage::InstanceView(..) => "stage: instance view",
        Stage::Conditions(..) => "stage: conditions",
        Stage::Removing(_) => "stage: removing stale disks",
        Stage::Writing(_) => "stage: writing",
        Stage::Judging(Judge::Refused(..)) => "stage: judging a refused disk",
        Stage::Judging(Judge::Reapplied { .. }) => "stage: judging what was applied again",
        Stage::Judging(Judge::Verify(_)) => "stage: verifying",
        Stage::Judging(Judge::Others { .. }) => "stage: judging other disks",
        Stage::Judging(Judge::OthersOfRemoval { .. }) => "stage: judging a failed removal",
        Stage::Waiting(Waiting::Attachments(_)) => "stage: waiting for attachments",
        Stage::Waiting(Waiting::Until(..)) => "stage: waiting for a time",
        Stage::Waiting(Waiting::Permit(..)) => "stage: waiting for a permit",
        Stage::Waiting(Waiting::AtRest(..)) => "stage: waiting for another write",
    }
}

pub(super) fn answer(attaches: bool, outcome: &Outcome<ArmAnswer>) -> &'static str {
    match outcome {
        Ok(_) if attaches => "answer: attached",
        Ok(_) => "answer: detached",
        Err(failure) => match &failure.why {
            Why::Opposed { .. } => "answer: opposed",
            Why::Resolved(_) => match failure.fault {
                Fault::Busy => "answer: may be attaching",
                Fault::BeingDetached => "answer: being detached",
                Fault::DiskLimit => "answer: too many disks",
                Fault::AttachedElsewhere { .. } => "answer: attached elsewhere",
                _ => "answer: resolved otherwise",
            },
            Why::VmUnreadable => "answer: VM unreadable",
            Why::UnreadableAfterWrite => "answer: unreadable after a write",
            Why::AttachmentsUnknown => "answer: attachments unknown",
            Why::NoPermit => "answer: no permit",
            Why::OtherWrite => "answer: another write",
            Why::Write => "answer: the write failed",
            Why::LacksRight => "answer: lacks a right",
            Why::BlobRefused => "answer: blob refused",
            Why::Deferred => "answer: deferred",
            Why::NotShown => "answer: not shown",
            Why::StillListed => "answer: still listed",
            Why::ListedNotAttached => "answer: listed, not attached",
            Why::StaleNotRemoved => "answer: stale disk not removed",
            Why::StaleStillListed => "answer: stale disk still listed",
            Why::ChangedMeanwhile => "answer: changed meanwhile",
            Why::OtherZone { .. } => "answer: other zone",
            Why::NotDangling(_) => "answer: not dangling",
            Why::SlowReads => "answer: slow reads",
            Why::DiskUnreadable => "answer: disk unreadable",
        },
    }
}

/// Whether a failure says that the VM does not exist.
pub(super) fn vm_is_missing(failure: &Failure<ArmAnswer>) -> bool {
    failure.why == Why::VmUnreadable && failure.fault == Fault::NotFound
}
