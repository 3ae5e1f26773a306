//! The whole life of many volumes: all are created, then all published, unpublished and deleted, back to back.

use std::collections::BTreeSet;

use clap::{Args, ValueEnum};
use lazuli_rig::Folder;
use serde_json::{Map, Value, json};
use url::Url;

use super::{
    figures,
    processes::AnyError,
    sidecars::{Step, Volume},
    storm::{self, Served, SpreadOptions, Storm},
};

/// Options of the bench.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// What the volumes are: managed disks, VHD blob disks in the accounts of the cluster's pool, or VHD blob disks with an
    /// account each.
    #[arg(long, value_enum, default_value_t = Kind::Managed)]
    kind: Kind,
    #[command(flatten)]
    spread: SpreadOptions,
}

/// The kinds of disks of a StorageClass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Managed,
    Shared,
    Dedicated,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Managed => "managed",
            Self::Shared => "shared",
            Self::Dedicated => "dedicated",
        }
    }

    fn served(self) -> Served {
        match self {
            Self::Managed => Served::Disks,
            Self::Shared | Self::Dedicated => Served::BlobDisks,
        }
    }
}

pub(super) async fn run(options: Options) -> Result<super::Figures, AnyError> {
    let folder = Folder::make("bench")?;
    let mut storm = options.spread.start(json!([]), folder.path(), options.kind.served()).await?;
    let result = measure(&mut storm, &options).await;
    storm.end().await;
    let (mut result, rows) = result?;
    result.insert("phases".into(), json!(rows));
    Ok((Value::Object(result), options.spread.storm.output))
}

type Rows = Vec<Map<String, Value>>;

async fn measure(storm: &mut Storm, options: &Options) -> Result<(Map<String, Value>, Rows), AnyError> {
    let Options { kind, spread: options } = options;
    let names = (0..options.disks).map(|n| format!("pvc-{n:05}"));
    let mut volumes = storm::to_be_made(names, &options.node_ids(storm));
    if kind.served() == Served::BlobDisks {
        let parameters = [("kind", kind.name()), ("skuName", "Standard_LRS")];
        let parameters = parameters.map(|(name, value)| (name.to_owned(), value.to_owned()));
        volumes.iter_mut().for_each(|volume| volume.parameters = parameters.to_vec());
    }
    for step in [Step::Create, Step::Publish, Step::Unpublish, Step::Delete] {
        storm.phase(step, &mut volumes).await?;
    }
    let mut rows = storm.rows().await?;
    let mut result = options.describe("life-storm");
    result.insert("kind".into(), json!(kind.name()));
    if kind.served() == Served::BlobDisks {
        result.insert("accounts".into(), json!(accounts(&volumes).len()));
    }
    let mut totals = storm::totals(storm, &rows).await?;
    if kind.served() == Served::BlobDisks {
        bound_creation(storm.first_answer(Step::Create), &mut rows, &mut totals);
    }
    // What is read of machines grows with the machines, all else with the volumes.
    let sum = |name: &str| rows.iter().filter_map(|row| row[name].as_f64()).sum::<f64>();
    let (reads, of_machines) = (sum("arm_reads"), sum("vm_reads"));
    result.extend(totals);
    result.insert("reads_per_volume".into(), figures::rounded((reads - of_machines) / f64::from(options.disks)));
    result.insert("reads_per_node".into(), figures::rounded(of_machines / f64::from(options.nodes)));
    Ok((result, rows))
}

/// Bounds the creation of blob disks by the first of them, whose account comes first.
fn bound_creation(first_disk: f64, rows: &mut Rows, totals: &mut Map<String, Value>) {
    totals.insert("first_disk_s".into(), figures::rounded(first_disk));
    for row in rows.iter_mut().filter(|row| row["phase"] == Step::Create.name()) {
        row.remove("lower_bound_full_s");
        bounded(row, first_disk);
    }
    let others = totals["lower_bound_s"].as_f64().unwrap_or_default();
    bounded(totals, first_disk + others);
}

fn bounded(of: &mut Map<String, Value>, bound: f64) {
    let makespan = of["makespan_s"].as_f64().unwrap_or_default();
    of.insert("lower_bound_s".into(), figures::rounded(bound));
    of.insert("ratio".into(), figures::ratio(makespan, bound));
}

/// The storage accounts of blob disks, by the hosts of their handles.
fn accounts(volumes: &[Volume]) -> BTreeSet<String> {
    let host = |volume: &Volume| Some(Url::parse(&volume.id).ok()?.host_str()?.to_owned());
    volumes.iter().filter_map(host).collect()
}
