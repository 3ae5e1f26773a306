//! What is counted of every kind of key.

use lazuli_model::reference::{
    Metric,
    MetricType::{Counter as Count, Gauge as Level, Histogram as Spread},
};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};

/// The label of a kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct KindLabel {
    kind: &'static str,
}

/// The labels of an action.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ActionLabels {
    kind: &'static str,
    action: &'static str,
}

/// Seconds; from a read to a slow operation with its pauses.
const BUCKETS: [f64; 11] = [0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

const KEYS: Metric = Metric::new(
    Level,
    "lazuli_reconcile_keys",
    "Objects with a running task, by kind: vm, disk, share, account, service, load_balancer and others",
)
.by(&["kind"])
.as_go("workqueue_depth");
const STEPS: Metric = Metric::new(Count, "lazuli_reconcile_steps", "Decisions about objects, by kind").by(&["kind"]);
const PANICS: Metric = Metric::new(
    Count,
    "lazuli_reconcile_panics",
    "Objects whose work was broken off by a bug in this program, by kind",
)
.by(&["kind"]);
const ACTIONS: Metric = Metric::new(
    Count,
    "lazuli_reconcile_actions",
    "What steps decided to do, by kind of object: write, patch, report and others",
)
.by(&["kind", "action"]);
const DURATIONS: Metric = Metric::new(
    Spread,
    "lazuli_reconcile_action",
    "How long reads, writes, polls, permits and patches took, by kind of object",
)
.in_unit("seconds")
.by(&["kind", "action"])
.as_go("workqueue_work_duration_seconds");

/// The metrics of the work on objects.
pub const METRICS: &[Metric] = &[KEYS, STEPS, PANICS, ACTIONS, DURATIONS];

/// The metrics of the workers of all kinds.
#[derive(Debug, Clone)]
pub struct Metrics {
    keys: Family<KindLabel, Gauge>,
    steps: Family<KindLabel, Counter>,
    panics: Family<KindLabel, Counter>,
    actions: Family<ActionLabels, Counter>,
    durations: Family<ActionLabels, Histogram>,
}

impl Metrics {
    /// Makes the metrics known to a registry.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::unregistered();
        registry.register(KEYS.stem, KEYS.help, metrics.keys.clone());
        registry.register(STEPS.stem, STEPS.help, metrics.steps.clone());
        registry.register(PANICS.stem, PANICS.help, metrics.panics.clone());
        registry.register(ACTIONS.stem, ACTIONS.help, metrics.actions.clone());
        registry.register_with_unit(DURATIONS.stem, DURATIONS.help, Unit::Seconds, metrics.durations.clone());
        metrics
    }

    /// Metrics that no registry shows.
    pub fn unregistered() -> Self {
        Self {
            keys: Family::default(),
            steps: Family::default(),
            panics: Family::default(),
            actions: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
        }
    }

    /// The keys of a kind that have a running task.
    pub fn keys(&self, kind: &'static str) -> i64 {
        self.keys.get_or_create(&KindLabel { kind }).get()
    }

    /// How often steps of a kind decided on an action.
    pub fn actions(&self, kind: &'static str, action: &'static str) -> u64 {
        self.actions.get_or_create(&ActionLabels { kind, action }).get()
    }

    pub(crate) fn started(&self, kind: &'static str) {
        self.keys.get_or_create(&KindLabel { kind }).inc();
        // From 0 on: Prometheus takes the first sample of a series for no increase, and the first panic would go by unseen.
        drop(self.panics.get_or_create(&KindLabel { kind }));
    }

    pub(crate) fn ended(&self, kind: &'static str) {
        self.keys.get_or_create(&KindLabel { kind }).dec();
    }

    pub(crate) fn stepped(&self, kind: &'static str) {
        self.steps.get_or_create(&KindLabel { kind }).inc();
    }

    pub(crate) fn panicked(&self, kind: &'static str) {
        self.panics.get_or_create(&KindLabel { kind }).inc();
    }

    pub(crate) fn action(&self, kind: &'static str, action: &'static str) {
        self.actions.get_or_create(&ActionLabels { kind, action }).inc();
    }

    pub(crate) fn took(&self, kind: &'static str, action: &'static str, seconds: f64) {
        self.durations.get_or_create(&ActionLabels { kind, action }).observe(seconds);
    }
}
