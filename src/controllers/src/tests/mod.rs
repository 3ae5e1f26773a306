//! The service controller against the emulator and the small API server, in one runtime on paused time.

use std::{collections::BTreeMap, time::Duration};

use kube::Client;
use lazuli_apiserver::{ApiServer, Options as ApiServerOptions};
use lazuli_azure::{
    network::{API_VERSION, Network, NetworkType},
    on_emulator::{client, principal, routes},
    transport::Transport,
};
use lazuli_cluster::{Ended, EventMetrics, LeaseName, Reporter, event_queue, write_events};
use lazuli_emulator::{
    Emulator, Options as EmulatorOptions, Switches,
    latency::Profile,
    scenario::{self, Scenario},
};
use lazuli_journal::{PrintedAtFailure, Recorder};
use lazuli_model::tags::TagPolicy;
use lazuli_services::{
    network::{
        Settings,
        settings::{LoadBalancerSku, PoolKind, PreconfiguredPools},
    },
    service::ClusterAddresses,
};
use lazuli_storage::list::VolumeHandles;
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use crate::{Controller, Operations, Options};

/// How often the controllers of these tests read again.
const RESYNC: Duration = Duration::from_secs(1_200);

mod counted;
mod discovery;
mod dual_stack;
mod events;
mod external;
mod journal;
mod nics;
mod policy;
mod preconfigured;
mod private_links;
mod scale_sets;
mod several;
mod shared;
mod stopping;
mod take_over;

struct Rig {
    emulator: Emulator,
    server: ApiServer,
    network: Network,
    settings: Settings,
    external: ClusterAddresses,
    journals: PrintedAtFailure,
    operations: Operations,
}

pub(crate) fn settings() -> Settings {
    let group = || scenario::RESOURCE_GROUP.to_owned();
    Settings {
        cluster_name: "kubernetes".to_owned(),
        subscription: scenario::SUBSCRIPTION.to_owned(),
        compute_subscription: scenario::SUBSCRIPTION.to_owned(),
        location: scenario::LOCATION.to_owned(),
        resource_group: group(),
        load_balancer_resource_group: group(),
        load_balancer_name: None,
        sku: LoadBalancerSku::Standard,
        vnet_resource_group: group(),
        vnet_name: "lazuli-vnet".to_owned(),
        subnet_name: "nodes".to_owned(),
        security_group_resource_group: group(),
        security_group_name: "nodes-nsg".to_owned(),
        private_link_resource_group: group(),
        pool_kind: PoolKind::NodeIp,
        preconfigured_pools: PreconfiguredPools::None,
        primary_vm_set: String::new(),
        configurations: vec![],
        maximum_rules: 250,
        exclude_control_plane: true,
        disable_outbound_snat: false,
        migrates_pools: false,
        pool_update_interval: Duration::ZERO,
        shared_probe: None,
        may_change_ip_tags: false,
        tags: TagPolicy::default(),
        edge_zone: None,
        share_addresses: Default::default(),
        allowed_groups: None,
    }
}

impl Rig {
    async fn start() -> Self {
        Self::with(settings()).await
    }

    /// A cluster of this configuration.
    async fn with(settings: Settings) -> Self {
        Self::of(settings, Scenario::default()).await
    }

    /// The same with other machines.
    async fn of(settings: Settings, scenario: Scenario) -> Self {
        Self::of_unverified(settings, scenario, Switches::default()).await
    }

    /// With this choice where no document says what Azure does.
    async fn of_unverified(settings: Settings, scenario: Scenario, unverified: Switches) -> Self {
        let options =
            EmulatorOptions { scenario, latency: Profile::typical(), unverified, ..EmulatorOptions::default() };
        let emulator = Emulator::start(options).await.unwrap();
        let transport = Transport::in_process(routes(&emulator.url().parse().unwrap()), emulator.service());
        let credential = principal(scenario::TENANT, scenario::CLIENT_ID, scenario::CLIENT_SECRET);
        let arm = client(transport, credential, 7);
        let group = "nodes-nsg";
        let (subscription, resource_group) = (scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP);
        let path = format!(
            "/subscriptions/{subscription}/resourceGroups/{resource_group}/providers/Microsoft.Network/networkSecurityGroups/{group}"
        );
        let until = lazuli_azure::Until::within(Duration::from_secs(3_600));
        let network = Network::new(arm, API_VERSION);
        // Reads bring the token that writes need at hand.
        let kind = NetworkType::SecurityGroup;
        network.list(kind, subscription, resource_group, &until).await.unwrap();
        let body = json!({"location": scenario::LOCATION, "properties": {}});
        let put = lazuli_azure::network::NetworkWrite::Put { body, etag: None };
        let mut made = network.write(kind, &path.parse().unwrap(), put, None, &until).await.unwrap();
        made.settle(&until).await.unwrap();
        let server = ApiServer::start(ApiServerOptions::default());
        for at in 0..2 {
            let name = format!("node-{at}");
            let address = format!("10.240.0.{}", 4 + at);
            let node = json!({"metadata": {"name": name},
                "spec": {"providerID": format!("azure:///subscriptions/{subscription}/resourceGroups/{resource_group}/providers/Microsoft.Compute/virtualMachines/{name}")},
                "status": {"addresses": [{"type": "InternalIP", "address": address}]}});
            server.put("nodes", node).unwrap();
        }
        let (external, journals) = (ClusterAddresses::default(), PrintedAtFailure::default());
        let operations = Operations::default();
        Self { emulator, server, network, settings, external, journals, operations }
    }

    fn client(&self) -> Client {
        Client::new(self.server.router(), "default")
    }

    /// A replica that also writes events.
    fn controller(&self, identity: &str) -> (CancellationToken, JoinHandle<Ended>) {
        let stop = CancellationToken::new();
        let controller = self.replica(identity, None, &stop);
        (stop.clone(), tokio::spawn(controller.run(stop)))
    }

    /// A replica that has not begun; its events are written until `stop`.
    fn replica(&self, identity: &str, accepted_plan: Option<String>, stop: &CancellationToken) -> Controller {
        let start = Instant::now();
        let journal = self.journals.recorder(identity, move || start.elapsed());
        self.recorded(identity, accepted_plan, stop, journal)
    }

    /// The same with this journal.
    fn recorded(
        &self,
        identity: &str,
        accepted_plan: Option<String>,
        stop: &CancellationToken,
        journal: Recorder,
    ) -> Controller {
        let metrics = EventMetrics::register(&mut prometheus_client::registry::Registry::default());
        let (events, queue) = event_queue(&metrics);
        let reporter = Reporter { controller: "lazuli-cloud-controllers".to_owned(), instance: identity.to_owned() };
        let (_, no_volumes) = watch::channel(VolumeHandles::NoCluster);
        tokio::spawn(write_events(self.client(), reporter, no_volumes, queue, metrics, stop.clone()));
        let options = Options {
            settings: self.settings.clone(),
            zones: None,
            lease: LeaseName {
                namespace: "kube-system".to_owned(),
                name: "cloud-controller-manager".to_owned(),
                identity: identity.to_owned(),
            },
            lease_view: Default::default(),
            operations: self.operations.clone(),
            class: None,
            external: self.external.clone(),
            accepted_plan,
            resync: Some(RESYNC),
            events,
            journal,
        };
        let metrics = lazuli_reconcile::metrics::Metrics::unregistered();
        Controller::new(options, self.network.clone(), self.client(), metrics)
    }

    fn service(&self, name: &str) -> Value {
        let service = json!({"metadata": {"name": name}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
        self.server.put("services", service).unwrap()
    }

    /// A Service with these annotations, without their prefix.
    fn annotated(&self, name: &str, annotations: &[(&str, &str)]) -> Value {
        let key = |key: &str| format!("service.beta.kubernetes.io/{key}");
        let annotations: serde_json::Map<String, Value> =
            annotations.iter().map(|(name, value)| (key(name), json!(value))).collect();
        let mut service = self.server.get("services", "default", name).unwrap_or_else(|| self.service(name));
        service["metadata"]["annotations"] = annotations.into();
        self.server.put("services", service).unwrap()
    }

    /// Makes an object of the network provider in the cluster's resource group, and returns its id.
    async fn make(&self, kind: NetworkType, path: &str, body: Value) -> String {
        let (subscription, group) = (scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP);
        let id = format!("/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Network/{path}");
        let until = lazuli_azure::Until::within(Duration::from_secs(600));
        let put = lazuli_azure::network::NetworkWrite::Put { body, etag: None };
        let mut made = self.network.write(kind, &id.parse().unwrap(), put, None, &until).await.unwrap();
        made.settle(&until).await.unwrap();
        id
    }

    /// The reasons and notes of the events about a Service, in the order of their names.
    fn events(&self, name: &str) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let all = self.server.list("events");
        let about =
            all.iter().filter(|event| event["regarding"]["kind"] == "Service" && event["regarding"]["name"] == name);
        about.map(|event| (text(&event["reason"]), text(&event["note"]))).collect()
    }

    /// The reason and note of what stands in the way of a Service.
    fn obstacle(&self, name: &str) -> Option<(String, String)> {
        let is_obstacle = |reason: &str| {
            !["EnsuringLoadBalancer", "EnsuredLoadBalancer", "DeletingLoadBalancer", "SyncLoadBalancerFailed"]
                .contains(&reason)
        };
        self.events(name).into_iter().find(|(reason, _)| is_obstacle(reason))
    }

    /// Waits for this.
    async fn until(&self, what: &str, is: impl AsyncFn() -> bool) {
        let began = Instant::now();
        while !is().await {
            assert!(
                began.elapsed() < Duration::from_secs(600),
                "{what}: {:#?} {:#?}",
                self.writes(),
                self.server.list("events")
            );
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// The objects of a kind in the cluster's resource group.
    async fn list(&self, kind: NetworkType) -> Vec<Value> {
        let until = lazuli_azure::Until::within(Duration::from_secs(60));
        self.network.list(kind, scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP, &until).await.unwrap()
    }

    /// The addresses in a Service's status, once there are some.
    async fn addresses(&self, name: &str) -> Vec<String> {
        let began = Instant::now();
        loop {
            let service = self.server.get("services", "default", name).unwrap();
            let ingress = service["status"]["loadBalancer"]["ingress"].as_array().cloned().unwrap_or_default();
            if !ingress.is_empty() {
                return ingress.iter().map(|one| one["ip"].as_str().unwrap().to_owned()).collect();
            }
            assert!(began.elapsed() < Duration::from_secs(300), "{name} has no address: {:#?}", self.writes());
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Makes Services, evenly over a time, and returns in seconds how long each took to its address, sorted.
    async fn storm(&self, services: u32, spread: Duration) -> Vec<f64> {
        let began = Instant::now();
        let (mut waiting, mut times, mut seen) = (BTreeMap::new(), Vec::new(), 0);
        let mut due =
            (0..services).map(|at| (began + spread / services * at, format!("web-{services}-{at}"))).peekable();
        while due.peek().is_some() || !waiting.is_empty() {
            assert!(began.elapsed() < Duration::from_secs(600), "{} Services have no address", waiting.len());
            while let Some((_, name)) = due.next_if(|(at, _)| *at <= Instant::now()) {
                self.service(&name);
                waiting.insert(name, Instant::now());
            }
            let version = self.server.version();
            let services = if version == seen { vec![] } else { self.server.list("services") };
            seen = version;
            for service in services {
                let name = service["metadata"]["name"].as_str().unwrap();
                if service["status"]["loadBalancer"]["ingress"].is_array()
                    && let Some(made) = waiting.remove(name)
                {
                    times.push(made.elapsed().as_secs_f64());
                }
            }
            sleep(Duration::from_millis(20)).await;
        }
        times.sort_by(f64::total_cmp);
        times
    }

    /// How many calls of Azure's operations of a type were made.
    fn count(&self, of: &str) -> usize {
        self.emulator.control().call_log().iter().filter(|call| call.operation.starts_with(of)).count()
    }

    /// How many requests Azure refused for coming too soon.
    fn throttled(&self) -> usize {
        self.emulator.control().call_log().iter().filter(|call| call.status == 429).count()
    }

    /// How often each kind of object was read so far, alone or in a list.
    fn reads(&self) -> BTreeMap<String, usize> {
        let mut reads = BTreeMap::new();
        for call in self.emulator.control().call_log() {
            if call.plane == "arm" && call.method == "GET" && !call.path.contains("/operations/") {
                let kind =
                    call.path.split("/providers/").nth(1).and_then(|rest| rest.split('/').nth(1)).unwrap_or_default();
                *reads.entry(kind.to_owned()).or_default() += 1;
            }
        }
        reads
    }

    /// What was written to Azure so far.
    fn writes(&self) -> Vec<String> {
        let calls = self.emulator.control().call_log();
        let calls = calls.iter().map(|call| serde_json::to_value(call).unwrap());
        calls
            .filter(|call| call["plane"] == "arm" && call["method"] != "GET")
            .map(|call| {
                let path = call["path"].as_str().unwrap();
                format!("{} {} {}", call["method"].as_str().unwrap(), path.rsplit('/').next().unwrap(), call["status"])
            })
            .collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_gets_its_address_and_leaves_nothing_behind() {
    let rig = Rig::start().await;
    rig.service("web");
    let began = Instant::now();
    let (stop, running) = rig.controller("one");
    let addresses = rig.addresses("web").await;
    assert_eq!(addresses.len(), 1);
    assert!(began.elapsed() < Duration::from_secs(60), "{:?} {:#?}", began.elapsed(), rig.writes());
    let service = rig.server.get("services", "default", "web").unwrap();
    assert_eq!(service["metadata"]["finalizers"], json!(["service.kubernetes.io/load-balancer-cleanup"]));

    rig.service("other");
    let began = Instant::now();
    rig.addresses("other").await;
    assert!(began.elapsed() < Duration::from_secs(9), "{:?} {:#?}", began.elapsed(), rig.writes());

    for name in ["web", "other"] {
        rig.server.delete("services", "default", name).unwrap();
    }
    let began = Instant::now();
    while !rig.server.list("services").is_empty() {
        assert!(began.elapsed() < Duration::from_secs(300), "{:#?}", rig.writes());
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(rig.list(NetworkType::PublicIp).await, Vec::<Value>::new(), "{:#?}", rig.writes());
    stop.cancel();
    assert_eq!(running.await.unwrap(), Ended::Stopped);
}

#[tokio::test(start_paused = true)]
async fn a_new_process_writes_nothing() {
    let rig = Rig::start().await;
    for name in ["a", "b", "c"] {
        rig.service(name);
    }
    let (stop, running) = rig.controller("one");
    for name in ["a", "b", "c"] {
        rig.addresses(name).await;
    }
    sleep(Duration::from_secs(60)).await;
    stop.cancel();
    running.await.unwrap();
    let (writes, version) = (rig.writes(), rig.server.get("services", "default", "a").unwrap());
    let (stop, running) = rig.controller("two");
    sleep(Duration::from_secs(600)).await;
    assert_eq!(rig.writes(), writes);
    assert_eq!(rig.server.get("services", "default", "a").unwrap(), version);
    stop.cancel();
    assert_eq!(running.await.unwrap(), Ended::Stopped);
}

/// 300 public IPs from a bucket of 200 writes that 10 a second refill, then the load balancer: 10.2 s, 3 s and 4 s.
#[tokio::test(start_paused = true)]
async fn a_storm_of_services_is_served_as_fast_as_azures_limits_allow() {
    let rig = Rig::start().await;
    let (stop, running) = rig.controller("one");
    sleep(Duration::from_secs(60)).await;
    let before = rig.count("networkSecurityGroups.createOrUpdate");
    let times = rig.storm(300, Duration::ZERO).await;
    assert!(times[299] < 1.2 * 17.2, "the last after {:.1} s", times[299]);
    sleep(Duration::from_secs(30)).await;
    let writes = rig.count("loadBalancers.createOrUpdate") + rig.count("networkSecurityGroups.createOrUpdate") - before;
    assert!(writes <= 12, "{writes} writes of what the Services share");
    assert_eq!(rig.count("publicIPAddresses.createOrUpdate"), 300);
    let reads = rig.count("publicIPAddresses.get");
    assert!(reads < 450, "{reads} reads of public IPs: one each, and one each of those whose end was polled");
    assert_eq!(rig.throttled(), 0);
    stop.cancel();
    assert_eq!(running.await.unwrap(), Ended::Stopped);
}

#[tokio::test(start_paused = true)]
async fn services_that_come_one_after_the_other_wait_for_no_more_than_the_write_in_flight() {
    let rig = Rig::start().await;
    let (stop, running) = rig.controller("one");
    sleep(Duration::from_secs(60)).await;
    let times = rig.storm(1, Duration::ZERO).await;
    assert!(times[0] < 8.0, "one alone after {:.1} s", times[0]);
    let times = rig.storm(150, Duration::from_secs(30)).await;
    assert!(times[148] < 16.0, "99 % after {:.1} s", times[148]);
    assert_eq!(rig.throttled(), 0);
    stop.cancel();
    assert_eq!(running.await.unwrap(), Ended::Stopped);
}

#[tokio::test(start_paused = true)]
async fn a_resync_writes_nothing_and_reads_each_kind_once() {
    let rig = Rig::start().await;
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    for name in names {
        rig.service(name);
    }
    let (stop, running) = rig.controller("one");
    for name in names {
        rig.addresses(name).await;
    }
    sleep(RESYNC / 2).await;
    let (writes, reads) = (rig.writes(), rig.reads());
    sleep(RESYNC).await;
    assert_eq!(rig.writes(), writes);
    let after = rig.reads();
    let more = |kind: &str| after[kind] - reads[kind];
    assert_eq!(["loadBalancers", "networkSecurityGroups", "publicIPAddresses"].map(more), [1, 1, 1]);
    stop.cancel();
    running.await.unwrap();
}
