//! Edits of a route table, on the model and on the raw body.

use std::{collections::BTreeMap, net::IpAddr};

use lazuli_model::{
    address::Cidr,
    json::{self, Provisioning, put, remove},
};
use serde_json::{Value, json};

use super::{
    Env,
    model::{Route, RouteTable},
};

const ROUTES: &str = "routes";

/// One change of a route table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// Begin a new one; always the first.
    Create,
    /// Add a route, or lead the one of this name elsewhere.
    PutRoute {
        /// Its name.
        name: String,
        /// The range.
        range: Cidr,
        /// The address.
        next_hop: IpAddr,
    },
    /// Remove a route.
    RemoveRoute(String),
    /// Change the tags.
    Tags {
        /// Set these.
        set: BTreeMap<String, String>,
        /// Remove these.
        remove: Vec<String>,
    },
}

/// Whether the edits remove or replace something that exists.
pub fn replaces(edits: &[Edit], actual: Option<&RouteTable>) -> bool {
    edits.iter().any(|edit| match edit {
        Edit::Create => false,
        Edit::PutRoute { name, .. } => actual.is_some_and(|actual| actual.route(name).is_some()),
        Edit::RemoveRoute(_) => true,
        Edit::Tags { remove, .. } => !remove.is_empty(),
    })
}

/// What the edits do to the model.
pub fn apply(actual: Option<RouteTable>, edits: &[Edit], env: &Env) -> Option<RouteTable> {
    edits.iter().fold(actual, |actual, edit| {
        if *edit == Edit::Create {
            return Some(RouteTable {
                id: env.id.clone(),
                routes: vec![],
                subnets: vec![],
                tags: BTreeMap::new(),
                provisioning: Provisioning::Succeeded,
            });
        }
        let mut table = actual?;
        match edit {
            Edit::Create => {}
            Edit::PutRoute { name, range, next_hop } => {
                let (range, next_hop) = (Some(*range), Some(*next_hop));
                match table.routes.iter_mut().find(|route| route.name.eq_ignore_ascii_case(name)) {
                    Some(route) => (route.range, route.next_hop) = (range, next_hop),
                    None => table.routes.push(Route { name: name.clone(), range, next_hop }),
                }
            }
            Edit::RemoveRoute(name) => table.routes.retain(|route| !route.name.eq_ignore_ascii_case(name)),
            Edit::Tags { set, remove } => {
                table.tags.extend(set.clone());
                table.tags.retain(|name, _| !remove.contains(name));
            }
        }
        Some(table)
    })
}

/// What the edits do to the raw body.
pub fn apply_raw(body: Option<Value>, edits: &[Edit], env: &Env) -> Option<Value> {
    edits.iter().fold(body, |body, edit| {
        if *edit == Edit::Create {
            return Some(json!({ "name": env.id.name(), "location": env.location, "properties": {} }));
        }
        let mut body = body?;
        match edit {
            Edit::Create => {}
            Edit::PutRoute { name, range, next_hop } => put(&mut body, ROUTES, &Route::child(name, *range, *next_hop)),
            Edit::RemoveRoute(name) => remove(&mut body, ROUTES, name),
            Edit::Tags { set, remove } => json::change_tags(&mut body, set, remove),
        }
        Some(body)
    })
}
