//! What Azure does with our writes, over the model: the tests' oracle.
//!
//! `lazuli-azure` applies the same writes to Azure's raw answer, so that what this model does not know survives; a
//! property test there holds the two interpreters equal.

use crate::{
    DataDisk, DataDiskSource, Vm,
    op::{VmWrite, VmWriteMethod},
};

/// The data disks a VM has after a write has ended well.
///
/// With [`VmWriteMethod::WholeList`] the request carries leaving disks marked `toBeDetached`; Azure drops them when
/// the operation ends, so the three methods have one result.
pub fn vm_write(vm: &Vm, write: &VmWrite, method: VmWriteMethod) -> Vm {
    let mut after = requested(vm, write, method);
    after.data_disks.retain(|element| !write.detach.iter().any(|disk| element.is(disk)));
    after
}

/// The data disks a request names: what a write of the whole list sends.
pub fn requested(vm: &Vm, write: &VmWrite, method: VmWriteMethod) -> Vm {
    let mut after = vm.clone();
    match method {
        VmWriteMethod::WholeListByOmission => {
            after.data_disks.retain(|element| !write.detach.iter().any(|disk| element.is(disk)));
        }
        VmWriteMethod::Action | VmWriteMethod::WholeList => {
            for element in &mut after.data_disks {
                element.to_be_detached |= write.detach.iter().any(|disk| element.is(disk));
            }
        }
    }
    after.data_disks.extend(write.attach.iter().map(|attachment| DataDisk {
        lun: attachment.lun,
        source: DataDiskSource::Managed(attachment.disk.clone()),
        caching: attachment.caching,
        to_be_detached: false,
    }));
    after
}
