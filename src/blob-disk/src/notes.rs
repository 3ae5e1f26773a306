//! What the journal notes of the work on a disk and on an account.

use lazuli_engine::single::{Action, AzureFailure as _, Event, Written};
use lazuli_journal::{Note, Word};
use lazuli_model::fault::{Effect, Fault};
use lazuli_vhd::{
    life::{Answer, Call, Problem},
    work::{Refused, account::Account, disk::Disk},
};

use crate::error::CallError;

/// What is noted of a disk's event.
pub(crate) fn of_disk_event(event: &Event<Disk<CallError>>) -> Option<Note<'_>> {
    Some(match event {
        Event::Read(_, Ok(Answer::Blob(_))) => Word::SeenAlone.into(),
        Event::Read(_, Err(Refused { problem: Problem::NoBlob | Problem::NoContainer | Problem::NoAccount, .. })) => {
            Word::Absent.into()
        }
        Event::Read(_, Err(refused)) => Word::NotRead.fault(refused.fault()),
        Event::Ended(_, Written::Done(_)) => Word::Wrote.into(),
        Event::Ended(_, Written::Refused(refused) | Written::Failed(refused)) => {
            refusal(refused.fault(), refused.effect())
        }
        _ => return None,
    })
}

/// What is noted of what is to be done with a disk.
pub(crate) fn of_disk_action(action: &Action<Disk<CallError>>) -> Option<Note<'_>> {
    let Action::Write { op, .. } = action else { return None };
    Some(match &op.call {
        Call::DeleteBlob { .. } => Word::WritesDeletion.into(),
        call => Note::from(Word::WritesDisk).because(call.what()),
    })
}

/// What is noted of an account's event.
pub(crate) fn of_account_event(event: &Event<Account<CallError>>) -> Option<Note<'_>> {
    Some(match event {
        Event::Read(_, Ok(_)) => Word::SeenAlone.into(),
        Event::Read(_, Err(error)) if error.fault().says_that_it_is_missing() => Word::Absent.into(),
        Event::Read(_, Err(error)) => Word::NotRead.fault(error.fault()),
        Event::Ended(_, Written::Done(_)) => Word::OperationDone.into(),
        Event::Ended(_, Written::Failed(error)) => Word::OperationFailed.fault(error.fault()),
        Event::Ended(_, Written::Refused(error)) => refusal(error.fault(), error.effect()),
        _ => return None,
    })
}

/// What is noted of what is to be done with an account.
pub(crate) fn of_account_action(action: &Action<Account<CallError>>) -> Option<Note<'_>> {
    matches!(action, Action::Write { .. }).then(|| Word::Writes.into())
}

fn refusal(fault: &Fault, effect: Effect) -> Note<'static> {
    let is_lost = effect == Effect::Possible;
    let word = if is_lost { Word::OutcomeLost } else { Word::WriteRefused };
    word.fault(fault)
}
