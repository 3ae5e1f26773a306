//! A record: 16 bytes.

use std::time::Duration;

use crate::{
    cause::Cause,
    words::{Group, Word},
};

/// What a record's other object is when there is none.
pub(crate) const NO_OTHER: u32 = 0;
/// What it is when there was one for whose name no room was left.
pub(crate) const FORGOTTEN: u32 = u32::MAX;
/// What its number is when there is none.
const NO_NUMBER: u32 = u32::MAX;

/// One record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    /// The milliseconds since the start: the lower four bytes, and the fifth. 34 years fit.
    low: u32,
    high: u8,
    /// How often the same was noted in a row.
    pub(crate) times: u8,
    pub(crate) word: Word,
    pub(crate) cause: Cause,
    number: u32,
    /// The number of the other object.
    pub(crate) other: u32,
}

const _: () = assert!(size_of::<Record>() == 16);

impl Record {
    pub(crate) fn new(at: Duration, word: Word, cause: Cause, number: Option<u32>, other: u32) -> Self {
        let (low, high) = split(at);
        Self { low, high, times: 1, word, cause, number: number.unwrap_or(NO_NUMBER), other }
    }

    /// When it was noted, since the start of the process.
    pub(crate) fn at(&self) -> Duration {
        Duration::from_millis(u64::from(self.high) << 32 | u64::from(self.low))
    }

    pub(crate) fn number(&self) -> Option<u32> {
        (self.number != NO_NUMBER).then_some(self.number)
    }

    /// Takes in a record that says the same once more, and counts it. What is waited for keeps the time since when, and
    /// everything else gets that of the last time. Returns whether it said the same.
    pub(crate) fn takes_in(&mut self, latest: &Self) -> bool {
        if self.word == Word::Named {
            // It holds the place of a first record.
            *self = *latest;
            return true;
        }
        let what = |record: &Self| (record.word, record.cause, record.number, record.other);
        let folds = self.word.folds() && (self.word, self.cause) == (latest.word, latest.cause);
        if what(self) != what(latest) && !folds {
            return false;
        }
        let times = self.times.saturating_add(1);
        *self = match self.word.group() {
            Group::Waits => Self { times, ..*self },
            _ => Self { times, ..*latest },
        };
        true
    }
}

fn split(at: Duration) -> (u32, u8) {
    const LONGEST: u64 = (1 << 40) - 1;
    let milliseconds = u64::try_from(at.as_millis()).unwrap_or(LONGEST).min(LONGEST);
    // Both halves fit by the limit above.
    (milliseconds as u32, (milliseconds >> 32) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_record_is_exact_for_34_years() {
        for milliseconds in [0, 1, u64::from(u32::MAX), u64::from(u32::MAX) + 1, (1 << 40) - 1] {
            let at = Duration::from_millis(milliseconds);
            assert_eq!(Record::new(at, Word::SeenAlone, Cause::NONE, None, NO_OTHER).at(), at);
        }
        let record = Record::new(Duration::MAX, Word::SeenAlone, Cause::NONE, Some(3), NO_OTHER);
        assert_eq!((record.at(), record.number()), (Duration::from_millis((1 << 40) - 1), Some(3)));
    }

    #[test]
    fn the_same_again_is_counted_with_the_first_time_of_a_wait_and_the_last_of_all_else() {
        let at = Duration::from_secs;
        let record = |seconds, word, other| Record::new(at(seconds), word, Cause::NONE, None, other);
        let mut wait = record(1, Word::AwaitsPermit, 7);
        assert!(!wait.takes_in(&record(2, Word::AwaitsPermit, 8)));
        assert!(wait.takes_in(&record(3, Word::AwaitsPermit, 7)));
        assert_eq!((wait.at(), wait.times), (at(1), 2));
        let mut seen = record(1, Word::SeenAlone, NO_OTHER);
        assert!(seen.takes_in(&record(3, Word::SeenAlone, NO_OTHER)));
        assert_eq!((seen.at(), seen.times), (at(3), 2));
        let mut wanted = record(1, Word::Wanted, 7);
        assert!(wanted.takes_in(&record(4, Word::Wanted, 8)));
        assert_eq!((wanted.at(), wanted.times, wanted.other), (at(4), 2, 8));
        for _ in 0..300 {
            wanted.takes_in(&record(4, Word::Wanted, 8));
        }
        assert_eq!(wanted.times, u8::MAX);
    }
}
