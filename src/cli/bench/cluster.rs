//! A cluster for the benches of the cloud controllers: an emulator and the controllers, each a process of its own, and a
//! small API server in this process, which notes when a Service gets its status and when a Node is initialised.
//!
//! With several load balancers each Node is an instance of a scale set, and each load balancer has a primary scale set, as
//! in clusters with a node pool for each load balancer: a Node belongs to one of them.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    ops::Range,
    path::Path,
    time::{Duration, Instant},
};

use axum::{Router, extract::Request};
use clap::ValueEnum;
use http::Method;
use lazuli_apiserver::{ApiServer, Options as ApiServerOptions};
use lazuli_nodes::cloud_node::{
    Taint,
    facts::{self, InstanceFacts, PublishedAddress},
};
use lazuli_rig::{Folder, SECURITY_GROUP};
use serde_json::{Map, Value, json};
use tokio::{net::TcpListener, process::Child, sync::watch};
use tower::ServiceExt;

use super::{
    super::output::Format,
    control::{Begun, Control},
    figures::rounded,
    processes::{self, AnyError, Measured, Memory},
};

/// The installer of the cluster: a principal with request buckets of its own.
const INSTALLER: (&str, &str) = ("1b5d3a52-5a57-4e0a-8a7f-0c6f8f2f6b01", "the installer's secret");
/// The API version that the installer speaks.
const NETWORK_VERSION: &str = "2024-05-01";
const ROUTE_TABLE: &str = "nodes-routes";
/// The ranges of all pods; each Node has one of [`POD_RANGE`] addresses.
const POD_RANGES: (Ipv4Addr, u32) = (Ipv4Addr::new(172, 16, 0, 0), 12);
const POD_RANGE: u32 = 256;
/// The address of the first node; those before it are Azure's own.
const FIRST_NODE: Ipv4Addr = Ipv4Addr::new(10, 240, 0, 4);
/// The boot of every machine.
const BOOT: &str = "7f2e1c1e-0c5e-4d57-9c55-3c8a1f0d9b11";
/// How often what has no event is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// So long without a write to Azure, and the controllers are at rest.
const REST: Duration = Duration::from_secs(5);
/// The most processor time of the controllers at rest, as a part of that time.
const AT_REST: f64 = 0.05;
/// So long without progress, and the bench ends.
const STUCK: Duration = Duration::from_secs(300);

/// How the pools of the load balancers are filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum PoolKind {
    /// They list the addresses of nodes.
    NodeIp,
    /// NICs name them.
    Nic,
}

impl PoolKind {
    /// The word in the cloud configuration.
    fn configured(self) -> &'static str {
        match self {
            Self::NodeIp => "nodeIP",
            Self::Nic => "nodeIPConfiguration",
        }
    }
}

/// What a cluster is like.
#[derive(Debug)]
pub(super) struct Layout<'a> {
    /// How many Services there will be, for Azure's quotas.
    pub(super) services: u32,
    pub(super) load_balancers: u32,
    pub(super) pool_kind: PoolKind,
    /// How many machines Azure has from the start: those of the first Nodes.
    pub(super) machines: u32,
    /// Whether Nodes have pod ranges and routes.
    pub(super) routes: bool,
    /// Where the controllers answer admission reviews, and with which certificate and key.
    pub(super) webhook: Option<(SocketAddr, &'a str, &'a str)>,
    pub(super) latency: &'a str,
    pub(super) throttling: bool,
    pub(super) seed: u64,
    /// The program whose cloud controllers run.
    pub(super) measured: Measured,
}

impl Default for Layout<'_> {
    /// One load balancer, whose pool lists addresses; no machines, no routes, and the documented throttles.
    fn default() -> Self {
        Self {
            services: 0,
            load_balancers: 1,
            pool_kind: PoolKind::NodeIp,
            machines: 0,
            routes: false,
            webhook: None,
            latency: "typical",
            throttling: true,
            seed: 1,
            measured: Measured::default(),
        }
    }
}

/// Starts a cluster, measures it, ends it whether that succeeded or not, and prints the result.
pub(super) async fn run(
    layout: &Layout<'_>,
    output: Format,
    measure: impl AsyncFnOnce(&mut Cluster) -> Result<Map<String, Value>, AnyError>,
) -> Result<super::Figures, AnyError> {
    let folder = Folder::make("bench")?;
    let mut cluster = Cluster::start(layout, folder.path()).await?;
    let result = measure(&mut cluster).await;
    let (memory, cpu) = (cluster.memory(), processes::cpu_time(&cluster.controllers));
    cluster.end().await;
    let mut result = result?;
    result.insert("program_rss_bytes".into(), json!(memory?.program));
    result.insert("cpu_s".into(), rounded(cpu?.as_secs_f64()));
    Ok((Value::Object(result), output))
}

/// When something first happened to each object, by name.
type Times = BTreeMap<String, Instant>;

/// What the API server has noted.
#[derive(Debug, Default)]
struct Noted {
    /// Services that have a status.
    served: Times,
    /// Nodes without the taint of new ones.
    initialised: Times,
    /// Requests of the controllers to change a Node, refused ones included.
    node_writes: u64,
}

/// A cluster without nodes and Services, whose controllers lead.
pub(super) struct Cluster {
    azure: Child,
    controllers: Child,
    pub(super) control: Control,
    server: ApiServer,
    noted: watch::Receiver<Noted>,
    load_balancers: u32,
    routes: bool,
    /// What the provider ids of all machines begin with.
    compute: String,
}

impl Cluster {
    /// Starts everything, and waits until the controllers lead.
    async fn start(layout: &Layout<'_>, folder: &Path) -> Result<Self, AnyError> {
        let [scenario, config, kubeconfig] =
            ["scenario.json", "azure.json", "kubeconfig"].map(|name| folder.join(name));
        std::fs::write(&scenario, scenario_of(layout).to_string())?;
        let mut azure = processes::emulator(&config);
        azure.args(["--latency", layout.latency, "--seed", &layout.seed.to_string()]);
        azure.arg("--scenario").arg(&scenario);
        if !layout.throttling {
            azure.arg("--no-throttling");
        }
        let (azure, base) = processes::ready(azure).await?;
        let control = Control::new(base)?;
        let configured = configure(layout, serde_json::from_str(&std::fs::read_to_string(&config)?)?);
        std::fs::write(&config, configured.to_string())?;
        let word = |key: &str| configured[key].as_str().unwrap_or_default().to_owned();
        let group = format!("/subscriptions/{}/resourceGroups/{}", word("subscriptionId"), word("resourceGroup"));

        let installer = control.sign_in(&word("tenantId"), INSTALLER.0, INSTALLER.1).await?;
        let id = format!("{group}/providers/Microsoft.Network/networkSecurityGroups/{SECURITY_GROUP}");
        let body = json!({ "location": word("location"), "properties": {} });
        installer.make(&id, NETWORK_VERSION, &body).await?;

        let server = ApiServer::start(ApiServerOptions::default());
        let (noted, listener) = (watch::Sender::new(Noted::default()), TcpListener::bind("127.0.0.1:0").await?);
        let address = listener.local_addr()?;
        std::fs::write(&kubeconfig, kubeconfig_of(&format!("http://{address}")).to_string())?;
        let receiver = noted.subscribe();
        let router = noting(server.clone(), noted);
        tokio::spawn(async move { axum::serve(listener, router).await });
        let mut controllers = layout.measured.cloud_controllers(&config, &kubeconfig);
        if layout.routes {
            controllers.arg(format!("--cluster-cidr={}/{}", POD_RANGES.0, POD_RANGES.1));
        }
        if let Some((address, certificate, key)) = layout.webhook {
            let files = [("certificate", certificate), ("key", key)];
            controllers.arg(format!("--webhook-address={address}"));
            for (name, text) in files {
                let file = folder.join(name);
                std::fs::write(&file, text)?;
                controllers.arg(format!("--webhook-{name}={}", file.display()));
            }
        }
        let controllers = processes::started(&mut controllers)?;
        let compute = format!("azure://{group}/providers/Microsoft.Compute");
        let (load_balancers, routes) = (layout.load_balancers, layout.routes);
        let mut cluster =
            Self { azure, controllers, control, server, noted: receiver, load_balancers, routes, compute };
        let leads = |server: &ApiServer| {
            let lease = server.get("leases", "kube-system", "cloud-controller-manager");
            lease.is_some_and(|lease| lease["spec"]["holderIdentity"].as_str().is_some_and(|holder| !holder.is_empty()))
        };
        while !leads(&cluster.server) {
            cluster.alive()?;
            tokio::time::sleep(LOOK).await;
        }
        Ok(cluster)
    }

    /// Adds Nodes of these numbers that are initialised and Ready.
    pub(super) fn add_nodes(&self, numbers: Range<u32>) -> Result<(), AnyError> {
        for number in numbers {
            let mut node = self.node(number);
            let machine = match self.load_balancers {
                1 => format!("virtualMachines/{}", node_name(number)),
                sets => {
                    format!("virtualMachineScaleSets/{}/virtualMachines/{}", scale_set(number % sets), number / sets)
                }
            };
            node["spec"]["providerID"] = format!("{}/{machine}", self.compute).into();
            let address = Ipv4Addr::from(u32::from(FIRST_NODE) + number);
            node["status"]["addresses"] = json!([{ "type": "InternalIP", "address": address }]);
            self.server.put("nodes", node)?;
        }
        Ok(())
    }

    /// Adds a Node as its kubelet does with an external cloud provider: it has a taint, and neither a provider id nor
    /// addresses. With the annotation that its node plugin writes, if so.
    pub(super) fn add_new_node(&self, number: u32, metadata: bool) -> Result<String, AnyError> {
        let mut node = self.node(number);
        if metadata {
            let machine =
                format!("{}/virtualMachines/{}", self.compute.trim_start_matches("azure://"), node_name(number));
            let private = Ipv4Addr::from(u32::from(FIRST_NODE) + number).into();
            let facts = InstanceFacts {
                resource_id: machine,
                vm_size: "Standard_D8s_v3".to_owned(),
                fault_domain: Some(0),
                location: Some("westeurope".to_owned()),
                addresses: vec![PublishedAddress { private, public: None }],
                boot_id: Some(BOOT.to_owned()),
                ..InstanceFacts::default()
            };
            node["metadata"]["annotations"] = json!({ facts::ANNOTATION: facts.annotation() });
            node["status"]["nodeInfo"] = json!({ "bootID": BOOT });
        }
        node["spec"]["taints"] = json!([{ "key": Taint::UNINITIALIZED, "value": "true", "effect": "NoSchedule" }]);
        self.server.put("nodes", node)?;
        Ok(node_name(number))
    }

    /// What all Nodes have.
    fn node(&self, number: u32) -> Value {
        let name = node_name(number);
        let mut node = json!({
            "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name, "kubernetes.io/os": "linux" } },
            "spec": {},
            "status": { "conditions": [{ "type": "Ready", "status": "True", "reason": "KubeletReady" }] },
        });
        if self.routes {
            let range = Ipv4Addr::from(u32::from(POD_RANGES.0) + number * POD_RANGE);
            node["spec"]["podCIDRs"] = json!([format!("{range}/24")]);
        }
        node
    }

    /// Removes Nodes.
    pub(super) fn remove_nodes(&self, numbers: Range<u32>) -> Result<(), AnyError> {
        for number in numbers {
            self.server.delete("nodes", "", &node_name(number))?;
        }
        Ok(())
    }

    /// Makes a Service of type LoadBalancer with one TCP port. Returns its name.
    pub(super) fn add_service(&self, number: u32) -> Result<String, AnyError> {
        let name = format!("web-{number:05}");
        let port = json!({ "port": 80, "protocol": "TCP", "nodePort": 30_000 + number % 2_768 });
        let service = json!({
            "metadata": { "name": name },
            "spec": { "type": "LoadBalancer", "ports": [port] },
        });
        self.server.put("services", service)?;
        Ok(name)
    }

    /// Makes an object as it is.
    pub(super) fn put(&self, plural: &str, object: Value) -> Result<(), AnyError> {
        self.server.put(plural, object)?;
        Ok(())
    }

    /// Lets the informers list everything anew.
    pub(super) fn relist(&self) {
        self.server.compact();
        self.server.drop_watches();
    }

    /// Waits until so many Services have a status. Returns when each had it.
    pub(super) async fn served(&mut self, count: usize) -> Result<Times, AnyError> {
        self.noted(count, "Services have an address", |noted| &noted.served).await
    }

    /// Waits until so many Nodes are initialised. Returns when each was.
    pub(super) async fn initialised(&mut self, count: usize) -> Result<Times, AnyError> {
        self.noted(count, "Nodes are initialised", |noted| &noted.initialised).await
    }

    /// How often the controllers have asked the API server to change a Node.
    pub(super) fn node_writes(&self) -> u64 {
        self.noted.borrow().node_writes
    }

    async fn noted(&mut self, count: usize, what: &str, of: fn(&Noted) -> &Times) -> Result<Times, AnyError> {
        let mut last = (0, Instant::now());
        loop {
            {
                let noted = self.noted.borrow_and_update();
                let times = of(&noted);
                if times.len() >= count {
                    return Ok(times.clone());
                }
                if times.len() > last.0 {
                    last = (times.len(), Instant::now());
                }
            }
            self.alive()?;
            if last.1.elapsed() > STUCK {
                return Err(format!("{} of {count} {what}, and no further in {} s", last.0, STUCK.as_secs()).into());
            }
            // The time-out is only for the looks at the processes.
            let _ = tokio::time::timeout(Duration::from_secs(1), self.noted.changed()).await;
        }
    }

    /// Waits until the controllers write nothing any more and have nothing left to do: a busy computer makes them late.
    /// Returns what was counted in a phase.
    pub(super) async fn rested(&mut self, phase: Begun) -> Result<Counted, AnyError> {
        let mut last = (u64::MAX, Instant::now(), Duration::MAX);
        loop {
            let all = self.control.phases().await?;
            let counted = all.into_iter().find(|counted| counted["number"] == phase.number);
            let counters = counted.ok_or("the emulator has forgotten a phase")?["counters"].take();
            let writes = counters["writes"].as_u64().unwrap_or_default();
            let worked = processes::cpu_time(&self.controllers)?;
            if writes != last.0 {
                last = (writes, Instant::now(), worked);
            } else if last.1.elapsed() >= REST {
                if worked.saturating_sub(last.2) <= REST.mul_f64(AT_REST) {
                    return Ok(Counted(counters));
                }
                last = (writes, Instant::now(), worked);
            }
            self.alive()?;
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The memory of the controllers.
    pub(super) fn memory(&self) -> Result<Memory, AnyError> {
        processes::memory(&self.controllers)
    }

    fn alive(&mut self) -> Result<(), AnyError> {
        for (name, child) in [("the emulator", &mut self.azure), ("cloud-controllers", &mut self.controllers)] {
            if let Some(status) = child.try_wait()? {
                return Err(format!("{name} ended: {status}").into());
            }
        }
        Ok(())
    }

    async fn end(mut self) {
        for child in [&mut self.controllers, &mut self.azure] {
            processes::end(child).await;
        }
    }
}

/// What the emulator counted in a phase.
pub(super) struct Counted(Value);

impl Counted {
    /// A sum over all requests.
    pub(super) fn sum(&self, name: &str) -> u64 {
        self.0[name].as_u64().unwrap_or_default()
    }

    /// PUT, PATCH and DELETE of these types.
    pub(super) fn writes(&self, types: &[&str]) -> u64 {
        const WRITES: [&str; 3] = ["createOrUpdate", "delete", "updateTags"];
        let operations = self.0["byOperation"].as_object().into_iter().flatten();
        let is_counted =
            |name: &str| name.split_once('.').is_some_and(|(of, verb)| types.contains(&of) && WRITES.contains(&verb));
        operations.filter(|(name, _)| is_counted(name)).filter_map(|(_, count)| count.as_u64()).sum()
    }

    /// The figures that all benches of the cloud controllers have.
    pub(super) fn figures(&self) -> Map<String, Value> {
        let figures = [
            ("load_balancer_writes", self.writes(&["loadBalancers", "backendAddressPools"])),
            ("security_group_writes", self.writes(&["networkSecurityGroups", "securityRules"])),
            ("public_ip_writes", self.writes(&["publicIPAddresses"])),
            ("nic_writes", self.writes(&["networkInterfaces"])),
            ("route_table_writes", self.writes(&["routeTables", "routes"])),
            ("arm_reads", self.sum("reads")),
            ("arm_writes", self.sum("writes")),
            ("polls", self.sum("polls")),
            ("list_pages", self.sum("listPages")),
            ("throttled", self.sum("throttled")),
        ];
        figures.into_iter().map(|(name, count)| (name.to_owned(), json!(count))).collect()
    }
}

/// The share of sorted seconds that a percentile is.
pub(super) fn percentile(sorted: &[f64], percent: usize) -> Value {
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    rounded(sorted.get(at).copied().unwrap_or_default())
}

/// Makes so many objects, evenly over these seconds. Returns when each was made.
pub(super) async fn spread(
    (count, seconds): (u32, u32),
    mut make: impl FnMut(u32) -> Result<String, AnyError>,
) -> Result<Vec<(String, Instant)>, AnyError> {
    let (began, apart) = (Instant::now(), Duration::from_secs(seconds.into()) / count);
    let mut made = Vec::new();
    for number in 0..count {
        if !apart.is_zero() {
            tokio::time::sleep_until((began + apart * number).into()).await;
        }
        made.push((make(number)?, Instant::now()));
    }
    Ok(made)
}

/// The seconds from the creation of each object to what happened to it then, sorted.
pub(super) fn durations(made: &[(String, Instant)], times: &Times) -> Vec<f64> {
    let took = |(name, made): &(String, Instant)| Some(times.get(name)?.duration_since(*made).as_secs_f64());
    let mut all: Vec<f64> = made.iter().filter_map(took).collect();
    all.sort_by(f64::total_cmp);
    all
}

/// The seconds from the begin to the last of what happened.
pub(super) fn makespan(began: Instant, times: &Times) -> f64 {
    times.values().max().map_or(0.0, |last| last.duration_since(began).as_secs_f64())
}

fn node_name(number: u32) -> String {
    format!("node-{number}")
}

fn scale_set(number: u32) -> String {
    format!("set-{number}")
}

fn scenario_of(layout: &Layout<'_>) -> Value {
    let default = lazuli_emulator::scenario::Scenario::default();
    let mut clients: Vec<Value> = default.clients.iter().map(|client| json!(client)).collect();
    clients.push(json!({ "id": INSTALLER.0, "secret": INSTALLER.1 }));
    let addresses = layout.services + 1;
    let machines = match layout.machines {
        0 => json!([]),
        count => json!([{ "name": "node-{}", "count": count }]),
    };
    json!({
        "clients": clients,
        "virtualMachines": machines,
        "quotas": { "PublicIPAddresses": addresses, "StaticPublicIPAddresses": addresses },
    })
}

/// The cloud configuration that the emulator has written, with what load balancers need.
fn configure(layout: &Layout<'_>, mut config: Value) -> Value {
    for (key, value) in [
        ("subnetName", "nodes"),
        ("securityGroupName", SECURITY_GROUP),
        ("loadBalancerSku", "standard"),
        ("loadBalancerBackendPoolConfigurationType", layout.pool_kind.configured()),
    ] {
        config[key] = value.into();
    }
    if layout.load_balancers > 1 {
        let one = |number| json!({ "name": format!("balancer-{number}"), "primaryVMSet": scale_set(number) });
        config["multipleStandardLoadBalancerConfigurations"] = (0..layout.load_balancers).map(one).collect();
    }
    if layout.routes {
        config["routeTableName"] = ROUTE_TABLE.into();
    }
    config
}

fn kubeconfig_of(server: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "bench",
        "clusters": [{ "name": "bench", "cluster": { "server": server } }],
        "contexts": [{ "name": "bench", "context": { "cluster": "bench", "user": "bench" } }],
        "users": [{ "name": "bench", "user": {} }],
    })
}

/// The API server, which notes what the controllers do to Services and Nodes.
fn noting(server: ApiServer, noted: watch::Sender<Noted>) -> Router {
    let router = server.router();
    Router::new().fallback(move |request: Request| {
        let (server, router, noted) = (server.clone(), router.clone(), noted.clone());
        async move {
            let change = Change::of(&request);
            let answered = router.oneshot(request).await;
            let Some(change) = change else { return answered };
            let succeeded = answered.as_ref().is_ok_and(|answer| answer.status().is_success());
            noted.send_modify(|noted| match change {
                Change::Node(name) => {
                    noted.node_writes += 1;
                    if succeeded && !noted.initialised.contains_key(&name) && is_initialised(&server, &name) {
                        noted.initialised.insert(name, Instant::now());
                    }
                }
                Change::Status(service) if succeeded => {
                    _ = noted.served.entry(service).or_insert_with(Instant::now);
                }
                Change::Status(_) => {}
            });
            answered
        }
    })
}

fn is_initialised(server: &ApiServer, node: &str) -> bool {
    let taints = server.get("nodes", "", node).map(|node| node["spec"]["taints"].clone());
    let taints = taints.as_ref().and_then(Value::as_array);
    !taints.into_iter().flatten().any(|taint| taint["key"] == Taint::UNINITIALIZED)
}

/// What a request changes, of what is noted.
enum Change {
    /// This Node, or its status.
    Node(String),
    /// The status of this Service.
    Status(String),
}

impl Change {
    fn of(request: &Request) -> Option<Self> {
        let path = request.uri().path();
        if request.method() == Method::GET {
            return None;
        }
        if let Some(node) = path.strip_prefix("/api/v1/nodes/") {
            return node.split('/').next().map(|name| Self::Node(name.to_owned()));
        }
        let service = path.strip_prefix("/api/v1/namespaces/default/services/")?.strip_suffix("/status")?;
        (request.method() == Method::PATCH).then(|| Self::Status(service.to_owned()))
    }
}
