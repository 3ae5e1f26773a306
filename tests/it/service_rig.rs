//! The service controller on the emulator and the small API server, in one runtime on paused time, under the eyes of the
//! judge of [`super::service_judge`].

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use kube::Client;
use lazuli_apiserver::ApiServer;
use lazuli_azure::{
    Until,
    arm::{Arm, Retry},
    auth::{Credential, Secret, Tokens},
    metrics::Metrics as AzureMetrics,
    network::{API_VERSION, Network, NetworkType, NetworkWrite},
    transport::{Routes, Transport},
};
use lazuli_cluster::{Ended, EventMetrics, LeaseName, Reporter, event_queue, write_events};
use lazuli_config::{Config, Document, Environment};
use lazuli_controllers::{Controller, Options, settings::settings};
use lazuli_emulator::{
    changes::Step,
    latency::Profile,
    scenario::{self, Scenario, VirtualMachine},
};
use lazuli_journal::PrintedAtFailure;
use lazuli_reconcile::metrics::Metrics;
use lazuli_rig::cluster::Cluster;
use lazuli_storage::list::VolumeHandles;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::{service_judge::Judge, service_reach::Azure};

/// How many machines there are; Nodes of the first two exist from the start.
pub(super) const MACHINES: u32 = 4;
/// At rest is what has not changed for so long: longer than every wait of the controllers but the resync.
const REST: Duration = Duration::from_secs(40);
/// How long one change may take.
const PATIENCE: Duration = Duration::from_secs(900);
const ARM: &str = "https://management.azure.com/";
const LOGIN: &str = "https://login.microsoftonline.com/";
const ANNOTATION: &str = "service.beta.kubernetes.io/";

/// A cluster whose every state is judged.
pub(super) struct Judged {
    pub(super) cluster: Cluster,
    network: Network,
    pub(super) judge: Arc<Mutex<Watcher>>,
    journals: PrintedAtFailure,
}

/// The judge, and how far it has read the changes of Services.
pub(super) struct Watcher {
    pub(super) judge: Judge,
    server: ApiServer,
    version: u64,
}

impl Watcher {
    /// Passes what has happened to Services to the judge.
    pub(super) fn read_services(&mut self) {
        for changed in self.server.changes("services", self.version).expect("the history reaches as far") {
            self.version = changed.version;
            self.judge.service(&changed.object, changed.exists);
        }
    }
}

/// A running controller.
pub(super) struct Running {
    stop: CancellationToken,
    ended: JoinHandle<Ended>,
}

impl Running {
    pub(super) async fn stop(self) {
        self.stop.cancel();
        assert_eq!(self.ended.await.unwrap(), Ended::Stopped);
    }
}

fn url(text: &str) -> Url {
    text.parse().unwrap()
}

/// An id in the cluster's resource group.
pub(super) fn network_id(kind: &str, name: &str) -> String {
    let (subscription, group) = (scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP);
    format!("/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Network/{kind}/{name}")
}

impl Judged {
    /// A cluster whose security group stands in front of its nodes.
    pub(super) async fn start(keys: &[(&str, Value)]) -> Self {
        Self::with(keys, lazuli_emulator::Options { latency: Profile::typical(), ..Default::default() }).await
    }

    pub(super) async fn with(keys: &[(&str, Value)], options: lazuli_emulator::Options) -> Self {
        let machines = vec![VirtualMachine::pattern("node-{}", MACHINES)];
        let scenario = Scenario { virtual_machines: machines, ..options.scenario };
        let all =
            [("loadBalancerSku", json!("standard")), ("loadBalancerBackendPoolConfigurationType", json!("nodeIP"))];
        let all: Vec<(&str, Value)> = all.into_iter().chain(keys.iter().cloned()).collect();
        let options = lazuli_emulator::Options { scenario, ..options };
        let cluster = Box::pin(Cluster::start(options, &all)).await.unwrap();
        let control = cluster.azure.control();
        let group = network_id("networkSecurityGroups", "nodes-nsg");
        control
            .tamper(&network_id("virtualNetworks", "lazuli-vnet"), |network| {
                network["properties"]["subnets"][0]["properties"]["networkSecurityGroup"] = json!({"id": group});
            })
            .unwrap();
        let watcher =
            Watcher { judge: Judge::default(), server: cluster.server.clone(), version: cluster.server.version() };
        let judge = Arc::new(Mutex::new(watcher));
        let follower = Arc::clone(&judge);
        let existing = control.follow(move |step: &Step| {
            let mut watcher = follower.lock().unwrap();
            watcher.read_services();
            watcher.judge.step(step);
        });
        judge.lock().unwrap().judge = Judge::new(Azure::new(existing));
        let network = client(&cluster);
        Self { cluster, network, judge, journals: PrintedAtFailure::default() }
    }

    /// A controller by the configuration of the cluster.
    pub(super) fn controller(&self, identity: &str) -> Running {
        let config = self.cluster.config().unwrap();
        let document = Document::parse("azure.json", config.to_string().as_bytes()).unwrap();
        let config = Config::from_documents(Some(&document), None, &Environment::new(&Default::default())).unwrap();
        let metrics = EventMetrics::register(&mut Registry::default());
        let (events, queue) = event_queue(&metrics);
        let reporter = Reporter { controller: "lazuli-cloud-controllers".to_owned(), instance: identity.to_owned() };
        let (_, no_volumes) = watch::channel(VolumeHandles::NoCluster);
        let api = Client::new(self.cluster.server.router(), "default");
        let stop = CancellationToken::new();
        tokio::spawn(write_events(api.clone(), reporter, no_volumes, queue, metrics, stop.clone()));
        let start = Instant::now();
        let options = Options {
            settings: settings(&config, "kubernetes").unwrap(),
            zones: Some(vec![]),
            lease: LeaseName {
                namespace: "kube-system".to_owned(),
                name: "cloud-controller-manager".to_owned(),
                identity: identity.to_owned(),
            },
            lease_view: Default::default(),
            operations: Default::default(),
            class: None,
            accepted_plan: None,
            external: Default::default(),
            resync: None,
            events,
            journal: self.journals.recorder(identity, move || start.elapsed()),
        };
        let controller = Controller::new(options, self.network.clone(), api, Metrics::unregistered());
        Running { stop: stop.clone(), ended: tokio::spawn(controller.run(stop)) }
    }

    /// Creates or changes a Service. Annotations are without their prefix.
    pub(super) fn service(&self, name: &str, ports: &[u16], ranges: &[&str], annotations: &[(&str, &str)]) {
        put_service(&self.cluster.server, name, ports, ranges, annotations);
    }

    /// Makes a public IP of the user's own, and returns its address.
    pub(super) async fn public_ip(&self, name: &str) -> String {
        let (kind, until) = (NetworkType::PublicIp, Until::within(PATIENCE));
        let id = network_id("publicIPAddresses", name).parse().unwrap();
        let body = json!({"location": scenario::LOCATION, "sku": {"name": "Standard"},
            "properties": {"publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv4"}});
        // Reads bring the token that a write needs.
        self.network.list(kind, scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP, &until).await.unwrap();
        let put = NetworkWrite::Put { body, etag: None };
        self.network.write(kind, &id, put, None, &until).await.unwrap().settle(&until).await.unwrap();
        let made = self.cluster.azure.control().store(|store| store.document(id.as_str())).unwrap();
        made["properties"]["ipAddress"].as_str().unwrap().to_owned()
    }

    /// How many writes Azure was asked for.
    pub(super) fn writes(&self) -> u64 {
        self.cluster.azure.control().counters().writes
    }

    /// Waits for so many writes in all. Returns whether there were as many before all came to rest.
    pub(super) async fn until_writes(&self, writes: u64) -> bool {
        let mut since = (Instant::now(), self.writes());
        while self.writes() < writes {
            if since.1 != self.writes() {
                since = (Instant::now(), self.writes());
            }
            if since.0.elapsed() > REST {
                return false;
            }
            sleep(Duration::from_millis(10)).await;
        }
        true
    }

    pub(super) fn delete(&self, name: &str) {
        self.cluster.server.delete("services", "default", name).unwrap();
    }

    pub(super) fn node(&self, at: u8) {
        self.cluster.node(at).unwrap();
    }

    pub(super) fn label_node(&self, at: usize, pool: &str) {
        let mut node = self.cluster.server.get("nodes", "", &format!("node-{at}")).unwrap();
        node["metadata"]["labels"] = json!({"pool": pool});
        self.cluster.server.put("nodes", node).unwrap();
    }

    /// Waits until a Service is gone. Returns whether it goes.
    pub(super) async fn gone(&self, name: &str) -> bool {
        let began = Instant::now();
        while self.cluster.server.get("services", "default", name).is_some() {
            if began.elapsed() > PATIENCE {
                return false;
            }
            sleep(Duration::from_millis(100)).await;
        }
        true
    }

    pub(super) fn delete_node(&self, at: u8) {
        self.cluster.server.delete("nodes", "", &format!("node-{at}")).unwrap();
    }

    /// The addresses in the status of a Service.
    pub(super) fn addresses(&self, name: &str) -> Vec<String> {
        let service = self.cluster.server.get("services", "default", name).unwrap_or_default();
        let ingress = service["status"]["loadBalancer"]["ingress"].as_array().cloned().unwrap_or_default();
        ingress.iter().filter_map(|one| Some(one["ip"].as_str()?.to_owned())).collect()
    }

    /// What the owners of Services were told.
    pub(super) fn events(&self) -> Vec<String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let events = self.cluster.server.list("events");
        events
            .iter()
            .map(|one| format!("{}: {} {}", text(&one["regarding"]["name"]), text(&one["reason"]), text(&one["note"])))
            .collect()
    }

    /// Waits until nothing has changed for a while, and judges what is there then.
    pub(super) async fn rest(&self) {
        let control = self.cluster.azure.control();
        let state = || (control.counters().writes, control.running_operations(), self.cluster.server.list("services"));
        let (began, mut since, mut before) = (Instant::now(), Instant::now(), state());
        while since.elapsed() < REST {
            assert!(began.elapsed() < PATIENCE, "no rest: {:#?}", self.cluster.writes());
            sleep(Duration::from_secs(1)).await;
            let now = state();
            if now != before {
                (since, before) = (Instant::now(), now);
            }
        }
        self.judge_rest();
    }

    /// Judges a state in which nothing changes any more.
    pub(super) fn judge_rest(&self) {
        let nodes = self.cluster.server.list("nodes");
        let addresses = nodes.iter().flat_map(|node| node["status"]["addresses"].as_array().into_iter().flatten());
        let addresses = addresses.filter_map(|one| one["address"].as_str()?.parse().ok()).collect();
        let mut watcher = self.judge.lock().unwrap();
        watcher.read_services();
        watcher.judge.at_rest(&addresses);
    }

    /// Lets a Service be out of reach once while so many writes begin.
    pub(super) fn allow_gap(&self, name: &str, writes: usize) {
        let mut watcher = self.judge.lock().unwrap();
        watcher.read_services();
        watcher.judge.allow_gap(name, writes);
    }

    /// Ends the test: there must be no faults.
    pub(super) async fn end(self, case: &str) {
        self.judge.lock().unwrap().judge.assert_no_faults(case);
        self.cluster.azure.shutdown().await;
    }
}

/// A client of Azure, in this process.
fn client(cluster: &Cluster) -> Network {
    let base = url(&cluster.azure.url());
    let routes = [ARM, LOGIN].iter().fold(Routes::none(), |routes, origin| routes.with(&url(origin), &base).unwrap());
    let transport = Transport::in_process(routes, cluster.azure.service());
    let credential = Credential::ClientSecret {
        tenant_id: scenario::TENANT.into(),
        client_id: scenario::CLIENT_ID.into(),
        secret: Secret::new(scenario::CLIENT_SECRET),
        authority: url(LOGIN),
    };
    let tokens = Tokens::new(transport.clone(), credential, ARM, 7);
    let arm = Arm::new(url(ARM), transport, tokens, AzureMetrics::unregistered(), Retry::default(), 7);
    Network::new(arm, API_VERSION)
}

/// Creates or changes a Service of type LoadBalancer. Annotations are without their prefix.
pub(super) fn put_service(
    server: &ApiServer,
    name: &str,
    ports: &[u16],
    ranges: &[&str],
    annotations: &[(&str, &str)],
) {
    let mut service = server.get("services", "default", name).unwrap_or_else(|| json!({"metadata": {"name": name}}));
    let before = service["spec"]["ports"].as_array().cloned().unwrap_or_default();
    let ports = ports.iter().map(|port| {
        let same = before.iter().find(|one| one["port"] == *port).cloned();
        same.unwrap_or_else(|| json!({"name": format!("p{port}"), "port": port}))
    });
    let annotations = annotations.iter().map(|(key, value)| (format!("{ANNOTATION}{key}"), json!(value)));
    service["metadata"]["annotations"] = Value::Object(annotations.collect());
    service["spec"]["type"] = "LoadBalancer".into();
    service["spec"]["ports"] = ports.collect();
    service["spec"]["loadBalancerSourceRanges"] = json!(ranges);
    server.put("services", service).unwrap();
}
