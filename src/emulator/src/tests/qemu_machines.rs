//! Machines in QEMU that is not there: what is refused before it would be asked.

use super::machines::{machine, nic};
use super::state_file::Folder;
use super::*;
use crate::hypervisor::QemuMachines;
use crate::options::HypervisorChoice;

const NVME_SIZE: &str = "Standard_D8ds_v6";

/// Options with a machine of the scenario, `nvme`, and one that is made later, `late`, in QEMU.
fn in_qemu(folder: &Folder) -> Options {
    let sockets = ["nvme", "late"].map(|vm| (vm.to_owned(), folder.path().join(vm)));
    let machines = QemuMachines { sockets: sockets.into() };
    let mut options = slow();
    let mut nvme = VirtualMachine::pattern("nvme", 1);
    nvme.count = None;
    nvme.size = NVME_SIZE.to_owned();
    options.scenario.virtual_machines.push(nvme);
    let hypervisor = HypervisorChoice::Qemu { root: folder.path().join("disks"), machines };
    Options { hypervisor, state_file: Some(folder.path().join("state")), ..options }
}

fn refused(end: &Value, vm: &str) {
    let text = end["error"]["message"].as_str().unwrap_or_default();
    let told = format!("the machine {vm} shows its disks by NVMe, and QEMU plugs no NVMe namespaces");
    assert!(end["status"] == "Failed" && text.contains(&told) && text.contains("--qemu-qmp"), "{end}");
}

#[tokio::test(start_paused = true)]
async fn a_machine_with_nvme_gets_no_disk_in_qemu_and_the_emulator_starts_with_it_again() {
    let folder = Folder::new("nvme-in-qemu");
    for _ in 0..2 {
        let rig = Rig::new(in_qemu(&folder)).await;
        rig.disk("d").await;
        let asked = rig.attach_detach("nvme", json!([{"diskId": disk_id("d"), "lun": 0}]), json!([])).await.expect(202);
        refused(&rig.finish(&asked).await, "nvme");
        assert_eq!(rig.luns("nvme"), []);
        if !rig.control().store(|store| store.contains(&vm_id("late"))) {
            nic(&rig, "nic1").await;
            let mut body = machine("nic1");
            body["properties"]["hardwareProfile"]["vmSize"] = json!(NVME_SIZE);
            let got = rig.call("PUT", &vm_uri("late"), Some(body)).await.expect(201);
            refused(&rig.finish(&got).await, "late");
        }
        // One that is in no QEMU has its disks on paper, whatever they come by.
        rig.attached("plain-0", &[("d", 0)]).await;
        let gone = rig.attach_detach("plain-0", json!([]), json!([{"diskId": disk_id("d")}])).await.expect(202);
        rig.finish(&gone).await;
        rig.emulator.shutdown().await;
    }
    let rig = Rig::new(in_qemu(&folder)).await;
    // What did not come to be can be taken away.
    let got = rig.call("DELETE", &vm_uri("late"), None).await.expect(202);
    assert_eq!(rig.finish(&got).await["status"], "Succeeded");
}
