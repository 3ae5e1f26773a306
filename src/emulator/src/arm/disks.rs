//! Managed disks: PUT, PATCH, GET, DELETE, lists, and access grants.
//!
//! Recorded: every PUT and PATCH answers 202 with both operation headers, also on an unchanged disk;
//! the 202 body shows what was asked plus `provisioningState: Updating`; there is no etag; DELETE is
//! 202 with an empty body. Documented: a disk only grows; `managedBy` and `diskState` follow the
//! machine's operation, not this one. Unverified: the state that a GET shows while an operation runs
//! is the old document with `Updating` (`Deleting` for a delete).

use serde_json::{Value, json};

use super::disk_rules;
use super::{lists, regions};
use crate::answer::{Answer, Context, OperationHeaders, Reply, Start};
use crate::fault::{self, Fault};
use crate::hypervisor::DiskFacts;
use crate::latency::OperationKind;
use crate::operations::{Outcome, Style};
use crate::path;
use crate::state::{HypervisorStep, State};
use crate::store::Resource;

/// The resource type as Azure prints it.
pub(crate) const TYPE: &str = "Microsoft.Compute/disks";

const HEADERS: OperationHeaders = OperationHeaders { asynchronous: true, location: true, notification: false };

pub(crate) fn id_of(context: &Context<'_>) -> String {
    format!("{}/providers/{TYPE}/{}", context.request.group_id(), context.request.segment(1))
}

pub(crate) fn not_found(context: &Context<'_>) -> Fault {
    fault::resource_not_found(TYPE, context.request.segment(1), context.request.group())
}

pub(crate) fn collection(location: &str) -> String {
    format!("providers/Microsoft.Compute/locations/{location}/DiskOperations")
}

/// What the hypervisor must know of a disk.
pub(crate) fn facts(doc: &Value) -> DiskFacts {
    DiskFacts {
        id: doc["id"].as_str().unwrap_or("").to_owned(),
        unique_id: doc["properties"]["uniqueId"].as_str().unwrap_or("").to_owned(),
        size_bytes: doc["properties"]["diskSizeBytes"].as_u64().unwrap_or(0),
    }
}

/// How the hypervisor makes a disk: from another, or blank.
pub(crate) fn creation_step(doc: &Value) -> HypervisorStep {
    let disk = facts(doc);
    match doc["properties"]["creationData"]["sourceResourceId"].as_str() {
        Some(from) => HypervisorStep::Copy { from: from.to_owned(), disk },
        None => HypervisorStep::Create { disk },
    }
}

/// GET. Recorded.
pub(crate) fn get(context: &mut Context<'_>) -> Reply {
    context.require_group()?;
    let doc = context.state.store.shown(&id_of(context), context.now).ok_or_else(|| not_found(context))?;
    Ok(Answer::json(200, doc))
}

/// Lists in a group or a subscription. Recorded.
pub(crate) fn list(context: &mut Context<'_>) -> Reply {
    lists::answer(context, TYPE)
}

/// PUT. Recorded.
pub(crate) fn put(context: &mut Context<'_>) -> Reply {
    context.require_group()?;
    let body = context.read("Disk", "disk", false)?;
    let id = id_of(context);
    let location = path::location(body["location"].as_str().unwrap_or(""));
    regions::check(&location, TYPE)?;
    let name = context.request.segment(1).to_owned();
    disk_rules::check_name(&name)?;
    match context.state.store.get(&id).map(|r| (r.doc.clone(), r.busy.clone())) {
        None => create(context, &id, &name, &location, &body),
        Some((old, busy)) => {
            let there = old["location"].as_str().unwrap_or("").to_owned();
            if there != location {
                return Err(fault::location_conflict(&name, &there, context.request.group(), &location));
            }
            // Of a creation only: what asks for a disk as it was before a change, or that is being deleted,
            // asks for something else.
            let creating = busy
                .as_deref()
                .and_then(|busy| context.state.operations.get(busy))
                .is_some_and(|operation| operation.kind == OperationKind::DiskCreate);
            let repeated = creating && same_request(&old, &body);
            if repeated {
                return join(context, &old, busy.as_deref());
            }
            change(context, &old, &body, true)
        }
    }
}

/// PATCH. Recorded: 404 from the gateway for a missing disk.
pub(crate) fn patch(context: &mut Context<'_>) -> Reply {
    context.require_group()?;
    let id = id_of(context);
    let Some(old) = context.state.store.document(&id) else {
        return Err(not_found(context));
    };
    let body = context.read("Disk", "disk", true)?;
    change(context, &old, &body, false)
}

fn create(context: &mut Context<'_>, id: &str, name: &str, location: &str, body: &Value) -> Reply {
    let group = context.require_group()?;
    let own_id = format!("{}/providers/{TYPE}/{name}", group["id"].as_str().unwrap_or_default());
    let now = context.now;
    let created = context.shared.clock.stamp(now);
    let unique = crate::state::guid_of(&format!("{}/{}", path::key(id), context.state.guid()));
    let full = disk_rules::complete(context, &own_id, name, location, body, &created, &unique)?;
    super::quotas::check_disk(context, &full, None)?;
    let mut waiting = full.clone();
    waiting["properties"]["provisioningState"] = json!("Updating");
    let mut resource = Resource::new(waiting);
    resource.busy = Some(String::new());
    context.state.store.insert(&own_id, resource, now);
    let shown = accepted(&own_id, name, location, body, None);
    let effect_id = own_id.clone();
    let undo_id = own_id.clone();
    let started = context.start(Start {
        style: Style::Compute,
        kind: OperationKind::DiskCreate,
        resource: &own_id,
        collection: collection(location),
        retry_after: context.shared.options.unverified.disk_retry_after,
        steps: vec![creation_step(&full)],
        effect: Box::new(move |state, at| finish(state, &effect_id, at, full)),
        undo: Some(Box::new(move |state, at, _| {
            // Unverified: a disk whose creation fails late is gone.
            state.store.remove(&undo_id, at);
        })),
        together_with: None,
    });
    set_busy(context.state, &own_id, &started.id, now);
    super::record(context, OperationKind::DiskCreate, &own_id, started.latency, Vec::new());
    Ok(Answer::json(202, shown).started(started, HEADERS))
}

/// A PUT of what is being made already: a new operation that ends with the first (documented: a
/// repeated PUT is a new 202).
fn join(context: &mut Context<'_>, old: &Value, busy: Option<&str>) -> Reply {
    let id = old["id"].as_str().unwrap_or("").to_owned();
    let location = old["location"].as_str().unwrap_or("").to_owned();
    let effect_id = id.clone();
    let started = context.start(Start {
        style: Style::Compute,
        kind: OperationKind::DiskCreate,
        resource: &id,
        collection: collection(&location),
        retry_after: context.shared.options.unverified.disk_retry_after,
        steps: Vec::new(),
        effect: Box::new(move |state, _| match state.store.document(&effect_id) {
            Some(doc) => Ok(Outcome { output: Some(doc.clone()), result: Some(doc) }),
            // The creation that it joined has failed.
            None => Err(fault::disk_not_found(path::name_of(&effect_id))),
        }),
        undo: None,
        together_with: busy,
    });
    let mut shown = old.clone();
    shown["properties"]["provisioningState"] = json!("Updating");
    Ok(Answer::json(202, shown).started(started, HEADERS))
}

fn same_request(old: &Value, body: &Value) -> bool {
    let asked = &body["properties"];
    let same = |a: &Value, b: &Value| match (a.as_str(), b.as_str()) {
        (Some(a), Some(b)) => path::same(a, b),
        _ => a == b,
    };
    // Member by member: the service has added some of its own, such as `sourceUniqueId`.
    let data = asked["creationData"].as_object();
    let same_source = data
        .is_none_or(|data| data.iter().all(|(member, value)| same(value, &old["properties"]["creationData"][member])));
    ["diskSizeGB", "maxShares", "diskIOPSReadWrite", "diskMBpsReadWrite"]
        .iter()
        .all(|member| asked.get(member).is_none_or(|value| *value == old["properties"][member]))
        && same_source
        && body.get("sku").is_none_or(|sku| sku["name"] == old["sku"]["name"])
        && body.get("tags").is_none_or(|tags| *tags == old["tags"])
}

fn change(context: &mut Context<'_>, old: &Value, body: &Value, replace: bool) -> Reply {
    let id = old["id"].as_str().unwrap_or("").to_owned();
    let name = old["name"].as_str().unwrap_or("").to_owned();
    let location = old["location"].as_str().unwrap_or("").to_owned();
    let now = context.now;
    super::refuse_if_dropped(context, old)?;
    super::refuse_if_busy(context, &id)?;
    let new = disk_rules::changed(context, old, body, replace)?;
    super::quotas::check_disk(context, &new, Some(old))?;
    let grown = new["properties"]["diskSizeBytes"] != old["properties"]["diskSizeBytes"];
    let mut shown = accepted(&id, &name, &location, &merged(&new, body), Some(old));
    if grown {
        shown["properties"]["diskSizeBytes"] = new["properties"]["diskSizeBytes"].clone();
    }
    let steps = if grown { vec![HypervisorStep::Resize { disk: facts(&new) }] } else { Vec::new() };
    context.state.store.change(&id, now, |resource| {
        resource.set_provisioning("Updating");
        resource.next = Some(new.clone());
    });
    let (effect_id, undo_id) = (id.clone(), id.clone());
    let started = context.start(Start {
        style: Style::Compute,
        kind: OperationKind::DiskUpdate,
        resource: &id,
        collection: collection(&location),
        retry_after: context.shared.options.unverified.disk_retry_after,
        steps,
        effect: Box::new(move |state, at| finish(state, &effect_id, at, new)),
        undo: Some(Box::new(move |state, at, _| {
            state.store.change(&undo_id, at, |resource| {
                resource.busy = None;
                resource.next = None;
                resource.set_provisioning("Succeeded");
            });
        })),
        together_with: None,
    });
    set_busy(context.state, &id, &started.id, now);
    super::record(context, OperationKind::DiskUpdate, &id, started.latency, Vec::new());
    Ok(Answer::json(202, shown).started(started, HEADERS))
}

/// The body of the 202: what was asked, in the service's order. Recorded.
fn accepted(id: &str, name: &str, location: &str, asked: &Value, old: Option<&Value>) -> Value {
    let mut doc = json!({
        "name": name,
        "id": id,
        "type": TYPE,
        "location": location,
    });
    for member in ["tags", "zones", "extendedLocation"] {
        if let Some(value) = asked.get(member) {
            doc[member] = value.clone();
        }
    }
    if let Some(sku) = old.map(|o| &o["sku"]).filter(|sku| !sku.is_null()) {
        doc["sku"] = sku.clone();
    }
    if let Some(sku) = asked.get("sku") {
        doc["sku"] = sku.clone();
    }
    doc["properties"] = asked.get("properties").cloned().unwrap_or(json!({}));
    doc["properties"]["provisioningState"] = json!("Updating");
    if let Some(old) = old {
        doc["properties"]["diskSizeBytes"] = old["properties"]["diskSizeBytes"].clone();
    }
    doc
}

/// The members that the caller sent, completed with what identifies the disk.
fn merged(new: &Value, body: &Value) -> Value {
    let mut shown = body.clone();
    shown["sku"] = new["sku"].clone();
    for member in ["creationData", "diskSizeGB"] {
        if let Some(value) = new["properties"].get(member) {
            shown["properties"][member] = value.clone();
        }
    }
    for member in ["tags", "zones"] {
        if let Some(value) = new.get(member) {
            shown[member] = value.clone();
        }
    }
    shown
}

/// Puts the new document in place, keeping what the machine's operations own.
pub(crate) fn finish(state: &mut State, id: &str, at: std::time::Duration, mut new: Value) -> Result<Outcome, Fault> {
    let done = state.store.change(id, at, |resource| {
        let old = &resource.doc;
        for member in ["managedBy", "managedByExtended"] {
            match old.get(member) {
                Some(value) => new[member] = value.clone(),
                None => {
                    if let Some(object) = new.as_object_mut() {
                        object.shift_remove(member);
                    }
                }
            }
        }
        for member in ["diskState", "shareInfo", "LastOwnershipUpdateTime"] {
            if let Some(value) = old["properties"].get(member) {
                new["properties"][member] = value.clone();
            }
        }
        new["properties"]["provisioningState"] = json!("Succeeded");
        resource.doc = new;
        resource.busy = None;
        resource.next = None;
        resource.doc.clone()
    });
    match done {
        Some(doc) => Ok(Outcome { output: Some(doc.clone()), result: Some(doc) }),
        None => Err(fault::disk_not_found(path::name_of(id))),
    }
}

/// DELETE. Recorded: 202 and an operation without output. Documented: 204 for a missing disk, 409
/// while attached; a disk whose attach is in flight is still `Unattached` and can be deleted
/// (kubernetes#82714).
pub(crate) fn delete(context: &mut Context<'_>) -> Reply {
    context.require_group()?;
    let id = id_of(context);
    let now = context.now;
    let Some(resource) = context.state.store.get(&id) else {
        return Ok(Answer::empty(204));
    };
    let doc = resource.doc.clone();
    let own_id = resource.id().to_owned();
    let name = resource.name().to_owned();
    if let Some(vm) = owners(&doc).first() {
        return Err(fault::disk_is_attached(&name, vm));
    }
    if doc["properties"]["diskState"] == "ActiveSAS" {
        return Err(Fault::new(
            409,
            "Conflict",
            format!(
                "Disk {name} cannot be deleted because there is an active shared access signature outstanding for it. Call EndGetAccess before deleting the disk."
            ),
        ));
    }
    super::refuse_if_busy(context, &id)?;
    let location = doc["location"].as_str().unwrap_or("").to_owned();
    context.state.store.change(&id, now, |resource| {
        resource.set_provisioning("Deleting");
    });
    let (effect_id, undo_id) = (own_id.clone(), own_id.clone());
    let started = context.start(Start {
        style: Style::Compute,
        kind: OperationKind::DiskDelete,
        resource: &own_id,
        collection: collection(&location),
        retry_after: context.shared.options.unverified.disk_retry_after,
        steps: vec![HypervisorStep::Delete { disk: facts(&doc) }],
        effect: Box::new(move |state, at| {
            // Attached while the delete ran: the machine keeps its disk.
            if let Some(vm) = state.store.disk(&effect_id).as_ref().and_then(|d| owners(d).first().cloned()) {
                return Err(fault::disk_is_attached(path::name_of(&effect_id), &vm));
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
    set_busy(context.state, &own_id, &started.id, now);
    super::record(context, OperationKind::DiskDelete, &own_id, started.latency, Vec::new());
    Ok(Answer::empty(202).started(started, HEADERS))
}

/// The machines that hold a disk.
pub(crate) fn owners(doc: &Value) -> Vec<String> {
    let mut owners: Vec<String> = doc["managedByExtended"]
        .as_array()
        .map(|ids| ids.iter().filter_map(|id| id.as_str().map(str::to_owned)).collect())
        .unwrap_or_default();
    if let Some(id) = doc["managedBy"].as_str()
        && !owners.iter().any(|owner| path::same(owner, id))
    {
        owners.insert(0, id.to_owned());
    }
    owners
}

fn set_busy(state: &mut State, id: &str, operation: &str, now: std::time::Duration) {
    state.store.change(id, now, |resource| {
        resource.busy = Some(operation.to_owned());
    });
}

/// `beginGetAccess` and `endGetAccess`. Documented: final state via `Location`, the URL also in
/// `properties.output`. Unverified: the form of the URL, which nothing here serves.
pub(crate) fn access(context: &mut Context<'_>) -> Reply {
    context.require_group()?;
    let begin = context.request.segment(2).eq_ignore_ascii_case("beginGetAccess");
    let id = id_of(context);
    let Some(doc) = context.state.store.document(&id) else {
        return Err(not_found(context));
    };
    let name = doc["name"].as_str().unwrap_or("").to_owned();
    let own_id = doc["id"].as_str().unwrap_or("").to_owned();
    let location = doc["location"].as_str().unwrap_or("").to_owned();
    if begin {
        let body = context.read("GrantAccessData", "grantAccess", false)?;
        let running =
            owners(&doc).into_iter().find(|vm| context.state.store.power(vm) == Some(crate::store::Power::Running));
        if let Some(vm) = running {
            return Err(Fault::new(
                409,
                "Conflict",
                format!("Access not permitted because disk {name} is currently attached to running VM {vm}."),
            ));
        }
        let seconds = body["durationInSeconds"].as_i64().unwrap_or(0);
        if seconds <= 0 {
            return Err(fault::out_of_range("grantAccess.durationInSeconds", &seconds.to_string(), "1", "4294967295"));
        }
    }
    super::refuse_if_busy(context, &id)?;
    let sas =
        begin.then(|| format!("{}/md-{}/abcd?sv=2018-03-28&sr=b&sig=emulator", context.request.base, path::key(&name)));
    let effect_id = own_id.clone();
    let undo_id = own_id.clone();
    let started = context.start(Start {
        style: Style::Compute,
        kind: OperationKind::DiskGrantAccess,
        resource: &own_id,
        collection: collection(&location),
        retry_after: context.shared.options.unverified.disk_retry_after,
        steps: Vec::new(),
        effect: Box::new(move |state, at| {
            state.store.change(&effect_id, at, |resource| {
                resource.busy = None;
                let idle = if owners(&resource.doc).is_empty() { "Unattached" } else { "Reserved" };
                resource.doc["properties"]["diskState"] = json!(if begin { "ActiveSAS" } else { idle });
            });
            let body = sas.map(|sas| json!({ "accessSAS": sas }));
            Ok(Outcome { output: body.clone(), result: body })
        }),
        undo: Some(Box::new(move |state, at, _| {
            state.store.change(&undo_id, at, |resource| resource.busy = None);
        })),
        together_with: None,
    });
    set_busy(context.state, &own_id, &started.id, context.now);
    Ok(Answer::empty(202).started(started, HEADERS))
}
