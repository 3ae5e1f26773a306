//! Virtual networks, subnets and network interfaces ([`interfaces`]), as far as machines need them.
//!
//! Recorded: PUT of a network answers 201 with the asynchronous header and `Updating`; an unchanged
//! network answers 201 again with `Succeeded`; a network interface's PUT is synchronous; deletes answer
//! 202 with both headers; etags are weak GUIDs on the resource and on every child, and change with
//! each write; the `ETag` header comes on GET only. The first address of a subnet that is given out
//! ends in 4 (recorded).

pub(crate) mod interfaces;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::kinds::{NETWORK, NIC, SUBNET};
use super::{lists, regions, tags, writes};
use crate::answer::{Answer, Context, OperationHeaders, Reply, Start};
use crate::cidr;
use crate::document::Document;
use crate::fault::{self, Fault};
use crate::latency::OperationKind;
use crate::operations::{Outcome, Style};
use crate::path;
use crate::state::State;
use crate::store::Resource;

/// Seconds told to pollers: unverified for these types.
const RETRY_AFTER: u64 = 10;

const ASYNC: OperationHeaders = OperationHeaders { asynchronous: true, location: false, notification: true };
const BOTH: OperationHeaders = OperationHeaders { asynchronous: true, location: true, notification: true };

fn collection(location: &str) -> String {
    format!("providers/Microsoft.Network/locations/{location}/operations")
}

fn id_of(context: &Context<'_>, kind: &str) -> String {
    format!("{}/providers/{kind}/{}", context.request.group_id(), context.request.segment(1))
}

fn not_found(context: &Context<'_>, kind: &str) -> Fault {
    fault::resource_not_found(kind, context.request.segment(1), context.request.group())
}

fn weak(guid: &str) -> String {
    format!("W/\"{guid}\"")
}

fn preconditions(context: &Context<'_>, doc: Option<&Value>) -> Result<(), Fault> {
    let Some(wanted) = context.request.header("if-match") else {
        return Ok(());
    };
    let have = doc.map_or("", |doc| doc["etag"].as_str().unwrap_or(""));
    let id = doc.map_or("", |doc| doc["id"].as_str().unwrap_or(""));
    if wanted.trim() == "*" && doc.is_some() || wanted.trim() == have {
        Ok(())
    } else {
        Err(fault::network_etag_mismatch(wanted.trim(), have, id))
    }
}

fn shown(context: &Context<'_>, kind: &str) -> Reply {
    context.require_group()?;
    let doc = context.state.store.shown(&id_of(context, kind), context.now).ok_or_else(|| not_found(context, kind))?;
    check_expansion(context, kind)?;
    let tag = doc["etag"].as_str().unwrap_or("").to_owned();
    Ok(Answer::json(200, doc).with("etag", tag))
}

/// Documented: `$expand` names a property that leads to other resources; an empty one names none. What it leads
/// to is not shown here in full.
fn check_expansion(context: &Context<'_>, kind: &str) -> Result<(), Fault> {
    let Some(asked) = context.request.query.get("$expand") else {
        return Ok(());
    };
    let known: &[&str] = match kind {
        NETWORK => &["subnets", "virtualNetworkPeerings", "ipAllocations", "flowLogs"],
        _ => &["ipConfigurations", "networkSecurityGroup", "virtualMachine", "privateEndpoint", "tapConfigurations"],
    };
    for path in asked.split(',') {
        let property = path.trim().split('/').next().unwrap_or("");
        if !known.iter().any(|known| known.eq_ignore_ascii_case(property)) {
            return Err(fault::invalid_expansion(property));
        }
    }
    Ok(())
}

/// GET. Recorded.
pub(crate) fn get_network(context: &mut Context<'_>) -> Reply {
    shown(context, NETWORK)
}

/// Lists. Recorded.
pub(crate) fn list_networks(context: &mut Context<'_>) -> Reply {
    lists::answer(context, NETWORK)
}

/// A subnet's document. Recorded members.
fn subnet(network: &str, asked: &Value, tag: &str, state: &str) -> Result<Value, Fault> {
    let name = asked["name"].as_str().ok_or_else(|| missing("subnets.name"))?;
    let mut properties = json!({ "provisioningState": state });
    for (member, value) in writes::object(&asked["properties"]) {
        properties[member] = value;
    }
    for (member, value) in [
        ("delegations", json!([])),
        ("privateEndpointNetworkPolicies", json!("Disabled")),
        ("privateLinkServiceNetworkPolicies", json!("Enabled")),
    ] {
        if properties.get(member).is_none() {
            properties[member] = value;
        }
    }
    properties["provisioningState"] = json!(state);
    Ok(json!({
        "name": name,
        "id": format!("{network}/subnets/{name}"),
        "etag": tag,
        "properties": properties,
        "type": SUBNET,
    }))
}

/// Unverified text; the code is the provider's for a body that lacks something.
fn missing(what: &str) -> Fault {
    let mut fault = Fault::new(400, "InvalidRequestFormat", "Cannot parse the request.");
    fault.details = vec![json!({
        "code": "MissingJsonReferenceId",
        "message": format!("Value for {what} is missing."),
    })];
    fault
}

/// A network's document from what was asked. Recorded members.
pub(crate) fn network_document(
    id: &str,
    name: &str,
    location: &str,
    body: &Value,
    guids: (&str, &str),
    state: &str,
) -> Result<Value, Fault> {
    let (tag, resource_guid) = (weak(guids.0), guids.1);
    let asked = &body["properties"];
    if asked["addressSpace"]["addressPrefixes"].as_array().is_none_or(Vec::is_empty) {
        return Err(missing("addressSpace.addressPrefixes"));
    }
    let mut subnets = Vec::new();
    for item in asked["subnets"].as_array().into_iter().flatten() {
        subnets.push(subnet(id, item, &tag, state)?);
    }
    let mut doc = json!({
        "name": name,
        "id": id,
        "etag": tag,
        "type": NETWORK,
        "location": location,
    });
    if let Some(tags) = body.get("tags") {
        doc["tags"] = tags.clone();
    }
    let mut properties = json!({
        "provisioningState": state,
        "resourceGuid": resource_guid,
        "addressSpace": asked["addressSpace"],
        "privateEndpointVNetPolicies": "Disabled",
        "subnets": subnets,
        "virtualNetworkPeerings": [],
        "enableDdosProtection": false,
    });
    for (member, value) in writes::object(asked) {
        if properties.get(&member).is_none() || member == "enableDdosProtection" {
            properties[member] = value;
        }
    }
    doc["properties"] = properties;
    Ok(doc)
}

/// PUT of a network. Recorded.
pub(crate) fn put_network(context: &mut Context<'_>) -> Reply {
    let group = context.require_group()?;
    let body = context.read("NVirtualNetwork", "virtualNetwork", false)?;
    let location = path::location(body["location"].as_str().unwrap_or(""));
    regions::check(&location, NETWORK)?;
    let name = context.request.segment(1).to_owned();
    writes::check_name(NETWORK, &name)?;
    let id = format!("{}/providers/{NETWORK}/{name}", group["id"].as_str().unwrap_or(""));
    let old = context.state.store.document(&id);
    preconditions(context, old.as_deref())?;
    if let Some(old) = &old {
        not_going(context, old)?;
    }
    if let Some(old) = &old
        && old["location"] != location
    {
        return Err(fault::location_conflict(
            &name,
            old["location"].as_str().unwrap_or(""),
            context.request.group(),
            &location,
        ));
    }
    let guid = context.state.guid();
    let resource_guid = match &old {
        Some(old) => old["properties"]["resourceGuid"].as_str().unwrap_or("").to_owned(),
        None => context.state.guid(),
    };
    let doc = network_document(&id, &name, &location, &body, (&guid, &resource_guid), "Updating")?;
    for subnet in doc["properties"]["subnets"].as_array().into_iter().flatten() {
        references(context.state, &subnet["properties"], subnet["id"].as_str().unwrap_or(&id))?;
    }
    if let Some(old) = &old {
        for gone in old["properties"]["subnets"].as_array().into_iter().flatten() {
            let kept = doc["properties"]["subnets"].as_array().into_iter().flatten().any(|s| s["name"] == gone["name"]);
            if !kept {
                subnet_free(context.state, gone["id"].as_str().unwrap_or(""))?;
            }
        }
    }
    check_subnets(&doc)?;
    let unchanged = old.as_ref().is_some_and(|old| same_network(old, &doc));
    let mut answer_doc = doc.clone();
    if unchanged {
        state_of(&mut answer_doc, "Succeeded");
    }
    let now = context.now;
    context.state.store.insert(&id, Resource::new(answer_doc.clone()), now);
    let started = settle_network(context, &id, &location);
    let created = old.is_none() || context.shared.options.unverified.network_update_answers_created;
    Ok(Answer::json(if created { 201 } else { 200 }, answer_doc).started(started, ASYNC))
}

fn same_network(old: &Value, new: &Value) -> bool {
    let bare = |doc: &Value| {
        let subnets: Vec<(Value, Value)> = doc["properties"]["subnets"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|s| (s["name"].clone(), s["properties"]["addressPrefix"].clone()))
            .collect();
        (doc["tags"].clone(), doc["properties"]["addressSpace"].clone(), subnets)
    };
    bare(old) == bare(new)
}

/// Sets the provisioning state of a network and its subnets.
fn state_of(doc: &mut Value, state: &str) {
    doc["properties"]["provisioningState"] = json!(state);
    if let Some(subnets) = doc.pointer_mut("/properties/subnets").and_then(Value::as_array_mut) {
        for subnet in subnets {
            subnet["properties"]["provisioningState"] = json!(state);
        }
    }
}

fn settle_network(context: &mut Context<'_>, id: &str, location: &str) -> crate::answer::Started {
    let effect_id = id.to_owned();
    context.start(Start {
        style: Style::Network,
        kind: OperationKind::Network,
        resource: id,
        collection: collection(location),
        retry_after: RETRY_AFTER,
        steps: Vec::new(),
        effect: Box::new(move |state, at| {
            let tag = weak(&state.guid());
            state.store.change(&effect_id, at, |resource| {
                if resource.provisioning() != "Succeeded" {
                    retag(&mut resource.doc, &tag);
                }
                state_of(&mut resource.doc, "Succeeded");
            });
            Ok(Outcome::default())
        }),
        undo: None,
        together_with: None,
    })
}

fn retag(doc: &mut Value, tag: &str) {
    doc["etag"] = json!(tag);
    for list in ["subnets", "ipConfigurations"] {
        if let Some(children) = doc["properties"].get_mut(list).and_then(Value::as_array_mut) {
            for child in children {
                child["etag"] = json!(tag);
            }
        }
    }
}

/// PATCH of networks and network interfaces: tags, synchronous 200. Documented.
pub(crate) fn patch_tags(context: &mut Context<'_>) -> Reply {
    context.require_group()?;
    let kind = if context.request.segment(0).eq_ignore_ascii_case("virtualNetworks") { NETWORK } else { NIC };
    let id = id_of(context, kind);
    let Some(old) = context.state.store.document(&id) else {
        return Err(not_found(context, kind));
    };
    preconditions(context, Some(&old))?;
    not_going(context, &old)?;
    let tag = weak(&context.state.guid());
    tags::patch(context, &id, "TagsObject", "parameters", |resource| retag(&mut resource.doc, &tag))
}

/// DELETE of a network. Recorded 202; documented 204 when absent, 400 while a subnet is in use.
pub(crate) fn delete_network(context: &mut Context<'_>) -> Reply {
    context.require_group()?;
    let id = id_of(context, NETWORK);
    let Some(doc) = context.state.store.document(&id) else {
        return Ok(Answer::empty(204));
    };
    preconditions(context, Some(&doc))?;
    unused(context.state, &doc)?;
    delete_later(context, &doc)
}

fn delete_later(context: &mut Context<'_>, doc: &Value) -> Reply {
    let id = doc["id"].as_str().unwrap_or("").to_owned();
    let location = doc["location"].as_str().unwrap_or("").to_owned();
    let now = context.now;
    context.state.store.change(&id, now, |resource| resource.set_provisioning("Deleting"));
    let (effect_id, undo_id) = (id.clone(), id.clone());
    let started = context.start(Start {
        style: Style::Network,
        kind: OperationKind::Network,
        resource: &id,
        collection: collection(&location),
        retry_after: RETRY_AFTER,
        steps: Vec::new(),
        effect: Box::new(move |state, at| {
            // Somebody may have come to use it meanwhile.
            if let Some(doc) = state.store.document(&effect_id) {
                unused(state, &doc)?;
            }
            state.store.remove(&effect_id, at);
            Ok(Outcome::default())
        }),
        undo: Some(Box::new(move |state, at, _| {
            state.store.change(&undo_id, at, |resource| {
                resource.busy = None;
                resource.set_provisioning("Succeeded");
            });
        })),
        together_with: None,
    });
    context.state.store.change(&id, now, |resource| resource.busy = Some(started.id.clone()));
    Ok(Answer::empty(202).started(started, BOTH))
}

/// Refuses while something uses a network or a network interface. Documented.
fn unused(state: &State, doc: &Value) -> Result<(), Fault> {
    if let Some(vm) = doc["properties"]["virtualMachine"]["id"].as_str() {
        return Err(fault::nic_in_use(doc["id"].as_str().unwrap_or(""), vm));
    }
    for subnet in doc["properties"]["subnets"].as_array().into_iter().flatten() {
        subnet_free(state, subnet["id"].as_str().unwrap_or(""))?;
    }
    Ok(())
}

/// Refuses a write of what is being deleted. Documented.
fn not_going(context: &Context<'_>, doc: &Value) -> Result<(), Fault> {
    if doc["properties"]["provisioningState"] != "Deleting" {
        return Ok(());
    }
    let busy = context.state.store.get(doc["id"].as_str().unwrap_or("")).and_then(|resource| resource.busy.clone());
    let request = context.request;
    Err(fault::another_operation(&format!(
        "{}{}/{}/{}?api-version={}",
        request.base,
        request.subscription_id(),
        collection(doc["location"].as_str().unwrap_or("")),
        busy.unwrap_or_default(),
        request.api_version
    )))
}

fn prefixes(subnet: &Value) -> impl Iterator<Item = (u32, u32)> {
    let properties = &subnet["properties"];
    let many = properties["addressPrefixes"].as_array().into_iter().flatten();
    many.chain(std::iter::once(&properties["addressPrefix"])).filter_map(Value::as_str).filter_map(cidr::range)
}

/// Whether the subnets of a network lie in it, and apart. Documented.
fn check_subnets(network: &Value) -> Result<(), Fault> {
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

fn nics(state: &State) -> impl Iterator<Item = &Value> {
    state.store.of_kind(NIC)
}

fn configurations(nic: &Value) -> impl Iterator<Item = &Value> {
    nic["properties"]["ipConfigurations"].as_array().into_iter().flatten()
}

fn subnet_free(state: &State, subnet: &str) -> Result<(), Fault> {
    for nic in nics(state) {
        for configuration in configurations(nic) {
            if configuration["properties"]["subnet"]["id"].as_str().is_some_and(|id| path::same(id, subnet)) {
                return Err(fault::subnet_in_use(path::name_of(subnet), configuration["id"].as_str().unwrap_or("")));
            }
        }
    }
    Ok(())
}

/// Ids of the network interfaces in a network.
pub(crate) fn users(state: &State, network: &Value) -> Vec<String> {
    let inside = format!("{}/subnets/", path::key(network["id"].as_str().unwrap_or("")));
    let in_it = |nic: &&Value| {
        configurations(nic)
            .any(|c| c["properties"]["subnet"]["id"].as_str().is_some_and(|id| path::key(id).starts_with(&inside)))
    };
    nics(state).filter(in_it).filter_map(|nic| nic["id"].as_str().map(str::to_owned)).collect()
}

fn subnet_of(context: &Context<'_>) -> Result<(Document, Option<Value>), Fault> {
    context.require_group()?;
    let Some(network) = context.state.store.shown(&id_of(context, NETWORK), context.now) else {
        return Err(not_found(context, NETWORK));
    };
    let wanted = context.request.segment(3);
    let found = network["properties"]["subnets"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|s| s["name"].as_str().is_some_and(|name| name.eq_ignore_ascii_case(wanted)))
        .cloned();
    Ok((network, found))
}

/// GET of a subnet. Recorded 404 of the provider.
pub(crate) fn get_subnet(context: &mut Context<'_>) -> Reply {
    let (network, found) = subnet_of(context)?;
    match found {
        Some(doc) => {
            let tag = doc["etag"].as_str().unwrap_or("").to_owned();
            Ok(Answer::json(200, doc).with("etag", tag))
        }
        None => Err(fault::network_child_not_found(&format!(
            "{}/subnets/{}",
            network["id"].as_str().unwrap_or(""),
            context.request.segment(3)
        ))),
    }
}

/// List of subnets.
pub(crate) fn list_subnets(context: &mut Context<'_>) -> Reply {
    let (network, _) = subnet_of(context)?;
    let found = network["properties"]["subnets"].as_array().into_iter().flatten();
    lists::of_documents(context, found.cloned().map(Document::from).collect())
}

/// PUT of a subnet. Documented.
pub(crate) fn put_subnet(context: &mut Context<'_>) -> Reply {
    let (network, found) = subnet_of(context)?;
    preconditions(context, found.as_ref())?;
    not_going(context, &network)?;
    let mut body = context.read("NSubnetResource", "subnet", false)?;
    writes::check_name(SUBNET, context.request.segment(3))?;
    body["name"] = found.as_ref().map_or_else(|| json!(context.request.segment(3)), |found| found["name"].clone());
    let tag = weak(&context.state.guid());
    let id = network["id"].as_str().unwrap_or("").to_owned();
    let location = network["location"].as_str().unwrap_or("").to_owned();
    let doc = subnet(&id, &body, &tag, "Updating")?;
    references(context.state, &doc["properties"], doc["id"].as_str().unwrap_or(&id))?;
    let mut whole = network;
    if let Some(subnets) = whole.pointer_mut("/properties/subnets").and_then(Value::as_array_mut) {
        subnets.retain(|subnet| subnet["name"] != doc["name"]);
        subnets.push(doc.clone());
    }
    check_subnets(&whole)?;
    let now = context.now;
    let fresh = found.is_none();
    let new = doc.clone();
    context.state.store.change(&id, now, |resource| {
        resource.doc["etag"] = json!(tag);
        resource.set_provisioning("Updating");
        if let Some(subnets) = resource.doc.pointer_mut("/properties/subnets").and_then(Value::as_array_mut) {
            subnets.retain(|s| s["name"] != new["name"]);
            subnets.push(new);
        }
    });
    let started = settle_network(context, &id, &location);
    Ok(Answer::json(if fresh { 201 } else { 200 }, doc).started(started, ASYNC))
}

/// DELETE of a subnet. Documented.
pub(crate) fn delete_subnet(context: &mut Context<'_>) -> Reply {
    let (network, found) = subnet_of(context)?;
    let Some(found) = found else {
        return Ok(Answer::empty(204));
    };
    subnet_free(context.state, found["id"].as_str().unwrap_or(""))?;
    let id = network["id"].as_str().unwrap_or("").to_owned();
    let location = network["location"].as_str().unwrap_or("").to_owned();
    let name = found["name"].clone();
    let now = context.now;
    context.state.store.change(&id, now, |resource| {
        if let Some(subnets) = resource.doc.pointer_mut("/properties/subnets").and_then(Value::as_array_mut) {
            subnets.retain(|s| s["name"] != name);
        }
    });
    let started = settle_network(context, &id, &location);
    Ok(Answer::empty(202).started(started, BOTH))
}

/// What a document names must exist (documented), also where the type is not emulated: then nothing of it
/// does. `by` is the resource that names it.
fn references(state: &State, properties: &Value, by: &str) -> Result<(), Fault> {
    const ONE: [&str; 4] = ["networkSecurityGroup", "routeTable", "publicIPAddress", "natGateway"];
    const MANY: [&str; 3] =
        ["loadBalancerBackendAddressPools", "loadBalancerInboundNatRules", "applicationSecurityGroups"];
    let one = ONE.iter().map(|member| &properties[member]);
    let many = MANY.iter().flat_map(|member| properties[member].as_array().into_iter().flatten());
    let missing = one.chain(many).filter_map(|named| named["id"].as_str()).find(|id| !state.store.contains(id));
    missing.map_or(Ok(()), |id| Err(fault::invalid_reference(id, by)))
}
