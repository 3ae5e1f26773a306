//! Publishing a raw device: whether a pod gets the device at the LUN.

use std::path::Path;

use super::{Device, DeviceNumber, Mounted, Records, Refusal, staged_as_filesystem};
use crate::device_identity::Identity;

/// All on which it rests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The device at the LUN, or its partition.
    pub device: Device,
    /// What the metadata says of it.
    pub identity: Identity,
    /// The number behind the device's node.
    pub node: Option<DeviceNumber>,
    /// The mount table.
    pub mounts: Vec<Mounted>,
    /// What is remembered of the volume.
    pub records: Records,
}

impl Seen {
    /// Whether the device is handed out: the metadata names it and the volume was not staged from another disk since, or the
    /// volume was staged from it, and its file system is not staged. `staging` is the staging path as the mount table names it.
    ///
    /// # Errors
    /// [`Refusal::Elsewhere`], [`Refusal::StagedAsFilesystem`] or [`Refusal::NotStaged`].
    pub fn decide(&self, staging: &Path) -> Result<(), Refusal> {
        let Self { device, identity, node, mounts, records } = self;
        if let Some(against) = identity.contradicts().or(identity.contradicted_in_silence()) {
            return Err(Refusal::Elsewhere(against.clone()));
        }
        let places: Vec<&Path> = [Some(staging), records.own_place.as_deref()].into_iter().flatten().collect();
        if let Some(mounted) = staged_as_filesystem(mounts, &places, [device, device]) {
            let (device, place) = (device.path.clone(), mounted.mount.target.clone());
            return Err(Refusal::StagedAsFilesystem { device, place });
        }
        let is_node = *node == Some(device.number);
        // Which disk is at the LUN must be certain, or the metadata names another one than this.
        let is_confirmed = identity.is_confirmed() && device.is_lun_certain() && !records.names_another(device);
        match is_node && (is_confirmed || records.names(device)) {
            true => Ok(()),
            false => Err(Refusal::NotStaged),
        }
    }
}
