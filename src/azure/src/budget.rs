//! What is left of Azure's request quotas, and who may use it.
//!
//! Azure counts requests in token buckets: per subscription and direction at the front door, and per provider behind
//! it. Every answer says what remains. Two rules follow:
//!
//! - **Law.** After a 429 nothing of that scope is sent before its `Retry-After` is over. The scope is the direction
//!   (reads, writes, deletes) of the subscription when the front door refused, the kind of request when the provider
//!   named a policy, else that one resource.
//! - **Courtesy.** When a bucket runs low, its last part is for what matters most: a detach from a dead node may take
//!   the last token, a list waits. Courtesy never waits longer than [`LONGEST_COURTESY`], for what remains is only an
//!   estimate: other clients use the same buckets.
//!
//! Only the subscription of the path, the verb and the resource type matter here; nothing is sent from here.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::HeaderMap;
use tokio::time::Instant;

use crate::{
    error::{Detail, Verb},
    metrics::ResourceType,
};

/// Who goes first when requests run short, first to last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Frees the disks of a node that is gone: pods wait elsewhere.
    DetachDeadNode,
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

impl Priority {
    /// The part of a bucket that is kept for those who go before.
    fn reserve(self) -> f64 {
        match self {
            Self::DetachDeadNode => 0.0,
            Self::Detach => 0.02,
            Self::Attach => 0.04,
            Self::Create => 0.06,
            Self::Read => 0.08,
            Self::List => 0.15,
        }
    }
}

/// The longest wait for those who go before.
pub const LONGEST_COURTESY: Duration = Duration::from_secs(10);
/// Buckets smaller than this are those of one resource (a VM's hold 12 to 45); what one VM has left says nothing of
/// the next.
const SMALLEST_SHARED_BUCKET: f64 = 60.0;

/// What a request counts against.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Scope {
    subscription: String,
    direction: Direction,
    class: (Verb, ResourceType),
    path: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Direction {
    Reads,
    Writes,
    Deletes,
}

impl Scope {
    /// What a request counts against; `None` outside of subscriptions.
    pub(crate) fn of(verb: Verb, path: &str) -> Option<Self> {
        let path = path.to_ascii_lowercase();
        let subscription = path.strip_prefix("/subscriptions/")?.split('/').next()?.to_owned();
        let direction = match verb {
            Verb::Get => Direction::Reads,
            Verb::Delete => Direction::Deletes,
            Verb::Put | Verb::Patch | Verb::Post => Direction::Writes,
        };
        Some(Self { subscription, direction, class: (verb, ResourceType::of(&path)), path })
    }
}

/// Whom a 429 stops.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Stopped {
    Direction(String, Direction),
    Class(String, (Verb, ResourceType)),
    Resource(Verb, String),
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    remaining: f64,
    at: Instant,
    /// The most that was ever seen in it.
    size: f64,
    /// Tokens per second.
    refill: f64,
}

impl Bucket {
    fn now(&self, now: Instant) -> f64 {
        let refilled = now.saturating_duration_since(self.at).as_secs_f64() * self.refill;
        (self.remaining + refilled).min(self.size)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum BucketKey {
    /// The front door's, by the name in the header.
    FrontDoor(String, Direction, &'static str),
    /// A provider's, by its own name for the policy.
    Provider(String, (Verb, ResourceType), String),
}

/// The quotas of all subscriptions, as far as answers have told.
#[derive(Debug, Default)]
pub(crate) struct Budget(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    buckets: BTreeMap<BucketKey, Bucket>,
    stopped: BTreeMap<Stopped, Instant>,
}

/// The front door's headers and their refill per second (source: Microsoft docs, request-limits-and-throttling; the
/// global ones are fifteen times the others, as recorded).
const FRONT_DOOR: [(&str, Direction, f64); 6] = [
    ("x-ms-ratelimit-remaining-subscription-reads", Direction::Reads, 25.0),
    ("x-ms-ratelimit-remaining-subscription-writes", Direction::Writes, 10.0),
    ("x-ms-ratelimit-remaining-subscription-deletes", Direction::Deletes, 10.0),
    ("x-ms-ratelimit-remaining-subscription-global-reads", Direction::Reads, 375.0),
    ("x-ms-ratelimit-remaining-subscription-global-writes", Direction::Writes, 150.0),
    ("x-ms-ratelimit-remaining-subscription-global-deletes", Direction::Deletes, 150.0),
];
/// A provider's policies do not tell how they refill; this is below the slowest published one that all VMs of a
/// subscription share (125 per minute).
const PROVIDER_REFILL: f64 = 1.0;

impl Budget {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long nothing of this scope may be sent.
    pub(crate) fn law(&self, scope: &Scope, now: Instant) -> Duration {
        let mut state = self.lock();
        state.stopped.retain(|_, until| *until > now);
        let stopped = scope.stopped_by();
        let ends = stopped.iter().filter_map(|stopped| state.stopped.get(stopped));
        ends.map(|until| until.saturating_duration_since(now)).max().unwrap_or_default()
    }

    /// Takes one request out of the estimate, and says how long it should let others go first.
    pub(crate) fn take(&self, scope: &Scope, priority: Priority, now: Instant) -> Duration {
        let mut state = self.lock();
        let mut courtesy = 0.0_f64;
        for (key, bucket) in &mut state.buckets {
            if !key.counts(scope) || bucket.size < SMALLEST_SHARED_BUCKET {
                continue;
            }
            let there = bucket.now(now);
            let missing = bucket.size * priority.reserve() + 1.0 - there;
            courtesy = courtesy.max(missing / bucket.refill);
            bucket.remaining = there - 1.0;
            bucket.at = now;
        }
        Duration::from_secs_f64(courtesy.max(0.0).min(LONGEST_COURTESY.as_secs_f64()))
    }

    /// Reads what remains from an answer.
    pub(crate) fn answered(&self, scope: &Scope, headers: &HeaderMap, now: Instant) {
        let mut state = self.lock();
        let mut see = |key: BucketKey, remaining: f64, refill: f64| {
            let bucket = state.buckets.entry(key).or_insert(Bucket { remaining, at: now, size: remaining, refill });
            *bucket = Bucket { remaining, at: now, size: bucket.size.max(remaining), refill };
        };
        for (name, direction, refill) in FRONT_DOOR {
            let remaining = headers.get(name).and_then(|value| value.to_str().ok()?.trim().parse::<u32>().ok());
            if let Some(remaining) = remaining {
                let key = BucketKey::FrontDoor(scope.subscription.clone(), direction, name);
                see(key, f64::from(remaining), refill);
            }
        }
        for value in headers.get_all("x-ms-ratelimit-remaining-resource") {
            for policy in value.to_str().unwrap_or_default().split(',') {
                if let Some((name, remaining)) = policy.trim().split_once(';')
                    && let Ok(remaining) = remaining.trim().parse::<u32>()
                    // A name is Azure's; a flood of them is not.
                    && name.len() < 100
                {
                    let key = BucketKey::Provider(scope.subscription.clone(), scope.class, name.to_owned());
                    see(key, f64::from(remaining), PROVIDER_REFILL);
                }
            }
        }
    }

    /// Takes note of a 429.
    pub(crate) fn throttled(
        &self,
        scope: &Scope,
        by_the_front_door: bool,
        details: &[Detail],
        retry_after: Duration,
        now: Instant,
    ) {
        let names_a_policy =
            details.iter().any(|detail| detail.code.eq_ignore_ascii_case("TooManyRequests") && detail.target.is_some());
        let [direction, class, resource] = scope.stopped_by();
        let stopped = if by_the_front_door {
            direction
        } else if names_a_policy {
            class
        } else {
            resource
        };
        let until = now + retry_after;
        let mut state = self.lock();
        let known = state.stopped.entry(stopped).or_insert(until);
        *known = until.max(*known);
    }
}

impl Scope {
    fn stopped_by(&self) -> [Stopped; 3] {
        [
            Stopped::Direction(self.subscription.clone(), self.direction),
            Stopped::Class(self.subscription.clone(), self.class),
            Stopped::Resource(self.class.0, self.path.clone()),
        ]
    }
}

impl BucketKey {
    fn counts(&self, scope: &Scope) -> bool {
        match self {
            Self::FrontDoor(subscription, direction, _) => {
                *subscription == scope.subscription && *direction == scope.direction
            }
            Self::Provider(subscription, class, _) => *subscription == scope.subscription && *class == scope.class,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VM: &str = "/subscriptions/S/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v";
    const OTHER_VM: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/w";
    const DISK: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d";

    fn scope(verb: Verb, path: &str) -> Scope {
        Scope::of(verb, path).unwrap()
    }

    fn remaining(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    const READS: &str = "x-ms-ratelimit-remaining-subscription-reads";
    const WRITES: &str = "x-ms-ratelimit-remaining-subscription-writes";

    /// A budget that has seen a full bucket and then this.
    fn with(header: &'static str, full: &str, left: &str) -> Budget {
        let budget = Budget::default();
        let seen = scope(Verb::Get, DISK);
        budget.answered(&seen, &remaining(&[(header, full)]), Instant::now());
        budget.answered(&seen, &remaining(&[(header, left)]), Instant::now());
        budget
    }

    #[tokio::test(start_paused = true)]
    async fn while_there_is_plenty_nobody_waits() {
        let budget = with(WRITES, "200", "199");
        for priority in [Priority::DetachDeadNode, Priority::Create, Priority::List] {
            assert_eq!(budget.take(&scope(Verb::Put, VM), priority, Instant::now()), Duration::ZERO);
        }
        assert!(Scope::of(Verb::Get, "/metadata/endpoints").is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn when_little_is_left_a_dead_nodes_disks_go_first_and_lists_last() {
        let delay =
            |left: &str, priority| with(WRITES, "200", left).take(&scope(Verb::Put, VM), priority, Instant::now());
        for priority in [Priority::DetachDeadNode, Priority::Detach, Priority::Attach] {
            assert_eq!(delay("10", priority), Duration::ZERO, "{priority:?}");
        }
        // Twelve and one are wanted, ten are there, ten come in a second.
        assert_eq!(delay("10", Priority::Create), Duration::from_millis(300));
        assert!(delay("10", Priority::Read) > delay("10", Priority::Create));
        assert!(delay("10", Priority::List) > delay("10", Priority::Read));
        assert_eq!(delay("1", Priority::DetachDeadNode), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_spread_and_nobody_waits_longer_than_courtesy_asks() {
        let budget = with(WRITES, "200", "1");
        let now = Instant::now();
        let delays: Vec<Duration> =
            (0..300).map(|_| budget.take(&scope(Verb::Put, VM), Priority::Create, now)).collect();
        assert!(delays.windows(2).all(|pair| pair[0] <= pair[1]));
        assert!(delays[1] - delays[0] == Duration::from_millis(100));
        assert_eq!(*delays.last().unwrap(), LONGEST_COURTESY);
        // What was taken comes back with time.
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(budget.take(&scope(Verb::Put, VM), Priority::List, Instant::now()), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn reads_and_writes_and_subscriptions_have_buckets_of_their_own() {
        let budget = with(READS, "250", "0");
        let waits = |verb, path| budget.take(&scope(verb, path), Priority::List, Instant::now()) > Duration::ZERO;
        assert!(waits(Verb::Get, DISK));
        assert!(waits(Verb::Get, VM));
        assert!(!waits(Verb::Put, DISK));
        assert!(!waits(Verb::Get, "/subscriptions/other/providers/Microsoft.Compute/disks"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_providers_policies_count_for_their_kind_and_those_of_one_resource_do_not_stop_another() {
        let budget = Budget::default();
        let put = scope(Verb::Put, VM);
        let see = |value: &str| {
            let headers = remaining(&[("x-ms-ratelimit-remaining-resource", value)]);
            budget.answered(&put, &headers, Instant::now());
        };
        see("Microsoft.Compute/PutVMResource;11,Microsoft.Compute/PutVM3Min;239");
        see("Microsoft.Compute/PutVMResource;0");
        let other = scope(Verb::Put, OTHER_VM);
        assert_eq!(budget.take(&other, Priority::List, Instant::now()), Duration::ZERO);
        see("Microsoft.Compute/PutVM3Min;3, nonsense, a;b");
        assert!(budget.take(&other, Priority::Create, Instant::now()) > Duration::ZERO);
        assert_eq!(budget.take(&scope(Verb::Get, VM), Priority::List, Instant::now()), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_429_stops_its_own_scope_until_its_time_is_over() {
        let pause = Duration::from_secs(20);
        let policy = Detail { code: "TooManyRequests".into(), message: String::new(), target: Some("UpdateVM".into()) };
        // The front door, a policy that all machines share, one machine.
        for (gateway, details, other_vm, other_verb) in
            [(true, vec![], true, true), (false, vec![policy], true, false), (false, vec![], false, false)]
        {
            let budget = Budget::default();
            let now = Instant::now();
            budget.throttled(&scope(Verb::Put, VM), gateway, &details, pause, now);
            let law = |verb, path| budget.law(&scope(verb, path), now);
            assert_eq!(law(Verb::Put, VM), pause);
            assert_eq!(law(Verb::Put, OTHER_VM) == pause, other_vm);
            assert_eq!(law(Verb::Post, DISK) == pause, other_verb);
            assert_eq!(law(Verb::Get, VM), Duration::ZERO);
            let later = now + pause;
            assert_eq!(budget.law(&scope(Verb::Put, VM), later), Duration::ZERO);
        }
    }
}
