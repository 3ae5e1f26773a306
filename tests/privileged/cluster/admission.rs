//! The admission webhooks with the real API server, as the chart registers them: what it stores and what it refuses.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use lazuli_emulator::{Emulator, scenario};
use lazuli_rig::azure_json;
use serde_json::{Value, json};

use super::{
    super::{
        azure::disk_id,
        cloud::{text, words},
        process::{self, Folder, PATIENCE, Process, until},
    },
    able_with_tools, kubernetes,
};
use crate::certificates;

const VOLUMES: &str = "/api/v1/persistentvolumes";
const WEBHOOKS: &str = "127.0.0.1:9443";
const BLOB: &str = "https://dd1.blob.core.windows.net/vhds/pvc-1.vhd";

/// An answer of the API server: the object, or code and message.
type Answer = Result<Value, (u16, String)>;

struct World {
    server: kubernetes::ApiServer,
    azure: Emulator,
    process: Process,
    folder: Folder,
}

impl World {
    async fn start(tools: &Path) -> Self {
        let folder = Folder::make();
        kubernetes::enter_own_network();
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
        let server = kubernetes::ApiServer::start(tools, folder.path(), "").await;
        let at = |name: &str| text(&folder.path().join(name));
        let [authority, certificate, key] = certificates::for_loopback();
        for (name, content) in
            [("azure.json", config.to_string()), ("ca.crt", authority), ("tls.crt", certificate), ("tls.key", key)]
        {
            fs::write(at(name), content).unwrap();
        }
        let mut process = Self::process(&folder);
        until("the webhooks", || {
            process.must_run();
            process.log().contains("answering admission reviews").then_some(())
        })
        .await;
        Self { server, azure, process, folder }
    }

    fn process(folder: &Folder) -> Process {
        let at = |name: &str| text(&folder.path().join(name));
        let mut arguments = words(&["cloud-controllers", "--cloud-config-secret-name="]);
        for (name, value) in [
            ("cloud-config", at("azure.json")),
            ("kubeconfig", at("admin.kubeconfig")),
            ("webhook-address", WEBHOOKS.to_owned()),
            ("webhook-certificate", at("tls.crt")),
            ("webhook-key", at("tls.key")),
        ] {
            arguments.push(format!("--{name}={value}"));
        }
        process::start("the cloud controllers", &folder.path().join("cloud-controllers.log"), &arguments)
    }

    /// Registers the webhooks of the chart. There is no kube-proxy here: their addresses stand for the Service.
    async fn register(&self) {
        let authority = STANDARD.encode(fs::read(self.folder.path().join("ca.crt")).unwrap());
        let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/chart/everything.yaml");
        let mut registered = 0;
        for document in fs::read_to_string(chart).unwrap().split("\n---\n") {
            if !document.contains("WebhookConfiguration") {
                continue;
            }
            let mut object: Value = serde_saphyr::from_str(document.trim_start_matches("---\n")).unwrap();
            for webhook in object["webhooks"].as_array_mut().unwrap() {
                let path = webhook["clientConfig"]["service"]["path"].as_str().unwrap().to_owned();
                webhook["clientConfig"] = json!({"url": format!("https://{WEBHOOKS}{path}"), "caBundle": authority});
            }
            self.create(&kubernetes::collection(&object), object).await.unwrap();
            registered += 1;
        }
        assert_eq!(registered, 2);
        // The API server hears of them by a watch.
        let began = Instant::now();
        loop {
            let probe = bound_volume("probe", "westeurope-1");
            let labels = self.create(VOLUMES, probe).await.unwrap()["metadata"]["labels"].clone();
            self.send("DELETE", &format!("{VOLUMES}/probe"), "application/json", None).await.unwrap();
            self.gone(&format!("{VOLUMES}/probe")).await;
            if labels["topology.kubernetes.io/zone"] == "westeurope-1" {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "no volume is labelled: {}", self.process.log());
        }
    }

    async fn send(&self, method: &str, path: &str, kind: &str, body: Option<Value>) -> Answer {
        let bytes = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request = http::Request::builder().method(method).uri(path).header("content-type", kind).body(bytes);
        match self.server.client().request(request.unwrap()).await {
            Ok(object) => Ok(object),
            Err(kube::Error::Api(status)) => Err((status.code, status.message.clone())),
            Err(error) => panic!("{method} {path}: {error}"),
        }
    }

    async fn create(&self, path: &str, object: Value) -> Answer {
        self.send("POST", path, "application/json", Some(object)).await
    }

    async fn patch(&self, path: &str, change: Value) -> Answer {
        self.send("PATCH", path, "application/merge-patch+json", Some(change)).await
    }

    /// Waits until there is no such object: nothing here takes finalizers off, so this does.
    async fn gone(&self, path: &str) {
        let began = Instant::now();
        while self.patch(path, json!({"metadata": {"finalizers": null}})).await.is_ok() {
            assert!(began.elapsed() < PATIENCE, "{path} stays");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// A claim of 1 GiB that is bound to a volume.
    async fn claim(&self, namespace: &str, volume: &str) -> String {
        let claims = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims");
        let spec = json!({"storageClassName": "grows", "volumeName": volume, "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}});
        self.create(&claims, json!({"metadata": {"name": volume}, "spec": spec})).await.unwrap();
        let path = format!("{claims}/{volume}");
        let status = json!({"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]});
        self.patch(&format!("{path}/status"), json!({ "status": status })).await.unwrap();
        path
    }

    async fn grow(&self, claim: &str, size: &str) -> Answer {
        self.patch(claim, json!({"spec": {"resources": {"requests": {"storage": size}}}})).await
    }

    /// Makes a disk, as another tool does.
    async fn disk(&self, name: &str, zones: Value) {
        use tower::ServiceExt as _;
        let body = json!({"location": scenario::LOCATION, "sku": {"name": "Premium_LRS"}, "zones": zones,
            "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 1}});
        let request = http::Request::put(format!("{}?api-version=2025-01-02", disk_id(name)))
            .header("authorization", format!("Bearer {}", self.azure.control().token()))
            .header("content-type", "application/json")
            .body(axum::body::Body::from(body.to_string()));
        let response = self.azure.service().oneshot(request.unwrap()).await.unwrap();
        assert!(response.status().is_success(), "{}", response.status());
        let began = Instant::now();
        while self.azure.control().running_operations() > 0 {
            assert!(began.elapsed() < PATIENCE, "an operation runs without end");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn volume(name: &str, source: Value) -> Value {
    let mut spec = source;
    spec["capacity"] = json!({"storage": "1Gi"});
    spec["accessModes"] = json!(["ReadWriteOnce"]);
    spec["storageClassName"] = json!("grows");
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec})
}

fn csi_volume(name: &str, handle: &str) -> Value {
    volume(name, json!({"csi": {"driver": super::DRIVER, "volumeHandle": handle}}))
}

/// As external-provisioner makes it.
fn bound_volume(name: &str, zone: &str) -> Value {
    let mut volume = csi_volume(name, &disk_id("pvc"));
    let zone = json!({"key": "topology.disk.csi.azure.com/zone", "operator": "In", "values": [zone]});
    volume["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}});
    volume
}

/// As csi-translation-lib translates the volume of a page blob, and with another kind.
fn blob_volume(name: &str, kind: &str) -> Value {
    let disk = json!({"diskName": "pvc-1.vhd", "diskURI": BLOB, "kind": kind, "fsType": "ext4", "readOnly": false});
    volume(name, json!({ "azureDisk": disk }))
}

#[tokio::test]
async fn the_real_api_server_stores_what_the_webhooks_answer_and_goes_on_without_them() {
    let Some(tools) = able_with_tools() else { return };
    let mut world = World::start(&tools).await;
    world.disk("zonal", json!(["2"])).await;
    world.disk("data", json!(["1"])).await;
    let class = json!({"metadata": {"name": "grows"}, "provisioner": super::DRIVER, "allowVolumeExpansion": true});
    world.create("/apis/storage.k8s.io/v1/storageclasses", class).await.unwrap();

    // What Kubernetes says to a page blob of its own translation, and what it would take.
    let (code, why) = world.create(VOLUMES, blob_volume("translated", "Managed")).await.unwrap_err();
    assert!(code == 422 && why.contains("spec.azureDisk.diskURI"), "{code} {why}");
    assert!(world.create(VOLUMES, blob_volume("dedicated", "Dedicated")).await.is_ok());

    world.register().await;

    let stored = world.create(VOLUMES, blob_volume("translated", "Managed")).await.unwrap();
    let source = json!({"driver": super::DRIVER, "volumeHandle": BLOB, "fsType": "ext4",
        "volumeAttributes": {"kind": "Dedicated", "cachingMode": "ReadWrite", "fsType": "ext4"}});
    assert_eq!((&stored["spec"]["csi"], &stored["spec"]["azureDisk"]), (&source, &Value::Null));

    let in_tree = json!({"diskName": "zonal", "diskURI": disk_id("zonal"), "kind": "Managed"});
    for object in [csi_volume("by-hand", &disk_id("zonal")), volume("in-tree", json!({ "azureDisk": in_tree }))] {
        let stored = world.create(VOLUMES, object).await.unwrap();
        let labels =
            json!({"topology.kubernetes.io/region": "westeurope", "topology.kubernetes.io/zone": "westeurope-2"});
        assert_eq!(stored["metadata"]["labels"], labels);
        let terms = &stored["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"];
        let values: Vec<&Value> =
            terms[0]["matchExpressions"].as_array().unwrap().iter().map(|one| &one["values"]).collect();
        assert_eq!(values, [&json!(["westeurope"]), &json!(["westeurope-2"])]);
    }
    let mut other = csi_volume("other", "a-volume");
    other["spec"]["csi"]["driver"] = "other.example".into();
    assert_eq!(world.create(VOLUMES, other).await.unwrap()["metadata"]["labels"], Value::Null);

    world.create(VOLUMES, csi_volume("data", &disk_id("data"))).await.unwrap();
    world.create(VOLUMES, csi_volume("blob", BLOB)).await.unwrap();
    let (data, blob) = (world.claim("default", "data").await, world.claim("default", "blob").await);
    let excluded = world.claim("kube-system", "data").await;
    let (code, why) = world.grow(&data, "40000Gi").await.unwrap_err();
    assert_eq!(code, 422, "{why}");
    let words = "the largest Premium_LRS has 32767 GiB";
    assert!(why.contains("persistentvolumeclaims.disk.csi.azure.com") && why.contains(words), "{why}");
    // Whether a blob is detached, without which it does not grow, is its controller's to judge.
    assert!(world.grow(&blob, "2Gi").await.is_ok());
    let stored = world.grow(&data, "10Gi").await.unwrap();
    assert_eq!(stored["spec"]["resources"]["requests"]["storage"], "10Gi");
    assert!(world.grow(&excluded, "40000Gi").await.is_ok(), "a namespace that is never asked about");
    // A change that is no growth is no review.
    assert!(world.patch(&blob, json!({"metadata": {"labels": {"a": "b"}}})).await.is_ok());

    // Without an answer the API server goes on.
    world.process.kill();
    assert!(world.create(VOLUMES, csi_volume("alone", &disk_id("zonal"))).await.is_ok());
    assert!(world.grow(&data, "40000Gi").await.is_ok());
    world.azure.shutdown().await;
}
