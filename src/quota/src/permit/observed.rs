//! Buckets that are known only by their name in a header.

use std::time::Duration;

use super::LONGEST_OBSERVED;

/// Buckets of an unknown name that are smaller than this are taken for those of one resource (a VM's hold 12 to 45).
/// They limit nothing, because the bucket of the next resource of the type is another one.
const SMALLEST_SHARED: f64 = 60.0;
/// Tokens per second of a bucket of an unknown name; below the slowest published one that all VMs of a subscription
/// share (125 per minute).
const OBSERVED_REFILL: f64 = 1.0;
/// What answers have said of such a bucket.
#[derive(Debug, Clone, Copy)]
pub(super) struct Observed {
    pub(super) tokens: f64,
    /// The most that was ever reported.
    pub(super) size: f64,
    pub(super) at: Duration,
}

impl Observed {
    fn available(&self, now: Duration) -> f64 {
        (self.tokens + now.saturating_sub(self.at).as_secs_f64() * OBSERVED_REFILL).min(self.size)
    }

    pub(super) fn add(&mut self, tokens: f64, now: Duration) {
        self.tokens = (self.available(now) + tokens).min(self.size);
        self.at = now;
    }

    pub(super) fn wait(&self, now: Duration) -> Duration {
        if self.size < SMALLEST_SHARED {
            return Duration::ZERO;
        }
        let missing = (1.0 - self.available(now)).max(0.0) / OBSERVED_REFILL;
        Duration::try_from_secs_f64(missing).unwrap_or(LONGEST_OBSERVED)
    }
}
