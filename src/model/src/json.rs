//! Lossless edits of a body of Azure: what is not named stays, in its place and spelling.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// The text at a path of keys.
pub fn text<'a>(value: &'a Value, path: &[&str]) -> Option<&'a str> {
    at(value, path)?.as_str()
}

/// The value at a path of keys. Keys compare without case, since Azure's answers vary in it.
pub fn at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, key| field(value, key))
}

fn field<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    let object = value.as_object()?;
    object.get(key).or_else(|| object.iter().find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, value)| value))
}

/// The list at a path of keys; empty where there is none.
pub fn list<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    at(value, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The texts of the list at a path of keys.
pub fn texts(value: &Value, path: &[&str]) -> Vec<String> {
    list(value, path).iter().filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

/// The texts of a singular and a plural field, such as `destinationAddressPrefix` and `destinationAddressPrefixes`.
pub fn one_or_many(value: &Value, one: &str, many: &str) -> Vec<String> {
    let mut all: Vec<String> =
        text(value, &[one]).filter(|text| !text.is_empty()).map(str::to_owned).into_iter().collect();
    all.extend(texts(value, &[many]));
    all
}

/// The tags of a body.
pub fn tags(value: &Value) -> BTreeMap<String, String> {
    let tags = at(value, &["tags"]).and_then(Value::as_object);
    tags.into_iter()
        .flatten()
        .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
        .collect()
}

/// The object at a path of keys, made where it is missing.
pub fn object<'a>(value: &'a mut Value, path: &[&str]) -> &'a mut Map<String, Value> {
    let mut here = value;
    for key in path {
        let map = into_object(here);
        let spelled =
            map.keys().find(|name| name.eq_ignore_ascii_case(key)).cloned().unwrap_or_else(|| (*key).to_owned());
        here = map.entry(spelled).or_insert_with(|| json!({}));
    }
    into_object(here)
}

fn into_object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    value.as_object_mut().expect("it was made an object above")
}

/// Sets a key, in the spelling that is there.
pub fn set(map: &mut Map<String, Value>, key: &str, value: Value) {
    match map.keys().find(|name| name.eq_ignore_ascii_case(key)).cloned() {
        Some(spelled) => map[&spelled] = value,
        None => {
            map.insert(key.to_owned(), value);
        }
    }
}

/// Removes a key, whatever its case, without moving the others.
pub fn unset(map: &mut Map<String, Value>, key: &str) {
    if let Some(spelled) = map.keys().find(|name| name.eq_ignore_ascii_case(key)).cloned() {
        map.shift_remove(&spelled);
    }
}

/// The list at `properties.<name>`, made where it is missing.
fn children<'a>(body: &'a mut Value, name: &str) -> &'a mut Vec<Value> {
    let properties = object(body, &["properties"]);
    let spelled =
        properties.keys().find(|key| key.eq_ignore_ascii_case(name)).cloned().unwrap_or_else(|| name.to_owned());
    let entry = properties.entry(spelled).or_insert_with(|| json!([]));
    if !entry.is_array() {
        *entry = json!([]);
    }
    entry.as_array_mut().expect("it was made a list above")
}

/// Whether an element of a list bears this name; Azure ignores case.
pub fn is_named(item: &Value, name: &str) -> bool {
    text(item, &["name"]).is_some_and(|there| there.eq_ignore_ascii_case(name))
}

/// The element of this name in `properties.<list>`.
pub fn child<'a>(body: &'a Value, list_name: &str, name: &str) -> Option<&'a Value> {
    list(body, &["properties", list_name]).iter().find(|item| is_named(item, name))
}

/// The same, to change it.
pub fn child_mut<'a>(body: &'a mut Value, list_name: &str, name: &str) -> Option<&'a mut Value> {
    children(body, list_name).iter_mut().find(|item| is_named(item, name))
}

/// What an element of a list is to hold: of the properties it names, `Some` is set and `None` is removed; all else stays.
#[derive(Debug, Clone, PartialEq)]
pub struct Child {
    /// The name of the element.
    pub name: String,
    /// Its properties.
    pub properties: Vec<(&'static str, Option<Value>)>,
    /// Keys beside `name` and `properties`, such as `zones`.
    pub beside: Vec<(&'static str, Value)>,
}

/// Puts an element into `properties.<list>`: changed where it is, else appended.
pub fn put(body: &mut Value, list_name: &str, child: &Child) {
    let items = children(body, list_name);
    let position = items.iter().position(|item| is_named(item, &child.name)).unwrap_or_else(|| {
        items.push(json!({ "name": child.name, "properties": {} }));
        items.len() - 1
    });
    let item = &mut items[position];
    let properties = object(item, &["properties"]);
    for (key, value) in &child.properties {
        match value {
            Some(value) => set(properties, key, value.clone()),
            None => unset(properties, key),
        }
    }
    let item = into_object(item);
    for (key, value) in &child.beside {
        set(item, key, value.clone());
    }
}

/// Removes the element of this name from `properties.<list>`.
pub fn remove(body: &mut Value, list_name: &str, name: &str) {
    children(body, list_name).retain(|item| !is_named(item, name));
}

/// Applies a change of tags.
pub fn change_tags(body: &mut Value, set_tags: &BTreeMap<String, String>, remove_tags: &[String]) {
    let tags = object(body, &["tags"]);
    for (name, value) in set_tags {
        set(tags, name, json!(value));
    }
    for name in remove_tags {
        unset(tags, name);
    }
}

/// A reference to another resource.
pub fn reference(id: impl std::fmt::Display) -> Value {
    json!({ "id": id.to_string() })
}

/// How the last operation on an object went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Provisioning {
    /// It succeeded; also where a body says nothing.
    #[default]
    Succeeded,
    /// An operation runs.
    Updating,
    /// It failed. The object may be half changed.
    Failed,
}

impl Provisioning {
    /// Reads `properties.provisioningState` of a body.
    pub fn read(body: &Value) -> Self {
        match text(body, &["properties", "provisioningState"]) {
            None => Self::Succeeded,
            Some(state) if state.eq_ignore_ascii_case("Succeeded") => Self::Succeeded,
            Some(state) if state.eq_ignore_ascii_case("Failed") || state.eq_ignore_ascii_case("Canceled") => {
                Self::Failed
            }
            Some(_) => Self::Updating,
        }
    }
}

/// A body of Azure that could not be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the body of {object} has no usable {field}")]
pub struct BodyError {
    /// What was read.
    pub object: &'static str,
    /// The field that is missing or of the wrong kind.
    pub field: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_is_changed_where_it_is_and_what_is_not_named_stays() {
        let mut body = json!({"properties": {"Probes": [
            {"name": "a", "etag": "W/1", "properties": {"port": 1, "Future": {"x": 1}, "requestPath": "/"}},
            {"name": "b", "properties": {"port": 2}}
        ]}});
        let child = Child {
            name: "A".to_owned(),
            properties: vec![("port", Some(json!(3))), ("requestPath", None)],
            beside: vec![("zones", json!(["1"]))],
        };
        put(&mut body, "probes", &child);
        remove(&mut body, "probes", "B");
        assert_eq!(
            body,
            json!({"properties": {"Probes": [
                {"name": "a", "etag": "W/1", "properties": {"port": 3, "Future": {"x": 1}}, "zones": ["1"]}
            ]}})
        );
    }

    #[test]
    fn a_list_is_made_where_it_is_missing() {
        let mut body = json!({});
        put(&mut body, "probes", &Child { name: "a".to_owned(), properties: vec![], beside: vec![] });
        assert_eq!(body, json!({"properties": {"probes": [{"name": "a", "properties": {}}]}}));
    }

    #[test]
    fn tags_change_in_the_spelling_that_is_there() {
        let mut body = json!({"tags": {"Team": "x", "old": "1"}});
        change_tags(&mut body, &[("team".to_owned(), "y".to_owned())].into(), &["OLD".to_owned()]);
        assert_eq!(body, json!({"tags": {"Team": "y"}}));
    }
}
