//! Pools whose members are the NICs of scale sets' instances.

use lazuli_azure::{Until, network::NetworkWrite};
use lazuli_emulator::scenario::{ScaleSet, UpgradePolicy};
use lazuli_model::ArmId;

use super::*;

const SET: &str = "agents";
const HOUR: Duration = Duration::from_secs(3_600);

fn set_id() -> ArmId {
    ArmId::resource(scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP, "Microsoft.Compute/virtualMachineScaleSets", SET)
        .unwrap()
}

impl Rig {
    /// A cluster whose Nodes are the instances of a uniform scale set.
    async fn of_instances(count: u32, upgrade_policy: UpgradePolicy) -> Self {
        Self::of_instances_with(count, upgrade_policy, Switches::default()).await
    }

    async fn of_instances_with(count: u32, upgrade_policy: UpgradePolicy, unverified: Switches) -> Self {
        let set = ScaleSet { upgrade_policy, ..ScaleSet::uniform(SET, count) };
        let scenario = Scenario { scale_sets: vec![set], ..Scenario::default() };
        let rig = Self::of_unverified(Settings { pool_kind: PoolKind::Nic, ..settings() }, scenario, unverified).await;
        for node in ["node-0", "node-1"] {
            rig.server.delete("nodes", "", node).unwrap();
        }
        (0..count).for_each(|at| rig.instance_node(at));
        rig
    }

    fn instance_node(&self, at: u32) {
        let node = json!({"metadata": {"name": format!("{SET}{at:06}")},
            "spec": {"providerID": format!("azure://{}/virtualMachines/{at}", set_id())}});
        self.server.put("nodes", node).unwrap();
    }

    async fn patch_set(&self, body: Value) {
        let until = Until::within(HOUR);
        let patch = NetworkWrite::Patch { body, etag: None };
        let mut made = self.network.write(NetworkType::ScaleSet, &set_id(), patch, None, &until).await.unwrap();
        made.settle(&until).await.unwrap();
    }

    async fn model(&self) -> Value {
        let until = Until::within(HOUR);
        let list = self.network.list_scale_sets(scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP, &until);
        list.await.unwrap().remove(0)
    }

    async fn instances(&self) -> Vec<Value> {
        let mut all = Vec::new();
        self.network.each_instance(&set_id(), &Until::within(HOUR), |body| all.push(body)).await.unwrap();
        all
    }

    /// The numbers of the instances in a pool of the load balancer.
    async fn instances_in_pools(&self) -> Vec<String> {
        let all = self.instances().await;
        let is_in =
            |body: &&Value| body["properties"]["networkProfileConfiguration"].to_string().contains("/kubernetes/");
        all.iter().filter(is_in).map(|body| body["instanceId"].as_str().unwrap().to_owned()).collect()
    }

    async fn is_model_in_pools(&self) -> bool {
        self.model().await["properties"]["virtualMachineProfile"]["networkProfile"].to_string().contains("/kubernetes/")
    }

    /// The writes of the scale set and its instances so far, with the first members of their bodies.
    fn machine_writes(&self) -> Vec<String> {
        let calls = self.emulator.control().call_log();
        let writes = calls.iter().filter(|call| {
            call.plane == "arm"
                && call.method != "GET"
                && call.path.to_lowercase().contains("/virtualmachinescalesets/")
        });
        writes
            .map(|call| {
                let body = call.body.clone().unwrap_or_default();
                let members = body["properties"].as_object().map(|own| own.keys().cloned().collect::<Vec<_>>());
                let name = call.path.rsplit('/').next().unwrap();
                format!("{} {name} {} {}", call.method, members.unwrap_or_default().join(" "), call.if_match.is_some())
            })
            .collect()
    }
}

/// Whether a PUT that leaves the hardware profile out takes it away is not documented.
#[tokio::test(start_paused = true)]
async fn an_instance_with_a_size_of_its_own_keeps_it_when_it_joins_a_pool() {
    for keeps in [true, false] {
        let unverified = Switches { instance_put_keeps_hardware: keeps, ..Switches::default() };
        let rig = Rig::of_instances_with(1, UpgradePolicy::Manual, unverified).await;
        let id: ArmId = format!("{}/virtualMachines/0", set_id()).parse().unwrap();
        let own = json!({"vmSize": "Standard_D4s_v3"});
        let body = json!({"location": scenario::LOCATION, "properties": {"hardwareProfile": own}});
        let until = Until::within(HOUR);
        let put = NetworkWrite::Put { body, etag: None };
        let mut made = rig.network.write(NetworkType::Instance, &id, put, None, &until).await.unwrap();
        made.settle(&until).await.unwrap();
        rig.service("web");
        let (stop, running) = rig.controller("first");
        rig.until("the instance is in the pool", async || rig.instances_in_pools().await == ["0"]).await;
        let instances = rig.instances().await;
        assert_eq!(instances[0]["properties"]["hardwareProfile"], own, "left out ones stay: {keeps}");
        stop.cancel();
        running.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn instances_join_by_a_write_and_new_ones_by_the_model() {
    let rig = Rig::of_instances(2, UpgradePolicy::Manual).await;
    rig.service("web");
    let (stop, running) = rig.controller("first");
    rig.addresses("web").await;
    rig.until("both instances are in the pool", async || rig.instances_in_pools().await == ["0", "1"]).await;
    rig.until("the model too", async || rig.is_model_in_pools().await).await;
    sleep(Duration::from_secs(60)).await;
    let mut writes = rig.machine_writes();
    writes.sort();
    // Only what they hold of the network, with the hardware as it was read, and only on what was read.
    assert_eq!(
        writes,
        [
            "PATCH agents virtualMachineProfile true",
            "PUT 0 hardwareProfile networkProfileConfiguration true",
            "PUT 1 hardwareProfile networkProfileConfiguration true"
        ]
    );

    rig.patch_set(json!({"sku": {"name": "Standard_D8s_v3", "capacity": 3}})).await;
    let before = rig.writes();
    rig.instance_node(2);
    sleep(Duration::from_secs(300)).await;
    assert_eq!(rig.instances_in_pools().await, ["0", "1", "2"]);
    assert_eq!(rig.writes(), before, "a new instance needs no write");
    stop.cancel();
    running.await.unwrap();

    let (stop, running) = rig.controller("second");
    sleep(Duration::from_secs(300)).await;
    assert_eq!(rig.writes(), before, "and another process none");

    rig.server.delete("services", "default", "web").unwrap();
    rig.until("web is gone", async || rig.server.list("services").is_empty()).await;
    assert_eq!(rig.list(NetworkType::LoadBalancer).await, Vec::<Value>::new());
    assert_eq!(rig.instances_in_pools().await, Vec::<String>::new());
    let after: Vec<String> = rig.writes().split_off(before.len());
    let at = |what: &str| after.iter().position(|write| write.starts_with(what)).unwrap_or_else(|| panic!("{after:?}"));
    let model = at("PATCH agents");
    for instance in ["PUT 0", "PUT 1", "PUT 2"] {
        assert!(model < at(instance) && at(instance) < at("DELETE kubernetes"), "{after:?}");
    }
    assert!(after.iter().all(|write| !write.ends_with(" 400")), "{after:?}");
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_set_without_nodes_leaves_with_the_last_service() {
    let rig = Rig::of_instances(1, UpgradePolicy::Manual).await;
    rig.service("web");
    let (stop, running) = rig.controller("first");
    rig.until("the model is in the pool", async || rig.is_model_in_pools().await).await;
    rig.patch_set(json!({"sku": {"name": "Standard_D8s_v3", "capacity": 0}})).await;
    rig.server.delete("nodes", "", "agents000000").unwrap();
    // Without any Node nothing is planned.
    let other = json!({"metadata": {"name": "other"}, "spec": {"providerID": "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/other"}});
    rig.server.put("nodes", other).unwrap();
    sleep(Duration::from_secs(300)).await;
    assert!(rig.is_model_in_pools().await, "the next instances are behind the load balancer");
    stop.cancel();
    running.await.unwrap();

    // Another process finds the set, although no Node names it.
    let (stop, running) = rig.controller("second");
    sleep(Duration::from_secs(60)).await;
    rig.server.delete("services", "default", "web").unwrap();
    rig.until("web is gone", async || rig.server.list("services").is_empty()).await;
    assert!(!rig.is_model_in_pools().await);
    assert_eq!(rig.list(NetworkType::LoadBalancer).await, Vec::<Value>::new());
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_model_waits_while_instances_lag_behind_it() {
    let rig = Rig::of_instances(4, UpgradePolicy::Rolling).await;
    // The operator rolls out a change, one instance an hour.
    let rolling = json!({"maxBatchInstancePercent": 25, "pauseTimeBetweenBatches": "PT1H"});
    rig.patch_set(json!({"properties": {"upgradePolicy": {"mode": "Rolling", "rollingUpgradePolicy": rolling},
        "virtualMachineProfile": {"licenseType": "RHEL_BYOS"}}}))
        .await;
    let lag = async || {
        let all = rig.instances().await;
        all.iter().filter(|one| one["properties"]["latestModelApplied"] == false).count()
    };
    assert_eq!(lag().await, 3);
    rig.service("web");
    let (stop, running) = rig.controller("first");
    rig.addresses("web").await;
    rig.until("the instances are served", async || rig.instances_in_pools().await.len() == 4).await;
    rig.until("an event tells the operator", async || {
        rig.server.list("events").iter().any(|event| {
            event["reason"] == "ScaleSetHeld"
                && event["regarding"]["kind"] == "Node"
                && event["note"].as_str().unwrap().contains("scale set agents")
        })
    })
    .await;
    sleep(Duration::from_secs(600)).await;
    assert!(!rig.is_model_in_pools().await, "a write would go on with the upgrade");
    assert_eq!(lag().await, 3);

    sleep(3 * HOUR).await;
    rig.until("the model follows once nothing lags", async || rig.is_model_in_pools().await).await;
    stop.cancel();
    running.await.unwrap();
}

/// The network may be in another subscription than the machines.
#[tokio::test(start_paused = true)]
async fn scale_sets_are_listed_in_the_subscription_of_the_machines() {
    const OF_MACHINES: &str = "22222222-2222-2222-2222-222222222222";
    let subscriptions = vec![scenario::SUBSCRIPTION.to_owned(), OF_MACHINES.to_owned()];
    let compute_subscription = OF_MACHINES.to_owned();
    let settings = Settings { pool_kind: PoolKind::Nic, compute_subscription, ..settings() };
    let rig = Rig::of(settings, Scenario { subscriptions, ..Scenario::default() }).await;
    rig.service("web");
    let (stop, running) = rig.controller("first");
    let lists = || {
        let calls = rig.emulator.control().call_log();
        let lists = calls.iter().filter(|call| call.path.to_lowercase().ends_with("/virtualmachinescalesets"));
        lists.map(|call| call.path.split('/').nth(2).unwrap().to_owned()).collect::<Vec<_>>()
    };
    rig.until("scale sets are listed", async || !lists().is_empty()).await;
    sleep(Duration::from_secs(300)).await;
    assert!(lists().iter().all(|subscription| subscription == OF_MACHINES), "{:?}", lists());
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_last_service_that_waits_for_a_set_that_lags_says_so_and_goes_when_nothing_lags() {
    let rig = Rig::of_instances(4, UpgradePolicy::Rolling).await;
    rig.service("web");
    let (stop, running) = rig.controller("first");
    rig.addresses("web").await;
    rig.until("the model is in the pool", async || rig.is_model_in_pools().await).await;
    sleep(HOUR).await;
    // The operator rolls out a change, one instance an hour.
    let rolling = json!({"maxBatchInstancePercent": 25, "pauseTimeBetweenBatches": "PT1H"});
    rig.patch_set(json!({"properties": {"upgradePolicy": {"mode": "Rolling", "rollingUpgradePolicy": rolling},
        "virtualMachineProfile": {"licenseType": "RHEL_BYOS"}}}))
        .await;
    rig.server.delete("services", "default", "web").unwrap();
    sleep(Duration::from_secs(240)).await;
    let notes: Vec<String> = rig.events("web").into_iter().map(|(_, note)| note).collect();
    let says = |words: &str| notes.iter().any(|note| note.contains("more than a minute") && note.contains(words));
    assert!(says("waits until the NICs have left") && says("load balancer kubernetes"), "{notes:#?}");
    let held = |event: &Value| {
        event["reason"] == "ScaleSetHeld" && event["note"].as_str().unwrap().contains("scale set agents")
    };
    assert!(rig.server.list("events").iter().any(held), "the operator is told why, and what to do");
    sleep(4 * HOUR).await;
    rig.until("web is gone", async || rig.server.list("services").is_empty()).await;
    assert!(!rig.is_model_in_pools().await);
    assert_eq!(rig.list(NetworkType::LoadBalancer).await, Vec::<Value>::new());
    stop.cancel();
    running.await.unwrap();
}
