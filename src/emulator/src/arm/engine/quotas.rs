//! Quotas of the types that have one by descriptor, and the usage list of their provider.

use serde_json::{Value, json};

use crate::answer::{Answer, Context, Reply};
use crate::arm::descriptor::{Descriptor, Exceeded, Quota};
use crate::arm::regions;
use crate::fault::Fault;
use crate::path;

/// The limit of a quota: as the options say, or the scenario, or its default.
pub(crate) fn limit(context: &Context<'_>, name: &str, default: u64) -> u64 {
    let options = &context.shared.options;
    options.quotas.get(name).or_else(|| options.scenario.quotas.get(name)).copied().unwrap_or(default)
}

fn used(descriptor: &Descriptor, quota: &Quota, context: &Context<'_>, location: &str) -> u64 {
    let own = path::key(&context.request.subscription_id());
    let here = |doc: &&Value| {
        let mine = |id: &str| id.get(..own.len()).is_some_and(|start| start.eq_ignore_ascii_case(&own));
        doc["location"] == location && doc["id"].as_str().is_some_and(mine) && (quota.counts)(doc)
    };
    context.state.store.of_kind(descriptor.kind).filter(here).count() as u64
}

/// Refuses a resource beyond a quota; a change is none where the resource counted before.
pub(crate) fn check(
    descriptor: &Descriptor,
    context: &Context<'_>,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), Fault> {
    for quota in descriptor.quotas {
        let more = (quota.counts)(new) && !old.is_some_and(|old| (quota.counts)(old));
        if !more {
            continue;
        }
        let (limit, location) = (limit(context, quota.name, quota.limit), new["location"].as_str().unwrap_or(""));
        let used = used(descriptor, quota, context, location);
        if used >= limit {
            return Err((quota.fault)(&Exceeded { name: quota.name, location, limit, used }));
        }
    }
    Ok(())
}

/// The usages of a provider in a location. Documented shape.
pub(crate) fn usages(context: &mut Context<'_>) -> Reply {
    let location = path::location(context.request.segment(1));
    regions::check(&location, "locations/usages")?;
    Ok(Answer::json(200, json!({ "value": usages_of_types(context, &location) })))
}

/// The usages of the types that have a quota by descriptor.
pub(crate) fn usages_of_types(context: &Context<'_>, location: &str) -> Vec<Value> {
    let namespace = context.request.path.provider.as_deref().unwrap_or("");
    let types = context.state.types.all().filter(|descriptor| descriptor.namespace().eq_ignore_ascii_case(namespace));
    types
        .flat_map(|descriptor| descriptor.quotas.iter().map(move |quota| (descriptor, quota)))
        .map(|(descriptor, quota)| {
            json!({
                "currentValue": used(descriptor, quota, context, location),
                "limit": limit(context, quota.name, quota.limit),
                "unit": "Count",
                "name": {"value": quota.name, "localizedValue": quota.local_name},
            })
        })
        .collect()
}
