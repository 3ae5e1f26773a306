//! The course of a deletion.
//!
//! A snapshot that no read finds may be on its way: another replica has sent its PUT, or reads lag. So it is asked to be deleted
//! all the same, and counts as gone when a single read does not find it either that was sent [`APART`] later.

use std::{mem, time::Duration};

use lazuli_engine::single::AzureFailure;
use lazuli_model::{ArmId, Snapshot, fault::Effect};
use lazuli_quota::read::Accept;
use lazuli_volume::snapshot::{NextDeletion, next_deletion};

use super::{Call, Cause, Context, Done, Event, Failure, Next, Turn, Wanted, Why, found};
use crate::{calls::unexpected, gone::APART};

/// The deletion of a snapshot.
#[derive(Debug)]
pub(super) struct Delete {
    snapshot: ArmId,
    /// When a read did not find it, where none has found it before.
    missing_at: Option<Duration>,
    at: At,
}

#[derive(Debug)]
enum At {
    Begin,
    /// Its read says whether it has a local snapshot. A list is enough: how a snapshot was made never changes.
    Target,
    /// It was a copy, and is being deleted.
    Copy,
    /// The local snapshot of a copy that is gone is being read.
    Local(ArmId),
    /// The last of it is being deleted.
    Last,
    /// What no read has found is being deleted.
    Unseen(Duration),
    /// It is read again.
    Again,
    Over,
}

impl Delete {
    pub(super) fn new(snapshot: ArmId) -> Self {
        Self { snapshot, missing_at: None, at: At::Begin }
    }

    pub(super) fn next<E: AzureFailure, W: AzureFailure>(
        &mut self,
        cx: &mut Context<'_, '_>,
        event: Event<E, W>,
    ) -> Turn<Done, E, W> {
        match (mem::replace(&mut self.at, At::Over), event) {
            (At::Begin, Event::Begun) => {
                cx.env.memory.forget(&self.snapshot);
                let snapshot = self.snapshot.clone();
                self.go(At::Target, Call::ReadSnapshot { snapshot, accept: Accept::List, not_before: None })
            }
            (At::Target, Event::Snapshot(read)) => {
                let target = found(read).map_err(|error| unreadable(self.snapshot.clone(), error))?;
                self.missing_at = target.is_none().then_some(cx.now);
                self.decide(target.as_deref().map(|(target, _)| target), None)
            }
            (At::Copy, Event::Worked(worked)) => {
                worked.map_err(failed)?;
                self.decide(None, None)
            }
            (At::Local(local), Event::Snapshot(read)) => {
                let local = found(read).map_err(|error| unreadable(local, error))?;
                self.decide(None, Some(local.as_deref().map(|(local, _)| local)))
            }
            (At::Last, Event::Worked(worked)) => {
                worked.map_err(failed)?;
                self.end()
            }
            (At::Unseen(missing_at), Event::Worked(worked)) => {
                worked.map_err(failed)?;
                let (snapshot, not_before) = (self.snapshot.clone(), Some(missing_at + APART));
                self.go(At::Again, Call::ReadSnapshot { snapshot, accept: Accept::Single, not_before })
            }
            (At::Again, Event::Snapshot(read)) => {
                match found(read).map_err(|error| unreadable(self.snapshot.clone(), error))? {
                    Some(target) => self.decide(Some(&target.0), None),
                    None => Ok(Next::Done(Done::Deleted)),
                }
            }
            (at, event) => unexpected(&at, &event),
        }
    }

    fn decide<E, W>(&mut self, target: Option<&Snapshot>, local: Option<Option<&Snapshot>>) -> Turn<Done, E, W> {
        let work = |snapshot| Call::Work { snapshot, wanted: Wanted::Deleted };
        match next_deletion(&self.snapshot, target, local) {
            NextDeletion::ReadLocal(local) => {
                let snapshot = local.clone();
                self.go(At::Local(local), Call::ReadSnapshot { snapshot, accept: Accept::Single, not_before: None })
            }
            NextDeletion::Delete(snapshot) => self.go(At::Copy, work(snapshot)),
            NextDeletion::DeleteLast(snapshot) => self.go(At::Last, work(snapshot)),
            NextDeletion::Done => self.end(),
        }
    }

    /// Nothing of it is left, as far as is known.
    fn end<E, W>(&mut self) -> Turn<Done, E, W> {
        match self.missing_at.take() {
            Some(missing_at) => {
                let call = Call::Work { snapshot: self.snapshot.clone(), wanted: Wanted::Deleted };
                self.go(At::Unseen(missing_at), call)
            }
            None => Ok(Next::Done(Done::Deleted)),
        }
    }

    fn go<E, W>(&mut self, at: At, call: Call) -> Turn<Done, E, W> {
        self.at = at;
        Ok(Next::Call(call))
    }
}

fn unreadable<E, W>(snapshot: ArmId, error: E) -> Failure<E, W> {
    Failure::new(Cause::Azure(Why::Snapshot(snapshot), error), Effect::None)
}

fn failed<E, W: AzureFailure>(error: W) -> Failure<E, W> {
    let effect = error.effect();
    Failure::new(Cause::Work(error), effect)
}
