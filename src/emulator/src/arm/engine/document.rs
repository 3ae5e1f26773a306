//! How a document is put together, and how its etags and states change.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::arm::descriptor::{Children, Descriptor, Draft, Part};
use crate::arm::protocol::Stamps;
use crate::fault::{self, Fault};

/// The weak form of an etag.
pub(crate) fn weak(guid: &str) -> String {
    format!("W/\"{guid}\"")
}

/// The document of what was asked, with this etag and state.
pub(crate) fn complete(
    descriptor: &Descriptor,
    draft: &Draft<'_>,
    etag: Option<&str>,
    state: &str,
) -> Result<Value, Fault> {
    if let Some(whole) = descriptor.hooks.document {
        let mut doc = whole(draft)?;
        set_state(descriptor, &mut doc, state);
        return Ok(doc);
    }
    let mut made = (descriptor.hooks.complete)(draft)?;
    let mut properties = Map::new();
    if descriptor.stamps != Stamps::Nothing {
        properties.insert("provisioningState".to_owned(), json!(state));
    }
    if descriptor.stamps == Stamps::StateAndGuid {
        properties.insert("resourceGuid".to_owned(), json!(draft.guid));
    }
    if let Some(own) = made["properties"].as_object_mut() {
        properties.append(own);
    }
    for children in descriptor.children {
        // What the service adds itself, or else what was asked.
        let own = properties.get_mut(children.member).map(Value::take);
        let own = own.filter(|own| own.as_array().is_some_and(|list| !list.is_empty()));
        let given = own.as_ref().unwrap_or(&draft.asked()[children.member]);
        let list = parts(children, draft, given, etag, state)?;
        properties.insert(children.member.to_owned(), Value::Array(list));
    }
    let mut doc = Map::new();
    for member in descriptor.layout {
        let value = match *member {
            "name" => Some(json!(draft.name)),
            "id" => Some(json!(draft.id)),
            "type" => Some(json!(descriptor.kind)),
            "location" => Some(json!(draft.location)),
            "etag" => etag.map(|etag| json!(etag)),
            "properties" => Some(Value::Object(std::mem::take(&mut properties))),
            "tags" | "zones" | "extendedLocation" => draft.body.get(member).cloned(),
            own => made.get_mut(own).map(Value::take),
        };
        if let Some(value) = value {
            doc.insert((*member).to_owned(), value);
        }
    }
    Ok(Value::Object(doc))
}

/// The children that a body names, complete.
fn parts(
    children: &Children,
    draft: &Draft<'_>,
    given: &Value,
    etag: Option<&str>,
    state: &str,
) -> Result<Vec<Value>, Fault> {
    let member = children.member;
    let given = given.as_array().map_or(&[][..], Vec::as_slice);
    if given.len() < children.least {
        return Err(fault::missing_value(member));
    }
    let (mut made, mut names) = (Vec::new(), BTreeSet::new());
    for asked in given {
        let name = asked["name"].as_str().ok_or_else(|| fault::missing_value(format!("{member}.name")))?;
        if !names.insert(name.to_ascii_lowercase()) {
            return Err(fault::duplicate_name(name, member));
        }
        made.push(part(children, draft, (name, asked), &made, (etag, state))?);
    }
    Ok(made)
}

/// One of the children, complete; `before` are those that stand before it.
pub(crate) fn part(
    children: &Children,
    draft: &Draft<'_>,
    (name, asked): (&str, &Value),
    before: &[Value],
    (etag, state): (Option<&str>, &str),
) -> Result<Value, Fault> {
    let id = format!("{}/{}/{name}", draft.id, children.member);
    let old = draft.old.and_then(|old| find(old, children, name));
    let own = (children.complete)(draft, &Part { id: &id, asked, old, before })?;
    let mut properties = Map::new();
    properties.insert("provisioningState".to_owned(), json!(state));
    properties.extend(own.as_object().cloned().unwrap_or_default());
    properties.insert("provisioningState".to_owned(), json!(if children.settled { "Succeeded" } else { state }));
    let mut doc = Map::new();
    for member in children.layout {
        let value = match *member {
            "name" => Some(json!(name)),
            "id" => Some(json!(id)),
            "type" => Some(json!(children.kind)),
            "etag" => etag.map(|etag| json!(etag)),
            "properties" => Some(Value::Object(std::mem::take(&mut properties))),
            other => asked.get(other).cloned(),
        };
        if let Some(value) = value {
            doc.insert((*member).to_owned(), value);
        }
    }
    Ok(Value::Object(doc))
}

/// The children of a document, of one kind.
pub(crate) fn list<'a>(doc: &'a Value, children: &Children) -> &'a [Value] {
    doc["properties"][children.member].as_array().map_or(&[], Vec::as_slice)
}

/// A child by name, in any letter case.
pub(crate) fn find<'a>(doc: &'a Value, children: &Children, name: &str) -> Option<&'a Value> {
    list(doc, children).iter().find(|child| child["name"].as_str().is_some_and(|own| own.eq_ignore_ascii_case(name)))
}

fn each_child(descriptor: &Descriptor, doc: &mut Value, mut change: impl FnMut(&Children, &mut Value)) {
    for children in descriptor.children {
        if let Some(list) = doc["properties"].get_mut(children.member).and_then(Value::as_array_mut) {
            list.iter_mut().for_each(|child| change(children, child));
        }
    }
}

/// Gives a document and its children a new etag.
pub(crate) fn retag(descriptor: &Descriptor, doc: &mut Value, etag: &str) {
    doc["etag"] = json!(etag);
    each_child(descriptor, doc, |_, child| child["etag"] = json!(etag));
}

/// Sets the provisioning state of a document and its children.
pub(crate) fn set_state(descriptor: &Descriptor, doc: &mut Value, state: &str) {
    if descriptor.stamps == Stamps::Nothing {
        return;
    }
    doc["properties"]["provisioningState"] = json!(state);
    each_child(descriptor, doc, |children, child| {
        if !children.settled {
            child["properties"]["provisioningState"] = json!(state);
        }
    });
}

/// Whether two documents say the same, but for etags and states.
pub(crate) fn same(one: &Value, other: &Value) -> bool {
    const PASSING: [&str; 2] = ["etag", "provisioningState"];
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let lasting =
                |object: &Map<String, Value>| object.keys().filter(|key| !PASSING.contains(&key.as_str())).count();
            lasting(one) == lasting(other)
                && one
                    .iter()
                    .filter(|(key, _)| !PASSING.contains(&key.as_str()))
                    .all(|(key, value)| other.get(key).is_some_and(|other| same(value, other)))
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        _ => one == other,
    }
}
