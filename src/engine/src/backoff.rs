//! Growing pauses between repeated tries.

use std::time::Duration;

/// A pause that doubles with each failure up to a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    /// After a conflict with another writer.
    pub const CONFLICT: Self = Self::new(Duration::from_millis(250), Duration::from_secs(4));
    /// After a failure that only a change outside this process cures (source of both times: the service controller of
    /// the Go cloud-controller-manager).
    pub const FAILURE: Self = Self::new(Duration::from_secs(5), Duration::from_secs(300));

    /// A backoff without failures.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, failures: 0 }
    }

    /// Records a failure and returns the pause after it.
    pub fn failed(&mut self) -> Duration {
        let factor = 2u32.saturating_pow(self.failures);
        self.failures = self.failures.saturating_add(1);
        self.first.saturating_mul(factor).min(self.longest)
    }

    /// Records a success.
    pub fn succeeded(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_start_anew_after_a_success() {
        let mut backoff = Backoff::CONFLICT;
        let pauses: Vec<u128> = (0..6).map(|_| backoff.failed().as_millis()).collect();
        assert_eq!(pauses, [250, 500, 1000, 2000, 4000, 4000]);
        backoff.succeeded();
        assert_eq!(backoff.failed().as_millis(), 250);
        let mut long = Backoff { failures: u32::MAX, ..Backoff::FAILURE };
        assert_eq!(long.failed(), Duration::from_secs(300));
    }
}
