//! What the owners of Services are told.

use super::*;

fn reasons(rig: &Rig, name: &str) -> Vec<String> {
    rig.events(name).into_iter().map(|(reason, _)| reason).collect()
}

#[tokio::test(start_paused = true)]
async fn a_service_is_told_that_it_is_served_and_what_is_wrong_with_it() {
    let rig = Rig::start().await;
    rig.service("web");
    let (stop, running) = rig.controller("one");
    rig.addresses("web").await;
    rig.until("web is served", async || reasons(&rig, "web") == ["EnsuredLoadBalancer"]).await;

    rig.annotated("web", &[("azure-load-balancer-tcp-idle-timeout", "soon")]);
    rig.until("the mistake is told", async || reasons(&rig, "web").contains(&"IgnoredValue".to_owned())).await;
    let event = rig.events("web").into_iter().find(|(reason, _)| reason == "IgnoredValue").unwrap();
    assert!(event.1.contains("azure-load-balancer-tcp-idle-timeout is \"soon\""), "{event:?}");
    assert!(event.1.contains("what Azure has of it stays"), "{event:?}");
    // A new Service with the same gets nothing.
    rig.annotated("fresh", &[("azure-load-balancer-tcp-idle-timeout", "soon")]);
    rig.until("the refusal is told", async || reasons(&rig, "fresh") == ["InvalidService"]).await;
    let event = rig.events("fresh").remove(0);
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
    assert_eq!(ensured()["series"]["count"], served);
    rig.server.delete("services", "default", "web").unwrap();
    rig.until("web is gone", async || reasons(&rig, "web").contains(&"DeletedLoadBalancer".to_owned())).await;
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
    rig.until("the missing address is told", async || reasons(&rig, "web").len() == 2).await;
    assert_eq!(reasons(&rig, "web").iter().filter(|reason| *reason == "UnAvailableLoadBalancer").count(), 1);
    let (reason, note) = rig.events("web").into_iter().find(|(reason, _)| reason != "UnAvailableLoadBalancer").unwrap();
    assert_eq!(reason, "NotFound");
    assert!(note.contains("missing"), "{note}");
    sleep(Duration::from_secs(600)).await;
    assert_eq!(rig.events("web").len(), 2, "{:#?}", rig.events("web"));
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
