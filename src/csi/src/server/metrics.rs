//! How long RPCs take, by method and code.

use std::time::Duration;

use lazuli_model::reference::{Metric, MetricType::Histogram as Spread};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, histogram::Histogram},
    registry::{Registry, Unit},
};
use tonic::Code;

/// From a stage of a mounted volume to the longest attach that is worth telling apart, in seconds.
const BUCKETS: [f64; 12] = [0.005, 0.02, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0, 300.0];

/// The methods that are counted under their names; a peer that invents others gets no new series.
const METHODS: [&str; 31] = [
    "ControllerExpandVolume",
    "ControllerGetCapabilities",
    "ControllerGetVolume",
    "ControllerModifyVolume",
    "ControllerPublishVolume",
    "ControllerUnpublishVolume",
    "CreateSnapshot",
    "CreateVolume",
    "DeleteSnapshot",
    "DeleteVolume",
    "GetCapacity",
    "GetInfo",
    "GetPluginCapabilities",
    "GetPluginInfo",
    "GetSnapshot",
    "ListSnapshots",
    "ListVolumes",
    "NodeExpandVolume",
    "NodeGetCapabilities",
    "NodeGetInfo",
    "NodeGetStorageHealth",
    "NodeGetVolumeHealth",
    "NodeGetVolumeStats",
    "NodePublishVolume",
    "NodeStageVolume",
    "NodeUnpublishVolume",
    "NodeUnstageVolume",
    "NotifyRegistrationStatus",
    "Probe",
    "ValidateVolumeCapabilities",
    "other",
];

const DURATIONS: Metric = Metric::new(Spread, "lazuli_rpc_duration", "How long gRPC calls took")
    .in_unit("seconds")
    .by(&["method", "code"])
    .as_go("azuredisk_csi_driver_operation_duration_seconds, azurefile_csi_driver_operation_duration_seconds");

/// The metrics of gRPC calls.
pub const METRICS: &[Metric] = &[DURATIONS];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    method: &'static str,
    code: String,
}

/// The histogram; clones count together.
#[derive(Debug, Clone)]
pub struct RpcMetrics(Family<Labels, Histogram, fn() -> Histogram>);

impl RpcMetrics {
    /// Registers `lazuli_rpc_duration_seconds{method,code}`.
    pub fn register(registry: &mut Registry) -> Self {
        let family: Family<_, _, fn() -> Histogram> = Family::new_with_constructor(|| Histogram::new(BUCKETS));
        registry.register_with_unit(DURATIONS.stem, DURATIONS.help, Unit::Seconds, family.clone());
        Self(family)
    }

    pub(super) fn observe(&self, method: &str, code: Code, took: Duration) {
        let method = METHODS.into_iter().find(|known| *known == method).unwrap_or("other");
        // tonic's codes are a closed set, and so are their names.
        let labels = Labels { method, code: format!("{code:?}") };
        self.0.get_or_create(&labels).observe(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_method_and_code_and_invented_methods_together() {
        let mut registry = Registry::default();
        let metrics = RpcMetrics::register(&mut registry);
        metrics.observe("NodeStageVolume", Code::Ok, Duration::from_millis(700));
        metrics.observe("NodeStageVolume", Code::Aborted, Duration::from_millis(1));
        metrics.observe("Invented", Code::Ok, Duration::ZERO);
        metrics.observe("InventedToo", Code::Ok, Duration::ZERO);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            r#"lazuli_rpc_duration_seconds_count{method="NodeStageVolume",code="Ok"} 1"#,
            r#"lazuli_rpc_duration_seconds_count{method="NodeStageVolume",code="Aborted"} 1"#,
            r#"lazuli_rpc_duration_seconds_count{method="other",code="Ok"} 2"#,
            r#"lazuli_rpc_duration_seconds_bucket{le="0.5",method="NodeStageVolume",code="Ok"} 0"#,
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn the_list_of_methods_is_in_order_and_without_repeats() {
        assert!(METHODS.is_sorted_by(|a, b| a < b));
    }
}
