//! Private addresses: the ranges of networks and subnets, and the addresses that subnets give out.
//!
//! Recorded: the first address that a subnet gives out ends in 4.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};

use crate::answer::{Answer, Context, Reply};
use crate::arm::descriptor::{Draft, Origin, Part};
use crate::arm::engine::references;
use crate::arm::kinds;
use crate::cidr;
use crate::document::Document;
use crate::fault::{self, Fault};
use crate::path;
use crate::state::State;

use super::virtual_networks::VIRTUAL_NETWORK;

/// From the first address to the last of the smallest subnet of IPv4, a /29. Documented.
const SMALLEST: u128 = 7;

/// How many free addresses an answer names instead of one that is taken.
const OFFERED: usize = 5;

/// Types that have private addresses, and the children in which these stand.
const HOLDERS: [(&str, &str); 4] = [
    (kinds::NIC, "ipConfigurations"),
    (kinds::INSTANCE_NIC, "ipConfigurations"),
    (kinds::LOAD_BALANCER, "frontendIPConfigurations"),
    (kinds::PRIVATE_LINK_SERVICE, "ipConfigurations"),
];

fn prefixes(subnet: &Value) -> impl Iterator<Item = &str> {
    let properties = &subnet["properties"];
    let many = properties["addressPrefixes"].as_array().into_iter().flatten();
    many.chain(std::iter::once(&properties["addressPrefix"])).filter_map(Value::as_str)
}

/// Whether a prefix is one, and begins with its first address. Documented.
fn check_prefix(prefix: &str, of: &Value) -> Result<(), Fault> {
    let (first, _) = cidr::range(prefix).ok_or_else(|| fault::invalid_prefix_format(prefix, path::of(of)))?;
    match prefix.split_once('/') {
        Some((base, length)) if base.parse() != Ok(first) => {
            Err(fault::invalid_prefix_notation(prefix, path::of(of), format!("{first}/{length}")))
        }
        _ => Ok(()),
    }
}

/// Whether the prefixes of a network and of its subnets are prefixes. Documented.
pub(crate) fn check_prefixes(network: &Value) -> Result<(), Fault> {
    let space = network["properties"]["addressSpace"]["addressPrefixes"].as_array().into_iter().flatten();
    space.filter_map(Value::as_str).try_for_each(|prefix| check_prefix(prefix, network))?;
    subnets(network).try_for_each(|subnet| {
        prefixes(subnet).try_for_each(|prefix| {
            check_prefix(prefix, subnet)?;
            let room = cidr::range(prefix).filter(|(first, _)| first.is_ipv4());
            match room.map(|(first, last)| cidr::bits(last) - cidr::bits(first)) {
                Some(room) if room < SMALLEST => {
                    Err(fault::subnet_too_small(subnet["name"].as_str().unwrap_or(""), prefix))
                }
                _ => Ok(()),
            }
        })
    })
}

/// Whether the subnets of a network lie in it, and apart. Documented.
pub(crate) fn check_subnets(network: &Value) -> Result<(), Fault> {
    let name = network["name"].as_str().unwrap_or("");
    let space: Vec<(IpAddr, IpAddr)> = network["properties"]["addressSpace"]["addressPrefixes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .filter_map(cidr::range)
        .collect();
    let mut seen: Vec<(IpAddr, IpAddr)> = Vec::new();
    for subnet in network["properties"]["subnets"].as_array().into_iter().flatten() {
        let own = subnet["name"].as_str().unwrap_or("");
        let ranges: Vec<(IpAddr, IpAddr)> = prefixes(subnet).filter_map(cidr::range).collect();
        for (first, last) in &ranges {
            if !space.iter().any(|(low, high)| low <= first && last <= high) {
                return Err(fault::subnet_outside(own, name));
            }
            if seen.iter().any(|(low, high)| low <= last && first <= high) {
                return Err(fault::subnets_overlap(own, name));
            }
        }
        seen.extend(ranges.into_iter().collect::<BTreeSet<_>>());
    }
    Ok(())
}

/// A prefix of a subnet, of IPv6 or of IPv4.
fn subnet_prefix(state: &State, id: &str, ipv6: bool) -> Option<String> {
    let (_, subnet) = references::child(state, id)?;
    let own = prefixes(&subnet).find(|prefix| prefix.contains(':') == ipv6);
    // A subnet of a scenario may have none.
    own.or((!ipv6).then_some("10.0.0.0/24")).map(str::to_owned)
}

/// The address of an IP configuration: the one asked for, the one that it had in this subnet, or the lowest free one.
///
/// # Errors
///
/// Documented: an address outside of the subnet, one that is taken, a full subnet.
pub(crate) fn allocate(draft: &Draft<'_>, part: &Part<'_>) -> Result<String, Fault> {
    let asked = &part.asked["properties"];
    let subnet = asked["subnet"]["id"].as_str().ok_or_else(|| fault::missing_value("ipConfigurations.subnet.id"))?;
    let ipv6 = asked["privateIPAddressVersion"] == "IPv6";
    if references::child(draft.state, subnet).is_none() {
        return Err(fault::invalid_reference(subnet, draft.id));
    }
    let prefix = subnet_prefix(draft.state, subnet, ipv6).ok_or_else(|| fault::subnet_without_ipv6(subnet, part.id))?;
    let had = part.old.map_or(&Value::Null, |old| &old["properties"]["privateIPAddress"]).as_str();
    let had = had.filter(|address| address.parse().is_ok_and(|address| is_usable(&prefix, address)));
    match asked["privateIPAddress"].as_str().or(had) {
        Some(address) if draft.origin == Origin::Scenario => Ok(address.to_owned()),
        Some(address) => {
            check_address(draft, part, subnet, &prefix, address)?;
            Ok(address.to_owned())
        }
        None => free_address(draft.state, subnet, &prefix, part.before),
    }
}

/// First and last address that a subnet gives out. Documented: Azure keeps the first four and the last.
/// A prefix that cannot be read gives out what a /24 of IPv4 would.
fn usable(prefix: &str) -> (IpAddr, IpAddr) {
    let (first, last) =
        cidr::range(prefix).unwrap_or((Ipv4Addr::new(10, 0, 0, 0).into(), Ipv4Addr::new(10, 0, 0, 255).into()));
    (
        cidr::with_bits(first, cidr::bits(first).saturating_add(4)),
        cidr::with_bits(last, cidr::bits(last).saturating_sub(1)),
    )
}

fn is_usable(prefix: &str, address: IpAddr) -> bool {
    let (first, last) = usable(prefix);
    (first..=last).contains(&address)
}

/// Addresses given out in a subnet, each with the configuration that has it.
fn taken<'a>(state: &'a State, subnet: &'a str) -> impl Iterator<Item = (IpAddr, &'a str)> {
    let configurations = HOLDERS.iter().flat_map(|(kind, member)| {
        state.store.of_kind(kind).flat_map(|holder| holder["properties"][*member].as_array().into_iter().flatten())
    });
    configurations.filter_map(move |configuration| address_in(configuration, subnet))
}

/// The address that a configuration has in a subnet, and the configuration's id.
fn address_in<'a>(configuration: &'a Value, subnet: &str) -> Option<(IpAddr, &'a str)> {
    let properties = &configuration["properties"];
    let here = properties["subnet"]["id"].as_str().is_some_and(|id| path::same(id, subnet));
    let address = properties["privateIPAddress"].as_str().filter(|_| here)?;
    Some((address.parse().ok()?, configuration["id"].as_str()?))
}

/// Whether a configuration may have an address. Documented. An address may move within its resource.
fn check_address(draft: &Draft<'_>, part: &Part<'_>, subnet: &str, prefix: &str, address: &str) -> Result<(), Fault> {
    let parsed = address.parse().ok().filter(|address| is_usable(prefix, *address));
    let wanted = parsed.ok_or_else(|| fault::address_not_in_subnet(address, prefix))?;
    let others = taken(draft.state, subnet).filter(|(_, by)| !path::same(path::parent_of(by), draft.id));
    let mut all = others.chain(part.before.iter().filter_map(|part| address_in(part, subnet)));
    match all.find(|(used, by)| *used == wanted && !path::same(by, part.id)) {
        Some((_, by)) => Err(fault::address_allocated(part.id, address, path::parent_of(by))),
        None => Ok(()),
    }
}

/// The address that a subnet gives out after `before` others, when none of them was given back.
pub(crate) fn next_address(state: &State, subnet: &str, before: u32) -> Option<String> {
    let (first, last) = usable(&subnet_prefix(state, subnet, false)?);
    let address = cidr::with_bits(first, cidr::bits(first).checked_add(before.into())?);
    (first..=last).contains(&address).then(|| address.to_string())
}

/// So many free addresses of a subnet, the lowest first.
///
/// # Errors
///
/// When there is no such subnet, when it has no prefix of the family, or fewer addresses.
pub(crate) fn free_addresses(state: &State, subnet: &str, ipv6: bool, count: usize) -> Result<Vec<String>, Fault> {
    let prefix = subnet_prefix(state, subnet, ipv6).ok_or_else(|| fault::subnet_without_ipv6(subnet, subnet))?;
    let (first, last) = usable(&prefix);
    let used: BTreeSet<IpAddr> = taken(state, subnet).map(|(address, _)| address).collect();
    let free = (cidr::bits(first)..=cidr::bits(last)).map(|bits| cidr::with_bits(first, bits));
    let free: Vec<String> =
        free.filter(|address| !used.contains(address)).take(count).map(|address| address.to_string()).collect();
    if free.len() < count { Err(fault::subnet_full(path::name_of(subnet), prefix)) } else { Ok(free) }
}

/// The lowest free address from `.4` on.
fn free_address(state: &State, subnet: &str, prefix: &str, before: &[Value]) -> Result<String, Fault> {
    let (first, last) = usable(prefix);
    let used: BTreeSet<IpAddr> = taken(state, subnet)
        .chain(before.iter().filter_map(|part| address_in(part, subnet)))
        .map(|(address, _)| address)
        .collect();
    (cidr::bits(first)..=cidr::bits(last))
        .map(|bits| cidr::with_bits(first, bits))
        .find(|address| !used.contains(address))
        .map(|address| address.to_string())
        .ok_or_else(|| fault::subnet_full(path::name_of(subnet), prefix))
}

/// `CheckIPAddressAvailability`: whether a network can give out an address. Documented: the shape, and that five free
/// ones of the same subnet are named instead. That the addresses that Azure keeps are the platform's is unverified.
pub(crate) fn check_availability(context: &mut Context<'_>) -> Reply {
    let network = network(context)?;
    let asked = context.request.query.iter().find(|(name, _)| name.eq_ignore_ascii_case("ipAddress"));
    let asked = asked.map(|(_, value)| value.trim()).filter(|value| !value.is_empty());
    let asked = asked.ok_or_else(fault::address_not_asked)?;
    let wanted: Option<IpAddr> = asked.parse().ok();
    let holds = |prefix: &&str| {
        cidr::range(prefix).is_some_and(|(first, last)| wanted.is_some_and(|wanted| (first..=last).contains(&wanted)))
    };
    let found = subnets(&network).find_map(|subnet| prefixes(subnet).find(holds).map(|prefix| (subnet, prefix)));
    let (Some((subnet, prefix)), Some(wanted)) = (found, wanted) else {
        return Err(fault::address_in_no_subnet(asked, path::of(&network)));
    };
    let used: BTreeSet<IpAddr> = taken(context.state, path::of(subnet)).map(|(address, _)| address).collect();
    let is_reserved = !is_usable(prefix, wanted);
    if !is_reserved && !used.contains(&wanted) {
        return Ok(Answer::json(200, json!({"available": true, "isPlatformReserved": false})));
    }
    let (first, last) = usable(prefix);
    let all = (cidr::bits(first)..=cidr::bits(last)).map(|bits| cidr::with_bits(first, bits));
    let offered: Vec<String> =
        all.filter(|address| !used.contains(address)).take(OFFERED).map(|address| address.to_string()).collect();
    Ok(Answer::json(
        200,
        json!({"available": false, "availableIPAddresses": offered, "isPlatformReserved": is_reserved}),
    ))
}

/// How many addresses each subnet of a network gives out, and has given out. Documented shape.
pub(crate) fn list_usage(context: &mut Context<'_>) -> Reply {
    let network = network(context)?;
    let usage = |subnet: &Value| {
        let ranges = prefixes(subnet).map(usable);
        let room = ranges.map(|(first, last)| (cidr::bits(last) + 1).saturating_sub(cidr::bits(first))).sum::<u128>();
        json!({
            "currentValue": taken(context.state, path::of(subnet)).count(),
            "id": subnet["id"],
            "limit": u64::try_from(room).unwrap_or(u64::MAX),
            "name": {"localizedValue": "Subnet size and usage", "value": "SubnetSpace"},
            "unit": "Count",
        })
    };
    let value: Vec<Value> = subnets(&network).map(usage).collect();
    Ok(Answer::json(200, json!({ "value": value })))
}

/// The virtual network that a request names.
fn network(context: &Context<'_>) -> Result<Document, Fault> {
    context.require_group()?;
    let found = context.state.store.shown(&VIRTUAL_NETWORK.id(context), context.now);
    found.ok_or_else(|| VIRTUAL_NETWORK.not_found(context))
}

fn subnets(network: &Value) -> impl Iterator<Item = &Value> {
    network["properties"]["subnets"].as_array().into_iter().flatten()
}
