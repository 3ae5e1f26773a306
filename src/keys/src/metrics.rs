//! What is counted of requests for keys.

use lazuli_model::{
    fault::Code,
    reference::{Metric, MetricType::Counter as Count},
};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

const REQUESTS: Metric =
    Metric::new(Count, "lazuli_key_requests", "Requests of nodes for keys of storage accounts, by outcome")
        .by(&["outcome"]);
const UPDATES: Metric = Metric::new(
    Count,
    "lazuli_key_secret_updates",
    "Secrets of drivers that follow a rotation of their account's key, by outcome",
)
.by(&["outcome"]);

/// The metrics of the key broker.
pub const METRICS: &[Metric] = &[REQUESTS, UPDATES];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    outcome: &'static str,
}

/// How many requests nodes made for keys, and how many Secrets followed a rotation, by what became of them.
#[derive(Debug, Clone)]
pub struct Metrics {
    requests: Family<Labels, Counter>,
    updates: Family<Labels, Counter>,
}

/// What became of writing a new key into a driver's Secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Update {
    /// It has the new key.
    Written,
    /// The Secret had changed since it was read.
    Changed,
    /// It could not be written.
    Failed,
}

/// What becomes of requests. Each is counted from 0 on: Prometheus takes the first sample of a series for no increase, and
/// the first refusal would go by unseen.
const REQUEST_OUTCOMES: [&str; 7] =
    ["granted", "unauthenticated", "denied", "too_many", "malformed", "unavailable", "no_key"];

impl Update {
    const ALL: [Self; 3] = [Self::Written, Self::Changed, Self::Failed];

    fn as_str(self) -> &'static str {
        match self {
            Self::Written => "written",
            Self::Changed => "changed",
            Self::Failed => "failed",
        }
    }
}

fn outcome(refused: Option<Code>) -> &'static str {
    match refused {
        None => "granted",
        Some(Code::Unauthenticated) => "unauthenticated",
        Some(Code::PermissionDenied) => "denied",
        Some(Code::ResourceExhausted) => "too_many",
        Some(Code::InvalidArgument) => "malformed",
        Some(Code::Unavailable | Code::DeadlineExceeded) => "unavailable",
        Some(_) => "no_key",
    }
}

impl Metrics {
    /// Registers them.
    pub fn register(registry: &mut Registry) -> Self {
        let (requests, updates) = (Family::<Labels, Counter>::default(), Family::<Labels, Counter>::default());
        for outcome in REQUEST_OUTCOMES {
            drop(requests.get_or_create(&Labels { outcome }));
        }
        for update in Update::ALL {
            drop(updates.get_or_create(&Labels { outcome: update.as_str() }));
        }
        registry.register(REQUESTS.stem, REQUESTS.help, requests.clone());
        registry.register(UPDATES.stem, UPDATES.help, updates.clone());
        Self { requests, updates }
    }

    /// Counts a Secret that was to follow a rotation.
    pub(crate) fn note_update(&self, update: Update) {
        self.updates.get_or_create(&Labels { outcome: update.as_str() }).inc();
    }

    /// Counts a request that was refused with a code, or granted.
    pub(crate) fn note(&self, refused: Option<Code>) {
        self.requests.get_or_create(&Labels { outcome: outcome(refused) }).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(registry: &Registry) -> Vec<String> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }

    #[test]
    fn every_outcome_is_counted_from_nought_so_that_the_first_one_is_an_increase() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let before = series(&registry);
        assert_eq!(before.len(), REQUEST_OUTCOMES.len() + Update::ALL.len());
        assert!(before.iter().all(|line| line.ends_with(" 0")), "{before:?}");
        let codes = [
            Code::Unauthenticated,
            Code::PermissionDenied,
            Code::ResourceExhausted,
            Code::InvalidArgument,
            Code::Unavailable,
            Code::DeadlineExceeded,
            Code::NotFound,
            Code::Internal,
        ];
        codes.into_iter().map(Some).chain([None]).for_each(|refused| metrics.note(refused));
        Update::ALL.into_iter().for_each(|update| metrics.note_update(update));
        let after = series(&registry);
        assert_eq!(after.len(), before.len(), "{after:?}");
        assert!(!after.iter().any(|line| line.ends_with(" 0")), "{after:?}");
    }
}
