//! What stands above subscriptions: the lists of subscriptions and of tenants.

use serde_json::{Value, json};

use crate::answer::Answer;
use crate::state::{Shared, State};

/// The lists, as operations are named in the call log.
const SUBSCRIPTIONS: &str = "subscriptions.list";
const TENANTS: &str = "tenants.list";

/// The operation of a path outside of subscriptions. `None`: it is no list.
pub(crate) fn operation(path: &str) -> Option<&'static str> {
    let path = path.trim_end_matches('/');
    [("/subscriptions", SUBSCRIPTIONS), ("/tenants", TENANTS)]
        .into_iter()
        .find_map(|(own, operation)| path.eq_ignore_ascii_case(own).then_some(operation))
}

/// The list at a path. `None`: there is none.
pub(crate) fn list(shared: &Shared, state: &State, principal: &str, path: &str) -> Option<Answer> {
    let value = match operation(path)? {
        SUBSCRIPTIONS => {
            let tenant = &shared.options.scenario.tenant_id;
            let seen = state.store.subscriptions().filter(|id| state.roles.reach(principal, id));
            seen.map(|id| subscription(id, tenant)).collect()
        }
        _ => vec![tenant(shared)],
    };
    Some(Answer::json(200, json!({ "value": value })))
}

/// The subscription's document. Documented.
pub(crate) fn subscription(id: &str, tenant: &str) -> Value {
    json!({
        "id": format!("/subscriptions/{id}"),
        "authorizationSource": "RoleBased",
        "managedByTenants": [],
        "subscriptionId": id,
        "tenantId": tenant,
        "displayName": "Emulated subscription",
        "state": "Enabled",
        "subscriptionPolicies": {
            "locationPlacementId": "Public_2014-09-01",
            "quotaId": "PayAsYouGo_2014-09-01",
            "spendingLimit": "Off",
        },
    })
}

/// The tenant's document. Documented.
fn tenant(shared: &Shared) -> Value {
    let (id, domain) = (&shared.options.scenario.tenant_id, &shared.options.scenario.tenant_domain);
    json!({
        "id": format!("/tenants/{id}"),
        "tenantId": id,
        "displayName": "Emulated tenant",
        "defaultDomain": domain,
        "domains": [domain],
        "tenantCategory": "Home",
        "tenantType": "AAD",
    })
}
