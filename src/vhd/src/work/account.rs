//! The course of one storage account that is made.
//!
//! No account that exists is ever PUT: the PUT is sent only after a read, behind its permit, that finds none.

use std::{marker::PhantomData, time::Duration};

use lazuli_engine::{
    Awaited,
    attempts::{self, Attempts, Limits},
    single::{AzureFailure, Course, Input, Next, Rest},
};
use lazuli_model::{
    ProvisioningState, StorageAccount,
    fault::{Effect, Fault},
    op::AccountSpec,
};

/// Azure's codes for the name of an account that is somewhere else: of another subscription, or of another resource
/// group of this one.
const TAKEN: [&str; 2] = ["StorageAccountAlreadyTaken", "StorageAccountAlreadyExists"];
/// How long an account that is being made is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// How often it is, at most.
const MOST_LOOKS: u32 = 150;
/// How often the PUT of an account may meet another one.
const MOST_CONFLICTS: u32 = 150;

/// An account that is to be there.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// What its PUT says.
    pub spec: AccountSpec,
    /// How often and how long its PUT is tried.
    pub limits: Limits,
}

/// What came of a request.
#[derive(Debug, Clone)]
pub enum Done {
    /// It was made.
    Made(Box<StorageAccount>),
    /// It exists.
    Exists(Box<StorageAccount>),
    /// Somebody else has an account of the name.
    Taken,
}

/// What failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The creation.
    Creation,
    /// It cannot be read.
    Unreadable,
    /// It is being made for too long.
    InProgress,
    /// No caller waits for it any more, so it was not sent.
    Unwanted,
}

/// Why a request for an account failed.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure<E> {
    /// What a caller may do about it.
    pub fault: Fault,
    /// Whether a write may be in progress, or has left something.
    pub effect: Effect,
    /// What failed.
    pub why: Why,
    /// Azure's answer, where one stands behind it.
    pub azure: Option<E>,
}

/// The course of a request.
#[derive(Debug, Clone)]
pub struct Account<E> {
    request: Request,
    attempts: Attempts,
    conflicts: u32,
    at: At,
    error: PhantomData<E>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// Towards the PUT.
    Look,
    /// It is in flight.
    Put,
    /// The account is being made: by this course, or by another.
    Watch { looks: u32, is_mine: bool },
}

impl<E: AzureFailure> Course for Account<E> {
    type Request = Request;
    type Seen = Box<StorageAccount>;
    type Env = ();
    type Query = ();
    type Verb = ();
    type Op = AccountSpec;
    type Done = Done;
    type Why = Failure<E>;
    type Error = E;

    fn of(request: &Request) -> Self {
        Self { request: request.clone(), attempts: Attempts::default(), conflicts: 0, at: At::Look, error: PhantomData }
    }

    fn is_same(running: &Request, asked: &Request) -> bool {
        running.spec == asked.spec
    }

    fn next(&mut self, (): &(), _: Duration, input: Input<Self>) -> Next<Self> {
        match (self.at, input) {
            (_, Input::NoPermit(error)) => self.failed(Why::Creation, error),
            (_, Input::Unwanted) => self.fail(Fault::Deadline, Why::Unwanted),
            (At::Look, Input::Permitted) => Next::Read(()),
            (At::Look, Input::Read(Err(error))) if *error.fault() == Fault::NotFound => {
                self.at = At::Put;
                Next::Write(self.request.spec.clone())
            }
            (At::Look, Input::Read(Ok(account))) => self.watch(0, false, account),
            (At::Put, Input::Written(Some(account))) => self.watch(0, true, account),
            // The answer does not show it.
            (At::Put, Input::Written(None)) => {
                self.at = At::Watch { looks: 0, is_mine: true };
                Next::Read(())
            }
            (At::Put, Input::Refused(error) | Input::Failed(error)) if TAKEN.contains(&error.code()) => {
                Next::End(Ok(Done::Taken))
            }
            // Another is making it, or was quicker: the next look shows it.
            (At::Put, Input::Refused(error))
                if *error.fault() == Fault::Conflict && self.conflicts < MOST_CONFLICTS =>
            {
                self.conflicts += 1;
                self.at = At::Look;
                Next::Rest(Rest::For(LOOK_AGAIN))
            }
            (At::Put, Input::Refused(error)) => {
                self.at = At::Look;
                match self.attempts.failed(error.fault(), error.effect(), self.request.limits) {
                    attempts::Next::Pause(pause) => Next::Rest(Rest::For(pause)),
                    attempts::Next::BackOff { failures } => Next::Rest(Rest::BackOff { failures }),
                    attempts::Next::Stop => self.failed(Why::Creation, error),
                }
            }
            (At::Put, Input::Failed(error)) => self.failed(Why::Creation, error),
            (At::Watch { looks, is_mine }, Input::Read(Ok(account))) => self.watch(looks, is_mine, account),
            (At::Watch { .. }, Input::Rested) => Next::Read(()),
            // It is there, or was accepted.
            (At::Watch { .. }, Input::Read(Err(error))) => Next::End(Err(Failure {
                fault: error.fault().clone(),
                effect: Effect::Possible,
                why: Why::Unreadable,
                azure: Some(error),
            })),
            (_, Input::Read(Err(error))) => self.failed(Why::Unreadable, error),
            _ => {
                self.at = At::Look;
                Next::Permit(())
            }
        }
    }

    /// What was begun is found by its name.
    fn goes_on_alone(&self) -> bool {
        false
    }

    fn rests_for(&self) -> Awaited {
        if matches!(self.at, At::Watch { .. }) { Awaited::OtherOperation } else { Awaited::Pause }
    }
}

impl<E: AzureFailure> Account<E> {
    fn watch(&mut self, looks: u32, is_mine: bool, account: Box<StorageAccount>) -> Next<Self> {
        if account.provisioning_state != ProvisioningState::InProgress {
            // After a try whose answer was lost it is this one's all the same: a list of its blobs says what it holds.
            return Next::End(Ok(if is_mine { Done::Made(account) } else { Done::Exists(account) }));
        }
        if looks >= MOST_LOOKS {
            return self.fail(Fault::Conflict, Why::InProgress);
        }
        self.at = At::Watch { looks: looks + 1, is_mine };
        Next::Rest(Rest::For(LOOK_AGAIN))
    }

    fn fail(&self, fault: Fault, why: Why) -> Next<Self> {
        Next::End(Err(Failure { fault, effect: self.attempts.effect(), why, azure: None }))
    }

    fn failed(&self, why: Why, error: E) -> Next<Self> {
        let effect = if error.effect() == Effect::Possible { Effect::Possible } else { self.attempts.effect() };
        Next::End(Err(Failure { fault: error.fault().clone(), effect, why, azure: Some(error) }))
    }
}

#[cfg(test)]
mod tests;
