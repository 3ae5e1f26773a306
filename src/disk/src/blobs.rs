//! VHD blob disks as disks on machines: which calls of [`lazuli_blob_disk`] the steps' calls are. It chooses nothing.

use lazuli_blob_disk::BlobDisks;
use lazuli_model::{BlobUri, Disk, DiskId};
use lazuli_vhd::disk::of_blob;

use crate::VolumeError;

/// The blob disks of the cluster. Clones share everything.
#[derive(Debug, Clone)]
pub(crate) struct Blobs {
    disks: Option<BlobDisks>,
    /// The subscription of the cluster.
    subscription: String,
}

impl Blobs {
    pub(crate) fn new(disks: Option<BlobDisks>, subscription: &str) -> Self {
        Self { disks, subscription: subscription.to_owned() }
    }

    /// # Errors
    /// There is no client of page blobs.
    pub(crate) fn of(&self, uri: &BlobUri) -> Result<&BlobDisks, VolumeError> {
        self.disks.as_ref().ok_or_else(|| VolumeError::no_blob_disks(uri))
    }

    /// The client of page blobs, if there is one.
    pub(crate) fn disks(&self) -> Option<&BlobDisks> {
        self.disks.as_ref()
    }

    /// Reads a blob as a disk.
    ///
    /// # Errors
    /// Azure's own failures.
    pub(crate) async fn read(&self, uri: &BlobUri) -> Result<Disk<DiskId>, VolumeError> {
        let read = self.of(uri)?.read(uri).await.map_err(VolumeError::blob)?;
        Ok(self.disk(uri, &read.blob))
    }

    /// A blob that was read, as a disk.
    pub(crate) fn disk(&self, uri: &BlobUri, blob: &lazuli_vhd::life::Blob) -> Disk<DiskId> {
        of_blob(uri, blob, &self.subscription)
    }

    /// Has a blob end with a footer.
    ///
    /// # Errors
    /// Azure's own failures; a lease that is held.
    pub(crate) async fn prepare(&self, uri: &BlobUri) -> Result<(), VolumeError> {
        self.of(uri)?.repair(uri).await.map(drop).map_err(VolumeError::blob)
    }

    /// Deletes a blob.
    ///
    /// # Errors
    /// Azure's own failures; a lease that is held; snapshots.
    pub(crate) async fn delete(&self, uri: &BlobUri) -> Result<(), VolumeError> {
        self.of(uri)?.delete(uri).await.map(drop).map_err(VolumeError::blob)
    }
}
