//! The network policy of a subnet that holds addresses of private link services.
//!
//! Azure refuses a private link service in a subnet whose `privateLinkServiceNetworkPolicies` are enabled. The write is a
//! PUT of the whole subnet with If-Match, and lossless: route tables, delegations and service endpoints stay.

use lazuli_model::{
    ArmId,
    address::Cidr,
    json::{BodyError, Provisioning, object, one_or_many, set, text},
};
use serde_json::{Value, json};

/// A subnet as Azure describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subnet {
    /// Its id.
    pub id: ArmId,
    /// Its address ranges.
    pub ranges: Vec<Cidr>,
    /// Whether policies keep private link services out: Azure's default.
    pub has_private_link_policies: bool,
    /// How its last operation went.
    pub provisioning: Provisioning,
}

/// What a Service asks of a subnet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Want {
    /// Whether a private link service of it takes addresses from the subnet.
    pub lets_private_links_in: bool,
}

/// The one change of a subnet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edit {
    /// Let private link services in.
    DisablePrivateLinkPolicies,
}

impl Subnet {
    /// Reads the body of the subnet of this id.
    ///
    /// # Errors
    /// When it is no object.
    pub fn read(id: &ArmId, body: &Value) -> Result<Self, BodyError> {
        let properties = body.get("properties").ok_or(BodyError { object: "a subnet", field: "properties" })?;
        let ranges = one_or_many(properties, "addressPrefix", "addressPrefixes");
        let policies = text(properties, &["privateLinkServiceNetworkPolicies"]);
        Ok(Self {
            id: id.clone(),
            ranges: ranges.iter().filter_map(|text| text.parse().ok()).collect(),
            has_private_link_policies: !policies.is_some_and(|state| state.eq_ignore_ascii_case("Disabled")),
            provisioning: Provisioning::read(body),
        })
    }
}

/// Plans one write of a subnet. `holds_private_links` says that a private link service takes addresses from it.
pub fn plan(actual: &Subnet, holds_private_links: bool) -> Vec<Edit> {
    let is_needed = holds_private_links && actual.has_private_link_policies;
    if is_needed { vec![Edit::DisablePrivateLinkPolicies] } else { vec![] }
}

/// What the edits do to the model.
pub fn apply(mut actual: Subnet, edits: &[Edit]) -> Subnet {
    actual.has_private_link_policies &= edits.is_empty();
    actual
}

/// What the edits do to the raw body.
pub fn apply_raw(mut body: Value, edits: &[Edit]) -> Value {
    if !edits.is_empty() {
        set(object(&mut body, &["properties"]), "privateLinkServiceNetworkPolicies", json!("Disabled"));
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_is_disabled_once_and_all_else_stays() {
        let id: ArmId = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/n"
            .parse()
            .unwrap();
        let body = json!({
            "name": "n", "etag": "W/\"1\"",
            "properties": { "addressPrefix": "10.0.0.0/16", "delegations": [{"name": "d"}], "routeTable": {"id": "r"} }
        });
        let subnet = Subnet::read(&id, &body).unwrap();
        assert_eq!(subnet.ranges, ["10.0.0.0/16".parse().unwrap()]);
        assert_eq!(plan(&subnet, false), []);
        let edits = plan(&subnet, true);
        let after = apply_raw(body.clone(), &edits);
        let mut expected = body;
        expected["properties"]["privateLinkServiceNetworkPolicies"] = json!("Disabled");
        assert_eq!(after, expected);
        let read = Subnet::read(&id, &after).unwrap();
        assert_eq!(read, apply(subnet, &edits));
        assert_eq!(plan(&read, true), []);
    }
}
