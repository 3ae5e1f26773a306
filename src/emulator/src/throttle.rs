//! Token buckets: the front door's, the compute provider's and the network provider's.
//!
//! Numbers are documented (request-limits-and-throttling, compute-throttling-limits): the front door
//! gives a principal 250 reads, 200 writes and 200 deletes per subscription and region, refilled by
//! 25, 10 and 10 a second, and all principals together fifteen times that (recorded in the
//! `-global-` headers); the compute provider has a bucket per machine and one per subscription; the
//! network provider counts per five minutes. The names in `x-ms-ratelimit-remaining-resource` for
//! the compute provider's buckets are unverified. Disks have no documented bucket of their own.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::Clock;
use crate::fault::{self, Fault};

/// What a request counts as at the front door.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Door {
    Reads,
    Writes,
    Deletes,
}

impl Door {
    pub(crate) fn of(method: &str) -> Self {
        match method {
            "GET" | "HEAD" => Self::Reads,
            "DELETE" => Self::Deletes,
            _ => Self::Writes,
        }
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Reads => "reads",
            Self::Writes => "writes",
            Self::Deletes => "deletes",
        }
    }

    /// Bucket size and refill per second of one principal.
    pub(crate) const fn limits(self) -> (f64, f64) {
        match self {
            Self::Reads => (250.0, 25.0),
            Self::Writes | Self::Deletes => (200.0, 10.0),
        }
    }
}

/// How much wider the bucket of all principals together is: recorded (3749 = 15 x 250 - 1).
const GLOBAL: f64 = 15.0;

/// A bucket of a resource provider.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Policy {
    /// The operation group, such as `UpdateVM`.
    pub(crate) name: &'static str,
    /// The provider's name in the remaining header.
    pub(crate) provider: &'static str,
    /// Bucket and refill per minute for one resource; zero means there is none.
    pub(crate) resource: (f64, f64),
    /// Bucket and refill per minute for the subscription.
    pub(crate) subscription: (f64, f64),
}

const fn compute(name: &'static str, resource: (f64, f64), subscription: (f64, f64)) -> Policy {
    Policy { name, provider: "Microsoft.Compute", resource, subscription }
}

/// Put, update, attach and detach, power actions of a machine.
pub(crate) const UPDATE_VM: Policy = compute("UpdateVM", (12.0, 4.0), (1500.0, 500.0));
/// Delete of a machine.
pub(crate) const DELETE_VM: Policy = compute("DeleteVM", (12.0, 4.0), (1500.0, 500.0));
/// GET of a machine.
pub(crate) const GET_VM: Policy = compute("LowCostGet", (36.0, 12.0), (24_000.0, 8000.0));
/// List of machines.
pub(crate) const LIST_VM: Policy = compute("ListVM", (0.0, 0.0), (900.0, 300.0));
/// GET of an operation.
pub(crate) const GET_OPERATION: Policy = compute("GetOperation", (45.0, 15.0), (15_000.0, 5000.0));
/// Writes and deletes of network resources: 1000 per five minutes.
pub(crate) const WRITE_NETWORK: Policy =
    Policy { name: "WriteNetwork", provider: "Microsoft.Network", resource: (0.0, 0.0), subscription: (1000.0, 200.0) };
/// Reads of network resources: 10,000 per five minutes.
pub(crate) const READ_NETWORK: Policy = Policy {
    name: "ReadNetwork",
    provider: "Microsoft.Network",
    resource: (0.0, 0.0),
    subscription: (10_000.0, 2000.0),
};

#[derive(Clone, Debug)]
struct Bucket {
    tokens: f64,
    capacity: f64,
    per_second: f64,
    at: Duration,
    /// Requests measured since the bucket was last full.
    measured: u64,
    since: Duration,
}

impl Bucket {
    fn new(capacity: f64, per_second: f64, now: Duration) -> Self {
        Self { tokens: capacity, capacity, per_second, at: now, measured: 0, since: now }
    }

    fn refill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.tokens = (self.tokens + passed * self.per_second).min(self.capacity);
        self.at = now;
        if self.tokens >= self.capacity {
            self.measured = 0;
            self.since = now;
        }
    }

    /// A hair of tolerance: a client that waits exactly as told must not be turned away by rounding.
    fn has(&self) -> bool {
        self.tokens >= 1.0 - 1e-6
    }

    /// Whole seconds until there is a token, at least one.
    fn wait(&self) -> u32 {
        let seconds = ((1.0 - self.tokens) / self.per_second).ceil().max(1.0);
        // Finite, positive and small: bucket refill rates are constants above.
        seconds as u32
    }

    fn remaining(&self) -> u64 {
        self.tokens.max(0.0).floor() as u64
    }
}

/// Remaining tokens, as headers.
pub(crate) type Remaining = Vec<(&'static str, String)>;

/// All buckets of this run.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    buckets: BTreeMap<String, Bucket>,
    /// How many there may be before the full ones are thrown away.
    limit: usize,
}

/// Full buckets are like none at all: so many are kept before they go.
const KEPT_FULL: usize = 10_000;

/// Who asks for what.
pub(crate) struct Visit<'a> {
    pub(crate) door: Door,
    pub(crate) subscription: &'a str,
    /// The caller's object id.
    pub(crate) principal: &'a str,
    /// The provider's bucket, with the lower-case id of the resource.
    pub(crate) policy: Option<(Policy, &'a str)>,
}

impl Throttle {
    /// Takes a token from each bucket concerned; nothing is taken when one is empty.
    ///
    /// # Errors
    ///
    /// The 429 of the first empty bucket.
    pub(crate) fn visit(&mut self, visit: &Visit<'_>, clock: &Clock, now: Duration) -> Result<Remaining, Fault> {
        let door = visit.door.word();
        let (capacity, rate) = visit.door.limits();
        let subscription = visit.subscription.to_ascii_lowercase();
        let own = format!("door/{subscription}/{}/{door}", visit.principal);
        let all = format!("door/{subscription}/*/{door}");
        self.bucket(&own, capacity, rate, now);
        self.bucket(&all, capacity * GLOBAL, rate * GLOBAL, now);
        for name in [&own, &all] {
            if let Some(bucket) = self.buckets.get(name).filter(|bucket| !bucket.has()) {
                return Err(fault::front_door_throttled(door, visit.subscription, capacity as u64, bucket.wait()));
            }
        }
        let mut named = vec![own.clone(), all.clone()];
        let mut resource_header = Vec::new();
        if let Some((policy, resource)) = visit.policy {
            let (size, refill) = policy.subscription;
            let key = format!("rp/{subscription}/{}", policy.name);
            self.bucket(&key, size, refill / 60.0, now);
            let mut keys = vec![(key, "SubscriptionMaximum", size)];
            let (size, refill) = policy.resource;
            if size > 0.0 {
                let key = format!("rp/{resource}/{}", policy.name);
                self.bucket(&key, size, refill / 60.0, now);
                keys.insert(0, (key, "Resource", size));
            }
            for (key, suffix, size) in &keys {
                if let Some(bucket) = self.buckets.get_mut(key) {
                    bucket.measured += 1;
                    if !bucket.has() {
                        return Err(fault::compute_throttled(
                            &format!("{}{suffix}", policy.name),
                            (&clock.stamp(bucket.since), &clock.stamp(now)),
                            *size as u64,
                            bucket.measured,
                            bucket.wait(),
                        ));
                    }
                }
            }
            for (key, suffix, _) in &keys {
                resource_header.push((key.clone(), format!("{}/{}{suffix}", policy.provider, policy.name)));
            }
            named.extend(keys.into_iter().map(|(key, _, _)| key));
        }
        for name in &named {
            if let Some(bucket) = self.buckets.get_mut(name) {
                bucket.tokens -= 1.0;
            }
        }
        let remaining = |name: &String| self.buckets.get(name).map_or(0, Bucket::remaining);
        let (narrow, global) = match visit.door {
            Door::Reads => {
                ("x-ms-ratelimit-remaining-subscription-reads", "x-ms-ratelimit-remaining-subscription-global-reads")
            }
            Door::Writes => {
                ("x-ms-ratelimit-remaining-subscription-writes", "x-ms-ratelimit-remaining-subscription-global-writes")
            }
            Door::Deletes => (
                "x-ms-ratelimit-remaining-subscription-deletes",
                "x-ms-ratelimit-remaining-subscription-global-deletes",
            ),
        };
        let mut headers = vec![(narrow, remaining(&own).to_string()), (global, remaining(&all).to_string())];
        if !resource_header.is_empty() {
            let text: Vec<String> =
                resource_header.iter().map(|(key, name)| format!("{name};{}", remaining(key))).collect();
            headers.push(("x-ms-ratelimit-remaining-resource", text.join(",")));
        }
        Ok(headers)
    }

    fn bucket(&mut self, name: &str, capacity: f64, per_second: f64, now: Duration) {
        if self.buckets.len() > self.limit.max(KEPT_FULL) {
            self.buckets.retain(|_, bucket| {
                bucket.refill(now);
                bucket.tokens < bucket.capacity
            });
            self.limit = 2 * self.buckets.len();
        }
        self.buckets.entry(name.to_owned()).or_insert_with(|| Bucket::new(capacity, per_second, now)).refill(now);
    }
}
