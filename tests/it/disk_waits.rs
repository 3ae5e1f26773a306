//! A request that needs no write is answered at once, whatever the VM worker waits for.

use lazuli_emulator::latency::Profile;
use lazuli_rig::Folder;
use serde_json::json;
use tokio::time::{Instant, timeout};
use tonic::Code;

use super::disk_rig::{
    Client, METHODS, Method, Rig, create_all, numbered, pass, publish, publish_all, publishing, refused, seconds,
    start, typical, unpublish, vm_id,
};

const NODE: &str = "node-0";

async fn on_an_azure_that_leaves_failed_attaches(method: Method) -> (Rig, Client) {
    on_such_an_azure(method, typical().latency).await
}

async fn on_such_an_azure(method: Method, latency: Profile) -> (Rig, Client) {
    let mut azure = lazuli_emulator::Options { latency, ..typical() };
    azure.unverified.failed_attach_stays_in_model = true;
    let mut rig = Rig::with(azure, |options| method.set(options)).await;
    let client = rig.controller().await;
    (rig, client)
}

/// The first volume is attached and the second is not: who wants it so is told as soon as reads can tell.
async fn told_at_once(client: &Client, volumes: &[csi_proto::csi::Volume]) {
    let began = Instant::now();
    publish(client, &volumes[0], NODE).await.unwrap();
    unpublish(client, &volumes[1].volume_id, NODE).await.unwrap();
    assert!(began.elapsed() <= seconds(6), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn disk_a_pause_that_azure_asks_for_delays_no_request_without_a_write() {
    let (rig, client) = Rig::typical().await;
    let volumes = create_all(&client, &numbered(3)).await;
    publish(&client, &volumes[0], NODE).await.unwrap();
    rig.control.reset_log();
    rig.incident(json!({
        "match": {"method": "POST", "path": format!("{}/*", vm_id(NODE))}, "then": {"status": 429, "retryAfter": 45},
    }));
    let put_off = publishing(&client, &volumes[2], NODE);
    pass(seconds(5)).await;
    told_at_once(&client, &volumes).await;
    assert!(!put_off.is_finished());
    assert_eq!(put_off.await.unwrap().unwrap(), 1);
    assert_eq!(rig.vm_writes(NODE).len(), 2, "the one that was put off, and the one that was not");
    rig.check();
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_write_that_hangs_delays_no_request_without_a_write_longer_than_a_write_takes() {
    let (rig, client) = Rig::typical().await;
    let volumes = create_all(&client, &numbered(3)).await;
    publish(&client, &volumes[0], NODE).await.unwrap();
    rig.incident(json!({
        "match": {"method": "POST", "path": format!("{}/*", vm_id(NODE))}, "then": {"delayMs": 55_000},
    }));
    let hanging = publishing(&client, &volumes[2], NODE);
    pass(seconds(1)).await;
    let began = Instant::now();
    publish(&client, &volumes[0], NODE).await.unwrap();
    assert!(began.elapsed() <= seconds(31), "{:?}", began.elapsed());
    told_at_once(&client, &volumes).await;
    assert!(!hanging.is_finished());
    hanging.await.unwrap().unwrap();
    rig.check();
    rig.stop().await;
}

/// A stale disk cannot be removed from the VM's model while another writer's write runs.
#[tokio::test(start_paused = true)]
async fn disk_a_removal_of_stale_disks_that_waits_for_another_writer_delays_no_request_without_a_write() {
    let folder = Folder::make("slow").unwrap();
    let file = folder.path().join("latency.yaml");
    std::fs::write(&file, "base: typical\noperations:\n  vmAttach: {constant_ms: 25000}\n").unwrap();
    let (rig, client) = on_such_an_azure(Method::Action, Profile::parse(file.to_str().unwrap()).unwrap()).await;
    let volumes = create_all(&client, &numbered(3)).await;
    let other = rig.other_tool();
    other.make_disk("foreign").await;
    publish(&client, &volumes[0], NODE).await.unwrap();
    let late = json!({"lateFailure": {"code": "InternalExecutionError"}});
    rig.incident(json!({"match": {"method": "POST", "path": "*/virtualMachines/*"}, "then": late}));
    refused(publish(&client, &volumes[2], NODE).await, Code::Unavailable);
    // It is applied again, in vain. Before that is known, another tool writes.
    rig.incident(json!({"match": {"method": "PUT", "path": "*/virtualMachines/*"}, "then": late}));
    let healing = publishing(&client, &volumes[2], NODE);
    pass(seconds(1)).await;
    rig.incident(json!({
        "match": {"method": "GET", "path": "*operations/*"}, "then": {"delayMs": 4_000},
    }));
    rig.at_rest().await;
    assert_eq!(other.attach(NODE, &[("foreign", 9)]).await, 202);
    pass(seconds(5)).await;
    let began = Instant::now();
    publish(&client, &volumes[0], NODE).await.unwrap();
    assert!(began.elapsed() <= seconds(6), "{:?}", began.elapsed());
    assert_eq!(rig.control.running_operations(), 1, "the other write has ended");
    // The VM may not show yet what the other write attaches, so an unpublish waits for its end.
    unpublish(&client, &volumes[1].volume_id, NODE).await.unwrap();
    assert_eq!(rig.control.running_operations(), 0, "an unpublish succeeded while another writer's write ran");
    healing.await.unwrap().unwrap();
    assert_eq!(rig.luns(NODE).len(), 3);
    rig.check();
    rig.stop().await;
}

/// One disk of eight makes the batch fail, and Azure does not name it: the bisection takes some writes.
#[tokio::test(start_paused = true)]
async fn disk_a_bisection_delays_no_request_without_a_write() {
    let (rig, client) = Rig::typical().await;
    let volumes = create_all(&client, &numbered(10)).await;
    publish(&client, &volumes[0], NODE).await.unwrap();
    let batch = start({
        let (client, members) = (client.clone(), volumes[2..].to_vec());
        async move { publish_all(&client, &members, NODE).await }
    });
    pass(seconds(2)).await;
    assert_eq!(rig.other_tool().call("DELETE", &volumes[9].volume_id, None).await.0, 202);
    // While a write runs, requests collect, but only until that write of the bisection has ended.
    pass(seconds(9)).await;
    let began = Instant::now();
    publish(&client, &volumes[0], NODE).await.unwrap();
    unpublish(&client, &volumes[1].volume_id, NODE).await.unwrap();
    assert!(began.elapsed() <= seconds(21), "{:?}", began.elapsed());
    assert!(!batch.is_finished(), "the bisection was over");
    let mut answers = batch.await.unwrap();
    refused(answers.remove(7), Code::NotFound);
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    rig.check();
    rig.stop().await;
}

/// The disk is read before its attach is sent, and that may take a while.
#[tokio::test(start_paused = true)]
async fn disk_a_caller_that_gives_up_while_his_disk_is_read_has_nothing_attached() {
    let (rig, client) = Rig::typical().await;
    let volumes = create_all(&client, &numbered(2)).await;
    rig.control.reset_log();
    rig.incident(json!({
        "match": {"method": "GET", "path": "*/disks/pvc-00"}, "then": {"delayMs": 20_000},
    }));
    let stays = publishing(&client, &volumes[1], NODE);
    assert!(timeout(seconds(5), publish(&client, &volumes[0], NODE)).await.is_err());
    assert_eq!(stays.await.unwrap().unwrap(), 0);
    pass(seconds(60)).await;
    assert_eq!(rig.luns(NODE), [(0, "pvc-01".to_owned())].into());
    assert_eq!(rig.vm_writes(NODE).len(), 1);
    rig.check();
    rig.stop().await;
}

/// The disk that makes the write fail is in no request, and its own state cannot be read.
#[tokio::test(start_paused = true)]
async fn disk_an_unpublish_is_not_refused_for_what_is_wrong_with_another_disk() {
    for method in METHODS {
        let (rig, client) = on_an_azure_that_leaves_failed_attaches(method).await;
        let volumes = create_all(&client, &numbered(2)).await;
        publish(&client, &volumes[1], NODE).await.unwrap();
        let writes = if method == Method::Action { "POST" } else { "PUT" };
        rig.incident(json!({
            "match": {"method": writes, "path": "*/virtualMachines/*"},
            "then": {"lateFailure": {"code": "InternalExecutionError"}},
        }));
        refused(publish(&client, &volumes[0], NODE).await, Code::Unavailable);
        publish(&client, &volumes[0], "node-1").await.unwrap();
        rig.incident(json!({
            "match": {"method": "GET", "path": "*/disks/pvc-00"}, "then": {"status": 500}, "times": 0,
        }));
        let message = refused(unpublish(&client, &volumes[1].volume_id, NODE).await, Code::Aborted);
        assert!(message.contains("pvc-00"), "{message}");
        // As soon as it can be read it is out of the way.
        rig.control.clear_incidents();
        unpublish(&client, &volumes[1].volume_id, NODE).await.unwrap();
        assert_eq!((rig.luns(NODE).len(), rig.luns("node-1").len()), (0, 1));
        rig.check();
        rig.stop().await;
    }
}

/// An answer of Azure's that it has done what it has not.
#[tokio::test(start_paused = true)]
async fn disk_a_write_that_azure_calls_done_and_has_not_done_is_made_again() {
    for method in METHODS {
        let mut rig = Rig::with(typical(), |options| method.set(options)).await;
        let client = rig.controller().await;
        let volumes = create_all(&client, &numbered(1)).await;
        let writes = if method == Method::Action { "POST" } else { "PUT" };
        let hollow = json!({
            "match": {"method": writes, "path": "*/virtualMachines/*"}, "then": {"status": 200},
        });
        rig.incident(hollow.clone());
        publish(&client, &volumes[0], NODE).await.unwrap();
        assert_eq!(rig.luns(NODE).len(), 1, "{method:?}: OK was said of a disk that is not there");
        rig.incident(hollow);
        unpublish(&client, &volumes[0].volume_id, NODE).await.unwrap();
        assert!(rig.luns(NODE).is_empty(), "{method:?}: OK was said of a disk that is still there");
        rig.check();
        rig.stop().await;
    }
}
