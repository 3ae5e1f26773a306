use super::load_balancers::{id, reference, subnet, uri};
use super::*;

fn service() -> String {
    uri("privateLinkServices", "pls")
}

fn body(frontend: &str) -> Value {
    json!({"location": "westeurope", "properties": {
        "loadBalancerFrontendIpConfigurations": [reference(frontend)],
        "ipConfigurations": [{"name": "c", "properties": {"subnet": reference(&subnet())}}],
    }})
}

fn frontend(balancer: &str) -> String {
    format!("{}/frontendIPConfigurations/f", id("loadBalancers", balancer))
}

/// Load balancers of both SKUs, each with an internal frontend and a rule of it.
async fn rig() -> Rig {
    let rig = Rig::new(options()).await;
    for sku in ["Standard", "Basic"] {
        let pool = format!("{}/backendAddressPools/p", id("loadBalancers", sku));
        let body = json!({"location": "westeurope", "sku": {"name": sku}, "properties": {
            "frontendIPConfigurations": [{"name": "f", "properties": {"subnet": reference(&subnet())}}],
            "backendAddressPools": [{"name": "p"}],
            "loadBalancingRules": [{"name": "r", "properties": {
                "frontendIPConfiguration": reference(&frontend(sku)), "backendAddressPool": reference(&pool),
                "protocol": "Tcp", "frontendPort": 80, "backendPort": 80,
            }}],
        }});
        rig.written(&uri("loadBalancers", sku), body).await;
    }
    rig
}

impl Rig {
    /// Network policies for private link services in the subnet of the nodes.
    async fn set_policies(&self, policies: &str) -> Got {
        let uri = uri("virtualNetworks", "lazuli-vnet/subnets/nodes");
        let shown = self.get(&uri).await.expect(200);
        let mut body = shown.body.clone();
        body["properties"]["privateLinkServiceNetworkPolicies"] = json!(policies);
        self.with("PUT", &uri, Some(body), &[("if-match", shown.header("etag"))]).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_private_link_service_needs_a_subnet_without_policies_and_a_standard_load_balancer() {
    let rig = rig().await;
    let code = "PrivateLinkServiceCannotBeCreatedInSubnetThatHasNetworkPoliciesEnabled";
    rig.refuses(&service(), &body(&frontend("Standard")), code).await;
    rig.set_policies("Disabled").await.expect(200);
    rig.refuses(&service(), &body(&frontend("Basic")), "PrivateLinkServiceNeedsStandardLoadBalancer").await;
    rig.refuses(&service(), &body(&frontend("none")), "InvalidResourceReference").await;
    let standard = uri("loadBalancers", "Standard");
    let mut balancer = rig.get(&standard).await.expect(200).body;
    let before = balancer["etag"].clone();
    rig.written(&service(), body(&frontend("Standard"))).await;
    assert_ne!(rig.get(&standard).await.expect(200).body["etag"], before);
    rig.set_policies("Enabled")
        .await
        .refused(400, "PrivateLinkServiceNetworkPoliciesCannotBeEnabledOnPrivateLinkServiceSubnet");
    let second = uri("privateLinkServices", "second");
    rig.refuses(&second, &body(&frontend("Standard")), "FrontendIPConfigurationInUseByPrivateLinkService").await;
    rig.call("DELETE", &standard, None).await.refused(400, "InUseFrontendIPConfigurationCannotBeDeleted");
    let got = rig.call("DELETE", &service(), None).await.expect(202);
    rig.finish(&got).await;
    balancer["properties"]["backendAddressPools"] = json!([{"name": "p", "properties": {
        "virtualNetwork": reference(&id("virtualNetworks", "lazuli-vnet")),
        "loadBalancerBackendAddresses": [{"name": "a", "properties": {"ipAddress": "10.240.0.99"}}],
    }}]);
    rig.written(&standard, balancer).await;
    let code = "PrivateLinkServiceNotSupportedForIpBasedLoadBalancer";
    rig.refuses(&service(), &body(&frontend("Standard")), code).await;
    rig.call("DELETE", &standard, None).await.expect(202);
    rig.set_policies("Enabled").await.expect(200);
}

#[tokio::test(start_paused = true)]
async fn a_private_endpoint_is_a_connection_of_its_service() {
    let rig = rig().await;
    rig.set_policies("Disabled").await.expect(200);
    let alone = rig.written(&service(), body(&frontend("Standard"))).await;
    let endpoint = |member: &str| {
        json!({"location": "westeurope", "properties": {
            "subnet": reference(&subnet()),
            member: [{"name": "c", "properties": {"privateLinkServiceId": id("privateLinkServices", "pls")}}],
        }})
    };
    let e = uri("privateEndpoints", "e");
    rig.written(&e, endpoint("privateLinkServiceConnections")).await;
    let shown = rig.get(&service()).await.expect(200).body;
    assert_ne!(shown["etag"], alone["etag"]);
    let connection = &shown["properties"]["privateEndpointConnections"][0];
    assert_eq!(connection["properties"]["privateEndpoint"], reference(&id("privateEndpoints", "e")));
    assert_eq!(connection["properties"]["privateLinkServiceConnectionState"]["status"], "Approved");
    let refused = rig.call("DELETE", &service(), None).await;
    let refused = refused.refused(400, "PrivateLinkServiceHasPrivateEndpointConnections");
    let beginning = format!("Private link service {} cannot", id("privateLinkServices", "pls"));
    assert!(refused.message().starts_with(&beginning), "{}", refused.message());
    // What is read of either can be written. The service keeps its connections and its alias; its owner rejects one, and removes it.
    rig.written(&service(), shown.clone()).await;
    let endpoint_as_read = rig.get(&e).await.expect(200).body;
    rig.written(&e, endpoint_as_read).await;
    let again = rig.written(&service(), body(&frontend("Standard"))).await;
    assert_eq!(again["properties"]["alias"], shown["properties"]["alias"]);
    assert_eq!(again["properties"]["privateEndpointConnections"].as_array().unwrap().len(), 1);
    let name = connection["name"].as_str().unwrap();
    let own = uri("privateLinkServices", &format!("pls/privateEndpointConnections/{name}"));
    let rejected = json!({"properties": {"privateLinkServiceConnectionState": {"status": "Rejected"}}});
    let got = rig.call("PUT", &own, Some(rejected)).await.expect(200);
    assert_eq!(got.body["properties"]["privateEndpoint"], reference(&id("privateEndpoints", "e")));
    assert_eq!(got.body["properties"]["privateLinkServiceConnectionState"]["status"], "Rejected");
    rig.finish(&got).await;
    let got = rig.call("DELETE", &own, None).await.expect(202);
    rig.finish(&got).await;
    // One that asks is pending, and goes with its endpoint.
    let m = uri("privateEndpoints", "m");
    rig.written(&m, endpoint("manualPrivateLinkServiceConnections")).await;
    let shown = rig.get(&service()).await.expect(200).body;
    let state =
        &shown["properties"]["privateEndpointConnections"][0]["properties"]["privateLinkServiceConnectionState"];
    assert_eq!(state["status"], "Pending");
    let got = rig.call("DELETE", &m, None).await.expect(202);
    rig.finish(&got).await;
    let got = rig.call("DELETE", &service(), None).await.expect(202);
    rig.finish(&got).await;
    let missing = endpoint("privateLinkServiceConnections");
    rig.refuses(&m, &missing, "InvalidResourceReference").await;
}
