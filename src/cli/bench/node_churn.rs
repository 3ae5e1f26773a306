//! Nodes that come and go in a large cluster: how many writes of pools and routes they cost, and how much memory the
//! controllers hold.

use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value, json};

use super::{
    super::{number::whole, output::Format},
    cluster::{self, Cluster, Layout},
    processes::{AnyError, Measured},
};

/// How long the controllers rest in an empty cluster before their memory is measured.
const IDLE: Duration = Duration::from_secs(3);

/// How many routes a route table holds (source: Microsoft's document azure-subscription-service-limits).
const ROUTES: u32 = 400;

/// Options of the measurement.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// How many nodes.
    #[arg(long, default_value_t = 5_000, value_parser = whole::<u32>(1..=20_000))]
    nodes: u32,
    /// How many Services.
    #[arg(long, default_value_t = 1_000, value_parser = whole::<u32>(1..=10_000))]
    services: u32,
    /// How many load balancers share the Services, evenly.
    #[arg(long, default_value_t = 4, value_parser = whole::<u32>(1..=50))]
    load_balancers: u32,
    /// How many nodes join at once, and then leave at once.
    #[arg(long, default_value_t = 1, value_parser = whole::<u32>(1..=1_000))]
    burst: u32,
    /// Give each node a route to its pods. A route table holds at most 400.
    #[arg(long)]
    routes: bool,
    #[command(flatten)]
    measured: Measured,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = Format::Text, value_name = "FORM")]
    output: Format,
}

pub(super) async fn run(options: Options) -> Result<super::Figures, AnyError> {
    let nodes = options.nodes + options.burst;
    if options.routes && nodes > ROUTES {
        return Err(format!("a route table holds {ROUTES} routes, and {nodes} nodes need one each").into());
    }
    let layout = Layout {
        services: options.services,
        load_balancers: options.load_balancers,
        routes: options.routes,
        latency: "none",
        throttling: false,
        measured: options.measured.clone(),
        ..Layout::default()
    };
    cluster::run(&layout, options.output, async |cluster| measure(cluster, &options).await).await
}

async fn measure(cluster: &mut Cluster, options: &Options) -> Result<Map<String, Value>, AnyError> {
    tokio::time::sleep(IDLE).await;
    let idle = cluster.memory()?.now;
    let made = cluster.control.begin("make").await?;
    cluster.add_nodes(0..options.nodes)?;
    for number in 0..options.services {
        cluster.add_service(number)?;
    }
    cluster.served(options.services as usize).await?;
    cluster.rested(made).await?;
    let after_making = cluster.memory()?;

    let mut result = Map::new();
    for (name, value) in [
        ("bench", json!("node-churn")),
        ("nodes", json!(options.nodes)),
        ("services", json!(options.services)),
        ("load_balancers", json!(options.load_balancers)),
        ("burst", json!(options.burst)),
    ] {
        result.insert(name.into(), value);
    }
    let burst = options.nodes..options.nodes + options.burst;
    for phase in [Phase::Join, Phase::Leave, Phase::Resync] {
        let begun = cluster.control.begin(phase.name()).await?;
        match phase {
            Phase::Join => cluster.add_nodes(burst.clone())?,
            Phase::Leave => cluster.remove_nodes(burst.clone())?,
            Phase::Resync => cluster.relist(),
        }
        let counted = cluster.rested(begun).await?;
        let counts = [
            ("pool_writes", counted.writes(&["backendAddressPools"])),
            ("route_table_writes", counted.writes(&["routeTables", "routes"])),
            ("arm_writes", counted.sum("writes")),
            ("arm_reads", counted.sum("reads")),
        ];
        result.extend(counts.map(|(name, count)| (format!("{}_{name}", phase.name()), json!(count))));
    }
    let memory = cluster.memory()?;
    for (name, bytes) in [
        ("idle_rss_bytes", idle),
        ("made_rss_bytes", after_making.now),
        ("rss_bytes", memory.now),
        ("peak_rss_bytes", memory.peak),
    ] {
        result.insert(name.into(), json!(bytes));
    }
    Ok(result)
}

/// What happens to the cluster.
#[derive(Debug, Clone, Copy)]
enum Phase {
    /// Nodes join.
    Join,
    /// They leave.
    Leave,
    /// The informers list everything anew.
    Resync,
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Self::Join => "join",
            Self::Leave => "leave",
            Self::Resync => "resync",
        }
    }
}
