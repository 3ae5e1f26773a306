//! Tokens of managed identities: the system-assigned identity of a machine and the user-assigned ones
//! that its document names.

use std::collections::BTreeMap;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::{Value, json};

use super::Imds;
use crate::login::{Subject, TOKEN_LIFETIME};
use crate::scenario::derived_id;

/// An identity that a machine has.
#[derive(Debug, PartialEq, Eq)]
struct Assigned {
    client_id: String,
    object_id: String,
    /// ARM id: the identity's own, or the machine's for the system-assigned one.
    resource_id: String,
    system: bool,
}

/// The refusal of the identity endpoint. Documented shape.
pub(super) fn invalid_request(description: &str) -> Response {
    let body = json!({"error": "invalid_request", "error_description": description});
    (StatusCode::BAD_REQUEST, Json(body)).into_response()
}

impl Imds {
    pub(super) fn token(&self, machine: &Value, query: &BTreeMap<String, String>) -> Response {
        if !query.contains_key("api-version") {
            return invalid_request("Required query variable 'api-version' is missing");
        }
        let Some(resource) = query.get("resource").filter(|r| !r.is_empty()) else {
            return invalid_request("Required audience parameter not specified");
        };
        let identity = match choose(assigned(machine), query) {
            Ok(identity) => identity,
            Err(refusal) => return invalid_request(refusal),
        };
        let subject = Subject {
            tenant: self.tenant_id.clone(),
            client_id: identity.client_id.clone(),
            object_id: identity.object_id,
            identity: Some(identity.resource_id),
        };
        let now = (self.now)();
        let token = self.tokens.issue(resource, &subject, now, TOKEN_LIFETIME);
        let lifetime = TOKEN_LIFETIME.as_secs().to_string();
        Json(json!({
            "access_token": token,
            "client_id": identity.client_id,
            "expires_in": lifetime,
            "expires_on": (now + TOKEN_LIFETIME).as_second().to_string(),
            "ext_expires_in": lifetime,
            "not_before": now.as_second().to_string(),
            "refresh_token": "",
            "resource": resource,
            "token_type": "Bearer",
        }))
        .into_response()
    }
}

/// The identities in a machine's document. Ids that it does not carry are derived from names, the same
/// at every start.
fn assigned(machine: &Value) -> Vec<Assigned> {
    let identity = &machine["identity"];
    let text = |value: &Value| value.as_str().filter(|v| !v.is_empty()).map(str::to_owned);
    let id = text(&machine["id"]).unwrap_or_default();
    let mut all = Vec::new();
    let system = text(&identity["type"]).is_some_and(|kinds| kinds.to_ascii_lowercase().contains("systemassigned"));
    if system {
        all.push(Assigned {
            client_id: derived_id("system-identity", &id),
            object_id: text(&identity["principalId"]).unwrap_or_else(|| derived_id("system-identity-principal", &id)),
            resource_id: id,
            system: true,
        });
    }
    let users = identity["userAssignedIdentities"].as_object();
    for (resource_id, facts) in users.into_iter().flatten() {
        all.push(Assigned {
            client_id: text(&facts["clientId"]).unwrap_or_else(|| derived_id("user-identity", resource_id)),
            object_id: text(&facts["principalId"])
                .unwrap_or_else(|| derived_id("user-identity-principal", resource_id)),
            resource_id: resource_id.clone(),
            system: false,
        });
    }
    all
}

/// The identity that a request means.
fn choose(mut all: Vec<Assigned>, query: &BTreeMap<String, String>) -> Result<Assigned, &'static str> {
    const NOT_FOUND: &str = "Identity not found";
    let asked = |name: &str| query.get(name).map(String::as_str).filter(|v| !v.is_empty());
    let resource_id = asked("mi_res_id").or(asked("msi_res_id"));
    let chosen = match (asked("client_id"), asked("object_id"), resource_id) {
        (None, None, None) => {
            return if all.first().is_some_and(|identity| identity.system) || all.len() == 1 {
                Ok(all.swap_remove(0))
            } else if all.is_empty() {
                Err(NOT_FOUND)
            } else {
                Err(
                    "Multiple user assigned identities exist, please specify the clientId / resourceId of the identity in the token request",
                )
            };
        }
        (Some(client_id), None, None) => {
            all.iter().position(|identity| identity.client_id.eq_ignore_ascii_case(client_id))
        }
        (None, Some(object_id), None) => {
            all.iter().position(|identity| identity.object_id.eq_ignore_ascii_case(object_id))
        }
        (None, None, Some(resource_id)) => {
            all.iter().position(|identity| !identity.system && identity.resource_id.eq_ignore_ascii_case(resource_id))
        }
        _ => return Err("client_id, object_id and mi_res_id are mutually exclusive"),
    };
    chosen.map(|at| all.swap_remove(at)).ok_or(NOT_FOUND)
}
