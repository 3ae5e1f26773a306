//! A cluster for the benches of the cloud controllers: an emulator and the controllers, each a process of its own, and a
//! small API server in this process, which notes when a Service gets its status.

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    path::Path,
    time::{Duration, Instant},
};

use axum::{Router, extract::Request};
use clap::ValueEnum;
use http::Method;
use lazuli_apiserver::{ApiServer, Options as ApiServerOptions};
use serde_json::{Map, Value, json};
use tokio::{net::TcpListener, process::Child, sync::watch};
use tower::ServiceExt;

use super::{
    control::{Begun, Control},
    figures::rounded,
    processes::{self, AnyError, Memory},
};

/// The installer of the cluster: a principal with request buckets of its own.
const INSTALLER: (&str, &str) = ("1b5d3a52-5a57-4e0a-8a7f-0c6f8f2f6b01", "the installer's secret");
/// The API version that the installer speaks.
const NETWORK_VERSION: &str = "2024-05-01";
const SECURITY_GROUP: &str = "nodes-nsg";
/// The address of the first node; those before it are Azure's own.
const FIRST_NODE: Ipv4Addr = Ipv4Addr::new(10, 240, 0, 4);
/// How often what has no event is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// So long without a write to Azure, and the controllers are at rest.
const REST: Duration = Duration::from_secs(5);
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
    pub(super) services: u32,
    pub(super) load_balancers: u32,
    pub(super) pool_kind: PoolKind,
    pub(super) latency: &'a str,
    pub(super) throttling: bool,
    pub(super) seed: u64,
}

/// The first time that each Service had a status, by name.
type Served = BTreeMap<String, Instant>;

/// A cluster without nodes and Services, whose controllers lead.
pub(super) struct Cluster {
    azure: Child,
    controllers: Child,
    pub(super) control: Control,
    server: ApiServer,
    served: watch::Receiver<Served>,
    load_balancers: u32,
    machines: String,
}

impl Cluster {
    /// Starts everything, and waits until the controllers lead.
    pub(super) async fn start(layout: &Layout<'_>, folder: &Path) -> Result<Self, AnyError> {
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
        let (served, listener) = (watch::Sender::new(Served::new()), TcpListener::bind("127.0.0.1:0").await?);
        let address = listener.local_addr()?;
        std::fs::write(&kubeconfig, kubeconfig_of(&format!("http://{address}")).to_string())?;
        let receiver = served.subscribe();
        let router = noting(server.router(), served);
        tokio::spawn(async move { axum::serve(listener, router).await });
        let controllers = processes::cloud_controllers(&config, &kubeconfig).spawn()?;
        let machines = format!("azure://{group}/providers/Microsoft.Compute/virtualMachines");
        let load_balancers = layout.load_balancers;
        let mut cluster = Self { azure, controllers, control, server, served: receiver, load_balancers, machines };
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

    /// Adds Nodes of these numbers.
    pub(super) fn add_nodes(&self, numbers: std::ops::Range<u32>) -> Result<(), AnyError> {
        for number in numbers {
            let name = format!("node-{number}");
            let address = Ipv4Addr::from(u32::from(FIRST_NODE) + number);
            let node = json!({
                "metadata": { "name": name },
                "spec": { "providerID": format!("{}/{name}", self.machines) },
                "status": { "addresses": [{ "type": "InternalIP", "address": address }] },
            });
            self.server.put("nodes", node)?;
        }
        Ok(())
    }

    /// Removes a Node.
    pub(super) fn remove_node(&self, number: u32) -> Result<(), AnyError> {
        Ok(self.server.delete("nodes", "", &format!("node-{number}"))?)
    }

    /// Makes a Service of type LoadBalancer with one TCP port. Returns its name.
    pub(super) fn add_service(&self, number: u32) -> Result<String, AnyError> {
        let name = format!("web-{number:05}");
        let port = json!({ "port": 80, "protocol": "TCP", "nodePort": 30_000 + number % 2_768 });
        let mut service = json!({
            "metadata": { "name": name },
            "spec": { "type": "LoadBalancer", "ports": [port] },
        });
        if self.load_balancers > 1 {
            let annotations = json!({
                "service.beta.kubernetes.io/azure-load-balancer-configurations":
                    load_balancer(number % self.load_balancers),
            });
            service["metadata"]["annotations"] = annotations;
        }
        self.server.put("services", service)?;
        Ok(name)
    }

    /// Lets the informers list everything anew.
    pub(super) fn relist(&self) {
        self.server.compact();
        self.server.drop_watches();
    }

    /// Waits until so many Services have a status. Returns when each had it.
    pub(super) async fn served(&mut self, count: usize) -> Result<Served, AnyError> {
        let mut last = (0, Instant::now());
        loop {
            {
                let served = self.served.borrow_and_update();
                if served.len() >= count {
                    return Ok(served.clone());
                }
                if served.len() > last.0 {
                    last = (served.len(), Instant::now());
                }
            }
            self.alive()?;
            if last.1.elapsed() > STUCK {
                return Err(format!(
                    "{} of {count} Services have an address, and none got one for {} s",
                    last.0,
                    STUCK.as_secs()
                )
                .into());
            }
            // The time-out is only for the looks at the processes.
            let _ = tokio::time::timeout(Duration::from_secs(1), self.served.changed()).await;
        }
    }

    /// Waits until the controllers write nothing any more. Returns what was counted in a phase.
    pub(super) async fn rested(&mut self, phase: Begun) -> Result<Counted, AnyError> {
        let mut last = (u64::MAX, Instant::now());
        loop {
            let all = self.control.phases().await?;
            let counted = all.into_iter().find(|counted| counted["number"] == phase.number);
            let counters = counted.ok_or("the emulator has forgotten a phase")?["counters"].take();
            let writes = counters["writes"].as_u64().unwrap_or_default();
            if writes != last.0 {
                last = (writes, Instant::now());
            } else if last.1.elapsed() >= REST {
                return Ok(Counted(counters));
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

    pub(super) async fn end(mut self) {
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

fn load_balancer(number: u32) -> String {
    format!("balancer-{number}")
}

fn scenario_of(layout: &Layout<'_>) -> Value {
    let default = lazuli_emulator::scenario::Scenario::default();
    let mut clients: Vec<Value> = default.clients.iter().map(|client| json!(client)).collect();
    clients.push(json!({ "id": INSTALLER.0, "secret": INSTALLER.1 }));
    let addresses = layout.services + 1;
    json!({
        "clients": clients,
        "virtualMachines": [],
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
        let one = |number| json!({ "name": load_balancer(number), "primaryVMSet": format!("set-{number}") });
        config["multipleStandardLoadBalancerConfigurations"] = (0..layout.load_balancers).map(one).collect();
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

/// The API server, which notes when a Service first gets a status.
fn noting(server: Router, served: watch::Sender<Served>) -> Router {
    Router::new().fallback(move |request: Request| {
        let (server, served) = (server.clone(), served.clone());
        async move {
            let service = service_of_status(&request);
            let answered = server.oneshot(request).await;
            if let (Some(service), Ok(answer)) = (service, &answered)
                && answer.status().is_success()
            {
                served.send_modify(|served| _ = served.entry(service).or_insert_with(Instant::now));
            }
            answered
        }
    })
}

/// The Service whose status a request writes.
fn service_of_status(request: &Request) -> Option<String> {
    let path = request.uri().path();
    let service = path.strip_prefix("/api/v1/namespaces/default/services/")?.strip_suffix("/status")?;
    (request.method() == Method::PATCH).then(|| service.to_owned())
}
