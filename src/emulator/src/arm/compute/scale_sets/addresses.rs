//! Public addresses of uniform sets' instances: each IP configuration that asks for one has its own.
//!
//! Documented: the compute provider's path, the network provider's documents; they are read only.

use super::interfaces::{INSTANCE_INTERFACE, get_shown, refuse};
use super::parts::shown;
use crate::answer::{Context, Reply};
use crate::arm::descriptor::{Descriptor, Hooks, Own};
use crate::arm::network;
use crate::arm::protocol::{Patch, Scope};
use crate::arm::{kinds, lists};
use crate::fault;

pub(crate) static INSTANCE_ADDRESS: Descriptor = Descriptor {
    kind: kinds::INSTANCE_ADDRESS,
    path: "virtualMachineScaleSets/*/virtualMachines/*/networkInterfaces/*/ipConfigurations/*/publicIPAddresses",
    operations: Some("virtualMachineScaleSetPublicIPAddresses"),
    parent: Some(&INSTANCE_INTERFACE),
    lists: &[Scope::Group],
    layout: &["name", "id", "etag", "properties", "type", "sku"],
    patch: Patch::None,
    hooks: Hooks::NONE,
    own: Own { put: Some(refuse), patch: None, get: Some(get), delete: Some(refuse), list: Some(list) },
    ..network::base::RESOURCE
};

fn get(context: &mut Context<'_>) -> Reply {
    get_shown(&INSTANCE_ADDRESS, context)
}

/// Those of an IP configuration.
fn list(context: &mut Context<'_>) -> Reply {
    context.require_group()?;
    let interface = INSTANCE_INTERFACE.id(context);
    if !context.state.store.contains(&interface) {
        return Err(fault::network_child_not_found(interface));
    }
    let configuration = format!("{interface}/ipConfigurations/{}", context.request.segment(7));
    lists::select(context, &configuration, Some(kinds::INSTANCE_ADDRESS), |doc| Some(shown(doc.clone())))
}
