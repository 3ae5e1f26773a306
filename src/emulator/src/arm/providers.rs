//! Which resource providers a subscription has. Documented shape (providers 2021-04-01). Here all of them are
//! registered from the start, and the list holds what is emulated: clients that look before they ask find out.

use serde_json::{Value, json};

use super::{kinds, lists, regions};
use crate::answer::{Answer, Context, Reply};
use crate::fault;

/// Resource types with an api-version of each that is known to work. Any well-formed one does.
const TYPES: [(&str, &[&str]); 8] = [
    (kinds::SET, &["2025-04-01", "2024-07-01"]),
    (kinds::DISK, &["2025-01-02", "2024-03-02"]),
    (kinds::MACHINE, &["2025-04-01", "2024-07-01"]),
    ("Microsoft.Compute/locations/usages", &["2025-04-01", "2024-07-01"]),
    ("Microsoft.Compute/locations/vmSizes", &["2025-04-01", "2024-07-01"]),
    (kinds::NIC, &["2025-05-01", "2024-03-01"]),
    (kinds::NETWORK, &["2025-05-01", "2024-03-01"]),
    (kinds::GROUP, &["2021-04-01"]),
];

fn document(context: &Context<'_>, namespace: &str) -> Value {
    let types: Vec<Value> = TYPES
        .iter()
        .filter_map(|(kind, versions)| Some((kind.strip_prefix(namespace)?.strip_prefix('/')?, versions)))
        .map(|(kind, versions)| {
            json!({
                "resourceType": kind,
                "locations": regions::all(),
                "apiVersions": versions,
                "capabilities": "None",
            })
        })
        .collect();
    json!({
        "id": format!("{}/providers/{namespace}", context.request.subscription_id()),
        "namespace": namespace,
        "resourceTypes": types,
        "registrationState": "Registered",
        "registrationPolicy": if namespace == "Microsoft.Resources" { "RegistrationFree" } else { "RegistrationRequired" },
    })
}

const NAMESPACES: [&str; 3] = ["Microsoft.Compute", "Microsoft.Network", "Microsoft.Resources"];

/// All.
pub(crate) fn list(context: &mut Context<'_>) -> Reply {
    let all = NAMESPACES.iter().map(|namespace| document(context, namespace).into()).collect();
    lists::of_documents(context, all)
}

/// One; also the answer to its registration, which has happened.
pub(crate) fn get(context: &mut Context<'_>) -> Reply {
    let asked = context.request.path.provider.as_deref().unwrap_or("");
    match NAMESPACES.iter().find(|namespace| namespace.eq_ignore_ascii_case(asked)) {
        Some(namespace) => Ok(Answer::json(200, document(context, namespace))),
        None => Err(fault::invalid_namespace(asked)),
    }
}
