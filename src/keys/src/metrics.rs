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

impl Metrics {
    /// Registers them.
    pub fn register(registry: &mut Registry) -> Self {
        let (requests, updates) = (Family::default(), Family::default());
        registry.register(REQUESTS.stem, REQUESTS.help, requests.clone());
        registry.register(UPDATES.stem, UPDATES.help, updates.clone());
        Self { requests, updates }
    }

    /// Counts a Secret that was to follow a rotation.
    pub(crate) fn note_update(&self, update: Update) {
        let outcome = match update {
            Update::Written => "written",
            Update::Changed => "changed",
            Update::Failed => "failed",
        };
        self.updates.get_or_create(&Labels { outcome }).inc();
    }

    /// Counts a request that was refused with a code, or granted.
    pub(crate) fn note(&self, refused: Option<Code>) {
        let outcome = match refused {
            None => "granted",
            Some(Code::Unauthenticated) => "unauthenticated",
            Some(Code::PermissionDenied) => "denied",
            Some(Code::ResourceExhausted) => "too_many",
            Some(Code::InvalidArgument) => "malformed",
            Some(Code::Unavailable | Code::DeadlineExceeded) => "unavailable",
            Some(_) => "no_key",
        };
        self.requests.get_or_create(&Labels { outcome }).inc();
    }
}
