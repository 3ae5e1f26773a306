//! Moments by Azure's own clock.

/// A moment by Azure's clock, in whole seconds since 1970: the `Date` of an answer, or a stamp in a resource. It is
/// compared with other moments of this type alone, and never with a clock of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AzureTime(i64);

impl AzureTime {
    /// Seconds since 1970; what is left of a second does not count.
    pub const fn from_unix_seconds(seconds: i64) -> Self {
        Self(seconds)
    }

    /// The seconds since 1970.
    pub const fn unix_seconds(self) -> i64 {
        self.0
    }

    /// How many whole seconds have passed since an earlier moment; 0 when that is not earlier.
    pub fn seconds_since(self, earlier: Self) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }
}
