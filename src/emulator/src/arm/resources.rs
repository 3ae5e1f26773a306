//! The gateway's own list of resources, whatever their type. Documented: members and filters of the generic
//! resource API (resources 2021-04-01); `properties` are not among them, nor are tags where the filter is by tag.
//! Of the documented filters `eq` joined by `and` is here; `ne`, `or`, `substringof` and `startswith` are refused.

use serde_json::{Map, Value};

use super::{kinds, lists};
use crate::answer::{Context, Reply};
use crate::path;

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
    let known = ["resourcetype", "name", "location", "resourcegroup", "tagname", "tagvalue"];
    let conditions = lists::conditions(context, &known)?;
    let mut found = context.state.store.all_below(&lists::scope(context)?, context.now);
    found.retain(|doc| {
        let text = |member: &str| doc[member].as_str().unwrap_or("");
        let meets = |(name, value): &(String, String)| match name.as_str() {
            "resourcetype" => text("type").eq_ignore_ascii_case(value),
            "name" => text("name").eq_ignore_ascii_case(value),
            "location" => text("location") == path::location(value),
            "resourcegroup" => path::group_of(text("id")).eq_ignore_ascii_case(value),
            _ => true,
        };
        text("type") != kinds::GROUP && conditions.iter().all(meets) && lists::tagged(doc, &conditions)
    });
    let by_tag = conditions.iter().any(|(name, _)| name.starts_with("tag"));
    let shown = |doc: &&Value| {
        let members = MEMBERS.iter().filter(|member| !(by_tag && **member == "tags"));
        let members = members.filter_map(|member| Some(((*member).to_owned(), doc.get(*member)?.clone())));
        Value::Object(members.collect::<Map<String, Value>>())
    };
    lists::part(context, found.len(), |skip, size| found.iter().skip(skip).take(size).map(shown).collect())
}
