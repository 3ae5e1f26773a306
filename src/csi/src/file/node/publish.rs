//! Publishing and unpublishing. kubelet publishes again and again what is published (`requiresRepublish`): that is answered
//! by the mount table, without a question to the server or for a key.

use std::path::Path;

use lazuli_host::{
    Deadline,
    mount::{self, Done, TargetKind, as_mounted},
    mountinfo::{self, Mount},
    options::Options,
    smb::{self, Replaces},
};

use super::{
    Node,
    error::ShareError,
    request::Publish,
    stage::{Place, Planned, at, incompatible, mount_share, planned},
};
use crate::{calls::CallError as _, pod_mount::is_a_pod_s};

/// Shows the staged share at the target; repeating it is success.
pub(super) async fn publish(node: &Node, request: &Publish) -> Result<(), ShareError> {
    let host = &node.host;
    let planned = planned(node, &request.desired)?;
    let is_read_only = request.is_read_only || planned.is_read_only();
    let table = mount::table(host).await.map_err(ShareError::Mount)?;
    let at_target = mountinfo::at(&table, &as_mounted(&request.target));
    let is_cut_short = match at_target.last() {
        None => false,
        Some(top) if planned.is_at(top) && top.read_only() == is_read_only => return Ok(()),
        // Bound, and not made read-only yet.
        Some(top) if planned.is_at(top) && is_read_only => true,
        Some(top) => return Err(incompatible(&planned, is_read_only, top, &request.target)),
    };
    if request.is_alone && !is_cut_short {
        refuse_a_second_pod(&table, &planned, request)?;
    }
    match at(node, &request.staging).await? {
        Place::Mounted(top) if planned.is_at(&top) => {}
        Place::Mounted(_) | Place::Bare => return Err(ShareError::NotStaged(request.staging.clone())),
        Place::Dead(_) => {
            // kubelet stages once for all pods of a node: for a new one the mount is made anew here. Pods that have the
            // dead one keep it: it may heal, and only a restart gives them another.
            let within = node.config.timeouts.look;
            let turn = node.restaging.of(request.staging.clone());
            let _turn = tokio::time::timeout(within, turn.lock()).await;
            let _turn = _turn.map_err(|_| ShareError::Restaging(request.staging.clone()))?;
            if let Place::Dead(error) = at(node, &request.staging).await? {
                node.report_dead(&request.desired, &request.staging, &error);
                mount_share(node, &request.desired, planned, &request.staging, Replaces::Dead).await?;
            }
        }
    }
    let flags: &[&str] = if is_read_only { &["ro"] } else { &[] };
    let options = Options::parse(flags).map_err(|error| ShareError::Smb(smb::SmbError::Option(error)))?;
    let deadline = Deadline::after(node.config.timeouts.bind);
    let made = mount::ensure_target(host, &request.target, TargetKind::Directory, deadline).await;
    let made = made.map_err(ShareError::Mount)?;
    if let Err(error) = mount::bind(host, &request.staging, &request.target, &options, deadline).await {
        let error = ShareError::Mount(error);
        // kubelet will not unpublish after a final code, so what this call made must go.
        if made == Done::Now && !error.code().keeps_the_claim() {
            let _ = mount::remove_target(host, &request.target, deadline).await;
        }
        return Err(error);
    }
    Ok(())
}

/// `SINGLE_NODE_SINGLE_WRITER` is for one pod. The folder above the target has the volume's name; what was staged anew
/// since is another mount of the same share.
fn refuse_a_second_pod(table: &[Mount], planned: &Planned, request: &Publish) -> Result<(), ShareError> {
    let own = [as_mounted(&request.target), as_mounted(&request.staging)];
    let staged = mountinfo::at(table, &own[1]).last().map(|top| (top.device, top.root.clone()));
    let volume = |target: &Path| target.parent().and_then(Path::file_name).map(ToOwned::to_owned);
    let is_of_it = |found: &&Mount| {
        let is_same = staged.as_ref() == Some(&(found.device, found.root.clone()))
            || planned.is_at(found) && volume(&found.target) == volume(&own[0]);
        is_same && !own.contains(&found.target) && is_a_pod_s(&found.target)
    };
    match table.iter().find(is_of_it) {
        Some(other) => Err(ShareError::PublishedElsewhere(other.target.clone())),
        None => Ok(()),
    }
}

/// Unmounts the share from the target, also where the Go driver published it. Repeating it is success.
pub(super) async fn unpublish(node: &Node, target: &Path) -> Result<(), ShareError> {
    let deadline = Deadline::after(node.config.timeouts.release);
    mount::remove_target(&node.host, target, deadline).await.map_err(ShareError::Mount)
}
