//! Private addresses: the ranges of networks and subnets, and the addresses that subnets give out.
//!
//! Recorded: the first address that a subnet gives out ends in 4.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use serde_json::Value;

use crate::arm::descriptor::{Draft, Origin, Part};
use crate::arm::engine::references;
use crate::arm::kinds;
use crate::cidr;
use crate::fault::{self, Fault};
use crate::path;
use crate::state::State;

fn prefixes(subnet: &Value) -> impl Iterator<Item = (u32, u32)> {
    let properties = &subnet["properties"];
    let many = properties["addressPrefixes"].as_array().into_iter().flatten();
    many.chain(std::iter::once(&properties["addressPrefix"])).filter_map(Value::as_str).filter_map(cidr::range)
}

/// Whether the subnets of a network lie in it, and apart. Documented.
pub(crate) fn check_subnets(network: &Value) -> Result<(), Fault> {
    let name = network["name"].as_str().unwrap_or("");
    let space: Vec<(u32, u32)> = network["properties"]["addressSpace"]["addressPrefixes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .filter_map(cidr::range)
        .collect();
    let mut seen: Vec<(u32, u32)> = Vec::new();
    for subnet in network["properties"]["subnets"].as_array().into_iter().flatten() {
        let own = subnet["name"].as_str().unwrap_or("");
        let ranges: Vec<(u32, u32)> = prefixes(subnet).collect();
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

/// The prefix of a subnet.
fn subnet_prefix(state: &State, id: &str) -> Option<String> {
    let (_, subnet) = references::child(state, id)?;
    let properties = &subnet["properties"];
    let prefix = properties["addressPrefix"].as_str().or(properties["addressPrefixes"][0].as_str());
    Some(prefix.unwrap_or("10.0.0.0/24").to_owned())
}

/// The address of an IP configuration: the one asked for, the one that it had, or the lowest free one.
///
/// # Errors
///
/// Documented: an address outside of the subnet, one that is taken, a full subnet.
pub(crate) fn allocate(draft: &Draft<'_>, part: &Part<'_>) -> Result<String, Fault> {
    let asked = &part.asked["properties"];
    let subnet = asked["subnet"]["id"].as_str().ok_or_else(|| fault::missing_value("ipConfigurations.subnet.id"))?;
    let prefix = subnet_prefix(draft.state, subnet).ok_or_else(|| fault::invalid_reference(subnet, draft.id))?;
    let had = part.old.map_or(&Value::Null, |old| &old["properties"]["privateIPAddress"]);
    match asked["privateIPAddress"].as_str().or(had.as_str()) {
        Some(address) if draft.origin == Origin::Scenario => Ok(address.to_owned()),
        Some(address) => {
            check_address(draft.state, part.id, subnet, &prefix, address)?;
            Ok(address.to_owned())
        }
        None => free_address(draft.state, subnet, &prefix, part.before),
    }
}

/// First and last address that a subnet gives out. Documented: Azure keeps the first four and the last.
/// A prefix that cannot be read, such as one of IPv6, gives out what a /24 would.
fn usable(prefix: &str) -> (u32, u32) {
    let (base, length) = prefix.split_once('/').unwrap_or((prefix, "24"));
    let base = base.parse().unwrap_or(Ipv4Addr::new(10, 0, 0, 0));
    let host_bits = 32 - length.parse::<u32>().unwrap_or(24).min(32);
    let hosts = if host_bits >= 32 { u32::MAX } else { (1_u32 << host_bits) - 1 };
    let first = u32::from(base) & !hosts;
    (first.saturating_add(4), first.saturating_add(hosts.saturating_sub(1)))
}

/// Addresses given out in a subnet, each with the configuration that has it.
fn taken<'a>(state: &'a State, subnet: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let configurations = |nic: &'a Value| nic["properties"]["ipConfigurations"].as_array().into_iter().flatten();
    state.store.of_kind(kinds::NIC).flat_map(configurations).filter_map(move |c| {
        let properties = &c["properties"];
        let here = properties["subnet"]["id"].as_str().is_some_and(|id| path::same(id, subnet));
        here.then(|| Some((properties["privateIPAddress"].as_str()?, c["id"].as_str()?))).flatten()
    })
}

/// Whether a configuration may have an address. Documented.
fn check_address(state: &State, own: &str, subnet: &str, prefix: &str, address: &str) -> Result<(), Fault> {
    let (first, last) = usable(prefix);
    let inside = address.parse::<Ipv4Addr>().is_ok_and(|own| (first..=last).contains(&u32::from(own)));
    if !inside {
        return Err(fault::address_not_in_subnet(address, prefix));
    }
    match taken(state, subnet).find(|(used, by)| *used == address && !path::same(by, own)) {
        Some((_, by)) => {
            let by = by.split("/ipConfigurations/").next().unwrap_or(by);
            Err(fault::address_allocated(own, address, by))
        }
        None => Ok(()),
    }
}

/// The address that a subnet gives out after `before` others, when none of them was given back.
pub(crate) fn next_address(state: &State, subnet: &str, before: u32) -> Option<String> {
    let (first, last) = usable(&subnet_prefix(state, subnet)?);
    let address = first.checked_add(before).filter(|address| *address <= last)?;
    Some(Ipv4Addr::from(address).to_string())
}

/// The lowest free address from `.4` on.
fn free_address(state: &State, subnet: &str, prefix: &str, also: &[Value]) -> Result<String, Fault> {
    let (first, last) = usable(prefix);
    let new = also
        .iter()
        .filter(|c| c["properties"]["subnet"]["id"].as_str().is_some_and(|id| path::same(id, subnet)))
        .filter_map(|c| c["properties"]["privateIPAddress"].as_str());
    let used: BTreeSet<u32> = taken(state, subnet)
        .map(|(address, _)| address)
        .chain(new)
        .filter_map(|address| Some(u32::from(address.parse::<Ipv4Addr>().ok()?)))
        .collect();
    (first..=last)
        .find(|address| !used.contains(address))
        .map(|address| Ipv4Addr::from(address).to_string())
        .ok_or_else(|| fault::subnet_full(path::name_of(subnet), prefix))
}
