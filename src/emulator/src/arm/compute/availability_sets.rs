//! Availability sets. Recorded: PUT answers 200 at once; a GET adds `virtualMachines`. Documented: the defaults are
//! 2 fault and 5 update domains; PATCH changes tags; DELETE answers 200, and 409 while machines are in the set.

use serde_json::{Value, json};

use crate::arm::compute::base::{OF_MACHINES, RESOURCE, VM_FAMILY};
use crate::arm::descriptor::{BackReference, By, Descriptor, Draft, Form, Hooks, InUse, Writers};
use crate::arm::protocol::{Answered, Commit, Patch, Put, Schema, Shape, Stamps};
use crate::arm::{kinds, writes};
use crate::fault;
use crate::store::Store;

const SCHEMA: Schema = Schema { name: "AvailabilitySet", root: "availabilitySet" };
const DONE: Answered = Answered::new(200, Shape::Synchronous);

pub(crate) static AVAILABILITY_SET: Descriptor = Descriptor {
    kind: kinds::SET,
    path: "availabilitySets",
    family: &VM_FAMILY,
    headers: OF_MACHINES,
    schema: SCHEMA,
    layout: &["name", "id", "type", "location", "tags", "properties", "sku"],
    stamps: Stamps::Nothing,
    put: Put { created: DONE, updated: |_| DONE, running: |_| "", commit: Commit::AtOnce },
    patch: Patch::Tags { operation: "update", schema: SCHEMA },
    delete: DONE,
    writers: Writers::Together,
    in_use: &[InUse { by: By::References, fault: |set, _| fault::set_in_use(set["name"].as_str().unwrap_or("")) }],
    shows: &[BackReference { member: "virtualMachines", from: kinds::MACHINE, form: Form::Many }],
    hooks: Hooks { name: writes::check_name, complete, ..Hooks::NONE },
    ..RESOURCE
};

/// Recorded members.
fn complete(draft: &Draft<'_>) -> Result<Value, fault::Fault> {
    let twin = draft.id.replace("/availabilitySets/", "/virtualMachineScaleSets/");
    Ok(json!({
        "properties": {
            "platformUpdateDomainCount": draft.number("platformUpdateDomainCount", 5),
            "platformFaultDomainCount": draft.number("platformFaultDomainCount", 2),
            "virtualMachineScaleSetMigrationInfo": {
                "defaultVirtualMachineScaleSetInfo": {
                    "constrainedMaximumCapacity": true,
                    "defaultVirtualMachineScaleSet": {"id": twin},
                },
            },
        },
        "sku": {"name": draft.body["sku"]["name"].as_str().unwrap_or("Classic")},
    }))
}

/// Fault and update domains of a set.
pub(crate) fn domains(store: &Store, set: &str) -> (usize, usize) {
    let doc = store.document(set).unwrap_or_default();
    let number = |member: &str, default| doc["properties"][member].as_u64().map_or(default, |number| number as usize);
    (number("platformFaultDomainCount", 2), number("platformUpdateDomainCount", 5))
}
