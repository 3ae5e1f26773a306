//! Runs the steps of the reconcile engine ([`lazuli_engine`]): a mailbox, a task and a timer for each key.
//!
//! ```text
//!   send(key, event) ──▶ mailbox ──▶ step ──▶ actions ──▶ Kind::carry_out ──▶ Azure, the API server, other mailboxes
//!                           ▲         ▲                        │
//!                           │      wake_at                     │ what came of it
//!                           └──────────────────────────────────┘
//! ```
//!
//! This crate chooses nothing. A [`Kind`] brings a pure step and says which calls an action is; [`Workers`] run it for as
//! many keys as there are. A key's task starts with its first event, and ends when its state is idle.
//!
//! - **Owner.** A task outlives the callers that wait for it. Requests to Azure run inside the task of their key.
//! - **Fencing.** A [`Lease`] says until when this replica leads. The step starts no write without enough of it. When it is
//!   lost, [`Workers::abort`] cancels what is unsent, and the process ends.
//! - **Drain.** [`Workers::drain`] starts nothing new and waits for what is in flight.
//! - **Panics.** A panic in the step or the adapter of one key ends the state of that key alone. The adapter is told, and
//!   the next event starts with an empty state, which reads what is there. The journal of the key is logged.
//! - **Journal.** Events, actions and what a key waits for are noted for `lazuli why`
//!   ([`Workers::with_journal`], [`lazuli_journal`]).
//!
//! [`object`] is the adapter's half that all objects of Azure share, and [`single`] that of the resources that callers ask for
//! as a whole. Another object costs a planner
//! ([`lazuli_engine::object::Object`]) and an [`object::Adapter`]; `tests/route_table.rs` below `src` is a whole one.

mod droppable;
pub mod journal;
mod lease;
pub mod metrics;
pub mod object;
pub mod single;
#[cfg(test)]
mod tests;
mod workers;

use std::{fmt, time::Duration};

pub use droppable::Droppable;
use futures::future::BoxFuture;
use lazuli_engine::Awaited;
use lazuli_journal::{Key as JournalKey, Note};
pub use lease::{Lease, LeaseHolder};
use tokio::time::Instant;
pub use workers::Workers;

/// A kind of key: its step, and what carries out its actions.
pub trait Kind: Send + Sync + Sized + 'static {
    /// Names one object.
    type Key: Clone + Ord + fmt::Display + Send + Sync + 'static;
    /// The facts of one key.
    type State: Default + Send + 'static;
    /// What happens to a key.
    type Event: Send + 'static;
    /// What a step decides.
    type Action: Send + 'static;

    /// The kind in metrics and logs.
    const NAME: &'static str;

    /// The event of a timer, or of a change of what all keys share.
    fn woke() -> Self::Event;

    /// The event that ends the work of a key.
    fn drain() -> Self::Event;

    /// Whether an action says that the drain is over.
    fn is_drained(action: &Self::Action) -> bool;

    /// What an action is called in metrics.
    fn action_name(action: &Self::Action) -> &'static str;

    /// Folds an event into the state and decides. Pure but for reading what all keys share.
    fn step(&self, key: &Self::Key, state: &mut Self::State, now: Duration, event: Self::Event) -> Vec<Self::Action>;

    /// When the state is to be woken, since [`Clock::start`].
    fn wake_at(&self, state: &Self::State) -> Option<Duration>;

    /// Whether the state may be dropped.
    fn is_idle(&self, state: &Self::State) -> bool;

    /// Carries out an action. What takes time is returned as a future, whose event goes to the same key. `None` when it is
    /// done at once.
    fn carry_out(
        &self,
        key: &Self::Key,
        state: &mut Self::State,
        action: Self::Action,
    ) -> Option<BoxFuture<'static, Self::Event>>;

    /// The work on a key was broken off by a panic, and its state is lost. Those who asked it for something ask again.
    fn broken_off(&self, key: &Self::Key);

    /// The key in the journal; `None` where nothing is noted of this kind.
    fn journal_key(_: &Self::Key) -> Option<JournalKey<'_>> {
        None
    }

    /// What the journal notes of an event.
    fn note_of_event(_: &Self::Event) -> Option<Note<'_>> {
        None
    }

    /// What the journal notes of an action.
    fn note_of_action(_: &Self::Action) -> Option<Note<'_>> {
        None
    }

    /// What a key waits for after a step; `None` where the words of its events and actions say that.
    fn awaited(&self, _: &Self::State, _now: Duration) -> Option<Awaited> {
        None
    }
}

/// Turns tokio's clock into the durations that steps reckon with.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// The time since the start.
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// The duration from the start to a moment; none for a moment before it.
    pub fn since(&self, moment: Instant) -> Duration {
        moment.saturating_duration_since(self.start)
    }

    /// The moment of a duration since the start.
    pub fn at(&self, at: Duration) -> Instant {
        self.start + at
    }
}
