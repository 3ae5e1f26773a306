//! The device settings of the profile `advanced`.
//!
//! The paths come from the plan without `.` and `..` ([`lazuli_plan::disk::DeviceSetting`]) and stay below the
//! device's own folder in sysfs. The profile `basic` computes its values from a table of disk sizes that is not here;
//! it is reported and otherwise ignored, since it changes speed and never data.

use std::{fs, io::Write as _};

use lazuli_plan::disk::{DeviceSetting, PerfProfile, StageParameters};

use super::error::NodeError;
use crate::host::{Host, device::Device};

/// Writes the settings that the volume asks for.
pub(super) async fn apply(host: &Host, device: &Device, parameters: &StageParameters) -> Result<(), NodeError> {
    match parameters.perf_profile {
        PerfProfile::None => return Ok(()),
        PerfProfile::Basic => {
            tracing::warn!(device = device.name, "perfProfile basic is not applied on this node");
            return Ok(());
        }
        PerfProfile::Advanced => {}
    }
    let folder = host.root().join("sys/class/block").join(&device.name);
    let settings = parameters.device_settings.clone();
    let write = move || {
        for DeviceSetting { path, value } in settings {
            let path = folder.join(path);
            let written =
                fs::OpenOptions::new().write(true).open(&path).and_then(|mut file| file.write_all(value.as_bytes()));
            written.map_err(|source| NodeError::Setting { path, source })?;
        }
        Ok(())
    };
    tokio::task::spawn_blocking(write).await.map_err(|_| NodeError::Task)?
}
