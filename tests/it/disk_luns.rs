//! LUNs: what a VolumeAttachment names goes to no other disk, what is not ours stays, and a full VM says so.

use std::collections::BTreeMap;

use lazuli_emulator::scenario::{Scenario, VirtualMachine};
use lazuli_model::Lun;
use lazuli_rig::Options;
use lazuli_storage::lun::{LunReservations, Reservation};
use tokio::{sync::watch, time::Instant};
use tonic::Code;

use super::disk_rig::{
    Client, Method, Rig, create, create_all, disk_id, millis, numbered, pass, publish, publish_all, publishing,
    refused, seconds, typical, unpublish, unpublish_all, vm_id,
};

const NODE: &str = "node-0";

/// What VolumeAttachments say: node, LUN, volume handle.
fn attachments(list: &[(&str, u8, Option<&str>)]) -> LunReservations {
    let mut nodes: BTreeMap<String, Vec<Reservation>> = BTreeMap::new();
    for (node, lun, handle) in list {
        nodes.entry((*node).into()).or_default().push(Reservation {
            lun: Lun::try_from(i64::from(*lun)).unwrap(),
            volume_handle: handle.map(str::to_owned),
            attachment: format!("csi-{node}-{lun}"),
        });
    }
    LunReservations::Synced(nodes)
}

async fn rig(state: LunReservations) -> (Rig, Client, watch::Sender<LunReservations>) {
    let (sender, receiver) = watch::channel(state);
    let mut rig = Rig::with(typical(), |options: &mut Options| options.reservations = Some(receiver)).await;
    let client = rig.controller().await;
    (rig, client, sender)
}

#[tokio::test(start_paused = true)]
async fn disk_a_lun_that_an_attachment_names_goes_to_no_other_disk() {
    let gone = disk_id("pvc-gone").to_uppercase();
    let state = attachments(&[(NODE, 0, Some(&gone)), (NODE, 2, None), ("node-1", 1, Some(&gone))]);
    let (rig, client, _sender) = rig(state).await;
    let volumes = create_all(&client, &numbered(6)).await;
    let given: Vec<u8> = publish_all(&client, &volumes[..3], NODE).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(given, [1, 3, 4]);
    let given: Vec<u8> = publish_all(&client, &volumes[3..], "node-1").await.into_iter().map(Result::unwrap).collect();
    assert_eq!(given, [0, 2, 3]);
    rig.check();
    rig.stop().await;
}

/// A CSI driver may know a node by another name than Kubernetes does.
#[tokio::test(start_paused = true)]
async fn disk_a_lun_that_an_attachment_names_is_kept_however_the_node_is_called() {
    let (rig, client, _sender) = rig(attachments(&[(NODE, 0, None), ("node-1", 0, None)])).await;
    let volumes = create_all(&client, &numbered(2)).await;
    assert_eq!(publish(&client, &volumes[0], &vm_id(NODE)).await.unwrap(), 1);
    assert_eq!(publish(&client, &volumes[1], "NODE-1").await.unwrap(), 1);
    rig.check();
    rig.stop().await;
}

/// azuredisk#2000: the disk vanished from its LUN, and another must not come to stand there.
#[tokio::test(start_paused = true)]
async fn disk_a_disk_that_vanished_comes_back_to_its_own_lun_and_no_other_takes_it_meanwhile() {
    let (rig, client, sender) = rig(attachments(&[])).await;
    let volumes = create_all(&client, &numbered(3)).await;
    publish(&client, &volumes[1], NODE).await.unwrap();
    sender.send_replace(attachments(&[(NODE, 0, Some(&volumes[1].volume_id.to_uppercase()))]));
    assert_eq!(rig.other_tool().detach(NODE, &["pvc-01"]).await, 202);
    pass(seconds(20)).await;
    assert!(rig.luns(NODE).is_empty());
    assert_eq!(publish(&client, &volumes[0], NODE).await.unwrap(), 1);
    assert_eq!(publish(&client, &volumes[1], NODE).await.unwrap(), 0);
    // The VolumeAttachment is gone: its LUN is free after the detach.
    unpublish(&client, &volumes[1].volume_id, NODE).await.unwrap();
    sender.send_replace(attachments(&[]));
    assert_eq!(publish(&client, &volumes[2], NODE).await.unwrap(), 0);
    rig.check();
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_while_attachments_are_not_known_no_lun_is_given_and_disks_may_leave() {
    let (rig, client, sender) = rig(LunReservations::Cold).await;
    let volumes = create_all(&client, &numbered(2)).await;
    rig.other_tool().attach(NODE, &[("pvc-00", 4)]).await;
    pass(seconds(11)).await;
    rig.control.reset_log();
    // What is attached has its LUN.
    assert_eq!(publish(&client, &volumes[0], NODE).await.unwrap(), 4);
    let waiting = publishing(&client, &volumes[1], NODE);
    pass(seconds(5)).await;
    assert_eq!(rig.writes().len(), 0);
    let began = Instant::now();
    unpublish(&client, &volumes[0].volume_id, NODE).await.unwrap();
    assert!(began.elapsed() <= seconds(16) + millis(300), "{:?}", began.elapsed());
    assert_eq!(rig.writes().len(), 1);
    sender.send_replace(attachments(&[(NODE, 0, None)]));
    assert_eq!(waiting.await.unwrap().unwrap(), 1);
    rig.check();
    rig.stop().await;
}

/// No LUN is given before the attachments are known, so nothing is written by what a list shows.
#[tokio::test(start_paused = true)]
async fn disk_after_a_restart_no_vm_is_read_singly_before_the_attachments_are_known() {
    const NODES: usize = 20;
    let (sender, receiver) = watch::channel(LunReservations::Cold);
    let mut azure = typical();
    let vms = VirtualMachine::pattern("node-{}", NODES.try_into().unwrap());
    azure.scenario = Scenario { virtual_machines: vec![vms], ..Scenario::default() };
    let mut rig = Rig::with(azure, |options: &mut Options| options.reservations = Some(receiver)).await;
    let before = rig.controller().await;
    let volumes = create_all(&before, &numbered(2 * NODES)).await;
    let restarted = rig.lab.controller("restarted").await.unwrap();
    rig.control.reset_log();
    let single_reads = || rig.calls().iter().filter(|call| call.operation == "virtualMachines.get").count();
    let mut waiting = Vec::new();
    for half in volumes.chunks(NODES) {
        for (at, volume) in half.iter().enumerate() {
            waiting.push(publishing(&restarted, volume, format!("node-{at}").leak()));
        }
        pass(seconds(2)).await;
    }
    assert_eq!((single_reads(), rig.writes()), (0, vec![]));
    sender.send_replace(attachments(&[]));
    for publishing in waiting {
        publishing.await.unwrap().unwrap();
    }
    // One before its write and one after it; a few workers write twice.
    assert!((2 * NODES..3 * NODES).contains(&single_reads()), "{} single reads", single_reads());
    rig.check();
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_attachments_that_never_become_known_make_publish_unavailable_after_a_while() {
    let (rig, client, sender) = rig(LunReservations::Cold).await;
    let volume = create(&client, "pvc-a").await.unwrap();
    rig.control.reset_log();
    let began = Instant::now();
    let message = refused(publish(&client, &volume, NODE).await, Code::Unavailable);
    assert!(message.contains("VolumeAttachments"), "{message}");
    assert!(began.elapsed() >= seconds(30) && began.elapsed() <= seconds(31), "{:?}", began.elapsed());
    assert_eq!(rig.writes().len(), 0);
    assert!(rig.control.counters().reads <= 6, "{} reads", rig.control.counters().reads);
    sender.send_replace(attachments(&[]));
    assert_eq!(publish(&client, &volume, NODE).await.unwrap(), 0);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_what_others_attached_keeps_its_lun_by_the_action_and_by_the_whole_list() {
    for method in [Method::Action, Method::WholeList] {
        what_others_attached_keeps_its_lun(method).await;
    }
}

#[tokio::test(start_paused = true)]
async fn disk_azure_stack_what_others_attached_keeps_its_lun() {
    what_others_attached_keeps_its_lun(Method::AzureStack).await;
}

async fn what_others_attached_keeps_its_lun(method: Method) {
    let azure = lazuli_emulator::Options { future_fields: true, ..typical() };
    let mut rig = Rig::with(azure, |options| method.set(options)).await;
    let client = rig.controller().await;
    let other = rig.other_tool();
    other.make_disk("theirs-a").await;
    other.make_disk("theirs-b").await;
    pass(seconds(3)).await;
    assert_eq!(other.attach(NODE, &[("theirs-a", 0), ("theirs-b", 3)]).await, 202);
    pass(seconds(11)).await;
    let volumes = create_all(&client, &numbered(3)).await;
    let given: Vec<u8> = publish_all(&client, &volumes, NODE).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(given, [1, 2, 4]);
    for answer in unpublish_all(&client, &volumes, NODE).await {
        answer.unwrap();
    }
    let left: Vec<(u8, String)> = rig.luns(NODE).into_iter().collect();
    assert_eq!(left, [(0, "theirs-a".into()), (3, "theirs-b".into())], "{method:?}");
    rig.check();
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_full_vm_refuses_the_next_disk_and_names_its_limit_and_foreign_disks_count() {
    let mut azure = typical();
    azure.scenario = Scenario {
        virtual_machines: vec![VirtualMachine {
            size: "Standard_D4s_v3".into(),
            ..VirtualMachine::pattern("node-{}", 2)
        }],
        ..Scenario::default()
    };
    let mut rig = Rig::on(azure).await;
    let client = rig.controller().await;
    let volumes = create_all(&client, &numbered(9)).await;
    let mut answers = publish_all(&client, &volumes, NODE).await;
    let message = refused(answers.pop().unwrap(), Code::ResourceExhausted);
    assert!(message.contains("takes 8 data disks") && message.contains("node-0"), "{message}");
    answers.into_iter().for_each(|answer| assert!(answer.is_ok()));
    assert_eq!(rig.vm_writes(NODE).len(), 1);
    // One leaves while another comes: there is room for it then.
    let (left, came) =
        futures::join!(unpublish(&client, &volumes[2].volume_id, NODE), publish(&client, &volumes[8], NODE));
    left.unwrap();
    assert_eq!(came.unwrap(), 2);

    let other = rig.other_tool();
    other.make_disk("theirs-a").await;
    other.make_disk("theirs-b").await;
    pass(seconds(3)).await;
    other.attach("node-1", &[("theirs-a", 0), ("theirs-b", 1)]).await;
    pass(seconds(11)).await;
    unpublish_all(&client, &volumes, NODE).await.into_iter().for_each(Result::unwrap);
    let answers = publish_all(&client, &volumes, "node-1").await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 6);
    for answer in answers.into_iter().filter(Result::is_err) {
        let message = refused(answer, Code::ResourceExhausted);
        assert!(message.contains("takes 8 data disks and it has 8"), "{message}");
    }
    rig.check();
    rig.stop().await;
}
