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

use super::copy_source::{self, percent};
use super::snapshot_family::{created, family, family_of};
use crate::answer::Context;
use crate::arm::descriptor::Draft;
use crate::arm::kinds;
use crate::document::Document;
use crate::fault::{self, Fault};
use crate::latency::OperationKind;
use crate::path;
use crate::state::State;

/// How much is copied at a time, in percent.
const STEP: u64 = 10;
/// Documented (disks-copy-incremental-snapshot-across-regions): at the same time, in a subscription and region.
const COPIES_MOST: usize = 100;

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

/// The source of a copy by `CopyStart`. Documented (disks-copy-incremental-snapshot-across-regions): the rules.
pub(super) fn source(draft: &Draft<'_>, incremental: bool) -> Result<Document, Fault> {
    let data = &draft.asked()["creationData"];
    let source = copy_source::named(draft.state, "snapshot", data)?;
    if source["type"] != kinds::SNAPSHOT {
        return Err(fault::source_of_another_type("snapshot.creationData.sourceResourceId"));
    }
    if !incremental || source["properties"]["incremental"] != true {
        return Err(fault::copy_of_full_snapshot());
    }
    if source["location"] == draft.location && !draft.switches.copy_start_in_region {
        return Err(fault::copy_in_region(draft.location));
    }
    copy_source::check_ready(draft.state, &source)?;
    let running: Vec<&Value> = draft.state.store.of_kind(kinds::SNAPSHOT).filter(|doc| runs(doc)).collect();
    let in_region = |doc: &&Value| {
        let subscription = path::subscription_of(path::of(doc));
        doc["location"] == draft.location && path::same(subscription, path::subscription_of(draft.id))
    };
    if running.iter().copied().filter(in_region).count() >= COPIES_MOST {
        return Err(fault::too_many_copies(COPIES_MOST));
    }
    let of = family_of(&source);
    let own = |doc: &&Value| {
        doc["properties"]["incrementalSnapshotFamilyId"] == of.as_str()
            && doc["properties"]["creationData"]["createOption"] == "CopyStart"
    };
    if let Some(other) = running.into_iter().find(own) {
        return Err(fault::copy_under_way(path::of(other)));
    }
    let later = |doc: &&Value| {
        let from = doc["properties"]["creationData"]["sourceResourceId"].as_str();
        let original = from.and_then(|from| draft.state.store.document(from));
        original.is_some_and(|original| created(&original) > created(&source))
    };
    match family(draft.state, &of, draft.location).filter(own).find(later) {
        Some(other) => Err(fault::copy_out_of_order(path::of(other))),
        None => Ok(source),
    }
}

/// Copies what a new snapshot is made of, from `begins` on.
pub(crate) fn begin(context: &mut Context<'_>, id: &str, begins: Duration) {
    let state = &mut *context.state;
    let Some(resource) = state.store.get(id).filter(|resource| runs(&resource.doc)) else {
        return;
    };
    let takes = state.draw(&context.shared.options, OperationKind::SnapshotCopy, id, resource.writes);
    let ends = context.shared.clock.at(begins + takes).as_second();
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
