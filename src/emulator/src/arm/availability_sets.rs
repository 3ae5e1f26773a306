//! Availability sets. Recorded: PUT answers 200 at once; a GET adds `virtualMachines`.

use serde_json::{Value, json};

use super::kinds::{self, SET};
use super::{lists, regions, tags, writes};
use crate::answer::{Answer, Context, Reply};
use crate::document::Document;
use crate::fault::{self, Fault};
use crate::path;
use crate::state::State;
use crate::store::Resource;

fn id_of(context: &Context<'_>) -> String {
    format!("{}/providers/{SET}/{}", context.request.group_id(), context.request.segment(1))
}

fn not_found(context: &Context<'_>) -> Fault {
    fault::resource_not_found(SET, context.request.segment(1), context.request.group())
}

/// Ids of the machines in a set, in order.
pub(crate) fn members(state: &State, set: &str) -> Vec<String> {
    state
        .store
        .of_kind(kinds::MACHINE)
        .filter(|vm| vm["properties"]["availabilitySet"]["id"].as_str().is_some_and(|id| path::same(id, set)))
        .filter_map(|vm| vm["id"].as_str().map(str::to_owned))
        .collect()
}

/// Fault and update domains of a set.
pub(crate) fn domains(state: &State, set: &str) -> (usize, usize) {
    let doc = state.store.document(set).unwrap_or_default();
    let number = |member: &str, default: u64| {
        usize::try_from(doc["properties"][member].as_u64().unwrap_or(default)).unwrap_or(1)
    };
    (number("platformFaultDomainCount", 2), number("platformUpdateDomainCount", 5))
}

fn with_members(state: &State, mut doc: Document) -> Document {
    let id = doc["id"].as_str().unwrap_or("").to_owned();
    doc["properties"]["virtualMachines"] =
        members(state, &id).into_iter().map(|vm| json!({ "id": vm })).collect::<Vec<_>>().into();
    doc
}

/// GET. Recorded.
pub(crate) fn get(context: &mut Context<'_>) -> Reply {
    context.require_group()?;
    let doc = context.state.store.shown(&id_of(context), context.now).ok_or_else(|| not_found(context))?;
    Ok(Answer::json(200, with_members(context.state, doc)))
}

/// Lists. Recorded.
pub(crate) fn list(context: &mut Context<'_>) -> Reply {
    lists::select(context, Some(SET), |doc| Some(with_members(context.state, doc.clone())))
}

/// PUT. Recorded: 200 also on create.
pub(crate) fn put(context: &mut Context<'_>) -> Reply {
    let group = context.require_group()?;
    let body = context.read("AvailabilitySet", "availabilitySet", false)?;
    let location = path::location(body["location"].as_str().unwrap_or(""));
    regions::check(&location, SET)?;
    let name = context.request.segment(1).to_owned();
    writes::check_name(SET, &name)?;
    let id = format!("{}/providers/{SET}/{name}", group["id"].as_str().unwrap_or(""));
    let doc = document(&id, &name, &location, &body);
    let now = context.now;
    match context.state.store.get(&id).map(|r| r.doc["location"].clone()) {
        Some(there) if there != location => {
            return Err(fault::location_conflict(
                &name,
                there.as_str().unwrap_or(""),
                context.request.group(),
                &location,
            ));
        }
        _ => context.state.store.insert(&id, Resource::new(doc.clone()), now),
    }
    Ok(Answer::json(200, doc))
}

/// The document of a set. Recorded members; the documented defaults are 2 fault and 5 update domains.
pub(crate) fn document(id: &str, name: &str, location: &str, body: &Value) -> Value {
    let count = |member: &str, default: u64| body["properties"][member].as_u64().unwrap_or(default);
    let mut doc = json!({
        "name": name,
        "id": id,
        "type": SET,
        "location": location,
    });
    if let Some(tags) = body.get("tags") {
        doc["tags"] = tags.clone();
    }
    doc["properties"] = json!({
        "platformUpdateDomainCount": count("platformUpdateDomainCount", 5),
        "platformFaultDomainCount": count("platformFaultDomainCount", 2),
    });
    let set = format!("/availabilitySets/{name}");
    let twin = id.strip_suffix(&set).map_or_else(String::new, |rest| format!("{rest}/virtualMachineScaleSets/{name}"));
    doc["properties"]["virtualMachineScaleSetMigrationInfo"] = json!({
        "defaultVirtualMachineScaleSetInfo": {
            "constrainedMaximumCapacity": true,
            "defaultVirtualMachineScaleSet": {"id": twin},
        },
    });
    doc["sku"] = json!({ "name": body["sku"]["name"].as_str().unwrap_or("Classic") });
    doc
}

/// PATCH: tags. Documented.
pub(crate) fn patch(context: &mut Context<'_>) -> Reply {
    context.require_group()?;
    let id = id_of(context);
    if !context.state.store.contains(&id) {
        return Err(not_found(context));
    }
    tags::patch(context, &id, "AvailabilitySet", "availabilitySet", |_| ())
}

/// DELETE. Documented: 200, 204 when absent, 409 while machines are in it.
pub(crate) fn delete(context: &mut Context<'_>) -> Reply {
    context.require_group()?;
    let id = id_of(context);
    if !context.state.store.contains(&id) {
        return Ok(Answer::empty(204));
    }
    if !members(context.state, &id).is_empty() {
        return Err(fault::not_allowed(format!(
            "Availability Set {} cannot be deleted. Before deleting an Availability Set please ensure that it does not contain any VM.",
            context.request.segment(1)
        )));
    }
    let now = context.now;
    context.state.store.remove(&id, now);
    Ok(Answer::empty(200))
}
