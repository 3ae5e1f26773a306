//! Permits: a request goes out only when Azure has a token for it.
//!
//! [`lazuli_plan::permit`] decides who gets the next permit and when; this module keeps its queue for one identity,
//! wakes those who get one, and tells it what Azure answered.
//!
//! - A request that waits costs no task. While any waits, one task sleeps until the next permit is due.
//! - A waiting request that is dropped leaves the queue. A [`Permit`] that is dropped gives its token back.
//! - Whoever waits for a pause that is longer than it may last is told so, also when the pause comes while it waits.
//!
//! Permits are given in the queue's order and under one lock, so that the same requests at the same times get theirs
//! in the same order.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::HeaderMap;
use lazuli_plan::permit::{self, Direction, Priority, Refusal, Scope, Ticket, Told};
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};
use tracing::Instrument;

use crate::{
    error::{Detail, Failure, Verb},
    metrics::Metrics,
};

/// What a request of this verb is taken from.
pub(crate) fn direction(verb: Verb) -> Direction {
    match verb {
        Verb::Get => Direction::Reads,
        Verb::Put | Verb::Patch | Verb::Post => Direction::Writes,
        Verb::Delete => Direction::Deletes,
    }
}

/// The priority of a request, which may be raised while the request waits for its permit. Clones are one rank.
#[derive(Debug, Clone)]
pub struct Rank(Arc<Mutex<RankState>>);

#[derive(Debug)]
struct RankState {
    priority: Priority,
    /// Where requests of this rank wait.
    waiting: Vec<(Permits, Ticket)>,
}

impl Rank {
    /// A rank of this priority.
    pub fn new(priority: Priority) -> Self {
        Self(Arc::new(Mutex::new(RankState { priority, waiting: Vec::new() })))
    }

    /// The priority now.
    pub fn priority(&self) -> Priority {
        self.lock().priority
    }

    /// Goes before all of lower priority from now on, also where it waits already. It never goes back.
    pub fn raise(&self, priority: Priority) {
        let mut state = self.lock();
        if priority < state.priority {
            state.priority = priority;
            for (permits, ticket) in &state.waiting {
                permits.drive(|queue, _| queue.raise(*ticket, priority));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, RankState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<Priority> for Rank {
    fn from(priority: Priority) -> Self {
        Self::new(priority)
    }
}

/// The queues of one identity; clones share them.
#[derive(Clone)]
pub(crate) struct Permits(Arc<Shared>);

struct Shared {
    /// The moment from which the queue's times count.
    start: Instant,
    metrics: Metrics,
    state: Mutex<State>,
    /// The time of the next permit has changed.
    changed: Notify,
}

#[derive(Default)]
struct State {
    queue: permit::Permits,
    waiting: BTreeMap<Ticket, Waiter>,
    wake_at: Option<Duration>,
    pumping: bool,
}

struct Waiter {
    scope: Scope,
    since: Duration,
    /// The longest pause that it waits for.
    longest_pause: Duration,
    tell: oneshot::Sender<Result<Permit, Paused>>,
}

/// Azure asks for a pause that is longer than the request may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Paused(pub(crate) Duration);

/// The right to send one request now. Dropped unused, it gives its token back.
#[derive(Debug)]
pub struct Permit {
    /// `None` outside of subscriptions, where nothing is counted.
    taken: Option<(Permits, Ticket, Scope)>,
}

/// A request that was sent under a permit. Dropped, it counts as lost: Azure may have counted it.
#[derive(Debug)]
pub(crate) struct InFlight(Option<(Permits, Ticket, Direction)>);

impl Permit {
    /// The permit of a request that is not counted.
    fn of_nothing() -> Self {
        Self { taken: None }
    }

    /// Whether it is a permit for requests of this scope.
    pub(crate) fn is_for(&self, scope: Option<&Scope>) -> bool {
        self.taken.as_ref().map(|(_, _, scope)| scope) == scope
    }

    /// The request is sent now.
    pub(crate) fn sent(mut self) -> InFlight {
        InFlight(self.taken.take().map(|(permits, ticket, scope)| (permits, ticket, scope.direction())))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some((permits, ticket, _)) = self.taken.take() {
            permits.drive(|queue, now| queue.refund(ticket, now));
        }
    }
}

impl InFlight {
    /// The request did not leave this machine.
    pub(crate) fn not_sent(mut self) {
        if let Some((permits, ticket, _)) = self.0.take() {
            permits.drive(|queue, now| queue.refund(ticket, now));
        }
    }

    /// It was answered, with anything but 429.
    pub(crate) fn answered(mut self, headers: &HeaderMap, succeeded: bool) {
        if let Some((permits, ticket, direction)) = self.0.take() {
            let told = told(direction, headers, succeeded);
            permits.drive(|queue, now| queue.answered(ticket, &told, now));
        }
    }

    /// It was answered with 429.
    pub(crate) fn throttled(mut self, headers: &HeaderMap, failure: &Failure, retry_after: Option<Duration>) {
        if let Some((permits, ticket, direction)) = self.0.take() {
            let (told, refusal) = (told(direction, headers, false), refusal(headers, failure));
            tracing::debug!(
                resource = failure.resource,
                ?refusal,
                ?retry_after,
                "Azure answered 429: too many requests"
            );
            permits.drive(|queue, now| queue.throttled(ticket, &told, &refusal, retry_after, now));
            permits.send_away_who_may_not_wait();
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some((permits, ticket, _)) = self.0.take() {
            permits.drive(|queue, now| queue.lost(ticket, now));
        }
    }
}

/// What an answer tells of remaining tokens.
fn told(direction: Direction, headers: &HeaderMap, succeeded: bool) -> Told {
    let door = |of: &str| {
        let name = format!("x-ms-ratelimit-remaining-subscription-{of}{}", direction.as_str());
        headers.get(name)?.to_str().ok()?.trim().parse().ok()
    };
    let provider = headers.get_all("x-ms-ratelimit-remaining-resource").iter().flat_map(|value| {
        value.to_str().unwrap_or_default().split(',').filter_map(|policy| {
            let (name, remaining) = policy.trim().split_once(';')?;
            // A name is Azure's; a text of any length is not.
            (name.len() < 100).then_some((name.to_owned(), remaining.trim().parse().ok()?))
        })
    });
    Told { own: door(""), global: door("global-"), provider: provider.collect(), succeeded }
}

/// Who refused a request.
fn refusal(headers: &HeaderMap, failure: &Failure) -> Refusal {
    let gateway = headers.get("x-ms-failure-cause").is_some_and(|cause| cause.as_bytes() == b"gateway");
    // Not every refusal of the front door says that it is one.
    if gateway || failure.code.eq_ignore_ascii_case("SubscriptionRequestsThrottled") {
        return Refusal::FrontDoor;
    }
    let named =
        |detail: &Detail| detail.code.eq_ignore_ascii_case("TooManyRequests").then(|| detail.target.clone()).flatten();
    failure.details.iter().find_map(named).map_or(Refusal::Resource, Refusal::Policy)
}

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permits").finish_non_exhaustive()
    }
}

impl Permits {
    pub(crate) fn new(metrics: Metrics) -> Self {
        let (state, changed) = (Mutex::default(), Notify::new());
        Self(Arc::new(Shared { start: Instant::now(), metrics, state, changed }))
    }

    /// How long Azure's pauses keep a request of this scope from being sent.
    pub(crate) fn paused(&self, scope: &Scope) -> Duration {
        self.lock().queue.paused(scope, self.now())
    }

    /// The part of the front door's bucket that is left.
    pub(crate) fn level(&self, scope: &Scope) -> f64 {
        self.lock().queue.level(scope, self.now())
    }

    /// How long a request that comes now would wait.
    pub(crate) fn would_wait(&self, scope: &Scope, priority: Priority) -> Duration {
        self.lock().queue.would_wait(scope, priority, self.now())
    }

    /// A permit, if there is one now that nobody goes before.
    pub(crate) fn at_once(&self, scope: Option<&Scope>, priority: Priority) -> Option<Permit> {
        let Some(scope) = scope else { return Some(Permit::of_nothing()) };
        let (ticket, mut told) = self.join(scope, priority, Duration::MAX);
        let permit = told.try_recv().ok().and_then(Result::ok);
        if permit.is_none() {
            self.leave(ticket);
        }
        permit
    }

    /// Waits for a permit. A future that is dropped leaves the queue.
    ///
    /// # Errors
    /// When Azure asks for a longer pause than this, now or while the request waits.
    pub(crate) async fn wait(
        &self,
        scope: Option<&Scope>,
        rank: &Rank,
        longest_pause: Duration,
    ) -> Result<Permit, Paused> {
        let Some(scope) = scope else { return Ok(Permit::of_nothing()) };
        let pause = self.paused(scope);
        if pause > longest_pause {
            return Err(Paused(pause));
        }
        let (waits, mut told) = {
            // Whoever raises the rank finds the ticket in it, or is before the request.
            let mut rank_state = rank.lock();
            let (ticket, told) = self.join(scope, rank_state.priority, longest_pause);
            rank_state.waiting.push((self.clone(), ticket));
            (Waits { permits: self, rank, ticket }, told)
        };
        let told = match told.try_recv() {
            Ok(told) => Ok(told),
            Err(_) => told.await,
        };
        drop(waits);
        // The sender is gone only with the queue, which this future holds.
        told.unwrap_or(Err(Paused(Duration::ZERO)))
    }

    fn join(
        &self,
        scope: &Scope,
        priority: Priority,
        longest_pause: Duration,
    ) -> (Ticket, oneshot::Receiver<Result<Permit, Paused>>) {
        let (tell, told) = oneshot::channel();
        let ticket = self.drive_state(|state, now| {
            let ticket = state.queue.request(scope.clone(), priority, now);
            state.waiting.insert(ticket, Waiter { scope: scope.clone(), since: now, longest_pause, tell });
            ticket
        });
        (ticket, told)
    }

    fn leave(&self, ticket: Ticket) {
        self.drive_state(|state, _| {
            state.queue.leave(ticket);
            state.waiting.remove(&ticket);
        });
    }

    /// Those who wait for a pause that is too long for them hear of it.
    fn send_away_who_may_not_wait(&self) {
        let away: Vec<(Waiter, Duration)> = self.drive_state(|state, now| {
            let State { queue, waiting, .. } = state;
            let too_long = waiting.iter().filter_map(|(ticket, waiter)| {
                let pause = queue.paused(&waiter.scope, now);
                (pause > waiter.longest_pause).then_some((*ticket, pause))
            });
            let too_long: Vec<(Ticket, Duration)> = too_long.collect();
            let mut away = Vec::new();
            for (ticket, pause) in too_long {
                queue.leave(ticket);
                away.extend(waiting.remove(&ticket).map(|waiter| (waiter, pause)));
            }
            away
        });
        for (waiter, pause) in away {
            // One that has stopped waiting needs no answer.
            let _ = waiter.tell.send(Err(Paused(pause)));
        }
    }

    fn now(&self) -> Duration {
        self.0.start.elapsed()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn drive(&self, change: impl FnOnce(&mut permit::Permits, Duration)) {
        self.drive_state(|state, now| change(&mut state.queue, now));
    }

    /// Changes the queue, gives the permits that there are then, and sees to it that the next one is given in time.
    fn drive_state<T>(&self, change: impl FnOnce(&mut State, Duration) -> T) -> T {
        let now = self.now();
        let mut granted = Vec::new();
        let (result, pump) = {
            let mut state = self.lock();
            let result = change(&mut state, now);
            let step = state.queue.step(now);
            for ticket in step.granted {
                granted.extend(state.waiting.remove(&ticket).map(|waiter| (ticket, waiter)));
            }
            let changed = std::mem::replace(&mut state.wake_at, step.wake_at) != step.wake_at;
            if changed && state.pumping {
                self.0.changed.notify_one();
            }
            let pump = !state.pumping && step.wake_at.is_some();
            state.pumping |= pump;
            for direction in Direction::ALL {
                self.0.metrics.permit_queue(direction, state.queue.waiting(direction));
            }
            (result, pump)
        };
        if pump {
            let pump = Pump { permits: self.clone(), ended: false };
            // Outside of a runtime nobody waits who could be woken; the next one who comes starts the task.
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(pump.run().instrument(tracing::debug_span!("permits")));
            }
        }
        for (ticket, Waiter { scope, since, tell, .. }) in granted {
            self.0.metrics.permit_wait(scope.direction(), now.saturating_sub(since));
            let permit = Permit { taken: Some((self.clone(), ticket, scope)) };
            // One that has stopped waiting gives its permit back here.
            drop(tell.send(Ok(permit)));
        }
        result
    }
}

/// A place in the queue.
struct Waits<'a> {
    permits: &'a Permits,
    rank: &'a Rank,
    ticket: Ticket,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.rank.lock().waiting.retain(|(_, ticket)| *ticket != self.ticket);
        self.permits.leave(self.ticket);
    }
}

/// The task that wakes when the next permit is due; there is one while any request waits for a time to come.
struct Pump {
    permits: Permits,
    ended: bool,
}

impl Pump {
    async fn run(mut self) {
        let permits = self.permits.clone();
        loop {
            let changed = permits.0.changed.notified();
            let wake_at = {
                let mut state = permits.lock();
                // Under the lock, so that the next one who has to wait starts another task.
                state.pumping = state.wake_at.is_some();
                self.ended = !state.pumping;
                state.wake_at
            };
            let Some(wake_at) = wake_at else { return };
            tokio::select! {
                biased;
                () = changed => {}
                () = tokio::time::sleep_until(permits.0.start + wake_at) => permits.drive(|_, _| ()),
            }
        }
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        // A runtime that ends takes the task along, and perhaps not the queue.
        if !self.ended {
            self.permits.lock().pumping = false;
        }
    }
}

#[cfg(test)]
mod tests;
