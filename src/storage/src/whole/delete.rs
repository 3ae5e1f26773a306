//! The course of a deletion.

use std::time::Duration;

use lazuli_engine::attempts::{Attempts, Limits};
use lazuli_engine::single::{AzureFailure as _, Input, Next, Rest};
use lazuli_model::fault::Fault;

use super::{
    Deleted, Failure, OtherOperation, Resource as _, Trouble, Verb, Watched, Whole, failed, in_progress, rest_after,
};
use crate::{
    calls::{NO_GROUP, found},
    single_write::{Deletion, Refusal, deletion},
};

/// The pauses before the next tries to delete what Azure calls busy in one answer and not found in the next.
const PAUSES: [Duration; 3] = [Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(4)];

/// A deletion.
#[derive(Debug, Clone)]
pub(crate) struct Delete<C: Whole> {
    limits: Limits,
    attempts: Attempts,
    /// How often Azure has called it busy.
    conflicts: usize,
    /// It, by the first read of it.
    seen: Option<C::Seen>,
    at: At<C::Error>,
}

#[derive(Debug, Clone)]
enum At<E> {
    /// Towards the first send.
    First,
    /// Towards the next send, with the pause where Azure calls it busy and a read does not find it.
    Again(Refusal, Duration),
    /// An operation on it has not ended.
    Watch(OtherOperation, Refusal, Duration),
    /// The write is in flight.
    Write,
    /// It has failed for good. Azure's code for "the disk is attached" has other meanings too; the disk's own state has not.
    Aftermath(E),
}

const WHY: Trouble = Trouble::Deletion;

impl<C: Whole> Delete<C> {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, attempts: Attempts::default(), conflicts: 0, seen: None, at: At::First }
    }

    pub(crate) fn watches(&self) -> bool {
        matches!(self.at, At::Watch(..))
    }

    pub(crate) fn next(&mut self, now: Duration, input: Input<C>) -> Next<C> {
        match (std::mem::replace(&mut self.at, At::First), input) {
            (_, Input::NoPermit(error)) => failed(Failure::azure(WHY, error, &self.attempts)),
            (_, Input::Unwanted) => failed(Failure::new(Fault::Deadline, self.attempts.effect(), Trouble::Unwanted)),
            (At::First, Input::Permitted) => self.go(At::Write, Next::Write(C::delete())),
            (At::First, _) => Next::Permit(Verb::Delete),
            (At::Again(refusal, pause), Input::Read(read)) => self.look(now, refusal, pause, read),
            (At::Again(refusal, pause), Input::Permitted) => self.go(At::Again(refusal, pause), Next::Read(None)),
            (At::Again(refusal, pause), _) => self.go(At::Again(refusal, pause), Next::Permit(Verb::Delete)),
            (At::Watch(operation, refusal, pause), Input::Read(read)) => {
                self.watch(now, operation, (refusal, pause), read)
            }
            (At::Watch(operation, refusal, pause), _) => {
                self.go(At::Watch(operation, refusal, pause), Next::Read(None))
            }
            (At::Write, Input::Written(_)) => Next::End(Ok(C::deleted(Deleted::Gone))),
            (At::Write, Input::Refused(error)) => self.not_done(error, false),
            (At::Write, Input::Failed(error)) => self.not_done(error, true),
            (At::Write, _) => Next::Permit(Verb::Delete),
            (At::Aftermath(error), Input::Read(Ok(seen))) if seen.is_held() => {
                let failure = Failure::azure(C::held(seen), error, &self.attempts);
                failed(failure.resorted(Fault::InUse))
            }
            (At::Aftermath(error), _) => failed(Failure::azure(WHY, error, &self.attempts)),
        }
    }

    /// Decides on the next send by a read behind its permit.
    fn look(&mut self, now: Duration, refusal: Refusal, pause: Duration, read: Result<C::Seen, C::Error>) -> Next<C> {
        let seen = match found(read) {
            Ok(seen) => seen,
            Err(error) => return failed(Failure::azure(Trouble::Unreadable, error, &self.attempts)),
        };
        match deletion(refusal, self.seen.as_ref(), seen.as_ref()) {
            Deletion::Send => {
                self.seen = self.seen.take().or(seen);
                self.go(At::Write, Next::Write(C::delete()))
            }
            Deletion::Pause => self.go(At::Again(Refusal::BusyAndNotFound, pause), Next::Rest(Rest::For(pause))),
            Deletion::Wait => {
                let operation = OtherOperation { since: now };
                match seen {
                    Some(seen) => self.watch(now, operation, (refusal, pause), Ok(seen)),
                    None => self.go(At::Again(refusal, pause), Next::Permit(Verb::Delete)),
                }
            }
            Deletion::Held => {
                let why = seen.map_or_else(|| WHY.into(), C::held);
                failed(Failure::new(Fault::InUse, self.attempts.effect(), why))
            }
            Deletion::Gone => Next::End(Ok(C::deleted(Deleted::Gone))),
            Deletion::Replaced => Next::End(Ok(C::deleted(Deleted::Replaced))),
        }
    }

    fn watch(
        &mut self,
        now: Duration,
        operation: OtherOperation,
        (refusal, pause): (Refusal, Duration),
        read: Result<C::Seen, C::Error>,
    ) -> Next<C> {
        let again = At::Again(refusal, pause);
        match found(read) {
            Err(error) => failed(Failure::azure(Trouble::Unreadable, error, &self.attempts)),
            Ok(None) => self.go(again, Next::Permit(Verb::Delete)),
            Ok(Some(seen)) => {
                let watched = operation.seen(now, &seen);
                self.seen = self.seen.take().or(Some(seen));
                match watched {
                    Watched::Rest(rest) => self.go(At::Watch(operation, refusal, pause), Next::Rest(rest)),
                    Watched::Ended => self.go(again, Next::Permit(Verb::Delete)),
                    Watched::TooLong(elapsed) => failed(in_progress(elapsed)),
                }
            }
        }
    }

    fn not_done(&mut self, error: C::Error, was_accepted: bool) -> Next<C> {
        if *error.fault() == Fault::Conflict {
            let Some(pause) = PAUSES.get(self.conflicts) else { return self.given_up(error) };
            self.conflicts += 1;
            return self.go(At::Again(Refusal::Busy, *pause), Next::Permit(Verb::Delete));
        }
        if was_accepted {
            return self.given_up(error);
        }
        match rest_after(&error, &mut self.attempts, self.limits) {
            Some(rest) => self.go(At::Again(Refusal::Delayed, Duration::ZERO), Next::Rest(rest)),
            None => self.given_up(error),
        }
    }

    fn given_up(&mut self, error: C::Error) -> Next<C> {
        match error.fault() {
            Fault::NotFound => Next::End(Ok(C::deleted(Deleted::Gone))),
            Fault::ScopeNotFound if error.code() == NO_GROUP => Next::End(Ok(C::deleted(Deleted::Gone))),
            Fault::Unclear | Fault::Conflict | Fault::InUse => self.go(At::Aftermath(error), Next::Read(None)),
            _ => failed(Failure::azure(WHY, error, &self.attempts)),
        }
    }

    fn go(&mut self, at: At<C::Error>, next: Next<C>) -> Next<C> {
        self.at = at;
        next
    }
}
