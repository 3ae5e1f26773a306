//! What the journal notes of the events and actions of an object.

use lazuli_engine::{
    Outcome, Refusal, Waiting,
    object::{Action, EnvChange, Event, Object, Taint},
};
use lazuli_journal::{Note, Word};
use lazuli_model::fault::Fault;
use lazuli_quota::read::By;

use super::{Adapter, ObjectEvent, Observed, Polled, Written};

pub(super) fn of_event<O: Object, A: Adapter<O>>(
    event: &ObjectEvent<O, A::Raw, A::Permit, A::Operation>,
) -> Option<Note<'_>> {
    Some(match event {
        ObjectEvent::Step(event) => return of_step::<O, A>(event),
        ObjectEvent::Observed(_, observed) => of_read(observed),
        ObjectEvent::Permitted(..) => Word::PermitGranted.into(),
        ObjectEvent::Written(id, written) => match written {
            // What the object waits for from then on says it.
            Written::Accepted(..) => return None,
            Written::Done => Word::Wrote.number(id.number()),
            Written::Failed(failure) => Word::WriteFailed.number(id.number()).fault(&failure.fault),
        },
        ObjectEvent::Polled(id, polled) => match polled {
            Polled::Running(_) => Word::StillRuns.number(id.number()),
            Polled::Done | Polled::Shown(_) => Word::Wrote.number(id.number()),
            Polled::Failed(failure) => Word::WriteFailed.number(id.number()).fault(&failure.fault),
        },
    })
}

fn of_read<O: Object, R>(observed: &Observed<O, R>) -> Note<'static> {
    match (&observed.result, observed.by) {
        (Ok(_), By::Single) => Word::SeenAlone.into(),
        (Ok(_), By::List) => Word::SeenInList.into(),
        (Err(Fault::NotFound), By::Single) => Word::Absent.into(),
        (Err(Fault::NotFound), By::List) => Word::NotListed.into(),
        (Err(fault), _) => Word::NotRead.fault(fault),
    }
}

fn of_step<O: Object, A: Adapter<O>>(event: &Event<O>) -> Option<Note<'_>> {
    Some(match event {
        Event::Requested { from, generation, .. } => requester::<O, A>(Word::Wanted, from).number(*generation),
        Event::Withdrawn(from) => requester::<O, A>(Word::Withdrawn, from),
        Event::Tainted(Taint::Changed) => Word::Stale.into(),
        Event::Tainted(Taint::Suspect) => Word::Suspected.into(),
        Event::EnvChanged(EnvChange::Replan | EnvChange::Cures) => Word::InputsChanged.into(),
        Event::Drain => Word::Draining.into(),
        // The adapter's own events carry these.
        Event::Observed { .. }
        | Event::Permitted(_)
        | Event::Accepted { .. }
        | Event::Polled { .. }
        | Event::Ended { .. }
        | Event::Woke => return None,
    })
}

pub(super) fn of_action<O: Object, A: Adapter<O>>(action: &Action<O>) -> Option<Note<'_>> {
    Some(match action {
        Action::Write { id, .. } => Word::Writes.number(id.number()),
        Action::ReleasePermit(_) => Word::PermitReturned.into(),
        Action::Tell { to, generation, outcome } => {
            let (word, fault) = match outcome {
                Outcome::Done(_) => (Word::TellsDone, None),
                Outcome::Waiting(Waiting::Retry(fault)) => (Word::TellsWaits, Some(fault)),
                Outcome::Waiting(_) => (Word::TellsWaits, None),
                Outcome::Refused(Refusal::Azure(fault)) => (Word::TellsRefused, Some(fault)),
                Outcome::Refused(Refusal::Plan(why)) => {
                    let note = requester::<O, A>(Word::TellsRefused, to).number(*generation);
                    return Some(note.because(why.reason));
                }
            };
            let note = requester::<O, A>(word, to).number(*generation);
            fault.map_or(note.clone(), |fault| note.fault(fault))
        }
        // What the object waits for, and what the others note, says these.
        Action::Observe { .. }
        | Action::TakePermit { .. }
        | Action::Poll(_)
        | Action::Followed { .. }
        | Action::Taint(..)
        | Action::Drained => return None,
    })
}

/// A note that names a requester, where the journal knows it.
fn requester<O: Object, A: Adapter<O>>(word: Word, requester: &O::Requester) -> Note<'_> {
    match A::requester_key(requester) {
        Some(key) => Note::from(word).about(key),
        None => word.into(),
    }
}
