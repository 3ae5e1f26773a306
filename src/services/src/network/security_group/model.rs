//! A security group as Azure describes it.

use std::{collections::BTreeMap, net::IpAddr};

use lazuli_model::{
    ArmId,
    json::{self, BodyError, Child, Provisioning, at, list, one_or_many, text},
};
use serde_json::{Value, json};

use super::{FIRST_PRIORITY, LAST_PRIORITY};
use crate::ask::names;

/// A security group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecurityGroup {
    /// Its id.
    pub id: ArmId,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// Its rules without Azure's own.
    pub rules: Vec<SecurityRule>,
    /// How its last operation went.
    pub provisioning: Provisioning,
}

/// A security rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecurityRule {
    /// Its name.
    pub name: String,
    /// Its priority: the lowest that matches decides.
    pub priority: u32,
    /// Whether it allows; otherwise it denies.
    pub is_allow: bool,
    /// Whether it is about traffic that comes in.
    pub is_inbound: bool,
    /// `Tcp`, `Udp`, `*` and so on.
    pub protocol: String,
    /// Service tags and address ranges.
    pub sources: Vec<String>,
    /// Ports at the source.
    pub source_ports: Vec<String>,
    /// Addresses and ranges.
    pub destinations: Vec<String>,
    /// Ports and ranges of ports at the destination.
    pub ports: Vec<String>,
    /// Whether application security groups are among its sources or destinations.
    pub has_groups: bool,
}

/// Whether two prefixes are the same: the same address, or the same text in any case.
pub(super) fn same_prefix(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
        || matches!((one.parse::<IpAddr>(), other.parse::<IpAddr>()), (Ok(one), Ok(other)) if one == other)
}

/// Whether two lists hold the same prefixes or ports.
pub(super) fn same_set(one: &[String], other: &[String]) -> bool {
    let within = |all: &[String], of: &[String]| all.iter().all(|item| of.iter().any(|there| same_prefix(item, there)));
    within(one, other) && within(other, one)
}

impl SecurityGroup {
    /// Reads the body of the security group of this id.
    ///
    /// # Errors
    /// When it is no object.
    pub fn read(id: &ArmId, body: &Value) -> Result<Self, BodyError> {
        if !body.is_object() {
            return Err(BodyError { object: "a security group", field: "object" });
        }
        let rules = list(body, &["properties", "securityRules"]).iter().filter_map(SecurityRule::read).collect();
        Ok(Self { id: id.clone(), tags: json::tags(body), rules, provisioning: Provisioning::read(body) })
    }

    /// The rule of this name.
    pub fn rule(&self, name: &str) -> Option<&SecurityRule> {
        self.rules.iter().find(|rule| rule.name.eq_ignore_ascii_case(name))
    }
}

impl SecurityRule {
    fn read(item: &Value) -> Option<Self> {
        let properties = at(item, &["properties"])?;
        let is = |key, value: &str| text(properties, &[key]).is_some_and(|there| there.eq_ignore_ascii_case(value));
        let has = |key| !list(properties, &[key]).is_empty();
        Some(Self {
            name: text(item, &["name"])?.to_owned(),
            priority: at(properties, &["priority"])
                .and_then(Value::as_u64)
                .and_then(|n| n.try_into().ok())
                .unwrap_or(0),
            is_allow: is("access", "Allow"),
            is_inbound: is("direction", "Inbound"),
            protocol: text(properties, &["protocol"]).unwrap_or_default().to_owned(),
            sources: one_or_many(properties, "sourceAddressPrefix", "sourceAddressPrefixes"),
            source_ports: one_or_many(properties, "sourcePortRange", "sourcePortRanges"),
            destinations: one_or_many(properties, "destinationAddressPrefix", "destinationAddressPrefixes"),
            ports: one_or_many(properties, "destinationPortRange", "destinationPortRanges"),
            has_groups: has("sourceApplicationSecurityGroups") || has("destinationApplicationSecurityGroups"),
        })
    }

    /// Whether the name and the priority are those of a rule that this provider makes.
    pub fn is_managed(&self) -> bool {
        self.name.starts_with(names::SECURITY_RULE_PREFIX) && (FIRST_PRIORITY..=LAST_PRIORITY).contains(&self.priority)
    }

    /// Whether it lists this address.
    pub fn has_destination(&self, address: IpAddr) -> bool {
        self.destinations.iter().any(|there| there.parse::<IpAddr>().is_ok_and(|there| there == address))
    }

    /// Whether it does the same for its destinations.
    pub(super) fn has_same_effect(&self, other: &Self) -> bool {
        self.is_allow == other.is_allow
            && self.is_inbound == other.is_inbound
            && self.protocol.eq_ignore_ascii_case(&other.protocol)
            && same_set(&self.sources, &other.sources)
            && same_set(&self.ports, &other.ports)
            && same_set(&self.source_ports, &other.source_ports)
    }

    /// Puts the destinations in the order in which the Go manager writes them: sorted as texts, none twice.
    pub(super) fn sort_destinations(&mut self) {
        self.destinations.sort_unstable();
        self.destinations.dedup();
    }

    /// The properties for its destinations: one is singular, several are plural.
    pub(super) fn destination_properties(destinations: &[String]) -> Vec<(&'static str, Option<Value>)> {
        let (one, many) = match destinations {
            [one] => (Some(json!(one)), None),
            many => (None, Some(json!(many))),
        };
        vec![("destinationAddressPrefix", one), ("destinationAddressPrefixes", many)]
    }

    pub(super) fn child(&self) -> Child {
        let (source, sources) = match self.sources.as_slice() {
            [one] => (Some(json!(one)), None),
            many => (None, Some(json!(many))),
        };
        // A deny rule has the singular `*`; ports of allow rules are plural, also a single one.
        let (port, ports) = match self.ports.as_slice() {
            [all] if all == "*" => (Some(json!("*")), None),
            many => (None, Some(json!(many))),
        };
        let mut properties = vec![
            ("priority", Some(json!(self.priority))),
            ("protocol", Some(json!(self.protocol))),
            ("access", Some(json!(if self.is_allow { "Allow" } else { "Deny" }))),
            ("direction", Some(json!(if self.is_inbound { "Inbound" } else { "Outbound" }))),
            ("sourceAddressPrefix", source),
            ("sourceAddressPrefixes", sources),
            ("sourcePortRange", Some(json!("*"))),
            ("sourcePortRanges", None),
            ("destinationPortRange", port),
            ("destinationPortRanges", ports),
        ];
        properties.extend(Self::destination_properties(&self.destinations));
        Child { name: self.name.clone(), properties, beside: vec![] }
    }
}
