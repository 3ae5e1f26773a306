//! A write goes on without its callers, a repeated request joins it, and different requests for one disk do not mix.

use serde_json::json;
use tokio::time::{Instant, timeout};
use tonic::Code;

use super::disk_rig::{
    Rig, create, create_all, create_request, delete, disk_id, millis, name_of, numbered, pass, publish, publishing,
    refused, seconds, start, unpublish,
};

const NODE: &str = "node-0";

#[tokio::test(start_paused = true)]
async fn disk_a_caller_that_gives_up_stops_nothing_and_its_repetition_joins() {
    let (rig, client) = Rig::typical().await;
    let volume = create(&client, "pvc-a").await.unwrap();
    rig.control.reset_log();
    let began = Instant::now();
    assert!(timeout(seconds(1), publish(&client, &volume, NODE)).await.is_err());
    pass(seconds(2)).await;
    assert_eq!(publish(&client, &volume, NODE).await.unwrap(), 0);
    assert!(began.elapsed() <= seconds(10) + millis(100), "{:?}", began.elapsed());
    assert_eq!(rig.vm_writes(NODE).len(), 1);
    // The same the other way.
    assert!(timeout(seconds(1), unpublish(&client, &volume.volume_id, NODE)).await.is_err());
    unpublish(&client, &volume.volume_id, NODE).await.unwrap();
    assert_eq!(rig.vm_writes(NODE).len(), 2);
    rig.check();
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_write_goes_on_without_callers() {
    let (rig, client) = Rig::typical().await;
    let volume = create(&client, "pvc-a").await.unwrap();
    rig.control.reset_log();
    assert!(timeout(seconds(1), publish(&client, &volume, NODE)).await.is_err());
    pass(seconds(30)).await;
    assert_eq!(rig.luns(NODE).len(), 1);
    assert_eq!(publish(&client, &volume, NODE).await.unwrap(), 0);
    assert_eq!(rig.vm_writes(NODE).len(), 1);
    rig.check();
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_caller_that_gives_up_before_its_write_is_sent_leaves_the_batch() {
    let (rig, client) = Rig::typical().await;
    let volumes = create_all(&client, &numbered(3)).await;
    rig.control.reset_log();
    let first = publishing(&client, &volumes[0], NODE);
    pass(seconds(1)).await;
    let stays = publishing(&client, &volumes[2], NODE);
    assert!(timeout(seconds(1), publish(&client, &volumes[1], NODE)).await.is_err());
    // The opposite is possible at once: nothing was sent for it.
    let opposite = start({
        let (client, id) = (client.clone(), volumes[1].volume_id.clone());
        async move { unpublish(&client, &id, NODE).await }
    });
    assert_eq!(first.await.unwrap().unwrap(), 0);
    assert_eq!(stays.await.unwrap().unwrap(), 1);
    opposite.await.unwrap().unwrap();
    assert_eq!(rig.vm_writes(NODE).len(), 2);
    assert_eq!(rig.luns(NODE).values().map(String::as_str).collect::<Vec<_>>(), ["pvc-00", "pvc-02"]);
    rig.check();
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_the_opposite_request_is_aborted_while_a_write_is_in_flight() {
    let (rig, client) = Rig::typical().await;
    let volume = create(&client, "pvc-a").await.unwrap();
    let publishing_it = publishing(&client, &volume, NODE);
    pass(seconds(1)).await;
    refused(unpublish(&client, &volume.volume_id, NODE).await, Code::Aborted);
    refused(delete(&client, &volume.volume_id).await, Code::Aborted);
    publishing_it.await.unwrap().unwrap();
    assert!(rig.disk("pvc-a").is_some(), "the disk was deleted under its attachment");
    let leaving = start({
        let (client, id) = (client.clone(), volume.volume_id.clone());
        async move { unpublish(&client, &id, NODE).await }
    });
    pass(seconds(1)).await;
    refused(publish(&client, &volume, NODE).await, Code::Aborted);
    refused(delete(&client, &volume.volume_id).await, Code::Aborted);
    leaving.await.unwrap().unwrap();
    rig.check();
    delete(&client, &volume.volume_id).await.unwrap();
    rig.check_empty();
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_disk_is_not_deleted_while_another_replica_attaches_it() {
    let (mut rig, client) = Rig::typical().await;
    let other = rig.lab.controller("other").await.unwrap();
    let volume = create(&client, "pvc-a").await.unwrap();
    publish(&client, &volume, NODE).await.unwrap();
    let message = refused(delete(&other, &volume.volume_id).await, Code::FailedPrecondition);
    assert!(message.contains("attached to node node-0"), "{message}");
    assert!(rig.disk("pvc-a").is_some());
    rig.check();
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_one_volume_created_twice_at_once_is_one_put() {
    let (rig, client) = Rig::typical().await;
    rig.control.reset_log();
    let (one, two) = futures::join!(create(&client, "pvc-a"), create(&client, "pvc-a"));
    assert_eq!(one.unwrap(), two.unwrap());
    assert_eq!(rig.writes().len(), 1);
    // And later none at all.
    create(&client, "pvc-a").await.unwrap();
    assert_eq!(rig.writes().len(), 1);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_volume_of_the_same_name_and_another_size_is_aborted_at_first_and_refused_then() {
    let (rig, client) = Rig::typical().await;
    let larger = || {
        let mut request = create_request("pvc-a", &[]);
        request.capacity_range.as_mut().unwrap().required_bytes = 7 << 30;
        let mut client = client.clone();
        async move { client.create_volume(request).await }
    };
    let making = start({
        let client = client.clone();
        async move { create(&client, "pvc-a").await }
    });
    pass(seconds(1)).await;
    refused(larger().await, Code::Aborted);
    making.await.unwrap().unwrap();
    refused(larger().await, Code::AlreadyExists);
    assert_eq!(rig.writes().len(), 1);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_disk_attached_elsewhere_is_refused_naming_the_node_as_kubernetes_spells_it() {
    let (rig, client) = Rig::typical().await;
    let volume = create(&client, "pvc-a").await.unwrap();
    // Kubernetes names are lower case; a VM may be called otherwise, and Azure does not care.
    publish(&client, &volume, "NODE-1").await.unwrap();
    let message = refused(publish(&client, &volume, NODE).await, Code::FailedPrecondition);
    assert!(message.contains("attached to node NODE-1"), "{message}");
    assert_eq!(rig.vm_writes(NODE).len(), 0);
    rig.check();
    rig.stop().await;
}

/// A publish of an attached disk is given up while its round still reads other disks, and the disk is unpublished
/// before that round speaks: what it then says was not asked of it.
#[tokio::test(start_paused = true)]
async fn disk_an_unpublish_is_never_answered_by_a_publish_that_was_given_up() {
    let (rig, client) = Rig::typical().await;
    let volumes = create_all(&client, &numbered(2)).await;
    publish(&client, &volumes[0], NODE).await.unwrap();
    rig.incident(json!({
        "match": {"method": "GET", "path": disk_id(name_of(&volumes[1].volume_id))}, "then": {"delayMs": 5000},
    }));
    let slow = publishing(&client, &volumes[1], NODE);
    assert!(timeout(seconds(1), publish(&client, &volumes[0], NODE)).await.is_err());
    unpublish(&client, &volumes[0].volume_id, NODE).await.unwrap();
    assert!(!rig.luns(NODE).values().any(|name| name == "pvc-00"), "OK was said while the disk is attached");
    slow.await.unwrap().unwrap();
    rig.check();
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_many_callers_of_one_publish_get_one_answer() {
    let (rig, client) = Rig::typical().await;
    let volume = create(&client, "pvc-a").await.unwrap();
    rig.control.reset_log();
    let answers = futures::future::join_all((0..10).map(|_| publish(&client, &volume, NODE))).await;
    assert!(answers.into_iter().all(|answer| answer.unwrap() == 0));
    assert_eq!(rig.vm_writes(NODE).len(), 1);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_an_unpublish_without_a_node_detaches_the_disk_from_every_node() {
    let (rig, client) = Rig::typical().await;
    let volume = create(&client, "pvc-a").await.unwrap();
    publish(&client, &volume, "node-1").await.unwrap();
    unpublish(&client, &volume.volume_id, "").await.unwrap();
    assert!(rig.luns("node-1").is_empty());
    unpublish(&client, &volume.volume_id, "").await.unwrap();
    rig.check();
    rig.stop().await;
}

/// "From all nodes" holds for the one that the disk is on its way to.
#[tokio::test(start_paused = true)]
async fn disk_an_unpublish_from_all_nodes_is_aborted_while_an_attach_is_on_its_way() {
    let (rig, client) = Rig::typical().await;
    let volume = create(&client, "pvc-a").await.unwrap();
    assert!(timeout(seconds(1), publish(&client, &volume, NODE)).await.is_err());
    refused(unpublish(&client, &volume.volume_id, "").await, Code::Aborted);
    pass(seconds(30)).await;
    assert_eq!(rig.luns(NODE).len(), 1);
    unpublish(&client, &volume.volume_id, "").await.unwrap();
    assert!(rig.luns(NODE).is_empty());
    rig.check();
    rig.stop().await;
}
