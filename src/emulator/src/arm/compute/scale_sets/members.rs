//! The machines of a set: who they are, and what becomes of the set when one of them changes or goes.

use std::time::Duration;

use serde_json::{Value, json};

use crate::arm::compute::vm_removal;
use crate::arm::kinds;
use crate::path;
use crate::state::State;
use crate::store::Store;

/// Whether the instances of a set are virtual machines of their own.
pub(crate) fn is_flexible(set: &Value) -> bool {
    set["properties"]["orchestrationMode"] == "Flexible"
}

/// How many instances a set shall have.
pub(crate) fn capacity(set: &Value) -> usize {
    set["sku"]["capacity"].as_u64().and_then(|capacity| usize::try_from(capacity).ok()).unwrap_or(0)
}

/// The ids of a set's instances, also of those that are being deleted.
pub(crate) fn all_members(state: &State, set: &Value) -> Vec<String> {
    let id = path::of(set);
    if !is_flexible(set) {
        return state.store.below_of_kind(id, kinds::INSTANCE).map(|resource| resource.id().to_owned()).collect();
    }
    let machines = state.store.of_kind(kinds::MACHINE);
    machines.filter(|vm| set_of(vm).is_some_and(|own| path::same(own, id))).map(|vm| path::of(vm).to_owned()).collect()
}

/// The ids of a set's instances that are not being deleted.
pub(crate) fn members(state: &State, set: &Value) -> Vec<String> {
    let mut members = all_members(state, set);
    members.retain(|id| state.store.get(id).is_some_and(|resource| resource.provisioning() != "Deleting"));
    members
}

/// The set of an instance, or of a virtual machine that is one.
pub(crate) fn set_of(machine: &Value) -> Option<&str> {
    if machine["type"] == kinds::INSTANCE {
        return Some(path::parent_of(path::of(machine)));
    }
    machine["properties"]["virtualMachineScaleSet"]["id"].as_str()
}

/// Gives the set of a uniform instance a new etag: a write of the instance does that (documented by
/// cloud-provider-azure's notes on stale etags). When exactly is unverified: here at acceptance and at the end.
pub(crate) fn touch(state: &mut State, machine: &str, at: Duration) {
    let is_instance = state.store.get(machine).is_some_and(|resource| resource.doc["type"] == kinds::INSTANCE);
    if is_instance {
        let set = path::parent_of(machine).to_owned();
        count_change(state, &set, at, |_| ());
    }
}

/// Changes the document of a set, which counts.
pub(crate) fn count_change(state: &mut State, set: &str, at: Duration, change: impl FnOnce(&mut Value)) {
    state.store.change(set, at, |resource| {
        let had = resource.doc["etag"].as_str().and_then(|etag| etag.trim_matches('"').parse::<u64>().ok());
        resource.doc["etag"] = json!(format!("\"{}\"", had.unwrap_or(0) + 1));
        change(&mut resource.doc);
    });
}

/// Takes machines away. Documented: the capacity of their set follows.
pub(crate) fn lose(state: &mut State, machines: &[&str], at: Duration) {
    for id in machines {
        let set = state.store.document(id).and_then(|doc| set_of(&doc).map(str::to_owned));
        vm_removal::remove(state, id, at);
        let Some(set) = set.and_then(|set| state.store.document(&set)) else {
            continue;
        };
        let left = members(state, &set).len();
        count_change(state, path::of(&set), at, |doc| doc["sku"]["capacity"] = json!(left));
    }
}

/// Whether an operation of its own works on a machine.
pub(crate) fn is_busy(state: &State, machine: &str) -> bool {
    let machine = state.store.get(machine).and_then(|resource| resource.machine.as_ref());
    machine.and_then(|machine| machine.busy.as_deref()).is_some_and(|busy| state.operations.is_running(busy))
}

/// Fault and update domain. Unverified: dealt out in turn; with one fault domain, which is called maximum spreading,
/// all are in it.
pub(crate) fn domains(store: &Store, doc: &Value) -> (usize, usize) {
    let number: usize = doc["instanceId"].as_str().and_then(|number| number.parse().ok()).unwrap_or(0);
    let set = set_of(doc).and_then(|set| store.document(set)).unwrap_or_default();
    let faults = set["properties"]["platformFaultDomainCount"].as_u64().and_then(|count| usize::try_from(count).ok());
    (number % faults.unwrap_or(5).max(1), number % 5)
}
