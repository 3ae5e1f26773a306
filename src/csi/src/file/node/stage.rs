//! Staging and unstaging.

use std::path::Path;

use lazuli_host::{
    Deadline,
    mount::{self, TargetKind, TargetState},
    mountinfo::Mount,
    smb::{self, Login, Replaces, Share, SmbError},
};
use lazuli_shares::{
    mount::{MountPlan, needs_account, plan},
    secret::Credentials,
};

use super::{
    Node,
    error::ShareError,
    keys::{Freshness, KeyRequest},
    request::{Desired, Stage},
};

/// A share whose mount is planned.
pub(super) struct Planned {
    pub(super) share: Share,
    /// What is known of its account already.
    credentials: Option<Credentials>,
}

/// Plans the mount. The key source is asked only where the account, and so the server, stands beside the key alone.
pub(super) async fn planned(node: &Node, desired: &Desired) -> Result<Planned, ShareError> {
    let mut request = desired.request.clone();
    let mut credentials = desired.credentials.clone();
    if needs_account(&request) {
        let found = ask(node, desired, Freshness::Cached).await?;
        request.account = Some(found.account.clone());
        credentials = Some(found);
    }
    let MountPlan { server, share, folder, creates_folder, options, is_read_only, key: _, warnings } =
        plan(&request, &node.config.defaults()).map_err(ShareError::Parameter)?;
    for warning in warnings {
        tracing::warn!(volume = request.volume_id, "{warning}");
    }
    let share = Share { server, share, folder, makes_folder: creates_folder, options, is_read_only };
    Ok(Planned { share, credentials })
}

/// Makes the volume ready to be published; repeating it is success.
pub(super) async fn stage(node: &Node, request: &Stage) -> Result<(), ShareError> {
    let planned = planned(node, &request.desired).await?;
    let replaces = match at(node, &request.staging).await? {
        Place::Bare => Replaces::Nothing,
        Place::Dead(error) => {
            told_dead(&request.staging, &error);
            Replaces::Dead
        }
        Place::Mounted(top) => return compatible(&planned.share, &top, &request.staging),
    };
    mount_share(node, &request.desired, planned, &request.staging, replaces).await
}

pub(super) fn told_dead(path: &Path, error: &str) {
    tracing::warn!(path = %path.display(), error, "the mount does not answer, and is replaced");
}

/// What is at a staging path.
pub(super) enum Place {
    Bare,
    Mounted(Mount),
    /// With what looking at it said.
    Dead(String),
}

/// Looks at a staging path, which may ask the server.
///
/// # Errors
/// When the server answers neither yes nor no: what is mounted may be alive.
pub(super) async fn at(node: &Node, staging: &Path) -> Result<Place, ShareError> {
    let deadline = Deadline::after(node.config.timeouts.look);
    Ok(match mount::state(&node.host, staging, deadline).await.map_err(ShareError::Mount)? {
        TargetState::Absent | TargetState::Bare(_) => Place::Bare,
        TargetState::Corrupted { error, .. } => Place::Dead(error),
        TargetState::Mounted(mounts) => mounts.into_iter().next_back().map_or(Place::Bare, Place::Mounted),
    })
}

/// Whether what is mounted is what was asked for, whichever driver mounted it.
fn compatible(share: &Share, top: &Mount, path: &Path) -> Result<(), ShareError> {
    if share.is_at(top) && top.read_only() == share.is_read_only {
        return Ok(());
    }
    Err(incompatible(share, share.is_read_only, top, path))
}

pub(super) fn incompatible(share: &Share, is_read_only: bool, top: &Mount, path: &Path) -> ShareError {
    let written = |read_only| if read_only { "read-only" } else { "writable" };
    ShareError::Incompatible {
        path: path.to_owned(),
        found: format!("{} of {}, {},", top.fs_type, top.source.display(), written(top.read_only())),
        wanted: format!("cifs of {}, {},", share.source(), written(is_read_only)),
    }
}

/// Mounts the share, with a fresh key where the one at hand is refused.
pub(super) async fn mount_share(
    node: &Node,
    desired: &Desired,
    planned: Planned,
    staging: &Path,
    replaces: Replaces,
) -> Result<(), ShareError> {
    let Planned { share, credentials } = planned;
    let deadline = Deadline::after(node.config.timeouts.mount);
    mount::ensure_target(&node.host, staging, TargetKind::Directory, deadline).await.map_err(ShareError::Mount)?;
    let (first, is_fresh) = match credentials {
        Some(known) => (known, false),
        // What was mounted with the key that is remembered is dead: the key may be why.
        None if replaces == Replaces::Dead => (ask(node, desired, Freshness::Fresh).await?, true),
        None => (ask(node, desired, Freshness::Cached).await?, false),
    };
    let refused = match smb::mount(&node.host, &share, &login(&first), staging, replaces, deadline).await {
        Ok(()) => return Ok(()),
        Err(error @ SmbError::Refused { .. }) => error,
        Err(error) => return Err(ShareError::Smb(error)),
    };
    if is_fresh || node.config.keys.is_none() {
        return Err(ShareError::Smb(refused));
    }
    match ask(node, desired, Freshness::Fresh).await {
        Ok(fresh) if fresh != first => {
            let again = smb::mount(&node.host, &share, &login(&fresh), staging, replaces, deadline).await;
            again.map_err(ShareError::Smb)
        }
        Ok(_) => Err(ShareError::Smb(refused)),
        Err(error) => {
            let error = crate::server::chain(&error);
            tracing::warn!(volume = desired.request.volume_id, error, "no other key to try");
            Err(ShareError::Smb(refused))
        }
    }
}

fn login(credentials: &Credentials) -> Login {
    Login { user: credentials.account.clone(), password: credentials.key.clone() }
}

/// Asks the key source.
async fn ask(node: &Node, desired: &Desired, freshness: Freshness) -> Result<Credentials, ShareError> {
    let keys = node.config.keys.as_ref().ok_or(ShareError::NoKeySource)?;
    let lazuli_shares::mount::Request { volume_id, context, .. } = &desired.request;
    let request = KeyRequest { volume_id: volume_id.clone(), context: context.clone(), freshness };
    let within = node.config.timeouts.key;
    let answer = tokio::time::timeout(within, keys.read(request)).await;
    answer.map_err(|_| ShareError::KeyTooLate(within))?.map_err(ShareError::Key)
}

/// Undoes staging, also what the Go driver staged; repeating it is success.
pub(super) async fn unstage(node: &Node, staging: &Path) -> Result<(), ShareError> {
    let deadline = Deadline::after(node.config.timeouts.release);
    mount::unmount(&node.host, staging, deadline).await.map(drop).map_err(ShareError::Mount)
}
