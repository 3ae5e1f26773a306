//! Edits of a security group, on the model and on the raw body.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use lazuli_model::json::{self, Child, put, remove};
use serde_json::Value;

use super::{
    Env,
    model::{SecurityGroup, SecurityRule},
};
use crate::ask::names;

/// One change of a security group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// Add a rule, or give the one of this name all these properties.
    PutRule(SecurityRule),
    /// Change the destinations of a rule.
    Destinations {
        /// The rule.
        rule: String,
        /// All of them.
        destinations: Vec<String>,
    },
    /// Remove a rule.
    RemoveRule(String),
    /// Change the tags.
    Tags {
        /// Set these.
        set: BTreeMap<String, String>,
        /// Remove these.
        remove: Vec<String>,
    },
}

/// Whether the edits remove or replace something that exists.
pub fn replaces(edits: &[Edit], actual: &SecurityGroup) -> bool {
    edits.iter().any(|edit| match edit {
        Edit::PutRule(new) => actual.rule(&new.name).is_some(),
        Edit::Destinations { rule, destinations } => {
            let there = actual.rule(rule).map_or(&[][..], |rule| &rule.destinations);
            !there.iter().all(|address| destinations.contains(address))
        }
        Edit::RemoveRule(_) => true,
        Edit::Tags { remove, .. } => !remove.is_empty(),
    })
}

/// Whether the edits let a source reach an address that could not before, where rules of this provider are about the address
/// already: who may reach a Service that is served becomes more. A node that an existing rule gets as a destination becomes a
/// backend, which is none of that.
pub fn admits_more(edits: &[Edit], actual: &SecurityGroup, env: &Env) -> bool {
    let is_ours = |rule: &&SecurityRule| rule.is_managed() || names::old_security_rule(&rule.name).is_some();
    let of =
        |rule: &SecurityRule| rule.destinations.iter().filter_map(|text| text.parse().ok()).collect::<Vec<IpAddr>>();
    let known: OnceCell<BTreeSet<IpAddr>> = OnceCell::new();
    let is_known = |address: &IpAddr| {
        known.get_or_init(|| actual.rules.iter().filter(is_ours).flat_map(of).collect()).contains(address)
    };
    let adds = |name: &str, destinations: &[String]| {
        let there = actual.rule(name);
        let had: BTreeSet<IpAddr> = there.into_iter().flat_map(of).collect();
        let new = destinations.iter().filter_map(|text| text.parse::<IpAddr>().ok());
        let mut served = new.filter(|address| !had.contains(address) && is_known(address));
        served.any(|address| there.is_none() || !env.nodes.contains(&address))
    };
    edits.iter().any(|edit| match edit {
        Edit::PutRule(new) => new.is_allow && adds(&new.name, &new.destinations),
        Edit::Destinations { rule, destinations } => {
            actual.rule(rule).is_some_and(|rule| rule.is_allow) && adds(rule, destinations)
        }
        Edit::RemoveRule(_) | Edit::Tags { .. } => false,
    })
}

/// What the edits do to the model. This provider neither makes nor deletes a security group.
pub fn apply(actual: Option<SecurityGroup>, edits: &[Edit], _env: &Env) -> Option<SecurityGroup> {
    let mut actual = actual?;
    for edit in edits {
        match edit {
            Edit::PutRule(new) => {
                match actual.rules.iter_mut().find(|rule| rule.name.eq_ignore_ascii_case(&new.name)) {
                    Some(rule) => {
                        *rule = SecurityRule { name: rule.name.clone(), has_groups: rule.has_groups, ..new.clone() }
                    }
                    None => actual.rules.push(new.clone()),
                }
            }
            Edit::Destinations { rule, destinations } => {
                if let Some(rule) = actual.rules.iter_mut().find(|there| there.name.eq_ignore_ascii_case(rule)) {
                    rule.destinations.clone_from(destinations);
                }
            }
            Edit::RemoveRule(name) => actual.rules.retain(|rule| !rule.name.eq_ignore_ascii_case(name)),
            Edit::Tags { set, remove } => {
                actual.tags.extend(set.clone());
                actual.tags.retain(|name, _| !remove.contains(name));
            }
        }
    }
    Some(actual)
}

/// What the edits do to the raw body.
pub fn apply_raw(body: Option<Value>, edits: &[Edit], _env: &Env) -> Option<Value> {
    const RULES: &str = "securityRules";
    let mut body = body?;
    for edit in edits {
        match edit {
            Edit::PutRule(rule) => put(&mut body, RULES, &rule.child()),
            Edit::Destinations { rule, destinations } => {
                let properties = SecurityRule::destination_properties(destinations);
                put(&mut body, RULES, &Child { name: rule.clone(), properties, beside: vec![] });
            }
            Edit::RemoveRule(name) => remove(&mut body, RULES, name),
            Edit::Tags { set, remove } => json::change_tags(&mut body, set, remove),
        }
    }
    Some(body)
}
