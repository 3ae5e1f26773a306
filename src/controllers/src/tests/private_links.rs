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
