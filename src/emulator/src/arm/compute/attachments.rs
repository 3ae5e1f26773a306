//! Which machine holds which disk: what a disk's document says of it, and what a machine's hypervisor has.
//!
//! Both change together and only here. Whether they may change is not decided here.

use std::time::Duration;

use serde_json::{Value, json};

use crate::arm::kinds::MACHINE;
use crate::blob::vhd;
use crate::fault::{self, Fault};
use crate::path;
use crate::state::State;
use crate::store::Power;

/// The machines that hold a disk.
pub(crate) fn owners(doc: &Value) -> Vec<String> {
    let mut owners: Vec<String> = doc["managedByExtended"]
        .as_array()
        .map(|ids| ids.iter().filter_map(|id| id.as_str().map(str::to_owned)).collect())
        .unwrap_or_default();
    if let Some(id) = doc["managedBy"].as_str()
        && !owners.iter().any(|owner| path::same(owner, id))
    {
        owners.insert(0, id.to_owned());
    }
    owners
}

/// The disk that an element of a machine's model names.
pub(crate) fn disk_of(element: &Value) -> Option<&str> {
    element["managedDisk"]["id"].as_str()
}

/// The disk or the blob that an element of a machine's model names.
pub(crate) fn named_by(element: &Value) -> Option<&str> {
    disk_of(element).or_else(|| element["vhd"]["uri"].as_str())
}

/// The blob that an element asks for, with its size in GiB.
pub(crate) fn empty_blob(element: &Value) -> Option<(String, u64)> {
    let uri = element["vhd"]["uri"].as_str().filter(|_| element["createOption"] == "Empty")?;
    Some((uri.to_owned(), element["diskSizeGB"].as_u64()?))
}

/// Refuses a machine whose disks are blobs, where the cloud has retired these. Documented but for the code.
pub(crate) fn refuse_retired(state: &State, machine: &Value) -> Result<(), Fault> {
    let profile = &machine["properties"]["storageProfile"];
    let mut all = profile["dataDisks"].as_array().into_iter().flatten().chain(std::iter::once(&profile["osDisk"]));
    match state.switches.unmanaged_disks_retired && all.any(|element| element["vhd"].is_object()) {
        true => Err(fault::bad_request("Unmanaged disks have been retired.")),
        false => Ok(()),
    }
}

/// At the end of an attach: the disk may be gone or attached elsewhere by now. Documented: the late form
/// of the error.
pub(crate) fn still_free(state: &State, vm: &str, disk: &str) -> Result<(), Fault> {
    if vhd::is_address(disk) {
        return vhd::still_free(state, vm, disk);
    }
    let Some(doc) = state.store.disk(disk) else {
        return Err(fault::disk_not_found(path::name_of(disk)));
    };
    let holders = owners(&doc);
    let most = doc["properties"]["maxShares"].as_u64().unwrap_or(1);
    let other = holders.iter().find(|holder| !path::same(holder, vm));
    match other {
        Some(other) if holders.len() as u64 >= most => Err(fault::owned_by(disk, other)),
        _ => Ok(()),
    }
}

/// At the end of a write: the machine exists, and the disks that it attaches are still free. It may have been deleted
/// with its group since the write was accepted.
pub(crate) fn all_free(state: &State, vm: &str, attach: &[(u8, String)]) -> Result<(), Fault> {
    if !state.store.contains(vm) {
        return Err(fault::resource_not_found(MACHINE, path::machine_name(vm), path::group_of(vm)));
    }
    attach.iter().try_for_each(|(_, disk)| still_free(state, vm, disk))
}

/// The machine's hypervisor now holds the disk.
pub(crate) fn take(state: &mut State, vm: &str, lun: u8, disk: &str, at: Duration) {
    let id = state.store.get(disk).map_or(disk.to_owned(), |r| r.id().to_owned());
    state.store.change(vm, at, |resource| {
        if let Some(machine) = &mut resource.machine {
            machine.attached.insert(lun, id);
        }
    });
    state.remember_luns(vm, at);
    if vhd::is_address(disk) {
        vhd::take(state, vm, disk, at);
        return;
    }
    state.store.change(disk, at, |resource| {
        let doc = &mut resource.doc;
        let shared = doc["properties"]["maxShares"].as_u64().unwrap_or(1) > 1;
        if shared {
            let mut holders = owners(doc);
            holders.push(vm.to_owned());
            set_holders(doc, &holders);
        } else {
            doc["managedBy"] = json!(vm);
        }
    });
    stamp(state, disk, at);
    mark(state, disk, at);
}

/// The machine's hypervisor has released the disk.
pub(crate) fn release(state: &mut State, vm: &str, lun: u8, disk: &str, at: Duration) {
    state.store.change(vm, at, |resource| {
        if let Some(machine) = &mut resource.machine {
            machine.attached.remove(&lun);
        }
    });
    state.remember_luns(vm, at);
    if vhd::is_address(disk) {
        vhd::release(state, vm, disk, at);
        return;
    }
    let held = state.store.disk(disk).is_some_and(|doc| owners(&doc).iter().any(|holder| path::same(holder, vm)));
    state.store.change(disk, at, |resource| {
        let doc = &mut resource.doc;
        let (own, holders): (Vec<String>, Vec<String>) =
            owners(doc).into_iter().partition(|holder| path::same(holder, vm));
        // An attach that was preempted or failed never held it; the machine that holds it keeps it.
        if own.is_empty() && !holders.is_empty() {
            return;
        }
        if doc["properties"]["maxShares"].as_u64().unwrap_or(1) > 1 && !holders.is_empty() {
            set_holders(doc, &holders);
        } else if let Some(object) = doc.as_object_mut() {
            object.shift_remove("managedBy");
            object.shift_remove("managedByExtended");
            if let Some(properties) = object.get_mut("properties").and_then(Value::as_object_mut) {
                properties.shift_remove("shareInfo");
            }
        }
    });
    if held {
        stamp(state, disk, at);
    }
    mark(state, disk, at);
}

/// What a machine had before the end of its write, and does not have after it: the blob was a device for a while.
pub(crate) fn give_back(state: &mut State, vm: &str, disk: &str, at: Duration) {
    if vhd::is_address(disk) && !state.store.lun_map(vm).values().any(|held| held == disk) {
        vhd::release(state, vm, disk, at);
    }
}

/// Documented: `LastOwnershipUpdateTime` is when the disk was last attached to a machine or detached from one, or when
/// its machine was deallocated or started.
fn stamp(state: &mut State, disk: &str, at: Duration) {
    let stamp = state.stamp(at);
    state.store.change(disk, at, |resource| {
        resource.doc["properties"]["LastOwnershipUpdateTime"] = json!(stamp);
    });
}

/// Documented: a shared disk names its machines in `managedByExtended` and `shareInfo`.
fn set_holders(doc: &mut Value, holders: &[String]) {
    if let Some(first) = holders.first() {
        doc["managedBy"] = json!(first);
    }
    doc["managedByExtended"] = json!(holders);
    doc["properties"]["shareInfo"] = holders.iter().map(|vm| json!({ "vmUri": vm })).collect::<Vec<_>>().into();
}

/// The state of a disk that machines hold. Documented: `Reserved` while they are deallocated. Of a shared disk
/// that is unverified: while all of them are.
pub(crate) fn state_word(state: &State, holders: &[String]) -> &'static str {
    let deallocated = |vm: &String| state.store.power(vm) == Some(Power::Deallocated);
    match holders {
        [] => "Unattached",
        holders if holders.iter().all(deallocated) => "Reserved",
        _ => "Attached",
    }
}

/// Brings the state of a disk in line with the machines that hold it. A signature that is out stays out.
fn mark(state: &mut State, disk: &str, at: Duration) {
    let holders = state.store.disk(disk).map(|doc| owners(&doc)).unwrap_or_default();
    let word = state_word(state, &holders);
    state.store.change(disk, at, |resource| {
        let shown = &mut resource.doc["properties"]["diskState"];
        if !matches!(shown.as_str(), Some("ActiveSAS" | "ActiveUpload" | "ReadyToUpload")) {
            *shown = json!(word);
        }
    });
}

/// Brings the states of all disks of a machine in line with its power.
pub(crate) fn mark_disks(state: &mut State, vm: &str, at: Duration) {
    let mut held: Vec<String> = state.store.lun_map(vm).into_values().collect();
    if let Some(doc) = state.store.vm(vm)
        && let Some(os) = disk_of(&doc["properties"]["storageProfile"]["osDisk"])
    {
        held.push(os.to_owned());
    }
    for disk in held {
        let word = |state: &State| state.store.disk(&disk).map(|doc| doc["properties"]["diskState"].clone());
        let before = word(state);
        mark(state, &disk, at);
        // Unverified: the start of a machine that was switched off and not deallocated is no change of ownership.
        if word(state) != before {
            stamp(state, &disk, at);
        }
    }
}

/// What a machine's model shows and its hypervisor does not hold: a failed attach left it there.
pub(crate) fn wanted(state: &State, vm: &str) -> Vec<(u8, String)> {
    let held = state.store.lun_map(vm);
    let doc = state.store.vm(vm).unwrap_or_default();
    let elements = doc["properties"]["storageProfile"]["dataDisks"].as_array().into_iter().flatten();
    let staying = elements.filter(|element| element["toBeDetached"] != json!(true));
    staying
        .filter_map(|element| {
            let lun = u8::try_from(element["lun"].as_u64()?).ok().filter(|lun| !held.contains_key(lun))?;
            Some((lun, named_by(element)?.to_owned()))
        })
        .collect()
}

/// Whether no machine but this one holds a disk.
pub(crate) fn only_by(doc: &Value, vm: &str) -> bool {
    let holders = owners(doc);
    !holders.is_empty() && holders.iter().all(|holder| path::same(holder, vm))
}
