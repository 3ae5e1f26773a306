//! A detach from a VM that is gone: OK only where it is proved, an error wherever it is unknown.

use lazuli_emulator::scenario::{ResourceGroup, Scenario, VirtualMachine};
use serde_json::json;
use tonic::Code;

use super::disk_rig::{
    Rig, create, create_with, delete, disk_id, list, pass, publish, publish_as, refused, seconds, typical, unpublish,
    vm_id,
};

async fn with_a_published_volume() -> (Rig, super::disk_rig::Client, csi_proto::csi::Volume) {
    let (rig, client) = Rig::typical().await;
    let volume = create(&client, "pvc-a").await.unwrap();
    publish(&client, &volume, "node-0").await.unwrap();
    (rig, client, volume)
}

#[tokio::test(start_paused = true)]
async fn disk_a_vm_is_gone_after_two_404s_seconds_apart_between_which_its_group_was_listed() {
    let (rig, client, volume) = with_a_published_volume().await;
    assert_eq!(rig.other_tool().call("DELETE", &vm_id("node-0"), None).await.0, 202);
    pass(seconds(40)).await;
    rig.control.reset_log();
    unpublish(&client, &volume.volume_id, "node-0").await.unwrap();
    let gone: Vec<u64> = rig
        .calls()
        .iter()
        .filter(|call| call.operation == "virtualMachines.get" && call.status == 404)
        .map(|call| call.at_ms)
        .collect();
    assert!(gone.len() >= 2 && gone[gone.len() - 1] - gone[0] >= 2000, "{gone:?}");
    let last_list = rig.calls().iter().filter(|call| call.operation.contains("list") && call.status == 200).count();
    assert!(last_list >= 1, "no positive control");
    assert_eq!(rig.writes().len(), 0);
    rig.check();
    // And the volume can be used elsewhere, or be deleted.
    publish(&client, &volume, "node-1").await.unwrap();
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_what_is_unknown_is_never_taken_for_gone() {
    for (path, status, code, expected) in [
        ("*/virtualMachines/node-0", 404, "ResourceGroupNotFound", Code::FailedPrecondition),
        ("*/virtualMachines/node-0", 404, "SubscriptionNotFound", Code::FailedPrecondition),
        ("*/virtualMachines/node-0", 404, "ParentResourceNotFound", Code::FailedPrecondition),
        ("*/virtualMachines/node-0", 403, "AuthorizationFailed", Code::PermissionDenied),
        ("*/virtualMachines/node-0", 401, "InvalidAuthenticationToken", Code::Unauthenticated),
        ("*/virtualMachines/node-0", 500, "InternalServerError", Code::Unavailable),
    ] {
        let (rig, client, volume) = with_a_published_volume().await;
        rig.incident(json!({
            "match": {"method": "GET", "path": path}, "then": {"status": status, "code": code}, "times": 0,
        }));
        refused(unpublish(&client, &volume.volume_id, "node-0").await, expected);
        assert_eq!(rig.luns("node-0").len(), 1);
        rig.check();
        rig.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn disk_without_the_groups_list_a_404_proves_nothing() {
    for (status, code, expected) in [
        (403, "AuthorizationFailed", Code::PermissionDenied),
        (404, "ResourceGroupNotFound", Code::FailedPrecondition),
        (503, "ServiceUnavailable", Code::Unavailable),
    ] {
        let (rig, client, volume) = with_a_published_volume().await;
        rig.incident(json!({
            "match": {"method": "GET", "path": "*/virtualMachines/node-0"},
            "then": {"status": 404, "code": "ResourceNotFound"}, "times": 0,
        }));
        rig.incident(json!({
            "match": {"method": "GET", "path": "*/virtualMachines"}, "then": {"status": status, "code": code}, "times": 0,
        }));
        refused(unpublish(&client, &volume.volume_id, "node-0").await, expected);
        rig.stop().await;
    }
}

/// The list still has the VM, whatever the single read says.
#[tokio::test(start_paused = true)]
async fn disk_a_404_that_the_list_contradicts_is_no_success() {
    let (rig, client, volume) = with_a_published_volume().await;
    rig.incident(json!({
        "match": {"method": "GET", "path": "*/virtualMachines/node-0"},
        "then": {"status": 404, "code": "ResourceNotFound"}, "times": 0,
    }));
    unpublish(&client, &volume.volume_id, "node-0").await.unwrap_err();
    assert_eq!(rig.luns("node-0").len(), 1);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_404_that_was_a_hiccup_ends_in_a_detach() {
    let (rig, client, volume) = with_a_published_volume().await;
    rig.incident(json!({
        "match": {"method": "GET", "path": "*/virtualMachines/node-0"},
        "then": {"status": 404, "code": "ResourceNotFound"}, "times": 1,
    }));
    unpublish(&client, &volume.volume_id, "node-0").await.unwrap();
    assert!(rig.luns("node-0").is_empty());
    rig.check();
    rig.stop().await;
}

/// The node's VM lives in a group that the provider does not list: not there is not gone, for the disk knows better.
#[tokio::test(start_paused = true)]
async fn disk_a_vm_of_another_group_that_holds_the_disk_is_not_gone() {
    let mut azure = typical();
    azure.scenario = Scenario {
        resource_groups: vec![
            ResourceGroup { name: "lazuli".into(), location: None, subscription: None },
            ResourceGroup { name: "elsewhere".into(), location: None, subscription: None },
        ],
        virtual_machines: vec![
            VirtualMachine::pattern("node-{}", 2),
            VirtualMachine {
                count: None,
                resource_group: Some("elsewhere".into()),
                ..VirtualMachine::pattern("far", 1)
            },
        ],
        ..Scenario::default()
    };
    let mut rig = Rig::on(azure).await;
    let client = rig.controller().await;
    let volume = create(&client, "pvc-a").await.unwrap();
    let far = vm_id("far").replace("/resourceGroups/lazuli/", "/resourceGroups/elsewhere/");
    let body = json!({"dataDisksToAttach": [{"diskId": disk_id("pvc-a"), "lun": 0}]});
    let attached = rig.other_tool().call("POST", &format!("{far}/attachDetachDataDisks"), Some(body)).await;
    assert_eq!(attached.0, 202, "{}", attached.1);
    pass(seconds(11)).await;
    unpublish(&client, &volume.volume_id, "far").await.unwrap();
    assert!(rig.disk("pvc-a").unwrap().get("managedBy").is_none(), "OK was said while the disk is attached");
    rig.check();
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_publishing_to_a_node_that_is_nowhere_is_not_found() {
    let (rig, client) = Rig::typical().await;
    let volume = create(&client, "pvc-a").await.unwrap();
    refused(publish(&client, &volume, "node-missing").await, Code::NotFound);
    refused(publish(&client, &volume, "no/node").await, Code::NotFound);
    assert_eq!(rig.writes().len(), 1);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_what_is_not_there_is_deleted_and_unpublished() {
    let (rig, client) = Rig::typical().await;
    delete(&client, &disk_id("pvc-missing")).await.unwrap();
    delete(&client, "not-a-disk").await.unwrap();
    unpublish(&client, &disk_id("pvc-missing"), "node-0").await.unwrap();
    unpublish(&client, "not-a-disk", "node-0").await.unwrap();
    refused(publish_as(&client, "not-a-disk", &Default::default(), "node-0").await, Code::NotFound);
    assert_eq!(list(&client).await.unwrap().len(), 0);
    rig.stop().await;
}

/// An id comes from whoever may write a PersistentVolume or a CSINode, and is a key of tables and a part of messages.
#[tokio::test(start_paused = true)]
async fn disk_an_id_of_more_than_1024_characters_is_no_disk_and_no_node_and_is_told_in_short() {
    let (rig, client) = Rig::typical().await;
    let volume = create(&client, "pvc-a").await.unwrap();
    rig.control.reset_log();
    let of_length = |id: String, length: usize| format!("{id}{}", "x".repeat(length - id.len()));
    for length in [1_025, 100_000] {
        let (disk, vm) = (of_length(disk_id("d"), length), of_length(vm_id("n"), length));
        for message in [
            refused(publish_as(&client, &disk, &Default::default(), "node-0").await, Code::NotFound),
            refused(publish(&client, &volume, &vm).await, Code::NotFound),
        ] {
            assert!(message.contains("it is too long") && message.len() < 1_024, "{message}");
        }
        unpublish(&client, &disk, "node-0").await.unwrap();
        unpublish(&client, &volume.volume_id, &vm).await.unwrap();
        delete(&client, &disk).await.unwrap();
    }
    assert_eq!(rig.calls(), vec![], "Azure is asked about none of them");
    // One of the longest length is asked about.
    let longest = of_length(disk_id("d"), 1_024);
    refused(publish_as(&client, &longest, &Default::default(), "node-0").await, Code::NotFound);
    assert!(rig.calls().iter().any(|call| call.path.eq_ignore_ascii_case(&longest)));
    rig.stop().await;
}

/// A group is deleted with everything in it. That is said of disks only: of a node's VM it would prove nothing.
#[tokio::test(start_paused = true)]
async fn disk_a_volume_whose_group_was_deleted_is_deleted() {
    let mut azure = typical();
    azure.scenario.resource_groups.push(ResourceGroup { name: "volumes".into(), location: None, subscription: None });
    let mut rig = Rig::on(azure).await;
    let client = rig.controller().await;
    let volume = create_with(&client, "pvc-a", &[("resourceGroup", "volumes")]).await.unwrap();
    let group = format!("/subscriptions/{}/resourceGroups/volumes", lazuli_emulator::scenario::SUBSCRIPTION);
    assert_eq!(rig.other_tool().call("DELETE", &group, None).await.0, 202);
    pass(seconds(60)).await;
    refused(publish(&client, &volume, "node-0").await, Code::FailedPrecondition);
    delete(&client, &volume.volume_id).await.unwrap();
    rig.check_empty();
    // A volume whose group does not exist is the user's mistake, and final.
    refused(create_with(&client, "pvc-b", &[("resourceGroup", "volumes")]).await, Code::InvalidArgument);
    rig.stop().await;
}
