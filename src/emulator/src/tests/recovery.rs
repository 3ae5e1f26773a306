//! The state file after a kill: what had been answered is there, and nothing is left in flight.

use super::*;

/// A folder that goes with its test.
pub(super) struct Folder(std::path::PathBuf);

impl Folder {
    pub(super) fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("lazuli-emulator-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    pub(super) fn options(&self) -> Options {
        Options { state_file: Some(self.0.join("state.json")), ..slow() }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Ends an emulator as a kill does: nothing more is written.
pub(super) async fn kill(rig: Rig, folder: &Folder) {
    // The last change has been on disk for long by now.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let file = folder.0.join("state.json");
    let as_it_was = std::fs::read(&file).unwrap();
    drop(rig);
    tokio::task::yield_now().await;
    std::fs::write(&file, as_it_was).unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_was_answered_survives_a_kill_also_when_no_operation_was_behind_it() {
    let folder = Folder::new("answered");
    let rig = Rig::new(folder.options()).await;
    let uri = format!("{SUB}/resourcegroups/other?api-version=2021-04-01");
    rig.call("PUT", &uri, Some(json!({"location": "westeurope"}))).await.expect(201);
    rig.call("PATCH", &uri, Some(json!({"tags": {"a": "b"}}))).await.expect(200);
    kill(rig, &folder).await;
    let rig = Rig::new(folder.options()).await;
    assert_eq!(rig.get(&uri).await.expect(200).body["tags"], json!({"a": "b"}));
}

#[tokio::test(start_paused = true)]
async fn operations_in_flight_at_a_kill_are_at_their_end_after_the_next_start() {
    let folder = Folder::new("in-flight");
    let rig = Rig::new(folder.options()).await;
    for name in ["stays", "leaves", "comes", "grows", "goes", "free"] {
        rig.disk(name).await;
    }
    rig.attached("plain-0", &[("stays", 0), ("leaves", 1)]).await;
    rig.attach_detach(
        "plain-0",
        json!([{"diskId": disk_id("comes"), "lun": 5}]),
        json!([{"diskId": disk_id("leaves")}]),
    )
    .await
    .expect(202);
    let grow = json!({"properties": {"diskSizeGB": 64}});
    rig.call("PATCH", &disk_uri("grows"), Some(grow)).await.expect(202);
    rig.call("DELETE", &disk_uri("goes"), None).await.expect(202);
    rig.put_disk("new", premium(4)).await.expect(202);
    rig.call("DELETE", &vm_uri("plain-1"), None).await.expect(202);
    assert!(rig.control().running_operations() >= 5);
    kill(rig, &folder).await;

    let rig = Rig::new(folder.options()).await;
    assert_eq!(rig.control().running_operations(), 0);
    assert_eq!(rig.luns("plain-0"), [(0, "stays".to_owned()), (5, "comes".to_owned())]);
    let shown: Vec<u64> = rig.vm("plain-0").await["properties"]["storageProfile"]["dataDisks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|element| element["lun"].as_u64().unwrap())
        .collect();
    assert_eq!(shown, [0, 5]);
    assert_eq!(rig.disk_doc("comes").await["managedBy"], vm_id("plain-0"));
    assert!(rig.disk_doc("leaves").await.get("managedBy").is_none());
    assert_eq!(rig.disk_doc("grows").await["properties"]["diskSizeGB"], 64);
    assert_eq!(rig.disk_doc("new").await["properties"]["diskState"], "Unattached");
    rig.get(&disk_uri("goes")).await.refused(404, "ResourceNotFound");
    rig.get(&vm_uri("plain-1")).await.refused(404, "ResourceNotFound");
    for (id, doc) in rig.control().dump().resources {
        // Availability sets have no such state.
        let state = doc["properties"]["provisioningState"].as_str().unwrap_or("Succeeded");
        assert_eq!(state, "Succeeded", "{id}");
    }
    // And everything can be written again.
    rig.attached("plain-0", &[("free", 7)]).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_creation_was_killed_has_its_os_disk() {
    let folder = Folder::new("creation");
    let rig = Rig::new(folder.options()).await;
    let nic = format!("{}/providers/Microsoft.Network/networkInterfaces/nic1", group());
    let subnet = format!("{}/providers/Microsoft.Network/virtualNetworks/lazuli-vnet/subnets/nodes", group());
    let body = json!({"location": "westeurope", "properties": {"ipConfigurations": [
        {"name": "one", "properties": {"subnet": {"id": subnet}}}
    ]}});
    rig.call("PUT", &format!("{nic}?api-version=2025-05-01"), Some(body)).await.expect(201);
    let body = json!({"location": "westeurope", "properties": {
        "hardwareProfile": {"vmSize": "Standard_D2s_v3"},
        "storageProfile": {
            "imageReference": {"publisher": "p", "offer": "o", "sku": "s", "version": "latest"},
            "osDisk": {"createOption": "FromImage", "name": "system"},
            "dataDisks": [{"lun": 3, "createOption": "Empty", "diskSizeGB": 4, "name": "data"}],
        },
        "osProfile": {"computerName": "new", "adminUsername": "u", "adminPassword": "secret"},
        "networkProfile": {"networkInterfaces": [{"id": nic}]},
    }});
    rig.call("PUT", &vm_uri("new"), Some(body)).await.expect(201);
    kill(rig, &folder).await;
    let rig = Rig::new(folder.options()).await;
    let vm = rig.vm("new").await;
    assert_eq!(vm["properties"]["storageProfile"]["osDisk"]["managedDisk"]["id"], disk_id("system"));
    assert_eq!(rig.disk_doc("system").await["managedBy"], vm_id("new"));
    assert_eq!(rig.luns("new"), [(3, "data".to_owned())]);
}
