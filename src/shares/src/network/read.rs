//! Azure's JSON of the network, as far as decisions rest on it.

use lazuli_model::{ArmId, ProvisioningState, StorageAccount};
use serde_json::Value;

use super::{Connections, Link, Network, Object, PrivateEndpoint, Seen, Subnet, ZoneGroup, body};

/// An answer that lacks what decisions rest on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} is missing or is not what it should be")]
pub struct Unreadable(&'static str);

fn text<'a>(raw: &'a Value, pointer: &'static str) -> Result<&'a str, Unreadable> {
    raw.pointer(pointer).and_then(Value::as_str).ok_or(Unreadable(pointer))
}

fn items<'a>(raw: &'a Value, pointer: &str) -> &'a [Value] {
    raw.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn id(raw: &Value, pointer: &str) -> Option<ArmId> {
    raw.pointer(pointer).and_then(Value::as_str).and_then(|id| id.parse().ok())
}

fn state(raw: &Value) -> Result<ProvisioningState, Unreadable> {
    text(raw, "/properties/provisioningState").map(ProvisioningState::from_azure)
}

impl Seen {
    /// What a GET of an object shows.
    ///
    /// # Errors
    /// When the answer lacks what decisions rest on, or the object is one that is listed.
    pub fn of(object: Object, raw: &Value, etag: Option<String>) -> Result<Self, Unreadable> {
        Ok(match object {
            Object::Subnet(at) => Self::Subnet(at, Some(Box::new(subnet(raw, etag)?))),
            Object::Network => Self::Network(Some(network(raw)?)),
            Object::Zone => Self::Zone(Some(state(raw)?)),
            Object::Endpoint => Self::Endpoint(Some(endpoint(raw)?)),
            Object::Account | Object::Links | Object::ZoneGroups => return Err(Unreadable("the kind of the resource")),
        })
    }

    /// What a list of an object shows.
    ///
    /// # Errors
    /// As [`Seen::of`].
    pub fn of_list(object: Object, raw: &[Value]) -> Result<Self, Unreadable> {
        match object {
            Object::Links => raw.iter().map(link).collect::<Result<_, _>>().map(Self::Links),
            Object::ZoneGroups => raw.iter().map(zone_group).collect::<Result<_, _>>().map(Self::ZoneGroups),
            _ => Err(Unreadable("the kind of the list")),
        }
    }
}

impl From<&StorageAccount> for Connections {
    fn from(account: &StorageAccount) -> Self {
        let connections = &account.private_endpoint_connections;
        let endpoints = connections.iter().filter_map(|connection| connection.endpoint.clone());
        Self { count: connections.len(), endpoints: endpoints.collect() }
    }
}

fn subnet(raw: &Value, etag: Option<String>) -> Result<Subnet, Unreadable> {
    if !raw["properties"].is_object() {
        return Err(Unreadable("/properties"));
    }
    // A PUT under no condition could undo what another has changed since.
    let etag = etag.ok_or(Unreadable("the etag"))?;
    Ok(Subnet {
        has_service_endpoint: body::has_service_endpoint(raw),
        state: state(raw)?,
        body: raw.clone(),
        etag: Some(etag),
    })
}

fn network(raw: &Value) -> Result<Network, Unreadable> {
    let subnets = items(raw, "/properties/subnets").iter();
    Ok(Network {
        location: text(raw, "/location")?.to_owned(),
        subnets: subnets.map(|subnet| text(subnet, "/name").map(str::to_owned)).collect::<Result<_, _>>()?,
    })
}

fn endpoint(raw: &Value) -> Result<PrivateEndpoint, Unreadable> {
    let automatic = items(raw, "/properties/privateLinkServiceConnections");
    let connections = automatic.iter().chain(items(raw, "/properties/manualPrivateLinkServiceConnections"));
    let connection = connections.into_iter().next().unwrap_or(&Value::Null);
    let status = connection.pointer("/properties/privateLinkServiceConnectionState/status").and_then(Value::as_str);
    Ok(PrivateEndpoint {
        state: state(raw)?,
        service: id(connection, "/properties/privateLinkServiceId"),
        status: status.filter(|status| !status.is_empty()).map(str::to_owned),
    })
}

fn link(raw: &Value) -> Result<Link, Unreadable> {
    Ok(Link {
        name: text(raw, "/name")?.to_owned(),
        network: id(raw, "/properties/virtualNetwork/id"),
        state: state(raw)?,
    })
}

fn zone_group(raw: &Value) -> Result<ZoneGroup, Unreadable> {
    let configurations = items(raw, "/properties/privateDnsZoneConfigs").iter();
    let zones = configurations.filter_map(|configuration| id(configuration, "/properties/privateDnsZoneId"));
    Ok(ZoneGroup { zones: zones.collect(), state: state(raw)? })
}
