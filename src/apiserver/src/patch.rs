//! The three kinds of patch that change an object in place.

use serde_json::{Map, Value};

use crate::{
    Refused, core_events,
    resource::Resource,
    schema::{self, Type, UnknownFields},
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
        // What the object had before is not the patch's: a test may have put anything.
        let problems = schema::check(self.of, &after).beyond(&schema::check(self.of, &before));
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
        STRATEGIC => strategic(&schema::type_of(resource), "", &mut changed, patch)?,
        other => return Err(status::unsupported_patch(other)),
    }
    if !changed.is_object() {
        return Err(status::bad_request("the patched object is not an object"));
    }
    Ok(changed)
}

/// Members are merged; a list is replaced unless its field says by which key it is merged. Source of the directives:
/// `k8s.io/apimachinery/pkg/util/strategicpatch`.
fn strategic(kind: &Type, at: &str, target: &mut Value, patch: &Value) -> Result<(), Refused> {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return Ok(());
    };
    match patch.get("$patch").map(Value::as_str) {
        None => {}
        Some(Some("replace")) => {
            let kept = patch.iter().filter(|(key, _)| *key != "$patch");
            *target = kept.map(|(key, value)| (key.clone(), value.clone())).collect();
            return Ok(());
        }
        Some(Some("delete")) => {
            *target = Value::Object(Map::new());
            return Ok(());
        }
        Some(_) => return Err(unknown_directive(at, &patch["$patch"])),
    }
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let members = target.as_object_mut().expect("was made an object");
    if let Some(retained) = patch.get("$retainKeys").and_then(Value::as_array) {
        members.retain(|key, _| retained.iter().any(|one| one == key));
    }
    for (key, value) in patch {
        if let Some(list) = key.strip_prefix("$deleteFromPrimitiveList/") {
            let gone = value.as_array().map(Vec::as_slice).unwrap_or_default();
            if let Some(items) = members.get_mut(list).and_then(Value::as_array_mut) {
                items.retain(|item| !gone.contains(item));
            }
            continue;
        }
        if key.starts_with("$setElementOrder/") || key == "$retainKeys" {
            continue;
        }
        let below = format!("{at}/{key}");
        match (value, kind.member(key)) {
            (Value::Null, _) => drop(members.remove(key)),
            (Value::Array(patched), (list, Some(by))) => {
                let items = members.entry(key).or_insert_with(|| Value::Array(Vec::new()));
                merge_list(list.item(), &below, by, items, patched)?;
            }
            (Value::Object(_), (kind, _)) => {
                strategic(kind, &below, members.entry(key).or_insert(Value::Null), value)?;
            }
            (whole, _) => drop(members.insert(key.clone(), whole.clone())),
        }
    }
    Ok(())
}

fn unknown_directive(at: &str, directive: &Value) -> Refused {
    let at = if at.is_empty() { "/" } else { at };
    status::bad_request(format!("$patch of {at} is {directive}; allowed in an object: \"replace\", \"delete\""))
}

fn merge_list(kind: &Type, at: &str, by: &str, list: &mut Value, patch: &[Value]) -> Result<(), Refused> {
    if !list.is_array() {
        *list = Value::Array(Vec::new());
    }
    let items = list.as_array_mut().expect("was made a list");
    let directive = |item: &Value, word: &str| item.get("$patch") == Some(&Value::from(word));
    // A list that is to be replaced says so in an item of its own.
    if patch.iter().any(|item| directive(item, "replace")) {
        *items = patch.iter().filter(|item| !directive(item, "replace")).cloned().collect();
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
        if directive(wanted, "delete") {
            items.retain(|item| item.get(by) != Some(id));
            continue;
        }
        let place = items.iter().position(|item| item.get(by) == Some(id)).unwrap_or_else(|| {
            items.push(Value::Object(Map::new()));
            items.len() - 1
        });
        strategic(kind, &format!("{at}/-"), &mut items[place], wanted)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resource;

    fn patched(plural: &str, object: Value, patch: Value) -> Result<Value, Refused> {
        apply(resource::by_plural(plural).unwrap(), STRATEGIC, &object, &patch)
    }

    /// A list of objects that have this member alone.
    fn named(by: &str, values: &[&str]) -> Value {
        values.iter().map(|value| json!({by: value})).collect()
    }

    /// Each list that the type says is merged, below a value of this type: its pointer, where lists on the way have one
    /// item, and its key.
    fn merged_lists(kind: &Type, at: &str, depth: usize, found: &mut Vec<(String, String)>) {
        let Type::Object(name) = kind else { return };
        let Some(fields) = schema::TYPES.get(name).filter(|_| depth < 5) else { return };
        for (key, field) in fields {
            let below = format!("{at}/{key}");
            match (&field.kind, &field.merged_by) {
                (Type::List(_), Some(by)) => found.push((below, by.clone())),
                (Type::List(_), None) => {}
                (kind, _) => merged_lists(kind, &below, depth + 1, found),
            }
        }
    }

    fn at(pointer: &str, value: Value) -> Value {
        pointer.rsplit('/').filter(|part| !part.is_empty()).fold(value, |inner, part| json!({part: inner}))
    }

    #[test]
    fn every_list_that_the_schema_says_is_merged_is_merged_and_every_other_one_is_replaced() {
        let mut count = 0;
        for one in resource::ALL.iter().filter(|one| one.kept_as.is_none()) {
            let mut lists = Vec::new();
            merged_lists(&schema::type_of(one), "", 0, &mut lists);
            for (pointer, by) in lists {
                let list = |names: &[&str]| match by.as_str() {
                    "" => json!(names),
                    by => named(by, names),
                };
                let object = at(&pointer, list(&["a", "b"]));
                let after = patched(one.plural, object, at(&pointer, list(&["c"]))).unwrap();
                assert_eq!(after.pointer(&pointer), Some(&list(&["a", "b", "c"])), "{} {pointer}", one.kind);
                count += 1;
            }
        }
        assert!(count > 40, "{count}");
        for (plural, pointer) in
            [("nodes", "/spec/taints"), ("serviceaccounts", "/imagePullSecrets"), ("pods", "/spec/tolerations")]
        {
            let after = patched(plural, at(pointer, named("key", &["a", "b"])), at(pointer, named("key", &["c"])));
            assert_eq!(after.unwrap().pointer(pointer), Some(&named("key", &["c"])), "{pointer}");
        }
    }

    #[test]
    fn an_item_of_a_merged_list_is_changed_by_its_key_and_keeps_the_rest() {
        let container =
            |name: &str, image: &str| json!({"name": name, "image": image, "env": [{"name": "A", "value": "1"}]});
        let pod = json!({"spec": {"containers": [container("web", "v1"), container("log", "v1")]}});
        let patch = json!({"spec": {"$setElementOrder/containers": [{"name": "web"}, {"name": "log"}],
            "containers": [{"name": "web", "image": "v2", "env": [{"name": "B", "value": "2"}]}]}});
        let after = patched("pods", pod, patch).unwrap();
        let mut web = container("web", "v2");
        web["env"] = json!([{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]);
        assert_eq!(after["spec"], json!({"containers": [web, container("log", "v1")]}));
        let account = json!({"secrets": named("name", &["a", "b"])});
        let patch = json!({"secrets": [{"name": "a", "$patch": "delete"}, {"name": "c"}]});
        assert_eq!(patched("serviceaccounts", account.clone(), patch).unwrap()["secrets"], named("name", &["b", "c"]));
        let patch = json!({"secrets": [{"$patch": "replace"}, {"name": "c"}]});
        assert_eq!(patched("serviceaccounts", account.clone(), patch).unwrap()["secrets"], named("name", &["c"]));
        let keyless = patched("serviceaccounts", account, json!({"secrets": [{"kind": "Secret"}]})).unwrap_err();
        assert!(keyless.message.contains("no merge key \"name\""), "{keyless}");
    }

    #[test]
    fn directives_empty_replace_and_retain_and_an_unknown_one_is_refused() {
        let object = || json!({"metadata": {"name": "x"}, "data": {"a": "1", "b": "2"}});
        let data = |patch: Value| patched("configmaps", object(), json!({"data": patch}));
        assert_eq!(data(json!({"$patch": "delete"})).unwrap()["data"], json!({}));
        assert_eq!(data(json!({"$patch": "replace", "c": "3"})).unwrap()["data"], json!({"c": "3"}));
        assert_eq!(data(json!({"$retainKeys": ["a", "c"], "c": "3"})).unwrap()["data"], json!({"a": "1", "c": "3"}));
        for unknown in [json!("merge"), json!(1)] {
            assert_eq!(data(json!({"$patch": unknown})).unwrap_err().code, 400, "{unknown}");
        }
    }
}
