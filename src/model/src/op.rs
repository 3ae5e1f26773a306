//! Every write to Azure, as data.
//!
//! A planner returns operations; `lazuli-azure` turns each into one request; [`crate::apply`] does to the model what
//! Azure would do, so that planners can be tested without a network.

use std::collections::BTreeSet;

use crate::{ArmId, CachingMode, Lun};

/// A managed disk at a slot of a VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// The disk.
    pub disk: ArmId,
    /// Its slot.
    pub lun: Lun,
    /// How the host caches it.
    pub caching: CachingMode,
    /// The disk encryption set to attach it with, if the disk has one.
    pub disk_encryption_set: Option<ArmId>,
    /// Whether the M-series write accelerator is on for it.
    pub write_accelerator: bool,
}

/// One change to the data disks of a VM; the lists commute, for no disk is in two of them and no slot of one is in
/// another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmWrite {
    /// The VM.
    pub vm: ArmId,
    /// Disks that come, in the order of their slots.
    pub attach: Vec<Attachment>,
    /// Disks that leave, in the order of their ids.
    pub detach: Vec<ArmId>,
    /// Those of [`VmWrite::detach`] that leave by force (`lazuli_storage::force_detach`).
    pub force: BTreeSet<ArmId>,
    /// Disks that the VM lists and does not hold, in the order of their ids. A write, whatever it says, makes Azure
    /// bring a VM to what its model says, so these are not named in the request.
    pub reapply: Vec<ArmId>,
}

impl VmWrite {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.says_nothing() && self.reapply.is_empty()
    }

    /// Whether it names no disk: then all it does is to make Azure apply the model that is there.
    pub fn says_nothing(&self) -> bool {
        self.attach.is_empty() && self.detach.is_empty()
    }
}

/// How a VM write goes over the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VmWriteMethod {
    /// The `attachDetachDataDisks` action: says only what changes, so two writers cannot undo each other.
    Action,
    /// The whole list of data disks, marked `toBeDetached` where a disk leaves; under `If-Match` where the VM has an
    /// etag.
    WholeList,
    /// The whole list without the disks that leave, for Azure Stack Hub, whose API does not know `toBeDetached`.
    WholeListByOmission,
}
