//! Nodes that come and go in a large cluster: how many pool writes they cost, and how much memory the controllers hold.

use std::time::Duration;

use clap::Args;
use lazuli_rig::Folder;
use serde_json::{Map, Value, json};

use super::{
    super::{Outcome, output::Format},
    cluster::{Cluster, Layout, PoolKind},
    processes::AnyError,
};

/// How long the controllers rest in an empty cluster before their memory is measured.
const IDLE: Duration = Duration::from_secs(3);

/// Options of the measurement.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// How many nodes.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    nodes: u32,
    /// How many Services.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    services: u32,
    /// How many load balancers share the Services, evenly.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=50))]
    load_balancers: u32,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

pub(super) async fn run(options: Options) -> Outcome {
    let folder = Folder::make("bench")?;
    let layout = Layout {
        services: options.services,
        load_balancers: options.load_balancers,
        pool_kind: PoolKind::NodeIp,
        latency: "none",
        throttling: false,
        seed: 1,
    };
    let mut cluster = Cluster::start(&layout, folder.path()).await?;
    let result = measure(&mut cluster, &options).await;
    cluster.end().await;
    options.output.print_object(&Value::Object(result?));
    Ok(())
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
    ] {
        result.insert(name.into(), value);
    }
    for phase in [Phase::Join, Phase::Leave, Phase::Resync] {
        let begun = cluster.control.begin(phase.name()).await?;
        match phase {
            Phase::Join => cluster.add_nodes(options.nodes..options.nodes + 1)?,
            Phase::Leave => cluster.remove_node(options.nodes)?,
            Phase::Resync => cluster.relist(),
        }
        let counted = cluster.rested(begun).await?;
        let pools = counted.writes(&["backendAddressPools"]);
        result.insert(format!("{}_pool_writes", phase.name()), json!(pools));
        result.insert(format!("{}_arm_writes", phase.name()), json!(counted.sum("writes")));
        result.insert(format!("{}_arm_reads", phase.name()), json!(counted.sum("reads")));
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
    /// A node joins.
    Join,
    /// It leaves.
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
