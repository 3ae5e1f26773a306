//! Network interfaces. Recorded: PUT is synchronous; the members.

use serde_json::{Value, json};

use super::base::{CHILDREN, RESOURCE, SYNCHRONOUS, read};
use super::{backends, private_addresses, public_ip_addresses};
use crate::arm::descriptor::{By, Children, Descriptor, Draft, Hooks, InUse, Origin, Part, Quota, Reference};
use crate::arm::protocol::{Access, NamedBy, Schema};
use crate::arm::{kinds, writes};
use crate::fault::{self, Fault};
use crate::path;

pub(crate) static NETWORK_INTERFACE: Descriptor = Descriptor {
    kind: kinds::NIC,
    path: "networkInterfaces",
    schema: Schema { name: "NNetworkInterfaceResource", root: "networkInterface" },
    layout: &["name", "id", "etag", "properties", "type", "location", "kind", "tags"],
    put: SYNCHRONOUS,
    children: &[CONFIGURATIONS],
    references: &[Reference::new("properties/networkSecurityGroup", kinds::SECURITY_GROUP)],
    in_use: &[InUse { by: By::Named(machine), fault: |nic, by| fault::nic_in_use(path::of(nic), by) }],
    expands: &["ipConfigurations", "networkSecurityGroup", "virtualMachine", "privateEndpoint", "tapConfigurations"],
    quotas: &[Quota {
        name: "NetworkInterfaces",
        local_name: "Network Interfaces",
        limit: 65_536,
        counts: |_| true,
        fault: |exceeded| fault::too_many_network_resources("network interfaces", exceeded.limit),
    }],
    hooks: Hooks {
        complete,
        check: |state, nic, _| backends::check_interface(state, nic),
        changed: public_ip_addresses::follow,
        ..RESOURCE.hooks
    },
    routes: &[read("loadbalancers", "networkInterfaceLoadBalancers.list", backends::list_balancers)],
    ..RESOURCE
};

/// Its parts, also those of the interfaces of scale sets.
pub(crate) const CONFIGURATIONS: Children = Children {
    kind: "Microsoft.Network/networkInterfaces/ipConfigurations",
    member: "ipConfigurations",
    access: Access::Read,
    layout: &["name", "id", "etag", "type", "properties"],
    least: 1,
    references: &[
        Reference::new("properties/subnet", kinds::SUBNET),
        Reference::new("properties/publicIPAddress", kinds::ADDRESS).exclusive(public_ip_addresses::EXCLUSIVE),
        Reference::new("properties/loadBalancerBackendAddressPools/*", kinds::BACKEND_POOL),
        Reference::new("properties/loadBalancerInboundNatRules/*", kinds::NAT_RULE),
        Reference::new("properties/applicationSecurityGroups/*", kinds::APPLICATION_GROUP),
    ],
    named_by: NamedBy::Parent,
    complete: configuration,
    ..CHILDREN
};

fn machine(nic: &Value) -> Vec<String> {
    nic["properties"]["virtualMachine"]["id"].as_str().map(str::to_owned).into_iter().collect()
}

/// Gives an interface to a machine. Documented: with its first one it gets a hardware address, which stays. The address
/// follows from the interface's own GUID.
pub(crate) fn join(nic: &mut Value, machine: &str) {
    let properties = &mut nic["properties"];
    properties["virtualMachine"] = json!({ "id": machine });
    if !properties["macAddress"].is_string() {
        let digits: Vec<char> =
            properties["resourceGuid"].as_str().unwrap_or("").to_ascii_uppercase().chars().collect();
        let pairs: Vec<String> = digits.chunks(2).take(3).map(|pair| pair.iter().collect()).collect();
        properties["macAddress"] = json!(format!("00-0D-3A-{}", pairs.join("-")));
    }
}

pub(crate) fn complete(draft: &Draft<'_>) -> Result<Value, Fault> {
    let configurations = draft.asked()["ipConfigurations"].as_array().map_or(&[][..], Vec::as_slice);
    let has_primary = configurations.iter().any(|configuration| configuration["properties"]["primary"] == true);
    if draft.origin == Origin::Request && configurations.len() > 1 && !has_primary {
        return Err(fault::no_primary_configuration(draft.name));
    }
    let properties = json!({
        "ipConfigurations": [],
        "dnsSettings": {
            "dnsServers": [], "appliedDnsServers": [], "internalDomainNameSuffix": "emulator.internal.cloudapp.net",
        },
        "enableAcceleratedNetworking": draft.flag("enableAcceleratedNetworking"), "vnetEncryptionSupported": false,
        "enableIPForwarding": draft.flag("enableIPForwarding"), "disableTcpStateTracking": false,
        "hostedWorkloads": [], "tapConfigurations": [], "nicType": "Standard", "allowPort25Out": true,
        "defaultOutboundConnectivityEnabled": false, "auxiliaryMode": "None", "auxiliarySku": "None",
    });
    let properties = writes::with(
        properties,
        &["virtualMachine", "macAddress"],
        draft.old.map_or(&Value::Null, |old| &old["properties"]),
    );
    let properties = writes::with_ids(properties, &["networkSecurityGroup"], draft.asked());
    Ok(json!({ "properties": properties, "kind": "Regular" }))
}

/// The first configuration of an interface is its primary one.
fn configuration(draft: &Draft<'_>, part: &Part<'_>) -> Result<Value, Fault> {
    const REFERENCES: [&str; 4] = [
        "publicIPAddress",
        "loadBalancerBackendAddressPools",
        "loadBalancerInboundNatRules",
        "applicationSecurityGroups",
    ];
    let asked = &part.asked["properties"];
    let properties = json!({
        "privateIPAddress": private_addresses::allocate(draft, part)?,
        "privateIPAllocationMethod": asked["privateIPAllocationMethod"].as_str().unwrap_or("Dynamic"),
        "subnet": {"id": asked["subnet"]["id"]},
        "primary": asked["primary"].as_bool().unwrap_or(part.before.is_empty()),
        "privateIPAddressVersion": asked["privateIPAddressVersion"].as_str().unwrap_or("IPv4"),
    });
    Ok(writes::with_ids(properties, &REFERENCES, asked))
}
