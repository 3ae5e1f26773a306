//! Since when a device with the same content has stood for a volume, in this process.
//!
//! The instance metadata lags. It may still name a disk that has left the VM while another disk of the same size is at
//! its LUN already. While it lags, the metadata confirms the wrong disk. A node that had one of the two volumes before
//! notices it: the file system's UUID differs from the one recorded for this volume, or the file system is gone, or its
//! UUID is recorded for another volume. The device is then refused until the metadata has named the same disk for longer
//! than it lags. After that the difference has another cause: an operator reformatted the volume, made it anew under its
//! old name, or copied it from the other volume. [`lazuli_staging::device_identity`] decides that; this remembers since
//! when.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use lazuli_host::device::Device;
use lazuli_staging::{
    Refusal,
    device_identity::{Identity, Metadata, Sighting, Stood},
};
use tokio::time::Instant;

/// How many volumes that are here no more are remembered.
pub(super) const MOST_REMEMBERED: usize = 256;

/// The devices that have stood for volumes and were not used yet, by volume.
#[derive(Debug, Default)]
pub(super) struct IdentityChecks(Mutex<BTreeMap<String, Standing>>);

/// What has stood for a volume.
#[derive(Debug)]
struct Standing {
    device: Device,
    found: String,
    sighting: Sighting<Instant>,
}

impl IdentityChecks {
    fn standings(&self) -> MutexGuard<'_, BTreeMap<String, Standing>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a look at a device, and gives for how long, without a gap, the same device with the same content has stood
    /// for the volume.
    pub(super) fn look(&self, volume: &str, device: &Device, found: &str, metadata: Metadata) -> Stood {
        let mut standings = self.standings();
        let now = Instant::now();
        standings.retain(|_, standing| !standing.sighting.is_lost(now));
        let before = standings.get(volume).filter(|before| before.device == *device && before.found == found);
        let sighting = Sighting::of(before.map(|before| &before.sighting), metadata, now);
        let standing = Standing { device: device.clone(), found: found.to_owned(), sighting };
        standings.insert(volume.to_owned(), standing);
        sighting.stood()
    }

    /// Notes what the metadata says: where it names another disk, what stood for the volume was another disk.
    pub(super) fn heard(&self, volume: &str, identity: &Identity) {
        if identity.contradicts().is_some() {
            self.forget(volume);
        }
    }

    /// Notes that the volume was refused: for some reasons what stands for it does not count from now on.
    pub(super) fn refused(&self, volume: &str, refusal: &Refusal) {
        if refusal.ends_sighting() {
            self.forget(volume);
        }
    }

    /// The device is used, or the disk left: what stands for the volume next is looked at anew.
    pub(super) fn forget(&self, volume: &str) {
        self.standings().remove(volume);
    }

    /// Makes all that stands so much older.
    #[cfg(test)]
    pub(super) fn age(&self, by: std::time::Duration) {
        for standing in self.standings().values_mut() {
            standing.sighting.since -= by;
            standing.sighting.confirmed = standing.sighting.confirmed.map(|confirmed| confirmed - by);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lazuli_host::device_number::DeviceNumber;
    use lazuli_staging::device_identity::LONGEST_GAP;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn device(minor: u32) -> Device {
        Device {
            name: format!("sd{minor}"),
            path: format!("/dev/sd{minor}").into(),
            number: DeviceNumber { major: 8, minor },
            size_bytes: 1 << 30,
            lun: Some(3),
            scsi: None,
            nvme: None,
            read_only: false,
            sequence: None,
        }
    }

    /// Silence that lasts longer than the metadata lags makes its first answer no older confirmation.
    #[tokio::test(start_paused = true)]
    async fn time_that_passes_in_silence_confirms_no_device() {
        let checks = IdentityChecks::default();
        let confirms = Metadata::Confirms(None);
        let confirmed = |minor: u32, found: &str, metadata: Metadata| {
            checks.look("a", &device(minor), found, metadata).confirmed_for
        };
        for metadata in [Metadata::Silent, Metadata::Unlisted, Metadata::Silent] {
            assert_eq!(confirmed(1, "x", metadata), Duration::ZERO);
            tokio::time::advance(4 * MINUTE).await;
        }
        assert_eq!(checks.look("a", &device(1), "x", confirms).seen_for, 12 * MINUTE);
        assert_eq!(confirmed(1, "x", confirms), Duration::ZERO);
        tokio::time::advance(MINUTE).await;
        // It goes on in silence, and from the beginning with another content, another device, or after a gap.
        assert_eq!(confirmed(1, "x", Metadata::Silent), MINUTE);
        assert_eq!(confirmed(1, "x", confirms), MINUTE);
        assert_eq!(confirmed(1, "y", confirms), Duration::ZERO);
        tokio::time::advance(MINUTE).await;
        assert_eq!(confirmed(1, "y", confirms), MINUTE);
        assert_eq!(confirmed(2, "y", confirms), Duration::ZERO);
        tokio::time::advance(LONGEST_GAP + MINUTE).await;
        assert_eq!(confirmed(2, "y", confirms), Duration::ZERO);
    }
}
