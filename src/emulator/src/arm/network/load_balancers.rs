//! Load balancers. Recorded: the members of one without backends, whose write shows `Succeeded` at once; documented:
//! those of rules, probes and pools, their defaults, and who shows whom. What is refused: [`super::balancing`].

use std::time::Duration;

use serde_json::{Value, json};

use super::base::{CHILDREN, RESOURCE, read};
use super::{backends, balancing, private_addresses, public_ip_addresses};
use crate::arm::descriptor::{
    BackReference, By, Children, Descriptor, Draft, Extra, Form, Hooks, InUse, Part, Quota, Reference, Writers,
};
use crate::arm::protocol::{Access, Latency, Put, Schema, Scope};
use crate::arm::{kinds, writes};
use crate::fault::{self, Fault};
use crate::latency::OperationKind;
use crate::path;
use crate::state::State;
use crate::throttle::WRITE_NETWORK;

pub(crate) static LOAD_BALANCER: Descriptor = Descriptor {
    kind: kinds::LOAD_BALANCER,
    path: "loadBalancers",
    schema: Schema { name: "NLoadBalancer", root: "loadBalancer" },
    layout: &["name", "id", "etag", "type", "location", "tags", "properties", "sku"],
    latency: Latency { write: OperationKind::LoadBalancer, delete: OperationKind::LoadBalancer },
    put: Put {
        running: |switches| if switches.load_balancer_shows_updating { "Updating" } else { "Succeeded" },
        ..RESOURCE.put
    },
    writers: Writers::Supersede,
    in_use: &[InUse {
        by: By::ToChildren(&[kinds::SCALE_SET, kinds::INSTANCE_NIC]),
        fault: |balancer, by| fault::balancer_in_use_by_set(path::of(balancer), scale_set(by).unwrap_or(by)),
    }],
    children: &[FRONTENDS, POOLS, RULES, PROBES, NAT_RULES, OUTBOUND_RULES, NAT_POOLS],
    expands: &["frontendIPConfigurations", "backendAddressPools"],
    quotas: &[Quota {
        name: "LoadBalancers",
        local_name: "Load Balancers",
        limit: 1000,
        counts: |_| true,
        fault: |exceeded| fault::too_many_network_resources("load balancers", exceeded.limit),
    }],
    hooks: Hooks { complete, check: balancing::check, changed, ..RESOURCE.hooks },
    routes: &[
        Extra {
            method: "POST",
            scope: Scope::Group,
            path: "migratetoipbased",
            operation: "loadBalancers.migrateToIPBased",
            handler: backends::migrate,
            limit: Some(WRITE_NETWORK),
            since: None,
            headers: &[],
        },
        read("networkinterfaces", "loadBalancerNetworkInterfaces.list", backends::list_interfaces),
    ],
    ..RESOURCE
};

/// What its children have in common.
const PARTS: Children =
    Children { access: Access::Read, layout: &["name", "id", "etag", "type", "properties"], ..CHILDREN };

/// Members that show who of the same document refers to a child.
const fn shown(member: &'static str, from: &'static str) -> BackReference {
    BackReference { member, from, form: Form::Some }
}

const TO_FRONTEND: Reference = Reference::new("properties/frontendIPConfiguration", kinds::FRONTEND);
const TO_POOL: Reference = Reference::new("properties/backendAddressPool", kinds::BACKEND_POOL);

const FRONTENDS: Children = Children {
    kind: kinds::FRONTEND,
    member: "frontendIPConfigurations",
    layout: &["name", "id", "etag", "type", "zones", "properties"],
    references: &[
        Reference::new("properties/publicIPAddress", kinds::ADDRESS)
            .exclusive(public_ip_addresses::EXCLUSIVE)
            .provisioned("PutPublicIpAddressOperation"),
        Reference::new("properties/publicIPPrefix", kinds::PREFIX),
        Reference::new("properties/subnet", kinds::SUBNET).provisioned("PutSubnetOperation"),
        Reference::new("properties/gatewayLoadBalancer", kinds::FRONTEND),
    ],
    in_use: &[InUse { by: By::References, fault: |frontend, by| fault::frontend_in_use(path::of(frontend), by) }],
    shows: &[
        shown("loadBalancingRules", kinds::RULE),
        shown("inboundNatRules", kinds::NAT_RULE),
        shown("outboundRules", kinds::OUTBOUND_RULE),
        shown("inboundNatPools", kinds::NAT_POOL),
        // Documented: a private link service changes the etag of its load balancer (cloud-provider-azure).
        BackReference { member: "", from: kinds::PRIVATE_LINK_SERVICE, form: Form::Hidden },
    ],
    complete: frontend,
    ..PARTS
};

const POOLS: Children = Children {
    kind: kinds::BACKEND_POOL,
    member: "backendAddressPools",
    access: Access::Write,
    schema: Schema { name: "NBackendAddressPool", root: "backendAddressPool" },
    references: &[
        Reference::new("properties/virtualNetwork", kinds::NETWORK),
        Reference::new("properties/loadBalancerBackendAddresses/*/properties/virtualNetwork", kinds::NETWORK),
        Reference::new("properties/loadBalancerBackendAddresses/*/properties/subnet", kinds::SUBNET),
    ],
    in_use: &[InUse {
        by: By::ReferencesBut(kinds::NIC, |switches| switches.interfaces_leave_deleted_pool),
        fault: |pool, by| match scale_set(by) {
            Some(set) => fault::pool_in_use_by_set(path::name_of(path::of(pool)), set),
            None => fault::pool_in_use(path::of(pool), by),
        },
    }],
    shows: &[
        shown("loadBalancingRules", kinds::RULE),
        shown("outboundRules", kinds::OUTBOUND_RULE),
        shown("inboundNatRules", kinds::NAT_RULE),
        shown("backendIPConfigurations", kinds::NIC),
        shown("backendIPConfigurations", kinds::INSTANCE_NIC),
        BackReference { member: "loadBalancerBackendAddresses", from: kinds::NIC, form: Form::Addresses },
        BackReference { member: "loadBalancerBackendAddresses", from: kinds::INSTANCE_NIC, form: Form::Addresses },
    ],
    complete: pool,
    ..PARTS
};

const RULES: Children = Children {
    kind: kinds::RULE,
    member: "loadBalancingRules",
    references: &[
        TO_FRONTEND,
        TO_POOL,
        Reference::new("properties/backendAddressPools/*", kinds::BACKEND_POOL),
        Reference::new("properties/probe", kinds::PROBE),
    ],
    complete: rule,
    ..PARTS
};

const PROBES: Children = Children {
    kind: kinds::PROBE,
    member: "probes",
    shows: &[shown("loadBalancingRules", kinds::RULE)],
    complete: |_, part| {
        let defaults = json!({"intervalInSeconds": 15, "numberOfProbes": 2, "probeThreshold": 1});
        Ok(writes::with_others(part.asked["properties"].clone(), &defaults))
    },
    ..PARTS
};

const NAT_RULES: Children = Children {
    kind: kinds::NAT_RULE,
    member: "inboundNatRules",
    access: Access::Write,
    schema: Schema { name: "NInboundNatRule", root: "inboundNatRule" },
    references: &[TO_FRONTEND, TO_POOL],
    in_use: &[InUse {
        by: By::ReferencesBut(kinds::NIC, |switches| switches.interfaces_leave_deleted_pool),
        fault: |rule, by| fault::nat_rule_in_use(path::of(rule), by),
    }],
    shows: &[BackReference { member: "backendIPConfiguration", from: kinds::NIC, form: Form::One }],
    complete: nat,
    ..PARTS
};

const OUTBOUND_RULES: Children = Children {
    kind: kinds::OUTBOUND_RULE,
    member: "outboundRules",
    references: &[Reference::new("properties/frontendIPConfigurations/*", kinds::FRONTEND), TO_POOL],
    complete: |_, part| {
        let asked = &part.asked["properties"];
        let defaults = json!({"allocatedOutboundPorts": 0, "enableTcpReset": false, "idleTimeoutInMinutes": 4});
        let properties = writes::with_ids(asked.clone(), &["frontendIPConfigurations", "backendAddressPool"], asked);
        Ok(writes::with_others(properties, &defaults))
    },
    ..PARTS
};

const NAT_POOLS: Children = Children {
    kind: kinds::NAT_POOL,
    member: "inboundNatPools",
    access: Access::Hidden,
    references: &[TO_FRONTEND],
    in_use: &[InUse {
        by: By::References,
        fault: |pool, by| fault::nat_pool_in_use_by_set(path::name_of(path::of(pool)), scale_set(by).unwrap_or(by)),
    }],
    complete: nat,
    ..PARTS
};

/// The scale set in an id: its own, or that of something below it.
fn scale_set(id: &str) -> Option<&str> {
    let at = id.to_ascii_lowercase().find("/virtualmachinescalesets/")? + "/virtualmachinescalesets/".len();
    let end = id[at..].find('/').map_or(id.len(), |length| at + length);
    id.get(..end)
}

/// Recorded members, but for that Basic is the SKU of one that asks for none, which is documented.
fn complete(draft: &Draft<'_>) -> Result<Value, Fault> {
    let sku = &draft.body["sku"];
    let (name, tier) = (sku["name"].as_str().unwrap_or("Basic"), sku["tier"].as_str().unwrap_or("Regional"));
    Ok(json!({ "properties": {}, "sku": {"name": name, "tier": tier} }))
}

fn frontend(draft: &Draft<'_>, part: &Part<'_>) -> Result<Value, Fault> {
    const REFERENCES: [&str; 4] = ["publicIPAddress", "publicIPPrefix", "subnet", "gatewayLoadBalancer"];
    let asked = &part.asked["properties"];
    let mut properties = json!({});
    let internal = asked["subnet"]["id"].is_string();
    if internal {
        properties["privateIPAddress"] = json!(private_addresses::allocate(draft, part)?);
    }
    properties["privateIPAllocationMethod"] = json!(asked["privateIPAllocationMethod"].as_str().unwrap_or("Dynamic"));
    if internal {
        properties["privateIPAddressVersion"] = json!(asked["privateIPAddressVersion"].as_str().unwrap_or("IPv4"));
    }
    Ok(writes::with_ids(properties, &REFERENCES, asked))
}

/// Addresses that it shows for its network interfaces are not kept: the interfaces name it.
fn pool(_: &Draft<'_>, part: &Part<'_>) -> Result<Value, Fault> {
    let asked = &part.asked["properties"];
    let own = ["location", "tunnelInterfaces", "drainPeriodInSeconds", "syncMode"];
    let mut properties = writes::with_ids(writes::with(json!({}), &own, asked), &["virtualNetwork"], asked);
    let addresses = asked["loadBalancerBackendAddresses"].as_array().into_iter().flatten();
    // Shown also where there are none (ansible-collections/azure#683).
    properties["loadBalancerBackendAddresses"] = addresses
        .filter(|address| address["properties"]["ipAddress"].is_string())
        .map(|address| {
            let asked = &address["properties"];
            let own = writes::with(json!({}), &["ipAddress", "adminState"], asked);
            json!({"name": address["name"], "properties": writes::with_ids(own, &["virtualNetwork", "subnet"], asked)})
        })
        .collect();
    Ok(properties)
}

/// A rule shows its pool both ways (real bodies).
fn rule(_: &Draft<'_>, part: &Part<'_>) -> Result<Value, Fault> {
    const REFERENCES: [&str; 4] = ["frontendIPConfiguration", "backendAddressPool", "backendAddressPools", "probe"];
    let asked = &part.asked["properties"];
    let mut properties = writes::with_ids(writes::object(asked).into(), &REFERENCES, asked);
    if let Some([pool]) = asked["backendAddressPools"].as_array().map(Vec::as_slice) {
        properties["backendAddressPool"] = json!({"id": pool["id"]});
    } else if asked["backendAddressPool"]["id"].is_string() && !asked["backendAddressPools"].is_array() {
        properties["backendAddressPools"] = json!([{"id": asked["backendAddressPool"]["id"]}]);
    }
    let defaults = json!({
        "backendPort": asked["frontendPort"], "enableFloatingIP": false, "idleTimeoutInMinutes": 4,
        "enableTcpReset": false, "loadDistribution": "Default", "disableOutboundSnat": false,
    });
    Ok(writes::with_others(properties, &defaults))
}

fn nat(_: &Draft<'_>, part: &Part<'_>) -> Result<Value, Fault> {
    let asked = &part.asked["properties"];
    let properties = writes::object(asked).into();
    let properties = writes::with_ids(properties, &["frontendIPConfiguration", "backendAddressPool"], asked);
    let defaults = json!({
        "protocol": "Tcp", "idleTimeoutInMinutes": 4, "enableFloatingIP": false, "enableTcpReset": false,
    });
    Ok(writes::with_others(properties, &defaults))
}

fn changed(state: &mut State, old: Option<&Value>, new: Option<&Value>, at: Duration) {
    public_ip_addresses::follow(state, old, new, at);
    if let (Some(old), None) = (old, new) {
        backends::leave(state, old, at);
    }
}
