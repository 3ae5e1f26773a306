//! The bodies of what is made in the network: those of the Go driver.

use lazuli_model::ArmId;
use serde_json::{Value, json};

/// The service that a subnet's service endpoint is for.
const SERVICE: &str = "Microsoft.Storage";
/// The same for accounts of all regions. A subnet has one of the two.
const SERVICE_OF_ALL_REGIONS: &str = "Microsoft.Storage.Global";

/// The part of an account that a private endpoint leads to.
const FILES: &str = "file";

fn service_endpoints(subnet: &Value) -> Option<&Vec<Value>> {
    subnet.pointer("/properties/serviceEndpoints")?.as_array()
}

/// Whether a subnet reaches accounts by a service endpoint.
pub(super) fn has_service_endpoint(subnet: &Value) -> bool {
    let services = service_endpoints(subnet).into_iter().flatten().filter_map(|endpoint| endpoint["service"].as_str());
    services
        .into_iter()
        .any(|service| [SERVICE, SERVICE_OF_ALL_REGIONS].iter().any(|wanted| service.eq_ignore_ascii_case(wanted)))
}

/// All of a subnet that was read, with a service endpoint more. Azure adds the regions.
pub(super) fn with_service_endpoint(subnet: &Value) -> Value {
    let mut endpoints = service_endpoints(subnet).cloned().unwrap_or_default();
    endpoints.push(json!({ "service": SERVICE }));
    let mut subnet = subnet.clone();
    subnet["properties"]["serviceEndpoints"] = endpoints.into();
    subnet
}

pub(super) fn zone() -> Value {
    json!({ "location": "global" })
}

pub(super) fn link(network: &ArmId) -> Value {
    json!({
        "location": "global",
        "properties": { "virtualNetwork": { "id": network.as_str() }, "registrationEnabled": false },
    })
}

pub(super) fn endpoint(account: &ArmId, subnet: &ArmId, location: &str) -> Value {
    json!({
        "location": location,
        "properties": {
            "subnet": { "id": subnet.as_str() },
            "privateLinkServiceConnections": [{
                "name": format!("{}-pvtsvcconn", account.name()),
                "properties": { "privateLinkServiceId": account.as_str(), "groupIds": [FILES] },
            }],
        },
    })
}

pub(super) fn zone_group(zone: &ArmId) -> Value {
    json!({
        "properties": {
            "privateDnsZoneConfigs": [{ "name": zone.name(), "properties": { "privateDnsZoneId": zone.as_str() } }],
        },
    })
}
