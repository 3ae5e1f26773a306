//! The emulator's clock: how long it has been running, and which wall-clock moment that is.
//!
//! All waiting goes through `tokio::time`, so a paused runtime is exact. Wall-clock stamps are a
//! configured start plus what has elapsed: two runs from one seed print the same stamps. This module
//! never reads the machine's clock.

use std::time::Duration;

use jiff::{Timestamp, fmt::rfc2822::DateTimePrinter, tz::Offset};
use tokio::time::Instant;

/// Emulated time. `scale` is how much faster than real time it passes.
#[derive(Debug)]
pub(crate) struct Clock {
    origin: Instant,
    start: Timestamp,
    scale: f64,
}

impl Clock {
    pub(crate) fn new(start: Timestamp, scale: f64) -> Self {
        Self { origin: Instant::now(), start, scale: if scale > 0.0 && scale.is_finite() { scale } else { 1.0 } }
    }

    /// Emulated time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        let real = self.origin.elapsed();
        if (self.scale - 1.0).abs() < f64::EPSILON { real } else { real.mul_f64(self.scale) }
    }

    /// The emulated wall-clock moment.
    pub(crate) fn now(&self) -> Timestamp {
        self.at(self.elapsed())
    }

    /// The wall-clock moment for tokens: time passes there as fast as for those who hold them, whatever
    /// the scale. A client counts the seconds of `expires_in` on its own clock.
    pub(crate) fn token_now(&self) -> Timestamp {
        self.start + self.origin.elapsed()
    }

    /// The wall-clock moment at which `elapsed` had passed.
    pub(crate) fn at(&self, elapsed: Duration) -> Timestamp {
        self.start + elapsed
    }

    /// Real time that an emulated duration takes.
    pub(crate) fn real(&self, emulated: Duration) -> Duration {
        if (self.scale - 1.0).abs() < f64::EPSILON { emulated } else { emulated.div_f64(self.scale) }
    }

    /// Waits until the emulated time since the start is `due`.
    pub(crate) async fn sleep_until(&self, due: Duration) {
        // Rounded up to the timer's millisecond, so that at the wake-up `elapsed() >= due` holds.
        let real = self.real(due) + Duration::from_nanos(1);
        tokio::time::sleep_until(self.origin + real).await;
    }

    /// The stamp that Azure Resource Manager prints: `2026-01-01T00:00:00.1234567+00:00`.
    pub(crate) fn stamp(&self, elapsed: Duration) -> String {
        stamp(self.at(elapsed))
    }

    /// The moment as the HTTP `Date` header wants it.
    pub(crate) fn http_date(&self) -> String {
        DateTimePrinter::new().timestamp_to_rfc9110_string(&self.now()).expect("a moment of this era has a date")
    }
}

/// The stamp that Azure Resource Manager prints: `2026-01-01T00:00:00.1234567+00:00`.
pub(crate) fn stamp(at: Timestamp) -> String {
    format!("{:.7}", at.display_with_offset(Offset::UTC))
}
