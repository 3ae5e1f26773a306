//! One bad member of a batch fails alone, at the price of few writes.

use lazuli_emulator::scenario::{Scenario, VirtualMachine};
use serde_json::json;
use tonic::Code;

use super::disk_rig::{
    Client, Rig, create_all, create_with, disk_id, name_of, numbered, pass, publish, publish_all, publishing, refused,
    seconds, typical, vm_id,
};

const NODE: &str = "node-0";

/// Eight volumes published at once to a node, one of which cannot be; gives the message of its failure.
async fn eight_of_which_one_fails(
    rig: &Rig,
    client: &Client,
    volumes: &[csi_proto::csi::Volume],
    node: &str,
    bad: usize,
    code: Code,
    most_writes: usize,
) -> String {
    rig.control.reset_log();
    let mut answers = publish_all(client, volumes, node).await;
    let failure = answers.remove(bad);
    let given: std::collections::BTreeSet<u8> = answers.into_iter().map(Result::unwrap).collect();
    assert_eq!(given.len(), 7);
    assert!(!rig.luns(node).values().any(|name| name == name_of(&volumes[bad].volume_id)));
    let writes = rig.vm_writes(node).len();
    assert!(writes <= most_writes, "{writes} writes");
    rig.check();
    refused(failure, code)
}

#[tokio::test(start_paused = true)]
async fn disk_a_member_that_is_attached_elsewhere_fails_alone_before_anything_is_written() {
    let (rig, client) = Rig::typical().await;
    let volumes = create_all(&client, &numbered(8)).await;
    publish(&client, &volumes[3], "node-1").await.unwrap();
    let message = eight_of_which_one_fails(&rig, &client, &volumes, NODE, 3, Code::FailedPrecondition, 1).await;
    assert!(message.contains("attached to node node-1"), "{message}");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_member_that_does_not_exist_fails_alone_before_anything_is_written() {
    let (rig, client) = Rig::typical().await;
    let mut volumes = create_all(&client, &numbered(8)).await;
    volumes[5].volume_id = disk_id("pvc-missing");
    eight_of_which_one_fails(&rig, &client, &volumes, NODE, 5, Code::NotFound, 1).await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_member_that_is_deleted_while_the_write_runs_fails_alone() {
    let (rig, client) = Rig::typical().await;
    let volumes = create_all(&client, &numbered(8)).await;
    let other = rig.other_tool();
    let deletion = async {
        pass(seconds(2)).await;
        assert_eq!(other.call("DELETE", &volumes[3].volume_id, None).await.0, 202);
    };
    let storm = eight_of_which_one_fails(&rig, &client, &volumes, NODE, 3, Code::NotFound, 4);
    futures::join!(deletion, storm);
    rig.stop().await;
}

/// Azure refuses the batch and names no disk: the disk is in a zone and the VM is not.
#[tokio::test(start_paused = true)]
async fn disk_a_member_in_the_wrong_zone_is_found_by_halving_wherever_it_is() {
    for bad in [0, 3, 7] {
        let (rig, client) = Rig::typical().await;
        let mut volumes = create_all(&client, &numbered(8)).await;
        let zonal = format!("pvc-{bad:02}-zonal");
        let body = json!({
            "location": "westeurope", "sku": {"name": "StandardSSD_LRS"}, "zones": ["1"],
            "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 4},
        });
        assert_eq!(rig.other_tool().call("PUT", &disk_id(&zonal), Some(body)).await.0, 202);
        pass(seconds(3)).await;
        volumes[bad].volume_id = disk_id(&zonal);
        // The whole batch, three halvings, and what is left.
        eight_of_which_one_fails(&rig, &client, &volumes, NODE, bad, Code::InvalidArgument, 5).await;
        rig.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn disk_a_premium_disk_on_a_size_without_premium_storage_fails_alone() {
    let mut azure = typical();
    let basic = VirtualMachine { count: None, size: "Standard_F8".into(), ..VirtualMachine::pattern("basic", 1) };
    azure.scenario = Scenario { virtual_machines: vec![basic], ..Scenario::default() };
    let mut rig = Rig::on(azure).await;
    let client = rig.controller().await;
    let mut volumes = create_all(&client, &numbered(8)).await;
    volumes[6] = create_with(&client, "pvc-06-premium", &[("skuName", "Premium_LRS")]).await.unwrap();
    eight_of_which_one_fails(&rig, &client, &volumes, "basic", 6, Code::InvalidArgument, 5).await;
    rig.stop().await;
}

/// The identity may write the VM, and lacks a right on the encryption set of one disk. Azure names the linked scope in
/// its message alone (source: the texts quoted in public reports of the Go driver).
#[tokio::test(start_paused = true)]
async fn disk_a_member_that_links_to_what_the_identity_may_not_use_fails_alone_and_the_action_stays() {
    let set = "/subscriptions/11111111-2222-3333-4444-555555555555/resourceGroups/keys-of-the-security-team/providers/\
               Microsoft.Compute/diskEncryptionSets/customer-managed-keys-westeurope";
    for bad in [0, 5] {
        let (rig, client) = Rig::typical().await;
        let volumes = create_all(&client, &numbered(8)).await;
        let name = name_of(&volumes[bad].volume_id);
        let message = format!(
            "The client '66666666-7777-8888-9999-000000000000' with object id '66666666-7777-8888-9999-000000000000' \
             has permission to perform action 'Microsoft.Compute/virtualMachines/attachDetachDataDisks/action' on \
             scope '{}'; however, it does not have permission to perform action(s) \
             'Microsoft.Compute/diskEncryptionSets/read' on the linked scope(s) '{set}' (respectively) or the linked \
             scope(s) are invalid.",
            vm_id(NODE)
        );
        rig.incident(json!({
            "match": {"path": format!("*/virtualMachines/{NODE}*"), "bodyContains": name},
            "then": {"status": 403, "code": "LinkedAuthorizationFailed", "message": message,
                "headers": {"x-ms-failure-cause": "gateway"}},
            "times": 0,
        }));
        let told = eight_of_which_one_fails(&rig, &client, &volumes, NODE, bad, Code::PermissionDenied, 5).await;
        assert!(told.contains(&disk_id(name)) && told.contains(set), "{told}");
        // Alone, and afterwards: the whole list is no way around a right that is missing.
        let told = refused(publish(&client, &volumes[bad], NODE).await, Code::PermissionDenied);
        assert!(told.contains(&disk_id(name)) && told.contains(set), "{told}");
        rig.control.clear_incidents();
        publish(&client, &volumes[bad], NODE).await.unwrap();
        assert!(rig.vm_writes(NODE).iter().all(|write| write.method == "POST"), "{:?}", rig.vm_writes(NODE));
        rig.check();
        rig.stop().await;
    }
}

/// The operation was accepted and ended as failed, with a code that no table knows: any member may be the reason.
#[tokio::test(start_paused = true)]
async fn disk_a_member_that_makes_the_operation_fail_late_for_no_known_reason_fails_alone() {
    for bad in [0, 5] {
        let (rig, client) = Rig::typical().await;
        let volumes = create_all(&client, &numbered(8)).await;
        let name = name_of(&volumes[bad].volume_id);
        rig.incident(json!({
            "match": {"path": format!("*/virtualMachines/{NODE}*"), "bodyContains": name},
            "then": {"lateFailure": {"code": "InternalExecutionError", "message": "An internal execution error occurred."}},
            "times": 0,
        }));
        eight_of_which_one_fails(&rig, &client, &volumes, NODE, bad, Code::Unavailable, 5).await;
        rig.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn disk_three_bad_members_fail_and_the_other_thirteen_do_not() {
    let (rig, client) = Rig::typical().await;
    let mut volumes = create_all(&client, &numbered(16)).await;
    for bad in [2, 7, 8] {
        let zonal = format!("pvc-{bad:02}-zonal");
        let body = json!({
            "location": "westeurope", "sku": {"name": "StandardSSD_LRS"}, "zones": ["1"],
            "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 4},
        });
        rig.other_tool().call("PUT", &disk_id(&zonal), Some(body)).await;
        volumes[bad].volume_id = disk_id(&zonal);
    }
    pass(seconds(3)).await;
    for (at, answer) in publish_all(&client, &volumes, NODE).await.into_iter().enumerate() {
        if [2, 7, 8].contains(&at) {
            refused(answer, Code::InvalidArgument);
        } else {
            answer.unwrap();
        }
    }
    assert_eq!(rig.luns(NODE).len(), 13);
    rig.check();
    rig.stop().await;
}

/// When every write of a bisection fails, the VM is the cause, and the bisection ends.
#[tokio::test(start_paused = true)]
async fn disk_a_vm_that_refuses_everything_is_not_asked_for_each_member() {
    let (rig, client) = Rig::typical().await;
    let volumes = create_all(&client, &numbered(16)).await;
    rig.control.reset_log();
    rig.incident(json!({
        "match": {"method": "POST", "path": "*/attachDetachDataDisks"},
        "then": {"status": 400, "code": "InvalidParameter"}, "times": 0,
    }));
    for answer in publish_all(&client, &volumes, NODE).await {
        refused(answer, Code::InvalidArgument);
    }
    let writes = rig.vm_writes(NODE).len();
    assert!(writes <= 24, "{writes} writes");
    rig.check();
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_bad_member_of_a_detach_batch_does_not_keep_the_others() {
    let (rig, client) = Rig::typical().await;
    let volumes = create_all(&client, &numbered(4)).await;
    publish_all(&client, &volumes, NODE).await.into_iter().for_each(|lun| assert!(lun.is_ok()));
    // Another tool detaches one disk while the batch is in flight.
    let other = rig.other_tool();
    assert_eq!(other.detach(NODE, &["pvc-02"]).await, 202);
    let answers = super::disk_rig::unpublish_all(&client, &volumes, NODE).await;
    answers.into_iter().for_each(Result::unwrap);
    assert!(rig.luns(NODE).is_empty());
    rig.check();
    // And what was published a moment ago can be published again.
    assert_eq!(publishing(&client, &volumes[2], NODE).await.unwrap().unwrap(), 0);
    rig.stop().await;
}

/// The rights of a role on the resource group do not reach the operations, which are the subscription's.
#[tokio::test(start_paused = true)]
async fn disk_a_member_fails_alone_also_where_operations_may_not_be_read() {
    let (rig, client) = Rig::typical().await;
    let volumes = create_all(&client, &numbered(4)).await;
    rig.incident(json!({
        "match": {"operation": "operations.get"},
        "then": {"status": 403, "code": "AuthorizationFailed"}, "times": 0,
    }));
    let other = rig.other_tool();
    let deletion = async {
        pass(seconds(2)).await;
        assert_eq!(other.call("DELETE", &volumes[0].volume_id, None).await.0, 202);
    };
    let (mut answers, ()) = futures::join!(publish_all(&client, &volumes, NODE), deletion);
    refused(answers.remove(0), Code::NotFound);
    for answer in answers {
        answer.unwrap();
    }
    assert_eq!(rig.luns(NODE).len(), 3);
    rig.check();
    rig.stop().await;
}
