//! Metrics of the process itself.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use tokio::time::Instant;

/// What this binary was built from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuildInfo {
    /// Version of the package.
    pub version: &'static str,
    /// Revision of the source, or `unknown`.
    pub revision: &'static str,
}

/// Registers `lazuli_build_info`, `process_resident_memory_bytes` and `process_uptime_seconds`. Uptime
/// counts from here. Give it the registry itself, not a part with a prefix.
pub fn register_process(registry: &mut Registry, build: BuildInfo) {
    registry.register(
        "lazuli_build",
        "What this binary was built from",
        Info::new([("version", build.version), ("revision", build.revision)].to_vec()),
    );
    registry.register_collector(Box::new(Process { started: Instant::now() }));
}

/// Read at each scrape: nothing runs between scrapes.
#[derive(Debug)]
struct Process {
    started: Instant,
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let uptime = ConstGauge::new(self.started.elapsed().as_secs_f64());
        uptime.encode(encoder.encode_descriptor(
            "process_uptime",
            "Time since the process started",
            Some(&Unit::Seconds),
            MetricType::Gauge,
        )?)?;
        // Absent rather than 0 where the system does not tell.
        if let Some(bytes) = resident_bytes() {
            let resident = ConstGauge::new(bytes);
            resident.encode(encoder.encode_descriptor(
                "process_resident_memory",
                "Resident memory of the process",
                Some(&Unit::Bytes),
                MetricType::Gauge,
            )?)?;
        }
        Ok(())
    }
}

fn resident_bytes() -> Option<i64> {
    resident_of(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// Source: proc_pid_status(5), `VmRSS:  1234 kB`, in KiB.
fn resident_of(status: &str) -> Option<i64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: i64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_from_the_status_file() {
        assert_eq!(resident_of("Name:\tlazuli\nVmRSS:\t    1234 kB\nThreads:\t1\n"), Some(1234 * 1024));
        assert_eq!(resident_of("Name:\tkthread\n"), None);
        assert!(resident_bytes().expect("Linux tells") > 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_metrics_of_the_process_have_their_standard_names() {
        let mut registry = Registry::default();
        let build = BuildInfo { version: "1.2.3", revision: "abc" };
        register_process(&mut registry, build);
        tokio::time::advance(std::time::Duration::from_secs(90)).await;
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("encodes");
        assert!(text.contains("lazuli_build_info{version=\"1.2.3\",revision=\"abc\"} 1\n"), "{text}");
        assert!(text.contains("process_uptime_seconds 90.0\n"), "{text}");
        assert!(text.contains("process_resident_memory_bytes "), "{text}");
        assert!(text.ends_with("# EOF\n"));
    }
}
