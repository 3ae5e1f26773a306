//! The life of many file shares: all are created, grown and deleted, back to back.

use clap::Args;
use lazuli_rig::Folder;
use serde_json::{Map, Value, json};

use super::{
    super::number::whole,
    figures::{self, rounded},
    processes::AnyError,
    sidecars::Step,
    storm::{self, Served, Storm, StormOptions},
};

/// How many writes the storage provider takes in a second, for a subscription and region (source: Azure's published limits).
const WRITES_A_SECOND: f64 = 10.0;

/// Options of the bench.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// How many shares.
    #[arg(long, default_value_t = 200, value_parser = whole::<u32>(1..=5_000))]
    shares: u32,
    /// The SKU of the accounts, as a StorageClass names it.
    #[arg(long, default_value = "Standard_LRS")]
    sku: String,
    /// Only create them.
    #[arg(long)]
    create_only: bool,
    #[command(flatten)]
    storm: StormOptions,
}

pub(super) async fn run(options: Options) -> Result<super::Figures, AnyError> {
    let folder = Folder::make("bench")?;
    let scenario = json!({ "virtualMachines": [], "disks": [] });
    let mut storm = Storm::start(&options.storm, &scenario, options.shares, folder.path(), Served::Shares).await?;
    let result = measure(&mut storm, &options).await;
    storm.end().await;
    let (mut result, rows) = result?;
    result.insert("phases".into(), json!(rows));
    Ok((Value::Object(result), options.storm.output))
}

type Rows = Vec<Map<String, Value>>;

async fn measure(storm: &mut Storm, options: &Options) -> Result<(Map<String, Value>, Rows), AnyError> {
    let names = (0..options.shares).map(|n| format!("pvc-{n:05}"));
    let mut volumes = storm::to_be_made(names, &[String::new()]);
    for volume in &mut volumes {
        volume.parameters = vec![("skuName".to_owned(), options.sku.clone())];
    }
    let steps = [Step::Create, Step::Expand, Step::Delete];
    let steps = if options.create_only { &steps[..1] } else { &steps[..] };
    for step in steps {
        storm.phase(*step, &mut volumes).await?;
    }
    let mut rows = storm.rows().await?;
    let first_share = storm.first_answer(Step::Create);
    for (row, step) in rows.iter_mut().zip(steps) {
        // One write for each share, of which as many as the limit are sent at once; the account comes first.
        let first = if *step == Step::Create { first_share } else { 0.0 };
        let bound = first + (f64::from(options.shares) / WRITES_A_SECOND - 1.0).max(0.0);
        let makespan = row["makespan_s"].as_f64().unwrap_or_default();
        row.insert("lower_bound_s".into(), rounded(bound));
        row.insert("ratio".into(), figures::ratio(makespan, bound));
        row.remove("lower_bound_full_s");
    }
    let accounts: std::collections::BTreeSet<&str> =
        volumes.iter().filter_map(|volume| volume.id.split('#').nth(1)).collect();
    let mut result: Map<String, Value> = [
        ("bench", json!("share-storm")),
        ("shares", json!(options.shares)),
        ("sku", json!(options.sku)),
        ("latency", json!(options.storm.latency)),
        ("seed", json!(options.storm.seed)),
        ("accounts", json!(accounts.len())),
        ("first_share_s", rounded(first_share)),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect();
    let sum = |rows: &Rows, name: &str| rows.iter().filter_map(|row| row[name].as_u64()).sum::<u64>();
    for name in ["arm_reads", "arm_writes", "arm_deletes", "polls", "list_pages", "throttled", "repeated_rpcs"] {
        result.insert(name.into(), json!(sum(&rows, name)));
    }
    let of_creation = rows.first().map_or(0, |row| row["arm_reads"].as_u64().unwrap_or_default());
    let polls = rows.first().map_or(0, |row| row["polls"].as_u64().unwrap_or_default());
    let reads = u32::try_from(of_creation.saturating_sub(polls)).unwrap_or(u32::MAX);
    result.insert("reads_per_created_share".into(), rounded(f64::from(reads) / f64::from(options.shares)));
    result.extend(storm.costs()?);
    Ok((result, rows))
}
