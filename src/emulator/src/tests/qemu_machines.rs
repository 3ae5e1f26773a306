//! Machines in QEMU: what is refused before it is asked, where it is not there, and what is left of a write that fails,
//! where it is installed.

use super::machines::{machine, nic};
use super::state_file::Folder;
use super::*;
use crate::Switches;
use crate::hypervisor::QemuMachines;
use crate::hypervisor::qemu_tests::{Process, plugged_at};
use crate::options::{Concurrent, HypervisorChoice};

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

/// QEMU with something else at LUN 3, and an emulator for which it is the machine plain-0.
async fn with_taken_lun(folder: &Folder, unverified: Switches) -> Option<(Process, Rig)> {
    let taken = "driver=null-co,node-name=other,size=1048576";
    let at_lun = "scsi-hd,bus=lazuli.0,channel=0,scsi-id=0,lun=3,drive=other";
    let arguments = ["-device", "virtio-scsi-pci,id=lazuli", "-blockdev", taken, "-device", at_lun];
    let qemu = Process::start_at(&folder.path().join("qmp"), &arguments)?;
    let machines = QemuMachines { sockets: [("plain-0".to_owned(), folder.path().join("qmp"))].into() };
    let hypervisor = HypervisorChoice::Qemu { root: folder.path().join("disks"), machines };
    Some((qemu, Rig::new(Options { hypervisor, unverified, ..slow() }).await))
}

/// The LUNs of QEMU that have disks.
fn plugged(folder: &Folder) -> Vec<u8> {
    plugged_at(&folder.path().join("qmp")).into_keys().collect()
}

#[tokio::test(start_paused = true)]
async fn what_a_failed_write_has_plugged_does_not_stay_plugged() {
    let folder = Folder::new("failed-in-qemu");
    let Some((_qemu, rig)) = with_taken_lun(&folder, Switches::default()).await else { return };
    for disk in ["held", "d1", "d2"] {
        rig.disk(disk).await;
    }
    rig.attached("plain-0", &[("held", 7)]).await;
    let both = json!([{"diskId": disk_id("d1"), "lun": 0}, {"diskId": disk_id("d2"), "lun": 3}]);
    let asked = rig.attach_detach("plain-0", both, json!([])).await.expect(202);
    let end = rig.finish(&asked).await;
    assert!(end["status"] == "Failed" && end.to_string().contains("lun already used"), "{end}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(plugged(&folder), [7]);
    // It is another machine's to have, and this one's after all.
    let asked = rig.attach_detach("plain-0", json!([{"diskId": disk_id("d1"), "lun": 1}]), json!([])).await.expect(202);
    assert_eq!(rig.finish(&asked).await["status"], "Succeeded");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(plugged(&folder), [1, 7]);
    rig.emulator.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_preempted_write_plugs_nothing_and_leaves_what_the_newer_one_wants() {
    let folder = Folder::new("preempted-in-qemu");
    let unverified = Switches { concurrent_vm_write: Concurrent::Preempt, ..Switches::default() };
    let Some((_qemu, rig)) = with_taken_lun(&folder, unverified).await else { return };
    for disk in ["a", "b", "c"] {
        rig.disk(disk).await;
    }
    let old = rig.put_data_disks("plain-0", json!([element("a", 0), element("b", 1)])).await.expect(200);
    let detached =
        json!({"lun": 1, "createOption": "Attach", "managedDisk": {"id": disk_id("b")}, "toBeDetached": true});
    let new = rig.put_data_disks("plain-0", json!([element("a", 0), detached, element("c", 2)])).await.expect(200);
    assert_eq!(rig.finish(&old).await["status"], "Failed");
    assert_eq!(rig.finish(&new).await["status"], "Succeeded");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(plugged(&folder), [0, 2]);
    rig.emulator.shutdown().await;
}
