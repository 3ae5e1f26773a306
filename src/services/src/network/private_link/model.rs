//! A private link service as Azure describes it.

use std::{collections::BTreeMap, net::IpAddr};

use lazuli_model::{
    ArmId,
    json::{self, BodyError, Provisioning, at, list, text, texts},
    tags,
};
use serde_json::Value;

use super::{CLUSTER_TAG, OWNER_TAG};

/// A private link service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrivateLink {
    /// Its id.
    pub id: ArmId,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// The frontends that it is in front of.
    pub frontends: Vec<ArmId>,
    /// Its addresses.
    pub addresses: Vec<LinkAddress>,
    /// Its host names.
    pub host_names: Vec<String>,
    /// Whether it sends the proxy protocol.
    pub proxy_protocol: bool,
    /// The subscriptions that see it.
    pub visible_to: Vec<String>,
    /// The subscriptions whose connections are approved at once.
    pub approved_for: Vec<String>,
    /// The names of its connections.
    pub connections: Vec<String>,
    /// How its last operation went.
    pub provisioning: Provisioning,
}

/// An address of a private link service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkAddress {
    /// Its name.
    pub name: String,
    /// The address, if it was named rather than chosen by Azure.
    pub address: Option<IpAddr>,
    /// Whether it is the primary one.
    pub is_primary: bool,
    /// Its subnet.
    pub subnet: Option<ArmId>,
}

impl PrivateLink {
    /// Reads the body of the private link service of this id.
    ///
    /// # Errors
    /// When it is no object.
    pub fn read(id: &ArmId, body: &Value) -> Result<Self, BodyError> {
        if !body.is_object() {
            return Err(BodyError { object: "a private link service", field: "object" });
        }
        let id_at = |item: &Value, path: &[&str]| text(item, path)?.parse::<ArmId>().ok();
        let addresses = list(body, &["properties", "ipConfigurations"]).iter().map(|item| {
            let property = |key| text(item, &["properties", key]);
            let is_static = property("privateIPAllocationMethod").is_some_and(|how| how.eq_ignore_ascii_case("Static"));
            LinkAddress {
                name: text(item, &["name"]).unwrap_or_default().to_owned(),
                address: property("privateIPAddress").filter(|_| is_static).and_then(|text| text.parse().ok()),
                is_primary: at(item, &["properties", "primary"]).and_then(Value::as_bool).unwrap_or(false),
                subnet: id_at(item, &["properties", "subnet", "id"]),
            }
        });
        let properties = |path: &[&str]| texts(body, &[&["properties"], path].concat());
        Ok(Self {
            id: id.clone(),
            tags: json::tags(body),
            frontends: list(body, &["properties", "loadBalancerFrontendIpConfigurations"])
                .iter()
                .filter_map(|item| id_at(item, &["id"]))
                .collect(),
            addresses: addresses.collect(),
            host_names: properties(&["fqdns"]),
            proxy_protocol: at(body, &["properties", "enableProxyProtocol"]).and_then(Value::as_bool).unwrap_or(false),
            visible_to: properties(&["visibility", "subscriptions"]),
            approved_for: properties(&["autoApproval", "subscriptions"]),
            connections: list(body, &["properties", "privateEndpointConnections"])
                .iter()
                .filter_map(|item| text(item, &["name"]).map(str::to_owned))
                .collect(),
            provisioning: Provisioning::read(body),
        })
    }

    /// The Service that owns it.
    pub fn owner(&self) -> Option<&str> {
        tags::find(&self.tags, OWNER_TAG).map(|(_, owner)| owner.as_str()).filter(|owner| !owner.is_empty())
    }

    /// Whether this cluster made it.
    pub fn is_of_cluster(&self, cluster: &str) -> bool {
        tags::find(&self.tags, CLUSTER_TAG).is_some_and(|(_, name)| name.trim().eq_ignore_ascii_case(cluster))
    }
}
