//! How long what is waited for: the end of a burst of requests, the VolumeAttachments, the end of another writer's write.

use std::time::Duration;

use lazuli_model::{ProvisioningState, Vm};
use lazuli_quota::poll;

/// How long no request may arrive before a burst counts as over.
const QUIET: Duration = Duration::from_millis(25);
/// The longest that the end of a burst is waited for.
const LONGEST_BURST: Duration = Duration::from_millis(150);
/// The longest that the end of another writer's write of the VM is waited for.
pub(super) const MAX_FOREIGN_WRITE: Duration = Duration::from_secs(180);

/// A burst of requests whose end is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Burst {
    began: Duration,
}

impl Burst {
    /// A burst that begins now.
    pub(super) fn new(now: Duration) -> Self {
        Self { began: now }
    }

    /// When the burst is over, if no request arrives after the last one.
    pub(super) fn ends_at(self, last_arrival: Duration) -> Duration {
        (self.began.max(last_arrival) + QUIET).min(self.began + LONGEST_BURST)
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
        let burst = Burst::new(ms(1_000));
        let ends = [0, 1_000, 1_010, 1_120, 1_130, 1_149].map(|last| burst.ends_at(ms(last)).as_millis());
        assert_eq!(ends, [1_025, 1_025, 1_035, 1_145, 1_150, 1_150]);
    }
}
