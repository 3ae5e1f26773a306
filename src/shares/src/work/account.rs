//! The course of one request for a storage account.
//!
//! No account that exists is ever PUT: the PUT is sent only after a read, behind its permit, that finds none.

use std::{fmt, time::Duration};

use lazuli_engine::{
    Awaited,
    attempts::{Attempts, Limits},
    single::{AzureFailure, Course, Input, Next, Rest},
};
use lazuli_model::{
    ProvisioningState, StorageAccount,
    fault::Fault,
    op::{AccountSpec, AccountWrite, FileServiceSpec},
};

use super::{Failure as WorkFailure, Verb, rest_after};
use crate::account::clear_skip_matching;

/// Azure's code for the name of an account of somebody else.
const TAKEN: &str = "StorageAccountAlreadyTaken";
/// How long an account that is being made is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// How often it is, at most.
const MOST_LOOKS: u32 = 150;
/// How often the PUT of an account may meet another one.
const MOST_CONFLICTS: u32 = 5;

/// What is asked of an account.
#[derive(Debug, Clone)]
pub struct Request {
    /// What it is to become.
    pub wanted: Wanted,
    /// How often and how long each of its writes is tried.
    pub limits: Limits,
}

/// What an account is to become.
#[derive(Debug, Clone, PartialEq)]
pub enum Wanted {
    /// It exists, and holds files as a class wants it. One that exists already is left as it is.
    Made {
        /// What its PUT says.
        spec: Box<AccountSpec>,
        /// What is changed of its file service then.
        file_service: FileServiceSpec,
    },
    /// Its file service is as a class wants it.
    Finished(FileServiceSpec),
    /// It is matched again.
    Matched,
}

/// What a read asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Query {
    /// The account.
    Account,
    /// Its file service.
    FileService,
}

/// What Azure shows. `F` is a file service as the call read it, with all that a change of it sends back.
#[derive(Debug, Clone, PartialEq)]
pub enum Seen<F> {
    /// The account.
    Account(Box<StorageAccount>),
    /// Its file service.
    FileService(F),
}

/// What a write sends.
#[derive(Debug, Clone, PartialEq)]
pub enum Op<F> {
    /// Makes the account.
    Put(Box<AccountSpec>),
    /// Changes its file service, of which all else stays as it was read.
    FileService(FileServiceSpec, F),
    /// Replaces its tags.
    Tags(AccountWrite),
}

/// What came of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Done {
    /// It was made.
    Made(Box<StorageAccount>),
    /// It exists.
    Exists(Box<StorageAccount>),
    /// Somebody else has an account of the name.
    Taken,
    /// It is as asked.
    AsAsked,
}

/// What failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The creation.
    Creation,
    /// The change of its file service.
    FileService,
    /// The change of its tags.
    Tags,
    /// It cannot be read.
    Unreadable,
    /// It is being made for too long.
    InProgress,
    /// No caller waits for it any more, so it was not sent.
    Unwanted,
}

/// Why a request for an account failed.
pub type Failure<E> = WorkFailure<Why, E>;

/// The course of a request. `F` is a file service, as the call reads it.
#[derive(Debug, Clone)]
pub struct Account<E, F> {
    request: Request,
    attempts: Attempts,
    conflicts: u32,
    at: At,
    types: std::marker::PhantomData<(E, F)>,
}

#[derive(Debug, Clone, PartialEq)]
enum At {
    /// Towards the PUT of the account.
    Look,
    /// It is in flight.
    Put,
    /// The account that this course has begun, or another one of its name, is being made.
    Watch(u32),
    /// Towards the change of the file service, of an account that was made or of one that was found.
    Service(Option<Box<StorageAccount>>),
    /// It is in flight.
    ServicePut(Option<Box<StorageAccount>>),
    /// Towards the change of the tags.
    Tags,
    /// It is in flight.
    TagsPatch,
}

impl<E: AzureFailure, F: fmt::Debug + Clone> Course for Account<E, F> {
    type Request = Request;
    type Seen = Seen<F>;
    type Env = ();
    type Query = Query;
    type Verb = Verb;
    type Op = Op<F>;
    type Done = Done;
    type Why = Failure<E>;
    type Error = E;

    fn of(request: &Request) -> Self {
        let at = match request.wanted {
            Wanted::Made { .. } => At::Look,
            Wanted::Finished(_) => At::Service(None),
            Wanted::Matched => At::Tags,
        };
        Self {
            request: request.clone(),
            attempts: Attempts::default(),
            conflicts: 0,
            at,
            types: std::marker::PhantomData,
        }
    }

    fn is_same(running: &Request, asked: &Request) -> bool {
        running.wanted == asked.wanted
    }

    fn next(&mut self, (): &(), _: Duration, input: Input<Self>) -> Next<Self> {
        match (self.at.clone(), input) {
            (_, Input::NoPermit(error)) => self.failed(self.why(), error),
            (_, Input::Unwanted) => Next::End(Err(Failure::new(Fault::Deadline, &self.attempts, Why::Unwanted))),
            (At::Look, Input::Permitted) => Next::Read(Query::Account),
            (At::Look, Input::Read(Err(error))) if *error.fault() == Fault::NotFound => self.put(),
            (At::Look, Input::Read(Ok(Seen::Account(account)))) => Next::End(Ok(Done::Exists(account))),
            (At::Put, Input::Written(Some(Seen::Account(account)))) => self.made(account),
            // The answer does not show it.
            (At::Put, Input::Written(_)) => self.go(At::Watch(0), Next::Read(Query::Account)),
            (At::Put, Input::Refused(error)) if error.code() == TAKEN => Next::End(Ok(Done::Taken)),
            // Another is making it, or was quicker: the next look shows it.
            (At::Put, Input::Refused(error))
                if *error.fault() == Fault::Conflict && self.conflicts < MOST_CONFLICTS =>
            {
                self.conflicts += 1;
                self.go(At::Look, Next::Rest(Rest::For(LOOK_AGAIN)))
            }
            (At::Put, Input::Refused(error)) => self.not_done(At::Look, error),
            (At::Put, Input::Failed(error)) => self.failed(Why::Creation, error),
            (At::Watch(looks), Input::Read(Ok(Seen::Account(account)))) => self.watch(looks, account),
            (At::Watch(looks), Input::Rested) => self.go(At::Watch(looks), Next::Read(Query::Account)),
            (At::Service(made), Input::Permitted) => self.go(At::Service(made), Next::Read(Query::FileService)),
            (At::Service(made), Input::Read(Ok(Seen::FileService(read)))) => {
                let op = Op::FileService(self.file_service(), read);
                self.go(At::ServicePut(made), Next::Write(op))
            }
            (At::Service(made), Input::Begin | Input::Rested) => self.go(At::Service(made), Next::Permit(Verb::Put)),
            (At::ServicePut(made), Input::Written(_)) => Next::End(Ok(made.map_or(Done::AsAsked, Done::Made))),
            (At::ServicePut(made), Input::Refused(error) | Input::Failed(error)) => {
                self.not_done(At::Service(made), error)
            }
            (At::Tags, Input::Permitted) => Next::Read(Query::Account),
            (At::Tags, Input::Read(Ok(Seen::Account(account)))) => match clear_skip_matching(&account) {
                Some(write) => self.go(At::TagsPatch, Next::Write(Op::Tags(write))),
                None => Next::End(Ok(Done::AsAsked)),
            },
            (At::Tags, Input::Begin | Input::Rested) => Next::Permit(Verb::Patch),
            (At::TagsPatch, Input::Written(_)) => Next::End(Ok(Done::AsAsked)),
            (At::TagsPatch, Input::Refused(error) | Input::Failed(error)) => self.not_done(At::Tags, error),
            (_, Input::Read(Err(error))) => self.failed(Why::Unreadable, error),
            _ => self.go(At::Look, Next::Permit(Verb::Put)),
        }
    }

    /// What was begun is found by its name.
    fn goes_on_alone(&self) -> bool {
        false
    }

    fn rests_for(&self) -> Awaited {
        if matches!(self.at, At::Watch(_)) { Awaited::OtherOperation } else { Awaited::Pause }
    }
}

impl<E: AzureFailure, F: fmt::Debug + Clone> Account<E, F> {
    fn why(&self) -> Why {
        match self.at {
            At::Service(_) | At::ServicePut(_) => Why::FileService,
            At::Tags | At::TagsPatch => Why::Tags,
            At::Look | At::Put | At::Watch(_) => Why::Creation,
        }
    }

    fn file_service(&self) -> FileServiceSpec {
        match &self.request.wanted {
            Wanted::Made { file_service, .. } => *file_service,
            Wanted::Finished(spec) => *spec,
            Wanted::Matched => FileServiceSpec::default(),
        }
    }

    fn put(&mut self) -> Next<Self> {
        match &self.request.wanted {
            Wanted::Made { spec, .. } => {
                let op = Op::Put(spec.clone());
                self.go(At::Put, Next::Write(op))
            }
            Wanted::Finished(_) | Wanted::Matched => Next::End(Ok(Done::AsAsked)),
        }
    }

    fn made(&mut self, account: Box<StorageAccount>) -> Next<Self> {
        if self.file_service().is_empty() {
            return Next::End(Ok(Done::Made(account)));
        }
        self.go(At::Service(Some(account)), Next::Permit(Verb::Put))
    }

    fn watch(&mut self, looks: u32, account: Box<StorageAccount>) -> Next<Self> {
        if account.provisioning_state != ProvisioningState::InProgress {
            return self.made(account);
        }
        if looks >= MOST_LOOKS {
            return Next::End(Err(Failure::new(Fault::Conflict, &self.attempts, Why::InProgress)));
        }
        self.go(At::Watch(looks + 1), Next::Rest(Rest::For(LOOK_AGAIN)))
    }

    fn failed(&self, why: Why, error: E) -> Next<Self> {
        Next::End(Err(Failure::azure(why, error, &self.attempts)))
    }

    fn not_done(&mut self, again: At, error: E) -> Next<Self> {
        match rest_after(&error, &mut self.attempts, self.request.limits) {
            Some(rest) => self.go(again, Next::Rest(rest)),
            None => self.failed(self.why(), error),
        }
    }

    fn go(&mut self, at: At, next: Next<Self>) -> Next<Self> {
        self.at = at;
        next
    }
}
