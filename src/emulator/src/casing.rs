//! `--nasty-casing`: ids in answers with other letter case than was given.
//!
//! Documented by those who suffered it: the compute provider prints resource group names in upper
//! case in some ids, and others in lower case. Which ids get which case here follows from the member
//! they stand in, so that one document disagrees with another about the same id. Names, etags and
//! URLs stay.

use serde_json::Value;

/// Changes the case of every resource id in an answer.
pub(crate) fn spoil(value: &mut Value) {
    walk(value, "");
}

/// The same for answers of the metadata service: another case than the resource manager's for the same
/// resource.
pub(crate) fn spoil_metadata(value: &mut Value) {
    // As for a reference to a machine, whichever member it stands in.
    walk_as(value, "", Some("vmUri"));
}

fn walk(value: &mut Value, member: &str) {
    walk_as(value, member, None);
}

fn walk_as(value: &mut Value, member: &str, always: Option<&str>) {
    match value {
        Value::String(text) => {
            if let Some(spoilt) = spoilt(text, always.unwrap_or(member)) {
                *text = spoilt;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| walk_as(item, member, always)),
        Value::Object(object) => {
            for (name, item) in object.iter_mut() {
                walk_as(item, name, always);
            }
        }
        _ => {}
    }
}

fn spoilt(id: &str, member: &str) -> Option<String> {
    if !id.to_ascii_lowercase().starts_with("/subscriptions/") {
        return None;
    }
    let mut segments: Vec<String> = id.split('/').map(str::to_owned).collect();
    let at = |segments: &[String], word: &str| segments.iter().position(|s| s.eq_ignore_ascii_case(word));
    if let Some(group) = at(&segments, "resourceGroups") {
        match member {
            "managedBy" | "managedByExtended" | "vmUri" => {
                segments[group] = "resourcegroups".to_owned();
                if let Some(name) = segments.get_mut(group + 1) {
                    *name = name.to_ascii_lowercase();
                }
            }
            _ => {
                if let Some(name) = segments.get_mut(group + 1) {
                    *name = name.to_ascii_uppercase();
                }
            }
        }
    }
    if let Some(providers) = at(&segments, "providers")
        && let Some(namespace) = segments.get_mut(providers + 1)
        && matches!(member, "managedBy" | "sourceResourceId")
    {
        *namespace = namespace.to_ascii_lowercase();
    }
    if member == "managedBy"
        && let Some(name) = segments.last_mut()
    {
        *name = name.to_ascii_uppercase();
    }
    Some(segments.join("/"))
}
