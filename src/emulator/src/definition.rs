//! What the front door itself reads of a resource's body, before its provider does: the members at the
//! top, and the tags.
//!
//! Documented: a member that no resource has at its top is refused by the gateway, not by the provider
//! (azure-rest-api-specs#286); the limits of tags (tag-resources). Nothing here knows a provider.

use serde_json::Value;

use crate::fault::{self, Fault};
use crate::schema;

/// Members at the top of resources (documented: the resource definition of the resource provider contract).
const MEMBERS: [&str; 18] = [
    "id",
    "name",
    "type",
    "location",
    "tags",
    "properties",
    "sku",
    "plan",
    "kind",
    "identity",
    "zones",
    "etag",
    "scale",
    "managedBy",
    "managedByExtended",
    "extendedLocation",
    "placement",
    "systemData",
];

const MOST_TAGS: usize = 50;
const LONGEST_NAME: usize = 512;
const LONGEST_VALUE: usize = 256;

/// Refuses a member that no resource has at its top; `future` is one that exists all the same.
///
/// # Errors
///
/// 400 `InvalidRequestContent`.
pub(crate) fn check_members(body: &Value, raw: &str, future: Option<&str>) -> Result<(), Fault> {
    let known = |name: &str| MEMBERS.iter().any(|known| known.eq_ignore_ascii_case(name)) || future == Some(name);
    match body.as_object().and_then(|body| body.keys().find(|name| !known(name))) {
        Some(name) => Err(fault::not_in_definition(name, schema::position_of(raw, name))),
        None => Ok(()),
    }
}

/// Refuses tags that are too many, too long, or named with reserved characters.
///
/// # Errors
///
/// 400 with the limit that is broken.
pub(crate) fn check_tags(body: &Value) -> Result<(), Fault> {
    let tags = body.as_object().and_then(|body| body.iter().find(|(name, _)| name.eq_ignore_ascii_case("tags")));
    let Some(tags) = tags.and_then(|(_, tags)| tags.as_object()) else {
        return Ok(());
    };
    let reserved = |c: char| c.is_control() || "<>%&\\?/".contains(c);
    let names = |bad: &dyn Fn(&str) -> bool| {
        let found: Vec<&str> = tags.keys().map(String::as_str).filter(|name| bad(name)).collect();
        (!found.is_empty()).then(|| found.join(", "))
    };
    if let Some(found) = names(&|name| name.contains(reserved)) {
        return Err(fault::invalid_tag_characters(&found));
    }
    if let Some(found) = names(&|name| name.chars().count() > LONGEST_NAME) {
        return Err(fault::tag_name_too_long(&found));
    }
    let long: Vec<&str> =
        tags.values().filter_map(Value::as_str).filter(|value| value.chars().count() > LONGEST_VALUE).collect();
    if !long.is_empty() {
        return Err(fault::tag_value_too_long(long.join(", ")));
    }
    if tags.len() > MOST_TAGS { Err(fault::too_many_tags(tags.len())) } else { Ok(()) }
}
