//! What is counted of reviews.

use std::time::Duration;

use lazuli_model::reference::{
    Metric,
    MetricType::{Counter as Count, Histogram as Spread},
};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::{Registry, Unit},
};

/// Which webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Webhook {
    /// New PersistentVolumes.
    Volumes,
    /// PersistentVolumeClaims that grow.
    Claims,
}

impl Webhook {
    fn label(self) -> &'static str {
        match self {
            Self::Volumes => "persistentvolumes",
            Self::Claims => "persistentvolumeclaims",
        }
    }
}

/// What became of a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Admitted as it is.
    Unchanged,
    /// Admitted with changes.
    Changed,
    /// Refused.
    Refused,
    /// Admitted as it is, because Azure or the API server did not tell in time, or refused.
    Unknown,
    /// No review that can be read.
    Malformed,
}

impl Outcome {
    fn label(self) -> &'static str {
        match self {
            Self::Unchanged => "unchanged",
            Self::Changed => "changed",
            Self::Refused => "refused",
            Self::Unknown => "unknown",
            Self::Malformed => "malformed",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReviewLabels {
    webhook: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WebhookLabel {
    webhook: &'static str,
}

/// Seconds; the API server waits for two.
const BUCKETS: [f64; 8] = [0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0];

const REVIEWS: Metric = Metric::new(
    Count,
    "lazuli_admission_reviews",
    "Reviews that the API server asked for, by webhook and by what became of them: unchanged, changed, refused, unknown, malformed",
)
.by(&["webhook", "outcome"]);
const DURATIONS: Metric = Metric::new(Spread, "lazuli_admission_review", "How long reviews took, by webhook")
    .in_unit("seconds")
    .by(&["webhook"]);

/// The metrics of the admission webhooks.
pub const METRICS: &[Metric] = &[REVIEWS, DURATIONS];

/// The metrics of the webhooks.
#[derive(Debug, Clone)]
pub struct Metrics {
    reviews: Family<ReviewLabels, Counter>,
    durations: Family<WebhookLabel, Histogram>,
}

impl Metrics {
    /// Makes the metrics known to a registry.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics =
            Self { reviews: Family::default(), durations: Family::new_with_constructor(|| Histogram::new(BUCKETS)) };
        registry.register(REVIEWS.stem, REVIEWS.help, metrics.reviews.clone());
        registry.register_with_unit(DURATIONS.stem, DURATIONS.help, Unit::Seconds, metrics.durations.clone());
        metrics
    }

    pub(crate) fn note(&self, webhook: Webhook, outcome: Outcome, took: Duration) {
        let labels = ReviewLabels { webhook: webhook.label(), outcome: outcome.label() };
        self.reviews.get_or_create(&labels).inc();
        self.durations.get_or_create(&WebhookLabel { webhook: webhook.label() }).observe(took.as_secs_f64());
    }
}
