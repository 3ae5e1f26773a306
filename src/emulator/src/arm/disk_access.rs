//! Access to a disk's bytes by a shared access signature: `beginGetAccess`, `endGetAccess`.
//!
//! ```text
//!  Unattached, Reserved, Attached (stopped) ── begin ──▶ ActiveSAS ───── end ──▶ as before
//!  ReadyToUpload ──────────────────────── begin Write ─▶ ActiveUpload ── end ──▶ Unattached
//! ```
//!
//! Documented: the states; the final result at `Location`, the URL also in `properties.output`; a disk
//! with a signature is neither attached nor deleted. Unverified: the form of the URL, which nothing here
//! serves; that a signature outlives its time until it is revoked.

use serde_json::{Value, json};

use super::disks::{self, HEADERS, Named, Work, owners};
use crate::answer::{Answer, Context, Reply};
use crate::fault::{self, Fault};
use crate::latency::OperationKind;
use crate::operations::Outcome;
use crate::path;
use crate::state::State;
use crate::store::Power;

fn state_of(disk: &Value) -> &str {
    disk["properties"]["diskState"].as_str().unwrap_or("")
}

/// Refuses while a signature is out. Documented text.
fn refuse(disk: &Value, doing: &str, before: &str) -> Result<(), Fault> {
    if !matches!(state_of(disk), "ActiveSAS" | "ActiveUpload") {
        return Ok(());
    }
    let name = disk["name"].as_str().unwrap_or("");
    Err(Fault::new(
        409,
        "Conflict",
        format!(
            "Disk {name} cannot be {doing} because there is an active shared access signature outstanding for it. Call EndGetAccess before {before} the disk."
        ),
    ))
}

/// Whether a disk may be deleted.
pub(crate) fn refuse_delete(disk: &Value) -> Result<(), Fault> {
    refuse(disk, "deleted", "deleting")
}

/// Whether a disk may grow. Documented (troubleshoot-disk-resize-failures).
pub(crate) fn refuse_growth(disk: &Value) -> Result<(), Fault> {
    match state_of(disk) {
        "ActiveSAS" | "ActiveUpload" => Err(fault::resize_with_signature(disk["name"].as_str().unwrap_or(""))),
        _ => Ok(()),
    }
}

/// Whether a disk may be attached. Unverified text for a disk whose content has not come yet.
pub(crate) fn refuse_attach(disk: &Value) -> Result<(), Fault> {
    refuse(disk, "attached", "attaching")?;
    if state_of(disk) == "ReadyToUpload" {
        let name = disk["name"].as_str().unwrap_or("");
        return Err(fault::not_allowed(format!(
            "Disk {name} cannot be attached because it is in state ReadyToUpload: its content has not been uploaded."
        )));
    }
    Ok(())
}

/// `beginGetAccess`.
pub(crate) fn begin(context: &mut Context<'_>) -> Reply {
    let doc = find(context)?;
    let disk = Named::of(&doc);
    let body = context.read("GrantAccessData", "grantAccess", false)?;
    let running = owners(&doc).into_iter().find(|vm| context.state.store.power(vm) == Some(Power::Running));
    if let Some(vm) = running {
        return Err(Fault::new(
            409,
            "Conflict",
            format!("Access not permitted because disk {} is currently attached to running VM {vm}.", disk.name),
        ));
    }
    let seconds = body["durationInSeconds"].as_i64().unwrap_or(0);
    if seconds <= 0 {
        return Err(fault::out_of_range("grantAccess.durationInSeconds", &seconds.to_string(), "1", "4294967295"));
    }
    let uploads = matches!(state_of(&doc), "ReadyToUpload" | "ActiveUpload");
    if uploads && body["access"] != "Write" {
        // Documented: such a disk waits for a write token. Unverified text.
        return Err(fault::not_allowed(format!(
            "Read access to disk {} is not permitted before its content has been uploaded.",
            disk.name
        )));
    }
    let sas = format!("{}/md-{}/abcd?sv=2018-03-28&sr=b&sig=emulator", context.request.base, path::key(&disk.name));
    change(context, &disk, Some(json!({ "accessSAS": sas })), move |_, _| {
        Some(if uploads { "ActiveUpload" } else { "ActiveSAS" })
    })
}

/// `endGetAccess`: without a signature it changes nothing.
pub(crate) fn end(context: &mut Context<'_>) -> Reply {
    let doc = find(context)?;
    change(context, &Named::of(&doc), None, |state, doc| match state_of(doc) {
        "ActiveUpload" => Some("Unattached"),
        "ActiveSAS" => Some(match owners(doc).first() {
            Some(vm) => super::vms::state_word(state.store.power(vm).unwrap_or_default()),
            None => "Unattached",
        }),
        _ => None,
    })
}

fn find(context: &Context<'_>) -> Result<Value, Fault> {
    context.require_group()?;
    context.state.store.document(&disks::id_of(context)).ok_or_else(|| disks::not_found(context))
}

/// Accepts a change of the disk's state, which `to` names when the operation ends.
fn change(
    context: &mut Context<'_>,
    disk: &Named,
    result: Option<Value>,
    to: impl FnOnce(&State, &Value) -> Option<&'static str> + Send + 'static,
) -> Reply {
    super::refuse_if_busy(context, &disk.id)?;
    let (effect_id, undo_id) = (disk.id.clone(), disk.id.clone());
    let work = Work {
        kind: OperationKind::DiskGrantAccess,
        steps: Vec::new(),
        effect: Box::new(move |state, at| {
            let word = state.store.disk(&effect_id).and_then(|doc| to(state, &doc));
            state.store.change(&effect_id, at, |resource| {
                resource.busy = None;
                if let Some(word) = word {
                    resource.doc["properties"]["diskState"] = json!(word);
                }
            });
            Ok(result.map(Outcome::both).unwrap_or_default())
        }),
        undo: Box::new(move |state, at, _| {
            state.store.change(&undo_id, at, |resource| resource.busy = None);
        }),
    };
    let started = disks::accept(context, disk, work);
    Ok(Answer::empty(202).started(started, HEADERS))
}
