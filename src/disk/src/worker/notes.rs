//! What the journal notes of disks and of their VMs.

use lazuli_azure::error::ArmError;
use lazuli_engine::Awaited;
use lazuli_journal::{Key, Note, Recorder, Word};
use lazuli_model::{
    ArmId, DiskId,
    fault::Fault,
    op::{VmWrite, VmWriteMethod},
};
use lazuli_quota::read::By;
use lazuli_reconcile::journal::word;
use lazuli_storage::attach::Goal;
use lazuli_vm_disks::Event;
use tokio::time::Instant;

use super::VmEvent;
use crate::error::Answer;

/// What is noted of a VM's event.
pub(super) fn of_event(event: &VmEvent) -> Option<Note<'_>> {
    Some(match event {
        VmEvent::Requested(request) => match request.goal {
            Goal::Attached(_) => Word::DiskAttachAsked.about(Key::disk_id(&request.disk)),
            Goal::Detached => Word::DiskDetachAsked.about(Key::disk_id(&request.disk)),
        },
        VmEvent::VmRead(_, _, Ok(read)) if read.seen.by == By::List => Word::SeenInList.into(),
        VmEvent::VmRead(_, _, Ok(_)) => Word::SeenAlone.into(),
        VmEvent::VmRead(_, _, Err(error)) => Word::NotRead.fault(&error.fault),
        VmEvent::Permitted(..) => Word::PermitGranted.into(),
        VmEvent::Step(Event::Written(_, Ok(_))) => Word::Wrote.into(),
        VmEvent::Step(Event::Written(_, Err(Answer(error)))) => Word::WriteFailed.fault(&error.fault),
        _ => return None,
    })
}

/// The word for a write that is sent. One that names no disk is sent as a list, whatever the method.
pub(super) fn sends(write: &VmWrite, method: VmWriteMethod) -> Word {
    match method {
        VmWriteMethod::Action if !write.says_nothing() => Word::WritesAction,
        VmWriteMethod::Action | VmWriteMethod::WholeList | VmWriteMethod::WholeListByOmission => Word::WritesWholeList,
    }
}

/// Notes what the disks of a VM's requests wait for.
pub(super) fn waits<'a>(journal: &Recorder, vm: &ArmId, disks: impl Iterator<Item = &'a DiskId>, awaited: Awaited) {
    let word = match awaited {
        Awaited::Nothing => return,
        Awaited::Moment => Word::AwaitsBurst,
        awaited => word(awaited),
    };
    disks.for_each(|disk| journal.note(&Key::disk_id(disk), word.about(Key::vm(vm))));
}

/// Notes what a write that is sent changes of each disk.
pub(super) fn write_is_sent(journal: &Recorder, vm: &ArmId, write: &VmWrite, method: VmWriteMethod) {
    for attachment in &write.attach {
        let planned = Word::PlansAttach.about(Key::vm(vm)).number(attachment.lun.get());
        journal.note(&Key::disk_id(&attachment.disk), planned);
    }
    for disk in &write.detach {
        let planned = if write.force.contains(disk) { Word::PlansForcedDetach } else { Word::PlansDetach };
        journal.note(&Key::disk_id(disk), planned.about(Key::vm(vm)));
    }
    for disk in disks_of(write) {
        journal.note(&Key::disk_id(disk), sends(write, method).about(Key::vm(vm)));
    }
}

/// Notes how a write of these disks has ended.
pub(super) fn write_has_ended(journal: &Recorder, vm: &ArmId, write: &VmWrite, written: &Result<Instant, ArmError>) {
    let note = match written {
        Ok(_) => Word::OperationDone.about(Key::vm(vm)),
        Err(error) => {
            let word = match error.status {
                _ if error.fault == Fault::OutcomeUnknown => Word::OutcomeLost,
                Some(200..300) => Word::OperationFailed,
                Some(_) => Word::WriteRefused,
                // Azure was not reached.
                None => Word::WriteFailed,
            };
            let note = word.about(Key::vm(vm)).fault(&error.fault);
            match error.status {
                Some(status) => note.number(status),
                None => note,
            }
        }
    };
    for disk in disks_of(write) {
        journal.note(&Key::disk_id(disk), note.clone());
    }
}

/// The disks that a write is about.
fn disks_of(write: &VmWrite) -> impl Iterator<Item = &DiskId> {
    write.attach.iter().map(|attachment| &attachment.disk).chain(&write.detach).chain(&write.reapply)
}
