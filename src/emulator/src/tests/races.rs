//! Several writers at once: whatever they do, no disk has two machines, no VM holds what is gone, and
//! the documents say what the hypervisors hold.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::control::Dump;
use crate::options::{Concurrent, Switches};

const NETWORK_VERSION: &str = "2025-05-01";

fn nic_id(name: &str) -> String {
    format!("{}/providers/Microsoft.Network/networkInterfaces/{name}", group())
}

fn nic_uri(name: &str) -> String {
    format!("{}?api-version={NETWORK_VERSION}", nic_id(name))
}

async fn put_nic(rig: &Rig, name: &str) -> Got {
    let subnet = format!("{}/providers/Microsoft.Network/virtualNetworks/lazuli-vnet/subnets/nodes", group());
    let body = json!({"location": "westeurope", "properties": {"ipConfigurations": [
        {"name": "ipConfig1", "properties": {"subnet": {"id": subnet}}}
    ]}});
    rig.call("PUT", &nic_uri(name), Some(body)).await
}

fn machine(nic: &str, data_disks: Value) -> Value {
    json!({
        "location": "westeurope",
        "properties": {
            "hardwareProfile": {"vmSize": "Standard_D4s_v3"},
            "networkProfile": {"networkInterfaces": [{"id": nic_id(nic)}]},
            "osProfile": {"adminUsername": "u", "computerName": "c"},
            "storageProfile": {
                "imageReference": {"offer": "o", "publisher": "p", "sku": "s", "version": "latest"},
                "osDisk": {"createOption": "FromImage"},
                "dataDisks": data_disks,
            },
        },
    })
}

/// Creates a machine with a network interface of its own name, and does not wait.
async fn create(rig: &Rig, name: &str, data_disks: Value) -> Got {
    put_nic(rig, name).await;
    rig.call("PUT", &vm_uri(name), Some(machine(name, data_disks))).await
}

async fn act(rig: &Rig, vm: &str, action: &str) -> Got {
    let uri = format!("{}/{action}?api-version={COMPUTE_VERSION}", vm_id(vm));
    rig.call("POST", &uri, None).await
}

async fn quiet(rig: &Rig) {
    while rig.control().running_operations() > 0 {
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
}

fn holders(doc: &Value) -> Vec<String> {
    let mut all: Vec<String> =
        doc["managedByExtended"].as_array().into_iter().flatten().filter_map(Value::as_str).map(lower).collect();
    all.extend(doc["managedBy"].as_str().map(lower));
    all.sort();
    all.dedup();
    all
}

fn lower(text: &str) -> String {
    text.to_ascii_lowercase()
}

/// What is wrong with the books at a moment when nothing runs.
fn faults(dump: &Dump) -> Vec<String> {
    let mut found = Vec::new();
    let mut held: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (vm, luns) in &dump.luns {
        for disk in luns.values() {
            held.entry(lower(disk)).or_default().push(vm.clone());
        }
        let os = &dump.resources[vm]["properties"]["storageProfile"]["osDisk"]["managedDisk"]["id"];
        // A machine that was never made names a disk that it never got.
        let made = dump.resources[vm]["properties"]["provisioningState"] != "Failed";
        let got = |os: &&str| dump.resources.get(&lower(os)).is_some_and(|disk| holders(disk).contains(vm));
        if let Some(os) = os.as_str().filter(|os| made || got(os)) {
            held.entry(lower(os)).or_default().push(vm.clone());
        }
        let doc = &dump.resources[vm]["properties"];
        if doc["provisioningState"] == "Succeeded" {
            let model: BTreeMap<u8, String> = doc["storageProfile"]["dataDisks"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|e| {
                    (e["lun"].as_u64().unwrap() as u8, lower(e["managedDisk"]["id"].as_str().unwrap_or("nothing")))
                })
                .collect();
            let really: BTreeMap<u8, String> = luns.iter().map(|(lun, disk)| (*lun, lower(disk))).collect();
            if model != really {
                found.push(format!("{vm} shows {model:?} and holds {really:?}"));
            }
        }
        for nic in doc["networkProfile"]["networkInterfaces"].as_array().into_iter().flatten() {
            let nic = lower(nic["id"].as_str().unwrap());
            let back = dump.resources.get(&nic).map(|nic| nic["properties"]["virtualMachine"]["id"].clone());
            if back.as_ref().and_then(Value::as_str).map(lower) != Some(vm.clone()) {
                found.push(format!("{vm} names {nic}, which says {back:?}"));
            }
        }
    }
    for (disk, vms) in &held {
        match dump.resources.get(disk) {
            None => found.push(format!("{vms:?} hold {disk}, which does not exist")),
            Some(doc) => {
                let mut vms = vms.clone();
                vms.sort();
                let most = doc["properties"]["maxShares"].as_u64().unwrap_or(1) as usize;
                if vms.len() > most || vms != holders(doc) {
                    found.push(format!("{disk}: held by {vms:?}, says {:?}", holders(doc)));
                }
            }
        }
    }
    for (id, doc) in &dump.resources {
        if ["Updating", "Creating", "Deleting"].contains(&doc["properties"]["provisioningState"].as_str().unwrap_or(""))
        {
            found.push(format!("{id} is still {}", doc["properties"]["provisioningState"]));
        }
        match doc["type"].as_str().unwrap_or("") {
            "Microsoft.Compute/disks" => {
                let holders = holders(doc);
                if !holders.is_empty() && !held.contains_key(id) {
                    found.push(format!("{id} says {holders:?}, who do not hold it"));
                }
                let state = doc["properties"]["diskState"].as_str().unwrap_or("");
                let allocated = holders.iter().any(|vm| dump.power.get(vm).is_some_and(|power| power != "deallocated"));
                let fits = match (holders.is_empty(), allocated) {
                    (true, _) => ["Unattached", "ActiveSAS"].contains(&state),
                    (false, true) => ["Attached", "ActiveSAS"].contains(&state),
                    (false, false) => ["Reserved", "ActiveSAS"].contains(&state),
                };
                if !fits {
                    found.push(format!("{id} of {holders:?} is {state}"));
                }
            }
            "Microsoft.Network/networkInterfaces" => {
                let vm = doc["properties"]["virtualMachine"]["id"].as_str().map(lower);
                if let Some(vm) = vm.filter(|vm| !dump.resources.contains_key(vm)) {
                    found.push(format!("{id} belongs to {vm}, which does not exist"));
                }
            }
            _ => {}
        }
    }
    found
}

#[track_caller]
fn sound(rig: &Rig) {
    let found = faults(&rig.control().dump());
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[tokio::test(start_paused = true)]
async fn of_two_machines_made_with_one_disk_the_later_fails() {
    let rig = Rig::new(slow()).await;
    rig.disk("d").await;
    let first = create(&rig, "a", json!([element("d", 0)])).await.expect(201);
    let second = create(&rig, "b", json!([element("d", 0)])).await.expect(201);
    assert_eq!(rig.finish(&first).await["status"], "Succeeded");
    let end = rig.finish(&second).await;
    assert_eq!(end["status"], "Failed");
    assert_eq!(end["error"]["code"], "ConflictingUserInput");
    assert_eq!(rig.vm("b").await["properties"]["provisioningState"], "Failed");
    assert!(rig.luns("b").is_empty());
    sound(&rig);
}

#[tokio::test(start_paused = true)]
async fn a_machine_made_with_a_disk_that_goes_meanwhile_fails() {
    let rig = Rig::new(slow()).await;
    rig.disk("d").await;
    let made = create(&rig, "a", json!([element("d", 0)])).await.expect(201);
    let gone = rig.call("DELETE", &disk_uri("d"), None).await.expect(202);
    rig.finish(&gone).await;
    assert_eq!(rig.finish(&made).await["status"], "Failed");
    sound(&rig);
}

#[tokio::test(start_paused = true)]
async fn of_two_machines_made_with_one_system_disk_the_later_fails() {
    let rig = Rig::new(slow()).await;
    rig.disk("d").await;
    let mut given = machine("a", json!([]));
    given["properties"]["storageProfile"]["osDisk"] =
        json!({"createOption": "Attach", "osType": "Linux", "managedDisk": {"id": disk_id("d")}});
    given["properties"]["storageProfile"].as_object_mut().unwrap().remove("imageReference");
    given["properties"].as_object_mut().unwrap().remove("osProfile");
    put_nic(&rig, "a").await.expect(201);
    put_nic(&rig, "b").await.expect(201);
    let first = rig.call("PUT", &vm_uri("a"), Some(given.clone())).await.expect(201);
    given["properties"]["networkProfile"]["networkInterfaces"][0]["id"] = json!(nic_id("b"));
    let second = rig.call("PUT", &vm_uri("b"), Some(given)).await.expect(201);
    assert_eq!(rig.finish(&first).await["status"], "Succeeded");
    assert_eq!(rig.finish(&second).await["status"], "Failed");
    sound(&rig);
}

#[tokio::test(start_paused = true)]
async fn two_system_disks_of_one_name_are_not_one_disk() {
    let rig = Rig::new(slow()).await;
    let mut given = machine("a", json!([]));
    given["properties"]["storageProfile"]["osDisk"]["name"] = json!("system");
    put_nic(&rig, "a").await.expect(201);
    put_nic(&rig, "b").await.expect(201);
    let first = rig.call("PUT", &vm_uri("a"), Some(given.clone())).await.expect(201);
    given["properties"]["networkProfile"]["networkInterfaces"][0]["id"] = json!(nic_id("b"));
    let second = rig.call("PUT", &vm_uri("b"), Some(given)).await.expect(201);
    assert_eq!(rig.finish(&first).await["status"], "Succeeded");
    assert_eq!(rig.finish(&second).await["error"]["code"], "ConflictingUserInput");
    sound(&rig);
}

#[tokio::test(start_paused = true)]
async fn a_shared_disk_that_others_hold_outlives_a_machine_that_would_delete_it() {
    let rig = Rig::new(slow()).await;
    let mut body = premium(1024);
    body["properties"]["maxShares"] = json!(2);
    let made = rig.put_disk("shared", body).await.expect(202);
    rig.finish(&made).await;
    let mut leaving = element("shared", 0);
    leaving["deleteOption"] = json!("Delete");
    let made = create(&rig, "a", json!([leaving])).await.expect(201);
    rig.finish(&made).await;
    rig.attached("plain-0", &[("shared", 3)]).await;
    let gone = rig.call("DELETE", &vm_uri("a"), None).await.expect(202);
    rig.finish(&gone).await;
    assert_eq!(rig.luns("plain-0"), [(3, "shared".to_owned())]);
    sound(&rig);
}

#[tokio::test(start_paused = true)]
async fn an_interface_that_another_machine_has_is_not_given_away_by_a_write() {
    let rig = Rig::new(slow()).await;
    for name in ["a", "b"] {
        let made = create(&rig, name, json!([])).await.expect(201);
        rig.finish(&made).await;
    }
    let stop = act(&rig, "b", "deallocate").await.expect(202);
    rig.finish(&stop).await;
    let taking = json!({"properties": {"networkProfile": {"networkInterfaces": [{"id": nic_id("a")}]}}});
    rig.call("PATCH", &vm_uri("b"), Some(taking)).await.refused(400, "NicInUse");
    // Its own may be exchanged for a free one while it is deallocated, and is free then.
    put_nic(&rig, "free").await.expect(201);
    let other = json!({"properties": {"networkProfile": {"networkInterfaces": [{"id": nic_id("free")}]}}});
    rig.call("PATCH", &vm_uri("a"), Some(other.clone()))
        .await
        .refused(400, "AddingOrDeletingNetworkInterfacesOnARunningVirtualMachineNotSupported");
    let written = rig.call("PATCH", &vm_uri("b"), Some(other)).await.expect(200);
    rig.finish(&written).await;
    sound(&rig);
    let gone = rig.call("DELETE", &nic_uri("b"), None).await.expect(202);
    rig.finish(&gone).await;
    rig.call("DELETE", &nic_uri("free"), None).await.refused(400, "NicInUse");
}

#[tokio::test(start_paused = true)]
async fn an_interface_that_a_machine_takes_while_it_is_deleted_stays() {
    let rig = Rig::new(slow()).await;
    put_nic(&rig, "a").await.expect(201);
    let going = rig.call("DELETE", &nic_uri("a"), None).await.expect(202);
    let made = create(&rig, "a", json!([])).await;
    quiet(&rig).await;
    let deleted = rig.poll(going.header("azure-asyncoperation")).await["status"] == "Succeeded";
    assert_eq!(deleted, made.status != 201, "{} {}", made.status, made.body);
    sound(&rig);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_being_deleted_takes_no_write_but_another_delete() {
    let rig = Rig::new(slow()).await;
    rig.disk("d").await;
    let first = rig.call("DELETE", &vm_uri("plain-0"), None).await.expect(202);
    let refusals = [
        rig.put_data_disks("plain-0", json!([element("d", 0)])).await,
        rig.attach_detach("plain-0", json!([{"diskId": disk_id("d")}]), json!([])).await,
        rig.call("PATCH", &vm_uri("plain-0"), Some(json!({"tags": {"a": "b"}}))).await,
        act(&rig, "plain-0", "start").await,
    ];
    for refusal in refusals {
        let refusal = refusal.refused(409, "OperationNotAllowed");
        assert!(refusal.message().contains("on VM 'plain-0' since the VM is marked for deletion"), "{}", refusal.body);
    }
    let second = rig.call("DELETE", &vm_uri("plain-0"), None).await.expect(202);
    assert_eq!(rig.finish(&first).await["status"], "Succeeded");
    assert_eq!(rig.finish(&second).await["status"], "Succeeded");
    rig.get(&vm_uri("plain-0")).await.expect(404);
    sound(&rig);
}

#[tokio::test(start_paused = true)]
async fn a_deallocated_machine_is_started_and_not_switched_off_or_restarted() {
    let rig = Rig::new(slow()).await;
    let view = format!("{}/instanceView?api-version={COMPUTE_VERSION}", vm_id("plain-0"));
    let power = async || rig.get(&view).await.expect(200).body["statuses"][1]["code"].clone();
    assert_eq!(power().await, "PowerState/running");
    let stop = act(&rig, "plain-0", "deallocate").await.expect(202);
    assert_eq!(power().await, "PowerState/deallocating");
    rig.finish(&stop).await;
    assert_eq!(power().await, "PowerState/deallocated");
    for action in ["powerOff", "restart", "redeploy"] {
        let refused = act(&rig, "plain-0", action).await.refused(409, "OperationNotAllowed");
        let expected = format!(
            "Operation '{action}' is not allowed on VM 'plain-0' since the VM is either deallocated or marked to be deallocated."
        );
        assert!(refused.message().starts_with(&expected), "{}", refused.message());
    }
    let start = act(&rig, "plain-0", "start").await.expect(202);
    assert_eq!(power().await, "PowerState/starting");
    rig.finish(&start).await;
    let off = act(&rig, "plain-0", "powerOff").await.expect(202);
    assert_eq!(power().await, "PowerState/stopping");
    rig.finish(&off).await;
    assert_eq!(power().await, "PowerState/stopped");
    let refused = act(&rig, "plain-0", "restart").await.refused(409, "OperationNotAllowed");
    assert_eq!(refused.message(), "The operation requires the VM to be running (or set to run).");
}

#[tokio::test(start_paused = true)]
async fn a_shared_disk_is_reserved_when_all_its_machines_are_deallocated() {
    let rig = Rig::new(slow()).await;
    let mut body = premium(1024);
    body["properties"]["maxShares"] = json!(2);
    let made = rig.put_disk("shared", body).await.expect(202);
    rig.finish(&made).await;
    rig.attached("plain-0", &[("shared", 0)]).await;
    rig.attached("plain-1", &[("shared", 0)]).await;
    for (vm, state) in [("plain-0", "Attached"), ("plain-1", "Reserved")] {
        let stop = act(&rig, vm, "deallocate").await.expect(202);
        rig.finish(&stop).await;
        assert_eq!(rig.disk_doc("shared").await["properties"]["diskState"], state);
    }
    sound(&rig);
}

#[tokio::test(start_paused = true)]
async fn two_new_disks_of_one_name_in_one_write_are_refused() {
    let rig = Rig::new(slow()).await;
    let new = |lun: u8| json!({"lun": lun, "name": "twin", "createOption": "Empty", "diskSizeGB": 4});
    rig.put_data_disks("plain-0", json!([new(0), new(1)])).await.refused(400, "InvalidParameter");
    rig.get(&disk_uri("twin")).await.expect(404);
}

fn some<'a>(random: &mut StdRng, of: &[&'a str]) -> &'a str {
    of[random.random_range(0..of.len())]
}

/// One write of a script, by chance.
async fn step(rig: &Rig, random: &mut StdRng) -> (String, u16) {
    const VMS: [&str; 4] = ["plain-0", "plain-1", "new-0", "new-1"];
    const DISKS: [&str; 5] = ["d0", "d1", "d2", "shared", "large"];
    let (vm, disk, other) = (some(random, &VMS), some(random, &DISKS), some(random, &DISKS));
    let lun = random.random_range(0..4_u8);
    let mut one = element(disk, lun);
    if random.random_bool(0.3) {
        one["deleteOption"] = json!("Delete");
    }
    let (what, got) = match random.random_range(0..18) {
        0 | 1 => {
            let mut body = premium(if disk == "large" { 5000 } else { 16 });
            if disk == "shared" {
                body = premium(1024);
                body["properties"]["maxShares"] = json!(2);
            }
            (format!("make {disk}"), rig.put_disk(disk, body).await)
        }
        2 => (format!("delete {disk}"), rig.call("DELETE", &disk_uri(disk), None).await),
        3 => {
            let gib = random.random_range(16..64);
            let body = json!({"properties": {"diskSizeGB": gib}});
            (format!("grow {disk}"), rig.call("PATCH", &disk_uri(disk), Some(body)).await)
        }
        4..=6 => {
            let attach = json!([{"diskId": disk_id(disk), "lun": lun}]);
            let detach = if random.random_bool(0.3) { json!([{"diskId": disk_id(other)}]) } else { json!([]) };
            (format!("attach {disk} to {vm} for {other}"), rig.attach_detach(vm, attach, detach).await)
        }
        7 | 8 => {
            let force = if random.random_bool(0.3) {
                json!([{"diskId": disk_id(disk), "detachOption": "ForceDetach"}])
            } else {
                json!([{"diskId": disk_id(disk)}])
            };
            (format!("detach {disk} from {vm}"), rig.attach_detach(vm, json!([]), force).await)
        }
        9 => (format!("put {disk} only on {vm}"), rig.put_data_disks(vm, json!([one])).await),
        10 => {
            let new = json!({"lun": lun, "name": disk, "createOption": "Empty", "diskSizeGB": 4});
            (format!("put new {disk} on {vm}"), rig.put_data_disks(vm, json!([new])).await)
        }
        11 => (format!("take all from {vm}"), rig.put_data_disks(vm, json!([])).await),
        12 => {
            let body = json!({"tags": {"n": lun.to_string()}});
            (format!("tag {vm}"), rig.call("PATCH", &vm_uri(vm), Some(body)).await)
        }
        13 | 14 => {
            let action = some(random, &["start", "powerOff", "deallocate", "restart", "redeploy"]);
            (format!("{action} {vm}"), act(rig, vm, action).await)
        }
        15 => (format!("delete {vm}"), rig.call("DELETE", &vm_uri(vm), None).await),
        16 => (format!("make {vm} with {disk}"), create(rig, vm, json!([one])).await),
        _ => (format!("delete interface {vm}"), rig.call("DELETE", &nic_uri(vm), None).await),
    };
    (what, got.status)
}

#[tokio::test(start_paused = true)]
async fn random_scripts_of_many_writers_leave_the_books_in_order() {
    for seed in 0..24 {
        let concurrent_vm_write = if seed % 2 == 0 { Concurrent::Conflict } else { Concurrent::Preempt };
        let failed_attach_stays_in_model = seed % 3 == 0;
        let unverified = Switches { concurrent_vm_write, failed_attach_stays_in_model, ..Switches::default() };
        let rig = Rig::new(Options { unverified, seed, throttling: false, ..slow() }).await;
        let mut random = StdRng::seed_from_u64(seed);
        let mut script = Vec::new();
        for _ in 0..30 {
            for _ in 0..random.random_range(1..8) {
                script.push(step(&rig, &mut random).await);
                if random.random_bool(0.5) {
                    tokio::time::sleep(Duration::from_secs(random.random_range(1..12))).await;
                }
            }
            quiet(&rig).await;
            let found = faults(&rig.control().dump());
            assert!(found.is_empty(), "seed {seed}:\n{}\n{script:#?}", found.join("\n"));
        }
    }
}
