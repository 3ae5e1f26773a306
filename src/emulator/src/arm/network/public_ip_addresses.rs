//! Public IP addresses.
//!
//! Recorded: without a SKU an address is Basic and Dynamic; a static one appears when its operation ends; an update
//! that changes nothing shows `Succeeded`. Documented: a Standard one is static; a dynamic one has an address while an
//! IP configuration names it; one of a prefix stays in it. The addresses are of the ranges for benchmarks and for
//! documentation (RFC 2544, RFC 3849), so that no packet reaches anyone by mistake.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use serde_json::{Value, json};

use super::base::RESOURCE;
use super::public_ip_prefixes;
use crate::arm::descriptor::{
    BackReference, By, Descriptor, Draft, Exclusive, Form, Hooks, InUse, Quota, Reference, Writers,
};
use crate::arm::engine::{document, references};
use crate::arm::protocol::{Latency, Schema};
use crate::arm::{kinds, writes};
use crate::derived;
use crate::fault::{self, Fault};
use crate::latency::OperationKind;
use crate::path;
use crate::state::State;

/// One IP configuration alone may name an address.
pub(crate) const EXCLUSIVE: Exclusive = Exclusive {
    taken: |configuration, id, other| fault::address_taken(configuration, id, other),
    twice: |id, by| fault::address_named_twice(id, by),
};

pub(crate) static PUBLIC_IP_ADDRESS: Descriptor = Descriptor {
    kind: kinds::ADDRESS,
    path: "publicIPAddresses",
    schema: Schema { name: "NPublicIPAddressResource", root: "publicIPAddress" },
    layout: &["name", "id", "etag", "location", "tags", "zones", "properties", "type", "sku"],
    writers: Writers::Supersede,
    references: &[Reference::new("properties/publicIPPrefix", kinds::PREFIX)],
    in_use: &[InUse { by: By::References, fault: |ip, by| fault::address_in_use(path::of(ip), by) }],
    latency: Latency { write: OperationKind::PublicIpAddress, delete: OperationKind::PublicIpAddress },
    shows: &[
        BackReference { member: "ipConfiguration", from: kinds::NIC, form: Form::One },
        BackReference { member: "ipConfiguration", from: kinds::LOAD_BALANCER, form: Form::One },
    ],
    expands: &["ipConfiguration", "natGateway", "publicIPPrefix"],
    quotas: &[
        Quota {
            name: "PublicIPAddresses",
            local_name: "Public IP Addresses",
            limit: 1000,
            counts: |_| true,
            fault: |exceeded| fault::too_many_addresses(exceeded.limit),
        },
        Quota {
            name: "StaticPublicIPAddresses",
            local_name: "Static Public IP Addresses",
            limit: 1000,
            counts: is_static,
            fault: |exceeded| fault::too_many_static_addresses(exceeded.limit),
        },
    ],
    hooks: Hooks { complete, check, settle, ..RESOURCE.hooks },
    ..RESOURCE
};

fn is_static(ip: &Value) -> bool {
    ip["properties"]["publicIPAllocationMethod"] == "Static"
}

/// Recorded members; those of a label are documented.
fn complete(draft: &Draft<'_>) -> Result<Value, Fault> {
    let sku = &draft.body["sku"];
    let (name, tier) = (sku["name"].as_str().unwrap_or("Basic"), sku["tier"].as_str().unwrap_or("Regional"));
    let method = draft.text("publicIPAllocationMethod", "Dynamic");
    let mut properties = json!({});
    let in_use = || !references::referrers(draft.state, kinds::ADDRESS, draft.id, None).is_empty();
    if let Some(address) = draft.old.and_then(|old| old["properties"].get("ipAddress"))
        && (method == "Static" || in_use())
    {
        properties["ipAddress"] = address.clone();
    }
    properties["publicIPAddressVersion"] = json!(draft.text("publicIPAddressVersion", "IPv4"));
    properties["publicIPAllocationMethod"] = json!(method);
    properties["idleTimeoutInMinutes"] = json!(draft.number("idleTimeoutInMinutes", 4));
    if let Some(label) = draft.asked()["dnsSettings"]["domainNameLabel"].as_str() {
        properties["dnsSettings"] = draft.asked()["dnsSettings"].clone();
        properties["dnsSettings"]["fqdn"] = json!(domain_name(draft, label));
    }
    properties["ipTags"] = draft.asked().get("ipTags").cloned().unwrap_or(json!([]));
    let mut properties = writes::with(properties, &["publicIPPrefix", "deleteOption", "ddosSettings"], draft.asked());
    if name != "Basic" && properties.get("ddosSettings").is_none() {
        properties["ddosSettings"] = json!({"protectionMode": "VirtualNetworkInherited"});
    }
    Ok(json!({ "properties": properties, "sku": {"name": name, "tier": tier} }))
}

/// The full name of a label. Documented: with a scope, a hash stands after it, the same for the same label and scope.
fn domain_name(draft: &Draft<'_>, label: &str) -> String {
    let scope = match draft.asked()["dnsSettings"]["domainNameLabelScope"].as_str() {
        None => return format!("{label}.{}.cloudapp.azure.com", draft.location),
        Some("TenantReuse") => String::new(),
        Some("SubscriptionReuse") => path::subscription_of(draft.id).to_owned(),
        Some("ResourceGroupReuse") => format!("{}/{}", path::subscription_of(draft.id), path::group_of(draft.id)),
        Some(_) => draft.guid.to_owned(),
    };
    format!("{label}.{:016x}.{}.cloudapp.azure.com", derived::hash(&format!("{label}/{scope}")), draft.location)
}

/// Documented, but for what changes with the version and the prefix.
fn check(state: &State, ip: &Value, old: Option<&Value>) -> Result<(), Fault> {
    let (id, properties) = (path::of(ip), &ip["properties"]);
    let basic = ip["sku"]["name"] == "Basic";
    if !basic && !is_static(ip) {
        return Err(fault::address_must_be_static(id));
    }
    if basic && is_static(ip) && properties["publicIPAddressVersion"] == "IPv6" {
        return Err(fault::address_of_ipv6_is_dynamic());
    }
    if !(4..=30).contains(&properties["idleTimeoutInMinutes"].as_i64().unwrap_or(0)) {
        return Err(fault::invalid_idle_timeout(path::name_of(id)));
    }
    check_label(state, id, properties)?;
    if let Some(old) = old {
        check_fixed(id, old, ip)?;
    }
    let prefix = properties["publicIPPrefix"]["id"].as_str().and_then(|id| state.store.document(id));
    if let Some(prefix) = prefix.filter(|_| properties.get("ipAddress").is_none()) {
        let (by, id) = (id, path::of(&prefix));
        if basic {
            return Err(fault::prefix_needs_standard_sku(id));
        }
        if prefix["properties"].get("ipPrefix").is_none() {
            return Err(fault::not_provisioned(id, by, "Updating", "PutPublicIpPrefixOperation"));
        }
        public_ip_prefixes::free_address(&prefix, &taken(state)).ok_or_else(|| fault::prefix_full(id))?;
    }
    Ok(())
}

/// A name has an address of each family: Microsoft's example of a dual-stack load balancer gives both of its public IPs one
/// label (azure-docs, load-balancer-ipv6-internet-cli), and its overview says that the name is answered with both records
/// (load-balancer-ipv6-overview).
fn check_label(state: &State, id: &str, properties: &Value) -> Result<(), Fault> {
    let settings = &properties["dnsSettings"];
    let Some(label) = settings["domainNameLabel"].as_str() else {
        return Ok(());
    };
    let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let fits = (3..=63).contains(&label.len())
        && label.starts_with(|c: char| c.is_ascii_lowercase())
        && label.ends_with(letters)
        && label.chars().all(|c| letters(c) || c == '-');
    if !fits {
        return Err(fault::invalid_domain_name_label(label));
    }
    let name = &settings["fqdn"];
    let other = |ip: &Value| {
        let other = &ip["properties"];
        other["dnsSettings"]["fqdn"] == *name
            && other["publicIPAddressVersion"] == properties["publicIPAddressVersion"]
            && !ip["id"].as_str().is_some_and(|own| path::same(own, id))
    };
    if state.store.of_kind(kinds::ADDRESS).any(other) {
        return Err(fault::dns_record_in_use(name.as_str().unwrap_or("")));
    }
    Ok(())
}

/// What stays as it was created.
fn check_fixed(id: &str, old: &Value, new: &Value) -> Result<(), Fault> {
    let sku = |ip: &Value| ip["sku"]["name"].as_str().unwrap_or("").to_owned();
    // Documented: an upgrade from Basic is the one change that there is.
    if sku(old) != sku(new) && sku(old) != "Basic" {
        return Err(fault::sku_changed(sku(old), sku(new), id));
    }
    let zones = |ip: &Value| {
        let zones: Vec<&str> = ip["zones"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if zones.is_empty() { "NoZone".to_owned() } else { zones.join(", ") }
    };
    if zones(old) != zones(new) {
        return Err(fault::zones_changed(id, zones(old), zones(new)));
    }
    for property in ["publicIPAddressVersion", "publicIPPrefix", "ipTags"] {
        if !document::same(&old["properties"][property], &new["properties"][property]) {
            return Err(fault::fixed_property_changed(property, id));
        }
    }
    Ok(())
}

/// The end of a write: a static address is drawn.
fn settle(state: &mut State, ip: &mut Value, _: Duration) -> Result<(), Fault> {
    if is_static(ip) && ip["properties"].get("ipAddress").is_none() {
        let address = draw(state, ip)?;
        put_address(ip, address);
    }
    Ok(())
}

/// The address stands after the first two properties. Recorded.
fn put_address(ip: &mut Value, address: IpAddr) {
    if let Some(properties) = ip["properties"].as_object_mut() {
        let at = properties.len().min(2);
        properties.shift_insert(at, "ipAddress".to_owned(), json!(address.to_string()));
    }
}

/// The public addresses that something has.
pub(crate) fn taken(state: &State) -> BTreeSet<IpAddr> {
    let address = |ip: &Value| ip["properties"]["ipAddress"].as_str()?.parse().ok();
    let all = state.store.of_kind(kinds::ADDRESS).chain(state.store.of_kind(kinds::INSTANCE_ADDRESS));
    all.filter_map(address).collect()
}

fn draw(state: &State, ip: &Value) -> Result<IpAddr, Fault> {
    draw_beside(state, ip, &taken(state))
}

/// An address that nothing has: of its prefix, or one that follows from the seed and its id.
pub(crate) fn draw_beside(state: &State, ip: &Value, taken: &BTreeSet<IpAddr>) -> Result<IpAddr, Fault> {
    let id = path::of(ip);
    if let Some(prefix) = ip["properties"]["publicIPPrefix"]["id"].as_str() {
        let doc = state.store.document(prefix).unwrap_or_default();
        return public_ip_prefixes::free_address(&doc, taken).ok_or_else(|| fault::prefix_full(prefix));
    }
    let first = state.drawn(id) % 0x1_0000;
    let of_number = |number: u64| -> IpAddr {
        let low = u32::try_from(number % 0x1_0000).unwrap_or(0);
        match ip["properties"]["publicIPAddressVersion"].as_str() {
            Some("IPv6") => (Ipv6Addr::from_bits((0x2001_0db8 << 96) | u128::from(low) << 32 | 1)).into(),
            _ => Ipv4Addr::from_bits(u32::from(Ipv4Addr::new(198, 18, 0, 0)) | low).into(),
        }
    };
    let free = (first..first + 0x1_0000).map(of_number).find(|address| !taken.contains(address));
    free.ok_or_else(|| fault::too_many_addresses(0x1_0000))
}

/// The hook of a type that names public addresses: a dynamic one has an address while it is named.
pub(crate) fn follow(state: &mut State, old: Option<&Value>, new: Option<&Value>, at: Duration) {
    let types = state.types;
    let named = |doc: Option<&Value>| -> BTreeSet<String> {
        let ids = doc.and_then(|doc| {
            let descriptor = types.of(doc)?;
            Some(references::named(descriptor, doc, kinds::ADDRESS))
        });
        ids.unwrap_or_default().into_iter().map(path::key).collect()
    };
    let (had, has) = (named(old), named(new));
    for id in had.symmetric_difference(&has) {
        let Some(ip) = state.store.document(id) else {
            continue;
        };
        let mut ip = ip.into_value();
        if is_static(&ip) {
            continue;
        }
        let drawn = has.contains(id).then(|| draw(state, &ip).ok()).flatten();
        match drawn {
            Some(address) => put_address(&mut ip, address),
            None => {
                ip["properties"].as_object_mut().and_then(|properties| properties.shift_remove("ipAddress"));
            }
        }
        state.store.change(id, at, |resource| resource.doc = ip.into());
    }
}
