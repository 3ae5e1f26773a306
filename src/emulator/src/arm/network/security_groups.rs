//! Network security groups. Recorded: the members, and the six rules that each group has. Documented: what a rule must
//! have, that priority and direction name one rule, and the limits.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Value, json};

use super::base::{CHILDREN, RESOURCE};
use crate::arm::descriptor::{
    BackReference, By, Children, Descriptor, Draft, Form, Hooks, InUse, Part, Quota, Reference, Writers,
};
use crate::arm::protocol::{Access, Latency, Schema};
use crate::arm::{kinds, writes};
use crate::cidr;
use crate::fault::{self, Fault};
use crate::latency::OperationKind;
use crate::path;
use crate::state::State;

/// Rules of a group at most.
const RULES_MOST: usize = 1000;
/// Source prefixes, and destination prefixes, of a group at most.
const PREFIXES_MOST: usize = 4000;

pub(crate) static SECURITY_GROUP: Descriptor = Descriptor {
    kind: kinds::SECURITY_GROUP,
    path: "networkSecurityGroups",
    schema: Schema { name: "NNetworkSecurityGroup", root: "networkSecurityGroup" },
    latency: Latency { write: OperationKind::SecurityGroup, delete: OperationKind::SecurityGroup },
    writers: Writers::Supersede,
    children: &[
        Children {
            kind: "Microsoft.Network/networkSecurityGroups/securityRules",
            member: "securityRules",
            schema: Schema { name: "NSecurityRule", root: "securityRule" },
            references: &[
                Reference::new("properties/sourceApplicationSecurityGroups/*", kinds::APPLICATION_GROUP),
                Reference::new("properties/destinationApplicationSecurityGroups/*", kinds::APPLICATION_GROUP),
            ],
            complete: rule,
            ..RULES
        },
        Children {
            kind: "Microsoft.Network/networkSecurityGroups/defaultSecurityRules",
            member: "defaultSecurityRules",
            access: Access::Read,
            ..RULES
        },
    ],
    in_use: &[InUse { by: By::References, fault: |group, by| fault::security_group_in_use(path::of(group), by) }],
    shows: &[
        BackReference { member: "networkInterfaces", from: kinds::NIC, form: Form::Some },
        BackReference { member: "subnets", from: kinds::NETWORK, form: Form::Some },
    ],
    expands: &["networkInterfaces", "subnets", "flowLogs", "defaultSecurityRules"],
    quotas: &[Quota {
        name: "NetworkSecurityGroups",
        local_name: "Network Security Groups",
        limit: 5000,
        counts: |_| true,
        fault: |exceeded| fault::too_many_network_resources("network security groups", exceeded.limit),
    }],
    hooks: Hooks { complete, check, ..RESOURCE.hooks },
    ..RESOURCE
};

const RULES: Children = Children { layout: &["name", "id", "etag", "type", "properties"], ..CHILDREN };

const PLURALS: [&str; 4] =
    ["sourcePortRanges", "destinationPortRanges", "sourceAddressPrefixes", "destinationAddressPrefixes"];

/// Recorded: name, description, source, destination, access, priority and direction.
const DEFAULTS: [(&str, &str, &str, &str, &str, u32, &str); 6] = [
    (
        "AllowVnetInBound",
        "Allow inbound traffic from all VMs in VNET",
        "VirtualNetwork",
        "VirtualNetwork",
        "Allow",
        65_000,
        "Inbound",
    ),
    (
        "AllowAzureLoadBalancerInBound",
        "Allow inbound traffic from azure load balancer",
        "AzureLoadBalancer",
        "*",
        "Allow",
        65_001,
        "Inbound",
    ),
    ("DenyAllInBound", "Deny all inbound traffic", "*", "*", "Deny", 65_500, "Inbound"),
    (
        "AllowVnetOutBound",
        "Allow outbound traffic from all VMs to all VMs in VNET",
        "VirtualNetwork",
        "VirtualNetwork",
        "Allow",
        65_000,
        "Outbound",
    ),
    (
        "AllowInternetOutBound",
        "Allow outbound traffic from all VMs to Internet",
        "*",
        "Internet",
        "Allow",
        65_001,
        "Outbound",
    ),
    ("DenyAllOutBound", "Deny all outbound traffic", "*", "*", "Deny", 65_500, "Outbound"),
];

fn complete(draft: &Draft<'_>) -> Result<Value, Fault> {
    let defaults = DEFAULTS.map(|(name, description, source, destination, access, priority, direction)| {
        json!({"name": name, "properties": {
            "description": description, "protocol": "*", "sourcePortRange": "*", "destinationPortRange": "*",
            "sourceAddressPrefix": source, "destinationAddressPrefix": destination, "access": access,
            "priority": priority, "direction": direction, "sourcePortRanges": [], "destinationPortRanges": [],
            "sourceAddressPrefixes": [], "destinationAddressPrefixes": [],
        }})
    });
    let properties = json!({"securityRules": [], "defaultSecurityRules": defaults});
    Ok(json!({ "properties": writes::with(properties, &["flushConnection"], draft.asked()) }))
}

fn rule(_: &Draft<'_>, part: &Part<'_>) -> Result<Value, Fault> {
    const GROUPS: [&str; 2] = ["sourceApplicationSecurityGroups", "destinationApplicationSecurityGroups"];
    let asked = &part.asked["properties"];
    let properties = writes::with_ids(writes::object(asked).into(), &GROUPS, asked);
    Ok(PLURALS
        .into_iter()
        .fold(properties, |properties, plural| writes::with_others(properties, &json!({ plural: [] }))))
}

/// What stands in the singular and in the plural member.
fn both<'a>(rule: &'a Value, singular: &str, plural: &str) -> Vec<&'a str> {
    let properties = &rule["properties"];
    let many = properties[plural].as_array().into_iter().flatten();
    std::iter::once(&properties[singular]).chain(many).filter_map(Value::as_str).collect()
}

fn check(_: &State, group: &Value, _: Option<&Value>) -> Result<(), Fault> {
    let id = path::of(group);
    let rules = group["properties"]["securityRules"].as_array().map_or(&[][..], Vec::as_slice);
    if rules.len() > RULES_MOST {
        return Err(fault::too_many_security_rules(id, RULES_MOST));
    }
    let mut taken: BTreeMap<(u64, &str), &str> = BTreeMap::new();
    let mut counts = [0, 0];
    for rule in rules {
        let (name, properties) = (rule["name"].as_str().unwrap_or(""), &rule["properties"]);
        let priority = properties["priority"].as_u64().unwrap_or(0);
        if !(100..=4096).contains(&priority) {
            return Err(fault::invalid_rule_priority(&properties["priority"]));
        }
        if let Some(other) = taken.insert((priority, properties["direction"].as_str().unwrap_or("")), name) {
            return Err(fault::security_rules_conflict(other, name));
        }
        for (at, side) in ["source", "destination"].into_iter().enumerate() {
            counts[at] += check_side(rule, side)?;
        }
    }
    if counts.into_iter().any(|count| count > PREFIXES_MOST) {
        return Err(fault::too_many_rule_prefixes(id, PREFIXES_MOST));
    }
    Ok(())
}

/// Source or destination of a rule; counts its prefixes.
fn check_side(rule: &Value, side: &str) -> Result<usize, Fault> {
    let id = path::of(rule);
    let upper = if side == "source" { "Source" } else { "Destination" };
    let ports = both(rule, &format!("{side}PortRange"), &format!("{side}PortRanges"));
    let prefixes = both(rule, &format!("{side}AddressPrefix"), &format!("{side}AddressPrefixes"));
    let groups =
        rule["properties"][format!("{side}ApplicationSecurityGroups")].as_array().is_some_and(|g| !g.is_empty());
    if ports.is_empty() {
        return Err(fault::rule_lacks(id, format!("{upper}PortRange or {upper}PortRanges")));
    }
    if prefixes.is_empty() && !groups {
        let members = format!("{upper}AddressPrefixes, {upper}AddressPrefix, or {upper}ApplicationSecurityGroups");
        return Err(fault::rule_lacks(id, members));
    }
    if let Some(wrong) = ports.into_iter().find(|range| !is_port_range(range)) {
        return Err(fault::invalid_rule_ports(wrong));
    }
    if let Some(wrong) = prefixes.iter().find(|prefix| !is_prefix(prefix)) {
        return Err(fault::invalid_rule_prefix(id, wrong));
    }
    let many = &rule["properties"][format!("{side}AddressPrefixes")];
    check_many(upper, id, many.as_array().into_iter().flatten().filter_map(Value::as_str))?;
    Ok(prefixes.len())
}

/// The addresses and prefixes of a rule that has several: none is a service tag, and none lies in another. Documented:
/// augmented security rules.
fn check_many<'a>(side: &str, id: &str, prefixes: impl Iterator<Item = &'a str>) -> Result<(), Fault> {
    let mut ranges = Vec::new();
    for prefix in prefixes {
        let address = prefix.parse::<IpAddr>().ok().map(|address| (address, address));
        let range =
            address.or_else(|| cidr::range(prefix)).ok_or_else(|| fault::tag_among_prefixes(side, id, prefix))?;
        ranges.push((range, prefix));
    }
    // Of two prefixes that overlap one holds the other: it comes first.
    ranges.sort_by_key(|((first, last), _)| (*first, std::cmp::Reverse(*last)));
    for pair in ranges.windows(2) {
        if let [((_, last), one), ((first, _), other)] = pair
            && first <= last
        {
            return Err(fault::prefixes_overlap(side, id, one, other));
        }
    }
    Ok(())
}

fn is_port_range(range: &str) -> bool {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let port = |text: &str| text.parse::<u16>().ok();
    range == "*" || matches!((port(first), port(last)), (Some(first), Some(last)) if first <= last)
}

/// An address, a prefix without bits after its length (a real body: azure-powershell#4557), or a service tag.
fn is_prefix(prefix: &str) -> bool {
    let is_tag = prefix.starts_with(|c: char| c.is_ascii_alphabetic())
        && prefix.chars().all(|c| c.is_ascii_alphanumeric() || c == '.' || c == '_');
    let is_range = || {
        let base = prefix.split('/').next().and_then(|base| base.parse::<IpAddr>().ok());
        cidr::range(prefix).is_some_and(|(first, _)| Some(first) == base)
    };
    prefix == "*" || prefix.parse::<IpAddr>().is_ok() || is_range() || is_tag
}
