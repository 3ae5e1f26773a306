//! What each failure of Azure's becomes: the code the sidecar understands, nothing leaked, and all well after a
//! repetition.
//!
//! The tables are this file's own: nothing here asks the provider what it should have answered.

use serde_json::{Value, json};
use tonic::{Code, Status};

use super::disk_rig::{
    Client, GIB, METHODS, Method, Rig, create, create_all, delete, expand, list, numbered, pass, publish, publish_all,
    refused, seconds, typical, unpublish,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rpc {
    Create,
    Delete,
    Publish,
    Unpublish,
    Expand,
}

const RPCS: [Rpc; 5] = [Rpc::Create, Rpc::Delete, Rpc::Publish, Rpc::Unpublish, Rpc::Expand];
const NAME: &str = "pvc-a";
const NODE: &str = "node-0";

impl Rpc {
    /// The write that the call makes.
    fn write(self) -> Value {
        match self {
            Self::Create => json!({"method": "PUT", "path": "*/disks/pvc-a"}),
            Self::Delete => json!({"method": "DELETE", "path": "*/disks/pvc-a"}),
            Self::Publish | Self::Unpublish => json!({"method": "POST", "path": "*/attachDetachDataDisks"}),
            Self::Expand => json!({"method": "PATCH", "path": "*/disks/pvc-a"}),
        }
    }

    async fn prepare(self, client: &Client) {
        if self != Self::Create {
            let volume = create(client, NAME).await.unwrap();
            if self == Self::Unpublish {
                publish(client, &volume, NODE).await.unwrap();
            }
        }
    }

    async fn call(self, client: &Client) -> Result<(), Status> {
        let id = super::disk_rig::disk_id(NAME);
        match self {
            Self::Create => create(client, NAME).await.map(drop),
            Self::Delete => delete(client, &id).await,
            Self::Publish => {
                let context = [("requestedsizegib".to_owned(), "1".to_owned())].into();
                super::disk_rig::publish_as(client, &id, &context, NODE).await.map(drop)
            }
            Self::Unpublish => unpublish(client, &id, NODE).await,
            Self::Expand => expand(client, &id, 3 * GIB, 0).await.map(drop),
        }
    }

    /// Whether what was asked for is so, by Azure's own state.
    fn is_done(self, rig: &Rig) -> bool {
        let disk = rig.disk(NAME);
        let state = |doc: &Value| doc["properties"]["provisioningState"].as_str().map(str::to_owned);
        match self {
            Self::Create => disk.as_ref().and_then(state).as_deref() == Some("Succeeded"),
            Self::Delete => disk.is_none(),
            Self::Publish => rig.luns(NODE).len() == 1,
            Self::Unpublish => rig.luns(NODE).is_empty(),
            Self::Expand => disk.is_some_and(|disk| disk["properties"]["diskSizeGB"] == 3),
        }
    }
}

/// What external-provisioner takes as "may still be in progress": it asks again and keeps the claim.
fn keeps_the_claim(code: Code) -> bool {
    matches!(code, Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable | Code::Aborted)
}

/// One call met by one incident: its code (`Ok` when it succeeds), then no leak, then a repetition that succeeds.
async fn meets(rpc: Rpc, then: &Value, times: u64, expected: Code) -> Rig {
    let (rig, client) = Rig::typical().await;
    rpc.prepare(&client).await;
    rig.control.reset_log();
    rig.incident(json!({"match": rpc.write(), "then": then, "times": times}));
    let answer = rpc.call(&client).await;
    let code = answer.as_ref().err().map_or(Code::Ok, Status::code);
    let said = answer.as_ref().err().map_or("", Status::message);
    assert_eq!(code, expected, "{rpc:?} {then}: {said}");
    rig.at_rest().await;
    if code == Code::Ok {
        assert!(rpc.is_done(&rig), "{rpc:?} {then}: OK was said");
    } else if rpc == Rpc::Create && !keeps_the_claim(code) {
        assert!(rig.disk(NAME).is_none(), "{rpc:?} {then}: the claim is given up and its disk is left");
    }
    rig.control.clear_incidents();
    // What waits because Azure said so waits for that.
    pass(seconds(600)).await;
    rpc.call(&client).await.unwrap_or_else(|status| panic!("{rpc:?} {then}, repeated: {}", status.message()));
    rig.at_rest().await;
    assert!(rpc.is_done(&rig), "{rpc:?} {then}, repeated");
    rig.check();
    rig
}

#[tokio::test(start_paused = true)]
async fn disk_each_refusal_of_a_write_becomes_the_code_of_its_rpc() {
    use Code::{
        Aborted, FailedPrecondition, InvalidArgument, NotFound, Ok, PermissionDenied, ResourceExhausted,
        Unauthenticated, Unavailable,
    };
    // Status, code, and what becomes of Create, Delete, Publish, Unpublish, Expand when Azure always says so.
    let table: [(u16, &str, [Code; 5]); 21] = [
        (400, "InvalidParameter", [InvalidArgument; 5]),
        // The action is given up for the whole list.
        (400, "NoRegisteredProviderFound", [InvalidArgument, InvalidArgument, Ok, Ok, InvalidArgument]),
        (401, "InvalidAuthenticationToken", [Unauthenticated; 5]),
        (403, "AuthorizationFailed", [PermissionDenied, PermissionDenied, Ok, Ok, PermissionDenied]),
        (403, "LinkedAuthorizationFailed", [PermissionDenied; 5]),
        (
            404,
            "SubscriptionNotFound",
            [InvalidArgument, FailedPrecondition, FailedPrecondition, FailedPrecondition, FailedPrecondition],
        ),
        (409, "Conflict", [Aborted; 5]),
        (409, "AnotherOperationInProgress", [Aborted; 5]),
        (409, "ScopeLocked", [FailedPrecondition; 5]),
        (409, "SkuNotAvailable", [ResourceExhausted; 5]),
        (409, "QuotaExceeded", [ResourceExhausted; 5]),
        (409, "ZonalAllocationFailed", [ResourceExhausted; 5]),
        (
            409,
            "OperationNotAllowed",
            [ResourceExhausted, FailedPrecondition, FailedPrecondition, FailedPrecondition, FailedPrecondition],
        ),
        (409, "AttachDiskWhileBeingDetached", [Aborted; 5]),
        (412, "PreconditionFailed", [Aborted; 5]),
        (500, "InternalServerError", [Unavailable; 5]),
        (503, "ServiceUnavailable", [Unavailable; 5]),
        (504, "GatewayTimeout", [Unavailable; 5]),
        // Where the machine was read a moment ago it is the action that is not there.
        (404, "ResourceNotFound", [NotFound, Ok, Ok, Ok, NotFound]),
        // Not of the disk is this said, nor of the machine.
        (404, "EndpointNotFound", [Unavailable, Unavailable, Ok, Ok, Unavailable]),
        (501, "NotImplemented", [InvalidArgument, InvalidArgument, Ok, Ok, InvalidArgument]),
    ];
    for (status, code, expected) in table {
        for (rpc, expected) in RPCS.into_iter().zip(expected) {
            if (rpc, code) == (Rpc::Delete, "ResourceNotFound") {
                // Azure says that the disk does not exist, and it does. No driver can know better.
                continue;
            }
            meets(rpc, &json!({"status": status, "code": code}), 0, expected).await.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn disk_what_happens_once_is_made_up_for_where_it_may_be() {
    let once = [
        json!({"status": 401}),
        json!({"status": 409, "code": "Conflict"}),
        json!({"status": 412}),
        json!({"status": 429, "retryAfter": 5}),
        json!({"status": 500}),
        json!({"status": 503}),
        json!({"status": 503, "retryAfter": 4}),
        json!({"status": 504}),
        json!({"loseAnswer": "before"}),
        json!({"loseAnswer": "after"}),
        json!({"delayMs": 7000}),
        json!({"lateFailure": {"code": "OperationPreempted"}}),
    ];
    for then in &once {
        for rpc in RPCS {
            // An operation on a disk has one request. The write of a VM has many, so the worker plans it again.
            let told = match rpc {
                Rpc::Create => then["status"] == 409 || then["lateFailure"].is_object(),
                Rpc::Delete | Rpc::Expand => false,
                Rpc::Publish | Rpc::Unpublish => {
                    meets(rpc, then, 1, Code::Ok).await.stop().await;
                    continue;
                }
            };
            let told = told || then["status"] == 412;
            let expected = if told { Code::Aborted } else { Code::Ok };
            meets(rpc, then, 1, expected).await.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn disk_a_late_failure_comes_with_http_200_and_is_told_by_its_code() {
    use Code::{Aborted, FailedPrecondition, NotFound, ResourceExhausted, Unavailable};
    let table = [
        (Rpc::Create, "SkuNotAvailable", ResourceExhausted),
        (Rpc::Create, "ZonalAllocationFailed", ResourceExhausted),
        (Rpc::Create, "InternalExecutionError", Unavailable),
        (Rpc::Publish, "InternalExecutionError", Unavailable),
        (Rpc::Publish, "AttachDiskWhileBeingDetached", Aborted),
        // The disk names no other machine: it is a conflict, whatever the code says.
        (Rpc::Publish, "ConflictingUserInput", Aborted),
        (Rpc::Publish, "NotFound", NotFound),
        (Rpc::Publish, "ScopeLocked", FailedPrecondition),
        (Rpc::Unpublish, "InternalExecutionError", Unavailable),
        (Rpc::Delete, "InternalExecutionError", Unavailable),
        (Rpc::Delete, "OperationNotAllowed", FailedPrecondition),
        (Rpc::Expand, "InternalExecutionError", Unavailable),
    ];
    for (rpc, code, expected) in table {
        meets(rpc, &json!({"lateFailure": {"code": code}}), 1, expected).await.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn disk_azures_pause_is_law_and_a_long_one_is_told_at_once() {
    for rpc in RPCS {
        let rig = meets(rpc, &json!({"status": 429, "retryAfter": 17}), 1, Code::Ok).await;
        rig.stop().await;
        // Too long to sit out: the sidecar may do better things. Never RESOURCE_EXHAUSTED.
        let rig = meets(rpc, &json!({"status": 429, "retryAfter": 300}), 1, Code::Unavailable).await;
        let writes = rig.writes();
        let (first, second) = (&writes[0], &writes[1]);
        assert_eq!(first.status, 429);
        assert!(second.at_ms - first.at_ms >= 300_000, "{rpc:?}: {} then {}", first.at_ms, second.at_ms);
        rig.stop().await;
    }
    let (rig, client) = Rig::typical().await;
    let volume = create(&client, NAME).await.unwrap();
    rig.control.reset_log();
    rig.incident(json!({"match": Rpc::Publish.write(), "then": {"status": 429, "retryAfter": 17}, "times": 2}));
    publish(&client, &volume, NODE).await.unwrap();
    let at: Vec<u64> = rig.vm_writes(NODE).iter().map(|call| call.at_ms).collect();
    assert_eq!(at.len(), 3);
    assert!(at.windows(2).all(|pair| pair[1] - pair[0] >= 17_000), "{at:?}");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_lost_answer_never_has_two_effects() {
    for when in ["before", "after"] {
        for rpc in [Rpc::Publish, Rpc::Unpublish] {
            let rig = meets(rpc, &json!({"loseAnswer": when}), 1, Code::Ok).await;
            let effects = rig.writes().iter().filter(|call| call.started.is_some()).count();
            assert_eq!(effects, 1, "{rpc:?} {when}");
            rig.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn disk_a_poll_that_fails_does_not_fail_the_operation() {
    for rpc in RPCS {
        for then in [
            json!({"status": 504, "code": "GatewayTimeout"}),
            json!({"status": 500}),
            json!({"status": 429, "retryAfter": 2}),
            json!({"status": 401}),
            json!({"status": 404, "code": "NotFound"}),
            json!({"loseAnswer": "after"}),
        ] {
            let (rig, client) = Rig::typical().await;
            rpc.prepare(&client).await;
            rig.control.reset_log();
            rig.incident(json!({"match": {"operation": "operations.get"}, "then": then, "times": 1}));
            rpc.call(&client).await.unwrap_or_else(|status| panic!("{rpc:?} {then}: {}", status.message()));
            assert!(rpc.is_done(&rig), "{rpc:?} {then}");
            assert_eq!(rig.writes().len(), 1, "{rpc:?} {then}");
            rig.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn disk_a_role_without_the_action_writes_the_whole_list_under_its_etag_from_then_on() {
    for then in [json!({"status": 403}), json!({"status": 400, "code": "NoRegisteredProviderFound"})] {
        let (rig, client) = Rig::typical().await;
        let volumes = create_all(&client, &numbered(2)).await;
        rig.control.reset_log();
        rig.incident(json!({"match": Rpc::Publish.write(), "then": then, "times": 0}));
        publish(&client, &volumes[0], NODE).await.unwrap();
        publish(&client, &volumes[1], "node-1").await.unwrap();
        unpublish(&client, &volumes[0].volume_id, NODE).await.unwrap();
        let writes = rig.writes();
        let methods: Vec<&str> = writes.iter().map(|call| call.method.as_str()).collect();
        assert_eq!(methods, ["POST", "PUT", "PUT", "PUT"]);
        assert!(writes[1..].iter().all(|call| call.if_match.is_some()));
        // A disk write sends data disks and nothing else of the machine.
        for call in &writes[1..] {
            let body = call.body.as_ref().unwrap();
            let properties = body["properties"].as_object().unwrap();
            assert_eq!(properties.keys().collect::<Vec<_>>(), ["storageProfile"]);
        }
        rig.check();
        rig.stop().await;
    }
    let (rig, client) = Rig::typical().await;
    let volume = create(&client, NAME).await.unwrap();
    rig.incident(
        json!({"match": {"path": "*/virtualMachines/*", "method": "POST"}, "then": {"status": 403}, "times": 0}),
    );
    rig.incident(
        json!({"match": {"path": "*/virtualMachines/*", "method": "PUT"}, "then": {"status": 403}, "times": 0}),
    );
    refused(publish(&client, &volume, NODE).await, Code::PermissionDenied);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_vm_that_changed_between_read_and_write_is_planned_again_and_loses_nothing() {
    for method in METHODS.into_iter().filter(|method| *method != Method::AzureStack) {
        // The slot that this driver would have taken, and another one.
        for (theirs, ours) in [(0, 1), (5, 0)] {
            let mut rig = Rig::with(typical(), |options| method.set(options)).await;
            let client = rig.controller().await;
            let volume = create(&client, NAME).await.unwrap();
            let other = rig.other_tool();
            other.make_disk("theirs").await;
            pass(seconds(3)).await;
            // Between the read of the VM and its write another tool attaches a disk.
            rig.incident(json!({"match": {"method": "GET", "path": "*/disks/pvc-a"}, "then": {"delayMs": 15000}}));
            let publishing = super::disk_rig::publishing(&client, &volume, NODE);
            pass(seconds(1)).await;
            assert_eq!(other.attach(NODE, &[("theirs", theirs)]).await, 202);
            assert_eq!(publishing.await.unwrap().unwrap(), ours, "{method:?}");
            let expected = [(theirs, "theirs".to_owned()), (ours, NAME.to_owned())].into();
            assert_eq!(rig.luns(NODE), expected, "{method:?}");
            rig.check();
            rig.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn disk_a_quota_that_is_used_up_makes_the_scheduler_choose_again_and_leaves_nothing() {
    let azure = lazuli_emulator::Options {
        quotas: [("StandardSSDDiskCount".to_owned(), 2), ("StandardDiskCount".to_owned(), 2)].into(),
        ..typical()
    };
    let mut rig = Rig::on(azure).await;
    let client = rig.controller().await;
    let mut exhausted = 0;
    for name in numbered(4) {
        if let Err(status) = create(&client, &name).await {
            assert_eq!(status.code(), Code::ResourceExhausted, "{}", status.message());
            assert!(rig.disk(&name).is_none());
            exhausted += 1;
        }
    }
    assert!(exhausted >= 2, "{exhausted}");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disk_a_revoked_token_fails_no_call() {
    let (rig, client) = Rig::typical().await;
    let volume = create(&client, NAME).await.unwrap();
    rig.control.revoke_tokens();
    publish(&client, &volume, NODE).await.unwrap();
    rig.control.revoke_tokens();
    assert_eq!(list(&client).await.unwrap().len(), 1);
    unpublish(&client, &volume.volume_id, NODE).await.unwrap();
    rig.check();
    rig.stop().await;
}

/// A batch of which the answer is lost, while a bad member is in it and throttling comes on top.
#[tokio::test(start_paused = true)]
async fn disk_several_failures_at_once_end_well() {
    let (rig, client) = Rig::typical().await;
    let volumes = create_all(&client, &numbered(8)).await;
    rig.control.reset_log();
    rig.incident(json!({"match": {"method": "POST"}, "then": {"loseAnswer": "after"}}));
    rig.incident(json!({"match": {"method": "GET", "path": "*/virtualMachines/node-0", "nth": 3}, "then": {"status": 503}, "times": 2}));
    rig.incident(json!({"match": {"operation": "operations.get"}, "then": {"status": 500}, "times": 3}));
    for (at, lun) in publish_all(&client, &volumes, NODE).await.into_iter().enumerate() {
        assert_eq!(usize::from(lun.unwrap()), at);
    }
    assert_eq!(rig.vm_writes(NODE).len(), 1);
    rig.check();
    rig.stop().await;
}

/// Reads that lag behind this process's writes and those of others cost time and no second write.
#[tokio::test(start_paused = true)]
async fn disk_reads_that_lag_make_no_second_write() {
    let azure = lazuli_emulator::Options { read_lag: seconds(2), ..typical() };
    let mut rig = Rig::on(azure).await;
    let client = rig.controller().await;
    let volumes = create_all(&client, &numbered(4)).await;
    pass(seconds(3)).await;
    rig.control.reset_log();
    for answer in publish_all(&client, &volumes, NODE).await {
        answer.unwrap();
    }
    assert_eq!(rig.vm_writes(NODE).len(), 1);
    for answer in super::disk_rig::unpublish_all(&client, &volumes, NODE).await {
        answer.unwrap();
    }
    assert_eq!(rig.vm_writes(NODE).len(), 2);
    rig.check();
    rig.stop().await;
}

/// The answer to a write is lost, and what it is repeated with is refused: that says nothing of the first.
#[tokio::test(start_paused = true)]
async fn disk_a_refusal_of_a_repeated_write_is_not_told_while_the_first_is_under_way() {
    let mut rig = Rig::with(typical(), |options| Method::WholeList.set(options)).await;
    let client = rig.controller().await;
    let volumes = create_all(&client, &numbered(1)).await;
    for (rpc, luns) in [("publish", 1), ("unpublish", 0)] {
        rig.incident(
            json!({"match": {"method": "PUT", "path": "*/virtualMachines/*"}, "then": {"loseAnswer": "after"}}),
        );
        rig.incident(json!({
            "match": {"method": "PUT", "path": "*/virtualMachines/*"},
            "then": {"status": 400, "code": "InvalidParameter"},
        }));
        let answers: Vec<Result<(), Status>> = match rpc {
            "publish" => publish_all(&client, &volumes, NODE).await.into_iter().map(|lun| lun.map(drop)).collect(),
            _ => super::disk_rig::unpublish_all(&client, &volumes, NODE).await,
        };
        assert!(answers.iter().all(Result::is_ok), "{rpc}: {answers:?}");
        assert_eq!(rig.luns(NODE).len(), luns);
        rig.control.clear_incidents();
    }
    rig.check();
    rig.stop().await;
}
