//! The queue in front of a scripted Azure, on paused time.

use lazuli_model::fault::{Effect, Fault};
use lazuli_quota::poll::Kind;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    Until,
    arm::{Arm, Write},
    testing::{Fake, Reply, a_minute, an_hour},
};

const DISK: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d";
const LEFT: &str = "x-ms-ratelimit-remaining-subscription-writes";

/// An answer to a write after which so many tokens are left.
fn left(tokens: u32) -> Reply {
    Reply::empty(200).header(LEFT, tokens.to_string())
}

fn put(name: &str) -> Write {
    Write::put(&format!("{DISK}{name}"), "1", json!({}), Kind::DiskCreate)
}

/// A client that has just used the last token of its writes; the script goes on with these.
async fn drained(script: impl IntoIterator<Item = Reply>) -> (Fake, Arm) {
    let fake = Fake::new(std::iter::once(left(0)).chain(script));
    let arm = fake.arm(fake.in_process());
    arm.write(put("first"), &a_minute()).await.unwrap();
    (fake, arm)
}

async fn permit(arm: &Arm, rank: impl Into<Rank>) -> Permit {
    arm.permit(Verb::Put, DISK, rank, &an_hour()).await.unwrap()
}

/// The number of tasks on this runtime beside the test itself.
fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

#[tokio::test(start_paused = true)]
async fn a_dropped_waiter_leaves_the_queue_and_a_dropped_permit_goes_to_the_next_waiter() {
    let (_, arm) = drained([]).await;
    let began = Instant::now();
    {
        let gone = permit(&arm, Priority::DetachDeadNode);
        tokio::pin!(gone);
        assert!(futures::poll!(gone.as_mut()).is_pending());
        assert!(arm.permit_would_wait(Verb::Put, DISK, Priority::List) > Duration::from_millis(199));
    }
    assert!(arm.permit_would_wait(Verb::Put, DISK, Priority::List) < Duration::from_millis(101));
    let first = permit(&arm, Priority::Attach).await;
    let waited = began.elapsed();
    assert!(waited > Duration::from_millis(99) && waited < Duration::from_millis(105), "{waited:?}");
    // The next token would come a tenth of a second later.
    let second = permit(&arm, Priority::List);
    tokio::pin!(second);
    assert!(futures::poll!(second.as_mut()).is_pending());
    drop(first);
    assert!(futures::poll!(second.as_mut()).is_ready());
    assert_eq!(began.elapsed(), waited);
}

#[tokio::test(start_paused = true)]
async fn one_task_wakes_all_waiting_requests_and_ends_when_none_waits() {
    let (_, arm) = drained([]).await;
    let before = tasks();
    let waiting: Vec<_> = (0..100).map(|_| permit(&arm, Priority::Create)).collect();
    let mut waiting = futures::future::join_all(waiting);
    assert!(futures::poll!(&mut waiting).is_pending());
    tokio::time::sleep(Duration::from_millis(250)).await;
    assert_eq!(tasks(), before + 1);
    let began = Instant::now();
    let permits = waiting.await;
    // Two tokens came before; the estimate refills by a little less than ten a second.
    let took = began.elapsed().as_secs_f64();
    assert!((9.7..9.9).contains(&took), "{took}");
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(tasks(), before);
    drop(permits);
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_rank_is_raised_while_it_waits_goes_first() {
    let (_, arm) = drained([]).await;
    let rank = Rank::new(Priority::List);
    let order = Mutex::new(Vec::new());
    let wait = async |name: &'static str, rank: Rank| {
        let permit = permit(&arm, rank).await;
        order.lock().unwrap().push(name);
        permit.sent();
    };
    let raise = async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        rank.raise(Priority::Poll);
        // It does not go back.
        rank.raise(Priority::Read);
        assert_eq!(rank.priority(), Priority::Poll);
    };
    tokio::join!(
        wait("a list that a poll has joined", rank.clone()),
        wait("an attach", Priority::Attach.into()),
        wait("a dead node's detach", Priority::DetachDeadNode.into()),
        raise,
    );
    assert_eq!(order.into_inner().unwrap(), ["a dead node's detach", "a list that a poll has joined", "an attach"]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_no_caller_wants_leaves_the_queue_and_one_that_was_sent_goes_on() {
    let accepted = Reply::json(202, json!({}))
        .header("azure-asyncoperation", "https://management.azure.com/subscriptions/s/x/1")
        .after(Duration::from_secs(2));
    let status = Reply::json(200, json!({"status": "Succeeded", "properties": {"output": {"id": DISK}}}));
    let (fake, arm) = drained([accepted, status]).await;
    let wanted = CancellationToken::new();
    let until = Until::working(Duration::from_secs(60)).while_wanted(wanted.clone());
    let gives_up = async {
        tokio::time::sleep(Duration::from_millis(150)).await;
        wanted.cancel();
    };
    // When the callers leave, the first request has been sent and the second still waits.
    let (first, second) = (put("a"), put("b"));
    let (first, second, ()) = tokio::join!(arm.write(first, &until), arm.write(second, &until), gives_up);
    let error = second.unwrap_err();
    assert_eq!((&error.fault, error.effect), (&Fault::Deadline, Effect::None), "{error}");
    // The operation that the first one started is polled to its end.
    first.unwrap().wait(&until).await.unwrap();
    assert_eq!(fake.calls().len(), 3);
    assert!(fake.script_is_used_up());
}

#[tokio::test(start_paused = true)]
async fn time_in_the_queue_counts_against_the_callers_deadline_and_not_against_the_time_to_work() {
    // Twenty requests go first, at ten a second.
    let (fake, arm) = drained((0..20).map(|_| left(0)).chain([Reply::Silence])).await;
    let crowd: Vec<Write> = (0..20).map(|n| put(&n.to_string()).priority(Priority::DetachDeadNode)).collect();
    let crowd_until = an_hour();
    let crowd = futures::future::join_all(crowd.into_iter().map(|write| arm.write(write, &crowd_until)));
    let began = Instant::now();
    let within = async {
        let error = arm.write(put("within"), &Until::within(Duration::from_secs(1))).await.unwrap_err();
        assert_eq!((&error.fault, error.effect), (&Fault::Deadline, Effect::None));
        began.elapsed()
    };
    let working = async {
        // It waits for two seconds, is sent, and has a second from then on.
        let error = arm.write(put("working"), &Until::working(Duration::from_secs(1))).await.unwrap_err();
        assert_eq!((&error.fault, error.effect), (&Fault::Deadline, Effect::Possible));
        began.elapsed()
    };
    let (_, within, working) = tokio::join!(crowd, within, working);
    assert_eq!(within.as_millis(), 1_000);
    assert!((3_090..3_130).contains(&working.as_millis()), "{working:?}");
    assert!(fake.script_is_used_up());
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_begins_while_requests_wait_rejects_those_that_may_not_wait_for_it() {
    let stop =
        Reply::json(429, json!({"error": {"code": "SubscriptionRequestsThrottled"}})).header("retry-after", "300");
    let (fake, arm) = drained([stop]).await;
    let began = Instant::now();
    let (first, second, hour) = (put("a"), put("b"), an_hour());
    let (first, second) = tokio::join!(arm.write(first, &hour), arm.write(second, &hour));
    for error in [first.unwrap_err(), second.unwrap_err()] {
        assert!(
            matches!(error.fault, Fault::Throttled { retry_after: Some(pause) } if pause.as_secs() == 300),
            "{error}"
        );
        assert_eq!(error.effect, Effect::None);
    }
    assert!(began.elapsed() < Duration::from_secs(1));
    assert_eq!(fake.calls().len(), 2);
    // A later request is rejected at once; deletions have another bucket.
    arm.permit(Verb::Delete, DISK, Priority::Create, &an_hour()).await.unwrap();
    let error = arm.permit(Verb::Put, DISK, Priority::Create, &an_hour()).await.unwrap_err();
    assert!(matches!(error.fault, Fault::Throttled { retry_after: Some(_) }), "{error}");
}

#[test]
fn a_429_tells_which_limit_refused() {
    let failure = |body: serde_json::Value| {
        let error = crate::error::AzureError::read(&body);
        Failure::answered(Verb::Put, DISK, 429, error, None, Effect::None)
    };
    let details = json!([{"code": "TooManyRequests", "target": "HighCostGet30Min", "message": "{}"}]);
    for (body, expected) in [
        (json!({"error": {"code": "SubscriptionRequestsThrottled"}}), Refusal::FrontDoor),
        (json!({"error": {"code": "TooManyRequests"}}), Refusal::UnnamedPolicy),
        (json!({"code": "OperationNotAllowed", "details": details}), Refusal::Policy("HighCostGet30Min".into())),
        (json!({"error": {"code": "RetryableError"}}), Refusal::Resource),
    ] {
        assert_eq!(refusal(&HeaderMap::new(), &failure(body.clone())), expected, "{body}");
    }
    let mut gateway = HeaderMap::new();
    gateway.insert("x-ms-failure-cause", "gateway".parse().unwrap());
    assert_eq!(refusal(&gateway, &failure(json!({"error": {"code": "TooManyRequests"}}))), Refusal::FrontDoor);
}

#[tokio::test(start_paused = true)]
async fn a_region_is_a_part_of_what_a_permit_is_for() {
    const SHARE: &str =
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/a/fileServices/default/shares/x";
    let fake = Fake::new([]);
    let arm = fake.arm(fake.in_process());
    let (west, north) = (arm.in_region("West Europe"), arm.in_region("northeurope"));
    // The front door grants eight before its first answer; the provider's window has more room.
    let held: Vec<Permit> = (0..5).map(|_| west.try_permit(Verb::Put, SHARE, Priority::Create).unwrap()).collect();
    let scope = |arm: &Arm| arm.scope(Verb::Put, SHARE).unwrap();
    assert!(held[0].is_for(scope(&west).as_ref()) && held[0].is_for(scope(&arm.in_region("westeurope")).as_ref()));
    assert!(!held[0].is_for(scope(&north).as_ref()) && !held[0].is_for(scope(&arm).as_ref()));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_never_left_this_machine_costs_no_token() {
    let (_, arm) = drained([]).await;
    tokio::time::sleep(Duration::from_millis(110)).await;
    let permit = arm.try_permit(Verb::Put, DISK, Priority::List).unwrap();
    assert!(arm.try_permit(Verb::Put, DISK, Priority::DetachDeadNode).is_none());
    permit.sent().not_sent();
    let permit = arm.try_permit(Verb::Put, DISK, Priority::List).unwrap();
    // Azure may have counted a request that was sent and not answered.
    drop(permit.sent());
    assert!(arm.try_permit(Verb::Put, DISK, Priority::DetachDeadNode).is_none());
    // Requests outside of subscriptions are not counted.
    assert!((0..1_000).all(|_| arm.try_permit(Verb::Get, "/metadata/endpoints", Priority::List).is_some()));
}

#[tokio::test(start_paused = true)]
async fn the_queue_shows_in_the_metrics() {
    let mut registry = prometheus_client::registry::Registry::default();
    let fake = Fake::new([left(0)]);
    let arm = fake.arm_with(fake.in_process(), Metrics::register(&mut registry, Default::default()), 7);
    arm.write(put("a"), &a_minute()).await.unwrap();
    let shows = |line: &str| {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(text.contains(line), "{line}\n{text}");
    };
    let waiting = permit(&arm, Priority::Create);
    tokio::pin!(waiting);
    assert!(futures::poll!(waiting.as_mut()).is_pending());
    shows("lazuli_azure_permit_queue_length{bucket=\"writes\"} 1");
    let _permit = waiting.await;
    shows("lazuli_azure_permit_queue_length{bucket=\"writes\"} 0");
    shows("lazuli_azure_permit_wait_seconds_bucket{le=\"0.05\",bucket=\"writes\"} 1");
    shows("lazuli_azure_permit_wait_seconds_count{bucket=\"writes\"} 2");
}
