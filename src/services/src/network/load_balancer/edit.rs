//! Edits of a load balancer, on the model and on the raw body.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use lazuli_model::{
    ArmId,
    json::{self, Provisioning, child_mut, object, put, remove, set, text},
};
use serde_json::{Value, json};

use super::{
    Env,
    model::{BackendAddress, Frontend, LoadBalancer, Pool, Probe, Rule},
    released,
};

/// One change of a load balancer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// Begin a new one; always the first.
    Create,
    /// Change its tags.
    Tags {
        /// Set these.
        set: BTreeMap<String, String>,
        /// Remove these.
        remove: Vec<String>,
    },
    /// Add an empty pool.
    AddPool(String),
    /// Have Azure make pools of addresses of these pools of NICs, with the same members; always alone.
    MigratePools(Vec<String>),
    /// Change the members of a pool of addresses.
    Members {
        /// The pool.
        pool: String,
        /// The virtual network, if the pool has none yet.
        vnet: Option<ArmId>,
        /// Addresses that come, with the names of their nodes.
        add: BTreeMap<IpAddr, String>,
        /// Addresses that leave.
        remove: Vec<IpAddr>,
    },
    /// Add or change a frontend.
    PutFrontend(Frontend),
    /// Add or change a probe.
    PutProbe(Probe),
    /// Add or change a rule.
    PutRule(Rule),
    /// Remove a rule.
    RemoveRule(String),
    /// Remove a probe.
    RemoveProbe(String),
    /// Remove a frontend.
    RemoveFrontend(String),
    /// Remove a pool.
    RemovePool(String),
    /// Delete the load balancer; always alone.
    Delete,
}

/// Which resource a write of some edits goes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteTarget {
    /// PUT of the load balancer.
    Whole,
    /// PUT of one backend pool: cheaper, and no rule is sent.
    Pool(String),
    /// POST of `migrateToIpBased`, for these pools.
    Migration(Vec<String>),
    /// DELETE of the load balancer.
    Delete,
}

/// Where the edits of one plan go.
pub fn write_target(edits: &[Edit]) -> WriteTarget {
    match edits {
        [Edit::Delete] => WriteTarget::Delete,
        [Edit::MigratePools(pools)] => WriteTarget::Migration(pools.clone()),
        [Edit::Members { pool, .. }] => WriteTarget::Pool(pool.clone()),
        _ => WriteTarget::Whole,
    }
}

/// Whether the edits remove or replace something that exists.
pub fn replaces(edits: &[Edit], actual: Option<&LoadBalancer>) -> bool {
    let Some(actual) = actual else { return false };
    let released = actual.released_frontend().map(|frontend| &frontend.name);
    edits.iter().any(|edit| match edit {
        Edit::Create | Edit::AddPool(_) => false,
        Edit::Tags { remove, .. } => remove.iter().any(|name| !name.eq_ignore_ascii_case(released::TAG)),
        // No Service has it any more.
        Edit::RemoveFrontend(name) if Some(name) == released => false,
        Edit::Members { remove, .. } => !remove.is_empty(),
        Edit::PutFrontend(new) => actual.frontend(&new.name).is_some(),
        Edit::PutProbe(new) => actual.probe(&new.name).is_some(),
        Edit::PutRule(new) => actual.rule(&new.name).is_some(),
        Edit::MigratePools(_)
        | Edit::RemoveRule(_)
        | Edit::RemoveProbe(_)
        | Edit::RemoveFrontend(_)
        | Edit::RemovePool(_)
        | Edit::Delete => true,
    })
}

/// The body of one pool within that of its load balancer, for a PUT of the pool.
pub fn pool_body(body: &Value, pool: &str) -> Option<Value> {
    json::child(body, "backendAddressPools", pool).cloned()
}

fn put_in<T>(items: &mut Vec<T>, new: T, name: impl Fn(&T) -> &str) -> &mut T {
    let position = items.iter().position(|item| name(item).eq_ignore_ascii_case(name(&new)));
    match position {
        Some(position) => &mut items[position],
        None => {
            items.push(new);
            items.last_mut().expect("it was just pushed")
        }
    }
}

/// What the edits do to the model.
pub fn apply(actual: Option<LoadBalancer>, edits: &[Edit], env: &Env) -> Option<LoadBalancer> {
    edits.iter().fold(actual, |actual, edit| match (actual, edit) {
        (_, Edit::Delete) => None,
        (_, Edit::Create) => Some(LoadBalancer {
            id: env.id.clone(),
            sku: env.sku,
            tags: BTreeMap::new(),
            frontends: vec![],
            rules: vec![],
            probes: vec![],
            pools: vec![],
            outbound_rules: vec![],
            nat: vec![],
            provisioning: Provisioning::Succeeded,
        }),
        (None, _) => None,
        (Some(mut actual), edit) => {
            apply_one(&mut actual, edit);
            Some(actual)
        }
    })
}

fn apply_one(actual: &mut LoadBalancer, edit: &Edit) {
    match edit {
        Edit::Create | Edit::Delete => {}
        Edit::Tags { set, remove } => {
            actual.tags.extend(set.clone());
            actual.tags.retain(|name, _| !remove.contains(name));
        }
        Edit::AddPool(name) => {
            let new = Pool { name: name.clone(), vnet: None, addresses: vec![], nic_members: 0, nics: BTreeSet::new() };
            put_in(&mut actual.pools, new, |pool| &pool.name);
        }
        // Which addresses come is Azure's to say: the next read shows them.
        Edit::MigratePools(names) => {
            let is_named = |pool: &Pool| names.iter().any(|name| name.eq_ignore_ascii_case(&pool.name));
            for pool in actual.pools.iter_mut().filter(|pool| is_named(pool)) {
                (pool.addresses, pool.nic_members, pool.nics) = (vec![], 0, BTreeSet::new());
            }
        }
        Edit::Members { pool, vnet, add, remove } => {
            if let Some(pool) = actual.pools.iter_mut().find(|there| there.name.eq_ignore_ascii_case(pool)) {
                pool.vnet = vnet.clone().or(pool.vnet.take());
                pool.addresses.retain(|member| member.address.is_none_or(|address| !remove.contains(&address)));
                pool.addresses.extend(
                    add.iter().map(|(address, name)| BackendAddress { name: name.clone(), address: Some(*address) }),
                );
            }
        }
        Edit::PutFrontend(new) => {
            let there = put_in(&mut actual.frontends, new.clone(), |item| &item.name);
            let (name, zones) = (there.name.clone(), there.zones.clone());
            *there = Frontend { name, zones, ..new.clone() };
        }
        Edit::PutProbe(new) => {
            let there = put_in(&mut actual.probes, new.clone(), |item| &item.name);
            *there = Probe { name: there.name.clone(), ..new.clone() };
        }
        Edit::PutRule(new) => {
            let there = put_in(&mut actual.rules, new.clone(), |item| &item.name);
            let tcp_reset = new.tcp_reset.or(there.tcp_reset);
            *there = Rule { name: there.name.clone(), tcp_reset, ..new.clone() };
        }
        Edit::RemoveRule(name) => actual.rules.retain(|item| !item.name.eq_ignore_ascii_case(name)),
        Edit::RemoveProbe(name) => actual.probes.retain(|item| !item.name.eq_ignore_ascii_case(name)),
        Edit::RemoveFrontend(name) => actual.frontends.retain(|item| !item.name.eq_ignore_ascii_case(name)),
        Edit::RemovePool(name) => actual.pools.retain(|item| !item.name.eq_ignore_ascii_case(name)),
    }
}

/// What the edits do to the raw body.
pub fn apply_raw(body: Option<Value>, edits: &[Edit], env: &Env) -> Option<Value> {
    edits.iter().fold(body, |body, edit| match (body, edit) {
        (_, Edit::Delete) => None,
        (_, Edit::Create) => Some(new_body(env)),
        (None, _) => None,
        (Some(mut body), edit) => {
            apply_raw_one(&mut body, edit, &env.id);
            Some(body)
        }
    })
}

fn new_body(env: &Env) -> Value {
    let mut body = json!({
        "name": env.id.name(),
        "location": env.location,
        "properties": {},
        "sku": { "name": env.sku.as_str() },
    });
    if let Some(zone) = &env.edge_zone {
        body["extendedLocation"] = json!({ "name": zone, "type": "EdgeZone" });
    }
    body
}

fn apply_raw_one(body: &mut Value, edit: &Edit, id: &ArmId) {
    const FRONTENDS: &str = "frontendIPConfigurations";
    const RULES: &str = "loadBalancingRules";
    const PROBES: &str = "probes";
    const POOLS: &str = "backendAddressPools";
    match edit {
        Edit::Create | Edit::Delete => {}
        Edit::Tags { set, remove } => json::change_tags(body, set, remove),
        Edit::AddPool(name) => {
            put(body, POOLS, &json::Child { name: name.clone(), properties: vec![], beside: vec![] });
        }
        Edit::MigratePools(names) => {
            for name in names {
                let pool = child_mut(body, POOLS, name).and_then(|pool| pool.get_mut("properties"));
                if let Some(properties) = pool.and_then(Value::as_object_mut) {
                    let nics = ["backendIPConfigurations", "loadBalancerBackendAddresses"];
                    properties.retain(|key, _| !nics.iter().any(|one| one.eq_ignore_ascii_case(key)));
                }
            }
        }
        Edit::Members { pool, vnet, add, remove } => {
            if let Some(pool) = child_mut(body, POOLS, pool) {
                change_members(pool, vnet.as_ref(), add, remove);
            }
        }
        Edit::PutFrontend(new) => {
            let is_new = json::child(body, FRONTENDS, &new.name).is_none();
            put(body, FRONTENDS, &new.child(id, is_new));
        }
        Edit::PutProbe(new) => put(body, PROBES, &new.child()),
        Edit::PutRule(new) => put(body, RULES, &new.child()),
        Edit::RemoveRule(name) => remove_from(body, RULES, name),
        Edit::RemoveProbe(name) => remove_from(body, PROBES, name),
        Edit::RemoveFrontend(name) => remove_from(body, FRONTENDS, name),
        Edit::RemovePool(name) => remove_from(body, POOLS, name),
    }
}

fn remove_from(body: &mut Value, list: &str, name: &str) {
    remove(body, list, name);
}

fn change_members(pool: &mut Value, vnet: Option<&ArmId>, add: &BTreeMap<IpAddr, String>, gone: &[IpAddr]) {
    let properties = object(pool, &["properties"]);
    if let Some(vnet) = vnet {
        set(properties, "virtualNetwork", json::reference(vnet));
    }
    let key = "loadBalancerBackendAddresses";
    let spelled = properties.keys().find(|name| name.eq_ignore_ascii_case(key)).map_or(key, String::as_str).to_owned();
    let members = properties.entry(spelled).or_insert_with(|| json!([]));
    let Some(members) = members.as_array_mut() else { return };
    members.retain(|member| {
        let address = text(member, &["properties", "ipAddress"]).and_then(|text| text.parse::<IpAddr>().ok());
        address.is_none_or(|address| !gone.contains(&address))
    });
    members.extend(
        add.iter().map(|(address, name)| json!({ "name": name, "properties": { "ipAddress": address.to_string() } })),
    );
}
