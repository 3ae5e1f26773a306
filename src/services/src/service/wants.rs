//! From what a Service asks to what each object must hold.
//!
//! The order of writes is the Service step's: it tells each object a want with the [`Stage`] that it has reached.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use lazuli_model::{ArmId, ArmIdError, ServiceKey, address::Family};

use super::ServiceObject;
use crate::{
    ask::{
        AddressAsk, Ask, Denial, KeptRules, PublicIpAsk, SecurityProtocol,
        names::{self, BaseName},
    },
    network::{
        Settings, Want, load_balancer, private_link,
        public_ip::{self, Creation},
        security_group,
    },
};

/// How far a Service has got with an object. Each stage asks for no less to be present and no less to be gone than the one
/// before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Nothing is asked: the object tells what it shows of the Service.
    Looking,
    /// Frontends are present; they give the addresses.
    Frontends,
    /// All that the Service asks for is present; what was there before still serves.
    Adding,
    /// Of a load balancer: rules that the Service no longer asks for are gone, and their frontends stay.
    Quieting,
    /// All that the Service no longer asks for is gone.
    Trimming,
}

/// Addresses that a Service had and does not ask for now, as objects showed them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Former {
    /// Addresses of frontends, or of nodes where floating IP is off.
    pub addresses: BTreeSet<IpAddr>,
    /// Public IPs.
    pub public_ips: BTreeSet<ArmId>,
}

/// The id of the public IP of a family, where its name is known: one named only by its address must be found by a list of
/// its resource group.
///
/// # Errors
/// When its name or group is no part of an id.
pub fn public_ip_id(ask: &PublicIpAsk, settings: &Settings) -> Result<Option<ArmId>, ArmIdError> {
    match ask {
        PublicIpAsk::Managed { name, resource_group, .. } | PublicIpAsk::Named { name, resource_group, .. } => {
            settings.public_ip_id(resource_group, name).map(Some)
        }
        PublicIpAsk::WithAddress { .. } => Ok(None),
    }
}

/// What a Service asks of its public IP.
pub fn public_ip(ask: &PublicIpAsk, family: Family) -> Want<public_ip::Part, public_ip::Gone> {
    let creation = match ask {
        PublicIpAsk::Managed { prefix, .. } => Creation::Make { prefix: prefix.clone() },
        PublicIpAsk::Named { .. } | PublicIpAsk::WithAddress { .. } => Creation::MustExist,
    };
    let usage = public_ip::Use { family, creation, settings: ask.settings().clone(), outside: None };
    Want { present: public_ip::Part { usage: Some(usage) }, gone: public_ip::Gone::Nothing }
}

/// A public IP that a Service has given up.
pub fn public_ip_released() -> Want<public_ip::Part, public_ip::Gone> {
    Want { present: public_ip::Part::default(), gone: public_ip::Gone::Released }
}

/// A public IP that a Service has given up, and whose frontend its load balancer keeps.
pub fn public_ip_released_unless_used() -> Want<public_ip::Part, public_ip::Gone> {
    Want { present: public_ip::Part::default(), gone: public_ip::Gone::ReleasedUnlessUsed }
}

/// A public IP that a Service has given up and that other Services still use.
pub fn public_ip_left_to_others() -> Want<public_ip::Part, public_ip::Gone> {
    Want { present: public_ip::Part::default(), gone: public_ip::Gone::LeftToOthers }
}

/// A public IP that a Service has given up and whose frontend stays as the last of its load balancer.
pub fn public_ip_kept_by_frontend() -> Want<public_ip::Part, public_ip::Gone> {
    Want { present: public_ip::Part::default(), gone: public_ip::Gone::KeptByFrontend }
}

/// The pool of a family's rules: that of all nodes, or one of its own for local traffic on several load balancers.
pub fn pool_name(ask: &Ask, settings: &Settings, family: Family) -> String {
    if ask.is_local && settings.has_several_load_balancers() {
        names::local_pool(&ask.service, family)
    } else {
        settings.pool_name(family)
    }
}

/// What a Service asks of its load balancer. `public_ips` holds the public IP of each family of a public Service; a family
/// without one is left out.
///
/// # Errors
/// When the name of its subnet is no part of an id.
pub fn load_balancer(
    ask: &Ask,
    settings: &Settings,
    public_ips: &BTreeMap<Family, ArmId>,
    former: &Former,
    stage: Stage,
) -> Result<Want<load_balancer::Part, load_balancer::Gone>, ArmIdError> {
    let mut part = load_balancer::Part::default();
    if stage == Stage::Looking {
        return Ok(Want { present: part, gone: load_balancer::Gone::Nothing });
    }
    for family in &ask.families {
        let address = match &family.address {
            AddressAsk::Public(_) => match public_ips.get(&family.family) {
                Some(id) => load_balancer::FrontendAddress::Public(id.clone()),
                None => continue,
            },
            AddressAsk::Private { subnet, is_subnet_named, address, previous } => {
                load_balancer::FrontendAddress::Private {
                    subnet: settings.subnet_id(subnet)?,
                    is_subnet_named: *is_subnet_named,
                    address: *address,
                    previous: *previous,
                }
            }
        };
        part.frontends.push(load_balancer::FrontendPart {
            family: family.family,
            name: family.frontend.clone(),
            address,
        });
        let pool = pool_name(ask, settings, family.family);
        part.pools.push(pool.clone());
        if stage == Stage::Frontends {
            continue;
        }
        part.rules.extend(family.rules.iter().map(|rule| load_balancer::RulePart {
            family: family.family,
            pool: pool.clone(),
            ask: rule.clone(),
        }));
        for probe in &family.probes {
            if !part.probes.contains(probe) {
                part.probes.push(probe.clone());
            }
        }
    }
    Ok(Want { present: part, gone: load_balancer_gone(&ask.service, settings, former, stage) })
}

/// What of a Service that its part does not ask for is gone at a stage.
fn load_balancer_gone(service: &ServiceKey, settings: &Settings, former: &Former, stage: Stage) -> load_balancer::Gone {
    let base = BaseName::of(service);
    match stage {
        Stage::Looking | Stage::Frontends | Stage::Adding => load_balancer::Gone::Nothing,
        Stage::Quieting => load_balancer::Gone::Rules(base),
        Stage::Trimming => {
            let pools = [Family::V4, Family::V6].into_iter().map(|family| names::local_pool(service, family));
            load_balancer::Gone::Everything {
                base,
                pools: if settings.has_several_load_balancers() { pools.collect() } else { vec![] },
                public_ips: former.public_ips.clone(),
                addresses: former.addresses.clone(),
            }
        }
    }
}

/// A load balancer that a Service has left, or whose Service is deleted.
pub fn load_balancer_left(
    service: &ServiceKey,
    settings: &Settings,
    former: &Former,
    stage: Stage,
) -> Want<load_balancer::Part, load_balancer::Gone> {
    let gone = load_balancer_gone(service, settings, former, stage);
    Want { present: load_balancer::Part::default(), gone }
}

/// What a Service asks of the security group.
///
/// `frontends` are its own addresses. `nodes` are the addresses of the backends, which are the destinations where floating
/// IP is off. `former` holds addresses that it had before: they go when `stage` is trimming.
pub fn security_group(
    ask: &Ask,
    frontends: &BTreeSet<IpAddr>,
    nodes: &BTreeSet<IpAddr>,
    former: &Former,
    stage: Stage,
) -> Want<security_group::Part, security_group::Gone> {
    let own = if ask.floating_ip { frontends } else { nodes };
    let is_served = |address: &IpAddr| ask.families.iter().any(|family| family.family == Family::of(*address));
    let mut destinations: BTreeSet<IpAddr> = own.iter().copied().filter(is_served).collect();
    destinations.extend(&ask.additional_addresses);
    let mut part = security_group::Part::default();
    if ask.access.kept == KeptRules::All && stage >= Stage::Adding {
        let ports: BTreeSet<(SecurityProtocol, u16)> = ask.access.ports.iter().copied().collect();
        part.keep = destinations.iter().chain(frontends).map(|address| (*address, ports.clone())).collect();
    } else if ask.access.has_rules && stage >= Stage::Adding {
        part.allow = allows(ask, &destinations);
        match ask.access.denial {
            Denial::None => {}
            Denial::Asked => part.deny_all.clone_from(&destinations),
            Denial::OfInvalidRange => part.deny_alone.clone_from(&destinations),
        }
        if ask.access.kept == KeptRules::Denials {
            part.keep_denied.clone_from(&destinations);
        }
    }
    let gone = match stage {
        Stage::Trimming => security_group::Gone {
            destinations: destinations.iter().chain(&former.addresses).copied().collect(),
            base: Some(ask.base.clone()),
            ..security_group::Gone::default()
        },
        _ => security_group::Gone::default(),
    };
    Want { present: part, gone }
}

/// Leaves to what is there already what a Service asks for at addresses of other Services that do not agree: a denial, and
/// that ports are reached which have no load-balancing rule there. Where a mistake keeps its rules, it keeps none of the
/// owner's that allow. `addresses` holds the ports that have one, as the load balancer shows it.
pub fn at_addresses_of_others(
    part: &mut security_group::Part,
    addresses: &BTreeMap<IpAddr, BTreeSet<(SecurityProtocol, u16)>>,
) {
    let is_of_others = |address: &IpAddr| addresses.contains_key(address);
    for denied in [&mut part.deny_all, &mut part.deny_alone] {
        part.guest.deny_all.extend(denied.iter().copied().filter(is_of_others));
        denied.retain(|address| !is_of_others(address));
    }
    part.guest.keep = part.keep.keys().copied().filter(is_of_others).collect();
    part.keep.retain(|address, _| !is_of_others(address));
    part.keep_denied.extend(&part.guest.keep);
    for allow in &mut part.allow {
        let asked = allow.clone();
        for (address, open) in addresses.iter().filter(|(address, _)| asked.destinations.contains(address)) {
            let is_for_all = open.contains(&(SecurityProtocol::Any, 0));
            let has_rule = |port: &u16| is_for_all || open.contains(&(asked.protocol, *port));
            let with_rules: BTreeSet<u16> = asked.ports.iter().copied().filter(has_rule).collect();
            if !asked.ports.iter().all(|port| with_rules.contains(port)) {
                allow.destinations.remove(address);
                let asked = security_group::Allow { destinations: [*address].into(), ..asked.clone() };
                part.guest.allow.push(security_group::GuestAllow { asked, with_rules });
            }
        }
    }
    part.allow.retain(|allow| !allow.destinations.is_empty());
}

/// The allow rules, in the Go manager's order: by protocol, then IPv4 before IPv6, service tags before ranges.
fn allows(ask: &Ask, destinations: &BTreeSet<IpAddr>) -> Vec<security_group::Allow> {
    use crate::ask::SecurityProtocol::{Any, Tcp, Udp};
    let mut allows = Vec::new();
    for protocol in [Tcp, Udp, Any] {
        let ports: Vec<u16> =
            ask.access.ports.iter().filter(|(there, _)| *there == protocol).map(|(_, port)| *port).collect();
        if ports.is_empty() {
            continue;
        }
        for family in [Family::V4, Family::V6] {
            let of_family: BTreeSet<IpAddr> =
                destinations.iter().copied().filter(|address| Family::of(*address) == family).collect();
            if of_family.is_empty() {
                continue;
            }
            let mut allow = |sources: Vec<String>| {
                allows.push(security_group::Allow {
                    protocol,
                    family,
                    sources,
                    ports: ports.clone(),
                    destinations: of_family.clone(),
                });
            };
            ask.access.service_tags.iter().for_each(|tag| allow(vec![tag.clone()]));
            let ranges: Vec<String> =
                ask.access.ranges.iter().filter(|range| range.family() == family).map(ToString::to_string).collect();
            if !ranges.is_empty() {
                allow(ranges);
            }
        }
    }
    allows
}

/// What a Service asks of its private link service: IPv4 only, in front of this frontend.
///
/// # Errors
/// When the name of its subnet is no part of an id.
pub fn private_link(
    ask: &Ask,
    settings: &Settings,
    frontend: &ArmId,
) -> Result<Option<Want<private_link::Part, private_link::Gone>>, ArmIdError> {
    let Some(link) = &ask.private_link else { return Ok(None) };
    let subnet = settings.subnet_id(&link.subnet)?;
    let link =
        private_link::Link { frontend: frontend.clone(), subnet, is_own: true, is_allowed: true, ask: link.clone() };
    let present = private_link::Part { link: Some(link) };
    Ok(Some(Want { present, gone: private_link::Gone::Nothing }))
}

/// A private link service that a Service has given up.
pub fn private_link_released() -> Want<private_link::Part, private_link::Gone> {
    Want { present: private_link::Part::default(), gone: private_link::Gone::Released }
}

/// The ports of a Service that has no valid specification now, at the addresses in its status: what it was given stays.
pub fn kept_ports(object: &ServiceObject) -> BTreeMap<IpAddr, BTreeSet<(SecurityProtocol, u16)>> {
    let ports: BTreeSet<(SecurityProtocol, u16)> =
        object.ports.iter().map(|port| (port.protocol.in_security_rules(), port.port)).collect();
    object.ingress.iter().map(|address| (*address, ports.clone())).collect()
}

/// Where Services are reached by their status, with the base name of each in lower case.
pub fn reached<'o>(services: impl IntoIterator<Item = &'o ServiceObject>) -> BTreeSet<(IpAddr, String)> {
    let of = |object: &'o ServiceObject| {
        let base = BaseName::of(&object.key).as_str().to_lowercase();
        object.ingress.iter().map(move |address| (*address, base.clone()))
    };
    services.into_iter().flat_map(of).collect()
}

/// At which ports of the nodes Services are reached where floating IP is off, by the base name of the Service in lower case.
/// `of_rules` has those that rules of load balancers send to. A Service without a valid specification, or that has told
/// nothing yet, is `silent`: its node ports count. So do those of a Service whose rule is for all ports and names none.
pub fn ports_at_nodes<'o>(
    of_rules: BTreeMap<String, BTreeSet<(SecurityProtocol, u16)>>,
    services: impl IntoIterator<Item = &'o ServiceObject>,
    is_silent: impl Fn(&ServiceKey) -> bool,
) -> BTreeMap<String, BTreeSet<(SecurityProtocol, u16)>> {
    let mut all = of_rules;
    for object in services {
        let base = BaseName::of(&object.key).as_str().to_lowercase();
        let is_for_all = all.get(&base).is_some_and(|ports| ports.contains(&(SecurityProtocol::Any, 0)));
        if is_for_all || is_silent(&object.key) {
            let ports = object.ports.iter().filter(|port| port.node_port != 0);
            let ports = ports.map(|port| (port.protocol.in_security_rules(), port.node_port));
            all.entry(base).or_default().extend(ports);
        }
    }
    all
}

/// The addresses for `status.loadBalancer.ingress`: one of each family, then the additional ones. `None` while one is not
/// known.
pub fn ingress(ask: &Ask, addresses: &BTreeMap<Family, IpAddr>) -> Option<Vec<IpAddr>> {
    let own: Option<Vec<IpAddr>> = ask.families.iter().map(|family| addresses.get(&family.family).copied()).collect();
    let mut all = own?;
    all.extend(&ask.additional_addresses);
    Some(all)
}

/// Whether a status holds these addresses. Their order is not compared: the Go manager writes that of the frontends.
pub fn is_same_ingress(one: &[IpAddr], other: &[IpAddr]) -> bool {
    let sorted = |all: &[IpAddr]| {
        let mut all = all.to_vec();
        all.sort_unstable();
        all
    };
    sorted(one) == sorted(other)
}
