//! How long what is waited for: the end of a burst of requests, the VolumeAttachments, the end of another writer's write.

use std::time::Duration;

use lazuli_model::{ProvisioningState, Vm};
use lazuli_quota::poll;

/// How long no request may arrive before a burst counts as over.
const QUIET: Duration = Duration::from_millis(25);
/// The longest that the end of a burst is waited for.
const LONGEST_BURST: Duration = Duration::from_millis(150);
/// The longest that the end of another writer's write of the VM is waited for.
const MAX_FOREIGN_WRITE: Duration = Duration::from_secs(180);

/// A burst of requests whose end is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Burst {
    latest: Duration,
    seen: u64,
    /// When to look next.
    pub(super) at: Duration,
}

impl Burst {
    /// So many requests have arrived by now.
    pub(super) fn new(arrivals: u64, now: Duration) -> Self {
        Self { latest: now + LONGEST_BURST, seen: arrivals, at: now + QUIET }
    }

    /// Whether the burst is over, as far as that can be told by now.
    pub(super) fn is_over(&mut self, arrivals: u64, now: Duration) -> bool {
        if now < self.at {
            return false;
        }
        if arrivals == self.seen || now >= self.latest {
            return true;
        }
        (self.seen, self.at) = (arrivals, now + QUIET);
        false
    }
}

/// The VM is read until no write of it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AtRest {
    since: Duration,
    /// When it is read next; `None` while it is being read.
    pub(super) next: Option<Duration>,
}

impl AtRest {
    /// The VM is being read for the first time.
    pub(super) fn reading(now: Duration) -> Self {
        Self { since: now, next: None }
    }

    /// Whether this read ends the wait; else when to read again.
    pub(super) fn ends_with(&mut self, vm: &Vm, now: Duration) -> bool {
        let elapsed = now.saturating_sub(self.since);
        if vm.provisioning_state != ProvisioningState::InProgress || elapsed >= MAX_FOREIGN_WRITE {
            return true;
        }
        self.next = Some(now + poll::again(poll::Kind::VmAttach, elapsed));
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_over_when_none_arrives_for_a_while_and_at_the_latest_after_its_longest_time() {
        let ms = Duration::from_millis;
        let mut burst = Burst::new(1, ms(0));
        assert!(!burst.is_over(1, ms(24)));
        assert!(!burst.is_over(2, ms(25)), "one more came");
        assert!(!burst.is_over(2, ms(49)) && burst.is_over(2, ms(50)));
        let mut burst = Burst::new(1, ms(0));
        let ends = (1..20).find(|n| burst.is_over(n + 1, ms(n * 25)));
        assert_eq!(ends, Some(6));
    }
}
