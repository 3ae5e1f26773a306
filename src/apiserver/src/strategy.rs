//! What kube-apiserver does to the writes of single kinds, and to the metadata of all. Services have a module of their own.
//!
//! Source: the `strategy.go` files below `pkg/registry`, `pkg/apis/{storage,core}` and
//! `k8s.io/apimachinery/pkg/api/validation` of Kubernetes 1.36.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use crate::{
    Refused,
    resource::Resource,
    status,
    store::{Part, keep_members},
};

/// How long the name of a label and its value may be. Source: `qualifiedNameMaxLength`, `LabelValueMaxLength`.
const LONGEST_LABEL: usize = 63;
/// How long the prefix of a label's name may be. Source: `DNS1123SubdomainMaxLength`.
const LONGEST_PREFIX: usize = 253;

/// The members of metadata that a write of the status leaves as they are, where the kind says so. Source:
/// `ResetObjectMetaForStatus`.
const NOT_BY_STATUS: [&str; 4] = ["labels", "annotations", "finalizers", "ownerReferences"];

/// Whether an update must name the version that it changes. Source: `AllowUnconditionalUpdate`.
fn needs_version(resource: &Resource) -> bool {
    matches!(
        (resource.group, resource.plural),
        ("coordination.k8s.io", "leases") | ("storage.k8s.io", "volumeattachments" | "csinodes" | "csidrivers")
    )
}

/// Whether the whole object of an update may be written.
pub(crate) fn check_version(resource: &Resource, name: &str, object: &Value) -> Result<(), Refused> {
    let has_none = object["metadata"]["resourceVersion"].as_str().unwrap_or_default().is_empty();
    match needs_version(resource) && has_none {
        true => {
            let why = "metadata.resourceVersion: Invalid value: 0: must be specified for an update";
            Err(status::invalid(resource, name, why))
        }
        false => Ok(()),
    }
}

/// An object as a client has written it: the texts of a Secret become bytes.
pub(crate) fn as_kept(resource: &Resource, object: &mut Value) {
    if resource.kind != "Secret" {
        return;
    }
    let Some(Value::Object(texts)) = object.as_object_mut().and_then(|members| members.remove("stringData")) else {
        return;
    };
    if !object["data"].is_object() {
        object["data"] = json!({});
    }
    for (key, text) in texts {
        object["data"][key] = json!(BASE64_STANDARD.encode(text.as_str().unwrap_or_default()));
    }
}

/// Takes back, or refuses, what an update of a kind does not change.
pub(crate) fn on_update(resource: &Resource, before: &Value, after: &mut Value, part: Part) -> Result<(), Refused> {
    if resource.kind != "VolumeAttachment" {
        return Ok(());
    }
    match part {
        Part::Main if before["spec"] != after["spec"] => {
            let name = before["metadata"]["name"].as_str().unwrap_or_default();
            Err(status::invalid(resource, name, "spec: Invalid value: field is immutable"))
        }
        Part::Main => Ok(()),
        Part::Status => {
            let metadata = after["metadata"].as_object_mut().expect("every object that is written has metadata");
            keep_members(&before["metadata"], metadata, NOT_BY_STATUS);
            Ok(())
        }
    }
}

/// Whether the labels and the names of the annotations of an object are such.
pub(crate) fn check_metadata(resource: &Resource, object: &Value) -> Result<(), Refused> {
    let metadata = &object["metadata"];
    let members = |key: &str| metadata[key].as_object().into_iter().flatten();
    let refused = |at: &str, value: &str, allowed: &str| {
        let name = metadata["name"].as_str().unwrap_or_default();
        Err(status::invalid(resource, name, &format!("metadata.{at}: Invalid value: {value:?}: {allowed}")))
    };
    for at in ["labels", "annotations"] {
        if let Some((key, _)) = members(at).find(|(key, _)| !is_qualified_name(key)) {
            let allowed = "a name consists of at most 63 letters, digits, '-', '_' or '.', begins and ends with a letter or \
                           digit, and may have a DNS name and '/' in front";
            return refused(at, key, allowed);
        }
    }
    let values = members("labels").filter_map(|(_, value)| value.as_str());
    match values.into_iter().find(|value| !value.is_empty() && !is_name(value)) {
        Some(value) => refused(
            "labels",
            value,
            "a label's value is empty, or consists of at most 63 letters, digits, '-', '_' or '.', and begins and ends with \
             a letter or digit",
        ),
        None => Ok(()),
    }
}

/// Whether a text begins and ends with a letter or digit, and has nothing else but these marks between.
fn is_word(text: &str, marks: &[u8]) -> bool {
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    ends(bytes.first())
        && ends(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || marks.contains(byte))
}

fn is_name(text: &str) -> bool {
    text.len() <= LONGEST_LABEL && is_word(text, b"-_.")
}

/// A name, which may have a DNS name and a slash in front.
fn is_qualified_name(text: &str) -> bool {
    let Some((prefix, name)) = text.split_once('/') else { return is_name(text) };
    prefix.len() <= LONGEST_PREFIX && prefix.split('.').all(|label| is_word(label, b"-")) && is_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_labels_and_their_values_are_checked() {
        for name in ["app", "app.kubernetes.io/name", "a", "A_b.c-d", "x/1", &"a".repeat(63)] {
            assert!(is_qualified_name(name), "{name}");
        }
        for name in ["", "-a", "a-", "a b", "/a", "a/", "a/b/c", "a_b/c", "-a.b/c", &"a".repeat(64), "ä"] {
            assert!(!is_qualified_name(name), "{name}");
        }
        let services = crate::resource::by_plural("services").unwrap();
        let check = |metadata: Value| check_metadata(services, &json!({"metadata": metadata}));
        check(json!({"labels": {"a": ""}, "annotations": {"a": "whatever!"}})).unwrap();
        let refused = check(json!({"name": "web", "labels": {"a": "not a label value!"}})).unwrap_err();
        assert!(refused.message.contains("\"not a label value!\""), "{refused}");
        assert_eq!(check(json!({"annotations": {"a b": ""}})).unwrap_err().code, 422);
    }
}
