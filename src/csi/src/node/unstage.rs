//! Unstaging: looks at what [`lazuli_staging::unstage`] asks for, unmounts, and proves that the disk may be
//! detached.

use std::path::Path;

use lazuli_host::{
    Deadline,
    device::{self, FindError},
    mount, nvme,
    release::{self, ReleaseError, Released},
};
use lazuli_model::{Lun, VolumeId};
use lazuli_staging::unstage::{AtListed, AtLun, ListedAt, Look, Next, Request, Seen};
use lazuli_staging::{Device, Record};

use super::{Node, attachment::locate, error::NodeError};
use crate::server::chain;

/// Undoes staging and proves that the disk may be detached; repeating it is success.
pub(super) async fn unstage(node: &Node, volume: &str, staging: &Path) -> Result<(), NodeError> {
    let host = &node.host;
    let deadline = Deadline::after(node.config.timeouts.release);
    let request = Request { volume, staging };
    let mut seen = Seen::default();
    let device = loop {
        match seen.next(request) {
            Next::Look(look) => gather(node, request, look, deadline, &mut seen).await?,
            Next::Release(device) => break Some(device),
            Next::Nothing => break None,
            Next::ReleaseAll(lun, disks) => {
                any_released(node, lun, &disks, deadline).await?;
                break None;
            }
            Next::DisksHidden(lun) => return Err(NodeError::DisksHidden { lun }),
            Next::Silent(why) => return Err(NodeError::ReleaseUnproved { path: staging.to_owned(), why }),
            Next::PathOfAnother(other) => return Err(NodeError::StagingOfAnother { path: staging.to_owned(), other }),
        }
    };
    if let Some(record) = device.as_ref().and_then(|device| seen.missing_record(request, device)) {
        keep(node, record).await;
    }
    match (mount::unmount(host, staging, deadline).await, &device) {
        (Ok(_), _) => {}
        (Err(mount::MountError::Busy { .. }), Some(device)) => {
            let holders = release::holders(host, device).await;
            return Err(NodeError::Release(ReleaseError::InUse { path: device.path.clone(), holders }));
        }
        (Err(error), _) => return Err(NodeError::Mount(error)),
    }
    if let Some(device) = device {
        let released = release::ensure_released(host, &device, deadline).await.map_err(NodeError::Release)?;
        match released {
            Released::Free => {}
            Released::Gone => tracing::warn!(volume, device = device.name, "the disk was gone before it was unstaged"),
        }
    }
    node.retire(volume).await
}

/// Proves of each of these disks that it is released: any of them may be the one at the LUN.
async fn any_released(node: &Node, lun: Lun, disks: &[Device], deadline: Deadline) -> Result<(), NodeError> {
    for disk in disks {
        let released = release::ensure_released(&node.host, disk, deadline).await;
        released.map_err(|source| NodeError::AnyRelease { lun, device: disk.name.clone(), source })?;
    }
    Ok(())
}

/// Writes a record for a repeated unstage. Without it this one is carried out all the same.
async fn keep(node: &Node, record: Record) {
    let volume = record.volume_id.clone();
    // What was on the volume when it was here before is not forgotten by it.
    let past = node.look_up(&node.past, &volume).await;
    let (fs_uuid, fs_type) = past.map(|past| (past.fs_uuid, past.fs_type)).unwrap_or_default();
    if let Err(error) = node.remember(Record { fs_uuid, fs_type, ..record }).await {
        let error = chain(&error);
        tracing::warn!(volume, error, "the device of the volume is not recorded before its unmount");
    }
}

async fn gather(
    node: &Node,
    request: Request<'_>,
    look: Look,
    deadline: Deadline,
    seen: &mut Seen,
) -> Result<(), NodeError> {
    let host = &node.host;
    match look {
        Look::StagingPath => {
            seen.at_path = Some(mount::seen_at(host, request.staging, deadline).await.map_err(NodeError::Mount)?);
        }
        Look::Records => seen.records = Some(node.all_records().await.into_values().collect()),
        Look::Own => seen.own = Some(node.recall(request.volume).await),
        Look::AtLun(lun) => {
            seen.at_lun = Some(match device::find_by_lun(host, lun).await {
                Ok(disk) => AtLun::Disk(disk),
                Err(FindError::NotFound { .. }) => AtLun::Nothing,
                Err(_) => AtLun::Unclear,
            });
        }
        Look::Numbered(number) => {
            seen.numbered = Some(device::with_number(host, number).await.map_err(NodeError::Find)?);
        }
        Look::Listed => {
            let quick = deadline.capped(node.config.timeouts.instance);
            seen.listed = Some(match request.volume.parse::<VolumeId>() {
                Ok(id) => locate(node.imds.as_ref(), &id, quick).await,
                // No disk has such an id.
                Err(_) => ListedAt::Nowhere,
            });
        }
        Look::AtListed(lun) => {
            seen.at_listed = Some(match device::find_by_lun(host, lun.get().into()).await {
                Ok(disk) => AtListed::Disk(disk),
                Err(FindError::NotFound { excluded, .. }) if excluded.is_empty() => AtListed::Nothing,
                // What counts as the system's may be the volume's all the same.
                Err(FindError::NotFound { .. } | FindError::Unplaced { .. }) => AtListed::Unplaced,
                Err(error) => return Err(NodeError::Find(error)),
            });
        }
        Look::DataDisks => seen.data_disks = Some(nvme::data_disks(host).await.map_err(NodeError::Find)?),
    }
    Ok(())
}
