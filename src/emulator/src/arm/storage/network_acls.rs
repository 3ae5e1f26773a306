//! The subnets that the firewall of an account lets in.
//!
//! Documented: each needs a service endpoint for the provider, and must be provisioned. Documented too: the creation of
//! an account is accepted all the same, and its operation fails (azurefile-csi-driver#431); a change is refused at once
//! (unverified). The text for a subnet that does not exist is unverified.

use std::time::Duration;

use serde_json::Value;

use crate::arm::engine::references;
use crate::fault::{self, Fault};
use crate::path;
use crate::state::State;

/// What a service endpoint is called that an account of the same region, or of any, is reached by.
const SERVICES: [&str; 2] = ["Microsoft.Storage", "Microsoft.Storage.Global"];

fn rules(account: &Value) -> &Value {
    &account["properties"]["networkAcls"]["virtualNetworkRules"]
}

fn check_rules(state: &State, account: &Value) -> Result<(), Fault> {
    for subnet in rules(account).as_array().into_iter().flatten().filter_map(|rule| rule["id"].as_str()) {
        let (name, network) = (path::name_of(subnet), path::parent_of(subnet));
        let Some((_, found)) = references::child(state, subnet) else {
            return Err(fault::acl_subnet_missing(name, network));
        };
        let properties = &found["properties"];
        let endpoints = properties["serviceEndpoints"].as_array().into_iter().flatten();
        if !endpoints.filter_map(|endpoint| endpoint["service"].as_str()).any(|service| SERVICES.contains(&service)) {
            return Err(fault::acl_subnet_without_endpoint(name, network));
        }
        if let Some(running) = properties["provisioningState"].as_str().filter(|state| *state != "Succeeded") {
            return Err(fault::acl_subnet_not_provisioned(name, network, running));
        }
    }
    Ok(())
}

/// Judges a change.
pub(super) fn check(state: &State, new: &Value, old: &Value) -> Result<(), Fault> {
    if rules(old) == rules(new) { Ok(()) } else { check_rules(state, new) }
}

/// Judges a creation at its end.
pub(super) fn settle(state: &mut State, account: &mut Value, _: Duration) -> Result<(), Fault> {
    match account["properties"]["provisioningState"] == "Creating" {
        true => check_rules(state, account),
        false => Ok(()),
    }
}
