//! Network interfaces of scale sets' instances: made from the configurations of the model, or of the instance.
//!
//! Documented: the compute provider's path, the network provider's documents, without type and location; they are read
//! only, and a flexible set has none (azure-cli#28258).

use super::instances::INSTANCE;
use super::parts::{hide_type, shown};
use crate::answer::{Context, Reply};
use crate::arm::descriptor::{Children, Descriptor, Hooks, Own, Reference};
use crate::arm::engine::read;
use crate::arm::network::{self, interfaces};
use crate::arm::protocol::{Patch, Scope};
use crate::arm::{kinds, lists};
use crate::fault;

pub(crate) static INSTANCE_INTERFACE: Descriptor = Descriptor {
    kind: kinds::INSTANCE_NIC,
    path: "virtualMachineScaleSets/*/virtualMachines/*/networkInterfaces",
    operations: Some("virtualMachineScaleSetNetworkInterfaces"),
    parent: Some(&INSTANCE),
    lists: &[Scope::Group],
    layout: &["name", "id", "etag", "properties", "type"],
    patch: Patch::None,
    children: &[Children {
        kind: "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/networkInterfaces/ipConfigurations",
        ..interfaces::CONFIGURATIONS
    }],
    references: &[Reference::new("properties/networkSecurityGroup", kinds::SECURITY_GROUP)],
    expands: &[],
    hooks: Hooks { complete: interfaces::complete, ..Hooks::NONE },
    own: Own { put: Some(refuse), patch: None, get: Some(get), delete: Some(refuse), list: Some(list) },
    ..network::base::RESOURCE
};

/// What is read only.
pub(super) fn refuse(context: &mut Context<'_>) -> Reply {
    Err(fault::method_not_allowed(&context.request.method))
}

/// Reads one part of an instance, as it is shown.
pub(super) fn get_shown(part: &'static Descriptor, context: &mut Context<'_>) -> Reply {
    let mut answer = read::get(part, context)?;
    answer.body.change(hide_type);
    Ok(answer)
}

fn get(context: &mut Context<'_>) -> Reply {
    get_shown(&INSTANCE_INTERFACE, context)
}

/// The interfaces of an instance.
fn list(context: &mut Context<'_>) -> Reply {
    context.require_group()?;
    let instance = INSTANCE.id(context);
    if !context.state.store.contains(&instance) {
        return Err(fault::network_child_not_found(instance));
    }
    lists::select(context, &instance, Some(kinds::INSTANCE_NIC), |doc| Some(shown(doc.clone())))
}
