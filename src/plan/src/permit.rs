//! Which request goes out next, and when: a queue in front of each of Azure's request buckets.
//!
//! Azure counts requests in token buckets and refuses with 429 what comes when one is empty. A refused request costs a
//! round trip and a pause of whole seconds, so here every request takes a permit before it is sent, and a permit is
//! given only when Azure will have a token for it.
//!
//! ```text
//!  request ──> waiting ──step──> granted ──┬─ answered, throttled, lost ──> gone, and what Azure told is learned
//!                │                         └─ refund ──> gone, and the token is back
//!                └── leave ──> gone
//! ```
//!
//! - **The queue.** One for each bucket of the front door (subscription, and reads, writes or deletes), by
//!   [`Priority`], then by arrival. There is no reserve for those who go first. Whoever comes gets the next token that
//!   is not wanted by someone before it, so a detach from a dead node waits for one refill, a tenth of a second, also
//!   behind ten thousand reads. A reserve would save that tenth and waste its part of the bucket.
//! - **Narrower buckets.** A request that is held back only by its provider's policy, its resource's bucket or a pause
//!   of those lets others of its queue pass.
//! - **Pauses.** After a 429 nothing of the refused scope is sent before its `Retry-After` is over: of the direction
//!   when the front door refused, of the policy when the provider named one, else of that resource.
//! - **The start.** Before any answer has told what remains, the published bucket counts, and at most [`MOST_UNTOLD`]
//!   requests of it are in flight: another process may have used it a moment ago. An Azure that tells nothing (Azure Stack Hub) is not limited by guesses, only by its pauses.
//!
//! Times are durations since a moment of the caller's choosing, and never go back. There is no clock here.

mod bucket;
mod policy;
mod scope;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
    time::Duration,
};

use bucket::{Bucket, Mark};
use policy::{Owner, Policy};
use scope::Class;
pub use scope::{Direction, Scope};

/// Which request goes first when tokens run short, first to last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Frees the disks of a node that is gone: pods wait elsewhere.
    DetachDeadNode,
    /// Asks how an accepted operation is doing: what waits for its end has waited longest.
    Poll,
    /// Takes disks off a VM.
    Detach,
    /// Puts disks on a VM: a pod waits.
    Attach,
    /// Makes, changes or deletes a resource.
    Create,
    /// Reads one resource.
    Read,
    /// Lists many.
    List,
}

/// The requests of one bucket that may be in flight before an answer has told what remains.
pub const MOST_UNTOLD: u32 = 8;
/// The longest that a request waits for a bucket which only a header of unknown meaning speaks of.
pub const LONGEST_OBSERVED: Duration = Duration::from_secs(10);
/// How long the first answer may take, when somebody asks how long a request would wait for it.
const FIRST_ANSWER: Duration = Duration::from_millis(100);
/// Buckets of an unknown name that are smaller than this are taken for those of one resource (a VM's hold 12 to 45):
/// what one has left says nothing of the next.
const SMALLEST_SHARED: f64 = 60.0;
/// Tokens per second of a bucket of an unknown name; below the slowest published one that all VMs of a subscription
/// share (125 per minute).
const OBSERVED_REFILL: f64 = 1.0;
/// Names that a header may bring before further ones are ignored. A name is Azure's; a flood of them is not.
const MOST_OBSERVED: usize = 1_000;
/// How many buckets of policies there may always be; most are those of single resources.
const KEPT_FULL: usize = 4_096;
/// How much wider the bucket of all clients of a subscription is than that of one (as recorded: 3749 = 15 x 250 - 1).
const GLOBAL: f64 = 15.0;

/// Size and refill per second of one client's bucket (source: Microsoft's document
/// request-limits-and-throttling).
fn front_door(direction: Direction) -> (f64, f64) {
    match direction {
        Direction::Reads => (250.0, 25.0),
        Direction::Writes | Direction::Deletes => (200.0, 10.0),
    }
}

/// One request, from when it asks for a permit until it is answered. Later ones are greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// What an answer tells of remaining tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told {
    /// In the bucket of this client: `x-ms-ratelimit-remaining-subscription-{reads,writes,deletes}`.
    pub own: Option<u32>,
    /// In the bucket of all clients: `x-ms-ratelimit-remaining-subscription-global-{reads,writes,deletes}`.
    pub global: Option<u32>,
    /// In the provider's, by name: `x-ms-ratelimit-remaining-resource`.
    pub provider: Vec<(String, u32)>,
    /// Whether the request succeeded: then an answer that tells nothing means that nothing is ever told. A refusal by
    /// the front door (403, 404, 429) tells nothing anyway.
    pub succeeded: bool,
}

/// Who refused a request with 429.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The front door: the bucket of this direction is empty.
    FrontDoor,
    /// The provider, by the policy it names.
    Policy(String),
    /// The provider, without saying why.
    Resource,
}

/// What [`Permits::step`] gives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    /// The requests that may be sent now, first to last.
    pub granted: Vec<Ticket>,
    /// When the next one may be, if nothing else happens before. `None` when only something else can bring one.
    pub wake_at: Option<Duration>,
}

/// Whom a pause stops.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Paused {
    Direction(Arc<str>, Direction),
    Class(Arc<str>, Class),
    Resource(Direction, Arc<str>),
}

/// What is known of a bucket's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Knowledge {
    /// Nothing yet.
    #[default]
    Untold,
    /// Answers tell.
    Told,
    /// An answer that should have told did not.
    Silent,
}

/// A bucket of the front door.
#[derive(Debug)]
struct Door {
    own: (Bucket, Knowledge),
    global: (Bucket, Knowledge),
    in_flight: u32,
    queue: BTreeSet<(Priority, Ticket)>,
}

/// Why the front door lets nothing through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shut {
    /// There is a token at this time.
    Until(Duration),
    /// An answer must tell first.
    Untold,
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
    limits: Vec<(LimitKey, Mark)>,
    observed: Vec<ObservedKey>,
}

/// A bucket of a policy: the policy, which of its limits, and the subscription or resource it belongs to.
type LimitKey = (Policy, usize, Arc<str>);
/// A bucket that only a header speaks of: subscription, class, name.
type ObservedKey = (Arc<str>, Class, String);

#[derive(Debug, Clone, Copy)]
struct Observed {
    tokens: f64,
    /// The most that was ever told.
    size: f64,
    at: Duration,
}

impl Observed {
    fn available(&self, now: Duration) -> f64 {
        (self.tokens + now.saturating_sub(self.at).as_secs_f64() * OBSERVED_REFILL).min(self.size)
    }

    fn add(&mut self, tokens: f64, now: Duration) {
        self.tokens = (self.available(now) + tokens).min(self.size);
        self.at = now;
    }

    fn wait(&self, now: Duration) -> Duration {
        if self.size < SMALLEST_SHARED {
            return Duration::ZERO;
        }
        let missing = (1.0 - self.available(now)).max(0.0) / OBSERVED_REFILL;
        Duration::try_from_secs_f64(missing).unwrap_or(LONGEST_OBSERVED)
    }
}

/// The queues and the buckets of one identity.
#[derive(Debug, Default)]
pub struct Permits {
    last: u64,
    doors: BTreeMap<(Arc<str>, Direction), Door>,
    waiting: BTreeMap<Ticket, Waiting>,
    granted: BTreeMap<Ticket, Granted>,
    limits: BTreeMap<LimitKey, Bucket>,
    /// How many of those there may be before the full ones go.
    kept: usize,
    policies: BTreeMap<(Arc<str>, Policy), Knowledge>,
    observed: BTreeMap<ObservedKey, Observed>,
    paused: BTreeMap<Paused, Duration>,
}

impl Door {
    fn new(direction: Direction, now: Duration) -> Self {
        let (size, refill) = front_door(direction);
        Self {
            own: (Bucket::full(size, refill, now), Knowledge::Untold),
            global: (Bucket::full(size * GLOBAL, refill * GLOBAL, now), Knowledge::Untold),
            in_flight: 0,
            queue: BTreeSet::new(),
        }
    }

    /// How long until there are so many tokens, as far as anything is told of them.
    fn wait(&self, tokens: f64, now: Duration) -> Result<Duration, Shut> {
        let own = match self.own.1 {
            // The published bucket counts until Azure tells of another, or of none.
            Knowledge::Told | Knowledge::Untold => self.own.0.wait(tokens, now),
            Knowledge::Silent => Duration::ZERO,
        };
        let global = match self.global.1 {
            Knowledge::Told => self.global.0.wait(tokens, now),
            Knowledge::Untold | Knowledge::Silent => Duration::ZERO,
        };
        if self.own.1 == Knowledge::Untold && f64::from(self.in_flight) + tokens > f64::from(MOST_UNTOLD) {
            return Err(Shut::Untold);
        }
        Ok(own.max(global))
    }

    fn shut(&self, now: Duration) -> Option<Shut> {
        match self.wait(1.0, now) {
            Ok(Duration::ZERO) => None,
            Ok(wait) => Some(Shut::Until(now.saturating_add(wait))),
            Err(shut) => Some(shut),
        }
    }
}

fn learn(bucket: &mut (Bucket, Knowledge), mark: Mark, told: Option<u32>, succeeded: bool, now: Duration) {
    let (bucket, knowledge) = bucket;
    match (told, *knowledge) {
        (Some(remaining), Knowledge::Told) => bucket.told(mark, remaining, now),
        (Some(remaining), Knowledge::Untold | Knowledge::Silent) => {
            *knowledge = Knowledge::Told;
            bucket.told_first(mark, remaining, now);
        }
        (None, Knowledge::Untold) if succeeded => *knowledge = Knowledge::Silent,
        (None, _) => {}
    }
}

impl Permits {
    /// A request joins its queue.
    pub fn request(&mut self, scope: Scope, priority: Priority, now: Duration) -> Ticket {
        self.last += 1;
        let ticket = Ticket(self.last);
        self.door(&scope, now).queue.insert((priority, ticket));
        self.waiting.insert(ticket, Waiting { scope, priority, since: now });
        ticket
    }

    /// A waiting request goes before all of lower priority; it keeps its arrival, and never goes back.
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

    /// A request leaves its queue. Nothing happens to one that does not wait.
    pub fn leave(&mut self, ticket: Ticket) {
        if let Some(waiting) = self.waiting.remove(&ticket) {
            let key = (waiting.scope.subscription, waiting.scope.direction);
            if let Some(door) = self.doors.get_mut(&key) {
                door.queue.remove(&(waiting.priority, ticket));
            }
        }
    }

    /// A permit is given back: nothing was sent under it.
    pub fn refund(&mut self, ticket: Ticket, now: Duration) {
        let Some(granted) = self.granted.remove(&ticket) else { return };
        let door = self.door(&granted.scope, now);
        door.in_flight -= 1;
        door.own.0.give_back(now);
        door.global.0.give_back(now);
        for (key, _) in &granted.limits {
            if let Some(bucket) = self.limits.get_mut(key) {
                bucket.give_back(now);
            }
        }
        for key in &granted.observed {
            if let Some(observed) = self.observed.get_mut(key) {
                observed.add(1.0, now);
            }
        }
    }

    /// The request under a permit was answered, with anything but 429.
    pub fn answered(&mut self, ticket: Ticket, told: &Told, now: Duration) {
        let Some(granted) = self.granted.remove(&ticket) else { return };
        self.learn(&granted, told, now);
        self.settle(&granted, now);
    }

    /// The request under a permit was sent, and no answer came. Azure may have counted it.
    pub fn lost(&mut self, ticket: Ticket, now: Duration) {
        if let Some(granted) = self.granted.remove(&ticket) {
            self.settle(&granted, now);
        }
    }

    /// The request under a permit was answered with 429, and perhaps a pause was asked for.
    pub fn throttled(
        &mut self,
        ticket: Ticket,
        told: &Told,
        refusal: &Refusal,
        retry_after: Option<Duration>,
        now: Duration,
    ) {
        let Some(granted) = self.granted.remove(&ticket) else { return };
        self.learn(&granted, told, now);
        let [direction, class, resource] = granted.scope.paused();
        let paused = match refusal {
            Refusal::FrontDoor => {
                let (own, knowledge) = &mut self.door(&granted.scope, now).own;
                // Where nothing is told yet, the bucket may have been empty from the start.
                if *knowledge == Knowledge::Told {
                    own.halve_share(granted.own, now);
                }
                own.refused(retry_after, now);
                direction
            }
            Refusal::Policy(name) => {
                let limit = granted.scope.policy().and_then(|policy| {
                    policy
                        .limits()
                        .iter()
                        .position(|limit| limit.header.eq_ignore_ascii_case(short(name)))
                        .map(|index| (policy, index))
                });
                let key = limit.map(|(policy, index)| granted.scope.limit_key(policy, index));
                if let Some(bucket) = key.and_then(|key| self.limits.get_mut(&key)) {
                    bucket.refused(retry_after, now);
                }
                match limit.map(|(policy, index)| policy.limits()[index].owner) {
                    Some(Owner::Resource) => resource,
                    Some(Owner::Subscription) | None => class,
                }
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

    /// How long Azure's pauses keep a request of this scope from being sent.
    pub fn paused(&self, scope: &Scope, now: Duration) -> Duration {
        scope.paused().iter().filter_map(|paused| self.left(paused, now)).max().unwrap_or_default()
    }

    /// Gives the permits that there are now.
    pub fn step(&mut self, now: Duration) -> Step {
        self.paused.retain(|_, until| *until > now);
        let mut step = Step::default();
        let keys: Vec<_> =
            self.doors.iter().filter(|(_, door)| !door.queue.is_empty()).map(|(key, _)| key.clone()).collect();
        for key in keys {
            let mut wakes = |at: Duration| step.wake_at = Some(step.wake_at.map_or(at, |other| other.min(at)));
            if let Some(left) = self.left(&Paused::Direction(key.0.clone(), key.1), now) {
                wakes(now.saturating_add(left));
                continue;
            }
            let mut passed = Bound::Unbounded;
            while let Some(door) = self.doors.get(&key)
                && let Some(&(priority, ticket)) = door.queue.range((passed, Bound::Unbounded)).next()
            {
                match door.shut(now) {
                    None => {}
                    Some(Shut::Until(at)) => {
                        wakes(at);
                        break;
                    }
                    Some(Shut::Untold) => break,
                }
                passed = Bound::Excluded((priority, ticket));
                let Some(waiting) = self.waiting.get(&ticket) else { continue };
                let wait = self.narrow_wait(&waiting.scope, waiting.since, now);
                if wait.is_zero() {
                    self.grant(ticket, now);
                    step.granted.push(ticket);
                } else {
                    wakes(now.saturating_add(wait));
                }
            }
        }
        step
    }

    /// The part of the front door's bucket that is left, from 0 to 1; 1 where nothing is told of it.
    pub fn level(&self, scope: &Scope, now: Duration) -> f64 {
        let Some(door) = self.doors.get(&(scope.subscription.clone(), scope.direction)) else { return 1.0 };
        let known = [&door.own, &door.global].into_iter().filter(|(_, knowledge)| *knowledge == Knowledge::Told);
        known.map(|(bucket, _)| bucket.level(now)).fold(1.0, f64::min)
    }

    /// How long a request would wait for its permit if it came now and nothing else came: an estimate.
    pub fn would_wait(&self, scope: &Scope, priority: Priority, now: Duration) -> Duration {
        let narrow = self.narrow_wait(scope, now, now).max(self.paused(scope, now));
        let Some(door) = self.doors.get(&(scope.subscription.clone(), scope.direction)) else { return narrow };
        let before = door.queue.range(..=(priority, Ticket(u64::MAX))).count();
        // Exact in an f64: so many requests fit in no memory.
        let wait = door.wait(before as f64 + 1.0, now).unwrap_or(FIRST_ANSWER);
        wait.max(narrow)
    }

    /// How many requests wait in the queues of a direction.
    pub fn waiting(&self, direction: Direction) -> usize {
        self.doors.iter().filter(|(key, _)| key.1 == direction).map(|(_, door)| door.queue.len()).sum()
    }

    fn door(&mut self, scope: &Scope, now: Duration) -> &mut Door {
        self.doors
            .entry((scope.subscription.clone(), scope.direction))
            .or_insert_with(|| Door::new(scope.direction, now))
    }

    /// What is left of a pause; `None` when there is none.
    fn left(&self, paused: &Paused, now: Duration) -> Option<Duration> {
        self.paused.get(paused).map(|until| until.saturating_sub(now)).filter(|left| !left.is_zero())
    }

    /// How long the buckets and pauses behind the front door's hold a request back that waits since then.
    fn narrow_wait(&self, scope: &Scope, since: Duration, now: Duration) -> Duration {
        let [_, class, resource] = scope.paused();
        let pauses = [class, resource].into_iter().filter_map(|paused| self.left(&paused, now));
        let policy = scope.policy().filter(|policy| self.knowledge(scope, *policy) != Knowledge::Silent);
        let limits = policy.into_iter().flat_map(|policy| {
            let keys = (0..policy.limits().len()).map(move |index| scope.limit_key(policy, index));
            keys.filter_map(|key| Some(self.limits.get(&key)?.wait(1.0, now)))
        });
        let observed_left = since.saturating_add(LONGEST_OBSERVED).saturating_sub(now);
        let observed = self.observed_of(scope).map(|(_, observed)| observed.wait(now).min(observed_left));
        pauses.chain(limits).chain(observed).max().unwrap_or_default()
    }

    fn observed_of(&self, scope: &Scope) -> impl Iterator<Item = (&ObservedKey, &Observed)> {
        let first = (scope.subscription.clone(), scope.class.clone(), String::new());
        let of_scope = |key: &ObservedKey| key.0 == scope.subscription && key.1 == scope.class;
        self.observed.range(first..).take_while(move |(key, _)| of_scope(key))
    }

    fn knowledge(&self, scope: &Scope, policy: Policy) -> Knowledge {
        self.policies.get(&(scope.subscription.clone(), policy)).copied().unwrap_or_default()
    }

    fn grant(&mut self, ticket: Ticket, now: Duration) {
        let Some(Waiting { scope, priority, .. }) = self.waiting.remove(&ticket) else { return };
        let limits: Vec<(LimitKey, Mark)> = scope.policy().map_or_else(Vec::new, |policy| {
            let take = |(index, limit): (usize, &policy::Limit)| {
                let key = scope.limit_key(policy, index);
                let full = || Bucket::full(limit.size, limit.per_minute / 60.0, now);
                let mark = self.limits.entry(key.clone()).or_insert_with(full).take(now);
                (key, mark)
            };
            policy.limits().iter().enumerate().map(take).collect()
        });
        let observed: Vec<ObservedKey> = self.observed_of(&scope).map(|(key, _)| key.clone()).collect();
        for key in &observed {
            if let Some(observed) = self.observed.get_mut(key) {
                observed.add(-1.0, now);
            }
        }
        let door = self.door(&scope, now);
        door.queue.remove(&(priority, ticket));
        door.in_flight += 1;
        let (own, global) = (door.own.0.take(now), door.global.0.take(now));
        self.granted.insert(ticket, Granted { scope, own, global, limits, observed });
    }

    fn learn(&mut self, granted: &Granted, told: &Told, now: Duration) {
        let door = self.door(&granted.scope, now);
        learn(&mut door.own, granted.own, told.own, told.succeeded, now);
        learn(&mut door.global, granted.global, told.global, told.succeeded, now);
        let mut known = false;
        for (name, remaining) in &told.provider {
            let named = granted
                .limits
                .iter()
                .find(|((policy, index, _), _)| policy.limits()[*index].header.eq_ignore_ascii_case(short(name)));
            match named {
                Some((key, mark)) => {
                    known = true;
                    if let Some(bucket) = self.limits.get_mut(key) {
                        bucket.told(*mark, *remaining, now);
                    }
                }
                None => self.observe(&granted.scope, name, *remaining, now),
            }
        }
        if let Some(policy) = granted.scope.policy() {
            let key = (granted.scope.subscription.clone(), policy);
            if known {
                self.policies.insert(key, Knowledge::Told);
            } else if told.succeeded && told.provider.is_empty() && !self.policies.contains_key(&key) {
                self.policies.insert(key, Knowledge::Silent);
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
        for (key, _) in &granted.limits {
            if let Some(bucket) = self.limits.get_mut(key) {
                bucket.settle(now);
            }
        }
        if self.limits.len() > self.kept.max(KEPT_FULL) {
            // A full bucket is as good as none.
            self.limits.retain(|_, bucket| !bucket.is_at_rest(now));
            self.kept = 2 * self.limits.len();
        }
    }
}

impl Scope {
    fn paused(&self) -> [Paused; 3] {
        [
            Paused::Direction(self.subscription.clone(), self.direction),
            Paused::Class(self.subscription.clone(), self.class.clone()),
            Paused::Resource(self.direction, self.resource.clone()),
        ]
    }

    fn limit_key(&self, policy: Policy, index: usize) -> LimitKey {
        let owner = match policy.limits()[index].owner {
            Owner::Resource => &self.resource,
            Owner::Subscription => &self.subscription,
        };
        (policy, index, owner.clone())
    }
}

/// A policy's name without its provider's.
fn short(name: &str) -> &str {
    // An empty name is that of no limit: the table has empty ones for what is not known.
    let name = name.rsplit_once('/').map_or(name, |(_, short)| short).trim();
    if name.is_empty() { "?" } else { name }
}
