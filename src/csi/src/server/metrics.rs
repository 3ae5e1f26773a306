//! How long RPCs take, by method and code.

use lazuli_model::reference::{Metric, MetricType::Histogram as Spread};
use lazuli_telemetry::go_names::GoNames;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, histogram::Histogram},
    registry::{Registry, Unit},
};

use super::go_operations::{self, Ended, GoDriver};

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

/// The histogram, and what shows the same under a Go driver's names; clones count together.
#[derive(Debug, Clone)]
pub struct RpcMetrics {
    durations: Family<Labels, Histogram, fn() -> Histogram>,
    go: GoNames,
    driver: GoDriver,
}

impl RpcMetrics {
    /// Registers `lazuli_rpc_duration_seconds{method,code}`. Under Go's names the calls are those of the disk driver.
    pub fn register(registry: &mut Registry, go: GoNames) -> Self {
        let durations: Family<_, _, fn() -> Histogram> = Family::new_with_constructor(|| Histogram::new(BUCKETS));
        registry.register_with_unit(DURATIONS.stem, DURATIONS.help, Unit::Seconds, durations.clone());
        Self { durations, go, driver: GoDriver::Disk }
    }

    /// The same for the calls of a driver.
    pub(super) fn of(self, driver: GoDriver) -> Self {
        Self { driver, ..self }
    }

    pub(super) fn observe(&self, call: &Ended<'_>) {
        let method = METHODS.into_iter().find(|known| *known == call.method).unwrap_or("other");
        // tonic's codes are a closed set, and so are their names.
        let labels = Labels { method, code: format!("{:?}", call.code) };
        self.durations.get_or_create(&labels).observe(call.took.as_secs_f64());
        go_operations::count(&self.go, self.driver, call);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tonic::Code;

    use super::*;

    #[test]
    fn calls_are_counted_by_method_and_code_and_invented_methods_together() {
        let mut registry = Registry::default();
        let metrics = RpcMetrics::register(&mut registry, GoNames::default());
        let observe = |method, code, took| metrics.observe(&Ended { method, code, took, made: None });
        observe("NodeStageVolume", Code::Ok, Duration::from_millis(700));
        observe("NodeStageVolume", Code::Aborted, Duration::from_millis(1));
        observe("Invented", Code::Ok, Duration::ZERO);
        observe("InventedToo", Code::Ok, Duration::ZERO);
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
