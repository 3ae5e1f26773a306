//! The course of a creation.
//!
//! A resource of the name may exist before: it is what the request asks for or another one, which the caller decides. A
//! creation that has failed may leave an incomplete one. It must not stay, because the retry may ask for another one: a disk
//! in another zone, or a snapshot of a later moment. What existed before the call may hold data, and is never deleted here.

use std::{sync::Arc, time::Duration};

use lazuli_engine::attempts::{Attempts, Limits};
use lazuli_engine::single::{AzureFailure as _, Input, Next};
use lazuli_model::{
    ProvisioningState,
    fault::{Effect, Fault},
};
use lazuli_quota::permit::Priority;

use super::{
    Failure, FailureOf, OtherOperation, Resource as _, Spec, Trouble, Verb, Watched, Whole, failed, in_progress,
    rest_after,
};

/// A creation.
#[derive(Debug, Clone)]
pub(crate) struct Create<C: Whole> {
    spec: Arc<Spec<C>>,
    limits: Limits,
    attempts: Attempts,
    /// A resource of the name existed before the first write.
    was_there: bool,
    at: At<C>,
}

#[derive(Debug, Clone)]
enum At<C: Whole> {
    /// Towards the read behind the permit.
    Look,
    /// Another writer's operation, or one of an earlier try, has not ended.
    Watch(OtherOperation),
    /// The write is in flight.
    Write,
    /// The write has failed for this reason. What has it left?
    Aftermath(FailureOf<C>, Option<OtherOperation>),
    /// What it has left is being deleted.
    CleanUp(FailureOf<C>, Attempts),
}

const WHY: Trouble = Trouble::Creation;

impl<C: Whole> Create<C> {
    pub(crate) fn new(spec: Arc<Spec<C>>, limits: Limits) -> Self {
        Self { spec, limits, attempts: Attempts::default(), was_there: false, at: At::Look }
    }

    /// Whether a failed write may have left something that this course removes.
    pub(crate) fn puts_right(&self) -> bool {
        matches!(self.at, At::Aftermath(..) | At::CleanUp(..))
    }

    pub(crate) fn watches(&self) -> bool {
        matches!(self.at, At::Watch(_) | At::Aftermath(_, Some(_)))
    }

    pub(crate) fn next(&mut self, now: Duration, input: Input<C>) -> Next<C> {
        match std::mem::replace(&mut self.at, At::Look) {
            At::Look => self.look(now, input),
            At::Watch(operation) => self.watch(now, operation, input),
            At::Write => self.written(input),
            At::Aftermath(failure, operation) => self.aftermath(now, failure, operation, input),
            At::CleanUp(failure, attempts) => self.clean_up(failure, attempts, input),
        }
    }

    /// Nobody waits for it. A try whose answer was lost may have left something.
    fn unwanted(&mut self) -> Next<C> {
        let failure = Failure::new(Fault::Deadline, self.attempts.effect(), Trouble::Unwanted);
        if failure.effect == Effect::None { failed(failure) } else { self.look_what_is_left(failure) }
    }

    fn look(&mut self, now: Duration, input: Input<C>) -> Next<C> {
        match input {
            Input::Permitted => Next::Read(Some(Priority::Create)),
            Input::NoPermit(error) => failed(Failure::azure(WHY, error, &self.attempts)),
            Input::Unwanted => self.unwanted(),
            Input::Read(Ok(seen)) => self.found(now, None, seen),
            Input::Read(Err(error)) => match error.fault() {
                Fault::NotFound => self.write(),
                // Without the resource group there is none. After any other failure an earlier attempt may have made one.
                Fault::ScopeNotFound => failed(Failure::azure(WHY, error, &self.attempts)),
                _ => failed(Failure::azure(WHY, error, &self.attempts).with_effect(Effect::Possible)),
            },
            Input::Begin | Input::Rested | Input::Written(_) | Input::Refused(_) | Input::Failed(_) => {
                Next::Permit(Verb::Put)
            }
        }
    }

    /// Waits for the end of an operation on it.
    fn watch(&mut self, now: Duration, operation: OtherOperation, input: Input<C>) -> Next<C> {
        match input {
            Input::Read(Ok(seen)) => self.found(now, Some(operation), seen),
            Input::Read(Err(error)) => {
                failed(Failure::azure(Trouble::Unreadable, error, &self.attempts).with_effect(Effect::Possible))
            }
            Input::Unwanted => self.unwanted(),
            _ => self.go(At::Watch(operation), Next::Read(None)),
        }
    }

    /// A resource of the name exists. `watched` is the operation on it that has been waited for; a wait gave the permit back.
    fn found(&mut self, now: Duration, watched: Option<OtherOperation>, seen: C::Seen) -> Next<C> {
        let operation = watched.unwrap_or(OtherOperation { since: now });
        match operation.seen(now, &seen) {
            Watched::Rest(rest) => return self.go(At::Watch(operation), Next::Rest(rest)),
            Watched::TooLong(elapsed) => return failed(in_progress(elapsed)),
            Watched::Ended => {}
        }
        if !seen.is_unfinished(&self.spec, self.attempts.effect()) {
            return Next::End(Ok(C::found(seen)));
        }
        // After a lost answer it may be what this call has made.
        self.was_there |= self.attempts.effect() == Effect::None;
        if watched.is_none() { self.write() } else { Next::Permit(Verb::Put) }
    }

    fn write(&mut self) -> Next<C> {
        let op = C::put(self.spec.clone());
        self.go(At::Write, Next::Write(op))
    }

    fn written(&mut self, input: Input<C>) -> Next<C> {
        match input {
            Input::Written(Some(seen)) => Next::End(Ok(C::made(seen))),
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

    fn look_what_is_left(&mut self, failure: FailureOf<C>) -> Next<C> {
        self.go(At::Aftermath(failure, None), Next::Read(None))
    }

    /// The resource's state shows whether the failed creation has left it.
    fn aftermath(
        &mut self,
        now: Duration,
        failure: FailureOf<C>,
        operation: Option<OtherOperation>,
        input: Input<C>,
    ) -> Next<C> {
        let is_lost = self.attempts.effect() == Effect::Possible;
        let seen = match input {
            Input::Read(Ok(seen)) => seen,
            Input::Read(Err(error)) if operation.is_some() => {
                return failed(
                    Failure::azure(Trouble::Unreadable, error, &self.attempts).with_effect(Effect::Possible),
                );
            }
            Input::Read(Err(read)) if *read.fault() == Fault::NotFound && !is_lost => {
                return failed(match failure.fault {
                    // Azure's code is ambiguous (`OperationNotAllowed`). Where it has left nothing, only the quota can have
                    // forbidden a valid request. With a source that may be the source's state, which passes.
                    Fault::Unclear if !C::Seen::has_source(&self.spec) => {
                        failure.resorted(Fault::Exhausted).with_effect(Effect::None)
                    }
                    Fault::OutcomeUnknown => failure.with_effect(Effect::Possible),
                    _ => failure.with_effect(Effect::None),
                });
            }
            Input::Read(Err(_)) => return failed(failure.with_effect(Effect::Possible)),
            _ => return self.go(At::Aftermath(failure, operation), Next::Read(None)),
        };
        let operation = operation.unwrap_or(OtherOperation { since: now });
        match operation.seen(now, &seen) {
            Watched::Rest(rest) => return self.go(At::Aftermath(failure, Some(operation)), Next::Rest(rest)),
            Watched::TooLong(elapsed) => return failed(in_progress(elapsed)),
            Watched::Ended => {}
        }
        if seen.provisioning_state() == ProvisioningState::Succeeded && seen.is_as(&self.spec) {
            return Next::End(Ok(C::found(seen)));
        }
        if !self.was_there && seen.is_left(&self.spec) {
            return self.go(At::CleanUp(failure, Attempts::default()), Next::Permit(Verb::Delete));
        }
        failed(failure.with_effect(Effect::Possible))
    }

    /// Deletes what the failed creation has left, if it is still that when the deletion is sent.
    fn clean_up(&mut self, failure: FailureOf<C>, mut attempts: Attempts, input: Input<C>) -> Next<C> {
        // A try whose answer was lost may still make it.
        let tried = self.attempts.effect();
        let clean = |failure: FailureOf<C>| failed(failure.with_effect(tried));
        let left = |failure: FailureOf<C>| failed(failure.with_effect(Effect::Possible));
        let next = match input {
            Input::Permitted => Next::Read(None),
            Input::Read(Ok(seen)) if seen.is_unfinished(&self.spec, Effect::Possible) => Next::Write(C::delete()),
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

    fn go(&mut self, at: At<C>, next: Next<C>) -> Next<C> {
        self.at = at;
        next
    }
}
