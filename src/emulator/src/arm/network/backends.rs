//! Network interfaces as backends of load balancers.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::answer::{Answer, Context, Reply};
use crate::arm::descriptor::Descriptor;
use crate::arm::engine::{document, references};
use crate::arm::{kinds, lists};
use crate::document::Document;
use crate::fault::{self, Fault};
use crate::path;
use crate::state::State;

/// Rules of a network interface at most.
pub(crate) const RULES_MOST: usize = 300;

/// Whether a load balancer is internal: its frontends are all internal or all public. None without frontends.
pub(crate) fn is_internal(balancer: &Value) -> Option<bool> {
    let frontends = balancer["properties"]["frontendIPConfigurations"].as_array()?;
    frontends.first().map(|frontend| frontend["properties"]["subnet"].is_object())
}

/// The type of network interfaces.
fn interface(state: &State) -> &'static Descriptor {
    state.types.of_kind(kinds::NIC)
}

/// The type of load balancers.
fn balancer(state: &State) -> &'static Descriptor {
    state.types.of_kind(kinds::LOAD_BALANCER)
}

/// The load balancers in whose pools or rules an interface is.
fn balancers(state: &State, nic: &Value) -> Vec<Document> {
    let named = [kinds::BACKEND_POOL, kinds::NAT_RULE]
        .iter()
        .flat_map(|kind| references::named(interface(state), nic, kind))
        .map(|id| path::key(path::parent_of(id)));
    let named: BTreeSet<String> = named.collect();
    named.iter().filter_map(|id| state.store.document(id)).collect()
}

/// How many rules a load balancer has for a pool.
pub(crate) fn rules_of(balancer: &Value, pool: &str) -> usize {
    let rules = ["loadBalancingRules", "inboundNatRules"].into_iter();
    let rules = rules.flat_map(|member| balancer["properties"][member].as_array().into_iter().flatten());
    let names = |rule: &&Value| {
        let many = rule["properties"]["backendAddressPools"].as_array().into_iter().flatten();
        let mut all = many.chain(std::iter::once(&rule["properties"]["backendAddressPool"]));
        all.any(|named| named["id"].as_str().is_some_and(|id| path::same(id, pool)))
    };
    rules.filter(names).count()
}

/// Checks the load balancers of an interface against each other, and against the interface. Documented.
///
/// # Errors
///
/// Two load balancers of the same type, too many rules, a public address of another SKU than theirs, or a Basic load
/// balancer whose other backends are of another availability set.
pub(crate) fn check_interface(state: &State, nic: &Value) -> Result<(), Fault> {
    let own = path::of(nic);
    let balancers = balancers(state, nic);
    for internal in [true, false] {
        let mut of_type = balancers.iter().filter(|balancer| is_internal(balancer) == Some(internal));
        if let (Some(first), Some(second)) = (of_type.next(), of_type.next()) {
            return Err(fault::interface_of_two_balancers(own, path::of(first), path::of(second)));
        }
    }
    let of_type = interface(state);
    let pools = references::named(of_type, nic, kinds::BACKEND_POOL);
    let rules = balancers.iter().flat_map(|balancer| pools.iter().map(move |pool| rules_of(balancer, pool)));
    if rules.sum::<usize>() + references::named(of_type, nic, kinds::NAT_RULE).len() > RULES_MOST {
        return Err(fault::too_many_rules_of_interface(own, RULES_MOST));
    }
    for balancer in &balancers {
        let sku = &balancer["sku"]["name"];
        for address in references::named(of_type, nic, kinds::ADDRESS) {
            if state.store.document(address).is_some_and(|address| address["sku"]["name"] != *sku) {
                return Err(fault::backend_of_another_sku(path::of(balancer), address));
            }
        }
        if *sku == "Basic" {
            check_set(state, nic, balancer)?;
        }
    }
    Ok(())
}

/// The machine of an interface, with its availability set.
fn set_of(state: &State, nic: &Value) -> Option<Option<String>> {
    let machine = state.store.document(nic["properties"]["virtualMachine"]["id"].as_str()?)?;
    Some(machine["properties"]["availabilitySet"]["id"].as_str().map(path::key))
}

fn check_set(state: &State, nic: &Value, balancer: &Value) -> Result<(), Fault> {
    let Some(own) = set_of(state, nic) else {
        return Ok(());
    };
    let pools = balancer["properties"]["backendAddressPools"].as_array().into_iter().flatten();
    for referrer in pools.flat_map(|pool| references::referrers(state, kinds::BACKEND_POOL, path::of(pool), None)) {
        let other = state.store.document(referrer.resource).filter(|other| !path::same(path::of(other), path::of(nic)));
        if other.and_then(|other| set_of(state, &other)).is_some_and(|other| other != own) {
            return Err(fault::backend_of_another_set(path::of(nic), path::of(balancer)));
        }
    }
    Ok(())
}

/// Whether an interface is in a pool or NAT rule of a load balancer.
fn is_backend(state: &State, nic: &Value, balancer: &str) -> bool {
    let named = [kinds::BACKEND_POOL, kinds::NAT_RULE].iter();
    let mut named = named.flat_map(|kind| references::named(interface(state), nic, kind));
    named.any(|id| path::same(path::parent_of(id), balancer))
}

/// The network interfaces in the pools and NAT rules of a load balancer, also those of instances of scale sets.
/// Documented, by two examples.
pub(crate) fn list_interfaces(context: &mut Context<'_>) -> Reply {
    context.require_group()?;
    let of_type = balancer(context.state);
    let balancer = context.state.store.shown(&of_type.id(context), context.now);
    let balancer = balancer.ok_or_else(|| of_type.not_found(context))?;
    let id = path::of(&balancer);
    let all = [kinds::NIC, kinds::INSTANCE_NIC].into_iter().flat_map(|kind| context.state.store.of_kind(kind));
    let members = all.filter(|nic| is_backend(context.state, nic, id)).map(|nic| {
        let mut shown = nic.clone();
        // That of an instance shows no type.
        if nic["type"] == kinds::INSTANCE_NIC
            && let Some(members) = shown.as_object_mut()
        {
            members.shift_remove("type");
        }
        Document::from(shown)
    });
    let members = members.collect();
    lists::of_documents(context, members)
}

/// The load balancers in whose pools and NAT rules a network interface is. Documented, by an example.
pub(crate) fn list_balancers(context: &mut Context<'_>) -> Reply {
    context.require_group()?;
    let of_type = interface(context.state);
    let nic = context.state.store.shown(&of_type.id(context), context.now);
    let nic = nic.ok_or_else(|| of_type.not_found(context))?;
    let shown = references::BackReferences::of(balancer(context.state), context.state);
    let found = balancers(context.state, &nic).into_iter().map(|balancer| shown.shown_in(balancer)).collect();
    lists::of_documents(context, found)
}

/// `migrateToIpBased`: pools of network interfaces become pools of their addresses, in one request that is done at once
/// (published shape; how the members are named is unverified).
pub(crate) fn migrate(context: &mut Context<'_>) -> Reply {
    context.require_group()?;
    let of_type = balancer(context.state);
    let id = of_type.id(context);
    let Some(balancer) = context.state.store.document(&id) else { return Err(of_type.not_found(context)) };
    let id = path::of(&balancer).to_owned();
    let asked = context.request.body()?["pools"].as_array().cloned().unwrap_or_default();
    let asked: Vec<String> = asked.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect();
    let mut migrated = Vec::new();
    for name in asked {
        let pools = balancer["properties"]["backendAddressPools"].as_array().into_iter().flatten();
        let Some(pool) = pools.into_iter().find(|pool| pool["name"].as_str().is_some_and(|own| path::same(own, &name)))
        else {
            return Err(fault::bad_request(format!("The load balancer {id} has no backend address pool {name}.")));
        };
        let pool = path::of(pool).to_owned();
        let (members, network) = leave_pool(context, &pool);
        let etag = document::weak(&context.state.guid());
        context.state.store.change(&id, context.now, |resource| {
            let pools = resource.doc["properties"]["backendAddressPools"].as_array_mut();
            for own in pools.into_iter().flatten().filter(|own| path::same(path::of(own), &pool)) {
                own["properties"]["loadBalancerBackendAddresses"] = members.clone().into();
                if let Some(network) = &network {
                    own["properties"]["virtualNetwork"] = json!({"id": network});
                }
            }
            document::retag(of_type, &mut resource.doc, &etag);
        });
        migrated.push(name);
    }
    Ok(Answer::json(200, json!({ "migratedPools": migrated })))
}

/// Takes all interfaces out of a pool. Returns the addresses that they had in it, and their virtual network.
fn leave_pool(context: &mut Context<'_>, pool: &str) -> (Vec<Value>, Option<String>) {
    let is_it = |reference: &Value| reference["id"].as_str().is_some_and(|id| path::same(id, pool));
    let of_type = interface(context.state);
    let members: Vec<String> = context
        .state
        .store
        .of_kind(kinds::NIC)
        .filter(|nic| {
            let named = references::named(of_type, nic, kinds::BACKEND_POOL);
            named.into_iter().any(|id| path::same(id, pool))
        })
        .map(|nic| path::of(nic).to_owned())
        .collect();
    let (mut addresses, mut network) = (Vec::new(), None);
    for nic in members {
        let etag = document::weak(&context.state.guid());
        context.state.store.change(&nic, context.now, |resource| {
            let name = resource.doc["name"].clone();
            let configurations = resource.doc["properties"]["ipConfigurations"].as_array_mut();
            for configuration in configurations.into_iter().flatten() {
                let own = &mut configuration["properties"];
                let Some(pools) = own.get_mut("loadBalancerBackendAddressPools").and_then(Value::as_array_mut) else {
                    continue;
                };
                let before = pools.len();
                pools.retain(|reference| !is_it(reference));
                if pools.len() < before {
                    network = own["subnet"]["id"].as_str().map(|id| path::parent_of(id).to_owned()).or(network.take());
                    addresses.push(json!({"name": name, "properties": {"ipAddress": own["privateIPAddress"]}}));
                }
            }
            document::retag(of_type, &mut resource.doc, &etag);
        });
    }
    (addresses, network)
}

/// Removes interfaces from the pools and NAT rules of a load balancer that has been deleted, where the switch says so.
/// Else one that has interfaces cannot be deleted, and there is nothing to remove.
pub(crate) fn leave(state: &mut State, deleted: &Value, at: Duration) {
    if !state.switches.interfaces_leave_deleted_pool {
        return;
    }
    let of_type = interface(state);
    let parts = balancer(state).children.iter();
    let parts = parts.filter(|part| [kinds::BACKEND_POOL, kinds::NAT_RULE].contains(&part.kind));
    let parts = parts.flat_map(|part| document::list(deleted, part));
    let gone: BTreeSet<String> = parts.map(|part| path::key(path::of(part))).collect();
    let is_gone = |reference: &Value| reference["id"].as_str().is_some_and(|id| gone.contains(&path::key(id)));
    let concerned: Vec<String> = state
        .store
        .of_kind(kinds::NIC)
        .filter(|nic| {
            let named = |kind| references::named(of_type, nic, kind);
            let all = [named(kinds::BACKEND_POOL), named(kinds::NAT_RULE)].concat();
            all.into_iter().any(|id| gone.contains(&path::key(id)))
        })
        .map(|nic| path::of(nic).to_owned())
        .collect();
    for nic in concerned {
        let etag = document::weak(&state.guid());
        state.store.change(&nic, at, |resource| {
            let configurations = resource.doc["properties"]["ipConfigurations"].as_array_mut();
            for configuration in configurations.into_iter().flatten() {
                for member in ["loadBalancerBackendAddressPools", "loadBalancerInboundNatRules"] {
                    if let Some(list) = configuration["properties"].get_mut(member).and_then(Value::as_array_mut) {
                        list.retain(|reference| !is_gone(reference));
                    }
                }
            }
            document::retag(of_type, &mut resource.doc, &etag);
        });
    }
}
