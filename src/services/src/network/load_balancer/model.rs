//! A load balancer as Azure describes it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    ops::RangeInclusive,
};

use lazuli_model::{
    ArmId,
    address::Family,
    json::{self, BodyError, Child, Provisioning, at, list, text},
};
use serde_json::{Value, json};

use super::super::{nic::Holder, settings::LoadBalancerSku};
use crate::ask::{Affinity, ProbeProtocol, TransportProtocol, names};

/// A load balancer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadBalancer {
    /// Its id.
    pub id: ArmId,
    /// Its SKU.
    pub sku: LoadBalancerSku,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// Its frontends.
    pub frontends: Vec<Frontend>,
    /// Its load-balancing rules.
    pub rules: Vec<Rule>,
    /// Its probes.
    pub probes: Vec<Probe>,
    /// Its backend pools.
    pub pools: Vec<Pool>,
    /// Its outbound rules, which are never ours.
    pub outbound_rules: Vec<Foreign>,
    /// Its inbound NAT rules and pools, which are never ours.
    pub nat: Vec<NatRange>,
    /// How its last operation went.
    pub provisioning: Provisioning,
}

/// A frontend IP configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frontend {
    /// Its name.
    pub name: String,
    /// Its public IP.
    pub public_ip: Option<ArmId>,
    /// Its subnet.
    pub subnet: Option<ArmId>,
    /// Its address in the subnet; `None` until Azure has chosen one.
    pub private_address: Option<IpAddr>,
    /// Whether the address was named rather than chosen by Azure.
    pub is_static: bool,
    /// The family of a private address; IPv4 where Azure says nothing.
    pub family: Family,
    /// Its zones.
    pub zones: Vec<String>,
}

/// A load-balancing rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Its name.
    pub name: String,
    /// Its transport; `None` for one that is not known here.
    pub protocol: Option<TransportProtocol>,
    /// Its frontend.
    pub frontend: Option<ArmId>,
    /// Its pool.
    pub pool: Option<ArmId>,
    /// Its probe.
    pub probe: Option<ArmId>,
    /// `frontendPort`.
    pub frontend_port: u16,
    /// `backendPort`.
    pub backend_port: u16,
    /// `enableFloatingIP`.
    pub floating_ip: bool,
    /// `idleTimeoutInMinutes`.
    pub idle_timeout_minutes: Option<u16>,
    /// `enableTcpReset`.
    pub tcp_reset: Option<bool>,
    /// `loadDistribution`; `None` for one that is not known here.
    pub affinity: Option<Affinity>,
    /// `disableOutboundSnat`.
    pub disable_outbound_snat: bool,
}

/// A health probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// Its name.
    pub name: String,
    /// Its protocol; `None` for one that is not known here.
    pub protocol: Option<ProbeProtocol>,
    /// Its port.
    pub port: u16,
    /// Its path.
    pub path: Option<String>,
    /// `intervalInSeconds`.
    pub interval_seconds: u32,
    /// `probeThreshold`.
    pub threshold: u32,
}

/// A backend pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Its virtual network, of a pool of addresses.
    pub vnet: Option<ArmId>,
    /// Its addresses.
    pub addresses: Vec<BackendAddress>,
    /// How many IP configurations of NICs are in it.
    pub nic_members: usize,
    /// Whose IP configurations those are: network interfaces, and instances of uniform scale sets.
    pub nics: BTreeSet<ArmId>,
}

/// A member of a pool of addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendAddress {
    /// Its name: that of its node.
    pub name: String,
    /// Its address; `None` for a member that is a NIC.
    pub address: Option<IpAddr>,
}

/// An outbound rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Foreign {
    /// Its name.
    pub name: String,
    /// The frontends that it uses.
    pub frontends: Vec<ArmId>,
    /// The pool that it serves.
    pub pool: Option<ArmId>,
}

/// An inbound NAT rule or NAT pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NatRange {
    /// Its name.
    pub name: String,
    /// Its frontend.
    pub frontend: Option<ArmId>,
    /// Its transport; `None` for one that is not known here.
    pub protocol: Option<TransportProtocol>,
    /// The ports of the frontend that it takes.
    pub ports: RangeInclusive<u16>,
}

impl TransportProtocol {
    /// Azure's spelling.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "Tcp",
            Self::Udp => "Udp",
            Self::All => "All",
        }
    }

    fn read(name: &str) -> Option<Self> {
        [Self::Tcp, Self::Udp, Self::All].into_iter().find(|value| value.as_str().eq_ignore_ascii_case(name))
    }
}

impl ProbeProtocol {
    /// Azure's spelling.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "Tcp",
            Self::Http => "Http",
            Self::Https => "Https",
        }
    }

    fn read(name: &str) -> Option<Self> {
        [Self::Tcp, Self::Http, Self::Https].into_iter().find(|value| value.as_str().eq_ignore_ascii_case(name))
    }
}

impl Affinity {
    /// Azure's spelling.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "Default",
            Self::ClientIp => "SourceIP",
        }
    }

    fn read(name: &str) -> Option<Self> {
        [Self::None, Self::ClientIp].into_iter().find(|value| value.as_str().eq_ignore_ascii_case(name))
    }
}

fn id(value: &Value, path: &[&str]) -> Option<ArmId> {
    text(value, path)?.parse().ok()
}

fn number<T: TryFrom<u64>>(value: &Value, key: &str) -> Option<T> {
    at(value, &["properties", key])?.as_u64()?.try_into().ok()
}

fn flag(value: &Value, key: &str) -> Option<bool> {
    at(value, &["properties", key])?.as_bool()
}

fn property<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    text(value, &["properties", key])
}

fn named<T>(value: &Value, key: &str, read: impl Fn(String, &Value) -> T) -> Vec<T> {
    list(value, &["properties", key])
        .iter()
        .filter_map(|item| Some((text(item, &["name"])?, item)))
        .filter(|(name, _)| names::is_resource_name(name))
        .map(|(name, item)| read(name.to_owned(), item))
        .collect()
}

impl LoadBalancer {
    /// Reads the body of the load balancer of this id.
    ///
    /// # Errors
    /// When it is no object.
    pub fn read(load_balancer: &ArmId, body: &Value) -> Result<Self, BodyError> {
        if !body.is_object() {
            return Err(BodyError { object: "a load balancer", field: "object" });
        }
        let mut nat = named(body, "inboundNatRules", |name, item| NatRange {
            name,
            frontend: id(item, &["properties", "frontendIPConfiguration", "id"]),
            protocol: property(item, "protocol").and_then(TransportProtocol::read),
            ports: match (number(item, "frontendPortRangeStart"), number(item, "frontendPortRangeEnd")) {
                (Some(first), Some(last)) => first..=last,
                _ => number(item, "frontendPort").map_or(RangeInclusive::new(1, 0), |port| port..=port),
            },
        });
        nat.extend(named(body, "inboundNatPools", |name, item| NatRange {
            name,
            frontend: id(item, &["properties", "frontendIPConfiguration", "id"]),
            protocol: property(item, "protocol").and_then(TransportProtocol::read),
            ports: number(item, "frontendPortRangeStart").unwrap_or(1)
                ..=number(item, "frontendPortRangeEnd").unwrap_or(0),
        }));
        Ok(Self {
            id: load_balancer.clone(),
            sku: match text(body, &["sku", "name"]) {
                Some(name) if name.eq_ignore_ascii_case("Standard") => LoadBalancerSku::Standard,
                _ => LoadBalancerSku::Basic,
            },
            tags: json::tags(body),
            frontends: named(body, "frontendIPConfigurations", Frontend::read),
            rules: named(body, "loadBalancingRules", Rule::read),
            probes: named(body, "probes", Probe::read),
            pools: named(body, "backendAddressPools", Pool::read),
            outbound_rules: named(body, "outboundRules", |name, item| Foreign {
                name,
                frontends: list(item, &["properties", "frontendIPConfigurations"])
                    .iter()
                    .filter_map(|reference| id(reference, &["id"]))
                    .collect(),
                pool: id(item, &["properties", "backendAddressPool", "id"]),
            }),
            nat,
            provisioning: Provisioning::read(body),
        })
    }

    /// The id of one of its parts, whose name is one that Azure allows.
    pub fn child_id(load_balancer: &ArmId, kind: &str, name: &str) -> ArmId {
        format!("{load_balancer}/{kind}/{name}").parse().expect("the id of a load balancer with two more segments")
    }

    /// The id of a frontend.
    pub fn frontend_id(load_balancer: &ArmId, name: &str) -> ArmId {
        Self::child_id(load_balancer, "frontendIPConfigurations", name)
    }

    /// The id of a probe.
    pub fn probe_id(load_balancer: &ArmId, name: &str) -> ArmId {
        Self::child_id(load_balancer, "probes", name)
    }

    /// The id of a pool.
    pub fn pool_id(load_balancer: &ArmId, name: &str) -> ArmId {
        Self::child_id(load_balancer, "backendAddressPools", name)
    }

    /// The frontend of this name.
    pub fn frontend(&self, name: &str) -> Option<&Frontend> {
        self.frontends.iter().find(|item| item.name.eq_ignore_ascii_case(name))
    }

    /// The rule of this name.
    pub fn rule(&self, name: &str) -> Option<&Rule> {
        self.rules.iter().find(|item| item.name.eq_ignore_ascii_case(name))
    }

    /// The probe of this name.
    pub fn probe(&self, name: &str) -> Option<&Probe> {
        self.probes.iter().find(|item| item.name.eq_ignore_ascii_case(name))
    }

    /// The pool of this name.
    pub fn pool(&self, name: &str) -> Option<&Pool> {
        self.pools.iter().find(|item| item.name.eq_ignore_ascii_case(name))
    }
}

impl Frontend {
    fn read(name: String, item: &Value) -> Self {
        let private_address: Option<IpAddr> = property(item, "privateIPAddress").and_then(|text| text.parse().ok());
        let family = match property(item, "privateIPAddressVersion") {
            Some(version) if version.eq_ignore_ascii_case("IPv6") => Family::V6,
            Some(_) => Family::V4,
            None => private_address.map_or(Family::V4, Family::of),
        };
        Self {
            name,
            public_ip: id(item, &["properties", "publicIPAddress", "id"]),
            subnet: id(item, &["properties", "subnet", "id"]),
            private_address,
            is_static: property(item, "privateIPAllocationMethod")
                .is_some_and(|how| how.eq_ignore_ascii_case("Static")),
            family,
            zones: json::texts(item, &["zones"]),
        }
    }

    /// What a body holds of it. An `id` goes with a new one, as the Go manager writes it.
    pub(super) fn child(&self, load_balancer: &ArmId, is_new: bool) -> Child {
        let mut properties = Vec::new();
        if let Some(public_ip) = &self.public_ip {
            properties.push(("publicIPAddress", Some(json::reference(public_ip))));
        }
        if let Some(subnet) = &self.subnet {
            let method = if self.is_static { "Static" } else { "Dynamic" };
            properties.push(("subnet", Some(json::reference(subnet))));
            properties.push(("privateIPAllocationMethod", Some(json!(method))));
            let address = self.private_address.filter(|_| self.is_static);
            properties.push(("privateIPAddress", address.map(|address| json!(address.to_string()))));
            if self.family == Family::V6 {
                properties.push(("privateIPAddressVersion", Some(json!("IPv6"))));
            }
        }
        let mut beside = Vec::new();
        if is_new {
            beside.push(("id", json!(LoadBalancer::frontend_id(load_balancer, &self.name).as_str())));
            if !self.zones.is_empty() {
                beside.push(("zones", json!(self.zones)));
            }
        }
        Child { name: self.name.clone(), properties, beside }
    }
}

impl Rule {
    fn read(name: String, item: &Value) -> Self {
        Self {
            name,
            protocol: property(item, "protocol").and_then(TransportProtocol::read),
            frontend: id(item, &["properties", "frontendIPConfiguration", "id"]),
            pool: id(item, &["properties", "backendAddressPool", "id"]),
            probe: id(item, &["properties", "probe", "id"]),
            frontend_port: number(item, "frontendPort").unwrap_or(0),
            backend_port: number(item, "backendPort").unwrap_or(0),
            floating_ip: flag(item, "enableFloatingIP").unwrap_or(false),
            idle_timeout_minutes: number(item, "idleTimeoutInMinutes"),
            tcp_reset: flag(item, "enableTcpReset"),
            affinity: property(item, "loadDistribution").map_or(Some(Affinity::None), Affinity::read),
            disable_outbound_snat: flag(item, "disableOutboundSnat").unwrap_or(false),
        }
    }

    pub(super) fn child(&self) -> Child {
        let reference = |id: &Option<ArmId>| id.as_ref().map(json::reference);
        let mut properties = vec![
            ("protocol", self.protocol.map(|protocol| json!(protocol.as_str()))),
            ("frontendIPConfiguration", reference(&self.frontend)),
            ("backendAddressPool", reference(&self.pool)),
            // Azure repeats the pool here; two that differ are an error.
            ("backendAddressPools", None),
            ("probe", reference(&self.probe)),
            ("frontendPort", Some(json!(self.frontend_port))),
            ("backendPort", Some(json!(self.backend_port))),
            ("enableFloatingIP", Some(json!(self.floating_ip))),
            ("idleTimeoutInMinutes", self.idle_timeout_minutes.map(|minutes| json!(minutes))),
            ("loadDistribution", self.affinity.map(|affinity| json!(affinity.as_str()))),
            ("disableOutboundSnat", Some(json!(self.disable_outbound_snat))),
        ];
        if let Some(reset) = self.tcp_reset {
            properties.push(("enableTcpReset", Some(json!(reset))));
        }
        Child { name: self.name.clone(), properties, beside: vec![] }
    }

    /// Whether Azure's rule is the one that is wanted. What Azure fills in by itself is not compared, nor is the TCP reset
    /// of a rule of another transport, as in the Go manager.
    pub(super) fn serves(&self, wanted: &Self) -> bool {
        self.protocol == wanted.protocol
            && (wanted.protocol != Some(TransportProtocol::Tcp)
                || self.tcp_reset.unwrap_or(false) == wanted.tcp_reset.unwrap_or(false))
            && self.frontend == wanted.frontend
            && self.pool == wanted.pool
            && self.probe == wanted.probe
            && self.frontend_port == wanted.frontend_port
            && self.backend_port == wanted.backend_port
            && self.floating_ip == wanted.floating_ip
            && self.idle_timeout_minutes.is_none_or(|minutes| Some(minutes) == wanted.idle_timeout_minutes)
            && self.affinity == wanted.affinity
            && self.disable_outbound_snat == wanted.disable_outbound_snat
    }
}

impl Probe {
    fn read(name: String, item: &Value) -> Self {
        Self {
            name,
            protocol: property(item, "protocol").and_then(ProbeProtocol::read),
            port: number(item, "port").unwrap_or(0),
            path: property(item, "requestPath").filter(|path| !path.is_empty()).map(str::to_owned),
            interval_seconds: number(item, "intervalInSeconds").unwrap_or(0),
            // Azure Stack Hub has the older name alone.
            threshold: number(item, "probeThreshold").or_else(|| number(item, "numberOfProbes")).unwrap_or(0),
        }
    }

    pub(super) fn child(&self) -> Child {
        Child {
            name: self.name.clone(),
            properties: vec![
                ("protocol", self.protocol.map(|protocol| json!(protocol.as_str()))),
                ("port", Some(json!(self.port))),
                ("requestPath", self.path.as_ref().map(|path| json!(path))),
                ("intervalInSeconds", Some(json!(self.interval_seconds))),
                ("probeThreshold", Some(json!(self.threshold))),
            ],
            beside: vec![],
        }
    }

    /// Whether Azure's probe is the one that is wanted.
    pub(super) fn serves(&self, wanted: &Self) -> bool {
        let path = |probe: &Self| probe.path.as_deref().unwrap_or_default().to_lowercase();
        self.protocol == wanted.protocol
            && self.port == wanted.port
            && path(self) == path(wanted)
            && self.interval_seconds == wanted.interval_seconds
            && self.threshold == wanted.threshold
    }
}

impl Pool {
    fn read(name: String, item: &Value) -> Self {
        let nics = list(item, &["properties", "backendIPConfigurations"]);
        Self {
            name,
            vnet: id(item, &["properties", "virtualNetwork", "id"]),
            addresses: list(item, &["properties", "loadBalancerBackendAddresses"])
                .iter()
                .map(|address| BackendAddress {
                    name: text(address, &["name"]).unwrap_or_default().to_owned(),
                    address: property(address, "ipAddress").and_then(|text| text.parse().ok()),
                })
                .collect(),
            nic_members: nics.len(),
            nics: nics.iter().filter_map(|nic| Holder::of_configuration(&id(nic, &["id"])?)).collect(),
        }
    }

    /// Whether it is a pool of addresses: one of its members is an address.
    pub(super) fn has_addresses(&self) -> bool {
        self.addresses.iter().any(|member| member.address.is_some())
    }

    /// Whether NICs are its members.
    pub fn has_nics(&self) -> bool {
        self.nic_members > 0 && !self.has_addresses()
    }
}
