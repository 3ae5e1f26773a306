//! How many disks reviews may read.
//!
//! Any client that reaches the webhooks can send reviews, and each may name another disk. Azure counts the reads of a
//! subscription together, so reviews without a bound would take the reads with which disks are attached. A review beyond
//! the bound is admitted without a read.

use std::time::Duration;

/// The number of reads that may be made at once: an administrator applies that many static volumes.
pub const READS_AT_ONCE: u32 = 50;
/// The time after which one more may be made. Azure gives a subscription 25 reads a second (source: the limits of Azure
/// Resource Manager); reviews take one in twelve of them.
pub const READ_EVERY: Duration = Duration::from_millis(500);

/// What is left of the reads that reviews may make. Times are durations since a moment that the caller chooses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadBudget {
    /// When as many as [`READS_AT_ONCE`] are left again.
    full_at: Duration,
}

impl ReadBudget {
    /// Takes one read, where one is left.
    #[must_use]
    pub fn take(&mut self, now: Duration) -> bool {
        let full_at = self.full_at.max(now) + READ_EVERY;
        let is_left = full_at - now <= READ_EVERY * READS_AT_ONCE;
        if is_left {
            self.full_at = full_at;
        }
        is_left
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_taken_comes_back_one_by_one_and_never_more_than_at_the_start() {
        let mut budget = ReadBudget::default();
        let taken = |budget: &mut ReadBudget, at: Duration| (0..1_000).filter(|_| budget.take(at)).count();
        let most = READS_AT_ONCE as usize;
        assert_eq!(taken(&mut budget, Duration::ZERO), most);
        assert_eq!(taken(&mut budget, READ_EVERY - Duration::from_millis(1)), 0);
        assert_eq!(taken(&mut budget, READ_EVERY), 1);
        assert_eq!(taken(&mut budget, 4 * READ_EVERY), 3);
        assert_eq!(taken(&mut budget, 10_000 * READ_EVERY), most);
    }

    proptest! {
        #[test]
        fn over_any_time_no_more_is_taken_than_the_start_and_the_time_give(
            pauses in prop::collection::vec(0_u64..400, 1..500)
        ) {
            let (mut budget, mut now, mut taken) = (ReadBudget::default(), Duration::ZERO, 0_u32);
            for pause in pauses {
                now += Duration::from_millis(pause);
                taken += u32::from(budget.take(now));
                let given = now.as_millis() / READ_EVERY.as_millis();
                prop_assert!(u128::from(taken) <= u128::from(READS_AT_ONCE) + given);
            }
        }
    }
}
