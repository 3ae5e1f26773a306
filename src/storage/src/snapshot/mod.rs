//! Every decision of a request to make or to delete a snapshot: a small state machine for each request.
//!
//! ```text
//!   create   known and unfinished? ── yes ─▶ look at it ── still so ────────────────────────────▶ answer: not ready
//!              │ no                            └ complete ─▶ single read ──────────────────────▶ answer: ready
//!              ▼
//!            source ─▶ plan ─┬ its region ─▶ make it ─┬ made ──────────────────────────────────▶ answer
//!                            │                        ├ it was there ─▶ source, singly ─▶ its? ─▶ answer
//!                            │                        └ refused ─▶ which of Azure's limits? ────▶ failure
//!                            └ another one ─▶ both snapshots ─▶ local, copy, delete local ──────▶ answer
//!
//!   delete   snapshot ─▶ delete it ─▶ its local snapshot, if it was a copy ─▶ delete that ──────▶ answer
//!              └ none ─▶ its local snapshot ─▶ delete it all the same ─▶ look again later ──────▶ answer
//! ```
//!
//! [`State::step`] takes what has happened ([`Event`]) and says what comes next ([`Next`]): one call, whose answer is the
//! next event, or the answer to the caller. It has no clock, task, lock or await. `lazuli-disk` carries the calls out and
//! chooses nothing. Which snapshot a class asks for, and what follows from the snapshots that are there, is said by
//! [`lazuli_volume::snapshot`].
//!
//! A request has no task: it is dropped with its caller. What must outlive the caller is the write of one snapshot
//! ([`crate::whole_snapshot`]). A snapshot in another region takes several writes over minutes or hours. Each repetition of
//! the request goes on from what is there, for external-snapshotter repeats it until the snapshot is ready.
//!
//! # Reads
//!
//! A first try reads the source, which a list may show, for its region alone rests on that. What makes the snapshot looks
//! behind its permit whether it exists. One that exists is taken for the request's only by a single read of the source that
//! was sent after the request came: a disk that was made again under its name is another source.
//!
//! A request whose snapshot is unfinished is repeated every few seconds. [`Memory`] keeps that the snapshot with this
//! unique id is the one of this request, so that a list is enough for "not yet", and one single read is for "ready".
//! It may be lost at any moment.
//!
//! # Codes
//!
//! external-snapshotter forgets a snapshot after most codes, and nobody deletes what it forgets. So where a write may have
//! been sent for the request, by this process or one before it, [`Failure::code`] is one after which it asks again.

mod create;
mod delete;
pub mod dependents;
mod failure;
mod memory;
#[cfg(test)]
mod simulation;

use std::{sync::Arc, time::Duration};

use create::Create;
use delete::Delete;
use lazuli_engine::single::AzureFailure;
use lazuli_model::{ArmId, AzureTime, Disk, Snapshot};
use lazuli_quota::read::{Accept, By};
use lazuli_volume::{
    Defaults,
    snapshot::{SnapshotLimits, SnapshotRequest, SnapshotView},
};

pub use failure::{Cause, Failure, Why};
pub use memory::Memory;

use crate::calls::found_beside as found;
use crate::whole_snapshot::{Done as Worked, Wanted};

/// What is asked.
#[derive(Debug, Clone)]
pub enum Request {
    /// Make a snapshot, or find it.
    Create {
        /// The request.
        request: SnapshotRequest,
        /// What stands where the class says nothing.
        defaults: Arc<Defaults>,
    },
    /// Delete a snapshot.
    Delete(ArmId),
}

/// What came of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    /// The snapshot is so.
    Made(SnapshotView),
    /// There is no such snapshot.
    Deleted,
}

/// Which snapshots a list has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListOf {
    /// In lower case.
    pub subscription: String,
    /// In lower case; `None` for those of all groups.
    pub group: Option<String>,
}

impl ListOf {
    /// All of the subscription that a resource is in.
    pub fn subscription_of(id: &ArmId) -> Self {
        Self { subscription: id.subscription().to_ascii_lowercase(), group: None }
    }

    /// Those of a resource group.
    pub fn group(subscription: &str, group: &str) -> Self {
        Self { subscription: subscription.to_ascii_lowercase(), group: Some(group.to_ascii_lowercase()) }
    }

    /// Those of the resource group that a resource is in.
    fn group_of(id: &ArmId) -> Self {
        Self::group(id.subscription(), id.resource_group())
    }
}

/// Snapshots by a list.
#[derive(Debug, Clone)]
pub struct Listed {
    /// All of them.
    pub snapshots: Arc<Vec<Snapshot>>,
    /// It was sent no earlier.
    pub sent_at: Duration,
    /// When Azure answered, by its own clock; `None` where it did not say so.
    pub azure_now: Option<AzureTime>,
}

/// What is to be done next. Its answer is the next [`Event`].
#[derive(Debug, Clone, PartialEq)]
pub enum Call {
    /// Read a disk, by a read that is sent from now on: [`Event::Source`].
    ReadSource {
        /// The disk.
        disk: ArmId,
        /// Whether a list is an answer.
        accept: Accept,
    },
    /// Read a snapshot, by a read that is sent from now on: [`Event::Snapshot`].
    ReadSnapshot {
        /// The snapshot.
        snapshot: ArmId,
        /// Whether a list is an answer.
        accept: Accept,
        /// It is sent no earlier.
        not_before: Option<Duration>,
    },
    /// List snapshots: [`Event::Listed`].
    List {
        /// Which.
        of: ListOf,
        /// A list that was sent no earlier is an answer, whoever asked for it.
        not_before: Duration,
    },
    /// Have a snapshot made or deleted: [`Event::Worked`].
    Work {
        /// The snapshot.
        snapshot: ArmId,
        /// What it is to become.
        wanted: Wanted,
    },
}

/// What has happened. `E` is a failed call of Azure's, `W` a failed request for one snapshot.
#[derive(Debug, Clone)]
pub enum Event<E, W> {
    /// The request has come.
    Begun,
    /// The source.
    Source(Result<Box<(Disk, By)>, E>),
    /// A snapshot.
    Snapshot(Result<Box<(Snapshot, By)>, E>),
    /// Snapshots.
    Listed(Result<Listed, E>),
    /// What came of the work on a snapshot.
    Worked(Result<Worked, W>),
}

/// What people are told beside the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// The request is carried out differently from what was written.
    Warning(String),
}

/// What comes next.
#[derive(Debug, Clone)]
pub enum Next<T> {
    /// This call.
    Call(Call),
    /// Nothing.
    Done(T),
}

/// What follows from an event.
#[derive(Debug, Clone)]
pub struct Step<E, W> {
    /// What people are told.
    pub reports: Vec<Report>,
    /// The next call, or the answer to the caller.
    pub next: Next<Result<Done, Failure<E, W>>>,
}

/// What a step needs to know, as it is when its event comes.
#[derive(Debug)]
pub struct Env<'a> {
    /// The snapshots that are unfinished.
    pub memory: &'a mut Memory,
    /// Azure's limits.
    pub limits: &'a SnapshotLimits,
}

/// What comes next of a part of a request, or why the request fails.
type Turn<T, E, W> = Result<Next<T>, Failure<E, W>>;

/// What the parts of a step share.
struct Context<'c, 'e> {
    env: &'c mut Env<'e>,
    now: Duration,
    reports: &'c mut Vec<Report>,
}

/// One request.
#[derive(Debug)]
pub struct State<W>(Course<W>);

#[derive(Debug)]
enum Course<W> {
    Create(Box<Create<W>>),
    Delete(Delete),
}

impl<W: AzureFailure> State<W> {
    /// A request that comes now. Its first event is [`Event::Begun`].
    pub fn new(request: Request) -> Self {
        Self(match request {
            Request::Create { request, defaults } => Course::Create(Box::new(Create::new(request, defaults))),
            Request::Delete(snapshot) => Course::Delete(Delete::new(snapshot)),
        })
    }

    /// Folds an event into the request, and decides. `now` is the caller's clock.
    pub fn step<E: AzureFailure>(&mut self, env: &mut Env<'_>, now: Duration, event: Event<E, W>) -> Step<E, W> {
        let mut reports = Vec::new();
        let mut cx = Context { env, now, reports: &mut reports };
        let turn = match &mut self.0 {
            Course::Create(create) => create.next(&mut cx, event),
            Course::Delete(delete) => delete.next(&mut cx, event),
        };
        let next = match turn {
            Ok(Next::Call(call)) => Next::Call(call),
            Ok(Next::Done(done)) => Next::Done(Ok(done)),
            Err(failure) => Next::Done(Err(failure)),
        };
        Step { reports, next }
    }
}
