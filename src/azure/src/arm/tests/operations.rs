use super::*;

fn put() -> Write {
    Write::put(DISK, "2025-01-02", json!({"location": "l"}), Kind::DiskCreate)
}

fn delete() -> Write {
    Write::delete(DISK, "2025-01-02", Kind::DiskDelete)
}

fn action() -> Write {
    Write::post(&format!("{VM}/attachDetachDataDisks"), "2025-04-01", Some(json!({})), Kind::VmAttach)
}

fn status(word: &str) -> Reply {
    Reply::json(200, json!({"status": word}))
}

/// The paths asked for, in order, with where they lead in one word.
fn steps(fake: &Fake) -> Vec<&'static str> {
    fake.calls()
        .iter()
        .map(|seen| match seen.line.as_str() {
            line if line.starts_with("PUT") => "PUT",
            line if line.starts_with("POST") => "POST",
            line if line.starts_with("DELETE") => "DELETE",
            line if line.contains("monitor=true") => "location",
            line if line.contains("perations/1") => "status",
            line if line.contains("/disks/d?") || line.contains("/virtualMachines/v?") => "resource",
            line => panic!("{line}"),
        })
        .collect()
}

async fn run(write: Write, script: Vec<Reply>) -> (Result<Option<Value>, ArmError>, Vec<&'static str>) {
    let fake = Fake::new(script);
    let arm = fake.arm(fake.in_process());
    let result = match arm.write(write, &a_minute()).await {
        Ok(mut operation) => operation.wait(&a_minute()).await,
        Err(error) => Err(error),
    };
    assert!(fake.script_is_used_up());
    (result, steps(&fake))
}

fn both(reply: Reply) -> Reply {
    reply.header("azure-asyncoperation", STATUS).header("location", format!("{STATUS}&monitor=true"))
}

#[tokio::test(start_paused = true)]
async fn a_disk_answers_202_and_its_status_holds_the_result() {
    let (result, steps) = run(
        put(),
        vec![
            both(Reply::json(202, json!({"id": DISK, "properties": {"provisioningState": "Updating"}}))),
            status("InProgress"),
            Reply::json(200, json!({"status": "Succeeded", "properties": {"output": disk()}})),
        ],
    )
    .await;
    assert_eq!(result.unwrap(), Some(disk()));
    assert_eq!(steps, ["PUT", "status", "status"]);
}

#[tokio::test(start_paused = true)]
async fn a_vm_or_a_load_balancer_answers_with_a_status_only_and_is_read_in_the_end() {
    for first in [200, 201] {
        let (result, steps) = run(
            put(),
            vec![
                Reply::json(first, json!({"properties": {"provisioningState": "Succeeded"}}))
                    .header("azure-asyncoperation", STATUS),
                status("Succeeded"),
                Reply::json(200, disk()),
            ],
        )
        .await;
        assert_eq!(result.unwrap(), Some(disk()));
        assert_eq!(steps, ["PUT", "status", "resource"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_changes_nothing_has_no_operation_and_the_resource_is_asked() {
    let updating = || Reply::json(200, json!({"id": DISK, "properties": {"provisioningState": "Updating"}}));
    let (result, steps) = run(put(), vec![updating(), updating(), Reply::json(200, disk())]).await;
    assert_eq!(result.unwrap(), Some(disk()));
    assert_eq!(steps, ["PUT", "resource", "resource"]);
}

#[tokio::test(start_paused = true)]
async fn a_storage_account_answers_202_without_a_body_and_its_location_the_result() {
    let location = || format!("{STATUS}&monitor=true");
    let (result, steps) = run(
        put(),
        vec![
            Reply::empty(202).header("location", location()).header("retry-after", "17"),
            Reply::empty(202).header("location", location()),
            Reply::json(200, disk()),
        ],
    )
    .await;
    assert_eq!(result.unwrap(), Some(disk()));
    assert_eq!(steps, ["PUT", "location", "location"]);
}

#[tokio::test(start_paused = true)]
async fn an_error_at_its_location_is_how_an_operation_ended_unless_it_is_about_the_question() {
    let location = || Reply::empty(202).header("location", format!("{STATUS}&monitor=true"));
    let error = |status: u16, code: &str| Reply::json(status, json!({"error": {"code": code}}));
    for (status, code, fault) in [
        (409, "MaxStorageAccountsCountPerSubscriptionExceeded", Fault::Exhausted),
        (409, "StorageAccountAlreadyTaken", Fault::Invalid),
        (400, "AccountPropertyIsInvalid", Fault::Invalid),
    ] {
        let (result, steps) = run(put(), vec![location(), location(), error(status, code)]).await;
        let failure = result.unwrap_err();
        assert_eq!((failure.fault.clone(), failure.effect, failure.verb), (fault, Effect::Possible, Verb::Put));
        assert_eq!((failure.resource.as_str(), failure.status), (DISK, Some(status)));
        assert_eq!(steps, ["PUT", "location", "location"]);
    }
    // It is not known any more, or not shown to us: the resource tells.
    for (status, code) in [(404, "NotFound"), (403, "AuthorizationFailed"), (410, "Gone")] {
        let script = vec![location(), error(status, code), Reply::json(200, disk())];
        let (result, steps) = run(put(), script).await;
        assert_eq!(result.unwrap(), Some(disk()));
        assert_eq!(steps, ["PUT", "location", "resource"]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_synchronous_costs_one_request() {
    for (write, reply, expected) in [
        (put(), Reply::json(200, disk()), Some(disk())),
        (put(), Reply::json(201, json!({"id": "x"})), Some(json!({"id": "x"}))),
        (delete(), Reply::empty(200), None),
        (delete(), Reply::empty(204), None),
        (action(), Reply::json(200, json!({"dataDisks": []})), Some(json!({"dataDisks": []}))),
    ] {
        let (result, steps) = run(write, vec![reply]).await;
        assert_eq!(result.unwrap(), expected);
        assert_eq!(steps.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_delete_is_followed_to_its_end_in_every_shape() {
    let location = || format!("{STATUS}&monitor=true");
    let gone = || Reply::json(404, json!({"error": {"code": "ResourceNotFound"}}));
    for (script, expected) in [
        (vec![both(Reply::empty(202)), status("Succeeded")], vec!["DELETE", "status"]),
        (
            vec![Reply::empty(202).header("location", location()), Reply::empty(202), Reply::empty(204)],
            vec!["DELETE", "location", "location"],
        ),
        (vec![Reply::empty(202), Reply::json(200, disk()), gone()], vec!["DELETE", "resource", "resource"]),
        (
            vec![both(Reply::empty(202)), Reply::json(404, json!({"error": {"code": "NotFound"}})), gone()],
            vec!["DELETE", "status", "resource"],
        ),
    ] {
        let (result, steps) = run(delete(), script).await;
        assert_eq!((result.unwrap(), steps), (None, expected));
    }
}

#[tokio::test(start_paused = true)]
async fn an_action_gives_the_result_that_its_location_holds() {
    let profile = json!({"dataDisks": [{"lun": 0}]});
    let (result, steps) =
        run(action(), vec![both(Reply::empty(202)), status("Succeeded"), Reply::json(200, profile.clone())]).await;
    assert_eq!(result.unwrap(), Some(profile));
    assert_eq!(steps, ["POST", "status", "location"]);
}

#[tokio::test(start_paused = true)]
async fn the_end_alone_costs_no_read_of_the_result() {
    let fake = Fake::new([both(Reply::empty(202)), status("Succeeded")]);
    let mut operation = fake.arm(fake.in_process()).write(action(), &a_minute()).await.unwrap();
    operation.settle(&a_minute()).await.unwrap();
    assert_eq!(steps(&fake), ["POST", "status"]);
}

#[tokio::test(start_paused = true)]
async fn an_operation_fails_late_with_http_200() {
    let failed = |code: &str| {
        Reply::json(200, json!({"status": "Failed", "error": {"code": code, "message": "m", "target": "t"}}))
            .header("x-ms-request-id", "r-9")
    };
    let (result, _) = run(put(), vec![both(Reply::empty(202)), failed("AttachDiskWhileBeingDetached")]).await;
    let error = result.unwrap_err();
    assert_eq!((&error.fault, error.effect), (&Fault::BeingDetached, Effect::Possible));
    assert_eq!((error.status, error.request_id.as_deref()), (Some(200), Some("r-9")));
    assert!(error.to_string().contains("the operation failed: AttachDiskWhileBeingDetached: m"), "{error}");

    let (result, _) = run(put(), vec![both(Reply::empty(202)), status("Canceled")]).await;
    assert_eq!(result.unwrap_err().fault, Fault::Conflict);

    let failed = json!({"id": DISK, "properties": {"provisioningState": "Failed"}});
    let (result, _) = run(put(), vec![Reply::json(200, failed)]).await;
    assert_eq!(result.unwrap_err().status, Some(200));
}

#[tokio::test(start_paused = true)]
async fn a_question_that_fails_does_not_fail_the_operation() {
    let fake = Fake::new([
        both(Reply::empty(202)),
        Reply::Lost,
        Reply::empty(500),
        Reply::json(429, json!({})).header("retry-after", "11"),
        Reply::empty(503),
        status("Succeeded"),
        Reply::json(200, disk()),
    ]);
    let mut operation = fake.arm(fake.in_process()).write(put(), &a_minute()).await.unwrap();
    assert_eq!(operation.wait(&a_minute()).await.unwrap(), Some(disk()));
    let calls = fake.calls();
    assert!(calls[4].at - calls[3].at >= Duration::from_secs(11), "{:?}", fake.timeline());
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_operation_is_read_from_the_resource_without_the_action() {
    let (result, steps) = run(
        action(),
        vec![
            both(Reply::empty(202)),
            Reply::json(404, json!({"error": {"code": "NotFound"}})),
            Reply::json(200, json!({"properties": {"provisioningState": "Updating"}})),
            Reply::json(200, json!({"properties": {"provisioningState": "Succeeded"}})),
        ],
    )
    .await;
    assert_eq!(result.unwrap(), None);
    assert_eq!(steps, ["POST", "status", "resource", "resource"]);
}

#[tokio::test(start_paused = true)]
async fn waiting_ends_with_the_callers_time_and_may_be_taken_up_again() {
    let fake = Fake::new([both(Reply::empty(202)), status("InProgress")]);
    let mut operation = fake.arm(fake.in_process()).write(put(), &a_minute()).await.unwrap();
    let soon = Until::within(Duration::from_millis(1_000));
    let error = operation.wait(&soon).await.unwrap_err();
    assert_eq!((&error.fault, error.effect), (&Fault::Deadline, Effect::Possible));
    let cancel = tokio_util::sync::CancellationToken::new();
    cancel.cancel();
    assert_eq!(operation.wait(&Until::cancelled(cancel)).await.unwrap_err().fault, Fault::Deadline);
    fake.push(status("Succeeded"));
    fake.push(Reply::json(200, disk()));
    assert_eq!(operation.wait(&a_minute()).await.unwrap(), Some(disk()));
    assert_eq!(operation.wait(&a_minute()).await.unwrap(), Some(disk()));
}

#[tokio::test(start_paused = true)]
async fn a_median_operation_costs_at_most_six_polls_and_teaches_by_azures_clock() {
    let mut script = vec![both(Reply::empty(202))];
    script.extend((0..5).map(|_| status("InProgress")));
    script.push(Reply::json(
        200,
        json!({"status": "Succeeded", "startTime": "2026-01-01T00:00:00.0000000+00:00",
            "endTime": "2026-01-01T00:00:02.4+00:00", "properties": {"output": disk()}}),
    ));
    let fake = Fake::new(script);
    let arm = fake.arm(fake.in_process());
    let mut operation = arm.write(put(), &a_minute()).await.unwrap();
    operation.wait(&a_minute()).await.unwrap();
    let at: Vec<u128> = fake.calls().iter().map(|seen| seen.at.as_millis()).collect();
    assert_eq!(at, [0, 886, 1_392, 1_822, 2_151, 2_379, 2_530]);
    assert_eq!(arm.median(Kind::DiskCreate), Some(Duration::from_millis(2_400)));
    assert_eq!(arm.median(Kind::DiskDelete), None);
}

#[tokio::test(start_paused = true)]
async fn no_operation_is_taken_to_have_lasted_longer_than_it_was_waited_for() {
    for start in ["0001-01-01T00:00:00+00:00", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z", "yesterday"] {
        let fake = Fake::new([
            both(Reply::empty(202)),
            Reply::json(
                200,
                json!({"status": "Succeeded", "startTime": start, "endTime": "2026-01-01T01:00:00Z",
                    "properties": {"output": disk()}}),
            ),
        ]);
        let arm = fake.arm(fake.in_process());
        let mut operation = arm.write(put(), &a_minute()).await.unwrap();
        operation.wait(&a_minute()).await.unwrap();
        let waited = fake.calls().last().unwrap().at;
        let learned = arm.median(Kind::DiskCreate).unwrap();
        assert!(learned <= waited && learned > waited / 2, "{start}: {learned:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_operation_whose_status_we_may_not_read_is_followed_on_its_resource() {
    for status in [400, 401, 403, 405, 410] {
        let refusal = Reply::json(status, json!({"error": {"code": "AuthorizationFailed"}}));
        let mut script = vec![both(Reply::empty(202)), refusal.clone()];
        if status == 401 {
            // Not for want of a new token.
            script.push(refusal);
        }
        script.push(Reply::json(200, json!({"properties": {"provisioningState": "Updating"}})));
        script.push(Reply::json(200, json!({"properties": {"provisioningState": "Succeeded"}})));
        let (result, steps) = run(action(), script).await;
        assert_eq!(result.unwrap(), None, "{status}");
        assert_eq!(steps.last(), Some(&"resource"));
    }
}

/// The fault of a question is never that of the write: "forbidden" would say that nothing was done.
#[tokio::test(start_paused = true)]
async fn where_the_resource_may_not_be_read_either_the_outcome_is_unknown() {
    let refusal = || Reply::json(403, json!({"error": {"code": "AuthorizationFailed"}}));
    for write in [action(), put(), delete()] {
        let (result, _) = run(write, vec![both(Reply::empty(202)), refusal(), refusal()]).await;
        let error = result.unwrap_err();
        assert_eq!((&error.fault, error.effect), (&Fault::OutcomeUnknown, Effect::Possible));
    }
}

#[tokio::test(start_paused = true)]
async fn a_location_that_moves_is_followed_and_one_on_another_origin_is_not() {
    let fake = Fake::new([
        Reply::empty(202).header("location", format!("{STATUS}&monitor=true")),
        Reply::empty(202).header("location", format!("{STATUS}&monitor=true&then=2")),
        Reply::empty(202).header("location", "https://elsewhere.example/operations/1"),
        Reply::json(200, disk()),
    ]);
    let mut operation = fake.arm(fake.in_process()).write(put(), &a_minute()).await.unwrap();
    assert_eq!(operation.wait(&a_minute()).await.unwrap(), Some(disk()));
    let asked: Vec<bool> = fake.calls().iter().map(|seen| seen.line.contains("then=2")).collect();
    assert_eq!(asked, [false, false, true, true]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_sense_ends_the_waiting() {
    for nonsense in [json!({"hello": 1}), json!([])] {
        let (result, _) = run(put(), vec![both(Reply::empty(202)), Reply::json(200, nonsense)]).await;
        let error = result.unwrap_err();
        assert_eq!((&error.fault, error.effect), (&Fault::OutcomeUnknown, Effect::Possible));
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_is_not_shown_and_leaves_the_resource_at_rest_ends_as_unknown() {
    let refusal = Reply::json(403, json!({"error": {"code": "AuthorizationFailed"}}));
    let fake = Fake::new([both(Reply::empty(202)), refusal]);
    for _ in 0..64 {
        fake.push(Reply::json(200, disk()));
    }
    let mut operation = fake.arm(fake.in_process()).write(delete(), &a_minute()).await.unwrap();
    let error = operation.wait(&Until::within(Duration::from_secs(1_200))).await.unwrap_err();
    assert_eq!((&error.fault, error.effect), (&Fault::OutcomeUnknown, Effect::Possible));
    assert!(fake.calls().last().unwrap().at < Duration::from_secs(75));
}

/// The answer does not say which disk it was, so each may be.
#[tokio::test(start_paused = true)]
async fn a_vm_that_only_shows_that_its_write_failed_leaves_open_why() {
    let refusal = Reply::json(403, json!({"error": {"code": "AuthorizationFailed"}}));
    let failed = Reply::json(200, json!({"properties": {"provisioningState": "Failed"}}));
    let (result, _) = run(action(), vec![both(Reply::empty(202)), refusal, failed]).await;
    assert_eq!(result.unwrap_err().fault, Fault::Unclear);
}
