//! The whole life of many volumes: all are created, then all published, unpublished and deleted, back to back.

use lazuli_rig::Folder;
use serde_json::{Map, Value, json};

use super::{
    figures,
    processes::AnyError,
    sidecars::Step,
    storm::{self, SpreadOptions, Storm},
};

pub(super) async fn run(options: SpreadOptions) -> Result<super::Figures, AnyError> {
    let folder = Folder::make("bench")?;
    let mut storm = options.start(json!([]), folder.path()).await?;
    let result = measure(&mut storm, &options).await;
    storm.end().await;
    let (mut result, rows) = result?;
    result.insert("phases".into(), json!(rows));
    Ok((Value::Object(result), options.storm.output))
}

type Rows = Vec<Map<String, Value>>;

async fn measure(storm: &mut Storm, options: &SpreadOptions) -> Result<(Map<String, Value>, Rows), AnyError> {
    let names = (0..options.disks).map(|n| format!("pvc-{n:05}"));
    let mut volumes = storm::to_be_made(names, &options.node_ids(storm));
    for step in [Step::Create, Step::Publish, Step::Unpublish, Step::Delete] {
        storm.phase(step, &mut volumes).await?;
    }
    let rows = storm.rows().await?;
    let mut result = options.describe("life-storm");
    let totals = storm::totals(storm, &rows).await?;
    // What is read of machines grows with the machines, all else with the volumes.
    let sum = |name: &str| rows.iter().filter_map(|row| row[name].as_f64()).sum::<f64>();
    let (reads, of_machines) = (sum("arm_reads"), sum("vm_reads"));
    result.extend(totals);
    result.insert("reads_per_volume".into(), figures::rounded((reads - of_machines) / f64::from(options.disks)));
    result.insert("reads_per_node".into(), figures::rounded(of_machines / f64::from(options.nodes)));
    Ok((result, rows))
}
