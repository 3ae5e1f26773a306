//! Extensions of virtual machines and of scale sets' instances.
//!
//! Documented: PUT 201 or 200 with the asynchronous header, DELETE 202; protected settings are never shown; one
//! extension of a publisher and type; nothing is done in a machine that does not run. `VMAccessForLinux` is taken as
//! any other: what it does happens within the machine.

use serde_json::{Value, json};

use super::base::{RESOURCE, VM_FAMILY};
use super::extension_views::of_machine;
use super::scale_sets::instances::INSTANCE;
use super::vms::VIRTUAL_MACHINE;
use crate::answer::{Context, Reply};
use crate::arm::descriptor::{Descriptor, Draft, Hooks, Own};
use crate::arm::engine::put;
use crate::arm::protocol::{Absent, Answered, Commit, Latency, Limits, Patch, Put, Schema, Scope, Shape};
use crate::arm::{kinds, writes};
use crate::fault::{self, Fault};
use crate::latency::OperationKind;
use crate::path;
use crate::state::State;
use crate::store::Power;
use crate::throttle::{DELETE_INSTANCE, DELETE_VM, GET_VM, UPDATE_INSTANCE, UPDATE_VM};

const SCHEMA: Schema = Schema { name: "MachineExtension", root: "extensionParameters" };
const INSTANCE_SCHEMA: Schema = Schema { name: "InstanceExtension", root: "extensionParameters" };
const CHANGED: Answered = Answered::new(200, Shape::AsyncOperation);

/// What both have in common.
const ANY: Descriptor = Descriptor {
    family: &VM_FAMILY,
    lists: &[Scope::Group],
    latency: Latency { write: OperationKind::VmUpdate, delete: OperationKind::VmUpdate },
    put: Put {
        created: Answered::new(201, Shape::AsyncOperation),
        updated: |_| CHANGED,
        running: |_| "Updating",
        commit: Commit::AtOnce,
    },
    creating: Some("Creating"),
    absent: Absent::Default,
    hooks: Hooks { name: writes::check_name, complete, check, ..Hooks::NONE },
    ..RESOURCE
};

pub(crate) static EXTENSION: Descriptor = Descriptor {
    kind: kinds::EXTENSION,
    path: "virtualMachines/*/extensions",
    operations: Some("virtualMachineExtensions"),
    parent: Some(&VIRTUAL_MACHINE),
    limits: Limits {
        get: Some(GET_VM),
        list: Some(GET_VM),
        write: Some(UPDATE_VM),
        delete: Some(DELETE_VM),
        ..Limits::NONE
    },
    schema: SCHEMA,
    layout: &["name", "id", "type", "location", "tags", "properties"],
    patch: Patch::Merge { operation: "update", schema: SCHEMA, answered: CHANGED },
    own: Own { put: Some(|context| write(&EXTENSION, context)), ..Own::NONE },
    ..ANY
};

pub(crate) static INSTANCE_EXTENSION: Descriptor = Descriptor {
    kind: kinds::INSTANCE_EXTENSION,
    path: "virtualMachineScaleSets/*/virtualMachines/*/extensions",
    operations: Some("virtualMachineScaleSetVMExtensions"),
    parent: Some(&INSTANCE),
    limits: Limits { write: Some(UPDATE_INSTANCE), delete: Some(DELETE_INSTANCE), ..Limits::NONE },
    schema: INSTANCE_SCHEMA,
    layout: &["name", "id", "type", "properties"],
    patch: Patch::Merge { operation: "update", schema: INSTANCE_SCHEMA, answered: CHANGED },
    own: Own { put: Some(|context| write(&INSTANCE_EXTENSION, context)), ..Own::NONE },
    ..ANY
};

/// PUT. Documented: the machine runs.
fn write(descriptor: &'static Descriptor, context: &mut Context<'_>) -> Reply {
    let machine = descriptor.parent.map(|parent| parent.id(context)).unwrap_or_default();
    if context.state.store.power(&machine).is_some_and(|power| power != Power::Running) {
        return Err(fault::extension_needs_running_machine());
    }
    put::put(descriptor, context)
}

fn complete(draft: &Draft<'_>) -> Result<Value, Fault> {
    for member in ["publisher", "type", "typeHandlerVersion"] {
        if !draft.asked()[member].is_string() {
            return Err(fault::missing_parameter(format!("extension.{member}")));
        }
    }
    let mut properties = writes::object(draft.asked());
    for member in ["protectedSettings", "instanceView", "provisioningState"] {
        properties.shift_remove(member);
    }
    let defaults = json!({"autoUpgradeMinorVersion": false});
    Ok(json!({"properties": writes::with_others(Value::Object(properties), &defaults)}))
}

/// One extension of a publisher and type.
fn check(state: &State, extension: &Value, _: Option<&Value>) -> Result<(), Fault> {
    let handler = |doc: &Value| {
        let word = |member: &str| doc["properties"][member].as_str().unwrap_or("").to_owned();
        format!("{}.{}", word("publisher"), word("type"))
    };
    let own = path::of(extension);
    let others = of_machine(state, path::parent_of(own)).into_iter().filter(|other| !path::same(path::of(other), own));
    let twin = others.into_iter().find(|other| handler(other).eq_ignore_ascii_case(&handler(extension)));
    match twin {
        Some(_) => Err(fault::extension_of_handler_exists(path::name_of(own), handler(extension))),
        None => Ok(()),
    }
}
