//! Nodes are lost: their VMs are deleted in Azure with their disks attached, and every disk is unpublished at once,
//! as Kubernetes does when the nodes have gone. There is no cluster that could tell the controller of it.

use clap::Args;
use lazuli_rig::Folder;
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;

use super::super::number::whole;
use super::{
    control::Principal,
    processes::AnyError,
    sidecars::Step,
    storm::{self, Storm},
};

/// An application of the scenario that is not the controller's: what it asks of Azure is another principal's, and takes
/// nothing from the controller's buckets. It opens nothing but an emulator.
const OPERATOR: (&str, &str) = ("00000000-0000-0000-0000-0000000000b0", "bench-operator");

/// A version of the compute provider that has everything used here (source: the published versions of its types).
const COMPUTE_VERSION: &str = "2024-07-01";

/// Options of the loss.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// How many nodes there are.
    #[arg(long, default_value_t = 5000, value_parser = whole::<u32>(1..=20_000))]
    nodes: u32,
    /// How many of them are lost.
    #[arg(long, default_value_t = 20, value_parser = whole::<u32>(1..=5000))]
    lost: u32,
    /// How many disks, spread evenly over the nodes that are lost; at most 64 a node.
    #[arg(long, default_value_t = 200, value_parser = whole::<u32>(1..=64_000))]
    disks: u32,
    #[command(flatten)]
    storm: storm::StormOptions,
}

pub(super) async fn run(options: Options) -> Result<super::Figures, AnyError> {
    if options.lost > options.nodes {
        return Err(format!("{} of {} nodes cannot be lost", options.lost, options.nodes).into());
    }
    let folder = Folder::make("bench")?;
    let scenario = scenario(&options)?;
    let mut storm = Storm::start(&options.storm, &scenario, options.disks, folder.path(), storm::Served::Disks).await?;
    let result = measure(&mut storm, &options).await;
    storm.end().await;
    Ok((Value::Object(result?), options.storm.output))
}

fn scenario(options: &Options) -> Result<Value, AnyError> {
    let default = lazuli_emulator::scenario::Scenario::default();
    let mut clients: Vec<Value> = default.clients.iter().map(|client| json!(client)).collect();
    clients.push(json!({ "id": OPERATOR.0, "secret": OPERATOR.1 }));
    Ok(json!({
        "clients": clients,
        "virtualMachines": storm::machines(options.nodes, storm::size(options.lost, options.disks)?),
        "disks": names(options.disks)
            .map(|name| json!({ "name": name, "sizeGib": 32, "sku": "Premium_LRS" }))
            .collect::<Vec<_>>(),
    }))
}

fn names(disks: u32) -> impl Iterator<Item = String> {
    (0..disks).map(|n| format!("lost-{n:05}"))
}

async fn measure(storm: &mut Storm, options: &Options) -> Result<Map<String, Value>, AnyError> {
    let nodes: Vec<String> = (0..options.lost).map(storm::standalone).collect();
    let mut volumes = storm.existing(names(options.disks), &nodes)?;
    storm.phase(Step::Publish, &mut volumes).await?;

    storm.control.begin("lose").await?;
    let operator = storm.control.sign_in(&storm.tenant, OPERATOR.0, OPERATOR.1).await?;
    let machines = format!(
        "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Compute/virtualMachines",
        storm.subscription, storm.resource_group
    );
    delete_all(operator, (0..options.lost).map(|n| format!("{machines}/node-{n}"))).await?;

    storm.phase(Step::Unpublish, &mut volumes).await?;
    let rows = storm.rows().await?;
    let unpublish = rows.last().ok_or("no phase was measured")?;

    let mut result = Map::new();
    result.insert("bench".into(), json!("node-loss"));
    result.insert("nodes".into(), json!(options.nodes));
    result.insert("lost".into(), json!(options.lost));
    result.insert("disks".into(), json!(options.disks));
    result.insert("latency".into(), json!(options.storm.latency));
    result.insert("callers".into(), json!(options.storm.callers.unwrap_or(options.disks)));
    result.insert("seed".into(), json!(options.storm.seed));
    for key in ["makespan_s", "p50_s", "p99_s", "arm_reads", "list_pages", "arm_writes", "throttled", "repeated_rpcs"] {
        result.insert(key.to_owned(), unpublish[key].clone());
    }
    result.extend(storm.costs()?);
    Ok(result)
}

async fn delete_all(operator: Principal, ids: impl Iterator<Item = String>) -> Result<(), AnyError> {
    let operator = std::sync::Arc::new(operator);
    let mut deletions = JoinSet::new();
    for id in ids {
        let operator = operator.clone();
        deletions.spawn(async move { operator.delete(&id, COMPUTE_VERSION).await });
    }
    while let Some(deleted) = deletions.join_next().await {
        deleted??;
    }
    Ok(())
}
