//! Edits of a private link service, on the model and on the raw body.

use std::collections::BTreeMap;

use lazuli_model::{
    ArmId,
    json::{self, Provisioning, object, set},
};
use serde_json::{Value, json};

use super::{
    Env,
    model::{LinkAddress, PrivateLink},
};

/// One change of a private link service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// Begin a new one in front of this frontend; always the first.
    Create(ArmId),
    /// Set all its addresses.
    Addresses(Vec<LinkAddress>),
    /// Set its host names.
    HostNames(Vec<String>),
    /// Send the proxy protocol, or not.
    ProxyProtocol(bool),
    /// Set who sees it and who is approved at once.
    Audience {
        /// Who sees it.
        visible_to: Vec<String>,
        /// Who is approved at once.
        approved_for: Vec<String>,
    },
    /// Change its tags.
    Tags {
        /// Set these.
        set: BTreeMap<String, String>,
        /// Remove these.
        remove: Vec<String>,
    },
    /// Delete one of its connections; always alone, for it is a request of its own.
    DeleteConnection(String),
    /// Delete it; always alone.
    Delete,
}

fn fold<T>(actual: Option<T>, edits: &[Edit], new: impl Fn(&ArmId) -> T, change: impl Fn(&mut T, &Edit)) -> Option<T> {
    edits.iter().fold(actual, |actual, edit| match (actual, edit) {
        (_, Edit::Delete) => None,
        (_, Edit::Create(frontend)) => Some(new(frontend)),
        (None, _) => None,
        (Some(mut actual), edit) => {
            change(&mut actual, edit);
            Some(actual)
        }
    })
}

/// Whether the edits remove or replace something that exists.
pub fn replaces(edits: &[Edit], actual: Option<&PrivateLink>) -> bool {
    actual.is_some()
        && edits.iter().any(|edit| match edit {
            Edit::Create(_) => false,
            Edit::Tags { remove, .. } => !remove.is_empty(),
            _ => true,
        })
}

/// What the edits do to the model.
pub fn apply(actual: Option<PrivateLink>, edits: &[Edit], env: &Env) -> Option<PrivateLink> {
    let new = |frontend: &ArmId| PrivateLink {
        id: env.id.clone(),
        tags: BTreeMap::new(),
        frontends: vec![frontend.clone()],
        addresses: vec![],
        host_names: vec![],
        proxy_protocol: false,
        visible_to: vec![],
        approved_for: vec![],
        connections: vec![],
        provisioning: Provisioning::Succeeded,
    };
    fold(actual, edits, new, |actual, edit| match edit {
        Edit::Addresses(addresses) => actual.addresses.clone_from(addresses),
        Edit::HostNames(names) => actual.host_names.clone_from(names),
        Edit::ProxyProtocol(is_on) => actual.proxy_protocol = *is_on,
        Edit::Audience { visible_to, approved_for } => {
            actual.visible_to.clone_from(visible_to);
            actual.approved_for.clone_from(approved_for);
        }
        Edit::Tags { set, remove } => {
            actual.tags.extend(set.clone());
            actual.tags.retain(|name, _| !remove.contains(name));
        }
        Edit::DeleteConnection(name) => actual.connections.retain(|there| there != name),
        Edit::Create(_) | Edit::Delete => {}
    })
}

/// What the edits do to the raw body. The deletion of a connection goes to a resource of its own and is read back.
pub fn apply_raw(body: Option<Value>, edits: &[Edit], env: &Env) -> Option<Value> {
    fold(
        body,
        edits,
        |frontend| new_body(frontend, env),
        |body, edit| match edit {
            Edit::Addresses(addresses) => {
                let addresses: Vec<Value> = addresses.iter().map(address_body).collect();
                set(properties(body), "ipConfigurations", json!(addresses));
            }
            Edit::HostNames(names) => set(properties(body), "fqdns", json!(names)),
            Edit::ProxyProtocol(is_on) => set(properties(body), "enableProxyProtocol", json!(is_on)),
            Edit::Audience { visible_to, approved_for } => {
                set(properties(body), "visibility", json!({ "subscriptions": visible_to }));
                set(properties(body), "autoApproval", json!({ "subscriptions": approved_for }));
            }
            Edit::Tags { set, remove } => json::change_tags(body, set, remove),
            Edit::DeleteConnection(name) => json::remove(body, "privateEndpointConnections", name),
            Edit::Create(_) | Edit::Delete => {}
        },
    )
}

fn properties(body: &mut Value) -> &mut serde_json::Map<String, Value> {
    object(body, &["properties"])
}

fn address_body(there: &LinkAddress) -> Value {
    let mut properties = json!({
        "privateIPAllocationMethod": if there.address.is_some() { "Static" } else { "Dynamic" },
        "privateIPAddressVersion": "IPv4",
        "primary": there.is_primary,
    });
    if let Some(address) = there.address {
        properties["privateIPAddress"] = json!(address.to_string());
    }
    if let Some(subnet) = &there.subnet {
        properties["subnet"] = json::reference(subnet);
    }
    json!({ "name": there.name, "properties": properties })
}

fn new_body(frontend: &ArmId, env: &Env) -> Value {
    let mut body = json!({
        "name": env.id.name(),
        "location": env.location,
        "properties": { "loadBalancerFrontendIpConfigurations": [json::reference(frontend)] },
    });
    if let Some(zone) = &env.edge_zone {
        body["extendedLocation"] = json!({ "name": zone, "type": "EdgeZone" });
    }
    body
}
