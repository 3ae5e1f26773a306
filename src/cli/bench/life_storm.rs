//! The whole life of many volumes: all are created, then all published, unpublished and deleted, back to back.

use clap::Args;
use lazuli_rig::Folder;
use serde_json::{Map, Value, json};

use super::{
    super::{Outcome, output::Format},
    figures,
    processes::AnyError,
    sidecars::Step,
    storm::{self, Storm},
};

/// Options of the storm.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// How many nodes.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=5000))]
    nodes: u32,
    /// How many volumes, spread evenly over the nodes; at most 64 a node.
    #[arg(long, default_value_t = 160, value_parser = clap::value_parser!(u32).range(1..=64_000))]
    disks: u32,
    #[command(flatten)]
    storm: storm::StormOptions,
}

pub(super) async fn run(options: Options) -> Outcome {
    let folder = Folder::make("bench")?;
    let machines = storm::machines(options.nodes, storm::size(options.nodes, options.disks)?);
    let scenario = json!({ "virtualMachines": machines });
    let mut storm = Storm::start(&options.storm, &scenario, options.disks, folder.path()).await?;
    let result = measure(&mut storm, &options).await;
    storm.end().await;
    let (mut result, rows) = result?;
    match options.storm.output {
        Format::Json => {
            result.insert("phases".into(), json!(rows));
            Format::Json.print_object(&Value::Object(result));
        }
        Format::Text => {
            Format::Text.print_object(&Value::Object(result));
            figures::print_rows(&rows);
        }
    }
    Ok(())
}

type Rows = Vec<Map<String, Value>>;

async fn measure(storm: &mut Storm, options: &Options) -> Result<(Map<String, Value>, Rows), AnyError> {
    let names = (0..options.disks).map(|n| format!("pvc-{n:05}"));
    let mut volumes = storm::to_be_made(names, options.nodes);
    for step in [Step::Create, Step::Publish, Step::Unpublish, Step::Delete] {
        storm.phase(step, &mut volumes).await?;
    }
    let rows = storm.rows().await?;
    let mut result = Map::new();
    result.insert("bench".into(), json!("life-storm"));
    result.insert("nodes".into(), json!(options.nodes));
    result.insert("disks".into(), json!(options.disks));
    result.insert("latency".into(), json!(options.storm.latency));
    result.insert("callers".into(), json!(options.storm.callers.unwrap_or(options.disks)));
    result.insert("seed".into(), json!(options.storm.seed));
    let totals = storm::totals(storm, &rows).await?;
    // What is read of machines grows with the machines, all else with the volumes.
    let sum = |name: &str| rows.iter().filter_map(|row| row[name].as_f64()).sum::<f64>();
    let (reads, of_machines) = (sum("arm_reads"), sum("vm_reads"));
    result.extend(totals);
    result.insert("reads_per_volume".into(), figures::rounded((reads - of_machines) / f64::from(options.disks)));
    result.insert("reads_per_node".into(), figures::rounded(of_machines / f64::from(options.nodes)));
    Ok((result, rows))
}
