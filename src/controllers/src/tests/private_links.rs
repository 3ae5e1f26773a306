//! Private link services before the frontends of Services.

use super::*;

/// The private link services, by name, with what they are for.
async fn links(rig: &Rig) -> Vec<Value> {
    rig.list(NetworkType::PrivateLinkService).await
}

fn internal<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let all = [("azure-load-balancer-internal", "true"), ("azure-pls-create", "true"), ("azure-pls-name", "entry")];
    all.into_iter().chain(more.iter().copied()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_private_link_service_is_made_changed_and_goes_with_its_service() {
    let rig = Rig::with(Settings { pool_kind: PoolKind::Nic, ..settings() }).await;
    rig.annotated("web", &internal(&[]));
    let (stop, running) = rig.controller("first");
    rig.addresses("web").await;
    let made = links(&rig).await;
    let [link] = &made[..] else { panic!("{made:?}") };
    assert_eq!(link["name"], "entry");
    assert_eq!(link["tags"]["k8s-azure-owner-service"], "default/web");
    let frontend = &link["properties"]["loadBalancerFrontendIpConfigurations"][0]["id"];
    assert!(frontend.as_str().unwrap().contains("/loadBalancers/kubernetes-internal/"), "{frontend}");

    rig.annotated("web", &internal(&[("azure-pls-visibility", "*"), ("azure-pls-proxy-protocol", "true")]));
    let is_changed = async || {
        let all = links(&rig).await;
        let properties = &all[0]["properties"];
        properties["enableProxyProtocol"] == true && properties["visibility"]["subscriptions"] == json!(["*"])
    };
    rig.until("the private link service is changed", is_changed).await;
    sleep(Duration::from_secs(60)).await;
    stop.cancel();
    running.await.unwrap();

    // Another process writes nothing, finds it, and takes it away with its Service.
    let writes = rig.writes();
    let (stop, running) = rig.controller("second");
    sleep(Duration::from_secs(300)).await;
    assert_eq!(rig.writes(), writes);
    rig.server.delete("services", "default", "web").unwrap();
    rig.until("web is gone", async || rig.server.list("services").is_empty()).await;
    assert_eq!(links(&rig).await, Vec::<Value>::new());
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_private_link_service_goes_when_its_annotation_does() {
    let rig = Rig::with(Settings { pool_kind: PoolKind::Nic, ..settings() }).await;
    rig.annotated("web", &internal(&[]));
    let (stop, running) = rig.controller("first");
    let addresses = rig.addresses("web").await;
    assert_eq!(links(&rig).await.len(), 1);
    rig.annotated("web", &[("azure-load-balancer-internal", "true")]);
    rig.until("the private link service is gone", async || links(&rig).await.is_empty()).await;
    assert_eq!(rig.addresses("web").await, addresses);
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_a_private_link_service_needs_and_lacks_is_told() {
    // Azure puts none before a load balancer whose pools list addresses.
    let rig = Rig::start().await;
    rig.annotated("web", &internal(&[]));
    let (stop, running) = rig.controller("first");
    rig.until("the owner is told", async || {
        rig.events("web")
            .iter()
            .any(|(reason, note)| reason == "SyncLoadBalancerFailed" && note.contains("private link service entry"))
    })
    .await;
    assert!(links(&rig).await.is_empty());
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_private_link_service_stays_as_it_is_while_an_annotation_of_it_cannot_be_used() {
    let rig = Rig::with(Settings { pool_kind: PoolKind::Nic, ..settings() }).await;
    rig.annotated("web", &internal(&[]));
    let (mut stop, mut running) = rig.controller("first");
    rig.addresses("web").await;
    sleep(Duration::from_secs(60)).await;
    let now = async || {
        let all = links(&rig).await;
        let [link] = &all[..] else { panic!("{all:?}") };
        (link["id"].clone(), link["tags"].clone(), link["properties"].clone())
    };
    let made = now().await;
    let balancer = rig.settings.load_balancer_id("kubernetes-internal").unwrap();
    let ports = || {
        let body = rig.emulator.control().store(|store| store.document(balancer.as_str())).unwrap_or_default();
        let rules = body["properties"]["loadBalancingRules"].as_array().cloned().unwrap_or_default();
        rules.iter().filter_map(|rule| rule["properties"]["frontendPort"].as_u64()).collect::<Vec<_>>()
    };
    for (port, mistaken) in [
        ("azure-pls-create", "maybe"),
        ("azure-pls-name", "a b"),
        ("azure-pls-resource-group", "a/b"),
        ("azure-pls-ip-configuration-subnet", "a/b"),
        ("azure-pls-ip-configuration-ip-address-count", "9"),
        ("azure-pls-ip-configuration-ip-address", "nowhere"),
        ("azure-pls-proxy-protocol", "yes"),
    ]
    .into_iter()
    .enumerate()
    {
        let port = 8_000 + port as u64;
        // What else is asked of it waits too.
        let mut annotations = internal(&[("azure-pls-visibility", "*")]);
        annotations.retain(|(key, _)| *key != mistaken.0);
        annotations.push(mistaken);
        let mut service = rig.annotated("web", &annotations);
        service["spec"]["ports"] = json!([{"port": port}]);
        rig.server.put("services", service).unwrap();
        rig.until("the Service is served", async || ports() == [port]).await;
        sleep(Duration::from_secs(60)).await;
        assert_eq!(now().await, made, "{mistaken:?}");
        let is_told = |(reason, note): &(String, String)| reason == "IgnoredValue" && note.contains(mistaken.0);
        assert!(rig.events("web").iter().any(is_told), "{mistaken:?}: {:#?}", rig.events("web"));
        stop.cancel();
        running.await.unwrap();
        (stop, running) = rig.controller(mistaken.0);
        sleep(Duration::from_secs(300)).await;
        assert_eq!(now().await, made, "{mistaken:?}, another process");
    }
    rig.annotated("web", &internal(&[("azure-pls-visibility", "*")]));
    let is_changed = async || now().await.2["visibility"]["subscriptions"] == json!(["*"]);
    rig.until("the private link service is changed", is_changed).await;
    stop.cancel();
    running.await.unwrap();
}
