//! What the page shows of the network: load balancers with the Services behind their addresses and the machines in
//! their pools, security rules, routes, public addresses and network interfaces, all by name.
//!
//! Which Service an address is for is known by the tag that a cloud controller of Kubernetes writes on a public
//! address. An internal frontend has no such tag, so there the page has the frontend's name alone.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::text;
use crate::arm::kinds;
use crate::path;
use crate::state::State;

/// Members of a pool that are listed at most; the sum is always told.
const MEMBERS_MOST: usize = 50;
/// The tag of a public address that names the Services for which it is: `default/web`, several with commas.
const SERVICES: &str = "k8s-azure-service";

/// What is looked up of other resources, read once for an overview.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Private address to the name of the machine, or of the interface without one.
    machines: BTreeMap<String, String>,
    /// Backend pool (lower-case id) to the names of the machines in it by their interfaces.
    members: BTreeMap<String, Vec<String>>,
    /// Public address (lower-case id) to what it is.
    addresses: BTreeMap<String, PublicAddress>,
    /// Public address (lower-case id) to the load balancer or machine that has it.
    users: BTreeMap<String, String>,
}

/// A public address, as those see it who name it.
#[derive(Debug)]
struct PublicAddress {
    address: String,
    services: Vec<String>,
}

/// A load balancer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BalancerRow {
    /// `public`, `internal`, or nothing without frontends.
    kind: &'static str,
    frontends: Vec<FrontendRow>,
    rules: Vec<RuleRow>,
    probes: Vec<ProbeRow>,
    pools: Vec<PoolRow>,
    /// NAT rules and outbound rules, each in one line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    others: Vec<String>,
}

/// A frontend IP configuration.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct FrontendRow {
    name: String,
    /// Nothing while it has none.
    address: String,
    /// The name of its public address, or `network/subnet`.
    from: String,
    services: Vec<String>,
}

/// A load-balancing rule.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RuleRow {
    name: String,
    protocol: String,
    port: String,
    backend_port: String,
    frontend: String,
    pool: String,
    probe: String,
    /// What differs from Azure's defaults, in words.
    options: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ProbeRow {
    name: String,
    protocol: String,
    port: String,
    /// Of HTTP probes.
    path: String,
    /// Seconds.
    interval: u64,
}

/// A backend pool.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PoolRow {
    name: String,
    /// How many it has; no more than [`MEMBERS_MOST`] are listed.
    total: usize,
    /// Names of machines; an address that none has is itself.
    members: Vec<String>,
}

/// A security rule.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SecurityRow {
    name: String,
    priority: u64,
    direction: String,
    access: String,
    protocol: String,
    sources: Vec<String>,
    source_ports: Vec<String>,
    destinations: Vec<String>,
    ports: Vec<String>,
    /// One of the six that every group has.
    built_in: bool,
}

/// A route.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RouteRow {
    name: String,
    prefix: String,
    /// Azure's `nextHopType`.
    hop: String,
    address: String,
    /// The machine that has that address.
    machine: String,
}

/// A public address.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AddressRow {
    address: String,
    services: Vec<String>,
    /// The load balancer or machine that has it.
    used_by: String,
    dns: String,
}

/// A network interface.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InterfaceRow {
    addresses: Vec<String>,
    machine: String,
    /// As `balancer/pool`.
    pools: Vec<String>,
    security_group: String,
}

/// A virtual network.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NetworkRow {
    prefixes: Vec<String>,
    subnets: Vec<SubnetRow>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SubnetRow {
    name: String,
    prefixes: Vec<String>,
    security_group: String,
    route_table: String,
}

/// What the page shows of a network resource.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum NetworkPart {
    Balancer(BalancerRow),
    SecurityRules(Vec<SecurityRow>),
    Routes(Vec<RouteRow>),
    Address(AddressRow),
    Interface(InterfaceRow),
    Network(NetworkRow),
}

fn items<'a>(value: &'a Value, member: &str) -> impl Iterator<Item = &'a Value> {
    value[member].as_array().into_iter().flatten()
}

/// The name at the end of the id of what a member names.
fn named(value: &Value) -> String {
    value["id"].as_str().map(|id| path::name_of(id).to_owned()).unwrap_or_default()
}

/// The names of what contains a part and of the part: `balancer/pool`, `network/subnet`.
fn part_of(value: &Value) -> String {
    let id = value["id"].as_str().unwrap_or("");
    if id.is_empty() { String::new() } else { format!("{}/{}", path::name_of(path::parent_of(id)), path::name_of(id)) }
}

/// The values of a member and of its plural, as security rules and subnets have them.
fn one_or_many(value: &Value, one: &str, many: &str) -> Vec<String> {
    let several = items(value, many).map(text);
    value[one].as_str().map(str::to_owned).into_iter().chain(several).collect()
}

impl Index {
    pub(super) fn of(state: &State) -> Self {
        let mut index = Self::default();
        for doc in [kinds::NIC, kinds::INSTANCE_NIC].into_iter().flat_map(|kind| state.store.of_kind(kind)) {
            let machine = machine_of(doc);
            for configuration in items(&doc["properties"], "ipConfigurations") {
                let properties = &configuration["properties"];
                if let Some(address) = properties["privateIPAddress"].as_str() {
                    index.machines.insert(address.to_owned(), machine.clone());
                }
                for pool in items(properties, "loadBalancerBackendAddressPools").filter_map(|pool| pool["id"].as_str())
                {
                    index.members.entry(path::key(pool)).or_default().push(machine.clone());
                }
                index.uses(&properties["publicIPAddress"], &machine);
            }
        }
        for doc in state.store.of_kind(kinds::LOAD_BALANCER) {
            let name = text(&doc["name"]);
            for frontend in items(&doc["properties"], "frontendIPConfigurations") {
                index.uses(&frontend["properties"]["publicIPAddress"], &name);
            }
        }
        for doc in state.store.of_kind(kinds::ADDRESS) {
            let found = PublicAddress { address: text(&doc["properties"]["ipAddress"]), services: services(doc) };
            index.addresses.insert(path::key(path::of(doc)), found);
        }
        index
    }

    fn uses(&mut self, address: &Value, user: &str) {
        if let Some(id) = address["id"].as_str() {
            self.users.insert(path::key(id), user.to_owned());
        }
    }

    /// The columns of a resource of the network provider; none of a type that has no columns of its own.
    pub(super) fn part(&self, kind: &str, doc: &Value) -> Option<NetworkPart> {
        let is = |known: &str| kind.eq_ignore_ascii_case(known);
        let properties = &doc["properties"];
        Some(if is(kinds::LOAD_BALANCER) {
            NetworkPart::Balancer(self.balancer(properties))
        } else if is(kinds::SECURITY_GROUP) {
            NetworkPart::SecurityRules(security_rules(properties))
        } else if is(kinds::ROUTE_TABLE) {
            NetworkPart::Routes(items(properties, "routes").map(|route| self.route(route)).collect())
        } else if is(kinds::ADDRESS) {
            NetworkPart::Address(AddressRow {
                address: text(&properties["ipAddress"]),
                services: services(doc),
                used_by: self.users.get(&path::key(path::of(doc))).cloned().unwrap_or_default(),
                dns: text(&properties["dnsSettings"]["fqdn"]),
            })
        } else if is(kinds::NIC) || is(kinds::INSTANCE_NIC) {
            let configurations = || items(properties, "ipConfigurations").map(|own| &own["properties"]);
            let pools = configurations().flat_map(|own| items(own, "loadBalancerBackendAddressPools"));
            NetworkPart::Interface(InterfaceRow {
                addresses: configurations().map(|own| text(&own["privateIPAddress"])).collect(),
                machine: if properties["virtualMachine"].is_object() { machine_of(doc) } else { String::new() },
                pools: pools.map(part_of).collect(),
                security_group: named(&properties["networkSecurityGroup"]),
            })
        } else if is(kinds::NETWORK) {
            let subnets = items(properties, "subnets").map(|subnet| SubnetRow {
                name: text(&subnet["name"]),
                prefixes: one_or_many(&subnet["properties"], "addressPrefix", "addressPrefixes"),
                security_group: named(&subnet["properties"]["networkSecurityGroup"]),
                route_table: named(&subnet["properties"]["routeTable"]),
            });
            NetworkPart::Network(NetworkRow {
                prefixes: items(&properties["addressSpace"], "addressPrefixes").map(text).collect(),
                subnets: subnets.collect(),
            })
        } else {
            return None;
        })
    }

    fn balancer(&self, properties: &Value) -> BalancerRow {
        let frontends: Vec<&Value> = items(properties, "frontendIPConfigurations").collect();
        let is_internal = |frontend: &&Value| frontend["properties"]["subnet"].is_object();
        BalancerRow {
            kind: frontends.first().map_or("", |first| if is_internal(first) { "internal" } else { "public" }),
            frontends: frontends.into_iter().map(|frontend| self.frontend(frontend)).collect(),
            rules: items(properties, "loadBalancingRules").map(rule).collect(),
            probes: items(properties, "probes").map(probe).collect(),
            pools: items(properties, "backendAddressPools").map(|pool| self.pool(pool)).collect(),
            others: others(properties).collect(),
        }
    }

    fn frontend(&self, frontend: &Value) -> FrontendRow {
        let properties = &frontend["properties"];
        let public = properties["publicIPAddress"]["id"].as_str().and_then(|id| self.addresses.get(&path::key(id)));
        FrontendRow {
            name: text(&frontend["name"]),
            address: public.map_or_else(|| text(&properties["privateIPAddress"]), |public| public.address.clone()),
            from: match properties["publicIPAddress"]["id"].as_str() {
                Some(id) => path::name_of(id).to_owned(),
                None => part_of(&properties["subnet"]),
            },
            services: public.map(|public| public.services.clone()).unwrap_or_default(),
        }
    }

    fn pool(&self, pool: &Value) -> PoolRow {
        let by_interface = self.members.get(&path::key(path::of(pool))).cloned().unwrap_or_default();
        let by_address = items(&pool["properties"], "loadBalancerBackendAddresses").filter_map(|entry| {
            let address = entry["properties"]["ipAddress"].as_str()?;
            Some(self.machines.get(address).cloned().unwrap_or_else(|| address.to_owned()))
        });
        let mut members: Vec<String> = by_interface.into_iter().chain(by_address).collect();
        members.sort();
        members.dedup();
        let total = members.len();
        members.truncate(MEMBERS_MOST);
        PoolRow { name: text(&pool["name"]), total, members }
    }

    fn route(&self, route: &Value) -> RouteRow {
        let properties = &route["properties"];
        let address = text(&properties["nextHopIpAddress"]);
        RouteRow {
            name: text(&route["name"]),
            prefix: text(&properties["addressPrefix"]),
            hop: text(&properties["nextHopType"]),
            machine: self.machines.get(&address).cloned().unwrap_or_default(),
            address,
        }
    }
}

/// The name of the machine that has an interface, or the interface's own.
fn machine_of(interface: &Value) -> String {
    let of_instance = || {
        let parent = path::parent_of(path::of(interface));
        (interface["type"] == kinds::INSTANCE_NIC).then(|| path::machine_name(parent))
    };
    let named = interface["properties"]["virtualMachine"]["id"].as_str().map(path::machine_name);
    named.or_else(of_instance).unwrap_or_else(|| text(&interface["name"]))
}

/// The Services that a public address is for, by its tag.
fn services(address: &Value) -> Vec<String> {
    let tag =
        address["tags"].as_object().and_then(|tags| tags.iter().find(|(name, _)| name.eq_ignore_ascii_case(SERVICES)));
    let listed = tag.and_then(|(_, value)| value.as_str()).unwrap_or("");
    listed.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn rule(rule: &Value) -> RuleRow {
    let properties = &rule["properties"];
    let number = |member: &str| properties[member].as_u64();
    let pool = items(properties, "backendAddressPools").next().unwrap_or(&properties["backendAddressPool"]);
    let mut options = Vec::new();
    if properties["enableFloatingIP"] == true {
        options.push("floating IP".to_owned());
    }
    match properties["loadDistribution"].as_str() {
        Some("SourceIP") => options.push("affinity by client address".to_owned()),
        Some("SourceIPProtocol") => options.push("affinity by client address and protocol".to_owned()),
        _ => {}
    }
    if let Some(minutes) = number("idleTimeoutInMinutes").filter(|minutes| *minutes != 4) {
        options.push(format!("idle {minutes} min"));
    }
    RuleRow {
        name: text(&rule["name"]),
        protocol: text(&properties["protocol"]),
        port: text(&properties["frontendPort"]),
        backend_port: text(&properties["backendPort"]),
        frontend: named(&properties["frontendIPConfiguration"]),
        pool: named(pool),
        probe: named(&properties["probe"]),
        options,
    }
}

fn probe(probe: &Value) -> ProbeRow {
    let properties = &probe["properties"];
    ProbeRow {
        name: text(&probe["name"]),
        protocol: text(&properties["protocol"]),
        port: text(&properties["port"]),
        path: text(&properties["requestPath"]),
        interval: properties["intervalInSeconds"].as_u64().unwrap_or(0),
    }
}

fn others(properties: &Value) -> impl Iterator<Item = String> {
    let nat = items(properties, "inboundNatRules").map(|rule| {
        let own = &rule["properties"];
        let (from, to) = (text(&own["frontendPort"]), text(&own["backendPort"]));
        format!("inbound NAT {}: {} {from} to {to}", text(&rule["name"]), text(&own["protocol"]))
    });
    let outbound = items(properties, "outboundRules").map(|rule| {
        let own = &rule["properties"];
        format!(
            "outbound {}: {} from {}",
            text(&rule["name"]),
            text(&own["protocol"]),
            named(&own["backendAddressPool"])
        )
    });
    nat.chain(outbound)
}

/// The rules of a security group as Azure applies them: inbound first, each direction by priority.
fn security_rules(properties: &Value) -> Vec<SecurityRow> {
    let of = |member: &str, built_in: bool| {
        let rules = items(properties, member).map(move |rule| {
            let own = &rule["properties"];
            let group = |member: &str| items(own, member).map(named).collect::<Vec<_>>();
            let both = |one: &str, many: &str, groups: &str| [one_or_many(own, one, many), group(groups)].concat();
            SecurityRow {
                name: text(&rule["name"]),
                priority: own["priority"].as_u64().unwrap_or(0),
                direction: text(&own["direction"]),
                access: text(&own["access"]),
                protocol: text(&own["protocol"]),
                sources: both("sourceAddressPrefix", "sourceAddressPrefixes", "sourceApplicationSecurityGroups"),
                source_ports: one_or_many(own, "sourcePortRange", "sourcePortRanges"),
                destinations: both(
                    "destinationAddressPrefix",
                    "destinationAddressPrefixes",
                    "destinationApplicationSecurityGroups",
                ),
                ports: one_or_many(own, "destinationPortRange", "destinationPortRanges"),
                built_in,
            }
        });
        rules.collect::<Vec<_>>()
    };
    let mut rules = of("securityRules", false);
    rules.extend(of("defaultSecurityRules", true));
    rules.sort_by_key(|rule| (rule.direction != "Inbound", rule.priority));
    rules
}
