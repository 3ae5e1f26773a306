//! Route tables. Recorded: the members of one without routes. Documented: next hops, and the limit.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::{Value, json};

use super::base::{CHILDREN, RESOURCE};
use crate::arm::descriptor::{BackReference, By, Children, Descriptor, Form, Hooks, InUse, Quota, Writers};
use crate::arm::protocol::Schema;
use crate::arm::{kinds, writes};
use crate::cidr;
use crate::fault::{self, Fault};
use crate::path;
use crate::state::State;

/// Routes of a table at most.
const ROUTES_MOST: usize = 400;

pub(crate) static ROUTE_TABLE: Descriptor = Descriptor {
    kind: kinds::ROUTE_TABLE,
    path: "routeTables",
    schema: Schema { name: "NRouteTable", root: "routeTable" },
    writers: Writers::Supersede,
    children: &[Children {
        kind: "Microsoft.Network/routeTables/routes",
        member: "routes",
        schema: Schema { name: "NRoute", root: "route" },
        layout: &["name", "id", "etag", "properties", "type"],
        complete: |_, part| {
            Ok(writes::with_others(part.asked["properties"].clone(), &json!({"hasBgpOverride": false})))
        },
        ..CHILDREN
    }],
    in_use: &[InUse { by: By::References, fault: |table, by| fault::route_table_in_use(path::of(table), by) }],
    shows: &[BackReference { member: "subnets", from: kinds::NETWORK, form: Form::Some }],
    expands: &["subnets"],
    quotas: &[Quota {
        name: "RouteTables",
        local_name: "Route Tables",
        limit: 200,
        counts: |_| true,
        fault: |exceeded| fault::too_many_network_resources("route tables", exceeded.limit),
    }],
    hooks: Hooks {
        complete: |draft| {
            let disabled = draft.flag("disableBgpRoutePropagation");
            Ok(json!({"properties": {"disableBgpRoutePropagation": disabled, "routes": []}}))
        },
        check,
        ..RESOURCE.hooks
    },
    ..RESOURCE
};

fn check(_: &State, table: &Value, _: Option<&Value>) -> Result<(), Fault> {
    let routes = table["properties"]["routes"].as_array().map_or(&[][..], Vec::as_slice);
    if routes.len() > ROUTES_MOST {
        return Err(fault::too_many_routes(path::of(table), ROUTES_MOST));
    }
    let mut seen = BTreeSet::new();
    for route in routes {
        let (id, properties) = (path::of(route), &route["properties"]);
        let prefix = properties["addressPrefix"].as_str().unwrap_or("");
        // A service tag is no range, and may stand there.
        let is_tag = prefix.starts_with(|c: char| c.is_ascii_alphabetic()) && !prefix.contains(':');
        let range = cidr::range(prefix);
        if range.is_none() && !is_tag {
            return Err(fault::invalid_route_prefix(id, prefix));
        }
        let hop = &properties["nextHopIpAddress"];
        let needed = properties["nextHopType"] == "VirtualAppliance";
        let fits = hop.as_str().is_some_and(|hop| hop.parse::<IpAddr>().is_ok());
        if needed != hop.is_string() || needed && !fits {
            return Err(fault::invalid_next_hop(id, &properties["nextHopType"]));
        }
        if range.is_some_and(|range| !seen.insert(range)) {
            return Err(fault::routes_conflict(id, prefix));
        }
    }
    Ok(())
}
