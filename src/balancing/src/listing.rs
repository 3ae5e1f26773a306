//! What the load balancers of a cluster serve, for people: one row for each frontend.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use lazuli_model::{ArmId, ServiceKey};
use lazuli_services::{
    ask::{TransportProtocol, names},
    network::{
        load_balancer::{Frontend, LoadBalancer, Rule},
        public_ip::PublicIp,
        settings::LoadBalancerSku,
    },
};

/// A frontend and what it serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The name of the load balancer.
    pub load_balancer: String,
    /// Its SKU.
    pub sku: LoadBalancerSku,
    /// The name of the frontend.
    pub frontend: String,
    /// Its address, as far as Azure has given one.
    pub address: Option<IpAddr>,
    /// Whom its rules are for.
    pub services: BTreeSet<Served>,
    /// Its rules, such as `TCP 80 -> 8080`.
    pub rules: Vec<String>,
    /// The members of the pools that its rules lead to, by the name of the pool.
    pub backends: BTreeMap<String, usize>,
}

/// Whom a frontend or a rule is for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Served {
    /// A Service of the cluster, as `namespace/name`.
    Service(String),
    /// A Service that is not known: of another cluster, or gone. It is named by the first part of its names.
    Unknown(String),
    /// What was not made for a Service.
    Foreign,
}

/// The rows of load balancers, in the order of their names. `services` are those of the cluster.
pub fn rows<'a>(
    balancers: impl IntoIterator<Item = &'a LoadBalancer>,
    public_ips: &BTreeMap<ArmId, PublicIp>,
    services: impl IntoIterator<Item = &'a ServiceKey>,
) -> Vec<Row> {
    let named: BTreeMap<String, String> = services
        .into_iter()
        .map(|service| (names::BaseName::of(service).as_str().to_lowercase(), service.tag_name()))
        .collect();
    let served = |name: &str| match names::base_in(name).map(str::to_lowercase) {
        None => Served::Foreign,
        Some(base) => {
            named.get(&base).map_or_else(|| Served::Unknown(base.clone()), |name| Served::Service(name.clone()))
        }
    };
    let mut rows = Vec::new();
    for balancer in balancers {
        let size = |pool: &ArmId| {
            let pool = balancer.pool(pool.name())?;
            let addresses = pool.addresses.iter().filter(|member| member.address.is_some()).count();
            Some((pool.name.clone(), if addresses > 0 { addresses } else { pool.nic_members }))
        };
        for frontend in &balancer.frontends {
            let id = LoadBalancer::frontend_id(&balancer.id, &frontend.name);
            let rules: Vec<&Rule> = balancer.rules.iter().filter(|rule| rule.frontend.as_ref() == Some(&id)).collect();
            let mut of: BTreeSet<Served> = rules.iter().map(|rule| served(&rule.name)).collect();
            if of.is_empty() {
                of.insert(served(&frontend.name));
            }
            rows.push(Row {
                load_balancer: balancer.id.name().to_owned(),
                sku: balancer.sku,
                frontend: frontend.name.clone(),
                address: address(frontend, public_ips),
                services: of,
                rules: rules.iter().map(|rule| described(rule)).collect(),
                backends: rules.iter().filter_map(|rule| size(rule.pool.as_ref()?)).collect(),
            });
        }
    }
    rows.sort_by(|one, other| (&one.load_balancer, &one.frontend).cmp(&(&other.load_balancer, &other.frontend)));
    rows
}

fn address(frontend: &Frontend, public_ips: &BTreeMap<ArmId, PublicIp>) -> Option<IpAddr> {
    let public = || public_ips.get(frontend.public_ip.as_ref()?)?.address;
    frontend.private_address.or_else(public)
}

fn described(rule: &Rule) -> String {
    let protocol = match rule.protocol {
        Some(TransportProtocol::Tcp) => "TCP",
        Some(TransportProtocol::Udp) => "UDP",
        Some(TransportProtocol::All) => "all",
        None => "?",
    };
    let port = |port: u16| if port == 0 { "all".to_owned() } else { port.to_string() };
    format!("{protocol} {} -> {}", port(rule.frontend_port), port(rule.backend_port))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_row_names_service_address_rules_and_backends() {
        let balancer = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/loadBalancers/kubernetes";
        let ip = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/publicIPAddresses/ip";
        let web = ServiceKey::new("shop", "web", "0b7c6a52-3c1e-4d3a-9a53-0a6b9a0c2f11");
        let base = names::BaseName::of(&web);
        let other = format!("a{}", "0".repeat(31));
        let rule = |name: String, frontend: &str| {
            json!({"name": name, "properties": {"frontendIPConfiguration": {"id": format!("{balancer}/frontendIPConfigurations/{frontend}")},
                "backendAddressPool": {"id": format!("{balancer}/backendAddressPools/kubernetes")},
                "protocol": "Tcp", "frontendPort": 80, "backendPort": 8080}})
        };
        let body = json!({"sku": {"name": "Standard"}, "properties": {
            "frontendIPConfigurations": [
                {"name": base.as_str(), "properties": {"publicIPAddress": {"id": ip}}},
                {"name": "mine", "properties": {"privateIPAddress": "10.0.0.9"}}],
            "backendAddressPools": [{"name": "kubernetes", "properties": {"loadBalancerBackendAddresses": [
                {"name": "n", "properties": {"ipAddress": "10.0.0.4"}}, {"name": "m", "properties": {"ipAddress": "10.0.0.5"}}]}}],
            "loadBalancingRules": [rule(format!("{base}-TCP-80"), base.as_str()), rule(format!("{other}-TCP-80"), base.as_str())]}});
        let id: ArmId = balancer.parse().unwrap();
        let read = LoadBalancer::read(&id, &body).unwrap();
        let ip: ArmId = ip.parse().unwrap();
        let public = PublicIp::read(&ip, &json!({"properties": {"ipAddress": "20.0.0.1"}})).unwrap();
        let rows = rows([&read], &[(ip, public)].into(), [&web]);
        let [own, foreign] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!((own.frontend.as_str(), own.address), (base.as_str(), "20.0.0.1".parse().ok()));
        assert_eq!(own.services, [Served::Service("shop/web".to_owned()), Served::Unknown(other)].into());
        assert_eq!(own.rules, ["TCP 80 -> 8080", "TCP 80 -> 8080"]);
        assert_eq!(own.backends, [("kubernetes".to_owned(), 2)].into());
        assert_eq!((&foreign.services, foreign.address), (&[Served::Foreign].into(), "10.0.0.9".parse().ok()));
        assert!(foreign.rules.is_empty() && foreign.backends.is_empty());
    }
}
