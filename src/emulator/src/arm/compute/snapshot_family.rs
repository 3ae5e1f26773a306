//! Incremental snapshots of one disk: their family, and the order in which they were made.

use jiff::Timestamp;
use serde_json::Value;

use crate::arm::kinds;
use crate::state::State;

/// Documented: incremental snapshots of a disk share a family.
pub(crate) fn family_of(source: &Value) -> String {
    let own = &source["properties"]["incrementalSnapshotFamilyId"];
    let unique = source["properties"]["uniqueId"].as_str().unwrap_or("");
    own.as_str().map_or_else(|| crate::derived::guid_of(&format!("{unique}/snapshots")), str::to_owned)
}

/// Snapshots of a family in a region.
pub(crate) fn family<'a>(state: &'a State, family: &'a str, location: &'a str) -> impl Iterator<Item = &'a Value> {
    state
        .store
        .of_kind(kinds::SNAPSHOT)
        .filter(move |doc| doc["properties"]["incrementalSnapshotFamilyId"] == family && doc["location"] == location)
}

/// When a snapshot was created.
pub(crate) fn created(doc: &Value) -> Option<Timestamp> {
    doc["properties"]["timeCreated"].as_str()?.parse().ok()
}
