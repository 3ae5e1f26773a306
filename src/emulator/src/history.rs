//! What documents were before they changed, for readers who see that late. No older than what they may see.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::time::Duration;

use crate::document::Document;

/// A document that was replaced.
#[derive(Clone, Debug)]
struct Version {
    /// Until when it was the current one.
    until: Duration,
    /// None: there was no such resource.
    doc: Option<Document>,
}

/// The replaced documents of the last [`History::new`]'s `reach`.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    reach: Duration,
    /// By key, oldest first.
    versions: BTreeMap<String, VecDeque<Version>>,
    /// Moment and key of every version, oldest first.
    changes: VecDeque<(Duration, String)>,
}

impl History {
    /// Keeps what readers need who see everything at most so late.
    pub(crate) fn new(reach: Duration) -> Self {
        Self { reach, ..Self::default() }
    }

    /// Whether any reader has lag.
    pub(crate) fn is_kept(&self) -> bool {
        !self.reach.is_zero()
    }

    /// Notes a change at `now`: what `key` showed before it.
    pub(crate) fn record(&mut self, key: &str, before: Option<Document>, now: Duration) {
        // An effect that is late takes place after what was noted before it.
        let now = self.changes.back().map_or(now, |(last, _)| now.max(*last));
        while self.changes.front().is_some_and(|(at, _)| *at + self.reach <= now) {
            if let Some((_, old)) = self.changes.pop_front()
                && let Some(versions) = self.versions.get_mut(&old)
            {
                versions.pop_front();
                if versions.is_empty() {
                    self.versions.remove(&old);
                }
            }
        }
        self.versions.entry(key.to_owned()).or_default().push_back(Version { until: now, doc: before });
        self.changes.push_back((now, key.to_owned()));
    }

    /// What a key showed so long before `now`, where that is something else than now; the inner none is no resource.
    pub(crate) fn before(&self, key: &str, ago: Duration, now: Duration) -> Option<Option<&Document>> {
        let version = self.versions.get(key)?.iter().find(|version| version.until + ago > now)?;
        Some(version.doc.as_ref())
    }

    /// Keys that changed within reach, from a bound on, in order.
    pub(crate) fn keys<'a>(&'a self, from: Bound<&str>) -> impl Iterator<Item = &'a String> + use<'a> {
        self.versions.range::<str, _>((from, Bound::Unbounded)).map(|(key, _)| key)
    }

    /// Forgets all: what exists now has always existed.
    pub(crate) fn clear(&mut self) {
        self.versions.clear();
        self.changes.clear();
    }

    /// How many replaced documents are kept.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.versions.values().map(VecDeque::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn number(n: u32) -> Option<Document> {
        Some(json!(n).into())
    }

    #[test]
    fn the_document_of_each_moment_is_found_and_none_before_the_first() {
        let mut history = History::new(4 * SECOND);
        history.record("a", None, 10 * SECOND);
        history.record("a", number(1), 12 * SECOND);
        let at = |ago: u32| history.before("a", ago * SECOND, 13 * SECOND).map(|doc| doc.cloned());
        assert_eq!([at(0), at(1), at(2), at(3), at(4)], [None, None, Some(number(1)), Some(number(1)), Some(None)]);
    }

    #[test]
    fn only_what_changed_within_reach_is_kept() {
        let mut history = History::new(4 * SECOND);
        for n in 0..1000 {
            history.record(&format!("{}", n % 7), number(n), n * SECOND);
        }
        assert_eq!(history.len(), 4);
        assert_eq!(history.changes.len(), 4);
        assert_eq!(history.keys(Bound::Unbounded).count(), 4);
    }
}
