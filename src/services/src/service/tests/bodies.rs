//! Whole bodies, as the Go manager writes them.

use super::*;

#[test]
fn one_public_tcp_port_leads_to_three_whole_bodies() {
    let bodies = bodies(&service(), &settings());
    let balancer = format!("{SUBSCRIPTION}/loadBalancers/kubernetes");
    let public_ip = format!("kubernetes-{BASE}");
    assert_eq!(
        bodies.public_ips,
        [json!({
            "name": public_ip,
            "location": "westeurope",
            "properties": { "publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv4" },
            "sku": { "name": "Standard" },
            "tags": { "k8s-azure-service": "default/web", "k8s-azure-cluster-name": "kubernetes" },
            "zones": ["1", "2", "3"],
        })]
    );
    assert_eq!(
        bodies.load_balancer,
        json!({
            "name": "kubernetes",
            "location": "westeurope",
            "sku": { "name": "Standard" },
            "properties": {
                "frontendIPConfigurations": [{
                    "name": BASE,
                    "id": format!("{balancer}/frontendIPConfigurations/{BASE}"),
                    "properties": {
                        "publicIPAddress": { "id": format!("{SUBSCRIPTION}/publicIPAddresses/{public_ip}") },
                    },
                }],
                "backendAddressPools": [{ "name": "kubernetes", "properties": {} }],
                "probes": [{
                    "name": format!("{BASE}-TCP-80"),
                    "properties": { "protocol": "Tcp", "port": 30_080, "intervalInSeconds": 5, "probeThreshold": 2 },
                }],
                "loadBalancingRules": [{
                    "name": format!("{BASE}-TCP-80"),
                    "properties": {
                        "protocol": "Tcp",
                        "frontendIPConfiguration": { "id": format!("{balancer}/frontendIPConfigurations/{BASE}") },
                        "backendAddressPool": { "id": format!("{balancer}/backendAddressPools/kubernetes") },
                        "probe": { "id": format!("{balancer}/probes/{BASE}-TCP-80") },
                        "frontendPort": 80,
                        "backendPort": 80,
                        "enableFloatingIP": true,
                        "enableTcpReset": true,
                        "idleTimeoutInMinutes": 4,
                        "loadDistribution": "Default",
                        "disableOutboundSnat": false,
                    },
                }],
            },
        })
    );
    assert_eq!(
        bodies.security_group["properties"]["securityRules"],
        json!([{
            // The digest of `Tcp_Internet_80`.
            "name": "k8s-azure-lb_allow_IPv4_d39272f7f57ed937951650d93992ad77",
            "properties": {
                "priority": 500,
                "protocol": "Tcp",
                "access": "Allow",
                "direction": "Inbound",
                "sourceAddressPrefix": "Internet",
                "sourcePortRange": "*",
                "destinationAddressPrefix": "20.0.0.4",
                "destinationPortRanges": ["80"],
            },
        }])
    );
}

#[test]
fn an_internal_frontend_keeps_the_address_of_the_status_only_within_its_subnet() {
    for (ingress, kept) in [("10.0.0.77", json!("10.0.0.77")), ("20.0.0.4", Value::Null), ("10.1.0.77", Value::Null)] {
        let internal = annotated(&[("azure-load-balancer-internal", "true")]);
        let object = ServiceObject { ingress: vec![ingress.parse().unwrap()], ..internal };
        let balancer = bodies(&object, &settings()).load_balancer;
        let frontend = &balancer["properties"]["frontendIPConfigurations"][0]["properties"];
        assert_eq!(frontend["privateIPAddress"], kept, "{ingress}");
        assert_eq!(frontend["privateIPAllocationMethod"], if kept.is_null() { "Dynamic" } else { "Static" });
    }
}
