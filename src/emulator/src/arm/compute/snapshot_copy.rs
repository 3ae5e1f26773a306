//! Copies of snapshots by `CopyStart`, and which background copies of snapshots depend on what.
//!
//! Documented (disks-copy-incremental-snapshot-across-regions): the rules, and the error of a copy whose source is deleted.

use std::time::Duration;

use serde_json::{Value, json};

use super::background_copy::runs;
use super::snapshot_family::{created, family, family_of};
use super::{copy_source, instant_access};
use crate::arm::descriptor::Draft;
use crate::arm::kinds;
use crate::document::Document;
use crate::fault::{self, Fault};
use crate::options::FailedSnapshot;
use crate::path;
use crate::state::State;

/// Documented (disks-copy-incremental-snapshot-across-regions): at the same time, in a subscription and region.
const COPIES_MOST: usize = 100;

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
    let by_copy_start = |doc: &&Value| doc["properties"]["creationData"]["createOption"] == "CopyStart" && runs(doc);
    let running: Vec<&Value> = draft.state.store.of_kind(kinds::SNAPSHOT).filter(by_copy_start).collect();
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

/// The snapshots of a disk whose content is still being copied from it.
pub(crate) fn pending_of<'a>(state: &'a State, disk: &'a Value) -> impl Iterator<Item = &'a Value> {
    let unique = &disk["properties"]["uniqueId"];
    state.store.of_kind(kinds::SNAPSHOT).filter(move |doc| {
        let data = &doc["properties"]["creationData"];
        data["createOption"] == "Copy" && data["sourceUniqueId"] == *unique && runs(doc)
    })
}

/// A snapshot is gone: its background copies fail. Documented: with this error.
pub(crate) fn fail_copies_of(state: &mut State, source: &str, at: Duration) {
    let copies: Vec<String> = copies_of(state, source).map(|doc| path::of(doc).to_owned()).collect();
    for copy in copies {
        let why = format!("The source snapshot {source} was deleted before its copy was complete.");
        fail(state, &copy, at, Some(why));
    }
}

/// A disk has grown, or is gone: the snapshots whose content was still being copied from it fail. Documented of a disk that
/// grows (disks-incremental-snapshots). Unverified of one that is deleted, and what a snapshot shows then.
pub(crate) fn fail_pending_of(state: &mut State, disk: &Value, at: Duration) {
    let pending: Vec<String> = pending_of(state, disk).map(|doc| path::of(doc).to_owned()).collect();
    for snapshot in pending {
        let why = match state.switches.failed_snapshot_shows {
            FailedSnapshot::CopyError => {
                let disk = path::of(disk);
                Some(format!("The source disk {disk} was changed or deleted before the background copy was complete."))
            }
            FailedSnapshot::State => None,
        };
        fail(state, &snapshot, at, why);
    }
}

fn fail(state: &mut State, snapshot: &str, at: Duration, why: Option<String>) {
    state.store.change(snapshot, at, |resource| {
        resource.copy_ends = None;
        instant_access::lose(&mut resource.doc);
        match why {
            Some(why) => {
                resource.doc["properties"]["copyCompletionError"] =
                    json!({ "errorCode": "CopySourceNotFound", "errorMessage": why });
            }
            None => resource.set_provisioning("Failed"),
        }
    });
}
