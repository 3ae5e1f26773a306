//! Unstaging: looks at what [`lazuli_storage::staging::unstage`] asks for, unmounts, and proves that the disk may be
//! detached.

use std::path::Path;

use lazuli_host::{
    Deadline,
    device::{self, FindError},
    mount,
    release::{self, ReleaseError, Released},
};
use lazuli_model::VolumeId;
use lazuli_storage::staging::unstage::{AtLun, Look, Next, Request, Seen};

use super::{Node, attachment::locate, error::NodeError};

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
            Next::PathOfAnother(other) => return Err(NodeError::StagingOfAnother { path: staging.to_owned(), other }),
        }
    };
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
                Err(_) => None,
            });
        }
        Look::AtListed(lun) => {
            seen.at_listed = Some(match device::find_by_lun(host, lun.get().into()).await {
                Ok(disk) => Some(disk),
                Err(FindError::NotFound { .. }) => None,
                Err(error) => return Err(NodeError::Find(error)),
            });
        }
    }
    Ok(())
}
