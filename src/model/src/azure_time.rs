//! Moments by Azure's own clock.

/// A moment by Azure's clock, since 1970: the `Date` of an answer, in whole seconds, or a stamp in a resource. It is
/// compared with other moments of this type alone, and never with a clock of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AzureTime {
    seconds: i64,
    nanoseconds: u32,
}

impl AzureTime {
    /// Whole seconds since 1970.
    pub const fn from_unix_seconds(seconds: i64) -> Self {
        Self { seconds, nanoseconds: 0 }
    }

    /// Seconds since 1970, and nanoseconds after them.
    pub const fn from_unix(seconds: i64, nanoseconds: u32) -> Self {
        Self { seconds, nanoseconds }
    }

    /// The seconds since 1970.
    pub const fn unix_seconds(self) -> i64 {
        self.seconds
    }

    /// The nanoseconds after the last whole second.
    pub const fn subsec_nanoseconds(self) -> u32 {
        self.nanoseconds
    }

    /// How many whole seconds have passed since an earlier moment; 0 when that is not earlier.
    pub fn seconds_since(self, earlier: Self) -> u64 {
        u64::try_from(self.seconds.saturating_sub(earlier.seconds)).unwrap_or(0)
    }
}
