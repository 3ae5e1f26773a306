//! The admission webhooks of the process `lazuli cloud-controllers`: reviews over TLS, as the API server asks for them,
//! of a replica that waits for its Lease.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube::Client;
use lazuli_apiserver::ApiServer;
use lazuli_assembly::clients;
use lazuli_azure::transport::Routes;
use lazuli_config::{Config, Document, Environment};
use lazuli_emulator::{Emulator, call_log::Call, incident::Incident, scenario};
use lazuli_rig::{Folder, azure_json};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

use super::{
    deploy_azure::assert_allowed,
    disk_rig::{Rig, create_all, disk_id, millis, numbered, pass, publish, seconds, start, typical, vm_id},
};
use crate::certificates;

/// What only a hang reaches, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(90);
const BLOB: &str = "https://dd1.blob.core.windows.net/vhds/pvc-1.vhd";

struct World {
    azure: Emulator,
    server: ApiServer,
    /// Of the webhooks; it trusts their authority and nothing else.
    client: Client,
    _process: Child,
    _folder: Folder,
}

impl World {
    async fn start() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let options = lazuli_emulator::Options::default();
        let configured = options.scenario.clone();
        let azure = Emulator::start(options).await.unwrap();
        let mut config = azure_json(&configured, &azure.url());
        for (key, value) in [
            ("subnetName", "nodes"),
            ("securityGroupName", "nodes-nsg"),
            ("loadBalancerBackendPoolConfigurationType", "nodeIP"),
        ] {
            config[key] = value.into();
        }
        let server = ApiServer::start(lazuli_apiserver::Options::default());
        let held = json!({"holderIdentity": "another", "leaseDurationSeconds": 3600, "leaseTransitions": 0,
            "renewTime": "2999-01-01T00:00:00.000000Z", "acquireTime": "2026-01-01T00:00:00.000000Z"});
        let name = json!({"name": "cloud-controller-manager", "namespace": "kube-system"});
        server.put("leases", json!({"metadata": name, "spec": held})).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = server.router();
        tokio::spawn(async move { axum::serve(listener, router).await });
        let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}")}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {}}]});
        let folder = Folder::make("admission").unwrap();
        let [authority, certificate, key] = certificates::for_loopback();
        let path = |name: &str| folder.path().join(name).display().to_string();
        for (name, text) in [
            ("azure.json", config.to_string()),
            ("kubeconfig", kubeconfig.to_string()),
            ("tls.crt", certificate),
            ("tls.key", key),
        ] {
            std::fs::write(path(name), text).unwrap();
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_lazuli"));
        command.env_clear().args(["--log-format=json", "cloud-controllers", "--cloud-config-secret-name="]);
        command.arg(format!("--cloud-config={}", path("azure.json")));
        command.arg(format!("--kubeconfig={}", path("kubeconfig")));
        command.arg("--webhook-address=127.0.0.1:0");
        command.arg(format!("--webhook-certificate={}", path("tls.crt")));
        command.arg(format!("--webhook-key={}", path("tls.key")));
        command.arg("--allowed-resource-groups=team");
        let mut process = command.stdin(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let log = BufReader::new(process.stderr.take().unwrap());
        let address = tokio::time::timeout(PATIENCE, served_at(log)).await.expect("serves");
        let mut config = kube::Config::new(format!("https://{address}").parse().unwrap());
        config.root_cert = Some(vec![der(&authority)]);
        let client = Client::try_from(config).unwrap();
        Self { azure, server, client, _process: process, _folder: folder }
    }

    /// What the API server hears: the object that it stores, or the refusal; and the warnings.
    async fn review(&self, path: &str, operation: &str, old: Value, object: &Value) -> (Result<Value, String>, Value) {
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u-1", "operation": operation, "object": object, "oldObject": old, "dryRun": false,
        }});
        let request = http::Request::post(path).header("content-type", "application/json");
        let answer: Value = self.client.request(request.body(review.to_string().into_bytes()).unwrap()).await.unwrap();
        assert_eq!((&answer["kind"], &answer["response"]["uid"]), (&json!("AdmissionReview"), &json!("u-1")));
        let response = &answer["response"];
        let warnings = response["warnings"].clone();
        if response["allowed"] == false {
            return (Err(response["status"]["message"].as_str().unwrap().to_owned()), warnings);
        }
        let mut stored = object.clone();
        if let Some(patch) = response["patch"].as_str() {
            assert_eq!(response["patchType"], "JSONPatch");
            let patch: json_patch::Patch = serde_json::from_slice(&STANDARD.decode(patch).unwrap()).unwrap();
            json_patch::patch(&mut stored, &patch).unwrap();
        }
        (Ok(stored), warnings)
    }

    async fn volume(&self, volume: &Value) -> (Value, Value) {
        let (stored, warnings) = self.review("/persistentvolumes", "CREATE", Value::Null, volume).await;
        (stored.expect("a volume is never refused"), warnings)
    }

    /// Why a claim of this volume cannot grow from 1 GiB; `None` when it may.
    async fn growth(&self, volume: &str, gib: u64) -> (Option<String>, Value) {
        let claim = |gib: u64| {
            json!({"metadata": {"name": "data", "namespace": "default"},
                "spec": {"volumeName": volume, "resources": {"requests": {"storage": format!("{gib}Gi")}}}})
        };
        let (stored, warnings) = self.review("/persistentvolumeclaims", "UPDATE", claim(1), &claim(gib)).await;
        (stored.err(), warnings)
    }

    /// Makes a disk, as another tool does.
    async fn disk(&self, name: &str, sku: &str, zones: &[&str]) {
        let mut body = json!({"location": scenario::LOCATION, "sku": {"name": sku},
            "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 4}});
        if !zones.is_empty() {
            body["zones"] = json!(zones);
        }
        self.arm("PUT", &disk_id(name), &body).await;
    }

    async fn arm(&self, method: &str, path: &str, body: &Value) {
        use tower::ServiceExt as _;
        let version = if path.contains("/disks/") { "2025-01-02" } else { "2025-04-01" };
        let request = http::Request::builder()
            .method(method)
            .uri(format!("{path}?api-version={version}"))
            .header("authorization", format!("Bearer {}", self.azure.control().token()))
            .header("content-type", "application/json")
            .body(axum::body::Body::from(body.to_string()))
            .unwrap();
        let response = self.azure.service().oneshot(request).await.unwrap();
        assert!(response.status().is_success(), "{method} {path}: {}", response.status());
        let began = Instant::now();
        while self.azure.control().running_operations() > 0 {
            assert!(began.elapsed() < PATIENCE, "an operation runs without end");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Whatever the process asked of disks, the roles of the disk driver allow it.
    async fn stop(self) {
        let calls = self.azure.control().call_log();
        let of_disks = |call: &Call| call.plane == "arm" && call.path.to_lowercase().contains("/microsoft.compute/");
        let calls: Vec<Call> = calls.into_iter().filter(of_disks).collect();
        assert_allowed(&calls);
        self.azure.shutdown().await;
    }

    fn reads_of_disks(&self) -> usize {
        let calls = self.azure.control().call_log();
        calls.iter().filter(|call| call.method == "GET" && call.path.to_lowercase().contains("/disks")).count()
    }
}

/// The address that the process writes to its log.
async fn served_at(log: BufReader<tokio::process::ChildStderr>) -> String {
    let mut lines = log.lines();
    let mut seen = Vec::new();
    while let Some(line) = lines.next_line().await.unwrap() {
        let event: Value = serde_json::from_str(&line).unwrap_or_default();
        if line.contains("answering admission reviews") {
            let address = event["address"].as_str().or(event["fields"]["address"].as_str()).unwrap().to_owned();
            // What follows is read, or the process would wait.
            tokio::spawn(async move {
                while let Ok(Some(line)) = lines.next_line().await {
                    eprintln!("{line}")
                }
            });
            return address;
        }
        seen.push(line);
    }
    panic!("the process has ended: {seen:#?}");
}

fn der(pem: &str) -> Vec<u8> {
    let body: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    STANDARD.decode(body).unwrap()
}

fn csi_volume(name: &str, handle: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"csi": {"driver": "disk.csi.azure.com", "volumeHandle": handle}}})
}

#[tokio::test]
async fn a_new_volume_gets_region_and_zone_of_its_disk_over_tls_and_without_the_lease() {
    let world = World::start().await;
    world.disk("zonal", "Premium_LRS", &["2"]).await;
    world.disk("regional", "StandardSSD_ZRS", &[]).await;
    let region = "topology.kubernetes.io/region";
    let zone = "topology.kubernetes.io/zone";
    let in_tree = json!({"metadata": {"name": "static"}, "spec": {"azureDisk": {
        "diskName": "zonal", "diskURI": disk_id("zonal"), "kind": "Managed", "cachingMode": "None"}}});
    for volume in [csi_volume("static", &disk_id("zonal")), in_tree] {
        let (stored, warnings) = world.volume(&volume).await;
        assert_eq!(stored["metadata"]["labels"], json!({region: "westeurope", zone: "westeurope-2"}));
        let terms = &stored["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"];
        assert_eq!(terms[0]["matchExpressions"][1]["values"], json!(["westeurope-2"]), "{terms}");
        assert_eq!(warnings, Value::Null);
    }
    let (stored, _) = world.volume(&csi_volume("static", &disk_id("regional"))).await;
    assert_eq!(stored["metadata"]["labels"], json!({region: "westeurope"}));

    // What says its zone itself, what is another driver's and a page blob cost no read of Azure.
    let before = world.reads_of_disks();
    let mut dynamic = csi_volume("pvc-1", &disk_id("zonal"));
    dynamic["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "topology.disk.csi.azure.com/zone", "operator": "In", "values": ["westeurope-1"]}]}]}});
    let (stored, _) = world.volume(&dynamic).await;
    assert_eq!(stored["metadata"]["labels"], json!({region: "westeurope", zone: "westeurope-1"}));
    assert_eq!(stored["spec"], dynamic["spec"]);
    let mut other = csi_volume("other", &disk_id("zonal"));
    other["spec"]["csi"]["driver"] = "file.csi.azure.com".into();
    assert_eq!(world.volume(&other).await.0, other);
    let translated = json!({"metadata": {"name": "pvc-2"}, "spec": {"azureDisk": {
        "diskName": "pvc-1.vhd", "diskURI": BLOB, "kind": "Managed", "fsType": "ext4"}}});
    let (stored, _) = world.volume(&translated).await;
    assert_eq!(stored["spec"]["csi"]["volumeHandle"], BLOB);
    assert_eq!(world.reads_of_disks(), before);
    // The operator allows no disks there, so none is read.
    let reads = world.reads_of_disks();
    let elsewhere = disk_id("zonal").replace("/lazuli/", "/vault/");
    let (stored, warnings) = world.volume(&csi_volume("static", &elsewhere)).await;
    assert!(stored["metadata"]["labels"].is_null(), "{stored}");
    let warning = warnings[0].as_str().unwrap();
    assert!(warning.contains("/vault; allowed are") && warning.contains("team"), "{warning}");
    assert_eq!(world.reads_of_disks(), reads);
    world.stop().await;
}

#[tokio::test]
async fn a_volume_whose_disk_azure_does_not_tell_is_admitted_in_time_with_a_warning() {
    let world = World::start().await;
    let lost = csi_volume("static", &disk_id("lost"));
    let (stored, warnings) = world.volume(&lost).await;
    assert_eq!(stored, lost);
    assert!(warnings[0].as_str().unwrap().ends_with("disk lost: Azure has no such disk"), "{warnings}");

    world.disk("slow", "Premium_LRS", &["1"]).await;
    let silence = json!({"match": {"method": "GET", "path": "*/disks*"}, "then": {"delayMs": 60_000}, "times": 0});
    let silence: Incident = serde_json::from_value(silence).unwrap();
    world.azure.control().add_incident(silence).unwrap();
    let slow = csi_volume("static", &disk_id("slow"));
    let began = Instant::now();
    let (stored, warnings) = world.volume(&slow).await;
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    assert_eq!(stored, slow);
    assert!(warnings[0].as_str().unwrap().contains("Azure did not tell"), "{warnings}");
    world.server.put("persistentvolumes", slow).unwrap();
    let (refusal, warnings) = world.growth("static", 40_000).await;
    assert_eq!(refusal, None);
    assert!(warnings[0].as_str().unwrap().contains("Azure did not tell in time"), "{warnings}");
    world.stop().await;
}

#[tokio::test]
async fn a_claim_that_azure_cannot_grow_as_asked_is_refused_with_a_sentence() {
    let world = World::start().await;
    world.disk("data", "Premium_LRS", &[]).await;
    for (name, handle) in [("managed", disk_id("data")), ("blob", BLOB.to_owned()), ("lost", disk_id("lost"))] {
        world.server.put("persistentvolumes", csi_volume(name, &handle)).unwrap();
    }
    let mut other = csi_volume("other", &disk_id("data"));
    other["spec"]["csi"]["driver"] = "other".into();
    world.server.put("persistentvolumes", other).unwrap();

    for (volume, gib, words) in [
        ("managed", 32_767, None),
        ("managed", 32_768, Some("the largest Premium_LRS has 32767 GiB")),
        ("blob", 2, None),
        ("blob", 4_095, None),
        ("blob", 4_096, Some("the largest blob disk has 4095 GiB")),
        ("other", 99_999, None),
        ("lost", 99_999, None),
        ("absent", 99_999, None),
    ] {
        let (refusal, _) = world.growth(volume, gib).await;
        match words {
            None => assert_eq!(refusal, None, "{volume} {gib}"),
            Some(words) => assert!(refusal.as_deref().unwrap_or_default().contains(words), "{volume}: {refusal:?}"),
        }
    }
    // Nothing of that lasts: whether the disk is attached is read each time.
    let attach = json!({"dataDisksToAttach": [{"diskId": disk_id("data"), "lun": 0}]});
    world.arm("POST", &format!("{}/attachDetachDataDisks", vm_id("node-0")), &attach).await;
    assert_eq!(world.growth("managed", 4_095).await.0, None);
    let refusal = world.growth("managed", 5_000).await.0.expect("is refused");
    assert!(refusal.contains("attached to node-0") && refusal.contains("across 4 TiB"), "{refusal}");

    // What is no review is the client's mistake, and costs the process nothing.
    let request = http::Request::post("/persistentvolumes").body(b"{}".to_vec()).unwrap();
    match world.client.request_text(request).await {
        Err(kube::Error::Api(status)) => assert_eq!(status.code, 400, "{status:?}"),
        other => panic!("{other:?}"),
    }
    let request = http::Request::post("/persistentvolumes").body(vec![b' '; 1 << 20]).unwrap();
    assert!(world.client.request_text(request).await.is_err(), "a body without a limit");
    assert_eq!(world.growth("managed", 4_095).await.0, None);
    world.stop().await;
}

/// The time that it takes to attach eight volumes, and the reads of disks that reviews cost meanwhile:
/// so many of them, sent from within the cluster, each of a disk in another resource group.
async fn attached_beside(reviews: usize) -> (Duration, usize, usize) {
    let mut rig = Rig::on(lazuli_emulator::Options { throttling: true, ..typical() }).await;
    let client = rig.controller().await;
    let volumes = create_all(&client, &numbered(8)).await;
    let document = azure_json(&scenario::Scenario::default(), &rig.lab.emulator.url()).to_string();
    let document = Document::parse("the embedded Azure", document.as_bytes()).unwrap();
    let config = Config::from_documents(Some(&document), None, &Environment::new(&Default::default())).unwrap();
    let azure = clients::connect(&config, Routes::none(), &mut Registry::default(), 1).await.unwrap();
    let server = ApiServer::start(lazuli_apiserver::Options::default());
    let options = lazuli_webhook::Options {
        compute: azure.compute.clone(),
        api: Client::new(server.router(), "default"),
        region: scenario::LOCATION.to_owned(),
        readable: lazuli_storage::admission::volume::Readable {
            allowed: Default::default(),
            subscription: azure.defaults.subscription.clone(),
            resource_group: azure.defaults.resource_group.clone(),
        },
    };
    let webhook = lazuli_webhook::router(options, lazuli_webhook::Metrics::register(&mut Registry::default()));
    rig.control.reset_log();
    let began = tokio::time::Instant::now();
    let reviewed = start(async move {
        let mut warned = 0;
        for number in 0..reviews {
            if number % 100 == 0 {
                pass(millis(100)).await;
            }
            let id = disk_id("hostile").replace("/lazuli/", &format!("/group-{number}/"));
            let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
                "uid": "u", "operation": "CREATE", "object": csi_volume("pv", &id), "oldObject": null}});
            let request = http::Request::post(lazuli_webhook::VOLUMES).header("content-type", "application/json");
            let request = request.body(axum::body::Body::from(review.to_string())).unwrap();
            let answer = tower::ServiceExt::oneshot(webhook.clone(), request).await.unwrap();
            let body = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
            let answer: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(answer["response"]["allowed"], true);
            assert!(answer["response"]["patch"].is_null());
            let warning = answer["response"]["warnings"][0].as_str().unwrap();
            warned += usize::from(warning.contains("too many disks are reviewed now"));
        }
        warned
    });
    pass(seconds(2)).await;
    let publishing = tokio::time::Instant::now();
    let nodes = ["node-0", "node-1"].into_iter().cycle();
    let attached = volumes.iter().zip(nodes).map(|(volume, node)| publish(&client, volume, node));
    for attached in futures::future::join_all(attached).await {
        attached.unwrap();
    }
    let took = publishing.elapsed();
    let warned = reviewed.await.unwrap();
    let of_reviews = |call: &&Call| call.method == "GET" && call.path.to_lowercase().contains("/group-");
    let reads = rig.control.call_log().iter().filter(of_reviews).count();
    let given = 50 + usize::try_from(began.elapsed().as_millis() / 500).unwrap();
    assert!(reads <= given, "{reads} reads, {given} were to be had");
    rig.lab.stop().await;
    (took, reads, warned)
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_reviews_of_other_disks_cost_few_reads_and_delay_no_attach() {
    let (alone, ..) = attached_beside(0).await;
    let (beside, reads, warned) = attached_beside(10_000).await;
    assert!(reads >= 50 && warned + reads >= 10_000, "{reads} reads, {warned} warnings");
    assert!(beside <= alone + seconds(1), "{beside:?} beside reviews, {alone:?} alone");
}
