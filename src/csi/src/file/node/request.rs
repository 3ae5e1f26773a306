//! Requests, parsed once.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    path::PathBuf,
};

use csi_proto::csi::{NodePublishVolumeRequest, NodeStageVolumeRequest, VolumeCapability, volume_capability};
use lazuli_model::AccessMode;
use lazuli_shares::{
    mount,
    secret::{ACCOUNT_KEY, ACCOUNT_NAME, Credentials, CredentialsError, credentials, key_source},
    volume_id::ShareVolumeId,
};

use super::error::ShareError;
use crate::{
    capability::{capability, ordered},
    fields::{FieldError, absolute, required},
};

/// The attribute of an inline volume of a Pod.
const EPHEMERAL: &str = "csi.storage.k8s.io/ephemeral";

/// A share that is to be mounted.
#[derive(Debug, Clone)]
pub(super) struct Desired {
    pub(super) request: mount::Request,
    /// What the secrets of the request hold.
    pub(super) credentials: Option<Credentials>,
}

/// A parsed `NodeStageVolume`.
#[derive(Debug, Clone)]
pub(super) struct Stage {
    pub(super) desired: Desired,
    pub(super) staging: PathBuf,
}

/// A parsed `NodePublishVolume`.
#[derive(Debug, Clone)]
pub(super) struct Publish {
    pub(super) desired: Desired,
    pub(super) staging: PathBuf,
    pub(super) target: PathBuf,
    pub(super) is_read_only: bool,
    /// Whether one target is all that the access mode allows.
    pub(super) is_alone: bool,
}

/// The secrets of a request, on their way from the wire.
struct Secrets(HashMap<String, String>);

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(lazuli_model::REDACTED)
    }
}

/// A mounted capability.
struct Mounted {
    mode: AccessMode,
    flags: Vec<String>,
    group: String,
}

/// The capability. Its `fs_type` does not count, as with the Go driver: external-provisioner fills it in with a type of
/// disks.
fn mounted(wire: Option<VolumeCapability>) -> Result<Mounted, ShareError> {
    let wire = wire.ok_or(FieldError::Missing("volume_capability"))?;
    let mode = capability(&wire).access_mode;
    match wire.access_type {
        None => Err(ShareError::Capability("it has neither block nor mount; a share is mounted")),
        Some(volume_capability::AccessType::Block(_)) => {
            Err(ShareError::Capability("a share is no block device; allowed is volumeMode Filesystem"))
        }
        Some(_) if mode == AccessMode::Unknown => Err(ShareError::Capability("it has no access mode that is known")),
        Some(volume_capability::AccessType::Mount(found)) => {
            Ok(Mounted { mode, flags: found.mount_flags, group: found.volume_mount_group })
        }
    }
}

impl Desired {
    fn parse(
        volume_id: String,
        context: HashMap<String, String>,
        secrets: Secrets,
        mounted: Mounted,
    ) -> Result<Self, ShareError> {
        let context = ordered(context);
        let credentials = of_secrets(&volume_id, &context, &secrets).map_err(ShareError::Secrets)?;
        let request = mount::Request {
            volume_id,
            context,
            account: credentials.as_ref().map(|found| found.account.clone()),
            mount_flags: mounted.flags,
            mount_group: mounted.group,
            is_read_only: mounted.mode.is_read_only(),
        };
        Ok(Self { request, credentials })
    }
}

/// What the secrets hold. Secrets without a key are none: they may hold tokens of the Pod. The account may stand in the
/// volume alone.
fn of_secrets(
    volume_id: &str,
    context: &BTreeMap<String, String>,
    Secrets(secrets): &Secrets,
) -> Result<Option<Credentials>, CredentialsError> {
    let all = || secrets.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    match credentials(all()) {
        Ok(found) => Ok(Some(found)),
        Err(CredentialsError::Missing(what)) => {
            let named = key_source(context, ShareVolumeId::parse(volume_id).ok().as_ref()).ok();
            let account = named.and_then(|source| source.account).filter(|_| what == ACCOUNT_NAME);
            match credentials(all().chain(account.as_deref().map(|account| (ACCOUNT_NAME, account)))) {
                Ok(found) => Ok(Some(found)),
                // Whether the key or the name is missed first is the other function's order.
                Err(CredentialsError::Missing(_)) if !has_key(secrets) => Ok(None),
                Err(error) => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}

fn has_key(secrets: &HashMap<String, String>) -> bool {
    let is_key = |key: &str| key.eq_ignore_ascii_case(ACCOUNT_KEY) || key.eq_ignore_ascii_case("accountkey");
    secrets.iter().any(|(key, value)| is_key(key) && !value.trim().is_empty())
}

impl Stage {
    pub(super) fn parse(wire: NodeStageVolumeRequest) -> Result<Self, ShareError> {
        let secrets = Secrets(wire.secrets);
        let volume = required("volume_id", wire.volume_id)?;
        let staging = absolute("staging_target_path", wire.staging_target_path)?;
        let mounted = mounted(wire.volume_capability)?;
        Ok(Self { desired: Desired::parse(volume, wire.volume_context, secrets, mounted)?, staging })
    }
}

impl Publish {
    pub(super) fn parse(wire: NodePublishVolumeRequest) -> Result<Self, ShareError> {
        let secrets = Secrets(wire.secrets);
        let volume = required("volume_id", wire.volume_id)?;
        let target = absolute("target_path", wire.target_path)?;
        let mounted = mounted(wire.volume_capability)?;
        let mode = mounted.mode;
        // The planner says why inline volumes are refused; they have no staging path.
        let is_inline =
            wire.volume_context.iter().any(|(key, value)| key.eq_ignore_ascii_case(EPHEMERAL) && value == "true");
        if wire.staging_target_path.is_empty() && !is_inline {
            return Err(ShareError::NotStaged(PathBuf::from("(no staging_target_path is given)")));
        }
        let staging = PathBuf::from(wire.staging_target_path);
        if !staging.is_absolute() && !is_inline {
            return Err(FieldError::Relative { what: "staging_target_path", path: staging }.into());
        }
        Ok(Self {
            desired: Desired::parse(volume, wire.volume_context, secrets, mounted)?,
            staging,
            target,
            is_read_only: mount::publish(wire.readonly, mode).is_read_only,
            is_alone: mode == AccessMode::SingleNodeSingleWriter,
        })
    }
}
