//! The deletion of shares, and what becomes of them.
//!
//! Documented: `$include` says what becomes of snapshots, which go with the share unless it says `none`; where the file
//! service keeps deleted shares, they can be listed and restored with their snapshots for so many days, under a name that is
//! free, and their names can be used again; where it does not, a name is free after 30 seconds or more. Unverified: the form
//! of the version of a deleted share, and that a share can be restored under another name by this provider.
//!
//! A deleted share that can come back is a document of a type of the emulator's own, with its snapshots below it; so is
//! one whose name is not free yet. What is over goes with the next request to the account's shares.

use std::time::Duration;

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::base::{location, stamp};
use super::own_documents::{DELETED, HELD, OVER};
use super::share_base::{self, Asked, below_service};
use super::share_snapshots::SNAPSHOT;
use super::{file_services, share_leases, share_snapshots, windows};
use crate::answer::{Answer, Context, Reply};
use crate::arm::kinds;
use crate::document::Document;
use crate::fault;
use crate::latency::OperationKind;
use crate::path;
use crate::store::Resource;

const DAY: i64 = 24 * 3_600;

/// Whether the name of a share belongs to one that is being deleted.
pub(super) fn holds_name(context: &Context<'_>, asked: &Asked) -> bool {
    context.state.store.contains(&below_service(&asked.account, "heldNames", path::name_of(&asked.id)))
}

/// DELETE: of a share, or of one of its snapshots.
pub(super) fn delete(context: &mut Context<'_>) -> Reply {
    let asked = share_base::asked(context, "delete")?;
    windows::write(context, location(&asked.account))?;
    remove(context, &asked).map_err(|refused| share_base::said(context, refused))
}

fn remove(context: &mut Context<'_>, asked: &Asked) -> Reply {
    let include = context.request.query.get("$include").map(|include| include.to_ascii_lowercase());
    let keeps_snapshots = match include.as_deref() {
        None | Some("" | "snapshots" | "leased-snapshots") => false,
        Some("none") => true,
        Some(_) => return Err(fault::share_query_invalid()),
    };
    let Some(share) = context.state.store.document(&asked.id) else {
        return Ok(Answer::empty(204));
    };
    if let Some(time) = share_base::snapshot_header(context) {
        return share_snapshots::delete(context, path::of(&share), &time);
    }
    if share_leases::is_locked(&share) {
        return Err(fault::share_leased());
    }
    if keeps_snapshots && share_snapshots::any(context, path::of(&share)) {
        return Err(fault::share_has_snapshots());
    }
    share_leases::forget(context, asked);
    match file_services::retention(context.state, &asked.account) {
        Some(days) => keep(context, asked, share, days),
        None => hold_name(context, asked),
    }
    Ok(Answer::empty(200))
}

/// Moves a share and its snapshots to where it can come back from.
fn keep(context: &mut Context<'_>, asked: &Asked, share: Document, days: i64) {
    let now = context.shared.clock.at(context.now);
    // As a file time: 100 ns since 1601.
    let mut version = now.as_nanosecond() / 100 + 116_444_736_000_000_000;
    let name = path::name_of(path::of(&share)).to_owned();
    let id_of = |version: i128| below_service(&asked.account, "deletedShares", &format!("{name}_{version:016X}"));
    while context.state.store.contains(&id_of(version)) {
        version += 1;
    }
    let (from, to) = (path::of(&share).to_owned(), id_of(version));
    let mut doc = share.into_value();
    share_leases::show_none(&mut doc["properties"]);
    doc["id"] = json!(to);
    doc["type"] = json!(DELETED);
    doc["properties"]["version"] = json!(format!("{version:016X}"));
    doc["properties"]["deleted"] = json!(true);
    doc["properties"]["deletedTime"] = json!(stamp(now));
    doc["properties"]["remainingRetentionDays"] = json!(days);
    doc[OVER] = json!((now + SignedDuration::from_secs(days * DAY)).as_nanosecond().to_string());
    move_share(context, &from, &to, doc);
}

/// Puts a share under another id, with its snapshots.
fn move_share(context: &mut Context<'_>, from: &str, to: &str, doc: Value) {
    let now = context.now;
    let snapshots: Vec<Document> =
        context.state.store.below_of_kind(from, SNAPSHOT).map(|snapshot| snapshot.doc.clone()).collect();
    for below in context.state.store.below(from) {
        context.state.store.remove(&below, now);
    }
    context.state.store.insert(to, Resource::new(doc), now);
    for snapshot in snapshots {
        let id = format!("{to}/snapshots/{}", path::name_of(path::of(&snapshot)));
        let mut snapshot = snapshot.into_value();
        snapshot["id"] = json!(id);
        context.state.store.insert(&id, Resource::new(snapshot), now);
    }
}

/// Removes a share for good; its name is free a while later.
fn hold_name(context: &mut Context<'_>, asked: &Asked) {
    let now = context.now;
    for below in context.state.store.below(&asked.id) {
        context.state.store.remove(&below, now);
    }
    let takes: Duration =
        context.state.draw(&context.shared.options, OperationKind::ShareRemoval, &asked.id, now.as_secs());
    if takes.is_zero() {
        return;
    }
    let id = below_service(&asked.account, "heldNames", path::name_of(&asked.id));
    let over = context.shared.clock.at(now + takes).as_nanosecond().to_string();
    let doc = json!({"id": id, "name": path::name_of(&asked.id), "type": HELD, OVER: over, "properties": {}});
    context.state.store.insert(&id, Resource::new(doc), now);
}

/// A deleted share as it is shown. Documented: its id ends with its version.
pub(super) fn shown(context: &Context<'_>, account: &Value, deleted: &Value) -> Value {
    let over = deleted[OVER].as_str().and_then(|over| over.parse::<i128>().ok()).unwrap_or(0);
    let left = over / 1_000_000_000 - i128::from(context.shared.clock.at(context.now).as_second());
    let days = i64::try_from(left).unwrap_or(0).max(0);
    let mut shown = deleted.clone();
    shown["id"] = json!(share_base::id_of(account, path::name_of(path::of(deleted))));
    shown["type"] = json!(kinds::SHARE);
    shown["properties"]["remainingRetentionDays"] = json!(days.div_euclid(DAY) + i64::from(days % DAY > 0));
    if let Some(shown) = shown.as_object_mut() {
        shown.shift_remove(OVER);
    }
    shown
}

/// POST `restore`: a deleted share comes back under the name of the request.
pub(super) fn restore(context: &mut Context<'_>) -> Reply {
    let asked = share_base::asked(context, "write")?;
    windows::write(context, location(&asked.account))?;
    let body = context.request.body()?.clone();
    let text = |member: &str| body[member].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let (Some(name), Some(version)) = (text("deletedShareName"), text("deletedShareVersion")) else {
        return Err(fault::account_parameters_invalid("deletedShare"));
    };
    bring_back(context, &asked, &format!("{name}_{version}")).map_err(|refused| share_base::said(context, refused))
}

fn bring_back(context: &mut Context<'_>, asked: &Asked, deleted: &str) -> Reply {
    if context.state.store.contains(&asked.id) {
        return Err(fault::share_exists());
    }
    if holds_name(context, asked) {
        return Err(fault::share_being_deleted());
    }
    let found = context.state.store.document(&below_service(&asked.account, "deletedShares", deleted));
    let deleted: Document = found.ok_or_else(fault::share_not_found)?;
    let from = path::of(&deleted).to_owned();
    let etag = share_base::etag(context, Some(&deleted));
    let mut doc = restored(deleted.into_value(), &asked.id);
    doc["etag"] = json!(etag);
    move_share(context, &from, &asked.id, doc);
    Ok(Answer::empty(200))
}

fn restored(mut doc: Value, id: &str) -> Value {
    doc["id"] = json!(id);
    doc["name"] = json!(path::name_of(id));
    doc["type"] = json!(kinds::SHARE);
    if let Some(properties) = doc["properties"].as_object_mut() {
        properties.retain(|name, _| {
            !["version", "deleted", "deletedTime", "remainingRetentionDays"].contains(&name.as_str())
        });
    }
    if let Some(doc) = doc.as_object_mut() {
        doc.shift_remove(OVER);
    }
    doc
}
