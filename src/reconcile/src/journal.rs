//! What the journal notes of keys: their events, their actions, and what they wait for.

use std::time::Duration;

use lazuli_engine::Awaited;
use lazuli_journal::{Key as JournalKey, Recorder, Word};
use tracing::error;

use crate::Kind;

/// Notes what happens to one key. It does nothing without a journal, and for a kind that is not noted.
pub(crate) struct Notes<'a> {
    to: Option<(&'a Recorder, JournalKey<'a>)>,
    /// What the key was noted to wait for last.
    awaited: Option<Awaited>,
}

impl<'a> Notes<'a> {
    pub(crate) fn of<K: Kind>(journal: &'a Recorder, key: &'a K::Key) -> Self {
        let to = K::journal_key(key).filter(|_| journal.is_on()).map(|key| (journal, key));
        Self { to, awaited: None }
    }

    pub(crate) fn event<K: Kind>(&self, event: &K::Event) {
        if let Some((journal, key)) = &self.to
            && let Some(note) = K::note_of_event(event)
        {
            journal.note(key, note);
        }
    }

    /// Notes what a step has decided, and what the key waits for then, if that is something else than before.
    pub(crate) fn step<K: Kind>(&mut self, kind: &K, state: &K::State, now: Duration, actions: &[K::Action]) {
        let Some((journal, key)) = &self.to else { return };
        for note in actions.iter().filter_map(K::note_of_action) {
            journal.note(key, note);
        }
        if let Some(awaited) = kind.awaited(state, now)
            && self.awaited.replace(awaited) != Some(awaited)
        {
            journal.note(key, word(awaited));
        }
    }

    /// The work on the key was broken off: what is known of it goes to the log.
    pub(crate) fn panicked(&self) {
        let Some((journal, key)) = &self.to else { return };
        journal.note(key, Word::Panicked);
        journal.lines_of(key).iter().for_each(|line| error!("journal: {line}"));
    }
}

/// The word for what a key waits for.
pub fn word(awaited: Awaited) -> Word {
    match awaited {
        Awaited::Nothing => Word::AwaitsNothing,
        Awaited::Informers => Word::AwaitsInformers,
        Awaited::Lease => Word::AwaitsLease,
        Awaited::Read => Word::AwaitsRead,
        Awaited::Permit => Word::AwaitsPermit,
        Awaited::Answer => Word::AwaitsAnswer,
        Awaited::Operation => Word::AwaitsOperation,
        Awaited::OtherOperation => Word::AwaitsOtherOperation,
        Awaited::Pause => Word::AwaitsPause,
        Awaited::Moment => Word::AwaitsMoment,
        Awaited::FreshReads => Word::AwaitsFreshReads,
        Awaited::Acceptance => Word::AwaitsAcceptance,
        Awaited::Plan => Word::AwaitsPlan,
        Awaited::Change => Word::AwaitsChange,
        Awaited::Objects => Word::AwaitsObjects,
        Awaited::Patch => Word::AwaitsPatch,
        Awaited::Members => Word::AwaitsMembers,
        Awaited::Places => Word::AwaitsPlaces,
        Awaited::Specification => Word::AwaitsSpec,
        Awaited::Machine => Word::AwaitsMachine,
        Awaited::Metadata => Word::AwaitsMetadata,
        Awaited::Breaker => Word::AwaitsBreaker,
        Awaited::Routes => Word::AwaitsRoutes,
        Awaited::Readiness => Word::AwaitsReadiness,
        Awaited::Proof => Word::AwaitsProof,
        Awaited::Attachments => Word::AwaitsAttachments,
        Awaited::End => Word::AwaitsEnd,
    }
}
