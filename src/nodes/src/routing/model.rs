//! A route table and a subnet as Azure describes them.

use std::{collections::BTreeMap, net::IpAddr};

use lazuli_model::{
    ArmId,
    address::Cidr,
    json::{self, BodyError, Child, Provisioning, list, text},
};
use serde_json::{Value, json};

/// The type of next hop that leads to an address. Source: the Go manager.
const VIRTUAL_APPLIANCE: &str = "VirtualAppliance";

/// A route table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteTable {
    /// Its id.
    pub id: ArmId,
    /// Its routes, in Azure's order.
    pub routes: Vec<Route>,
    /// The subnets that it serves.
    pub subnets: Vec<ArmId>,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// How its last operation went.
    pub provisioning: Provisioning,
}

/// A route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Its name.
    pub name: String,
    /// Its range; `None` for a service tag.
    pub range: Option<Cidr>,
    /// The address that it leads to; `None` for a gateway, the internet, and the like.
    pub next_hop: Option<IpAddr>,
}

impl RouteTable {
    /// Reads the body of the route table of this id.
    ///
    /// # Errors
    /// When it has no properties.
    pub fn read(id: &ArmId, body: &Value) -> Result<Self, BodyError> {
        if !body.get("properties").is_some_and(Value::is_object) {
            return Err(BodyError { object: "a route table", field: "properties" });
        }
        let subnets = list(body, &["properties", "subnets"]).iter();
        Ok(Self {
            id: id.clone(),
            routes: list(body, &["properties", "routes"]).iter().map(Route::read).collect(),
            subnets: subnets.filter_map(|subnet| text(subnet, &["id"])?.parse().ok()).collect(),
            tags: json::tags(body),
            provisioning: Provisioning::read(body),
        })
    }

    /// The route of this name; Azure ignores the case of letters.
    pub fn route(&self, name: &str) -> Option<&Route> {
        self.routes.iter().find(|route| route.name.eq_ignore_ascii_case(name))
    }
}

impl Route {
    fn read(body: &Value) -> Self {
        let property = |name: &str| text(body, &["properties", name]);
        let is_appliance = property("nextHopType").is_some_and(|hop| hop.eq_ignore_ascii_case(VIRTUAL_APPLIANCE));
        Self {
            name: text(body, &["name"]).unwrap_or_default().to_owned(),
            range: property("addressPrefix").and_then(|text| text.parse().ok()),
            next_hop: property("nextHopIpAddress").filter(|_| is_appliance).and_then(|text| text.parse().ok()),
        }
    }

    /// The route in a body of Azure.
    pub(super) fn child(name: &str, range: Cidr, next_hop: IpAddr) -> Child {
        Child {
            name: name.to_owned(),
            properties: vec![
                ("addressPrefix", Some(json!(range.to_string()))),
                ("nextHopType", Some(json!(VIRTUAL_APPLIANCE))),
                ("nextHopIpAddress", Some(json!(next_hop.to_string()))),
            ],
            beside: vec![],
        }
    }
}

/// A subnet, as far as its route table matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssociatedSubnet {
    /// Its id.
    pub id: ArmId,
    /// The route table that it belongs to.
    pub route_table: Option<ArmId>,
    /// How its last operation went.
    pub provisioning: Provisioning,
}

impl AssociatedSubnet {
    /// Reads the body of the subnet of this id.
    ///
    /// # Errors
    /// When it has no properties.
    pub fn read(id: &ArmId, body: &Value) -> Result<Self, BodyError> {
        if !body.get("properties").is_some_and(Value::is_object) {
            return Err(BodyError { object: "a subnet", field: "properties" });
        }
        let table = text(body, &["properties", "routeTable", "id"]).and_then(|text| text.parse().ok());
        Ok(Self { id: id.clone(), route_table: table, provisioning: Provisioning::read(body) })
    }
}
