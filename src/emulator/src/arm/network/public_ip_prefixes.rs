//! Public IP prefixes. Documented: the members; only the Standard SKU; lengths of 28 to 31 (IPv4) and 124 to 127
//! (IPv6), fixed once it is created; it cannot be deleted while it has addresses.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use serde_json::{Value, json};

use super::base::RESOURCE;
use crate::arm::descriptor::{BackReference, By, Descriptor, Draft, Form, Hooks, InUse, Writers};
use crate::arm::kinds;
use crate::arm::protocol::Schema;
use crate::fault::{self, Fault};
use crate::path;
use crate::state::State;

pub(crate) static PUBLIC_IP_PREFIX: Descriptor = Descriptor {
    kind: kinds::PREFIX,
    path: "publicIPPrefixes",
    schema: Schema { name: "NPublicIPPrefix", root: "publicIPPrefix" },
    layout: &["name", "id", "etag", "location", "tags", "zones", "properties", "type", "sku"],
    writers: Writers::Supersede,
    in_use: &[InUse { by: By::References, fault: |prefix, by| fault::prefix_in_use(path::of(prefix), by) }],
    shows: &[BackReference { member: "publicIPAddresses", from: kinds::ADDRESS, form: Form::Some }],
    expands: &["publicIPAddresses", "natGateway"],
    hooks: Hooks { complete, check, settle, ..RESOURCE.hooks },
    ..RESOURCE
};

fn complete(draft: &Draft<'_>) -> Result<Value, Fault> {
    let sku = &draft.body["sku"];
    let mut properties = json!({
        "prefixLength": draft.number("prefixLength", 0),
        "publicIPAddressVersion": draft.text("publicIPAddressVersion", "IPv4"),
    });
    if let Some(prefix) = draft.old.and_then(|old| old["properties"].get("ipPrefix")) {
        properties["ipPrefix"] = prefix.clone();
    }
    properties["ipTags"] = draft.asked().get("ipTags").cloned().unwrap_or(json!([]));
    let (name, tier) = (sku["name"].as_str().unwrap_or("Standard"), sku["tier"].as_str().unwrap_or("Regional"));
    Ok(json!({ "properties": properties, "sku": {"name": name, "tier": tier} }))
}

fn is_ipv6(prefix: &Value) -> bool {
    prefix["properties"]["publicIPAddressVersion"] == "IPv6"
}

fn check(_: &State, prefix: &Value, old: Option<&Value>) -> Result<(), Fault> {
    let (least, most) = if is_ipv6(prefix) { (124, 127) } else { (28, 31) };
    let length = prefix["properties"]["prefixLength"].as_u64().unwrap_or(0);
    if !(least..=most).contains(&length) {
        return Err(fault::invalid_prefix_length(length, least, most));
    }
    for property in ["prefixLength", "publicIPAddressVersion", "ipTags"] {
        if old.is_some_and(|old| old["properties"][property] != prefix["properties"][property]) {
            return Err(fault::fixed_property_changed(property, path::of(prefix)));
        }
    }
    Ok(())
}

/// The end of a creation: sixteen addresses of its own, of which the prefix takes the first. Which ones follows from
/// the seed and its id.
fn settle(state: &mut State, prefix: &mut Value, _: Duration) -> Result<(), Fault> {
    if prefix["properties"].get("ipPrefix").is_some() {
        return Ok(());
    }
    let taken: BTreeSet<String> = state
        .store
        .of_kind(kinds::PREFIX)
        .filter_map(|other| Some(other["properties"]["ipPrefix"].as_str()?.split('/').next()?.to_owned()))
        .collect();
    let id = path::of(prefix);
    let first = state.drawn(id) % 0x1000;
    let of_number = |number: u64| -> IpAddr {
        let block = u32::try_from(number % 0x1000).unwrap_or(0) << 4;
        match is_ipv6(prefix) {
            true => Ipv6Addr::from_bits((0x2001_0db8_ffff << 80) | u128::from(block)).into(),
            false => Ipv4Addr::from_bits(u32::from(Ipv4Addr::new(198, 19, 0, 0)) | block).into(),
        }
    };
    let free = (first..first + 0x1000).map(of_number).find(|address| !taken.contains(&address.to_string()));
    let address = free.ok_or_else(|| fault::prefix_full(id))?;
    let length = &prefix["properties"]["prefixLength"];
    prefix["properties"]["ipPrefix"] = json!(format!("{address}/{length}"));
    Ok(())
}

/// The lowest address of a prefix that is not taken. Documented: all of them can be used.
pub(crate) fn free_address(prefix: &Value, taken: &BTreeSet<IpAddr>) -> Option<IpAddr> {
    let (first, length) = prefix["properties"]["ipPrefix"].as_str()?.split_once('/')?;
    let first: IpAddr = first.parse().ok()?;
    let bits = if first.is_ipv6() { 128 } else { 32 };
    let count = 1_u32.checked_shl(u32::checked_sub(bits, length.parse().ok()?)?)?;
    let nth = |nth: u32| -> IpAddr {
        match first {
            IpAddr::V4(first) => Ipv4Addr::from_bits(first.to_bits() + nth).into(),
            IpAddr::V6(first) => Ipv6Addr::from_bits(first.to_bits() + u128::from(nth)).into(),
        }
    };
    (0..count).map(nth).find(|address| !taken.contains(address))
}
