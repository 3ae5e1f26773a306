//! The gateway's own list of resources, whatever their type. Documented: members and filters of the generic
//! resource API (resources 2021-04-01); `properties` are not among them, nor are tags where the filter is by tag.

use serde_json::{Map, Value};

use super::filter::{self, Filter};
use crate::answer::{Context, Reply};
use crate::arm::{kinds, lists};
use crate::fault;

const MEMBERS: [&str; 12] = [
    "id",
    "name",
    "type",
    "location",
    "sku",
    "kind",
    "plan",
    "identity",
    "managedBy",
    "zones",
    "extendedLocation",
    "tags",
];

/// Resources of a subscription or a group.
pub(crate) fn list(context: &mut Context<'_>) -> Reply {
    let asked = context.request.query.get("$filter").map(|asked| asked.trim()).filter(|asked| !asked.is_empty());
    let wanted = match asked {
        Some(asked) => Some(filter::read(asked).ok_or_else(|| fault::invalid_filter(asked))?),
        None => None,
    };
    let by_tag = wanted.as_ref().is_some_and(Filter::names_tags);
    lists::select(context, &lists::scope(context)?, None, |doc| {
        // Instances of scale sets, file services and what is below them are not among the resources that the gateway
        // knows; nor are documents of the emulator's own.
        let within =
            |kind: &str| [kinds::INSTANCE, kinds::FILE_SERVICE, kinds::OWN].iter().any(|above| kind.starts_with(above));
        if doc["type"] == kinds::GROUP
            || doc["type"] == kinds::DEPLOYMENT
            || doc["type"].as_str().is_some_and(within)
            || wanted.as_ref().is_some_and(|wanted| !wanted.holds(doc))
        {
            return None;
        }
        let members = MEMBERS.iter().filter(|member| !(by_tag && **member == "tags"));
        let members = members.filter_map(|member| Some(((*member).to_owned(), doc.get(*member)?.clone())));
        Some(Value::Object(members.collect::<Map<String, Value>>()).into())
    })
}
