//! What is counted of shares on a node.

use lazuli_model::reference::{Metric, MetricType::Counter as Count};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

/// What became of an attempt to mount a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Mounted,
    KeyUnavailable,
    KeyDenied,
    KeyMissing,
    KeyRefused,
    ServerUnreachable,
    ShareNotFound,
    Other,
}

impl Outcome {
    const ALL: [Self; 8] = [
        Self::Mounted,
        Self::KeyUnavailable,
        Self::KeyDenied,
        Self::KeyMissing,
        Self::KeyRefused,
        Self::ServerUnreachable,
        Self::ShareNotFound,
        Self::Other,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Mounted => "mounted",
            Self::KeyUnavailable => "key_unavailable",
            Self::KeyDenied => "key_denied",
            Self::KeyMissing => "key_missing",
            Self::KeyRefused => "key_refused",
            Self::ServerUnreachable => "server_unreachable",
            Self::ShareNotFound => "share_not_found",
            Self::Other => "other",
        }
    }
}

const MOUNTS: Metric =
    Metric::new(Count, "lazuli_share_mounts", "Attempts of a node to mount a file share, by outcome").by(&["outcome"]);
const DEAD: Metric =
    Metric::new(Count, "lazuli_share_mounts_dead", "Mounts of file shares that were found dead when a Pod needed them");
const HUNG: Metric = Metric::new(
    Count,
    "lazuli_share_calls_hung",
    "Calls on mounted file shares that did not return in time: their servers hang",
);

/// The metrics of file shares on a node.
pub const METRICS: &[Metric] = &[MOUNTS, DEAD, HUNG];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    outcome: &'static str,
}

/// What is counted of shares on a node. Clones count together; the default is counted nowhere.
#[derive(Debug, Clone, Default)]
pub struct ShareMetrics {
    mounts: Family<Labels, Counter>,
    dead: Counter,
    hung: Counter,
}

impl ShareMetrics {
    /// Registers `lazuli_share_mounts_total{outcome}`, `lazuli_share_mounts_dead_total` and `lazuli_share_calls_hung_total`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        // From 0 on: Prometheus takes the first sample of a series for no increase, and the first failure would go by unseen.
        for outcome in Outcome::ALL {
            drop(metrics.mounts.get_or_create(&Labels { outcome: outcome.as_str() }));
        }
        registry.register(MOUNTS.stem, MOUNTS.help, metrics.mounts.clone());
        registry.register(DEAD.stem, DEAD.help, metrics.dead.clone());
        registry.register(HUNG.stem, HUNG.help, metrics.hung.clone());
        metrics
    }

    pub(super) fn note(&self, outcome: Outcome) {
        self.mounts.get_or_create(&Labels { outcome: outcome.as_str() }).inc();
    }

    pub(super) fn note_dead(&self) {
        self.dead.inc();
    }

    pub(super) fn note_hung(&self) {
        self.hung.inc();
    }

    #[cfg(test)]
    pub(super) fn counts(&self, outcome: Outcome) -> u64 {
        self.mounts.get_or_create(&Labels { outcome: outcome.as_str() }).get()
    }

    #[cfg(test)]
    pub(super) fn dead_and_hung(&self) -> (u64, u64) {
        (self.dead.get(), self.hung.get())
    }
}
