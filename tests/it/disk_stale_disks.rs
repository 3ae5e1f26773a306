//! A failed attach that Azure leaves in the VM's model is never taken for attached, and the worker repairs the model
//! itself. No document says whether Azure leaves it there.

use lazuli_emulator::options::LeftOut;
use serde_json::{Value, json};
use tokio::time::timeout;
use tonic::Code;

use super::disk_rig::{
    Client, METHODS, Method, Rig, create_all, disk_id, name_of, numbered, pass, publish, publish_all, refused, seconds,
    start, typical, unpublish,
};

const NODE: &str = "node-0";

async fn on_an_azure_that_leaves_them(method: Method) -> (Rig, Client) {
    let mut azure = typical();
    azure.unverified.failed_attach_stays_in_model = true;
    let mut rig = Rig::with(azure, |options| method.set(options)).await;
    let client = rig.controller().await;
    (rig, client)
}

/// The next write of a virtual machine fails when it ends.
fn fails_late(rig: &Rig, method: &str) {
    rig.incident(json!({
        "match": {"method": method, "path": "*/virtualMachines/*"},
        "then": {"lateFailure": {"code": "InternalExecutionError"}},
    }));
}

/// What the VM's model lists.
async fn listed(rig: &Rig) -> Vec<Value> {
    let (_, vm) = rig.other_tool().call("GET", &super::disk_rig::vm_id(NODE), None).await;
    vm["properties"]["storageProfile"]["dataDisks"].as_array().cloned().unwrap_or_default()
}

fn writer(method: Method) -> &'static str {
    if method == Method::Action { "POST" } else { "PUT" }
}

#[tokio::test(start_paused = true)]
async fn disk_an_attach_that_failed_and_stays_in_the_model_is_applied_again_by_the_next_publish() {
    for method in METHODS {
        let (rig, client) = on_an_azure_that_leaves_them(method).await;
        let volumes = create_all(&client, &numbered(2)).await;
        fails_late(&rig, writer(method));
        refused(publish(&client, &volumes[0], NODE).await, Code::Unavailable);
        assert!(rig.luns(NODE).is_empty());
        assert_eq!(listed(&rig).await.len(), 1, "the emulator did not leave it");
        rig.control.reset_log();
        assert_eq!(publish(&client, &volumes[0], NODE).await.unwrap(), 0);
        assert_eq!(rig.luns(NODE).len(), 1, "OK was said before the machine held the disk");
        assert_eq!(rig.vm_writes(NODE).len(), 1);
        assert_eq!(rig.vm_writes(NODE)[0].method, "PUT");
        rig.check();
        rig.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn disk_what_a_failed_attach_left_comes_with_the_next_attach_and_costs_no_write_of_its_own() {
    let (rig, client) = on_an_azure_that_leaves_them(Method::Action).await;
    let volumes = create_all(&client, &numbered(2)).await;
    fails_late(&rig, "POST");
    refused(publish(&client, &volumes[0], NODE).await, Code::Unavailable);
    rig.control.reset_log();
    let luns: Vec<u8> = publish_all(&client, &volumes, NODE).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(luns, [0, 1], "its slot was given away");
    assert_eq!(rig.vm_writes(NODE).len(), 1);
    assert_eq!(rig.luns(NODE).len(), 2);
    rig.check();
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_what_cannot_be_applied_again_is_taken_off_and_attached_anew() {
    for method in METHODS {
        let (rig, client) = on_an_azure_that_leaves_them(method).await;
        let volumes = create_all(&client, &numbered(1)).await;
        fails_late(&rig, writer(method));
        refused(publish(&client, &volumes[0], NODE).await, Code::Unavailable);
        fails_late(&rig, "PUT");
        rig.control.reset_log();
        assert_eq!(publish(&client, &volumes[0], NODE).await.unwrap(), 0);
        assert_eq!(rig.luns(NODE).len(), 1);
        assert_eq!(rig.vm_writes(NODE).len(), 3, "apply again, take off, attach");
        rig.check();
        rig.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn disk_what_a_failed_attach_left_can_be_taken_off_by_an_unpublish() {
    for method in METHODS {
        let (rig, client) = on_an_azure_that_leaves_them(method).await;
        let volumes = create_all(&client, &numbered(1)).await;
        fails_late(&rig, writer(method));
        refused(publish(&client, &volumes[0], NODE).await, Code::Unavailable);
        unpublish(&client, &volumes[0].volume_id, NODE).await.unwrap();
        assert!(listed(&rig).await.is_empty());
        assert_eq!(publish(&client, &volumes[0], NODE).await.unwrap(), 0);
        rig.check();
        rig.stop().await;
    }
}

/// The disk has been attached to another node since: no write is sent that could attach it here.
#[tokio::test(start_paused = true)]
async fn disk_what_a_failed_attach_left_is_not_applied_while_another_node_holds_the_disk() {
    let (rig, client) = on_an_azure_that_leaves_them(Method::Action).await;
    let volumes = create_all(&client, &numbered(1)).await;
    fails_late(&rig, "POST");
    refused(publish(&client, &volumes[0], NODE).await, Code::Unavailable);
    publish(&client, &volumes[0], "node-1").await.unwrap();
    rig.control.reset_log();
    let message = refused(publish(&client, &volumes[0], NODE).await, Code::FailedPrecondition);
    assert!(message.contains("node-1"), "{message}");
    assert!(rig.vm_writes(NODE).is_empty());
    assert_eq!((rig.luns(NODE).len(), rig.luns("node-1").len()), (0, 1));
    // The unpublish removes the element.
    unpublish(&client, &volumes[0].volume_id, NODE).await.unwrap();
    assert_eq!(rig.luns("node-1").len(), 1);
    rig.check();
    rig.stop().await;
}

/// Everything that came with the bad one is left in the model, and so is the bad one itself, which spoils whatever is
/// written next.
#[tokio::test(start_paused = true)]
async fn disk_a_member_that_fails_late_fails_alone_though_the_whole_batch_stays_in_the_model() {
    for bad in [0, 3, 7] {
        let (rig, client) = on_an_azure_that_leaves_them(Method::Action).await;
        let volumes = create_all(&client, &numbered(8)).await;
        let other = rig.other_tool();
        let deletion = async {
            pass(seconds(2)).await;
            assert_eq!(other.call("DELETE", &volumes[bad].volume_id, None).await.0, 202);
        };
        let (mut answers, ()) = futures::join!(publish_all(&client, &volumes, NODE), deletion);
        refused(answers.remove(bad), Code::NotFound);
        let luns: std::collections::BTreeSet<u8> = answers.into_iter().map(Result::unwrap).collect();
        assert_eq!(luns.len(), 7);
        assert_eq!(rig.luns(NODE).len(), 7);
        assert_eq!(listed(&rig).await.len(), 7, "what is deleted is still listed");
        assert!(!rig.luns(NODE).values().any(|name| disk_id(name) == volumes[bad].volume_id));
        assert!(!listed(&rig).await.iter().any(|element| element["name"] == name_of(&volumes[bad].volume_id)));
        let writes = rig.vm_writes(NODE).len();
        // The batch, the clearing, and the halves that do not hold it.
        assert!(writes <= 5, "{writes} writes");
        rig.check();
        rig.stop().await;
    }
}

/// The disk was deleted while its attach ran. Its element can never be applied, and every write of the VM fails with it.
#[tokio::test(start_paused = true)]
async fn disk_an_element_of_a_deleted_disk_is_removed_and_fails_no_other_disk() {
    for method in METHODS {
        let (rig, client) = on_an_azure_that_leaves_them(method).await;
        let volumes = create_all(&client, &numbered(2)).await;
        let other = rig.other_tool();
        let deletion = async {
            pass(seconds(2)).await;
            assert_eq!(other.call("DELETE", &volumes[0].volume_id, None).await.0, 202);
        };
        let (doomed, ()) = futures::join!(publish(&client, &volumes[0], NODE), deletion);
        refused(doomed, Code::NotFound);
        rig.at_rest().await;
        publish(&client, &volumes[1], NODE).await.unwrap();
        assert_eq!(listed(&rig).await.len(), 1, "{method:?}");
        rig.check();
        rig.stop().await;
    }
}

/// The same on an Azure where a list that leaves an element out keeps it. No document tells.
#[tokio::test(start_paused = true)]
async fn disk_an_element_of_a_disk_that_is_no_more_is_taken_off_also_where_to_leave_it_out_keeps_it() {
    let mut azure = typical();
    azure.unverified.failed_attach_stays_in_model = true;
    azure.unverified.left_out_of_put = LeftOut::Keep;
    let mut rig = Rig::with(azure, |options| Method::WholeList.set(options)).await;
    let client = rig.controller().await;
    let volumes = create_all(&client, &numbered(3)).await;
    publish(&client, &volumes[2], NODE).await.unwrap();
    let other = rig.other_tool();
    let deletion = async {
        pass(seconds(2)).await;
        assert_eq!(other.call("DELETE", &volumes[0].volume_id, None).await.0, 202);
    };
    let (doomed, ()) = futures::join!(publish(&client, &volumes[0], NODE), deletion);
    refused(doomed, Code::NotFound);
    rig.at_rest().await;
    let (came, left) =
        futures::join!(publish(&client, &volumes[1], NODE), unpublish(&client, &volumes[2].volume_id, NODE));
    assert!(came.is_ok() && left.is_ok(), "{came:?} {left:?}");
    assert_eq!(listed(&rig).await.len(), 1);
    rig.check();
    rig.stop().await;
}

/// The same element, of a disk that another machine has got meanwhile.
#[tokio::test(start_paused = true)]
async fn disk_an_element_of_a_disk_that_is_attached_elsewhere_fails_no_other_disk() {
    let (rig, client) = on_an_azure_that_leaves_them(Method::Action).await;
    let volumes = create_all(&client, &numbered(3)).await;
    publish(&client, &volumes[1], NODE).await.unwrap();
    fails_late(&rig, "POST");
    refused(publish(&client, &volumes[0], NODE).await, Code::Unavailable);
    publish(&client, &volumes[0], "node-1").await.unwrap();
    publish(&client, &volumes[2], NODE).await.unwrap();
    unpublish(&client, &volumes[1].volume_id, NODE).await.unwrap();
    assert_eq!(listed(&rig).await.len(), 1);
    assert_eq!(rig.luns("node-1").len(), 1);
    rig.check();
    rig.stop().await;
}

/// The clearing was put off by Azure; another leader has healed and published the disk when the pause is over.
#[tokio::test(start_paused = true)]
async fn disk_a_clearing_that_azure_put_off_takes_no_disk_that_another_leader_has_published_since() {
    let (mut rig, one) = on_an_azure_that_leaves_them(Method::Action).await;
    let two = rig.lab.controller("two").await.unwrap();
    let volumes = create_all(&one, &numbered(1)).await;
    fails_late(&rig, "POST");
    refused(publish(&one, &volumes[0], NODE).await, Code::Unavailable);
    fails_late(&rig, "PUT");
    let old = start({
        let (one, volume) = (one.clone(), volumes[0].clone());
        async move { timeout(seconds(25), publish(&one, &volume, NODE)).await.is_err() }
    });
    // The model has been applied again in vain by then, and what clears it is put off.
    pass(seconds(5)).await;
    rig.incident(json!({
        "match": {"path": "*/virtualMachines/*"}, "then": {"status": 429, "retryAfter": 45}, "times": 1,
    }));
    pass(seconds(25)).await;
    old.await.unwrap();
    publish(&two, &volumes[0], NODE).await.unwrap();
    pass(seconds(120)).await;
    rig.at_rest().await;
    assert_eq!(rig.luns(NODE).len(), 1, "a published disk was taken off");
    rig.stop().await;
}

/// The role has the action and nothing else: the model cannot be applied again, so the action removes the element. No
/// other request fails.
#[tokio::test(start_paused = true)]
async fn disk_a_role_with_the_action_alone_heals_what_a_failed_attach_left() {
    let (rig, client) = on_an_azure_that_leaves_them(Method::Action).await;
    let volumes = create_all(&client, &numbered(2)).await;
    fails_late(&rig, "POST");
    refused(publish(&client, &volumes[0], NODE).await, Code::Unavailable);
    rig.incident(json!({
        "match": {"method": "PUT", "path": "*/virtualMachines/*"},
        "then": {"status": 403, "code": "AuthorizationFailed"}, "times": 0,
    }));
    let (a, b) = futures::join!(publish(&client, &volumes[0], NODE), async {
        pass(seconds(1)).await;
        publish(&client, &volumes[1], NODE).await
    });
    assert_eq!([a.unwrap(), b.unwrap()].into_iter().collect::<std::collections::BTreeSet<u8>>().len(), 2);
    assert_eq!(rig.luns(NODE).len(), 2);
    rig.check();
    rig.stop().await;
}
