//! Private DNS zones, their links to virtual networks, and the DNS zone groups of private endpoints.
//!
//! Documented (private DNS 2020-06-01): the members; that zones are global; that `If-None-Match: *` keeps a PUT from
//! changing what exists; that a network has one link to a zone and none to two zones of one name; that a zone goes
//! after its links. Documented of groups: the members, and one group an endpoint. Unverified: the form of etags and of
//! the operations' addresses. The emulator answers no DNS, and its records have no addresses.

use std::time::Duration;

use serde_json::{Value, json};

use super::base::RESOURCE;
use super::private_links::{self, PRIVATE_ENDPOINT};
use crate::answer::{Context, Reply};
use crate::arm::descriptor::{Descriptor, Draft, Hooks, Own, Reference};
use crate::arm::engine::put as write;
use crate::arm::kinds;
use crate::arm::protocol::{Answered, Commit, Patch, Put, Schema, Scope, Shape, Stamps};
use crate::fault::{self, Fault};
use crate::path;
use crate::state::State;

const VERSIONS: &[&str] = &["2020-06-01", "2018-09-01"];

/// Documented: both headers.
const ACCEPTED: Answered = Answered::new(202, Shape::Both);

/// What private zones and their links have in common.
const OF_ZONES: Descriptor = Descriptor {
    api_versions: VERSIONS,
    layout: &["id", "name", "type", "etag", "location", "tags", "properties"],
    stamps: Stamps::State,
    put: Put { created: ACCEPTED, updated: |_| ACCEPTED, running: |_| "Updating", commit: Commit::AtOnce },
    creating: Some("Creating"),
    patch: Patch::None,
    ..RESOURCE
};

pub(crate) static PRIVATE_ZONE: Descriptor = Descriptor {
    kind: kinds::PRIVATE_ZONE,
    path: "privateDnsZones",
    operations: Some("privateZones"),
    schema: Schema { name: "DPrivateZone", root: "parameters" },
    hooks: Hooks { name: check_zone_name, complete: zone, deletable: has_no_links, ..RESOURCE.hooks },
    own: Own { put: Some(|context| put_new(&PRIVATE_ZONE, context)), ..RESOURCE.own },
    ..OF_ZONES
};

pub(crate) static ZONE_LINK: Descriptor = Descriptor {
    kind: kinds::ZONE_LINK,
    path: "privateDnsZones/*/virtualNetworkLinks",
    parent: Some(&PRIVATE_ZONE),
    lists: &[Scope::Group],
    schema: Schema { name: "DVirtualNetworkLink", root: "parameters" },
    references: &[Reference::new("properties/virtualNetwork", kinds::NETWORK)],
    hooks: Hooks { complete: link, check: check_link, changed: count_links, ..RESOURCE.hooks },
    own: Own { put: Some(|context| put_new(&ZONE_LINK, context)), ..RESOURCE.own },
    ..OF_ZONES
};

/// A PUT that may ask to make the resource and to change none.
fn put_new(descriptor: &'static Descriptor, context: &mut Context<'_>) -> Reply {
    let only_new = context.request.header("if-none-match").map(str::trim) == Some("*");
    match context.state.store.document(&descriptor.id(context)).filter(|_| only_new) {
        Some(there) => Err(fault::private_dns_exists(path::of(&there))),
        None => write::put(descriptor, context),
    }
}

/// Documented: 2 to 34 labels of up to 63 letters, digits, hyphens and underscores.
fn check_zone_name(kind: &str, name: &str) -> Result<(), Fault> {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    let fits = (2..=34).contains(&name.split('.').count()) && name.split('.').all(is_label);
    if fits { Ok(()) } else { Err(fault::invalid_name(kind, name)) }
}

fn zone(draft: &Draft<'_>) -> Result<Value, Fault> {
    let had = draft.old.map(|old| &old["properties"]);
    let kept = |member: &str, default: u64| had.and_then(|had| had[member].as_u64()).unwrap_or(default);
    Ok(json!({ "properties": {
        "maxNumberOfRecordSets": 25_000,
        "maxNumberOfVirtualNetworkLinks": 1_000,
        "maxNumberOfVirtualNetworkLinksWithRegistration": 100,
        // A new zone has the record of its authority.
        "numberOfRecordSets": kept("numberOfRecordSets", 1),
        "numberOfVirtualNetworkLinks": kept("numberOfVirtualNetworkLinks", 0),
        "numberOfVirtualNetworkLinksWithRegistration": kept("numberOfVirtualNetworkLinksWithRegistration", 0),
    }}))
}

/// The links of a zone.
fn links_of<'a>(state: &'a State, zone: &'a str) -> impl Iterator<Item = &'a Value> {
    let links = state.store.of_kind(kinds::ZONE_LINK);
    links.filter(move |link| path::same(path::parent_of(path::of(link)), zone))
}

fn has_no_links(context: &Context<'_>, zone: &Value) -> Result<(), Fault> {
    match links_of(context.state, path::of(zone)).next() {
        Some(link) => Err(fault::nested_resources_exist(path::of(link))),
        None => Ok(()),
    }
}

fn link(draft: &Draft<'_>) -> Result<Value, Fault> {
    let network = &draft.asked()["virtualNetwork"]["id"];
    if !network.is_string() {
        return Err(fault::missing_value("virtualNetwork.id"));
    }
    Ok(json!({ "properties": {
        "registrationEnabled": draft.flag("registrationEnabled"),
        "virtualNetwork": {"id": network},
        "virtualNetworkLinkState": "Completed",
    }}))
}

fn check_link(state: &State, link: &Value, old: Option<&Value>) -> Result<(), Fault> {
    let network = &link["properties"]["virtualNetwork"]["id"];
    let (own, network) = (path::of(link), network.as_str().unwrap_or(""));
    if old.is_some_and(|old| !path::same(old["properties"]["virtualNetwork"]["id"].as_str().unwrap_or(""), network)) {
        return Err(fault::fixed_property_changed("virtualNetwork", own));
    }
    let zone = path::parent_of(own);
    let others = state.store.of_kind(kinds::ZONE_LINK).filter(|other| !path::same(path::of(other), own));
    let to_network = |other: &&Value| {
        other["properties"]["virtualNetwork"]["id"].as_str().is_some_and(|other| path::same(other, network))
    };
    for other in others.filter(to_network) {
        let there = path::parent_of(path::of(other));
        if path::same(there, zone) {
            return Err(fault::network_is_linked(network, path::name_of(zone), path::name_of(path::of(other))));
        }
        if path::name_of(there).eq_ignore_ascii_case(path::name_of(zone)) {
            return Err(fault::zones_overlap(path::name_of(there), path::name_of(zone)));
        }
    }
    Ok(())
}

/// A zone shows how many links it has.
fn count_links(state: &mut State, old: Option<&Value>, new: Option<&Value>, at: Duration) {
    let zone = path::parent_of(path::of(new.or(old).unwrap_or(&Value::Null))).to_owned();
    let registering = |link: &&Value| link["properties"]["registrationEnabled"] == true;
    let (all, registering) = (links_of(state, &zone).count(), links_of(state, &zone).filter(registering).count());
    state.store.change(&zone, at, |resource| {
        resource.doc["properties"]["numberOfVirtualNetworkLinks"] = json!(all);
        resource.doc["properties"]["numberOfVirtualNetworkLinksWithRegistration"] = json!(registering);
    });
}

pub(crate) static ZONE_GROUP: Descriptor = Descriptor {
    kind: kinds::ZONE_GROUP,
    path: "privateEndpoints/*/privateDnsZoneGroups",
    parent: Some(&PRIVATE_ENDPOINT),
    lists: &[Scope::Group],
    schema: Schema { name: "NPrivateDnsZoneGroup", root: "parameters" },
    layout: &["name", "id", "etag", "properties", "type"],
    stamps: Stamps::State,
    patch: Patch::None,
    hooks: Hooks { complete: group, check: check_group, ..RESOURCE.hooks },
    ..RESOURCE
};

fn configurations(group: &Value) -> impl Iterator<Item = &Value> {
    group["properties"]["privateDnsZoneConfigs"].as_array().into_iter().flatten()
}

fn zone_of(configuration: &Value) -> &str {
    configuration["properties"]["privateDnsZoneId"].as_str().unwrap_or("")
}

/// Each zone gets a record of each resource that the endpoint leads to.
fn group(draft: &Draft<'_>) -> Result<Value, Fault> {
    let endpoint = draft.state.store.document(path::parent_of(draft.id)).unwrap_or_default();
    let mut made = Vec::new();
    for configuration in configurations(draft.body) {
        let Some(name) = configuration["name"].as_str() else {
            return Err(fault::missing_value("privateDnsZoneConfigs.name"));
        };
        let zone = zone_of(configuration);
        if !draft.state.store.get(zone).is_some_and(|found| found.doc["type"] == kinds::PRIVATE_ZONE) {
            return Err(fault::invalid_reference(zone, draft.id));
        }
        let record = |name: &str| {
            json!({
                "recordType": "A", "recordSetName": name, "fqdn": format!("{name}.{}", path::name_of(zone)),
                "ttl": 10, "provisioningState": "Succeeded",
            })
        };
        let records = private_links::services(&endpoint).map(|service| record(path::name_of(service)));
        made.push(json!({
            "name": name,
            "properties": {"privateDnsZoneId": zone, "recordSets": records.collect::<Vec<_>>()},
        }));
    }
    Ok(json!({"properties": {"privateDnsZoneConfigs": made}}))
}

fn check_group(state: &State, group: &Value, _: Option<&Value>) -> Result<(), Fault> {
    let own = path::of(group);
    let endpoint = path::parent_of(own);
    let state_of_endpoint = state.store.get(endpoint).map_or("", |endpoint| endpoint.provisioning());
    if state_of_endpoint != "Succeeded" {
        return Err(fault::not_provisioned(endpoint, own, state_of_endpoint, "PutPrivateEndpointOperation"));
    }
    let mut others = state.store.of_kind(kinds::ZONE_GROUP).map(path::of);
    match others.find(|other| path::same(path::parent_of(other), endpoint) && !path::same(other, own)) {
        Some(other) => Err(fault::endpoint_has_zone_group(endpoint, other)),
        None => Ok(()),
    }
}
