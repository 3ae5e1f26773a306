//! The lower bound of a run: how fast the same result could have been had.
//!
//! Computed from what was drawn since the log was last reset, for a client that had every request in
//! hand at the reset:
//!
//! * a machine needs one write for all its data disks. Its yardstick is the *largest* latency drawn for
//!   one of its accepted writes (`largest`); where one write was enough that is exact, where the client
//!   used several it is what the slowest alone took. `shortest` is the strict bound: no client can be
//!   faster than the shortest of them. Writes that fail late count, refused ones do not;
//! * a disk that was created since the reset and then attached adds its own creation before;
//! * a disk or group that was only created, changed or deleted counts its largest latency;
//! * buckets: N necessary writes cannot all be accepted at once when the front door's write bucket
//!   (200, 10 a second) or the compute provider's (1500, 500 a minute) holds fewer.
//!
//! `total` is the largest chain over all resources, or the wait for the last necessary write plus the
//! shortest chain, whichever is longer. Poll intervals and network time are not part of it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::latency::OperationKind;
use crate::throttle::{Door, UPDATE_VM};

/// How many drawn latencies are kept, the newest. With fewer the bound is lower, and still one.
pub(crate) const KEPT_MOST: usize = 100_000;

/// One drawn latency.
#[derive(Clone, Debug)]
pub(crate) struct Drawn {
    pub(crate) resource: String,
    pub(crate) kind: OperationKind,
    pub(crate) latency: Duration,
    /// Disks that this write attaches.
    pub(crate) disks: Vec<String>,
}

/// The bound of one resource.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Chain {
    /// Lower-case id of the machine, disk or group.
    pub resource: String,
    /// Writes accepted for it.
    pub writes: usize,
    /// Largest latency drawn for one of its writes, and before it the creation of a disk it attaches.
    pub largest: Duration,
    /// The same with the shortest latency.
    pub shortest: Duration,
}

/// How fast it could have been.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LowerBound {
    /// The bound.
    pub total: Duration,
    /// The part of it that buckets impose: the wait for the last necessary write.
    pub bucket_wait: Duration,
    /// Writes that were necessary: one per resource.
    pub necessary_writes: usize,
    /// By resource, in the order of the ids.
    pub chains: Vec<Chain>,
}

pub(crate) fn lower_bound(drawn: &[Drawn], throttling: bool) -> LowerBound {
    let mut created: BTreeMap<&str, Duration> = BTreeMap::new();
    for draw in drawn.iter().filter(|d| d.kind == OperationKind::DiskCreate) {
        let longest = created.entry(&draw.resource).or_default();
        *longest = (*longest).max(draw.latency);
    }
    let mut chains: BTreeMap<&str, Chain> = BTreeMap::new();
    for draw in drawn {
        let before = draw.disks.iter().filter_map(|disk| created.get(disk.as_str())).max().copied().unwrap_or_default();
        let length = before + draw.latency;
        let chain = chains.entry(&draw.resource).or_insert_with(|| Chain {
            resource: draw.resource.clone(),
            writes: 0,
            largest: Duration::ZERO,
            shortest: Duration::MAX,
        });
        chain.writes += 1;
        chain.largest = chain.largest.max(length);
        chain.shortest = chain.shortest.min(length);
    }
    let necessary = chains.len();
    let machines = drawn
        .iter()
        .filter(|d| matches!(d.kind, OperationKind::VmAttach | OperationKind::VmDetach | OperationKind::VmUpdate))
        .map(|d| d.resource.as_str())
        .collect::<std::collections::BTreeSet<_>>()
        .len();
    let (door, door_rate) = Door::Writes.limits();
    let (compute, compute_rate) = UPDATE_VM.subscription;
    let bucket_wait = if throttling {
        wait(necessary, door, door_rate).max(wait(machines, compute, compute_rate / 60.0))
    } else {
        Duration::ZERO
    };
    let largest = chains.values().map(|c| c.largest).max().unwrap_or_default();
    let shortest = chains.values().map(|c| c.shortest).min().unwrap_or_default();
    let by_buckets = if bucket_wait.is_zero() { Duration::ZERO } else { bucket_wait + shortest };
    LowerBound {
        total: largest.max(by_buckets),
        bucket_wait,
        necessary_writes: necessary,
        chains: chains.into_values().collect(),
    }
}

fn wait(requests: usize, capacity: f64, per_second: f64) -> Duration {
    let over = requests as f64 - capacity;
    if over <= 0.0 { Duration::ZERO } else { Duration::from_secs_f64(over / per_second) }
}
