//! A virtual machine as Azure describes it, as far as disks are concerned.

use super::{ArmId, CachingMode, DiskId, Lun, ProvisioningState};

/// A virtual machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vm {
    /// As Azure spells it.
    pub id: ArmId,
    /// The region.
    pub location: String,
    /// The VM size, such as `Standard_D8s_v5`.
    pub size: String,
    /// The zone, if it is zonal.
    pub zone: Option<String>,
    /// The name the machine gives itself, if Azure knows it.
    pub computer_name: Option<String>,
    /// Where its last operation is.
    pub provisioning_state: ProvisioningState,
    /// Its version, for conditional writes; absent on old API versions.
    pub etag: Option<String>,
    /// Where its system disk is, which says which data disks it takes.
    pub system_disk: SystemDisk,
    /// The data disks in its model, in Azure's order.
    pub data_disks: Vec<DataDisk>,
}

/// Where the system disk of a machine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SystemDisk {
    /// `storageProfile.osDisk.vhd`
    Blob,
    /// `storageProfile.osDisk.managedDisk`, or that of an instance of a scale set.
    Managed,
}

/// An element of `storageProfile.dataDisks`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataDisk {
    /// Its slot.
    pub lun: Lun,
    /// What is in it.
    pub source: DataDiskSource,
    /// How the host caches it.
    pub caching: CachingMode,
    /// Whether Azure is detaching it, or failed to.
    pub to_be_detached: bool,
}

/// What a data disk is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataDiskSource {
    /// A managed disk, or a VHD in a page blob.
    Disk(DiskId),
    /// Something this version does not know, by its address or its name; its slot counts all the same.
    Other(String),
}

impl DataDisk {
    /// Whether this element is that disk.
    pub fn is(&self, disk: &DiskId) -> bool {
        matches!(&self.source, DataDiskSource::Disk(id) if id == disk)
    }
}

impl Vm {
    /// The element of a disk, if it is in the model, leaving or not.
    pub fn data_disk(&self, disk: &DiskId) -> Option<&DataDisk> {
        self.data_disks.iter().find(|element| element.is(disk))
    }

    /// The slot of an element that is not understood and that may be this page blob: where the model does not show the blob
    /// otherwise, nothing is known of it.
    pub fn may_have(&self, disk: &DiskId) -> Option<Lun> {
        let uri = disk.blob().filter(|_| self.data_disk(disk).is_none())?;
        let may_be = |element: &&DataDisk| matches!(&element.source, DataDiskSource::Other(text) if uri.may_be(text));
        self.data_disks.iter().find(may_be).map(|element| element.lun)
    }
}
