//! Managed disks: PUT, PATCH, GET, DELETE, and lists.
//!
//! Recorded: every PUT and PATCH answers 202 with both operation headers, also on an unchanged disk;
//! the 202 body shows what was asked plus `provisioningState: Updating`; there is no etag; DELETE is
//! 202 with an empty body. Documented: a disk only grows; `managedBy` and `diskState` follow the
//! machine's operation, not this one. Unverified: the state that a GET shows while an operation runs
//! is the old document with `Updating` (`Deleting` for a delete).

use serde_json::{Value, json};

use super::attachments::owners;
use super::disk_work::{HEADERS, Named, Work, accept, creation_step, facts, id_of, not_found, start};
use super::{RESOURCE, disk_access, disk_rules, post, quotas};
use crate::answer::{Answer, Context, Reply};
use crate::arm::descriptor::{By, Descriptor, InUse, Own};
use crate::arm::{kinds, regions, writes};
use crate::fault::{self, Fault};
use crate::latency::OperationKind;
use crate::operations::Outcome;
use crate::path;
use crate::state::{Effect, HypervisorStep, State};
use crate::store::Resource;

pub(crate) static DISK: Descriptor = Descriptor {
    kind: kinds::DISK,
    path: "disks",
    api_versions: &["2025-01-02", "2024-03-02"],
    in_use: &[InUse {
        by: By::Named(owners),
        fault: |disk, vm| fault::disk_is_attached(disk["name"].as_str().unwrap_or(""), vm),
    }],
    own: Own { put: Some(put), patch: Some(patch), delete: Some(delete), ..Own::NONE },
    routes: &[
        post("begingetaccess", "disks.grantAccess", disk_access::begin),
        post("endgetaccess", "disks.revokeAccess", disk_access::end),
    ],
    ..RESOURCE
};

/// PUT. Recorded.
pub(crate) fn put(context: &mut Context<'_>) -> Reply {
    context.require_group()?;
    let body = context.read("Disk", "disk", false)?;
    let id = id_of(context);
    let location = path::location(body["location"].as_str().unwrap_or(""));
    regions::check(&location, kinds::DISK)?;
    let name = context.request.segment(1).to_owned();
    disk_rules::check_name("disk.name", &name)?;
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
    let own_id = format!("{}/providers/{}/{name}", group["id"].as_str().unwrap_or_default(), kinds::DISK);
    let now = context.now;
    let created = context.shared.clock.stamp(now);
    let unique = crate::derived::guid_of(&format!("{}/{}", path::key(id), context.state.guid()));
    let full = disk_rules::complete(context, &own_id, location, body, &created, &unique)?;
    quotas::check_disk(context, &full, None)?;
    let mut waiting = full.clone();
    waiting["properties"]["provisioningState"] = json!("Updating");
    let mut resource = Resource::new(waiting);
    resource.busy = Some(String::new());
    context.state.store.insert(&own_id, resource, now);
    let shown = accepted(&own_id, location, body, None);
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
        Some(doc) => Ok(Outcome::both(&doc)),
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
    writes::refuse_if_dropped(context, old)?;
    writes::refuse_if_busy(context, &disk.id)?;
    let new = disk_rules::changed(context, old, body, replace)?;
    quotas::check_disk(context, &new, Some(old))?;
    let grown = new["properties"]["diskSizeBytes"] != old["properties"]["diskSizeBytes"];
    let mut shown = accepted(&disk.id, &disk.location, &merged(&new, body), Some(old));
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
fn accepted(id: &str, location: &str, asked: &Value, old: Option<&Value>) -> Value {
    let mut doc = writes::base(kinds::DISK, id, location, &["tags", "zones", "extendedLocation"], asked);
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
        resource.doc = new.into();
        resource.busy = None;
        resource.next = None;
        resource.doc.clone()
    });
    if let Some(doc) = &done {
        show_in_machines(state, doc, at);
    }
    match done {
        Some(doc) => Ok(Outcome::both(&doc)),
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
    writes::refuse_if_busy(context, &id)?;
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
