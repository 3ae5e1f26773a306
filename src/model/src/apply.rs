//! What Azure does with our writes, over the model: the tests' oracle.
//!
//! `lazuli-azure` applies the same writes to Azure's raw answer, so that what this model does not know survives; a
//! property test there holds the two interpreters equal.

use crate::{
    DataDisk, DataDiskSource, Disk, SkuName, Vm,
    disk_details::DiskDetails,
    disk_spec::PerformanceTier,
    op::{DiskChange, VmWrite, VmWriteMethod},
};

/// A disk after a PATCH has ended well. A disk that gets another SKU gets that SKU's performance, where the PATCH says
/// none.
pub fn disk_change(disk: &Disk, details: &DiskDetails, change: &DiskChange) -> (Disk, DiskDetails) {
    let (mut disk, mut details) = (disk.clone(), details.clone());
    if let Some(sku) = change.sku {
        disk.sku = Some(sku);
        (disk.iops, disk.mbps) = match sku {
            SkuName::PremiumV2Lrs | SkuName::UltraSsdLrs => (Some(3_000), Some(125)),
            _ => (Some(500), Some(100)),
        };
        let has_tiers = matches!(sku, SkuName::PremiumLrs | SkuName::PremiumZrs);
        details.tier = has_tiers.then(|| PerformanceTier::of(disk.size));
    }
    disk.iops = change.iops.or(disk.iops);
    disk.mbps = change.mbps.or(disk.mbps);
    if let Some(tags) = &change.tags {
        disk.tags = tags.clone();
    }
    if let Some(policy) = change.network_access_policy {
        disk.network_access_policy = Some(policy.to_string());
        details.disk_access = change.disk_access.clone();
    }
    details.tier = change.tier.or(details.tier);
    details.bursting_enabled = change.bursting_enabled.unwrap_or(details.bursting_enabled);
    details.public_network_access = change.public_network_access.or(details.public_network_access);
    (disk, details)
}

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
        source: DataDiskSource::Disk(attachment.disk.clone()),
        caching: attachment.caching,
        to_be_detached: false,
    }));
    after
}
