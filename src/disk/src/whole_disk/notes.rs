//! What the journal notes of the work on a whole disk.

use lazuli_engine::single::{Action, Event, Written};
use lazuli_journal::{Note, Word};
use lazuli_model::fault::Effect;
use lazuli_storage::whole_disk::{Op, guard::Seen};

use super::Course;
use crate::error::Answer;

/// What is noted of a disk's event.
pub(super) fn of_event(event: &Event<Course>) -> Option<Note<'_>> {
    Some(match event {
        Event::Read(_, Ok(Seen::Disk(_))) => Word::SeenAlone.into(),
        Event::Read(_, Err(Answer(error))) if error.fault.says_that_it_is_missing() => Word::Absent.into(),
        Event::Read(_, Err(Answer(error))) => Word::NotRead.fault(&error.fault),
        Event::Ended(_, Written::Done(_)) => Word::OperationDone.into(),
        Event::Ended(_, Written::Failed(Answer(error))) => Word::OperationFailed.fault(&error.fault),
        Event::Ended(_, Written::Refused(Answer(error))) => {
            let is_lost = error.effect == Effect::Possible;
            let word = if is_lost { Word::OutcomeLost } else { Word::WriteRefused };
            word.fault(&error.fault)
        }
        _ => return None,
    })
}

/// What is noted of what is to be done.
pub(super) fn of_action(action: &Action<Course>) -> Option<Note<'_>> {
    match action {
        Action::Write { op: Op::Delete, .. } => Some(Word::WritesDeletion.into()),
        Action::Write { .. } => Some(Word::WritesDisk.into()),
        _ => None,
    }
}
