//! The rows of the tables that the reference pages and `lazuli explain` print.
//!
//! The crate that reads or writes a thing has its table: a parser refuses a key that is in no row of it, and a metric is
//! registered by its row. So no page can name what the program does not know. Each sentence is one for an operator.

/// What becomes of a parameter of a StorageClass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It counts.
    Used,
    /// It is accepted, and changes nothing. A wrong value may still be refused.
    NoEffect,
    /// It is refused before anything is made, but for a value that asks for nothing.
    Refused,
}

impl Effect {
    /// In a word or two.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Used => "used",
            Self::NoEffect => "no effect",
            Self::Refused => "refused",
        }
    }
}

/// A parameter of a StorageClass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParameterRow {
    /// The name, as the documentation spells it; letter case does not count.
    pub name: &'static str,
    /// The name of which this is another spelling.
    pub alias_of: Option<&'static str>,
    /// What is allowed.
    pub values: &'static str,
    /// What counts where it is not given.
    pub default: &'static str,
    /// What becomes of it.
    pub effect: Effect,
    /// What it does, or why not.
    pub meaning: &'static str,
    /// A value that shows its effect, for tests.
    pub example: &'static str,
}

impl ParameterRow {
    /// One that counts.
    pub const fn used(
        name: &'static str,
        values: &'static str,
        default: &'static str,
        meaning: &'static str,
        example: &'static str,
    ) -> Self {
        Self { name, alias_of: None, values, default, effect: Effect::Used, meaning, example }
    }

    /// Another name of one that counts.
    pub const fn alias(name: &'static str, of: &'static str, values: &'static str, example: &'static str) -> Self {
        let meaning = "Another name; both together must say the same.";
        Self { name, alias_of: Some(of), values, default: "", effect: Effect::Used, meaning, example }
    }

    /// One that is accepted for classes of others.
    pub const fn no_effect(
        name: &'static str,
        values: &'static str,
        meaning: &'static str,
        example: &'static str,
    ) -> Self {
        Self { name, alias_of: None, values, default: "", effect: Effect::NoEffect, meaning, example }
    }

    /// One that is refused.
    pub const fn refused(
        name: &'static str,
        values: &'static str,
        meaning: &'static str,
        example: &'static str,
    ) -> Self {
        Self { name, alias_of: None, values, default: "", effect: Effect::Refused, meaning, example }
    }
}

/// Of which kind of object a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyOf {
    /// A Node.
    Node,
    /// A Service.
    Service,
    /// A Lease.
    Lease,
    /// A PersistentVolume or its claim.
    Volume,
}

impl KeyOf {
    /// The kind of Kubernetes.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Node => "Node",
            Self::Service => "Service",
            Self::Lease => "Lease",
            Self::Volume => "PersistentVolume",
        }
    }
}

/// What kind of key of an object it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyKind {
    /// An annotation.
    Annotation,
    /// A label.
    Label,
    /// A taint of a Node.
    Taint,
    /// A finalizer.
    Finalizer,
}

impl KeyKind {
    /// As Kubernetes calls it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Annotation => "annotation",
            Self::Label => "label",
            Self::Taint => "taint",
            Self::Finalizer => "finalizer",
        }
    }
}

/// An annotation, label, taint or finalizer that the program reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyRow {
    /// The whole key.
    pub key: &'static str,
    /// Of which object.
    pub of: KeyOf,
    /// What kind of key.
    pub kind: KeyKind,
    /// What is allowed or written.
    pub value: &'static str,
    /// What it does.
    pub meaning: &'static str,
}

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricType {
    /// It only grows. Its series end in `_total`.
    Counter,
    /// It goes up and down.
    Gauge,
    /// How often values fell into ranges. Its series end in `_bucket`, `_sum` and `_count`.
    Histogram,
    /// A constant 1 with labels. Its series ends in `_info`.
    Info,
}

impl MetricType {
    /// As OpenMetrics calls it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }
}

/// A metric. It is registered by its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// The name without unit and suffix, as it is registered.
    pub stem: &'static str,
    /// The unit, as part of the name: `seconds` or `bytes`.
    pub unit: Option<&'static str>,
    /// Its type.
    pub kind: MetricType,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What it counts or measures, for `# HELP`.
    pub help: &'static str,
    /// The metric of the Go projects that says the same, or nearly.
    pub go: Option<&'static str>,
}

impl Metric {
    /// A metric without unit and labels.
    pub const fn new(kind: MetricType, stem: &'static str, help: &'static str) -> Self {
        Self { stem, unit: None, kind, labels: &[], help, go: None }
    }

    /// With a unit.
    #[must_use]
    pub const fn in_unit(self, unit: &'static str) -> Self {
        Self { unit: Some(unit), ..self }
    }

    /// With labels.
    #[must_use]
    pub const fn by(self, labels: &'static [&'static str]) -> Self {
        Self { labels, ..self }
    }

    /// With the name of the metric of the Go projects.
    #[must_use]
    pub const fn as_go(self, go: &'static str) -> Self {
        Self { go: Some(go), ..self }
    }

    /// The name by which it is scraped; that of a histogram without `_bucket`, `_sum` and `_count`.
    pub fn name(&self) -> String {
        let unit = self.unit.map_or_else(String::new, |unit| format!("_{unit}"));
        let end = match self.kind {
            MetricType::Counter => "_total",
            MetricType::Info => "_info",
            MetricType::Gauge | MetricType::Histogram => "",
        };
        format!("{}{unit}{end}", self.stem)
    }
}

/// The program that uses a key of the cloud configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UsedBy {
    /// Every process.
    pub all: bool,
    /// The controller of Services.
    pub services: bool,
    /// The controllers of Nodes and routes.
    pub nodes: bool,
    /// All cloud controllers.
    pub cloud_controllers: bool,
}

/// How a key of the cloud configuration compares with the Go projects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// As there.
    Same,
    /// It acts in another way, which the sentence says.
    Differs(&'static str),
    /// Some or all of its values end the start, for this reason.
    Refused(&'static str),
    /// It is accepted and changes nothing, for this reason.
    NoEffect(&'static str),
}

impl Comparison {
    /// In a word or two.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Differs(_) => "differs",
            Self::Refused(_) => "refused",
            Self::NoEffect(_) => "no effect",
        }
    }

    /// How it differs, or why it is refused or has no effect.
    pub fn reason(&self) -> Option<&'static str> {
        match *self {
            Self::Same => None,
            Self::Differs(why) | Self::Refused(why) | Self::NoEffect(why) => Some(why),
        }
    }
}

/// A key of the cloud configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfigRow {
    /// The key with its path: `a.b` of a mapping in a mapping, `a[].b` of a mapping in a list.
    pub key: &'static str,
    /// What is allowed.
    pub values: &'static str,
    /// What counts where it is not given; empty for nothing.
    pub default: &'static str,
    /// Who uses it.
    pub used_by: UsedBy,
    /// The Go projects.
    pub go: Comparison,
    /// What it does.
    pub meaning: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_scraped_under_its_stem_its_unit_and_the_suffix_of_its_type() {
        let metric = |kind| Metric::new(kind, "lazuli_x", "X");
        assert_eq!(metric(MetricType::Counter).name(), "lazuli_x_total");
        assert_eq!(metric(MetricType::Histogram).in_unit("seconds").name(), "lazuli_x_seconds");
        assert_eq!(metric(MetricType::Gauge).by(&["kind"]).name(), "lazuli_x");
        assert_eq!(metric(MetricType::Info).as_go("x_build_info").name(), "lazuli_x_info");
    }
}
