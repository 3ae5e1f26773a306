//! Defects that the Go driver is known for and that no other suite asks after. `peer_defects` is the whole list.

use std::collections::BTreeMap;

use csi_proto::csi::{ControllerGetVolumeRequest, ControllerGetVolumeResponse};
use futures::{StreamExt as _, stream};
use lazuli_emulator::{
    latency::Profile,
    scenario::{AttachTo, Disk, Scenario, VirtualMachine},
};
use lazuli_model::Lun;
use lazuli_rig::Folder;
use lazuli_storage::lun::{LunReservations, Reservation};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use tonic::{Code, Status};

use super::disk_rig::{
    Client, GIB, METHODS, Method, Rig, create, create_all, create_with, delete, disk_id, list, numbered, pass, publish,
    publish_all, publishing, refused, seconds, start, typical, unpublish, vm_id,
};

const NODE: &str = "node-0";

/// What a machine's model says of one of its data disks.
fn element(rig: &Rig, name: &str) -> Value {
    let dump = rig.control.dump();
    let listed = dump.resources[&vm_id(NODE).to_lowercase()]["properties"]["storageProfile"]["dataDisks"].clone();
    let id = disk_id(name).to_lowercase();
    let mut listed = listed.as_array().cloned().unwrap_or_default().into_iter();
    listed.find(|element| element["managedDisk"]["id"].as_str().unwrap().to_lowercase() == id).unwrap()
}

/// The Go driver builds a client, and signs in, for each volume of such a class.
#[tokio::test(start_paused = true)]
async fn disk_a_class_with_a_user_agent_of_its_own_signs_in_no_second_time() {
    let (rig, client) = Rig::typical().await;
    for (at, name) in numbered(5).iter().enumerate() {
        let agent = format!("tool/{at}");
        let volume = create_with(&client, name, &[("userAgent", &agent)]).await.unwrap();
        assert_eq!(volume.volume_context["userAgent"], agent);
    }
    let signed_in = rig.control.call_log().iter().filter(|call| call.plane == "login").count();
    assert_eq!(signed_in, 1);
    rig.stop().await;
}

/// The Go driver passes Azure's refusal on as an internal error.
#[tokio::test(start_paused = true)]
async fn disk_a_place_that_is_nowhere_is_the_users_mistake_and_is_named() {
    let (rig, client) = Rig::typical().await;
    for (key, value) in [("location", "atlantis"), ("resourceGroup", "nowhere")] {
        let message = refused(create_with(&client, "pvc-a", &[(key, value)]).await, Code::InvalidArgument);
        assert!(message.contains(value), "{message}");
    }
    rig.at_rest().await;
    rig.check_empty();
    rig.stop().await;
}

/// The Go driver makes `NOT_FOUND` or `ABORTED` of a creation by what the text of the error contains.
#[tokio::test(start_paused = true)]
async fn disk_words_in_a_refused_creation_decide_nothing() {
    let (rig, client) = Rig::typical().await;
    for words in ["ResourceGroupNotFound: NotFound", "TooManyRequests, StatusCode=429, client throttled"] {
        for (status, code, expected) in [
            (400, "BadRequest", Code::InvalidArgument),
            (403, "AuthorizationFailed", Code::PermissionDenied),
            (409, "SkuNotAvailable", Code::ResourceExhausted),
        ] {
            rig.incident(json!({
                "match": {"method": "PUT", "path": "*/disks/*"},
                "then": {"status": status, "code": code, "message": words},
            }));
            refused(create(&client, "pvc-a").await, expected);
        }
    }
    rig.check_empty();
    rig.stop().await;
}

/// What external-provisioner does with a claim that is deleted while its volume is made: it asks until the answer is
/// final, and deletes what it was given. A final failure it takes as "there is no disk". Leadership moves after the
/// first question.
async fn deleted_while_it_is_made(first: &Client, then: &Client) -> Result<(), Status> {
    let mut answer = timeout(seconds(1), create(first, "pvc-a")).await;
    for _ in 0..300 {
        match answer {
            Ok(Ok(volume)) => {
                delete(then, &volume.volume_id).await.unwrap();
                return Ok(());
            }
            Err(_) => {}
            Ok(Err(status)) => match status.code() {
                Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable | Code::Aborted => pass(seconds(5)).await,
                _ => return Err(status),
            },
        }
        answer = timeout(seconds(10), create(then, "pvc-a")).await;
    }
    panic!("no final answer came");
}

#[tokio::test(start_paused = true)]
async fn disk_a_claim_that_is_deleted_while_its_creation_is_throttled_leaves_no_disk() {
    let put = json!({"method": "PUT", "path": "*/disks/pvc-a"});
    let get = json!({"method": "GET", "path": "*/disks/pvc-a"});
    // What the second controller asks, while the first one's disk is being made.
    let later_get = json!({"method": "GET", "path": "*/disks/pvc-a", "nth": 2});
    let poll = json!({"operation": "operations.get"});
    let throttled = json!({"status": 429, "retryAfter": 60});
    let long = json!({"status": 429, "retryAfter": 300});
    for incidents in [
        &[(&put, &throttled, 3)][..],
        &[(&put, &long, 3)],
        &[(&get, &throttled, 3)],
        &[(&later_get, &long, 2)],
        &[(&later_get, &json!({"status": 403, "code": "AuthorizationFailed"}), 2)],
        &[(&poll, &throttled, 5)],
        &[(&poll, &long, 2)],
        &[(&put, &json!({"loseAnswer": "after"}), 1), (&later_get, &long, 3)],
        &[(&put, &json!({"loseAnswer": "after"}), 1), (&poll, &long, 3)],
        &[(&put, &json!({"lateFailure": {"code": "InternalExecutionError"}}), 1), (&later_get, &long, 2)],
        &[(&put, &json!({"lateFailure": {"code": "SkuNotAvailable"}}), 1), (&later_get, &long, 2)],
    ] {
        let (mut rig, first) = Rig::typical().await;
        let then = rig.lab.controller("then").await.unwrap();
        for (of, then, times) in incidents {
            rig.incident(json!({"match": of, "then": then, "times": times}));
        }
        let answer = deleted_while_it_is_made(&first, &then).await;
        // The operations may go on after their callers have given up.
        pass(seconds(1200)).await;
        rig.at_rest().await;
        assert!(rig.disks().is_empty(), "{incidents:?}: {answer:?}, and a disk is left");
        rig.check_empty();
        rig.stop().await;
    }
}

/// A standalone machine is written by the Go driver even when nothing is to be detached.
#[tokio::test(start_paused = true)]
async fn disk_unpublishing_what_is_not_attached_there_costs_no_write() {
    for method in METHODS {
        let mut rig = Rig::with(typical(), |options| method.set(options)).await;
        let client = rig.controller().await;
        let names = numbered(2);
        let sku = [("skuName", "Standard_LRS")];
        let volumes = [
            create_with(&client, &names[0], &sku).await.unwrap(),
            create_with(&client, &names[1], &sku).await.unwrap(),
        ];
        publish(&client, &volumes[0], "node-1").await.unwrap();
        rig.control.reset_log();
        for volume in &volumes {
            for _ in 0..2 {
                unpublish(&client, &volume.volume_id, NODE).await.unwrap();
            }
        }
        assert_eq!(rig.writes().len(), 0, "{method:?}");
        assert_eq!(rig.luns("node-1").len(), 1, "{method:?}: it was taken off another machine");
        rig.check();
        rig.stop().await;
    }
}

/// In the Go driver a disk without an encryption set gets that of the machine's own disk.
#[tokio::test(start_paused = true)]
async fn disk_each_disk_keeps_its_own_encryption_set_and_never_takes_the_machines() {
    let set = |name: &str| disk_id(name).replace("/disks/", "/diskEncryptionSets/");
    for method in [Method::Action, Method::WholeList] {
        let mut rig = Rig::with(typical(), |options| method.set(options)).await;
        let client = rig.controller().await;
        let of_the_machine = set("of-the-machine");
        let encrypt = |doc: &mut Value| {
            doc["properties"]["storageProfile"]["osDisk"]["managedDisk"]["diskEncryptionSet"] =
                json!({"id": of_the_machine.clone()});
        };
        rig.control.tamper(&vm_id(NODE), encrypt).unwrap();
        let own = set("of-the-class");
        let with = create_with(&client, "pvc-with", &[("diskEncryptionSetID", &own)]).await.unwrap();
        let without = create(&client, "pvc-without").await.unwrap();
        publish(&client, &with, NODE).await.unwrap();
        publish(&client, &without, NODE).await.unwrap();
        let sets: Vec<Value> = ["pvc-with", "pvc-without"]
            .map(|name| element(&rig, name)["managedDisk"]["diskEncryptionSet"]["id"].clone())
            .into();
        assert_eq!(sets, [json!(own), Value::Null], "{method:?}");
        rig.check();
        rig.stop().await;
    }
}

/// The Go driver answers from a copy of what it has just written.
#[tokio::test(start_paused = true)]
async fn disk_a_write_that_azure_calls_done_is_believed_when_the_machine_says_so() {
    let (rig, client) = Rig::typical().await;
    let volume = create(&client, "pvc-a").await.unwrap();
    rig.control.reset_log();
    // The read of the VM after the write comes late, and another tool detaches the disk before it.
    rig.incident(json!({
        "match": {"method": "GET", "path": "*/virtualMachines/node-0", "nth": 2}, "then": {"delayMs": 30_000},
    }));
    let answer = publishing(&client, &volume, NODE);
    pass(seconds(12)).await;
    assert_eq!(rig.luns(NODE).len(), 1, "the write has not ended");
    assert_eq!(rig.other_tool().detach(NODE, &["pvc-a"]).await, 202);
    assert_eq!(answer.await.unwrap().unwrap(), 0);
    rig.at_rest().await;
    assert_eq!(rig.luns(NODE).len(), 1, "OK was said of a disk that is not there");
    assert_eq!(rig.vm_writes(NODE).iter().filter(|call| call.started.is_some()).count(), 3);
    rig.check();
    rig.stop().await;
}

/// In the Go driver one failure throws a cached machine away, and the next look lists the whole scale set.
#[tokio::test(start_paused = true)]
async fn disk_a_failed_attach_or_detach_costs_no_list_of_machines() {
    let (rig, client) = Rig::typical().await;
    let volume = create(&client, "pvc-a").await.unwrap();
    let fails = json!({"match": {"method": "POST"}, "then": {"lateFailure": {"code": "InternalExecutionError"}}});
    rig.control.reset_log();
    for _ in 0..3 {
        rig.incident(fails.clone());
        refused(publish(&client, &volume, NODE).await, Code::Unavailable);
    }
    publish(&client, &volume, NODE).await.unwrap();
    for _ in 0..3 {
        rig.incident(fails.clone());
        refused(unpublish(&client, &volume.volume_id, NODE).await, Code::Unavailable);
    }
    unpublish(&client, &volume.volume_id, NODE).await.unwrap();
    let calls = rig.calls();
    assert!(calls.iter().all(|call| !call.operation.contains("list")), "{calls:?}");
    rig.check();
    rig.stop().await;
}

/// The Go driver calls every disk that is not free an internal error.
#[tokio::test(start_paused = true)]
async fn disk_a_disk_that_is_read_by_a_signature_is_refused_with_the_reason_and_attached_afterwards() {
    let (rig, client) = Rig::typical().await;
    let open = [("networkAccessPolicy", "AllowAll"), ("publicNetworkAccess", "Enabled")];
    let volume = create_with(&client, "pvc-a", &open).await.unwrap();
    let other = rig.other_tool();
    let access = json!({"access": "Read", "durationInSeconds": 3600});
    let begun = other.call("POST", &format!("{}/beginGetAccess", disk_id("pvc-a")), Some(access)).await;
    assert_eq!(begun.0, 202, "{}", begun.1);
    rig.at_rest().await;
    rig.control.reset_log();
    let message = refused(publish(&client, &volume, NODE).await, Code::FailedPrecondition);
    assert!(message.contains("shared access signature"), "{message}");
    assert_eq!(rig.writes().len(), 0);
    assert_eq!(other.call("POST", &format!("{}/endGetAccess", disk_id("pvc-a")), None).await.0, 202);
    rig.at_rest().await;
    assert_eq!(publish(&client, &volume, NODE).await.unwrap(), 0);
    rig.check();
    rig.stop().await;
}

/// The Go driver has no `ControllerGetVolume`.
#[tokio::test(start_paused = true)]
async fn disk_a_single_volume_is_told_with_its_size_and_its_nodes() {
    let (rig, client) = Rig::typical().await;
    let get = async |id: &str| -> Result<ControllerGetVolumeResponse, Status> {
        let request = ControllerGetVolumeRequest { volume_id: id.into() };
        client.clone().controller_get_volume(request).await.map(tonic::Response::into_inner)
    };
    let volume = create(&client, "pvc-a").await.unwrap();
    for node in [None, Some("node-1")] {
        if let Some(node) = node {
            publish(&client, &volume, node).await.unwrap();
        }
        // The answer has the letter case of the request.
        for spelt in [volume.volume_id.clone(), volume.volume_id.replace("resourceGroups", "resourcegroups")] {
            let told = get(&spelt).await.unwrap();
            let found = told.volume.unwrap();
            assert_eq!((found.volume_id, found.capacity_bytes), (spelt, GIB));
            assert_eq!(told.status.unwrap().published_node_ids, node.map_or(vec![], |node| vec![node.to_owned()]));
        }
    }
    refused(get(&disk_id("pvc-missing")).await, Code::NotFound);
    refused(get("").await, Code::InvalidArgument);
    rig.stop().await;
}

/// external-attacher compares what is listed with what it attached, byte by byte, and attaches everything anew that
/// is spelt otherwise.
#[tokio::test(start_paused = true)]
async fn disk_a_list_of_five_thousand_attachments_is_what_kubernetes_recorded() {
    const NODES: usize = 100;
    const EACH: usize = 50;
    let node = |n: usize| format!("node-{n}");
    let mut azure = lazuli_emulator::Options { nasty_casing: true, ..typical() };
    let size = "Standard_M128s".to_owned();
    let machines = vec![VirtualMachine { size, ..VirtualMachine::pattern("node-{}", NODES.try_into().unwrap()) }];
    let mut disks = Vec::new();
    let mut expected = BTreeMap::new();
    let mut recorded: BTreeMap<String, Vec<Reservation>> = BTreeMap::new();
    for at in 0..NODES * EACH {
        let (name, holder, lun) = (format!("pvc-{at:04}"), node(at / EACH), at % EACH);
        let handle = disk_id(&name).replace("/resourceGroups/lazuli/", "/resourcegroups/Lazuli/");
        disks.push(Disk {
            name,
            size_gib: 4,
            sku: "StandardSSD_LRS".into(),
            zone: None,
            resource_group: None,
            attach_to: Some(AttachTo { vm: holder.clone(), lun: lun.try_into().unwrap() }),
            tags: BTreeMap::new(),
        });
        recorded.entry(holder.clone()).or_default().push(Reservation {
            lun: Lun::try_from(i64::try_from(lun).unwrap()).unwrap(),
            volume_handle: Some(handle.clone()),
            attachment: format!("csi-{at}"),
        });
        expected.insert(handle, vec![holder]);
    }
    azure.scenario = Scenario { virtual_machines: machines, disks, ..Scenario::default() };
    let (_sender, receiver) = tokio::sync::watch::channel(LunReservations::Synced(recorded));
    let mut rig = Rig::with(azure, |options| options.reservations = Some(receiver)).await;
    let client = rig.controller().await;
    rig.control.reset_log();
    let listed = list(&client).await.unwrap();
    assert_eq!(listed.len(), expected.len());
    for (listed, expected) in listed.iter().zip(&expected) {
        assert_eq!(listed, expected);
    }
    assert_eq!(rig.writes().len(), 0);
    rig.stop().await;
}

/// azuredisk#3457: two attachments of one node name the same LUN, and either volume may be staged from it.
#[tokio::test(start_paused = true)]
async fn disk_a_lun_that_two_attachments_name_is_given_to_neither_of_their_disks() {
    let both = ["pvc-00", "pvc-01"].map(|name| Reservation {
        lun: Lun::try_from(0).unwrap(),
        volume_handle: Some(disk_id(name)),
        attachment: format!("csi-{name}"),
    });
    let recorded = LunReservations::Synced([(NODE.to_owned(), both.into())].into());
    let (sender, receiver) = tokio::sync::watch::channel(recorded);
    let mut rig = Rig::with(typical(), |options| options.reservations = Some(receiver)).await;
    let client = rig.controller().await;
    let volumes = create_all(&client, &numbered(3)).await;
    let given: Vec<u8> = publish_all(&client, &volumes, NODE).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(given, [1, 2, 3]);
    // Once one of the attachments is gone the LUN is the other's.
    for volume in &volumes {
        unpublish(&client, &volume.volume_id, NODE).await.unwrap();
    }
    sender.send_modify(|recorded| {
        let LunReservations::Synced(nodes) = recorded else { panic!("it is synced") };
        nodes.get_mut(NODE).unwrap().truncate(1);
    });
    assert_eq!(publish(&client, &volumes[2], NODE).await.unwrap(), 1);
    assert_eq!(publish(&client, &volumes[0], NODE).await.unwrap(), 0);
    rig.check();
    rig.stop().await;
}

/// In the Go driver callers wait for a node's lock while its holder sleeps, and cannot leave.
#[tokio::test(start_paused = true)]
async fn disk_a_machine_whose_write_hangs_keeps_no_other_machine_waiting() {
    let (rig, client) = Rig::typical().await;
    let volumes = create_all(&client, &numbered(2)).await;
    rig.incident(json!({
        "match": {"method": "POST", "path": format!("{}/*", vm_id(NODE))}, "then": {"delayMs": 50_000},
    }));
    let hanging = publishing(&client, &volumes[0], NODE);
    pass(seconds(1)).await;
    let began = Instant::now();
    let other = {
        let (client, volume) = (client.clone(), volumes[1].clone());
        start(async move { publish(&client, &volume, "node-1").await })
    };
    other.await.unwrap().unwrap();
    assert!(began.elapsed() <= seconds(11), "{:?}", began.elapsed());
    assert!(!hanging.is_finished());
    hanging.await.unwrap().unwrap();
    rig.check();
    rig.stop().await;
}

/// external-attacher as it is shipped: ten workers that wait fifteen seconds. Azure takes longer.
#[tokio::test(start_paused = true)]
async fn disk_a_sidecar_with_ten_workers_and_little_patience_gets_everything_attached_in_few_writes() {
    let folder = Folder::make("slow").unwrap();
    let file = folder.path().join("latency.yaml");
    std::fs::write(&file, "base: typical\noperations:\n  vmAttach: {constant_ms: 25000}\n").unwrap();
    let latency = Profile::parse(file.to_str().unwrap()).unwrap();
    let mut rig = Rig::on(lazuli_emulator::Options { latency, ..typical() }).await;
    let client = rig.controller().await;
    let volumes = create_all(&client, &numbered(20)).await;
    rig.control.reset_log();
    let began = Instant::now();
    let attached = volumes.iter().enumerate().map(|(at, volume)| {
        let (client, node) = (&client, if at % 2 == 0 { NODE } else { "node-1" });
        async move {
            let mut given_up = 0;
            loop {
                match timeout(seconds(15), publish(client, volume, node)).await {
                    Ok(lun) => break (given_up, lun.unwrap()),
                    Err(_) => given_up += 1,
                }
                assert!(given_up < 20, "{node} never gets its disk");
                pass(seconds(1)).await;
            }
        }
    });
    let answers: Vec<(u32, u8)> = stream::iter(attached).buffered(10).collect().await;
    assert!(answers.iter().all(|(given_up, _)| *given_up > 0), "Azure was quick: nothing was proved");
    for node in [NODE, "node-1"] {
        assert_eq!((rig.luns(node).len(), rig.vm_writes(node).len()), (10, 2), "{node}");
    }
    assert!(began.elapsed() <= seconds(60), "{:?}", began.elapsed());
    rig.check();
    rig.stop().await;
}
