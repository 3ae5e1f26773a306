//! Virtual machines: PUT, PATCH, GET, lists, DELETE, and `attachDetachDataDisks`.
//!
//! Recorded: a create answers 201 with `ETag: "1"` and the asynchronous header only, and the etag is
//! `"2"` when it is done; a PUT that changes nothing answers 200, raises the etag, shows `Updating`
//! and names no operation; `If-Match` that does not match answers 412; a delete answers 202 with both
//! headers. Documented: for a machine that exists, members left out of a PUT stay as they are (the Go
//! drivers send `location` and `dataDisks` only). Unverified: a write that changes something when it
//! ends raises the etag a second time.

use serde_json::{Value, json};

use super::attachments::{release, take};
use super::base::{OF_MACHINES, RESOURCE, RETRY_AFTER, VM_FAMILY, post};
use super::data_disks::{self, Target};
use super::disk_plan::{self, Plan};
use super::scale_sets::{members, nics};
use super::vm_create;
use super::vm_work::{
    BOTH, Doing, bump, collection, etag, free, hide_user_data, id_of, in_flight, make_way, not_found, refuse_unsettled,
    shown,
};
use super::{attachments, catalogue, disk_work, extension_views, instance_view, vm_power, vm_removal};
use crate::answer::{Answer, Context, Reply, Start};
use crate::arm::descriptor::{Descriptor, Extra, Handler, Hooks, Own, Planned, Reference, Verb};
use crate::arm::kinds::{self, MACHINE};
use crate::arm::protocol::{Answered, Limits, Patch, Schema, Scope, Shape};
use crate::arm::{engine, lists, writes};
use crate::document::Document;
use crate::fault::{self, Fault};
use crate::latency::OperationKind;
use crate::operations::{Outcome, Style};
use crate::options::LeftOut;
use crate::path;
use crate::phases::Moved;
use crate::state::{Effect, HypervisorStep, State, Undo};
use crate::store::Resource;
use crate::throttle::{DELETE_VM, GET_VM, LIST_VM, UPDATE_VM};

const SCHEMA: Schema = Schema { name: "VirtualMachine", root: "vm" };

pub(crate) static VIRTUAL_MACHINE: Descriptor = Descriptor {
    kind: MACHINE,
    path: "virtualMachines",
    family: &VM_FAMILY,
    lists: &[Scope::Either, Scope::Location],
    limits: Limits {
        get: Some(GET_VM),
        list: Some(LIST_VM),
        write: Some(UPDATE_VM),
        delete: Some(DELETE_VM),
        ..Limits::NONE
    },
    headers: OF_MACHINES,
    references: &[Reference::new("properties/availabilitySet", kinds::SET)],
    schema: SCHEMA,
    patch: Patch::Asked { operation: "update", schema: SCHEMA, answered: Answered::new(200, Shape::AsyncOperation) },
    hooks: Hooks { plan: Some(plan), remove: Some(vm_removal::remove), ..Hooks::NONE },
    own: Own { get: Some(get), delete: Some(delete), list: Some(list), ..Own::NONE },
    routes: &[
        Extra {
            method: "GET",
            limit: Some(GET_VM),
            headers: OF_MACHINES,
            ..post("instanceview", "virtualMachines.instanceView", vm_power::get_instance_view)
        },
        Extra {
            since: Some(ATTACH_DETACH_FROM),
            ..action("attachdetachdatadisks", "virtualMachines.attachDetachDataDisks", attach_detach)
        },
        Extra {
            method: "GET",
            headers: OF_MACHINES,
            ..post("vmsizes", "virtualMachines.listAvailableSizes", catalogue::vm_sizes)
        },
        action("start", "virtualMachines.start", vm_power::act),
        action("poweroff", "virtualMachines.powerOff", vm_power::act),
        action("deallocate", "virtualMachines.deallocate", vm_power::act),
        action("restart", "virtualMachines.restart", vm_power::act),
        action("redeploy", "virtualMachines.redeploy", vm_power::act),
        action("reapply", "virtualMachines.reapply", vm_power::act),
        action("simulateeviction", "virtualMachines.simulateEviction", vm_power::act),
    ],
    ..RESOURCE
};

/// A POST that changes a machine.
const fn action(path: &'static str, operation: &'static str, handler: Handler) -> Extra {
    Extra { limit: Some(UPDATE_VM), headers: OF_MACHINES, ..post(path, operation, handler) }
}

/// Documented: `attachDetachDataDisks` begins with it.
pub(crate) const ATTACH_DETACH_FROM: &str = "2024-03-01";

/// GET, also of an instance of a scale set. Recorded.
pub(crate) fn get(context: &mut Context<'_>) -> Reply {
    context.require_group()?;
    let id = id_of(context);
    let mut doc = context.state.store.shown(&id, context.now).ok_or_else(|| not_found(context))?;
    match expansion(context, &["instanceView", "userData", "resiliencyView"])? {
        Some("instanceView") => {
            doc["properties"]["instanceView"] = instance_view::instance_view(context, &doc);
            hide_user_data(&mut doc);
        }
        Some("userData") => {}
        _ => hide_user_data(&mut doc),
    }
    extension_views::show(context.state, &mut doc);
    let tag = doc["etag"].as_str().unwrap_or("").to_owned();
    Ok(shown(context, doc, tag))
}

/// What `$expand` asks for, in the spelling of `known`. Documented: another value is refused.
pub(crate) fn expansion<'a>(context: &Context<'_>, known: &[&'a str]) -> Result<Option<&'a str>, Fault> {
    match context.request.query.get("$expand").map(|asked| asked.trim()).filter(|asked| !asked.is_empty()) {
        None => Ok(None),
        Some(asked) => known
            .iter()
            .find(|known| known.eq_ignore_ascii_case(asked))
            .map(|known| Some(*known))
            .ok_or_else(fault::unknown_expansion),
    }
}

/// Lists, also of a location (documented). Recorded: `$filter` on a scale set that does not exist gives an empty list.
pub(crate) fn list(context: &mut Context<'_>) -> Reply {
    let scope = lists::scope(context)?;
    let located = context.request.segment(0).eq_ignore_ascii_case("locations");
    let location = located.then(|| path::location(context.request.segment(1)));
    let set = match context.request.query.get("$filter") {
        None => None,
        Some(filter) => {
            let (name, wanted) = filter.split_once(" eq ").unwrap_or((filter, ""));
            // Unverified text for any other filter.
            if !name.trim().trim_matches('\'').eq_ignore_ascii_case("virtualMachineScaleSet/id") {
                return Err(fault::bad_request(format!(
                    "The filter '{filter}' is not supported for virtual machines."
                )));
            }
            Some(wanted.trim().trim_matches('\''))
        }
    };
    let expanded = expansion(context, &["instanceView"])?.is_some();
    let status_only = context.request.query.get("statusonly").is_some_and(|v| v.eq_ignore_ascii_case("true"));
    lists::select(context, &scope, Some(MACHINE), |doc| {
        let of_set =
            |set| doc["properties"]["virtualMachineScaleSet"]["id"].as_str().is_some_and(|id| path::same(id, set));
        if location.as_ref().is_some_and(|location| doc["location"] != **location) || !set.is_none_or(of_set) {
            return None;
        }
        let mut doc = doc.clone();
        hide_user_data(&mut doc);
        if expanded || status_only {
            doc["properties"]["instanceView"] = instance_view::instance_view(context, &doc);
        }
        Some(doc)
    })
}

/// PUT and PATCH.
fn plan(context: &mut Context<'_>, verb: Verb) -> Result<Planned, Fault> {
    if verb == Verb::Patch {
        let old = existing(context)?;
        let body = context.read(SCHEMA.name, SCHEMA.root, true)?;
        let left_out = context.shared.options.unverified.left_out_of_patch;
        return plan_update(context, &old, &body, left_out);
    }
    context.require_group()?;
    let id = id_of(context);
    let Some(resource) = context.state.store.get(&id) else {
        writes::numbered_preconditions(context, None)?;
        let body = context.read(SCHEMA.name, SCHEMA.root, false)?;
        return vm_create::plan(context, &body);
    };
    let old = resource.doc.clone();
    let tag = etag(resource);
    writes::numbered_preconditions(context, Some(&tag))?;
    let body = context.read(SCHEMA.name, SCHEMA.root, true)?;
    let location = path::location(body["location"].as_str().unwrap_or(""));
    if location.is_empty() && context.shared.options.unverified.put_needs_location {
        return Err(fault::location_required());
    }
    let there = old["location"].as_str().unwrap_or("");
    if !location.is_empty() && there != location {
        return Err(fault::location_conflict(
            old["name"].as_str().unwrap_or(""),
            there,
            context.request.group(),
            &location,
        ));
    }
    let left_out = context.shared.options.unverified.left_out_of_put;
    plan_update(context, &old, &body, left_out)
}

/// The machine that a request changes, if its preconditions hold.
pub(crate) fn existing(context: &Context<'_>) -> Result<Document, Fault> {
    context.require_group()?;
    let resource = context.state.store.get(&id_of(context)).ok_or_else(|| not_found(context))?;
    writes::numbered_preconditions(context, Some(&etag(resource)))?;
    let doc = resource.doc.clone();
    if doc["type"] == kinds::INSTANCE {
        refuse_unsettled(context, &doc, "Put on Virtual Machine Scale Set VM Instance")?;
    }
    Ok(doc)
}

/// A change of a machine that exists.
pub(crate) fn plan_update(
    context: &mut Context<'_>,
    old: &Value,
    body: &Value,
    left_out: LeftOut,
) -> Result<Planned, Fault> {
    let id = old["id"].as_str().unwrap_or("").to_owned();
    let name = old["name"].as_str().unwrap_or("").to_owned();
    let is_instance = old["type"] == kinds::INSTANCE;
    writes::refuse_if_dropped(context, old)?;
    let mut doc = old.clone();
    attachments::refuse_retired(context.state, old)?;
    let changed = vm_create::merge(context, &mut doc, body)?;
    let target = Target { id: &id, name: &name, doc: &doc };
    let plan = match body["properties"]["storageProfile"].get("dataDisks").and_then(Value::as_array) {
        Some(given) => Some(data_disks::plan_array(context, &target, given, left_out, false)?),
        None => None,
    };
    let preempted = make_way(context, &id, Doing::Change("Update VM"))?;
    if let Some(plan) = &plan {
        doc["properties"]["storageProfile"]["dataDisks"] = Value::Array(plan.model.clone());
    }
    let mut plan = plan.unwrap_or_default();
    take_over(context, &id, &doc, &mut plan, &preempted);
    // Recorded: a PUT of an instance names its operation also where nothing changes.
    let touches = is_instance || !plan.is_empty() || changed || !preempted.is_empty();
    let interfaces = (vm_create::interfaces(old), vm_create::interfaces(&doc));
    let shape = if touches { Shape::AsyncOperation } else { Shape::Synchronous };
    let planned = planned(context, &id, doc, plan, &preempted)?;
    vm_create::exchange_interfaces(context.state, &id, &interfaces.0, &interfaces.1, context.now);
    Ok(Planned { shape, answer: updated, ..planned })
}

/// The answer to a change.
fn updated(context: &Context<'_>, machine: &Resource) -> Answer {
    let mut doc = machine.doc.clone();
    hide_user_data(&mut doc);
    shown(context, doc, etag(machine))
}

/// `attachDetachDataDisks`. Documented: 202 and both headers, the final result is the storage
/// profile at `Location`.
pub(crate) fn attach_detach(context: &mut Context<'_>) -> Reply {
    let doc = existing(context)?;
    attachments::refuse_retired(context.state, &doc)?;
    let body = context.read("AttachDetachDataDisksRequest", "parameters", false)?;
    let id = doc["id"].as_str().unwrap_or("").to_owned();
    let name = doc["name"].as_str().unwrap_or("").to_owned();
    let descriptor = context.state.types.of(&doc).ok_or_else(|| not_found(context))?;
    let target = Target { id: &id, name: &name, doc: &doc };
    let mut plan = data_disks::plan_request(context, &target, &body)?;
    let preempted = make_way(context, &id, Doing::Change("AttachDetachDataDisks"))?;
    let mut new = doc.clone().into_value();
    new["properties"]["storageProfile"]["dataDisks"] = Value::Array(plan.model.clone());
    take_over(context, &id, &new, &mut plan, &preempted);
    let planned = planned(context, &id, new, plan, &preempted)?;
    engine::put::accept(descriptor, context, planned)
}

/// A write of the model: what it shows changes now, what the machine holds at the end. Answered with 202 and both
/// headers where the caller says nothing else.
fn planned(
    context: &mut Context<'_>,
    id: &str,
    mut doc: Value,
    plan: Plan,
    preempted: &[String],
) -> Result<Planned, Fault> {
    let now = context.now;
    let new_disks = disk_plan::make_disks(context, &plan)?;
    for old in preempted {
        context.state.preempt(old, now, fault::preempted());
    }
    let kind = if !plan.detach.is_empty() {
        OperationKind::VmDetach
    } else if !plan.attach.is_empty() {
        OperationKind::VmAttach
    } else if doc["type"] == kinds::INSTANCE {
        OperationKind::InstanceUpdate
    } else {
        OperationKind::VmUpdate
    };
    doc["properties"]["provisioningState"] = json!("Updating");
    disk_plan::insert(context, new_disks);
    members::touch(context.state, id, now);
    let steps = disk_plan::steps(context.state, id, &plan);
    let moved = Moved {
        attached: plan.attach.iter().map(|(_, disk)| path::key(disk)).collect(),
        detached: plan.detach.iter().map(|detach| path::key(&detach.disk)).collect(),
    };
    let keep = context.shared.options.unverified.failed_attach_stays_in_model;
    let (effect, undo) = effects(id, &plan, keep);
    let (shape, answer): (Shape, fn(&Context<'_>, &Resource) -> Answer) = (Shape::Both, |_, _| Answer::empty(202));
    Ok(Planned { id: id.to_owned(), doc, machine: None, kind, steps, moved, effect, undo, shape, answer })
}

enum Left {
    Attach(u8, String),
    Detach(disk_plan::Detach),
}

/// What an earlier write left to do is the next one's to do, whatever that says itself: the model
/// shows it. That holds for a write that was preempted, and, where a failed attach stays in the
/// model, for one that failed (unverified; the Go drivers send a machine in the state Failed an
/// update that says nothing, and then take its disks for attached). A detach that failed has to be
/// asked for again (documented by the text of `AttachDiskWhileBeingDetached`).
fn take_over(context: &Context<'_>, id: &str, doc: &Value, plan: &mut Plan, preempted: &[String]) {
    let elements = doc["properties"]["storageProfile"]["dataDisks"].as_array();
    let blobs: Vec<(String, u64)> = elements.into_iter().flatten().filter_map(attachments::empty_blob).collect();
    for step in pending_changes(context.state, id, doc, plan) {
        match step {
            Left::Attach(lun, disk) => {
                plan.blobs.extend(blobs.iter().find(|(uri, _)| *uri == disk).cloned());
                plan.attach.push((lun, disk));
            }
            Left::Detach(detach) if !preempted.is_empty() => plan.detach.push(detach),
            Left::Detach(_) => {}
        }
    }
}

/// The difference between what the new model shows and what the machine holds, less what the plan
/// does itself.
fn pending_changes(state: &State, id: &str, doc: &Value, plan: &Plan) -> Vec<Left> {
    let held = state.store.lun_map(id);
    let mut left = Vec::new();
    let elements = doc.pointer("/properties/storageProfile/dataDisks").and_then(Value::as_array);
    for element in elements.into_iter().flatten() {
        let Some(lun) = element["lun"].as_u64().and_then(|lun| u8::try_from(lun).ok()) else {
            continue;
        };
        let Some(disk) = attachments::named_by(element) else {
            continue;
        };
        let leaving = element["toBeDetached"] == json!(true);
        if leaving {
            if !plan.detach.iter().any(|d| d.lun == lun) {
                left.push(Left::Detach(disk_plan::Detach { lun, disk: disk.to_owned() }));
            }
        } else if !held.contains_key(&lun) && !plan.attach.iter().any(|(l, _)| *l == lun) {
            left.push(Left::Attach(lun, disk.to_owned()));
        }
    }
    left
}

/// What happens at the end of a write, and after its failure.
fn effects(id: &str, plan: &Plan, failed_attach_stays: bool) -> (Effect, Undo) {
    let vm = id.to_owned();
    let attach = plan.attach.clone();
    let detach = plan.detach.clone();
    let blobs = plan.blobs.clone();
    let effect: Effect = Box::new(move |state, at| {
        disk_plan::make_blobs(state, &vm, &blobs, at)?;
        attachments::all_free(state, &vm, &attach)?;
        for leaving in &detach {
            release(state, &vm, leaving.lun, &leaving.disk, at);
        }
        for (lun, disk) in &attach {
            take(state, &vm, *lun, disk, at);
        }
        let gone: Vec<u8> = detach.iter().map(|d| d.lun).collect();
        let held: Vec<u8> = attach.iter().map(|(lun, _)| *lun).collect();
        let profile = state.store.change(&vm, at, |resource| {
            let before = resource.doc["properties"]["storageProfile"].clone();
            if let Some(elements) =
                resource.doc.pointer_mut("/properties/storageProfile/dataDisks").and_then(Value::as_array_mut)
            {
                elements.retain(|element| {
                    let leaving = element["toBeDetached"] == json!(true);
                    let lun = element["lun"].as_u64().and_then(|lun| u8::try_from(lun).ok());
                    !(leaving && lun.is_some_and(|lun| gone.contains(&lun) && !held.contains(&lun)))
                });
            }
            let changed = before != resource.doc["properties"]["storageProfile"];
            resource.set_provisioning("Succeeded");
            if changed {
                bump(resource);
            }
            free(resource);
            resource.doc["properties"]["storageProfile"].clone()
        });
        nics::follow_model(state, &vm, at);
        Ok(profile.as_ref().map(Outcome::at_location).unwrap_or_default())
    });
    let vm = id.to_owned();
    let attach = plan.attach.clone();
    let created: Vec<String> = plan.create.iter().map(|new| new.id.clone()).collect();
    let undo: Undo = Box::new(move |state, at, _| {
        let luns: Vec<u8> = attach.iter().map(|(lun, _)| *lun).collect();
        state.store.change(&vm, at, |resource| {
            if !failed_attach_stays
                && let Some(elements) =
                    resource.doc.pointer_mut("/properties/storageProfile/dataDisks").and_then(Value::as_array_mut)
            {
                elements.retain(|element| {
                    let lun = element["lun"].as_u64().and_then(|lun| u8::try_from(lun).ok());
                    !lun.is_some_and(|lun| luns.contains(&lun))
                });
            }
            // Documented: a failed operation leaves the machine in the state Failed, and an element
            // that should have been detached stays marked.
            resource.set_provisioning("Failed");
            bump(resource);
            free(resource);
        });
        if !failed_attach_stays {
            disk_plan::remove_unheld(state, &created, at);
        }
    });
    (effect, undo)
}

/// DELETE. Recorded: 202 with both headers. Documented: 204 for a missing machine; disks and NICs
/// stay unless their `deleteOption` says otherwise.
pub(crate) fn delete(context: &mut Context<'_>) -> Reply {
    context.require_group()?;
    let id = id_of(context);
    let Some(resource) = context.state.store.get(&id) else {
        return Ok(Answer::empty(204));
    };
    let id = resource.id().to_owned();
    let location = resource.doc["location"].as_str().unwrap_or("").to_owned();
    let now = context.now;
    // Documented: a delete may be tried again while one runs. The new operation ends with the first.
    let running = in_flight(context, &id).map(str::to_owned);
    let again = running.filter(|busy| {
        context.state.operations.get(busy).is_some_and(|operation| operation.kind == OperationKind::VmDelete)
    });
    if let Some(first) = again {
        let started = context.start(Start {
            style: Style::Compute,
            kind: OperationKind::VmDelete,
            resource: &id,
            collection: collection(&location),
            retry_after: RETRY_AFTER,
            steps: Vec::new(),
            effect: Box::new(|_, _| Ok(Outcome::default())),
            undo: None,
            together_with: Some(&first),
        });
        return Ok(Answer::empty(202).started(started, BOTH));
    }
    for old in make_way(context, &id, Doing::Deletion)? {
        context.state.preempt(&old, now, fault::preempted());
    }
    context.state.store.change(&id, now, |resource| {
        resource.set_provisioning("Deleting");
    });
    let mut steps = vec![HypervisorStep::DeleteMachine { vm: id.clone() }];
    let doc = context.state.store.vm(&id).unwrap_or_default();
    let going = vm_removal::going_disks(&doc).into_iter().filter_map(|disk| context.state.store.disk(&disk));
    let going = going.filter(|disk| attachments::only_by(disk, &id));
    steps.extend(going.map(|disk| HypervisorStep::Delete { disk: disk_work::facts(&disk) }));
    let (effect_id, undo_id) = (id.clone(), id.clone());
    let started = context.start(Start {
        style: Style::Compute,
        kind: OperationKind::VmDelete,
        resource: &id,
        collection: collection(&location),
        retry_after: RETRY_AFTER,
        steps,
        effect: Box::new(move |state, at| {
            members::lose(state, &[&effect_id], at);
            Ok(Outcome::default())
        }),
        undo: Some(Box::new(move |state, at, _| {
            state.store.change(&undo_id, at, |resource| {
                resource.set_provisioning("Failed");
                free(resource);
            });
        })),
        together_with: None,
    });
    context.state.store.change(&id, now, |resource| {
        if let Some(machine) = &mut resource.machine {
            machine.busy = Some(started.id.clone());
        }
    });
    writes::record(context, OperationKind::VmDelete, &id, &started, Moved::default());
    Ok(Answer::empty(202).started(started, BOTH))
}
