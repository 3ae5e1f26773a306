//! One of Azure's token buckets, as far as it can be known from here.
//!
//! The estimate is a lower bound of what Azure's bucket will hold once every permit that was given has reached it: a
//! token is taken when the permit is given, and comes back by the published refill. Four things keep it true:
//!
//! - **What an answer tells.** Azure says what remained when it counted that request. Since then at most the refill of
//!   the round trip has come back, which bounds the estimate from above: other clients use the bucket too. And at most
//!   the permits that were out when that request was given its own, and those given since, are not counted in it,
//!   which bounds the estimate from below.
//! - **The way there.** Azure's bucket gets nothing while it is full, and it is full until the first request arrives.
//!   So the estimate and the permits that may still be under way are never more than the bucket holds. A request is
//!   under way for at most [`ARRIVAL`]; the rest of its time Azure works on it.
//! - **Two clocks.** The estimate refills a little slower than published, by [`SLOWER`]. What that leaves over is found
//!   again by the lower bound.
//! - **The share.** When Azure refuses although a token was there, another client takes its part of the refill. Ours is
//!   halved, once for all requests that were out at that time, and grows back by [`RECOVERY`].

use std::time::Duration;

/// The time a request may take to the place where it is counted.
const ARRIVAL: Duration = Duration::from_secs(2);
/// The part of the published refill that is relied on.
const SLOWER: f64 = 0.998;
/// How much of the share comes back in a second: half of it in 170 s. That is slow because each return to a share too
/// great costs a refusal; what others leave unused is found by the lower bound long before.
const RECOVERY: f64 = 0.003;
/// The smallest share.
const SMALLEST_SHARE: f64 = 1.0 / 16.0;
/// What sums of floating point may be off.
const ROUNDING: f64 = 1e-6;

/// An estimate of a bucket.
#[derive(Debug, Clone)]
pub(super) struct Bucket {
    size: f64,
    /// Published tokens per second.
    refill: f64,
    /// The part of the refill that is ours, at most one.
    share: f64,
    tokens: f64,
    at: Duration,
    /// Permits taken, and permits of which Azure has counted the request or never will.
    taken: u64,
    settled: u64,
    /// Permits taken in the window of [`ARRIVAL`] that began at this time, and in the one before it.
    window: Duration,
    taken_in_window: u64,
    taken_before: u64,
    halved: Option<Duration>,
}

/// The state of a bucket when a permit was taken from it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    settled: u64,
    at: Duration,
}

impl Bucket {
    /// A full bucket of so many tokens that get so many a second.
    pub(super) fn full(size: f64, refill: f64, now: Duration) -> Self {
        Self {
            size,
            refill,
            share: 1.0,
            tokens: size,
            at: now,
            taken: 0,
            settled: 0,
            window: now,
            taken_in_window: 0,
            taken_before: 0,
            halved: None,
        }
    }

    /// The most that the estimate holds: the rest may be used by permits that are under way.
    fn brim(&self) -> f64 {
        let under_way = (self.taken - self.settled).min(self.taken_in_window + self.taken_before);
        // Exact in an f64: a process does not send 2^53 requests.
        self.size - under_way as f64
    }

    fn refresh(&mut self, now: Duration) {
        // What was under way until a window ended has bounded the refill until then, and not longer.
        while self.taken_in_window + self.taken_before > 0 && now.saturating_sub(self.window) >= ARRIVAL {
            self.window += ARRIVAL;
            self.refill_until(self.window);
            self.taken_before = std::mem::take(&mut self.taken_in_window);
        }
        self.refill_until(now);
    }

    fn refill_until(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        let growing = passed.min((1.0 - self.share) / RECOVERY);
        let parts = passed - growing + self.share * growing + RECOVERY * growing * growing / 2.0;
        self.share = (self.share + RECOVERY * growing).min(1.0);
        self.tokens = (self.tokens + self.refill * SLOWER * parts).min(self.brim());
        self.at = self.at.max(now);
    }

    /// How long until there are so many tokens; zero when they are there.
    pub(super) fn wait(&self, tokens: f64, now: Duration) -> Duration {
        let mut then = self.clone();
        then.refresh(now);
        let missing = tokens - then.tokens;
        if missing <= ROUNDING {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(missing / (self.refill * SLOWER * then.share)).unwrap_or(Duration::MAX)
    }

    /// The part of the bucket that is left, at most one.
    pub(super) fn level(&self, now: Duration) -> f64 {
        let mut then = self.clone();
        then.refresh(now);
        (then.tokens / then.size).clamp(0.0, 1.0)
    }

    pub(super) fn is_at_rest(&self, now: Duration) -> bool {
        self.taken == self.settled && self.share >= 1.0 && self.wait(self.size, now).is_zero()
    }

    pub(super) fn take(&mut self, now: Duration) -> Mark {
        self.refresh(now);
        let mark = Mark { settled: self.settled, at: now };
        if self.taken_in_window + self.taken_before == 0 {
            self.window = now;
        }
        self.taken += 1;
        self.taken_in_window += 1;
        self.tokens -= 1.0;
        mark
    }

    /// Gives a token back that was taken and not used.
    pub(super) fn give_back(&mut self, now: Duration) {
        self.refresh(now);
        self.settled += 1;
        self.tokens = (self.tokens + 1.0).min(self.brim());
    }

    /// Azure has counted the request, or it was lost on its way.
    pub(super) fn settle(&mut self, now: Duration) {
        self.refresh(now);
        self.settled += 1;
    }

    /// Azure has counted the request and says what remained then. Goes before [`Bucket::settle`].
    pub(super) fn told(&mut self, mark: Mark, remaining: u32, now: Duration) {
        let remaining = f64::from(remaining);
        self.size = self.size.max(remaining + 1.0);
        self.refresh(now);
        let most = remaining + self.refill * now.saturating_sub(mark.at).as_secs_f64();
        self.tokens = self.tokens.min(most).max(self.least(mark, remaining));
    }

    /// As [`Bucket::told`], of a bucket of which nothing was known: what was assumed of it counts for nothing.
    pub(super) fn told_first(&mut self, mark: Mark, remaining: u32, now: Duration) {
        let remaining = f64::from(remaining);
        self.size = self.size.max(remaining + 1.0);
        self.refresh(now);
        self.tokens = self.least(mark, remaining);
    }

    /// What remains of our share when every permit that may not be counted yet is.
    fn least(&self, mark: Mark, remaining: f64) -> f64 {
        // Permits that were out when this one was taken, and those taken since.
        let uncounted = self.taken.saturating_sub(mark.settled).saturating_sub(1) as f64;
        (remaining * self.share - uncounted).max(0.0).min(self.brim())
    }

    /// Azure has refused the request because the bucket is empty, and says when there is a token again. Goes before
    /// [`Bucket::settle`].
    pub(super) fn refused(&mut self, retry_after: Option<Duration>, now: Duration) {
        self.refresh(now);
        let until_then = retry_after.map_or(1.0, |pause| pause.as_secs_f64() * self.refill * SLOWER * self.share);
        self.tokens = self.tokens.min((1.0 - until_then).max(0.0));
    }

    /// Another client took a token that was ours by this estimate, in which a permit with this mark was given.
    pub(super) fn halve_share(&mut self, mark: Mark, now: Duration) {
        if self.halved.is_none_or(|halved| mark.at >= halved) {
            self.refresh(now);
            self.share = (self.share / 2.0).max(SMALLEST_SHARE);
            self.halved = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::ZERO;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn a_token_taken_and_given_back_is_as_if_it_had_never_been_taken() {
        let mut bucket = Bucket::full(200.0, 10.0, START);
        for _ in 0..50 {
            bucket.take(START);
        }
        let level = bucket.level(START);
        bucket.take(START);
        bucket.give_back(START);
        assert!((bucket.level(START) - level).abs() < 1e-9);
    }

    #[test]
    fn what_azure_tells_is_a_bound_from_above_and_from_below() {
        let mut bucket = Bucket::full(250.0, 25.0, START);
        // Another client has used most of it.
        let mark = bucket.take(START);
        bucket.told(mark, 10, seconds(0.1));
        bucket.settle(seconds(0.1));
        assert!(bucket.wait(12.0, seconds(0.1)) <= Duration::ZERO);
        assert!(bucket.wait(13.0, seconds(0.1)) > Duration::ZERO);
        // The other client was the estimate's own mistake: nothing is out, so what is told is there.
        let mark = bucket.take(seconds(0.2));
        bucket.told(mark, 200, seconds(0.2));
        bucket.settle(seconds(0.2));
        assert_eq!(bucket.wait(200.0, seconds(0.2)), Duration::ZERO);
        assert!(bucket.wait(201.0, seconds(0.2)) > Duration::ZERO);
    }

    #[test]
    fn permits_that_azure_may_not_have_counted_are_left_out_of_what_it_tells() {
        let mut bucket = Bucket::full(250.0, 25.0, START);
        let first = bucket.take(START);
        let marks: Vec<Mark> = (0..240).map(|_| bucket.take(START)).collect();
        // The first one was counted alone.
        bucket.told(first, 249, START);
        bucket.settle(START);
        assert!(bucket.wait(10.0, START) > Duration::ZERO);
        // All of those were answered before this one was sent.
        marks.iter().for_each(|_| bucket.settle(START));
        let last = bucket.take(START);
        bucket.told(last, 8, START);
        assert_eq!(bucket.wait(8.0, START), Duration::ZERO);
    }

    #[test]
    fn the_refill_begins_when_the_first_request_may_have_come() {
        let mut bucket = Bucket::full(250.0, 25.0, START);
        let marks: Vec<Mark> = (0..250).map(|_| bucket.take(START)).collect();
        // Azure's bucket may be full until its answers say that it is not, or until all must have come.
        assert!(bucket.wait(1.0, seconds(1.0)) > Duration::ZERO);
        bucket.told(marks[0], 249, seconds(1.0));
        marks[..30].iter().for_each(|_| bucket.settle(seconds(1.0)));
        assert_eq!(bucket.wait(24.0, seconds(2.0)), Duration::ZERO);
        assert!(bucket.wait(31.0, seconds(3.0)) > Duration::ZERO);
        assert_eq!(bucket.wait(60.0, seconds(7.0)), Duration::ZERO);
    }

    #[test]
    fn a_refusal_halves_the_share_once_for_all_that_was_out_and_it_comes_back() {
        let mut bucket = Bucket::full(200.0, 10.0, START);
        let marks: Vec<Mark> = (0..4).map(|_| bucket.take(START)).collect();
        for mark in marks {
            bucket.halve_share(mark, seconds(1.0));
            bucket.refused(Some(seconds(1.0)), seconds(1.0));
            bucket.settle(seconds(1.0));
        }
        let half = bucket.wait(1.0, seconds(1.0)).as_secs_f64();
        assert!((half - 0.2).abs() < 0.01, "{half}");
        bucket.refused(None, seconds(200.0));
        let whole = bucket.wait(1.0, seconds(200.0)).as_secs_f64();
        assert!((whole - 0.1).abs() < 0.001, "{whole}");
    }
}
