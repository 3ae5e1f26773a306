//! Which sources reach which address, read from Azure's documents alone.
//!
//! The path is that of a packet: a frontend with the address, a load-balancing rule for the port, a member of its pool, the
//! security groups of the member's network interface and subnet. Nothing here knows the planners of load balancers.
//!
//! A write takes some seconds, and Azure may put what is asked into force at any moment of them. [`Azure`] therefore keeps
//! everything that may be in force of each resource, and [`Azure::networks`] gives each combination.

use std::{collections::BTreeMap, net::IpAddr};

use lazuli_emulator::{changes::Changed, store::Document};
use serde_json::Value;

/// Where packets come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) address: &'static str,
    /// The service tags that the address belongs to.
    pub(super) tags: &'static [&'static str],
}

/// Sources of the internet and of the virtual network, in ranges and service tags and out of them.
pub(super) const SOURCES: [Source; 5] = [
    Source { address: "203.0.113.7", tags: &["Internet"] },
    Source { address: "192.0.2.9", tags: &["Internet"] },
    Source { address: "13.64.0.1", tags: &["Internet", "AzureCloud"] },
    Source { address: "10.9.0.9", tags: &["VirtualNetwork"] },
    Source { address: "10.8.0.8", tags: &["VirtualNetwork"] },
];

impl Source {
    pub(super) fn is_of_internet(&self) -> bool {
        self.tags.contains(&"Internet")
    }

    /// Whether a prefix or service tag of a security rule or Service names it.
    pub(super) fn is_in(&self, prefix: &str) -> bool {
        let address: IpAddr = self.address.parse().unwrap();
        self.tags.iter().any(|tag| tag.eq_ignore_ascii_case(prefix)) || is_in(address, prefix)
    }
}

/// Whether a range, an address or `*` holds an address.
fn is_in(address: IpAddr, prefix: &str) -> bool {
    let (base, length) = match prefix.split_once('/') {
        _ if prefix == "*" => return true,
        Some((base, length)) => (base, length.parse::<u32>().ok()),
        None => (prefix, None),
    };
    match (address, base.parse()) {
        (IpAddr::V4(address), Ok(IpAddr::V4(base))) => {
            let shift = 32 - length.unwrap_or(32).min(32);
            (u64::from(address.to_bits()) >> shift) == (u64::from(base.to_bits()) >> shift)
        }
        (IpAddr::V6(address), Ok(IpAddr::V6(base))) => {
            let shift = 128 - length.unwrap_or(128).min(128);
            shift == 128 || (address.to_bits() >> shift) == (base.to_bits() >> shift)
        }
        _ => false,
    }
}

/// A protocol and a port as a client of a Service sees them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Port {
    /// In lower case.
    pub(super) protocol: String,
    pub(super) number: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Frontend {
    private_address: Option<IpAddr>,
    public_ip: Option<String>,
}

/// A load-balancing rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) name: String,
    frontend: String,
    pool: String,
    pub(super) port: Port,
    backend_port: u16,
    has_floating_ip: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct SecurityRule {
    name: String,
    priority: u64,
    allows: bool,
    protocol: String,
    sources: Vec<String>,
    destinations: Vec<String>,
    ports: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Member {
    address: IpAddr,
    subnet: String,
    pools: Vec<String>,
}

/// What of a resource decides about packets.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    LoadBalancer {
        frontends: BTreeMap<String, Frontend>,
        rules: Vec<Rule>,
        pools: BTreeMap<String, Vec<IpAddr>>,
    },
    SecurityGroup(Vec<SecurityRule>),
    Interface {
        members: Vec<Member>,
        group: Option<String>,
    },
    /// The group of each subnet, and the prefixes.
    VirtualNetwork {
        groups: BTreeMap<String, String>,
        prefixes: Vec<String>,
    },
    PublicIp {
        address: Option<IpAddr>,
        is_ready: bool,
    },
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// An id as references are compared.
fn key(reference: &Value) -> String {
    text(&reference["id"]).to_lowercase()
}

fn list<'v>(value: &'v Value, member: &str) -> impl Iterator<Item = &'v Value> {
    value["properties"][member].as_array().into_iter().flatten()
}

fn port(value: &Value) -> u16 {
    value.as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or_default()
}

/// What one member or another names, as security rules have it.
fn one_or_many(rule: &Value, one: &str, many: &str) -> Vec<String> {
    let of = &rule["properties"];
    let many = of[many].as_array().into_iter().flatten();
    many.chain([&of[one]]).filter_map(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned).collect()
}

impl Part {
    fn read(document: &Value) -> Option<Self> {
        let properties = &document["properties"];
        match text(&document["type"]).to_lowercase().as_str() {
            "microsoft.network/loadbalancers" => {
                let frontends = list(document, "frontendIPConfigurations").map(|one| {
                    let of = &one["properties"];
                    let private_address = of["privateIPAddress"].as_str().and_then(|address| address.parse().ok());
                    let public_ip = Some(key(&of["publicIPAddress"])).filter(|id| !id.is_empty());
                    (key(one), Frontend { private_address, public_ip })
                });
                let rules = list(document, "loadBalancingRules").map(|one| {
                    let of = &one["properties"];
                    Rule {
                        name: text(&one["name"]),
                        frontend: key(&of["frontendIPConfiguration"]),
                        pool: key(&of["backendAddressPool"]),
                        port: Port {
                            protocol: text(&of["protocol"]).to_lowercase(),
                            number: port(&of["frontendPort"]),
                        },
                        backend_port: port(&of["backendPort"]),
                        has_floating_ip: of["enableFloatingIP"] == true,
                    }
                });
                let pools = list(document, "backendAddressPools").map(|one| {
                    let members = list(one, "loadBalancerBackendAddresses");
                    let address = |member: &Value| member["properties"]["ipAddress"].as_str()?.parse().ok();
                    (key(one), members.filter_map(address).collect())
                });
                let (frontends, rules, pools) = (frontends.collect(), rules.collect(), pools.collect());
                Some(Self::LoadBalancer { frontends, rules, pools })
            }
            "microsoft.network/networksecuritygroups" => {
                let all = list(document, "securityRules").chain(list(document, "defaultSecurityRules"));
                let inbound = all.filter(|rule| text(&rule["properties"]["direction"]).eq_ignore_ascii_case("inbound"));
                let mut rules: Vec<SecurityRule> = inbound
                    .map(|rule| SecurityRule {
                        name: text(&rule["name"]),
                        priority: rule["properties"]["priority"].as_u64().unwrap_or_default(),
                        allows: text(&rule["properties"]["access"]).eq_ignore_ascii_case("allow"),
                        protocol: text(&rule["properties"]["protocol"]).to_lowercase(),
                        sources: one_or_many(rule, "sourceAddressPrefix", "sourceAddressPrefixes"),
                        destinations: one_or_many(rule, "destinationAddressPrefix", "destinationAddressPrefixes"),
                        ports: one_or_many(rule, "destinationPortRange", "destinationPortRanges"),
                    })
                    .collect();
                rules.sort_by_key(|rule| rule.priority);
                Some(Self::SecurityGroup(rules))
            }
            "microsoft.network/networkinterfaces" => {
                let members = list(document, "ipConfigurations").filter_map(|one| {
                    let of = &one["properties"];
                    let pools = list(one, "loadBalancerBackendAddressPools").map(key).collect();
                    Some(Member {
                        address: of["privateIPAddress"].as_str()?.parse().ok()?,
                        subnet: key(&of["subnet"]),
                        pools,
                    })
                });
                let group = Some(key(&properties["networkSecurityGroup"])).filter(|id| !id.is_empty());
                Some(Self::Interface { members: members.collect(), group })
            }
            "microsoft.network/virtualnetworks" => {
                let groups =
                    list(document, "subnets").map(|one| (key(one), key(&one["properties"]["networkSecurityGroup"])));
                let prefixes = properties["addressSpace"]["addressPrefixes"].as_array().into_iter().flatten();
                Some(Self::VirtualNetwork { groups: groups.collect(), prefixes: prefixes.map(text).collect() })
            }
            "microsoft.network/publicipaddresses" => Some(Self::PublicIp {
                address: properties["ipAddress"].as_str().and_then(|address| address.parse().ok()),
                // One that is being made has no address yet.
                is_ready: !["Deleting", "Failed"]
                    .contains(&properties["provisioningState"].as_str().unwrap_or_default()),
            }),
            _ => None,
        }
    }

    /// A public IP serves as it is now; of the others, each state that may be in force counts.
    fn may_be_as_before(&self) -> bool {
        !matches!(self, Self::PublicIp { .. })
    }
}

/// The network of Azure.
#[derive(Debug, Default)]
pub(super) struct Azure {
    /// What may be in force, by lower-case id, the newest last. `None`: no such resource.
    possible: BTreeMap<String, Vec<Option<Part>>>,
    documents: BTreeMap<String, Document>,
}

impl Azure {
    pub(super) fn new(existing: BTreeMap<String, Document>) -> Self {
        let mut azure = Self::default();
        for (key, document) in existing {
            azure.changed(&Changed { key, document: Some(document), in_flight: false });
        }
        azure
    }

    /// Applies what one step has changed.
    pub(super) fn changed(&mut self, changed: &Changed) {
        if !changed.key.contains("/microsoft.network/") {
            return;
        }
        match &changed.document {
            Some(document) => self.documents.insert(changed.key.clone(), document.clone()),
            None => self.documents.remove(&changed.key),
        };
        let part = changed.document.as_deref().and_then(Part::read);
        let possible = self.possible.entry(changed.key.clone()).or_insert_with(|| vec![None]);
        if !changed.in_flight || part.as_ref().is_some_and(|part| !part.may_be_as_before()) {
            possible.clear();
        }
        let is_deleting = |document: &Document| document["properties"]["provisioningState"] == "Deleting";
        let may_be_gone = changed.in_flight && changed.document.as_ref().is_some_and(is_deleting);
        for part in [part].into_iter().chain(may_be_gone.then_some(None)) {
            possible.retain(|before| *before != part);
            possible.push(part);
        }
        if possible.iter().all(Option::is_none) {
            self.possible.remove(&changed.key);
        }
    }

    /// The newest document of each resource of a type, in lower case.
    pub(super) fn of_type(&self, kind: &str) -> impl Iterator<Item = &Document> {
        self.documents.values().filter(move |document| text(&document["type"]).eq_ignore_ascii_case(kind))
    }

    /// Each network that may be in force.
    pub(super) fn networks(&self) -> Vec<Network<'_>> {
        let mut combinations = vec![Network { parts: BTreeMap::new() }];
        for (key, possible) in &self.possible {
            combinations = combinations
                .iter()
                .flat_map(|network| {
                    possible.iter().map(|part| {
                        let mut parts = network.parts.clone();
                        parts.extend(part.as_ref().map(|part| (key.as_str(), part)));
                        Network { parts }
                    })
                })
                .collect();
        }
        combinations
    }
}

/// A network that may be in force.
#[derive(Debug)]
pub(super) struct Network<'a> {
    parts: BTreeMap<&'a str, &'a Part>,
}

/// Whether packets arrive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Reach {
    /// At some member.
    pub(super) is_open: bool,
    /// At each member, of which there is one at least: no packet is lost.
    pub(super) is_served: bool,
}

/// A frontend that has an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) address: IpAddr,
    pub(super) is_public: bool,
}

impl<'a> Network<'a> {
    /// Every rule with the place of its frontend, where that has an address.
    pub(super) fn rules(&self) -> impl Iterator<Item = (Place, &'a Rule)> {
        self.parts.values().flat_map(|part| {
            let Part::LoadBalancer { frontends, rules, .. } = part else { return vec![] };
            let placed = rules.iter().filter_map(|rule| Some((self.place(frontends.get(&rule.frontend)?)?, rule)));
            placed.collect::<Vec<_>>()
        })
    }

    fn place(&self, frontend: &Frontend) -> Option<Place> {
        let Some(id) = &frontend.public_ip else {
            return Some(Place { address: frontend.private_address?, is_public: false });
        };
        match self.parts.get(id.as_str()) {
            Some(Part::PublicIp { address: Some(address), is_ready: true }) => {
                Some(Place { address: *address, is_public: true })
            }
            _ => None,
        }
    }

    /// Whether packets of a source arrive at an address and a port.
    pub(super) fn reach(&self, source: Source, address: IpAddr, port: &Port) -> Reach {
        let fits = |(place, rule): &(Place, &Rule)| place.address == address && rule.port == *port;
        let reaches = self.rules().filter(fits).map(|(place, rule)| self.reach_by(source, place, rule));
        reaches.fold(Reach::default(), |one, other| Reach {
            is_open: one.is_open || other.is_open,
            is_served: one.is_served || other.is_served,
        })
    }

    /// Whether packets of a source arrive by this rule.
    pub(super) fn reach_by(&self, source: Source, place: Place, rule: &Rule) -> Reach {
        // The address of the other side has no route from there.
        if place.is_public != source.is_of_internet() {
            return Reach::default();
        }
        let members = self.members(&rule.pool);
        let admitted = members.iter().filter(|member| {
            let (address, number) = if rule.has_floating_ip {
                (place.address, rule.port.number)
            } else {
                (member.address, rule.backend_port)
            };
            let port = Port { protocol: rule.port.protocol.clone(), number };
            member.groups.iter().all(|group| self.admits(group, source, address, &port))
        });
        let admitted = admitted.count();
        Reach { is_open: admitted > 0, is_served: admitted > 0 && admitted == members.len() }
    }

    /// The members of a pool that exist: by their addresses, and by the interfaces that name the pool.
    fn members(&self, pool: &str) -> Vec<Backend<'a>> {
        let addresses: Vec<IpAddr> = self
            .parts
            .values()
            .filter_map(|part| match part {
                Part::LoadBalancer { pools, .. } => pools.get(pool),
                _ => None,
            })
            .flatten()
            .copied()
            .collect();
        let interfaces = self.parts.values().flat_map(|part| match part {
            Part::Interface { members, group } => members.iter().map(|member| (member, group)).collect::<Vec<_>>(),
            _ => vec![],
        });
        let of_pool = interfaces
            .filter(|(member, _)| addresses.contains(&member.address) || member.pools.iter().any(|one| one == pool));
        of_pool
            .map(|(member, group)| {
                let of_subnet = self.parts.values().find_map(|part| match part {
                    Part::VirtualNetwork { groups, .. } => groups.get(&member.subnet),
                    _ => None,
                });
                let groups = [group.as_deref(), of_subnet.map(String::as_str).filter(|group| !group.is_empty())];
                Backend { address: member.address, groups: groups.into_iter().flatten().collect() }
            })
            .collect()
    }

    /// Whether a security group lets packets in. The first rule that fits decides.
    fn admits(&self, group: &str, source: Source, address: IpAddr, port: &Port) -> bool {
        let Some(Part::SecurityGroup(rules)) = self.parts.get(group) else { return false };
        let is_of_network = |prefix: &str| {
            prefix.eq_ignore_ascii_case("VirtualNetwork")
                && self.parts.values().any(|part| match part {
                    Part::VirtualNetwork { prefixes, .. } => prefixes.iter().any(|prefix| is_in(address, prefix)),
                    _ => false,
                })
        };
        let fits = |rule: &&SecurityRule| {
            (rule.protocol == "*" || rule.protocol == port.protocol)
                && rule.sources.iter().any(|prefix| source.is_in(prefix))
                && rule.destinations.iter().any(|prefix| is_of_network(prefix) || is_in(address, prefix))
                && rule.ports.iter().any(|range| is_in_range(port.number, range))
        };
        rules.iter().find(fits).is_some_and(|rule| rule.allows)
    }

    /// The single addresses that security rules of this prefix of names admit something to, each with the rule.
    pub(super) fn admitted(&self, named: &str) -> Vec<(IpAddr, &'a str)> {
        let groups = self.parts.values().filter_map(|part| match part {
            Part::SecurityGroup(rules) => Some(rules),
            _ => None,
        });
        let allowing = groups.flatten().filter(|rule| rule.allows && rule.name.starts_with(named));
        allowing
            .flat_map(|rule| rule.destinations.iter().filter_map(|to| Some((to.parse().ok()?, rule.name.as_str()))))
            .collect()
    }

    /// Whether an address is that of a public IP.
    pub(super) fn is_public(&self, address: IpAddr) -> bool {
        self.parts.values().any(|part| matches!(part, Part::PublicIp { address: Some(own), .. } if *own == address))
    }

    /// The names of frontends without a rule.
    pub(super) fn unused_frontends(&self) -> Vec<&'a str> {
        let of_part = |part: &'a Part| match part {
            Part::LoadBalancer { frontends, rules, .. } => {
                let unused = frontends.keys().filter(|id| !rules.iter().any(|rule| rule.frontend == **id));
                unused.filter_map(|id| id.rsplit('/').next()).collect()
            }
            _ => vec![],
        };
        self.parts.values().copied().flat_map(of_part).collect()
    }

    /// The addresses that public IPs, frontends and network interfaces hold.
    pub(super) fn held(&self) -> Vec<IpAddr> {
        let of_part = |part: &Part| -> Vec<IpAddr> {
            match part {
                Part::LoadBalancer { frontends, .. } => {
                    frontends.values().filter_map(|one| one.private_address).collect()
                }
                Part::Interface { members, .. } => members.iter().map(|member| member.address).collect(),
                Part::PublicIp { address, is_ready: true } => address.iter().copied().collect(),
                _ => vec![],
            }
        };
        self.parts.values().copied().flat_map(of_part).collect()
    }

    /// Whether an address is held.
    pub(super) fn is_held(&self, address: IpAddr) -> bool {
        self.held().contains(&address)
    }
}

/// A member of a pool, and the security groups in front of it.
struct Backend<'a> {
    address: IpAddr,
    groups: Vec<&'a str>,
}

fn is_in_range(port: u16, range: &str) -> bool {
    let (low, high) = range.split_once('-').unwrap_or((range, range));
    range == "*"
        || (low.parse::<u16>().is_ok_and(|low| low <= port) && high.parse::<u16>().is_ok_and(|high| port <= high))
}
