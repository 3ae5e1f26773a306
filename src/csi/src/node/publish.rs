//! Publishing and unpublishing.

use std::path::{Path, PathBuf};

use crate::{calls::CallError as _, pod_mount::is_a_pod_s};

use super::{
    Node, device_ownership::belongs_to, error::NodeError, measure::under, raw::staged_block, request::Publish,
};
use lazuli_host::{
    Deadline, device,
    mount::{self, Done, TargetKind, TargetState, as_mounted},
    mountinfo::Mount,
    options::Options,
};

/// Shows the staged volume at the target; repeating it is success.
pub(super) async fn publish(node: &Node, request: &Publish) -> Result<(), NodeError> {
    let deadline = Deadline::after(node.config.timeouts.mount);
    let host = &node.host;
    let (source, kind, shown) = match &request.block {
        None => {
            let staged = mount::state(host, &request.staging, deadline).await.map_err(NodeError::Mount)?;
            let top = match staged {
                TargetState::Mounted(mounts) => mounts.into_iter().next_back(),
                TargetState::Corrupted { error, .. } => {
                    return Err(NodeError::Dead { path: request.staging.clone(), error });
                }
                TargetState::Absent | TargetState::Bare(_) => None,
            };
            let Some(top) = top else { return Err(NodeError::NotStaged(request.staging.clone())) };
            // The path may hold another volume, and a pod must not see that.
            let device = under(node, &top).await?;
            if !belongs_to(node, &request.volume, &device).await {
                return Err(NodeError::NotStaged(request.staging.clone()));
            }
            (request.staging.clone(), TargetKind::Directory, Shown::Filesystem(top))
        }
        Some(parameters) => {
            let device = staged_block(node, &request.volume, &request.staging, parameters).await?;
            let real = device::real_node(&device);
            (real.clone(), TargetKind::File, Shown::Node(real))
        }
    };
    if request.alone {
        let table = mount::table(host).await.map_err(NodeError::Mount)?;
        let own = [as_mounted(&request.target), as_mounted(&source)];
        let elsewhere =
            table.iter().find(|mount| shown.is(mount) && !own.contains(&mount.target) && is_a_pod_s(&mount.target));
        if let Some(elsewhere) = elsewhere {
            return Err(NodeError::PublishedElsewhere(elsewhere.target.clone()));
        }
    }
    let before = mount::state(host, &request.target, deadline).await.map_err(NodeError::Mount)?;
    if let TargetState::Corrupted { error, .. } = before {
        tracing::warn!(target = %request.target.display(), error, "a dead mount is taken away");
        mount::unmount(host, &request.target, deadline).await.map_err(NodeError::Mount)?;
    }
    let flags: &[&str] = if request.read_only { &["ro"] } else { &[] };
    let options = Options::parse(flags).map_err(NodeError::Flags)?;
    let made = mount::ensure_target(host, &request.target, kind, deadline).await.map_err(NodeError::Mount)?;
    if let Err(error) = mount::bind(host, &source, &request.target, &options, deadline).await {
        let error = NodeError::Mount(error);
        // kubelet will not unpublish after a final code, so what this call made must go.
        if made == Done::Now && !error.code().keeps_the_claim() {
            let _ = mount::remove_target(host, &request.target, deadline).await;
        }
        return Err(error);
    }
    Ok(())
}

/// What a published target shows.
enum Shown {
    /// The file system of this mount.
    Filesystem(Mount),
    /// A device node.
    Node(PathBuf),
}

impl Shown {
    fn is(&self, mount: &Mount) -> bool {
        match self {
            Self::Filesystem(staged) => mount.device == staged.device && mount.root == staged.root,
            Self::Node(node) => {
                matches!(mount.fs_type.as_str(), "devtmpfs" | "tmpfs") && mount.root.file_name() == node.file_name()
            }
        }
    }
}

/// Unmounts the volume from the target, also where the Go driver published it. Repeating it is success.
pub(super) async fn unpublish(node: &Node, target: &Path) -> Result<(), NodeError> {
    let deadline = Deadline::after(node.config.timeouts.mount);
    mount::remove_target(&node.host, target, deadline).await.map_err(NodeError::Mount)
}
