//! A Kubernetes cluster on this machine, in a network of its own: etcd, the API server, the controllers and the scheduler,
//! and nodes whose containers are processes. All are built from Go modules of their own.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::Write as _,
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube::Client;
use nix::sched::{CloneFlags, unshare};
use serde_json::{Value, json};

use crate::{
    chart,
    cluster::{Report, Settings},
    emulator::{MACHINES, NODES, text, words},
    node,
    process::{Folder, PATIENCE, Process, run},
};

/// The user of the test and of Kubernetes' own parts but for the kubelets.
const ADMIN: &str = "admin";
/// Where everything that is no node serves: the bridge of the cluster's network, and the first address of its services,
/// which is the API server's.
pub const GATEWAY: &str = "10.213.0.1";
/// The controllers that volumes and the chart's workloads need, and those without which no node becomes ready.
const CONTROLLERS: [&str; 15] = [
    "persistentvolume-binder-controller",
    "persistentvolume-attach-detach-controller",
    "persistentvolume-expander-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "node-lifecycle-controller",
    "pod-garbage-collector-controller",
    "deployment-controller",
    "replicaset-controller",
    "daemonset-controller",
    "disruption-controller",
    "garbage-collector-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "root-ca-certificate-publisher-controller",
];
/// What a cloud controller manager needs beside them: ranges for the pods of nodes, what a Service is made of, and what
/// moves pods off a node that is out of service.
const EXTERNAL_CONTROLLERS: [&str; 3] =
    ["node-ipam-controller", "endpointslice-controller", "taint-eviction-controller"];
/// The ranges of nodes. The node's runtime gives its pods other addresses: no packet takes a route of the cloud.
const PODS: &str = "10.244.0.0/16";
/// What the API server notes: each request of an account of the chart.
const AUDIT_POLICY: &str = r#"{
    "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts:kube-system"]}, {"level": "None"}]
}"#;
/// The kinds that are not Kubernetes' own.
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// How often something in the cluster is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Who tells a node which machine it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloudProvider {
    /// kubelet itself.
    None,
    /// A cloud controller manager: kubelets run with `--cloud-provider=external`.
    External,
}

/// Which controllers of Kubernetes run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controllers {
    /// Those that volumes, the chart's workloads and nodes need.
    Needed,
    /// Those that run everywhere.
    All,
}

/// Gives this thread, and every process and thread that it starts from now on, a network without anything else on it:
/// its ports and addresses are the same for every test.
pub fn enter_own_network() {
    unshare(CloneFlags::CLONE_NEWNET).unwrap();
    for line in [
        "link set lo up",
        "link add cluster type bridge",
        &format!("address add {GATEWAY}/16 dev cluster"),
        "link set cluster up",
    ] {
        run("ip", &line.split(' ').collect::<Vec<_>>());
    }
}

/// The API server and its etcd, without controllers and nodes. The processes end with it.
pub struct ApiServer {
    process: Process,
    _etcd: Process,
    client: Client,
}

impl ApiServer {
    /// Starts it, in the network of this thread, and waits until it is ready. `gates` are its feature gates.
    pub async fn start(tools: &Path, folder: &Path, gates: &str) -> Self {
        let at = |name: &str| text(&folder.join(name));

        let (clients, peers) = ("http://127.0.0.1:2379", "http://127.0.0.1:2380");
        let etcd = program(
            tools,
            folder,
            "etcd",
            "etcd",
            &[
                ("--data-dir", &at("etcd")),
                ("--listen-client-urls", clients),
                ("--advertise-client-urls", clients),
                ("--listen-peer-urls", peers),
                ("--initial-advertise-peer-urls", peers),
                ("--initial-cluster", &format!("default={peers}")),
                // Nothing here outlives the test.
                ("--unsafe-no-fsync", "true"),
                ("--log-level", "warn"),
            ],
        );

        let folder_of_credentials = at("");
        let arguments = [&["credentials", folder_of_credentials.as_str()], &MACHINES[..]].concat();
        run(&text(&tools.join("kubernetes")), &arguments);
        // Everybody on this machine may reach a person's API server, and an administrator of it is root here.
        let token = uuid::Uuid::new_v4().simple().to_string();
        fs::write(folder.join("tokens.csv"), format!("{token},{ADMIN},{ADMIN},system:masters")).unwrap();
        fs::write(folder.join("audit-policy.json"), AUDIT_POLICY).unwrap();
        let mut process = program(
            tools,
            folder,
            "kubernetes",
            "kube-apiserver",
            &[
                ("--etcd-servers", clients),
                ("--bind-address", GATEWAY),
                ("--advertise-address", GATEWAY),
                ("--endpoint-reconciler-type", "none"),
                // That of the service that pods know.
                ("--secure-port", "443"),
                ("--service-cluster-ip-range", &format!("{GATEWAY}/24").replace(".1/", ".0/")),
                ("--cert-dir", &at("certificates")),
                ("--service-account-issuer", "https://kubernetes.default.svc"),
                ("--service-account-key-file", &at("sa.key")),
                ("--service-account-signing-key-file", &at("sa.key")),
                ("--client-ca-file", &at("ca.crt")),
                // For kubectl logs and exec. A kubelet makes its certificate itself.
                ("--kubelet-client-certificate", &at("kubelet-client.crt")),
                ("--kubelet-client-key", &at("kubelet-client.key")),
                ("--kubelet-preferred-address-types", "InternalIP"),
                ("--token-auth-file", &at("tokens.csv")),
                ("--authorization-mode", "Node,RBAC"),
                ("--enable-admission-plugins", "NodeRestriction"),
                ("--allow-privileged", "true"),
                // There is no kube-proxy: webhooks are asked at the addresses of their pods.
                ("--enable-aggregator-routing", "true"),
                ("--audit-policy-file", &at("audit-policy.json")),
                ("--audit-log-path", &at("audit.log")),
                ("--audit-log-mode", "blocking"),
                ("--feature-gates", gates),
            ],
        );
        // The file of the key is made after that of the certificate is written: an empty one trusts nobody, for good.
        let key = folder.join("certificates/apiserver.key");
        until("the API server's certificate", || {
            process.must_run();
            key.exists()
        })
        .await;
        let admin = write_kubeconfig(folder, ADMIN, json!({"token": token}));
        let client = lazuli_cluster::connect(Some(Path::new(&admin)), &BTreeMap::new()).await.unwrap().unwrap();
        let began = Instant::now();
        while let Err(error) = client.request_text(http::Request::get("/readyz").body(Vec::new()).unwrap()).await {
            process.must_run();
            assert!(began.elapsed() < PATIENCE, "the API server does not become ready: {error:?}");
            tokio::time::sleep(LOOK).await;
        }
        Self { process, _etcd: etcd, client }
    }

    /// A client of it that may do everything.
    pub fn client(&self) -> &Client {
        &self.client
    }

    async fn send(&self, method: &str, path: &str, kind: &str, body: Option<Value>) -> Result<Value, kube::Error> {
        let bytes = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request = http::Request::builder().method(method).uri(path).header("content-type", kind).body(bytes);
        self.client.request(request.unwrap()).await
    }

    /// An object, or a list; `None` when there is none.
    async fn get(&self, path: &str) -> Option<Value> {
        match self.send("GET", path, "application/json", None).await {
            Ok(object) => Some(object),
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            Err(error) => panic!("{path}: {error}"),
        }
    }

    /// Waits until an object is as it should be, and gives it. `must_run` fails where something has ended meanwhile.
    async fn until(
        &mut self,
        what: &str,
        path: &str,
        is: impl Fn(Option<&Value>) -> bool,
        mut must_run: impl FnMut(),
    ) -> Value {
        let began = Instant::now();
        loop {
            let found = self.get(path).await;
            if is(found.as_ref()) {
                return found.unwrap_or_default();
            }
            self.process.must_run();
            must_run();
            assert!(began.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}; {path} is {found:#?}");
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// The cluster. The processes end with it, the nodes first.
pub struct Kubernetes {
    nodes: BTreeMap<&'static str, Process>,
    _snapshots: Process,
    _scheduler: Process,
    _controllers: Process,
    api_server: ApiServer,
    folder: PathBuf,
}

impl Kubernetes {
    /// Starts it, in the network of this thread. `gates` are feature gates of the API server.
    pub async fn start(folder: &Folder, of: &Settings<'_>, report: Report<'_>) -> Self {
        let folder = folder.path().to_owned();
        let at = |name: &str| text(&folder.join(name));
        let (tools, provider) = (of.tools, of.provider);
        let mut api_server = ApiServer::start(tools, &folder, of.gates).await;
        report("etcd and the API server serve");
        let admin = kubeconfig(&folder, ADMIN);
        let mut names = match of.controllers {
            Controllers::Needed => CONTROLLERS.to_vec(),
            Controllers::All => vec!["*"],
        };
        let (key, root) = (at("sa.key"), text(&authority(&folder)));
        let mut flags = vec![
            ("--kubeconfig", admin.as_str()),
            ("--service-account-private-key-file", &key),
            ("--root-ca-file", &root),
            ("--leader-elect", "false"),
            ("--secure-port", "0"),
        ];
        if provider == CloudProvider::External {
            names.extend(EXTERNAL_CONTROLLERS);
            flags.extend([
                ("--cloud-provider", "external"),
                ("--allocate-node-cidrs", "true"),
                ("--cluster-cidr", PODS),
                // kubelets renew their leases every two seconds.
                ("--node-monitor-grace-period", "10s"),
                ("--node-monitor-period", "1s"),
            ]);
        }
        let names = names.join(",");
        flags.push(("--controllers", &names));
        let controllers = program(of.tools, &folder, "kubernetes", "kube-controller-manager", &flags);
        let scheduler = program(
            tools,
            &folder,
            "kubernetes",
            "kube-scheduler",
            &[("--kubeconfig", &admin), ("--leader-elect", "false"), ("--secure-port", "0")],
        );
        let snapshots = snapshot_controller(&mut api_server, tools, &folder).await;
        let nodes = BTreeMap::new();
        let mut made =
            Self { nodes, _snapshots: snapshots, _scheduler: scheduler, _controllers: controllers, api_server, folder };
        NODES.into_iter().for_each(|name| made.start_node(of, name));
        made
    }

    /// Starts the node of one of the [`MACHINES`].
    pub fn start_node(&mut self, of: &Settings<'_>, name: &'static str) {
        let index = MACHINES.iter().position(|one| *one == name).expect("it is one of the machines");
        let credentials = json!({
            "client-certificate": self.folder.join(format!("{name}.crt")),
            "client-key": self.folder.join(format!("{name}.key")),
        });
        let kubeconfig = write_kubeconfig(&self.folder, name, credentials);
        let images = chart::images(of.lazuli, of.tools);
        let node = node::start(of.tools, &self.folder, index, name, &kubeconfig, &images, of.provider);
        self.nodes.insert(name, node);
    }

    /// The nodes that run.
    pub fn nodes(&self) -> BTreeSet<&'static str> {
        self.nodes.keys().copied().collect()
    }

    /// The end of a node's machine: its processes are killed, and its mounts are gone.
    pub fn kill_node(&mut self, name: &str) {
        let mut node = self.nodes.remove(name).unwrap();
        node.kill();
        let kubelet = node::kubelet_folder(&self.folder, name);
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let points = mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
        let mut below: Vec<PathBuf> = points.filter(|point| point.starts_with(&kubelet) && *point != kubelet).collect();
        below.sort();
        for point in below.into_iter().rev() {
            run("umount", &[&text(&point)]);
        }
    }

    /// A client that may do everything.
    pub fn client(&self) -> &Client {
        self.api_server.client()
    }

    /// A kubeconfig of that user for the API server at another address of this machine, whole in itself: its file, which
    /// nobody else can read.
    pub fn kubeconfig_at(&self, address: SocketAddr, file: &Path) {
        let authority = STANDARD.encode(fs::read(authority(&self.folder)).unwrap());
        let usual = fs::read_to_string(self.admin_kubeconfig()).unwrap();
        let users = serde_json::from_str::<Value>(&usual).unwrap()["users"].clone();
        let cluster = json!({
            // The certificate is not for that address.
            "server": format!("https://{address}"), "tls-server-name": "kubernetes.default.svc",
            "certificate-authority-data": authority,
        });
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "lazuli",
            "clusters": [{"name": "lazuli", "cluster": cluster}], "users": users,
            "contexts": [{"name": "lazuli", "context": {"cluster": "lazuli", "user": ADMIN}}],
        });
        let mut made = File::options().create(true).truncate(true).write(true).mode(0o600).open(file).unwrap();
        made.write_all(config.to_string().as_bytes()).unwrap();
    }

    /// The kubeconfig of a user who may do everything.
    pub fn admin_kubeconfig(&self) -> String {
        kubeconfig(&self.folder, ADMIN)
    }

    /// A kubeconfig of another server, which asks for no credentials.
    pub fn kubeconfig_of_server(&self, name: &str, url: &str) -> String {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": url}}], "users": [{"name": name, "user": {}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": name}}],
        });
        let file = kubeconfig(&self.folder, name);
        fs::write(&file, config.to_string()).unwrap();
        file
    }

    /// A kubeconfig with a token, such as that of a container.
    pub fn kubeconfig_of_token(&self, name: &str, token: &str) -> String {
        write_kubeconfig(&self.folder, name, json!({"token": token}))
    }

    /// The code of the refusal of a change that the user of a kubeconfig asks for; `None` when it was made.
    pub async fn refusal_of_patch(&self, kubeconfig: &str, path: &str, change: &Value) -> Option<(u16, String)> {
        let client = lazuli_cluster::connect(Some(Path::new(kubeconfig)), &BTreeMap::new()).await.unwrap().unwrap();
        let request = http::Request::patch(path).header("content-type", "application/merge-patch+json");
        refusal(client.request(request.body(change.to_string().into_bytes()).unwrap()).await)
    }

    /// The code of the refusal of a change that may be refused to any user; `None` when it was made.
    pub async fn refusal_of_change(&self, path: &str, change: Value) -> Option<(u16, String)> {
        refusal(self.send("PATCH", path, "application/merge-patch+json", Some(change)).await)
    }

    /// The code of the refusal of an object; `None` when it was made.
    pub async fn refusal_of_object(&self, path: &str, object: Value) -> Option<(u16, String)> {
        refusal(self.send("POST", path, "application/json", Some(object)).await)
    }

    async fn send(&self, method: &str, path: &str, kind: &str, body: Option<Value>) -> Result<Value, kube::Error> {
        self.api_server.send(method, path, kind, body).await
    }

    /// Makes objects of any kind.
    pub async fn create(&self, path: &str, object: Value) -> Value {
        self.send("POST", path, "application/json", Some(object)).await.unwrap()
    }

    /// Changes an object by a merge patch.
    pub async fn patch(&self, path: &str, change: Value) -> Value {
        self.send("PATCH", path, "application/merge-patch+json", Some(change)).await.unwrap()
    }

    /// Deletes an object, at once where it has a time of grace.
    pub async fn delete(&self, path: &str) {
        self.send("DELETE", path, "application/json", None).await.unwrap();
    }

    /// An object, or a list; `None` when there is none.
    pub async fn get(&self, path: &str) -> Option<Value> {
        self.api_server.get(path).await
    }

    /// The objects of a collection.
    pub async fn list(&self, path: &str) -> Vec<Value> {
        self.get(path).await.and_then(|list| list["items"].as_array().cloned()).unwrap_or_default()
    }

    /// Waits until an object is as it should be, and gives it. `None` stands for an object that is not there.
    pub async fn until(&mut self, what: &str, path: &str, is: impl Fn(Option<&Value>) -> bool) -> Value {
        let nodes = &mut self.nodes;
        self.api_server.until(what, path, is, || nodes.values_mut().for_each(Process::must_run)).await
    }
}

impl Drop for Kubernetes {
    /// Shows what the containers said last, when the test has failed.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let all = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let folders = NODES.into_iter().map(|node| node::kubelet_folder(&self.folder, node).join("pod-logs"));
        for pod in folders.flat_map(|logs| all(&logs).collect::<Vec<_>>()) {
            for log in all(&pod).flat_map(|container| all(&container).collect::<Vec<_>>()) {
                let text = fs::read_to_string(&log).unwrap_or_default();
                let lines: Vec<&str> = text.lines().collect();
                let last = lines[lines.len().saturating_sub(15)..].join("\n");
                eprintln!("--- the end of {}\n{last}", log.display());
            }
        }
    }
}

/// Makes the kinds of snapshots and starts their controller, as the administrator of a cluster does it: no driver brings them.
async fn snapshot_controller(api_server: &mut ApiServer, tools: &Path, folder: &Path) -> Process {
    let mut kinds = Vec::new();
    let mut files: Vec<PathBuf> =
        fs::read_dir(tools.join("snapshot-kinds")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for file in files {
        let kind: Value = serde_saphyr::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        kinds.push(format!("{DEFINITIONS}/{}", kind["metadata"]["name"].as_str().unwrap()));
        api_server.send("POST", DEFINITIONS, "application/json", Some(kind)).await.unwrap();
    }
    for kind in kinds {
        let is_served = |found: Option<&Value>| {
            let conditions = found.and_then(|found| found["status"]["conditions"].as_array());
            conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Established" && one["status"] == "True"))
        };
        api_server.until("a kind of snapshots", &kind, is_served, || {}).await;
    }
    let admin = kubeconfig(folder, ADMIN);
    program(tools, folder, "snapshot-controller", "snapshot-controller", &[("--kubeconfig", &admin)])
}

/// The certificate that the API server makes for itself, which is its own authority.
fn authority(folder: &Path) -> PathBuf {
    folder.join("certificates/apiserver.crt")
}

/// Where the kubeconfig of a user is.
fn kubeconfig(folder: &Path, user: &str) -> String {
    text(&folder.join(format!("{user}.kubeconfig")))
}

fn write_kubeconfig(folder: &Path, user: &str, credentials: Value) -> String {
    let server = format!("https://{GATEWAY}");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": server, "certificate-authority": authority(folder)}}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
    });
    let file = kubeconfig(folder, user);
    fs::write(&file, config.to_string()).unwrap();
    file
}

fn refusal(answer: Result<Value, kube::Error>) -> Option<(u16, String)> {
    match answer {
        Ok(_) => None,
        Err(kube::Error::Api(status)) => Some((status.code, status.message.clone())),
        Err(error) => panic!("{error}"),
    }
}

/// The path of the collection that an object belongs to.
pub fn collection(object: &Value) -> String {
    let version = object["apiVersion"].as_str().unwrap();
    let root = if version.contains('/') { "/apis" } else { "/api" };
    let namespace =
        object["metadata"]["namespace"].as_str().map_or(String::new(), |name| format!("/namespaces/{name}"));
    let kind = object["kind"].as_str().unwrap().to_lowercase();
    let plural = match kind.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if kind.ends_with('s') => format!("{kind}es"),
        None => format!("{kind}s"),
    };
    format!("{root}/{version}{namespace}/{plural}")
}

/// Waits until something holds.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(LOOK).await;
    }
}

fn program(tools: &Path, folder: &Path, program: &str, part: &str, flags: &[(&str, &str)]) -> Process {
    let mut arguments = if program == part { Vec::new() } else { words(&[part]) };
    arguments.extend(flags.iter().map(|(name, value)| format!("{name}={value}")));
    Process::of_program(&tools.join(program), part, &folder.join(format!("{part}.log")), &arguments)
}
