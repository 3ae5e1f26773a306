//! What can be done with a snapshot before and after its content is complete: `snapshotAccessState`.
//!
//! ```text
//!              copy runs                    copy complete
//!  without ──▶ Pending ────────────────────▶ Available
//!                ▲ time over                    ▲ time over
//!  with ─────▶ InstantAccess ──────────────▶ AvailableWithInstantAccess
//! ```
//!
//! | rule | evidence |
//! |---|---|
//! | `instantAccessDurationMinutes`, 60 to 300, of incremental snapshots of Ultra and Premium v2 disks | D (disks-instant-access-snapshots) |
//! | … of another snapshot: 400 | U |
//! | the states and their order | D |
//! | the time begins with the creation | U |
//! | … of a disk that is being filled itself: refused | D, code and text U |
//! | a disk made from one by instant access is Ultra or Premium v2, and not larger | D, code and text U; that this holds in `AvailableWithInstantAccess` too U |
//! | 15 such disks at a time, of all snapshots of a disk | D, code and text U |
//! | a snapshot is read and copied to another region once it is complete | D |

use std::time::Duration;

use serde_json::{Value, json};

use super::snapshot_family::created;
use crate::disk_skus::Sku;
use crate::document::Document;
use crate::fault::{self, Fault};
use crate::path;
use crate::state::State;

const LEAST_MINUTES: u64 = 60;
const MOST_MINUTES: u64 = 300;

/// Whether disks can be made by instant access.
pub(crate) fn is_open(doc: &Value) -> bool {
    matches!(doc["properties"]["snapshotAccessState"].as_str(), Some("InstantAccess" | "AvailableWithInstantAccess"))
}

/// For how long instant access lasts, of `creationData`. `fits` says whether the snapshot can have it.
pub(super) fn minutes(data: &Value, fits: bool) -> Result<Option<u64>, Fault> {
    const PARAMETER: &str = "snapshot.creationData.instantAccessDurationMinutes";
    let Some(asked) = data.get("instantAccessDurationMinutes").filter(|asked| !asked.is_null()) else {
        return Ok(None);
    };
    let given = asked.as_u64().filter(|minutes| (LEAST_MINUTES..=MOST_MINUTES).contains(minutes));
    let Some(minutes) = given else {
        let (least, most) = (LEAST_MINUTES.to_string(), MOST_MINUTES.to_string());
        return Err(fault::out_of_range(PARAMETER, asked.to_string(), &*least, &*most));
    };
    if !fits {
        return Err(fault::no_instant_access());
    }
    Ok(Some(minutes))
}

/// The state of a new snapshot.
pub(super) fn first_state(is_copied: bool, minutes: Option<u64>) -> &'static str {
    match (is_copied, minutes) {
        (false, _) => "Available",
        (true, None) => "Pending",
        (true, Some(_)) => "InstantAccess",
    }
}

/// The content has come.
pub(super) fn complete(doc: &mut Document) {
    let state = &mut doc["properties"]["snapshotAccessState"];
    *state = match state.as_str() {
        None => return,
        Some("InstantAccess" | "AvailableWithInstantAccess") => json!("AvailableWithInstantAccess"),
        Some(_) => json!("Available"),
    };
}

/// The content will never come.
pub(super) fn lose(doc: &mut Document) {
    if doc["properties"].get("snapshotAccessState").is_some() {
        doc["properties"]["snapshotAccessState"] = json!("Pending");
    }
}

/// Ends the instant access of a snapshot in its time; `start` is the moment at which the emulator's clock began.
pub(crate) fn end_later(state: &mut State, id: &str, start: jiff::Timestamp) {
    let Some(doc) = state.store.document(id).filter(|doc| is_open(doc)) else {
        return;
    };
    let minutes = doc["properties"]["creationData"]["instantAccessDurationMinutes"].as_u64().unwrap_or(0);
    let since = created(&doc).unwrap_or(start).duration_since(start);
    let ends = since.as_secs().saturating_add(i64::try_from(minutes * 60).unwrap_or(i64::MAX));
    let (id, unique) = (id.to_owned(), doc["properties"]["uniqueId"].clone());
    let due = Duration::from_secs(u64::try_from(ends).unwrap_or(0));
    state.set_alarm(
        due,
        Box::new(move |state, at| {
            if state.store.document(&id).is_some_and(|doc| doc["properties"]["uniqueId"] == unique) {
                end(state, &id, at);
            }
        }),
    );
}

fn end(state: &mut State, id: &str, at: Duration) {
    state.store.change(id, at, |resource| {
        let state = &mut resource.doc["properties"]["snapshotAccessState"];
        match state.as_str() {
            Some("InstantAccess") => *state = json!("Pending"),
            Some("AvailableWithInstantAccess") => *state = json!("Available"),
            _ => {}
        }
    });
}

/// Refuses a disk that cannot be made by instant access.
pub(super) fn check_disk(source: &Value, sku: &Sku, bytes: u64) -> Result<(), Fault> {
    let id = path::of(source);
    if !sku.adjustable() {
        return Err(fault::instant_access_sku(id, sku.name));
    }
    if bytes > source["properties"]["diskSizeBytes"].as_u64().unwrap_or(0) {
        return Err(fault::instant_access_size(id));
    }
    Ok(())
}
