//! New nodes: how long each keeps its taint, and what it costs to learn what Azure says of their machines.

use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Map, Value, json};

use super::{
    super::{number::whole, output::Format},
    cluster::{self, Cluster, Layout, durations, makespan, percentile},
    figures::{ratio, rounded},
    processes::{AnyError, Measured},
};

/// How long the controllers rest in an empty cluster before the first node comes.
const IDLE: Duration = Duration::from_secs(3);
/// Machines, and their network interfaces, on a page of a list: as many as the emulator shows.
const PAGE: u32 = 1_000;
/// Size and refill per second of the bucket that reads come from (source: Microsoft's document
/// request-limits-and-throttling).
const READS: (f64, f64) = (250.0, 25.0);

/// Options of the measurement.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// How many nodes.
    #[arg(long, default_value_t = 5_000, value_parser = whole::<u32>(1..=20_000))]
    nodes: u32,
    /// Over how many seconds the nodes come, evenly; 0: at once.
    #[arg(long, default_value_t = 0, value_parser = whole::<u32>(0..=u32::MAX))]
    spread: u32,
    /// Whether the node plugins have published what the instance metadata tell of their machines.
    #[arg(long)]
    metadata: bool,
    /// How long Azure takes: none, typical, azure, bad-day, or a file.
    #[arg(long, default_value = "typical")]
    latency: String,
    /// Seed of Azure's latencies.
    #[arg(long, default_value_t = 1, value_parser = whole::<u64>(0..=u64::MAX))]
    seed: u64,
    #[command(flatten)]
    measured: Measured,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = Format::Text, value_name = "FORM")]
    output: Format,
}

pub(super) async fn run(options: Options) -> Result<super::Figures, AnyError> {
    let layout = Layout {
        machines: options.nodes,
        latency: &options.latency,
        seed: options.seed,
        measured: options.measured.clone(),
        ..Layout::default()
    };
    cluster::run(&layout, options.output, async |cluster| measure(cluster, &options).await).await
}

async fn measure(cluster: &mut Cluster, options: &Options) -> Result<Map<String, Value>, AnyError> {
    tokio::time::sleep(IDLE).await;
    let idle = cluster.memory()?.now;
    let phase = cluster.control.begin("join").await?;
    let began = Instant::now();
    let add = |number| cluster.add_new_node(number, options.metadata);
    let made = cluster::spread((options.nodes, options.spread), add).await?;
    let initialised = cluster.initialised(made.len()).await?;
    let counted = cluster.rested(phase).await?;
    let (times, makespan) = (durations(&made, &initialised), makespan(began, &initialised));
    let bound = lower_bound(options.nodes, options.spread, options.metadata);
    let (reads, writes, memory) = (counted.sum("reads"), cluster.node_writes(), cluster.memory()?);
    let each = |count: u64| rounded(count as f64 / f64::from(options.nodes));

    let mut result = Map::new();
    for (name, value) in [
        ("bench", json!("node-join")),
        ("nodes", json!(options.nodes)),
        ("spread_s", json!(options.spread)),
        ("metadata", json!(options.metadata)),
        ("latency", json!(options.latency)),
        ("seed", json!(options.seed)),
        ("makespan_s", rounded(makespan)),
        ("lower_bound_s", rounded(bound)),
        ("ratio", ratio(makespan, bound)),
        ("p50_s", percentile(&times, 50)),
        ("p95_s", percentile(&times, 95)),
        ("p99_s", percentile(&times, 99)),
        ("node_writes", json!(writes)),
        ("writes_per_node", each(writes)),
        ("arm_reads", json!(reads)),
        ("reads_per_node", each(reads)),
        ("list_pages", json!(counted.sum("listPages"))),
        ("arm_writes", json!(counted.sum("writes"))),
        ("throttled", json!(counted.sum("throttled"))),
        ("idle_rss_bytes", json!(idle)),
        ("rss_bytes", json!(memory.now)),
        ("peak_rss_bytes", json!(memory.peak)),
    ] {
        result.insert(name.into(), value);
    }
    Ok(result)
}

/// The formula of the help.
fn lower_bound(nodes: u32, spread: u32, metadata: bool) -> f64 {
    let pages = if metadata { 0.0 } else { f64::from(2 * nodes.div_ceil(PAGE)) };
    // The last node comes one interval before the end.
    let made = f64::from(spread) * f64::from(nodes - 1) / f64::from(nodes);
    made.max((pages - READS.0) / READS.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_when_the_last_node_comes_or_its_page_may_be_asked_for() {
        assert_eq!(lower_bound(5_000, 0, false), 0.0);
        assert_eq!(lower_bound(5_000, 300, false), 299.94);
        assert_eq!(lower_bound(1, 300, false), 0.0);
        assert_eq!(lower_bound(250_000, 0, false), 10.0);
        assert_eq!(lower_bound(250_000, 0, true), 0.0);
    }
}
