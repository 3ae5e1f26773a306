//! The cluster of a guest, outside it: a small API server, and a controller that makes shares and hands out their keys.
//! The guest is its node [`NODE`].

use std::{
    net::Ipv4Addr,
    path::PathBuf,
    process::Stdio,
    sync::{Arc, Mutex},
    time::Duration,
};

use csi_proto::csi::controller_client::ControllerClient;
use lazuli_apiserver::ApiServer;
use lazuli_emulator::{Emulator, scenario::Scenario};
use lazuli_keys::{BrokerClient, BrokerPlace};
use lazuli_rig::Folder;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    net::TcpListener,
    process::{Child, ChildStderr, Command},
};
use tonic::transport::Channel;

use super::machine::Guest;

/// The guest, as a node.
pub(super) const NODE: &str = "node-0";
/// Another node, which is this test: it asks for keys as a node does.
const WITNESS: &str = "witness";
/// The driver of file shares.
pub(super) const DRIVER: &str = "file.csi.azure.com";
/// The Service of the controller, as it is named by default, and its namespace.
const BROKER: (&str, &str) = ("kube-system", "lazuli-key-broker");
/// The same controller, in a namespace where this test finds it.
const OUTSIDE: &str = "outside";
/// This machine's loopback interface, as the guest reaches it.
pub(super) const HOST: &str = "10.0.2.2";
/// How long to wait before a question is asked again whose answer follows from what has been said.
const AGAIN: Duration = Duration::from_millis(20);
/// How many lines of the controller's log a failure shows.
const SHOWN: usize = 40;

/// The API server and the controller, which end with this value.
pub(super) struct Cluster {
    pub(super) server: ApiServer,
    /// The controller of shares.
    pub(super) controller: Channel,
    folder: Folder,
    api_port: u16,
    /// Asks for keys as the node [`WITNESS`].
    witness: BrokerClient,
    log: Arc<Mutex<Vec<String>>>,
    _process: Child,
}

impl Cluster {
    /// Starts both beside an emulator.
    pub(super) async fn start(emulator: &Emulator) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let server = ApiServer::start(lazuli_apiserver::Options::default());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let api_port = listener.local_addr().unwrap().port();
        let router = server.router();
        tokio::spawn(async move { axum::serve(listener, router).await });

        let folder = Folder::make("guest").unwrap();
        let write = |name: &str, content: String| std::fs::write(folder.path().join(name), content).unwrap();
        write("azure.json", lazuli_rig::azure_json(&Scenario::default(), &emulator.url()).to_string());
        write("kubeconfig", kubeconfig("127.0.0.1", api_port).to_string());
        let names = [BROKER.0, OUTSIDE].map(|namespace| format!("{}.{namespace}.svc", BROKER.1));
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        write("ca.crt", made.cert.pem());
        write("tls.key", made.signing_key.serialize_pem());

        let (process, mut lines) = controller(&folder);
        let log = Arc::new(Mutex::new(Vec::new()));
        let broker = port_of_broker(&mut lines, &log).await;
        tokio::spawn({
            let log = Arc::clone(&log);
            async move {
                while let Ok(Some(line)) = lines.next_line().await {
                    log.lock().unwrap().push(line);
                }
            }
        });
        let files = lazuli_rig::connect(&folder.path().join("file.sock")).await.unwrap();

        server.put("namespaces", json!({"metadata": {"name": OUTSIDE}})).unwrap();
        for (namespace, address) in [(BROKER.0, HOST), (OUTSIDE, "127.0.0.1")] {
            let labels = json!({"kubernetes.io/service-name": BROKER.1});
            let metadata = json!({"name": "broker", "namespace": namespace, "labels": labels});
            let ports = json!([{"port": broker}]);
            let slice = json!({"metadata": metadata, "endpoints": [{"addresses": [address]}], "ports": ports});
            server.put("endpointslices", slice).unwrap();
        }
        for node in [NODE, WITNESS] {
            let spec = json!({"nodeName": node, "serviceAccountName": "lazuli-node"});
            server.put("pods", object(BROKER.0, &plugin_of(node), spec)).unwrap();
        }
        write("token", token(&server, WITNESS));
        let place = BrokerPlace {
            namespace: OUTSIDE.to_owned(),
            service: BROKER.1.to_owned(),
            token: folder.path().join("token"),
            authority: folder.path().join("ca.crt"),
        };
        let witness = BrokerClient::new(kube::Client::new(server.router(), "default"), place);
        Self { server, controller: files, folder, api_port, witness, log, _process: process }
    }

    /// The controller of shares, to be called.
    pub(super) fn files(&self) -> ControllerClient<Channel> {
        ControllerClient::new(self.controller.clone())
    }

    /// Gives a guest what the node plugin has in a cluster; the arguments by which it finds it.
    pub(super) async fn equip(&self, guest: &Guest) -> String {
        guest.put("/csi/kubeconfig", 0o600, kubeconfig(HOST, self.api_port).to_string().as_bytes()).await;
        guest.put("/csi/token", 0o600, token(&self.server, NODE).as_bytes()).await;
        let authority = std::fs::read(self.folder.path().join("ca.crt")).unwrap();
        guest.put("/csi/ca.crt", 0o600, &authority).await;
        "--kubeconfig /csi/kubeconfig --key-broker-token /csi/token --key-broker-authority /csi/ca.crt".to_owned()
    }

    /// A share has been made for a claim: it gets its PersistentVolume, which is bound, and a Pod on each node uses it. Done
    /// when the controller hands out its key.
    pub(super) async fn bind(&self, handle: &str, attributes: &Value) {
        // Names of requests are not always such of objects.
        let known = self.volume(handle).map(|volume| name_of(&volume));
        let name = &*known.unwrap_or_else(|| format!("volume-{}", self.server.version()));
        let claim = object("default", name, json!({"volumeName": name}));
        let claim = self.server.put("persistentvolumeclaims", claim).unwrap();
        let reference = json!({"namespace": "default", "name": name, "uid": claim["metadata"]["uid"]});
        let csi = json!({"driver": DRIVER, "volumeHandle": handle, "volumeAttributes": attributes});
        let spec = json!({"csi": csi, "claimRef": reference, "persistentVolumeReclaimPolicy": "Delete"});
        let status = json!({"phase": "Bound"});
        let volume = json!({"metadata": {"name": name}, "spec": spec, "status": status});
        self.server.put("persistentvolumes", volume).unwrap();
        for node in [NODE, WITNESS] {
            let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": name}}]);
            let spec = json!({"nodeName": node, "volumes": volumes});
            self.server.put("pods", object("default", &format!("{name}-on-{node}"), spec)).unwrap();
        }
        // What the controller follows reaches it in a moment.
        while let Err(refused) = self.witness.key(handle, None).await {
            assert!(refused.message.contains("no bound PersistentVolume"), "the key of {handle}: {refused:?}");
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// The PersistentVolume of a handle.
    fn volume(&self, handle: &str) -> Option<Value> {
        let all = self.server.list("persistentvolumes");
        all.into_iter().find(|volume| volume["spec"]["csi"]["volumeHandle"] == handle)
    }

    /// The claim of a volume is gone, and its Pods: the volume is released.
    pub(super) fn release(&self, handle: &str) {
        let Some(mut volume) = self.volume(handle) else { return };
        let name = name_of(&volume);
        for node in [NODE, WITNESS] {
            let _ = self.server.delete("pods", "default", &format!("{name}-on-{node}"));
        }
        let _ = self.server.delete("persistentvolumeclaims", "default", &name);
        volume["status"]["phase"] = "Released".into();
        self.server.put("persistentvolumes", volume).unwrap();
    }

    /// The share of a volume is gone: so is the PersistentVolume.
    pub(super) fn forget(&self, handle: &str) {
        if let Some(volume) = self.volume(handle) {
            self.server.delete("persistentvolumes", "", &name_of(&volume)).unwrap();
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log.lock().unwrap();
            eprintln!("--- the end of the controller's log\n{}", log[log.len().saturating_sub(SHOWN)..].join("\n"));
        }
    }
}

/// The kubeconfig of an API server on this port of a host.
pub(super) fn kubeconfig(host: &str, port: u16) -> Value {
    json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://{host}:{port}")}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "users": [{"name": "u", "user": {}}]})
}

fn object(namespace: &str, name: &str, spec: Value) -> Value {
    json!({"metadata": {"name": name, "namespace": namespace}, "spec": spec})
}

fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

/// The Pod of the node plugin on a node.
fn plugin_of(node: &str) -> String {
    format!("lazuli-{node}")
}

fn token(server: &ApiServer, node: &str) -> String {
    server.issue_token(BROKER.0, &plugin_of(node), &[lazuli_keys::AUDIENCE]).unwrap()
}

/// The controller as a process, which ends with this one, and its log.
fn controller(folder: &Folder) -> (Child, Lines<BufReader<ChildStderr>>) {
    let path = |name: &str| -> PathBuf { folder.path().join(name) };
    let socket = |name: &str| format!("unix://{}", path(name).display());
    let mut child = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", env!("CARGO_BIN_EXE_lazuli"), "csi-controller"])
        .args(["--endpoint", &socket("disk.sock"), "--file-endpoint", &socket("file.sock")])
        .arg("--cloud-config")
        .arg(path("azure.json"))
        .arg("--kubeconfig")
        .arg(path("kubeconfig"))
        .args(["--key-broker-endpoint", "127.0.0.1:0", "--key-broker-certificate"])
        .arg(path("ca.crt"))
        .arg("--key-broker-key")
        .arg(path("tls.key"))
        // No option from the environment.
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    (child, lines)
}

/// Reads the log until the controller serves shares, after which nothing is missing; the port at which it hands out keys.
async fn port_of_broker(lines: &mut Lines<BufReader<ChildStderr>>, log: &Mutex<Vec<String>>) -> u16 {
    let mut port = None;
    loop {
        let line = lines.next_line().await.unwrap();
        let line = line.unwrap_or_else(|| panic!("the controller has ended: {:#?}", log.lock().unwrap()));
        if line.contains("handing out keys") {
            let (_, address) = line.split_once("127.0.0.1:").expect("an address");
            let digits: String = address.chars().take_while(char::is_ascii_digit).collect();
            port = Some(digits.parse().unwrap());
        }
        let is_served = line.contains("serving CSI Identity and Controller") && line.contains(DRIVER);
        log.lock().unwrap().push(line);
        if let (true, Some(port)) = (is_served, port) {
            return port;
        }
    }
}
