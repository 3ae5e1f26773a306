//! Staging and unstaging.

use std::path::Path;

use lazuli_host::{
    Deadline,
    mount::{self, MountError, TargetKind, TargetState},
    mountinfo::Mount,
    smb::{self, Replaces, Share, SmbError},
};
use lazuli_model::Secret;
use lazuli_shares::{
    mount::{MountPlan, Server, plan},
    secret::{
        Credentials,
        login::{Login, Source, Step},
    },
};

use super::{
    Node,
    error::ShareError,
    event::described,
    keys::KeyRequest,
    metrics::Outcome,
    request::{Desired, Stage},
};

/// A share whose mount is planned.
#[derive(Debug, Clone)]
pub(super) struct Planned {
    server: Server,
    /// Its server is in words where it is that of a Secret.
    share: Share,
}

impl Planned {
    /// Whether the share is mounted without writes.
    pub(super) fn is_read_only(&self) -> bool {
        self.share.is_read_only
    }

    /// Whether a mount is of this share. Where the server is known only by a key, no key is asked for to compare it: nothing
    /// else of a volume is mounted at its paths.
    pub(super) fn is_at(&self, found: &Mount) -> bool {
        match self.server {
            Server::Named(_) => self.share.is_at(found),
            Server::OfSecret(_) | Server::OfRequest => self.share.is_at_some_server(found),
        }
    }
}

/// Plans by the request alone: what a mount is compared with.
pub(super) fn planned(node: &Node, desired: &Desired) -> Result<Planned, ShareError> {
    let plan = plan(&desired.request, &node.config.defaults()).map_err(ShareError::Parameter)?;
    Ok(shown(&desired.request, plan))
}

/// Plans a mount by the request and the account that came with its key.
fn planned_to_mount(node: &Node, desired: &Desired, account: Option<String>) -> Result<Planned, ShareError> {
    let request = lazuli_shares::mount::Request { account, ..desired.request.clone() };
    let plan = plan(&request, &node.config.defaults()).and_then(|plan| plan.to_mount(&request.volume_id));
    Ok(shown(&request, plan.map_err(ShareError::Parameter)?))
}

fn shown(request: &lazuli_shares::mount::Request, plan: MountPlan) -> Planned {
    let MountPlan { server, share, folder, creates_folder, options, is_read_only, key: _, warnings } = plan;
    for warning in warnings {
        tracing::warn!(volume = request.volume_id, "{warning}");
    }
    let share =
        Share { server: server.to_string(), share, folder, makes_folder: creates_folder, options, is_read_only };
    Planned { server, share }
}

/// Makes the volume ready to be published; repeating it is success.
pub(super) async fn stage(node: &Node, request: &Stage) -> Result<(), ShareError> {
    let planned = planned_to_mount(node, &request.desired, request.desired.request.account.clone())?;
    let replaces = match at(node, &request.staging).await? {
        Place::Bare => Replaces::Nothing,
        Place::Dead(error) => {
            node.report_dead(&request.desired, &request.staging, &error);
            Replaces::Dead
        }
        Place::Mounted(top) => return compatible(&planned, &top, &request.staging),
    };
    mount_share(node, &request.desired, planned, &request.staging, replaces).await
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
    let looked = mount::state(&node.host, staging, deadline).await.inspect_err(|error| {
        if matches!(error, MountError::Call(_)) {
            node.config.metrics.note_hung();
        }
    });
    Ok(match looked.map_err(ShareError::Mount)? {
        TargetState::Absent | TargetState::Bare(_) => Place::Bare,
        TargetState::Corrupted { error, .. } => Place::Dead(error),
        TargetState::Mounted(mounts) => mounts.into_iter().next_back().map_or(Place::Bare, Place::Mounted),
    })
}

/// Whether what is mounted is what was asked for, whichever driver mounted it.
fn compatible(planned: &Planned, top: &Mount, path: &Path) -> Result<(), ShareError> {
    if planned.is_at(top) && top.read_only() == planned.is_read_only() {
        return Ok(());
    }
    Err(incompatible(planned, planned.is_read_only(), top, path))
}

pub(super) fn incompatible(planned: &Planned, is_read_only: bool, top: &Mount, path: &Path) -> ShareError {
    let written = |read_only| if read_only { "read-only" } else { "writable" };
    ShareError::Incompatible {
        path: path.to_owned(),
        found: format!("{} of {}, {},", top.fs_type, top.source.display(), written(top.read_only())),
        wanted: format!("cifs of {}, {},", planned.share.source(), written(is_read_only)),
    }
}

/// Mounts the share, with another key where the one at hand is refused, and counts what became of it.
pub(super) async fn mount_share(
    node: &Node,
    desired: &Desired,
    planned: Planned,
    staging: &Path,
    replaces: Replaces,
) -> Result<(), ShareError> {
    let mounted = attempt(node, desired, planned, staging, replaces).await;
    node.config.metrics.note(mounted.as_ref().err().map_or(Outcome::Mounted, |error| described(error).outcome));
    mounted
}

async fn attempt(
    node: &Node,
    desired: &Desired,
    planned: Planned,
    staging: &Path,
    replaces: Replaces,
) -> Result<(), ShareError> {
    let deadline = Deadline::after(node.config.timeouts.mount);
    mount::ensure_target(&node.host, staging, TargetKind::Directory, deadline).await.map_err(ShareError::Mount)?;
    let source = node.config.keys.as_ref().map_or(Source::Request, |_| Source::Reader);
    let mut login = Login::new(desired.credentials.clone(), source);
    let mut refusal = None;
    loop {
        match login.step() {
            Step::Ask { refused } => match ask(node, desired, refused).await {
                Ok(credentials) => login.answered(credentials),
                Err(error) => return Err(no_other_key(error, refusal)),
            },
            Step::Mount(credentials) => {
                let share = located(node, desired, &planned, &credentials)?;
                match smb::mount(&node.host, &share, &of(credentials), staging, replaces, deadline).await {
                    Ok(()) => return Ok(()),
                    Err(error @ SmbError::Refused { .. }) => {
                        refusal = Some(error);
                        login.refused();
                    }
                    Err(error) => return Err(ShareError::Smb(error)),
                }
            }
            Step::GiveUp => return Err(refusal.map_or(ShareError::NoKeySource, ShareError::Smb)),
        }
    }
}

/// The share at its server, which may be that of the account that came with the key.
fn located(node: &Node, desired: &Desired, planned: &Planned, credentials: &Credentials) -> Result<Share, ShareError> {
    match planned.server {
        Server::Named(_) => Ok(planned.share.clone()),
        Server::OfSecret(_) | Server::OfRequest => {
            Ok(planned_to_mount(node, desired, Some(credentials.account.clone()))?.share)
        }
    }
}

/// Why there is no key to go on with: for the first question its own error, after a refusal both.
fn no_other_key(error: ShareError, refusal: Option<SmbError>) -> ShareError {
    match refusal {
        None => error,
        Some(source) => ShareError::NoOtherKey { other: Box::new(error), source },
    }
}

fn of(Credentials { account, key }: Credentials) -> smb::Login {
    smb::Login { user: account, password: key }
}

/// Asks the key source.
async fn ask(node: &Node, desired: &Desired, refused: Option<Secret>) -> Result<Credentials, ShareError> {
    let keys = node.config.keys.as_ref().ok_or(ShareError::NoKeySource)?;
    let lazuli_shares::mount::Request { volume_id, context, .. } = &desired.request;
    let request = KeyRequest { volume_id: volume_id.clone(), context: context.clone(), refused };
    let within = node.config.timeouts.key;
    let answer = tokio::time::timeout(within, keys.read(request)).await;
    answer.map_err(|_| ShareError::KeyTooLate(within))?.map_err(ShareError::Key)
}

/// Undoes staging, also what the Go driver staged; repeating it is success.
pub(super) async fn unstage(node: &Node, staging: &Path) -> Result<(), ShareError> {
    let deadline = Deadline::after(node.config.timeouts.release);
    mount::unmount(&node.host, staging, deadline).await.map(drop).map_err(ShareError::Mount)
}
