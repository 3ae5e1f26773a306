//! The process `lazuli cloud-controllers` against Azure and an API server behind sockets: what it serves, how it stops,
//! and which rights in Azure that takes.

use std::{
    collections::BTreeSet,
    process::{ExitStatus, Stdio},
    time::{Duration, Instant},
};

use lazuli_apiserver::ApiServer;
use lazuli_assembly::clients;
use lazuli_azure::{
    Until,
    network::{NetworkType, NetworkWrite},
    transport::Routes,
};
use lazuli_config::{Config, Document, Environment};
use lazuli_emulator::{Emulator, call_log::Call, scenario};
use lazuli_rig::{Folder, azure_json};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use super::deploy_azure::{actions, needed, table};

/// What only a hang reaches, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(90);
/// How often a condition that announces itself by no event is looked at.
const LOOK: Duration = Duration::from_millis(5);
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
const ROLE: &str = "role-cloud-controllers.json";

/// An Azure with the cluster's security group, an API server with two Nodes, and the files that lead a process to both.
struct World {
    azure: Emulator,
    server: ApiServer,
    folder: Folder,
}

impl World {
    async fn start() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let options = lazuli_emulator::Options::default();
        let configured = options.scenario.clone();
        let azure = Emulator::start(options).await.unwrap();
        let mut config = azure_json(&configured, &azure.url());
        config["subnetName"] = "nodes".into();
        config["securityGroupName"] = "nodes-nsg".into();
        config["loadBalancerBackendPoolConfigurationType"] = "nodeIP".into();
        config["routeTableName"] = "nodes-routes".into();
        make_security_group(&config).await;
        let server = ApiServer::start(lazuli_apiserver::Options::default());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = server.router();
        tokio::spawn(async move { axum::serve(listener, router).await });
        let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}")}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {}}]});
        let folder = Folder::make("cloud-controllers").unwrap();
        for (name, value) in [("azure.json", config), ("kubeconfig", kubeconfig)] {
            std::fs::write(folder.path().join(name), value.to_string()).unwrap();
        }
        let world = Self { azure, server, folder };
        world.node(0);
        world.new_node(1);
        world
    }

    fn node(&self, at: u8) {
        let id = format!(
            "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Compute/virtualMachines/node-{at}",
            scenario::SUBSCRIPTION,
            scenario::RESOURCE_GROUP
        );
        let node = json!({"metadata": {"name": format!("node-{at}")}, "spec": {"providerID": format!("azure://{id}")},
            "status": {"addresses": [{"type": "InternalIP", "address": format!("10.240.0.{}", 4 + at)}],
                "conditions": [{"type": "Ready", "status": "True"}]}});
        self.server.put("nodes", node).unwrap();
    }

    /// A Node as kubelet registers it when the cloud provider is external.
    fn new_node(&self, at: u8) {
        let taint = json!({"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"});
        let node = json!({"metadata": {"name": format!("node-{at}")},
            "spec": {"podCIDRs": [format!("10.244.{at}.0/24")], "taints": [taint]},
            "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
        self.server.put("nodes", node).unwrap();
    }

    fn is_initialised(&self, at: u8) -> bool {
        let node = self.server.get("nodes", "", &format!("node-{at}")).unwrap();
        let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        node["spec"]["providerID"].is_string() && !taints.iter().any(|taint| taint["key"] == UNINITIALIZED)
    }

    fn has_route(&self, at: u8) -> bool {
        let node = self.server.get("nodes", "", &format!("node-{at}")).unwrap();
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|one| one["type"] == "NetworkUnavailable" && one["status"] == "False")
    }

    fn process(&self) -> Child {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let mut command = Command::new(env!("CARGO_BIN_EXE_lazuli"));
        command.env_clear().arg("cloud-controllers").arg("--cloud-config-secret-name=");
        command.arg(format!("--cloud-config={}", path("azure.json")));
        command.arg(format!("--kubeconfig={}", path("kubeconfig")));
        command.args(["--cluster-cidr=10.244.0.0/16", "--controllers=*"]);
        command.stdin(Stdio::null()).kill_on_drop(true).spawn().unwrap()
    }

    fn service(&self, name: &str, annotations: Value) {
        let spec = json!({"type": "LoadBalancer", "ports": [{"port": 80}]});
        self.server
            .put("services", json!({"metadata": {"name": name, "annotations": annotations}, "spec": spec}))
            .unwrap();
    }

    fn has_address(&self, name: &str) -> bool {
        let service = self.server.get("services", "default", name).unwrap();
        service["status"]["loadBalancer"]["ingress"].as_array().is_some_and(|ingress| !ingress.is_empty())
    }

    fn holder(&self) -> Option<String> {
        let lease = self.server.get("leases", "kube-system", "cloud-controller-manager")?;
        lease["spec"]["holderIdentity"].as_str().filter(|holder| !holder.is_empty()).map(str::to_owned)
    }

    fn calls(&self) -> Vec<Call> {
        self.azure.control().call_log().into_iter().filter(|call| call.plane == "arm").collect()
    }

    fn writes(&self) -> usize {
        self.calls().iter().filter(|call| call.method != "GET").count()
    }

    async fn until(&self, what: &str, is: impl Fn() -> bool) {
        let began = Instant::now();
        while !is() {
            let calls = || {
                self.calls()
                    .iter()
                    .map(|call| format!("{} {} {} {:?}", call.method, call.path, call.status, call.code))
                    .collect::<Vec<_>>()
            };
            assert!(began.elapsed() < PATIENCE, "{what}: {:#?}", calls());
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// The cluster's security group, which its installer makes.
async fn make_security_group(config: &Value) {
    let document = Document::parse("azure.json", config.to_string().as_bytes()).unwrap();
    let config = Config::from_documents(Some(&document), None, &Environment::new(&Default::default())).unwrap();
    let azure = clients::connect(&config, Routes::none(), &mut Registry::default(), 1).await.unwrap();
    let (subscription, group) = (scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP);
    let id = format!(
        "/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Network/networkSecurityGroups/nodes-nsg"
    );
    let until = Until::within(Duration::from_secs(60));
    let kind = NetworkType::SecurityGroup;
    // Reads bring the token that a write needs.
    azure.network.list(kind, subscription, group, &until).await.unwrap();
    let put = NetworkWrite::Put { body: json!({"location": scenario::LOCATION, "properties": {}}), etag: None };
    azure.network.write(kind, &id.parse().unwrap(), put, None, &until).await.unwrap().settle(&until).await.unwrap();
}

async fn terminate(mut process: Child) -> ExitStatus {
    kill(Pid::from_raw(i32::try_from(process.id().unwrap()).unwrap()), Signal::SIGTERM).unwrap();
    tokio::time::timeout(PATIENCE, process.wait()).await.expect("ends").unwrap()
}

#[tokio::test]
async fn the_process_serves_services_gives_its_lease_up_and_needs_the_rights_of_its_role() {
    let world = World::start().await;
    let before = world.calls().len();
    world.service("web", json!({}));
    world.service("inner", json!({"service.beta.kubernetes.io/azure-load-balancer-internal": "true"}));
    let first = world.process();
    for name in ["web", "inner"] {
        world.until(name, || world.has_address(name)).await;
    }
    world.until("the new Node is initialised", || world.is_initialised(1)).await;
    world.until("its route exists", || world.has_route(1)).await;
    let associated = || world.calls().iter().any(|call| call.method == "PUT" && call.path.ends_with("/subnets/nodes"));
    world.until("the subnet belongs to the route table", associated).await;
    let holder = world.holder().expect("the process leads");
    assert!(terminate(first).await.success());
    assert_eq!(world.holder(), None, "the Lease of {holder}");

    // The next one need not wait until the Lease expires, and goes on with what is there.
    let writes = world.writes();
    let second = world.process();
    world.until("the second process leads", || world.holder().is_some()).await;
    world.service("more", json!({}));
    world.until("more has an address", || world.has_address("more")).await;
    // A public IP, its rule and its ports: nothing of the others was written again.
    assert!(world.writes() - writes <= 4, "{:#?}", &world.calls()[before..]);
    world.node(2);
    let pools = || world.calls().iter().any(|call| call.method == "PUT" && call.path.contains("/backendAddressPools/"));
    world.until("the new Node is behind the load balancers", pools).await;
    for name in ["web", "inner", "more"] {
        world.server.delete("services", "default", name).unwrap();
    }
    world.until("all Services are gone", || world.server.list("services").is_empty()).await;
    assert!(terminate(second).await.success());

    let linked: BTreeSet<String> = table()
        .into_iter()
        .filter(|(_, file, by_call)| file == ROLE && !by_call)
        .map(|(action, ..)| action.to_lowercase())
        .collect();
    let allowed: BTreeSet<String> = actions(ROLE).iter().map(|action| action.to_lowercase()).collect();
    assert_eq!(needed(&world.calls()[before..]), allowed.difference(&linked).cloned().collect());
    world.azure.shutdown().await;
}

#[tokio::test]
async fn the_process_fails_when_another_replica_has_its_lease() {
    let world = World::start().await;
    let mut process = world.process();
    world.until("the process leads", || world.holder().is_some()).await;
    let mut lease = world.server.get("leases", "kube-system", "cloud-controller-manager").unwrap();
    lease["spec"]["holderIdentity"] = "another".into();
    world.server.put("leases", lease).unwrap();
    let ended = tokio::time::timeout(PATIENCE, process.wait()).await.expect("ends").unwrap();
    assert_eq!(ended.code(), Some(1));
    assert_eq!(world.holder().as_deref(), Some("another"));
    world.azure.shutdown().await;
}
