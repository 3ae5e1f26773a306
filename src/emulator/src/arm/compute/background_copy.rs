//! Content that comes after an operation has ended: `completionPercent` of snapshots and disks.
//!
//! ```text
//!  write 202 ──▶ Succeeded, 0 % ──▶ 10 % … 90 % ──▶ 100 %
//!                     └── what it comes from is lost ──▶ failed, for good
//! ```
//!
//! | resource | when | evidence |
//! |---|---|---|
//! | snapshot | copied by `CopyStart`; incremental one of an Ultra or Premium v2 disk | D |
//! | disk | Ultra or Premium v2, made from a snapshot | D (disks-incremental-snapshots), from a disk U |
//! | disk | converted to Premium v2 | D (disks-convert-types) |
//! | another incremental snapshot | never: it shows 100 from the start | D (disks-incremental-snapshots) |
//! | any other | never: it shows none | U of disks, R of full snapshots |
//!
//! Unverified: that the percentage grows evenly, by tens, and stays at 100; how long a disk takes.

use std::time::Duration;

use serde_json::{Value, json};

use super::instant_access;
use crate::answer::Context;
use crate::latency::OperationKind;
use crate::state::State;
use crate::store::Resource;

/// How much is copied at a time, in percent.
const STEP: u64 = 10;
/// By so much a disk made by instant access is filled faster. Documented (disks-instant-access-snapshots) that it is
/// filled rapidly; the figure is the emulator's own.
pub(crate) const INSTANT: u32 = 10;

/// How much has been copied; `None` where nothing is copied in the background.
pub(crate) fn percent(doc: &Value) -> Option<u64> {
    doc["properties"]["completionPercent"].as_u64()
}

/// Whether a background copy runs.
pub(crate) fn runs(doc: &Value) -> bool {
    percent(doc).is_some_and(|percent| percent < 100) && !has_failed(doc)
}

/// Whether it has failed.
pub(crate) fn has_failed(doc: &Value) -> bool {
    doc["properties"].get("copyCompletionError").is_some() || doc["properties"]["provisioningState"] == "Failed"
}

/// What a resource shows when the write in flight has ended, if something is copied into it then. A creation shows it at
/// once. What fails meanwhile stands in the document that is shown.
fn announced(resource: &Resource) -> Option<&Value> {
    let doc = resource.next.as_ref().unwrap_or(&resource.doc);
    Some(doc).filter(|doc| runs(doc) && !has_failed(&resource.doc))
}

/// Copies what a write has announced, from `begins` on, so many times faster than usual.
pub(crate) fn begin(context: &mut Context<'_>, id: &str, begins: Duration, faster: u32) {
    let state = &mut *context.state;
    let Some((resource, announced)) = state.store.get(id).and_then(|resource| Some((resource, announced(resource)?)))
    else {
        return;
    };
    let unique = announced["properties"]["uniqueId"].clone();
    let done = percent(announced).unwrap_or(0);
    let takes = state.draw(&context.shared.options, OperationKind::SnapshotCopy, id, resource.writes) / faster.max(1);
    let ends = context.shared.clock.at(begins + takes).as_second();
    state.store.change(id, context.now, |resource| resource.copy_ends = Some(ends));
    step(state, id, unique, (begins, takes, done));
}

/// Goes on with a copy for which so much time is left at the moment `from`.
pub(crate) fn go_on(state: &mut State, id: &str, from: Duration, left: Duration) {
    let Some(doc) = state.store.get(id).and_then(announced) else {
        return;
    };
    let (unique, done) = (doc["properties"]["uniqueId"].clone(), percent(doc).unwrap_or(0));
    step(state, id, unique, (from, left, done));
}

fn step(state: &mut State, id: &str, unique: Value, (from, left, done): (Duration, Duration, u64)) {
    let steps = 100_u64.saturating_sub(done).div_ceil(STEP);
    let step = left / u32::try_from(steps).unwrap_or(1).max(1);
    let id = id.to_owned();
    let advance = move |state: &mut State, at: Duration| {
        // Another resource may have its name by now.
        let is_same = |doc: &Value| doc["properties"]["uniqueId"] == unique;
        if state.store.get(&id).and_then(announced).is_some_and(is_same) {
            advance(state, &id, at);
            go_on(state, &id, at, left.saturating_sub(step));
        }
    };
    state.set_alarm(from + step, Box::new(advance));
}

fn advance(state: &mut State, id: &str, at: Duration) {
    let next = |doc: &Value| percent(doc).map(|percent| percent.saturating_add(STEP).min(100));
    state.store.change(id, at, |resource| {
        // The document that a write in flight holds back has it too.
        let held_back = resource.next.as_mut().and_then(|doc| Some((next(doc)?, doc)));
        let held_back = held_back.map(|(percent, doc)| {
            doc["properties"]["completionPercent"] = json!(percent);
            percent
        });
        let shown = next(&resource.doc);
        if let Some(percent) = shown {
            resource.doc["properties"]["completionPercent"] = json!(percent);
        }
        if shown.or(held_back) == Some(100) {
            instant_access::complete(&mut resource.doc);
            resource.copy_ends = None;
        }
    });
}
