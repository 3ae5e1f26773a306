//! Pools whose members are NICs, and Basic load balancers of availability sets.

use std::collections::BTreeSet;

use lazuli_emulator::scenario::{AvailabilitySet, Scenario};

use super::*;

fn of_nics() -> Settings {
    Settings { pool_kind: PoolKind::Nic, ..settings() }
}

impl Rig {
    /// The names of the NICs in some pool of each load balancer.
    async fn nics_in(&self, balancer: &str) -> BTreeSet<String> {
        self.nics_of_group_in(scenario::RESOURCE_GROUP, balancer).await
    }

    async fn nics_of_group_in(&self, group: &str, balancer: &str) -> BTreeSet<String> {
        let path = format!("/loadbalancers/{balancer}/");
        let is_in = |nic: &Value| {
            let configurations = nic["properties"]["ipConfigurations"].as_array().cloned().unwrap_or_default();
            let pools = configurations.iter().flat_map(|one| {
                one["properties"]["loadBalancerBackendAddressPools"].as_array().cloned().unwrap_or_default()
            });
            pools.into_iter().any(|pool| pool["id"].as_str().unwrap().to_lowercase().contains(&path))
        };
        let until = lazuli_azure::Until::within(Duration::from_secs(60));
        let nics = self.network.list(NetworkType::Interface, scenario::SUBSCRIPTION, group, &until).await.unwrap();
        nics.iter().filter(|nic| is_in(nic)).map(|nic| nic["name"].as_str().unwrap().to_owned()).collect()
    }
}

fn names(all: &[&str]) -> BTreeSet<String> {
    all.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn nics_join_the_pool_and_leave_it_before_the_last_service_goes() {
    let rig = Rig::with(of_nics()).await;
    rig.service("web");
    let (stop, running) = rig.controller("first");
    rig.addresses("web").await;
    assert!(!rig.nics_in("kubernetes").await.is_empty(), "a status is set when a backend serves: {:#?}", rig.writes());
    let both = names(&["node-0-nic", "node-1-nic"]);
    rig.until("both NICs are in the pool", async || rig.nics_in("kubernetes").await == both).await;
    sleep(Duration::from_secs(60)).await;
    stop.cancel();
    running.await.unwrap();

    // Another process finds them there.
    let writes = rig.writes();
    let (stop, running) = rig.controller("second");
    sleep(Duration::from_secs(300)).await;
    assert_eq!(rig.writes(), writes);

    // A Node that is excluded leaves; its return brings it back.
    let mut node = rig.server.get("nodes", "", "node-1").unwrap();
    node["metadata"]["labels"] = json!({"node.kubernetes.io/exclude-from-external-load-balancers": ""});
    rig.server.put("nodes", node.clone()).unwrap();
    let one = names(&["node-0-nic"]);
    rig.until("the excluded Node has left", async || rig.nics_in("kubernetes").await == one).await;
    node["metadata"]["labels"] = json!({});
    rig.server.put("nodes", node).unwrap();
    rig.until("it is back", async || rig.nics_in("kubernetes").await == both).await;

    rig.server.delete("services", "default", "web").unwrap();
    rig.until("web is gone", async || rig.server.list("services").is_empty()).await;
    assert_eq!(rig.list(NetworkType::LoadBalancer).await, Vec::<Value>::new());
    assert_eq!(rig.nics_in("kubernetes").await, BTreeSet::new());
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nics_of_another_group_are_read_by_the_ids_that_their_machines_name() {
    let mut scenario = Scenario::default();
    let group = scenario::ResourceGroup { name: "interfaces".to_owned(), ..scenario.resource_groups[0].clone() };
    scenario.resource_groups.push(group);
    scenario.virtual_machines.iter_mut().for_each(|vm| vm.nic_resource_group = Some("interfaces".to_owned()));
    let rig = Rig::of(of_nics(), scenario).await;
    rig.service("web");
    let (stop, running) = rig.controller("first");
    rig.addresses("web").await;
    let both = names(&["node-0-nic", "node-1-nic"]);
    rig.until("both NICs are in the pool", async || rig.nics_of_group_in("interfaces", "kubernetes").await == both)
        .await;
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_a_node_the_status_is_set_and_the_owner_is_told() {
    let rig = Rig::with(of_nics()).await;
    for name in ["node-0", "node-1"] {
        let mut node = rig.server.get("nodes", "", name).unwrap();
        node["metadata"]["labels"] = json!({"node.kubernetes.io/exclude-from-external-load-balancers": ""});
        rig.server.put("nodes", node).unwrap();
    }
    rig.service("web");
    let (stop, running) = rig.controller("first");
    rig.addresses("web").await;
    assert_eq!(rig.nics_in("kubernetes").await, BTreeSet::new());
    rig.until("the owner is told", async || {
        rig.events("web").iter().any(|(reason, _)| reason == "UnAvailableLoadBalancer")
    })
    .await;
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_service_is_deleted_while_the_cluster_has_no_node() {
    for settings in [of_nics(), settings()] {
        let rig = Rig::with(settings).await;
        rig.service("web");
        let (stop, running) = rig.controller("first");
        rig.addresses("web").await;
        stop.cancel();
        running.await.unwrap();
        for name in ["node-0", "node-1"] {
            rig.server.delete("nodes", "", name).unwrap();
        }
        let (stop, running) = rig.controller("second");
        rig.server.delete("services", "default", "web").unwrap();
        rig.until("web is gone", async || rig.server.list("services").is_empty()).await;
        for kind in [NetworkType::LoadBalancer, NetworkType::PublicIp] {
            assert_eq!(rig.list(kind).await, Vec::<Value>::new(), "{:?}", rig.settings.pool_kind);
        }
        stop.cancel();
        running.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_deleted_leaves_the_pool() {
    let rig = Rig::with(of_nics()).await;
    rig.service("web");
    let (stop, running) = rig.controller("first");
    rig.addresses("web").await;
    rig.until("both NICs are in the pool", async || rig.nics_in("kubernetes").await.len() == 2).await;
    rig.server.delete("nodes", "", "node-0").unwrap();
    let left = names(&["node-1-nic"]);
    rig.until("the NIC of the deleted Node has left", async || rig.nics_in("kubernetes").await == left).await;
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn pools_of_nics_become_pools_of_addresses_only_where_that_is_asked_for() {
    let mut rig = Rig::with(of_nics()).await;
    rig.service("web");
    let (stop, running) = rig.controller("first");
    rig.addresses("web").await;
    rig.until("both NICs are in the pool", async || rig.nics_in("kubernetes").await.len() == 2).await;
    sleep(Duration::from_secs(60)).await;
    stop.cancel();
    running.await.unwrap();

    // Another kind of pools alone changes nothing.
    let writes = rig.writes();
    rig.settings.pool_kind = PoolKind::NodeIp;
    let (stop, running) = rig.controller("second");
    sleep(Duration::from_secs(300)).await;
    assert_eq!(rig.writes(), writes);
    stop.cancel();
    running.await.unwrap();

    rig.settings.migrates_pools = true;
    let (stop, running) = rig.controller("third");
    let both: BTreeMap<String, Vec<String>> =
        [("kubernetes".to_owned(), vec!["10.240.0.4".to_owned(), "10.240.0.5".to_owned()])].into();
    rig.until("the pool lists addresses", async || rig.pools("kubernetes").await == both).await;
    assert_eq!(rig.nics_in("kubernetes").await, BTreeSet::new());
    sleep(RESYNC).await;
    assert_eq!(rig.writes()[writes.len()..], ["POST migrateToIpBased 200"], "Azure moves the members");
    // The pool follows the Nodes as every other pool of addresses.
    rig.server.delete("nodes", "", "node-0").unwrap();
    let left: BTreeMap<String, Vec<String>> = [("kubernetes".to_owned(), vec!["10.240.0.5".to_owned()])].into();
    rig.until("the deleted Node has left", async || rig.pools("kubernetes").await == left).await;
    stop.cancel();
    running.await.unwrap();
}

/// Two machines in one availability set each, and Basic load balancers.
async fn of_sets() -> Rig {
    let mut scenario = Scenario::default();
    let template = scenario.virtual_machines.remove(0);
    for (at, set) in ["first", "second"].into_iter().enumerate() {
        scenario.availability_sets.push(AvailabilitySet {
            name: set.to_owned(),
            resource_group: None,
            fault_domains: 2,
            update_domains: 5,
        });
        let mut machine = template.clone();
        (machine.name, machine.count) = (format!("node-{at}"), None);
        machine.availability_set = Some(set.to_owned());
        scenario.virtual_machines.push(machine);
    }
    let settings = Settings { sku: LoadBalancerSku::Basic, primary_vm_set: "first".to_owned(), ..of_nics() };
    Rig::of(settings, scenario).await
}

#[tokio::test(start_paused = true)]
async fn basic_load_balancers_serve_the_availability_sets_of_their_mode() {
    let rig = of_sets().await;
    rig.annotated("primary", &[]);
    rig.annotated("named", &[("azure-load-balancer-mode", "second")]);
    rig.annotated("unknown", &[("azure-load-balancer-mode", "third")]);
    let (stop, running) = rig.controller("first");
    rig.addresses("primary").await;
    rig.addresses("named").await;
    let (first, second) = (names(&["node-0-nic"]), names(&["node-1-nic"]));
    rig.until("each set is behind its load balancer", async || {
        rig.nics_in("kubernetes").await == first && rig.nics_in("second").await == second
    })
    .await;
    rig.until("the owner is told", async || {
        rig.events("unknown").iter().any(|(_, note)| note.contains("third") && note.contains("first, second"))
    })
    .await;
    // __auto__ goes to the one with fewer rules; both have one, and the earlier one is taken.
    rig.annotated("auto", &[("azure-load-balancer-mode", "__auto__")]);
    rig.addresses("auto").await;
    let rules = rig.rules().await;
    assert_eq!((rules["kubernetes"], rules["second"]), (2, 1));
    stop.cancel();
    running.await.unwrap();
}
