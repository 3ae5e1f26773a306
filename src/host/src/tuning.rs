//! Settings of a block device: files below its own folder in sysfs.
//!
//! Which file and what goes into it is the caller's business; that it changes how fast this disk is, and neither what
//! becomes of it nor anything of another, is this module's. The folder is full of links to other devices and of files
//! that take a device away; what may be written is on the one list of [`DeviceSetting`], and no link is followed.

use std::{
    fs,
    io::{self, Write as _},
    path::PathBuf,
};

use lazuli_volume::DeviceSetting;

use super::{Host, device::Device};

/// A setting that could not be written.
#[derive(Debug, thiserror::Error)]
pub enum TuningError {
    /// It is none of the settings that may be written.
    #[error("{0:?} is no setting of a disk's speed: allowed are {allowed}", allowed = DeviceSetting::allowed())]
    Outside(String),
    /// The kernel has no such file, or refused the value.
    #[error("cannot write {value:?} into {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What was to be written.
        value: String,
        /// What the kernel says.
        #[source]
        source: io::Error,
    },
    /// The runtime is going down.
    #[error("the setting {0:?} was given up: the process is stopping")]
    Stopping(String),
}

/// Writes `value` into the file at `setting` below `/sys/class/block/<device>/`.
///
/// # Errors
/// When that is none of the settings of a disk's speed, the file is not there, or the kernel refuses the value.
pub async fn set(host: &Host, device: &Device, setting: &str, value: &str) -> Result<(), TuningError> {
    let folder = host.root().join("sys/class/block").join(&device.name);
    let (name, value) = (setting.to_owned(), value.to_owned());
    let write = move || write(folder, name, value);
    let done = tokio::task::spawn_blocking(write).await;
    done.map_err(|_| TuningError::Stopping(setting.to_owned()))?
}

fn write(folder: PathBuf, setting: String, value: String) -> Result<(), TuningError> {
    if !DeviceSetting::is_allowed(&setting) {
        return Err(TuningError::Outside(setting));
    }
    let of_queue = setting.starts_with("queue/");
    let path = folder.join(&setting);
    // No link on the way may lead elsewhere; `device` is one itself and is allowed by name.
    let queue = folder.join("queue");
    let inside = || io::Result::Ok(!of_queue || path.canonicalize()?.starts_with(queue.canonicalize()?));
    // Opened, never made: sysfs has the file or the device has no such setting.
    let open = || fs::OpenOptions::new().write(true).open(&path);
    let written = match inside() {
        Ok(false) => return Err(TuningError::Outside(setting)),
        Ok(true) => open().and_then(|mut file| file.write_all(value.as_bytes())),
        Err(source) => Err(source),
    };
    written.map_err(|source| TuningError::Write { path, value, source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{device_number::DeviceNumber, lab::TempDir};

    fn device() -> Device {
        Device {
            name: "sdx".to_owned(),
            path: "/dev/sdx".into(),
            number: DeviceNumber { major: 8, minor: 0 },
            size_bytes: 0,
            read_only: false,
            lun: None,
            scsi: None,
            nvme: None,
            sequence: None,
        }
    }

    #[tokio::test]
    async fn a_setting_is_written_into_a_file_of_the_device_that_is_there() {
        let lab = TempDir::new("tuning");
        let root = lab.dir("root");
        let queue = root.join("sys/class/block/sdx/queue");
        fs::create_dir_all(&queue).unwrap();
        fs::write(queue.join("scheduler"), "").unwrap();
        let host = Host::new().with_root(&root);
        set(&host, &device(), "queue/scheduler", "none").await.unwrap();
        assert_eq!(fs::read_to_string(queue.join("scheduler")).unwrap(), "none");
        let missing = set(&host, &device(), "queue/depth", "1").await.unwrap_err();
        assert!(missing.to_string().contains("queue/depth"), "{missing}");
        assert!(!queue.join("depth").exists());
    }

    #[tokio::test]
    async fn a_setting_is_about_the_speed_of_its_own_disk_and_nothing_else() {
        let lab = TempDir::new("tuning");
        let root = lab.dir("root");
        let queue = root.join("sys/class/block/sdx/queue");
        fs::create_dir_all(&queue).unwrap();
        std::os::unix::fs::symlink(&root, queue.join("link")).unwrap();
        fs::write(root.join("elsewhere"), "").unwrap();
        let host = Host::new().with_root(&root);
        for setting in [
            "",
            ".",
            "/etc/passwd",
            "../sdy/queue/scheduler",
            "queue/../../x",
            "queue//x",
            "subsystem/sda/device/delete",
            "device/delete",
            "device/state",
            "queue/link/elsewhere",
        ] {
            let refused = set(&host, &device(), setting, "1").await.unwrap_err();
            assert!(matches!(refused, TuningError::Outside(_)), "{setting}: {refused}");
        }
        assert_eq!(fs::read_to_string(root.join("elsewhere")).unwrap(), "");
    }
}
