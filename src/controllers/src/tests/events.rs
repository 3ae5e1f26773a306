//! What the owners of Services are told.

use lazuli_emulator::incident::{Effect, Incident, Match};

use super::*;

fn sorted(mut reasons: Vec<String>) -> Vec<String> {
    reasons.sort();
    reasons
}

/// How often an event of this reason was written about a Service.
fn count(rig: &Rig, name: &str, reason: &str) -> u64 {
    let is_it = |event: &&Value| event["regarding"]["name"] == name && event["reason"] == reason;
    let events = rig.server.list("events");
    events.iter().filter(is_it).map(|event| event["series"]["count"].as_u64().unwrap_or(1)).sum()
}

/// Labels a Node so that it is a backend, or none.
fn set_backend(rig: &Rig, name: &str, is_backend: bool) {
    let mut node = rig.server.get("nodes", "", name).unwrap();
    let excluded = json!({"node.kubernetes.io/exclude-from-external-load-balancers": ""});
    node["metadata"]["labels"] = if is_backend { json!({}) } else { excluded };
    rig.server.put("nodes", node).unwrap();
}

fn reasons(rig: &Rig, name: &str) -> Vec<String> {
    rig.events(name).into_iter().map(|(reason, _)| reason).collect()
}

#[tokio::test(start_paused = true)]
async fn a_service_is_told_that_it_is_served_and_what_is_wrong_with_it() {
    let rig = Rig::start().await;
    rig.service("web");
    let (stop, running) = rig.controller("one");
    rig.addresses("web").await;
    let served = ["EnsuredLoadBalancer", "EnsuringLoadBalancer"];
    rig.until("web is served", async || sorted(reasons(&rig, "web")) == served).await;

    rig.annotated("web", &[("azure-load-balancer-tcp-idle-timeout", "soon")]);
    rig.until("the mistake is told", async || reasons(&rig, "web").contains(&"IgnoredValue".to_owned())).await;
    let event = rig.events("web").into_iter().find(|(reason, _)| reason == "IgnoredValue").unwrap();
    assert!(event.1.contains("azure-load-balancer-tcp-idle-timeout is \"soon\""), "{event:?}");
    assert!(event.1.contains("what Azure has of it stays"), "{event:?}");
    // A new Service with the same gets nothing.
    rig.annotated("fresh", &[("azure-load-balancer-tcp-idle-timeout", "soon")]);
    let refused = ["EnsuringLoadBalancer", "InvalidService", "SyncLoadBalancerFailed"];
    rig.until("the refusal is told", async || sorted(reasons(&rig, "fresh")) == refused).await;
    let event = rig.events("fresh").into_iter().find(|(reason, _)| reason == "InvalidService").unwrap();
    assert!(event.1.ends_with("until then Azure keeps what it had before."), "{event:?}");

    rig.annotated("web", &[("azure-load-balancer-tcp-idle-timout", "5")]);
    rig.until("the unknown annotation is told", async || {
        reasons(&rig, "web").contains(&"UnknownAnnotation".to_owned())
    })
    .await;
    let ensured = || {
        let is_it = |event: &Value| event["regarding"]["name"] == "web" && event["reason"] == "EnsuredLoadBalancer";
        rig.server.list("events").into_iter().find(is_it).unwrap()
    };
    sleep(Duration::from_secs(60)).await;
    let served = ensured()["series"]["count"].clone();
    assert!(served.as_u64() >= Some(2), "web is served again: {served}");
    assert_eq!(ensured()["type"], "Normal");

    // A Service that is served as it was gets no event of a new process.
    stop.cancel();
    running.await.unwrap();
    let before = rig.server.list("events");
    let (stop, running) = rig.controller("two");
    sleep(Duration::from_secs(300)).await;
    let told = |events: &[Value]| events.iter().filter(|event| event["reason"] == "EnsuredLoadBalancer").count();
    assert_eq!(told(&rig.server.list("events")), told(&before));
    let begun = |events: &[Value]| events.iter().filter(|event| event["reason"] == "EnsuringLoadBalancer").count();
    assert_eq!(begun(&rig.server.list("events")), begun(&before));
    assert_eq!(ensured()["series"]["count"], served);
    rig.server.delete("services", "default", "web").unwrap();
    rig.until("web is gone", async || reasons(&rig, "web").contains(&"DeletedLoadBalancer".to_owned())).await;
    assert!(reasons(&rig, "web").contains(&"DeletingLoadBalancer".to_owned()));
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_azure_and_a_cluster_without_backends_are_told_once() {
    let rig = Rig::start().await;
    for at in 0..2 {
        let mut node = rig.server.get("nodes", "", &format!("node-{at}")).unwrap();
        node["metadata"]["labels"] = json!({"node.kubernetes.io/exclude-from-external-load-balancers": "false"});
        rig.server.put("nodes", node).unwrap();
    }
    let ip = "/providers/Microsoft.Network/publicIPAddresses/";
    rig.annotated("web", &[("azure-pip-name", "missing")]);
    let (stop, running) = rig.controller("one");
    let told = ["EnsuringLoadBalancer", "NotFound", "SyncLoadBalancerFailed", "UnAvailableLoadBalancer"];
    rig.until("the missing address is told", async || sorted(reasons(&rig, "web")) == told).await;
    let (_, note) = rig.events("web").into_iter().find(|(reason, _)| reason == "NotFound").unwrap();
    assert!(note.contains("missing"), "{note}");
    sleep(Duration::from_secs(600)).await;
    assert_eq!(rig.events("web").len(), 4, "{:#?}", rig.events("web"));
    assert!(!rig.writes().iter().any(|write| write.contains(ip)));
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_owner_is_told_that_a_load_balancer_of_another_sku_is_not_migrated() {
    let rig = Rig::start().await;
    let provider = format!(
        "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network",
        scenario::SUBSCRIPTION,
        scenario::RESOURCE_GROUP
    );
    let subnet = json!({"id": format!("{provider}/virtualNetworks/lazuli-vnet/subnets/nodes")});
    let body = json!({"location": scenario::LOCATION, "sku": {"name": "Basic"}, "properties": {
        "frontendIPConfigurations": [{"name": "theirs", "properties": {"subnet": subnet}}]}});
    let until = lazuli_azure::Until::within(Duration::from_secs(600));
    let put = lazuli_azure::network::NetworkWrite::Put { body, etag: None };
    let path = format!("{provider}/loadBalancers/kubernetes").parse().unwrap();
    rig.network.write(NetworkType::LoadBalancer, &path, put, None, &until).await.unwrap().settle(&until).await.unwrap();
    rig.service("web");
    let (stop, running) = rig.controller("one");
    rig.until("the owner is told", async || {
        rig.events("web").iter().any(|(_, note)| note.contains("load balancer kubernetes is Basic"))
    })
    .await;
    let before = rig.list(NetworkType::LoadBalancer).await;
    sleep(Duration::from_secs(600)).await;
    assert_eq!(rig.list(NetworkType::LoadBalancer).await, before);
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_owner_is_told_when_the_backends_have_followed_the_nodes() {
    for pool_kind in [PoolKind::NodeIp, PoolKind::Nic] {
        let rig = Rig::with(Settings { pool_kind, ..settings() }).await;
        rig.service("web");
        let (stop, running) = rig.controller("one");
        rig.addresses("web").await;
        sleep(Duration::from_secs(120)).await;
        let updated = || count(&rig, "web", "UpdatedLoadBalancer");
        let before = updated();
        set_backend(&rig, "node-1", false);
        rig.until("the Node has left", async || updated() == before + 1).await;
        set_backend(&rig, "node-1", true);
        rig.until("it is back", async || updated() == before + 2).await;
        // One that changes in what no pool depends on is no news.
        let mut node = rig.server.get("nodes", "", "node-1").unwrap();
        node["metadata"]["labels"] = json!({"team": "blue"});
        rig.server.put("nodes", node).unwrap();
        sleep(Duration::from_secs(300)).await;
        assert_eq!(updated(), before + 2, "{pool_kind:?}");
        assert_eq!(count(&rig, "web", "EnsuringLoadBalancer"), 1, "{pool_kind:?}");
        assert_eq!(count(&rig, "web", "EnsuredLoadBalancer"), 1, "{pool_kind:?}");
        stop.cancel();
        running.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_owner_is_told_once_that_the_backends_cannot_follow_the_nodes() {
    for (pool_kind, path) in [(PoolKind::NodeIp, "*/backendAddressPools/*"), (PoolKind::Nic, "*/networkInterfaces/*")] {
        let rig = Rig::with(Settings { pool_kind, ..settings() }).await;
        rig.service("web");
        let (stop, running) = rig.controller("one");
        rig.addresses("web").await;
        sleep(Duration::from_secs(120)).await;
        let matching = Match { method: Some("PUT".to_owned()), path: Some(path.to_owned()), ..Match::default() };
        let then = Effect { status: Some(403), code: Some("AuthorizationFailed".to_owned()), ..Effect::default() };
        rig.emulator.control().add_incident(Incident { matching, then, times: 0 }).unwrap();
        set_backend(&rig, "node-1", false);
        let failed = || count(&rig, "web", "UpdateLoadBalancerFailed");
        rig.until("the owner is told", async || failed() == 1).await;
        let note = rig.events("web").into_iter().find(|(reason, _)| reason == "UpdateLoadBalancerFailed").unwrap().1;
        assert!(note.contains("load balancer kubernetes do not follow the Nodes"), "{note}");
        sleep(Duration::from_secs(600)).await;
        assert_eq!(failed(), 1, "{pool_kind:?}");
        // It is served as before, and follows in the end.
        assert!(!reasons(&rig, "web").contains(&"SyncLoadBalancerFailed".to_owned()), "{:#?}", rig.events("web"));
        let before = count(&rig, "web", "UpdatedLoadBalancer");
        rig.emulator.control().clear_incidents();
        rig.until("the Node has left", async || count(&rig, "web", "UpdatedLoadBalancer") == before + 1).await;
        stop.cancel();
        running.await.unwrap();
    }
}
