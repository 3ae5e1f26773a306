//! Services of several namespaces on one address.

use lazuli_services::network::settings::AddressSharing;

use super::*;

/// The ports that the security group admits.
async fn admitted(rig: &Rig) -> Vec<String> {
    let groups = rig.list(NetworkType::SecurityGroup).await;
    let rules = groups[0]["properties"]["securityRules"].as_array().cloned().unwrap_or_default();
    let ports = rules.iter().flat_map(|rule| {
        let rule = &rule["properties"];
        let many = rule["destinationPortRanges"].as_array().cloned().unwrap_or_default();
        many.into_iter().chain([rule["destinationPortRange"].clone()])
    });
    let mut ports: Vec<String> = ports.filter_map(|port| port.as_str().map(str::to_owned)).collect();
    ports.sort_unstable();
    ports.dedup();
    ports.retain(|port| !port.is_empty());
    ports
}

#[tokio::test(start_paused = true)]
async fn a_port_without_a_rule_is_open_at_anothers_address_once_its_owner_agrees() {
    let rig = Rig::start().await;
    rig.service("web");
    let (stop, running) = rig.controller("one");
    let addresses = rig.addresses("web").await;
    let key = |name: &str| format!("service.beta.kubernetes.io/{name}");
    let guest = json!({
        "metadata": {"name": "guest", "namespace": "friend",
            "annotations": {key("azure-load-balancer-ipv4"): addresses[0], key("port_8443_no_lb_rule"): "true"}},
        "spec": {"type": "LoadBalancer", "ports": [{"name": "a", "port": 443}, {"name": "b", "port": 8443}]}});
    rig.server.put("services", guest).unwrap();
    rig.until("the guest is served", async || {
        let service = rig.server.get("services", "friend", "guest").unwrap();
        service["status"]["loadBalancer"]["ingress"][0]["ip"] == json!(addresses[0])
    })
    .await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(admitted(&rig).await, ["443", "80"]);
    assert!(rig.events("guest").iter().any(|(reason, _)| reason == "SharedAddress"), "{:?}", rig.events("guest"));

    let mut web = rig.server.get("services", "default", "web").unwrap();
    web["metadata"]["annotations"] = json!({"lazuli.azure/share-with": "friend"});
    rig.server.put("services", web).unwrap();
    rig.until("the port is open", async || admitted(&rig).await == ["443", "80", "8443"]).await;
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_is_refused_stays_so_for_a_new_leader_to_which_the_owner_says_nothing() {
    let rig = Rig::with(Settings { share_addresses: AddressSharing::Namespace, ..settings() }).await;
    rig.service("web");
    let (stop, running) = rig.controller("one");
    let addresses = rig.addresses("web").await;
    let guest = json!({
        "metadata": {"name": "guest", "namespace": "friend", "annotations":
            {"service.beta.kubernetes.io/azure-load-balancer-ipv4": addresses[0]}},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 443}]}});
    rig.server.put("services", guest).unwrap();
    let is_refused = || rig.events("guest").iter().any(|(reason, _)| reason == "ForeignOwner");
    rig.until("the guest is refused", async || is_refused()).await;
    stop.cancel();
    running.await.unwrap();

    // No load balancer is told anything of a Service that is refused as a whole.
    let mut web = rig.server.get("services", "default", "web").unwrap();
    web["spec"]["ports"][0]["protocol"] = json!("SCTP");
    rig.server.put("services", web).unwrap();
    let writes = rig.writes();
    let (stop, running) = rig.controller("two");
    sleep(Duration::from_secs(300)).await;
    let ingress =
        || rig.server.get("services", "friend", "guest").unwrap()["status"]["loadBalancer"]["ingress"].clone();
    assert_eq!((rig.writes(), ingress()), (writes, Value::Null));

    let mut web = rig.server.get("services", "default", "web").unwrap();
    web["metadata"]["annotations"] = json!({"lazuli.azure/share-with": "friend"});
    rig.server.put("services", web).unwrap();
    rig.until("the guest is served", async || ingress()[0]["ip"] == json!(addresses[0])).await;
    stop.cancel();
    running.await.unwrap();
}
