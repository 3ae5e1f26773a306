//! Permits: a request is sent only when Azure has a token for it.
//!
//! [`lazuli_quota::permit`] decides which request gets the next permit, and when. This module keeps its queue for one
//! identity, wakes the requests that get one, and reports Azure's answers to it.
//!
//! - A waiting request costs no task. One task sleeps until the next permit is due, while any request waits for time.
//! - A waiting request that is dropped leaves the queue. A [`Permit`] that is dropped unused returns its token.
//! - A request names the longest pause that it may wait for. It is rejected when Azure asks for a longer one, also
//!   while it waits.
//!
//! All changes of the queue go through one lock, and permits are handed out in the queue's order. So the same requests
//! at the same times get their permits in the same order.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::HeaderMap;
use lazuli_quota::permit::{self, Ceilings, Direction, Priority, Refusal, Remaining, Scope, Ticket};
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};
use tracing::Instrument;

use crate::{
    error::{Detail, Failure, Verb},
    metrics::Metrics,
};

/// The front door's bucket of requests of this verb.
pub(crate) fn direction(verb: Verb) -> Direction {
    match verb {
        Verb::Get => Direction::Reads,
        Verb::Put | Verb::Patch | Verb::Post => Direction::Writes,
        Verb::Delete => Direction::Deletes,
    }
}

/// The priority of a request, which may be raised while the request waits for its permit. Clones share it.
#[derive(Debug, Clone)]
pub struct Rank(Arc<Mutex<RankState>>);

#[derive(Debug)]
struct RankState {
    priority: Priority,
    /// The requests of this rank that wait.
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

    /// Raises the priority, also of requests that wait already. A lower priority changes nothing.
    pub fn raise(&self, priority: Priority) {
        let mut state = self.lock();
        if priority < state.priority {
            state.priority = priority;
            for (permits, ticket) in &state.waiting {
                permits.update(|queue, _| queue.raise(*ticket, priority));
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
    /// The queue's times count from here.
    start: Instant,
    metrics: Metrics,
    state: Mutex<State>,
    /// Notified when the time of the next permit changes.
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
    /// The longest pause that the request may wait for.
    longest_pause: Duration,
    reply: oneshot::Sender<Result<Permit, PauseTooLong>>,
}

/// Azure asks for a pause that is longer than the request may wait for: what is left of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PauseTooLong(pub(crate) Duration);

/// The permission to send one request now. Dropped unused, it returns its token.
#[derive(Debug)]
pub struct Permit {
    /// `None` for a request outside of subscriptions, which is not counted.
    taken: Option<(Permits, Ticket, Scope)>,
}

/// A request that was sent under a permit. Dropped without an answer, it counts as lost: Azure may have counted it.
#[derive(Debug)]
pub(crate) struct InFlight(Option<(Permits, Ticket, Direction)>);

impl Permit {
    /// The permit of a request that is not counted.
    fn uncounted() -> Self {
        Self { taken: None }
    }

    /// Whether the permit is for requests of this scope.
    pub(crate) fn is_for(&self, scope: Option<&Scope>) -> bool {
        self.taken.as_ref().map(|(_, _, scope)| scope) == scope
    }

    /// Turns the permit into the request that is sent now.
    pub(crate) fn sent(mut self) -> InFlight {
        InFlight(self.taken.take().map(|(permits, ticket, scope)| {
            if scope.has_windows() {
                permits.update(|queue, now| queue.sent(ticket, now));
            }
            (permits, ticket, scope.direction())
        }))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some((permits, ticket, _)) = self.taken.take() {
            permits.update(|queue, now| queue.refund(ticket, now));
        }
    }
}

impl InFlight {
    /// Returns the token: the request did not leave this machine.
    pub(crate) fn not_sent(mut self) {
        if let Some((permits, ticket, _)) = self.0.take() {
            permits.update(|queue, now| queue.refund(ticket, now));
        }
    }

    /// Records an answer, unless it is a 429.
    pub(crate) fn answered(mut self, headers: &HeaderMap, succeeded: bool) {
        if let Some((permits, ticket, direction)) = self.0.take() {
            let remaining = remaining(direction, headers, succeeded);
            permits.update(|queue, now| queue.answered(ticket, &remaining, now));
        }
    }

    /// Records that the data service of a storage account refused the request because it gets too many, and for how long
    /// it is to be left alone.
    pub(crate) fn account_is_busy(mut self, pause: Duration) {
        if let Some((permits, ticket, _)) = self.0.take() {
            let (remaining, refusal) = (Remaining::default(), Refusal::FrontDoor);
            permits.update(|queue, now| queue.throttled(ticket, &remaining, &refusal, Some(pause), now));
            permits.reject_too_long_pauses();
        }
    }

    /// Records a 429.
    pub(crate) fn throttled(mut self, headers: &HeaderMap, failure: &Failure, retry_after: Option<Duration>) {
        if let Some((permits, ticket, direction)) = self.0.take() {
            let (remaining, refusal) = (remaining(direction, headers, false), refusal(headers, failure));
            tracing::debug!(
                resource = failure.resource,
                %refusal,
                ?retry_after,
                "Azure answered 429: too many requests"
            );
            permits.update(|queue, now| queue.throttled(ticket, &remaining, &refusal, retry_after, now));
            permits.reject_too_long_pauses();
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some((permits, ticket, _)) = self.0.take() {
            permits.update(|queue, now| queue.lost(ticket, now));
        }
    }
}

/// The remaining tokens that an answer reports.
fn remaining(direction: Direction, headers: &HeaderMap, succeeded: bool) -> Remaining {
    let door = |of: &str| {
        let name = format!("x-ms-ratelimit-remaining-subscription-{of}{}", direction.as_str());
        headers.get(name)?.to_str().ok()?.trim().parse().ok()
    };
    let provider = headers.get_all("x-ms-ratelimit-remaining-resource").iter().flat_map(|value| {
        value.to_str().unwrap_or_default().split(',').filter_map(|policy| {
            let (name, remaining) = policy.trim().split_once(';')?;
            // Bounds the memory that an answer can take.
            (name.len() < 100).then_some((name.to_owned(), remaining.trim().parse().ok()?))
        })
    });
    Remaining { own: door(""), global: door("global-"), provider: provider.collect(), succeeded }
}

/// Who refused a request with 429.
fn refusal(headers: &HeaderMap, failure: &Failure) -> Refusal {
    let gateway = headers.get("x-ms-failure-cause").is_some_and(|cause| cause.as_bytes() == b"gateway");
    // Not every refusal of the front door carries that header.
    if gateway || failure.code.eq_ignore_ascii_case("SubscriptionRequestsThrottled") {
        return Refusal::FrontDoor;
    }
    let named =
        |detail: &Detail| detail.code.eq_ignore_ascii_case("TooManyRequests").then(|| detail.target.clone()).flatten();
    // The storage provider names no limit (source: azurefile-csi-driver#432).
    let unnamed =
        if failure.code.eq_ignore_ascii_case("TooManyRequests") { Refusal::UnnamedPolicy } else { Refusal::Resource };
    failure.details.iter().find_map(named).map_or(unnamed, Refusal::Policy)
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

    /// Sets the ceilings of the operator.
    pub(crate) fn set_ceilings(&self, ceilings: Ceilings) {
        self.update(|queue, _| queue.set_ceilings(ceilings));
    }

    /// What is left of the pauses that Azure asked for in this scope.
    pub(crate) fn paused(&self, scope: &Scope) -> Duration {
        self.lock().queue.paused(scope, self.now())
    }

    /// The part of the front door's bucket that is left.
    pub(crate) fn level(&self, scope: &Scope) -> f64 {
        self.lock().queue.level(scope, self.now())
    }

    /// How long the limits of the resource provider hold up the last of so many requests that come now.
    pub(crate) fn limited_for(&self, scope: &Scope, requests: usize) -> Duration {
        self.lock().queue.limited_for(scope, requests, self.now())
    }

    /// An estimate of how long a request that comes now would wait.
    pub(crate) fn would_wait(&self, scope: &Scope, priority: Priority) -> Duration {
        self.lock().queue.would_wait(scope, priority, self.now())
    }

    /// A permit, if there is one now and no waiting request goes before.
    pub(crate) fn try_acquire(&self, scope: Option<&Scope>, priority: Priority) -> Option<Permit> {
        let Some(scope) = scope else { return Some(Permit::uncounted()) };
        let (ticket, mut answer) = self.enqueue(scope, priority, Duration::MAX);
        let permit = answer.try_recv().ok().and_then(Result::ok);
        if permit.is_none() {
            self.leave(ticket);
        }
        permit
    }

    /// Waits for a permit. A dropped future leaves the queue.
    ///
    /// # Errors
    /// [`PauseTooLong`] when Azure asks for a longer pause than this, now or while the request waits.
    pub(crate) async fn acquire(
        &self,
        scope: Option<&Scope>,
        rank: &Rank,
        longest_pause: Duration,
    ) -> Result<Permit, PauseTooLong> {
        let Some(scope) = scope else { return Ok(Permit::uncounted()) };
        let pause = self.paused(scope);
        if pause > longest_pause {
            return Err(PauseTooLong(pause));
        }
        let (place, mut answer) = {
            // Under the rank's lock, so that a raise comes before the request or finds its ticket.
            let mut rank_state = rank.lock();
            let (ticket, answer) = self.enqueue(scope, rank_state.priority, longest_pause);
            rank_state.waiting.push((self.clone(), ticket));
            (QueuePlace { permits: self, rank, ticket }, answer)
        };
        let answer = match answer.try_recv() {
            Ok(answer) => Ok(answer),
            Err(_) => answer.await,
        };
        drop(place);
        // The sender is dropped only with the queue, which this future holds.
        answer.unwrap_or(Err(PauseTooLong(Duration::ZERO)))
    }

    fn enqueue(
        &self,
        scope: &Scope,
        priority: Priority,
        longest_pause: Duration,
    ) -> (Ticket, oneshot::Receiver<Result<Permit, PauseTooLong>>) {
        let (reply, answer) = oneshot::channel();
        let ticket = self.update_state(|state, now| {
            let ticket = state.queue.request(scope.clone(), priority, now);
            state.waiting.insert(ticket, Waiter { scope: scope.clone(), since: now, longest_pause, reply });
            ticket
        });
        (ticket, answer)
    }

    fn leave(&self, ticket: Ticket) {
        self.update_state(|state, _| {
            state.queue.leave(ticket);
            state.waiting.remove(&ticket);
        });
    }

    /// Rejects the waiting requests for which Azure's pause is too long.
    fn reject_too_long_pauses(&self) {
        let away: Vec<(Waiter, Duration)> = self.update_state(|state, now| {
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
            // A request that was dropped meanwhile needs no reply.
            let _ = waiter.reply.send(Err(PauseTooLong(pause)));
        }
    }

    fn now(&self) -> Duration {
        self.0.start.elapsed()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, change: impl FnOnce(&mut permit::Permits, Duration)) {
        self.update_state(|state, now| change(&mut state.queue, now));
    }

    /// Changes the state, hands out the permits that the queue grants then, and schedules the next grant.
    fn update_state<T>(&self, change: impl FnOnce(&mut State, Duration) -> T) -> T {
        let mut granted = Vec::new();
        let (result, pump, now) = {
            let mut state = self.lock();
            // Under the lock, so that the queue's time never goes back.
            let now = self.now();
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
            (result, pump, now)
        };
        if pump {
            let pump = Pump { permits: self.clone(), ended: false };
            // Outside of a runtime the task is dropped at once; the next change inside of one starts it.
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(pump.run().instrument(tracing::debug_span!("permits")));
            }
        }
        for (ticket, Waiter { scope, since, reply, .. }) in granted {
            self.0.metrics.permit_wait(scope.direction(), now.saturating_sub(since));
            let permit = Permit { taken: Some((self.clone(), ticket, scope)) };
            // A request that was dropped meanwhile drops its permit here, which returns the token.
            drop(reply.send(Ok(permit)));
        }
        result
    }
}

/// A request's place in the queue, left on drop.
struct QueuePlace<'a> {
    permits: &'a Permits,
    rank: &'a Rank,
    ticket: Ticket,
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        self.rank.lock().waiting.retain(|(_, ticket)| *ticket != self.ticket);
        self.permits.leave(self.ticket);
    }
}

/// The task that hands out permits when they are due. There is one while any request waits for time to pass.
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
                // Under the lock, so that the next request that has to wait starts another task.
                state.pumping = state.wake_at.is_some();
                self.ended = !state.pumping;
                state.wake_at
            };
            let Some(wake_at) = wake_at else { return };
            tokio::select! {
                biased;
                () = changed => {}
                () = tokio::time::sleep_until(permits.0.start + wake_at) => permits.update(|_, _| ()),
            }
        }
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        // A runtime that ends drops the task; the queue may live on in another.
        if !self.ended {
            self.permits.lock().pumping = false;
        }
    }
}

#[cfg(test)]
mod tests;
