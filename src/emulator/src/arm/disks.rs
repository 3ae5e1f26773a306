//! Managed disks: PUT, PATCH, GET, DELETE, and lists.
//!
//! Recorded: every PUT and PATCH answers 202 with both operation headers, also on an unchanged disk;
//! the 202 body shows what was asked plus `provisioningState: Updating`; there is no etag; DELETE is
//! 202 with an empty body. Documented: a disk only grows; `managedBy` and `diskState` follow the
//! machine's operation, not this one. Unverified: the state that a GET shows while an operation runs
//! is the old document with `Updating` (`Deleting` for a delete).

use serde_json::{Value, json};

use super::{disk_access, disk_rules, lists, regions};
use crate::answer::{Answer, Context, OperationHeaders, Reply, Start, Started};
use crate::fault::{self, Fault};
use crate::hypervisor::DiskFacts;
use crate::latency::OperationKind;
use crate::operations::{Effect, Outcome, Style, Undo};
use crate::path;
use crate::state::{HypervisorStep, State};
use crate::store::Resource;

/// The resource type as Azure prints it.
pub(crate) const TYPE: &str = "Microsoft.Compute/disks";

pub(crate) const HEADERS: OperationHeaders =
    OperationHeaders { asynchronous: true, location: true, notification: false };

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

/// Which disk an operation is about.
pub(crate) struct Named {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) location: String,
}

impl Named {
    pub(crate) fn of(doc: &Value) -> Self {
        let text = |member: &str| doc[member].as_str().unwrap_or("").to_owned();
        Self { id: text("id"), name: text("name"), location: text("location") }
    }
}

/// What an operation on a disk does.
pub(crate) struct Work {
    pub(crate) kind: OperationKind,
    pub(crate) steps: Vec<HypervisorStep>,
    pub(crate) effect: Effect,
    pub(crate) undo: Undo,
}

/// Accepts an operation and makes the disk busy with it.
pub(crate) fn accept(context: &mut Context<'_>, disk: &Named, work: Work) -> Started {
    let started = start(context, disk, work.kind, work.steps, work.effect, Some(work.undo), None);
    context.state.store.change(&disk.id, context.now, |resource| {
        resource.busy = Some(started.id.clone());
    });
    super::record(context, work.kind, &disk.id, started.latency, Vec::new());
    started
}

fn start(
    context: &mut Context<'_>,
    disk: &Named,
    kind: OperationKind,
    steps: Vec<HypervisorStep>,
    effect: Effect,
    undo: Option<Undo>,
    together_with: Option<&str>,
) -> Started {
    context.start(Start {
        style: Style::Compute,
        kind,
        resource: &disk.id,
        collection: collection(&disk.location),
        retry_after: context.shared.options.unverified.disk_retry_after,
        steps,
        effect,
        undo,
        together_with,
    })
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
    let disk = Named::of(&full);
    let (effect_id, undo_id) = (own_id.clone(), own_id);
    let work = Work {
        kind: OperationKind::DiskCreate,
        steps: vec![creation_step(&full)],
        effect: Box::new(move |state, at| finish(state, &effect_id, at, full)),
        undo: Box::new(move |state, at, _| {
            // Unverified: a disk whose creation fails late is gone.
            state.store.remove(&undo_id, at);
        }),
    };
    let started = accept(context, &disk, work);
    Ok(Answer::json(202, shown).started(started, HEADERS))
}

/// A PUT of what is being made already: a new operation that ends with the first (documented: a
/// repeated PUT is a new 202).
fn join(context: &mut Context<'_>, old: &Value, busy: Option<&str>) -> Reply {
    let disk = Named::of(old);
    let effect_id = disk.id.clone();
    let effect: Effect = Box::new(move |state, _| match state.store.document(&effect_id) {
        Some(doc) => Ok(Outcome::both(doc)),
        // The creation that it joined has failed.
        None => Err(fault::disk_not_found(path::name_of(&effect_id))),
    });
    let started = start(context, &disk, OperationKind::DiskCreate, Vec::new(), effect, None, busy);
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
    let disk = Named::of(old);
    let now = context.now;
    super::refuse_if_dropped(context, old)?;
    super::refuse_if_busy(context, &disk.id)?;
    let new = disk_rules::changed(context, old, body, replace)?;
    super::quotas::check_disk(context, &new, Some(old))?;
    let grown = new["properties"]["diskSizeBytes"] != old["properties"]["diskSizeBytes"];
    let mut shown = accepted(&disk.id, &disk.name, &disk.location, &merged(&new, body), Some(old));
    if grown {
        shown["properties"]["diskSizeBytes"] = new["properties"]["diskSizeBytes"].clone();
    }
    let steps = if grown { vec![HypervisorStep::Resize { disk: facts(&new) }] } else { Vec::new() };
    context.state.store.change(&disk.id, now, |resource| {
        resource.set_provisioning("Updating");
        resource.next = Some(new.clone());
    });
    let (effect_id, undo_id) = (disk.id.clone(), disk.id.clone());
    let work = Work {
        kind: OperationKind::DiskUpdate,
        steps,
        effect: Box::new(move |state, at| finish(state, &effect_id, at, new)),
        undo: Box::new(move |state, at, _| {
            state.store.change(&undo_id, at, |resource| {
                resource.busy = None;
                resource.next = None;
                resource.set_provisioning("Succeeded");
            });
        }),
    };
    let started = accept(context, &disk, work);
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
    if let Some(doc) = &done {
        show_in_machines(state, doc, at);
    }
    match done {
        Some(doc) => Ok(Outcome::both(doc)),
        None => Err(fault::disk_not_found(path::name_of(id))),
    }
}

/// Unverified: a machine's model follows the size and SKU of its disks, without a new etag.
fn show_in_machines(state: &mut State, disk: &Value, at: std::time::Duration) {
    let id = disk["id"].as_str().unwrap_or("");
    for vm in owners(disk) {
        state.store.change(&vm, at, |resource| {
            for place in ["dataDisks", "osDisk"] {
                let elements = match resource.doc.pointer_mut(&format!("/properties/storageProfile/{place}")) {
                    Some(Value::Array(elements)) => elements.as_mut_slice(),
                    Some(element) => std::slice::from_mut(element),
                    None => &mut [],
                };
                let own =
                    |element: &&mut Value| element["managedDisk"]["id"].as_str().is_some_and(|i| path::same(i, id));
                for element in elements.iter_mut().filter(own) {
                    element["diskSizeGB"] = disk["properties"]["diskSizeGB"].clone();
                    element["managedDisk"]["storageAccountType"] = disk["sku"]["name"].clone();
                }
            }
        });
    }
}

/// DELETE. Recorded: 202 and an operation without output. Documented: 204 for a missing disk, 409
/// while attached; a disk whose attach is in flight is still `Unattached` and can be deleted
/// (kubernetes#82714); 409 `Conflict` without `Retry-After` while another operation has the disk
/// (bosh-azure-cpi-release#269). That a deletion in flight is such an operation is unverified: a disk stuck
/// in `Deleting` refuses a second one (AzureStorageExplorer#7937), but its text is not known.
pub(crate) fn delete(context: &mut Context<'_>) -> Reply {
    context.require_group()?;
    let id = id_of(context);
    let now = context.now;
    let Some(resource) = context.state.store.get(&id) else {
        return Ok(Answer::empty(204));
    };
    let doc = resource.doc.clone();
    let disk = Named::of(&doc);
    if let Some(vm) = owners(&doc).first() {
        return Err(fault::disk_is_attached(&disk.name, vm));
    }
    disk_access::refuse_delete(&doc)?;
    super::refuse_if_busy(context, &id)?;
    context.state.store.change(&id, now, |resource| {
        resource.set_provisioning("Deleting");
    });
    let (effect_id, undo_id) = (disk.id.clone(), disk.id.clone());
    let work = Work {
        kind: OperationKind::DiskDelete,
        steps: vec![HypervisorStep::Delete { disk: facts(&doc) }],
        effect: Box::new(move |state, at| {
            // Attached while the delete ran: the machine keeps its disk.
            if let Some(vm) = state.store.disk(&effect_id).as_ref().and_then(|d| owners(d).first().cloned()) {
                return Err(fault::disk_is_attached(path::name_of(&effect_id), &vm));
            }
            state.store.remove(&effect_id, at);
            Ok(Outcome::default())
        }),
        undo: Box::new(move |state, at, _| {
            state.store.change(&undo_id, at, |resource| {
                resource.busy = None;
                resource.set_provisioning("Succeeded");
            });
        }),
    };
    let started = accept(context, &disk, work);
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
