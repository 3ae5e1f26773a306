//! The course of one request for a blob disk: its life ([`crate::life`]) behind permits.
//!
//! A write of a blob needs no permit, because the blob service counts none: what it rests on is the ETag of what was
//! read. The deletion of an account has no such condition. So its permit comes first, then the reads that it rests on.

use std::fmt;

use lazuli_engine::{
    Awaited,
    single::{AzureFailure, Course, Input, Next},
};
use lazuli_model::{
    AllowedResourceGroups,
    fault::{Effect, Fault},
};

use super::{Home, Refused};
use crate::accounts::is_dedicated_name;
use crate::life::{
    self, Answer, Blob, Call, Create, CreateSpec, Delete, DeleteSpec, Deleted, Expand, ExpandSpec, Failure, Why,
};

/// What is asked of a disk.
#[derive(Debug, Clone)]
pub struct Request {
    /// What is to become of it.
    pub wanted: Wanted,
    /// Its account.
    pub home: Home,
}

/// What is to become of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// It exists.
    Made(CreateSpec),
    /// It has its footer, and this size.
    Grown(ExpandSpec),
    /// It does not exist.
    Deleted(DeleteSpec),
}

impl Wanted {
    /// For people.
    pub fn words(&self) -> &'static str {
        match self {
            Self::Made(_) => "its creation",
            Self::Grown(_) => "its expansion",
            Self::Deleted(_) => "its deletion",
        }
    }

    /// In which resource groups (subscription and name) the account of a disk that is to be deleted may be, where no list
    /// shows one of the name; none where that is not known. `cluster` is that of the cluster.
    ///
    /// A list leaves out what this identity may not read. A single read of an account says more: Azure answers that it does not
    /// exist only to whom it would show it. What this cluster has made for one disk is in its resource group, and any other disk
    /// is in a group that the operator allows: an account of another cluster may have a name like those of this one's pool.
    pub fn may_be_in(&self, cluster: (&str, &str), allowed: &AllowedResourceGroups) -> Vec<(String, String)> {
        let Self::Deleted(spec) = self else { return Vec::new() };
        if is_dedicated_name(&spec.cluster, spec.uri.name(), spec.uri.account()) {
            return vec![(cluster.0.to_owned(), cluster.1.to_owned())];
        }
        allowed.all(cluster).unwrap_or_default()
    }

    /// How it ends where no list shows an account of the name. `is_gone`: there is none, by [`are_missing`].
    ///
    /// # Errors
    /// [`Why::NoAccount`], but for a deletion where there is none, which is done.
    pub fn without_account<E>(&self, is_gone: bool) -> Result<Done, Failure<E>> {
        match self {
            Self::Deleted(spec) if is_gone => Ok(Done::Deleted(Delete::new(spec.clone()).without_account())),
            Self::Deleted(_) | Self::Made(_) | Self::Grown(_) => {
                Err(Failure { why: Why::NoAccount, effect: Effect::None, azure: None })
            }
        }
    }

    /// Whether both ask for the same. The time in the footer is that of whoever came first.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Made(one), Self::Made(other)) => {
                (&one.mark, one.size, &one.accepted) == (&other.mark, other.size, &other.accepted)
            }
            (Self::Grown(one), Self::Grown(other)) => one.size == other.size,
            (Self::Deleted(_), Self::Deleted(_)) => true,
            (Self::Made(_) | Self::Grown(_) | Self::Deleted(_), _) => false,
        }
    }
}

/// Whether reads of an account in every place where it may be say that it does not exist.
pub fn are_missing<T, E: AzureFailure>(reads: &[Result<T, E>]) -> bool {
    let is_missing = |read: &Result<T, E>| matches!(read, Err(error) if *error.fault() == Fault::NotFound);
    !reads.is_empty() && reads.iter().all(is_missing)
}

/// What came of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    /// The disk exists with this size, in bytes.
    Size(u64),
    /// It does not exist.
    Deleted(Deleted),
}

/// A call to the account of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// The call.
    pub call: Call,
    /// The account.
    pub home: Home,
}

/// What a permit is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// A write of the blob or of its container: there is always one.
    Blob,
    /// The deletion of the account.
    Account,
}

#[derive(Debug, Clone)]
enum Life {
    Create(Create),
    Expand(Box<Expand>),
    Delete(Delete),
}

/// The course of a request.
#[derive(Debug, Clone)]
pub struct Disk<E> {
    request: Request,
    life: Life,
    /// What is to be sent next, or is in flight.
    call: Option<Call>,
    has_permit: bool,
    /// A write of this course is done, or may be: what it has begun it finishes.
    has_written: bool,
    error: std::marker::PhantomData<E>,
}

impl<E: fmt::Debug + Clone> Course for Disk<E> {
    type Request = Request;
    type Seen = Answer<E>;
    type Env = ();
    type Query = Sent;
    type Verb = Verb;
    type Op = Sent;
    type Done = Done;
    type Why = Failure<E>;
    type Error = Refused<E>;

    fn of(request: &Request) -> Self {
        let life = match &request.wanted {
            Wanted::Made(spec) => Life::Create(Create::new(spec.clone())),
            Wanted::Grown(spec) => Life::Expand(Box::new(Expand::new(spec.clone()))),
            Wanted::Deleted(spec) => Life::Delete(Delete::new(spec.clone())),
        };
        Self {
            request: request.clone(),
            life,
            call: None,
            has_permit: false,
            has_written: false,
            error: std::marker::PhantomData,
        }
    }

    fn is_same(running: &Request, asked: &Request) -> bool {
        running.home.id == asked.home.id && running.wanted.is_same(&asked.wanted)
    }

    fn next(&mut self, (): &(), _: std::time::Duration, input: Input<Self>) -> Next<Self> {
        match input {
            Input::Begin | Input::Rested => {
                let next = match &mut self.life {
                    Life::Create(create) => size(create.begin()),
                    Life::Expand(expand) => size(expand.begin()),
                    Life::Delete(delete) => deleted(delete.begin()),
                };
                self.go(next)
            }
            Input::Permitted => {
                self.has_permit = true;
                self.send()
            }
            Input::Read(Ok(answer)) => self.answered(answer),
            Input::Written(answer) => {
                self.has_written = true;
                self.answered(answer.unwrap_or(Answer::Done(None)))
            }
            Input::Refused(refused) | Input::Failed(refused) => {
                self.has_written |= refused.effect() == Effect::Possible;
                self.answered(refused.answer())
            }
            Input::Read(Err(refused)) | Input::NoPermit(refused) => self.answered(refused.answer()),
            Input::Unwanted => {
                let what = self.call.as_ref().map_or("the request", Call::what);
                let effect = if self.has_written { Effect::Possible } else { Effect::None };
                Next::End(Err(Failure { why: Why::Azure(what, Fault::Deadline), effect, azure: None }))
            }
        }
    }

    /// A blob without a footer is no disk, and half an expansion is none: they are finished.
    fn goes_on_alone(&self) -> bool {
        self.has_written
    }

    fn rests_for(&self) -> Awaited {
        Awaited::Pause
    }
}

fn size<E>(next: life::Next<u64, E>) -> life::Next<Done, E> {
    map(next, Done::Size)
}

fn deleted<E>(next: life::Next<Deleted, E>) -> life::Next<Done, E> {
    map(next, Done::Deleted)
}

fn map<D, E>(next: life::Next<D, E>, done: fn(D) -> Done) -> life::Next<Done, E> {
    match next {
        life::Next::Call(call) => life::Next::Call(call),
        life::Next::End(end) => life::Next::End(end.map(done)),
    }
}

impl<E: fmt::Debug + Clone> Disk<E> {
    fn answered(&mut self, answer: Answer<E>) -> Next<Self> {
        let next = match &mut self.life {
            Life::Create(create) => size(create.next(answer)),
            Life::Expand(expand) => size(expand.next(answer)),
            Life::Delete(delete) => deleted(delete.next(answer)),
        };
        self.go(next)
    }

    fn go(&mut self, next: life::Next<Done, E>) -> Next<Self> {
        match next {
            life::Next::Call(call) => {
                self.call = Some(call);
                self.send()
            }
            life::Next::End(end) => Next::End(end),
        }
    }

    /// Sends the call, or asks for the permit that it needs.
    fn send(&mut self) -> Next<Self> {
        let Some(call) = self.call.clone() else { return Next::Permit(Verb::Blob) };
        let needs = match &call {
            Call::ReadAccount | Call::DeleteAccount => Some(Verb::Account),
            call if call.writes() => Some(Verb::Blob),
            _ => None,
        };
        match needs {
            Some(verb) if !self.has_permit => Next::Permit(verb),
            _ => {
                let sent = Sent { home: self.request.home.clone(), call };
                if sent.call.writes() {
                    self.has_permit = false;
                    Next::Write(sent)
                } else {
                    Next::Read(sent)
                }
            }
        }
    }
}

/// What became of a disk, as the pool of accounts counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It is there.
    There,
    /// It is not there.
    NotThere,
    /// It may be there.
    Unknown,
    /// There is no such account.
    NoAccount,
}

impl Ending {
    /// That of a read. One that finds no blob may be older than a creation.
    pub fn of_read<E>(read: &Result<Box<Blob>, Failure<E>>) -> Self {
        match read {
            Ok(_) => Self::There,
            Err(Failure { why: Why::NoAccount, .. }) => Self::NoAccount,
            Err(_) => Self::Unknown,
        }
    }

    /// That of a request that was served.
    pub fn of<E>(outcome: Result<&Done, &Failure<E>>) -> Self {
        match outcome {
            Ok(Done::Size(_)) => Self::There,
            Ok(Done::Deleted(Deleted::DiskAndAccount)) => Self::NoAccount,
            Ok(Done::Deleted(Deleted::Disk | Deleted::AccountKept(_))) => Self::NotThere,
            Err(Failure { why: Why::NoAccount, .. }) => Self::NoAccount,
            Err(Failure { why: Why::Stranger | Why::OtherSize(_), .. }) => Self::There,
            Err(_) => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests;
