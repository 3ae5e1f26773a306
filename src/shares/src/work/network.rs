//! The course of what an account needs in the network: [`plan`] says what comes next, and this does it.
//!
//! Reads come first and without a permit. A write takes a permit, reads anew what it rests on, and is sent if it is still
//! what comes next. What it made is read again, so that each step rests on what Azure shows.

use std::time::Duration;

use lazuli_engine::{
    Awaited,
    attempts::{Attempts, Limits},
    single::{AzureFailure, Course, Input, Next, Rest},
};
use lazuli_model::fault::Fault;

use super::{Failure as WorkFailure, rest_after};
use crate::network::{Connections, Facts, Missing, Object, Refusal, Seen, Step, Wanted, Write, plan};

/// After so long what Azure is working on, or another has written, is read again.
const LOOK_AGAIN: Duration = Duration::from_secs(3);
/// How often it is, at most: a private endpoint takes a minute or two.
const MOST_LOOKS: u32 = 200;
/// How often writes may meet those of others.
const MOST_CONFLICTS: u32 = 5;

/// A request.
#[derive(Debug, Clone)]
pub struct Request {
    /// What is to be.
    pub wanted: Wanted,
    /// What a list shows of the account, where it was listed.
    pub connections: Option<Connections>,
    /// How often and how long each write is tried.
    pub limits: Limits,
}

/// What failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// It cannot be read.
    Unreadable(Object),
    /// It cannot be written.
    Unwritten(Object),
    /// Azure is working on it for too long.
    InProgress(Object),
    /// What is there does not allow it.
    Refused(Refusal),
    /// No caller waits for it any more, so it was not sent.
    Unwanted,
}

/// Why a request was not served.
pub type Failure<E> = WorkFailure<Why, E>;

/// The course of a request.
#[derive(Debug, Clone)]
pub struct Network<E> {
    request: Request,
    facts: Facts,
    attempts: Attempts,
    conflicts: u32,
    looks: u32,
    at: At,
    error: std::marker::PhantomData<E>,
}

/// What it waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// A read.
    Reading(Object),
    /// A permit to write this.
    Permit(Object),
    /// A read behind the permit to write the first.
    Confirming(Object, Object),
    /// The end of a write.
    Writing(Object),
    /// Nothing, for a while: Azure is at work.
    Waiting(Object),
    /// Nothing, for a while, after a failure.
    Paused(Object),
}

impl<E: AzureFailure> Course for Network<E> {
    type Request = Request;
    type Seen = Seen;
    type Env = ();
    type Query = Object;
    type Verb = Object;
    type Op = Write;
    type Done = ();
    type Why = Failure<E>;
    type Error = E;

    fn of(request: &Request) -> Self {
        Self {
            facts: Facts::of_account(request.connections.clone()),
            request: request.clone(),
            attempts: Attempts::default(),
            conflicts: 0,
            looks: 0,
            at: At::Paused(Object::Account),
            error: std::marker::PhantomData,
        }
    }

    fn is_same(running: &Request, asked: &Request) -> bool {
        running.wanted == asked.wanted
    }

    fn next(&mut self, (): &(), _: Duration, input: Input<Self>) -> Next<Self> {
        match (self.at, input) {
            (_, Input::Unwanted) => self.end(Fault::Deadline, Why::Unwanted),
            (At::Permit(object), Input::Permitted) => {
                self.facts.forget_before_write(object);
                self.go(Some(object))
            }
            (_, Input::NoPermit(error)) => self.failed(Why::Unwritten(self.object()), error),
            (At::Reading(object), Input::Read(read)) => self.read(None, object, read),
            (At::Confirming(write, object), Input::Read(read)) => self.read(Some(write), object, read),
            (At::Writing(object), Input::Written(_)) => {
                self.facts.forget(object);
                self.go(None)
            }
            (At::Writing(object), Input::Refused(error) | Input::Failed(error)) => self.not_written(object, error),
            (At::Waiting(object), Input::Rested) => {
                self.facts.forget(object);
                self.go(None)
            }
            (At::Paused(_), Input::Rested) => {
                self.facts = Facts::default();
                self.go(None)
            }
            (_, Input::Begin) => self.go(None),
            (_, Input::Read(Err(error))) => self.failed(Why::Unreadable(self.object()), error),
            (_, Input::Refused(error) | Input::Failed(error)) => self.failed(Why::Unwritten(self.object()), error),
            (_, Input::Permitted | Input::Read(Ok(_)) | Input::Written(_) | Input::Rested) => self.go(None),
        }
    }

    /// What was begun is found by its name.
    fn goes_on_alone(&self) -> bool {
        false
    }

    fn rests_for(&self) -> Awaited {
        if matches!(self.at, At::Waiting(_)) { Awaited::OtherOperation } else { Awaited::Pause }
    }
}

impl<E: AzureFailure> Network<E> {
    fn object(&self) -> Object {
        match self.at {
            At::Reading(object)
            | At::Permit(object)
            | At::Confirming(_, object)
            | At::Writing(object)
            | At::Waiting(object)
            | At::Paused(object) => object,
        }
    }

    /// The next step. `permit` is for the write of what it names.
    fn go(&mut self, permit: Option<Object>) -> Next<Self> {
        match plan(&self.request.wanted, &self.facts) {
            Step::Done => Next::End(Ok(())),
            Step::Refused(refusal) => self.end(Fault::Invalid, Why::Refused(refusal)),
            Step::Read(object) => {
                self.at = permit.map_or(At::Reading(object), |write| At::Confirming(write, object));
                Next::Read(object)
            }
            Step::Write(write) if permit == Some(write.object) => {
                self.at = At::Writing(write.object);
                Next::Write(*write)
            }
            Step::Write(write) => {
                self.at = At::Permit(write.object);
                Next::Permit(write.object)
            }
            Step::Wait(object) => self.wait(object),
        }
    }

    fn read(&mut self, permit: Option<Object>, object: Object, read: Result<Seen, E>) -> Next<Self> {
        let error = match read {
            Ok(seen) => {
                self.facts.learn(seen);
                return self.go(permit);
            }
            Err(error) => error,
        };
        // A subnet whose network or group is not there is missing too; nothing else is made before its group is.
        let is_missing = match object {
            Object::Subnet(_) | Object::Network => error.fault().says_that_it_is_missing(),
            _ => *error.fault() == Fault::NotFound,
        };
        match object.missing() {
            Some(Missing::Fact(seen)) if is_missing => {
                self.facts.learn(seen);
                self.go(permit)
            }
            Some(Missing::Parent(parent)) if is_missing => self.wait(parent),
            _ => self.failed(Why::Unreadable(object), error),
        }
    }

    /// Reads this again later.
    fn wait(&mut self, object: Object) -> Next<Self> {
        if self.looks >= MOST_LOOKS {
            return self.end(Fault::Conflict, Why::InProgress(object));
        }
        self.looks += 1;
        self.at = At::Waiting(object);
        Next::Rest(Rest::For(LOOK_AGAIN))
    }

    fn not_written(&mut self, object: Object, error: E) -> Next<Self> {
        let is_overtaken = matches!(error.fault(), Fault::Conflict | Fault::PreconditionFailed);
        let rest = if is_overtaken && self.conflicts < MOST_CONFLICTS {
            self.conflicts += 1;
            Some(Rest::For(LOOK_AGAIN))
        } else {
            rest_after(&error, &mut self.attempts, self.request.limits)
        };
        match rest {
            Some(rest) => {
                self.at = At::Paused(object);
                Next::Rest(rest)
            }
            None => self.failed(Why::Unwritten(object), error),
        }
    }

    fn failed(&self, why: Why, error: E) -> Next<Self> {
        let fault = match (&why, error.fault()) {
            // What the share was to be made in is gone: another account is chosen.
            (Why::Unreadable(Object::Account), Fault::NotFound) => Fault::ScopeNotFound,
            // A resource group that the class names is not there.
            (Why::Unreadable(object) | Why::Unwritten(object), Fault::ScopeNotFound) if *object != Object::Account => {
                Fault::Invalid
            }
            (_, fault) => fault.clone(),
        };
        Next::End(Err(Failure { fault, ..Failure::azure(why, error, &self.attempts) }))
    }

    fn end(&self, fault: Fault, why: Why) -> Next<Self> {
        Next::End(Err(Failure::new(fault, &self.attempts, why)))
    }
}
