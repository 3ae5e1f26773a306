//! `lazuli get snapshots`: which VolumeSnapshot each snapshot of a disk is, of which volume it was taken, and how much of it is
//! there.

use std::time::SystemTime;

use clap::Args;
use jiff::Timestamp;
use lazuli_assembly::clients::Azure;
use lazuli_azure::Until;
use lazuli_cluster::{list_snapshot_contents, list_volumes};
use lazuli_csi::identity::DISK_DRIVER;
use lazuli_diagnosis::snapshots::{
    SnapshotContent,
    inventory::{DiskVolume, Row, rows},
};
use lazuli_model::{AzureTime, Completion, Snapshot, SnapshotId};
use lazuli_storage::{
    inventory::Volume,
    list::{HandleCasing, ResourceGroup, groups},
};
use serde_json::json;

use super::{
    super::{
        connect::connected,
        output::{Field, Item, List, joined},
        table::{
            Column,
            Shown::{Always, Wide, WithRoom},
        },
    },
    AnyError, Common, PATIENCE,
};

#[derive(Debug, Args)]
pub(super) struct Snapshots {
    #[command(flatten)]
    pub(super) common: Common,
}

pub(super) async fn list(options: &Snapshots) -> Result<List, AnyError> {
    let (client, config, azure) = connected(&options.common.cloud).await?;
    let until = Until::within(PATIENCE);
    let (volumes, contents) = match &client {
        Some(client) => (list_volumes(client, DISK_DRIVER).await?, list_snapshot_contents(client).await?),
        None => (Vec::new(), Vec::new()),
    };
    let contents: Vec<SnapshotContent> = contents.into_iter().filter(|content| content.driver == DISK_DRIVER).collect();
    let own = ResourceGroup {
        subscription: config.cluster.subscription_id.clone(),
        name: config.cluster.resource_group.as_str().to_owned(),
    };
    let snapshots = in_groups(places(&own, &contents, &volumes), &own, &azure, &until).await?;
    let volumes: Vec<DiskVolume> = volumes.into_iter().filter_map(of_disk).collect();
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let now = AzureTime::from_unix_seconds(i64::try_from(since_1970.as_secs())?);
    Ok(of_rows(&rows(&snapshots, &contents, &volumes, (&own.subscription, &own.name)), now))
}

fn of_disk(Volume { name, handle, claim }: Volume) -> Option<DiskVolume> {
    Some(DiskVolume { disk: handle.parse().ok()?, name, claim })
}

/// The cluster's group, and those of the disks and snapshots that the cluster names: a snapshot is beside its disk where its
/// class names no group.
fn places(own: &ResourceGroup, contents: &[SnapshotContent], volumes: &[Volume]) -> Vec<ResourceGroup> {
    let cluster = (own.subscription.as_str(), own.name.as_str());
    let named = contents.iter().flat_map(|content| &content.handles);
    let named: Vec<SnapshotId> = named.filter_map(|handle| SnapshotId::parse(handle, cluster).ok()).collect();
    let mut handles = HandleCasing::default();
    handles.extend(volumes.iter().map(|volume| volume.handle.as_str()));
    handles.extend(named.iter().map(|id| id.snapshot().as_str()));
    groups(own, &handles)
}

/// The snapshots in these groups. Another group than the cluster's may be closed to this identity; its snapshots are left out,
/// and it is said.
async fn in_groups(
    groups: Vec<ResourceGroup>,
    own: &ResourceGroup,
    azure: &Azure,
    until: &Until,
) -> Result<Vec<Snapshot>, AnyError> {
    let mut snapshots = Vec::new();
    for group in groups {
        match azure.compute.list_snapshots(&group.subscription, Some(&group.name), until).await {
            Ok(listed) => snapshots.extend(listed.snapshots),
            Err(error) if group != *own => {
                tracing::warn!(group = group.name, %error, "the snapshots of a resource group cannot be listed");
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(snapshots)
}

// The snapshot of a VolumeSnapshot has a name that nobody knows, so that it may go.
const COLUMNS: [Column; 12] = [
    Column::new("NAME", Always),
    Column::new("RESOURCE GROUP", WithRoom(1)),
    Column::new("SNAPSHOT", Always),
    Column::new("CONTENT", Wide),
    Column::new("VOLUME", WithRoom(2)),
    Column::new("CLAIM", Always),
    Column::new("SOURCE", WithRoom(7)),
    Column::new("SIZE", WithRoom(4)),
    Column::new("REGION", WithRoom(3)),
    Column::new("STATE", Always),
    Column::new("FILLED", WithRoom(5)),
    Column::new("AGE", WithRoom(6)),
];

/// The fields of a snapshot.
pub(super) const FIELDS: &[Field] = &[
    ("name", "of the snapshot"),
    ("id", "its ARM id"),
    ("resourceGroup", "of the snapshot"),
    ("volumeSnapshot", "NAMESPACE/NAME, or null: of the content, else of the snapshot's tags"),
    ("content", "the VolumeSnapshotContent of this cluster that names it, or null"),
    ("source", "the ARM id of the disk that it was taken of, or null"),
    ("volume", "the PersistentVolume of that disk, or null"),
    ("claim", "of that volume, NAMESPACE/NAME, or null"),
    ("sizeGib", "GiB: the least size of a disk that is made from it"),
    ("location", "its region"),
    ("incremental", "whether it holds only what has changed since the one before"),
    ("state", "as Azure names it, such as Available or Pending"),
    ("ready", "whether disks can be made from it"),
    ("filledPercent", "how much of its content is there; null where Azure copies nothing in the background"),
    ("created", "when it was taken"),
];

/// Seconds, as kubectl shows an age.
fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

fn item(row: &Row<'_>, now: AzureTime) -> Item {
    let snapshot = row.snapshot;
    let filled = snapshot.completion.map(Completion::percent);
    let created = Timestamp::from_second(snapshot.created.unix_seconds()).ok().map(|at| at.to_string());
    let source = Some(&row.source).filter(|source| !source.is_empty());
    Item {
        name: snapshot.id.name().to_owned(),
        object: json!({"name": snapshot.id.name(), "id": snapshot.id.as_str(), "resourceGroup": snapshot.id.resource_group(),
            "volumeSnapshot": row.volume_snapshot, "content": row.content, "source": source, "volume": row.volume,
            "claim": row.claim, "sizeGib": snapshot.size.get(), "location": snapshot.location,
            "incremental": snapshot.incremental, "state": row.state, "ready": row.is_ready, "filledPercent": filled,
            "created": created}),
        cells: vec![
            snapshot.id.name().to_owned(),
            snapshot.id.resource_group().to_owned(),
            joined(row.volume_snapshot.clone()),
            joined(row.content.map(str::to_owned)),
            joined(row.volume.map(str::to_owned)),
            joined(row.claim.map(str::to_owned)),
            joined(source.map(|source| source.rsplit('/').next().unwrap_or(source).to_owned())),
            format!("{} GiB", snapshot.size.get()),
            snapshot.location.clone(),
            row.state.to_owned(),
            joined(filled.map(|percent| format!("{percent} %"))),
            age(now.seconds_since(snapshot.created)),
        ],
    }
}

fn of_rows(rows: &[Row<'_>], now: AzureTime) -> List {
    List::new("snapshot", &COLUMNS, rows.iter().map(|row| item(row, now)).collect())
}

#[cfg(test)]
#[cfg(feature = "emulator")]
pub(in crate::cli) mod fixtures;
#[cfg(test)]
#[cfg(feature = "emulator")]
mod tests;
