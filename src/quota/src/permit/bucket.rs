//! An estimate of one of Azure's token buckets.
//!
//! The estimate is a lower bound of what Azure's bucket will hold once every granted permit has reached it. A token is
//! taken when the permit is granted, and comes back by the published refill. Four rules keep the bound true:
//!
//! - **Reports.** An answer reports what remained when Azure counted that request. At most the refill of the round
//!   trip has come back since: that bounds the estimate from above, because other clients use the bucket too. The
//!   permits that were in flight when that request got its own, and those granted since, may not be counted in it, and
//!   no others: that bounds the estimate from below.
//! - **Arrival.** Azure's bucket gets nothing while it is full, and stays full until the first request arrives. So the
//!   estimate and the permits that may be on their way are together never more than the bucket holds. A request is on
//!   its way for at most [`ARRIVAL`]; for the rest of its time the provider works on it.
//! - **Clocks.** The estimate refills slower than published by [`SLOWER`], because two clocks differ. The lower bound
//!   of the reports finds what that leaves unused.
//! - **Share.** A refusal although the estimate had a token means that another client takes part of the refill. Our
//!   share of the refill, and of what is reported, is halved, once for all requests that were in flight then. It grows
//!   back by [`RECOVERY`].

use std::time::Duration;

/// The longest time from the grant of a permit until Azure counts the request.
pub(super) const ARRIVAL: Duration = Duration::from_secs(2);
/// The part of the published refill that is relied on.
pub(super) const SLOWER: f64 = 0.998;
/// The share that comes back in a second: half of it in 170 s. Each return to a share that is too great costs a
/// refusal, so it is slow; tokens that other clients leave unused are found by the reports long before.
pub(super) const RECOVERY: f64 = 0.003;
/// The smallest share.
pub(super) const SMALLEST_SHARE: f64 = 1.0 / 16.0;
/// The rounding error of sums of tokens.
pub(super) const ROUNDING: f64 = 1e-6;

/// An estimate of a bucket.
#[derive(Debug, Clone)]
pub(super) struct Bucket {
    size: f64,
    /// Published tokens per second.
    refill: f64,
    /// The part of the refill that this client uses, at most 1.
    share: f64,
    tokens: f64,
    at: Duration,
    /// Permits granted, and permits that are over: their requests were answered, lost or never sent.
    taken: u64,
    settled: u64,
    /// When the current window of [`ARRIVAL`] began, and the permits granted in it and in the one before it.
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

    /// The most that the estimate may hold: the size without the permits that may be on their way.
    fn capacity(&self) -> f64 {
        let on_their_way = self.taken.saturating_sub(self.settled).min(self.taken_in_window + self.taken_before);
        // Exact in an f64: a process does not send 2^53 requests.
        self.size - on_their_way as f64
    }

    fn refresh(&mut self, now: Duration) {
        // The permits of a window bound the refill until the next window ends, and not longer.
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
        self.tokens = (self.tokens + self.refill * SLOWER * parts).min(self.capacity());
        self.at = self.at.max(now);
    }

    /// How long until the estimate holds so many tokens; zero when it does.
    pub(super) fn wait(&self, tokens: f64, now: Duration) -> Duration {
        let mut then = self.clone();
        then.refresh(now);
        let missing = tokens - then.tokens;
        if missing <= ROUNDING {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(missing / (self.refill * SLOWER * then.share)).unwrap_or(Duration::MAX)
    }

    /// The part of the bucket that is left, from 0 to 1.
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

    /// Returns a token that was taken and not used.
    pub(super) fn give_back(&mut self, now: Duration) {
        self.refresh(now);
        self.settled += 1;
        self.tokens = (self.tokens + 1.0).min(self.capacity());
    }

    /// Records that a request was answered or lost.
    pub(super) fn settle(&mut self, now: Duration) {
        self.refresh(now);
        self.settled += 1;
    }

    /// Records what remained when Azure counted the request. Goes before [`Bucket::settle`].
    pub(super) fn reported(&mut self, mark: Mark, remaining: u32, now: Duration) {
        let remaining = f64::from(remaining);
        self.size = self.size.max(remaining + 1.0);
        self.refresh(now);
        let most = remaining + self.refill * now.saturating_sub(mark.at).as_secs_f64();
        self.tokens = self.tokens.min(most).max(self.lower_bound(mark, remaining));
    }

    /// As [`Bucket::reported`], for the first report of a bucket: the estimate until then was an assumption.
    pub(super) fn first_report(&mut self, mark: Mark, remaining: u32, now: Duration) {
        let remaining = f64::from(remaining);
        self.size = self.size.max(remaining + 1.0);
        self.refresh(now);
        self.tokens = self.lower_bound(mark, remaining);
    }

    /// Our share of what remained, without the permits that Azure may not have counted then.
    fn lower_bound(&self, mark: Mark, remaining: f64) -> f64 {
        // Permits that were in flight when this one was granted, and those granted since.
        let uncounted = self.taken.saturating_sub(mark.settled).saturating_sub(1) as f64;
        (remaining * self.share - uncounted).max(0.0).min(self.capacity())
    }

    /// Records that Azure found the bucket empty, and when it has a token again. Goes before [`Bucket::settle`].
    pub(super) fn refused(&mut self, retry_after: Option<Duration>, now: Duration) {
        self.refresh(now);
        let until_then = retry_after.map_or(1.0, |pause| pause.as_secs_f64() * self.refill * SLOWER * self.share);
        self.tokens = self.tokens.min((1.0 - until_then).max(0.0));
    }

    /// Halves the share because Azure refused the request of this mark, unless it was granted before the last halving or
    /// at the same time.
    pub(super) fn halve_share(&mut self, mark: Mark, now: Duration) {
        if self.halved.is_none_or(|halved| mark.at > halved) {
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
    fn a_report_bounds_the_estimate_from_above_and_from_below() {
        let mut bucket = Bucket::full(250.0, 25.0, START);
        // Another client has used most of it.
        let mark = bucket.take(START);
        bucket.reported(mark, 10, seconds(0.1));
        bucket.settle(seconds(0.1));
        assert!(bucket.wait(12.0, seconds(0.1)) <= Duration::ZERO);
        assert!(bucket.wait(13.0, seconds(0.1)) > Duration::ZERO);
        // The estimate was too low: nothing else is in flight, so what is reported is there.
        let mark = bucket.take(seconds(0.2));
        bucket.reported(mark, 200, seconds(0.2));
        bucket.settle(seconds(0.2));
        assert_eq!(bucket.wait(200.0, seconds(0.2)), Duration::ZERO);
        assert!(bucket.wait(201.0, seconds(0.2)) > Duration::ZERO);
    }

    #[test]
    fn permits_that_azure_may_not_have_counted_are_subtracted_from_a_report() {
        let mut bucket = Bucket::full(250.0, 25.0, START);
        let first = bucket.take(START);
        let marks: Vec<Mark> = (0..240).map(|_| bucket.take(START)).collect();
        // Azure counted the first request before all others arrived.
        bucket.reported(first, 249, START);
        bucket.settle(START);
        assert!(bucket.wait(10.0, START) > Duration::ZERO);
        // All of those are answered before the next one is granted.
        marks.iter().for_each(|_| bucket.settle(START));
        let last = bucket.take(START);
        bucket.reported(last, 8, START);
        assert_eq!(bucket.wait(8.0, START), Duration::ZERO);
    }

    #[test]
    fn the_estimate_of_a_full_bucket_refills_when_requests_must_have_arrived() {
        let mut bucket = Bucket::full(250.0, 25.0, START);
        let marks: Vec<Mark> = (0..250).map(|_| bucket.take(START)).collect();
        // Azure's bucket may stay full until the first request arrives.
        assert!(bucket.wait(1.0, seconds(1.0)) > Duration::ZERO);
        bucket.reported(marks[0], 249, seconds(1.0));
        marks[..30].iter().for_each(|_| bucket.settle(seconds(1.0)));
        assert_eq!(bucket.wait(24.0, seconds(2.0)), Duration::ZERO);
        assert!(bucket.wait(31.0, seconds(3.0)) > Duration::ZERO);
        assert_eq!(bucket.wait(60.0, seconds(7.0)), Duration::ZERO);
    }

    #[test]
    fn a_refusal_halves_the_share_once_for_all_requests_in_flight_and_the_share_comes_back() {
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

    #[test]
    fn requests_that_are_refused_in_the_moment_of_their_grant_halve_the_share_once_too() {
        let mut bucket = Bucket::full(200.0, 10.0, START);
        let marks: Vec<Mark> = (0..4).map(|_| bucket.take(START)).collect();
        for mark in marks {
            bucket.halve_share(mark, START);
            bucket.refused(Some(seconds(1.0)), START);
            bucket.settle(START);
        }
        let half = bucket.wait(1.0, seconds(1.0)).as_secs_f64();
        assert!(half < 0.2, "{half}");
    }
}
