//! The course of a deletion.

use std::mem;

use lazuli_engine::single::AzureFailure;
use lazuli_model::{ArmId, Snapshot, fault::Effect};
use lazuli_quota::read::Accept;
use lazuli_volume::snapshot::{NextDeletion, next_deletion};

use super::{Call, Cause, Context, Done, Event, Failure, Next, Turn, Wanted, Why, found};
use crate::calls::unexpected;

/// The deletion of a snapshot.
#[derive(Debug)]
pub(super) struct Delete {
    snapshot: ArmId,
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
    Over,
}

impl Delete {
    pub(super) fn new(snapshot: ArmId) -> Self {
        Self { snapshot, at: At::Begin }
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
                self.go(At::Target, Call::ReadSnapshot { snapshot, accept: Accept::List })
            }
            (At::Target, Event::Snapshot(read)) => {
                let target = found(read).map_err(|error| unreadable(self.snapshot.clone(), error))?;
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
            (At::Last, Event::Worked(worked)) => worked.map(|_| Next::Done(Done::Deleted)).map_err(failed),
            (at, event) => unexpected(&at, &event),
        }
    }

    fn decide<E, W>(&mut self, target: Option<&Snapshot>, local: Option<Option<&Snapshot>>) -> Turn<Done, E, W> {
        let work = |snapshot| Call::Work { snapshot, wanted: Wanted::Deleted };
        match next_deletion(&self.snapshot, target, local) {
            NextDeletion::ReadLocal(local) => {
                let call = Call::ReadSnapshot { snapshot: local.clone(), accept: Accept::Single };
                self.go(At::Local(local), call)
            }
            NextDeletion::Delete(snapshot) => self.go(At::Copy, work(snapshot)),
            NextDeletion::DeleteLast(snapshot) => self.go(At::Last, work(snapshot)),
            NextDeletion::Done => Ok(Next::Done(Done::Deleted)),
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
