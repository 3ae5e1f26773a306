//! The controllers of Nodes against the emulator and the small API server, in one runtime on paused time.

mod machines;

use std::{sync::Mutex, time::Duration};

use futures::FutureExt as _;
use kube::Client;
use lazuli_apiserver::{ApiServer, Options as ApiServerOptions};
use lazuli_azure::{
    Until,
    arm::Write,
    compute::{ApiVersions, Compute},
    network::{API_VERSION, Network, NetworkType, NetworkWrite},
    on_emulator::{client, principal, routes},
    transport::Transport,
};
use lazuli_cluster::{Ended, LeaseName};
use lazuli_emulator::{
    Emulator, Options as EmulatorOptions, Switches, incident::Incident, latency::Profile, options::MissingInstance,
    scenario,
};
use lazuli_journal::PrintedAtFailure;
use lazuli_model::{
    ArmId,
    event::{Event, Regarding},
    tags::TagPolicy,
};
use lazuli_nodes::cloud_node::step::Controllers;
use lazuli_quota::{permit::Priority, poll::Kind};
use lazuli_telemetry::lossy;
use prometheus_client::metrics::counter::Counter;
use serde_json::{Value, json};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{NodeOptions, RouteOptions};
use crate::{Controller, Options, tests::settings};

const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

struct Rig {
    emulator: Emulator,
    server: ApiServer,
    compute: Compute,
    network: Network,
    events: lossy::Sender<Event>,
    told: Mutex<lossy::Receiver<Event>>,
    journals: PrintedAtFailure,
}

fn id(kind: &str, name: &str) -> ArmId {
    ArmId::resource(scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP, kind, name).unwrap()
}

fn vm(name: &str) -> ArmId {
    id("Microsoft.Compute/virtualMachines", name)
}

fn table() -> ArmId {
    id("Microsoft.Network/routeTables", "rt")
}

fn until() -> Until {
    Until::within(Duration::from_secs(3_600))
}

impl Rig {
    async fn start() -> Self {
        Self::start_with(Switches::default()).await
    }

    /// With this choice where no document says what Azure does.
    async fn start_with(unverified: Switches) -> Self {
        let mut scenario = scenario::Scenario::default();
        scenario.virtual_machines = vec![scenario::VirtualMachine::pattern("node-{}", 20)];
        scenario.scale_sets = vec![scenario::ScaleSet::uniform("pool", 2)];
        Self::of(scenario, unverified).await
    }

    async fn of(scenario: scenario::Scenario, unverified: Switches) -> Self {
        let options =
            EmulatorOptions { latency: Profile::typical(), scenario, unverified, ..EmulatorOptions::default() };
        let emulator = Emulator::start(options).await.unwrap();
        let transport = Transport::in_process(routes(&emulator.url().parse().unwrap()), emulator.service());
        let credential = principal(scenario::TENANT, scenario::CLIENT_ID, scenario::CLIENT_SECRET);
        let arm = client(transport, credential, 7);
        let (compute, network) = (Compute::new(arm.clone(), ApiVersions::public()), Network::new(arm, API_VERSION));
        // Reads bring the token that writes need at hand.
        network
            .list(NetworkType::RouteTable, scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP, &until())
            .await
            .unwrap();
        let (events, told) = lossy::channel(1_000, Counter::default());
        let server = ApiServer::start(ApiServerOptions::default());
        Self {
            emulator,
            server,
            compute,
            network,
            events,
            told: Mutex::new(told),
            journals: PrintedAtFailure::default(),
        }
    }

    fn controller(&self, identity: &str) -> (CancellationToken, JoinHandle<Ended>) {
        let start = Instant::now();
        let options = Options {
            settings: settings(),
            zones: None,
            lease: LeaseName {
                namespace: "kube-system".to_owned(),
                name: "cloud-controller-manager".to_owned(),
                identity: identity.to_owned(),
            },
            lease_view: Default::default(),
            operations: Default::default(),
            class: None,
            external: Default::default(),
            accepted_plan: None,
            resync: None,
            events: self.events.clone(),
            journal: self.journals.recorder(identity, move || start.elapsed()),
        };
        let subnet = format!(
            "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/virtualNetworks/lazuli-vnet/subnets/nodes",
            scenario::SUBSCRIPTION,
            scenario::RESOURCE_GROUP
        );
        let nodes = NodeOptions {
            controllers: Controllers { node: true, lifecycle: true, route: true },
            subscription: scenario::SUBSCRIPTION.to_owned(),
            resource_group: scenario::RESOURCE_GROUP.to_owned(),
            grace: Duration::from_secs(60),
            address_refresh: Duration::from_secs(300),
            route_settle: Duration::ZERO,
            metadata_wait: Duration::ZERO,
            beta_labels: Default::default(),
            pod_ranges: Default::default(),
            routes: Some(RouteOptions {
                table: table(),
                subnet: Some(subnet.parse().unwrap()),
                location: scenario::LOCATION.to_owned(),
                update_interval: Duration::ZERO,
                tags: TagPolicy::default(),
                cluster_ranges: vec!["10.244.0.0/16".parse().unwrap()],
                service_ranges: vec!["10.244.240.0/20".parse().unwrap()],
            }),
        };
        let client = Client::new(self.server.router(), "default");
        let metrics = lazuli_reconcile::metrics::Metrics::unregistered();
        let controller = Controller::new(options, self.network.clone(), client, metrics)
            .with_nodes(nodes, self.compute.clone())
            .without_services();
        let stop = CancellationToken::new();
        (stop.clone(), tokio::spawn(controller.run(stop)))
    }

    /// A Node as kubelet registers it.
    fn register(&self, at: usize) {
        let node = json!({"metadata": {"name": format!("node-{at}")},
            "spec": {"podCIDRs": [format!("10.244.{at}.0/24")], "taints": [
                {"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"},
                {"key": "dedicated", "value": "db", "effect": "NoSchedule"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        self.server.put("nodes", node).unwrap();
    }

    fn node(&self, at: usize) -> Option<Value> {
        self.server.get("nodes", "", &format!("node-{at}"))
    }

    /// What kubelet's silence makes of a Node.
    fn stop_kubelet(&self, at: usize) {
        self.set_ready(at, "Unknown");
    }

    fn set_ready(&self, at: usize, status: &str) {
        let mut node = self.node(at).unwrap();
        let conditions = node["status"]["conditions"].as_array_mut().unwrap();
        conditions.iter_mut().find(|one| one["type"] == "Ready").unwrap()["status"] = status.into();
        self.server.put("nodes", node).unwrap();
    }

    fn condition(&self, at: usize) -> Option<String> {
        let node = self.node(at)?;
        let conditions = node["status"]["conditions"].as_array()?;
        let network = conditions.iter().find(|one| one["type"] == "NetworkUnavailable")?;
        Some(format!("{} {}", network["status"].as_str()?, network["reason"].as_str()?))
    }

    fn taints(&self, at: usize) -> Vec<String> {
        let node = self.node(at).unwrap();
        let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        taints.iter().map(|one| one["key"].as_str().unwrap().rsplit('/').next().unwrap().to_owned()).collect()
    }

    /// Waits for this, in the time of the paused clock. Returns how long it took.
    async fn wait(&self, what: &str, is: impl Fn() -> bool) -> Duration {
        let began = Instant::now();
        while !is() {
            let nodes: Vec<Value> = self.server.list("nodes");
            assert!(began.elapsed() < Duration::from_secs(400), "{what}: {:#?}\n{nodes:#?}", self.writes());
            sleep(Duration::from_millis(100)).await;
        }
        began.elapsed()
    }

    async fn delete_vm(&self, at: usize) {
        self.delete_machine(&vm(&format!("node-{at}"))).await;
    }

    async fn delete_machine(&self, machine: &ArmId) {
        let version = ApiVersions::public().virtual_machines;
        let write = Write::delete(machine.as_str(), version, Kind::Other);
        let mut deleted = self.network.arm().write(write, &until()).await.unwrap();
        deleted.settle(&until()).await.unwrap();
    }

    async fn turn(&self, at: usize, how: &str) {
        let path = format!("{}/{how}", vm(&format!("node-{at}")));
        let version = ApiVersions::public().virtual_machines;
        let write = Write::post(&path, version, None, Kind::Other);
        let mut turned = self.network.arm().write(write, &until()).await.unwrap();
        turned.settle(&until()).await.unwrap();
    }

    /// The routes, as `name range hop`.
    async fn routes(&self) -> Vec<String> {
        let (table, until) = (table(), until());
        let read = self.network.arm().get(table.as_str(), API_VERSION, &[], Priority::Read, &until);
        let Ok(body) = read.await else { return vec![] };
        let text = |route: &Value, key: &str| route["properties"][key].as_str().unwrap_or("-").to_owned();
        let routes = body.value["properties"]["routes"].as_array().cloned().unwrap_or_default();
        routes
            .iter()
            .map(|route| {
                let name = route["name"].as_str().unwrap();
                format!("{name} {} {}", text(route, "addressPrefix"), text(route, "nextHopIpAddress"))
            })
            .collect()
    }

    async fn put_table(&self, routes: Value) {
        let body = json!({"location": scenario::LOCATION, "properties": {"routes": routes}});
        let put = NetworkWrite::Put { body, etag: None };
        let mut made = self.network.write(NetworkType::RouteTable, &table(), put, None, &until()).await.unwrap();
        made.settle(&until()).await.unwrap();
    }

    /// The reasons of all events about a Node since the last call, in order.
    fn told(&self, at: usize) -> Vec<&'static str> {
        let mut told = self.told.try_lock().unwrap();
        let all = std::iter::from_fn(|| told.receive().now_or_never().flatten());
        let of_it = all.filter(|event| event.regarding == Regarding::Node(format!("node-{at}")));
        of_it.map(|event| event.reason.as_str()).collect()
    }

    /// What was written to Azure so far.
    fn writes(&self) -> Vec<String> {
        let calls = self.emulator.control().call_log();
        let writes = calls.iter().filter(|call| call.plane == "arm" && call.method != "GET");
        writes
            .map(|call| format!("{} {} {}", call.method, call.path.rsplit('/').next().unwrap_or_default(), call.status))
            .collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_node_is_initialised_routed_and_unavailable_until_then() {
    let rig = Rig::start().await;
    (0..3).for_each(|at| rig.register(at));
    let (stop, running) = rig.controller("one");
    rig.wait("node-0 is initialised", || !rig.taints(0).contains(&"uninitialized".to_owned())).await;
    assert_eq!(rig.condition(0).as_deref(), Some("True NodeInitialization"));
    rig.wait("the routes exist", || (0..3).all(|at| rig.condition(at).as_deref() == Some("False RouteCreated"))).await;
    let node = rig.node(0).unwrap();
    let group = scenario::RESOURCE_GROUP.to_lowercase();
    let provider_id = format!(
        "azure:///subscriptions/{}/resourceGroups/{group}/providers/Microsoft.Compute/virtualMachines/node-0",
        scenario::SUBSCRIPTION
    );
    assert_eq!(node["spec"]["providerID"], provider_id);
    assert_eq!(rig.taints(0), ["dedicated"]);
    let label = |key: &str| node["metadata"]["labels"][key].as_str().unwrap_or("none").to_owned();
    assert_eq!(label("node.kubernetes.io/instance-type"), "Standard_D8s_v3");
    assert_eq!(label("topology.kubernetes.io/region"), scenario::LOCATION);
    assert_eq!(label("topology.kubernetes.io/zone"), "0");
    let addresses = json!([{"type": "Hostname", "address": "node-0"}, {"type": "InternalIP", "address": "10.240.0.4"}]);
    assert_eq!(node["status"]["addresses"], addresses);
    let routes = rig.routes().await;
    assert_eq!(
        routes,
        [
            "node-0____102440024 10.244.0.0/24 10.240.0.4",
            "node-1____102441024 10.244.1.0/24 10.240.0.5",
            "node-2____102442024 10.244.2.0/24 10.240.0.6",
        ]
    );
    rig.wait("the subnet belongs to the table", || rig.writes().contains(&"PUT nodes 200".to_owned())).await;
    let tables = rig.writes().iter().filter(|write| write.contains("PUT rt")).count();
    assert!(tables <= 2, "{:?}", rig.writes());

    // A Node that is deleted takes its route along, and no other.
    rig.server.delete("nodes", "", "node-1").unwrap();
    let puts = rig.writes().len();
    rig.wait("the route is removed", || rig.writes().len() > puts).await;
    sleep(Duration::from_secs(20)).await;
    assert_eq!(rig.routes().await.len(), 2);
    stop.cancel();
    assert_eq!(running.await.unwrap(), Ended::Stopped);

    // Another one takes over: nothing is written.
    let (version, writes) = (rig.server.version(), rig.writes());
    let (stop, running) = rig.controller("two");
    sleep(Duration::from_secs(400)).await;
    stop.cancel();
    running.await.unwrap();
    assert_eq!(rig.writes(), writes);
    let leases = rig.server.list("leases")[0]["metadata"]["resourceVersion"].as_str().map(str::to_owned);
    assert!(leases.is_some());
    let nodes: Vec<u64> = rig.server.list("nodes").iter().map(version_of).collect();
    assert!(nodes.iter().all(|node| *node <= version), "{nodes:?} after {version}");
}

/// What the plugin of a machine publishes there.
fn published(machine: &ArmId, address: &str) -> Value {
    let facts = json!({"resourceId": machine.as_str(), "vmSize": "Standard_D8s_v3", "faultDomain": 0,
        "location": scenario::LOCATION, "addresses": [{"private": address}], "bootId": "boot"});
    json!({"lazuli.azure/instance-metadata": facts.to_string()})
}

#[tokio::test(start_paused = true)]
async fn nodes_whose_plugins_tell_everything_are_initialised_without_a_read_of_azure() {
    let rig = Rig::start().await;
    // A scale set's machine is called otherwise than the set: Azure has to prove that it is the Node's.
    let instance = format!("{}/virtualMachines/1", id("Microsoft.Compute/virtualMachineScaleSets", "pool"));
    let instance: ArmId = instance.parse().unwrap();
    for (at, machine) in (0..5).map(|at| (at, vm(&format!("node-{at}")))).chain([(7, vm("node-6"))]) {
        rig.register(at);
        let mut node = rig.node(at).unwrap();
        node["metadata"]["annotations"] = published(&machine, &format!("10.240.0.{}", 4 + at));
        node["status"]["nodeInfo"] = json!({"bootID": "boot"});
        rig.server.put("nodes", node).unwrap();
    }
    let of_set = json!({"metadata": {"name": "renamed000001", "annotations": published(&instance, "10.240.0.99")},
        "spec": {"taints": [{"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]},
        "status": {"nodeInfo": {"bootID": "boot"}, "conditions": [{"type": "Ready", "status": "True"}]}});
    let (stop, running) = rig.controller("one");
    let is_done = |at: usize| rig.condition(at).as_deref() == Some("False RouteCreated");
    rig.wait("five are served", || (0..5).all(is_done)).await;
    let reads = |kind: &str| -> Vec<String> {
        let calls = rig.emulator.control().call_log();
        let all = calls.iter().filter(|call| call.plane == "arm" && call.method == "GET");
        all.map(|call| call.path.clone()).filter(|path| path.contains(kind)).collect()
    };
    // What claims to be another Node's machine is read.
    rig.wait("the other is served too", || is_done(7)).await;
    let node = rig.node(7).unwrap();
    assert!(node["spec"]["providerID"].as_str().unwrap().ends_with("/node-7"), "{node:#}");
    for other in ["node-0", "node-1", "node-2", "node-3", "node-4"] {
        assert!(!reads("Microsoft.").iter().any(|path| path.ends_with(other)), "{:#?}", reads("Microsoft."));
    }
    assert_eq!(rig.node(3).unwrap()["status"]["addresses"][1]["address"], "10.240.0.7");
    let before = reads("Microsoft.Compute").len();
    assert!(before <= 2, "{:#?}", reads("Microsoft.Compute"));
    rig.server.put("nodes", of_set).unwrap();
    sleep(Duration::from_secs(30)).await;
    let node = rig.server.get("nodes", "", "renamed000001").unwrap();
    assert_eq!(node["spec"]["providerID"].as_str(), None, "the computer of that instance is called otherwise");
    stop.cancel();
    running.await.unwrap();
}

fn version_of(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_node_goes_when_its_vm_is_gone_and_a_stopped_one_is_out_of_service_until_it_runs() {
    let rig = Rig::start().await;
    (0..4).for_each(|at| rig.register(at));
    let (stop, running) = rig.controller("one");
    rig.wait("the routes exist", || (0..4).all(|at| rig.condition(at).as_deref() == Some("False RouteCreated"))).await;
    sleep(Duration::from_secs(60)).await;

    rig.delete_vm(1).await;
    rig.stop_kubelet(1);
    rig.wait("node-1 is deleted", || rig.node(1).is_none()).await;
    assert_eq!(rig.told(1), ["Synced", "DeletingNode"]);

    rig.turn(2, "deallocate").await;
    rig.stop_kubelet(2);
    let took = rig.wait("node-2 is out of service", || rig.taints(2).contains(&"out-of-service".to_owned())).await;
    assert!(took < Duration::from_secs(60), "{took:?}");
    assert_eq!(rig.taints(2), ["dedicated", "shutdown", "out-of-service"]);
    assert_eq!(rig.told(2), ["NodeOutOfService"]);
    let taint = &rig.node(2).unwrap()["spec"]["taints"][2];
    assert_eq!((taint["effect"].as_str(), taint.get("value")), (Some("NoExecute"), None));

    // A Node that only lost its kubelet stays as it is.
    rig.stop_kubelet(3);
    sleep(Duration::from_secs(300)).await;
    assert_eq!(rig.taints(3), ["dedicated"]);

    rig.turn(2, "start").await;
    rig.set_ready(2, "True");
    rig.wait("node-2 is in service", || rig.taints(2) == ["dedicated"]).await;
    assert_eq!(rig.routes().await.len(), 3);
    stop.cancel();
    running.await.unwrap();
}

/// Azure answers a read of such an instance with 404, with 400, or, where the set is gone too, with 404 of the set.
#[tokio::test(start_paused = true)]
async fn the_node_of_an_instance_goes_when_its_set_does_not_list_it_or_is_gone_too() {
    for missing in [MissingInstance::NotFound, MissingInstance::InvalidParameter] {
        let rig = Rig::start_with(Switches { missing_instance: missing, ..Switches::default() }).await;
        rig.register(0);
        let set = id("Microsoft.Compute/virtualMachineScaleSets", "pool");
        let instance = |at: usize| -> ArmId { format!("{set}/virtualMachines/{at}").parse().unwrap() };
        for at in 0..2 {
            let node = json!({"metadata": {"name": format!("node-{}", 100 + at)},
                "spec": {"providerID": format!("azure://{}", instance(at))},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
            rig.server.put("nodes", node).unwrap();
        }
        let (stop, running) = rig.controller("one");
        sleep(Duration::from_secs(120)).await;
        rig.delete_machine(&instance(0)).await;
        rig.stop_kubelet(100);
        rig.wait("the Node of a deleted instance is deleted", || rig.node(100).is_none()).await;
        // A set that lists the instance proves the opposite.
        let refusal = json!({"match": {"method": "GET", "path": "*/virtualMachines/1"},
            "then": {"status": 400, "code": "InvalidParameter"}, "times": 0});
        rig.emulator.control().add_incident(serde_json::from_value(refusal).unwrap()).unwrap();
        rig.stop_kubelet(101);
        sleep(Duration::from_secs(300)).await;
        assert!(rig.node(101).is_some(), "{missing:?}");
        rig.emulator.control().clear_incidents();
        rig.delete_machine(&set).await;
        rig.wait("the Node of a deleted set is deleted", || rig.node(101).is_none()).await;
        stop.cancel();
        running.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn routes_of_nodes_that_were_deleted_while_nobody_led_go_and_foreign_ones_stay() {
    let rig = Rig::start().await;
    let route = |name: &str, range: &str| {
        json!({"name": name, "properties": {
            "addressPrefix": range, "nextHopType": "VirtualAppliance", "nextHopIpAddress": "10.240.0.99"}})
    };
    rig.put_table(json!([
        route("node-9____102449024", "10.244.9.0/24"),
        route("firewall", "10.9.0.0/16"),
        route("other____192168024", "192.168.0.0/24"),
    ]))
    .await;
    rig.register(0);
    let (stop, running) = rig.controller("one");
    rig.wait("the route exists", || rig.condition(0).as_deref() == Some("False RouteCreated")).await;
    sleep(Duration::from_secs(60)).await;
    let routes = rig.routes().await;
    let names: Vec<&str> = routes.iter().filter_map(|route| route.split(' ').next()).collect();
    assert_eq!(names, ["firewall", "other____192168024", "node-0____102440024"]);
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn when_many_vms_are_gone_at_once_nodes_go_one_in_ten_seconds() {
    let rig = Rig::start().await;
    (0..20).for_each(|at| rig.register(at));
    let (stop, running) = rig.controller("one");
    let is_done = |at: usize| rig.condition(at).as_deref() == Some("False RouteCreated");
    rig.wait("the routes exist", || (0..20).all(is_done)).await;
    sleep(Duration::from_secs(60)).await;
    for at in 0..18 {
        rig.delete_vm(at).await;
    }
    (0..18).for_each(|at| rig.stop_kubelet(at));
    let left = || (0..18).filter(|at| rig.node(*at).is_some()).count();
    rig.wait("ten are deleted", || left() <= 8).await;
    let slow = rig.wait("all are deleted", || left() == 0).await;
    assert!(slow >= Duration::from_secs(70), "{slow:?}");
    assert!(rig.node(18).is_some() && rig.node(19).is_some());
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_may_not_be_read_is_never_taken_for_gone() {
    let refusals = [
        json!([{"match": {"method": "GET", "path": "*/virtualMachines/node-1"},
            "then": {"status": 403, "code": "AuthorizationFailed"}, "times": 0}]),
        json!([{"match": {"method": "GET", "path": "*/virtualMachines/node-1"},
            "then": {"status": 404, "code": "ResourceGroupNotFound"}, "times": 0}]),
        // It is gone, and no control answers.
        json!([{"match": {"method": "GET", "path": "*/virtualMachines/node-1"},
                "then": {"status": 404, "code": "ResourceNotFound"}, "times": 0},
            {"match": {"method": "GET", "path": "*/virtualMachines*"},
                "then": {"status": 403, "code": "AuthorizationFailed"}, "times": 0}]),
    ];
    for incidents in refusals {
        let rig = Rig::start().await;
        (0..4).for_each(|at| rig.register(at));
        let (stop, running) = rig.controller("one");
        let is_done = |at: usize| rig.condition(at).as_deref() == Some("False RouteCreated");
        rig.wait("the routes exist", || (0..4).all(is_done)).await;
        sleep(Duration::from_secs(60)).await;
        for incident in incidents.as_array().unwrap() {
            let incident: Incident = serde_json::from_value(incident.clone()).unwrap();
            rig.emulator.control().add_incident(incident).unwrap();
        }
        rig.stop_kubelet(1);
        sleep(Duration::from_secs(600)).await;
        assert_eq!(rig.taints(1), ["dedicated"]);
        // It was only the right that was missing.
        rig.emulator.control().clear_incidents();
        rig.delete_vm(1).await;
        rig.wait("node-1 is deleted", || rig.node(1).is_none()).await;
        stop.cancel();
        running.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_is_killed_at_any_time_is_followed_by_one_that_finishes() {
    for kill_after in (100..4_000).step_by(300) {
        let rig = Rig::start().await;
        (0..3).for_each(|at| rig.register(at));
        let (_, killed) = rig.controller("killed");
        sleep(Duration::from_millis(kill_after)).await;
        killed.abort();
        rig.server.delete("nodes", "", "node-2").unwrap();
        let (stop, running) = rig.controller("next");
        let is_done = |at: usize| {
            rig.condition(at).as_deref() == Some("False RouteCreated")
                && !rig.taints(at).contains(&"uninitialized".to_owned())
        };
        rig.wait("both are served", || (0..2).all(is_done)).await;
        sleep(Duration::from_secs(60)).await;
        let routes = rig.routes().await;
        assert_eq!(routes.len(), 2, "killed after {kill_after} ms: {routes:?}");
        let unsafe_writes: Vec<String> =
            rig.writes().into_iter().filter(|write| write.starts_with("DELETE") || write.contains(" 409")).collect();
        assert!(unsafe_writes.is_empty(), "{unsafe_writes:?}");
        stop.cancel();
        running.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_list_of_nodes_removes_no_route() {
    let rig = Rig::start().await;
    let route = json!({"name": "node-0____102440024", "properties": {
        "addressPrefix": "10.244.0.0/24", "nextHopType": "VirtualAppliance", "nextHopIpAddress": "10.240.0.4"}});
    rig.put_table(json!([route])).await;
    let writes = rig.writes();
    let (stop, running) = rig.controller("one");
    sleep(Duration::from_secs(600)).await;
    stop.cancel();
    running.await.unwrap();
    assert_eq!(rig.writes(), writes);
}
