//! Changes of a disk that Azure allows only so often, each with its moment. How often is decided by the provider.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A change that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Counted {
    /// Another SKU.
    Sku,
    /// Other IOPS or MB/s of a disk that has them chosen.
    Performance,
    /// A lower tier.
    LowerTier,
}

/// The changes that were counted, each with its moment in seconds of Unix time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct CountedChanges(Vec<(Counted, i64)>);

impl CountedChanges {
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Counts changes of the moment `now`.
    pub(crate) fn add(&mut self, changes: &[Counted], now: i64) {
        self.0.extend(changes.iter().map(|counted| (*counted, now)));
    }

    /// How many changes of a kind were made in the time before `now`.
    pub(crate) fn within(&self, kind: Counted, time: Duration, now: i64) -> usize {
        let recent = |(counted, at): &&(Counted, i64)| {
            *counted == kind && u64::try_from(now - at).is_ok_and(|seconds| seconds < time.as_secs())
        };
        self.0.iter().filter(recent).count()
    }
}
