//! Which pages of a page blob have been written, to the page of 512 bytes.

use serde::{Deserialize, Serialize};

/// The size of a page.
pub(super) const PAGE: u64 = 512;

/// Bytes from the first to before the second.
pub(super) type Span = (u64, u64);

/// The written spans: in order, none empty, and no two that touch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct PageMap(Vec<Span>);

impl PageMap {
    /// The span has been written.
    pub(super) fn write(&mut self, (start, end): Span) {
        if start >= end {
            return;
        }
        let (first, last) =
            (self.0.partition_point(|span| span.1 < start), self.0.partition_point(|span| span.0 <= end));
        let joined = self.0.get(first..last).unwrap_or_default();
        let start = joined.first().map_or(start, |span| span.0.min(start));
        let end = joined.last().map_or(end, |span| span.1.max(end));
        self.0.splice(first..last, [(start, end)]);
    }

    /// The span has been cleared.
    pub(super) fn clear(&mut self, (start, end): Span) {
        if start >= end {
            return;
        }
        let (first, last) =
            (self.0.partition_point(|span| span.1 <= start), self.0.partition_point(|span| span.0 < end));
        let touched = self.0.get(first..last).unwrap_or_default();
        let before = touched.first().map(|span| (span.0, start)).filter(|span| span.0 < span.1);
        let after = touched.last().map(|span| (end, span.1)).filter(|span| span.0 < span.1);
        self.0.splice(first..last, before.into_iter().chain(after));
    }

    /// Nothing is left from there on.
    pub(super) fn truncate(&mut self, length: u64) {
        self.clear((length, u64::MAX));
    }

    /// What has been written within a span.
    pub(super) fn within(&self, (start, end): Span) -> impl Iterator<Item = Span> + '_ {
        let first = self.0.partition_point(|span| span.1 <= start);
        let touched = self.0.iter().skip(first).take_while(move |span| span.0 < end);
        touched.map(move |span| (span.0.max(start), span.1.min(end)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Write(Span),
        Clear(Span),
        Truncate(u64),
    }

    const MOST: u64 = 40;

    fn step() -> impl Strategy<Value = Step> {
        let span = || (0..MOST, 0..MOST).prop_map(|(a, b)| (a.min(b), a.max(b)));
        prop_oneof![
            4 => span().prop_map(Step::Write),
            3 => span().prop_map(Step::Clear),
            1 => (0..MOST).prop_map(Step::Truncate),
        ]
    }

    proptest! {
        /// A list of bytes that are written or not says the same after any steps.
        #[test]
        fn it_says_what_a_bitmap_says(steps in prop::collection::vec(step(), 0..30), asked in (0..MOST, 0..MOST)) {
            let (mut map, mut bits) = (PageMap::default(), [false; MOST as usize]);
            for step in steps {
                let (span, value) = match step {
                    Step::Write(span) => { map.write(span); (span, true) }
                    Step::Clear(span) => { map.clear(span); (span, false) }
                    Step::Truncate(length) => { map.truncate(length); ((length, MOST), false) }
                };
                for at in span.0..span.1 {
                    bits[usize::try_from(at).unwrap()] = value;
                }
                prop_assert!(map.0.iter().all(|span| span.0 < span.1), "{map:?}");
                prop_assert!(map.0.windows(2).all(|pair| pair[0].1 < pair[1].0), "{map:?}");
            }
            let (from, to) = (asked.0.min(asked.1), asked.0.max(asked.1));
            let shown: Vec<u64> = map.within((from, to)).flat_map(|span| span.0..span.1).collect();
            let expected: Vec<u64> = (from..to).filter(|at| bits[usize::try_from(*at).unwrap()]).collect();
            prop_assert_eq!(shown, expected);
        }
    }
}
