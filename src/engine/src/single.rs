//! The step of one resource that callers ask to be made, changed or deleted as a whole, without a lease.
//!
//! Two replicas may serve such requests at the same time, and most such resources have no version that Azure would check.
//! So nothing here rests on being alone: each write rests on what a [`Course`] has read, behind the permit to send it, and
//! on a caller who waits for it.
//!
//! ```text
//!   Requested ──▶ Begin ──▶ permit ──▶ read ──▶ one write ──▶ ended ──▶ Answer to all callers
//!                             ▲                     │
//!                             └──────── rest ◀── refused, or the answer was lost
//! ```
//!
//! - One request runs at a time. The same request joins it; another one is answered [`Refusal::Busy`] at once.
//! - A write that no caller waits for is not sent: where a course waits for a permit, rests, or wants to write, and its last
//!   caller leaves, it gets [`Input::Unwanted`]. A write in flight goes on. What a course must put right by itself it
//!   finishes without callers ([`Course::goes_on_alone`]).
//! - The permit is given back by a rest and at the end. So a course reads anew after each rest.

use std::{fmt, time::Duration};

use lazuli_model::fault::{Effect, Fault};

use crate::{Awaited, Id, Ids};

/// Azure's own error, as the call gave it.
pub trait AzureFailure: fmt::Debug + Clone {
    /// What a caller may do about it.
    fn fault(&self) -> &Fault;
    /// Whether a write may be in progress.
    fn effect(&self) -> Effect;
    /// Azure's own code; empty where it gave none.
    fn code(&self) -> &str;
}

/// Names one caller of a resource.
pub type Caller = u64;

/// How one request to a resource is served: what comes next after what has happened.
pub trait Course: fmt::Debug + Clone {
    /// What a caller asks for.
    type Request: fmt::Debug + Clone;
    /// The resource, as a read shows it.
    type Seen: fmt::Debug + Clone;
    /// What else decisions rest on, as of the moment of each.
    type Env;
    /// What a read asks for.
    type Query: fmt::Debug + Clone;
    /// What needs a permit: the kind of a write.
    type Verb: fmt::Debug + Clone + Copy;
    /// What a write sends.
    type Op: fmt::Debug + Clone;
    /// What came of the request.
    type Done: fmt::Debug + Clone;
    /// Why it was not done.
    type Why: fmt::Debug + Clone;
    /// Azure's errors.
    type Error: AzureFailure;

    /// The course of a request. Its first input is [`Input::Begin`].
    fn of(request: &Self::Request) -> Self;

    /// Whether a request asks for what another one has begun.
    fn is_same(running: &Self::Request, asked: &Self::Request) -> bool;

    /// What comes next. `now` is the caller's clock, as of the reads.
    fn next(&mut self, env: &Self::Env, now: Duration, input: Input<Self>) -> Next<Self>;

    /// Whether it goes on although no caller waits: a failed write may have left something that no one else removes.
    fn goes_on_alone(&self) -> bool;

    /// What it rests for, where that is not a pause after a failure.
    fn rests_for(&self) -> Awaited;
}

/// What happens to a course.
#[derive(Debug, Clone)]
pub enum Input<C: Course> {
    /// It begins.
    Begin,
    /// There is a permit.
    Permitted,
    /// There is none.
    NoPermit(C::Error),
    /// A single read, sent after the last permit or rest.
    Read(Result<C::Seen, C::Error>),
    /// Azure has done what was sent, and shows this where it shows anything.
    Written(Option<C::Seen>),
    /// Azure has not accepted what was sent, or its answer was lost.
    Refused(C::Error),
    /// Azure has accepted what was sent, and its operation has failed or its end was lost.
    Failed(C::Error),
    /// The rest is over.
    Rested,
    /// No caller waits any more, and nothing is in flight.
    Unwanted,
}

/// What a course wants next.
#[derive(Debug, Clone)]
pub enum Next<C: Course> {
    /// A permit for a write of this kind.
    Permit(C::Verb),
    /// A read of the resource alone.
    Read(C::Query),
    /// Send this, by the permit that it has.
    Write(C::Op),
    /// Give the permit back, and wait.
    Rest(Rest),
    /// The request is served.
    End(Result<C::Done, C::Why>),
}

/// A wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// For this long.
    For(Duration),
    /// As after so many failures; how long that is, with its random part, the runtime says.
    BackOff {
        /// The failures so far.
        failures: u32,
    },
}

/// What happens to a resource.
#[derive(Debug, Clone)]
pub enum Event<C: Course> {
    /// A caller asks.
    Requested(Caller, C::Request),
    /// A caller has given up.
    Abandoned(Caller),
    /// There is a permit.
    Permitted(Id),
    /// There is none.
    NoPermit(Id, C::Error),
    /// A read has ended.
    Read(Id, Result<C::Seen, C::Error>),
    /// A write has ended.
    Ended(Id, Written<C>),
    /// A rest is over.
    Rested(Id),
    /// Nothing has happened.
    Woke,
}

/// How a write has ended.
#[derive(Debug, Clone)]
pub enum Written<C: Course> {
    /// See [`Input::Written`].
    Done(Option<C::Seen>),
    /// See [`Input::Refused`].
    Refused(C::Error),
    /// See [`Input::Failed`].
    Failed(C::Error),
}

/// What is to be done.
#[derive(Debug, Clone)]
pub enum Action<C: Course> {
    /// Ask for a permit, until [`Self::Drop`].
    TakePermit(Id, C::Verb),
    /// Give a permit back.
    ReleasePermit(Id),
    /// Read the resource alone.
    Read(Id, C::Query),
    /// Send this once, by this permit, and wait for the end of the operation.
    Write {
        /// The write.
        id: Id,
        /// What is sent.
        op: C::Op,
        /// Its permit.
        permit: Id,
    },
    /// Wait, until [`Self::Drop`].
    Rest(Id, Rest),
    /// Ask for this permit, or wait for this, no longer.
    Drop(Id),
    /// No caller waits for this write any more: do not send it, if it is not sent yet. It then ends as refused by
    /// [`Fault::Deadline`] without an effect.
    LeaveUnsent(Id),
    /// Tell a caller.
    Answer(Caller, Result<C::Done, Refusal<C>>),
}

/// Why a request was not served.
#[derive(Debug, Clone)]
pub enum Refusal<C: Course> {
    /// Another request is being served.
    Busy(C::Request),
    /// Its course ended so.
    Why(C::Why),
}

/// The facts of one resource.
#[derive(Debug)]
pub struct State<C: Course> {
    running: Option<Running<C>>,
    ids: Ids,
}

#[derive(Debug)]
struct Running<C: Course> {
    course: C,
    request: C::Request,
    callers: Vec<Caller>,
    permit: Option<Id>,
    /// Its write was told to stay unsent.
    is_left: bool,
    /// The course was told that no caller waits. A failure that it ends with is no answer for who came later.
    was_unwanted: bool,
    at: At,
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Begin,
    Permit(Id),
    Read(Id),
    Write(Id),
    Rest(Id),
}

impl<C: Course> Default for State<C> {
    fn default() -> Self {
        Self { running: None, ids: Ids::default() }
    }
}

impl<C: Course> Running<C> {
    fn next(&mut self, env: &C::Env, now: Duration, input: Input<C>) -> Next<C> {
        self.was_unwanted |= matches!(input, Input::Unwanted);
        self.course.next(env, now, input)
    }
}

impl<C: Course> State<C> {
    /// Folds an event into the facts, and decides.
    pub fn step(&mut self, env: &C::Env, now: Duration, event: Event<C>) -> Vec<Action<C>> {
        let mut actions = Vec::new();
        let input = match event {
            Event::Requested(caller, request) => return self.requested(env, now, caller, request),
            Event::Abandoned(caller) => {
                if let Some(running) = &mut self.running {
                    running.callers.retain(|other| *other != caller);
                }
                return self.unwanted(env, now);
            }
            Event::Permitted(id) if self.is_at(At::Permit(id)) => {
                if let Some(running) = &mut self.running {
                    running.permit = Some(id);
                }
                Input::Permitted
            }
            // It came too late.
            Event::Permitted(id) => return vec![Action::ReleasePermit(id)],
            Event::NoPermit(id, error) if self.is_at(At::Permit(id)) => Input::NoPermit(error),
            Event::Read(id, read) if self.is_at(At::Read(id)) => Input::Read(read),
            Event::Ended(id, Written::Refused(error)) if self.is_at(At::Write(id)) && self.is_unsent(&error) => {
                self.begin_anew()
            }
            Event::Ended(id, written) if self.is_at(At::Write(id)) => match written {
                Written::Done(seen) => Input::Written(seen),
                Written::Refused(error) => Input::Refused(error),
                Written::Failed(error) => Input::Failed(error),
            },
            Event::Rested(id) if self.is_at(At::Rest(id)) => Input::Rested,
            Event::NoPermit(..) | Event::Read(..) | Event::Ended(..) | Event::Rested(_) | Event::Woke => {
                return actions;
            }
        };
        self.advance(env, now, input, &mut actions);
        actions
    }

    fn is_at(&self, at: At) -> bool {
        self.running.as_ref().is_some_and(|running| running.at == at)
    }

    /// Whether a write that ended so was left unsent because no caller waited for it.
    fn is_unsent(&self, error: &C::Error) -> bool {
        let is_left = self.running.as_ref().is_some_and(|running| running.is_left);
        is_left && *error.fault() == Fault::Deadline && error.effect() == Effect::None
    }

    /// A caller that came after the others had left finds the write unsent: its request begins.
    fn begin_anew(&mut self) -> Input<C> {
        match &mut self.running {
            Some(running) if !running.callers.is_empty() => {
                (running.course, running.was_unwanted) = (C::of(&running.request), false);
                Input::Begin
            }
            _ => Input::Unwanted,
        }
    }

    fn requested(&mut self, env: &C::Env, now: Duration, caller: Caller, request: C::Request) -> Vec<Action<C>> {
        if let Some(running) = &mut self.running {
            if !C::is_same(&running.request, &request) {
                return vec![Action::Answer(caller, Err(Refusal::Busy(running.request.clone())))];
            }
            running.callers.push(caller);
            return Vec::new();
        }
        let mut actions = Vec::new();
        let course = C::of(&request);
        self.running = Some(Running {
            course,
            request,
            callers: vec![caller],
            permit: None,
            is_left: false,
            was_unwanted: false,
            at: At::Begin,
        });
        self.advance(env, now, Input::Begin, &mut actions);
        actions
    }

    /// Tells the course that its last caller has left, where nothing is in flight that must end first.
    fn unwanted(&mut self, env: &C::Env, now: Duration) -> Vec<Action<C>> {
        let mut actions = Vec::new();
        let Some(running) = &mut self.running else { return actions };
        if !running.callers.is_empty() || running.course.goes_on_alone() {
            return actions;
        }
        match running.at {
            At::Permit(id) | At::Rest(id) => {
                actions.push(Action::Drop(id));
                self.advance(env, now, Input::Unwanted, &mut actions);
            }
            At::Write(id) => {
                running.is_left = true;
                actions.push(Action::LeaveUnsent(id));
            }
            At::Begin | At::Read(_) => {}
        }
        actions
    }

    /// Goes on with what has happened, to the next thing that takes time.
    fn advance(&mut self, env: &C::Env, now: Duration, input: Input<C>, actions: &mut Vec<Action<C>>) {
        let Some(mut running) = self.running.take() else { return };
        running.is_left = false;
        let mut next = running.next(env, now, input);
        let starts = |next: &Next<C>| matches!(next, Next::Permit(_) | Next::Write(_) | Next::Rest(_));
        if starts(&next) && running.callers.is_empty() && !running.course.goes_on_alone() {
            next = running.next(env, now, Input::Unwanted);
        }
        // It went on alone to put something right, and a caller has come meanwhile: its request begins.
        if running.was_unwanted && !running.callers.is_empty() && matches!(next, Next::End(Err(_))) {
            (running.course, running.was_unwanted) = (C::of(&running.request), false);
            if let Some(permit) = running.permit.take() {
                actions.push(Action::ReleasePermit(permit));
            }
            next = running.next(env, now, Input::Begin);
        }
        if let (Next::Permit(_) | Next::Rest(_) | Next::End(_), Some(permit)) = (&next, running.permit) {
            running.permit = None;
            actions.push(Action::ReleasePermit(permit));
        }
        let ids = &mut self.ids;
        running.at = match next {
            Next::Permit(verb) => {
                let id = ids.next_id();
                actions.push(Action::TakePermit(id, verb));
                At::Permit(id)
            }
            Next::Read(priority) => {
                let id = ids.next_id();
                actions.push(Action::Read(id, priority));
                At::Read(id)
            }
            Next::Write(op) => {
                let id = ids.next_id();
                let permit = running.permit.take().expect("a course writes by the permit that it was given");
                actions.push(Action::Write { id, op, permit });
                At::Write(id)
            }
            Next::Rest(rest) => {
                let id = ids.next_id();
                actions.push(Action::Rest(id, rest));
                At::Rest(id)
            }
            Next::End(outcome) => {
                let outcome = outcome.map_err(Refusal::Why);
                actions.extend(running.callers.iter().map(|caller| Action::Answer(*caller, outcome.clone())));
                return;
            }
        };
        self.running = Some(running);
    }

    /// Whether nothing is asked for and nothing is in flight.
    pub fn is_idle(&self) -> bool {
        self.running.is_none()
    }

    /// What it waits for.
    pub fn awaited(&self) -> Awaited {
        let Some(running) = &self.running else { return Awaited::Nothing };
        match running.at {
            At::Permit(_) => Awaited::Permit,
            At::Read(_) => Awaited::Read,
            At::Write(_) => Awaited::Answer,
            At::Rest(_) => running.course.rests_for(),
            At::Begin => Awaited::Nothing,
        }
    }
}

#[cfg(test)]
mod tests;
