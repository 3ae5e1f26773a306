//! The course of a deletion. A disk that is attached to a node on which Kubernetes does not use it is detached first.

use std::mem;

use lazuli_engine::single::AzureFailure;
use lazuli_model::fault::Fault;

use super::{Call, Context, Done, Event, Failure, Next, Turn, WorkFailure, free::Free};
use crate::calls::unexpected;
use crate::dangling::Blocked;

/// The deletion of a disk.
#[derive(Debug)]
pub(super) struct Delete<W> {
    at: At<W>,
}

impl<W> Default for Delete<W> {
    fn default() -> Self {
        Self { at: At::Begin }
    }
}

#[derive(Debug)]
enum At<W> {
    Begin,
    Deleting,
    Freeing(Free<W>),
    DeletingAgain,
    Over,
}

impl<W: WorkFailure> Delete<W> {
    pub(super) fn next<E: AzureFailure>(&mut self, cx: &mut Context<'_, '_>, event: Event<E, W>) -> Turn<Done, E, W> {
        match (mem::replace(&mut self.at, At::Over), event) {
            (At::Begin, Event::Begun) => self.go(At::Deleting, Call::Delete),
            (At::Deleting, Event::Deleted(Err(error))) if *error.fault() == Fault::InUse => {
                let (free, call) = Free::begin(cx, Blocked::Delete, error)?;
                self.go(At::Freeing(free), call)
            }
            (At::Deleting | At::DeletingAgain, Event::Deleted(deleted)) => {
                deleted.map(|()| Next::Done(Done::Deleted)).map_err(Failure::work)
            }
            (At::Freeing(mut free), event) => match free.next(cx, event)? {
                Next::Call(call) => self.go(At::Freeing(free), call),
                Next::Done(()) => self.go(At::DeletingAgain, Call::Delete),
            },
            (at, event) => unexpected(&at, &event),
        }
    }

    fn go<E>(&mut self, at: At<W>, call: Call) -> Turn<Done, E, W> {
        self.at = at;
        Ok(Next::Call(call))
    }
}
