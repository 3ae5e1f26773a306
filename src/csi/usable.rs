//! What no node would carry out is refused before a disk is made for it.
//!
//! Which mount flags and which settings of a device a node takes is said by [`crate::host`], once, for both sides.

use csi_proto::csi::{CreateVolumeRequest, volume_capability::AccessType};
use lazuli_plan::fault::Code;
use tonic::Status;

use super::server::{chain, status};
use crate::host::{options::Options, tuning};

/// The prefix of parameters that are written into files of the device, in any letter case.
const DEVICE_SETTING: &str = "device-setting";

/// Refuses mount flags that would make another operation of the mount, and settings that are none of a disk's speed:
/// every stage of the volume would fail.
pub(super) fn on_a_node(request: &CreateVolumeRequest) -> Result<(), Status> {
    let refused = |text: String| Err(status(Code::InvalidArgument, text));
    for capability in &request.volume_capabilities {
        if let Some(AccessType::Mount(mount)) = &capability.access_type
            && let Err(error) = Options::parse(&mount.mount_flags)
        {
            return refused(format!("mountOptions are {:?}: {error}", mount.mount_flags.join(",")));
        }
    }
    for (key, value) in request.parameters.iter().chain(&request.mutable_parameters) {
        if let Some((head, setting)) = key.split_once('/')
            && head.eq_ignore_ascii_case(DEVICE_SETTING)
            && let Err(error) = tuning::check(setting)
        {
            return refused(format!("parameter {key} is {value:?}: {}", chain(&error)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use csi_proto::csi::{VolumeCapability, volume_capability::MountVolume};

    use super::*;

    fn verdict(flags: &[&str], parameters: &[(&str, &str)]) -> Result<(), String> {
        let mount_flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let mount = MountVolume { mount_flags, ..Default::default() };
        let request = CreateVolumeRequest {
            volume_capabilities: vec![VolumeCapability {
                access_type: Some(AccessType::Mount(mount)),
                ..Default::default()
            }],
            parameters: parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            ..Default::default()
        };
        on_a_node(&request).map_err(|status| {
            assert_eq!(status.code(), tonic::Code::InvalidArgument);
            status.message().to_owned()
        })
    }

    #[test]
    fn mount_flags_that_no_stage_would_take_make_no_disk() {
        assert_eq!(verdict(&["noatime,discard", "barrier=1"], &[]), Ok(()));
        for flag in ["bind", "noatime,remount", "a\0b"] {
            let message = verdict(&[flag], &[]).unwrap_err();
            assert!(message.starts_with("mountOptions are"), "{message}");
        }
        assert!(verdict(&["noatime,remount"], &[]).unwrap_err().contains("mount option remount is not allowed"));
    }

    #[test]
    fn a_setting_that_no_node_writes_makes_no_disk() {
        for good in ["device-setting/queue/scheduler", "Device-Setting/device/timeout"] {
            assert_eq!(verdict(&[], &[(good, "1")]), Ok(()));
        }
        for bad in ["device-setting/device/delete", "device-setting/queue/../x", "device-setting/"] {
            let message = verdict(&[], &[(bad, "1")]).unwrap_err();
            assert!(message.contains(bad) && message.contains("queue/"), "{message}");
        }
    }
}
