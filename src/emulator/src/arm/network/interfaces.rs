//! Network interfaces, and the addresses that subnets give out to them.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use serde_json::{Value, json};

use super::super::kinds::NIC;
use super::super::{lists, regions, writes};
use super::{
    configurations, delete_later, id_of, missing, nics, not_going, preconditions, references, shown, unused, weak,
};
use crate::answer::{Answer, Context, Reply};
use crate::fault::{self, Fault};
use crate::path;
use crate::state::State;
use crate::store::Resource;

/// GET.
pub(crate) fn get_nic(context: &mut Context<'_>) -> Reply {
    shown(context, NIC)
}

/// Lists.
pub(crate) fn list_nics(context: &mut Context<'_>) -> Reply {
    lists::answer(context, NIC)
}

/// PUT of a network interface: synchronous. Recorded.
pub(crate) fn put_nic(context: &mut Context<'_>) -> Reply {
    let group = context.require_group()?;
    let body = context.read("NNetworkInterfaceResource", "networkInterface", false)?;
    let location = path::location(body["location"].as_str().unwrap_or(""));
    regions::check(&location, NIC)?;
    let name = context.request.segment(1).to_owned();
    writes::check_name(NIC, &name)?;
    let id = format!("{}/providers/{NIC}/{name}", group["id"].as_str().unwrap_or(""));
    let old = context.state.store.document(&id);
    preconditions(context, old.as_deref())?;
    if let Some(old) = &old {
        not_going(context, old)?;
    }
    if let Some(there) = old.as_ref().and_then(|old| old["location"].as_str()).filter(|there| *there != location) {
        return Err(fault::location_conflict(&name, there, context.request.group(), &location));
    }
    let tag = context.state.guid();
    let resource_guid = context.state.guid();
    let before = old.as_deref().map_or(Before::Nothing, Before::Interface);
    let doc = nic_document(context.state, &id, &name, &location, &body, (&tag, &resource_guid), before)?;
    let now = context.now;
    context.state.store.insert(&id, Resource::new(doc.clone()), now);
    Ok(Answer::json(if old.is_none() { 201 } else { 200 }, doc))
}

/// What there was before a network interface is written.
#[derive(Clone, Copy)]
pub(crate) enum Before<'a> {
    /// Nothing: it gets the lowest free address.
    Nothing,
    /// Its document: it keeps its address.
    Interface(&'a Value),
    /// Nothing, and this address is known to be free.
    FreeAddress(&'a str),
}

/// The document of a network interface. Recorded members.
pub(crate) fn nic_document(
    state: &State,
    id: &str,
    name: &str,
    location: &str,
    body: &Value,
    guids: (&str, &str),
    before: Before<'_>,
) -> Result<Value, Fault> {
    let (old, free) = match before {
        Before::Nothing => (None, None),
        Before::Interface(old) => (Some(old), None),
        Before::FreeAddress(address) => (None, Some(address)),
    };
    let tag = weak(guids.0);
    let asked = &body["properties"];
    let given = asked["ipConfigurations"].as_array().filter(|list| !list.is_empty());
    let Some(given) = given else {
        return Err(missing("ipConfigurations"));
    };
    references(state, asked, id)?;
    let mut list = Vec::new();
    for (index, item) in given.iter().enumerate() {
        let item_name = item["name"].as_str().ok_or_else(|| missing("ipConfigurations.name"))?;
        let subnet_id =
            item["properties"]["subnet"]["id"].as_str().ok_or_else(|| missing("ipConfigurations.subnet.id"))?;
        let prefix = subnet_prefix(state, subnet_id).ok_or_else(|| fault::invalid_reference(subnet_id, id))?;
        references(state, &item["properties"], id)?;
        let kept = old.and_then(|old| {
            configurations(old)
                .find(|c| c["name"] == item_name)
                .and_then(|c| c["properties"]["privateIPAddress"].as_str().map(str::to_owned))
        });
        let wanted = item["properties"]["privateIPAddress"].as_str().map(str::to_owned);
        let address = match (wanted.or(kept), free) {
            (Some(address), _) => {
                check_address(state, id, item_name, subnet_id, &prefix, &address)?;
                address
            }
            (None, Some(free)) => free.to_owned(),
            (None, None) => free_address(state, subnet_id, &prefix, &list)?,
        };
        list.push(json!({
            "name": item_name,
            "id": format!("{id}/ipConfigurations/{item_name}"),
            "etag": tag,
            "type": "Microsoft.Network/networkInterfaces/ipConfigurations",
            "properties": {
                "provisioningState": "Succeeded",
                "privateIPAddress": address,
                "privateIPAllocationMethod": item["properties"]["privateIPAllocationMethod"].as_str().unwrap_or("Dynamic"),
                "subnet": {"id": subnet_id},
                "primary": item["properties"]["primary"].as_bool().unwrap_or(index == 0),
                "privateIPAddressVersion": "IPv4",
            },
        }));
    }
    let mut properties = json!({
        "provisioningState": "Succeeded",
        "resourceGuid": old.map_or(guids.1, |old| old["properties"]["resourceGuid"].as_str().unwrap_or(guids.1)),
        "ipConfigurations": list,
        "dnsSettings": {
            "dnsServers": [],
            "appliedDnsServers": [],
            "internalDomainNameSuffix": "emulator.internal.cloudapp.net",
        },
        "enableAcceleratedNetworking": asked["enableAcceleratedNetworking"].as_bool().unwrap_or(false),
        "vnetEncryptionSupported": false,
        "enableIPForwarding": asked["enableIPForwarding"].as_bool().unwrap_or(false),
        "disableTcpStateTracking": false,
        "hostedWorkloads": [],
        "tapConfigurations": [],
        "nicType": "Standard",
        "allowPort25Out": true,
        "defaultOutboundConnectivityEnabled": false,
        "auxiliaryMode": "None",
        "auxiliarySku": "None",
    });
    if let Some(vm) = old.and_then(|old| old["properties"].get("virtualMachine")) {
        properties["virtualMachine"] = vm.clone();
    }
    if let Some(group) = asked.get("networkSecurityGroup") {
        properties["networkSecurityGroup"] = group.clone();
    }
    let mut doc = json!({
        "name": name,
        "id": id,
        "etag": tag,
        "properties": properties,
        "type": NIC,
        "location": location,
        "kind": "Regular",
    });
    if let Some(tags) = body.get("tags") {
        doc["tags"] = tags.clone();
    }
    Ok(doc)
}

/// DELETE of a network interface. Recorded 202; documented 400 while a machine has it.
pub(crate) fn delete_nic(context: &mut Context<'_>) -> Reply {
    context.require_group()?;
    let id = id_of(context, NIC);
    let Some(doc) = context.state.store.document(&id) else {
        return Ok(Answer::empty(204));
    };
    preconditions(context, Some(&doc))?;
    unused(context.state, &doc)?;
    delete_later(context, &doc)
}

fn subnet_prefix(state: &State, id: &str) -> Option<String> {
    let lower = id.to_ascii_lowercase();
    let at = lower.find("/subnets/")?;
    let network = state.store.document(&id[..at])?;
    let name = path::name_of(id);
    network["properties"]["subnets"]
        .as_array()?
        .iter()
        .find(|s| s["name"].as_str().is_some_and(|own| own.eq_ignore_ascii_case(name)))
        .map(|s| {
            s["properties"]["addressPrefix"]
                .as_str()
                .or(s["properties"]["addressPrefixes"][0].as_str())
                .unwrap_or("10.0.0.0/24")
                .to_owned()
        })
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
    nics(state).flat_map(configurations).filter_map(move |c| {
        let properties = &c["properties"];
        let here = properties["subnet"]["id"].as_str().is_some_and(|id| path::same(id, subnet));
        here.then(|| Some((properties["privateIPAddress"].as_str()?, c["id"].as_str()?))).flatten()
    })
}

/// Whether a configuration may have an address. Documented.
fn check_address(state: &State, nic: &str, name: &str, subnet: &str, prefix: &str, address: &str) -> Result<(), Fault> {
    let (first, last) = usable(prefix);
    let inside = address.parse::<Ipv4Addr>().is_ok_and(|own| (first..=last).contains(&u32::from(own)));
    if !inside {
        return Err(fault::address_not_in_subnet(address, prefix));
    }
    let own = format!("{nic}/ipConfigurations/{name}");
    match taken(state, subnet).find(|(used, by)| *used == address && !path::same(by, &own)) {
        Some((_, by)) => {
            let by = by.split("/ipConfigurations/").next().unwrap_or(by);
            Err(fault::address_allocated(&own, address, by))
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
