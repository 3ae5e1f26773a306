//! Which resource providers a subscription has. Documented shape (providers 2021-04-01). Here all of them are
//! registered from the start, and the list holds what is emulated: clients that look before they ask find out.

use serde_json::{Value, json};

use crate::answer::{Answer, Context, Reply};
use crate::arm::descriptor::{Descriptor, Provider};
use crate::arm::{authorization, lists, regions};
use crate::fault;

fn document(context: &Context<'_>, provider: &Provider) -> Value {
    let described =
        provider.types.iter().map(|descriptor| (descriptor.kind, descriptor.api_versions, zonal(descriptor)));
    let others = provider.other_types.iter().map(|(kind, versions)| (*kind, *versions, false));
    let types: Vec<Value> = described
        .chain(others)
        .map(|(kind, versions, zonal)| {
            let mut shown = json!({
                "resourceType": kind.strip_prefix(provider.namespace).unwrap_or(kind).trim_start_matches('/'),
                "locations": regions::all(),
                "apiVersions": versions,
                "capabilities": "None",
            });
            if zonal {
                let mappings = regions::all().into_iter().filter(|region| regions::has_zones(region));
                shown["zoneMappings"] =
                    mappings.map(|region| json!({"location": region, "zones": ["1", "2", "3"]})).collect();
            }
            shown
        })
        .collect();
    let free = ["Microsoft.Resources", authorization::NAMESPACE].contains(&provider.namespace);
    json!({
        "id": format!("{}/providers/{}", context.request.subscription_id(), provider.namespace),
        "namespace": provider.namespace,
        "resourceTypes": types,
        "registrationState": "Registered",
        "registrationPolicy": if free { "RegistrationFree" } else { "RegistrationRequired" },
    })
}

/// Whether what is of a type, or a part of it, can be in a zone: the cloud controllers learn here which zones a region
/// has.
fn zonal(descriptor: &Descriptor) -> bool {
    let mut layouts = descriptor.children.iter().map(|children| children.layout);
    descriptor.layout.contains(&"zones") || layouts.any(|layout| layout.contains(&"zones"))
}

/// All.
pub(crate) fn list(context: &mut Context<'_>) -> Reply {
    let all = context.state.types.providers.iter().map(|provider| document(context, provider).into()).collect();
    lists::of_documents(context, all)
}

/// One; also the answer to its registration, which has happened.
pub(crate) fn get(context: &mut Context<'_>) -> Reply {
    let asked = context.request.path.provider.as_deref().unwrap_or("");
    match context.state.types.providers.iter().find(|provider| provider.namespace.eq_ignore_ascii_case(asked)) {
        Some(provider) => Ok(Answer::json(200, document(context, provider))),
        None => Err(fault::invalid_namespace(asked)),
    }
}
