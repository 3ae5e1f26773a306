//! Edits of a public IP, on the model and on the raw body.

use std::collections::BTreeMap;

use lazuli_model::{
    ArmId,
    address::Family,
    json::{self, Provisioning, object, set, unset},
};
use serde_json::{Value, json};

use super::{Env, model::PublicIp};
use crate::{ask::IpTag, network::settings::LoadBalancerSku};

/// One change of a public IP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// Begin a new one; always the first.
    Create(NewPublicIp),
    /// Change its tags.
    Tags {
        /// Set these.
        set: BTreeMap<String, String>,
        /// Remove these.
        remove: Vec<String>,
    },
    /// Set or remove its DNS label.
    DnsLabel(Option<String>),
    /// Set its IP tags.
    IpTags(Vec<IpTag>),
    /// Delete it; always alone.
    Delete,
}

/// What can be said of a public IP only when it is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPublicIp {
    /// The family of its address.
    pub family: Family,
    /// The prefix to take the address from.
    pub prefix: Option<ArmId>,
}

fn fold<T>(
    actual: Option<T>,
    edits: &[Edit],
    new: impl Fn(&NewPublicIp) -> T,
    change: impl Fn(&mut T, &Edit),
) -> Option<T> {
    edits.iter().fold(actual, |actual, edit| match (actual, edit) {
        (_, Edit::Delete) => None,
        (_, Edit::Create(what)) => Some(new(what)),
        (None, _) => None,
        (Some(mut actual), edit) => {
            change(&mut actual, edit);
            Some(actual)
        }
    })
}

/// Whether the edits remove or replace something that exists.
pub fn replaces(edits: &[Edit], actual: Option<&PublicIp>) -> bool {
    // No Service has one any more that is released.
    actual.is_some_and(|actual| !actual.is_released())
        && edits.iter().any(|edit| match edit {
            Edit::Create(_) => false,
            Edit::Tags { remove, .. } => !remove.is_empty(),
            Edit::DnsLabel(_) => actual.is_some_and(|actual| actual.dns_label.is_some()),
            Edit::IpTags(_) | Edit::Delete => true,
        })
}

/// What the edits do to the model. Azure assigns an address to a new one later.
pub fn apply(actual: Option<PublicIp>, edits: &[Edit], env: &Env) -> Option<PublicIp> {
    let new = |what: &NewPublicIp| PublicIp {
        id: env.id.clone(),
        address: None,
        family: what.family,
        sku: env.sku,
        tags: BTreeMap::new(),
        dns_label: None,
        host_name: None,
        ip_tags: vec![],
        used_by: None,
        provisioning: Provisioning::Succeeded,
    };
    fold(actual, edits, new, |actual, edit| match edit {
        Edit::Tags { set, remove } => {
            actual.tags.extend(set.clone());
            actual.tags.retain(|name, _| !remove.contains(name));
        }
        Edit::DnsLabel(label) => {
            actual.dns_label.clone_from(label);
            if label.is_none() {
                actual.host_name = None;
            }
        }
        Edit::IpTags(tags) => actual.ip_tags.clone_from(tags),
        Edit::Create(_) | Edit::Delete => {}
    })
}

/// What the edits do to the raw body.
pub fn apply_raw(body: Option<Value>, edits: &[Edit], env: &Env) -> Option<Value> {
    fold(
        body,
        edits,
        |what| new_body(what, env),
        |body, edit| match edit {
            Edit::Tags { set, remove } => json::change_tags(body, set, remove),
            Edit::DnsLabel(Some(label)) => {
                set(object(body, &["properties", "dnsSettings"]), "domainNameLabel", json!(label))
            }
            Edit::DnsLabel(None) => unset(object(body, &["properties"]), "dnsSettings"),
            Edit::IpTags(tags) => {
                let tags: Vec<Value> =
                    tags.iter().map(|tag| json!({ "ipTagType": tag.kind, "tag": tag.tag })).collect();
                set(object(body, &["properties"]), "ipTags", json!(tags));
            }
            Edit::Create(_) | Edit::Delete => {}
        },
    )
}

fn new_body(what: &NewPublicIp, env: &Env) -> Value {
    // A Basic IPv6 address is always dynamic.
    let is_static = env.sku == LoadBalancerSku::Standard || what.family == Family::V4;
    let mut body = json!({
        "name": env.id.name(),
        "location": env.location,
        "properties": {
            "publicIPAllocationMethod": if is_static { "Static" } else { "Dynamic" },
            "publicIPAddressVersion": what.family.as_str(),
        },
    });
    if let Some(zone) = &env.edge_zone {
        body["extendedLocation"] = json!({ "name": zone, "type": "EdgeZone" });
    }
    if env.sku == LoadBalancerSku::Standard {
        body["sku"] = json!({ "name": "Standard" });
        if let Some(prefix) = &what.prefix {
            body["properties"]["publicIPPrefix"] = json::reference(prefix);
        }
        if env.edge_zone.is_none() && !env.zones.is_empty() {
            body["zones"] = json!(env.zones);
        }
    }
    body
}
