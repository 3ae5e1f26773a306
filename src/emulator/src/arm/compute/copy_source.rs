//! What a disk or a snapshot is copied from.
//!
//! Documented: the source is a disk or a snapshot of the same region and of the same edge zone, is complete, and is no
//! larger than its copy. A copy whose size nobody asks for has the bytes of its source, which may be no whole GiB.

use serde_json::Value;

use super::background_copy::{has_failed, percent};
use crate::arm::{kinds, writes};
use crate::document::Document;
use crate::fault::{self, Fault};
use crate::options::SizeRounding;
use crate::path;
use crate::state::State;

const GIB: u64 = 1 << 30;

/// The source that `creationData` names, which is where a copy of this body is to be. `root` is the parameter that refusals
/// name: `disk` or `snapshot`.
pub(crate) fn find(state: &State, root: &str, body: &Value, location: &str) -> Result<Document, Fault> {
    let source = named(state, root, &body["properties"]["creationData"])?;
    if source["location"] != location {
        return Err(fault::source_in_another_region(path::name_of(path::of(&source))));
    }
    let (own, sources) = (edge_zone(body), edge_zone(&source));
    if !own.eq_ignore_ascii_case(sources) {
        return Err(fault::source_in_another_edge_zone(own, sources));
    }
    Ok(source)
}

/// The edge zone of a document or of a body; empty for the region itself.
pub(crate) fn edge_zone(doc: &Value) -> &str {
    doc["extendedLocation"]["name"].as_str().unwrap_or("")
}

/// The same in any region and any state.
pub(crate) fn named(state: &State, root: &str, data: &Value) -> Result<Document, Fault> {
    let parameter = format!("{root}.creationData.sourceResourceId");
    // Documented of the first api-version: with Copy, `sourceUri` is the id of what is copied. Unverified for newer ones.
    let Some(id) = ["sourceResourceId", "sourceUri"].iter().find_map(|member| data[*member].as_str()) else {
        return Err(fault::missing_parameter(parameter));
    };
    if !id.to_ascii_lowercase().starts_with("/subscriptions/") {
        return Err(fault::not_a_resource_id(parameter, id));
    }
    let Some(source) = state.store.document(id) else {
        let kind = id.rsplit('/').nth(1).unwrap_or("disks");
        let kind = format!("Microsoft.Compute/{kind}");
        return Err(fault::resource_not_found(kind, path::name_of(id), path::group_of(id)));
    };
    if source["type"] != kinds::DISK && source["type"] != kinds::SNAPSHOT {
        return Err(fault::source_of_another_type(parameter));
    }
    Ok(source)
}

/// Refuses a source that is being created or deleted.
pub(crate) fn check_stands(state: &State, source: &Value) -> Result<(), Fault> {
    let refuse = |why: &str| Err(fault::source_not_ready(path::of(source), why));
    match source["properties"]["provisioningState"].as_str() {
        Some("Deleting") => refuse("it is being deleted"),
        Some("Updating") if is_being_created(state, source) => refuse("it is being created"),
        _ if has_failed(source) => refuse("its background copy has failed"),
        _ => Ok(()),
    }
}

/// The same, and one whose content has not come yet. Of a disk that is unverified.
pub(crate) fn check_ready(state: &State, source: &Value) -> Result<(), Fault> {
    check_stands(state, source)?;
    if source["type"] == kinds::DISK && state.switches.filling_disk_is_source {
        return Ok(());
    }
    match percent(source) {
        Some(percent) if percent < 100 => {
            let why = format!("its copy is {percent} percent complete");
            Err(fault::source_not_ready(path::of(source), why))
        }
        _ => Ok(()),
    }
}

/// Whether the creation of a disk or snapshot has not ended. A change keeps the new document back, a creation not.
pub(crate) fn is_being_created(state: &State, doc: &Value) -> bool {
    doc["properties"]["provisioningState"] == "Updating"
        && state.store.get(path::of(doc)).is_some_and(|resource| resource.next.is_none())
}

/// How large a disk or snapshot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    /// `diskSizeGB`.
    pub(crate) gib: u64,
    /// `diskSizeBytes`.
    pub(crate) bytes: u64,
}

impl Size {
    /// Of whole GiB.
    pub(crate) const fn whole(gib: u64) -> Self {
        Self { gib, bytes: gib.saturating_mul(GIB) }
    }

    /// Of bytes, named in GiB as the switch says.
    pub(crate) const fn exact(bytes: u64, rounding: SizeRounding) -> Self {
        let gib = match rounding {
            SizeRounding::Down => bytes / GIB,
            SizeRounding::Up => bytes.div_ceil(GIB),
        };
        Self { gib: if gib == 0 { 1 } else { gib }, bytes }
    }

    /// Of a document.
    pub(crate) fn of(doc: &Value) -> Self {
        let gib = doc["properties"]["diskSizeGB"].as_u64().unwrap_or(1);
        Self { gib, bytes: doc["properties"]["diskSizeBytes"].as_u64().unwrap_or(gib * GIB) }
    }
}

/// How large a copy becomes.
pub(crate) fn size(root: &str, asked: Option<u64>, source: &Value) -> Result<Size, Fault> {
    let least = Size::of(source);
    match asked.map(Size::whole) {
        Some(size) if size.bytes < least.bytes => Err(fault::smaller_than_source(root, size.gib, least.gib)),
        Some(size) => Ok(size),
        None => Ok(least),
    }
}

/// Gives a copy what it has of its source, where it was not asked for: which one it was, and its system's facts.
pub(crate) fn hand_down(properties: &mut Value, source: &Value) {
    const MEMBERS: [&str; 6] = [
        "osType",
        "hyperVGeneration",
        "purchasePlan",
        "supportedCapabilities",
        "supportsHibernation",
        "securityProfile",
    ];
    let from = &source["properties"];
    properties["creationData"]["sourceUniqueId"] = from["uniqueId"].clone();
    let inherited = writes::with(Value::Object(serde_json::Map::new()), &MEMBERS, from);
    *properties = writes::with_others(properties.take(), &inherited);
}
