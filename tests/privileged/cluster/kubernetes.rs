//! A Kubernetes cluster on this machine: etcd, the API server, the controllers and the scheduler, and per node a kubelet
//! that mounts volumes and runs no container. All are built from their own Go modules.

use std::{
    collections::BTreeMap,
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use kube::Client;
use serde_json::{Value, json};

use super::super::{
    cloud::{NODES, text, words},
    process::{Folder, PATIENCE, Process, run},
};

/// The user of the test and of Kubernetes' own parts.
const ADMIN: (&str, &str) = ("admin", "admin-token");
/// The kinds of the chart's objects that the cluster is given. Of its pods only the programs run, as processes.
const OF_THE_CHART: [&str; 8] = [
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "CSIDriver",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
];
/// The controllers that volumes need, and those without which no node becomes ready.
const CONTROLLERS: &str = "persistentvolume-binder-controller,persistentvolume-attach-detach-controller,\
    persistentvolume-expander-controller,persistentvolume-protection-controller,\
    persistentvolumeclaim-protection-controller,node-lifecycle-controller,pod-garbage-collector-controller";
/// How often something in the cluster is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Where the Go programs are; without them these tests cannot run.
pub(super) fn tools() -> Option<PathBuf> {
    std::env::var_os("LAZULI_CLUSTER_TOOLS").map(PathBuf::from)
}

/// The cluster. The processes end with it, the kubelets first.
pub(super) struct Kubernetes {
    kubelets: Vec<Process>,
    _scheduler: Process,
    _controllers: Process,
    api_server: Process,
    _etcd: Process,
    folder: PathBuf,
    tools: PathBuf,
    client: Client,
    server: String,
}

impl Kubernetes {
    pub(super) async fn start(tools: &Path, folder: &Folder) -> Self {
        let folder = folder.path().to_owned();
        let at = |name: &str| text(&folder.join(name));
        let kubernetes = text(&tools.join("kubernetes"));
        let [etcd_port, peer_port, api_port] = [(); 3].map(|()| free_port());

        let (clients, peers) = (format!("http://127.0.0.1:{etcd_port}"), format!("http://127.0.0.1:{peer_port}"));
        let etcd = program(
            tools,
            &folder,
            "etcd",
            "etcd",
            &[
                ("--data-dir", &at("etcd")),
                ("--listen-client-urls", &clients),
                ("--advertise-client-urls", &clients),
                ("--listen-peer-urls", &peers),
                ("--initial-advertise-peer-urls", &peers),
                ("--initial-cluster", &format!("default={peers}")),
                // Nothing here outlives the test.
                ("--unsafe-no-fsync", "true"),
                ("--log-level", "warn"),
            ],
        );

        run(&kubernetes, &["key", &at("sa.key")]);
        let (name, token) = ADMIN;
        fs::write(folder.join("tokens.csv"), format!("{token},{name},{name},system:masters")).unwrap();
        let mut api_server = program(
            tools,
            &folder,
            "kubernetes",
            "kube-apiserver",
            &[
                ("--etcd-servers", &clients),
                ("--bind-address", "127.0.0.1"),
                ("--advertise-address", "127.0.0.1"),
                ("--endpoint-reconciler-type", "none"),
                ("--secure-port", &api_port.to_string()),
                ("--cert-dir", &at("certificates")),
                ("--service-account-issuer", "https://kubernetes.default.svc"),
                ("--service-account-key-file", &at("sa.key")),
                ("--service-account-signing-key-file", &at("sa.key")),
                ("--service-cluster-ip-range", "10.0.0.0/24"),
                ("--token-auth-file", &at("tokens.csv")),
                ("--authorization-mode", "RBAC"),
                // Nobody makes the accounts that it would ask for.
                ("--disable-admission-plugins", "ServiceAccount"),
            ],
        );
        let authority = folder.join("certificates/apiserver.crt");
        until("the API server's certificate", || {
            api_server.must_run();
            authority.exists()
        })
        .await;
        let server = format!("https://127.0.0.1:{api_port}");
        write_kubeconfig(&folder, &server, name, token);
        let admin = at("admin.kubeconfig");
        let client = lazuli_cluster::connect(Some(Path::new(&admin)), &BTreeMap::new()).await.unwrap().unwrap();
        let ready =
            || async { client.request_text(http::Request::get("/readyz").body(Vec::new()).unwrap()).await.is_ok() };
        let began = Instant::now();
        while !ready().await {
            api_server.must_run();
            assert!(began.elapsed() < PATIENCE, "the API server does not become ready");
            tokio::time::sleep(LOOK).await;
        }
        let controllers = program(
            tools,
            &folder,
            "kubernetes",
            "kube-controller-manager",
            &[
                ("--kubeconfig", &admin),
                ("--controllers", CONTROLLERS),
                ("--leader-elect", "false"),
                ("--secure-port", "0"),
            ],
        );
        let scheduler = program(
            tools,
            &folder,
            "kubernetes",
            "kube-scheduler",
            &[("--kubeconfig", &admin), ("--leader-elect", "false"), ("--secure-port", "0")],
        );
        let kubelets = NODES.map(|node| {
            let root = folder.join(format!("kubelet-{node}"));
            fs::create_dir_all(root.join("plugins_registry")).unwrap();
            program(
                tools,
                &folder,
                "kubernetes",
                "kubelet",
                &[
                    ("--kubeconfig", &admin),
                    ("--node", node),
                    ("--root-dir", &text(&root)),
                    ("--port", &free_port().to_string()),
                ],
            )
        });
        Self {
            kubelets: kubelets.into(),
            _scheduler: scheduler,
            _controllers: controllers,
            api_server,
            _etcd: etcd,
            tools: tools.to_owned(),
            folder,
            client,
            server,
        }
    }

    /// Makes what the chart says of accounts, rights, policies and the driver.
    pub(super) async fn install_chart(&mut self) {
        self.until("the nodes' namespace", "/api/v1/namespaces/kube-node-lease", |found| found.is_some()).await;
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/manifests/lazuli.yaml");
        let text = fs::read_to_string(file).unwrap();
        for document in text.split("\n---\n") {
            let object: Value = serde_saphyr::from_str(document.trim_start_matches("---\n")).unwrap();
            if object["kind"].as_str().is_some_and(|kind| OF_THE_CHART.contains(&kind)) {
                self.create(&collection(&object), object).await;
            }
        }
    }

    /// A kubeconfig with a token of one of the chart's accounts; with a node, one that is bound to it as that of a pod
    /// there is.
    pub(super) async fn account(&self, account: &str, node: Option<&str>) -> String {
        let bound = match node {
            Some(node) => {
                let node = self.get(&format!("/api/v1/nodes/{node}")).await.unwrap();
                json!({"kind": "Node", "apiVersion": "v1", "name": node["metadata"]["name"], "uid": node["metadata"]["uid"]})
            }
            None => Value::Null,
        };
        let path = format!("/api/v1/namespaces/kube-system/serviceaccounts/{account}/token");
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": [], "expirationSeconds": 7200, "boundObjectRef": bound}});
        let answer = self.create(&path, request).await;
        let name = node.map_or(account.to_owned(), |node| format!("{account}-{node}"));
        write_kubeconfig(&self.folder, &self.server, &name, answer["status"]["token"].as_str().unwrap());
        self.kubeconfig(&name)
    }

    /// The code of the refusal of a change that the user of a kubeconfig asks for; `None` when it was made.
    pub(super) async fn refusal_of_patch(&self, kubeconfig: &str, path: &str, change: &Value) -> Option<(u16, String)> {
        let client = lazuli_cluster::connect(Some(Path::new(kubeconfig)), &BTreeMap::new()).await.unwrap().unwrap();
        let request = http::Request::patch(path).header("content-type", "application/merge-patch+json");
        match client.request::<Value>(request.body(change.to_string().into_bytes()).unwrap()).await {
            Ok(_) => None,
            Err(kube::Error::Api(status)) => Some((status.code, status.message.clone())),
            Err(error) => panic!("{path}: {error}"),
        }
    }

    /// One of the sidecars, beside the driver at this socket and with its account.
    pub(super) fn sidecar(&self, name: &str, socket: &Path, flags: &[(&str, &str)]) -> Process {
        let address = format!("unix://{}", socket.display());
        let kubeconfig = self.kubeconfig("lazuli-controller");
        let mut all = vec![("--csi-address", address.as_str()), ("--kubeconfig", &kubeconfig), ("--v", "2")];
        all.extend(flags);
        program(&self.tools, &self.folder, name, name, &all)
    }

    pub(super) fn kubeconfig(&self, user: &str) -> String {
        text(&self.folder.join(format!("{user}.kubeconfig")))
    }

    async fn send(&self, method: &str, path: &str, kind: &str, body: Option<Value>) -> Result<Value, kube::Error> {
        let bytes = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request = http::Request::builder().method(method).uri(path).header("content-type", kind).body(bytes);
        self.client.request(request.unwrap()).await
    }

    /// Makes objects of any kind.
    pub(super) async fn create(&self, path: &str, object: Value) -> Value {
        self.send("POST", path, "application/json", Some(object)).await.unwrap()
    }

    pub(super) async fn patch(&self, path: &str, change: Value) -> Value {
        self.send("PATCH", path, "application/merge-patch+json", Some(change)).await.unwrap()
    }

    /// Deletes an object, at once where it has a time of grace.
    pub(super) async fn delete(&self, path: &str) {
        self.send("DELETE", path, "application/json", None).await.unwrap();
    }

    /// An object, or a list; `None` when there is none.
    pub(super) async fn get(&self, path: &str) -> Option<Value> {
        match self.send("GET", path, "application/json", None).await {
            Ok(object) => Some(object),
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            Err(error) => panic!("{path}: {error}"),
        }
    }

    pub(super) async fn list(&self, path: &str) -> Vec<Value> {
        self.get(path).await.and_then(|list| list["items"].as_array().cloned()).unwrap_or_default()
    }

    /// Waits until an object is as it should be, and gives it. `None` stands for an object that is not there.
    pub(super) async fn until(&mut self, what: &str, path: &str, is: impl Fn(Option<&Value>) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let found = self.get(path).await;
            if is(found.as_ref()) {
                return found.unwrap_or_default();
            }
            self.api_server.must_run();
            self.kubelets.iter_mut().for_each(Process::must_run);
            assert!(began.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}; {path} is {found:#?}");
            tokio::time::sleep(LOOK).await;
        }
    }
}

fn write_kubeconfig(folder: &Path, server: &str, user: &str, token: &str) {
    let authority = folder.join("certificates/apiserver.crt");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": server, "certificate-authority": authority}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
    });
    fs::write(folder.join(format!("{user}.kubeconfig")), config.to_string()).unwrap();
}

/// The path of the collection that an object belongs to.
fn collection(object: &Value) -> String {
    let version = object["apiVersion"].as_str().unwrap();
    let root = if version.contains('/') { "/apis" } else { "/api" };
    let namespace =
        object["metadata"]["namespace"].as_str().map_or(String::new(), |name| format!("/namespaces/{name}"));
    let kind = object["kind"].as_str().unwrap().to_lowercase();
    let plural = kind.strip_suffix('y').map_or(format!("{kind}s"), |stem| format!("{stem}ies"));
    format!("{root}/{version}{namespace}/{plural}")
}

/// Waits until something holds.
pub(super) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(LOOK).await;
    }
}

fn program(tools: &Path, folder: &Path, program: &str, part: &str, flags: &[(&str, &str)]) -> Process {
    let mut arguments = if program == part { Vec::new() } else { words(&[part]) };
    arguments.extend(flags.iter().map(|(name, value)| format!("{name}={value}")));
    let log = format!("{part}-{}.log", fs::read_dir(folder).unwrap().count());
    Process::of_program(&tools.join(program), part, &folder.join(log), &arguments)
}

/// A port that nobody has now.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
