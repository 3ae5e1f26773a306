//! Public addresses of uniform sets' instances: each IP configuration that asks for one has its own.
//!
//! Documented: the compute provider's path, the network provider's documents; they are read only.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::{Value, json};

use super::interfaces::{INSTANCE_INTERFACE, get_shown, parts_of_set, refuse, shown};
use crate::answer::{Context, Reply};
use crate::arm::descriptor::{Descriptor, Hooks, Own};
use crate::arm::engine::document;
use crate::arm::network::{self, public_ip_addresses};
use crate::arm::protocol::{Patch, Scope};
use crate::arm::{kinds, lists, writes};
use crate::derived::guid_of;
use crate::fault::{self, Fault};
use crate::path;
use crate::state::State;

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
    ..network::RESOURCE
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

/// Those of all instances of a set.
pub(crate) fn list_of_set(context: &mut Context<'_>) -> Reply {
    parts_of_set(kinds::INSTANCE_ADDRESS, context)
}

/// The documents of the public addresses that an interface's configurations ask for, which the interface then names.
///
/// # Errors
///
/// When there are no more addresses.
pub(super) fn documents(
    state: &State,
    interface: &mut Value,
    configuration: &Value,
    public: &mut BTreeSet<IpAddr>,
) -> Result<Vec<Value>, Fault> {
    let asked = configuration["properties"]["ipConfigurations"].as_array().into_iter().flatten();
    let parts = interface["properties"]["ipConfigurations"].as_array_mut().into_iter().flatten();
    let mut made = Vec::new();
    for (asked, part) in asked.zip(parts) {
        let asked = &asked["properties"]["publicIPAddressConfiguration"];
        let Some(name) = asked["name"].as_str() else {
            continue;
        };
        let id = format!("{}/publicIPAddresses/{name}", path::of(part));
        let own = &asked["properties"];
        let properties = json!({
            "provisioningState": "Succeeded",
            "resourceGuid": guid_of(&id),
            "publicIPAddressVersion": own["publicIPAddressVersion"].as_str().unwrap_or("IPv4"),
            "publicIPAllocationMethod": "Static",
            "idleTimeoutInMinutes": own["idleTimeoutInMinutes"].as_u64().unwrap_or(4),
            "ipTags": [],
            "ipConfiguration": {"id": part["id"]},
        });
        let mut doc = json!({
            "name": name, "id": id, "etag": document::weak(&guid_of(&format!("{id}/etag"))),
            "properties": writes::with(properties, &["publicIPPrefix"], own), "type": kinds::INSTANCE_ADDRESS,
            "sku": writes::with_others(asked["sku"].clone(), &json!({"name": "Standard", "tier": "Regional"})),
        });
        // It stays as long as it is asked for.
        let had = state.store.document(&id).and_then(|had| had["properties"]["ipAddress"].as_str().map(str::to_owned));
        let address = match had {
            Some(address) => address,
            None => {
                let drawn = public_ip_addresses::draw_beside(state, &doc, public)?;
                public.insert(drawn);
                drawn.to_string()
            }
        };
        doc["properties"]["ipAddress"] = json!(address);
        part["properties"]["publicIPAddress"] = json!({"id": id});
        made.push(doc);
    }
    Ok(made)
}
