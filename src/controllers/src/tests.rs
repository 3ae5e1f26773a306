//! The service controller against the emulator and the small API server, in one runtime on paused time.

use std::time::Duration;

use kube::Client;
use lazuli_apiserver::{ApiServer, Options as ApiServerOptions};
use lazuli_azure::{
    arm::{Arm, Retry},
    auth::{Credential, Secret, Tokens},
    metrics::Metrics,
    network::{API_VERSION, Network},
    transport::{Routes, Transport},
};
use lazuli_cluster::{Ended, LeaseName};
use lazuli_emulator::{Emulator, Options as EmulatorOptions, latency::Profile, scenario};
use lazuli_plan::network::{
    Settings, TagPolicy,
    settings::{LoadBalancerSku, PoolKind, PreconfiguredPools},
};
use serde_json::{Value, json};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::{Controller, Options};

const ARM: &str = "https://management.azure.com/";
const LOGIN: &str = "https://login.microsoftonline.com/";

struct Rig {
    emulator: Emulator,
    server: ApiServer,
    network: Network,
}

fn url(text: &str) -> Url {
    text.parse().unwrap()
}

pub(crate) fn settings() -> Settings {
    let group = || scenario::RESOURCE_GROUP.to_owned();
    Settings {
        cluster_name: "kubernetes".to_owned(),
        subscription: scenario::SUBSCRIPTION.to_owned(),
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
        disable_outbound_snat: false,
        shared_probe: None,
        may_change_ip_tags: false,
        tags: TagPolicy::default(),
        edge_zone: None,
    }
}

impl Rig {
    async fn start() -> Self {
        let options = EmulatorOptions { latency: Profile::typical(), ..EmulatorOptions::default() };
        let emulator = Emulator::start(options).await.unwrap();
        let base = url(&emulator.url());
        let routes =
            [ARM, LOGIN].iter().fold(Routes::none(), |routes, origin| routes.with(&url(origin), &base).unwrap());
        let transport = Transport::in_process(routes, emulator.service());
        let credential = Credential::ClientSecret {
            tenant_id: scenario::TENANT.into(),
            client_id: scenario::CLIENT_ID.into(),
            secret: Secret::new(scenario::CLIENT_SECRET),
            authority: url(LOGIN),
        };
        let tokens = Tokens::new(transport.clone(), credential, ARM, 7);
        let arm = Arm::new(url(ARM), transport, tokens, Metrics::unregistered(), Retry::default(), 7);
        let group = "nodes-nsg";
        let (subscription, resource_group) = (scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP);
        let path = format!(
            "/subscriptions/{subscription}/resourceGroups/{resource_group}/providers/Microsoft.Network/networkSecurityGroups/{group}"
        );
        let until = lazuli_azure::Until::within(Duration::from_secs(3_600));
        let network = Network::new(arm, API_VERSION);
        // Reads bring the token that writes need at hand.
        let kind = lazuli_azure::network::NetworkType::SecurityGroup;
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
        Self { emulator, server, network }
    }

    fn controller(&self, identity: &str) -> (CancellationToken, JoinHandle<Ended>) {
        let options = Options {
            settings: settings(),
            zones: vec![],
            lease: LeaseName {
                namespace: "kube-system".to_owned(),
                name: "cloud-controller-manager".to_owned(),
                identity: identity.to_owned(),
            },
            class: None,
        };
        let client = Client::new(self.server.router(), "default");
        let metrics = lazuli_reconcile::metrics::Metrics::unregistered();
        let controller = Controller::new(options, self.network.clone(), client, metrics);
        let stop = CancellationToken::new();
        (stop.clone(), tokio::spawn(controller.run(stop)))
    }

    fn service(&self, name: &str) -> Value {
        let service = json!({"metadata": {"name": name}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
        self.server.put("services", service).unwrap()
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
    let (kind, until) =
        (lazuli_azure::network::NetworkType::PublicIp, lazuli_azure::Until::within(Duration::from_secs(60)));
    let left = rig.network.list(kind, scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP, &until);
    assert_eq!(left.await.unwrap(), Vec::<Value>::new(), "{:#?}", rig.writes());
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
