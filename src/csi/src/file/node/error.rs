//! Why a node call about a share failed, and the code that kubelet gets; how it reads them is said in the node service of
//! disks. A share is mounted in one step, the last one: so a failure that is final leaves nothing behind.

use std::path::PathBuf;

use lazuli_host::{mount::MountError, smb::SmbError, stats::StatsError};
use lazuli_model::{fault::Code, parameter::ParameterError};
use lazuli_shares::secret::CredentialsError;
use lazuli_telemetry::panics::Panicked;

use super::keys::KeyError;
use crate::{calls::CallError, fields::FieldError, locks::InProgress, mount_code::of_mount};

/// Why a node call about a share failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ShareError {
    #[error(transparent)]
    Field(#[from] FieldError),
    #[error("the volume capability cannot be used: {0}")]
    Capability(&'static str),
    #[error("the share cannot be mounted as it is asked for")]
    Parameter(#[source] ParameterError),
    #[error("the secrets of the request cannot be used")]
    Secrets(#[source] CredentialsError),
    #[error(transparent)]
    InProgress(#[from] InProgress),
    #[error(transparent)]
    Key(KeyError),
    #[error(
        "the request has no secrets, and this node plugin has no other source of keys: name a Secret with \
         azurestorageaccountname and azurestorageaccountkey as nodeStageSecretRef of the PersistentVolume"
    )]
    NoKeySource,
    #[error("{0:?} passed while the key of the account was asked for")]
    KeyTooLate(std::time::Duration),
    #[error("the share is not mounted")]
    Smb(#[source] SmbError),
    /// The server refuses the key, and there is no other.
    #[error("the share is not mounted, and no other key is there ({})", crate::server::chain(other))]
    NoOtherKey {
        /// What the key source said.
        other: Box<ShareError>,
        #[source]
        source: SmbError,
    },
    #[error("cannot mount or unmount")]
    Mount(#[source] MountError),
    #[error("{} has {found} mounted, {wanted} was asked for", path.display())]
    Incompatible { path: PathBuf, found: String, wanted: String },
    #[error("a dead mount at {} is being replaced for another pod; it is looked at again", .0.display())]
    Restaging(PathBuf),
    #[error("the volume is not staged at {}", .0.display())]
    NotStaged(PathBuf),
    #[error("the volume is published at {} and its access mode allows one pod only", .0.display())]
    PublishedElsewhere(PathBuf),
    #[error("no volume is at {}", .0.display())]
    NoVolume(PathBuf),
    #[error("the volume cannot be measured: see whether its server can be reached from this node")]
    Stats(#[source] StatsError),
    #[error("the task of this call was lost")]
    Task,
    #[error("the call was broken off; the log of this process says where")]
    Panicked(#[source] Panicked),
}

impl CallError for ShareError {
    fn code(&self) -> Code {
        match self {
            Self::Field(_) | Self::Capability(_) | Self::Secrets(_) => Code::InvalidArgument,
            Self::Parameter(error) => error.code(),
            Self::InProgress(_) => Code::Aborted,
            Self::Key(KeyError::Refused(_)) => Code::PermissionDenied,
            Self::Key(KeyError::NoKey(_)) | Self::NoKeySource => Code::FailedPrecondition,
            Self::Smb(error) | Self::NoOtherKey { source: error, .. } => of_smb(error),
            Self::Mount(error) => of_mount(error),
            Self::Incompatible { .. } => Code::AlreadyExists,
            Self::NotStaged(_) | Self::PublishedElsewhere(_) => Code::FailedPrecondition,
            Self::NoVolume(_) => Code::NotFound,
            Self::Stats(_)
            | Self::Key(KeyError::Unavailable(_))
            | Self::KeyTooLate(_)
            | Self::Restaging(_)
            // What it did before it was lost may have taken effect: kubelet must not take it for undone.
            | Self::Task
            | Self::Panicked(_) => Code::Unavailable,
        }
    }

    fn lost() -> Self {
        Self::Task
    }

    fn panicked(panicked: Panicked) -> Self {
        Self::Panicked(panicked)
    }
}

fn of_smb(error: &SmbError) -> Code {
    match error {
        SmbError::Refused { .. } => Code::PermissionDenied,
        SmbError::NoShare { .. } => Code::NotFound,
        SmbError::Option(_) | SmbError::Rejected { .. } | SmbError::TooLong { .. } => Code::InvalidArgument,
        SmbError::NoModule | SmbError::NotSupported { .. } => Code::FailedPrecondition,
        SmbError::Target(error) => of_mount(error),
        SmbError::Unreachable { .. }
        | SmbError::Unresolved { .. }
        | SmbError::ResolverSilent { .. }
        | SmbError::NoAddress { .. }
        // It may still take effect.
        | SmbError::Call(_)
        | SmbError::Program(_) => Code::Unavailable,
        _ => Code::Internal,
    }
}
