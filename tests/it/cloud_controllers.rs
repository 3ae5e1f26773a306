//! The process `lazuli cloud-controllers` against Azure and an API server behind sockets: what it serves, how it stops,
//! and which rights in Azure that takes.

use std::{
    collections::BTreeSet,
    process::{ExitStatus, Stdio},
    time::{Duration, Instant},
};

use lazuli_emulator::{call_log::Call, scenario::ScaleSet};
use lazuli_rig::cluster::Cluster;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use super::deploy_azure::{actions, needed, table};

/// What only a hang reaches, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(90);
/// How often a condition that announces itself by no event is looked at.
const LOOK: Duration = Duration::from_millis(5);
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
const ROLES: [&str; 2] = ["role-cloud-controllers.json", "role-scale-set-pools.json"];

struct World(Cluster);

impl World {
    async fn start(pool_type: &str) -> Self {
        Self::of(lazuli_emulator::Options::default(), pool_type).await
    }

    async fn of(options: lazuli_emulator::Options, pool_type: &str) -> Self {
        let keys =
            [("loadBalancerBackendPoolConfigurationType", pool_type.into()), ("routeTableName", "nodes-routes".into())];
        let world = Self(Cluster::start(options, &keys).await.unwrap());
        world.new_node(1);
        world
    }

    /// A Node as kubelet registers it when the cloud provider is external.
    fn new_node(&self, at: u8) {
        let taint = json!({"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"});
        let node = json!({"metadata": {"name": format!("node-{at}")},
            "spec": {"podCIDRs": [format!("10.244.{at}.0/24")], "taints": [taint]},
            "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
        self.0.server.put("nodes", node).unwrap();
    }

    fn is_initialised(&self, at: u8) -> bool {
        let node = self.0.server.get("nodes", "", &format!("node-{at}")).unwrap();
        let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        node["spec"]["providerID"].is_string() && !taints.iter().any(|taint| taint["key"] == UNINITIALIZED)
    }

    fn has_route(&self, at: u8) -> bool {
        let node = self.0.server.get("nodes", "", &format!("node-{at}")).unwrap();
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|one| one["type"] == "NetworkUnavailable" && one["status"] == "False")
    }

    fn process(&self) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lazuli"));
        command.env_clear().arg("cloud-controllers").args(self.0.arguments());
        command.args(["--cluster-cidr=10.244.0.0/16", "--controllers=*", "--node-status-update-frequency=2s"]);
        command.arg("--health-endpoint=127.0.0.1:0");
        command.stdin(Stdio::null()).kill_on_drop(true).spawn().unwrap()
    }

    fn service(&self, name: &str, annotations: Value) {
        self.0.service(name, annotations, Value::Null).unwrap();
    }

    fn calls(&self) -> Vec<Call> {
        self.0.azure.control().call_log().into_iter().filter(|call| call.plane == "arm").collect()
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

async fn terminate(mut process: Child) -> ExitStatus {
    kill(Pid::from_raw(i32::try_from(process.id().unwrap()).unwrap()), Signal::SIGTERM).unwrap();
    tokio::time::timeout(PATIENCE, process.wait()).await.expect("ends").unwrap()
}

#[tokio::test]
async fn the_process_serves_services_gives_its_lease_up_and_needs_the_rights_of_its_role() {
    let world = World::start("nodeIP").await;
    let before = world.calls().len();
    world.service("web", json!({}));
    world.service("inner", json!({"service.beta.kubernetes.io/azure-load-balancer-internal": "true"}));
    let first = world.process();
    for name in ["web", "inner"] {
        world.until(name, || world.0.addresses(name) > 0).await;
    }
    world.until("the new Node is initialised", || world.is_initialised(1)).await;
    world.until("its route exists", || world.has_route(1)).await;
    let associated = || world.calls().iter().any(|call| call.method == "PUT" && call.path.ends_with("/subnets/nodes"));
    world.until("the subnet belongs to the route table", associated).await;
    let holder = world.0.holder().expect("the process leads");
    assert!(terminate(first).await.success());
    assert_eq!(world.0.holder(), None, "the Lease of {holder}");

    // The next one need not wait until the Lease expires, and goes on with what is there.
    let writes = world.0.writes().len();
    let second = world.process();
    world.until("the second process leads", || world.0.holder().is_some()).await;
    world.service("more", json!({}));
    world.until("more has an address", || world.0.addresses("more") > 0).await;
    // A public IP, its rule and its ports: nothing of the others was written again.
    assert!(world.0.writes().len() - writes <= 4, "{:#?}", &world.calls()[before..]);
    world.0.node(2).unwrap();
    let pools = || world.calls().iter().any(|call| call.method == "PUT" && call.path.contains("/backendAddressPools/"));
    world.until("the new Node is behind the load balancers", pools).await;
    for name in ["web", "inner", "more"] {
        world.0.server.delete("services", "default", name).unwrap();
    }
    world.until("all Services are gone", || world.0.server.list("services").is_empty()).await;
    assert!(terminate(second).await.success());
    let mut asked = needed(&world.calls()[before..]);
    world.0.azure.shutdown().await;
    asked.extend(Box::pin(pools_of_nics()).await);

    let linked: BTreeSet<String> = table()
        .into_iter()
        .filter(|(_, file, by_call)| ROLES.contains(&file.as_str()) && !by_call)
        .map(|(action, ..)| action.to_lowercase())
        .collect();
    let allowed: BTreeSet<String> = ROLES.into_iter().flat_map(actions).map(|action| action.to_lowercase()).collect();
    assert_eq!(asked, allowed.difference(&linked).cloned().collect());
}

/// What a process with pools of NICs asks of Azure for a Service with a private link service, and for a Node that is the
/// instance of a scale set.
async fn pools_of_nics() -> BTreeSet<String> {
    let mut options = lazuli_emulator::Options::default();
    options.scenario.scale_sets = vec![ScaleSet::uniform("agents", 1)];
    let world = World::of(options, "nodeIPConfiguration").await;
    let taint = json!({"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"});
    let node = json!({"metadata": {"name": "agents000000"},
        "spec": {"taints": [taint], "podCIDRs": ["10.244.9.0/24"]},
        "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
    world.0.server.put("nodes", node).unwrap();
    let before = world.calls().len();
    let key = |name: &str| format!("service.beta.kubernetes.io/{name}");
    world.service("linked", json!({key("azure-load-balancer-internal"): "true", key("azure-pls-create"): "true"}));
    let process = world.process();
    world.until("linked has an address", || world.0.addresses("linked") > 0).await;
    let joins = || {
        world.calls().iter().filter(|call| call.method == "PUT" && call.path.contains("/networkInterfaces/")).count()
    };
    world.until("both NICs are in the pool", || joins() >= 2).await;
    let written = |end: &str| {
        let is_it = |call: &Call| (call.method == "PUT" || call.method == "PATCH") && call.path.ends_with(end);
        world.calls().iter().any(is_it)
    };
    world.until("the instance too", || written("/agents/virtualMachines/0")).await;
    world.until("and its scale set", || written("/virtualMachineScaleSets/agents")).await;
    // It has no provider id: the name of its computer tells which instance it is.
    let initialised = || {
        let node = world.0.server.get("nodes", "", "agents000000").unwrap();
        let provider_id = node["spec"]["providerID"].as_str().unwrap_or_default();
        provider_id.ends_with("/virtualMachineScaleSets/agents/virtualMachines/0")
            && !node["spec"]["taints"].to_string().contains(UNINITIALIZED)
    };
    world.until("the Node is initialised", initialised).await;
    let is_listed = |call: &Call| call.path.ends_with("/virtualMachineScaleSets/agents/networkInterfaces");
    world.until("its addresses are compared", || world.calls().iter().any(is_listed)).await;
    world.0.server.delete("services", "default", "linked").unwrap();
    world.until("linked is gone", || world.0.server.list("services").is_empty()).await;
    let joined = joins();
    world.service("web", json!({}));
    world.until("both NICs are in the pool of web", || joins() >= joined + 2).await;
    assert!(terminate(process).await.success());
    // The pools become pools of addresses.
    let mut config = world.0.config().unwrap();
    config["loadBalancerBackendPoolConfigurationType"] = "nodeIP".into();
    config["enableMigrateToIPBasedBackendPoolAPI"] = true.into();
    world.0.write("azure.json", &config).unwrap();
    let process = world.process();
    let migrated = || world.calls().iter().any(|call| call.path.ends_with("/migrateToIpBased") && call.status == 200);
    world.until("the pool is migrated", migrated).await;
    assert!(terminate(process).await.success());
    let needed = needed(&world.calls()[before..]);
    world.0.azure.shutdown().await;
    needed
}

#[tokio::test]
async fn the_process_fails_when_another_replica_has_its_lease() {
    let world = World::start("nodeIP").await;
    let mut process = world.process();
    world.until("the process leads", || world.0.holder().is_some()).await;
    world.0.take_lease("another").unwrap();
    let ended = tokio::time::timeout(PATIENCE, process.wait()).await.expect("ends").unwrap();
    assert_eq!(ended.code(), Some(1));
    assert_eq!(world.0.holder().as_deref(), Some("another"));
    world.0.azure.shutdown().await;
}

#[tokio::test]
async fn a_dry_run_and_the_list_of_load_balancers_print_and_write_nothing() {
    let world = World::start("nodeIP").await;
    let run = async |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lazuli"));
        let output = command.env_clear().args(words).args(world.0.arguments()).output().await.unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    world.service("web", json!({}));
    let writes = world.0.writes();
    let text = run(&["cloud-controllers", "--dry-run"]).await;
    assert!(text.contains("load balancer kubernetes:\n  create it\n"), "{text}");
    assert!(text.contains("Service default/web:\n  add the finalizer\n"), "{text}");
    assert_eq!((world.0.writes(), world.0.holder()), (writes, None));

    let process = world.process();
    world.until("web has an address", || world.0.addresses("web") > 0).await;
    let text = run(&["get", "load-balancers"]).await;
    assert!(
        text.starts_with("LOAD BALANCER") && text.contains("default/web") && text.contains("TCP 80 -> 80"),
        "{text}"
    );
    let began = Instant::now();
    loop {
        let json: Value = serde_json::from_str(&run(&["get", "load-balancers", "--output=json"]).await).unwrap();
        let frontend = &json["items"][0];
        assert_eq!((&frontend["loadBalancer"], &frontend["services"]), (&json!("kubernetes"), &json!(["default/web"])));
        // The other node joins once the process has initialised it.
        if frontend["backends"] == json!([{"pool": "kubernetes", "members": 2}]) {
            break;
        }
        assert_eq!(frontend["backends"], json!([{"pool": "kubernetes", "members": 1}]));
        assert!(began.elapsed() < PATIENCE, "{json:#}");
    }
    assert!(terminate(process).await.success());
    world.0.azure.shutdown().await;
}
