//! An attach storm: every disk of every node is published at the same moment, then unpublished.

use csi_proto::csi::ControllerGetVolumeRequest;
use lazuli_rig::Folder;
use serde_json::{Map, Value, json};

use super::{
    processes::AnyError,
    sidecars::Step,
    storm::{self, SpreadOptions, Storm},
};

pub(super) async fn run(options: SpreadOptions) -> Result<super::Figures, AnyError> {
    let folder = Folder::make("bench")?;
    let disks = names(options.disks).map(|name| json!({ "name": name, "sizeGib": 32, "sku": "Premium_LRS" }));
    let mut storm = options.start_disks(disks.collect(), folder.path()).await?;
    let result = measure(&mut storm, &options).await;
    storm.end().await;
    Ok((Value::Object(result?), options.storm.output))
}

fn names(disks: u32) -> impl Iterator<Item = String> {
    (0..disks).map(|n| format!("storm-{n:05}"))
}

async fn measure(storm: &mut Storm, options: &SpreadOptions) -> Result<Map<String, Value>, AnyError> {
    let mut volumes = storm.existing(names(options.disks), &options.node_ids(storm))?;
    // A controller at work has a token and a connection; a cold start is measured elsewhere.
    let first = ControllerGetVolumeRequest { volume_id: volumes[0].id.clone() };
    storm.sidecars.client().controller_get_volume(first).await?;

    storm.phase(Step::Publish, &mut volumes).await?;
    storm.phase(Step::Unpublish, &mut volumes).await?;
    let rows = storm.rows().await?;
    let totals = storm::totals(storm, &rows).await?;

    let mut result = options.describe("attach-storm");
    // Attaching keeps the names without a prefix; what counts requests is of the whole run.
    for (prefix, row) in ["", "detach_"].iter().zip(&rows) {
        for (key, value) in row.iter().filter(|(key, _)| *key != "phase") {
            result.insert(format!("{prefix}{key}"), value.clone());
        }
    }
    for key in ["arm_reads", "arm_writes", "arm_deletes", "polls", "list_pages", "throttled", "repeated_rpcs"] {
        result.insert(format!("attach_{key}"), rows[0][key].clone());
        result.insert(key.to_owned(), totals[key].clone());
    }
    for key in ["throttled_share", "peak_rss_bytes", "program_rss_bytes", "cpu_s"] {
        result.insert(key.to_owned(), totals[key].clone());
    }
    Ok(result)
}
