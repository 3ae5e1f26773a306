//! Wall-clock stamps that follow the runtime's clock, so that they are exact on paused time.

use jiff::{Timestamp, fmt::rfc2822::DateTimePrinter};
use tokio::time::Instant;

#[derive(Debug)]
pub(crate) struct Clock {
    origin: Instant,
    start: Timestamp,
}

impl Clock {
    pub(crate) fn new(start: Timestamp) -> Self {
        Self { origin: Instant::now(), start }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.start + self.origin.elapsed()
    }

    /// Now, as objects carry it: the format of `metav1.Time`.
    pub(crate) fn stamp(&self) -> String {
        format!("{:.0}", self.now())
    }

    /// Now, as the header of an answer carries it.
    pub(crate) fn date(&self) -> String {
        DateTimePrinter::new().timestamp_to_rfc9110_string(&self.now()).expect("a moment of this era has a date")
    }
}
