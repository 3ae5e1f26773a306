//! What a disk or a snapshot is copied from.
//!
//! Documented: the source is a disk or a snapshot of the same region, is complete, and is no larger than its copy.

use serde_json::Value;

use crate::arm::{kinds, writes};
use crate::disk_skus::Sku;
use crate::document::Document;
use crate::fault::{self, Fault};
use crate::path;
use crate::state::State;

/// The source that `creationData` names, which a copy in `location` can use now. `root` is the parameter that
/// refusals name: `disk` or `snapshot`.
pub(crate) fn find(state: &State, root: &str, data: &Value, location: &str) -> Result<Document, Fault> {
    let source = named(state, root, data)?;
    if source["location"] != location {
        return Err(fault::source_in_another_region(path::name_of(path::of(&source))));
    }
    check_ready(state, &source)?;
    Ok(source)
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

/// Refuses a source that is being created or deleted, or whose content has not come yet.
pub(crate) fn check_ready(state: &State, source: &Value) -> Result<(), Fault> {
    let id = path::of(source);
    let refuse = |why: String| Err(fault::source_not_ready(id, why));
    match source["properties"]["provisioningState"].as_str() {
        Some("Deleting") => refuse("it is being deleted".to_owned()),
        Some("Updating") if is_being_created(state, source) => refuse("it is being created".to_owned()),
        _ => match percent(source) {
            Some(percent) if percent < 100 => refuse(format!("its copy is {percent} percent complete")),
            _ => Ok(()),
        },
    }
}

/// How much of a snapshot has been copied; `None` where nothing is copied in the background.
pub(crate) fn percent(doc: &Value) -> Option<u64> {
    doc["properties"]["completionPercent"].as_u64()
}

/// Whether the creation of a disk or snapshot has not ended. A change keeps the new document back, a creation not.
pub(crate) fn is_being_created(state: &State, doc: &Value) -> bool {
    doc["properties"]["provisioningState"] == "Updating"
        && state.store.get(path::of(doc)).is_some_and(|resource| resource.next.is_none())
}

/// How large a copy becomes, in GiB.
pub(crate) fn size(root: &str, asked: Option<u64>, source: &Value) -> Result<u64, Fault> {
    let least = source["properties"]["diskSizeGB"].as_u64().unwrap_or(1);
    match asked {
        Some(gib) if gib < least => Err(fault::smaller_than_source(root, gib, least)),
        asked => Ok(asked.unwrap_or(least)),
    }
}

/// Documented: a snapshot of a disk with sectors of 4096 bytes makes disks that can have them, and no others.
pub(crate) fn check_sector_size(source: &Value, sku: &Sku) -> Result<(), Fault> {
    let large = source["properties"]["creationData"]["logicalSectorSize"] == 4096;
    if large && source["type"] == kinds::SNAPSHOT && !sku.adjustable() {
        return Err(fault::sectors_of_snapshot(path::of(source), sku.name));
    }
    Ok(())
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
