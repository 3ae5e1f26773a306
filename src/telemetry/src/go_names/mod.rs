//! Series under the names of the Go projects, for dashboards and alerts that were made for them.
//!
//! A crate that measures something has, beside its own metric, a [`Family`] of the Go project that measures the same, and
//! gives both one measured value. This module keeps the series, bounds them, and writes them in the text format 0.0.4:
//! OpenMetrics has no place for their names, whose counters do not all end in `_total`.
//!
//! It is off by default ([`GoNames::default`]), and then keeps nothing.

#[cfg(test)]
mod tests;
mod text;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::labels::OTHER;

pub use text::{CONTENT_TYPE, from_open_metrics};

/// The most series of one family. The one with the most has four operations of 500 Services and Nodes. What comes
/// after it counts in the series whose values are all `other`.
pub const MOST_SERIES: usize = 2_048;

/// The values of `otel_scope_name`, `otel_scope_schema_url` and `otel_scope_version`, which every series of a meter of the Go
/// manager bears behind its own labels. Source: OpenTelemetry's exporter for Prometheus.
pub const METER_OF_MANAGER: [&str; 3] = ["cloud-provider-azure", "", ""];

/// What kind of metric a family is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FamilyKind {
    /// It only rises.
    Counter,
    /// It rises and falls.
    Gauge,
    /// Observations in buckets with these upper bounds.
    Histogram(&'static [f64]),
}

impl FamilyKind {
    /// The word of the text format.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

/// A family of a Go project.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Family {
    /// Its name, as it is scraped; of a histogram without `_bucket`.
    pub name: &'static str,
    /// What it means, in our words.
    pub help: &'static str,
    /// What kind of metric it is.
    pub kind: FamilyKind,
    /// Its labels. A series has a value of each; an empty one counts as none.
    pub labels: &'static [&'static str],
}

impl Family {
    /// A counter.
    pub const fn counter(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Self {
        Self { name, help, kind: FamilyKind::Counter, labels }
    }

    /// A gauge.
    pub const fn gauge(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Self {
        Self { name, help, kind: FamilyKind::Gauge, labels }
    }

    /// A histogram with these buckets.
    pub const fn histogram(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        buckets: &'static [f64],
    ) -> Self {
        Self { name, help, kind: FamilyKind::Histogram(buckets), labels }
    }
}

/// A family of a Go project that this program does not write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotGiven {
    /// Its name, or how all that are meant begin, with `*`.
    pub name: &'static str,
    /// Why.
    pub why: &'static str,
}

/// One series.
#[derive(Debug, Clone, PartialEq)]
enum Series {
    /// A counter or a gauge.
    Value(f64),
    /// A histogram: how many were in each bucket alone, how many there were, and their sum.
    Histogram { buckets: Vec<u64>, count: u64, sum: f64 },
}

/// The series by the values of the labels, of one family.
#[derive(Debug)]
struct Kept {
    family: &'static Family,
    series: BTreeMap<Vec<String>, Series>,
}

/// A gauge that is read when a page is made.
type Level = Box<dyn Fn() -> f64 + Send + Sync>;

/// The gauges of a family, by the values of the labels.
type Levels = (&'static Family, Vec<(Vec<String>, Level)>);

#[derive(Default)]
struct Inner {
    families: Mutex<BTreeMap<&'static str, Kept>>,
    levels: Mutex<BTreeMap<&'static str, Levels>>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").field("families", &self.families).finish_non_exhaustive()
    }
}

/// The series of the Go projects' families. Clones count together. The default is off: it keeps nothing.
#[derive(Debug, Clone, Default)]
pub struct GoNames(Option<Arc<Inner>>);

impl GoNames {
    /// One that keeps series.
    pub fn on() -> Self {
        Self(Some(Arc::default()))
    }

    /// Whether it keeps series.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Counts one.
    pub fn count(&self, family: &'static Family, values: &[&str]) {
        self.change(family, values, |series| {
            if let Series::Value(value) = series {
                *value += 1.0;
            }
        });
    }

    /// Adds nothing, so that the series is there before the first is counted.
    pub fn show(&self, family: &'static Family, values: &[&str]) {
        self.change(family, values, |_| {});
    }

    /// Puts an observation into its bucket.
    pub fn observe(&self, family: &'static Family, values: &[&str], observed: f64) {
        let FamilyKind::Histogram(bounds) = family.kind else { return };
        self.change(family, values, |series| {
            if let Series::Histogram { buckets, count, sum } = series {
                *count += 1;
                *sum += observed;
                let bucket = bounds.iter().position(|bound| observed <= *bound);
                if let Some(bucket) = bucket.and_then(|bucket| buckets.get_mut(bucket)) {
                    *bucket += 1;
                }
            }
        });
    }

    /// Shows a gauge that is read when a page is made.
    pub fn level(&self, family: &'static Family, values: &[&str], level: impl Fn() -> f64 + Send + Sync + 'static) {
        if let Some(inner) = &self.0 {
            let values = values.iter().map(|value| (*value).to_owned()).collect();
            let mut levels = lock(&inner.levels);
            levels.entry(family.name).or_insert_with(|| (family, Vec::new())).1.push((values, Box::new(level)));
        }
    }

    fn change(&self, family: &'static Family, values: &[&str], change: impl FnOnce(&mut Series)) {
        let Some(inner) = &self.0 else { return };
        debug_assert_eq!(family.labels.len(), values.len(), "{}", family.name);
        let mut families = lock(&inner.families);
        let kept = families.entry(family.name).or_insert_with(|| Kept { family, series: BTreeMap::new() });
        let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
        let is_full = kept.series.len() >= MOST_SERIES && !kept.series.contains_key(&values);
        let values = if is_full { vec![OTHER.to_owned(); values.len()] } else { values };
        let series = kept.series.entry(values).or_insert_with(|| match family.kind {
            FamilyKind::Counter | FamilyKind::Gauge => Series::Value(0.0),
            FamilyKind::Histogram(bounds) => Series::Histogram { buckets: vec![0; bounds.len()], count: 0, sum: 0.0 },
        });
        change(series);
    }

    /// Writes all series in the text format 0.0.4, in the order of names.
    pub fn write(&self, page: &mut String) {
        let Some(inner) = &self.0 else { return };
        for kept in lock(&inner.families).values() {
            text::head(page, kept.family);
            for (values, series) in &kept.series {
                text::series(page, kept.family, values, series);
            }
        }
        for (family, levels) in lock(&inner.levels).values() {
            text::head(page, family);
            for (values, level) in levels {
                text::series(page, family, values, &Series::Value(level()));
            }
        }
    }
}

/// Every change under these locks is complete.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
