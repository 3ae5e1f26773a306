//! Node and broker, over TLS on loopback, in a cluster of the small API server.

mod flood;
mod rotation;

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use kube::Client;
use lazuli_apiserver::{ApiServer, Options};
use lazuli_cluster::watch_share_volumes;
use lazuli_model::{AccountKey, Secret, fault::Code};
use lazuli_shares::secret::{Credentials, SecretAccess};
use lazuli_telemetry::{
    Readiness,
    http::{CertificateFiles, Server, ServingCertificate},
};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::{sync::watch, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    AUDIENCE, AccountReader, AzureAccount, BrokerPlace, CONNECTIONS_OF_A_SOURCE, KeyError, Metrics, NodeKeys, Settings,
    router,
};

const DRIVER: &str = "file.csi.azure.com";
const KEY: &str = "c2VjcmV0LWtleS1vZi1mMQ==";
const AZURE_KEY: &str = "a2V5LW9mLWYyLWluLUF6dXJl";
/// The key of f1 in Azure, after a rotation.
const NEW_KEY: &str = "cm90YXRlZC1rZXktb2YtZjE=";
const VOLUME: &str = "g#f1#pvc-1###db";

/// An authority and a certificate that it has signed.
struct Authority {
    params: rcgen::CertificateParams,
    key: rcgen::KeyPair,
}

impl Authority {
    fn make() -> Self {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        Self { params, key: rcgen::KeyPair::generate().unwrap() }
    }

    fn pem(&self) -> String {
        self.params.self_signed(&self.key).unwrap().pem()
    }

    /// Certificate and key for a name, in PEM.
    fn sign(&self, name: &str) -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let issuer = rcgen::Issuer::from_params(&self.params, &self.key);
        let certificate = rcgen::CertificateParams::new([name.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

const NAME: &str = "lazuli-key-broker.kube-system.svc";

/// A cluster with a claim of a share in Secret `db/azure-storage-account-f1-secret`, a Pod on node n1 that uses it, the node
/// plugin on n1 and n2, and a replica of the controller.
struct Cluster {
    server: ApiServer,
    folder: tempfile::TempDir,
    stop: CancellationToken,
    volumes: watch::Receiver<lazuli_cluster::ShareVolumes>,
    /// What Azure was asked for.
    asked: Arc<Mutex<Vec<AzureAccount>>>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Cluster {
    async fn start() -> Self {
        let server = ApiServer::start(Options::default());
        let client = Client::new(server.router(), "default");
        let (tell, volumes) = watch::channel(None);
        let stop = CancellationToken::new();
        let (live, stopped) = (Readiness::new().condition("volumes"), stop.clone());
        tokio::spawn(async move { watch_share_volumes(Some(client), DRIVER, tell, live, stopped).await });
        let folder = tempfile::tempdir().unwrap();
        let cluster = Self { server, folder, stop, volumes, asked: Arc::default() };
        let secret = json!({"azurestorageaccountname": encode("f1"), "azurestorageaccountkey": encode(KEY)});
        cluster.secret("azure-storage-account-f1-secret", secret);
        cluster.volume("pv-1", "data", VOLUME, json!({})).await;
        cluster.pod("db", "app", "n1", "app", json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]));
        for node in ["n1", "n2"] {
            cluster.pod("kube-system", &format!("csi-node-{node}"), node, "csi-node", json!([]));
            cluster.token(
                &cluster.server.issue_token("kube-system", &format!("csi-node-{node}"), &[AUDIENCE]).unwrap(),
                node,
            );
        }
        cluster
    }

    fn client(&self) -> Client {
        Client::new(self.server.router(), "default")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn secret(&self, name: &str, data: Value) {
        self.server.put("secrets", json!({"metadata": {"name": name, "namespace": "db"}, "data": data})).unwrap();
    }

    fn pod(&self, namespace: &str, name: &str, node: &str, account: &str, volumes: Value) {
        let spec = json!({"nodeName": node, "serviceAccountName": account, "volumes": volumes});
        let pod =
            json!({"metadata": {"name": name, "namespace": namespace}, "spec": spec, "status": {"phase": "Running"}});
        self.server.put("pods", pod).unwrap();
    }

    /// A volume that is bound to a claim of namespace `db`, once the replicas know it.
    async fn volume(&self, name: &str, claim: &str, id: &str, attributes: Value) {
        let of_claim = json!({"metadata": {"name": claim, "namespace": "db"}, "spec": {"volumeName": name}});
        let of_claim = self.server.put("persistentvolumeclaims", of_claim).unwrap();
        let spec = json!({"csi": {"driver": DRIVER, "volumeHandle": id, "volumeAttributes": attributes},
            "claimRef": {"namespace": "db", "name": claim, "uid": of_claim["metadata"]["uid"]}});
        let object = json!({"metadata": {"name": name}, "spec": spec, "status": {"phase": "Bound"}});
        self.server.put("persistentvolumes", object).unwrap();
        let mut volumes = self.volumes.clone();
        let known = volumes.wait_for(|known| {
            known
                .as_ref()
                .is_some_and(|all| all.iter().any(|one| one.name == name && one.volume_id.as_deref() == Some(id)))
        });
        timeout(Duration::from_secs(10), known).await.unwrap().unwrap();
    }

    fn token(&self, token: &str, node: &str) {
        std::fs::write(self.path(&format!("token-{node}")), format!("{token}\n")).unwrap();
    }

    /// The addresses of the broker's Service.
    fn endpoints(&self, replicas: &[SocketAddr]) {
        // A slice has one port for all of its addresses.
        for (at, replica) in replicas.iter().enumerate() {
            let metadata = json!({"name": format!("keys-{at}"), "namespace": "kube-system",
                "labels": {"kubernetes.io/service-name": "lazuli-key-broker"}});
            let slice = json!({"metadata": metadata, "addressType": "IPv4", "ports": [{"port": replica.port()}],
                "endpoints": [{"addresses": [replica.ip().to_string()]}]});
            self.server.put("endpointslices", slice).unwrap();
        }
    }

    fn settings(&self) -> Settings {
        self.settings_with(self.client())
    }

    fn settings_with(&self, client: Client) -> Settings {
        let asked = self.asked.clone();
        let azure = AccountReader::new(move |account| {
            asked.lock().unwrap().push(account.clone());
            Box::pin(async move {
                let key = |key: &str| AccountKey { name: "key1".into(), value: Secret::new(key), created: None };
                match account.account.as_str() {
                    "f1" => Ok(Arc::new(vec![key(NEW_KEY)])),
                    "f2" => Ok(Arc::new(vec![key(AZURE_KEY)])),
                    "slow" => std::future::pending().await,
                    _ => Err(KeyError::new(Code::PermissionDenied, "the identity may not list keys")),
                }
            })
        });
        Settings {
            client,
            driver: DRIVER.to_owned(),
            volumes: self.volumes.clone(),
            audience: AUDIENCE.to_owned(),
            node_plugin: ("kube-system".to_owned(), "csi-node".to_owned()),
            azure: Some(azure),
        }
    }

    /// Starts a replica whose certificate is for `name`, and gives its address.
    async fn replica(&self, authority: &Authority, name: &str) -> SocketAddr {
        self.replica_with(authority, name, self.client()).await
    }

    /// The same, with a client of its own for the cluster.
    async fn replica_with(&self, authority: &Authority, name: &str, client: Client) -> SocketAddr {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let (certificate, key) = authority.sign(name);
        let files = CertificateFiles {
            certificate: self.path(&format!("tls-{number}.crt")),
            key: self.path(&format!("tls-{number}.key")),
        };
        std::fs::write(&files.certificate, certificate).unwrap();
        std::fs::write(&files.key, key).unwrap();
        let serving = ServingCertificate::from_files(files).await.unwrap();
        let router = router(self.settings_with(client), Metrics::register(&mut Registry::default()));
        let server = Server::tls("127.0.0.1:0".parse().unwrap(), "keys", router, serving).await.unwrap();
        let server = server.with_most_of_one_source(CONNECTIONS_OF_A_SOURCE);
        let address = server.address();
        tokio::spawn(server.run(self.stop.clone()));
        address
    }

    /// A replica with the authority that nodes trust.
    async fn trusted_replica(&self) -> SocketAddr {
        let authority = Authority::make();
        std::fs::write(self.path("ca.crt"), authority.pem()).unwrap();
        let replica = self.replica(&authority, NAME).await;
        self.endpoints(&[replica]);
        replica
    }

    fn node(&self, node: &str) -> NodeKeys {
        let place = BrokerPlace {
            namespace: "kube-system".to_owned(),
            service: "lazuli-key-broker".to_owned(),
            token: self.path(&format!("token-{node}")),
            authority: self.path("ca.crt"),
        };
        NodeKeys::new(SecretAccess::Broker, self.client(), place)
    }

    async fn key(&self, node: &str, volume: &str) -> Result<Credentials, KeyError> {
        self.node(node).key(volume, &BTreeMap::new(), None).await
    }

    /// The key of a volume after the file server has refused one.
    async fn another(&self, node: &str, volume: &str, refused: &str) -> Result<Credentials, KeyError> {
        self.node(node).key(volume, &BTreeMap::new(), Some(&Secret::new(refused))).await
    }

    /// The key in a Secret of namespace db, as it is written there.
    fn stored(&self, name: &str) -> Value {
        self.server.get("secrets", "db", name).unwrap()["data"]["azurestorageaccountkey"].clone()
    }

    async fn refused(&self, node: &str, volume: &str) -> (Code, String) {
        let error = self.key(node, volume).await.unwrap_err();
        (error.code, error.message)
    }
}

/// Base64 of a text.
fn encode(text: &str) -> Value {
    serde_json::to_value(kube_bytes(text)).unwrap()
}

fn kube_bytes(text: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in text.as_bytes().chunks(3) {
        let bits = three.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for at in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * at) & 63) as usize] as char;
            out.push(if at <= three.len() { letter } else { '=' });
        }
    }
    out
}

fn expected(account: &str, key: &str) -> Result<Credentials, KeyError> {
    Ok(Credentials { account: account.to_owned(), key: Secret::new(key) })
}

#[tokio::test]
async fn a_node_gets_the_key_of_a_volume_that_its_pod_uses_and_no_other_node_does() {
    let cluster = Cluster::start().await;
    cluster.trusted_replica().await;
    assert_eq!(cluster.key("n1", VOLUME).await, expected("f1", KEY));
    assert!(cluster.asked.lock().unwrap().is_empty(), "Azure is not asked where there is a Secret");
    let (code, message) = cluster.refused("n2", VOLUME).await;
    assert_eq!((code, &*message), (Code::PermissionDenied, "no Pod on node n2 uses a claim of this volume"));
    // A Secret that was corrected counts at once, and a Pod that has ended gets nothing.
    cluster.secret(
        "azure-storage-account-f1-secret",
        json!({"azurestorageaccountname": encode("f1"), "azurestorageaccountkey": encode("bmV3")}),
    );
    assert_eq!(cluster.key("n1", VOLUME).await, expected("f1", "bmV3"));
    cluster.server.delete("pods", "db", "app").unwrap();
    assert_eq!(cluster.refused("n1", VOLUME).await.0, Code::PermissionDenied);
}

#[tokio::test]
async fn a_token_of_another_audience_account_or_pod_gets_no_key() {
    let cluster = Cluster::start().await;
    cluster.trusted_replica().await;
    let issue = |namespace: &str, pod: &str, audiences: &[&str]| {
        cluster.token(&cluster.server.issue_token(namespace, pod, audiences).unwrap(), "n1");
    };
    for audiences in [&[][..], &["lazuli-other"]] {
        issue("kube-system", "csi-node-n1", audiences);
        let (code, message) = cluster.refused("n1", VOLUME).await;
        assert_eq!(code, Code::Unauthenticated, "{message}");
        assert!(message.contains("for this controller"), "{message}");
    }
    // The application itself, on the right node and with the right audience.
    issue("db", "app", &[AUDIENCE]);
    let (code, message) = cluster.refused("n1", VOLUME).await;
    assert_eq!(code, Code::PermissionDenied);
    assert!(message.contains("ServiceAccount db/app is not that of the node plugin"), "{message}");
    // A Pod of the node plugin that is on no node, and one that is gone.
    cluster.pod("kube-system", "pending", "", "csi-node", json!([]));
    issue("kube-system", "pending", &[AUDIENCE]);
    assert!(cluster.refused("n1", VOLUME).await.1.contains("not bound to a node"));
    issue("kube-system", "csi-node-n1", &[AUDIENCE]);
    assert_eq!(cluster.key("n1", VOLUME).await, expected("f1", KEY));
    cluster.server.delete("pods", "kube-system", "csi-node-n1").unwrap();
    assert_eq!(cluster.refused("n1", VOLUME).await.0, Code::Unauthenticated);
    for (token, words) in [("", "holds no token"), ("a\nb", "holds no token")] {
        cluster.token(token, "n1");
        let (code, message) = cluster.refused("n1", VOLUME).await;
        assert_eq!(code, Code::FailedPrecondition);
        assert!(message.contains(words), "{message}");
    }
    std::fs::remove_file(cluster.path("token-n1")).unwrap();
    assert!(cluster.refused("n1", VOLUME).await.1.contains("token-n1 cannot be read"));
}

#[tokio::test]
async fn a_volume_of_another_driver_or_another_claim_gets_no_key() {
    let cluster = Cluster::start().await;
    cluster.trusted_replica().await;
    let put = |driver: &str, uid: &Value| {
        let spec = json!({"csi": {"driver": driver, "volumeHandle": VOLUME}, "claimRef": {"namespace": "db", "name": "data", "uid": uid}});
        cluster.server.put("persistentvolumes", json!({"metadata": {"name": "pv-1"}, "spec": spec})).unwrap();
    };
    let claim = cluster.server.get("persistentvolumeclaims", "db", "data").unwrap();
    let uid = claim["metadata"]["uid"].clone();
    put("disk.csi.azure.com", &uid);
    assert_eq!(cluster.refused("n1", VOLUME).await.1, "no bound PersistentVolume of this driver has this volume id");
    // The claim was deleted and made anew: the volume is released, and the new claim has another.
    put(DRIVER, &json!("of-the-claim-before"));
    let mut volumes = cluster.volumes.clone();
    let back =
        volumes.wait_for(|known| known.as_ref().is_some_and(|all| all.iter().any(|one| one.volume_id.is_some())));
    timeout(Duration::from_secs(10), back).await.unwrap().unwrap();
    assert_eq!(cluster.refused("n1", VOLUME).await.0, Code::PermissionDenied);
    put(DRIVER, &uid);
    assert_eq!(cluster.key("n1", VOLUME).await, expected("f1", KEY));
}

#[tokio::test]
async fn volume_ids_that_mean_harm_find_nothing() {
    let cluster = Cluster::start().await;
    cluster.trusted_replica().await;
    let long = "x".repeat(4_000);
    let huge = "x".repeat(100_000);
    for id in [
        "",
        "#",
        "../../../secrets/admin",
        "g#f1#pvc-1###db#",
        "G#F1#PVC-1###DB",
        "g#f1#pvc-1###kube-system",
        "\u{0}\"\\\n",
        &long,
    ] {
        let (code, message) = cluster.refused("n1", id).await;
        assert_eq!(code, Code::PermissionDenied, "{id:?}: {message}");
    }
    assert_eq!(cluster.refused("n1", &huge).await.0, Code::Unavailable);
    assert_eq!(cluster.key("n1", VOLUME).await, expected("f1", KEY));
}

#[tokio::test]
async fn where_there_is_no_secret_azure_is_asked_if_the_volume_says_so() {
    let cluster = Cluster::start().await;
    cluster.trusted_replica().await;
    let volumes = |claim: &str| json!([{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]);
    for (name, id, attributes) in [
        ("azure", "g2#f2#share###db#sub2", json!({})),
        ("only-secret", "g2#f2#share-2###db", json!({"getAccountKeyFromSecret": "true"})),
        ("denied", "g2#f3#share###db", json!({})),
        ("nameless", "any-text", json!({})),
        ("twice", "other-text", json!({"secretName": "a", "secretname": "b"})),
        ("no-key", "third-text", json!({"secretName": "plain", "secretNamespace": "db"})),
    ] {
        cluster.volume(name, name, id, attributes).await;
        cluster.pod("db", name, "n1", "app", volumes(name));
    }
    cluster.secret("plain", json!({"password": encode("hunter2")}));
    assert_eq!(cluster.key("n1", "g2#f2#share###db#sub2").await, expected("f2", AZURE_KEY));
    let asked = AzureAccount {
        subscription: Some("sub2".to_owned()),
        resource_group: Some("g2".to_owned()),
        account: "f2".to_owned(),
    };
    assert_eq!(*cluster.asked.lock().unwrap(), [asked]);
    for (id, code, words) in [
        ("g2#f2#share-2###db", Code::FailedPrecondition, "Secret db/azure-storage-account-f2-secret does not exist"),
        ("g2#f3#share###db", Code::PermissionDenied, "may not list keys"),
        ("any-text", Code::FailedPrecondition, "names neither a Secret nor a storage account"),
        ("other-text", Code::FailedPrecondition, "PersistentVolume twice does not say where its key is"),
        (
            "third-text",
            Code::FailedPrecondition,
            "Secret db/plain cannot be used: the secret has no azurestorageaccountname",
        ),
    ] {
        let (got, message) = cluster.refused("n1", id).await;
        assert_eq!(got, code, "{id}: {message}");
        assert!(message.contains(words) && !message.contains("hunter2"), "{id}: {message}");
    }
}

#[tokio::test]
async fn a_dead_replica_is_passed_over_and_without_any_it_is_said_what_to_do() {
    let cluster = Cluster::start().await;
    let alive = cluster.trusted_replica().await;
    // A port that nobody has any more, and one whose listener says nothing by TLS.
    let dead = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let at_dead = dead.local_addr().unwrap();
    drop(dead);
    cluster.endpoints(&[at_dead, alive]);
    let node = cluster.node("n1");
    for _ in 0..8 {
        assert_eq!(node.key(VOLUME, &BTreeMap::new(), None).await, expected("f1", KEY));
    }
    cluster.endpoints(&[at_dead, at_dead]);
    let error = node.key(VOLUME, &BTreeMap::new(), None).await.unwrap_err();
    assert_eq!(error.code, Code::Unavailable);
    assert!(error.message.contains(&format!("{at_dead}: no connection")), "{error}");
    assert!(error.message.contains("see that the Pods behind Service kube-system/lazuli-key-broker run"), "{error}");
    for name in ["keys-0", "keys-1"] {
        cluster.server.delete("endpointslices", "kube-system", name).unwrap();
    }
    let error = node.key(VOLUME, &BTreeMap::new(), None).await.unwrap_err();
    assert!(error.code == Code::Unavailable && error.message.contains("(it has none)"), "{error}");
}

#[tokio::test]
async fn a_replica_that_does_not_know_the_volumes_yet_leaves_the_answer_to_another() {
    let cluster = Cluster::start().await;
    let authority = Authority::make();
    std::fs::write(cluster.path("ca.crt"), authority.pem()).unwrap();
    let (_tell, cold) = watch::channel(None);
    let cold = Cluster {
        volumes: cold,
        server: cluster.server.clone(),
        folder: tempfile::tempdir().unwrap(),
        stop: CancellationToken::new(),
        asked: Arc::default(),
    };
    let starting = cold.replica(&authority, NAME).await;
    cluster.endpoints(&[starting]);
    let (code, message) = cluster.refused("n1", VOLUME).await;
    assert_eq!(code, Code::Unavailable);
    assert!(message.contains("could not be read; try again"), "{message}");
    cluster.endpoints(&[starting, cluster.replica(&authority, NAME).await]);
    for _ in 0..4 {
        assert_eq!(cluster.key("n1", VOLUME).await, expected("f1", KEY));
    }
}

#[tokio::test]
async fn a_certificate_counts_for_the_name_of_the_service_by_an_authority_of_the_file_as_it_is_now() {
    let cluster = Cluster::start().await;
    let (old, new) = (Authority::make(), Authority::make());
    let trust = |text: &str| std::fs::write(cluster.path("ca.crt"), text).unwrap();
    // The token goes to nobody with a certificate for another name, whoever has signed it.
    cluster.endpoints(&[cluster.replica(&old, "lazuli-webhook.kube-system.svc").await]);
    trust(&old.pem());
    let (code, message) = cluster.refused("n1", VOLUME).await;
    assert!(code == Code::Unavailable && message.contains("not its certificate"), "{message}");
    let before = cluster.replica(&old, NAME).await;
    cluster.endpoints(&[before]);
    let node = cluster.node("n1");
    let key = async || node.key(VOLUME, &BTreeMap::new(), None).await;
    assert_eq!(key().await, expected("f1", KEY));
    // The authority is renewed: first both count, then the certificate changes, then the old one goes.
    trust(&format!("{}{}", old.pem(), new.pem()));
    assert_eq!(key().await, expected("f1", KEY));
    let after = cluster.replica(&new, NAME).await;
    cluster.endpoints(&[after]);
    assert_eq!(key().await, expected("f1", KEY));
    trust(&new.pem());
    assert_eq!(key().await, expected("f1", KEY));
    cluster.endpoints(&[before]);
    assert_eq!(key().await.unwrap_err().code, Code::Unavailable);
    for (text, words) in [
        ("", "holds no authority"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "holds no authority"),
    ] {
        trust(text);
        let error = key().await.unwrap_err();
        assert!(error.code == Code::FailedPrecondition && error.message.contains(words), "{error}");
    }
    std::fs::remove_file(cluster.path("ca.crt")).unwrap();
    assert!(key().await.unwrap_err().message.contains("ca.crt cannot be read"));
}

#[tokio::test]
async fn a_node_that_asks_without_end_is_slowed_down_alone() {
    let cluster = Cluster::start().await;
    cluster.trusted_replica().await;
    let mut refused = 0;
    for _ in 0..80 {
        match cluster.key("n2", VOLUME).await.unwrap_err().code {
            Code::ResourceExhausted => refused += 1,
            code => assert_eq!(code, Code::PermissionDenied),
        }
    }
    assert!(refused > 0);
    assert_eq!(cluster.key("n1", VOLUME).await, expected("f1", KEY));
}

#[tokio::test]
async fn nodes_read_secrets_themselves_where_the_operator_has_chosen_that() {
    let cluster = Cluster::start().await;
    let place =
        BrokerPlace { namespace: "ns".into(), service: "s".into(), token: "/none".into(), authority: "/none".into() };
    let node = |access: SecretAccess| NodeKeys::new(access, cluster.client(), place.clone());
    let namespaces = |names: &[&str]| SecretAccess::Namespaces(names.iter().map(|name| (*name).to_owned()).collect());
    let none = BTreeMap::new();
    assert_eq!(node(SecretAccess::Cluster).key(VOLUME, &none, None).await, expected("f1", KEY));
    assert_eq!(node(namespaces(&["db", "web"])).key(VOLUME, &none, None).await, expected("f1", KEY));
    let error = node(namespaces(&["web"])).key(VOLUME, &none, None).await.unwrap_err();
    assert!(error.code == Code::PermissionDenied && error.message.contains("namespace db"), "{error}");
    let context = BTreeMap::from([("secretNamespace".to_owned(), "web".to_owned())]);
    let error = node(namespaces(&["web"])).key(VOLUME, &context, None).await.unwrap_err();
    assert_eq!(error.code, Code::FailedPrecondition);
    assert!(error.message.contains("Secret web/azure-storage-account-f1-secret does not exist, and a node"), "{error}");
    let error = node(SecretAccess::Cluster).key("text", &none, None).await.unwrap_err();
    assert!(error.message.contains("names neither"), "{error}");
}

/// All that is logged, at every level and by every crate.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn neither_key_nor_token_is_in_a_log_an_error_or_in_what_debug_shows() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_span_events(tracing_subscriber::fmt::format::FmtSpan::FULL)
        .with_writer(move || writer.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let cluster = Cluster::start().await;
    cluster.trusted_replica().await;
    let token = std::fs::read_to_string(cluster.path("token-n1")).unwrap().trim().to_owned();
    assert_eq!(cluster.key("n1", VOLUME).await, expected("f1", KEY));
    // Tests beside this one may have met the broker's log lines first, while nobody listened to any.
    tracing::callsite::rebuild_interest_cache();
    let granted = cluster.key("n1", VOLUME).await;
    assert_eq!(granted, expected("f1", KEY));
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "azure"}}]);
    cluster.volume("azure", "azure", "g2#f2#share###db", json!({})).await;
    cluster.pod("db", "azure", "n1", "app", volumes);
    assert_eq!(cluster.key("n1", "g2#f2#share###db").await, expected("f2", AZURE_KEY));
    assert_eq!(cluster.another("n1", VOLUME, KEY).await, expected("f1", NEW_KEY));
    let refusals = [cluster.refused("n2", VOLUME).await, cluster.refused("n1", "other").await];
    let broken = json!({"azurestorageaccountname": encode("f1"), "azurestorageaccountkey": encode(KEY), "accountkey": encode("eA==")});
    cluster.secret("azure-storage-account-f1-secret", broken);
    let ambiguous = cluster.refused("n1", VOLUME).await;
    // A person has taken the one for the other.
    let swapped = json!({"azurestorageaccountname": encode(KEY), "azurestorageaccountkey": encode("f1")});
    cluster.secret("azure-storage-account-f1-secret", swapped);
    let mistaken = cluster.refused("n1", VOLUME).await;
    let of_others = cluster.server.issue_token("db", "app", &[AUDIENCE]).unwrap();
    cluster.token(&of_others, "n1");
    let of_app = cluster.refused("n1", VOLUME).await;
    let node = cluster.node("n1");
    let shown =
        format!("{granted:?} {refusals:?} {ambiguous:?} {mistaken:?} {of_app:?} {node:?} {:?}", cluster.settings());
    let logged = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(logged.contains("a node gets the key of a storage account") && logged.contains("TRACE"), "{logged}");
    for hidden in [KEY, AZURE_KEY, NEW_KEY, &kube_bytes(NEW_KEY), &kube_bytes(KEY), &token, &of_others] {
        assert!(!logged.contains(hidden), "{hidden} is logged: {logged}");
        assert!(!shown.contains(hidden), "{hidden} is shown: {shown}");
    }
}
