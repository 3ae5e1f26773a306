//! Several Standard load balancers: where Services and Nodes belong, and pools of Services with local traffic.

use std::collections::BTreeMap;

use lazuli_services::{ask::selector::LabelSelector, network::settings::LoadBalancerConfiguration};

use super::*;

fn selector(key: &str, value: &str) -> Option<LabelSelector> {
    Some(LabelSelector { labels: [(key.to_owned(), value.to_owned())].into(), expressions: vec![] })
}

fn configuration(name: &str) -> LoadBalancerConfiguration {
    LoadBalancerConfiguration {
        name: name.to_owned(),
        primary_vm_set: format!("set-of-{name}"),
        allow_placement: true,
        service_labels: None,
        namespace_labels: None,
        node_labels: None,
    }
}

/// Two load balancers, `one` for nodes of pool a and `two` for those of pool b.
fn two() -> Settings {
    let of = |name: &str, pool: &str| LoadBalancerConfiguration {
        node_labels: selector("pool", pool),
        ..configuration(name)
    };
    Settings { configurations: vec![of("one", "a"), of("two", "b")], ..settings() }
}

impl Rig {
    fn label_node(&self, node: &str, pool: &str) {
        let mut object = self.server.get("nodes", "", node).unwrap();
        object["metadata"]["labels"] = json!({"pool": pool});
        self.server.put("nodes", object).unwrap();
    }

    fn label_service(&self, name: &str, labels: Value) {
        let mut service = self.server.get("services", "default", name).unwrap();
        service["metadata"]["labels"] = labels;
        self.server.put("services", service).unwrap();
    }

    /// The members of a pool of each load balancer.
    pub(super) async fn pools(&self, pool: &str) -> BTreeMap<String, Vec<String>> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let members = |balancer: &Value| {
            let pools = balancer["properties"]["backendAddressPools"].as_array().cloned().unwrap_or_default();
            let pool = pools.into_iter().find(|one| one["name"] == pool)?;
            let members = pool["properties"]["loadBalancerBackendAddresses"].as_array().cloned().unwrap_or_default();
            Some(members.iter().map(|member| text(&member["properties"]["ipAddress"])).collect())
        };
        let balancers = self.list(NetworkType::LoadBalancer).await;
        balancers.iter().filter_map(|one| Some((text(&one["name"]), members(one)?))).collect()
    }

    /// How many rules each load balancer has.
    pub(super) async fn rules(&self) -> BTreeMap<String, usize> {
        let balancers = self.list(NetworkType::LoadBalancer).await;
        let count = |one: &Value| one["properties"]["loadBalancingRules"].as_array().map_or(0, Vec::len);
        balancers.iter().map(|one| (one["name"].as_str().unwrap().to_owned(), count(one))).collect()
    }
}

fn on(pairs: &[(&str, usize)]) -> BTreeMap<String, usize> {
    pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

fn members(pairs: &[(&str, &[&str])]) -> BTreeMap<String, Vec<String>> {
    let texts = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
    pairs.iter().map(|(name, all)| ((*name).to_owned(), texts(all))).collect()
}

#[tokio::test(start_paused = true)]
async fn services_and_nodes_spread_over_load_balancers_and_stay_there() {
    let rig = Rig::with(two()).await;
    rig.label_node("node-0", "a");
    rig.label_node("node-1", "b");
    for name in ["a", "b", "c", "d"] {
        rig.service(name);
    }
    let (stop, running) = rig.controller("first");
    for name in ["a", "b", "c", "d"] {
        rig.addresses(name).await;
    }
    assert_eq!(rig.rules().await, on(&[("one", 2), ("two", 2)]));
    let spread = members(&[("one", &["10.240.0.4"]), ("two", &["10.240.0.5"])]);
    rig.until("each Node is behind its load balancer", async || rig.pools("kubernetes").await == spread).await;
    sleep(Duration::from_secs(60)).await;
    stop.cancel();
    running.await.unwrap();

    // Another process finds each where it is.
    let writes = rig.writes();
    let (stop, running) = rig.controller("second");
    sleep(Duration::from_secs(600)).await;
    assert_eq!(rig.writes(), writes);

    // A Node that belongs elsewhere leaves one pool before it joins the other.
    rig.label_node("node-1", "a");
    let moved = members(&[("one", &["10.240.0.4", "10.240.0.5"]), ("two", &[])]);
    rig.until("the Node has moved", async || rig.pools("kubernetes").await == moved).await;
    let path = |call: &str| call.contains("PUT kubernetes");
    assert_eq!(rig.writes()[writes.len()..].iter().filter(|call| path(call)).count(), 2, "{:?}", rig.writes());
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn labels_of_services_and_namespaces_choose_the_load_balancer() {
    let gold = LoadBalancerConfiguration { service_labels: selector("tier", "gold"), ..configuration("gold") };
    let team = LoadBalancerConfiguration { namespace_labels: selector("team", "x"), ..configuration("team") };
    let rig = Rig::with(Settings { configurations: vec![configuration("plain"), gold, team], ..settings() }).await;
    rig.service("plain");
    rig.service("golden");
    rig.label_service("golden", json!({"tier": "gold"}));
    let (stop, running) = rig.controller("first");
    rig.addresses("plain").await;
    rig.addresses("golden").await;
    assert_eq!(rig.rules().await, on(&[("gold", 1), ("plain", 1)]));
    let namespace = json!({"metadata": {"name": "default", "labels": {"team": "x"}}});
    rig.server.put("namespaces", namespace).unwrap();
    rig.service("later");
    rig.addresses("later").await;
    // The namespace's load balancer takes the Service that no selector had placed; the golden one stays.
    let moved = on(&[("gold", 1), ("team", 2)]);
    rig.until("each is where its labels say", async || {
        let mut rules = rig.rules().await;
        rules.retain(|_, count| *count > 0);
        rules == moved
    })
    .await;
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_service_that_no_load_balancer_takes_is_served_once_one_does() {
    let gold = LoadBalancerConfiguration { service_labels: selector("tier", "gold"), ..configuration("gold") };
    let rig = Rig::with(Settings { configurations: vec![gold], ..settings() }).await;
    rig.service("web");
    let (stop, running) = rig.controller("first");
    rig.until("the owner is told", async || rig.obstacle("web").is_some()).await;
    let (reason, note) = rig.obstacle("web").unwrap();
    assert_eq!(reason, "InvalidService");
    assert!(note.contains("the labels of the Service do not fit gold"), "{note}");
    rig.label_service("web", json!({"tier": "gold"}));
    rig.addresses("web").await;
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_service_that_moves_to_another_load_balancer_keeps_its_public_ip() {
    let rig = Rig::with(two()).await;
    rig.label_node("node-0", "a");
    rig.label_node("node-1", "b");
    rig.annotated("web", &[("azure-load-balancer-configurations", "one")]);
    let (stop, running) = rig.controller("first");
    let addresses = rig.addresses("web").await;
    assert_eq!(rig.rules().await, on(&[("one", 1)]));
    sleep(Duration::from_secs(60)).await;
    let before = rig.writes().len();
    rig.annotated("web", &[("azure-load-balancer-configurations", "two")]);
    rig.until("the Service has moved", async || {
        let rules = rig.rules().await;
        rules.get("two") == Some(&1) && rules.get("one").copied().unwrap_or_default() == 0
    })
    .await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(rig.addresses("web").await, addresses);
    let writes = rig.writes()[before..].to_vec();
    let at = |balancer: &str| writes.iter().position(|write| write.split(' ').nth(1) == Some(balancer));
    let (left, joined) = (at("one").unwrap(), at("two").unwrap());
    assert_eq!(joined, left + 1, "the write that leaves and the one that joins follow each other: {writes:?}");
    let public_ips = rig.list(NetworkType::PublicIp).await;
    assert_eq!(public_ips.len(), 1);
    assert!(writes.iter().all(|write| !write.contains(public_ips[0]["name"].as_str().unwrap())), "{writes:?}");
    stop.cancel();
    running.await.unwrap();
}

fn slice(node: &str) -> Value {
    json!({"metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.1.0.1"], "nodeName": node}], "ports": []})
}

#[tokio::test(start_paused = true)]
async fn the_pool_of_a_local_service_follows_its_endpoints_and_is_never_empty() {
    let rig = Rig::with(two()).await;
    rig.label_node("node-0", "a");
    rig.label_node("node-1", "b");
    rig.server.put("endpointslices", slice("node-0")).unwrap();
    let mut service = rig.service("web");
    service["spec"]["externalTrafficPolicy"] = "Local".into();
    service["spec"]["healthCheckNodePort"] = 32_000.into();
    rig.server.put("services", service).unwrap();
    let (stop, running) = rig.controller("first");
    rig.addresses("web").await;
    let on_first = members(&[("one", &["10.240.0.4"])]);
    rig.until("the endpoint's Node is a member", async || rig.pools("default-web").await == on_first).await;
    rig.server.put("endpointslices", slice("node-1")).unwrap();
    let on_second = members(&[("one", &["10.240.0.5"])]);
    let both = members(&[("one", &["10.240.0.4", "10.240.0.5"])]);
    let (began, mut were_both) = (Instant::now(), false);
    loop {
        let now = rig.pools("default-web").await;
        if now == on_second {
            break;
        }
        were_both |= now == both;
        assert!(now == on_first || now == both, "{now:?}");
        assert!(began.elapsed() < Duration::from_secs(300), "{:#?}", rig.writes());
        sleep(Duration::from_millis(100)).await;
    }
    assert!(were_both, "the new Node joins before the old one leaves");
    // The Service goes with its pool.
    rig.server.delete("services", "default", "web").unwrap();
    rig.until("web is gone", async || rig.server.list("services").is_empty()).await;
    assert_eq!(rig.pools("default-web").await, members(&[]));
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_public_ip_that_is_made_after_its_service_is_found() {
    let rig = Rig::start().await;
    rig.annotated("web", &[("azure-load-balancer-ipv4", "20.0.0.1")]);
    let (stop, running) = rig.controller("first");
    rig.until("the owner is told", async || rig.obstacle("web").is_some()).await;
    let id = settings().public_ip_id(scenario::RESOURCE_GROUP, "own").unwrap();
    let body = json!({"location": scenario::LOCATION, "sku": {"name": "Standard"},
        "properties": {"publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv4"}});
    let until = lazuli_azure::Until::within(Duration::from_secs(60));
    let put = lazuli_azure::network::NetworkWrite::Put { body, etag: None };
    rig.network.write(NetworkType::PublicIp, &id, put, None, &until).await.unwrap().settle(&until).await.unwrap();
    let made = rig.list(NetworkType::PublicIp).await;
    let address = made[0]["properties"]["ipAddress"].as_str().unwrap().to_owned();
    rig.annotated("web", &[("azure-load-balancer-ipv4", &address)]);
    assert_eq!(rig.addresses("web").await, [address]);
    stop.cancel();
    running.await.unwrap();
}

/// Three Nodes that no primary set and no node selector claims.
async fn unclaimed() -> Rig {
    let rig =
        Rig::with(Settings { configurations: vec![configuration("one"), configuration("two")], ..settings() }).await;
    rig.node(2);
    rig
}

impl Rig {
    /// One more Node.
    fn node(&self, at: u8) {
        let mut node = self.server.get("nodes", "", "node-0").unwrap();
        let name = format!("node-{at}");
        let id = node["spec"]["providerID"].as_str().unwrap().replace("node-0", &name);
        node = json!({"metadata": {"name": name}, "spec": {"providerID": id},
            "status": {"addresses": [{"type": "InternalIP", "address": format!("10.240.0.{}", 4 + at)}]}});
        self.server.put("nodes", node).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_load_balancer_gets_the_next_nodes_and_takes_none_from_one_that_serves() {
    let rig = unclaimed().await;
    rig.service("first");
    let (stop, running) = rig.controller("first");
    rig.addresses("first").await;
    let all = members(&[("one", &["10.240.0.4", "10.240.0.5", "10.240.0.6"])]);
    rig.until("all Nodes are behind it", async || rig.pools("kubernetes").await == all).await;
    rig.service("second");
    rig.addresses("second").await;
    rig.node(3);
    let mut joined = all.clone();
    joined.insert("two".to_owned(), vec!["10.240.0.7".to_owned()]);
    rig.until("the new Node joins the other", async || rig.pools("kubernetes").await == joined).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(rig.pools("kubernetes").await, joined);
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nodes_spread_over_the_load_balancers_that_services_need_at_the_start() {
    let rig = unclaimed().await;
    rig.service("a");
    rig.service("b");
    let (stop, running) = rig.controller("first");
    rig.addresses("a").await;
    rig.addresses("b").await;
    let spread = members(&[("one", &["10.240.0.4", "10.240.0.6"]), ("two", &["10.240.0.5"])]);
    rig.until("each has Nodes", async || rig.pools("kubernetes").await == spread).await;
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_local_pool_follows_its_endpoints_no_more_often_than_configured() {
    let interval = Duration::from_secs(120);
    let rig = Rig::with(Settings {
        configurations: vec![configuration("one")],
        pool_update_interval: interval,
        ..settings()
    })
    .await;
    rig.server.put("endpointslices", slice("node-0")).unwrap();
    let mut service = rig.service("web");
    service["spec"]["externalTrafficPolicy"] = "Local".into();
    service["spec"]["healthCheckNodePort"] = 32_000.into();
    rig.server.put("services", service).unwrap();
    let (stop, running) = rig.controller("first");
    rig.addresses("web").await;
    let on = |address: &str| members(&[("one", &[address])]);
    let is_on = async |address: &str| rig.pools("default-web").await == on(address);
    rig.until("the endpoint's Node is a member", async || is_on("10.240.0.4").await).await;
    sleep(interval).await;
    // The first change is followed at once, the next one when the interval is over.
    rig.server.put("endpointslices", slice("node-1")).unwrap();
    let changed = Instant::now();
    rig.until("the pool follows", async || is_on("10.240.0.5").await).await;
    assert!(changed.elapsed() < Duration::from_secs(30), "{:?}", changed.elapsed());
    rig.server.put("endpointslices", slice("node-0")).unwrap();
    rig.until("the pool follows later", async || is_on("10.240.0.4").await).await;
    assert!(changed.elapsed() >= interval, "{:?}", changed.elapsed());
    stop.cancel();
    running.await.unwrap();
}
