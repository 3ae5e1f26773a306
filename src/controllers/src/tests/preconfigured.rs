//! Load balancers whose pools the operator fills.

use super::*;

async fn balancers(rig: &Rig) -> Vec<Value> {
    rig.list(NetworkType::LoadBalancer).await
}

/// The names of the frontends of a load balancer.
fn frontends(balancer: &Value) -> Vec<&str> {
    let all = balancer["properties"]["frontendIPConfigurations"].as_array().unwrap();
    all.iter().map(|one| one["name"].as_str().unwrap()).collect()
}

/// The pools of a load balancer and the addresses in them.
fn pools(balancer: &Value) -> Vec<(String, Vec<String>)> {
    let of = |value: &Value, key: &str| value["properties"][key].as_array().cloned().unwrap_or_default();
    let address = |member: &Value| Some(member["properties"]["ipAddress"].as_str()?.to_owned());
    let all = of(balancer, "backendAddressPools");
    all.iter()
        .map(|pool| {
            let members = of(pool, "loadBalancerBackendAddresses").iter().filter_map(address).collect();
            (pool["name"].as_str().unwrap().to_owned(), members)
        })
        .collect()
}

async fn delete(rig: &Rig, name: &str) {
    rig.server.delete("services", "default", name).unwrap();
    let is_gone = async || rig.server.get("services", "default", name).is_none();
    rig.until("the Service is gone", is_gone).await;
}

#[tokio::test(start_paused = true)]
async fn the_operators_load_balancer_stays_with_its_frontend_pool_and_members() {
    let rig = Rig::with(Settings { preconfigured_pools: PreconfiguredPools::All, ..settings() }).await;
    let network = format!(
        "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network",
        scenario::SUBSCRIPTION,
        scenario::RESOURCE_GROUP
    );
    let address = json!({"location": scenario::LOCATION, "sku": {"name": "Standard"},
        "properties": {"publicIPAllocationMethod": "Static"}});
    rig.make(NetworkType::PublicIp, "publicIPAddresses/theirs", address).await;
    let member = json!({"name": "appliance", "properties": {"ipAddress": "10.240.0.99",
        "virtualNetwork": {"id": format!("{network}/virtualNetworks/lazuli-vnet")}}});
    let balancer = json!({"location": scenario::LOCATION, "sku": {"name": "Standard"}, "properties": {
        "frontendIPConfigurations": [{"name": "theirs", "properties": {
            "publicIPAddress": {"id": format!("{network}/publicIPAddresses/theirs")}}}],
        "backendAddressPools": [{"name": "kubernetes", "properties": {"loadBalancerBackendAddresses": [member]}}]}});
    rig.make(NetworkType::LoadBalancer, "loadBalancers/kubernetes", balancer).await;
    let before = balancers(&rig).await;

    rig.service("web");
    let (stop, running) = rig.controller("one");
    rig.addresses("web").await;
    delete(&rig, "web").await;
    let after = balancers(&rig).await;
    let [balancer] = &after[..] else { panic!("{after:#?}") };
    assert_eq!(frontends(balancer), ["theirs"]);
    assert_eq!(pools(balancer), pools(&before[0]));
    assert_eq!(pools(balancer), [("kubernetes".to_owned(), vec!["10.240.0.99".to_owned()])]);
    assert_eq!(rig.list(NetworkType::PublicIp).await.len(), 1, "{:#?}", rig.writes());
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_last_frontend_of_a_pre_configured_load_balancer_stays_until_another_comes() {
    for pool_kind in [PoolKind::NodeIp, PoolKind::Nic] {
        let preconfigured_pools = PreconfiguredPools::External;
        let rig = Rig::with(Settings { preconfigured_pools, pool_kind, ..settings() }).await;
        rig.service("web");
        let (stop, running) = rig.controller("one");
        let addresses = rig.addresses("web").await;
        delete(&rig, "web").await;
        let left = balancers(&rig).await;
        assert_eq!((left.len(), frontends(&left[0]).len()), (1, 1), "{:#?}", rig.writes());
        assert_eq!(left[0]["properties"]["loadBalancingRules"], json!([]));
        assert_eq!(left[0]["properties"]["probes"], json!([]));
        let public_ips = rig.list(NetworkType::PublicIp).await;
        assert_eq!(public_ips[0]["properties"]["ipAddress"], json!(addresses[0]));
        rig.until("the owner is told", async || rig.events("web").iter().any(|(reason, _)| reason == "LastFrontend"))
            .await;
        assert!(!rig.writes().iter().any(|write| write.ends_with("400")), "{:#?}", rig.writes());
        stop.cancel();
        running.await.unwrap();

        // Another process meets another Service.
        rig.service("other");
        let (stop, running) = rig.controller("two");
        let other = rig.addresses("other").await;
        let is_alone = async || {
            let public_ips = rig.list(NetworkType::PublicIp).await;
            public_ips.len() == 1 && public_ips[0]["properties"]["ipAddress"] == json!(other[0])
        };
        rig.until("the address that stayed is gone", is_alone).await;
        let after = balancers(&rig).await;
        assert_eq!(frontends(&after[0]).len(), 1);
        assert_ne!(frontends(&after[0]), frontends(&left[0]));
        assert!(!rig.writes().iter().any(|write| write.ends_with("400")), "{:#?}", rig.writes());
        stop.cancel();
        running.await.unwrap();
    }
}
