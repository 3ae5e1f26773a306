use super::*;

#[tokio::test(start_paused = true)]
async fn the_log_counts_and_can_be_emptied() {
    let rig = Rig::new(slow()).await;
    rig.disk("d").await;
    rig.attached("plain-0", &[("d", 0)]).await;
    let counters = rig.control().counters();
    assert_eq!(counters.writes, 2);
    assert!(counters.polls >= 2);
    assert_eq!(counters.by_operation["virtualMachines.attachDetachDataDisks"], 1);
    let log = rig.control().call_log();
    let attach = log.iter().find(|call| call.operation == "virtualMachines.attachDetachDataDisks").unwrap();
    assert_eq!(attach.status, 202);
    assert!(attach.latency_ms.is_some_and(|ms| ms > 0));
    assert!(attach.body.is_some());
    rig.control().reset_log();
    assert!(rig.control().call_log().is_empty());
    assert_eq!(rig.control().lower_bound().necessary_writes, 0);
}

#[tokio::test(start_paused = true)]
async fn the_lower_bound_is_the_slowest_machine_when_one_write_was_enough_for_each() {
    let rig = Rig::new(Options { latency: Profile::azure(), ..options() }).await;
    for name in ["a", "b", "c"] {
        rig.disk(name).await;
    }
    rig.control().reset_log();
    let one = rig
        .attach_detach("plain-0", json!([{"diskId": disk_id("a")}, {"diskId": disk_id("b")}]), json!([]))
        .await
        .expect(202);
    let two = rig.attach_detach("plain-1", json!([{"diskId": disk_id("c")}]), json!([])).await.expect(202);
    let begun = tokio::time::Instant::now();
    let bound = rig.control().lower_bound();
    assert_eq!(bound.necessary_writes, 2);
    assert!(bound.bucket_wait.is_zero());
    let latencies: Vec<u64> = rig.control().call_log().iter().filter_map(|call| call.latency_ms).collect();
    assert_eq!(u64::try_from(bound.total.as_millis()).unwrap(), *latencies.iter().max().unwrap());
    rig.finish(&one).await;
    rig.finish(&two).await;
    assert!(begun.elapsed() >= bound.total);
    assert!(begun.elapsed() < bound.total + Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_phase_starts_with_the_buckets_as_they_are_and_counts_its_own_calls() {
    let rig = Rig::new(Options { latency: Profile::typical(), ..options() }).await;
    let first = rig.control().begin_phase("create");
    for at in 0..4 {
        rig.disk(&format!("d-{at}")).await;
    }
    let group = format!("{}?api-version=2021-04-01", group());
    while rig.get(&group).await.status == 200 {}
    let second = rig.control().begin_phase("attach");
    assert_eq!(second.number, first.number + 1);
    let waits = rig
        .attach_detach("plain-0", json!([{"diskId": disk_id("d-0")}, {"diskId": disk_id("d-1")}]), json!([]))
        .await
        .expect(202);
    let phases = rig.control().phases();
    let [_, create, attach] = phases.as_slice() else { panic!("{phases:?}") };
    assert_eq!((create.name.as_str(), create.counters.writes, create.counters.throttled), ("create", 4, 1));
    assert!(create.counters.reads > 200 && create.counters.polls >= 4, "{:?}", create.counters);
    assert!(create.buckets.is_empty(), "{:?}", create.buckets);
    assert_eq!(create.lower_bound.total, Duration::from_millis(2_500));
    assert_eq!((attach.counters.writes, attach.counters.throttled), (1, 0));
    // The one read that shows the end finds a token again by then.
    let reads = attach.buckets.iter().find(|(name, _)| name.ends_with("/reads") && !name.contains('*')).unwrap();
    assert!(*reads.1 < 1.0, "{reads:?}");
    assert_eq!((attach.lower_bound.total, attach.lower_bound.necessary_reads), (Duration::from_secs(10), 1));
    assert_eq!(rig.control().lower_bound().total, Duration::from_millis(12_500));
    // Emptying the log fills no bucket either; that is asked for by itself.
    rig.control().reset_log();
    rig.get(&group).await.expect(429);
    assert_eq!(rig.control().phases().len(), 1);
    rig.control().fill_buckets();
    rig.get(&group).await.expect(200);
    rig.finish(&waits).await;
}

#[tokio::test(start_paused = true)]
async fn a_phase_lists_its_operations_with_their_ends_whether_or_not_anybody_polls() {
    let rig = Rig::new(Options { latency: Profile::typical(), ..options() }).await;
    rig.disk("d").await;
    let phase = rig.control().begin_phase("attach");
    rig.attach_detach("plain-0", json!([{"diskId": disk_id("d")}]), json!([])).await.expect(202);
    let running = rig.control().operations_of(phase.number);
    assert_eq!((running.len(), running[0].ended_ms, running[0].succeeded), (1, None, false));
    tokio::time::sleep(Duration::from_secs(30)).await;
    let ended = rig.control().operations_of(phase.number);
    assert_eq!(ended[0].ended_ms, Some(running[0].accepted_ms + 10_000));
    assert!(ended[0].succeeded);
    assert_eq!(ended[0].attached, [disk_id("d").to_lowercase()]);
    assert!(rig.control().operations_of(99).is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_control_interface_works_over_http_without_a_token() {
    let rig = Rig::new(options()).await;
    let plain = |method: &str, path: &str, body: &'static str| {
        let request = Request::builder().method(method).uri(path).header("host", "localhost");
        request.header("content-type", "application/json").body(Body::from(body)).unwrap()
    };
    rig.send(plain("GET", "/_emulator/health", "")).await.expect(200);
    let incident = r#"{"match": {"method": "GET"}, "then": {"status": 500}}"#;
    let added = rig.send(plain("POST", "/_emulator/incidents", incident)).await.expect(201);
    assert_eq!(added.body["ids"], json!([1]));
    rig.get(&vm_uri("plain-0")).await.expect(500);
    rig.send(plain("POST", "/_emulator/incidents", "{\"then\": {}}")).await.expect(400);
    assert_eq!(rig.send(plain("GET", "/_emulator/incidents", "")).await.body[0]["struck"], 1);
    rig.send(plain("DELETE", "/_emulator/incidents/1", "")).await.expect(204);
    rig.send(plain("DELETE", "/_emulator/incidents", "")).await.expect(204);
    let state = rig.send(plain("GET", "/_emulator/state", "")).await.expect(200).body;
    assert!(state["resources"][vm_id("plain-0").to_lowercase()].is_object());
    assert_eq!(rig.send(plain("GET", "/_emulator/counters", "")).await.body["calls"], 1);
    assert_eq!(rig.send(plain("GET", "/_emulator/calls", "")).await.body[0]["status"], 500);
    rig.send(plain("DELETE", "/_emulator/calls", "")).await.expect(204);
    rig.send(plain("GET", "/_emulator/lower-bound", "")).await.expect(200);
    let begun = rig.send(plain("POST", "/_emulator/phases", r#"{"name": "two"}"#)).await.expect(201).body;
    assert!(begun["startedMs"].is_u64());
    rig.send(plain("POST", "/_emulator/phases", "{}")).await.expect(400);
    let phases = rig.send(plain("GET", "/_emulator/phases", "")).await.expect(200).body;
    assert_eq!((&phases[1]["name"], &phases[1]["number"]), (&json!("two"), &begun["number"]));
    let operations = format!("/_emulator/phases/{}/operations", begun["number"]);
    assert_eq!(rig.send(plain("GET", &operations, "")).await.expect(200).body, json!([]));
    rig.send(plain("POST", "/_emulator/buckets/fill", "")).await.expect(204);
    rig.send(plain("GET", "/_emulator/scenario", "")).await.expect(200);
}

#[tokio::test(start_paused = true)]
async fn the_metadata_service_shows_the_disks_that_the_machine_holds() {
    let rig = Rig::new(slow()).await;
    rig.disk("d").await;
    rig.attached("plain-0", &[("d", 2)]).await;
    let request = Request::builder()
        .uri("/_imds/plain-0/metadata/instance?api-version=2021-10-01")
        .header("metadata", "true")
        .body(Body::empty())
        .unwrap();
    let got = rig.send(request).await.expect(200);
    let disks = &got.body["compute"]["storageProfile"]["dataDisks"];
    assert_eq!(disks[0]["lun"], "2");
    assert_eq!(disks[0]["managedDisk"]["id"], disk_id("d"));
}

#[tokio::test(start_paused = true)]
async fn the_state_file_outlives_the_emulator() {
    let folder = std::env::temp_dir().join(format!("lazuli-emulator-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("state.json");
    let options = || Options { state_file: Some(file.clone()), ..slow() };
    let rig = Rig::new(options()).await;
    rig.disk("d").await;
    rig.attach_detach("plain-0", json!([{"diskId": disk_id("d"), "lun": 6}]), json!([])).await.expect(202);
    rig.emulator.shutdown().await;
    let rig = Rig::new(options()).await;
    assert_eq!(rig.luns("plain-0"), [(6, "d".to_owned())]);
    assert_eq!(rig.disk_doc("d").await["managedBy"], vm_id("plain-0"));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[tokio::test(start_paused = true)]
async fn tampering_looks_like_another_tool() {
    let rig = Rig::new(options()).await;
    let before = rig.vm("plain-0").await["etag"].clone();
    rig.control().tamper(&vm_id("plain-0"), |vm| vm["tags"] = json!({"by": "hand"})).unwrap();
    let after = rig.vm("plain-0").await;
    assert_eq!(after["tags"]["by"], "hand");
    assert_ne!(after["etag"], before);
    assert!(rig.control().tamper("/none", |_| {}).is_none());
}

#[tokio::test]
async fn a_dropped_emulator_stops_listening() {
    let emulator = Emulator::start(options()).await.unwrap();
    let address = emulator.url().replace("http://", "");
    drop(emulator);
    while tokio::net::TcpStream::connect(&address).await.is_ok() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_follower_sees_each_state_and_whether_it_may_not_be_in_force_yet() {
    let rig = Rig::new(slow()).await;
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let steps = std::sync::Arc::clone(&seen);
    let existing = rig.control().follow(move |step| {
        for changed in &step.documents {
            let state = changed.document.as_ref().map(|document| document["properties"]["diskState"].clone());
            steps.lock().unwrap().push((changed.key.rsplit('/').next().unwrap().to_owned(), state, changed.in_flight));
        }
    });
    assert!(existing.contains_key(&vm_id("plain-0").to_lowercase()));
    rig.disk("d").await;
    let created = std::mem::take(&mut *seen.lock().unwrap());
    let at = |in_flight: bool| created.iter().filter(|one| one.0 == "d" && one.2 == in_flight).count();
    assert!(at(true) > 0 && at(false) == 1 && !created.last().unwrap().2, "{created:?}");
    rig.get(&format!("{}?api-version=2024-03-02", disk_id("d"))).await.expect(200);
    assert_eq!(*seen.lock().unwrap(), []);
    rig.control().tamper(&disk_id("d"), |disk| disk["tags"] = json!({"a": "b"})).unwrap();
    assert_eq!(seen.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn without_samba_no_share_is_served_and_who_asks_for_it_is_told() {
    let rig = Rig::new(options()).await;
    assert!(rig.control().file_servers().is_empty());
    let refused = rig.control().serve_files("files", true).await.unwrap_err().to_string();
    assert!(refused.contains("start the emulator with --smb samba"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_crashes_is_stopped_with_its_disks_and_runs_again() {
    let rig = Rig::new(options()).await;
    rig.disk("d").await;
    rig.attached("plain-0", &[("d", 0)]).await;
    let order = async |id: String, runs: bool| {
        rig.call("POST", "/_emulator/machines", Some(json!({"id": id, "runs": runs}))).await
    };
    let power = async || {
        let view =
            rig.get(&format!("{}/instanceView?api-version={COMPUTE_VERSION}", vm_id("plain-0"))).await.expect(200);
        view.body["statuses"].as_array().unwrap().last().unwrap()["code"].as_str().unwrap().to_owned()
    };
    order(vm_id("plain-0"), false).await.expect(204);
    assert_eq!(power().await, "PowerState/stopped");
    assert_eq!(rig.luns("plain-0"), [(0, "d".to_owned())]);
    assert_eq!(rig.control().running_operations(), 0);
    let again = order(vm_id("plain-0"), false).await.expect(400);
    assert!(again.body["error"].as_str().unwrap().contains("is stopped: only a running machine"), "{}", again.body);
    order(vm_id("plain-0").to_uppercase(), true).await.expect(204);
    assert_eq!(power().await, "PowerState/running");
    order(disk_id("d"), false).await.expect(400);
}

#[tokio::test(start_paused = true)]
async fn a_resource_and_a_call_are_shown_alone() {
    let rig = Rig::new(options()).await;
    rig.disk("d").await;
    let shown = rig.get(&format!("/_emulator/resource?id={}", disk_id("d"))).await.expect(200).body;
    assert_eq!(shown, rig.disk_doc("d").await);
    rig.get(&format!("/_emulator/resource?id={}", disk_id("none"))).await.expect(404);
    let call = rig.get("/_emulator/calls/1").await.expect(200).body;
    assert_eq!(
        (&call["operation"], &call["body"]["properties"]["diskSizeGB"]),
        (&json!("disks.createOrUpdate"), &json!(10))
    );
    rig.get("/_emulator/calls/99").await.expect(404);
    let unknown = rig.get("/_emulator/nothing").await.expect(404).body;
    assert!(unknown["error"].as_str().unwrap().contains("incidents, incidents/NUMBER"), "{unknown}");
}
