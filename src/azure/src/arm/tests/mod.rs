//! Tests on a scripted Azure, on paused time.

mod operations;
mod retry;

use super::*;
use crate::testing::{ARM, Fake, Reply, a_minute, an_hour, url};
use serde::Deserialize;
use serde_json::json;

const DISK: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d";
const VM: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v";
const STATUS: &str = "https://management.azure.com/subscriptions/s/providers/Microsoft.Compute/locations/l/DiskOperations/1?api-version=1&t=2";

fn disk() -> Value {
    json!({"id": DISK, "properties": {"provisioningState": "Succeeded", "diskSizeGB": 4}})
}

async fn read(arm: &Arm) -> Result<Read, ArmError> {
    arm.get(DISK, "2025-01-02", &[], Priority::Read, &a_minute()).await
}

#[tokio::test(start_paused = true)]
async fn a_read_carries_a_token_an_id_and_the_version_and_gives_body_and_etag() {
    let fake = Fake::new([Reply::json(200, disk()).header("etag", "\"3\"")]);
    let read = read(&fake.arm(fake.in_process())).await.unwrap();
    assert_eq!((read.value, read.etag.as_deref()), (disk(), Some("\"3\"")));
    assert_eq!(read.sent_at, Instant::now());
    let log = fake.log();
    assert_eq!(log[0].line, "POST login.microsoftonline.com/tenant/oauth2/v2.0/token");
    assert!(log[0].body.contains("scope=https%3A%2F%2Fmanagement.azure.com%2F.default"), "{}", log[0].body);
    assert_eq!(log[1].line, format!("GET management.azure.com{DISK}?api-version=2025-01-02"));
    assert_eq!(log[1].authorization.as_deref(), Some("Bearer token-1"));
    assert!(log[1].client_request_id.is_some());
}

#[tokio::test(start_paused = true)]
async fn in_process_and_over_tcp_the_same_calls_are_made_at_the_same_times() {
    let script = || {
        let status = |word: &str| Reply::json(200, json!({"status": word})).after(Duration::from_millis(120));
        [
            Reply::json(429, json!({"error": {"code": "TooManyRequests"}})).header("retry-after", "7"),
            Reply::json(202, json!({"id": DISK})).header("azure-asyncoperation", STATUS).header("retry-after", "10"),
            status("InProgress"),
            status("InProgress"),
            status("Succeeded"),
            Reply::json(200, disk()),
        ]
    };
    let mut logs = Vec::new();
    for over_tcp in [false, true, true] {
        let fake = Fake::new(script());
        let transport = if over_tcp { fake.over_tcp().await } else { fake.in_process() };
        let arm = fake.arm(transport);
        let write = Write::put(DISK, "2025-01-02", json!({"location": "l"}), Kind::DiskCreate);
        let mut operation = arm.write(write, &a_minute()).await.unwrap();
        assert_eq!(operation.wait(&a_minute()).await.unwrap(), Some(disk()));
        assert!(fake.script_is_used_up());
        logs.push(fake.log());
    }
    // Paused time over TCP is exact up to the timer's grain of a millisecond.
    let grain = |log: &[crate::testing::Seen]| -> Vec<(u128, String, Option<String>)> {
        log.iter()
            .map(|seen| {
                (
                    seen.at.as_millis(),
                    seen.line.clone(),
                    seen.client_request_id.clone().filter(|_| !seen.line.contains("/token")),
                )
            })
            .collect()
    };
    assert_eq!(grain(&logs[0]), grain(&logs[1]));
    assert_eq!(grain(&logs[1]), grain(&logs[2]));
    assert!(logs[0].last().unwrap().at > Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn one_seed_gives_one_log_and_another_seed_another() {
    let mut logs = Vec::new();
    for seed in [1, 1, 2] {
        let fake = Fake::new([Reply::empty(500), Reply::Lost, Reply::empty(502), Reply::json(200, disk())]);
        let arm = fake.arm_with(fake.in_process(), Metrics::unregistered(), seed);
        read(&arm).await.unwrap();
        logs.push(fake.calls());
    }
    assert_eq!(logs[0], logs[1]);
    assert_ne!(logs[1], logs[2]);
}

#[tokio::test(start_paused = true)]
async fn a_list_is_all_of_its_pages() {
    let fake = Fake::new([
        Reply::json(200, json!({"value": [1, 2], "nextLink": format!("{ARM}/page?token=2")})),
        Reply::json(200, json!({"value": [], "nextLink": format!("{ARM}/page?token=3")})),
        Reply::json(200, json!({"value": [3]})),
    ]);
    let arm = fake.arm(fake.in_process());
    let all = arm
        .list_of::<Value>("/subscriptions/s/providers/Microsoft.Compute/disks", "1", &[("$top", "2")], &a_minute())
        .await;
    assert_eq!(all.unwrap().items, [json!(1), json!(2), json!(3)]);
    assert_eq!(fake.calls()[2].line, "GET management.azure.com/page?token=3");
}

#[tokio::test(start_paused = true)]
async fn a_list_is_read_page_by_page_as_far_as_wanted_and_is_as_old_as_its_first_request() {
    #[derive(Deserialize)]
    struct Item {
        name: String,
    }
    let next = format!("{ARM}/page?token=2");
    let first = json!({"value": [{"name": "a", "more": 1}, {"name": "b"}], "nextLink": next});
    let slow = Reply::json(200, first).after(Duration::from_secs(3));
    let last = Reply::json(200, json!({"value": [{"name": "c"}]}));
    let failed = Reply::json(403, json!({"error": {"code": "AuthorizationFailed"}}));
    let fake = Fake::new([slow.clone(), slow, failed, last]);
    let arm = fake.arm(fake.in_process());
    let until = a_minute();
    let path = "/subscriptions/s/providers/Microsoft.Compute/disks";
    let mut pages = arm.pages(path, "1", &[], Priority::List, &until).unwrap();
    assert_eq!(pages.sent_at(), None);
    let page: Vec<Item> = pages.next_page().await.unwrap().unwrap();
    assert_eq!(page.iter().map(|item| item.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    drop(pages);
    assert_eq!(fake.calls().len(), 1);
    let began = Instant::now();
    let mut pages = arm.pages(path, "1", &[], Priority::List, &until).unwrap();
    assert!(pages.next_page::<Item>().await.unwrap().is_some());
    // A page that failed may be asked for again.
    assert_eq!(pages.next_page::<Item>().await.err().unwrap().fault, Fault::Forbidden);
    assert_eq!(pages.next_page::<Item>().await.unwrap().unwrap()[0].name, "c");
    assert!(pages.next_page::<Item>().await.unwrap().is_none());
    assert_eq!(pages.sent_at(), Some(began));
    assert!(fake.script_is_used_up());
}

#[tokio::test(start_paused = true)]
async fn an_incomplete_list_is_an_error() {
    let first = || Reply::json(200, json!({"value": [1], "nextLink": format!("{ARM}/page?token=2")}));
    for second in [
        Reply::json(200, json!({"items": [2]})),
        Reply::json(200, json!({"value": [2], "nextLink": 7})),
        Reply::json(200, json!({"value": [2], "nextLink": format!("{ARM}/page?token=2")})),
        Reply::empty(200),
        Reply::json(403, json!({"error": {"code": "AuthorizationFailed"}})),
    ] {
        let fake = Fake::new([first(), second]);
        let arm = fake.arm(fake.in_process());
        let error = arm.list_of::<Value>("/subscriptions/s/x", "1", &[], &a_minute()).await.unwrap_err();
        assert!(matches!(error.fault, Fault::Malformed | Fault::Forbidden), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_never_goes_to_another_origin() {
    let away = "https://evil.example/x?sig=s3cret";
    let list = Fake::new([Reply::json(200, json!({"value": [], "nextLink": away}))]);
    let error =
        list.arm(list.in_process()).list_of::<Value>("/subscriptions/s/x", "1", &[], &a_minute()).await.unwrap_err();
    assert_eq!(error.fault, Fault::Malformed);
    assert!(!format!("{error:?} {error}").contains("s3cret"));
    for header in ["azure-asyncoperation", "location"] {
        let fake = Fake::new([Reply::empty(202).header(header, away)]);
        let arm = fake.arm(fake.in_process());
        let write = Write::delete(DISK, "1", Kind::DiskDelete);
        let error = arm.write(write, &a_minute()).await.unwrap_err();
        assert_eq!((&error.fault, error.effect), (&Fault::OutcomeUnknown, Effect::Possible));
        assert_eq!(fake.calls().len(), 1);
    }
    assert!(list.log().iter().all(|seen| !seen.line.contains("evil")));
}

#[tokio::test(start_paused = true)]
async fn a_path_that_would_name_another_resource_is_refused() {
    let fake = Fake::new([]);
    let arm = fake.arm(fake.in_process());
    for name in ["..", ".", "%2e%2E", "../x"] {
        let write = Write::delete(&format!("{DISK}/{name}"), "1", Kind::DiskDelete);
        assert_eq!(arm.write(write, &a_minute()).await.unwrap_err().fault, Fault::Invalid);
    }
    assert!(fake.log().is_empty());
}

#[tokio::test(start_paused = true)]
async fn gone_is_only_what_azure_calls_gone() {
    let page = Reply::Answer {
        status: 404,
        headers: Vec::new(),
        body: "<html>no such page</html>".into(),
        after: Duration::ZERO,
    };
    let named = |code: &str| Reply::json(404, json!({"error": {"code": code, "message": "m"}}));
    let fake = Fake::new([page, named("ResourceNotFound"), named("ResourceGroupNotFound"), named("EndpointNotFound")]);
    let arm = fake.arm(fake.in_process());
    for expected in [Fault::Malformed, Fault::NotFound, Fault::ScopeNotFound, Fault::Malformed] {
        assert_eq!(read(&arm).await.unwrap_err().fault, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn every_error_carries_the_ids_of_the_request() {
    let fake = Fake::new([Reply::json(409, json!({"error": {"code": "Conflict", "message": "m"}}))
        .header("x-ms-request-id", "r-1")
        .header("x-ms-correlation-request-id", "c-1")]);
    let error = read(&fake.arm(fake.in_process())).await.unwrap_err();
    assert_eq!(error.request_id.as_deref(), Some("r-1"));
    assert_eq!(error.correlation_id.as_deref(), Some("c-1"));
    assert_eq!(error.client_request_id, fake.calls()[0].client_request_id);
}

#[tokio::test(start_paused = true)]
async fn without_a_token_nothing_is_sent_and_the_reader_learns_why() {
    let fake = Fake::new([]).tokens([Reply::json(
        401,
        json!({"error": "invalid_client", "error_description": "AADSTS7000215: Invalid client secret provided."}),
    )]);
    let error = read(&fake.arm(fake.in_process())).await.unwrap_err();
    assert_eq!((&error.fault, error.effect), (&Fault::Unauthenticated, Effect::None));
    let chain = error.with_causes();
    assert!(
        chain.contains("there is no token: the authority https://")
            && chain.contains("refuses a token: 401 invalid_client: AADSTS7000215"),
        "{chain}"
    );
    assert!(!format!("{chain} {error:?}").contains(crate::testing::CLIENT_SECRET));
    assert!(fake.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_etag_that_cannot_be_sent_stops_the_write() {
    let fake = Fake::new([]);
    let write = Write::put(DISK, "1", json!({}), Kind::DiskUpdate).if_match(Some("bad\netag"));
    let error = fake.arm(fake.in_process()).write(write, &a_minute()).await.unwrap_err();
    assert_eq!((&error.fault, error.effect), (&Fault::Malformed, Effect::None));
    assert!(fake.log().is_empty());
}

#[tokio::test(start_paused = true)]
async fn all_requests_of_a_paused_scope_wait_and_lists_go_last() {
    let few = |reply: Reply, left: &str| reply.header("x-ms-ratelimit-remaining-subscription-reads", left);
    let fake = Fake::new([
        few(Reply::json(200, disk()), "249"),
        Reply::json(429, json!({"error": {"code": "SubscriptionRequestsThrottled"}})).header("retry-after", "7"),
        few(Reply::json(200, disk()), "1"),
        few(Reply::json(200, disk()), "0"),
        few(Reply::json(200, disk()), "0"),
        few(Reply::json(200, json!({"value": []})), "0"),
    ]);
    let arm = fake.arm(fake.in_process());
    read(&arm).await.unwrap();
    let other = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        arm.get(VM, "1", &[], Priority::Read, &a_minute()).await
    };
    let (first, second) = tokio::join!(read(&arm), other);
    assert!(first.is_ok() && second.is_ok());
    let paused: Vec<u64> = fake.calls().iter().map(|seen| seen.at.as_secs()).collect();
    assert_eq!(paused, [0, 0, 7, 7]);
    // Nothing is left; the list comes first and goes last.
    let until = a_minute();
    let list = arm.list_of::<Value>("/subscriptions/s/providers/Microsoft.Compute/disks", "1", &[], &until);
    let (list, read) = tokio::join!(list, read(&arm));
    assert!(list.is_ok() && read.is_ok());
    let last: Vec<String> = fake.timeline().split_off(4);
    assert!(last[0].ends_with("disks/d") && last[1].ends_with("disks"), "{last:?}");
}

#[tokio::test(start_paused = true)]
async fn calls_are_counted_by_what_they_do_and_how_they_were_answered() {
    let mut registry = prometheus_client::registry::Registry::default();
    let metrics = Metrics::register(&mut registry, Default::default());
    let fake = Fake::new([Reply::Lost, Reply::empty(429).header("retry-after", "1"), Reply::json(200, disk())]);
    read(&fake.arm_with(fake.in_process(), metrics, 7)).await.unwrap();
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for status in ["none", "429", "2xx"] {
        let line = format!("lazuli_azure_requests_total{{verb=\"GET\",resource=\"disks\",status=\"{status}\"}} 1");
        assert!(text.contains(&line), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_byte_order_mark_is_no_part_of_an_answer() {
    let fake = Fake::new([
        Reply::text(200, &format!("\u{feff}{}", disk())),
        Reply::text(404, &format!("\u{feff}{}", json!({"error": {"code": "ResourceNotFound"}}))),
    ]);
    let arm = fake.arm(fake.in_process());
    assert_eq!(read(&arm).await.unwrap().value, disk());
    assert_eq!(read(&arm).await.unwrap_err().fault, Fault::NotFound);
}
