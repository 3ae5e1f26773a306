//! For how long a device with the same content has stood for a volume.

use std::{ops::Sub, time::Duration};

use super::Metadata;

/// How far apart two looks may be for the time between them to count: kubelet looks at least every two minutes.
pub const LONGEST_GAP: Duration = Duration::from_secs(5 * 60);

/// Since when the same device with the same content has been seen for a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sighting<T> {
    /// The first look.
    pub since: T,
    /// The first look at which the metadata confirmed the device.
    pub confirmed: Option<T>,
    /// The last look.
    pub last: T,
}

/// For how long a device has stood for a volume, and for how long of that the metadata has confirmed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stood {
    /// Since the first look.
    pub seen_for: Duration,
    /// Since the metadata first confirmed it.
    pub confirmed_for: Duration,
}

impl<T: Copy + Sub<Output = Duration>> Sighting<T> {
    /// A look now, after an earlier one at the same device with the same content. The metadata confirms the device from
    /// its first confirmation on: what passes before, in silence, tells nothing of whether its answer is out of date.
    #[must_use]
    pub fn of(before: Option<&Self>, metadata: Metadata, now: T) -> Self {
        let before = before.filter(|before| !before.is_lost(now));
        let confirms = matches!(metadata, Metadata::Confirms(_));
        Self {
            since: before.map_or(now, |before| before.since),
            confirmed: before.and_then(|before| before.confirmed).or(confirms.then_some(now)),
            last: now,
        }
    }

    /// Whether the last look is too long ago: what stood there since is not known.
    #[must_use]
    pub fn is_lost(&self, now: T) -> bool {
        now - self.last > LONGEST_GAP
    }

    /// For how long it has stood at the last look.
    #[must_use]
    pub fn stood(&self) -> Stood {
        let confirmed_for = self.confirmed.map_or(Duration::ZERO, |confirmed| self.last - confirmed);
        Stood { seen_for: self.last - self.since, confirmed_for }
    }
}
