//! What the authorization provider says of the caller: its permissions at a scope. Documented shape (permissions
//! 2022-04-01). Roles themselves come from the scenario and the control interface; they are no resources here.

use serde_json::{Value, json};

use super::descriptor::{Extra, Provider};
use super::protocol::Scope;
use crate::answer::{Answer, Context, Reply};
use crate::fault;
use crate::path::ArmPath;

/// As Azure prints it.
pub(crate) const NAMESPACE: &str = "Microsoft.Authorization";
const PERMISSIONS: &str = "permissions";

pub(crate) static PROVIDER: Provider = Provider {
    namespace: NAMESPACE,
    types: &[],
    other_types: &[(PERMISSIONS, &["2022-04-01", "2018-07-01", "2015-07-01"])],
    routes: &[Extra {
        method: "GET",
        scope: Scope::Either,
        path: PERMISSIONS,
        operation: "permissions.list",
        handler: permissions,
        limit: None,
        since: None,
        headers: &[],
    }],
};

/// How many segments after the namespace name the resource of whose permissions a path tells. None: it tells of none.
fn of_resource(path: &ArmPath) -> Option<usize> {
    let (tail, word) = (path.rest.len().checked_sub(3)?, |at: usize| path.rest.get(at).map_or("", String::as_str));
    let names = [(tail, "providers"), (tail + 1, NAMESPACE), (tail + 2, PERMISSIONS)];
    let fits = tail >= 2 && names.iter().all(|(at, name)| word(*at).eq_ignore_ascii_case(name));
    fits.then_some(tail)
}

/// Whether a path asks for permissions, at whatever scope.
pub(crate) fn asks_permissions(path: &ArmPath) -> bool {
    let own = path.provider.as_deref().is_some_and(|provider| provider.eq_ignore_ascii_case(NAMESPACE));
    own && matches!(path.rest.as_slice(), [kind] if kind.eq_ignore_ascii_case(PERMISSIONS)) || asks_of_resource(path)
}

/// Whether a path asks for permissions at a resource.
pub(crate) fn asks_of_resource(path: &ArmPath) -> bool {
    path.group.is_some() && of_resource(path).is_some()
}

/// One entry for each role that the caller has at the scope.
pub(crate) fn permissions(context: &mut Context<'_>) -> Reply {
    let request = context.request;
    if request.path.group.is_some() {
        context.require_group()?;
    }
    let scope = match (&request.path.group, of_resource(&request.path)) {
        (None, _) => request.subscription_id(),
        (Some(_), None) => request.group_id(),
        (Some(_), Some(named)) => {
            let provider = request.path.provider.as_deref().unwrap_or("");
            let kinds: Vec<&str> = request.path.rest[..named].iter().step_by(2).map(String::as_str).collect();
            let name = request.path.rest.get(named - 1).map_or("", String::as_str);
            let id = format!("{}/providers/{provider}/{}", request.group_id(), request.path.rest[..named].join("/"));
            if !context.state.store.contains(&id) {
                let kind = format!("{provider}/{}", kinds.join("/"));
                return Err(fault::resource_not_found(kind, name, request.group()));
            }
            id
        }
    };
    let roles = context.state.roles.at(context.principal, &scope);
    let value: Vec<Value> = roles
        .iter()
        .map(|role| {
            json!({
                "actions": role.actions,
                "notActions": role.not_actions,
                "dataActions": role.data_actions,
                "notDataActions": role.not_data_actions,
            })
        })
        .collect();
    Ok(Answer::json(200, json!({ "value": value })))
}
