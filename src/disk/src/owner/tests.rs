use super::*;
use lazuli_plan::model::{CachingMode, DataDiskSource};

fn disk(n: i64) -> ArmId {
    ArmId::disk("s", "g", &format!("d{n}")).unwrap()
}

fn vm(disks: &[i64]) -> Vm {
    Vm {
        id: ArmId::virtual_machine("s", "g", "node-0").unwrap(),
        location: "local".into(),
        size: "Standard_DS2_v2".into(),
        zone: None,
        computer_name: None,
        provisioning_state: ProvisioningState::Succeeded,
        etag: None,
        data_disks: disks
            .iter()
            .map(|n| DataDisk {
                lun: Lun::try_from(*n).unwrap(),
                source: DataDiskSource::Managed(disk(*n)),
                caching: CachingMode::None,
                to_be_detached: false,
            })
            .collect(),
    }
}

#[test]
fn a_disk_that_left_with_a_write_that_did_not_name_it_is_told() {
    let write = VmWrite { vm: vm(&[]).id, attach: Vec::new(), detach: vec![disk(1)], reapply: Vec::new() };
    assert_eq!(vanished(&vm(&[0, 1, 2]), &write, &vm(&[0, 2])), []);
    assert_eq!(vanished(&vm(&[0, 1, 2]), &write, &vm(&[0])), [Lun::try_from(2).unwrap()]);
}
