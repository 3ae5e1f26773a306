//! A VM worker that waits for the permit to write its VM reads its disks once.

use csi_proto::csi::Volume;
use lazuli_emulator::{call_log::Call, scenario::VirtualMachine};
use tokio::time::Instant;
use tonic::{Code, Status};

use super::disk_rig::{
    Client, Rig, create_all, millis, name_of, numbered, pass, publish, publish_all, refused, seconds, start, typical,
};

const NODES: usize = 60;
const DISKS: usize = 5;

/// 60 nodes with five volumes each. Their creations have used up the writes, so that most workers wait for a permit.
async fn when_writes_are_used_up() -> (Rig, Client, Vec<Volume>) {
    let mut azure = typical();
    azure.scenario.virtual_machines =
        vec![VirtualMachine::pattern("node-{}", u32::try_from(NODES).unwrap()), VirtualMachine::pattern("spare-{}", 1)];
    let mut rig = Rig::on(azure).await;
    let client = rig.controller().await;
    let volumes = create_all(&client, &numbered(NODES * DISKS)).await;
    rig.control.reset_log();
    (rig, client, volumes)
}

fn node(n: usize) -> String {
    format!("node-{n}")
}

/// Publishes five volumes on each node, all at once.
async fn publish_everywhere(client: Client, volumes: Vec<Volume>) -> Vec<Vec<Result<u8, Status>>> {
    let nodes = volumes.chunks(DISKS).enumerate().map(|(n, volumes)| {
        let client = client.clone();
        async move { publish_all(&client, volumes, &node(n)).await }
    });
    futures::future::join_all(nodes).await
}

/// The single reads and the pages of lists of disks.
fn disk_reads(rig: &Rig) -> usize {
    let of_disks = |call: &&Call| call.method == "GET" && call.path.to_lowercase().contains("/microsoft.compute/disks");
    rig.calls().iter().filter(of_disks).count()
}

#[tokio::test(start_paused = true)]
async fn disk_workers_that_wait_for_a_permit_do_not_read_their_disks_again_when_it_comes() {
    let (rig, client, volumes) = when_writes_are_used_up().await;
    let began = Instant::now();
    for answer in publish_everywhere(client, volumes).await.into_iter().flatten() {
        answer.unwrap();
    }
    assert!(began.elapsed() > seconds(12), "no worker waited for a permit: {:?}", began.elapsed());
    let reads = disk_reads(&rig);
    assert!(reads <= 2, "{reads} reads of disks");
    assert_eq!(rig.writes().len(), NODES);
    assert_eq!(rig.control.counters().throttled, 0);
    rig.check();
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_disk_that_another_tool_attaches_elsewhere_during_the_wait_for_a_permit_fails_alone() {
    let (rig, client, volumes) = when_writes_are_used_up().await;
    let publishes = start(publish_everywhere(client, volumes.clone()));
    pass(seconds(1)).await;
    // The last worker to get a permit still waits, and has read its disks.
    let waiting = (0..NODES).rev().find(|n| rig.vm_writes(&node(*n)).is_empty()).unwrap();
    let taken = waiting * DISKS + 2;
    let other = rig.other_tool();
    while other.attach("spare-0", &[(name_of(&volumes[taken].volume_id), 0)]).await != 202 {
        pass(millis(20)).await;
    }
    assert!(rig.vm_writes(&node(waiting)).is_empty(), "{} did not wait", node(waiting));

    let mut answers: Vec<Result<u8, Status>> = publishes.await.unwrap().into_iter().flatten().collect();
    let message = refused(answers.remove(taken), Code::FailedPrecondition);
    assert!(message.contains("attached to node spare-0"), "{message}");
    for answer in answers {
        answer.unwrap();
    }
    rig.at_rest().await;
    rig.check();
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_request_that_comes_during_the_wait_for_a_permit_is_not_served_by_an_earlier_read() {
    let (rig, client, volumes) = when_writes_are_used_up().await;
    let publishing = |n: usize| {
        let (client, volume) = (client.clone(), volumes[n].clone());
        start(async move { publish(&client, &volume, &node(n / DISKS)).await })
    };
    let mut publishes: Vec<_> = (0..volumes.len()).map(publishing).collect();
    pass(seconds(1)).await;
    let waiting = (0..NODES).rev().find(|n| rig.vm_writes(&node(*n)).is_empty()).unwrap();
    let reads = disk_reads(&rig);
    // The caller of one volume gives up and asks again. That is a new request.
    let again = waiting * DISKS + 2;
    publishes[again].abort();
    pass(millis(50)).await;
    publishes[again] = publishing(again);
    for answer in futures::future::join_all(publishes).await {
        answer.unwrap().unwrap();
    }
    assert_eq!(disk_reads(&rig), reads + 1);
    rig.check();
    rig.stop().await;
}
