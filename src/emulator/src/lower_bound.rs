//! The lower bound of a phase: how fast the same result could have been had.
//!
//! # What is necessary
//!
//! Every result needs one write that starts an operation, and one read, sent after the operation has
//! ended, that shows the end: a poll, or a GET of the resource. What more a client sent is not
//! necessary and never makes the bound larger:
//!
//! | resource | necessary | latency |
//! |---|---|---|
//! | a disk or machine that was created | 1 PUT and 1 read | of its creation |
//! | a machine or disk that was changed | 1 write and 1 read, whatever number was sent | the least of the kinds sent |
//! | a disk or machine that was deleted | 1 DELETE and 1 read, after its creation if that is in the phase too | of its deletion |
//! | a resource group that was deleted | 1 DELETE and 1 read | of its deletion |
//!
//! The latency of the nth write of a resource follows from the seed, the resource and n. An ideal client
//! sends one write, so its latency is the one that was due to the *first* write of the phase. It is drawn
//! again for the bound, so the latencies of later writes do not matter. (Where several kinds were
//! sent, attach and detach for example, the shortest of them counts: it is not known which was needed.)
//!
//! # What limits
//!
//! * Latency: the longest operation, after the creation of a disk that it attaches or deletes.
//! * The bucket of each verb at the front door (reads, writes, deletes), and the compute provider's
//!   buckets of the subscription, each with the content that it had at the start of the phase. The kth
//!   write cannot be accepted before its buckets have given k tokens. Of N operations whose writes wait,
//!   the longest should go first: no other order ends sooner.
//! * Reads: the kth end cannot be earlier than the kth write with the shortest latency, nor than the kth
//!   shortest latency. From these ends on the reads take their tokens in order.
//!
//! Not part of it: network time, poll intervals, the bucket of one machine, the bucket of all principals
//! together. Where principals differ, each has its own bound, and the largest counts. Within one
//! principal the bound is exact when all latencies are alike, or when no write waits; else it may be too low,
//! never too high. The tests simulate clients against the buckets to show both.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::throttle::{Door, Level, Levels, TOLERANCE};

/// One necessary write and the read that shows its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Need {
    /// What its write counts as.
    pub(crate) door: Door,
    /// The compute provider's bucket that its write takes from as well, by name.
    pub(crate) policy: Option<&'static str>,
    /// How long its operation takes.
    pub(crate) latency: Duration,
    /// How long after the start of the phase its write can be sent at the soonest: a disk that it
    /// attaches or deletes has to be there first.
    pub(crate) after: Duration,
}

/// What one principal has to do in a phase, and what its buckets hold at the start.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    /// The principal's object id.
    pub(crate) principal: String,
    pub(crate) needs: Vec<Need>,
    pub(crate) levels: Levels,
}

/// How fast it could have been.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LowerBound {
    /// The bound.
    pub total: Duration,
    /// The part of it that latencies alone impose: the longest operation or chain of two.
    pub latency: Duration,
    /// The part of it that buckets add.
    pub bucket_wait: Duration,
    /// The bound with full buckets at the start.
    pub with_full_buckets: Duration,
    /// Necessary writes, deletions left out.
    pub necessary_writes: usize,
    /// Necessary deletions.
    pub necessary_deletes: usize,
    /// Necessary reads: one for each write and deletion.
    pub necessary_reads: usize,
}

/// The bound of one phase.
pub(crate) fn of_phase(shares: &[Share]) -> LowerBound {
    let largest = |bound: fn(&Share) -> f64| shares.iter().map(bound).fold(0.0, f64::max);
    let total = largest(|share| with_levels(&share.needs, &share.levels));
    let latency = largest(|share| longest_chain(&share.needs));
    let full = largest(|share| with_levels(&share.needs, &share.levels.filled()));
    let deletes = shares.iter().flat_map(|share| &share.needs).filter(|need| need.door == Door::Deletes).count();
    let all = shares.iter().map(|share| share.needs.len()).sum();
    LowerBound {
        total: Duration::from_secs_f64(total),
        latency: Duration::from_secs_f64(latency),
        bucket_wait: Duration::from_secs_f64((total - latency).max(0.0)),
        with_full_buckets: Duration::from_secs_f64(full),
        necessary_writes: all - deletes,
        necessary_deletes: deletes,
        necessary_reads: all,
    }
}

/// The bound of phases one after the other, for a client that wasted nothing in any of them: no phase is
/// faster than with full buckets, and all tokens come from what the first phase found and from refill.
pub(crate) fn of_run(phases: &[Vec<Share>]) -> LowerBound {
    let mut run = LowerBound::default();
    for bound in phases.iter().map(|shares| of_phase(shares)) {
        run.latency += bound.latency;
        run.with_full_buckets += bound.with_full_buckets;
        run.necessary_writes += bound.necessary_writes;
        run.necessary_deletes += bound.necessary_deletes;
        run.necessary_reads += bound.necessary_reads;
    }
    let mut by_principal: BTreeMap<&str, Spent<'_>> = BTreeMap::new();
    for share in phases.iter().flatten() {
        let spent = by_principal.entry(&share.principal).or_insert_with(|| Spent::from(&share.levels));
        let deletes = share.needs.iter().filter(|need| need.door == Door::Deletes).count();
        spent.deletes += deletes;
        spent.writes += share.needs.len() - deletes;
    }
    let by_tokens = by_principal.values().map(Spent::seconds).fold(0.0, f64::max);
    run.total = run.with_full_buckets.max(Duration::from_secs_f64(by_tokens));
    run.bucket_wait = run.total.saturating_sub(run.latency);
    run
}

/// What one principal takes from its buckets in a run.
struct Spent<'a> {
    /// At the start of the first phase in which it has to do.
    levels: &'a Levels,
    writes: usize,
    deletes: usize,
}

impl<'a> Spent<'a> {
    fn from(levels: &'a Levels) -> Self {
        Self { levels, writes: 0, deletes: 0 }
    }

    /// When the last token can be had at the soonest.
    fn seconds(&self) -> f64 {
        let reads = slot(&self.levels.reads, self.writes + self.deletes);
        reads.max(slot(&self.levels.writes, self.writes)).max(slot(&self.levels.deletes, self.deletes))
    }
}

/// Seconds after the start at which a bucket can have given `nth` tokens, counted from 1.
fn slot(level: &Level, nth: usize) -> f64 {
    ((nth as f64 - TOLERANCE - level.tokens) / level.per_second).max(0.0)
}

fn longest_chain(needs: &[Need]) -> f64 {
    needs.iter().map(|need| (need.after + need.latency).as_secs_f64()).fold(0.0, f64::max)
}

/// The bound in seconds.
fn with_levels(needs: &[Need], levels: &Levels) -> f64 {
    let mut bound = longest_chain(needs);
    // By verb, and once more for those that take from a bucket of the provider as well.
    let mut policies: Vec<(Door, &str)> = needs.iter().filter_map(|need| Some((need.door, need.policy?))).collect();
    policies.sort_unstable();
    policies.dedup();
    let mut all_ends = Vec::with_capacity(needs.len());
    for door in [Door::Writes, Door::Deletes] {
        let ends = Ends::of(needs.iter().filter(|need| need.door == door), &[levels.of(door)]);
        bound = bound.max(ends.last_write);
        all_ends.extend(ends.in_order);
    }
    for (door, policy) in policies {
        let group = needs.iter().filter(|need| need.door == door && need.policy == Some(policy));
        let ends = Ends::of(group, &[levels.of(door), levels.of_policy(policy)]);
        bound = bound.max(ends.last_write).max(last_read(&ends.in_order, &levels.reads));
    }
    all_ends.sort_by(f64::total_cmp);
    bound.max(last_read(&all_ends, &levels.reads))
}

/// When the operations of one verb end at the soonest, in seconds.
struct Ends {
    /// The end of the last, with the longest operation sent first.
    last_write: f64,
    /// The kth end cannot be earlier than the kth of these, in any order of the writes.
    in_order: Vec<f64>,
}

impl Ends {
    /// `buckets`: every write takes a token from each of them.
    fn of<'a>(needs: impl Iterator<Item = &'a Need>, buckets: &[Level]) -> Self {
        let mut latencies: Vec<f64> = needs.map(|need| need.latency.as_secs_f64()).collect();
        latencies.sort_by(f64::total_cmp);
        let slots = slots(latencies.len(), buckets);
        let longest_first = slots.iter().zip(latencies.iter().rev());
        let last_write = longest_first.map(|(slot, latency)| slot + latency).fold(0.0, f64::max);
        let shortest = latencies.first().copied().unwrap_or_default();
        let first = slots.first().copied().unwrap_or_default();
        let in_order =
            slots.iter().zip(&latencies).map(|(slot, latency)| (slot + shortest).max(first + latency)).collect();
        Self { last_write, in_order }
    }
}

/// When each of so many writes can be accepted at the soonest, in seconds. Each is sent as soon as all buckets have a
/// token: to wait longer never helps. A bucket that is full while another is waited for gains nothing.
fn slots(count: usize, buckets: &[Level]) -> Vec<f64> {
    let (mut now, mut buckets) = (0.0, buckets.to_vec());
    let mut slots = Vec::with_capacity(count);
    for _ in 0..count {
        let wait = buckets.iter().map(Level::wait).fold(0.0, f64::max);
        now += wait;
        for bucket in &mut buckets {
            bucket.pass(wait);
            bucket.tokens -= 1.0;
        }
        slots.push(now);
    }
    slots
}

/// When the last of the reads gets its token, in seconds; each is sent at one of `ends`, which are in order, or later.
fn last_read(ends: &[f64], reads: &Level) -> f64 {
    let (mut now, mut reads) = (0.0_f64, *reads);
    for end in ends {
        let idle = (end - now).max(0.0);
        reads.pass(idle);
        let wait = reads.wait();
        reads.pass(wait);
        reads.tokens -= 1.0;
        now += idle + wait;
    }
    now
}

impl Level {
    /// Seconds until there is a token.
    fn wait(&self) -> f64 {
        ((1.0 - TOLERANCE - self.tokens) / self.per_second).max(0.0)
    }

    /// So many seconds pass.
    fn pass(&mut self, seconds: f64) {
        if seconds > 0.0 {
            self.tokens = (self.tokens + seconds * self.per_second).min(self.capacity);
        }
    }
}

#[cfg(test)]
mod tests;
