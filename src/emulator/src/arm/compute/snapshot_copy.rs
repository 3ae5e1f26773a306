//! Background copies of snapshots: `completionPercent`, from the end of the creation until the content is there.
//!
//! ```text
//!  PUT 202 ──▶ Succeeded, 0 % ──▶ 10 % … 90 % ──▶ 100 %, snapshotAccessState Available
//!                     └── source deleted ──▶ copyCompletionError CopySourceNotFound
//! ```
//!
//! Documented: copies by `CopyStart`, and snapshots of Ultra and Premium v2 disks, are filled like this, and cannot be
//! used before they are; the error. Unverified: that the percentage grows evenly, by tens.

use std::time::Duration;

use serde_json::{Value, json};

use crate::answer::Context;
use crate::arm::kinds;
use crate::latency::OperationKind;
use crate::path;
use crate::state::State;

/// How much is copied at a time, in percent.
const STEP: u64 = 10;

/// How much of a snapshot has been copied; `None` where nothing is copied in the background.
pub(crate) fn percent(doc: &Value) -> Option<u64> {
    doc["properties"]["completionPercent"].as_u64()
}

/// Whether the background copy of a snapshot runs.
pub(crate) fn runs(doc: &Value) -> bool {
    percent(doc).is_some_and(|percent| percent < 100) && doc["properties"].get("copyCompletionError").is_none()
}

/// The snapshots that a background copy of this one is filling.
pub(crate) fn copies_of<'a>(state: &'a State, source: &'a str) -> impl Iterator<Item = &'a Value> {
    state.store.of_kind(kinds::SNAPSHOT).filter(move |doc| {
        let data = &doc["properties"]["creationData"];
        let from = data["sourceResourceId"].as_str().is_some_and(|from| path::same(from, source));
        from && data["createOption"] == "CopyStart" && runs(doc)
    })
}

/// Copies what a new snapshot is made of, from `begins` on.
pub(crate) fn begin(context: &mut Context<'_>, id: &str, begins: Duration) {
    let state = &mut *context.state;
    let Some(resource) = state.store.get(id).filter(|resource| runs(&resource.doc)) else {
        return;
    };
    let takes = state.draw(&context.shared.options, OperationKind::SnapshotCopy, id, resource.writes);
    let ends = context.shared.clock.at(begins + takes).unix_timestamp();
    state.store.change(id, context.now, |resource| resource.copy_ends = Some(ends));
    go_on(state, id, begins, takes);
}

/// Goes on with a copy for which so much time is left at the moment `from`.
pub(crate) fn go_on(state: &mut State, id: &str, from: Duration, left: Duration) {
    let Some(doc) = state.store.document(id).filter(|doc| runs(doc)) else {
        return;
    };
    let steps = (100 - percent(&doc).unwrap_or(0)).div_ceil(STEP);
    let step = left / u32::try_from(steps).unwrap_or(1);
    let (id, unique) = (id.to_owned(), doc["properties"]["uniqueId"].clone());
    let advance = move |state: &mut State, at: Duration| {
        // Another snapshot may have its name by now.
        if state.store.document(&id).is_some_and(|doc| doc["properties"]["uniqueId"] == unique && runs(&doc)) {
            advance(state, &id, at);
            go_on(state, &id, at, left - step);
        }
    };
    state.set_alarm(from + step, Box::new(advance));
}

fn advance(state: &mut State, id: &str, at: Duration) {
    state.store.change(id, at, |resource| {
        let percent = percent(&resource.doc).unwrap_or(0).saturating_add(STEP).min(100);
        resource.doc["properties"]["completionPercent"] = json!(percent);
        if percent == 100 {
            resource.doc["properties"]["snapshotAccessState"] = json!("Available");
            resource.copy_ends = None;
        }
    });
}

/// The snapshot is gone: its background copies fail.
pub(crate) fn fail_copies_of(state: &mut State, source: &str, at: Duration) {
    let copies: Vec<String> = copies_of(state, source).map(|doc| path::of(doc).to_owned()).collect();
    for copy in copies {
        state.store.change(&copy, at, |resource| {
            resource.copy_ends = None;
            resource.doc["properties"]["copyCompletionError"] = json!({
                "errorCode": "CopySourceNotFound",
                "errorMessage": format!("The source snapshot {source} was deleted before its copy was complete."),
            });
        });
    }
}
