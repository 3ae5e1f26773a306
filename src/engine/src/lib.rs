//! The reconcile engine: how one object of Azure, and one Service that spans several, come to their desired state.
//!
//! ```text
//!   Kubernetes ──Changed──▶ service step ──Tell{want, generation}──▶ object step ──Write──▶ Azure
//!                                ▲                                        │  ▲                │
//!                                └────── Told{generation, outcome} ───────┘  └── Observed ────┘
//! ```
//!
//! Each key (a Service, a load balancer, a security group, a public IP address, …) has a state and a step:
//! `step(&mut state, &env, now, event) -> Vec<Action>`, and `wake_at(&state)`. A step first folds the event into facts,
//! then decides from the facts. It has no clock, task, lock or random number: `now` is a duration since a moment that
//! the caller chooses, and a map whose order shows is a `BTreeMap`. `lazuli-reconcile` runs the steps.
//!
//! | module | holds |
//! |---|---|
//! | [`quiet_window`] | how long an idle key waits for a burst of requests to end |
//! | [`attempts`] | how often and how long a write is tried that Azure has not accepted |
//! | [`backoff`] | growing pauses between repeated tries |
//! | [`freshness`] | which reads may be believed, and for how long absence proves nothing |
//! | [`permit`] | whether the key has a permit to send a write |
//! | [`in_flight`] | the one write in flight, and when it is polled |
//! | [`bisection`] | the search for the one member of a batch that makes its write fail |
//! | [`wants`] | the newest desired state of each requester, by generation, and what the requester was told |
//! | [`reaction`] | what the step does about a fault |
//! | [`object`] | the step of one object of Azure |
//! | [`service`] | the step of a Service: the order in which it tells objects what it wants |
//! | [`single`] | the step of one resource that is written as a whole for callers, without a lease |
//! | [`Awaited`] | what a key waits for, for people who ask |
//!
//! # What holds
//!
//! - **Absence deletes nothing.** A want names what must be present and what must be gone. What no want names stays.
//! - **A removal by an address acts once.** After it is done the address may be another requester's.
//! - **One read and one write in flight for each key.** An answer with an unknown id is ignored.
//! - **The newest desired state wins.** What arrives while a write is in flight makes the next write.
//! - **Azure's answer decides.** After a conflict, a lost answer or a failure the object is read and planned again. A
//!   write names the observation it was planned from, and carries its ETag.
//! - **No write starts without enough lease**, before the informers are synced, or after the drain began.
//! - **The phase is derived.** A process may end between any two actions. The next one starts with empty states, reads
//!   the objects, and comes to the same decisions.

pub mod attempts;
mod awaited;
pub mod backoff;
pub mod bisection;
pub mod freshness;
pub mod in_flight;
pub mod lease;
pub mod object;
pub mod permit;
pub mod quiet_window;
pub mod reaction;
pub mod service;
#[cfg(test)]
mod simulation;
pub mod single;
pub mod wants;

use std::{fmt, time::Duration};

pub use awaited::Awaited;
use lazuli_model::fault::Fault;

/// The id of one read, write, permit or patch of a key. A later one is greater. Each key counts its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(u64);

impl Id {
    /// The number, for people who compare records of one key.
    pub fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Gives out the ids of one key.
#[derive(Debug, Clone, Default)]
pub struct Ids(u64);

impl Ids {
    /// The next id.
    pub fn next_id(&mut self) -> Id {
        self.0 += 1;
        Id(self.0)
    }
}

/// The lease of this replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Until when this replica leads, by its monotonic clock. `None` when it does not lead.
    pub until: Option<Duration>,
    /// The remaining lease below which no write starts: the time-out of a request and a margin. ARM knows no fencing
    /// token, so a request must have been answered or given up before another replica can lead.
    pub least: Duration,
}

impl Lease {
    /// Whether this replica leads now.
    pub fn is_held(&self, now: Duration) -> bool {
        self.until.is_some_and(|until| until > now)
    }

    /// Whether a write may start now.
    pub fn covers_write(&self, now: Duration) -> bool {
        self.until.is_some_and(|until| until >= now.saturating_add(self.least))
    }
}

/// What all keys of a process share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shared {
    /// Whether every informer has its first list. Nothing is read or planned before that.
    pub synced: bool,
    /// The lease of this replica.
    pub lease: Lease,
    /// From when on a read shows everything that the leader before has written. Until then an object that lacks
    /// something does not prove that the thing is gone: a write of the leader before may still arrive. This is
    /// [`freshness::LATE`] after the lease was acquired.
    pub trusted_from: Duration,
    /// Whether the operator has accepted what removes or replaces something of requesters that wait for it (first
    /// leadership after a take-over).
    pub acceptance: Acceptance,
    /// How old an observation may become before an object with wants is read again, to find what others changed. `None`
    /// to never do so.
    pub resync: Option<Duration>,
}

/// Whether the operator must accept a plan before it removes or replaces anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Acceptance {
    /// Plans are carried out.
    #[default]
    Given,
    /// What removes or replaces something is held. Of a requester: as long as the operator has not accepted it.
    Awaited,
}

/// What an object tells a requester about its newest want.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome<R> {
    /// Azure shows everything as wanted. The report says what it shows of this requester.
    Done(R),
    /// Not yet; the object tries on by itself.
    Waiting(Waiting),
    /// Azure or the planner refused this want. The object tries again when the want or its inputs change.
    Refused(Refusal),
}

/// What an object waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Waiting {
    /// Another operation on the object, which Azure reports as `Updating`.
    OtherOperation,
    /// The write that serves this want.
    Write,
    /// Reads that prove absence: a write whose answer was lost, or of the leader before, may still arrive.
    FreshReads,
    /// The operator's acceptance of a plan that removes or replaces something.
    Acceptance,
    /// A pause after a fault that is not about this want alone; the object tries again.
    Retry(Fault),
    /// What the planner says must come first.
    Plan(String),
}

/// Why a want was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Azure refused the write that contained it, and only this member.
    Azure(Fault),
    /// The planner refused it.
    Plan(Explanation),
}

/// A planner's refusal, for an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The reason of the event, of a bounded set.
    pub reason: &'static str,
    /// One sentence for the user: what was found, what is allowed, what to do.
    pub message: String,
}

/// The earlier of two times, where `None` is never.
pub fn earlier(one: Option<Duration>, other: Duration) -> Option<Duration> {
    Some(one.map_or(other, |one| one.min(other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_write_starts_with_less_lease_than_a_request_may_take() {
        let least = Duration::from_secs(5);
        let lease = |until| Lease { until, least };
        let now = Duration::from_secs(100);
        assert!(!lease(None).covers_write(now));
        assert!(!lease(None).is_held(now) && !lease(Some(now)).is_held(now));
        assert!(lease(Some(now + Duration::from_millis(1))).is_held(now));
        assert!(!lease(Some(Duration::from_millis(104_999))).covers_write(now));
        assert!(lease(Some(Duration::from_secs(105))).covers_write(now));
    }
}
