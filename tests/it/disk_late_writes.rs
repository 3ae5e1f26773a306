//! A creation, an expansion or a deletion of a disk that Azure refused or delayed: it is looked at again before it is sent again, and
//! not sent at all when its caller has left. These writes have no condition that Azure would check.

use lazuli_emulator::call_log::Call;
use serde_json::{Value, json};
use tokio::time::timeout;
use tonic::Code;

use super::disk_rig::{
    Client, GIB, Rig, create, create_with, delete, disk_id, expand, pass, publish, refused, seconds, start,
};

const NAME: &str = "shared";
/// A class that gives every volume the same disk.
const CLASS: &[(&str, &str)] = &[("diskName", NAME)];

/// Two replicas, each with a sidecar of its own.
async fn replicas() -> (Rig, Client, Client) {
    let (mut rig, one) = Rig::typical().await;
    let two = rig.lab.controller("other").await.unwrap();
    (rig, one, two)
}

/// Azure asks for a pause of so many seconds, so many times.
fn pause(rig: &Rig, method: &str, seconds: u64, times: u64) {
    rig.incident(json!({
        "match": {"method": method, "path": format!("*/disks/{NAME}")},
        "then": {"status": 503, "retryAfter": seconds},
        "times": times,
    }));
}

fn sent(rig: &Rig, method: &str) -> Vec<Call> {
    rig.writes().into_iter().filter(|call| call.method == method).collect()
}

/// For which request the disk is made.
fn request(rig: &Rig) -> Value {
    rig.disk(NAME).unwrap()["tags"]["lazuli-request"].clone()
}

#[tokio::test(start_paused = true)]
async fn disk_a_creation_whose_caller_left_during_azures_pause_is_not_sent() {
    let (rig, one, two) = replicas().await;
    pause(&rig, "PUT", 40, 1);
    // As when the sidecar of the first replica has lost its lease.
    timeout(seconds(10), create_with(&one, "pvc-1", CLASS)).await.unwrap_err();
    create_with(&two, "pvc-2", CLASS).await.unwrap();
    pass(seconds(120)).await;
    assert_eq!(sent(&rig, "PUT").len(), 2, "one that Azure refused, and that of the second replica");
    assert_eq!(request(&rig), "pvc-2");
    for client in [&one, &two] {
        refused(create_with(client, "pvc-1", CLASS).await, Code::AlreadyExists);
    }
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_creation_that_azure_delayed_takes_no_disk_that_another_replica_made_meanwhile() {
    for status in [503, 429] {
        let (rig, one, two) = replicas().await;
        rig.incident(json!({
            "match": {"method": "PUT", "path": format!("*/disks/{NAME}")},
            "then": {"status": status, "retryAfter": 40},
            "times": 1,
        }));
        let first = start(async move { create_with(&one, "pvc-1", CLASS).await });
        pass(seconds(10)).await;
        if status == 429 {
            // The pause is that of the whole subscription: the other replica is another identity's.
            rig.other_tool().make_disk(NAME).await;
        } else {
            create_with(&two, "pvc-2", CLASS).await.unwrap();
        }
        pass(seconds(20)).await;
        let before = rig.disk(NAME).unwrap();
        refused(first.await.unwrap(), Code::AlreadyExists);
        pass(seconds(20)).await;
        assert_eq!(rig.disk(NAME).unwrap(), before, "the disk was changed");
        assert_eq!(sent(&rig, "PUT").len(), 2);
        rig.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn disk_a_creation_after_azures_pause_makes_the_disk_that_is_still_wanted() {
    let (rig, one, _) = replicas().await;
    pause(&rig, "PUT", 20, 2);
    create_with(&one, "pvc-1", CLASS).await.unwrap();
    let at: Vec<u64> = sent(&rig, "PUT").iter().map(|call| call.at_ms).collect();
    assert_eq!(at.len(), 3);
    assert!(at.windows(2).all(|pair| pair[1] - pair[0] >= 20_000), "{at:?}");
    assert_eq!(request(&rig), "pvc-1");
    rig.check();
    rig.stop().await;
}

fn size(rig: &Rig) -> Value {
    rig.disk(NAME).unwrap()["properties"]["diskSizeGB"].clone()
}

/// Also where only the answer was lost: the disk has grown, so it need not be sent again.
#[tokio::test(start_paused = true)]
async fn disk_an_expansion_that_azure_delayed_leaves_the_disk_that_another_claim_got_meanwhile() {
    for status in [503, 429] {
        let (rig, one, two) = replicas().await;
        let volume = create_with(&one, "pvc-1", CLASS).await.unwrap();
        rig.control.reset_log();
        rig.incident(json!({
            "match": {"method": "PATCH", "path": format!("*/disks/{NAME}")},
            "then": {"status": status, "retryAfter": 40},
            "times": 1,
        }));
        let growing = start({
            let (one, id) = (one.clone(), volume.volume_id.clone());
            async move { expand(&one, &id, 8 * GIB, 0).await }
        });
        pass(seconds(5)).await;
        let (deleted, answer) = rig.other_tool().call("DELETE", &disk_id(NAME), None).await;
        assert_eq!(deleted, 202, "{answer}");
        rig.at_rest().await;
        if status == 429 {
            // The pause is that of the whole subscription.
            pass(seconds(60)).await;
            refused(growing.await.unwrap(), Code::NotFound);
        } else {
            create_with(&two, "pvc-2", CLASS).await.unwrap();
            let message = refused(growing.await.unwrap(), Code::Aborted);
            assert!(message.contains("another disk of its name"), "{message}");
            assert_eq!((size(&rig), request(&rig)), (json!(1), json!("pvc-2")));
        }
        assert_eq!(sent(&rig, "PATCH").len(), 1);
        rig.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn disk_an_expansion_is_sent_once_where_it_took_place_before_its_repetition() {
    let (rig, one, _) = replicas().await;
    let volume = create_with(&one, "pvc-1", CLASS).await.unwrap();
    rig.control.reset_log();
    rig.incident(json!({
        "match": {"method": "PATCH", "path": format!("*/disks/{NAME}")}, "then": {"loseAnswer": "after"}, "times": 1,
    }));
    assert_eq!(expand(&one, &volume.volume_id, 8 * GIB, 0).await.unwrap(), 8 * GIB);
    assert_eq!((sent(&rig, "PATCH").len(), size(&rig)), (1, json!(8)));
    // And it is sent again where it has not taken place.
    pause(&rig, "PATCH", 20, 2);
    assert_eq!(expand(&one, &volume.volume_id, 16 * GIB, 0).await.unwrap(), 16 * GIB);
    assert_eq!((sent(&rig, "PATCH").len(), size(&rig)), (4, json!(16)));
    rig.check();
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_an_expansion_whose_caller_left_during_azures_pause_is_not_sent() {
    let (rig, one, _) = replicas().await;
    let volume = create_with(&one, "pvc-1", CLASS).await.unwrap();
    rig.control.reset_log();
    pause(&rig, "PATCH", 40, 1);
    timeout(seconds(10), expand(&one, &volume.volume_id, 8 * GIB, 0)).await.unwrap_err();
    pass(seconds(120)).await;
    assert_eq!((sent(&rig, "PATCH").len(), size(&rig)), (1, json!(1)), "the disk grew for no caller");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_deletion_whose_caller_left_during_azures_pause_is_not_sent() {
    let (rig, one, _) = replicas().await;
    create(&one, NAME).await.unwrap();
    rig.control.reset_log();
    pause(&rig, "DELETE", 40, 1);
    timeout(seconds(10), delete(&one, &disk_id(NAME))).await.unwrap_err();
    pass(seconds(120)).await;
    assert_eq!(sent(&rig, "DELETE").len(), 1);
    assert!(rig.disk(NAME).is_some(), "the disk was deleted for no caller");
    delete(&one, &disk_id(NAME)).await.unwrap();
    rig.check_empty();
    rig.stop().await;
}

/// Azure works on the disk: the deletion waits for the end of that, and its caller does not.
#[tokio::test(start_paused = true)]
async fn disk_a_deletion_whose_caller_left_while_it_waited_for_another_writer_is_not_sent() {
    let (rig, one, _) = replicas().await;
    create(&one, NAME).await.unwrap();
    rig.control.reset_log();
    rig.incident(json!({
        "match": {"method": "DELETE", "path": format!("*/disks/{NAME}")},
        "then": {"status": 409, "code": "AnotherOperationInProgress"},
        "times": 1,
    }));
    let show = |state: &str| {
        let state = state.to_owned();
        rig.control.tamper(&disk_id(NAME), |disk| disk["properties"]["provisioningState"] = state.into()).unwrap();
    };
    show("Updating");
    timeout(seconds(10), delete(&one, &disk_id(NAME))).await.unwrap_err();
    let reads = |rig: &Rig| rig.calls().iter().filter(|call| call.operation == "disks.get").count();
    assert!(reads(&rig) >= 2, "it waits for the end of the other operation");
    show("Succeeded");
    pass(seconds(700)).await;
    assert_eq!(sent(&rig, "DELETE").len(), 1);
    assert!(rig.disk(NAME).is_some(), "the disk was deleted for no caller");
    delete(&one, &disk_id(NAME)).await.unwrap();
    rig.check_empty();
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_deletion_that_azure_delayed_leaves_the_disk_that_another_claim_got_meanwhile() {
    let (rig, one, two) = replicas().await;
    create_with(&one, "pvc-1", CLASS).await.unwrap();
    rig.control.reset_log();
    pause(&rig, "DELETE", 20, 2);
    let deleting = start(async move { delete(&one, &disk_id(NAME)).await });
    pass(seconds(30)).await;
    // The second refusal is over: the disk goes by another hand, and another claim gets one of its name.
    let (status, answer) = rig.other_tool().call("DELETE", &disk_id(NAME), None).await;
    assert_eq!(status, 202, "{answer}");
    rig.at_rest().await;
    create_with(&two, "pvc-2", CLASS).await.unwrap();
    deleting.await.unwrap().unwrap();
    pass(seconds(60)).await;
    assert_eq!(request(&rig), "pvc-2");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_deletion_that_azure_delayed_leaves_a_disk_that_was_attached_meanwhile() {
    let (rig, one, two) = replicas().await;
    let volume = create(&one, NAME).await.unwrap();
    rig.control.reset_log();
    pause(&rig, "DELETE", 40, 1);
    let deleting = start(async move { delete(&one, &disk_id(NAME)).await });
    pass(seconds(2)).await;
    publish(&two, &volume, "node-0").await.unwrap();
    let message = refused(deleting.await.unwrap(), Code::FailedPrecondition);
    assert!(message.contains("attached to node node-0"), "{message}");
    assert_eq!(sent(&rig, "DELETE").len(), 1);
    rig.check();
    rig.stop().await;
}
