//! Private link services and private endpoints. Recorded: the members of both, and that parts of them are `Succeeded`
//! while they are written. Documented: a service needs a Standard load balancer and a subnet without network policies
//! for such services, its load balancer has no backends by address, and it goes after its connections.

use std::time::Duration;

use serde_json::{Value, json};

use super::base::{CHILDREN, RESOURCE};
use super::private_addresses;
use crate::arm::descriptor::{By, Children, Descriptor, Draft, Exclusive, Hooks, InUse, Part, Reference, Writers};
use crate::arm::engine::{document, references};
use crate::arm::protocol::{Access, Schema};
use crate::arm::{kinds, writes};
use crate::derived;
use crate::fault::{self, Fault};
use crate::path;
use crate::state::State;

/// Parts of a private link.
const PARTS: Children = Children {
    access: Access::Hidden,
    layout: &["name", "id", "etag", "type", "properties"],
    settled: true,
    ..CHILDREN
};

pub(crate) static PRIVATE_LINK_SERVICE: Descriptor = Descriptor {
    kind: kinds::PRIVATE_LINK_SERVICE,
    path: "privateLinkServices",
    schema: Schema { name: "NPrivateLinkService", root: "privateLinkService" },
    writers: Writers::Supersede,
    children: &[
        Children {
            kind: "Microsoft.Network/privateLinkServices/ipConfigurations",
            member: "ipConfigurations",
            least: 1,
            references: &[Reference::new("properties/subnet", kinds::SUBNET).provisioned("PutSubnetOperation")],
            complete: configuration,
            ..PARTS
        },
        Children {
            kind: "Microsoft.Network/privateLinkServices/privateEndpointConnections",
            member: "privateEndpointConnections",
            access: Access::Write,
            schema: Schema { name: "NPrivateEndpointConnection", root: "privateEndpointConnection" },
            complete: connection,
            ..PARTS
        },
    ],
    references: &[Reference::new("properties/loadBalancerFrontendIpConfigurations/*", kinds::FRONTEND).exclusive(
        Exclusive {
            taken: |_, frontend, other| fault::frontend_has_private_link(frontend, other),
            twice: |frontend, own| fault::frontend_has_private_link(frontend, own),
        },
    )],
    in_use: &[InUse {
        by: By::Named(|service| {
            let connections = service["properties"]["privateEndpointConnections"].as_array().into_iter().flatten();
            connections.filter_map(|connection| connection["id"].as_str().map(str::to_owned)).collect()
        }),
        fault: |service, by| fault::private_link_service_in_use(path::of(service), by),
    }],
    expands: &["loadBalancerFrontendIpConfigurations", "privateEndpointConnections", "networkInterfaces"],
    hooks: Hooks { complete: service, check: check_service, ..RESOURCE.hooks },
    ..RESOURCE
};

fn service(draft: &Draft<'_>) -> Result<Value, Fault> {
    let asked = draft.asked();
    let old = draft.old.map_or(&Value::Null, |old| &old["properties"]);
    let guid = derived::guid_of(draft.guid);
    let fresh = json!({
        "alias": format!("{}.{guid}.{}.azure.privatelinkservice", draft.name, draft.location),
        "networkInterfaces": [interface(draft)],
    });
    let made = if old.is_null() { &fresh } else { old };
    let properties = json!({
        "fqdns": asked.get("fqdns").cloned().unwrap_or(json!([])),
        "alias": made["alias"],
        "enableProxyProtocol": draft.flag("enableProxyProtocol"),
    });
    let properties = writes::with_ids(properties, &["loadBalancerFrontendIpConfigurations"], asked);
    let properties = writes::with(properties, &["visibility", "autoApproval", "destinationIPAddress"], asked);
    // Connections are made by endpoints, and not by the owner of the service.
    let own = json!({"privateEndpointConnections": old["privateEndpointConnections"]});
    let properties = writes::with(properties, &["privateEndpointConnections"], &own);
    Ok(json!({ "properties": writes::with(properties, &["networkInterfaces"], made) }))
}

/// The interface that the service makes for itself. Recorded; the interface is none of the emulator's resources.
fn interface(draft: &Draft<'_>) -> Value {
    let guid = derived::guid_of(&format!("{}/nic", draft.guid));
    json!({"id": format!("{}/networkInterfaces/{}.nic.{guid}", path::parent_of(draft.id), draft.name)})
}

/// A configuration shows a static address only; the service's own interface has the dynamic one. Recorded.
fn configuration(draft: &Draft<'_>, part: &Part<'_>) -> Result<Value, Fault> {
    let asked = &part.asked["properties"];
    let mut properties = json!({});
    if asked["privateIPAddress"].is_string() {
        properties["privateIPAddress"] = json!(private_addresses::allocate(draft, part)?);
    }
    properties["privateIPAllocationMethod"] = json!(asked["privateIPAllocationMethod"].as_str().unwrap_or("Dynamic"));
    let mut properties = writes::with_ids(properties, &["subnet"], asked);
    properties["primary"] = json!(asked["primary"].as_bool().unwrap_or(part.before.is_empty()));
    properties["privateIPAddressVersion"] = json!(asked["privateIPAddressVersion"].as_str().unwrap_or("IPv4"));
    Ok(properties)
}

/// Its owner approves or rejects a connection; the rest of it stays.
fn connection(_: &Draft<'_>, part: &Part<'_>) -> Result<Value, Fault> {
    let asked = &part.asked["properties"];
    let old = part.old.map_or(asked, |old| &old["properties"]);
    Ok(writes::with(writes::object(old).into(), &["privateLinkServiceConnectionState"], asked))
}

fn check_service(state: &State, service: &Value, _: Option<&Value>) -> Result<(), Fault> {
    let id = path::of(service);
    for configuration in service["properties"]["ipConfigurations"].as_array().into_iter().flatten() {
        let subnet = configuration["properties"]["subnet"]["id"].as_str().unwrap_or("");
        let found = references::child(state, subnet);
        if found.is_some_and(|(_, subnet)| subnet["properties"]["privateLinkServiceNetworkPolicies"] != "Disabled") {
            return Err(fault::private_link_service_needs_no_policies(id, subnet));
        }
    }
    let frontends = service["properties"]["loadBalancerFrontendIpConfigurations"].as_array().into_iter().flatten();
    for frontend in frontends.filter_map(|frontend| frontend["id"].as_str()) {
        let balancer = path::parent_of(frontend);
        let found = state.store.document(balancer).unwrap_or_default();
        if found["sku"]["name"] != "Standard" {
            return Err(fault::private_link_service_needs_standard(id, balancer));
        }
        let mut pools = found["properties"]["backendAddressPools"].as_array().into_iter().flatten();
        if pools
            .any(|pool| pool["properties"]["loadBalancerBackendAddresses"].as_array().is_some_and(|a| !a.is_empty()))
        {
            return Err(fault::private_link_service_needs_interfaces(id, balancer));
        }
    }
    Ok(())
}

/// Refuses network policies on a subnet that has private link services. The code is documented.
pub(crate) fn check_policies(state: &State, network: &Value) -> Result<(), Fault> {
    let subnets = network["properties"]["subnets"].as_array().into_iter().flatten();
    for subnet in subnets.filter(|subnet| subnet["properties"]["privateLinkServiceNetworkPolicies"] != "Disabled") {
        let id = path::of(subnet);
        if !references::referrers(state, kinds::SUBNET, id, Some(kinds::PRIVATE_LINK_SERVICE)).is_empty() {
            return Err(fault::policies_of_private_link_subnet(id));
        }
    }
    Ok(())
}

const CONNECTIONS: [&str; 2] = ["privateLinkServiceConnections", "manualPrivateLinkServiceConnections"];

const TO_SERVICE: Children = Children {
    layout: &["name", "id", "etag", "properties", "type"],
    complete: |_, part| {
        let asked = &part.asked["properties"];
        let approved = json!({
            "status": if part.id.contains("/manual") { "Pending" } else { "Approved" },
            "description": if part.id.contains("/manual") { "Awaiting Approval" } else { "Auto Approved" },
            "actionsRequired": "None",
        });
        let known = part.old.map(|old| &old["properties"]["privateLinkServiceConnectionState"]);
        let own = json!({"privateLinkServiceConnectionState": known.unwrap_or(&approved)});
        let members = ["privateLinkServiceId", "groupIds", "requestMessage"];
        Ok(writes::with_others(writes::with(json!({}), &members, asked), &own))
    },
    ..PARTS
};

pub(crate) static PRIVATE_ENDPOINT: Descriptor = Descriptor {
    kind: kinds::PRIVATE_ENDPOINT,
    path: "privateEndpoints",
    schema: Schema { name: "NPrivateEndpoint", root: "privateEndpoint" },
    writers: Writers::Supersede,
    children: &[
        Children {
            kind: "Microsoft.Network/privateEndpoints/privateLinkServiceConnections",
            member: CONNECTIONS[0],
            ..TO_SERVICE
        },
        Children {
            kind: "Microsoft.Network/privateEndpoints/manualPrivateLinkServiceConnections",
            member: CONNECTIONS[1],
            ..TO_SERVICE
        },
    ],
    references: &[Reference::new("properties/subnet", kinds::SUBNET).provisioned("PutSubnetOperation")],
    expands: &["networkInterfaces"],
    hooks: Hooks { complete: endpoint, check: check_endpoint, changed: connect, ..RESOURCE.hooks },
    ..RESOURCE
};

fn endpoint(draft: &Draft<'_>) -> Result<Value, Fault> {
    let interfaces = draft.old.map(|old| old["properties"]["networkInterfaces"].clone());
    let properties = json!({
        "privateLinkServiceConnections": [], "manualPrivateLinkServiceConnections": [],
        "customNetworkInterfaceName": draft.text("customNetworkInterfaceName", ""),
    });
    let properties = writes::with_ids(properties, &["subnet"], draft.asked());
    let rest = json!({
        "ipConfigurations": [], "networkInterfaces": interfaces.unwrap_or_else(|| json!([interface(draft)])),
        "customDnsConfigs": [], "isIPv6EnabledPrivateEndpoint": false,
    });
    Ok(json!({ "properties": writes::with_others(properties, &rest) }))
}

/// What an endpoint's connections name, with the status that the endpoint was given.
fn connections(endpoint: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let all =
        CONNECTIONS.into_iter().flat_map(|member| endpoint["properties"][member].as_array().into_iter().flatten());
    all.filter_map(|connection| {
        let properties = &connection["properties"];
        Some((properties["privateLinkServiceId"].as_str()?, &properties["privateLinkServiceConnectionState"]))
    })
}

/// What an endpoint leads to.
pub(crate) fn services(endpoint: &Value) -> impl Iterator<Item = &str> {
    connections(endpoint).map(|(service, _)| service)
}

/// The parts of a storage account that an endpoint can lead to. Documented (private-endpoint-overview).
const OF_ACCOUNT: [&str; 11] = [
    "blob",
    "blob_secondary",
    "table",
    "table_secondary",
    "queue",
    "queue_secondary",
    "file",
    "file_secondary",
    "web",
    "web_secondary",
    "dfs",
];

fn check_endpoint(state: &State, endpoint: &Value, _: Option<&Value>) -> Result<(), Fault> {
    let own = path::of(endpoint);
    for service in services(endpoint) {
        let Some(found) = state.store.get(service) else { return Err(fault::invalid_reference(service, own)) };
        // Documented: an account that is being made takes no connection yet.
        if found.doc["type"] == kinds::STORAGE_ACCOUNT && found.provisioning() != "Succeeded" {
            return Err(fault::account_not_provisioned());
        }
    }
    let all =
        CONNECTIONS.into_iter().flat_map(|member| endpoint["properties"][member].as_array().into_iter().flatten());
    for connection in all.map(|connection| &connection["properties"]) {
        let service = state.store.get(connection["privateLinkServiceId"].as_str().unwrap_or(""));
        let groups = connection["groupIds"].as_array().map_or(&[][..], Vec::as_slice);
        let is_one = matches!(groups, [one] if OF_ACCOUNT.iter().any(|known| one == known));
        if service.is_some_and(|service| service.doc["type"] == kinds::STORAGE_ACCOUNT) && !is_one {
            return Err(fault::private_endpoint_group_invalid(own, OF_ACCOUNT.join(", ")));
        }
    }
    Ok(())
}

/// A resource is gone: the connections that endpoints had with it are dead. Documented.
pub(crate) fn disconnect(state: &mut State, service: &str, at: Duration) {
    let leads_there = |endpoint: &&Value| services(endpoint).any(|other| path::same(other, service));
    let endpoints = state.store.of_kind(kinds::PRIVATE_ENDPOINT).filter(leads_there);
    let endpoints: Vec<String> = endpoints.map(|endpoint| path::of(endpoint).to_owned()).collect();
    for endpoint in endpoints {
        state.store.change(&endpoint, at, |resource| {
            for member in CONNECTIONS {
                for connection in resource.doc["properties"][member].as_array_mut().into_iter().flatten() {
                    let properties = &mut connection["properties"];
                    if properties["privateLinkServiceId"].as_str().is_some_and(|other| path::same(other, service)) {
                        properties["privateLinkServiceConnectionState"]["status"] = json!("Disconnected");
                    }
                }
            }
        });
    }
}

/// Adds and removes the connections that services have with an endpoint.
fn connect(state: &mut State, old: Option<&Value>, new: Option<&Value>, at: Duration) {
    let endpoint = path::of(new.or(old).unwrap_or(&Value::Null)).to_owned();
    let had: Vec<String> = old.into_iter().flat_map(connections).map(|(service, _)| service.to_owned()).collect();
    let has: Vec<(&str, &Value)> = new.into_iter().flat_map(connections).collect();
    let gone = had.iter().filter(|had| !has.iter().any(|(service, _)| path::same(service, had)));
    let come = has.iter().filter(|(service, _)| !had.iter().any(|had| path::same(had, service)));
    let changes =
        gone.map(|service| (service.as_str(), None)).chain(come.map(|(service, state)| (*service, Some(*state))));
    let types = state.types;
    for (service, approval) in changes {
        let etag = document::weak(&state.guid());
        let guid = derived::guid_of(&format!("{endpoint}/{service}"));
        state.store.change(service, at, |resource| {
            let Some(descriptor) = types.of(&resource.doc) else {
                return;
            };
            let id = path::of(&resource.doc).to_owned();
            let Some(list) = resource.doc["properties"]["privateEndpointConnections"].as_array_mut() else {
                return;
            };
            list.retain(|connection| {
                let other = connection["properties"]["privateEndpoint"]["id"].as_str();
                !other.is_some_and(|other| path::same(other, &endpoint))
            });
            if let Some(approval) = approval {
                // Documented: a storage account names its connections after itself.
                let of_account = descriptor.kind == kinds::STORAGE_ACCOUNT;
                let named_after = if of_account { path::name_of(&id) } else { path::name_of(&endpoint) };
                let name = format!("{named_after}.{guid}");
                let mut properties = json!({
                    "provisioningState": "Succeeded", "privateEndpoint": {"id": endpoint},
                    "privateLinkServiceConnectionState": approval,
                });
                if !of_account {
                    properties["linkIdentifier"] = json!("536870912");
                }
                list.push(json!({
                    "name": name, "id": format!("{id}/privateEndpointConnections/{name}"),
                    "type": format!("{}/privateEndpointConnections", descriptor.kind), "properties": properties,
                }));
            }
            document::retag(descriptor, &mut resource.doc, &etag);
        });
    }
}
