//! Access to the bytes of a disk or snapshot by a shared access signature: `beginGetAccess`, `endGetAccess`.
//!
//! ```text
//!  Unattached, Reserved, Attached (stopped) ── begin ──▶ ActiveSAS ───── end ──▶ as before
//!  ReadyToUpload ──────────────────────── begin Write ─▶ ActiveUpload ── end ──▶ Unattached
//! ```
//!
//! Documented: the states; the final result at `Location`, the URL also in `properties.output`; a disk
//! with a signature is neither attached nor deleted; a signature ends after its time. Unverified: the form of
//! the URL, which nothing here serves; that the disk's state follows the end of its signature at once.

use std::time::Duration;

use serde_json::{Value, json};

use super::attachments::{self, owners};
use super::disk_work::{self, HEADERS, Named, Work};
use crate::answer::{Answer, Context, Reply};
use crate::arm::{kinds, writes};
use crate::document::Document;
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
    let (thing, word) = if disk["type"] == kinds::SNAPSHOT { ("Snapshot", "snapshot") } else { ("Disk", "disk") };
    Err(fault::signature_outstanding(thing, path::name_of(path::of(disk)), doing, before, word))
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

/// `beginGetAccess` of a disk.
pub(crate) fn begin(context: &mut Context<'_>) -> Reply {
    begin_if(context, |_, _, _| Ok(()))
}

/// Refuses a signature, of the document and of what is asked.
type Refuse = fn(&State, &Value, &Value) -> Result<(), Fault>;

/// `beginGetAccess` of what has a refusal of its own.
pub(crate) fn begin_if(context: &mut Context<'_>, refuse: Refuse) -> Reply {
    let doc = find(context)?;
    let disk = Named::of(&doc);
    let body = context.read("GrantAccessData", "grantAccess", false)?;
    refuse(context.state, &doc, &body)?;
    let running = owners(&doc).into_iter().find(|vm| context.state.store.power(vm) == Some(Power::Running));
    if let Some(vm) = running {
        return Err(fault::attached_to_running(&disk.name, vm));
    }
    let seconds = body["durationInSeconds"].as_i64().unwrap_or(0);
    if !(1..=4_294_967_295).contains(&seconds) {
        return Err(fault::out_of_range("grantAccess.durationInSeconds", seconds.to_string(), "1", "4294967295"));
    }
    let uploads = matches!(state_of(&doc), "ReadyToUpload" | "ActiveUpload");
    if uploads && body["access"] != "Write" {
        // Documented: such a disk waits for a write token. Unverified text.
        return Err(fault::not_allowed(format!(
            "Read access to disk {} is not permitted before its content has been uploaded.",
            disk.name
        )));
    }
    let sas = |ends: jiff::Timestamp| {
        let right = if body["access"] == "Write" { "w" } else { "r" };
        format!(
            "{}/md-{}/abcd?sv=2018-03-28&sr=b&se={ends:.0}&sp={right}&sig=emulator",
            context.request.base,
            path::key(&disk.name)
        )
    };
    let lifetime = Duration::from_secs(seconds.unsigned_abs());
    let start = context.shared.clock.at(Duration::ZERO);
    let url = sas(start + context.now + lifetime);
    change(context, &disk, Some(json!({ "accessSAS": url })), move |state, doc, at| {
        let id = doc["id"].as_str().unwrap_or("");
        end_later(state, id, at + lifetime, (start + at + lifetime).as_second());
        Some(if uploads { "ActiveUpload" } else { "ActiveSAS" })
    })
}

/// Ends the signature of a disk at `due`; `ends` is the same moment in seconds of Unix time.
pub(crate) fn end_later(state: &mut State, disk: &str, due: Duration, ends: i64) {
    let id = disk.to_owned();
    let alarm = state.set_alarm(due, Box::new(move |state, at| expire(state, &id, at)));
    let before = state.store.change(disk, due, |resource| {
        resource.signature_ends = Some(ends);
        resource.alarm.replace(alarm)
    });
    if let Some(before) = before.flatten() {
        state.alarms.remove(&before);
    }
}

/// The signature's time is over: the disk is as it was before.
fn expire(state: &mut State, disk: &str, at: Duration) {
    let Some(doc) = state.store.disk(disk) else {
        return;
    };
    let word = match state_of(&doc) {
        "ActiveUpload" => "ReadyToUpload",
        "ActiveSAS" => attachments::state_word(state, &owners(&doc)),
        _ => return,
    };
    state.store.change(disk, at, |resource| {
        resource.signature_ends = None;
        resource.alarm = None;
        resource.doc["properties"]["diskState"] = json!(word);
    });
}

/// `endGetAccess`: without a signature it changes nothing.
pub(crate) fn end(context: &mut Context<'_>) -> Reply {
    let doc = find(context)?;
    change(context, &Named::of(&doc), None, |state, doc, at| {
        let alarm = state.store.change(doc["id"].as_str().unwrap_or(""), at, |resource| {
            resource.signature_ends = None;
            resource.alarm.take()
        });
        if let Some(alarm) = alarm.flatten() {
            state.alarms.remove(&alarm);
        }
        match state_of(doc) {
            "ActiveUpload" => Some("Unattached"),
            "ActiveSAS" => Some(attachments::state_word(state, &owners(doc))),
            _ => None,
        }
    })
}

fn find(context: &Context<'_>) -> Result<Document, Fault> {
    context.require_group()?;
    context.state.store.document(&disk_work::id_of(context)).ok_or_else(|| disk_work::not_found(context))
}

/// Accepts a change of the disk's state, which `to` names when the operation ends.
fn change(
    context: &mut Context<'_>,
    disk: &Named,
    result: Option<Value>,
    to: impl FnOnce(&mut State, &Value, Duration) -> Option<&'static str> + Send + 'static,
) -> Reply {
    writes::refuse_if_busy(context, &disk.id)?;
    let (effect_id, undo_id) = (disk.id.clone(), disk.id.clone());
    let work = Work {
        kind: OperationKind::DiskGrantAccess,
        steps: Vec::new(),
        effect: Box::new(move |state, at| {
            let word = state.store.disk(&effect_id).and_then(|doc| to(state, &doc, at));
            state.store.change(&effect_id, at, |resource| {
                resource.busy = None;
                if let Some(word) = word {
                    resource.doc["properties"]["diskState"] = json!(word);
                }
            });
            Ok(result.as_ref().map(Outcome::both).unwrap_or_default())
        }),
        undo: Box::new(move |state, at, _| {
            state.store.change(&undo_id, at, |resource| resource.busy = None);
        }),
    };
    let started = disk_work::accept(context, disk, work);
    Ok(Answer::empty(202).started(started, HEADERS))
}
