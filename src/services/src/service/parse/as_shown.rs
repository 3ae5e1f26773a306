//! A value that cannot be used, of a Service that Azure serves: what Azure shows is read in its place.
//!
//! The value is replaced by the one that makes what is shown, and the Service is read again, so that all else of it goes on.
//! That depends on Azure and the status alone: a process that starts anew, or that leads next, comes to the same. What the
//! load balancers do not show, such as security rules, is [frozen](Frozen): it stays as it is, unread.

use lazuli_model::address::Family;

use super::{
    Existing,
    external::{self, Item},
};
use crate::{
    ask::{
        Mistake, Side, Subject,
        names::{self, BaseName},
    },
    network::{Settings, load_balancer::Frontend},
    service::{
        ServiceObject,
        annotation::{self, key},
        shown::Shown,
    },
};

/// What of a Service stays as it is, whatever it asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Frozen {
    /// Its security rules.
    pub(super) security_rules: bool,
    /// Of these the denials: one that is there stays, and none is made.
    pub(super) denials: bool,
    /// Its private link service.
    pub(super) private_link: bool,
    /// The tags of its public IP.
    pub(super) tags: bool,
}

/// The keys that say where the address of a Service comes from.
const ADDRESS: [&str; 7] = [
    key::IPV4,
    key::IPV6,
    key::PIP_NAME,
    key::PIP_NAME_IPV6,
    key::PIP_PREFIX,
    key::PIP_PREFIX_IPV6,
    key::RESOURCE_GROUP,
];

/// What the keys of private link services begin with.
const PRIVATE_LINK: &str = "service.beta.kubernetes.io/azure-pls-";

const LOAD_BALANCER_IP: &str = "spec.loadBalancerIP";

fn is_true(text: &str) -> bool {
    text.trim().eq_ignore_ascii_case("true")
}

/// What stands for a value.
enum Value {
    Text(String),
    Absent,
}

impl Value {
    /// A flag; false is the absent one.
    fn flag(is_set: bool) -> Self {
        if is_set { Self::Text("true".to_owned()) } else { Self::Absent }
    }

    /// A text; without one nothing is shown that differs from the default.
    fn text(text: Option<impl ToString>) -> Self {
        text.map_or(Self::Absent, |text| Self::Text(text.to_string()))
    }
}

/// A Service whose mistakes are replaced by what is shown.
pub(super) struct Correction<'a> {
    pub(super) object: ServiceObject,
    pub(super) frozen: Frozen,
    pub(super) settings: &'a Settings,
    pub(super) existing: &'a Existing,
    pub(super) shown: &'a Shown,
}

impl Correction<'_> {
    /// Replaces what is mistaken. Returns whether something was: the rest may follow from it. Where what is left is not shown,
    /// the Service is refused as a whole, and all of it stays.
    pub(super) fn apply(&mut self, mistakes: &[Mistake]) -> bool {
        let mut any = false;
        for mistake in mistakes {
            any |= match &mistake.subject {
                Subject::Field(LOAD_BALANCER_IP) => self.address().is_some(),
                Subject::Field(_) => false,
                Subject::Annotation(key) => self.replace(key),
            };
        }
        any
    }

    /// Replaces the value of an annotation.
    fn replace(&mut self, key: &str) -> bool {
        let Some((row, port)) = annotation::find(key) else { return false };
        if ADDRESS.contains(&row.key) {
            return self.address().is_some();
        }
        if row.key.starts_with(PRIVATE_LINK) {
            // It is meant, and cannot be had together with something else that is.
            if row.key == key::PLS_CREATE && self.object.annotations.get(key).is_some_and(|text| is_true(text)) {
                return false;
            }
            self.frozen.private_link = true;
            return true;
        }
        let Some(value) = self.value(row.key, port) else { return false };
        match value {
            Value::Text(text) => _ = self.object.annotations.insert(key.to_owned(), text),
            Value::Absent => _ = self.object.annotations.remove(key),
        }
        true
    }

    /// What Azure shows for a key that stands alone.
    fn value(&mut self, row: &str, port: Option<u16>) -> Option<Value> {
        let shown = self.shown;
        let own = |port: u16| shown.rules_of(port).find_map(|rule| shown.probe_of(rule));
        // The probe of a Service with local traffic is on a port that no rule has.
        let probe = match port {
            Some(port) => own(port).or_else(|| shown.probes.iter().find(|probe| probe.port == port)),
            None => shown.probes.iter().find(|probe| probe.name != names::SHARED_PROBE),
        };
        Some(match row {
            key::INTERNAL => Value::flag(shown.side(&self.object.ingress)? == Side::Internal),
            key::INTERNAL_SUBNET => self.subnet()?,
            // Where it is placed follows from the address that it names, or from where it is.
            key::CONFIGURATIONS | key::DNS_LABEL | key::PIP_IP_TAGS => Value::Absent,
            key::PIP_TAGS => {
                self.frozen.tags = true;
                Value::Absent
            }
            key::ADDITIONAL_IPS => {
                let text = self.object.annotations.get(row).cloned().unwrap_or_default();
                self.additional_addresses(&text)?
            }
            key::IDLE_TIMEOUT => Value::text(shown.rules.iter().find_map(|rule| rule.idle_timeout_minutes)),
            key::DISABLE_TCP_RESET => Value::flag(shown.rules.iter().any(|rule| rule.tcp_reset == Some(false))),
            key::HA_PORTS if shown.rules.is_empty() => return None,
            key::HA_PORTS => Value::flag(shown.rules.iter().any(|rule| rule.frontend_port == 0)),
            key::DISABLE_FLOATING_IP => Value::flag(!shown.floating_ip()?),
            // A port that no rule serves stays closed.
            key::PORT_NO_RULE => Value::flag(shown.rules_of(port?).next().is_none()),
            key::PORT_NO_PROBE => {
                let rule = shown.rules_of(port?).next();
                Value::flag(rule.is_some_and(|rule| rule.probe.is_none()))
            }
            key::PROBE_PROTOCOL | key::PORT_PROBE_PROTOCOL => {
                Value::text(probe.and_then(|probe| probe.protocol).map(|protocol| protocol.as_str()))
            }
            key::PROBE_INTERVAL | key::PORT_PROBE_INTERVAL => Value::text(probe.map(|probe| probe.interval_seconds)),
            key::PROBE_COUNT | key::PORT_PROBE_COUNT => Value::text(probe.map(|probe| probe.threshold)),
            key::PORT_PROBE_PORT => {
                let port = probe.map(|probe| {
                    // A number that is a port of the Service means the node port of that.
                    let by_node_port = self.object.ports.iter().find(|port| port.node_port == probe.port);
                    by_node_port.map_or(probe.port, |port| port.port)
                });
                Value::text(port)
            }
            key::DISABLE_SECURITY_RULES | key::IP_RANGES | key::SOURCE_RANGES => {
                self.frozen.security_rules = true;
                Value::Absent
            }
            key::DENY_ALL => {
                self.frozen.denials = true;
                Value::Absent
            }
            _ => return None,
        })
    }

    /// The subnet that the names of the Service's parts have.
    fn subnet(&self) -> Option<Value> {
        let base = BaseName::of(&self.object.key);
        let named = |subnet: &str| {
            let families = [(false, Family::V4), (true, Family::V4), (true, Family::V6)];
            families.map(|(is_dual, family)| names::frontend(&base, Some(subnet), is_dual, family))
        };
        let mut own = self.shown.frontends.values().filter(|one| base.owns(&one.name)).peekable();
        own.peek()?;
        let mut subnets = own.filter_map(|frontend| {
            let subnet = frontend.subnet.as_ref()?.name();
            named(subnet).iter().any(|name| name.eq_ignore_ascii_case(&frontend.name)).then_some(subnet)
        });
        Some(Value::text(subnets.next_back()))
    }

    /// The items that may be had; and where one is no address at all, what the status has beside the addresses of the
    /// Service's own, since it may have meant any of them.
    fn additional_addresses(&self, text: &str) -> Option<Value> {
        let list = text.split(',').map(str::trim).filter(|item| !item.is_empty());
        let mut addresses = Vec::new();
        let mut is_malformed = false;
        for item in external::items(list, &self.object.ingress, &self.existing.cluster) {
            match item {
                Item::Address(address) => addresses.push(address),
                Item::Refused(..) => {}
                Item::Malformed => is_malformed = true,
            }
        }
        if is_malformed {
            let own = self.existing.own_addresses.as_ref()?;
            let is_beside = |address: &&std::net::IpAddr| !own.contains(address) && !addresses.contains(address);
            let beside: Vec<_> = self.object.ingress.iter().filter(is_beside).copied().collect();
            addresses.extend(beside);
        }
        Some(Value::Text(addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")))
    }

    /// Makes the Service name the address that it is served at.
    fn address(&mut self) -> Option<()> {
        let base = BaseName::of(&self.object.key);
        let is_dual = self.object.is_dual_stack();
        let mut named: Vec<(&str, String)> = Vec::new();
        for family in self.object.served_families() {
            let (address_key, name_key) = match family {
                Family::V4 => (key::IPV4, key::PIP_NAME),
                Family::V6 => (key::IPV6, key::PIP_NAME_IPV6),
            };
            let frontend = self.frontend(&base, is_dual, family)?;
            let Some(public_ip) = &frontend.public_ip else {
                named.extend(
                    frontend.private_address.filter(|_| frontend.is_static).map(|one| (address_key, one.to_string())),
                );
                continue;
            };
            let own = names::public_ip(&self.settings.cluster_name, &base, None, is_dual, family);
            if !public_ip.name().eq_ignore_ascii_case(&own) {
                named.push((name_key, public_ip.name().to_owned()));
            }
            if !public_ip.resource_group().eq_ignore_ascii_case(&self.settings.resource_group) {
                named.push((key::RESOURCE_GROUP, public_ip.resource_group().to_owned()));
            }
        }
        self.object.annotations.retain(|key, _| !ADDRESS.contains(&key.as_str()));
        self.object.annotations.extend(named.into_iter().map(|(key, value)| (key.to_owned(), value)));
        self.object.load_balancer_ip = None;
        Some(())
    }

    /// The frontend of a family: the one that the rules use, else the one that bears the name.
    fn frontend(&self, base: &BaseName, is_dual: bool, family: Family) -> Option<&Frontend> {
        let is_of = |name: &str| !is_dual || name.ends_with("-IPv6") == (family == Family::V6);
        let rules = self.shown.rules.iter().filter(|rule| is_of(&rule.name));
        let used = rules.filter_map(|rule| rule.frontend.as_ref()).find_map(|id| self.shown.frontends.get(id));
        used.or_else(|| self.shown.frontends.values().find(|one| base.owns(&one.name) && is_of(&one.name)))
    }
}
