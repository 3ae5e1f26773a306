//! How long a key waits for a burst of requests to end, so that a burst costs one plan and one write.

use std::time::Duration;

/// The time without a request after which a burst has ended.
pub const GAP: Duration = Duration::from_millis(25);
/// How long after its first request a burst has ended at the latest.
pub const CAP: Duration = Duration::from_millis(100);

/// The burst of requests that no plan for a write has taken up yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QuietWindow(Option<Burst>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Burst {
    first: Duration,
    last: Duration,
}

impl QuietWindow {
    /// Records a request.
    pub fn requested(&mut self, now: Duration) {
        let first = self.0.map_or(now, |burst| burst.first);
        self.0 = Some(Burst { first, last: now });
    }

    /// Records that a plan takes up all requests.
    pub fn taken_up(&mut self) {
        self.0 = None;
    }

    /// Until when to wait. `None` when the burst has ended, or there is none.
    pub fn wait_until(&self, now: Duration) -> Option<Duration> {
        let burst = self.0?;
        let end = (burst.last + GAP).min(burst.first + CAP);
        (now < end).then_some(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_burst_ends_after_a_gap_and_at_the_cap_at_the_latest() {
        let mut window = QuietWindow::default();
        assert_eq!(window.wait_until(ms(0)), None);
        window.requested(ms(10));
        assert_eq!(window.wait_until(ms(10)), Some(ms(35)));
        assert_eq!(window.wait_until(ms(35)), None);
        for at in (20..110).step_by(10) {
            window.requested(ms(at));
        }
        assert_eq!(window.wait_until(ms(100)), Some(ms(110)));
        assert_eq!(window.wait_until(ms(110)), None);
        window.taken_up();
        window.requested(ms(120));
        assert_eq!(window.wait_until(ms(120)), Some(ms(145)));
    }
}
