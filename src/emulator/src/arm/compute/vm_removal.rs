//! The end of a machine, and of what goes with it.

use std::time::Duration;

use serde_json::Value;

use super::attachments::{self, release};
use crate::arm::engine;
use crate::path;
use crate::state::State;

/// Disks that a machine takes with it. Documented: `deleteOption`.
pub(crate) fn going_disks(doc: &Value) -> Vec<String> {
    let profile = &doc["properties"]["storageProfile"];
    profile["dataDisks"]
        .as_array()
        .into_iter()
        .flatten()
        .chain(std::iter::once(&profile["osDisk"]))
        .filter(|element| element["deleteOption"] == "Delete")
        .filter_map(|element| attachments::disk_of(element).map(str::to_owned))
        .collect()
}

/// Takes a machine away, with what its `deleteOption`s name.
pub(crate) fn remove(state: &mut State, id: &str, at: Duration) {
    let Some(doc) = state.store.vm(id) else {
        return;
    };
    let held = state.store.lun_map(id);
    // What others hold as well, or what an attach never got, is not this machine's to delete.
    let own = |disk: &String| state.store.disk(disk).is_some_and(|disk| attachments::only_by(&disk, id));
    let mut delete: Vec<String> = going_disks(&doc).into_iter().filter(own).collect();
    for (lun, disk) in held {
        release(state, id, lun, &disk, at);
    }
    let profile = &doc["properties"]["storageProfile"];
    let mut elements: Vec<&Value> = profile["dataDisks"].as_array().map(|e| e.iter().collect()).unwrap_or_default();
    elements.push(&profile["osDisk"]);
    for element in elements {
        let Some(disk) = attachments::disk_of(element) else {
            continue;
        };
        if element["lun"].is_null() {
            release(state, id, u8::MAX, disk, at);
        }
    }
    // What is below it goes with it: extension_views, and network interfaces of an instance.
    for below in state.store.below(id).into_iter().rev().filter(|below| !path::same(below, id)) {
        take_away(state, &below, at);
    }
    let nics = doc["properties"]["networkProfile"]["networkInterfaces"].as_array().cloned().unwrap_or_default();
    for nic in nics {
        let Some(nic_id) = nic["id"].as_str() else {
            continue;
        };
        if nic["properties"]["deleteOption"] == "Delete" {
            delete.push(nic_id.to_owned());
        } else {
            state.store.change(nic_id, at, |resource| {
                if let Some(properties) = resource.doc["properties"].as_object_mut() {
                    properties.shift_remove("virtualMachine");
                }
            });
        }
    }
    state.store.remove(id, at);
    for id in delete {
        take_away(state, &id, at);
    }
}

/// Takes a resource away as its type does.
fn take_away(state: &mut State, id: &str, at: Duration) {
    match state.store.get(id).and_then(|resource| state.types.of(&resource.doc)) {
        Some(descriptor) => engine::delete::remove(descriptor, state, id, at),
        None => drop(state.store.remove(id, at)),
    }
}
