//! Settings of a block device: files below its own folder in sysfs.
//!
//! Which file and what goes into it is the caller's business; that it is a file of this device and of no other is this
//! module's. Settings change how fast a disk is, never what is on it.

use std::{fs, io, io::Write as _, path::PathBuf};

use super::{Host, device::Device};

/// A setting that could not be written.
#[derive(Debug, thiserror::Error)]
pub enum TuningError {
    /// The path leads out of the device's folder.
    #[error("the setting {0:?} is no file below the folder of a block device")]
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
/// When the path holds `..` or begins at the root, the file is not there, or the kernel refuses the value.
pub async fn set(host: &Host, device: &Device, setting: &str, value: &str) -> Result<(), TuningError> {
    let plain = |part: &str| !matches!(part, "" | "." | "..");
    if !setting.split('/').all(plain) {
        return Err(TuningError::Outside(setting.to_owned()));
    }
    let path = host.root().join("sys/class/block").join(&device.name).join(setting);
    let (name, value) = (setting.to_owned(), value.to_owned());
    let write = move || {
        // Opened, never made: sysfs has the file or the device has no such setting.
        let written =
            fs::OpenOptions::new().write(true).open(&path).and_then(|mut file| file.write_all(value.as_bytes()));
        written.map_err(|source| TuningError::Write { path, value, source })
    };
    tokio::task::spawn_blocking(write).await.map_err(|_| TuningError::Stopping(name))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{device_number::DeviceNumber, lab::TempDir};

    fn device() -> Device {
        Device {
            name: "sdx".to_owned(),
            path: "/dev/sdx".into(),
            number: DeviceNumber { major: 8, minor: 0 },
            size_bytes: 0,
            read_only: false,
            lun: None,
            scsi: None,
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
    async fn a_setting_never_leaves_the_folder_of_its_device() {
        let host = Host::new().with_root("/nowhere");
        for setting in ["", "/etc/passwd", "../sdy/queue/scheduler", "queue/../../x", "queue//x", "."] {
            let refused = set(&host, &device(), setting, "1").await.unwrap_err();
            assert!(matches!(refused, TuningError::Outside(_)), "{setting}: {refused}");
        }
    }
}
