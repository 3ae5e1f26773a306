//! Snapshots of shares.
//!
//! Documented: a PUT of the share with `$expand=snapshots` makes one, which shows the share's members and its own time,
//! by which the header `x-ms-snapshot` names it; a share has 200 at most. Unverified: that times are whole seconds, and that a
//! second snapshot in one second gets the next. The store keeps them below their share, as a type of the emulator's own.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::base::stamp;
use super::share_base::{self, Asked, SCHEMA};
use super::share_leases;
use crate::answer::{Answer, Context, Reply};
use crate::arm::kinds;
use crate::document::Document;
use crate::fault;
use crate::path;
use crate::store::Resource;

/// The type under which the store keeps them.
pub(super) const SNAPSHOT: &str = "Microsoft.Storage/storageAccounts/fileServices/shares/snapshots";

const MOST: usize = 200;

pub(super) fn create(context: &mut Context<'_>, asked: &Asked) -> Reply {
    let body = context.read(SCHEMA.name, SCHEMA.root, true)?;
    let share = context.state.store.document(&asked.id).ok_or_else(fault::share_not_found)?;
    if context.state.store.below_of_kind(&asked.id, SNAPSHOT).count() >= MOST {
        return Err(fault::too_many_share_snapshots());
    }
    let now = context.shared.clock.at(context.now);
    let mut at = Timestamp::from_second(now.as_second()).unwrap_or(now);
    while context.state.store.contains(&id_of(&asked.id, &stamp(at))) {
        at += Duration::from_secs(1);
    }
    let id = id_of(&asked.id, &stamp(at));
    let mut properties = share["properties"].clone();
    share_leases::show_none(&mut properties);
    properties["snapshotTime"] = json!(stamp(at));
    if body["properties"]["metadata"].is_object() {
        properties["metadata"] = body["properties"]["metadata"].clone();
    }
    let etag = share_base::etag(context, Some(&share));
    let doc = json!({
        "id": id, "name": share["name"], "type": SNAPSHOT, "etag": etag, "properties": properties,
    });
    let now = context.now;
    context.state.store.insert(&id, Resource::new(doc.clone()), now);
    Ok(Answer::json(201, shown(&doc, &share)))
}

fn id_of(share: &str, time: &str) -> String {
    format!("{share}/snapshots/{time}")
}

/// The snapshot of a share that a time names, whichever form the time has.
pub(super) fn find(context: &Context<'_>, share: &str, time: &str) -> Option<Document> {
    let at = time.parse().ok()?;
    context.state.store.shown(&id_of(share, &stamp(at)), context.now)
}

/// As it is shown: as the share, with its time.
pub(super) fn shown(snapshot: &Value, share: &Value) -> Value {
    let mut shown = snapshot.clone();
    shown["id"] = share["id"].clone();
    shown["type"] = json!(kinds::SHARE);
    shown
}

/// Whether a share has any.
pub(super) fn any(context: &Context<'_>, share: &str) -> bool {
    context.state.store.below_of_kind(share, SNAPSHOT).next().is_some()
}

/// Takes one away.
pub(super) fn delete(context: &mut Context<'_>, share: &str, time: &str) -> Reply {
    let Some(snapshot) = find(context, share, time) else {
        return Ok(Answer::empty(204));
    };
    let now = context.now;
    context.state.store.remove(path::of(&snapshot), now);
    Ok(Answer::empty(200))
}
