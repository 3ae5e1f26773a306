//! How a machine shows its data disks to its kernel: `storageProfile.diskControllerType`, or what its size has by default.

use serde_json::{Map, Value, json};

use crate::hypervisor::{Machine, Shown};
use crate::path;
use crate::sizes;
use crate::store::Store;

const MEMBER: &str = "diskControllerType";

/// Says in a storage profile what the size has by default. Documented: a size that takes one controller has that one, and
/// one that takes both has SCSI.
pub(crate) fn complete(storage: &mut Map<String, Value>, size: &str) {
    if !storage.contains_key(MEMBER) && sizes::is_nvme(size) {
        storage.insert(MEMBER.to_owned(), json!("NVMe"));
    }
}

/// How a machine with this document shows its disks, where its kernel has NVMe multipath or not.
pub(crate) fn shown(machine: &Value, multipath: bool) -> Shown {
    let storage = &machine["properties"]["storageProfile"];
    // Documented: an ephemeral disk of the operating system may be on a local NVMe disk.
    let system = storage["osDisk"]["diffDiskSettings"]["placement"] != "NvmeDisk";
    match storage[MEMBER].as_str() {
        Some(controller) if controller.eq_ignore_ascii_case("NVMe") => Shown::Nvme { multipath, system },
        _ => Shown::Scsi,
    }
}

/// A machine as the hypervisor knows it.
pub(crate) fn machine(store: &Store, id: &str) -> Machine {
    let found = store.get(id);
    let multipath = found.and_then(|found| found.machine.as_ref()).is_some_and(|own| own.nvme_multipath);
    let shown = found.map(|found| shown(&found.doc, multipath)).unwrap_or_default();
    Machine { name: path::machine_name(id), shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_shows_its_disks_as_it_says_or_as_its_size_has_it() {
        let nvme = |system| Shown::Nvme { multipath: false, system };
        for (size, profile, is) in [
            ("Standard_D8s_v3", json!({}), Shown::Scsi),
            ("Standard_D8ds_v6", json!({}), nvme(true)),
            ("standard_e4s_V7", json!({}), nvme(true)),
            ("Standard_E8bds_v5", json!({"diskControllerType": "NVMe"}), nvme(true)),
            ("Standard_D8ds_v6", json!({"diskControllerType": "SCSI"}), Shown::Scsi),
            ("Standard_D8ds_v6", json!({"osDisk": {"diffDiskSettings": {"placement": "NvmeDisk"}}}), nvme(false)),
            ("Standard_D8ds_v6", json!({"osDisk": {"diffDiskSettings": {"placement": "CacheDisk"}}}), nvme(true)),
            ("Standard_NV6", json!({}), Shown::Scsi),
        ] {
            let mut storage = profile.as_object().cloned().unwrap_or_default();
            complete(&mut storage, size);
            assert_eq!(shown(&json!({"properties": {"storageProfile": storage}}), false), is, "{size} {profile}");
        }
    }
}
