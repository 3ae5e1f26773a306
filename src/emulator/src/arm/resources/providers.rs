//! Which resource providers a subscription has. Documented shape (providers 2021-04-01). Here all of them are
//! registered from the start, and the list holds what is emulated: clients that look before they ask find out.

use serde_json::{Value, json};

use crate::answer::{Answer, Context, Reply};
use crate::arm::descriptor::Provider;
use crate::arm::routes::PROVIDERS;
use crate::arm::{lists, regions};
use crate::fault;

fn document(context: &Context<'_>, provider: &Provider) -> Value {
    let described = provider.types.iter().map(|descriptor| (descriptor.kind, descriptor.api_versions));
    let types: Vec<Value> = described
        .chain(provider.other_types.iter().copied())
        .map(|(kind, versions)| {
            json!({
                "resourceType": kind.strip_prefix(provider.namespace).unwrap_or(kind).trim_start_matches('/'),
                "locations": regions::all(),
                "apiVersions": versions,
                "capabilities": "None",
            })
        })
        .collect();
    let free = provider.namespace == "Microsoft.Resources";
    json!({
        "id": format!("{}/providers/{}", context.request.subscription_id(), provider.namespace),
        "namespace": provider.namespace,
        "resourceTypes": types,
        "registrationState": "Registered",
        "registrationPolicy": if free { "RegistrationFree" } else { "RegistrationRequired" },
    })
}

/// All.
pub(crate) fn list(context: &mut Context<'_>) -> Reply {
    let all = PROVIDERS.iter().map(|provider| document(context, provider).into()).collect();
    lists::of_documents(context, all)
}

/// One; also the answer to its registration, which has happened.
pub(crate) fn get(context: &mut Context<'_>) -> Reply {
    let asked = context.request.path.provider.as_deref().unwrap_or("");
    match PROVIDERS.iter().find(|provider| provider.namespace.eq_ignore_ascii_case(asked)) {
        Some(provider) => Ok(Answer::json(200, document(context, provider))),
        None => Err(fault::invalid_namespace(asked)),
    }
}
