//! Token buckets: the front door's, the compute provider's and the network provider's.
//!
//! Numbers are documented (request-limits-and-throttling, compute-throttling-limits): the front door
//! gives a principal 250 reads, 200 writes and 200 deletes per subscription and region, refilled by
//! 25, 10 and 10 a second, and all principals together fifteen times that (recorded in the
//! `-global-` headers); the compute provider has a bucket per machine and one per subscription; the
//! network provider counts per five minutes, the storage provider in several [`Window`]s at once. The
//! names in `x-ms-ratelimit-remaining-resource` for the compute provider's buckets are unverified.
//! Disks have no documented bucket of their own.

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
/// PUT of a scale set.
pub(crate) const PUT_SCALE_SET: Policy = compute("CreateVMScaleSet", (12.0, 4.0), (375.0, 125.0));
/// PATCH and actions of a scale set.
pub(crate) const UPDATE_SCALE_SET: Policy = compute("UpdateVMScaleSet", (12.0, 4.0), (1500.0, 500.0));
/// Delete of a scale set.
pub(crate) const DELETE_SCALE_SET: Policy = compute("DeleteVMScaleSet", (12.0, 4.0), (525.0, 175.0));
/// GET of a scale set. That a GET of an instance counts here too is unverified.
pub(crate) const GET_SCALE_SET: Policy = compute("GetVMScaleSet", (36.0, 12.0), (2400.0, 800.0));
/// Lists of scale sets and of instances, and instance views: what Azure calls their high-cost reads. Which reads these
/// are is known from refusals of lists of instances alone.
pub(crate) const LIST_SCALE_SET: Policy = compute("HighCostGetVMScaleSet", (30.0, 10.0), (1080.0, 360.0));
/// PUT, attach and detach, power actions of an instance.
pub(crate) const UPDATE_INSTANCE: Policy = compute("UpdateVMScaleSetVM", (12.0, 4.0), (1500.0, 500.0));
/// Delete of an instance.
pub(crate) const DELETE_INSTANCE: Policy = compute("DeleteVMScaleSetVM", (12.0, 4.0), (1500.0, 500.0));
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

/// So many requests of a kind in so long a time. Each window begins with the first request that finds none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Window {
    /// What the limit is of, such as `Microsoft.Storage/Write`.
    pub(crate) name: &'static str,
    pub(crate) limit: u64,
    pub(crate) length: Duration,
}

/// So much less than a token is taken for one: a client that waits exactly as told must not be turned away by
/// rounding.
pub(crate) const TOLERANCE: f64 = 1e-6;

/// What a bucket holds at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Level {
    pub(crate) tokens: f64,
    pub(crate) capacity: f64,
    pub(crate) per_second: f64,
}

impl Level {
    const fn full(capacity: f64, per_second: f64) -> Self {
        Self { tokens: capacity, capacity, per_second }
    }

    fn filled(self) -> Self {
        Self { tokens: self.capacity, ..self }
    }
}

/// What the buckets of one principal in one subscription hold at a moment, and those of the compute provider.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Levels {
    pub(crate) reads: Level,
    pub(crate) writes: Level,
    pub(crate) deletes: Level,
    /// [`UPDATE_VM`] of the subscription.
    pub(crate) update_vm: Level,
    /// [`DELETE_VM`] of the subscription.
    pub(crate) delete_vm: Level,
    /// [`UPDATE_INSTANCE`] of the subscription.
    pub(crate) update_instance: Level,
    /// [`DELETE_INSTANCE`] of the subscription.
    pub(crate) delete_instance: Level,
}

impl Levels {
    /// All buckets full.
    pub(crate) fn full() -> Self {
        let door = |door: Door| Level::full(door.limits().0, door.limits().1);
        let provider = |policy: &Policy| Level::full(policy.subscription.0, policy.subscription.1 / 60.0);
        Self {
            reads: door(Door::Reads),
            writes: door(Door::Writes),
            deletes: door(Door::Deletes),
            update_vm: provider(&UPDATE_VM),
            delete_vm: provider(&DELETE_VM),
            update_instance: provider(&UPDATE_INSTANCE),
            delete_instance: provider(&DELETE_INSTANCE),
        }
    }

    /// No limits.
    pub(crate) fn unlimited() -> Self {
        let level = Level::full(f64::INFINITY, f64::INFINITY);
        Self {
            reads: level,
            writes: level,
            deletes: level,
            update_vm: level,
            delete_vm: level,
            update_instance: level,
            delete_instance: level,
        }
    }

    /// The same buckets, full.
    pub(crate) fn filled(&self) -> Self {
        Self {
            reads: self.reads.filled(),
            writes: self.writes.filled(),
            deletes: self.deletes.filled(),
            update_vm: self.update_vm.filled(),
            delete_vm: self.delete_vm.filled(),
            update_instance: self.update_instance.filled(),
            delete_instance: self.delete_instance.filled(),
        }
    }

    /// The front door's bucket of a verb.
    pub(crate) fn of(&self, door: Door) -> Level {
        match door {
            Door::Reads => self.reads,
            Door::Writes => self.writes,
            Door::Deletes => self.deletes,
        }
    }

    /// The compute provider's bucket of that name.
    pub(crate) fn of_policy(&self, name: &str) -> Level {
        match name {
            name if name == DELETE_VM.name => self.delete_vm,
            name if name == UPDATE_INSTANCE.name => self.update_instance,
            name if name == DELETE_INSTANCE.name => self.delete_instance,
            _ => self.update_vm,
        }
    }
}

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

    fn has(&self) -> bool {
        self.tokens >= 1.0 - TOLERANCE
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
    /// By name: when a window began, and how many requests it has seen.
    windows: BTreeMap<String, (Duration, u64)>,
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

/// Tokens by name of bucket, of those of principals and subscriptions that are not full. What is missing is full.
pub(crate) type Contents = BTreeMap<String, f64>;

/// The name of a principal's bucket at the front door.
fn door_name(subscription: &str, principal: &str, door: Door) -> String {
    format!("door/{subscription}/{principal}/{}", door.word())
}

/// The name of a provider's bucket of a subscription, or of one resource.
fn policy_name(owner: &str, policy: &Policy) -> String {
    format!("rp/{owner}/{}", policy.name)
}

/// What one principal finds in remembered buckets.
pub(crate) fn levels(contents: &Contents, subscription: &str, principal: &str) -> Levels {
    let subscription = subscription.to_ascii_lowercase();
    let mut levels = Levels::full();
    let mut set = |name: &str, level: fn(&mut Levels) -> &mut Level| {
        if let Some(tokens) = contents.get(name) {
            level(&mut levels).tokens = *tokens;
        }
    };
    set(&door_name(&subscription, principal, Door::Reads), |levels| &mut levels.reads);
    set(&door_name(&subscription, principal, Door::Writes), |levels| &mut levels.writes);
    set(&door_name(&subscription, principal, Door::Deletes), |levels| &mut levels.deletes);
    set(&policy_name(&subscription, &UPDATE_VM), |levels| &mut levels.update_vm);
    set(&policy_name(&subscription, &DELETE_VM), |levels| &mut levels.delete_vm);
    set(&policy_name(&subscription, &UPDATE_INSTANCE), |levels| &mut levels.update_instance);
    set(&policy_name(&subscription, &DELETE_INSTANCE), |levels| &mut levels.delete_instance);
    levels
}

impl Throttle {
    /// What the buckets of principals and subscriptions hold, those of single resources left out.
    pub(crate) fn contents(&self, now: Duration) -> Contents {
        let mut contents = Contents::new();
        for (name, bucket) in self.buckets.iter().filter(|(name, _)| !name.starts_with("rp//")) {
            let mut bucket = bucket.clone();
            bucket.refill(now);
            if bucket.tokens < bucket.capacity {
                contents.insert(name.clone(), bucket.tokens);
            }
        }
        contents
    }

    /// Takes a token from each bucket concerned; nothing is taken when one is empty.
    ///
    /// # Errors
    ///
    /// The 429 of the first empty bucket.
    pub(crate) fn visit(&mut self, visit: &Visit<'_>, clock: &Clock, now: Duration) -> Result<Remaining, Fault> {
        let door = visit.door.word();
        let (capacity, rate) = visit.door.limits();
        let subscription = visit.subscription.to_ascii_lowercase();
        let own = door_name(&subscription, visit.principal, visit.door);
        let all = door_name(&subscription, "*", visit.door);
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
            let key = policy_name(&subscription, &policy);
            self.bucket(&key, size, refill / 60.0, now);
            let mut keys = vec![(key, "SubscriptionMaximum", size)];
            let (size, refill) = policy.resource;
            if size > 0.0 {
                let key = policy_name(resource, &policy);
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

    /// Counts a request of an owner, such as a subscription and region, in each of these windows; in none when one is
    /// full.
    ///
    /// # Errors
    ///
    /// Whole seconds until the first full window is over.
    pub(crate) fn count(&mut self, owner: &str, windows: &[Window], now: Duration) -> Result<(), u32> {
        let name = |window: &Window| format!("{owner}/{}/{}", window.name, window.length.as_secs());
        for window in windows {
            let (began, seen) = self.windows.entry(name(window)).or_insert((now, 0));
            let left = (*began + window.length).saturating_sub(now);
            if left.is_zero() {
                (*began, *seen) = (now, 0);
            } else if *seen >= window.limit {
                return Err(u32::try_from(left.as_secs_f64().ceil() as u64).unwrap_or(u32::MAX).max(1));
            }
        }
        for window in windows {
            if let Some((_, seen)) = self.windows.get_mut(&name(window)) {
                *seen += 1;
            }
        }
        Ok(())
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
