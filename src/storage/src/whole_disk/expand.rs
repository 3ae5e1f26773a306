//! The course of an expansion.

use std::{sync::Arc, time::Duration};

use lazuli_engine::attempts::{Attempts, Limits};
use lazuli_engine::single::{Input, Next};
use lazuli_model::{Disk, Gib, fault::Fault};

use super::{AzureFailure, Done, Failure, Op, SeenDisk, Step, Verb, WholeDisk, Why, Write};
use crate::{
    calls::found,
    single_write::{AfterExpansion, Expansion, ExpansionSends, expansion},
    whole::{OtherOperation, Watched, failed, in_progress, rest_after},
};

/// An expansion.
#[derive(Debug, Clone)]
pub(super) struct Expand {
    before: Arc<Disk>,
    to: Gib,
    limits: Limits,
    attempts: Attempts,
    sends: ExpansionSends<Duration>,
    at: At,
}

#[derive(Debug, Clone, Copy)]
enum At {
    /// Towards a send.
    Look,
    /// An operation on the disk has not ended.
    Watch(OtherOperation),
    /// The write is in flight.
    Write,
}

impl Expand {
    pub(super) fn new(before: Arc<Disk>, read_at: Duration, to: Gib, limits: Limits) -> Self {
        let sends = ExpansionSends::new(read_at);
        Self { before, to, limits, attempts: Attempts::default(), sends, at: At::Look }
    }

    pub(super) fn watches(&self) -> bool {
        matches!(self.at, At::Watch(_))
    }

    pub(super) fn next<E: AzureFailure>(&mut self, now: Duration, input: Input<WholeDisk<E>>) -> Step<E> {
        let why = Why::Write(Write::Expansion(self.to));
        match (std::mem::replace(&mut self.at, At::Look), input) {
            (_, Input::NoPermit(error)) => failed(Failure::azure(why, error, &self.attempts)),
            (_, Input::Unwanted) => failed(Failure::new(Fault::Deadline, self.attempts.effect(), Why::Unwanted)),
            (At::Look, Input::Permitted) if self.sends.needs_read(now) => Next::Read(None),
            (At::Look, Input::Permitted) => self.write(),
            (At::Look, Input::Read(read)) => self.look(now, read),
            (At::Watch(operation), Input::Read(read)) => self.watch(now, operation, read),
            (At::Watch(operation), _) => self.go(At::Watch(operation), Next::Read(None)),
            (At::Write, Input::Written(Some(seen))) => Next::End(Ok(Done::Disk(seen.disk.into()))),
            (At::Write, Input::Refused(error)) => self.not_done(error, false),
            (At::Write, Input::Failed(error)) => self.not_done(error, true),
            (At::Look | At::Write, _) => Next::Permit(Verb::Patch),
        }
    }

    fn write<E: AzureFailure>(&mut self) -> Step<E> {
        self.go(At::Write, Next::Write(Op::Resize(self.to)))
    }

    /// Decides on a send by a read behind its permit.
    fn look<E: AzureFailure>(&mut self, now: Duration, read: Result<SeenDisk, E>) -> Step<E> {
        let seen = match found(read) {
            Ok(seen) => seen,
            Err(error) => return failed(Failure::azure(Why::Unreadable, error, &self.attempts)),
        };
        let (to, effect) = (self.to, self.attempts.effect());
        let write = Write::Expansion(to);
        let ended = |fault: Fault, why: Why| failed(Failure::new(fault, effect, why));
        match (expansion(&self.before, seen.as_ref().map(|seen| &seen.disk), to), seen) {
            (Expansion::Send, _) => self.write(),
            (Expansion::Wait, Some(seen)) => self.watch(now, OtherOperation { since: now }, Ok(seen)),
            (Expansion::Done, Some(seen)) => Next::End(Ok(Done::Disk(seen.disk.into()))),
            (Expansion::NeedsDetach(why), _) => ended(Fault::InUse, Why::NeedsDetach(to, why)),
            (Expansion::Replaced, _) => ended(Fault::Conflict, Why::Replaced(write)),
            (Expansion::Gone | Expansion::Wait | Expansion::Done, _) => ended(Fault::NotFound, Why::Gone(write)),
        }
    }

    fn watch<E: AzureFailure>(
        &mut self,
        now: Duration,
        operation: OtherOperation,
        read: Result<SeenDisk, E>,
    ) -> Step<E> {
        self.sends.waited();
        match found(read) {
            Err(error) => failed(Failure::azure(Why::Unreadable, error, &self.attempts)),
            Ok(None) => Next::Permit(Verb::Patch),
            Ok(Some(seen)) => match operation.seen(now, &seen) {
                Watched::Rest(rest) => self.go(At::Watch(operation), Next::Rest(rest)),
                Watched::Ended => Next::Permit(Verb::Patch),
                Watched::TooLong(elapsed) => failed(in_progress(elapsed)),
            },
        }
    }

    fn not_done<E: AzureFailure>(&mut self, error: E, was_accepted: bool) -> Step<E> {
        let rest = match self.sends.failed(error.fault(), was_accepted) {
            AfterExpansion::ReadAgain => return Next::Permit(Verb::Patch),
            AfterExpansion::Attempts => rest_after(&error, &mut self.attempts, self.limits),
            AfterExpansion::Stop => None,
        };
        let why = Why::Write(Write::Expansion(self.to));
        rest.map_or_else(|| failed(Failure::azure(why, error, &self.attempts)), Next::Rest)
    }

    fn go<E: AzureFailure>(&mut self, at: At, next: Step<E>) -> Step<E> {
        self.at = at;
        next
    }
}
