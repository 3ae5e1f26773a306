//! What no node would carry out is refused before a disk is made for it.
//!
//! Which mount flags a node takes is said by [`lazuli_host`], once, for both sides.

use csi_proto::csi::{CreateVolumeRequest, volume_capability::AccessType};
use lazuli_host::options::Options;
use lazuli_model::fault::Code;
use tonic::Status;

use super::server::status;

/// Refuses mount flags that would make another operation of the mount: every stage of the volume would fail.
pub(super) fn check(request: &CreateVolumeRequest) -> Result<(), Status> {
    let refused = |text: String| Err(status(Code::InvalidArgument, text));
    for capability in &request.volume_capabilities {
        if let Some(AccessType::Mount(mount)) = &capability.access_type
            && let Err(error) = Options::parse(&mount.mount_flags)
        {
            return refused(format!("mountOptions are {:?}: {error}", mount.mount_flags.join(",")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use csi_proto::csi::{VolumeCapability, volume_capability::MountVolume};

    use super::*;

    fn verdict(flags: &[&str]) -> Result<(), String> {
        let mount_flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let mount = MountVolume { mount_flags, ..Default::default() };
        let request = CreateVolumeRequest {
            volume_capabilities: vec![VolumeCapability {
                access_type: Some(AccessType::Mount(mount)),
                ..Default::default()
            }],
            ..Default::default()
        };
        check(&request).map_err(|status| {
            assert_eq!(status.code(), tonic::Code::InvalidArgument);
            status.message().to_owned()
        })
    }

    #[test]
    fn mount_flags_that_no_stage_would_take_make_no_disk() {
        assert_eq!(verdict(&["noatime,discard", "barrier=1"]), Ok(()));
        for flag in ["bind", "noatime,remount", "a\0b", "logdev=/dev/sdc", "errors=panic"] {
            let message = verdict(&[flag]).unwrap_err();
            assert!(message.starts_with("mountOptions are"), "{message}");
        }
        assert!(verdict(&["noatime,remount"]).unwrap_err().contains("mount option remount is not allowed"));
    }
}
