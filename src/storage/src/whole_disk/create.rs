//! The course of a creation.
//!
//! A disk of the name may exist before: it is what the request asks for or another one, which the caller decides. A creation
//! that has failed may leave an incomplete disk. It must not stay, because the retry may be for another zone. What existed
//! before the call may hold data, and is never deleted here.

use std::{sync::Arc, time::Duration};

use lazuli_engine::attempts::{Attempts, Limits};
use lazuli_engine::single::{Input, Next};
use lazuli_model::{
    Disk, ProvisioningState,
    disk_spec::DiskSpec,
    fault::{Effect, Fault},
};
use lazuli_quota::permit::Priority;

use super::{
    AzureFailure, Done, Failure, Op, OtherOperation, Step, Verb, Watched, WholeDisk, Why, Write, failed, in_progress,
    rest_after,
};

/// A creation.
#[derive(Debug, Clone)]
pub(super) struct Create<E: AzureFailure> {
    spec: Arc<DiskSpec>,
    limits: Limits,
    attempts: Attempts,
    /// A disk of the name existed before the first write.
    was_there: bool,
    at: At<E>,
}

#[derive(Debug, Clone)]
enum At<E: AzureFailure> {
    /// Towards the read behind the permit.
    Look,
    /// Another writer's operation, or one of an earlier try, has not ended.
    Watch(OtherOperation),
    /// The write is in flight.
    Write,
    /// The write has failed for this reason. What has it left?
    Aftermath(Failure<E>, Option<OtherOperation>),
    /// What it has left is being deleted.
    CleanUp(Failure<E>, Attempts),
}

/// Whether a disk is what an earlier creation left incomplete. A disk that holds data is in the state Failed too, after a
/// change of it that failed. So the PUT is repeated only for a disk that is exactly what is requested: it completes a
/// failed creation, and changes nothing where another write has failed.
pub(super) fn is_unfinished(spec: &DiskSpec, disk: &Disk) -> bool {
    matches!(disk.provisioning_state, ProvisioningState::Failed | ProvisioningState::Canceled)
        && spec.matches(disk).is_ok()
        && spec.has_sent_size(disk)
        && disk.holders().is_empty()
}

const WHY: Why = Why::Write(Write::Creation);

impl<E: AzureFailure> Create<E> {
    pub(super) fn new(spec: Arc<DiskSpec>, limits: Limits) -> Self {
        Self { spec, limits, attempts: Attempts::default(), was_there: false, at: At::Look }
    }

    /// Whether a failed write may have left something that this course removes.
    pub(super) fn puts_right(&self) -> bool {
        matches!(self.at, At::Aftermath(..) | At::CleanUp(..))
    }

    pub(super) fn watches(&self) -> bool {
        matches!(self.at, At::Watch(_) | At::Aftermath(_, Some(_)))
    }

    pub(super) fn next(&mut self, now: Duration, input: Input<WholeDisk<E>>) -> Step<E> {
        match std::mem::replace(&mut self.at, At::Look) {
            At::Look => self.look(now, input),
            At::Watch(operation) => self.watch(now, operation, input),
            At::Write => self.written(input),
            At::Aftermath(failure, operation) => self.aftermath(now, failure, operation, input),
            At::CleanUp(failure, attempts) => self.clean_up(failure, attempts, input),
        }
    }

    /// Nobody waits for the disk. A try whose answer was lost may have left one.
    fn unwanted(&mut self) -> Step<E> {
        let failure = Failure::new(Fault::Deadline, self.attempts.effect(), Why::Unwanted);
        if failure.effect == Effect::None { failed(failure) } else { self.look_what_is_left(failure) }
    }

    fn look(&mut self, now: Duration, input: Input<WholeDisk<E>>) -> Step<E> {
        match input {
            Input::Permitted => Next::Read(Some(Priority::Create)),
            Input::NoPermit(error) => failed(Failure::azure(WHY, error, &self.attempts)),
            Input::Unwanted => self.unwanted(),
            Input::Read(Ok(seen)) => self.found(now, None, seen.disk),
            Input::Read(Err(error)) => match error.fault() {
                Fault::NotFound => self.write(),
                // Without the resource group there is no disk. After any other failure an earlier attempt may have made one.
                Fault::ScopeNotFound => failed(Failure::azure(WHY, error, &self.attempts)),
                _ => failed(Failure::azure(WHY, error, &self.attempts).with_effect(Effect::Possible)),
            },
            Input::Begin | Input::Rested | Input::Written(_) | Input::Refused(_) | Input::Failed(_) => {
                Next::Permit(Verb::Put)
            }
        }
    }

    /// Waits for the end of an operation on the disk.
    fn watch(&mut self, now: Duration, operation: OtherOperation, input: Input<WholeDisk<E>>) -> Step<E> {
        match input {
            Input::Read(Ok(seen)) => self.found(now, Some(operation), seen.disk),
            Input::Read(Err(error)) => {
                failed(Failure::azure(Why::Unreadable, error, &self.attempts).with_effect(Effect::Possible))
            }
            Input::Unwanted => self.unwanted(),
            _ => self.go(At::Watch(operation), Next::Read(None)),
        }
    }

    /// A disk of the name exists. `watched` is the operation on it that has been waited for; a wait gave the permit back.
    fn found(&mut self, now: Duration, watched: Option<OtherOperation>, disk: Disk) -> Step<E> {
        let operation = watched.unwrap_or(OtherOperation { since: now });
        match operation.seen(now, &disk) {
            Watched::Rest(rest) => return self.go(At::Watch(operation), Next::Rest(rest)),
            Watched::TooLong(elapsed) => return failed(in_progress(elapsed)),
            Watched::Ended => {}
        }
        if !is_unfinished(&self.spec, &disk) {
            return Next::End(Ok(Done::Disk(disk.into())));
        }
        // After a lost answer it may be what this call has made.
        self.was_there |= self.attempts.effect() == Effect::None;
        if watched.is_none() { self.write() } else { Next::Permit(Verb::Put) }
    }

    fn write(&mut self) -> Step<E> {
        let op = Op::Put(self.spec.clone());
        self.go(At::Write, Next::Write(op))
    }

    fn written(&mut self, input: Input<WholeDisk<E>>) -> Step<E> {
        match input {
            Input::Written(Some(seen)) => Next::End(Ok(Done::Disk(seen.disk.into()))),
            Input::Refused(error) => match rest_after(&error, &mut self.attempts, self.limits) {
                Some(rest) => Next::Rest(rest),
                None => self.look_what_is_left(Failure::azure(WHY, error, &self.attempts)),
            },
            Input::Failed(error) => self.look_what_is_left(Failure::azure(WHY, error, &self.attempts)),
            // It was not sent.
            Input::Unwanted => self.unwanted(),
            _ => Next::Permit(Verb::Put),
        }
    }

    fn look_what_is_left(&mut self, failure: Failure<E>) -> Step<E> {
        self.go(At::Aftermath(failure, None), Next::Read(None))
    }

    /// The disk's state shows whether the failed creation has left a disk.
    fn aftermath(
        &mut self,
        now: Duration,
        failure: Failure<E>,
        operation: Option<OtherOperation>,
        input: Input<WholeDisk<E>>,
    ) -> Step<E> {
        let is_lost = self.attempts.effect() == Effect::Possible;
        let disk = match input {
            Input::Read(Ok(seen)) => seen.disk,
            Input::Read(Err(error)) if operation.is_some() => {
                return failed(Failure::azure(Why::Unreadable, error, &self.attempts).with_effect(Effect::Possible));
            }
            Input::Read(Err(read)) if *read.fault() == Fault::NotFound && !is_lost => {
                return failed(match failure.fault {
                    // Azure's code is ambiguous (`OperationNotAllowed`). Where it has left no disk, only the quota can have
                    // forbidden a valid request.
                    Fault::Unclear => failure.resorted(Fault::Exhausted).with_effect(Effect::None),
                    Fault::OutcomeUnknown => failure.with_effect(Effect::Possible),
                    _ => failure.with_effect(Effect::None),
                });
            }
            Input::Read(Err(_)) => return failed(failure.with_effect(Effect::Possible)),
            _ => return self.go(At::Aftermath(failure, operation), Next::Read(None)),
        };
        let operation = operation.unwrap_or(OtherOperation { since: now });
        match operation.seen(now, &disk) {
            Watched::Rest(rest) => return self.go(At::Aftermath(failure, Some(operation)), Next::Rest(rest)),
            Watched::TooLong(elapsed) => return failed(in_progress(elapsed)),
            Watched::Ended => {}
        }
        let is_it = self.spec.matches(&disk).is_ok();
        match disk.provisioning_state {
            ProvisioningState::Succeeded if is_it => Next::End(Ok(Done::Disk(disk.into()))),
            ProvisioningState::Failed | ProvisioningState::Canceled
                if !self.was_there && is_it && disk.holders().is_empty() =>
            {
                self.go(At::CleanUp(failure, Attempts::default()), Next::Permit(Verb::Delete))
            }
            _ => failed(failure.with_effect(Effect::Possible)),
        }
    }

    /// Deletes what the failed creation has left, if it is still that when the deletion is sent.
    fn clean_up(&mut self, failure: Failure<E>, mut attempts: Attempts, input: Input<WholeDisk<E>>) -> Step<E> {
        // A try whose answer was lost may still make a disk.
        let tried = self.attempts.effect();
        let clean = |failure: Failure<E>| failed(failure.with_effect(tried));
        let left = |failure: Failure<E>| failed(failure.with_effect(Effect::Possible));
        let next = match input {
            Input::Permitted => Next::Read(None),
            Input::Read(Ok(seen)) if is_unfinished(&self.spec, &seen.disk) => Next::Write(Op::Delete),
            Input::Read(Err(error)) if *error.fault() == Fault::NotFound => return clean(failure),
            Input::Written(_) => return clean(failure),
            Input::Refused(error) => match rest_after(&error, &mut attempts, self.limits) {
                Some(rest) => Next::Rest(rest),
                None => return left(failure),
            },
            Input::Rested => Next::Permit(Verb::Delete),
            Input::Read(_) | Input::NoPermit(_) | Input::Failed(_) | Input::Begin | Input::Unwanted => {
                return left(failure);
            }
        };
        self.go(At::CleanUp(failure, attempts), next)
    }

    fn go(&mut self, at: At<E>, next: Step<E>) -> Step<E> {
        self.at = at;
        next
    }
}
