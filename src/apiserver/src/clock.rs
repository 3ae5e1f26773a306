//! Wall-clock stamps that follow the runtime's clock, so that they are exact on paused time.

use time::{OffsetDateTime, format_description::BorrowedFormatItem, macros::format_description};
use tokio::time::Instant;

/// The format of `metav1.Time`.
const STAMP: &[BorrowedFormatItem<'_>] = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]Z");
/// The format of HTTP's `Date`.
const DATE: &[BorrowedFormatItem<'_>] =
    format_description!("[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT");

#[derive(Debug)]
pub(crate) struct Clock {
    origin: Instant,
    start: OffsetDateTime,
}

impl Clock {
    pub(crate) fn new(start: OffsetDateTime) -> Self {
        Self { origin: Instant::now(), start }
    }

    fn now(&self) -> OffsetDateTime {
        self.start + self.origin.elapsed()
    }

    /// Now, as objects carry it.
    pub(crate) fn stamp(&self) -> String {
        self.now().format(STAMP).expect("a moment of this era has a stamp")
    }

    /// Now, as the header of an answer carries it.
    pub(crate) fn date(&self) -> String {
        self.now().format(DATE).expect("a moment of this era has a date")
    }
}
