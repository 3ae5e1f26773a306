//! What Services may not name, and what they are not denied: each address comes from another place.

use std::net::IpAddr;

use lazuli_model::address::Cidr;

use super::*;

/// The addresses in a Service's status.
fn ingress(rig: &Rig, name: &str) -> Vec<String> {
    let service = rig.server.get("services", "default", name).unwrap();
    let ingress = service["status"]["loadBalancer"]["ingress"].as_array().cloned().unwrap_or_default();
    ingress.iter().map(|one| one["ip"].as_str().unwrap().to_owned()).collect()
}

/// A Service of type ClusterIP.
fn inside(rig: &Rig, name: &str, address: &str) {
    let spec = json!({"type": "ClusterIP", "clusterIP": address, "ports": [{"port": 53}]});
    rig.server.put("services", json!({"metadata": {"name": name}, "spec": spec})).unwrap();
}

/// The destinations of the rules of the security group that allow, or that deny.
async fn destinations(rig: &Rig, access: &str) -> Vec<String> {
    let groups = rig.list(NetworkType::SecurityGroup).await;
    let rules = groups[0]["properties"]["securityRules"].as_array().cloned().unwrap_or_default();
    let of = |rule: Value| {
        let rule = &rule["properties"];
        let many = rule["destinationAddressPrefixes"].as_array().cloned().unwrap_or_default();
        let all = many.into_iter().chain([rule["destinationAddressPrefix"].clone()]);
        let is_it = rule["access"] == access;
        all.filter(move |_| is_it).filter_map(|text| text.as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    rules.into_iter().flat_map(of).collect()
}

/// A cluster with an address of each kind that no Service may name.
async fn guarded() -> Rig {
    let range = |text: &str| -> Cidr { text.parse().unwrap() };
    let mut rig = Rig::start().await;
    rig.external = ClusterAddresses {
        allowed: vec![range("20.0.0.0/8")],
        pods: vec![range("20.98.0.0/16")],
        services: vec![range("20.97.0.0/16")],
        ..ClusterAddresses::default()
    };
    inside(&rig, "listed", "20.96.0.10");
    let spec =
        json!({"type": "ClusterIP", "clusterIP": "20.96.0.13", "externalIPs": ["20.95.0.10"], "ports": [{"port": 53}]});
    rig.server.put("services", json!({"metadata": {"name": "claims"}, "spec": spec})).unwrap();
    let spec = json!({"type": "LoadBalancer", "clusterIP": "20.96.0.12", "externalIPs": ["20.95.0.11"],
        "ports": [{"port": 80}]});
    rig.server.put("services", json!({"metadata": {"name": "web"}, "spec": spec})).unwrap();
    let mut node = rig.server.get("nodes", "", "node-0").unwrap();
    node["spec"]["podCIDRs"] = json!(["20.99.0.0/24"]);
    let addresses = node["status"]["addresses"].as_array_mut().unwrap();
    addresses.push(json!({"type": "ExternalIP", "address": "20.1.1.1"}));
    rig.server.put("nodes", node).unwrap();
    rig
}

/// Makes a load balancer of another cluster, and returns the address of its frontend.
async fn of_another_cluster(rig: &Rig) -> String {
    let address = json!({"location": scenario::LOCATION, "sku": {"name": "Standard"},
        "properties": {"publicIPAllocationMethod": "Static"}});
    let id = rig.make(NetworkType::PublicIp, "publicIPAddresses/theirs", address).await;
    let balancer = json!({"location": scenario::LOCATION, "sku": {"name": "Standard"}, "properties": {
        "frontendIPConfigurations": [{"name": format!("a{}", "0".repeat(31)), "properties": {"publicIPAddress": {"id": id}}}]}});
    rig.make(NetworkType::LoadBalancer, "loadBalancers/theirs", balancer).await;
    let all = rig.list(NetworkType::PublicIp).await;
    let theirs = all.iter().find(|ip| ip["name"] == "theirs").unwrap();
    theirs["properties"]["ipAddress"].as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_service_may_name_no_address_of_the_cluster_whichever_watch_or_flag_shows_it() {
    let rig = guarded().await;
    let theirs = of_another_cluster(&rig).await;
    let (stop, running) = rig.controller("one");
    let web = rig.addresses("web").await.remove(0);
    // A Service that comes later is known by the watch.
    inside(&rig, "watched", "20.96.0.11");
    sleep(Duration::from_secs(5)).await;
    for (at, (address, why)) in [
        ("20.96.0.10", "is the cluster IP of a Service"),
        ("20.96.0.11", "is the cluster IP of a Service"),
        ("20.96.0.12", "is the cluster IP of a Service"),
        ("20.95.0.10", "is in spec.externalIPs of another Service"),
        ("20.95.0.11", "is in spec.externalIPs of another Service"),
        ("20.97.3.4", "is in the range of Services"),
        ("20.98.3.4", "is in the range of Pods"),
        ("20.99.0.7", "is in the range of Pods"),
        ("20.1.1.1", "is the address of a Node"),
        (&web, "is the address of another Service"),
        (&theirs, "is the address of another Service"),
        ("21.0.0.1", "is in no range of --allowed-external-addresses"),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("thief-{at}");
        rig.annotated(&name, &[("azure-additional-public-ips", address)]);
        let is_told = async || rig.events(&name).iter().any(|(reason, _)| reason == "InvalidService");
        rig.until(address, is_told).await;
        let (_, note) = rig.obstacle(&name).unwrap();
        assert!(note.contains(&format!("{address} {why}")), "{address}: {note}");
        assert_eq!(ingress(&rig, &name), Vec::<String>::new(), "{address}");
    }
    rig.annotated("honest", &[("azure-additional-public-ips", "20.9.9.9")]);
    assert_eq!(rig.addresses("honest").await[1..], ["20.9.9.9"]);
    // The address is free once the Service that had it is gone.
    rig.server.delete("services", "default", "watched").unwrap();
    assert_eq!(rig.addresses("thief-1").await[1..], ["20.96.0.11"]);
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_cluster_ip_that_a_status_has_stays_through_processes_with_an_event() {
    let rig = guarded().await;
    rig.annotated("old", &[("azure-additional-public-ips", "20.96.0.10,20.97.3.4")]);
    let mut old = rig.server.get("services", "default", "old").unwrap();
    old["status"] = json!({"loadBalancer": {"ingress": [{"ip": "20.96.0.10"}, {"ip": "20.97.3.4"}]}});
    rig.server.put("services", old).unwrap();
    for identity in ["one", "two"] {
        let (stop, running) = rig.controller(identity);
        rig.until("old is served", async || ingress(&rig, "old").len() == 3).await;
        sleep(Duration::from_secs(60)).await;
        stop.cancel();
        running.await.unwrap();
        assert_eq!(ingress(&rig, "old")[1..], ["20.96.0.10", "20.97.3.4"], "{identity}");
        let kept: Vec<String> =
            rig.events("old").into_iter().filter(|one| one.0 == "KeptValue").map(|one| one.1).collect();
        for why in ["20.96.0.10, which is the cluster IP of a Service", "20.97.3.4, which is in the range of Services"]
        {
            assert!(kept.iter().any(|note| note.contains(why)), "{identity}: {kept:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_node_is_denied_also_one_that_is_no_backend_and_whose_address_a_service_keeps() {
    let rig = Rig::start().await;
    let mut node = rig.server.get("nodes", "", "node-1").unwrap();
    node["metadata"]["labels"] = json!({"node.kubernetes.io/exclude-from-external-load-balancers": "true"});
    rig.server.put("nodes", node).unwrap();
    let annotations = [
        ("azure-additional-public-ips", "10.240.0.5,20.9.9.9"),
        ("azure-deny-all-except-load-balancer-source-ranges", "true"),
        ("azure-allowed-ip-ranges", "203.0.113.0/24"),
    ];
    let mut service = rig.annotated("web", &annotations);
    service["status"] = json!({"loadBalancer": {"ingress": [{"ip": "10.240.0.5"}]}});
    rig.server.put("services", service).unwrap();
    let (stop, running) = rig.controller("one");
    rig.until("web is served", async || ingress(&rig, "web").len() == 3).await;
    sleep(Duration::from_secs(60)).await;
    let denied = destinations(&rig, "Deny").await;
    assert!(denied.contains(&"20.9.9.9".to_owned()), "{denied:?}");
    assert!(!denied.contains(&"10.240.0.5".to_owned()), "a Node: {denied:?}");
    stop.cancel();
    running.await.unwrap();
}

/// The other Service is served by another controller, and never tells the security group anything.
#[tokio::test(start_paused = true)]
async fn a_mistaken_range_denies_no_address_at_which_the_status_of_another_service_is_reached() {
    let rig = Rig::start().await;
    let shared: IpAddr = "20.9.9.9".parse().unwrap();
    let mut other = rig.annotated("other", &[("azure-additional-public-ips", &shared.to_string())]);
    other["spec"]["loadBalancerClass"] = json!("another");
    other["status"] = json!({"loadBalancer": {"ingress": [{"ip": shared}]}});
    rig.server.delete("services", "default", "other").unwrap();
    other["metadata"].as_object_mut().unwrap().retain(|key, _| key == "name" || key == "annotations");
    rig.server.put("services", other).unwrap();
    let annotations =
        [("azure-additional-public-ips", "20.9.9.9,20.8.8.8"), ("azure-allowed-ip-ranges", "203.0.113.0/24,x")];
    rig.annotated("web", &annotations);
    let (stop, running) = rig.controller("one");
    rig.until("web is served", async || ingress(&rig, "web").len() == 3).await;
    sleep(Duration::from_secs(60)).await;
    let denied = destinations(&rig, "Deny").await;
    assert!(denied.contains(&"20.8.8.8".to_owned()), "{denied:?}");
    assert!(!denied.contains(&shared.to_string()), "{denied:?}");
    stop.cancel();
    running.await.unwrap();
}
