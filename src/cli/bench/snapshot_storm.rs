//! The life of many snapshots: of disks that exist all are taken, restored to volumes of their own, these changed, and both
//! deleted, back to back.

use clap::Args;
use lazuli_rig::Folder;
use serde_json::{Map, Value, json};

use super::{
    super::number::whole,
    figures,
    processes::AnyError,
    sidecars::{Step, Volume},
    storm::{self, Served, Storm, StormOptions},
};

/// Options of the bench.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// How many disks, with one snapshot each.
    #[arg(long, default_value_t = 160, value_parser = whole::<u32>(1..=20_000))]
    snapshots: u32,
    #[command(flatten)]
    storm: StormOptions,
}

pub(super) async fn run(options: Options) -> Result<super::Figures, AnyError> {
    let folder = Folder::make("bench")?;
    let disks = names(options.snapshots).map(|name| json!({ "name": name, "sizeGib": 32, "sku": "Premium_LRS" }));
    let disks: Vec<Value> = disks.collect();
    let scenario = json!({ "virtualMachines": [], "disks": disks });
    // Both deletions of each are under way at a time.
    let mut storm =
        Storm::start(&options.storm, &scenario, 2 * options.snapshots, folder.path(), Served::Disks).await?;
    let result = measure(&mut storm, &options).await;
    storm.end().await;
    let (mut result, rows) = result?;
    result.insert("phases".into(), json!(rows));
    Ok((Value::Object(result), options.storm.output))
}

type Rows = Vec<Map<String, Value>>;

async fn measure(storm: &mut Storm, options: &Options) -> Result<(Map<String, Value>, Rows), AnyError> {
    let mut volumes = storm.existing(names(options.snapshots), &[String::new()])?;
    for volume in &mut volumes {
        volume.snapshot_name = volume.name.replace("pvc", "snapshot");
    }
    storm.phase(Step::Snapshot, &mut volumes).await?;
    for volume in &mut volumes {
        volume.name = volume.name.replace("pvc", "restored");
    }
    storm.phase(Step::Restore, &mut volumes).await?;
    storm.phase(Step::Modify, &mut volumes).await?;
    let mut both = of_snapshots(&volumes);
    both.extend(volumes);
    storm.phase(Step::Delete, &mut both).await?;

    let rows = storm.rows().await?;
    let mut result = options.describe();
    result.extend(storm::totals(storm, &rows).await?);
    for (row, name) in rows.iter().zip(["snapshot", "restored", "modified", "deleted"]) {
        let reads = row["arm_reads"].as_f64().unwrap_or_default();
        let per_each = reads / f64::from(options.snapshots);
        result.insert(format!("reads_per_{name}"), figures::rounded(per_each));
    }
    Ok((result, rows))
}

fn names(count: u32) -> impl Iterator<Item = String> {
    (0..count).map(|n| format!("pvc-{n:05}"))
}

/// The snapshots of volumes, to be deleted: volumes that are only a snapshot.
fn of_snapshots(volumes: &[Volume]) -> Vec<Volume> {
    volumes.iter().map(|volume| Volume { id: String::new(), ..volume.clone() }).collect()
}

impl Options {
    /// What was measured, as the result names it.
    fn describe(&self) -> Map<String, Value> {
        [
            ("bench", json!("snapshot-storm")),
            ("snapshots", json!(self.snapshots)),
            ("latency", json!(self.storm.latency)),
            ("callers", json!(self.storm.callers.unwrap_or(2 * self.snapshots))),
            ("seed", json!(self.storm.seed)),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
    }
}
