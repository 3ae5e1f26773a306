//! A request about a disk or a snapshot in the journal: from when it is asked to its answer.

use lazuli_journal::{Key, Note, Recorder, Word};
use lazuli_model::{ArmId, fault::Fault};
use tonic::{Code, Status};

/// A request that is not answered yet. Dropped before, its caller has left; or a bug has broken it off, and the journal of
/// the object goes to the log.
#[must_use]
pub(crate) struct Asked<'a> {
    journal: &'a Recorder,
    key: Key<'a>,
    is_answered: bool,
}

impl<'a> Asked<'a> {
    /// Notes that this is asked of a disk.
    pub(crate) fn new<'n>(journal: &'a Recorder, disk: &'a ArmId, note: impl Into<Note<'n>>) -> Self {
        Self::of(journal, Key::disk(disk), note)
    }

    /// Notes that this is asked of an object.
    pub(crate) fn of<'n>(journal: &'a Recorder, key: Key<'a>, note: impl Into<Note<'n>>) -> Self {
        journal.note(&key, note);
        Self { journal, key, is_answered: false }
    }

    /// It was done.
    pub(crate) fn done<'n>(mut self, note: impl Into<Note<'n>>) {
        self.is_answered = true;
        self.journal.note(&self.key, note);
    }

    /// It was not done. `fault` where Azure, or what was read of it, is the reason.
    pub(crate) fn failed(mut self, status: Status, fault: Option<&Fault>) -> Status {
        self.is_answered = true;
        let note = Word::AnsweredFailure.number(i32::from(status.code()));
        let note = match (fault, refusal(status.code())) {
            (Some(fault), _) => note.fault(fault),
            (None, Some(refusal)) => note.because(refusal),
            (None, None) => note,
        };
        self.journal.note(&self.key, note);
        status
    }
}

/// What a final code of an own refusal says. The journal has no room for the answer itself, which names the value.
fn refusal(code: Code) -> Option<&'static str> {
    Some(match code {
        Code::InvalidArgument => {
            "a parameter or a field of the request cannot be used; the event of the sidecar names it"
        }
        Code::OutOfRange => "no disk has the size that is asked for",
        Code::AlreadyExists => "something else has its name",
        Code::NotFound => "what the request names is not there",
        Code::FailedPrecondition => "what is there forbids it; the event of the sidecar says why",
        _ => return None,
    })
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        let key = &self.key;
        if std::thread::panicking() {
            self.journal.note(key, Word::Panicked);
            self.journal.lines_of(key).iter().for_each(|line| tracing::error!("journal: {line}"));
        } else {
            self.journal.note(key, Word::CallerLeft);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lazuli_journal::Standing;

    use super::*;

    #[test]
    fn a_request_settles_its_disk_by_its_answer_and_not_when_its_caller_leaves() {
        let journal = Recorder::new(|| Duration::ZERO);
        let disk = ArmId::disk("s", "g", "pvc-1").expect("an id");
        let asked = || Asked::new(&journal, &disk, Word::AttachAsked.about(Key::node("node-0")));
        let last = || {
            let story = journal.look(|journal| journal.story_of(&Key::disk(&disk))).flatten().expect("it was asked");
            let record = story.records.last().expect("has a record");
            (story.standing, record.word, record.number, record.cause)
        };
        let request = asked();
        assert_eq!(last(), (Standing::Waits, Word::AttachAsked, None, None));
        request.done(Word::AnsweredLun.number(3));
        assert_eq!(last(), (Standing::Settled, Word::AnsweredLun, Some(3), None));
        _ = asked().failed(Status::unavailable("a message of Azure"), Some(&Fault::Busy));
        let why = Some("another request for the same is under way");
        assert_eq!(last(), (Standing::Failed, Word::AnsweredFailure, Some(14), why));
        _ = asked().failed(Status::invalid_argument("parameter location is \"nowhere\""), None);
        let why = last().3.expect("a reason");
        assert!(why.contains("a parameter or a field") && !why.contains("nowhere"), "{why}");
        _ = asked().failed(Status::internal("a bug"), None);
        assert_eq!(last(), (Standing::Failed, Word::AnsweredFailure, Some(13), None));
        let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _asked = asked();
            panic!("a bug");
        }));
        assert_eq!((broken.is_err(), last()), (true, (Standing::Failed, Word::Panicked, None, None)));
        drop(asked());
        assert_eq!(last(), (Standing::Failed, Word::CallerLeft, None, None));
    }
}
