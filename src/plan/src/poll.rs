//! When to ask a long-running operation how it is doing.
//!
//! Azure does not say when an operation will end, and every question costs from a budget. So a process expects what
//! it has seen: six polls up to the median of that kind of operation, the sixth just past it, then intervals of a
//! twentieth of the time that has passed. An operation of median length is noticed within tens of milliseconds, and
//! one in the tail at most five per cent late.

use std::{collections::VecDeque, time::Duration};

/// A kind of operation whose durations resemble each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A managed disk is made.
    DiskCreate,
    /// A managed disk is changed.
    DiskUpdate,
    /// A managed disk is deleted.
    DiskDelete,
    /// A VM gets data disks, and perhaps loses some.
    VmAttach,
    /// A VM only loses data disks.
    VmDetach,
    /// Anything else.
    Other,
}

impl Kind {
    /// What to expect before anything was seen (source: the published medians, azuredisk pull request 473: create
    /// 2.5 s, delete 5 s, attach 10 s, detach 16 s; an update is taken as a creation).
    pub fn prior(self) -> Duration {
        Duration::from_millis(match self {
            Self::DiskCreate | Self::DiskUpdate => 2_500,
            Self::DiskDelete => 5_000,
            Self::VmAttach => 10_000,
            Self::VmDetach => 16_000,
            Self::Other => 5_000,
        })
    }
}

/// How long past the expected end the poll of the expected end comes: Azure's clock and ours do not start together.
const SLACK: Duration = Duration::from_millis(30);
/// The shortest time between two polls.
const SHORTEST: Duration = Duration::from_millis(25);
/// The longest time between two polls.
const LONGEST: Duration = Duration::from_secs(10);
/// Where the polls before the median stand, as parts of it.
const BEFORE: [f64; 5] = [0.35, 0.55, 0.72, 0.85, 0.94];

/// How long operations of one kind have taken lately.
#[derive(Debug, Clone, Default)]
pub struct Durations {
    seen: VecDeque<Duration>,
}

impl Durations {
    const KEPT: usize = 15;

    /// Takes note of one operation, by Azure's own start and end where it gives them.
    pub fn record(&mut self, took: Duration) {
        if self.seen.len() == Self::KEPT {
            self.seen.pop_front();
        }
        self.seen.push_back(took);
    }

    /// The median of what was seen lately; `None` before anything was.
    pub fn median(&self) -> Option<Duration> {
        let mut sorted: Vec<Duration> = self.seen.iter().copied().collect();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied()
    }
}

/// When the next poll is due, as time since the operation was accepted.
///
/// `elapsed` is the time of the last poll (zero before the first), `learned` the median seen so far, `retry_after`
/// Azure's wish on a 2xx. A wish moves the first poll only while nothing is learned: it is a constant that knows
/// nothing of this operation. (On 429 and 503 it is law, and the transport's business.)
pub fn next(kind: Kind, learned: Option<Duration>, retry_after: Option<Duration>, elapsed: Duration) -> Duration {
    let expected = learned.unwrap_or_else(|| kind.prior());
    if elapsed.is_zero()
        && learned.is_none()
        && let Some(wish) = retry_after
    {
        return wish.max(SHORTEST);
    }
    let at_least = elapsed + SHORTEST;
    BEFORE
        .iter()
        .map(|part| expected.mul_f64(*part))
        .chain([expected + SLACK])
        .find(|due| *due >= at_least)
        .unwrap_or_else(|| elapsed + (elapsed / 20).clamp(SHORTEST, LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn polls(
        kind: Kind,
        learned: Option<Duration>,
        retry_after: Option<Duration>,
        takes: Duration,
    ) -> (usize, Duration) {
        let (mut at, mut polls) = (Duration::ZERO, 0);
        loop {
            at = next(kind, learned, retry_after, at);
            polls += 1;
            if at >= takes {
                return (polls, at - takes);
            }
        }
    }

    #[test]
    fn an_operation_of_expected_length_costs_six_polls_and_is_noticed_at_once() {
        for kind in [Kind::DiskCreate, Kind::DiskDelete, Kind::VmAttach, Kind::VmDetach, Kind::Other] {
            let (polls, late) = polls(kind, None, None, kind.prior());
            assert!(polls <= 6 && late <= SLACK, "{kind:?}: {polls} polls, {late:?} late");
        }
    }

    #[test]
    fn azures_wish_sets_the_first_poll_only_while_nothing_is_learned() {
        let wish = Some(Duration::from_secs(17));
        assert_eq!(next(Kind::VmAttach, None, wish, Duration::ZERO), Duration::from_secs(17));
        assert!(next(Kind::VmAttach, Some(Duration::from_secs(10)), wish, Duration::ZERO) < Duration::from_secs(10));
        let (polls, late) = polls(Kind::VmAttach, None, Some(Duration::from_secs(10)), Duration::from_millis(10_001));
        assert!(polls == 2 && late <= SLACK, "{polls} polls, {late:?} late");
    }

    #[test]
    fn the_median_follows_what_was_seen_and_one_straggler_does_not_move_it() {
        let mut durations = Durations::default();
        assert_eq!(durations.median(), None);
        for seconds in [4, 4, 4, 120, 4] {
            durations.record(Duration::from_secs(seconds));
        }
        assert_eq!(durations.median(), Some(Duration::from_secs(4)));
        for _ in 0..Durations::KEPT {
            durations.record(Duration::from_secs(9));
        }
        assert_eq!(durations.median(), Some(Duration::from_secs(9)));
    }

    proptest! {
        #[test]
        fn polls_move_forward_and_the_tail_is_at_most_five_per_cent_late(
            median_ms in 10u64..60_000, takes_ms in 1u64..600_000,
        ) {
            let takes = Duration::from_millis(takes_ms);
            let median = Duration::from_millis(median_ms);
            let (polls, late) = polls(Kind::VmAttach, Some(median), None, takes);
            prop_assert!(polls < 400);
            if takes > median + SLACK {
                prop_assert!(late <= takes / 20 + SHORTEST, "{late:?}");
            }
            if takes <= median {
                prop_assert!(polls <= 6);
            }
        }
    }
}
