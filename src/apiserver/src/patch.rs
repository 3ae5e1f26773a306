//! The three kinds of patch that change an object in place.

use serde_json::{Map, Value};

use crate::{
    Refused, core_events,
    resource::Resource,
    schema::{self, UnknownFields},
    status, view,
};

const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// The media types of patches.
pub(crate) const MEDIA: [&str; 3] = [JSON, MERGE, STRATEGIC];

/// A patch as a client sends it.
pub(crate) struct Patch<'a> {
    /// The kind that the client names. An event of the core group is kept as one of another group.
    pub(crate) of: &'static Resource,
    pub(crate) media: &'a str,
    pub(crate) body: &'a Value,
    pub(crate) unknown: UnknownFields,
}

impl Patch<'_> {
    /// The patched object as it is kept, and what the client is warned of.
    ///
    /// # Errors
    /// [`Refused`]: the patch does not fit the object, or makes it one that is not of its kind.
    pub(crate) fn applied_to(&self, kept: &Value) -> Result<(Value, Vec<String>), Refused> {
        let before = view::shown(self.of, kept);
        let mut after = apply(self.of, self.media, &before, self.body)?;
        let mut problems = schema::check(self.of, &after);
        let old = schema::check(self.of, &before).unknown;
        problems.unknown.retain(|path| !old.contains(path));
        let name = kept["metadata"]["name"].as_str().unwrap_or_default();
        let warnings = problems.judged(self.unknown).map_err(|why| {
            // Source: kube-apiserver answers 422 for a patch whose result it cannot decode.
            status::invalid(self.of, name, &format!("patch: Invalid value: {}", why.join(", ")))
        })?;
        schema::with_text_quantities(&schema::type_of(self.of), &mut after);
        let after = if self.of.kept_as.is_some() { core_events::kept(&after) } else { after };
        Ok((after, warnings))
    }
}

/// Applies a patch of a media type to a copy of an object.
fn apply(resource: &Resource, media: &str, object: &Value, patch: &Value) -> Result<Value, Refused> {
    let mut changed = object.clone();
    match media {
        MERGE => json_patch::merge(&mut changed, patch),
        JSON => {
            let steps: json_patch::Patch =
                serde_json::from_value(patch.clone()).map_err(|error| status::bad_request(error.to_string()))?;
            // kube-apiserver answers 422 for a patch that does not fit the object.
            json_patch::patch(&mut changed, &steps).map_err(|error| Refused {
                code: 422,
                reason: "Invalid",
                message: format!("the server rejected our request due to an error in our request: {error}"),
            })?;
        }
        STRATEGIC => strategic(resource, "", &mut changed, patch)?,
        other => return Err(status::unsupported_patch(other)),
    }
    if !changed.is_object() {
        return Err(status::bad_request("the patched object is not an object"));
    }
    Ok(changed)
}

/// Members are merged; a list is replaced unless the kind merges it.
fn strategic(resource: &Resource, at: &str, target: &mut Value, patch: &Value) -> Result<(), Refused> {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return Ok(());
    };
    if patch.get("$patch") == Some(&Value::from("replace")) {
        let kept = patch.iter().filter(|(key, _)| *key != "$patch");
        *target = Value::Object(kept.map(|(key, value)| (key.clone(), value.clone())).collect());
        return Ok(());
    }
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    for (key, value) in patch {
        let below = format!("{at}/{key}");
        if let Some(list) = key.strip_prefix("$deleteFromPrimitiveList/") {
            let gone = value.as_array().map(Vec::as_slice).unwrap_or_default();
            if let Some(items) = target.get_mut(list).and_then(Value::as_array_mut) {
                items.retain(|item| !gone.contains(item));
            }
            continue;
        }
        if key.starts_with("$setElementOrder/") || key == "$retainKeys" {
            continue;
        }
        let map = target.as_object_mut().expect("was made an object");
        match value {
            Value::Null => {
                map.remove(key);
            }
            Value::Array(patched) => match merge_key(resource, &below) {
                Some(by) => merge_list(
                    resource,
                    &below,
                    by,
                    map.entry(key).or_insert_with(|| Value::from(vec![0; 0])),
                    patched,
                )?,
                None => {
                    map.insert(key.clone(), value.clone());
                }
            },
            Value::Object(_) => strategic(resource, &below, map.entry(key).or_insert(Value::Null), value)?,
            plain => {
                map.insert(key.clone(), plain.clone());
            }
        }
    }
    Ok(())
}

fn merge_key(resource: &Resource, at: &str) -> Option<&'static str> {
    match at {
        "/metadata/finalizers" => Some(""),
        "/metadata/ownerReferences" => Some("uid"),
        _ => resource.merged_lists.iter().find(|(pointer, _)| *pointer == at).map(|(_, key)| *key),
    }
}

fn merge_list(resource: &Resource, at: &str, by: &str, list: &mut Value, patch: &[Value]) -> Result<(), Refused> {
    let Some(items) = list.as_array_mut() else {
        *list = Value::from(patch.to_vec());
        return Ok(());
    };
    // A list that is to be replaced says so in an item of its own.
    let replaces = |item: &Value| item.get("$patch") == Some(&Value::from("replace"));
    if patch.iter().any(replaces) {
        *items = patch.iter().filter(|item| !replaces(item)).cloned().collect();
        return Ok(());
    }
    for wanted in patch {
        if by.is_empty() {
            if !items.contains(wanted) {
                items.push(wanted.clone());
            }
            continue;
        }
        let id = wanted.get(by).ok_or_else(|| {
            status::bad_request(format!("an item of {at} in the strategic merge patch has no merge key {by:?}"))
        })?;
        let place = items.iter().position(|item| item.get(by) == Some(id));
        if wanted.get("$patch") == Some(&Value::from("delete")) {
            if let Some(place) = place {
                items.remove(place);
            }
            continue;
        }
        let place = place.unwrap_or_else(|| {
            items.push(Value::Object(Map::new()));
            items.len() - 1
        });
        strategic(resource, &format!("{at}/-"), &mut items[place], wanted)?;
    }
    Ok(())
}
