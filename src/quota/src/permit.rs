//! Which request to Azure goes out next, and when: a queue in front of each of Azure's request buckets.
//!
//! Azure counts requests in token buckets and answers 429 to a request that finds its bucket empty. Such a request
//! costs a round trip and a pause of whole seconds. So every request takes a permit before it is sent, and a permit is
//! granted only when Azure will have a token for the request.
//!
//! ```text
//!  request ──> waiting ──step──> granted ──┬─ answered, throttled, lost ──> done; the remaining quota is recorded
//!                │                         └─ refund ──> done; the token is back
//!                └── leave ──> done
//! ```
//!
//! - **Order.** Each bucket of the front door (a subscription's reads, writes or deletes) has one queue, by
//!   [`Priority`], then by arrival. There is no reserve for high priorities, because the order does its work: a new
//!   request gets the next token that no request before it takes. So a detach from a dead node waits for one refill
//!   (40 ms for reads, 100 ms for writes) behind any number of other requests. A reserve would save that one refill
//!   and leave its part of the bucket unused.
//! - **Narrower limits.** A request that is held back only by a throttle policy of its provider, by the bucket of its
//!   resource or by a pause of one of those lets the other requests of its queue pass. Requests of several queues that
//!   share such a limit go by priority, then by arrival, too.
//! - **Windows.** Some providers allow so many requests in so long a time. Azure reports nothing of those limits, so what
//!   was sent lately is counted here, for each region. A request whose region is not known counts in every region.
//! - **Accounts.** Requests to the data service of a storage account do not go through the front door. Each account has a
//!   queue of its own ([`Scope::of_data`]), with [`MOST_IN_FLIGHT_OF_ACCOUNT`] requests in flight at most. Its refusal
//!   pauses all of them.
//! - **Ceilings.** An operator may set lower limits ([`Ceilings`]): a request that one holds back lets others pass, too.
//! - **Pauses.** After a 429, no request of the refused scope is sent before `Retry-After` is over. The scope is the
//!   direction when the front door refused, the policy when the provider named one, else the resource.
//! - **Start.** Before the first answer that reports what remains, the published bucket is assumed, and at most
//!   [`MOST_IN_FLIGHT_AT_START`] requests of it are in flight, because another process may have emptied it. An Azure
//!   that reports nothing (Azure Stack Hub) is limited by its pauses and by windows alone.
//!
//! Times are durations since a moment that the caller chooses, and never go back. This module has no clock.

mod bucket;
mod ceiling;
mod front_door;
mod limit;
mod meter;
mod observed;
mod policy;
mod scope;
#[cfg(test)]
mod tests;
mod window;

use std::{collections::BTreeMap, fmt, ops::Bound, sync::Arc, time::Duration};

use bucket::Mark;
pub use ceiling::{Ceiling, Ceilings, Rate};
use front_door::{Blocked, FrontDoor, Reporting, learn};
use limit::LimitKey;
use meter::{Meter, Taken};
use observed::Observed;
use policy::{Owner, Policy};
use scope::Class;
pub use scope::{Direction, Scope};

/// Which request goes first when tokens run short, first to last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Frees the disks of a node that is gone: its pods wait on other nodes.
    DetachDeadNode,
    /// Polls an accepted operation. Its callers have waited longest, and a late poll makes them wait on.
    Poll,
    /// Takes disks off a VM.
    Detach,
    /// Puts disks on a VM: a pod waits.
    Attach,
    /// Makes, changes or deletes a resource.
    Create,
    /// Writes at once what many ask of one resource. It lets creations pass, whose ends it takes up, and goes before them as
    /// [`Priority::Attach`] when it has waited for [`LONGEST_GATHERING`].
    Gather,
    /// Reads one resource.
    Read,
    /// Lists many.
    List,
}

/// The requests of one bucket that may be in flight before an answer has reported what remains.
pub const MOST_IN_FLIGHT_AT_START: u32 = 8;
/// The requests to the data service of one storage account that may be in flight. Answers take some 10 ms, so these are
/// fewer than a quarter of the 20,000 requests a second that an account takes, and its other users keep theirs.
pub const MOST_IN_FLIGHT_OF_ACCOUNT: u32 = 32;
/// The longest that a request waits for a bucket that is known only by an unknown name in a header.
pub const LONGEST_OBSERVED: Duration = Duration::from_secs(10);
/// The longest that a request with [`Priority::Gather`] lets creations pass. A load balancer is written in about four
/// seconds; with as long a pause after each write, a storm of a thousand Services costs half as many of these writes.
pub const LONGEST_GATHERING: Duration = Duration::from_secs(4);
/// The estimate of [`Permits::would_wait`] while the first answer is awaited.
const FIRST_ANSWER: Duration = Duration::from_millis(100);
/// The number of unknown names in headers that are kept; further ones are ignored, so that memory stays bounded.
const MOST_OBSERVED: usize = 1_000;
/// The number of policy buckets below which none is dropped. Most of them are of single resources.
const KEPT_FULL: usize = 4_096;
/// The number of front doors below which none is dropped. There is one for each subscription and direction; a cluster has
/// a handful, and others come from ids in volumes and Services.
const KEPT_DOORS: usize = 64;
/// The id of one request, from when it asks for a permit until it is answered. A later request has a greater one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// The remaining tokens that an answer reports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Remaining {
    /// In the bucket of this client: `x-ms-ratelimit-remaining-subscription-{reads,writes,deletes}`.
    pub own: Option<u32>,
    /// In the bucket of all clients: `x-ms-ratelimit-remaining-subscription-global-{reads,writes,deletes}`.
    pub global: Option<u32>,
    /// In the provider's, by name: `x-ms-ratelimit-remaining-resource`.
    pub provider: Vec<(String, u32)>,
    /// Whether the request succeeded. A successful answer that reports nothing means that this Azure never does; an
    /// answer of the front door itself (403, 404, 429) reports nothing on any Azure (recorded).
    pub succeeded: bool,
}

/// Who refused a request with 429.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The front door: the bucket of this direction is empty.
    FrontDoor,
    /// The provider, by the policy it names.
    Policy(String),
    /// The provider, by a policy that it does not name.
    UnnamedPolicy,
    /// The provider, without a policy's name.
    Resource,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FrontDoor => f.write_str("front door"),
            Self::Policy(name) => write!(f, "policy {name}"),
            Self::UnnamedPolicy => f.write_str("a policy without a name"),
            Self::Resource => f.write_str("provider"),
        }
    }
}

/// The result of [`Permits::step`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    /// The requests that may be sent now, first to last.
    pub granted: Vec<Ticket>,
    /// When to call [`Permits::step`] again if nothing else happens before. `None` when time alone grants no permit.
    pub wake_at: Option<Duration>,
}

/// The requests that a pause stops.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum PauseScope {
    Direction(Arc<str>, Direction),
    Class(Arc<str>, Class, Option<Arc<str>>),
    Resource(Direction, Arc<str>),
}

#[derive(Debug)]
struct Waiting {
    scope: Scope,
    priority: Priority,
    since: Duration,
}

#[derive(Debug)]
struct Granted {
    scope: Scope,
    own: Mark,
    global: Mark,
    limits: Vec<(LimitKey, Taken)>,
    observed: Vec<ObservedKey>,
    ceiling: Option<ceiling::Key>,
}

/// A bucket that is known only by its name in a header: subscription, class, name.
type ObservedKey = (Arc<str>, Class, String);

/// The queues and the buckets of one identity.
#[derive(Debug, Default)]
pub struct Permits {
    last: u64,
    doors: BTreeMap<(Arc<str>, Direction), FrontDoor>,
    waiting: BTreeMap<Ticket, Waiting>,
    granted: BTreeMap<Ticket, Granted>,
    limits: BTreeMap<LimitKey, Meter>,
    /// The number of those at which the unused ones are dropped next.
    kept: usize,
    policies: BTreeMap<(Arc<str>, Policy), Reporting>,
    observed: BTreeMap<ObservedKey, Observed>,
    paused: BTreeMap<PauseScope, Duration>,
    ceilings: ceiling::Used,
}

impl Permits {
    /// Sets the ceilings of the operator, in place of those before. What was sent so far does not count against them.
    pub fn set_ceilings(&mut self, ceilings: Ceilings) {
        self.ceilings = ceiling::Used::new(ceilings);
    }

    /// Adds a request to its queue.
    pub fn request(&mut self, scope: Scope, priority: Priority, now: Duration) -> Ticket {
        self.last += 1;
        let ticket = Ticket(self.last);
        self.door(&scope, now).queue.insert((priority, ticket));
        self.waiting.insert(ticket, Waiting { scope, priority, since: now });
        ticket
    }

    /// Raises the priority of a waiting request. It keeps its arrival. A lower priority changes nothing.
    pub fn raise(&mut self, ticket: Ticket, priority: Priority) {
        let Some(waiting) = self.waiting.get_mut(&ticket).filter(|waiting| priority < waiting.priority) else {
            return;
        };
        let before = std::mem::replace(&mut waiting.priority, priority);
        let key = (waiting.scope.subscription.clone(), waiting.scope.direction);
        if let Some(door) = self.doors.get_mut(&key) {
            door.queue.remove(&(before, ticket));
            door.queue.insert((priority, ticket));
        }
    }

    /// Removes a request from its queue. A request that does not wait stays as it is.
    pub fn leave(&mut self, ticket: Ticket) {
        if let Some(waiting) = self.waiting.remove(&ticket) {
            let key = (waiting.scope.subscription, waiting.scope.direction);
            if let Some(door) = self.doors.get_mut(&key) {
                door.queue.remove(&(waiting.priority, ticket));
            }
        }
    }

    /// Records that the request of a granted permit is sent now. It matters only where [`Scope::has_windows`]; there a permit
    /// counts until its request is answered, or can have arrived at the latest.
    pub fn sent(&mut self, ticket: Ticket, now: Duration) {
        let Some(mut granted) = self.granted.remove(&ticket) else { return };
        for (key, taken) in &mut granted.limits {
            self.counting(key).for_each(|meter| meter.sent(*taken, now));
            *taken = taken.sent_at(now);
        }
        self.granted.insert(ticket, granted);
    }

    /// Returns the token of a granted permit under which nothing was sent.
    pub fn refund(&mut self, ticket: Ticket, now: Duration) {
        let Some(granted) = self.granted.remove(&ticket) else { return };
        let door = self.door(&granted.scope, now);
        door.in_flight -= 1;
        door.own.0.give_back(now);
        door.global.0.give_back(now);
        for (key, taken) in &granted.limits {
            self.counting(key).for_each(|meter| meter.give_back(*taken, now));
        }
        for key in &granted.observed {
            if let Some(observed) = self.observed.get_mut(key) {
                observed.add(1.0, now);
            }
        }
        if let Some(key) = &granted.ceiling {
            self.ceilings.give_back(key, now);
        }
    }

    /// Records the answer to a request, unless it is a 429.
    pub fn answered(&mut self, ticket: Ticket, remaining: &Remaining, now: Duration) {
        let Some(granted) = self.granted.remove(&ticket) else { return };
        self.learn(&granted, remaining, now);
        self.settle(&granted, now);
    }

    /// Records that a request was sent and no answer came. Azure may have counted it.
    pub fn lost(&mut self, ticket: Ticket, now: Duration) {
        if let Some(granted) = self.granted.remove(&ticket) {
            self.settle(&granted, now);
        }
    }

    /// Records a 429, with the pause that Azure asks for, if any.
    pub fn throttled(
        &mut self,
        ticket: Ticket,
        remaining: &Remaining,
        refusal: &Refusal,
        retry_after: Option<Duration>,
        now: Duration,
    ) {
        let Some(granted) = self.granted.remove(&ticket) else { return };
        self.learn(&granted, remaining, now);
        let [direction, class, resource] = granted.scope.pause_scopes();
        let paused = match refusal {
            Refusal::FrontDoor => {
                let (own, reporting) = &mut self.door(&granted.scope, now).own;
                // Before the first report the bucket may have been empty from the start.
                if *reporting == Reporting::Reported {
                    own.halve_share(granted.own, now);
                }
                own.refused(retry_after, now);
                direction
            }
            Refusal::Policy(name) => match self.refuse_named(&granted, name, retry_after, now) {
                Some(Owner::Resource) => resource,
                Some(Owner::Subscription | Owner::Region) | None => class,
            },
            Refusal::UnnamedPolicy => {
                self.refuse_window(&granted, retry_after, now);
                // Where a limit of the policy is of one resource, it is likelier that one.
                let of_resource = granted.limits.iter().any(|(key, _)| key.limit().owner == Owner::Resource);
                if of_resource || granted.limits.is_empty() { resource } else { class }
            }
            Refusal::Resource => resource,
        };
        self.settle(&granted, now);
        if let Some(pause) = retry_after {
            let until = now.saturating_add(pause);
            let known = self.paused.entry(paused).or_insert(until);
            *known = until.max(*known);
        }
    }

    /// Records that the limit of this name refused a request. Returns what that limit belongs to, where it is known.
    fn refuse_named(
        &mut self,
        granted: &Granted,
        name: &str,
        retry_after: Option<Duration>,
        now: Duration,
    ) -> Option<Owner> {
        let is_named = |(key, _): &&(LimitKey, Taken)| key.limit().header.eq_ignore_ascii_case(short(name));
        let (key, taken) = granted.limits.iter().find(is_named)?;
        if let Some(meter) = self.limits.get_mut(key) {
            meter.refused(*taken, retry_after, now);
        }
        Some(key.limit().owner)
    }

    /// Records that one of the windows refused a request. `Retry-After` is at most what is left of Azure's window, in whole
    /// seconds, so it was the shortest window that is as long, or a longer one near its end.
    fn refuse_window(&mut self, granted: &Granted, retry_after: Option<Duration>, now: Duration) {
        let windows = granted.limits.iter().filter_map(|(key, taken)| {
            let length = self.limits.get(key)?.window()?;
            (length >= retry_after.unwrap_or_default()).then_some((length, key, *taken))
        });
        if let Some((_, key, taken)) = windows.min_by_key(|(length, ..)| *length)
            && let Some(meter) = self.limits.get_mut(key)
        {
            meter.refused(taken, retry_after, now);
        }
    }

    /// What is left of the pauses that Azure asked for in this scope.
    pub fn paused(&self, scope: &Scope, now: Duration) -> Duration {
        scope.pause_scopes().iter().filter_map(|paused| self.left(paused, now)).max().unwrap_or_default()
    }

    /// Raises the requests that have gathered long enough. Returns when the next one has.
    fn end_gathering(&mut self, now: Duration) -> Option<Duration> {
        let mut next = None;
        let mut ended = Vec::new();
        for door in self.doors.values() {
            let gathering = (Priority::Gather, Ticket(0))..=(Priority::Gather, Ticket(u64::MAX));
            for (_, ticket) in door.queue.range(gathering) {
                let Some(waiting) = self.waiting.get(ticket) else { continue };
                match waiting.since.saturating_add(LONGEST_GATHERING) {
                    end if end <= now => ended.push(*ticket),
                    end => next = Some(next.map_or(end, |next: Duration| next.min(end))),
                }
            }
        }
        ended.into_iter().for_each(|ticket| self.raise(ticket, Priority::Attach));
        next
    }

    /// Grants the permits for which Azure has tokens now.
    pub fn step(&mut self, now: Duration) -> Step {
        self.paused.retain(|_, until| *until > now);
        self.end_gathering(now);
        let mut step = Step::default();
        let mut wakes = |at: Duration| step.wake_at = Some(step.wake_at.map_or(at, |other| other.min(at)));
        // The next request of each queue. One after the other, because queues share limits of the provider.
        let mut next = BTreeMap::new();
        // The scopes of which no request gets a permit now: a storm of requests of one scope is looked at once.
        let mut full: Vec<Scope> = Vec::new();
        for (key, door) in &self.doors {
            let Some(first) = door.queue.first() else { continue };
            match self.left(&PauseScope::Direction(key.0.clone(), key.1), now) {
                Some(left) => wakes(now.saturating_add(left)),
                None => {
                    next.insert(*first, key.clone());
                }
            }
        }
        while let Some(((priority, ticket), key)) = next.pop_first() {
            let Some(door) = self.doors.get(&key) else { continue };
            match door.blocked(now) {
                None => {}
                Some(Blocked::Until(at)) => {
                    wakes(at);
                    continue;
                }
                Some(Blocked::Answer) => continue,
            }
            if let Some(after) = door.queue.range((Bound::Excluded((priority, ticket)), Bound::Unbounded)).next() {
                next.insert(*after, key);
            }
            let Some(waiting) = self.waiting.get(&ticket) else { continue };
            if full.iter().any(|full| full.shares_limits_with(&waiting.scope)) {
                continue;
            }
            let wait = self.narrow_wait(&waiting.scope, waiting.since, now);
            if wait.is_zero() {
                self.grant(ticket, now);
                step.granted.push(ticket);
                continue;
            }
            wakes(now.saturating_add(wait));
            let shared = self.shared_wait(&waiting.scope, 1, now);
            if !shared.is_zero() {
                wakes(now.saturating_add(shared));
                full.push(waiting.scope.clone());
            }
        }
        if let Some(end) = self.end_gathering(now) {
            step.wake_at = Some(step.wake_at.map_or(end, |at| at.min(end)));
        }
        step
    }

    /// The part of the front door's bucket that is left, from 0 to 1; 1 where Azure reports nothing.
    pub fn level(&self, scope: &Scope, now: Duration) -> f64 {
        let Some(door) = self.doors.get(&(scope.subscription.clone(), scope.direction)) else { return 1.0 };
        let known = [&door.own, &door.global].into_iter().filter(|(_, reporting)| *reporting == Reporting::Reported);
        known.map(|(bucket, _)| bucket.level(now)).fold(1.0, f64::min)
    }

    /// An estimate of how long a request would wait for its permit if it came now and no other request came later.
    pub fn would_wait(&self, scope: &Scope, priority: Priority, now: Duration) -> Duration {
        let narrow = self.narrow_wait(scope, now, now).max(self.paused(scope, now));
        let Some(door) = self.doors.get(&(scope.subscription.clone(), scope.direction)) else { return narrow };
        let behind = |priority: Priority| {
            let before = door.queue.range(..=(priority, Ticket(u64::MAX))).count();
            // Exact in an f64: so many requests fit in no memory.
            door.wait(before as f64 + 1.0, now).unwrap_or(FIRST_ANSWER)
        };
        let wait = match priority {
            Priority::Gather => behind(priority).min(LONGEST_GATHERING.max(behind(Priority::Attach))),
            _ => behind(priority),
        };
        wait.max(narrow)
    }

    /// How many requests wait in the queues of a direction.
    pub fn waiting(&self, direction: Direction) -> usize {
        self.doors.iter().filter(|(key, _)| key.1 == direction).map(|(_, door)| door.queue.len()).sum()
    }

    fn door(&mut self, scope: &Scope, now: Duration) -> &mut FrontDoor {
        let key = (scope.subscription.clone(), scope.direction);
        if self.doors.len() >= KEPT_DOORS && !self.doors.contains_key(&key) {
            // One that is at rest is made again, with full buckets, when it is needed.
            self.doors.retain(|_, door| !door.is_at_rest(now));
            let doors = &self.doors;
            let has_door = |subscription: &Arc<str>| {
                Direction::ALL.into_iter().any(|direction| doors.contains_key(&(subscription.clone(), direction)))
            };
            self.policies.retain(|(subscription, _), _| has_door(subscription));
        }
        self.doors.entry(key).or_insert_with(|| FrontDoor::new(scope.direction, now))
    }

    /// What is left of a pause; `None` when there is none.
    fn left(&self, paused: &PauseScope, now: Duration) -> Option<Duration> {
        self.paused.get(paused).map(|until| until.saturating_sub(now)).filter(|left| !left.is_zero())
    }

    /// How long the provider's buckets, pauses and the operator's ceilings hold back a request that has waited since then.
    fn narrow_wait(&self, scope: &Scope, since: Duration, now: Duration) -> Duration {
        self.wait_of_many(scope, 1, since, now)
    }

    /// How long the limits of the resource provider hold up the last of so many requests that come now, whatever the front
    /// door has.
    pub fn limited_for(&self, scope: &Scope, requests: usize, now: Duration) -> Duration {
        self.wait_of_many(scope, requests, now, now)
    }

    fn wait_of_many(&self, scope: &Scope, requests: usize, since: Duration, now: Duration) -> Duration {
        let [_, _, resource] = scope.pause_scopes();
        let pause = self.left(&resource, now);
        let limits = self.limit_waits(scope, requests, now, |owner| owner == Owner::Resource);
        let observed_left = since.saturating_add(LONGEST_OBSERVED).saturating_sub(now);
        let observed = self.observed_of(scope).map(|(_, observed)| observed.wait(now).min(observed_left));
        let ceiling = self.ceilings.wait(&scope.resource_type, scope.direction, now);
        let own = pause.into_iter().chain(limits).chain(observed).max().unwrap_or_default().max(ceiling);
        own.max(self.shared_wait(scope, requests, now))
    }

    /// The part of that wait which requests share that have the policy and the region in common.
    fn shared_wait(&self, scope: &Scope, requests: usize, now: Duration) -> Duration {
        let [_, class, _] = scope.pause_scopes();
        let limits = self.limit_waits(scope, requests, now, |owner| owner != Owner::Resource);
        self.left(&class, now).into_iter().chain(limits).max().unwrap_or_default()
    }

    /// How long the limits of such owners hold up the last of so many requests.
    fn limit_waits(
        &self,
        scope: &Scope,
        requests: usize,
        now: Duration,
        of: impl Fn(Owner) -> bool,
    ) -> impl Iterator<Item = Duration> {
        let reporting = scope.policy().map_or(Reporting::Unknown, |policy| self.reporting(scope, policy));
        let applies =
            move |key: &LimitKey| of(key.limit().owner) && (reporting != Reporting::Absent || key.limit().is_window());
        LimitKey::all(scope).into_iter().filter(applies).map(move |key| self.limit_wait(&key, requests, now))
    }

    /// How long a limit holds up the last of so many requests.
    fn limit_wait(&self, key: &LimitKey, requests: usize, now: Duration) -> Duration {
        let counting = self.limits.range(key.clone()..=key.last_counting()).map(|(_, meter)| meter);
        // In a region that is new, requests of an unknown region count already.
        let unknown = || self.limits.get(&key.of_unknown_region());
        counting
            .map(|meter| meter.wait(requests, now))
            .max()
            .or_else(|| Some(unknown()?.wait(requests, now)))
            .unwrap_or_default()
    }

    /// The meters that count a request against this limit: those of all regions where its region is not known.
    fn counting(&mut self, key: &LimitKey) -> impl Iterator<Item = &mut Meter> {
        self.limits.range_mut(key.clone()..=key.last_counting()).map(|(_, meter)| meter)
    }

    /// Counts a request against a limit.
    fn take(&mut self, key: LimitKey, now: Duration) -> Option<(LimitKey, Taken)> {
        if !self.limits.contains_key(&key) {
            let counted = self.limits.get(&key.of_unknown_region()).cloned();
            self.limits.insert(key.clone(), counted.unwrap_or_else(|| Meter::unused(key.limit(), now)));
        }
        // All meters call what they count by the time of the permit.
        let taken = self.counting(&key).map(|meter| meter.take(now)).last()?;
        Some((key, taken))
    }

    fn observed_of(&self, scope: &Scope) -> impl Iterator<Item = (&ObservedKey, &Observed)> {
        let first = (scope.subscription.clone(), scope.class.clone(), String::new());
        let of_scope = |key: &ObservedKey| key.0 == scope.subscription && key.1 == scope.class;
        self.observed.range(first..).take_while(move |(key, _)| of_scope(key))
    }

    fn reporting(&self, scope: &Scope, policy: Policy) -> Reporting {
        self.policies.get(&(scope.subscription.clone(), policy)).copied().unwrap_or_default()
    }

    fn grant(&mut self, ticket: Ticket, now: Duration) {
        let Some(Waiting { scope, priority, .. }) = self.waiting.remove(&ticket) else { return };
        let limits = LimitKey::all(&scope).into_iter().filter_map(|key| self.take(key, now)).collect();
        let observed: Vec<ObservedKey> = self.observed_of(&scope).map(|(key, _)| key.clone()).collect();
        for key in &observed {
            if let Some(observed) = self.observed.get_mut(key) {
                observed.add(-1.0, now);
            }
        }
        let ceiling = self.ceilings.take(&scope.resource_type, scope.direction, now);
        let door = self.door(&scope, now);
        door.queue.remove(&(priority, ticket));
        door.in_flight += 1;
        let (own, global) = (door.own.0.take(now), door.global.0.take(now));
        self.granted.insert(ticket, Granted { scope, own, global, limits, observed, ceiling });
    }

    fn learn(&mut self, granted: &Granted, remaining: &Remaining, now: Duration) {
        let door = self.door(&granted.scope, now);
        learn(&mut door.own, granted.own, remaining.own, remaining.succeeded, now);
        learn(&mut door.global, granted.global, remaining.global, remaining.succeeded, now);
        let mut known = false;
        for (name, tokens) in &remaining.provider {
            let named = granted.limits.iter().find(|(key, _)| key.limit().header.eq_ignore_ascii_case(short(name)));
            match named {
                Some((key, taken)) => {
                    known = true;
                    if let Some(meter) = self.limits.get_mut(key) {
                        meter.reported(*taken, *tokens, now);
                    }
                }
                None => self.observe(&granted.scope, name, *tokens, now),
            }
        }
        if let Some(policy) = granted.scope.policy() {
            let key = (granted.scope.subscription.clone(), policy);
            if known {
                self.policies.insert(key, Reporting::Reported);
            } else if remaining.succeeded && remaining.provider.is_empty() && !self.policies.contains_key(&key) {
                self.policies.insert(key, Reporting::Absent);
            }
        }
    }

    fn observe(&mut self, scope: &Scope, name: &str, remaining: u32, now: Duration) {
        let key = (scope.subscription.clone(), scope.class.clone(), name.to_owned());
        if self.observed.len() >= MOST_OBSERVED && !self.observed.contains_key(&key) {
            return;
        }
        let tokens = f64::from(remaining);
        let observed = self.observed.entry(key).or_insert(Observed { tokens, size: tokens, at: now });
        *observed = Observed { tokens, size: observed.size.max(tokens), at: now };
    }

    fn settle(&mut self, granted: &Granted, now: Duration) {
        let door = self.door(&granted.scope, now);
        door.in_flight -= 1;
        door.own.0.settle(now);
        door.global.0.settle(now);
        for (key, taken) in &granted.limits {
            self.counting(key).for_each(|meter| meter.settle(*taken, now));
        }
        if self.limits.len() > self.kept.max(KEPT_FULL) {
            // A full bucket or an empty window is made again when it is needed.
            self.limits.retain(|_, meter| !meter.is_at_rest(now));
            self.kept = 2 * self.limits.len();
        }
    }
}

impl Scope {
    fn pause_scopes(&self) -> [PauseScope; 3] {
        [
            PauseScope::Direction(self.subscription.clone(), self.direction),
            PauseScope::Class(self.subscription.clone(), self.class.clone(), self.region.clone()),
            PauseScope::Resource(self.direction, self.resource.clone()),
        ]
    }
}

/// A policy's name without its provider's, as the table has it.
fn short(name: &str) -> &str {
    // The table has empty names for limits whose name is not known; no name in a header may match those.
    let name = name.rsplit_once('/').map_or(name, |(_, short)| short).trim();
    if name.is_empty() { "?" } else { name }
}
