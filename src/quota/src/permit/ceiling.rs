//! Ceilings that an operator sets on the requests of a process, beside Azure's own limits: the `cloudProviderRateLimit…`
//! keys of the cloud configuration.
//!
//! The Go manager has a client for each group of resource types, and a bucket of each for reads and for writes. Polls of
//! operations count against none: they are requests of no resource type.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::Direction;

/// The part of a token that rounding to whole nanoseconds may be short of.
const ROUNDING: f64 = 1e-6;

/// At most so many requests at once, and so many more with each second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Requests a second; more than 0.
    pub per_second: f64,
    /// Requests at once; at least 1.
    pub burst: u32,
}

/// The ceilings of one client.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ceiling {
    /// Of GET.
    pub reads: Rate,
    /// Of PUT, PATCH, POST and DELETE together.
    pub writes: Rate,
}

/// The ceilings of a process, by client.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ceilings {
    clients: BTreeMap<Arc<str>, Ceiling>,
    /// The client of each resource type, in lower case. A type that is not here belongs to the client of its parent.
    types: BTreeMap<String, Arc<str>>,
}

impl Ceilings {
    /// Sets the ceiling of the client of these resource types, such as `Microsoft.Network/loadBalancers`, in any case.
    pub fn limit(&mut self, client: &str, types: &[&str], ceiling: Ceiling) {
        let client: Arc<str> = client.into();
        self.types.extend(types.iter().map(|one| (one.to_ascii_lowercase(), client.clone())));
        self.clients.insert(client, ceiling);
    }

    /// Names the client of these resource types without a ceiling, so that they do not count against that of their parent.
    pub fn leave(&mut self, client: &str, types: &[&str]) {
        let client: Arc<str> = client.into();
        self.types.extend(types.iter().map(|one| (one.to_ascii_lowercase(), client.clone())));
    }

    /// The bucket of a request of this type, given in lower case.
    fn bucket(&self, resource_type: &str, direction: Direction) -> Option<(Key, Rate)> {
        let mut resource_type = resource_type;
        let client = loop {
            match self.types.get(resource_type) {
                Some(client) => break client,
                None => resource_type = resource_type.rsplit_once('/')?.0,
            }
        };
        let ceiling = self.clients.get(client)?;
        match direction {
            Direction::Reads => Some((Key(client.clone(), Flow::Reads), ceiling.reads)),
            Direction::Writes | Direction::Deletes => Some((Key(client.clone(), Flow::Writes), ceiling.writes)),
            Direction::Data => None,
        }
    }
}

/// What a client counts apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Flow {
    Reads,
    Writes,
}

/// A bucket: a client, and its reads or writes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(Arc<str>, Flow);

#[derive(Debug, Clone, Copy)]
struct Bucket {
    rate: Rate,
    tokens: f64,
    at: Duration,
}

impl Bucket {
    fn full(rate: Rate, now: Duration) -> Self {
        Self { rate, tokens: f64::from(rate.burst), at: now }
    }

    fn available(&self, now: Duration) -> f64 {
        let more = now.saturating_sub(self.at).as_secs_f64() * self.rate.per_second;
        (self.tokens + more).min(f64::from(self.rate.burst))
    }

    fn add(&mut self, tokens: f64, now: Duration) {
        self.tokens = (self.available(now) + tokens).min(f64::from(self.rate.burst));
        self.at = self.at.max(now);
    }

    fn wait(&self, now: Duration) -> Duration {
        let missing = 1.0 - self.available(now);
        if missing <= ROUNDING {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(missing / self.rate.per_second).unwrap_or(Duration::MAX)
    }
}

/// The ceilings with what has been used of them.
#[derive(Debug, Default)]
pub(super) struct Used {
    ceilings: Ceilings,
    buckets: BTreeMap<Key, Bucket>,
}

impl Used {
    pub(super) fn new(ceilings: Ceilings) -> Self {
        Self { ceilings, buckets: BTreeMap::new() }
    }

    /// How long a request must wait.
    pub(super) fn wait(&self, resource_type: &str, direction: Direction, now: Duration) -> Duration {
        let bucket = self.ceilings.bucket(resource_type, direction).and_then(|(key, _)| self.buckets.get(&key));
        bucket.map_or(Duration::ZERO, |bucket| bucket.wait(now))
    }

    /// Counts a request.
    pub(super) fn take(&mut self, resource_type: &str, direction: Direction, now: Duration) -> Option<Key> {
        let (key, rate) = self.ceilings.bucket(resource_type, direction)?;
        self.buckets.entry(key.clone()).or_insert_with(|| Bucket::full(rate, now)).add(-1.0, now);
        Some(key)
    }

    /// A request that was counted was not sent.
    pub(super) fn give_back(&mut self, key: &Key, now: Duration) {
        if let Some(bucket) = self.buckets.get_mut(key) {
            bucket.add(1.0, now);
        }
    }
}
