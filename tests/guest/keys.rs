//! Keys of shares that the controller hands out, on a real kernel: a rotation, and what follows it.

use std::{net::Ipv4Addr, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use lazuli_apiserver::{ApiServer, Options};
use lazuli_keys::{AUDIENCE, AccountReader, KeyError, Metrics, Settings, router};
use lazuli_model::{AccountKey, Secret, fault::Code};
use lazuli_telemetry::{
    Readiness,
    http::{CertificateFiles, Server, ServingCertificate},
};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::{
    driver::{Driver, to_stage},
    folder::Folder,
    kubernetes::{DRIVER, HOST, kubeconfig},
    machine::able,
    shares::{Cloud, to_arm},
};

/// As the driver's own volume id says.
const VOLUME: &str = "g#first#data###default";
const SECRET: &str = "azure-storage-account-first-secret";
const BROKER: &str = "lazuli-key-broker";

/// A cluster out here: its API server, and the broker of a controller.
struct Cluster {
    server: ApiServer,
    stop: CancellationToken,
    /// The files of the broker's certificate.
    _folder: Folder,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Asks the emulator for the keys of an account.
fn reader(cloud: &Cloud) -> AccountReader {
    let (service, token) = (cloud.emulator.service(), cloud.emulator.control().token());
    AccountReader::new(move |of| {
        let (service, token) = (service.clone(), token.clone());
        Box::pin(async move {
            let request = to_arm(&token, "POST", &of.account, "/listKeys", &json!({}));
            let answer = service.oneshot(request).await.unwrap();
            let bytes = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
            let listed: Value = serde_json::from_slice(&bytes).unwrap();
            let none = || KeyError::new(Code::Unavailable, "the emulator lists no keys");
            let key = |key: &Value| {
                let text = |name: &str| key[name].as_str().unwrap().to_owned();
                AccountKey { name: text("keyName"), value: Secret::new(text("value")), created: None }
            };
            Ok(Arc::new(listed["keys"].as_array().ok_or_else(none)?.iter().map(key).collect()))
        })
    })
}

impl Cluster {
    /// Starts it, with what a claim of the share has made, and gives the guest what a node plugin has: a kubeconfig, a token
    /// for the broker, and the authority of its certificate.
    async fn start(cloud: &Cloud, key: &str) -> Self {
        let (server, stop, folder) = (ApiServer::start(Options::default()), CancellationToken::new(), Folder::make());
        let api = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let api_port = api.local_addr().unwrap().port();
        let service = server.router();
        tokio::spawn(async move { axum::serve(api, service).await });

        let made = rcgen::generate_simple_self_signed([format!("{BROKER}.kube-system.svc")]).unwrap();
        let files = CertificateFiles { certificate: folder.path().join("tls.crt"), key: folder.path().join("tls.key") };
        std::fs::write(&files.certificate, made.cert.pem()).unwrap();
        std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
        let serving = ServingCertificate::from_files(files).await.unwrap();
        let client = kube::Client::new(server.router(), "default");
        let (tell, mut volumes) = watch::channel(None);
        let (watching, live, stopped) = (client.clone(), Readiness::new().condition("volumes"), stop.clone());
        tokio::spawn(async move {
            lazuli_cluster::watch_share_volumes(Some(watching), DRIVER, tell, live, stopped).await;
        });
        let settings = Settings {
            client,
            driver: DRIVER.to_owned(),
            volumes: volumes.clone(),
            audience: AUDIENCE.to_owned(),
            node_plugin: ("kube-system".to_owned(), "lazuli-node".to_owned()),
            azure: Some(reader(cloud)),
        };
        let broker = router(settings, Metrics::register(&mut Registry::default()));
        let broker = Server::tls("127.0.0.1:0".parse().unwrap(), "keys", broker, serving).await.unwrap();
        let port = broker.address().port();
        tokio::spawn(broker.run(stop.clone()));

        let cluster = Self { server, stop, _folder: folder };
        let token = cluster.fill(key, port);
        let known = |volumes: &lazuli_cluster::ShareVolumes| volumes.as_ref().is_some_and(|all| !all.is_empty());
        volumes.wait_for(known).await.unwrap();
        let kubeconfig = kubeconfig(HOST, api_port);
        let files = [("kubeconfig", kubeconfig.to_string()), ("token", token), ("ca.crt", made.cert.pem())];
        for (name, content) in files {
            cloud.guest.put(&format!("/tmp/{name}"), 0o600, content.as_bytes()).await;
        }
        cluster
    }

    /// Puts in a bound claim with its volume and its Secret, a Pod on the node, the node plugin, and the broker's address. Gives
    /// the node plugin's token.
    fn fill(&self, key: &str, port: u16) -> String {
        let put = |plural: &str, namespace: &str, name: &str, spec: Value| {
            self.server.put(plural, json!({"metadata": {"name": name, "namespace": namespace}, "spec": spec})).unwrap()
        };
        let data =
            json!({"azurestorageaccountname": BASE64.encode("first"), "azurestorageaccountkey": BASE64.encode(key)});
        let secret = json!({"metadata": {"name": SECRET, "namespace": "default"}, "data": data});
        self.server.put("secrets", secret).unwrap();
        let claim = put("persistentvolumeclaims", "db", "data", json!({"volumeName": "pvc-1"}));
        let reference = json!({"namespace": "db", "name": "data", "uid": claim["metadata"]["uid"]});
        let spec = json!({"csi": {"driver": DRIVER, "volumeHandle": VOLUME}, "claimRef": reference});
        let volume = json!({"metadata": {"name": "pvc-1"}, "spec": spec, "status": {"phase": "Bound"}});
        self.server.put("persistentvolumes", volume).unwrap();
        let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
        put("pods", "db", "app", json!({"nodeName": "node-0", "volumes": volumes}));
        put("pods", "kube-system", "node", json!({"nodeName": "node-0", "serviceAccountName": "lazuli-node"}));
        let labels = json!({"kubernetes.io/service-name": BROKER});
        let slice = json!({"metadata": {"name": "k", "namespace": "kube-system", "labels": labels},
            "endpoints": [{"addresses": [HOST]}], "ports": [{"port": port}]});
        self.server.put("endpointslices", slice).unwrap();
        self.server.issue_token("kube-system", "node", &[AUDIENCE]).unwrap()
    }

    fn stored(&self) -> String {
        let secret = self.server.get("secrets", "default", SECRET).unwrap();
        let bytes = BASE64.decode(secret["data"]["azurestorageaccountkey"].as_str().unwrap()).unwrap();
        String::from_utf8(bytes).unwrap()
    }
}

#[tokio::test]
async fn after_a_rotation_new_pods_mount_with_the_key_that_the_controller_finds_and_its_secret_follows() {
    if !able() {
        return;
    }
    let cloud = Cloud::start(&["first"]).await;
    let old = cloud.key("first").await;
    let cluster = Cluster::start(&cloud, &old).await;
    let arguments = "--kubeconfig /tmp/kubeconfig --key-broker-token /tmp/token --key-broker-authority /tmp/ca.crt";
    let driver = Driver::start_in(cloud, arguments).await;
    driver.stage(to_stage(&[], &[], None)).await.unwrap();
    driver.publish("1", false, None).await.unwrap();
    assert!(driver.can_write("1").await);

    // A new key ends the sessions of the old one: what is staged is dead, and the Secret is stale.
    driver.cloud.ask("POST", "first", "/regenerateKey", json!({"keyName": "key1"}), 200).await;
    let new = driver.cloud.key("first").await;
    assert_eq!(cluster.stored(), old);
    driver.publish("2", false, None).await.unwrap();
    assert!(driver.can_write("2").await);
    assert_eq!(cluster.stored(), new);
    assert!(!driver.can_write("1").await, "what ran before is restarted by a person");
    for pod in ["1", "2"] {
        driver.unpublish(pod).await;
    }
    driver.unstage().await;

    // A share that is mounted anew, once more with a stale Secret.
    driver.cloud.ask("POST", "first", "/regenerateKey", json!({"keyName": "key1"}), 200).await;
    let newest = driver.cloud.key("first").await;
    driver.stage(to_stage(&[], &[], None)).await.unwrap();
    driver.publish("3", false, None).await.unwrap();
    assert!(driver.can_write("3").await);
    assert_eq!(cluster.stored(), newest);
    driver.unpublish("3").await;
    driver.unstage().await;
    assert_eq!(driver.mounts().await, Vec::<String>::new());
    for key in [&old, &new, &newest] {
        driver.key_is_nowhere(key).await;
    }
    driver.cloud.stop().await;
}
