//! ControllerExpandVolume: online where Azure can, and an answer that external-resizer understands where it cannot.

use tokio::time::timeout;
use tonic::Code;

use super::disk_rig::{
    GIB, Rig, create, create_request, create_with, delete, expand, publish, refused, seconds, start, unpublish,
};

const TIB: i64 = 1024 * GIB;

#[tokio::test(start_paused = true)]
async fn disk_a_disk_grows_while_it_is_attached_and_by_whole_gibibytes() {
    let (rig, client) = Rig::typical().await;
    let volume = create(&client, "pvc-a").await.unwrap();
    publish(&client, &volume, "node-0").await.unwrap();
    assert_eq!(expand(&client, &volume.volume_id, 4 * GIB + 1, 0).await.unwrap(), 5 * GIB);
    assert_eq!(rig.disk("pvc-a").unwrap()["properties"]["diskSizeGB"], 5);
    rig.check();
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_disk_that_is_large_enough_is_no_error_and_costs_no_write() {
    let (rig, client) = Rig::typical().await;
    let volume = create(&client, "pvc-a").await.unwrap();
    expand(&client, &volume.volume_id, 8 * GIB, 0).await.unwrap();
    rig.control.reset_log();
    for required in [8 * GIB, 3 * GIB, 0] {
        assert_eq!(expand(&client, &volume.volume_id, required, 0).await.unwrap(), 8 * GIB);
    }
    assert_eq!(rig.writes().len(), 0);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_range_that_cannot_be_met_is_out_of_range() {
    let (rig, client) = Rig::typical().await;
    let volume = create(&client, "pvc-a").await.unwrap();
    expand(&client, &volume.volume_id, 8 * GIB, 0).await.unwrap();
    refused(expand(&client, &volume.volume_id, 4 * GIB, 6 * GIB).await, Code::OutOfRange);
    refused(expand(&client, &volume.volume_id, 8 * GIB + 1, 8 * GIB + 2).await, Code::OutOfRange);
    refused(expand(&client, &volume.volume_id, 100 * TIB, 0).await, Code::OutOfRange);
    refused(expand(&client, &volume.volume_id, -1, 0).await, Code::InvalidArgument);
    refused(expand(&client, &super::disk_rig::disk_id("pvc-missing"), GIB, 0).await, Code::NotFound);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_what_grows_only_while_detached_is_a_failed_precondition_until_it_is() {
    let (rig, client) = Rig::typical().await;
    let mut request = create_request("pvc-large", &[("cachingMode", "None")]);
    request.capacity_range.as_mut().unwrap().required_bytes = 3 * TIB;
    let volume = client.clone().create_volume(request).await.unwrap().into_inner().volume.unwrap();
    publish(&client, &volume, "node-0").await.unwrap();
    rig.control.reset_log();
    let message = refused(expand(&client, &volume.volume_id, 5 * TIB, 0).await, Code::FailedPrecondition);
    assert!(message.contains("detach it first"), "{message}");
    assert_eq!(rig.writes().len(), 0);
    unpublish(&client, &volume.volume_id, "node-0").await.unwrap();
    assert_eq!(expand(&client, &volume.volume_id, 5 * TIB, 0).await.unwrap(), 5 * TIB);
    rig.stop().await;
}

/// Azure's own word, where this driver did not know better.
#[tokio::test(start_paused = true)]
async fn disk_a_refusal_to_grow_live_is_a_failed_precondition() {
    let mut azure = super::disk_rig::typical();
    azure.scenario.virtual_machines = vec![lazuli_emulator::scenario::VirtualMachine {
        size: "Standard_F8".into(),
        ..lazuli_emulator::scenario::VirtualMachine::pattern("node-{}", 1)
    }];
    let mut rig = Rig::on(azure).await;
    let client = rig.controller().await;
    let volume = create_with(&client, "pvc-a", &[("skuName", "Standard_LRS")]).await.unwrap();
    publish(&client, &volume, "node-0").await.unwrap();
    refused(expand(&client, &volume.volume_id, 4 * GIB, 0).await, Code::FailedPrecondition);
    rig.check();
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_an_expansion_goes_on_without_its_caller_and_joins_its_repetition() {
    let (rig, client) = Rig::typical().await;
    let volume = create(&client, "pvc-a").await.unwrap();
    rig.control.reset_log();
    assert!(timeout(seconds(1), expand(&client, &volume.volume_id, 4 * GIB, 0)).await.is_err());
    // Another size at the same time is a different request, and so is the deletion.
    refused(expand(&client, &volume.volume_id, 6 * GIB, 0).await, Code::Aborted);
    refused(delete(&client, &volume.volume_id).await, Code::Aborted);
    let again = start({
        let (client, id) = (client.clone(), volume.volume_id.clone());
        async move { expand(&client, &id, 4 * GIB, 0).await }
    });
    assert_eq!(again.await.unwrap().unwrap(), 4 * GIB);
    assert_eq!(rig.writes().len(), 1);
    rig.stop().await;
}

/// Azure's disks have no condition, so a write rests on a read of a moment ago.
#[tokio::test(start_paused = true)]
async fn disk_an_expansion_whose_first_read_took_long_rests_on_another_one() {
    let (rig, client) = Rig::typical().await;
    let volume = create(&client, "pvc-a").await.unwrap();
    for (delay, expected) in [(1, 1), (3_000, 2)] {
        rig.control.reset_log();
        rig.incident(serde_json::json!({
            "match": {"method": "GET", "path": "*/disks/pvc-a"}, "then": {"delayMs": delay}, "times": 1,
        }));
        expand(&client, &volume.volume_id, (8 + expected) * GIB, 0).await.unwrap();
        let before_the_write = rig.calls().into_iter().take_while(|call| call.method == "GET").count();
        assert_eq!(i64::try_from(before_the_write).unwrap(), expected, "after {delay} ms");
    }
    rig.check();
    rig.stop().await;
}
