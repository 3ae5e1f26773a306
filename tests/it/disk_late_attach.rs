//! An attach that the leader before has sent and that Azure does not show yet: no detach is answered OK before it has
//! shown itself, or cannot begin any more. Where nothing is to be suspected, a detach is as quick as ever.

use std::collections::BTreeMap;

use csi_proto::csi::Volume;
use lazuli_emulator::scenario::{ResourceGroup, Scenario, VirtualMachine};
use lazuli_model::{
    Lun,
    node::{ClusterNodes, KnownNodes, Machine, Node},
};
use lazuli_rig::Options;
use lazuli_storage::lun::{LunReservations, Reservation};
use serde_json::json;
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};
use tonic::{Code, Status};

use super::disk_rig::{
    Client, METHODS, Method, Rig, create, millis, pass, publish, refused, seconds, typical, unpublish, vm_id,
};

const NODE: &str = "node-0";

/// A cluster whose VolumeAttachments name no LUN, with two replicas.
async fn two(change: impl FnOnce(&mut Options)) -> (Rig, Client, Client, watch::Sender<LunReservations>) {
    let (sender, reservations) = watch::channel(LunReservations::Synced(BTreeMap::new()));
    let mut rig = Rig::with(typical(), |options| {
        options.reservations = Some(reservations);
        change(options);
    })
    .await;
    let (one, two) = (rig.lab.controller("one").await.unwrap(), rig.lab.controller("two").await.unwrap());
    (rig, one, two, sender)
}

/// The first replica sends an attach that waits in Azure for so long, and its sidecar loses the lease.
async fn late_attach(rig: &Rig, one: &Client, volume: &Volume, node: &str, waits_ms: u64) {
    rig.incident(json!({
        "match": {"method": "POST|PUT|PATCH", "path": "*/virtualMachines/*"}, "then": {"delayMs": waits_ms}, "times": 1,
    }));
    assert!(timeout(seconds(1), publish(one, volume, node)).await.is_err());
}

/// Calls as external-attacher does, with its pauses, and gives how long it took.
async fn detach(client: &Client, volume: &Volume, node: &str) -> Result<u64, Status> {
    let (began, mut pause) = (Instant::now(), seconds(1));
    loop {
        match unpublish(client, &volume.volume_id, node).await {
            Ok(()) => return Ok(began.elapsed().as_secs()),
            Err(status) if status.code() == Code::Aborted => {}
            Err(status) => return Err(status),
        }
        pass(pause).await;
        pause = (pause * 2).min(seconds(300));
    }
}

#[tokio::test(start_paused = true)]
async fn disk_a_detach_is_not_ok_while_the_leader_before_may_have_an_attach_under_way_that_azure_does_not_show() {
    for method in METHODS {
        let (rig, one, two, _sender) = two(|options| method.set(options)).await;
        let volume = create(&one, "pvc-a").await.unwrap();
        pass(seconds(10)).await;
        late_attach(&rig, &one, &volume, NODE, 20_000).await;
        let message = refused(unpublish(&two, &volume.volume_id, NODE).await, Code::Aborted);
        for part in ["pvc-a", NODE, "names no LUN", "retry"] {
            assert!(message.contains(part), "{part}: {message}");
        }
        let took = detach(&two, &volume, NODE).await.unwrap();
        rig.at_rest().await;
        assert!(rig.luns(NODE).is_empty(), "{method:?}: detached, it said after {took} s, and the attach went on");
        pass(seconds(60)).await;
        assert!(rig.luns(NODE).is_empty(), "{method:?}: attached after its detach was OK");
        rig.check();
        rig.stop().await;
    }
}

/// The machine of the Node that is gone is only guessed, and the guess does not exist.
#[tokio::test(start_paused = true)]
async fn disk_a_detach_from_a_deleted_node_is_not_ok_while_an_attach_to_its_unknown_machine_may_be_under_way() {
    let elsewhere = vm_id("far").replace("/resourceGroups/lazuli/", "/resourceGroups/elsewhere/");
    let machine = Machine::of_provider_id(&format!("azure://{elsewhere}"));
    let known = |nodes: Vec<(String, Node)>| {
        let mut known = KnownNodes::default();
        known.replace(nodes);
        ClusterNodes::Known(known)
    };
    let (tell, told) = watch::channel(known(vec![("worker-9".into(), Node { machine, ..Node::default() })]));
    let group = |name: &str| ResourceGroup { name: name.into(), location: None, subscription: None };
    let far =
        VirtualMachine { count: None, resource_group: Some("elsewhere".into()), ..VirtualMachine::pattern("far", 1) };
    let (rig, one, two, _sender) = two(|options| {
        options.nodes = Some(told);
        options.azure.scenario = Scenario {
            resource_groups: vec![group("lazuli"), group("elsewhere")],
            virtual_machines: vec![VirtualMachine::pattern("node-{}", 2), far],
            ..Scenario::default()
        };
    })
    .await;
    let volume = create(&one, "pvc-a").await.unwrap();
    pass(seconds(10)).await;
    late_attach(&rig, &one, &volume, "worker-9", 20_000).await;
    tell.send_replace(known(vec![]));
    // Once the disk shows the machine, a person must say whether it was the node's.
    let outcome = timeout(seconds(600), detach(&two, &volume, "worker-9")).await;
    // The attach begins after an answer that came too early.
    pass(seconds(60)).await;
    rig.at_rest().await;
    let attached = rig.disk("pvc-a").unwrap().get("managedBy").is_some();
    assert!(!attached || outcome.is_err(), "the answer was OK and the attach went on");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_detach_without_a_reason_to_suspect_an_attach_is_answered_at_once() {
    let (rig, one, two, sender) = two(|options| Method::Action.set(options)).await;
    let volume = create(&one, "pvc-a").await.unwrap();
    publish(&one, &volume, NODE).await.unwrap();
    let elapsed = async |client: &Client| {
        let began = Instant::now();
        unpublish(client, &volume.volume_id, NODE).await.unwrap();
        began.elapsed()
    };
    // Azure shows it attached, so no attach is under way; and then it has been detached.
    assert!(elapsed(&two).await < seconds(20));
    assert!(elapsed(&two).await < seconds(5));
    // The attachment records that its attach has ended.
    let reservation = Reservation {
        lun: Lun::try_from(0).unwrap(),
        volume_handle: Some(volume.volume_id.clone()),
        attachment: "csi-a".into(),
    };
    sender.send_replace(LunReservations::Synced([(NODE.into(), vec![reservation])].into()));
    assert!(elapsed(&one).await < seconds(5));
    // This process has been the leader for long.
    sender.send_replace(LunReservations::Synced(BTreeMap::new()));
    let other = create(&two, "pvc-b").await.unwrap();
    for _ in 0..35 {
        publish(&two, &other, "node-1").await.unwrap();
        pass(seconds(2)).await;
    }
    assert!(elapsed(&two).await < millis(500));
    rig.stop().await;
}
