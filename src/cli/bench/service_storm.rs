//! Many Services of type LoadBalancer at once: how long each takes, and what it costs.

use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Map, Value, json};

use super::{
    super::{number::whole, output::Format},
    cluster::{self, Cluster, Layout, PoolKind, durations, makespan, percentile},
    figures::{ratio, rounded},
    processes::{AnyError, Measured},
};

/// How long the informers may take to see the nodes, before the first Service is made.
const INFORMED: Duration = Duration::from_secs(2);
/// Size and refill per second of the buckets that writes come from (source: Microsoft's documents
/// request-limits-and-throttling and azure-subscription-service-limits: the network provider takes 1,000 writes in five
/// minutes).
const BUCKETS: [(f64, f64); 2] = [(200.0, 10.0), (1_000.0, 1_000.0 / 300.0)];

/// Options of the measurement.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// How many Services.
    #[arg(long, default_value_t = 300, value_parser = whole::<u32>(1..=10_000))]
    services: u32,
    /// How many nodes.
    #[arg(long, default_value_t = 100, value_parser = whole::<u32>(1..=5_000))]
    nodes: u32,
    /// How many load balancers share the Services, evenly.
    #[arg(long, default_value_t = 1, value_parser = whole::<u32>(1..=50))]
    load_balancers: u32,
    /// How the pools are filled.
    #[arg(long, value_enum, default_value_t = PoolKind::NodeIp)]
    pool_kind: PoolKind,
    /// Over how many seconds the Services are made, evenly; 0: at once.
    #[arg(long, default_value_t = 0, value_parser = whole::<u32>(0..=u32::MAX))]
    spread: u32,
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
        services: options.services,
        load_balancers: options.load_balancers,
        pool_kind: options.pool_kind,
        // A pool of addresses needs no machine.
        machines: if options.pool_kind == PoolKind::Nic { options.nodes } else { 0 },
        latency: &options.latency,
        seed: options.seed,
        measured: options.measured.clone(),
        ..Layout::default()
    };
    cluster::run(&layout, options.output, async |cluster| measure(cluster, &options).await).await
}

async fn measure(cluster: &mut Cluster, options: &Options) -> Result<Map<String, Value>, AnyError> {
    cluster.add_nodes(0..options.nodes)?;
    tokio::time::sleep(INFORMED).await;
    let phase = cluster.control.begin("storm").await?;
    let began = Instant::now();
    let made = cluster::spread((options.services, options.spread), |number| cluster.add_service(number)).await?;
    let served = cluster.served(made.len()).await?;
    let (times, makespan) = (durations(&made, &served), makespan(began, &served));
    let counted = cluster.rested(phase).await?;
    let shortest = Shortest::of(&cluster.control.calls().await?);
    let bound = Bound::of(options, shortest);

    let mut result = Map::new();
    for (name, value) in [
        ("bench", json!("service-storm")),
        ("services", json!(options.services)),
        ("nodes", json!(options.nodes)),
        ("load_balancers", json!(options.load_balancers)),
        ("spread_s", json!(options.spread)),
        ("latency", json!(options.latency)),
        ("seed", json!(options.seed)),
        ("makespan_s", rounded(makespan)),
        ("lower_bound_s", rounded(bound.total())),
        ("ratio", ratio(makespan, bound.total())),
        ("bound_wait_s", rounded(bound.wait)),
        ("bound_public_ip_s", rounded(bound.public_ip)),
        ("bound_last_write_s", rounded(bound.last_write)),
        ("second_load_balancer_write_s", rounded(shortest.load_balancer)),
        ("over_bound_s", rounded(makespan - bound.total())),
        ("p50_s", percentile(&times, 50)),
        ("p95_s", percentile(&times, 95)),
        ("p99_s", percentile(&times, 99)),
    ] {
        result.insert(name.into(), value);
    }
    result.extend(counted.figures());
    result.insert("peak_rss_bytes".into(), json!(cluster.memory()?.peak));
    Ok(result)
}

/// The shortest times that Azure took, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Shortest {
    public_ip: f64,
    load_balancer: f64,
    security_group: f64,
}

impl Shortest {
    /// From the emulator's record of calls.
    fn of(calls: &[Value]) -> Self {
        let of_writes = |name: &str| {
            let writes = calls.iter().filter(|call| call["operation"] == name);
            let seconds = writes.filter_map(|call| Some(call["latencyMs"].as_f64()? / 1e3));
            seconds.min_by(f64::total_cmp).unwrap_or_default()
        };
        Self {
            public_ip: of_writes("publicIPAddresses.createOrUpdate"),
            load_balancer: of_writes("loadBalancers.createOrUpdate"),
            security_group: of_writes("networkSecurityGroups.createOrUpdate"),
        }
    }
}

/// The parts of the formula in the help, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Bound {
    /// Until the last public IP can be written: max(W, D).
    wait: f64,
    /// P.
    public_ip: f64,
    /// The write that the last public IP goes into: max(L, G).
    last_write: f64,
}

impl Bound {
    fn of(options: &Options, shortest: Shortest) -> Self {
        let writes = f64::from(options.services + options.load_balancers + 1);
        let waits = BUCKETS.map(|(size, refill)| ((writes - size) / refill).max(0.0));
        // The last Service is made one interval before the end.
        let made = f64::from(options.spread) * f64::from(options.services - 1) / f64::from(options.services);
        Self {
            wait: waits.into_iter().fold(made, f64::max),
            public_ip: shortest.public_ip,
            last_write: shortest.load_balancer.max(shortest.security_group),
        }
    }

    fn total(self) -> f64 {
        self.wait + self.public_ip + self.last_write
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(services: u32, load_balancers: u32, spread: u32) -> Bound {
        let options = Options {
            services,
            nodes: 1,
            load_balancers,
            pool_kind: PoolKind::NodeIp,
            spread,
            latency: String::new(),
            seed: 1,
            measured: Measured::default(),
            output: Format::Json,
        };
        Bound::of(&options, Shortest { public_ip: 3.0, load_balancer: 4.0, security_group: 3.0 })
    }

    fn bound(services: u32, load_balancers: u32, spread: u32) -> f64 {
        parts(services, load_balancers, spread).total()
    }

    #[test]
    fn the_bound_is_what_the_buckets_and_azure_impose() {
        assert_eq!(bound(1, 1, 0), 7.0);
        assert_eq!(bound(198, 1, 0), 7.0);
        assert_eq!(bound(298, 1, 0), 17.0);
        assert_eq!(bound(300, 1, 60), 59.8 + 7.0);
        assert_eq!(bound(995, 4, 0), 87.0);
        assert_eq!(bound(1_995, 4, 0), 307.0);
        // Its parts are printed.
        assert_eq!(parts(298, 1, 0), Bound { wait: 10.0, public_ip: 3.0, last_write: 4.0 });
    }
}
