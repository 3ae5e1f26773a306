//! Managed disks: PUT, PATCH, GET, DELETE, and lists.
//!
//! Recorded: every PUT and PATCH answers 202 with both operation headers, also on an unchanged disk;
//! the 202 body shows what was asked plus `provisioningState: Updating`; there is no etag; DELETE is
//! 202 with an empty body. Documented: a disk only grows; `managedBy` and `diskState` follow the
//! machine's operation, not this one. Unverified: the state that a GET shows while an operation runs
//! is the old document with `Updating` (`Deleting` for a delete).

use std::time::Duration;

use serde_json::{Value, json};

use super::attachments::owners;
use super::base::{DISK_VERSIONS, RESOURCE, post};
use super::disk_work::{creation_step, facts};
use super::{background_copy, disk_access, disk_changes, disk_copy, disk_rules, quotas, snapshot_copy};
use crate::answer::{Context, Reply};
use crate::arm::descriptor::{Begun, Beside, By, Descriptor, Draft, Hooks, InUse, Own, Writers};
use crate::arm::protocol::{Answered, Patch, Schema, Shape};
use crate::arm::{engine, kinds, writes};
use crate::fault::{self, Fault};
use crate::latency::OperationKind;
use crate::path;
use crate::state::{HypervisorStep, State};

const SCHEMA: Schema = Schema { name: "Disk", root: "disk" };

/// Documented of a DELETE: 409 while attached; a disk whose attach is in flight is still `Unattached` and can be deleted
/// (kubernetes#82714); 409 `Conflict` without `Retry-After` while another operation has the disk
/// (bosh-azure-cpi-release#269). That a deletion in flight is such an operation is unverified: a disk stuck in `Deleting`
/// refuses a second one (AzureStorageExplorer#7937), but its text is not known. That a disk whose creation fails late is
/// gone is unverified too.
pub(crate) static DISK: Descriptor = Descriptor {
    kind: kinds::DISK,
    path: "disks",
    api_versions: DISK_VERSIONS,
    schema: SCHEMA,
    patch: Patch::Asked { operation: "update", schema: SCHEMA, answered: Answered::new(202, Shape::Both) },
    writers: Writers::Judged(beside),
    in_use: &[InUse {
        by: By::Named(owners),
        fault: |disk, vm| fault::disk_is_attached(disk["name"].as_str().unwrap_or(""), vm),
    }],
    hooks: Hooks {
        name: |_, name| disk_rules::check_name("disk.name", name),
        document: Some(document),
        accepted,
        deletable,
        begun,
        settle: keep_attachments,
        gone: |id| Err(fault::disk_not_found(path::name_of(id))),
        changed,
        ..Hooks::NONE
    },
    own: Own {
        put: Some(|context| fill(context, engine::put::put)),
        patch: Some(|context| fill(context, engine::put::patch)),
        ..Own::NONE
    },
    routes: &[
        post("begingetaccess", "disks.grantAccess", disk_access::begin),
        post("endgetaccess", "disks.revokeAccess", disk_access::end),
    ],
    ..RESOURCE
};

/// A PUT of what is being made already joins the creation.
fn beside(context: &mut Context<'_>, old: Option<&Value>, body: &Value) -> Result<Beside, Fault> {
    let Some(old) = old else {
        return Ok(Beside::Alone);
    };
    let is_put = context.request.method == "PUT";
    let (there, asked) = (old["location"].as_str().unwrap_or(""), body["location"].as_str().unwrap_or(""));
    if is_put && there != path::location(asked) {
        let (name, group) = (context.request.segment(1), context.request.group());
        return Err(fault::location_conflict(name, there, group, path::location(asked)));
    }
    // Of a creation only: what asks for a disk as it was before a change, or that is being deleted,
    // asks for something else.
    let busy = context.state.store.get(path::of(old)).and_then(|resource| resource.busy.as_deref());
    let creation = busy.filter(|busy| {
        let operation = context.state.operations.get(busy);
        operation.is_some_and(|operation| operation.kind == OperationKind::DiskCreate)
    });
    if let Some(first) = creation.filter(|_| is_put && same_request(old, body)) {
        return Ok(Beside::Joins(first.to_owned()));
    }
    writes::refuse_if_dropped(context, old)?;
    writes::refuse_if_busy(context, path::of(old))?;
    Ok(Beside::Alone)
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

/// The document of a new disk, or of one that is changed.
fn document(draft: &Draft<'_>) -> Result<Value, Fault> {
    match draft.old {
        None => {
            let unique = crate::derived::guid_of(&format!("{}/{}", path::key(draft.id), draft.guid));
            disk_rules::complete(draft.state, draft.id, draft.location, draft.body, draft.stamp, &unique)
        }
        Some(old) => disk_changes::changed(draft, old),
    }
}

/// A write, and the background copy that it begins: into a new disk, or the conversion of one.
fn fill(context: &mut Context<'_>, write: fn(&'static Descriptor, &mut Context<'_>) -> Reply) -> Reply {
    let id = DISK.id(context);
    let old = context.state.store.document(&id);
    let answer = write(&DISK, context)?;
    let is_joined = old.as_ref().is_some_and(|old| background_copy::percent(old).is_some());
    if let Some((_, latency)) = answer.started.as_ref().filter(|_| !is_joined) {
        let begins = context.now + *latency;
        let made = context.state.store.document(&id).filter(|_| old.is_none());
        let faster = made.map_or(1, |disk| disk_copy::speed(context.state, &disk));
        background_copy::begin(context, &id, begins, faster);
    }
    Ok(answer)
}

/// Refuses the deletion of a disk with a signature, and of one whose content snapshots still need, where the switch says so.
fn deletable(context: &Context<'_>, disk: &Value) -> Result<(), Fault> {
    disk_access::refuse_delete(disk)?;
    if context.state.switches.pending_source_deletable {
        return Ok(());
    }
    match snapshot_copy::pending_of(context.state, disk).next() {
        Some(snapshot) => Err(fault::disk_has_pending_snapshot(path::of(disk), path::of(snapshot))),
        None => Ok(()),
    }
}

/// The disk is as it is now, or gone: its machines show it, and the snapshots that needed it fail.
fn changed(state: &mut State, old: Option<&Value>, new: Option<&Value>, at: Duration) {
    let size = |disk: &Value| disk["properties"]["diskSizeBytes"].clone();
    match (old, new) {
        (Some(old), None) => snapshot_copy::fail_pending_of(state, old, at),
        (Some(old), Some(new)) if size(old) != size(new) => snapshot_copy::fail_pending_of(state, old, at),
        _ => {}
    }
    if let Some(disk) = new {
        show_in_machines(state, disk, at);
    }
}

/// A write begins where the quota allows it.
fn begun(context: &mut Context<'_>, old: Option<&Value>, new: Option<&Value>) -> Result<Begun, Fault> {
    let Some(new) = new else {
        return Ok(Begun::with(old.map(|old| HypervisorStep::Delete { disk: facts(old) }).into_iter().collect()));
    };
    quotas::check_disk(context, new, old)?;
    if let Some(old) = old {
        let now = context.shared.clock.at(context.now).as_second();
        let counted = disk_changes::counted(old, new);
        if !counted.is_empty() {
            context.state.store.change(path::of(old), context.now, |resource| resource.counted.add(&counted, now));
        }
    }
    Ok(match old {
        None => Begun { kind: Some(OperationKind::DiskCreate), steps: vec![creation_step(context.state, new)] },
        Some(old) if old["properties"]["diskSizeBytes"] != new["properties"]["diskSizeBytes"] => {
            Begun::with(vec![HypervisorStep::Resize { disk: facts(new) }])
        }
        Some(_) => Begun::default(),
    })
}

/// The body of the 202: what was asked, in the service's order. Recorded. The answer to a change shows the SKU, and what
/// a disk is made of, whether or not it was asked for.
fn accepted(doc: &Value, body: &Value, old: Option<&Value>) -> Value {
    let merged = old.map(|_| merged(doc, body));
    let asked = merged.as_ref().unwrap_or(body);
    let location = doc["location"].as_str().unwrap_or("");
    let members = ["tags", "zones", "extendedLocation"];
    let mut shown = writes::base(kinds::DISK, path::of(doc), location, &members, asked);
    if let Some(sku) = old.map(|old| &old["sku"]).filter(|sku| !sku.is_null()) {
        shown["sku"] = sku.clone();
    }
    if let Some(sku) = asked.get("sku") {
        shown["sku"] = sku.clone();
    }
    shown["properties"] = asked.get("properties").cloned().unwrap_or(json!({}));
    shown["properties"]["provisioningState"] = json!("Updating");
    if old.is_some() {
        shown["properties"]["diskSizeBytes"] = doc["properties"]["diskSizeBytes"].clone();
    }
    shown
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

/// The end of a write: what the machine's operations own is as it is by now.
fn keep_attachments(state: &mut State, new: &mut Value, _: Duration) -> Result<(), Fault> {
    let Some(current) = state.store.disk(path::of(new)) else {
        return Ok(());
    };
    for member in ["managedBy", "managedByExtended"] {
        match current.get(member) {
            Some(value) => new[member] = value.clone(),
            None => {
                if let Some(object) = new.as_object_mut() {
                    object.shift_remove(member);
                }
            }
        }
    }
    for member in ["diskState", "shareInfo", "LastOwnershipUpdateTime", "completionPercent"] {
        if let Some(value) = current["properties"].get(member) {
            new["properties"][member] = value.clone();
        }
    }
    Ok(())
}

/// Unverified: a machine's model follows the size and SKU of its disks, without a new etag.
fn show_in_machines(state: &mut State, disk: &Value, at: Duration) {
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
