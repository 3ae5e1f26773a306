//! Network interfaces. Recorded: PUT is synchronous.

use std::time::Duration;

use serde_json::{Value, json};

use super::{CHILDREN, RESOURCE, private_addresses, public_ip_addresses};
use crate::arm::descriptor::{
    Access, Answered, By, Children, Descriptor, Draft, Hooks, InUse, Part, Put, Reference, Schema, Shape,
};
use crate::arm::kinds;
use crate::fault::{self, Fault};
use crate::state::State;

pub(crate) static NETWORK_INTERFACE: Descriptor = Descriptor {
    kind: kinds::NIC,
    path: "networkInterfaces",
    schema: Schema { name: "NNetworkInterfaceResource", root: "networkInterface" },
    layout: &["name", "id", "etag", "properties", "type", "location", "kind", "tags"],
    put: Put {
        created: Answered::new(201, Shape::Synchronous),
        updated: |_| Answered::new(200, Shape::Synchronous),
        ..RESOURCE.put
    },
    children: &[Children {
        kind: "Microsoft.Network/networkInterfaces/ipConfigurations",
        member: "ipConfigurations",
        access: Access::Read,
        layout: &["name", "id", "etag", "type", "properties"],
        least: 1,
        complete: configuration,
        ..CHILDREN
    }],
    references: &[
        Reference::new("properties/networkSecurityGroup", "Microsoft.Network/networkSecurityGroups"),
        Reference::new("properties/ipConfigurations/*/properties/subnet", kinds::SUBNET),
        Reference {
            exclusive: public_ip_addresses::EXCLUSIVE,
            ..Reference::new("properties/ipConfigurations/*/properties/publicIPAddress", kinds::ADDRESS)
        },
        Reference::new(
            "properties/ipConfigurations/*/properties/loadBalancerBackendAddressPools/*",
            "Microsoft.Network/loadBalancers/backendAddressPools",
        ),
        Reference::new(
            "properties/ipConfigurations/*/properties/loadBalancerInboundNatRules/*",
            "Microsoft.Network/loadBalancers/inboundNatRules",
        ),
        Reference::new(
            "properties/ipConfigurations/*/properties/applicationSecurityGroups/*",
            "Microsoft.Network/applicationSecurityGroups",
        ),
    ],
    in_use: &[InUse {
        by: By::Named(machine),
        fault: |nic, by| fault::nic_in_use(nic["id"].as_str().unwrap_or(""), by),
    }],
    expands: &["ipConfigurations", "networkSecurityGroup", "virtualMachine", "privateEndpoint", "tapConfigurations"],
    hooks: Hooks { complete, changed, ..RESOURCE.hooks },
    ..RESOURCE
};

/// What an IP configuration shows as it was asked, besides its subnet.
const REFERENCES: [&str; 4] =
    ["publicIPAddress", "loadBalancerBackendAddressPools", "loadBalancerInboundNatRules", "applicationSecurityGroups"];

fn machine(interface: &Value) -> Vec<String> {
    interface["properties"]["virtualMachine"]["id"].as_str().map(str::to_owned).into_iter().collect()
}

/// Recorded members.
fn complete(draft: &Draft<'_>) -> Result<Value, Fault> {
    let mut properties = json!({
        "ipConfigurations": [],
        "dnsSettings": {
            "dnsServers": [],
            "appliedDnsServers": [],
            "internalDomainNameSuffix": "emulator.internal.cloudapp.net",
        },
        "enableAcceleratedNetworking": draft.flag("enableAcceleratedNetworking"),
        "vnetEncryptionSupported": false,
        "enableIPForwarding": draft.flag("enableIPForwarding"),
        "disableTcpStateTracking": false,
        "hostedWorkloads": [],
        "tapConfigurations": [],
        "nicType": "Standard",
        "allowPort25Out": true,
        "defaultOutboundConnectivityEnabled": false,
        "auxiliaryMode": "None",
        "auxiliarySku": "None",
    });
    if let Some(machine) = draft.old.and_then(|old| old["properties"].get("virtualMachine")) {
        properties["virtualMachine"] = machine.clone();
    }
    if let Some(group) = draft.asked().get("networkSecurityGroup") {
        properties["networkSecurityGroup"] = group.clone();
    }
    Ok(json!({ "properties": properties, "kind": "Regular" }))
}

/// An IP configuration. Recorded members; the first of an interface is its primary one.
fn configuration(draft: &Draft<'_>, part: &Part<'_>) -> Result<Value, Fault> {
    let asked = &part.asked["properties"];
    let mut properties = json!({
        "privateIPAddress": private_addresses::allocate(draft, part)?,
        "privateIPAllocationMethod": asked["privateIPAllocationMethod"].as_str().unwrap_or("Dynamic"),
        "subnet": {"id": asked["subnet"]["id"]},
        "primary": asked["primary"].as_bool().unwrap_or(part.before.is_empty()),
        "privateIPAddressVersion": "IPv4",
    });
    for member in REFERENCES {
        if let Some(named) = asked.get(member) {
            properties[member] = named.clone();
        }
    }
    Ok(properties)
}

/// Public addresses follow the interfaces that name them.
fn changed(state: &mut State, old: Option<&Value>, new: Option<&Value>, at: Duration) {
    public_ip_addresses::follow(&NETWORK_INTERFACE, state, old, new, at);
}
