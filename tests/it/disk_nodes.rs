//! Which VM a node is where a cluster says so, and which detaches go first.

use std::collections::BTreeMap;

use lazuli_emulator::scenario::{ResourceGroup, Scenario, VirtualMachine};
use lazuli_model::{
    Lun,
    node::{ClusterNodes, KnownNodes, Machine, Node},
};
use lazuli_rig::Options;
use lazuli_storage::lun::{LunReservations, Reservation};
use tokio::sync::watch;
use tonic::Code;

use super::disk_rig::{
    Client, Rig, create, create_all, create_with, millis, numbered, pass, publish, refused, seconds, typical,
    unpublish, vm_id,
};

/// The id of a VM outside of the cluster's resource group.
fn elsewhere(name: &str) -> String {
    vm_id(name).replace("/resourceGroups/lazuli/", "/resourceGroups/elsewhere/")
}

fn node(vm: &str) -> Node {
    Node { machine: Machine::of_provider_id(&format!("azure://{vm}")), healthy: true, ..Node::default() }
}

fn known(nodes: impl IntoIterator<Item = (String, Node)>) -> ClusterNodes {
    let mut known = KnownNodes::default();
    known.replace(nodes);
    ClusterNodes::Known(known)
}

/// Two machines in the cluster's group, `node-0` and `node-1`, and two in another: `node-0` again, and `far`.
async fn rig(nodes: ClusterNodes) -> (Rig, Client, watch::Sender<ClusterNodes>) {
    rig_with(nodes, |_| {}).await
}

async fn rig_with(
    nodes: ClusterNodes,
    change: impl FnOnce(&mut Options),
) -> (Rig, Client, watch::Sender<ClusterNodes>) {
    let (tell, receiver) = watch::channel(nodes);
    let mut azure = typical();
    let group = |name: &str| ResourceGroup { name: name.into(), location: None, subscription: None };
    let there = |name: &str| VirtualMachine {
        count: None,
        resource_group: Some("elsewhere".into()),
        ..VirtualMachine::pattern(name, 1)
    };
    azure.scenario = Scenario {
        resource_groups: vec![group("lazuli"), group("elsewhere")],
        virtual_machines: vec![VirtualMachine::pattern("node-{}", 2), there("node-0"), there("far")],
        ..Scenario::default()
    };
    let mut rig = Rig::with(azure, |options: &mut Options| {
        options.nodes = Some(receiver);
        change(options);
    })
    .await;
    let client = rig.controller().await;
    (rig, client, tell)
}

fn holder(rig: &Rig, disk: &str) -> Option<String> {
    Some(rig.disk(disk)?.get("managedBy")?.as_str()?.to_lowercase())
}

#[tokio::test(start_paused = true)]
async fn disk_a_node_outside_of_the_clusters_group_is_found_by_its_provider_id() {
    let (rig, client, _tell) = rig(known([("worker-9".to_owned(), node(&elsewhere("far")))])).await;
    let volume = create(&client, "pvc-a").await.unwrap();
    publish(&client, &volume, "worker-9").await.unwrap();
    assert_eq!(holder(&rig, "pvc-a").unwrap(), elsewhere("far").to_lowercase());
    // No list was needed to find it.
    assert!(!rig.calls().iter().any(|call| call.operation == "virtualMachines.list"));
    unpublish(&client, &volume.volume_id, "worker-9").await.unwrap();
    assert_eq!(holder(&rig, "pvc-a"), None);
    rig.check();
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_node_whose_label_names_a_group_is_the_vm_of_its_name_there() {
    let labelled = Node { resource_group: Some("elsewhere".into()), healthy: true, ..Node::default() };
    let (rig, client, _tell) = rig(known([("node-0".to_owned(), labelled)])).await;
    let volume = create(&client, "pvc-a").await.unwrap();
    publish(&client, &volume, "node-0").await.unwrap();
    assert_eq!(holder(&rig, "pvc-a").unwrap(), elsewhere("node-0").to_lowercase());
    rig.check();
    rig.stop().await;
}

/// A VM that only has the node's name is not the node, also when the node's own VM is gone.
#[tokio::test(start_paused = true)]
async fn disk_a_vm_of_the_nodes_name_that_its_provider_id_does_not_name_is_left_alone() {
    let (rig, client, _tell) = rig(known([("node-0".to_owned(), node(&elsewhere("node-0")))])).await;
    let volume = create(&client, "pvc-a").await.unwrap();
    publish(&client, &volume, "node-0").await.unwrap();
    assert_eq!(rig.other_tool().call("DELETE", &elsewhere("node-0"), None).await.0, 202);
    pass(seconds(40)).await;
    refused(publish(&client, &volume, "node-0").await, Code::NotFound);
    unpublish(&client, &volume.volume_id, "node-0").await.unwrap();
    assert_eq!(rig.vm_writes("node-0"), []);
    rig.check();
    rig.stop().await;
}

/// A replica without memory knows neither the machine's name nor its group. Nothing but the disk names the machine.
#[tokio::test(start_paused = true)]
async fn disk_a_detach_from_a_deleted_node_is_not_ok_while_a_machine_that_no_node_names_has_the_disk() {
    let (mut rig, client, tell) = rig(known([("worker-9".to_owned(), node(&elsewhere("far")))])).await;
    let volume = create(&client, "pvc-a").await.unwrap();
    publish(&client, &volume, "worker-9").await.unwrap();
    tell.send_replace(known([("node-1".to_owned(), node(&vm_id("node-1")))]));
    let restarted = rig.lab.controller("restarted").await.unwrap();
    let error = unpublish(&restarted, &volume.volume_id, "worker-9").await.unwrap_err();
    assert_eq!(error.code(), Code::Aborted, "{error}");
    for part in ["worker-9", "virtualMachines/far", "no Node names", "az vm disk detach", "--vm-name far --name pvc-a"]
    {
        assert!(error.message().contains(part), "{part}: {error}");
    }
    assert_eq!(holder(&rig, "pvc-a").unwrap(), elsewhere("far").to_lowercase());
    // The machine of another Node is none of this node's.
    tell.send_replace(known([("far-node".to_owned(), node(&elsewhere("far")))]));
    unpublish(&restarted, &volume.volume_id, "worker-9").await.unwrap();
    assert_eq!(holder(&rig, "pvc-a").unwrap(), elsewhere("far").to_lowercase());
    rig.check();
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_detach_from_a_deleted_node_whose_name_another_vm_has_leaves_the_vm_that_has_the_disk() {
    let (mut rig, client, tell) = rig(known([("node-0".to_owned(), node(&elsewhere("node-0")))])).await;
    let volume = create(&client, "pvc-a").await.unwrap();
    publish(&client, &volume, "node-0").await.unwrap();
    tell.send_replace(known([("node-1".to_owned(), node(&vm_id("node-1")))]));
    let restarted = rig.lab.controller("restarted").await.unwrap();
    unpublish(&restarted, &volume.volume_id, "node-0").await.unwrap();
    assert_eq!(holder(&rig, "pvc-a"), None, "OK was said while the disk is attached");
    rig.check();
    rig.stop().await;
}

/// The proof that a VM is gone comes from its own group, not from the cluster's.
#[tokio::test(start_paused = true)]
async fn disk_the_group_of_a_vm_that_cannot_be_listed_proves_nothing_about_it() {
    let (rig, client, _tell) = rig(known([("far".to_owned(), node(&elsewhere("far")))])).await;
    let volume = create(&client, "pvc-a").await.unwrap();
    publish(&client, &volume, "far").await.unwrap();
    for path in ["*/resourceGroups/elsewhere/*/virtualMachines", "*/resourceGroups/elsewhere/*/virtualMachines/far"] {
        let status = if path.ends_with("far") { (404, "ResourceNotFound") } else { (403, "AuthorizationFailed") };
        rig.incident(serde_json::json!({
            "match": {"method": "GET", "path": path}, "then": {"status": status.0, "code": status.1}, "times": 0,
        }));
    }
    refused(unpublish(&client, &volume.volume_id, "far").await, Code::PermissionDenied);
    assert_eq!(holder(&rig, "pvc-a").unwrap(), elsewhere("far").to_lowercase());
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_request_waits_until_the_nodes_are_known_and_then_meets_the_right_vm() {
    let (rig, client, tell) = rig(ClusterNodes::Cold).await;
    let volume = create(&client, "pvc-a").await.unwrap();
    refused(publish(&client, &volume, "node-0").await, Code::Unavailable);
    let publishing = tokio::spawn({
        let (client, volume) = (client.clone(), volume.clone());
        async move { publish(&client, &volume, "node-0").await }
    });
    pass(seconds(5)).await;
    tell.send_replace(known([("node-0".to_owned(), node(&elsewhere("node-0")))]));
    publishing.await.unwrap().unwrap();
    assert_eq!(holder(&rig, "pvc-a").unwrap(), elsewhere("node-0").to_lowercase());
    assert_eq!(rig.vm_writes("node-0"), []);
    rig.check();
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_an_arm_id_that_no_node_has_is_refused_and_one_that_a_node_has_is_taken() {
    let (rig, client, _tell) = rig(known([("node-1".to_owned(), node(&vm_id("node-1")))])).await;
    let volume = create(&client, "pvc-a").await.unwrap();
    let error = publish(&client, &volume, &vm_id("node-0")).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    assert!(error.message().contains("no Node has the providerID"), "{}", error.message());
    assert_eq!(rig.vm_writes("node-0"), []);
    publish(&client, &volume, &vm_id("node-1")).await.unwrap();
    rig.check();
    rig.stop().await;
}

/// Azure allows 200 writes at once and 10 a second after that: what waits behind them goes by priority.
#[tokio::test(start_paused = true)]
async fn disk_a_detach_from_a_dead_node_goes_before_every_other_write() {
    const NODES: usize = 6;
    let (tell, told) = watch::channel(ClusterNodes::Cold);
    let mut azure = typical();
    azure.scenario = Scenario { virtual_machines: vec![VirtualMachine::pattern("node-{}", 6)], ..Scenario::default() };
    let mut rig = Rig::with(azure, |options: &mut Options| options.nodes = Some(told)).await;
    let client = rig.controller().await;
    let name = |at: usize| format!("node-{at}");
    let nodes = |dead: Option<usize>| {
        known((0..NODES).map(|at| (name(at), Node { healthy: dead != Some(at), ..node(&vm_id(&name(at))) })))
    };
    tell.send_replace(nodes(None));
    let volumes = create_all(&client, &numbered(NODES)).await;
    for (at, volume) in volumes.iter().enumerate() {
        publish(&client, volume, &name(at)).await.unwrap();
    }
    pass(seconds(60)).await;
    rig.control.reset_log();
    let storm = tokio::spawn({
        let client = client.clone();
        async move { create_all(&client, &(0..600).map(|at| format!("storm-{at}")).collect::<Vec<_>>()).await }
    });
    pass(seconds(2)).await;
    // Kubernetes says that the last one is dead only after all have asked.
    let detaches: Vec<_> = volumes
        .iter()
        .enumerate()
        .map(|(at, volume)| {
            let (client, id, node) = (client.clone(), volume.volume_id.clone(), name(at));
            tokio::spawn(async move { unpublish(&client, &id, &node).await })
        })
        .collect();
    tell.send_replace(nodes(Some(NODES - 1)));
    pass(millis(10)).await;
    for detach in detaches {
        detach.await.unwrap().unwrap();
    }
    let writes: Vec<String> = rig.writes().into_iter().map(|call| call.path.to_lowercase()).collect();
    let of_vms: Vec<&String> = writes.iter().filter(|path| path.contains("/virtualmachines/")).collect();
    assert_eq!(of_vms.len(), NODES);
    assert!(of_vms[0].contains(&format!("/{}/", name(NODES - 1))), "{of_vms:?}");
    // They waited for tokens, and went before the creations that were waiting.
    assert!(!storm.is_finished());
    storm.await.unwrap();
    rig.at_rest().await;
    rig.check();
    rig.stop().await;
}

/// The VM of that name was a guess, and the Node says meanwhile that another one is its machine.
#[tokio::test(start_paused = true)]
async fn disk_a_node_that_registers_again_during_its_detach_is_not_answered_ok_by_the_guess() {
    let mut wrong = Vec::new();
    for with_machine in [true, false] {
        let (mut rig, client, tell) = rig(known([("node-0".to_owned(), node(&elsewhere("node-0")))])).await;
        let volume = create(&client, "pvc-a").await.unwrap();
        publish(&client, &volume, "node-0").await.unwrap();
        tell.send_replace(known([("node-1".to_owned(), node(&vm_id("node-1")))]));
        let restarted = rig.lab.controller("restarted").await.unwrap();
        rig.incident(serde_json::json!({"match": {"method": "GET", "path": "*/lazuli/*/virtualMachines/node-0"},
            "then": {"delayMs": 5000}}));
        let detaching = tokio::spawn({
            let (client, id) = (restarted.clone(), volume.volume_id.clone());
            async move { unpublish(&client, &id, "node-0").await }
        });
        pass(seconds(2)).await;
        let back = if with_machine { node(&elsewhere("node-0")) } else { Node { healthy: true, ..Node::default() } };
        tell.send_replace(known([("node-0".to_owned(), back)]));
        let outcome = detaching.await.unwrap();
        if outcome.is_ok() && holder(&rig, "pvc-a").is_some() {
            wrong.push((with_machine, holder(&rig, "pvc-a")));
        }
        rig.stop().await;
    }
    assert_eq!(wrong, [], "the answer was OK while this machine had the disk");
}

/// A VM name says nothing where the Node of that name names another machine.
#[tokio::test(start_paused = true)]
async fn disk_a_machine_with_the_vm_name_of_another_node_that_has_its_own_machine_is_not_left_with_ok() {
    let others = || [("node-0".to_owned(), node(&vm_id("node-0"))), ("node-1".to_owned(), node(&vm_id("node-1")))];
    let deleted = ("worker-9".to_owned(), node(&elsewhere("node-0")));
    let (mut rig, client, tell) = rig(known(others().into_iter().chain([deleted]))).await;
    let volume = create(&client, "pvc-a").await.unwrap();
    publish(&client, &volume, "worker-9").await.unwrap();
    tell.send_replace(known(others()));
    let restarted = rig.lab.controller("restarted").await.unwrap();
    let outcome = unpublish(&restarted, &volume.volume_id, "worker-9").await;
    let holder = holder(&rig, "pvc-a");
    assert!(outcome.is_err() || holder.is_none(), "the answer was OK while {holder:?} had the disk");
    rig.stop().await;
}

/// A person has moved the disk to a VM that rescues its data. The Node was there until its deletion was seen, so it is
/// certain which machine it was.
#[tokio::test(start_paused = true)]
async fn disk_a_disk_that_a_person_moved_away_from_a_deleted_nodes_machine_stays_and_its_unpublish_is_ok() {
    for seen in [true, false] {
        let (mut rig, client, tell) = rig(known([("worker-9".to_owned(), node(&elsewhere("far")))])).await;
        let volume = create(&client, "pvc-a").await.unwrap();
        publish(&client, &volume, "worker-9").await.unwrap();
        unpublish(&client, &volume.volume_id, "worker-9").await.unwrap();
        assert_eq!(rig.other_tool().attach("node-1", &[("pvc-a", 5)]).await, 202);
        rig.at_rest().await;
        tell.send_modify(|nodes| match nodes {
            ClusterNodes::Known(nodes) if seen => assert!(nodes.remove("worker-9")),
            nodes => *nodes = known([]),
        });
        let restarted = rig.lab.controller("restarted").await.unwrap();
        rig.control.reset_log();
        let outcome = unpublish(&restarted, &volume.volume_id, "worker-9").await;
        if seen {
            outcome.unwrap();
        } else {
            let message = refused(outcome, Code::Aborted);
            for part in ["which no Node names", "az vm disk detach", "remove the finalizers of the VolumeAttachment"] {
                assert!(message.contains(part), "{part}: {message}");
            }
        }
        assert_eq!((holder(&rig, "pvc-a").unwrap(), rig.writes()), (vm_id("node-1").to_lowercase(), vec![]));
        rig.check();
        rig.stop().await;
    }
}

/// kubelet chooses the provider id of its own Node, so a node may claim another one's machine.
#[tokio::test(start_paused = true)]
async fn disk_of_two_nodes_with_one_provider_id_neither_gets_a_disk_nor_an_ok_until_one_is_gone() {
    let both = || ["worker-7", "rogue"].map(|name| (name.to_owned(), node(&vm_id("node-0"))));
    let (rig, client, tell) = rig(known([both()[0].clone()])).await;
    let volume = create(&client, "pvc-a").await.unwrap();
    publish(&client, &volume, "worker-7").await.unwrap();
    tell.send_replace(known(both()));
    rig.control.reset_log();
    for name in ["worker-7", "rogue"] {
        for outcome in [
            publish(&client, &volume, name).await.map(drop),
            unpublish(&client, &volume.volume_id, name).await,
            // The id names the machine, and not which Node the disk is for.
            publish(&client, &volume, &vm_id("node-0")).await.map(drop),
        ] {
            let message = refused(outcome, Code::Unavailable);
            assert!(message.contains("Node rogue and of Node worker-7"), "{message}");
        }
    }
    assert_eq!((holder(&rig, "pvc-a").unwrap(), rig.writes()), (vm_id("node-0").to_lowercase(), vec![]));
    // Of the Node that is deleted it is not known whether the machine was its own: the disk is there. A list of the Nodes
    // says nothing of that.
    for listed in [false, true] {
        tell.send_modify(|nodes| match nodes {
            ClusterNodes::Known(nodes) if listed => nodes.replace([both()[0].clone()]),
            ClusterNodes::Known(nodes) => assert!(nodes.remove("rogue")),
            _ => unreachable!("the Nodes are known"),
        });
        let message = refused(unpublish(&client, &volume.volume_id, "rogue").await, Code::Aborted);
        assert!(message.contains("the providerID of Node worker-7"), "{message}");
    }
    assert_eq!(holder(&rig, "pvc-a").unwrap(), vm_id("node-0").to_lowercase());
    unpublish(&client, &volume.volume_id, "worker-7").await.unwrap();
    unpublish(&client, &volume.volume_id, "rogue").await.unwrap();
    assert_eq!(holder(&rig, "pvc-a"), None);
    rig.check();
    rig.stop().await;
}

/// No node can choose the name of its Node or of another node's VM.
#[tokio::test(start_paused = true)]
async fn disk_of_two_nodes_with_one_provider_id_the_one_with_the_name_of_the_vm_is_served() {
    let both = ["node-0", "rogue"].map(|name| (name.to_owned(), node(&vm_id("node-0"))));
    let (record, attachments) = watch::channel(LunReservations::Synced(BTreeMap::new()));
    let (rig, client, _tell) = rig_with(known(both), |options| options.reservations = Some(attachments)).await;
    let volume = create(&client, "pvc-a").await.unwrap();
    let recorded = |lun: u8, node: &str| {
        let (lun, volume_handle) = (Lun::try_from(i64::from(lun)).unwrap(), Some(volume.volume_id.clone()));
        let reservation = Reservation { lun, volume_handle, attachment: format!("csi-{node}") };
        LunReservations::Synced([(node.to_owned(), vec![reservation])].into())
    };
    let lun = publish(&client, &volume, "node-0").await.unwrap();
    record.send_replace(recorded(lun, "node-0"));
    rig.control.reset_log();
    for outcome in [
        publish(&client, &volume, "rogue").await.map(drop),
        // The disk is there for the other Node.
        unpublish(&client, &volume.volume_id, "rogue").await,
    ] {
        let message = refused(outcome, Code::Unavailable);
        assert!(message.contains("the VM has the name of Node node-0"), "{message}");
    }
    assert_eq!((holder(&rig, "pvc-a").unwrap(), rig.writes()), (vm_id("node-0").to_lowercase(), vec![]));
    unpublish(&client, &volume.volume_id, "node-0").await.unwrap();
    assert_eq!(holder(&rig, "pvc-a"), None);
    // It was attached for the other Node, as long as that was the only one that named the machine.
    let lun = publish(&client, &volume, "node-0").await.unwrap();
    record.send_replace(recorded(lun, "rogue"));
    unpublish(&client, &volume.volume_id, "rogue").await.unwrap();
    assert_eq!(holder(&rig, "pvc-a"), None);
    rig.check();
    rig.stop().await;
}

/// The machine before is only stopped, and a VolumeAttachment names no machine.
#[tokio::test(start_paused = true)]
async fn disk_a_disk_leaves_the_machine_that_a_node_was_before_it_was_created_again_on_another() {
    let mut wrong = Vec::new();
    for (case, second_is_gone, listed) in
        [("the second machine is there", false, false), ("it is gone too", true, false), ("and the Node", true, true)]
    {
        let (rig, client, tell) = rig(known([("worker-9".to_owned(), node(&elsewhere("far")))])).await;
        let volume = create(&client, "pvc-a").await.unwrap();
        publish(&client, &volume, "worker-9").await.unwrap();
        tell.send_modify(|nodes| {
            let ClusterNodes::Known(nodes) = nodes else { unreachable!("the Nodes are known") };
            assert!(nodes.remove("worker-9"));
            nodes.apply("worker-9", node(&vm_id("node-1")));
            if listed {
                nodes.replace([]);
            }
        });
        if second_is_gone {
            assert_eq!(rig.other_tool().call("DELETE", &vm_id("node-1"), None).await.0, 202);
            pass(seconds(40)).await;
        }
        unpublish(&client, &volume.volume_id, "worker-9").await.unwrap();
        wrong.extend(holder(&rig, "pvc-a").map(|holder| (case, holder)));
        rig.check();
        rig.stop().await;
    }
    assert_eq!(wrong, [], "the answer was OK while this machine had the disk");
}

/// The machine has registered again under another name, so a pod of its new Node uses the disk there.
#[tokio::test(start_paused = true)]
async fn disk_a_disk_of_a_deleted_node_stays_where_the_node_that_its_machine_is_now_has_it() {
    let attached = |volume: &str, lun: u8, node: &str| {
        let (lun, volume_handle) = (Lun::try_from(i64::from(lun)).unwrap(), Some(volume.to_owned()));
        let reservation = Reservation { lun, volume_handle, attachment: format!("csi-{node}") };
        LunReservations::Synced([(node.to_owned(), vec![reservation])].into())
    };
    // The Node before is deleted first, or last; or its deletion was not seen, and nothing but the VM's name is left of it.
    for (case, first) in
        [("deleted", "before"), ("twice", "after"), ("deleted unseen", ""), ("the VM's name", "node-0")]
    {
        let (record, attachments) = watch::channel(LunReservations::Synced(BTreeMap::new()));
        let before = if case == "the VM's name" { "node-0" } else { "before" };
        let nodes = known([(before.to_owned(), node(&vm_id("node-0")))]);
        let (rig, client, tell) = rig_with(nodes, |options| options.reservations = Some(attachments)).await;
        let volume = create(&client, "pvc-a").await.unwrap();
        let lun = publish(&client, &volume, before).await.unwrap();
        tell.send_modify(|nodes| {
            let ClusterNodes::Known(known) = nodes else { unreachable!("the Nodes are known") };
            let after = || node(&vm_id("node-0"));
            match first {
                "before" => assert!(known.remove("before")),
                "after" => assert!(known.apply("after", after())),
                _ => known.replace([("after".to_owned(), after())]),
            }
            known.apply("after", after());
            known.remove(before);
        });
        record.send_replace(attached(&volume.volume_id, lun, "after"));
        rig.control.reset_log();
        let message = refused(unpublish(&client, &volume.volume_id, before).await, Code::Aborted);
        assert!(message.contains("the providerID of Node after"), "{case}: {message}");
        assert_eq!((holder(&rig, "pvc-a").unwrap(), rig.writes()), (vm_id("node-0").to_lowercase(), vec![]), "{case}");
        if case == "deleted" {
            record.send_replace(attached(&volume.volume_id, lun, before));
            unpublish(&client, &volume.volume_id, before).await.unwrap();
            assert_eq!(holder(&rig, "pvc-a"), None);
        }
        rig.check();
        rig.stop().await;
    }
}

/// The Node named another machine, which is gone. What merely has its name is some other machine, with a disk of its own.
#[tokio::test(start_paused = true)]
async fn disk_a_vm_with_the_name_of_a_node_that_named_another_one_keeps_the_disk_that_a_person_gave_it() {
    let (rig, client, _tell) = rig(known([("node-0".to_owned(), node(&elsewhere("node-0")))])).await;
    let volume = create(&client, "pvc-a").await.unwrap();
    assert_eq!(rig.other_tool().call("DELETE", &elsewhere("node-0"), None).await.0, 202);
    pass(seconds(40)).await;
    assert_eq!(rig.other_tool().attach("node-0", &[("pvc-a", 5)]).await, 202);
    rig.at_rest().await;
    rig.control.reset_log();
    unpublish(&client, &volume.volume_id, "node-0").await.unwrap();
    assert_eq!((holder(&rig, "pvc-a").unwrap(), rig.writes()), (vm_id("node-0").to_lowercase(), vec![]));
    rig.check();
    rig.stop().await;
}

/// A machine of another cluster has the disk too.
#[tokio::test(start_paused = true)]
async fn disk_a_shared_disk_leaves_the_machine_of_a_deleted_node_and_stays_where_another_cluster_has_it() {
    let (mut rig, client, tell) = rig(known([("node-0".to_owned(), node(&vm_id("node-0")))])).await;
    let shared = [("maxShares", "2"), ("skuName", "Premium_LRS"), ("cachingMode", "None")];
    let volume = create_with(&client, "pvc-a", &shared).await.unwrap();
    publish(&client, &volume, "node-0").await.unwrap();
    assert_eq!(rig.other_tool().attach("node-1", &[("pvc-a", 5)]).await, 202);
    rig.at_rest().await;
    tell.send_replace(known([("far-node".to_owned(), node(&elsewhere("far")))]));
    let restarted = rig.lab.controller("restarted").await.unwrap();
    unpublish(&restarted, &volume.volume_id, "node-0").await.unwrap();
    assert_eq!((rig.luns("node-0").len(), rig.luns("node-1").len()), (0, 1));
    rig.stop().await;
}
