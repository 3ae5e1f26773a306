//! The gRPC code of a mount that did not come to be.

use lazuli_host::mount::MountError;
use lazuli_model::fault::Code;

/// The code of an error of a mount, bind or unmount.
pub(crate) fn of_mount(error: &MountError) -> Code {
    match error {
        MountError::Occupied { .. } => Code::AlreadyExists,
        MountError::BadTarget { .. } => Code::InvalidArgument,
        MountError::Busy { .. } | MountError::NotEmpty { .. } => Code::FailedPrecondition,
        // It may still take effect.
        MountError::Call(_) => Code::Unavailable,
        _ => Code::Internal,
    }
}
