//! Virtual networks and their subnets. Recorded: PUT of a network that exists answers 201 again, and one that changes
//! nothing shows `Succeeded`.

use serde_json::{Value, json};

use super::base::{CHILDREN, CREATED, RESOURCE, UPDATED, read};
use super::{private_addresses, private_links};
use crate::arm::descriptor::{
    BackReference, By, Children, Descriptor, Draft, Form, Hooks, InUse, Origin, Part, Reference,
};
use crate::arm::protocol::{Absent, Answered, Put, Schema};
use crate::arm::{kinds, writes};
use crate::fault::{self, Fault};
use crate::options::Switches;
use crate::state::State;

pub(crate) static VIRTUAL_NETWORK: Descriptor = Descriptor {
    kind: kinds::NETWORK,
    path: "virtualNetworks",
    schema: Schema { name: "NVirtualNetwork", root: "virtualNetwork" },
    put: Put { updated: answered, ..RESOURCE.put },
    children: &[Children {
        kind: kinds::SUBNET,
        member: "subnets",
        schema: Schema { name: "NSubnetResource", root: "subnet" },
        references: &[
            Reference::new("properties/networkSecurityGroup", kinds::SECURITY_GROUP),
            Reference::new("properties/routeTable", kinds::ROUTE_TABLE),
            Reference::new("properties/natGateway", kinds::NAT_GATEWAY),
        ],
        in_use: &[InUse {
            by: By::References,
            fault: |subnet, by| fault::subnet_in_use(subnet["name"].as_str().unwrap_or(""), by),
        }],
        shows: &[
            configurations(kinds::NIC),
            configurations(kinds::INSTANCE_NIC),
            configurations(kinds::FRONTEND),
            configurations(kinds::PRIVATE_LINK_SERVICE),
            BackReference { member: "privateEndpoints", from: kinds::PRIVATE_ENDPOINT, form: Form::Some },
        ],
        complete: subnet,
        ..CHILDREN
    }],
    expands: &["subnets", "virtualNetworkPeerings", "ipAllocations", "flowLogs"],
    absent: Absent::DefaultBut { member: "subnets", since: "2023-09-01" },
    hooks: Hooks { complete, check, ..RESOURCE.hooks },
    routes: &[
        read(
            "checkipaddressavailability",
            "virtualNetworks.checkIPAddressAvailability",
            private_addresses::check_availability,
        ),
        read("usages", "virtualNetworks.listUsage", private_addresses::list_usage),
    ],
    ..RESOURCE
};

/// A subnet shows the configurations that have its addresses. Documented.
const fn configurations(from: &'static str) -> BackReference {
    BackReference { member: "ipConfigurations", from, form: Form::Some }
}

fn check(state: &State, network: &Value, _: Option<&Value>) -> Result<(), Fault> {
    private_addresses::check_prefixes(network)?;
    private_addresses::check_subnets(network)?;
    private_links::check_policies(state, network)
}

fn answered(switches: &Switches) -> Answered {
    if switches.network_update_answers_created { CREATED } else { UPDATED }
}

/// Recorded members.
fn complete(draft: &Draft<'_>) -> Result<Value, Fault> {
    let asked = draft.asked();
    if asked["addressSpace"]["addressPrefixes"].as_array().is_none_or(Vec::is_empty) {
        return Err(fault::missing_value("addressSpace.addressPrefixes"));
    }
    let properties = json!({
        "addressSpace": asked["addressSpace"],
        "privateEndpointVNetPolicies": "Disabled",
        "subnets": [],
        "virtualNetworkPeerings": [],
        "enableDdosProtection": draft.flag("enableDdosProtection"),
    });
    Ok(json!({ "properties": writes::with_others(properties, asked) }))
}

/// Recorded members.
fn subnet(draft: &Draft<'_>, part: &Part<'_>) -> Result<Value, Fault> {
    let asked = &part.asked["properties"];
    // A subnet of a scenario may have none, and then keeps having none.
    let known = part.old.is_some_and(|old| !has_prefix(&old["properties"]));
    if draft.origin == Origin::Request && !known && !has_prefix(asked) {
        return Err(fault::subnet_without_prefix(part.asked["name"].as_str().unwrap_or("")));
    }
    let defaults = json!({
        "delegations": [],
        "privateEndpointNetworkPolicies": "Disabled",
        "privateLinkServiceNetworkPolicies": "Enabled",
    });
    const REFERENCES: [&str; 3] = ["networkSecurityGroup", "routeTable", "natGateway"];
    let mut asked = asked.clone();
    let endpoints = asked.get_mut("serviceEndpoints").and_then(Value::as_array_mut);
    for endpoint in endpoints.into_iter().flatten() {
        // Documented; which other region stands beside it is not shown here.
        let default = json!({"locations": [draft.location], "provisioningState": "Succeeded"});
        *endpoint = writes::with_others(endpoint.take(), &default);
    }
    let asked = &asked;
    Ok(writes::with_others(writes::with_ids(writes::object(asked).into(), &REFERENCES, asked), &defaults))
}

fn has_prefix(properties: &Value) -> bool {
    let some = |member: &str| properties[member].as_array().is_some_and(|list| !list.is_empty());
    properties["addressPrefix"].is_string() || some("addressPrefixes") || some("ipamPoolPrefixAllocations")
}
