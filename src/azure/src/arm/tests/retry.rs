use super::*;

fn throttled(seconds: &str) -> Reply {
    Reply::json(429, json!({"error": {"code": "TooManyRequests", "message": "slow"}})).header("retry-after", seconds)
}

fn post() -> Write {
    Write::post(&format!("{VM}/attachDetachDataDisks"), "1", Some(json!({})), Kind::VmAttach)
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_law_for_every_verb() {
    let unavailable = Reply::empty(503).header("retry-after", "3");
    let fake = Fake::new([throttled("7"), unavailable, throttled("2"), Reply::empty(200)]);
    let arm = fake.arm(fake.in_process());
    arm.write(post(), &a_minute()).await.unwrap();
    let times: Vec<u64> = fake.calls().iter().map(|seen| seen.at.as_millis() as u64).collect();
    assert_eq!(times, [0, 7_000, 10_000, 12_000]);
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_that_is_a_date_is_held_against_azures_own_clock() {
    let fake = Fake::new([
        Reply::empty(429)
            .header("date", "Fri, 01 Jan 2021 00:00:10 GMT")
            .header("retry-after", "Fri, 01 Jan 2021 00:00:15 GMT"),
        Reply::json(200, disk()),
    ]);
    read(&fake.arm(fake.in_process())).await.unwrap();
    assert_eq!(fake.calls()[1].at, Duration::from_secs(5));
}

/// No clock reaches as far as a number may.
#[tokio::test(start_paused = true)]
async fn a_retry_after_beyond_all_time_is_a_day() {
    for beyond in ["18446744073709551615", "99999999999"] {
        let fake = Fake::new([throttled(beyond)]);
        let error = fake.arm(fake.in_process()).write(post(), &an_hour()).await.unwrap_err();
        assert_eq!(error.fault, Fault::Throttled { retry_after: Some(Duration::from_secs(24 * 3600)) });
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_too_long_is_told_at_once() {
    let fake = Fake::new([throttled("1200"), throttled("30")]);
    let arm = fake.arm(fake.in_process());
    let error = arm.write(post(), &an_hour()).await.unwrap_err();
    assert_eq!(error.fault, Fault::Throttled { retry_after: Some(Duration::from_secs(1_200)) });
    assert_eq!((error.effect, fake.calls().len()), (Effect::None, 1));
    // The law holds for the next caller, who is told what is left of it and does not ask Azure.
    tokio::time::advance(Duration::from_secs(200)).await;
    let error = arm.write(post(), &an_hour()).await.unwrap_err();
    assert_eq!(error.fault, Fault::Throttled { retry_after: Some(Duration::from_secs(1_000)) });
    assert_eq!(fake.calls().len(), 1);
    // Nor is anyone kept longer than his own deadline.
    tokio::time::advance(Duration::from_secs(1_000)).await;
    let soon = Until::within(Duration::from_secs(20));
    let error = arm.write(post(), &soon).await.unwrap_err();
    assert_eq!(error.fault, Fault::Throttled { retry_after: Some(Duration::from_secs(30)) });
}

#[tokio::test(start_paused = true)]
async fn the_lost_answer_of_a_post_is_never_answered_with_another_post() {
    for reply in [Reply::Lost, Reply::Silence, Reply::empty(500), Reply::empty(503), Reply::empty(504)] {
        let fake = Fake::new([reply]);
        let arm = fake.arm(fake.in_process());
        let error = arm.write(post(), &an_hour()).await.unwrap_err();
        assert_eq!((&error.fault, error.effect), (&Fault::OutcomeUnknown, Effect::Possible), "{error}");
        assert_eq!(fake.calls().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_put_and_a_delete_are_repeated_and_what_is_lost_in_the_end_is_unknown() {
    let writes: [fn() -> Write; 3] = [
        || Write::put(DISK, "1", json!({}), Kind::DiskCreate),
        || Write::delete(DISK, "1", Kind::DiskDelete),
        || Write::patch(DISK, "1", json!({}), Kind::DiskUpdate).if_match(Some("\"1\"")),
    ];
    for write in writes {
        let fake = Fake::new([Reply::Lost, Reply::empty(504), Reply::empty(200)]);
        fake.arm(fake.in_process()).write(write(), &a_minute()).await.unwrap();
        assert_eq!(fake.calls().len(), 3);

        let fake = Fake::new([Reply::Lost, Reply::empty(500), Reply::Lost, Reply::empty(408)]);
        let error = fake.arm(fake.in_process()).write(write(), &a_minute()).await.unwrap_err();
        assert_eq!((&error.fault, error.effect), (&Fault::OutcomeUnknown, Effect::Possible), "{error}");
        assert!(fake.script_is_used_up());
    }
    let unconditional = Write::patch(DISK, "1", json!({}), Kind::DiskUpdate);
    let fake = Fake::new([Reply::Lost]);
    assert!(fake.arm(fake.in_process()).write(unconditional, &a_minute()).await.is_err());
    assert_eq!(fake.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_after_a_lost_answer_says_that_the_first_try_may_have_worked() {
    let fake = Fake::new([Reply::Lost, Reply::json(412, json!({"error": {"code": "PreconditionFailed"}}))]);
    let write = Write::put(VM, "1", json!({}), Kind::VmAttach).if_match(Some("\"1\""));
    let error = fake.arm(fake.in_process()).write(write, &a_minute()).await.unwrap_err();
    assert_eq!((&error.fault, error.effect), (&Fault::PreconditionFailed, Effect::Possible));
    assert_eq!(fake.calls()[0].if_match.as_deref(), Some("\"1\""));
}

#[tokio::test(start_paused = true)]
async fn pauses_double_with_jitter_and_tries_are_bounded() {
    let fake = Fake::new([Reply::empty(500), Reply::empty(500), Reply::empty(500), Reply::empty(500)]);
    let error = read(&fake.arm(fake.in_process())).await.unwrap_err();
    assert_eq!((&error.fault, error.effect), (&Fault::Unavailable, Effect::None));
    let at: Vec<f64> = fake.calls().iter().map(|seen| seen.at.as_secs_f64()).collect();
    for (index, expected) in [1.0, 2.0, 4.0].into_iter().enumerate() {
        let pause = at[index + 1] - at[index];
        assert!((0.75 * expected - 0.001..=1.25 * expected + 0.002).contains(&pause), "{at:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_post_that_found_no_connection_is_sent_again() {
    // No server listens on this port: it was given and taken back.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let fake = Fake::new([]);
    let good = fake.over_tcp().await;
    let dead = url(&format!("http://127.0.0.1:{port}/"));
    let routes = good.routes().clone().with(&url(ARM), &dead).unwrap();
    let transport = Transport::new(routes, &crate::transport::Tls::default()).unwrap();
    let start = Instant::now();
    let error = fake.arm(transport).write(post(), &a_minute()).await.unwrap_err();
    assert_eq!((&error.fault, error.effect), (&Fault::Unavailable, Effect::None), "{error}");
    // Four tries: three pauses of a second, two and four.
    assert!(start.elapsed() > Duration::from_secs(5), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_token_that_azure_refuses_is_replaced_once() {
    let unauthorized = || Reply::json(401, json!({"error": {"code": "InvalidAuthenticationToken"}}));
    let fake = Fake::new([unauthorized(), Reply::json(200, disk()), unauthorized(), unauthorized()]);
    let arm = fake.arm(fake.in_process());
    read(&arm).await.unwrap();
    let tokens =
        |fake: &Fake| -> Vec<Option<String>> { fake.calls().into_iter().map(|seen| seen.authorization).collect() };
    assert_eq!(tokens(&fake), [Some("Bearer token-1".into()), Some("Bearer token-2".into())]);
    // A POST too: it was refused at the door.
    let error = arm.write(post(), &a_minute()).await.unwrap_err();
    assert_eq!((&error.fault, error.effect), (&Fault::Unauthenticated, Effect::None));
    assert_eq!(fake.calls().len(), 4);
}

/// A write that may not wait.
fn at_once() -> Write {
    post().patience(Patience::None)
}

fn put_off(error: &ArmError) -> Option<Duration> {
    assert_eq!(error.effect, Effect::None, "{error}");
    match error.fault {
        Fault::Throttled { retry_after } => retry_after,
        _ => panic!("{error}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_may_not_wait_is_given_back_while_there_is_no_token_and_sends_nothing() {
    let fake = Fake::new([Reply::json(200, disk()), Reply::empty(200)]);
    let arm = fake.arm(fake.in_process());
    let error = arm.write(at_once(), &an_hour()).await.unwrap_err();
    assert_eq!((put_off(&error), fake.log().len()), (Some(Duration::ZERO), 0));
    // The read on which the next decision rests waits for a token in its stead.
    read(&arm).await.unwrap();
    arm.write(at_once(), &an_hour()).await.unwrap();
    // A token that ended while its renewal hangs is none.
    let _ = fake.clone().tokens([Reply::Silence, Reply::Silence, Reply::Silence, Reply::Silence]);
    tokio::time::advance(Duration::from_secs(3_600)).await;
    let began = Instant::now();
    let error = arm.write(at_once(), &an_hour()).await.unwrap_err();
    assert_eq!((put_off(&error), began.elapsed()), (Some(Duration::ZERO), Duration::ZERO));
    assert_eq!(fake.calls().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_may_not_wait_is_given_back_when_its_token_is_refused_but_not_for_ever() {
    let unauthorized = || Reply::json(401, json!({"error": {"code": "InvalidAuthenticationToken"}}));
    let fake = Fake::new([
        Reply::json(200, disk()),
        unauthorized(),
        Reply::json(200, disk()),
        Reply::empty(200),
        unauthorized(),
        Reply::json(200, disk()),
        unauthorized(),
    ]);
    let arm = fake.arm(fake.in_process());
    read(&arm).await.unwrap();
    // A new token may take long to come.
    let _ = fake.clone().tokens([Reply::Silence]);
    let began = Instant::now();
    assert_eq!(put_off(&arm.write(at_once(), &an_hour()).await.unwrap_err()), Some(Duration::ZERO));
    assert_eq!(began.elapsed(), Duration::ZERO);
    read(&arm).await.unwrap_err();
    tokio::time::sleep(Duration::from_secs(30)).await;
    read(&arm).await.unwrap();
    arm.write(at_once(), &an_hour()).await.unwrap();
    // One that is refused though it is new is no matter of renewal.
    put_off(&arm.write(at_once(), &an_hour()).await.unwrap_err());
    read(&arm).await.unwrap();
    let error = arm.write(at_once(), &an_hour()).await.unwrap_err();
    assert_eq!((&error.fault, error.effect), (&Fault::Unauthenticated, Effect::None));
    assert!(fake.script_is_used_up());
}

const WRITES_LEFT: &str = "x-ms-ratelimit-remaining-subscription-writes";

#[tokio::test(start_paused = true)]
async fn a_write_that_may_not_wait_goes_out_under_the_permit_it_brings_or_one_that_there_is_now() {
    let fake = Fake::new([
        Reply::empty(200).header(WRITES_LEFT, "1"),
        Reply::empty(200).header(WRITES_LEFT, "0"),
        Reply::empty(200).header(WRITES_LEFT, "0"),
        Reply::empty(200).header(WRITES_LEFT, "0"),
    ]);
    let arm = fake.arm(fake.in_process());
    arm.write(post(), &an_hour()).await.unwrap();
    arm.write(at_once(), &an_hour()).await.unwrap();
    let began = Instant::now();
    let pause = put_off(&arm.write(at_once(), &an_hour()).await.unwrap_err()).unwrap();
    assert!(pause > Duration::from_millis(99) && pause < Duration::from_millis(250), "{pause:?}");
    assert!(began.elapsed().is_zero());
    // The permit waits in its stead, for a write by whichever method.
    let permit = arm.permit(Verb::Put, VM, Priority::Attach, &an_hour()).await.unwrap();
    let waited = began.elapsed();
    assert!(waited >= pause && waited < pause + Duration::from_millis(3), "{waited:?}");
    arm.write(at_once().with_permit(permit), &an_hour()).await.unwrap();
    assert_eq!((began.elapsed(), fake.calls().len()), (waited, 3));
    // One for another resource is given back, and its token is there for this write; one that is not used, for others.
    let permit = arm.permit(Verb::Put, DISK, Priority::Attach, &an_hour()).await.unwrap();
    arm.write(at_once().with_permit(permit), &an_hour()).await.unwrap();
    assert!(arm.try_permit(Verb::Put, DISK, Priority::List).is_none());
    let permit = arm.permit(Verb::Put, DISK, Priority::Attach, &an_hour()).await.unwrap();
    drop(at_once().with_permit(permit));
    assert!(arm.try_permit(Verb::Put, DISK, Priority::List).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waited_for_a_permit_or_a_token_asks_again_whether_a_pause_has_begun() {
    let stop = || throttled("20").header("x-ms-failure-cause", "gateway");
    let put = |name: &str| Write::put(&format!("{DISK}{name}"), "1", json!({}), Kind::DiskCreate);
    // While one waits for its permit, the one before it is told to stop.
    let fake = Fake::new([Reply::empty(200).header(WRITES_LEFT, "0"), stop(), Reply::empty(200), Reply::empty(200)]);
    let arm = fake.arm(fake.in_process());
    arm.write(put("a"), &an_hour()).await.unwrap();
    let first = put("b").priority(Priority::DetachDeadNode);
    let (later, hour) = (put("c"), an_hour());
    let (later, first) = tokio::join!(arm.write(later, &hour), arm.write(first, &hour));
    later.unwrap();
    first.unwrap();
    let at: Vec<u64> = fake.calls().iter().map(|seen| seen.at.as_secs()).collect();
    assert_eq!(at, [0, 0, 20, 20]);

    // While one waits for a token, another of the same scope is told to stop.
    let fake = Fake::new([Reply::empty(200), stop(), Reply::empty(200), Reply::empty(200)]);
    let arm = fake.arm(fake.in_process());
    arm.write(put("a"), &an_hour()).await.unwrap();
    let slow = Reply::json(200, json!({"token_type": "Bearer", "expires_in": 3599, "access_token": "slow"}));
    let _ = fake.clone().tokens([slow.after(Duration::from_secs(5))]);
    let other = put("b");
    let stopped = async {
        // Sent with the old token, and answered after that has ended.
        arm.write(other, &an_hour()).await
    };
    let waits = async {
        arm.0.tokens.refused(&arm.0.tokens.bearer().await.unwrap());
        arm.write(put("c"), &an_hour()).await
    };
    let (stopped, waits) = tokio::join!(stopped, waits);
    stopped.unwrap();
    waits.unwrap();
    let at: Vec<u64> = fake.calls().iter().map(|seen| seen.at.as_secs()).collect();
    assert_eq!(at, [0, 0, 20, 20]);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_up_leaves_at_once_and_is_told_what_may_have_happened() {
    let cancel = tokio_util::sync::CancellationToken::new();
    let until = Until::cancelled(cancel.clone());
    // While waiting for its turn nothing was sent.
    let fake = Fake::new([throttled("30")]);
    let arm = fake.arm(fake.in_process());
    let waiting = tokio::spawn(async move { arm.write(post(), &until).await.map(drop) });
    tokio::time::sleep(Duration::from_secs(1)).await;
    cancel.cancel();
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!((&error.fault, error.effect), (&Fault::Deadline, Effect::None));
    // While a write is out, it may have worked.
    let fake = Fake::new([Reply::Silence]);
    let soon = Until::within(Duration::from_secs(5));
    let error = fake.arm(fake.in_process()).write(post(), &soon).await.unwrap_err();
    assert_eq!((&error.fault, error.effect), (&Fault::Deadline, Effect::Possible));
    // And before it is sent, not.
    let fake = Fake::new([]);
    let error = fake.arm(fake.in_process()).write(post(), &Until::within(Duration::ZERO)).await.unwrap_err();
    assert_eq!((&error.fault, error.effect), (&Fault::Deadline, Effect::None));
}

#[test]
fn pauses_grow_by_the_factor_to_the_longest_and_chance_spreads_them() {
    let retry = Retry {
        first_pause: Duration::from_secs(5),
        factor: 1.5,
        jitter: (1.0, 2.0),
        longest_pause: Duration::from_secs(12),
        ..Retry::default()
    };
    let pauses = [1, 2, 3, 4, u32::MAX].map(|tries| retry.pause(tries, 0.0).as_millis());
    assert_eq!(pauses, [5_000, 7_500, 11_250, 12_000, 12_000]);
    assert_eq!(retry.pause(1, 1.0), Duration::from_secs(10));
    let common = Retry::default();
    assert_eq!([1, 2, 3, 9].map(|tries| common.pause(tries, 0.5).as_secs()), [1, 2, 4, 8]);
}
