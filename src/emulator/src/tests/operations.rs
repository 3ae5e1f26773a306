use super::*;

#[tokio::test(start_paused = true)]
async fn a_second_write_of_a_machine_conflicts_while_one_runs() {
    let rig = Rig::new(slow()).await;
    rig.disk("a").await;
    rig.disk("b").await;
    let first = rig.attach_detach("plain-0", json!([{"diskId": disk_id("a")}]), json!([])).await.expect(202);
    let got = rig.attach_detach("plain-0", json!([{"diskId": disk_id("b")}]), json!([])).await.refused(409, "Conflict");
    assert_eq!(got.message(), "The request failed due to conflict with a concurrent request.");
    rig.call("DELETE", &vm_uri("plain-0"), None).await.refused(409, "Conflict");
    assert_eq!(rig.finish(&first).await["status"], "Succeeded");
    rig.attach_detach("plain-0", json!([{"diskId": disk_id("b")}]), json!([])).await.expect(202);
}

#[tokio::test(start_paused = true)]
async fn a_body_shows_the_future_only_when_the_lag_is_over() {
    let rig = Rig::new(Options { read_lag: Duration::from_secs(3), ..options() }).await;
    rig.put_disk("d", premium(10)).await.expect(202);
    rig.get(&disk_uri("d")).await.refused(404, "ResourceNotFound");
    tokio::time::sleep(Duration::from_secs(4)).await;
    rig.disk_doc("d").await;
    rig.attach_detach("plain-0", json!([{"diskId": disk_id("d")}]), json!([])).await.expect(202);
    assert!(rig.disk_doc("d").await.get("managedBy").is_none());
    assert_eq!(rig.vm("plain-0").await["properties"]["storageProfile"]["dataDisks"], json!([]));
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(rig.disk_doc("d").await["managedBy"], vm_id("plain-0"));
}

#[tokio::test(start_paused = true)]
async fn an_incident_answers_delays_or_loses_what_it_strikes() {
    let rig = Rig::new(options()).await;
    let add = |incident: Value| rig.control().add_incident(serde_json::from_value(incident).unwrap()).unwrap();
    add(
        json!({"match": {"method": "PUT", "path": "*/disks/*"}, "then": {"status": 503, "code": "ServerBusy", "retryAfter": 4}}),
    );
    let got = rig.put_disk("d", premium(1)).await.refused(503, "ServerBusy");
    assert_eq!(got.header("retry-after"), "4");
    rig.put_disk("d", premium(1)).await.expect(202);
    add(json!({"match": {"operation": "disks.get"}, "then": {"delayMs": 5000}}));
    let before = tokio::time::Instant::now();
    rig.get(&disk_uri("d")).await.expect(200);
    assert!(before.elapsed() >= Duration::from_secs(5));
    add(json!({"match": {"method": "DELETE"}, "then": {"loseAnswer": "after"}}));
    let request = Request::builder()
        .method("DELETE")
        .uri(disk_uri("d"))
        .header("authorization", format!("Bearer {}", rig.token))
        .body(Body::empty())
        .unwrap();
    let response = rig.router.clone().oneshot(request).await.unwrap();
    assert!(response.into_body().collect().await.is_err());
    rig.get(&disk_uri("d")).await.expect(404);
    let log = rig.control().call_log();
    assert_eq!(log.iter().filter(|call| call.incident).count(), 3);
}

#[tokio::test]
async fn a_lost_answer_ends_the_connection_and_the_write_has_or_has_not_happened() {
    let listen_tls = Some("127.0.0.1:0".parse().unwrap());
    let emulator = Emulator::start(Options { listen_tls, ..options() }).await.unwrap();
    let control = emulator.control();
    let plain = reqwest_client();
    let authority = reqwest::Certificate::from_pem(emulator.ca_pem().unwrap().as_bytes()).unwrap();
    let secure = || reqwest::Client::builder().no_proxy().tls_certs_only([authority.clone()]);
    let clients = [
        ("plain", plain, emulator.url()),
        ("tls1", secure().http1_only().build().unwrap(), emulator.tls_url().unwrap()),
        ("tls2", secure().build().unwrap(), emulator.tls_url().unwrap()),
    ];
    for (name, client, base) in clients {
        for (when, exists) in [("before", 404), ("after", 200)] {
            let incident = json!({"match": {"method": "PUT"}, "then": {"loseAnswer": when}});
            control.add_incident(serde_json::from_value(incident).unwrap()).unwrap();
            let url = format!("{base}{}", disk_uri(&format!("{name}-{when}")));
            let lost = client.put(&url).bearer_auth(control.token()).json(&premium(1)).send().await;
            assert!(lost.unwrap_err().status().is_none());
            let got = client.get(&url).bearer_auth(control.token()).send().await.unwrap();
            assert_eq!(got.status().as_u16(), exists, "{name} {when}");
        }
    }
    let struck = control.call_log().iter().filter(|call| call.incident).count();
    assert_eq!(struck, 6, "a lost request must not be sent again by the client itself");
    emulator.shutdown().await;
}

#[tokio::test]
async fn a_request_over_a_connection_that_names_a_host_of_another_site_reaches_no_plane() {
    let names = vec!["emulator.test".parse().unwrap()];
    let listen_tls = Some("127.0.0.1:0".parse().unwrap());
    let emulator = Emulator::start(Options { names, listen_tls, throttling: false, ..options() }).await.unwrap();
    // First, for it installs the provider of TLS.
    let plain = reqwest_client();
    let authority = reqwest::Certificate::from_pem(emulator.ca_pem().unwrap().as_bytes()).unwrap();
    let secure = reqwest::Client::builder().no_proxy().tls_certs_only([authority]).http1_only().build().unwrap();
    let login = format!("/{}/v2.0/.well-known/openid-configuration", crate::scenario::TENANT);
    let metadata = "/metadata/endpoints?api-version=2022-09-01".to_owned();
    let instance = "/_imds/plain-0/metadata/instance?api-version=2021-02-01".to_owned();
    for (client, base) in [(plain, emulator.url()), (secure, emulator.tls_url().unwrap())] {
        for (path, served) in
            [(login.clone(), 200), (metadata.clone(), 200), (instance.clone(), 200), (disk_uri("d"), 401)]
        {
            for (host, status) in [
                ("rebound.example:8181", 421),
                ("localhost.example", 421),
                ("localhost:1", served),
                ("127.0.0.1", served),
                ("169.254.169.254", served),
                ("emulator.test:8443", served),
            ] {
                let request = client.get(format!("{base}{path}")).header("host", host).header("metadata", "true");
                let answer = request.send().await.unwrap();
                assert_eq!(answer.status().as_u16(), status, "{host} {path}");
                if status == 421 {
                    let error: Value = answer.json().await.unwrap();
                    let message = error["error"]["message"].as_str().unwrap();
                    assert!(message.contains(&format!("names \"{host}\"")) && message.contains("--name"), "{message}");
                }
            }
        }
    }
    assert!(emulator.control().call_log().iter().all(|call| call.status != 421), "what is refused is no call");
    emulator.shutdown().await;
}

fn reqwest_client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().unwrap()
}

/// A run over a real socket on paused time.
async fn run(seed: u64) -> Vec<crate::call_log::Call> {
    let emulator = Emulator::start(Options { seed, latency: Profile::azure(), ..options() }).await.unwrap();
    let control = emulator.control();
    let client = reqwest_client();
    let token = control.token();
    let base = emulator.url();
    for at in 0..3 {
        let name = format!("d{at}");
        let got = client
            .put(format!("{base}{}", disk_uri(&name)))
            .bearer_auth(&token)
            .json(&premium(4))
            .send()
            .await
            .unwrap();
        let url = got.headers()["azure-asyncoperation"].to_str().unwrap().to_owned();
        assert!(url.starts_with(&base), "{url}");
        loop {
            let polled: Value = client.get(&url).bearer_auth(&token).send().await.unwrap().json().await.unwrap();
            if polled["status"] == "Succeeded" {
                break;
            }
            tokio::time::sleep(Duration::from_millis(700)).await;
        }
    }
    let log = control.call_log();
    emulator.shutdown().await;
    log
}

#[tokio::test(start_paused = true)]
async fn one_seed_gives_one_call_log_and_another_seed_another() {
    let first = run(7).await;
    assert!(first.len() > 6);
    assert_eq!(first, run(7).await);
    assert_ne!(first, run(8).await);
}

#[tokio::test(start_paused = true)]
async fn an_operation_url_keeps_the_api_version_of_its_caller() {
    let rig = Rig::new(options()).await;
    let uri = format!("{}?api-version=2023-04-02", disk_id("d"));
    let got = rig.call("PUT", &uri, Some(premium(1))).await.expect(202);
    assert!(got.header("azure-asyncoperation").contains("api-version=2023-04-02"));
    let unknown = got.header("azure-asyncoperation").replace("DiskOperations/", "DiskOperations/0");
    rig.get(path_of(&unknown)).await.refused(404, "NotFound");
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_what_was_asked_for() {
    let rig = Rig::new(Options { retry_after: Some(3), ..slow() }).await;
    let got = rig.put_disk("d", premium(1)).await.expect(202);
    assert_eq!(got.header("retry-after"), "3");
    assert_eq!(rig.get(path_of(got.header("azure-asyncoperation"))).await.header("retry-after"), "3");
    rig.finish(&got).await;
    assert_eq!(rig.get(path_of(got.header("azure-asyncoperation"))).await.header("retry-after"), "");
}

#[tokio::test(start_paused = true)]
async fn time_may_pass_faster_for_people() {
    let rig = Rig::new(Options { time_scale: 100.0, ..slow() }).await;
    let begun = tokio::time::Instant::now();
    let got = rig.put_disk("d", premium(1)).await.expect(202);
    while rig.get(path_of(got.header("azure-asyncoperation"))).await.body["status"] == "InProgress" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let took = begun.elapsed();
    assert!(took > Duration::from_millis(1) && took < Duration::from_millis(200), "{took:?}");
}
